// SPDX-License-Identifier: Apache-2.0
/* test_people.c - what a person does to jobs: replay once, discard, cancel, run now; the answer is
 * the truth: done, too late, not found. */
#include <inttypes.h>
#include <string.h>
#include "base/text.h"
#include "lib/fx.h"

static const struct pawl_replay plain;

static void begin(struct fx *f, int kind)
{
    fx_begin(f, kind);
    fx_task(f, "mail");
    fx_join(f);
}

/* A new dead job, with a key if given. */
static int64_t kill_one(struct fx *f, const char *key)
{
    struct pawl_request r = fx_req("mail", key, "{\"a\":1}");

    r.source = key != NULL ? "src" : NULL;
    r.queue = "post";
    r.headers = "{\"h\":\"v\"}";
    r.has_priority = true;
    r.priority = 9;
    const int64_t id = fx_put_req(f, &r);
    const struct job job = fx_claim_one(f);
    ck_assert_int_eq(job.id, id);
    ck_assert_int_eq(fx_settle(f, &job, OUT_PERMANENT), SETTLE_OK);
    return id;
}

START_TEST(each_store_replay_is_a_new_job_of_the_same_root)
{
    int64_t id2 = 0;
    struct fx f;

    begin(&f, _i);
    const int64_t id = kill_one(&f, "k");
    fx_ok(store_replay(f.st, id, &plain, &id2, &f.e), &f);
    const struct fx_job old = fx_job(&f, id), new = fx_job(&f, id2);
    ck_assert_int_eq(old.j.state, PAWL_STATE_DEAD); /* the evidence stays */
    ck_assert_int_eq(old.j.replayed_as, id2);
    ck_assert_int_eq(new.j.replay_of, id);
    ck_assert_int_eq(new.j.root_id, id);
    ck_assert_int_eq(new.j.gen, 1);
    ck_assert_int_eq(new.j.state, PAWL_STATE_READY);
    ck_assert_int_eq(new.j.priority, 9);
    ck_assert_str_eq(new.key, "k");
    ck_assert_str_eq(new.source, "src");
    ck_assert_str_eq(new.queue, "post");
    ck_assert_str_eq(new.args, "{\"a\":1}");
    fx_counters(&f, id2, 0, 0, 0, 0, 0);
    fx_end(&f);
}
END_TEST

START_TEST(each_store_second_replay_is_refused_and_names_the_first)
{
    int64_t id2 = 0, id3 = 0;
    struct fx f;

    begin(&f, _i);
    const int64_t id = kill_one(&f, "k");
    fx_ok(store_replay(f.st, id, &plain, &id2, &f.e), &f);
    fx_is(store_replay(f.st, id, &plain, &id3, &f.e), PAWL_TOOLATE, &f);
    ck_assert_int_eq(id3, id2);
    ck_assert_int_eq(fx_stat(&f, "replays"), 1);
    fx_is(store_replay(f.st, id2, &plain, &id3, &f.e), PAWL_TOOLATE, &f); /* not dead */
    ck_assert_int_eq(id3, 0);
    fx_is(store_replay(f.st, 999, &plain, &id3, &f.e), PAWL_NOTFOUND, &f);
    ck_assert_int_eq(fx_stat(&f, "accepted"), 2);
    fx_end(&f);
}
END_TEST

START_TEST(each_store_second_replay_with_a_reason_is_recorded)
{
    const struct pawl_replay again = { .again_reason = "the gateway was down again" };
    const struct pawl_replay empty = { .again_reason = "" };
    int64_t id2 = 0, id3 = 0;
    struct fx f;

    begin(&f, _i);
    const int64_t id = kill_one(&f, NULL);
    fx_ok(store_replay(f.st, id, &plain, &id2, &f.e), &f);
    fx_is(store_replay(f.st, id, &empty, &id3, &f.e), PAWL_BADARG, &f);
    fx_ok(store_replay(f.st, id, &again, &id3, &f.e), &f);
    ck_assert_int_ne(id3, id2);
    ck_assert_int_eq(fx_job(&f, id).j.replayed_as, id3);
    ck_assert_int_eq(fx_job(&f, id3).j.replay_of, id);
    ck_assert_int_eq(fx_num(&f, "SELECT count(*) FROM pawl_x_dead WHERE replay_reason ="
                                " 'the gateway was down again'"), 1);
    fx_end(&f);
}
END_TEST

