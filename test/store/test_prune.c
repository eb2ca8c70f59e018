// SPDX-License-Identifier: Apache-2.0
/* test_prune.c - retention: what ended goes in batches, what is needed stays, keys outlive jobs. */
#include <inttypes.h>
#include <string.h>
#include "core/rules.h"
#include "lib/fx.h"

static void begin(struct fx *f, int kind)
{
    fx_begin(f, kind);
    fx_task(f, "mail");
    fx_join(f);
}

static int64_t put_key(struct fx *f, const char *key)
{
    const struct pawl_request r = fx_req("mail", key, "{\"a\":1}");

    return fx_put_req(f, &r);
}

/* Prune all that ended up to now; keys by their window (keys 0) or at once (1). */
static struct pawl_pruned prune(struct fx *f, int64_t keys, int64_t batch)
{
    const struct pawl_prune_opts how = { .done_older_us = 1, .keys_older_us = keys,
                                         .batch = batch };
    struct pawl_pruned out;

    fx_ok(store_prune(f->st, &how, &out, &f->e), f);
    return out;
}

static bool exists(struct fx *f, int64_t id) { return fx_state(f, id) != PAWL_STATE_N; }

START_TEST(each_store_prune_takes_what_ended_and_nothing_else)
{
    struct pawl_request late = fx_req("mail", "later", "{}");
    enum pawl_state s;
    struct fx f;

    begin(&f, _i);
    const int64_t done = put_key(&f, "done");
    struct job job = fx_claim_one(&f);
    fx_settle(&f, &job, OUT_DONE);
    const int64_t dropped = put_key(&f, "dropped");
    job = fx_claim_one(&f);
    fx_settle(&f, &job, OUT_DISCARD);
    const int64_t dead = put_key(&f, "dead");
    job = fx_claim_one(&f);
    fx_settle(&f, &job, OUT_PERMANENT);
    const int64_t cancelled = put_key(&f, "cancelled");
    fx_ok(store_cancel(f.st, cancelled, &s, &f.e), &f);
    const int64_t running = put_key(&f, "running");
    job = fx_claim_one(&f);
    late.run_at_us = f.clock.wall_us + 90 * DAY;
    const int64_t ready = fx_put_req(&f, &late);
    fx_add(&f, 60 * DAY);
    const struct pawl_pruned p = prune(&f, 1, 0);
    ck_assert_int_eq(p.jobs, 3);
    ck_assert_int_eq(p.keys, 3);
    ck_assert(!exists(&f, done) && !exists(&f, dropped) && !exists(&f, cancelled));
    ck_assert(exists(&f, dead) && exists(&f, running) && exists(&f, ready));
    ck_assert_int_eq(fx_stat(&f, "keys"), 3); /* never a live or a dead one */
    const struct pawl_request again = fx_req("mail", "dead", "{\"a\":1}");
    ck_assert_int_eq(fx_dup(&f, &again).id, dead);
    ck_assert_int_eq(fx_settle(&f, &job, OUT_DONE), SETTLE_OK);
    fx_end(&f);
}
END_TEST

START_TEST(each_store_retention_is_the_tasks_own)
{
    const struct pawl_prune_opts own = {0};
    struct policy p = fx_policy();
    struct pawl_pruned out;
    struct fx f;

    begin(&f, _i);
    p.retention_us = 3600 * SEC;
    fx_task_as(&f, "short", &p);
    const int64_t a = fx_put(&f, "mail", "{}"), b = fx_put(&f, "short", "{}");
    fx_drain(&f);
    fx_add(&f, 3600 * SEC - 1);
    fx_ok(store_prune(f.st, &own, &out, &f.e), &f);
    ck_assert_int_eq(out.jobs, 0);
    fx_add(&f, 1);
    fx_ok(store_prune(f.st, &own, &out, &f.e), &f);
    ck_assert(exists(&f, a) && !exists(&f, b));
    fx_add(&f, 7 * DAY);
    fx_ok(store_prune(f.st, &own, &out, &f.e), &f);
    ck_assert(!exists(&f, a));
    fx_end(&f);
}
END_TEST

