// SPDX-License-Identifier: Apache-2.0
/* test_sqlite_plain.c - batches without a savepoint per job: they come when things went well for
 * long, a job that must be undone turns its batch into one with savepoints, and nobody is charged
 * for that. */
#include <inttypes.h>
#include <sqlite3.h>
#include <stdio.h>
#include <string.h>
#include "lib/fx.h"
#include "store/sqlite/sl.h"

enum { WARM = 200, AROUND = 30 };

static bool is_plain(const struct fx *f) { return sl_of(f->st)->d.plain; }

/* A worker that has just done many jobs without trouble. */
static void begin(struct fx *f)
{
    fx_begin(f, 0);
    fx_task(f, "mail");
    fx_join(f);
    fx_batch_size(f, 100);
    for (int i = 0; i < WARM; i++)
        fx_put(f, "mail", "{}");
    fx_drain(f);
    ck_assert(is_plain(f));
}

/* Jobs whose args are 1 fail, pinned, after their ledger row was written. */
static void fail_ones(struct fx *f, struct store *st, const struct job *job, struct finding *found,
                      bool *pinned)
{
    (void)st;
    (void)f;
    if (strcmp(job->args, "1") != 0) return;
    *found = fx_found(OUT_TRANSIENT, "it is a one");
    *pinned = true;
}

/* AROUND good ones, the bad one, AROUND good ones. */
static int64_t sandwich(struct fx *f, const char *args)
{
    int64_t bad = 0;

    for (int i = 0; i <= 2 * AROUND; i++) {
        const int64_t id = fx_put(f, "mail", i == AROUND ? args : "{}");
        if (i == AROUND) bad = id;
    }
    return bad;
}

static void all_done_but(struct fx *f, int64_t bad)
{
    for (int64_t id = WARM + 1; id <= WARM + 1 + 2 * AROUND; id++) {
        if (id == bad) continue;
        ck_assert_int_eq(fx_state(f, id), PAWL_STATE_DONE);
        ck_assert_int_eq(fx_effects(f, id), 1);
        fx_counters(f, id, 0, 0, 0, 0, 0);
    }
    ck_assert_int_eq(fx_effects(f, bad), 0);
}

START_TEST(sqlite_plain_batch_runs_again_with_savepoints_when_a_job_must_be_undone)
{
    struct effect_report r;
    struct fx_try t;
    struct fx f;

    begin(&f);
    f.on_run = fail_ones;
    const int64_t bad = sandwich(&f, "1");
    fx_ok(fx_batch(&f, &r), &f);
    ck_assert_uint_eq(r.reruns, 1);
    ck_assert_uint_eq(r.done, 0);
    const int64_t before = f.kind->flushes();
    fx_ok(fx_batch(&f, &r), &f); /* all of them, not one by one */
    ck_assert(!is_plain(&f));
    ck_assert_uint_eq(r.reruns, 0);
    ck_assert_uint_eq(r.done, 2 * AROUND);
    ck_assert_uint_eq(r.retried, 1);
    ck_assert_int_le(f.kind->flushes() - before, 3); /* the batch and the verdict */
    all_done_but(&f, bad);
    fx_counters(&f, bad, 1, 1, 0, 0, 0);
    ck_assert_uint_eq(fx_attempts(&f, bad, &t, 1), 1);
    ck_assert_str_eq(t.error, "it is a one");
    fx_end(&f);
}
END_TEST

START_TEST(sqlite_plain_batch_stays_when_the_failed_job_wrote_nothing)
{
    char deep[300];
    struct effect_report r;
    struct fx f;

    memset(deep, '[', 100);
    memset(deep + 100, ']', 100);
    deep[200] = '\0';
    begin(&f);
    const int64_t bad = sandwich(&f, "{}");
    fx_sqlf(&f, "UPDATE pawl_x_job SET args = '%s' WHERE id = %" PRId64, deep, bad);
    fx_ok(fx_batch(&f, &r), &f);
    ck_assert(is_plain(&f));
    ck_assert_uint_eq(r.reruns, 0);
    ck_assert_uint_eq(r.done, 2 * AROUND);
    ck_assert_uint_eq(r.dead, 1);
    all_done_but(&f, bad);
    ck_assert_str_eq(fx_job(&f, bad).dead_class, "undecodable");
    fx_end(&f);
}
END_TEST

