// SPDX-License-Identifier: Apache-2.0
/* stats.c - counts: queues, and the proof counters. One snapshot each. */
#include <string.h>
#include "base/err.h"
#include "base/text.h"
#include "store/verb/db.h"

enum pawl_rc db_queues(struct store *st, pawl_queue_fn *fn, void *ctx, struct pawl_error *e)
{
    struct db *db = db_of(st);
    struct pawl_queue_stat *rows = NULL;
    const size_t room = 4096;
    struct arena a = {0};
    struct query *q = NULL;
    size_t n = 0;
    bool row = true;
    enum pawl_rc rc;

    if ((rc = db_ready(db, e)) != PAWL_OK)
        return rc;
    if ((rows = arena_alloc(&a, room * sizeof *rows)) == NULL)
        return pawl_fail(e, PAWL_NOMEM, "out of memory");
    if ((rc = db_prepare(db,
            "SELECT q.name, q.paused, coalesce(w.due, 0), coalesce(w.later, 0), w.oldest,"
            " (SELECT count(*) FROM pawl_x_running r WHERE r.queue_id = q.id),"
            " (SELECT count(*) FROM pawl_x_dead d JOIN pawl_x_job j ON j.id = d.job_id"
            "   WHERE j.queue_id = q.id AND d.replayed_as IS NULL),"
            " (SELECT group_concat(t.name, ',') FROM pawl_x_task t WHERE t.paused = 1 AND EXISTS"
            "   (SELECT 1 FROM pawl_x_ready r WHERE r.task_id = t.id AND r.queue_id = q.id))"
            " FROM pawl_x_queue q LEFT JOIN (SELECT queue_id, count(*) FILTER"
            "   (WHERE run_at_us <= ?1) AS due, count(*) FILTER (WHERE run_at_us > ?1) AS later,"
            "   min(run_at_us) AS oldest FROM pawl_x_ready"
            "   GROUP BY queue_id) w ON w.queue_id = q.id ORDER BY q.name", &q, e)) != PAWL_OK) {
        arena_free(&a);
        return rc;
    }
    const int64_t now = st->env->wall_us(st->env->ctx);
    q_int(q, 1, now);
    while ((rc = db_row(db, q, &row, e)) == PAWL_OK && row && n < room) {
        struct pawl_queue_stat *s = &rows[n++];

        s->queue = q_dup(&a, q, 0);
        s->paused = q_i32(q, 1) != 0;
        s->due = q_i64(q, 2);
        s->later = q_i64(q, 3);
        s->oldest_due_at_us = q_i64(q, 4) <= now ? q_i64(q, 4) : 0;
        s->running = q_i64(q, 5);
        s->dead = q_i64(q, 6);
        s->paused_tasks = q_dup(&a, q, 7);
    }
    q_free(q);
    for (size_t i = 0; i < n && rc == PAWL_OK && fn(ctx, &rows[i]); i++)
        continue;
    arena_free(&a);
    return rc;
}

enum pawl_rc db_queue_known(struct store *st, const char *queue, bool *known, char *near,
                            size_t near_n, struct pawl_error *e)
{
    struct db *db = db_of(st);
    const char *names[1000];
    struct arena a = {0};
    struct query *q = NULL;
    int64_t id = 0;
    bool row = true;
    size_t n = 0;
    enum pawl_rc rc;

    *near = '\0';
    if ((rc = db_ready(db, e)) != PAWL_OK)
        return rc;
    rc = db_queue_id(db, queue, false, &id, e);
    *known = id != 0;
    if (rc != PAWL_OK || *known || (rc = db_q(db, Q_QUEUE_NAMES, &q, e)) != PAWL_OK)
        return rc;
    while (n < 1000 && (rc = db_row(db, q, &row, e)) == PAWL_OK && row)
        if ((names[n] = q_dup(&a, q, 0)) != NULL)
            n++;
    q_reset(q);
    const int at = rc == PAWL_OK ? text_nearest(queue, names, n) : -1;
    if (at >= 0)
        text_copy(near, near_n, names[at]);
    arena_free(&a);
    return rc;
}

