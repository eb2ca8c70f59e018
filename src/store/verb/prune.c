// SPDX-License-Identifier: Apache-2.0
/* prune.c - retention, in bounded batches.
 *
 * Keeps: a job goes with its whole chain of replays, when all of it has ended, no member is dead
 *        (dead letters are kept until a person discards them), and the newest end is old enough.
 *        Its key stays: the ledger takes over hash, length, state and result, and expires later,
 *        counted from the end. A key that is live or dead is never touched.
 * Never: takes the write lock to find out that nothing is old enough.
 */
#include <assert.h>
#include <inttypes.h>
#include <string.h>
#include "base/err.h"
#include "base/text.h"
#include "base/fail.h"
#include "core/rules.h"
#include "store/verb/db.h"

#define BATCH_DEFAULT 500
#define KEYS_DEFAULT_US (30LL * 86400 * 1000000)

/* What has ended, as roots with their chains: the newest member, what a duplicate is told of it,
 * and what keeps them: a member that waits, runs or is dead (replayed twice, the older replay may
 * outlive the newer); a replay goes with its root. ?1: after id, ?2: how many to look at.
 * The tables of ends lead (CROSS JOIN: in this order): what waits costs nothing, and a dead root
 * keeps its chain anyway. The rest is looked up id by id, which no planner can take for a reason to
 * read whole tables (a join with the view was quadratic on PostgreSQL). */
#define END_OF(table, what, id) "(SELECT " what " FROM pawl_x_" table " d WHERE d.job_id = " id ")"
#define ENDED_AT(id)                                                                              \
    "coalesce(" END_OF("done", "ended_at_us", id) ", " END_OF("dropped", "ended_at_us", id) ", "  \
    END_OF("cancelled", "ended_at_us", id) ")"

static const char *const ended_sql =
    "SELECT x.id, x.task_id, x.newest,"
    " CASE WHEN " END_OF("done", "job_id", "x.newest") " IS NOT NULL THEN 'done'"
    "  WHEN " END_OF("dropped", "job_id", "x.newest") " IS NOT NULL THEN 'dropped'"
    "  ELSE 'cancelled' END, " ENDED_AT("x.newest") ", " END_OF("done", "result", "x.newest") ","
    " x.args, x.keyed, x.policy, x.is_replay OR EXISTS (SELECT 1 FROM pawl_x_job c"
    "  WHERE c.root_id = x.id AND " ENDED_AT("c.id") " IS NULL),"
    " (SELECT max(" ENDED_AT("c.id") ") FROM pawl_x_job c WHERE c.root_id = x.id)"
    " FROM (SELECT j.id, j.task_id, j.args, j.key IS NOT NULL AS keyed, t.policy,"
    "  j.root_id IS NOT NULL AS is_replay,"
    "  coalesce((SELECT max(id + 0) FROM pawl_x_job WHERE root_id = j.id), j.id) AS newest"
    "  FROM (SELECT job_id FROM pawl_x_done WHERE job_id > ?1 UNION ALL"
    "   SELECT job_id FROM pawl_x_dropped WHERE job_id > ?1 UNION ALL"
    "   SELECT job_id FROM pawl_x_cancelled WHERE job_id > ?1 ORDER BY job_id LIMIT ?2) e"
    "  CROSS JOIN pawl_x_job j ON j.id = e.job_id JOIN pawl_x_task t ON t.id = j.task_id) x"
    " ORDER BY x.id";

struct root { int64_t id, newest, task_id, ended_at_us, retention_us, key_us, hash,
    bytes; bool keyed, go; char state[16]; char *result; };

/* One batch of roots, as they are now. */
struct batch { struct root *roots; int64_t n, gone; };

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

static void read_root(struct query *q, struct arena *a, const struct pawl_prune_opts *how,
                      int64_t now_us, struct root *r)
{
    struct policy p;
    char why[128];

    memset(r, 0, sizeof *r);
    policy_defaults(&p);
    if (!q_is_null(q, 8))
        (void)policy_parse(&p, q_str(q, 8), why, sizeof why);
    r->id = q_i64(q, 0);
    r->task_id = q_i64(q, 1);
    r->newest = q_i64(q, 2);
    text_copy(r->state, sizeof r->state, q_str(q, 3));
    r->ended_at_us = q_i64(q, 4) > q_i64(q, 10) ? q_i64(q, 4) : q_i64(q, 10);
    r->result = q_dup(a, q, 5);
    r->bytes = q_bytes(q, 6);
    r->keyed = q_i32(q, 7) != 0;
    r->retention_us = p.retention_us;
    r->key_us = how->keys_older_us > 0 ? how->keys_older_us : p.key_window_us;
    r->go = q_i32(q, 9) == 0 && old_enough(how, r, now_us);
    if (r->go && r->keyed)
        r->hash = args_hash(q_str(q, 6), (size_t)r->bytes);
}