START_TEST(each_store_replay_with_edited_args_runs_the_edited)
{
    const struct pawl_replay edit = { .args = "{\"a\":2}" }, broken = { .args = "{\"a\":" };
    int64_t id2 = 0;
    struct fx f;

    begin(&f, _i);
    const int64_t id = kill_one(&f, "k");
    fx_is(store_replay(f.st, id, &broken, &id2, &f.e), PAWL_BADDATA, &f);
    fx_ok(store_replay(f.st, id, &edit, &id2, &f.e), &f);
    ck_assert_str_eq(fx_job(&f, id).args, "{\"a\":1}");
    const struct job job = fx_claim_one(&f);
    ck_assert_int_eq(job.id, id2);
    ck_assert_str_eq(job.args, "{\"a\":2}");
    ck_assert_str_eq(job.key, "k");
    fx_settle(&f, &job, OUT_DONE);
    fx_end(&f);
}
END_TEST

START_TEST(each_store_chain_of_replays_is_bounded)
{
    int64_t id, next = 0, root;
    struct fx f;

    begin(&f, _i);
    root = id = kill_one(&f, "k");
    for (int gen = 1; gen <= LIMIT_REPLAY_CHAIN; gen++) {
        fx_ok(store_replay(f.st, id, &plain, &next, &f.e), &f);
        ck_assert_int_eq(fx_job(&f, next).j.gen, gen);
        ck_assert_int_eq(fx_job(&f, next).j.root_id, root);
        const struct job job = fx_claim_one(&f);
        fx_settle(&f, &job, OUT_PERMANENT);
        id = next;
    }
    fx_is(store_replay(f.st, id, &plain, &next, &f.e), PAWL_CONFIG, &f);
    ck_assert_int_eq(fx_job(&f, id).j.replayed_as, 0);
    ck_assert_int_eq(fx_stat(&f, "accepted"), LIMIT_REPLAY_CHAIN + 1);
    fx_end(&f);
}
END_TEST

struct click { int64_t ids[100]; enum pawl_rc rc[2][100]; int64_t made[2][100]; };

static void click_all(struct fx *f, struct click *c, int who)
{
    for (int i = 0; i < 100; i++) {
        int64_t made = 0;
        c->rc[who][i] = store_replay(f->st, c->ids[i], &plain, &made, &f->e);
        c->made[who][i] = made;
    }
}
static void first_operator(struct fx *f, void *ctx) { click_all(f, ctx, 0); }
static void second_operator(struct fx *f, void *ctx) { click_all(f, ctx, 1); }

START_TEST(each_store_two_operators_replay_each_job_once)
{
    struct click *c = fx_shared(sizeof *c);
    struct fx f;

    begin(&f, _i);
    for (int i = 0; i < 100; i++)
        c->ids[i] = kill_one(&f, NULL);
    fx_shut(&f);
    const pid_t a = fx_child(&f, first_operator, c), b = fx_child(&f, second_operator, c);
    fx_wait_ok(a);
    fx_wait_ok(b);
    fx_open(&f);
    for (int i = 0; i < 100; i++) { /* one made it, the other was told of it */
        ck_assert_int_eq(c->made[0][i], c->made[1][i]);
        ck_assert((c->rc[0][i] == PAWL_OK && c->rc[1][i] == PAWL_TOOLATE) ||
                  (c->rc[1][i] == PAWL_OK && c->rc[0][i] == PAWL_TOOLATE));
    }
    ck_assert_int_eq(fx_stat(&f, "accepted"), 200);
    fx_join(&f);
    fx_drain(&f);
    ck_assert_int_eq(fx_num(&f, "SELECT count(*) FROM fx"), 100);
    ck_assert_int_eq(fx_num(&f, "SELECT count(DISTINCT job) FROM fx"), 100);
    fx_end(&f);
}
END_TEST

