// SPDX-License-Identifier: Apache-2.0
/* test_handler_c_batch.c - C handlers in batches without a savepoint a job: whatever a handler
 * wrote, and however, is gone when its job is not done; and a statement inside another's row. */
#include "test_handler_c.h"

#include <setjmp.h>
#include <signal.h>
#include <unistd.h>

enum { BEFORE = 1300, AFTER = 200 }; /* so many that went well make a batch a plain one */

static const char *way;
static enum pawl_outcome end_as;

static void exec(struct sqlite3 *db, const char *sql)
{
    ck_assert_ptr_nonnull(db);
    (void)sqlite3_exec(db, sql, NULL, NULL, NULL); /* some of these are meant to fail half-way */
}

static enum pawl_outcome write_unseen(struct pawl_run *run)
{
    struct pawl_error e;
    sqlite3_blob *blob = NULL;
    int64_t odd = 0;

    if (pawl_arg_int(run, "odd", &odd, &e) != PAWL_OK) return pawl_run_error(run, &e);
    if (odd == 0) {
        char key[32];
        snprintf(key, sizeof key, "%lld", (long long)run->job_id);
        return cfx_insert(run, key, 1, &e) == PAWL_OK ? PAWL_DONE : pawl_run_error(run, &e);
    }
    if (strcmp(way, "create") == 0) exec(pawl_run_sqlite(run), "CREATE TABLE partial (x)");
    if (strcmp(way, "drop") == 0) exec(pawl_run_sqlite(run), "DROP TABLE b");
    if (strcmp(way, "fail") == 0) exec(pawl_run_sqlite(run), "INSERT INTO a VALUES (1)");
    if (strcmp(way, "blob") == 0) {
        ck_assert_int_eq(sqlite3_blob_open(pawl_run_sqlite(run), "main", "c", "v", 1, 1, &blob), 0);
        ck_assert_int_eq(sqlite3_blob_write(blob, "PARTIAL!", 8, 0), SQLITE_OK);
        ck_assert_int_eq(sqlite3_blob_close(blob), SQLITE_OK);
    }
    if (strcmp(way, "exec") == 0 && pawl_exec(run, "CREATE TABLE partial (x)", NULL, 0, NULL, &e))
        return pawl_run_error(run, &e);
    pawl_run_say(run, "enough");
    return end_as;
}

/* All but the first by a handle that only SQLite hands out. */
static const char *const ways[] = {"exec", "create", "drop", "fail", "blob"};

START_TEST(test_what_a_failed_handler_wrote_unseen_is_undone_in_a_plain_batch)
{
    static struct pawl_request req[BEFORE + 1 + AFTER];
    static struct pawl_enqueued out[UT_N(req)];
    struct cfx f;

    way = ways[_i / 3];
    end_as = (enum pawl_outcome[]){PAWL_FAIL, PAWL_RETRY, PAWL_STALE}[_i % 3];
    cfx_begin(&f);
    f.task.policy = "max_retries = 0";
    if (cfx_kind == CFX_SQLITE)
        cfx_sql(&f, "CREATE TABLE a (x); CREATE TABLE b (id INTEGER PRIMARY KEY, x);"
                    "INSERT INTO b VALUES (1, 0), (2, 0), (3, 0);"
                    "CREATE TRIGGER b3 BEFORE UPDATE ON b WHEN new.id = 3"
                    " BEGIN SELECT raise(fail, 'no'); END;"
                    "CREATE TRIGGER a1 BEFORE INSERT ON a BEGIN UPDATE b SET x = x + 1; END;"
                    "CREATE TABLE c (id INTEGER PRIMARY KEY, v BLOB);"
                    "INSERT INTO c VALUES (1, zeroblob(8))");
    for (size_t i = 0; i < UT_N(req); i++)
        req[i] = (struct pawl_request){.task = "t", .args = i == BEFORE ? "{\"odd\":1}"
                                                                       : "{\"odd\":0}"};
    OK(pawl_enqueue(f.p, req, UT_N(req), out, NULL, e));
    f.apply = write_unseen;
    cfx_work(&f, false);
    OK(pawl_worker_run(f.w, true, e));
    ck_assert_int_eq(cfx_num(&f, "SELECT count(*) FROM row"), BEFORE + AFTER);
    ck_assert_int_eq(cfx_num(&f, "SELECT count(*) FROM pawl_jobs WHERE state = 'dead' OR outcome ="
                                 " 'stale'"), 1);
    ck_assert_int_eq(cfx_num(&f, cfx_of_kind("SELECT count(*) FROM sqlite_schema WHERE name ="
                                             " 'partial'", "SELECT count(to_regclass('partial'))")),
                     0);
    if (cfx_kind == CFX_SQLITE) {
        ck_assert_int_eq(cfx_num(&f, "SELECT sum(x) FROM b"), 0);
        ck_assert_int_eq(cfx_num(&f, "SELECT count(*) FROM c WHERE v = zeroblob(8)"), 1);
    }
    cfx_end(&f);
}
END_TEST

