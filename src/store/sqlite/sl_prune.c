// SPDX-License-Identifier: Apache-2.0
/* sl_prune.c - retention, in bounded batches.
 *
 * Keeps: a job goes with its whole chain of replays, when all of it has ended, no member is dead
 *        (dead letters are kept until a person discards them), and the newest end is old enough.
 *        Its key stays: the ledger takes over hash, length, state and result, and expires later,
 *        counted from the end. A key that is live or dead is never touched.
 */
#include <assert.h>
#include <string.h>
#include "base/err.h"
#include "base/fail.h"
#include "core/rules.h"
#include "store/sqlite/sl.h"

#define BATCH_DEFAULT 500
#define KEYS_DEFAULT_US (30LL * 86400 * 1000000)

/* What has ended, as roots with their chains: the newest end, the answer that a duplicate gets, and
 * what keeps them: a member that waits, runs or is dead (replayed twice, the older replay may
 * outlive the newer); a replay goes with its root. ?1: after id, ?2: how many to look at.
 * The tables of ends lead (CROSS JOIN: in this order): what waits costs nothing, and a dead root
 * keeps its chain anyway. */
static const char *const ended_sql =
    "SELECT j.id, j.task_id, n.id, n.state, max(n.ended_at_us, coalesce((SELECT max(m.ended_at_us)"
    "  FROM pawl_x_job c JOIN pawl_jobs m ON m.id = c.id WHERE c.root_id = j.id), 0)), n.result,"
    " j.args, j.key IS NOT NULL, t.policy,"
    " j.root_id IS NOT NULL OR EXISTS (SELECT 1 FROM pawl_x_job c"
    "  JOIN pawl_jobs m ON m.id = c.id WHERE c.root_id = j.id"
    "  AND m.state IN ('dead', 'ready', 'running'))"
    " FROM (SELECT job_id FROM pawl_x_done WHERE job_id > ?1 UNION ALL"
    "  SELECT job_id FROM pawl_x_dropped WHERE job_id > ?1 UNION ALL"
    "  SELECT job_id FROM pawl_x_cancelled WHERE job_id > ?1 ORDER BY job_id LIMIT ?2) e"
    " CROSS JOIN pawl_x_job j ON j.id = e.job_id CROSS JOIN pawl_jobs n ON n.id ="
    "   coalesce((SELECT max(id) FROM pawl_x_job WHERE root_id = j.id), j.id)"
    " JOIN pawl_x_task t ON t.id = j.task_id"
    " ORDER BY j.id";

struct root { int64_t id, newest, task_id, ended_at_us, retention_us, key_us, hash,
    bytes; bool keyed, go; char state[16]; char *result; };

static bool old_enough(const struct pawl_prune *how, const struct root *r, int64_t now_us)
{
    const int64_t keep = how->done_older_us >= 0 ? how->done_older_us : r->retention_us;

    return r->ended_at_us != 0 && r->ended_at_us <= now_us - keep;
}

static void read_root(sqlite3_stmt *q, struct arena *a, const struct pawl_prune *how,
                      int64_t now_us, struct root *r)
{
    struct policy p;
    char why[128];

    memset(r, 0, sizeof *r);
    policy_defaults(&p);
    if (sqlite3_column_type(q, 8) != SQLITE_NULL)
        (void)policy_parse(&p, (const char *)sqlite3_column_text(q, 8), why, sizeof why);
    r->id = sqlite3_column_int64(q, 0);
    r->task_id = sqlite3_column_int64(q, 1);
    r->newest = sqlite3_column_int64(q, 2);
    sqlite3_snprintf((int)sizeof r->state, r->state, "%s", sqlite3_column_text(q, 3));
    r->ended_at_us = sqlite3_column_int64(q, 4);
    r->result = sl_dup(a, q, 5);
    r->bytes = sqlite3_column_bytes(q, 6);
    r->keyed = sqlite3_column_int(q, 7) != 0;
    r->retention_us = p.retention_us;
    r->key_us = how->keys_older_us >= 0 ? how->keys_older_us : p.key_window_us;
    r->go = sqlite3_column_int(q, 9) == 0 && old_enough(how, r, now_us);
    if (r->go && r->keyed)
        r->hash = args_hash((const char *)sqlite3_column_text(q, 6), (size_t)r->bytes);
}

