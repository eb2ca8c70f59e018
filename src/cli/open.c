// SPDX-License-Identifier: Apache-2.0
/* open.c - which store, which config: one order of precedence for every verb. */
#include <string.h>
#include <stdlib.h>
#include <unistd.h>

#include "cli/cli.h"

int cli_conf(struct cli *c, bool need)
{
    const char *path = c->config ? c->config : "pawl.conf";
    struct pawl_error e = {.rc = PAWL_OK};

    if (c->conf) return 0;
    if (!c->config && access(path, F_OK) != 0) {
        if (!need) return 0;
        return cli_error(c, EXIT_CONFIG, "no ./pawl.conf here; name a configuration with -c FILE");
    }
    enum pawl_rc rc = conf_read(path, &c->conf, &e);
    if (rc == PAWL_OK) return 0;
    if (rc == PAWL_NOTFOUND)
        return cli_error(c, EXIT_CONFIG, "%s: no such configuration file; see -c FILE", path);
    return cli_fail(c, &e);
}

static bool starts(const char *s, const char *with)
{
    return strncmp(s, with, strlen(with)) == 0;
}

static bool is_server(const char *url)
{
    return starts(url, "postgresql://") || starts(url, "postgres://");
}

/* Append s up to `end` with what it says of a password hidden. */
static void hide(struct buf *out, const char *s, const char *end, const char *key)
{
    const char *at = strstr(s, key);

    if (at == NULL || at >= end) {
        buf_put(out, s, (size_t)(end - s));
        return;
    }
    at += strlen(key);
    buf_put(out, s, (size_t)(at - s));
    buf_puts(out, "***");
    at += strcspn(at, "&");
    buf_put(out, at, at < end ? (size_t)(end - at) : 0);
}

const char *cli_store(struct cli *c, const char *url)
{
    const char *at, *user = strstr(url, "//"), *end = url + strlen(url);
    struct buf out = {0};

    if (starts(url, "sqlite:")) return url + strlen("sqlite:");
    if (!starts(url, "postgres") || !user) return url;
    user += 2;
    const char *path = user + strcspn(user, "/?");
    const char *colon = memchr(user, ':', (size_t)(path - user));
    for (at = path; at > user && *at != '@';) at--;
    if (*at == '@' && colon && colon < at) {
        buf_put(&out, url, (size_t)(colon + 1 - url));
        buf_puts(&out, "***");
        hide(&out, at, end, "password=");
    } else {
        hide(&out, url, end, "password=");
    }
    char *shown = arena_strdup(&c->arena, buf_str(&out));
    buf_free(&out);
    return shown ? shown : "the store";
}

static int url_check(struct cli *c, const char *from, const char *url)
{
    size_t n = strlen(url);
    if (is_server(url)) return 0;
    if (starts(url, "sqlite:") && n > strlen("sqlite:")) return 0;
    if (n > 3 && strcmp(url + n - 3, ".db") == 0 && !starts(url, "sqlite:")) return 0;
    return cli_error(c, EXIT_USAGE,
                     "%s '%s': not a store; give sqlite:PATH, a file ending in .db, or"
                     " postgresql://...", from, cli_store(c, url));
}

int cli_url(struct cli *c, const char **url)
{
    const char *from = "--db", *u = c->db;
    if (!u) {
        from = "$PAWL_DB";
        u = getenv("PAWL_DB");
        if (u && !*u) u = NULL;
    }
    if (!u) {
        int x = cli_conf(c, false);
        if (x != 0) return x;
        from = "db of the configuration";
        u = c->conf ? c->conf->db : NULL;
    }
    if (!u) {
        from = "default";
        u = "sqlite:pawl.db";
    }
    int x = url_check(c, from, u);
    if (x != 0) return x;
    *url = arena_strdup(&c->arena, u);
    return *url ? 0 : cli_error(c, EXIT_TEMPFAIL, "out of memory");
}

int cli_fail_open(struct cli *c, const char *url, const struct pawl_error *e)
{
    const char *path = cli_store(c, url);
    const char *env = getenv("PAWL_DB");
    const char *given = c->db && is_server(c->db) ? cli_store(c, c->db) : c->db;
    bool by_default = !c->db && !(env && *env) && !(c->conf && c->conf->db);
    if (e->rc == PAWL_NOSTORE)
        return cli_error(c, pawl_rc_exit(e->rc), "no store at %s; run pawl init%s%s", path,
                         c->db ? " --db " : "", c->db ? given
                         : by_default ? ", or name yours with --db or -c" : "");
    if (e->rc == PAWL_OLDER)
        return cli_error(c, pawl_rc_exit(e->rc), "%s: %s; run pawl init to migrate it", path,
                         e->msg);
    return cli_fail(c, e);
}

int cli_open(struct cli *c)
{
    const char *url = NULL;
    struct pawl_error e = {.rc = PAWL_OK};
    int x = cli_url(c, &url);
    if (x != 0) return x;
    if (pawl_open(url, &c->pawl, &e) != PAWL_OK) return cli_fail_open(c, url, &e);
    cli_clock(pawl_now(c->pawl));
    return 0;
}
