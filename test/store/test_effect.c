// SPDX-License-Identifier: Apache-2.0
/* test_effect.c - effect mode: claim, work and acknowledgement are one commit; one bad job costs
 * the others nothing; what the handler's statements break is found and pinned. */
#include <assert.h>
#include <inttypes.h>
#include <string.h>
#include "base/text.h"
#include "lib/fx.h"

static void begin(struct fx *f, int kind)
{
    fx_begin(f, kind);
    fx_task(f, "mail");
    fx_join(f);
}

/* Runs one statement of the user's inside the effect transaction, and reports as the sql handler
 * does. args of the job, unless they are {}: the statement, as a JSON string without escapes. */
static void run_args(struct fx *f, struct store *st, const struct job *job, struct finding *found,
                     bool *pinned)
{
    struct store_stmt *s = NULL;
    struct pawl_error e = {0};
    int64_t changed = 0;
    enum pawl_rc rc;

    if (job->args[0] != '"') return;
    char *sql = arena_dup(&f->arena, job->args + 1, job->args_bytes - 2);
    rc = store_stmt_prepare(st, sql, &s, &e);
    if (rc == PAWL_OK) rc = store_stmt_run(st, s, NULL, 0, NULL, 0, &changed, &e);
    store_stmt_free(&s);
    if (rc == PAWL_OK) return;
    *found = fx_found(rc == PAWL_SQL ? classify_sql(e.native, pinned) : OUT_MISUSE,
                      arena_strdup(&f->arena, e.msg));
}

static int64_t put_sql(struct fx *f, const char *sql)
{
    char args[FX_TEXT];

    snprintf(args, sizeof args, "\"%s\"", sql);
    return fx_put(f, "mail", args);
}

/* n plain jobs, the bad one in the middle, n more; ids from first to first + 2n. */
static int64_t sandwich(struct fx *f, const char *sql, int n, int64_t *bad)
{
    int64_t first = 0;

    f->on_run = run_args;
    for (int i = 0; i < n; i++) {
        const int64_t id = fx_put(f, "mail", "{}");
        if (i == 0) first = id;
    }
    *bad = put_sql(f, sql);
    for (int i = 0; i < n; i++)
        fx_put(f, "mail", "{}");
    return first;
}

/* Every job but the bad one is done, its effect is there once, and it was charged nothing. */
static void others_done(struct fx *f, int64_t first, int n, int64_t bad)
{
    for (int64_t id = first; id <= first + 2 * n; id++) {
        if (id == bad) continue;
        ck_assert_int_eq(fx_state(f, id), PAWL_STATE_DONE);
        ck_assert_int_eq(fx_effects(f, id), 1);
        fx_counters(f, id, 0, 0, 0, 0, 0);
    }
}

START_TEST(each_store_batch_and_its_effects_are_one_commit)
{
    struct effect_report r;
    struct fx f;

    begin(&f, _i);
    for (int i = 0; i < 16; i++)
        fx_put(&f, "mail", "{}");
    const int64_t before = f.kind->flushes();
    fx_ok(fx_batch(&f, &r), &f);
    ck_assert_int_eq(f.kind->flushes() - before, 1);
    ck_assert_uint_eq(r.done, 16);
    ck_assert_int_eq(fx_num(&f, "SELECT count(*) FROM fx"), 16);
    ck_assert_int_eq(fx_num(&f, "SELECT count(*) FROM pawl_x_done d JOIN fx ON fx.job = d.job_id"),
                     16);
    fx_end(&f);
}
END_TEST

START_TEST(each_store_batch_that_cannot_commit_leaves_nothing)
{
    static const char *const points[] = { "batch.claimed", "effect.job", "effect.done",
                                          "effect.commit.before" };
    struct fx f;

    begin(&f, _i);
    for (size_t i = 0; i < UT_N(points); i++) {
        const int64_t id = fx_put(&f, "mail", "{}");

        fx_arm(points[i], "error:0:1");
        fx_is(fx_batch(&f, NULL), PAWL_IO, &f);
        fx_disarm();
        ck_assert_int_eq(fx_effects(&f, id), 0);
        fx_counters(&f, id, 0, 0, 0, 0, 0);
        ck_assert_int_eq(fx_state(&f, id), PAWL_STATE_READY);
        fx_ok(fx_batch(&f, NULL), &f);
        ck_assert_int_eq(fx_effects(&f, id), 1);
    }
    fx_end(&f);
}
END_TEST

