// SPDX-License-Identifier: Apache-2.0
/* worker_step.c - a worker's work: a step of its lanes, and what is due beside it.
 *
 * Keeps: an idle step reads one number of the store (did anybody commit?) and looks for jobs only
 *        when somebody did, or something became due; the lanes take turns.
 * Never: waits, except for the store's lock.
 */
#include "api/worker.h"

#include <assert.h>
#include <string.h>

enum {
    NET_US = 100 * 1000,           /* look for commits of others at least this often */
    LOOK_ANYWAY_US = 5000 * 1000,  /* should a clock have been set */
    REAP_US = 2000 * 1000,
    UPKEEP_US = 1000 * 1000,
    UPKEEP_IDLE_US = 30 * 1000 * 1000,
    LOG_EVERY_US = 30 * 1000 * 1000,
};

/* --- what the engine calls --- */

/* pawl_worker_stop may come from anywhere; between jobs it becomes what the engine looks at. */
static void see_stop(struct pawl_worker *w)
{
    if (worker_asked(w)) w->halt = 1;
}

void worker_effect_fn(void *ctx, struct store *st, const struct lane_task *t,
                      const struct job *job, struct arena *arena, struct finding *f, bool *pinned)
{
    struct pawl_worker *w = ctx;

    (void)st;
    w->inside = true;
    api_apply_begin(&w->apply);
    c_apply(w->host, &w->effect.c[t - w->effect.tasks], t, job, NULL, arena, f, pinned);
    api_apply_end(&w->apply);
    w->inside = false;
    see_stop(w);
}

static void call_prepare(void *ctx, struct store *st, const struct lane_task *t,
                         const struct job *job, void **plan, struct arena *arena,
                         struct finding *f)
{
    struct pawl_worker *w = ctx;

    (void)st;
    api_log_flush(&w->log); /* no lock is held, and prepare may be slow, or our end */
    w->inside = true;
    c_prepare(w->host, &w->prepared.c[t - w->prepared.tasks], t, job, plan, arena, f);
    w->inside = false;
    api_log_flush(&w->log);
    see_stop(w);
}

static void call_apply(void *ctx, struct store *st, const struct lane_task *t,
                       const struct job *job, void *plan, struct arena *arena, struct finding *f,
                       bool *pinned)
{
    struct pawl_worker *w = ctx;

    (void)st;
    w->inside = true;
    api_apply_begin(&w->apply);
    c_apply(w->host, &w->prepared.c[t - w->prepared.tasks], t, job, plan, arena, f, pinned);
    api_apply_end(&w->apply);
    w->inside = false;
    see_stop(w);
}

static void call_drop(void *ctx, const struct lane_task *t, const struct job *job, void *plan)
{
    struct pawl_worker *w = ctx;

    w->inside = true;
    c_drop(w->host, &w->prepared.c[t - w->prepared.tasks], t, job, plan);
    w->inside = false;
}

const struct prepared_calls worker_prepared_calls = {call_prepare, call_apply, call_drop};

bool worker_beat(void *ctx)
{
    struct pawl_worker *w = ctx;

    api_log_flush(&w->log);
    w->beat_at_us = worker_mono(w) + w->lease_us / 3;
    return store_worker_beat(w->st);
}

/* --- what is due beside the work --- */

static void reap(struct pawl_worker *w, int64_t now_us)
{
    struct reap_report rep = {0};
    struct pawl_error e;
    const int64_t jobs_before = w->stat.recovered;

    if (now_us < w->reap_at_us) return;
    w->reap_at_us = now_us + (w->lease_us < REAP_US ? w->lease_us : REAP_US);
    if (engine_reap(w->st, w->env, &rep, &e) != PAWL_OK || rep.workers == 0) return;
    w->look = w->active = true;
    w->stat.recovered += (int64_t)(rep.charged + rep.suspects);
    log_line(LOG_WARN, "worker.gone", "s:worker", w->id, "i:workers", (int64_t)rep.workers,
             "i:jobs", w->stat.recovered - jobs_before, "s:why",
             "another worker died or froze: what it held was taken over", NULL);
}

