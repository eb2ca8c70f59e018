// SPDX-License-Identifier: Apache-2.0
/* test_pg_race.c - two workers at the same rows at the same moment, on PostgreSQL: what one of them
 * finds out late is decided under the lock that it waited for. */
#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include "lib/fx.h"

static void begin(struct fx *f)
{
    fx_begin(f, 1);
    fx_task(f, "apply");
    fx_join(f);
}

static int64_t put_v(struct fx *f, const char *args)
{
    struct pawl_request r = fx_req("apply", NULL, args);

    r.entity = "e";
    r.version = 5;
    r.has_version = true;
    return fx_put_req(f, &r);
}

/* A worker elsewhere settles job `a` and has not committed yet. */
static void other_settles(struct fx *f, int64_t a)
{
    fx_sql(f, "BEGIN");
    fx_sqlf(f, "DELETE FROM pawl_x_ready WHERE id = %" PRId64, a);
    fx_sqlf(f, "INSERT INTO pawl_x_done (job_id, outcome, lease_id, worker, started_at_us,"
               " ended_at_us, runs, failures, lost, releases, snoozes) VALUES (%" PRId64 ", 'done',"
               " '\\x%032d', 'other', 1, 2, 1, 0, 0, 0, 0)", a, 7);
    fx_sqlf(f, "INSERT INTO pawl_x_version (task_id, entity, version, job_id, args_hash,"
               " args_bytes) SELECT task_id, 'e', 5, id, 0, length(args) FROM pawl_x_job WHERE"
               " id = %" PRId64, a);
}

/* `fn` runs in a thread until it waits for the other one's lock, which is let go then. */
struct racer { struct fx *f; void *own; const char *end; enum pawl_rc rc; };

static void race(struct racer *r, void *(*fn)(void *))
{
    pthread_t t;

    ck_assert_int_eq(pthread_create(&t, NULL, fn, r), 0);
    for (int i = 0; fx_num(r->f, "SELECT count(*) FROM pg_locks WHERE NOT granted") == 0; i++) {
        ck_assert_int_lt(i, 2000);
        fx_sql(r->f, "SELECT pg_sleep(0.005)");
    }
    fx_sql(r->f, r->end != NULL ? r->end : "COMMIT");
    ck_assert_int_eq(pthread_join(t, NULL), 0);
    fx_ok(r->rc, r->f);
}

static void is_conflict(struct fx *f, int64_t id)
{
    const struct fx_job x = fx_job(f, id);

    ck_assert_int_eq(x.j.state, PAWL_STATE_DEAD);
    ck_assert_str_eq(x.dead_class, "conflict");
    ck_assert_int_eq(fx_effects(f, id), 0);
    ck_assert_int_eq(fx_num(f, "SELECT count(*) FROM pawl_x_running"), 0);
}

/* --- equal versions with other args, settled at one moment --- */

static void *settle(void *ctx)
{
    struct racer *r = ctx;

    r->rc = leased_turn(r->own, r->f->st, false, &r->f->info, &r->f->e);
    return NULL;
}

START_TEST(postgres_leased_settles_of_one_version_at_one_moment_are_a_conflict)
{
    struct slot *slots;
    size_t n = 0;
    struct fx f;

    begin(&f);
    const int64_t b = put_v(&f, "[55]");
    struct leased *l = leased_new(&f.lane, 1, &f.clock.env);
    slots = leased_slots(l, &n);
    fx_ok(leased_turn(l, f.st, true, &f.info, &f.e), &f);
    ck_assert_int_eq(slots[0].phase, SLOT_HELD);
    slots[0].found = fx_found(OUT_DONE, NULL);
    slots[0].phase = SLOT_ENDED;
    other_settles(&f, put_v(&f, "[5]"));
    struct racer r = { .f = &f, .own = l };
    race(&r, settle);
    fx_ok(leased_turn(l, f.st, false, &f.info, &f.e), &f);
    ck_assert_uint_eq(leased_busy(l), 0);
    is_conflict(&f, b);
    fx_counters(&f, b, 1, 0, 0, 0, 0);
    leased_free(&l);
    fx_end(&f);
}
END_TEST

