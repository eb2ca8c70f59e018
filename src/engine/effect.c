// SPDX-License-Identifier: Apache-2.0
/* effect.c - effect mode: claim, work and acknowledgement of a batch in one transaction.
 *
 * Keeps: a failure pinned to one job undoes that job only, and its verdict is written with the
 *        first error, in the batch's own transaction: nobody else can run the job in between. Any
 *        other failure rolls the whole batch back and reruns it one by one; such reruns cost
 *        nothing. Only who ended its transaction is judged in a new one.
 * How:   batch size follows the time budget: the flush takes 0.1 ms on one disk and 5 ms on
 * another.
 */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/log.h"
#include "engine/engine.h"
#include "engine/report.h"

#define BUDGET_US 5000
#define BUDGET_MAX_US 50000 /* however slow the disk */
#define SIZE_FIRST 16
#define FAULTS_MAX 4 /* of one job alone, in a row, before it is asked whether they are its own */

struct effect {
    struct effect_opts o;
    struct arena arena;
    struct job *jobs;          /* room for batch_max */
    struct finding *found;
    struct settle *verdicts;
    size_t n;                  /* claimed in this batch */
    size_t size;               /* how many to claim next */
    int64_t commit_us;         /* what a commit takes, learnt */
    /* > 0: so many batches of one, after a failure not pinned to a job */
    size_t singly;
    int64_t fault_id, fault_runs; /* the job that last met a fault of the store, alone ... */
    int faults;                   /* ... and how often in a row */
    int64_t again_id, again_runs; /* the job whose COMMIT failed last, alone */
    struct effect_given *given;   /* NULL: effect mode */
    size_t hand;                  /* the job that runs */
};

/* What a pass over the batch came to. */
enum pass {
    PASS_OK,
    PASS_AGAIN, /* a job cannot be undone alone in this one: the same again, with savepoints */
    PASS_RERUN, PASS_STORE
};

struct effect *effect_new(const struct effect_opts *o)
{
    struct effect *ef = calloc(1, sizeof *ef);

    if (ef == NULL)
        return NULL;
    ef->o = *o;
    if (ef->o.batch_max == 0 || ef->o.batch_max > LIMIT_BATCH)
        ef->o.batch_max = LIMIT_BATCH;
    if (ef->o.budget_us == 0)
        ef->o.budget_us = BUDGET_US;
    if (ef->o.env == NULL)
        ef->o.env = env_real();
    ef->size = ef->o.batch_max < SIZE_FIRST ? ef->o.batch_max : SIZE_FIRST;
    ef->jobs = calloc(ef->o.batch_max, sizeof *ef->jobs);
    ef->found = calloc(ef->o.batch_max, sizeof *ef->found);
    ef->verdicts = calloc(ef->o.batch_max, sizeof *ef->verdicts);
    if (ef->jobs == NULL || ef->found == NULL || ef->verdicts == NULL)
        effect_free(&ef);
    return ef;
}

void effect_free(struct effect **p)
{
    struct effect *ef = *p;

    if (ef == NULL)
        return;
    arena_free(&ef->arena);
    free(ef->jobs);
    free(ef->found);
    free(ef->verdicts);
    free(ef);
    *p = NULL;
}

static int64_t mono(const struct effect *ef)
{
    return ef->o.env->mono_us(ef->o.env->ctx);
}

void *effect_plan(const struct effect *ef)
{
    return ef->given != NULL ? ef->given->plans[ef->hand] : NULL;
}

static void add_verdict(struct effect *ef, size_t *n, const struct job *job, struct finding *f)
{
    const struct lane_task *t = &ef->o.lane->tasks[job->task_i];
    struct settle *s = &ef->verdicts[(*n)++];

    memset(s, 0, sizeof *s);
    s->job = job;
    s->found = f;
    s->task_id = t->id;
    s->d = decide(job, &t->policy, f, ef->o.env->wall_us(ef->o.env->ctx), ef->o.env);
}

/* What the store said of this job, as its finding. false: not this job's doing. */
static bool found_by_store(struct effect *ef, struct finding *f, const struct pawl_error *e)
{
    bool pinned = true;

    f->outcome = e->rc == PAWL_SQL ? classify_sql(e->native, &pinned) : OUT_MISUSE;
    f->error = arena_strdup(&ef->arena, e->msg);
    f->error_bytes = f->error != NULL ? strlen(f->error) : 0;
    return pinned;
}

