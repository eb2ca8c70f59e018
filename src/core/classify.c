// SPDX-License-Identifier: Apache-2.0
/* classify.c - from the codes of other systems to our outcomes. Tables first.
 *
 * Leans to transient: a wrong transient costs a few bounded retries, a wrong permanent a person.
 */
#include "core/rules.h"

#include <string.h>

#include <assert.h>

static bool has(const uint64_t set[4], int code) { return set[code / 64] >> (code % 64) & 1; }

enum outcome classify_exit(int code, const struct policy *p)
{
    if (code == 0) return OUT_DONE;
    if (code < 0 || code > 255) return OUT_TRANSIENT;
    if (has(p->codes_permanent, code)) return OUT_PERMANENT;
    if (has(p->codes_discard, code)) return OUT_DISCARD;
    if (has(p->codes_transient, code)) return OUT_TRANSIENT;
    switch (code) {
    case 64: case 65: case 66: case 67: /* usage, data, no input, no user */
    case 70: case 72: case 73:          /* software, OS file, cannot create */
    case 76: case 77: case 78:          /* protocol, no permission, config */
    case 100:                           /* qmail: hard */
        return OUT_PERMANENT;
    default:                            /* 68 69 71 74 75 111 126 127 and all that nobody defined */
        return OUT_TRANSIENT;
    }
}

enum outcome classify_http(int status)
{
    if (status >= 200 && status <= 299) return OUT_DONE;
    if (status >= 300 && status <= 399) return OUT_PERMANENT; /* redirects are not followed */
    switch (status) {
    case 408: case 409: case 425: case 429: return OUT_TRANSIENT;
    default: return status >= 400 && status <= 499 ? OUT_PERMANENT : OUT_TRANSIENT;
    }
}

/* Result codes of SQLite, by their published numbers (sqlite.org/rescode.html): core includes no
 * engine's header. */
enum { LITE_OK = 0, LITE_ERROR = 1, LITE_INTERNAL = 2, LITE_PERM = 3, LITE_ABORT = 4,
       LITE_BUSY = 5, LITE_LOCKED = 6, LITE_NOMEM = 7, LITE_READONLY = 8, LITE_INTERRUPT = 9,
       LITE_IOERR = 10, LITE_CORRUPT = 11, LITE_NOTFOUND = 12, LITE_FULL = 13, LITE_CANTOPEN = 14,
       LITE_PROTOCOL = 15, LITE_SCHEMA = 17, LITE_TOOBIG = 18, LITE_CONSTRAINT = 19,
       LITE_MISMATCH = 20, LITE_MISUSE = 21, LITE_NOLFS = 22, LITE_AUTH = 23, LITE_RANGE = 25,
       LITE_NOTADB = 26, LITE_ROW = 100, LITE_DONE = 101 };
#define LITE_EXT(primary, k) ((primary) | (k) << 8)

static const struct sqlite_rule {
    int code;       /* an extended code is looked for first, then the primary one */
    enum outcome out;
    bool pinned;    /* this job's doing, not the store's */
} sqlite_rules[] = {
    { LITE_EXT(LITE_ERROR, 2), OUT_TRANSIENT, false },      /* retry the statement */
    { LITE_EXT(LITE_ERROR, 3), OUT_TRANSIENT, false },      /* snapshot gone */
    { LITE_EXT(LITE_READONLY, 1), OUT_TRANSIENT, false },   /* recovery needed */
    { LITE_EXT(LITE_READONLY, 2), OUT_TRANSIENT, false },   /* cannot lock */
    { LITE_EXT(LITE_READONLY, 3), OUT_TRANSIENT, false },   /* hot journal to roll back */
    { LITE_EXT(LITE_READONLY, 4), OUT_TRANSIENT, false },   /* the file was moved */
    { LITE_EXT(LITE_READONLY, 5), OUT_TRANSIENT, false },   /* cannot create what WAL needs */
    { LITE_EXT(LITE_READONLY, 6), OUT_TRANSIENT, false },   /* the directory is read-only */
    { LITE_EXT(LITE_CONSTRAINT, 2), OUT_MISUSE, true },     /* our commit hook said no */
    { LITE_OK, OUT_DONE, true },         { LITE_ROW, OUT_DONE, true },
    { LITE_DONE, OUT_DONE, true },
    { LITE_INTERNAL, OUT_TRANSIENT, true }, { LITE_PERM, OUT_TRANSIENT, false },
    { LITE_ABORT, OUT_TRANSIENT, false }, { LITE_BUSY, OUT_TRANSIENT, false },
    { LITE_LOCKED, OUT_TRANSIENT, true }, /* within our own connection: the statement's doing */
    { LITE_NOMEM, OUT_TRANSIENT, false },
    { LITE_INTERRUPT, OUT_TIMEOUT, true }, /* only our hard limit interrupts */
    { LITE_IOERR, OUT_TRANSIENT, false }, { LITE_CORRUPT, OUT_TRANSIENT, false },
    { LITE_FULL, OUT_TRANSIENT, false }, { LITE_CANTOPEN, OUT_TRANSIENT, false },
    { LITE_PROTOCOL, OUT_TRANSIENT, false }, { LITE_SCHEMA, OUT_TRANSIENT, false },
    { LITE_NOTADB, OUT_TRANSIENT, false },
    { LITE_ERROR, OUT_PERMANENT, true }, { LITE_NOTFOUND, OUT_PERMANENT, true },
    { LITE_READONLY, OUT_PERMANENT, true }, { LITE_TOOBIG, OUT_PERMANENT, true },
    { LITE_CONSTRAINT, OUT_PERMANENT, true }, { LITE_MISMATCH, OUT_PERMANENT, true },
    { LITE_MISUSE, OUT_PERMANENT, true }, { LITE_NOLFS, OUT_PERMANENT, true },
    { LITE_AUTH, OUT_PERMANENT, true }, { LITE_RANGE, OUT_PERMANENT, true },
};

