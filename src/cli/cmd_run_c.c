// SPDX-License-Identifier: Apache-2.0
/* cmd_run_c.c - pawl run of a C task: prepare, then apply in a transaction, in a child of ours.
 *
 * Keeps: whatever the handler does to its process, the parent says what happened. The child forks
 *        off while nothing is open, and is the only one that loads the plugin and opens the store.
 * How:   the child leaves its answer in a file without a name, which the parent reads when the
 *        child has ended; no answer means that the handler ended it.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/log.h"
#include "base/os.h"
#include "cli/cmd_run_c.h"
#include "handler/c.h"
#include "handler/c_plugin.h"

enum { HIGH_FD = 64 }; /* out of the way of a handler that closes low descriptors */

/* What the child leaves: this, then the text of the error, then the result. */
struct answer {
    int given;            /* written last: 1 the run is over, its transaction too; 2 all of it */
    int exit_code;        /* of pawl, when it could not run the handler: it has said why */
    enum outcome outcome;
    bool has_error, has_result;
    size_t error_bytes, result_bytes;
};

static volatile int interrupts; /* the child's: how often it was asked to stop */
static volatile sig_atomic_t child_pid;

/* --- the child --- */

static void on_interrupt(int sig)
{
    (void)sig;
    interrupts++;
}

/* One Ctrl-C asks the handler to stop, a second one ends the process. */
static void catch_once(int sig)
{
    struct sigaction a = {.sa_handler = on_interrupt, .sa_flags = (int)SA_RESETHAND};

    (void)sigemptyset(&a.sa_mask);
    (void)sigaction(sig, &a, NULL);
}

static void put(int fd, const void *p, size_t n, off_t at)
{
    /* Short only when memory is short: then there is no answer, and the parent says so. */
    if (n > 0 && pwrite(fd, p, n, at) != (ssize_t)n) _exit(EXIT_TEMPFAIL);
}

static void give(int fd, int given, int exit_code, const struct finding *f)
{
    const struct answer a = {.given = given, .exit_code = exit_code, .outcome = f->outcome,
                             .has_error = f->error != NULL, .error_bytes = f->error_bytes,
                             .has_result = f->result != NULL, .result_bytes = f->result_bytes};

    put(fd, f->error, f->error_bytes, (off_t)sizeof a);
    put(fd, f->result, f->result_bytes, (off_t)(sizeof a + f->error_bytes));
    put(fd, &a, sizeof a, 0);
}

static int apply(struct cli *c, struct c_host *host, const struct c_task *task,
                 const struct lane_task *lt, const struct job *job, struct store *st, void *plan,
                 bool dry, struct finding *f)
{
    struct pawl_error e = {.rc = PAWL_OK};
    bool pinned = true, fine;

    if (store_scratch_begin(st, &e) != PAWL_OK) return cli_fail(c, &e);
    c_apply(host, task, lt, job, plan, &c->arena, f, &pinned);
    fine = f->outcome == OUT_DONE;
    if (store_scratch_end(st, fine && !dry, &e) != PAWL_OK && fine) return cli_fail(c, &e);
    return 0;
}

static int run_here(struct cli *c, struct conf_task *t, const struct job *job, bool dry, int fd,
                    struct finding *f)
{
    struct c_host_opts ho = {.env = env_real(), .stop = &interrupts, .worker = "run"};
    struct lane_task lt = {.name = t->name, .policy = t->policy};
    struct log_conf log = {.level = LOG_INFO, .json = c->json, .fd = STDERR_FILENO};
    struct pawl_error e = {.rc = PAWL_OK};
    struct c_task task = {0};
    struct c_host *host = NULL;
    struct store *st = NULL;
    void *plan = NULL;
    int x;

    log_setup(&log); /* what the handler says with pawl_run_log */
    if (c_plugin_load(c->conf, t, &task.handler, &e) != PAWL_OK) return cli_fail(c, &e);
    lt.policy = t->policy;
    if ((x = run_open_store(c, &st)) != 0) return x;
    if ((host = c_host_new(st, &ho)) == NULL) {
        store_close(&st);
        return cli_error(c, EXIT_TEMPFAIL, "out of memory");
    }
    catch_once(SIGINT);
    catch_once(SIGTERM);
    c_prepare(host, &task, &lt, job, &plan, &c->arena, f);
    if (f->outcome == OUT_DONE) x = apply(c, host, &task, &lt, job, st, plan, dry, f);
    give(fd, 1, x, f);
    c_drop(host, &task, &lt, job, plan);
    c_host_free(&host);
    store_close(&st);
    return x;
}

