// SPDX-License-Identifier: Apache-2.0
/* test_handler_c.c - a C handler in the job's transaction: what its return code means, what it may
 * not do, and that nothing of a refused run is left while its neighbours of the batch are done. */
#include "unit/test_handler_c.h"

#define INSERT "INSERT INTO row (k, v) VALUES (:k, 1)"

/* --- outcomes --- */

static enum pawl_outcome as_told(struct pawl_run *run)
{
    struct pawl_error e;
    int64_t code = -1;

    if (pawl_arg_int(run, "code", &code, &e) != PAWL_OK) return pawl_run_error(run, &e);
    if (cfx_insert(run, "told", code, &e) != PAWL_OK) return pawl_run_error(run, &e);
    if (code != PAWL_DONE) pawl_run_say(run, "code %d, it says", (int)code);
    if (code == PAWL_SNOOZE) pawl_run_after(run, 60 * SEC);
    return (enum pawl_outcome)code;
}

START_TEST(test_every_outcome)
{
    static const struct {
        const char *args, *outcome;
        enum pawl_state state;
        int64_t rows;
    } want[] = {
        {"{\"code\":0}", "done", PAWL_STATE_DONE, 1},
        {"{\"code\":1}", "stale", PAWL_STATE_DONE, 0},
        {"{\"code\":2}", "transient", PAWL_STATE_READY, 0},
        {"{\"code\":3}", "permanent", PAWL_STATE_DEAD, 0},
        {"{\"code\":4}", "snooze", PAWL_STATE_READY, 0},
        {"{\"code\":5}", "discard", PAWL_STATE_DROPPED, 0},
        {"{\"code\":6}", "misuse", PAWL_STATE_DEAD, 0},
        {"{\"code\":-7}", "misuse", PAWL_STATE_DEAD, 0},
    };
    struct cfx f;

    cfx_begin(&f);
    cfx_work(&f, false);
    for (size_t i = 0; i < UT_N(want); i++) {
        struct pawl_ran ran = cfx_run(&f, want[i].args, as_told);
        cfx_is(&ran, want[i].state, want[i].outcome,
               want[i].rows > 0 || i == 1 ? "" : i >= 6 ? "no enum pawl_outcome" : "it says");
        ck_assert_int_eq(cfx_num(&f, "SELECT count(*) FROM row"), want[i].rows);
        cfx_sql(&f, "DELETE FROM row");
    }
    cfx_end(&f);
}
END_TEST

static enum pawl_outcome silent(struct pawl_run *run)
{
    return *(enum pawl_outcome *)cfx_of(run)->own;
}

START_TEST(test_a_silent_failure_has_a_text)
{
    enum pawl_outcome out;
    struct pawl_ran ran;
    struct cfx f;

    cfx_begin(&f);
    f.own = &out;
    cfx_work(&f, false);
    out = PAWL_FAIL;
    ran = cfx_run(&f, "{}", silent);
    cfx_is(&ran, PAWL_STATE_DEAD, "permanent", "returned PAWL_FAIL");
    out = PAWL_RETRY;
    ran = cfx_run(&f, "{}", silent);
    cfx_is(&ran, PAWL_STATE_READY, "transient", "returned PAWL_RETRY");
    cfx_end(&f);
}
END_TEST

static enum pawl_outcome later(struct pawl_run *run)
{
    pawl_run_after(run, 3600 * SEC);
    return PAWL_RETRY;
}

START_TEST(test_after_is_a_floor)
{
    struct cfx f;
    struct pawl_ran ran;

    cfx_begin(&f);
    cfx_work(&f, false);
    ran = cfx_run(&f, "{}", later);
    cfx_is(&ran, PAWL_STATE_READY, "transient", "");
    ck_assert_int_ge(cfx_num(&f, "SELECT run_at_us FROM pawl_jobs"), f.now_us + 3600 * SEC);
    FAILS(pawl_worker_one(f.w, &ran, e), PAWL_NOTFOUND, "due");
    f.now_us += 2 * 3600 * SEC;
    ran = cfx_one(&f);
    ck_assert_int_eq(ran.job_id, 1);
    cfx_end(&f);
}
END_TEST

