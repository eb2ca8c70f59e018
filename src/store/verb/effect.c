// SPDX-License-Identifier: Apache-2.0
/* effect.c - effect mode: the open transaction is the lease.
 *
 * Keeps: nothing is written before the first job's work; the fence of a job is the deletion of its
 *        ready row with the runs it was read with; the blame record names the job in hand before
 *        its work starts, and `commit` before the COMMIT.
 */
#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include "base/err.h"
#include "base/fail.h"
#include "base/log.h"
#include "store/verb/db.h"

/* How many jobs fit before it is a foreign writer's turn. A batch whose work takes less than its
 * commit is not worth it: rather be late. */
static size_t fit(const struct db *db, size_t want)
{
    const int64_t room = side_turn_us(&db->side);

    if (room == INT64_MAX || db->job_ns <= 0)
        return want;
    const int64_t work_us = room > 2 * db->commit_us ? room - db->commit_us : db->commit_us;
    const int64_t n = work_us * 1000 / db->job_ns;

    return n < 1 ? 1 : n < (int64_t)want ? (size_t)n : want;
}

static int64_t learn(int64_t old, int64_t seen)
{
    return old == 0 ? seen : old + (seen - old) / 4;
}

/* A savepoint a job costs a fifth of a small job: every page that it changes is copied first. A
 * batch that follows many jobs that needed none has one for all, only to notice a handler that ends
 * the transaction. Should a job need its own after all, the batch is rolled back and run again. */
#define SMOOTH_FIRST 64
#define SMOOTH_MIN 1024
#define SMOOTH_MAX 65536

static bool may_be_plain(struct db *db, const struct job *jobs, size_t n)
{
    if (db->smooth_min == 0)
        db->smooth_min = SMOOTH_FIRST;
    return (n > 1 || db->engine->done_many != NULL) && db->smooth >= db->smooth_min &&
           !jobs[0].suspect;
}

/* A job of a plain batch had to be undone: expect more of them. */
static void not_smooth(struct db *db)
{
    db->smooth = 0;
    db->smooth_min = db->smooth_min < SMOOTH_MIN ? SMOOTH_MIN
                   : db->smooth_min < SMOOTH_MAX ? db->smooth_min * 4 : SMOOTH_MAX;
}

bool db_effect_alive(struct store *st)
{
    struct db *db = db_of(st);

    return db->in_tx && db_alive(db);
}

static enum pawl_rc gone(struct pawl_error *e)
{
    return pawl_fail(e, PAWL_BUG, "the effect transaction is gone: the handler ended it");
}

/* For other hosts: the jobs that may be the end of this process. Leased ones have their rows. */
static void mark(struct db *db, const struct lane *lane, uint64_t nonce, const struct job *jobs,
                 size_t n)
{
    struct job some[LIMIT_BATCH];
    size_t k = 0;

    if (db->engine->mark == NULL)
        return;
    for (size_t i = 0; i < n; i++)
        if (lane->tasks[jobs[i].task_i].native)
            some[k++] = jobs[i];
    if (k > 0)
        db->engine->mark(db, nonce, n == 1 && jobs[0].suspect, some, k);
    db->marked = k > 0;
}

/* Nobody is in hand; for those who read the mark: the jobs wait as before, or are to be decided. */
static void unmark(struct db *db)
{
    if (db->marked)
        db->engine->mark(db, 0, false, NULL, 0);
    db->marked = false;
}

/* The transaction is open and its jobs are known: write down who they are. */
static enum pawl_rc batch_opened(struct db *db, enum blame_kind kind, const struct lane *lane,
                                 struct job *jobs, size_t n, struct pawl_error *e)
{
    const uint64_t nonce = db->env->random(db->env->ctx);

