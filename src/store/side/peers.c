// SPDX-License-Identifier: Apache-2.0
/* peers.c - worker files: joining, beating, blaming, and looking at the others'.
 *
 * A worker's file is mapped shared, so its last words survive SIGKILL of everything (not a power
 * cut: then the boot id differs and every lease is void anyway). The flock on it is held through
 * one
 * open file description by the supervisor and its runner: it is free only when both are gone.
 */
#include <assert.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/clock.h"
#include "base/err.h"
#include "store/side/side.h"

static void file_name(char out[40], const char *id)
{
    snprintf(out, 40, "w-%s", id);
}

/* Another's file is only read: it may be another user's. */
static struct side_worker *map_worker(int fd, bool write)
{
    void *p = mmap(NULL, sizeof(struct side_worker), PROT_READ | (write ? PROT_WRITE : 0),
                   MAP_SHARED, fd, 0);

    return p == MAP_FAILED ? NULL : p;
}

/* What a new worker file begins with. */
struct birth { int64_t lease_us, boot_us; const char *parent; };

/* Make the file of worker `id`, locked. *fd and *w are the caller's, also on an error. */
static enum pawl_rc make_file(struct side *s, const char *id, const struct birth *b, int *fd,
                              struct side_worker **w, struct pawl_error *e)
{
    char name[40], temp[48];

    file_name(name, id);
    snprintf(temp, sizeof temp, "new-%s", id);
    /* Lock before the name appears: a reaper must never see a fresh file with a free lock. */
    *fd = openat(s->dir_fd, temp, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
    if (*fd < 0 || !side_room(*fd, sizeof **w) || flock(*fd, LOCK_EX | LOCK_NB) != 0 ||
        (*w = map_worker(*fd, true)) == NULL) {
        const enum pawl_rc rc = pawl_fail_errno(e, errno, "worker file %s", temp);

        (void)unlinkat(s->dir_fd, temp, 0);
        return rc;
    }
    side_share(*fd, s->share);
    (*w)->magic = SIDE_MAGIC;
    clock_boot_id((*w)->boot_id);
    if (gethostname((*w)->host, sizeof (*w)->host - 1) != 0)
        (*w)->host[0] = '\0';
    (*w)->pid = getpid();
    (*w)->lease_us = b->lease_us;
    (*w)->serial = b->parent != NULL;
    snprintf((*w)->parent, sizeof (*w)->parent, "%s", b->parent != NULL ? b->parent : "");
    atomic_store(&(*w)->beat_boot_us, b->boot_us);
    if (renameat(s->dir_fd, temp, s->dir_fd, name) != 0)
        return pawl_fail_errno(e, errno, "worker file %s", name);
    return PAWL_OK;
}

enum pawl_rc side_join(struct side *s, int64_t lease_us, uint64_t rnd, int64_t boot_us,
                       struct pawl_error *e)
{
    const struct birth b = { .lease_us = lease_us, .boot_us = boot_us };

    assert(s->worker_fd < 0);
    snprintf(s->id, sizeof s->id, "%016" PRIx64, rnd);
    return make_file(s, s->id, &b, &s->worker_fd, &s->w, e);
}

/* --- files for runners --- */

static void forget_crew(struct side_crew *c)
{
    if (c->w != NULL)
        munmap(c->w, sizeof *c->w);
    if (c->fd >= 0)
        close(c->fd);
}

enum pawl_rc side_crew_join(struct side *s, int64_t lease_us, uint64_t rnd, int64_t boot_us,
                            struct side_crew **out, struct pawl_error *e)
{
    const struct birth b = { .lease_us = lease_us, .boot_us = boot_us, .parent = s->id };
    struct side_crew *more = realloc(s->crew, (s->crew_n + 1) * sizeof *more);
    enum pawl_rc rc;

