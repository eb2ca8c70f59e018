// SPDX-License-Identifier: Apache-2.0
/* test_leased.c - the engine's leased mode: slots, admission, doubt, suspects, early ack. */
#include <inttypes.h>
#include <string.h>
#include <unistd.h>
#include "lib/fx.h"

struct lx {
    struct fx f;
    struct leased *l;
    struct slot *slots;
    size_t n;
};

static void begin(struct lx *x, int kind, size_t slots_n, const struct policy *p)
{
    const struct policy plain = fx_policy();

    fx_begin(&x->f, kind);
    fx_task_as(&x->f, "mail", p != NULL ? p : &plain);
    fx_join(&x->f);
    x->l = leased_new(&x->f.lane, slots_n, &x->f.clock.env);
    ck_assert_ptr_nonnull(x->l);
    x->slots = leased_slots(x->l, &x->n);
    ck_assert_uint_eq(x->n, slots_n);
}

static void end(struct lx *x)
{
    leased_free(&x->l);
    fx_end(&x->f);
}

static void turn(struct lx *x, bool claim)
{
    fx_ok(leased_turn(x->l, x->f.st, claim, &x->f.info, &x->f.e), &x->f);
}

static size_t count(const struct lx *x, enum slot_phase phase)
{
    size_t n = 0;

    for (size_t i = 0; i < x->n; i++)
        n += x->slots[i].phase == phase;
    return n;
}

/* Every held slot ran and came to this. */
static void end_all(struct lx *x, enum outcome o)
{
    for (size_t i = 0; i < x->n; i++) {
        if (x->slots[i].phase != SLOT_HELD) continue;
        x->slots[i].found = fx_found(o, o == OUT_DONE ? NULL : "words");
        x->slots[i].phase = SLOT_ENDED;
    }
}

START_TEST(each_store_slots_are_filled_settled_and_freed)
{
    struct lx x;

    begin(&x, _i, 4, NULL);
    for (int i = 0; i < 6; i++)
        fx_put(&x.f, "mail", "{}");
    turn(&x, true);
    ck_assert_uint_eq(count(&x, SLOT_HELD), 4);
    turn(&x, true); /* full: nothing more is claimed */
    ck_assert_int_eq(fx_stat(&x.f, "running"), 4);
    end_all(&x, OUT_DONE);
    turn(&x, true); /* freed and filled again by one commit */
    ck_assert_uint_eq(count(&x, SLOT_HELD), 2);
    ck_assert_uint_eq(count(&x, SLOT_FREE), 2);
    ck_assert_int_eq(fx_stat(&x.f, "done"), 4);
    end_all(&x, OUT_TRANSIENT);
    turn(&x, false);
    ck_assert_uint_eq(leased_busy(x.l), 0);
    ck_assert_int_eq(fx_stat(&x.f, "ready"), 2);
    end(&x);
}
END_TEST

/* A conflict keeps its slot for one turn more, and the very commit that found it had claimed a job
 * for that slot: it goes back at no cost. */
START_TEST(each_store_conflict_and_a_claim_in_one_turn_meet_in_no_slot)
{
    struct lx x;

    begin(&x, _i, 2, NULL);
    for (int i = 0; i < 6; i++) {
        struct pawl_request r = fx_req("mail", NULL, i % 2 == 0 ? "{\"a\":1}" : "{\"a\":2}");
        r.entity = i < 2 ? "e" : NULL;
        r.version = i < 2;
        r.has_version = i < 2;
        fx_put_req(&x.f, &r);
    }
    for (int i = 0; i < 10 && fx_stat(&x.f, "ready") + fx_stat(&x.f, "running") > 0; i++) {
        turn(&x, true);
        end_all(&x, OUT_DONE);
    }
    turn(&x, false);
    ck_assert_uint_eq(leased_busy(x.l), 0);
    ck_assert_int_eq(fx_stat(&x.f, "running"), 0);
    ck_assert_int_eq(fx_stat(&x.f, "done"), 5);
    ck_assert_str_eq(fx_job(&x.f, 2).dead_class, "conflict");
    for (int64_t id = 3; id <= 6; id++)
        fx_counters(&x.f, id, 0, 0, 0, 0, 0);
    end(&x);
}
END_TEST

START_TEST(each_store_turn_in_doubt_starts_nothing_and_loses_nothing)
{
    struct lx x;

    begin(&x, _i, 3, NULL);
    for (int i = 0; i < 5; i++)
        fx_put(&x.f, "mail", "{}");
    turn(&x, true);
    end_all(&x, OUT_DONE);
    fx_arm("turn.commit.after", "error:0:1");
    turn(&x, true); /* committed, the answer was lost: read, and the new claims are put back */
    fx_disarm();
    ck_assert_uint_eq(leased_busy(x.l), 0);
    ck_assert_int_eq(fx_stat(&x.f, "done"), 3);
    ck_assert_int_eq(fx_stat(&x.f, "running"), 0);
    ck_assert_int_eq(fx_stat(&x.f, "ready"), 2);
    fx_arm("turn.commit.before", "error:0:1");
    fx_is(leased_turn(x.l, x.f.st, true, &x.f.info, &x.f.e), PAWL_IO, &x.f);
    fx_disarm();
    ck_assert_int_eq(fx_stat(&x.f, "running"), 0);
    turn(&x, true);
    ck_assert_uint_eq(count(&x, SLOT_HELD), 2);
    end_all(&x, OUT_DONE);
    turn(&x, false);
    ck_assert_int_eq(fx_stat(&x.f, "done"), 5);
    ck_assert_int_eq(fx_num(&x.f, "SELECT count(*) FROM pawl_x_attempt"), 0);
    end(&x);
}
END_TEST

