// SPDX-License-Identifier: Apache-2.0
/* sl_enqueue.c - the C door of SQLite: our own requests, and those that ride in our commit.
 *
 * Keeps: everything in one transaction, all or nothing; a common transaction that failed is taken
 *        apart, and each does its own.
 */
#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include "base/err.h"
#include "base/fail.h"
#include "store/sqlite/sl_combine.h"

/* Our own requests, then, if there is a `c`, what others posted. */
static enum pawl_rc execute(struct sqlite *sl, const struct pawl_request *req, size_t n,
                            int64_t now_us, struct combine *c, struct pawl_enqueued *out,
                            size_t *bad_i, struct pawl_error *e)
{
    struct db_memo memo;
    int64_t dups = 0;
    enum pawl_rc rc = PAWL_OK;

    db_memo_init(&memo, false);
    for (size_t i = 0; i < n && rc == PAWL_OK; i++)
        if ((rc = db_enqueue_one(&sl->d, &req[i], &memo, now_us, &out[i], &dups, e)) != PAWL_OK)
            *bad_i = rc == PAWL_KEYCLASH || rc == PAWL_BADDATA ? i : n;
    if (rc == PAWL_OK && c != NULL)
        rc = sl_combine_serve(sl, c, &dups, e);
    if (rc == PAWL_OK && dups > 0)
        rc = db_count(&sl->d, "duplicates", dups, e);
    if (rc == PAWL_OK && fail_point("enqueue.before"))
        rc = pawl_fail(e, PAWL_IO, "failpoint enqueue.before");
    if (rc == PAWL_OK && c != NULL && c->n > 0 && fail_point("combine.commit.before"))
        rc = pawl_fail(e, PAWL_IO, "failpoint combine.commit.before");
    if (rc == PAWL_OK)
        rc = sl_commit(sl, e);
    else
        sl_rollback(sl);
    if (rc == PAWL_OK && fail_point("enqueue.after"))
        rc = pawl_fail(e, PAWL_UNSURE, "failpoint enqueue.after");
    if (rc == PAWL_OK && c != NULL && c->n > 0 && fail_point("combine.commit.after"))
        rc = pawl_fail(e, PAWL_UNSURE, "failpoint combine.commit.after");
    return rc;
}

enum pawl_rc sl_enqueue(struct store *st, const struct pawl_request *req, size_t n,
                        struct pawl_enqueued *out, size_t *bad_i, struct pawl_error *e)
{
    struct sqlite *sl = sl_of(st);
    const int64_t now_us = st->env->wall_us(st->env->ctx);
    struct combine c = {.n = 0};
    struct pawl_error local;
    bool answered = false;
    enum pawl_rc rc;

    *bad_i = n;
    memset(out, 0, n * sizeof *out);
    rc = n == 1 ? sl_combine_turn(sl, req, now_us, out, &answered, e) : sl_begin(sl, e);
    if (rc != PAWL_OK || answered)
        return rc;
    rc = execute(sl, req, n, now_us, &c, out, bad_i, e);
    if (c.n > 0 && rc != PAWL_OK && rc != PAWL_UNSURE) {
        /* What we took for others may be why: they do it for themselves, and so do we. */
        sl_combine_end(sl, &c, false);
        db_forget(out, n);
        *bad_i = n;
        if ((rc = sl_begin(sl, e)) == PAWL_OK)
            rc = execute(sl, req, n, now_us, NULL, out, bad_i, e);
    } else if (rc == PAWL_OK) {
        sl_combine_end(sl, &c, true);
    } else if (c.n > 0 && sl_combine_recover(sl, &local) != PAWL_OK) {
        /* whoever has the lock next looks again */
    }
    if (rc == PAWL_UNSURE)
        rc = db_landed(&sl->d, req, n, out, now_us, e);
    if (rc == PAWL_OK && c.n > 0 && fail_point("combine.answered"))
        c.n = 0; /* nobody is woken: they look for themselves */
    if (rc == PAWL_KEYCLASH)
        db_count_clash(&sl->d);
    sl_leave(sl);
    sl_combine_wake(sl, &c);
    if (rc == PAWL_OK) {
        side_wake(&sl->d.side);
        return PAWL_OK;
    }
    for (size_t i = 0; i < n; i++) {
        free(out[i].result);
        out[i].result = NULL;
    }
    return rc;
}
