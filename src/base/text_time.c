// SPDX-License-Identifier: Apache-2.0
/* text_time.c - durations ("1.5s") and instants (RFC 3339), both ways, in integers only.
 *
 * Keeps: printing then parsing gives the same microseconds.
 */
#include "base/text.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define SECOND INT64_C(1000000)
#define DAY (86400 * SECOND)
#define DURATION_MAX (3653 * DAY) /* ten years, leap days included */

static const struct unit { const char *name; int64_t us; } units[] = {
    { "d", DAY }, { "h", 3600 * SECOND }, { "m", 60 * SECOND }, { "s", SECOND }, { "ms", 1000 },
};
#define UNITS_N (sizeof units / sizeof *units)

bool text_duration_us(const char *s, int64_t *out)
{
    int64_t whole = 0, frac = 0, scale = 1, unit = 0;
    const char *p = s;

    if (strcmp(s, "0") == 0) {
        *out = 0;
        return true;
    }
    for (; *p >= '0' && *p <= '9'; p++) {
        if (whole > DURATION_MAX) return false;
        whole = whole * 10 + (*p - '0');
    }
    if (p == s) return false;
    if (*p == '.') {
        const char *from = ++p;
        for (; *p >= '0' && *p <= '9'; p++) {
            if (p - from >= 6) return false;
            frac = frac * 10 + (*p - '0');
            scale *= 10;
        }
        if (p == from) return false;
    }
    for (size_t i = 0; i < UNITS_N; i++)
        if (strcmp(p, units[i].name) == 0) unit = units[i].us;
    if (unit == 0 || whole > DURATION_MAX / unit) return false;
    if (frac * unit % scale != 0) return false; /* finer than a microsecond */
    whole = whole * unit + frac * unit / scale;
    if (whole > DURATION_MAX) return false;
    *out = whole;
    return true;
}

/* us in one unit, exactly. returns the length, 0: six decimals are not enough. */
static int print_unit(uint64_t us, const struct unit *u, char *out, size_t n)
{
    uint64_t unit = (uint64_t)u->us, frac = us % unit * 1000000;
    char dec[8];
    int k = 6;

    if (frac % unit != 0) return 0;
    frac /= unit;
    if (frac == 0) return snprintf(out, n, "%" PRIu64 "%s", us / unit, u->name);
    snprintf(dec, sizeof dec, "%06u", (unsigned)frac);
    while (dec[k - 1] == '0') k--;
    return snprintf(out, n, "%" PRIu64 ".%.*s%s", us / unit, k, dec, u->name);
}

char *text_duration(int64_t us, char *buf, size_t n)
{
    uint64_t abs = us < 0 ? 0 - (uint64_t)us : (uint64_t)us;
    char best[40] = "0s", one[40];
    int best_n = 0;

    for (size_t i = 0; i < UNITS_N && abs != 0; i++) {
        int k = print_unit(abs, &units[i], one, sizeof one);
        if (k == 0) continue;
        /* Of two as short, "1.613s" goes before "1613ms", but "250ms" before "0.25s". */
        if (best_n != 0 && (k > best_n || (k == best_n && best[0] != '0'))) continue;
        snprintf(best, sizeof best, "%s", one);
        best_n = k;
    }
    snprintf(buf, n, "%s%s", us < 0 ? "-" : "", best);
    return buf;
}

/* Days since 1970-01-01 of a date in the proleptic Gregorian calendar (years >= 1 here). Years
 * begin in March, so that the leap day is the last one. */
static int64_t days_of(int64_t y, int m, int d)
{
    y -= m <= 2;
    int64_t era = y / 400, in_era = y - era * 400;
    int64_t in_year = (153 * (m + (m > 2 ? -3 : 9)) + 2) / 5 + d - 1;

    return era * 146097 + in_era * 365 + in_era / 4 - in_era / 100 + in_year - 719468;
}

static void date_of(int64_t days, int *y, int *m, int *d)
{
    int64_t z = days + 719468, era = z / 146097, in_era = z - era * 146097;
    int64_t year = (in_era - in_era / 1460 + in_era / 36524 - in_era / 146096) / 365;
    int64_t in_year = in_era - (365 * year + year / 4 - year / 100);
    int64_t month = (5 * in_year + 2) / 153;

    *d = (int)(in_year - (153 * month + 2) / 5 + 1);
    *m = (int)(month < 10 ? month + 3 : month - 9);
    *y = (int)(year + era * 400 + (*m <= 2));
}

