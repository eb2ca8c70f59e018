// SPDX-License-Identifier: Apache-2.0
/* partner.c - the supervisor's side of the effect runner: start, talk, restart, end.
 *
 * Keeps: a runner's death is charged (engine_reap_runner) before its successor starts; the runner
 *        holds still while a leased suspect runs.
 */
#include "base/err.h"
#include "base/log.h"
#include "base/os.h"
#include "worker/super.h"

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

enum { BACKOFF_MIN_US = 100 * 1000, BACKOFF_MAX_US = 5000 * 1000, STEADY_US = 10 * 1000 * 1000,
       LONG_US = 5 * 1000 * 1000 /* a job that keeps the write lock this long is named */ };

bool partner_gone(const struct sup *s)
{
    return s->partner.phase == PARTNER_NONE || s->partner.phase == PARTNER_DOWN;
}

static bool say(struct sup *s, enum link_word w)
{
    if (s->partner.fd < 0) return false;
    if (link_say(s->partner.fd, w, false)) return true;
    (void)kill(s->partner.pid, SIGKILL); /* it does not listen: its end arrives as LINK_END */
    return false;
}

/* --- start --- */

static enum pawl_rc spawn(struct sup *s, int ctl_fd, struct pawl_error *e)
{
    static const char *const levels[] = {"error", "warn", "info", "debug"};
    const struct worker_opts *o = s->o;
    char print[FINGERPRINT_BYTES];
    const char *argv[24];
    struct buf queues = {0};
    size_t n = 0;
    enum pawl_rc rc;

    conf_fingerprint(o->conf, print);
    for (size_t i = 0; i < o->queues_n; i++) {
        buf_printf(&queues, "%s%s", i > 0 ? "," : "", o->queues[i]);
    }
    argv[n++] = "/proc/self/exe";
    argv[n++] = "__runner";
    argv[n++] = "--config", argv[n++] = o->conf->path;
    argv[n++] = "--db", argv[n++] = o->url;
    argv[n++] = "--worker", argv[n++] = s->id;
    argv[n++] = "--fingerprint", argv[n++] = print;
    argv[n++] = "--log-level", argv[n++] = levels[o->log.level];
    if (o->log.json) argv[n++] = "--log-json";
    if (o->accept_wal_risk) argv[n++] = "--accept-wal-risk";
    if (queues.n > 0) argv[n++] = "--queue", argv[n++] = buf_str(&queues);
    argv[n] = NULL;
    struct os_spawn sp = {.argv = argv, .envp = (const char *const *)environ, .in_fd = ctl_fd,
                          .out_fd = -1, .err_fd = STDERR_FILENO, .reply_fd = s->side_fd};
    rc = queues.failed ? pawl_fail(e, PAWL_NOMEM, "start the effect runner")
                       : os_spawn(&sp, &s->partner.pid, e);
    buf_free(&queues);
    return rc;
}

static void later(struct partner *p, int64_t now_us)
{
    p->backoff_us = p->backoff_us == 0 ? BACKOFF_MIN_US : p->backoff_us * 2;
    if (p->backoff_us > BACKOFF_MAX_US) p->backoff_us = BACKOFF_MAX_US;
    p->start_at_us = now_us + p->backoff_us;
}

static void start(struct sup *s, int64_t now_us)
{
    struct partner *p = &s->partner;
    struct epoll_event ev = {.events = EPOLLIN, .data.u64 = TAG_PARTNER};
    struct pawl_error e = {0};
    int fd[2] = {-1, -1};
    enum pawl_rc rc;

    if (link_pair(fd) != 0 || epoll_ctl(s->ep, EPOLL_CTL_ADD, fd[0], &ev) != 0) {
        rc = pawl_fail_errno(&e, errno, "link to the effect runner");
    } else {
        rc = spawn(s, fd[1], &e);
    }
    if (fd[1] >= 0) (void)close(fd[1]);
    if (rc == PAWL_OK) {
        p->fd = fd[0];
        p->phase = PARTNER_STARTING;
        p->up_at_us = now_us;
        p->idle = p->pausing = p->paused = p->ending = p->killed = false;
        return;
    }
    if (fd[0] >= 0) (void)close(fd[0]);
    later(p, now_us);
    log_line(LOG_ERROR, "runner.cannot_start", "s:worker", s->id, "s:why", e.msg, "t:retry_in",
             p->backoff_us, NULL);
}

/* Charge the dead runner's job. Until that is durable no successor starts. */
static void charge(struct sup *s, int64_t now_us)
{
    struct partner *p = &s->partner;
    struct reap_report rep = {0};
    struct pawl_error e = {0};

    if (!p->charge || now_us < s->retry_at_us) return;
    if (engine_reap_runner(s->st, s->env, p->signal, OUT_LOST, &rep, &e) != PAWL_OK) {
        super_store_trouble(s, &e, now_us);
        return;
    }
    p->charge = false;
}

void partner_tick(struct sup *s, int64_t now_us)
{
    struct partner *p = &s->partner;

    charge(s, now_us);
    /* Not while a leased suspect runs: the runner would have to hold still at once. */
    if (p->phase == PARTNER_DOWN && !p->charge && s->phase == PHASE_WORK && now_us >= p->start_at_us
        && !children_alone(s)) {
        start(s, now_us);
    }
}

