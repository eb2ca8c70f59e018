// SPDX-License-Identifier: Apache-2.0
/* partner.c - the supervisor's side of its runners: start, talk, restart, end.
 *
 * Keeps: what a runner's death means for its jobs is written (engine_reap_runner for the effect
 *        runner, engine_reap_crew for one of the crew) before its successor starts; an end counts
 *        as orderly only if the runner said so over the link, whatever its exit code.
 * Never: reads anything else from a runner, waits for one, or runs code of a plugin.
 */
#include "base/err.h"
#include "base/log.h"
#include "base/os.h"
#include "worker/super.h"

#include <assert.h>
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

enum { BACKOFF_MIN_US = 100 * 1000, BACKOFF_MAX_US = 5000 * 1000, STEADY_US = 10 * 1000 * 1000 };

static struct partner *nth(struct sup *s, size_t i)
{
    assert(i <= s->crew_n);
    return i == 0 ? &s->partner : &s->crew[i - 1];
}

static const struct partner *seen(const struct sup *s, size_t i)
{
    return i == 0 ? &s->partner : &s->crew[i - 1];
}

static const char *role(size_t i)
{
    return i == 0 ? "effect" : "prepared";
}

/* --- all of them --- */

bool partner_gone(const struct sup *s)
{
    for (size_t i = 0; i <= s->crew_n; i++) {
        if (partner_lives(seen(s, i)) || seen(s, i)->charge) return false;
    }
    return true;
}

bool partner_up(const struct sup *s)
{
    for (size_t i = 0; i <= s->crew_n; i++) {
        if (seen(s, i)->phase != PARTNER_NONE && seen(s, i)->phase != PARTNER_UP) return false;
    }
    return true;
}

bool partner_is(const struct sup *s, pid_t pid)
{
    for (size_t i = 0; i <= s->crew_n; i++) {
        if (partner_lives(seen(s, i)) && seen(s, i)->pid == pid) return true;
    }
    return false;
}

int64_t partner_crew(const struct sup *s, struct buf *pids)
{
    int64_t n = 0;

    for (size_t i = 0; i < s->crew_n; i++) {
        if (!partner_lives(&s->crew[i])) continue;
        buf_printf(pids, "%s%ld", n++ > 0 ? " " : "", (long)s->crew[i].pid);
    }
    return n;
}

bool partner_say(struct partner *p, enum link_word w)
{
    if (p->fd < 0) return false;
    if (link_say(p->fd, w, false)) return true;
    (void)kill(p->pid, SIGKILL); /* it does not listen: its end arrives as LINK_END */
    return false;
}

static void signal_one(struct partner *p, int sig)
{
    if (p->fd < 0) return;
    p->ending = true;
    if (sig == SIGKILL) p->killed = true; /* our doing, not its job's: nothing is charged */
    (void)kill(p->pid, sig);
}

void partner_signal(struct sup *s, int sig)
{
    for (size_t i = 0; i <= s->crew_n; i++) signal_one(nth(s, i), sig);
}

void partner_drain(struct sup *s)
{
    for (size_t i = 0; i <= s->crew_n; i++) {
        struct partner *p = nth(s, i);
        if (p->fd < 0 || p->ending) continue;
        p->ending = true;
        (void)partner_say(p, LINK_DRAIN);
        signal_one(p, SIGUSR1); /* so that a long batch hears it, too */
    }
}

void partner_leave(struct sup *s)
{
    for (size_t i = 0; i < s->crew_n; i++) {
        struct partner *p = &s->crew[i];
        if (p->id[0] == '\0' || p->charge || partner_lives(p)) continue;
        store_crew_leave(s->st, p->id);
        p->id[0] = '\0';
    }
}

/* --- start --- */

static enum pawl_rc spawn(struct sup *s, size_t i, int ctl_fd, struct pawl_error *e)
{
    static const char *const levels[] = {"error", "warn", "info", "debug"};
    const struct worker_opts *o = s->o;
    struct partner *p = nth(s, i);
    char print[FINGERPRINT_BYTES];
    const char *argv[24];
    struct buf queues = {0};
    size_t n = 0;
    enum pawl_rc rc;

