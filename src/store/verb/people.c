// SPDX-License-Identifier: Apache-2.0
/* people.c - what a person does to jobs: cancel, run now, replay, discard, pause.
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
#include "store/verb/db.h"

#define MOVES_MAX 5

static void read_counters(struct query *q, int col, struct counters *n)
{
    n->runs = q_i64(q, col);
    n->failures = q_i64(q, col + 1);
    n->lost = q_i64(q, col + 2);
    n->releases = q_i64(q, col + 3);
    n->snoozes = q_i64(q, col + 4);
}

/* The ready row of a job, by its key from the job row or, if it moved, by id. */
static enum pawl_rc find_ready(struct db *db, int64_t id, struct job *job, int64_t *task_id,
                               bool *found, struct pawl_error *e)
{
    const enum q_id ways[] = { Q_FIND_READY, Q_FIND_MOVED };
    enum pawl_rc rc = PAWL_OK;

    *found = false;
    for (size_t i = 0; i < 2 && !*found; i++) {
        struct query *q = NULL;

        if ((rc = db_q(db, ways[i], &q, e)) != PAWL_OK)
            return rc;
        q_int(q, 1, id);
        if ((rc = db_row(db, q, found, e)) != PAWL_OK)
            return rc;
        if (!*found)
            continue;
        memset(job, 0, sizeof *job);
        job->id = id;
        *task_id = q_i64(q, 0);
        job->queue_id = q_i64(q, 1);
        job->rank = q_i64(q, 2);
        job->run_at_us = q_i64(q, 3);
        read_counters(q, 4, &job->n);
        job->suspect = q_i32(q, 9) != 0;
        q_reset(q);
    }
    return rc;
}

/* TOOLATE with the state, or NOTFOUND. */
static enum pawl_rc not_there(struct db *db, int64_t id, enum pawl_state *state,
                              const char *verb, struct pawl_error *e)
{
    struct query *q = NULL;
    bool row = false;
    enum pawl_rc rc;

    if ((rc = db_q(db, Q_STATE, &q, e)) != PAWL_OK)
        return rc;
    q_int(q, 1, id);
    if ((rc = db_row(db, q, &row, e)) != PAWL_OK)
        return rc;
    if (!row)
        return pawl_fail(e, PAWL_NOTFOUND, "no job %lld", (long long)id);
    *state = PAWL_STATE_READY;
    for (int s = 0; s < PAWL_STATE_N; s++)
        if (strcmp(pawl_state_name((enum pawl_state)s), q_str(q,
                0)) == 0)
            *state = (enum pawl_state)s;
    q_reset(q);
    return pawl_fail(e, PAWL_TOOLATE, "job %lld is %s: too late to %s it", (long long)id,
                     pawl_state_name(*state), verb);
}

static enum pawl_rc finish(struct db *db, enum pawl_rc rc, struct pawl_error *e)
{
    if (rc == PAWL_OK)
        rc = db_commit(db, e);
    else
        db_rollback(db);
    db_leave(db);
    if (rc == PAWL_OK)
        db_wake(db);
    return rc;
}

static enum pawl_rc put_cancelled(struct db *db, int64_t id, const struct counters *n,
                                  const char *reason, struct pawl_error *e)
{
    struct query *q = NULL;
    enum pawl_rc rc;

    if ((rc = db_q(db, Q_CANCELLED_PUT, &q, e)) != PAWL_OK)
        return rc;
    q_int(q, 1, id);
    q_text(q, 2, reason);
    q_int(q, 3, db->env->wall_us(db->env->ctx));
    q_int(q, 4, n->runs);
    q_int(q, 5, n->failures);
    q_int(q, 6, n->lost);
    q_int(q, 7, n->releases);
    q_int(q, 8, n->snoozes);
    return db_run(db, q, e);
}

/* The run that is cut short is an attempt as any other: by whom, since when. */
static enum pawl_rc put_cut(struct db *db, int64_t id, int64_t runs, struct pawl_error *e)
{
    struct query *q = NULL;
    enum pawl_rc rc;

