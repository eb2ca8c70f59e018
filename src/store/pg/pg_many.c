// SPDX-License-Identifier: Apache-2.0
/* pg_many.c - many rows with one statement: a round trip costs as much as ten rows.
 *
 * How: each column is an array, written as text and unnested by the server.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/err.h"
#include "store/pg/pg.h"

/* --- arrays --- */

void pg_put_int(struct buf *b, int64_t v)
{
    buf_printf(b, b->n == 0 ? "{%lld" : ",%lld", (long long)v);
}

void pg_put_text(struct buf *b, const char *s, size_t n)
{
    buf_puts(b, b->n == 0 ? "{" : ",");
    if (s == NULL) {
        buf_puts(b, "NULL");
        return;
    }
    buf_putc(b, '"');
    for (size_t i = 0; i < n; i++) {
        if (s[i] == '"' || s[i] == '\\')
            buf_putc(b, '\\');
        buf_putc(b, s[i]);
    }
    buf_putc(b, '"');
}

static void put_lease(struct buf *b, const struct job *job)
{
    char hex[2 * sizeof job->lease_id + 3];

    memcpy(hex, "\\x", 2);
    for (size_t i = 0; i < sizeof job->lease_id; i++)
        snprintf(hex + 2 + 2 * i, 3, "%02x", job->lease_id[i]);
    pg_put_text(b, hex, sizeof hex - 1);
}

/* Ends the array, and binds it. false: out of memory */
bool pg_bind_array(struct query *q, int i, struct buf *b)
{
    buf_putc(b, '}');
    pg_bind_plain(q, i, buf_str(b));
    return !b->failed;
}

static void free_all(struct buf *b, size_t n)
{
    for (size_t i = 0; i < n; i++)
        buf_free(&b[i]);
}

/* --- the job rows of a claim --- */

static struct job *find(struct job *jobs, size_t n, int64_t id, size_t *at)
{
    for (size_t i = 0; i < n; i++) { /* mostly the next one */
        struct job *job = &jobs[(*at + i) % n];

        if (job->id == id) {
            *at = (*at + i + 1) % n;
            return job;
        }
    }
    return NULL;
}

enum pawl_rc pg_read_jobs(struct db *db, struct job *jobs, size_t n, struct arena *a,
                          struct pawl_error *e)
{
    struct query *q = NULL;
    struct buf ids = {0};
    bool row = true;
    size_t at = 0;
    enum pawl_rc rc = pg_named(db, PQ_JOBS_READ, &q, e);

    for (size_t i = 0; i < n; i++)
        pg_put_int(&ids, jobs[i].id);
    if (rc == PAWL_OK && !pg_bind_array(q, 1, &ids))
        rc = pawl_fail(e, PAWL_NOMEM, "out of memory");
    while (rc == PAWL_OK && (rc = pg_row(db, q, &row, e)) == PAWL_OK && row) {
        struct job *job = find(jobs, n, q_i64(q, 0), &at);

        if (job != NULL)
            rc = db_job_row(q, 1, job, a, e);
    }
    if (q != NULL)
        q_reset(q);
    buf_free(&ids);
    return rc;
}

/* --- successes --- */

enum { TASK, QUEUE, RANK, RUN_AT, ID, RUNS, OUTCOME, STARTED, ENDED, FAILURES, LOST, RELEASES,
       SNOOZES, RESULT, LEASE, ARRAYS };

enum pawl_rc pg_done_many(struct db *db, const struct db_done *d, size_t n, bool leased,
                          int64_t *taken, struct pawl_error *e)
{
    struct buf b[ARRAYS] = {{0}};
    struct query *q = NULL;
    bool row = false;
    enum pawl_rc rc = pg_named(db, leased ? PQ_DONE_LEASED : PQ_DONE_READY, &q, e);

    for (size_t i = 0; i < n; i++) {
        const struct job *job = d[i].job;

        pg_put_int(&b[TASK], d[i].task_id);
        pg_put_int(&b[QUEUE], job->queue_id);
        pg_put_int(&b[RANK], job->rank);
        pg_put_int(&b[RUN_AT], job->run_at_us);
        pg_put_int(&b[ID], job->id);
        pg_put_int(&b[RUNS], job->n.runs);
        pg_put_text(&b[OUTCOME], d[i].stale ? "stale" : "done", d[i].stale ? 5 : 4);
        pg_put_int(&b[STARTED], d[i].started_at_us);
        pg_put_int(&b[ENDED], d[i].ended_at_us);
        pg_put_int(&b[FAILURES], job->n.failures);
        pg_put_int(&b[LOST], job->n.lost);
        pg_put_int(&b[RELEASES], job->n.releases);
        pg_put_int(&b[SNOOZES], job->n.snoozes);
        pg_put_text(&b[RESULT], d[i].result, d[i].result_bytes);
        put_lease(&b[LEASE], job);
    }
    for (int i = 0; i < ARRAYS && rc == PAWL_OK; i++)
        if (!pg_bind_array(q, i + 1, &b[i]))
            rc = pawl_fail(e, PAWL_NOMEM, "out of memory");
    if (rc == PAWL_OK) {
        q_text(q, ARRAYS + 1, db->side.id);
        rc = pg_row(db, q, &row, e);
    }
    if (rc == PAWL_OK && row)
        *taken = q_i64(q, 0);
    if (q != NULL)
        q_reset(q);
    free_all(b, ARRAYS);
    return rc;
}
