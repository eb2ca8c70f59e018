// SPDX-License-Identifier: Apache-2.0
/* leased.c - leased mode: one transaction settles what ended and claims what comes next.
 *
 * Keeps: the fence. A settle starts with DELETE FROM running WHERE job_id AND lease_id; exactly one
 *        row, or nothing of it is written: whoever deleted the row has decided the job.
 *        A claim is durable before anybody starts it.
 */
#include <assert.h>
#include <string.h>
#include "base/err.h"
#include "base/fail.h"
#include "store/verb/db.h"

enum pawl_rc db_fence(struct db *db, const struct job *job, bool *ok, struct pawl_error *e)
{
    struct query *q = NULL;
    enum pawl_rc rc;

    if ((rc = db_q(db, Q_FENCE, &q, e)) != PAWL_OK)
        return rc;
    q_int(q, 1, job->id);
    q_blob(q, 2, job->lease_id, sizeof job->lease_id);
    if ((rc = db_run(db, q, e)) != PAWL_OK)
        return rc;
    *ok = db_changes(db) == 1;
    return PAWL_OK;
}

static enum pawl_rc by_lease(struct db *db, enum q_id id, const struct job *job, bool *yes,
                             struct pawl_error *e)
{
    struct query *q = NULL;
    enum pawl_rc rc;

    if ((rc = db_q(db, id, &q, e)) != PAWL_OK)
        return rc;
    q_int(q, 1, job->id);
    q_blob(q, 2, job->lease_id, sizeof job->lease_id);
    if ((rc = db_row(db, q, yes, e)) != PAWL_OK)
        return rc;
    q_reset(q);
    return PAWL_OK;
}

/* A settle that met 0 rows reads where the job is: settled by my lease = it did commit before. */
static enum pawl_rc was_mine(struct db *db, const struct job *job, bool *mine,
                             struct pawl_error *e)
{
    enum pawl_rc rc = by_lease(db, Q_DONE_BY, job, mine, e);

    if (rc == PAWL_OK && !*mine)
        rc = by_lease(db, Q_ATTEMPT_BY, job, mine, e);
    return rc;
}

static enum pawl_rc told_done(struct db *db, struct settle *s, struct pawl_error *e)
{
    bool yes = false;
    const enum pawl_rc rc = by_lease(db, Q_DONE_BY, s->job, &yes, e);

    if (rc == PAWL_OK && yes)
        s->d = (struct decision){ .to = PAWL_STATE_DONE, .outcome = OUT_DONE };
    return rc;
}

static enum pawl_rc put_running(struct db *db, const struct lane *lane, const struct job *job,
                                struct pawl_error *e)
{
    struct query *q = NULL;
    enum pawl_rc rc;

    if ((rc = db_q(db, Q_RUNNING_PUT, &q, e)) != PAWL_OK)
        return rc;
    q_int(q, 1, job->id);
    q_blob(q, 2, job->lease_id, sizeof job->lease_id);
    q_text(q, 3, db->side.id);
    q_int(q, 4, job->token);
    q_int(q, 5, job->started_at_us);
    q_int(q, 6, db_lane_task(lane, job));
    q_int(q, 7, job->queue_id);
    q_int(q, 8, job->rank);
    q_int(q, 9, job->run_at_us);
    q_int(q, 10, job->n.runs);
    q_int(q, 11, job->n.failures);
    q_int(q, 12, job->n.lost);
    q_int(q, 13, job->n.releases);
    q_int(q, 14, job->n.snoozes);
    q_int(q, 15, job->suspect);
    return db_run(db, q, e);
}

/* The effect moves the guard, or is stale. Another transaction may have moved it to this version
 * after we had looked: its row is locked for us now, so that what is read is what counts. A
 * conflict keeps the lease, and the engine buries it. */
static enum pawl_rc advance(struct db *db, const struct settle *s, const struct lane *lane,
                            enum settle_result *result, struct pawl_error *e)
{
    enum guard g = GUARD_FRESH;
    bool ok = false;
    enum pawl_rc rc = db_advance(db, db_lane_task(lane, s->job), s->job, &ok, e);

