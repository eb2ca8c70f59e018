// SPDX-License-Identifier: Apache-2.0
/* fx.c - the fixture's store, tasks, and the verbs of producers and workers. */
#include "lib/fx.h"

#include <inttypes.h>
#include <string.h>
#include <unistd.h>
#include "base/log.h"

static int64_t wall_us(void *ctx) { return ((struct fx_clock *)ctx)->wall_us; }
static int64_t mono_us(void *ctx)
{
    struct fx_clock *c = ctx;

    c->mono_add_us += c->mono_step_us;
    return env_real()->mono_us(env_real()->ctx) + c->mono_add_us;
}
static int64_t boot_us(void *ctx)
{
    return env_real()->boot_us(env_real()->ctx) + ((struct fx_clock *)ctx)->boot_add_us;
}
static uint64_t random64(void *ctx) { (void)ctx; return env_real()->random(env_real()->ctx); }

const struct fx_kind *const fx_kinds[] = { &fx_sqlite, &fx_postgres };

int fx_kinds_n(void)
{
    const char *server = getenv("PAWL_TEST_PG");

    return server != NULL && *server != '\0' ? 2 : 1;
}

static struct store_opts opts(struct fx *f)
{
    /* accept_wal_risk: the suite also runs with the distribution's SQLite, one writer at a time. */
    return (struct store_opts){ .url = f->url, .env = &f->clock.env, .accept_wal_risk = true };
}

void fx_place(struct fx *f, int kind, bool with_store)
{
    const char *tmp = getenv("TMPDIR");

    memset(f, 0, sizeof *f);
    f->kind = fx_kinds[kind];
    snprintf(f->dir, sizeof f->dir, "%s/fxXXXXXX", tmp != NULL && *tmp != '\0' ? tmp : "/tmp");
    ck_assert_ptr_nonnull(mkdtemp(f->dir));
    f->kind->place(f, with_store);
}

void fx_leave(struct fx *f)
{
    f->kind->shut(f);
    if (f->kind->remove != NULL) f->kind->remove(f);
    fx_remove(f->dir);
}

void fx_begin(struct fx *f, int kind)
{
    const struct log_conf quiet = { .level = LOG_ERROR, .fd = 2 };
    bool created = false;

    log_setup(&quiet);
    fx_place(f, kind, true);
    f->clock = (struct fx_clock){
        .env = { wall_us, mono_us, boot_us, random64, &f->clock },
        .wall_us = env_real()->wall_us(env_real()->ctx) / SEC * SEC,
    };
    f->lane.tasks = f->tasks;
    const struct store_opts o = opts(f);
    if (!f->placed) {
        fx_ok(store_init(&o, &created, &f->e), f);
        ck_assert(created);
    }
    fx_open(f);
    fx_sql(f, "CREATE TABLE fx (job INTEGER NOT NULL, token INTEGER NOT NULL)");
}

void fx_open(struct fx *f)
{
    const struct store_opts o = opts(f);

    if (f->st != NULL) return;
    fx_ok(store_open(&o, &f->st, &f->e), f);
}

struct store *fx_second(struct fx *f)
{
    const struct store_opts o = opts(f);
    struct store *st = NULL;

    fx_ok(store_open(&o, &st, &f->e), f);
    return st;
}

void fx_shut(struct fx *f)
{
    store_stmt_free(&f->ledger);
    effect_free(&f->effect);
    store_close(&f->st);
    f->worker[0] = '\0';
    f->kind->shut(f);
}

static bool complain(void *ctx, const struct pawl_finding *found)
{
    fprintf(stderr, "store_check: %s: %s (job %" PRId64 ")\n", found->invariant, found->what,
            found->job_id);
    ++*(int *)ctx;
    return true;
}

void fx_check(struct fx *f)
{
    int found = 0, checked = 0;

    fx_open(f);
    fx_ok(store_check(f->st, complain, &found, &checked, &f->e), f);
    ck_assert_int_gt(checked, 5);
    ck_assert_msg(found == 0, "%d invariants do not hold", found);
}

struct named { const char *name; int n; };

static bool count_named(void *ctx, const struct pawl_finding *found)
{
    struct named *x = ctx;

    x->n += x->name == NULL || strcmp(x->name, found->invariant) == 0;
    return true;
}

int fx_findings(struct fx *f, const char *invariant)
{
    struct named x = { .name = invariant };
    int checked = 0;

    fx_ok(store_check(f->st, count_named, &x, &checked, &f->e), f);
    return x.n;
}

void fx_end(struct fx *f)
{
    fx_check(f);
    fx_shut(f);
    arena_free(&f->arena);
    fx_leave(f);
}

void fx_add(struct fx *f, int64_t us) { f->clock.wall_us += us; }

void fx_join(struct fx *f)
{
    fx_ok(store_worker_join(f->st, f->worker, NULL, &f->e), f);
}

struct policy fx_policy(void)
{
    struct policy p;

    policy_defaults(&p);
    return p;
}

size_t fx_task_as(struct fx *f, const char *name, const struct policy *p)
{
    struct lane_task *t = &f->tasks[f->lane.tasks_n];
    struct buf stored = {0};
    bool differs = false;

    ck_assert_uint_lt(f->lane.tasks_n, FX_TASKS);
    t->name = name;
    t->policy = *p;
    fx_ok(store_task_declare(f->st, name, p, true, &t->id, &stored, &differs, &f->e), f);
    ck_assert(!differs);
    buf_free(&stored);
    return f->lane.tasks_n++;
}

size_t fx_task(struct fx *f, const char *name)
{
    const struct policy p = fx_policy();

    return fx_task_as(f, name, &p);
}

/* --- producers --- */

