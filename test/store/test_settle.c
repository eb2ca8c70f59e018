// SPDX-License-Identifier: Apache-2.0
/* test_settle.c - leased mode: what ended is settled once, under the fence, and put where the rules
 * said, with its counters and its attempt. */
#include <inttypes.h>
#include <string.h>
#include "core/lifecycle.h"
#include "lib/fx.h"

static void begin(struct fx *f, int kind, const struct policy *p)
{
    const struct policy plain = fx_policy();

    fx_begin(f, kind);
    fx_task_as(f, "mail", p != NULL ? p : &plain);
    fx_join(f);
}

/* All tables of the store as one number: equal before and after = nothing was written. */
static int64_t print(struct fx *f)
{
    static const char *const tables[] = { "job", "key", "ready", "running", "done", "dead",
        "dropped", "cancelled", "attempt", "version" };
    int64_t sum = 0;

    for (size_t i = 0; i < UT_N(tables); i++)
        sum = sum * 31 + fx_numf(f, "SELECT count(*) FROM pawl_x_%s", tables[i]);
    return sum * 31 + fx_num(f, "SELECT coalesce(sum(token), 0) FROM pawl_x_running");
}

START_TEST(each_store_settle_and_claim_share_one_commit)
{
    struct job first[5], next[5];
    struct settle s[5];
    struct finding found = fx_found(OUT_DONE, NULL);
    size_t n = 0;
    struct fx f;

    begin(&f, _i, NULL);
    for (int i = 0; i < 10; i++)
        fx_put(&f, "mail", "{}");
    ck_assert_uint_eq(fx_claim(&f, first, 5, true), 5);
    for (size_t i = 0; i < 5; i++)
        s[i] = fx_decided(&f, &first[i], &found);
    const int64_t before = f.kind->flushes();
    fx_ok(store_turn(f.st, s, 5, &f.lane, 5, false, &f.arena, next, &n, &f.info, &f.e), &f);
    ck_assert_int_eq(f.kind->flushes() - before, 1);
    ck_assert_uint_eq(n, 5);
    for (size_t i = 0; i < 5; i++) {
        ck_assert_int_eq(s[i].result, SETTLE_OK);
        ck_assert_int_eq(fx_state(&f, first[i].id), PAWL_STATE_DONE);
        ck_assert_int_eq(fx_state(&f, next[i].id), PAWL_STATE_RUNNING);
    }
    fx_end(&f);
}
END_TEST

/* --- the fence --- */

/* Another worker takes over what a frozen one held: returns the job under its new lease. */
static struct job take_over(struct fx *f, struct store *other)
{
    struct reap_report r;
    struct job job;
    size_t n = 0;

    f->clock.boot_add_us += 60 * SEC;
    store_worker_beat(other);
    r = fx_reap(f, other);
    ck_assert_uint_eq(r.workers, 1);
    fx_ok(store_turn(other, NULL, 0, &f->lane, 1, true, &f->arena, &job, &n, &f->info, &f->e), f);
    ck_assert_uint_eq(n, 1);
    return job;
}

START_TEST(each_store_stale_lease_changes_nothing)
{
    static const enum outcome ends[] = { OUT_DONE, OUT_STALE, OUT_TRANSIENT, OUT_PERMANENT,
        OUT_RELEASED, OUT_SNOOZE, OUT_DISCARD, OUT_TIMEOUT, OUT_LOST };
    char id[24];
    struct fx f;

    for (size_t i = 0; i < UT_N(ends); i++) {
        begin(&f, _i, NULL);
        struct store *other = fx_second(&f);
        fx_ok(store_worker_join(other, id, NULL, &f.e), &f);
        fx_put(&f, "mail", "{}");
        const struct job old = fx_claim_one(&f), now = take_over(&f, other);
        ck_assert_int_eq(now.id, old.id);
        ck_assert_int_eq(now.token, old.token + 1);
        const int64_t before = print(&f);
        ck_assert_int_eq(fx_settle(&f, &old, ends[i]), SETTLE_FENCED);
        ck_assert_int_eq(print(&f), before);
        ck_assert_int_eq(fx_state(&f, old.id), PAWL_STATE_RUNNING);
        ck_assert_int_eq(fx_stat(&f, "fenced"), 1);
        /* the owner of the day settles as if nothing had been */
        const struct finding found = fx_found(OUT_DONE, NULL);
        struct settle s = fx_decided(&f, &now, &found);
        fx_ok(fx_turn(&f, &s, 1), &f);
        ck_assert_int_eq(s.result, SETTLE_OK);
        ck_assert_int_eq(fx_settle(&f, &old, ends[i]), SETTLE_FENCED);
        ck_assert_int_eq(fx_state(&f, old.id), PAWL_STATE_DONE);
        store_close(&other);
        fx_end(&f);
    }
}
END_TEST

