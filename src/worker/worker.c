// SPDX-License-Identifier: Apache-2.0
/* worker.c - the life of `pawl work`: open, declare, join, loop, leave. */
#include "worker/worker.h"

#include "base/err.h"
#include "worker/super.h"

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <unistd.h>

enum { FDS_SPARE = 128 };
#define OPEN_US (10 * INT64_C(1000000)) /* for a server that is not there when we start */

static enum pawl_rc signals_setup(struct sup *s, struct pawl_error *e)
{
    static const int ours[] = {SIGTERM, SIGINT, SIGQUIT, SIGHUP, SIGCHLD, SIGUSR1, SIGUSR2};
    sigset_t set;

    (void)sigemptyset(&set);
    for (size_t i = 0; i < sizeof ours / sizeof *ours; i++) (void)sigaddset(&set, ours[i]);
    (void)sigprocmask(SIG_BLOCK, &set, NULL);
    (void)signal(SIGPIPE, SIG_IGN);
    (void)signal(SIGCHLD, SIG_DFL); /* ignored, it would throw our children's ends away */
    s->sig_fd = signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC);
    return s->sig_fd >= 0 ? PAWL_OK : pawl_fail_errno(e, errno, "signalfd");
}

/* A child takes five descriptors, a runner of the crew three. */
static enum pawl_rc descriptors_setup(const struct sup *s, struct pawl_error *e)
{
    rlim_t need = (rlim_t)s->slots_n * EXEC_FD_N + (rlim_t)s->crew_n * 3 + FDS_SPARE;
    struct rlimit lim;

    if (getrlimit(RLIMIT_NOFILE, &lim) != 0 || lim.rlim_cur >= need) return PAWL_OK;
    if (lim.rlim_max < need) {
        return pawl_fail(e, PAWL_CONFIG, "concurrency %zu needs %llu descriptors, the limit is "
                         "%llu: lower it or raise ulimit -n", s->slots_n,
                         (unsigned long long)need, (unsigned long long)lim.rlim_max);
    }
    lim.rlim_cur = need;
    return setrlimit(RLIMIT_NOFILE, &lim) == 0 ? PAWL_OK : pawl_fail_errno(e, errno, "setrlimit");
}

/* The store's URL as a child, which starts elsewhere, can use it. */
char *worker_child_url(const char *url)
{
    static const char scheme[] = "sqlite:";
    const char *path = strncmp(url, scheme, sizeof scheme - 1) == 0 ? url + sizeof scheme - 1 : url;
    struct buf b = {0};
    char cwd[PATH_MAX];
    char *out;

    if (strncmp(url, "postgres", 8) == 0) return strdup(url);
    buf_puts(&b, scheme);
    if (path[0] != '/' && getcwd(cwd, sizeof cwd) != NULL) buf_printf(&b, "%s/", cwd);
    buf_puts(&b, path);
    out = buf_take(&b);
    buf_free(&b);
    return out;
}

/* --- tasks --- */

struct drift { struct buf *out; size_t n; };

static void on_diff(void *ctx, const struct lane_diff *d)
{
    struct drift *drift = ctx;

    if (d->change == LANE_REPLACED) {
        log_line(LOG_INFO, "task.applied", "s:task", d->task, "s:change", d->text, NULL);
    } else if (d->change == LANE_DIFFERS) {
        drift->n++;
        buf_printf(drift->out, "task %s:\n%s", d->task, d->text);
    }
}

static enum pawl_rc declare(struct sup *s, struct buf *out, struct pawl_error *e)
{
    const struct worker_opts *o = s->o;
    struct drift drift = {.out = out};
    struct sql_task *probe = NULL;
    enum pawl_rc rc;

    if (o->conf->tasks_n == 0) {
        return pawl_fail(e, PAWL_CONFIG, "%s: no task in it: nothing to work on", o->conf->path);
    }
    rc = lanes_declare(s->st, o->conf, o->apply, o->queues, o->queues_n, on_diff, &drift,
                       &s->lanes, e);
    if (rc == PAWL_OK && drift.n > 0) {
        rc = pawl_fail(e, PAWL_DRIFT, "the stored policy of %zu task%s differs from %s; store this "
                       "one with --apply, or change the file", drift.n, drift.n == 1 ? "" : "s",
                       o->conf->path);
    }
    /* A statement that does not fit the database is told here, to the person who starts us. */
    for (size_t i = 0; i < s->lanes.effect.lane.tasks_n && rc == PAWL_OK; i++) {
        if (s->lanes.effect.tasks[i]->kind != HANDLER_SQL) continue;
        rc = sql_task_open(s->st, o->conf, s->lanes.effect.tasks[i], &probe, e);
        sql_task_close(&probe);
    }
    return rc;
}

