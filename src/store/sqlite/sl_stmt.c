// SPDX-License-Identifier: Apache-2.0
/* sl_stmt.c - users' statements on the store's connection: guarded, bounded in time, bound by name.
 *
 * Keeps: while one is prepared or run, the authorizer refuses transaction control, ATTACH, PRAGMA
 *        and Pawl's private tables (also from inside users' triggers); the progress handler
 *        enforces the deadline; only Pawl's own COMMIT passes the commit hook.
 */
#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include "base/err.h"
#include "base/json.h"
#include "store/sqlite/sl.h"

#define PROGRESS_OPS 2000 /* virtual machine steps between looks at the clock: some 20 us */

static enum pawl_rc guarded_prepare(struct store_stmt *s, struct pawl_error *e)
{
    struct sqlite *sl = s->sl;
    const char *rest = NULL;

    sl->refused = NULL;
    sl->guarded = true;
    const int code = sqlite3_prepare_v3(sl->db, s->text, -1, SQLITE_PREPARE_PERSISTENT, &s->st,
                                        &rest);
    sl->guarded = sl->raw || sl->stepping > 0;
    if (sl->refused != NULL)
        return pawl_fail(e, PAWL_CONFIG, "a handler's statement may not use %s", sl->refused);
    if (code != SQLITE_OK)
        return pawl_fail_native(e, PAWL_SQL, sqlite3_extended_errcode(sl->db), "%s",
                                sqlite3_errmsg(sl->db));
    if (s->st == NULL)
        return pawl_fail(e, PAWL_CONFIG, "the statement is empty");
    while (rest != NULL && (*rest == ';' || *rest == ' ' || *rest == '\n' || *rest == '\t' ||
                            *rest == '\r'))
        rest++;
    if (rest != NULL && *rest != '\0' && strncmp(rest, "--", 2) != 0 && strncmp(rest, "/*", 2) != 0)
        return pawl_fail(e, PAWL_CONFIG, "more than one statement: \"%.40s\"", rest);
    return PAWL_OK;
}

/* INSERT, UPDATE, DELETE, REPLACE, WITH, SELECT: all that these write is counted. */
static bool counts_rows(const char *text)
{
    static const char *const words[] = {"insert", "update", "delete", "replace", "with", "select"};

    text += strspn(text, " \t\r\n");
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (sqlite3_strnicmp(text, words[i], (int)strlen(words[i])) == 0)
            return true;
    return false;
}

enum pawl_rc sl_stmt_prepare(struct store *st, const char *text, struct store_stmt **out,
                             struct pawl_error *e)
{
    struct sqlite *sl = sl_of(st);
    struct store_stmt *s = calloc(1, sizeof *s);
    enum pawl_rc rc = PAWL_NOMEM;

    *out = NULL;
    if (s == NULL || (s->text = strdup(text)) == NULL) {
        free(s);
        return pawl_fail(e, PAWL_NOMEM, "out of memory");
    }
    s->head.free = sl_stmt_free;
    s->sl = sl;
    s->counts = counts_rows(text);
    s->next = sl->user;
    sl->user = s;
    if ((sl->db == NULL && (rc = sl_connect(sl, false, e)) != PAWL_OK) ||
        (rc = guarded_prepare(s, e)) != PAWL_OK) {
        sl_stmt_free(&s);
        return rc;
    }
    *out = s;
    return PAWL_OK;
}

void sl_stmt_free(struct store_stmt **p)
{
    struct store_stmt *s = *p;

    if (s == NULL)
        return;
    for (struct store_stmt **at = &s->sl->user; *at != NULL; at = &(*at)->next)
        if (*at == s) {
            *at = s->next;
            break;
        }
    if (store_is_ours(&s->sl->d.base)) /* else a forked child: SQLite's memory is left alone */
        sqlite3_finalize(s->st);
    free(s->col);
    free(s->text);
    free(s);
    *p = NULL;
}

