// SPDX-License-Identifier: Apache-2.0
/* opts.c - values of options in their types, and errors in one line. */
#include <assert.h>
#include <inttypes.h>
#include <stdarg.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/json.h"
#include "base/os.h"
#include "base/text.h"
#include "cli/cli.h"
#include "core/limits.h"

const char *cli_opt_i(const struct cli *c, const char *name, size_t i)
{
    const struct cli_opt *t = c->cmd->opts;
    while (t && t->name && strcmp(t->name, name) != 0) t++;
    assert(t && t->name); /* a verb asks only for what its own table declares */
    for (size_t k = 0; k < c->values_n; k++)
        if (c->values[k].opt == t && i-- == 0) return c->values[k].value;
    return NULL;
}

const char *cli_opt(const struct cli *c, const char *name)
{
    return cli_opt_i(c, name, 0);
}

static int64_t ahead_us; /* the store's clock, once it is open, less ours */

void cli_clock(int64_t now_us)
{
    ahead_us = 0;
    ahead_us = now_us - cli_now_us();
}

int64_t cli_now_us(void)
{
    const struct env *env = env_real();
    return env->wall_us(env->ctx) + ahead_us;
}

/* The value as the error shows it: safe for a terminal, and short. */
static int bad_value(struct cli *c, const char *name, const char *v, const char *must)
{
    struct buf b = {0};
    cli_safe(&b, v, 60);
    int x = cli_usage(c, "--%s '%s': %s", name, buf_str(&b), must);
    buf_free(&b);
    return x;
}

int cli_int(struct cli *c, const char *name, int64_t min, int64_t max, int64_t *out)
{
    const char *v = cli_opt(c, name);
    if (!v || text_int64(v, min, max, out)) return 0;
    struct buf b = {0};
    if (min == INT64_MIN && max == INT64_MAX)
        buf_puts(&b, "must be a whole number of at most 64 bits");
    else if (max >= INT64_MAX - 1)
        buf_printf(&b, "must be a whole number, %" PRId64 " or more", min);
    else
        buf_printf(&b, "must be a whole number from %" PRId64 " to %" PRId64, min, max);
    int x = bad_value(c, name, v, buf_str(&b));
    buf_free(&b);
    return x;
}

#define DURATION_MUST "must be a duration such as 250ms, 10s, 5m, 2h or 7d"

int cli_duration(struct cli *c, const char *name, int64_t *us)
{
    const char *v = cli_opt(c, name);
    if (!v || text_duration_us(v, us)) return 0;
    return bad_value(c, name, v, DURATION_MUST);
}

int cli_instant(struct cli *c, const char *name, int64_t *at_us)
{
    const char *v = cli_opt(c, name), *why = NULL;
    if (!v) return 0;
    if (!text_instant_us(v, at_us, &why)) {
        struct buf b = {0};
        buf_printf(&b, "%s; give an RFC 3339 time with a zone such as 2027-01-02T03:04:05Z",
                   why ? why : "not a time");
        int x = bad_value(c, name, v, buf_str(&b));
        buf_free(&b);
        return x;
    }
    if (*at_us < LIMIT_INSTANT_ODD_US) *at_us = LIMIT_INSTANT_ODD_US; /* long ago is long ago */
    return 0;
}

int cli_when(struct cli *c, const char *name, int64_t *at_us)
{
    const char *v = cli_opt(c, name);
    int64_t us;
    if (!v) return 0;
    if (text_duration_us(v, &us)) {
        *at_us = cli_now_us() + us;
        return 0;
    }
    if (strchr(v, '-')) return cli_instant(c, name, at_us);
    return bad_value(c, name, v, "must be a duration such as 2h, or an RFC 3339 time with a zone");
}

int cli_id(struct cli *c, const char *text, int64_t *id)
{
    if (text_int64(text, 1, INT64_MAX, id)) return 0;
    struct buf b = {0};
    cli_safe(&b, text, 40);
    int x = cli_usage(c, "'%s' is not a job id: ids are whole numbers from 1", buf_str(&b));
    buf_free(&b);
    return x;
}

/* One line on standard error, whole or not at all if memory is short. */
static void say(const struct cli *c, const char *kind, const char *msg, const char *after)
{
    struct buf b = {0};
    bool color = os_color(STDERR_FILENO);
    buf_printf(&b, "%s%s:%s %s", color ? "\033[1m" : "", c->title, color ? "\033[0m" : "", kind);
    text_put_safe(&b, msg, strlen(msg), false);
    buf_puts(&b, after);
    buf_putc(&b, '\n');
    if (!b.failed) (void)os_write_all(STDERR_FILENO, b.data, b.n);
    buf_free(&b);
}

int cli_fail(struct cli *c, const struct pawl_error *e)
{
    assert(e->rc != PAWL_OK);
    say(c, "", e->msg[0] ? e->msg : pawl_rc_text(e->rc), "");
    return pawl_rc_exit(e->rc);
}

static void vsay(struct cli *c, const char *kind, const char *fmt, va_list ap, const char *after)
{
    struct buf b = {0};
    buf_vprintf(&b, fmt, ap);
    say(c, kind, buf_str(&b), after);
    buf_free(&b);
}

int cli_error(struct cli *c, int exit_code, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    vsay(c, "", fmt, ap, "");
    va_end(ap);
    return exit_code;
}

int cli_usage(struct cli *c, const char *fmt, ...)
{
    struct buf after = {0};
    va_list ap;
    buf_printf(&after, " (see %s --help)", c->title);
    va_start(ap, fmt);
    vsay(c, "", fmt, ap, buf_str(&after));
    va_end(ap);
    buf_free(&after);
    return EXIT_USAGE;
}

void cli_warn(struct cli *c, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    vsay(c, "warning: ", fmt, ap, "");
    va_end(ap);
}
