// SPDX-License-Identifier: Apache-2.0
/* test_handler_c_prepared.c - handlers with prepare: prepare, apply, drop in order; a plan is
 * dropped exactly once, whatever came of the run and however often apply was called. */
#include "unit/test_handler_c.h"

enum { PLANS = 64 };

/* What happened to each run, by the number of its prepare. */
struct plans {
    struct { int applies, drops; } of[PLANS];
    char log[512]; /* "p1 a1 d1 " */
};

/* One plan, in the run's own memory: it must be there until drop. */
struct plan {
    int n;
    const char *key;
    char text[16];
};

static void note(struct cfx *f, char what, int n)
{
    struct plans *all = f->own;
    size_t at = strlen(all->log);

    snprintf(all->log + at, sizeof all->log - at, "%c%d ", what, n);
}

static enum pawl_outcome plans_prepare(struct pawl_run *run)
{
    struct cfx *f = cfx_of(run);
    struct plan *plan = pawl_run_alloc(run, sizeof *plan);
    struct pawl_error e;
    int64_t code = 0;

    ck_assert_ptr_nonnull(plan);
    plan->n = f->prepares;
    ck_assert_int_lt(plan->n, PLANS);
    plan->key = pawl_run_idempotency_key(run);
    snprintf(plan->text, sizeof plan->text, "plan %d", plan->n);
    run->plan = plan;
    note(f, 'p', plan->n);
    ck_assert_ptr_null(pawl_run_sqlite(run));
    if (pawl_arg_int(run, "prepare", &code, &e) != PAWL_OK && e.rc != PAWL_NOTFOUND)
        return pawl_run_error(run, &e);
    if (code != PAWL_DONE) pawl_run_say(run, "prepare says %d", (int)code);
    return (enum pawl_outcome)code;
}

static enum pawl_outcome plans_apply(struct pawl_run *run)
{
    struct cfx *f = cfx_of(run);
    struct plans *all = f->own;
    const struct plan *plan = run->plan;
    char want[16];
    struct pawl_error e;
    int64_t code = 0;

    snprintf(want, sizeof want, "plan %d", plan->n);
    ck_assert_str_eq(plan->text, want);
    ck_assert_str_eq(plan->key, pawl_run_idempotency_key(run));
    ck_assert_int_eq(all->of[plan->n].drops, 0);
    all->of[plan->n].applies++;
    note(f, 'a', plan->n);
    if (cfx_insert(run, want, plan->n, &e) != PAWL_OK) return pawl_run_error(run, &e);
    if (pawl_arg_int(run, "apply", &code, &e) != PAWL_OK && e.rc != PAWL_NOTFOUND)
        return pawl_run_error(run, &e);
    if (code != PAWL_DONE) pawl_run_say(run, "apply says %d", (int)code);
    return (enum pawl_outcome)code;
}

static void plans_drop(struct pawl_run *run)
{
    struct cfx *f = cfx_of(run);
    struct plans *all = f->own;
    const struct plan *plan = run->plan;
    struct pawl_error e;
    struct pawl_value v;

    ck_assert_ptr_nonnull(plan);
    all->of[plan->n].drops++;
    note(f, 'd', plan->n);
    /* The run is over: whatever is called is refused and does nothing. */
    ck_assert_int_eq(pawl_exec(run, "DELETE FROM row", NULL, 0, NULL, &e), PAWL_TOOLATE);
    ck_assert_int_eq(pawl_arg(run, "apply", &v, &e), PAWL_TOOLATE);
    ck_assert_ptr_null(pawl_run_alloc(run, 1));
    ck_assert(pawl_run_cancelled(run));
}

static void begin(struct cfx *f, struct plans *all)
{
    memset(all, 0, sizeof *all);
    cfx_begin(f);
    f->own = all;
    f->prepare = plans_prepare;
    f->apply = plans_apply;
    f->drop = plans_drop;
}

static void all_dropped_once(const struct cfx *f)
{
    const struct plans *all = f->own;

    ck_assert_int_eq(f->drops, f->prepares);
    for (int n = 1; n <= f->prepares; n++)
        ck_assert_msg(all->of[n].drops == 1, "plan %d dropped %d times: %s", n, all->of[n].drops,
                      all->log);
}

START_TEST(test_in_order)
{
    struct plans all;
    struct pawl_ran ran;
    struct cfx f;

    begin(&f, &all);
    cfx_work(&f, true);
    ran = cfx_run(&f, "{}", plans_apply);
    cfx_is(&ran, PAWL_STATE_DONE, "done", "");
    ck_assert_str_eq(all.log, "p1 a1 d1 ");
    ck_assert_int_eq(cfx_num(&f, "SELECT count(*) FROM row WHERE k = 'plan 1'"), 1);
    FAILS(pawl_worker_one(f.w, &ran, e), PAWL_NOTFOUND, "due");
    cfx_end(&f);
    all_dropped_once(&f);
}
END_TEST

