// SPDX-License-Identifier: Apache-2.0
/* test_base_err.c - errors and log lines stay one clear line; failure points act as armed. */
#include "base/err.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include "base/fail.h"
#include "base/json.h"
#include "base/log.h"
#include "base/os.h"
#include "lib/ut.h"

START_TEST(test_err_every_code_has_a_name_a_text_and_an_exit_code)
{
    static const int allowed[] = { 0, 1, 64, 65, 69, 70, 73, 74, 75, 77, 78 };

    for (int rc = 0; rc < PAWL_RC_N; rc++) {
        bool known = false;
        for (size_t i = 0; i < UT_N(allowed); i++)
            known |= pawl_rc_exit((enum pawl_rc)rc) == allowed[i];
        ck_assert(known);
        ck_assert(pawl_rc_name((enum pawl_rc)rc)[0] != '?');
        ck_assert_uint_gt(strlen(pawl_rc_text((enum pawl_rc)rc)), 3);
    }
    ck_assert_str_eq(pawl_rc_name(PAWL_KEYCLASH), "KEYCLASH");
    ck_assert_int_eq(pawl_rc_exit(PAWL_OK), 0);
    ck_assert_int_eq(pawl_rc_exit(PAWL_BUSY), 75);
    ck_assert_int_eq(pawl_rc_exit((enum pawl_rc)999), 70);
    ck_assert_str_eq(pawl_rc_name((enum pawl_rc)-1), "?");
    ck_assert_str_eq(pawl_state_name(PAWL_STATE_CANCELLED), "cancelled");
    ck_assert_str_eq(pawl_state_name((enum pawl_state)99), "?");
}
END_TEST

START_TEST(test_err_fail_and_wrap_read_outside_in)
{
    struct pawl_error e = { .native = 99 };

    ck_assert_int_eq(pawl_fail(&e, PAWL_BUSY, "database is %s", "locked"), PAWL_BUSY);
    ck_assert_int_eq(e.native, 0);
    ck_assert_int_eq(pawl_wrap(&e, "begin"), PAWL_BUSY);
    ck_assert_int_eq(pawl_wrap(&e, "settle job %d", 7), PAWL_BUSY);
    ck_assert_str_eq(e.msg, "settle job 7: begin: database is locked");
    ck_assert_int_eq(e.rc, PAWL_BUSY);
    ck_assert_int_eq(pawl_fail_native(&e, PAWL_SQL, 787, "%s again", e.msg), PAWL_SQL);
    ck_assert_str_eq(e.msg, "settle job 7: begin: database is locked again");
    ck_assert_int_eq(e.native, 787);
    ck_assert_int_eq(pawl_fail(NULL, PAWL_FULL, "x"), PAWL_FULL);
    ck_assert_int_eq(pawl_fail_native(NULL, PAWL_SQL, 1, "x"), PAWL_SQL);
    ck_assert_int_eq(pawl_fail_errno(NULL, ENOSPC, "x"), PAWL_FULL);
    ck_assert_int_eq(pawl_wrap(NULL, "x"), PAWL_BUG);
}
END_TEST

START_TEST(test_err_errno_chooses_the_code_and_says_the_reason)
{
    static const struct { int err; enum pawl_rc rc; } c[] = {
        { ENOSPC, PAWL_FULL }, { EDQUOT, PAWL_FULL }, { EACCES, PAWL_DENIED },
        { EPERM, PAWL_DENIED }, { EROFS, PAWL_DENIED }, { ENOMEM, PAWL_NOMEM }, { EIO, PAWL_IO },
        { ENOENT, PAWL_IO }, { 12345, PAWL_IO },
    };
    struct pawl_error e;
    char longer[2000];

    for (size_t i = 0; i < UT_N(c); i++) {
        ck_assert_int_eq(pawl_fail_errno(&e, c[i].err, "open %s", "f"), c[i].rc);
        ck_assert_int_eq(e.native, c[i].err);
        ck_assert_int_eq(strncmp(e.msg, "open f: ", 8), 0);
    }
    memset(longer, 'x', sizeof longer);
    longer[sizeof longer - 1] = '\0';
    pawl_fail_errno(&e, EIO, "open %s", longer);
    ck_assert_uint_lt(strlen(e.msg), sizeof e.msg);
    ck_assert_ptr_nonnull(strstr(e.msg, strerror(EIO))); /* the reason survives a long name */
}
END_TEST

