// SPDX-License-Identifier: Apache-2.0
/* sql.c - run a task's statements on the open effect transaction, and say what came of it.
 *
 * When the transaction is gone after a statement, this is who did it:
 *   the engine, out of need  FULL, IOERR, NOMEM, BUSY roll everything back by themselves: the
 *                            store's fault, not pinned, nothing is charged
 *   an interrupt             at the hard limit: this job's timeout; at a worker's stop: not pinned
 *   the user's own word      ON CONFLICT ROLLBACK, a trigger's RAISE(ROLLBACK) (always a CONSTRAINT
 *                            code): permanent, with the message that was raised
 *   anything else            the statement ended the transaction behind our back: misuse
 * Never: ends the transaction, opens a savepoint, reads the args twice.
 */
#include "base/err.h"
#include "base/json.h"
#include "handler/handler.h"

#include <assert.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { NATIVE_CONSTRAINT = 19 }; /* SQLite's primary code, as core/classify.c knows it */

/* Parameters that Pawl fills; no args member can take their place. */
enum from { FROM_ARGS, FROM_ALL_ARGS, FROM_JOB_ID, FROM_JOB_KEY, FROM_JOB_ATTEMPT };
static const struct { const char *name; enum from from; } reserved[] = {
    {"args", FROM_ALL_ARGS},
    {"job_id", FROM_JOB_ID},
    {"job_key", FROM_JOB_KEY},
    {"job_attempt", FROM_JOB_ATTEMPT},
};

struct param { const char *name; enum from from; bool optional; };
struct statement {
    struct store_stmt *stmt;
    size_t *param_i;          /* which of the task's parameters it uses */
    size_t params_n;
    struct sql_value *values; /* room for its parameters */
    bool returns_rows;
};
struct sql_task {
    const struct conf_task *conf;
    struct param *params;     /* every name once */
    size_t params_n;
    struct sql_value *values; /* of the job in hand, in the order of params */
    bool needs_object;        /* some parameter is taken from the args' members */
    struct statement *st;
    size_t st_n;
    struct arena arena;
    struct buf rows, text;
};

/* --- opening --- */

static bool listed(const struct conf_task *t, const char *name)
{
    for (size_t i = 0; i < t->optional_n; i++) {
        if (strcmp(t->optional[i], name) == 0) return true;
    }
    return false;
}

/* The index of a parameter in the task's list, added if it is new there. */
static size_t param_index(struct sql_task *t, const char *name)
{
    struct param *p;

    for (size_t i = 0; i < t->params_n; i++) {
        if (strcmp(t->params[i].name, name) == 0) return i;
    }
    p = &t->params[t->params_n];
    *p = (struct param){.name = name, .from = FROM_ARGS, .optional = listed(t->conf, name)};
    for (size_t i = 0; i < sizeof reserved / sizeof *reserved; i++) {
        if (strcmp(reserved[i].name, name) == 0) p->from = reserved[i].from;
    }
    if (p->from == FROM_ARGS) t->needs_object = true;
    return t->params_n++;
}

static bool statement_params(struct sql_task *t, struct statement *s, const struct sql_scan *scan)
{
    s->param_i = arena_alloc(&t->arena, (scan->params_n + 1) * sizeof *s->param_i);
    s->values = arena_alloc(&t->arena, (scan->params_n + 1) * sizeof *s->values);
    if (s->param_i == NULL || s->values == NULL) return false;
    for (size_t i = 0; i < scan->params_n; i++) {
        size_t at = param_index(t, scan->params[i].name), j = 0;
        while (j < s->params_n && s->param_i[j] != at) j++;
        if (j == s->params_n) s->param_i[s->params_n++] = at;
    }
    s->returns_rows = scan->returns_rows;
    return true;
}

static enum pawl_rc open_statements(struct sql_task *t, struct store *st, const struct conf *conf,
                                    struct pawl_error *e)
{
    size_t names = 1;
    enum pawl_rc rc;

