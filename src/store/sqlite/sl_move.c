// SPDX-License-Identifier: Apache-2.0
/* sl_move.c - the small moves that every verb is made of. All run inside an open transaction.
 *
 * Keeps: a job is in exactly one place. Whoever took the ready or running row under the fence calls
 *        exactly one of sl_put_done, sl_place.
 */
#include <assert.h>
#include <string.h>
#include <unistd.h>
#include "base/build.h"
#include "base/err.h"
#include "core/lifecycle.h"
#include "core/rules.h"
#include "store/sqlite/sl.h"

enum pawl_rc sl_queue_id(struct sqlite *sl, const char *name, bool create, int64_t *id,
                         struct pawl_error *e)
{
    sqlite3_stmt *q = NULL;
    bool row = false;
    enum pawl_rc rc;

    *id = 0;
    if ((rc = sl_q(sl, SLQ_QUEUE_GET, &q, e)) != PAWL_OK)
        return rc;
    sl_text(q, 1, name);
    if ((rc = sl_row(sl, q, &row, e)) != PAWL_OK)
        return rc;
    if (row) {
        *id = sqlite3_column_int64(q, 0);
        sqlite3_reset(q);
        return PAWL_OK;
    }
    if (!create)
        return PAWL_OK;
    if ((rc = sl_q(sl, SLQ_QUEUE_ADD, &q, e)) != PAWL_OK)
        return rc;
    sl_text(q, 1, name);
    sqlite3_bind_int64(q, 2, sl->env->wall_us(sl->env->ctx));
    if ((rc = sl_run(sl, q, e)) != PAWL_OK)
        return rc;
    *id = sqlite3_last_insert_rowid(sl->db);
    return PAWL_OK;
}

enum pawl_rc sl_task_id(struct sqlite *sl, const char *name, bool create, int64_t *id,
                        int64_t *queue_id, int64_t *priority, bool *declared, struct pawl_error *e)
{
    sqlite3_stmt *q = NULL;
    bool row = false;
    enum pawl_rc rc;

    *id = *queue_id = *priority = 0;
    *declared = false;
    if ((rc = sl_q(sl, SLQ_TASK_GET, &q, e)) != PAWL_OK)
        return rc;
    sl_text(q, 1, name);
    if ((rc = sl_row(sl, q, &row, e)) != PAWL_OK)
        return rc;
    if (row) {
        *id = sqlite3_column_int64(q, 0);
        *queue_id = sqlite3_column_int64(q, 1);
        *priority = sqlite3_column_int64(q, 2);
        *declared = sqlite3_column_int(q, 3) != 0;
        sqlite3_reset(q);
        return PAWL_OK;
    }
    if (!create)
        return PAWL_OK;
    if ((rc = sl_q(sl, SLQ_TASK_ADD, &q, e)) != PAWL_OK)
        return rc;
    sl_text(q, 1, name);
    sqlite3_bind_int64(q, 2, sl->env->wall_us(sl->env->ctx));
    if ((rc = sl_run(sl, q, e)) != PAWL_OK)
        return rc;
    *id = sqlite3_last_insert_rowid(sl->db);
    return PAWL_OK;
}

enum pawl_rc sl_count(struct sqlite *sl, const char *counter, int64_t by, struct pawl_error *e)
{
    sqlite3_stmt *q = NULL;
    enum pawl_rc rc;

    if ((rc = sl_q(sl, SLQ_COUNT, &q, e)) != PAWL_OK)
        return rc;
    sl_text(q, 1, counter);
    sqlite3_bind_int64(q, 2, by);
    return sl_run(sl, q, e);
}

static void bind_counters(sqlite3_stmt *q, int at, const struct counters *n)
{
    sqlite3_bind_int64(q, at, n->runs);
    sqlite3_bind_int64(q, at + 1, n->failures);
    sqlite3_bind_int64(q, at + 2, n->lost);
    sqlite3_bind_int64(q, at + 3, n->releases);
    sqlite3_bind_int64(q, at + 4, n->snoozes);
}

enum pawl_rc sl_take_ready(struct sqlite *sl, int64_t task_id, const struct job *job, bool *ok,
                           struct pawl_error *e)
{
    sqlite3_stmt *q = NULL;
    enum pawl_rc rc;

