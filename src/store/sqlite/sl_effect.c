// SPDX-License-Identifier: Apache-2.0
/* sl_effect.c - effect mode: the open transaction is the lease.
 *
 * Keeps: nothing is written before the first job's work; the fence of a job is the deletion of its
 *        ready row with the runs it was read with; the blame record names the job in hand before
 *        its
 *        work starts, and `commit` before the COMMIT.
 */
#include <assert.h>
#include <string.h>
#include "base/err.h"
#include "base/fail.h"
#include "base/log.h"
#include "store/sqlite/sl.h"

/* How many jobs fit before it is a foreign writer's turn. A batch whose work takes less than its
 * commit is not worth it: rather be late. */
static size_t fit(const struct sqlite *sl, size_t want)
{
    const int64_t room = side_turn_us(&sl->side);

    if (room == INT64_MAX || sl->job_ns <= 0)
        return want;
    const int64_t work_us = room > 2 * sl->commit_us ? room - sl->commit_us : sl->commit_us;
    const int64_t n = work_us * 1000 / sl->job_ns;

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

static bool may_be_plain(struct sqlite *sl, const struct job *jobs, size_t n)
{
    if (sl->smooth_min == 0)
        sl->smooth_min = SMOOTH_FIRST;
    return n > 1 && sl->smooth >= sl->smooth_min && !jobs[0].suspect;
}

/* A job of a plain batch had to be undone: expect more of them. */
static void not_smooth(struct sqlite *sl)
{
    sl->smooth = 0;
    sl->smooth_min = sl->smooth_min < SMOOTH_MIN ? SMOOTH_MIN
                   : sl->smooth_min < SMOOTH_MAX ? sl->smooth_min * 4 : SMOOTH_MAX;
}

bool sl_effect_alive(struct store *st)
{
    struct sqlite *sl = sl_of(st);

    return sl->db != NULL && sl->in_tx && sqlite3_get_autocommit(sl->db) == 0;
}

static enum pawl_rc gone(struct pawl_error *e)
{
    return pawl_fail(e, PAWL_BUG, "the effect transaction is gone: the handler ended it");
}

/* The transaction is open and its jobs are known: write down who they are. */
static enum pawl_rc batch_opened(struct sqlite *sl, enum blame_kind kind, struct job *jobs,
                                 size_t n,
                                 struct pawl_error *e)
{
    side_blame_clear(&sl->side);
    side_blame_batch(&sl->side, kind, sl->env->random(sl->env->ctx), n == 1 && jobs[0].suspect);
    for (size_t i = 0; i < n; i++)
        side_blame_job(&sl->side, (uint32_t)i, jobs[i].id, jobs[i].n.runs);
    sl->batch = jobs;
    sl->batch_n = n;
    sl->effect_open = true;
    sl->leased_batch = kind == BLAME_APPLY;
    sl->savepoint = false;
    sl->plain = may_be_plain(sl, jobs, n);
    sl->plain_saved = false;
    if (fail_point("batch.claimed")) {
        sl_effect_rollback(&sl->base);
        return pawl_fail(e, PAWL_IO, "failpoint batch.claimed");
    }
    return PAWL_OK;
}

/* The fence: who takes the row has decided the job. */
static enum pawl_rc take(struct sqlite *sl, int64_t task_id, const struct job *job, bool *ok,
                         struct pawl_error *e)
{
    return sl->leased_batch ? sl_fence(sl, job, ok, e) : sl_take_ready(sl, task_id, job, ok, e);
}

enum pawl_rc sl_effect_begin(struct store *st, const struct lane *lane, size_t want,
                             struct arena *arena, struct job *jobs, size_t *n,
                             struct claim_info *info, struct pawl_error *e)
{
    struct sqlite *sl = sl_of(st);
    enum pawl_rc rc;

    assert(!sl->effect_open && want <= LIMIT_BATCH);
    *n = 0;
    sl->side.long_turn = true;
    rc = sl_begin(sl, e);
    sl->side.long_turn = false;
    if (rc != PAWL_OK)
        return rc;
    rc = sl_choose(sl, lane, fit(sl, want), true, arena, jobs, n, info, e);
    if (rc != PAWL_OK || *n == 0) {
        sl_rollback(sl);
        sl_leave(sl);
        *n = 0;
        return rc;
    }
    env_bytes(sl->env, sl->batch_lease, sizeof sl->batch_lease); /* one: it is one transaction */
    for (size_t i = 0; i < *n; i++)
        memcpy(jobs[i].lease_id, sl->batch_lease, sizeof jobs[i].lease_id);
    return batch_opened(sl, BLAME_EFFECT, jobs, *n, e);
}

enum pawl_rc sl_effect_resume(struct store *st, const struct lane *lane, struct job *jobs, size_t n,
                              struct pawl_error *e)
{
    struct sqlite *sl = sl_of(st);
    enum pawl_rc rc;

    (void)lane;
    assert(!sl->effect_open);
    sl->side.long_turn = true;
    rc = sl_begin(sl, e);
    sl->side.long_turn = false;
    return rc == PAWL_OK ? batch_opened(sl, BLAME_APPLY, jobs, n, e) : rc;
}

/* What ends and what comes next share the commit. */
enum pawl_rc sl_effect_lease(struct store *st, const struct lane *lane, size_t want, bool alone,
                             struct arena *arena, struct job *jobs, size_t *n,
                             struct claim_info *info, struct pawl_error *e)
{
    struct sqlite *sl = sl_of(st);

    assert(sl->effect_open && sl->leased_batch && !sl->savepoint);
    *n = 0;
    if (!sl_effect_alive(st))
        return gone(e);
    return sl_lease(sl, lane, want, alone, arena, jobs, n, info, e);
}

/* RELEASE or ROLLBACK TO of the job's savepoint. That it is not there is the handler's doing, not
 * the store's: it released it, or ended the transaction and began another one. */
static enum pawl_rc savepoint(struct sqlite *sl, enum slq id, struct pawl_error *e)
{
    sqlite3_stmt *q = NULL;
    enum pawl_rc rc = sl_q(sl, id, &q, e);

    if (rc != PAWL_OK || (rc = sl_run(sl, q, e)) == PAWL_OK)
        return rc;
    return (sqlite3_errcode(sl->db) & 0xff) == SQLITE_ERROR ? gone(e) : rc;
}

enum pawl_rc sl_effect_job(struct store *st, size_t i, struct pawl_error *e)
{
    struct sqlite *sl = sl_of(st);
    sqlite3_stmt *q = NULL;
    enum pawl_rc rc;

    assert(sl->effect_open && !sl->savepoint && i < sl->batch_n);
    sl->hand = i;
    side_blame_hand(&sl->side, (uint32_t)i);
    if (!sl_effect_alive(st))
        return gone(e);
    if (!sl->plain_saved &&
        ((rc = sl_q(sl, SLQ_SAVE, &q, e)) != PAWL_OK || (rc = sl_run(sl, q, e)) != PAWL_OK))
        return rc;
    sl->savepoint = true;
    sl->plain_saved = sl->plain;
    sl->wrote_before = sqlite3_total_changes64(sl->db);
    sl->wrote_unseen = false;
    if (fail_point("effect.job"))
        return pawl_fail(e, PAWL_IO, "failpoint effect.job");
    return PAWL_OK;
}

enum pawl_rc sl_effect_done(struct store *st, const struct lane_task *t, const struct job *job,
                            const struct finding *f, struct pawl_error *e)
{
    struct sqlite *sl = sl_of(st);
    bool stale = f->outcome == OUT_STALE, ok = false;
    enum pawl_rc rc;

    assert(sl->savepoint);
    if (!sl_effect_alive(st))
        return gone(e);
    if (!stale) {
        if ((rc = sl_advance(sl, t->id, job, &ok, e)) != PAWL_OK)
            return rc;
        if (!ok) /* an earlier job of this very batch was newer, or the guard would have said so */
            return pawl_fail(e, PAWL_FENCED, "job %lld: its version is no longer the newest",
                             (long long)job->id);
    }
    if ((rc = take(sl, t->id, job, &ok, e)) != PAWL_OK)
        return rc;
    if (!ok)
        return pawl_fail(e, PAWL_FENCED, "job %lld was decided by somebody else",
                         (long long)job->id);
    if ((rc = sl_put_done(sl, job, f, stale, e)) != PAWL_OK)
        return rc;
    if (!sl->plain && (rc = savepoint(sl, SLQ_SAVE_KEEP, e)) != PAWL_OK)
        return rc;
    sl->savepoint = false;
    sl->smooth++;
    if (fail_point("effect.done"))
        return pawl_fail(e, PAWL_IO, "failpoint effect.done");
    return PAWL_OK;
}

enum pawl_rc sl_effect_undo(struct store *st, struct pawl_error *e)
{
    struct sqlite *sl = sl_of(st);
    enum pawl_rc rc;

    if (!sl_effect_alive(st))
        return gone(e);
    assert(sl->savepoint);
    const bool wrote = sl->wrote_unseen || sqlite3_total_changes64(sl->db) != sl->wrote_before;
    if (wrote)
        sl->smooth = 0;
    if (sl->plain && wrote) {
        not_smooth(sl);
        return pawl_fail(e, PAWL_BUSY, "the batch has no savepoints: it runs again with them");
    }
    if (!sl->plain && ((rc = savepoint(sl, SLQ_SAVE_BACK, e)) != PAWL_OK ||
                       (rc = savepoint(sl, SLQ_SAVE_KEEP, e)) != PAWL_OK))
        return rc;
    sl->savepoint = false;
    return PAWL_OK;
}

enum pawl_rc sl_effect_commit(struct store *st, struct pawl_error *e)
{
    struct sqlite *sl = sl_of(st);
    enum pawl_rc rc;

    assert(sl->effect_open && !sl->savepoint);
    if (!sl_effect_alive(st)) {
        sl_rollback(sl);
        side_blame_clear(&sl->side);
        return gone(e);
    }
    if (sl->plain_saved && (rc = savepoint(sl, SLQ_SAVE_KEEP, e)) != PAWL_OK) {
        sl_effect_rollback(st);
        return rc;
    }
    side_blame_commit(&sl->side);
    if (fail_point("effect.commit.before")) {
        sl_effect_rollback(st);
        return pawl_fail(e, PAWL_IO, "failpoint effect.commit.before");
    }
    const int64_t before_us = st->env->mono_us(st->env->ctx);
    rc = sl_commit(sl, e);
    if (rc == PAWL_OK) {
        sl->commit_us = learn(sl->commit_us, st->env->mono_us(st->env->ctx) - before_us);
        sl->job_ns = learn(sl->job_ns, (before_us - sl->begun_us) * 1000 / (int64_t)(sl->hand + 1));
    }
    if (rc == PAWL_OK && fail_point("effect.commit.after"))
        rc = pawl_fail(e, PAWL_UNSURE, "failpoint effect.commit.after");
    side_blame_clear(&sl->side);
    sl->effect_open = false;
    return rc;
}

/* The side lock stays: the caller reruns, writes verdicts, or ends the batch. */
void sl_effect_rollback(struct store *st)
{
    struct sqlite *sl = sl_of(st);

    sl_rollback(sl);
    side_blame_clear(&sl->side);
    sl->effect_open = sl->savepoint = false;
}

static enum pawl_rc verdicts_inside(struct sqlite *sl, struct settle *s, size_t n,
                                    enum settle_result *results, struct pawl_error *e)
{
    sqlite3_stmt *q = NULL;
    enum pawl_rc rc;

    for (size_t i = 0; i < n; i++) {
        bool row = false, ok = false;

        if ((rc = sl_q(sl, SLQ_JOB_TASK, &q, e)) != PAWL_OK)
            return rc;
        sqlite3_bind_int64(q, 1, s[i].job->id);
        if ((rc = sl_row(sl, q, &row, e)) != PAWL_OK)
            return rc;
        const int64_t task_id = row ? sqlite3_column_int64(q, 0) : s[i].task_id;
        sqlite3_reset(q);
        if ((rc = take(sl, task_id, s[i].job, &ok, e)) != PAWL_OK)
            return rc;
        results[i] = ok ? SETTLE_OK : SETTLE_FENCED;
        rc = !ok ? sl_count(sl, "fenced", 1, e)
           : s[i].d.to == PAWL_STATE_DONE
               ? sl_put_done(sl, s[i].job, s[i].found, s[i].d.outcome == OUT_STALE, e)
               : sl_place(sl, &s[i], e);
        if (rc != PAWL_OK)
            return pawl_wrap(e, "verdict on job %lld", (long long)s[i].job->id);
    }
    return PAWL_OK;
}

enum pawl_rc sl_effect_verdicts(struct store *st, struct settle *s, size_t n, struct pawl_error *e)
{
    struct sqlite *sl = sl_of(st);
    enum settle_result results[LIMIT_BATCH] = {0};
    enum pawl_rc rc;

    assert(!sl->in_tx && n <= LIMIT_BATCH);
    if (n == 0)
        return PAWL_OK;
    if (fail_point("verdict.before"))
        return pawl_fail(e, PAWL_IO, "failpoint verdict.before");
    if ((rc = sl_begin(sl, e)) != PAWL_OK)
        return rc;
    if ((rc = verdicts_inside(sl, s, n, results, e)) != PAWL_OK) {
        sl_rollback(sl);
        return rc;
    }
    if ((rc = sl_commit(sl, e)) != PAWL_OK)
        return rc;
    for (size_t i = 0; i < n; i++)
        s[i].result = results[i];
    if (fail_point("verdict.after"))
        return pawl_fail(e, PAWL_UNSURE, "failpoint verdict.after");
    return PAWL_OK;
}

void sl_effect_end(struct store *st)
{
    struct sqlite *sl = sl_of(st);

    if (sl->in_tx)
        sl_effect_rollback(st);
    sl_leave(sl);
    side_wake(&sl->side);
}

/* --- a plain transaction with the same guard --- */

enum pawl_rc sl_scratch_begin(struct store *st, struct pawl_error *e)
{
    return sl_begin(sl_of(st), e);
}

enum pawl_rc sl_scratch_end(struct store *st, bool commit, struct pawl_error *e)
{
    struct sqlite *sl = sl_of(st);
    const bool alive = sl_effect_alive(st);
    enum pawl_rc rc = PAWL_OK;

    if (alive && commit)
        rc = sl_commit(sl, e);
    else
        sl_rollback(sl);
    sl_leave(sl);
    if (!alive)
        return pawl_fail(e, PAWL_CONFIG, "the handler ended the transaction itself");
    return rc;
}
