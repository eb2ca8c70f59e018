// SPDX-License-Identifier: Apache-2.0
/* sl.h - the inside of the SQLite store: one connection, its statements, its side files.
 *
 * Keeps: every writing transaction starts IMMEDIATE, behind the side lock that pawl processes queue
 *        on; only sl_commit lets a COMMIT through (commit hook); a connection never crosses fork().
 */
#ifndef SL_SL_H
#define SL_SL_H

#include <sqlite3.h>
#include <sys/types.h>
#include "base/log.h"
#include "store/ops.h"
#include "store/sqlite/sl_side.h"
#include "store/sqlite/sl_sql.h"

/* Defined by the bundled SQLite's own object (tool/thirdparty), and by nothing else: a library that
 * meets its SQLite in the program that links it cannot claim one. */
extern const char pawl_sqlite3_bundled __attribute__((weak));
#define PAWL_SQLITE_BUNDLED (&pawl_sqlite3_bundled != NULL)

struct store_stmt {
    struct sqlite *sl;
    sqlite3_stmt *st;          /* NULL after a reopen: prepared again at the next run */
    char *text;
    bool counts;               /* whatever it writes is counted in rows (not so: CREATE TABLE) */
    struct sql_value *col; int col_n; /* of a row that is handed out; kept: its taker may jump */
    struct store_stmt *next;
};

enum { SL_FILES = 16 };
struct sqlite {
    struct store base;         /* first: a struct store * is a struct sqlite * */
    sqlite3 *db;
    char *path;
    const struct env *env;
    char **on_connect; size_t on_connect_n;
    bool accept_wal_risk;
    int64_t lease_us;
    pid_t owner_pid;           /* the process that opened it */
    sqlite3_stmt *q[SLQ_N];    /* prepared on first use */
    struct store_stmt *user;   /* statements of handlers, prepared again after a reopen */
    struct side side;
    bool in_tx, committing;
    bool guarded;              /* a user's statement is being prepared or run: authorizer active */
    const char *refused;       /* what the authorizer refused last, or NULL */
    int wal_frames;            /* after the last commit, by the WAL hook */
    int ckpt_at;               /* checkpoint when the log has this many frames */
    int written_before;        /* page writes counted before this transaction */
    int64_t begun_us;          /* monotonic: since when the write lock is held */
    int64_t commit_us, job_ns; /* what an effect batch's commit takes, and each job; learnt */
    int64_t wait_us;           /* patience with other writers */
    int64_t busy_until_us;     /* monotonic: how long to wait for the write lock */
    int64_t deadline_us; const volatile int *stop; /* for users' statements */
    bool timed_out;
    int64_t data_version;
    /* the effect transaction */
    struct job *batch; size_t batch_n, hand; bool effect_open;
    bool leased_batch;         /* its jobs are leased to us: the fence is the running row */
    int stepping;              /* users' statements being stepped, one inside another's row */
    bool raw;                  /* a handler of the linking program has our handle */
    const char *raw_refused;   /* what it was refused first */
    bool savepoint;            /* a job is in hand, and has a savepoint unless the batch is plain */
    bool plain, plain_saved;   /* one savepoint for the batch, since things went well; it is set */
    int64_t smooth, smooth_min; /* jobs in a row that needed none; how many make a plain batch */
    int64_t wrote_before;      /* rows written on this connection before the job in hand */
    bool wrote_unseen;         /* the job in hand wrote what is not counted in rows */
    uint8_t batch_lease[16];
    int64_t warned_wal_us;
    int64_t judge_at_us;       /* boot time before which nobody is judged frozen */
    uint64_t file_dev, file_ino; /* of the database, as opened */
    bool noted;                  /* in sl_fork.c */
    bool watch;                  /* remember the connection's descriptors (sl_files.c) */
    struct sl_file { int fd; dev_t dev; ino_t ino; } files[SL_FILES];
    size_t files_n;
    struct log_gate reap_gate;
};

#define SL_WAIT_US 10000000 /* for other writers: a foreign one may hold the lock for 5 s */

static inline struct sqlite *sl_of(struct store *st) { return (struct sqlite *)(void *)st; }

/* sl_fork.c: files that were open in the process that forked this one. BADARG: this is one. */
enum pawl_rc sl_fork_check(dev_t dev, ino_t ino, const char *path,
                           struct pawl_error *e) PAWL_MUST_USE;
