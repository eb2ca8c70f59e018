// SPDX-License-Identifier: Apache-2.0
/* c_sql.c - pawl_exec, pawl_query, pawl_query_row: statements of a C handler in its job's
 * transaction.
 *
 * Keeps: every failed call is remembered, with whose fault it was, so that a handler cannot swallow
 *        it; nothing runs once the transaction is gone, where it would be a transaction of its own.
 */
#include "base/err.h"
#include "base/json.h"
#include "base/utf8.h"
#include "handler/c_run.h"

#include <stdlib.h>
#include <string.h>

enum {
    COLUMNS = 32,        /* of a row, without asking for memory */
    STATEMENT_HEAD = 80, /* of a statement, in an error's text */
};

/* SQLite's primary codes, by their published numbers, as core/classify.c knows them. */
enum { NATIVE_BUSY = 5, NATIVE_NOMEM = 7, NATIVE_IOERR = 10, NATIVE_FULL = 13 };

bool c_is_fault(enum pawl_rc rc)
{
    return rc == PAWL_BUSY || rc == PAWL_FULL || rc == PAWL_IO || rc == PAWL_NOMEM
        || rc == PAWL_STORE || rc == PAWL_DENIED || rc == PAWL_UNSURE || rc == PAWL_NOTOURS;
}

static enum pawl_rc fault_of(int native)
{
    switch (native & 0xff) {
    case NATIVE_BUSY: return PAWL_BUSY;
    case NATIVE_NOMEM: return PAWL_NOMEM;
    case NATIVE_IOERR: return PAWL_IO;
    case NATIVE_FULL: return PAWL_FULL;
    default: return PAWL_STORE;
    }
}

enum pawl_rc c_note(struct c_run *r, struct pawl_error *e)
{
    const char **text = &r->failed;
    bool pinned = true;

    if (e->rc == PAWL_SQL) {
        if (classify_sql(e->native, &pinned) == OUT_TIMEOUT) {
            pinned = !c_flag(r->h->o.stop);
            if (pinned) r->timed_out = true;
            else r->interrupted = true;
        } else if (!pinned && r->failed != NULL && e->native == C_FAILED_BEFORE) {
            return e->rc; /* the first error is the one to tell */
        } else if (!pinned) {
            e->rc = fault_of(e->native);
        }
    } else {
        pinned = !c_is_fault(e->rc);
    }
    /* What fails after a statement of the job's own has ended the transaction is its doing, too. */
    if (!pinned && (r->failed == NULL || r->phase != C_APPLY || store_effect_alive(r->h->st))) {
        text = &r->fault;
    }
    if (*text == NULL) {
        *text = arena_strdup(r->arena, e->msg);
        if (*text == NULL) *text = "out of memory";
        if (text == &r->failed) {
            r->failed_rc = e->rc;
            r->failed_native = e->native;
        }
    }
    return e->rc;
}

/* What the statement itself is to blame for names it: a handler has many. One line, cut. */
static void name_statement(struct pawl_error *e, const char *sql)
{
    char head[STATEMENT_HEAD + 4];
    size_t n = 0;
    bool gap = false;

    if (sql == NULL || (e->rc != PAWL_SQL && e->rc != PAWL_CONFIG)) return;
    for (; *sql != '\0' && n < STATEMENT_HEAD; sql++) {
        if (strchr(" \t\r\n", *sql) != NULL) {
            gap = n > 0;
            continue;
        }
        if (gap) head[n++] = ' ';
        gap = false;
        if (n < STATEMENT_HEAD) head[n++] = *sql;
        else break;
    }
    n = utf8_trim(head, n);
    if (sql[strspn(sql, " \t\r\n;")] == '\0') head[n] = '\0';
    else memcpy(head + n, "...", sizeof "...");
    const enum pawl_rc rc = e->rc;
    const int native = e->native;
    (void)pawl_fail_native(e, rc, native, "%.600s, in: %s", e->msg, head);
}

/* --- parameters --- */

static enum pawl_rc bind_one(const struct c_stmt *s, const struct pawl_value *v,
                             struct sql_value *out, struct pawl_error *e)
{
    static const enum value_type types[] = {
        [PAWL_NULL] = VALUE_NULL, [PAWL_INT] = VALUE_INT, [PAWL_REAL] = VALUE_REAL,
        [PAWL_TEXT] = VALUE_TEXT, [PAWL_BLOB] = VALUE_BLOB, [PAWL_BOOL] = VALUE_INT,
        [PAWL_JSON] = VALUE_TEXT,
    };

