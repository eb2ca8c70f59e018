// SPDX-License-Identifier: Apache-2.0
/* pg_stmt.c - statements of users' handlers: looked at, with numbers for names, bounded in time.
 *
 * Keeps: transaction control, and Pawl's private tables by their name, are refused before the
 *        server sees them; the role a worker connects as is what really bounds it. The extended
 *        protocol takes one statement at a time, so that nothing hides behind a semicolon.
 */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include "base/err.h"
#include "base/json.h"
#include "core/sqltoken.h"
#include "store/pg/pg.h"

enum { NAMES_MAX = 64 };
enum { T_BOOL = 16, T_BYTEA = 17, T_INT8 = 20, T_INT2 = 21, T_INT4 = 23, T_JSON = 114,
       T_OID = 26, T_FLOAT4 = 700, T_FLOAT8 = 701, T_NUMERIC = 1700, T_JSONB = 3802 };

struct store_stmt {
    struct stmt_head head;      /* first */
    struct pg *pg;
    char *text;                 /* with $n for each name */
    char *names[NAMES_MAX]; int names_n;
    char name[24];              /* prepared as; pooled: without a name */
    bool there;                 /* the server, over this connection, knows it or has tried it */
    PGresult *r;                /* of a query whose rows are handed out */
    struct sql_value *col; int col_n;
    struct arena row;           /* what the row in hand points to, and the result does not hold */
    struct store_stmt *next;
};

static enum pawl_rc refuse(struct pawl_error *e, const char *what)
{
    return pawl_fail(e, PAWL_CONFIG, "a handler's statement may not use %s", what);
}

static bool is_one_of(const struct sql_token *t, const char *const *words)
{
    for (; *words != NULL; words++)
        if (sql_is_word(t, *words))
            return true;
    return false;
}

/* The first word: what ends or splits the transaction, or changes the session for the next job. */
static enum pawl_rc first_word(const struct sql_token *t, struct pawl_error *e)
{
    static const char *const control[] = { "begin", "start", "commit", "rollback", "abort", "end",
                                           "prepare", NULL };
    static const char *const savepoint[] = { "savepoint", "release", NULL };
    static const char *const session[] = { "set", "reset", "discard", "load", "listen", "unlisten",
                                           "deallocate", "copy", NULL };

    if (t->kind == TOK_END)
        return pawl_fail(e, PAWL_CONFIG, "the statement is empty");
    if (is_one_of(t, control))
        return refuse(e, "BEGIN, COMMIT or ROLLBACK");
    if (is_one_of(t, savepoint))
        return refuse(e, "SAVEPOINT or RELEASE");
    if (is_one_of(t, session))
        return refuse(e, "SET, RESET, DISCARD, LISTEN or COPY");
    return PAWL_OK;
}

static int number_of(struct store_stmt *s, const struct sql_token *t)
{
    for (int i = 0; i < s->names_n; i++)
        if (strlen(s->names[i]) == t->body_n && memcmp(s->names[i], t->body, t->body_n) == 0)
            return i + 1;
    if (s->names_n == NAMES_MAX ||
        (s->names[s->names_n] = strndup(t->body, t->body_n)) == NULL)
        return 0;
    return ++s->names_n;
}

/* A NAME of ours: pawl . x_... */
static bool is_private(const struct sql_token *t, int *at)
{
    const bool named = t->kind == TOK_WORD || t->kind == TOK_NAME;

    if (*at == 2 && named && t->body_n > 2 && strncasecmp(t->body, "x_", 2) == 0)
        return true;
    *at = named && t->body_n == 4 && strncasecmp(t->body, "pawl", 4) == 0 ? 1
        : *at == 1 && sql_is_char(t, '.') ? 2 : 0;
    return false;
}

static enum pawl_rc translate(struct store_stmt *s, const char *text, struct pawl_error *e)
{
    struct sql_lexer lex = { .text = text, .e = e };
    struct buf out = {0};
    size_t done = 0;
    bool first = true, over = false;
    int at = 0;
    enum pawl_rc rc;

