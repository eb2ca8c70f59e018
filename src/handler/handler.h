// SPDX-License-Identifier: Apache-2.0
/* handler.h - how work is run: sql statements inside the effect transaction, or one process per
 * job (exec). A handler reports what it found; it never decides what becomes of the job. */
#ifndef HANDLER_HANDLER_H
#define HANDLER_HANDLER_H

#include <sys/types.h>
#include "conf/conf.h"
#include "core/rules.h"
#include "store/store.h"

/* --- sql --- */
struct sql_task;   /* a task's statements prepared on one store connection */
enum pawl_rc sql_task_open(struct store *st, const struct conf_task *t, struct sql_task **out,
                           struct pawl_error *e) PAWL_MUST_USE;
void sql_task_close(struct sql_task **t);
/* Bind args by name, run the statements in order, judge the last one's row count (zero_rows).
 * Never ends the transaction. Strings of f are in the arena. *pinned as effect_fn. */
void sql_task_run(struct sql_task *t, struct store *st, const struct job *job, struct arena *arena,
                  struct finding *f, bool *pinned);

/* --- exec --- */
/* One child and its pipes. The owner polls the descriptors and calls exec_child_io / _exited. */
struct exec_child;
struct exec_start {
    const struct conf *conf;
    const struct conf_task *task;
    const struct job *job;
    int64_t mono_now_us;
    const char *worker;                   /* for PAWL_WORKER */
};
/* returns OK | NOTFOUND DENIED (not runnable: EX 126/127, transient) | NOMEM | IO */
enum pawl_rc exec_child_start(const struct exec_start *s, struct exec_child **out,
                              struct pawl_error *e) PAWL_MUST_USE;
pid_t exec_child_pid(const struct exec_child *c);
/* Descriptors to watch: which < 5: 0 stdin (writable), 1 stdout, 2 stderr, 3 reply, 4 pidfd;
 * -1: closed. */
int exec_child_fd(const struct exec_child *c, int which);
/* Move bytes; call when `which` is ready. Never blocks. */
void exec_child_io(struct exec_child *c, int which, int64_t mono_now_us);
/* The next monotonic instant at which exec_child_tick must be called; INT64_MAX: none. */
int64_t exec_child_next_us(const struct exec_child *c);
/* Time limits and the bounded drain: TERM at the soft limit, KILL of the group at the hard limit,
 * pipes closed 500 ms after the child's own exit. */
void exec_child_tick(struct exec_child *c, int64_t mono_now_us);
/* True when the child has exited and its pipes are drained or given up: then exec_child_finish. */
bool exec_child_over(const struct exec_child *c);
/* Ask it to end (drain: TERM; cancel: KILL of the group at once). why goes into the finding. */
void exec_child_stop(struct exec_child *c, int signal, const char *why, int64_t mono_now_us);
/* Fill f (strings in arena) from the exit status, the reply and the tails; frees the child. */
void exec_child_finish(struct exec_child **c, const struct policy *p, struct arena *arena,
                       struct finding *f);
void exec_child_kill(struct exec_child **c);  /* KILL the group, reap, free: for the way out */

#endif
