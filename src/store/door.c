// SPDX-License-Identifier: Apache-2.0
/* door.c - the verbs of store.h that need no rule of their own: straight to the engine's table. */
#include <assert.h>
#include "store/ops.h"

void store_describe(struct store *st, struct buf *out)
{
    st->ops->describe(st, out);
}

enum pawl_rc store_jobs(struct store *st, const struct pawl_filter *f, pawl_job_fn *fn, void *ctx,
                        struct pawl_error *e)
{
    if (!store_is_ours(st))
        return store_not_ours(st, e);
    return st->ops->jobs(st, f, fn, ctx, e);
}

enum pawl_rc store_job(struct store *st, int64_t id, pawl_job_fn *fn, void *ctx,
                       struct pawl_error *e)
{
    if (!store_is_ours(st))
        return store_not_ours(st, e);
    return st->ops->job(st, id, fn, ctx, e);
}

enum pawl_rc store_attempts(struct store *st, int64_t id, pawl_attempt_fn *fn, void *ctx,
                            struct pawl_error *e)
{
    if (!store_is_ours(st))
        return store_not_ours(st, e);
    return st->ops->attempts(st, id, fn, ctx, e);
}

enum pawl_rc store_cancel(struct store *st, int64_t id, enum pawl_state *state,
                          struct pawl_error *e)
{
    if (!store_is_ours(st))
        return store_not_ours(st, e);
    return st->ops->cancel(st, id, state, e);
}

enum pawl_rc store_run_now(struct store *st, int64_t id, enum pawl_state *state,
                           struct pawl_error *e)
{
    if (!store_is_ours(st))
        return store_not_ours(st, e);
    return st->ops->run_now(st, id, state, e);
}

enum pawl_rc store_is_stale(struct store *st, int64_t id, bool *stale, struct pawl_error *e)
{
    if (!store_is_ours(st))
        return store_not_ours(st, e);
    return st->ops->is_stale(st, id, stale, e);
}

enum pawl_rc store_pause(struct store *st, const char *queue, const char *task, bool paused,
                         struct pawl_error *e)
{
    if (!store_is_ours(st))
        return store_not_ours(st, e);
    return st->ops->pause(st, queue, task, paused, e);
}

enum pawl_rc store_queues(struct store *st, pawl_queue_fn *fn, void *ctx, struct pawl_error *e)
{
    if (!store_is_ours(st))
        return store_not_ours(st, e);
    return st->ops->queues(st, fn, ctx, e);
}

enum pawl_rc store_queue_known(struct store *st, const char *queue, bool *known, char *near,
                               size_t near_n, struct pawl_error *e)
{
    if (!store_is_ours(st))
        return store_not_ours(st, e);
    return st->ops->queue_known(st, queue, known, near, near_n, e);
}

enum pawl_rc store_stats(struct store *st, pawl_stat_fn *fn, void *ctx, struct pawl_error *e)
{
    if (!store_is_ours(st))
        return store_not_ours(st, e);
    return st->ops->stats(st, fn, ctx, e);
}

enum pawl_rc store_check(struct store *st, pawl_finding_fn *fn, void *ctx, int *checked,
                         struct pawl_error *e)
{
    if (!store_is_ours(st))
        return store_not_ours(st, e);
    return st->ops->check(st, fn, ctx, checked, e);
}

enum pawl_rc store_doctor(struct store *st, int64_t old_us, pawl_advice_fn *fn, void *ctx,
                          int *looked, struct pawl_error *e)
{
    if (!store_is_ours(st))
        return store_not_ours(st, e);
    return st->ops->doctor(st, old_us, fn, ctx, looked, e);
}

enum pawl_rc store_task_declare(struct store *st, const char *name, const struct policy *p,
                                bool apply, int64_t *id, struct buf *stored, bool *differs,
                                struct pawl_error *e)
{
    if (!store_is_ours(st))
        return store_not_ours(st, e);
    return st->ops->task_declare(st, name, p, apply, id, stored, differs, e);
}