START_TEST(each_store_commit_in_doubt_is_found_out_and_doubles_nothing)
{
    struct effect_report r;
    struct fx f;

    begin(&f, _i);
    for (int i = 0; i < 5; i++)
        fx_put(&f, "mail", "{}");
    fx_arm("effect.commit.after", "error:0:1");
    fx_ok(fx_batch(&f, &r), &f);
    fx_disarm();
    fx_drain(&f);
    ck_assert_int_eq(fx_stat(&f, "done"), 5);
    ck_assert_int_eq(fx_num(&f, "SELECT count(*) FROM fx"), 5);
    ck_assert_int_eq(fx_num(&f, "SELECT count(*) FROM pawl_x_attempt"), 0);
    fx_end(&f);
}
END_TEST

/* --- one bad job --- */

/* Ways for one job's statement to fail, and what becomes of it. The others never notice. */
struct bad_way {
    const char *sql, *error;
    enum pawl_state state;
    const char *class;
};
static const struct bad_way bad_ways[] = {
    { "INSERT INTO u VALUES (1)", "UNIQUE", PAWL_STATE_DEAD, "permanent" },
    { "INSERT OR ROLLBACK INTO u VALUES (1)", "UNIQUE", PAWL_STATE_DEAD, "permanent" },
    { "INSERT OR FAIL INTO u VALUES (1)", "UNIQUE", PAWL_STATE_DEAD, "permanent" },
    { "INSERT INTO t VALUES (1)", "no such day", PAWL_STATE_DEAD, "permanent" }, /* a trigger */
    { "INSERT INTO nowhere VALUES (1)", "no such table", PAWL_STATE_DEAD, "permanent" },
    { "INSERT INTO child VALUES (7)", "FOREIGN KEY", PAWL_STATE_DEAD, "permanent" }, /* at COMMIT */
    { "COMMIT", "COMMIT", PAWL_STATE_DEAD, "misuse" },
    { "ROLLBACK", "ROLLBACK", PAWL_STATE_DEAD, "misuse" },
    { "SAVEPOINT a", "SAVEPOINT", PAWL_STATE_DEAD, "misuse" },
    { "ATTACH 'other.db' AS x", "ATTACH", PAWL_STATE_DEAD, "misuse" },
    { "PRAGMA foreign_keys = OFF", "PRAGMA", PAWL_STATE_DEAD, "misuse" },
    { "DELETE FROM pawl_x_ready", "private", PAWL_STATE_DEAD, "misuse" },
    { "INSERT INTO thief VALUES (1)", "private", PAWL_STATE_DEAD, "misuse" }, /* by a trigger */
};
/* As many. There a trigger has the rights of the role, which is what bounds it. */
static const struct bad_way pg_bad_ways[] = {
    { "INSERT INTO u VALUES (1)", "unique constraint", PAWL_STATE_DEAD, "permanent" },
    { "INSERT INTO u SELECT 1 / (a - 1) FROM u", "division by zero", PAWL_STATE_DEAD, "permanent" },
    { "INSERT INTO u VALUES ('x')", "invalid input syntax", PAWL_STATE_DEAD, "permanent" },
    { "INSERT INTO t VALUES (1)", "no such day", PAWL_STATE_DEAD, "permanent" }, /* a trigger */
    { "INSERT INTO nowhere VALUES (1)", "does not exist", PAWL_STATE_DEAD, "permanent" },
    { "INSERT INTO child VALUES (7)", "foreign key", PAWL_STATE_DEAD, "permanent" }, /* at COMMIT */
    { "COMMIT", "COMMIT", PAWL_STATE_DEAD, "misuse" },
    { "ROLLBACK", "ROLLBACK", PAWL_STATE_DEAD, "misuse" },
    { "SAVEPOINT a", "SAVEPOINT", PAWL_STATE_DEAD, "misuse" },
    { "SET search_path = ''", "SET", PAWL_STATE_DEAD, "misuse" },
    { "COPY u FROM STDIN", "COPY", PAWL_STATE_DEAD, "misuse" },
    { "DELETE FROM pawl.x_ready", "private", PAWL_STATE_DEAD, "misuse" },
    { "DELETE FROM PAWL . X_Ready", "private", PAWL_STATE_DEAD, "misuse" },
};
static_assert(sizeof bad_ways == sizeof pg_bad_ways, "a loop of tests for both");

