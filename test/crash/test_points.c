// SPDX-License-Identifier: Apache-2.0
/* test_points.c - the process dies at every named point, at every pass through it; the next ones
 * recover and finish, and an oracle outside of Pawl counts each effect once.
 *
 * The life: reap a dead worker, produce with keys, cancel one, effect batches with a retry and a
 * dead letter, leased turns with a release, replay, prune. A life that was cut short is lived again
 * from the start by a new process: every step may be repeated, as producers and operators do.
 * Countdown: pass 0, 1, 2 ... of the point, until a life comes through untouched. */
#include <inttypes.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include "base/fail.h"
#include "lib/fx.h"

enum { EFFECT_JOBS = 7, LEASED_JOBS = 4, PASSES_MAX = 60, TRIES_MAX = 12 };

/* What the world outside remembers: survives the children's deaths. */
struct world {
    int64_t effect_ids[EFFECT_JOBS], leased_ids[LEASED_JOBS]; /* acknowledged; 0: not yet */
    int64_t replayed_id, pruned;
    bool cancelled, stubborn; /* stubborn: it meets errors and tries again, and is not to die */
};

/* The effect jobs by their args: plain ones, one that fails at first, one that dies until its args
 * are mended, one that gets cancelled. */
static const char *const effect_args[EFFECT_JOBS] = { "[0]", "[0]", "[\"retry\"]", "[0]",
                                                      "[\"dead\"]", "[\"cancel\"]", "[0]" };

static void behave(struct fx *f, struct store *st, const struct job *job, struct finding *found,
                   bool *pinned)
{
    (void)f;
    (void)st;
    (void)pinned;
    if (strstr(job->args, "retry") != NULL && job->n.failures == 0)
        *found = fx_found(OUT_TRANSIENT, "not yet");
    if (strstr(job->args, "dead") != NULL) *found = fx_found(OUT_PERMANENT, "never");
}

/* An error that a caller would meet by trying again; anything else fails the test. */
static bool again(struct fx *f, const struct world *w, enum pawl_rc rc, int *tries)
{
    if (rc == PAWL_OK) return false;
    ck_assert_msg(w->stubborn && (rc == PAWL_IO || rc == PAWL_UNSURE || rc == PAWL_STORE),
                  "%s", f->e.msg);
    ck_assert_int_lt(++*tries, TRIES_MAX);
    return true;
}

/* The producer: the same keyed requests as long as it has not heard yes. */
static void produce(struct fx *f, struct world *w)
{
    struct pawl_request r[EFFECT_JOBS + LEASED_JOBS];
    struct pawl_enqueued out[EFFECT_JOBS + LEASED_JOBS];
    char keys[EFFECT_JOBS + LEASED_JOBS][8];
    int tries = 0;
    enum pawl_rc rc;

    for (size_t i = 0; i < UT_N(r); i++) {
        snprintf(keys[i], sizeof keys[i], "k%zu", i);
        r[i] = i < EFFECT_JOBS ? fx_req("effect", keys[i], effect_args[i])
                               : fx_req("leased", keys[i], "{}");
    }
    do
        rc = store_enqueue(f->st, r, UT_N(r), out, NULL, &f->e);
    while (again(f, w, rc, &tries));
    for (size_t i = 0; i < UT_N(r); i++) {
        int64_t *id = i < EFFECT_JOBS ? &w->effect_ids[i] : &w->leased_ids[i - EFFECT_JOBS];
        if (*id == 0) *id = out[i].id; /* a duplicate after a replay names the newest */
        free(out[i].result);
    }
}

static void cancel(struct fx *f, struct world *w)
{
    enum pawl_state state;
    int tries = 0;
    enum pawl_rc rc;

    if (w->cancelled) return;
    do {
        rc = store_cancel(f->st, w->effect_ids[5], &state, &f->e);
        if (rc == PAWL_TOOLATE && state == PAWL_STATE_CANCELLED) rc = PAWL_OK;
    } while (again(f, w, rc, &tries));
    w->cancelled = true;
}

