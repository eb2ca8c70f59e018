// SPDX-License-Identifier: Apache-2.0
/* claim_line.c - due jobs in order of rank, run_at, id. Reads only; inside a transaction.
 *
 * Keeps: the cost depends on the worker's own tasks and their non-empty queues, never on the
 *        backlog nor on jobs of tasks that this worker does not run: every step is a seek in the
 *        primary key (task, queue, rank, run_at, id). Rows that are gone: see claim_low.c.
 * How:   each (task, queue) with work is a line, read in chunks from its best due level downwards;
 *        the lines are merged.
 */
#include <string.h>
#include "base/err.h"
#include "store/verb/claim.h"

#define LINES_MAX 4096
#define CHUNK_MIN 8

static bool wants_queue(const struct lane *lane, const char *name)
{
    if (lane->queues_n == 0)
        return true;
    for (size_t i = 0; i < lane->queues_n; i++)
        if (strcmp(lane->queues[i], name) == 0)
            return true;
    return false;
}

enum pawl_rc claim_open_queue(const struct choice *c, int64_t queue_id, const char **name,
                              struct pawl_error *e)
{
    struct query *q = NULL;
    bool row = false;
    enum pawl_rc rc;

    *name = NULL;
    if ((rc = db_q(c->db, Q_QUEUE_INFO, &q, e)) != PAWL_OK)
        return rc;
    q_int(q, 1, queue_id);
    if ((rc = db_row(c->db, q, &row, e)) != PAWL_OK || !row)
        return rc;
    if (q_i32(q, 1) == 0 && wants_queue(c->lane, q_str(q, 0)))
        *name = q_dup(c->a, q, 0);
    q_reset(q);
    return PAWL_OK;
}

static int64_t task_of(const struct choice *c, const struct line *l)
{
    return c->lane->tasks[l->task_i].id;
}

/* Where the reading of a level begins. While looks are cheap, at its very beginning: that is asked
 * ahead. */
static void begin_at(const struct choice *c, struct line *l, const struct first *f)
{
    const bool known = c->low || (c->db->engine->locks && c->db->look.dear);

    l->rank = f->at.rank;
    l->run_at_us = known ? f->from.run_at_us : INT64_MIN;
    l->id = known ? f->from.id : INT64_MIN;
}

/* The level that f is in, if it is due, or else the best one behind it of its queue that has
 * something due; notes the next due time of those that have not. */
static enum pawl_rc due_level(const struct choice *c, struct line *l, struct first *f,
                              struct pawl_error *e)
{
    enum pawl_rc rc = PAWL_OK;

    while (f->found && f->at.run_at_us > c->now_us) {
        if (c->info->next_due_us == 0 || f->at.run_at_us < c->info->next_due_us)
            c->info->next_due_us = f->at.run_at_us;
        const struct spot behind = { l->queue_id, f->at.rank, INT64_MAX, INT64_MAX };

        if ((rc = claim_first(c, task_of(c, l), behind, true, f, e)) != PAWL_OK)
            return rc;
    }
    if (f->found)
        begin_at(c, l, f);
    return rc;
}

void claim_read_counters(struct query *q, int col, struct counters *n)
{
    n->runs = q_i64(q, col);
    n->failures = q_i64(q, col + 1);
    n->lost = q_i64(q, col + 2);
    n->releases = q_i64(q, col + 3);
    n->snoozes = q_i64(q, col + 4);
}

/* The job row came with the ready row; it may be missing. */
static enum pawl_rc joined_row(const struct choice *c, struct query *q, struct cand *cand,
                               struct pawl_error *e)
{
    enum { JOB = 8, PLACE = JOB + 12 };
    enum pawl_rc rc = PAWL_OK;

    if ((cand->row = arena_alloc(c->a, sizeof *cand->row)) == NULL)
        return pawl_fail(e, PAWL_NOMEM, "out of memory");
    if (!q_is_null(q, JOB))
        rc = db_job_row(q, JOB, cand->row, c->a, e);
    cand->row->place = c->db->engine->place(q, PLACE);
    return rc;
}

enum pawl_rc claim_read_chunk(const struct choice *c, struct line *l, size_t chunk,
                              struct pawl_error *e)
{
    struct query *q = NULL;
    bool row = true;
    enum pawl_rc rc;

    l->n = l->at = 0;
    if (l->c == NULL && (l->c = arena_alloc(c->a, chunk * sizeof *l->c)) == NULL)
        return pawl_fail(e, PAWL_NOMEM, "out of memory");
    if ((rc = db_q(c->db, Q_DUE, &q, e)) != PAWL_OK)
        return rc;
    q_int(q, 1, task_of(c, l));
    q_int(q, 2, l->queue_id);
    q_int(q, 3, l->rank);
    q_int(q, 4, c->now_us);
    q_int(q, 5, l->run_at_us);
    q_int(q, 6, l->id);
    if (c->db->engine->locks)
        q_int(q, 7, (int64_t)chunk);
    while (l->n < chunk && (rc = db_row(c->db, q, &row, e)) == PAWL_OK && row) {
        struct cand *cand = &l->c[l->n++];

        l->id = cand->id = q_i64(q, 0);
        l->run_at_us = cand->run_at_us = q_i64(q, 1);
        claim_read_counters(q, 2, &cand->n);
        cand->suspect = q_i32(q, 7) != 0;
        cand->row = NULL;
        if (c->db->engine->locks && (rc = joined_row(c, q, cand, e)) != PAWL_OK)
            break;
    }
    q_reset(q);
    return rc;
}

