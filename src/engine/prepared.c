// SPDX-License-Identifier: Apache-2.0
/* prepared.c - prepared mode: jobs that are leased, prepared one after the other in this process,
 * and
 * applied together with their acknowledgement.
 *
 * Keeps: a job is prepared only under a claim that is known to be durable; before each preparation
 * the
 *        last words name it; a plan is dropped once, when its run is over; what ends and what comes
 *        next share a commit.
 * How:   a batch is as large as its preparations take about the budget. When one of them takes much
 *        longer, the untouched rest is handed back, so that another runner can have it. After a
 *        pause it begins with one again: who is idle beside us takes the next.
 */
#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include "base/log.h"
#include "engine/engine.h"
#include "engine/report.h"

#define BUDGET_US 20000
#define PATIENCE 5 /* budgets: a batch that takes longer gives its untouched jobs back */

struct prepared {
    struct prepared_opts o;
    struct leased *leased;
    struct effect *effect;
    struct slot *slots;
    size_t slots_n;
    void **plan;                  /* parallel to slots: what prepare left */
    bool *begun;                  /* parallel: prepare was called, drop was not */
    size_t size, first, singly;   /* of a batch: now; after a pause */
    /* one application */
    struct slot **whose;
    struct job *jobs, *next;      /* given; claimed by the same commit */
    void **plans;
    enum given *state;
    struct finding *found;
    struct arena arena;           /* of next */
    size_t next_n;
    struct claim_info info;
};

static int64_t mono(const struct prepared *p)
{
    return p->o.env->mono_us(p->o.env->ctx);
}

static bool stopped(const struct prepared *p)
{
    return p->o.stop != NULL && *p->o.stop != 0;
}

static void run_apply(void *ctx, struct store *st, const struct lane_task *t, const struct job *job,
                      struct arena *arena, struct finding *f, bool *pinned)
{
    struct prepared *p = ctx;

    p->o.calls->apply(p->o.ctx, st, t, job, effect_plan(p->effect), arena, f, pinned);
}

/* The run in this slot is over. */
static void drop(void *ctx, const struct slot *s)
{
    struct prepared *p = ctx;
    const size_t i = (size_t)(s - p->slots);

    if (!p->begun[i])
        return;
    p->begun[i] = false;
    p->o.calls->drop(p->o.ctx, s->task, &s->job, p->plan[i]);
    p->plan[i] = NULL;
}

struct prepared *prepared_new(const struct prepared_opts *o)
{
    struct prepared *p = calloc(1, sizeof *p);

    if (p == NULL)
        return NULL;
    p->o = *o;
    if (p->o.env == NULL)
        p->o.env = env_real();
    if (p->o.budget_us == 0)
        p->o.budget_us = BUDGET_US;
    if (p->o.batch_max == 0 || p->o.batch_max > LIMIT_CONCURRENCY)
        p->o.batch_max = LIMIT_CONCURRENCY;
    const size_t n = p->o.batch_max;
    const struct effect_opts eo = { .lane = o->lane, .fn = run_apply, .ctx = p, .env = p->o.env,
                                    .batch_max = n, .budget_us = o->apply_us,
                                    .stop = o->stop };
    p->effect = effect_new(&eo);
    p->leased = leased_new(o->lane, n, p->o.env);
    p->plan = calloc(n, sizeof *p->plan);
    p->begun = calloc(n, sizeof *p->begun);
    p->whose = calloc(n, sizeof *p->whose);
    p->jobs = calloc(n, sizeof *p->jobs);
    p->next = calloc(n, sizeof *p->next);
    p->plans = calloc(n, sizeof *p->plans);
    p->state = calloc(n, sizeof *p->state);
    p->found = calloc(n, sizeof *p->found);
    if (p->effect == NULL || p->leased == NULL || p->plan == NULL || p->begun == NULL ||
        p->whose == NULL || p->jobs == NULL || p->next == NULL || p->plans == NULL ||
        p->state == NULL || p->found == NULL) {
        prepared_free(&p);
        return NULL;
    }
    p->slots = leased_slots(p->leased, &p->slots_n);
    leased_on_over(p->leased, drop, p);
    /* One: who is idle beside us takes the next. */
    p->size = p->first = o->batch_first > 1 && o->batch_first <= n ? o->batch_first : 1;
    return p;
}

size_t prepared_busy(const struct prepared *p)
{
    return leased_busy(p->leased);
}

void prepared_free(struct prepared **pp)
{
    struct prepared *p = *pp;

    if (p == NULL)
        return;
    for (size_t i = 0; i < p->slots_n; i++)
        drop(p, &p->slots[i]);
    if (p->leased != NULL)
        leased_free(&p->leased);
    effect_free(&p->effect);
    arena_free(&p->arena);
    free(p->plan);
    free(p->begun);
    free(p->whose);
    free(p->jobs);
    free(p->next);
    free(p->plans);
    free(p->state);
    free(p->found);
    free(p);
    *pp = NULL;
}

