// SPDX-License-Identifier: Apache-2.0
/* test_handler_c.h - what the tests of the public calls, of C handlers and of linked workers share:
 * a store with a clock that the test sets, a worker with one task whose functions the test chooses,
 * a connection of the test's own to look and to write with.
 *
 * cfx_main() runs a suite once for each kind of store (lib/fx.h), each in a case of its name. What
 * only one can be asked is put in by add() under `if (cfx_kind == CFX_SQLITE)`. */
#ifndef TEST_HANDLER_C_H
#define TEST_HANDLER_C_H

#include <sqlite3.h>
#include <stdarg.h>
#include <string.h>
#include <time.h>

#include "lib/fx.h"
#include "pawl.h"

/* OK() and FAILS() give their call an e of its own, also where there is one. */
#pragma GCC diagnostic ignored "-Wshadow"

#define OK(call)                                                                             \
    do {                                                                                     \
        struct pawl_error ok_e_ = {.rc = PAWL_OK};                                           \
        struct pawl_error *e = &ok_e_;                                                       \
        const enum pawl_rc ok_rc_ = (call);                                                  \
        ck_assert_msg(ok_rc_ == PAWL_OK, "%s: %s: %s", #call, pawl_rc_name(ok_rc_),          \
                      ok_e_.msg);                                                            \
        (void)e;                                                                             \
    } while (0)
/* rc, with a filled error that contains `part`. */
#define FAILS(call, want, part)                                                              \
    do {                                                                                     \
        struct pawl_error no_e_ = {.rc = PAWL_OK};                                           \
        struct pawl_error *e = &no_e_;                                                       \
        const enum pawl_rc no_rc_ = (call);                                                  \
        ck_assert_msg(no_rc_ == (want) && no_e_.rc == (want), "%s: %s, not %s: %s", #call,   \
                      pawl_rc_name(no_rc_), pawl_rc_name(want), no_e_.msg);                  \
        ck_assert_msg(strstr(no_e_.msg, part) != NULL, "\"%s\" is not in: %s", part,         \
                      no_e_.msg);                                                            \
        (void)e;                                                                             \
    } while (0)

/* The kind of store of this test; while add() is called, of the case that it fills. */
enum { CFX_SQLITE, CFX_POSTGRES };
static int cfx_kind;

struct cfx {
    struct fx at;                 /* where the store lies, and the connection to look by */
    struct pawl *p;
    struct pawl_worker *w;
    int64_t now_us;
    struct pawl_open_opts open;
    /* What the task "t" does. The first three are called in each run if they are set. */
    pawl_handler_fn *apply, *prepare;
    pawl_drop_fn *drop;
    struct pawl_handler handler;
    struct pawl_task task;
    struct pawl_worker_opts opts;
    int prepares, applies, drops; /* counted by whoever wants to */
    void *own;                    /* the test's */
};

static inline struct cfx *cfx_of(struct pawl_run *run)
{
    return (struct cfx *)run->ctx;
}

static inline int64_t cfx_now(void *ctx)
{
    return ((struct cfx *)ctx)->now_us;
}

static enum pawl_outcome cfx_apply(struct pawl_run *run)
{
    struct cfx *f = cfx_of(run);

    f->applies++;
    return f->apply != NULL ? f->apply(run) : PAWL_DONE;
}

static enum pawl_outcome cfx_prepare(struct pawl_run *run)
{
    struct cfx *f = cfx_of(run);

    f->prepares++;
    return f->prepare != NULL ? f->prepare(run) : PAWL_DONE;
}

static void cfx_drop(struct pawl_run *run)
{
    struct cfx *f = cfx_of(run);

    f->drops++;
    if (f->drop != NULL) f->drop(run);
}

/* What differs between the two. */
static inline const char *cfx_of_kind(const char *sqlite, const char *postgres)
{
    return cfx_kind == CFX_SQLITE ? sqlite : postgres;
}

static inline void cfx_sql(struct cfx *f, const char *sql)
{
    fx_sql(&f->at, sql);
}

/* The first value of a query, as an integer; no row or NULL: INT64_MIN. */
static inline int64_t cfx_num(struct cfx *f, const char *sql)
{
    return fx_num(&f->at, sql);
}

/* The first value of a query as text, into buf; no row or NULL: "". */
static inline const char *cfx_text(struct cfx *f, const char *sql, char *buf, size_t n)
{
    return fx_text(&f->at, sql, buf, n);
}

