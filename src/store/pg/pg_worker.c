// SPDX-License-Identifier: Apache-2.0
/* pg_worker.c - who takes part, as the server knows it: for the other hosts.
 *
 * On its own host a worker is judged by its side file, as on SQLite: a free lock is a death, and
 * the last words say whose. Other hosts have only its row: a beat older than its lease, by the
 * server's clock, and its jobs are suspects, for nobody knows whether it died, or of which.
 */
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include "base/err.h"
#include "base/log.h"
#include "store/pg/pg.h"

/* The time when it is written, which may be long after it was sent: somebody has a lock. */
#define BEAT "UPDATE pawl_x_worker SET beat_at_us = ?2" \
             " + CAST(extract(epoch FROM clock_timestamp() - now()) * 1000000 AS bigint)"

static int64_t now(const struct pg *pg)
{
    return pg->d.env->wall_us(pg->d.env->ctx);
}

static enum pawl_rc announce(struct pg *pg, const char *id, const char *parent,
                             struct pawl_error *e)
{
    struct query *q = NULL;
    char host[64] = "";
    enum pawl_rc rc;

    if (gethostname(host, sizeof host - 1) != 0)
        snprintf(host, sizeof host, "unknown");
    if ((rc = db_ready(&pg->d, e)) != PAWL_OK ||
        (rc = pg_prepare(&pg->d, "INSERT INTO pawl_x_worker (id, parent, host, pid, lease_us,"
                         " joined_at_us, beat_at_us) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?6)", &q,
                         e)) != PAWL_OK)
        return rc;
    q_text(q, 1, id);
    q_text(q, 2, parent);
    q_text(q, 3, host);
    q_int(q, 4, getpid());
    q_int(q, 5, pg->d.lease_us);
    q_int(q, 6, now(pg));
    rc = pg_run(&pg->d, q, e);
    q_free(q);
    return rc;
}

/* By id, or every runner of a worker. */
static enum pawl_rc by_id(struct pg *pg, const char *sql, const char *id, int64_t at_us,
                          struct pawl_error *e)
{
    struct query *q = NULL;
    enum pawl_rc rc = db_ready(&pg->d, e);

    if (rc != PAWL_OK || (rc = pg_prepare(&pg->d, sql, &q, e)) != PAWL_OK)
        return rc;
    q_text(q, 1, id);
    q_int(q, 2, at_us);
    rc = pg_run(&pg->d, q, e);
    q_free(q);
    return rc;
}

enum pawl_rc pg_worker_join(struct store *st, char *id_out, int *fd_out, struct pawl_error *e)
{
    struct pg *pg = pg_of(st);
    enum pawl_rc rc = db_worker_join(st, id_out, fd_out, e);

    if (rc == PAWL_OK && (rc = announce(pg, pg->d.side.id, NULL, e)) != PAWL_OK)
        side_leave(&pg->d.side);
    return rc;
}

/* Others have taken us for dead, or the store is an older one that was restored: what we held is
 * not ours any more, and the next look at our jobs tells which. From here on we are there again. */
static bool rejoin(struct pg *pg, const char *id, const char *parent)
{
    struct pawl_error e;

    if (announce(pg, id, parent, &e) != PAWL_OK) {
        log_line(LOG_WARN, "worker.beat", "s:worker", id, "s:why", e.msg, NULL);
        return false;
    }
    log_line(LOG_WARN, "worker.rejoined", "s:worker", id, "s:why", "its beats came too late, and"
             " others have taken over its jobs", NULL);
    return true;
}

/* A beat that cannot be written says nothing about us: the server is away, and others are, too. */
bool pg_worker_beat(struct store *st)
{
    struct pg *pg = pg_of(st);
    struct pawl_error e;

    if (!db_worker_beat(st))
        return false;
    if (pg->d.side.w == NULL || pg->d.side.runner || pg->d.in_tx)
        return true;
    if (by_id(pg, BEAT " WHERE id = ?1", pg->d.side.id, now(pg), &e) != PAWL_OK) {
        log_line(LOG_WARN, "worker.beat", "s:worker", pg->d.side.id, "s:why", e.msg, NULL);
        return true;
    }
    if (pg->changed_n == 0)
        (void)rejoin(pg, pg->d.side.id, NULL);
    return true;
}

enum pawl_rc pg_worker_leave(struct store *st, struct pawl_error *e)
{
    struct pg *pg = pg_of(st);
    char id[SIDE_ID_BYTES];
    enum pawl_rc rc;

