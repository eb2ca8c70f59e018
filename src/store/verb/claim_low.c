// SPDX-License-Identifier: Apache-2.0
/* claim_low.c - choosing where statements, and rows that are gone, are dear: asking ahead, and
 * beginning where nothing was left before.
 *
 * Why:   where rows that are gone stay in the index until somebody tidies up (PostgreSQL, and for
 *        as long as any transaction is older), every look from the left end steps over all of them:
 *        0.1 us each, for ever more of them while a snapshot is held.
 * How:   of each (task, queue, rank) it is remembered up to where a look saw nothing (db_low).
 *        While looks at everything are dear, they are made so seldom that they take a twentieth of
 *        the time; those in between pass over what lies below the marks, and see all else: other
 *        queues, better ranks, an empty line. A mark is set by what was seen to be gone, never by
 *        what was taken: that may come back.
 * Keeps: what appears below a mark (by a transaction that was open for long, with a due time that
 *        lies back, given back by its worker) waits for the next look at everything. Pauses and
 *        suspects are looked at every time.
 */
#include "base/err.h"
#include "store/verb/claim.h"

#define DEAR_US 500         /* usual: 200; and */
#define DEAR_TIMES 2        /* what the cheapest one took: a slow machine is none of our business */
#define DEAR_ANYWAY_US 1000 /* who begins in the middle of it knows no cheap one */
#define LOOK_SHARE 20
#define LOW_MAX_US 60000000
/* Jobs come with a due time of a moment ago: so many rows that are gone may be stepped over to see
 * the late ones, or those of the last second. */
#define SLACK_JOBS 1000
#define SLACK_MAX_US 1000000
#define SLACK_FIRST_US 100000
#define AHEAD_TASKS 8
#define AHEAD_LOWS 4

static int64_t mono(const struct db *db)
{
    return db->env->mono_us(db->env->ctx);
}

bool claim_begins_low(const struct db *db)
{
    return db->engine->locks && mono(db) < db->look.until_us;
}

/* --- marks --- */

static struct db_low *low_of(struct db *db, int64_t task_id, int64_t queue_id, int64_t rank)
{
    for (size_t i = 0; i < db->look.low_n; i++) {
        struct db_low *w = &db->look.low[i];

        if (w->task_id == task_id && w->queue_id == queue_id && w->rank == rank)
            return w;
    }
    return NULL;
}

/* The next marked line of the task behind this one. */
static struct db_low *low_behind(struct db *db, int64_t task_id, int64_t queue_id, int64_t rank)
{
    struct db_low *best = NULL;

    for (size_t i = 0; i < db->look.low_n; i++) {
        struct db_low *w = &db->look.low[i];

        if (w->task_id == task_id &&
            (w->queue_id > queue_id || (w->queue_id == queue_id && w->rank > rank)) &&
            (best == NULL || w->queue_id < best->queue_id ||
             (w->queue_id == best->queue_id && w->rank < best->rank)))
            best = w;
    }
    return best;
}

/* Of the line nothing is left before run_at, id. More will come, due from about now on. */
static void set_low(const struct choice *c, struct db_low *w, int64_t run_at_us, int64_t id)
{
    const struct db_look *look = &c->db->look;
    const int64_t newest_us =
        c->now_us - (look->full_at_us == 0 ? SLACK_FIRST_US : look->slack_us);

    w->run_at_us = run_at_us < newest_us ? run_at_us : newest_us;
    w->id = run_at_us < newest_us ? id - 1 : INT64_MIN;
}

static void low_found(const struct choice *c, int64_t task_id, const struct spot *s)
{
    struct db_look *look = &c->db->look;
    struct db_low *w = low_of(c->db, task_id, s->queue_id, s->rank);

    if (w == NULL) {
        w = &look->low[look->low_n < DB_LOWS ? look->low_n++ : look->low_next++ % DB_LOWS];
        *w = (struct db_low){ .task_id = task_id, .queue_id = s->queue_id, .rank = s->rank };
    }
    set_low(c, w, s->run_at_us, s->id);
}

/* --- looking --- */

static bool is_line_of(const struct db_low *w, const struct spot *s)
{
    return w->queue_id == s->queue_id && w->rank == s->rank;
}

