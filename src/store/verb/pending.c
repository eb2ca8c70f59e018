// SPDX-License-Identifier: Apache-2.0
/* pending.c - is anything left of a lane's tasks, and if not, what stays?
 *
 * Keeps: one snapshot, so that a job cannot slip from one place to another between two looks.
 *        The look ends with the first job found, and costs a seek per (task, queue, priority) plus
 *        what runs and what was moved (retries, above all): never the backlog. Only when nothing is
 *        left, once, is all that stays counted.
 */
#include <string.h>
#include "base/err.h"
#include "store/verb/db.h"

static bool listed(const struct lane *lane, const char *queue)
{
    for (size_t i = 0; i < lane->queues_n; i++)
        if (strcmp(lane->queues[i], queue) == 0)
            return true;
    return lane->queues_n == 0;
}

/* Does this lane serve the queue, and do its jobs wait for a resume? */
static enum pawl_rc queue_is(struct db *db, const struct lane *lane, int64_t queue_id,
                             bool *ours, bool *paused, struct pawl_error *e)
{
    struct query *q = NULL;
    bool row = false;
    enum pawl_rc rc;

    *ours = *paused = false;
    if ((rc = db_q(db, Q_QUEUE_INFO, &q, e)) != PAWL_OK)
        return rc;
    q_int(q, 1, queue_id);
    if ((rc = db_row(db, q, &row, e)) != PAWL_OK || !row)
        return rc;
    *ours = listed(lane, q_str(q, 0));
    *paused = q_i32(q, 1) != 0;
    q_reset(q);
    return PAWL_OK;
}

static void sooner(int64_t *next_us, int64_t at_us)
{
    if (*next_us == 0 || at_us < *next_us)
        *next_us = at_us;
}

/* One queue of a task: the first row of each priority is its earliest. */
static enum pawl_rc due_in(struct db *db, int64_t task_id, int64_t queue_id, int64_t now_us,
                           struct pending *out, struct pawl_error *e)
{
    int64_t rank = -LIMIT_PRIORITY - 1;
    struct query *q = NULL;
    bool row = true;
    enum pawl_rc rc;

    while (out->due == 0) {
        if ((rc = db_q(db, Q_LEVEL, &q, e)) != PAWL_OK)
            return rc;
        q_int(q, 1, task_id);
        q_int(q, 2, queue_id);
        q_int(q, 3, rank);
        if ((rc = db_row(db, q, &row, e)) != PAWL_OK || !row)
            return rc;
        rank = q_i64(q, 0);
        if (q_i64(q, 1) <= now_us)
            out->due = 1;
        else
            sooner(&out->next_due_us, q_i64(q, 1));
        q_reset(q);
    }
    return PAWL_OK;
}

static enum pawl_rc find_due(struct db *db, const struct lane *lane, int64_t task_id,
                             int64_t now_us, struct pending *out, struct pawl_error *e)
{
    bool row = false, ours, paused;
    struct db_task_state task;
    struct query *q = NULL;
    int64_t queue_id = 0;
    enum pawl_rc rc = db_task_look(db, task_id, &task, e);

    if (rc != PAWL_OK || task.paused)
        return rc;
    while (out->due == 0) {
        if ((rc = db_q(db, Q_NEXT_QUEUE, &q, e)) != PAWL_OK)
            return rc;
        q_int(q, 1, task_id);
        q_int(q, 2, queue_id);
        if ((rc = db_row(db, q, &row, e)) != PAWL_OK)
            return rc;
        const bool none = !row || q_is_null(q, 0);
        queue_id = none ? 0 : q_i64(q, 0);
        q_reset(q);
        if (none || (rc = queue_is(db, lane, queue_id, &ours, &paused, e)) != PAWL_OK)
            return rc;
        if (ours && !paused && (rc = due_in(db, task_id, queue_id, now_us, out, e)) != PAWL_OK)
            return rc;
    }
    return PAWL_OK;
}

/* Is one of these rows (their queue's id) in a queue of ours? may_pause: and not paused. */
static enum pawl_rc any(struct db *db, const struct lane *lane, struct query *q, bool may_pause,
                        int64_t *found, struct pawl_error *e)
{
    bool row = true, ours, paused;
    enum pawl_rc rc;

    while (*found == 0 && (rc = db_row(db, q, &row, e)) == PAWL_OK && row) {
        if ((rc = queue_is(db, lane, q_i64(q, 0), &ours, &paused, e)) != PAWL_OK)
            break;
        *found = ours && !(may_pause && paused);
    }
    q_reset(q);
    return *found != 0 ? PAWL_OK : rc;
}