    side_blame_clear(&db->side);
    side_blame_batch(&db->side, kind, nonce, n == 1 && jobs[0].suspect);
    if (kind == BLAME_EFFECT)
        mark(db, lane, nonce, jobs, n);
    for (size_t i = 0; i < n; i++)
        side_blame_job(&db->side, (uint32_t)i, jobs[i].id, jobs[i].n.runs);
    db->batch = jobs;
    db->batch_n = n;
    db->effect_open = true;
    db->leased_batch = kind == BLAME_APPLY;
    db->savepoint = false;
    db->plain = may_be_plain(db, jobs, n);
    db->plain_saved = false;
    db->later_n = 0;
    free(db->later);
    db->later = db->plain && db->engine->done_many != NULL ? calloc(n, sizeof *db->later) : NULL;
    if (fail_point("batch.claimed")) {
        db_effect_rollback(&db->base);
        return pawl_fail(e, PAWL_IO, "failpoint batch.claimed");
    }
    return PAWL_OK;
}

/* Successes that were put off, written with one statement; all of their rows were there, or the
 * batch runs again one by one. */
static enum pawl_rc write_later(struct db *db, struct pawl_error *e)
{
    int64_t stale = 0;
    enum pawl_rc rc;

    if (db->later == NULL || db->later_n == 0)
        return PAWL_OK;
    for (size_t i = 0; i < db->later_n; i++) stale += db->later[i].stale;
    if (stale > 0 && (rc = db_count(db, "stale", stale, e)) != PAWL_OK)
        return rc;
    return db->engine->done_many(db, db->later, db->later_n, db->leased_batch, e);
}

/* The fence: who takes the row has decided the job. */
static enum pawl_rc take(struct db *db, int64_t task_id, const struct job *job, bool *ok,
                         struct pawl_error *e)
{
    return db->leased_batch ? db_fence(db, job, ok, e) : db_take_ready(db, task_id, job, ok, e);
}

enum pawl_rc db_effect_begin(struct store *st, const struct lane *lane, size_t want,
                             struct arena *arena, struct job *jobs, size_t *n,
                             struct claim_info *info, struct pawl_error *e)
{
    struct db *db = db_of(st);
    enum pawl_rc rc;

    assert(!db->effect_open && want <= LIMIT_BATCH);
    *n = 0;
    db->side.long_turn = true;
    rc = db_begin(db, e);
    db->side.long_turn = false;
    if (rc != PAWL_OK)
        return rc;
    rc = db_choose(db, lane, fit(db, want), true, arena, jobs, n, info, e);
    if (rc != PAWL_OK || *n == 0) {
        db_rollback(db);
        db_leave(db);
        *n = 0;
        return rc;
    }
    env_bytes(db->env, db->batch_lease, sizeof db->batch_lease); /* one: it is one transaction */
    for (size_t i = 0; i < *n; i++)
        memcpy(jobs[i].lease_id, db->batch_lease, sizeof jobs[i].lease_id);
    return batch_opened(db, BLAME_EFFECT, lane, jobs, *n, e);
}

enum pawl_rc db_effect_resume(struct store *st, const struct lane *lane, struct job *jobs, size_t n,
                              struct pawl_error *e)
{
    struct db *db = db_of(st);
    enum pawl_rc rc;

    assert(!db->effect_open);
    db->side.long_turn = true;
    rc = db_begin(db, e);
    db->side.long_turn = false;
    return rc == PAWL_OK ? batch_opened(db, BLAME_APPLY, lane, jobs, n, e) : rc;
}

/* What ends and what comes next share the commit. */
enum pawl_rc db_effect_lease(struct store *st, const struct lane *lane, size_t want, bool alone,
                             struct arena *arena, struct job *jobs, size_t *n,
                             struct claim_info *info, struct pawl_error *e)
{
    struct db *db = db_of(st);

    assert(db->effect_open && db->leased_batch && !db->savepoint);
    *n = 0;
    if (!db_effect_alive(st))
        return gone(e);
    return db_lease(db, lane, want, alone, arena, jobs, n, info, e);
}

