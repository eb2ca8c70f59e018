// SPDX-License-Identifier: Apache-2.0
/* test_exec.c - real children of the exec handler: bytes, verdicts, limits, groups, descriptors. */
#include "handler/handler.h"

#include <dirent.h>
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <string.h>
#include <unistd.h>
#include "base/clock.h"
#include "base/json.h"
#include "core/rules.h"
#include "lib/ut.h"

enum { DEADLINE_US = 20 * 1000 * 1000 };

/* One task and job, and what came of running it. */
struct rig {
    struct conf conf;
    struct conf_task task;
    const char *argv[8];
    const char *env[4];
    struct job job;
    struct policy policy;
    struct arena arena;
    struct finding f;
    struct exec_child *c;
    int64_t took_us;
};

static int64_t now_us(void)
{
    return env_real()->mono_us(NULL);
}

static struct rig *rig(const char *script)
{
    static struct rig r;
    static struct arena kept[8192]; /* what was found stands until the test ends */
    static size_t kept_n;

    ck_assert_uint_lt(kept_n, UT_N(kept));
    kept[kept_n++] = r.arena;
    memset(&r, 0, sizeof r);
    policy_defaults(&r.policy);
    r.conf.dir = "/";
    memcpy(r.argv, (const char *[]){"/bin/sh", "-c", script, NULL}, 4 * sizeof *r.argv);
    r.task = (struct conf_task){.name = "t", .kind = HANDLER_EXEC, .argv = r.argv};
    r.job = (struct job){.id = 7, .root_id = 5, .token = 3, .queue = "default", .source = "",
                         .args = "{}", .args_bytes = 2};
    memset(r.job.lease_id, 0xab, sizeof r.job.lease_id);
    return &r;
}

static void start(struct rig *r)
{
    struct pawl_error e = {0};
    struct exec_start s = {.conf = &r->conf, .task = &r->task, .policy = &r->policy, .job = &r->job,
                           .worker = "w1", .db = "sqlite:/x.db", .mono_now_us = now_us(),
                           .wall_now_us = 1800000000000000};

    ck_assert_msg(exec_child_start(&s, &r->c, &e) == PAWL_OK, "%s", e.msg);
    r->took_us = now_us();
}

/* Serve it until it is over, or until `until` (may be NULL) says so. */
static void serve(struct rig *r, bool (*until)(struct rig *r))
{
    int64_t give_up_us = now_us() + DEADLINE_US;

    while (!exec_child_over(r->c) && (until == NULL || !until(r))) {
        struct pollfd p[EXEC_FD_N];
        int64_t next_us = exec_child_next_us(r->c), left_us = next_us - now_us();
        for (int i = 0; i < EXEC_FD_N; i++) {
            p[i] = (struct pollfd){.fd = exec_child_fd(r->c, i),
                                   .events = i == EXEC_STDIN ? POLLOUT : POLLIN};
        }
        if (next_us == INT64_MAX || left_us > 100000) left_us = 100000;
        ck_assert_msg(now_us() < give_up_us, "the child does not end");
        (void)poll(p, EXEC_FD_N, left_us <= 0 ? 0 : (int)(left_us / 1000 + 1));
        for (int i = 0; i < EXEC_FD_N; i++) {
            if (p[i].fd >= 0 && p[i].revents != 0) exec_child_io(r->c, i, now_us());
        }
        if (exec_child_next_us(r->c) <= now_us()) exec_child_tick(r->c, now_us());
    }
}

static struct finding *finish(struct rig *r)
{
    serve(r, NULL);
    r->took_us = now_us() - r->took_us;
    exec_child_finish(&r->c, &r->policy, &r->arena, &r->f);
    ck_assert_ptr_null(r->c);
    return &r->f;
}

static struct finding *run(const char *script)
{
    struct rig *r = rig(script);

    start(r);
    return finish(r);
}

#define OUTCOME(f, want)                                                                        \
    ck_assert_msg((f)->outcome == (want), "%s, not %s: %s", outcome_name((f)->outcome),         \
                  outcome_name(want), (f)->error == NULL ? "-" : (f)->error)
