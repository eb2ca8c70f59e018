// SPDX-License-Identifier: Apache-2.0
/* cmd_dead.c - pawl dead list, show, discard, export: the dead letters (replay: dead_replay.c). */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "cli/cli.h"
#include "cli/dead.h"
#include "cli/show.h"

enum { TTY_ROWS = 100 };

int dead_filter(struct cli *c, struct pawl_filter *f)
{
    int x;
    f->state = PAWL_STATE_DEAD + 1;
    f->task = cli_opt(c, "task");
    f->dead_class = cli_opt(c, "class");
    if ((x = show_class_check(c, f->dead_class)) != 0) return x;
    const char *since = cli_opt(c, "since");
    int64_t us = 0;
    if (!since) return 0;
    /* A duration counts back from now: --since 2h. */
    if (!strchr(since, '-')) {
        if (!text_duration_us(since, &us))
            return cli_when(c, "since", &us); /* says what may stand here */
        f->since_at_us = cli_now_us() - us;
        return 0;
    }
    return cli_instant(c, "since", &f->since_at_us);
}

static int list_run(struct cli *c)
{
    struct pawl_filter f = {.unreplayed = !cli_has(c, "replayed")};
    struct show_list l = {.c = c, .tty = cli_out_tty() && !c->json};
    struct pawl_error e = {.rc = PAWL_OK};
    int x;
    l.limit = l.tty ? TTY_ROWS : 0;
    if ((x = dead_filter(c, &f)) != 0) return x;
    if ((x = cli_int(c, "limit", 0, INT64_MAX - 1, &l.limit)) != 0) return x;
    if ((x = cli_open(c)) != 0 || (x = dead_filter(c, &f)) != 0) return x; /* by its clock */
    f.limit = l.limit > 0 ? l.limit + 1 : 0;
    if (pawl_jobs(c->pawl, &f, show_list_row, &l, &e) != PAWL_OK) return cli_fail(c, &e);
    if (l.more && l.tty && !cli_has(c, "limit"))
        cli_warn(c, "only the first %d are shown; --limit 0 shows all", (int)TTY_ROWS);
    return 0;
}

static int show_run(struct cli *c)
{
    int64_t id = 0;
    int x = cli_id(c, c->argv[0], &id);
    if (x != 0 || (x = cli_open(c)) != 0) return x;
    return c->json ? show_job_line(c, id, true) : show_job_page(c, id, true);
}

/* --- discard --- */
static int discard_one(struct cli *c, int64_t id)
{
    struct pawl_error e = {.rc = PAWL_OK};
    struct buf *b = &c->out;
    enum pawl_rc rc = pawl_dead_discard(c->pawl, id, cli_opt(c, "reason"), &e);
    if (rc != PAWL_OK && rc != PAWL_TOOLATE && rc != PAWL_NOTFOUND) return cli_fail(c, &e);
    if (c->json) {
        buf_putc(b, '{');
        cli_json_id(b, "id", id);
        cli_json_str(b, "result", rc == PAWL_OK        ? "discarded"
                                  : rc == PAWL_TOOLATE ? "too_late"
                                                       : "not_found");
        cli_json_str(b, "why", rc == PAWL_OK ? NULL : e.msg);
        buf_puts(b, "}\n");
    } else if (rc == PAWL_OK) {
        buf_printf(b, "%" PRId64 " discarded\n", id);
    } else {
        buf_printf(b, "%" PRId64 " not discarded: ", id);
        cli_safe(b, e.msg, 0);
        buf_putc(b, '\n');
    }
    return rc == PAWL_OK ? 0 : EXIT_NO;
}

static int discard_run(struct cli *c)
{
    const char *reason = cli_opt(c, "reason");
    if (!reason || !*reason) return cli_usage(c, "say why with --reason TEXT");
    int x = cli_open(c);
    return x != 0 ? x : show_each_id(c, discard_one);
}

/* --- export --- */
static int export_run(struct cli *c)
{
    struct pawl_filter f = {.unreplayed = !cli_has(c, "replayed")};
    int64_t *ids = NULL;
    size_t n = 0;
    int x;
    if ((x = dead_filter(c, &f)) != 0) return x;
    if ((x = cli_open(c)) != 0) return x;
    x = dead_ids(c, &f, &ids, &n);
    for (size_t i = 0; x == 0 && i < n; i++) {
        x = show_job_line(c, ids[i], true);
        if (x == EXIT_NO) x = 0; /* discarded or pruned meanwhile: said on standard error */
        if (!cli_emit(c)) break;
    }
    free(ids);
    return x;
}

static const struct cli_opt list_opts[] = {
    {"task", 0, "TASK", "only this task", 0},
    {"class", 0, "CLASS", "only this class: permanent, exhausted, poison, expired, ...", 0},
    {"since", 0, "WHEN", "died at or after: an instant, or a duration back from now", 0},
    {"replayed", 0, NULL, "also those that were replayed", 0},
    {"limit", 0, "N", "at most N; 0: all (default: 100 on a terminal, else all)", 0},
    {NULL, 0, NULL, NULL, 0},
};
static const char *const list_examples[] = {"pawl dead list --class exhausted --since 2h", NULL};
static const struct cmd_entry cmd_list = {
    .name = "list",
    .synopsis = "[OPTION...]",
    .summary = "list the dead letters that wait for a decision",
    .opts = list_opts,
    .examples = list_examples,
    .run = list_run,
};

static const char *const show_examples[] = {"pawl dead show 7", NULL};
static const struct cmd_entry cmd_show = {
    .name = "show",
    .synopsis = "ID",
    .summary = "show a dead job with every attempt and its evidence",
    .examples = show_examples,
    .run = show_run,
    .operands_min = 1,
    .operands_max = 1,
};

static const struct cli_opt discard_opts[] = {
    {"reason", 0, "TEXT", "why it is given up; kept with the job", 0},
    {NULL, 0, NULL, NULL, 0},
};
static const char *const discard_examples[] = {"pawl dead discard 7 --reason \"test order\"", NULL};
static const struct cmd_entry cmd_discard = {
    .name = "discard",
    .synopsis = "ID... --reason TEXT",
    .summary = "give dead jobs up; they become dropped(discarded)",
    .opts = discard_opts,
    .examples = discard_examples,
    .run = discard_run,
    .operands_min = 1,
    .operands_max = -1,
};

static const struct cli_opt export_opts[] = {
    {"task", 0, "TASK", "only this task", 0},
    {"class", 0, "CLASS", "only this class", 0},
    {"since", 0, "WHEN", "died at or after: an instant, or a duration back from now", 0},
    {"replayed", 0, NULL, "also those that were replayed", 0},
    {NULL, 0, NULL, NULL, 0},
};
static const char *const export_examples[] = {"pawl dead export > dead.jsonl", NULL};
static const struct cmd_entry cmd_export = {
    .name = "export",
    .synopsis = "[OPTION...]",
    .summary = "print complete dead jobs with their attempts as JSON Lines",
    .opts = export_opts,
    .examples = export_examples,
    .run = export_run,
};

static const struct cmd_entry *const subs[] = {&cmd_list, &cmd_show, &cmd_dead_replay, &cmd_discard,
                                               &cmd_export, NULL};
static const char *const dead_examples[] = {"pawl dead list", NULL};
const struct cmd_entry cmd_dead = {
    .name = "dead",
    .synopsis = "list | show | replay | discard | export",
    .summary = "see, replay or give up what could not be done",
    .subs = subs,
    .examples = dead_examples,
};
