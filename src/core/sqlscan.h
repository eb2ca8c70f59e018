// SPDX-License-Identifier: Apache-2.0
/* sqlscan.h - look at a user's statement without an SQL engine: parameters, first word, verbs that
 * only Pawl may use, and Pawl's private tables. Strings, quoted identifiers, comments, and `::`
 * are skipped. Works on any dialect we support. */
#ifndef CORE_SQLSCAN_H
#define CORE_SQLSCAN_H

#include "base/buf.h"
#include "pawl.h"

struct sql_param { const char *name; size_t at, len; }; /* name without ':'; at, len in the text,
                                                         * where the ':' counts */
struct sql_scan {
    struct sql_param *params;  /* every occurrence, in order; owned by the arena */
    size_t params_n;
    char verb[16];             /* first word in lower case: "insert", "select", "with", ... */
    char main_verb[16];        /* the verb; for "with" the one that follows its tables */
    bool returns_rows;         /* select, values, or RETURNING outside literals */
    bool dollar_quotes;        /* has $tag$...$tag$: PostgreSQL only, to SQLite two parameters */
    size_t end;                /* bytes of the statement, without a trailing ';' and what follows */
};
/* returns OK | NOMEM | CONFIG: empty; more than one statement; an unclosed literal or comment; a
 * verb that is not for tasks (BEGIN COMMIT END ROLLBACK SAVEPOINT RELEASE ATTACH DETACH PRAGMA
 * VACUUM EXPLAIN ...), CREATE TRIGGER, OR ROLLBACK; a table named pawl_x_...; `?`, `@x` or `$1`
 * parameters; a ':' that one engine would read as a parameter and another not. The message names
 * the offending word. */
enum pawl_rc sql_scan(const char *text, struct arena *a, struct sql_scan *out,
                      struct pawl_error *e) PAWL_MUST_USE;
/* The same for an `on_connect` statement, which runs outside a job: a PRAGMA is allowed unless Pawl
 * depends on its value; parameters are refused. */
enum pawl_rc sql_scan_setup(const char *text, struct arena *a, struct sql_scan *out,
                            struct pawl_error *e) PAWL_MUST_USE;

#endif