#define HAS(text, part)                                                                         \
    ck_assert_msg((text) != NULL && strstr(text, part) != NULL, "no '%s' in '%s'", part,        \
                  (text) == NULL ? "(nothing)" : (text))

/* ---- bytes ---- */

START_TEST(test_args_arrive_byte_exact_then_end)
{
    static char args[300001];
    struct rig *r = rig("wc -c; md5sum");
    struct finding *f;

    memset(args, 'x', sizeof args - 1);
    args[0] = args[sizeof args - 2] = '"';
    r->argv[2] = "n=$(wc -c); printf '{\"done\":{\"result\":%d}}' $n >&3";
    r->job.args = args;
    r->job.args_bytes = sizeof args - 1;
    start(r);
    f = finish(r);
    OUTCOME(f, OUT_DONE);
    ck_assert_str_eq(f->result, "300000");
}
END_TEST

START_TEST(test_short_args_and_their_end_are_there_at_once)
{
    struct rig *r = rig("cat >&2; exit 65");
    struct finding *f;

    r->job.args = "{\"a\":\"\xc3\xa9\"}";
    r->job.args_bytes = strlen(r->job.args);
    start(r);
    ck_assert_int_eq(exec_child_fd(r->c, EXEC_STDIN), -1);
    f = finish(r);
    OUTCOME(f, OUT_PERMANENT);
    ck_assert_str_eq(f->err_tail, r->job.args);
    ck_assert_str_eq(f->error, "exit 65: {\"a\":\"\xc3\xa9\"}");
}
END_TEST

START_TEST(test_case_28_floods_on_both_outputs_and_an_unread_stdin_block_nothing)
{
    static char args[1024 * 1024];
    struct rig *r = rig("head -c 10485760 /dev/zero | tr '\\0' 'e' >&2;"
                        "head -c 10485760 /dev/zero | tr '\\0' 'o'; echo the end;"
                        "echo '{\"done\":{\"result\":[1]}}' >&3");
    struct finding *f;

    memset(args, ' ', sizeof args);
    args[0] = '1';
    r->job.args = args;
    r->job.args_bytes = sizeof args;
    start(r);
    f = finish(r);
    OUTCOME(f, OUT_DONE);
    ck_assert_str_eq(f->result, "[1]");
    HAS(f->out_tail, "the end");
    ck_assert_uint_lt(strlen(f->out_tail), LIMIT_OUT_TAIL + 200);
    HAS(f->err_tail, "left out");
    ck_assert_uint_lt(strlen(f->err_tail), LIMIT_ERROR_HEAD + LIMIT_ERROR_TAIL + 200);
}
END_TEST

START_TEST(test_errors_are_valid_utf8_without_nul_and_lose_no_byte)
{
    struct finding *f = run("printf 'caf\\303\\251 \\377\\000\\303' >&2; exit 1");

    OUTCOME(f, OUT_TRANSIENT);
    ck_assert_str_eq(f->error, "exit 1: caf\xc3\xa9 \\xff\\x00\\xc3");
    ck_assert(utf8_ok(f->error, f->error_bytes));
    ck_assert_uint_eq(f->error_bytes, strlen(f->error));
}
END_TEST

START_TEST(test_error_is_the_last_line_that_is_not_blank)
{
    struct finding *f = run("printf 'Traceback:\\n  line 3\\nValueError: no price\\n\\n  \\n' >&2;"
                            "exit 65");

    OUTCOME(f, OUT_PERMANENT);
    ck_assert_str_eq(f->error, "exit 65: ValueError: no price");
    HAS(f->err_tail, "Traceback");
    ck_assert_int_eq(f->exit_code, 65);
    ck_assert_int_eq(f->signal, -1);
    ck_assert_int_gt(f->max_rss_kib, 0);
}
END_TEST

/* ---- verdicts ---- */

static struct finding *say(const char *reply, int code)
{
    static char script[4096];

