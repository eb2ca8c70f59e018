// SPDX-License-Identifier: Apache-2.0
/* test_claim.c - what is handed out, to whom, in which order, and at what cost. */
#include <inttypes.h>
#include <string.h>
#include "lib/fx.h"

/* A store without an open worker is not a claimer: every test joins first. */
static void begin(struct fx *f, int kind)
{
    fx_begin(f, kind);
    fx_join(f);
}

static int64_t put_at(struct fx *f, const char *task, const char *queue, int priority,
                      int64_t run_at)
{
    struct pawl_request r = fx_req(task, NULL, "{}");

    r.queue = queue;
    r.priority = priority;
    r.has_priority = true;
    r.run_at_us = run_at == 1 ? LIMIT_INSTANT_ODD_US : run_at; /* 1: long ago */
    return fx_put_req(f, &r);
}

START_TEST(each_store_claims_by_rank_then_time_then_id)
{
    struct job jobs[8];
    struct fx f;

    begin(&f, _i);
    fx_task(&f, "mail");
    const int64_t now = f.clock.wall_us;
    const int64_t d = put_at(&f, "mail", NULL, 0, now - 1);
    const int64_t e = put_at(&f, "mail", NULL, 0, now - 1);
    const int64_t c = put_at(&f, "mail", NULL, 0, now - 2), g = put_at(&f, "mail", NULL, -100, 1);
    const int64_t a = put_at(&f, "mail", NULL, 100, now), b = put_at(&f, "mail", NULL, 5, now);
    const int64_t want[] = { a, b, c, d, e, g };
    ck_assert_uint_eq(fx_claim(&f, jobs, 8, true), 6);
    for (size_t i = 0; i < 6; i++)
        ck_assert_int_eq(jobs[i].id, want[i]);
    ck_assert(!f.info.more);
    fx_end(&f);
}
END_TEST

/* Jobs of several tasks in several queues: whatever the chunk, and where looks are dear, claims
 * follow one order. */
START_TEST(each_store_claims_of_many_queues_follow_one_order)
{
    static const char *const tasks[] = { "a", "b", "c" }, *const queues[] = { "q", "r", "s", "t" };
    const uint64_t seed = ut_seed(11);
    struct env_fake rnd;
    struct job jobs[16];
    int64_t rank = -101, at = 0, id = 0, got = 0;
    struct fx f;

    env_fake_init(&rnd, seed, 0);
    begin(&f, _i);
    for (size_t i = 0; i < 3; i++)
        fx_task(&f, tasks[i]);
    for (int i = 0; i < 300; i++)
        put_at(&f, tasks[env_below(&rnd.env, 3)], queues[env_below(&rnd.env, 4)],
               (int)env_below(&rnd.env, 3) - 1,
               f.clock.wall_us - 1 - (int64_t)env_below(&rnd.env, 5) * 2 * SEC);
    f.clock.mono_step_us = 6000;
    for (size_t n = 1; n > 0; ) {
        n = fx_claim(&f, jobs, 1 + env_below(&rnd.env, 16), true);
        for (size_t i = 0; i < n; i++) {
            const struct job *j = &jobs[i];
            ck_assert(j->rank > rank || (j->rank == rank && (j->run_at_us > at ||
                      (j->run_at_us == at && j->id > id))));
            rank = j->rank;
            at = j->run_at_us;
            id = j->id;
        }
        got += (int64_t)n;
    }
    ck_assert_int_eq(got, 300);
    fx_end(&f);
}
END_TEST

START_TEST(each_store_delayed_job_waits_for_its_time)
{
    struct job jobs[4];
    struct fx f;

    begin(&f, _i);
    fx_task(&f, "mail");
    const int64_t due = f.clock.wall_us + 10 * SEC;
    put_at(&f, "mail", NULL, 100, due + SEC); /* a later one with a better rank hides nothing */
    const int64_t id = put_at(&f, "mail", NULL, 0, due);
    ck_assert_uint_eq(fx_claim(&f, jobs, 4, true), 0);
    ck_assert_int_eq(f.info.next_due_us, due);
    ck_assert(!f.info.more);
    fx_add(&f, 10 * SEC - 1);
    ck_assert_uint_eq(fx_claim(&f, jobs, 4, true), 0);
    fx_add(&f, 1);
    ck_assert_uint_eq(fx_claim(&f, jobs, 4, true), 1);
    ck_assert_int_eq(jobs[0].id, id);
    fx_end(&f);
}
END_TEST

