// SPDX-License-Identifier: Apache-2.0
/* log.c - one event, one line, one write(), or one call of this thread's sink.
 *
 * Keeps: a value cannot end its field or its line, whatever bytes it holds; a log that nobody reads
 *        never makes the caller wait; unless a program asks for it, nothing is written anywhere.
 */
#include "base/log.h"

#include <assert.h>
#include <inttypes.h>
#include <poll.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include "base/buf.h"
#include "base/clock.h"
#include "base/json.h"
#include "base/os.h"
#include "base/text.h"
#include "base/utf8.h"

enum { VALUE_BYTES_MAX = 600 };

static struct log_conf conf = { .level = LOG_INFO, .json = false, .fd = -1 };
static _Thread_local struct log_sink *sink;

static const char *const level_names[] = { "error", "warn", "info", "debug" };

/* A line being written. */
struct line {
    struct buf b;
    bool json;
};

void log_setup(const struct log_conf *c) { conf = *c; }

void log_push(struct log_sink *s)
{
    s->below = sink;
    sink = s;
}

void log_pop(struct log_sink *s)
{
    assert(sink == s);
    sink = s->below;
}

void log_deliver(void)
{
    if (sink != NULL && sink->deliver != NULL) sink->deliver(sink->ctx);
}

bool log_level_parse(const char *s, enum log_level *out)
{
    for (size_t i = 0; i < sizeof level_names / sizeof *level_names; i++) {
        if (strcmp(s, level_names[i]) != 0) continue;
        *out = (enum log_level)i;
        return true;
    }
    return false;
}

/* logfmt: bare if it can be read back as one word, else in quotes. */
static void put_logfmt(struct buf *b, const char *s, size_t n)
{
    char one[TEXT_SAFE_MAX];
    size_t one_n;
    bool bare = n > 0;

    for (size_t i = 0; i < n && bare; i++)
        bare = s[i] > ' ' && s[i] < 0x7f && s[i] != '"' && s[i] != '=' && s[i] != '\\';
    if (bare) {
        buf_put(b, s, n);
        return;
    }
    buf_putc(b, '"');
    for (size_t i = 0; i < n;) {
        if (s[i] == '"' || s[i] == '\\') {
            buf_putc(b, '\\');
            buf_putc(b, s[i++]);
            continue;
        }
        i += text_safe_step(s + i, n - i, one, &one_n);
        buf_put(b, one, one_n);
    }
    buf_putc(b, '"');
}

static void put_field(struct line *l, const char *name, const char *val, size_t n, bool number)
{
    struct buf *b = &l->b;

    if (l->json) {
        if (b->n > 1) buf_putc(b, ',');
        json_put_cstr(b, name);
        buf_putc(b, ':');
        if (number) buf_put(b, val, n);
        else json_put_str(b, val, n);
        return;
    }
    if (b->n > 0) buf_putc(b, ' ');
    buf_printf(b, "%s=", name);
    put_logfmt(b, val, n);
}

/* A long text is cut at a character: the store has the whole of it. */
static void put_text(struct line *l, const char *name, const char *val)
{
    char cut[VALUE_BYTES_MAX + 4];
    size_t n = strlen(val);

    if (n > VALUE_BYTES_MAX) {
        for (n = VALUE_BYTES_MAX; n > VALUE_BYTES_MAX - 4 && (val[n] & 0xc0) == 0x80; n--) {}
        for (size_t i = 0; i < n; i++) cut[i] = val[i];
        for (size_t i = 0; i < 3; i++) cut[n + i] = '.';
        n += 3;
        val = cut;
    }
    put_field(l, name, val, n, false);
}

static void put_fields(struct line *l, va_list ap)
{
    const char *spec, *val;
    char num[32];

    while ((spec = va_arg(ap, const char *)) != NULL) {
        assert(spec[0] != '\0' && spec[1] == ':' && spec[2] != '\0');
        switch (spec[0]) {
        case 's':
            if ((val = va_arg(ap, const char *)) == NULL) continue;
            put_text(l, spec + 2, val);
            break;
        case 'i': case 'd': {
            struct buf t = { 0 };
            buf_printf(&t, "%" PRId64, va_arg(ap, int64_t));
            put_field(l, spec + 2, buf_str(&t), t.n, spec[0] == 'i');
            buf_free(&t);
            break;
        }
        case 't':
            text_duration(va_arg(ap, int64_t), num, sizeof num);
            put_field(l, spec + 2, num, strlen(num), false);
            break;
        default:
            assert(!"log_line: a field must begin with s: i: d: or t:");
        }
    }
}

/* A log that nobody reads must not stop the work, least of all under a lock: a pipe that is full is
 * not waited for. What was left out is counted and said as soon as there is room. Values
 * are cut so that a line fits a pipe's atomic size and is then written without waiting. */
static void put_line(const char *line, size_t n)
{
    static _Atomic long dropped;
    struct pollfd p = { .fd = conf.fd, .events = POLLOUT };
    char note[96];

    if (poll(&p, 1, 0) == 0) {
        dropped++;
        return;
    }
    const long before = atomic_exchange(&dropped, 0);
    if (before > 0) {
        const int k = snprintf(note, sizeof note, conf.json
                               ? "{\"level\":\"warn\",\"event\":\"log.dropped\",\"lines\":%ld}\n"
                               : "warn event=log.dropped lines=%ld\n", before);
        (void)os_write_all(conf.fd, note, (size_t)k);
    }
    (void)os_write_all(conf.fd, line, n);
}

/* What stands before the event on a line of the process's own. */
static void put_head(struct line *l, enum log_level lv)
{
    int64_t now = env_real()->wall_us(NULL);
    char at[40];

    text_instant(now - now % 1000, at, sizeof at);
    buf_printf(&l->b, l->json ? "{\"at\":\"%s\",\"level\":\"%s\"" : "%s %s", at, level_names[lv]);
}

void log_line(enum log_level lv, const char *event, ...)
{
    static const char lost[] = "error event=log.lost why=\"out of memory\"\n";
    static const char lost_short[] = "event=log.lost why=\"out of memory\"";
    struct log_sink *to = sink;
    struct line l = { .json = to == NULL && conf.json };
    va_list ap;

    assert(lv >= LOG_ERROR && lv <= LOG_DEBUG);
    if (to == NULL && (lv > conf.level || conf.fd < 0)) return;
    if (to == NULL) put_head(&l, lv);
    put_field(&l, "event", event, strlen(event), false);
    va_start(ap, event);
    put_fields(&l, ap);
    va_end(ap);
    if (to != NULL) {
        to->fn(to->ctx, lv, l.b.failed ? lost_short : buf_str(&l.b));
    } else {
        buf_puts(&l.b, l.json ? "}\n" : "\n");
        if (l.b.failed) put_line(lost, sizeof lost - 1);
        else put_line(l.b.data, l.b.n);
    }
    buf_free(&l.b);
}

bool log_gate(struct log_gate *g, int64_t every_us)
{
    int64_t now = env_real()->mono_us(NULL);

    if (now < g->next_us) {
        g->swallowed++;
        return false;
    }
    g->next_us = now + every_us;
    return true;
}