/* The statement's parameters: behind `after`, before the line `end`, or anywhere in the queue.
 * Where no marks are set it takes the first five. */
enum { SPAN = 8, SPAN_OPEN = 5 };
static int span(const struct db *db, int64_t v[SPAN], int64_t task_id, const struct spot *after,
                const struct db_low *end, bool same_queue)
{
    const int64_t last_queue = same_queue ? after->queue_id : INT64_MAX;

    v[0] = task_id;
    v[1] = after->queue_id;
    v[2] = after->rank;
    v[3] = after->run_at_us;
    v[4] = after->id;
    v[5] = end != NULL ? end->queue_id : last_queue;
    v[6] = end != NULL ? end->rank : INT64_MAX;
    v[7] = end != NULL && end->queue_id == after->queue_id ? end->rank : INT64_MAX;
    return db->engine->locks ? SPAN : SPAN_OPEN;
}

static enum pawl_rc seek(struct db *db, const int64_t *v, int n, struct first *out,
                         struct pawl_error *e)
{
    struct query *q = NULL;
    enum pawl_rc rc = db_q(db, Q_FIRST, &q, e);

    for (int i = 0; i < n && rc == PAWL_OK; i++)
        q_int(q, i + 1, v[i]);
    out->found = false;
    if (rc != PAWL_OK || (rc = db_row(db, q, &out->found, e)) != PAWL_OK || !out->found)
        return rc;
    out->at = (struct spot){ q_i64(q, 0), q_i64(q, 1), q_i64(q, 2), q_i64(q, 3) };
    out->from = out->at;
    out->from.id--;
    q_reset(q);
    return PAWL_OK;
}

enum pawl_rc claim_first(const struct choice *c, int64_t task_id, struct spot after,
                         bool same_queue, struct first *out, struct pawl_error *e)
{
    struct db *db = c->db;
    int64_t v[SPAN];

    for (;;) {
        struct db_low *w = c->low ? low_of(db, task_id, after.queue_id, after.rank) : NULL;
        struct db_low *end = c->low ? low_behind(db, task_id, after.queue_id, after.rank) : NULL;
        enum pawl_rc rc;

        if (end != NULL && same_queue && end->queue_id != after.queue_id)
            end = NULL;
        if (w != NULL && (after.run_at_us > w->run_at_us ||
                          (after.run_at_us == w->run_at_us && after.id > w->id)))
            w = NULL; /* the rest of a line whose beginning is not asked for */
        if (w != NULL)
            after = (struct spot){ w->queue_id, w->rank, w->run_at_us, w->id };
        const int n = span(db, v, task_id, &after, end, same_queue);
        if ((rc = seek(db, v, n, out, e)) != PAWL_OK)
            return rc;
        if (out->found && same_queue && out->at.queue_id != after.queue_id)
            out->found = false;
        if (!db->engine->locks)
            return PAWL_OK; /* what is gone is gone */
        const bool here = w != NULL && out->found && is_line_of(w, &out->at);
        if (here)
            out->from = after;
        if (w != NULL && !here)
            set_low(c, w, INT64_MAX, 0);
        if (out->found && (here || out->at.queue_id != after.queue_id ||
                           out->at.rank != after.rank))
            low_found(c, task_id, &out->at);
        if (out->found || end == NULL)
            return PAWL_OK;
        after = (struct spot){ end->queue_id, end->rank, end->run_at_us, end->id };
    }
}

/* The cheapest of the last looks: one that was dear by chance counts for nothing. */
static int64_t cost_of_look(const struct db_look *l)
{
    int64_t least = INT64_MAX;

    for (size_t i = 0; i < DB_LOOKS; i++)
        if (l->took_us[i] < least)
            least = l->took_us[i];
    return l->looks < DB_LOOKS ? 0 : least;
}

static bool is_dear(const struct db_look *l, int64_t cost)
{
    return cost >= DEAR_ANYWAY_US || (cost >= DEAR_US && cost >= DEAR_TIMES * l->cheapest_us);
}

