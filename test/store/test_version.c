// SPDX-License-Identifier: Apache-2.0
/* test_version.c - the version guard: per task and entity only newer versions take effect, and only
 * a committed effect moves the guard. */
#include <inttypes.h>
#include <string.h>
#include "lib/fx.h"

#define V_MAX INT64_MAX
#define V_MIN INT64_MIN

static void begin(struct fx *f, int kind)
{
    fx_begin(f, kind);
    fx_task(f, "apply");
    fx_task(f, "other");
    fx_join(f);
}

static int64_t put_v(struct fx *f, const char *task, const char *entity, int64_t version,
                     const char *args)
{
    struct pawl_request r = fx_req(task, NULL, args);

    r.entity = entity;
    r.version = version;
    r.has_version = true;
    return fx_put_req(f, &r);
}

static int64_t applied(struct fx *f, const char *entity)
{
    return fx_numf(f, "SELECT version FROM pawl_x_version WHERE entity = '%s'", entity);
}

static void outcome_is(struct fx *f, int64_t id, const char *outcome, int64_t effects)
{
    const struct fx_job x = fx_job(f, id);

    ck_assert_int_eq(x.j.state, PAWL_STATE_DONE);
    ck_assert_str_eq(x.outcome, outcome);
    ck_assert_int_eq(fx_effects(f, id), effects);
}

START_TEST(each_store_older_version_is_stale_and_never_reaches_the_handler)
{
    struct fx f;

    begin(&f, _i);
    const int64_t a = put_v(&f, "apply", "e", 5, "[5]");
    fx_drain(&f);
    const int64_t b = put_v(&f, "apply", "e", 4, "[4]"), c = put_v(&f, "apply", "e", V_MIN, "[]");
    const int64_t runs = f.runs;
    fx_drain(&f);
    ck_assert_int_eq(f.runs, runs);
    outcome_is(&f, a, "done", 1);
    outcome_is(&f, b, "stale", 0);
    outcome_is(&f, c, "stale", 0);
    ck_assert_int_eq(applied(&f, "e"), 5);
    ck_assert_int_eq(fx_stat(&f, "stale"), 2);
    fx_end(&f);
}
END_TEST

START_TEST(each_store_equal_version_is_stale_or_a_conflict_never_applied)
{
    struct fx f;

    begin(&f, _i);
    put_v(&f, "apply", "e", 5, "{\"p\":1}");
    fx_drain(&f);
    const int64_t same = put_v(&f, "apply", "e", 5, "{\"p\":1}");
    const int64_t other = put_v(&f, "apply", "e", 5, "{\"p\": 1}");
    const int64_t runs = f.runs;
    fx_drain(&f);
    ck_assert_int_eq(f.runs, runs);
    outcome_is(&f, same, "stale", 0);
    ck_assert_str_eq(fx_job(&f, other).dead_class, "conflict");
    ck_assert_ptr_nonnull(strstr(fx_job(&f, other).error, "version 5"));
    fx_end(&f);
}
END_TEST

/* Whatever the order, within a batch or across, the newest version rules at the end. */
START_TEST(each_store_shuffled_versions_end_with_the_newest)
{
    enum { N = 40 };
    const uint64_t seed = ut_seed(7);
    struct env_fake rnd;
    int64_t order[N], max_seen = 0;
    struct fx f;

    env_fake_init(&rnd, seed, 0);
    begin(&f, _i);
    for (int64_t i = 0; i < N; i++)
        order[i] = i + 1;
    for (size_t i = N - 1; i > 0; i--) {
        const size_t k = env_below(&rnd.env, i + 1);
        const int64_t t = order[i];
        order[i] = order[k];
        order[k] = t;
    }
    for (size_t i = 0; i < N; i++)
        put_v(&f, "apply", "e", order[i], "[]");
    fx_drain(&f);
    ck_assert_int_eq(applied(&f, "e"), N);
    for (size_t i = 0; i < N; i++) { /* exactly the running maxima took effect */
        outcome_is(&f, (int64_t)i + 1, order[i] > max_seen ? "done" : "stale",
                   order[i] > max_seen);
        if (order[i] > max_seen) max_seen = order[i];
    }
    fx_end(&f);
}
END_TEST

START_TEST(each_store_versions_are_64_bit_and_scoped_by_task_and_entity)
{
    struct fx f;

    begin(&f, _i);
    const int64_t a = put_v(&f, "apply", "e", V_MIN, "[1]"), b = put_v(&f, "apply", "e", -1, "[2]");
    const int64_t c = put_v(&f, "apply", "e", V_MAX - 1, "[3]");
    const int64_t d = put_v(&f, "apply", "e", V_MAX, "[4]");
    const int64_t e2 = put_v(&f, "apply", "e2", 1, "[]"), o = put_v(&f, "other", "e", 1, "[]");
    fx_drain(&f);
    outcome_is(&f, a, "done", 1);
    outcome_is(&f, b, "done", 1);
    outcome_is(&f, c, "done", 1);
    outcome_is(&f, d, "done", 1);
    outcome_is(&f, e2, "done", 1);
    outcome_is(&f, o, "done", 1);
    fx_end(&f);
}
END_TEST

