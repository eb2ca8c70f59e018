// SPDX-License-Identifier: Apache-2.0
/* test_base_os.c - what a child inherits (nothing it should not), and how its words are split.
 *
 * The program runs itself as the child: `self --report` writes what it sees, `self --hang` waits.
 */
#include "base/os.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include "base/err.h"
#include "lib/ut.h"

static char self[PATH_MAX];
static const char *const plain_env[] = { "PATH=/usr/bin:/bin", "MARK=yes", NULL };

/* ---- the child's side ---- */

static int report(void)
{
    sigset_t mask;
    char text[4096], cwd[PATH_MAX];
    size_t n = 0;
    int blocked = 0, ignored = 0, death = 0;

    n += (size_t)snprintf(text + n, sizeof text - n, "fds");
    for (int fd = 0; fd < 1024; fd++)
        if (fcntl(fd, F_GETFD) >= 0) n += (size_t)snprintf(text + n, sizeof text - n, " %d", fd);
    sigprocmask(SIG_BLOCK, NULL, &mask);
    for (int s = 1; s < 65; s++) {
        struct sigaction sa;
        if (sigismember(&mask, s) == 1) blocked++;
        if (sigaction(s, NULL, &sa) == 0 && sa.sa_handler == SIG_IGN) ignored++;
    }
    prctl(PR_GET_PDEATHSIG, &death);
    n += (size_t)snprintf(text + n, sizeof text - n,
                          "\nleader %d\nblocked %d\nignored %d\ndeath %d\nmark %s\ncwd %s\n",
                          getpgid(0) == getpid(), blocked, ignored, death,
                          getenv("MARK") == NULL ? "-" : getenv("MARK"),
                          getcwd(cwd, sizeof cwd) == NULL ? "?" : cwd);
    if (fcntl(3, F_GETFD) >= 0 && write(3, "reply", 5) != 5) return 1;
    return os_write_all(1, text, n) ? 0 : 1;
}

/* ---- ours ---- */

static void slurp(int fd, char *buf, size_t n)
{
    size_t at = 0;
    ssize_t got;

    while (at < n - 1 && (got = read(fd, buf + at, n - 1 - at)) > 0) at += (size_t)got;
    buf[at] = '\0';
    close(fd);
}

static pid_t start(const char *mode, int in, int out, int reply, const char *cwd)
{
    const char *argv[] = { self, mode, NULL };
    struct os_spawn s = { argv, plain_env, cwd, in, out, 2, reply };
    struct pawl_error e = { 0 };
    pid_t pid = 0;

    ck_assert_msg(os_spawn(&s, &pid, &e) == PAWL_OK, "%s", e.msg);
    ck_assert_int_gt(pid, 0);
    return pid;
}

static void end_well(pid_t pid)
{
    int status;

    ck_assert_int_eq(waitpid(pid, &status, 0), pid);
    ck_assert_msg(WIFEXITED(status) && WEXITSTATUS(status) == 0, "status %#x", (unsigned)status);
}

static void on_signal(int s) { (void)s; }

START_TEST(test_spawn_child_sees_only_its_own_descriptors_and_default_signals)
{
    struct sigaction h = { .sa_handler = on_signal };
    char text[4096];
    sigset_t some, old, now;
    int out[2];

    for (int i = 0; i < 20; i++) ck_assert_int_ge(open("/dev/null", O_RDONLY), 0); /* no CLOEXEC */
    signal(SIGPIPE, SIG_IGN);
    sigaction(SIGUSR1, &h, NULL);
    sigemptyset(&some);
    sigaddset(&some, SIGTERM);
    sigaddset(&some, SIGCHLD);
    sigprocmask(SIG_BLOCK, &some, NULL);
    sigprocmask(SIG_BLOCK, NULL, &old);
    ck_assert(os_pipe(out));
    pid_t pid = start("--report", -1, out[1], -1, "/");
    close(out[1]);
    slurp(out[0], text, sizeof text);
    end_well(pid);
    ck_assert_str_eq(text, "fds 0 1 2\nleader 1\nblocked 0\nignored 0\ndeath 9\nmark yes\ncwd /\n");
    sigprocmask(SIG_BLOCK, NULL, &now); /* ours is as it was */
    for (int s = 1; s < 65; s++) ck_assert_int_eq(sigismember(&now, s), sigismember(&old, s));
    ck_assert_int_eq(sigaction(SIGUSR1, NULL, &h), 0);
    ck_assert(h.sa_handler == on_signal);
}
END_TEST