    ck_assert_ptr_null(strchr(reply, '\''));
    (void)snprintf(script, sizeof script, "printf '%%s' '%s' >&3; exit %d", reply, code);
    return run(script);
}

START_TEST(test_a_verdict_says_what_it_says)
{
    struct finding *f = say("{\"done\":{\"result\":{\"a\":[1, 2]}}}", 0);

    OUTCOME(f, OUT_DONE);
    ck_assert_str_eq(f->result, "{\"a\":[1, 2]}");
    ck_assert_ptr_null(f->error);
    f = say(" {\"done\" : {} }\n", 0);
    OUTCOME(f, OUT_DONE);
    ck_assert_ptr_null(f->result);
    f = say("{\"done\":{\"id\":\"7\"}}", 0);
    OUTCOME(f, OUT_DONE);
    f = say("{\"retry\":{\"error\":\"gateway \\u00e9\",\"after_ms\":1500}}", 0);
    OUTCOME(f, OUT_TRANSIENT);
    ck_assert_str_eq(f->error, "gateway \xc3\xa9");
    ck_assert_int_eq(f->retry_after_us, 1500000);
    f = say("{\"fail\":{\"error\":\"no such order\"}}", 0);
    OUTCOME(f, OUT_PERMANENT);
    ck_assert_str_eq(f->error, "no such order");
    f = say("{\"snooze\":{\"after_ms\":250}}", 0);
    OUTCOME(f, OUT_SNOOZE);
    ck_assert_int_eq(f->retry_after_us, 250000);
    f = say(" \n\t", 0);
    OUTCOME(f, OUT_DONE);
}
END_TEST

START_TEST(test_with_a_failing_exit_the_worse_counts)
{
    OUTCOME(say("{\"done\":{\"result\":1}}", 75), OUT_TRANSIENT);
    OUTCOME(say("{\"done\":{\"result\":1}}", 65), OUT_PERMANENT);
    OUTCOME(say("{\"retry\":{}}", 65), OUT_PERMANENT);
    OUTCOME(say("{\"fail\":{}}", 75), OUT_PERMANENT);
    OUTCOME(say("{\"snooze\":{}}", 75), OUT_TRANSIENT);
    OUTCOME(run("echo '{\"fail\":{}}' >&3; kill -9 $$"), OUT_PERMANENT);
    OUTCOME(run("echo '{\"done\":{}}' >&3; kill -9 $$"), OUT_LOST);
}
END_TEST

START_TEST(test_what_is_no_verdict_is_a_protocol_failure_that_says_where)
{
    static const struct { const char *reply, *why; } bad[] = {
        {"{\"done\":{\"result\":1}", "not one JSON object"},
        {"done", "not one JSON object"},
        {"[1]", "must be a JSON object"},
        {"{}", "empty"},
        {"{\"ok\":{}}", "\"ok\" is no verdict"},
        {"{\"done\":true}", "must hold an object"},
        {"{\"done\":{}}{\"done\":{}}", "not one JSON object"},
        {"{\"done\":{},\"done\":{}}", "second verdict"},
        {"{\"done\":{},\"fail\":{}}", "second verdict"},
        {"{\"done\":{\"result\":1,\"result\":2}}", "twice"},
        {"{\"done\":{\"error\":\"x\"}}", "not a member of \"done\""},
        {"{\"done\":{\"writes\":[]}}", "the task declares none (write.NAME"},
        {"{\"done\":{\"enqueue\":[]}}", "the task has not said enqueue = yes"},
        {"{\"step\":{}}", "not in this version"},
        {"{\"progress\":{}}", "not in this version"},
        {"{\"done\":{\"id\":\"8\"}}", "another job"},
        {"{\"retry\":{\"after_ms\":-1}}", "after_ms"},
        {"{\"retry\":{\"after_ms\":1.5}}", "after_ms"},
        {"{\"retry\":{\"after_ms\":\"1\"}}", "after_ms"},
        {"{\"retry\":{\"error\":5}}", "must be a string"},
        {"{\"retry\":{\"error\":\"\\\\ud800\"}}", ""},
    };

    for (size_t i = 0; i < UT_N(bad); i++) {
        struct finding *f = say(bad[i].reply, 0);
        ck_assert_msg(f->outcome == OUT_TRANSIENT, "%s", bad[i].reply);
        if (bad[i].why[0] == '\0') continue;
        HAS(f->error, "protocol: ");
        HAS(f->error, "byte ");
        HAS(f->error, bad[i].why);
    }
    OUTCOME(say("{\"done\":", 65), OUT_PERMANENT);
    OUTCOME(say("{\"done\":", 75), OUT_TRANSIENT);
}
END_TEST