void sl_fork_note(dev_t dev, ino_t ino);
void sl_fork_forget(dev_t dev, ino_t ino);

/* sl_files.c: which descriptors did the connection open? before and after it did; a no-op unless
 * sl->watch */
void sl_files_before(struct sqlite *sl);
void sl_files_after(struct sqlite *sl);
bool sl_intact(struct store *st);

/* sl_conn.c: the connection */
enum pawl_rc sl_connect(struct sqlite *sl, bool create, struct pawl_error *e) PAWL_MUST_USE;
void sl_disconnect(struct sqlite *sl);
enum pawl_rc sl_explain_denied(struct sqlite *sl, enum pawl_rc rc, struct pawl_error *e);
enum pawl_rc sl_same_file(struct sqlite *sl, struct pawl_error *e) PAWL_MUST_USE;
enum pawl_rc sl_reopen(struct sqlite *sl, struct pawl_error *e) PAWL_MUST_USE;
/* Map the connection's last error to a result code, and say it. */
enum pawl_rc sl_fail(struct sqlite *sl, struct pawl_error *e, const char *what);
enum pawl_rc sl_rc(int code);                    /* primary or extended code -> pawl_rc */
bool sl_wal_risk(void);                          /* this SQLite has the WAL-reset fault */
enum pawl_rc sl_exec(struct sqlite *sl, const char *sql, struct pawl_error *e) PAWL_MUST_USE;
/* The prepared statement of the table, reset and with cleared bindings. */
enum pawl_rc sl_q(struct sqlite *sl, enum slq id, sqlite3_stmt **out,
                  struct pawl_error *e) PAWL_MUST_USE;
/* Step a statement that returns no rows, reset it. */
enum pawl_rc sl_run(struct sqlite *sl, sqlite3_stmt *q, struct pawl_error *e) PAWL_MUST_USE;
/* Step for a row: OK with *row true/false; reset when false or on error. */
enum pawl_rc sl_row(struct sqlite *sl, sqlite3_stmt *q, bool *row,
                    struct pawl_error *e) PAWL_MUST_USE;
/* sl_hooks.c: what SQLite asks us */
void sl_hooks(struct sqlite *sl);                /* wal, commit and authorizer hooks */
int sl_on_busy(void *ctx, int count);
int sl_on_progress(void *ctx);                    /* stop flag and deadline of users' statements */
void sl_text(sqlite3_stmt *q, int i, const char *s);              /* NULL -> NULL; borrowed */
void sl_text_n(sqlite3_stmt *q, int i, const char *s, size_t n);  /* NULL -> NULL */
char *sl_dup(struct arena *a, sqlite3_stmt *q, int col);          /* column text or NULL */

/* sl_tx.c: transactions */
/* rc; BUSY says so when it is this very process that holds the side lock. */
enum pawl_rc sl_busy_who(struct sqlite *sl, enum pawl_rc rc, struct pawl_error *e);
enum pawl_rc sl_begin(struct sqlite *sl, struct pawl_error *e) PAWL_MUST_USE;
/* As sl_begin, but keeps the side lock after the commit until sl_leave (effect mode). */
enum pawl_rc sl_commit(struct sqlite *sl, struct pawl_error *e) PAWL_MUST_USE;
void sl_rollback(struct sqlite *sl);             /* no-op when none is open */
/* checkpoint if due, side lock free, wake others */
void sl_leave(struct sqlite *sl);
enum pawl_rc sl_checkpoint(struct sqlite *sl, bool truncate, struct pawl_error *e) PAWL_MUST_USE;

/* sl_move.c: the moves every verb is made of; all inside an open transaction */
enum pawl_rc sl_task_id(struct sqlite *sl, const char *name, bool create, int64_t *id,
                        int64_t *queue_id, int64_t *priority, bool *declared,
                            struct pawl_error *e) PAWL_MUST_USE;
enum pawl_rc sl_queue_id(struct sqlite *sl, const char *name, bool create, int64_t *id,
                         struct pawl_error *e) PAWL_MUST_USE;
enum pawl_rc sl_count(struct sqlite *sl, const char *counter, int64_t by,
                      struct pawl_error *e) PAWL_MUST_USE;
/* Put a decided job where it belongs (ready, dead, dropped), with its attempt row. */
enum pawl_rc sl_place(struct sqlite *sl, const struct settle *s,
                      struct pawl_error *e) PAWL_MUST_USE;