/* --- what an error means --- */

static enum pawl_outcome twice(struct pawl_run *run)
{
    struct pawl_error e;

    if (cfx_insert(run, "same", 1, &e) != PAWL_OK) return pawl_run_error(run, &e);
    if (cfx_insert(run, "same", 2, &e) != PAWL_OK) return pawl_run_error(run, &e);
    return PAWL_DONE;
}

static enum pawl_outcome made_up(struct pawl_run *run)
{
    struct pawl_error e = {.rc = PAWL_BUSY, .msg = "another service is busy"};

    return cfx_of(run)->applies > 2 ? PAWL_DONE : pawl_run_error(run, &e);
}

START_TEST(test_errors_by_their_cause)
{
    struct pawl_ran ran;
    struct cfx f;

    cfx_begin(&f);
    cfx_work(&f, false);
    ran = cfx_run(&f, "{}", twice);
    cfx_is(&ran, PAWL_STATE_DEAD, "permanent",
           cfx_of_kind("UNIQUE constraint failed", "violates unique constraint"));
    /* Trouble of the store is nobody's: told to the caller, nothing is charged. */
    f.apply = made_up;
    f.applies = 0;
    (void)cfx_put(&f, "{}");
    FAILS(pawl_worker_one(f.w, &ran, e), PAWL_STORE, "another service is busy");
    ck_assert_int_eq(cfx_num(&f, "SELECT runs + failures FROM pawl_jobs WHERE id = 2"), 0);
    FAILS(pawl_worker_one(f.w, &ran, e), PAWL_STORE, "");
    ran = cfx_one(&f);
    cfx_is(&ran, PAWL_STATE_DONE, "done", "");
    cfx_end(&f);
}
END_TEST

/* --- misuse --- */

static void swallow(struct pawl_run *run, const char *sql)
{
    struct pawl_error e;

    ck_assert_int_ne(pawl_exec(run, sql, NULL, 0, NULL, &e), PAWL_OK);
}

static void raw(struct pawl_run *run, const char *sql)
{
    sqlite3 *db = pawl_run_sqlite(run);

    ck_assert_ptr_nonnull(db);
    (void)sqlite3_exec(db, sql, NULL, NULL, NULL);
}

static enum pawl_outcome bad_commit(struct pawl_run *run)
{
    swallow(run, "COMMIT");
    return PAWL_DONE;
}
static enum pawl_outcome bad_rollback(struct pawl_run *run)
{
    swallow(run, "ROLLBACK");
    return PAWL_STALE;
}
static enum pawl_outcome bad_table(struct pawl_run *run)
{
    swallow(run, "UPDATE pawl_x_job SET args = '{}'");
    return PAWL_DONE;
}
static enum pawl_outcome bad_swallow(struct pawl_run *run)
{
    swallow(run, "INSERT INTO row (k, v) SELECT k, v FROM row"); /* its own row, twice */
    return PAWL_DONE;
}
static enum pawl_outcome bad_nonsense(struct pawl_run *run)
{
    swallow(run, "SELECT * FROM no_such_table");
    return PAWL_DONE;
}
static enum pawl_outcome bad_param(struct pawl_run *run)
{
    const struct pawl_value v = pawl_int("kk", 1);
    struct pawl_error e;

    ck_assert_int_eq(pawl_exec(run, INSERT, &v, 1, NULL, &e), PAWL_BADARG);
    ck_assert_ptr_nonnull(strstr(e.msg, "kk"));
    return PAWL_DONE;
}
static enum pawl_outcome bad_enqueue(struct pawl_run *run)
{
    const struct pawl_request r = {.task = "t", .args = "{"};
    struct pawl_enqueued out;