/* Each look at everything seems to take longer than what is dear: on PostgreSQL a look begins then
 * where nothing was left before, for a time, even if it finds less than it wanted. A better rank,
 * another queue, what is due since a moment ago, a pause are seen at once all the same. */
START_TEST(each_store_where_a_look_is_dear_only_what_lies_back_waits)
{
    struct job jobs[9];
    struct fx f;

    begin(&f, _i);
    fx_task(&f, "mail");
    for (int i = 0; i < 12; i++)
        fx_put(&f, "mail", "{}");
    f.clock.mono_step_us = 6000;
    for (int i = 0; i < 5; i++)
        ck_assert_int_eq(fx_claim_one(&f).id, i + 1);
    const int64_t better = put_at(&f, "mail", NULL, 100, 0),
                  other = put_at(&f, "mail", "fast", 50, 0),
                  back = put_at(&f, "mail", NULL, 0, 1),
                  late = put_at(&f, "mail", NULL, 0, f.clock.wall_us - 50000);
    ck_assert_int_eq(fx_claim_one(&f).id, better);
    ck_assert_int_eq(fx_claim_one(&f).id, other);
    if (f.kind->one_writer)
        ck_assert_int_eq(fx_claim_one(&f).id, back);
    ck_assert_uint_eq(fx_claim(&f, jobs, 9, true), 8);
    ck_assert_int_eq(jobs[0].id, late);
    for (int i = 1; i < 8; i++)
        ck_assert_int_eq(jobs[i].id, 5 + i);
    ck_assert_int_eq(f.info.next_due_us > f.clock.wall_us, !f.kind->one_writer);
    put_at(&f, "mail", NULL, 0, 0);
    fx_ok(store_pause(f.st, NULL, "mail", true, &f.e), &f);
    ck_assert_uint_eq(fx_claim(&f, jobs, 1, true), 0);
    fx_ok(store_pause(f.st, NULL, "mail", false, &f.e), &f);
    f.clock.mono_add_us += SEC;
    if (!f.kind->one_writer)
        ck_assert_int_eq(fx_claim_one(&f).id, back);
    fx_end(&f);
}
END_TEST

/* Several queues and ranks that come and go, jobs put back, workers that fail: whatever is passed
 * over while looks are dear, everything is found in the end, once, and by a look at all there is in
 * its order. */
START_TEST(each_store_where_looks_are_dear_nothing_is_lost_among_many_lines)
{
    static const char *const queues[] = { "q", "r", "s" };
    const uint64_t seed = ut_seed(12);
    struct env_fake rnd;
    struct job jobs[16];
    int64_t put = 0, done = 0;
    struct fx f;

    env_fake_init(&rnd, seed, 0);
    begin(&f, _i);
    fx_task(&f, "a");
    fx_task(&f, "b");
    f.clock.mono_step_us = 6000;
    for (int i = 0; i < 150 || done < put; i++) {
        if (i < 150 && env_below(&rnd.env, 3) > 0) {
            put_at(&f, env_below(&rnd.env, 2) > 0 ? "a" : "b", queues[env_below(&rnd.env, 3)],
                   (int)env_below(&rnd.env, 3) - 1,
                   f.clock.wall_us - (int64_t)env_below(&rnd.env, 5) * 2 * SEC);
            put++;
        }
        fx_add(&f, 10000);
        const size_t n = fx_claim(&f, jobs, 1 + env_below(&rnd.env, 4), true);
        for (size_t k = 0; k < n; k++) {
            const bool again = env_below(&rnd.env, 4) == 0;
            fx_settle(&f, &jobs[k], again ? OUT_RELEASED : OUT_DONE);
            done += !again;
        }
        ck_assert_int_lt(i, 5000);
    }
    ck_assert_int_eq(fx_stat(&f, "done"), put);
    ck_assert_int_eq(fx_num(&f, "SELECT count(*) FROM pawl_x_ready"), 0);
    fx_end(&f);
}
END_TEST

