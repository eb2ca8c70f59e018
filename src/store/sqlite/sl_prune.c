// SPDX-License-Identifier: Apache-2.0
/* sl_prune.c - retention, in bounded batches.
 *
 * Keeps: a job goes with its whole chain of replays, when all of it has ended, no member is dead
 *        (dead letters are kept until a person discards them), and the newest end is old enough.
 *        Its key stays: the ledger takes over hash, length, state and result, and expires later,
 *        counted from the end. A key that is live or dead is never touched.
 * Never: takes the write lock to find out that nothing is old enough.
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

static bool old_enough(const struct pawl_prune_opts *how, const struct root *r, int64_t now_us)
{
    const int64_t keep = how->done_older_us > 0 ? how->done_older_us : r->retention_us;

    return r->ended_at_us != 0 && r->ended_at_us <= now_us - keep;
}

static int64_t key_expires_at(const struct root *r)
{
    return r->key_us < LIMIT_INSTANT_MAX_US - r->ended_at_us ? r->ended_at_us + r->key_us
                                                              : LIMIT_INSTANT_MAX_US;
}

static void read_root(sqlite3_stmt *q, struct arena *a, const struct pawl_prune_opts *how,
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
    r->key_us = how->keys_older_us > 0 ? how->keys_older_us : p.key_window_us;
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
    sqlite3_bind_int64(q, 6, key_expires_at(r));
    rc = sl_run(sl, q, e);
    sqlite3_finalize(q);
    return rc;
}

#define MEMBERS                                                                       \
    "IN (SELECT id FROM pawl_x_job WHERE id = ?1"                                     \
    " UNION ALL SELECT id FROM pawl_x_job WHERE root_id = ?1)"

static enum pawl_rc remove_chain(struct sqlite *sl, const struct root *r, struct pawl_pruned *out,
                                 struct pawl_error *e)
{
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
}

/* What remove_chain would take, and prune_keys of it thereafter. */
static enum pawl_rc count_chain(struct sqlite *sl, const struct root *r, struct pawl_pruned *out,
                                struct pawl_error *e)
{
    sqlite3_stmt *q = NULL;
    bool row = false;
    enum pawl_rc rc;

    if (sqlite3_prepare_v2(sl->db, "SELECT (SELECT count(*) FROM pawl_x_job WHERE id " MEMBERS "),"
                           " (SELECT count(*) FROM pawl_x_attempt WHERE job_id " MEMBERS ")", -1,
                           &q, NULL) != SQLITE_OK)
        return sl_fail(sl, e, "prune");
    sqlite3_bind_int64(q, 1, r->id);
    if ((rc = sl_row(sl, q, &row, e)) == PAWL_OK && row) {
        out->jobs += sqlite3_column_int64(q, 0);
        out->attempts += sqlite3_column_int64(q, 1);
        out->keys += r->keyed && key_expires_at(r) <= sl->env->wall_us(sl->env->ctx);
    }
    sqlite3_finalize(q);
    return rc;
}
#undef MEMBERS

/* One batch of roots, as they are now. */
struct batch { struct root *roots; int64_t n, gone; };

static enum pawl_rc read_batch(struct sqlite *sl, const struct pawl_prune_opts *how, int64_t after,
                               int64_t room, struct arena *a, struct batch *b, struct pawl_error *e)
{
    const int64_t now_us = sl->env->wall_us(sl->env->ctx);
    sqlite3_stmt *q = NULL;
    bool row = true;
    enum pawl_rc rc = PAWL_OK;

    b->n = b->gone = 0;
    if (sqlite3_prepare_v2(sl->db, ended_sql, -1, &q, NULL) != SQLITE_OK)
        return sl_fail(sl, e, "prune");
    sqlite3_bind_int64(q, 1, after);
    sqlite3_bind_int64(q, 2, room);
    while (b->n < room && (rc = sl_row(sl, q, &row, e)) == PAWL_OK && row) {
        read_root(q, a, how, now_us, &b->roots[b->n]);
        b->gone += b->roots[b->n++].go;
    }
    sqlite3_finalize(q);
    return rc;
}

/* What was seen to go is read again under the lock, and goes. */
static enum pawl_rc remove_batch(struct sqlite *sl, const struct pawl_prune_opts *how,
                                 int64_t after, int64_t room, struct arena *a, struct batch *b,
                                 struct pawl_pruned *out, struct pawl_error *e)
{
    enum pawl_rc rc = sl_begin(sl, e);

    if (rc != PAWL_OK)
        return rc;
    rc = read_batch(sl, how, after, room, a, b, e);
    for (int64_t i = 0; i < b->n && rc == PAWL_OK; i++)
        if (b->roots[i].go)
            rc = remove_chain(sl, &b->roots[i], out, e);
    if (rc == PAWL_OK && fail_point("prune.batch"))
        rc = pawl_fail(e, PAWL_IO, "failpoint prune.batch");
    if (rc == PAWL_OK && b->gone > 0)
        rc = sl_commit(sl, e);
    else
        sl_rollback(sl);
    sl_leave(sl);
    return rc;
}

/* The roots after *after; *more = there may be further ones. The write lock is everybody's: it is
 * taken only when something goes. */
static enum pawl_rc prune_batch(struct sqlite *sl, const struct pawl_prune_opts *how,
                                int64_t *after, bool *more, struct pawl_pruned *out,
                                struct pawl_error *e)
{
    const int64_t room = how->batch > 0 ? how->batch : BATCH_DEFAULT;
    struct arena a = {0};
    struct batch b = { .roots = arena_alloc(&a, (size_t)room * sizeof *b.roots) };
    enum pawl_rc rc;

