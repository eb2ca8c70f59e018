// SPDX-License-Identifier: Apache-2.0
/* policy.c - a task's policy from and to text: one table of settings, used both ways.
 *
 * Keeps: policy_parse(policy_text(p)) gives p again, bit for bit; a bad value changes nothing.
 */
#include "core/rules.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>
#include "base/text.h"

#define SECOND INT64_C(1000000)
#define DAY (86400 * SECOND)
#define LOST_CAP_MAX 100
#define VALUE_MAX 2048 /* a list of 255 single codes is 914 bytes */

struct reply { char *why; size_t n; }; /* where to say what is wrong */

static __attribute__((format(printf, 2, 3))) bool refuse(struct reply r, const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    if (r.n > 0) vsnprintf(r.why, r.n, fmt, ap);
    va_end(ap);
    return false;
}

void policy_defaults(struct policy *p)
{
    *p = (struct policy){
        .ack = ACK_LATE, .max_retries = 5, .backoff_base_us = SECOND,
        .backoff_cap_us = 600 * SECOND, .lost_cap = 3, .hard_limit_us = 3600 * SECOND,
        .queue = "default",
        .zero_rows = ZERO_DONE, .key_window_us = 30 * DAY, .retention_us = 7 * DAY,
    };
}

/* ---- words ---- */

static const char *const ack_words[] = { [ACK_LATE] = "late", [ACK_EARLY] = "early", NULL };
static const char *const zero_words[] = { [ZERO_DONE] = "done", [ZERO_STALE] = "stale",
                                          [ZERO_RETRY] = "retry", [ZERO_FAIL] = "fail", NULL };

static int word_of(const char *const *words, const char *v)
{
    for (int i = 0; words[i] != NULL; i++)
        if (strcmp(words[i], v) == 0) return i;
    return -1;
}

static bool set_ack(struct policy *p, const char *v, struct reply r)
{
    int i = word_of(ack_words, v);

    if (i < 0) return refuse(r, "must be late or early");
    p->ack = (enum ack_mode)i;
    return true;
}
static void put_ack(const struct policy *p, struct buf *b) { buf_puts(b, ack_words[p->ack]); }

static bool set_zero(struct policy *p, const char *v, struct reply r)
{
    int i = word_of(zero_words, v);

    if (i < 0) return refuse(r, "must be done, stale, retry or fail");
    p->zero_rows = (enum zero_rows)i;
    return true;
}
static void put_zero(const struct policy *p, struct buf *b)
{
    buf_puts(b, zero_words[p->zero_rows]);
}

/* ---- numbers ---- */

static bool set_int(int *out, const char *v, int min, int max, struct reply r)
{
    int64_t n;

    if (!text_int64(v, min, max, &n))
        return refuse(r, "must be a whole number from %d to %d", min, max);
    *out = (int)n;
    return true;
}

static bool set_retries(struct policy *p, const char *v, struct reply r)
{
    return set_int(&p->max_retries, v, 0, LIMIT_RETRIES, r);
}
static void put_retries(const struct policy *p, struct buf *b)
{
    buf_printf(b, "%d", p->max_retries);
}

static bool set_lost_cap(struct policy *p, const char *v, struct reply r)
{
    return set_int(&p->lost_cap, v, 1, LOST_CAP_MAX, r);
}
static void put_lost_cap(const struct policy *p, struct buf *b)
{
    buf_printf(b, "%d", p->lost_cap);
}

static bool set_priority(struct policy *p, const char *v, struct reply r)
{
    return set_int(&p->priority, v, -LIMIT_PRIORITY, LIMIT_PRIORITY, r);
}
static void put_priority(const struct policy *p, struct buf *b)
{
    buf_printf(b, "%d", p->priority);
}

/* ---- durations ---- */

static bool set_us(int64_t *out, const char *v, int64_t min, struct reply r)
{
    int64_t us;

    if (!text_duration_us(v, &us))
        return refuse(r, "must be a duration like 250ms, 10s, 5m, 2h or 7d");
    if (us < min) return refuse(r, "must be more than 0");
    *out = us;
    return true;
}

static void put_us(int64_t us, struct buf *b)
{
    char t[40];

    buf_puts(b, text_duration(us, t, sizeof t));
}

static bool set_backoff(struct policy *p, const char *v, struct reply r)
{
    char low[32];
    const char *dots = strstr(v, "..");
    int64_t base, cap;

    if (dots == NULL || (size_t)(dots - v) >= sizeof low)
        return refuse(r, "must be a range like 1s..600s");
    snprintf(low, sizeof low, "%.*s", (int)(dots - v), v);
    if (!text_duration_us(low, &base) || !text_duration_us(dots + 2, &cap))
        return refuse(r, "must be a range like 1s..600s");
    if (base > cap) return refuse(r, "the range must not begin above its end");
    p->backoff_base_us = base;
    p->backoff_cap_us = cap;
    return true;
}
static void put_backoff(const struct policy *p, struct buf *b)
{
    put_us(p->backoff_base_us, b);
    buf_puts(b, "..");
    put_us(p->backoff_cap_us, b);
}