/* Everything in one statement is one snapshot: sums and counters belong together. */
static const struct { const char *name, *sql, *help; } stat_table[] = {
    { "accepted", "coalesce((SELECT seq FROM sqlite_sequence WHERE name = 'pawl_x_job'), 0)",
      "jobs ever accepted, replays included" },
    { "ready", "(SELECT count(*) FROM pawl_x_ready)", "jobs that wait, due or not" },
    { "running", "(SELECT count(*) FROM pawl_x_running)", "jobs leased to a worker" },
    { "done", "(SELECT count(*) FROM pawl_x_done)", "jobs that succeeded and are still kept" },
    { "dead", "(SELECT count(*) FROM pawl_x_dead)", "dead letters, replayed ones included" },
    { "dead_open", "(SELECT count(*) FROM pawl_x_dead WHERE replayed_as IS NULL)",
      "dead letters that nobody has replayed" },
    { "dropped", "(SELECT count(*) FROM pawl_x_dropped)", "early-ack losses and discarded jobs" },
    { "cancelled", "(SELECT count(*) FROM pawl_x_cancelled)", "cancelled jobs" },
    { "paused_tasks", "(SELECT count(*) FROM pawl_x_task WHERE paused = 1)",
      "tasks that are paused: pawl resume --task TASK" },
    { "paused_queues", "(SELECT count(*) FROM pawl_x_queue WHERE paused = 1)",
      "queues that are paused: pawl resume QUEUE" },
    { "keys", "(SELECT count(*) FROM pawl_x_key)", "keys in the dedupe ledger" },
    { "pruned", "coalesce((SELECT value FROM pawl_x_counter WHERE name = 'pruned'), 0)",
      "jobs removed by retention" },
    { "duplicates", "coalesce((SELECT sum(value) FROM pawl_x_counter WHERE name = 'duplicates'"
                    " OR name LIKE 'duplicates+%'), 0)", /* of PostgreSQL's door: a row each */
      "enqueues answered with an existing job" },
    { "key_conflicts", "coalesce((SELECT value FROM pawl_x_counter WHERE name = 'key_conflicts'),"
                       " 0)",
      "enqueues refused: same key, other args" },
    { "stale", "coalesce((SELECT value FROM pawl_x_counter WHERE name = 'stale'), 0)",
      "successes without effect: an older or equal version" },
    { "fenced", "coalesce((SELECT value FROM pawl_x_counter WHERE name = 'fenced'), 0)",
      "settles refused because the lease had moved on" },
    { "replays", "coalesce((SELECT value FROM pawl_x_counter WHERE name = 'replays'), 0)",
      "dead letters replayed" },
};
#define STATS_N (sizeof stat_table / sizeof *stat_table)

enum pawl_rc db_stats(struct store *st, pawl_stat_fn *fn, void *ctx, struct pawl_error *e)
{
    struct db *db = db_of(st);
    int64_t values[STATS_N] = {0};
    struct buf sql = {0};
    struct query *q = NULL;
    bool row = false;
    enum pawl_rc rc;

    if ((rc = db_ready(db, e)) != PAWL_OK)
        return rc;
    for (size_t i = 0; i < STATS_N; i++)
        buf_printf(&sql, "%s %s", i == 0 ? "SELECT" : ",", stat_table[i].sql);
    if (sql.failed)
        rc = pawl_fail(e, PAWL_NOMEM, "out of memory");
    else if ((rc = db_prepare(db, buf_str(&sql), &q, e)) == PAWL_OK &&
             (rc = db_row(db, q, &row, e)) == PAWL_OK && row)
        for (size_t i = 0; i < STATS_N; i++)
            values[i] = q_i64(q, (int)i);
    q_free(q);
    buf_free(&sql);
    for (size_t i = 0; i < STATS_N && rc == PAWL_OK; i++) {
        const struct pawl_stat s = { stat_table[i].name, values[i], stat_table[i].help };

        if (!fn(ctx, &s))
            break;
    }
    return rc;
}