START_TEST(test_every_outcome_of_both)
{
    static const struct {
        const char *args, *outcome;
        enum pawl_state state;
        bool applied;
    } want[] = {
        {"{\"prepare\":1}", "stale", PAWL_STATE_DONE, false},
        {"{\"prepare\":2}", "transient", PAWL_STATE_READY, false},
        {"{\"prepare\":3}", "permanent", PAWL_STATE_DEAD, false},
        {"{\"prepare\":4}", "snooze", PAWL_STATE_READY, false},
        {"{\"prepare\":5}", "discard", PAWL_STATE_DROPPED, false},
        {"{\"prepare\":99}", "misuse", PAWL_STATE_DEAD, false},
        {"{\"apply\":0}", "done", PAWL_STATE_DONE, true},
        {"{\"apply\":1}", "stale", PAWL_STATE_DONE, true},
        {"{\"apply\":2}", "transient", PAWL_STATE_READY, true},
        {"{\"apply\":3}", "permanent", PAWL_STATE_DEAD, true},
        {"{\"apply\":4}", "snooze", PAWL_STATE_READY, true},
        {"{\"apply\":5}", "discard", PAWL_STATE_DROPPED, true},
        {"{\"apply\":99}", "misuse", PAWL_STATE_DEAD, true},
    };
    struct plans all;
    struct cfx f;

    begin(&f, &all);
    cfx_work(&f, true);
    for (size_t i = 0; i < UT_N(want); i++) {
        struct pawl_ran ran = cfx_run(&f, want[i].args, plans_apply);
        cfx_is(&ran, want[i].state, want[i].outcome, "");
        ck_assert_int_eq(all.of[f.prepares].applies > 0, want[i].applied);
        ck_assert_int_eq(cfx_num(&f, "SELECT count(*) FROM row"), strcmp(want[i].outcome, "done")
                         == 0 ? 1 : 0);
        cfx_sql(&f, "DELETE FROM row");
    }
    all_dropped_once(&f);
    cfx_end(&f);
}
END_TEST

/* A batch whose commit fails for one of its jobs is run again one by one: apply is called again
 * with the same plan, prepare is not. */
START_TEST(test_apply_again_after_a_failed_commit)
{
    struct plans all;
    struct cfx f;
    int again = 0;

    begin(&f, &all);
    cfx_sql(&f, "CREATE TABLE parent (n INTEGER PRIMARY KEY)");
    cfx_sql(&f, "CREATE TABLE child (n INTEGER REFERENCES parent (n) DEFERRABLE INITIALLY"
                " DEFERRED)");
    cfx_sql(&f, cfx_of_kind("CREATE TRIGGER follow AFTER INSERT ON row WHEN new.v = 2"
                            " BEGIN INSERT INTO child VALUES (new.v); END",
                            "CREATE FUNCTION follow() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN"
                            " INSERT INTO child VALUES (new.v); RETURN new; END $$; CREATE TRIGGER"
                            " follow AFTER INSERT ON row FOR EACH ROW WHEN (new.v = 2) EXECUTE"
                            " FUNCTION follow()"));
    for (int i = 0; i < 4; i++) (void)cfx_put(&f, "{}");
    cfx_work(&f, true);
    OK(pawl_worker_run(f.w, true, e));
    ck_assert_int_eq(f.prepares, 4);
    for (int n = 1; n <= 4; n++) again += all.of[n].applies > 1;
    ck_assert_msg(again > 0, "no apply was called again: %s", all.log);
    ck_assert_int_eq(cfx_num(&f, "SELECT count(*) FROM row"), 3);
    ck_assert_int_eq(cfx_num(&f, "SELECT count(*) FROM child"), 0);
    ck_assert_int_eq(cfx_num(&f, "SELECT count(*) FROM pawl_jobs WHERE state = 'done'"), 3);
    ck_assert_str_eq(cfx_class(&f, 2), "permanent");
    all_dropped_once(&f);
    cfx_end(&f);
}
END_TEST

/* --- what prepare may do --- */

static enum pawl_outcome tries(struct pawl_run *run)
{
    const struct pawl_request keyless = {.task = "next"}, keyed = {.task = "next", .key = "k"};
    struct pawl_enqueued out;
    struct pawl_value v;
    bool found;
    size_t bad;