    ck_assert_int_eq(pawl_run_enqueue(run, &r, 1, &out, NULL, NULL), PAWL_BADDATA);
    return PAWL_DONE;
}
static enum pawl_outcome raw_commit(struct pawl_run *run) { raw(run, "COMMIT"); return PAWL_DONE; }
static enum pawl_outcome raw_again(struct pawl_run *run)
{
    raw(run, "ROLLBACK; BEGIN");
    return PAWL_DONE;
}
static enum pawl_outcome raw_savepoint(struct pawl_run *run)
{
    raw(run, "SAVEPOINT mine");
    return PAWL_STALE;
}
static enum pawl_outcome raw_table(struct pawl_run *run)
{
    raw(run, "DELETE FROM pawl_x_ready");
    return PAWL_DONE;
}
static enum pawl_outcome raw_raise(struct pawl_run *run)
{
    raw(run, "INSERT OR ROLLBACK INTO row (k, v) SELECT k, v FROM row");
    return PAWL_DONE;
}

static const struct { const char *name; pawl_handler_fn *fn; } bad[] = {
    {"COMMIT", bad_commit}, {"ROLLBACK, stale", bad_rollback}, {"a table of ours", bad_table},
    {"a swallowed constraint", bad_swallow}, {"a swallowed syntax error", bad_nonsense},
    {"an unknown parameter", bad_param}, {"a swallowed enqueue", bad_enqueue},
    /* By what only SQLite hands out: */
    {"COMMIT by the handle", raw_commit}, {"ROLLBACK; BEGIN by the handle", raw_again},
    {"SAVEPOINT by the handle", raw_savepoint}, {"a table of ours by the handle", raw_table},
    {"OR ROLLBACK by the handle", raw_raise},
};
#define RAW_N 5

/* Who has many statements must be told which one it was. */
static const struct { const char *sql, *sqlite, *postgres, *in; } named[] = {
    {"INSERT INOT\n  row VALUES (1)", "syntax error", "syntax error at or near \"INOT\"",
     ", in: INSERT INOT row VALUES (1)"},
    {"DELETE FROM chrage;", "no such table: chrage", "relation \"chrage\" does not exist",
     ", in: DELETE FROM chrage"},
    {"INSERT INTO row VALUES ('k', 1), ('k', 2)", "UNIQUE constraint failed: row.k",
     "violates unique constraint \"row_pkey\"", ", in: INSERT INTO row VALUES ('k', 1), ('k', 2)"},
    {"INSERT INTO row SELECT 'kkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkk', absent",
     "no such column: absent", "column \"absent\" does not exist", ", in: INSERT INTO row SELECT"
     " 'kkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkk..."},
    {"COMMIT", "Pawl opens and closes", "Pawl opens and closes",
     " the transaction of a job; take it out, in: COMMIT"},
    {"DELETE FROM row; SELECT 1", "give them one by one", "give them one by one", ""},
    {"PRAGMA user_version", "use on_connect", "use on_connect", ", in"},
};

static enum pawl_outcome runs_named(struct pawl_run *run)
{
    struct pawl_error e;

    FAILS(pawl_query(run, named[*(int *)cfx_of(run)->own].sql, NULL, 0, NULL, NULL, e),
          PAWL_BADARG, "callback");
    if (pawl_exec(run, named[*(int *)cfx_of(run)->own].sql, NULL, 0, NULL, &e) == PAWL_OK)
        return PAWL_SNOOZE;
    return pawl_run_error(run, &e);
}

/* Both ways to enqueue on the handler's own connection. */
static enum pawl_outcome enqueues_by_sql(struct pawl_run *run)
{
    struct pawl_error e;

    if (pawl_exec(run, cfx_of_kind("INSERT INTO pawl_enqueue (task, key) VALUES ('t', 'by sql')",
                                   "SELECT pawl.enqueue('t', key => 'by sql')"), NULL, 0, NULL, &e)
        != PAWL_OK)
        return pawl_run_error(run, &e);
    return PAWL_DONE;
}