START_TEST(each_store_unknown_tasks_are_left_untouched_and_visible)
{
    struct job jobs[4];
    struct fx f;

    begin(&f, _i);
    fx_task(&f, "mail");
    const int64_t id = put_at(&f, "other", NULL, 100, 1);
    fx_put(&f, "mail", "{}");
    ck_assert_uint_eq(fx_claim(&f, jobs, 4, true), 1);
    ck_assert_str_ne(fx_job(&f, jobs[0].id).task, "other");
    ck_assert_uint_eq(fx_claim(&f, jobs, 4, true), 0);
    ck_assert_int_eq(f.info.next_due_us, 0); /* it is not this worker's to wait for */
    fx_counters(&f, id, 0, 0, 0, 0, 0);
    ck_assert_int_eq(fx_state(&f, id), PAWL_STATE_READY);
    fx_task(&f, "other");
    ck_assert_int_eq(fx_claim_one(&f).id, id);
    fx_end(&f);
}
END_TEST

START_TEST(each_store_worker_takes_from_its_queues_only)
{
    const char *const mine[] = { "fast", "slow" };
    struct job jobs[4];
    struct fx f;

    begin(&f, _i);
    fx_task(&f, "mail");
    put_at(&f, "mail", "bulk", 50, 1);
    const int64_t a = put_at(&f, "mail", "slow", 0, 1), b = put_at(&f, "mail", "fast", 1, 1);
    f.lane.queues = mine;
    f.lane.queues_n = 2;
    ck_assert_int_eq(fx_claim_one(&f).id, b);
    ck_assert_int_eq(fx_claim_one(&f).id, a);
    ck_assert_uint_eq(fx_claim(&f, jobs, 4, true), 0);
    f.lane.queues_n = 0;
    ck_assert_uint_eq(fx_claim(&f, jobs, 4, true), 1);
    fx_end(&f);
}
END_TEST

START_TEST(each_store_paused_queues_and_tasks_wait)
{
    struct pending left;
    struct job jobs[4];
    struct fx f;

    begin(&f, _i);
    fx_task(&f, "mail");
    fx_task(&f, "letter");
    put_at(&f, "mail", "q", 0, 1);
    put_at(&f, "letter", "r", 0, 1);
    fx_ok(store_pause(f.st, "q", NULL, true, &f.e), &f);
    fx_ok(store_pause(f.st, NULL, "letter", true, &f.e), &f);
    ck_assert_uint_eq(fx_claim(&f, jobs, 4, true), 0);
    fx_ok(store_pending(f.st, &f.lane, &left, &f.e), &f);
    ck_assert_int_eq(left.paused, 2);
    ck_assert_int_eq(left.due, 0);
    fx_ok(store_pause(f.st, "q", NULL, false, &f.e), &f);
    ck_assert_uint_eq(fx_claim(&f, jobs, 4, true), 1);
    fx_ok(store_pause(f.st, NULL, "letter", false, &f.e), &f);
    ck_assert_uint_eq(fx_claim(&f, jobs, 4, true), 1);
    fx_is(store_pause(f.st, "nowhere", NULL, true, &f.e), PAWL_NOTFOUND, &f);
    fx_end(&f);
}
END_TEST

START_TEST(each_store_every_claim_has_a_lease_of_its_own_and_the_next_token)
{
    struct job first, again, other;
    struct fx f;

    begin(&f, _i);
    fx_task(&f, "mail");
    const int64_t id = fx_put(&f, "mail", "{}");
    first = fx_claim_one(&f);
    ck_assert_int_eq(first.token, 1);
    fx_settle(&f, &first, OUT_RELEASED);
    again = fx_claim_one(&f);
    ck_assert_int_eq(again.id, id);
    ck_assert_int_eq(again.token, 2);
    ck_assert_mem_ne(first.lease_id, again.lease_id, sizeof first.lease_id);
    fx_put(&f, "mail", "{}");
    other = fx_claim_one(&f);
    ck_assert_mem_ne(other.lease_id, again.lease_id, sizeof other.lease_id);
    ck_assert_int_eq(fx_num(&f, "SELECT count(*) FROM pawl_x_running WHERE token = runs + 1"), 2);
    fx_end(&f);
}
END_TEST