static void fail_until_third(struct fx *f, struct store *st, const struct job *job,
                             struct finding *found, bool *pinned)
{
    (void)f;
    (void)st;
    (void)pinned;
    if (job->n.failures < 2) *found = fx_found(OUT_TRANSIENT, "not yet");
}

/* A failed attempt must not count as applied: version 5 fails twice, and is not stale then. */
START_TEST(each_store_failed_attempts_do_not_move_the_guard)
{
    struct fx f;

    begin(&f, _i);
    f.on_run = fail_until_third;
    const int64_t a = put_v(&f, "apply", "e", 5, "[5]");
    fx_ok(fx_batch(&f, NULL), &f);
    ck_assert_int_eq(applied(&f, "e"), INT64_MIN);
    fx_drain(&f);
    outcome_is(&f, a, "done", 1);
    fx_counters(&f, a, 2, 2, 0, 0, 0);
    ck_assert_int_eq(applied(&f, "e"), 5);
    fx_end(&f);
}
END_TEST

/* While version 5 waits for its retry, 6 is applied: 5 is stale when its turn comes. */
START_TEST(each_store_retry_overtaken_by_a_newer_version_is_stale)
{
    struct fx f;

    begin(&f, _i);
    f.on_run = fail_until_third;
    const int64_t a = put_v(&f, "apply", "e", 5, "[5]");
    fx_ok(fx_batch(&f, NULL), &f);
    f.on_run = NULL;
    const int64_t b = put_v(&f, "apply", "e", 6, "[6]");
    fx_drain(&f);
    outcome_is(&f, b, "done", 1);
    outcome_is(&f, a, "stale", 0);
    fx_end(&f);
}
END_TEST

/* Leased mode checks before the start and once more inside the settle: what was overtaken while it
 * ran is settled as stale, and its result is not kept. */
START_TEST(each_store_leased_settle_overtaken_meanwhile_is_stale)
{
    struct finding found = fx_found(OUT_DONE, NULL);
    enum guard g;
    struct fx f;

    begin(&f, _i);
    put_v(&f, "apply", "e", 5, "[5]");
    const struct job five = fx_claim_one(&f);
    put_v(&f, "apply", "e", 6, "[6]");
    const struct job six = fx_claim_one(&f);
    fx_ok(store_guard(f.st, &f.tasks[0], &five, &g, &f.e), &f);
    ck_assert_int_eq(g, GUARD_FRESH);
    ck_assert_int_eq(fx_settle(&f, &six, OUT_DONE), SETTLE_OK);
    fx_ok(store_guard(f.st, &f.tasks[0], &five, &g, &f.e), &f);
    ck_assert_int_eq(g, GUARD_OLDER);
    found.result = "5";
    found.result_bytes = 1;
    struct settle s = fx_decided(&f, &five, &found);
    fx_ok(fx_turn(&f, &s, 1), &f);
    ck_assert_int_eq(s.result, SETTLE_STALE);
    ck_assert_str_eq(fx_job(&f, five.id).outcome, "stale");
    ck_assert(!fx_job(&f, five.id).has_result);
    ck_assert_int_eq(applied(&f, "e"), 6);
    fx_end(&f);
}
END_TEST

/* Two runs of one version with other args at the same time: one takes effect, the other is told. */
START_TEST(each_store_leased_settle_of_the_same_version_with_other_args_is_a_conflict)
{
    struct leased *l;
    struct slot *slots;
    size_t n = 0;
    struct fx f;

    begin(&f, _i);
    const int64_t a = put_v(&f, "apply", "e", 5, "[5]"), b = put_v(&f, "apply", "e", 5, "[55]");
    l = leased_new(&f.lane, 2, &f.clock.env);
    slots = leased_slots(l, &n);
    fx_ok(leased_turn(l, f.st, true, &f.info, &f.e), &f);
    for (size_t i = 0; i < n; i++) {
        ck_assert_int_eq(slots[i].phase, SLOT_HELD);
        slots[i].found = fx_found(OUT_DONE, NULL);
        slots[i].phase = SLOT_ENDED;
    }
    for (int i = 0; i < 3; i++)
        fx_ok(leased_turn(l, f.st, false, &f.info, &f.e), &f);
    ck_assert_uint_eq(leased_busy(l), 0);
    ck_assert_int_eq(fx_state(&f, a), PAWL_STATE_DONE);
    ck_assert_str_eq(fx_job(&f, b).dead_class, "conflict");
    ck_assert_int_eq(applied(&f, "e"), 5);
    leased_free(&l);
    fx_end(&f);
}
END_TEST

START_TEST(each_store_fenced_settle_does_not_move_the_guard)
{
    enum pawl_state state;
    struct fx f;

    begin(&f, _i);
    put_v(&f, "apply", "e", 5, "[5]");
    const struct job five = fx_claim_one(&f);
    fx_ok(store_cancel(f.st, five.id, &state, &f.e), &f);
    ck_assert_int_eq(fx_settle(&f, &five, OUT_DONE), SETTLE_FENCED);
    ck_assert_int_eq(applied(&f, "e"), INT64_MIN);
    fx_end(&f);
}
END_TEST

