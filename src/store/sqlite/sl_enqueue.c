// SPDX-License-Identifier: Apache-2.0
/* sl_enqueue.c - the C door: the same rows as the SQL door (sql/sqlite/views.sql) for the same
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
#include "store/sqlite/sl_combine.h"

static bool names_are(const struct sl_names *n, const struct pawl_request *r)
{
    return strcmp(n->task, r->task) == 0 && strcmp(n->queue, r->queue != NULL ? r->queue : "") == 0;
}

static const struct sl_names *recall(const struct sl_memo *m, const struct pawl_request *r)
{
    for (size_t i = 0; i < m->used; i++)
        if (names_are(&m->n[i], r))
            return &m->n[i];
    return NULL;
}

static struct sl_names *place_for(struct sl_memo *m)
{
    struct sl_names *n = &m->n[m->next];

    m->next = (m->next + 1) % SL_NAMES_N;
    m->used += m->used < SL_NAMES_N;
    memset(n, 0, sizeof *n);
    return n;
}

static enum pawl_rc look_up(struct sqlite *sl, const struct pawl_request *r, struct sl_names *n,
                            bool make, struct pawl_error *e)
{
    enum pawl_rc rc = sl_task_id(sl, r->task, make, &n->task_id, &n->task_queue_id, &n->priority,
                                 &n->declared, e);

    if (rc != PAWL_OK)
        return rc;
    n->queue_id = n->task_queue_id;
    if (r->queue != NULL || n->queue_id == 0)
        rc = sl_queue_id(sl, r->queue != NULL ? r->queue : "default", make, &n->queue_id, e);
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

static enum pawl_rc state_of(struct sqlite *sl, int64_t id, struct pawl_enqueued *out,
                             struct pawl_error *e)
{
    sqlite3_stmt *q = NULL;
    bool row = false;
    enum pawl_rc rc;

    if ((rc = sl_q(sl, SLQ_STATE, &q, e)) != PAWL_OK)
        return rc;
    sqlite3_bind_int64(q, 1, id);
    if ((rc = sl_row(sl, q, &row, e)) != PAWL_OK || !row)
        return rc;
    for (int s = 0; s < PAWL_STATE_N; s++)
        if (strcmp(pawl_state_name((enum pawl_state)s), (const char *)sqlite3_column_text(q,
                0)) == 0)
            out->state = (enum pawl_state)s;
    if (sqlite3_column_type(q, 1) != SQLITE_NULL) {
        out->result = strdup((const char *)sqlite3_column_text(q, 1));
        if (out->result == NULL)
            rc = pawl_fail(e, PAWL_NOMEM, "out of memory");
    }
    sqlite3_reset(q);
    return rc;
}

/* A keyed request: *known = true and *out answered if it was accepted before. */
static enum pawl_rc meet_key(struct sqlite *sl, const struct pawl_request *r, int64_t task_id,
                             struct pawl_enqueued *out, bool *known, struct pawl_error *e)
{
    const char *source = r->source != NULL ? r->source : "";
    sqlite3_stmt *q = NULL;
    bool row = false;
    enum pawl_rc rc;

    *known = false;
    if ((rc = sl_q(sl, SLQ_KEY_GET, &q, e)) != PAWL_OK)
        return rc;
    sqlite3_bind_int64(q, 1, task_id);
    sl_text(q, 2, source);
    sl_text(q, 3, r->key);
    if ((rc = sl_row(sl, q, &row, e)) != PAWL_OK || !row)
        return rc;
    *known = true;
    out->created = false;
    out->id = sqlite3_column_int64(q, 0);
    const bool pruned = sqlite3_column_type(q, 1) != SQLITE_NULL;
    const char *old = (const char *)sqlite3_column_text(q, 5);
    const size_t old_n = (size_t)sqlite3_column_bytes(q, 5);
    const bool same = pruned
        ? (size_t)sqlite3_column_int64(q, 2) == r->args_bytes &&
          sqlite3_column_int64(q, 1) == args_hash(r->args, r->args_bytes)
        : old != NULL && old_n == r->args_bytes && memcmp(old, r->args, old_n) == 0;
    if (!same)
        rc = clash(r, pruned ? NULL : old, old_n, out->id, e);
    if (rc == PAWL_OK && pruned) {
        out->state = PAWL_STATE_PRUNED;
        for (int s = 0; s < PAWL_STATE_N; s++)
            if (strcmp(pawl_state_name((enum pawl_state)s), (const char *)sqlite3_column_text(q,
                    3)) == 0)
                out->state = (enum pawl_state)s;
        if (sqlite3_column_type(q, 4) != SQLITE_NULL &&
            (out->result = strdup((const char *)sqlite3_column_text(q, 4))) == NULL)
            rc = pawl_fail(e, PAWL_NOMEM, "out of memory");
    }
    sqlite3_reset(q);
    if (rc != PAWL_OK || pruned)
        return rc;
    if ((rc = sl_q(sl, SLQ_NEWEST, &q, e)) != PAWL_OK)
        return rc;
    sqlite3_bind_int64(q, 1, out->id);
    if ((rc = sl_row(sl, q, &row, e)) != PAWL_OK)
        return rc;
    if (row && sqlite3_column_type(q, 0) != SQLITE_NULL)
        out->id = sqlite3_column_int64(q, 0);
    sqlite3_reset(q);
    return state_of(sl, out->id, out, e);
}