/* The lanes are told apart by the task: what is effect here must not be leased there. */
static void only(struct fx *f, size_t task)
{
    static struct lane_task both[2];

    if (both[0].name == NULL) memcpy(both, f->tasks, sizeof both);
    f->tasks[0] = both[task];
    f->lane.tasks_n = 1;
    effect_free(&f->effect);
}

static void effects(struct fx *f, struct world *w)
{
    struct effect_report r;
    int tries = 0;

    only(f, 0);
    f->on_run = behave;
    for (;;) {
        if (again(f, w, fx_batch(f, &r), &tries) || r.claimed > 0) continue;
        if (r.info.next_due_us == 0) return;
        f->clock.wall_us = r.info.next_due_us;
    }
}

static void leased(struct fx *f, struct world *w)
{
    struct pending left = { .due = 1 };
    struct slot *slots;
    size_t n = 0;
    int tries = 0;

    only(f, 1);
    struct leased *l = leased_new(&f->lane, 2, &f->clock.env);
    slots = leased_slots(l, &n);
    while (left.due + left.running + left.retrying > 0) {
        if (again(f, w, leased_turn(l, f->st, true, &f->info, &f->e), &tries)) continue;
        for (size_t i = 0; i < n; i++) {
            if (slots[i].phase != SLOT_HELD) continue;
            slots[i].phase = SLOT_ENDED;
            slots[i].found = fx_found(OUT_DONE, NULL);
            if (slots[i].job.n.releases == 0) slots[i].found = fx_found(OUT_RELEASED, NULL);
        }
        fx_ok(store_pending(f->st, &f->lane, &left, &f->e), f);
    }
    leased_free(&l);
}

static void replay(struct fx *f, struct world *w)
{
    const struct pawl_replay mended = { .args = "[\"mended\"]" };
    int64_t id = 0;
    int tries = 0;
    enum pawl_rc rc;

    do {
        rc = store_replay(f->st, w->effect_ids[4], &mended, &id, &f->e);
        if (rc == PAWL_TOOLATE && id != 0) rc = PAWL_OK; /* the click before this one did it */
    } while (again(f, w, rc, &tries));
    ck_assert(w->replayed_id == 0 || w->replayed_id == id);
    w->replayed_id = id;
}

static void prune(struct fx *f, struct world *w)
{
    const struct pawl_prune_opts how = { .done_older_us = 1, .batch = 3 };
    struct pawl_pruned out;
    int tries = 0;

    fx_add(f, DAY);
    while (again(f, w, store_prune(f->st, &how, &out, &f->e), &tries))
        continue;
    w->pruned = fx_stat(f, "pruned");
}

static void reap(struct fx *f, struct world *w)
{
    struct reap_report r;
    int tries = 0;

    while (again(f, w, engine_reap(f->st, &f->clock.env, &r, &f->e), &tries))
        continue;
}

static void live(struct fx *f, void *ctx)
{
    struct world *w = ctx;

    fx_join(f);
    reap(f, w);
    produce(f, w);
    cancel(f, w);
    effects(f, w);
    leased(f, w);
    replay(f, w);
    effects(f, w);
    prune(f, w);
    fx_ok(store_worker_leave(f->st, &f->e), f);
}

/* --- the oracle --- */

static void audit(struct fx *f, const struct world *w)
{
    fx_check(f);
    ck_assert_int_eq(fx_num(f, "SELECT count(*) FROM pawl_x_ready"), 0);
    ck_assert_int_eq(fx_num(f, "SELECT count(*) FROM pawl_x_running"), 0);
    for (int i = 0; i < EFFECT_JOBS; i++) /* 4: dead; 5: cancelled */
        ck_assert_int_eq(fx_effects(f, w->effect_ids[i]), i == 4 || i == 5 ? 0 : 1);
    ck_assert_int_eq(fx_effects(f, w->replayed_id), 1);
    ck_assert_int_eq(fx_num(f, "SELECT count(*) FROM fx"), EFFECT_JOBS - 1);
    ck_assert_int_eq(fx_stat(f, "replays"), 1);
    ck_assert_int_eq(fx_stat(f, "accepted"), EFFECT_JOBS + LEASED_JOBS + 1 + 1);
    /* Only the dead chain and what is left of it stays: the rest ended and was pruned. */
    ck_assert_int_eq(fx_num(f, "SELECT count(*) FROM pawl_x_dead"), 1);
    ck_assert_int_eq(fx_num(f, "SELECT count(*) FROM pawl_x_job"), 2);
    ck_assert_int_eq(fx_num(f, "SELECT count(*) FROM pawl_x_key WHERE state = 'done'"),
                     EFFECT_JOBS - 2 + LEASED_JOBS);
    ck_assert_int_eq(fx_num(f, "SELECT count(*) FROM pawl_x_key WHERE state = 'cancelled'"), 1);
}

