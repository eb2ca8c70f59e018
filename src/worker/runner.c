// SPDX-License-Identifier: Apache-2.0
/* runner.c - a runner: it claims, works and acknowledges, a batch per commit, until told to end.
 *
 * May assume: descriptor 0 is the socket to its supervisor, 3 the locked side file of the worker
 *             that it is part of (effect) or is (prepared); it dies with its supervisor.
 * Keeps: while paused it touches no job; told to end, it finishes its batch, hands back what it
 *        leased, and says so. Descriptors that a handler may know (0 to 3) hold nothing of ours.
 * Never: starts a process, reaps, settles what another one leased.
 */
#include "worker/runner.h"

#include "base/err.h"
#include "worker/link.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

enum {
    NET_US = 100 * 1000,            /* look for foreign commits this often when nothing wakes us */
    LOOK_ANYWAY_US = 5000 * 1000,
    BACKOFF_MIN_US = 100 * 1000,
    BACKOFF_MAX_US = 2000 * 1000,
    LOG_EVERY_US = 30 * 1000 * 1000,
    HIGH_FD = 64,
    WATCH_US = 1000 * 1000,         /* the effect runner's watchdog looks this often */
};

struct runner_flags runner_flags;

/* --- signals: USR1 drain, TERM end now, ALRM the watchdog --- */

static void on_drain(int sig)
{
    (void)sig;
    runner_flags.drain = 1;
}

static void on_now(int sig)
{
    (void)sig;
    runner_flags.drain = 1;
    runner_flags.now = 1;
}

/* A statement that does not react to the interrupt, or a handler that does not return, holds the
 * store's lock: nothing but our death frees it. The default action of the same signal, taken when
 * this handler returns, says so. */
static void on_alarm(int sig)
{
    struct timespec t;
    int64_t now_us, at_us = atomic_load(&runner_flags.kill_at_us);

    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    now_us = (int64_t)t.tv_sec * 1000000 + t.tv_nsec / 1000;
    if (at_us > now_us && at_us - now_us < WATCH_US) {
        /* Before the next look. The one that follows is a second later again, or never. */
        struct itimerval old, soon = {.it_value.tv_usec = at_us - now_us};
        (void)getitimer(ITIMER_REAL, &old);
        soon.it_interval = old.it_interval;
        (void)setitimer(ITIMER_REAL, &soon, NULL);
    }
    if (at_us == 0 || now_us < at_us) return;
    (void)signal(sig, SIG_DFL);
    (void)raise(sig);
}

static void on_nothing(int sig)
{
    (void)sig;
}

static void catch_signal(int sig, void (*fn)(int), int flags)
{
    struct sigaction a = {.sa_handler = fn, .sa_flags = flags};

    (void)sigemptyset(&a.sa_mask);
    (void)sigaction(sig, &a, NULL);
}

/* Signals of no meaning are caught, not ignored: what a handler starts would inherit that. */
static void signals_setup(void)
{
    catch_signal(SIGUSR1, on_drain, 0); /* a wait ends when a flag is raised */
    catch_signal(SIGTERM, on_now, 0);
    catch_signal(SIGALRM, on_alarm, (int)SA_RESTART);
    catch_signal(SIGINT, on_nothing, (int)SA_RESTART); /* the supervisor decides */
    catch_signal(SIGHUP, on_nothing, (int)SA_RESTART);
    catch_signal(SIGPIPE, on_nothing, (int)SA_RESTART);
}

/* While the effect runner works it is looked at once a second (and when a limit is reached before
 * the next look): that costs a job nothing. A prepare
 * may sleep and wait, and must not be woken for it: there each job sets the timer (runner_job.c).
 */
static void watchdog(const struct runner *r, bool on)
{
    struct itimerval t = {{0, 0}, {0, 0}};

    if (on && r->o->role != RUNNER_EFFECT) return;
    if (on) t.it_interval.tv_sec = t.it_value.tv_sec = 1;
    (void)setitimer(ITIMER_REAL, &t, NULL);
}

/* --- the conversation --- */

static bool say(struct runner *r, enum link_word w)
{
    return link_say(r->ctl_fd, w, true);
}

