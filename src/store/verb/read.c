// SPDX-License-Identifier: Apache-2.0
/* read.c - jobs and attempts as people see them. Reads are short and take no write lock. */
#include <assert.h>
#include <stdio.h>
#include <string.h>
#include "base/err.h"
#include "core/rules.h"
#include "store/verb/db.h"

#define PAGE_ROWS 200 /* rows are copied out a page at a time: no read stays open in a callback */

#define JOB_COLS                                                                                  \
    "id, root_id, gen, replay_of, replayed_as, task, queue, source, key, state, outcome,"         \
    " dead_class, reason, error, args, headers, trace, entity, version, serial, priority,"        \
    " max_retries, created_at_us, run_at_us, expires_at_us, started_at_us, ended_at_us,"          \
    " runs, failures, lost, releases, snoozes, suspect, worker, result,"                          \
    " (SELECT t.paused FROM pawl_x_task t WHERE t.name = task),"                                  \
    " (SELECT q.paused FROM pawl_x_queue q WHERE q.name = queue)"

static enum pawl_state state_parse(const char *s)
{
    for (int i = 0; s != NULL && i < PAWL_STATE_N; i++)
        if (strcmp(pawl_state_name((enum pawl_state)i), s) == 0)
            return (enum pawl_state)i;
    return PAWL_STATE_READY;
}

/* Were all texts of the rows copied? */
static enum pawl_rc all_there(const struct arena *a, struct pawl_error *e)
{
    return a->failed ? pawl_fail(e, PAWL_NOMEM, "out of memory") : PAWL_OK;
}

static void read_job_row(struct query *q, struct arena *a, struct pawl_job *j)
{
    memset(j, 0, sizeof *j);
    j->id = q_i64(q, 0);
    j->root_id = q_i64(q, 1);
    j->gen = q_i32(q, 2);
    j->replay_of = q_i64(q, 3);
    j->replayed_as = q_i64(q, 4);
    j->task = q_dup(a, q, 5);
    j->queue = q_dup(a, q, 6);
    j->source = q_dup(a, q, 7);
    j->key = q_dup(a, q, 8);
    j->state = state_parse(q_str(q, 9));
    j->outcome = q_dup(a, q, 10);
    j->dead_class = q_dup(a, q, 11);
    j->reason = q_dup(a, q, 12);
    j->error = q_dup(a, q, 13);
    j->args = q_dup(a, q, 14);
    j->args_bytes = (size_t)q_bytes(q, 14);
    j->headers = q_dup(a, q, 15);
    j->trace = q_dup(a, q, 16);
    j->entity = q_dup(a, q, 17);
    j->has_version = !q_is_null(q, 18);
    j->version = q_i64(q, 18);
    j->serial = q_dup(a, q, 19);
    j->priority = q_i32(q, 20);
    j->max_retries = q_is_null(q, 21) ? -1 : q_i32(q, 21);
    j->created_at_us = q_i64(q, 22);
    j->run_at_us = q_i64(q, 23);
    j->expires_at_us = q_i64(q, 24);
    j->started_at_us = q_i64(q, 25);
    j->ended_at_us = q_i64(q, 26);
    j->runs = q_i64(q, 27);
    j->failures = q_i64(q, 28);
    j->lost = q_i64(q, 29);
    j->releases = q_i64(q, 30);
    j->snoozes = q_i64(q, 31);
    j->suspect = q_i32(q, 32) != 0;
    j->worker = q_dup(a, q, 33);
    j->result = q_dup(a, q, 34);
    j->result_bytes = (size_t)q_bytes(q, 34);
    j->task_paused = q_i32(q, 35) != 0;
    j->queue_paused = q_i32(q, 36) != 0;
    j->attempts = j->runs - (j->state == PAWL_STATE_DONE); /* a row for every end but success */
}

/* Which rows: the place that holds the state drives, so that listing the dead does not scan jobs.
 * */
