// SPDX-License-Identifier: Apache-2.0
/* claim_behind.c - choosing where statements, and rows that are gone, are dear: asking ahead, and
 * going on where the last choice ended.
 *
 * Why:   where rows that are gone stay in the index until somebody tidies up (PostgreSQL, and for
 *        as long as any transaction is older), every look from the left end steps over all of them:
 *        15 ms a claim were measured under a snapshot held for 50 s.
 * How:   while such a look is dear, it is done so seldom that it takes a twentieth of the time; in
 *        between, jobs are taken from behind the last one, in the same line.
 *        A rollback gives back what was taken, so the next look is at everything.
 * Keeps: what comes before that meanwhile (a higher priority, an earlier time, another queue) waits
 *        for the next look: a second at the most. Pauses and suspects are looked at every time.
 */
#include "base/err.h"
#include "store/verb/claim.h"

#define DEAR_US 500         /* usual: 200; and */
#define DEAR_TIMES 2        /* what the cheapest one took: a slow machine is none of our business */
#define DEAR_ANYWAY_US 1000 /* who begins in the middle of it knows no cheap one */
#define LOOK_SHARE 20
#define BEHIND_MAX_US 1000000
#define AHEAD_TASKS 8

static int64_t mono(const struct db *db)
{
    return db->env->mono_us(db->env->ctx);
}

bool claim_goes_on(const struct db *db)
{
    return db->engine->locks && db->line.task_id != 0 && mono(db) < db->line.until_us;
}

/* The cheapest of the last looks: one that was dear by chance counts for nothing. */
static int64_t cost_of_look(const struct db_line *l)
{
    int64_t least = INT64_MAX;

    for (size_t i = 0; i < DB_LOOKS; i++)
        if (l->took_us[i] < least)
            least = l->took_us[i];
    return l->looks < DB_LOOKS ? 0 : least;
}

static bool is_dear(const struct db_line *l, int64_t cost)
{
    return cost >= DEAR_ANYWAY_US || (cost >= DEAR_US && cost >= DEAR_TIMES * l->cheapest_us);
}

void claim_note_look(const struct choice *c, bool full)
{
    struct db_line *l = &c->db->line;

    const int64_t took_us = mono(c->db) - c->start_us;

    l->took_us[l->looks++ % DB_LOOKS] = took_us;
    if (l->looks == 1 || took_us < l->cheapest_us)
        l->cheapest_us = took_us;
    l->task_id = l->until_us = 0;
    if (c->ls.n != 1)
        return;
    l->task_id = c->lane->tasks[c->ls.l[0].task_i].id;
    l->queue_id = c->ls.l[0].queue_id;
    l->rank = c->ls.l[0].rank;
    l->run_at_us = c->ls.l[0].run_at_us;
    l->id = c->ls.l[0].id;
    const int64_t cost = cost_of_look(l), rest = cost * LOOK_SHARE;
    if (full && is_dear(l, cost))
        l->until_us = mono(c->db) + (rest < BEHIND_MAX_US ? rest : BEHIND_MAX_US);
}

enum pawl_rc claim_from_behind(const struct choice *c, struct job *jobs, size_t *n,
                               struct pawl_error *e)
{
    struct db_line *last = &c->db->line;
    struct line l = { .queue_id = last->queue_id, .rank = last->rank,
                      .run_at_us = last->run_at_us, .id = last->id };
    size_t t = 0;
    enum pawl_rc rc;

    while (t < c->lane->tasks_n && c->lane->tasks[t].id != last->task_id)
        t++;
    l.task_i = (int32_t)t;
    if (t == c->lane->tasks_n || !claim_is_open(&c->tasks[t])) {
        last->until_us = 0;
        return PAWL_OK;
    }
    if ((rc = claim_open_queue(c, l.queue_id, &l.queue, e)) != PAWL_OK || l.queue == NULL ||
        (rc = claim_read_chunk(c, &l, c->want, e)) != PAWL_OK)
        return rc;
    if (l.n < c->want) {
        last->until_us = 0;
        return PAWL_OK;
    }
    for (; *n < c->want; ++*n)
        claim_take(&l, &l.c[*n], &jobs[*n]);
    last->run_at_us = l.run_at_us;
    last->id = l.id;
    c->info->more = true;
    return PAWL_OK;
}

/* --- asking ahead --- */

static enum pawl_rc ask(struct db *db, enum q_id id, const int64_t *v, int n, struct pawl_error *e)
{
    struct query *q = NULL;
    enum pawl_rc rc = db_q(db, id, &q, e);

    for (int i = 0; i < n && rc == PAWL_OK; i++)
        q_int(q, i + 1, v[i]);
    return rc == PAWL_OK ? db->engine->ahead(db, q, e) : rc;
}

enum pawl_rc claim_ask_ahead(const struct choice *c, bool behind, struct pawl_error *e)
{
    struct db *db = c->db;
    const struct db_line *l = &db->line;
    const int64_t look[] = { l->queue_id }, next[] = { l->task_id, l->queue_id },
        level[] = { l->task_id, l->queue_id, -LIMIT_PRIORITY - 1 },
        due[] = { l->task_id, l->queue_id, l->rank, c->now_us, behind ? l->run_at_us : INT64_MIN,
                  behind ? l->id : INT64_MIN, (int64_t)c->want };
    enum pawl_rc rc = PAWL_OK;

    if (db->engine->ahead == NULL || c->lane->tasks_n > AHEAD_TASKS)
        return PAWL_OK;
    for (size_t t = 0; t < c->lane->tasks_n && rc == PAWL_OK; t++) {
        const int64_t first[] = { c->lane->tasks[t].id, 0 };

        rc = ask(db, Q_TASK_LOOK, first, 1, e);
        if (rc == PAWL_OK && !behind)
            rc = ask(db, Q_NEXT_QUEUE, first, 2, e);
    }
    if (rc != PAWL_OK || l->task_id == 0)
        return rc;
    if ((rc = ask(db, Q_QUEUE_INFO, look, 1, e)) == PAWL_OK && !behind &&
        (rc = ask(db, Q_LEVEL, level, 3, e)) == PAWL_OK)
        rc = ask(db, Q_NEXT_QUEUE, next, 2, e);
    return rc == PAWL_OK ? ask(db, Q_DUE, due, 7, e) : rc;
}
