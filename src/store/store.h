// SPDX-License-Identifier: Apache-2.0
/* store.h - what a store can do, in job verbs. Two engines stand behind it; one suite tests both.
 *
 * Where the id is, is the state: a job is in exactly one of ready, running, done, dead, dropped,
 * cancelled. Whoever deletes the ready or running row under the fence has decided the job, and puts
 * it elsewhere in the same transaction.
 *
 * Transactions are the store's business: every verb below is one transaction, except the effect
 * verbs, which span one from store_effect_begin to store_effect_commit or _rollback.
 * Decisions (retry or dead, when) are the rules' business: the store executes them.
 * One struct store belongs to one thread, and to one process: never across fork().
 */
#ifndef STORE_STORE_H
#define STORE_STORE_H

#include <sys/types.h>

#include "base/buf.h"
#include "base/clock.h"
#include "core/job.h"
#include "pawl.h"

struct store;

struct store_opts {
    const char *url;              /* "sqlite:PATH" or a path ending in ".db" */
    const struct env *env;        /* clock and randomness; NULL: env_real() */
    const char *const *on_connect;/* statements run once per connection, after Pawl's own */
    size_t on_connect_n;
    bool accept_wal_risk;         /* an SQLite with the WAL-reset fault: several writers anyway */
    int64_t lease_us;             /* a worker whose beat is older is taken over; 0: 30 s */
    bool closed_ok;               /* open it although it was moved, or is being filled */
    bool watch;                   /* for store_intact: remember which descriptors are ours */
};
/* created may be NULL. Errors as pawl_init / pawl_open. */
enum pawl_rc store_init(const struct store_opts *o, bool *created,
                        struct pawl_error *e) PAWL_MUST_USE;
enum pawl_rc store_open(const struct store_opts *o, struct store **out,
                        struct pawl_error *e) PAWL_MUST_USE;
void store_close(struct store **st);
int64_t store_now_us(struct store *st);               /* the store's clock */
const struct env *store_env(const struct store *st);  /* the same, and the machine's other clocks */
void store_describe(struct store *st, struct buf *out);/* engine, version, link mode,
    settings: one line */

/* --- producers and people: as the calls of the same name in pawl.h --- */
/* On a connection of the caller's (libpq's PGconn), in the transaction that is open there. req has
 * passed store_request_rule. As pawl_enqueue_pg. */
enum pawl_rc store_enqueue_on(struct pg_conn *c, const struct pawl_request *req, size_t n,
                              struct pawl_enqueued *out, size_t *bad_i,
                              struct pawl_error *e) PAWL_MUST_USE;
enum pawl_rc store_enqueue(struct store *st, const struct pawl_request *req, size_t n,
                           struct pawl_enqueued *out, size_t *bad_i,
                               struct pawl_error *e) PAWL_MUST_USE;
/* What every door asks of a request (doc/schema.md); fills in what may be left out: args,
 * args_bytes.
 * OK | BADARG BADDATA TOOBIG */
enum pawl_rc store_request_rule(struct pawl_request *r, struct pawl_error *e) PAWL_MUST_USE;
enum pawl_rc store_jobs(struct store *st, const struct pawl_filter *f, pawl_job_fn *fn, void *ctx,
                        struct pawl_error *e) PAWL_MUST_USE;
enum pawl_rc store_job(struct store *st, int64_t id, pawl_job_fn *fn, void *ctx,
                       struct pawl_error *e) PAWL_MUST_USE;
enum pawl_rc store_attempts(struct store *st, int64_t id, pawl_attempt_fn *fn, void *ctx,
                            struct pawl_error *e) PAWL_MUST_USE;
enum pawl_rc store_cancel(struct store *st, int64_t id, enum pawl_state *state,
                          struct pawl_error *e) PAWL_MUST_USE;
enum pawl_rc store_run_now(struct store *st, int64_t id, enum pawl_state *state,
                           struct pawl_error *e) PAWL_MUST_USE;
enum pawl_rc store_replay(struct store *st, int64_t id, const struct pawl_replay *how,
                          int64_t *new_id, struct pawl_error *e) PAWL_MUST_USE;
enum pawl_rc store_is_stale(struct store *st, int64_t id, bool *stale,
                            struct pawl_error *e) PAWL_MUST_USE;
enum pawl_rc store_discard(struct store *st, int64_t id, const char *reason,
                           struct pawl_error *e) PAWL_MUST_USE;
enum pawl_rc store_pause(struct store *st, const char *queue, const char *task, bool paused,
                         struct pawl_error *e) PAWL_MUST_USE;
