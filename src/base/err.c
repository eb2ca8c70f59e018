// SPDX-License-Identifier: Apache-2.0
/* err.c - the error table as data, and the calls that write one clear line.
 *
 * Keeps: a message is one line of printable UTF-8, whatever was put into it.
 * Never: allocates, so that "out of memory" can be said.
 */
#include "base/err.h"

#include <assert.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include "base/utf8.h"

enum { /* the order of the table, to be compared with the public enum */
#define X(name, class, exit, text) ROW_##name,
    PAWL_RC_TABLE(X)
#undef X
    ROW_N
};
#define X(name, class, exit, text) \
    static_assert((int)ROW_##name == (int)PAWL_##name, "PAWL_RC_TABLE order: " #name);
PAWL_RC_TABLE(X)
#undef X
static_assert((int)ROW_N == (int)PAWL_RC_N, "PAWL_RC_TABLE is incomplete");

static const struct rc_row { const char *name, *text; int exit; } rc_rows[] = {
#define X(name, class, exit, text) { #name, text, exit },
    PAWL_RC_TABLE(X)
#undef X
};

static const struct rc_row *row_of(enum pawl_rc rc)
{
    static const struct rc_row unknown = { "?", "unknown result code", EXIT_BUG };

    return (unsigned)rc < PAWL_RC_N ? &rc_rows[rc] : &unknown;
}

const char *pawl_rc_name(enum pawl_rc rc) { return row_of(rc)->name; }
const char *pawl_rc_text(enum pawl_rc rc) { return row_of(rc)->text; }
int pawl_rc_exit(enum pawl_rc rc) { return row_of(rc)->exit; }

const char *pawl_state_name(enum pawl_state s)
{
    static const char *const names[] = { "ready", "running", "done", "dead", "dropped",
                                         "cancelled", "pruned" };
    static_assert(sizeof names / sizeof *names == PAWL_STATE_N, "a state has no name");

    return (unsigned)s < PAWL_STATE_N ? names[s] : "?";
}

/* Format into e->msg from byte `at` on. The raw text is built aside, so that an argument may point
 * into e->msg. returns the new length. */
static size_t put_text(struct pawl_error *e, size_t at, const char *fmt, va_list ap)
{
    char raw[sizeof e->msg];
    int n = vsnprintf(raw, sizeof raw, fmt, ap);
    size_t len;

    if (n < 0) return text_copy_safe(e->msg, sizeof e->msg, at, "(unprintable message)", 21);
    len = (size_t)n;
    if (len >= sizeof raw) len = utf8_trim(raw, sizeof raw - 1);
    return text_copy_safe(e->msg, sizeof e->msg, at, raw, len);
}

enum pawl_rc pawl_fail(struct pawl_error *e, enum pawl_rc rc, const char *fmt, ...)
{
    va_list ap;

    if (e == NULL) return rc;
    va_start(ap, fmt);
    put_text(e, 0, fmt, ap);
    va_end(ap);
    e->rc = rc;
    e->native = 0;
    return rc;
}

enum pawl_rc pawl_fail_native(struct pawl_error *e, enum pawl_rc rc, int native, const char *fmt,
                              ...)
{
    va_list ap;

    if (e == NULL) return rc;
    va_start(ap, fmt);
    put_text(e, 0, fmt, ap);
    va_end(ap);
    e->rc = rc;
    e->native = native;
    return rc;
}

static enum pawl_rc rc_of_errno(int err)
{
    switch (err) {
    case ENOSPC: case EDQUOT: return PAWL_FULL;
    case EACCES: case EPERM: case EROFS: return PAWL_DENIED;
    case ENOMEM: return PAWL_NOMEM;
    default: return PAWL_IO;
    }
}

enum pawl_rc pawl_fail_errno(struct pawl_error *e, int err, const char *fmt, ...)
{
    enum pawl_rc rc = rc_of_errno(err);
    char why[96], text[128];
    va_list ap;
    size_t n;
    int w;

    if (e == NULL) return rc;
    va_start(ap, fmt);
    n = put_text(e, 0, fmt, ap);
    va_end(ap);
    w = snprintf(text, sizeof text, ": %s", strerror_r(err, why, sizeof why));
    if (w > 0) {
        size_t len = (size_t)w < sizeof text ? (size_t)w : sizeof text - 1;
        /* The reason must survive a very long first part: cut that one instead. */
        if (n + len >= sizeof e->msg) n = utf8_trim(e->msg, sizeof e->msg - 1 - len);
        text_copy_safe(e->msg, sizeof e->msg, n, text, len);
    }
    e->rc = rc;
    e->native = err;
    return rc;
}

enum pawl_rc pawl_wrap(struct pawl_error *e, const char *fmt, ...)
{
    char old[sizeof e->msg];
    size_t old_n, n;
    va_list ap;

    if (e == NULL) return PAWL_BUG;
    old_n = strnlen(e->msg, sizeof e->msg - 1);
    memcpy(old, e->msg, old_n);
    va_start(ap, fmt);
    n = put_text(e, 0, fmt, ap);
    va_end(ap);
    n = text_copy_safe(e->msg, sizeof e->msg, n, ": ", 2);
    text_copy_safe(e->msg, sizeof e->msg, n, old, old_n);
    return e->rc;
}
