// SPDX-License-Identifier: Apache-2.0
/* test_enqueue.c - accepting work: one job per key for ever, whole batches or nothing, limits. */
#include <inttypes.h>
#include <string.h>
#include "core/rules.h"
#include "lib/fx.h"

/* The same request again, at any time of the job's life, names the same job and makes nothing. */
static void expect_dup(struct fx *f, const struct pawl_request *r, int64_t id, enum pawl_state s,
                       const char *result)
{
    const int64_t before = fx_num(f, "SELECT count(*) FROM pawl_x_job");
    const struct pawl_enqueued d = fx_dup(f, r);

    ck_assert_int_eq(d.id, id);
    ck_assert_int_eq(d.state, s);
    ck_assert_pstr_eq(d.result, result);
    free(d.result);
    ck_assert_int_eq(fx_num(f, "SELECT count(*) FROM pawl_x_job"), before);
    ck_assert_int_eq(fx_num(f, "SELECT count(*) FROM pawl_x_key"), 1);
}

START_TEST(each_store_keyless_requests_are_never_merged)
{
    struct fx f;

    fx_begin(&f, _i);
    const int64_t a = fx_put(&f, "mail", "{}"), b = fx_put(&f, "mail", "{}");
    ck_assert_int_ne(a, b);
    ck_assert_int_eq(fx_stat(&f, "ready"), 2);
    ck_assert_int_eq(fx_stat(&f, "duplicates"), 0);
    fx_end(&f);
}
END_TEST

START_TEST(each_store_duplicate_is_absorbed_while_ready_and_running)
{
    const struct pawl_request r = fx_req("mail", "k", "{\"a\":1}");
    struct fx f;

    fx_begin(&f, _i);
    fx_task(&f, "mail");
    fx_join(&f);
    const int64_t id = fx_put_req(&f, &r);
    expect_dup(&f, &r, id, PAWL_STATE_READY, NULL);
    const struct job job = fx_claim_one(&f);
    expect_dup(&f, &r, id, PAWL_STATE_RUNNING, NULL);
    ck_assert_int_eq(fx_settle(&f, &job, OUT_TRANSIENT), SETTLE_OK);
    expect_dup(&f, &r, id, PAWL_STATE_READY, NULL);
    ck_assert_int_eq(fx_stat(&f, "duplicates"), 3);
    fx_end(&f);
}
END_TEST

START_TEST(each_store_duplicate_of_a_done_job_gets_its_result)
{
    const struct pawl_request r = fx_req("mail", "k", "{\"a\":1}");
    struct fx f;

    fx_begin(&f, _i);
    fx_task(&f, "mail");
    fx_join(&f);
    const int64_t id = fx_put_req(&f, &r);
    const struct job job = fx_claim_one(&f);
    struct finding found = fx_found(OUT_DONE, NULL);
    found.result = "{\"sum\": 7}";
    found.result_bytes = strlen(found.result);
    struct settle s = fx_decided(&f, &job, &found);
    fx_ok(fx_turn(&f, &s, 1), &f);
    expect_dup(&f, &r, id, PAWL_STATE_DONE, "{\"sum\": 7}");
    fx_end(&f);
}
END_TEST

START_TEST(each_store_duplicate_is_absorbed_when_dead_cancelled_and_dropped)
{
    const struct pawl_request r = fx_req("mail", "k", "{\"a\":1}");
    enum pawl_state s;
    struct fx f;

    fx_begin(&f, _i);
    fx_task(&f, "mail");
    fx_join(&f);
    const int64_t id = fx_put_req(&f, &r);
    const struct job job = fx_claim_one(&f);
    ck_assert_int_eq(fx_settle(&f, &job, OUT_PERMANENT), SETTLE_OK);
    expect_dup(&f, &r, id, PAWL_STATE_DEAD, NULL);
    fx_ok(store_discard(f.st, id, "not wanted", &f.e), &f);
    expect_dup(&f, &r, id, PAWL_STATE_DROPPED, NULL);
    fx_end(&f);

    fx_begin(&f, _i);
    const int64_t other = fx_put_req(&f, &r);
    fx_ok(store_cancel(f.st, other, &s, &f.e), &f);
    expect_dup(&f, &r, other, PAWL_STATE_CANCELLED, NULL);
    fx_end(&f);
}
END_TEST

