// SPDX-License-Identifier: Apache-2.0
/* pg_move.c - what PostgreSQL does for a move: tables locked, handed out by a cursor, and a store
 * closed by triggers that fire once per statement. Rows in: pg_load.c. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/err.h"
#include "store/pg/pg.h"
#include "store/verb/mover.h"

/* The URL as given, without a password: libpq finds that in ~/.pgpass or the environment. */
static void shown(struct db *db, struct buf *out)
{
    const char *url = pg_from(db)->url, *user = strstr(url, "//");
    const char *end = url + strlen(url);

    user = user != NULL ? user + 2 : end;
    const char *path = user + strcspn(user, "/?");
    const char *at = path;
    while (at > user && *at != '@')
        at--;
    const char *colon = *at == '@' ? memchr(user, ':', (size_t)(at - user)) : NULL;
    buf_put(out, url, (size_t)((colon != NULL ? colon : path) - url));
    if (colon != NULL)
        buf_put(out, at, (size_t)(path - at));
    for (const char *s = path; s < end;) {
        const size_t n = 1 + strcspn(s + 1, "&");
        const bool first = *s != '&' && memchr(s, '?', n) != NULL;
        const char *value = first ? (const char *)memchr(s, '?', n) + 1 : s + 1;

        if (strncmp(value, "password=", 9) != 0)
            buf_put(out, s, n);
        else if (first)
            buf_put(out, s, (size_t)(value - s));
        s += n;
    }
}

static bool text_of(struct db *db, const char *sql, char *out, size_t n, struct pawl_error *e)
{
    struct query *q = NULL;
    bool row = false;

    out[0] = '\0';
    if (db_prepare(db, sql, &q, e) == PAWL_OK && db_row(db, q, &row, e) == PAWL_OK && row)
        snprintf(out, n, "%s", q_str(q, 0));
    q_free(q);
    return row;
}

static bool same(struct db *a, struct db *b, struct pawl_error *e)
{
    char one[64], two[64];

    return text_of(a, "SELECT id FROM pawl_x_store", one, sizeof one, e) &&
           text_of(b, "SELECT id FROM pawl_x_store", two, sizeof two, e) && strcmp(one, two) == 0;
}

/* Readers go on. A long move may have pauses that are no sign of a vanished host. */
static enum pawl_rc freeze(struct db *db, struct pawl_error *e)
{
    struct buf sql = {0};
    enum pawl_rc rc;

    buf_puts(&sql, "SET LOCAL idle_in_transaction_session_timeout = 0; LOCK TABLE pawl.x_worker");
    for (int i = 0; i < DB_TABLES_N; i++)
        buf_printf(&sql, ", pawl.x_%s", db_tables[i].name);
    buf_puts(&sql, " IN SHARE ROW EXCLUSIVE MODE");
    rc = sql.failed ? pawl_fail(e, PAWL_NOMEM, "out of memory")
                    : pg_exec(pg_from(db), buf_str(&sql), e);
    buf_free(&sql);
    return rc;
}

/* Of whichever host: whoever takes part has a row, and beats. */
static enum pawl_rc workers(struct db *db, size_t *n, char *who, size_t who_n,
                            struct pawl_error *e)
{
    struct query *q = NULL;
    bool row = true;
    enum pawl_rc rc = db_prepare(db, "SELECT id, pid, host FROM pawl_x_worker WHERE beat_at_us"
                                 " + lease_us >= ?1 ORDER BY parent IS NOT NULL, id", &q, e);

    *n = 0;
    if (rc != PAWL_OK)
        return rc;
    q_int(q, 1, db->env->wall_us(db->env->ctx));
    while ((rc = db_row(db, q, &row, e)) == PAWL_OK && row)
        if (++*n == 1)
            snprintf(who, who_n, "worker %s (pid %lld on %.60s)", q_str(q, 0),
                     (long long)q_i64(q, 1), q_str(q, 2));
    q_free(q);
    return rc;
}

/* --- rows out --- */

#define FETCH "FETCH 1000 FROM pawl_move"

/* The cursor's rows, a thousand at a time: a statement that is executed again when it is empty. */
static enum pawl_rc stream(struct db *db, const char *sql, struct query **out,
                           struct pawl_error *e)
{
    struct pg_query pg = {0};
    struct buf text = {0};
    enum pawl_rc rc;

    *out = NULL;
    if (!pg_translate(sql, &pg))
        return pawl_fail(e, PAWL_NOMEM, "out of memory");
    buf_printf(&text, "CLOSE ALL; DECLARE pawl_move NO SCROLL CURSOR FOR %s", pg.text);
    rc = text.failed ? pawl_fail(e, PAWL_NOMEM, "out of memory")
                     : pg_exec(pg_from(db), buf_str(&text), e);
    buf_free(&text);
    pg_query_end(&pg);
    if (rc == PAWL_OK && (rc = pg_prepare(db, FETCH, out, e)) == PAWL_OK)
        ((struct pg_query *)(void *)*out)->again = true;
    return rc;
}

static void blob(struct query *q, int col, struct db_value *v)
{
    const struct pg_query *p = (const struct pg_query *)(void *)q;
    const int n = PQgetlength(p->r, p->row, col);

    v->p = q_blob_of(q, col);
    v->n = n >= 2 ? (size_t)(n - 2) / 2 : 0; /* as hex, behind \x */
}

