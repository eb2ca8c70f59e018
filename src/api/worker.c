// SPDX-License-Identifier: Apache-2.0
/* worker.c - a worker's life: open the store, declare the tasks, join; leave.
 *
 * Keeps: no thread, no process, no signal handler; after fork() the child touches nothing of it.
 */
#include "api/worker.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define LEASE_US INT64_C(30000000)
#define LEASE_MIN_US INT64_C(1000000) /* as lease in pawl.conf */
#define LEASE_MAX_US INT64_C(3600000000)
#define EFFECT_HARD_LIMIT_US INT64_C(60000000) /* apply holds SQLite's one write lock meanwhile */

enum pawl_rc worker_need(const struct pawl_worker *w, struct pawl_error *e)
{
    enum pawl_rc rc = api_need(w && w->st, e, "the worker is NULL: call pawl_worker_open first");

    return rc == PAWL_OK ? api_need_owner(w->owner, e) : rc;
}

enum pawl_rc worker_need_idle(const struct pawl_worker *w, struct pawl_error *e)
{
    enum pawl_rc rc = worker_need(w, e);

    if (rc == PAWL_OK && !w->inside) return api_need_no_apply(&w->apply.place, e);
    if (rc != PAWL_OK) return rc;
    return pawl_fail(e, PAWL_BADARG, "called from inside this worker's own handler: return from it"
                     " first (pawl_worker_stop is fine there)");
}

/* --- tasks --- */

static enum pawl_rc check_task(const struct pawl_worker_opts *o, size_t i, struct pawl_error *e)
{
    const struct pawl_task *t = &o->tasks[i];
    const char *why = NULL;

    if (t->name == NULL || !name_ok(t->name, &why))
        return pawl_fail(e, PAWL_BADARG, "task %zu \"%.80s\": %s", i,
                         t->name != NULL ? t->name : "",
                         t->name != NULL ? why : "a name is needed");
    for (size_t j = 0; j < i; j++)
        if (strcmp(o->tasks[j].name, t->name) == 0)
            return pawl_fail(e, PAWL_BADARG, "task %s is given twice", t->name);
    return c_handler_check(t->handler, t->name, e);
}

static enum pawl_rc check_opts(const struct pawl_worker_opts *o, struct pawl_error *e)
{
    const char *why = NULL;
    enum pawl_rc rc;

    if (o == NULL || o->tasks == NULL || o->tasks_n == 0)
        return pawl_fail(e, PAWL_BADARG, "a worker needs at least one task");
    if (o->tasks_n > LIMIT_TASKS)
        return pawl_fail(e, PAWL_TOOBIG, "%zu tasks: at most %d", o->tasks_n, LIMIT_TASKS);
    if (o->queues_n > 0 && o->queues == NULL)
        return pawl_fail(e, PAWL_BADARG, "%zu queues at NULL", o->queues_n);
    if (o->lease_us != 0 && (o->lease_us < LEASE_MIN_US || o->lease_us > LEASE_MAX_US))
        return pawl_fail(e, PAWL_BADARG, "lease_us %lld: give 1 s to 1 h in microseconds, or 0 for"
                         " 30 s", (long long)o->lease_us);
    for (size_t i = 0; i < o->tasks_n; i++)
        if ((rc = check_task(o, i, e)) != PAWL_OK) return rc;
    for (size_t i = 0; i < o->queues_n; i++)
        if (o->queues[i] == NULL || !name_ok(o->queues[i], &why))
            return pawl_fail(e, PAWL_BADARG, "queue %zu \"%.80s\": %s", i,
                             o->queues[i] != NULL ? o->queues[i] : "",
                             o->queues[i] != NULL ? why : "a name is needed");
    return PAWL_OK;
}

/* What the text says, and what stands for a C handler that says nothing. */
static enum pawl_rc given_policy(const struct pawl_task *t, struct policy *out,
                                 struct pawl_error *e)
{
    struct api_policy given;
    char why[256] = "";
    enum pawl_rc rc = api_policy_parse(t->policy, t->name, &given, e);

    if (rc != PAWL_OK) return rc;
    if (given.idle != NULL)
        return pawl_fail(e, PAWL_CONFIG, "task %s: policy: %s means nothing to a C handler; take it"
                         " out", t->name, given.idle);
    if (!given.own_hard_limit && !c_is_prepared(t->handler, &given.p))
        given.p.hard_limit_us = EFFECT_HARD_LIMIT_US;
    if (!policy_check(&given.p, why, sizeof why))
        return pawl_fail(e, PAWL_CONFIG, "task %s: policy: %s", t->name, why);
    *out = given.p;
    return PAWL_OK;
}

