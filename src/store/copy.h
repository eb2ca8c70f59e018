// SPDX-License-Identifier: Apache-2.0
/* copy.h - a store moves into another one (src/store/copy). */
#ifndef STORE_COPY_H
#define STORE_COPY_H

#include "store/store.h"

struct store_move {
    bool dry_run, undo;
    /* Put back what dead workers held; *n: how many jobs. */
    enum pawl_rc (*recover)(struct store *, size_t *n, struct pawl_error *);
    pawl_copy_fn *progress;     /* may be NULL */
    pawl_finding_fn *finding;   /* may be NULL */
    void *ctx;
};
/* As pawl_copy. */
enum pawl_rc store_copy(const struct store_opts *from, const struct store_opts *to,
                        const struct store_move *how, struct pawl_copied *out,
                        struct pawl_error *e) PAWL_MUST_USE;
/* A store was found closed: open it, if all but the last step of a move into it was done, and the
 * store that it came from can be read here and says so. OK: it is open. */
enum pawl_rc store_copy_settle(const struct store_opts *to) PAWL_MUST_USE;

#endif
