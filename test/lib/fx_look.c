// SPDX-License-Identifier: Apache-2.0
/* fx_look.c - the fixture looks: jobs, attempts, counters, foreign SQL; and its child processes. */
#include <errno.h>
#include <ftw.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include "base/fail.h"
#include "lib/fx.h"

static void keep(char *out, size_t n, const char *s)
{
    snprintf(out, n, "%s", s != NULL ? s : "");
}

static bool copy_job(void *ctx, const struct pawl_job *j)
{
    struct fx_job *out = ctx;

    out->j = *j;
    keep(out->task, sizeof out->task, j->task);
    keep(out->queue, sizeof out->queue, j->queue);
    keep(out->source, sizeof out->source, j->source);
    keep(out->key, sizeof out->key, j->key);
    keep(out->entity, sizeof out->entity, j->entity);
    keep(out->args, sizeof out->args, j->args);
    keep(out->worker, sizeof out->worker, j->worker);
    keep(out->outcome, sizeof out->outcome, j->outcome);
    keep(out->dead_class, sizeof out->dead_class, j->dead_class);
    keep(out->reason, sizeof out->reason, j->reason);
    keep(out->error, sizeof out->error, j->error);
    keep(out->result, sizeof out->result, j->result);
    out->has_result = j->result != NULL;
    out->j.task = out->j.queue = out->j.source = out->j.key = out->j.entity = NULL;
    out->j.headers = out->j.trace = out->j.serial = out->j.args = out->j.worker = NULL;
    out->j.outcome = out->j.dead_class = out->j.reason = out->j.error = out->j.result = NULL;
    return true;
}

struct fx_job fx_job(struct fx *f, int64_t id)
{
    struct fx_job out = {0};
    const enum pawl_rc rc = store_job(f->st, id, copy_job, &out, &f->e);

    if (rc == PAWL_NOTFOUND)
        out.j.state = PAWL_STATE_N;
    else
        fx_ok(rc, f);
    return out;
}

enum pawl_state fx_state(struct fx *f, int64_t id) { return fx_job(f, id).j.state; }

struct tries { struct fx_try *at; size_t n, room; };

static bool copy_try(void *ctx, const struct pawl_attempt *t)
{
    struct tries *x = ctx;

    ck_assert_uint_lt(x->n, x->room);
    struct fx_try *out = &x->at[x->n++];
    out->n = t->n;
    keep(out->outcome, sizeof out->outcome, t->outcome);
    keep(out->error, sizeof out->error, t->error);
    keep(out->worker, sizeof out->worker, t->worker);
    out->exit_code = t->exit_code;
    out->signal = t->signal;
    return true;
}

size_t fx_attempts(struct fx *f, int64_t id, struct fx_try *out, size_t room)
{
    struct tries x = { out, 0, room };

    fx_ok(store_attempts(f->st, id, copy_try, &x, &f->e), f);
    return x.n;
}

struct wanted { const char *name; int64_t value; bool found; };

static bool pick_stat(void *ctx, const struct pawl_stat *s)
{
    struct wanted *w = ctx;

    if (strcmp(s->name, w->name) == 0) {
        w->value = s->value;
        w->found = true;
    }
    return !w->found;
}

int64_t fx_stat(struct fx *f, const char *name)
{
    struct wanted w = { .name = name };

    fx_ok(store_stats(f->st, pick_stat, &w, &f->e), f);
    ck_assert_msg(w.found, "no counter %s", name);
    return w.value;
}

void fx_counters(struct fx *f, int64_t id, int64_t runs, int64_t failures, int64_t lost,
                 int64_t releases, int64_t snoozes)
{
    const struct fx_job x = fx_job(f, id);

    /* The caller counts what went wrong; the run that succeeded counts as a run, too. */
    ck_assert_int_eq(x.j.runs, runs + (x.j.state == PAWL_STATE_DONE));
    ck_assert_int_eq(x.j.failures, failures);
    ck_assert_int_eq(x.j.lost, lost);
    ck_assert_int_eq(x.j.releases, releases);
    ck_assert_int_eq(x.j.snoozes, snoozes);
}

/* --- foreign SQL --- */

void fx_sql(struct fx *f, const char *sql)
{
    char why[400];
    const int rc = f->kind->run(f, sql, why, sizeof why);

    ck_assert_msg(rc == 0, "%s: %s", sql, why);
}

void fx_sql_of(struct fx *f, const char *sqlite, const char *postgres)
{
    fx_sql(f, f->kind == &fx_sqlite ? sqlite : postgres);
}

void fx_sqlf(struct fx *f, const char *fmt, ...)
{
    char sql[4096];
    va_list ap;

    va_start(ap, fmt);
    const int n = vsnprintf(sql, sizeof sql, fmt, ap);
    va_end(ap);
    ck_assert_int_lt(n, (int)sizeof sql);
    fx_sql(f, sql);
}