    for (size_t i = 0; i < t->conf->sql_n; i++) names += t->conf->sql[i].scan.params_n;
    t->params = arena_alloc(&t->arena, names * sizeof *t->params);
    t->values = arena_alloc(&t->arena, names * sizeof *t->values);
    t->st = arena_alloc(&t->arena, (t->conf->sql_n + 1) * sizeof *t->st);
    if (t->params == NULL || t->values == NULL || t->st == NULL) {
        return pawl_fail(e, PAWL_NOMEM, "task %s: prepare", t->conf->name);
    }
    for (size_t i = 0; i < t->conf->sql_n; i++) {
        const struct conf_sql *c = &t->conf->sql[i];
        t->st_n++;
        if (!statement_params(t, &t->st[i], &c->scan)) {
            return pawl_fail(e, PAWL_NOMEM, "task %s: prepare", t->conf->name);
        }
        rc = store_stmt_prepare(st, c->text, &t->st[i].stmt, e);
        if (rc != PAWL_OK) {
            bool pinned = false;
            /* Whoever starts us wrote it into the configuration: that is what must change. */
            if (rc == PAWL_SQL) (void)classify_sql(e->native, &pinned);
            if (pinned) e->rc = PAWL_CONFIG;
            return pawl_wrap(e, "%s:%d: task %s, statement %zu", conf->path, c->line, t->conf->name,
                             i + 1);
        }
    }
    return PAWL_OK;
}

enum pawl_rc sql_task_open(struct store *st, const struct conf *conf, const struct conf_task *t,
                           struct sql_task **out, struct pawl_error *e)
{
    struct sql_task *s = calloc(1, sizeof *s);
    enum pawl_rc rc;

    assert(t->sql_n > 0);
    *out = NULL;
    if (s == NULL) return pawl_fail(e, PAWL_NOMEM, "task %s: prepare", t->name);
    s->conf = t;
    rc = open_statements(s, st, conf, e);
    if (rc != PAWL_OK) {
        sql_task_close(&s);
        return rc;
    }
    *out = s;
    return PAWL_OK;
}

void sql_task_close(struct sql_task **tp)
{
    struct sql_task *t = *tp;

    if (t == NULL) return;
    for (size_t i = 0; i < t->st_n; i++) store_stmt_free(&t->st[i].stmt);
    arena_free(&t->arena);
    buf_free(&t->rows);
    buf_free(&t->text);
    free(t);
    *tp = NULL;
}

/* --- one job --- */

struct run {
    bool write;               /* a write's: one statement, and args of its own */
    struct sql_task *t;
    const struct job *job;
    struct arena *arena;
    struct finding *f;
};

/* The job's own fault, found before a statement ran. */
__attribute__((format(printf, 3, 4))) static bool refuse(struct run *r, enum outcome outcome,
                                                         const char *fmt, ...)
{
    struct buf b = {0};
    va_list ap;

    va_start(ap, fmt);
    buf_vprintf(&b, fmt, ap);
    va_end(ap);
    r->f->outcome = outcome;
    r->f->error = arena_dup(r->arena, b.data, b.n);
    r->f->error_bytes = r->f->error != NULL ? b.n : 0;
    buf_free(&b);
    return false;
}

static bool bind_number(struct run *r, const char *name, const char *p, size_t n,
                        struct sql_value *v)
{
    char *text;

    switch (json_int64(p, n, &v->i)) {
    case JSON_INT_OK:
        v->type = VALUE_INT;
        return true;
    case JSON_INT_RANGE:
        return refuse(r, OUT_PERMANENT, ":%s is an integer beyond 64 bits: send it as a string",
                      name);
    case JSON_INT_NOT:
        break;
    }
    text = arena_dup(r->arena, p, n);
    if (text == NULL) return refuse(r, OUT_TRANSIENT, ":%s: out of memory", name);
    v->type = VALUE_REAL;
    v->r = strtod(text, NULL);
    if (isfinite(v->r)) return true;
    return refuse(r, OUT_PERMANENT, ":%s is beyond the range of a real number", name);
}

static bool bind_string(struct run *r, const char *name, const char *p, size_t n,
                        struct sql_value *v)
{
    struct buf *b = &r->t->text;

