// SPDX-License-Identifier: Apache-2.0
/* leased.c - leased mode: slots, and the turn that settles what ended and claims what comes next.
 *
 * Keeps: a job is started only after its claim is known to be durable; an ended slot is kept until
 *        its settle is known to be committed or fenced; what is decided is written under the fence.
 */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/log.h"
#include "engine/engine.h"
#include "engine/report.h"

struct leased {
    const struct lane *lane;
    const struct env *env;
    struct slot *slots;
    size_t n, limit;
    bool alone;             /* a suspect is in hand: nothing else is claimed beside it */
    struct effect_report *out; /* counts what is settled; may be NULL */
    leased_over_fn *over; void *over_ctx;
    bool in_doubt;          /* a commit is: claims may be ours that no slot knows of */
};

struct leased *leased_new(const struct lane *lane, size_t slots_n, const struct env *env)
{
    struct leased *l = calloc(1, sizeof *l);

    assert(slots_n >= 1 && slots_n <= LIMIT_CONCURRENCY);
    if (l == NULL)
        return NULL;
    l->lane = lane;
    l->env = env != NULL ? env : env_real();
    l->n = l->limit = slots_n;
    l->slots = calloc(slots_n, sizeof *l->slots);
    if (l->slots == NULL)
        leased_free(&l);
    return l;
}

void leased_free(struct leased **p)
{
    struct leased *l = *p;

    if (l == NULL)
        return;
    for (size_t i = 0; l->slots != NULL && i < l->n; i++)
        arena_free(&l->slots[i].arena);
    free(l->slots);
    free(l);
    *p = NULL;
}

void leased_on_over(struct leased *l, leased_over_fn *fn, void *ctx)
{
    l->over = fn;
    l->over_ctx = ctx;
}

void leased_count(struct leased *l, struct effect_report *out)
{
    l->out = out;
}

void leased_limit(struct leased *l, size_t n)
{
    l->limit = n == 0 || n > l->n ? l->n : n;
}

struct slot *leased_slots(struct leased *l, size_t *n)
{
    *n = l->n;
    return l->slots;
}

size_t leased_busy(const struct leased *l)
{
    size_t busy = 0;

    for (size_t i = 0; i < l->n; i++)
        busy += l->slots[i].phase != SLOT_FREE;
    return busy;
}

static void set_free(struct slot *s)
{
    arena_reset(&s->arena);
    memset(&s->job, 0, sizeof s->job);
    memset(&s->found, 0, sizeof s->found);
    s->phase = SLOT_FREE;
    s->release = s->lost = s->said = false;
    s->task = NULL;
    s->started = false;
}

void leased_put_away(struct leased *l, struct slot *s)
{
    if (l->over != NULL && s->phase != SLOT_FREE)
        l->over(l->over_ctx, s);
    set_free(s);
}

static struct decision as_it_was(const struct job *job)
{
    struct decision d = { .to = PAWL_STATE_READY, .outcome = OUT_RELEASED, .n = job->n,
                          .keep_place = true, .suspect = job->suspect };

    (void)snprintf(d.reason, sizeof d.reason, "claimed, but never started: nothing is counted");
    return d;
}

/* What to settle: every ended slot that somebody else has not decided. */
static size_t collect(struct leased *l, struct settle *out, struct slot **whose)
{
    const int64_t now = l->env->wall_us(l->env->ctx);
    size_t n = 0;

    for (size_t i = 0; i < l->n; i++) {
        struct slot *s = &l->slots[i];

        if (s->phase != SLOT_ENDED)
            continue;
        if (s->lost) {
            leased_put_away(l, s);
            continue;
        }
        if (s->release && !s->said && s->found.outcome != OUT_RELEASED) {
            s->found.outcome = OUT_RELEASED;
            s->found.exit_code = s->found.signal = -1;
        }
        memset(&out[n], 0, sizeof out[n]);
        out[n].job = &s->job;
        out[n].found = &s->found;
        out[n].task_id = s->task->id;
        out[n].unclaim = s->release && !s->started && !s->said;
        out[n].arena = &s->arena;
        out[n].heeded = s->said;
        if (out[n].unclaim)
            out[n].d = as_it_was(&s->job);
        else
            out[n].d = decide(&s->job, &s->task->policy, &s->found, now, l->env);
        whose[n++] = s;
    }
    return n;
}

/* Nothing happened to the job: of interest to who looks closely only. */
static void report_unclaimed(const struct settle *st, const struct slot *s)
{
    log_line(LOG_DEBUG, "job.released", "i:job", s->job.id, "s:task", s->task->name, "s:key",
             s->job.key, "i:attempt", s->job.token, "s:reason", st->d.reason, NULL);
}

