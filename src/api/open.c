// SPDX-License-Identifier: Apache-2.0
/* open.c - a handle's life: open, a temporary store, close; its clock and its log.
 *
 * Keeps: a handle belongs to the process that opened it; in a child of fork() nothing of the store
 *        is touched, not even to close it: SQLite and the files belong to the parent.
 */
#include "api/api.h"

#include <assert.h>
#include <errno.h>
#include <ftw.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/sqlscan.h"

enum { LOG_KEEP = 1024 * 1024 }; /* bytes of lines; more are counted and left out */

enum pawl_rc api_need(bool ok, struct pawl_error *e, const char *what)
{
    return ok ? PAWL_OK : pawl_fail(e, PAWL_BADARG, "%s", what);
}

enum pawl_rc api_need_owner(pid_t owner, struct pawl_error *e)
{
    if (owner == getpid()) return PAWL_OK;
    return pawl_fail(e, PAWL_BADARG, "opened by process %ld; a child of fork() must not use it:"
                     " fork before you open, or exec another program", (long)owner);
}

enum pawl_rc api_need_handle(const struct pawl *p, struct pawl_error *e)
{
    enum pawl_rc rc = api_need(p && p->st, e, "the store handle is NULL: call pawl_open first");

    return rc == PAWL_OK ? api_need_owner(p->owner, e) : rc;
}

/* --- a handler that writes by another handle --- */

static _Thread_local struct api_apply *applying;

void api_apply_begin(struct api_apply *a)
{
    a->before = applying;
    applying = a;
}

void api_apply_end(struct api_apply *a)
{
    applying = a->before;
}

enum pawl_rc api_need_no_apply(const struct store_place *at, struct pawl_error *e)
{
    for (const struct api_apply *a = applying; a != NULL; a = a->before)
        if (a->place.ino != 0 && a->place.ino == at->ino && a->place.dev == at->dev)
            return pawl_fail(e, PAWL_BADARG, "called from inside a handler's transaction on this"
                             " store: it would wait for itself, or be stored though the job fails;"
                             " use pawl_run_enqueue there, and the rest outside");
    return PAWL_OK;
}

enum pawl_rc api_need_writer(const struct pawl *p, struct pawl_error *e)
{
    enum pawl_rc rc = api_need_handle(p, e);

    return rc == PAWL_OK ? api_need_no_apply(&p->place, e) : rc;
}

/* --- the clock --- */

static int64_t asked_us(void *ctx)
{
    const struct api_clock *c = ctx;
    int64_t us = c->now_us(c->ctx);

    /* 0 means "not set" everywhere, and a store holds no instant beyond 9999. */
    return us < 1 ? 1 : us > LIMIT_INSTANT_MAX_US ? LIMIT_INSTANT_MAX_US : us;
}

static int64_t mono_us(void *ctx) { (void)ctx; return env_real()->mono_us(env_real()->ctx); }
static int64_t boot_us(void *ctx) { (void)ctx; return env_real()->boot_us(env_real()->ctx); }
static uint64_t rnd(void *ctx) { (void)ctx; return env_real()->random(env_real()->ctx); }

const struct env *api_clock_init(struct api_clock *clock, const struct pawl_open_opts *o)
{
    if (o == NULL || o->now_us == NULL) return NULL;
    *clock = (struct api_clock){.env = {asked_us, mono_us, boot_us, rnd, clock},
                                .now_us = o->now_us, .ctx = o->now_ctx};
    return &clock->env;
}

/* --- the log --- */

static void keep_line(void *ctx, enum log_level lv, const char *line)
{
    struct api_log *log = ctx;

    if (log->lines.n + strlen(line) > LOG_KEEP || log->lines.failed) {
        log->dropped++;
        return;
    }
    const size_t before = log->lines.n;
    buf_putc(&log->lines, (char)('0' + (int)lv));
    buf_put(&log->lines, line, strlen(line) + 1);
    if (!log->lines.failed) return;
    log->lines.n = before; /* whole lines only */
    log->dropped++;
}

static void deliver(void *ctx)
{
    api_log_flush(ctx);
}

void api_log_init(struct api_log *log, const struct pawl_open_opts *o)
{
    *log = (struct api_log){.sink = {.fn = keep_line, .deliver = deliver, .ctx = log}};
    if (o == NULL) return;
    log->fn = o->log;
    log->ctx = o->log_ctx;
}