START_TEST(each_store_an_empty_claim_writes_nothing)
{
    struct job jobs[4];
    struct fx f;

    begin(&f, _i);
    fx_task(&f, "mail");
    const int64_t before = f.kind->flushes();
    for (int i = 0; i < 20; i++)
        ck_assert_uint_eq(fx_claim(&f, jobs, 4, true), 0);
    fx_ok(fx_batch(&f, NULL), &f);
    ck_assert_int_eq(f.kind->flushes(), before);
    fx_end(&f);
}
END_TEST

struct share { _Atomic int64_t taken[400]; };

static void grab(struct fx *f, void *ctx)
{
    struct share *s = ctx;
    struct job jobs[7];

    fx_join(f);
    for (size_t n = 1; n > 0; ) {
        n = fx_claim(f, jobs, 7, true);
        for (size_t i = 0; i < n; i++)
            s->taken[jobs[i].id]++;
        for (size_t i = 0; i < n; i++)
            ck_assert_int_eq(fx_settle(f, &jobs[i], OUT_DONE), SETTLE_OK);
    }
    fx_ok(store_worker_leave(f->st, &f->e), f);
}

START_TEST(each_store_concurrent_workers_never_share_a_job)
{
    enum { WORKERS = 4, JOBS = 200 };
    struct share *s = fx_shared(sizeof *s);
    pid_t pids[WORKERS];
    struct fx f;

    fx_begin(&f, _i);
    fx_task(&f, "mail");
    for (int i = 0; i < JOBS; i++)
        fx_put(&f, "mail", "{}");
    fx_shut(&f);
    for (int i = 0; i < WORKERS; i++)
        pids[i] = fx_child(&f, grab, s);
    for (int i = 0; i < WORKERS; i++)
        fx_wait_ok(pids[i]);
    for (int64_t id = 1; id <= JOBS; id++)
        ck_assert_int_eq(s->taken[id], 1);
    fx_open(&f);
    ck_assert_int_eq(fx_stat(&f, "done"), JOBS);
    fx_end(&f);
}
END_TEST

START_TEST(each_store_pending_tells_due_from_later_from_retrying)
{
    struct pending left;
    struct fx f;

    begin(&f, _i);
    fx_task(&f, "mail");
    put_at(&f, "mail", NULL, 0, f.clock.wall_us + DAY);
    put_at(&f, "mail", NULL, 0, 1);
    const struct job a = fx_claim_one(&f);
    put_at(&f, "mail", NULL, 0, 1);
    const struct job b = fx_claim_one(&f);
    put_at(&f, "mail", NULL, 0, 1);
    put_at(&f, "elsewhere", NULL, 0, 1);
    fx_settle(&f, &a, OUT_TRANSIENT);
    fx_ok(store_pending(f.st, &f.lane, &left, &f.e), &f);
    ck_assert_int_eq(left.due, 1); /* the first that is found ends the look */
    const struct job c = fx_claim_one(&f);
    fx_ok(store_pending(f.st, &f.lane, &left, &f.e), &f);
    ck_assert_int_eq(left.due, 0);
    ck_assert_int_eq(left.running, 1);
    fx_settle(&f, &b, OUT_DONE);
    fx_settle(&f, &c, OUT_DONE);
    fx_ok(store_pending(f.st, &f.lane, &left, &f.e), &f);
    ck_assert_int_eq(left.due + left.running, 0);
    ck_assert_int_eq(left.retrying, 1);
    const int64_t at = fx_num(&f, "SELECT run_at_us FROM pawl_jobs WHERE failures = 1");
    ck_assert_int_eq(left.next_due_us, at);
    f.clock.wall_us = at;
    const struct job d = fx_claim_one(&f);
    fx_settle(&f, &d, OUT_DONE);
    fx_ok(store_pending(f.st, &f.lane, &left, &f.e), &f);
    ck_assert_int_eq(left.due + left.running + left.retrying, 0);
    ck_assert_int_eq(left.later, 1);
    ck_assert_int_eq(left.paused, 0);
    fx_end(&f);
}
END_TEST