    while ((rc = sql_next_token(&lex)) == PAWL_OK) {
        const struct sql_token *t = &lex.tok;

        if (first && (rc = first_word(t, e)) != PAWL_OK)
            break;
        first = false;
        if (t->kind == TOK_END)
            break;
        if (over) {
            rc = pawl_fail(e, PAWL_CONFIG, "more than one statement: \"%.40s\"", text + t->at);
            break;
        }
        if (t->body_n == 10 && strncasecmp(t->body, "set_config", 10) == 0 &&
            (t->kind == TOK_WORD || t->kind == TOK_NAME)) {
            rc = refuse(e, "set_config: it would change the session of the jobs after it");
            break;
        }
        if (t->kind == TOK_WORD && t->body_n == 1 && (*t->body == 'u' || *t->body == 'U') &&
            text[t->at + t->n] == '&') {
            rc = refuse(e, "names or texts of the form U&\"...\"");
            break;
        }
        if (is_private(t, &at)) {
            rc = refuse(e, "a table that is private to Pawl (pawl.x_...)");
            break;
        }
        over = t->kind == TOK_SEMI;
        if (t->kind != TOK_PARAM && !over)
            continue;
        buf_put(&out, text + done, t->at - done);
        done = t->at + t->n;
        const int n = over ? 0 : number_of(s, t);
        if (!over && n == 0) {
            rc = pawl_fail(e, PAWL_CONFIG, "more than %d parameters", NAMES_MAX);
            break;
        }
        if (!over)
            buf_printf(&out, "$%d", n);
    }
    buf_puts(&out, text + done);
    s->text = buf_take(&out);
    return rc == PAWL_OK && s->text == NULL ? pawl_fail(e, PAWL_NOMEM, "out of memory") : rc;
}

enum pawl_rc pg_sql_failed(struct pg *pg, PGresult *r, struct pawl_error *e)
{
    const bool late = pg->timed_out || (pg->stop != NULL && *pg->stop != 0);
    const enum pawl_rc rc = pg_fail(pg, r, e, "");

    if (late && pg->c == NULL) /* we ended it, and with it the transaction */
        return pawl_fail_native(e, PAWL_SQL, pg_native("PWLIM"), "time limit reached");
    if (e == NULL)
        return rc;
    /* pg_fail says "what: text (SQLSTATE n)": a user's statement needs no more than the text. */
    const char *text = strncmp(e->msg, ": ", 2) == 0 ? e->msg + 2 : e->msg;
    memmove(e->msg, text, strlen(text) + 1);
    return pg->c == NULL ? rc : (e->rc = PAWL_SQL);
}

/* A configuration that has moved here from SQLite. */
static enum pawl_rc sqlite_hint(const struct store_stmt *s, enum pawl_rc rc, struct pawl_error *e)
{
    const size_t n = e != NULL ? strlen(e->msg) : 0;

    if (n > 0 && strcmp(s->pg->state, "42P01") == 0 && strstr(s->text, "pawl_") != NULL)
        (void)snprintf(e->msg + n, sizeof e->msg - n, "; on PostgreSQL a job is enqueued by SELECT"
                       " pawl.enqueue(...), and the views are pawl.jobs, pawl.attempts, ...");
    return rc;
}

static enum pawl_rc on_server(struct store_stmt *s, struct pawl_error *e)
{
    static unsigned n;
    struct pg *pg = s->pg;
    struct pawl_error ignored;
    PGresult *r = NULL;
    enum pawl_rc rc;