/* A worker that died with a leased job in hand, for the reaper to find. */
static void claim_and_die(struct fx *f, void *ctx)
{
    struct job job;

    (void)ctx;
    only(f, 1);
    fx_join(f);
    ck_assert_uint_eq(fx_claim(f, &job, 1, true), 1);
    _exit(0);
}

static void begin(struct fx *f, int kind)
{
    fx_begin(f, kind);
    fx_task(f, "effect");
    fx_task(f, "leased");
    fx_put(f, "leased", "[\"of a dead worker\"]");
    fx_shut(f);
    fx_wait_ok(fx_child(f, claim_and_die, NULL));
}

/* Live once with the point armed. returns whether it struck. */
static bool strike(struct fx *f, struct world *w, const char *point, const char *action)
{
    fx_arm(point, action);
    const int status = fx_wait(fx_child(f, live, w));
    fx_disarm();
    if (WIFSIGNALED(status)) {
        ck_assert_int_eq(WTERMSIG(status), SIGKILL);
        return true;
    }
    ck_assert_msg(WEXITSTATUS(status) == 0, "%s=%s: a life ended with %x", point, action, status);
    return false;
}

/* What a machine would have to be like: test/e2e/test_doctor.py. */
static const char *const doctor_points[] = { "doctor.disk", "doctor.network" };

/* Points that a life passes; init has lives of its own below, the worker's points are passed by the
 * real program (test/e2e/test_work_crash.py). */
static const char *const points[] = {
    "batch.claimed", "effect.job", "effect.done", "effect.commit.before", "effect.commit.after",
    "verdict.before", "verdict.after", "turn.before", "turn.commit.before", "turn.commit.after",
    "reap.before", "reap.after", "replay.before", "replay.after", "enqueue.before",
    "enqueue.after", "prune.batch", "cancel.before",
};
static const char *const init_points[] = { "init.begin", "init.middle", "init.end" };
/* These have lives of their own, too (test_combine_points.c, store/test_sqlite_fork.c). */
static const char *const combine_points[] = { "side.flocked", "combine.posted", "combine.taken",
    "combine.commit.before", "combine.commit.after", "combine.answered" };
static const char *const copy_points[] = { "copy.table", "copy.arrived.before",
    "copy.arrived.after", "copy.moved.before", "copy.moved.after", "copy.open.before",
    "copy.open.after", "copy.left.after" }; /* e2e/test_copy.py */
static const char *const worker_points[] = { "exec.spawned", "exec.exited", "release.before" };

static bool listed(const char *name, const char *const *list, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (strcmp(list[i], name) == 0) return true;
    return false;
}

START_TEST(crash_every_point_is_tested_somewhere)
{
    for (const char *const *p = fail_names(); *p != NULL; p++)
        ck_assert_msg(listed(*p, points, UT_N(points)) ||
                      listed(*p, init_points, UT_N(init_points)) ||
                      listed(*p, combine_points, UT_N(combine_points)) ||
                      listed(*p, copy_points, UT_N(copy_points)) ||
                      listed(*p, doctor_points, UT_N(doctor_points)) ||
                      listed(*p, worker_points, UT_N(worker_points)), "%s is not", *p);
}
END_TEST