    if ((rc = sl_q(sl, SLQ_READY_TAKE, &q, e)) != PAWL_OK)
        return rc;
    sqlite3_bind_int64(q, 1, task_id);
    sqlite3_bind_int64(q, 2, job->queue_id);
    sqlite3_bind_int64(q, 3, job->rank);
    sqlite3_bind_int64(q, 4, job->run_at_us);
    sqlite3_bind_int64(q, 5, job->id);
    sqlite3_bind_int64(q, 6, job->n.runs);
    if ((rc = sl_run(sl, q, e)) != PAWL_OK)
        return rc;
    *ok = sqlite3_changes(sl->db) == 1;
    return PAWL_OK;
}

enum pawl_rc sl_put_ready(struct sqlite *sl, int64_t task_id, const struct job *job,
                          const struct decision *d, struct pawl_error *e)
{
    sqlite3_stmt *q = NULL;
    enum pawl_rc rc;

    assert(d->to == PAWL_STATE_READY);
    if ((rc = sl_q(sl, SLQ_READY_PUT, &q, e)) != PAWL_OK)
        return rc;
    sqlite3_bind_int64(q, 1, task_id);
    sqlite3_bind_int64(q, 2, job->queue_id);
    sqlite3_bind_int64(q, 3, job->rank);
    sqlite3_bind_int64(q, 4, d->keep_place ? job->run_at_us : d->run_at_us);
    sqlite3_bind_int64(q, 5, job->id);
    bind_counters(q, 6, &d->n);
    sqlite3_bind_int(q, 11, d->suspect);
    return sl_run(sl, q, e);
}

enum pawl_rc sl_put_done(struct sqlite *sl, const struct job *job, const struct finding *f,
                         bool stale, struct pawl_error *e)
{
    sqlite3_stmt *q = NULL;
    enum pawl_rc rc;

    if (stale && (rc = sl_count(sl, "stale", 1, e)) != PAWL_OK)
        return rc;
    if ((rc = sl_q(sl, SLQ_DONE_PUT, &q, e)) != PAWL_OK)
        return rc;
    sqlite3_bind_int64(q, 1, job->id);
    sl_text(q, 2, stale ? "stale" : "done");
    sqlite3_bind_blob(q, 3, job->lease_id, sizeof job->lease_id, SQLITE_STATIC);
    sl_text(q, 4, sl->side.id);
    sqlite3_bind_int64(q, 5, f->started_at_us != 0 ? f->started_at_us : job->started_at_us);
    sqlite3_bind_int64(q, 6, sl->env->wall_us(sl->env->ctx));
    struct counters n = job->n;
    n.runs++; /* the run that did it */
    bind_counters(q, 7, &n);
    sl_text_n(q, 12, stale ? NULL : f->result, f->result_bytes);
    return sl_run(sl, q, e);
}

static enum pawl_rc put_attempt(struct sqlite *sl, const struct settle *s, struct pawl_error *e)
{
    const struct finding *f = s->found;
    char host[64] = "";
    sqlite3_stmt *q = NULL;
    enum pawl_rc rc;

    if (gethostname(host, sizeof host - 1) != 0)
        memcpy(host, "unknown", sizeof "unknown");
    if ((rc = sl_q(sl, SLQ_ATTEMPT_PUT, &q, e)) != PAWL_OK)
        return rc;
    sqlite3_bind_int64(q, 1, s->job->id);
    sqlite3_bind_int64(q, 2, s->d.n.runs);
    sqlite3_bind_blob(q, 3, s->job->lease_id, sizeof s->job->lease_id, SQLITE_STATIC);
    sl_text(q, 4, outcome_name(s->d.outcome));
    sl_text(q, 5, f->worker != NULL ? f->worker : sl->side.id);
    sl_text(q, 6, host);
    sl_text(q, 7, pawl_build());
    sqlite3_bind_int64(q, 8, f->started_at_us != 0 ? f->started_at_us : s->job->started_at_us);
    sqlite3_bind_int64(q, 9, sl->env->wall_us(sl->env->ctx));
    if (f->exit_code >= 0)
        sqlite3_bind_int(q, 10, f->exit_code);
    if (f->signal > 0)
        sqlite3_bind_int(q, 11, f->signal);
    if (f->max_rss_kib > 0)
        sqlite3_bind_int64(q, 12, f->max_rss_kib);
    if (s->d.to == PAWL_STATE_READY)
        sqlite3_bind_int64(q, 13, s->d.delay_us);
    sl_text_n(q, 14, f->error, f->error_bytes);
    sl_text(q, 15, f->out_tail);
    sl_text(q, 16, f->err_tail);
    if ((rc = sl_run(sl, q, e)) != PAWL_OK || s->d.n.runs <= LIMIT_ATTEMPT_ROWS)
        return rc;
    if ((rc = sl_q(sl, SLQ_ATTEMPT_TRIM, &q, e)) != PAWL_OK)
        return rc;
    sqlite3_bind_int64(q, 1, s->job->id);
    sqlite3_bind_int64(q, 2, s->d.n.runs - LIMIT_ATTEMPT_ROWS);
    return sl_run(sl, q, e);
}