/* --- life --- */

static enum pawl_rc watch(struct sup *s, int fd, enum tag tag, struct pawl_error *e)
{
    struct epoll_event ev = {.events = EPOLLIN, .data.u64 = (uint64_t)tag};

    if (fd < 0 || epoll_ctl(s->ep, EPOLL_CTL_ADD, fd, &ev) == 0) return PAWL_OK;
    return pawl_fail_errno(e, errno, "epoll");
}

static size_t concurrency(const struct worker_opts *o)
{
    return (size_t)(o->concurrency > 0 ? o->concurrency : o->conf->concurrency);
}

static enum pawl_rc runners_setup(struct sup *s, struct pawl_error *e)
{
    size_t n = (size_t)s->o->conf->runners;

    if (s->lanes.effect.lane.tasks_n > 0) s->partner.phase = PARTNER_DOWN;
    if (s->lanes.prepared.lane.tasks_n == 0) return PAWL_OK;
    if (n == 0) n = concurrency(s->o) < CONF_RUNNERS ? concurrency(s->o) : CONF_RUNNERS;
    s->crew = calloc(n, sizeof *s->crew);
    if (s->crew == NULL) return pawl_fail(e, PAWL_NOMEM, "runners");
    s->crew_n = n;
    for (size_t i = 0; i < n; i++) {
        s->crew[i] = (struct partner){.phase = PARTNER_DOWN, .fd = -1, .pid_fd = -1};
    }
    return PAWL_OK;
}

static enum pawl_rc slots_setup(struct sup *s, struct pawl_error *e)
{
    enum pawl_rc rc = runners_setup(s, e);

    if (rc != PAWL_OK) return rc;
    if (s->lanes.leased.lane.tasks_n > 0) {
        s->slots_n = concurrency(s->o);
        s->children = calloc(s->slots_n, sizeof *s->children);
        s->leased = leased_new(&s->lanes.leased.lane, s->slots_n, s->env);
        if (s->children == NULL || s->leased == NULL) return pawl_fail(e, PAWL_NOMEM, "slots");
        s->slots = leased_slots(s->leased, &s->slots_n);
    }
    return descriptors_setup(s, e);
}

/* A server that is being started, or is failing over, is waited for as a running worker does, but
 * not for ever: whoever starts us wants to know. */
static enum pawl_rc open_store(struct sup *s, const struct store_opts *so, struct pawl_error *e)
{
    const struct env *env = env_real();
    const int64_t until_us = env->mono_us(env->ctx) + OPEN_US;
    struct pollfd p = {.fd = s->sig_fd, .events = POLLIN};
    int pause_ms = 100;
    enum pawl_rc rc;

    while ((rc = store_open(so, &s->st, e)) == PAWL_IO && strncmp(so->url, "postgres", 8) == 0
           && env->mono_us(env->ctx) < until_us) {
        if (pause_ms == 100) {
            log_line(LOG_WARN, "store.trouble", "s:lane", "start", "s:rc", pawl_rc_name(rc),
                     "s:why", e->msg, "t:give_up_in", OPEN_US, NULL);
        }
        if (poll(&p, 1, pause_ms) > 0) break; /* told to end */
        pause_ms = pause_ms < 1000 ? 2 * pause_ms : 2000;
    }
    return rc;
}

static enum pawl_rc setup(struct sup *s, struct buf *drift, struct pawl_error *e)
{
    const struct worker_opts *o = s->o;
    struct store_opts so = {.url = o->url, .env = s->env, .on_connect = o->conf->on_connect,
                            .on_connect_n = o->conf->on_connect_n, .lease_us = s->lease_us,
                            .accept_wal_risk = o->accept_wal_risk};
    enum pawl_rc rc;

