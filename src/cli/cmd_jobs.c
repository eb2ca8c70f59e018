// SPDX-License-Identifier: Apache-2.0
/* cmd_jobs.c - pawl jobs: list jobs. pawl job ID: all that is known about one. */
#include <inttypes.h>

#include "base/text.h"
#include "cli/cli.h"
#include "cli/show.h"

enum { TTY_ROWS = 100 }; /* on a terminal, unless --limit says otherwise */

static int jobs_run(struct cli *c)
{
    struct pawl_filter f = {.task = cli_opt(c, "task"), .queue = cli_opt(c, "queue"),
                            .key = cli_opt(c, "key"), .source = cli_opt(c, "source")};
    struct show_list l = {.c = c, .tty = cli_out_tty() && !c->json};
    struct pawl_error e = {.rc = PAWL_OK};
    const char *state = cli_opt(c, "state");
    int x;
    l.limit = l.tty ? TTY_ROWS : 0;
    if (state && (x = show_state_parse(c, state, &f.state)) != 0) return x;
    if ((x = cli_int(c, "limit", 0, INT64_MAX - 1, &l.limit)) != 0) return x;
    if ((x = cli_open(c)) != 0) return x;
    f.limit = l.limit > 0 ? l.limit + 1 : 0; /* one more, to know whether there is more */
    if (pawl_jobs(c->pawl, &f, show_list_row, &l, &e) != PAWL_OK) return cli_fail(c, &e);
    if (l.more && l.tty && !cli_has(c, "limit"))
        cli_warn(c, "only the first %d are shown; --limit 0 shows all", (int)TTY_ROWS);
    return 0;
}

static int job_run(struct cli *c)
{
    int64_t id = 0;
    int x = cli_id(c, c->argv[0], &id);
    if (x != 0 || (x = cli_open(c)) != 0) return x;
    return c->json ? show_job_line(c, id, false) : show_job_page(c, id, false);
}

static const struct cli_opt jobs_opts[] = {
    {"state", 0, "STATE", "ready, running, done, dead, dropped or cancelled", 0},
    {"task", 0, "TASK", "only this task", 0},
    {"queue", 0, "QUEUE", "only this queue", 0},
    {"key", 0, "KEY", "only this key", 0},
    {"source", 0, "SOURCE", "only this source", 0},
    {"limit", 0, "N", "at most N; 0: all (default: 100 on a terminal, else all)", 0},
    {NULL, 0, NULL, NULL, 0},
};
static const char *const jobs_examples[] = {"pawl jobs --state ready --task charge", NULL};
const struct cmd_entry cmd_jobs = {
    .name = "jobs",
    .synopsis = "[OPTION...]",
    .summary = "list jobs, oldest first",
    .opts = jobs_opts,
    .examples = jobs_examples,
    .run = jobs_run,
    .notes = "On a terminal a table, elsewhere tab-separated: id, state, task, queue, key, runs, "
             "remark.\n",
};

static const char *const job_examples[] = {"pawl job 7", NULL};
const struct cmd_entry cmd_job = {
    .name = "job",
    .synopsis = "ID",
    .summary = "show one job with every attempt, and what can be done next",
    .examples = job_examples,
    .run = job_run,
    .operands_min = 1,
    .operands_max = 1,
};
