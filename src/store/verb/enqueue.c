// SPDX-License-Identifier: Apache-2.0
/* enqueue.c - the C door: the same rows as the SQL door (sql/sqlite/views.sql) for the same
 * request.
 *
 * Keeps: the ledger's primary key is the check; same request = same bytes of args. Everything in
 * one
 *        transaction, all or nothing.
 */
#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include "base/err.h"
#include "base/fail.h"
#include "base/json.h"
#include "base/text.h"
#include "core/meaning.h"
#include "core/rules.h"
#include "store/verb/db.h"

#define RACES 3 /* a key that was there, and gone when it was read (pruned), so often */

static bool names_are(const struct db_names *n, const struct pawl_request *r)
{
    return strcmp(n->task, r->task) == 0 && strcmp(n->queue, r->queue != NULL ? r->queue : "") == 0;
}

static const struct db_names *recall(const struct db_memo *m, const struct pawl_request *r)
{
    for (size_t i = 0; i < m->used; i++)
        if (names_are(&m->n[i], r))
            return &m->n[i];
    return NULL;
}

static struct db_names *place_for(struct db_memo *m)
{
    struct db_names *n = &m->n[m->next];

    m->next = (m->next + 1) % DB_NAMES_N;
    m->used += m->used < DB_NAMES_N;
    memset(n, 0, sizeof *n);
    return n;
}

static enum pawl_rc look_up(struct db *db, const struct pawl_request *r, struct db_names *n,
                            bool make, struct pawl_error *e)
{
    enum pawl_rc rc = db_task_id(db, r->task, make, &n->task_id, &n->task_queue_id, &n->priority,
                                 &n->declared, e);

    if (rc != PAWL_OK)
        return rc;
    n->queue_id = n->task_queue_id;
    if (r->queue != NULL || n->queue_id == 0)
        rc = db_queue_id(db, r->queue != NULL ? r->queue : "default", make, &n->queue_id, e);
    if (rc == PAWL_OK && (n->task_id == 0 || n->queue_id == 0))
        rc = pawl_fail(e, PAWL_NOTFOUND, "task %s, or its queue, is new", r->task);
    return rc;
}

static enum pawl_rc clash(const struct pawl_request *r, const char *old, size_t old_n, int64_t id,
                          struct pawl_error *e)
{
    /* What came through SQL may be anything: only checked texts are compared, for the hint. */
    const bool spelling = old != NULL && json_check(old, old_n, LIMIT_JSON_DEPTH, NULL, NULL) &&
                          meaning_same(old, old_n, r->args, r->args_bytes);

    return pawl_fail(e, PAWL_KEYCLASH,
                     "key \"%s\" of task %s was used before with other args by job"
                     " %lld%s; send the same bytes, or a new key", r->key, r->task, (long long)id,
                     spelling ? " (only the spelling differs: white space, order, digits)" : "");
}

static enum pawl_rc state_of(struct db *db, int64_t id, struct pawl_enqueued *out,
                             struct pawl_error *e)
{
    struct query *q = NULL;
    bool row = false;
    enum pawl_rc rc;

    if ((rc = db_q(db, Q_STATE, &q, e)) != PAWL_OK)
        return rc;
    q_int(q, 1, id);
    if ((rc = db_row(db, q, &row, e)) != PAWL_OK || !row)
        return rc;
    for (int s = 0; s < PAWL_STATE_N; s++)
        if (strcmp(pawl_state_name((enum pawl_state)s), q_str(q,
                0)) == 0)
            out->state = (enum pawl_state)s;
    if (!q_is_null(q, 1)) {
        out->result = strdup(q_str(q, 1));
        if (out->result == NULL)
            rc = pawl_fail(e, PAWL_NOMEM, "out of memory");
    }
    q_reset(q);
    return rc;
}

/* A keyed request: *known = true and *out answered if it was accepted before. */
static enum pawl_rc meet_key(struct db *db, const struct pawl_request *r, int64_t task_id,
                             struct pawl_enqueued *out, bool *known, struct pawl_error *e)
{
    const char *source = r->source != NULL ? r->source : "";
    struct query *q = NULL;
    bool row = false;
    enum pawl_rc rc;

