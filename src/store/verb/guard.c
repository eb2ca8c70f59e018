// SPDX-License-Identifier: Apache-2.0
/* guard.c - tasks and their policies; the version guard's question. */
#include <assert.h>
#include <string.h>
#include "base/err.h"
#include "base/json.h"
#include "core/rules.h"
#include "store/verb/db.h"

static enum pawl_rc stored_policy(struct db *db, int64_t id, struct buf *stored, bool *has,
                                  struct pawl_error *e)
{
    struct query *q = NULL;
    bool row = false;
    enum pawl_rc rc;

    if ((rc = db_q(db, Q_TASK_POLICY, &q, e)) != PAWL_OK)
        return rc;
    q_int(q, 1, id);
    if ((rc = db_row(db, q, &row, e)) != PAWL_OK)
        return rc;
    *has = row && !q_is_null(q, 0);
    if (*has)
        buf_puts(stored, q_str(q, 0));
    q_reset(q);
    return PAWL_OK;
}

static enum pawl_rc set_policy(struct db *db, int64_t id, const struct policy *p,
                               const char *text, struct pawl_error *e)
{
    struct query *q = NULL;
    int64_t queue_id = 0;
    enum pawl_rc rc;

    if ((rc = db_queue_id(db, p->queue, true, &queue_id, e)) != PAWL_OK ||
        (rc = db_q(db, Q_TASK_SET, &q, e)) != PAWL_OK)
        return rc;
    q_int(q, 1, id);
    q_text(q, 2, text);
    q_int(q, 3, queue_id);
    q_int(q, 4, p->priority);
    return db_run(db, q, e);
}

enum pawl_rc db_task_declare(struct store *st, const char *name, const struct policy *p, bool apply,
                             int64_t *id, struct buf *stored, bool *differs, struct pawl_error *e)
{
    struct db *db = db_of(st);
    int64_t queue_id = 0, priority = 0;
    bool has = false, declared = false, wrote = false;
    struct buf text = {0};
    enum pawl_rc rc;

    *differs = false;
    policy_text(p, &text);
    if (text.failed) {
        rc = pawl_fail(e, PAWL_NOMEM, "out of memory");
        goto out;
    }
    if ((rc = db_begin(db, e)) != PAWL_OK)
        goto out;
    if ((rc = db_task_id(db, name, true, id, &queue_id, &priority, &declared, e)) == PAWL_OK)
        rc = stored_policy(db, *id, stored, &has, e);
    if (rc == PAWL_OK && stored->failed)
        rc = pawl_fail(e, PAWL_NOMEM, "out of memory");
    const bool same = has && strcmp(buf_str(stored), buf_str(&text)) == 0;
    if (rc == PAWL_OK && !same && (!has || apply)) {
        rc = set_policy(db, *id, p, buf_str(&text), e);
        wrote = true;
        buf_clear(stored);
        buf_puts(stored, buf_str(&text));
    } else if (rc == PAWL_OK) {
        *differs = !same;
    }
    if (rc == PAWL_OK && wrote)
        rc = db_commit(db, e);
    else
        db_rollback(db);
    db_leave(db);
out:
    buf_free(&text);
    return rc;
}

enum pawl_rc db_guard(struct store *st, const struct lane_task *t, const struct job *job,
                      enum guard *out, struct pawl_error *e)
{
    struct db *db = db_of(st);
    struct query *q = NULL;
    bool row = false;
    enum pawl_rc rc;

    *out = GUARD_FRESH;
    if (job->entity == NULL || !job->has_version)
        return PAWL_OK;
    if ((rc = db_q(db, Q_VERSION_GET, &q, e)) != PAWL_OK)
        return rc;
    q_int(q, 1, t->id);
    q_text(q, 2, job->entity);
    if ((rc = db_row(db, q, &row, e)) != PAWL_OK || !row)
        return rc;
    const int64_t applied = q_i64(q, 0);
    if (job->version < applied) {
        *out = GUARD_OLDER;
    } else if (job->version == applied) {
        /* Byte by byte while the job that applied it is here; by hash and length after a prune. */
        const char *args = q_str(q, 3);
        const size_t n = (size_t)q_bytes(q, 3);
        const bool same = args != NULL
            ? n == job->args_bytes && memcmp(args, job->args, n) == 0
            : (size_t)q_i64(q, 2) == job->args_bytes &&
              q_i64(q, 1) == args_hash(job->args, job->args_bytes);
        *out = same ? GUARD_SAME : GUARD_CONFLICT;
    }
    q_reset(q);
    return PAWL_OK;
}

/* What the guard needs to know of a dead job, as its run would find it. */
static enum pawl_rc dead_job(struct db *db, int64_t id, struct arena *a, struct job *job,
                             struct lane_task *t, bool *found, struct pawl_error *e)
{
    struct query *q = NULL;
    char why[160];
    enum pawl_rc rc;

    *found = false;
    if ((rc = db_q(db, Q_DEAD_GET, &q, e)) != PAWL_OK)
        return rc;
    q_int(q, 1, id);
    if ((rc = db_row(db, q, found, e)) != PAWL_OK || !*found)
        return rc;
    t->id = q_i64(q, 3);
    job->id = id;
    job->args = q_dup(a, q, 7);
    job->args_bytes = (size_t)q_bytes(q, 7);
    job->entity = q_dup(a, q, 10);
    job->has_version = !q_is_null(q, 11);
    job->version = q_i64(q, 11);
    q_reset(q);
    policy_defaults(&t->policy);
    if ((rc = db_q(db, Q_TASK_POLICY, &q, e)) != PAWL_OK)
        return rc;
    bool row = false;
    q_int(q, 1, t->id);
    if ((rc = db_row(db, q, &row, e)) != PAWL_OK || !row)
        return rc;
    if (!q_is_null(q, 0) &&
        !policy_parse(&t->policy, q_str(q, 0), why, sizeof why))
        rc = pawl_fail(e, PAWL_STORE, "stored policy: %s", why);
    q_reset(q);
    return rc;
}

/* Before a replay: would the version guard find it stale? */
enum pawl_rc db_is_stale(struct store *st, int64_t id, bool *stale, struct pawl_error *e)
{
    struct db *db = db_of(st);
    struct lane_task t = {0};
    struct job job = {0};
    struct arena a = {0};
    enum guard g = GUARD_FRESH;
    bool found = false;
    char why[256];
    enum pawl_rc rc;

    *stale = false;
    if ((rc = db_ready(db, e)) != PAWL_OK)
        return rc;
    rc = dead_job(db, id, &a, &job, &t, &found, e);
    if (rc == PAWL_OK && found && job.args != NULL &&
        json_check(job.args, job.args_bytes, LIMIT_JSON_DEPTH, NULL, NULL) &&
        entity_take(&t.policy, &job, &a, why, sizeof why) &&
        (rc = db_guard(st, &t, &job, &g, e)) == PAWL_OK)
        *stale = g == GUARD_OLDER || g == GUARD_SAME;
    arena_free(&a);
    return rc;
}