/* RELEASE or ROLLBACK TO of the job's savepoint. That it is not there is the handler's doing, not
 * the store's: it released it, or ended the transaction and began another one. */
static enum pawl_rc savepoint(struct db *db, enum q_id id, struct pawl_error *e)
{
    struct query *q = NULL;
    enum pawl_rc rc = db_q(db, id, &q, e);

    if (rc != PAWL_OK || (rc = db_run(db, q, e)) == PAWL_OK)
        return rc;
    return db->engine->no_savepoint(db) ? gone(e) : rc;
}

/* As RELEASE, told by the COMMIT where that is the engine's way. */
static enum pawl_rc keep_later(struct db *db, struct pawl_error *e)
{
    struct query *q = NULL;
    enum pawl_rc rc;

    if (db->engine->run_later == NULL)
        return savepoint(db, Q_SAVE_KEEP, e);
    rc = db_q(db, Q_SAVE_KEEP, &q, e);
    return rc == PAWL_OK ? db_run_later(db, q, e) : rc;
}

enum pawl_rc db_effect_job(struct store *st, size_t i, struct pawl_error *e)
{
    struct db *db = db_of(st);
    struct query *q = NULL;
    enum pawl_rc rc;

    assert(db->effect_open && !db->savepoint && i < db->batch_n);
    db->hand = i;
    side_blame_hand(&db->side, (uint32_t)i);
    if (!db_effect_alive(st))
        return gone(e);
    if (!db->plain_saved &&
        ((rc = db_q(db, Q_SAVE, &q, e)) != PAWL_OK || (rc = db_run_later(db, q, e)) != PAWL_OK))
        return rc;
    db->savepoint = true;
    db->plain_saved = db->plain;
    db->wrote_before = db_wrote(db);
    db->wrote_unseen = false;
    if (fail_point("effect.job"))
        return pawl_fail(e, PAWL_IO, "failpoint effect.job");
    return PAWL_OK;
}

enum pawl_rc db_effect_done(struct store *st, const struct lane_task *t, const struct job *job,
                            const struct finding *f, struct pawl_error *e)
{
    struct db *db = db_of(st);
    bool stale = f->outcome == OUT_STALE, ok = false;
    enum pawl_rc rc;

    assert(db->savepoint);
    if (!db_effect_alive(st))
        return gone(e);
    if (!stale) {
        if ((rc = db_advance(db, t->id, job, &ok, e)) != PAWL_OK)
            return rc;
        if (!ok) /* an earlier job of this very batch was newer, or the guard would have said so */
            return pawl_fail(e, PAWL_FENCED, "job %lld: its version is no longer the newest",
                             (long long)job->id);
    }
    if (db->later != NULL) { /* its row is locked, so that nobody can decide it before the commit */
        db->later[db->later_n++] = (struct db_done){
            .job = job, .task_id = t->id, .stale = stale, .result = stale ? NULL : f->result,
            .result_bytes = f->result_bytes, .ended_at_us = db->env->wall_us(db->env->ctx),
            .started_at_us = f->started_at_us != 0 ? f->started_at_us : job->started_at_us };
    } else {
        if ((rc = take(db, t->id, job, &ok, e)) != PAWL_OK)
            return rc;
        if (!ok)
            return pawl_fail(e, PAWL_FENCED, "job %lld was decided by somebody else",
                             (long long)job->id);
        if ((rc = db_put_done(db, job, f, stale, e)) != PAWL_OK)
            return rc;
    }
    /* Alone, what fails in the COMMIT can fail here, where it can be undone and the job kept. */
    if (db->batch_n == 1 && !db->plain && !db->leased_batch && db->engine->check_due != NULL &&
        (rc = db->engine->check_due(db, e)) != PAWL_OK)
        return rc;
    if (!db->plain && (rc = savepoint(db, Q_SAVE_KEEP, e)) != PAWL_OK)
        return rc;
    db->savepoint = false;
    db->smooth++;
    if (fail_point("effect.done"))
        return pawl_fail(e, PAWL_IO, "failpoint effect.done");
    return PAWL_OK;
}

