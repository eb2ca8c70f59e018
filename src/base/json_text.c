// SPDX-License-Identifier: Apache-2.0
/* json_text.c - the values inside JSON: strings unescaped and escaped, integers, member look-up.
 *
 * Keeps: what json_put_str writes is valid JSON for any bytes, and loses none of them.
 */
#include "base/json.h"

#include <assert.h>
#include <stdint.h>
#include <string.h>
#include "base/utf8.h"

static bool hex4(const char *s, size_t n, uint32_t *out)
{
    uint32_t v = 0;

    if (n < 4) return false;
    for (int i = 0; i < 4; i++) {
        char ch = s[i];
        uint32_t d;
        if (ch >= '0' && ch <= '9') d = (uint32_t)(ch - '0');
        else if (ch >= 'a' && ch <= 'f') d = (uint32_t)(ch - 'a' + 10);
        else if (ch >= 'A' && ch <= 'F') d = (uint32_t)(ch - 'A' + 10);
        else return false;
        v = v << 4 | d;
    }
    *out = v;
    return true;
}

static size_t put_utf8(uint32_t cp, char out[4])
{
    assert(cp <= 0x10ffff);
    if (cp < 0x80) {
        out[0] = (char)cp;
        return 1;
    }
    if (cp < 0x800) {
        out[0] = (char)(0xc0 | cp >> 6);
        out[1] = (char)(0x80 | (cp & 0x3f));
        return 2;
    }
    if (cp < 0x10000) {
        out[0] = (char)(0xe0 | cp >> 12);
        out[1] = (char)(0x80 | (cp >> 6 & 0x3f));
        out[2] = (char)(0x80 | (cp & 0x3f));
        return 3;
    }
    out[0] = (char)(0xf0 | cp >> 18);
    out[1] = (char)(0x80 | (cp >> 12 & 0x3f));
    out[2] = (char)(0x80 | (cp >> 6 & 0x3f));
    out[3] = (char)(0x80 | (cp & 0x3f));
    return 4;
}

/* s[0] is '\', s[1] is 'u'. returns bytes used (6 or 12), 0: an unpaired surrogate or no hex. */
static size_t unescape_u(const char *s, size_t n, char out[4], size_t *out_n)
{
    uint32_t hi, lo;

    if (!hex4(s + 2, n - 2, &hi)) return 0;
    if (hi < 0xd800 || hi > 0xdfff) {
        *out_n = put_utf8(hi, out);
        return 6;
    }
    if (hi > 0xdbff || n < 12 || s[6] != '\\' || s[7] != 'u' || !hex4(s + 8, n - 8, &lo)) return 0;
    if (lo < 0xdc00 || lo > 0xdfff) return 0;
    *out_n = put_utf8(0x10000 + ((hi - 0xd800) << 10) + (lo - 0xdc00), out);
    return 12;
}

/* The next byte or escape of a string's inside. returns bytes used, 0: not decodable. */
static size_t unescape_step(const char *s, size_t n, char out[4], size_t *out_n)
{
    static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
    const char *hit;

    assert(n > 0);
    *out_n = 1;
    if (s[0] != '\\') {
        out[0] = s[0];
        return 1;
    }
    if (n < 2 || s[1] == '\0') return 0;
    if (s[1] == 'u') return unescape_u(s, n, out, out_n);
    if ((hit = strchr(from, s[1])) == NULL) return 0;
    out[0] = to[hit - from];
    return 2;
}

bool json_unescape(const char *s, size_t n, struct buf *out)
{
    char one[4];
    size_t one_n, k;

    if (n < 2 || s[0] != '"' || s[n - 1] != '"') return false;
    for (size_t i = 1; i < n - 1; i += k) {
        const char *esc = memchr(s + i, '\\', n - 1 - i); /* plain runs in one piece */
        k = esc == NULL ? n - 1 - i : (size_t)(esc - (s + i));
        if (k > 0) {
            buf_put(out, s + i, k);
            continue;
        }
        if ((k = unescape_step(s + i, n - 1 - i, one, &one_n)) == 0) return false;
        buf_put(out, one, one_n);
    }
    return true;
}

