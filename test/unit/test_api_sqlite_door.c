// SPDX-License-Identifier: Apache-2.0
/* test_api_sqlite_door.c - enqueueing on the caller's own connection: it shares the fate of the
 * caller's transaction, and answers and refuses as the C door does. */
#include "unit/test_handler_c.h"

/* The connection that the test has of its own. */
static sqlite3 *db(const struct cfx *f)
{
    return f->at.foreign;
}

static struct pawl_enqueued door(struct cfx *f, const struct pawl_request *r)
{
    struct pawl_enqueued out;
    size_t done = 77;

    OK(pawl_enqueue_sqlite(db(f), r, 1, &out, &done, e));
    ck_assert_uint_eq(done, 1);
    return out;
}

static int64_t jobs(struct cfx *f)
{
    return cfx_num(f, "SELECT count(*) FROM pawl_jobs");
}

START_TEST(test_it_shares_the_callers_fate)
{
    const struct pawl_request r = {.task = "t", .args = "[1]", .key = "k", .source = "s",
                                   .queue = "q", .priority = 7, .has_priority = true,
                                   .max_retries = 2, .has_max_retries = true, .entity = "e",
                                   .version = 3, .has_version = true,
                                   .headers = "{\"a\":\"b\"}", .trace = "00-1"};
    char text[256];
    struct cfx f;

    cfx_begin(&f);
    cfx_sql(&f, "BEGIN");
    cfx_sql(&f, "INSERT INTO row VALUES ('with it', 1)");
    ck_assert(door(&f, &r).created);
    cfx_sql(&f, "ROLLBACK");
    ck_assert_int_eq(jobs(&f), 0);
    cfx_sql(&f, "BEGIN");
    ck_assert(door(&f, &r).created);
    ck_assert_int_eq(sqlite3_get_autocommit(db(&f)), 0); /* the caller's transaction is as it was */
    cfx_sql(&f, "COMMIT");
    ck_assert_str_eq(cfx_text(&f, "SELECT task || ' ' || args || ' ' || key || ' ' || source || ' '"
                              " || queue || ' ' || priority || ' ' || max_retries || ' ' || entity"
                              " || ' ' || version || ' ' || headers || ' ' || trace FROM pawl_jobs",
                              text, sizeof text),
                     "t [1] k s q 7 2 e 3 {\"a\":\"b\"} 00-1");
    cfx_end(&f);
}
END_TEST

START_TEST(test_answers)
{
    const struct pawl_request r = {.task = "t", .key = "k"}, plain = {.task = "unheard"};
    struct pawl_enqueued out;
    struct cfx f;

    cfx_begin(&f);
    out = door(&f, &r);
    ck_assert(out.id == 1 && out.created && !out.task_known && out.state == PAWL_STATE_READY);
    ck_assert_int_eq(sqlite3_get_autocommit(db(&f)), 1);
    out = door(&f, &r);
    ck_assert(out.id == 1 && !out.created && out.state == PAWL_STATE_READY);
    cfx_work(&f, false);
    (void)cfx_one(&f);
    out = door(&f, &r);
    ck_assert(out.id == 1 && !out.created && out.task_known && out.state == PAWL_STATE_DONE);
    ck_assert(out.result == NULL && out.near[0] == '\0');
    out = door(&f, &plain);
    ck_assert(out.id == 2 && out.created && !out.task_known);
    cfx_end(&f);
}
END_TEST

/* After a prune only the key knows what became of the job: both doors say the same. */
START_TEST(test_the_answer_for_a_pruned_job)
{
    const struct pawl_request r = {.task = "t", .key = "k"};
    const struct pawl_prune_opts all = {.done_older_us = 1};
    struct pawl_enqueued a, b;
    struct pawl_pruned pruned;
    struct cfx f;

    cfx_begin(&f);
    cfx_work(&f, false);
    (void)door(&f, &r);
    (void)cfx_one(&f);
    f.now_us += SEC;
    OK(pawl_prune(f.p, &all, &pruned, e));
    ck_assert_int_eq(pruned.jobs, 1);
    OK(pawl_enqueue(f.p, &r, 1, &a, NULL, e));
    b = door(&f, &r);
    ck_assert(!a.created && !b.created && a.id == b.id);
    ck_assert_int_eq(a.state, b.state);
    pawl_free(a.result);
    cfx_end(&f);
}
END_TEST

/* --- refusals: the same code through both doors, and nothing stored --- */