    if (rc != PAWL_OK || ok)
        return rc;
    *result = SETTLE_STALE;
    if ((rc = db_guard(&db->base, &lane->tasks[s->job->task_i], s->job, &g, e)) != PAWL_OK ||
        g != GUARD_CONFLICT)
        return rc;
    *result = SETTLE_CONFLICT;
    return put_running(db, lane, s->job, e);
}

static enum pawl_rc settle_one(struct db *db, struct settle *s, const struct lane *lane,
                               enum settle_result *result, struct pawl_error *e)
{
    enum guard g = GUARD_FRESH;
    bool ok = false;
    enum pawl_rc rc;

    /* The guard may have moved since the start: an equal version with other args is never applied.
     * */
    if (s->d.to == PAWL_STATE_DONE && s->d.outcome == OUT_DONE) {
        if ((rc = db_guard(&db->base, &lane->tasks[s->job->task_i], s->job, &g, e)) != PAWL_OK)
            return rc;
        if (g == GUARD_CONFLICT) {
            *result = SETTLE_CONFLICT;
            return PAWL_OK;
        }
    }

    const bool ask = s->arena != NULL && !s->heeded && db->engine->said != NULL;

    if ((rc = (ask ? db->engine->fence_unsaid : db_fence)(db, s->job, &ok, e)) != PAWL_OK)
        return rc;
    if (!ok && ask) {
        bool yes = false;

        if ((rc = db->engine->said(db, s->job, s->arena, &s->said, &yes, e)) != PAWL_OK || yes) {
            *result = SETTLE_SAID;
            return rc;
        }
    }
    if (!ok) {
        if ((rc = was_mine(db, s->job, &ok, e)) != PAWL_OK)
            return rc;
        *result = ok ? SETTLE_OK : SETTLE_FENCED;
        if (ok && s->d.to != PAWL_STATE_DONE) /* it was done by its handler, whatever came then */
            rc = told_done(db, s, e);
        return rc != PAWL_OK ? rc : ok ? PAWL_OK : db_count(db, "fenced", 1, e);
    }
    *result = SETTLE_OK;
    if (s->unclaim)
        return db_put_ready(db, db_lane_task(lane, s->job), s->job, &s->d, e);
    if (s->d.to != PAWL_STATE_DONE)
        return db_place(db, s, e);
    if (s->d.outcome == OUT_DONE &&
        ((rc = advance(db, s, lane, result, e)) != PAWL_OK || *result == SETTLE_CONFLICT))
        return rc;
    return db_put_done(db, s->job, s->found, s->d.outcome == OUT_STALE || *result == SETTLE_STALE,
                       e);
}

static enum pawl_rc lease_one(struct db *db, const struct lane *lane, const struct job *job,
                              struct pawl_error *e)
{
    bool ok = false;
    const enum pawl_rc rc = db_take_ready(db, db_lane_task(lane, job), job, &ok, e);

    if (rc != PAWL_OK)
        return rc;
    if (!ok)
        return pawl_fail(e, PAWL_BUG, "claim: job %lld moved inside the transaction",
                         (long long)job->id);
    return put_running(db, lane, job, e);
}

enum pawl_rc db_lease(struct db *db, const struct lane *lane, size_t want, bool alone,
                      struct arena *arena, struct job *jobs, size_t *n, struct claim_info *info,
                      struct pawl_error *e)
{
    enum pawl_rc rc = db_choose(db, lane, want, alone, arena, jobs, n, info, e);
    uint8_t lease[sizeof jobs->lease_id];

    if (rc != PAWL_OK)
        return pawl_wrap(e, "claim");
    /* One for all that is claimed here: a job is fenced by its id and this, and random bytes are
     * two calls of the kernel. */
    if (*n > 0)
        env_bytes(db->env, lease, sizeof lease);
    for (size_t i = 0; i < *n; i++)
        memcpy(jobs[i].lease_id, lease, sizeof lease);
    if (*n > 0 && db->engine->lease_many != NULL && !db->one_by_one)
        return db->engine->lease_many(db, lane, jobs, *n, e);
    for (size_t i = 0; i < *n; i++) {
        if ((rc = lease_one(db, lane, &jobs[i], e)) != PAWL_OK)
            return pawl_wrap(e, "claim job %lld", (long long)jobs[i].id);
    }
    return PAWL_OK;
}