static void bind_all(sqlite3_stmt *q, const struct sql_value *v, size_t n)
{
    char name[LIMIT_KEY_BYTES + 2];

    for (size_t i = 0; i < n; i++) {
        const size_t len = strlen(v[i].name);

        assert(len + 1 < sizeof name);
        name[0] = ':';
        for (size_t k = 0; k <= len; k++)
            name[k + 1] = v[i].name[k];
        const int at = sqlite3_bind_parameter_index(q, name);
        if (at == 0)
            continue; /* another statement of the task uses it */
        switch (v[i].type) {
        case VALUE_NULL: sqlite3_bind_null(q, at); break;
        case VALUE_INT: sqlite3_bind_int64(q, at, v[i].i); break;
        case VALUE_REAL: sqlite3_bind_double(q, at, v[i].r); break;
        case VALUE_TEXT: sqlite3_bind_text64(q, at, v[i].p, v[i].n, SQLITE_STATIC,
                                             SQLITE_UTF8); break;
        case VALUE_BLOB: sqlite3_bind_blob64(q, at, v[i].p != NULL ? v[i].p : "", v[i].n,
                                             SQLITE_STATIC);
            break;
        }
    }
}

static void put_value(sqlite3_stmt *q, int col, struct buf *out)
{
    const unsigned char *p;
    char num[40];

    switch (sqlite3_column_type(q, col)) {
    case SQLITE_NULL: buf_puts(out, "null"); break;
    case SQLITE_INTEGER: buf_printf(out, "%lld", (long long)sqlite3_column_int64(q, col)); break;
    case SQLITE_FLOAT:
        sqlite3_snprintf(sizeof num, num, "%!.17g", sqlite3_column_double(q, col));
        if (strchr(num, 'I') != NULL || strchr(num, 'N') != NULL) /* Inf, NaN: no JSON number */
            json_put_cstr(out, num);
        else
            buf_puts(out, num);
        break;
    case SQLITE_BLOB: /* as text, each byte that is not UTF-8 escaped: nothing is lost silently */
    default:
        p = sqlite3_column_blob(q, col);
        json_put_str(out, p != NULL ? (const char *)p : "", (size_t)sqlite3_column_bytes(q, col));
    }
}

static void put_row(sqlite3_stmt *q, bool first, struct buf *out)
{
    const int n = sqlite3_column_count(q);

    buf_puts(out, first ? "[{" : ",{");
    for (int i = 0; i < n; i++) {
        if (i > 0)
            buf_putc(out, ',');
        json_put_cstr(out, sqlite3_column_name(q, i));
        buf_putc(out, ':');
        put_value(q, i, out);
    }
    buf_putc(out, '}');
}

static size_t row_bytes(sqlite3_stmt *q)
{
    size_t n = 0;

    for (int i = 0; i < sqlite3_column_count(q); i++)
        if (sqlite3_column_type(q, i) == SQLITE_TEXT || sqlite3_column_type(q, i) == SQLITE_BLOB)
            n += (size_t)sqlite3_column_bytes(q, i);
    return n;
}

static enum pawl_rc step_all(struct sqlite *sl, sqlite3_stmt *q, struct buf *rows, size_t rows_max,
                             int64_t *seen, struct pawl_error *e)
{
    int code;

    *seen = 0;
    while ((code = sqlite3_step(q)) == SQLITE_ROW) {
        if (rows != NULL && row_bytes(q) > rows_max) /* before a byte of it is escaped */
            return pawl_fail(e, PAWL_TOOBIG, "the result is larger than %zu KiB", rows_max / 1024);
        if (rows != NULL)
            put_row(q, *seen == 0, rows);
        ++*seen;
        if (rows != NULL && rows->n + 1 > rows_max)
            return pawl_fail(e, PAWL_TOOBIG, "the result is larger than %zu KiB", rows_max / 1024);
    }
    if (rows != NULL)
        buf_puts(rows, *seen == 0 ? "[]" : "]");
    if (code == SQLITE_DONE)
        return rows != NULL && rows->failed ? pawl_fail(e, PAWL_NOMEM, "out of memory") : PAWL_OK;
    const int x = sqlite3_extended_errcode(sl->db);
    if (sl->refused != NULL)
        return pawl_fail(e, PAWL_CONFIG, "a handler's statement may not use %s", sl->refused);
    return pawl_fail_native(e, PAWL_SQL, x, "%s", sl->timed_out ? "time limit reached"
                                                                : sqlite3_errmsg(sl->db));
}