enum pawl_rc store_queues(struct store *st, pawl_queue_fn *fn, void *ctx,
                          struct pawl_error *e) PAWL_MUST_USE;
/* Is there a queue of this name? If not, near gets the nearest one's name, or "". */
enum pawl_rc store_queue_known(struct store *st, const char *queue, bool *known, char *near,
                               size_t near_n, struct pawl_error *e) PAWL_MUST_USE;
enum pawl_rc store_stats(struct store *st, pawl_stat_fn *fn, void *ctx,
                         struct pawl_error *e) PAWL_MUST_USE;
enum pawl_rc store_check(struct store *st, pawl_finding_fn *fn, void *ctx, int *checked,
                         struct pawl_error *e) PAWL_MUST_USE;
enum pawl_rc store_doctor(struct store *st, int64_t old_us, pawl_advice_fn *fn, void *ctx,
                          int *looked, struct pawl_error *e) PAWL_MUST_USE;
enum pawl_rc store_prune(struct store *st, const struct pawl_prune_opts *how,
                         struct pawl_pruned *out,
                         struct pawl_error *e) PAWL_MUST_USE;

/* --- tasks --- */
/* Make a task known and settle its policy. apply=false: writes it only if the store has none;
 * apply=true: replaces it. *id: the task's id. stored: the policy text now in force.
 * *differs: it is not p's text (never with apply). */
enum pawl_rc store_task_declare(struct store *st, const char *name, const struct policy *p,
                                bool apply, int64_t *id, struct buf *stored, bool *differs,
                                struct pawl_error *e) PAWL_MUST_USE;

/* --- workers --- */
/* Join as a worker: makes the side file, takes its lock, stamps it. id_out: >= 24 bytes.
 * fd_out (may be NULL): the locked descriptor, to be handed to an effect runner. */
enum pawl_rc store_worker_join(struct store *st, char *id_out, int *fd_out,
                               struct pawl_error *e) PAWL_MUST_USE;
/* For a runner process that leases jobs by itself: a worker file of its own, made by its
 * supervisor, who keeps the descriptor, beats for it (store_crew_beat) and reaps it
 * (store_reap_crew). While the supervisor lives nobody else takes it for dead. id_out: >= 24 bytes;
 * *fd stays the store's. */
enum pawl_rc store_crew_join(struct store *st, char *id_out, int *fd,
                             struct pawl_error *e) PAWL_MUST_USE;
void store_crew_beat(struct store *st);                  /* for all of ours */
void store_crew_leave(struct store *st, const char *id); /* it ended and holds nothing: forget it */
/* In that runner: take part over the inherited descriptor; unlike after store_worker_attach its
 * claims and last words are its own. */
enum pawl_rc store_crew_attach(struct store *st, const char *id, int fd,
                               struct pawl_error *e) PAWL_MUST_USE;
/* In the runner: take part as worker `id` over the inherited descriptor fd. */
enum pawl_rc store_worker_attach(struct store *st, const char *id, int fd,
                                 struct pawl_error *e) PAWL_MUST_USE;
/* stamps boot time; a memory store, cannot fail */
/* Told to stop and unable to hand its jobs back (the store is locked): whoever recovers them is to
 * count releases, not deaths. Everything of ours has ended. */
void store_worker_orderly(struct store *st);
/* Stamp boot time: a memory store. false: the worker's file was taken away (somebody removed the
 * side directory), so that others will take it for dead within a lease: it must give its jobs back.
 * */
bool store_worker_beat(struct store *st);
/* The boot time of the last stamp: by a beat, or while it waited for the store. 0: no worker. */
int64_t store_worker_stamp(struct store *st);
enum pawl_rc store_worker_leave(struct store *st, struct pawl_error *e) PAWL_MUST_USE;

/* What a worker serves. */
/* native: its handler runs in this process, and can be the end of it. */
struct lane_task { int64_t id; const char *name; struct policy policy; bool native; };
struct lane {
    const struct lane_task *tasks; size_t tasks_n;
    const char *const *queues; size_t queues_n;       /* none: every queue */
};

/* What a claim has to say besides the jobs. */
struct claim_info {
    int64_t next_due_us;      /* earliest run_at of what is not due yet; 0: nothing waits */
    bool suspect_waiting;     /* a suspect is due but may only run alone: finish, then ask alone */
    bool more;                /* probably more is due right now */
};

/* One job that ended (or was handed back), and what was decided. */
enum settle_result { SETTLE_PENDING, SETTLE_OK, SETTLE_FENCED, SETTLE_STALE, SETTLE_CONFLICT,
                     SETTLE_SAID };