START_TEST(each_store_one_fenced_settle_does_not_hold_up_the_others)
{
    struct finding found = fx_found(OUT_DONE, NULL);
    struct job jobs[3];
    struct settle s[3];
    enum pawl_state state;
    struct fx f;

    begin(&f, _i, NULL);
    for (int i = 0; i < 3; i++)
        fx_put(&f, "mail", "{}");
    ck_assert_uint_eq(fx_claim(&f, jobs, 3, true), 3);
    fx_ok(store_cancel(f.st, jobs[1].id, &state, &f.e), &f);
    for (size_t i = 0; i < 3; i++)
        s[i] = fx_decided(&f, &jobs[i], &found);
    fx_ok(fx_turn(&f, s, 3), &f);
    ck_assert_int_eq(s[0].result, SETTLE_OK);
    ck_assert_int_eq(s[1].result, SETTLE_FENCED);
    ck_assert_int_eq(s[2].result, SETTLE_OK);
    ck_assert_int_eq(fx_state(&f, jobs[1].id), PAWL_STATE_CANCELLED);
    ck_assert_int_eq(fx_state(&f, jobs[2].id), PAWL_STATE_DONE);
    fx_end(&f);
}
END_TEST

/* A lease is compared as a whole and with its job: another job's lease, or one bit off, is none. */
START_TEST(each_store_foreign_lease_is_refused)
{
    struct fx f;

    begin(&f, _i, NULL);
    fx_put(&f, "mail", "{}");
    const struct job a = fx_claim_one(&f);
    fx_put(&f, "mail", "{}");
    const struct job b = fx_claim_one(&f);
    struct job forged = a;
    memcpy(forged.lease_id, b.lease_id, sizeof forged.lease_id);
    ck_assert_int_eq(fx_settle(&f, &forged, OUT_DONE), SETTLE_FENCED);
    for (int bit = 0; bit < 128; bit += 43) {
        forged = a;
        forged.lease_id[bit / 8] ^= (uint8_t)(1 << bit % 8);
        ck_assert_int_eq(fx_settle(&f, &forged, OUT_DONE), SETTLE_FENCED);
    }
    ck_assert_int_eq(fx_settle(&f, &a, OUT_DONE), SETTLE_OK);
    ck_assert_int_eq(fx_settle(&f, &b, OUT_DONE), SETTLE_OK);
    fx_end(&f);
}
END_TEST

START_TEST(each_store_cancel_and_settle_whoever_is_first_wins)
{
    enum pawl_state state = PAWL_STATE_N;
    struct fx f;

    begin(&f, _i, NULL);
    fx_put(&f, "mail", "{}");
    const struct job a = fx_claim_one(&f);
    fx_ok(store_cancel(f.st, a.id, &state, &f.e), &f);
    ck_assert_int_eq(state, PAWL_STATE_CANCELLED);
    ck_assert_int_eq(fx_settle(&f, &a, OUT_DONE), SETTLE_FENCED);
    ck_assert_int_eq(fx_state(&f, a.id), PAWL_STATE_CANCELLED);
    fx_put(&f, "mail", "{}");
    const struct job b = fx_claim_one(&f);
    ck_assert_int_eq(fx_settle(&f, &b, OUT_DONE), SETTLE_OK);
    fx_is(store_cancel(f.st, b.id, &state, &f.e), PAWL_TOOLATE, &f);
    ck_assert_int_eq(state, PAWL_STATE_DONE);
    ck_assert_int_eq(fx_state(&f, b.id), PAWL_STATE_DONE);
    fx_end(&f);
}
END_TEST

