// SPDX-License-Identifier: Apache-2.0
/* enqueue.h - what the two ways of `pawl enqueue` share. */
#ifndef CLI_ENQUEUE_H
#define CLI_ENQUEUE_H

#include "cli/cli.h"

/* pawl enqueue --bulk FILE|-: JSON Lines, many jobs. Returns the exit code. */
int enqueue_bulk(struct cli *c, const char *path);
/* Say on standard error that no worker has declared this task, and which name is near. */
void enqueue_warn_unknown(struct cli *c, const char *task, const struct pawl_enqueued *a);

#endif
