// SPDX-License-Identifier: Apache-2.0
/* pg_door.c - pawl_enqueue_pg: the caller's arguments, and the rules of every door, before a
 * statement runs: what they refuse leaves the caller's transaction as it was. */
#include "api/api.h"

#include <stdlib.h>
#include <string.h>

static enum pawl_rc arguments(const struct pg_conn *conn, const struct pawl_request *req, size_t n,
                              const struct pawl_enqueued *out, struct pawl_error *e)
{
    enum pawl_rc rc = api_need(conn != NULL, e, "the connection is NULL");

    if (rc != PAWL_OK || n == 0) return rc;
    rc = api_need(req && out, e, "requests, or room for answers, is NULL");
    if (rc != PAWL_OK) return rc;
    if (n > LIMIT_ENQUEUE_N)
        return pawl_fail(e, PAWL_TOOBIG, "%zu requests in one call: at most %d", n,
                         LIMIT_ENQUEUE_N);
    return PAWL_OK;
}

static enum pawl_rc rules(const struct pawl_request *req, size_t n, struct pawl_request *copy,
                          size_t *bad_i, struct pawl_error *e)
{
    enum pawl_rc rc = PAWL_OK;

    for (size_t i = 0; i < n && rc == PAWL_OK; i++) {
        copy[i] = req[i];
        rc = req[i].task == NULL ? pawl_fail(e, PAWL_BADARG, "task is missing")
                                 : store_request_rule(&copy[i], e);
        if (rc != PAWL_OK) *bad_i = i;
    }
    return rc;
}

enum pawl_rc pawl_enqueue_pg(struct pg_conn *conn, const struct pawl_request *req, size_t n,
                             struct pawl_enqueued *out, size_t *bad_i, struct pawl_error *e)
{
    WITH_ERROR(e);
    struct pawl_request *copy;
    size_t unused;
    enum pawl_rc rc = arguments(conn, req, n, out, e);

    if (!bad_i) bad_i = &unused;
    *bad_i = n;
    if (rc != PAWL_OK || n == 0) return rc;
    memset(out, 0, n * sizeof *out);
    if ((copy = malloc(n * sizeof *copy)) == NULL)
        return pawl_fail(e, PAWL_NOMEM, "out of memory");
    rc = rules(req, n, copy, bad_i, e);
    if (rc == PAWL_OK) rc = store_enqueue_on(conn, copy, n, out, bad_i, e);
    free(copy);
    return rc;
}