static enum pass undo(struct effect *ef, struct store *st, size_t i, size_t *verdicts_n,
                      struct pawl_error *e)
{
    add_verdict(ef, verdicts_n, &ef->jobs[i], &ef->found[i]);
    switch (store_effect_undo(st, e)) {
    case PAWL_OK: return PASS_OK;
    case PAWL_BUSY: return PASS_AGAIN;
    default: return PASS_STORE;
    }
}

/* It went well. Alone, a constraint that is put off to the COMMIT fails here, while the job is ours
 * still; in company the COMMIT fails, and that is found out alone. */
static enum pass done(struct effect *ef, struct store *st, size_t i, size_t *verdicts_n,
                      struct pawl_error *e)
{
    const struct lane_task *t = &ef->o.lane->tasks[ef->jobs[i].task_i];
    const enum pawl_rc rc = store_effect_done(st, t, &ef->jobs[i], &ef->found[i], e);

    if (rc == PAWL_OK)
        return PASS_OK;
    return rc == PAWL_SQL && ef->n == 1 && ef->given == NULL && store_effect_alive(st) &&
           found_by_store(ef, &ef->found[i], e) ? undo(ef, st, i, verdicts_n, e) : PASS_RERUN;
}

/* One job inside the open transaction. */
static enum pass one_job(struct effect *ef, struct store *st, size_t i, size_t *verdicts_n,
                         struct pawl_error *e)
{
    struct job *job = &ef->jobs[i];
    const struct lane_task *t = &ef->o.lane->tasks[job->task_i];
    struct finding *f = &ef->found[i];
    bool run = false, pinned = true;

    ef->hand = i;
    if (store_effect_job(st, i, e) != PAWL_OK)
        return PASS_STORE;
    if ((ef->given != NULL ? engine_guard : engine_admit)(st, t, job, &ef->arena, f, &run, e)
        != PAWL_OK)
        return PASS_STORE;
    if (run)
        ef->o.fn(ef->o.ctx, st, t, job, &ef->arena, f, &pinned);
    f->ended_at_us = store_now_us(st);
    if (f->outcome == OUT_DONE || f->outcome == OUT_STALE) {
        const enum pawl_rc rc = f->outcome == OUT_STALE && run ? store_effect_undo(st, e) : PAWL_OK;

        /* A stale run has no effect: what it may have written is undone before it is settled. */
        if (rc == PAWL_BUSY)
            return PASS_AGAIN;
        if (rc != PAWL_OK || (f->outcome == OUT_STALE && run && store_effect_job(st, i,
                e) != PAWL_OK))
            return PASS_RERUN;
        return done(ef, st, i, verdicts_n, e);
    }
    if (!pinned)
        return PASS_RERUN;
    if (!store_effect_alive(st)) {
        /* The handler, or an error it provoked, ended the transaction: everybody's work of this
         * batch is gone. Alone, the verdict stands; in company, find out alone. */
        if (ef->n > 1)
            return PASS_RERUN;
        add_verdict(ef, verdicts_n, job, f);
        return PASS_STORE;
    }
    return undo(ef, st, i, verdicts_n, e);
}

/* How long the work of a batch may take: where a flush is slow, long enough to be worth one. */
static int64_t budget(const struct effect *ef)
{
    const int64_t worth_us = 2 * ef->commit_us < BUDGET_MAX_US ? 2 * ef->commit_us : BUDGET_MAX_US;

    return worth_us > ef->o.budget_us ? worth_us : ef->o.budget_us;
}

/* Grow or shrink the batch so that its work takes about the budget. */
static void adapt(struct effect *ef, size_t n, int64_t took_us)
{
    if (n < ef->size || took_us <= 0)
        return; /* the queue was short, it says nothing about speed */
    const size_t fits = (size_t)((int64_t)n * budget(ef) / took_us);
    const size_t next = fits > 2 * ef->size ? 2 * ef->size : fits;

    ef->size = next < 1 ? 1 : next > ef->o.batch_max ? ef->o.batch_max : next;
}

