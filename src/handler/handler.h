// SPDX-License-Identifier: Apache-2.0
/* handler.h - how work is run: sql statements inside the effect transaction, or one process per
 * job (exec). A handler reports what it found; it never decides what becomes of the job. */
#ifndef HANDLER_HANDLER_H
#define HANDLER_HANDLER_H

#include <stdbool.h>
#include <sys/types.h>
#include "conf/conf.h"
#include "core/rules.h"
#include "store/store.h"

/* --- sql --- */
struct sql_task;   /* a task's statements prepared on one store connection */
/* returns OK (*out owned by the caller: sql_task_close) | CONFIG SQL: "FILE line N: ...", what does
 * not compile against this database | NOMEM and store errors. conf and t are borrowed for life. */
enum pawl_rc sql_task_open(struct store *st, const struct conf *conf, const struct conf_task *t,
                           struct sql_task **out, struct pawl_error *e) PAWL_MUST_USE;
void sql_task_close(struct sql_task **t);
/* Bind args by name, run the statements in order, judge the last one's row count (zero_rows).
 * Never ends the transaction. Strings of f are in the arena. *pinned as effect_fn.
 * p     the policy in force: zero_rows and hard_limit
 * stop  (may be NULL) non-zero interrupts the statement: the worker must end now */
void sql_task_run(struct sql_task *t, struct store *st, const struct policy *p,
                  const struct job *job, const volatile int *stop, struct arena *arena,
                  struct finding *f, bool *pinned);

/* The same for a statement that a program asked for: job->args are that write's own. changed: the
 * rows it changed; NULL: not asked. false: f says why. Does not judge the rows. */
bool sql_task_write(struct sql_task *t, struct store *st, const struct policy *p,
                    const struct job *job, const volatile int *stop, struct arena *arena,
                    int64_t *changed, struct finding *f, bool *pinned);

/* --- writes: what a program's verdict asks for (write.NAME, enqueue) --- */
struct writes;
/* As sql_task_open. */
enum pawl_rc writes_open(struct store *st, const struct conf *conf, const struct conf_task *t,
                         struct writes **out, struct pawl_error *e) PAWL_MUST_USE;
void writes_close(struct writes **w);
/* On the open transaction: asked->writes in their order, then asked->enqueue; in the form that
 * exec_reply.c has checked. f: DONE, or why not. *pinned as effect_fn. */
void writes_run(struct writes *w, struct store *st, const struct policy *p, const struct job *job,
                const struct finding *asked, const volatile int *stop, struct arena *arena,
                struct finding *f, bool *pinned);

/* --- exec --- */
/* One child and its pipes. The owner polls the descriptors and calls exec_child_io. */
struct exec_child;
struct exec_start {
    const struct conf *conf;
    const struct conf_task *task;         /* argv and environment */
    const struct policy *policy;          /* the policy in force: limits */
    const struct job *job;                /* borrowed until finish */
    const char *worker;                   /* for PAWL_WORKER */
    const char *db;                       /* for PAWL_DB; NULL: none */
    int64_t mono_now_us;
    int64_t wall_now_us;                  /* for PAWL_DEADLINE_MS */
};
/* returns OK (*out: the caller's, see exec_child_finish, _kill) | NOTFOUND DENIED NOMEM IO FULL */
enum pawl_rc exec_child_start(const struct exec_start *s, struct exec_child **out,
                              struct pawl_error *e) PAWL_MUST_USE;
/* Why it could not be started: true, the machine lacks something for now (processes, descriptors,
 * memory) and the same start may be tried later; false, the program is not runnable. */
bool exec_start_again(const struct pawl_error *e);
/* The finding of a program that could not be started: transient, as exit 126 and 127. */
void exec_not_runnable(const struct pawl_error *e, struct arena *arena, struct finding *f);
pid_t exec_child_pid(const struct exec_child *c);
/* Descriptors to watch. -1: closed. STDIN is watched for writing, the others for reading. */
enum exec_fd { EXEC_STDIN, EXEC_STDOUT, EXEC_STDERR, EXEC_REPLY, EXEC_PIDFD, EXEC_FD_N };
int exec_child_fd(const struct exec_child *c, int which);
/* Move bytes; call when `which` is ready. Never blocks. */
void exec_child_io(struct exec_child *c, int which, int64_t mono_now_us);
/* The next monotonic instant at which exec_child_tick must be called; INT64_MAX: none. */
int64_t exec_child_next_us(const struct exec_child *c);
/* Time limits and the bounded drain: TERM to the group at the soft limit, KILL at the hard limit,
 * pipes closed 500 ms after the child's own exit. */
void exec_child_tick(struct exec_child *c, int64_t mono_now_us);
/* True when the child has exited and its pipes are drained or given up: then exec_child_finish. */
bool exec_child_over(const struct exec_child *c);
/* Ask the whole group to end (drain: SIGTERM, later SIGKILL; cancel: SIGKILL at once). From then on
 * anything but a clean success is OUT_RELEASED. why: static text, goes into the finding. */
void exec_child_stop(struct exec_child *c, int sig, const char *why, int64_t mono_now_us);
/* Fill f (strings in arena) from the exit status, the reply and the tails; frees the child.
 * Instants of f are the owner's to set. */
void exec_child_finish(struct exec_child **c, const struct policy *p, struct arena *arena,
                       struct finding *f);
/* Serve a child to its end, waiting: for who has nothing else to do. *term: when it becomes
 * non-zero, the child gets TERM; when it grows, KILL. */
void exec_child_serve(struct exec_child *c, const struct env *env, const volatile int *term);
/* KILL the group, wait for the child's death (at most about a second), free: for the way out. */
void exec_child_kill(struct exec_child **c);

#endif
