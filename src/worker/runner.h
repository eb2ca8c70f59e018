// SPDX-License-Identifier: Apache-2.0
/* runner.h - a runner's own state, shared between runner.c and runner_job.c only. */
#ifndef WORKER_RUNNER_H
#define WORKER_RUNNER_H

#include <stdatomic.h>

#include "base/clock.h"
#include "base/log.h"
#include "engine/engine.h"
#include "handler/c.h"
#include "handler/handler.h"
#include "worker/lanes.h"
#include "worker/worker.h"

/* What the signal handlers touch. */
struct runner_flags {
    volatile int drain;             /* end after the job in hand */
    volatile int now;               /* and interrupt it */
    _Atomic int64_t kill_at_us;     /* the job in hand must be over by then; 0: none in hand */
};
extern struct runner_flags runner_flags;

struct runner {
    const struct runner_opts *o;
    const struct env *env;
    struct store *st;
    struct lanes lanes;
    const struct lane_conf *lane;   /* the one of lanes that is ours */
    struct sql_task **sql;          /* parallel to its tasks; NULL: a C task */
    struct c_task *c;               /* parallel, too */
    struct writes **writes;         /* parallel, too; NULL: not a program's task */
    char *child_db;                 /* PAWL_DB of programs: absolute */
    struct c_host *host;
    struct effect *effect;          /* one of these two, by our role */
    struct prepared *prepared;
    int ctl_fd, side_fd;
    bool paused;                    /* see link.h */
    bool idle;                      /* as last said to the supervisor */
    int64_t next_due_us;            /* monotonic; INT64_MAX: nothing waits */
    int64_t look_anyway_us;         /* monotonic */
    int64_t backoff_us;
    struct log_gate gate;
};

static inline int64_t runner_mono(const struct runner *r)
{
    return r->env->mono_us(r->env->ctx);
}

/* runner_job.c */
enum pawl_rc runner_jobs_open(struct runner *r, struct pawl_error *e) PAWL_MUST_USE;
void runner_jobs_close(struct runner *r);

#endif
