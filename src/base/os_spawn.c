// SPDX-License-Identifier: Apache-2.0
/* os_spawn.c - start a child by vfork and exec.
 *
 * Why vfork: the cost does not grow with our memory, and the child's view of our memory is the
 * channel on which a failed exec is reported.
 * Keeps: the child has descriptors 0, 1, 2 (and 3) only, default signals, an empty mask, its own
 *        process group, and dies with its parent.
 * Never: in the child, between vfork and exec: allocates, takes a lock, returns, or writes to
 *        anything of ours but its own stack and `struct report`.
 */
#include "base/os.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#include "base/err.h"

#define DEFAULT_PATH "/usr/local/bin:/usr/bin:/bin"
#define FIRST_FREE_FD 10 /* where descriptors are parked while 0..3 are being filled */

enum step { STEP_NONE, STEP_FDS, STEP_CWD, STEP_EXEC };
struct report { volatile int step, err; }; /* written by the child, read when vfork returns */

static const char *env_path(const char *const *envp)
{
    for (; envp != NULL && *envp != NULL; envp++)
        if (strncmp(*envp, "PATH=", 5) == 0) return *envp + 5;
    return DEFAULT_PATH;
}

/* Try every directory of `path`; an empty one means the present directory, as in the shell.
 * returns the errno to report: what stopped the search, else EACCES if one was met, else ENOENT. */
static int exec_path(const struct os_spawn *s, const char *path)
{
    char file[PATH_MAX];
    size_t name_n = strlen(s->argv[0]);
    int seen = ENOENT;

    for (;;) {
        const char *end = strchrnul(path, ':');
        size_t dir_n = (size_t)(end - path);
        if (dir_n + name_n + 2 <= sizeof file) {
            memcpy(file, path, dir_n);
            if (dir_n > 0) file[dir_n++] = '/';
            memcpy(file + dir_n, s->argv[0], name_n + 1);
            execve(file, (char *const *)s->argv, (char *const *)s->envp);
            if (errno == EACCES) seen = EACCES;
            else if (errno != ENOENT && errno != ENOTDIR) return errno;
        }
        if (*end == '\0') return seen;
        path = end + 1;
    }
}

/* Close everything from `first` up. Old kernels and some sandboxes lack close_range. */
static void close_from(int first)
{
    struct rlimit lim;

    if (syscall(SYS_close_range, (unsigned)first, ~0u, 0u) == 0) return;
    if (getrlimit(RLIMIT_NOFILE, &lim) != 0 || lim.rlim_cur > 65536) lim.rlim_cur = 65536;
    for (int fd = first; fd < (int)lim.rlim_cur; fd++) close(fd);
}

/* Fill 0..3. Sources are parked high first, so that no dup2 overwrites one still needed. */
static bool place_fds(const struct os_spawn *s)
{
    int src[4] = { s->in_fd, s->out_fd, s->err_fd, s->reply_fd }, want = s->reply_fd < 0 ? 3 : 4;

    for (int i = 0; i < want; i++) {
        int fd = src[i];
        if (fd < 0 && (fd = open("/dev/null", i == 0 ? O_RDONLY : O_WRONLY)) < 0) return false;
        if ((src[i] = fcntl(fd, F_DUPFD, FIRST_FREE_FD)) < 0) return false;
    }
    for (int i = 0; i < want; i++)
        if (dup2(src[i], i) < 0) return false; /* also clears CLOEXEC */
    close_from(want);
    return true;
}

static void reset_signals(void)
{
    struct sigaction dfl = { .sa_handler = SIG_DFL };
    sigset_t none;

    /* The child's table is its own; handlers must be gone before the mask opens, since they would
     * run on our memory. The two signals of the C library refuse, and are not used by us. */
    for (int i = 1; i <= SIGRTMAX; i++)
        if (i != SIGKILL && i != SIGSTOP) (void)sigaction(i, &dfl, NULL);
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
}

static _Noreturn void give_up(struct report *r, enum step step, int err)
{
    r->err = err;
    r->step = (int)step;
    _exit(127);
}

static _Noreturn __attribute__((noinline)) void run_child(const struct os_spawn *s,
                                                          struct report *r, pid_t parent)
{
    const char *prog = s->argv[0];

    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(127); /* it died before the line above: nobody is waiting */
    reset_signals();
    if (!place_fds(s)) give_up(r, STEP_FDS, errno);
    if (s->cwd != NULL && chdir(s->cwd) != 0) give_up(r, STEP_CWD, errno);
    if (strchr(prog, '/') == NULL) give_up(r, STEP_EXEC, exec_path(s, env_path(s->envp)));
    execve(prog, (char *const *)s->argv, (char *const *)s->envp);
    give_up(r, STEP_EXEC, errno);
}

static enum pawl_rc explain(const struct os_spawn *s, const struct report *r, struct pawl_error *e)
{
    const char *prog = s->argv[0];
    int err = r->err;

    if (r->step == STEP_FDS) return pawl_fail_errno(e, err, "start %s: descriptors", prog);
    if (r->step == STEP_CWD && (err == ENOENT || err == ENOTDIR))
        return pawl_fail_native(e, PAWL_NOTFOUND, err, "start %s: no directory %s", prog, s->cwd);
    if (r->step == STEP_CWD) return pawl_fail_errno(e, err, "start %s: enter %s", prog, s->cwd);
    switch (err) {
    case ENOENT: case ENOTDIR:
        return pawl_fail_native(e, PAWL_NOTFOUND, err, strchr(prog, '/') == NULL
            ? "start %s: not found in PATH" : "start %s: no such program (or its #! line names "
            "one that is missing)", prog);
    case ENOEXEC:
        return pawl_fail_native(e, PAWL_DENIED, err, "start %s: not a program; a script needs a #! "
                                "line", prog);
    case EACCES:
        return pawl_fail_native(e, PAWL_DENIED, err, "start %s: not executable (permission denied)",
                                prog);
    case EISDIR: case ELOOP: case ENAMETOOLONG: case EINVAL: case ELIBBAD:
        return pawl_fail_native(e, PAWL_DENIED, err, "start %s: %s", prog, strerror(err));
    default:
        return pawl_fail_errno(e, err, "start %s", prog);
    }
}

enum pawl_rc os_spawn(const struct os_spawn *s, pid_t *pid, struct pawl_error *e)
{
    struct report r = { .step = STEP_NONE };
    pid_t parent = getpid(), child;
    sigset_t all, old;
    int err, status;

    assert(s->argv != NULL && s->argv[0] != NULL && s->envp != NULL);
    if (s->argv[0][0] == '\0')
        return pawl_fail_native(e, PAWL_NOTFOUND, ENOENT, "start: the program's name is empty");
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old); /* no handler of ours may run in the child */
    child = vfork();
    if (child == 0) run_child(s, &r, parent);
    err = errno;
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (child < 0 && (err == EAGAIN || err == ENOMEM))
        return pawl_fail_native(e, PAWL_NOMEM, err, "start %s: %s", s->argv[0], strerror(err));
    if (child < 0) return pawl_fail_errno(e, err, "start %s", s->argv[0]);
    if (r.step != STEP_NONE) {
        while (waitpid(child, &status, 0) < 0 && errno == EINTR) continue;
        return explain(s, &r, e);
    }
    *pid = child;
    return PAWL_OK;
}