static void add(struct wlane *l, const struct lane_task *lt, const struct pawl_task *t)
{
    const size_t n = l->lane.tasks_n++;

    l->tasks[n] = *lt;
    l->tasks[n].native = true;
    l->c[n] = (struct c_task){.handler = t->handler, .ctx = t->ctx};
}

static bool lanes_alloc(struct pawl_worker *w, const struct pawl_worker_opts *o)
{
    struct wlane *lanes[] = {&w->effect, &w->prepared};

    for (size_t i = 0; i < 2; i++) {
        lanes[i]->tasks = calloc(o->tasks_n, sizeof *lanes[i]->tasks);
        lanes[i]->c = calloc(o->tasks_n, sizeof *lanes[i]->c);
        if (lanes[i]->tasks == NULL || lanes[i]->c == NULL) return false;
        lanes[i]->lane = (struct lane){lanes[i]->tasks, 0, o->queues, o->queues_n};
    }
    return true;
}

static enum pawl_rc declare_all(struct pawl_worker *w, const struct pawl_worker_opts *o,
                                struct pawl_error *e)
{
    struct lane_task *all = calloc(o->tasks_n, sizeof *all);
    struct buf differs = {0};
    struct policy given;
    enum pawl_rc rc = PAWL_OK;

    w->all = (struct lane){all, o->tasks_n, o->queues, o->queues_n};
    if (all == NULL || !lanes_alloc(w, o)) return pawl_fail(e, PAWL_NOMEM, "out of memory");
    for (size_t i = 0; i < o->tasks_n && rc == PAWL_OK; i++) {
        const struct pawl_task *t = &o->tasks[i];
        struct lane_task *lt = &all[i];
        if ((rc = given_policy(t, &given, e)) != PAWL_OK) break;
        buf_clear(&differs);
        rc = api_declare(w->st, t->name, &given, o->replace_policies, &lt->id, &lt->policy,
                         &differs, e);
        lt->name = t->name;
        if (rc != PAWL_OK) break;
        add(c_is_prepared(t->handler, &lt->policy) ? &w->prepared : &w->effect, lt, t);
    }
    buf_free(&differs);
    return rc;
}

/* --- open --- */

static enum pawl_rc engines(struct pawl_worker *w, const struct pawl_worker_opts *o,
                            struct pawl_error *e)
{
    const struct c_host_opts ho = {.env = w->env, .drain = &w->asked, .worker = w->id, .raw = true,
                                   .beat = worker_beat, .ctx = w};
    struct effect_opts eo = {.lane = &w->effect.lane, .fn = worker_effect_fn, .ctx = w,
                             .env = w->env, .batch_max = o->batch_max, .stop = &w->halt};
    struct prepared_opts po = {.lane = &w->prepared.lane, .calls = &worker_prepared_calls, .ctx = w,
                               .env = w->env, .batch_max = o->batch_max, .stop = &w->halt};
    bool fine = (w->host = c_host_new(w->st, &ho)) != NULL;

    if (w->effect.lane.tasks_n > 0) {
        fine = fine && (w->ef = effect_new(&eo)) != NULL;
        eo.batch_max = 1;
        fine = fine && (w->ef_one = effect_new(&eo)) != NULL;
    }
    if (w->prepared.lane.tasks_n > 0) {
        fine = fine && (w->pr = prepared_new(&po)) != NULL;
        po.batch_max = 1;
        fine = fine && (w->pr_one = prepared_new(&po)) != NULL;
    }
    return fine ? PAWL_OK : pawl_fail(e, PAWL_NOMEM, "out of memory");
}

static enum pawl_rc open_all(struct pawl_worker *w, const char *url,
                             const struct pawl_worker_opts *o, struct pawl_error *e)
{
    struct store_opts so;
    enum pawl_rc rc = api_store_opts(o->open, url, api_clock_init(&w->clock, o->open), &so, e);

    if (rc != PAWL_OK) return rc;
    w->env = so.env != NULL ? so.env : env_real();
    so.accept_wal_risk = o->accept_wal_risk;
    so.lease_us = w->lease_us = o->lease_us > 0 ? o->lease_us : LEASE_US;
    if ((rc = api_store_open(&so, o->open, &w->st, e)) != PAWL_OK) return rc;
    w->env = store_env(w->st);
    w->apply.place = store_place(w->st);
    if ((rc = api_need_no_apply(&w->apply.place, e)) != PAWL_OK) return rc;
    if ((rc = declare_all(w, o, e)) != PAWL_OK) return rc;
    if ((rc = store_worker_join(w->st, w->id, NULL, e)) != PAWL_OK) return rc;
    w->joined = true;
    if ((rc = engines(w, o, e)) != PAWL_OK) return rc;
    w->stop_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (w->stop_fd < 0) return pawl_fail_errno(e, errno, "a descriptor to be woken by");
    return PAWL_OK;
}

