// SPDX-License-Identifier: Apache-2.0
/* table.c - every verb of the `pawl` command, once, in the order in which help shows them. */
#include "cli/cli.h"

extern const struct cmd_entry cmd_init, cmd_enqueue, cmd_work, cmd_run, cmd_conf, cmd_apply,
    cmd_jobs, cmd_job, cmd_dead, cmd_cancel, cmd_run_now, cmd_pause, cmd_resume, cmd_queues,
    cmd_stats, cmd_check, cmd_doctor, cmd_prune, cmd_copy, cmd_debug, cmd_completion,
    cmd_help;
/* A runner, and a look at plugins: `pawl` starts itself again with these verbs. */
extern const struct cmd_entry cmd_runner, cmd_probe;

const struct cmd_entry *const cli_table[] = {
    &cmd_init,  &cmd_enqueue, &cmd_work,   &cmd_run,     &cmd_conf,   &cmd_apply,      &cmd_jobs,
    &cmd_job,   &cmd_dead,    &cmd_cancel, &cmd_run_now, &cmd_pause,  &cmd_resume,     &cmd_queues,
    &cmd_stats, &cmd_check,   &cmd_doctor, &cmd_prune,   &cmd_copy,   &cmd_debug,  &cmd_completion,
    &cmd_help,
    &cmd_runner, &cmd_probe,  NULL,
};