START_TEST(test_limits_of_reply_and_result_are_said)
{
    struct finding *f = run("printf '{\"done\":{\"result\":\"' >&3;"
                            "head -c 262143 /dev/zero | tr '\\0' 'r' >&3; printf '\"}}' >&3");

    OUTCOME(f, OUT_PERMANENT);
    ck_assert_str_eq(f->error, "the result has 262145 bytes, the limit is 262144");
    f = run("head -c 3000000 /dev/zero | tr '\\0' ' ' >&3");
    OUTCOME(f, OUT_TRANSIENT);
    HAS(f->error, "the reply has 3000000 bytes");
}
END_TEST

/* ---- exit codes and signals ---- */

START_TEST(test_exit_codes_are_classified)
{
    struct rig *r;

    OUTCOME(run("exit 0"), OUT_DONE);
    OUTCOME(run("exit 1"), OUT_TRANSIENT);
    OUTCOME(run("exit 75"), OUT_TRANSIENT);
    OUTCOME(run("exit 64"), OUT_PERMANENT);
    OUTCOME(run("exit 100"), OUT_PERMANENT);
    OUTCOME(run("exit 127"), OUT_TRANSIENT);
    HAS(run("exit 126")->error, "not runnable");
    r = rig("exit 9");
    r->policy.codes_discard[0] = 1 << 9;
    start(r);
    OUTCOME(finish(r), OUT_DISCARD);
}
END_TEST

START_TEST(test_a_foreign_signal_is_lost_and_named)
{
    struct finding *f = run("echo boom >&2; kill -SEGV $$");

    OUTCOME(f, OUT_LOST);
    ck_assert_int_eq(f->signal, SIGSEGV);
    ck_assert_int_eq(f->exit_code, -1);
    HAS(f->error, "killed by signal 11 (SEGV)");
    HAS(f->error, "boom");
    OUTCOME(run("kill -9 $$"), OUT_LOST);
}
END_TEST

START_TEST(test_what_cannot_be_started_is_not_runnable)
{
    static const char *const bad[] = {"/no/such/program", "/etc/passwd", "/"};
    struct pawl_error e = {0};

    for (size_t i = 0; i < UT_N(bad); i++) {
        struct rig *r = rig("");
        struct exec_start s = {.conf = &r->conf, .task = &r->task, .policy = &r->policy,
                               .job = &r->job, .mono_now_us = now_us()};
        r->argv[0] = bad[i];
        r->argv[1] = NULL;
        ck_assert_int_ne(exec_child_start(&s, &r->c, &e), PAWL_OK);
        ck_assert_ptr_null(r->c);
        ck_assert(!exec_start_again(&e));
        exec_not_runnable(&e, &r->arena, &r->f);
        OUTCOME(&r->f, OUT_TRANSIENT);
        HAS(r->f.error, "not runnable: ");
        HAS(r->f.error, bad[i]);
    }
}
END_TEST

/* ---- limits ---- */

START_TEST(test_case_26_term_ignored_at_the_soft_limit_is_killed_at_the_hard_one)
{
    struct rig *r = rig("trap '' TERM; echo up; while :; do sleep 0.05; done");
    struct finding *f;

    r->policy.soft_limit_us = 200 * 1000;
    r->policy.hard_limit_us = 500 * 1000;
    start(r);
    f = finish(r);
    OUTCOME(f, OUT_TIMEOUT);
    HAS(f->error, "the hard limit of 0.5s passed");
    ck_assert_int_eq(f->signal, SIGKILL);
    ck_assert_int_ge(r->took_us, 450 * 1000);
    ck_assert_int_lt(r->took_us, 3000 * 1000);
}
END_TEST