/* After a rerun they come back only when many jobs went well again, and later each time. */
START_TEST(sqlite_plain_batches_come_back_after_more_jobs_each_time)
{
    struct fx f;
    int64_t need = 0;

    begin(&f);
    f.on_run = fail_ones;
    for (int round = 0; round < 3; round++) {
        int64_t good = 0;

        fx_put(&f, "mail", "1");
        fx_put(&f, "mail", "{}");
        fx_ok(fx_batch(&f, NULL), &f);
        do {
            for (int i = 0; i < 100; i++)
                fx_put(&f, "mail", "{}");
            good += 100;
            fx_ok(fx_batch(&f, NULL), &f);
        } while (!is_plain(&f));
        ck_assert_int_gt(good, need);
        need = good;
        f.on_run = NULL; /* what failed may succeed now, so that the store ends empty */
        fx_drain(&f);
        f.on_run = fail_ones;
    }
    fx_end(&f);
}
END_TEST

/* Tables are not rows: what is not counted counts as written. */
START_TEST(sqlite_plain_batch_knows_of_schema_changes)
{
    struct claim_info info;
    struct store_stmt *s = NULL;
    struct job jobs[2];
    int64_t changed = 0;
    size_t n = 0;
    struct fx f;

    begin(&f);
    fx_put(&f, "mail", "{}");
    fx_put(&f, "mail", "{}");
    fx_ok(store_effect_begin(f.st, &f.lane, 2, &f.arena, jobs, &n, &info, &f.e), &f);
    ck_assert_uint_eq(n, 2);
    fx_ok(store_effect_job(f.st, 0, &f.e), &f);
    fx_ok(store_effect_undo(f.st, &f.e), &f); /* nothing was written */
    fx_ok(store_effect_job(f.st, 0, &f.e), &f);
    fx_ok(store_stmt_prepare(f.st, "CREATE TABLE half (x)", &s, &f.e), &f);
    fx_ok(store_stmt_run(f.st, s, NULL, 0, NULL, 0, &changed, &f.e), &f);
    store_stmt_free(&s);
    fx_is(store_effect_undo(f.st, &f.e), PAWL_BUSY, &f);
    store_effect_rollback(f.st);
    store_effect_end(f.st);
    ck_assert_int_eq(fx_num(&f, "SELECT count(*) FROM sqlite_master WHERE name = 'half'"), 0);
    fx_drain(&f);
    fx_end(&f);
}
END_TEST

/* With the raw handle: ends the transaction, begins its own, and says "done". */
static void begin_own(struct fx *f, struct store *st, const struct job *job, struct finding *found,
                      bool *pinned)
{
    (void)f;
    (void)found;
    (void)pinned;
    if (strcmp(job->args, "1") != 0) return;
    sqlite3_exec(sl_of(st)->db, "ROLLBACK", NULL, NULL, NULL);
    sqlite3_exec(sl_of(st)->db, "BEGIN IMMEDIATE", NULL, NULL, NULL);
    sqlite3_exec(sl_of(st)->db, "INSERT INTO fx (job, token) VALUES (0, 0)", NULL, NULL, NULL);
}

START_TEST(sqlite_plain_batch_notices_a_handler_that_begins_its_own_transaction)
{
    struct effect_report r;
    struct fx f;

    begin(&f);
    f.on_run = begin_own;
    const int64_t bad = sandwich(&f, "1");
    fx_ok(fx_batch(&f, &r), &f);
    ck_assert_uint_eq(r.done, 0);
    fx_drain(&f);
    all_done_but(&f, bad);
    ck_assert_str_eq(fx_job(&f, bad).dead_class, "misuse");
    ck_assert_int_eq(fx_effects(&f, 0), 0);
    fx_end(&f);
}
END_TEST

static void add(TCase *tc)
{
    tcase_add_test(tc, sqlite_plain_batch_runs_again_with_savepoints_when_a_job_must_be_undone);
    tcase_add_test(tc, sqlite_plain_batch_stays_when_the_failed_job_wrote_nothing);
    tcase_add_test(tc, sqlite_plain_batches_come_back_after_more_jobs_each_time);
    tcase_add_test(tc, sqlite_plain_batch_knows_of_schema_changes);
    tcase_add_test(tc, sqlite_plain_batch_notices_a_handler_that_begins_its_own_transaction);
}

int main(void)
{
    return ut_main("sqlite_plain", add, 60);
}