    if ((rc = db_q(db, Q_ATTEMPT_CUT, &q, e)) != PAWL_OK)
        return rc;
    q_int(q, 1, id);
    q_int(q, 2, db->env->wall_us(db->env->ctx));
    if ((rc = db_run(db, q, e)) != PAWL_OK || runs <= LIMIT_ATTEMPT_ROWS)
        return rc;
    if ((rc = db_q(db, Q_ATTEMPT_TRIM, &q, e)) != PAWL_OK)
        return rc;
    q_int(q, 1, id);
    q_int(q, 2, runs - LIMIT_ATTEMPT_ROWS);
    return db_run(db, q, e);
}

/* A running job: take its row under the lease it has now, and its runner is void. */
static enum pawl_rc cancel_running(struct db *db, int64_t id, bool *done, struct pawl_error *e)
{
    struct counters n = {0};
    struct query *q = NULL, *f = NULL;
    bool row = false;
    enum pawl_rc rc;

    *done = false;
    if ((rc = db_q(db, Q_RUNNING_GET, &q, e)) != PAWL_OK)
        return rc;
    q_int(q, 1, id);
    if ((rc = db_row(db, q, &row, e)) != PAWL_OK || !row)
        return rc;
    read_counters(q, 1, &n);
    n.runs++;
    if ((rc = put_cut(db, id, n.runs, e)) != PAWL_OK)
        return rc;
    if ((rc = db_q(db, Q_FENCE, &f, e)) != PAWL_OK)
        return rc;
    q_int(f, 1, id);
    q_copy(f, 2, q, 0);
    rc = db_run(db, f, e);
    q_reset(q);
    if (rc != PAWL_OK || db_changes(db) != 1)
        return rc;
    *done = true;
    return put_cancelled(db, id, &n, "cancelled while running", e);
}

/* Where it waits, or runs. TOOLATE with the state, NOTFOUND. */
static enum pawl_rc cancel_it(struct db *db, int64_t id, enum pawl_state *state,
                              struct pawl_error *e)
{
    struct job job;
    int64_t task_id = 0;
    bool done = false;
    enum pawl_rc rc = find_ready(db, id, &job, &task_id, &done, e);

    if (rc != PAWL_OK)
        return rc;
    if (done) {
        if ((rc = db_take_ready(db, task_id, &job, &done, e)) == PAWL_OK)
            rc = done ? put_cancelled(db, id, &job.n, "cancelled while waiting", e)
                      : pawl_fail(e, PAWL_BUG, "job %lld moved inside the transaction",
                                  (long long)id);
    } else if ((rc = cancel_running(db, id, &done, e)) == PAWL_OK && !done) {
        rc = not_there(db, id, state, "cancel", e);
    }
    if (rc == PAWL_OK)
        *state = PAWL_STATE_CANCELLED;
    return rc;
}

/* It was in neither place, and is in one of them: it moved between two looks (PostgreSQL). */
static bool moved_on(enum pawl_rc rc, enum pawl_state state)
{
    return rc == PAWL_TOOLATE && (state == PAWL_STATE_READY || state == PAWL_STATE_RUNNING);
}

enum pawl_rc db_cancel(struct store *st, int64_t id, enum pawl_state *state, struct pawl_error *e)
{
    struct db *db = db_of(st);
    enum pawl_rc rc;

    assert(lifecycle_next(PAWL_STATE_READY, EV_CANCEL) == PAWL_STATE_CANCELLED);
    if ((rc = db_begin(db, e)) != PAWL_OK)
        return rc;
    if (fail_point("cancel.before")) {
        rc = pawl_fail(e, PAWL_IO, "failpoint cancel.before");
    } else {
        rc = cancel_it(db, id, state, e);
        for (int i = 0; i < MOVES_MAX && moved_on(rc, *state); i++)
            rc = cancel_it(db, id, state, e);
    }
    return finish(db, rc, e);
}

enum pawl_rc db_run_now(struct store *st, int64_t id, enum pawl_state *state, struct pawl_error *e)
{
    struct db *db = db_of(st);
    const int64_t now_us = st->env->wall_us(st->env->ctx);
    struct query *q = NULL;
    struct job job;
    int64_t task_id = 0;
    bool found = false;
    enum pawl_rc rc;

