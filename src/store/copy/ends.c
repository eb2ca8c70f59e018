// SPDX-License-Identifier: Apache-2.0
/* ends.c - the two ends of a move: who may begin, and the steps that hand the jobs over.
 *
 * Keeps: the source's commit of "moved" is the moment. Before it the source runs the jobs, and the
 *        target is closed; after it the target may be opened, by whoever sees both marks. No order
 *        of kills lets both run, and none loses the way on.
 */
#include <stdio.h>
#include <string.h>
#include "base/err.h"
#include "base/fail.h"
#include "store/copy/copy.h"

enum pawl_rc copy_quiet(struct copy *c, struct db *db, const char *which, struct pawl_error *e)
{
    char who[160] = "";
    size_t n = 0;
    const enum pawl_rc rc = mover_of(db)->workers(db, &n, who, sizeof who, e);

    (void)c;
    if (rc != PAWL_OK || n == 0)
        return rc;
    if (n > 1)
        return pawl_fail(e, PAWL_BUSY, "%s and %zu more run on the %s: stop them first", who, n - 1,
                         which);
    return pawl_fail(e, PAWL_BUSY, "%s runs on the %s: stop it first", who, which);
}

static int64_t now_us(const struct db *db)
{
    return db->env->wall_us(db->env->ctx);
}

/* --- the target takes it in --- */

/* Rows of its own would be mixed with those that come. */
enum pawl_rc copy_empty(struct copy *c, struct pawl_error *e)
{
    enum pawl_rc rc = PAWL_OK;

    for (int i = 0; i < DB_TABLES_N && rc == PAWL_OK; i++) {
        int64_t n = 0;

        rc = copy_count(c->to, &db_tables[i], &n, e);
        if (rc == PAWL_OK && n > 0)
            rc = pawl_fail(e, PAWL_NOCREATE, "the target %s is in use, it holds %s (%lld): give an"
                           " empty store, or a database without one", buf_str(&c->to_name),
                           db_tables[i].what, (long long)n);
    }
    return rc;
}

/* Empty; or what an earlier call left, or was taken back from: closed all the time, so that there
 * is nothing in it but a copy. */
static enum pawl_rc make_room(struct copy *c, struct pawl_error *e)
{
    enum pawl_rc rc = db_mark_get(c->to, &c->there, e);

    if (rc != PAWL_OK)
        return rc;
    if (c->there.state[0] == '\0' || db_mark_is(&c->there, "here"))
        return copy_empty(c, e);
    if (db_mark_is(&c->there, "moved"))
        return pawl_fail(e, PAWL_MOVED, "the target itself has moved to %s", c->there.other);
    if (strcmp(c->there.other, buf_str(&c->from_name)) != 0)
        return pawl_fail(e, PAWL_NOCREATE, "the target is being filled from %s: let that copy end,"
                         " or give another database", c->there.other);
    if ((rc = mover_of(c->to)->gate(c->to, NULL, e)) != PAWL_OK)
        return rc;
    return mover_of(c->to)->clear(c->to, e);
}

static enum pawl_rc mark_arrived(struct copy *c, struct pawl_error *e)
{
    struct db_mark *m = &c->there;
    struct buf say = {0};
    enum pawl_rc rc;

    memset(m, 0, sizeof *m);
    snprintf(m->state, sizeof m->state, "arriving");
    snprintf(m->nonce, sizeof m->nonce, "%016llx%016llx",
             (unsigned long long)c->from->env->random(c->from->env->ctx),
             (unsigned long long)c->from->env->random(c->from->env->ctx));
    snprintf(m->other, sizeof m->other, "%s", buf_str(&c->from_name));
    m->at_us = now_us(c->to);
    if ((rc = mover_of(c->to)->number(c->to, &db_tables[DB_TABLE_JOB], &m->seq, e)) != PAWL_OK ||
        (rc = db_mark_put(c->to, m, e)) != PAWL_OK)
        return rc;
    db_mark_say(m, &say);
    rc = mover_of(c->to)->gate(c->to, buf_str(&say), e);
    buf_free(&say);
    return rc;
}