    OK(pawl_query_row(run, "SELECT count(*) FROM row", NULL, 0, &v, 1, &found, e));
    ck_assert(found && v.i == 0);
    OK(pawl_run_enqueue(run, &keyed, 1, &out, &bad, e));
    ck_assert(out.created && out.near[0] == '\0');
    OK(pawl_run_enqueue(run, &keyed, 1, &out, &bad, e));
    ck_assert(!out.created);
    FAILS(pawl_run_enqueue(run, &keyless, 1, &out, &bad, e), PAWL_TOOLATE, "key");
    ck_assert_uint_eq(bad, 0);
    FAILS(pawl_query(run, "DELETE FROM row RETURNING k", NULL, 0, NULL, NULL, e), PAWL_BADARG, "");
    FAILS(pawl_query_row(run, "DELETE FROM row RETURNING k", NULL, 0, &v, 1, &found, e),
          PAWL_CONFIG, "reads");
    FAILS(pawl_exec(run, "DELETE FROM row", NULL, 0, NULL, e), PAWL_TOOLATE, "apply");
    return PAWL_DONE; /* in spite of the failures */
}

START_TEST(test_prepare_reads_and_enqueues_with_a_key)
{
    struct pawl_ran ran;
    struct plans all;
    struct cfx f;

    begin(&f, &all);
    f.prepare = tries;
    f.drop = NULL;
    cfx_work(&f, true);
    ran = cfx_run(&f, "{}", NULL);
    cfx_is(&ran, PAWL_STATE_DEAD, "misuse", "key");
    ck_assert_int_eq(f.applies, 0);
    ck_assert_int_eq(f.drops, 1);
    ck_assert_int_eq(cfx_num(&f, "SELECT count(*) FROM pawl_jobs WHERE task = 'next'"), 1);
    cfx_end(&f);
}
END_TEST

static enum pawl_outcome gives_result(struct pawl_run *run)
{
    OK(pawl_run_result(run, "\"prepared\"", 10, e));
    return PAWL_DONE;
}

START_TEST(test_prepare_alone_and_its_result)
{
    struct plans all;
    struct pawl_ran ran;
    char text[64];
    struct cfx f;

    begin(&f, &all);
    f.prepare = gives_result;
    f.drop = NULL;
    cfx_work(&f, true);
    f.handler.apply = NULL; /* read at each run */
    ran = cfx_run(&f, "{}", NULL);
    cfx_is(&ran, PAWL_STATE_DONE, "done", "");
    ck_assert_int_eq(f.applies, 0);
    ck_assert_str_eq(cfx_text(&f, "SELECT result FROM pawl_jobs", text, sizeof text),
                     "\"prepared\"");
    cfx_end(&f);
}
END_TEST

/* --- cancelled --- */

/* The job is cancelled by somebody else while it is prepared: it hears of it, and stops. */
static enum pawl_outcome cancelled_under_way(struct pawl_run *run)
{
    OK(pawl_run_heartbeat(run, e));
    ck_assert(!pawl_run_cancelled(run));
    OK(pawl_cancel(cfx_of(run)->p, run->job_id, NULL, e));
    while (!pawl_run_cancelled(run)) {} /* bounded by the test's time */
    FAILS(pawl_run_heartbeat(run, e), PAWL_FENCED, "cancelled");
    return PAWL_RETRY;
}

START_TEST(test_a_cancel_is_heard)
{
    struct plans all;
    bool more;
    struct cfx f;

    begin(&f, &all);
    f.prepare = cancelled_under_way;
    f.drop = NULL;
    cfx_work(&f, true);
    (void)cfx_put(&f, "{}");
    OK(pawl_worker_step(f.w, &more, e));
    ck_assert_int_eq(f.prepares, 1);
    ck_assert_int_eq(f.drops, 1);
    ck_assert_str_eq(cfx_class(&f, 1), "cancelled");
    cfx_end(&f);
}
END_TEST

enum { QUICK = 37 }; /* so many, and the worker takes several at once */

/* A stop is heard in prepare; RETRY then costs nothing. */
static enum pawl_outcome stopped_under_way(struct pawl_run *run)
{
    if (run->job_id <= QUICK) return PAWL_DONE;
    ck_assert(!pawl_run_cancelled(run));
    pawl_worker_stop(cfx_of(run)->w);
    ck_assert(pawl_run_cancelled(run));
    return PAWL_RETRY;
}