START_TEST(test_spawn_reply_descriptor_is_number_three)
{
    char text[4096], answer[16];
    int out[2], reply[2];

    ck_assert(os_pipe(out) && os_pipe(reply));
    pid_t pid = start("--report", -1, out[1], reply[1], NULL);
    close(out[1]);
    close(reply[1]);
    slurp(out[0], text, sizeof text);
    slurp(reply[0], answer, sizeof answer);
    end_well(pid);
    ck_assert_int_eq(strncmp(text, "fds 0 1 2 3\n", 12), 0);
    ck_assert_str_eq(answer, "reply");
}
END_TEST

/* Each of the child's 0, 1, 3 comes from a descriptor that is another one's target. */
START_TEST(test_spawn_descriptors_in_each_others_places_arrive_right)
{
    const char *argv[] = { "/bin/sh", "-c", "read a; echo out-$a; echo rep-$a >&3", NULL };
    struct os_spawn s = { argv, plain_env, NULL, 3, 0, 2, 1 };
    struct pawl_error e = { 0 };
    char text[64], answer[64];
    int in[2], out[2], reply[2], status, saved = dup(1);
    pid_t pid;

    ck_assert(os_pipe(in) && os_pipe(out) && os_pipe(reply));
    int in_r = fcntl(in[0], F_DUPFD, 20), out_w = fcntl(out[1], F_DUPFD, 20);
    int reply_w = fcntl(reply[1], F_DUPFD, 20), out_r = fcntl(out[0], F_DUPFD, 20);
    int reply_r = fcntl(reply[0], F_DUPFD, 20), in_w = fcntl(in[1], F_DUPFD, 20);
    int kept3 = fcntl(3, F_DUPFD, 30);
    dup2(in_r, 3);
    dup2(out_w, 0);
    dup2(reply_w, 1);
    enum pawl_rc rc = os_spawn(&s, &pid, &e);
    dup2(saved, 1);
    if (kept3 >= 0) dup2(kept3, 3);
    ck_assert_msg(rc == PAWL_OK, "%s", e.msg);
    ck_assert(os_write_all(in_w, "x\n", 2));
    ck_assert_int_eq(waitpid(pid, &status, 0), pid);
    ck_assert_int_eq(read(out_r, text, sizeof text), 6);
    ck_assert_int_eq(strncmp(text, "out-x\n", 6), 0);
    ck_assert_int_eq(read(reply_r, answer, sizeof answer), 6);
    ck_assert_int_eq(strncmp(answer, "rep-x\n", 6), 0);
}
END_TEST

static void expect_refused(const char *prog, const char *cwd, const char *const *env,
                           enum pawl_rc rc, int native, const char *part)
{
    const char *argv[] = { prog, NULL };
    struct os_spawn s = { argv, env, cwd, -1, -1, -1, -1 };
    struct pawl_error e = { 0 };
    pid_t pid = -7;

    ck_assert_msg(os_spawn(&s, &pid, &e) == rc, "%s: %s %s", prog, pawl_rc_name(e.rc), e.msg);
    ck_assert_int_eq(e.native, native);
    ck_assert_msg(strstr(e.msg, part) != NULL, "%s", e.msg);
    ck_assert_int_eq(pid, -7);
    ck_assert_int_eq(waitpid(-1, NULL, WNOHANG), -1); /* no zombie is left */
    ck_assert_int_eq(errno, ECHILD);
}

static void make_file(const char *path, const char *text, mode_t mode)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

    ck_assert_int_ge(fd, 0);
    ck_assert(os_write_all(fd, text, strlen(text)));
    ck_assert_int_eq(fchmod(fd, mode), 0);
    close(fd);
}

START_TEST(test_spawn_reports_a_failed_exec_here_and_leaves_no_zombie)
{
    char dir[] = "/tmp/ut-os-XXXXXX", path[64], env_path[64];
    const char *env[] = { env_path, NULL }, *no_path[] = { "PATH=/nonexistent", NULL };

    ck_assert_ptr_nonnull(mkdtemp(dir));
    snprintf(env_path, sizeof env_path, "PATH=/nonexistent:%s", dir);
    expect_refused("/nonexistent/x", NULL, env, PAWL_NOTFOUND, ENOENT, "no such program");
    expect_refused("no-such-program", NULL, env, PAWL_NOTFOUND, ENOENT, "not found in PATH");
    expect_refused("sh", NULL, no_path, PAWL_NOTFOUND, ENOENT, "not found in PATH");
    expect_refused("", NULL, env, PAWL_NOTFOUND, ENOENT, "empty");
    expect_refused("/bin/sh", "/nonexistent", env, PAWL_NOTFOUND, ENOENT, "no directory");
    snprintf(path, sizeof path, "%s/plain", dir);
    make_file(path, "#!/bin/sh\n", 0600);
    expect_refused(path, NULL, env, PAWL_DENIED, EACCES, "not executable");
    expect_refused("plain", NULL, env, PAWL_DENIED, EACCES, "not executable");
    make_file(path, "echo no shebang\n", 0700);
    expect_refused(path, NULL, env, PAWL_DENIED, ENOEXEC, "#! line");
    expect_refused("plain", NULL, env, PAWL_DENIED, ENOEXEC, "#! line");
    make_file(path, "#!/nonexistent/sh\n", 0700);
    expect_refused(path, NULL, env, PAWL_NOTFOUND, ENOENT, "#! line names");
    unlink(path);
    rmdir(dir);
}
END_TEST

