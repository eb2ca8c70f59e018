// SPDX-License-Identifier: Apache-2.0
/* job_key.h - the stable key of a job, for what its handler calls outside the database. */
#ifndef HANDLER_JOB_KEY_H
#define HANDLER_JOB_KEY_H

#include "core/job.h"

#define JOB_KEY_BYTES 38 /* "pawl-" + 32 hex digits + NUL */
/* The key a handler sends to outside systems. Equal over retries and replays; made from the task,
 * the source and the job's key, or the root id of a keyless job. */
void job_idempotency_key(const char *task, const struct job *job, char out[JOB_KEY_BYTES]);

#endif
