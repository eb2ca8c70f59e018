// SPDX-License-Identifier: Apache-2.0
/* pg_enqueue.c - the C door of PostgreSQL: requests in one transaction, all or nothing. */
#include <string.h>
#include <time.h>
#include "base/err.h"
#include "base/fail.h"
#include "store/pg/pg.h"

#define TRIES 4 /* two calls that bring the same keys in opposite orders: one is undone (40P01) */

/* *together: in, try to store them as new, all at once; out, whether they were sent so. */
static enum pawl_rc try(struct pg *pg, const struct pawl_request *req, size_t n, int64_t now_us,
                        bool *together, struct pawl_enqueued *out, size_t *bad_i,
                        struct pawl_error *e)
{
    struct db_memo memo;
    int64_t dups = 0;
    enum pawl_rc rc;

    *bad_i = n;
    memset(out, 0, n * sizeof *out);
    if ((rc = pg_begin(&pg->d, e)) != PAWL_OK)
        return rc;
    db_memo_init(&memo, false);
    if (*together)
        rc = pg_bulk(pg, req, n, now_us, &memo, out, bad_i, together, e);
    for (size_t i = 0; i < n && rc == PAWL_OK && !*together; i++)
        if ((rc = db_enqueue_one(&pg->d, &req[i], &memo, now_us, &out[i], &dups, e)) != PAWL_OK)
            *bad_i = rc == PAWL_KEYCLASH || rc == PAWL_BADDATA ? i : n;
    if (rc == PAWL_OK && dups > 0)
        rc = db_count(&pg->d, "duplicates", dups, e);
    if (rc == PAWL_OK && fail_point("enqueue.before"))
        rc = pawl_fail(e, PAWL_IO, "failpoint enqueue.before");
    if (rc == PAWL_OK)
        rc = pg_commit(&pg->d, e);
    else
        pg_rollback(&pg->d);
    if (rc == PAWL_OK && fail_point("enqueue.after"))
        rc = pawl_fail(e, PAWL_UNSURE, "failpoint enqueue.after");
    return rc;
}

static enum pawl_rc once(struct pg *pg, const struct pawl_request *req, size_t n, int64_t now_us,
                         struct pawl_enqueued *out, size_t *bad_i, struct pawl_error *e)
{
    bool together = true;
    enum pawl_rc rc = try(pg, req, n, now_us, &together, out, bad_i, e);

    if (rc != PAWL_FENCED)
        return rc;
    together = false; /* one of the keys came by another transaction meanwhile */
    return try(pg, req, n, now_us, &together, out, bad_i, e);
}

enum pawl_rc pg_enqueue(struct store *st, const struct pawl_request *req, size_t n,
                        struct pawl_enqueued *out, size_t *bad_i, struct pawl_error *e)
{
    struct pg *pg = pg_of(st);
    const int64_t now_us = st->env->wall_us(st->env->ctx);
    enum pawl_rc rc = once(pg, req, n, now_us, out, bad_i, e);

    for (int i = 1; i < TRIES && rc == PAWL_BUSY && strncmp(pg->state, "40", 2) == 0; i++) {
        const struct timespec nap = { .tv_nsec = (long)(1 + env_below(st->env, 50)) * 1000000 };

        nanosleep(&nap, NULL); /* another length for each, or they meet again */
        db_forget(out, n);
        rc = once(pg, req, n, now_us, out, bad_i, e);
    }
    if (rc == PAWL_UNSURE) /* e says why, unless it can be told what happened */
        rc = pg->c != NULL ? db_landed(&pg->d, req, n, out, now_us, e) : PAWL_UNSURE;
    if (rc == PAWL_UNSURE)
        pawl_wrap(e, "stored or not: %s", n == 1 && req->key == NULL
                  ? "look for it (pawl jobs) before you send it again"
                  : "send it again with the same key, which stores it once");
    if (rc == PAWL_KEYCLASH)
        db_count_clash(&pg->d);
    if (rc == PAWL_OK)
        pg_wake(&pg->d);
    else
        db_forget(out, n);
    return rc;
}