    if ((rc = signals_setup(s, e)) != PAWL_OK) return rc;
    if ((rc = open_store(s, &so, e)) != PAWL_OK) return rc;
    s->env = store_env(s->st); /* what is due, and when, is told by the store's clock */
    if ((rc = declare(s, drift, e)) != PAWL_OK) return rc;
    if ((rc = slots_setup(s, e)) != PAWL_OK) return rc;
    if ((s->child_db = worker_child_url(o->url)) == NULL) return pawl_fail(e, PAWL_NOMEM, "start");
    if ((s->ep = epoll_create1(EPOLL_CLOEXEC)) < 0) return pawl_fail_errno(e, errno, "epoll");
    if ((rc = watch(s, s->sig_fd, TAG_SIGNAL, e)) != PAWL_OK) return rc;
    if ((rc = watch(s, store_wake_fd(s->st), TAG_WAKE, e)) != PAWL_OK) return rc;
    return store_worker_join(s->st, s->id, &s->side_fd, e);
}

static int64_t tasks_of(const struct conf *conf, enum handler_kind kind)
{
    int64_t n = 0;

    for (size_t i = 0; i < conf->tasks_n; i++) n += conf->tasks[i].kind == kind;
    return n;
}

static void log_start(struct sup *s)
{
    struct buf store = {0}, queues = {0};

    for (size_t i = 0; i < s->o->queues_n; i++)
        buf_printf(&queues, "%s%s", i > 0 ? "," : "", s->o->queues[i]);
    store_describe(s->st, &store);
    log_line(LOG_INFO, "worker.start", "s:worker", s->id, "i:pid", (int64_t)getpid(), "s:version",
             PAWL_VERSION, "s:config", s->o->conf->path, "s:store", buf_str(&store),
             "s:queues", queues.n > 0 ? buf_str(&queues) : NULL,
             "i:concurrency", (int64_t)concurrency(s->o),
             "i:exec_tasks", tasks_of(s->o->conf, HANDLER_EXEC),
             "i:sql_tasks", tasks_of(s->o->conf, HANDLER_SQL),
             "i:c_tasks", tasks_of(s->o->conf, HANDLER_C),
             "i:prepared_tasks", (int64_t)s->lanes.prepared.lane.tasks_n,
             "i:runners", (int64_t)s->crew_n,
             "t:grace", s->grace_us, "t:lease", s->lease_us, NULL);
    buf_free(&store);
    buf_free(&queues);
}

/* Everything is given back: the side file may go. */
static void leave(struct sup *s)
{
    struct pawl_error e = {0};

    if ((s->leased != NULL && leased_busy(s->leased) > 0) || !partner_gone(s)) return;
    partner_leave(s);
    if (store_worker_leave(s->st, &e) != PAWL_OK) {
        log_line(LOG_WARN, "worker.leave", "s:worker", s->id, "s:why", e.msg, NULL);
    }
}

static void teardown(struct sup *s)
{
    for (size_t i = 0; i < s->slots_n && s->children != NULL; i++) {
        exec_child_kill(&s->children[i].c);
    }
    leased_free(&s->leased);
    lanes_free(&s->lanes);
    store_close(&s->st);
    free(s->children);
    free(s->crew);
    free(s->child_db);
    if (s->ep >= 0) (void)close(s->ep);
    if (s->sig_fd >= 0) (void)close(s->sig_fd);
}

enum pawl_rc worker_run(const struct worker_opts *o, struct buf *drift, struct pawl_error *e)
{
    struct sup s = {.o = o, .env = env_real(), .side_fd = -1, .ep = -1, .sig_fd = -1,
                    .partner = {.fd = -1, .pid_fd = -1}, .reap_orphans = getpid() == 1};
    enum pawl_rc rc;

    s.grace_us = o->grace_us >= 0 ? o->grace_us : o->conf->grace_us;
    s.lease_us = o->conf->lease_us;
    rc = setup(&s, drift, e);
    if (rc == PAWL_OK) {
        log_start(&s);
        rc = super_loop(&s, e);
        if (!partner_gone(&s)) partner_signal(&s, SIGKILL);
        leave(&s);
        log_line(rc == PAWL_OK ? LOG_INFO : LOG_ERROR, "worker.stop", "s:worker", s.id, "s:rc",
                 pawl_rc_name(rc), "s:why", rc == PAWL_OK ? NULL : e->msg, NULL);
    }
    teardown(&s);
    return rc;
}