enum pawl_rc sl_put_done(struct sqlite *sl, const struct job *job, const struct finding *f,
                         bool stale, struct pawl_error *e) PAWL_MUST_USE;
/* Advance the version guard for an effect; *ok false: somebody newer was first. */
enum pawl_rc sl_advance(struct sqlite *sl, int64_t task_id, const struct job *job, bool *ok,
                        struct pawl_error *e) PAWL_MUST_USE;
/* Delete the ready row of job as it was read (id and runs restated): *ok = exactly one row. */
enum pawl_rc sl_take_ready(struct sqlite *sl, int64_t task_id, const struct job *job, bool *ok,
                           struct pawl_error *e) PAWL_MUST_USE;
enum pawl_rc sl_put_ready(struct sqlite *sl, int64_t task_id, const struct job *job,
                          const struct decision *d, struct pawl_error *e) PAWL_MUST_USE;

/* sl_leased.c: DELETE under the lease, *ok = exactly one row; a claim; back as it was */
enum pawl_rc sl_fence(struct sqlite *sl, const struct job *job, bool *ok,
                      struct pawl_error *e) PAWL_MUST_USE;
enum pawl_rc sl_lease(struct sqlite *sl, const struct lane *lane, size_t want, bool alone,
                      struct arena *arena, struct job *jobs, size_t *n, struct claim_info *info,
                      struct pawl_error *e) PAWL_MUST_USE;
enum pawl_rc sl_unclaim(struct sqlite *sl, const struct job *job, int64_t task_id,
                        struct pawl_error *e) PAWL_MUST_USE;

/* The running rows of a worker, as jobs, with their task ids (sl_reap.c). */
enum pawl_rc sl_rows_of(struct sqlite *sl, const char *worker, struct arena *a, struct job **jobs,
                        int64_t **task_ids, size_t *n, struct pawl_error *e) PAWL_MUST_USE;

/* sl_claim.c: choose due jobs in order; reads only */
struct sl_task_state { bool known, paused, suspects; };
enum pawl_rc sl_task_look(struct sqlite *sl, int64_t task_id, struct sl_task_state *out,
                          struct pawl_error *e) PAWL_MUST_USE;
enum pawl_rc sl_choose(struct sqlite *sl, const struct lane *lane, size_t want, bool alone,
                       struct arena *arena, struct job *jobs, size_t *n, struct claim_info *info,
                       struct pawl_error *e) PAWL_MUST_USE;
int64_t sl_lane_task(const struct lane *lane, const struct job *job);

/* The verbs, one file per concern; same names and meaning as in store.h (table: sl_ops.c). */
bool sl_effect_alive(struct store *st);
void sl_effect_rollback(struct store *st);
void sl_effect_end(struct store *st);
void sl_deadline(struct store *st, int64_t mono_us, const volatile int *stop);
#define SL_VERB enum pawl_rc PAWL_MUST_USE
SL_VERB sl_enqueue(struct store *, const struct pawl_request *, size_t, struct pawl_enqueued *,
                   size_t *, struct pawl_error *);
SL_VERB sl_jobs(struct store *, const struct pawl_filter *, pawl_job_fn *, void *,
                struct pawl_error *);
SL_VERB sl_job(struct store *, int64_t, pawl_job_fn *, void *, struct pawl_error *);
SL_VERB sl_attempts(struct store *, int64_t, pawl_attempt_fn *, void *, struct pawl_error *);
SL_VERB sl_cancel(struct store *, int64_t, enum pawl_state *, struct pawl_error *);
SL_VERB sl_run_now(struct store *, int64_t, enum pawl_state *, struct pawl_error *);
SL_VERB sl_replay(struct store *, int64_t, const struct pawl_replay *, int64_t *,
                  struct pawl_error *);
SL_VERB sl_is_stale(struct store *, int64_t, bool *, struct pawl_error *);
SL_VERB sl_discard(struct store *, int64_t, const char *, struct pawl_error *);
SL_VERB sl_pause(struct store *, const char *, const char *, bool, struct pawl_error *);
SL_VERB sl_queues(struct store *, pawl_queue_fn *, void *, struct pawl_error *);
SL_VERB sl_queue_known(struct store *, const char *, bool *, char *, size_t, struct pawl_error *);
SL_VERB sl_stats(struct store *, pawl_stat_fn *, void *, struct pawl_error *);
SL_VERB sl_check(struct store *, pawl_finding_fn *, void *, int *, struct pawl_error *);
SL_VERB sl_prune(struct store *, const struct pawl_prune_opts *, struct pawl_pruned *,
                 struct pawl_error *);
