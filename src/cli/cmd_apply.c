// SPDX-License-Identifier: Apache-2.0
/* cmd_apply.c - pawl apply: store the policies of a configuration, and say what changed. */
#include <string.h>

#include "base/json.h"
#include "cli/cli.h"
#include "core/rules.h"
#include "worker/probe.h"

/* lines: what differed from the stored policy; NULL: there was none, or the same. */
static void show(struct cli *c, const char *task, const char *lines)
{
    if (c->json) {
        buf_putc(&c->out, '{');
        cli_json_str(&c->out, "task", task);
        cli_json_bool(&c->out, "changed", lines != NULL);
        cli_json_str(&c->out, "change", lines);
        buf_puts(&c->out, "}\n");
        return;
    }
    buf_printf(&c->out, "task %s: %s\n", task, lines != NULL ? "policy replaced"
                                                             : "policy stored");
    if (lines != NULL) text_put_safe(&c->out, lines, strlen(lines), true);
}

static void warn_of_program(void *ctx, const char *why)
{
    cli_warn(ctx, "%s", why);
}

static int put_all(struct cli *c, struct pawl *p)
{
    struct pawl_error e = {.rc = PAWL_OK};
    struct buf text = {0};
    int x = 0;

    for (size_t i = 0; i < c->conf->tasks_n && x == 0; i++) {
        const struct conf_task *t = &c->conf->tasks[i];
        char *lines = NULL;

        buf_clear(&text);
        policy_text(&t->policy, &text);
        if (text.failed) x = cli_error(c, EXIT_TEMPFAIL, "out of memory");
        else if (pawl_task_put(p, t->name, buf_str(&text), true, &lines, &e) != PAWL_OK)
            x = cli_fail(c, &e);
        else show(c, t->name, lines);
        pawl_free(lines);
    }
    buf_free(&text);
    return x;
}

static int apply_run(struct cli *c)
{
    struct pawl_error e = {.rc = PAWL_OK};
    struct pawl *p = NULL;
    const char *url = NULL;
    int x;

    if ((x = cli_conf(c, true)) != 0 || (x = cli_url(c, &url)) != 0) return x;
    if (probe_modes(c->conf, &e) != PAWL_OK) return cli_fail(c, &e);
    probe_programs(c->conf, warn_of_program, c);
    const struct pawl_open_opts o = {.on_connect = c->conf->on_connect,
                                     .on_connect_n = c->conf->on_connect_n};
    if (pawl_open_with(url, &o, &p, &e) != PAWL_OK) return cli_fail_open(c, url, &e);
    x = put_all(c, p);
    pawl_close(&p);
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