enum pawl_rc db_effect_undo(struct store *st, struct pawl_error *e)
{
    struct db *db = db_of(st);
    enum pawl_rc rc;

    if (!db_effect_alive(st))
        return gone(e);
    assert(db->savepoint);
    const bool wrote = db->wrote_unseen || db_wrote(db) != db->wrote_before;
    if (wrote)
        db->smooth = 0;
    if (db->plain && (wrote || db->engine->spoiled(db))) {
        not_smooth(db);
        return pawl_fail(e, PAWL_BUSY, "the batch has no savepoints: it runs again with them");
    }
    if (!db->plain && ((rc = savepoint(db, Q_SAVE_BACK, e)) != PAWL_OK ||
                       (rc = savepoint(db, Q_SAVE_KEEP, e)) != PAWL_OK))
        return rc;
    db->savepoint = false;
    return PAWL_OK;
}

enum pawl_rc db_effect_commit(struct store *st, struct pawl_error *e)
{
    struct db *db = db_of(st);
    enum pawl_rc rc;

    assert(db->effect_open && !db->savepoint);
    if (!db_effect_alive(st)) {
        db_rollback(db);
        side_blame_clear(&db->side);
        unmark(db);
        return gone(e);
    }
    if ((db->plain_saved && (rc = keep_later(db, e)) != PAWL_OK) ||
        (rc = write_later(db, e)) != PAWL_OK) {
        if (rc == PAWL_SQL && db->plain)
            not_smooth(db);
        db_effect_rollback(st);
        return rc;
    }
    side_blame_commit(&db->side);
    if (fail_point("effect.commit.before")) {
        db_effect_rollback(st);
        return pawl_fail(e, PAWL_IO, "failpoint effect.commit.before");
    }
    const int64_t before_us = st->env->mono_us(st->env->ctx);
    rc = db_commit(db, e);
    if (rc != PAWL_OK && rc != PAWL_FENCED && db->plain) /* a statement too long closes it, too */
        not_smooth(db);
    if (rc != PAWL_OK && rc != PAWL_UNSURE && db->engine->no_savepoint(db))
        rc = gone(e);
    if (rc == PAWL_OK) {
        db->commit_us = learn(db->commit_us, st->env->mono_us(st->env->ctx) - before_us);
        db->job_ns = learn(db->job_ns, (before_us - db->begun_us) * 1000 / (int64_t)(db->hand + 1));
    }
    if (rc == PAWL_OK && fail_point("effect.commit.after"))
        rc = pawl_fail(e, PAWL_UNSURE, "failpoint effect.commit.after");
    side_blame_clear(&db->side);
    if (rc != PAWL_OK)
        unmark(db); /* else the next batch has its own, and what is done is nobody's fault */
    db->effect_open = false;
    return rc;
}

/* The side lock stays: the caller reruns, writes verdicts, or ends the batch. */
void db_effect_rollback(struct store *st)
{
    struct db *db = db_of(st);

    db_rollback(db);
    side_blame_clear(&db->side);
    unmark(db);
    db->effect_open = db->savepoint = false;
}

static enum pawl_rc verdicts_inside(struct db *db, struct settle *s, size_t n,
                                    enum settle_result *results, struct pawl_error *e)
{
    struct query *q = NULL;
    enum pawl_rc rc;