START_TEST(test_a_stop_hands_back_at_no_cost)
{
    struct pawl_worker_stat stat;
    struct plans all;
    struct cfx f;

    begin(&f, &all);
    f.prepare = stopped_under_way;
    f.apply = NULL;
    f.drop = NULL;
    for (int i = 0; i < QUICK + 3; i++) (void)cfx_put(&f, "{}");
    cfx_work(&f, true);
    OK(pawl_worker_run(f.w, false, e));
    ck_assert_int_eq(f.prepares, QUICK + 1);
    ck_assert_int_eq(cfx_num(&f, "SELECT count(*) FROM pawl_jobs WHERE state = 'ready'"), 3);
    ck_assert_int_eq(cfx_num(&f, "SELECT sum(failures + lost) FROM pawl_jobs"), 0);
    ck_assert_int_eq(cfx_num(&f, "SELECT sum(releases) FROM pawl_jobs"), 1);
    pawl_worker_stats(f.w, &stat);
    ck_assert_int_ge(stat.released, 1); /* and the others of its batch, were not begun */
    cfx_end(&f);
    ck_assert_int_eq(f.drops, QUICK + 1);
}
END_TEST

/* In apply, too: the batch goes on without it, later. */
static enum pawl_outcome stopped_in_apply(struct pawl_run *run)
{
    struct cfx *f = cfx_of(run);

    if (f->applies > 1) return PAWL_DONE;
    pawl_worker_stop(f->w);
    ck_assert(pawl_run_cancelled(run));
    return PAWL_RETRY;
}

START_TEST(test_a_stop_in_apply_costs_nothing)
{
    struct cfx f;

    cfx_begin(&f);
    f.apply = stopped_in_apply;
    (void)cfx_put(&f, "{}");
    cfx_work(&f, _i != 0);
    OK(pawl_worker_run(f.w, false, e));
    ck_assert_int_eq(f.applies, 1);
    OK(pawl_worker_close(&f.w, e));
    ck_assert_int_eq(cfx_num(&f, "SELECT count(*) FROM pawl_jobs WHERE state = 'ready'"), 1);
    ck_assert_int_eq(cfx_num(&f, "SELECT failures + lost FROM pawl_jobs"), 0);
    cfx_work(&f, _i != 0);
    OK(pawl_worker_run(f.w, true, e));
    ck_assert_int_eq(cfx_num(&f, "SELECT count(*) FROM pawl_jobs WHERE state = 'done'"), 1);
    cfx_end(&f);
    ck_assert_int_eq(f.drops, f.prepares);
}
END_TEST

/* --- early ack --- */

START_TEST(test_early_ack_never_runs_twice)
{
    static const struct { const char *args, *outcome; enum pawl_state state; } want[] = {
        {"{}", "done", PAWL_STATE_DONE}, {"{\"apply\":2}", "transient", PAWL_STATE_DROPPED},
        {"{\"prepare\":2}", "transient", PAWL_STATE_DROPPED},
    };
    struct plans all;
    struct cfx f;

    begin(&f, &all);
    f.task.policy = "ack = early";
    cfx_work(&f, true);
    for (size_t i = 0; i < UT_N(want); i++) {
        struct pawl_ran ran = cfx_run(&f, want[i].args, plans_apply);
        cfx_is(&ran, want[i].state, want[i].outcome, "");
    }
    all_dropped_once(&f);
    cfx_end(&f);
}
END_TEST

static enum pawl_outcome counts(struct pawl_run *run)
{
    struct pawl_error e;

    return cfx_insert(run, "early", 1, &e) == PAWL_OK ? PAWL_DONE : pawl_run_error(run, &e);
}

START_TEST(test_early_ack_with_apply_alone)
{
    struct pawl_ran ran;
    struct cfx f;

    cfx_begin(&f);
    f.task.policy = "ack = early";
    cfx_work(&f, false);
    ran = cfx_run(&f, "{}", counts);
    cfx_is(&ran, PAWL_STATE_DONE, "done", "");
    ck_assert_int_eq(cfx_num(&f, "SELECT count(*) FROM row"), 1);
    cfx_end(&f);
}
END_TEST

static void add(TCase *tc)
{
    tcase_add_test(tc, test_in_order);
    tcase_add_test(tc, test_every_outcome_of_both);
    tcase_add_test(tc, test_apply_again_after_a_failed_commit);
    tcase_add_test(tc, test_prepare_reads_and_enqueues_with_a_key);
    tcase_add_test(tc, test_prepare_alone_and_its_result);
    tcase_add_test(tc, test_a_cancel_is_heard);
    tcase_add_test(tc, test_a_stop_hands_back_at_no_cost);
    tcase_add_loop_test(tc, test_a_stop_in_apply_costs_nothing, 0, 2);
    tcase_add_test(tc, test_early_ack_never_runs_twice);
    tcase_add_test(tc, test_early_ack_with_apply_alone);
}

int main(void)
{
    return cfx_main("handler_c_prepared", add, 30);
}
