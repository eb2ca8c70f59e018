// SPDX-License-Identifier: Apache-2.0
/* runner.c - the effect runner: claim, work and acknowledgement of sql jobs, a batch per commit.
 *
 * May assume: descriptor 0 is the socket to its supervisor, 3 the worker's locked side file; it
 *             dies with its supervisor.
 * Keeps: while paused it touches no job; a suspect has a transaction of its own; told to end, it
 *        finishes its batch.
 * Never: starts a process, settles leased jobs, reaps.
 */
#include "worker/worker.h"

#include "base/clock.h"
#include "base/err.h"
#include "engine/engine.h"
#include "handler/handler.h"
#include "worker/lanes.h"
#include "worker/link.h"

#include <assert.h>
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/time.h>
#include <time.h>

enum {
    NET_US = 100 * 1000,            /* look for foreign commits this often when nothing wakes us */
    LOOK_ANYWAY_US = 5000 * 1000,
    BACKOFF_MIN_US = 100 * 1000,
    BACKOFF_MAX_US = 5000 * 1000,
    LOG_EVERY_US = 30 * 1000 * 1000,
    OVERRUN_US = 5000 * 1000,       /* beyond the hard limit: a statement that no interrupt ends */
};

/* What the signal handlers touch. */
static struct {
    volatile int drain;             /* end after the job in hand */
    volatile int now;               /* and interrupt it */
    _Atomic int64_t kill_at_us;     /* the job in hand must be over by then; 0: none in hand */
} flags;

struct runner {
    const struct runner_opts *o;
    const struct env *env;
    struct store *st;
    struct lanes lanes;
    struct sql_task **tasks;        /* parallel to lanes.effect */
    struct effect *effect;
    bool paused;                    /* see link.h */
    bool idle;                      /* as last said to the supervisor */
    int64_t next_due_us;            /* monotonic; INT64_MAX: nothing waits */
    int64_t look_anyway_us;         /* monotonic */
    int64_t backoff_us;
    struct log_gate gate;
};

static int64_t mono(const struct runner *r)
{
    return r->env->mono_us(r->env->ctx);
}

/* --- signals: USR1 drain, TERM end now, ALRM the watchdog --- */

static void on_drain(int sig)
{
    (void)sig;
    flags.drain = 1;
}

static void on_now(int sig)
{
    (void)sig;
    flags.drain = 1;
    flags.now = 1;
}

/* A statement that does not react to the interrupt holds the store's lock: nothing but our death
 * frees it. The default action of the same signal, taken when this handler returns, says so. */
static void on_alarm(int sig)
{
    struct timespec t;
    int64_t now_us, at_us = atomic_load(&flags.kill_at_us);

    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    now_us = (int64_t)t.tv_sec * 1000000 + t.tv_nsec / 1000;
    if (at_us == 0 || now_us < at_us) return;
    (void)signal(sig, SIG_DFL);
    (void)raise(sig);
}

static void catch_signal(int sig, void (*fn)(int))
{
    struct sigaction a = {.sa_handler = fn};

    (void)sigemptyset(&a.sa_mask);
    (void)sigaction(sig, &a, NULL); /* no SA_RESTART: a wait ends when a flag is raised */
}

static void signals_setup(void)
{
    catch_signal(SIGUSR1, on_drain);
    catch_signal(SIGTERM, on_now);
    catch_signal(SIGALRM, on_alarm);
    catch_signal(SIGINT, SIG_IGN); /* the supervisor decides */
    catch_signal(SIGHUP, SIG_IGN);
    catch_signal(SIGPIPE, SIG_IGN);
}

static void watchdog(bool on)
{
    struct itimerval t = {{0, 0}, {0, 0}};

    if (on) t.it_interval.tv_sec = t.it_value.tv_sec = 1;
    (void)setitimer(ITIMER_REAL, &t, NULL);
}

/* --- one job --- */

static void run_job(void *ctx, struct store *st, const struct lane_task *t, const struct job *job,
                    struct arena *arena, struct finding *f, bool *pinned)
{
    struct runner *r = ctx;
    size_t i = (size_t)(t - r->lanes.effect.lane.tasks);
    int64_t limit_us = t->policy.hard_limit_us;