START_TEST(each_store_replay_that_fails_leaves_the_dead_as_it_was)
{
    int64_t id2 = 0;
    struct fx f;

    begin(&f, _i);
    const int64_t id = kill_one(&f, "k");
    fx_arm("replay.before", "error:0:1");
    fx_is(store_replay(f.st, id, &plain, &id2, &f.e), PAWL_IO, &f);
    fx_disarm();
    ck_assert_int_eq(fx_job(&f, id).j.replayed_as, 0);
    ck_assert_int_eq(fx_stat(&f, "accepted"), 1);
    fx_arm("replay.after", "error:0:1");
    fx_is(store_replay(f.st, id, &plain, &id2, &f.e), PAWL_UNSURE, &f);
    fx_disarm();
    fx_is(store_replay(f.st, id, &plain, &id2, &f.e), PAWL_TOOLATE, &f);
    ck_assert_int_eq(fx_stat(&f, "accepted"), 2);
    fx_end(&f);
}
END_TEST

START_TEST(each_store_discard_ends_a_dead_job_with_its_reason)
{
    int64_t id2 = 0;
    struct fx f;

    begin(&f, _i);
    const int64_t id = kill_one(&f, "k");
    fx_is(store_discard(f.st, id, "", &f.e), PAWL_BADARG, &f);
    fx_ok(store_discard(f.st, id, "obsolete", &f.e), &f);
    const struct fx_job x = fx_job(&f, id);
    ck_assert_int_eq(x.j.state, PAWL_STATE_DROPPED);
    ck_assert_str_eq(x.outcome, "discarded");
    ck_assert_str_eq(x.reason, "obsolete");
    ck_assert_str_eq(x.error, "permanent"); /* the first error is kept */
    fx_is(store_discard(f.st, id, "again", &f.e), PAWL_TOOLATE, &f);
    fx_is(store_replay(f.st, id, &plain, &id2, &f.e), PAWL_TOOLATE, &f);
    fx_is(store_discard(f.st, 999, "x", &f.e), PAWL_NOTFOUND, &f);
    const int64_t ready = fx_put(&f, "mail", "{}");
    fx_is(store_discard(f.st, ready, "x", &f.e), PAWL_TOOLATE, &f);
    ck_assert_int_eq(fx_state(&f, ready), PAWL_STATE_READY);
    fx_end(&f);
}
END_TEST

START_TEST(each_store_cancel_tells_the_truth)
{
    enum pawl_state s = PAWL_STATE_N;
    struct fx f;

    begin(&f, _i);
    const int64_t id = fx_put(&f, "mail", "{}");
    fx_ok(store_cancel(f.st, id, &s, &f.e), &f);
    ck_assert_int_eq(s, PAWL_STATE_CANCELLED);
    fx_is(store_cancel(f.st, id, &s, &f.e), PAWL_TOOLATE, &f);
    ck_assert_int_eq(s, PAWL_STATE_CANCELLED);
    fx_is(store_cancel(f.st, 999, &s, &f.e), PAWL_NOTFOUND, &f);
    const int64_t dead = kill_one(&f, NULL);
    fx_is(store_cancel(f.st, dead, &s, &f.e), PAWL_TOOLATE, &f);
    ck_assert_int_eq(s, PAWL_STATE_DEAD);
    /* one that waits for a retry is not where the job row says: it is found all the same */
    const int64_t again = fx_put(&f, "mail", "{}");
    const struct job job = fx_claim_one(&f);
    fx_settle(&f, &job, OUT_TRANSIENT);
    fx_ok(store_cancel(f.st, again, &s, &f.e), &f);
    fx_counters(&f, again, 1, 1, 0, 0, 0);
    fx_drain(&f);
    ck_assert_int_eq(fx_num(&f, "SELECT count(*) FROM fx"), 0);
    fx_arm("cancel.before", "error:0:1");
    const int64_t last = fx_put(&f, "mail", "{}");
    fx_is(store_cancel(f.st, last, &s, &f.e), PAWL_IO, &f);
    fx_disarm();
    ck_assert_int_eq(fx_state(&f, last), PAWL_STATE_READY);
    fx_end(&f);
}
END_TEST

