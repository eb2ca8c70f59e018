// SPDX-License-Identifier: Apache-2.0
/* worker.h - `pawl work`: a supervisor process and its runners.
 *
 * The supervisor claims and settles exec jobs, owns their children, beats, reaps, checkpoints and
 * drains. One effect runner claims, runs and acknowledges sql jobs, and C jobs that only apply, in
 * one transaction per batch. A crew of runners, each a worker of its own, leases, prepares and
 * applies the other C jobs, one after the other. All are single-threaded; they speak over socket
 * pairs (link.h) only when one must hold still or end.
 */
#ifndef WORKER_WORKER_H
#define WORKER_WORKER_H

#include "base/buf.h"
#include "base/log.h"
#include "conf/conf.h"
#include "pawl.h"

struct worker_opts {
    const struct conf *conf;          /* modes known: probe_modes */
    const char *url;                  /* of the store */
    const char *const *queues; size_t queues_n; /* none: every queue */
    int concurrency;                  /* 0: the config's */
    int64_t grace_us;                 /* -1: the config's */
    bool until_empty;                 /* end when nothing is due, running or retrying */
    bool apply;                       /* replace stored policies that differ */
    bool accept_wal_risk;
    struct log_conf log;              /* as set up; the runner gets the same */
};
/* Work until drained.
 * drift    out: for DRIFT, the differences, line by line
 * returns  OK: drained | DRIFT | CONFIG SQL: a task does not fit this store | NOSTORE OLDER ... as
 *          store_open | BUSY: what was held could not be given back in time | other store errors */
enum pawl_rc worker_run(const struct worker_opts *o, struct buf *drift, struct pawl_error *e)
    PAWL_MUST_USE;

enum runner_role { RUNNER_EFFECT, RUNNER_PREPARED };
struct runner_opts {
    enum runner_role role;
    struct conf *conf;                /* modes not known yet: the runner looks by itself */
    const char *url;
    const char *worker;               /* the supervisor; or, of the crew, the worker that it is */
    const char *fingerprint;          /* of the configuration the supervisor works by */
    const char *const *queues; size_t queues_n;
    bool accept_wal_risk;
    struct log_conf log;
};
enum { RUNNER_CTL_FD = 0, RUNNER_SIDE_FD = 3 }; /* descriptors that the supervisor hands over */
/* A runner's life. returns OK: told to end | CONFIG: the file changed since the supervisor
 * read it | store errors */
enum pawl_rc runner_run(const struct runner_opts *o, struct pawl_error *e) PAWL_MUST_USE;

/* The store's URL as programs get it: absolute, since they have a directory of their own. The
 * caller's; NULL: out of memory. */
char *worker_child_url(const char *url);

#endif