static bool set_soft(struct policy *p, const char *v, struct reply r)
{
    return set_us(&p->soft_limit_us, v, 0, r);
}
static void put_soft(const struct policy *p, struct buf *b) { put_us(p->soft_limit_us, b); }

static bool set_hard(struct policy *p, const char *v, struct reply r)
{
    return set_us(&p->hard_limit_us, v, 1, r); /* every run is bounded: there is no "none" */
}
static void put_hard(const struct policy *p, struct buf *b) { put_us(p->hard_limit_us, b); }

static bool set_window(struct policy *p, const char *v, struct reply r)
{
    return set_us(&p->key_window_us, v, 0, r);
}
static void put_window(const struct policy *p, struct buf *b) { put_us(p->key_window_us, b); }

static bool set_retention(struct policy *p, const char *v, struct reply r)
{
    return set_us(&p->retention_us, v, 0, r);
}
static void put_retention(const struct policy *p, struct buf *b) { put_us(p->retention_us, b); }

/* ---- names ---- */

static bool set_queue(struct policy *p, const char *v, struct reply r)
{
    const char *why;

    if (!name_ok(v, &why)) return refuse(r, "%s", why);
    snprintf(p->queue, sizeof p->queue, "%s", v);
    return true;
}
static void put_queue(const struct policy *p, struct buf *b) { buf_puts(b, p->queue); }

/* ":name" as in the statements, or empty. */
static bool set_param(char *out, size_t out_n, const char *v, struct reply r)
{
    size_t n = strlen(v);

    for (size_t i = 1; i < n; i++) {
        bool alpha = (v[i] >= 'a' && v[i] <= 'z') || (v[i] >= 'A' && v[i] <= 'Z') || v[i] == '_';
        bool digit = v[i] >= '0' && v[i] <= '9';
        if (!alpha && !(digit && i > 1)) n = 1; /* refused below */
    }
    if (n == 1 || (n > 0 && v[0] != ':') || n >= out_n)
        return refuse(r, "must be :name, the name of a member of args");
    snprintf(out, out_n, "%s", v);
    return true;
}

static bool set_entity(struct policy *p, const char *v, struct reply r)
{
    return set_param(p->entity, sizeof p->entity, v, r);
}
static void put_entity(const struct policy *p, struct buf *b) { buf_puts(b, p->entity); }

static bool set_version(struct policy *p, const char *v, struct reply r)
{
    return set_param(p->version, sizeof p->version, v, r);
}
static void put_version(const struct policy *p, struct buf *b) { buf_puts(b, p->version); }

/* ---- lists of exit codes ---- */

static bool has(const uint64_t set[4], int code) { return set[code / 64] >> (code % 64) & 1; }

/* One word: "7" or "30-40". */
static bool add_codes(uint64_t set[4], char *word, struct reply r)
{
    char *dash = strchr(word, '-');
    int64_t from, to;

    if (dash != NULL) *dash = '\0';
    if (!text_int64(word, 1, 255, &from) || (dash != NULL && !text_int64(dash + 1, 1, 255, &to)))
        return refuse(r, "must be exit codes from 1 to 255 like \"1 2 30-40\"");
    if (dash == NULL) to = from;
    if (from > to) return refuse(r, "the range %d-%d is backwards", (int)from, (int)to);
    for (; from <= to; from++) set[from / 64] |= UINT64_C(1) << (from % 64);
    return true;
}

static bool set_codes(uint64_t out[4], const char *v, const uint64_t *a, const uint64_t *b,
                      struct reply r)
{
    uint64_t set[4] = { 0 };
    char text[VALUE_MAX], *rest = text, *word;

    if (strlen(v) >= sizeof text) return refuse(r, "the list is too long");
    snprintf(text, sizeof text, "%s", v);
    while ((word = strsep(&rest, " \t")) != NULL)
        if (*word != '\0' && !add_codes(set, word, r)) return false;
    for (int c = 1; c <= 255; c++)
        if (has(set, c) && (has(a, c) || has(b, c)))
            return refuse(r, "exit code %d is in two lists", c);
    for (int i = 0; i < 4; i++) out[i] = set[i];
    return true;
}

