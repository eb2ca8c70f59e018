// SPDX-License-Identifier: Apache-2.0
/* sl_people.c - what a person does to jobs: cancel, run now, replay, discard, pause.
 *
 * Keeps: one statement decides, its row count is checked, and the answer is the truth: done, too
 *        late, not found. A replay is a compare-and-set on replayed_as plus the new job, one
 *        commit.
 */
#include <assert.h>
#include <string.h>
#include "base/err.h"
#include "base/fail.h"
#include "core/lifecycle.h"
#include "core/rules.h"
#include "store/sqlite/sl.h"

static void read_counters(sqlite3_stmt *q, int col, struct counters *n)
{
    n->runs = sqlite3_column_int64(q, col);
    n->failures = sqlite3_column_int64(q, col + 1);
    n->lost = sqlite3_column_int64(q, col + 2);
    n->releases = sqlite3_column_int64(q, col + 3);
    n->snoozes = sqlite3_column_int64(q, col + 4);
}

/* The ready row of a job, by its key from the job row or, if it moved, by id. */
static enum pawl_rc find_ready(struct sqlite *sl, int64_t id, struct job *job, int64_t *task_id,
                               bool *found, struct pawl_error *e)
{
    const enum slq ways[] = { SLQ_FIND_READY, SLQ_FIND_MOVED };
    enum pawl_rc rc = PAWL_OK;

    *found = false;
    for (size_t i = 0; i < 2 && !*found; i++) {
        sqlite3_stmt *q = NULL;

        if ((rc = sl_q(sl, ways[i], &q, e)) != PAWL_OK)
            return rc;
        sqlite3_bind_int64(q, 1, id);
        if ((rc = sl_row(sl, q, found, e)) != PAWL_OK)
            return rc;
        if (!*found)
            continue;
        memset(job, 0, sizeof *job);
        job->id = id;
        *task_id = sqlite3_column_int64(q, 0);
        job->queue_id = sqlite3_column_int64(q, 1);
        job->rank = sqlite3_column_int64(q, 2);
        job->run_at_us = sqlite3_column_int64(q, 3);
        read_counters(q, 4, &job->n);
        job->suspect = sqlite3_column_int(q, 9) != 0;
        sqlite3_reset(q);
    }
    return rc;
}

/* TOOLATE with the state, or NOTFOUND. */
static enum pawl_rc not_there(struct sqlite *sl, int64_t id, enum pawl_state *state,
                              const char *verb, struct pawl_error *e)
{
    sqlite3_stmt *q = NULL;
    bool row = false;
    enum pawl_rc rc;

    if ((rc = sl_q(sl, SLQ_STATE, &q, e)) != PAWL_OK)
        return rc;
    sqlite3_bind_int64(q, 1, id);
    if ((rc = sl_row(sl, q, &row, e)) != PAWL_OK)
        return rc;
    if (!row)
        return pawl_fail(e, PAWL_NOTFOUND, "no job %lld", (long long)id);
    *state = PAWL_STATE_READY;
    for (int s = 0; s < PAWL_STATE_N; s++)
        if (strcmp(pawl_state_name((enum pawl_state)s), (const char *)sqlite3_column_text(q,
                0)) == 0)
            *state = (enum pawl_state)s;
    sqlite3_reset(q);
    return pawl_fail(e, PAWL_TOOLATE, "job %lld is %s: too late to %s it", (long long)id,
                     pawl_state_name(*state), verb);
}

static enum pawl_rc finish(struct sqlite *sl, enum pawl_rc rc, struct pawl_error *e)
{
    if (rc == PAWL_OK)
        rc = sl_commit(sl, e);
    else
        sl_rollback(sl);
    sl_leave(sl);
    if (rc == PAWL_OK)
        side_wake(&sl->side);
    return rc;
}

static enum pawl_rc put_cancelled(struct sqlite *sl, int64_t id, const struct counters *n,
                                  const char *reason, struct pawl_error *e)
{
    sqlite3_stmt *q = NULL;
    enum pawl_rc rc;

    if ((rc = sl_q(sl, SLQ_CANCELLED_PUT, &q, e)) != PAWL_OK)
        return rc;
    sqlite3_bind_int64(q, 1, id);
    sl_text(q, 2, reason);
    sqlite3_bind_int64(q, 3, sl->env->wall_us(sl->env->ctx));
    sqlite3_bind_int64(q, 4, n->runs);
    sqlite3_bind_int64(q, 5, n->failures);
    sqlite3_bind_int64(q, 6, n->lost);
    sqlite3_bind_int64(q, 7, n->releases);
    sqlite3_bind_int64(q, 8, n->snoozes);
    return sl_run(sl, q, e);
}