void api_log_flush(struct api_log *log)
{
    struct buf now = log->lines; /* the function may use a handle, which keeps lines again */
    const size_t dropped = log->dropped;

    if (log->fn == NULL || (now.n == 0 && dropped == 0)) return;
    log->lines = (struct buf){0};
    log->dropped = 0;
    for (size_t at = 0; at < now.n;) {
        const char *line = now.data + at + 1;
        log->fn(log->ctx, now.data[at] - '0', line);
        at += strlen(line) + 2;
    }
    buf_free(&now);
    if (dropped > 0) log->fn(log->ctx, LOG_ERROR, "event=log.lost why=\"out of memory\"");
}

void api_enter(struct api_log *log)
{
    /* A callback of the caller's may use the same handle: its lines join ours. */
    if (log->fn != NULL && log->depth++ == 0) log_push(&log->sink);
}

enum pawl_rc api_leave(struct api_log *log, enum pawl_rc rc)
{
    if (log->fn == NULL || --log->depth > 0) return rc;
    log_pop(&log->sink);
    api_log_flush(log);
    return rc;
}

/* --- options --- */

enum pawl_rc api_store_opts(const struct pawl_open_opts *o, const char *url, const struct env *env,
                            struct store_opts *so, struct pawl_error *e)
{
    struct arena a = {0};
    struct sql_scan unused;
    enum pawl_rc rc = api_need(url && *url, e, "the store's url is empty");

    if (rc != PAWL_OK) return rc;
    *so = (struct store_opts){.url = url, .env = env};
    if (o == NULL) return PAWL_OK;
    if (o->busy_us < 0) return pawl_fail(e, PAWL_BADARG, "busy_us must not be negative");
    so->on_connect = o->on_connect;
    so->on_connect_n = o->on_connect_n;
    if (o->on_connect_n > 0 && o->on_connect == NULL)
        return pawl_fail(e, PAWL_BADARG, "%zu on_connect statements at NULL", o->on_connect_n);
    for (size_t i = 0; i < o->on_connect_n && rc == PAWL_OK; i++) {
        rc = api_need(o->on_connect[i] != NULL, e, "an on_connect statement is NULL");
        if (rc != PAWL_OK || (rc = sql_scan_setup(o->on_connect[i], &a, &unused, e)) == PAWL_OK)
            continue;
        if (rc == PAWL_CONFIG) e->rc = PAWL_BADARG;
        rc = pawl_wrap(e, "on_connect \"%.60s\"", o->on_connect[i]);
    }
    arena_free(&a);
    return rc;
}

enum pawl_rc api_store_open(const struct store_opts *so, const struct pawl_open_opts *o,
                            struct store **out, struct pawl_error *e)
{
    enum pawl_rc rc = store_open(so, out, e);

    /* A statement that does not compile comes back as a failure of the store: it is not. */
    if (rc == PAWL_STORE && strstr(e->msg, "on_connect \"") != NULL) rc = e->rc = PAWL_BADARG;
    if (rc == PAWL_OK && o != NULL && o->busy_us > 0) store_patience(*out, o->busy_us);
    return rc;
}

/* --- the handle --- */

static void free_handle(struct pawl *p)
{
    buf_free(&p->log.lines);
    free(p->url);
    free(p->temp_dir);
    free(p);
}

static enum pawl_rc open_at(struct pawl *p, const char *url, const struct pawl_open_opts *o,
                            struct pawl_error *e)
{
    struct store_opts so;
    enum pawl_rc rc;

    p->owner = getpid();
    api_log_init(&p->log, o);
    rc = api_store_opts(o, url, api_clock_init(&p->clock, o), &so, e);
    if (rc != PAWL_OK) return rc;
    if (p->url == NULL && (p->url = strdup(url)) == NULL)
        return pawl_fail(e, PAWL_NOMEM, "out of memory");
    api_enter(&p->log);
    rc = PAWL_OK;
    if (p->temp_dir != NULL) {
        struct store_opts plain = so;
        plain.on_connect_n = 0; /* they may need tables that only the caller will make */
        rc = store_init(&plain, NULL, e);
    }
    if (rc == PAWL_OK) rc = api_store_open(&so, o, &p->st, e);
    if (rc == PAWL_OK) p->place = store_place(p->st);
    return api_leave(&p->log, rc);
}

