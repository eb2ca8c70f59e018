// SPDX-License-Identifier: Apache-2.0
/* help.c - the pages of --help, made from the table of verbs. */
#include <stdio.h>
#include <string.h>

#include "cli/cli.h"
#include "cli/frame.h"

enum { OPT_COLUMN = 26 };

/* "  --key KEY   text", the text in a column of its own. */
static void opt_line(struct buf *b, const struct cli_opt *t)
{
    size_t at = b->n;
    buf_puts(b, "  ");
    if (t->letter) buf_printf(b, "-%c, ", t->letter);
    buf_printf(b, "--%s%s%s", t->name, t->arg ? " " : "", t->arg ? t->arg : "");
    do buf_putc(b, ' ');
    while (!b->failed && b->n - at < OPT_COLUMN);
    buf_printf(b, "%s%s\n", t->help, t->flags & CLI_MANY ? " (may be repeated)" : "");
}

static void verbs(struct buf *b, const struct cmd_entry *const *list)
{
    for (; *list; list++)
        if (!((*list)->flags & CMD_HIDDEN))
            buf_printf(b, "  %-12s %s\n", (*list)->name, (*list)->summary);
}

static void examples(struct buf *b, const char *const *lines)
{
    if (!lines || !*lines) return;
    buf_puts(b, lines[1] ? "\nexamples:\n" : "\nexample:\n");
    for (; *lines; lines++) buf_printf(b, "  %s\n", *lines);
}

static void general(struct buf *b)
{
    buf_puts(b, "usage: pawl VERB [OPERAND...] [OPTION...]\n\n"
                "background jobs whose effects happen exactly once\n\nverbs:\n");
    verbs(b, cli_table);
    buf_puts(b, "\noptions of every verb:\n");
    for (const struct cli_opt *t = cli_common_opts; t->name; t++) opt_line(b, t);
    buf_puts(b, "  --version               print the version (before any verb)\n\n"
                "the store is --db, else $PAWL_DB, else db of the configuration, else "
                "sqlite:pawl.db\n"
                "more: pawl VERB --help, pawl(1)\n");
}

int cli_help(struct cli *c, const struct cmd_entry *m)
{
    struct buf *b = &c->out;
    if (!m) {
        general(b);
        return 0;
    }
    const char *args = m->synopsis ? m->synopsis : "";
    buf_printf(b, "usage: %s%s%s\n\n%s\n", c->title, *args ? " " : "", args, m->summary);
    if (m->notes) {
        buf_printf(b, "\n%s", m->notes);
        if (!b->failed && b->data[b->n - 1] != '\n') buf_putc(b, '\n');
    }
    if (m->subs) {
        buf_puts(b, "\nverbs:\n");
        verbs(b, m->subs);
    }
    if (m->opts && m->opts->name) buf_puts(b, "\noptions:\n");
    for (const struct cli_opt *t = m->opts; t && t->name; t++) opt_line(b, t);
    buf_puts(b, "\noptions of every verb:\n");
    for (const struct cli_opt *t = cli_common_opts; t->name; t++) opt_line(b, t);
    examples(b, m->examples);
    return 0;
}

static int help_run(struct cli *c)
{
    const struct cmd_entry *const *list = cli_table;
    const struct cmd_entry *m = NULL;
    struct buf title = {0};
    buf_puts(&title, "pawl");
    for (int i = 0; i < c->argc; i++) {
        const struct cmd_entry *const *t = list;
        while (t && *t && strcmp((*t)->name, c->argv[i]) != 0) t++;
        if (!t || !*t) {
            buf_free(&title);
            struct buf b = {0};
            cli_safe(&b, c->argv[i], 40);
            int x = cli_usage(c, "no verb '%s'; pawl help lists them", buf_str(&b));
            buf_free(&b);
            return x;
        }
        m = *t;
        list = m->subs;
        buf_printf(&title, " %s", m->name);
    }
    snprintf(c->title, sizeof c->title, "%s", buf_str(&title));
    buf_free(&title);
    return cli_help(c, m);
}

static const char *const help_examples[] = {"pawl help dead replay", NULL};
const struct cmd_entry cmd_help = {
    .name = "help",
    .synopsis = "[VERB [SUBVERB]]",
    .summary = "say what a verb does",
    .examples = help_examples,
    .run = help_run,
    .operands_max = 2,
};
