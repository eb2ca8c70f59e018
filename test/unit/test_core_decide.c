// SPDX-License-Identifier: Apache-2.0
/* test_core_decide.c - every bound is reached exactly and never passed, whatever happens. */
#include "core/rules.h"

#include <string.h>
#include "base/json.h"
#include "core/lifecycle.h"
#include "lib/ut.h"

#define SEC INT64_C(1000000)
#define NOW (INT64_C(1800000000) * SEC)

struct fx {
    struct env_fake env;
    struct policy p;
    struct job job;
    struct finding f;
};

static void setup(struct fx *x, uint64_t seed)
{
    *x = (struct fx){ .job = { .id = 7, .max_retries = -1, .run_at_us = NOW - 5 * SEC },
                      .f = { .exit_code = -1, .signal = -1 } };
    env_fake_init(&x->env, seed, NOW);
    policy_defaults(&x->p);
}

static struct decision end_run(struct fx *x, enum outcome o)
{
    struct decision d;

    x->f.outcome = o;
    d = decide(&x->job, &x->p, &x->f, x->env.now_us, &x->env.env);
    ck_assert_int_eq(d.outcome, o);
    return d;
}

/* Put a decision back into the job, as a store does. */
static void apply(struct fx *x, const struct decision *d)
{
    x->job.n = d->n;
    x->job.suspect = d->suspect;
    x->job.run_at_us = d->run_at_us;
}

/* End runs with `o` until the job is not ready any more. returns how many runs that took. */
static int64_t run_out(struct fx *x, enum outcome o, struct decision *d)
{
    int64_t runs = 0;

    do {
        *d = end_run(x, o);
        apply(x, d);
        ck_assert_int_le(++runs, 5000);
    } while (d->to == PAWL_STATE_READY);
    return runs;
}

static void expect_reason(const struct decision *d, const char *part)
{
    ck_assert_msg(strstr(d->reason, part) != NULL, "%s", d->reason);
}

START_TEST(test_decide_success_changes_no_counter)
{
    struct fx x;
    struct decision d;

    setup(&x, 1);
    x.job.n = (struct counters){ 4, 2, 1, 1, 0 };
    x.job.suspect = true;
    d = end_run(&x, OUT_DONE);
    ck_assert_int_eq(d.to, PAWL_STATE_DONE);
    ck_assert_int_eq(memcmp(&d.n, &x.job.n, sizeof d.n), 0);
    ck_assert(!d.suspect);
    ck_assert_str_eq(d.reason, "");
    ck_assert_int_eq(end_run(&x, OUT_STALE).to, PAWL_STATE_DONE);
}
END_TEST

START_TEST(test_decide_retries_are_counted_and_end_exhausted)
{
    struct fx x;
    struct decision d;

    setup(&x, 2);
    x.f.error = "timeout after 2s\nsecond line";
    x.f.error_bytes = strlen(x.f.error);
    d = end_run(&x, OUT_TRANSIENT);
    ck_assert_int_eq(d.to, PAWL_STATE_READY);
    ck_assert(d.run_at_us >= NOW + SEC && d.run_at_us <= NOW + 2 * SEC);
    ck_assert_int_eq(d.delay_us, d.run_at_us - NOW);
    ck_assert(!d.keep_place);
    expect_reason(&d, "retry 1 of 5 in 1.");
    ck_assert_int_eq(run_out(&x, OUT_TRANSIENT, &d), 6); /* retries + 1 */
    ck_assert_int_eq(d.to, PAWL_STATE_DEAD);
    ck_assert_int_eq(d.dead, DEAD_EXHAUSTED);
    ck_assert_int_eq(d.n.failures, 6);
    ck_assert_int_eq(d.n.runs, 6);
    ck_assert_str_eq(d.reason, "5 retries used up; last: timeout after 2s");
}
END_TEST