START_TEST(test_err_a_message_is_one_printable_line_of_whole_characters)
{
    struct pawl_error e;
    char longer[2001];

    pawl_fail(&e, PAWL_BADDATA, "bad %s", "\x1b[2J\r\nevent=forged \xff");
    ck_assert_str_eq(e.msg, "bad \\x1b[2J\\x0d\\nevent=forged \\xff");
    for (size_t i = 0; i + 1 < sizeof longer; i += 2) memcpy(longer + i, "\xc3\xa9", 2);
    longer[2000] = '\0';
    pawl_fail(&e, PAWL_BADDATA, "%s", longer);
    ck_assert(utf8_ok(e.msg, strlen(e.msg)));
    ck_assert_uint_ge(strlen(e.msg), sizeof e.msg - 4);
    ck_assert_ptr_null(strchr(e.msg, '\\'));
    pawl_wrap(&e, "x%s", longer);
    pawl_wrap(&e, "abc");
    ck_assert(utf8_ok(e.msg, strlen(e.msg)));
    ck_assert_int_eq(strncmp(e.msg, "abc: x\xc3\xa9", 8), 0);
}
END_TEST

/* ---- log ---- */

static int log_pipe[2];

static void open_log(enum log_level level, bool json)
{
    ck_assert(os_pipe(log_pipe));
    struct log_conf c = { level, json, log_pipe[1] };
    log_setup(&c);
}

/* What was logged, without the time at its start. */
static const char *logged(char *buf, size_t n, bool json)
{
    ssize_t got;

    close(log_pipe[1]);
    got = read(log_pipe[0], buf, n - 1);
    close(log_pipe[0]);
    ck_assert_int_ge(got, 0);
    buf[got] = '\0';
    if (json || got == 0) return buf;
    ck_assert_int_gt(got, 25);
    ck_assert_int_eq(buf[23], 'Z'); /* milliseconds */
    return buf + 25;
}

START_TEST(test_log_line_is_logfmt_and_cannot_be_forged)
{
    char b[2048];

    open_log(LOG_INFO, false);
    log_line(LOG_INFO, "job.retry", "i:job", (int64_t)7, "s:task", "mail", "s:none", NULL,
             "t:delay", (int64_t)4120000, "s:why", "a \"b\" = c\\d\nevent=x\x1b", "s:empty", "",
             "d:id", (int64_t)-3, "s:u", "\xc3\xa9\xe2\x80\xae", NULL);
    ck_assert_str_eq(logged(b, sizeof b, false),
                     "info event=job.retry job=7 task=mail delay=4.12s "
                     "why=\"a \\\"b\\\" = c\\\\d\\nevent=x\\x1b\" empty=\"\" id=-3 "
                     "u=\"\xc3\xa9\\u{202e}\"\n");
}
END_TEST

START_TEST(test_log_line_as_json_is_one_valid_object)
{
    char b[2048];
    size_t n;
    const char *at;
    enum json_type t;

    open_log(LOG_DEBUG, true);
    log_line(LOG_DEBUG, "x", "i:n", INT64_MIN, "d:job", INT64_MAX, "s:s", "a\xff\"\n", "t:d",
             (int64_t)1000, NULL);
    logged(b, sizeof b, true);
    ck_assert(json_check(b, strlen(b), 1, &t, NULL) && t == JSON_OBJECT);
    ck_assert_int_eq(strchr(b, '\n') - b, (long)strlen(b) - 1);
    ck_assert(json_member(b, strlen(b), "n", &at, &n, &t) == 1 && t == JSON_NUMBER);
    ck_assert(json_member(b, strlen(b), "job", &at, &n, &t) == 1 && t == JSON_STRING);
    ck_assert(json_member(b, strlen(b), "level", &at, &n, &t) == 1);
    ck_assert(strncmp(at, "\"debug\"", n) == 0);
    ck_assert(json_member(b, strlen(b), "at", &at, &n, &t) == 1 && t == JSON_STRING);
}
END_TEST

START_TEST(test_log_level_hides_what_is_below)
{
    char b[256];
    enum log_level lv;

    open_log(LOG_WARN, false);
    log_line(LOG_INFO, "hidden", NULL);
    log_line(LOG_WARN, "shown", NULL);
    ck_assert_str_eq(logged(b, sizeof b, false), "warn event=shown\n");
    ck_assert(log_level_parse("debug", &lv) && lv == LOG_DEBUG);
    ck_assert(!log_level_parse("verbose", &lv));
}
END_TEST

START_TEST(test_log_gate_lets_one_through_and_counts_the_rest)
{
    struct log_gate g = { 0 }, open = { 0 };

    ck_assert(log_gate(&g, INT64_C(3600) * 1000000));
    for (int i = 0; i < 5; i++) ck_assert(!log_gate(&g, INT64_C(3600) * 1000000));
    ck_assert_int_eq(g.swallowed, 5);
    for (int i = 0; i < 5; i++) ck_assert(log_gate(&open, 0));
}
END_TEST

/* ---- failure points ---- */