    *known = false;
    if ((rc = db_q(db, Q_KEY_GET, &q, e)) != PAWL_OK)
        return rc;
    q_int(q, 1, task_id);
    q_text(q, 2, source);
    q_text(q, 3, r->key);
    if ((rc = db_row(db, q, &row, e)) != PAWL_OK || !row)
        return rc;
    *known = true;
    out->created = false;
    out->id = q_i64(q, 0);
    const bool pruned = !q_is_null(q, 1);
    const char *old = q_str(q, 5);
    const size_t old_n = (size_t)q_bytes(q, 5);
    const bool same = pruned
        ? (size_t)q_i64(q, 2) == r->args_bytes &&
          q_i64(q, 1) == args_hash(r->args, r->args_bytes)
        : old != NULL && old_n == r->args_bytes && memcmp(old, r->args, old_n) == 0;
    if (!same)
        rc = clash(r, pruned ? NULL : old, old_n, out->id, e);
    if (rc == PAWL_OK && pruned) {
        out->state = PAWL_STATE_PRUNED;
        for (int s = 0; s < PAWL_STATE_N; s++)
            if (strcmp(pawl_state_name((enum pawl_state)s), q_str(q,
                    3)) == 0)
                out->state = (enum pawl_state)s;
        if (!q_is_null(q, 4) &&
            (out->result = strdup(q_str(q, 4))) == NULL)
            rc = pawl_fail(e, PAWL_NOMEM, "out of memory");
    }
    q_reset(q);
    if (rc != PAWL_OK || pruned)
        return rc;
    if ((rc = db_q(db, Q_NEWEST, &q, e)) != PAWL_OK)
        return rc;
    q_int(q, 1, out->id);
    if ((rc = db_row(db, q, &row, e)) != PAWL_OK)
        return rc;
    if (row && !q_is_null(q, 0))
        out->id = q_i64(q, 0);
    q_reset(q);
    return state_of(db, out->id, out, e);
}

static void bind_opt_int(struct query *q, int i, bool has, int64_t v)
{
    if (has)
        q_int(q, i, v);
}

/* The ledger's primary key is the check. *raced: another transaction has just brought this key,
 * which meet_key did not see; the job that was to have it is gone again. */
static enum pawl_rc add_key(struct db *db, const struct pawl_request *r, int64_t task_id,
                            int64_t job_id, bool *raced, struct pawl_error *e)
{
    struct query *q = NULL;
    enum pawl_rc rc;

    if ((rc = db_q(db, Q_KEY_ADD, &q, e)) != PAWL_OK)
        return rc;
    q_int(q, 1, task_id);
    q_text(q, 2, r->source != NULL ? r->source : "");
    q_text(q, 3, r->key);
    q_int(q, 4, job_id);
    if ((rc = db_run(db, q, e)) != PAWL_OK)
        return rc;
    *raced = db_changes(db) == 0;
    if (!*raced || (rc = db_q(db, Q_JOB_UNDO, &q, e)) != PAWL_OK)
        return rc;
    q_int(q, 1, job_id);
    return db_run(db, q, e);
}

