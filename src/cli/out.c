// SPDX-License-Identifier: Apache-2.0
/* out.c - standard output: buffered, checked, coloured only on a terminal, safe to look at. */
#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <unistd.h>

#include "base/json.h"
#include "base/os.h"
#include "base/text.h"
#include "cli/cli.h"
#include "core/limits.h"

enum { EMIT_BYTES = 64 * 1024 };

bool cli_flush(struct cli *c)
{
    if (c->out_errno == 0 && c->out.failed) c->out_errno = ENOMEM;
    if (c->out_errno == 0 && c->out.n > 0 && !os_write_all(STDOUT_FILENO, c->out.data, c->out.n))
        c->out_errno = errno ? errno : EIO;
    buf_clear(&c->out);
    return c->out_errno == 0;
}

bool cli_emit(struct cli *c)
{
    if (c->out_errno != 0) return false;
    return c->out.n < EMIT_BYTES && !c->out.failed ? true : cli_flush(c);
}

bool cli_out_tty(void)
{
    return isatty(STDOUT_FILENO) == 1;
}

const char *cli_color(enum cli_color k)
{
    static const char *const codes[] = {"\033[0m", "\033[1m", "\033[2m", "\033[31m", "\033[32m",
                                        "\033[33m"};
    assert((size_t)k < sizeof codes / sizeof *codes);
    return os_color(STDOUT_FILENO) ? codes[k] : "";
}

void cli_safe(struct buf *b, const char *s, size_t max)
{
    struct buf t = {0};
    size_t i = 0, cols = 0;
    if (!s) s = "-";
    text_put_safe(&t, s, strlen(s), false);
    const char *p = buf_str(&t);
    while (p[i] && (max == 0 || cols < max)) {
        i++;
        while (((unsigned char)p[i] & 0xc0) == 0x80) i++; /* the rest of one character */
        cols++;
    }
    if (p[i] && max > 1) { /* cut: the last character gives way to a mark */
        do i--;
        while (i > 0 && ((unsigned char)p[i] & 0xc0) == 0x80);
        buf_put(b, p, i);
        buf_puts(b, "\u2026");
    } else {
        buf_put(b, p, i);
    }
    if (t.failed) b->failed = true;
    buf_free(&t);
}

static void name_put(struct buf *b, const char *name)
{
    assert(b->failed || b->n > 0); /* the caller has written the '{' */
    if (b->n > 0 && b->data[b->n - 1] != '{') buf_putc(b, ',');
    json_put_cstr(b, name);
    buf_putc(b, ':');
}

void cli_json_str(struct buf *b, const char *name, const char *s)
{
    name_put(b, name);
    json_put_cstr(b, s);
}

void cli_json_id(struct buf *b, const char *name, int64_t id)
{
    name_put(b, name);
    if (id > 0)
        buf_printf(b, "\"%" PRId64 "\"", id);
    else
        buf_puts(b, "null");
}

void cli_json_int(struct buf *b, const char *name, int64_t v)
{
    name_put(b, name);
    buf_printf(b, "%" PRId64, v);
}

void cli_json_bool(struct buf *b, const char *name, bool v)
{
    name_put(b, name);
    buf_puts(b, v ? "true" : "false");
}

void cli_json_at(struct buf *b, const char *name, int64_t at_us)
{
    char t[48];
    cli_json_str(b, name, at_us ? text_instant(at_us, t, sizeof t) : NULL);
}

static void base64_put(struct buf *b, const char *s, size_t n)
{
    static const char set[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const unsigned char *p = (const unsigned char *)s;
    for (size_t i = 0; i < n; i += 3) {
        size_t left = n - i;
        uint32_t v = (uint32_t)p[i] << 16 | (uint32_t)(left > 1 ? p[i + 1] : 0) << 8 |
                     (uint32_t)(left > 2 ? p[i + 2] : 0);
        buf_putc(b, set[v >> 18]);
        buf_putc(b, set[v >> 12 & 63]);
        buf_putc(b, left > 1 ? set[v >> 6 & 63] : '=');
        buf_putc(b, left > 2 ? set[v & 63] : '=');
    }
}

static void suffix_put(struct buf *b, const char *name, const char *suffix)
{
    struct buf full = {0};
    buf_puts(&full, name);
    buf_puts(&full, suffix);
    name_put(b, buf_str(&full));
    buf_free(&full);
}

void cli_json_text(struct buf *b, const char *name, const char *s, size_t n)
{
    if (!s) {
        cli_json_str(b, name, NULL);
        return;
    }
    bool valid = json_check(s, n, LIMIT_JSON_DEPTH, NULL, NULL);
    bool one_line = !memchr(s, '\n', n) && !memchr(s, '\r', n);
    if (valid) {
        name_put(b, name);
        /* Valid JSON holds line breaks only between its tokens: there a blank says the same. */
        if (one_line) buf_put(b, s, n);
        else
            for (size_t i = 0; i < n; i++) buf_putc(b, s[i] == '\n' || s[i] == '\r' ? ' ' : s[i]);
        if (one_line) return;
    }
    suffix_put(b, name, "_text");
    json_put_str(b, s, n);
    if (utf8_ok(s, n)) return;
    suffix_put(b, name, "_base64");
    buf_putc(b, '"');
    base64_put(b, s, n);
    buf_putc(b, '"');
}