/* Other queues' and other tasks' jobs do not keep a worker; what its queues have does. */
START_TEST(each_store_pending_looks_at_its_own_queues_only)
{
    static const char *const only[] = { "q" };
    struct pending left;
    struct fx f;

    begin(&f, _i);
    fx_task(&f, "mail");
    put_at(&f, "mail", "r", 0, 1);
    const struct job running = fx_claim_one(&f);
    put_at(&f, "mail", "r", 0, 1);
    const struct job failed = fx_claim_one(&f);
    fx_settle(&f, &failed, OUT_TRANSIENT);
    put_at(&f, "mail", "r", 0, 1);
    put_at(&f, "mail", "q", 0, f.clock.wall_us + DAY);
    f.lane.queues = only;
    f.lane.queues_n = 1;
    fx_ok(store_pending(f.st, &f.lane, &left, &f.e), &f);
    ck_assert_int_eq(left.due + left.running + left.retrying + left.paused, 0);
    ck_assert_int_eq(left.later, 1);
    ck_assert_int_eq(left.next_due_us, f.clock.wall_us + DAY);
    f.lane.queues_n = 0;
    fx_ok(store_pause(f.st, "r", NULL, true, &f.e), &f);
    fx_ok(store_pending(f.st, &f.lane, &left, &f.e), &f);
    ck_assert_int_eq(left.due, 0);
    ck_assert_int_eq(left.running, 1); /* a pause keeps nobody from ending */
    fx_settle(&f, &running, OUT_DONE);
    fx_ok(store_pending(f.st, &f.lane, &left, &f.e), &f);
    ck_assert_int_eq(left.due + left.running + left.retrying, 0);
    ck_assert_int_eq(left.paused, 2);
    ck_assert_int_eq(left.later, 1);
    fx_end(&f);
}
END_TEST

/* --- the cost of a claim --- */

static int64_t cost_of_turn(struct fx *f, size_t want)
{
    struct job jobs[16];

    (void)f->kind->work(f->st);
    ck_assert_uint_eq(fx_claim(f, jobs, want, true), want);
    const int64_t cost = f->kind->work(f->st);
    for (size_t i = 0; i < want; i++)
        fx_settle(f, &jobs[i], OUT_DONE);
    return cost;
}

static int64_t cost_of_batch(struct fx *f, size_t want)
{
    struct effect_report r;

    fx_batch_size(f, want);
    (void)f->kind->work(f->st);
    fx_ok(fx_batch(f, &r), f);
    ck_assert_uint_eq(r.done, want);
    return f->kind->work(f->st);
}

/* Only what a claim could walk: the rows that wait, by themselves. */
static void pile_up(struct fx *f, const char *task, int64_t n, int rank, int64_t run_at)
{
    fx_sqlf(f, "INSERT INTO pawl_x_ready (task_id, queue_id, rank, run_at_us, id)"
            " WITH RECURSIVE c(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM c WHERE i < %" PRId64 ")"
            " SELECT (SELECT id FROM pawl_x_task WHERE name = '%s'), (SELECT min(id) FROM"
            " pawl_x_queue), %d, %" PRId64 " + i, 1000000 + i FROM c", n, task, rank, run_at);
}

/* A million jobs of a task that nobody here runs stand at the head, and 300,000 of ours are not yet
 * due: what a claim does is counted in engine steps, and stays what it was. */