static void put_codes(const uint64_t set[4], struct buf *b)
{
    const char *gap = "";

    for (int c = 1; c <= 255; c++) {
        int end = c;
        if (!has(set, c)) continue;
        while (end < 255 && has(set, end + 1)) end++;
        if (end > c + 1) buf_printf(b, "%s%d-%d", gap, c, end);
        else if (end > c) buf_printf(b, "%s%d %d", gap, c, end);
        else buf_printf(b, "%s%d", gap, c);
        gap = " ";
        c = end;
    }
}

static bool set_transient(struct policy *p, const char *v, struct reply r)
{
    return set_codes(p->codes_transient, v, p->codes_permanent, p->codes_discard, r);
}
static void put_transient(const struct policy *p, struct buf *b)
{
    put_codes(p->codes_transient, b);
}

static bool set_permanent(struct policy *p, const char *v, struct reply r)
{
    return set_codes(p->codes_permanent, v, p->codes_transient, p->codes_discard, r);
}
static void put_permanent(const struct policy *p, struct buf *b)
{
    put_codes(p->codes_permanent, b);
}

static bool set_discard(struct policy *p, const char *v, struct reply r)
{
    return set_codes(p->codes_discard, v, p->codes_transient, p->codes_permanent, r);
}
static void put_discard(const struct policy *p, struct buf *b) { put_codes(p->codes_discard, b); }

/* ---- the table ---- */

static const char *const names[] = { "ack", "max_retries", "backoff", "lost_cap", "soft_limit",
    "hard_limit", "priority", "queue", "entity", "version", "zero_rows", "key_window", "retention",
    "transient", "permanent", "discard", NULL };

static const struct setting {
    bool (*set)(struct policy *p, const char *v, struct reply r);
    void (*put)(const struct policy *p, struct buf *b);
} settings[] = {
    { set_ack, put_ack }, { set_retries, put_retries }, { set_backoff, put_backoff },
    { set_lost_cap, put_lost_cap }, { set_soft, put_soft }, { set_hard, put_hard },
    { set_priority, put_priority }, { set_queue, put_queue }, { set_entity, put_entity },
    { set_version, put_version }, { set_zero, put_zero }, { set_window, put_window },
    { set_retention, put_retention }, { set_transient, put_transient },
    { set_permanent, put_permanent }, { set_discard, put_discard },
};
#define SETTINGS_N (sizeof settings / sizeof *settings)
static_assert(SETTINGS_N == sizeof names / sizeof *names - 1, "names and settings go together");

const char *const *policy_names(void) { return names; }

void policy_text(const struct policy *p, struct buf *out)
{
    for (size_t i = 0; i < SETTINGS_N; i++) {
        buf_printf(out, "%s = ", names[i]);
        settings[i].put(p, out);
        buf_putc(out, '\n');
    }
}

bool policy_set(struct policy *p, const char *name, const char *value, bool *unknown,
                char *why, size_t why_n)
{
    struct reply r = { why, why_n };
    int i = word_of(names, name);

    if (unknown != NULL) *unknown = i < 0;
    if (i < 0) return refuse(r, "unknown setting");
    return settings[i].set(p, value, r);
}

bool policy_check(const struct policy *p, char *why, size_t why_n)
{
    struct reply r = { why, why_n };

    if (p->soft_limit_us > 0 && p->soft_limit_us >= p->hard_limit_us)
        return refuse(r, "soft_limit must be shorter than hard_limit");
    if ((p->entity[0] == '\0') != (p->version[0] == '\0'))
        return refuse(r, "entity and version go together: the guard needs both");
    return true;
}

/* One "name = value" line of n bytes. */
static bool parse_line(struct policy *p, const char *line, size_t n, struct reply r)
{
    char text[VALUE_MAX + 32], bad[256] = "";
    char *eq, *value;
    bool unknown;

    if (n >= sizeof text) return refuse(r, "a line of the policy is too long");
    snprintf(text, sizeof text, "%.*s", (int)n, line);
    if ((eq = strstr(text, " =")) == NULL) return refuse(r, "expected \"name = value\"");
    *eq = '\0';
    value = eq + 2;
    if (*value == ' ') value++;
    if (policy_set(p, text, value, &unknown, bad, sizeof bad)) return true;
    return refuse(r, "%s = %s: %s", text, value, bad);
}

bool policy_parse(struct policy *p, const char *text, char *why, size_t why_n)
{
    struct reply r = { why, why_n };
    struct policy got;

    policy_defaults(&got);
    while (*text != '\0') {
        const char *end = strchrnul(text, '\n');
        if (end > text && !parse_line(&got, text, (size_t)(end - text), r)) return false;
        text = *end == '\0' ? end : end + 1;
    }
    if (!policy_check(&got, why, why_n)) return false;
    *p = got;
    return true;
}