static const char *place_of(int state)
{
    switch (state - 1) {
    case PAWL_STATE_READY: return " AND id IN (SELECT id FROM pawl_x_ready)";
    case PAWL_STATE_RUNNING: return " AND id IN (SELECT job_id FROM pawl_x_running)";
    case PAWL_STATE_DONE: return " AND id IN (SELECT job_id FROM pawl_x_done)";
    case PAWL_STATE_DROPPED: return " AND id IN (SELECT job_id FROM pawl_x_dropped)";
    case PAWL_STATE_CANCELLED: return " AND id IN (SELECT job_id FROM pawl_x_cancelled)";
    default: return "";
    }
}

static void list_sql(const struct pawl_filter *f, struct buf *sql)
{
    buf_puts(sql, "SELECT " JOB_COLS " FROM pawl_jobs WHERE id > ?1");
    if (f->state - 1 == PAWL_STATE_DEAD)
        buf_puts(sql, " AND id IN (SELECT d.job_id FROM pawl_x_dead d WHERE d.ended_at_us >= ?2"
                      " AND (CAST(?3 AS TEXT) IS NULL OR d.class = ?3)"
                      " AND (?4 = 0 OR d.replayed_as IS NULL)"
                      " AND (?5 = 0 OR NOT EXISTS (SELECT 1 FROM pawl_x_job j JOIN pawl_x_dead n"
                      "   ON n.job_id = j.id WHERE j.id > d.job_id AND j.root_id ="
                      "   (SELECT coalesce(root_id, id) FROM pawl_x_job WHERE id = d.job_id))))");
    else
        buf_puts(sql, place_of(f->state));
    if (f->task != NULL)
        buf_puts(sql, " AND task = ?6");
    if (f->queue != NULL)
        buf_puts(sql, " AND queue = ?7");
    if (f->source != NULL)
        buf_puts(sql, " AND source = ?8");
    if (f->key != NULL)
        buf_puts(sql, " AND key = ?9");
    buf_puts(sql, " ORDER BY id LIMIT ?10");
}

static void bind_list(struct query *q, const struct pawl_filter *f, int64_t after, int64_t limit)
{
    q_int(q, 1, after);
    q_int(q, 10, limit);
    if (f->state - 1 == PAWL_STATE_DEAD) {
        q_int(q, 2, f->since_at_us);
        q_text(q, 3, f->dead_class);
        q_int(q, 4, f->unreplayed);
        q_int(q, 5, f->newest_per_root);
    }
    if (f->task != NULL)
        q_text(q, 6, f->task);
    if (f->queue != NULL)
        q_text(q, 7, f->queue);
    if (f->source != NULL)
        q_text(q, 8, f->source);
    if (f->key != NULL)
        q_text(q, 9, f->key);
}

static enum pawl_rc page(struct db *db, struct query *q, const struct pawl_filter *f,
                         int64_t after, int64_t limit, struct arena *a, struct pawl_job *rows,
                         int64_t *n, struct pawl_error *e)
{
    bool row = true;
    enum pawl_rc rc = PAWL_OK;

    *n = 0;
    q_reset(q);
    bind_list(q, f, after, limit);
    while (*n < limit && (rc = db_row(db, q, &row, e)) == PAWL_OK && row)
        read_job_row(q, a, &rows[(*n)++]);
    q_reset(q);
    return rc == PAWL_OK ? all_there(a, e) : rc;
}

enum pawl_rc db_jobs(struct store *st, const struct pawl_filter *f, pawl_job_fn *fn, void *ctx,
                     struct pawl_error *e)
{
    struct db *db = db_of(st);
    struct pawl_job *rows = NULL;
    struct arena a = {0};
    struct buf sql = {0};
    struct query *q = NULL;
    int64_t after = f->after_id, left = f->limit > 0 ? f->limit : INT64_MAX, n = PAGE_ROWS;
    enum pawl_rc rc;