/* Compiled, bound, watched. */
static enum pawl_rc ready_to_step(struct sqlite *sl, struct store_stmt *s,
                                  const struct sql_value *v, size_t n, struct pawl_error *e)
{
    enum pawl_rc rc;

    assert(s->sl == sl);
    if (s->st == NULL && ((sl->db == NULL && (rc = sl_connect(sl, false, e)) != PAWL_OK) ||
                          (rc = guarded_prepare(s, e)) != PAWL_OK))
        return rc;
    bind_all(s->st, v, n);
    sl->refused = NULL;
    sl->d.wrote_unseen = sl->d.wrote_unseen || !s->counts;
    if (sl->stepping++ == 0) { /* else it runs for a row of another one, which is watched */
        sl->timed_out = false;
        if (sl->deadline_us != 0 || sl->stop != NULL)
            sqlite3_progress_handler(sl->db, PROGRESS_OPS, sl_on_progress, sl);
    }
    sl->guarded = true; /* a schema change makes step() compile anew */
    return PAWL_OK;
}

/* One that failed may have written what total_changes() never sees: a trigger that is left by
 * RAISE(FAIL) or OR FAIL keeps its rows and loses their count. */
static void stepped(struct sqlite *sl, struct store_stmt *s, bool failed)
{
    if (failed && !sqlite3_stmt_readonly(s->st))
        sl->d.wrote_unseen = true;
    assert(sl->stepping > 0);
    if (--sl->stepping > 0)
        return;
    sl->guarded = sl->raw;
    if (sl->deadline_us != 0 || sl->stop != NULL)
        sqlite3_progress_handler(sl->db, 0, NULL, NULL);
}

enum pawl_rc sl_stmt_run(struct store *st, struct store_stmt *s, const struct sql_value *v,
                         size_t n, struct buf *rows, size_t rows_max, int64_t *changed,
                         struct pawl_error *e)
{
    struct sqlite *sl = sl_of(st);
    int64_t seen = 0, unused = 0;
    enum pawl_rc rc;

    if (changed == NULL)
        changed = &unused;
    *changed = 0;
    if ((rc = ready_to_step(sl, s, v, n, e)) != PAWL_OK)
        return rc;
    const int64_t before = sqlite3_total_changes64(sl->db);
    rc = step_all(sl, s->st, rows, rows_max, &seen, e);
    stepped(sl, s, rc != PAWL_OK);
    /* changes() keeps the last writer's count when nothing was written, and does not see what the
     * trigger of a view writes (INSERT INTO pawl_enqueue); total_changes() tells both. */
    const int64_t wrote = sqlite3_total_changes64(sl->db) - before;
    const int64_t direct = sqlite3_changes64(sl->db);
    *changed = sqlite3_stmt_readonly(s->st) ? seen : wrote == 0 ? 0 : direct > 0 ? direct : wrote;
    sqlite3_reset(s->st);
    sqlite3_clear_bindings(s->st);
    return rc;
}

static void read_column(sqlite3_stmt *q, int col, struct sql_value *v)
{
    *v = (struct sql_value){ .name = sqlite3_column_name(q, col), .type = VALUE_NULL };
    switch (sqlite3_column_type(q, col)) {
    case SQLITE_INTEGER:
        v->type = VALUE_INT;
        v->i = sqlite3_column_int64(q, col);
        break;
    case SQLITE_FLOAT:
        v->type = VALUE_REAL;
        v->r = sqlite3_column_double(q, col);
        break;
    case SQLITE_TEXT:
        v->type = VALUE_TEXT;
        v->p = (const char *)sqlite3_column_text(q, col);
        v->n = (size_t)sqlite3_column_bytes(q, col);
        break;
    case SQLITE_BLOB:
        v->type = VALUE_BLOB;
        v->p = sqlite3_column_blob(q, col);
        v->n = (size_t)sqlite3_column_bytes(q, col);
        break;
    default: break;
    }
}

#define COLUMNS_MAX 2000 /* SQLite's own limit (SQLITE_MAX_COLUMN) */

/* Step, handing out each row. A callback that stops ends a statement that only reads; one that
 * writes goes on to its end. */