START_TEST(each_store_what_may_not_run_is_ended_before_it_starts)
{
    struct pawl_request late = fx_req("mail", NULL, "{}");
    struct lx x;

    begin(&x, _i, 4, NULL);
    late.expires_at_us = x.f.clock.wall_us + 1;
    const int64_t a = fx_put_req(&x.f, &late);
    const int64_t b = fx_put(&x.f, "mail", "{}"), c = fx_put(&x.f, "mail", "{}");
    fx_sqlf(&x.f, "UPDATE pawl_x_job SET args = '{\"a\":' WHERE id = %" PRId64, b);
    fx_add(&x.f, SEC);
    turn(&x, true);
    ck_assert_uint_eq(count(&x, SLOT_HELD), 1);
    ck_assert_uint_eq(count(&x, SLOT_ENDED), 2);
    end_all(&x, OUT_DONE);
    turn(&x, false);
    ck_assert_str_eq(fx_job(&x.f, a).dead_class, "expired");
    ck_assert_str_eq(fx_job(&x.f, b).dead_class, "undecodable");
    ck_assert_int_eq(fx_state(&x.f, c), PAWL_STATE_DONE);
    end(&x);
}
END_TEST

START_TEST(each_store_refresh_finds_what_others_decided)
{
    enum pawl_state state;
    size_t lost = 0;
    struct lx x;

    begin(&x, _i, 2, NULL);
    fx_put(&x.f, "mail", "{}");
    fx_put(&x.f, "mail", "{}");
    turn(&x, true);
    fx_ok(leased_refresh(x.l, x.f.st, &lost, &x.f.e), &x.f);
    ck_assert_uint_eq(lost, 0);
    const int64_t id = x.slots[0].job.id;
    fx_ok(store_cancel(x.f.st, id, &state, &x.f.e), &x.f);
    fx_ok(leased_refresh(x.l, x.f.st, &lost, &x.f.e), &x.f);
    ck_assert_uint_eq(lost, 1);
    ck_assert(x.slots[0].lost && !x.slots[1].lost);
    end_all(&x, OUT_DONE);
    turn(&x, false);
    ck_assert_uint_eq(leased_busy(x.l), 0);
    ck_assert_int_eq(fx_state(&x.f, id), PAWL_STATE_CANCELLED);
    ck_assert_int_eq(fx_stat(&x.f, "fenced"), 0); /* dropped, not even tried */
    end(&x);
}
END_TEST

START_TEST(each_store_release_hands_back_without_cost)
{
    struct lx x;

    begin(&x, _i, 1, NULL);
    const int64_t id = fx_put(&x.f, "mail", "{}");
    turn(&x, true);
    x.slots[0].phase = SLOT_ENDED;
    x.slots[0].release = true;
    turn(&x, false);
    ck_assert_int_eq(fx_state(&x.f, id), PAWL_STATE_READY);
    fx_counters(&x.f, id, 0, 0, 0, 0, 0); /* it was never started: as if it had not been claimed */
    turn(&x, true);
    x.slots[0].started = true;
    x.slots[0].phase = SLOT_ENDED;
    x.slots[0].release = true;
    turn(&x, false);
    ck_assert_int_eq(fx_state(&x.f, id), PAWL_STATE_READY);
    fx_counters(&x.f, id, 1, 0, 0, 1, 0);
    end(&x);
}
END_TEST

/* A suspect waits until nothing else runs, goes before everything, and nothing is claimed beside
 * it. Its success acquits it. */
START_TEST(each_store_suspect_runs_first_and_alone)
{
    struct lx x;

    begin(&x, _i, 4, NULL);
    fx_put(&x.f, "mail", "{}");
    turn(&x, true); /* one runs */
    const int64_t plain = fx_put(&x.f, "mail", "{}");
    const int64_t s = fx_put(&x.f, "mail", "{}");
    fx_sqlf(&x.f, "UPDATE pawl_x_ready SET suspect = 1, moved = 1 WHERE id = %" PRId64, s);
    turn(&x, true);
    ck_assert(x.f.info.suspect_waiting);
    ck_assert_uint_eq(leased_busy(x.l), 1);
    end_all(&x, OUT_DONE);
    turn(&x, true);
    ck_assert_uint_eq(leased_busy(x.l), 1);
    ck_assert_int_eq(fx_state(&x.f, s), PAWL_STATE_RUNNING);
    turn(&x, true);
    ck_assert_uint_eq(leased_busy(x.l), 1);
    ck_assert_int_eq(fx_state(&x.f, plain), PAWL_STATE_READY);
    end_all(&x, OUT_TRANSIENT);
    turn(&x, true);
    ck_assert_int_eq(fx_job(&x.f, s).j.suspect, false);
    ck_assert_int_eq(fx_state(&x.f, plain), PAWL_STATE_RUNNING);
    end_all(&x, OUT_DONE);
    turn(&x, false);
    end(&x);
}
END_TEST