    if (pg->c == NULL && (rc = db_ready(&pg->d, e)) != PAWL_OK)
        return rc;
    if (s->there)
        return PAWL_OK;
    if ((rc = pg_pipe_end(pg, NULL, e)) != PAWL_OK)
        return rc;
    const char *keeps = pg->pooled ? pg_session_use(s->text) : NULL;
    if (keeps != NULL)
        return pawl_fail(e, PAWL_CONFIG, "behind a pooler a handler's statement may not use %s",
                         keeps);
    s->name[0] = '\0';
    if (!pg->pooled)
        snprintf(s->name, sizeof s->name, "pawl_user_%u", n++);
    /* Pooled: with the settings that it will run with. */
    const bool alone = pg->pooled && PQtransactionStatus(pg->c) == PQTRANS_IDLE;
    if (alone && (rc = pg_open_tx(pg, "BEGIN READ ONLY", e)) != PAWL_OK)
        return rc;
    if (PQsendPrepare(pg->c, s->name, s->text, 0, NULL) == 1)
        r = pg_wait(pg, pg_until(pg));
    s->there = PQresultStatus(r) == PGRES_COMMAND_OK;
    if (s->there)
        PQclear(r);
    else
        rc = sqlite_hint(s, pg_sql_failed(pg, r, e), e);
    if (alone && pg->c != NULL && pg_exec(pg, "ROLLBACK", &ignored) != PAWL_OK)
        pg_disconnect(pg);
    return rc;
}

static void stmt_free(struct store_stmt **p)
{
    struct store_stmt *s = *p;

    if (s == NULL)
        return;
    for (struct store_stmt **at = &s->pg->user; *at != NULL; at = &(*at)->next)
        if (*at == s) {
            *at = s->next;
            break;
        }
    for (int i = 0; i < s->names_n; i++)
        free(s->names[i]);
    PQclear(s->r);
    free(s->col);
    arena_free(&s->row);
    free(s->text);
    free(s);
    *p = NULL;
}

void pg_stmt_forget(struct pg *pg)
{
    for (struct store_stmt *s = pg->user; s != NULL; s = s->next)
        s->there = false;
}

enum pawl_rc pg_stmt_prepare(struct store *st, const char *text, struct store_stmt **out,
                             struct pawl_error *e)
{
    struct pg *pg = pg_of(st);
    struct store_stmt *s = calloc(1, sizeof *s);
    enum pawl_rc rc;

    *out = NULL;
    if (s == NULL)
        return pawl_fail(e, PAWL_NOMEM, "out of memory");
    s->head.free = stmt_free;
    s->pg = pg;
    s->next = pg->user;
    pg->user = s;
    if ((rc = translate(s, text, e)) != PAWL_OK || (rc = on_server(s, e)) != PAWL_OK) {
        stmt_free(&s);
        return rc;
    }
    *out = s;
    return PAWL_OK;
}

/* --- running --- */

/* Values as text, which the server reads as what the parameter is; blobs as they are. */
struct bound { const char *v[NAMES_MAX]; int len[NAMES_MAX], fmt[NAMES_MAX]; struct arena a; };

static enum pawl_rc put_value(struct bound *b, int at, const struct sql_value *v,
                              struct pawl_error *e)
{
    char num[40];

    b->v[at] = NULL;
    switch (v->type) {
    case VALUE_NULL: return PAWL_OK;
    case VALUE_INT:
        snprintf(num, sizeof num, "%lld", (long long)v->i);
        b->v[at] = arena_strdup(&b->a, num);
        break;
    case VALUE_REAL:
        snprintf(num, sizeof num, "%.17g", v->r);
        b->v[at] = arena_strdup(&b->a, num);
        break;
    case VALUE_TEXT:
        if (memchr(v->p, '\0', v->n) != NULL)
            return pawl_fail_native(e, PAWL_SQL, pg_native("22021"), "parameter :%s holds a NUL"
                                    " character, which PostgreSQL cannot store", v->name);
        b->v[at] = arena_dup(&b->a, v->p, v->n);
        break;
    case VALUE_BLOB:
        b->v[at] = v->p != NULL ? v->p : "";
        b->len[at] = (int)v->n;
        b->fmt[at] = 1;
        break;
    }
    return b->v[at] != NULL ? PAWL_OK : pawl_fail(e, PAWL_NOMEM, "out of memory");
}

