// SPDX-License-Identifier: Apache-2.0
/* test_sqlite_guard.c - who may commit: only Pawl. A handler with the raw handle commits, rolls
 * back, swallows errors, writes on after an automatic rollback: there is never a part of an effect.
 */
#include <inttypes.h>
#include <sqlite3.h>
#include <string.h>
#include "lib/fx.h"
#include "store/sqlite/sl.h"

static sqlite3 *raw(struct store *st) { return sl_of(st)->db; }

static int try_sql(struct store *st, const char *sql)
{
    return sqlite3_exec(raw(st), sql, NULL, NULL, NULL);
}

/* What a careless C handler does; it says "done" whatever happened. */
typedef void misuse_fn(struct store *st);

static void commits(struct store *st)
{
    ck_assert_int_ne(try_sql(st, "COMMIT"), SQLITE_OK);
}
static void commits_and_goes_on(struct store *st)
{
    try_sql(st, "COMMIT");
    ck_assert_int_ne(try_sql(st, "INSERT INTO half VALUES (2)"), SQLITE_OK); /* autocommit now */
}
static void rolls_back_and_goes_on(struct store *st)
{
    try_sql(st, "ROLLBACK");
    ck_assert_int_ne(try_sql(st, "INSERT INTO half VALUES (2)"), SQLITE_OK);
}
static void rolls_back_to_the_savepoint_and_releases(struct store *st)
{
    try_sql(st, "ROLLBACK TO pawl_job");
    try_sql(st, "RELEASE pawl_job");
}
static void releases_the_savepoint(struct store *st)
{
    try_sql(st, "RELEASE pawl_job");
}
static void begins_its_own(struct store *st)
{
    try_sql(st, "ROLLBACK");
    try_sql(st, "BEGIN IMMEDIATE");
    try_sql(st, "INSERT INTO half VALUES (2)");
}
static void begins_and_commits_its_own(struct store *st)
{
    try_sql(st, "ROLLBACK");
    try_sql(st, "BEGIN IMMEDIATE; INSERT INTO half VALUES (2)");
    ck_assert_int_ne(try_sql(st, "COMMIT"), SQLITE_OK);
}
/* The disk is full: SQLite rolls back by itself and drops to autocommit. */
static void writes_on_after_full(struct store *st)
{
    try_sql(st, "PRAGMA max_page_count = 1"); /* as small as it is now */
    const int rc = try_sql(st, "INSERT INTO half VALUES (hex(zeroblob(400000)))");
    ck_assert_int_eq(rc & 0xff, SQLITE_FULL);
    ck_assert_int_ne(sqlite3_get_autocommit(raw(st)), 0);
    try_sql(st, "PRAGMA max_page_count = 1000000");
    ck_assert_int_ne(try_sql(st, "INSERT INTO half VALUES (2)"), SQLITE_OK);
}
static void raises_rollback_and_swallows_it(struct store *st)
{
    ck_assert_int_ne(try_sql(st, "INSERT OR ROLLBACK INTO u VALUES (1)"), SQLITE_OK);
    ck_assert_int_ne(try_sql(st, "INSERT INTO half VALUES (2)"), SQLITE_OK);
}

static const struct { const char *name; misuse_fn *fn; } ways[] = {
    { "commits", commits },
    { "commits and goes on", commits_and_goes_on },
    { "rolls back and goes on", rolls_back_and_goes_on },
    { "rolls back to the savepoint and releases it", rolls_back_to_the_savepoint_and_releases },
    { "releases the savepoint", releases_the_savepoint },
    { "begins a transaction of its own", begins_its_own },
    { "begins and commits its own", begins_and_commits_its_own },
    { "writes on after FULL", writes_on_after_full },
    { "swallows a rollback", raises_rollback_and_swallows_it },
};

static misuse_fn *misuse;

static void misbehave(struct fx *f, struct store *st, const struct job *job, struct finding *found,
                      bool *pinned)
{
    (void)f;
    (void)found;
    (void)pinned;
    if (strcmp(job->args, "[1]") != 0) return;
    ck_assert_int_eq(try_sql(st, "INSERT INTO half VALUES (1)"), SQLITE_OK);
    misuse(st);
}

