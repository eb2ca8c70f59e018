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

/* By hand: printf was a tenth of the client's time for a batch. */
void pg_put_int(struct buf *b, int64_t v)
{
    char out[24], *at = out + sizeof out;
    uint64_t left = v < 0 ? -(uint64_t)v : (uint64_t)v;

    do
        *--at = (char)('0' + left % 10);
    while ((left /= 10) > 0);
    if (v < 0)
        *--at = '-';
    *--at = b->n == 0 ? '{' : ',';
    buf_put(b, at, (size_t)(out + sizeof out - at));
}

void pg_put_text(struct buf *b, const char *s, size_t n)
{
    buf_puts(b, b->n == 0 ? "{" : ",");
    if (s == NULL) {
        buf_puts(b, "NULL");
        return;
    }
    size_t from = 0;
    buf_putc(b, '"');
    for (size_t i = 0; i < n; i++) {
        if (s[i] != '"' && s[i] != '\\')
            continue;
        buf_put(b, s + from, i - from);
        buf_putc(b, '\\');
        from = i;
    }
    buf_put(b, s + from, n - from);
    buf_putc(b, '"');
}

static void put_lease(struct buf *b, const struct job *job)
{
    static const char digit[] = "0123456789abcdef";
    char hex[2 * sizeof job->lease_id + 2] = "\\x";

    for (size_t i = 0; i < sizeof job->lease_id; i++) {
        hex[2 + 2 * i] = digit[job->lease_id[i] >> 4];
        hex[3 + 2 * i] = digit[job->lease_id[i] & 15];
    }
    pg_put_text(b, hex, sizeof hex);
}

/* Ends the array, and binds it. false: out of memory */
bool pg_bind_array(struct query *q, int i, struct buf *b)
{
    buf_putc(b, '}');
    pg_bind_plain(q, i, buf_str(b));
    return !b->failed;
}

/* Where a row is: "(block,line)", as one number and back. */
int64_t pg_place(struct query *q, int col)
{
    unsigned long block = 0;
    unsigned line = 0;

    return sscanf(q_str(q, col), "(%lu,%u)", &block, &line) == 2 ? (int64_t)(block << 16 | line)
                                                                 : 0;
}

static void put_place(struct buf *b, int64_t place)
{
    buf_printf(b, b->n == 0 ? "{\"(%lld,%d)\"" : ",\"(%lld,%d)\"", (long long)(place >> 16),
               (int)(place & 0xffff));
}

static void free_all(struct buf *b, size_t n)
{
    for (size_t i = 0; i < n; i++)
        buf_free(&b[i]);
}

/* --- successes --- */

enum { PLACE, ID, RUNS, OUTCOME, STARTED, ENDED, FAILURES, LOST, RELEASES, SNOOZES, RESULT, LEASE,
       ARRAYS };

/* Bind the arrays, and let the server see to it that each row was there: nobody waits. */
static enum pawl_rc send_all(struct db *db, struct query *q, struct buf *b, int arrays, size_t n,
                             struct pawl_error *e)
{
    enum pawl_rc rc = PAWL_OK;

    for (int i = 0; i < arrays && rc == PAWL_OK; i++)
        if (!pg_bind_array(q, i + 1, &b[i]))
            rc = pawl_fail(e, PAWL_NOMEM, "out of memory");
    if (rc != PAWL_OK)
        return rc;
    q_text(q, arrays + 1, db->side.id);
    q_int(q, arrays + 2, (int64_t)n);
    ((struct pg_query *)(void *)q)->kind = PIPE_MUST;
    return pg_run_later(db, q, e);
}

enum pawl_rc pg_done_many(struct db *db, const struct db_done *d, size_t n, bool leased,
                          struct pawl_error *e)
{
    struct buf b[ARRAYS] = {{0}};
    struct query *q = NULL;
    enum pawl_rc rc = pg_named(db, leased ? PQ_DONE_LEASED : PQ_DONE_READY, &q, e);

    for (size_t i = 0; i < n && rc == PAWL_OK; i++) {
        const struct job *job = d[i].job;

        put_place(&b[PLACE], job->place);
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
    if (rc == PAWL_OK)
        rc = send_all(db, q, b, ARRAYS, n, e);
    free_all(b, ARRAYS);
    return rc;
}

/* --- a claim --- */

enum { L_PLACE, L_TASK, L_QUEUE, L_RANK, L_RUN_AT, L_ID, L_RUNS, L_TOKEN, L_STARTED, L_FAILURES,
       L_LOST, L_RELEASES, L_SNOOZES, L_SUSPECT, L_LEASE, L_ARRAYS };

enum pawl_rc pg_lease_many(struct db *db, const struct lane *lane, const struct job *jobs, size_t n,
                           struct pawl_error *e)
{
    struct buf b[L_ARRAYS] = {{0}};
    struct query *q = NULL;
    enum pawl_rc rc = pg_named(db, PQ_LEASE, &q, e);

    for (size_t i = 0; i < n && rc == PAWL_OK; i++) {
        const struct job *job = &jobs[i];

        put_place(&b[L_PLACE], job->place);
        pg_put_int(&b[L_TASK], db_lane_task(lane, job));
        pg_put_int(&b[L_QUEUE], job->queue_id);
        pg_put_int(&b[L_RANK], job->rank);
        pg_put_int(&b[L_RUN_AT], job->run_at_us);
        pg_put_int(&b[L_ID], job->id);
        pg_put_int(&b[L_RUNS], job->n.runs);
        pg_put_int(&b[L_TOKEN], job->token);
        pg_put_int(&b[L_STARTED], job->started_at_us);
        pg_put_int(&b[L_FAILURES], job->n.failures);
        pg_put_int(&b[L_LOST], job->n.lost);
        pg_put_int(&b[L_RELEASES], job->n.releases);
        pg_put_int(&b[L_SNOOZES], job->n.snoozes);
        pg_put_int(&b[L_SUSPECT], job->suspect);
        put_lease(&b[L_LEASE], job);
    }
    if (rc == PAWL_OK)
        rc = send_all(db, q, b, L_ARRAYS, n, e);
    free_all(b, L_ARRAYS);
    return rc;
}
