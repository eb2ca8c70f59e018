// SPDX-License-Identifier: Apache-2.0
/* test_api_nomem.c - every public call with the n-th allocation failing, SQLite's or libpq's
 * included, for every n: the failure is told, nothing leaks, the store stays whole, and the same
 * call works afterwards. */
#include "lib/nomem.h"

#include <libpq-fe.h>
#include "unit/test_handler_c.h"

/* An assertion of Check's allocates: what may be called while the countdown runs asks first.
 *
 * A scene opens what it needs, makes its calls, closes it all. It must end without what it opened,
 * whatever fails. Under `calm` nothing fails, and every call must succeed. */
struct scene {
    struct cfx *f;
    bool calm;
    long failures;             /* calls that told one */
};
typedef void scene_fn(struct scene *s);

/* A call of a scene: OK, or told as what memory trouble may look like. */
static bool went(struct scene *s, enum pawl_rc rc, const struct pawl_error *e, const char *call)
{
    if (rc == PAWL_OK) return true;
    ck_assert_msg(!s->calm, "%s: %s: %s", call, pawl_rc_name(rc), e->msg);
    ck_assert_msg(e->rc == rc && e->msg[0] != '\0', "%s: no error is filled", call);
    ck_assert_msg(rc == PAWL_NOMEM || rc == PAWL_STORE || rc == PAWL_IO || rc == PAWL_BUSY
                  || rc == PAWL_UNSURE, "%s: %s: %s", call, pawl_rc_name(rc), e->msg);
    s->failures++;
    return false;
}
#define WENT(call) (e->rc = PAWL_OK, went(s, call, e, #call))
#define BEGIN struct pawl_error own_e, *e = &own_e

/* --- the scenes --- */

static void open_close(struct scene *s)
{
    struct pawl *p = NULL;
    BEGIN;

    if (WENT(pawl_open_with(pawl_url(s->f->p), &s->f->open, &p, e))) pawl_wake(p);
    pawl_close(&p);
}

static void temporary(struct scene *s)
{
    struct pawl *p = NULL;
    BEGIN;

    (void)WENT(pawl_open_temp(&s->f->open, &p, e));
    pawl_close(&p);
}

static void again_init(struct scene *s)
{
    bool created;
    BEGIN;

    if (WENT(pawl_init(pawl_url(s->f->p), &created, e))) ck_assert(!created);
}

static void enqueues(struct scene *s)
{
    const struct pawl_request r[] = {{.task = "t", .key = "same", .args = "[1]"},
                                     {.task = "t", .args = "{\"a\":\"\\u00e9\"}",
                                      .headers = "{\"h\":\"v\"}"},
                                     {.task = "tt"}};
    struct pawl_enqueued out[3];
    struct pawl *p = NULL;
    BEGIN;

    if (WENT(pawl_open_with(pawl_url(s->f->p), &s->f->open, &p, e))
        && WENT(pawl_enqueue(p, r, 3, out, NULL, e)))
        for (size_t i = 0; i < 3; i++) pawl_free(out[i].result);
    pawl_close(&p);
}

static bool see_job(void *ctx, const struct pawl_job *j)
{
    if (j->task == NULL || j->args == NULL) ck_abort_msg("a job without its texts");
    ++*(int *)ctx;
    return true;
}
static bool see_attempt(void *ctx, const struct pawl_attempt *a) { (void)ctx; return a->n > 0; }
static bool see_queue(void *ctx, const struct pawl_queue_stat *q)
{
    (void)ctx;
    return q->queue != NULL;
}
static bool see_stat(void *ctx, const struct pawl_stat *t) { (void)ctx; return t->name != NULL; }

static void reads(struct scene *s)
{
    int n = 0;
    BEGIN;
    struct pawl *p = NULL;
    bool stale;

    if (!WENT(pawl_open_with(pawl_url(s->f->p), &s->f->open, &p, e))) return;
    (void)WENT(pawl_jobs(p, NULL, see_job, &n, e));
    (void)WENT(pawl_job_get(p, 1, see_job, &n, e));
    (void)WENT(pawl_attempts(p, 1, see_attempt, NULL, e));
    (void)WENT(pawl_queues(p, see_queue, NULL, e));
    (void)WENT(pawl_stats(p, see_stat, NULL, e));
    (void)WENT(pawl_dead_is_stale(p, 1, &stale, e));
    pawl_close(&p);
}

/* SQLite's own quick_check reports a page that it had no memory to read as a finding. */
static bool tell(void *ctx, const struct pawl_finding *found)
{
    const struct scene *s = ctx;

    ck_assert_msg(!s->calm && strcmp(found->invariant, "FILE") == 0, "%s: %s", found->invariant,
                  found->what);
    return false;
}

static void checks(struct scene *s)
{
    struct pawl *p = NULL;
    int checked;
    BEGIN;

    if (!WENT(pawl_open_with(pawl_url(s->f->p), &s->f->open, &p, e))) return;
    (void)WENT(pawl_check(p, tell, s, &checked, e));
    pawl_close(&p);
}