/* The commit's answer is not known: what the store says now is. */
static enum pawl_rc or_look(struct db *db, const struct db_mark *want, enum pawl_rc rc,
                            struct pawl_error *e)
{
    struct db_mark m;

    if (rc != PAWL_UNSURE || db_ready(db, e) != PAWL_OK)
        return rc;
    if ((rc = db_mark_get(db, &m, e)) != PAWL_OK)
        return rc;
    if (strcmp(m.nonce, want->nonce) == 0 && strcmp(m.state, want->state) == 0)
        return PAWL_OK;
    return pawl_fail(e, PAWL_IO, "a commit failed: the store is as it was; run it again");
}

enum pawl_rc copy_arrived(struct copy *c, struct pawl_error *e)
{
    enum pawl_rc rc;

    if ((rc = db_begin(c->to, e)) != PAWL_OK)
        return rc;
    if ((rc = mover_of(c->to)->freeze(c->to, e)) == PAWL_OK &&
        (rc = copy_quiet(c, c->to, "target", e)) == PAWL_OK &&
        (rc = make_room(c, e)) == PAWL_OK) {
        store_patience(c->to_st, COPY_LONG_US);
        if ((rc = copy_rows(c, false, e)) == PAWL_OK)
            rc = mark_arrived(c, e);
    }
    if (rc == PAWL_OK && fail_point("copy.arrived.before"))
        rc = pawl_fail(e, PAWL_IO, "failpoint copy.arrived.before");
    if (rc == PAWL_OK)
        rc = db_commit(c->to, e);
    else
        db_rollback(c->to);
    db_leave(c->to);
    rc = or_look(c->to, &c->there, rc, e);
    if (rc == PAWL_OK && fail_point("copy.arrived.after"))
        rc = pawl_fail(e, PAWL_IO, "failpoint copy.arrived.after");
    return rc;
}

/* --- the source gives it away: in the transaction that has been open since it was read --- */

enum pawl_rc copy_moved(struct copy *c, struct pawl_error *e)
{
    struct db_mark m = c->there;
    struct buf say = {0};
    enum pawl_rc rc;

    snprintf(m.state, sizeof m.state, "moved");
    snprintf(m.other, sizeof m.other, "%s", buf_str(&c->to_name));
    db_mark_say(&m, &say);
    if ((rc = copy_quiet(c, c->from, "source", e)) == PAWL_OK &&
        (rc = db_mark_put(c->from, &m, e)) == PAWL_OK)
        rc = mover_of(c->from)->gate(c->from, buf_str(&say), e);
    buf_free(&say);
    if (rc == PAWL_OK && fail_point("copy.moved.before"))
        rc = pawl_fail(e, PAWL_IO, "failpoint copy.moved.before");
    if (rc == PAWL_OK)
        rc = or_look(c->from, &m, db_commit(c->from, e), e);
    else
        db_rollback(c->from);
    db_leave(c->from);
    if (rc == PAWL_OK && fail_point("copy.moved.after"))
        rc = pawl_fail(e, PAWL_IO, "failpoint copy.moved.after");
    return rc;
}

/* --- the target is opened --- */

static enum pawl_rc remark(struct db *db, const char *state, const char *say, struct db_mark *m,
                           struct pawl_error *e)
{
    const enum pawl_rc rc = mover_of(db)->gate(db, say, e);

    snprintf(m->state, sizeof m->state, "%s", state);
    m->at_us = now_us(db);
    return rc == PAWL_OK ? db_mark_put(db, m, e) : rc;
}

enum pawl_rc copy_opened(struct copy *c, struct pawl_error *e)
{
    struct db_mark m;
    enum pawl_rc rc;