    if ((rc = db_ready(db, e)) != PAWL_OK)
        return rc;
    list_sql(f, &sql);
    rc = sql.failed ? pawl_fail(e, PAWL_NOMEM, "out of memory")
                    : db_prepare(db, buf_str(&sql), &q, e);
    if (rc != PAWL_OK)
        goto out;
    for (bool go = true; go && left > 0 && n == PAGE_ROWS;) {
        const int64_t want = left < PAGE_ROWS ? left : PAGE_ROWS;

        arena_reset(&a);
        rows = arena_alloc(&a, PAGE_ROWS * sizeof *rows);
        if (rows == NULL) {
            rc = pawl_fail(e, PAWL_NOMEM, "out of memory");
            goto out;
        }
        if ((rc = page(db, q, f, after, want, &a, rows, &n, e)) != PAWL_OK)
            goto out;
        for (int64_t i = 0; i < n && go; i++)
            go = fn(ctx, &rows[i]);
        if (n > 0)
            after = rows[n - 1].id;
        left -= n;
    }
out:
    q_free(q);
    buf_free(&sql);
    arena_free(&a);
    return rc;
}

enum pawl_rc db_job(struct store *st, int64_t id, pawl_job_fn *fn, void *ctx, struct pawl_error *e)
{
    struct db *db = db_of(st);
    struct arena a = {0};
    struct query *q = NULL;
    struct pawl_job job;
    bool row = false;
    enum pawl_rc rc;

    if ((rc = db_ready(db, e)) != PAWL_OK)
        return rc;
    if ((rc = db_prepare(db, "SELECT " JOB_COLS " FROM pawl_jobs WHERE id = ?1", &q, e)) != PAWL_OK)
        return rc;
    q_int(q, 1, id);
    rc = db_row(db, q, &row, e);
    if (rc == PAWL_OK && row)
        read_job_row(q, &a, &job);
    else if (rc == PAWL_OK)
        rc = pawl_fail(e, PAWL_NOTFOUND, "no job %lld", (long long)id);
    q_free(q);
    if (rc == PAWL_OK && (rc = all_there(&a, e)) == PAWL_OK)
        fn(ctx, &job);
    arena_free(&a);
    return rc;
}

enum pawl_rc db_attempts(struct store *st, int64_t id, pawl_attempt_fn *fn, void *ctx,
                         struct pawl_error *e)
{
    struct db *db = db_of(st);
    struct pawl_attempt *rows;
    struct arena a = {0};
    struct query *q = NULL;
    size_t n = 0;
    bool row = true;
    enum pawl_rc rc;

    if ((rc = db_ready(db, e)) != PAWL_OK)
        return rc;
    if ((rows = arena_alloc(&a, (LIMIT_ATTEMPT_ROWS + 8) * sizeof *rows)) == NULL)
        return pawl_fail(e, PAWL_NOMEM, "out of memory");
    rc = db_prepare(db, "SELECT job_id, n, outcome, worker, host, build, started_at_us,"
            " ended_at_us, exit_code, signal, max_rss_kib, delay_us, error, out_tail, err_tail"
            " FROM pawl_attempts WHERE job_id = ?1 ORDER BY n", &q, e);
    if (rc == PAWL_OK)
        q_int(q, 1, id);
    while (rc == PAWL_OK && n < LIMIT_ATTEMPT_ROWS + 8 &&
           (rc = db_row(db, q, &row, e)) == PAWL_OK && row) {
        struct pawl_attempt *t = &rows[n++];

        t->job_id = q_i64(q, 0);
        t->n = q_i64(q, 1);
        t->outcome = q_dup(&a, q, 2);
        t->worker = q_dup(&a, q, 3);
        t->host = q_dup(&a, q, 4);
        t->build = q_dup(&a, q, 5);
        t->started_at_us = q_i64(q, 6);
        t->ended_at_us = q_i64(q, 7);
        t->exit_code = q_is_null(q, 8) ? -1 : q_i32(q, 8);
        t->signal = q_is_null(q, 9) ? -1 : q_i32(q, 9);
        t->max_rss_kib = q_i64(q, 10);
        t->delay_us = q_i64(q, 11);
        t->error = q_dup(&a, q, 12);
        t->out_tail = q_dup(&a, q, 13);
        t->err_tail = q_dup(&a, q, 14);
    }
    q_free(q);
    if (rc == PAWL_OK)
        rc = all_there(&a, e);
    for (size_t i = 0; i < n && rc == PAWL_OK && fn(ctx, &rows[i]); i++)
        continue;
    arena_free(&a);
    return rc;
}