/* What would let later statements of the handler, or of others, pass for Pawl's own. */
static const char *const names[] = {
    "CREATE TEMP TRIGGER x AFTER DELETE ON pawl_x_ready BEGIN SELECT 1; END",
    "CREATE TRIGGER pawl_mine AFTER INSERT ON row BEGIN DELETE FROM pawl_x_done; END",
    "CREATE TEMP TRIGGER pawl_mine AFTER INSERT ON row BEGIN DELETE FROM pawl_x_done; END",
    "CREATE VIEW pawl_mine AS SELECT * FROM pawl_x_job",
    "CREATE TEMP TABLE pawl_x_ready (a)", "DROP VIEW pawl_jobs", "DROP TRIGGER pawl_enqueue_insert",
    "CREATE TABLE pawl_y (a)",
};

static enum pawl_outcome take_a_name(struct pawl_run *run)
{
    struct pawl_error e;
    const char *by = NULL;

    if (pawl_arg_text(run, "by", &by, NULL, &e) != PAWL_OK) return pawl_run_error(run, &e);
    if (strcmp(by, "raw") == 0) exec(pawl_run_sqlite(run), way);
    else if (pawl_exec(run, way, NULL, 0, NULL, &e) != PAWL_OK) return PAWL_DONE;
    return PAWL_DONE;
}

static int commits(void *ctx)
{
    (void)ctx;
    return 0;
}

static enum pawl_outcome take_the_hooks(struct pawl_run *run)
{
    sqlite3 *db = pawl_run_sqlite(run);

    ck_assert_ptr_nonnull(db);
    (void)sqlite3_commit_hook(db, commits, NULL);
    ck_assert_int_eq(sqlite3_set_authorizer(db, NULL, NULL), SQLITE_OK);
    return PAWL_DONE;
}

START_TEST(test_names_and_hooks_of_pawl_are_not_to_be_had)
{
    struct cfx f;

    way = names[_i];
    cfx_begin(&f);
    cfx_work(&f, false);
    for (int raw = 0; raw < 2; raw++) {
        struct pawl_ran ran = cfx_run(&f, raw ? "{\"by\":\"raw\"}" : "{\"by\":\"exec\"}",
                                      take_a_name);
        cfx_is(&ran, PAWL_STATE_DEAD, "misuse", "");
    }
    struct pawl_ran ran = cfx_run(&f, "{}", take_the_hooks); /* that is its own affair, for once */
    cfx_is(&ran, PAWL_STATE_DONE, "done", "");
    ran = cfx_run(&f, "{\"by\":\"raw\"}", take_a_name);
    cfx_is(&ran, PAWL_STATE_DEAD, "misuse", "");
    ck_assert_int_eq(cfx_num(&f, "SELECT count(*) FROM sqlite_schema WHERE name = 'pawl_mine'"), 0);
    cfx_end(&f);
}
END_TEST