START_TEST(each_store_duplicate_after_a_replay_names_the_newest_of_the_root)
{
    const struct pawl_request r = fx_req("mail", "k", "{\"a\":1}");
    const struct pawl_replay plain = {0}, fixed = { .args = "{\"a\":2}" };
    int64_t second = 0, third = 0;
    struct fx f;

    fx_begin(&f, _i);
    fx_task(&f, "mail");
    fx_join(&f);
    const int64_t first = fx_put_req(&f, &r);
    struct job job = fx_claim_one(&f);
    fx_settle(&f, &job, OUT_PERMANENT);
    fx_ok(store_replay(f.st, first, &plain, &second, &f.e), &f);
    expect_dup(&f, &r, second, PAWL_STATE_READY, NULL);
    job = fx_claim_one(&f);
    ck_assert_int_eq(job.id, second);
    fx_settle(&f, &job, OUT_PERMANENT);
    fx_ok(store_replay(f.st, second, &fixed, &third, &f.e), &f);
    /* What the ledger compares is the request as it was first made, not the edited args. */
    expect_dup(&f, &r, third, PAWL_STATE_READY, NULL);
    const struct pawl_request edited = fx_req("mail", "k", "{\"a\":2}");
    fx_is(fx_put_rc(&f, &edited), PAWL_KEYCLASH, &f);
    fx_end(&f);
}
END_TEST

START_TEST(each_store_key_is_scoped_by_task_and_source)
{
    struct pawl_request r = fx_req("mail", "k", "{}");
    struct fx f;

    fx_begin(&f, _i);
    const int64_t a = fx_put_req(&f, &r);
    r.source = "shop-2";
    const int64_t b = fx_put_req(&f, &r);
    r.source = NULL;
    r.task = "letter";
    const int64_t c = fx_put_req(&f, &r);
    ck_assert(a != b && b != c);
    r.task = "mail";
    r.source = ""; /* no source and the empty one are one */
    const struct pawl_enqueued d = fx_dup(&f, &r);
    ck_assert_int_eq(d.id, a);
    r.queue = "other"; /* the queue is not part of the scope */
    ck_assert_int_eq(fx_dup(&f, &r).id, a);
    fx_end(&f);
}
END_TEST

/* Same key, other bytes: refused, and no row of any table changes. */
START_TEST(each_store_key_clash_changes_nothing)
{
    static const char *const others[] = { "{\"a\":2}", "{\"a\": 1}", "{\"a\":1} ", "[]" };
    const struct pawl_request r = fx_req("mail", "k", "{\"a\":1}");
    struct fx f;

    fx_begin(&f, _i);
    const int64_t id = fx_put_req(&f, &r);
    for (size_t i = 0; i < UT_N(others); i++) {
        const struct pawl_request other = fx_req("mail", "k", others[i]);
        fx_is(fx_put_rc(&f, &other), PAWL_KEYCLASH, &f);
        ck_assert_ptr_nonnull(strstr(f.e.msg, "\"k\""));
        /* The refusal says when only white space differs. */
        ck_assert_int_eq(strstr(f.e.msg, "spelling") != NULL, i == 1 || i == 2);
    }
    ck_assert_int_eq(fx_num(&f, "SELECT count(*) FROM pawl_x_job"), 1);
    ck_assert_int_eq(fx_num(&f, "SELECT count(*) FROM pawl_x_ready"), 1);
    ck_assert_int_eq(fx_stat(&f, "key_conflicts"), (int64_t)UT_N(others));
    ck_assert_str_eq(fx_job(&f, id).args, "{\"a\":1}");
    ck_assert_int_eq(fx_dup(&f, &r).id, id);
    fx_end(&f);
}
END_TEST

