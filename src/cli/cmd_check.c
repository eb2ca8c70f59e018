// SPDX-License-Identifier: Apache-2.0
/* cmd_check.c - pawl check: the invariants on a live store. pawl prune: retention. */
#include <inttypes.h>
#include <string.h>

#include "base/text.h"
#include "cli/cli.h"

struct findings { struct cli *c; int64_t n, not_run; };

/* A check that cannot be run on this database breaks nothing, but is not passed over either. */
static bool not_run(struct findings *x, const struct pawl_finding *f)
{
    const char *what = strcmp(f->invariant, "FK") == 0 ? "foreign key check" : "file check";
    struct buf *b = &x->c->out;
    x->not_run++;
    if (x->c->json) {
        buf_putc(b, '{');
        cli_json_str(b, "not_run", what);
        cli_json_str(b, "why", f->what);
        buf_puts(b, "}\n");
        return cli_emit(x->c);
    }
    buf_printf(b, "%s: not run: ", what);
    cli_safe(b, f->what, 0);
    buf_putc(b, '\n');
    return cli_emit(x->c);
}

static bool finding(void *ctx, const struct pawl_finding *f)
{
    struct findings *x = ctx;
    struct buf *b = &x->c->out;
    if (f->job_id < 0) return not_run(x, f);
    x->n++;
    if (x->c->json) {
        buf_putc(b, '{');
        cli_json_str(b, "invariant", f->invariant);
        cli_json_str(b, "what", f->what);
        cli_json_id(b, "job", f->job_id);
        buf_puts(b, "}\n");
        return cli_emit(x->c);
    }
    buf_puts(b, cli_color(CLI_RED));
    cli_safe(b, f->invariant, 0);
    buf_puts(b, cli_color(CLI_RESET));
    buf_puts(b, ": ");
    cli_safe(b, f->what, 0);
    if (f->job_id > 0) buf_printf(b, " (job %" PRId64 ")", f->job_id);
    buf_putc(b, '\n');
    return cli_emit(x->c);
}

static int check_run(struct cli *c)
{
    struct findings x = {.c = c};
    struct pawl_error e = {.rc = PAWL_OK};
    struct buf *b = &c->out;
    int checked = 0, exit_code = cli_open(c);
    if (exit_code != 0) return exit_code;
    if (pawl_check(c->pawl, finding, &x, &checked, &e) != PAWL_OK) return cli_fail(c, &e);
    if (c->json) {
        buf_putc(b, '{');
        cli_json_int(b, "checked", checked);
        cli_json_int(b, "findings", x.n);
        cli_json_int(b, "not_run", x.not_run);
        buf_puts(b, "}\n");
    } else if (x.n == 0) {
        buf_printf(b, "the %d invariants that SQL can state hold\n", checked);
    } else {
        buf_printf(b, "%d invariants checked, %" PRId64 " findings\n", checked, x.n);
    }
    return x.n == 0 ? 0 : EXIT_NO;
}

/* 0 is the default there: "0s" is asked for as the shortest time there is. */
static int older(struct cli *c, const char *name, int64_t *us)
{
    int x = cli_duration(c, name, us);
    if (x == 0 && cli_opt(c, name) && *us == 0) *us = 1;
    return x;
}

static int prune_run(struct cli *c)
{
    struct pawl_prune_opts how = {.dry_run = cli_has(c, "dry-run")};
    struct pawl_pruned r = {0};
    struct pawl_error e = {.rc = PAWL_OK};
    struct buf *b = &c->out;
    char j[32], k[32], a[32];
    int x;
    if ((x = older(c, "done-older", &how.done_older_us)) != 0) return x;
    if ((x = older(c, "keys-older", &how.keys_older_us)) != 0) return x;
    if ((x = cli_open(c)) != 0) return x;
    if (pawl_prune(c->pawl, &how, &r, &e) != PAWL_OK) return cli_fail(c, &e);
    if (c->json) {
        buf_putc(b, '{');
        cli_json_int(b, "jobs", r.jobs);
        cli_json_int(b, "keys", r.keys);
        cli_json_int(b, "attempts", r.attempts);
        cli_json_int(b, "batches", r.batches);
        cli_json_bool(b, "dry_run", how.dry_run);
        buf_puts(b, "}\n");
        return 0;
    }
    buf_printf(b, "%s %s jobs, %s keys, %s attempts\n", how.dry_run ? "would prune" : "pruned",
               text_count(r.jobs, j, sizeof j), text_count(r.keys, k, sizeof k),
               text_count(r.attempts, a, sizeof a));
    return 0;
}

static const char *const check_examples[] = {"pawl check", NULL};
const struct cmd_entry cmd_check = {
    .name = "check",
    .synopsis = "[OPTION...]",
    .summary = "run the invariants on the store; exit 1 and a list when one is broken",
    .examples = check_examples,
    .run = check_run,
    .notes = "The invariants are read in one snapshot, then the engine checks the file, which\n"
             "reads all of it: while it does, the write-ahead log can grow but not shrink.\n"
             "A check that this pawl cannot run on your schema (a collation or a virtual table\n"
             "of your own program) is named as not run; the exit code is the invariants'.\n",
};

static const struct cli_opt prune_opts[] = {
    {"done-older", 0, "DURATION", "done jobs ended longer ago than this (default: the task's)", 0},
    {"keys-older", 0, "DURATION", "how long keys of jobs pruned now outlive their end (30d)",
     0},
    {"dry-run", 0, NULL, "count, delete nothing", 0},
    {NULL, 0, NULL, NULL, 0},
};
static const char *const prune_examples[] = {"pawl prune --done-older 7d --dry-run", NULL};
const struct cmd_entry cmd_prune = {
    .name = "prune",
    .synopsis = "[OPTION...]",
    .summary = "delete what retention allows, in small batches; never a key still needed",
    .opts = prune_opts,
    .examples = prune_examples,
    .run = prune_run,
};