START_TEST(test_term_at_the_soft_limit_is_a_timeout_unless_it_ends_tidily)
{
    struct rig *r = rig("sleep 30");

    r->policy.soft_limit_us = 200 * 1000;
    start(r);
    OUTCOME(finish(r), OUT_TIMEOUT);
    HAS(r->f.error, "the soft limit of 0.2s passed");
    ck_assert_int_eq(r->f.signal, SIGTERM);

    r = rig("trap 'echo \"{\\\"done\\\":{\\\"result\\\":2}}\" >&3; exit 0' TERM; sleep 30 & wait");
    r->policy.soft_limit_us = 300 * 1000;
    start(r);
    OUTCOME(finish(r), OUT_DONE);
    ck_assert_str_eq(r->f.result, "2");
}
END_TEST

/* ---- drain ---- */

/* A script closes its stdout when it is where the test wants it: the pipe's end tells. */
static bool is_up(struct rig *r)
{
    return exec_child_fd(r->c, EXEC_STDOUT) < 0;
}

static void stop_when_up(struct rig *r, int sig)
{
    serve(r, is_up);
    exec_child_stop(r->c, sig, "the worker's grace is over", now_us());
}

START_TEST(test_drain_releases_what_does_not_end_well)
{
    struct rig *r = rig("exec >&-; sleep 30");
    struct finding *f;

    start(r);
    stop_when_up(r, SIGTERM);
    f = finish(r);
    OUTCOME(f, OUT_RELEASED);
    HAS(f->error, "the worker's grace is over");

    r = rig("trap 'exit 75' TERM; exec >&-; sleep 30 & wait");
    start(r);
    stop_when_up(r, SIGTERM);
    OUTCOME(finish(r), OUT_RELEASED);

    r = rig("trap 'exit 0' TERM; exec >&-; sleep 30 & wait");
    start(r);
    stop_when_up(r, SIGTERM);
    OUTCOME(finish(r), OUT_DONE);
}
END_TEST

START_TEST(test_a_child_that_ended_before_the_stop_keeps_its_own_end)
{
    struct rig *r = rig("exit 65");
    struct pollfd p;

    start(r);
    p = (struct pollfd){.fd = exec_child_fd(r->c, EXEC_PIDFD), .events = POLLIN};
    ck_assert_int_eq(poll(&p, 1, 10000), 1);
    exec_child_stop(r->c, SIGKILL, "too late", now_us());
    OUTCOME(finish(r), OUT_PERMANENT);
}
END_TEST

/* ---- groups ---- */

static bool alive(const char *pid_text)
{
    return kill((pid_t)strtol(pid_text, NULL, 10), 0) == 0;
}

static void wait_dead(const char *pid_text)
{
    int64_t give_up_us = now_us() + DEADLINE_US;

    while (alive(pid_text)) ck_assert_msg(now_us() < give_up_us, "%s lives on", pid_text);
}

START_TEST(test_case_27_a_grandchild_in_the_group_ends_with_the_child)
{
    struct rig *r = rig("sleep 600 & echo $!; echo '{\"done\":{}}' >&3");

    start(r);
    OUTCOME(finish(r), OUT_DONE);
    ck_assert_int_lt(r->took_us, 400 * 1000);
    wait_dead(r->f.out_tail);
}
END_TEST

START_TEST(test_case_27_a_grandchild_in_its_own_session_holds_no_slot)
{
    struct rig *r = rig("setsid sleep 600 & echo $!; echo '{\"done\":{\"result\":4}}' >&3;"
                        "sleep 0.1");
    pid_t pid;

    start(r);
    OUTCOME(finish(r), OUT_DONE);
    ck_assert_str_eq(r->f.result, "4");
    ck_assert_int_ge(r->took_us, 400 * 1000);
    ck_assert_int_lt(r->took_us, 3000 * 1000);
    pid = (pid_t)strtol(r->f.out_tail, NULL, 10);
    ck_assert_int_eq(kill(pid, SIGKILL), 0); /* it did survive: it is out of our reach */
}
END_TEST

