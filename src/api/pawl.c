// SPDX-License-Identifier: Apache-2.0
/* pawl.c - the public calls for producers and people, on top of the store's verbs.
 *
 * Holds: checks of what a caller may get wrong (NULL, ranges); everything else is the store's.
 * Keeps: *e is always filled when the result is not OK, even if the caller passed none.
 * Never: prints, exits, keeps state outside the handle, decides anything about a job.
 */
#include "api/api.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

void pawl_engine(char *buf, size_t n)
{
    if (buf != NULL && n > 0)
        store_engine(buf, n);
}

static enum pawl_rc need_id(const struct pawl *p, int64_t id, struct pawl_error *e)
{
    enum pawl_rc rc = api_need_handle(p, e);
    if (rc != PAWL_OK) return rc;
    if (id <= 0) return pawl_fail(e, PAWL_BADARG, "job id %" PRId64 ": ids begin at 1", id);
    return PAWL_OK;
}

static enum pawl_rc need_id_to_write(const struct pawl *p, int64_t id, struct pawl_error *e)
{
    enum pawl_rc rc = need_id(p, id, e);

    return rc == PAWL_OK ? api_need_no_apply(&p->place, e) : rc;
}

void pawl_free(void *p)
{
    free(p);
}

enum pawl_rc pawl_init(const char *url, bool *created, struct pawl_error *e)
{
    WITH_ERROR(e);
    enum pawl_rc rc = api_need(url && *url, e, "the store's url is empty");
    if (rc != PAWL_OK) return rc;
    const struct store_opts o = {.url = url};
    return store_init(&o, created, e);
}

enum pawl_rc pawl_enqueue(struct pawl *p, const struct pawl_request *req, size_t n,
                          struct pawl_enqueued *out, size_t *bad_i, struct pawl_error *e)
{
    WITH_ERROR(e);
    if (bad_i) *bad_i = n;
    enum pawl_rc rc = api_need_writer(p, e);
    if (rc != PAWL_OK) return rc;
    if (n == 0) return PAWL_OK;
    rc = api_need(req && out, e, "requests, or room for answers, is NULL");
    if (rc != PAWL_OK) return rc;
    if (n > LIMIT_ENQUEUE_N)
        return pawl_fail(e, PAWL_TOOBIG, "%zu requests in one call: at most %d", n,
                         LIMIT_ENQUEUE_N);
    for (size_t i = 0; i < n; i++) {
        if (req[i].task) continue;
        if (bad_i) *bad_i = i;
        return pawl_fail(e, PAWL_BADARG, "task is missing");
    }
    memset(out, 0, n * sizeof *out);
    api_enter(&p->log);
    return api_leave(&p->log, store_enqueue(p->st, req, n, out, bad_i, e));
}

static enum pawl_rc filter_check(const struct pawl_filter *f, struct pawl_error *e)
{
    if (f->state < 0 || f->state > PAWL_STATE_N)
        return pawl_fail(e, PAWL_BADARG, "filter state %d: 0, or a state + 1", f->state);
    if (f->limit < 0 || f->after_id < 0)
        return pawl_fail(e, PAWL_BADARG, "filter limit and after_id must not be negative");
    return PAWL_OK;
}

enum pawl_rc pawl_jobs(struct pawl *p, const struct pawl_filter *f, pawl_job_fn *fn, void *ctx,
                       struct pawl_error *e)
{
    WITH_ERROR(e);
    static const struct pawl_filter all;
    enum pawl_rc rc = api_need_handle(p, e);
    if (rc != PAWL_OK) return rc;
    if ((rc = api_need(fn != NULL, e, "the callback is NULL")) != PAWL_OK) return rc;
    if (f && (rc = filter_check(f, e)) != PAWL_OK) return rc;
    api_enter(&p->log);
    return api_leave(&p->log, store_jobs(p->st, f ? f : &all, fn, ctx, e));
}

enum pawl_rc pawl_job_get(struct pawl *p, int64_t id, pawl_job_fn *fn, void *ctx,
                          struct pawl_error *e)
{
    WITH_ERROR(e);
    enum pawl_rc rc = need_id(p, id, e);
    if (rc != PAWL_OK) return rc;
    if ((rc = api_need(fn != NULL, e, "the callback is NULL")) != PAWL_OK) return rc;
    api_enter(&p->log);
    return api_leave(&p->log, store_job(p->st, id, fn, ctx, e));
}

enum pawl_rc pawl_attempts(struct pawl *p, int64_t id, pawl_attempt_fn *fn, void *ctx,
                           struct pawl_error *e)
{
    WITH_ERROR(e);
    enum pawl_rc rc = need_id(p, id, e);
    if (rc != PAWL_OK) return rc;
    if ((rc = api_need(fn != NULL, e, "the callback is NULL")) != PAWL_OK) return rc;
    api_enter(&p->log);
    return api_leave(&p->log, store_attempts(p->st, id, fn, ctx, e));
}

enum pawl_rc pawl_cancel(struct pawl *p, int64_t id, enum pawl_state *state, struct pawl_error *e)
{
    WITH_ERROR(e);
    enum pawl_state unused = PAWL_STATE_N;
    enum pawl_rc rc = need_id_to_write(p, id, e);
    if (rc != PAWL_OK) return rc;
    api_enter(&p->log);
    return api_leave(&p->log, store_cancel(p->st, id, state ? state : &unused, e));
}