static void writes(struct scene *s)
{
    const struct pawl_request r = {.task = "away"};
    const struct pawl_prune_opts how = {0};
    const struct pawl_replay again = {.again_reason = "a test"};
    struct pawl_enqueued out;
    struct pawl_pruned pruned;
    struct pawl *p = NULL;
    char *differs = NULL;
    int64_t id;
    BEGIN;

    if (!WENT(pawl_open_with(pawl_url(s->f->p), &s->f->open, &p, e))) return;
    if (WENT(pawl_enqueue(p, &r, 1, &out, NULL, e))) {
        (void)WENT(pawl_run_now(p, out.id, NULL, e));
        (void)WENT(pawl_cancel(p, out.id, NULL, e));
    }
    /* Job 1 is dead: replayed again and again, for which it takes a reason. */
    (void)WENT(pawl_dead_replay(p, 1, &again, &id, e));
    (void)WENT(pawl_pause(p, NULL, "away", true, e));
    (void)WENT(pawl_pause(p, NULL, "away", false, e));
    (void)WENT(pawl_task_put(p, "put", "max_retries = 1", true, &differs, e));
    pawl_free(differs);
    (void)WENT(pawl_task_put(p, "put", "max_retries = 2", true, &differs, e));
    pawl_free(differs);
    (void)WENT(pawl_prune(p, &how, &pruned, e));
    pawl_close(&p);
}

static void callers_connection(struct scene *s)
{
    const struct pawl_request r = {.task = "away", .key = "door"};
    struct pawl_enqueued out;
    sqlite3 *db = NULL;
    BEGIN;

    if (cfx_kind == CFX_POSTGRES) {
        PGconn *c = PQconnectdb(pawl_url(s->f->p));
        if (PQstatus(c) == CONNECTION_OK) (void)WENT(pawl_enqueue_pg(c, &r, 1, &out, NULL, e));
        PQfinish(c);
        return;
    }
    if (sqlite3_open(pawl_url(s->f->p) + strlen("sqlite:"), &db) == SQLITE_OK)
        (void)WENT(pawl_enqueue_sqlite(db, &r, 1, &out, NULL, e));
    ck_assert_int_eq(sqlite3_close(db), SQLITE_OK);
}

/* --- workers --- */

static bool see_row(void *ctx, const struct pawl_value *col, size_t n)
{
    (void)ctx;
    return n == 1 && col[0].type == PAWL_INT;
}

/* Everything that a handler may call; a failure is handed on, as it should be. */
static enum pawl_outcome busy(struct pawl_run *run)
{
    const struct pawl_request r = {.task = "follow"};
    const struct pawl_value id = pawl_int("id", run->job_id);
    struct pawl_enqueued out;
    struct pawl_value v;
    struct pawl_error e;
    const char *name;
    double real;
    bool found;

    pawl_run_log(run, 2, "a line");
    if (pawl_arg_text(run, "name", &name, NULL, &e) != PAWL_OK
        || pawl_arg_real(run, "/list/0", &real, &e) != PAWL_OK
        || pawl_exec(run, "INSERT INTO row VALUES (:id, 1)", &id, 1, NULL, &e) != PAWL_OK
        || pawl_query(run, "SELECT v FROM row WHERE k = :id", &id, 1, see_row, NULL, &e) != PAWL_OK
        || pawl_query_row(run, "SELECT k FROM row WHERE k = :id", &id, 1, &v, 1, &found, &e)
           != PAWL_OK
        || pawl_run_enqueue(run, &r, 1, &out, NULL, &e) != PAWL_OK
        || pawl_run_result(run, "[1,2]", 5, &e) != PAWL_OK)
        return pawl_run_error(run, &e);
    return pawl_run_alloc(run, 100) != NULL ? PAWL_DONE : PAWL_RETRY;
}

static enum pawl_outcome busy_prepare(struct pawl_run *run)
{
    struct pawl_error e;

    if (pawl_run_heartbeat(run, &e) != PAWL_OK) return PAWL_RETRY;
    run->plan = malloc(10);
    if (run->plan != NULL) return PAWL_DONE;
    e.rc = PAWL_NOMEM;
    snprintf(e.msg, sizeof e.msg, "no plan");
    return pawl_run_error(run, &e);
}

static void busy_drop(struct pawl_run *run)
{
    free(run->plan);
}

static const struct pawl_handler busy_handlers[] = {
    {PAWL_ABI, (uint32_t)sizeof(struct pawl_api), NULL, busy, NULL},
    {PAWL_ABI, (uint32_t)sizeof(struct pawl_api), busy_prepare, busy, busy_drop},
};
static const struct pawl_task busy_tasks[] = {
    {.name = "e", .handler = &busy_handlers[0], .policy = "max_retries = 1000"},
    {.name = "p", .handler = &busy_handlers[1], .policy = "max_retries = 1000"},
};

static void drop_line(void *ctx, int level, const char *line)
{
    (void)ctx;
    (void)level;
    if (strncmp(line, "event=", 6) != 0) ck_abort_msg("%s", line);
}

