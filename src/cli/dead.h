// SPDX-License-Identifier: Apache-2.0
/* dead.h - what the verbs of `pawl dead` share. */
#ifndef CLI_DEAD_H
#define CLI_DEAD_H

#include "cli/cli.h"

/* The filter of --task, --class and --since: 0, or the exit code, printed. */
int dead_filter(struct cli *c, struct pawl_filter *f);
/* The ids that match now, ascending, into *ids (the caller frees it): what dies later is not among
 * them, however long the caller works on the list. 0, or the exit code, printed. */
int dead_ids(struct cli *c, const struct pawl_filter *f, int64_t **ids, size_t *n);

extern const struct cmd_entry cmd_dead_replay;

#endif