/* A store with the table row(k TEXT PRIMARY KEY, v). No worker yet. */
static inline void cfx_begin(struct cfx *f)
{
    memset(f, 0, sizeof *f);
    f->now_us = (int64_t)time(NULL) * SEC + 60 * SEC; /* what others enqueue is due, too */
    f->open.now_us = cfx_now;
    f->open.now_ctx = f;
    fx_place(&f->at, cfx_kind, true);
    if (!f->at.placed) OK(pawl_init(f->at.url, NULL, e));
    OK(pawl_open_with(f->at.url, &f->open, &f->p, e));
    cfx_sql(f, cfx_of_kind("CREATE TABLE row (k TEXT PRIMARY KEY, v) WITHOUT ROWID",
                           "CREATE TABLE row (k TEXT PRIMARY KEY, v bigint)"));
    f->task = (struct pawl_task){.name = "t", .handler = &f->handler, .ctx = f};
    f->opts = (struct pawl_worker_opts){.tasks = &f->task, .tasks_n = 1, .open = &f->open};
}

static inline void cfx_work(struct cfx *f, bool with_prepare)
{
    f->handler = (struct pawl_handler){PAWL_ABI, (uint32_t)sizeof(struct pawl_api),
                                       with_prepare ? cfx_prepare : NULL, cfx_apply,
                                       with_prepare ? cfx_drop : NULL};
    OK(pawl_worker_open(pawl_url(f->p), &f->opts, &f->w, e));
}

static inline bool cfx_no_finding(void *ctx, const struct pawl_finding *found)
{
    (void)ctx;
    ck_abort_msg("%s: %s (job %lld)", found->invariant, found->what, (long long)found->job_id);
    return false;
}

static inline void cfx_end(struct cfx *f)
{
    int checked = 0;

    OK(pawl_worker_close(&f->w, e));
    OK(pawl_check(f->p, cfx_no_finding, NULL, &checked, e));
    ck_assert_int_gt(checked, 0);
    pawl_close(&f->p);
    fx_leave(&f->at);
}

static inline int64_t cfx_put(struct cfx *f, const char *args)
{
    const struct pawl_request r = {.task = "t", .args = args};
    struct pawl_enqueued out;

    OK(pawl_enqueue(f->p, &r, 1, &out, NULL, e));
    ck_assert(out.created);
    return out.id;
}

static inline struct pawl_ran cfx_one(struct cfx *f)
{
    struct pawl_ran ran;

    OK(pawl_worker_one(f->w, &ran, e));
    return ran;
}

/* Run one job of these args with this apply, and say what came of it. */
static inline struct pawl_ran cfx_run(struct cfx *f, const char *args, pawl_handler_fn *apply)
{
    int64_t id = cfx_put(f, args);
    struct pawl_ran ran;

    f->apply = apply;
    ran = cfx_one(f);
    ck_assert_int_eq(ran.job_id, id);
    return ran;
}

static inline void cfx_is(const struct pawl_ran *ran, enum pawl_state state, const char *outcome,
                          const char *part)
{
    ck_assert_msg(ran->state == state && strcmp(ran->outcome, outcome) == 0,
                  "job %lld is %s (%s), not %s (%s): %s", (long long)ran->job_id,
                  pawl_state_name(ran->state), ran->outcome, pawl_state_name(state), outcome,
                  ran->text);
    ck_assert_msg(strstr(ran->text, part) != NULL, "\"%s\" is not in: %s", part, ran->text);
}

/* The class of a dead job, or its state. */
static bool cfx_take_class(void *ctx, const struct pawl_job *j)
{
    snprintf(ctx, 32, "%s", j->dead_class != NULL ? j->dead_class : pawl_state_name(j->state));
    return true;
}

static inline const char *cfx_class(struct cfx *f, int64_t id)
{
    static char class[32];

    OK(pawl_job_get(f->p, id, cfx_take_class, class, e));
    return class;
}

/* In a handler: INSERT INTO row. */
static inline enum pawl_rc cfx_insert(struct pawl_run *run, const char *k, int64_t v,
                                      struct pawl_error *e)
{
    const struct pawl_value vals[] = {pawl_int("v", v), pawl_text("k", k)};

    return pawl_exec(run, "INSERT INTO row (k, v) VALUES (:k, :v)", vals, 2, NULL, e);
}

/* --- the suite --- */

static inline void cfx_on_postgres(void)
{
    cfx_kind = CFX_POSTGRES;
}

static inline int cfx_main(const char *subject, void (*add)(TCase *tc), double timeout_s)
{
    Suite *suite = suite_create(subject);

    for (cfx_kind = 0; cfx_kind < fx_kinds_n(); cfx_kind++)
        ut_case(suite, fx_kinds[cfx_kind]->name,
                cfx_kind == CFX_POSTGRES ? cfx_on_postgres : NULL, add, timeout_s);
    cfx_kind = CFX_SQLITE;
    return ut_run(suite);
}

#endif