START_TEST(crash_killed_at_a_point_every_effect_is_there_once)
{
    const char *point = points[(size_t)_i % UT_N(points)];
    char action[32];
    int pass = 0;
    struct fx f;

    for (bool struck = true; struck; pass++) {
        struct world *w = fx_shared(sizeof *w);

        ck_assert_int_lt(pass, PASSES_MAX);
        begin(&f, _i / (int)UT_N(points));
        snprintf(action, sizeof action, "kill:%d:1", pass);
        struck = strike(&f, w, point, action);
        if (struck) fx_wait_ok(fx_child(&f, live, w)); /* the next one finishes */
        fx_open(&f);
        audit(&f, w);
        fx_end(&f);
    }
    printf("# %s: killed at %d passes\n", point, pass - 1);
    ck_assert_int_gt(pass, 1); /* a point that is never reached proves nothing */
}
END_TEST

/* Killed again and again, each time a little further, on one and the same store. */
START_TEST(crash_killed_at_every_pass_of_one_life_it_still_comes_to_its_end)
{
    const char *point = points[(size_t)_i % UT_N(points)];
    struct world *w = fx_shared(sizeof *w);
    char action[32];
    struct fx f;

    begin(&f, _i / (int)UT_N(points));
    for (int pass = 0; pass < 5; pass++) {
        snprintf(action, sizeof action, "kill:%d:1", pass);
        strike(&f, w, point, action);
        fx_open(&f);
        fx_check(&f);
        fx_shut(&f);
    }
    fx_wait_ok(fx_child(&f, live, w));
    fx_open(&f);
    audit(&f, w);
    fx_end(&f);
}
END_TEST

START_TEST(crash_error_at_a_point_is_told_and_the_caller_may_try_again)
{
    const char *point = points[(size_t)_i % UT_N(points)];
    char action[32];
    struct fx f;

    for (int pass = 0; pass < 4; pass++) {
        struct world *w = fx_shared(sizeof *w);

        begin(&f, _i / (int)UT_N(points));
        w->stubborn = true;
        snprintf(action, sizeof action, "error:%d:1", pass);
        ck_assert(!strike(&f, w, point, action));
        fx_open(&f);
        audit(&f, w);
        fx_end(&f);
    }
}
END_TEST

/* --- init --- */

static void init_it(struct fx *f, void *ctx)
{
    const struct store_opts o = { .url = f->url, .env = &f->clock.env, .accept_wal_risk = true };

    (void)ctx;
    fx_ok(store_init(&o, NULL, &f->e), f);
}

START_TEST(crash_killed_in_init_the_next_init_makes_the_store)
{
    const char *point = init_points[(size_t)_i % UT_N(init_points)];
    struct fx f;

    fx_begin(&f, _i / (int)UT_N(init_points));
    if (f.kind == &fx_postgres) /* its store is no file in the directory */
        fx_sql(&f, "DROP SCHEMA pawl CASCADE");
    fx_shut(&f);
    fx_remove(f.dir);
    ck_assert_ptr_nonnull(fx_mkdir(&f));
    fx_arm(point, "kill");
    ck_assert(WIFSIGNALED(fx_wait(fx_child_bare(&f, init_it, NULL))));
    fx_disarm();
    fx_wait_ok(fx_child_bare(&f, init_it, NULL));
    fx_wait_ok(fx_child_bare(&f, init_it, NULL));
    fx_open(&f);
    ck_assert_int_eq(fx_num(&f, "SELECT count(*) FROM pawl_x_migration"), 1);
    fx_put(&f, "mail", "{}");
    fx_end(&f);
}
END_TEST

static void add(TCase *tc)
{
    const int n = fx_kinds_n() * (int)UT_N(points);

    tcase_add_test(tc, crash_every_point_is_tested_somewhere);
    tcase_add_loop_test(tc, crash_killed_at_a_point_every_effect_is_there_once, 0, n);
    tcase_add_loop_test(tc, crash_killed_at_every_pass_of_one_life_it_still_comes_to_its_end, 0, n);
    tcase_add_loop_test(tc, crash_error_at_a_point_is_told_and_the_caller_may_try_again, 0, n);
    tcase_add_loop_test(tc, crash_killed_in_init_the_next_init_makes_the_store, 0,
                        fx_kinds_n() * (int)UT_N(init_points));
}

int main(void)
{
    return ut_main("crash", add, 60);
}