/* A success that no version guard has to be asked about. */
static bool is_simple(const struct settle *s)
{
    return !s->unclaim && !s->heeded && s->d.to == PAWL_STATE_DONE && s->d.outcome == OUT_DONE &&
           (s->job->entity == NULL || !s->job->has_version);
}

/* The simple ones at once, each behind its fence: should one not hold, the turn as a whole is
 * undone, and done again one by one. */
static enum pawl_rc settle_simple(struct db *db, struct settle *s, size_t n,
                                  enum settle_result *results, struct pawl_error *e)
{
    struct db_done done[LIMIT_CONCURRENCY];
    size_t k = 0;

    for (size_t i = 0; i < n; i++) {
        const struct finding *f = s[i].found;

        if (!is_simple(&s[i]))
            continue;
        results[i] = SETTLE_OK;
        done[k++] = (struct db_done){
            .job = s[i].job,
            .result = f->result,
            .result_bytes = f->result_bytes,
            .started_at_us = f->started_at_us != 0 ? f->started_at_us : s[i].job->started_at_us,
            .ended_at_us = db->env->wall_us(db->env->ctx)};
    }
    return k > 0 ? db->engine->done_many(db, done, k, true, e) : PAWL_OK;
}

/* One transaction: what ended, and what comes next. */
struct turn {
    struct settle *s;
    size_t n;
    const struct lane *lane;
    size_t want;
    bool alone;
    struct arena *arena;
    struct job *jobs;
    size_t *jobs_n;
    struct claim_info *info;
    enum settle_result results[LIMIT_CONCURRENCY];
};

static enum pawl_rc turn_inside(struct db *db, struct turn *t, struct pawl_error *e)
{
    const bool at_once = db->engine->done_many != NULL && !db->one_by_one;
    enum pawl_rc rc = PAWL_OK;

    if (at_once && (rc = settle_simple(db, t->s, t->n, t->results, e)) != PAWL_OK)
        return rc;
    for (size_t i = 0; i < t->n; i++)
        if (!(at_once && is_simple(&t->s[i])) &&
            (rc = settle_one(db, &t->s[i], t->lane, &t->results[i], e)) != PAWL_OK)
            return pawl_wrap(e, "settle job %lld", (long long)t->s[i].job->id);
    return db_lease(db, t->lane, t->want, t->alone, t->arena, t->jobs, t->jobs_n, t->info, e);
}

static enum pawl_rc turn_once(struct db *db, struct turn *t, struct pawl_error *e)
{
    enum pawl_rc rc = db_begin(db, e);

    *t->jobs_n = 0;
    if (rc != PAWL_OK)
        return rc;
    rc = turn_inside(db, t, e);
    if (rc != PAWL_OK || (t->n == 0 && *t->jobs_n == 0)) { /* nothing written: no commit, no sync */
        db_rollback(db);
        return rc;
    }
    if (fail_point("turn.commit.before")) {
        db_rollback(db);
        return pawl_fail(e, PAWL_IO, "failpoint turn.commit.before");
    }
    rc = db_commit(db, e);
    if (rc == PAWL_OK && fail_point("turn.commit.after"))
        rc = pawl_fail(e, PAWL_UNSURE, "failpoint turn.commit.after");
    return rc;
}

enum pawl_rc db_turn(struct store *st, struct settle *s, size_t n, const struct lane *lane,
                     size_t want, bool alone, struct arena *arena, struct job *jobs,
                     size_t *jobs_n, struct claim_info *info, struct pawl_error *e)
{
    struct db *db = db_of(st);
    struct turn t = {.s = s,
                     .n = n,
                     .lane = lane,
                     .want = want,
                     .alone = alone,
                     .arena = arena,
                     .jobs = jobs,
                     .jobs_n = jobs_n,
                     .info = info};
    enum pawl_rc rc;

    assert(n <= LIMIT_CONCURRENCY && want <= LIMIT_CONCURRENCY);
    *jobs_n = 0;
    if (fail_point("turn.before"))
        return pawl_fail(e, PAWL_IO, "failpoint turn.before");
    rc = turn_once(db, &t, e);
    if (rc == PAWL_FENCED) {
        db->one_by_one = true;
        rc = turn_once(db, &t, e);
        db->one_by_one = false;
    }
    if (rc == PAWL_OK)
        for (size_t i = 0; i < n; i++) s[i].result = t.results[i];
    else
        *jobs_n = 0;
    db_leave(db);
    if (rc == PAWL_OK && n > 0)
        db_wake(db);
    return rc;
}

