// SPDX-License-Identifier: Apache-2.0
/* test_sqlite_gather.c - appends to the log go out together: what is held back is never missed by
 * who reads, never written once it is nobody's, and never believed written when it was not. */
#include <inttypes.h>
#include <string.h>
#include "lib/fx.h"
#include "lib/vfs.h"
#include "store/sqlite/sl.h"

enum { ROWS = 300 };

/* A store with a table of 1,000-byte rows, and a cache that spills into the log at once. */
static struct sqlite *begin(struct fx *f)
{
    fx_begin(f, 0);
    fx_task(f, "mail");
    fx_sql(f, "CREATE TABLE t (i INTEGER PRIMARY KEY, who TEXT, x BLOB)");
    struct sqlite *sl = sl_of(f->st);
    fx_ok(sl_exec(sl, "PRAGMA cache_size = 3", &f->e), f);
    return sl;
}

static void put(struct fx *f, struct sqlite *sl, const char *who, int n)
{
    char sql[200];

    snprintf(sql, sizeof sql, "WITH RECURSIVE c(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM c WHERE"
             " i < %d) INSERT INTO t (who, x) SELECT '%s', randomblob(1000) FROM c", n, who);
    fx_ok(sl_exec(sl, sql, &f->e), f);
}

static int64_t rows(struct sqlite *sl)
{
    sqlite3_stmt *q = NULL;
    int64_t n = -1;

    ck_assert_int_eq(sqlite3_prepare_v2(sl->db, "SELECT count(*) FROM t WHERE length(x) = 1000", -1,
                                        &q, NULL), SQLITE_OK);
    if (sqlite3_step(q) == SQLITE_ROW) n = sqlite3_column_int64(q, 0);
    sqlite3_finalize(q);
    return n;
}

/* As a stranger finds it: the rows, and a sound file. */
static void check(struct fx *f, int64_t want)
{
    char said[200];

    ck_assert_int_eq(fx_num(f, "SELECT count(*) FROM t WHERE length(x) = 1000"), want);
    ck_assert(f->kind->ask(f, "PRAGMA integrity_check", said, sizeof said));
    ck_assert_str_eq(said, "ok");
}

START_TEST(sqlite_a_commit_is_one_write_to_the_log)
{
    struct fx f;

    fx_begin(&f, 0); /* with a cache that does not spill */
    fx_task(&f, "mail");
    fx_put(&f, "mail", "{}");
    fx_put(&f, "mail", "{}");
    const int64_t before = vfs_wal_writes(), syncs = vfs_wal_syncs();
    fx_put(&f, "mail", "{}");
    ck_assert_int_eq(vfs_wal_writes() - before, 1);
    ck_assert_int_eq(vfs_wal_syncs() - syncs, 1);
    fx_end(&f);
}
END_TEST

/* SQLite pads such a log behind its sync: there nothing is held back. */
START_TEST(sqlite_nothing_is_held_back_where_a_write_can_damage_its_neighbour)
{
    struct fx f;

    vfs_lack(SQLITE_IOCAP_POWERSAFE_OVERWRITE);
    fx_begin(&f, 0);
    fx_task(&f, "mail");
    const int64_t before = vfs_wal_writes();
    fx_put(&f, "mail", "{}");
    ck_assert_int_gt(vfs_wal_writes() - before, 4);
    fx_end(&f);
    vfs_lack(0);
}
END_TEST

START_TEST(sqlite_what_a_transaction_spilled_it_reads_back)
{
    struct fx f;
    struct sqlite *sl = begin(&f);

    fx_ok(sl_begin(sl, &f.e), &f);
    put(&f, sl, "a", ROWS);
    ck_assert_int_eq(rows(sl), ROWS);
    fx_ok(sl_exec(sl, "UPDATE t SET x = randomblob(1000) WHERE i % 3 = 0", &f.e), &f);
    ck_assert_int_eq(rows(sl), ROWS);
    fx_ok(sl_commit(sl, &f.e), &f);
    check(&f, ROWS);
    sl_leave(sl);
    check(&f, ROWS);
    fx_end(&f);
}
END_TEST