int64_t partner_next_us(const struct sup *s)
{
    const struct partner *p = &s->partner;

    if (p->charge) return s->retry_at_us;
    if (p->phase != PARTNER_DOWN || s->phase != PHASE_WORK || children_alone(s)) return INT64_MAX;
    return p->start_at_us;
}

/* --- its end --- */

static void died(struct sup *s, int64_t now_us)
{
    struct partner *p = &s->partner;
    bool starting = p->phase == PARTNER_STARTING; /* no handlers yet: told to end, it just dies */
    int status = 0;
    int sig, code;

    (void)kill(p->pid, SIGKILL); /* it may have closed the link without ending */
    while (waitpid(p->pid, &status, 0) < 0 && errno == EINTR) {}
    (void)close(p->fd);
    sig = WIFSIGNALED(status) ? WTERMSIG(status) : -1;
    code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    p->fd = -1;
    p->phase = PARTNER_DOWN;
    p->pausing = p->paused = false;
    s->look = s->active = true;
    if (p->ending && (sig < 0 || p->killed || starting)) {
        log_line(LOG_DEBUG, "runner.stop", "s:worker", s->id, "i:exit", (int64_t)code, NULL);
        return;
    }
    if (now_us - p->up_at_us > STEADY_US) p->backoff_us = 0;
    later(p, now_us);
    if (code == EXIT_CONFIG) {
        /* It said why. A worker that cannot run half of its tasks must not look healthy. */
        drain_begin(s, "the effect runner cannot work by this configuration", now_us);
        if (s->rc == PAWL_OK) {
            s->rc = pawl_fail(s->e, PAWL_CONFIG, "the effect runner cannot work by this "
                              "configuration (see the log); start the worker again");
        }
    }
    log_line(LOG_WARN, "runner.died", "s:worker", s->id, "i:pid", (int64_t)p->pid, "i:exit",
             (int64_t)code, "i:signal", (int64_t)sig, "t:restart_in", p->backoff_us, NULL);
    p->charge = true;
    p->signal = sig;
}

/* --- what it is on --- */

int64_t partner_job(const struct sup *s, int64_t now_us, int64_t *for_us)
{
    int64_t since_us = 0, job = partner_gone(s) ? 0 : store_in_hand(s->st, &since_us);

    *for_us = job != 0 && now_us > since_us ? now_us - since_us : 0;
    return job;
}

static bool take_task(void *ctx, const struct pawl_job *job)
{
    snprintf(ctx, LIMIT_NAME_BYTES + 1, "%s", job->task);
    return false;
}

void partner_watch(struct sup *s, int64_t now_us)
{
    char task[LIMIT_NAME_BYTES + 1] = "?";
    struct pawl_error e = {0};
    int64_t for_us = 0, job = partner_job(s, now_us, &for_us);

    if (job == 0 || for_us < LONG_US || s->partner.long_since_us == now_us - for_us) return;
    s->partner.long_since_us = now_us - for_us;
    if (store_job(s->st, job, take_task, task, &e) != PAWL_OK) task[0] = '?', task[1] = '\0';
    log_line(LOG_WARN, "effect.long", "s:worker", s->id, "d:job", job, "s:task", task, "t:for",
             for_us, "i:runner_pid", (int64_t)s->partner.pid, "s:why",
             "its statements hold the store's write lock; its hard_limit interrupts them", NULL);
}

/* --- the conversation --- */

void partner_hear(struct sup *s, int64_t now_us)
{
    struct partner *p = &s->partner;

    while (p->fd >= 0) {
        switch (link_hear(p->fd)) {
        case LINK_NONE: return;
        case LINK_READY:
            p->phase = PARTNER_UP;
            log_line(LOG_INFO, "runner.ready", "s:worker", s->id, "i:pid", (int64_t)p->pid, NULL);
            break;
        case LINK_PAUSED:
            p->paused = p->pausing;
            break;
        case LINK_IDLE: p->idle = true; break;
        case LINK_BUSY:
            p->idle = false;
            s->active = true;
            break;
        default: died(s, now_us); return;
        }
    }
}

bool partner_still(struct sup *s)
{
    struct partner *p = &s->partner;

    if (partner_gone(s)) return true;
    if (!p->pausing) p->pausing = say(s, LINK_PAUSE);
    return p->paused;
}

void partner_arbitrate(struct sup *s)
{
    struct partner *p = &s->partner;

    if (p->pausing && !children_alone(s)) {
        if (say(s, LINK_RESUME)) p->pausing = p->paused = false;
    }
}

void partner_drain(struct sup *s)
{
    struct partner *p = &s->partner;

    if (p->fd < 0 || p->ending) return;
    p->ending = true;
    (void)say(s, LINK_DRAIN);
    partner_signal(s, SIGUSR1); /* so that a long batch hears it, too */
}

void partner_signal(struct sup *s, int sig)
{
    if (s->partner.fd < 0) return;
    s->partner.ending = true;
    if (sig == SIGKILL) s->partner.killed = true; /* our doing, not its job's: nothing is charged */
    (void)kill(s->partner.pid, sig);
}