static enum pawl_rc step_rows(struct sqlite *sl, sqlite3_stmt *q, struct sql_value *col, int col_n,
                              store_row_fn *fn, void *ctx, struct pawl_error *e)
{
    bool more = fn != NULL;
    int code;

    while ((code = sqlite3_step(q)) == SQLITE_ROW) {
        for (int i = 0; more && i < col_n; i++) {
            read_column(q, i, &col[i]);
            if ((col[i].type == VALUE_TEXT && col[i].p == NULL) || col[i].name == NULL)
                return pawl_fail(e, PAWL_NOMEM, "out of memory");
        }
        if (more)
            more = fn(ctx, col, (size_t)col_n);
        if (!more && sqlite3_stmt_readonly(q))
            return PAWL_OK;
    }
    if (code == SQLITE_DONE)
        return PAWL_OK;
    if (sl->refused != NULL)
        return pawl_fail(e, PAWL_CONFIG, "a handler's statement may not use %s", sl->refused);
    return pawl_fail_native(e, PAWL_SQL, sqlite3_extended_errcode(sl->db), "%s",
                            sl->timed_out ? "time limit reached" : sqlite3_errmsg(sl->db));
}

static bool room_for(struct store_stmt *s, int col_n)
{
    if (col_n <= s->col_n)
        return true;
    free(s->col);
    s->col = calloc((size_t)col_n, sizeof *s->col);
    s->col_n = s->col != NULL ? col_n : 0;
    return s->col != NULL;
}

enum pawl_rc sl_stmt_query(struct store *st, struct store_stmt *s, const struct sql_value *v,
                           size_t n, store_row_fn *fn, void *ctx, struct pawl_error *e)
{
    struct sqlite *sl = sl_of(st);
    enum pawl_rc rc;

    if ((rc = ready_to_step(sl, s, v, n, e)) != PAWL_OK)
        return rc;
    const int col_n = sqlite3_column_count(s->st);
    if (!sl->d.in_tx && !sqlite3_stmt_readonly(s->st))
        rc = pawl_fail(e, PAWL_CONFIG, "only a statement that reads may run here, outside the job's"
                       " transaction");
    else if (col_n < 0 || col_n > COLUMNS_MAX || !room_for(s, col_n))
        rc = pawl_fail(e, PAWL_NOMEM, "out of memory");
    else
        rc = step_rows(sl, s->st, s->col, col_n, fn, ctx, e);
    stepped(sl, s, rc != PAWL_OK);
    sqlite3_reset(s->st);
    sqlite3_clear_bindings(s->st);
    return rc;
}

bool sl_stmt_has(struct store *st, const struct store_stmt *s, const char *name)
{
    char full[LIMIT_KEY_BYTES + 2];

    (void)st;
    if (s->st == NULL || strlen(name) + 2 > sizeof full)
        return false;
    sqlite3_snprintf((int)sizeof full, full, ":%s", name);
    return sqlite3_bind_parameter_index(s->st, full) > 0;
}

/* A statement that was being stepped when its row callback was left by another way than its return:
 * our own statements would be refused as a handler's are, and the open one keep a COMMIT waiting.
 * */
bool sl_call_over(struct store *st)
{
    struct sqlite *sl = sl_of(st);

    if (sl->stepping == 0)
        return false;
    sl->stepping = 0;
    sl->guarded = sl->raw;
    sl->d.wrote_unseen = true;
    if (sl->db != NULL)
        sqlite3_progress_handler(sl->db, 0, NULL, NULL);
    for (struct store_stmt *s = sl->user; s != NULL; s = s->next)
        if (s->st != NULL) {
            sqlite3_reset(s->st);
            sqlite3_clear_bindings(s->st);
        }
    return true;
}

/* While a handler of the linking program has our handle, what it prepares by itself is watched,
 * too; what it left open would keep us from ending the savepoint. */
void *sl_raw(struct store *st, bool on)
{
    struct sqlite *sl = sl_of(st);

    if (sl->db == NULL)
        return NULL;
    if (on) {
        sl->raw_refused = NULL;
        sl->d.wrote_unseen = true; /* a table made or dropped, a blob: nothing counts those */
    }
    sl->raw = sl->guarded = on;
    if (!on)
        sl_hooks(sl); /* whatever it may have put in their place */
    for (sqlite3_stmt *q = NULL; !on && (q = sqlite3_next_stmt(sl->db, q)) != NULL;)
        if (sqlite3_stmt_busy(q))
            sqlite3_reset(q);
    return sl->db;
}

const char *sl_raw_refused(struct store *st)
{
    return sl_of(st)->raw_refused;
}

void sl_deadline(struct store *st, int64_t mono, const volatile int *stop)
{
    struct sqlite *sl = sl_of(st);

    sl->deadline_us = mono;
    sl->stop = stop;
}