/* How much is held back at the end of it differs with n: each spill is of one page. */
START_TEST(sqlite_what_was_rolled_back_is_not_written_over_anothers_commit)
{
    struct fx f;
    struct sqlite *sl = begin(&f);

    for (int n = 150; n <= 600; n += 50) {
        const int64_t had = rows(sl);
        fx_ok(sl_begin(sl, &f.e), &f);
        put(&f, sl, "gone", n);
        sl_rollback(sl);
        fx_sqlf(&f, "WITH RECURSIVE c(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM c WHERE i < %d)"
                " INSERT INTO t (who, x) SELECT 'other', randomblob(1000) FROM c", n + 20);
        ck_assert_int_eq(rows(sl), had + n + 20); /* reads the log, at the place of what is gone */
        check(&f, had + n + 20);
        fx_ok(sl_begin(sl, &f.e), &f);
        put(&f, sl, "mine", 2);
        fx_ok(sl_commit(sl, &f.e), &f);
        sl_leave(sl);
        check(&f, had + n + 22);
    }
    fx_end(&f);
}
END_TEST

/* The held back bytes are written because somebody reads: that fails, and only that. */
START_TEST(sqlite_a_write_that_failed_during_a_read_fails_the_commit)
{
    int fired = 0;
    struct fx f;
    struct sqlite *sl = begin(&f);

    for (int n = 150; n <= 600; n += 50) {
        fx_ok(sl_begin(sl, &f.e), &f);
        put(&f, sl, "lost", n);
        vfs_arm(0, 1, VFS_ERROR);
        const bool read = rows(sl) == n;
        const bool struck = vfs_disarm();
        const enum pawl_rc rc = sl_commit(sl, &f.e);
        fired += struck;
        sl_leave(sl);
        if (struck) {
            ck_assert(!read);
            ck_assert_int_ne(rc, PAWL_OK);
            check(&f, 0);
            fx_ok(sl_exec(sl, "PRAGMA cache_size = 3", &f.e), &f); /* it was opened anew */
        } else {
            fx_ok(rc, &f);
            check(&f, n);
            fx_sql(&f, "DELETE FROM t");
        }
    }
    ck_assert_int_gt(fired, 0);
    fx_end(&f);
}
END_TEST

/* SQLite ends a transaction whose read fails, but for one case: no room, in a statement that it can
 * take back alone. That one goes on, and believes in what was spilled before. */
START_TEST(sqlite_no_room_for_what_was_spilled_before_fails_the_commit)
{
    int went_on = 0;
    struct fx f;
    struct sqlite *sl = begin(&f);

    fx_sql(&f, "CREATE TABLE u (i INTEGER PRIMARY KEY, who TEXT NOT NULL UNIQUE)");
    for (int n = 150; n <= 600; n += 50) {
        fx_ok(sl_begin(sl, &f.e), &f);
        put(&f, sl, "lost", n);
        vfs_arm(0, 1, VFS_FULL);
        const enum pawl_rc first = sl_exec(sl, "INSERT INTO u SELECT i, who || i FROM t ORDER BY i",
                                           &f.e);
        const bool struck = vfs_disarm();
        went_on += struck && sqlite3_get_autocommit(sl->db) == 0;
        if (struck) ck_assert_int_eq(first, PAWL_FULL);
        const enum pawl_rc rc = sl_commit(sl, &f.e);
        sl_leave(sl);
        if (struck) {
            ck_assert_int_ne(rc, PAWL_OK);
            check(&f, 0);
        } else {
            fx_ok(rc, &f);
            check(&f, n);
        }
        fx_sql(&f, "DELETE FROM t; DELETE FROM u");
        fx_ok(sl_exec(sl, "PRAGMA cache_size = 3", &f.e), &f);
    }
    ck_assert_int_gt(went_on, 0);
    fx_end(&f);
}
END_TEST