    if (v->name == NULL) return pawl_fail(e, PAWL_BADARG, "a parameter has no name");
    if (strlen(v->name) > LIMIT_KEY_BYTES || !c_stmt_has(s, v->name)) {
        return pawl_fail(e, PAWL_BADARG, "the statement has no parameter named \"%.80s\" (names are"
                         " given without the colon): %.200s", v->name, s->text);
    }
    if ((unsigned)v->type >= sizeof types / sizeof *types) {
        return pawl_fail(e, PAWL_BADARG, ":%.80s has the unknown type %d", v->name, (int)v->type);
    }
    *out = (struct sql_value){.name = v->name, .type = types[v->type], .i = v->i, .r = v->r,
                              .p = v->p, .n = v->n};
    if (v->type == PAWL_BOOL) out->i = v->i != 0;
    if (out->type == VALUE_TEXT && v->p == NULL) out->type = VALUE_NULL;
    if (out->type == VALUE_BLOB && v->p == NULL && v->n > 0) {
        return pawl_fail(e, PAWL_BADARG, ":%.80s: %zu bytes at NULL", v->name, v->n);
    }
    if (out->type == VALUE_TEXT && !utf8_ok(v->p, v->n)) {
        return pawl_fail(e, PAWL_BADARG, ":%.80s is not UTF-8: give it as a blob", v->name);
    }
    return PAWL_OK;
}

/* Into h->values. The statement copies them before it runs, so that one array serves the calls in
 * its row callback as well. */
static enum pawl_rc bind_all(struct c_host *h, const struct c_stmt *s, const struct pawl_value *v,
                             size_t n, struct pawl_error *e)
{
    enum pawl_rc rc = PAWL_OK;

    if (n > 0 && v == NULL) return pawl_fail(e, PAWL_BADARG, "%zu parameters at NULL", n);
    if (n > h->values_n) {
        struct sql_value *more = reallocarray(h->values, n, sizeof *more);
        if (more == NULL) return pawl_fail(e, PAWL_NOMEM, "%zu parameters: out of memory", n);
        h->values = more;
        h->values_n = n;
    }
    for (size_t i = 0; i < n && rc == PAWL_OK; i++) rc = bind_one(s, &v[i], &h->values[i], e);
    return rc;
}

/* What every statement begins with. On OK the statement is bound in h->values and busy. */
static enum pawl_rc ready(struct c_run *r, const char *sql, const struct pawl_value *v, size_t n,
                          struct c_stmt **s, struct pawl_error *e)
{
    enum pawl_rc rc;

    if (sql == NULL) return pawl_fail(e, PAWL_BADARG, "the statement is NULL");
    if (r->phase == C_APPLY && !store_effect_alive(r->h->st)) {
        return pawl_fail(e, PAWL_TOOLATE, "the job's transaction is gone: nothing can be run in it"
                         " any more; return from the handler");
    }
    if ((rc = c_stmt_get(r->h, sql, s, e)) != PAWL_OK) {
        name_statement(e, sql);
        return rc;
    }
    rc = bind_all(r->h, *s, v, n, e);
    if (rc != PAWL_OK) (*s)->busy = false;
    return rc;
}

static enum pawl_rc over(struct pawl_error *e)
{
    return pawl_fail(e, PAWL_TOOLATE, "the run is over: no statement can be run in drop");
}

enum pawl_rc c_exec(struct pawl_run *run, const char *sql, const struct pawl_value *v, size_t n,
                    int64_t *changed, struct pawl_error *e)
{
    struct c_run *r = c_run_of(run);
    struct pawl_error spare;
    struct c_stmt *s = NULL;
    int64_t count = 0;
    enum pawl_rc rc;

    if (e == NULL) e = &spare;
    if (changed != NULL) *changed = 0;
    if (r->phase == C_OVER) return over(e);
    if (r->phase == C_PREPARE) {
        (void)pawl_fail(e, PAWL_TOOLATE, "pawl_exec in prepare: there is no transaction yet; write"
                        " in apply");
        return c_note(r, e);
    }
    rc = ready(r, sql, v, n, &s, e);
    if (rc == PAWL_OK) {
        /* Who does not ask how many need not wait where the whole batch would be run again. */
        rc = store_stmt_run(r->h->st, s->stmt, r->h->values, n, NULL, 0,
                            changed != NULL ? &count : NULL, e);
        s->busy = false;
        if (rc != PAWL_OK) name_statement(e, sql);
    }
    if (rc != PAWL_OK) return c_note(r, e);
    if (changed != NULL) *changed = count;
    return PAWL_OK;
}

/* --- rows --- */

struct rows {
    struct c_run *r;
    pawl_row_fn *fn;
    void *ctx;
    struct pawl_value few[COLUMNS], *col;
    size_t room;
    bool no_memory;
};