/* --- early ack --- */

static struct policy early(void)
{
    struct policy p = fx_policy();

    p.ack = ACK_EARLY;
    return p;
}

START_TEST(each_store_early_ack_starts_once_whatever_the_end)
{
    static const struct { enum outcome o; enum pawl_state to; const char *as; } ends[] = {
        { OUT_DONE, PAWL_STATE_DONE, "done" }, { OUT_TRANSIENT, PAWL_STATE_DROPPED, "failed" },
        { OUT_PERMANENT, PAWL_STATE_DROPPED, "failed" },
        { OUT_TIMEOUT, PAWL_STATE_DROPPED, "failed" },
        { OUT_SNOOZE, PAWL_STATE_DROPPED, "failed" }, { OUT_RELEASED, PAWL_STATE_DROPPED, "lost" },
        { OUT_LOST, PAWL_STATE_DROPPED, "lost" },
    };
    const struct policy p = early();
    struct lx x;

    begin(&x, _i, 1, &p);
    for (size_t i = 0; i < UT_N(ends); i++) {
        const int64_t id = fx_put(&x.f, "mail", "{}");
        turn(&x, true);
        ck_assert_uint_eq(count(&x, SLOT_HELD), 1);
        end_all(&x, ends[i].o);
        turn(&x, false);
        ck_assert_int_eq(fx_state(&x.f, id), ends[i].to);
        ck_assert_str_eq(fx_job(&x.f, id).outcome, ends[i].as);
    }
    turn(&x, true);
    ck_assert_uint_eq(leased_busy(x.l), 0);
    end(&x);
}
END_TEST

static void claim_and_die(struct fx *f, void *ctx)
{
    struct job jobs[4];

    (void)ctx;
    fx_join(f);
    ck_assert_uint_eq(fx_claim(f, jobs, 4, true), 2);
    _exit(0); /* as if killed: nothing is handed back */
}

START_TEST(each_store_early_ack_of_a_dead_worker_is_dropped_and_never_rerun)
{
    const struct policy p = early();
    struct reap_report r;
    struct job jobs[4];
    struct fx f;

    fx_begin(&f, _i);
    fx_task_as(&f, "mail", &p);
    const int64_t a = fx_put(&f, "mail", "{}"), b = fx_put(&f, "mail", "{}");
    fx_shut(&f);
    fx_wait_ok(fx_child(&f, claim_and_die, NULL));
    fx_open(&f);
    fx_join(&f);
    r = fx_reap(&f, f.st);
    ck_assert_uint_eq(r.dropped, 2);
    ck_assert_str_eq(fx_job(&f, a).outcome, "lost");
    ck_assert_str_eq(fx_job(&f, b).outcome, "lost");
    ck_assert_uint_eq(fx_claim(&f, jobs, 4, true), 0);
    fx_end(&f);
}
END_TEST

/* An early-ack claim whose commit is in doubt was never started: it may go back. */
START_TEST(each_store_early_ack_claim_in_doubt_was_no_start)
{
    const struct policy p = early();
    struct lx x;

    begin(&x, _i, 1, &p);
    const int64_t id = fx_put(&x.f, "mail", "{}");
    fx_arm("turn.commit.after", "error:0:1");
    turn(&x, true);
    fx_disarm();
    ck_assert_int_eq(fx_state(&x.f, id), PAWL_STATE_READY);
    turn(&x, true);
    end_all(&x, OUT_DONE);
    turn(&x, false);
    ck_assert_int_eq(fx_state(&x.f, id), PAWL_STATE_DONE);
    end(&x);
}
END_TEST

static void add(TCase *tc)
{
    FX_ADD(tc, each_store_slots_are_filled_settled_and_freed);
    FX_ADD(tc, each_store_conflict_and_a_claim_in_one_turn_meet_in_no_slot);
    FX_ADD(tc, each_store_turn_in_doubt_starts_nothing_and_loses_nothing);
    FX_ADD(tc, each_store_what_may_not_run_is_ended_before_it_starts);
    FX_ADD(tc, each_store_refresh_finds_what_others_decided);
    FX_ADD(tc, each_store_release_hands_back_without_cost);
    FX_ADD(tc, each_store_suspect_runs_first_and_alone);
    FX_ADD(tc, each_store_early_ack_starts_once_whatever_the_end);
    FX_ADD(tc, each_store_early_ack_of_a_dead_worker_is_dropped_and_never_rerun);
    FX_ADD(tc, each_store_early_ack_claim_in_doubt_was_no_start);
}

int main(void)
{
    return ut_main("leased", add, 30);
}
