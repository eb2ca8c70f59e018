// SPDX-License-Identifier: Apache-2.0
/* blame.c - the last words of an effect runner, read once.
 *
 * Keeps: each record is read once (its nonce), and a job is touched only if it still waits with the
 *        runs that were written down.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include "base/err.h"
#include "store/verb/reap.h"

/* A job named by the blame record, if it still waits with the runs that were written down. */
static enum pawl_rc find_blamed(struct reaper *r, int64_t id, int64_t runs, struct job *job,
                                int64_t *task_id, bool *found, struct pawl_error *e)
{
    const enum q_id ways[] = { Q_FIND_READY, Q_FIND_MOVED };
    enum pawl_rc rc = PAWL_OK;

    *found = false;
    for (size_t i = 0; i < 2 && !*found; i++) {
        struct query *q = NULL;

        if ((rc = db_q(r->db, ways[i], &q, e)) != PAWL_OK)
            return rc;
        q_int(q, 1, id);
        if ((rc = db_row(r->db, q, found, e)) != PAWL_OK)
            return rc;
        if (!*found)
            continue;
        memset(job, 0, sizeof *job);
        job->id = id;
        *task_id = q_i64(q, 0);
        job->queue_id = q_i64(q, 1);
        job->rank = q_i64(q, 2);
        job->run_at_us = q_i64(q, 3);
        job->n.runs = q_i64(q, 4);
        job->token = job->n.runs + 1;
        job->n.failures = q_i64(q, 5);
        job->n.lost = q_i64(q, 6);
        job->n.releases = q_i64(q, 7);
        job->n.snoozes = q_i64(q, 8);
        job->suspect = q_i32(q, 9) != 0;
        job->max_retries = -1;
        env_bytes(r->db->env, job->lease_id, sizeof job->lease_id);
        q_reset(q);
    }
    *found = *found && job->n.runs == runs;
    return rc;
}

static enum pawl_rc blame_job(struct reaper *r, int64_t id, int64_t runs, bool alone,
                              struct pawl_error *e)
{
    struct job job;
    int64_t task_id = 0;
    bool found = false, ok = false;
    enum pawl_rc rc;

    if ((rc = find_blamed(r, id, runs, &job, &task_id, &found, e)) != PAWL_OK || !found)
        return rc;
    if ((rc = db_take_ready(r->db, task_id, &job, &ok, e)) != PAWL_OK || !ok)
        return rc;
    return reap_place(r, &job, task_id, !alone ? reap_shared(&job)
                                        : r->timeout ? OUT_TIMEOUT : OUT_LOST, e);
}

/* The job in hand died alone if no leased job died with it. In company it becomes a suspect: next,
 * in
 * a transaction of its own, and usually before any leased job has started, so that a job that kills
 * everything is soon found alone. */
enum pawl_rc reap_blame(struct reaper *r, const struct side_blame *b, size_t leased_n,
                        struct pawl_error *e)
{
    const uint32_t phase = atomic_load(&b->phase);
    const uint32_t n = b->n <= LIMIT_BATCH ? b->n : 0;
    char nonce[24];
    struct query *q = NULL;
    enum pawl_rc rc;

    if (phase == BLAME_IDLE || n == 0)
        return PAWL_OK;
    snprintf(nonce, sizeof nonce, "%016" PRIx64, b->nonce);
    if ((rc = db_q(r->db, Q_BLAME_PUT, &q, e)) != PAWL_OK)
        return rc;
    q_text(q, 1, nonce);
    q_int(q, 2, r->db->env->wall_us(r->db->env->ctx));
    if ((rc = db_run(r->db, q, e)) != PAWL_OK)
        return rc;
    if (db_changes(r->db) != 1)
        return PAWL_OK; /* read before */
    if (phase == BLAME_COMMIT && !b->alone) {
        for (uint32_t i = 0; i < n && i <= b->hand && rc == PAWL_OK; i++) /* the last in hand */
            rc = blame_job(r, b->jobs[i].id, b->jobs[i].runs, false, e);
        return rc;
    }
    const uint32_t hand = phase == BLAME_COMMIT ? 0 : b->hand;
    return hand < n ? blame_job(r, b->jobs[hand].id, b->jobs[hand].runs, leased_n == 0, e)
        : PAWL_OK;
}