/* The run that is cut short is an attempt as any other: by whom, since when. */
static enum pawl_rc put_cut(struct sqlite *sl, int64_t id, int64_t runs, struct pawl_error *e)
{
    sqlite3_stmt *q = NULL;
    enum pawl_rc rc;

    if ((rc = sl_q(sl, SLQ_ATTEMPT_CUT, &q, e)) != PAWL_OK)
        return rc;
    sqlite3_bind_int64(q, 1, id);
    sqlite3_bind_int64(q, 2, sl->env->wall_us(sl->env->ctx));
    if ((rc = sl_run(sl, q, e)) != PAWL_OK || runs <= LIMIT_ATTEMPT_ROWS)
        return rc;
    if ((rc = sl_q(sl, SLQ_ATTEMPT_TRIM, &q, e)) != PAWL_OK)
        return rc;
    sqlite3_bind_int64(q, 1, id);
    sqlite3_bind_int64(q, 2, runs - LIMIT_ATTEMPT_ROWS);
    return sl_run(sl, q, e);
}

/* A running job: take its row under the lease it has now, and its runner is void. */
static enum pawl_rc cancel_running(struct sqlite *sl, int64_t id, bool *done, struct pawl_error *e)
{
    struct counters n = {0};
    sqlite3_stmt *q = NULL, *f = NULL;
    bool row = false;
    enum pawl_rc rc;

    *done = false;
    if ((rc = sl_q(sl, SLQ_RUNNING_GET, &q, e)) != PAWL_OK)
        return rc;
    sqlite3_bind_int64(q, 1, id);
    if ((rc = sl_row(sl, q, &row, e)) != PAWL_OK || !row)
        return rc;
    read_counters(q, 1, &n);
    n.runs++;
    if ((rc = put_cut(sl, id, n.runs, e)) != PAWL_OK)
        return rc;
    if ((rc = sl_q(sl, SLQ_FENCE, &f, e)) != PAWL_OK)
        return rc;
    sqlite3_bind_int64(f, 1, id);
    sqlite3_bind_value(f, 2, sqlite3_column_value(q, 0));
    rc = sl_run(sl, f, e);
    sqlite3_reset(q);
    if (rc != PAWL_OK || sqlite3_changes(sl->db) != 1)
        return rc;
    *done = true;
    return put_cancelled(sl, id, &n, "cancelled while running", e);
}

enum pawl_rc sl_cancel(struct store *st, int64_t id, enum pawl_state *state, struct pawl_error *e)
{
    struct sqlite *sl = sl_of(st);
    struct job job;
    int64_t task_id = 0;
    bool done = false;
    enum pawl_rc rc;

    assert(lifecycle_next(PAWL_STATE_READY, EV_CANCEL) == PAWL_STATE_CANCELLED);
    if ((rc = sl_begin(sl, e)) != PAWL_OK)
        return rc;
    if (fail_point("cancel.before")) {
        rc = pawl_fail(e, PAWL_IO, "failpoint cancel.before");
        goto out;
    }
    if ((rc = find_ready(sl, id, &job, &task_id, &done, e)) != PAWL_OK)
        goto out;
    if (done) {
        if ((rc = sl_take_ready(sl, task_id, &job, &done, e)) == PAWL_OK)
            rc = done ? put_cancelled(sl, id, &job.n, "cancelled while waiting", e)
                      : pawl_fail(e, PAWL_BUG, "job %lld moved inside the transaction",
                                  (long long)id);
    } else if ((rc = cancel_running(sl, id, &done, e)) == PAWL_OK && !done) {
        rc = not_there(sl, id, state, "cancel", e);
    }
    if (rc == PAWL_OK)
        *state = PAWL_STATE_CANCELLED;
out:
    return finish(sl, rc, e);
}

enum pawl_rc sl_run_now(struct store *st, int64_t id, enum pawl_state *state, struct pawl_error *e)
{
    struct sqlite *sl = sl_of(st);
    const int64_t now_us = st->env->wall_us(st->env->ctx);
    sqlite3_stmt *q = NULL;
    struct job job;
    int64_t task_id = 0;
    bool found = false;
    enum pawl_rc rc;

