// SPDX-License-Identifier: Apache-2.0
/* reap.h - shared by the two halves of recovery: rows (reap.c) and last words (blame.c).
 * */
#ifndef VERB_REAP_H
#define VERB_REAP_H

#include "store/verb/db.h"

#define SUSPECTED_MAX 10 /* shared deaths of one job before it is charged: nothing is unbounded */

struct reaper {
    struct db *db;
    casualty_fn *judge; void *ctx;
    struct reap_report *out;
    struct arena a;
    char why[160];
    const char *worker;
    int signal, exit_code;   /* of the process; -1: unknown */
    bool timeout;            /* the one in hand was killed at its hard limit */
    const struct said *said; /* the handler's own word on the job that is put back; NULL: none */
};

/* Put a job whose row was taken where the rules say, as OUT_LOST, OUT_SUSPECT or OUT_RELEASED. */
enum pawl_rc reap_place(struct reaper *r, struct job *job, int64_t task_id, enum outcome how,
                        struct pawl_error *e) PAWL_MUST_USE;
/* What a death shared with others makes of a job. */
enum outcome reap_shared(const struct job *job);
/* The effect runner's last words; leased_n: running rows that died with it. */
enum pawl_rc reap_blame(struct reaper *r, const struct side_blame *b, size_t leased_n,
                        struct pawl_error *e) PAWL_MUST_USE;

/* A running row of the worker, taken under the lease it was read with. */
enum pawl_rc reap_put_back(struct reaper *r, struct job *job, int64_t task_id, enum outcome how,
                           struct pawl_error *e) PAWL_MUST_USE;
/* r->why, signal and exit code of a runner that its supervisor saw die. */
void reap_runner_why(struct reaper *r, const char *what, int end, enum outcome how);

/* crew.c: workers that run one job at a time. hand: what becomes of the one in hand. */
enum pawl_rc reap_serial(struct reaper *r, const struct side_blame *b, enum outcome hand,
                         struct pawl_error *e) PAWL_MUST_USE;
bool reap_in_hand(const struct side_worker *w); /* it died with a job in hand, or in a commit */

/* The runners that died with a supervisor: recovered with it, in one transaction, so that what died
 * together is counted together. */
#define REAP_FAMILY_MAX 64
struct reap_family { struct side_peer peer[REAP_FAMILY_MAX]; size_t n, in_hand; };
enum pawl_rc reap_family_find(struct reaper *r, const char *parent, struct reap_family *f,
                              struct pawl_error *e) PAWL_MUST_USE;
/* started: jobs that died with the family, these included */
enum pawl_rc reap_family_rows(struct reaper *r, const struct reap_family *f, size_t started,
                              struct pawl_error *e) PAWL_MUST_USE;
void reap_family_forget(struct reaper *r, struct reap_family *f, bool unlink_them);
/* May this runner's file be recovered by itself? If not, *peer is taken for alive. */
enum pawl_rc reap_orphan(struct reaper *r, struct side_peer *peer,
                         struct pawl_error *e) PAWL_MUST_USE;

#endif