START_TEST(each_store_prune_works_in_bounded_batches)
{
    struct pawl_pruned p;
    struct fx f;

    begin(&f, _i);
    for (int i = 0; i < 95; i++)
        fx_put(&f, "mail", "{}");
    fx_drain(&f);
    fx_add(&f, DAY);
    fx_arm("prune.batch", "error:3:1"); /* the fourth batch fails: the first three stay done */
    const struct pawl_prune_opts how = { .done_older_us = 1, .batch = 10 };
    fx_is(store_prune(f.st, &how, &p, &f.e), PAWL_IO, &f);
    fx_disarm();
    ck_assert_int_eq(fx_stat(&f, "pruned"), 30);
    fx_check(&f);
    p = prune(&f, 0, 10);
    ck_assert_int_eq(p.jobs, 65);
    ck_assert_int_ge(p.batches, 7);
    ck_assert_int_eq(fx_stat(&f, "pruned"), 95);
    fx_end(&f);
}
END_TEST

/* What waits costs a prune nothing, however much it is: no batch looks at it. */
START_TEST(each_store_prune_does_not_look_at_what_waits)
{
    const struct pawl_prune_opts how = { .done_older_us = 1, .batch = 5 };
    struct pawl_pruned out;
    struct fx f;

    begin(&f, _i);
    for (int i = 0; i < 8; i++)
        fx_put(&f, "mail", "{}");
    fx_drain(&f);
    for (int i = 0; i < 100; i++)
        fx_put(&f, "elsewhere", "{}");
    fx_add(&f, DAY);
    fx_ok(store_prune(f.st, &how, &out, &f.e), &f);
    ck_assert_int_eq(out.jobs, 8);
    ck_assert_int_eq(out.batches, 2);
    fx_ok(store_prune(f.st, &how, &out, &f.e), &f);
    ck_assert_int_eq(out.batches, 0);
    fx_end(&f);
}
END_TEST

/* While another program sits on the write lock: to learn that nothing is old enough, or to count,
 * needs none; to take something does. */
START_TEST(each_store_prune_asks_for_no_lock_when_nothing_goes)
{
    const struct pawl_prune_opts own = {0};
    const struct pawl_prune_opts dry = { .done_older_us = 1, .keys_older_us = 1, .dry_run = true };
    const struct pawl_prune_opts all = { .done_older_us = 1, .keys_older_us = 1 };
    struct pawl_pruned out;
    struct fx f;

    begin(&f, _i);
    put_key(&f, "k");
    for (int i = 0; i < 5; i++)
        fx_put(&f, "mail", "{}");
    fx_drain(&f);
    fx_add(&f, 3600 * SEC);
    store_patience(f.st, 50000);
    fx_sql(&f, "BEGIN IMMEDIATE");
    fx_ok(store_prune(f.st, &own, &out, &f.e), &f);
    ck_assert_int_eq(out.jobs + out.keys, 0);
    ck_assert_int_eq(out.batches, 1);
    fx_ok(store_prune(f.st, &dry, &out, &f.e), &f);
    ck_assert_int_eq(out.jobs, 6);
    fx_is(store_prune(f.st, &all, &out, &f.e), PAWL_BUSY, &f);
    fx_sql(&f, "ROLLBACK");
    ck_assert_int_eq(fx_stat(&f, "done"), 6);
    fx_ok(store_prune(f.st, &all, &out, &f.e), &f);
    ck_assert_int_eq(out.jobs, 6);
    ck_assert_int_eq(out.keys, 1);
    fx_sql(&f, "BEGIN IMMEDIATE");
    fx_ok(store_prune(f.st, &all, &out, &f.e), &f);
    fx_sql(&f, "ROLLBACK");
    fx_end(&f);
}
END_TEST