/* What the handler has committed about its run by itself (pawl.fail): it stands, whatever the
 * worker saw of its end. error NULL: it gave no reason. */
struct said { enum outcome outcome; const char *error; int64_t after_us; };
struct settle {
    const struct job *job;
    const struct finding *found;
    bool unclaim;                   /* never started: back as it was, nothing counted or recorded */
    int64_t task_id;                /* of the job; the store reads it anew where it can */
    struct decision d;
    /* out. STALE: the version guard moved on meanwhile: it was settled as done(stale), its effect
     * not applied. CONFLICT: it moved to the same version with other args: nothing was written, the
     * job is to be settled again as such. SAID: nothing was written, the handler has said how it
     * ended: the job is to be settled again by that, with `heeded`. */
    enum settle_result result;
    struct arena *arena;            /* for the text of `said`; NULL: nobody can have said a thing */
    struct said said;               /* out, with SAID */
    bool heeded;
};

/* Leased mode, one durable transaction: settle what ended, claim at most `want` (0: none).
 * alone: nothing else is running in this worker, so a suspect may be given (then exactly one job).
 * jobs     room for `want`; strings in `arena`
 * returns  OK | BUSY | FULL | IO | STORE ... : nothing happened, all results PENDING
 *          UNSURE: the commit's outcome is unknown; call store_resolve, then go on */
enum pawl_rc store_turn(struct store *st, struct settle *s, size_t n, const struct lane *lane,
                        size_t want, bool alone, struct arena *arena, struct job *jobs,
                        size_t *jobs_n, struct claim_info *info,
                            struct pawl_error *e) PAWL_MUST_USE;
/* Is the store itself sound? A small durable write, and room on its file system. Tells a fault of
 * the store from a job whose own statement meets one (a full sequence, a damaged page, a huge
 * value).
 * */
bool store_sound(struct store *st);
/* After UNSURE (the connection was reopened): by reading, set the results of what is known to have
 * been settled (others stay PENDING, to be sent again), and put back running rows of this worker
 * that are not in held_ids: a claim in doubt is never started. */
enum pawl_rc store_resolve(struct store *st, struct settle *s, size_t n, const int64_t *held_ids,
                           size_t held_n, struct pawl_error *e) PAWL_MUST_USE;
/* Ids of the running rows this worker still holds, ascending (a cancelled job is missing). */
enum pawl_rc store_held(struct store *st, int64_t *ids, size_t room, size_t *n,
                        struct pawl_error *e) PAWL_MUST_USE;

/* --- leased jobs that run one after the other in this process (engine/prepared.c) --- */
/* Last words: these jobs are leased and about to be prepared; none is in hand yet. */
void store_blame_list(struct store *st, const struct job *jobs, size_t n);
void store_blame_hand(struct store *st, size_t i); /* job i of the list is in hand */
void store_blame_clear(struct store *st);
/* Is job still leased to us? A read. false also after a cancel. */
enum pawl_rc store_holds(struct store *st, const struct job *job, bool *yes,
                         struct pawl_error *e) PAWL_MUST_USE;

/* --- the version guard --- */
enum guard { GUARD_FRESH, GUARD_OLDER, GUARD_SAME, GUARD_CONFLICT };
/* How job's (entity, version) stands against what was applied. SAME: equal version and args. */
enum pawl_rc store_guard(struct store *st, const struct lane_task *t, const struct job *job,
                         enum guard *out, struct pawl_error *e) PAWL_MUST_USE;

/* --- effect mode: the open transaction is the lease --- */
/* Begin, and read at most `want` due jobs in order, or one suspect (nothing is written yet). *n ==
 * 0:
 * nothing is due and no transaction is open. */
enum pawl_rc store_effect_begin(struct store *st, const struct lane *lane, size_t want,
                                struct arena *arena, struct job *jobs, size_t *n,
                                struct claim_info *info, struct pawl_error *e) PAWL_MUST_USE;
/* The same for jobs that this worker has leased and prepared: the fence of each is its running row.
 * jobs are borrowed until the batch ends. Ended by _commit, _rollback and _end as the other. */
enum pawl_rc store_effect_resume(struct store *st, const struct lane *lane, struct job *jobs,
                                 size_t n, struct pawl_error *e) PAWL_MUST_USE;
/* Lease at most `want` more jobs in the open transaction of a resumed batch, when all of its jobs
 * are done and before _commit: theirs if and only if it commits. Arguments as store_turn. */
