// SPDX-License-Identifier: Apache-2.0
/* pg_said.c - what a handler with a connection of its own has said of its run, by pawl.fail: kept
 * in the running row until whoever settles that run, or takes it over, heeds it. */
#include <string.h>
#include "base/err.h"
#include "store/pg/pg.h"

static enum pawl_rc by_lease(struct db *db, int id, const struct job *job, struct query **q,
                             struct pawl_error *e)
{
    const enum pawl_rc rc = pg_named(db, id, q, e);

    if (rc == PAWL_OK) {
        q_int(*q, 1, job->id);
        q_blob(*q, 2, job->lease_id, sizeof job->lease_id);
    }
    return rc;
}

enum pawl_rc pg_fence_unsaid(struct db *db, const struct job *job, bool *ok, struct pawl_error *e)
{
    struct query *q = NULL;
    enum pawl_rc rc = by_lease(db, PQ_FENCE_UNSAID, job, &q, e);

    if (rc != PAWL_OK || (rc = pg_run(db, q, e)) != PAWL_OK)
        return rc;
    *ok = pg_from(db)->changed_n == 1;
    return PAWL_OK;
}

enum pawl_rc pg_said(struct db *db, const struct job *job, struct arena *a, struct said *out,
                     bool *yes, struct pawl_error *e)
{
    struct query *q = NULL;
    enum pawl_rc rc = by_lease(db, PQ_SAID, job, &q, e);

    if (rc != PAWL_OK || (rc = pg_row(db, q, yes, e)) != PAWL_OK || !*yes)
        return rc;
    const char *word = q_str(q, 0);
    out->outcome = strcmp(word, "permanent") == 0 ? OUT_PERMANENT
                 : strcmp(word, "snooze") == 0    ? OUT_SNOOZE
                                                  : OUT_TRANSIENT;
    out->error = q_is_null(q, 1) ? NULL : q_dup(a, q, 1);
    out->after_us = q_i64(q, 2);
    const bool failed = !q_is_null(q, 1) && out->error == NULL;
    q_reset(q);
    return failed ? pawl_fail(e, PAWL_NOMEM, "out of memory") : PAWL_OK;
}