static void works(struct scene *s)
{
    struct pawl_open_opts open = s->f->open;
    const struct pawl_worker_opts o = {.tasks = busy_tasks, .tasks_n = 2, .open = &open};
    struct pawl_worker *w = NULL;
    bool more = true;
    BEGIN;

    open.log = drop_line;
    if (WENT(pawl_worker_open(pawl_url(s->f->p), &o, &w, e))) {
        (void)pawl_worker_fd(w);
        for (int i = 0; i < 20 && more; i++)
            if (!WENT(pawl_worker_step(w, &more, e))) more = true;
    }
    (void)WENT(pawl_worker_close(&w, e));
}

static void one_by_one(struct scene *s)
{
    const struct pawl_worker_opts o = {.tasks = busy_tasks, .tasks_n = 2, .open = &s->f->open};
    struct pawl_worker *w = NULL;
    struct pawl_ran ran;
    enum pawl_rc rc = PAWL_OK;
    BEGIN;

    if (WENT(pawl_worker_open(pawl_url(s->f->p), &o, &w, e)))
        for (int i = 0; i < 6 && rc != PAWL_NOTFOUND; i++)
            if ((rc = pawl_worker_one(w, &ran, e)) != PAWL_NOTFOUND)
                (void)went(s, rc, e, "pawl_worker_one");
    (void)WENT(pawl_worker_close(&w, e));
}

/* --- the countdown --- */

static const struct act {
    const char *name;
    scene_fn *fn;
    bool work;                 /* it needs jobs, which are enqueued anew for each round */
} acts[] = {
    {"open", open_close, false}, {"temporary", temporary, false}, {"init", again_init, false},
    {"enqueue", enqueues, false}, {"read", reads, false}, {"check", checks, false},
    {"write", writes, false}, {"the caller's connection", callers_connection, false},
    {"work", works, true}, {"one by one", one_by_one, true},
};

static void put_work(struct cfx *f)
{
    const struct pawl_request r[] = {
        {.task = "e", .args = "{\"name\":\"\\u00e9\",\"list\":[1.5]}"},
        {.task = "p", .args = "{\"name\":\"\\u00e9\",\"list\":[1.5]}"},
    };
    struct pawl_enqueued out[2];

    OK(pawl_enqueue(f->p, r, 2, out, NULL, e));
}

/* Every job that was done is done once: its row, its follow-up, its own state. */
static void nothing_doubled(struct cfx *f)
{
    const int64_t done = cfx_num(f, "SELECT count(*) FROM pawl_jobs WHERE state = 'done'"
                                 " AND task IN ('e', 'p')");

    ck_assert_int_eq(cfx_num(f, "SELECT count(*) FROM row"), done);
    ck_assert_int_eq(cfx_num(f, "SELECT count(*) FROM pawl_jobs WHERE task = 'follow'"), done);
    ck_assert_int_eq(cfx_num(f, "SELECT count(*) FROM pawl_jobs WHERE state = 'dead'"), 0);
}

/* One dead job and one attempt, for what reads. */
static enum pawl_outcome fails(struct pawl_run *run)
{
    (void)run;
    return PAWL_FAIL;
}

static void one_dead(struct cfx *f)
{
    struct pawl_ran ran;

    cfx_work(f, false);
    ran = cfx_run(f, "{}", fails);
    cfx_is(&ran, PAWL_STATE_DEAD, "permanent", "");
    OK(pawl_worker_close(&f->w, e));
}

START_TEST(test_every_allocation_of)
{
    const struct act *a = &acts[_i];
    struct scene s = {.calm = true};
    long live, failed_rounds = 0;
    struct cfx f;

    if (cfx_kind == CFX_POSTGRES && a->fn == temporary) return; /* that is a file */
    if (!nomem_works()) return; /* sanitizers have their own allocator */
    cfx_begin(&f);
    s.f = &f;
    if (!a->work) one_dead(&f);
    for (int i = 0; i < 2; i++) { /* what is kept for the process's life is there after this */
        if (a->work) put_work(&f);
        a->fn(&s);
    }
    s.calm = false;
    for (long k = 0;; k += 1 + k / (cfx_kind == CFX_SQLITE ? 64 : 16)) { /* a server is slower */
        if (a->work && k % 4 == 0) put_work(&f);
        live = nomem_live();
        s.failures = 0;
        nomem_arm(k);
        a->fn(&s);
        if (!nomem_disarm()) break;
        failed_rounds++;
        ck_assert_msg(nomem_live() == live, "%s: allocation %ld fails: %ld blocks leak", a->name, k,
                      nomem_live() - live);
    }
    ck_assert_int_gt(failed_rounds, 5);
    if (a->work) {
        s.calm = true;
        a->fn(&s);
        nothing_doubled(&f);
    }
    printf("# %s: %ld rounds\n", a->name, failed_rounds);
    cfx_end(&f);
}
END_TEST

static void add(TCase *tc)
{
    tcase_add_loop_test(tc, test_every_allocation_of, 0, UT_N(acts));
}

int main(void)
{
    return cfx_main("api_nomem", add, 120);
}