static enum pawl_outcome enqueues_by_door(struct pawl_run *run)
{
    const struct pawl_request r = {.task = "t", .key = "by door"};
    struct pawl_enqueued out;
    struct pawl_error e;

    if (cfx_kind == CFX_POSTGRES) { /* no connection is handed out that the door could be given */
        ck_assert_ptr_null(pawl_run_sqlite(run));
        return PAWL_DONE;
    }
    if (pawl_enqueue_sqlite(pawl_run_sqlite(run), &r, 1, &out, NULL, &e) != PAWL_OK)
        return pawl_run_error(run, &e);
    return PAWL_DONE;
}

START_TEST(test_follow_ups_by_sql_and_not_by_the_door)
{
    struct pawl_ran ran;
    struct cfx f;

    cfx_begin(&f);
    cfx_work(&f, false);
    ran = cfx_run(&f, "{}", enqueues_by_sql);
    cfx_is(&ran, PAWL_STATE_DONE, "done", "");
    ck_assert_int_eq(cfx_num(&f, "SELECT count(*) FROM pawl_jobs WHERE key = 'by sql'"), 1);
    f.apply = enqueues_by_door;
    ran = cfx_one(&f);
    if (cfx_kind == CFX_POSTGRES) cfx_is(&ran, PAWL_STATE_DONE, "done", "");
    else cfx_is(&ran, PAWL_STATE_DEAD, "permanent", "use pawl_run_enqueue");
    ck_assert_int_eq(cfx_num(&f, "SELECT count(*) FROM pawl_jobs WHERE key = 'by door'"), 0);
    cfx_end(&f);
}
END_TEST

START_TEST(test_a_failed_statement_is_named)
{
    struct pawl_ran ran;
    struct cfx f;
    int which = _i;

    cfx_begin(&f);
    f.own = &which;
    cfx_work(&f, false);
    ran = cfx_run(&f, "{}", runs_named);
    cfx_is(&ran, PAWL_STATE_DEAD, "permanent", cfx_of_kind(named[_i].sqlite, named[_i].postgres));
    cfx_is(&ran, PAWL_STATE_DEAD, "permanent", named[_i].in);
    cfx_end(&f);
}
END_TEST

/* The reason is short, and its error cut: the whole of it is said once. */
START_TEST(test_a_misuse_is_said_once)
{
    static const char once[] = "although a call had failed";
    struct pawl_ran ran;
    struct cfx f;
    const char *at;

    cfx_begin(&f);
    cfx_work(&f, false);
    ran = cfx_run(&f, "{}", bad_commit);
    cfx_is(&ran, PAWL_STATE_DEAD, "misuse", "of a job; take it out, in: COMMIT");
    at = strstr(ran.text, once);
    ck_assert_ptr_nonnull(at);
    ck_assert_msg(strstr(at + 1, once) == NULL, "%s", ran.text);
    cfx_end(&f);
}
END_TEST

/* Writes its row; then, if it is the bad one, what the test is about. */
static enum pawl_outcome bad_or_good(struct pawl_run *run)
{
    struct cfx *f = cfx_of(run);
    struct pawl_error e;
    const char *k;

    if (pawl_arg_text(run, "k", &k, NULL, &e) != PAWL_OK || cfx_insert(run, k, 1, &e) != PAWL_OK)
        return pawl_run_error(run, &e);
    return strcmp(k, "bad") == 0 ? bad[*(int *)f->own].fn(run) : PAWL_DONE;
}