static void *batch(void *ctx)
{
    struct racer *r = ctx;

    r->rc = fx_batch(r->f, NULL);
    return NULL;
}

START_TEST(postgres_effects_of_one_version_at_one_moment_are_a_conflict)
{
    struct fx f;

    begin(&f);
    const int64_t b = put_v(&f, "[55]");
    fx_batch_size(&f, 1);
    const int64_t a = put_v(&f, "[5]");
    other_settles(&f, a);
    struct racer r = { .f = &f };
    race(&r, batch);
    fx_drain(&f);
    is_conflict(&f, b);
    fx_end(&f);
}
END_TEST

static void prepare(void *ctx, struct store *st, const struct lane_task *t, const struct job *job,
                    void **plan, struct arena *arena, struct finding *found)
{
    (void)ctx;
    (void)st;
    (void)t;
    (void)job;
    (void)plan;
    (void)arena;
    *found = fx_found(OUT_DONE, NULL);
}

static void apply(void *ctx, struct store *st, const struct lane_task *t, const struct job *job,
                  void *plan, struct arena *arena, struct finding *found, bool *pinned)
{
    (void)ctx;
    (void)st;
    (void)t;
    (void)job;
    (void)plan;
    (void)arena;
    (void)pinned;
    *found = fx_found(OUT_DONE, NULL);
}

static void drop(void *ctx, const struct lane_task *t, const struct job *job, void *plan)
{
    (void)ctx;
    (void)t;
    (void)job;
    (void)plan;
}

static void *step(void *ctx)
{
    struct racer *r = ctx;
    struct effect_report out;

    r->rc = prepared_step(r->own, r->f->st, &out, &r->f->e);
    return NULL;
}

START_TEST(postgres_prepared_jobs_of_one_version_at_one_moment_are_a_conflict)
{
    static const struct prepared_calls calls = { prepare, apply, drop };
    struct fx f;

    begin(&f);
    const int64_t b = put_v(&f, "[55]");
    const struct prepared_opts o = { .lane = &f.lane, .calls = &calls, .env = &f.clock.env,
                                     .batch_max = 1 };
    struct prepared *p = prepared_new(&o);
    struct effect_report out;
    other_settles(&f, put_v(&f, "[5]"));
    struct racer r = { .f = &f, .own = p };
    race(&r, step);
    for (int i = 0; i < 5; i++)
        fx_ok(prepared_step(p, f.st, &out, &f.e), &f);
    is_conflict(&f, b);
    ck_assert_uint_eq(prepared_busy(p), 0);
    prepared_free(&p);
    fx_end(&f);
}
END_TEST

/* --- a death, and what it left on the server --- */

static void claim_and_die(struct fx *f, void *ctx)
{
    struct job jobs[3];

    (void)ctx;
    fx_join(f);
    ck_assert_uint_eq(fx_claim(f, jobs, 3, false), 3);
    kill(getpid(), SIGKILL);
}

static void *reap(void *ctx)
{
    struct racer *r = ctx;

    r->rc = engine_reap(r->f->st, &r->f->clock.env, r->own, &r->f->e);
    return NULL;
}

/* Its transaction outlives it by moments: none of its jobs may be passed over meanwhile, for nobody
 * would look for them before a lease is over, and the last words are read once. */
START_TEST(postgres_jobs_that_a_death_left_locked_are_recovered_with_the_others)
{
    struct reap_report rep;
    struct fx f;

    fx_begin(&f, 1);
    fx_task(&f, "apply");
    for (int i = 0; i < 3; i++)
        fx_put(&f, "apply", "{}");
    fx_shut(&f);
    ck_assert(WIFSIGNALED(fx_wait(fx_child(&f, claim_and_die, NULL))));
    fx_open(&f);
    fx_sql(&f, "BEGIN; DELETE FROM pawl.x_running WHERE job_id < 3");
    struct racer r = { .f = &f, .own = &rep, .end = "ROLLBACK" };
    race(&r, reap);
    ck_assert_uint_eq(rep.suspects, 3);
    for (int64_t id = 1; id <= 3; id++)
        fx_counters(&f, id, 1, 0, 0, 0, 0);
    fx_end(&f);
}
END_TEST