/* Verdicts that are committed. */
static void tell_verdicts(struct effect *ef, size_t n, struct effect_report *out)
{
    for (size_t i = 0; i < n; i++) {
        const struct settle *s = &ef->verdicts[i];
        const char *task = ef->o.lane->tasks[s->job->task_i].name;

        if (ef->given != NULL) { /* whoever holds them settles them */
            ef->given->state[s->job - ef->jobs] = GIVEN_OVER;
            continue;
        }
        if (s->result == SETTLE_FENCED) {
            report_fenced(task, s->job, "it was decided by somebody else before its verdict");
            continue;
        }
        report_settled(task, s->job, &s->d, s->found);
        report_count(out, s->job, &s->d, s->found);
    }
}

/* Of a batch whose transaction is gone. */
static enum pawl_rc write_verdicts(struct effect *ef, struct store *st, size_t n,
                                   struct effect_report *out, struct pawl_error *e)
{
    const enum pawl_rc rc = ef->given != NULL ? PAWL_OK
                                              : store_effect_verdicts(st, ef->verdicts, n, e);

    if (rc == PAWL_OK) /* else not charged: the jobs still wait and will run again */
        tell_verdicts(ef, n, out);
    return rc;
}

static void count_done(struct effect *ef, size_t upto, struct effect_report *out)
{
    const struct decision d = { .to = PAWL_STATE_DONE };

    for (size_t i = 0; i < upto; i++) {
        const struct job *job = &ef->jobs[i];
        struct decision one = d;

        one.outcome = ef->found[i].outcome;
        if (one.outcome != OUT_DONE && one.outcome != OUT_STALE)
            continue;
        report_settled(ef->o.lane->tasks[job->task_i].name, job, &one, &ef->found[i]);
        report_count(out, job, &one, &ef->found[i]);
        if (ef->given != NULL)
            ef->given->state[i] = GIVEN_SETTLED;
    }
}

/* Work through the claimed jobs until done, out of time, or told to stop. *upto: how many were. */
static enum pass work(struct effect *ef, struct store *st, size_t n, size_t *upto,
                      size_t *verdicts_n,
                      struct pawl_error *e)
{
    const int64_t until = mono(ef) + 2 * budget(ef);
    enum pass p = PASS_OK;

    for (*upto = 0; *upto < n && p == PASS_OK; ++*upto) {
        if (*upto > 0 && (mono(ef) > until || (ef->o.stop != NULL && *ef->o.stop != 0)))
            break; /* the rest was only read: it is still ready */
        p = one_job(ef, st, *upto, verdicts_n, e);
    }
    return p;
}

/* Nobody is pinned: alone, a job that keeps failing this way is its own cause. */
static enum pawl_rc blame_alone(struct effect *ef, struct store *st, struct effect_report *out,
                                const struct pawl_error *cause, struct pawl_error *e)
{
    struct finding *f = &ef->found[0];
    size_t n = 0;

    if (f->outcome == OUT_DONE || f->outcome == OUT_STALE || f->error == NULL)
        (void)found_by_store(ef, f, cause);
    add_verdict(ef, &n, &ef->jobs[0], f);
    return write_verdicts(ef, st, n, out, e);
}

/* Faults of the store itself are nobody's: the caller backs off and calls again. */
static bool is_store_fault(enum pawl_rc rc)
{
    return rc == PAWL_BUSY || rc == PAWL_FULL || rc == PAWL_IO || rc == PAWL_NOMEM ||
           rc == PAWL_STORE || rc == PAWL_DENIED || rc == PAWL_UNSURE || rc == PAWL_NOTOURS ||
           rc == PAWL_MOVED;
}

/* Alone, the job met what looks like a fault of the store: nothing is charged. If the very same job
 * meets them in a row and the store is sound, it is this job's own (a full sequence, a damaged
 * page, a
 * huge value): charged as transient, so that it is bounded and the others go on. */
static enum pawl_rc fault_alone(struct effect *ef, struct store *st, const struct pawl_error *cause,
                                struct effect_report *out, struct pawl_error *e)
{
    struct finding *f = &ef->found[0];
    const bool told = f->error != NULL && f->outcome != OUT_DONE && f->outcome != OUT_STALE;
    size_t n = 0;