START_TEST(each_store_entity_and_version_come_from_the_args_when_the_policy_says)
{
    struct policy p = fx_policy();
    struct fx f;

    fx_begin(&f, _i);
    snprintf(p.entity, sizeof p.entity, ":sku");
    snprintf(p.version, sizeof p.version, ":v");
    fx_task_as(&f, "apply", &p);
    fx_join(&f);
    const int64_t a = fx_put(&f, "apply", "{\"sku\":\"x\",\"v\":2}");
    const int64_t b = fx_put(&f, "apply", "{\"sku\":\"x\",\"v\":1}");
    const int64_t c = fx_put(&f, "apply", "{\"sku\":\"y\",\"v\":1}");
    const int64_t d = fx_put(&f, "apply", "{\"v\":1}"), e = fx_put(&f, "apply", "{\"sku\":\"y\"}");
    fx_drain(&f);
    outcome_is(&f, a, "done", 1);
    outcome_is(&f, b, "stale", 0);
    outcome_is(&f, c, "done", 1);
    ck_assert_str_eq(fx_job(&f, d).dead_class, "permanent");
    ck_assert_ptr_nonnull(strstr(fx_job(&f, d).error, "sku"));
    ck_assert_str_eq(fx_job(&f, e).dead_class, "permanent");
    fx_end(&f);
}
END_TEST

static void fail_always(struct fx *f, struct store *st, const struct job *job,
                        struct finding *found, bool *pinned)
{
    (void)f;
    (void)st;
    (void)job;
    (void)pinned;
    *found = fx_found(OUT_PERMANENT, "never");
}

START_TEST(each_store_replay_says_beforehand_when_it_will_be_stale)
{
    const struct pawl_replay plain = {0};
    int64_t again = 0;
    bool stale = true;
    struct fx f;

    begin(&f, _i);
    f.on_run = fail_always;
    const int64_t five = put_v(&f, "apply", "e", 5, "[5]");
    fx_drain(&f);
    fx_ok(store_is_stale(f.st, five, &stale, &f.e), &f);
    ck_assert(!stale);
    f.on_run = NULL;
    put_v(&f, "apply", "e", 6, "[6]");
    fx_drain(&f);
    fx_ok(store_is_stale(f.st, five, &stale, &f.e), &f);
    ck_assert(stale);
    fx_ok(store_replay(f.st, five, &plain, &again, &f.e), &f);
    fx_drain(&f);
    outcome_is(&f, again, "stale", 0); /* entity and version were kept */
    fx_end(&f);
}
END_TEST

/* The guard outlives the job that moved it: after a prune, equal versions compare by hash. */
START_TEST(each_store_guard_survives_prune)
{
    const struct pawl_prune_opts all = { .done_older_us = 1, .keys_older_us = 1 };
    struct pawl_pruned out;
    struct fx f;

    begin(&f, _i);
    put_v(&f, "apply", "e", 5, "[5]");
    fx_drain(&f);
    fx_add(&f, DAY);
    fx_ok(store_prune(f.st, &all, &out, &f.e), &f);
    ck_assert_int_eq(out.jobs, 1);
    const int64_t old = put_v(&f, "apply", "e", 4, "[4]"), same = put_v(&f, "apply", "e", 5, "[5]");
    const int64_t other = put_v(&f, "apply", "e", 5, "[6]");
    fx_drain(&f);
    outcome_is(&f, old, "stale", 0);
    outcome_is(&f, same, "stale", 0);
    ck_assert_str_eq(fx_job(&f, other).dead_class, "conflict");
    fx_end(&f);
}
END_TEST

static void add(TCase *tc)
{
    FX_ADD(tc, each_store_older_version_is_stale_and_never_reaches_the_handler);
    FX_ADD(tc, each_store_equal_version_is_stale_or_a_conflict_never_applied);
    FX_ADD(tc, each_store_shuffled_versions_end_with_the_newest);
    FX_ADD(tc, each_store_versions_are_64_bit_and_scoped_by_task_and_entity);
    FX_ADD(tc, each_store_failed_attempts_do_not_move_the_guard);
    FX_ADD(tc, each_store_retry_overtaken_by_a_newer_version_is_stale);
    FX_ADD(tc, each_store_leased_settle_overtaken_meanwhile_is_stale);
    FX_ADD(tc, each_store_leased_settle_of_the_same_version_with_other_args_is_a_conflict);
    FX_ADD(tc, each_store_fenced_settle_does_not_move_the_guard);
    FX_ADD(tc, each_store_entity_and_version_come_from_the_args_when_the_policy_says);
    FX_ADD(tc, each_store_replay_says_beforehand_when_it_will_be_stale);
    FX_ADD(tc, each_store_guard_survives_prune);
}

int main(void)
{
    return ut_main("version", add, 30);
}
