// SPDX-License-Identifier: Apache-2.0
/* move.c - the small moves that every verb is made of. All run inside an open transaction.
 *
 * Keeps: a job is in exactly one place. Whoever took the ready or running row under the fence calls
 *        exactly one of db_put_done, db_place.
 */
#include <assert.h>
#include <string.h>
#include <unistd.h>
#include "base/build.h"
#include "base/err.h"
#include "core/lifecycle.h"
#include "core/rules.h"
#include "store/verb/db.h"

enum pawl_rc db_queue_id(struct db *db, const char *name, bool create, int64_t *id,
                         struct pawl_error *e)
{
    struct query *q = NULL;
    bool row = false;
    enum pawl_rc rc;

    *id = 0;
    if ((rc = db_q(db, Q_QUEUE_GET, &q, e)) != PAWL_OK)
        return rc;
    q_text(q, 1, name);
    if ((rc = db_row(db, q, &row, e)) != PAWL_OK)
        return rc;
    if (row) {
        *id = q_i64(q, 0);
        q_reset(q);
        return PAWL_OK;
    }
    if (!create)
        return PAWL_OK;
    if ((rc = db_q(db, Q_QUEUE_ADD, &q, e)) != PAWL_OK)
        return rc;
    q_text(q, 1, name);
    q_int(q, 2, db->env->wall_us(db->env->ctx));
    if ((rc = db_run(db, q, e)) != PAWL_OK)
        return rc;
    *id = db_insert_id(db);
    return *id != 0 ? PAWL_OK : db_queue_id(db, name, false, id, e); /* another one was first */
}

enum pawl_rc db_task_id(struct db *db, const char *name, bool create, int64_t *id,
                        int64_t *queue_id, int64_t *priority, bool *declared, struct pawl_error *e)
{
    struct query *q = NULL;
    bool row = false;
    enum pawl_rc rc;

    *id = *queue_id = *priority = 0;
    *declared = false;
    if ((rc = db_q(db, Q_TASK_GET, &q, e)) != PAWL_OK)
        return rc;
    q_text(q, 1, name);
    if ((rc = db_row(db, q, &row, e)) != PAWL_OK)
        return rc;
    if (row) {
        *id = q_i64(q, 0);
        *queue_id = q_i64(q, 1);
        *priority = q_i64(q, 2);
        *declared = q_i32(q, 3) != 0;
        q_reset(q);
        return PAWL_OK;
    }
    if (!create)
        return PAWL_OK;
    if ((rc = db_q(db, Q_TASK_ADD, &q, e)) != PAWL_OK)
        return rc;
    q_text(q, 1, name);
    q_int(q, 2, db->env->wall_us(db->env->ctx));
    if ((rc = db_run(db, q, e)) != PAWL_OK)
        return rc;
    *id = db_insert_id(db);
    return *id != 0 ? PAWL_OK /* else another one was first */
                    : db_task_id(db, name, false, id, queue_id, priority, declared, e);
}

enum pawl_rc db_count(struct db *db, const char *counter, int64_t by, struct pawl_error *e)
{
    struct query *q = NULL;
    enum pawl_rc rc;

    if ((rc = db_q(db, Q_COUNT, &q, e)) != PAWL_OK)
        return rc;
    q_text(q, 1, counter);
    q_int(q, 2, by);
    return db_run(db, q, e);
}

static void bind_counters(struct query *q, int at, const struct counters *n)
{
    q_int(q, at, n->runs);
    q_int(q, at + 1, n->failures);
    q_int(q, at + 2, n->lost);
    q_int(q, at + 3, n->releases);
    q_int(q, at + 4, n->snoozes);
}

enum pawl_rc db_take_ready(struct db *db, int64_t task_id, const struct job *job, bool *ok,
                           struct pawl_error *e)
{
    struct query *q = NULL;
    enum pawl_rc rc;

    if ((rc = db_q(db, Q_READY_TAKE, &q, e)) != PAWL_OK)
        return rc;
    q_int(q, 1, task_id);
    q_int(q, 2, job->queue_id);
    q_int(q, 3, job->rank);
    q_int(q, 4, job->run_at_us);
    q_int(q, 5, job->id);
    q_int(q, 6, job->n.runs);
    if ((rc = db_run(db, q, e)) != PAWL_OK)
        return rc;
    *ok = db_changes(db) == 1;
    return PAWL_OK;
}

enum pawl_rc db_put_ready(struct db *db, int64_t task_id, const struct job *job,
                          const struct decision *d, struct pawl_error *e)
{
    struct query *q = NULL;
    enum pawl_rc rc;

    assert(d->to == PAWL_STATE_READY);
    if ((rc = db_q(db, Q_READY_PUT, &q, e)) != PAWL_OK)
        return rc;
    q_int(q, 1, task_id);
    q_int(q, 2, job->queue_id);
    q_int(q, 3, job->rank);
    q_int(q, 4, d->keep_place ? job->run_at_us : d->run_at_us);
    q_int(q, 5, job->id);
    bind_counters(q, 6, &d->n);
    q_int(q, 11, d->suspect);
    return db_run(db, q, e);
}