static void to_public(const struct sql_value *in, struct pawl_value *out)
{
    static const enum pawl_type types[] = {
        [VALUE_NULL] = PAWL_NULL, [VALUE_INT] = PAWL_INT, [VALUE_REAL] = PAWL_REAL,
        [VALUE_TEXT] = PAWL_TEXT, [VALUE_BLOB] = PAWL_BLOB,
    };

    *out = (struct pawl_value){.name = in->name, .type = types[in->type], .i = in->i, .r = in->r,
                               .p = in->p, .n = in->n};
}

static bool hand_out(void *ctx, const struct sql_value *col, size_t n)
{
    struct rows *w = ctx;

    if (n > w->room) {
        w->col = arena_alloc(w->r->arena, n * sizeof *w->col);
        w->room = n;
        w->no_memory = w->col == NULL;
        if (w->no_memory) return false;
    }
    for (size_t i = 0; i < n; i++) to_public(&col[i], &w->col[i]);
    return w->fn(w->ctx, w->col, n);
}

static enum pawl_rc query(struct c_run *r, const char *sql, const struct pawl_value *v, size_t n,
                          pawl_row_fn *fn, void *ctx, struct pawl_error *e)
{
    struct rows w = {.r = r, .fn = fn, .ctx = ctx, .room = COLUMNS};
    struct c_stmt *s = NULL;
    enum pawl_rc rc;

    w.col = w.few;
    if ((rc = ready(r, sql, v, n, &s, e)) != PAWL_OK) return rc;
    rc = store_stmt_query(r->h->st, s->stmt, r->h->values, n, hand_out, &w, e);
    s->busy = false;
    if (rc != PAWL_OK) name_statement(e, sql);
    if (rc == PAWL_OK && w.no_memory) rc = pawl_fail(e, PAWL_NOMEM, "a row: out of memory");
    return rc;
}

enum pawl_rc c_query(struct pawl_run *run, const char *sql, const struct pawl_value *v, size_t n,
                     pawl_row_fn *fn, void *row_ctx, struct pawl_error *e)
{
    struct c_run *r = c_run_of(run);
    struct pawl_error spare;
    enum pawl_rc rc;

    if (e == NULL) e = &spare;
    if (r->phase == C_OVER) return over(e);
    rc = fn == NULL ? pawl_fail(e, PAWL_BADARG, "pawl_query: the row callback is NULL")
                    : query(r, sql, v, n, fn, row_ctx, e);
    return rc == PAWL_OK ? rc : c_note(r, e);
}

struct first {
    struct c_run *r;
    struct pawl_value *out;
    size_t out_n, col_n;
    bool found, no_memory;
};

static bool keep_first(void *ctx, const struct pawl_value *col, size_t n)
{
    struct first *f = ctx;

    f->found = true;
    f->col_n = n;
    for (size_t i = 0; i < f->out_n && i < n; i++) {
        struct pawl_value v = col[i];
        v.name = arena_strdup(f->r->arena, v.name);
        if (v.p != NULL) v.p = arena_dup(f->r->arena, v.p, v.n);
        if ((v.name == NULL && col[i].name != NULL) || (v.p == NULL && col[i].p != NULL)) {
            f->no_memory = true;
        }
        f->out[i] = v;
    }
    return false;
}

enum pawl_rc c_query_row(struct pawl_run *run, const char *sql, const struct pawl_value *v,
                         size_t n, struct pawl_value *out, size_t out_n, bool *found,
                         struct pawl_error *e)
{
    struct c_run *r = c_run_of(run);
    struct first f = {.r = r, .out = out, .out_n = out_n};
    struct pawl_error spare;
    enum pawl_rc rc;

    if (e == NULL) e = &spare;
    if (found != NULL) *found = false;
    if (r->phase == C_OVER) return over(e);
    if (out_n > 0 && out == NULL) {
        (void)pawl_fail(e, PAWL_BADARG, "pawl_query_row: room for %zu columns at NULL", out_n);
        return c_note(r, e);
    }
    for (size_t i = 0; i < out_n; i++) out[i] = (struct pawl_value){.type = PAWL_NULL};
    rc = query(r, sql, v, n, keep_first, &f, e);
    if (rc == PAWL_OK && f.no_memory) rc = pawl_fail(e, PAWL_NOMEM, "a row: out of memory");
    if (rc == PAWL_OK && f.found && out_n > f.col_n) {
        rc = pawl_fail(e, PAWL_BADARG, "%zu columns are asked for, the statement gives %zu", out_n,
                       f.col_n);
    }
    if (rc != PAWL_OK) return c_note(r, e);
    if (found != NULL) *found = f.found;
    return PAWL_OK;
}