    snprintf(id, sizeof id, "%s", pg->d.side.id);
    if ((rc = db_worker_leave(st, e)) != PAWL_OK)
        return rc;
    return by_id(pg, "DELETE FROM pawl_x_worker WHERE id = ?1 OR parent = ?1", id, 0, e);
}

enum pawl_rc pg_crew_join(struct store *st, char *id_out, int *fd, struct pawl_error *e)
{
    struct pg *pg = pg_of(st);
    enum pawl_rc rc = db_crew_join(st, id_out, fd, e);

    if (rc == PAWL_OK && (rc = announce(pg, id_out, pg->d.side.id, e)) != PAWL_OK)
        db_crew_leave(st, id_out);
    return rc;
}

void pg_crew_beat(struct store *st)
{
    struct pg *pg = pg_of(st);
    struct side *side = &pg->d.side;
    struct pawl_error e;

    db_crew_beat(st);
    if (by_id(pg, BEAT " WHERE parent = ?1", side->id, now(pg), &e) != PAWL_OK) {
        log_line(LOG_WARN, "worker.beat", "s:worker", side->id, "s:why", e.msg, NULL);
        return;
    }
    const bool all = pg->changed_n == (int64_t)side->crew_n;
    for (size_t i = 0; i < side->crew_n && !all; i++)
        if (by_id(pg, BEAT " WHERE id = ?1", side->crew[i].id, now(pg), &e) == PAWL_OK &&
            pg->changed_n == 0)
            (void)rejoin(pg, side->crew[i].id, side->id);
}

void pg_crew_leave(struct store *st, const char *id)
{
    struct pg *pg = pg_of(st);
    struct pawl_error e;

    db_crew_leave(st, id);
    if (by_id(pg, "DELETE FROM pawl_x_worker WHERE id = ?1", id, 0, &e) != PAWL_OK)
        log_line(LOG_WARN, "worker.leave", "s:worker", id, "s:why", e.msg, NULL);
}

/* --- others --- */

static enum pawl_rc beat_of(struct pg *pg, const char *id, bool *there, bool *old,
                            struct pawl_error *e)
{
    struct query *q = NULL;
    bool row = false;
    enum pawl_rc rc = pg_prepare(&pg->d, "SELECT beat_at_us + lease_us < ?2 FROM pawl_x_worker"
                                 " WHERE id = ?1", &q, e);

    *there = *old = false;
    if (rc != PAWL_OK)
        return rc;
    q_text(q, 1, id);
    q_int(q, 2, now(pg));
    if ((rc = pg_row(&pg->d, q, &row, e)) == PAWL_OK && row) {
        *there = true;
        *old = q_i64(q, 0) != 0;
    }
    q_free(q);
    return rc;
}

enum side_life pg_life(struct db *db, const char *id)
{
    const struct pg *pg = pg_from(db);
    bool there = false, old = false;
    struct pawl_error e;

    if (beat_of(pg_from(db), id, &there, &old, &e) != PAWL_OK)
        return SIDE_ALIVE;
    /* The server was away, from us at least: perhaps from those, too, and they are coming back. It
     * may be another one, with another clock, that knows beats of the old one. */
    if (pg->again_us != 0 && env_real()->mono_us(env_real()->ctx) - pg->again_us < db->lease_us)
        return SIDE_ALIVE;
    if (there)
        return old ? SIDE_UNHEARD : SIDE_ALIVE;
    /* Rows of a worker that nobody has written down: it gets a lease of time. */
    return side_missing_long(&db->side, id, db->env->boot_us(db->env->ctx), db->lease_us)
        ? SIDE_MISSING : SIDE_ALIVE;
}

enum pawl_rc pg_still_gone(struct db *db, const char *id, bool proven, bool *gone,
                           struct pawl_error *e)
{
    struct pg *pg = pg_from(db);
    bool there = false, old = false;
    enum pawl_rc rc;

    const char *const sql = proven
        ? "DELETE FROM pawl_x_worker WHERE id = ?1"
        : "DELETE FROM pawl_x_worker WHERE id = ?1 AND beat_at_us + lease_us < ?2";

    rc = by_id(pg, sql, id, now(pg), e);
    *gone = rc == PAWL_OK && (proven || pg->changed_n == 1);
    if (rc == PAWL_OK && !*gone && (rc = beat_of(pg, id, &there, &old, e)) == PAWL_OK)
        *gone = !there;
    return rc;
}