    const bool again = ef->fault_id == ef->jobs[0].id && ef->fault_runs == ef->jobs[0].n.runs;

    ef->faults = again ? ef->faults + 1 : 1;
    ef->fault_id = ef->jobs[0].id;
    ef->fault_runs = ef->jobs[0].n.runs;
    if (ef->faults < FAULTS_MAX || cause->rc == PAWL_BUSY || !store_sound(st)) {
        *e = *cause;
        if (!is_store_fault(e->rc))
            e->rc = PAWL_STORE;
        if (told)
            (void)snprintf(e->msg, sizeof e->msg, "%s", f->error);
        return e->rc;
    }
    f->outcome = OUT_TRANSIENT;
    if (!told) {
        f->error = arena_strdup(&ef->arena, cause->msg);
        f->error_bytes = f->error != NULL ? strlen(f->error) : 0;
    }
    add_verdict(ef, &n, &ef->jobs[0], f);
    return write_verdicts(ef, st, n, out, e);
}

/* Somebody else decided it meanwhile: nothing to charge. Or only its version was applied by another
 * job: what is still leased to us is applied again, and the guard says what it is. */
static enum pawl_rc fenced_alone(struct effect *ef, struct store *st,
                                 const struct pawl_error *cause, struct effect_report *out,
                                 struct pawl_error *e)
{
    bool still = false;
    const enum pawl_rc rc = ef->given != NULL ? store_holds(st, &ef->jobs[0], &still, e) : PAWL_OK;

    if (rc != PAWL_OK)
        return rc;
    if (still) {
        out->reruns++;
        return PAWL_OK;
    }
    report_fenced(ef->o.lane->tasks[ef->jobs[0].task_i].name, &ef->jobs[0], cause->msg);
    if (ef->given != NULL)
        ef->given->state[0] = GIVEN_SETTLED;
    return PAWL_OK;
}

/* A batch of one did not commit: whose doing was it? */
static enum pawl_rc judge_alone(struct effect *ef, struct store *st, enum pass p, size_t verdicts_n,
                                const struct pawl_error *cause, struct effect_report *out,
                                struct pawl_error *e)
{
    const struct finding *f = &ef->found[0];

    if (p == PASS_STORE && verdicts_n == 1)
        return write_verdicts(ef, st, verdicts_n, out, e);
    if (cause->rc == PAWL_FENCED)
        return fenced_alone(ef, st, cause, out, e);
    if ((p == PASS_RERUN && f->error != NULL && f->outcome != OUT_DONE) ||
        is_store_fault(cause->rc))
        return fault_alone(ef, st, cause, out, e);
    return blame_alone(ef, st, out, cause, e);
}

/* Alone, a COMMIT that fails may be of a batch without savepoints: with one, the job can be undone
 * and judged while it is still ours. Once for each run. */
static bool with_savepoint(struct effect *ef)
{
    const struct job *job = &ef->jobs[0];

    if (ef->given != NULL || (ef->again_id == job->id && ef->again_runs == job->n.runs))
        return false;
    ef->again_id = job->id;
    ef->again_runs = job->n.runs;
    return true;
}

static enum pawl_rc finish(struct effect *ef, struct store *st, enum pass p, size_t n, size_t upto,
                           size_t verdicts_n, struct effect_report *out, struct pawl_error *e)
{
    struct pawl_error cause;
    enum pawl_rc rc = PAWL_OK;

    if (p == PASS_OK && ef->given == NULL &&
        (rc = store_effect_verdicts(st, ef->verdicts, verdicts_n, e)) != PAWL_OK) {
        store_effect_rollback(st);
        if (n == 1)
            return rc; /* nothing happened: the caller backs off */
        ef->singly = n;
        out->reruns++;
        return PAWL_OK;
    }
    if (p == PASS_OK) {
        rc = store_effect_commit(st, &cause);
        if (rc != PAWL_OK && ef->given != NULL)
            ef->given->claimed = false;
        if (rc == PAWL_OK) {
            count_done(ef, upto, out);
            tell_verdicts(ef, verdicts_n, out);
            return PAWL_OK;
        }
    } else {
        cause = *e;
        store_effect_rollback(st);
    }
    if (rc == PAWL_UNSURE) { /* what committed is done, the rest still waits: nothing to charge */
        log_line(LOG_WARN, "effect.in_doubt", "s:why", cause.msg, NULL);
        for (size_t i = 0; i < n && ef->given != NULL; i++)
            ef->given->state[i] = GIVEN_DOUBT;
        return PAWL_OK;
    }
    /* In company: find out one by one (or with savepoints), at no cost. */
    const bool again = p == PASS_AGAIN || (n == 1 && rc == PAWL_SQL && with_savepoint(ef));
    if (n > 1 || again) {
        if (ef->given != NULL)
            ef->given->singly = !again;
        else
            ef->singly = again ? 0 : n;
        out->reruns++;
        return PAWL_OK;
    }
    return judge_alone(ef, st, p, verdicts_n, &cause, out, e);
}

