// SPDX-License-Identifier: Apache-2.0
/* pg_tx.c - one writing transaction: BEGIN, COMMIT and what its answer means, ROLLBACK.
 *
 * Keeps: a COMMIT that returned OK was answered with COMMIT: a server that answers a COMMIT of a
 *        failed transaction with ROLLBACK says no error. Without an answer it is UNSURE.
 */
#include <assert.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include "base/err.h"
#include "base/log.h"
#include "store/pg/pg.h"

#define BEGIN_SQL "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE"

static _Atomic int64_t commits_n;

int64_t pg_commits(void)
{
    return atomic_load(&commits_n);
}

/* The server was started again, or a proxy closed what was idle: that is to be read here, and
 * nothing was begun yet. */
static bool is_there(struct pg *pg)
{
    struct pollfd p = { .fd = PQsocket(pg->c), .events = POLLIN };

    while (PQstatus(pg->c) == CONNECTION_OK && poll(&p, 1, 0) > 0)
        if (PQconsumeInput(pg->c) != 1)
            return false;
    return PQstatus(pg->c) == CONNECTION_OK;
}

enum pawl_rc pg_is_standby(struct pg *pg, struct pawl_error *e)
{
    pg_disconnect(pg); /* the URL says that any server will do, or a proxy has changed it */
    return pawl_fail(e, PAWL_IO, "the server is a standby, which takes no writes: name the primary,"
                     " or several hosts with target_session_attrs=read-write");
}

static enum pawl_rc try_begin(struct pg *pg, struct pawl_error *e)
{
    enum pawl_rc rc;

    if (pg->c == NULL && (rc = pg_connect(pg, false, e)) != PAWL_OK)
        return rc;
    if (!pg->pooled && !pg->by_keys) {
        rc = pg_patience(pg, e); /* not with the BEGIN: a rollback would undo it */
        pg->begin_due = rc == PAWL_OK;
        return rc;
    }
    rc = pg_open_tx(pg, BEGIN_SQL, e);
    return rc == PAWL_OK || strcmp(pg->state, "0A000") != 0 ? rc : pg_is_standby(pg, e);
}

enum pawl_rc pg_begin(struct db *db, struct pawl_error *e)
{
    struct pg *pg = pg_from(db);
    const bool was_open = pg->c != NULL;
    enum pawl_rc rc;

    assert(!db->in_tx && !pg->pipe.on);
    if (was_open && !is_there(pg))
        pg_disconnect(pg);
    rc = try_begin(pg, e);
    if (rc == PAWL_IO && was_open && pg->c == NULL)
        rc = try_begin(pg, e);
    if (rc != PAWL_OK)
        return rc;
    pg_ahead_clear(pg, false);
    pg->tuned = false;
    db->in_tx = true;
    db->begun_us = db->env->mono_us(db->env->ctx);
    return PAWL_OK;
}

static enum pawl_rc command(struct pg *pg, int kind, const char *sql, struct pawl_error *e)
{
    return pg_pipe_sent(pg, kind, PQsendQueryParams(pg->c, sql, 0, NULL, NULL, NULL, NULL, 0),
                        strlen(sql), e);
}

enum pawl_rc pg_tx_start(struct pg *pg, struct pawl_error *e)
{
    if (!pg->begin_due)
        return PAWL_OK;
    pg->begin_due = false;
    return command(pg, PIPE_BEGIN, BEGIN_SQL, e);
}

/* The statements of a claim are planned in ten times the time that they take. One plan does for all
 * their values; but a user's statement is to be planned as ever. */
enum pawl_rc pg_tune(struct pg *pg, bool ours, struct pawl_error *e)
{
    char sql[80];
    enum pawl_rc rc;

    if (pg->tuned == ours || pg->pooled) /* pooled: nothing is planned for later */
        return PAWL_OK;
    if ((rc = pg_pipe_open(pg, e)) != PAWL_OK)
        return rc;
    pg->tuned = ours;
    snprintf(sql, sizeof sql, "SET LOCAL plan_cache_mode = %s",
             ours ? "force_generic_plan" : pg->plan_mode);
    return command(pg, PIPE_OWN, sql, e);
}

enum pawl_rc pg_check_due(struct db *db, struct pawl_error *e)
{
    const enum pawl_rc rc = pg_pipe_open(pg_from(db), e);

    return rc == PAWL_OK ? command(pg_from(db), PIPE_USER, "SET CONSTRAINTS ALL IMMEDIATE", e) : rc;
}

#define DOUBT_CONNECT_US 1000000 /* tried again for so long */

/* No answer, or one that says that the server goes away: did it commit? */
static enum pawl_rc in_doubt(struct pg *pg, struct pawl_error *e)
{
    const struct env *env = pg->d.env;
    const int64_t until = env->mono_us(env->ctx) + DOUBT_CONNECT_US;
    const struct timespec nap = { .tv_nsec = 100000000 };
    struct pawl_error ignored;
    enum pawl_rc rc;

    pg_doubt(pg);
    pg_disconnect(pg);
    pg->unconfirmed = true;
    /* libpq does not go on to the next host when one that is dying has let it in first. */
    while ((rc = pg_connect(pg, false, &ignored)) != PAWL_OK && env->mono_us(env->ctx) < until)
        nanosleep(&nap, NULL);
    if (rc != PAWL_OK)
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
    if (pg->c == NULL) { /* it broke before the COMMIT was sent: the server rolled back */
        db->in_tx = pg->begin_due = false;
        return pg_fail(pg, NULL, e, "commit");
    }
    if (pg->begin_due) { /* nothing was asked for in it */
        db->in_tx = pg->begin_due = false;
        return PAWL_OK;
    }
    enum pawl_rc rc = pg_pipe_open(pg, e);
    if (rc != PAWL_OK || (rc = command(pg, PIPE_COMMIT, "COMMIT", e)) != PAWL_OK) {
        pg_rollback(db); /* not sent, or never to be answered on a connection that is closed */
        return rc;
    }
    rc = pg_pipe_end(pg, &r, e);
    if (rc == PAWL_OK && strcmp(PQcmdStatus(r), "COMMIT") == 0) {
        db->in_tx = false;
        PQclear(r);
        atomic_fetch_add(&commits_n, 1);
        return pg_confirm(pg, e) == PAWL_OK ? PAWL_OK : in_doubt(pg, e);
    }
    PQclear(r);
    if (rc == PAWL_OK) {
        db->in_tx = false;
        return pawl_fail(e, PAWL_STORE, "commit: a statement of the transaction had failed: it was"
                         " rolled back");
    }
    if (pg->c == NULL) {
        db->in_tx = false;
        return in_doubt(pg, e);
    }
    if (pg->pipe.failed_kind != PIPE_COMMIT) { /* one before it: the COMMIT was passed over */
        pg_rollback(db);
        return rc;
    }
    db->in_tx = false;
    if (rc == PAWL_IO)
        return in_doubt(pg, e);
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
    /* a failure is what it is rolled back for */
    (void)(pg_pipe_end(pg, NULL, &ignored) == PAWL_OK);
    const bool open = db->in_tx && !pg->begin_due && pg->c != NULL &&
                      PQtransactionStatus(pg->c) != PQTRANS_IDLE;
    if (open && pg_exec(pg, "ROLLBACK", &ignored) != PAWL_OK)
        pg_disconnect(pg); /* the server rolls back what has lost its connection */
    db->in_tx = pg->begin_due = false;
    db->effect_open = db->savepoint = false;
}
