// SPDX-License-Identifier: Apache-2.0
/* pg_engine.c - PostgreSQL as the verbs see a database (verb/db.h). */
#include <string.h>
#include "base/err.h"
#include "store/pg/pg.h"

static enum pawl_rc ready(struct db *db, struct pawl_error *e)
{
    struct pg *pg = pg_from(db);

    if (pg->c != NULL && PQstatus(pg->c) != CONNECTION_OK && !db->in_tx)
        pg_disconnect(pg);
    return pg->c == NULL ? pg_connect(pg, false, e) : PAWL_OK;
}

static void leave(struct db *db)
{
    (void)db; /* no lock is held between transactions */
}

static bool alive(struct db *db)
{
    const struct pg *pg = pg_from(db);

    if (pg->c == NULL)
        return false;
    const PGTransactionStatusType s = PQtransactionStatus(pg->c);
    return s == PQTRANS_INTRANS || s == PQTRANS_INERROR || pg->pipe.on || pg->begin_due;
}

static enum pawl_rc snapshot(struct db *db, struct pawl_error *e)
{
    return pg_open_tx(pg_from(db), "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY", e);
}

static void snapshot_end(struct db *db)
{
    struct pg *pg = pg_from(db);
    struct pawl_error ignored;

    if (pg->c != NULL && pg_exec(pg, "ROLLBACK", &ignored) != PAWL_OK)
        pg_disconnect(pg);
}

static int64_t changes(struct db *db)
{
    return pg_from(db)->changed_n;
}

static int64_t insert_id(struct db *db)
{
    return pg_from(db)->inserted_id;
}

static int64_t wrote(struct db *db)
{
    return pg_from(db)->wrote_n;
}

/* 3B001: invalid savepoint specification; 25P01: no transaction at all. */
static bool no_savepoint(struct db *db)
{
    const char *s = pg_from(db)->state;

    return strcmp(s, "3B001") == 0 || strcmp(s, "25P01") == 0;
}

static bool guard(struct db *db, bool on)
{
    (void)db;
    return on; /* users' statements are looked at before they are prepared (pg_stmt.c) */
}

/* The server checks its own files (amcheck, checksums): nothing of ours to do. */
static enum pawl_rc check(struct db *db, pawl_finding_fn *fn, void *ctx, int *checked,
                          struct pawl_error *e)
{
    (void)db;
    (void)fn;
    (void)ctx;
    (void)checked;
    (void)e;
    return PAWL_OK;
}

static bool spoiled(struct db *db)
{
    return pg_spoiled(pg_from(db));
}

const struct db_engine pg_engine = {
    .locks = true, .place = pg_place, .ready = ready, .begin = pg_begin, .commit = pg_commit,
    .rollback = pg_rollback, .leave = leave, .wake = pg_wake, .alive = alive, .snapshot = snapshot,
    .snapshot_end = snapshot_end, .query = pg_q, .prepare = pg_prepare, .run = pg_run,
    .run_later = pg_run_later, .row = pg_row, .ahead = pg_ahead, .changes = changes,
    .insert_id = insert_id, .wrote = wrote, .no_savepoint = no_savepoint, .spoiled = spoiled,
    .check_due = pg_check_due,
    .guard = guard, .done_many = pg_done_many, .lease_many = pg_lease_many, .check = check,
    .doctor = pg_doctor,
    .life = pg_life, .still_gone = pg_still_gone, .mark = pg_mark, .marked = pg_marked,
    .mover = &pg_mover, .fence_unsaid = pg_fence_unsaid, .said = pg_said,
};
