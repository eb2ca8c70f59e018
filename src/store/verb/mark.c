// SPDX-License-Identifier: Apache-2.0
/* mark.c - the row that says whose the jobs are, once a store has been moved (mover.h). */
#include <string.h>
#include "base/err.h"
#include "base/text.h"
#include "store/verb/mover.h"

static void column(struct query *q, int col, char *out, size_t n)
{
    const char *s = q_str(q, col);

    text_copy(out, n, s != NULL ? s : "");
}

enum pawl_rc db_mark_get(struct db *db, struct db_mark *m, struct pawl_error *e)
{
    struct query *q = NULL;
    bool row = false;
    enum pawl_rc rc;

    memset(m, 0, sizeof *m);
    if ((rc = db->engine->mover->has_mark(db, &row, e)) != PAWL_OK || !row)
        return rc;
    if ((rc = db_prepare(db, "SELECT state, nonce, other, seq, at_us FROM pawl_x_move", &q,
                         e)) != PAWL_OK)
        return rc;
    if ((rc = db_row(db, q, &row, e)) == PAWL_OK && row) {
        column(q, 0, m->state, sizeof m->state);
        column(q, 1, m->nonce, sizeof m->nonce);
        column(q, 2, m->other, sizeof m->other);
        m->seq = q_i64(q, 3);
        m->at_us = q_i64(q, 4);
    }
    q_free(q);
    return rc;
}

static enum pawl_rc put(struct db *db, const struct db_mark *m, struct pawl_error *e)
{
    struct query *q = NULL;
    enum pawl_rc rc = db_prepare(db, "INSERT INTO pawl_x_move (one, state, nonce, other, seq,"
                                 " at_us) VALUES (1, ?1, ?2, ?3, ?4, ?5) ON CONFLICT (one)"
                                 " DO UPDATE SET state = excluded.state, nonce = excluded.nonce,"
                                 " other = excluded.other, seq = excluded.seq,"
                                 " at_us = excluded.at_us", &q, e);

    if (rc != PAWL_OK)
        return rc;
    q_text(q, 1, m->state);
    q_text(q, 2, m->nonce);
    q_text(q, 3, m->other);
    q_int(q, 4, m->seq);
    q_int(q, 5, m->at_us);
    rc = db_run(db, q, e);
    q_free(q);
    return rc;
}

enum pawl_rc db_mark_put(struct db *db, const struct db_mark *m, struct pawl_error *e)
{
    struct query *q = NULL;
    bool there = false;
    enum pawl_rc rc = db->engine->mover->has_mark(db, &there, e);

    if (rc == PAWL_OK && !there &&
        (rc = db_prepare(db, "CREATE TABLE pawl_x_move (one INTEGER PRIMARY KEY CHECK (one = 1),"
                         " state TEXT NOT NULL, nonce TEXT NOT NULL, other TEXT NOT NULL,"
                         " seq BIGINT NOT NULL, at_us BIGINT NOT NULL)", &q, e)) == PAWL_OK)
        rc = db_run(db, q, e);
    q_free(q);
    if (rc == PAWL_OK && !there)
        rc = db->engine->mover->granted(db, e);
    return rc == PAWL_OK ? put(db, m, e) : rc;
}

void db_mark_say(const struct db_mark *m, struct buf *out)
{
    if (db_mark_is(m, "moved"))
        buf_printf(out, DB_MARK_SAYS "has moved to %s: use that one", m->other);
    else if (db_mark_is(m, "left"))
        buf_printf(out, DB_MARK_SAYS "was given up again: its jobs are in %s", m->other);
    else
        buf_printf(out, DB_MARK_SAYS "is being filled from %s and is not open yet; if that pawl"
                   " copy has ended, run it again", m->other);
}

enum pawl_rc db_mark_check(struct db *db, const char *where, struct pawl_error *e)
{
    struct buf say = {0};
    struct db_mark m;
    enum pawl_rc rc = db_mark_get(db, &m, e);

    if (rc != PAWL_OK || m.state[0] == '\0' || db_mark_is(&m, "here"))
        return rc;
    db_mark_say(&m, &say);
    rc = pawl_fail(e, PAWL_MOVED, "%s: %s", where, buf_str(&say) + strlen("pawl: "));
    buf_free(&say);
    return rc;
}