enum pawl_rc db_put_done(struct db *db, const struct job *job, const struct finding *f,
                         bool stale, struct pawl_error *e)
{
    struct query *q = NULL;
    enum pawl_rc rc;

    if (stale && (rc = db_count(db, "stale", 1, e)) != PAWL_OK)
        return rc;
    if ((rc = db_q(db, Q_DONE_PUT, &q, e)) != PAWL_OK)
        return rc;
    q_int(q, 1, job->id);
    q_text(q, 2, stale ? "stale" : "done");
    q_blob(q, 3, job->lease_id, sizeof job->lease_id);
    q_text(q, 4, db->side.id);
    q_int(q, 5, f->started_at_us != 0 ? f->started_at_us : job->started_at_us);
    q_int(q, 6, db->env->wall_us(db->env->ctx));
    struct counters n = job->n;
    n.runs++; /* the run that did it */
    bind_counters(q, 7, &n);
    q_text_n(q, 12, stale ? NULL : f->result, f->result_bytes);
    return db_run(db, q, e);
}

static enum pawl_rc put_attempt(struct db *db, const struct settle *s, struct pawl_error *e)
{
    const struct finding *f = s->found;
    char host[64] = "";
    struct query *q = NULL;
    enum pawl_rc rc;

    if (gethostname(host, sizeof host - 1) != 0)
        memcpy(host, "unknown", sizeof "unknown");
    if ((rc = db_q(db, Q_ATTEMPT_PUT, &q, e)) != PAWL_OK)
        return rc;
    q_int(q, 1, s->job->id);
    q_int(q, 2, s->d.n.runs);
    q_blob(q, 3, s->job->lease_id, sizeof s->job->lease_id);
    q_text(q, 4, outcome_name(s->d.outcome));
    q_text(q, 5, f->worker != NULL ? f->worker : db->side.id);
    q_text(q, 6, host);
    q_text(q, 7, pawl_build());
    q_int(q, 8, f->started_at_us != 0 ? f->started_at_us : s->job->started_at_us);
    q_int(q, 9, db->env->wall_us(db->env->ctx));
    if (f->exit_code >= 0)
        q_int(q, 10, f->exit_code);
    if (f->signal > 0)
        q_int(q, 11, f->signal);
    if (f->max_rss_kib > 0)
        q_int(q, 12, f->max_rss_kib);
    if (s->d.to == PAWL_STATE_READY)
        q_int(q, 13, s->d.delay_us);
    q_text_n(q, 14, f->error, f->error_bytes);
    q_text(q, 15, f->out_tail);
    q_text(q, 16, f->err_tail);
    if ((rc = db_run(db, q, e)) != PAWL_OK || s->d.n.runs <= LIMIT_ATTEMPT_ROWS)
        return rc;
    if ((rc = db_q(db, Q_ATTEMPT_TRIM, &q, e)) != PAWL_OK)
        return rc;
    q_int(q, 1, s->job->id);
    q_int(q, 2, s->d.n.runs - LIMIT_ATTEMPT_ROWS);
    return db_run(db, q, e);
}

static enum pawl_rc put_end(struct db *db, const struct settle *s, enum q_id id,
                            const char *word, struct pawl_error *e)
{
    struct query *q = NULL;
    enum pawl_rc rc;

    if ((rc = db_q(db, id, &q, e)) != PAWL_OK)
        return rc;
    q_int(q, 1, s->job->id);
    q_text(q, 2, word);
    q_text(q, 3, s->d.reason);
    q_text_n(q, 4, s->found->error, s->found->error_bytes);
    q_text(q, 5, s->found->worker != NULL ? s->found->worker : db->side.id);
    q_int(q, 6, db->env->wall_us(db->env->ctx));
    bind_counters(q, 7, &s->d.n);
    return db_run(db, q, e);
}

enum pawl_rc db_place(struct db *db, const struct settle *s, struct pawl_error *e)
{
    struct query *q = NULL;
    bool row = false;
    enum pawl_rc rc;

    if ((rc = put_attempt(db, s, e)) != PAWL_OK)
        return rc;
    switch (s->d.to) {
    case PAWL_STATE_READY:
        /* The task is read from the job: a reaper may not serve it. */
        if ((rc = db_q(db, Q_JOB_TASK, &q, e)) != PAWL_OK)
            return rc;
        q_int(q, 1, s->job->id);
        if ((rc = db_row(db, q, &row, e)) != PAWL_OK)
            return rc;
        /* A job without its row is damage: it goes back all the same, and whoever claims it ends it
         * as undecodable. It must not keep others from being put back. */
        const int64_t task_id = row ? q_i64(q, 0) : s->task_id;
        q_reset(q);
        return db_put_ready(db, task_id, s->job, &s->d, e);
    case PAWL_STATE_DEAD:
        return put_end(db, s, Q_DEAD_PUT, dead_class_name(s->d.dead), e);
    case PAWL_STATE_DROPPED:
        return put_end(db, s, Q_DROPPED_PUT,
                       s->d.drop, e);
    default:
        return pawl_fail(e, PAWL_BUG, "a verdict cannot lead to \"%s\"", pawl_state_name(s->d.to));
    }
}

enum pawl_rc db_advance(struct db *db, int64_t task_id, const struct job *job, bool *ok,
                        struct pawl_error *e)
{
    struct query *q = NULL;
    enum pawl_rc rc;

    *ok = true;
    if (job->entity == NULL || !job->has_version)
        return PAWL_OK;
    if ((rc = db_q(db, Q_VERSION_PUT, &q, e)) != PAWL_OK)
        return rc;
    q_int(q, 1, task_id);
    q_text(q, 2, job->entity);
    q_int(q, 3, job->version);
    q_int(q, 4, job->id);
    q_int(q, 5, args_hash(job->args, job->args_bytes));
    q_int(q, 6, (int64_t)job->args_bytes);
    if ((rc = db_run(db, q, e)) != PAWL_OK)
        return rc;
    *ok = db_changes(db) == 1;
    return PAWL_OK;
}