static void report(const struct leased *l, struct settle *st, struct slot *s)
{
    if (st->result == SETTLE_FENCED) {
        report_fenced(s->task->name, &s->job, "the lease had moved on: its result is not taken");
        return;
    }
    if (st->result == SETTLE_STALE)
        st->d.outcome = OUT_STALE;
    if (st->unclaim)
        report_unclaimed(st, s);
    else
        report_settled(s->task->name, &s->job, &st->d, &s->found);
    if (l->out != NULL)
        report_count(l->out, &s->job, &st->d, &s->found);
}

/* The handler has committed how its run ended: that stands; what the worker saw is evidence. */
static void heed(struct slot *s, const struct said *said)
{
    s->said = true;
    s->found.outcome = said->outcome;
    s->found.retry_after_us = said->after_us;
    s->found.result = NULL;
    s->found.result_bytes = 0;
    s->found.error = said->error != NULL ? said->error
                   : said->outcome == OUT_SNOOZE ? NULL : "the handler gave no reason";
    s->found.error_bytes = s->found.error != NULL ? strlen(s->found.error) : 0;
}

/* Slots whose settle is known become free; the others stay to be settled by a later turn. */
static void put_away(struct leased *l, struct settle *st, struct slot **whose, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (st[i].result == SETTLE_PENDING)
            continue;
        if (st[i].result == SETTLE_SAID) { /* still ended: the next turn settles it so */
            heed(whose[i], &st[i].said);
            continue;
        }
        if (st[i].result == SETTLE_CONFLICT) { /* still ended: the next turn buries it */
            whose[i]->found.outcome = OUT_CONFLICT;
            whose[i]->found.error = arena_strdup(&whose[i]->arena,
                "the same version was applied meanwhile, with other args");
            whose[i]->found.error_bytes =
                whose[i]->found.error != NULL ? strlen(whose[i]->found.error) : 0;
            continue;
        }
        report(l, &st[i], whose[i]);
        leased_put_away(l, whose[i]);
    }
}

/* Give a claimed job a slot of its own, its strings copied into the slot's arena. */
static bool adopt(struct leased *l, struct slot *s, const struct job *job)
{
    struct arena *a = &s->arena;

    set_free(s);
    s->job = *job;
    s->task = &l->lane->tasks[job->task_i];
    s->job.queue = arena_strdup(a, job->queue);
    s->job.source = arena_strdup(a, job->source);
    s->job.key = arena_strdup(a, job->key);
    s->job.args = arena_dup(a, job->args, job->args_bytes);
    s->job.headers = arena_strdup(a, job->headers);
    s->job.trace = arena_strdup(a, job->trace);
    s->job.entity = arena_strdup(a, job->entity);
    s->phase = SLOT_HELD;
    return s->job.queue != NULL && (job->args == NULL || s->job.args != NULL) &&
           (job->key == NULL || s->job.key != NULL) && (job->source == NULL ||
                                                        s->job.source != NULL);
}

static enum pawl_rc admit(struct leased *l, struct store *st, struct slot *s, struct pawl_error *e)
{
    bool run = false;
    enum pawl_rc rc = engine_admit(st, s->task, &s->job, &s->arena, &s->found, &run, e);

    if (rc != PAWL_OK) {
        /* Held but not judged: hand it back rather than start it blindly. */
        s->phase = SLOT_ENDED;
        s->release = true;
        log_line(LOG_WARN, "job.admit", "i:job", s->job.id, "s:task", s->task->name, "s:why",
                 e != NULL ? e->msg : NULL, NULL);
        return PAWL_OK;
    }
    if (!run)
        s->phase = SLOT_ENDED;
    if (s->job.suspect)
        l->alone = true;
    return PAWL_OK;
}

static struct slot *a_free_slot(struct leased *l)
{
    for (size_t i = 0; i < l->n; i++)
        if (l->slots[i].phase == SLOT_FREE)
            return &l->slots[i];
    return NULL;
}

static enum pawl_rc resolve(struct leased *l, struct store *st, struct settle *se,
                            struct slot **whose, size_t n, struct pawl_error *e)
{
    int64_t held[LIMIT_CONCURRENCY];
    size_t held_n = 0;

    for (size_t i = 0; i < l->n; i++)
        if (l->slots[i].phase != SLOT_FREE)
            held[held_n++] = l->slots[i].job.id;
    enum pawl_rc rc = store_resolve(st, se, n, held, held_n, e);
    l->in_doubt = rc != PAWL_OK; /* the store may be in trouble still: the next turn asks again */
    if (rc == PAWL_OK)
        put_away(l, se, whose, n);
    return rc;
}