START_TEST(test_misuse_leaves_nothing_and_harms_no_neighbour)
{
    static const char *const args[] = {"{\"k\":\"a\"}", "{\"k\":\"b\"}", "{\"k\":\"bad\"}",
                                       "{\"k\":\"c\"}", "{\"k\":\"d\"}"};
    struct cfx f;
    int which = _i;

    cfx_begin(&f);
    f.own = &which;
    f.apply = bad_or_good;
    for (size_t i = 0; i < UT_N(args); i++) (void)cfx_put(&f, args[i]);
    cfx_work(&f, false);
    OK(pawl_worker_run(f.w, true, e));
    ck_assert_msg(strcmp(cfx_class(&f, 3), "misuse") == 0, "%s: %s", bad[_i].name,
                  cfx_class(&f, 3));
    ck_assert_int_eq(cfx_num(&f, "SELECT count(*) FROM pawl_jobs WHERE state = 'done'"), 4);
    ck_assert_int_eq(cfx_num(&f, "SELECT count(*) FROM row"), 4);
    ck_assert_int_eq(cfx_num(&f, "SELECT count(*) FROM row WHERE k = 'bad'"), 0);
    ck_assert_int_eq(cfx_num(&f, "SELECT count(*) FROM pawl_jobs"), 5);
    cfx_end(&f);
}
END_TEST

START_TEST(test_misuse_alone_in_its_batch)
{
    struct cfx f;
    struct pawl_ran ran;
    int which = _i;

    cfx_begin(&f);
    f.own = &which;
    cfx_work(&f, false);
    ran = cfx_run(&f, "{\"k\":\"bad\"}", bad_or_good);
    cfx_is(&ran, PAWL_STATE_DEAD, "misuse", "");
    ck_assert_int_eq(cfx_num(&f, "SELECT count(*) FROM row"), 0);
    ran = cfx_run(&f, "{\"k\":\"good\"}", bad_or_good);
    cfx_is(&ran, PAWL_STATE_DONE, "done", "");
    cfx_end(&f);
}
END_TEST

/* The text of misuse holds the first error, not a later one. */
static enum pawl_outcome two_errors(struct pawl_run *run)
{
    swallow(run, "SELECT first_one");
    swallow(run, "SELECT second_one");
    pawl_run_say(run, "all is well");
    return PAWL_DONE;
}

START_TEST(test_misuse_names_the_first_error)
{
    struct cfx f;
    struct pawl_ran ran;

    cfx_begin(&f);
    cfx_work(&f, false);
    ran = cfx_run(&f, "{}", two_errors);
    cfx_is(&ran, PAWL_STATE_DEAD, "misuse", "first_one");
    cfx_end(&f);
}
END_TEST

/* "It is there already": a constraint says so, and stale is the right answer. */
static enum pawl_outcome there_already(struct pawl_run *run)
{
    struct pawl_error e;

    if (cfx_insert(run, "mine", 1, &e) != PAWL_OK) return pawl_run_error(run, &e);
    return cfx_insert(run, "known", 1, &e) == PAWL_OK ? PAWL_DONE : PAWL_STALE;
}

START_TEST(test_stale_after_a_failed_statement_is_fine)
{
    struct cfx f;
    struct pawl_ran ran;

    cfx_begin(&f);
    cfx_sql(&f, "INSERT INTO row VALUES ('known', 0)");
    cfx_work(&f, false);
    ran = cfx_run(&f, "{}", there_already);
    cfx_is(&ran, PAWL_STATE_DONE, "stale", "");
    ck_assert_int_eq(cfx_num(&f, "SELECT count(*) FROM row"), 1);
    cfx_end(&f);
}
END_TEST

/* The raw handle, used as it may be. */
static enum pawl_outcome raw_good(struct pawl_run *run)
{
    raw(run, "INSERT INTO row VALUES ('raw', 1)");
    return PAWL_DONE;
}

START_TEST(test_the_raw_handle_is_in_the_transaction)
{
    struct cfx f;
    struct pawl_ran ran;

    cfx_begin(&f);
    cfx_work(&f, false);
    ran = cfx_run(&f, "{}", raw_good);
    cfx_is(&ran, PAWL_STATE_DONE, "done", "");
    ck_assert_int_eq(cfx_num(&f, "SELECT count(*) FROM row WHERE k = 'raw'"), 1);
    cfx_end(&f);
}
END_TEST