#define MEMBERS                                                                       \
    "IN (SELECT id FROM pawl_x_job WHERE id = ?1"                                     \
    " UNION ALL SELECT id FROM pawl_x_job WHERE root_id = ?1)"

/* What a duplicate will be told. */
static enum pawl_rc to_ledger(struct db *db, struct query *q, const struct root *r,
                              struct pawl_error *e)
{
    q_int(q, 1, r->id);
    q_int(q, 2, r->hash);
    q_int(q, 3, r->bytes);
    q_text(q, 4, r->state);
    q_text(q, 5, r->result);
    q_int(q, 6, key_expires_at(r));
    return db_run(db, q, e);
}

static enum pawl_rc keys_to_ledger(struct db *db, const struct batch *b, struct pawl_error *e)
{
    struct query *q = NULL;
    enum pawl_rc rc = db_prepare(db, "UPDATE pawl_x_key SET args_hash = ?2, args_bytes = ?3,"
                                 " state = ?4, result = ?5, expires_at_us = ?6 WHERE (task_id,"
                                 " source, key) = (SELECT task_id, source, key FROM pawl_x_job"
                                 " WHERE id = ?1)", &q, e);

    for (int64_t i = 0; i < b->n && rc == PAWL_OK; i++)
        if (b->roots[i].go && b->roots[i].keyed)
            rc = to_ledger(db, q, &b->roots[i], e);
    q_free(q);
    return rc;
}

/* Every row of these chains in one table: a statement for many, since each costs a round trip. */
static enum pawl_rc remove_rows(struct db *db, const char *table, const char *id, const char *roots,
                                int64_t *n, struct pawl_error *e)
{
    struct query *q = NULL;
    struct buf sql = {0};
    enum pawl_rc rc = PAWL_OK;

    buf_printf(&sql, "DELETE FROM pawl_x_%s WHERE %s IN (SELECT id FROM pawl_x_job WHERE id IN (%s)"
               " UNION ALL SELECT id FROM pawl_x_job WHERE root_id IN (%s))", table, id, roots,
               roots);
    if (sql.failed)
        rc = pawl_fail(e, PAWL_NOMEM, "out of memory");
    if (rc == PAWL_OK && (rc = db_prepare(db, buf_str(&sql), &q, e)) == PAWL_OK &&
        (rc = db_run(db, q, e)) == PAWL_OK)
        *n += db_changes(db);
    q_free(q);
    buf_free(&sql);
    return rc;
}

static enum pawl_rc remove_some(struct db *db, const char *roots, struct pawl_pruned *out,
                                struct pawl_error *e)
{
    static const char *const places[] = { "done", "dead", "dropped", "cancelled" };
    int64_t jobs = 0, ends = 0;
    enum pawl_rc rc = remove_rows(db, "attempt", "job_id", roots, &out->attempts, e);

    for (size_t i = 0; i < sizeof places / sizeof *places && rc == PAWL_OK; i++)
        rc = remove_rows(db, places[i], "job_id", roots, &ends, e);
    if (rc == PAWL_OK)
        rc = remove_rows(db, "job", "id", roots, &jobs, e);
    out->jobs += jobs;
    return rc == PAWL_OK ? db_count(db, "pruned", jobs, e) : rc;
}

static enum pawl_rc remove_chains(struct db *db, const struct batch *b, struct pawl_pruned *out,
                                  struct pawl_error *e)
{
    struct buf roots = {0};
    int64_t n = 0;
    enum pawl_rc rc = keys_to_ledger(db, b, e);

    for (int64_t i = 0; i < b->n && rc == PAWL_OK; i++) {
        if (b->roots[i].go)
            buf_printf(&roots, "%s%" PRId64, n++ > 0 ? "," : "", b->roots[i].id);
        if (n < BATCH_DEFAULT && (i + 1 < b->n || n == 0))
            continue;
        rc = roots.failed ? pawl_fail(e, PAWL_NOMEM, "out of memory")
                          : remove_some(db, buf_str(&roots), out, e);
        buf_clear(&roots);
        n = 0;
    }
    buf_free(&roots);
    return rc;
}