START_TEST(test_decide_max_retries_of_the_job_overrides_the_policy)
{
    static const int max[] = { 0, 1, 2, 100, 1000 };
    struct fx x;
    struct decision d;

    for (size_t i = 0; i < UT_N(max); i++) {
        setup(&x, 3);
        x.job.max_retries = max[i];
        ck_assert_int_eq(run_out(&x, OUT_TIMEOUT, &d), max[i] + 1);
        ck_assert_int_eq(d.dead, DEAD_EXHAUSTED);
        setup(&x, 3);
        x.p.max_retries = max[i];
        ck_assert_int_eq(run_out(&x, OUT_TRANSIENT, &d), max[i] + 1);
    }
    setup(&x, 3);
    x.job.max_retries = 0;
    x.f.error = "boom";
    x.f.error_bytes = 4;
    d = end_run(&x, OUT_TRANSIENT);
    ck_assert_str_eq(d.reason, "no retries are allowed: boom");
}
END_TEST

START_TEST(test_decide_lost_counts_to_its_cap_and_keeps_the_place)
{
    struct fx x;
    struct decision d;

    setup(&x, 4);
    d = end_run(&x, OUT_LOST);
    ck_assert_int_eq(d.to, PAWL_STATE_READY);
    ck_assert(d.keep_place);
    ck_assert_int_eq(d.run_at_us, x.job.run_at_us);
    ck_assert_int_eq(d.delay_us, 0);
    ck_assert(!d.suspect);
    ck_assert_int_eq(run_out(&x, OUT_LOST, &d), 3);
    ck_assert_int_eq(d.dead, DEAD_POISON);
    ck_assert_int_eq(d.n.lost, 3);
    ck_assert_int_eq(d.n.failures, 0);
    setup(&x, 4);
    x.p.lost_cap = 1;
    ck_assert_int_eq(run_out(&x, OUT_LOST, &d), 1);
}
END_TEST

START_TEST(test_decide_suspicion_lasts_until_a_run_comes_to_an_end)
{
    struct fx x;
    struct decision d;

    setup(&x, 5);
    d = end_run(&x, OUT_SUSPECT);
    ck_assert_int_eq(d.to, PAWL_STATE_READY);
    ck_assert(d.suspect && d.keep_place);
    ck_assert_int_eq(d.n.runs, 1);
    ck_assert_int_eq(d.n.lost + d.n.failures + d.n.releases + d.n.snoozes, 0);
    apply(&x, &d);
    ck_assert(end_run(&x, OUT_LOST).suspect);
    ck_assert(end_run(&x, OUT_RELEASED).suspect);
    ck_assert(!end_run(&x, OUT_TRANSIENT).suspect);
    ck_assert(!end_run(&x, OUT_SNOOZE).suspect);
    ck_assert(!end_run(&x, OUT_DONE).suspect);
    ck_assert_int_eq(run_out(&x, OUT_LOST, &d), 3); /* a suspect that dies alone is counted */
    ck_assert_int_eq(d.dead, DEAD_POISON);
}
END_TEST

START_TEST(test_decide_says_taken_over_when_no_worker_stops)
{
    struct fx x;
    struct decision d;

    setup(&x, 6);
    x.f.error = "worker w1 is frozen (no beat within its lease)";
    x.f.error_bytes = strlen(x.f.error);
    d = end_run(&x, OUT_RELEASED);
    expect_reason(&d, "handed back by a stopping worker: worker w1 is frozen");
    x.f.taken_over = true;
    d = end_run(&x, OUT_RELEASED);
    expect_reason(&d, "taken over: worker w1 is frozen (no beat within its lease)");
    x.p.ack = ACK_EARLY;
    d = end_run(&x, OUT_RELEASED);
    expect_reason(&d, "taken over from its worker, and ack = early never runs a job twice");
}
END_TEST

START_TEST(test_decide_releases_and_snoozes_have_their_own_bounds)
{
    struct fx x;
    struct decision d;

    setup(&x, 6);
    d = end_run(&x, OUT_RELEASED);
    ck_assert(d.to == PAWL_STATE_READY && d.keep_place);
    ck_assert_int_eq(run_out(&x, OUT_RELEASED, &d), 100);
    ck_assert_int_eq(d.dead, DEAD_EXHAUSTED);
    ck_assert_int_eq(d.n.releases, 100);
    ck_assert_int_eq(d.n.failures + d.n.lost, 0);
    expect_reason(&d, "handed back or taken over 100 times");
    setup(&x, 6);
    x.f.retry_after_us = 60 * SEC;
    d = end_run(&x, OUT_SNOOZE);
    ck_assert(d.delay_us >= 60 * SEC && d.delay_us <= 66 * SEC && !d.keep_place);
    ck_assert_int_eq(run_out(&x, OUT_SNOOZE, &d), 1000);
    ck_assert_int_eq(d.dead, DEAD_EXHAUSTED);
    ck_assert_int_eq(d.n.snoozes, 1000);
    ck_assert_int_eq(d.n.failures, 0);
    expect_reason(&d, "asked to be run later 1000 times");
}
END_TEST