enum pawl_rc store_worker_join(struct store *st, char *id_out, int *fd_out, struct pawl_error *e)
{
    if (!store_is_ours(st))
        return store_not_ours(st, e);
    return st->ops->worker_join(st, id_out, fd_out, e);
}

enum pawl_rc store_worker_attach(struct store *st, const char *id, int fd, struct pawl_error *e)
{
    if (!store_is_ours(st))
        return store_not_ours(st, e);
    return st->ops->worker_attach(st, id, fd, e);
}

bool store_worker_beat(struct store *st)
{
    if (!store_is_ours(st))
        return false;
    return st->ops->worker_beat(st);
}

int64_t store_worker_stamp(struct store *st)
{
    if (!store_is_ours(st))
        return 0;
    return st->ops->worker_stamp(st);
}

void store_worker_orderly(struct store *st)
{
    if (!store_is_ours(st))
        return;
    st->ops->worker_orderly(st);
}

enum pawl_rc store_worker_leave(struct store *st, struct pawl_error *e)
{
    if (!store_is_ours(st))
        return store_not_ours(st, e);
    return st->ops->worker_leave(st, e);
}

enum pawl_rc store_turn(struct store *st, struct settle *s, size_t n, const struct lane *lane,
                        size_t want, bool alone, struct arena *arena, struct job *jobs,
                        size_t *jobs_n, struct claim_info *info, struct pawl_error *e)
{
    if (!store_is_ours(st))
        return store_not_ours(st, e);
    return st->ops->turn(st, s, n, lane, want, alone, arena, jobs, jobs_n, info, e);
}

bool store_sound(struct store *st)
{
    if (!store_is_ours(st))
        return false;
    return st->ops->sound(st);
}

enum pawl_rc store_resolve(struct store *st, struct settle *s, size_t n, const int64_t *held_ids,
                           size_t held_n, struct pawl_error *e)
{
    if (!store_is_ours(st))
        return store_not_ours(st, e);
    return st->ops->resolve(st, s, n, held_ids, held_n, e);
}

enum pawl_rc store_held(struct store *st, int64_t *ids, size_t room, size_t *n,
                        struct pawl_error *e)
{
    if (!store_is_ours(st))
        return store_not_ours(st, e);
    return st->ops->held(st, ids, room, n, e);
}

enum pawl_rc store_guard(struct store *st, const struct lane_task *t, const struct job *job,
                         enum guard *out, struct pawl_error *e)
{
    if (!store_is_ours(st))
        return store_not_ours(st, e);
    return st->ops->guard(st, t, job, out, e);
}

enum pawl_rc store_effect_begin(struct store *st, const struct lane *lane, size_t want,
                                struct arena *arena, struct job *jobs, size_t *n,
                                struct claim_info *info, struct pawl_error *e)
{
    if (!store_is_ours(st))
        return store_not_ours(st, e);
    return st->ops->effect_begin(st, lane, want, arena, jobs, n, info, e);
}

enum pawl_rc store_effect_job(struct store *st, size_t i, struct pawl_error *e)
{
    if (!store_is_ours(st))
        return store_not_ours(st, e);
    return st->ops->effect_job(st, i, e);
}

enum pawl_rc store_effect_done(struct store *st, const struct lane_task *t, const struct job *job,
                               const struct finding *f, struct pawl_error *e)
{
    if (!store_is_ours(st))
        return store_not_ours(st, e);
    return st->ops->effect_done(st, t, job, f, e);
}

enum pawl_rc store_effect_undo(struct store *st, struct pawl_error *e)
{
    if (!store_is_ours(st))
        return store_not_ours(st, e);
    return st->ops->effect_undo(st, e);
}

bool store_effect_alive(struct store *st)
{
    if (!store_is_ours(st))
        return false;
    return st->ops->effect_alive(st);
}

