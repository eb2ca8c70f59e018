// SPDX-License-Identifier: Apache-2.0
/* decide.c - what becomes of a job after a run. The one place where the bounds are applied.
 *
 * Keeps: a job that goes back to ready has failures <= max_retries, lost < lost_cap,
 *        releases < LIMIT_RELEASES, snoozes < LIMIT_SNOOZES and does not start after expires_at;
 *        early ack never goes back to ready; every move is in the table of lifecycle.c.
 * Never: reads a clock or the store; the store executes the decision under its fence.
 */
#include "core/rules.h"

#include <assert.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include "base/text.h"
#include "base/utf8.h"
#include "core/lifecycle.h"

/* What all the rules below need. */
struct why {
    const struct job *job;
    const struct policy *p;
    const struct finding *f;
    int64_t now_us;
    const struct env *env;
    struct decision d;
};

static void move(struct why *w, enum event ev)
{
    w->d.to = lifecycle_next(PAWL_STATE_RUNNING, ev);
    assert(w->d.to != PAWL_STATE_N);
    /* In effect mode the job is still ready when this is decided: the same move from there. */
    assert(ev == EV_RELEASE || lifecycle_next(PAWL_STATE_READY, ev) == w->d.to);
}

/* The reason, then the first line of the error, cut to fit. */
static __attribute__((format(printf, 2, 3))) void say(struct why *w, const char *fmt, ...)
{
    char raw[sizeof w->d.reason];
    const char *err = w->f->error, *end;
    size_t err_n = err == NULL ? 0 : w->f->error_bytes, at;
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(raw, sizeof raw, fmt, ap);
    va_end(ap);
    at = text_copy_safe(w->d.reason, sizeof w->d.reason, 0, raw, strlen(raw));
    while (err_n > 0 && (*err == '\n' || *err == ' ')) err++, err_n--;
    if (err_n == 0) return;
    if ((end = memchr(err, '\n', err_n)) != NULL) err_n = (size_t)(end - err);
    at = text_copy_safe(w->d.reason, sizeof w->d.reason, at, ": ", 2);
    text_copy_safe(w->d.reason, sizeof w->d.reason, at, err, err_n);
}

static void bury(struct why *w, enum dead_class c)
{
    move(w, EV_BURY);
    w->d.dead = c;
    w->d.suspect = false;
}

static void drop(struct why *w, const char *as)
{
    move(w, EV_DROP);
    w->d.drop = as;
    w->d.suspect = false;
}

/* Back to ready by `ev`, `delay_us` from now or in the old place; dead if past expires_at. */
static void again(struct why *w, enum event ev, int64_t delay_us, bool keep_place)
{
    struct decision *d = &w->d;
    int64_t limit = LIMIT_INSTANT_MAX_US, next = w->job->run_at_us;

    if (!keep_place) next = w->now_us > limit - delay_us ? limit : w->now_us + delay_us;
    int64_t start = next > w->now_us ? next : w->now_us; /* the earliest it can really begin */
    if (w->job->expires_at_us > 0 && start > w->job->expires_at_us) {
        char at[40];
        bury(w, DEAD_EXPIRED);
        say(w, "the next run would be after expires_at %s",
            text_instant(w->job->expires_at_us, at, sizeof at));
        return;
    }
    move(w, ev);
    d->run_at_us = next;
    d->delay_us = start - w->now_us;
    d->keep_place = keep_place;
}

static int64_t retries_of(const struct why *w)
{
    int64_t n = w->job->max_retries >= 0 ? w->job->max_retries : w->p->max_retries;

    return n < 0 ? 0 : n > LIMIT_RETRIES ? LIMIT_RETRIES : n;
}

static void failed(struct why *w)
{
    struct decision *d = &w->d;
    int64_t max = retries_of(w), delay;
    char text[40];

    if (d->n.failures > max) {
        bury(w, DEAD_EXHAUSTED);
        if (max == 0) say(w, "no retries are allowed");
        else say(w, "%" PRId64 " %s used up; last", max, max == 1 ? "retry" : "retries");
        return;
    }
    delay = retry_delay_us(w->p, d->n.failures, w->f->retry_after_us, w->env);
    say(w, "retry %" PRId64 " of %" PRId64 " in %s", d->n.failures, max,
        text_duration(delay - delay % 1000, text, sizeof text));
    again(w, EV_RETRY, delay, false);
}

static void lost(struct why *w)
{
    struct decision *d = &w->d;
    int cap = w->p->lost_cap < 1 ? 1 : w->p->lost_cap;

    if (d->n.lost >= cap) {
        bury(w, DEAD_POISON);
        say(w, "its run ended with the death of the process %" PRId64 " times, lost_cap is %d",
            d->n.lost, cap);
        return;
    }
    d->suspect = w->job->suspect; /* an open suspicion stays until a run comes to an end */
    say(w, "the process running it died (%" PRId64 " of %d before dead)", d->n.lost, cap);
    again(w, EV_LOST, 0, true);
}

