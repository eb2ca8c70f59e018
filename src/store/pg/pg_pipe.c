// SPDX-License-Identifier: Apache-2.0
/* pg_pipe.c - users' statements whose outcome nobody waits for, sent one behind the other.
 *
 * Why: a round trip costs more than a small insert; a batch of 256 of them sent at once is ten
 *      times as fast (measured).
 * Keeps: only inside a batch that has no savepoint per job: when one of them fails, the batch as a
 *        whole does, and runs again one by one. Before anything else is sent, all answers are read.
 */
#include <string.h>
#include "base/err.h"
#include "store/pg/pg.h"

bool pg_send(struct pg *pg, const char *name, const char *text, int n, const char *const *v,
             const int *len, const int *fmt)
{
    return (*name != '\0' ? PQsendQueryPrepared(pg->c, name, n, v, len, fmt, 0)
                          : PQsendQueryParams(pg->c, text, n, NULL, v, len, fmt, 0)) == 1;
}

enum pawl_rc pg_pipe_send(struct pg *pg, const char *name, const char *text, int n,
                          const char *const *v, const int *len, const int *fmt,
                          struct pawl_error *e)
{
    const int64_t limit_us = pg->deadline_us != 0 ? pg->deadline_us : pg_until(pg);

    if (!pg->piped && PQenterPipelineMode(pg->c) != 1)
        return pg_fail(pg, NULL, e, "store: pipeline");
    pg->piped = true;
    if (!pg_send(pg, name, text, n, v, len, fmt) || PQflush(pg->c) < 0 ||
        PQconsumeInput(pg->c) != 1)
        return pg_fail(pg, NULL, e, "store: pipeline");
    pg->piped_n++;
    pg->sent_n++;
    if (limit_us > pg->piped_until_us)
        pg->piped_until_us = limit_us;
    return PAWL_OK;
}

/* One answer: what it says is counted, or it is the first to have failed. */
static void take(struct pg *pg, PGresult *r, PGresult **failed)
{
    const ExecStatusType s = PQresultStatus(r);

    if (s == PGRES_COMMAND_OK || s == PGRES_TUPLES_OK)
        (void)pg_count(pg, r);
    if (s == PGRES_FATAL_ERROR && *failed == NULL)
        *failed = r;
    else
        PQclear(r);
}

enum pawl_rc pg_pipe_end(struct pg *pg, struct pawl_error *e)
{
    PGresult *failed = NULL, *r;
    bool synced = false, lost;

    if (!pg->piped)
        return PAWL_OK;
    const int64_t until_us = pg->piped_until_us > pg_until(pg) ? pg->piped_until_us : pg_until(pg);
    pg->timed_out = false;
    pg->piped = false;
    pg->piped_n = 0;
    pg->piped_until_us = 0;
    lost = pg->c == NULL || PQpipelineSync(pg->c) != 1;
    while (!synced && !lost) {
        if (!pg_idle(pg, until_us)) {
            lost = true;
        } else if ((r = PQgetResult(pg->c)) != NULL) { /* NULL ends each statement's answers */
            synced = PQresultStatus(r) == PGRES_PIPELINE_SYNC;
            take(pg, r, &failed);
        } else if (PQstatus(pg->c) != CONNECTION_OK) {
            lost = true;
        }
    }
    if (lost || PQexitPipelineMode(pg->c) != 1) {
        PQclear(failed);
        pg_disconnect(pg);
        return pg_fail(pg, NULL, e, "store: pipeline");
    }
    return failed == NULL ? PAWL_OK : pg_sql_failed(pg, failed, e);
}