enum pawl_rc store_effect_commit(struct store *st, struct pawl_error *e)
{
    if (!store_is_ours(st))
        return store_not_ours(st, e);
    return st->ops->effect_commit(st, e);
}

void store_effect_rollback(struct store *st)
{
    if (!store_is_ours(st))
        return;
    st->ops->effect_rollback(st);
}

enum pawl_rc store_effect_verdicts(struct store *st, struct settle *s, size_t n,
                                   struct pawl_error *e)
{
    if (!store_is_ours(st))
        return store_not_ours(st, e);
    return st->ops->effect_verdicts(st, s, n, e);
}

void store_effect_end(struct store *st)
{
    if (!store_is_ours(st))
        return;
    st->ops->effect_end(st);
}

enum pawl_rc store_stmt_prepare(struct store *st, const char *text, struct store_stmt **out,
                                struct pawl_error *e)
{
    if (!store_is_ours(st))
        return store_not_ours(st, e);
    return st->ops->stmt_prepare(st, text, out, e);
}

enum pawl_rc store_stmt_run(struct store *st, struct store_stmt *s, const struct sql_value *v,
                            size_t n, struct buf *rows, size_t rows_max, int64_t *changed,
                            struct pawl_error *e)
{
    if (!store_is_ours(st))
        return store_not_ours(st, e);
    return st->ops->stmt_run(st, s, v, n, rows, rows_max, changed, e);
}

void store_deadline(struct store *st, int64_t mono_us, const volatile int *stop)
{
    st->ops->deadline(st, mono_us, stop);
}

enum pawl_rc store_scratch_begin(struct store *st, struct pawl_error *e)
{
    if (!store_is_ours(st))
        return store_not_ours(st, e);
    return st->ops->scratch_begin(st, e);
}

enum pawl_rc store_scratch_end(struct store *st, bool commit, struct pawl_error *e)
{
    if (!store_is_ours(st))
        return store_not_ours(st, e);
    return st->ops->scratch_end(st, commit, e);
}

enum pawl_rc store_reap(struct store *st, casualty_fn *decide, void *ctx, struct reap_report *out,
                        struct pawl_error *e)
{
    if (!store_is_ours(st))
        return store_not_ours(st, e);
    return st->ops->reap(st, decide, ctx, out, e);
}

enum pawl_rc store_reap_runner(struct store *st, int end, enum outcome how,
                               casualty_fn *decide, void *ctx,
                               struct reap_report *out, struct pawl_error *e)
{
    if (!store_is_ours(st))
        return store_not_ours(st, e);
    return st->ops->reap_runner(st, end, how, decide, ctx, out, e);
}

int store_wake_fd(struct store *st)
{
    if (!store_is_ours(st))
        return -1;
    return st->ops->wake_fd(st);
}

void store_wake_clear(struct store *st)
{
    if (!store_is_ours(st))
        return;
    st->ops->wake_clear(st);
}

bool store_changed(struct store *st)
{
    if (!store_is_ours(st))
        return true;
    return st->ops->changed(st);
}

void store_poke(struct store *st)
{
    if (!store_is_ours(st))
        return;
    st->ops->poke(st);
}

enum pawl_rc store_pending(struct store *st, const struct lane *lane, struct pending *out,
                           struct pawl_error *e)
{
    if (!store_is_ours(st))
        return store_not_ours(st, e);
    return st->ops->pending(st, lane, out, e);
}

void store_patience(struct store *st, int64_t wait_us)
{
    if (!store_is_ours(st))
        return;
    st->ops->patience(st, wait_us);
}

int64_t store_in_hand(struct store *st, const char *crew, int64_t *since_us)
{
    if (!store_is_ours(st))
        return 0;
    return st->ops->in_hand(st, crew, since_us);
}

enum pawl_rc store_maintain(struct store *st, struct pawl_error *e)
{
    if (!store_is_ours(st))
        return store_not_ours(st, e);
    return st->ops->maintain(st, e);
}