START_TEST(test_decide_buries_at_once_what_cannot_succeed)
{
    static const struct { enum outcome o; enum dead_class c; int failures; } c[] = {
        { OUT_PERMANENT, DEAD_PERMANENT, 1 }, { OUT_EXPIRED, DEAD_EXPIRED, 0 },
        { OUT_UNDECODABLE, DEAD_UNDECODABLE, 0 }, { OUT_CONFLICT, DEAD_CONFLICT, 0 },
        { OUT_MISUSE, DEAD_MISUSE, 1 },
    };

    for (size_t i = 0; i < UT_N(c); i++) {
        struct fx x;
        setup(&x, 7);
        struct decision d = end_run(&x, c[i].o);
        ck_assert(d.to == PAWL_STATE_DEAD && d.dead == c[i].c);
        ck_assert_int_eq(d.n.runs, 1);
        ck_assert_int_eq(d.n.failures, c[i].failures);
        ck_assert_uint_gt(strlen(d.reason), 5);
    }
}
END_TEST

START_TEST(test_decide_discard_and_cancel)
{
    struct fx x;

    setup(&x, 8);
    struct decision d = end_run(&x, OUT_DISCARD);
    ck_assert_int_eq(d.to, PAWL_STATE_DROPPED);
    ck_assert_str_eq(d.drop, "failed");
    x.f.exit_code = 3;
    d = end_run(&x, OUT_DISCARD);
    expect_reason(&d, "ended in a way that the task's policy discards");
    x.f.exit_code = -1;
    d = end_run(&x, OUT_DISCARD);
    expect_reason(&d, "its handler discarded it");
    ck_assert_int_eq(end_run(&x, OUT_CANCELLED).to, PAWL_STATE_CANCELLED);
}
END_TEST

START_TEST(test_decide_never_plans_a_run_after_expires_at)
{
    static const enum outcome again[] = { OUT_TRANSIENT, OUT_TIMEOUT, OUT_LOST, OUT_SUSPECT,
                                          OUT_RELEASED, OUT_SNOOZE };
    struct fx x;
    struct decision d;

    for (size_t i = 0; i < UT_N(again); i++) {
        setup(&x, 9);
        x.job.expires_at_us = NOW - 1;
        d = end_run(&x, again[i]);
        ck_assert_int_eq(d.to, PAWL_STATE_DEAD);
        ck_assert_int_eq(d.dead, DEAD_EXPIRED);
        ck_assert(!d.suspect);
        expect_reason(&d, "after expires_at 2027-01-15T07:59:59.999999Z");
        x.job.expires_at_us = NOW + 3600 * SEC;
        ck_assert_int_eq(end_run(&x, again[i]).to, PAWL_STATE_READY);
    }
    x.job.expires_at_us = NOW; /* this very moment is still allowed */
    ck_assert_int_eq(end_run(&x, OUT_LOST).to, PAWL_STATE_READY);
    ck_assert_int_eq(end_run(&x, OUT_TRANSIENT).dead, DEAD_EXPIRED); /* the delay leads beyond */
    x.job.run_at_us = NOW + 1; /* the old place lies beyond */
    ck_assert_int_eq(end_run(&x, OUT_LOST).dead, DEAD_EXPIRED);
    x.job.max_retries = 0;     /* a bound that is reached goes first */
    ck_assert_int_eq(end_run(&x, OUT_TRANSIENT).dead, DEAD_EXHAUSTED);
}
END_TEST