    if (more == NULL)
        return pawl_fail(e, PAWL_NOMEM, "out of memory");
    s->crew = more;
    *out = &s->crew[s->crew_n];
    **out = (struct side_crew){ .fd = -1 };
    snprintf((*out)->id, sizeof (*out)->id, "%016" PRIx64, rnd);
    rc = make_file(s, (*out)->id, &b, &(*out)->fd, &(*out)->w, e);
    if (rc == PAWL_OK)
        s->crew_n++;
    else
        forget_crew(*out);
    return rc;
}

struct side_crew *side_crew_find(struct side *s, const char *id)
{
    for (size_t i = 0; i < s->crew_n; i++)
        if (strcmp(s->crew[i].id, id) == 0)
            return &s->crew[i];
    return NULL;
}

void side_crew_leave(struct side *s, const char *id)
{
    struct side_crew *c = side_crew_find(s, id);
    char name[40];

    if (c == NULL)
        return;
    file_name(name, id);
    unlinkat(s->dir_fd, name, 0);
    forget_crew(c);
    *c = s->crew[--s->crew_n];
}

void side_crew_close(struct side *s)
{
    for (size_t i = 0; i < s->crew_n; i++)
        forget_crew(&s->crew[i]);
    free(s->crew);
    s->crew = NULL;
    s->crew_n = 0;
}

enum pawl_rc side_attach(struct side *s, const char *id, int fd, struct pawl_error *e)
{
    snprintf(s->id, sizeof s->id, "%s", id);
    s->worker_fd = fcntl(fd, F_DUPFD_CLOEXEC, 3);
    if (s->worker_fd < 0 || (s->w = map_worker(s->worker_fd, true)) == NULL)
        return pawl_fail_errno(e, errno, "worker file of %s", id);
    if (s->w->magic != SIDE_MAGIC)
        return pawl_fail(e, PAWL_BUG, "descriptor %d is not the worker file of %s", fd, id);
    s->runner = true;
    return PAWL_OK;
}

void side_beat(const struct side *s)
{
    const int64_t boot_us = env_real()->boot_us(env_real()->ctx);

    if (s->w != NULL && !s->runner)
        atomic_store(&s->w->beat_boot_us, boot_us);
    for (size_t i = 0; i < s->crew_n; i++)
        atomic_store(&s->crew[i].w->beat_boot_us, boot_us);
}

void side_leave(struct side *s)
{
    char name[40];

    if (s->worker_fd < 0 || s->runner)
        return;
    file_name(name, s->id);
    unlinkat(s->dir_fd, name, 0);
    munmap(s->w, sizeof *s->w);
    s->w = NULL;
    close(s->worker_fd);
    s->worker_fd = -1;
}

static bool id_ok(const char *id)
{
    return strlen(id) == 16 && strspn(id, "0123456789abcdef") == 16;
}

enum pawl_rc side_list(struct side *s, struct arena *a, char (**ids)[SIDE_ID_BYTES], size_t *n,
                       struct pawl_error *e)
{
    const size_t room = 1024; /* more workers on one file than any machine runs */
    DIR *d = NULL;
    const int fd = openat(s->dir_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    *n = 0;
    if (fd < 0 || (d = fdopendir(fd)) == NULL) {
        if (fd >= 0)
            close(fd);
        return pawl_fail_errno(e, errno, "side directory");
    }
    *ids = arena_alloc(a, room * SIDE_ID_BYTES);
    if (*ids == NULL) {
        closedir(d);
        return pawl_fail(e, PAWL_NOMEM, "out of memory");
    }
    for (struct dirent *de; *n < room && (de = readdir(d)) != NULL;)
        if (strncmp(de->d_name, "w-", 2) == 0 && id_ok(de->d_name + 2))
            snprintf((*ids)[(*n)++], SIDE_ID_BYTES, "%s", de->d_name + 2);
    closedir(d);
    return PAWL_OK;
}

enum pawl_rc side_look(struct side *s, const char *id, int64_t boot_us, struct side_peer *out,
                       struct pawl_error *e)
{
    char name[40], boot[40];
    struct stat sb;