    v->type = VALUE_TEXT;
    v->p = p + 1;
    v->n = n - 2;
    if (memchr(v->p, '\\', v->n) == NULL) return true;
    buf_clear(b);
    if (!json_unescape(p, n, b)) {
        return refuse(r, OUT_PERMANENT, ":%s holds half a surrogate pair", name);
    }
    v->n = b->n;
    v->p = b->n > 0 ? arena_dup(r->arena, b->data, b->n) : "";
    if (b->failed || v->p == NULL) return refuse(r, OUT_TRANSIENT, ":%s: out of memory", name);
    return true;
}

static bool bind_member(struct run *r, const struct param *p, struct sql_value *v)
{
    enum json_type type = JSON_NULL;
    const char *at = NULL;
    size_t len = 0;
    int found = json_member(r->job->args, r->job->args_bytes, p->name, &at, &len, &type);

    if (found < 0) return refuse(r, OUT_PERMANENT, "args hold \"%s\" twice", p->name);
    if (found == 0 && !p->optional) {
        return r->write ? refuse(r, OUT_PERMANENT, "its args lack \"%s\" (null is allowed)",
                                 p->name)
                        : refuse(r, OUT_PERMANENT, "args lack \"%s\", which the task needs (it is"
                                 " not listed in optional)", p->name);
    }
    if (found == 0 || type == JSON_NULL) return true; /* NULL */
    if (type == JSON_NUMBER) return bind_number(r, p->name, at, len, v);
    if (type == JSON_STRING) return bind_string(r, p->name, at, len, v);
    if (type == JSON_TRUE || type == JSON_FALSE) {
        v->type = VALUE_INT;
        v->i = type == JSON_TRUE;
    } else {
        v->type = VALUE_TEXT;
        v->p = at;
        v->n = len;
    }
    return true;
}

static bool args_are_object(const struct job *job)
{
    size_t i = 0;

    while (i < job->args_bytes && strchr(" \t\r\n", job->args[i]) != NULL) i++;
    return i < job->args_bytes && job->args[i] == '{';
}

static bool bind_all(struct run *r)
{
    const struct job *job = r->job;

    if (r->t->needs_object && !args_are_object(job)) {
        return refuse(r, OUT_PERMANENT, "args must be a JSON object: its members are used");
    }
    for (size_t i = 0; i < r->t->params_n; i++) {
        const struct param *p = &r->t->params[i];
        struct sql_value *v = &r->t->values[i];
        *v = (struct sql_value){.name = p->name, .type = VALUE_NULL};
        switch (p->from) {
        case FROM_ARGS:
            if (!bind_member(r, p, v)) return false;
            break;
        case FROM_ALL_ARGS:
            v->type = VALUE_TEXT;
            v->p = job->args;
            v->n = job->args_bytes;
            break;
        case FROM_JOB_ID:
        case FROM_JOB_ATTEMPT:
            v->type = VALUE_INT;
            v->i = p->from == FROM_JOB_ID ? job->id : job->token;
            break;
        case FROM_JOB_KEY:
            if (job->key == NULL) break;
            v->type = VALUE_TEXT;
            v->p = job->key;
            v->n = strlen(job->key);
            break;
        }
    }
    return true;
}

/* A statement failed, or left no transaction behind: see the head of this file. */
static void judge_failure(struct run *r, struct store *st, size_t i, enum pawl_rc rc,
                          const struct pawl_error *e, bool stopped, bool *pinned)
{
    enum outcome outcome = OUT_TRANSIENT;
    bool alive = store_effect_alive(st);

    *pinned = false;
    if (rc == PAWL_SQL) {
        outcome = classify_sql(e->native, pinned);
        if (outcome == OUT_TIMEOUT && stopped) {
            outcome = OUT_RELEASED;
            *pinned = false;
        } else if (!alive && *pinned && outcome != OUT_TIMEOUT
                   && (e->native & 0xff) != NATIVE_CONSTRAINT) {
            outcome = OUT_MISUSE;
        }
    } else if (rc == PAWL_TOOBIG || rc == PAWL_CONFIG || rc == PAWL_BADDATA) {
        outcome = OUT_PERMANENT;
        *pinned = true;
    }
    if (outcome == OUT_MISUSE) {
        (void)refuse(r, outcome, "statement %zu ended the transaction: %s", i + 1, e->msg);
    } else if (outcome == OUT_TIMEOUT) {
        (void)refuse(r, outcome, "timeout: statement %zu ran past the hard limit", i + 1);
    } else {
        (void)refuse(r, outcome, "statement %zu: %s", i + 1, e->msg);
    }
}

