// SPDX-License-Identifier: Apache-2.0
/* crew.c - leased jobs that run one at a time: their last words, the runners of a supervisor
 * that lease by themselves, and what becomes of their jobs.
 *
 * Keeps: of what such a worker held only the job in hand is blamed. What was prepared goes back at
 *        the cost of a release (its run did happen), what was not begun at none.
 */
#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include "base/err.h"
#include "store/verb/reap.h"

/* --- last words --- */

void db_blame_list(struct store *st, const struct job *jobs, size_t n)
{
    struct side *s = &db_of(st)->side;

    if (s->w == NULL)
        return;
    s->w->serial = 1;
    side_blame_clear(s);
    if (n == 0)
        return;
    side_blame_batch(s, BLAME_PREPARE, st->env->random(st->env->ctx), n == 1 && jobs[0].suspect);
    for (size_t i = 0; i < n; i++)
        side_blame_job(s, (uint32_t)i, jobs[i].id, jobs[i].n.runs);
}

void db_blame_hand(struct store *st, size_t i)
{
    side_blame_hand(&db_of(st)->side, (uint32_t)i);
}

void db_blame_clear(struct store *st)
{
    side_blame_clear(&db_of(st)->side);
}

/* --- runners --- */

enum pawl_rc db_crew_join(struct store *st, char *id_out, int *fd, struct pawl_error *e)
{
    struct db *db = db_of(st);
    struct side_crew *c = NULL;
    enum pawl_rc rc;

    assert(db->side.w != NULL && !db->side.runner);
    rc = side_crew_join(&db->side, db->lease_us, st->env->random(st->env->ctx),
                        st->env->boot_us(st->env->ctx), &c, e);
    if (rc != PAWL_OK)
        return rc;
    snprintf(id_out, SIDE_ID_BYTES, "%s", c->id);
    *fd = c->fd;
    return PAWL_OK;
}

enum pawl_rc db_crew_attach(struct store *st, const char *id, int fd, struct pawl_error *e)
{
    struct db *db = db_of(st);
    enum pawl_rc rc = side_attach(&db->side, id, fd, e);

    if (rc == PAWL_OK)
        db->side.w->pid = db->base.owner_pid;
    return rc;
}

void db_crew_beat(struct store *st)
{
    side_beat(&db_of(st)->side);
}

void db_crew_leave(struct store *st, const char *id)
{
    side_crew_leave(&db_of(st)->side, id);
}

/* --- recovery --- */

static uint32_t place_in(const struct side_blame *b, const struct job *job)
{
    const uint32_t n = b->n <= LIMIT_BATCH ? b->n : 0;

    for (uint32_t i = 0; i < n; i++)
        if (b->jobs[i].id == job->id && b->jobs[i].runs == job->n.runs)
            return i;
    return UINT32_MAX;
}

/* What a death makes of a job that a serial worker held. hand: what it makes of the one in hand. */
static enum outcome serial_verdict(const struct side_blame *b, const struct job *job,
                                   enum outcome hand, bool *begun)
{
    const uint32_t phase = atomic_load(&b->phase), at = place_in(b, job);

    *begun = false;
    if (phase == BLAME_IDLE || b->kind == BLAME_EFFECT || at == UINT32_MAX)
        return OUT_RELEASED;
    *begun = b->kind == BLAME_APPLY || at <= b->hand;
    if (phase == BLAME_COMMIT && at > b->hand)
        return OUT_RELEASED; /* out of time: it was not in this transaction */
    if (phase == BLAME_COMMIT) /* any of them may be what it died of */
        return b->n == 1 ? hand : hand == OUT_RELEASED ? hand : OUT_SUSPECT;
    return at == b->hand ? hand : OUT_RELEASED;
}

enum pawl_rc reap_serial(struct reaper *r, const struct side_blame *b, enum outcome hand,
                         struct pawl_error *e)
{
    struct job *jobs = NULL;
    int64_t *tasks = NULL;
    bool begun = false;
    size_t n = 0;
    enum pawl_rc rc;

    if ((rc = db_rows_of(r->db, r->worker, true, &r->a, &jobs, &tasks, &n, e)) != PAWL_OK)
        return rc;
    for (size_t i = 0; i < n && rc == PAWL_OK; i++) {
        enum outcome how = serial_verdict(b, &jobs[i], hand, &begun);

        if (how == OUT_SUSPECT)
            how = reap_shared(&jobs[i]); /* bounded */
        rc = begun ? reap_put_back(r, &jobs[i], tasks[i], how, e)
                   : db_unclaim(r->db, &jobs[i], tasks[i], e);
    }
    return rc;
}

