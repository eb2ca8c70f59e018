// SPDX-License-Identifier: Apache-2.0
/* frame.h - what frame.c, help.c and completion share: the common options and the help page. */
#ifndef CLI_FRAME_H
#define CLI_FRAME_H

#include "cli/cli.h"

extern const struct cli_opt cli_common_opts[]; /* db, json, config, help; ends with a NULL name */
/* Print the help of a verb (its title is c->title), or of the command when m is NULL. Returns 0. */
int cli_help(struct cli *c, const struct cmd_entry *m);

#endif