/* What remove_some would take of it, and prune_keys of it thereafter. */
static enum pawl_rc count_chain(struct db *db, const struct root *r, struct pawl_pruned *out,
                                struct pawl_error *e)
{
    struct query *q = NULL;
    bool row = false;
    enum pawl_rc rc;

    if ((rc = db_prepare(db, "SELECT (SELECT count(*) FROM pawl_x_job WHERE id " MEMBERS "),"
                         " (SELECT count(*) FROM pawl_x_attempt WHERE job_id " MEMBERS ")", &q,
                         e)) != PAWL_OK)
        return rc;
    q_int(q, 1, r->id);
    if ((rc = db_row(db, q, &row, e)) == PAWL_OK && row) {
        out->jobs += q_i64(q, 0);
        out->attempts += q_i64(q, 1);
        out->keys += r->keyed && key_expires_at(r) <= db->env->wall_us(db->env->ctx);
    }
    q_free(q);
    return rc;
}
#undef MEMBERS

static enum pawl_rc read_batch(struct db *db, const struct pawl_prune_opts *how, int64_t after,
                               int64_t room, struct arena *a, struct batch *b, struct pawl_error *e)
{
    const int64_t now_us = db->env->wall_us(db->env->ctx);
    struct query *q = NULL;
    bool row = true;
    enum pawl_rc rc = PAWL_OK;

    b->n = b->gone = 0;
    if ((rc = db_prepare(db, ended_sql, &q, e)) != PAWL_OK)
        return rc;
    q_int(q, 1, after);
    q_int(q, 2, room);
    while (b->n < room && (rc = db_row(db, q, &row, e)) == PAWL_OK && row) {
        read_root(q, a, how, now_us, &b->roots[b->n]);
        b->gone += b->roots[b->n++].go;
    }
    q_free(q);
    return rc;
}

/* What was seen to go is read again under the lock, and goes. */
static enum pawl_rc remove_batch(struct db *db, const struct pawl_prune_opts *how,
                                 int64_t after, int64_t room, struct arena *a, struct batch *b,
                                 struct pawl_pruned *out, struct pawl_error *e)
{
    enum pawl_rc rc = db_begin(db, e);

    if (rc != PAWL_OK)
        return rc;
    rc = read_batch(db, how, after, room, a, b, e);
    if (rc == PAWL_OK)
        rc = remove_chains(db, b, out, e);
    if (rc == PAWL_OK && fail_point("prune.batch"))
        rc = pawl_fail(e, PAWL_IO, "failpoint prune.batch");
    if (rc == PAWL_OK && b->gone > 0)
        rc = db_commit(db, e);
    else
        db_rollback(db);
    db_leave(db);
    return rc;
}

/* The roots after *after; *more = there may be further ones. The write lock is everybody's: it is
 * taken only when something goes. */
static enum pawl_rc prune_batch(struct db *db, const struct pawl_prune_opts *how,
                                int64_t *after, bool *more, struct pawl_pruned *out,
                                struct pawl_error *e)
{
    const int64_t room = how->batch > 0 ? how->batch : BATCH_DEFAULT;
    struct arena a = {0};
    struct batch b = { .roots = arena_alloc(&a, (size_t)room * sizeof *b.roots) };
    enum pawl_rc rc;

    if (b.roots == NULL)
        return pawl_fail(e, PAWL_NOMEM, "out of memory");
    if ((rc = db_snapshot(db, e)) != PAWL_OK)
        goto out;
    rc = read_batch(db, how, *after, room, &a, &b, e);
    for (int64_t i = 0; how->dry_run && i < b.n && rc == PAWL_OK; i++)
        if (b.roots[i].go)
            rc = count_chain(db, &b.roots[i], out, e);
    db_snapshot_end(db);
    if (rc != PAWL_OK)
        goto out;
    if (!how->dry_run && b.gone > 0)
        rc = remove_batch(db, how, *after, room, &a, &b, out, e);
    if (b.n > 0)
        *after = b.roots[b.n - 1].id;
    *more = b.n > 0;
    out->batches += b.n > 0;
out:
    arena_free(&a);
    return rc;
}

