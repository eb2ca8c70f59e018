// SPDX-License-Identifier: Apache-2.0
/* pg_query.c - statements: bound, prepared on first use, executed at the first step, read. */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/err.h"
#include "base/json.h"
#include "base/utf8.h"
#include "store/pg/pg.h"

enum { OID_BOOL = 16, OID_BYTEA = 17 };

static struct pg_query *of(struct query *q)
{
    return (struct pg_query *)(void *)q;
}

/* --- binding --- */

static int slot(const struct pg_query *q, int i)
{
    assert(i >= 1 && i <= PG_PARAMS);
    return q->slot[i] - 1;
}

static void bind(struct pg_query *q, int at, const char *v, int len, int fmt)
{
    q->v[at] = v;
    q->len[at] = len;
    q->fmt[at] = fmt;
}

static void bind_int(struct query *q_, int i, int64_t v)
{
    struct pg_query *q = of(q_);
    const int at = slot(q, i);

    if (at < 0)
        return; /* another statement of the same verb uses it */
    snprintf(q->num[at], sizeof q->num[at], "%lld", (long long)v);
    bind(q, at, q->num[at], 0, 0);
}

/* A text is sent as it is, with its length. What the server would refuse (a NUL, a byte that is no
 * UTF-8: the tail of a program's output may be anything) is made printable: nothing else in the row
 * is lost for it. */
static void bind_text(struct query *q_, int i, const char *s, size_t n)
{
    struct pg_query *q = of(q_);
    const int at = slot(q, i);

    if (at < 0)
        return;
    free(q->clean[at]);
    q->clean[at] = NULL;
    if (s != NULL && (memchr(s, '\0', n) != NULL || !utf8_ok(s, n))) {
        const size_t room = n * TEXT_SAFE_MAX + 1;

        q->clean[at] = malloc(room);
        if (q->clean[at] != NULL) {
            n = text_copy_safe(q->clean[at], room, 0, s, n);
            s = q->clean[at];
        }
    }
    bind(q, at, s, (int)n, 1);
}

void pg_bind_plain(struct query *q_, int i, const char *s)
{
    struct pg_query *q = of(q_);

    bind(q, slot(q, i), s, 0, 0);
}

static void bind_blob(struct query *q_, int i, const void *p, size_t n)
{
    struct pg_query *q = of(q_);
    const int at = slot(q, i);

    if (at >= 0)
        bind(q, at, p, (int)n, 1);
}

static void copy(struct query *q_, int i, struct query *from_, int col)
{
    struct pg_query *q = of(q_), *from = of(from_);
    const int at = slot(q, i);

    if (at < 0)
        return;
    if (PQgetisnull(from->r, from->row, col))
        bind(q, at, NULL, 0, 0);
    else
        bind(q, at, PQgetvalue(from->r, from->row, col), 0, 0);
}

/* --- reading --- */

static bool is_null(struct query *q, int col)
{
    return PQgetisnull(of(q)->r, of(q)->row, col) != 0;
}

static int64_t i64(struct query *q, int col)
{
    const char *v = PQgetvalue(of(q)->r, of(q)->row, col);

    if (PQftype(of(q)->r, col) == OID_BOOL)
        return v[0] == 't';
    return strtoll(v, NULL, 10);
}

static const char *str(struct query *q, int col)
{
    return is_null(q, col) ? NULL : PQgetvalue(of(q)->r, of(q)->row, col);
}

static const void *blob(struct query *q_, int col)
{
    struct pg_query *q = of(q_);
    size_t n = 0;

    if (is_null(q_, col))
        return NULL;
    if (PQftype(q->r, col) != OID_BYTEA)
        return PQgetvalue(q->r, q->row, col);
    PQfreemem(q->bytes);
    q->bytes = PQunescapeBytea((const unsigned char *)PQgetvalue(q->r, q->row, col), &n);
    return q->bytes;
}

static int bytes(struct query *q, int col)
{
    return PQgetlength(of(q)->r, of(q)->row, col);
}

/* --- life --- */

void pg_query_clear(struct pg_query *q)
{
    PQclear(q->r);
    q->r = NULL;
    q->row = 0;
    PQfreemem(q->bytes);
    q->bytes = NULL;
}

static void reset(struct query *q)
{
    pg_query_clear(of(q));
}

void pg_query_end(struct pg_query *q)
{
    pg_query_clear(q);
    for (int i = 0; i < PG_PARAMS; i++) {
        free(q->clean[i]);
        q->clean[i] = NULL;
    }
    free(q->text);
    q->text = NULL;
}

static void discard(struct query *q)
{
    pg_query_end(of(q));
    free(of(q));
}

const struct query_ops pg_query_ops = {
    .bind_int = bind_int, .bind_text = bind_text, .bind_blob = bind_blob, .copy = copy,
    .is_null = is_null, .i64 = i64, .str = str, .blob = blob, .bytes = bytes, .reset = reset,
    .free = discard,
};