    if ((rc = db_begin(c->to, e)) != PAWL_OK)
        return rc;
    rc = db_mark_get(c->to, &m, e);
    const bool waits = db_mark_is(&m, "arriving"); /* or somebody else has just opened it */
    if (rc == PAWL_OK && !waits && !db_mark_is(&m, "here"))
        rc = pawl_fail(e, PAWL_MOVED, "%s is neither filled nor open", buf_str(&c->to_name));
    if (rc == PAWL_OK && waits)
        rc = remark(c->to, "here", NULL, &m, e);
    if (rc == PAWL_OK && fail_point("copy.open.before"))
        rc = pawl_fail(e, PAWL_IO, "failpoint copy.open.before");
    if (rc == PAWL_OK)
        rc = db_commit(c->to, e);
    else
        db_rollback(c->to);
    db_leave(c->to);
    rc = or_look(c->to, &m, rc, e);
    if (rc == PAWL_OK) {
        c->there = m;
        db_wake(c->to);
    }
    if (rc == PAWL_OK && fail_point("copy.open.after"))
        rc = pawl_fail(e, PAWL_IO, "failpoint copy.open.after");
    return rc;
}

/* --- and back, while nothing has happened at the target --- */

#define READY_SUM "SELECT coalesce(sum(runs + failures + lost + releases + snoozes + moved"   \
                  " + suspect), 0) FROM pawl_x_ready"

static enum pawl_rc must_be_unused(struct copy *c, struct pawl_error *e)
{
    int64_t a = 0, b = 0;
    enum pawl_rc rc = mover_of(c->to)->number(c->to, &db_tables[DB_TABLE_JOB], &b, e);

    bool used = rc == PAWL_OK && b != c->there.seq;
    for (int i = 0; i < DB_TABLES_N && rc == PAWL_OK && !used; i++)
        if ((rc = copy_count(c->from, &db_tables[i], &a, e)) == PAWL_OK &&
            (rc = copy_count(c->to, &db_tables[i], &b, e)) == PAWL_OK)
            used = a != b;
    if (rc == PAWL_OK && !used && (rc = copy_number(c->from, READY_SUM, &a, e)) == PAWL_OK &&
        (rc = copy_number(c->to, READY_SUM, &b, e)) == PAWL_OK)
        used = a != b;
    if (rc == PAWL_OK && used)
        rc = pawl_fail(e, PAWL_TOOLATE, "too late to go back: %s has taken or run jobs since",
                       buf_str(&c->to_name));
    return rc;
}

static enum pawl_rc close_target(struct copy *c, struct pawl_error *e)
{
    struct db_mark m = c->there;
    struct buf say = {0};
    enum pawl_rc rc;

    if (db_mark_is(&c->there, "left"))
        return PAWL_OK;
    if ((rc = db_begin(c->to, e)) != PAWL_OK)
        return rc;
    if ((rc = mover_of(c->to)->freeze(c->to, e)) == PAWL_OK &&
        (rc = copy_quiet(c, c->to, "target", e)) == PAWL_OK &&
        (rc = must_be_unused(c, e)) == PAWL_OK) {
        snprintf(m.state, sizeof m.state, "left");
        db_mark_say(&m, &say);
        rc = remark(c->to, "left", buf_str(&say), &m, e);
    }
    buf_free(&say);
    if (rc == PAWL_OK)
        rc = db_commit(c->to, e);
    else
        db_rollback(c->to);
    db_leave(c->to);
    return or_look(c->to, &m, rc, e);
}

enum pawl_rc copy_back(struct copy *c, struct pawl_error *e)
{
    struct db_mark m = c->here;
    enum pawl_rc rc;

    if ((rc = close_target(c, e)) != PAWL_OK)
        return rc;
    if (fail_point("copy.left.after"))
        return pawl_fail(e, PAWL_IO, "failpoint copy.left.after");
    if ((rc = db_begin(c->from, e)) != PAWL_OK)
        return rc;
    rc = remark(c->from, "here", NULL, &m, e);
    if (rc == PAWL_OK)
        rc = db_commit(c->from, e);
    else
        db_rollback(c->from);
    db_leave(c->from);
    rc = or_look(c->from, &m, rc, e);
    if (rc == PAWL_OK)
        db_wake(c->from);
    return rc;
}