    if ((rc = db_begin(db, e)) != PAWL_OK)
        return rc;
    if ((rc = find_ready(db, id, &job, &task_id, &found, e)) != PAWL_OK)
        goto out;
    if (!found) {
        rc = not_there(db, id, state, "run", e);
        goto out;
    }
    *state = PAWL_STATE_READY;
    if (job.run_at_us <= now_us)
        goto out; /* due already: nothing to skip, and its place in the line is kept */
    if ((rc = db_q(db, Q_READY_RUN_NOW, &q, e)) != PAWL_OK)
        goto out;
    q_int(q, 1, task_id);
    q_int(q, 2, job.queue_id);
    q_int(q, 3, job.rank);
    q_int(q, 4, job.run_at_us);
    q_int(q, 5, id);
    q_int(q, 6, now_us);
    rc = db_run(db, q, e);
out:
    return finish(db, rc, e);
}

/* The new job of a replay: same task, queue, source, key, headers, entity, version; args maybe
 * new. */
static enum pawl_rc birth(struct db *db, struct query *d, int64_t id,
                          const struct pawl_replay *how,
                          int64_t now_us, int64_t *new_id, struct pawl_error *e)
{
    struct query *q = NULL;
    enum pawl_rc rc;

    if ((rc = db_q(db, Q_JOB_ADD, &q, e)) != PAWL_OK)
        return rc;
    for (int i = 0; i < 4; i++) /* task, queue, source, key */
        q_copy(q, 1 + i, d, 3 + i);
    if (how->args != NULL)
        q_text_n(q, 5, how->args, how->args_bytes);
    else
        q_copy(q, 5, d, 7);
    for (int i = 0; i < 6; i++) /* headers, trace, entity, version, priority, max_retries */
        q_copy(q, 6 + i, d, 8 + i);
    q_int(q, 12, now_us);
    q_int(q, 14, now_us);
    q_int(q, 15, q_i64(d, 2));
    q_int(q, 16, q_i64(d, 1) + 1);
    q_int(q, 17, id);
    if ((rc = db_run(db, q, e)) != PAWL_OK)
        return rc;
    *new_id = db_insert_id(db);
    if ((rc = db_q(db, Q_READY_ADD, &q, e)) != PAWL_OK)
        return rc;
    q_int(q, 1, q_i64(d, 3));
    q_int(q, 2, q_i64(d, 4));
    q_int(q, 3, -q_i64(d, 12));
    q_int(q, 4, now_us);
    q_int(q, 5, *new_id);
    return db_run(db, q, e);
}

static enum pawl_rc replay_inside(struct db *db, int64_t id, const struct pawl_replay *how,
                                  int64_t *new_id, struct pawl_error *e)
{
    enum pawl_state state = PAWL_STATE_DEAD;
    struct query *d = NULL, *q = NULL;
    bool row = false;
    enum pawl_rc rc;

    if ((rc = db_q(db, Q_DEAD_GET, &d, e)) != PAWL_OK)
        return rc;
    q_int(d, 1, id);
    if ((rc = db_row(db, d, &row, e)) != PAWL_OK)
        return rc;
    if (!row) {
        rc = not_there(db, id, &state, "replay", e);
        return rc == PAWL_TOOLATE
            ? pawl_fail(e, rc, "job %lld is %s, not dead: there is nothing to replay",
                        (long long)id, pawl_state_name(state)) : rc;
    }
    const bool replayed = !q_is_null(d, 0);
    const int64_t before = q_i64(d, 0);
    if (replayed && how->again_reason == NULL) {
        *new_id = before;
        rc = pawl_fail(e, PAWL_TOOLATE, "job %lld was already replayed as job %lld; a second replay"
                       " needs a reason (again_reason; of the command: --again --reason TEXT)",
                       (long long)id, (long long)before);
    } else if (q_i64(d, 1) + 1 > LIMIT_REPLAY_CHAIN) {
        rc = pawl_fail(e, PAWL_CONFIG, "job %lld is the end of a chain of %d replays: enqueue a new"
                       " job instead", (long long)id, LIMIT_REPLAY_CHAIN);
    } else {
        rc = birth(db, d, id, how, db->env->wall_us(db->env->ctx), new_id, e);
    }
    q_reset(d);
    if (rc != PAWL_OK)
        return rc;
    if ((rc = db_q(db, Q_DEAD_REPLAYED, &q, e)) != PAWL_OK)
        return rc;
    q_int(q, 1, id);
    q_int(q, 2, *new_id);
    q_text(q, 3, how->again_reason);
    if (replayed)
        q_int(q, 4, before);
    if ((rc = db_run(db, q, e)) != PAWL_OK)
        return rc;
    if (db_changes(db) != 1)
        return pawl_fail(e, PAWL_BUG, "job %lld was replayed by somebody else", (long long)id);
    return db_count(db, "replays", 1, e);
}