START_TEST(each_store_settle_before_the_reaper_leaves_it_nothing)
{
    struct reap_report r;
    struct fx f;

    begin(&f, _i, NULL);
    fx_put(&f, "mail", "{}");
    const struct job a = fx_claim_one(&f);
    struct store *other = fx_second(&f);
    ck_assert_int_eq(fx_settle(&f, &a, OUT_DONE), SETTLE_OK);
    f.clock.boot_add_us += 60 * SEC; /* the worker looks frozen, but it holds nothing */
    r = fx_reap(&f, other);
    ck_assert_uint_eq(r.charged + r.suspects + r.dead, 0);
    ck_assert_int_eq(fx_state(&f, a.id), PAWL_STATE_DONE);
    fx_counters(&f, a.id, 0, 0, 0, 0, 0);
    store_close(&other);
    fx_end(&f);
}
END_TEST

/* --- the commit in doubt --- */

START_TEST(each_store_settle_after_an_unsure_commit_is_idempotent)
{
    static const enum outcome ends[] = { OUT_DONE, OUT_TRANSIENT, OUT_PERMANENT, OUT_RELEASED };
    struct fx f;

    for (size_t i = 0; i < UT_N(ends); i++) {
        begin(&f, _i, NULL);
        fx_put(&f, "mail", "{}");
        const struct job job = fx_claim_one(&f);
        const struct finding found = fx_found(ends[i], "words");
        struct settle s = fx_decided(&f, &job, &found);
        fx_arm("turn.commit.after", "error:0:1");
        fx_is(fx_turn(&f, &s, 1), PAWL_UNSURE, &f);
        fx_disarm();
        ck_assert_int_eq(s.result, SETTLE_PENDING);
        const int64_t before = print(&f);
        fx_ok(fx_turn(&f, &s, 1), &f); /* sent again: it had been committed, once is enough */
        ck_assert_int_eq(s.result, SETTLE_OK);
        ck_assert_int_eq(print(&f), before);
        ck_assert_int_eq(fx_stat(&f, "fenced"), 0);
        fx_end(&f);
    }
}
END_TEST

START_TEST(each_store_resolve_tells_settled_from_pending_from_fenced)
{
    struct finding found = fx_found(OUT_DONE, NULL);
    enum pawl_state state;
    struct job jobs[3];
    struct settle s[3];
    struct fx f;

    begin(&f, _i, NULL);
    for (int i = 0; i < 3; i++)
        fx_put(&f, "mail", "{}");
    ck_assert_uint_eq(fx_claim(&f, jobs, 3, true), 3);
    for (size_t i = 0; i < 3; i++)
        s[i] = fx_decided(&f, &jobs[i], &found);
    fx_ok(fx_turn(&f, s, 1), &f);
    fx_ok(store_cancel(f.st, jobs[2].id, &state, &f.e), &f);
    const int64_t held[] = { jobs[0].id, jobs[1].id, jobs[2].id };
    for (size_t i = 0; i < 3; i++)
        s[i].result = SETTLE_PENDING;
    fx_ok(store_resolve(f.st, s, 3, held, 3, &f.e), &f);
    ck_assert_int_eq(s[0].result, SETTLE_OK);
    ck_assert_int_eq(s[1].result, SETTLE_PENDING);
    ck_assert_int_eq(s[2].result, SETTLE_FENCED);
    ck_assert_int_eq(fx_state(&f, jobs[1].id), PAWL_STATE_RUNNING);
    fx_end(&f);
}
END_TEST