/* changed NULL: how many rows it touches decides nothing. */
static bool run_statement(struct run *r, struct store *st, size_t i, const volatile int *stop,
                          int64_t *changed, bool *pinned)
{
    struct statement *s = &r->t->st[i];
    bool keep_rows = i + 1 == r->t->st_n && s->returns_rows;
    struct pawl_error e = {0};
    enum pawl_rc rc;

    for (size_t j = 0; j < s->params_n; j++) s->values[j] = r->t->values[s->param_i[j]];
    rc = store_stmt_run(st, s->stmt, s->values, s->params_n, keep_rows ? &r->t->rows : NULL,
                        LIMIT_RESULT_BYTES, changed, &e);
    if (rc == PAWL_OK && store_effect_alive(st)) return true;
    if (rc == PAWL_OK) {
        *pinned = true;
        return refuse(r, OUT_MISUSE, "statement %zu ended the transaction", i + 1);
    }
    judge_failure(r, st, i, rc, &e, stop != NULL && *stop != 0, pinned);
    return false;
}

static void judge_rows(struct run *r, const struct policy *p, int64_t changed)
{
    static const struct { enum outcome outcome; const char *word; } by[] = {
        [ZERO_DONE] = {OUT_DONE, "done"},
        [ZERO_STALE] = {OUT_STALE, "stale"},
        [ZERO_RETRY] = {OUT_TRANSIENT, "retry"},
        [ZERO_FAIL] = {OUT_PERMANENT, "fail"},
    };

    r->f->outcome = OUT_DONE;
    if (changed > 0 || p->zero_rows == ZERO_DONE) return;
    r->f->outcome = by[p->zero_rows].outcome;
    if (r->f->outcome == OUT_STALE) return;
    (void)refuse(r, r->f->outcome, "statement %zu touched no row (zero_rows = %s)", r->t->st_n,
                 by[p->zero_rows].word);
}

/* Bind, and run all statements. changed: rows of the last one; NULL: they decide nothing. */
static bool run_all(struct run *r, struct store *st, const struct policy *p,
                    const volatile int *stop, int64_t *changed, bool *pinned)
{
    struct sql_task *t = r->t;
    const struct env *env = env_real();
    bool fine;

    *r->f = (struct finding){.exit_code = -1, .signal = -1};
    *pinned = true;
    buf_clear(&t->rows);
    if (!bind_all(r)) return false;
    store_deadline(st, p->hard_limit_us > 0 ? env->mono_us(env->ctx) + p->hard_limit_us : 0, stop);
    fine = true;
    for (size_t i = 0; i < t->st_n && fine; i++) {
        fine = run_statement(r, st, i, stop, i + 1 == t->st_n ? changed : NULL, pinned);
    }
    store_deadline(st, 0, NULL);
    return fine;
}

bool sql_task_write(struct sql_task *t, struct store *st, const struct policy *p,
                    const struct job *job, const volatile int *stop, struct arena *arena,
                    int64_t *changed, struct finding *f, bool *pinned)
{
    struct run r = {.write = true, .t = t, .job = job, .arena = arena, .f = f};

    return run_all(&r, st, p, stop, changed, pinned);
}

void sql_task_run(struct sql_task *t, struct store *st, const struct policy *p,
                  const struct job *job, const volatile int *stop, struct arena *arena,
                  struct finding *f, bool *pinned)
{
    struct run r = {.t = t, .job = job, .arena = arena, .f = f};
    int64_t changed = 0;

    if (!run_all(&r, st, p, stop, p->zero_rows != ZERO_DONE ? &changed : NULL, pinned)) return;
    judge_rows(&r, p, changed);
    if (f->outcome != OUT_DONE || !t->st[t->st_n - 1].returns_rows) return;
    f->result = arena_dup(arena, t->rows.data, t->rows.n);
    f->result_bytes = f->result != NULL ? t->rows.n : 0;
    if (t->rows.failed || f->result == NULL) (void)refuse(&r, OUT_TRANSIENT, "out of memory");
}
