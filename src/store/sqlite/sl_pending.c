// SPDX-License-Identifier: Apache-2.0
/* sl_pending.c - is anything left of a lane's tasks, and if not, what stays?
 *
 * Keeps: one snapshot, so that a job cannot slip from one place to another between two looks.
 *        The look ends with the first job found, and costs a seek per (task, queue, priority) plus
 *        what runs and what was moved (retries, above all): never the backlog. Only when nothing is
 *        left, once, is all that stays counted.
 */
#include <string.h>
#include "base/err.h"
#include "store/sqlite/sl.h"

static bool listed(const struct lane *lane, const char *queue)
{
    for (size_t i = 0; i < lane->queues_n; i++)
        if (strcmp(lane->queues[i], queue) == 0)
            return true;
    return lane->queues_n == 0;
}

/* Does this lane serve the queue, and do its jobs wait for a resume? */
static enum pawl_rc queue_is(struct sqlite *sl, const struct lane *lane, int64_t queue_id,
                             bool *ours, bool *paused, struct pawl_error *e)
{
    sqlite3_stmt *q = NULL;
    bool row = false;
    enum pawl_rc rc;

    *ours = *paused = false;
    if ((rc = sl_q(sl, SLQ_QUEUE_INFO, &q, e)) != PAWL_OK)
        return rc;
    sqlite3_bind_int64(q, 1, queue_id);
    if ((rc = sl_row(sl, q, &row, e)) != PAWL_OK || !row)
        return rc;
    *ours = listed(lane, (const char *)sqlite3_column_text(q, 0));
    *paused = sqlite3_column_int(q, 1) != 0;
    sqlite3_reset(q);
    return PAWL_OK;
}

static void sooner(int64_t *next_us, int64_t at_us)
{
    if (*next_us == 0 || at_us < *next_us)
        *next_us = at_us;
}

/* One queue of a task: the first row of each priority is its earliest. */
static enum pawl_rc due_in(struct sqlite *sl, int64_t task_id, int64_t queue_id, int64_t now_us,
                           struct pending *out, struct pawl_error *e)
{
    int64_t rank = -LIMIT_PRIORITY - 1;
    sqlite3_stmt *q = NULL;
    bool row = true;
    enum pawl_rc rc;

    while (out->due == 0) {
        if ((rc = sl_q(sl, SLQ_LEVEL, &q, e)) != PAWL_OK)
            return rc;
        sqlite3_bind_int64(q, 1, task_id);
        sqlite3_bind_int64(q, 2, queue_id);
        sqlite3_bind_int64(q, 3, rank);
        if ((rc = sl_row(sl, q, &row, e)) != PAWL_OK || !row)
            return rc;
        rank = sqlite3_column_int64(q, 0);
        if (sqlite3_column_int64(q, 1) <= now_us)
            out->due = 1;
        else
            sooner(&out->next_due_us, sqlite3_column_int64(q, 1));
        sqlite3_reset(q);
    }
    return PAWL_OK;
}

static enum pawl_rc find_due(struct sqlite *sl, const struct lane *lane, int64_t task_id,
                             int64_t now_us, struct pending *out, struct pawl_error *e)
{
    bool row = false, ours, paused;
    struct sl_task_state task;
    sqlite3_stmt *q = NULL;
    int64_t queue_id = 0;
    enum pawl_rc rc = sl_task_look(sl, task_id, &task, e);

    if (rc != PAWL_OK || task.paused)
        return rc;
    while (out->due == 0) {
        if ((rc = sl_q(sl, SLQ_NEXT_QUEUE, &q, e)) != PAWL_OK)
            return rc;
        sqlite3_bind_int64(q, 1, task_id);
        sqlite3_bind_int64(q, 2, queue_id);
        if ((rc = sl_row(sl, q, &row, e)) != PAWL_OK)
            return rc;
        const bool none = !row || sqlite3_column_type(q, 0) == SQLITE_NULL;
        queue_id = none ? 0 : sqlite3_column_int64(q, 0);
        sqlite3_reset(q);
        if (none || (rc = queue_is(sl, lane, queue_id, &ours, &paused, e)) != PAWL_OK)
            return rc;
        if (ours && !paused && (rc = due_in(sl, task_id, queue_id, now_us, out, e)) != PAWL_OK)
            return rc;
    }
    return PAWL_OK;
}

/* Is one of these rows (their queue's id) in a queue of ours? may_pause: and not paused. */
static enum pawl_rc any(struct sqlite *sl, const struct lane *lane, sqlite3_stmt *q, bool may_pause,
                        int64_t *found, struct pawl_error *e)
{
    bool row = true, ours, paused;
    enum pawl_rc rc;

    while (*found == 0 && (rc = sl_row(sl, q, &row, e)) == PAWL_OK && row) {
        if ((rc = queue_is(sl, lane, sqlite3_column_int64(q, 0), &ours, &paused, e)) != PAWL_OK)
            break;
        *found = ours && !(may_pause && paused);
    }
    sqlite3_reset(q);
    return *found != 0 ? PAWL_OK : rc;
}