static int month_days(int y, int m)
{
    static const int days[] = { 31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31 };

    return m == 2 && y % 4 == 0 && (y % 100 != 0 || y % 400 == 0) ? 29 : days[m - 1];
}

/* Exactly `digits` digits, then *p stands behind them. */
static bool take(const char **p, int digits, int *out)
{
    int v = 0;

    for (int i = 0; i < digits; i++, (*p)++) {
        if (**p < '0' || **p > '9') return false;
        v = v * 10 + (**p - '0');
    }
    *out = v;
    return true;
}

static bool take_char(const char **p, char ch)
{
    if (**p != ch) return false;
    (*p)++;
    return true;
}

static const char *parse_date(const char **p, int64_t *days)
{
    int y, m, d;

    if (!take(p, 4, &y)) return "expected YYYY-MM-DDThh:mm:ss and a zone";
    if (**p >= '0' && **p <= '9') return "the year must be 1970 to 9999";
    if (!take_char(p, '-') || !take(p, 2, &m) || !take_char(p, '-') || !take(p, 2, &d))
        return "expected YYYY-MM-DDThh:mm:ss and a zone";
    if (y < 1970) return "the year must be 1970 to 9999";
    if (m < 1 || m > 12 || d < 1 || d > month_days(y, m)) return "there is no such day";
    *days = days_of(y, m, d);
    return NULL;
}

static const char *parse_clock(const char **p, int64_t *us)
{
    int h, m, s;
    int64_t frac = 0, scale = 100000;

    if (!take(p, 2, &h) || !take_char(p, ':') || !take(p, 2, &m) || !take_char(p, ':') ||
        !take(p, 2, &s))
        return "expected hh:mm:ss after the date";
    if (s == 60) return "second 60 (a leap second) is not accepted";
    if (h > 23 || m > 59 || s > 59) return "there is no such time of day";
    if (take_char(p, '.')) {
        if (**p < '0' || **p > '9') return "expected digits after the point";
        for (; **p >= '0' && **p <= '9'; (*p)++, scale /= 10)
            frac += (**p - '0') * scale; /* beyond microseconds: cut off */
    }
    *us = (h * 3600 + m * 60 + s) * SECOND + frac;
    return NULL;
}

static const char *parse_zone(const char **p, int64_t *us)
{
    static const char *const missing = "no zone: end with Z or an offset like +02:00";
    int h, m;
    char sign = **p;

    *us = 0;
    if (sign == 'Z' || sign == 'z') {
        (*p)++;
    } else {
        if (sign != '+' && sign != '-') return missing;
        (*p)++;
        if (!take(p, 2, &h) || !take_char(p, ':') || !take(p, 2, &m)) return missing;
        if (h > 23 || m > 59) return "there is no such zone offset";
        *us = (h * 60 + m) * 60 * SECOND * (sign == '-' ? -1 : 1);
    }
    return **p == '\0' ? NULL : "text after the zone";
}

bool text_instant_us(const char *s, int64_t *out, const char **why)
{
    int64_t days = 0, clock = 0, zone = 0, us;
    const char *p = s, *bad = parse_date(&p, &days);

    if (bad == NULL && *p != 'T' && *p != 't' && *p != ' ')
        bad = "expected 'T' and a time after the date";
    if (bad == NULL) {
        p++;
        bad = parse_clock(&p, &clock);
    }
    if (bad == NULL) bad = parse_zone(&p, &zone);
    us = days * DAY + clock - zone;
    if (bad == NULL && (us < 0 || us >= days_of(10000, 1, 1) * DAY))
        bad = "the year must be 1970 to 9999 in UTC";
    if (why != NULL) *why = bad;
    if (bad != NULL) return false;
    *out = us;
    return true;
}

char *text_instant(int64_t us, char *buf, size_t n)
{
    int y, m, d;
    int64_t day = us / DAY, in_day = us % DAY;

    if (us < 0 || us >= days_of(10000, 1, 1) * DAY) { /* cannot be stored; shown as it is */
        snprintf(buf, n, "%" PRId64 "us", us);
        return buf;
    }
    date_of(day, &y, &m, &d);
    int sec = (int)(in_day / SECOND), frac = (int)(in_day % SECOND);
    if (frac % 1000 == 0)
        snprintf(buf, n, "%04d-%02d-%02dT%02d:%02d:%02d.%03dZ", y, m, d, sec / 3600,
                 sec / 60 % 60, sec % 60, frac / 1000);
    else
        snprintf(buf, n, "%04d-%02d-%02dT%02d:%02d:%02d.%06dZ", y, m, d, sec / 3600,
                 sec / 60 % 60, sec % 60, frac);
    return buf;
}