/* Act on what the supervisor said. False: end. */
static bool hear(struct runner *r)
{
    for (;;) {
        switch (link_hear(r->ctl_fd)) {
        case LINK_NONE: return runner_flags.drain == 0;
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
    if (idle) watchdog(r, false);
    return say(r, idle ? LINK_IDLE : LINK_BUSY);
}

/* Wait until the supervisor speaks, a signal comes, wait_us passed (-1: for ever) or, with wake, a
 * commit of another pawl process is announced (then true). */
static bool wait_for(struct runner *r, int64_t wait_us, bool wake)
{
    struct pollfd p[2] = {{.fd = r->ctl_fd, .events = POLLIN},
                          {.fd = wake ? store_wake_fd(r->st) : -1, .events = POLLIN}};
    struct timespec t = {.tv_sec = wait_us / 1000000, .tv_nsec = wait_us % 1000000 * 1000};
    sigset_t none, ours, old;

    /* The flags are looked at with the signals blocked, so that none is missed before the wait. */
    (void)sigemptyset(&none);
    (void)sigemptyset(&ours);
    (void)sigaddset(&ours, SIGUSR1);
    (void)sigaddset(&ours, SIGTERM);
    (void)sigprocmask(SIG_BLOCK, &ours, &old);
    if (runner_flags.drain == 0 && ppoll(p, 2, wait_us < 0 ? NULL : &t, &none) < 0) {
        p[1].revents = 0;
    }
    (void)sigprocmask(SIG_SETMASK, &old, NULL);
    return p[1].revents != 0;
}

/* Nothing is due: wait for a reason to look again. True: there is one. */
static bool wait_for_work(struct runner *r)
{
    int64_t left = r->next_due_us == INT64_MAX ? NET_US : r->next_due_us - runner_mono(r);

    if (left > NET_US) left = NET_US;
    if (left > 0 && wait_for(r, left, true)) store_wake_clear(r->st);
    /* Our own commits wake us, too. A due time is kept on the monotonic clock: look anyway, should
     * the wall clock have been set. */
    if (runner_mono(r) >= r->look_anyway_us) r->next_due_us = 0;
    return store_changed(r->st) || runner_mono(r) >= r->next_due_us;
}

/* --- batches --- */

static bool passing(enum pawl_rc rc)
{
    return rc == PAWL_BUSY || rc == PAWL_FULL || rc == PAWL_IO || rc == PAWL_NOMEM
        || rc == PAWL_STORE || rc == PAWL_UNSURE;
}

static void back_off(struct runner *r, const struct pawl_error *e)
{
    if (runner_flags.drain != 0) return; /* our own interrupt, or the next worker's trouble */
    if (log_gate(&r->gate, LOG_EVERY_US)) {
        log_line(LOG_WARN, "store.trouble", "s:worker", r->o->worker, "s:lane",
                 r->effect != NULL ? "effect" : "prepared", "s:rc", pawl_rc_name(e->rc),
                 "s:why", e->msg, "i:more", r->gate.swallowed, NULL);
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
    watchdog(r, true);
    rc = r->effect != NULL ? effect_batch(r->effect, r->st, &rep, e)
                           : prepared_step(r->prepared, r->st, &rep, e);
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
    r->look_anyway_us = runner_mono(r) + LOOK_ANYWAY_US;
    if (rep.info.next_due_us > 0) {
        r->next_due_us = runner_mono(r) + rep.info.next_due_us - store_now_us(r->st);
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
    watchdog(r, false);
    return rc;
}

/* Hand back what is leased. Until that is durable, or the supervisor's patience ends us. */
static enum pawl_rc release(struct runner *r, struct pawl_error *e)
{
    enum pawl_rc rc;

    if (r->prepared == NULL) return PAWL_OK;
    while ((rc = prepared_release(r->prepared, r->st, e)) != PAWL_OK && passing(rc)) {
        struct timespec t = {.tv_nsec = BACKOFF_MIN_US * 1000};
        if (log_gate(&r->gate, LOG_EVERY_US)) {
            log_line(LOG_WARN, "store.trouble", "s:worker", r->o->worker, "s:lane", "prepared",
                     "s:rc", pawl_rc_name(rc), "s:why", e->msg, "i:more", r->gate.swallowed, NULL);
        }
        (void)nanosleep(&t, NULL);
    }
    return rc;
}

/* --- life --- */

/* Out of the way of handlers: what they close, or open in its place, is not ours. The numbers stay
 * taken, so that no file of the store gets one of them. */
static enum pawl_rc descriptors_setup(struct runner *r, struct pawl_error *e)
{
    struct log_conf log = r->o->log;
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);

    r->ctl_fd = fcntl(RUNNER_CTL_FD, F_DUPFD_CLOEXEC, HIGH_FD);
    r->side_fd = fcntl(RUNNER_SIDE_FD, F_DUPFD_CLOEXEC, HIGH_FD);
    log.fd = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, HIGH_FD);
    if (null < 0 || r->ctl_fd < 0 || r->side_fd < 0 || log.fd < 0
        || dup2(null, RUNNER_CTL_FD) < 0 || dup2(null, RUNNER_SIDE_FD) < 0) {
        return pawl_fail_errno(e, errno, "the runner's descriptors");
    }
    (void)close(null);
    log_setup(&log);
    (void)setvbuf(stdout, NULL, _IOLBF, 0); /* a handler's printf is seen when it is made */
    return PAWL_OK;
}

static enum pawl_rc setup(struct runner *r, struct pawl_error *e)
{
    const struct runner_opts *o = r->o;
    struct store_opts so = {.url = o->url, .env = r->env, .on_connect = o->conf->on_connect,
                            .on_connect_n = o->conf->on_connect_n, .lease_us = o->conf->lease_us,
                            .accept_wal_risk = o->accept_wal_risk, .watch = true};
    enum pawl_rc rc;

    if ((rc = descriptors_setup(r, e)) != PAWL_OK) return rc;
    if ((rc = store_open(&so, &r->st, e)) != PAWL_OK) return rc;
    r->env = store_env(r->st);
    rc = o->role == RUNNER_EFFECT ? store_worker_attach(r->st, o->worker, r->side_fd, e)
                                  : store_crew_attach(r->st, o->worker, r->side_fd, e);
    return rc == PAWL_OK ? runner_jobs_open(r, e) : rc;
}

enum pawl_rc runner_run(const struct runner_opts *o, struct pawl_error *e)
{
    struct runner r = {.o = o, .env = env_real(), .next_due_us = INT64_MAX, .ctl_fd = -1,
                       .side_fd = -1};
    struct pawl_error late = {0};
    enum pawl_rc rc;

    signals_setup();
    (void)prctl(PR_SET_NAME, "pawl-runner");
    rc = setup(&r, e);
    if (rc == PAWL_OK && say(&r, LINK_READY)) {
        rc = loop(&r, e);
        if (release(&r, &late) == PAWL_OK) (void)say(&r, LINK_OVER);
    }
    runner_jobs_close(&r);
    store_close(&r.st);
    return rc;
}