#define PG_TRIGGER(name, on, when, body)                                                          \
    "CREATE FUNCTION " name "() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN " body               \
    " RETURN NEW; END $$; CREATE TRIGGER " name " " when " INSERT ON " on                         \
    " FOR EACH ROW EXECUTE FUNCTION " name "()"

static void user_tables(struct fx *f)
{
    fx_sql(f, "CREATE TABLE u (a INTEGER UNIQUE); INSERT INTO u VALUES (1)");
    fx_sql(f, "CREATE TABLE t (a INTEGER)");
    fx_sql_of(f, "CREATE TRIGGER no_day BEFORE INSERT ON t BEGIN"
                 " SELECT RAISE(ROLLBACK, 'no such day'); END",
              PG_TRIGGER("no_day", "t", "BEFORE", "RAISE EXCEPTION 'no such day';"));
    fx_sql_of(f, "CREATE TABLE parent (a INTEGER PRIMARY KEY); CREATE TABLE child (a INTEGER"
                 " REFERENCES parent DEFERRABLE INITIALLY DEFERRED)",
              "CREATE TABLE parent (a INTEGER PRIMARY KEY); CREATE TABLE child (a INTEGER"
              " REFERENCES parent DEFERRABLE INITIALLY DEFERRED)");
    fx_sql(f, "CREATE TABLE thief (a INTEGER)");
    fx_sql_of(f, "CREATE TRIGGER steal AFTER INSERT ON thief BEGIN DELETE FROM pawl_x_ready; END",
              PG_TRIGGER("steal", "thief", "AFTER", "DELETE FROM pawl.x_ready;"));
}

START_TEST(each_store_one_bad_job_is_pinned_and_the_others_commit)
{
    const size_t i = (size_t)_i % UT_N(bad_ways);
    int64_t bad = 0;
    struct fx f;

    begin(&f, _i / (int)UT_N(bad_ways));
    const struct bad_way *way = f.kind == &fx_sqlite ? &bad_ways[i] : &pg_bad_ways[i];
    user_tables(&f);
    const int64_t first = sandwich(&f, way->sql, 5, &bad);
    fx_drain(&f);
    others_done(&f, first, 5, bad);
    const struct fx_job x = fx_job(&f, bad);
    ck_assert_int_eq(x.j.state, way->state);
    ck_assert_str_eq(x.dead_class, way->class);
    ck_assert_msg(strstr(x.error, way->error) != NULL, "%s: the error says \"%s\"", way->sql,
                  x.error);
    ck_assert_int_eq(fx_effects(&f, bad), 0);
    ck_assert_int_eq(x.j.failures, 1);
    ck_assert_int_eq(fx_num(&f, "SELECT count(*) FROM u"), 1);
    ck_assert_int_eq(fx_num(&f, "SELECT count(*) FROM child"), 0);
    fx_end(&f);
}
END_TEST

START_TEST(each_store_several_bad_jobs_in_one_batch_are_found_one_by_one)
{
    struct fx f;

    begin(&f, _i);
    user_tables(&f);
    f.on_run = run_args;
    for (int i = 0; i < 4; i++) {
        fx_put(&f, "mail", "{}");
        put_sql(&f, "INSERT INTO child VALUES (7)");
        put_sql(&f, "INSERT INTO u VALUES (1)");
    }
    fx_drain(&f);
    ck_assert_int_eq(fx_stat(&f, "dead"), 8);
    ck_assert_int_eq(fx_stat(&f, "done"), 4);
    ck_assert_int_eq(fx_num(&f, "SELECT count(*) FROM fx"), 4);
    ck_assert_int_eq(fx_num(&f, "SELECT max(failures) FROM pawl_x_done"), 0);
    fx_end(&f);
}
END_TEST