/* Would this statement (its first value) find anything? No lock is taken to learn that. */
static enum pawl_rc finds(struct db *db, const char *sql, int64_t at_us, int64_t limit,
                          int64_t *n, struct pawl_error *e)
{
    struct query *q = NULL;
    bool row = false;
    enum pawl_rc rc;

    *n = 0;
    if ((rc = db_snapshot(db, e)) != PAWL_OK)
        return rc;
    if ((rc = db_prepare(db, sql, &q, e)) == PAWL_OK) {
        q_int(q, 1, at_us);
        q_int(q, 2, limit);
        if ((rc = db_row(db, q, &row, e)) == PAWL_OK && row)
            *n = q_i64(q, 0);
    }
    q_free(q);
    db_snapshot_end(db);
    return rc;
}

#define OLD_KEYS "FROM pawl_x_key WHERE expires_at_us IS NOT NULL AND expires_at_us <= ?1 LIMIT ?2"

static enum pawl_rc remove_keys(struct db *db, int64_t now_us, int64_t batch, int64_t *n,
                                struct pawl_error *e)
{
    struct query *q = NULL;
    enum pawl_rc rc = db_begin(db, e);

    if (rc != PAWL_OK)
        return rc;
    *n = 0;
    if ((rc = db_prepare(db, "DELETE FROM pawl_x_key WHERE (task_id, source, key) IN"
                           " (SELECT task_id, source, key " OLD_KEYS ")", &q, e)) == PAWL_OK) {
        q_int(q, 1, now_us);
        q_int(q, 2, batch);
        if ((rc = db_run(db, q, e)) == PAWL_OK)
            *n = db_changes(db);
    }
    q_free(q);
    if (rc == PAWL_OK && *n > 0)
        rc = db_commit(db, e);
    else
        db_rollback(db);
    db_leave(db);
    return rc;
}

static enum pawl_rc prune_keys(struct db *db, const struct pawl_prune_opts *how,
                               struct pawl_pruned *out, struct pawl_error *e)
{
    const int64_t now_us = db->env->wall_us(db->env->ctx);
    const int64_t batch = how->batch > 0 ? how->batch : BATCH_DEFAULT;
    int64_t n = batch;
    enum pawl_rc rc = PAWL_OK;

    if (how->dry_run) { /* all at once, beside those of count_chain */
        rc = finds(db, "SELECT count(*) FROM (SELECT 1 " OLD_KEYS ") k", now_us, INT64_MAX, &n, e);
        if (rc == PAWL_OK)
            out->keys += n;
        return rc;
    }
    while (rc == PAWL_OK && n == batch) {
        rc = finds(db, "SELECT count(*) FROM (SELECT 1 " OLD_KEYS ") k", now_us, batch, &n, e);
        if (rc == PAWL_OK && n > 0)
            rc = remove_keys(db, now_us, batch, &n, e);
        if (rc == PAWL_OK)
            out->keys += n;
    }
    return rc;
}

/* Blame records older than a day were read long ago. */
static enum pawl_rc trim_blame(struct db *db, struct pawl_error *e)
{
    const int64_t at_us = db->env->wall_us(db->env->ctx) - 86400LL * 1000000;
    struct query *q = NULL;
    int64_t n = 0;
    enum pawl_rc rc = finds(db, "SELECT 1 FROM pawl_x_blame WHERE read_at_us < ?1 LIMIT ?2", at_us,
                            1, &n, e);

    if (rc != PAWL_OK || n == 0 || (rc = db_begin(db, e)) != PAWL_OK)
        return rc;
    if ((rc = db_q(db, Q_BLAME_TRIM, &q, e)) == PAWL_OK) {
        q_int(q, 1, at_us);
        rc = db_run(db, q, e);
    }
    if (rc == PAWL_OK)
        rc = db_commit(db, e);
    else
        db_rollback(db);
    db_leave(db);
    return rc;
}

enum pawl_rc db_prune(struct store *st, const struct pawl_prune_opts *how, struct pawl_pruned *out,
                      struct pawl_error *e)
{
    struct db *db = db_of(st);
    int64_t after = 0;
    bool more = true;
    enum pawl_rc rc = PAWL_OK;

    memset(out, 0, sizeof *out);
    if ((rc = db_ready(db, e)) != PAWL_OK)
        return rc;
    while (more && rc == PAWL_OK)
        rc = prune_batch(db, how, &after, &more, out, e);
    if (rc == PAWL_OK)
        rc = prune_keys(db, how, out, e);
    return rc != PAWL_OK || how->dry_run ? rc : trim_blame(db, e);
}
