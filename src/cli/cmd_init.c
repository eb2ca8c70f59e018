// SPDX-License-Identifier: Apache-2.0
/* cmd_init.c - pawl init: create the store, or migrate it. The only verb that makes one. */
#include <string.h>
#include <unistd.h>

#include "cli/cli.h"

static int init_run(struct cli *c)
{
    const char *url = NULL;
    bool created = false;
    struct pawl_error e = {.rc = PAWL_OK};
    int x = cli_url(c, &url);
    if (x != 0) return x;
    const bool server = strncmp(url, "postgres", 8) == 0;
    bool there = server || access(strncmp(url, "sqlite:", 7) == 0 ? url + 7 : url, F_OK) == 0;
    if (pawl_init(url, &created, &e) != PAWL_OK) return cli_fail(c, &e);
    if (c->json) {
        buf_putc(&c->out, '{');
        cli_json_str(&c->out, "store", server ? cli_store(c, url) : url);
        cli_json_bool(&c->out, "created", created);
        buf_puts(&c->out, "}\n");
        return 0;
    }
    buf_puts(&c->out, !created ? "the store is ready: "
             : there  ? "added Pawl's tables to " : "created the store ");
    cli_safe(&c->out, server ? cli_store(c, url) : url, 0);
    buf_putc(&c->out, '\n');
    return 0;
}

static const char *const examples[] = {
    "pawl init --db sqlite:shop.db", "pawl init --db postgresql:///shop", NULL};
const struct cmd_entry cmd_init = {
    .name = "init",
    .synopsis = "[OPTION...]",
    .summary = "create the store, or migrate it; safe to run twice",
    .examples = examples,
    .run = init_run,
};
