// SPDX-License-Identifier: Apache-2.0
/* json.c - check and walk JSON text (RFC 8259) without building anything.
 *
 * Keeps: no recursion (nesting is a bit stack), no byte read at or beyond n, text never changed.
 * See:   json_text.c for numbers, strings in and strings out.
 */
#include "base/json.h"

#include <assert.h>
#include <stdint.h>
#include <string.h>
#include "base/utf8.h"

#define NEST_MAX 1024 /* no caller may ask for more depth than the bit stack holds */

struct scan { const char *s; size_t n, i; const char *why; };
struct nest { uint8_t object[NEST_MAX / 8]; int depth; }; /* bit set: that level is an object */

static bool bad(struct scan *c, const char *why)
{
    c->why = why;
    return false;
}

static char peek(const struct scan *c) { return c->i < c->n ? c->s[c->i] : '\0'; }

static void skip_ws(struct scan *c)
{
    while (c->i < c->n) {
        char ch = c->s[c->i];
        if (ch != ' ' && ch != '\t' && ch != '\n' && ch != '\r') return;
        c->i++;
    }
}

static bool is_digit(char ch) { return ch >= '0' && ch <= '9'; }

static bool is_hex(char ch)
{
    return is_digit(ch) || (ch >= 'a' && ch <= 'f') || (ch >= 'A' && ch <= 'F');
}

static bool scan_escape(struct scan *c)
{
    char ch;

    c->i++; /* the backslash */
    ch = peek(c);
    if (ch == '\0' || strchr("\"\\/bfnrtu", ch) == NULL) return bad(c, "bad escape in a string");
    c->i++;
    if (ch != 'u') return true;
    for (int k = 0; k < 4; k++, c->i++)
        if (!is_hex(peek(c))) return bad(c, "bad \\u escape in a string");
    return true;
}

/* Eight bytes at once: most of any text is the inside of strings. The high bit of each byte is a
 * flag; a borrow may set one above a true one, never below, so "none is set" is exact. */
#define EACH(byte) (UINT64_C(0x0101010101010101) * (byte))

static uint64_t eight(const char *s)
{
    uint64_t x;

    memcpy(&x, s, sizeof x);
    return x;
}

static uint64_t has_byte(uint64_t x, unsigned char byte)
{
    const uint64_t y = x ^ EACH(byte);

    return (y - EACH(1)) & ~y & EACH(0x80);
}

/* Bytes at s that mean themselves inside a string: taken in one run. */
static size_t plain_run(const char *s, size_t n)
{
    size_t i = 0;

    for (; n - i >= 8; i += 8) {
        const uint64_t x = eight(s + i);
        const uint64_t odd = x | ((x - EACH(0x20)) & ~x) | has_byte(x, '"') | has_byte(x, '\\');
        if ((odd & EACH(0x80)) != 0) break;
    }
    for (; i < n; i++) {
        unsigned char ch = (unsigned char)s[i];
        if (ch < 0x20 || ch >= 0x80 || ch == '"' || ch == '\\') break;
    }
    return i;
}

static bool scan_string(struct scan *c)
{
    uint32_t cp;
    size_t k;

    assert(peek(c) == '"');
    c->i++;
    for (;;) {
        c->i += plain_run(c->s + c->i, c->n - c->i);
        if (c->i == c->n) return bad(c, "unclosed string");
        unsigned char ch = (unsigned char)c->s[c->i];
        if (ch == '"') { c->i++; return true; }
        if (ch < 0x20) return bad(c, "control character in a string");
        if (ch == '\\') {
            if (!scan_escape(c)) return false;
        } else {
            if ((k = utf8_step(c->s + c->i, c->n - c->i, &cp)) == 0) return bad(c, "not UTF-8");
            c->i += k;
        }
    }
}

static bool scan_digits(struct scan *c)
{
    size_t from = c->i;

    while (is_digit(peek(c))) c->i++;
    return c->i > from ? true : bad(c, "bad number");
}