static void bind_opt_int(sqlite3_stmt *q, int i, bool has, int64_t v)
{
    if (has)
        sqlite3_bind_int64(q, i, v);
}

static enum pawl_rc insert_job(struct sqlite *sl, const struct pawl_request *r,
                               const struct sl_names *n,
                               int64_t now_us, int64_t *id, struct pawl_error *e)
{
    const int64_t run_at = r->run_at_us != 0 ? r->run_at_us : now_us;
    const int64_t priority = r->has_priority ? r->priority : n->priority;
    sqlite3_stmt *q = NULL;
    enum pawl_rc rc;

    if ((rc = sl_q(sl, SLQ_JOB_ADD, &q, e)) != PAWL_OK)
        return rc;
    sqlite3_bind_int64(q, 1, n->task_id);
    sqlite3_bind_int64(q, 2, n->queue_id);
    sl_text(q, 3, r->source != NULL ? r->source : "");
    sl_text(q, 4, r->key);
    sl_text_n(q, 5, r->args, r->args_bytes);
    sl_text(q, 6, r->headers);
    sl_text(q, 7, r->trace);
    sl_text(q, 8, r->entity);
    bind_opt_int(q, 9, r->has_version, r->version);
    sqlite3_bind_int64(q, 10, priority);
    bind_opt_int(q, 11, r->has_max_retries, r->max_retries);
    sqlite3_bind_int64(q, 12, run_at);
    bind_opt_int(q, 13, r->expires_at_us != 0, r->expires_at_us);
    sqlite3_bind_int64(q, 14, now_us);
    sqlite3_bind_int64(q, 16, 0);
    if ((rc = sl_run(sl, q, e)) != PAWL_OK)
        return rc;
    *id = sqlite3_last_insert_rowid(sl->db);
    if ((rc = sl_q(sl, SLQ_READY_ADD, &q, e)) != PAWL_OK)
        return rc;
    sqlite3_bind_int64(q, 1, n->task_id);
    sqlite3_bind_int64(q, 2, n->queue_id);
    sqlite3_bind_int64(q, 3, -priority);
    sqlite3_bind_int64(q, 4, run_at);
    sqlite3_bind_int64(q, 5, *id);
    if ((rc = sl_run(sl, q, e)) != PAWL_OK || r->key == NULL)
        return rc;
    if ((rc = sl_q(sl, SLQ_KEY_ADD, &q, e)) != PAWL_OK)
        return rc;
    sqlite3_bind_int64(q, 1, n->task_id);
    sl_text(q, 2, r->source != NULL ? r->source : "");
    sl_text(q, 3, r->key);
    sqlite3_bind_int64(q, 4, *id);
    return sl_run(sl, q, e);
}

static enum pawl_rc near_task(struct sqlite *sl, const char *task, struct sl_names *out,
                              struct pawl_error *e)
{
    const char *names[1000];
    struct arena a = {0};
    sqlite3_stmt *q = NULL;
    bool row = true;
    size_t n = 0;
    enum pawl_rc rc;