static enum pawl_rc exec_ids(struct sqlite *sl, const char *sql, int64_t id, int64_t *changed,
                             struct pawl_error *e)
{
    sqlite3_stmt *q = NULL;
    enum pawl_rc rc;

    if (sqlite3_prepare_v2(sl->db, sql, -1, &q, NULL) != SQLITE_OK)
        return sl_fail(sl, e, "prune");
    sqlite3_bind_int64(q, 1, id);
    rc = sl_run(sl, q, e);
    if (changed != NULL)
        *changed += sqlite3_changes64(sl->db);
    sqlite3_finalize(q);
    return rc;
}

static enum pawl_rc to_ledger(struct sqlite *sl, const struct root *r, struct pawl_error *e)
{
    sqlite3_stmt *q = NULL;
    enum pawl_rc rc;

    if (sqlite3_prepare_v2(sl->db,
                           "UPDATE pawl_x_key SET args_hash = ?2, args_bytes = ?3, state = ?4,"
            " result = ?5, expires_at_us = ?6 WHERE (task_id, source, key) ="
            " (SELECT task_id, source, key FROM pawl_x_job WHERE id = ?1)", -1, &q,
                NULL) != SQLITE_OK)
        return sl_fail(sl, e, "prune");
    sqlite3_bind_int64(q, 1, r->id);
    sqlite3_bind_int64(q, 2, r->hash);
    sqlite3_bind_int64(q, 3, r->bytes);
    sl_text(q, 4, r->state);
    sl_text(q, 5, r->result);
    sqlite3_bind_int64(q, 6, r->ended_at_us + r->key_us);
    rc = sl_run(sl, q, e);
    sqlite3_finalize(q);
    return rc;
}

static enum pawl_rc remove_chain(struct sqlite *sl, const struct root *r, struct pawl_pruned *out,
                                 struct pawl_error *e)
{
#define MEMBERS                                                                       \
    "IN (SELECT id FROM pawl_x_job WHERE id = ?1"                                     \
    " UNION ALL SELECT id FROM pawl_x_job WHERE root_id = ?1)"
    static const char *const places[] = {
        "DELETE FROM pawl_x_done WHERE job_id " MEMBERS,
        "DELETE FROM pawl_x_dead WHERE job_id " MEMBERS,
        "DELETE FROM pawl_x_dropped WHERE job_id " MEMBERS,
        "DELETE FROM pawl_x_cancelled WHERE job_id " MEMBERS,
    };
    int64_t jobs = 0;
    enum pawl_rc rc = r->keyed ? to_ledger(sl, r, e) : PAWL_OK;

    if (rc == PAWL_OK)
        rc = exec_ids(sl, "DELETE FROM pawl_x_attempt WHERE job_id " MEMBERS, r->id, &out->attempts,
                      e);
    for (size_t i = 0; i < sizeof places / sizeof *places && rc == PAWL_OK; i++)
        rc = exec_ids(sl, places[i], r->id, NULL, e);
    if (rc == PAWL_OK)
        rc = exec_ids(sl, "DELETE FROM pawl_x_job WHERE id " MEMBERS, r->id, &jobs, e);
    out->jobs += jobs;
    return rc == PAWL_OK ? sl_count(sl, "pruned", jobs, e) : rc;
#undef MEMBERS
}