static bool scan_number(struct scan *c)
{
    if (peek(c) == '-') c->i++;
    if (peek(c) == '0') {
        c->i++;
        if (is_digit(peek(c))) return bad(c, "number with a leading zero");
    } else if (!scan_digits(c)) {
        return false;
    }
    if (peek(c) == '.') {
        c->i++;
        if (!scan_digits(c)) return false;
    }
    if (peek(c) == 'e' || peek(c) == 'E') {
        c->i++;
        if (peek(c) == '+' || peek(c) == '-') c->i++;
        if (!scan_digits(c)) return false;
    }
    return true;
}

static bool scan_word(struct scan *c, const char *word)
{
    size_t n = strlen(word);

    if (c->n - c->i < n || memcmp(c->s + c->i, word, n) != 0) return bad(c, "expected a value");
    c->i += n;
    return true;
}

static bool scan_scalar(struct scan *c)
{
    char ch = peek(c);

    if (c->i == c->n) return bad(c, "unexpected end");
    if (ch == '"') return scan_string(c);
    if (ch == '-' || is_digit(ch)) return scan_number(c);
    if (ch == 't') return scan_word(c, "true");
    if (ch == 'f') return scan_word(c, "false");
    if (ch == 'n') return scan_word(c, "null");
    return bad(c, "expected a value");
}

/* `"name" :` with white space around. */
static bool scan_name(struct scan *c)
{
    skip_ws(c);
    if (c->i == c->n) return bad(c, "unexpected end");
    if (peek(c) != '"') return bad(c, "expected a member name in quotes");
    if (!scan_string(c)) return false;
    skip_ws(c);
    if (peek(c) != ':') return bad(c, c->i == c->n ? "unexpected end" : "expected ':'");
    c->i++;
    return true;
}

static bool nest_push(struct nest *st, bool object, int depth_max)
{
    uint8_t bit = (uint8_t)(1u << (st->depth % 8));

    if (st->depth >= depth_max || st->depth >= NEST_MAX) return false;
    if (object)
        st->object[st->depth / 8] |= bit;
    else
        st->object[st->depth / 8] &= (uint8_t)~bit;
    st->depth++;
    return true;
}

static bool nest_object(const struct nest *st)
{
    assert(st->depth > 0);
    return st->object[(st->depth - 1) / 8] >> ((st->depth - 1) % 8) & 1;
}

/* Close what closes here; *more = a value must follow. */
static bool after_value(struct scan *c, struct nest *st, bool *more)
{
    for (;;) {
        skip_ws(c);
        if (st->depth == 0) {
            *more = false;
            return c->i == c->n ? true : bad(c, "text after the value");
        }
        if (c->i == c->n) return bad(c, "unexpected end");
        bool object = nest_object(st);
        if (peek(c) == ',') {
            c->i++;
            *more = true;
            return object ? scan_name(c) : true;
        }
        if (peek(c) != (object ? '}' : ']'))
            return bad(c, object ? "expected ',' or '}'" : "expected ',' or ']'");
        c->i++;
        st->depth--;
    }
}

static bool check_text(struct scan *c, int depth_max)
{
    struct nest st = { .depth = 0 };
    bool more = true;

    while (more) {
        skip_ws(c);
        bool object = peek(c) == '{';
        if (object || peek(c) == '[') {
            if (!nest_push(&st, object, depth_max)) return bad(c, "too deep");
            c->i++;
            skip_ws(c);
            if (peek(c) != (object ? '}' : ']')) {
                if (object && !scan_name(c)) return false;
                continue; /* the first value inside */
            }
            /* empty: after_value closes it */
        } else if (!scan_scalar(c)) {
            return false;
        }
        if (!after_value(c, &st, &more)) return false;
    }
    return true;
}

