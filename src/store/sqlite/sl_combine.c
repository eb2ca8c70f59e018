// SPDX-License-Identifier: Apache-2.0
/* sl_combine.c - group commit across processes: who holds the side lock stores the requests that
 * others posted in slots (mail.h) with its own, and one flush makes all of them durable.
 *
 * Keeps: a request is answered only after the COMMIT that holds it. The id it is to get is in its
 *        slot before that COMMIT; should the holder die, the next one reads whether that job is
 *        there, before it writes anything, so that the id cannot be another's.
 *        Whatever is not plain success is done by its owner, the ordinary way, with its own error.
 * Never: makes names (tasks, queues) for others, nor answers with a result.
 */
#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include "base/err.h"
#include "base/fail.h"
#include "store/sqlite/sl_combine.h"

static int64_t mono_us(void)
{
    return env_real()->mono_us(env_real()->ctx);
}

/* The slots are of this boot and of this file. Without a boot id nobody can tell. */
static bool usable(struct sqlite *sl, bool reset)
{
    struct side *s = &sl->d.side;

    if (s->mail == NULL)
        return false;
    if (s->boot[0] == '\0')
        clock_boot_id(s->boot);
    if (strcmp(s->boot, "unknown") == 0)
        return false;
    if (mail_fits_file(s->mail, s->boot, sl->file_dev, sl->file_ino))
        return true;
    const int64_t uptime_us = env_real()->boot_us(env_real()->ctx);

    if (!reset || !mail_may_reset(s->mail, s->who, uptime_us))
        return false;
    assert(s->held);
    mail_reset(s->mail, s->boot, sl->file_dev, sl->file_ino, uptime_us);
    return true;
}

/* --- who holds the side lock --- */

static bool same_text(sqlite3_stmt *q, int col, const char *s, size_t n)
{
    const char *p = (const char *)sqlite3_column_text(q, col);

    if (p == NULL || s == NULL)
        return p == NULL && s == NULL;
    return (size_t)sqlite3_column_bytes(q, col) == n && memcmp(p, s, n) == 0;
}

/* Is job `id` the one of slot i? Ids of a transaction that was not committed are given again. */
static enum pawl_rc is_stored(struct sqlite *sl, int i, int64_t id, bool *yes,
                              struct pawl_error *e)
{
    char room[MAIL_SLOT_BYTES];
    struct pawl_request r;
    sqlite3_stmt *q = NULL;
    int64_t now_us = 0;
    bool row = false;
    enum pawl_rc rc;

    *yes = false;
    if (!mail_open(sl->d.side.mail, i, room, &r, &now_us))
        return PAWL_OK;
    if ((rc = sl_q(sl, Q_JOB_READ, &q, e)) != PAWL_OK)
        return rc;
    sqlite3_bind_int64(q, 1, id);
    if ((rc = sl_row(sl, q, &row, e)) != PAWL_OK || !row)
        return rc;
    *yes = sqlite3_column_int64(q, 11) == now_us &&
           same_text(q, 4, r.args, r.args_bytes) &&
           same_text(q, 3, r.key, r.key != NULL ? strlen(r.key) : 0) &&
           same_text(q, 2, r.source != NULL ? r.source : "",
                     r.source != NULL ? strlen(r.source) : 0) &&
           same_text(q, 7, r.entity, r.entity != NULL ? strlen(r.entity) : 0);
    sqlite3_reset(q);
    return PAWL_OK;
}

enum pawl_rc sl_combine_recover(struct sqlite *sl, struct pawl_error *e)
{
    struct mail *m = sl->d.side.mail;
    uint64_t bits = UINT64_MAX;
    uint32_t use = 0;
    int i;

    if (m == NULL || (atomic_load(&m->h.taken) == 0 && m->h.magic != 0) || !usable(sl, true))
        return PAWL_OK;
    while ((i = mail_orphan(m, &bits, &use)) >= 0) {
        const int64_t id = mail_answered(m, i);
        bool yes = false;
        enum pawl_rc rc = id > 0 ? is_stored(sl, i, id, &yes, e) : PAWL_OK;

        if (rc != PAWL_OK)
            return pawl_wrap(e, "requests of a process that ended");
        mail_end(m, i, use, yes ? MAIL_DONE : MAIL_POSTED);
        mail_wake(m, i);
    }
    return PAWL_OK;
}