START_TEST(test_decide_early_ack_never_runs_again)
{
    for (int o = 0; o < OUT_N; o++) {
        struct fx x;
        setup(&x, 10);
        x.p.ack = ACK_EARLY;
        struct decision d = end_run(&x, (enum outcome)o);
        bool lost = o == OUT_LOST || o == OUT_SUSPECT || o == OUT_RELEASED;
        ck_assert_int_ne(d.to, PAWL_STATE_READY);
        if (d.to == PAWL_STATE_DROPPED) ck_assert_str_eq(d.drop, lost ? "lost" : "failed");
        else ck_assert_ptr_null(d.drop);
        switch (o) {
        case OUT_DONE: case OUT_STALE: ck_assert_int_eq(d.to, PAWL_STATE_DONE); break;
        case OUT_CANCELLED: ck_assert_int_eq(d.to, PAWL_STATE_CANCELLED); break;
        case OUT_EXPIRED: case OUT_UNDECODABLE: case OUT_CONFLICT: /* seen before the start */
            ck_assert_int_eq(d.to, PAWL_STATE_DEAD);
            break;
        default: ck_assert_int_eq(d.to, PAWL_STATE_DROPPED);
        }
    }
}
END_TEST

START_TEST(test_decide_reason_is_one_short_printable_line)
{
    struct fx x;
    char error[4000];

    setup(&x, 11);
    for (size_t i = 0; i + 1 < sizeof error; i += 2) memcpy(error + i, "\xc3\xa9", 2);
    x.f.error = error;
    x.f.error_bytes = sizeof error; /* not terminated */
    struct decision d = end_run(&x, OUT_PERMANENT);
    ck_assert(utf8_ok(d.reason, strlen(d.reason)));
    ck_assert_uint_ge(strlen(d.reason), sizeof d.reason - 3);
    x.f.error = "\n\x1b[2Jx\nevent=forged";
    x.f.error_bytes = strlen(x.f.error);
    d = end_run(&x, OUT_PERMANENT);
    ck_assert_str_eq(d.reason, "cannot succeed as it is: \\x1b[2Jx");
}
END_TEST

START_TEST(test_decide_is_total_over_outcomes_and_extreme_counters)
{
    static const int64_t big[] = { 0, 1, 99, 100, 999, 1000, INT64_MAX / 2 };
    static const int64_t when[] = { 0, 1, NOW, LIMIT_INSTANT_MAX_US };

    for (int o = 0; o < OUT_N; o++)
        for (size_t b = 0; b < UT_N(big); b++)
            for (size_t w = 0; w < UT_N(when) * UT_N(when); w++) {
                struct fx x;
                setup(&x, b);
                x.job.n = (struct counters){ big[b], big[b], big[b], big[b], big[b] };
                x.job.expires_at_us = when[w % UT_N(when)];
                x.job.run_at_us = when[w / UT_N(when)];
                x.env.now_us = when[(b + w) % UT_N(when)];
                x.f.retry_after_us = INT64_MAX;
                struct decision d = end_run(&x, (enum outcome)o);
                ck_assert_int_ne(d.to, PAWL_STATE_N);
                ck_assert(d.to != PAWL_STATE_RUNNING && d.to != PAWL_STATE_PRUNED);
                ck_assert_int_le(d.run_at_us, LIMIT_INSTANT_MAX_US);
                ck_assert_int_ge(d.delay_us, 0);
            }
}
END_TEST

/* What must hold of every job that waits, however it got there. */
static void check_ready(const struct fx *x, const struct decision *d)
{
    int64_t max = x->job.max_retries >= 0 ? x->job.max_retries : x->p.max_retries;
    int64_t start = d->run_at_us > x->env.now_us ? d->run_at_us : x->env.now_us;

    ck_assert_int_le(d->n.failures, max);
    ck_assert_int_lt(d->n.lost, x->p.lost_cap);
    ck_assert_int_lt(d->n.releases, 100);
    ck_assert_int_lt(d->n.snoozes, 1000);
    ck_assert(x->job.expires_at_us == 0 || start <= x->job.expires_at_us);
    ck_assert_int_ne(x->p.ack, ACK_EARLY);
    ck_assert(!d->keep_place || d->run_at_us == x->job.run_at_us);
    ck_assert_int_eq(d->delay_us, start - x->env.now_us);
}