START_TEST(sqlite_who_lowers_synchronous_still_publishes_only_what_was_written)
{
    struct fx f;
    struct sqlite *sl = begin(&f);

    fx_ok(sl_exec(sl, "PRAGMA synchronous = NORMAL", &f.e), &f);
    for (int n = 1; n <= 20; n++) {
        fx_ok(sl_begin(sl, &f.e), &f);
        put(&f, sl, "a", 1);
        fx_ok(sl_commit(sl, &f.e), &f);
        check(&f, n);
    }
    sl_leave(sl);
    fx_end(&f);
}
END_TEST

/* --- the same statements here and in memory --- */

struct twin {
    struct fx f;
    struct sqlite *sl;
    sqlite3 *model;
    uint64_t seed;
};

static int pick(struct twin *t, int n)
{
    t->seed = t->seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (int)((t->seed >> 33) % (uint64_t)n);
}

static void both(struct twin *t, bool other, const char *sql)
{
    ck_assert_msg(sqlite3_exec(t->model, sql, NULL, NULL, NULL) == SQLITE_OK, "%s",
                  sqlite3_errmsg(t->model));
    if (other)
        fx_sql(&t->f, sql);
    else
        fx_ok(sl_exec(t->sl, sql, &t->f.e), &t->f);
}

static void change(struct twin *t, bool other)
{
    const int from = pick(t, 200), n = 1 + pick(t, 60), bytes = pick(t, 3000);
    char sql[300];

    if (pick(t, 3) > 0)
        snprintf(sql, sizeof sql, "WITH RECURSIVE c(i) AS (SELECT %d UNION ALL SELECT i + 1 FROM c"
                 " WHERE i < %d) INSERT OR REPLACE INTO t (i, who, x) SELECT i * 7 %% 211, '%d',"
                 " zeroblob(%d) FROM c", from, from + n, pick(t, 1000), bytes);
    else
        snprintf(sql, sizeof sql, "UPDATE t SET who = who || i, x = zeroblob(%d) WHERE i %% %d = 0",
                 bytes, 1 + pick(t, 9));
    both(t, other, sql);
}

static void summed(sqlite3 *db, char out[200])
{
    sqlite3_stmt *q = NULL;

    ck_assert_int_eq(sqlite3_prepare_v2(db, "SELECT count(*), total(length(x) * (i + 3)),"
                                        " group_concat(i || who, ',') FROM (SELECT * FROM t ORDER"
                                        " BY i)", -1, &q, NULL), SQLITE_OK);
    ck_assert_int_eq(sqlite3_step(q), SQLITE_ROW);
    const char *all = (const char *)sqlite3_column_text(q, 2);
    uint64_t h = 7;
    for (const char *c = all != NULL ? all : ""; *c != '\0'; c++) h = h * 31 + (uint8_t)*c;
    snprintf(out, 200, "%d %.0f %" PRIx64, sqlite3_column_int(q, 0), sqlite3_column_double(q, 1),
             h);
    sqlite3_finalize(q);
}

static void same(struct twin *t)
{
    char want[200], got[200];

    summed(t->model, want);
    summed(t->sl->db, got);
    ck_assert_str_eq(got, want);
}

static bool transaction(struct twin *t)
{
    const int end = pick(t, 3);

    fx_ok(sl_begin(t->sl, &t->f.e), &t->f);
    ck_assert_int_eq(sqlite3_exec(t->model, "SAVEPOINT s", NULL, NULL, NULL), SQLITE_OK);
    for (int i = pick(t, 6); i >= 0; i--) {
        change(t, false);
        if (pick(t, 3) == 0) same(t);
    }
    if (end == 0) {
        sl_rollback(t->sl);
        ck_assert_int_eq(sqlite3_exec(t->model, "ROLLBACK TO s", NULL, NULL, NULL), SQLITE_OK);
    } else {
        fx_ok(sl_commit(t->sl, &t->f.e), &t->f);
    }
    ck_assert_int_eq(sqlite3_exec(t->model, "RELEASE s", NULL, NULL, NULL), SQLITE_OK);
    if (pick(t, 2) == 0) sl_leave(t->sl);
    return end != 0;
}