    assert(i < r->lanes.effect.lane.tasks_n);
    if (limit_us > 0) atomic_store(&flags.kill_at_us, mono(r) + limit_us + OVERRUN_US);
    sql_task_run(r->tasks[i], st, &t->policy, job, &flags.now, arena, f, pinned);
    atomic_store(&flags.kill_at_us, 0);
}

/* --- the conversation --- */

static bool say(struct runner *r, enum link_word w)
{
    (void)r;
    return link_say(RUNNER_CTL_FD, w, true);
}

/* Act on what the supervisor said. False: end. */
static bool hear(struct runner *r)
{
    for (;;) {
        switch (link_hear(RUNNER_CTL_FD)) {
        case LINK_NONE: return flags.drain == 0;
        case LINK_PAUSE:
            r->paused = true;
            if (!say(r, LINK_PAUSED)) return false;
            break;
        case LINK_RESUME: r->paused = false; break;
        default: return false; /* DRAIN, or the supervisor is gone */
        }
    }
}

static bool say_idle(struct runner *r, bool idle)
{
    if (r->idle == idle) return true;
    r->idle = idle;
    if (idle) watchdog(false);
    return say(r, idle ? LINK_IDLE : LINK_BUSY);
}

/* Wait until the supervisor speaks, a signal comes, wait_us passed (-1: for ever) or, with wake, a
 * commit of another pawl process is announced (then true). */
static bool wait_for(struct runner *r, int64_t wait_us, bool wake)
{
    struct pollfd p[2] = {{.fd = RUNNER_CTL_FD, .events = POLLIN},
                          {.fd = wake ? store_wake_fd(r->st) : -1, .events = POLLIN}};
    struct timespec t = {.tv_sec = wait_us / 1000000, .tv_nsec = wait_us % 1000000 * 1000};
    sigset_t none, ours, old;

    /* The flags are looked at with the signals blocked, so that none is missed before the wait. */
    (void)sigemptyset(&none);
    (void)sigemptyset(&ours);
    (void)sigaddset(&ours, SIGUSR1);
    (void)sigaddset(&ours, SIGTERM);
    (void)sigprocmask(SIG_BLOCK, &ours, &old);
    if (flags.drain == 0 && ppoll(p, 2, wait_us < 0 ? NULL : &t, &none) < 0) p[1].revents = 0;
    (void)sigprocmask(SIG_SETMASK, &old, NULL);
    return p[1].revents != 0;
}

/* Nothing is due: wait for a reason to look again. True: there is one. */
static bool wait_for_work(struct runner *r)
{
    int64_t left = r->next_due_us == INT64_MAX ? NET_US : r->next_due_us - mono(r);

    if (left > NET_US) left = NET_US;
    if (left > 0 && wait_for(r, left, true)) store_wake_clear(r->st);
    /* Our own commits wake us, too. A due time is kept on the monotonic clock: look anyway, should
     * the wall clock have been set. */
    if (mono(r) >= r->look_anyway_us) r->next_due_us = 0;
    return store_changed(r->st) || mono(r) >= r->next_due_us;
}

/* --- batches --- */

static bool passing(enum pawl_rc rc)
{
    return rc == PAWL_BUSY || rc == PAWL_FULL || rc == PAWL_IO || rc == PAWL_NOMEM
        || rc == PAWL_STORE || rc == PAWL_UNSURE;
}

static void back_off(struct runner *r, const struct pawl_error *e)
{
    if (flags.drain != 0) return; /* our own interrupt, or the next worker's trouble */
    if (log_gate(&r->gate, LOG_EVERY_US)) {
        log_line(LOG_WARN, "store.trouble", "s:worker", r->o->worker, "s:lane", "effect", "s:rc",
                 pawl_rc_name(e->rc), "s:why", e->msg, "i:more", r->gate.swallowed, NULL);
    }
    r->backoff_us = r->backoff_us == 0 ? BACKOFF_MIN_US : r->backoff_us * 2;
    if (r->backoff_us > BACKOFF_MAX_US) r->backoff_us = BACKOFF_MAX_US;
    (void)wait_for(r, r->backoff_us, false);
}

/* One batch and what follows from it. *more: look again at once. */
static enum pawl_rc batch(struct runner *r, bool *more, struct pawl_error *e)
{
    struct effect_report rep;
    enum pawl_rc rc;