START_TEST(each_store_claim_in_doubt_is_put_back_and_costs_nothing)
{
    struct job jobs[4], known;
    size_t n = 0;
    struct fx f;

    begin(&f, _i, NULL);
    fx_put(&f, "mail", "{}");
    known = fx_claim_one(&f);
    for (int i = 0; i < 4; i++)
        fx_put(&f, "mail", "{}");
    fx_arm("turn.commit.after", "error:0:1");
    fx_is(store_turn(f.st, NULL, 0, &f.lane, 4, false, &f.arena, jobs, &n, &f.info, &f.e),
          PAWL_UNSURE, &f);
    fx_disarm();
    ck_assert_uint_eq(n, 0); /* none may be started */
    ck_assert_int_eq(fx_stat(&f, "running"), 5);
    fx_ok(store_resolve(f.st, NULL, 0, &known.id, 1, &f.e), &f);
    ck_assert_int_eq(fx_stat(&f, "running"), 1);
    ck_assert_int_eq(fx_stat(&f, "ready"), 4);
    ck_assert_uint_eq(fx_claim(&f, jobs, 4, false), 4);
    for (size_t i = 0; i < 4; i++) {
        fx_counters(&f, jobs[i].id, 0, 0, 0, 0, 0);
        ck_assert_int_eq(jobs[i].token, 1);
    }
    ck_assert_int_eq(fx_settle(&f, &known, OUT_DONE), SETTLE_OK);
    fx_end(&f);
}
END_TEST

/* Handed back and claimed again by one and the same commit, whose answer was lost: the old lease is
 * settled, and the new one, which nobody knows of, must not stay. */
START_TEST(each_store_job_settled_and_reclaimed_in_doubt_is_put_back)
{
    static const enum outcome ends[] = { OUT_RELEASED, OUT_LOST, OUT_SUSPECT };
    struct job job, again;
    size_t n = 0;
    struct fx f;

    for (size_t i = 0; i < UT_N(ends); i++) {
        begin(&f, _i, NULL);
        const int64_t id = fx_put(&f, "mail", "{}");
        job = fx_claim_one(&f);
        const struct finding found = fx_found(ends[i], "words");
        struct settle s = fx_decided(&f, &job, &found);
        fx_arm("turn.commit.after", "error:0:1");
        fx_is(store_turn(f.st, &s, 1, &f.lane, 1, true, &f.arena, &again, &n, &f.info, &f.e),
              PAWL_UNSURE, &f);
        fx_disarm();
        ck_assert_int_eq(fx_state(&f, id), PAWL_STATE_RUNNING);
        fx_ok(store_resolve(f.st, &s, 1, &id, 1, &f.e), &f);
        ck_assert_int_eq(s.result, SETTLE_OK);
        ck_assert_int_eq(fx_state(&f, id), PAWL_STATE_READY);
        ck_assert_int_eq(fx_job(&f, id).j.runs, 1);
        ck_assert_int_eq(fx_claim_one(&f).token, 2);
        fx_end(&f);
    }
}
END_TEST

/* --- where a decision puts a job --- */

struct place {
    enum outcome end;
    enum pawl_state state;
    const char *word;            /* dead class, or outcome of done and dropped; NULL: none */
    struct counters n;
    bool attempt;
};
/* Each outcome of a first run under the default policy. */
static const struct place places[] = {
    { OUT_DONE,        PAWL_STATE_DONE,    "done",        { 0, 0, 0, 0, 0 }, false },
    { OUT_STALE,       PAWL_STATE_DONE,    "stale",       { 0, 0, 0, 0, 0 }, false },
    { OUT_TRANSIENT,   PAWL_STATE_READY,   NULL,          { 1, 1, 0, 0, 0 }, true },
    { OUT_TIMEOUT,     PAWL_STATE_READY,   NULL,          { 1, 1, 0, 0, 0 }, true },
    { OUT_PERMANENT,   PAWL_STATE_DEAD,    "permanent",   { 1, 1, 0, 0, 0 }, true },
    { OUT_SNOOZE,      PAWL_STATE_READY,   NULL,          { 1, 0, 0, 0, 1 }, true },
    { OUT_DISCARD,     PAWL_STATE_DROPPED, "failed",      { 1, 1, 0, 0, 0 }, true },
    { OUT_LOST,        PAWL_STATE_READY,   NULL,          { 1, 0, 1, 0, 0 }, true },
    { OUT_SUSPECT,     PAWL_STATE_READY,   NULL,          { 1, 0, 0, 0, 0 }, true },
    { OUT_RELEASED,    PAWL_STATE_READY,   NULL,          { 1, 0, 0, 1, 0 }, true },
    { OUT_EXPIRED,     PAWL_STATE_DEAD,    "expired",     { 1, 0, 0, 0, 0 }, true },
    { OUT_UNDECODABLE, PAWL_STATE_DEAD,    "undecodable", { 1, 0, 0, 0, 0 }, true },
    { OUT_CONFLICT,    PAWL_STATE_DEAD,    "conflict",    { 1, 0, 0, 0, 0 }, true },
    { OUT_MISUSE,      PAWL_STATE_DEAD,    "misuse",      { 1, 1, 0, 0, 0 }, true },
};