START_TEST(each_store_batch_is_stored_whole_or_not_at_all)
{
    struct pawl_request r[50];
    struct pawl_enqueued out[50];
    char keys[50][16];
    size_t bad = 0;
    struct fx f;

    fx_begin(&f, _i);
    for (size_t i = 0; i < 50; i++) {
        snprintf(keys[i], sizeof keys[i], "k%zu", i);
        r[i] = fx_req("mail", keys[i], "{}");
    }
    /* the clash is inside the batch itself: entry 40 has the key of entry 3 and other args */
    r[40].key = "k3";
    r[40].args = "{\"x\":1}";
    fx_is(store_enqueue(f.st, r, 50, out, &bad, &f.e), PAWL_KEYCLASH, &f);
    ck_assert_uint_eq(bad, 40);
    ck_assert_int_eq(fx_num(&f, "SELECT count(*) FROM pawl_x_job"), 0);
    r[40].args = "{\"x\":";
    fx_is(store_enqueue(f.st, r, 50, out, &bad, &f.e), PAWL_BADDATA, &f);
    ck_assert_uint_eq(bad, 40);
    ck_assert_int_eq(fx_num(&f, "SELECT count(*) FROM pawl_x_key"), 0);
    r[40].args = "{}"; /* the same request twice in one batch: one job, both answers name it */
    fx_ok(store_enqueue(f.st, r, 50, out, &bad, &f.e), &f);
    ck_assert_int_eq(out[40].id, out[3].id);
    ck_assert(out[3].created && !out[40].created);
    ck_assert_int_eq(fx_stat(&f, "accepted"), 49);
    fx_end(&f);
}
END_TEST

START_TEST(each_store_failed_batch_is_told_and_leaves_nothing)
{
    struct pawl_request r = fx_req("mail", "k", "{}");
    struct fx f;

    fx_begin(&f, _i);
    fx_arm("enqueue.before", "error:0:1");
    fx_is(fx_put_rc(&f, &r), PAWL_IO, &f);
    fx_disarm();
    ck_assert_int_eq(fx_num(&f, "SELECT count(*) FROM pawl_x_job"), 0);
    fx_arm("enqueue.after", "error:0:1"); /* committed, but the answer is lost: found by reading */
    fx_ok(fx_put_rc(&f, &r), &f);
    fx_disarm();
    ck_assert_int_eq(fx_stat(&f, "accepted"), 1);
    fx_dup(&f, &r); /* the producer sends again: the same job */
    fx_end(&f);
}
END_TEST

static char *filled(size_t n, char with) /* a JSON string of n bytes in all */
{
    char *s = malloc(n + 1);

    ck_assert_ptr_nonnull(s);
    memset(s, with, n);
    s[0] = s[n - 1] = '"';
    s[n] = '\0';
    return s;
}