bool reap_in_hand(const struct side_worker *w)
{
    const uint32_t phase = atomic_load(&w->blame.phase);

    return phase == BLAME_COMMIT || (phase == BLAME_HAND && w->blame.hand < w->blame.n);
}

enum pawl_rc db_reap_crew(struct store *st, const char *id, int end, enum outcome how,
                          casualty_fn *judge, void *ctx, struct reap_report *out,
                          struct pawl_error *e)
{
    struct db *db = db_of(st);
    struct side_crew *c = side_crew_find(&db->side, id);
    struct reaper r = { .db = db, .judge = judge, .ctx = ctx, .out = out, .signal = -1,
                        .worker = id };
    enum pawl_rc rc;

    memset(out, 0, sizeof *out);
    if (c == NULL)
        return pawl_fail(e, PAWL_BUG, "no runner %s of ours", id);
    reap_runner_why(&r, "runner", end, how);
    if ((rc = db_begin(db, e)) != PAWL_OK)
        return rc;
    if ((rc = reap_serial(&r, &c->w->blame, how, e)) == PAWL_OK)
        rc = db_commit(db, e);
    else
        db_rollback(db);
    db_leave(db);
    arena_free(&r.a);
    if (rc == PAWL_OK) {
        atomic_store(&c->w->blame.phase, BLAME_IDLE);
        db_wake(db);
    }
    return rc;
}

/* --- a supervisor that died with its runners --- */

enum pawl_rc reap_family_find(struct reaper *r, const char *parent, struct reap_family *f,
                              struct pawl_error *e)
{
    const int64_t boot_us = r->db->env->boot_us(r->db->env->ctx);
    struct side *s = &r->db->side;
    char (*ids)[SIDE_ID_BYTES] = NULL;
    size_t n = 0;
    enum pawl_rc rc = side_list(s, &r->a, &ids, &n, e);

    f->n = f->in_hand = 0;
    for (size_t i = 0; i < n && rc == PAWL_OK && f->n < REAP_FAMILY_MAX; i++) {
        struct side_peer *p = &f->peer[f->n];

        /* What cannot be looked at (an odd entry) is no runner that could be recovered. */
        if (side_look(s, ids[i], boot_us, p, e) == PAWL_OK && p->w != NULL &&
            p->life == SIDE_GONE && strcmp(p->w->parent, parent) == 0) {
            f->in_hand += reap_in_hand(p->w);
            f->n++;
        } else {
            side_forget(s, p, false);
        }
    }
    return rc;
}

enum pawl_rc reap_family_rows(struct reaper *r, const struct reap_family *f, size_t started,
                              struct pawl_error *e)
{
    const char *whose = r->worker;
    enum pawl_rc rc = PAWL_OK;

    for (size_t i = 0; i < f->n && rc == PAWL_OK; i++) {
        const struct side_peer *p = &f->peer[i];
        const enum outcome hand = atomic_load(&p->w->orderly) != 0 ? OUT_RELEASED
                                : started == 1 ? OUT_LOST : OUT_SUSPECT;

        r->worker = p->id;
        rc = reap_serial(r, &p->w->blame, hand, e);
    }
    r->worker = whose;
    return rc;
}

void reap_family_forget(struct reaper *r, struct reap_family *f, bool unlink_them)
{
    for (size_t i = 0; i < f->n; i++)
        side_forget(&r->db->side, &f->peer[i], unlink_them);
    f->n = 0;
}

/* A runner's file with a free lock: its supervisor is gone, too, or has just recovered it. Only
 * when the supervisor's own file cannot be recovered with it is it looked at by itself. */
enum pawl_rc reap_orphan(struct reaper *r, struct side_peer *peer, struct pawl_error *e)
{
    struct side_peer parent;
    enum pawl_rc rc = side_look(&r->db->side, peer->w->parent,
                                r->db->env->boot_us(r->db->env->ctx), &parent, e);

    if (rc == PAWL_OK && parent.life != SIDE_MISSING && parent.life != SIDE_OLD_BOOT)
        peer->life = SIDE_ALIVE;
    side_forget(&r->db->side, &parent, false);
    return rc;
}
