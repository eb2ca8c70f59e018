// SPDX-License-Identifier: Apache-2.0
/* text.c - numbers in and out, and the nearest name for "did you mean". See text_time.c too. */
#include "base/text.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

bool text_int64(const char *s, int64_t min, int64_t max, int64_t *out)
{
    bool neg = *s == '-';
    uint64_t v = 0, top = neg ? (uint64_t)INT64_MAX + 1 : (uint64_t)INT64_MAX;
    int64_t got;

    if (neg) s++;
    if (*s == '\0') return false;
    for (; *s != '\0'; s++) {
        if (*s < '0' || *s > '9') return false;
        uint64_t d = (uint64_t)(*s - '0');
        if (v > (top - d) / 10) return false;
        v = v * 10 + d;
    }
    got = neg ? (int64_t)(0 - v) : (int64_t)v;
    if (got < min || got > max) return false;
    *out = got;
    return true;
}

void text_copy(char *dst, size_t cap, const char *s)
{
    const size_t n = strnlen(s, cap - 1);

    memcpy(dst, s, n);
    dst[n] = '\0';
}

char *text_bytes(uint64_t bytes, char *buf, size_t n)
{
    static const char *const unit[] = { "KiB", "MiB", "GiB", "TiB", "PiB", "EiB" };
    uint64_t whole = bytes;
    unsigned rest = 0; /* of 1024, below `whole` */
    size_t u = 0;

    if (bytes < 1024) {
        snprintf(buf, n, "%" PRIu64 " B", bytes);
        return buf;
    }
    for (;; u++) {
        rest = (unsigned)(whole % 1024);
        whole /= 1024;
        /* 1023.95 and more would print as 1024.0: that is the next unit's 1.0 */
        if (whole < 1023 || (whole == 1023 && rest * 10 + 512 < 10 * 1024) || u == 5) break;
    }
    unsigned tenth = (rest * 10 + 512) / 1024;
    snprintf(buf, n, "%" PRIu64 ".%u %s", whole + tenth / 10, tenth % 10, unit[u]);
    return buf;
}

char *text_count(int64_t v, char *buf, size_t n)
{
    char tmp[32];
    size_t at = sizeof tmp - 1;
    uint64_t u = v < 0 ? 0 - (uint64_t)v : (uint64_t)v;
    int digits = 0;

    tmp[at] = '\0';
    do {
        if (digits > 0 && digits % 3 == 0) tmp[--at] = ',';
        tmp[--at] = (char)('0' + u % 10);
        u /= 10;
        digits++;
    } while (u > 0);
    if (v < 0) tmp[--at] = '-';
    snprintf(buf, n, "%s", tmp + at);
    return buf;
}

#define DISTANCE_MAX 128 /* longer texts are never near: names are 64 bytes, options fewer */

static int min2(int a, int b) { return a < b ? a : b; }

int text_distance(const char *a, const char *b, int max)
{
    int row[3][DISTANCE_MAX + 1]; /* the last two rows and the present one, in turn */
    int an = (int)strnlen(a, DISTANCE_MAX + 1), bn = (int)strnlen(b, DISTANCE_MAX + 1);

    assert(max >= 0);
    if (an > DISTANCE_MAX || bn > DISTANCE_MAX) return strcmp(a, b) == 0 ? 0 : max + 1;
    if (an - bn > max || bn - an > max) return max + 1;
    for (int j = 0; j <= bn; j++) row[0][j] = j;
    for (int i = 1; i <= an; i++) {
        int *now = row[i % 3], *up = row[(i + 2) % 3], *upup = row[(i + 1) % 3], best = i;
        now[0] = i;
        for (int j = 1; j <= bn; j++) {
            now[j] = min2(min2(up[j], now[j - 1]) + 1, up[j - 1] + (a[i - 1] != b[j - 1]));
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
                now[j] = min2(now[j], upup[j - 2] + 1); /* two neighbours swapped */
            best = min2(best, now[j]);
        }
        if (best > max + 1) return max + 1; /* +1: a swap looks back over one row */
    }
    return row[an % 3][bn] <= max ? row[an % 3][bn] : max + 1;
}

int text_nearest(const char *s, const char *const *names, size_t n)
{
    size_t len = strlen(s);
    int best = len >= 3 * DISTANCE_MAX ? DISTANCE_MAX : len < 3 ? 1 : (int)(len / 3), found = -1;

    for (size_t i = 0; i < n; i++) {
        int d = text_distance(s, names[i], best);
        if (d > best) continue;
        found = (int)i;
        if (d == 0) break;
        best = d - 1; /* only a nearer one may replace it: the first of equals wins */
    }
    return found;
}