static void check_place(struct fx *f, const struct place *p, int64_t id, const struct decision *d)
{
    struct fx_try tries[2];
    const struct fx_job x = fx_job(f, id);

    ck_assert_int_eq(x.j.state, p->state);
    fx_counters(f, id, p->n.runs, p->n.failures, p->n.lost, p->n.releases, p->n.snoozes);
    if (p->state == PAWL_STATE_DEAD) ck_assert_str_eq(x.dead_class, p->word);
    if (p->state == PAWL_STATE_DONE || p->state == PAWL_STATE_DROPPED)
        ck_assert_str_eq(x.outcome, p->word);
    if (p->state == PAWL_STATE_READY) {
        ck_assert_int_eq(x.j.run_at_us, d->run_at_us);
        ck_assert_int_eq(x.j.suspect, p->end == OUT_SUSPECT);
    } else if (p->state != PAWL_STATE_DONE) {
        ck_assert_str_eq(x.reason, d->reason);
        ck_assert_str_eq(x.error, "first words\nmore");
    }
    ck_assert_uint_eq(fx_attempts(f, id, tries, 2), p->attempt ? 1 : 0);
    if (!p->attempt) return;
    ck_assert_int_eq(tries[0].n, 1);
    ck_assert_str_eq(tries[0].outcome, outcome_name(p->end));
    ck_assert_str_eq(tries[0].error, "first words\nmore");
    ck_assert_str_eq(tries[0].worker, f->worker);
    ck_assert_int_eq(tries[0].exit_code, 75);
    ck_assert_int_eq(tries[0].signal, -1);
}

START_TEST(each_store_every_decision_lands_where_it_says)
{
    struct fx f;

    begin(&f, _i, NULL);
    for (size_t i = 0; i < UT_N(places); i++) {
        const int64_t id = fx_put(&f, "mail", "{}");
        const struct job job = fx_claim_one(&f);
        struct finding found = fx_found(places[i].end, "first words\nmore");

        ck_assert_int_eq(job.id, id);
        found.exit_code = 75;
        struct settle s = fx_decided(&f, &job, &found);
        fx_ok(fx_turn(&f, &s, 1), &f);
        ck_assert_int_eq(s.result, SETTLE_OK);
        check_place(&f, &places[i], id, &s.d);
        if (places[i].state == PAWL_STATE_READY) { /* out of the next one's way */
            enum pawl_state gone;
            fx_ok(store_cancel(f.st, id, &gone, &f.e), &f);
        }
    }
    ck_assert_int_eq(fx_stat(&f, "running"), 0);
    fx_end(&f);
}
END_TEST

START_TEST(each_store_result_of_a_success_is_kept_whole)
{
    struct finding found = fx_found(OUT_DONE, NULL);
    struct fx f;

    begin(&f, _i, NULL);
    char *big = malloc(LIMIT_RESULT_BYTES);
    memset(big, 'x', LIMIT_RESULT_BYTES);
    big[0] = big[LIMIT_RESULT_BYTES - 1] = '"';
    fx_put(&f, "mail", "{}");
    const struct job job = fx_claim_one(&f);
    found.result = big;
    found.result_bytes = LIMIT_RESULT_BYTES;
    struct settle s = fx_decided(&f, &job, &found);
    fx_ok(fx_turn(&f, &s, 1), &f);
    ck_assert_uint_eq(fx_job(&f, job.id).j.result_bytes, LIMIT_RESULT_BYTES);
    ck_assert_str_eq(fx_job(&f, job.id).worker, f.worker);
    free(big);
    fx_end(&f);
}
END_TEST

/* --- bounds --- */