START_TEST(test_case_27_the_group_of_a_timed_out_shell_is_killed)
{
    struct rig *r = rig("sleep 600 & echo $!; sleep 600");

    r->policy.hard_limit_us = 300 * 1000;
    start(r);
    OUTCOME(finish(r), OUT_TIMEOUT);
    ck_assert_int_lt(r->took_us, 3000 * 1000);
    wait_dead(r->f.out_tail);
}
END_TEST

START_TEST(test_kill_on_the_way_out_leaves_nothing)
{
    struct rig *r = rig("sleep 600 >&2 & exec >&-; sleep 600");
    pid_t pid;

    start(r);
    serve(r, is_up);
    pid = exec_child_pid(r->c);
    exec_child_kill(&r->c);
    ck_assert_ptr_null(r->c);
    ck_assert(kill(pid, 0) != 0 && errno == ESRCH);
}
END_TEST

/* ---- environment and descriptors ---- */

START_TEST(test_the_environment_names_the_job)
{
    struct rig *r = rig("env | grep -E '^(PAWL_|TRACEPARENT|MINE)' | sort");

    setenv("PAWL_FAILPOINT_OF_OURS", "leak", 1);
    setenv("PAWL_KEY", "leak", 1);
    setenv("TRACEPARENT", "leak", 1);
    r->env[0] = "MINE=yes";
    r->env[1] = "PAWL_JOB_ID=99";
    r->task.env = r->env;
    r->task.env_n = 2;
    r->job.key = "order:42";
    r->job.source = "shop";
    r->policy.hard_limit_us = 60 * 1000000;
    start(r);
    OUTCOME(finish(r), OUT_DONE);
    ck_assert_str_eq(r->f.out_tail,
                     "MINE=yes\n"
                     "PAWL_ATTEMPT=3\n"
                     "PAWL_DB=sqlite:/x.db\n"
                     "PAWL_DEADLINE_MS=1800000060000\n"
                     "PAWL_IDEMPOTENCY_KEY=pawl-4d6d0611c8c86fb1bb9a28833f00aa00\n"
                     "PAWL_JOB_ID=7\n"
                     "PAWL_KEY=order:42\n"
                     "PAWL_LEASE=abababababababababababababababab\n"
                     "PAWL_QUEUE=default\n"
                     "PAWL_REPLY_FD=3\n"
                     "PAWL_ROOT_ID=5\n"
                     "PAWL_SOURCE=shop\n"
                     "PAWL_TASK=t\n"
                     "PAWL_TOKEN=3\n"
                     "PAWL_WORKER=w1\n");
}
END_TEST

static const char *key_of(const char *task, const char *source, const char *key, int64_t id,
                          int64_t root, int64_t token)
{
    struct rig *r = rig("printf %s \"$PAWL_IDEMPOTENCY_KEY\"");

    r->task.name = task;
    r->job.source = source;
    r->job.key = key;
    r->job.id = id;
    r->job.root_id = root;
    r->job.token = token;
    start(r);
    finish(r);
    return r->f.out_tail; /* it stands until the test ends: see rig() */
}

START_TEST(test_case_37_the_idempotency_key_is_stable_and_apart)
{
    const char *k = key_of("charge", "s", "k", 1, 1, 1);

    ck_assert_uint_eq(strlen(k), 37);
    ck_assert_str_eq(k, key_of("charge", "s", "k", 1, 1, 9));   /* a retry */
    ck_assert_str_eq(k, key_of("charge", "s", "k", 8, 1, 1));   /* a replay */
    ck_assert_str_ne(k, key_of("charge", "sk", "", 1, 1, 1));
    ck_assert_str_ne(k, key_of("charge", "s", "k2", 1, 1, 1));
    ck_assert_str_ne(k, key_of("charge2", "s", "k", 1, 1, 1));
    k = key_of("charge", "", NULL, 1, 1, 1);
    ck_assert_str_eq(k, key_of("charge", "", NULL, 8, 1, 2));
    ck_assert_str_ne(k, key_of("charge", "", NULL, 8, 8, 1));
    ck_assert_str_ne(k, key_of("charge", "", "1", 1, 1, 1));
}
END_TEST