static enum pawl_rc put_end(struct sqlite *sl, const struct settle *s, enum slq id,
                            const char *word, struct pawl_error *e)
{
    sqlite3_stmt *q = NULL;
    enum pawl_rc rc;

    if ((rc = sl_q(sl, id, &q, e)) != PAWL_OK)
        return rc;
    sqlite3_bind_int64(q, 1, s->job->id);
    sl_text(q, 2, word);
    sl_text(q, 3, s->d.reason);
    sl_text_n(q, 4, s->found->error, s->found->error_bytes);
    sl_text(q, 5, s->found->worker != NULL ? s->found->worker : sl->side.id);
    sqlite3_bind_int64(q, 6, sl->env->wall_us(sl->env->ctx));
    bind_counters(q, 7, &s->d.n);
    return sl_run(sl, q, e);
}

enum pawl_rc sl_place(struct sqlite *sl, const struct settle *s, struct pawl_error *e)
{
    sqlite3_stmt *q = NULL;
    bool row = false;
    enum pawl_rc rc;

    if ((rc = put_attempt(sl, s, e)) != PAWL_OK)
        return rc;
    switch (s->d.to) {
    case PAWL_STATE_READY:
        /* The task is read from the job: a reaper may not serve it. */
        if ((rc = sl_q(sl, SLQ_JOB_TASK, &q, e)) != PAWL_OK)
            return rc;
        sqlite3_bind_int64(q, 1, s->job->id);
        if ((rc = sl_row(sl, q, &row, e)) != PAWL_OK)
            return rc;
        /* A job without its row is damage: it goes back all the same, and whoever claims it ends it
         * as undecodable. It must not keep others from being put back. */
        const int64_t task_id = row ? sqlite3_column_int64(q, 0) : s->task_id;
        sqlite3_reset(q);
        return sl_put_ready(sl, task_id, s->job, &s->d, e);
    case PAWL_STATE_DEAD:
        return put_end(sl, s, SLQ_DEAD_PUT, dead_class_name(s->d.dead), e);
    case PAWL_STATE_DROPPED:
        return put_end(sl, s, SLQ_DROPPED_PUT,
                       s->d.drop, e);
    default:
        return pawl_fail(e, PAWL_BUG, "a verdict cannot lead to \"%s\"", pawl_state_name(s->d.to));
    }
}

enum pawl_rc sl_advance(struct sqlite *sl, int64_t task_id, const struct job *job, bool *ok,
                        struct pawl_error *e)
{
    sqlite3_stmt *q = NULL;
    enum pawl_rc rc;

    *ok = true;
    if (job->entity == NULL || !job->has_version)
        return PAWL_OK;
    if ((rc = sl_q(sl, SLQ_VERSION_PUT, &q, e)) != PAWL_OK)
        return rc;
    sqlite3_bind_int64(q, 1, task_id);
    sl_text(q, 2, job->entity);
    sqlite3_bind_int64(q, 3, job->version);
    sqlite3_bind_int64(q, 4, job->id);
    sqlite3_bind_int64(q, 5, args_hash(job->args, job->args_bytes));
    sqlite3_bind_int64(q, 6, (int64_t)job->args_bytes);
    if ((rc = sl_run(sl, q, e)) != PAWL_OK)
        return rc;
    *ok = sqlite3_changes(sl->db) == 1;
    return PAWL_OK;
}
