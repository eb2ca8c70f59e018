// SPDX-License-Identifier: Apache-2.0
/* cmd_jobs.c - pawl jobs: list jobs. pawl job ID: all that is known about one. */
#include <inttypes.h>
#include <string.h>

#include "base/text.h"
#include "cli/cli.h"
#include "cli/show.h"

enum { TTY_ROWS = 100 }; /* on a terminal, unless --limit says otherwise */

struct queue_names { const char *names[1000]; size_t n; struct arena *arena; };

static bool queue_name(void *ctx, const struct pawl_queue_stat *q)
{
    struct queue_names *x = ctx;
    const char *name = arena_strdup(x->arena, q->queue);
    if (name) x->names[x->n++] = name;
    return x->n < sizeof x->names / sizeof *x->names;
}

/* Nothing was found in this queue: is it that there is none of this name? */
static int queue_missing(struct cli *c, const char *queue)
{
    struct queue_names x = {.arena = &c->arena};
    struct pawl_error e = {.rc = PAWL_OK};
    struct buf b = {0};
    if (pawl_queues(c->pawl, queue_name, &x, &e) != PAWL_OK) return cli_fail(c, &e);
    for (size_t i = 0; i < x.n; i++)
        if (strcmp(x.names[i], queue) == 0) return 0;
    int near = text_nearest(queue, x.names, x.n);
    cli_safe(&b, queue, 60);
    cli_warn(c, "no queue '%s' in this store yet%s%s%s", buf_str(&b),
             near >= 0 ? "; the nearest is '" : "", near >= 0 ? x.names[near] : "",
             near >= 0 ? "'" : "");
    buf_free(&b);
    return 0;
}

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
    return l.shown == 0 && f.queue ? queue_missing(c, f.queue) : 0;
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