SL_VERB sl_task_declare(struct store *, const char *, const struct policy *, bool, int64_t *,
                        struct buf *, bool *, struct pawl_error *);
SL_VERB sl_turn(struct store *, struct settle *, size_t, const struct lane *, size_t, bool,
                struct arena *, struct job *, size_t *, struct claim_info *, struct pawl_error *);
SL_VERB sl_resolve(struct store *, struct settle *, size_t, const int64_t *, size_t,
                   struct pawl_error *);
SL_VERB sl_held(struct store *, int64_t *, size_t, size_t *, struct pawl_error *);
SL_VERB sl_guard(struct store *, const struct lane_task *, const struct job *, enum guard *,
                 struct pawl_error *);
SL_VERB sl_effect_begin(struct store *, const struct lane *, size_t, struct arena *, struct job *,
                        size_t *, struct claim_info *, struct pawl_error *);
SL_VERB sl_effect_resume(struct store *, const struct lane *, struct job *, size_t,
                         struct pawl_error *);
SL_VERB sl_effect_lease(struct store *, const struct lane *, size_t, bool, struct arena *,
                        struct job *, size_t *, struct claim_info *, struct pawl_error *);
SL_VERB sl_effect_enqueue(struct store *, const struct pawl_request *, size_t,
                          struct pawl_enqueued *, size_t *, struct pawl_error *);
SL_VERB sl_holds(struct store *, const struct job *, bool *, struct pawl_error *);
SL_VERB sl_stmt_query(struct store *, struct store_stmt *, const struct sql_value *, size_t,
                      store_row_fn *, void *, struct pawl_error *);
bool sl_stmt_has(struct store *st, const struct store_stmt *s, const char *name);
void *sl_raw(struct store *st, bool on);
bool sl_call_over(struct store *st);
const char *sl_raw_refused(struct store *st);
SL_VERB sl_crew_join(struct store *, char *, int *, struct pawl_error *);
SL_VERB sl_crew_attach(struct store *, const char *, int, struct pawl_error *);
void sl_crew_beat(struct store *st);
void sl_crew_leave(struct store *st, const char *id);
SL_VERB sl_reap_crew(struct store *, const char *, int, enum outcome, casualty_fn *, void *,
                     struct reap_report *, struct pawl_error *);
void sl_blame_list(struct store *st, const struct job *jobs, size_t n);
void sl_blame_hand(struct store *st, size_t i);
void sl_blame_clear(struct store *st);
SL_VERB sl_effect_job(struct store *, size_t, struct pawl_error *);
SL_VERB sl_effect_done(struct store *, const struct lane_task *, const struct job *,
                       const struct finding *, struct pawl_error *);
SL_VERB sl_effect_undo(struct store *, struct pawl_error *);
SL_VERB sl_effect_commit(struct store *, struct pawl_error *);
SL_VERB sl_effect_verdicts(struct store *, struct settle *, size_t, struct pawl_error *);
SL_VERB sl_scratch_begin(struct store *, struct pawl_error *);
SL_VERB sl_scratch_end(struct store *, bool, struct pawl_error *);
SL_VERB sl_stmt_prepare(struct store *, const char *, struct store_stmt **, struct pawl_error *);
SL_VERB sl_stmt_run(struct store *, struct store_stmt *, const struct sql_value *, size_t,
                    struct buf *, size_t, int64_t *, struct pawl_error *);
SL_VERB sl_reap(struct store *, casualty_fn *, void *, struct reap_report *, struct pawl_error *);
SL_VERB sl_reap_runner(struct store *, int, enum outcome, casualty_fn *, void *,
                       struct reap_report *, struct pawl_error *);
SL_VERB sl_pending(struct store *, const struct lane *, struct pending *, struct pawl_error *);
bool sl_sound(struct store *st);
SL_VERB sl_maintain(struct store *, struct pawl_error *);
enum pawl_rc sl_migrate(struct sqlite *sl, bool create, bool *created,
                        struct pawl_error *e) PAWL_MUST_USE;
enum pawl_rc sl_version_check(struct sqlite *sl, struct pawl_error *e) PAWL_MUST_USE;

#endif