START_TEST(each_store_limits_hold_at_the_door)
{
    char *max = filled(LIMIT_ARGS_BYTES, 'x'), *over = filled(LIMIT_ARGS_BYTES + 1, 'x');
    char key[LIMIT_KEY_BYTES + 2], name[LIMIT_NAME_BYTES + 2];
    struct fx f;

    fx_begin(&f, _i);
    memset(key, 'k', sizeof key);
    memset(name, 'n', sizeof name);
    key[LIMIT_KEY_BYTES] = name[LIMIT_NAME_BYTES] = '\0';
    struct pawl_request r = { .task = name, .key = key, .source = key, .args = max };
    const int64_t id = fx_put_req(&f, &r);
    ck_assert_uint_eq(fx_job(&f, id).j.args_bytes, LIMIT_ARGS_BYTES);
    key[LIMIT_KEY_BYTES] = 'k';
    key[LIMIT_KEY_BYTES + 1] = '\0';
    r = fx_req("mail", key, "{}");
    fx_is(fx_put_rc(&f, &r), PAWL_BADDATA, &f);
    name[LIMIT_NAME_BYTES] = 'n';
    name[LIMIT_NAME_BYTES + 1] = '\0';
    r = fx_req(name, NULL, "{}");
    fx_is(fx_put_rc(&f, &r), PAWL_BADDATA, &f);
    r = fx_req("mail", NULL, over);
    fx_is(fx_put_rc(&f, &r), PAWL_TOOBIG, &f);
    r = (struct pawl_request){ .task = "mail", .has_priority = true, .priority = 101 };
    fx_is(fx_put_rc(&f, &r), PAWL_BADARG, &f);
    r = (struct pawl_request){ .task = "mail", .run_at_us = LIMIT_INSTANT_MAX_US + 1 };
    fx_is(fx_put_rc(&f, &r), PAWL_BADARG, &f);
    r = (struct pawl_request){ .task = "mail", .run_at_us = 1800000000 };
    fx_is(fx_put_rc(&f, &r), PAWL_BADARG, &f);
    ck_assert_ptr_nonnull(strstr(f.e.msg, "looks like seconds"));
    r = (struct pawl_request){ .task = "mail", .expires_at_us = 1800000000000 };
    fx_is(fx_put_rc(&f, &r), PAWL_BADARG, &f);
    r = (struct pawl_request){ .task = "mail", .has_max_retries = true, .max_retries = 1001 };
    fx_is(fx_put_rc(&f, &r), PAWL_BADARG, &f);
    r = (struct pawl_request){ .task = "mail", .entity = "e" };
    fx_is(fx_put_rc(&f, &r), PAWL_BADARG, &f);
    r = (struct pawl_request){ .task = "mail", .headers = "{\"a\":1}" };
    fx_is(fx_put_rc(&f, &r), PAWL_BADDATA, &f);
    r = (struct pawl_request){ .task = "Mail" };
    fx_is(fx_put_rc(&f, &r), PAWL_BADDATA, &f);
    r = (struct pawl_request){ .task = "mail", .key = "" };
    fx_is(fx_put_rc(&f, &r), PAWL_BADDATA, &f);
    ck_assert_int_eq(fx_stat(&f, "accepted"), 1);
    ck_assert_int_eq(fx_num(&f, "SELECT count(*) FROM pawl_x_task"), 1);
    fx_end(&f);
    free(max);
    free(over);
}
END_TEST

START_TEST(each_store_args_are_kept_byte_for_byte)
{
    static const char *const all[] = { "{ \"b\" :1,\n\"a\":\t2 }",
        "[1e400, -0, 18446744073709551616]",
        "\"\\u0000 \\ud83d\\ude00 \xf0\x9f\x98\x80\"", "{\"a\":1,\"a\":2}", "null", "0.10" };
    struct fx f;

    fx_begin(&f, _i);
    fx_task(&f, "mail");
    fx_join(&f);
    for (size_t i = 0; i < UT_N(all); i++) {
        const int64_t id = fx_put(&f, "mail", all[i]);
        ck_assert_str_eq(fx_job(&f, id).args, all[i]);
        const struct job job = fx_claim_one(&f);
        ck_assert_int_eq(job.id, id);
        ck_assert_mem_eq(job.args, all[i], strlen(all[i]) + 1);
        ck_assert_uint_eq(job.args_bytes, strlen(all[i]));
        fx_settle(&f, &job, OUT_DONE);
    }
    fx_end(&f);
}
END_TEST

START_TEST(each_store_an_unknown_task_is_accepted_and_the_nearest_is_named)
{
    const struct pawl_request r = fx_req("resize_imgae", NULL, "{}");
    struct pawl_enqueued out = {0};
    struct fx f;

    fx_begin(&f, _i);
    fx_task(&f, "resize_image");
    fx_ok(store_enqueue(f.st, &r, 1, &out, NULL, &f.e), &f);
    ck_assert(out.created && !out.task_known);
    ck_assert_str_eq(out.near, "resize_image");
    fx_end(&f);
}
END_TEST

START_TEST(each_store_defaults_come_from_the_tasks_policy)
{
    struct policy p = fx_policy();
    struct pawl_request r = fx_req("mail", NULL, "{}");
    struct fx f;

    fx_begin(&f, _i);
    p.priority = 7;
    snprintf(p.queue, sizeof p.queue, "post");
    fx_task_as(&f, "mail", &p);
    const int64_t a = fx_put_req(&f, &r);
    ck_assert_str_eq(fx_job(&f, a).queue, "post");
    ck_assert_int_eq(fx_job(&f, a).j.priority, 7);
    r.queue = "fast";
    r.has_priority = true;
    r.priority = -3;
    const int64_t b = fx_put_req(&f, &r);
    ck_assert_str_eq(fx_job(&f, b).queue, "fast");
    ck_assert_int_eq(fx_job(&f, b).j.priority, -3);
    fx_end(&f);
}
END_TEST