static const struct pawl_request refused[] = {
    {.task = NULL}, {.task = ""}, {.task = "Bad"}, {.task = "t", .queue = "no no"},
    {.task = "t", .args = "{"}, {.task = "t", .args = "\xff"}, {.task = "t", .key = ""},
    {.task = "t", .key = "a\nb"}, {.task = "t", .source = "\x7f"}, {.task = "t", .entity = "e"},
    {.task = "t", .version = 1, .has_version = true},
    {.task = "t", .priority = 101, .has_priority = true},
    {.task = "t", .max_retries = -1, .has_max_retries = true},
    {.task = "t", .priority = 1}, {.task = "t", .max_retries = 1}, {.task = "t", .version = 1},
    {.task = "t", .entity = "e", .version = -1},
    {.task = "t", .headers = "[]"}, {.task = "t", .headers = "{\"a\":1}"},
    {.task = "t", .run_at_us = 1700000000}, {.task = "t", .run_at_us = -1},
    {.task = "t", .expires_at_us = INT64_MAX},
    {.task = "t", .expires_at_us = INT64_C(1000000000) * SEC}, /* long past */
    {.task = "t", .run_at_us = INT64_C(4000000000) * SEC,
     .expires_at_us = INT64_C(3000000000) * SEC},
    {.task = "known", .key = "k", .args = "[2]"},
};

START_TEST(test_both_doors_refuse_alike)
{
    const struct pawl_request known = {.task = "known", .key = "k", .args = "[1]"};
    const struct pawl_request *r = &refused[_i];
    struct pawl_enqueued out;
    struct pawl_error a, b;
    size_t done = 77;
    struct cfx f;

    cfx_begin(&f);
    (void)door(&f, &known);
    ck_assert_int_ne(pawl_enqueue(f.p, r, 1, &out, NULL, &a), PAWL_OK);
    if (r->priority == 1) ck_assert_str_eq(a.msg, "priority 1 without has_priority: set"
                                           " has_priority, too");
    cfx_sql(&f, "BEGIN");
    ck_assert_int_ne(pawl_enqueue_sqlite(db(&f), r, 1, &out, &done, &b), PAWL_OK);
    ck_assert_msg(a.rc == b.rc, "%s, %s: %s | %s", pawl_rc_name(a.rc), pawl_rc_name(b.rc), a.msg,
                  b.msg);
    ck_assert_uint_eq(done, 0);
    ck_assert_int_eq(out.id, 0);
    ck_assert_int_eq(sqlite3_get_autocommit(db(&f)), 0);
    cfx_sql(&f, "COMMIT");
    ck_assert_int_eq(jobs(&f), 1);
    cfx_end(&f);
}
END_TEST

/* A transaction that read first, and was overtaken: waiting does not help, and the text says what
 * does. */
START_TEST(test_a_snapshot_that_is_old)
{
    const struct pawl_request r = {.task = "t"};
    struct pawl_enqueued out;
    struct cfx f;

    cfx_begin(&f);
    cfx_sql(&f, "BEGIN");
    (void)jobs(&f);
    OK(pawl_enqueue(f.p, &r, 1, &out, NULL, e));
    FAILS(pawl_enqueue_sqlite(db(&f), &r, 1, &out, NULL, e), PAWL_BUSY,
          "this transaction began with"
          " a read and another one has written since: ROLLBACK and BEGIN IMMEDIATE");
    cfx_sql(&f, "ROLLBACK");
    OK(pawl_enqueue_sqlite(db(&f), &r, 1, &out, NULL, e));
    cfx_end(&f);
}
END_TEST

/* What stands before the refused one stays: the caller decides. */
START_TEST(test_how_many_were_stored)
{
    const struct pawl_request r[] = {{.task = "a"}, {.task = "b"}, {.task = "c", .args = "{"},
                                     {.task = "d"}};
    struct pawl_enqueued out[4];
    size_t done = 77;
    struct cfx f;

    cfx_begin(&f);
    cfx_sql(&f, "BEGIN");
    FAILS(pawl_enqueue_sqlite(db(&f), r, 4, out, &done, e), PAWL_BADDATA, "args");
    ck_assert_uint_eq(done, 2);
    ck_assert(out[0].created && out[1].created && out[2].id == 0 && out[3].id == 0);
    cfx_sql(&f, "COMMIT");
    ck_assert_int_eq(jobs(&f), 2);
    FAILS(pawl_enqueue_sqlite(db(&f), r, 4, out, &done, e), PAWL_BADDATA, "args");
    ck_assert_uint_eq(done, 2);
    ck_assert_int_eq(jobs(&f), 4);
    OK(pawl_enqueue_sqlite(db(&f), r, 0, out, &done, e));
    ck_assert_uint_eq(done, 0);
    cfx_end(&f);
}
END_TEST