static enum pawl_rc insert_job(struct db *db, const struct pawl_request *r,
                               const struct db_names *n,
                               int64_t now_us, int64_t *id, bool *raced, struct pawl_error *e)
{
    const int64_t run_at = r->run_at_us != 0 ? r->run_at_us : now_us;
    const int64_t priority = r->has_priority ? r->priority : n->priority;
    struct query *q = NULL;
    enum pawl_rc rc;

    if ((rc = db_q(db, Q_JOB_ADD, &q, e)) != PAWL_OK)
        return rc;
    q_int(q, 1, n->task_id);
    q_int(q, 2, n->queue_id);
    q_text(q, 3, r->source != NULL ? r->source : "");
    q_text(q, 4, r->key);
    q_text_n(q, 5, r->args, r->args_bytes);
    q_text(q, 6, r->headers);
    q_text(q, 7, r->trace);
    q_text(q, 8, r->entity);
    bind_opt_int(q, 9, r->has_version, r->version);
    q_int(q, 10, priority);
    bind_opt_int(q, 11, r->has_max_retries, r->max_retries);
    q_int(q, 12, run_at);
    bind_opt_int(q, 13, r->expires_at_us != 0, r->expires_at_us);
    q_int(q, 14, now_us);
    q_int(q, 16, 0);
    if ((rc = db_run(db, q, e)) != PAWL_OK)
        return rc;
    *id = db_insert_id(db);
    if (r->key != NULL && ((rc = add_key(db, r, n->task_id, *id, raced, e)) != PAWL_OK || *raced))
        return rc;
    if ((rc = db_q(db, Q_READY_ADD, &q, e)) != PAWL_OK)
        return rc;
    q_int(q, 1, n->task_id);
    q_int(q, 2, n->queue_id);
    q_int(q, 3, -priority);
    q_int(q, 4, run_at);
    q_int(q, 5, *id);
    return db_run(db, q, e);
}

static enum pawl_rc near_task(struct db *db, const char *task, struct db_names *out,
                              struct pawl_error *e)
{
    const char *names[1000];
    struct arena a = {0};
    struct query *q = NULL;
    bool row = true;
    size_t n = 0;
    enum pawl_rc rc;

    out->near[0] = '\0';
    if ((rc = db_q(db, Q_TASK_NAMES, &q, e)) != PAWL_OK)
        return rc;
    while ((rc = db_row(db, q, &row, e)) == PAWL_OK && row && n < 1000)
        if ((names[n] = q_dup(&a, q, 0)) != NULL)
            n++;
    q_reset(q);
    const int at = rc == PAWL_OK ? text_nearest(task, names, n) : -1;
    if (at >= 0)
        text_copy(out->near, sizeof out->near, names[at]);
    arena_free(&a);
    return rc;
}

/* Only of a new job: a request that was accepted in time is a duplicate for ever. */
enum pawl_rc db_can_start(const struct pawl_request *r, int64_t now_us, struct pawl_error *e)
{
    if (r->expires_at_us == 0 || (r->expires_at_us > r->run_at_us && r->expires_at_us > now_us))
        return PAWL_OK;
    return pawl_fail(e, PAWL_BADDATA, "expires_at is not later than %s: the job could never start",
                     r->expires_at_us <= r->run_at_us ? "run_at" : "now");
}

enum pawl_rc db_resolve_names(struct db *db, const struct pawl_request *r, struct db_memo *m,
                              const struct db_names **out, struct pawl_error *e)
{
    struct db_names *n;
    enum pawl_rc rc;

    if ((*out = recall(m, r)) != NULL)
        return PAWL_OK;
    *out = n = place_for(m);
    if ((rc = look_up(db, r, n, !m->known_only, e)) != PAWL_OK ||
        (!n->declared && (rc = near_task(db, r->task, n, e)) != PAWL_OK))
        return rc;
    text_copy(n->task, sizeof n->task, r->task);
    text_copy(n->queue, sizeof n->queue, r->queue != NULL ? r->queue : "");
    return PAWL_OK;
}

enum pawl_rc db_enqueue_one(struct db *db, const struct pawl_request *r, struct db_memo *m,
                            int64_t now_us, struct pawl_enqueued *out, int64_t *dups,
                            struct pawl_error *e)
{
    const struct db_names *n = NULL;
    bool known = false;
    enum pawl_rc rc;