static size_t count(const struct prepared *p, enum slot_phase phase)
{
    size_t n = 0;

    for (size_t i = 0; i < p->slots_n; i++)
        n += p->slots[i].phase == phase;
    return n;
}

/* --- prepare --- */

static void hand_back(struct prepared *p)
{
    for (size_t i = 0; i < p->slots_n; i++)
        if (p->slots[i].phase == SLOT_HELD) {
            p->slots[i].release = true;
            p->slots[i].phase = SLOT_ENDED;
        }
}

static void prepare_one(struct prepared *p, struct store *st, size_t i)
{
    struct slot *s = &p->slots[i];

    memset(&s->found, 0, sizeof s->found);
    s->found.exit_code = s->found.signal = -1;
    s->found.started_at_us = store_now_us(st);
    if (s->job.expires_at_us != 0 && s->found.started_at_us >= s->job.expires_at_us) {
        s->found.outcome = OUT_EXPIRED;
        s->found.error = "expired before it could start";
        s->found.error_bytes = strlen(s->found.error);
        s->phase = SLOT_ENDED;
        return;
    }
    const int64_t started_at_us = s->found.started_at_us;
    s->started = p->begun[i] = true;
    p->o.calls->prepare(p->o.ctx, st, s->task, &s->job, &p->plan[i], &s->arena, &s->found);
    s->found.started_at_us = started_at_us;
    s->found.ended_at_us = store_now_us(st);
    s->phase = s->found.outcome == OUT_DONE ? SLOT_PREPARED : SLOT_ENDED;
}

static void resize(struct prepared *p, size_t n, int64_t took_us)
{
    const int64_t fits = took_us <= 0 ? INT64_MAX : (int64_t)n * p->o.budget_us / took_us;
    const size_t most = 2 * p->size;

    if (n < p->size && fits >= (int64_t)p->size)
        return; /* the queue was short: that says nothing */
    p->size = fits < 1 ? 1 : fits < (int64_t)most ? (size_t)fits : most;
    if (p->size > p->o.batch_max)
        p->size = p->o.batch_max;
}

/* Last words while nothing is in hand: whose run has begun. */
static void list_begun(struct prepared *p, struct store *st)
{
    size_t n = 0;

    for (size_t i = 0; i < p->slots_n; i++)
        if (p->slots[i].phase != SLOT_FREE && p->slots[i].started)
            p->jobs[n++] = p->slots[i].job;
    store_blame_list(st, p->jobs, n);
    if (n > 0)
        store_blame_hand(st, n);
}

/* Acknowledged before its work: what is undone with a neighbour is not run again, but lost. So it
 * is prepared and applied by itself. */
static bool is_early(const struct slot *s)
{
    return s->task->policy.ack == ACK_EARLY;
}

/* Prepare what is held, in order of the slots. */
static void prepare_all(struct prepared *p, struct store *st)
{
    const int64_t start = mono(p);
    bool early = false, rest = false; /* the last one was; what is behind it waits for it */
    size_t n = 0, done = 0;

    for (size_t i = 0; i < p->slots_n; i++)
        if (p->slots[i].phase == SLOT_HELD)
            p->jobs[n++] = p->slots[i].job;
    if (n == 0)
        return;
    store_blame_list(st, p->jobs, n);
    for (size_t i = 0; i < p->slots_n; i++) {
        if (p->slots[i].phase != SLOT_HELD)
            continue;
        if (stopped(p) || (done > 0 && mono(p) - start > PATIENCE * p->o.budget_us))
            break;
        rest = done > 0 && (early || is_early(&p->slots[i]));
        if (rest)
            break;
        early = is_early(&p->slots[i]);
        store_blame_hand(st, done++);
        prepare_one(p, st, i);
    }
    store_blame_hand(st, done); /* none: those before it are prepared */
    resize(p, done, mono(p) - start);
    if (!rest)
        hand_back(p);
}

/* --- apply --- */

static enum pawl_rc claim_next(void *ctx, struct store *st, struct pawl_error *e)
{
    struct prepared *p = ctx;
    bool alone = false;

    leased_limit(p->leased, p->size);
    const size_t want = leased_room(p->leased, p->next_n, &alone);
    p->next_n = 0;
    memset(&p->info, 0, sizeof p->info);
    if (want == 0 || stopped(p))
        return PAWL_OK;
    return store_effect_lease(st, p->o.lane, want, alone, &p->arena, p->next, &p->next_n, &p->info,
                              e);
}