static void upkeep(struct pawl_worker *w, int64_t now_us)
{
    struct pawl_error e;

    if (now_us < w->upkeep_at_us + (w->active ? 0 : UPKEEP_IDLE_US)) return;
    w->upkeep_at_us = now_us + UPKEEP_US;
    w->active = false;
    if (store_maintain(w->st, &e) != PAWL_OK && log_gate(&w->gate, LOG_EVERY_US))
        log_line(LOG_WARN, "store.upkeep", "s:worker", w->id, "s:rc", pawl_rc_name(e.rc), "s:why",
                 e.msg, "i:more", w->gate.swallowed, NULL);
}

static enum pawl_rc timers(struct pawl_worker *w, struct pawl_error *e)
{
    const int64_t now_us = worker_mono(w);

    if (now_us >= w->beat_at_us && !worker_beat(w))
        return pawl_fail(e, PAWL_NOSTORE, "the store's side directory was removed while this worker"
                         " ran: others will take its jobs over; close it and open a new one");
    reap(w, now_us);
    upkeep(w, now_us);
    return PAWL_OK;
}

/* --- the lanes --- */

static void count(struct pawl_worker *w, const struct effect_report *r)
{
    w->stat.done += (int64_t)r->done;
    w->stat.stale += (int64_t)r->stale;
    w->stat.retried += (int64_t)r->retried;
    w->stat.dead += (int64_t)r->dead;
    w->stat.dropped += (int64_t)r->dropped;
    w->stat.released += (int64_t)r->released;
    if (r->claimed > 0) w->active = true;
}

static enum pawl_rc run_lane(struct pawl_worker *w, bool prepared, struct effect_report *r,
                             struct pawl_error *e)
{
    enum pawl_rc rc = PAWL_OK;

    memset(r, 0, sizeof *r);
    if (prepared && w->pr != NULL) rc = prepared_step(w->pr, w->st, r, e);
    if (!prepared && w->ef != NULL) rc = effect_batch(w->ef, w->st, r, e);
    count(w, r);
    return rc;
}

static void due_at(struct pawl_worker *w, const struct claim_info *info)
{
    if (info->next_due_us > 0 && info->next_due_us < w->next_due_us)
        w->next_due_us = info->next_due_us;
}

/* One batch of the lane whose turn it is, or of the other one if that has nothing. */
static enum pawl_rc run_lanes(struct pawl_worker *w, bool *more, struct pawl_error *e)
{
    struct effect_report r;
    enum pawl_rc rc;

    w->next_due_us = INT64_MAX;
    w->look_anyway_us = worker_mono(w) + LOOK_ANYWAY_US;
    for (int k = 0; k < 2; k++) {
        const bool prepared = w->prepared_next;
        w->prepared_next = !prepared;
        if ((rc = run_lane(w, prepared, &r, e)) != PAWL_OK) return rc;
        due_at(w, &r.info);
        if (r.claimed > 0 || r.info.more) {
            *more = true;
            return PAWL_OK;
        }
    }
    w->look = false;
    return PAWL_OK;
}

static bool reason_to_look(struct pawl_worker *w)
{
    /* Who has work at hand need not ask; the first idle step does. */
    if (!w->look && store_changed(w->st)) w->look = w->active = true;
    return w->look || store_now_us(w->st) >= w->next_due_us
        || worker_mono(w) >= w->look_anyway_us;
}

static enum pawl_rc step(struct pawl_worker *w, bool *more, struct pawl_error *e)
{
    enum pawl_rc rc;

    if (!w->busy) store_wake_clear(w->st);
    if ((rc = timers(w, e)) != PAWL_OK) return rc;
    if (w->pr != NULL && prepared_busy(w->pr) > 0) w->look = true;
    if (!reason_to_look(w)) return PAWL_OK;
    w->look = true; /* until both lanes have nothing */
    return run_lanes(w, more, e);
}

