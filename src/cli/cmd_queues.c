// SPDX-License-Identifier: Apache-2.0
/* cmd_queues.c - pawl queues, pawl stats: how much waits, how old it is, and the proof counters. */
#include <inttypes.h>
#include <stdio.h>

#include "base/text.h"
#include "cli/cli.h"
#include "cli/show.h"

struct ctx { struct cli *c; bool tty, any; };

static bool queue_row(void *vctx, const struct pawl_queue_stat *q)
{
    struct ctx *x = vctx;
    struct buf *b = &x->c->out;
    char age[32] = "-";
    if (x->c->json) {
        buf_putc(b, '{');
        cli_json_str(b, "queue", q->queue);
        cli_json_bool(b, "paused", q->paused);
        cli_json_int(b, "due", q->due);
        cli_json_int(b, "later", q->later);
        cli_json_int(b, "running", q->running);
        cli_json_int(b, "dead", q->dead);
        cli_json_at(b, "oldest_due_at", q->oldest_due_at_us);
        cli_json_str(b, "paused_tasks", q->paused_tasks);
        buf_puts(b, "}\n");
        return cli_emit(x->c);
    }
    if (q->oldest_due_at_us) show_age(cli_now_us() - q->oldest_due_at_us, age, sizeof age);
    if (x->tty && !x->any)
        buf_printf(b, "%s%10s %10s %10s %10s %8s  %s%s\n", cli_color(CLI_BOLD), "DUE", "LATER",
                   "RUNNING", "DEAD", "OLDEST", "QUEUE", cli_color(CLI_RESET));
    x->any = true;
    if (x->tty) {
        buf_printf(b, "%10" PRId64 " %10" PRId64 " %10" PRId64 " %10" PRId64 " %8s  ", q->due,
                   q->later, q->running, q->dead, age);
        cli_safe(b, q->queue, 0);
        buf_puts(b, q->paused ? " (paused)" : "");
        if (q->paused_tasks) {
            buf_puts(b, " (paused tasks: ");
            cli_safe(b, q->paused_tasks, 60);
            buf_putc(b, ')');
        }
        buf_putc(b, '\n');
    } else {
        cli_safe(b, q->queue, 0);
        buf_printf(b, "\t%" PRId64 "\t%" PRId64 "\t%" PRId64 "\t%" PRId64 "\t%s\t%s\t", q->due,
                   q->later, q->running, q->dead, age, q->paused ? "paused" : "open");
        cli_safe(b, q->paused_tasks ? q->paused_tasks : "-", 0);
        buf_putc(b, '\n');
    }
    return cli_emit(x->c);
}

static int queues_run(struct cli *c)
{
    struct ctx ctx = {.c = c, .tty = cli_out_tty()};
    struct pawl_error e = {.rc = PAWL_OK};
    int x = cli_open(c);
    if (x != 0) return x;
    return pawl_queues(c->pawl, queue_row, &ctx, &e) == PAWL_OK ? 0 : cli_fail(c, &e);
}

static bool stat_row(void *vctx, const struct pawl_stat *s)
{
    struct ctx *x = vctx;
    struct buf *b = &x->c->out;
    char n[32];
    if (x->c->json) {
        cli_json_int(b, s->name, s->value);
        return true;
    }
    if (x->tty)
        buf_printf(b, "%-24s %14s  %s\n", s->name, text_count(s->value, n, sizeof n),
                   s->help ? s->help : "");
    else
        buf_printf(b, "%s\t%" PRId64 "\t%s\n", s->name, s->value, s->help ? s->help : "");
    return cli_emit(x->c);
}

static int stats_run(struct cli *c)
{
    struct ctx ctx = {.c = c, .tty = cli_out_tty()};
    struct pawl_error e = {.rc = PAWL_OK};
    int x = cli_open(c);
    if (x != 0) return x;
    if (c->json) buf_putc(&c->out, '{');
    if (pawl_stats(c->pawl, stat_row, &ctx, &e) != PAWL_OK) {
        if (c->json) buf_clear(&c->out); /* half an object is worse than none */
        return cli_fail(c, &e);
    }
    if (c->json) buf_puts(&c->out, "}\n");
    return 0;
}

static const char *const queues_examples[] = {"pawl queues", NULL};
const struct cmd_entry cmd_queues = {
    .name = "queues",
    .synopsis = "[OPTION...]",
    .summary = "depth and age of every queue",
    .examples = queues_examples,
    .run = queues_run,
    .notes = "Elsewhere than on a terminal tab-separated: queue, due, later, running, dead, age\n"
             "of the oldest due job, open or paused, paused tasks that have jobs waiting in it.\n",
};

static const char *const stats_examples[] = {"pawl stats --json", NULL};
const struct cmd_entry cmd_stats = {
    .name = "stats",
    .synopsis = "[OPTION...]",
    .summary = "jobs by state, and the counters that prove what was absorbed",
    .examples = stats_examples,
    .run = stats_run,
};