START_TEST(sqlite_random_transactions_are_what_they_are_in_memory)
{
    struct twin t = { .seed = (uint64_t)_i + 1 };
    static const char *const everything =
        "WITH RECURSIVE c(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM c WHERE i < 211)"
        " INSERT OR REPLACE INTO t (i, who, x) SELECT i, 'all', zeroblob(3000) FROM c";
    char said[200];

    t.sl = begin(&t.f);
    ck_assert_int_eq(sqlite3_open(":memory:", &t.model), SQLITE_OK);
    ck_assert_int_eq(sqlite3_exec(t.model, "CREATE TABLE t (i INTEGER PRIMARY KEY, who TEXT, x"
                                  " BLOB)", NULL, NULL, NULL), SQLITE_OK);
    for (int n = 0; n < 60; n++) {
        const bool committed = transaction(&t);
        if (!committed || pick(&t, 3) == 0) {
            sl_leave(t.sl);
            change(&t, true);
            if (!committed) both(&t, true, everything); /* all over the place of what is gone */
        }
        same(&t);
    }
    sl_leave(t.sl);
    ck_assert(t.f.kind->ask(&t.f, "PRAGMA integrity_check", said, sizeof said));
    ck_assert_str_eq(said, "ok");
    fx_shut(&t.f); /* and as a new process finds it */
    fx_open(&t.f);
    t.sl = sl_of(t.f.st);
    same(&t);
    ck_assert_int_eq(sqlite3_close(t.model), SQLITE_OK);
    fx_end(&t.f);
}
END_TEST

/* A host that shares caches between its connections: ours are their own. */
START_TEST(sqlite_handles_do_not_share_a_cache)
{
    struct fx f;

    ck_assert_int_eq(sqlite3_enable_shared_cache(1), SQLITE_OK);
    (void)begin(&f);
    struct store *other = fx_second(&f);
    for (int i = 0; i < 3; i++) {
        const struct pawl_request r = fx_req("mail", NULL, "{}");
        struct pawl_enqueued out = {0};

        fx_put(&f, "mail", "{}");
        fx_ok(store_enqueue(other, &r, 1, &out, NULL, &f.e), &f);
    }
    store_close(&other);
    fx_put(&f, "mail", "{}");
    ck_assert_int_eq(fx_num(&f, "SELECT count(*) FROM pawl_x_job"), 7);
    fx_end(&f);
    ck_assert_int_eq(sqlite3_enable_shared_cache(0), SQLITE_OK);
}
END_TEST

static void add(TCase *tc)
{
    tcase_add_test(tc, sqlite_handles_do_not_share_a_cache);
    tcase_add_test(tc, sqlite_a_commit_is_one_write_to_the_log);
    tcase_add_test(tc, sqlite_nothing_is_held_back_where_a_write_can_damage_its_neighbour);
    tcase_add_test(tc, sqlite_what_a_transaction_spilled_it_reads_back);
    tcase_add_test(tc, sqlite_what_was_rolled_back_is_not_written_over_anothers_commit);
    tcase_add_test(tc, sqlite_a_write_that_failed_during_a_read_fails_the_commit);
    tcase_add_test(tc, sqlite_no_room_for_what_was_spilled_before_fails_the_commit);
    tcase_add_test(tc, sqlite_who_lowers_synchronous_still_publishes_only_what_was_written);
    tcase_add_loop_test(tc, sqlite_random_transactions_are_what_they_are_in_memory, 0, 12);
}

int main(void)
{
    return ut_main("sqlite_gather", add, 60);
}
