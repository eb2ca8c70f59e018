// SPDX-License-Identifier: Apache-2.0
/* copy.h - what the files of a move share (copy.c has the order of it all). */
#ifndef COPY_COPY_H
#define COPY_COPY_H

#include "store/copy.h"
#include "store/verb/mover.h"

struct copy {
    struct db *from, *to;           /* to NULL: a dry run, and there is no store there yet */
    struct store *from_st, *to_st;
    const struct store_move *how;
    struct pawl_copied *out;
    struct db_mark here, there;     /* the marks, as they were found */
    struct buf from_name, to_name;
    bool utf8_only;                 /* the target refuses texts that are not UTF-8 */
};

static inline const struct db_mover *mover_of(const struct db *db) { return db->engine->mover; }
/* How long a lock of somebody else is waited for; and, where none can be in the way, one of our own
 * statements: a count of 100 million rows, their statistics. */
#define COPY_PATIENCE_US 10000000LL
#define COPY_LONG_US 600000000LL
/* false: whoever watches wants it to stop. */
bool copy_tell(const struct copy *c, const char *what, int64_t done, int64_t of);
enum pawl_rc copy_stopped(struct pawl_error *e);                 /* BUSY */
enum pawl_rc copy_number(struct db *db, const char *sql, int64_t *n,
                         struct pawl_error *e) PAWL_MUST_USE;    /* what a statement says */
enum pawl_rc copy_count(struct db *db, const struct db_table *t, int64_t *n,
                        struct pawl_error *e) PAWL_MUST_USE;

/* rows.c: every table, out of one open transaction into the other; out->row[].to is what the target
 * holds then. look: of a dry run. BADDATA: rows that the target would refuse; each was told. */
enum pawl_rc copy_rows(struct copy *c, bool look, struct pawl_error *e) PAWL_MUST_USE;

/* ends.c: marks and gates, each one transaction */
enum pawl_rc copy_quiet(struct copy *c, struct db *db, const char *which,
                        struct pawl_error *e) PAWL_MUST_USE;     /* BUSY: workers take part */
enum pawl_rc copy_empty(struct copy *c, struct pawl_error *e) PAWL_MUST_USE; /* NOCREATE */
enum pawl_rc copy_arrived(struct copy *c, struct pawl_error *e) PAWL_MUST_USE;
enum pawl_rc copy_moved(struct copy *c, struct pawl_error *e) PAWL_MUST_USE;
enum pawl_rc copy_opened(struct copy *c, struct pawl_error *e) PAWL_MUST_USE;
enum pawl_rc copy_back(struct copy *c, struct pawl_error *e) PAWL_MUST_USE;

#endif
