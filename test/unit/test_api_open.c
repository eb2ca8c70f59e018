// SPDX-License-Identifier: Apache-2.0
/* test_api_open.c - opening with options, temporary stores, and that open and close leave nothing
 * behind: no descriptor, no file, no line in a log that was not asked for. */
#include <dirent.h>
#include <unistd.h>

#include "unit/test_handler_c.h"

enum { ROUNDS = 200 };

static int fds(void)
{
    DIR *d = opendir("/proc/self/fd");
    int n = 0;

    ck_assert_ptr_nonnull(d);
    while (readdir(d) != NULL) n++;
    closedir(d);
    return n;
}

static int64_t mono_ms(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

START_TEST(test_temporary_stores_are_removed)
{
    struct pawl *a = NULL, *b = NULL;
    char dir[256], *slash;

    OK(pawl_open_temp(NULL, &a, e));
    OK(pawl_open_temp(NULL, &b, e));
    ck_assert_str_ne(pawl_url(a), pawl_url(b));
    snprintf(dir, sizeof dir, "%s", pawl_url(a) + strlen("sqlite:"));
    slash = strrchr(dir, '/');
    ck_assert_ptr_nonnull(slash);
    *slash = '\0';
    ck_assert_int_eq(access(dir, F_OK), 0);
    pawl_close(&a);
    ck_assert_int_ne(access(dir, F_OK), 0);
    ck_assert_int_eq(access(pawl_url(b) + strlen("sqlite:"), F_OK), 0);
    pawl_close(&b);
    FAILS(pawl_open_temp(NULL, NULL, e), PAWL_BADARG, "NULL");
    ck_assert_ptr_null(pawl_url(NULL));
    pawl_wake(NULL);
}
END_TEST

static enum pawl_rc with(const struct pawl_open_opts *o)
{
    struct pawl *p = NULL;
    struct pawl_error e;
    enum pawl_rc rc = pawl_open_temp(o, &p, &e);

    if (rc != PAWL_OK) {
        ck_assert_ptr_null(p);
        ck_assert_int_eq(e.rc, rc);
        ck_assert_int_ne(e.msg[0], '\0');
    }
    pawl_close(&p);
    return rc;
}

START_TEST(test_options)
{
    static const char *const good[] = {"CREATE TEMP TABLE made (x)", "PRAGMA cache_size = 9"};
    static const char *const wrong[] = {"CREATE TABEL x (y)", "COMMIT", "PRAGMA synchronous=OFF",
                                        "SELECT 1; SELECT 2", "", "SELECT :x"};
    struct pawl_open_opts o = {.on_connect = good, .on_connect_n = 2};
    const char *one;
    struct pawl *p = NULL;

    ck_assert_int_eq(with(&o), PAWL_OK);
    for (size_t i = 0; i < UT_N(wrong); i++) {
        o = (struct pawl_open_opts){.on_connect = &one, .on_connect_n = 1};
        one = wrong[i];
        ck_assert_msg(with(&o) == PAWL_BADARG, "%s", one);
    }
    one = NULL;
    ck_assert_int_eq(with(&o), PAWL_BADARG);
    o = (struct pawl_open_opts){.on_connect_n = 1};
    ck_assert_int_eq(with(&o), PAWL_BADARG);
    o = (struct pawl_open_opts){.busy_us = -1};
    ck_assert_int_eq(with(&o), PAWL_BADARG);
    FAILS(pawl_open_with("sqlite:nowhere.db", NULL, &p, e), PAWL_NOSTORE, "nowhere.db");
    FAILS(pawl_open_with("", NULL, &p, e), PAWL_BADARG, "url");
    FAILS(pawl_open_with(NULL, NULL, &p, e), PAWL_BADARG, "url");
    FAILS(pawl_open_with("sqlite:x.db", NULL, NULL, e), PAWL_BADARG, "NULL");
}
END_TEST

START_TEST(test_how_long_to_wait_for_others)
{
    const struct pawl_open_opts o = {.busy_us = 100000};
    const struct pawl_request r = {.task = "t"};
    struct pawl_enqueued out;
    struct pawl *p = NULL;
    int64_t begun_ms;
    struct cfx f;

    cfx_begin(&f);
    OK(pawl_open_with(pawl_url(f.p), &o, &p, e));
    ck_assert_str_eq(pawl_url(p), pawl_url(f.p));
    cfx_sql(&f, "BEGIN IMMEDIATE");
    begun_ms = mono_ms();
    FAILS(pawl_enqueue(p, &r, 1, &out, NULL, e), PAWL_BUSY, "");
    ck_assert_int_lt(mono_ms() - begun_ms, 5000); /* 10 s is the default */
    cfx_sql(&f, "ROLLBACK");
    OK(pawl_enqueue(p, &r, 1, &out, NULL, e));
    pawl_close(&p);
    cfx_end(&f);
}
END_TEST

/* Instants that a store cannot hold: a clock that stands at 0, or runs beyond 9999. */
START_TEST(test_odd_clocks)
{
    struct cfx f;

    cfx_begin(&f);
    f.now_us = 0;
    (void)cfx_put(&f, "{}");
    f.now_us = INT64_MIN;
    (void)cfx_put(&f, "{}");
    f.now_us = INT64_MAX;
    (void)cfx_put(&f, "{}");
    cfx_work(&f, false);
    OK(pawl_worker_run(f.w, true, e));
    ck_assert_int_eq(f.applies, 3);
    cfx_end(&f);
}
END_TEST

/* --- the log --- */

static void count_line(void *ctx, int level, const char *line)
{
    (void)level;
    ck_assert(strncmp(line, "event=", 6) == 0);
    ++*(int *)ctx;
}

/* A callback may use the handle that calls it. */
static bool enqueues(void *ctx, const struct pawl_job *j)
{
    const struct pawl_request r = {.task = "t"};
    struct pawl_enqueued out;

    if (j->id > 1) return false;
    OK(pawl_enqueue(*(struct pawl **)ctx, &r, 1, &out, NULL, e));
    return true;
}

START_TEST(test_calls_within_calls)
{
    int lines = 0;
    const struct pawl_open_opts o = {.log = count_line, .log_ctx = &lines};
    struct pawl *p = NULL;
    struct cfx f;

    cfx_begin(&f);
    OK(pawl_open_with(pawl_url(f.p), &o, &p, e));
    (void)cfx_put(&f, "{}");
    OK(pawl_jobs(p, NULL, enqueues, &p, e));
    OK(pawl_jobs(p, NULL, enqueues, &p, e));
    ck_assert_int_eq(cfx_num(&f, "SELECT count(*) FROM pawl_jobs"), 3);
    pawl_close(&p);
    cfx_end(&f);
}
END_TEST

/* --- again and again --- */

START_TEST(test_open_and_close_leave_nothing)
{
    struct pawl *p = NULL;
    int before;
    struct cfx f;

    cfx_begin(&f);
    f.task.policy = "hard_limit = 1m";
    cfx_work(&f, true);
    OK(pawl_worker_close(&f.w, e));
    before = fds();
    for (int i = 0; i < ROUNDS; i++) {
        OK(pawl_open(pawl_url(f.p), &p, e));
        (void)cfx_put(&f, "{}");
        pawl_close(&p);
        ck_assert_ptr_null(p);
    }
    for (int i = 0; i < ROUNDS; i++) {
        cfx_work(&f, i % 2 != 0);
        if (i % 10 == 0) OK(pawl_worker_one(f.w, NULL, e));
        OK(pawl_worker_close(&f.w, e));
    }
    for (int i = 0; i < ROUNDS / 10; i++) {
        OK(pawl_open_temp(NULL, &p, e));
        pawl_close(&p);
    }
    ck_assert_int_eq(fds(), before);
    /* Workers that left have left no file of theirs, either. */
    cfx_end(&f);
}
END_TEST

START_TEST(test_the_table_of_results)
{
    ck_assert_int_eq(pawl_rc_exit(PAWL_OK), 0);
    ck_assert_int_eq(pawl_rc_exit(PAWL_BADARG), 64);
    ck_assert_str_eq(pawl_rc_name(PAWL_DRIFT), "DRIFT");
    for (int rc = 0; rc < PAWL_RC_N; rc++)
        ck_assert_int_ne(pawl_rc_text((enum pawl_rc)rc)[0], '\0');
}
END_TEST

static void add(TCase *tc)
{
    tcase_add_test(tc, test_temporary_stores_are_removed);
    tcase_add_test(tc, test_options);
    tcase_add_test(tc, test_how_long_to_wait_for_others);
    tcase_add_test(tc, test_odd_clocks);
    tcase_add_test(tc, test_calls_within_calls);
    tcase_add_test(tc, test_open_and_close_leave_nothing);
    tcase_add_test(tc, test_the_table_of_results);
}

int main(void)
{
    return cfx_main("api_open", add, 60);
}
