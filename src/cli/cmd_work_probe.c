// SPDX-License-Identifier: Apache-2.0
/* cmd_work_probe.c - the process that `pawl work`, `conf check` and `apply` start of themselves to
 * look at the plugins of a configuration: what loading them does, it does to this one only. */
#include <fcntl.h>

#include "cli/cli.h"
#include "worker/probe.h"

static int probe_verb(struct cli *c)
{
    struct pawl_error e = {.rc = PAWL_OK};
    int x;

    if (fcntl(PROBE_FD, F_GETFD) < 0) return cli_usage(c, "started by pawl only");
    if ((x = cli_conf(c, true)) != 0) return x;
    /* What went wrong was said on the descriptor, for the one who asked. */
    return probe_run(c->conf, &e) == PAWL_OK ? 0 : pawl_rc_exit(e.rc);
}

static const char *const probe_examples[] = {"pawl conf check", NULL};
const struct cmd_entry cmd_probe = {
    .name = "__probe",
    .synopsis = "[OPTION...]",
    .summary = "a look at the plugins of a configuration; not for use by hand",
    .examples = probe_examples,
    .run = probe_verb,
    .flags = CMD_HIDDEN,
};