static enum pawl_rc bind_all(struct store_stmt *s, struct bound *b, const struct sql_value *v,
                             size_t n, struct pawl_error *e)
{
    enum pawl_rc rc = PAWL_OK;

    memset(b, 0, sizeof *b);
    for (int k = 0; k < s->names_n && rc == PAWL_OK; k++)
        for (size_t i = 0; i < n && rc == PAWL_OK; i++)
            if (strcmp(s->names[k], v[i].name) == 0)
                rc = put_value(b, k, &v[i], e);
    return rc;
}

/* out NULL: nobody waits for what it comes to. */
static enum pawl_rc execute(struct store_stmt *s, const struct sql_value *v, size_t n,
                            PGresult **out, struct pawl_error *e)
{
    struct pg *pg = s->pg;
    struct bound b;
    enum pawl_rc rc;

    if ((rc = on_server(s, e)) != PAWL_OK ||
        (pg->d.in_tx && (rc = pg_tune(pg, false, e)) != PAWL_OK))
        return rc;
    if ((rc = bind_all(s, &b, v, n, e)) == PAWL_OK) {
        pg->d.wrote_unseen = true; /* a function may write what no count tells */
        rc = pg_pipe_send(pg, PIPE_USER, s->name, s->text, s->names_n, b.v, b.len, b.fmt, e);
    }
    if (rc == PAWL_OK && out != NULL) {
        pg->watched = true;
        rc = pg_pipe_end(pg, out, e);
        pg->watched = false;
    }
    arena_free(&b.a);
    return rc;
}

int64_t pg_count(struct pg *pg, PGresult *r)
{
    const char *n = PQcmdTuples(r);
    const int64_t k = *n != '\0' ? strtoll(n, NULL, 10) : 0;

    if (strncmp(PQcmdStatus(r), "SELECT", 6) != 0)
        pg->wrote_n += k;
    return k;
}

static void json_value(PGresult *r, int row, int col, struct buf *out)
{
    const char *v = PQgetvalue(r, row, col);
    const size_t n = (size_t)PQgetlength(r, row, col);

    if (PQgetisnull(r, row, col)) {
        buf_puts(out, "null");
        return;
    }
    switch (PQftype(r, col)) {
    case T_BOOL: buf_puts(out, *v == 't' ? "true" : "false"); break;
    case T_INT8: case T_INT2: case T_INT4: case T_OID: case T_JSON: case T_JSONB:
        buf_put(out, v, n);
        break;
    case T_FLOAT4: case T_FLOAT8: case T_NUMERIC:
        if (strspn(v, "0123456789+-.eE") == n) { /* not so: NaN, Infinity */
            buf_put(out, v, n);
            break;
        }
        /* fall through */
    default: json_put_str(out, v, n);
    }
}

static enum pawl_rc json_rows(PGresult *r, struct buf *rows, size_t rows_max, struct pawl_error *e)
{
    const int n = PQntuples(r), cols = PQnfields(r);

    buf_putc(rows, '[');
    for (int i = 0; i < n; i++) {
        buf_puts(rows, i > 0 ? ",{" : "{");
        for (int c = 0; c < cols; c++) {
            if (c > 0)
                buf_putc(rows, ',');
            json_put_cstr(rows, PQfname(r, c));
            buf_putc(rows, ':');
            json_value(r, i, c, rows);
        }
        buf_putc(rows, '}');
        if (rows->n + 1 > rows_max)
            return pawl_fail(e, PAWL_TOOBIG, "the result is larger than %zu KiB", rows_max / 1024);
    }
    buf_putc(rows, ']');
    return rows->failed ? pawl_fail(e, PAWL_NOMEM, "out of memory") : PAWL_OK;
}

enum pawl_rc pg_stmt_run(struct store *st, struct store_stmt *s, const struct sql_value *v,
                         size_t n, struct buf *rows, size_t rows_max, int64_t *changed,
                         struct pawl_error *e)
{
    struct pg *pg = pg_of(st);
    PGresult *r = NULL;
    enum pawl_rc rc;