enum pawl_rc leased_resolve(struct leased *l, struct store *st, struct pawl_error *e)
{
    struct settle se[LIMIT_CONCURRENCY] = {0};
    struct slot *whose[LIMIT_CONCURRENCY];
    size_t n = 0;

    for (size_t i = 0; i < l->n; i++) {
        if (l->slots[i].phase != SLOT_PREPARED && l->slots[i].phase != SLOT_ENDED)
            continue;
        se[n].job = &l->slots[i].job;
        se[n].found = &l->slots[i].found;
        se[n].task_id = l->slots[i].task->id;
        se[n].d = (struct decision){ .to = PAWL_STATE_DONE, .outcome = OUT_DONE };
        whose[n++] = &l->slots[i];
    }
    return resolve(l, st, se, whose, n, e);
}

/* Room of slots that are about to be settled counts: they are free once that very commit is. */
size_t leased_room(struct leased *l, size_t settling, bool *alone)
{
    const size_t busy = leased_busy(l) - settling;

    *alone = busy == 0;
    if (busy == 0)
        l->alone = false;
    return l->alone || busy >= l->limit ? 0 : l->limit - busy;
}

enum pawl_rc leased_adopt(struct leased *l, struct store *st, const struct job *jobs, size_t n,
                          struct pawl_error *e)
{
    enum pawl_rc rc = PAWL_OK;

    for (size_t i = 0; i < n && rc == PAWL_OK; i++) {
        struct slot *s = a_free_slot(l);

        /* One whose settle met a conflict has kept its slot: the next turn puts back what is leased
         * to us and in none, at no cost. */
        if (s == NULL) {
            l->in_doubt = true;
            continue;
        }
        if (adopt(l, s, &jobs[i])) {
            rc = admit(l, st, s, e);
        } else {
            s->phase = SLOT_ENDED;
            s->release = true;
        }
    }
    return rc;
}

enum pawl_rc leased_turn(struct leased *l, struct store *st, bool claim, struct claim_info *info,
                         struct pawl_error *e)
{
    struct settle se[LIMIT_CONCURRENCY];
    struct slot *whose[LIMIT_CONCURRENCY];
    struct job jobs[LIMIT_CONCURRENCY];
    struct arena arena = {0};
    size_t jobs_n = 0;
    enum pawl_rc rc;

    memset(info, 0, sizeof *info);
    size_t n = collect(l, se, whose);
    if (l->in_doubt) {
        if ((rc = resolve(l, st, se, whose, n, e)) != PAWL_OK)
            return rc;
        n = collect(l, se, whose);
    }
    bool alone = false;
    const size_t room = leased_room(l, n, &alone);
    const size_t want = claim ? room : 0;
    rc = store_turn(st, se, n, l->lane, want, alone, &arena, jobs, &jobs_n, info, e);
    if (rc == PAWL_UNSURE) {
        log_line(LOG_WARN, "turn.in_doubt", "s:why", e != NULL ? e->msg : NULL, NULL);
        rc = resolve(l, st, se, whose, n, e);
        jobs_n = 0;
    } else if (rc == PAWL_OK) {
        put_away(l, se, whose, n);
    }
    if (rc == PAWL_OK)
        rc = leased_adopt(l, st, jobs, jobs_n, e);
    arena_free(&arena);
    return rc;
}

enum pawl_rc leased_refresh(struct leased *l, struct store *st, size_t *lost_n,
                            struct pawl_error *e)
{
    int64_t ids[LIMIT_CONCURRENCY + 1];
    size_t n = 0;
    enum pawl_rc rc = store_held(st, ids, LIMIT_CONCURRENCY + 1, &n, e);

    *lost_n = 0;
    /* Leased to us and in no slot: a claim that was thought not to have been committed. */
    for (size_t k = 0; k < n && rc == PAWL_OK && !l->in_doubt; k++) {
        bool known = false;

        for (size_t i = 0; i < l->n && !known; i++)
            known = l->slots[i].phase != SLOT_FREE && l->slots[i].job.id == ids[k];
        l->in_doubt = !known;
    }
    for (size_t i = 0; i < l->n && rc == PAWL_OK; i++) {
        struct slot *s = &l->slots[i];
        bool held = s->phase == SLOT_FREE || s->lost;

        for (size_t k = 0; k < n && !held; k++)
            held = ids[k] == s->job.id;
        if (held)
            continue;
        s->lost = true;
        ++*lost_n;
    }
    return rc;
}