/* Fan-out: a job enqueued by an effect is there if, and only if, the effect is. */
START_TEST(each_store_jobs_enqueued_by_an_effect_share_its_fate)
{
    int64_t bad = 0;
    struct fx f;

    begin(&f, _i);
    const char *const fan = f.kind == &fx_sqlite
        ? "INSERT INTO pawl_enqueue (task, args, key) VALUES ('child', '[7]', 'c')"
        : "SELECT pawl.enqueue('child', '[7]', 'c')";
    user_tables(&f);
    fx_sql_of(&f, "CREATE TRIGGER fan AFTER INSERT ON u BEGIN INSERT INTO pawl_enqueue"
                  " (task, args, key) VALUES ('child', '[8]', 'by a trigger'); END",
              PG_TRIGGER("fan", "u", "AFTER",
                         "PERFORM pawl.enqueue('child', '[8]', key => 'by a trigger');"));
    sandwich(&f, "INSERT INTO child VALUES (7)", 2, &bad); /* the batch is rerun one by one */
    put_sql(&f, fan);
    put_sql(&f, "INSERT INTO u VALUES (5)");
    put_sql(&f, "INSERT INTO u VALUES (5)"); /* fails: its child must not be */
    put_sql(&f, fan);                        /* a duplicate: absorbed */
    fx_drain(&f);
    ck_assert_int_eq(fx_num(&f, "SELECT count(*) FROM pawl_jobs WHERE task = 'child'"), 2);
    ck_assert_int_eq(fx_num(&f, "SELECT count(*) FROM pawl_jobs WHERE task = 'child' AND"
                                " state = 'ready'"), 2);
    ck_assert_int_eq(fx_stat(&f, "dead"), 2);
    fx_task(&f, "child");
    f.on_run = NULL;
    fx_drain(&f);
    ck_assert_int_eq(fx_num(&f, "SELECT count(*) FROM pawl_jobs j JOIN fx ON fx.job = j.id"
                                " WHERE task = 'child'"), 2);
    fx_end(&f);
}
END_TEST

static void fail_first_time(struct fx *f, struct store *st, const struct job *job,
                            struct finding *found, bool *pinned)
{
    (void)f;
    (void)st;
    (void)pinned;
    if (job->n.failures == 0 && strcmp(job->args, "[1]") == 0)
        *found = fx_found(OUT_TRANSIENT, "not now");
}

START_TEST(each_store_verdict_on_one_job_shares_the_commit_of_its_batch)
{
    struct fx_try tries[2];
    struct effect_report r;
    struct fx f;

    begin(&f, _i);
    f.on_run = fail_first_time;
    const int64_t a = fx_put(&f, "mail", "{}"), b = fx_put(&f, "mail", "[1]");
    const int64_t c = fx_put(&f, "mail", "{}");
    const int64_t before = f.kind->flushes();
    fx_ok(fx_batch(&f, &r), &f);
    ck_assert_int_eq(f.kind->flushes() - before, 1); /* nobody can run it in between */
    ck_assert_uint_eq(r.done, 2);
    ck_assert_uint_eq(r.retried, 1);
    ck_assert_int_eq(fx_state(&f, a), PAWL_STATE_DONE);
    ck_assert_int_eq(fx_state(&f, c), PAWL_STATE_DONE);
    fx_counters(&f, b, 1, 1, 0, 0, 0);
    ck_assert_int_eq(fx_effects(&f, b), 0); /* its own writes were undone */
    ck_assert_uint_eq(fx_attempts(&f, b, tries, 2), 1);
    ck_assert_str_eq(tries[0].error, "not now");
    fx_drain(&f);
    ck_assert_int_eq(fx_effects(&f, b), 1);
    fx_end(&f);
}
END_TEST

START_TEST(each_store_verdict_that_cannot_be_written_costs_nothing)
{
    struct fx f;

    begin(&f, _i);
    f.on_run = fail_first_time;
    const int64_t id = fx_put(&f, "mail", "[1]");
    fx_arm("verdict.before", "error:0:1");
    fx_is(fx_batch(&f, NULL), PAWL_IO, &f);
    fx_disarm();
    fx_counters(&f, id, 0, 0, 0, 0, 0);
    fx_arm("effect.commit.after", "error:0:1"); /* written, the answer lost */
    fx_ok(fx_batch(&f, NULL), &f);
    fx_disarm();
    fx_counters(&f, id, 1, 1, 0, 0, 0);
    fx_drain(&f);
    ck_assert_int_eq(fx_effects(&f, id), 1);
    fx_end(&f);
}
END_TEST

static void store_is_full(struct fx *f, struct store *st, const struct job *job,
                          struct finding *found, bool *pinned)
{
    (void)f;
    (void)st;
    (void)job;
    *found = fx_found(OUT_TRANSIENT, "no space left");
    *pinned = false;
}