START_TEST(each_store_claims_stay_flat_behind_a_million_jobs)
{
    struct fx f;

    begin(&f, _i);
    fx_task(&f, "mail");
    fx_put(&f, "unknown", "{}");
    for (int i = 0; i < 200; i++)
        fx_put(&f, "mail", "{}");
    cost_of_turn(&f, 10); /* statements are prepared on first use */
    cost_of_batch(&f, 10);
    const int64_t turn = cost_of_turn(&f, 10), batch = cost_of_batch(&f, 10);
    ck_assert_int_gt(turn, 0);
    pile_up(&f, "unknown", 1000000, -100, 1);
    pile_up(&f, "mail", 300000, -50, f.clock.wall_us + DAY);
    cost_of_turn(&f, 10);  /* the schema was touched by nobody, but be fair to re-prepares */
    cost_of_batch(&f, 10);
    const int64_t turn2 = cost_of_turn(&f, 10), batch2 = cost_of_batch(&f, 10);
    ck_assert_msg(turn2 <= turn + 100, "a turn took %" PRId64 " steps, now %" PRId64, turn, turn2);
    ck_assert_msg(batch2 <= batch + 100, "a batch took %" PRId64 " steps, now %" PRId64, batch,
                  batch2);
    fx_shut(&f); /* the pile has no jobs: no invariant holds, and none is looked at */
    arena_free(&f.arena);
    fx_remove(f.dir);
}
END_TEST

/* A worker that waits for one retry looks again and again, whatever else waits. */
START_TEST(each_store_pending_stays_flat_behind_300000_delayed_jobs)
{
    struct pending left;
    struct fx f;

    begin(&f, _i);
    fx_task(&f, "mail");
    fx_put(&f, "mail", "{}");
    const struct job job = fx_claim_one(&f);
    fx_settle(&f, &job, OUT_TRANSIENT);
    fx_ok(store_pending(f.st, &f.lane, &left, &f.e), &f);
    (void)f.kind->work(f.st);
    fx_ok(store_pending(f.st, &f.lane, &left, &f.e), &f);
    const int64_t cost = f.kind->work(f.st);
    ck_assert_int_gt(cost, 0);
    pile_up(&f, "mail", 300000, -50, f.clock.wall_us + DAY);
    fx_ok(store_pending(f.st, &f.lane, &left, &f.e), &f);
    ck_assert_int_eq(left.retrying, 1);
    (void)f.kind->work(f.st);
    fx_ok(store_pending(f.st, &f.lane, &left, &f.e), &f);
    const int64_t cost2 = f.kind->work(f.st);
    ck_assert_msg(cost2 <= cost + 100, "a look took %" PRId64 " steps, now %" PRId64, cost, cost2);
    fx_shut(&f);
    arena_free(&f.arena);
    fx_remove(f.dir);
}
END_TEST

static void add(TCase *tc)
{
    FX_ADD(tc, each_store_claims_by_rank_then_time_then_id);
    FX_ADD(tc, each_store_claims_of_many_queues_follow_one_order);
    FX_ADD(tc, each_store_delayed_job_waits_for_its_time);
    FX_ADD(tc, each_store_where_a_look_is_dear_only_what_lies_back_waits);
    FX_ADD(tc, each_store_where_looks_are_dear_nothing_is_lost_among_many_lines);
    FX_ADD(tc, each_store_unknown_tasks_are_left_untouched_and_visible);
    FX_ADD(tc, each_store_worker_takes_from_its_queues_only);
    FX_ADD(tc, each_store_paused_queues_and_tasks_wait);
    FX_ADD(tc, each_store_every_claim_has_a_lease_of_its_own_and_the_next_token);
    FX_ADD(tc, each_store_an_empty_claim_writes_nothing);
    FX_ADD(tc, each_store_concurrent_workers_never_share_a_job);
    FX_ADD(tc, each_store_pending_tells_due_from_later_from_retrying);
    FX_ADD(tc, each_store_pending_looks_at_its_own_queues_only);
    FX_ADD(tc, each_store_claims_stay_flat_behind_a_million_jobs);
    FX_ADD(tc, each_store_pending_stays_flat_behind_300000_delayed_jobs);
}

int main(void)
{
    return ut_main("claim", add, 60);
}
