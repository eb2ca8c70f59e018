// SPDX-License-Identifier: Apache-2.0
/* cmd_conf.c - pawl conf check: read a configuration and say what it holds. Plugins are looked at
 * in a process of their own. */
#include <inttypes.h>

#include "base/text.h"
#include "cli/cli.h"
#include "worker/probe.h"

static void show_task(struct cli *c, const struct conf_task *t)
{
    const char *kind = conf_kind_name(t->kind);

    if (c->json) {
        buf_putc(&c->out, '{');
        cli_json_str(&c->out, "task", t->name);
        cli_json_str(&c->out, "handler", kind);
        cli_json_str(&c->out, "mode", conf_mode_name(t->mode));
        cli_json_str(&c->out, "queue", t->policy.queue);
        cli_json_int(&c->out, "line", t->line);
        buf_puts(&c->out, "}\n");
        return;
    }
    buf_printf(&c->out, "  %-5s %-24s line %d", kind, t->name, t->line);
    if (t->kind == HANDLER_SQL) {
        buf_printf(&c->out, ", %zu statement%s", t->sql_n, t->sql_n == 1 ? "" : "s");
    } else {
        buf_puts(&c->out, ", ");
        cli_safe(&c->out, t->kind == HANDLER_C ? t->c_text : t->exec_text, 60);
    }
    if (t->kind == HANDLER_C) buf_printf(&c->out, ", %s mode", conf_mode_name(t->mode));
    for (size_t i = 0; i < t->writes_n; i++) {
        buf_printf(&c->out, "%s%s", i == 0 ? ", writes " : " ", t->writes[i].name);
    }
    buf_putc(&c->out, '\n');
}

static void warn_of_program(void *ctx, const char *why)
{
    cli_warn(ctx, "%s", why);
}

static int check_run(struct cli *c)
{
    struct pawl_error e = {.rc = PAWL_OK};
    int x = cli_conf(c, true);

    if (x != 0) return x;
    if (probe_modes(c->conf, &e) != PAWL_OK) return cli_fail(c, &e);
    probe_programs(c->conf, warn_of_program, c);
    if (!c->json) {
        cli_safe(&c->out, c->conf->path, 0);
        buf_printf(&c->out, ": fine, %zu task%s\n", c->conf->tasks_n,
                   c->conf->tasks_n == 1 ? "" : "s");
    }
    for (size_t i = 0; i < c->conf->tasks_n && cli_emit(c); i++) show_task(c, &c->conf->tasks[i]);
    return 0;
}

static const char *const check_examples[] = {"pawl conf check -c pawl.conf", NULL};
static const struct cmd_entry check_entry = {
    .name = "check",
    .synopsis = "[OPTION...]",
    .summary = "read a configuration strictly and list its tasks; needs no store",
    .examples = check_examples,
    .run = check_run,
};
static const struct cmd_entry *const subs[] = {&check_entry, NULL};
const struct cmd_entry cmd_conf = {
    .name = "conf",
    .synopsis = "check",
    .summary = "look at the configuration",
    .examples = check_examples,
    .subs = subs,
};