static void note_full(struct db_look *l, int64_t now_us, int64_t took_us)
{
    l->took_us[l->looks++ % DB_LOOKS] = took_us;
    if (l->looks == 1 || took_us < l->cheapest_us)
        l->cheapest_us = took_us;
    const int64_t cost = cost_of_look(l), rest = cost * LOOK_SHARE;

    l->dear = is_dear(l, cost);
    l->until_us = !l->dear ? 0 : now_us + (rest < LOW_MAX_US ? rest : LOW_MAX_US);
    l->slack_us = l->full_at_us == 0 ? SLACK_FIRST_US : SLACK_MAX_US;
    if (l->full_at_us != 0 && l->taken > SLACK_JOBS &&
        (now_us - l->full_at_us) / (l->taken / SLACK_JOBS) < SLACK_MAX_US)
        l->slack_us = (now_us - l->full_at_us) / (l->taken / SLACK_JOBS);
    l->full_at_us = now_us;
    l->taken = 0;
}

void claim_note_look(const struct choice *c, size_t n)
{
    struct db_look *l = &c->db->look;
    const int64_t now_us = mono(c->db);

    l->taken += (int64_t)n;
    if (!c->low)
        note_full(l, now_us, now_us - c->start_us);
    else if (n < c->want) { /* what lies below a mark is found without being told */
        const int64_t at_us = c->now_us + (l->until_us > now_us ? l->until_us - now_us : 1);

        if (c->info->next_due_us == 0 || at_us < c->info->next_due_us)
            c->info->next_due_us = at_us;
    }
    l->task_id = 0;
    if (c->ls.n != 1)
        return;
    l->task_id = c->lane->tasks[c->ls.l[0].task_i].id;
    l->queue_id = c->ls.l[0].queue_id;
    l->rank = c->ls.l[0].rank;
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

/* From the beginning of a task's rows, or of a mark, to the next mark; and behind the last one of a
 * queue. */
static enum pawl_rc ask_spans(const struct choice *c, int64_t task_id, struct pawl_error *e)
{
    struct spot at = { INT64_MIN, INT64_MIN, INT64_MIN, INT64_MIN };
    const struct db_look *l = &c->db->look;
    struct db_low *w = NULL, *next;
    enum pawl_rc rc = PAWL_OK;
    int64_t v[SPAN];

    for (int i = 0; rc == PAWL_OK && i <= AHEAD_LOWS; i++, w = next) {
        next = c->low ? low_behind(c->db, task_id, at.queue_id, at.rank) : NULL;
        rc = ask(c->db, Q_FIRST, v, span(c->db, v, task_id, &at, next, false), e);
        if (rc == PAWL_OK && (w != NULL ? next == NULL || next->queue_id != w->queue_id
                                        : !c->low && l->task_id == task_id)) {
            at = (struct spot){ w != NULL ? w->queue_id : l->queue_id, INT64_MAX, INT64_MAX,
                                INT64_MAX };
            rc = ask(c->db, Q_FIRST, v, span(c->db, v, task_id, &at, next, false), e);
        }
        if (next == NULL)
            break;
        at = (struct spot){ next->queue_id, next->rank, next->run_at_us, next->id };
    }
    return rc;
}

enum pawl_rc claim_ask_ahead(const struct choice *c, struct pawl_error *e)
{
    struct db *db = c->db;
    const struct db_look *l = &db->look;
    const struct db_low *w = c->low ? low_of(db, l->task_id, l->queue_id, l->rank) : NULL;
    const int64_t look[] = { l->queue_id },
        due[] = { l->task_id, l->queue_id, l->rank, c->now_us, w != NULL ? w->run_at_us : INT64_MIN,
                  w != NULL ? w->id : INT64_MIN, (int64_t)c->want };
    enum pawl_rc rc = PAWL_OK;

    if (db->engine->ahead == NULL || c->lane->tasks_n > AHEAD_TASKS)
        return PAWL_OK;
    for (size_t t = 0; t < c->lane->tasks_n && rc == PAWL_OK; t++)
        if ((rc = ask(db, Q_TASK_LOOK, &c->lane->tasks[t].id, 1, e)) == PAWL_OK)
            rc = ask_spans(c, c->lane->tasks[t].id, e);
    if (rc != PAWL_OK || l->task_id == 0 || (rc = ask(db, Q_QUEUE_INFO, look, 1, e)) != PAWL_OK)
        return rc;
    return w != NULL || (!c->low && !l->dear) ? ask(db, Q_DUE, due, 7, e) : PAWL_OK;
}