/* Claim the one job and end it so, until it is not ready; returns the runs. */
static int64_t wear_out(struct fx *f, enum outcome o)
{
    int64_t runs = 0;

    for (;;) {
        struct job jobs[1];
        const size_t n = fx_claim(f, jobs, 1, true);

        if (n == 0 && f->info.next_due_us == 0) return runs;
        if (n == 0) {
            f->clock.wall_us = f->info.next_due_us;
            continue;
        }
        ck_assert_int_eq(jobs[0].token, ++runs);
        ck_assert_int_eq(fx_settle(f, &jobs[0], o), SETTLE_OK);
        ck_assert_int_lt(runs, 1100);
    }
}

START_TEST(each_store_failures_are_bounded_by_max_retries)
{
    struct pawl_request r = fx_req("mail", NULL, "{}");
    struct fx f;

    begin(&f, _i, NULL);
    const int64_t a = fx_put_req(&f, &r);
    ck_assert_int_eq(wear_out(&f, OUT_TRANSIENT), 6);
    ck_assert_str_eq(fx_job(&f, a).dead_class, "exhausted");
    fx_counters(&f, a, 6, 6, 0, 0, 0);
    r.has_max_retries = true; /* the job's own bound wins over the policy's */
    const int64_t b = fx_put_req(&f, &r);
    ck_assert_int_eq(wear_out(&f, OUT_TIMEOUT), 1);
    ck_assert_str_eq(fx_job(&f, b).dead_class, "exhausted");
    fx_end(&f);
}
END_TEST

START_TEST(each_store_lost_runs_are_bounded_by_the_cap)
{
    struct fx f;

    begin(&f, _i, NULL);
    const int64_t id = fx_put(&f, "mail", "{}");
    ck_assert_int_eq(wear_out(&f, OUT_LOST), 3);
    ck_assert_str_eq(fx_job(&f, id).dead_class, "poison");
    fx_counters(&f, id, 3, 0, 3, 0, 0);
    fx_end(&f);
}
END_TEST

START_TEST(each_store_releases_are_bounded_and_counted_apart)
{
    struct fx_try tries[LIMIT_ATTEMPT_ROWS + 8];
    struct fx f;

    begin(&f, _i, NULL);
    const int64_t id = fx_put(&f, "mail", "{}");
    ck_assert_int_eq(wear_out(&f, OUT_RELEASED), LIMIT_RELEASES);
    ck_assert_str_eq(fx_job(&f, id).dead_class, "exhausted");
    fx_counters(&f, id, LIMIT_RELEASES, 0, 0, LIMIT_RELEASES, 0);
    /* the newest 50 attempts are kept, the others are counted */
    ck_assert_uint_eq(fx_attempts(&f, id, tries, UT_N(tries)), LIMIT_ATTEMPT_ROWS);
    for (size_t i = 0; i < LIMIT_ATTEMPT_ROWS; i++)
        ck_assert_int_eq(tries[i].n, LIMIT_RELEASES - LIMIT_ATTEMPT_ROWS + 1 + (int64_t)i);
    ck_assert_int_eq(fx_job(&f, id).j.attempts, LIMIT_RELEASES);
    fx_end(&f);
}
END_TEST

START_TEST(each_store_snoozes_are_bounded_and_counted_apart)
{
    struct fx f;

    begin(&f, _i, NULL);
    const int64_t id = fx_put(&f, "mail", "{}");
    ck_assert_int_eq(wear_out(&f, OUT_SNOOZE), LIMIT_SNOOZES);
    ck_assert_str_eq(fx_job(&f, id).dead_class, "exhausted");
    fx_counters(&f, id, LIMIT_SNOOZES, 0, 0, 0, LIMIT_SNOOZES);
    fx_end(&f);
}
END_TEST