enum pawl_rc pawl_run_now(struct pawl *p, int64_t id, enum pawl_state *state, struct pawl_error *e)
{
    WITH_ERROR(e);
    enum pawl_state unused = PAWL_STATE_N;
    enum pawl_rc rc = need_id_to_write(p, id, e);
    if (rc != PAWL_OK) return rc;
    api_enter(&p->log);
    return api_leave(&p->log, store_run_now(p->st, id, state ? state : &unused, e));
}

enum pawl_rc pawl_dead_replay(struct pawl *p, int64_t id, const struct pawl_replay *how,
                              int64_t *new_id, struct pawl_error *e)
{
    WITH_ERROR(e);
    static const struct pawl_replay as_it_is;
    int64_t unused = 0;
    if (new_id) *new_id = 0;
    enum pawl_rc rc = need_id_to_write(p, id, e);
    if (rc != PAWL_OK) return rc;
    if (how && how->again_reason && !*how->again_reason)
        return pawl_fail(e, PAWL_BADARG, "a second replay needs a reason");
    api_enter(&p->log);
    return api_leave(&p->log, store_replay(p->st, id, how ? how : &as_it_is,
                                           new_id ? new_id : &unused, e));
}

enum pawl_rc pawl_dead_is_stale(struct pawl *p, int64_t id, bool *stale, struct pawl_error *e)
{
    WITH_ERROR(e);
    enum pawl_rc rc = need_id(p, id, e);
    if (rc != PAWL_OK) return rc;
    if ((rc = api_need(stale != NULL, e, "stale is NULL")) != PAWL_OK) return rc;
    *stale = false;
    api_enter(&p->log);
    return api_leave(&p->log, store_is_stale(p->st, id, stale, e));
}

enum pawl_rc pawl_dead_discard(struct pawl *p, int64_t id, const char *reason, struct pawl_error *e)
{
    WITH_ERROR(e);
    enum pawl_rc rc = need_id_to_write(p, id, e);
    if (rc != PAWL_OK) return rc;
    if ((rc = api_need(reason && *reason, e, "a discard needs a reason")) != PAWL_OK) return rc;
    api_enter(&p->log);
    return api_leave(&p->log, store_discard(p->st, id, reason, e));
}

enum pawl_rc pawl_pause(struct pawl *p, const char *queue, const char *task, bool paused,
                        struct pawl_error *e)
{
    WITH_ERROR(e);
    enum pawl_rc rc = api_need_writer(p, e);
    if (rc != PAWL_OK) return rc;
    rc = api_need(!queue != !task, e, "give a queue or a task, not both");
    if (rc != PAWL_OK) return rc;
    api_enter(&p->log);
    return api_leave(&p->log, store_pause(p->st, queue, task, paused, e));
}

enum pawl_rc pawl_queues(struct pawl *p, pawl_queue_fn *fn, void *ctx, struct pawl_error *e)
{
    WITH_ERROR(e);
    enum pawl_rc rc = api_need_handle(p, e);
    if (rc != PAWL_OK) return rc;
    if ((rc = api_need(fn != NULL, e, "the callback is NULL")) != PAWL_OK) return rc;
    api_enter(&p->log);
    return api_leave(&p->log, store_queues(p->st, fn, ctx, e));
}

enum pawl_rc pawl_stats(struct pawl *p, pawl_stat_fn *fn, void *ctx, struct pawl_error *e)
{
    WITH_ERROR(e);
    enum pawl_rc rc = api_need_handle(p, e);
    if (rc != PAWL_OK) return rc;
    if ((rc = api_need(fn != NULL, e, "the callback is NULL")) != PAWL_OK) return rc;
    api_enter(&p->log);
    return api_leave(&p->log, store_stats(p->st, fn, ctx, e));
}

enum pawl_rc pawl_check(struct pawl *p, pawl_finding_fn *fn, void *ctx, int *checked,
                        struct pawl_error *e)
{
    WITH_ERROR(e);
    int unused = 0;
    enum pawl_rc rc = api_need_handle(p, e);
    if (rc != PAWL_OK) return rc;
    if ((rc = api_need(fn != NULL, e, "the callback is NULL")) != PAWL_OK) return rc;
    api_enter(&p->log);
    return api_leave(&p->log, store_check(p->st, fn, ctx, checked ? checked : &unused, e));
}

enum pawl_rc pawl_doctor(struct pawl *p, int64_t old_us, pawl_advice_fn *fn, void *ctx, int *looked,
                         struct pawl_error *e)
{
    WITH_ERROR(e);
    int unused = 0;
    enum pawl_rc rc = api_need_handle(p, e);
    if (rc != PAWL_OK) return rc;
    if ((rc = api_need(fn != NULL, e, "the callback is NULL")) != PAWL_OK) return rc;
    if (old_us < 0) return pawl_fail(e, PAWL_BADARG, "old_us must not be negative");
    api_enter(&p->log);
    return api_leave(&p->log, store_doctor(p->st, old_us, fn, ctx, looked ? looked : &unused, e));
}

enum pawl_rc pawl_prune(struct pawl *p, const struct pawl_prune_opts *how, struct pawl_pruned *out,
                        struct pawl_error *e)
{
    WITH_ERROR(e);
    static const struct pawl_prune_opts defaults;
    struct pawl_pruned unused;
    enum pawl_rc rc = api_need_writer(p, e);
    if (rc != PAWL_OK) return rc;
    if (how && how->batch < 0) return pawl_fail(e, PAWL_BADARG, "batch must not be negative");
    if (!out) out = &unused;
    memset(out, 0, sizeof *out);
    api_enter(&p->log);
    return api_leave(&p->log, store_prune(p->st, how ? how : &defaults, out, e));
}
