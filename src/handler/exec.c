// SPDX-License-Identifier: Apache-2.0
/* exec.c - one process per job: start it, move its bytes, keep its limits, find out how it ended.
 *
 * Keeps: the group is killed while the child is still a zombie, so that its number cannot have been
 *        given to somebody else; what the child started in its group ends with it.
 *        Memory per child is bounded, whatever it writes.
 * Never: blocks (but in exec_child_kill), decides what becomes of the job, touches a store.
 */
#include "base/err.h"
#include "base/os.h"
#include "base/text.h"
#include "handler/exec_parts.h"

#include <assert.h>
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    DRAIN_US = 500 * 1000,     /* pipes stay open this long after the child's own exit */
    POLL_US = 20 * 1000,       /* look for the exit this often where there is no pidfd */
    KILL_WAIT_MS = 1000,
    READ_CHUNK = 32 * 1024,
    READS_MAX = 8,             /* chunks per call: nobody starves beside a flood */
};

struct exec_child {
    pid_t pid;
    int fd[EXEC_FD_N];
    const struct job *job;
    const struct conf_task *task;
    size_t args_at;            /* bytes of the args written */
    struct tail out, err;
    struct buf reply;
    uint64_t reply_total;
    int64_t soft_us, hard_us;       /* the limits; 0: none */
    int64_t soft_at_us, hard_at_us; /* INT64_MAX: none */
    int64_t look_at_us;             /* no pidfd: when to look for the exit again */
    bool term_sent, kill_sent;
    enum exec_cause cause;
    const char *why;
    char why_text[64];
    bool exited;
    int64_t drain_until_us;
    struct exec_end end;
    int64_t max_rss_kib;
};

static void close_fd(int *fd)
{
    if (*fd >= 0) (void)close(*fd);
    *fd = -1;
}

pid_t exec_child_pid(const struct exec_child *c)
{
    return c->pid;
}

int exec_child_fd(const struct exec_child *c, int which)
{
    assert(which >= 0 && which < EXEC_FD_N);
    return c->fd[which];
}

/* --- start --- */

struct pipes { int in[2], out[2], err[2], reply[2]; };

static bool pipes_open(struct pipes *p)
{
    *p = (struct pipes){{-1, -1}, {-1, -1}, {-1, -1}, {-1, -1}};
    return os_pipe(p->in) && os_pipe(p->out) && os_pipe(p->err) && os_pipe(p->reply)
        && os_nonblock(p->in[1]) && os_nonblock(p->out[0]) && os_nonblock(p->err[0])
        && os_nonblock(p->reply[0]);
}

static void pipes_close(struct pipes *p)
{
    int *fds[] = {p->in, p->out, p->err, p->reply};

    for (size_t i = 0; i < sizeof fds / sizeof *fds; i++) {
        close_fd(&fds[i][0]);
        close_fd(&fds[i][1]);
    }
}

static enum pawl_rc spawn(const struct exec_start *s, struct pipes *p, pid_t *pid,
                          struct pawl_error *e)
{
    struct arena a = {0};
    const char *const *envp = exec_env(s, &a);
    enum pawl_rc rc;

    if (envp == NULL) {
        rc = pawl_fail(e, PAWL_NOMEM, "environment of a child");
    } else {
        struct os_spawn o = {.argv = s->task->argv, .envp = envp, .cwd = s->conf->dir,
                             .in_fd = p->in[0], .out_fd = p->out[1], .err_fd = p->err[1],
                             .reply_fd = p->reply[1]};
        rc = os_spawn(&o, pid, e);
    }
    arena_free(&a);
    return rc;
}

static void write_args(struct exec_child *c)
{
    while (c->fd[EXEC_STDIN] >= 0) {
        size_t left = c->job->args_bytes - c->args_at;
        ssize_t n = left > 0 ? write(c->fd[EXEC_STDIN], c->job->args + c->args_at, left) : 0;
        if (n > 0) {
            c->args_at += (size_t)n;
        } else if (n < 0 && errno == EINTR) {
            continue;
        } else if (n < 0 && errno == EAGAIN) {
            return;
        } else {
            close_fd(&c->fd[EXEC_STDIN]); /* all written, or nobody reads any more: not a fault */
        }
    }
}

enum pawl_rc exec_child_start(const struct exec_start *s, struct exec_child **out,
                              struct pawl_error *e)
{
    struct pipes p;
    struct exec_child *c = calloc(1, sizeof *c);
    const struct policy *pol = s->policy;
    enum pawl_rc rc = PAWL_OK;