START_TEST(each_store_dry_prune_counts_and_takes_nothing)
{
    const struct pawl_prune_opts dry = { .done_older_us = 1, .keys_older_us = 1, .dry_run = true };
    struct pawl_pruned out;
    struct fx f;

    begin(&f, _i);
    for (int i = 0; i < 5; i++)
        fx_put(&f, "mail", "{}");
    fx_drain(&f);
    fx_add(&f, DAY);
    fx_ok(store_prune(f.st, &dry, &out, &f.e), &f);
    ck_assert_int_eq(out.jobs, 5);
    ck_assert_int_eq(fx_stat(&f, "done"), 5);
    ck_assert_int_eq(fx_stat(&f, "pruned"), 0);
    fx_end(&f);
}
END_TEST

/* More of each than one batch holds; a key that an earlier prune left behind counts once. */
START_TEST(each_store_dry_prune_counts_what_the_real_one_takes)
{
    struct pawl_prune_opts how = { .done_older_us = 1, .batch = 2 };
    struct pawl_pruned dry, real;
    char key[16];
    struct fx f;

    begin(&f, _i);
    put_key(&f, "early");
    fx_drain(&f);
    fx_add(&f, DAY);
    fx_ok(store_prune(f.st, &how, &real, &f.e), &f);
    ck_assert_int_eq(real.jobs, 1);
    ck_assert_int_eq(real.keys, 0);
    for (int i = 0; i < 5; i++) {
        snprintf(key, sizeof key, "k%d", i);
        put_key(&f, key);
    }
    fx_put(&f, "mail", "{}");
    struct job job = fx_claim_one(&f);
    fx_settle(&f, &job, OUT_TRANSIENT);
    fx_add(&f, DAY);
    fx_drain(&f);
    put_key(&f, "waits");
    fx_add(&f, 60 * DAY);
    for (int keys = 0; keys < 2; keys++) {
        how.keys_older_us = keys == 0 ? 90 * DAY : 1;
        how.dry_run = true;
        fx_ok(store_prune(f.st, &how, &dry, &f.e), &f);
        ck_assert_int_eq(fx_stat(&f, "done"), 6);
        ck_assert_int_eq(dry.jobs, 6);
        ck_assert_int_eq(dry.keys, keys == 0 ? 1 : 6);
        ck_assert_int_eq(dry.attempts, 1);
    }
    how.dry_run = false;
    fx_ok(store_prune(f.st, &how, &real, &f.e), &f);
    ck_assert_int_eq(real.jobs, dry.jobs);
    ck_assert_int_eq(real.keys, dry.keys);
    ck_assert_int_eq(real.attempts, dry.attempts);
    fx_end(&f);
}
END_TEST

/* Zero is the default: each task's retention, each task's key_window. Below it is a mistake. */
START_TEST(each_store_prune_of_zeros_keeps_what_the_policy_keeps)
{
    const struct pawl_prune_opts bad[] = { { .done_older_us = -1 }, { .keys_older_us = -1 } };
    const struct pawl_prune_opts zero = {0};
    const struct pawl_prune_opts far = { .done_older_us = 1, .keys_older_us = INT64_MAX };
    struct pawl_pruned out;
    struct fx f;

    begin(&f, _i);
    put_key(&f, "k");
    fx_drain(&f);
    fx_add(&f, DAY);
    fx_ok(store_prune(f.st, &zero, &out, &f.e), &f);
    ck_assert_int_eq(out.jobs + out.keys, 0);
    for (size_t i = 0; i < UT_N(bad); i++)
        fx_is(store_prune(f.st, &bad[i], &out, &f.e), PAWL_BADARG, &f);
    fx_ok(store_prune(f.st, &far, &out, &f.e), &f);
    ck_assert_int_eq(out.jobs, 1);
    fx_add(&f, 3650 * DAY);
    fx_ok(store_prune(f.st, &zero, &out, &f.e), &f);
    ck_assert_int_eq(out.keys, 0);
    fx_end(&f);
}
END_TEST

