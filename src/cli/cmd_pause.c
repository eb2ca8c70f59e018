// SPDX-License-Identifier: Apache-2.0
/* cmd_pause.c - pawl pause, pawl resume: stop and restart the claims of a queue or of a task. */
#include "cli/cli.h"

static int pause_or_resume(struct cli *c, bool paused)
{
    const char *task = cli_opt(c, "task"), *queue = c->argc > 0 ? c->argv[0] : NULL;
    struct pawl_error e = {.rc = PAWL_OK};
    struct buf *b = &c->out;
    int x;
    if (!task == !queue) return cli_usage(c, "give a QUEUE, or --task TASK");
    if ((x = cli_open(c)) != 0) return x;
    if (pawl_pause(c->pawl, queue, task, paused, &e) != PAWL_OK) return cli_fail(c, &e);
    if (c->json) {
        buf_putc(b, '{');
        cli_json_str(b, queue ? "queue" : "task", queue ? queue : task);
        cli_json_bool(b, "paused", paused);
        buf_puts(b, "}\n");
    } else {
        buf_puts(b, queue ? "queue " : "task ");
        cli_safe(b, queue ? queue : task, 0);
        buf_puts(b, paused ? " is paused: running jobs end, no new one starts\n" : " is resumed\n");
    }
    return 0;
}

static int pause_run(struct cli *c)
{
    return pause_or_resume(c, true);
}

static int resume_run(struct cli *c)
{
    return pause_or_resume(c, false);
}

static const struct cli_opt opts[] = {
    {"task", 0, "TASK", "a task instead of a queue", 0},
    {NULL, 0, NULL, NULL, 0},
};
static const char *const pause_examples[] = {"pawl pause default", "pawl pause --task charge",
                                             NULL};
const struct cmd_entry cmd_pause = {
    .name = "pause",
    .synopsis = "QUEUE | --task TASK",
    .summary = "start no more jobs of a queue or task; enqueue still works",
    .opts = opts,
    .examples = pause_examples,
    .run = pause_run,
    .operands_max = 1,
};

static const char *const resume_examples[] = {"pawl resume default", NULL};
const struct cmd_entry cmd_resume = {
    .name = "resume",
    .synopsis = "QUEUE | --task TASK",
    .summary = "undo pause",
    .opts = opts,
    .examples = resume_examples,
    .run = resume_run,
    .operands_max = 1,
};
