// SPDX-License-Identifier: Apache-2.0
/* sl_reap.h - shared by the two halves of recovery: rows (sl_reap.c) and last words (sl_blame.c).
 * */
#ifndef SL_SL_REAP_H
#define SL_SL_REAP_H

#include "store/sqlite/sl.h"

#define SUSPECTED_MAX 10 /* shared deaths of one job before it is charged: nothing is unbounded */

struct reaper {
    struct sqlite *sl;
    casualty_fn *judge; void *ctx;
    struct reap_report *out;
    struct arena a;
    char why[160];
    const char *worker;
    int signal;
};

/* Put a job whose row was taken where the rules say, as OUT_LOST, OUT_SUSPECT or OUT_RELEASED. */
enum pawl_rc reap_place(struct reaper *r, struct job *job, int64_t task_id, enum outcome how,
                        struct pawl_error *e) PAWL_MUST_USE;
/* What a death shared with others makes of a job. */
enum outcome reap_shared(const struct job *job);
/* The effect runner's last words; leased_n: running rows that died with it. */
enum pawl_rc reap_blame(struct reaper *r, const struct side_blame *b, size_t leased_n,
                        struct pawl_error *e) PAWL_MUST_USE;

#endif