/* Everything but the store's own hold on the worker's jobs. */
static void free_worker(struct pawl_worker *w)
{
    prepared_free(&w->pr); /* drops plans: handlers may run here */
    prepared_free(&w->pr_one);
    effect_free(&w->ef);
    effect_free(&w->ef_one);
    c_host_free(&w->host);
    store_close(&w->st);
}

static void free_rest(struct pawl_worker *w)
{
    if (w->stop_fd >= 0) close(w->stop_fd);
    free(w->effect.tasks);
    free(w->effect.c);
    free(w->prepared.tasks);
    free(w->prepared.c);
    free((void *)(uintptr_t)w->all.tasks);
    buf_free(&w->log.lines);
    free(w);
}

enum pawl_rc pawl_worker_open(const char *url, const struct pawl_worker_opts *o,
                              struct pawl_worker **out, struct pawl_error *e)
{
    WITH_ERROR(e);
    struct pawl_error unused;
    enum pawl_rc rc = api_need(out != NULL, e, "out is NULL");
    if (rc != PAWL_OK) return rc;
    *out = NULL;
    if ((rc = check_opts(o, e)) != PAWL_OK) return rc;
    struct pawl_worker *w = calloc(1, sizeof *w);
    if (!w) return pawl_fail(e, PAWL_NOMEM, "out of memory");
    w->owner = getpid();
    w->stop_fd = -1;
    w->look = true;
    w->next_due_us = INT64_MAX;
    api_log_init(&w->log, o->open);
    api_enter(&w->log);
    rc = open_all(w, url, o, e);
    if (rc == PAWL_OK) {
        log_line(LOG_INFO, "worker.start", "s:worker", w->id, "i:pid", (int64_t)w->owner,
                 "s:version", PAWL_VERSION, "i:c_tasks", (int64_t)w->all.tasks_n,
                 "i:prepared_tasks", (int64_t)w->prepared.lane.tasks_n, "t:lease", w->lease_us,
                 NULL);
        *out = w;
        return api_leave(&w->log, PAWL_OK);
    }
    if (w->joined && store_worker_leave(w->st, &unused) != PAWL_OK) store_worker_orderly(w->st);
    free_worker(w);
    (void)api_leave(&w->log, rc);
    free_rest(w);
    return rc;
}

/* --- close --- */

static enum pawl_rc hand_back(struct pawl_worker *w, struct pawl_error *e)
{
    struct pawl_error again;
    enum pawl_rc rc = w->pr != NULL ? prepared_release(w->pr, w->st, e) : PAWL_OK;
    enum pawl_rc one = w->pr_one != NULL ? prepared_release(w->pr_one, w->st, &again) : PAWL_OK;

    if (rc == PAWL_OK && one != PAWL_OK) *e = again;
    return rc != PAWL_OK ? rc : one;
}

enum pawl_rc pawl_worker_close(struct pawl_worker **wp, struct pawl_error *e)
{
    WITH_ERROR(e);
    struct pawl_worker *w = wp != NULL ? *wp : NULL;
    enum pawl_rc rc;

    if (w == NULL) return PAWL_OK;
    if (w->owner == getpid() && (rc = worker_need_idle(w, e)) != PAWL_OK) return rc;
    *wp = NULL;
    if (w->owner != getpid()) { /* a child of fork(): its statements and plans are the parent's */
        store_close(&w->st);
        free_rest(w);
        return PAWL_OK;
    }
    api_enter(&w->log);
    rc = hand_back(w, e);
    if (rc == PAWL_OK) rc = store_worker_leave(w->st, e);
    else store_worker_orderly(w->st); /* its file stays: who finds its lock free counts no deaths */
    log_line(rc == PAWL_OK ? LOG_INFO : LOG_ERROR, "worker.stop", "s:worker", w->id, "s:rc",
             pawl_rc_name(rc), "s:why", rc == PAWL_OK ? NULL : e->msg, NULL);
    free_worker(w);
    (void)api_leave(&w->log, rc);
    free_rest(w);
    return rc;
}

void pawl_worker_stats(const struct pawl_worker *w, struct pawl_worker_stat *out)
{
    if (out == NULL) return;
    if (w == NULL) memset(out, 0, sizeof *out);
    else *out = w->stat;
}
