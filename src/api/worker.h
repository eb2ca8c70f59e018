// SPDX-License-Identifier: Apache-2.0
/* worker.h - a worker inside the caller's program, shared between worker*.c only. */
#ifndef API_WORKER_H
#define API_WORKER_H

#include "api/api.h"
#include "engine/engine.h"
#include "handler/c.h"

/* The tasks of one mode, and what runs them. */
struct wlane {
    struct lane_task *tasks;
    struct c_task *c;          /* parallel */
    struct lane lane;
};

struct pawl_worker {
    struct store *st;
    pid_t owner;               /* the process that opened it */
    struct api_clock clock;
    const struct env *env;
    struct api_log log;
    char id[24];
    bool joined;
    struct api_apply apply;    /* while one of ours is in its transaction */
    bool inside;               /* a handler of ours is running: it may not use us, but to stop */
    int64_t lease_us;
    struct wlane effect, prepared;
    struct lane all;           /* both, for what is left */
    struct effect *ef, *ef_one;      /* _one: for pawl_worker_one */
    struct prepared *pr, *pr_one;
    struct c_host *host;
    /* Stopping. asked is set from anywhere; halt is what the engine looks at, set in this thread
     * between jobs. */
    int asked;
    volatile int halt;
    int stop_fd;
    /* The turn of the lanes, and when to look again. */
    bool prepared_next;
    bool look;                 /* something may be due that we have not seen */
    bool busy;                 /* the last step found something */
    int64_t next_due_us;       /* the store's clock; INT64_MAX: nothing waits */
    /* Monotonic. */
    int64_t beat_at_us, reap_at_us, upkeep_at_us, look_anyway_us;
    bool active;               /* something was committed since the last upkeep */
    struct log_gate gate;
    struct pawl_worker_stat stat;
};

static inline int64_t worker_mono(const struct pawl_worker *w)
{
    return w->env->mono_us(w->env->ctx);
}
static inline bool worker_asked(const struct pawl_worker *w)
{
    return __atomic_load_n(&w->asked, __ATOMIC_RELAXED) != 0;
}
/* The functions that the engine calls for each job; ctx is the worker. */
effect_fn worker_effect_fn;
extern const struct prepared_calls worker_prepared_calls;
bool worker_beat(void *ctx);   /* false: the worker's file was taken away */

/* OK | BADARG: NULL, or after fork(). */
enum pawl_rc worker_need(const struct pawl_worker *w, struct pawl_error *e);
/* The same, and BADARG from inside a handler that this worker runs. */
enum pawl_rc worker_need_idle(const struct pawl_worker *w, struct pawl_error *e);

#endif