/* What is known of the given jobs goes into their slots. */
static void take_states(struct prepared *p, size_t n)
{
    for (size_t k = 0; k < n; k++) {
        struct slot *s = p->whose[k];
        const int64_t started_at_us = s->found.started_at_us;

        if (p->state[k] == GIVEN_SETTLED) {
            leased_put_away(p->leased, s);
        } else if (p->state[k] == GIVEN_OVER) {
            const struct finding was = s->found; /* how the program ended that asked for it */

            s->found = p->found[k];
            s->found.exit_code = was.exit_code;
            s->found.signal = was.signal;
            s->found.max_rss_kib = was.max_rss_kib;
            s->found.out_tail = was.out_tail;
            s->found.err_tail = was.err_tail;
            s->found.started_at_us = started_at_us;
            s->found.error = arena_dup(&s->arena, p->found[k].error, p->found[k].error_bytes);
            s->found.result = NULL;
            s->found.result_bytes = 0;
            if (s->found.error == NULL)
                s->found.error_bytes = 0;
            s->phase = SLOT_ENDED;
        }
    }
}

static enum pawl_rc apply(struct prepared *p, struct store *st, struct effect_report *out,
                          struct pawl_error *e)
{
    size_t n = 0, doubt = 0;
    enum pawl_rc rc;

    for (size_t i = 0; i < p->slots_n; i++) {
        if (p->slots[i].phase != SLOT_PREPARED || (n == 1 && (p->singly > 0 ||
                is_early(p->whose[0])))
            || (n > 0 && is_early(&p->slots[i])))
            continue;
        p->whose[n] = &p->slots[i];
        p->jobs[n] = p->slots[i].job;
        p->plans[n++] = p->plan[i];
    }
    struct effect_given g = { .jobs = p->jobs, .n = n, .plans = p->plans, .state = p->state,
                              .found = p->found, .more = claim_next, .ctx = p };
    arena_reset(&p->arena);
    p->next_n = n; /* told to claim_next: so many slots are being settled */
    rc = effect_apply(p->effect, st, &g, out, e);
    if (p->singly > 0)
        p->singly--;
    if (g.singly)
        p->singly = n;
    take_states(p, n);
    for (size_t k = 0; k < n; k++)
        doubt += p->state[k] == GIVEN_DOUBT;
    if (rc == PAWL_OK && doubt > 0)
        return leased_resolve(p->leased, st, e);
    if (rc != PAWL_OK || !g.claimed)
        return rc;
    out->info = p->info;
    return leased_adopt(p->leased, st, p->next, p->next_n, e);
}

/* --- the step --- */

static enum pawl_rc turn(struct prepared *p, struct store *st, bool claim,
                         struct effect_report *out, struct pawl_error *e)
{
    enum pawl_rc rc;

    list_begun(p, st);
    leased_limit(p->leased, p->size);
    leased_count(p->leased, out);
    rc = leased_turn(p->leased, st, claim && !stopped(p), &out->info, e);
    leased_count(p->leased, NULL);
    return rc;
}

static void add(struct effect_report *sum, const struct effect_report *one)
{
    sum->done += one->done;
    sum->stale += one->stale;
    sum->reruns += one->reruns;
    if (one->info.more || one->info.next_due_us != 0 || one->info.suspect_waiting)
        sum->info = one->info;
    if (one->job_id == 0)
        return;
    sum->job_id = one->job_id;
    sum->to = one->to;
    sum->outcome = one->outcome;
    memcpy(sum->text, one->text, sizeof sum->text);
}

enum pawl_rc prepared_step(struct prepared *p, struct store *st, struct effect_report *out,
                           struct pawl_error *e)
{
    struct effect_report local;
    enum pawl_rc rc = PAWL_OK;

    memset(out, 0, sizeof *out);
    if (leased_busy(p->leased) == 0)
        rc = turn(p, st, true, out, e);
    out->claimed = leased_busy(p->leased);
    if (rc == PAWL_OK && out->claimed == 0)
        p->size = p->first; /* what comes after a pause may be slow: it is learnt anew */
    if (rc != PAWL_OK || out->claimed == 0)
        return rc;
    prepare_all(p, st);
    while (rc == PAWL_OK && count(p, SLOT_PREPARED) > 0) {
        rc = apply(p, st, &local, e);
        add(out, &local);
    }
    if (rc == PAWL_OK && count(p, SLOT_ENDED) > 0)
        rc = turn(p, st, true, out, e);
    list_begun(p, st);
    return rc;
}

enum pawl_rc prepared_release(struct prepared *p, struct store *st, struct pawl_error *e)
{
    struct effect_report out;
    enum pawl_rc rc = PAWL_OK;

    for (size_t i = 0; i < p->slots_n; i++) {
        struct slot *s = &p->slots[i];

        if (s->phase != SLOT_HELD && s->phase != SLOT_PREPARED)
            continue;
        s->release = true;
        s->phase = SLOT_ENDED;
    }
    memset(&out, 0, sizeof out);
    if (leased_busy(p->leased) > 0)
        rc = turn(p, st, false, &out, e);
    return rc;
}