    conf_fingerprint(o->conf, print);
    for (size_t k = 0; k < o->queues_n; k++) {
        buf_printf(&queues, "%s%s", k > 0 ? "," : "", o->queues[k]);
    }
    argv[n++] = "/proc/self/exe";
    argv[n++] = "__runner";
    argv[n++] = "--role", argv[n++] = role(i);
    argv[n++] = "--config", argv[n++] = o->conf->path;
    argv[n++] = "--db", argv[n++] = o->url;
    argv[n++] = "--worker", argv[n++] = i == 0 ? s->id : p->id;
    argv[n++] = "--fingerprint", argv[n++] = print;
    argv[n++] = "--log-level", argv[n++] = levels[o->log.level];
    if (o->log.json) argv[n++] = "--log-json";
    if (o->accept_wal_risk) argv[n++] = "--accept-wal-risk";
    if (queues.n > 0) argv[n++] = "--queue", argv[n++] = buf_str(&queues);
    argv[n] = NULL;
    struct os_spawn sp = {.argv = argv, .envp = (const char *const *)environ, .in_fd = ctl_fd,
                          .out_fd = STDERR_FILENO, .err_fd = STDERR_FILENO,
                          .reply_fd = i == 0 ? s->side_fd : p->side_fd};
    rc = queues.failed ? pawl_fail(e, PAWL_NOMEM, "start a runner") : os_spawn(&sp, &p->pid, e);
    buf_free(&queues);
    return rc;
}

static void later(struct partner *p, int64_t now_us)
{
    /* One death is no pattern: the successor of a runner that was well starts at once. */
    const bool first = p->backoff_us == 0 && p->up_at_us > 0;

    p->backoff_us = p->backoff_us == 0 ? BACKOFF_MIN_US : p->backoff_us * 2;
    if (p->backoff_us > BACKOFF_MAX_US) p->backoff_us = BACKOFF_MAX_US;
    p->start_at_us = first ? now_us : now_us + p->backoff_us;
}

static enum pawl_rc watch_fd(struct sup *s, int fd, size_t i, struct pawl_error *e)
{
    struct epoll_event ev = {.events = EPOLLIN, .data.u64 = (uint64_t)i << 8 | TAG_PARTNER};

    if (fd >= 0 && epoll_ctl(s->ep, EPOLL_CTL_ADD, fd, &ev) == 0) return PAWL_OK;
    return pawl_fail_errno(e, errno, "link to a runner");
}

static void close_fd(int *fd)
{
    if (*fd >= 0) (void)close(*fd);
    *fd = -1;
}

/* Watched also by its pid: a process that a handler forked may keep the link open. */
static enum pawl_rc start_one(struct sup *s, size_t i, struct pawl_error *e)
{
    struct partner *p = nth(s, i);
    int fd[2] = {-1, -1};
    enum pawl_rc rc = PAWL_OK;

    if (i > 0 && p->id[0] == '\0') rc = store_crew_join(s->st, p->id, &p->side_fd, e);
    if (rc != PAWL_OK) return rc;
    if (link_pair(fd) != 0) return pawl_fail_errno(e, errno, "link to a runner");
    p->fd = fd[0];
    if ((rc = watch_fd(s, p->fd, i, e)) == PAWL_OK) rc = spawn(s, i, fd[1], e);
    close_fd(&fd[1]);
    if (rc == PAWL_OK && (p->pid_fd = os_pidfd(p->pid)) >= 0) {
        (void)watch_fd(s, p->pid_fd, i, e); /* without it the link alone must do */
    }
    if (rc != PAWL_OK) close_fd(&p->fd);
    return rc;
}

static void start(struct sup *s, size_t i, int64_t now_us)
{
    struct partner *p = nth(s, i);
    struct pawl_error e = {0};

    if (start_one(s, i, &e) == PAWL_OK) {
        p->phase = PARTNER_STARTING;
        p->up_at_us = now_us;
        p->idle = p->pausing = p->paused = p->ending = p->killed = p->over = p->late = false;
        return;
    }
    later(p, now_us);
    log_line(LOG_ERROR, "runner.cannot_start", "s:worker", s->id, "s:role", role(i), "s:why",
             e.msg, "t:retry_in", p->start_at_us - now_us, NULL);
}

/* Write what the death means for its jobs. Until that is durable no successor starts. */
static void charge(struct sup *s, size_t i, int64_t now_us)
{
    struct partner *p = nth(s, i);
    struct reap_report rep = {0};
    struct pawl_error e = {0};
    enum pawl_rc rc;

    if (!p->charge || now_us < s->retry_at_us) return;
    rc = i == 0 ? engine_reap_runner(s->st, s->env, p->end, p->how, &rep, &e)
                : engine_reap_crew(s->st, s->env, p->id, p->end, p->how, &rep, &e);
    if (rc != PAWL_OK) {
        super_store_trouble(s, &e, now_us);
        return;
    }
    p->charge = false;
    s->look = s->active = true;
}

/* Not while a leased suspect runs: the effect runner would have to hold still at once. */
static bool may_start(const struct sup *s, size_t i)
{
    const struct partner *p = seen(s, i);

    return p->phase == PARTNER_DOWN && !p->charge && s->phase == PHASE_WORK
        && (i > 0 || !children_alone(s));
}