static enum json_type type_at(const struct scan *c)
{
    switch (peek(c)) {
    case '{': return JSON_OBJECT;
    case '[': return JSON_ARRAY;
    case '"': return JSON_STRING;
    case 't': return JSON_TRUE;
    case 'f': return JSON_FALSE;
    case 'n': return JSON_NULL;
    default:  return JSON_NUMBER;
    }
}

bool json_check(const char *s, size_t n, int depth_max, enum json_type *type, struct json_err *err)
{
    struct scan c = { .s = s, .n = n };
    bool ok;

    if (n >= 3 && memcmp(s, "\xef\xbb\xbf", 3) == 0) {
        ok = bad(&c, "byte order mark at the start");
    } else {
        skip_ws(&c);
        if (type != NULL) *type = type_at(&c);
        ok = check_text(&c, depth_max);
    }
    if (!ok && err != NULL) *err = (struct json_err){ .at = c.i, .why = c.why };
    return ok;
}

/* ---- walking text that json_check has accepted; other text ends the walk, never overruns ---- */

static bool pass_string(struct scan *c)
{
    for (c->i++; c->i < c->n; c->i++) {
        while (c->n - c->i >= 8) { /* nothing in these eight ends it or escapes */
            const uint64_t x = eight(c->s + c->i);
            if ((has_byte(x, '"') | has_byte(x, '\\')) != 0) break;
            c->i += 8;
        }
        if (c->i == c->n) break;
        if (c->s[c->i] == '"') { c->i++; return true; }
        if (c->s[c->i] == '\\') c->i++;
    }
    c->i = c->n;
    return false;
}

static bool pass_value(struct scan *c)
{
    size_t depth = 0;

    do {
        char ch = peek(c);
        if (c->i >= c->n) return false;
        if (ch == '"') {
            if (!pass_string(c)) return false;
        } else if (ch == '{' || ch == '[') {
            depth++;
            c->i++;
        } else if (ch == '}' || ch == ']') {
            if (depth == 0) return false;
            depth--;
            c->i++;
        } else if (depth > 0) {
            c->i++;
        } else {
            size_t from = c->i;
            while (c->i < c->n && strchr(",]} \t\n\r", c->s[c->i]) == NULL) c->i++;
            return c->i > from;
        }
    } while (depth > 0);
    return true;
}

/* Go to the next member or item. `open`: the bracket the text must begin with. */
static bool step_in(struct scan *c, char open)
{
    bool first = c->i == 0;

    skip_ws(c);
    if (peek(c) != (first ? open : ',')) return false;
    c->i++;
    skip_ws(c);
    return c->i < c->n && peek(c) != (open == '{' ? '}' : ']');
}

static bool take_value(struct scan *c, const char **val, size_t *val_n, enum json_type *type)
{
    size_t from;

    skip_ws(c);
    from = c->i;
    if (type != NULL) *type = type_at(c);
    if (!pass_value(c)) return false;
    *val = c->s + from;
    *val_n = c->i - from;
    return true;
}

bool json_next(const char *s, size_t n, size_t *pos, const char **name, size_t *name_n,
               const char **val, size_t *val_n, enum json_type *type)
{
    struct scan c = { .s = s, .n = n, .i = *pos };
    size_t from;

    if (!step_in(&c, '{') || peek(&c) != '"') return false;
    from = c.i + 1;
    if (!pass_string(&c)) return false;
    *name = s + from;
    *name_n = c.i - 1 - from;
    skip_ws(&c);
    if (peek(&c) != ':') return false;
    c.i++;
    if (!take_value(&c, val, val_n, type)) return false;
    *pos = c.i;
    return true;
}

bool json_next_item(const char *s, size_t n, size_t *pos, const char **val, size_t *val_n,
                    enum json_type *type)
{
    struct scan c = { .s = s, .n = n, .i = *pos };

    if (!step_in(&c, '[') || !take_value(&c, val, val_n, type)) return false;
    *pos = c.i;
    return true;
}
