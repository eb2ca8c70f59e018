// SPDX-License-Identifier: Apache-2.0
/* pg_tx.c - one writing transaction: BEGIN, COMMIT and what its answer means, ROLLBACK.
 *
 * Keeps: a COMMIT that returned OK was answered with COMMIT: a server that answers a COMMIT of a
 *        failed transaction with ROLLBACK says no error. Without an answer it is UNSURE.
 */
#include <assert.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include "base/err.h"
#include "base/log.h"
#include "store/pg/pg.h"

#define BEGIN_SQL "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE"

static _Atomic int64_t commits_n;

int64_t pg_commits(void)
{
    return atomic_load(&commits_n);
}

static enum pawl_rc try_begin(struct pg *pg, struct pawl_error *e)
{
    enum pawl_rc rc;

    if (pg->c == NULL && (rc = pg_connect(pg, false, e)) != PAWL_OK)
        return rc;
    rc = pg_open_tx(pg, BEGIN_SQL, e);
    if (rc == PAWL_OK || strcmp(pg->state, "0A000") != 0)
        return rc;
    pg_disconnect(pg); /* the URL says that any server will do, or a proxy has changed it */
    return pawl_fail(e, PAWL_IO, "the server is a standby, which takes no writes: name the primary,"
                     " or several hosts with target_session_attrs=read-write");
}

enum pawl_rc pg_begin(struct db *db, struct pawl_error *e)
{
    struct pg *pg = pg_from(db);
    const bool was_open = pg->c != NULL;
    enum pawl_rc rc = try_begin(pg, e);

    assert(!db->in_tx);
    /* The server was started again, or a proxy closed what was idle: nothing was begun yet. */
    if (rc == PAWL_IO && was_open && pg->c == NULL)
        rc = try_begin(pg, e);
    if (rc != PAWL_OK)
        return rc;
    db->in_tx = true;
    db->begun_us = db->env->mono_us(db->env->ctx);
    return PAWL_OK;
}

/* No answer, or one that says that the server goes away: did it commit? */
static enum pawl_rc in_doubt(struct pg *pg, int pid, struct pawl_error *e)
{
    struct pawl_error ignored;

    pg_doubt(pg, pid);
    pg_disconnect(pg);
    pg->unconfirmed = true;
    if (pg_connect(pg, false, &ignored) != PAWL_OK)
        log_line(LOG_WARN, "store.reopen", "s:why", ignored.msg, NULL);
    pawl_wrap(e, "whether it was committed is not known");
    if (e != NULL)
        e->rc = PAWL_UNSURE;
    return PAWL_UNSURE;
}

enum pawl_rc pg_commit(struct db *db, struct pawl_error *e)
{
    struct pg *pg = pg_from(db);
    PGresult *r = NULL;

    assert(db->in_tx);
    const enum pawl_rc before = pg_pipe_end(pg, e);
    if (before != PAWL_OK && pg->c != NULL) {
        pg_rollback(db);
        return before;
    }
    if (pg->c == NULL) { /* it broke before the COMMIT was sent: the server rolled back */
        db->in_tx = false;
        return pg_fail(pg, NULL, e, "commit");
    }
    const int pid = PQbackendPID(pg->c);
    const int sent = PQsendQuery(pg->c, "COMMIT");
    db->in_tx = false;
    if (sent == 1)
        r = pg_wait(pg, pg_until(pg));
    if (PQresultStatus(r) == PGRES_COMMAND_OK && strcmp(PQcmdStatus(r), "COMMIT") == 0) {
        PQclear(r);
        atomic_fetch_add(&commits_n, 1);
        return pg_confirm(pg, e) == PAWL_OK ? PAWL_OK : in_doubt(pg, pid, e);
    }
    if (PQresultStatus(r) == PGRES_COMMAND_OK) {
        PQclear(r);
        return pawl_fail(e, PAWL_STORE, "commit: a statement of the transaction had failed: it was"
                         " rolled back");
    }
    const bool answered = r != NULL;
    const enum pawl_rc rc = pg_fail(pg, r, e, "commit");
    if (!answered || pg->c == NULL || rc == PAWL_IO)
        return in_doubt(pg, pid, e);
    if (strncmp(pg->state, "23", 2) == 0 && e != NULL) /* a deferred constraint */
        e->rc = PAWL_SQL;
    return strncmp(pg->state, "23", 2) == 0 ? PAWL_SQL : rc;
}

void pg_rollback(struct db *db)
{
    struct pg *pg = pg_from(db);
    struct pawl_error ignored;

    for (int i = 0; i < PQ_END && db->in_tx; i++)
        pg_query_clear(&pg->named[i]);
    (void)(pg_pipe_end(pg, &ignored) == PAWL_OK); /* a failure is what it is rolled back for */
    if (db->in_tx && pg->c != NULL && PQtransactionStatus(pg->c) != PQTRANS_IDLE &&
        pg_exec(pg, "ROLLBACK", &ignored) != PAWL_OK)
        pg_disconnect(pg); /* the server rolls back what has lost its connection */
    db->in_tx = false;
    db->effect_open = db->savepoint = false;
}