START_TEST(test_connections_that_will_not_do)
{
    const struct pawl_request r = {.task = "t"};
    struct pawl_enqueued out;
    sqlite3 *other = NULL;
    struct cfx f;

    cfx_begin(&f);
    FAILS(pawl_enqueue_sqlite(NULL, &r, 1, &out, NULL, e), PAWL_BADARG, "connection");
    FAILS(pawl_enqueue_sqlite(db(&f), NULL, 1, &out, NULL, e), PAWL_BADARG, "NULL");
    FAILS(pawl_enqueue_sqlite(db(&f), &r, 1, NULL, NULL, e), PAWL_BADARG, "NULL");
    FAILS(pawl_enqueue_sqlite(db(&f), &r, 10001, &out, NULL, e), PAWL_TOOBIG, "10000");
    ck_assert_int_eq(sqlite3_open(":memory:", &other), SQLITE_OK);
    FAILS(pawl_enqueue_sqlite(other, &r, 1, &out, NULL, e), PAWL_NOTOURS, "not a Pawl store");
    sqlite3_close(other);
    /* Another writer holds the lock. */
    ck_assert_int_eq(sqlite3_open(pawl_url(f.p) + strlen("sqlite:"), &other), SQLITE_OK);
    cfx_sql(&f, "BEGIN IMMEDIATE");
    FAILS(pawl_enqueue_sqlite(other, &r, 1, &out, NULL, e), PAWL_BUSY, "locked");
    ck_assert_int_eq(sqlite3_get_autocommit(other), 1);
    cfx_sql(&f, "ROLLBACK");
    OK(pawl_enqueue_sqlite(other, &r, 1, &out, NULL, e));
    ck_assert_int_eq(sqlite3_close(other), SQLITE_OK); /* nothing of ours is left open on it */
    cfx_end(&f);
}
END_TEST

/* The natural loop: a job for each row as it is inserted. */
START_TEST(test_rows_of_a_statement_that_still_writes_are_left_alone)
{
    const struct pawl_request r = {.task = "t"};
    struct pawl_enqueued out;
    sqlite3_stmt *q = NULL;
    struct cfx f;
    int rows = 0;

    cfx_begin(&f);
    cfx_sql(&f, "CREATE TABLE orders (id INTEGER PRIMARY KEY)");
    for (int begun = 0; begun < 2; begun++) {
        if (begun) cfx_sql(&f, "BEGIN IMMEDIATE");
        ck_assert_int_eq(sqlite3_prepare_v2(db(&f), "INSERT INTO orders VALUES (NULL), (NULL)"
                                                  " RETURNING id", -1, &q, NULL), SQLITE_OK);
        while (sqlite3_step(q) == SQLITE_ROW) {
            rows++;
            if (begun) OK(pawl_enqueue_sqlite(db(&f), &r, 1, &out, NULL, e));
            else FAILS(pawl_enqueue_sqlite(db(&f), &r, 1, &out, NULL, e), PAWL_BUSY,
                       "RETURNING id");
        }
        ck_assert_int_eq(sqlite3_finalize(q), SQLITE_OK);
        if (begun) cfx_sql(&f, "COMMIT");
        ck_assert_int_eq(cfx_num(&f, "SELECT count(*) FROM orders"), 2 + 2 * begun);
    }
    ck_assert_int_eq(rows, 4);
    ck_assert_int_eq(jobs(&f), 2);
    cfx_sql(&f, "PRAGMA count_changes = ON");
    OK(pawl_enqueue_sqlite(db(&f), &r, 1, &out, NULL, e));
    ck_assert_int_eq(jobs(&f), 3);
    cfx_end(&f);
}
END_TEST

static void add(TCase *tc)
{
    tcase_add_test(tc, test_rows_of_a_statement_that_still_writes_are_left_alone);
    tcase_add_test(tc, test_it_shares_the_callers_fate);
    tcase_add_test(tc, test_answers);
    tcase_add_test(tc, test_the_answer_for_a_pruned_job);
    tcase_add_loop_test(tc, test_both_doors_refuse_alike, 0, UT_N(refused));
    tcase_add_test(tc, test_a_snapshot_that_is_old);
    tcase_add_test(tc, test_how_many_were_stored);
    tcase_add_test(tc, test_connections_that_will_not_do);
}

int main(void)
{
    return ut_main("api_sqlite_door", add, 30);
}