START_TEST(each_store_fault_of_the_store_is_charged_to_nobody)
{
    struct fx f;

    begin(&f, _i);
    f.on_run = store_is_full;
    f.clock.mono_step_us = 6000; /* looking at all there is seems dear: it is done all the same */
    for (int i = 0; i < 4; i++)
        fx_put(&f, "mail", "{}");
    fx_ok(fx_batch(&f, NULL), &f); /* in company: rolled back, to be found out one by one */
    for (int i = 0; i < 3; i++)
        fx_is(fx_batch(&f, NULL), PAWL_STORE, &f); /* alone: charged to nobody */
    ck_assert_int_eq(fx_num(&f, "SELECT sum(runs) FROM pawl_x_ready"), 0);
    /* The very same again, and the store is sound: its own doing, bounded like any failure. */
    fx_ok(fx_batch(&f, NULL), &f);
    ck_assert_int_eq(fx_num(&f, "SELECT sum(failures) FROM pawl_x_ready"), 1);
    f.on_run = NULL;
    fx_add(&f, 600 * SEC);
    fx_drain(&f);
    ck_assert_int_eq(fx_num(&f, "SELECT count(*) FROM fx"), 4);
    fx_end(&f);
}
END_TEST

/* A run that is stale by its own word has no effect: what it wrote before is undone. */
static void stale_by_word(struct fx *f, struct store *st, const struct job *job,
                          struct finding *found, bool *pinned)
{
    (void)f;
    (void)st;
    (void)pinned;
    if (strcmp(job->args, "[1]") == 0) *found = fx_found(OUT_STALE, NULL);
}

START_TEST(each_store_stale_run_leaves_no_effect)
{
    struct effect_report r;
    struct fx f;

    begin(&f, _i);
    f.on_run = stale_by_word;
    fx_put(&f, "mail", "{}");
    const int64_t id = fx_put(&f, "mail", "[1]");
    fx_put(&f, "mail", "{}");
    fx_ok(fx_batch(&f, &r), &f);
    ck_assert_uint_eq(r.done, 2);
    ck_assert_uint_eq(r.stale, 1);
    ck_assert_str_eq(fx_job(&f, id).outcome, "stale");
    ck_assert_int_eq(fx_effects(&f, id), 0);
    ck_assert_int_eq(fx_stat(&f, "stale"), 1);
    fx_end(&f);
}
END_TEST

START_TEST(each_store_undecodable_expired_and_too_deep_never_reach_the_handler)
{
    struct pawl_request late = fx_req("mail", NULL, "{}");
    char deep[200];
    struct fx f;

    begin(&f, _i);
    late.expires_at_us = f.clock.wall_us + 1;
    const int64_t a = fx_put_req(&f, &late), b = fx_put(&f, "mail", "{}");
    const int64_t c = fx_put(&f, "mail", "{}"), d = fx_put(&f, "mail", "{}");
    fx_sqlf(&f, "UPDATE pawl_x_job SET args = '{\"a\":' WHERE id = %" PRId64, b);
    /* No text of PostgreSQL holds such bytes. */
    fx_sqlf(&f, "UPDATE pawl_x_job SET args = %s WHERE id = %" PRId64,
            f.kind == &fx_sqlite ? "CAST(x'22ff22' AS TEXT)" : "'\"\"\"'", c);
    memset(deep, '[', 80);
    memset(deep + 80, ']', 80);
    deep[160] = '\0';
    fx_sqlf(&f, "UPDATE pawl_x_job SET args = '%s' WHERE id = %" PRId64, deep, d);
    fx_add(&f, SEC);
    fx_drain(&f);
    ck_assert_int_eq(f.runs, 0);
    ck_assert_str_eq(fx_job(&f, a).dead_class, "expired");
    ck_assert_str_eq(fx_job(&f, b).dead_class, "undecodable");
    ck_assert_str_eq(fx_job(&f, c).dead_class, "undecodable");
    ck_assert_str_eq(fx_job(&f, d).dead_class, "undecodable");
    fx_end(&f);
}
END_TEST

/* --- statements --- */

