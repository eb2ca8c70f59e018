// SPDX-License-Identifier: Apache-2.0
/* claim.c - choose due jobs: a suspect alone, or the next in order (claim_line.c). Reads only;
 * inside a transaction.
 *
 * Keeps: pauses hold from the next choice on; a due suspect runs before everything else, and alone.
 */
#include <assert.h>
#include <string.h>
#include "base/err.h"
#include "store/verb/claim.h"

#define BATCH_BYTES_MAX (8 << 20) /* of args in one claim */

int64_t db_lane_task(const struct lane *lane, const struct job *job)
{
    assert(job->task_i >= 0 && (size_t)job->task_i < lane->tasks_n);
    return lane->tasks[job->task_i].id;
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

/* A due suspect runs before everything else, and alone. */
static enum pawl_rc suspects(const struct choice *c, bool alone, struct job *jobs, size_t *n,
                             struct pawl_error *e)
{
    enum { PLACE = 10 };
    enum pawl_rc rc = PAWL_OK;

    for (size_t t = 0; t < c->lane->tasks_n && *n == 0 && rc == PAWL_OK; t++) {
        struct query *q = NULL;
        bool row = true;

        if (!claim_is_open(&c->tasks[t]) || !c->tasks[t].suspects)
            continue;
        if ((rc = db_q(c->db, Q_SUSPECT, &q, e)) != PAWL_OK)
            return rc;
        q_int(q, 1, c->lane->tasks[t].id);
        q_int(q, 2, c->now_us);
        while ((rc = db_row(c->db, q, &row, e)) == PAWL_OK && row && *n == 0) {
            struct line l = {.task_i = (int32_t)t, .queue_id = q_i64(q, 0), .rank = q_i64(q, 1)};
            struct cand cand = {.id = q_i64(q, 2), .run_at_us = q_i64(q, 3), .suspect = true};

            claim_read_counters(q, 4, &cand.n);
            if ((rc = claim_open_queue(c, l.queue_id, &l.queue, e)) != PAWL_OK)
                break;
            if (l.queue == NULL)
                continue;
            c->info->suspect_waiting = true;
            if (!alone)
                break;
            claim_take(&l, &cand, &jobs[*n]);
            if (c->db->engine->locks) jobs[*n].place = c->db->engine->place(q, PLACE);
            ++*n;
        }
        q_reset(q);
        if (c->info->suspect_waiting)
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
    struct choice c = {.db = db,
                       .lane = lane,
                       .want = want,
                       .a = arena,
                       .info = info,
                       .now_us = db->env->wall_us(db->env->ctx),
                       .start_us = db->env->mono_us(db->env->ctx),
                       .low = claim_begins_low(db)};
    struct db_task_state *tasks = NULL;
    enum pawl_rc rc;

    assert(!db->look.took); /* a rollback would bring back what this look sees gone */
    *n = 0;
    memset(info, 0, sizeof *info);
    if (want == 0 || lane == NULL)
        return PAWL_OK;
    if ((rc = claim_ask_ahead(&c, e)) != PAWL_OK ||
        (rc = look_at_tasks(db, lane, arena, &tasks, e)) != PAWL_OK)
        return rc;
    c.tasks = tasks;
    if ((rc = suspects(&c, alone, jobs, n, e)) != PAWL_OK)
        return rc;
    if (!info->suspect_waiting && (rc = claim_in_order(&c, jobs, n, e)) != PAWL_OK)
        return rc;
    db->look.took = *n > 0;
    for (size_t i = 0, bytes = 0; i < *n; i++) {
        if (bytes > BATCH_BYTES_MAX) { /* the rest was only chosen: it stays where it is */
            *n = i;
            info->more = true;
            break;
        }
        if (jobs[i].args == NULL && (rc = read_job(db, &jobs[i], arena, e)) != PAWL_OK)
            return rc;
        bytes += jobs[i].args_bytes;
        jobs[i].started_at_us = c.now_us;
    }
    return PAWL_OK;
}