START_TEST(each_store_attempts_go_with_their_job)
{
    struct fx f;

    begin(&f, _i);
    fx_put(&f, "mail", "{}");
    struct job job = fx_claim_one(&f);
    fx_settle(&f, &job, OUT_TRANSIENT);
    fx_drain(&f);
    ck_assert_int_eq(fx_num(&f, "SELECT count(*) FROM pawl_x_attempt"), 1);
    fx_add(&f, DAY);
    ck_assert_int_eq(prune(&f, 0, 0).attempts, 1);
    ck_assert_int_eq(fx_num(&f, "SELECT count(*) FROM pawl_x_attempt"), 0);
    fx_end(&f);
}
END_TEST

/* --- keys --- */

START_TEST(each_store_duplicate_after_a_prune_is_absorbed_at_every_door)
{
    static const char *const args[] = { "{\"a\":1}", "{\"\xc3\xa4\":\"\\u0000\"}", "[]", "0" };
    struct finding found = fx_found(OUT_DONE, NULL);
    struct fx f;

    begin(&f, _i);
    for (size_t i = 0; i < UT_N(args); i++) {
        char key[16];
        snprintf(key, sizeof key, "k%zu", i);
        const struct pawl_request r = fx_req("mail", key, args[i]);
        const int64_t id = fx_put_req(&f, &r);
        const struct job job = fx_claim_one(&f);
        found.result = "{\"r\":1}";
        found.result_bytes = 7;
        struct settle s = fx_decided(&f, &job, &found);
        fx_ok(fx_turn(&f, &s, 1), &f);
        fx_add(&f, DAY);
        ck_assert_int_eq(prune(&f, 0, 0).jobs, 1);
        ck_assert(!exists(&f, id));
        struct pawl_enqueued d = fx_dup(&f, &r);
        ck_assert_int_eq(d.id, id);
        ck_assert_int_eq(d.state, PAWL_STATE_DONE);
        ck_assert_str_eq(d.result, "{\"r\":1}");
        free(d.result);
        fx_sqlf(&f, "INSERT INTO pawl_enqueue (task, args, key) VALUES ('mail', '%s', '%s')",
                args[i], key);
        ck_assert_int_eq(fx_num(&f, "SELECT created FROM pawl_last"), 0);
        ck_assert_int_eq(fx_num(&f, "SELECT id FROM pawl_last"), id);
        /* other bytes are a clash at both doors, of the same length too */
        const struct pawl_request other = fx_req("mail", key, i == 3 ? "1" : "{\"a\":2}");
        fx_is(fx_put_rc(&f, &other), PAWL_KEYCLASH, &f);
        char sql[200];
        snprintf(sql, sizeof sql, "INSERT INTO pawl_enqueue (task, args, key) VALUES ('mail',"
                 " '%s', '%s')", other.args, key);
        ck_assert(fx_sql_fails(&f, sql, "other args"));
    }
    ck_assert_int_eq(fx_stat(&f, "ready"), 0);
    fx_end(&f);
}
END_TEST

START_TEST(each_store_key_expires_after_its_window_counted_from_the_end)
{
    const struct pawl_request r = fx_req("mail", "k", "{\"a\":1}");
    struct fx f;

    begin(&f, _i);
    const int64_t id = put_key(&f, "k");
    fx_add(&f, 20 * DAY); /* it waited long: that is not part of the window */
    fx_drain(&f);
    fx_add(&f, 30 * DAY - 1);
    ck_assert_int_eq(prune(&f, 0, 0).keys, 0);
    ck_assert_int_eq(fx_dup(&f, &r).id, id);
    fx_add(&f, 1);
    ck_assert_int_eq(prune(&f, 0, 0).keys, 1);
    ck_assert_int_ne(fx_put_req(&f, &r), id); /* a new operation, and ids are never used again */
    fx_end(&f);
}
END_TEST