enum pawl_rc pawl_worker_step(struct pawl_worker *w, bool *more, struct pawl_error *e)
{
    WITH_ERROR(e);
    bool unused;
    enum pawl_rc rc = worker_need_idle(w, e);

    if (!more) more = &unused;
    *more = false;
    if (rc != PAWL_OK) return rc;
    api_enter(&w->log);
    rc = step(w, more, e);
    w->halt = 0;
    w->busy = *more;
    return api_leave(&w->log, rc);
}

int pawl_worker_fd(struct pawl_worker *w)
{
    struct pawl_error unused;

    return worker_need(w, &unused) == PAWL_OK ? store_wake_fd(w->st) : -1;
}

int64_t pawl_worker_wait_us(struct pawl_worker *w)
{
    struct pawl_error unused;
    int64_t left = NET_US, now_us, due_us;

    if (worker_need(w, &unused) != PAWL_OK) return NET_US;
    if (w->busy) return 0;
    now_us = worker_mono(w);
    if (w->next_due_us != INT64_MAX) {
        due_us = w->next_due_us - store_now_us(w->st);
        if (due_us < left) left = due_us;
    }
    if (w->beat_at_us - now_us < left) left = w->beat_at_us - now_us;
    return left > 0 ? left : 0;
}

/* --- one job --- */

static enum pawl_rc one_of(struct pawl_worker *w, bool prepared, struct effect_report *r,
                           struct pawl_error *e)
{
    struct pawl_error again;
    enum pawl_rc rc, back;

    memset(r, 0, sizeof *r);
    if (!prepared) {
        rc = w->ef_one != NULL ? effect_batch(w->ef_one, w->st, r, e) : PAWL_OK;
    } else {
        if (w->pr_one == NULL) return PAWL_OK;
        rc = prepared_step(w->pr_one, w->st, r, e);
        /* Its commit claimed the next one as well. */
        back = prepared_release(w->pr_one, w->st, &again);
        if (rc == PAWL_OK && back != PAWL_OK) {
            *e = again;
            rc = back;
        }
    }
    count(w, r);
    return rc;
}

static enum pawl_rc one(struct pawl_worker *w, struct pawl_ran *out, struct pawl_error *e)
{
    enum { ROUNDS = 8 }; /* a batch that is run again says nothing about its job yet */
    struct effect_report r;
    enum pawl_rc rc;
    bool due;

    if ((rc = timers(w, e)) != PAWL_OK) return rc;
    if (w->pr != NULL && (rc = prepared_release(w->pr, w->st, e)) != PAWL_OK) return rc;
    for (int k = 0; k < ROUNDS; k++) {
        due = false;
        for (int prepared = 0; prepared < 2; prepared++) {
            if ((rc = one_of(w, prepared != 0, &r, e)) != PAWL_OK) return rc;
            due = due || r.claimed > 0 || r.info.more;
            if (r.job_id == 0) continue;
            out->job_id = r.job_id;
            out->state = r.to;
            out->outcome = outcome_name(r.outcome);
            static_assert(sizeof out->text == sizeof r.text, "one size of texts");
            memcpy(out->text, r.text, sizeof out->text);
            return PAWL_OK;
        }
        if (!due) return pawl_fail(e, PAWL_NOTFOUND, "no job of this worker's tasks is due");
    }
    return pawl_fail(e, PAWL_BUSY, "other workers take the jobs away");
}

enum pawl_rc pawl_worker_one(struct pawl_worker *w, struct pawl_ran *out, struct pawl_error *e)
{
    WITH_ERROR(e);
    struct pawl_ran unused;
    enum pawl_rc rc = worker_need_idle(w, e);

    if (!out) out = &unused;
    memset(out, 0, sizeof *out);
    out->outcome = "";
    if (rc != PAWL_OK) return rc;
    api_enter(&w->log);
    rc = one(w, out, e);
    w->halt = 0;
    w->look = true;
    return api_leave(&w->log, rc);
}