enum pawl_rc pawl_open_with(const char *url, const struct pawl_open_opts *o, struct pawl **out,
                            struct pawl_error *e)
{
    WITH_ERROR(e);
    enum pawl_rc rc = api_need(out != NULL, e, "out is NULL");
    if (rc != PAWL_OK) return rc;
    *out = NULL;
    struct pawl *p = calloc(1, sizeof *p);
    if (!p) return pawl_fail(e, PAWL_NOMEM, "out of memory");
    rc = open_at(p, url, o, e);
    if (rc != PAWL_OK) {
        free_handle(p);
        return rc;
    }
    assert(p->st);
    *out = p;
    return PAWL_OK;
}

enum pawl_rc pawl_open(const char *url, struct pawl **out, struct pawl_error *e)
{
    return pawl_open_with(url, NULL, out, e);
}

/* --- temporary stores --- */

static int remove_one(const char *path, const struct stat *sb, int type, struct FTW *at)
{
    (void)sb;
    (void)type;
    (void)at;
    (void)remove(path);
    return 0;
}

static void remove_tree(const char *dir)
{
    (void)nftw(dir, remove_one, 8, FTW_DEPTH | FTW_PHYS);
}

/* Memory first; where there is none, or no room for another directory, the disk. */
static enum pawl_rc make_dir(char **out, struct pawl_error *e)
{
    const char *tmp = getenv("TMPDIR");
    const char *places[] = {"/dev/shm", tmp != NULL && *tmp != '\0' ? tmp : "/tmp"};
    int err = 0;

    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        struct buf b = {0};
        buf_printf(&b, "%s/pawl-XXXXXX", places[i]);
        *out = buf_take(&b);
        if (*out == NULL) return pawl_fail(e, PAWL_NOMEM, "out of memory");
        if (mkdtemp(*out) != NULL) return PAWL_OK;
        err = errno;
        free(*out);
        *out = NULL;
    }
    return pawl_fail_native(e, err == ENOSPC || err == EDQUOT ? PAWL_FULL : PAWL_NOCREATE, err,
                            "a temporary store: cannot make a directory in %s, nor in %s: %s",
                            places[0], places[1], strerror(err));
}

enum pawl_rc pawl_open_temp(const struct pawl_open_opts *o, struct pawl **out, struct pawl_error *e)
{
    WITH_ERROR(e);
    enum pawl_rc rc = api_need(out != NULL, e, "out is NULL");
    if (rc != PAWL_OK) return rc;
    *out = NULL;
    struct pawl *p = calloc(1, sizeof *p);
    if (!p) return pawl_fail(e, PAWL_NOMEM, "out of memory");
    rc = make_dir(&p->temp_dir, e);
    if (rc == PAWL_OK) {
        struct buf url = {0};
        buf_printf(&url, "sqlite:%s/temp.db", p->temp_dir);
        p->url = buf_take(&url);
        rc = p->url != NULL ? open_at(p, p->url, o, e) : pawl_fail(e, PAWL_NOMEM, "out of memory");
        if (rc != PAWL_OK) remove_tree(p->temp_dir);
    }
    if (rc != PAWL_OK) {
        free_handle(p);
        return rc;
    }
    *out = p;
    return PAWL_OK;
}

const char *pawl_url(const struct pawl *p)
{
    return p != NULL ? p->url : NULL;
}

void pawl_close(struct pawl **pp)
{
    struct pawl *p;

    if (!pp || !*pp) return;
    p = *pp;
    *pp = NULL;
    api_enter(&p->log);
    store_close(&p->st); /* after fork() it only frees memory */
    (void)api_leave(&p->log, PAWL_OK);
    if (p->temp_dir != NULL && p->owner == getpid()) remove_tree(p->temp_dir);
    free_handle(p);
}

int64_t pawl_now(const struct pawl *p)
{
    struct pawl_error unused;

    return api_need_handle(p, &unused) == PAWL_OK ? store_now_us(p->st) : 0;
}

void pawl_wake(struct pawl *p)
{
    struct pawl_error unused;

    if (api_need_handle(p, &unused) == PAWL_OK) store_poke(p->st);
}
