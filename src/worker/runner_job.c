// SPDX-License-Identifier: Apache-2.0
/* runner_job.c - what a runner does with one job: by its task, sql statements or a C handler.
 *
 * Keeps: while a handler runs, runner_flags.kill_at_us says when it must have ended, and a timer
 *        will go off then.
 */
#include "base/err.h"
#include "base/log.h"
#include "handler/c_plugin.h"
#include "worker/runner.h"

#include <assert.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>

/* Beyond the hard limit, when statements are interrupted: what no interrupt ends. A C handler has
 * the time to return. */
#define SQL_OVERRUN_US (5 * INT64_C(1000000))
#define C_OVERRUN_US (INT64_C(100000))
#define START_AGAIN_US (INT64_C(1000000)) /* when the machine lacks something for a program */

static size_t index_of(const struct runner *r, const struct lane_task *t)
{
    size_t i = (size_t)(t - r->lane->lane.tasks);

    assert(i < r->lane->lane.tasks_n);
    return i;
}

static void arm(const struct runner *r, const struct lane_task *t, int64_t overrun_us)
{
    int64_t limit_us = t->policy.hard_limit_us;

    if (limit_us <= 0) return;
    atomic_store(&runner_flags.kill_at_us, runner_mono(r) + limit_us + overrun_us);
    if (r->o->role == RUNNER_EFFECT) return; /* its watchdog ticks */
    limit_us += overrun_us;
    struct itimerval once = {.it_value = {.tv_sec = limit_us / 1000000,
                                          .tv_usec = limit_us % 1000000}};
    (void)setitimer(ITIMER_REAL, &once, NULL);
}

static void disarm(void)
{
    atomic_store(&runner_flags.kill_at_us, 0);
}

/* A C handler returned. One that closed our link, or the store's files, has ended this process: it
 * would be killed for it, or fail for ever, but later, when the last words name a job that did
 * nothing. Now they name the one that did. */
static void returned(const struct runner *r, const struct lane_task *t, const struct job *job)
{
    disarm();
    if (fcntl(r->ctl_fd, F_GETFD) >= 0 && store_intact(r->st)) return;
    log_line(LOG_ERROR, "runner.unlinked", "s:worker", r->o->worker, "i:job", job->id, "s:task",
             t->name, "s:why", "its handler closed descriptors that it did not open", NULL);
    (void)raise(SIGKILL);
}

/* --- effect mode --- */

static void effect_job(void *ctx, struct store *st, const struct lane_task *t,
                       const struct job *job, struct arena *arena, struct finding *f, bool *pinned)
{
    struct runner *r = ctx;
    size_t i = index_of(r, t);

    if (r->sql[i] != NULL) {
        arm(r, t, SQL_OVERRUN_US);
        sql_task_run(r->sql[i], st, &t->policy, job, &runner_flags.now, arena, f, pinned);
        disarm();
    } else {
        arm(r, t, C_OVERRUN_US);
        c_apply(r->host, &r->c[i], t, job, NULL, arena, f, pinned);
        returned(r, t, job);
    }
}

/* --- prepared mode: prepare and apply have the hard limit each --- */

/* A program whose verdict may ask for writes runs to its end here, under its own limits. */
static void run_program(struct runner *r, const struct lane_task *t, const struct job *job,
                        void **plan, struct arena *arena, struct finding *f)
{
    struct finding *left = arena_alloc(arena, sizeof *left); /* for the transaction */
    struct exec_child *child = NULL;
    struct pawl_error e = {0};
    const struct exec_start s = {.conf = r->o->conf, .task = r->lane->tasks[index_of(r, t)],
                                 .policy = &t->policy, .job = job, .worker = r->o->worker,
                                 .db = r->child_db, .mono_now_us = runner_mono(r),
                                 .wall_now_us = r->env->wall_us(r->env->ctx)};

    if (left == NULL || exec_child_start(&s, &child, &e) != PAWL_OK) {
        if (left == NULL) (void)pawl_fail(&e, PAWL_NOMEM, "out of memory");
        exec_not_runnable(&e, arena, f);
        if (!exec_start_again(&e)) return;
        f->outcome = OUT_SNOOZE; /* the machine's doing: the job pays nothing */
        f->retry_after_us = START_AGAIN_US;
        return;
    }
    exec_child_serve(child, r->env, &runner_flags.now);
    exec_child_finish(&child, &t->policy, arena, f);
    *left = *f;
    *plan = left;
}

static void apply_program(struct runner *r, struct store *st, const struct lane_task *t,
                          const struct job *job, const struct finding *plan, struct arena *arena,
                          struct finding *f, bool *pinned)
{
    arm(r, t, SQL_OVERRUN_US);
    writes_run(r->writes[index_of(r, t)], st, &t->policy, job, plan, &runner_flags.now, arena, f,
               pinned);
    disarm();
    f->result = f->outcome == OUT_DONE ? plan->result : NULL;
    f->result_bytes = f->outcome == OUT_DONE ? plan->result_bytes : 0;
}

static bool is_program(const struct runner *r, const struct lane_task *t)
{
    return r->writes[index_of(r, t)] != NULL;
}