    assert(s->task->kind == HANDLER_EXEC && s->task->argv != NULL);
    *out = NULL;
    if (!pipes_open(&p)) rc = pawl_fail_errno(e, errno, "pipes for a child");
    else if (c == NULL) rc = pawl_fail(e, PAWL_NOMEM, "a child's record");
    if (rc != PAWL_OK) goto out;
    c->job = s->job;
    c->task = s->task;
    memcpy(c->fd, (int[EXEC_FD_N]){p.in[1], p.out[0], p.err[0], p.reply[0], -1}, sizeof c->fd);
    /* Before the start, so that a short text and its end are there when the child first looks. */
    write_args(c);
    p.in[1] = c->fd[EXEC_STDIN];
    if ((rc = spawn(s, &p, &c->pid, e)) != PAWL_OK) goto out;

    c->fd[EXEC_PIDFD] = os_pidfd(c->pid);
    p.in[1] = p.out[0] = p.err[0] = p.reply[0] = -1;
    tail_init(&c->out, 0, LIMIT_OUT_TAIL);
    tail_init(&c->err, LIMIT_ERROR_HEAD, LIMIT_ERROR_TAIL);
    c->soft_us = pol->soft_limit_us;
    c->hard_us = pol->hard_limit_us;
    c->soft_at_us = c->soft_us > 0 ? s->mono_now_us + c->soft_us : INT64_MAX;
    c->hard_at_us = c->hard_us > 0 ? s->mono_now_us + c->hard_us : INT64_MAX;
    c->look_at_us = s->mono_now_us + POLL_US;
    *out = c;
    c = NULL;
out:
    pipes_close(&p);
    free(c);
    return rc;
}

bool exec_start_again(const struct pawl_error *e)
{
    switch (e->native) {
    case EAGAIN: case ENOMEM: case EMFILE: case ENFILE: case ENOSPC: return true;
    default: return e->rc == PAWL_NOMEM;
    }
}

void exec_not_runnable(const struct pawl_error *e, struct arena *arena, struct finding *f)
{
    struct buf b = {0};

    buf_printf(&b, "not runnable: %s", e->msg);
    *f = (struct finding){.outcome = OUT_TRANSIENT, .exit_code = -1, .signal = -1};
    f->error = exec_text(arena, b.data, b.n);
    f->error_bytes = f->error != NULL ? strlen(f->error) : 0;
    buf_free(&b);
}

/* --- the child's end --- */

/* Signal the whole group. Only while the child is not reaped: its number is then surely ours. */
static void signal_group(struct exec_child *c, int sig)
{
    assert(!c->exited);
    (void)kill(-c->pid, sig);
    (void)kill(c->pid, sig); /* it may have left its group; the pid is ours until it is reaped */
    if (sig == SIGKILL) c->kill_sent = true;
    if (sig == SIGTERM) c->term_sent = true;
}

/* Look whether the child has ended; if so end its group, then reap it. */
static void look_for_exit(struct exec_child *c, int64_t now_us)
{
    siginfo_t si = {0};
    struct rusage ru = {0};
    int status = 0;

    if (c->exited || waitid(P_PID, (id_t)c->pid, &si, WEXITED | WNOHANG | WNOWAIT) != 0
        || si.si_pid == 0) {
        return;
    }
    signal_group(c, SIGKILL); /* what it left behind in its group; the zombie cannot feel it */
    while (wait4(c->pid, &status, 0, &ru) < 0 && errno == EINTR) {}
    c->exited = true;
    c->end.code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    c->end.signal = WIFSIGNALED(status) ? WTERMSIG(status) : -1;
    c->end.core = WIFSIGNALED(status) && WCOREDUMP(status);
    c->max_rss_kib = ru.ru_maxrss;
    c->drain_until_us = now_us + DRAIN_US;
    close_fd(&c->fd[EXEC_PIDFD]);
    close_fd(&c->fd[EXEC_STDIN]);
    for (int w = EXEC_STDOUT; w <= EXEC_REPLY; w++) exec_child_io(c, w, now_us);
}

/* --- bytes --- */

static void keep(struct exec_child *c, int which, const char *p, size_t n)
{
    size_t room = LIMIT_REPLY_BYTES - c->reply.n;

    if (which == EXEC_STDOUT) tail_put(&c->out, p, n);
    if (which == EXEC_STDERR) tail_put(&c->err, p, n);
    if (which != EXEC_REPLY) return;
    c->reply_total += n;
    buf_put(&c->reply, p, n < room ? n : room);
}

static void read_some(struct exec_child *c, int which)
{
    char chunk[READ_CHUNK];

    for (int i = 0; i < READS_MAX && c->fd[which] >= 0; i++) {
        ssize_t n = read(c->fd[which], chunk, sizeof chunk);
        if (n > 0) {
            keep(c, which, chunk, (size_t)n);
        } else if (n < 0 && errno == EINTR) {
            continue;
        } else if (n < 0 && errno == EAGAIN) {
            return;
        } else {
            close_fd(&c->fd[which]);
        }
    }
}