    if ((rc = sl_begin(sl, e)) != PAWL_OK)
        return rc;
    if ((rc = find_ready(sl, id, &job, &task_id, &found, e)) != PAWL_OK)
        goto out;
    if (!found) {
        rc = not_there(sl, id, state, "run", e);
        goto out;
    }
    *state = PAWL_STATE_READY;
    if (job.run_at_us <= now_us)
        goto out; /* due already: nothing to skip, and its place in the line is kept */
    if ((rc = sl_q(sl, SLQ_READY_RUN_NOW, &q, e)) != PAWL_OK)
        goto out;
    sqlite3_bind_int64(q, 1, task_id);
    sqlite3_bind_int64(q, 2, job.queue_id);
    sqlite3_bind_int64(q, 3, job.rank);
    sqlite3_bind_int64(q, 4, job.run_at_us);
    sqlite3_bind_int64(q, 5, id);
    sqlite3_bind_int64(q, 6, now_us);
    rc = sl_run(sl, q, e);
out:
    return finish(sl, rc, e);
}

/* The new job of a replay: same task, queue, source, key, headers, entity, version; args maybe
 * new. */
static enum pawl_rc birth(struct sqlite *sl, sqlite3_stmt *d, int64_t id,
                          const struct pawl_replay *how,
                          int64_t now_us, int64_t *new_id, struct pawl_error *e)
{
    sqlite3_stmt *q = NULL;
    enum pawl_rc rc;

    if ((rc = sl_q(sl, SLQ_JOB_ADD, &q, e)) != PAWL_OK)
        return rc;
    for (int i = 0; i < 4; i++) /* task, queue, source, key */
        sqlite3_bind_value(q, 1 + i, sqlite3_column_value(d, 3 + i));
    if (how->args != NULL)
        sl_text_n(q, 5, how->args, how->args_bytes);
    else
        sqlite3_bind_value(q, 5, sqlite3_column_value(d, 7));
    for (int i = 0; i < 6; i++) /* headers, trace, entity, version, priority, max_retries */
        sqlite3_bind_value(q, 6 + i, sqlite3_column_value(d, 8 + i));
    sqlite3_bind_int64(q, 12, now_us);
    sqlite3_bind_int64(q, 14, now_us);
    sqlite3_bind_int64(q, 15, sqlite3_column_int64(d, 2));
    sqlite3_bind_int64(q, 16, sqlite3_column_int64(d, 1) + 1);
    sqlite3_bind_int64(q, 17, id);
    if ((rc = sl_run(sl, q, e)) != PAWL_OK)
        return rc;
    *new_id = sqlite3_last_insert_rowid(sl->db);
    if ((rc = sl_q(sl, SLQ_READY_ADD, &q, e)) != PAWL_OK)
        return rc;
    sqlite3_bind_int64(q, 1, sqlite3_column_int64(d, 3));
    sqlite3_bind_int64(q, 2, sqlite3_column_int64(d, 4));
    sqlite3_bind_int64(q, 3, -sqlite3_column_int64(d, 12));
    sqlite3_bind_int64(q, 4, now_us);
    sqlite3_bind_int64(q, 5, *new_id);
    return sl_run(sl, q, e);
}

static enum pawl_rc replay_inside(struct sqlite *sl, int64_t id, const struct pawl_replay *how,
                                  int64_t *new_id, struct pawl_error *e)
{
    enum pawl_state state = PAWL_STATE_DEAD;
    sqlite3_stmt *d = NULL, *q = NULL;
    bool row = false;
    enum pawl_rc rc;

    if ((rc = sl_q(sl, SLQ_DEAD_GET, &d, e)) != PAWL_OK)
        return rc;
    sqlite3_bind_int64(d, 1, id);
    if ((rc = sl_row(sl, d, &row, e)) != PAWL_OK)
        return rc;
    if (!row) {
        rc = not_there(sl, id, &state, "replay", e);
        return rc == PAWL_TOOLATE
            ? pawl_fail(e, rc, "job %lld is %s, not dead: there is nothing to replay",
                        (long long)id, pawl_state_name(state)) : rc;
    }
    const bool replayed = sqlite3_column_type(d, 0) != SQLITE_NULL;
    const int64_t before = sqlite3_column_int64(d, 0);
    if (replayed && how->again_reason == NULL) {
        *new_id = before;
        rc = pawl_fail(e, PAWL_TOOLATE, "job %lld was already replayed as job %lld; a second replay"
                       " needs a reason (again_reason; of the command: --again --reason TEXT)",
                       (long long)id, (long long)before);
    } else if (sqlite3_column_int64(d, 1) + 1 > LIMIT_REPLAY_CHAIN) {
        rc = pawl_fail(e, PAWL_CONFIG, "job %lld is the end of a chain of %d replays: enqueue a new"
                       " job instead", (long long)id, LIMIT_REPLAY_CHAIN);
    } else {
        rc = birth(sl, d, id, how, sl->env->wall_us(sl->env->ctx), new_id, e);
    }
    sqlite3_reset(d);
    if (rc != PAWL_OK)
        return rc;
    if ((rc = sl_q(sl, SLQ_DEAD_REPLAYED, &q, e)) != PAWL_OK)
        return rc;
    sqlite3_bind_int64(q, 1, id);
    sqlite3_bind_int64(q, 2, *new_id);
    sl_text(q, 3, how->again_reason);
    if (replayed)
        sqlite3_bind_int64(q, 4, before);
    if ((rc = sl_run(sl, q, e)) != PAWL_OK)
        return rc;
    if (sqlite3_changes(sl->db) != 1)
        return pawl_fail(e, PAWL_BUG, "job %lld was replayed by somebody else", (long long)id);
    return sl_count(sl, "replays", 1, e);
}

