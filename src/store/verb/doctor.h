// SPDX-License-Identifier: Apache-2.0
/* doctor.h - what the looks of a store at itself share. Each look reads, and tells through advise.
 *
 * Never: writes anything, or fails because it may not look: then it says what it cannot see.
 */
#ifndef VERB_DOCTOR_H
#define VERB_DOCTOR_H

#include "store/verb/db.h"

struct doctor {
    struct db *db;
    pawl_advice_fn *fn; void *ctx;
    int looked;
    int64_t now_us, old_us;
    bool enough;               /* whoever listens wants no more */
};

/* fix: static text, or of the caller for the call. The text is made of fmt. */
void doctor_say(struct doctor *d, const char *check, enum pawl_severity how, const char *fix,
                const char *fmt, ...) __attribute__((format(printf, 5, 6)));
/* A look begins; true: it is wanted. */
bool doctor_look(struct doctor *d);
/* Rows of a statement (?1: now, ?2: now - old), each handed to fn. What cannot be read for want of
 * rights is told as such, by this name. Other errors are errors. */
typedef void doctor_row_fn(struct doctor *d, struct query *q, void *ctx);
enum pawl_rc doctor_rows(struct doctor *d, const char *check, const char *sql, doctor_row_fn *fn,
                         void *ctx, struct pawl_error *e) PAWL_MUST_USE;
/* "3 min", "2 d": for people; a buffer of at least 32 bytes */
const char *doctor_span(int64_t us, char *buf, size_t n);

#endif
