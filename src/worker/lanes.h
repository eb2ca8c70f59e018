// SPDX-License-Identifier: Apache-2.0
/* lanes.h - the tasks of a configuration as the store knows them: ids and policies in force. */
#ifndef WORKER_LANES_H
#define WORKER_LANES_H

#include "conf/conf.h"
#include "store/store.h"

struct lane_conf {
    struct lane lane;
    const struct conf_task *const *tasks;   /* parallel to lane.tasks */
};
struct lanes {
    /* exec; sql, and C with no more than apply; C with prepare or an early acknowledgement */
    struct lane_conf leased, effect, prepared;
    struct lane all;                        /* all three, for store_pending */
    struct arena arena;                     /* owns the arrays; names are the configuration's */
};

enum lane_change { LANE_SAME, LANE_DIFFERS, LANE_REPLACED };
struct lane_diff { const char *task; enum lane_change change; const char *text; };
typedef void lane_diff_fn(void *ctx, const struct lane_diff *d);

/* Declare every task of the configuration, whose modes are known (probe.h, c_plugin.h). A task that
 * the store does not know is written with its policy; one whose stored policy differs is reported
 * by fn, and replaced with apply.
 * returns OK (*out: lanes_free; the stored policies rule) | store errors */
enum pawl_rc lanes_declare(struct store *st, const struct conf *conf, bool apply,
                           const char *const *queues, size_t queues_n, lane_diff_fn *fn, void *ctx,
                           struct lanes *out, struct pawl_error *e) PAWL_MUST_USE;
void lanes_free(struct lanes *l);

/* Append how two policy texts differ: per setting one line "stored: ..." and one "config: ...". */
void policy_diff(const char *stored, const char *configured, struct buf *out);

/* 16 hex digits over all that a runner takes from a configuration. */
enum { FINGERPRINT_BYTES = 17 };
void conf_fingerprint(const struct conf *conf, char out[FINGERPRINT_BYTES]);

#endif