START_TEST(test_spawn_searches_the_childs_path_not_ours)
{
    char dir[] = "/tmp/ut-os-XXXXXX", path[64], env_path[64];
    const char *argv[] = { "only-here", NULL }, *env[] = { "A=b", env_path, NULL };
    struct os_spawn s = { argv, env, NULL, -1, -1, 2, -1 };
    struct pawl_error e = { 0 };
    pid_t pid;
    int status;

    ck_assert_ptr_nonnull(mkdtemp(dir));
    snprintf(path, sizeof path, "%s/only-here", dir);
    snprintf(env_path, sizeof env_path, "PATH=/nonexistent:%s:/bin", dir);
    make_file(path, "#!/bin/sh\nexit 42\n", 0700);
    ck_assert_msg(os_spawn(&s, &pid, &e) == PAWL_OK, "%s", e.msg);
    ck_assert_int_eq(waitpid(pid, &status, 0), pid);
    ck_assert(WIFEXITED(status) && WEXITSTATUS(status) == 42);
    s.cwd = dir;
    argv[0] = "./only-here"; /* a path with '/' starts at the child's directory */
    ck_assert_msg(os_spawn(&s, &pid, &e) == PAWL_OK, "%s", e.msg);
    ck_assert_int_eq(waitpid(pid, &status, 0), pid);
    ck_assert(WIFEXITED(status) && WEXITSTATUS(status) == 42);
    unlink(path);
    rmdir(dir);
}
END_TEST

START_TEST(test_spawn_child_dies_with_its_parent)
{
    int out[2];
    char text[16];
    struct pollfd p;
    pid_t middle;

    ck_assert(os_pipe(out));
    if ((middle = fork()) == 0) {
        start("--hang", -1, out[1], -1, NULL);
        for (;;) pause();
    }
    close(out[1]);
    ck_assert_int_eq(read(out[0], text, sizeof text), 2); /* the grandchild is there */
    kill(middle, SIGKILL);
    waitpid(middle, NULL, 0);
    p = (struct pollfd){ .fd = out[0], .events = POLLIN };
    ck_assert_int_eq(poll(&p, 1, 10000), 1);
    ck_assert_int_eq(read(out[0], text, sizeof text), 0); /* its end of the pipe is closed */
}
END_TEST