enum pawl_rc pg_q(struct db *db, enum q_id id, struct query **out, struct pawl_error *e)
{
    return pg_named(db, (int)id, out, e);
}

static enum pawl_rc on_server(struct pg *pg, struct pg_query *q, int id, struct pawl_error *e)
{
    PGresult *r = NULL;
    const enum pawl_rc rc = pg_pipe_end(pg, NULL, e);

    if (rc != PAWL_OK)
        return rc;
    snprintf(q->name, sizeof q->name, "pawl_%d", id);
    if (PQsendPrepare(pg->c, q->name, q->text, 0, NULL) == 1)
        r = pg_wait(pg, pg_until(pg));
    if (PQresultStatus(r) != PGRES_COMMAND_OK) {
        q->name[0] = '\0';
        return pg_fail(pg, r, e, "store: prepare");
    }
    PQclear(r);
    return PAWL_OK;
}

enum pawl_rc pg_named(struct db *db, int id, struct query **out, struct pawl_error *e)
{
    struct pg *pg = pg_from(db);
    struct pg_query *q = &pg->named[id];

    *out = &q->head;
    if (q->text == NULL) {
        q->head.ops = &pg_query_ops;
        q->pg = pg;
        if (!pg_translate(pg_sql(id) != NULL ? pg_sql(id) : q_text_of[id], q))
            return pawl_fail(e, PAWL_NOMEM, "out of memory");
    }
    pg_query_clear(q);
    for (int i = 0; i < q->params; i++)
        bind(q, i, NULL, 0, 0);
    if (pg->c == NULL)
        return pg_fail(pg, NULL, e, "store");
    return q->name[0] != '\0' || pg->pooled ? PAWL_OK : on_server(pg, q, id, e);
}

enum pawl_rc pg_prepare(struct db *db, const char *sql, struct query **out, struct pawl_error *e)
{
    struct pg_query *q = calloc(1, sizeof *q);

    *out = NULL;
    if (q == NULL || !pg_translate(sql, q)) {
        free(q);
        return pawl_fail(e, PAWL_NOMEM, "out of memory");
    }
    q->head.ops = &pg_query_ops;
    q->pg = pg_from(db);
    *out = &q->head;
    return PAWL_OK;
}

/* --- stepping --- */

static enum pawl_rc send(struct pg *pg, struct pg_query *q, struct pawl_error *e)
{
    return pg_pipe_send(pg, q->kind, q->name, q->text, q->params, q->v, q->len, q->fmt, e);
}

static enum pawl_rc execute(struct pg *pg, struct pg_query *q, struct pawl_error *e)
{
    enum pawl_rc rc = PAWL_OK;

    q->row = -1;
    q->r = pg_ahead_take(pg, q, &rc, e);
    if (q->r == NULL && rc == PAWL_OK && (rc = send(pg, q, e)) == PAWL_OK)
        rc = pg_pipe_end(pg, &q->r, e);
    if (rc != PAWL_OK)
        return rc;
    if (q->r == NULL)
        return pawl_fail(e, PAWL_STORE, "store: a statement has no answer");
    const char *n = PQcmdTuples(q->r);
    const bool wrote = PQresultStatus(q->r) == PGRES_COMMAND_OK ||
                       strncmp(PQcmdStatus(q->r), "SELECT", 6) != 0;
    pg->changed_n = wrote && *n != '\0' ? strtoll(n, NULL, 10) : 0;
    pg->inserted_id = 0;
    if (wrote && PQntuples(q->r) == 1 && PQnfields(q->r) == 1)
        pg->inserted_id = strtoll(PQgetvalue(q->r, 0, 0), NULL, 10);
    return PAWL_OK;
}

enum pawl_rc pg_run_later(struct db *db, struct query *q, struct pawl_error *e)
{
    const enum pawl_rc rc = send(pg_from(db), of(q), e);

    pg_query_clear(of(q));
    return rc;
}

enum pawl_rc pg_run(struct db *db, struct query *q, struct pawl_error *e)
{
    const enum pawl_rc rc = execute(pg_from(db), of(q), e);

    pg_query_clear(of(q));
    return rc;
}

enum pawl_rc pg_row(struct db *db, struct query *q_, bool *row, struct pawl_error *e)
{
    struct pg_query *q = of(q_);
    enum pawl_rc rc;

    *row = false;
    if (q->r == NULL && (rc = execute(pg_from(db), q, e)) != PAWL_OK)
        return rc;
    if (q->again && q->row + 1 >= PQntuples(q->r) && PQntuples(q->r) > 0) {
        pg_query_clear(q);
        if ((rc = execute(pg_from(db), q, e)) != PAWL_OK)
            return rc;
    }
    if (++q->row < PQntuples(q->r)) {
        *row = true;
        return PAWL_OK;
    }
    pg_query_clear(q);
    return PAWL_OK;
}