START_TEST(each_store_ids_are_never_used_again)
{
    struct fx f;

    begin(&f, _i);
    const int64_t a = fx_put(&f, "mail", "{}");
    fx_drain(&f);
    fx_add(&f, DAY);
    ck_assert_int_eq(prune(&f, 1, 0).jobs, 1);
    ck_assert_int_eq(fx_num(&f, "SELECT count(*) FROM pawl_x_job"), 0);
    const int64_t b = fx_put(&f, "mail", "{}");
    ck_assert_int_gt(b, a);
    fx_sql(&f, "INSERT INTO pawl_enqueue (task, args) VALUES ('mail', '{}')");
    ck_assert_int_gt(fx_num(&f, "SELECT id FROM pawl_last"), b);
    fx_end(&f);
}
END_TEST

/* --- chains of replays --- */

static int64_t die(struct fx *f)
{
    const struct job job = fx_claim_one(f);

    fx_settle(f, &job, OUT_PERMANENT);
    return job.id;
}

START_TEST(each_store_chain_goes_whole_when_all_of_it_has_ended)
{
    const struct pawl_request r = fx_req("mail", "k", "{\"a\":1}");
    const struct pawl_replay plain = {0};
    int64_t second = 0;
    struct fx f;

    begin(&f, _i);
    const int64_t first = put_key(&f, "k");
    die(&f);
    fx_ok(store_replay(f.st, first, &plain, &second, &f.e), &f);
    fx_drain(&f);
    fx_add(&f, DAY);
    ck_assert_int_eq(prune(&f, 0, 0).jobs, 0); /* a dead one is kept until a person lets it go */
    fx_ok(store_discard(f.st, first, "done again", &f.e), &f);
    fx_add(&f, DAY);
    ck_assert_int_eq(prune(&f, 0, 0).jobs, 2);
    const struct pawl_enqueued d = fx_dup(&f, &r);
    ck_assert_int_eq(d.state, PAWL_STATE_DONE); /* what the newest came to */
    fx_end(&f);
}
END_TEST

/* Replayed twice: the older replay still waits while the newer has ended. Nothing may go. */
START_TEST(each_store_chain_with_a_living_member_stays)
{
    const struct pawl_replay plain = {0}, again = { .again_reason = "in a hurry" };
    enum pawl_state s;
    int64_t second = 0, third = 0;
    struct fx f;

    begin(&f, _i);
    const int64_t first = put_key(&f, "k");
    die(&f);
    fx_ok(store_replay(f.st, first, &plain, &second, &f.e), &f);
    const struct job living = fx_claim_one(&f);
    ck_assert_int_eq(living.id, second);
    fx_ok(store_replay(f.st, first, &again, &third, &f.e), &f);
    fx_ok(store_cancel(f.st, third, &s, &f.e), &f);
    fx_ok(store_discard(f.st, first, "enough", &f.e), &f);
    fx_add(&f, 60 * DAY);
    const struct pawl_pruned p = prune(&f, 1, 0);
    ck_assert_int_eq(p.jobs, 0);
    ck_assert_int_eq(p.keys, 0);
    fx_check(&f);
    ck_assert_int_eq(fx_settle(&f, &living, OUT_DONE), SETTLE_OK);
    fx_add(&f, 60 * DAY);
    ck_assert_int_eq(prune(&f, 1, 0).jobs, 3);
    fx_end(&f);
}
END_TEST

/* --- the hash that doors share --- */