START_TEST(sqlite_handler_that_ends_the_transaction_leaves_no_half)
{
    struct effect_report r;
    int64_t first = 0, bad = 0;
    struct fx f;

    printf("# a handler that %s\n", ways[_i].name);
    fx_begin(&f, 0);
    fx_task(&f, "mail");
    fx_join(&f);
    fx_sql(&f, "CREATE TABLE half (a); CREATE TABLE u (a INTEGER UNIQUE);"
               " INSERT INTO u VALUES (1)");
    misuse = ways[_i].fn;
    f.on_run = misbehave;
    for (int i = 0; i < 3; i++)
        first = fx_put(&f, "mail", "{}") - i;
    bad = fx_put(&f, "mail", "[1]");
    for (int i = 0; i < 3; i++)
        fx_put(&f, "mail", "{}");
    for (int i = 0; i < 12; i++)
        fx_ok(fx_batch(&f, &r), &f);
    ck_assert_uint_eq(r.claimed, 0);
    for (int64_t id = first; id <= first + 6; id++) {
        if (id == bad) continue;
        ck_assert_int_eq(fx_state(&f, id), PAWL_STATE_DONE);
        ck_assert_int_eq(fx_effects(&f, id), 1);
        fx_counters(&f, id, 0, 0, 0, 0, 0);
    }
    ck_assert_str_eq(fx_job(&f, bad).dead_class, "misuse");
    ck_assert_int_eq(fx_effects(&f, bad), 0);
    ck_assert_int_eq(fx_num(&f, "SELECT count(*) FROM half"), 0);
    fx_end(&f);
}
END_TEST

/* The guard stands on the connection itself, outside of any batch too. */
START_TEST(sqlite_stray_write_on_the_connection_is_rolled_back)
{
    struct fx f;

    fx_begin(&f, 0);
    ck_assert_int_ne(try_sql(f.st, "INSERT INTO fx VALUES (1, 1)"), SQLITE_OK);
    ck_assert_int_eq(fx_num(&f, "SELECT count(*) FROM fx"), 0);
    ck_assert_int_eq(try_sql(f.st, "SELECT * FROM fx"), SQLITE_OK);
    fx_put(&f, "mail", "{}"); /* and the store works on */
    fx_end(&f);
}
END_TEST

/* A full disk met by Pawl's own statements: told as FULL, nothing is charged or lost. */
START_TEST(sqlite_full_disk_is_nobodys_fault)
{
    static const struct pawl_request r = { .task = "mail", .key = "big" };
    struct effect_report rep;
    char *args = malloc(300000);
    struct fx f;

    fx_begin(&f, 0);
    fx_task(&f, "mail");
    fx_join(&f);
    for (int i = 0; i < 5; i++)
        fx_put(&f, "mail", "{}");
    memset(args, 'x', 299999);
    args[0] = args[299998] = '"';
    args[299999] = '\0';
    struct pawl_request big = r;
    big.args = args;
    try_sql(f.st, "PRAGMA max_page_count = 1");
    fx_is(fx_put_rc(&f, &big), PAWL_FULL, &f);
    const int64_t pages = fx_num(&f, "PRAGMA page_count");
    for (int i = 0; i < 200; i++) { /* fill what pages have left */
        struct pawl_request small = fx_req("mail", NULL, "{}");
        if (fx_put_rc(&f, &small) != PAWL_OK) break;
    }
    ck_assert_int_eq(fx_num(&f, "PRAGMA page_count"), pages);
    const int64_t accepted = fx_stat(&f, "accepted");
    for (int i = 0; i < 400 && fx_batch(&f, &rep) == PAWL_OK && rep.claimed > 0; i++)
        continue;
    ck_assert_int_eq(fx_num(&f, "SELECT coalesce(sum(runs), 0) FROM pawl_x_ready"), 0);
    try_sql(f.st, "PRAGMA max_page_count = 1000000");
    fx_drain(&f);
    ck_assert_int_eq(fx_stat(&f, "done"), accepted);
    ck_assert_int_eq(fx_num(&f, "SELECT count(DISTINCT job) FROM fx"), accepted);
    ck_assert_int_eq(fx_num(&f, "SELECT count(*) FROM fx"), accepted);
    fx_put_req(&f, &big);
    free(args);
    fx_end(&f);
}
END_TEST

static void add(TCase *tc)
{
    tcase_add_loop_test(tc, sqlite_handler_that_ends_the_transaction_leaves_no_half,
                        0, (int)UT_N(ways));
    tcase_add_test(tc, sqlite_stray_write_on_the_connection_is_rolled_back);
    tcase_add_test(tc, sqlite_full_disk_is_nobodys_fault);
}

int main(void)
{
    return ut_main("sqlite_guard", add, 30);
}