START_TEST(test_decide_random_walks_never_pass_a_bound)
{
    struct env_fake dice;
    int ends[PAWL_STATE_N] = { 0 }, classes[DEAD_CLASS_N] = { 0 };

    env_fake_init(&dice, ut_seed(30), 0);
    for (int walk = 0; walk < 3000; walk++) {
        static const enum outcome mix[] = { OUT_TRANSIENT, OUT_TIMEOUT, OUT_SNOOZE, OUT_LOST,
            OUT_SUSPECT, OUT_RELEASED, OUT_RELEASED, OUT_SNOOZE, OUT_SNOOZE };
        struct fx x;
        struct decision d;
        uint64_t favourite = env_below(&dice.env, UT_N(mix));
        setup(&x, env_below(&dice.env, UINT64_MAX));
        x.p.max_retries = (int)env_below(&dice.env, 20);
        x.p.lost_cap = 1 + (int)env_below(&dice.env, 5);
        x.p.ack = env_below(&dice.env, 20) == 0 ? ACK_EARLY : ACK_LATE;
        if (env_below(&dice.env, 2) == 0) x.job.max_retries = (int)env_below(&dice.env, 30);
        if (env_below(&dice.env, 3) == 0)
            x.job.expires_at_us = NOW + (int64_t)env_below(&dice.env, 100000) * SEC;
        for (int64_t runs = 1;; runs++) {
            enum outcome o = env_below(&dice.env, 300) == 0
                ? (enum outcome)env_below(&dice.env, OUT_N)
                : mix[env_below(&dice.env, 8) > 0 ? favourite : env_below(&dice.env, UT_N(mix))];
            x.f.retry_after_us = env_below(&dice.env, 4) == 0
                ? (int64_t)env_below(&dice.env, 7200 * SEC) : 0;
            d = end_run(&x, o);
            ck_assert_int_eq(d.n.runs, x.job.n.runs + (o != OUT_DONE && o != OUT_STALE));
            if (d.to != PAWL_STATE_READY || runs > 20000) break;
            check_ready(&x, &d);
            apply(&x, &d);
            x.env.now_us += (int64_t)env_below(&dice.env, 20 * SEC);
        }
        ends[d.to]++;
        if (d.to == PAWL_STATE_DEAD) classes[d.dead]++;
    }
    ck_assert_int_gt(ends[PAWL_STATE_DEAD], 100); /* the walks went where they should */
    ck_assert_int_gt(ends[PAWL_STATE_DROPPED], 20);
    ck_assert_int_gt(classes[DEAD_EXHAUSTED], 50);
    ck_assert_int_gt(classes[DEAD_POISON], 50);
    ck_assert_int_gt(classes[DEAD_EXPIRED], 50);
}
END_TEST

static void add(TCase *tc)
{
    tcase_add_test(tc, test_decide_success_changes_no_counter);
    tcase_add_test(tc, test_decide_retries_are_counted_and_end_exhausted);
    tcase_add_test(tc, test_decide_max_retries_of_the_job_overrides_the_policy);
    tcase_add_test(tc, test_decide_lost_counts_to_its_cap_and_keeps_the_place);
    tcase_add_test(tc, test_decide_suspicion_lasts_until_a_run_comes_to_an_end);
    tcase_add_test(tc, test_decide_says_taken_over_when_no_worker_stops);
    tcase_add_test(tc, test_decide_releases_and_snoozes_have_their_own_bounds);
    tcase_add_test(tc, test_decide_buries_at_once_what_cannot_succeed);
    tcase_add_test(tc, test_decide_discard_and_cancel);
    tcase_add_test(tc, test_decide_never_plans_a_run_after_expires_at);
    tcase_add_test(tc, test_decide_early_ack_never_runs_again);
    tcase_add_test(tc, test_decide_reason_is_one_short_printable_line);
    tcase_add_test(tc, test_decide_is_total_over_outcomes_and_extreme_counters);
    tcase_add_test(tc, test_decide_random_walks_never_pass_a_bound);
}

int main(void) { return ut_main("decide", add, 30); }