/* One posted request. *refused: its owner is to do it, and nothing was written. */
static enum pawl_rc serve_one(struct sqlite *sl, int i, struct db_memo *memo, int64_t *dups,
                              bool *refused, struct pawl_error *e)
{
    char room[MAIL_SLOT_BYTES];
    struct pawl_enqueued out = {0};
    struct pawl_request r;
    struct pawl_error why;
    int64_t now_us = 0, more = 0;
    enum pawl_rc rc;

    *refused = true;
    if (!mail_open(sl->d.side.mail, i, room, &r, &now_us))
        return PAWL_OK;
    rc = db_enqueue_one(&sl->d, &r, memo, now_us, &out, &more, &why);
    const bool has_result = out.result != NULL;
    free(out.result);
    if (rc == PAWL_NOTFOUND || rc == PAWL_KEYCLASH || rc == PAWL_BADDATA || has_result)
        return PAWL_OK;
    if (rc != PAWL_OK)
        return pawl_fail_native(e, rc, why.native, "%s", why.msg);
    *refused = false;
    *dups += more;
    mail_answer(sl->d.side.mail, i, &out);
    return PAWL_OK;
}

enum pawl_rc sl_combine_serve(struct sqlite *sl, struct combine *c, int64_t *dups,
                              struct pawl_error *e)
{
    struct mail *m = sl->d.side.mail;
    struct db_memo memo;
    enum pawl_rc rc = PAWL_OK;
    uint32_t use = 0;
    int i;

    assert(sl->d.in_tx && sl->d.side.held && c->n == 0);
    if (!mail_waiting(m) || !usable(sl, true))
        return PAWL_OK;
    db_memo_init(&memo, true);
    mail_sweep(m, sl->d.side.who, mono_us());
    while (rc == PAWL_OK && c->n < MAIL_SLOTS && (i = mail_take(m, &use)) >= 0) {
        bool refused = false;

        rc = serve_one(sl, i, &memo, dups, &refused, e);
        if (refused && rc == PAWL_OK) {
            mail_end(m, i, use, MAIL_SELF);
            mail_wake(m, i);
            continue;
        }
        c->slot[c->n] = (uint8_t)i;
        c->use[c->n++] = use;
    }
    if (rc == PAWL_OK && c->n > 0 && fail_point("combine.taken"))
        rc = pawl_fail(e, PAWL_IO, "failpoint combine.taken");
    return rc;
}

void sl_combine_end(struct sqlite *sl, const struct combine *c, bool stored)
{
    assert(sl->d.side.held);
    for (size_t k = 0; k < c->n; k++)
        mail_end(sl->d.side.mail, c->slot[k], c->use[k], stored ? MAIL_DONE : MAIL_SELF);
}

void sl_combine_wake(struct sqlite *sl, const struct combine *c)
{
    for (size_t k = 0; k < c->n; k++)
        mail_wake(sl->d.side.mail, c->slot[k]);
}

/* --- who waits --- */

struct waiter {
    struct sqlite *sl;
    int i;
    uint32_t use;
    uint64_t who;
    bool keyed;                   /* sent again, it is a duplicate */
    int64_t until_us, look_us;    /* when to give up; after how long to look for ourselves */
};

/* We have the side lock, so nobody else has our request in hand. *over: the transaction is open, or
 * rc is the answer; else look again. */
static enum pawl_rc have_lock(struct waiter *w, bool *over, struct pawl_error *e)
{
    struct mail *m = w->sl->d.side.mail;
    enum pawl_rc rc = sl_begin(w->sl, e);

    *over = true;
    if (rc != PAWL_OK)
        side_unlock(&w->sl->d.side); /* it could not even connect */
    if (mail_withdraw(m, w->i, w->use, w->who))
        return rc;
    /* It is answered already; or its taker died, and we have no transaction to look in. */
    *over = false;
    if (rc == PAWL_OK) {
        sl_rollback(w->sl);
        sl_leave(w->sl);
    }
    return PAWL_OK;
}

