// SPDX-License-Identifier: Apache-2.0
/* claim.c - choose due jobs in order of rank, run_at, id. Reads only; inside a transaction.
 *
 * Keeps: the cost depends on the worker's own tasks and their non-empty queues, never on the
 * backlog
 *        nor on jobs of tasks that this worker does not run: every step is a seek in the primary
 *        key
 *        (task, queue, rank, run_at, id).
 * How:   each (task, queue) with work is a line, read in chunks from its best due level downwards;
 *        the lines are merged.
 */
#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include "base/err.h"
#include "store/verb/db.h"

#define LINES_MAX 4096
#define CHUNK_MIN 8
#define BATCH_BYTES_MAX (8 << 20) /* of args in one claim */

struct cand { int64_t id, run_at_us; struct counters n; bool suspect; };
struct line {
    int32_t task_i;
    int64_t queue_id, rank;
    const char *queue;
    struct cand *c;
    size_t n, at;
    int64_t run_at_us, id;   /* the last one read at this rank */
};
struct lines { struct line *l; size_t n, room; };

int64_t db_lane_task(const struct lane *lane, const struct job *job)
{
    assert(job->task_i >= 0 && (size_t)job->task_i < lane->tasks_n);
    return lane->tasks[job->task_i].id;
}

static bool wants_queue(const struct lane *lane, const char *name)
{
    if (lane->queues_n == 0)
        return true;
    for (size_t i = 0; i < lane->queues_n; i++)
        if (strcmp(lane->queues[i], name) == 0)
            return true;
    return false;
}

/* The queue's name if this lane may take from it now, else NULL in *name. */
static enum pawl_rc open_queue(struct db *db, const struct lane *lane, int64_t queue_id,
                               struct arena *a, const char **name, struct pawl_error *e)
{
    struct query *q = NULL;
    bool row = false;
    enum pawl_rc rc;

    *name = NULL;
    if ((rc = db_q(db, Q_QUEUE_INFO, &q, e)) != PAWL_OK)
        return rc;
    q_int(q, 1, queue_id);
    if ((rc = db_row(db, q, &row, e)) != PAWL_OK || !row)
        return rc;
    if (q_i32(q, 1) == 0 && wants_queue(lane, q_str(q, 0)))
        *name = q_dup(a, q, 0);
    q_reset(q);
    return PAWL_OK;
}

enum pawl_rc db_task_look(struct db *db, int64_t task_id, struct db_task_state *out,
                          struct pawl_error *e)
{
    struct query *q = NULL;
    bool row = false;
    enum pawl_rc rc;

    memset(out, 0, sizeof *out);
    if ((rc = db_q(db, Q_TASK_LOOK, &q, e)) != PAWL_OK)
        return rc;
    q_int(q, 1, task_id);
    if ((rc = db_row(db, q, &row, e)) != PAWL_OK || !row)
        return rc;
    out->known = true;
    out->paused = q_i32(q, 0) != 0;
    out->suspects = q_i32(q, 1) != 0;
    q_reset(q);
    return PAWL_OK;
}

/* The tasks of a lane, each looked at once per choice. */
static enum pawl_rc look_at_tasks(struct db *db, const struct lane *lane, struct arena *a,
                                  struct db_task_state **out, struct pawl_error *e)
{
    struct db_task_state *t = arena_alloc(a, (lane->tasks_n + 1) * sizeof *t);
    enum pawl_rc rc = t != NULL ? PAWL_OK : pawl_fail(e, PAWL_NOMEM, "out of memory");

    for (size_t i = 0; i < lane->tasks_n && rc == PAWL_OK; i++)
        rc = db_task_look(db, lane->tasks[i].id, &t[i], e);
    *out = t;
    return rc;
}

static bool is_open(const struct db_task_state *t)
{
    return t->known && !t->paused;
}

/* The best level of (task, queue) behind l->rank that has something due; notes the next due time of
 * those that have not. */