static bool insert_a_row(void *run, const struct pawl_value *col, size_t n)
{
    struct pawl_error e;

    ck_assert_uint_eq(n, 1);
    if (col[0].i == 1) ck_assert_int_eq(cfx_insert(run, "inner", 1, &e), PAWL_OK);
    return true;
}

static enum pawl_outcome no_end(struct pawl_run *run)
{
    struct pawl_error e;

    if (pawl_query(run, "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c)"
                   " SELECT x FROM c WHERE x < 2", NULL, 0, insert_a_row, run, &e) != PAWL_OK)
        return pawl_run_error(run, &e);
    return PAWL_DONE;
}

START_TEST(test_statement_inside_a_row_leaves_the_outer_ones_limit_in_force)
{
    struct cfx f;

    cfx_begin(&f);
    f.task.policy = "max_retries = 0\nhard_limit = 200ms";
    cfx_work(&f, false);
    (void)alarm(20); /* before, it never ended */
    struct pawl_ran ran = cfx_run(&f, "{}", no_end);
    cfx_is(&ran, PAWL_STATE_DEAD, "timeout", "limit");
    ck_assert_int_eq(cfx_num(&f, "SELECT count(*) FROM row"), 0);
    cfx_end(&f);
}
END_TEST

static jmp_buf out_of_here;

static bool leave(void *ctx, const struct pawl_value *col, size_t n)
{
    (void)ctx;
    (void)col;
    (void)n;
    longjmp(out_of_here, 1);
}

static enum pawl_outcome jump(struct pawl_run *run)
{
    static const char *const sql[] = {
        "SELECT k FROM row", "INSERT INTO row (k, v) VALUES ('x', 1) RETURNING k",
    };
    struct pawl_error e;
    int64_t odd = 0;
    char key[32];

    if (pawl_arg_int(run, "odd", &odd, &e) != PAWL_OK) return pawl_run_error(run, &e);
    if (odd > 0) {
        if (setjmp(out_of_here) == 0
            && pawl_query(run, sql[odd - 1], NULL, 0, leave, NULL, &e) != PAWL_OK)
            return pawl_run_error(run, &e);
        return end_as;
    }
    snprintf(key, sizeof key, "%lld", (long long)run->job_id);
    return cfx_insert(run, key, 1, &e) == PAWL_OK ? PAWL_DONE : pawl_run_error(run, &e);
}

START_TEST(test_handler_that_jumps_out_of_a_row_is_misuse_and_stops_nobody)
{
    struct cfx f;

    end_as = _i % 2 == 0 ? PAWL_FAIL : PAWL_DONE;
    cfx_begin(&f);
    f.apply = jump;
    for (int i = 0; i < 40; i++)
        (void)cfx_put(&f, "{\"odd\":0}");
    const int64_t id = cfx_put(&f, _i < 2 ? "{\"odd\":1}" : "{\"odd\":2}");
    for (int i = 0; i < 40; i++)
        (void)cfx_put(&f, "{\"odd\":0}");
    cfx_work(&f, false);
    OK(pawl_worker_run(f.w, true, e));
    ck_assert_str_eq(cfx_class(&f, id), "misuse");
    ck_assert_int_eq(cfx_num(&f, "SELECT count(*) FROM row"), 80);
    cfx_end(&f);
}
END_TEST

static void add(TCase *tc)
{
    const int ways_n = cfx_kind == CFX_SQLITE ? (int)UT_N(ways) : 1;

    tcase_add_loop_test(tc, test_handler_that_jumps_out_of_a_row_is_misuse_and_stops_nobody, 0, 4);
    tcase_add_loop_test(tc, test_what_a_failed_handler_wrote_unseen_is_undone_in_a_plain_batch, 0,
                        ways_n * 3);
    if (cfx_kind == CFX_SQLITE)
        tcase_add_loop_test(tc, test_names_and_hooks_of_pawl_are_not_to_be_had, 0,
                            (int)UT_N(names));
    tcase_add_test(tc, test_statement_inside_a_row_leaves_the_outer_ones_limit_in_force);
}

int main(void)
{
    return cfx_main("handler_c_batch", add, 30);
}