static enum pawl_rc find_running(struct sqlite *sl, const struct lane *lane, int64_t task_id,
                                 struct pending *out, struct pawl_error *e)
{
    sqlite3_stmt *q = NULL;
    enum pawl_rc rc;

    if ((rc = sl_q(sl, SLQ_RUNNING_OF, &q, e)) != PAWL_OK)
        return rc;
    sqlite3_bind_int64(q, 1, task_id);
    return any(sl, lane, q, false, &out->running, e);
}

static enum pawl_rc find_retrying(struct sqlite *sl, const struct lane *lane, int64_t task_id,
                                  int64_t now_us, struct pending *out, struct pawl_error *e)
{
    sqlite3_stmt *q = NULL;
    struct sl_task_state task;
    enum pawl_rc rc = sl_task_look(sl, task_id, &task, e);

    if (rc != PAWL_OK || task.paused)
        return rc;
    if ((rc = sl_q(sl, SLQ_RETRYING_OF, &q, e)) != PAWL_OK)
        return rc;
    sqlite3_bind_int64(q, 1, task_id);
    sqlite3_bind_int64(q, 2, now_us);
    return any(sl, lane, q, true, &out->retrying, e);
}

static enum pawl_rc look(struct sqlite *sl, const struct lane *lane, struct pending *out,
                         struct pawl_error *e)
{
    const int64_t now_us = sl->env->wall_us(sl->env->ctx);
    enum pawl_rc rc = PAWL_OK;

    for (size_t i = 0; i < lane->tasks_n && rc == PAWL_OK && out->due == 0; i++)
        rc = find_due(sl, lane, lane->tasks[i].id, now_us, out, e);
    if (out->due > 0)
        return rc;
    for (size_t i = 0; i < lane->tasks_n && rc == PAWL_OK && out->running == 0; i++)
        rc = find_running(sl, lane, lane->tasks[i].id, out, e);
    if (out->running > 0)
        return rc;
    for (size_t i = 0; i < lane->tasks_n && rc == PAWL_OK && out->retrying == 0; i++)
        rc = find_retrying(sl, lane, lane->tasks[i].id, now_us, out, e);
    return rc;
}

/* What stays behind: read once, by a worker that is about to end. */
static enum pawl_rc count_rest(struct sqlite *sl, const struct lane *lane, struct pending *out,
                               struct pawl_error *e)
{
    const int64_t now_us = sl->env->wall_us(sl->env->ctx);
    sqlite3_stmt *q = NULL;
    enum pawl_rc rc = PAWL_OK;

    if (sqlite3_prepare_v2(sl->db, "SELECT q.name, q.paused OR t.paused, count(*),"
            " sum(w.runs = 0 AND w.run_at_us > ?2) FROM pawl_x_ready w"
            " JOIN pawl_x_queue q ON q.id = w.queue_id JOIN pawl_x_task t ON t.id = w.task_id"
            " WHERE w.task_id = ?1 AND " SL_SANE " GROUP BY w.queue_id", -1, &q, NULL) != SQLITE_OK)
        return sl_fail(sl, e, "pending");
    for (size_t i = 0; i < lane->tasks_n && rc == PAWL_OK; i++) {
        bool row = true;

        sqlite3_reset(q);
        sqlite3_bind_int64(q, 1, lane->tasks[i].id);
        sqlite3_bind_int64(q, 2, now_us);
        while ((rc = sl_row(sl, q, &row, e)) == PAWL_OK && row) {
            const int64_t n = sqlite3_column_int64(q, 2), later = sqlite3_column_int64(q, 3);

            if (!listed(lane, (const char *)sqlite3_column_text(q, 0)))
                continue;
            out->later += later;
            if (sqlite3_column_int(q, 1) != 0)
                out->paused += n - later;
        }
    }
    sqlite3_finalize(q);
    return rc;
}

enum pawl_rc sl_pending(struct store *st, const struct lane *lane, struct pending *out,
                        struct pawl_error *e)
{
    struct sqlite *sl = sl_of(st);
    enum pawl_rc rc;

    memset(out, 0, sizeof *out);
    if (sl->db == NULL && (rc = sl_connect(sl, false, e)) != PAWL_OK)
        return rc;
    if ((rc = sl_exec(sl, "BEGIN", e)) != PAWL_OK)
        return rc;
    rc = look(sl, lane, out, e);
    sqlite3_exec(sl->db, "ROLLBACK", NULL, NULL, NULL);
    if (rc != PAWL_OK || out->due + out->running + out->retrying > 0)
        return rc;
    return count_rest(sl, lane, out, e);
}