/* --- a failed job, until its verdict is there --- */

/* Ways to fail; after so many jobs that went well, which need no savepoints. */
static const struct { const char *sql; int before; } fails[] = {
    { "INSERT INTO nowhere VALUES (1)", 0 },
    { "INSERT INTO child VALUES (7)", 0 }, /* at the COMMIT */
    { "INSERT INTO child VALUES (7)", 80 },
};

static void run_sql(struct fx *f, struct store *st, const struct job *job, struct finding *found,
                    bool *pinned)
{
    struct store_stmt *s = NULL;
    struct pawl_error e = {0};

    if (job->args[0] != '"') return;
    char *sql = arena_dup(&f->arena, job->args + 1, job->args_bytes - 2);
    enum pawl_rc rc = store_stmt_prepare(st, sql, &s, &e);
    if (rc == PAWL_OK) rc = store_stmt_run(st, s, NULL, 0, NULL, 0, NULL, &e);
    store_stmt_free(&s);
    if (rc != PAWL_OK)
        *found = fx_found(classify_sql(e.native, pinned), arena_strdup(&f->arena, e.msg));
}

static void fail_and_stop(struct fx *f, void *ctx)
{
    (void)ctx;
    fx_join(f);
    f->on_run = run_sql;
    fx_arm("verdict.before", "stop:0:1");
    fx_drain(f);
    fx_ok(store_worker_leave(f->st, &f->e), f);
}

START_TEST(postgres_failed_job_is_nobody_elses_before_its_verdict)
{
    char args[80];
    siginfo_t info;
    struct fx f;

    begin(&f);
    fx_sql(&f, "CREATE TABLE parent (a INTEGER PRIMARY KEY); CREATE TABLE child (a INTEGER"
               " REFERENCES parent DEFERRABLE INITIALLY DEFERRED)");
    for (int i = 0; i < fails[_i].before; i++)
        fx_put(&f, "apply", "{}");
    snprintf(args, sizeof args, "\"%s\"", fails[_i].sql);
    const int64_t bad = fx_put(&f, "apply", args);
    fx_shut(&f);
    const pid_t pid = fx_child(&f, fail_and_stop, NULL);
    ck_assert_int_eq(waitid(P_PID, (id_t)pid, &info, WSTOPPED | WEXITED), 0);
    ck_assert_int_eq(info.si_code, CLD_STOPPED);
    fx_open(&f);
    fx_join(&f);
    struct effect_report r;
    fx_ok(fx_batch(&f, &r), &f);
    ck_assert_uint_eq(r.claimed, 0);
    kill(pid, SIGCONT);
    fx_wait_ok(pid);
    const struct fx_job x = fx_job(&f, bad);
    ck_assert_int_eq(x.j.state, PAWL_STATE_DEAD);
    ck_assert_str_eq(x.dead_class, "permanent");
    fx_counters(&f, bad, 1, 1, 0, 0, 0);
    fx_end(&f);
}
END_TEST

static void add(TCase *tc)
{
    if (fx_kinds_n() < 2) return;
    tcase_add_test(tc, postgres_leased_settles_of_one_version_at_one_moment_are_a_conflict);
    tcase_add_test(tc, postgres_effects_of_one_version_at_one_moment_are_a_conflict);
    tcase_add_test(tc, postgres_prepared_jobs_of_one_version_at_one_moment_are_a_conflict);
    tcase_add_test(tc, postgres_jobs_that_a_death_left_locked_are_recovered_with_the_others);
    tcase_add_loop_test(tc, postgres_failed_job_is_nobody_elses_before_its_verdict, 0,
                        (int)UT_N(fails));
}

int main(void)
{
    return ut_main("postgres_race", add, 30);
}