/* Out of patience. *over false: it is in somebody's hand, and will be answered. */
static enum pawl_rc give_up(struct waiter *w, bool *over, struct pawl_error *e)
{
    struct mail *m = w->sl->d.side.mail;

    *over = true;
    if (mail_withdraw(m, w->i, w->use, w->who))
        return side_busy(&w->sl->d.side, w->sl->wait_us, e);
    if (mono_us() >= w->until_us + SL_WAIT_US && mail_leave(m, w->i, w->use))
        return pawl_fail(e, PAWL_UNSURE, "the process that is storing this request with its own has"
                         " not ended for %d s: it may be stored yet; with a key, send it again",
                         SL_WAIT_US / 1000000);
    *over = false;
    return PAWL_OK;
}

static enum pawl_rc wait_for_it(struct waiter *w, struct pawl_enqueued *out, bool *answered,
                                struct pawl_error *e)
{
    struct mail *m = w->sl->d.side.mail;
    int64_t look_at = mono_us() + w->look_us;
    bool nudged = false, over = false;

    for (;;) {
        const enum mail_kind kind = mail_look(m, w->i, w->use, &nudged);
        const int64_t now = mono_us();
        enum pawl_rc rc;

        if (kind == MAIL_DONE) {
            mail_read(m, w->i, out);
            mail_free(m, w->i, w->use, w->who);
            *answered = true;
            return PAWL_OK;
        }
        if (kind == MAIL_IDLE && !w->keyed && now > w->until_us + SL_WAIT_US)
            return pawl_fail(e, PAWL_UNSURE, "this process was stopped for so long that the answer"
                             " to its request was thrown away: it may be stored; look, or use"
                             " keys");
        if (kind != MAIL_POSTED && kind != MAIL_TAKEN) { /* refused, or it is not ours any more */
            mail_free(m, w->i, w->use, w->who);
            return sl_begin(w->sl, e);
        }
        if (now >= w->until_us && ((rc = give_up(w, &over, e)) != PAWL_OK || over))
            return rc;
        if (nudged || now >= look_at) {
            side_beat(&w->sl->d.side); /* waiting is not freezing */
            if (side_try(&w->sl->d.side, true, &w->look_us) == TURN_TAKEN) {
                if ((rc = have_lock(w, &over, e)) != PAWL_OK || over)
                    return rc;
                continue;
            }
            look_at = mono_us() + w->look_us;
        }
        mail_wait(m, w->i, w->use, kind, look_at - now);
    }
}

enum pawl_rc sl_combine_turn(struct sqlite *sl, const struct pawl_request *r, int64_t now_us,
                             struct pawl_enqueued *out, bool *answered, struct pawl_error *e)
{
    struct side *s = &sl->d.side;
    struct waiter w = { .sl = sl, .who = s->who | s->tag };
    enum pawl_rc rc;

    *answered = false;
    if (sl->db == NULL || s->held || side_try(s, false, &w.look_us) != TURN_BUSY) {
        if ((rc = sl_begin(sl, e)) != PAWL_OK)
            side_unlock(s);
        return rc;
    }
    if (!usable(sl, false)) { /* the first one in this boot */
        if ((rc = sl_begin(sl, e)) == PAWL_OK)
            usable(sl, true);
        return rc;
    }
    w.until_us = mono_us() + sl->wait_us;
    w.keyed = r->key != NULL;
    if (!mail_has_room_for(r) ||
        (w.i = mail_post(s->mail, w.who, r, now_us, w.until_us, &w.use)) < 0)
        return sl_begin(sl, e);
    if (fail_point("combine.posted") && mail_withdraw(s->mail, w.i, w.use, w.who))
        return sl_begin(sl, e);
    if ((atomic_load(&s->page->turn) & WHO_MASK) == 0 &&   /* let go meanwhile, unheard */
        side_try(s, true, &w.look_us) == TURN_TAKEN) {
        bool over = false;

        if ((rc = have_lock(&w, &over, e)) != PAWL_OK || over)
            return rc;
    }
    return wait_for_it(&w, out, answered, e);
}