static enum pawl_rc next_level(struct db *db, struct line *l, int64_t task_id, int64_t now_us,
                               bool *found, struct claim_info *info, struct pawl_error *e)
{
    struct query *q = NULL;
    int64_t after = l->rank;
    enum pawl_rc rc;

    *found = false;
    for (int i = 0; i <= 2 * LIMIT_PRIORITY; i++) {
        bool row = false;

        if ((rc = db_q(db, Q_LEVEL, &q, e)) != PAWL_OK)
            return rc;
        q_int(q, 1, task_id);
        q_int(q, 2, l->queue_id);
        q_int(q, 3, after);
        if ((rc = db_row(db, q, &row, e)) != PAWL_OK || !row)
            return rc;
        const int64_t rank = q_i64(q, 0), run_at = q_i64(q, 1);
        q_reset(q);
        if (run_at <= now_us) {
            l->rank = rank;
            l->run_at_us = l->id = INT64_MIN;
            *found = true;
            return PAWL_OK;
        }
        if (info->next_due_us == 0 || run_at < info->next_due_us)
            info->next_due_us = run_at;
        after = rank;
    }
    return PAWL_OK;
}

static void read_counters(struct query *q, int col, struct counters *n)
{
    n->runs = q_i64(q, col);
    n->failures = q_i64(q, col + 1);
    n->lost = q_i64(q, col + 2);
    n->releases = q_i64(q, col + 3);
    n->snoozes = q_i64(q, col + 4);
}

static enum pawl_rc read_chunk(struct db *db, struct line *l, int64_t task_id, int64_t now_us,
                               size_t chunk, struct arena *a, struct pawl_error *e)
{
    struct query *q = NULL;
    bool row = true;
    enum pawl_rc rc;

    l->n = l->at = 0;
    if (l->c == NULL && (l->c = arena_alloc(a, chunk * sizeof *l->c)) == NULL)
        return pawl_fail(e, PAWL_NOMEM, "out of memory");
    if ((rc = db_q(db, Q_DUE, &q, e)) != PAWL_OK)
        return rc;
    q_int(q, 1, task_id);
    q_int(q, 2, l->queue_id);
    q_int(q, 3, l->rank);
    q_int(q, 4, now_us);
    q_int(q, 5, l->run_at_us);
    q_int(q, 6, l->id);
    if (db->engine->locks)
        q_int(q, 7, (int64_t)chunk);
    while (l->n < chunk && (rc = db_row(db, q, &row, e)) == PAWL_OK && row) {
        struct cand *c = &l->c[l->n++];
        l->id = c->id = q_i64(q, 0);
        l->run_at_us = c->run_at_us = q_i64(q, 1);
        read_counters(q, 2, &c->n);
        c->suspect = q_i32(q, 7) != 0;
    }
    q_reset(q);
    return rc;
}

/* What comes next in a line: more of its level, or its next level. n == 0: it is empty. */
static enum pawl_rc refill(struct db *db, struct line *l, int64_t task_id, int64_t now_us,
                           size_t chunk, struct arena *a, struct claim_info *info,
                           struct pawl_error *e)
{
    bool found = true;
    enum pawl_rc rc = read_chunk(db, l, task_id, now_us, chunk, a, e);

    while (rc == PAWL_OK && l->n == 0 && found) {
        rc = next_level(db, l, task_id, now_us, &found, info, e);
        if (rc == PAWL_OK && found)
            rc = read_chunk(db, l, task_id, now_us, chunk, a, e);
    }
    return rc;
}

static enum pawl_rc add_line(struct db *db, struct lines *ls, const struct lane *lane,
                             int32_t task_i, int64_t queue_id, int64_t now_us, struct arena *a,
                             struct claim_info *info, struct pawl_error *e)
{
    struct line l = { .task_i = task_i, .queue_id = queue_id, .rank = -LIMIT_PRIORITY - 1 };
    bool found = false;
    enum pawl_rc rc;