/* The very words of the trigger, asked for any bytes: NEW.args becomes the hex literal. */
static void hash_question(struct fx *f, const char *hex, struct buf *out)
{
    static const char *const args = "coalesce(NEW.args, '{}')", *const last = "FROM t WHERE i = n";
    char sql[32768], *at, *end;

    if (f->kind == &fx_postgres) { /* a function of its own */
        buf_clear(out);
        buf_printf(out, "SELECT pawl.x_args_hash(convert_from('\\x%.*s', 'UTF8'))",
                   (int)strlen(hex) - 3, hex + 2);
        return;
    }
    f->kind->made_by(f, "pawl_enqueue_insert", sql, sizeof sql);
    ck_assert_ptr_nonnull(at = strstr(sql, "WITH RECURSIVE h(i, n, h1, h2, w, ch)"));
    ck_assert_ptr_nonnull(end = strstr(at, last));
    end[strlen(last)] = '\0';
    buf_clear(out);
    for (char *p; (p = strstr(at, args)) != NULL; at = p + strlen(args)) {
        buf_put(out, at, (size_t)(p - at));
        buf_puts(out, hex);
    }
    buf_puts(out, at);
}

START_TEST(each_store_sql_hash_is_the_c_hash_for_any_bytes)
{
    const uint64_t seed = ut_seed(3);
    char hex[2 * 1100 + 8];
    struct buf sql = {0};
    struct env_fake rnd;
    struct fx f;

    env_fake_init(&rnd, seed, 0);
    begin(&f, _i);
    for (int i = 0; i < 300; i++) {
        uint8_t bytes[1100];
        /* 0 to 20, then around the chunks of the question, then any */
        const size_t n = i < 21 ? (size_t)i : i < 41 ? (size_t)(i - 31 + 512)
            : i < 61 ? (size_t)(i - 51 + 1024) : env_below(&rnd.env, sizeof bytes + 1);
        const bool extreme = i % 7 == 0;
        char *p = hex + snprintf(hex, sizeof hex, "x'");

        env_bytes(&rnd.env, bytes, n);
        if (extreme) memset(bytes, i % 2 == 0 ? 0xff : 0, n);
        for (size_t k = 0; k < n && f.kind == &fx_postgres; k++) /* its texts hold no others */
            bytes[k] = (uint8_t)((bytes[k] & 0x7f) | (bytes[k] % 128 == 0));
        for (size_t k = 0; k < n; k++)
            p += snprintf(p, 3, "%02x", bytes[k]);
        snprintf(p, 2, "'");
        hash_question(&f, hex, &sql);
        ck_assert_int_eq(fx_num(&f, buf_str(&sql)), args_hash((const char *)bytes, n));
    }
    buf_free(&sql);
    fx_end(&f);
}
END_TEST

static void add(TCase *tc)
{
    FX_ADD(tc, each_store_prune_takes_what_ended_and_nothing_else);
    FX_ADD(tc, each_store_retention_is_the_tasks_own);
    FX_ADD(tc, each_store_prune_works_in_bounded_batches);
    FX_ADD(tc, each_store_prune_does_not_look_at_what_waits);
    FX_ADD(tc, each_store_prune_asks_for_no_lock_when_nothing_goes);
    FX_ADD(tc, each_store_dry_prune_counts_and_takes_nothing);
    FX_ADD(tc, each_store_dry_prune_counts_what_the_real_one_takes);
    FX_ADD(tc, each_store_prune_of_zeros_keeps_what_the_policy_keeps);
    FX_ADD(tc, each_store_attempts_go_with_their_job);
    FX_ADD(tc, each_store_duplicate_after_a_prune_is_absorbed_at_every_door);
    FX_ADD(tc, each_store_key_expires_after_its_window_counted_from_the_end);
    FX_ADD(tc, each_store_ids_are_never_used_again);
    FX_ADD(tc, each_store_chain_goes_whole_when_all_of_it_has_ended);
    FX_ADD(tc, each_store_chain_with_a_living_member_stays);
    FX_ADD(tc, each_store_sql_hash_is_the_c_hash_for_any_bytes);
}

int main(void)
{
    return ut_main("prune", add, 30);
}