START_TEST(test_fail_points_are_off_by_default_and_unique)
{
    const char *const *names = fail_names();
    struct pawl_error e;

    unsetenv("PAWL_FAILPOINT");
    ck_assert_int_eq(fail_setup(&e), PAWL_OK);
    ck_assert(!fail_armed);
    ck_assert(!fail_point("turn.before"));
    for (size_t i = 0; names[i] != NULL; i++)
        for (size_t j = 0; j < i; j++) ck_assert_str_ne(names[i], names[j]);
}
END_TEST

START_TEST(test_fail_setup_refuses_what_it_does_not_know)
{
    static const struct { const char *env, *part; } c[] = {
        { "turn.befor=kill", "did you mean \"turn.before\"" }, { "nonsense=kill", "no point" },
        { "turn.before", "no action" }, { "turn.before=", "no action" },
        { "turn.before=boom", "\"boom\"" }, { "turn.before=kill:x", "SKIP" },
        { "turn.before=kill:-1", "SKIP" }, { "turn.before=kill:1:0", "SKIP" },
        { "turn.before=kill,", "no point" }, { "turn.before=kill,reap.before=kil", "\"kil\"" },
    };
    struct pawl_error e;

    for (size_t i = 0; i < UT_N(c); i++) {
        setenv("PAWL_FAILPOINT", c[i].env, 1);
        ck_assert_int_eq(fail_setup(&e), PAWL_CONFIG);
        ck_assert_msg(strstr(e.msg, c[i].part) != NULL, "%s: %s", c[i].env, e.msg);
        ck_assert(!fail_armed);
    }
}
END_TEST

START_TEST(test_fail_error_counts_skips_and_times)
{
    struct pawl_error e;

    setenv("PAWL_FAILPOINT", "turn.before=error:2:1,reap.before=enospc", 1);
    ck_assert_int_eq(fail_setup(&e), PAWL_OK);
    ck_assert(!fail_point("turn.before"));
    ck_assert(!fail_point("turn.before"));
    ck_assert(fail_point("turn.before"));
    ck_assert_int_eq(errno, EIO);
    ck_assert(!fail_point("turn.before"));
    ck_assert(!fail_point("reap.after"));
    for (int i = 0; i < 3; i++) {
        errno = 0;
        ck_assert(fail_point("reap.before"));
        ck_assert_int_eq(errno, ENOSPC);
    }
}
END_TEST

static int end_of_child(const char *env)
{
    int status;
    pid_t pid = fork();

    ck_assert_int_ge(pid, 0);
    if (pid == 0) {
        struct pawl_error e;
        setenv("PAWL_FAILPOINT", env, 1);
        if (fail_setup(&e) != PAWL_OK) _exit(1);
        (void)fail_point("turn.before");
        _exit(2);
    }
    ck_assert_int_eq(waitpid(pid, &status, WUNTRACED), pid);
    if (WIFSTOPPED(status)) {
        int after;
        kill(pid, SIGCONT);
        ck_assert_int_eq(waitpid(pid, &after, 0), pid);
        ck_assert(WIFEXITED(after) && WEXITSTATUS(after) == 2); /* it went on from there */
    }
    return status;
}

START_TEST(test_fail_kill_exit_and_stop_end_the_process)
{
    int status = end_of_child("turn.before=kill");

    ck_assert(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    status = end_of_child("turn.before=exit");
    ck_assert(WIFEXITED(status) && WEXITSTATUS(status) == 9);
    status = end_of_child("turn.before=stop");
    ck_assert(WIFSTOPPED(status) && WSTOPSIG(status) == SIGSTOP);
    status = end_of_child("turn.before=kill:1");
    ck_assert(WIFEXITED(status) && WEXITSTATUS(status) == 2);
}
END_TEST

static void add(TCase *tc)
{
    tcase_add_test(tc, test_err_every_code_has_a_name_a_text_and_an_exit_code);
    tcase_add_test(tc, test_err_fail_and_wrap_read_outside_in);
    tcase_add_test(tc, test_err_errno_chooses_the_code_and_says_the_reason);
    tcase_add_test(tc, test_err_a_message_is_one_printable_line_of_whole_characters);
    tcase_add_test(tc, test_log_line_is_logfmt_and_cannot_be_forged);
    tcase_add_test(tc, test_log_line_as_json_is_one_valid_object);
    tcase_add_test(tc, test_log_level_hides_what_is_below);
    tcase_add_test(tc, test_log_gate_lets_one_through_and_counts_the_rest);
    tcase_add_test(tc, test_fail_points_are_off_by_default_and_unique);
    tcase_add_test(tc, test_fail_setup_refuses_what_it_does_not_know);
    tcase_add_test(tc, test_fail_error_counts_skips_and_times);
    tcase_add_test(tc, test_fail_kill_exit_and_stop_end_the_process);
}

int main(void) { return ut_main("err", add, 20); }