/* Does the raw name (still escaped) spell `name`? */
static bool name_equal(const char *raw, size_t n, const char *name, size_t name_n)
{
    char one[4];
    size_t one_n, at = 0, k;

    if (memchr(raw, '\\', n) == NULL) return n == name_n && memcmp(raw, name, n) == 0;
    for (size_t i = 0; i < n; i += k) {
        if ((k = unescape_step(raw + i, n - i, one, &one_n)) == 0) return false;
        if (one_n > name_n - at || memcmp(name + at, one, one_n) != 0) return false;
        at += one_n;
    }
    return at == name_n;
}

int json_member(const char *s, size_t n, const char *name, const char **at, size_t *len,
                enum json_type *type)
{
    size_t pos = 0, name_n = strlen(name), raw_n, val_n;
    const char *raw, *val;
    enum json_type ty;
    int found = 0;

    while (json_next(s, n, &pos, &raw, &raw_n, &val, &val_n, &ty)) {
        if (!name_equal(raw, raw_n, name, name_n)) continue;
        if (found == 1) return -1;
        found = 1;
        *at = val;
        *len = val_n;
        if (type != NULL) *type = ty;
    }
    return found;
}

enum json_int json_int64(const char *s, size_t n, int64_t *out)
{
    bool neg = n > 0 && s[0] == '-';
    uint64_t v = 0, max = neg ? (uint64_t)INT64_MAX + 1 : (uint64_t)INT64_MAX;
    bool range = false;

    if (n == (neg ? 1u : 0u)) return JSON_INT_NOT;
    for (size_t i = neg ? 1 : 0; i < n; i++) {
        if (s[i] < '0' || s[i] > '9') return JSON_INT_NOT;
        uint64_t d = (uint64_t)(s[i] - '0');
        if (range || v > (max - d) / 10) range = true; /* go on: "1...1.5" is NOT, not RANGE */
        else v = v * 10 + d;
    }
    if (range) return JSON_INT_RANGE;
    *out = neg ? (int64_t)(0 - v) : (int64_t)v;
    return JSON_INT_OK;
}

/* One character of a JSON string. Controls that could forge what a person sees are escaped too. */
static void put_char(struct buf *b, const char *s, size_t used, uint32_t cp)
{
    static const char from[] = "\"\\\b\f\n\r\t", to[] = "\"\\bfnrt";
    const char *hit = cp == 0 || cp >= 0x80 ? NULL : strchr(from, (int)cp);

    if (hit != NULL) {
        buf_putc(b, '\\');
        buf_putc(b, to[hit - from]);
    } else if (utf8_control(cp)) {
        buf_printf(b, "\\u%04x", (unsigned)cp);
    } else {
        buf_put(b, s, used);
    }
}

void json_put_str(struct buf *b, const char *s, size_t n)
{
    uint32_t cp = 0;

    buf_putc(b, '"');
    for (size_t i = 0, used; i < n; i += used) {
        size_t plain = 0;
        while (i + plain < n && s[i + plain] >= 0x20 && s[i + plain] < 0x7f &&
               s[i + plain] != '"' && s[i + plain] != '\\') plain++;
        if ((used = plain) > 0) {
            buf_put(b, s + i, plain);
        } else if ((used = utf8_step(s + i, n - i, &cp)) > 0) {
            put_char(b, s + i, used, cp);
        } else {
            buf_printf(b, "\\\\x%02x", (unsigned)(unsigned char)s[i]);
            used = 1;
        }
    }
    buf_putc(b, '"');
}

void json_put_cstr(struct buf *b, const char *s)
{
    if (s == NULL)
        buf_puts(b, "null");
    else
        json_put_str(b, s, strlen(s));
}