/* --- numbers --- */

static enum pawl_rc number(struct db *db, const struct db_table *t, int64_t *n,
                           struct pawl_error *e)
{
    struct query *q = NULL;
    bool row = false;
    char sql[128];
    enum pawl_rc rc;

    *n = 0;
    snprintf(sql, sizeof sql, "SELECT CASE WHEN is_called THEN last_value ELSE 0 END"
             " FROM pawl.x_%s_id_seq", t->name);
    if ((rc = db_prepare(db, sql, &q, e)) == PAWL_OK &&
        (rc = db_row(db, q, &row, e)) == PAWL_OK && row)
        *n = q_i64(q, 0);
    q_free(q);
    return rc;
}

static enum pawl_rc number_set(struct db *db, const struct db_table *t, int64_t n,
                               struct pawl_error *e)
{
    int64_t now = 0;
    char sql[128];
    const enum pawl_rc rc = number(db, t, &now, e);

    if (rc != PAWL_OK || n <= now)
        return rc;
    snprintf(sql, sizeof sql, "SELECT setval('pawl.x_%s_id_seq', %lld)", t->name, (long long)n);
    return pg_exec(pg_from(db), sql, e);
}

static enum pawl_rc each_table(struct db *db, const char *before, const char *after,
                               struct pawl_error *e)
{
    struct buf sql = {0};
    enum pawl_rc rc;

    for (int i = 0; i < DB_TABLES_N; i++)
        buf_printf(&sql, "%s pawl.x_%s%s;", before, db_tables[i].name, after);
    rc = sql.failed ? pawl_fail(e, PAWL_NOMEM, "out of memory")
                    : pg_exec(pg_from(db), buf_str(&sql), e);
    buf_free(&sql);
    return rc;
}

static enum pawl_rc clear(struct db *db, struct pawl_error *e)
{
    return each_table(db, "TRUNCATE", "", e);
}

/* --- closed --- */

#define CLOSED_SQL                                                                                \
    "CREATE OR REPLACE FUNCTION pawl.x_closed() RETURNS trigger LANGUAGE plpgsql"                 \
    " SET search_path = pg_catalog, pg_temp AS 'BEGIN RAISE EXCEPTION ''%'', TG_ARGV[0]"          \
    " USING ERRCODE = ''PWMOV''; END';"                                                           \
    "REVOKE ALL ON FUNCTION pawl.x_closed() FROM PUBLIC;"

static enum pawl_rc gate(struct db *db, const char *say, struct pawl_error *e)
{
    struct pg *pg = pg_from(db);
    struct buf sql = {0};
    char *text;
    enum pawl_rc rc;

    for (int i = 0; i <= DB_TABLES_N; i++)
        buf_printf(&sql, "DROP TRIGGER IF EXISTS x_closed ON pawl.x_%s;",
                   i < DB_TABLES_N ? db_tables[i].name : "worker");
    if (pg->c == NULL)
        return pg_fail(pg, NULL, e, "store");
    if (say != NULL) {
        buf_puts(&sql, CLOSED_SQL);
        text = PQescapeLiteral(pg->c, say, strlen(say));
        /* Not the counters: a connection confirms there what its predecessor left in doubt
         * (pg_ha.c), and nobody's job depends on them. */
        for (int i = 0; i <= DB_TABLES_N; i++)
            if (i == DB_TABLES_N || strcmp(db_tables[i].name, "counter") != 0)
                buf_printf(&sql, "CREATE TRIGGER x_closed BEFORE INSERT OR UPDATE OR DELETE ON"
                           " pawl.x_%s FOR EACH STATEMENT EXECUTE FUNCTION pawl.x_closed(%s);",
                           i < DB_TABLES_N ? db_tables[i].name : "worker",
                           text != NULL ? text : "");
        sql.failed = sql.failed || text == NULL;
        PQfreemem(text);
    }
    rc = sql.failed ? pawl_fail(e, PAWL_NOMEM, "out of memory") : pg_exec(pg, buf_str(&sql), e);
    buf_free(&sql);
    return rc;
}

static enum pawl_rc has_mark(struct db *db, bool *there, struct pawl_error *e)
{
    struct query *q = NULL;
    bool row = false;
    enum pawl_rc rc = db_prepare(db, "SELECT to_regclass('pawl.x_move') IS NOT NULL", &q, e);

    if (rc == PAWL_OK && (rc = db_row(db, q, &row, e)) == PAWL_OK)
        *there = row && q_i64(q, 0) != 0;
    q_free(q);
    return rc;
}

static enum pawl_rc granted(struct db *db, struct pawl_error *e)
{
    return pg_exec(pg_from(db), "SELECT pawl.x_grant()", e);
}

/* A loaded table has no statistics until somebody comes by: plans would be those of an empty
 * one. */
static enum pawl_rc settled(struct db *db, struct pawl_error *e)
{
    return each_table(db, "ANALYZE", "", e);
}

const struct db_mover pg_mover = {
    .shown = shown, .same = same, .freeze = freeze, .workers = workers,
    .stream = stream, .blob = blob, .number = number, .number_set = number_set, .clear = clear,
    .load = pg_load, .load_row = pg_load_row, .load_end = pg_load_end, .load_drop = pg_load_drop,
    .gate = gate, .has_mark = has_mark, .granted = granted, .settled = settled,
};