static void released(struct why *w)
{
    if (w->d.n.releases >= LIMIT_RELEASES) {
        bury(w, DEAD_EXHAUSTED);
        say(w, "handed back or taken over %d times: it takes longer than its workers live, or than"
            " their lease without pawl_run_heartbeat()", LIMIT_RELEASES);
        return;
    }
    w->d.suspect = w->job->suspect;
    say(w, w->f->taken_over ? "taken over" : "handed back by a stopping worker");
    again(w, EV_RELEASE, 0, true);
}

static void snoozed(struct why *w)
{
    char text[40];
    int64_t delay;

    if (w->d.n.snoozes >= LIMIT_SNOOZES) {
        bury(w, DEAD_EXHAUSTED);
        say(w, "asked to be run later %d times", LIMIT_SNOOZES);
        return;
    }
    delay = snooze_delay_us(w->f->retry_after_us, w->env);
    say(w, "asked to be run again in %s", text_duration(delay - delay % 1000, text, sizeof text));
    again(w, EV_SNOOZE, delay, false);
}

/* Early ack: whatever a started run came to, it never goes back. returns false: not such an end. */
static bool early(struct why *w)
{
    switch (w->d.outcome) {
    case OUT_TRANSIENT: case OUT_TIMEOUT: case OUT_PERMANENT: case OUT_MISUSE: case OUT_DISCARD:
        drop(w, "failed");
        say(w, "failed, and ack = early never runs a job twice");
        return true;
    case OUT_SNOOZE:
        drop(w, "failed");
        say(w, "asked to be run later, but ack = early never runs a job twice");
        return true;
    case OUT_LOST: case OUT_SUSPECT:
        drop(w, "lost");
        say(w, "the process running it died, and ack = early never runs a job twice");
        return true;
    case OUT_RELEASED:
        drop(w, "lost");
        say(w, "%s, and ack = early never runs a job twice",
            w->f->taken_over ? "taken over from its worker" : "stopped with its worker");
        return true;
    default:
        return false;
    }
}

static void late(struct why *w)
{
    switch (w->d.outcome) {
    case OUT_TRANSIENT: case OUT_TIMEOUT: failed(w); break;
    case OUT_LOST:     lost(w); break;
    case OUT_RELEASED: released(w); break;
    case OUT_SNOOZE:   snoozed(w); break;
    case OUT_SUSPECT:
        w->d.suspect = true;
        say(w, "died together with others: runs next and alone, nothing is counted");
        again(w, EV_SUSPECT, 0, true);
        break;
    case OUT_DISCARD:
        drop(w, "failed");
        say(w, w->f->exit_code >= 0 ? "ended in a way that the task's policy discards"
                                    : "its handler discarded it");
        break;
    case OUT_PERMANENT:
        bury(w, DEAD_PERMANENT);
        say(w, "cannot succeed as it is");
        break;
    case OUT_EXPIRED:
        bury(w, DEAD_EXPIRED);
        say(w, "expires_at passed before it was started");
        break;
    case OUT_UNDECODABLE:
        bury(w, DEAD_UNDECODABLE);
        say(w, "the args are not acceptable");
        break;
    case OUT_CONFLICT:
        bury(w, DEAD_CONFLICT);
        say(w, "the same version was applied with other args");
        break;
    case OUT_MISUSE:
        bury(w, DEAD_MISUSE);
        say(w, "the handler broke the rules of the transaction");
        break;
    case OUT_CANCELLED:
        move(w, EV_CANCEL);
        say(w, "cancelled");
        break;
    case OUT_DONE: case OUT_STALE: case OUT_N:
        move(w, EV_DONE);
        break;
    }
}

/* The counters are facts about this run: they rise whatever is then decided. */
static void count(struct counters *n, enum outcome o)
{
    n->runs++;
    switch (o) {
    case OUT_TRANSIENT: case OUT_TIMEOUT: case OUT_PERMANENT: case OUT_DISCARD: case OUT_MISUSE:
        n->failures++;
        break;
    case OUT_LOST:     n->lost++; break;
    case OUT_RELEASED: n->releases++; break;
    case OUT_SNOOZE:   n->snoozes++; break;
    default: break;
    }
}

struct decision decide(const struct job *job, const struct policy *p, const struct finding *f,
                       int64_t now_us, const struct env *env)
{
    struct why w = { .job = job, .p = p, .f = f, .now_us = now_us, .env = env };

    assert((unsigned)f->outcome < OUT_N);
    assert(job->n.runs >= 0 && job->n.failures >= 0 && job->n.lost >= 0);
    w.d.outcome = f->outcome;
    w.d.n = job->n;
    if (f->outcome != OUT_DONE && f->outcome != OUT_STALE) count(&w.d.n, f->outcome);
    if (p->ack != ACK_EARLY || !early(&w)) late(&w);
    if (w.d.to == PAWL_STATE_READY) {
        assert(p->ack != ACK_EARLY);
        assert(w.d.n.failures <= retries_of(&w) || f->outcome != OUT_TRANSIENT);
        assert(w.d.n.releases < LIMIT_RELEASES || f->outcome != OUT_RELEASED);
        assert(w.d.n.snoozes < LIMIT_SNOOZES || f->outcome != OUT_SNOOZE);
    }
    return w.d;
}