    if (changed == NULL && rows == NULL && pg->d.effect_open && pg->d.plain)
        return execute(s, v, n, NULL, e);
    if ((rc = execute(s, v, n, &r, e)) != PAWL_OK)
        return rc;
    const int64_t k = pg_count(pg, r);
    if (changed != NULL)
        *changed = k;
    if (rows != NULL)
        rc = json_rows(r, rows, rows_max, e);
    PQclear(r);
    return rc;
}

static void read_column(PGresult *r, int row, int c, struct sql_value *v, struct arena *a)
{
    *v = (struct sql_value){ .name = PQfname(r, c), .type = VALUE_NULL };
    if (PQgetisnull(r, row, c))
        return;
    const char *t = PQgetvalue(r, row, c);
    size_t n = 0;
    unsigned char *raw;
    switch (PQftype(r, c)) {
    case T_BOOL: v->type = VALUE_INT; v->i = *t == 't'; break;
    case T_INT8: case T_INT2: case T_INT4: case T_OID:
        v->type = VALUE_INT;
        v->i = strtoll(t, NULL, 10);
        break;
    case T_FLOAT4: case T_FLOAT8: v->type = VALUE_REAL; v->r = strtod(t, NULL); break;
    case T_BYTEA:
        raw = PQunescapeBytea((const unsigned char *)t, &n);
        v->type = VALUE_BLOB;
        v->p = raw != NULL ? arena_dup(a, raw, n) : NULL;
        v->n = n;
        PQfreemem(raw);
        break;
    default:
        v->type = VALUE_TEXT;
        v->p = t;
        v->n = (size_t)PQgetlength(r, row, c);
    }
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

/* The result is the statement's until the next run: a callback may be left by a jump. */
enum pawl_rc pg_stmt_query(struct store *st, struct store_stmt *s, const struct sql_value *v,
                           size_t n, store_row_fn *fn, void *ctx, struct pawl_error *e)
{
    struct pg *pg = pg_of(st);
    bool more = fn != NULL;
    enum pawl_rc rc;

    PQclear(s->r);
    s->r = NULL;
    const bool outside = !pg->d.in_tx; /* the server sees to it that nothing is written there */
    if (outside && ((rc = db_ready(&pg->d, e)) != PAWL_OK ||
                    (rc = pg_open_tx(pg, "BEGIN READ ONLY", e)) != PAWL_OK))
        return rc;
    rc = execute(s, v, n, &s->r, e);
    if (outside) {
        struct pawl_error ignored;

        if (rc == PAWL_SQL && strcmp(pg->state, "25006") == 0)
            rc = pawl_fail(e, PAWL_CONFIG, "only a statement that reads may run here, outside the"
                           " job's transaction");
        if (pg->c != NULL && pg_exec(pg, "ROLLBACK", &ignored) != PAWL_OK)
            pg_disconnect(pg);
    }
    if (rc != PAWL_OK)
        return rc;
    (void)pg_count(pg, s->r);
    const int cols = PQnfields(s->r), rows = PQntuples(s->r);
    if (cols > 0 && !room_for(s, cols))
        rc = pawl_fail(e, PAWL_NOMEM, "out of memory");
    pg->rows_out++;
    for (int i = 0; i < rows && more && rc == PAWL_OK; i++) {
        arena_reset(&s->row);
        for (int c = 0; c < cols; c++)
            read_column(s->r, i, c, &s->col[c], &s->row);
        more = fn(ctx, s->col, (size_t)cols);
    }
    pg->rows_out--;
    PQclear(s->r);
    s->r = NULL;
    return rc;
}

bool pg_stmt_has(struct store *st, const struct store_stmt *s, const char *name)
{
    (void)st;
    for (int i = 0; i < s->names_n; i++)
        if (strcmp(s->names[i], name) == 0)
            return true;
    return false;
}

void pg_deadline(struct store *st, int64_t mono, const volatile int *stop)
{
    struct pg *pg = pg_of(st);

    pg->deadline_us = mono;
    pg->stop = stop;
}
