// SPDX-License-Identifier: Apache-2.0
/* cmd_apply.c - pawl apply: store the policies of a configuration, and say what changed. */
#include <string.h>

#include "base/json.h"
#include "cli/cli.h"
#include "worker/lanes.h"
#include "worker/probe.h"

static void show(void *ctx, const struct lane_diff *d)
{
    struct cli *c = ctx;

    if (c->json) {
        buf_putc(&c->out, '{');
        cli_json_str(&c->out, "task", d->task);
        cli_json_bool(&c->out, "changed", d->change == LANE_REPLACED);
        cli_json_str(&c->out, "change", d->change == LANE_REPLACED ? d->text : NULL);
        buf_puts(&c->out, "}\n");
        return;
    }
    buf_printf(&c->out, "task %s: %s\n", d->task,
               d->change == LANE_REPLACED ? "policy replaced" : "policy stored");
    text_put_safe(&c->out, d->text, strlen(d->text), true);
}

static void warn_of_program(void *ctx, const char *why)
{
    cli_warn(ctx, "%s", why);
}

static int apply_run(struct cli *c)
{
    struct pawl_error e = {.rc = PAWL_OK};
    struct store *st = NULL;
    struct lanes lanes;
    const char *url = NULL;
    int x;

    if ((x = cli_conf(c, true)) != 0 || (x = cli_url(c, &url)) != 0) return x;
    if (probe_modes(c->conf, &e) != PAWL_OK) return cli_fail(c, &e);
    probe_programs(c->conf, warn_of_program, c);
    struct store_opts so = {.url = url, .on_connect = c->conf->on_connect,
                            .on_connect_n = c->conf->on_connect_n, .lease_us = c->conf->lease_us,
                            .accept_wal_risk = c->conf->accept_wal_risk};
    if (store_open(&so, &st, &e) != PAWL_OK) return cli_fail_open(c, url, &e);
    if (lanes_declare(st, c->conf, true, NULL, 0, show, c, &lanes, &e) != PAWL_OK) {
        x = cli_fail(c, &e);
    } else {
        lanes_free(&lanes);
    }
    store_close(&st);
    return x;
}

static const char *const examples[] = {"pawl apply -c pawl.conf", NULL};
const struct cmd_entry cmd_apply = {
    .name = "apply",
    .synopsis = "[OPTION...]",
    .summary = "store the policies of the configuration; workers keep to the stored ones",
    .examples = examples,
    .run = apply_run,
    .notes = "Running workers keep the policies they started with: start them again.",
};