static int open_fds(void)
{
    DIR *d = opendir("/proc/self/fd");
    int n = 0;

    ck_assert_ptr_nonnull(d);
    while (readdir(d) != NULL) n++;
    closedir(d);
    return n;
}

START_TEST(test_case_29_a_child_has_four_descriptors_and_ours_do_not_grow)
{
    int before, after;
    struct finding *f = run("ls /proc/self/fd | tr '\\n' ' '");

    HAS(f->out_tail, "0 1 2 3 ");
    ck_assert_uint_le(strlen(f->out_tail), strlen("0 1 2 3 4 ")); /* 4: ls reading the directory */
    before = open_fds();
    for (int i = 0; i < 1000; i++) {
        struct rig *r = rig("");
        struct pawl_error e;
        struct exec_start s = {.conf = &r->conf, .task = &r->task, .policy = &r->policy,
                               .job = &r->job, .mono_now_us = now_us()};
        r->argv[0] = i % 4 == 3 ? "/no/such/program" : "/bin/true";
        r->argv[1] = NULL;
        if (exec_child_start(&s, &r->c, &e) != PAWL_OK) continue;
        if (i % 4 == 2) exec_child_kill(&r->c);
        else OUTCOME(finish(r), OUT_DONE);
        arena_free(&r->arena);
    }
    after = open_fds();
    ck_assert_int_eq(before, after);
}
END_TEST

static void add(TCase *tc)
{
    tcase_add_test(tc, test_args_arrive_byte_exact_then_end);
    tcase_add_test(tc, test_short_args_and_their_end_are_there_at_once);
    tcase_add_test(tc, test_case_28_floods_on_both_outputs_and_an_unread_stdin_block_nothing);
    tcase_add_test(tc, test_errors_are_valid_utf8_without_nul_and_lose_no_byte);
    tcase_add_test(tc, test_error_is_the_last_line_that_is_not_blank);
    tcase_add_test(tc, test_a_verdict_says_what_it_says);
    tcase_add_test(tc, test_with_a_failing_exit_the_worse_counts);
    tcase_add_test(tc, test_what_is_no_verdict_is_a_protocol_failure_that_says_where);
    tcase_add_test(tc, test_limits_of_reply_and_result_are_said);
    tcase_add_test(tc, test_exit_codes_are_classified);
    tcase_add_test(tc, test_a_foreign_signal_is_lost_and_named);
    tcase_add_test(tc, test_what_cannot_be_started_is_not_runnable);
    tcase_add_test(tc, test_case_26_term_ignored_at_the_soft_limit_is_killed_at_the_hard_one);
    tcase_add_test(tc, test_term_at_the_soft_limit_is_a_timeout_unless_it_ends_tidily);
    tcase_add_test(tc, test_drain_releases_what_does_not_end_well);
    tcase_add_test(tc, test_a_child_that_ended_before_the_stop_keeps_its_own_end);
    tcase_add_test(tc, test_case_27_a_grandchild_in_the_group_ends_with_the_child);
    tcase_add_test(tc, test_case_27_a_grandchild_in_its_own_session_holds_no_slot);
    tcase_add_test(tc, test_case_27_the_group_of_a_timed_out_shell_is_killed);
    tcase_add_test(tc, test_kill_on_the_way_out_leaves_nothing);
    tcase_add_test(tc, test_the_environment_names_the_job);
    tcase_add_test(tc, test_case_37_the_idempotency_key_is_stable_and_apart);
    tcase_add_test(tc, test_case_29_a_child_has_four_descriptors_and_ours_do_not_grow);
}

int main(void)
{
    (void)signal(SIGPIPE, SIG_IGN);
    return ut_main("exec", add, 30);
}
