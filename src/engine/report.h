// SPDX-License-Identifier: Apache-2.0
/* report.h - the log lines about jobs, said in one place so that the fields stay the same. */
#ifndef ENGINE_REPORT_H
#define ENGINE_REPORT_H

#include "engine/engine.h"

/* job.done, job.stale, job.retry, job.dead, job.dropped, job.lost, job.released, job.fenced ... */
void report_settled(const char *task, const struct job *job, const struct decision *d,
                    const struct finding *f);
void report_fenced(const char *task, const struct job *job, const char *why);

/* The same into a report: counts, and the last job's end. */
void report_count(struct effect_report *out, const struct job *job, const struct decision *d,
                  const struct finding *f);

#endif