    if ((rc = db_resolve_names(db, r, m, &n, e)) != PAWL_OK)
        return rc;
    out->task_known = n->declared;
    static_assert(sizeof out->near == sizeof n->near, "one size of names");
    memcpy(out->near, n->near, sizeof out->near);
    for (int i = 0; i < RACES; i++) {
        bool raced = false;

        if (r->key != NULL && (rc = meet_key(db, r, n->task_id, out, &known, e)) != PAWL_OK)
            return rc;
        if (known) {
            ++*dups;
            return PAWL_OK;
        }
        if ((rc = db_can_start(r, now_us, e)) != PAWL_OK)
            return rc;
        out->created = true;
        out->state = PAWL_STATE_READY;
        if ((rc = insert_job(db, r, n, now_us, &out->id, &raced, e)) != PAWL_OK || !raced)
            return rc;
    }
    return pawl_fail(e, PAWL_BUSY, "key \"%s\" of task %s comes and goes: try again", r->key,
                     r->task);
}

/* The refusal itself changes nothing; that it happened is counted apart, best effort. */
void db_count_clash(struct db *db)
{
    struct pawl_error ignored;

    if (db_begin(db, &ignored) != PAWL_OK)
        return;
    if (db_count(db, "key_conflicts", 1, &ignored) != PAWL_OK || db_commit(db, &ignored) != PAWL_OK)
        db_rollback(db);
}

/* The commit's outcome is unknown (the connection is new): did the first new job land? An id of a
 * rolled-back batch is given again, so the content is compared. OK: it did | IO: it did not. */
enum pawl_rc db_landed(struct db *db, const struct pawl_request *req, size_t n,
                           const struct pawl_enqueued *out, int64_t now_us, struct pawl_error *e)
{
    struct pawl_error local;
    struct query *q = NULL;
    bool row = false;
    size_t i = 0;

    while (i < n && !out[i].created)
        i++;
    if (i == n) /* only duplicates: nothing but a counter was to be written */
        return PAWL_OK;
    if (db_q(db, Q_JOB_READ, &q, &local) != PAWL_OK)
        return PAWL_UNSURE;
    q_int(q, 1, out[i].id);
    if (db_row(db, q, &row, &local) != PAWL_OK)
        return PAWL_UNSURE;
    const char *args = row ? q_str(q, 4) : NULL;
    const bool same = args != NULL && q_i64(q, 11) == now_us &&
                      (size_t)q_bytes(q, 4) == req[i].args_bytes &&
                      memcmp(args, req[i].args, req[i].args_bytes) == 0;
    q_reset(q);
    return same ? PAWL_OK : pawl_fail(e, PAWL_IO, "the commit failed: nothing was stored");
}

void db_forget(struct pawl_enqueued *out, size_t n)
{
    for (size_t i = 0; i < n; i++)
        free(out[i].result);
    memset(out, 0, n * sizeof *out);
}

/* On an error part of it may be there: the caller undoes its job, whose run cannot succeed now. */
enum pawl_rc db_effect_enqueue(struct store *st, const struct pawl_request *req, size_t n,
                               struct pawl_enqueued *out, size_t *bad_i, struct pawl_error *e)
{
    struct db *db = db_of(st);
    struct db_memo memo;
    int64_t dups = 0;
    enum pawl_rc rc = PAWL_OK;

    *bad_i = n;
    memset(out, 0, n * sizeof *out);
    db_memo_init(&memo, false);
    if (!db_effect_alive(st))
        return pawl_fail(e, PAWL_BUG, "the effect transaction is gone: the handler ended it");
    const bool guarded = db->engine->guard(db, false); /* ours, although a handler runs */
    for (size_t i = 0; i < n && rc == PAWL_OK; i++)
        if ((rc = db_enqueue_one(db, &req[i], &memo, st->env->wall_us(st->env->ctx), &out[i],
                                 &dups, e)) != PAWL_OK)
            *bad_i = rc == PAWL_KEYCLASH || rc == PAWL_BADDATA ? i : n;
    if (rc == PAWL_OK && dups > 0)
        rc = db_count(db, "duplicates", dups, e);
    (void)db->engine->guard(db, guarded);
    for (size_t i = 0; i < n && rc != PAWL_OK; i++) {
        free(out[i].result);
        out[i].result = NULL;
    }
    return rc;
}