enum pawl_rc store_effect_lease(struct store *st, const struct lane *lane, size_t want, bool alone,
                                struct arena *arena, struct job *jobs, size_t *n,
                                struct claim_info *info, struct pawl_error *e) PAWL_MUST_USE;
/* Name job i as the one in hand (blame) and open its savepoint. */
enum pawl_rc store_effect_job(struct store *st, size_t i, struct pawl_error *e) PAWL_MUST_USE;
/* The job in hand succeeded: fence, done row, version guard. OK | FENCED | STORE ... */
enum pawl_rc store_effect_done(struct store *st, const struct lane_task *t, const struct job *job,
                               const struct finding *f, struct pawl_error *e) PAWL_MUST_USE;
/* Undo the job in hand. BUG if the transaction is gone (the handler ended it). BUSY: in this batch
 * jobs have no savepoints and this one has written: roll the batch back and claim again; the next
 * ones have them. */
enum pawl_rc store_effect_undo(struct store *st, struct pawl_error *e) PAWL_MUST_USE;
bool store_effect_alive(struct store *st);            /* the transaction of _begin is still open */
/* SQL: a deferred constraint failed (rolled back) | BUSY FULL IO NOMEM STORE (rolled back) |
 * UNSURE (reopened: what committed is done, the rest is still ready; nothing else to do). */
enum pawl_rc store_effect_commit(struct store *st, struct pawl_error *e) PAWL_MUST_USE;
void store_effect_rollback(struct store *st);         /* no-op when none is open */
/* Write verdicts on jobs of the batch: in its transaction while that is open, else in a new one;
 * fence: the job still waits with the runs it was claimed with (leased: is held by its lease).
 * Before store_effect_end: on SQLite nobody can claim in between. */
enum pawl_rc store_effect_verdicts(struct store *st, struct settle *s, size_t n,
                                   struct pawl_error *e) PAWL_MUST_USE;
/* let others in: side lock, wake, checkpoint */
void store_effect_end(struct store *st);

/* --- statements of users' handlers, on this connection, inside the effect transaction --- */
struct store_stmt;
enum value_type { VALUE_NULL, VALUE_INT, VALUE_REAL, VALUE_TEXT, VALUE_BLOB };
struct sql_value {
    const char *name;
    enum value_type type;
    int64_t i;
    double r;
    const char *p;
    size_t n;
};
/* Writes to Pawl's tables, transaction control, ATTACH and PRAGMA are refused here too (CONFIG).
 * SQL: does not compile against this database; the text says why. */
enum pawl_rc store_stmt_prepare(struct store *st, const char *text, struct store_stmt **out,
                                struct pawl_error *e) PAWL_MUST_USE;
void store_stmt_free(struct store_stmt **s);
/* changed NULL, and no rows: nobody waits for what it comes to. It may then run later in the open
 * transaction; should it fail, the commit does, and the batch runs again job by job.
 * Bind by name, run to the end, reset. rows (may be NULL): gets a JSON array of objects, at most
 * rows_max bytes (TOOBIG). *changed: rows changed, or rows returned by a statement that only reads.
 * SQL: native = extended code; the transaction may be gone (store_effect_alive). */
enum pawl_rc store_stmt_run(struct store *st, struct store_stmt *s, const struct sql_value *v,
                            size_t n, struct buf *rows, size_t rows_max, int64_t *changed,
                            struct pawl_error *e) PAWL_MUST_USE;
/* The same, a row at a time: fn gets the columns (names and values borrowed for the call) and
 * returns false to stop. Outside an effect transaction only a statement that reads may run
 * (CONFIG). */
typedef bool store_row_fn(void *ctx, const struct sql_value *col, size_t col_n);
enum pawl_rc store_stmt_query(struct store *st, struct store_stmt *s, const struct sql_value *v,
                              size_t n, store_row_fn *fn, void *ctx,
                              struct pawl_error *e) PAWL_MUST_USE;
/* Does the statement have a parameter of this name (without its colon)? */
bool store_stmt_has(struct store *st, const struct store_stmt *s, const char *name);
/* Enqueue inside the open effect transaction: as store_enqueue, but committed or undone with it. On
 * an error nothing of this call is left. */
enum pawl_rc store_effect_enqueue(struct store *st, const struct pawl_request *req, size_t n,
                                  struct pawl_enqueued *out, size_t *bad_i,
                                  struct pawl_error *e) PAWL_MUST_USE;
/* The engine's own handle while a C handler of a linking program runs: sqlite3 *, or NULL. on: what
 * the handler prepares by itself is watched as users' statements are, until called with false. */
