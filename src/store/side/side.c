// SPDX-License-Identifier: Apache-2.0
/* side.c - the side directory: whose turn it is to write, and who is alive.
 *
 * Keeps: kernel locks decide, shared memory only hints. A process that is killed leaves a free
 * lock;
 *        one that is frozen leaves an old stamp; nothing here needs repair after a crash.
 * Why:   SQLite's own write lock does not queue, and foreign writers nap up to 100 ms between tries
 *        (measured): without gaps they starve while we drain.
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
#include <sys/inotify.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#include "base/clock.h"
#include "base/err.h"
#include "store/side/side.h"
#include "store/side/who.h"

static int64_t mono_us(void)
{
    return env_real()->mono_us(env_real()->ctx);
}

void side_init(struct side *s)
{
    memset(s, 0, sizeof *s);
    s->dir_fd = s->lock_fd = s->turn_fd = s->wake_fd = s->ino_fd = s->worker_fd = -1;
}

static void *map_fd(int fd, size_t n)
{
    void *p = mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

    return p == MAP_FAILED ? NULL : p;
}

/* Room for a file that will be mapped. A hole would do until the disk is full: then a write to the
 * mapping is answered with SIGBUS. */
bool side_room(int fd, size_t n)
{
    const int err = posix_fallocate(fd, 0, (off_t)n);

    if (err != 0)
        errno = err;
    return err == 0;
}

void side_share(int fd, struct side_share how)
{
    struct stat sb;

    if (fstat(fd, &sb) != 0 || sb.st_uid != geteuid())
        return; /* its owner saw to it */
    if (sb.st_gid != how.gid && fchown(fd, (uid_t)-1, how.gid) != 0 && errno != EPERM)
        return;
    if (fchmod(fd, S_ISDIR(sb.st_mode) ? how.mode | ((how.mode & 0444) >> 2) : how.mode) != 0)
        return;
}

/* Without one, each waits for the lock for itself. */
static struct mail *open_mail(struct side *s, mode_t mode)
{
    const int fd = openat(s->dir_fd, "mail", O_RDWR | O_CREAT | O_CLOEXEC, mode);
    struct mail *m = NULL;
    struct stat sb;

    if (fd < 0)
        return NULL;
    if (fstat(fd, &sb) == 0 &&
        (((size_t)sb.st_size >= sizeof *m && sb.st_blocks * 512 >= (blkcnt_t)sizeof *m) ||
         side_room(fd, sizeof *m)))
        m = map_fd(fd, sizeof *m);
    side_share(fd, s->share);
    close(fd);
    return m;
}

enum pawl_rc side_open(struct side *s, const char *db_path, struct pawl_error *e)
{
    struct buf dir = {0};
    struct stat sb;
    enum pawl_rc rc = PAWL_OK;

    const bool known = stat(db_path, &sb) == 0;
    const mode_t mode = known ? (sb.st_mode & 0666) : 0644;
    s->share = (struct side_share){ .mode = mode, .gid = known ? sb.st_gid : getegid() };
    buf_printf(&dir, "%s-pawl", db_path);
    if (mkdir(buf_str(&dir), 0777) != 0 && errno != EEXIST) {
        rc = pawl_fail_errno(e, errno, "cannot make the side directory %s", buf_str(&dir));
        goto out;
    }
    if ((s->dir_fd = open(buf_str(&dir), O_RDONLY | O_DIRECTORY | O_CLOEXEC)) < 0 ||
        (s->lock_fd = openat(s->dir_fd, "lock", O_RDWR | O_CREAT | O_CLOEXEC, mode)) < 0 ||
        (s->wake_fd = openat(s->dir_fd, "wake", O_RDWR | O_CREAT | O_CLOEXEC, mode)) < 0 ||
        fstat(s->lock_fd, &sb) != 0 ||
        ((sb.st_size < 4096 || sb.st_blocks == 0) && !side_room(s->lock_fd, 4096)) ||
        (s->page = map_fd(s->lock_fd, sizeof *s->page)) == NULL)
        rc = pawl_fail_errno(e, errno, "side directory %s", buf_str(&dir));
    if (rc == PAWL_OK) {
        side_share(s->dir_fd, s->share);
        side_share(s->lock_fd, s->share);
        side_share(s->wake_fd, s->share);
        s->who = who_self();
        s->tag = env_real()->random(env_real()->ctx) << WHO_BITS;
        s->mail = open_mail(s, mode);
    }
out:
    buf_free(&dir);
    if (rc != PAWL_OK)
        side_close(s);
    return rc;
}

static void close_fd(int *fd)
{
    if (*fd >= 0)
        close(*fd);
    *fd = -1;
}

void side_close(struct side *s)
{
    if (s->mail != NULL)
        munmap(s->mail, sizeof *s->mail);
    s->mail = NULL;
    if (s->page != NULL)
        munmap(s->page, sizeof *s->page);
    if (s->w != NULL)
        munmap(s->w, sizeof *s->w);
    side_crew_close(s);
    s->page = NULL;
    s->w = NULL;
    close_fd(&s->dir_fd);
    close_fd(&s->lock_fd);
    close_fd(&s->turn_fd);
    close_fd(&s->wake_fd);
    close_fd(&s->ino_fd);
    close_fd(&s->worker_fd);
    s->held = false;
}

void side_saw_foreign(struct side *s)
{
    pace_foreign(&s->page->pace, mono_us());
}

void side_held(struct side *s, int64_t us)
{
    assert(s->held);
    pace_held(&s->page->pace, mono_us(), us);
}

int64_t side_turn_us(const struct side *s)
{
    return pace_room(&s->page->pace, mono_us());
}

void side_wake(struct side *s)
{
    /* One byte is enough: watchers get a modify event. A failure only costs the poll's latency. */
    if (s->wake_fd >= 0 && pwrite(s->wake_fd, "w", 1, 0) != 1)
        return;
}

int side_watch(struct side *s)
{
    char path[64];

    if (s->ino_fd >= 0)
        return s->ino_fd;
    s->ino_fd = inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
    if (s->ino_fd < 0)
        return -1;
    snprintf(path, sizeof path, "/proc/self/fd/%d", s->wake_fd);
    if (inotify_add_watch(s->ino_fd, path, IN_MODIFY) < 0)
        close_fd(&s->ino_fd);
    return s->ino_fd;
}

bool side_watch_clear(struct side *s)
{
    char buf[4096];
    bool any = false;

    while (s->ino_fd >= 0 && read(s->ino_fd, buf, sizeof buf) > 0)
        any = true;
    return any;
}