    for (size_t i = 0; i < n; i++) {
        bool row = false, ok = false;

        if ((rc = db_q(db, Q_JOB_TASK, &q, e)) != PAWL_OK)
            return rc;
        q_int(q, 1, s[i].job->id);
        if ((rc = db_row(db, q, &row, e)) != PAWL_OK)
            return rc;
        const int64_t task_id = row ? q_i64(q, 0) : s[i].task_id;
        q_reset(q);
        if ((rc = take(db, task_id, s[i].job, &ok, e)) != PAWL_OK)
            return rc;
        results[i] = ok ? SETTLE_OK : SETTLE_FENCED;
        rc = !ok ? db_count(db, "fenced", 1, e)
           : s[i].d.to == PAWL_STATE_DONE
               ? db_put_done(db, s[i].job, s[i].found, s[i].d.outcome == OUT_STALE, e)
               : db_place(db, &s[i], e);
        if (rc != PAWL_OK)
            return pawl_wrap(e, "verdict on job %lld", (long long)s[i].job->id);
    }
    return PAWL_OK;
}

static enum pawl_rc verdicts_outside(struct db *db, struct settle *s, size_t n,
                                     enum settle_result *results, struct pawl_error *e)
{
    enum pawl_rc rc;

    if ((rc = db_begin(db, e)) != PAWL_OK)
        return rc;
    if ((rc = verdicts_inside(db, s, n, results, e)) != PAWL_OK) {
        db_rollback(db);
        return rc;
    }
    if ((rc = db_commit(db, e)) != PAWL_OK)
        return rc;
    return fail_point("verdict.after") ? pawl_fail(e, PAWL_UNSURE, "failpoint verdict.after")
                                       : PAWL_OK;
}

/* In the transaction of their batch, where that is open: its jobs are ours until it commits, and
 * nobody runs them again before their verdicts are there. Who ends here ends behind the jobs, as in
 * the commit. */
static enum pawl_rc verdicts_with_batch(struct db *db, struct settle *s, size_t n,
                                        enum settle_result *results, struct pawl_error *e)
{
    enum pawl_rc rc;

    if (!db_effect_alive(&db->base))
        return gone(e);
    if ((rc = verdicts_inside(db, s, n, results, e)) != PAWL_OK)
        return rc;
    return fail_point("verdict.after") ? pawl_fail(e, PAWL_IO, "failpoint verdict.after") : PAWL_OK;
}

enum pawl_rc db_effect_verdicts(struct store *st, struct settle *s, size_t n, struct pawl_error *e)
{
    struct db *db = db_of(st);
    enum settle_result results[LIMIT_BATCH] = {0};
    enum pawl_rc rc;

    assert(db->in_tx == db->effect_open && !db->savepoint && n <= LIMIT_BATCH);
    if (n == 0)
        return PAWL_OK;
    if (db->effect_open)
        side_blame_commit(&db->side);
    else
        unmark(db); /* they have ended: whoever is lost now was not lost with them in hand */
    if (fail_point("verdict.before"))
        return pawl_fail(e, PAWL_IO, "failpoint verdict.before");
    rc = db->effect_open ? verdicts_with_batch(db, s, n, results, e)
                         : verdicts_outside(db, s, n, results, e);
    for (size_t i = 0; i < n && rc == PAWL_OK; i++)
        s[i].result = results[i];
    return rc;
}

void db_effect_end(struct store *st)
{
    struct db *db = db_of(st);

    if (db->in_tx)
        db_effect_rollback(st);
    db_leave(db);
    db_wake(db);
}

/* --- a plain transaction with the same guard --- */

enum pawl_rc db_scratch_begin(struct store *st, struct pawl_error *e)
{
    return db_begin(db_of(st), e);
}

enum pawl_rc db_scratch_end(struct store *st, bool commit, struct pawl_error *e)
{
    struct db *db = db_of(st);
    const bool alive = db_effect_alive(st);
    enum pawl_rc rc = PAWL_OK;

    if (alive && commit)
        rc = db_commit(db, e);
    else
        db_rollback(db);
    db_leave(db);
    if (!alive)
        return pawl_fail(e, PAWL_CONFIG, "the handler ended the transaction itself");
    return rc;
}
