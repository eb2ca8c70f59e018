// SPDX-License-Identifier: Apache-2.0
/* sl_move.c - what SQLite does for a move: rows out and in, and a file closed by triggers.
 *
 * Keeps: a closed file refuses writes of everybody, also of a program that knows SQLite only, and
 *        of a handle that was open before: its statements are compiled anew.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/err.h"
#include "store/sqlite/sl.h"
#include "store/verb/mover.h"

static void shown(struct db *db, struct buf *out)
{
    buf_printf(out, "sqlite:%s", sl_from(db)->path);
}

static bool same(struct db *a, struct db *b, struct pawl_error *e)
{
    (void)e;
    return sl_from(a)->file_dev == sl_from(b)->file_dev &&
           sl_from(a)->file_ino == sl_from(b)->file_ino;
}

/* The write lock is what there is, and BEGIN IMMEDIATE has taken it. */
static enum pawl_rc freeze(struct db *db, struct pawl_error *e)
{
    (void)db;
    (void)e;
    return PAWL_OK;
}

static enum pawl_rc workers(struct db *db, size_t *n, char *who, size_t who_n,
                            struct pawl_error *e)
{
    char (*ids)[SIDE_ID_BYTES] = NULL;
    struct arena a = {0};
    size_t files = 0;
    enum pawl_rc rc = side_list(&db->side, &a, &ids, &files, e);

    *n = 0;
    for (size_t i = 0; i < files && rc == PAWL_OK; i++) {
        struct side_peer peer;

        rc = side_look(&db->side, ids[i], db->env->boot_us(db->env->ctx), &peer, e);
        if (rc == PAWL_OK && (peer.life == SIDE_ALIVE || peer.life == SIDE_FROZEN)) {
            if (++*n == 1)
                snprintf(who, who_n, "worker %s (pid %lld)", ids[i],
                         peer.w != NULL ? (long long)peer.w->pid : 0);
        }
        side_forget(&db->side, &peer, false);
    }
    arena_free(&a);
    return rc;
}

static enum pawl_rc stream(struct db *db, const char *sql, struct query **q, struct pawl_error *e)
{
    return db_prepare(db, sql, q, e);
}

static void blob(struct query *q, int col, struct db_value *v)
{
    v->p = q_blob_of(q, col);
    v->n = (size_t)q_bytes(q, col);
}

static enum pawl_rc one_number(struct db *db, const char *sql, int64_t *n, struct pawl_error *e)
{
    struct query *q = NULL;
    bool row = false;
    enum pawl_rc rc = db_prepare(db, sql, &q, e);

    *n = 0;
    if (rc == PAWL_OK && (rc = db_row(db, q, &row, e)) == PAWL_OK && row)
        *n = q_i64(q, 0);
    q_free(q);
    return rc;
}

static enum pawl_rc number(struct db *db, const struct db_table *t, int64_t *n,
                           struct pawl_error *e)
{
    char sql[128];

    /* Names are never removed, so that their highest number is the last one. */
    snprintf(sql, sizeof sql, t == &db_tables[DB_TABLE_JOB]
             ? "SELECT coalesce((SELECT seq FROM sqlite_sequence WHERE name = 'pawl_x_%s'), 0)"
             : "SELECT coalesce(max(id), 0) FROM pawl_x_%s", t->name);
    return one_number(db, sql, n, e);
}

static enum pawl_rc number_set(struct db *db, const struct db_table *t, int64_t n,
                               struct pawl_error *e)
{
    char sql[320];

    if (t != &db_tables[DB_TABLE_JOB] || n == 0)
        return PAWL_OK;
    snprintf(sql, sizeof sql, "INSERT INTO sqlite_sequence (name, seq) SELECT 'pawl_x_job', 0"
             " WHERE NOT EXISTS (SELECT 1 FROM sqlite_sequence WHERE name = 'pawl_x_job');"
             "UPDATE sqlite_sequence SET seq = max(seq, %lld) WHERE name = 'pawl_x_job'",
             (long long)n);
    return sl_exec(sl_from(db), sql, e);
}

static enum pawl_rc clear(struct db *db, struct pawl_error *e)
{
    char sql[64];
    enum pawl_rc rc = PAWL_OK;

    for (int i = 0; i < DB_TABLES_N && rc == PAWL_OK; i++) {
        snprintf(sql, sizeof sql, "DELETE FROM pawl_x_%s", db_tables[i].name);
        rc = sl_exec(sl_from(db), sql, e);
    }
    return rc;
}

/* --- rows in --- */

struct sl_load { struct db_load head; struct query *put; int64_t rows; };

static enum pawl_rc load(struct db *db, const struct db_table *t, struct db_load **out,
                         struct pawl_error *e)
{
    struct sl_load *l = calloc(1, sizeof *l);
    struct buf sql = {0};
    enum pawl_rc rc;