START_TEST(each_store_run_now_skips_the_wait_and_nothing_else)
{
    struct pawl_request r = fx_req("mail", NULL, "{}");
    enum pawl_state s = PAWL_STATE_N;
    struct job job;
    struct fx f;

    begin(&f, _i);
    r.run_at_us = f.clock.wall_us + DAY;
    const int64_t a = fx_put_req(&f, &r);
    ck_assert_uint_eq(fx_claim(&f, &job, 1, true), 0);
    fx_ok(store_run_now(f.st, a, &s, &f.e), &f);
    job = fx_claim_one(&f);
    ck_assert_int_eq(job.id, a);
    fx_is(store_run_now(f.st, a, &s, &f.e), PAWL_TOOLATE, &f);
    ck_assert_int_eq(s, PAWL_STATE_RUNNING);
    fx_settle(&f, &job, OUT_TRANSIENT);
    fx_ok(store_run_now(f.st, a, &s, &f.e), &f); /* a retry's wait too; its failure stays counted */
    fx_counters(&f, a, 1, 1, 0, 0, 0);
    job = fx_claim_one(&f);
    fx_settle(&f, &job, OUT_PERMANENT);
    fx_is(store_run_now(f.st, a, &s, &f.e), PAWL_TOOLATE, &f);
    ck_assert_int_eq(s, PAWL_STATE_DEAD);
    fx_is(store_run_now(f.st, 999, &s, &f.e), PAWL_NOTFOUND, &f);
    const int64_t due = fx_put(&f, "mail", "{}"), at = fx_job(&f, due).j.run_at_us;
    fx_add(&f, SEC);
    fx_ok(store_run_now(f.st, due, &s, &f.e), &f); /* due already: keeps its place in the line */
    ck_assert_int_eq(fx_job(&f, due).j.run_at_us, at);
    fx_end(&f);
}
END_TEST

/* --- listing --- */

struct list { int64_t ids[64]; size_t n, stop_at; };

static bool note(void *ctx, const struct pawl_job *j)
{
    struct list *l = ctx;

    ck_assert_uint_lt(l->n, 64);
    l->ids[l->n++] = j->id;
    return l->stop_at == 0 || l->n < l->stop_at;
}

static size_t listed(struct fx *f, const struct pawl_filter *p, struct list *l)
{
    l->n = 0;
    fx_ok(store_jobs(f->st, p, note, l, &f->e), f);
    for (size_t i = 1; i < l->n; i++)
        ck_assert_int_gt(l->ids[i], l->ids[i - 1]);
    return l->n;
}

START_TEST(each_store_list_filters_by_state_task_queue_key_and_class)
{
    struct list l = {0};
    int64_t id2 = 0;
    struct fx f;

    begin(&f, _i);
    const int64_t dead = kill_one(&f, "k"), dead2 = kill_one(&f, "k2");
    fx_ok(store_replay(f.st, dead, &plain, &id2, &f.e), &f);
    for (int i = 0; i < 3; i++)
        fx_put(&f, "letter", "{}");
    ck_assert_uint_eq(listed(&f, &(struct pawl_filter){0}, &l), 6);
    ck_assert_uint_eq(listed(&f, &(struct pawl_filter){ .state = PAWL_STATE_DEAD + 1 }, &l), 2);
    ck_assert_uint_eq(listed(&f, &(struct pawl_filter){ .state = PAWL_STATE_DEAD + 1,
                                                        .unreplayed = true }, &l), 1);
    ck_assert_int_eq(l.ids[0], dead2);
    ck_assert_uint_eq(listed(&f, &(struct pawl_filter){ .state = PAWL_STATE_DEAD + 1,
                                                        .dead_class = "poison" }, &l), 0);
    ck_assert_uint_eq(listed(&f, &(struct pawl_filter){ .state = PAWL_STATE_READY + 1 }, &l), 4);
    ck_assert_uint_eq(listed(&f, &(struct pawl_filter){ .task = "letter" }, &l), 3);
    ck_assert_uint_eq(listed(&f, &(struct pawl_filter){ .queue = "post" }, &l), 3);
    ck_assert_uint_eq(listed(&f, &(struct pawl_filter){ .source = "src", .key = "k" }, &l), 2);
    ck_assert_uint_eq(listed(&f, &(struct pawl_filter){ .limit = 2 }, &l), 2);
    ck_assert_uint_eq(listed(&f, &(struct pawl_filter){ .after_id = dead2 }, &l), 4);
    l.stop_at = 3;
    ck_assert_uint_eq(listed(&f, &(struct pawl_filter){0}, &l), 3);
    fx_end(&f);
}
END_TEST