static void endless(struct fx *f, struct store *st, const struct job *job, struct finding *found,
                    bool *pinned)
{
    static const char *const sql = "WITH RECURSIVE c(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM c)"
                                   " INSERT INTO u SELECT i FROM c";
    struct store_stmt *s = NULL;
    struct pawl_error e = {0};
    int64_t changed = 0;

    if (strcmp(job->args, "[1]") != 0) return;
    ck_assert_int_eq(store_stmt_prepare(st, sql, &s, &e), PAWL_OK);
    store_deadline(st, env_real()->mono_us(NULL) + SEC / 20, NULL);
    ck_assert_int_eq(store_stmt_run(st, s, NULL, 0, NULL, 0, &changed, &e), PAWL_SQL);
    store_deadline(st, 0, NULL);
    store_stmt_free(&s);
    *found = fx_found(classify_sql(e.native, pinned), arena_strdup(&f->arena, e.msg));
}

START_TEST(each_store_statement_past_its_deadline_is_interrupted_and_undone)
{
    struct fx_try tries[2];
    struct effect_report r;
    struct fx f;

    begin(&f, _i);
    fx_sql(&f, "CREATE TABLE u (a INTEGER)");
    f.on_run = endless;
    const int64_t a = fx_put(&f, "mail", "{}"), b = fx_put(&f, "mail", "[1]");
    const int64_t c = fx_put(&f, "mail", "{}");
    /* Who is cut off (PostgreSQL) keeps its locks until the server looks, once a second. */
    const int64_t until = env_real()->mono_us(NULL) + 20 * SEC;
    do
        fx_ok(fx_batch(&f, &r), &f);
    while (r.claimed > 0 || (fx_job(&f, b).j.runs == 0 && env_real()->mono_us(NULL) < until));
    ck_assert_int_eq(fx_state(&f, a), PAWL_STATE_DONE);
    ck_assert_int_eq(fx_state(&f, c), PAWL_STATE_DONE);
    fx_counters(&f, b, 1, 1, 0, 0, 0);
    ck_assert_uint_eq(fx_attempts(&f, b, tries, 2), 1);
    ck_assert_str_eq(tries[0].outcome, "timeout");
    ck_assert_ptr_nonnull(strstr(tries[0].error, "time limit"));
    ck_assert_int_eq(fx_num(&f, "SELECT count(*) FROM u"), 0);
    fx_end(&f);
}
END_TEST

START_TEST(each_store_rows_of_a_statement_are_json_and_bounded)
{
    struct store_stmt *s = NULL;
    struct buf rows = {0};
    int64_t changed = 0;
    struct fx f;

    begin(&f, _i);
    fx_ok(store_scratch_begin(f.st, &f.e), &f);
    fx_ok(store_stmt_prepare(f.st, "SELECT 1 AS a, NULL AS b, 'x\"y' AS c, 0.5 AS d", &s, &f.e),
          &f);
    fx_ok(store_stmt_run(f.st, s, NULL, 0, &rows, 1000, &changed, &f.e), &f);
    ck_assert_str_eq(buf_str(&rows), "[{\"a\":1,\"b\":null,\"c\":\"x\\\"y\",\"d\":0.5}]");
    ck_assert_int_eq(changed, 1);
    buf_clear(&rows);
    fx_is(store_stmt_run(f.st, s, NULL, 0, &rows, 10, &changed, &f.e), PAWL_TOOBIG, &f);
    store_stmt_free(&s);
    fx_ok(store_scratch_end(f.st, false, &f.e), &f);
    buf_free(&rows);
    fx_end(&f);
}
END_TEST

START_TEST(each_store_scratch_run_keeps_or_leaves_no_trace_as_asked)
{
    struct store_stmt *s = NULL;
    int64_t changed = 0;
    struct fx f;

    begin(&f, _i);
    fx_ok(store_stmt_prepare(f.st, "INSERT INTO fx VALUES (1, 1)", &s, &f.e), &f);
    fx_ok(store_scratch_begin(f.st, &f.e), &f);
    fx_ok(store_stmt_run(f.st, s, NULL, 0, NULL, 0, &changed, &f.e), &f);
    fx_ok(store_scratch_end(f.st, false, &f.e), &f);
    ck_assert_int_eq(fx_num(&f, "SELECT count(*) FROM fx"), 0);
    fx_ok(store_scratch_begin(f.st, &f.e), &f);
    fx_ok(store_stmt_run(f.st, s, NULL, 0, NULL, 0, &changed, &f.e), &f);
    fx_ok(store_scratch_end(f.st, true, &f.e), &f);
    ck_assert_int_eq(fx_num(&f, "SELECT count(*) FROM fx"), 1);
    store_stmt_free(&s);
    fx_end(&f);
}
END_TEST

/* --- somebody decides between the claim and the ack --- */