/* Put back a running row whose job was never started. */
enum pawl_rc db_unclaim(struct db *db, const struct job *job, int64_t task_id,
                        struct pawl_error *e)
{
    const struct decision d = { .to = PAWL_STATE_READY, .n = job->n, .keep_place = true,
                                .suspect = job->suspect };
    bool ok = false;
    enum pawl_rc rc = db_fence(db, job, &ok, e);

    return rc == PAWL_OK && ok ? db_put_ready(db, task_id, job, &d, e) : rc;
}

/* Does a slot of the worker hold this running row? A job that was handed back and claimed again by
 * one commit has the id of a slot, but another lease: such slots are not counted. */
static bool known(const int64_t *ids, size_t ids_n, const struct settle *s, size_t n,
                  const struct job *row)
{
    size_t slots = 0, others = 0;

    for (size_t i = 0; i < ids_n; i++)
        slots += ids[i] == row->id;
    for (size_t i = 0; i < n; i++)
        others += s[i].job->id == row->id &&
                  memcmp(s[i].job->lease_id, row->lease_id, sizeof row->lease_id) != 0;
    return slots > others;
}

enum pawl_rc db_resolve(struct store *st, struct settle *s, size_t n, const int64_t *held_ids,
                        size_t held_n, struct pawl_error *e)
{
    struct db *db = db_of(st);
    struct job *rows = NULL;
    int64_t *tasks = NULL;
    struct arena a = {0};
    size_t rows_n = 0;
    enum pawl_rc rc;

    if ((rc = db_begin(db, e)) != PAWL_OK)
        return rc;
    for (size_t i = 0; i < n && rc == PAWL_OK; i++) {
        bool mine = false, still = false;

        if ((rc = was_mine(db, s[i].job, &mine, e)) != PAWL_OK ||
            (rc = by_lease(db, Q_HELD_BY, s[i].job, &still, e)) != PAWL_OK)
            break;
        s[i].result = mine ? SETTLE_OK : still ? SETTLE_PENDING : SETTLE_FENCED;
    }
    if (rc == PAWL_OK)
        rc = db_rows_of(db, db->side.id, false, &a, &rows, &tasks, &rows_n, e);
    for (size_t i = 0; i < rows_n && rc == PAWL_OK; i++)
        if (!known(held_ids, held_n, s, n, &rows[i]))
            rc = db_unclaim(db, &rows[i], tasks[i], e);
    if (rc == PAWL_OK)
        rc = db_commit(db, e);
    else
        db_rollback(db);
    db_leave(db);
    arena_free(&a);
    return rc;
}

enum pawl_rc db_held(struct store *st, int64_t *ids, size_t room, size_t *n, struct pawl_error *e)
{
    struct db *db = db_of(st);
    struct query *q = NULL;
    bool row = true;
    enum pawl_rc rc;

    *n = 0;
    if ((rc = db_ready(db, e)) != PAWL_OK)
        return rc;
    if ((rc = db_q(db, Q_HELD, &q, e)) != PAWL_OK)
        return rc;
    q_text(q, 1, db->side.id);
    while ((rc = db_row(db, q, &row, e)) == PAWL_OK && row && *n < room)
        ids[(*n)++] = q_i64(q, 0);
    q_reset(q);
    return rc;
}

enum pawl_rc db_holds(struct store *st, const struct job *job, bool *yes, struct pawl_error *e)
{
    struct db *db = db_of(st);
    const enum pawl_rc rc = db_ready(db, e);

    return rc == PAWL_OK ? by_lease(db, Q_HELD_BY, job, yes, e) : rc;
}
