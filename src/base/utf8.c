// SPDX-License-Identifier: Apache-2.0
/* utf8.c - the only place that decodes UTF-8. Never allocates, never reads past n. */
#include "base/utf8.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>
#include "base/buf.h"
#include "base/json.h"

size_t utf8_step(const char *s, size_t n, uint32_t *cp)
{
    const unsigned char *u = (const unsigned char *)s;
    size_t len;
    uint32_t c, min;

    assert(n > 0);
    if (u[0] < 0x80) { *cp = u[0]; return 1; }
    if (u[0] >= 0xc2 && u[0] <= 0xdf)      { len = 2; c = u[0] & 0x1fu; min = 0x80; }
    else if (u[0] >= 0xe0 && u[0] <= 0xef) { len = 3; c = u[0] & 0x0fu; min = 0x800; }
    else if (u[0] >= 0xf0 && u[0] <= 0xf4) { len = 4; c = u[0] & 0x07u; min = 0x10000; }
    else return 0;
    if (n < len) return 0;
    for (size_t i = 1; i < len; i++) {
        if ((u[i] & 0xc0u) != 0x80) return 0;
        c = c << 6 | (u[i] & 0x3fu);
    }
    if (c < min || c > 0x10ffff || (c >= 0xd800 && c <= 0xdfff)) return 0;
    *cp = c;
    return len;
}

size_t utf8_trim(const char *s, size_t n)
{
    size_t back = 0;

    /* A lead byte within the last three that promises more bytes than are left. */
    while (back < 3 && back < n && ((unsigned char)s[n - 1 - back] & 0xc0u) == 0x80) back++;
    if (back >= n) return n;
    unsigned char lead = (unsigned char)s[n - 1 - back];
    size_t want = lead >= 0xf0 && lead <= 0xf4 ? 4 : lead >= 0xe0 ? 3 : lead >= 0xc2 ? 2 : 1;
    if (lead > 0xf4) return n;
    return want > back + 1 ? n - back - 1 : n;
}

bool utf8_control(uint32_t cp)
{
    return cp < 0x20 || (cp >= 0x7f && cp <= 0x9f) || cp == 0x61c ||
           (cp >= 0x200e && cp <= 0x200f) || (cp >= 0x2028 && cp <= 0x202e) ||
           (cp >= 0x2066 && cp <= 0x2069);
}

bool utf8_ok(const char *s, size_t n)
{
    uint32_t cp;

    for (size_t i = 0, k; i < n; i += k)
        if ((k = utf8_step(s + i, n - i, &cp)) == 0) return false;
    return true;
}

size_t text_safe_step(const char *s, size_t n, char out[TEXT_SAFE_MAX], size_t *out_n)
{
    uint32_t cp = 0;
    size_t used = utf8_step(s, n, &cp);
    int w;

    if (used == 0)
        w = snprintf(out, TEXT_SAFE_MAX, "\\x%02x", (unsigned)(unsigned char)s[0]);
    else if (cp == '\n')
        w = snprintf(out, TEXT_SAFE_MAX, "\\n");
    else if (cp < 0x80 && utf8_control(cp))
        w = snprintf(out, TEXT_SAFE_MAX, "\\x%02x", (unsigned)cp);
    else if (utf8_control(cp))
        w = snprintf(out, TEXT_SAFE_MAX, "\\u{%x}", (unsigned)cp);
    else {
        memcpy(out, s, used);
        w = (int)used;
    }
    assert(w > 0 && w < TEXT_SAFE_MAX);
    *out_n = (size_t)w;
    return used == 0 ? 1 : used;
}

size_t text_copy_safe(char *dst, size_t cap, size_t at, const char *s, size_t n)
{
    char one[TEXT_SAFE_MAX];
    size_t one_n;

    assert(at < cap);
    for (size_t i = 0; i < n;) {
        i += text_safe_step(s + i, n - i, one, &one_n);
        if (at + one_n >= cap) break;
        memcpy(dst + at, one, one_n);
        at += one_n;
    }
    dst[at] = '\0';
    return at;
}

void text_put_safe(struct buf *b, const char *s, size_t n, bool keep_newline)
{
    char one[TEXT_SAFE_MAX];
    size_t one_n;

    for (size_t i = 0; i < n;) {
        if (keep_newline && (s[i] == '\n' || s[i] == '\t')) {
            buf_putc(b, s[i++]);
            continue;
        }
        i += text_safe_step(s + i, n - i, one, &one_n);
        buf_put(b, one, one_n);
    }
}
