// SPDX-License-Identifier: Apache-2.0
/* cmd_run_c.h - pawl run of a C task. */
#ifndef CLI_CMD_RUN_C_H
#define CLI_CMD_RUN_C_H

#include "cli/cli.h"
#include "core/job.h"
#include "store/store.h"

/* The store that the command line and the configuration name: 0, or the exit code, printed. */
int run_open_store(struct cli *c, struct store **st);
/* Run the handler of t once, in a process of its own. Call it while no store is open. 0 and *f
 * filled (strings in the arena), or the exit code, printed. */
int run_c(struct cli *c, struct conf_task *t, const struct job *job, bool dry, struct finding *f);

#endif