void store_stmt_free(struct store_stmt **s)
{
    if (s != NULL && *s != NULL)
        ((struct stmt_head *)(void *)*s)->free(s);
}

enum pawl_rc store_reap_crew(struct store *st, const char *id, int end, enum outcome how,
                             casualty_fn *decide, void *ctx, struct reap_report *out,
                             struct pawl_error *e)
{
    if (!store_is_ours(st))
        return store_not_ours(st, e);
    assert(how == OUT_LOST || how == OUT_TIMEOUT || how == OUT_RELEASED);
    return st->ops->reap_crew(st, id, end, how, decide, ctx, out, e);
}

enum pawl_rc store_crew_join(struct store *st, char *id_out, int *fd, struct pawl_error *e)
{
    if (!store_is_ours(st))
        return store_not_ours(st, e);
    return st->ops->crew_join(st, id_out, fd, e);
}

enum pawl_rc store_crew_attach(struct store *st, const char *id, int fd, struct pawl_error *e)
{
    if (!store_is_ours(st))
        return store_not_ours(st, e);
    return st->ops->crew_attach(st, id, fd, e);
}

void store_crew_beat(struct store *st)
{
    if (!store_is_ours(st))
        return;
    st->ops->crew_beat(st);
}

void store_crew_leave(struct store *st, const char *id)
{
    if (!store_is_ours(st))
        return;
    st->ops->crew_leave(st, id);
}

void store_blame_list(struct store *st, const struct job *jobs, size_t n)
{
    if (!store_is_ours(st))
        return;
    assert(n <= LIMIT_BATCH);
    st->ops->blame_list(st, jobs, n);
}

void store_blame_hand(struct store *st, size_t i)
{
    if (!store_is_ours(st))
        return;
    st->ops->blame_hand(st, i);
}

void store_blame_clear(struct store *st)
{
    if (!store_is_ours(st))
        return;
    st->ops->blame_clear(st);
}

enum pawl_rc store_holds(struct store *st, const struct job *job, bool *yes, struct pawl_error *e)
{
    if (!store_is_ours(st))
        return store_not_ours(st, e);
    return st->ops->holds(st, job, yes, e);
}

enum pawl_rc store_effect_resume(struct store *st, const struct lane *lane, struct job *jobs,
                                 size_t n, struct pawl_error *e)
{
    if (!store_is_ours(st))
        return store_not_ours(st, e);
    assert(n >= 1 && n <= LIMIT_BATCH);
    return st->ops->effect_resume(st, lane, jobs, n, e);
}

enum pawl_rc store_effect_lease(struct store *st, const struct lane *lane, size_t want, bool alone,
                                struct arena *arena, struct job *jobs, size_t *n,
                                struct claim_info *info, struct pawl_error *e)
{
    if (!store_is_ours(st))
        return store_not_ours(st, e);
    assert(want <= LIMIT_CONCURRENCY);
    return st->ops->effect_lease(st, lane, want, alone, arena, jobs, n, info, e);
}

enum pawl_rc store_stmt_query(struct store *st, struct store_stmt *s, const struct sql_value *v,
                              size_t n, store_row_fn *fn, void *ctx, struct pawl_error *e)
{
    if (!store_is_ours(st))
        return store_not_ours(st, e);
    return st->ops->stmt_query(st, s, v, n, fn, ctx, e);
}

void *store_raw(struct store *st, bool on)
{
    if (!store_is_ours(st))
        return NULL;
    return st->ops->raw(st, on);
}

bool store_intact(struct store *st)
{
    return store_is_ours(st) && st->ops->intact(st);
}

const char *store_raw_refused(struct store *st)
{
    if (!store_is_ours(st))
        return NULL;
    return st->ops->raw_refused(st);
}

bool store_stmt_has(struct store *st, const struct store_stmt *s, const char *name)
{
    if (!store_is_ours(st))
        return false;
    return st->ops->stmt_has(st, s, name);
}

bool store_call_over(struct store *st)
{
    return st->ops->call_over(st);
}
