// SPDX-License-Identifier: Apache-2.0
/* c.h - run C handlers (struct pawl_handler) on a store: what pawl_run's functions do, and what a
 * handler's return code means. Knows neither plugins nor workers.
 *
 * One host belongs to one store connection and thread. It keeps the statements of its handlers
 * prepared, and counts what they did wrong: a failed statement behind a PAWL_DONE is misuse.
 */
#ifndef HANDLER_C_H
#define HANDLER_C_H

#include "core/rules.h"
#include "pawl.h"
#include "store/store.h"

struct c_task { /* parallel to the lane's tasks */
    const struct pawl_handler *handler; /* NULL: not a C task */
    void *ctx;
};
struct c_host_opts {
    const struct env *env;
    const volatile int *stop;   /* non-zero: pawl_run_cancelled, and statements are interrupted */
    const volatile int *drain;  /* non-zero: pawl_run_cancelled only. NULL is fine for both */
    const char *worker;         /* for the log */
    bool raw;                   /* pawl_run_sqlite may hand out the handle: a linking program */
    bool (*beat)(void *ctx);    /* pawl_run_heartbeat; NULL: somebody else beats */
    void *ctx;
};
struct c_host;
struct c_host *c_host_new(struct store *st, const struct c_host_opts *o); /* NULL: out of memory */
void c_host_free(struct c_host **h);

/* May this handler run here? CONFIG: its ABI, or no function at all; names the handler. */
enum pawl_rc c_handler_check(const struct pawl_handler *h, const char *name,
                             struct pawl_error *e) PAWL_MUST_USE;
/* Is it run in prepared mode? It has prepare, or its policy acknowledges early. */
bool c_is_prepared(const struct pawl_handler *h, const struct policy *p);

/* prepare, outside any transaction. A handler without prepare is OUT_DONE. *plan: the run, with
 * what prepare left in run->plan, for c_apply and c_drop; lives in the arena, which must last until
 * c_drop. Trouble of the store is OUT_RELEASED. */
void c_prepare(struct c_host *h, const struct c_task *c, const struct lane_task *t,
               const struct job *job, void **plan, struct arena *arena, struct finding *f);
/* apply, on the open effect transaction; plan: of c_prepare, NULL if there was none. f and *pinned
 * as effect_fn. A handler without apply is PAWL_DONE, with the result of its prepare. */
void c_apply(struct c_host *h, const struct c_task *c, const struct lane_task *t,
             const struct job *job, void *plan, struct arena *arena, struct finding *f,
             bool *pinned);
void c_drop(struct c_host *h, const struct c_task *c, const struct lane_task *t,
            const struct job *job, void *plan);

#endif
