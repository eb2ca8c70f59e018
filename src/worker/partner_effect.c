// SPDX-License-Identifier: Apache-2.0
/* partner_effect.c - what the supervisor asks of the effect runner alone: to hold still; and what
 * each runner is on.
 *
 * Keeps: the runner holds still while a leased suspect runs; a job that stays past its hard limit
 *        and past the runner's own watchdog ends with its runner.
 */
#include "base/err.h"
#include "base/log.h"
#include "worker/super.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>

#define LONG_US (5 * INT64_C(1000000))    /* a job that keeps the write lock this long is named */
#define START_US (30 * INT64_C(1000000))  /* as long as the probe may take */
#define BEYOND_US (15 * INT64_C(1000000)) /* the watchdog has had its time, and did not bark */

/* --- to hold still --- */

bool partner_still(struct sup *s)
{
    struct partner *p = &s->partner;

    if (!partner_lives(p)) return true;
    if (!p->pausing) p->pausing = partner_say(p, LINK_PAUSE);
    return p->paused;
}

void partner_arbitrate(struct sup *s)
{
    struct partner *p = &s->partner;

    if (p->pausing && !children_alone(s)) {
        if (partner_say(p, LINK_RESUME)) p->pausing = p->paused = false;
    }
}

/* --- what they are on --- */

static int64_t in_hand(const struct sup *s, const struct partner *p, int64_t now_us,
                       int64_t *for_us)
{
    int64_t since_us = 0, job = 0;

    if (partner_lives(p)) job = store_in_hand(s->st, p->id[0] != '\0' ? p->id : NULL, &since_us);
    *for_us = job != 0 && now_us > since_us ? now_us - since_us : 0;
    return job;
}

int64_t partner_job(const struct sup *s, int64_t now_us, int64_t *for_us)
{
    return in_hand(s, &s->partner, now_us, for_us);
}

static bool take_task(void *ctx, const struct pawl_job *job)
{
    snprintf(ctx, LIMIT_NAME_BYTES + 1, "%s", job->task);
    return false;
}

static int64_t limit_of(const struct lane *l, const char *task)
{
    for (size_t i = 0; i < l->tasks_n; i++) {
        if (strcmp(l->tasks[i].name, task) == 0) return l->tasks[i].policy.hard_limit_us;
    }
    return 0;
}

/* A handler may have turned the watchdog's signal or timer off, or stopped its process. */
static void end_late(struct sup *s, struct partner *p, int64_t job, int64_t for_us)
{
    if (p->late || p->long_limit_us <= 0 || for_us < p->long_limit_us + BEYOND_US) return;
    p->late = true;
    log_line(LOG_ERROR, "runner.late", "s:worker", s->id, "d:job", job, "t:for", for_us,
             "i:pid", (int64_t)p->pid, "s:why",
             "its job is past its hard limit and the runner does not end: it is killed", NULL);
    (void)kill(p->pid, SIGKILL);
}

/* A plugin may wait for ever as it is loaded, though it did not in the probe. */
static void end_unborn(struct sup *s, struct partner *p, int64_t now_us)
{
    if (p->phase != PARTNER_STARTING || p->ending || now_us - p->up_at_us < START_US) return;
    log_line(LOG_ERROR, "runner.late", "s:worker", s->id, "t:for", now_us - p->up_at_us, "i:pid",
             (int64_t)p->pid, "s:why", "it does not come up (a plugin that waits as it is loaded?):"
             " it is killed", NULL);
    p->up_at_us = now_us;
    (void)kill(p->pid, SIGKILL);
}

static void watch_one(struct sup *s, struct partner *p, int64_t now_us)
{
    const bool effect = p == &s->partner;
    char task[LIMIT_NAME_BYTES + 1] = "?";
    struct pawl_error e = {0};
    int64_t for_us = 0, job = in_hand(s, p, now_us, &for_us);

    end_unborn(s, p, now_us);
    if (job == 0 || for_us < LONG_US) return;
    if (p->long_since_us == now_us - for_us) {
        end_late(s, p, job, for_us);
        return;
    }
    p->long_since_us = now_us - for_us;
    if (store_job(s->st, job, take_task, task, &e) != PAWL_OK) task[0] = '?', task[1] = '\0';
    p->long_limit_us = limit_of(effect ? &s->lanes.effect.lane : &s->lanes.prepared.lane, task);
    if (!effect) return; /* that a prepare takes long is its right, and harms nobody */
    log_line(LOG_WARN, "effect.long", "s:worker", s->id, "d:job", job, "s:task", task, "t:for",
             for_us, "i:runner_pid", (int64_t)p->pid, "s:why",
             strncmp(s->o->url, "postgres", 8) == 0
                 ? "its transaction is open, with locks on rows; its hard_limit ends it"
                 : "it holds the store's write lock; its hard_limit ends it", NULL);
}

void partner_watch(struct sup *s, int64_t now_us)
{
    watch_one(s, &s->partner, now_us);
    for (size_t i = 0; i < s->crew_n; i++) watch_one(s, &s->crew[i], now_us);
}
