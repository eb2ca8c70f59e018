// SPDX-License-Identifier: Apache-2.0
/* report.c - log lines about jobs: event, job, task, key, attempt, and why (doc/logs.md). */
#include <stdio.h>
#include <string.h>
#include "base/log.h"
#include "engine/report.h"

static const char *event_of(const struct decision *d)
{
    switch (d->to) {
    case PAWL_STATE_DONE: return d->outcome == OUT_STALE ? "job.stale" : "job.done";
    case PAWL_STATE_DEAD: return "job.dead";
    case PAWL_STATE_DROPPED: return "job.dropped";
    default: break;
    }
    switch (d->outcome) {
    case OUT_LOST: return "job.lost";
    case OUT_SUSPECT: return "job.suspect";
    case OUT_RELEASED: return "job.released";
    case OUT_SNOOZE: return "job.snooze";
    default: return "job.retry";
    }
}

void report_settled(const char *task, const struct job *job, const struct decision *d,
                    const struct finding *f)
{
    const bool again = d->to == PAWL_STATE_READY;
    /* A death wants a person; the rest is the life of a job. */
    const enum log_level lv = d->to == PAWL_STATE_DEAD ? LOG_ERROR
                            : d->to == PAWL_STATE_DROPPED || d->outcome == OUT_LOST
                              || d->outcome == OUT_SUSPECT ? LOG_WARN
                            : again && d->outcome != OUT_SNOOZE ? LOG_INFO : LOG_DEBUG;

    /* The decision often ends with the cause: said once. */
    const char *why = f != NULL ? f->error : NULL;
    if (why != NULL && d->to != PAWL_STATE_DONE && strstr(d->reason, why) != NULL) why = NULL;
    log_line(lv, event_of(d), "i:job", job->id, "s:task", task, "s:key", job->key, "i:attempt",
             job->token, "s:outcome", outcome_name(d->outcome),
             "s:class", d->to == PAWL_STATE_DEAD ? dead_class_name(d->dead) : NULL,
             "s:reason", d->to == PAWL_STATE_DONE ? NULL : d->reason,
             "s:why", why,
             again ? "t:delay" : NULL, d->delay_us, NULL);
}

void report_fenced(const char *task, const struct job *job, const char *why)
{
    log_line(LOG_WARN, "job.fenced", "i:job", job->id, "s:task", task, "s:key", job->key,
             "i:attempt", job->token, "s:why", why, NULL);
}

/* Where the error begins in the reason, of which it is the end, cut to fit; or the reason's length:
 * it is not in there. */
static size_t error_at(const char *reason, const char *error)
{
    const size_t n = strlen(reason);

    for (size_t at = 0; at < n; at++)
        if (strncmp(reason + at, error, n - at) == 0 && (at == 0 || reason[at - 1] == ' '))
            return at;
    return n;
}

void report_count(struct effect_report *out, const struct job *job, const struct decision *d,
                  const struct finding *f)
{
    out->done += d->to == PAWL_STATE_DONE && d->outcome == OUT_DONE;
    out->stale += d->to == PAWL_STATE_DONE && d->outcome != OUT_DONE;
    out->dead += d->to == PAWL_STATE_DEAD;
    out->dropped += d->to == PAWL_STATE_DROPPED;
    out->released += d->to == PAWL_STATE_READY && d->outcome == OUT_RELEASED;
    out->retried += d->to == PAWL_STATE_READY && d->outcome != OUT_RELEASED;
    out->job_id = job->id;
    out->to = d->to;
    out->outcome = d->outcome;
    out->text[0] = '\0';
    if (d->to == PAWL_STATE_DONE)
        return;
    const char *why = f->error != NULL && strstr(d->reason, f->error) == NULL ? f->error : "";
    const size_t n = *why != '\0' ? error_at(d->reason, why) : strlen(d->reason);
    const bool apart = *why != '\0' && n > 0 && d->reason[n] == '\0';
    (void)snprintf(out->text, sizeof out->text, "%.*s%s%s", (int)n, d->reason, apart ? ": " : "",
                   why);
}