static void prepare_job(void *ctx, struct store *st, const struct lane_task *t,
                        const struct job *job, void **plan, struct arena *arena, struct finding *f)
{
    struct runner *r = ctx;

    (void)st;
    if (is_program(r, t)) {
        run_program(r, t, job, plan, arena, f);
        return;
    }
    arm(r, t, C_OVERRUN_US);
    c_prepare(r->host, &r->c[index_of(r, t)], t, job, plan, arena, f);
    returned(r, t, job);
}

static void apply_job(void *ctx, struct store *st, const struct lane_task *t,
                      const struct job *job, void *plan, struct arena *arena, struct finding *f,
                      bool *pinned)
{
    struct runner *r = ctx;

    if (is_program(r, t)) {
        apply_program(r, st, t, job, plan, arena, f, pinned);
        return;
    }
    arm(r, t, C_OVERRUN_US);
    c_apply(r->host, &r->c[index_of(r, t)], t, job, plan, arena, f, pinned);
    returned(r, t, job);
}

static void drop_job(void *ctx, const struct lane_task *t, const struct job *job, void *plan)
{
    struct runner *r = ctx;

    if (is_program(r, t)) return; /* its plan is the arena's */
    arm(r, t, C_OVERRUN_US);
    c_drop(r->host, &r->c[index_of(r, t)], t, job, plan);
    returned(r, t, job);
}

static const struct prepared_calls calls = {
    .prepare = prepare_job, .apply = apply_job, .drop = drop_job,
};

/* --- life --- */

/* The handler of each C task of our lane. plugins: parallel to the configuration's tasks. */
static enum pawl_rc open_tasks(struct runner *r, const struct pawl_handler *const *plugins,
                               struct pawl_error *e)
{
    const struct lane_conf *l = r->lane;
    const struct conf *conf = r->o->conf;
    enum pawl_rc rc = PAWL_OK;

    r->sql = calloc(l->lane.tasks_n + 1, sizeof *r->sql);
    r->c = calloc(l->lane.tasks_n + 1, sizeof *r->c);
    r->writes = calloc(l->lane.tasks_n + 1, sizeof *r->writes);
    r->child_db = worker_child_url(r->o->url);
    if (r->sql == NULL || r->c == NULL || r->writes == NULL || r->child_db == NULL) {
        return pawl_fail(e, PAWL_NOMEM, "runner");
    }
    for (size_t i = 0; i < l->lane.tasks_n && rc == PAWL_OK; i++) {
        const struct conf_task *t = l->tasks[i];
        if (t->kind == HANDLER_SQL) rc = sql_task_open(r->st, conf, t, &r->sql[i], e);
        else if (t->kind == HANDLER_EXEC) rc = writes_open(r->st, conf, t, &r->writes[i], e);
        else r->c[i].handler = plugins[t - conf->tasks];
    }
    return rc;
}

static enum pawl_rc open_engine(struct runner *r, struct pawl_error *e)
{
    const struct c_host_opts ho = {.env = r->env, .stop = &runner_flags.now,
                                   .drain = &runner_flags.drain, .worker = r->o->worker};
    const struct effect_opts eo = {.lane = &r->lane->lane, .fn = effect_job, .ctx = r,
                                   .env = r->env, .stop = &runner_flags.drain};
    const struct prepared_opts po = {.lane = &r->lane->lane, .calls = &calls, .ctx = r,
                                     .env = r->env, .stop = &runner_flags.drain};

    r->host = c_host_new(r->st, &ho);
    if (r->host == NULL) return pawl_fail(e, PAWL_NOMEM, "runner");
    if (r->o->role == RUNNER_EFFECT) r->effect = effect_new(&eo);
    else r->prepared = prepared_new(&po);
    if (r->effect == NULL && r->prepared == NULL) return pawl_fail(e, PAWL_NOMEM, "runner");
    return PAWL_OK;
}

enum pawl_rc runner_jobs_open(struct runner *r, struct pawl_error *e)
{
    const struct runner_opts *o = r->o;
    const struct pawl_handler **plugins = calloc(o->conf->tasks_n + 1, sizeof *plugins);
    char print[FINGERPRINT_BYTES];
    enum pawl_rc rc;

    if (plugins == NULL) return pawl_fail(e, PAWL_NOMEM, "runner");
    if ((rc = c_plugins_load(o->conf, plugins, e)) != PAWL_OK) goto out;
    conf_fingerprint(o->conf, print);
    if (strcmp(print, o->fingerprint) != 0) {
        rc = pawl_fail(e, PAWL_CONFIG, "%s, or what a plugin of it holds, has changed since the "
                       "worker read it; start the worker again", o->conf->path);
        goto out;
    }
    rc = lanes_declare(r->st, o->conf, false, o->queues, o->queues_n, NULL, NULL, &r->lanes, e);
    if (rc != PAWL_OK) goto out;
    r->lane = o->role == RUNNER_EFFECT ? &r->lanes.effect : &r->lanes.prepared;
    if ((rc = open_tasks(r, plugins, e)) == PAWL_OK) rc = open_engine(r, e);
out:
    free(plugins);
    return rc;
}

void runner_jobs_close(struct runner *r)
{
    effect_free(&r->effect);
    prepared_free(&r->prepared);
    c_host_free(&r->host);
    for (size_t i = 0; r->writes != NULL && i < r->lane->lane.tasks_n; i++) {
        sql_task_close(&r->sql[i]);
        writes_close(&r->writes[i]);
    }
    free(r->writes);
    free(r->child_db);
    free(r->sql);
    free(r->c);
    lanes_free(&r->lanes);
}
