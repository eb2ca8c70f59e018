// SPDX-License-Identifier: Apache-2.0
/* test_busy.c - the database is the user's, too: while somebody else writes, every verb waits
 * within its bound, says BUSY, has changed nothing, and works when tried again. Reading never
 * waits. */
#include <inttypes.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include "lib/fx.h"

#define PATIENCE_US 100000

static void begin(struct fx *f, int kind)
{
    fx_begin(f, kind);
    fx_task(f, "mail");
    fx_join(f);
    store_patience(f->st, PATIENCE_US);
}

/* The verbs that write, each on a store with: 1 ready, 2 dead, 3 leased (in `held`). */
struct scene { struct fx *f; struct job held; };
typedef enum pawl_rc verb_fn(struct scene *s);

static enum pawl_rc enqueue(struct scene *s)
{
    const struct pawl_request r = fx_req("mail", "new", "{}");

    return fx_put_rc(s->f, &r);
}
static enum pawl_rc settle(struct scene *s)
{
    const struct finding found = fx_found(OUT_DONE, NULL);
    struct settle x = fx_decided(s->f, &s->held, &found);
    const enum pawl_rc rc = fx_turn(s->f, &x, 1);

    ck_assert_int_eq(x.result, rc == PAWL_OK ? SETTLE_OK : SETTLE_PENDING);
    return rc;
}
static enum pawl_rc claim(struct scene *s)
{
    struct job job;
    size_t n = 0;
    const enum pawl_rc rc = store_turn(s->f->st, NULL, 0, &s->f->lane, 1, false, &s->f->arena, &job,
                                       &n, &s->f->info, &s->f->e);

    ck_assert_uint_eq(n, rc == PAWL_OK ? 1 : 0);
    return rc;
}
static enum pawl_rc batch(struct scene *s) { return fx_batch(s->f, NULL); }
static enum pawl_rc cancel(struct scene *s)
{
    enum pawl_state state;

    return store_cancel(s->f->st, 1, &state, &s->f->e);
}
static enum pawl_rc replay(struct scene *s)
{
    const struct pawl_replay plain = {0};
    int64_t id;

    return store_replay(s->f->st, 2, &plain, &id, &s->f->e);
}
static enum pawl_rc discard(struct scene *s)
{
    return store_discard(s->f->st, 2, "no more", &s->f->e);
}
static enum pawl_rc halt(struct scene *s)
{
    return store_pause(s->f->st, NULL, "mail", true, &s->f->e);
}
static enum pawl_rc prune(struct scene *s)
{
    const struct pawl_prune_opts how = { .done_older_us = 1, .keys_older_us = 1 };
    struct pawl_pruned out;

    return store_prune(s->f->st, &how, &out, &s->f->e);
}
static enum pawl_rc declare(struct scene *s)
{
    const struct policy p = fx_policy();
    struct buf stored = {0};
    bool differs;
    int64_t id;
    const enum pawl_rc rc = store_task_declare(s->f->st, "other", &p, false, &id, &stored, &differs,
                                               &s->f->e);

    buf_free(&stored);
    return rc;
}

static const struct { const char *name; verb_fn *fn; } verbs[] = {
    { "enqueue", enqueue }, { "settle", settle }, { "claim", claim }, { "batch", batch },
    { "cancel", cancel }, { "replay", replay }, { "discard", discard }, { "pause", halt },
    { "prune", prune }, { "declare", declare },
};

static struct scene scene(struct fx *f)
{
    struct scene s = { .f = f };

    fx_put(f, "mail", "{}");
    fx_put(f, "mail", "{}");
    struct job jobs[2];
    ck_assert_uint_eq(fx_claim(f, jobs, 2, true), 2);
    fx_settle(f, &jobs[1], OUT_PERMANENT);
    fx_settle(f, &jobs[0], OUT_RELEASED);
    ck_assert_int_eq(fx_state(f, 2), PAWL_STATE_DEAD);
    struct pawl_request r = fx_req("mail", NULL, "{}");
    r.has_priority = true;
    r.priority = 50;
    fx_put_req(f, &r);
    s.held = fx_claim_one(f);
    ck_assert_int_eq(s.held.id, 3);
    fx_put_req(f, &r); /* done: to be pruned */
    const struct job over = fx_claim_one(f);
    fx_settle(f, &over, OUT_DONE);
    fx_add(f, SEC);
    return s;
}

static int64_t print(struct fx *f)
{
    return fx_num(f, "SELECT (SELECT count(*) FROM pawl_x_job) * 1000000 + (SELECT count(*) FROM"
                     " pawl_x_ready) * 10000 + (SELECT count(*) FROM pawl_x_running) * 1000 +"
                     " (SELECT count(*) FROM pawl_x_dead WHERE replayed_as IS NULL) * 100 +"
                     " (SELECT count(*) FROM pawl_x_task) * 10 +"
                     " (SELECT sum(paused) FROM pawl_x_task)");
}

START_TEST(each_store_verb_waits_for_a_foreign_writer_within_its_bound)
{
    const size_t i = (size_t)_i % UT_N(verbs);
    struct fx f;

    begin(&f, _i / (int)UT_N(verbs));
    struct scene s = scene(&f);
    const int64_t before = print(&f);
    fx_sql(&f, "BEGIN IMMEDIATE");
    fx_sql(&f, "INSERT INTO fx VALUES (0, 0)");
    const int64_t start = env_real()->mono_us(NULL);
    fx_is(verbs[i].fn(&s), PAWL_BUSY, &f);
    const int64_t took = env_real()->mono_us(NULL) - start;
    ck_assert_int_ge(took, PATIENCE_US / 2);
    ck_assert_int_lt(took, 10 * SEC);
    fx_sql(&f, "COMMIT");
    ck_assert_int_eq(print(&f), before);
    fx_is(verbs[i].fn(&s), PAWL_OK, &f);
    fx_end(&f);
}
END_TEST