START_TEST(test_spawn_pidfd_becomes_readable_at_the_end)
{
    pid_t pid = start("--report", -1, -1, -1, NULL);
    int fd = os_pidfd(pid);
    struct pollfd p = { .fd = fd, .events = POLLIN };

    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(fcntl(fd, F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
    ck_assert_int_eq(poll(&p, 1, 10000), 1);
    end_well(pid);
    close(fd);
    ck_assert_int_eq(os_pidfd(-1), -1);
}
END_TEST

START_TEST(test_read_file_bounds_and_names_the_file)
{
    char dir[] = "/tmp/ut-os-XXXXXX", path[64];
    struct pawl_error e = { 0 };
    struct buf b = { 0 };

    ck_assert_ptr_nonnull(mkdtemp(dir));
    snprintf(path, sizeof path, "%s/f", dir);
    make_file(path, "0123456789", 0600);
    ck_assert_int_eq(os_read_file(path, 10, &b, &e), PAWL_OK);
    ck_assert_str_eq(buf_str(&b), "0123456789");
    ck_assert_int_eq(os_read_file(path, 10, &b, &e), PAWL_OK); /* appends; the bound is per call */
    ck_assert_uint_eq(b.n, 20);
    ck_assert_int_eq(os_read_file(path, 9, &b, &e), PAWL_TOOBIG);
    ck_assert_ptr_nonnull(strstr(e.msg, path));
    ck_assert_int_eq(os_read_file("/nonexistent", 9, &b, &e), PAWL_NOTFOUND);
    ck_assert_int_eq(os_read_file(dir, 9, &b, &e), PAWL_IO);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    dup2(fd, 0);
    buf_clear(&b);
    ck_assert_int_eq(os_read_file("-", 10, &b, &e), PAWL_OK);
    ck_assert_str_eq(buf_str(&b), "0123456789");
    buf_free(&b);
    close(fd);
    unlink(path);
    rmdir(dir);
}
END_TEST

START_TEST(test_split_words_as_the_shell_would)
{
    static const struct { const char *in, *want; } c[] = {
        { "", "" }, { "  \t\n ", "" }, { "a", "[a]" }, { " a  b\tc\n", "[a][b][c]" },
        { "'a b' \"c d\"", "[a b][c d]" }, { "a'b'\"c\"d", "[abcd]" }, { "''", "[]" },
        { "a '' b", "[a][][b]" }, { "a\\ b", "[a b]" }, { "'a\\b'", "[a\\b]" },
        { "\"a\\\"b\\\\c\\d\\$\\`\"", "[a\"b\\c\\d$`]" }, { "\\'a", "['a]" }, { "\\$x", "[$x]" },
        { "'$x `y` ; | & < > ( ) * ?'", "[$x `y` ; | & < > ( ) * ?]" },
        { "\"; | & < > ( ) * ?\"", "[; | & < > ( ) * ?]" }, { "a\\\nb", "[ab]" },
        { "\"a\\\nb\"", "[ab]" }, { "--x={\"a\":1}", "[--x={a:1}]" }, { "\"it's\"", "[it's]" },
        { "\xc3\xa9 ~ x# [x]", "[\xc3\xa9][~][x#][[x]]" },
    };

    for (size_t i = 0; i < UT_N(c); i++) {
        struct arena a = { 0 };
        struct pawl_error e = { 0 };
        const char *const *w = NULL;
        struct buf b = { 0 };
        size_t n = 99;
        ck_assert_msg(os_split_words(c[i].in, &a, &w, &n, &e) == PAWL_OK, "%s: %s", c[i].in, e.msg);
        for (size_t k = 0; k < n; k++) buf_printf(&b, "[%s]", w[k]);
        ck_assert_str_eq(buf_str(&b), c[i].want);
        ck_assert_ptr_null(w[n]);
        buf_free(&b);
        arena_free(&a);
    }
}
END_TEST

START_TEST(test_split_words_refuses_what_needs_a_shell)
{
    static const struct { const char *in, *part; } c[] = {
        { "a $HOME", "'$'" }, { "a `b`", "'`'" }, { "a; b", "';'" }, { "a | b", "'|'" },
        { "a & b", "'&'" }, { "a <b", "'<'" }, { "a >b", "'>'" }, { "(a)", "'('" }, { "a)", "')'" },
        { "a #b", "unquoted #" }, { "*.c", "'*'" },
        { "a?", "'?'" }, { "\"$x\"", "'$'" }, { "\"`x`\"", "'`'" },
        { "'a", "closing '" }, { "\"a", "closing \"" }, { "a\\", "lone" },
    };

    for (size_t i = 0; i < UT_N(c); i++) {
        struct arena a = { 0 };
        struct pawl_error e = { 0 };
        const char *const *w;
        size_t n;
        ck_assert_msg(os_split_words(c[i].in, &a, &w, &n, &e) == PAWL_BADARG, "%s", c[i].in);
        ck_assert_msg(strstr(e.msg, c[i].part) != NULL, "%s: %s", c[i].in, e.msg);
        arena_free(&a);
    }
}
END_TEST

static void add(TCase *tc)
{
    tcase_add_test(tc, test_spawn_child_sees_only_its_own_descriptors_and_default_signals);
    tcase_add_test(tc, test_spawn_reply_descriptor_is_number_three);
    tcase_add_test(tc, test_spawn_descriptors_in_each_others_places_arrive_right);
    tcase_add_test(tc, test_spawn_reports_a_failed_exec_here_and_leaves_no_zombie);
    tcase_add_test(tc, test_spawn_searches_the_childs_path_not_ours);
    tcase_add_test(tc, test_spawn_child_dies_with_its_parent);
    tcase_add_test(tc, test_spawn_pidfd_becomes_readable_at_the_end);
    tcase_add_test(tc, test_read_file_bounds_and_names_the_file);
    tcase_add_test(tc, test_split_words_as_the_shell_would);
    tcase_add_test(tc, test_split_words_refuses_what_needs_a_shell);
}

int main(int argc, char **argv)
{
    ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);

    if (argc == 2 && strcmp(argv[1], "--report") == 0) return report();
    if (argc == 2 && strcmp(argv[1], "--hang") == 0) {
        if (!os_write_all(1, "up", 2)) return 1;
        for (;;) pause();
    }
    if (n <= 0) return 1;
    return ut_main("os", add, 30);
}