/* SQLSTATE classes and codes (PostgreSQL's documentation, Appendix A), the longest that fits. */
static const struct { const char *state; enum outcome out; bool pinned; } state_rules[] = {
    { "PWLIM", OUT_TIMEOUT, true },    /* our own: the hard limit, or the worker ends */
    { "57014", OUT_TRANSIENT, true },  /* cancelled by somebody, or a statement_timeout */
    { "55P03", OUT_TRANSIENT, true },  /* a lock was not to be had: the statement's doing */
    { "25P02", OUT_TRANSIENT, false }, /* an earlier statement had failed */
    { "40P01", OUT_TRANSIENT, false }, { "42501", OUT_PERMANENT, true },
    { "57P", OUT_TRANSIENT, false },   { "08", OUT_TRANSIENT, false },
    { "40", OUT_TRANSIENT, false },    { "53", OUT_TRANSIENT, false },
    { "55", OUT_TRANSIENT, true },     { "57", OUT_TRANSIENT, false },
    { "58", OUT_TRANSIENT, false },    { "XX", OUT_TRANSIENT, false },
    { "25", OUT_MISUSE, true },        { "2D", OUT_MISUSE, true }, /* it ended the transaction */
    { "3B", OUT_MISUSE, true },
    { "", OUT_PERMANENT, true },       /* data, constraints, syntax, names */
};

static enum outcome classify_state(int code, bool *pinned)
{
    char state[6] = "";

    for (int i = 4; i >= 0; i--, code /= 36)
        state[i] = (char)(code % 36 < 10 ? '0' + code % 36 : 'A' + code % 36 - 10);
    for (size_t i = 0;; i++) {
        const size_t n = strlen(state_rules[i].state);

        if (strncmp(state, state_rules[i].state, n) != 0) continue;
        if (pinned != NULL) *pinned = state_rules[i].pinned;
        return state_rules[i].out;
    }
}

enum outcome classify_sql(int code, bool *pinned)
{
    const struct sqlite_rule *hit = NULL;

    if (code > 0xffff) return classify_state(code, pinned);

    for (size_t i = 0; i < sizeof sqlite_rules / sizeof *sqlite_rules && hit == NULL; i++)
        if (sqlite_rules[i].code == code) hit = &sqlite_rules[i];
    for (size_t i = 0; i < sizeof sqlite_rules / sizeof *sqlite_rules && hit == NULL; i++)
        if (sqlite_rules[i].code == (code & 0xff)) hit = &sqlite_rules[i];
    /* A code from a later engine: charged to the job, so that it is bounded. */
    if (pinned != NULL) *pinned = hit == NULL ? true : hit->pinned;
    return hit == NULL ? OUT_TRANSIENT : hit->out;
}

enum outcome outcome_worse(enum outcome a, enum outcome b)
{
    static const uint8_t rank[] = {
        [OUT_DONE] = 0, [OUT_STALE] = 1, [OUT_SNOOZE] = 2, [OUT_RELEASED] = 3, [OUT_SUSPECT] = 4,
        [OUT_TRANSIENT] = 5, [OUT_TIMEOUT] = 6, [OUT_LOST] = 7, [OUT_DISCARD] = 8,
        [OUT_PERMANENT] = 9, [OUT_EXPIRED] = 10, [OUT_UNDECODABLE] = 11, [OUT_CONFLICT] = 12,
        [OUT_MISUSE] = 13, [OUT_CANCELLED] = 14,
    };
    static_assert(sizeof rank == OUT_N, "an outcome has no rank");

    assert((unsigned)a < OUT_N && (unsigned)b < OUT_N);
    return rank[b] > rank[a] ? b : a;
}