enum pawl_rc db_replay(struct store *st, int64_t id, const struct pawl_replay *how, int64_t *new_id,
                       struct pawl_error *e)
{
    struct db *db = db_of(st);
    enum pawl_rc rc;

    *new_id = 0;
    if ((rc = db_begin(db, e)) != PAWL_OK)
        return rc;
    rc = replay_inside(db, id, how, new_id, e);
    if (rc == PAWL_OK && fail_point("replay.before"))
        rc = pawl_fail(e, PAWL_IO, "failpoint replay.before");
    rc = finish(db, rc, e);
    if (rc == PAWL_OK && fail_point("replay.after"))
        rc = pawl_fail(e, PAWL_UNSURE, "failpoint replay.after");
    return rc;
}

enum pawl_rc db_discard(struct store *st, int64_t id, const char *reason, struct pawl_error *e)
{
    struct db *db = db_of(st);
    enum pawl_state state = PAWL_STATE_DEAD;
    struct query *d = NULL, *q = NULL;
    struct counters n;
    bool row = false;
    enum pawl_rc rc;

    if ((rc = db_begin(db, e)) != PAWL_OK)
        return rc;
    if ((rc = db_q(db, Q_DEAD_TAKE, &d, e)) != PAWL_OK)
        goto out;
    q_int(d, 1, id);
    if ((rc = db_row(db, d, &row, e)) != PAWL_OK)
        goto out;
    if (!row) {
        rc = not_there(db, id, &state, "discard", e);
        goto out;
    }
    if ((rc = db_q(db, Q_DROPPED_PUT, &q, e)) != PAWL_OK)
        goto out;
    read_counters(d, 2, &n);
    q_int(q, 1, id);
    q_text(q, 2, "discarded");
    q_text(q, 3, reason);
    q_copy(q, 4, d, 0);
    q_copy(q, 5, d, 1);
    q_int(q, 6, st->env->wall_us(st->env->ctx));
    q_int(q, 7, n.runs);
    q_int(q, 8, n.failures);
    q_int(q, 9, n.lost);
    q_int(q, 10, n.releases);
    q_int(q, 11, n.snoozes);
    q_copy(q, 12, d, 7);
    rc = db_run(db, q, e);
    q_reset(d);
out:
    return finish(db, rc, e);
}

enum pawl_rc db_pause(struct store *st, const char *queue, const char *task, bool paused,
                      struct pawl_error *e)
{
    struct db *db = db_of(st);
    struct query *q = NULL;
    char near[LIMIT_NAME_BYTES + 8] = "";
    bool known = false;
    enum pawl_rc rc;

    assert((queue == NULL) != (task == NULL));
    if ((rc = db_begin(db, e)) != PAWL_OK)
        return rc;
    if ((rc = db_q(db, queue != NULL ? Q_QUEUE_PAUSE : Q_TASK_PAUSE, &q, e)) != PAWL_OK)
        goto out;
    q_text(q, 1, queue != NULL ? queue : task);
    q_int(q, 2, paused);
    if ((rc = db_run(db, q, e)) != PAWL_OK || db_changes(db) == 1)
        goto out;
    if (queue != NULL && (rc = db_queue_known(st, queue, &known, near, sizeof near, e)) != PAWL_OK)
        goto out;
    rc = pawl_fail(e, PAWL_NOTFOUND, "no %s \"%s\" in this store%s%s", queue != NULL ? "queue"
                   : "task", queue != NULL ? queue : task, *near != '\0' ? "; the nearest is " : "",
                   near);
out:
    return finish(db, rc, e);
}