/* One batch of roots after *after; *more = there may be further ones. */
static enum pawl_rc prune_batch(struct sqlite *sl, const struct pawl_prune *how, int64_t *after,
                                bool *more, struct pawl_pruned *out, struct pawl_error *e)
{
    const int64_t now_us = sl->env->wall_us(sl->env->ctx);
    const int64_t batch = how->batch > 0 ? how->batch : BATCH_DEFAULT;
    struct arena a = {0};
    struct root *roots = arena_alloc(&a, (size_t)batch * sizeof *roots);
    sqlite3_stmt *q = NULL;
    int64_t n = 0, gone = 0;
    bool row = true;
    enum pawl_rc rc = PAWL_OK;

    if (roots == NULL)
        return pawl_fail(e, PAWL_NOMEM, "out of memory");
    if ((rc = sl_begin(sl, e)) != PAWL_OK)
        goto out;
    if (sqlite3_prepare_v2(sl->db, ended_sql, -1, &q, NULL) != SQLITE_OK)
        rc = sl_fail(sl, e, "prune");
    sqlite3_bind_int64(q, 1, *after);
    sqlite3_bind_int64(q, 2, batch);
    while (rc == PAWL_OK && n < batch && (rc = sl_row(sl, q, &row, e)) == PAWL_OK && row)
        read_root(q, &a, how, now_us, &roots[n++]);
    sqlite3_finalize(q);
    for (int64_t i = 0; i < n && rc == PAWL_OK; i++) {
        gone += roots[i].go;
        if (roots[i].go && how->dry_run)
            out->jobs++;
        else if (roots[i].go)
            rc = remove_chain(sl, &roots[i], out, e);
    }
    if (rc == PAWL_OK && fail_point("prune.batch"))
        rc = pawl_fail(e, PAWL_IO, "failpoint prune.batch");
    if (rc == PAWL_OK && gone > 0 && !how->dry_run)
        rc = sl_commit(sl, e);
    else
        sl_rollback(sl);
    sl_leave(sl);
    if (n > 0)
        *after = roots[n - 1].id;
    *more = n > 0;
    out->batches += n > 0;
out:
    arena_free(&a);
    return rc;
}

static enum pawl_rc prune_keys(struct sqlite *sl, const struct pawl_prune *how,
                               struct pawl_pruned *out, struct pawl_error *e)
{
    const int64_t now_us = sl->env->wall_us(sl->env->ctx);
    const int64_t batch = how->batch > 0 ? how->batch : BATCH_DEFAULT;
    int64_t n = batch;
    enum pawl_rc rc = PAWL_OK;

    while (rc == PAWL_OK && n == batch) {
        sqlite3_stmt *q = NULL;

        if ((rc = sl_begin(sl, e)) != PAWL_OK)
            return rc;
        if (sqlite3_prepare_v2(sl->db, "DELETE FROM pawl_x_key WHERE (task_id, source, key) IN"
                " (SELECT task_id, source, key FROM pawl_x_key WHERE expires_at_us IS NOT NULL"
                " AND expires_at_us <= ?1 LIMIT ?2)", -1, &q, NULL) != SQLITE_OK)
            rc = sl_fail(sl, e, "prune keys");
        sqlite3_bind_int64(q, 1, now_us);
        sqlite3_bind_int64(q, 2, batch);
        if (rc == PAWL_OK)
            rc = sl_run(sl, q, e);
        n = sqlite3_changes64(sl->db);
        sqlite3_finalize(q);
        if (rc == PAWL_OK && n > 0 && !how->dry_run)
            rc = sl_commit(sl, e);
        else
            sl_rollback(sl);
        sl_leave(sl);
        out->keys += n;
        if (how->dry_run)
            break;
    }
    return rc;
}

enum pawl_rc sl_prune(struct store *st, const struct pawl_prune *how, struct pawl_pruned *out,
                      struct pawl_error *e)
{
    struct sqlite *sl = sl_of(st);
    sqlite3_stmt *q = NULL;
    int64_t after = 0;
    bool more = true;
    enum pawl_rc rc = PAWL_OK;

    memset(out, 0, sizeof *out);
    while (more && rc == PAWL_OK)
        rc = prune_batch(sl, how, &after, &more, out, e);
    if (rc == PAWL_OK)
        rc = prune_keys(sl, how, out, e);
    if (rc != PAWL_OK || how->dry_run)
        return rc;
    if ((rc = sl_begin(sl, e)) != PAWL_OK) /* blame records older than a day were read long ago */
        return rc;
    if ((rc = sl_q(sl, SLQ_BLAME_TRIM, &q, e)) == PAWL_OK) {
        sqlite3_bind_int64(q, 1, st->env->wall_us(st->env->ctx) - 86400LL * 1000000);
        rc = sl_run(sl, q, e);
    }
    if (rc == PAWL_OK)
        rc = sl_commit(sl, e);
    else
        sl_rollback(sl);
    sl_leave(sl);
    return rc;
}