static _Noreturn void be_child(struct cli *c, struct conf_task *t, const struct job *job, bool dry,
                               int fd, pid_t parent, struct finding *f)
{
    int x;

    (void)signal(SIGINT, SIG_DFL);
    (void)signal(SIGTERM, SIG_DFL);
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(EXIT_TEMPFAIL);
    x = run_here(c, t, job, dry, fd, f);
    (void)fflush(stdout); /* what the handler printed comes before what we say of it */
    give(fd, 2, x, f);
    exit(x);
}

/* --- the parent --- */

/* A terminal sends its signals to both of us; what was meant for one process is passed on. */
static void on_signal(int sig, siginfo_t *info, void *unused)
{
    (void)unused;
    if (child_pid > 0 && info->si_code != SI_KERNEL) (void)kill((pid_t)child_pid, sig);
}

static void pass_on(int sig)
{
    struct sigaction a = {.sa_sigaction = on_signal, .sa_flags = (int)(SA_SIGINFO | SA_RESTART)};

    (void)sigemptyset(&a.sa_mask);
    (void)sigaction(sig, &a, NULL);
}

static char *take(struct cli *c, int fd, size_t n, off_t at)
{
    char *text = arena_alloc(&c->arena, n + 1);

    return text != NULL && pread(fd, text, n, at) == (ssize_t)n ? text : NULL;
}

/* The answer, as far as the child got: answer.given says how far. */
static struct answer hear(struct cli *c, int fd, struct finding *f)
{
    struct answer a;

    if (pread(fd, &a, sizeof a, 0) != (ssize_t)sizeof a) return (struct answer){0};
    f->outcome = a.outcome;
    if (a.has_error && (f->error = take(c, fd, a.error_bytes, (off_t)sizeof a)) != NULL)
        f->error_bytes = a.error_bytes;
    if (a.has_result && (f->result = take(c, fd, a.result_bytes,
                                          (off_t)(sizeof a + a.error_bytes))) != NULL)
        f->result_bytes = a.result_bytes;
    if ((a.has_error && f->error == NULL) || (a.has_result && f->result == NULL))
        a.exit_code = cli_error(c, EXIT_TEMPFAIL, "out of memory");
    return a;
}

/* How the handler ended its process, in the words of a worker's log. */
static const char *end_of(struct cli *c, int status, struct finding *f)
{
    struct buf b = {0};
    const char *text;

    if (WIFSIGNALED(status)) {
        f->signal = WTERMSIG(status);
        buf_printf(&b, "the process that ran it was killed by signal %d", f->signal);
    } else {
        f->exit_code = WEXITSTATUS(status);
        buf_printf(&b, "the process that ran it ended by itself, with exit code %d", f->exit_code);
    }
    text = arena_strdup(&c->arena, buf_str(&b));
    buf_free(&b);
    return text != NULL ? text : "the process that ran it ended";
}

static int judge(struct cli *c, int fd, int status, struct finding *f)
{
    const struct answer a = hear(c, fd, f);

    if (a.exit_code != 0) return a.exit_code;
    if (a.given == 0) {
        f->outcome = OUT_LOST;
        f->error = end_of(c, status, f);
        f->error_bytes = strlen(f->error);
    } else if (a.given == 1) {
        cli_warn(c, "%s, in drop, when its run was over", end_of(c, status, f));
    }
    return 0;
}

static int answer_file(void)
{
    int low = memfd_create("pawl-run", MFD_CLOEXEC);
    int fd = low < 0 ? -1 : fcntl(low, F_DUPFD_CLOEXEC, HIGH_FD);

    if (low >= 0) (void)close(low);
    return fd;
}

int run_c(struct cli *c, struct conf_task *t, const struct job *job, bool dry, struct finding *f)
{
    const pid_t parent = getpid();
    int status = 0, x, fd = answer_file();
    pid_t pid;

    if (fd < 0) return cli_error(c, EXIT_TEMPFAIL, "memfd_create: %s", strerror(errno));
    (void)fflush(NULL); /* nothing is written twice */
    pass_on(SIGINT);
    pass_on(SIGTERM);
    if ((pid = fork()) == 0) be_child(c, t, job, dry, fd, parent, f);
    if (pid < 0) {
        (void)close(fd);
        return cli_error(c, EXIT_TEMPFAIL, "fork: %s", strerror(errno));
    }
    child_pid = pid;
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {}
    child_pid = 0;
    x = judge(c, fd, status, f);
    (void)close(fd);
    return x;
}