    out->near[0] = '\0';
    if ((rc = sl_q(sl, SLQ_TASK_NAMES, &q, e)) != PAWL_OK)
        return rc;
    while ((rc = sl_row(sl, q, &row, e)) == PAWL_OK && row && n < 1000)
        if ((names[n] = sl_dup(&a, q, 0)) != NULL)
            n++;
    sqlite3_reset(q);
    const int at = rc == PAWL_OK ? text_nearest(task, names, n) : -1;
    if (at >= 0)
        sqlite3_snprintf((int)sizeof out->near, out->near, "%s", names[at]);
    arena_free(&a);
    return rc;
}

/* Only of a new job: a request that was accepted in time is a duplicate for ever. */
static enum pawl_rc can_start(const struct pawl_request *r, int64_t now_us, struct pawl_error *e)
{
    if (r->expires_at_us == 0 || (r->expires_at_us > r->run_at_us && r->expires_at_us > now_us))
        return PAWL_OK;
    return pawl_fail(e, PAWL_BADDATA, "expires_at is not later than %s: the job could never start",
                     r->expires_at_us <= r->run_at_us ? "run_at" : "now");
}

static enum pawl_rc resolve_names(struct sqlite *sl, const struct pawl_request *r,
                                  struct sl_memo *m, const struct sl_names **out,
                                  struct pawl_error *e)
{
    struct sl_names *n;
    enum pawl_rc rc;

    if ((*out = recall(m, r)) != NULL)
        return PAWL_OK;
    *out = n = place_for(m);
    if ((rc = look_up(sl, r, n, !m->known_only, e)) != PAWL_OK ||
        (!n->declared && (rc = near_task(sl, r->task, n, e)) != PAWL_OK))
        return rc;
    sqlite3_snprintf((int)sizeof n->task, n->task, "%s", r->task);
    sqlite3_snprintf((int)sizeof n->queue, n->queue, "%s", r->queue != NULL ? r->queue : "");
    return PAWL_OK;
}

enum pawl_rc sl_enqueue_one(struct sqlite *sl, const struct pawl_request *r, struct sl_memo *m,
                            int64_t now_us, struct pawl_enqueued *out, int64_t *dups,
                            struct pawl_error *e)
{
    const struct sl_names *n = NULL;
    bool known = false;
    enum pawl_rc rc;

    if ((rc = resolve_names(sl, r, m, &n, e)) != PAWL_OK)
        return rc;
    out->task_known = n->declared;
    static_assert(sizeof out->near == sizeof n->near, "one size of names");
    memcpy(out->near, n->near, sizeof out->near);
    if (r->key != NULL && (rc = meet_key(sl, r, n->task_id, out, &known, e)) != PAWL_OK)
        return rc;
    if (known) {
        ++*dups;
        return PAWL_OK;
    }
    if ((rc = can_start(r, now_us, e)) != PAWL_OK)
        return rc;
    out->created = true;
    out->state = PAWL_STATE_READY;
    return insert_job(sl, r, n, now_us, &out->id, e);
}

/* The refusal itself changes nothing; that it happened is counted apart, best effort. */
static void count_clash(struct sqlite *sl)
{
    struct pawl_error ignored;

    if (sl_begin(sl, &ignored) != PAWL_OK)
        return;
    if (sl_count(sl, "key_conflicts", 1, &ignored) != PAWL_OK || sl_commit(sl, &ignored) != PAWL_OK)
        sl_rollback(sl);
}

/* The commit's outcome is unknown (the connection is new): did the first new job land? An id of a
 * rolled-back batch is given again, so the content is compared. OK: it did | IO: it did not. */
static enum pawl_rc landed(struct sqlite *sl, const struct pawl_request *req, size_t n,
                           const struct pawl_enqueued *out, int64_t now_us, struct pawl_error *e)
{
    struct pawl_error local;
    sqlite3_stmt *q = NULL;
    bool row = false;
    size_t i = 0;

    while (i < n && !out[i].created)
        i++;
    if (i == n) /* only duplicates: nothing but a counter was to be written */
        return PAWL_OK;
    if (sl_q(sl, SLQ_JOB_READ, &q, &local) != PAWL_OK)
        return PAWL_UNSURE;
    sqlite3_bind_int64(q, 1, out[i].id);
    if (sl_row(sl, q, &row, &local) != PAWL_OK)
        return PAWL_UNSURE;
    const char *args = row ? (const char *)sqlite3_column_text(q, 4) : NULL;
    const bool same = args != NULL && sqlite3_column_int64(q, 11) == now_us &&
                      (size_t)sqlite3_column_bytes(q, 4) == req[i].args_bytes &&
                      memcmp(args, req[i].args, req[i].args_bytes) == 0;
    sqlite3_reset(q);
    return same ? PAWL_OK : pawl_fail(e, PAWL_IO, "the commit failed: nothing was stored");
}