    memset(&rep, 0, sizeof rep);
    *more = false;
    watchdog(true);
    rc = effect_batch(r->effect, r->st, &rep, e);
    if (rc != PAWL_OK) {
        if (!passing(rc)) return rc;
        back_off(r, e);
        *more = true;
        return PAWL_OK;
    }
    r->backoff_us = 0;
    *more = rep.claimed > 0 || rep.info.more;
    if (rep.claimed > 0 && !say_idle(r, false)) return PAWL_OK; /* hear() sees the end */
    r->next_due_us = INT64_MAX;
    r->look_anyway_us = mono(r) + LOOK_ANYWAY_US;
    if (rep.info.next_due_us > 0) {
        r->next_due_us = mono(r) + rep.info.next_due_us - store_now_us(r->st);
    }
    return PAWL_OK;
}

static enum pawl_rc loop(struct runner *r, struct pawl_error *e)
{
    bool look = true;
    enum pawl_rc rc = PAWL_OK;

    while (rc == PAWL_OK && hear(r)) {
        if (r->paused) {
            (void)wait_for(r, -1, false);
            look = true;
        } else if (look) {
            rc = batch(r, &look, e);
        } else {
            if (!say_idle(r, true)) break;
            look = wait_for_work(r);
        }
    }
    watchdog(false);
    return rc;
}

/* --- life --- */

static enum pawl_rc open_tasks(struct runner *r, struct pawl_error *e)
{
    const struct lane_conf *l = &r->lanes.effect;
    enum pawl_rc rc = PAWL_OK;

    r->tasks = calloc(l->lane.tasks_n + 1, sizeof *r->tasks);
    if (r->tasks == NULL) return pawl_fail(e, PAWL_NOMEM, "effect runner");
    for (size_t i = 0; i < l->lane.tasks_n && rc == PAWL_OK; i++) {
        rc = sql_task_open(r->st, r->o->conf, l->tasks[i], &r->tasks[i], e);
    }
    return rc;
}

static enum pawl_rc setup(struct runner *r, struct pawl_error *e)
{
    const struct runner_opts *o = r->o;
    struct store_opts so = {.url = o->url, .env = r->env, .on_connect = o->conf->on_connect,
                            .on_connect_n = o->conf->on_connect_n, .lease_us = o->conf->lease_us,
                            .accept_wal_risk = o->accept_wal_risk};
    struct effect_opts eo = {.lane = &r->lanes.effect.lane, .fn = run_job, .ctx = r, .env = r->env,
                             .stop = &flags.drain};
    char print[FINGERPRINT_BYTES];
    enum pawl_rc rc;

    conf_fingerprint(o->conf, print);
    if (strcmp(print, o->fingerprint) != 0) {
        return pawl_fail(e, PAWL_CONFIG, "%s has changed since the worker read it; start the "
                         "worker again", o->conf->path);
    }
    if ((rc = store_open(&so, &r->st, e)) != PAWL_OK) return rc;
    if ((rc = store_worker_attach(r->st, o->worker, RUNNER_SIDE_FD, e)) != PAWL_OK) return rc;
    rc = lanes_declare(r->st, o->conf, false, o->queues, o->queues_n, NULL, NULL, &r->lanes, e);
    if (rc != PAWL_OK) return rc;
    if ((rc = open_tasks(r, e)) != PAWL_OK) return rc;
    r->effect = effect_new(&eo);
    if (r->effect == NULL) return pawl_fail(e, PAWL_NOMEM, "effect runner");
    return PAWL_OK;
}

enum pawl_rc runner_run(const struct runner_opts *o, struct pawl_error *e)
{
    struct runner r = {.o = o, .env = env_real(), .next_due_us = INT64_MAX};
    enum pawl_rc rc;

    signals_setup();
    (void)prctl(PR_SET_NAME, "pawl-runner");
    rc = setup(&r, e);
    if (rc == PAWL_OK && link_say(RUNNER_CTL_FD, LINK_READY, true)) rc = loop(&r, e);
    effect_free(&r.effect);
    for (size_t i = 0; r.tasks != NULL && i < r.lanes.effect.lane.tasks_n; i++) {
        sql_task_close(&r.tasks[i]);
    }
    free(r.tasks);
    lanes_free(&r.lanes);
    store_close(&r.st);
    return rc;
}