void exec_child_io(struct exec_child *c, int which, int64_t mono_now_us)
{
    assert(which >= 0 && which < EXEC_FD_N);
    if (which == EXEC_PIDFD) look_for_exit(c, mono_now_us);
    else if (which == EXEC_STDIN) write_args(c);
    else if (c->fd[which] >= 0) read_some(c, which);
}

/* --- time --- */

static bool pipes_done(const struct exec_child *c)
{
    return c->fd[EXEC_STDOUT] < 0 && c->fd[EXEC_STDERR] < 0 && c->fd[EXEC_REPLY] < 0;
}

bool exec_child_over(const struct exec_child *c)
{
    return c->exited && pipes_done(c);
}

int64_t exec_child_next_us(const struct exec_child *c)
{
    int64_t next = INT64_MAX;

    if (c->exited) return pipes_done(c) ? 0 : c->drain_until_us;
    if (!c->term_sent && !c->kill_sent && c->soft_at_us < next) next = c->soft_at_us;
    if (!c->kill_sent && c->hard_at_us < next) next = c->hard_at_us;
    if (c->fd[EXEC_PIDFD] < 0 && c->look_at_us < next) next = c->look_at_us;
    return next;
}

static void limit_passed(struct exec_child *c, int sig, const char *which, int64_t limit_us)
{
    char limit[32];

    if (c->cause != EXEC_CAUSE_STOP) {
        (void)snprintf(c->why_text, sizeof c->why_text, "timeout: the %s limit of %s passed", which,
                       text_duration(limit_us, limit, sizeof limit));
        c->cause = EXEC_CAUSE_LIMIT;
        c->why = c->why_text;
    }
    signal_group(c, sig);
}

void exec_child_tick(struct exec_child *c, int64_t mono_now_us)
{
    look_for_exit(c, mono_now_us); /* an end that is there already is not our doing */
    c->look_at_us = mono_now_us + POLL_US;
    if (c->exited) {
        if (mono_now_us < c->drain_until_us) return;
        for (int w = EXEC_STDOUT; w <= EXEC_REPLY; w++) close_fd(&c->fd[w]);
        return;
    }
    if (!c->kill_sent && mono_now_us >= c->hard_at_us) {
        limit_passed(c, SIGKILL, "hard", c->hard_us);
    } else if (!c->term_sent && !c->kill_sent && mono_now_us >= c->soft_at_us) {
        limit_passed(c, SIGTERM, "soft", c->soft_us);
    }
}

void exec_child_stop(struct exec_child *c, int sig, const char *why, int64_t mono_now_us)
{
    look_for_exit(c, mono_now_us);
    if (c->exited) return;
    if (c->cause == EXEC_CAUSE_NONE) {
        c->cause = EXEC_CAUSE_STOP;
        c->why = why;
    }
    signal_group(c, sig);
}

/* --- the end --- */

static void child_free(struct exec_child **cp)
{
    struct exec_child *c = *cp;

    for (int w = 0; w < EXEC_FD_N; w++) close_fd(&c->fd[w]);
    tail_fini(&c->out);
    tail_fini(&c->err);
    buf_free(&c->reply);
    free(c);
    *cp = NULL;
}

void exec_child_finish(struct exec_child **cp, const struct policy *p, struct arena *arena,
                       struct finding *f)
{
    struct exec_child *c = *cp;
    struct exec_verdict v;
    struct buf out = {0}, err = {0};

    assert(exec_child_over(c));
    *f = (struct finding){.exit_code = -1, .signal = -1};
    exec_verdict_parse(c->reply.data, c->reply.n, c->reply_total, c->job, c->task, arena, &v);
    tail_render(&c->out, &out);
    tail_render(&c->err, &err);
    c->end.cause = c->cause;
    c->end.why = c->why;
    c->end.stderr_p = err.data;
    c->end.stderr_n = err.n;
    exec_judge(&c->end, &v, p, arena, f);
    f->out_tail = exec_text(arena, out.data, out.n);
    f->err_tail = exec_text(arena, err.data, err.n);
    f->max_rss_kib = c->max_rss_kib;
    buf_free(&out);
    buf_free(&err);
    child_free(cp);
}

void exec_child_kill(struct exec_child **cp)
{
    struct exec_child *c = *cp;

    if (c == NULL) return;
    look_for_exit(c, 0);
    if (!c->exited) {
        struct pollfd pf = {.fd = c->fd[EXEC_PIDFD], .events = POLLIN};
        signal_group(c, SIGKILL);
        if (pf.fd >= 0) {
            (void)poll(&pf, 1, KILL_WAIT_MS); /* a child that the kernel holds is not waited for */
            look_for_exit(c, 0);
        } else {
            while (waitpid(c->pid, NULL, 0) < 0 && errno == EINTR) {}
        }
    }
    child_free(cp);
}