/* The claimed or given jobs, in the open transaction, to its end. */
static enum pawl_rc run_batch(struct effect *ef, struct store *st, size_t n, size_t *upto,
                              bool *smooth, struct effect_report *out, struct pawl_error *e)
{
    struct effect_given *g = ef->given;
    size_t verdicts_n = 0;
    enum pawl_rc rc;

    out->claimed = ef->n = n;
    memset(ef->found, 0, n * sizeof *ef->found);
    const int64_t start = mono(ef);
    const enum pass p = work(ef, st, n, upto, &verdicts_n, e);
    if (g != NULL && g->more != NULL && p == PASS_OK && *upto == n) {
        if ((rc = g->more(g->ctx, st, e)) != PAWL_OK) { /* no job's doing: all as before */
            store_effect_rollback(st);
            *smooth = false;
            return rc;
        }
        g->claimed = true;
    }
    const int64_t worked_us = mono(ef) - start;
    rc = finish(ef, st, p, n, *upto, verdicts_n, out, e);
    if (p == PASS_OK && verdicts_n == 0)
        ef->commit_us += (mono(ef) - start - worked_us - ef->commit_us) / 4;
    if (p == PASS_OK && *upto == n)
        adapt(ef, n, worked_us);
    *smooth = p == PASS_OK;
    return rc;
}

enum pawl_rc effect_batch(struct effect *ef, struct store *st, struct effect_report *out,
                          struct pawl_error *e)
{
    struct pawl_error local;
    const size_t want = ef->singly > 0 ? 1 : ef->size;
    size_t n = 0, upto = 0;
    bool smooth = false;
    enum pawl_rc rc;

    if (e == NULL)
        e = &local;
    memset(out, 0, sizeof *out);
    memset(e, 0, sizeof *e);
    arena_reset(&ef->arena);
    ef->given = NULL;
    log_deliver(); /* a handler may be the end of this process */
    rc = store_effect_begin(st, ef->o.lane, want, &ef->arena, ef->jobs, &n, &out->info, e);
    if (rc != PAWL_OK || n == 0)
        return rc;
    const bool singly = ef->singly > 0;
    rc = run_batch(ef, st, n, &upto, &smooth, out, e);
    store_effect_end(st);
    if (singly && ef->singly > 0)
        ef->singly--;
    else if (smooth && upto < n) /* out of time: it was too much */
        ef->size = upto;
    return rc;
}

enum pawl_rc effect_apply(struct effect *ef, struct store *st, struct effect_given *g,
                          struct effect_report *out, struct pawl_error *e)
{
    size_t upto = 0;
    bool smooth = false;
    enum pawl_rc rc;

    assert(g->n >= 1 && g->n <= ef->o.batch_max);
    memset(out, 0, sizeof *out);
    memset(e, 0, sizeof *e);
    arena_reset(&ef->arena);
    memcpy(ef->jobs, g->jobs, g->n * sizeof *ef->jobs);
    memset(g->state, 0, g->n * sizeof *g->state);
    g->claimed = g->singly = false;
    ef->given = g;
    rc = store_effect_resume(st, ef->o.lane, ef->jobs, g->n, e);
    if (rc == PAWL_OK) {
        rc = run_batch(ef, st, g->n, &upto, &smooth, out, e);
        store_effect_end(st);
        memcpy(g->found, ef->found, g->n * sizeof *g->found);
    }
    ef->given = NULL;
    return rc;
}
