// SPDX-License-Identifier: Apache-2.0
/* check.c - the invariants that SQL can state, run on a live store in one snapshot; then the
 * engine's own checks.
 *
 * Each query returns the jobs that break it: no row = it holds. Numbers as in doc/guarantee.md.
 * A finding with job_id -1 is none: it names a check that could not be run here, and why.
 */
#include <stdio.h>
#include <string.h>
#include "base/err.h"
#include "store/verb/db.h"

#define FINDINGS_MAX 100 /* per invariant: enough to see what is wrong */

static const struct { const char *name, *what, *sql; } checks[] = {
    { "I1", "a job is nowhere: neither waiting, running nor ended",
      "SELECT j.id FROM pawl_x_job j WHERE NOT EXISTS (SELECT 1 FROM pawl_x_done WHERE job_id ="
      " j.id)"
      " AND NOT EXISTS (SELECT 1 FROM pawl_x_dead WHERE job_id = j.id)"
      " AND NOT EXISTS (SELECT 1 FROM pawl_x_dropped WHERE job_id = j.id)"
      " AND NOT EXISTS (SELECT 1 FROM pawl_x_cancelled WHERE job_id = j.id)"
      " AND NOT EXISTS (SELECT 1 FROM pawl_x_running WHERE job_id = j.id)"
      " AND NOT EXISTS (SELECT 1 FROM pawl_x_ready r WHERE r.task_id = j.task_id AND r.queue_id ="
      "  j.queue_id AND r.rank = -j.priority AND r.run_at_us = j.run_at_us AND r.id = j.id)"
      " AND NOT EXISTS (SELECT 1 FROM pawl_x_ready r WHERE r.id = j.id AND r.moved = 1)" },
    { "I2", "a row has no job (a phantom)",
      "SELECT id FROM pawl_x_ready EXCEPT SELECT id FROM pawl_x_job UNION ALL"
      " SELECT job_id FROM (SELECT job_id FROM pawl_x_running UNION ALL SELECT job_id FROM"
      " pawl_x_done"
      "  UNION ALL SELECT job_id FROM pawl_x_dead UNION ALL SELECT job_id FROM pawl_x_dropped"
      "  UNION ALL SELECT job_id FROM pawl_x_cancelled) p"
      " WHERE NOT EXISTS (SELECT 1 FROM pawl_x_job j WHERE j.id = p.job_id)" },
    { "I7", "a job is in more than one place",
      "SELECT id FROM (SELECT id FROM pawl_x_ready UNION ALL SELECT job_id FROM pawl_x_running"
      "  UNION ALL SELECT job_id FROM pawl_x_done UNION ALL SELECT job_id FROM pawl_x_dead"
      "  UNION ALL SELECT job_id FROM pawl_x_dropped"
      "  UNION ALL SELECT job_id FROM pawl_x_cancelled) p"
      " GROUP BY id HAVING count(*) > 1" },
    { "I6", "a token or counter is out of order",
      "SELECT job_id FROM pawl_x_running WHERE token <> runs + 1 UNION ALL"
      " SELECT job_id FROM pawl_x_running WHERE NOT (" DB_SANE ") UNION ALL"
      " SELECT id FROM pawl_x_ready WHERE NOT (" DB_SANE ") OR runs < failures + lost + releases"
                                                         " + snoozes" },
    { "I8", "a bound was exceeded",
      "SELECT id FROM pawl_x_ready WHERE releases > 100 OR snoozes > 1000 OR failures > 1001"
      " UNION ALL SELECT job_id FROM pawl_x_dead WHERE releases > 100 OR snoozes > 1000 OR"
      " failures > 1001" },
    { "I12", "an attempt is numbered beyond the job's runs",
      "SELECT a.job_id FROM pawl_x_attempt a JOIN pawl_x_dead d ON d.job_id = a.job_id WHERE a.n"
      " > d.runs" },
    { "I13", "a replay is missing, or points elsewhere",
      "SELECT d.job_id FROM pawl_x_dead d LEFT JOIN pawl_x_job j ON j.id = d.replayed_as"
      " WHERE d.replayed_as IS NOT NULL"
      " AND (j.id IS NULL OR j.replay_of IS DISTINCT FROM d.job_id)" },
    { "I16", "a key points to a job with another key",
      "SELECT k.job_id FROM pawl_x_key k JOIN pawl_x_job j ON j.id = k.job_id"
      " WHERE j.key IS DISTINCT FROM k.key OR j.task_id <> k.task_id OR j.source <> k.source" },
    { "I17", "a keyed job is not in the ledger",
      "SELECT j.id FROM pawl_x_job j WHERE j.key IS NOT NULL AND NOT EXISTS (SELECT 1 FROM"
      " pawl_x_key k"
      " WHERE k.task_id = j.task_id AND k.source = j.source AND k.key = j.key)" },
    { "I24", "jobs are missing or too many: accepted <> kept + pruned",
      "SELECT 0 WHERE coalesce((SELECT seq FROM sqlite_sequence WHERE name = 'pawl_x_job'), 0) <>"
      " (SELECT count(*) FROM pawl_x_job) +"
      " coalesce((SELECT value FROM pawl_x_counter WHERE name = 'pruned'), 0)" },
    { "I25", "a key that is still needed has an expiry",
      "SELECT k.job_id FROM pawl_x_key k JOIN pawl_x_job j ON j.id = k.job_id"
      " WHERE k.expires_at_us IS NOT NULL" },
    { "T1", "a job's task or queue does not exist",
      "SELECT j.id FROM pawl_x_job j WHERE NOT EXISTS (SELECT 1 FROM pawl_x_task WHERE id ="
      " j.task_id)"
      " OR NOT EXISTS (SELECT 1 FROM pawl_x_queue WHERE id = j.queue_id)" },
};

static enum pawl_rc run_check(struct db *db, size_t i, pawl_finding_fn *fn, void *ctx, bool *go,
                              struct pawl_error *e)
{
    struct query *q = NULL;
    bool row = true;
    enum pawl_rc rc = PAWL_OK;

    if ((rc = db_prepare(db, checks[i].sql, &q, e)) != PAWL_OK)
        return rc;
    for (int n = 0; *go && n < FINDINGS_MAX && (rc = db_row(db, q, &row, e)) == PAWL_OK &&
         row; n++) {
        const struct pawl_finding f = { checks[i].name, checks[i].what, q_i64(q,
                0) };

        *go = fn(ctx, &f);
    }
    q_free(q);
    return rc;
}

enum pawl_rc db_check(struct store *st, pawl_finding_fn *fn, void *ctx, int *checked,
                      struct pawl_error *e)
{
    struct db *db = db_of(st);
    bool go = true;
    enum pawl_rc rc;

    *checked = 0;
    if ((rc = db_ready(db, e)) != PAWL_OK)
        return rc;
    if ((rc = db_snapshot(db, e)) != PAWL_OK) /* one for all of them */
        return rc;
    for (size_t i = 0; i < sizeof checks / sizeof *checks && rc == PAWL_OK && go; i++) {
        rc = run_check(db, i, fn, ctx, &go, e);
        ++*checked;
    }
    db_snapshot_end(db);
    return rc == PAWL_OK && go ? db->engine->check(db, fn, ctx, checked, e) : rc;
}