bool fx_sql_fails(struct fx *f, const char *sql, const char *part)
{
    char why[400];
    const int rc = f->kind->run(f, sql, why, sizeof why);

    if (rc == 0 || strstr(why, part) == NULL)
        fprintf(stderr, "%s: code %d, \"%s\", expected \"%s\"\n", sql, rc, why, part);
    return rc != 0 && strstr(why, part) != NULL;
}

int64_t fx_num(struct fx *f, const char *sql)
{
    char text[64];

    return f->kind->ask(f, sql, text, sizeof text) ? strtoll(text, NULL, 10) : INT64_MIN;
}

const char *fx_text(struct fx *f, const char *sql, char *buf, size_t n)
{
    if (!f->kind->ask(f, sql, buf, n)) *buf = '\0';
    return buf;
}

int64_t fx_numf(struct fx *f, const char *fmt, ...)
{
    char sql[4096];
    va_list ap;

    va_start(ap, fmt);
    const int n = vsnprintf(sql, sizeof sql, fmt, ap);
    va_end(ap);
    ck_assert_int_lt(n, (int)sizeof sql);
    return fx_num(f, sql);
}

/* --- files and processes --- */

static int remove_one(const char *path, const struct stat *sb, int type, struct FTW *at)
{
    (void)sb;
    (void)type;
    (void)at;
    return remove(path);
}

char *fx_mkdir(struct fx *f)
{
    return mkdir(f->dir, 0700) == 0 ? f->dir : NULL;
}

void fx_remove(const char *dir)
{
    ck_assert_int_eq(nftw(dir, remove_one, 16, FTW_DEPTH | FTW_PHYS), 0);
}

void *fx_shared(size_t n)
{
    void *p = mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    ck_assert(p != MAP_FAILED);
    return p;
}

bool fx_readable(int fd, int wait_ms)
{
    struct pollfd p = { .fd = fd, .events = POLLIN };

    return poll(&p, 1, wait_ms) == 1 && (p.revents & POLLIN) != 0;
}

static pid_t child(struct fx *f, void (*fn)(struct fx *f, void *ctx), void *ctx, bool open, int go)
{
    ck_assert_msg(f->st == NULL && f->foreign == NULL, "a connection would cross fork()");
    fflush(NULL);
    const pid_t pid = fork();
    ck_assert_int_ge(pid, 0);
    if (pid > 0) return pid;
    prctl(PR_SET_PDEATHSIG, SIGKILL); /* a failed test leaves nothing running */
    if (go >= 0) ck_assert(fx_readable(go, 30000));
    if (open) fx_open(f);
    fn(f, ctx);
    fx_shut(f);
    _exit(0);
}

pid_t fx_child(struct fx *f, void (*fn)(struct fx *f, void *ctx), void *ctx)
{
    return child(f, fn, ctx, true, -1);
}

pid_t fx_child_bare(struct fx *f, void (*fn)(struct fx *f, void *ctx), void *ctx)
{
    return child(f, fn, ctx, false, -1);
}

pid_t fx_child_after(struct fx *f, void (*fn)(struct fx *f, void *ctx), void *ctx, int go)
{
    return child(f, fn, ctx, true, go);
}

int fx_wait(pid_t pid)
{
    const int64_t deadline = env_real()->mono_us(NULL) + 30 * SEC;
    int status = 0;
    pid_t got;

    while ((got = waitpid(pid, &status, WNOHANG)) == 0) {
        if (env_real()->mono_us(NULL) > deadline) {
            kill(pid, SIGKILL);
            ck_abort_msg("a child does not end");
        }
        usleep(200); /* a look at a child that ends by itself, bounded by the deadline */
    }
    ck_assert_int_eq(got, pid);
    return status;
}

void fx_wait_ok(pid_t pid)
{
    const int status = fx_wait(pid);

    ck_assert_msg(WIFEXITED(status) && WEXITSTATUS(status) == 0, "a child ended with status %x",
                  status);
}

static const char *armed_point;

void fx_arm(const char *point, const char *action)
{
    struct pawl_error e = {0};
    char text[200];

    fx_disarm();
    snprintf(text, sizeof text, "%s=%s", point, action);
    ck_assert_int_eq(setenv("PAWL_FAILPOINT", text, 1), 0);
    ck_assert_msg(fail_setup(&e) == PAWL_OK, "%s", e.msg);
    armed_point = point;
}

/* A point once armed stays in the table: let it pass for ever. */
void fx_disarm(void)
{
    struct pawl_error e = {0};
    char text[200];

    if (armed_point != NULL) {
        snprintf(text, sizeof text, "%s=error:%" PRId64, armed_point, INT64_MAX);
        ck_assert_int_eq(setenv("PAWL_FAILPOINT", text, 1), 0);
        ck_assert_msg(fail_setup(&e) == PAWL_OK, "%s", e.msg);
    }
    unsetenv("PAWL_FAILPOINT");
    armed_point = NULL;
    fail_armed = false;
}