static void forget(struct pawl_enqueued *out, size_t n)
{
    for (size_t i = 0; i < n; i++)
        free(out[i].result);
    memset(out, 0, n * sizeof *out);
}

/* Our own requests, then, if there is a `c`, what others posted. */
static enum pawl_rc execute(struct sqlite *sl, const struct pawl_request *req, size_t n,
                            int64_t now_us, struct combine *c, struct pawl_enqueued *out,
                            size_t *bad_i, struct pawl_error *e)
{
    struct sl_memo memo;
    int64_t dups = 0;
    enum pawl_rc rc = PAWL_OK;

    sl_memo_init(&memo, false);
    for (size_t i = 0; i < n && rc == PAWL_OK; i++)
        if ((rc = sl_enqueue_one(sl, &req[i], &memo, now_us, &out[i], &dups, e)) != PAWL_OK)
            *bad_i = rc == PAWL_KEYCLASH || rc == PAWL_BADDATA ? i : n;
    if (rc == PAWL_OK && c != NULL)
        rc = sl_combine_serve(sl, c, &dups, e);
    if (rc == PAWL_OK && dups > 0)
        rc = sl_count(sl, "duplicates", dups, e);
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
        forget(out, n);
        *bad_i = n;
        if ((rc = sl_begin(sl, e)) == PAWL_OK)
            rc = execute(sl, req, n, now_us, NULL, out, bad_i, e);
    } else if (rc == PAWL_OK) {
        sl_combine_end(sl, &c, true);
    } else if (c.n > 0 && sl_combine_recover(sl, &local) != PAWL_OK) {
        /* whoever has the lock next looks again */
    }
    if (rc == PAWL_UNSURE)
        rc = landed(sl, req, n, out, now_us, e);
    if (rc == PAWL_OK && c.n > 0 && fail_point("combine.answered"))
        c.n = 0; /* nobody is woken: they look for themselves */
    if (rc == PAWL_KEYCLASH)
        count_clash(sl);
    sl_leave(sl);
    sl_combine_wake(sl, &c);
    if (rc == PAWL_OK) {
        side_wake(&sl->side);
        return PAWL_OK;
    }
    for (size_t i = 0; i < n; i++) {
        free(out[i].result);
        out[i].result = NULL;
    }
    return rc;
}

/* On an error part of it may be there: the caller undoes its job, whose run cannot succeed now. */
enum pawl_rc sl_effect_enqueue(struct store *st, const struct pawl_request *req, size_t n,
                               struct pawl_enqueued *out, size_t *bad_i, struct pawl_error *e)
{
    struct sqlite *sl = sl_of(st);
    const bool guarded = sl->guarded;
    struct sl_memo memo;
    int64_t dups = 0;
    enum pawl_rc rc = PAWL_OK;

    *bad_i = n;
    memset(out, 0, n * sizeof *out);
    sl_memo_init(&memo, false);
    if (!sl_effect_alive(st))
        return pawl_fail(e, PAWL_BUG, "the effect transaction is gone: the handler ended it");
    sl->guarded = false; /* our own statements, although a handler runs */
    for (size_t i = 0; i < n && rc == PAWL_OK; i++)
        if ((rc = sl_enqueue_one(sl, &req[i], &memo, st->env->wall_us(st->env->ctx), &out[i],
                                 &dups, e)) != PAWL_OK)
            *bad_i = rc == PAWL_KEYCLASH || rc == PAWL_BADDATA ? i : n;
    if (rc == PAWL_OK && dups > 0)
        rc = sl_count(sl, "duplicates", dups, e);
    sl->guarded = guarded;
    for (size_t i = 0; i < n && rc != PAWL_OK; i++) {
        free(out[i].result);
        out[i].result = NULL;
    }
    return rc;
}