/* Two doors, one ledger: whatever came first, the other door finds it (I30). */
START_TEST(each_store_c_and_sql_doors_share_the_ledger)
{
    const struct pawl_request r = fx_req("mail", "k", "{\"a\":1}");
    struct fx f;

    fx_begin(&f, _i);
    fx_sql(&f, "INSERT INTO pawl_enqueue (task, args, key) VALUES ('mail', '{\"a\":1}', 'k')");
    const int64_t id = fx_num(&f, "SELECT id FROM pawl_jobs");
    ck_assert_int_eq(fx_dup(&f, &r).id, id);
    fx_sql(&f, "INSERT INTO pawl_enqueue (task, args, key) VALUES ('mail', '{\"a\":1}', 'k')");
    ck_assert_int_eq(fx_num(&f, "SELECT created FROM pawl_last"), 0);
    ck_assert_int_eq(fx_num(&f, "SELECT id FROM pawl_last"), id);
    ck_assert(fx_sql_fails(&f, "INSERT INTO pawl_enqueue (task, args, key)"
                               " VALUES ('mail', '{\"a\":2}', 'k')", "other args"));
    if (f.kind == &fx_sqlite) { /* PostgreSQL's INSERT has no OR */
        ck_assert(fx_sql_fails(&f, "INSERT OR REPLACE INTO pawl_enqueue (task, args, key)"
                                   " VALUES ('mail', '{\"a\":2}', 'k')", "other args"));
        ck_assert(fx_sql_fails(&f, "INSERT OR IGNORE INTO pawl_enqueue (task, args, key)"
                                   " VALUES ('mail', '{\"a\":2}', 'k')", "other args"));
    }
    ck_assert_int_eq(fx_stat(&f, "accepted"), 1);
    ck_assert_str_eq(fx_job(&f, id).args, "{\"a\":1}");
    fx_end(&f);
}
END_TEST

/* The rows that two doors make of one request differ in id and time only. */
START_TEST(each_store_c_and_sql_doors_make_the_same_rows)
{
    static const char *const same =
        "SELECT count(*) FROM (SELECT task_id, queue_id, source, args, headers, trace, entity,"
        " version, serial, priority, max_retries, run_at_us, expires_at_us, gen, root_id,"
        " replay_of, length(key)"
        " FROM pawl_x_job GROUP BY 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15,"
        " 16, 17) x";
    struct pawl_request r = { .task = "mail", .args = "{\"a\":1}", .key = "k1", .source = "s",
        .queue = "q", .entity = "e", .headers = "{\"h\":\"v\"}", .trace = "t", .version = -5,
        .run_at_us = 4000000000000000, .expires_at_us = 5000000000000000, .priority = 3,
        .max_retries = 0, .has_version = true, .has_priority = true, .has_max_retries = true };
    struct fx f;

    fx_begin(&f, _i);
    fx_put_req(&f, &r);
    fx_sql(&f, "INSERT INTO pawl_enqueue (task, args, key, source, queue, entity, headers, trace,"
               " version, run_at, expires_at, priority, max_retries) VALUES ('mail', '{\"a\":1}',"
               " 'k2', 's', 'q', 'e', '{\"h\":\"v\"}', 't', -5, 4000000000000000,"
               " 5000000000000000, 3, 0)");
    ck_assert_int_eq(fx_num(&f, "SELECT count(*) FROM pawl_x_job"), 2);
    ck_assert_int_eq(fx_num(&f, same), 1);
    ck_assert_int_eq(fx_num(&f, "SELECT count(DISTINCT rank || ',' || run_at_us || ',' || moved"
                                " || ',' || runs) FROM pawl_x_ready"), 1);
    fx_end(&f);
}
END_TEST