START_TEST(each_store_retry_waits_and_a_hand_back_keeps_its_place)
{
    struct fx f;

    begin(&f, _i, NULL);
    const int64_t id = fx_put(&f, "mail", "{}"), at = f.clock.wall_us;
    fx_add(&f, SEC);
    struct job job = fx_claim_one(&f);
    fx_settle(&f, &job, OUT_RELEASED);
    ck_assert_int_eq(fx_job(&f, id).j.run_at_us, at);
    job = fx_claim_one(&f);
    fx_settle(&f, &job, OUT_LOST);
    ck_assert_int_eq(fx_job(&f, id).j.run_at_us, at);
    job = fx_claim_one(&f);
    fx_settle(&f, &job, OUT_TRANSIENT);
    ck_assert_int_ge(fx_job(&f, id).j.run_at_us, f.clock.wall_us + SEC);
    ck_assert_uint_eq(fx_claim(&f, &job, 1, true), 0);
    fx_end(&f);
}
END_TEST

START_TEST(each_store_retry_past_the_expiry_dies_at_once)
{
    struct pawl_request r = fx_req("mail", NULL, "{}");
    struct fx f;

    begin(&f, _i, NULL);
    r.expires_at_us = f.clock.wall_us + SEC / 2;
    const int64_t id = fx_put_req(&f, &r);
    const struct job job = fx_claim_one(&f);
    ck_assert_int_eq(job.expires_at_us, r.expires_at_us);
    fx_settle(&f, &job, OUT_TRANSIENT);
    ck_assert_str_eq(fx_job(&f, id).dead_class, "expired");
    fx_end(&f);
}
END_TEST

START_TEST(each_store_held_lists_what_a_worker_has_and_no_more)
{
    int64_t ids[8];
    struct job jobs[3];
    enum pawl_state state;
    size_t n = 0;
    struct fx f;

    begin(&f, _i, NULL);
    for (int i = 0; i < 4; i++)
        fx_put(&f, "mail", "{}");
    ck_assert_uint_eq(fx_claim(&f, jobs, 3, true), 3);
    fx_ok(store_cancel(f.st, jobs[1].id, &state, &f.e), &f);
    fx_ok(store_held(f.st, ids, 8, &n, &f.e), &f);
    ck_assert_uint_eq(n, 2);
    ck_assert_int_eq(ids[0], jobs[0].id);
    ck_assert_int_eq(ids[1], jobs[2].id);
    fx_is(store_worker_leave(f.st, &f.e), PAWL_BUG, &f); /* nobody leaves holding work */
    fx_settle(&f, &jobs[0], OUT_DONE);
    fx_settle(&f, &jobs[2], OUT_RELEASED);
    fx_ok(store_worker_leave(f.st, &f.e), &f);
    fx_end(&f);
}
END_TEST

static void add(TCase *tc)
{
    FX_ADD(tc, each_store_settle_and_claim_share_one_commit);
    FX_ADD(tc, each_store_stale_lease_changes_nothing);
    FX_ADD(tc, each_store_one_fenced_settle_does_not_hold_up_the_others);
    FX_ADD(tc, each_store_foreign_lease_is_refused);
    FX_ADD(tc, each_store_cancel_and_settle_whoever_is_first_wins);
    FX_ADD(tc, each_store_settle_before_the_reaper_leaves_it_nothing);
    FX_ADD(tc, each_store_settle_after_an_unsure_commit_is_idempotent);
    FX_ADD(tc, each_store_resolve_tells_settled_from_pending_from_fenced);
    FX_ADD(tc, each_store_claim_in_doubt_is_put_back_and_costs_nothing);
    FX_ADD(tc, each_store_job_settled_and_reclaimed_in_doubt_is_put_back);
    FX_ADD(tc, each_store_every_decision_lands_where_it_says);
    FX_ADD(tc, each_store_result_of_a_success_is_kept_whole);
    FX_ADD(tc, each_store_failures_are_bounded_by_max_retries);
    FX_ADD(tc, each_store_lost_runs_are_bounded_by_the_cap);
    FX_ADD(tc, each_store_releases_are_bounded_and_counted_apart);
    FX_ADD(tc, each_store_snoozes_are_bounded_and_counted_apart);
    FX_ADD(tc, each_store_retry_waits_and_a_hand_back_keeps_its_place);
    FX_ADD(tc, each_store_retry_past_the_expiry_dies_at_once);
    FX_ADD(tc, each_store_held_lists_what_a_worker_has_and_no_more);
}

int main(void)
{
    return ut_main("settle", add, 30);
}