    if (b.roots == NULL)
        return pawl_fail(e, PAWL_NOMEM, "out of memory");
    if ((rc = read_batch(sl, how, *after, room, &a, &b, e)) != PAWL_OK)
        goto out;
    for (int64_t i = 0; how->dry_run && i < b.n && rc == PAWL_OK; i++)
        if (b.roots[i].go)
            rc = count_chain(sl, &b.roots[i], out, e);
    if (!how->dry_run && b.gone > 0)
        rc = remove_batch(sl, how, *after, room, &a, &b, out, e);
    if (b.n > 0)
        *after = b.roots[b.n - 1].id;
    *more = b.n > 0;
    out->batches += b.n > 0;
out:
    arena_free(&a);
    return rc;
}

/* Would this statement (its first value) find anything? No lock is taken to learn that. */
static enum pawl_rc finds(struct sqlite *sl, const char *sql, int64_t at_us, int64_t limit,
                          int64_t *n, struct pawl_error *e)
{
    sqlite3_stmt *q = NULL;
    bool row = false;
    enum pawl_rc rc;

    *n = 0;
    if (sqlite3_prepare_v2(sl->db, sql, -1, &q, NULL) != SQLITE_OK)
        return sl_fail(sl, e, "prune");
    sqlite3_bind_int64(q, 1, at_us);
    sqlite3_bind_int64(q, 2, limit);
    if ((rc = sl_row(sl, q, &row, e)) == PAWL_OK && row)
        *n = sqlite3_column_int64(q, 0);
    sqlite3_finalize(q);
    return rc;
}

#define OLD_KEYS "FROM pawl_x_key WHERE expires_at_us IS NOT NULL AND expires_at_us <= ?1 LIMIT ?2"

static enum pawl_rc remove_keys(struct sqlite *sl, int64_t now_us, int64_t batch, int64_t *n,
                                struct pawl_error *e)
{
    sqlite3_stmt *q = NULL;
    enum pawl_rc rc = sl_begin(sl, e);

    if (rc != PAWL_OK)
        return rc;
    if (sqlite3_prepare_v2(sl->db, "DELETE FROM pawl_x_key WHERE (task_id, source, key) IN"
                           " (SELECT task_id, source, key " OLD_KEYS ")", -1, &q,
                           NULL) != SQLITE_OK)
        rc = sl_fail(sl, e, "prune keys");
    sqlite3_bind_int64(q, 1, now_us);
    sqlite3_bind_int64(q, 2, batch);
    if (rc == PAWL_OK)
        rc = sl_run(sl, q, e);
    *n = sqlite3_changes64(sl->db);
    sqlite3_finalize(q);
    if (rc == PAWL_OK && *n > 0)
        rc = sl_commit(sl, e);
    else
        sl_rollback(sl);
    sl_leave(sl);
    return rc;
}

static enum pawl_rc prune_keys(struct sqlite *sl, const struct pawl_prune_opts *how,
                               struct pawl_pruned *out, struct pawl_error *e)
{
    const int64_t now_us = sl->env->wall_us(sl->env->ctx);
    const int64_t batch = how->batch > 0 ? how->batch : BATCH_DEFAULT;
    int64_t n = batch;
    enum pawl_rc rc = PAWL_OK;

    if (how->dry_run) { /* all at once, beside those of count_chain; -1: without a limit */
        rc = finds(sl, "SELECT count(*) FROM (SELECT 1 " OLD_KEYS ")", now_us, -1, &n, e);
        if (rc == PAWL_OK)
            out->keys += n;
        return rc;
    }
    while (rc == PAWL_OK && n == batch) {
        rc = finds(sl, "SELECT count(*) FROM (SELECT 1 " OLD_KEYS ")", now_us, batch, &n, e);
        if (rc == PAWL_OK && n > 0)
            rc = remove_keys(sl, now_us, batch, &n, e);
        if (rc == PAWL_OK)
            out->keys += n;
    }
    return rc;
}

/* Blame records older than a day were read long ago. */
static enum pawl_rc trim_blame(struct sqlite *sl, struct pawl_error *e)
{
    const int64_t at_us = sl->env->wall_us(sl->env->ctx) - 86400LL * 1000000;
    sqlite3_stmt *q = NULL;
    int64_t n = 0;
    enum pawl_rc rc = finds(sl, "SELECT 1 FROM pawl_x_blame WHERE read_at_us < ?1 LIMIT ?2", at_us,
                            1, &n, e);

    if (rc != PAWL_OK || n == 0 || (rc = sl_begin(sl, e)) != PAWL_OK)
        return rc;
    if ((rc = sl_q(sl, SLQ_BLAME_TRIM, &q, e)) == PAWL_OK) {
        sqlite3_bind_int64(q, 1, at_us);
        rc = sl_run(sl, q, e);
    }
    if (rc == PAWL_OK)
        rc = sl_commit(sl, e);
    else
        sl_rollback(sl);
    sl_leave(sl);
    return rc;
}

enum pawl_rc sl_prune(struct store *st, const struct pawl_prune_opts *how, struct pawl_pruned *out,
                      struct pawl_error *e)
{
    struct sqlite *sl = sl_of(st);
    int64_t after = 0;
    bool more = true;
    enum pawl_rc rc = PAWL_OK;

    memset(out, 0, sizeof *out);
    if (sl->db == NULL && (rc = sl_connect(sl, false, e)) != PAWL_OK)
        return rc;
    while (more && rc == PAWL_OK)
        rc = prune_batch(sl, how, &after, &more, out, e);
    if (rc == PAWL_OK)
        rc = prune_keys(sl, how, out, e);
    return rc != PAWL_OK || how->dry_run ? rc : trim_blame(sl, e);
}