struct pawl_request fx_req(const char *task, const char *key, const char *args)
{
    return (struct pawl_request){ .task = task, .key = key, .args = args };
}

enum pawl_rc fx_put_rc(struct fx *f, const struct pawl_request *r)
{
    struct pawl_enqueued out = {0};
    const enum pawl_rc rc = store_enqueue(f->st, r, 1, &out, NULL, &f->e);

    free(out.result);
    return rc;
}

int64_t fx_put_req(struct fx *f, const struct pawl_request *r)
{
    struct pawl_enqueued out = {0};

    fx_ok(store_enqueue(f->st, r, 1, &out, NULL, &f->e), f);
    ck_assert(out.created);
    ck_assert_int_eq(out.state, PAWL_STATE_READY);
    ck_assert_int_gt(out.id, 0);
    return out.id;
}

struct pawl_enqueued fx_dup(struct fx *f, const struct pawl_request *r)
{
    struct pawl_enqueued out = {0};

    fx_ok(store_enqueue(f->st, r, 1, &out, NULL, &f->e), f);
    ck_assert_msg(!out.created, "a duplicate made a new job %" PRId64, out.id);
    return out;
}

int64_t fx_put(struct fx *f, const char *task, const char *args)
{
    const struct pawl_request r = fx_req(task, NULL, args);

    return fx_put_req(f, &r);
}

/* --- leased mode --- */

size_t fx_claim(struct fx *f, struct job *jobs, size_t want, bool alone)
{
    size_t n = 0;

    fx_ok(store_turn(f->st, NULL, 0, &f->lane, want, alone, &f->arena, jobs, &n, &f->info, &f->e),
          f);
    ck_assert_uint_le(n, want);
    return n;
}

struct job fx_claim_one(struct fx *f)
{
    struct job job;

    ck_assert_uint_eq(fx_claim(f, &job, 1, true), 1);
    return job;
}

struct finding fx_found(enum outcome o, const char *error)
{
    return (struct finding){ .outcome = o, .error = error,
                             .error_bytes = error != NULL ? strlen(error) : 0,
                             .exit_code = -1, .signal = -1 };
}

struct settle fx_decided(struct fx *f, const struct job *job, const struct finding *found)
{
    const struct lane_task *t = &f->tasks[job->task_i];

    return (struct settle){ .job = job, .found = found, .task_id = t->id,
                            .d = decide(job, &t->policy, found, f->clock.wall_us, &f->clock.env) };
}

enum pawl_rc fx_turn(struct fx *f, struct settle *s, size_t n)
{
    size_t none = 0;

    return store_turn(f->st, s, n, &f->lane, 0, false, &f->arena, NULL, &none, &f->info, &f->e);
}

enum settle_result fx_settle(struct fx *f, const struct job *job, enum outcome o)
{
    const struct finding found = fx_found(o, o == OUT_DONE ? NULL : outcome_name(o));
    struct settle s = fx_decided(f, job, &found);

    fx_ok(fx_turn(f, &s, 1), f);
    return s.result;
}

struct reap_report fx_reap(struct fx *f, struct store *st)
{
    struct reap_report out;

    fx_ok(engine_reap(st, &f->clock.env, &out, &f->e), f);
    return out;
}

/* --- effect mode --- */

static void handle(void *ctx, struct store *st, const struct lane_task *t, const struct job *job,
                   struct arena *arena, struct finding *found, bool *pinned)
{
    static const char *const sql = "INSERT INTO fx (job, token) VALUES (:job, :token)";
    struct fx *f = ctx;
    const struct sql_value v[] = {
        { .name = "job", .type = VALUE_INT, .i = job->id },
        { .name = "token", .type = VALUE_INT, .i = job->token },
    };
    struct pawl_error e = {0};
    int64_t changed = 0;

    (void)t;
    (void)arena;
    f->runs++;
    if (f->ledger == NULL)
        ck_assert_msg(store_stmt_prepare(st, sql, &f->ledger, &e) == PAWL_OK, "%s", e.msg);
    const enum pawl_rc rc = store_stmt_run(st, f->ledger, v, 2, NULL, 0, &changed, &e);
    if (rc != PAWL_OK) {
        *found = fx_found(classify_sql(e.native, pinned), arena_strdup(arena, e.msg));
        return;
    }
    *found = fx_found(OUT_DONE, NULL);
    if (f->on_run != NULL) f->on_run(f, st, job, found, pinned);
}

void fx_batch_size(struct fx *f, size_t batch_max)
{
    const struct effect_opts o = { .lane = &f->lane, .fn = handle, .ctx = f, .env = &f->clock.env,
                                   .batch_max = batch_max, .budget_us = 10 * SEC };

    effect_free(&f->effect);
    f->effect = effect_new(&o);
    ck_assert_ptr_nonnull(f->effect);
}

enum pawl_rc fx_batch(struct fx *f, struct effect_report *out)
{
    struct effect_report ignored;

    if (f->effect == NULL) fx_batch_size(f, 16);
    return effect_batch(f->effect, f->st, out != NULL ? out : &ignored, &f->e);
}

int64_t fx_effects(struct fx *f, int64_t id)
{
    return fx_numf(f, "SELECT count(*) FROM fx WHERE job = %" PRId64, id);
}

void fx_drain(struct fx *f)
{
    struct effect_report r;

    for (int i = 0; i < 10000; i++) {
        fx_ok(fx_batch(f, &r), f);
        if (r.claimed > 0) continue;
        if (r.info.next_due_us == 0) return;
        ck_assert_int_gt(r.info.next_due_us, f->clock.wall_us);
        f->clock.wall_us = r.info.next_due_us;
    }
    ck_abort_msg("the store does not become empty");
}