    if ((rc = open_queue(db, lane, queue_id, a, &l.queue, e)) != PAWL_OK || l.queue == NULL)
        return rc;
    if ((rc = next_level(db, &l, lane->tasks[task_i].id, now_us, &found, info, e)) != PAWL_OK ||
        !found || ls->n == LINES_MAX)
        return rc;
    if (ls->n == ls->room) {
        const size_t room = ls->room == 0 ? 16 : ls->room * 2;
        struct line *p = arena_alloc(a, room * sizeof *p);
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
static enum pawl_rc find_lines(struct db *db, struct lines *ls, const struct lane *lane,
                               const struct db_task_state *tasks, int64_t now_us, struct arena *a,
                               struct claim_info *info, struct pawl_error *e)
{
    struct query *q = NULL;
    enum pawl_rc rc;

    for (size_t t = 0; t < lane->tasks_n; t++) {
        int64_t queue_id = 0;
        bool row = true;

        while (is_open(&tasks[t])) { /* a loose scan: one seek per queue with jobs of the task */
            if ((rc = db_q(db, Q_NEXT_QUEUE, &q, e)) != PAWL_OK)
                return rc;
            q_int(q, 1, lane->tasks[t].id);
            q_int(q, 2, queue_id);
            if ((rc = db_row(db, q, &row, e)) != PAWL_OK)
                return rc;
            const bool none = !row || q_is_null(q, 0);
            queue_id = none ? 0 : q_i64(q, 0);
            q_reset(q);
            if (none)
                break;
            if ((rc = add_line(db, ls, lane, (int32_t)t, queue_id, now_us, a, info, e)) != PAWL_OK)
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

static void take(const struct line *l, const struct cand *c, struct job *job)
{
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

struct merger {
    struct db *db;
    const struct lane *lane;
    struct lines ls;
    int64_t now_us;
    size_t chunk;
    struct arena *a;
    struct claim_info *info;
};

static enum pawl_rc merge(struct merger *m, size_t want, struct job *jobs, size_t *n,
                          struct pawl_error *e)
{
    enum pawl_rc rc = PAWL_OK;

    while (*n < want) {
        struct line *best = NULL;

        for (size_t i = 0; i < m->ls.n; i++)
            if (m->ls.l[i].at < m->ls.l[i].n && (best == NULL || before(&m->ls.l[i], best)))
                best = &m->ls.l[i];
        if (best == NULL)
            return PAWL_OK; /* every line is empty */
        take(best, &best->c[best->at], &jobs[*n]);
        ++*n;
        if (++best->at == best->n && *n < want &&
            (rc = refill(m->db, best, m->lane->tasks[best->task_i].id, m->now_us, m->chunk, m->a,
                         m->info, e)) != PAWL_OK)
            return rc;
    }
    m->info->more = true;
    return PAWL_OK;
}

/* Find the lines, read the first chunk of each, merge. */
static enum pawl_rc in_order(struct db *db, const struct lane *lane,
                             const struct db_task_state *tasks, size_t want, int64_t now_us,
                             struct arena *a, struct job *jobs, size_t *n, struct claim_info *info,
                             struct pawl_error *e)
{
    struct merger m = { .db = db, .lane = lane, .now_us = now_us, .a = a, .info = info };
    enum pawl_rc rc = find_lines(db, &m.ls, lane, tasks, now_us, a, info, e);

    /* One line: read what is wanted at once. Several: little of each, more of those that are used.
     * */
    m.chunk = m.ls.n <= 1 || want < CHUNK_MIN ? want : want / m.ls.n;
    if (m.chunk < CHUNK_MIN && want >= CHUNK_MIN)
        m.chunk = CHUNK_MIN;
    for (size_t i = 0; i < m.ls.n && rc == PAWL_OK; i++)
        rc = read_chunk(db, &m.ls.l[i], lane->tasks[m.ls.l[i].task_i].id, now_us, m.chunk, a, e);
    return rc == PAWL_OK ? merge(&m, want, jobs, n, e) : rc;
}

/* A due suspect runs before everything else, and alone. */
static enum pawl_rc suspects(struct db *db, const struct lane *lane,
                             const struct db_task_state *tasks, int64_t now_us, bool alone,
                             struct arena *a, struct job *jobs, size_t *n, struct claim_info *info,
                             struct pawl_error *e)
{
    enum pawl_rc rc = PAWL_OK;

    for (size_t t = 0; t < lane->tasks_n && *n == 0 && rc == PAWL_OK; t++) {
        struct query *q = NULL;
        bool row = true;

        if (!is_open(&tasks[t]) || !tasks[t].suspects)
            continue;
        if ((rc = db_q(db, Q_SUSPECT, &q, e)) != PAWL_OK)
            return rc;
        q_int(q, 1, lane->tasks[t].id);
        q_int(q, 2, now_us);
        while ((rc = db_row(db, q, &row, e)) == PAWL_OK && row && *n == 0) {
            struct line l = { .task_i = (int32_t)t, .queue_id = q_i64(q, 0),
                              .rank = q_i64(q, 1) };
            struct cand c = { .id = q_i64(q, 2),
                              .run_at_us = q_i64(q, 3), .suspect = true };

            read_counters(q, 4, &c.n);
            if ((rc = open_queue(db, lane, l.queue_id, a, &l.queue, e)) != PAWL_OK)
                break;
            if (l.queue == NULL)
                continue;
            info->suspect_waiting = true;
            if (!alone)
                break;
            take(&l, &c, &jobs[(*n)++]);
        }
        q_reset(q);
        if (info->suspect_waiting)
            break;
    }
    return rc;
}

enum pawl_rc db_job_row(struct query *q, int at, struct job *job, struct arena *a,
                        struct pawl_error *e)
{
    job->root_id = q_i64(q, at);
    job->gen = q_i64(q, at + 1);
    job->source = q_dup(a, q, at + 2);
    job->key = q_dup(a, q, at + 3);
    job->args = q_dup(a, q, at + 4);
    job->args_bytes = (size_t)q_bytes(q, at + 4);
    job->headers = q_dup(a, q, at + 5);
    job->trace = q_dup(a, q, at + 6);
    job->entity = q_dup(a, q, at + 7);
    job->has_version = !q_is_null(q, at + 8);
    job->version = q_i64(q, at + 8);
    job->max_retries = q_is_null(q, at + 9) ? -1 : q_i32(q, at + 9);
    job->expires_at_us = q_i64(q, at + 10);
    job->created_at_us = q_i64(q, at + 11);
    return job->args != NULL && job->source != NULL ? PAWL_OK
                                                    : pawl_fail(e, PAWL_NOMEM, "out of memory");
}

/* Without a row there is damage: the job is handed out anyway, as undecodable, so that it cannot
 * block the queue. */
static enum pawl_rc read_job(struct db *db, struct job *job, struct arena *a,
                             struct pawl_error *e)
{
    struct query *q = NULL;
    bool row = false;
    enum pawl_rc rc;

    if ((rc = db_q(db, Q_JOB_READ, &q, e)) != PAWL_OK)
        return rc;
    q_int(q, 1, job->id);
    if ((rc = db_row(db, q, &row, e)) != PAWL_OK || !row)
        return rc;
    rc = db_job_row(q, 0, job, a, e);
    q_reset(q);
    return rc;
}

enum pawl_rc db_choose(struct db *db, const struct lane *lane, size_t want, bool alone,
                       struct arena *arena, struct job *jobs, size_t *n, struct claim_info *info,
                       struct pawl_error *e)
{
    const int64_t now_us = db->env->wall_us(db->env->ctx);
    struct db_task_state *tasks = NULL;
    enum pawl_rc rc;

    *n = 0;
    memset(info, 0, sizeof *info);
    if (want == 0 || lane == NULL)
        return PAWL_OK;
    if ((rc = look_at_tasks(db, lane, arena, &tasks, e)) != PAWL_OK)
        return rc;
    if ((rc = suspects(db, lane, tasks, now_us, alone, arena, jobs, n, info, e)) != PAWL_OK)
        return rc;
    if (!info->suspect_waiting &&
        (rc = in_order(db, lane, tasks, want, now_us, arena, jobs, n, info, e)) != PAWL_OK)
        return rc;
    const bool at_once = db->engine->read_jobs != NULL;
    if (at_once && *n > 0 && (rc = db->engine->read_jobs(db, jobs, *n, arena, e)) != PAWL_OK)
        return rc;
    for (size_t i = 0, bytes = 0; i < *n; i++) {
        if (bytes > BATCH_BYTES_MAX) { /* the rest was only chosen: it stays where it is */
            *n = i;
            info->more = true;
            break;
        }
        if (!at_once && (rc = read_job(db, &jobs[i], arena, e)) != PAWL_OK)
            return rc;
        bytes += jobs[i].args_bytes;
        jobs[i].started_at_us = now_us;
    }
    return PAWL_OK;
}