static bool count_one(void *ctx, const struct pawl_job *j)
{
    (void)j;
    ++*(int *)ctx;
    return true;
}

START_TEST(each_store_reading_waits_for_nobody)
{
    int n = 0;
    struct fx f;

    begin(&f, _i);
    scene(&f);
    fx_sql(&f, "BEGIN IMMEDIATE");
    fx_sql(&f, "INSERT INTO fx VALUES (0, 0)");
    const int64_t start = env_real()->mono_us(NULL);
    fx_ok(store_jobs(f.st, &(struct pawl_filter){0}, count_one, &n, &f.e), &f);
    ck_assert_int_eq(n, 4);
    ck_assert_int_eq(fx_stat(&f, "ready"), 1);
    ck_assert_int_eq(fx_findings(&f, NULL), 0);
    ck_assert_int_eq(fx_state(&f, 2), PAWL_STATE_DEAD);
    ck_assert_int_lt(env_real()->mono_us(NULL) - start, 5 * SEC);
    fx_sql(&f, "ROLLBACK");
    fx_end(&f);
}
END_TEST

/* --- another process of Pawl stands still inside its transaction --- */

static void stand_still(struct fx *f, struct store *st, const struct job *job,
                        struct finding *found, bool *pinned)
{
    int *ready = f->ctx;

    (void)st;
    (void)job;
    (void)found;
    (void)pinned;
    ck_assert_int_eq(write(ready[1], "r", 1), 1);
    raise(SIGSTOP);
}

static void run_and_stop(struct fx *f, void *ctx)
{
    f->ctx = ctx;
    f->on_run = stand_still;
    fx_join(f);
    fx_ok(fx_batch(f, NULL), f);
}

START_TEST(each_store_stopped_worker_holds_the_others_no_longer_than_the_bound)
{
    const struct pawl_request r = fx_req("mail", "new", "{}");
    int ready[2], status = 0;
    struct fx f;

    begin(&f, _i);
    fx_put(&f, "mail", "{}");
    ck_assert_int_eq(pipe(ready), 0);
    fx_shut(&f);
    const pid_t pid = fx_child(&f, run_and_stop, ready);
    ck_assert(fx_readable(ready[0], 30000));
    fx_open(&f);
    store_patience(f.st, PATIENCE_US);
    fx_is(fx_put_rc(&f, &r), f.kind->one_writer ? PAWL_BUSY : PAWL_OK, &f);
    ck_assert_int_eq(fx_stat(&f, "ready"), f.kind->one_writer ? 1 : 2);
    kill(pid, SIGKILL);
    ck_assert_int_eq(waitpid(pid, &status, 0), pid);
    if (f.kind->one_writer) fx_put_req(&f, &r); /* its locks went with it */
    fx_reap(&f, f.st);
    fx_counters(&f, 1, 1, 0, 1, 0, 0);
    f.on_run = NULL;
    fx_join(&f);
    fx_drain(&f);
    ck_assert_int_eq(fx_num(&f, "SELECT count(*) FROM fx"), 2);
    fx_end(&f);
}
END_TEST

/* --- what the supervisor may see of its runner without waiting --- */

static void look_at_hand(struct fx *f, struct store *st, const struct job *job,
                         struct finding *found, bool *pinned)
{
    int64_t since = 0;

    (void)f;
    (void)found;
    (void)pinned;
    ck_assert_int_eq(store_in_hand(st, NULL, &since), job->id);
    ck_assert_int_gt(since, 0);
    ck_assert_int_le(since, env_real()->mono_us(NULL));
}

START_TEST(each_store_job_in_hand_is_seen_while_it_runs_only)
{
    int64_t since = 0;
    struct fx f;

    begin(&f, _i);
    for (int i = 0; i < 3; i++)
        fx_put(&f, "mail", "{}");
    f.on_run = look_at_hand;
    ck_assert_int_eq(store_in_hand(f.st, NULL, &since), 0);
    fx_drain(&f);
    ck_assert_int_eq(f.runs, 3);
    ck_assert_int_eq(store_in_hand(f.st, NULL, &since), 0);
    fx_end(&f);
}
END_TEST

START_TEST(each_store_is_sound_until_it_is_not)
{
    struct fx f;

    begin(&f, _i);
    ck_assert(store_sound(f.st));
    fx_sql(&f, "BEGIN IMMEDIATE");
    ck_assert(!store_sound(f.st));
    fx_sql(&f, "ROLLBACK");
    ck_assert(store_sound(f.st));
    fx_end(&f);
}
END_TEST

static void add(TCase *tc)
{
    tcase_add_loop_test(tc, each_store_verb_waits_for_a_foreign_writer_within_its_bound, 0,
                        fx_kinds_n() * (int)UT_N(verbs));
    FX_ADD(tc, each_store_reading_waits_for_nobody);
    FX_ADD(tc, each_store_stopped_worker_holds_the_others_no_longer_than_the_bound);
    FX_ADD(tc, each_store_job_in_hand_is_seen_while_it_runs_only);
    FX_ADD(tc, each_store_is_sound_until_it_is_not);
}

int main(void)
{
    return ut_main("busy", add, 30);
}