    *out = NULL;
    buf_printf(&sql, "INSERT INTO pawl_x_%s (", t->name);
    for (int i = 0; i < t->col_n; i++)
        buf_printf(&sql, "%s%s", i > 0 ? ", " : "", t->col[i].name);
    buf_puts(&sql, ") VALUES (");
    for (int i = 1; i <= t->col_n; i++)
        buf_printf(&sql, "%s?%d", i > 1 ? ", " : "", i);
    buf_puts(&sql, ")");
    rc = l == NULL || sql.failed ? pawl_fail(e, PAWL_NOMEM, "out of memory")
                                 : db_prepare(db, buf_str(&sql), &l->put, e);
    buf_free(&sql);
    if (rc != PAWL_OK) {
        free(l);
        return rc;
    }
    l->head = (struct db_load){ db, t };
    *out = &l->head;
    return PAWL_OK;
}

static sqlite3_stmt *put_of(struct sl_load *l)
{
    return ((struct sl_query *)(void *)l->put)->st;
}

static enum pawl_rc load_row(struct db_load *load_, const struct db_value *v, struct pawl_error *e)
{
    struct sl_load *l = (struct sl_load *)(void *)load_;

    for (int i = 0; i < load_->t->col_n; i++) {
        const char type = load_->t->col[i].type;

        if (v[i].null)
            sqlite3_bind_null(put_of(l), i + 1);
        else if (type == 'i' || type == 'j')
            q_int(l->put, i + 1, v[i].i);
        else if (type == 'b')
            q_blob(l->put, i + 1, v[i].p, v[i].n);
        else
            q_text_n(l->put, i + 1, v[i].p, v[i].n);
    }
    l->rows++;
    return db_run(load_->db, l->put, e);
}

static void load_drop(struct db_load *load_)
{
    struct sl_load *l = (struct sl_load *)(void *)load_;

    if (l == NULL)
        return;
    q_free(l->put);
    free(l);
}

static enum pawl_rc load_end(struct db_load *load_, int64_t *n, struct pawl_error *e)
{
    (void)e;
    *n = ((struct sl_load *)(void *)load_)->rows;
    load_drop(load_);
    return PAWL_OK;
}

/* --- closed --- */

static void gate_one(struct buf *sql, const char *table, const char *op, const char *say)
{
    char name[64];

    snprintf(name, sizeof name, "pawl_x_closed_%s_%s", table, op);
    if (say == NULL) {
        buf_printf(sql, "DROP TRIGGER IF EXISTS %s;", name);
        return;
    }
    char *raise = sqlite3_mprintf("CREATE TRIGGER IF NOT EXISTS %s BEFORE %s ON pawl_x_%s"
                                  " BEGIN SELECT RAISE(ABORT, %Q); END;", name, op, table, say);
    sql->failed = sql->failed || raise == NULL;
    buf_puts(sql, raise);
    sqlite3_free(raise);
}

/* pawl_x_last is the SQL door's first write, so that a duplicate is refused, too. */
static enum pawl_rc gate(struct db *db, const char *say, struct pawl_error *e)
{
    static const char *const ops[] = { "INSERT", "UPDATE", "DELETE" };
    struct buf sql = {0};
    enum pawl_rc rc;

    for (int i = 0; i <= DB_TABLES_N; i++)
        for (size_t k = 0; k < sizeof ops / sizeof *ops; k++)
            gate_one(&sql, i < DB_TABLES_N ? db_tables[i].name : "last", ops[k], say);
    rc = sql.failed ? pawl_fail(e, PAWL_NOMEM, "out of memory")
                    : sl_exec(sl_from(db), buf_str(&sql), e);
    buf_free(&sql);
    return rc;
}

static enum pawl_rc has_mark(struct db *db, bool *there, struct pawl_error *e)
{
    int64_t n = 0;
    const enum pawl_rc rc = one_number(db, "SELECT count(*) FROM sqlite_master WHERE type = 'table'"
                                       " AND name = 'pawl_x_move'", &n, e);

    *there = n > 0;
    return rc;
}

static enum pawl_rc granted(struct db *db, struct pawl_error *e)
{
    (void)db;
    (void)e;
    return PAWL_OK; /* the file's mode says who reads */
}

static enum pawl_rc settled(struct db *db, struct pawl_error *e)
{
    enum pawl_rc rc = side_lock(&db->side, sl_from(db)->wait_us, e);

    if (rc != PAWL_OK)
        return rc;
    rc = sl_checkpoint(sl_from(db), true, e);
    side_unlock(&db->side);
    return rc;
}

const struct db_mover sl_mover = {
    .by_ids = true, .shown = shown, .same = same, .freeze = freeze, .workers = workers,
    .stream = stream, .blob = blob, .number = number, .number_set = number_set, .clear = clear,
    .load = load, .load_row = load_row, .load_end = load_end, .load_drop = load_drop,
    .gate = gate, .has_mark = has_mark, .granted = granted, .settled = settled,
};
