// SPDX-License-Identifier: Apache-2.0
/* err.h - the error table, and the two calls that fill a struct pawl_error.
 *
 * The point of failure writes the facts with pawl_fail(); each level up may prepend its own words
 * with pawl_wrap(), so that a log reads "settle job 7: begin: database is locked". Nobody logs AND
 * returns. Append to the table only, in the order of enum pawl_rc (err.c asserts it).
 */
#ifndef BASE_ERR_H
#define BASE_ERR_H

#include "pawl.h"

/* Exit codes: sysexits(3); the manual lists what the `pawl` command uses each for. */
enum { EXIT_YES = 0, EXIT_NO = 1, EXIT_USAGE = 64, EXIT_DATA = 65, EXIT_UNAVAILABLE = 69,
       EXIT_BUG = 70, EXIT_CANTCREAT = 73, EXIT_IOERR = 74, EXIT_TEMPFAIL = 75, EXIT_NOPERM = 77,
       EXIT_CONFIG = 78 };

/*    name      class      exit              text */
#define PAWL_RC_TABLE(X)                                                              \
    X(OK,       NONE,      EXIT_YES,         "success")                               \
    X(NOMEM,    TRANSIENT, EXIT_TEMPFAIL,    "out of memory")                         \
    X(BUSY,     TRANSIENT, EXIT_TEMPFAIL,    "the store is locked by another writer") \
    X(FENCED,   LOST,      EXIT_TEMPFAIL,    "the lease was superseded")              \
    X(UNSURE,   TRANSIENT, EXIT_TEMPFAIL,    "the outcome of a commit is unknown")    \
    X(BADARG,   PERMANENT, EXIT_USAGE,       "bad argument")                          \
    X(BADDATA,  PERMANENT, EXIT_DATA,        "bad input data")                        \
    X(TOOBIG,   PERMANENT, EXIT_DATA,        "a limit was exceeded")                  \
    X(KEYCLASH, PERMANENT, EXIT_DATA,        "key used before with other args")       \
    X(NOTFOUND, PERMANENT, EXIT_NO,          "not found")                             \
    X(TOOLATE,  PERMANENT, EXIT_NO,          "too late")                              \
    X(NOSTORE,  TRANSIENT, EXIT_UNAVAILABLE, "no store here")                         \
    X(NOTOURS,  PERMANENT, EXIT_CONFIG,      "not a Pawl store")                      \
    X(NEWER,    PERMANENT, EXIT_CONFIG,      "the store needs a newer pawl")          \
    X(OLDER,    PERMANENT, EXIT_CONFIG,      "the store must be migrated")            \
    X(FULL,     TRANSIENT, EXIT_TEMPFAIL,    "no space left")                         \
    X(IO,       TRANSIENT, EXIT_IOERR,       "input/output error")                    \
    X(DENIED,   PERMANENT, EXIT_NOPERM,      "permission denied")                     \
    X(NOCREATE, PERMANENT, EXIT_CANTCREAT,   "cannot create the store")               \
    X(CONFIG,   PERMANENT, EXIT_CONFIG,      "configuration error")                   \
    X(DRIFT,    PERMANENT, EXIT_CONFIG,      "stored and configured policy differ")   \
    X(SQL,      PERMANENT, EXIT_DATA,        "statement failed")                      \
    X(STORE,    TRANSIENT, EXIT_UNAVAILABLE, "the store failed")                      \
    X(BUG,      PERMANENT, EXIT_BUG,         "internal error")                        \
    X(MOVED,    PERMANENT, EXIT_CONFIG,      "the store has moved")

int pawl_rc_exit(enum pawl_rc rc); /* the exit code of the table */

/* Fill *e (if not NULL) and return rc. The message is one line; control characters are escaped. */
enum pawl_rc pawl_fail(struct pawl_error *e, enum pawl_rc rc, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
/* As pawl_fail, with a native code (errno, engine code). */
enum pawl_rc pawl_fail_native(struct pawl_error *e, enum pawl_rc rc, int native, const char *fmt,
                              ...) __attribute__((format(printf, 4, 5)));
/* As pawl_fail for a failed system call: appends strerror(err); ENOSPC/EDQUOT -> FULL,
 * EACCES/EPERM/EROFS -> DENIED, ENOMEM -> NOMEM, otherwise IO. */
enum pawl_rc pawl_fail_errno(struct pawl_error *e, int err, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
/* Prepend "fmt: " to e->msg (truncating at the end) and return e->rc, or PAWL_BUG if e is NULL. */
enum pawl_rc pawl_wrap(struct pawl_error *e, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

#endif