/* --- a statement of its own ends the transaction: that is a verdict --- */

static enum pawl_outcome raises(struct pawl_run *run)
{
    struct pawl_error e;

    if (pawl_exec(run, "INSERT INTO row VALUES ('raise', 1)", NULL, 0, NULL, &e) != PAWL_OK)
        return pawl_run_error(run, &e);
    return PAWL_DONE;
}

START_TEST(test_what_a_trigger_refuses_is_permanent)
{
    struct cfx f;
    struct pawl_ran ran;

    cfx_begin(&f);
    cfx_sql(&f, cfx_of_kind("CREATE TRIGGER no BEFORE INSERT ON row WHEN new.k = 'raise'"
                            " BEGIN SELECT RAISE(ROLLBACK, 'not that one'); END",
                            "CREATE FUNCTION no() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN"
                            " RAISE 'not that one'; END $$; CREATE TRIGGER no BEFORE INSERT ON row"
                            " FOR EACH ROW WHEN (new.k = 'raise') EXECUTE FUNCTION no()"));
    cfx_work(&f, false);
    ran = cfx_run(&f, "{}", raises);
    cfx_is(&ran, PAWL_STATE_DEAD, "permanent", "not that one");
    cfx_end(&f);
}
END_TEST

/* --- the hard limit --- */

static enum pawl_outcome endless(struct pawl_run *run)
{
    struct pawl_error e;
    int64_t left = pawl_run_time_left_us(run);

    ck_assert(left > 0 && left <= SEC / 5);
    if (pawl_exec(run, "WITH RECURSIVE c(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM c)"
                       " INSERT INTO row SELECT i, i FROM c WHERE i < 0", NULL, 0, NULL, &e)
        != PAWL_OK) {
        ck_assert_int_eq(pawl_run_time_left_us(run), 0);
        return pawl_run_error(run, &e);
    }
    return PAWL_DONE;
}

START_TEST(test_a_statement_is_interrupted_at_the_hard_limit)
{
    struct cfx f;
    struct pawl_ran ran;

    cfx_begin(&f);
    f.task.policy = "hard_limit = 200ms";
    cfx_work(&f, false);
    ran = cfx_run(&f, "{}", endless);
    cfx_is(&ran, PAWL_STATE_READY, "timeout", "time limit");
    cfx_end(&f);
}
END_TEST

static void add(TCase *tc)
{
    const int bad_n = (int)UT_N(bad) - (cfx_kind == CFX_SQLITE ? 0 : RAW_N);

    tcase_add_test(tc, test_every_outcome);
    tcase_add_test(tc, test_a_silent_failure_has_a_text);
    tcase_add_test(tc, test_after_is_a_floor);
    tcase_add_test(tc, test_errors_by_their_cause);
    tcase_add_loop_test(tc, test_a_failed_statement_is_named, 0, UT_N(named));
    tcase_add_test(tc, test_a_misuse_is_said_once);
    tcase_add_test(tc, test_follow_ups_by_sql_and_not_by_the_door);
    tcase_add_loop_test(tc, test_misuse_leaves_nothing_and_harms_no_neighbour, 0, bad_n);
    tcase_add_loop_test(tc, test_misuse_alone_in_its_batch, 0, bad_n);
    tcase_add_test(tc, test_misuse_names_the_first_error);
    tcase_add_test(tc, test_stale_after_a_failed_statement_is_fine);
    if (cfx_kind == CFX_SQLITE) tcase_add_test(tc, test_the_raw_handle_is_in_the_transaction);
    tcase_add_test(tc, test_what_a_trigger_refuses_is_permanent);
    tcase_add_test(tc, test_a_statement_is_interrupted_at_the_hard_limit);
}

int main(void)
{
    return cfx_main("handler_c", add, 30);
}