static enum pawl_rc find_running(struct db *db, const struct lane *lane, int64_t task_id,
                                 struct pending *out, struct pawl_error *e)
{
    struct query *q = NULL;
    enum pawl_rc rc;

    if ((rc = db_q(db, Q_RUNNING_OF, &q, e)) != PAWL_OK)
        return rc;
    q_int(q, 1, task_id);
    return any(db, lane, q, false, &out->running, e);
}

static enum pawl_rc find_retrying(struct db *db, const struct lane *lane, int64_t task_id,
                                  int64_t now_us, struct pending *out, struct pawl_error *e)
{
    struct query *q = NULL;
    struct db_task_state task;
    enum pawl_rc rc = db_task_look(db, task_id, &task, e);

    if (rc != PAWL_OK || task.paused)
        return rc;
    if ((rc = db_q(db, Q_RETRYING_OF, &q, e)) != PAWL_OK)
        return rc;
    q_int(q, 1, task_id);
    q_int(q, 2, now_us);
    return any(db, lane, q, true, &out->retrying, e);
}

static enum pawl_rc look(struct db *db, const struct lane *lane, struct pending *out,
                         struct pawl_error *e)
{
    const int64_t now_us = db->env->wall_us(db->env->ctx);
    enum pawl_rc rc = PAWL_OK;

    for (size_t i = 0; i < lane->tasks_n && rc == PAWL_OK && out->due == 0; i++)
        rc = find_due(db, lane, lane->tasks[i].id, now_us, out, e);
    if (out->due > 0)
        return rc;
    for (size_t i = 0; i < lane->tasks_n && rc == PAWL_OK && out->running == 0; i++)
        rc = find_running(db, lane, lane->tasks[i].id, out, e);
    if (out->running > 0)
        return rc;
    for (size_t i = 0; i < lane->tasks_n && rc == PAWL_OK && out->retrying == 0; i++)
        rc = find_retrying(db, lane, lane->tasks[i].id, now_us, out, e);
    return rc;
}

/* What stays behind: read once, by a worker that is about to end. */
static enum pawl_rc count_rest(struct db *db, const struct lane *lane, struct pending *out,
                               struct pawl_error *e)
{
    const int64_t now_us = db->env->wall_us(db->env->ctx);
    struct query *q = NULL;
    enum pawl_rc rc = PAWL_OK;

    if ((rc = db_prepare(db, "SELECT q.name, q.paused + t.paused, count(*),"
            " count(*) FILTER (WHERE w.runs = 0 AND w.run_at_us > ?2) FROM pawl_x_ready w"
            " JOIN pawl_x_queue q ON q.id = w.queue_id JOIN pawl_x_task t ON t.id = w.task_id"
            " WHERE w.task_id = ?1 AND " DB_SANE " GROUP BY q.name, q.paused, t.paused", &q,
                         e)) != PAWL_OK)
        return rc;
    for (size_t i = 0; i < lane->tasks_n && rc == PAWL_OK; i++) {
        bool row = true;

        q_reset(q);
        q_int(q, 1, lane->tasks[i].id);
        q_int(q, 2, now_us);
        while ((rc = db_row(db, q, &row, e)) == PAWL_OK && row) {
            const int64_t n = q_i64(q, 2), later = q_i64(q, 3);

            if (!listed(lane, q_str(q, 0)))
                continue;
            out->later += later;
            if (q_i32(q, 1) != 0)
                out->paused += n - later;
        }
    }
    q_free(q);
    return rc;
}

enum pawl_rc db_pending(struct store *st, const struct lane *lane, struct pending *out,
                        struct pawl_error *e)
{
    struct db *db = db_of(st);
    enum pawl_rc rc;

    memset(out, 0, sizeof *out);
    if ((rc = db_ready(db, e)) != PAWL_OK)
        return rc;
    if ((rc = db_snapshot(db, e)) != PAWL_OK)
        return rc;
    rc = look(db, lane, out, e);
    db_snapshot_end(db);
    if (rc != PAWL_OK || out->due + out->running + out->retrying > 0)
        return rc;
    return count_rest(db, lane, out, e);
}