void *store_raw(struct store *st, bool on);
/* After each call of a C handler. True: it left a row callback without returning (a C++ exception,
 * a longjmp); what that left open is closed. */
bool store_call_over(struct store *st);
/* What the watch refused since store_raw(true): static text, NULL: nothing. */
const char *store_raw_refused(struct store *st);
/* Opened with `watch`: are the connection's descriptors still what it opened? Not, when a handler
 * has closed them: nothing on it works any more, and another file may get their numbers. */
bool store_intact(struct store *st);
/* Statements running past this monotonic instant are interrupted; 0: no limit. The flag (may be
 * NULL) interrupts as well when it becomes non-zero. */
void store_deadline(struct store *st, int64_t mono_us, const volatile int *stop);

/* A plain transaction for a handler run by hand (pawl run): same guard against a handler's own
 * COMMIT. commit=false rolls back. end: OK | SQL | MISUSE as CONFIG (the handler ended it) ... */
enum pawl_rc store_scratch_begin(struct store *st, struct pawl_error *e) PAWL_MUST_USE;
enum pawl_rc store_scratch_end(struct store *st, bool commit, struct pawl_error *e) PAWL_MUST_USE;

/* --- recovery --- */
struct casualty {
    const struct job *job; const struct policy *policy; const char *task;
    bool charged;            /* false: shared death, it becomes a suspect */
    const char *why;         /* "worker 3f2a (pid 77) is gone", in words */
    int signal;              /* that killed the process, -1 unknown */
};
typedef struct decision casualty_fn(void *ctx, const struct casualty *c, struct finding *f);
struct reap_report { size_t workers, charged, suspects, dead, dropped; };
/* Find workers that are gone (free lock, missing file, other boot) or frozen (stale beat), and put
 * back what they held; read their blame once. One transaction per worker, each row restated. */
enum pawl_rc store_reap(struct store *st, casualty_fn *decide, void *ctx, struct reap_report *out,
                        struct pawl_error *e) PAWL_MUST_USE;
/* In the supervisor: its effect runner died while the supervisor lives. end: the signal that killed
 * it, or 0 or less: its exit code, negated. */
enum pawl_rc store_reap_runner(struct store *st, int end, enum outcome how,
                               casualty_fn *decide, void *ctx, struct reap_report *out,
                               struct pawl_error *e) PAWL_MUST_USE;

/* In the supervisor: a runner with a worker file of its own (store_crew_join) died. how: LOST, or
 * TIMEOUT when it was killed at its hard limit: what becomes of the job in hand. The others that it
 * held go back at no cost. RELEASED: nothing is charged (it was told to end). */
enum pawl_rc store_reap_crew(struct store *st, const char *id, int end, enum outcome how,
                             casualty_fn *decide, void *ctx, struct reap_report *out,
                             struct pawl_error *e) PAWL_MUST_USE;

/* Which store it is, by whatever URL a handle of this host was opened: the directory beside it. */
struct store_place { dev_t dev; ino_t ino; };
struct store_place store_place(struct store *st);

/* --- waking, waiting, upkeep --- */
/* readable when a Pawl process committed; -1 */
int store_wake_fd(struct store *st);
void store_wake_clear(struct store *st);              /* drain it */
/* another connection committed since the last call */
bool store_changed(struct store *st);
void store_poke(struct store *st);                    /* wake the others by hand */
/* What is left of a lane's tasks, whoever runs it. due, running, retrying: 0, or 1 as soon as a job
 * was found; then the rest is not looked at. later (never started, not due) and paused: counted, if
 * the three are 0. next_due_us: when the first of what waits is due; 0: nothing waits. */
struct pending { int64_t due, running, retrying, later, paused, next_due_us; };
enum pawl_rc store_pending(struct store *st, const struct lane *lane, struct pending *out,
                           struct pawl_error *e) PAWL_MUST_USE;
/* How long a transaction waits for other writers before BUSY. 10 s after open: for people; a
 * supervisor takes less, so that its children's time limits hold while a foreign writer sits. */
void store_patience(struct store *st, int64_t wait_us);
/* In the supervisor: the job that this worker's effect runner is on, or its runner `crew` (the id
 * of store_crew_join; NULL: the effect runner), and since when (monotonic). 0: none, or it is over.
 * A look at shared memory: never waits. */
int64_t store_in_hand(struct store *st, const char *crew, int64_t *since_us);
void store_engine(char *buf, size_t n);  /* pawl_engine */
/* Checkpoint if due, shrink the log, warn about what hinders. Call about once a second. */
enum pawl_rc store_maintain(struct store *st, struct pawl_error *e) PAWL_MUST_USE;

#endif