enum pawl_rc sl_replay(struct store *st, int64_t id, const struct pawl_replay *how, int64_t *new_id,
                       struct pawl_error *e)
{
    struct sqlite *sl = sl_of(st);
    enum pawl_rc rc;

    *new_id = 0;
    if ((rc = sl_begin(sl, e)) != PAWL_OK)
        return rc;
    rc = replay_inside(sl, id, how, new_id, e);
    if (rc == PAWL_OK && fail_point("replay.before"))
        rc = pawl_fail(e, PAWL_IO, "failpoint replay.before");
    rc = finish(sl, rc, e);
    if (rc == PAWL_OK && fail_point("replay.after"))
        rc = pawl_fail(e, PAWL_UNSURE, "failpoint replay.after");
    return rc;
}

enum pawl_rc sl_discard(struct store *st, int64_t id, const char *reason, struct pawl_error *e)
{
    struct sqlite *sl = sl_of(st);
    enum pawl_state state = PAWL_STATE_DEAD;
    sqlite3_stmt *d = NULL, *q = NULL;
    struct counters n;
    bool row = false;
    enum pawl_rc rc;

    if ((rc = sl_begin(sl, e)) != PAWL_OK)
        return rc;
    if ((rc = sl_q(sl, SLQ_DEAD_TAKE, &d, e)) != PAWL_OK)
        goto out;
    sqlite3_bind_int64(d, 1, id);
    if ((rc = sl_row(sl, d, &row, e)) != PAWL_OK)
        goto out;
    if (!row) {
        rc = not_there(sl, id, &state, "discard", e);
        goto out;
    }
    if ((rc = sl_q(sl, SLQ_DROPPED_PUT, &q, e)) != PAWL_OK)
        goto out;
    read_counters(d, 2, &n);
    sqlite3_bind_int64(q, 1, id);
    sl_text(q, 2, "discarded");
    sl_text(q, 3, reason);
    sqlite3_bind_value(q, 4, sqlite3_column_value(d, 0));
    sqlite3_bind_value(q, 5, sqlite3_column_value(d, 1));
    sqlite3_bind_int64(q, 6, st->env->wall_us(st->env->ctx));
    sqlite3_bind_int64(q, 7, n.runs);
    sqlite3_bind_int64(q, 8, n.failures);
    sqlite3_bind_int64(q, 9, n.lost);
    sqlite3_bind_int64(q, 10, n.releases);
    sqlite3_bind_int64(q, 11, n.snoozes);
    sqlite3_bind_value(q, 12, sqlite3_column_value(d, 7));
    rc = sl_run(sl, q, e);
    sqlite3_reset(d);
out:
    return finish(sl, rc, e);
}

enum pawl_rc sl_pause(struct store *st, const char *queue, const char *task, bool paused,
                      struct pawl_error *e)
{
    struct sqlite *sl = sl_of(st);
    sqlite3_stmt *q = NULL;
    char near[LIMIT_NAME_BYTES + 8] = "";
    bool known = false;
    enum pawl_rc rc;

    assert((queue == NULL) != (task == NULL));
    if ((rc = sl_begin(sl, e)) != PAWL_OK)
        return rc;
    if ((rc = sl_q(sl, queue != NULL ? SLQ_QUEUE_PAUSE : SLQ_TASK_PAUSE, &q, e)) != PAWL_OK)
        goto out;
    sl_text(q, 1, queue != NULL ? queue : task);
    sqlite3_bind_int(q, 2, paused);
    if ((rc = sl_run(sl, q, e)) != PAWL_OK || sqlite3_changes(sl->db) == 1)
        goto out;
    if (queue != NULL && (rc = sl_queue_known(st, queue, &known, near, sizeof near, e)) != PAWL_OK)
        goto out;
    rc = pawl_fail(e, PAWL_NOTFOUND, "no %s \"%s\" in this store%s%s", queue != NULL ? "queue"
                   : "task", queue != NULL ? queue : task, *near != '\0' ? "; the nearest is " : "",
                   near);
out:
    return finish(sl, rc, e);
}