static void cancel_it(struct fx *f, void *ctx)
{
    enum pawl_state state;

    fx_ok(store_cancel(f->st, *(int64_t *)ctx, &state, &f->e), f);
}

START_TEST(each_store_job_cancelled_before_its_verdict_stays_cancelled)
{
    struct finding found = fx_found(OUT_TRANSIENT, "not now");
    struct job job;
    size_t n = 0;
    struct fx f;

    begin(&f, _i);
    const int64_t id = fx_put(&f, "mail", "{}");
    fx_ok(store_effect_begin(f.st, &f.lane, 1, &f.arena, &job, &n, &f.info, &f.e), &f);
    ck_assert_uint_eq(n, 1);
    store_effect_rollback(f.st);
    store_effect_end(f.st); /* the verdict comes too late: others were let in before it */
    struct fx other = f;
    other.st = fx_second(&f);
    cancel_it(&other, (void *)(uintptr_t)&id);
    store_close(&other.st);
    struct settle s = fx_decided(&f, &job, &found);
    fx_ok(store_effect_verdicts(f.st, &s, 1, &f.e), &f);
    store_effect_end(f.st);
    ck_assert_int_eq(s.result, SETTLE_FENCED);
    ck_assert_int_eq(fx_state(&f, id), PAWL_STATE_CANCELLED);
    ck_assert_int_eq(fx_stat(&f, "fenced"), 1);
    fx_end(&f);
}
END_TEST

/* A verdict holds for the run it was made of: a job that ran meanwhile is not charged again. */
START_TEST(each_store_verdict_of_an_older_run_changes_nothing)
{
    struct finding found = fx_found(OUT_PERMANENT, "never");
    struct job old;
    size_t n = 0;
    struct fx f;

    begin(&f, _i);
    const int64_t id = fx_put(&f, "mail", "{}");
    fx_ok(store_effect_begin(f.st, &f.lane, 1, &f.arena, &old, &n, &f.info, &f.e), &f);
    store_effect_rollback(f.st);
    store_effect_end(f.st);
    const struct job now = fx_claim_one(&f);
    ck_assert_int_eq(fx_settle(&f, &now, OUT_RELEASED), SETTLE_OK); /* back in its old place */
    struct settle s = fx_decided(&f, &old, &found);
    fx_ok(store_effect_verdicts(f.st, &s, 1, &f.e), &f);
    store_effect_end(f.st);
    ck_assert_int_eq(s.result, SETTLE_FENCED);
    ck_assert_int_eq(fx_state(&f, id), PAWL_STATE_READY);
    fx_counters(&f, id, 1, 0, 0, 1, 0);
    fx_end(&f);
}
END_TEST

static void add(TCase *tc)
{
    FX_ADD(tc, each_store_batch_and_its_effects_are_one_commit);
    FX_ADD(tc, each_store_batch_that_cannot_commit_leaves_nothing);
    FX_ADD(tc, each_store_commit_in_doubt_is_found_out_and_doubles_nothing);
    tcase_add_loop_test(tc, each_store_one_bad_job_is_pinned_and_the_others_commit, 0,
                        fx_kinds_n() * (int)UT_N(bad_ways));
    FX_ADD(tc, each_store_several_bad_jobs_in_one_batch_are_found_one_by_one);
    FX_ADD(tc, each_store_jobs_enqueued_by_an_effect_share_its_fate);
    FX_ADD(tc, each_store_verdict_on_one_job_shares_the_commit_of_its_batch);
    FX_ADD(tc, each_store_verdict_that_cannot_be_written_costs_nothing);
    FX_ADD(tc, each_store_fault_of_the_store_is_charged_to_nobody);
    FX_ADD(tc, each_store_stale_run_leaves_no_effect);
    FX_ADD(tc, each_store_undecodable_expired_and_too_deep_never_reach_the_handler);
    FX_ADD(tc, each_store_statement_past_its_deadline_is_interrupted_and_undone);
    FX_ADD(tc, each_store_rows_of_a_statement_are_json_and_bounded);
    FX_ADD(tc, each_store_scratch_run_keeps_or_leaves_no_trace_as_asked);
    FX_ADD(tc, each_store_job_cancelled_before_its_verdict_stays_cancelled);
    FX_ADD(tc, each_store_verdict_of_an_older_run_changes_nothing);
}

int main(void)
{
    return ut_main("effect", add, 30);
}