/* What comes next in a line: more of its level, or its next level. n == 0: it is empty. */
static enum pawl_rc refill(const struct choice *c, struct line *l, struct pawl_error *e)
{
    struct first f = { .found = true };
    enum pawl_rc rc = claim_read_chunk(c, l, c->chunk, e);

    while (rc == PAWL_OK && l->n == 0 && f.found) {
        const struct spot behind = { l->queue_id, l->rank, INT64_MAX, INT64_MAX };

        if ((rc = claim_first(c, task_of(c, l), behind, true, &f, e)) == PAWL_OK &&
            (rc = due_level(c, l, &f, e)) == PAWL_OK && f.found)
            rc = claim_read_chunk(c, l, c->chunk, e);
    }
    return rc;
}

static enum pawl_rc add_line(struct choice *c, int32_t task_i, struct first *f,
                             struct pawl_error *e)
{
    struct line l = { .task_i = task_i, .queue_id = f->at.queue_id };
    struct lines *ls = &c->ls;
    enum pawl_rc rc;

    if ((rc = claim_open_queue(c, l.queue_id, &l.queue, e)) != PAWL_OK || l.queue == NULL)
        return rc;
    if ((rc = due_level(c, &l, f, e)) != PAWL_OK || !f->found || ls->n == LINES_MAX)
        return rc;
    if (ls->n == ls->room) {
        const size_t room = ls->room == 0 ? 16 : ls->room * 2;
        struct line *p = arena_alloc(c->a, room * sizeof *p);

        if (p == NULL)
            return pawl_fail(e, PAWL_NOMEM, "out of memory");
        if (ls->n > 0)
            memcpy(p, ls->l, ls->n * sizeof *p);
        ls->l = p;
        ls->room = room;
    }
    ls->l[ls->n++] = l;
    return PAWL_OK;
}

/* Every line of the lane that has something due. */
static enum pawl_rc find_lines(struct choice *c, struct pawl_error *e)
{
    enum pawl_rc rc;

    for (size_t t = 0; t < c->lane->tasks_n; t++) {
        struct spot behind = { INT64_MIN, INT64_MIN, INT64_MIN, INT64_MIN };

        while (claim_is_open(&c->tasks[t])) { /* a loose scan: one seek per queue with its jobs */
            struct first f;

            if ((rc = claim_first(c, c->lane->tasks[t].id, behind, false, &f, e)) != PAWL_OK)
                return rc;
            if (!f.found)
                break;
            behind = (struct spot){ f.at.queue_id, INT64_MAX, INT64_MAX, INT64_MAX };
            if ((rc = add_line(c, (int32_t)t, &f, e)) != PAWL_OK)
                return rc;
        }
    }
    return PAWL_OK;
}

static bool before(const struct line *a, const struct line *b)
{
    const struct cand *x = &a->c[a->at], *y = &b->c[b->at];

    if (a->rank != b->rank)
        return a->rank < b->rank;
    if (x->run_at_us != y->run_at_us)
        return x->run_at_us < y->run_at_us;
    return x->id < y->id;
}

void claim_take(const struct line *l, const struct cand *c, struct job *job)
{
    if (c->row != NULL)
        *job = *c->row;
    else
        memset(job, 0, sizeof *job);
    job->id = c->id;
    job->task_i = l->task_i;
    job->queue_id = l->queue_id;
    job->queue = l->queue;
    job->rank = l->rank;
    job->run_at_us = c->run_at_us;
    job->n = c->n;
    job->suspect = c->suspect;
    job->token = c->n.runs + 1;
}

static enum pawl_rc merge(const struct choice *c, struct job *jobs, size_t *n,
                          struct pawl_error *e)
{
    enum pawl_rc rc = PAWL_OK;

    while (*n < c->want) {
        struct line *best = NULL;

        for (size_t i = 0; i < c->ls.n; i++)
            if (c->ls.l[i].at < c->ls.l[i].n && (best == NULL || before(&c->ls.l[i], best)))
                best = &c->ls.l[i];
        if (best == NULL)
            return PAWL_OK; /* every line is empty */
        claim_take(best, &best->c[best->at], &jobs[*n]);
        ++*n;
        if (++best->at == best->n && *n < c->want && (rc = refill(c, best, e)) != PAWL_OK)
            return rc;
    }
    c->info->more = true;
    return PAWL_OK;
}

/* Find the lines, read the first chunk of each, merge. */
enum pawl_rc claim_in_order(struct choice *c, struct job *jobs, size_t *n, struct pawl_error *e)
{
    enum pawl_rc rc = find_lines(c, e);

    /* One line: read what is wanted at once. Several: little of each, more of what is used. */
    c->chunk = c->ls.n <= 1 || c->want < CHUNK_MIN ? c->want : c->want / c->ls.n;
    if (c->chunk < CHUNK_MIN && c->want >= CHUNK_MIN)
        c->chunk = CHUNK_MIN;
    for (size_t i = 0; i < c->ls.n && rc == PAWL_OK; i++)
        rc = claim_read_chunk(c, &c->ls.l[i], c->chunk, e);
    if (rc == PAWL_OK)
        rc = merge(c, jobs, n, e);
    if (rc == PAWL_OK)
        claim_note_look(c, *n);
    return rc;
}