START_TEST(each_store_job_in_the_callers_transaction_shares_its_fate)
{
    struct fx f;

    fx_begin(&f, _i);
    fx_sql(&f, "BEGIN");
    fx_sql(&f, "INSERT INTO fx VALUES (1, 1)");
    fx_sql(&f, "INSERT INTO pawl_enqueue (task, args, key) VALUES ('mail', '{}', 'k')");
    fx_sql(&f, "ROLLBACK");
    ck_assert_int_eq(fx_stat(&f, "accepted"), 0);
    ck_assert_int_eq(fx_stat(&f, "keys"), 0);
    fx_sql(&f, "BEGIN");
    fx_sql(&f, "INSERT INTO fx VALUES (1, 1)");
    fx_sql(&f, "INSERT INTO pawl_enqueue (task, args, key) VALUES ('mail', '{}', 'k')");
    fx_sql(&f, "COMMIT");
    ck_assert_int_eq(fx_stat(&f, "accepted"), 1);
    ck_assert_int_eq(fx_num(&f, "SELECT count(*) FROM fx"), 1);
    fx_end(&f);
}
END_TEST

static void race(struct fx *f, void *ctx)
{
    const struct pawl_request r = fx_req("mail", "same", "{\"a\":1}");
    struct pawl_enqueued out = {0};
    int64_t *answer = ctx;

    fx_ok(store_enqueue(f->st, &r, 1, &out, NULL, &f->e), f);
    *answer = out.created ? -out.id : out.id;
}

START_TEST(each_store_concurrent_duplicates_make_one_job)
{
    enum { N = 24 };
    int64_t *answers = fx_shared(N * sizeof *answers);
    pid_t pids[N];
    int created = 0;
    struct fx f;

    fx_begin(&f, _i);
    fx_shut(&f);
    for (size_t i = 0; i < N; i++)
        pids[i] = fx_child(&f, race, &answers[i]);
    for (size_t i = 0; i < N; i++)
        fx_wait_ok(pids[i]);
    fx_open(&f);
    const int64_t id = fx_num(&f, "SELECT id FROM pawl_jobs");
    for (size_t i = 0; i < N; i++) {
        created += answers[i] < 0;
        ck_assert_int_eq(answers[i] < 0 ? -answers[i] : answers[i], id);
    }
    ck_assert_int_eq(created, 1);
    ck_assert_int_eq(fx_stat(&f, "duplicates"), N - 1);
    fx_end(&f);
}
END_TEST

static void add(TCase *tc)
{
    FX_ADD(tc, each_store_keyless_requests_are_never_merged);
    FX_ADD(tc, each_store_duplicate_is_absorbed_while_ready_and_running);
    FX_ADD(tc, each_store_duplicate_of_a_done_job_gets_its_result);
    FX_ADD(tc, each_store_duplicate_is_absorbed_when_dead_cancelled_and_dropped);
    FX_ADD(tc, each_store_duplicate_after_a_replay_names_the_newest_of_the_root);
    FX_ADD(tc, each_store_key_is_scoped_by_task_and_source);
    FX_ADD(tc, each_store_key_clash_changes_nothing);
    FX_ADD(tc, each_store_batch_is_stored_whole_or_not_at_all);
    FX_ADD(tc, each_store_failed_batch_is_told_and_leaves_nothing);
    FX_ADD(tc, each_store_limits_hold_at_the_door);
    FX_ADD(tc, each_store_args_are_kept_byte_for_byte);
    FX_ADD(tc, each_store_an_unknown_task_is_accepted_and_the_nearest_is_named);
    FX_ADD(tc, each_store_defaults_come_from_the_tasks_policy);
    FX_ADD(tc, each_store_c_and_sql_doors_share_the_ledger);
    FX_ADD(tc, each_store_c_and_sql_doors_make_the_same_rows);
    FX_ADD(tc, each_store_job_in_the_callers_transaction_shares_its_fate);
    FX_ADD(tc, each_store_concurrent_duplicates_make_one_job);
}

int main(void)
{
    return ut_main("enqueue", add, 30);
}