    memset(out, 0, sizeof *out);
    out->fd = -1;
    snprintf(out->id, sizeof out->id, "%s", id);
    if (!id_ok(id)) {
        out->life = SIDE_MISSING;
        return PAWL_OK;
    }
    file_name(name, id);
    out->fd = openat(s->dir_fd, name, O_RDONLY | O_NONBLOCK | O_NOFOLLOW | O_CLOEXEC);
    if (out->fd < 0) {
        if (errno != ENOENT)
            return pawl_fail_errno(e, errno, "worker file %s", name);
        out->life = SIDE_MISSING;
        return PAWL_OK;
    }
    /* Shared: several reapers may look at once, and none takes another's look for the owner's
     * life. */
    const bool free = flock(out->fd, LOCK_SH | LOCK_NB) == 0;
    if (fstat(out->fd, &sb) != 0 || !S_ISREG(sb.st_mode) || (size_t)sb.st_size < sizeof *out->w ||
        (out->w = map_worker(out->fd, false)) == NULL || out->w->magic != SIDE_MAGIC) {
        /* Never renamed in place half-made, so this is damage: the lock says whether it lives. */
        out->life = free ? SIDE_MISSING : SIDE_ALIVE;
        return PAWL_OK;
    }
    clock_boot_id(boot);
    if (free)
        out->life = strcmp(boot, out->w->boot_id) == 0 ? SIDE_GONE : SIDE_OLD_BOOT;
    else
        out->life = side_still_frozen(out, boot_us) ? SIDE_FROZEN : SIDE_ALIVE;
    return PAWL_OK;
}

bool side_missing_long(struct side *s, const char *id, int64_t boot_us, int64_t lease_us)
{
    const size_t n = sizeof s->missing / sizeof *s->missing;
    size_t at = 0;

    for (size_t i = 0; i < n; i++) {
        if (strcmp(s->missing[i].id, id) == 0)
            return boot_us - s->missing[i].since_us >= lease_us;
        if (s->missing[i].since_us < s->missing[at].since_us)
            at = i; /* the oldest entry, or an empty one, makes room */
    }
    snprintf(s->missing[at].id, SIDE_ID_BYTES, "%s", id);
    s->missing[at].since_us = boot_us;
    return false;
}

bool side_there(const struct side *s)
{
    struct stat ours, named;
    char name[40];

    file_name(name, s->id);
    return fstat(s->worker_fd, &ours) == 0 && fstatat(s->dir_fd, name, &named, 0) == 0 &&
           ours.st_ino == named.st_ino && ours.st_dev == named.st_dev;
}

bool side_still_frozen(const struct side_peer *p, int64_t boot_us)
{
    return p->w != NULL && boot_us - atomic_load(&p->w->beat_boot_us) > p->w->lease_us;
}

void side_forget(struct side *s, struct side_peer *p, bool unlink_it)
{
    char name[40];

    if (unlink_it && p->life != SIDE_ALIVE && p->life != SIDE_FROZEN && id_ok(p->id)) {
        file_name(name, p->id);
        unlinkat(s->dir_fd, name, 0);
    }
    if (p->w != NULL)
        munmap(p->w, sizeof *p->w);
    if (p->fd >= 0)
        close(p->fd);
    p->w = NULL;
    p->fd = -1;
}

/* --- blame: who is in hand, written before each job --- */

void side_blame_batch(struct side *s, enum blame_kind kind, uint64_t nonce, bool alone)
{
    if (s->w == NULL)
        return;
    assert(atomic_load(&s->w->blame.phase) == BLAME_IDLE);
    s->w->blame.n = s->w->blame.hand = 0;
    s->w->blame.kind = kind;
    s->w->blame.nonce = nonce;
    s->w->blame.alone = alone;
}

void side_blame_job(struct side *s, uint32_t i, int64_t id, int64_t runs)
{
    if (s->w == NULL || i >= LIMIT_BATCH)
        return;
    s->w->blame.jobs[i].id = id;
    s->w->blame.jobs[i].runs = runs;
    s->w->blame.n = i + 1;
}

void side_blame_hand(struct side *s, uint32_t i)
{
    if (s->w == NULL)
        return;
    s->w->blame.hand = i;
    atomic_store(&s->w->blame.hand_us, env_real()->mono_us(env_real()->ctx));
    atomic_store(&s->w->blame.phase, BLAME_HAND);
}

int64_t side_in_hand(const struct side_worker *w, int64_t *since_us)
{
    const struct side_blame *b = w != NULL ? &w->blame : NULL;

    *since_us = 0;
    if (b == NULL || atomic_load(&b->phase) == BLAME_IDLE || b->hand >= LIMIT_BATCH ||
        b->hand >= b->n)
        return 0;
    *since_us = atomic_load(&b->hand_us);
    return b->jobs[b->hand].id;
}

void side_blame_commit(struct side *s)
{
    if (s->w != NULL)
        atomic_store(&s->w->blame.phase, BLAME_COMMIT);
}

void side_blame_clear(struct side *s)
{
    if (s->w != NULL)
        atomic_store(&s->w->blame.phase, BLAME_IDLE);
}
