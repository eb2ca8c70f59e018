// SPDX-License-Identifier: Apache-2.0
/* exec_text.c - bytes of a child made fit for every store: valid UTF-8, no NUL, nothing lost. */
#include "base/utf8.h"
#include "handler/exec_parts.h"

#include <string.h>

void exec_put_text(struct buf *b, const char *p, size_t n)
{
    size_t good = 0; /* start of the run not yet copied */
    size_t i = 0;

    while (i < n) {
        uint32_t cp = 0;
        size_t step = utf8_step(p + i, n - i, &cp);
        if (step > 0 && cp != 0) {
            i += step;
            continue;
        }
        buf_put(b, p + good, i - good);
        buf_printf(b, "\\x%02x", (unsigned char)p[i]);
        good = ++i;
    }
    buf_put(b, p + good, n - good);
}

char *exec_text(struct arena *a, const char *p, size_t n)
{
    struct buf b = {0};
    char *s = NULL;

    if (n > 0) exec_put_text(&b, p, n);
    if (b.n > 0 && !b.failed) s = arena_dup(a, b.data, b.n);
    buf_free(&b);
    return s;
}

static bool blank(char c)
{
    return c == ' ' || c == '\t' || c == '\r' || c == '\n' || c == '\0';
}

void exec_put_last_line(struct buf *b, const char *p, size_t n, size_t max)
{
    size_t from;

    while (n > 0 && blank(p[n - 1])) n--;
    for (from = n; from > 0 && p[from - 1] != '\n'; from--) {}
    while (from < n && blank(p[from])) from++;
    n -= from;
    if (n > max) n = utf8_trim(p + from, max);
    exec_put_text(b, p + from, n);
}
