// SPDX-License-Identifier: Apache-2.0
/* meaning.c - a fingerprint of what a JSON text says: the sum, over all values, of a hash of the
 * value and of the path to it. A sum does not care for the order of members; a path holds the index
 * inside arrays, whose order counts. Does not recurse; memory is one level per depth.
 */
#include <assert.h>
#include <stdint.h>
#include <string.h>
#include "base/json.h"
#include "core/limits.h"
#include "core/meaning.h"

struct level { uint64_t path, index; bool array, want_name; };

static uint64_t mix(uint64_t a, uint64_t b)
{
    uint64_t x = (a ^ (b + 0x9e3779b97f4a7c15u + (a << 6) + (a >> 2))) * 0xff51afd7ed558ccdu;

    return (x ^ (x >> 33)) * 0xc4ceb9fe1a85ec53u;
}

static uint64_t hash(uint64_t h, const char *s, size_t n)
{
    for (size_t i = 0; i < n; i++)
        h = mix(h, (unsigned char)s[i]);
    return mix(h, n);
}

/* A string with its quotes: its characters, whichever way they are escaped. */
static uint64_t hash_string(const char *s, size_t n)
{
    struct buf b = {0};
    uint64_t h = json_unescape(s, n, &b) && !b.failed ? hash('"', buf_str(&b), b.n)
                                                      : hash('?', s, n);

    buf_free(&b);
    return h;
}

/* A number: its digits without zeros at either end, and the power of ten they are taken by. */
static uint64_t hash_number(const char *s, size_t n)
{
    uint64_t h = '0';
    int64_t power = 0, exponent = 0, zeros = 0;
    size_t i = 0;
    bool minus = s[0] == '-', fraction = false, digits = false, below = false;

    for (i = minus; i < n && s[i] != 'e' && s[i] != 'E'; i++) {
        if (s[i] == '.') {
            fraction = true;
            continue;
        }
        power -= fraction;
        if (s[i] == '0') {
            zeros++;
            continue;
        }
        if (digits)
            h = mix(h, (uint64_t)zeros);
        zeros = 0;
        digits = true;
        h = mix(h, (unsigned char)s[i]);
    }
    for (i++; i < n; i++) {
        if (s[i] == '-')
            below = true;
        else if (s[i] != '+' && exponent < INT64_MAX / 100)
            exponent = exponent * 10 + (s[i] - '0');
    }
    if (!digits)
        return mix('0', 0); /* 0, -0, 0.00, 0e9 */
    power += zeros + (below ? -exponent : exponent);
    return mix(mix(h, (uint64_t)power), minus);
}

/* Where the string that begins at s[i] ends: the index after its closing quote. */
static size_t string_end(const char *s, size_t i, size_t n)
{
    for (i++; i < n && s[i] != '"'; i++)
        i += s[i] == '\\';
    return i < n ? i + 1 : n;
}

static size_t scalar_end(const char *s, size_t i, size_t n)
{
    if (s[i] == '"')
        return string_end(s, i, n);
    while (i < n && strchr(" \t\r\n,]}", s[i]) == NULL)
        i++;
    return i;
}

static uint64_t hash_scalar(const char *s, size_t n)
{
    if (s[0] == '"')
        return hash_string(s, n);
    return s[0] == '-' || (s[0] >= '0' && s[0] <= '9') ? hash_number(s, n) : hash('w', s, n);
}

static uint64_t fingerprint(const char *s, size_t n)
{
    struct level stack[LIMIT_JSON_DEPTH + 2] = {{.path = 1, .array = true}};
    size_t depth = 0, end;
    uint64_t sum = 0, path = 1;

    for (size_t i = 0; i < n; i = end) {
        struct level *l = &stack[depth];

        end = i + 1;
        if (strchr(" \t\r\n:", s[i]) != NULL)
            continue;
        if (s[i] == ',') {
            l->want_name = !l->array;
        } else if (s[i] == ']' || s[i] == '}') {
            assert(depth > 0);
            depth--;
        } else if (l->want_name && s[i] == '"') {
            end = string_end(s, i, n);
            path = mix(l->path, hash_string(s + i, end - i));
            l->want_name = false;
        } else {
            if (l->array)
                path = mix(l->path, l->index++);
            if (s[i] == '[' || s[i] == '{') {
                sum += mix(path, (unsigned char)s[i]);
                if (++depth > LIMIT_JSON_DEPTH)
                    return 0; /* json_check would have refused it */
                stack[depth] = (struct level){.path = path, .array = s[i] == '[',
                                              .want_name = s[i] == '{'};
            } else {
                end = scalar_end(s, i, n);
                sum += mix(path, hash_scalar(s + i, end - i));
            }
        }
    }
    return sum;
}

bool meaning_same(const char *a, size_t an, const char *b, size_t bn)
{
    return fingerprint(a, an) == fingerprint(b, bn);
}