void partner_tick(struct sup *s, int64_t now_us)
{
    if (s->crew_n > 0 && now_us >= s->crew_beat_at_us) {
        store_crew_beat(s->st);
        s->crew_beat_at_us = now_us + s->lease_us / 3;
    }
    for (size_t i = 0; i <= s->crew_n; i++) {
        charge(s, i, now_us);
        if (may_start(s, i) && now_us >= nth(s, i)->start_at_us) start(s, i, now_us);
    }
}

int64_t partner_next_us(const struct sup *s)
{
    int64_t next = s->crew_n > 0 ? s->crew_beat_at_us : INT64_MAX;

    for (size_t i = 0; i <= s->crew_n; i++) {
        const struct partner *p = seen(s, i);
        int64_t at = p->charge ? s->retry_at_us : may_start(s, i) ? p->start_at_us : INT64_MAX;
        if (at < next) next = at;
    }
    return next;
}

/* --- its end --- */

/* The dead one's status. What its handlers started and left in its process group goes with it. */
static int end_of(struct partner *p)
{
    int status = 0;

    (void)kill(p->pid, SIGKILL); /* it may have closed the link without ending */
    (void)kill(-p->pid, SIGKILL);
    while (waitpid(p->pid, &status, 0) < 0 && errno == EINTR) {}
    close_fd(&p->fd);
    close_fd(&p->pid_fd);
    return status;
}

/* It says why in the log. A worker that cannot run half of its tasks must not look healthy. */
static void cannot_work(struct sup *s, int64_t now_us)
{
    drain_begin(s, "a runner cannot work by this configuration", now_us);
    if (s->rc != PAWL_OK) return;
    s->rc = pawl_fail(s->e, PAWL_CONFIG, "a runner cannot work by this configuration (see the "
                      "log); start the worker again");
}

static void died(struct sup *s, size_t i, int64_t now_us)
{
    struct partner *p = nth(s, i);
    bool starting = p->phase == PARTNER_STARTING; /* no handlers yet: told to end, it just dies */
    int status = end_of(p), sig, code;

    sig = WIFSIGNALED(status) ? WTERMSIG(status) : -1;
    code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    p->phase = PARTNER_DOWN;
    p->pausing = p->paused = false;
    p->end = sig > 0 ? sig : -code;
    s->look = s->active = true;
    if (p->ending && (p->over || p->killed || starting)) {
        /* What it still holds goes back at no cost. An effect runner holds nothing. */
        p->charge = i > 0 && !p->over;
        p->how = OUT_RELEASED;
        log_line(LOG_DEBUG, "runner.stop", "s:worker", s->id, "s:role", role(i), "i:exit",
                 (int64_t)code, NULL);
        return;
    }
    if (now_us - p->up_at_us > STEADY_US) p->backoff_us = 0;
    later(p, now_us);
    if (starting && code == EXIT_CONFIG) cannot_work(s, now_us);
    log_line(LOG_WARN, "runner.died", "s:worker", s->id, "s:role", role(i), "i:pid",
             (int64_t)p->pid, "i:exit", (int64_t)code, "i:signal", (int64_t)sig, "t:restart_in",
             p->start_at_us - now_us, NULL);
    p->charge = true;
    p->how = sig == SIGALRM || p->late ? OUT_TIMEOUT : OUT_LOST;
}

/* --- the conversation --- */

static bool is_dead(const struct partner *p)
{
    struct pollfd fd = {.fd = p->pid_fd, .events = POLLIN};

    return p->pid_fd >= 0 && poll(&fd, 1, 0) == 1;
}

void partner_hear(struct sup *s, size_t i, int64_t now_us)
{
    struct partner *p = nth(s, i);
    bool dead = is_dead(p); /* looked at first: its last words are read before it is buried */

    while (p->fd >= 0) {
        switch (link_hear(p->fd)) {
        case LINK_NONE:
            if (dead) died(s, i, now_us);
            return;
        case LINK_READY:
            p->phase = PARTNER_UP;
            log_line(LOG_INFO, "runner.ready", "s:worker", s->id, "s:role", role(i), "s:runner",
                     i > 0 ? p->id : NULL, "i:pid", (int64_t)p->pid, NULL);
            break;
        case LINK_PAUSED:
            p->paused = p->pausing;
            break;
        case LINK_IDLE: p->idle = true; break;
        case LINK_BUSY:
            p->idle = false;
            s->active = true;
            break;
        case LINK_OVER: p->over = true; break;
        default: died(s, i, now_us); return;
        }
    }
}