START_TEST(each_store_dead_list_shows_the_newest_of_a_root_when_asked)
{
    struct pawl_filter p = { .state = PAWL_STATE_DEAD + 1, .newest_per_root = true };
    struct list l = {0};
    int64_t id2 = 0;
    struct fx f;

    begin(&f, _i);
    const int64_t a = kill_one(&f, "k"), b = kill_one(&f, NULL);
    fx_ok(store_replay(f.st, a, &plain, &id2, &f.e), &f);
    ck_assert_uint_eq(listed(&f, &p, &l), 2); /* the replay has not died yet */
    const struct job job = fx_claim_one(&f);
    fx_settle(&f, &job, OUT_PERMANENT);
    ck_assert_uint_eq(listed(&f, &p, &l), 2);
    ck_assert_int_eq(l.ids[0], b);
    ck_assert_int_eq(l.ids[1], id2);
    p.since_at_us = f.clock.wall_us + 1;
    ck_assert_uint_eq(listed(&f, &p, &l), 0);
    fx_end(&f);
}
END_TEST

static bool queue_row(void *ctx, const struct pawl_queue_stat *q)
{
    struct pawl_queue_stat *out = ctx;

    if (strcmp(q->queue, "post") == 0) *out = *q;
    return true;
}

START_TEST(each_store_queue_counts_are_true)
{
    struct pawl_request r = fx_req("mail", NULL, "{}");
    struct pawl_queue_stat q = {0};
    struct fx f;

    begin(&f, _i);
    kill_one(&f, NULL);
    r.queue = "post";
    fx_put_req(&f, &r);
    const int64_t oldest = f.clock.wall_us;
    fx_add(&f, SEC);
    fx_put_req(&f, &r);
    r.run_at_us = f.clock.wall_us + DAY;
    fx_put_req(&f, &r);
    fx_ok(store_queues(f.st, queue_row, &q, &f.e), &f);
    ck_assert_int_eq(q.due, 2);
    ck_assert_int_eq(q.later, 1);
    ck_assert_int_eq(q.dead, 1);
    ck_assert_int_eq(q.running, 0);
    ck_assert_int_eq(q.oldest_due_at_us, oldest);
    fx_claim_one(&f);
    fx_ok(store_pause(f.st, "post", NULL, true, &f.e), &f);
    fx_ok(store_queues(f.st, queue_row, &q, &f.e), &f);
    ck_assert_int_eq(q.running, 1);
    ck_assert(q.paused);
    fx_end(&f);
}
END_TEST

static void add(TCase *tc)
{
    FX_ADD(tc, each_store_replay_is_a_new_job_of_the_same_root);
    FX_ADD(tc, each_store_second_replay_is_refused_and_names_the_first);
    FX_ADD(tc, each_store_second_replay_with_a_reason_is_recorded);
    FX_ADD(tc, each_store_replay_with_edited_args_runs_the_edited);
    FX_ADD(tc, each_store_chain_of_replays_is_bounded);
    FX_ADD(tc, each_store_two_operators_replay_each_job_once);
    FX_ADD(tc, each_store_replay_that_fails_leaves_the_dead_as_it_was);
    FX_ADD(tc, each_store_discard_ends_a_dead_job_with_its_reason);
    FX_ADD(tc, each_store_cancel_tells_the_truth);
    FX_ADD(tc, each_store_run_now_skips_the_wait_and_nothing_else);
    FX_ADD(tc, each_store_list_filters_by_state_task_queue_key_and_class);
    FX_ADD(tc, each_store_dead_list_shows_the_newest_of_a_root_when_asked);
    FX_ADD(tc, each_store_queue_counts_are_true);
}

int main(void)
{
    return ut_main("people", add, 30);
}
