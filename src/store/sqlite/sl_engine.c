// SPDX-License-Identifier: Apache-2.0
/* sl_engine.c - SQLite as the verbs see a database (verb/db.h). */
#include <stdlib.h>
#include "base/err.h"
#include "store/sqlite/sl.h"

static sqlite3_stmt *stmt(struct query *q)
{
    return ((struct sl_query *)(void *)q)->st;
}

static void bind_int(struct query *q, int i, int64_t v)
{
    sqlite3_bind_int64(stmt(q), i, v);
}

static void bind_text(struct query *q, int i, const char *s, size_t n)
{
    sl_text_n(stmt(q), i, s, n);
}

static void bind_blob(struct query *q, int i, const void *p, size_t n)
{
    sqlite3_bind_blob64(stmt(q), i, p, n, SQLITE_STATIC);
}

static void copy(struct query *q, int i, struct query *from, int col)
{
    sqlite3_bind_value(stmt(q), i, sqlite3_column_value(stmt(from), col));
}

static bool is_null(struct query *q, int col)
{
    return sqlite3_column_type(stmt(q), col) == SQLITE_NULL;
}

static int64_t i64(struct query *q, int col)
{
    return sqlite3_column_int64(stmt(q), col);
}

static const char *str(struct query *q, int col)
{
    return (const char *)sqlite3_column_text(stmt(q), col);
}

static const void *blob(struct query *q, int col)
{
    return sqlite3_column_blob(stmt(q), col);
}

static int bytes(struct query *q, int col)
{
    return sqlite3_column_bytes(stmt(q), col);
}

static void reset(struct query *q)
{
    sqlite3_reset(stmt(q));
}

static void discard(struct query *q)
{
    sqlite3_finalize(stmt(q));
    free(q);
}

static const struct query_ops query_ops = {
    .bind_int = bind_int, .bind_text = bind_text, .bind_blob = bind_blob, .copy = copy,
    .is_null = is_null, .i64 = i64, .str = str, .blob = blob, .bytes = bytes, .reset = reset,
    .free = discard,
};

/* --- the engine --- */

static enum pawl_rc ready(struct db *db, struct pawl_error *e)
{
    return sl_from(db)->db == NULL ? sl_connect(sl_from(db), false, e) : PAWL_OK;
}

static enum pawl_rc begin(struct db *db, struct pawl_error *e)
{
    return sl_begin(sl_from(db), e);
}

static enum pawl_rc commit(struct db *db, struct pawl_error *e)
{
    return sl_commit(sl_from(db), e);
}

static void rollback(struct db *db)
{
    sl_rollback(sl_from(db));
}

static void leave(struct db *db)
{
    sl_leave(sl_from(db));
}

static void wake(struct db *db)
{
    side_wake(&db->side);
}

static bool alive(struct db *db)
{
    return sl_from(db)->db != NULL && sqlite3_get_autocommit(sl_from(db)->db) == 0;
}

static enum pawl_rc snapshot(struct db *db, struct pawl_error *e)
{
    return sl_exec(sl_from(db), "BEGIN", e);
}

static void snapshot_end(struct db *db)
{
    sqlite3_exec(sl_from(db)->db, "ROLLBACK", NULL, NULL, NULL);
}

static enum pawl_rc query(struct db *db, enum q_id id, struct query **out, struct pawl_error *e)
{
    struct sqlite *sl = sl_from(db);
    struct sl_query *q = &sl->named[id];
    const enum pawl_rc rc = sl_q(sl, id, &q->st, e);

    q->head.ops = &query_ops;
    q->sl = sl;
    *out = &q->head;
    return rc;
}

static enum pawl_rc prepare(struct db *db, const char *sql, struct query **out,
                            struct pawl_error *e)
{
    struct sqlite *sl = sl_from(db);
    struct sl_query *q = calloc(1, sizeof *q);

    *out = NULL;
    if (q == NULL)
        return pawl_fail(e, PAWL_NOMEM, "out of memory");
    q->head.ops = &query_ops;
    q->sl = sl;
    if (sqlite3_prepare_v2(sl->db, sql, -1, &q->st, NULL) != SQLITE_OK) {
        free(q);
        return sl_fail(sl, e, "store: prepare");
    }
    *out = &q->head;
    return PAWL_OK;
}

static enum pawl_rc run(struct db *db, struct query *q, struct pawl_error *e)
{
    return sl_run(sl_from(db), stmt(q), e);
}

static enum pawl_rc row(struct db *db, struct query *q, bool *there, struct pawl_error *e)
{
    return sl_row(sl_from(db), stmt(q), there, e);
}

static int64_t changes(struct db *db)
{
    return sqlite3_changes64(sl_from(db)->db);
}

static int64_t insert_id(struct db *db)
{
    return sqlite3_last_insert_rowid(sl_from(db)->db);
}

static int64_t wrote(struct db *db)
{
    return sqlite3_total_changes64(sl_from(db)->db);
}

static bool no_savepoint(struct db *db)
{
    return (sqlite3_errcode(sl_from(db)->db) & 0xff) == SQLITE_ERROR;
}

static bool spoiled(struct db *db)
{
    (void)db; /* what failed is undone by SQLite itself, and the transaction goes on */
    return false;
}

/* No evidence of a death, perhaps the directory was removed: it gets a lease of time. */
static enum side_life life(struct db *db, const char *id)
{
    const int64_t boot_us = db->env->boot_us(db->env->ctx);

    return side_missing_long(&db->side, id, boot_us, db->lease_us) ? SIDE_MISSING : SIDE_ALIVE;
}

static enum pawl_rc still_gone(struct db *db, const char *id, bool proven, bool *gone,
                               struct pawl_error *e)
{
    (void)db;
    (void)id;
    (void)proven;
    (void)e;
    *gone = true; /* its file says all */
    return PAWL_OK;
}

static bool guard(struct db *db, bool on)
{
    const bool was = sl_from(db)->guarded;

    sl_from(db)->guarded = on;
    return was;
}

const struct db_engine sl_engine = {
    .ready = ready, .begin = begin, .commit = commit, .rollback = rollback, .leave = leave,
    .wake = wake,
    .alive = alive, .snapshot = snapshot, .snapshot_end = snapshot_end, .query = query,
    .prepare = prepare, .run = run, .row = row, .changes = changes, .insert_id = insert_id,
    .wrote = wrote, .no_savepoint = no_savepoint, .spoiled = spoiled, .guard = guard,
    .check = sl_engine_check, .doctor = sl_doctor, .life = life, .still_gone = still_gone,
    .mover = &sl_mover,
};
