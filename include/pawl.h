// SPDX-License-Identifier: Apache-2.0
/* pawl.h - the public interface of Pawl: background jobs whose effects happen exactly once.
 *
 * Shapes    All strings are UTF-8, NUL-terminated unless a length is given. Instants are
 *           int64_t microseconds since 1970-01-01T00:00:00Z ("_at_us"; 0 = not set).
 *           Durations are microseconds ("_us"). Job ids are 64-bit, positive, never reused.
 * Errors    Every call that can fail returns an enum pawl_rc and fills *e, which the caller owns
 *           (e may be NULL). On an error nothing was changed, unless the call says otherwise.
 * Ownership "borrowed": valid for the call (or the callback) only. "owned by the caller": free it
 *           with the call named there. No call exits, prints, or keeps global state.
 * Threads   A handle (struct pawl, struct pawl_worker) may be used by one thread at a time, by any
 *           thread. Several handles on one store are fine, in one process or in many.
 * Fork      A child of fork() must not use a handle, nor open a store that its parent had open
 * then:
 *           SQLite's knowledge of file locks is inherited, the locks are not, and commits would be
 *           lost. Both answer BADARG and say so; pawl_close and pawl_worker_close only free memory
 *           there. Fork before you open, or exec another program.
 * Quiet     Nothing here prints, exits, starts a thread or a process, or touches a signal handler.
 *           What may be worth a log line goes to the log function of pawl_open_opts, if there is
 *           one.
 * SQLite    libpawl uses the SQLite that the program links. A process must hold one copy of it
 *           only: two would drop each other's file locks (sqlite.org/howtocorrupt.html).
 */
#ifndef PAWL_H
#define PAWL_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>  /* vsnprintf */
#include <string.h> /* strlen */

#ifdef __cplusplus
extern "C" {
#endif

#define PAWL_VERSION "0.1.0"
#define PAWL_MUST_USE __attribute__((warn_unused_result))
#ifdef __cplusplus /* clean under -Wold-style-cast */
#define PAWL_CAST(type, x) static_cast<type>(x)
#else
#define PAWL_CAST(type, x) ((type)(x))
#endif
#define PAWL_API __attribute__((visibility("default")))
#define PAWL_CALL PAWL_API PAWL_MUST_USE enum pawl_rc /* a call that can fail */

/* Result codes. Texts, retry class and exit codes: libpawl(3), and `pawl debug errors`. Append
 * only. */
enum pawl_rc {
    PAWL_OK = 0,
    PAWL_NOMEM,    /* out of memory */
    PAWL_BUSY,     /* the store is locked by another writer for too long */
    PAWL_FENCED,   /* the lease was superseded: somebody else decided this job */
    PAWL_UNSURE,   /* the outcome of a commit is unknown */
    PAWL_BADARG,   /* an argument is out of range or malformed */
    PAWL_BADDATA,  /* input data is not acceptable (JSON, UTF-8, depth, time) */
    PAWL_TOOBIG,   /* a named limit was exceeded */
    PAWL_KEYCLASH, /* the key was used before with other args */
    PAWL_NOTFOUND, /* no such job, task or queue */
    PAWL_TOOLATE,  /* the job is in a state that does not allow this */
    PAWL_NOSTORE,  /* there is no store at this place */
    PAWL_NOTOURS,  /* the file is not a Pawl store, or is damaged */
    PAWL_NEWER,    /* the store was written by a newer, incompatible Pawl */
    PAWL_OLDER,    /* the store must be migrated first */
    PAWL_FULL,     /* no space left */
    PAWL_IO,       /* input/output error */
    PAWL_DENIED,   /* permission denied or read-only */
    PAWL_NOCREATE, /* the store cannot be created here */
    PAWL_CONFIG,   /* configuration or policy error */
    PAWL_DRIFT,    /* the stored policy differs from the configured one */
    PAWL_SQL,      /* a user's statement failed; native = the engine's extended code */
    PAWL_STORE,    /* the store failed otherwise; native = the engine's extended code */
    PAWL_BUG,      /* an internal invariant does not hold: please report */
    PAWL_MOVED,    /* the store has moved elsewhere, or is being filled (pawl copy) */
    PAWL_RC_N
};

/* What went wrong, in words. Owned by the caller, who may pass it uninitialised, or NULL. */
struct pawl_error {
    enum pawl_rc rc;
    int native;    /* errno or the engine's extended result code, 0 if none */
    char msg[768]; /* one line: what, which value, what to do */
};

PAWL_API const char *pawl_rc_name(enum pawl_rc rc); /* "OK", "NOMEM", ...; static */
PAWL_API const char *pawl_rc_text(enum pawl_rc rc); /* the short text of the table; static */
PAWL_API int pawl_rc_exit(enum pawl_rc rc); /* the exit code that the pawl command ends with */

enum pawl_state {
    PAWL_STATE_READY = 0, /* waits: due now, or later (delay, retry) */
    PAWL_STATE_RUNNING,
    PAWL_STATE_DONE,
    PAWL_STATE_DEAD,
    PAWL_STATE_DROPPED, /* early-ack or discarded */
    PAWL_STATE_CANCELLED,
    PAWL_STATE_PRUNED, /* only in answers to a duplicate: the job's row was pruned */
    PAWL_STATE_N
};
PAWL_API const char *pawl_state_name(enum pawl_state s); /* "ready", ...; static */

/* Which SQLite is linked: "SQLite 3.53.1 (bundled)", or "(the system's)". At most n bytes. */
PAWL_API void pawl_engine(char *buf, size_t n);

struct pawl; /* an open store */
struct sqlite3; /* of sqlite3.h, which this header does not need */
struct pg_conn; /* PGconn of libpq-fe.h, the same */

/* A line for the host's log, without a newline: "event=job.retry job=7 task=mail ..."
 * (doc/logs.md). level: 0 error, 1 warn, 2 info, 3 debug. Called in the thread of the call that had
 * something to say, with no lock held; it must not call into Pawl. */
typedef void pawl_log_fn(void *log_ctx, int level, const char *line);

/* How to open. Zero-initialise; NULL is fine wherever this struct is asked for. Borrowed: the
 * strings for the call, the functions and their contexts for the handle's life. */
struct pawl_open_opts {
    int64_t (*now_us)(void *now_ctx); /* the clock that says what is due; NULL: the machine's */
    void *now_ctx;
    pawl_log_fn *log;                 /* NULL: nothing is logged */
    void *log_ctx;
    const char *const *on_connect;    /* statements run once per connection, after Pawl's own */
    size_t on_connect_n;
    int64_t busy_us;                  /* how long to wait for other writers; 0: 10 s */
};

/* Create the store at `url`, or migrate it. Safe to run twice and by two at once.
 * url      "sqlite:PATH", or a path ending in ".db"
 * created  out, may be NULL: true if there was no store before
 * returns  OK | NOTOURS | NEWER | MOVED | NOCREATE | DENIED | FULL | IO | BUSY | STORE */
PAWL_CALL pawl_init(const char *url, bool *created, struct pawl_error *e);

/* Open an existing store. *out is owned by the caller: pawl_close().
 * returns  OK | NOSTORE | NOTOURS | NEWER | OLDER | MOVED | DENIED | IO | STORE | BADARG (url) */
PAWL_CALL pawl_open(const char *url, struct pawl **out, struct pawl_error *e);
/* As pawl_open, with options (NULL: none). BADARG also for a statement of on_connect that fails. */
PAWL_CALL pawl_open_with(const char *url, const struct pawl_open_opts *o, struct pawl **out,
                         struct pawl_error *e);
/* A new, empty store in a directory of its own, for tests: in memory where the machine has a file
 * system there (/dev/shm), else below $TMPDIR. pawl_close removes it, with everything in it.
 * returns  OK | NOCREATE | FULL | IO | NOMEM | STORE */
PAWL_CALL pawl_open_temp(const struct pawl_open_opts *o, struct pawl **out, struct pawl_error *e);
/* The store's url, to open it again elsewhere; borrowed, for the handle's life. */
PAWL_API const char *pawl_url(const struct pawl *p);
/* The time by the store's clock, in microseconds since 1970 (UTC): the machine's, or that of the
 * server, with which the machine need not agree. 0: not a handle of this process. */
PAWL_API int64_t pawl_now(const struct pawl *p);
PAWL_API void pawl_close(struct pawl **p); /* NULL and *p == NULL are fine; sets *p to NULL */

/* What to enqueue. Zero-initialise, set task and args; the rest has defaults. */
struct pawl_request {
    const char *task;       /* 1..64 of [a-z0-9._-], begins with a letter or digit */
    const char *args;       /* JSON text, kept byte-exact; NULL = "{}" */
    size_t args_bytes;      /* 0 with args != NULL: strlen(args) */
    const char *source;     /* scope of the key; NULL = "" */
    const char *key;        /* the producer's own id, 1..255 bytes; NULL: no dedupe */
    const char *queue;      /* NULL: the task's queue */
    const char *entity;     /* version guard; NULL: from the task's policy, if any */
    const char *headers;    /* JSON object of strings; NULL = none */
    const char *trace;      /* traceparent; NULL = none */
    int64_t version;        /* with has_version */
    int64_t run_at_us;      /* 0: now. The store's clock decides */
    int64_t expires_at_us;  /* 0: never */
    int priority;           /* -100..100 with has_priority, higher first */
    int max_retries;        /* with has_max_retries: 0..1000 */
    bool has_version, has_priority, has_max_retries;
};

struct pawl_enqueued {
    int64_t id;             /* the job; for a duplicate the newest job of its root */
    bool created;           /* false: the same request was accepted before */
    bool task_known;        /* false: no worker has declared this task yet */
    enum pawl_state state;  /* of that job, as read in the same transaction */
    /* when done: the result JSON or NULL; owned by the caller (pawl_free) */
    char *result;
    char near[72];          /* !task_known: the nearest declared task, or "" */
};
PAWL_API void pawl_free(void *p);

/* Store n requests in one durable transaction: all, or none.
 * out      room for n answers
 * bad_i    out, may be NULL: on an error the index of the request that caused it (n: none)
 * returns  OK | BADARG | BADDATA | TOOBIG | KEYCLASH | BUSY | FULL | IO | STORE | NOMEM */
PAWL_CALL pawl_enqueue(struct pawl *p, const struct pawl_request *req, size_t n,
                       struct pawl_enqueued *out, size_t *bad_i, struct pawl_error *e);

/* Store n requests inside the caller's own transaction, on the caller's own connection: the jobs
 * are there if and only if it commits. Each request is one statement (INSERT INTO pawl_enqueue);
 * when one is refused, the transaction stays open and holds the ones before it: *done says how
 * many, so that the caller may go on or roll back. Without an open transaction each is its own.
 * db       of the same copy of SQLite as libpawl uses; the store's database must be its main one
 * out      room for n answers; result and near are not filled, state is
 * done     out, may be NULL: how many requests were stored or met as duplicates
 * returns  OK | BADARG | BADDATA | TOOBIG | KEYCLASH | NOTOURS (no Pawl store in db) | BUSY | FULL
 *          | IO | SQL | NOMEM
 * note     an idle worker hears of a commit that Pawl did not make within 0.1 s; pawl_wake makes it
 *          0.1 ms. "Now" is the machine's clock here, not the one of pawl_open_opts */
PAWL_CALL pawl_enqueue_sqlite(struct sqlite3 *db, const struct pawl_request *req, size_t n,
                              struct pawl_enqueued *out, size_t *done, struct pawl_error *e);
/* The same on PostgreSQL: store n requests inside the transaction that is open on the caller's own
 * connection, with one statement: all of them, or none. Without an open transaction that statement
 * is one. The connection stays as it was: no setting is changed, nothing stays prepared.
 * conn     a PGconn of the libpq that libpawl uses, in a database with a store, idle (no statement
 *          unfinished), not in pipeline mode. It may be non-blocking; this call blocks
 * out      room for n answers; result and near are not filled, state is
 * bad_i    out, may be NULL: on an error the index of the request that caused it (n: none)
 * returns  OK | BADARG | BADDATA | TOOBIG | KEYCLASH | NOTOURS (no Pawl store there) | OLDER
 *          | DENIED | BUSY | FULL | IO | SQL | NOMEM | UNSURE: whether it was stored is not known
 * note     what breaks a rule is refused before the server hears of it, but for KEYCLASH and an
 *          expiry that has passed: as any error of the server's, these abort the transaction,
 *          unless there is a savepoint. After the commit pawl_wake tells the workers; else they
 *          look within a second */
PAWL_CALL pawl_enqueue_pg(struct pg_conn *conn, const struct pawl_request *req, size_t n,
                          struct pawl_enqueued *out, size_t *bad_i, struct pawl_error *e);
/* Tell the workers of this store that something was committed without Pawl. */
PAWL_API void pawl_wake(struct pawl *p);

/* A job as it stands. All pointers are borrowed (valid in the callback); NULL = not set. */
struct pawl_job {
    int64_t id, root_id, replay_of, replayed_as; /* 0: none */
    int gen;                                     /* 0; a replay has one more than its origin */
    enum pawl_state state;
    const char *task, *queue, *source, *key, *entity, *headers, *trace, *serial;
    const char *args;      /* as given; may hold any bytes if it came through SQL */
    size_t args_bytes;
    int64_t version;
    bool has_version, suspect;
    bool task_paused, queue_paused; /* its task, its queue: nothing of it starts */
    int priority, max_retries; /* -1: the task's policy */
    int64_t created_at_us, run_at_us, expires_at_us, started_at_us, ended_at_us;
    int64_t runs, failures, lost, releases, snoozes;
    const char *worker;    /* running: who has it; done: who did it */
    const char *outcome;   /* done: "done" | "stale"; dropped: "failed" | "lost" | "discarded" */
    const char *dead_class;/* dead only */
    const char *reason;    /* dead, dropped, cancelled: in words */
    const char *error;     /* the first error text of the deciding attempt */
    const char *result;    /* done only; JSON */
    size_t result_bytes;
    int64_t attempts;      /* recorded attempts, pruned ones included */
};

struct pawl_attempt {
    int64_t job_id, n, started_at_us, ended_at_us; /* n counts runs from 1 */
    /* transient permanent timeout lost released snooze ... (doc/lifecycle.md) */
    const char *outcome;
    const char *worker, *host, *build;
    const char *error;     /* head and tail, control characters kept */
    const char *out_tail, *err_tail; /* the end of stdout and stderr (exec) */
    int exit_code, signal; /* -1: none */
    int64_t max_rss_kib;   /* 0: unknown */
    int64_t delay_us;      /* until the next run; 0: none */
};

struct pawl_filter {         /* zero = no restriction */
    const char *task, *queue, *source, *key, *dead_class;
    int state;               /* enum pawl_state + 1; 0 = any */
    int64_t since_at_us;     /* dead: died at or after */
    int64_t after_id;        /* ids greater than this (paging) */
    int64_t limit;           /* 0: no limit */
    bool newest_per_root;    /* dead: only the newest death of each root */
    bool unreplayed;         /* dead: only those not yet replayed */
};
/* A callback returns true to go on, false to stop (the call still returns OK). */
typedef bool pawl_job_fn(void *ctx, const struct pawl_job *job);
typedef bool pawl_attempt_fn(void *ctx, const struct pawl_attempt *at);

/* List jobs in id order. The callback runs with no lock held on the store's write side. */
PAWL_CALL pawl_jobs(struct pawl *p, const struct pawl_filter *f, pawl_job_fn *fn, void *ctx,
                    struct pawl_error *e);
PAWL_CALL pawl_job_get(struct pawl *p, int64_t id, pawl_job_fn *fn, void *ctx,
                       struct pawl_error *e); /* NOTFOUND if there is none */
PAWL_CALL pawl_attempts(struct pawl *p, int64_t id, pawl_attempt_fn *fn, void *ctx,
                        struct pawl_error *e);

/* Cancel: OK (now cancelled; a running one can have no later effect) | TOOLATE (it has ended;
 * the state is in *state) | NOTFOUND | store errors. */
PAWL_CALL pawl_cancel(struct pawl *p, int64_t id, enum pawl_state *state, struct pawl_error *e);
/* Skip a waiting job's wait: OK | TOOLATE (running or ended) | NOTFOUND. */
PAWL_CALL pawl_run_now(struct pawl *p, int64_t id, enum pawl_state *state, struct pawl_error *e);

struct pawl_replay {
    const char *args;      /* NULL: the same bytes */
    size_t args_bytes;
    const char *again_reason; /* non-NULL allows a second replay, the reason is recorded */
};
/* Replay one dead job, once: OK (*new_id) | TOOLATE (already replayed: *new_id is that job; or not
 * dead: *new_id = 0) | NOTFOUND | BADDATA (args) | CONFIG (chain longer than 10). */
PAWL_CALL pawl_dead_replay(struct pawl *p, int64_t id, const struct pawl_replay *how,
                           int64_t *new_id, struct pawl_error *e);
/* Say, before a replay, whether the version guard will find it stale. */
PAWL_CALL pawl_dead_is_stale(struct pawl *p, int64_t id, bool *stale, struct pawl_error *e);
/* Give a dead job up, with a reason: it becomes dropped(discarded). OK | TOOLATE | NOTFOUND. */
PAWL_CALL pawl_dead_discard(struct pawl *p, int64_t id, const char *reason, struct pawl_error *e);

/* Pause or resume a queue or a task (exactly one non-NULL). NOTFOUND if it does not exist. */
PAWL_CALL pawl_pause(struct pawl *p, const char *queue, const char *task, bool paused,
                     struct pawl_error *e);

struct pawl_queue_stat {
    const char *queue;
    bool paused;
    int64_t due, later, running, dead;
    int64_t oldest_due_at_us; /* 0: none due */
    const char *paused_tasks; /* of jobs that wait here: names, with commas between; NULL: none */
};
typedef bool pawl_queue_fn(void *ctx, const struct pawl_queue_stat *q);
PAWL_CALL pawl_queues(struct pawl *p, pawl_queue_fn *fn, void *ctx, struct pawl_error *e);

struct pawl_stat { const char *name; int64_t value; const char *help; };
typedef bool pawl_stat_fn(void *ctx, const struct pawl_stat *s);
/* Counts by state and proof counters, from one snapshot. */
PAWL_CALL pawl_stats(struct pawl *p, pawl_stat_fn *fn, void *ctx, struct pawl_error *e);

/* job_id: 0: of none; -1: no violation, but a check that could not be run. */
struct pawl_finding { const char *invariant; const char *what; int64_t job_id; };
typedef bool pawl_finding_fn(void *ctx, const struct pawl_finding *f);
/* Run the invariants that SQL can state, and the engine's own integrity check.
 * checked  out: how many were evaluated. Calls fn for each violation. */
PAWL_CALL pawl_check(struct pawl *p, pawl_finding_fn *fn, void *ctx, int *checked,
                     struct pawl_error *e);

/* Something about the store, its machine or its settings that is worth knowing. */
enum pawl_severity {
    PAWL_NOTE,     /* so it is; nothing need be done */
    PAWL_UNSEEN,   /* it could not be looked at: this role, or this process, may not */
    PAWL_WARNING,  /* somebody should do what fix says */
    PAWL_DANGER    /* jobs may be lost, or nothing works */
};
struct pawl_advice { const char *check; enum pawl_severity severity; const char *what, *fix; };
typedef bool pawl_advice_fn(void *ctx, const struct pawl_advice *a);
/* Look at the store, its machine, its settings and its history. Changes nothing.
 * old_us   what waits, or is held, for longer is worth a word; 0: 15 minutes
 * looked   out: how many looks were taken; may be NULL */
PAWL_CALL pawl_doctor(struct pawl *p, int64_t old_us, pawl_advice_fn *fn, void *ctx, int *looked,
                      struct pawl_error *e);

struct pawl_prune_opts {
    int64_t done_older_us; /* ended longer ago than this; 0: each task's retention. 1: all ended */
    int64_t keys_older_us; /* keys of what goes now: kept so long after its end; 0: key_window */
    int64_t batch;         /* rows per transaction; 0 = default */
    bool dry_run;
};
struct pawl_pruned { int64_t jobs, keys, attempts, batches; };
PAWL_CALL pawl_prune(struct pawl *p, const struct pawl_prune_opts *how, struct pawl_pruned *out,
                     struct pawl_error *e);

/* ===== Moving: the whole store into another one (doc/moving-up.md) ===== */

/* What is being done: rows of `what`, done out of `of` (0: not known). false: stop. */
typedef bool pawl_copy_fn(void *ctx, const char *what, int64_t done, int64_t of);
struct pawl_copy_opts {
    bool dry_run;             /* count and look: nothing is changed at either end */
    bool undo;                /* back to `from`, as long as nothing has happened at `to` */
    pawl_copy_fn *progress;   /* may be NULL */
    pawl_finding_fn *finding; /* may be NULL: a row that cannot be carried as it is, or what
                                 pawl_check found in the copy */
    void *ctx;
};
struct pawl_copy_row { /* rows of a table, at both ends */
    const char *what;
    int64_t from, to;
};
enum { PAWL_COPY_ROWS = 24 };
struct pawl_copied {
    struct pawl_copy_row row[PAWL_COPY_ROWS];
    size_t rows_n;
    int64_t recovered;        /* dead workers whose jobs were put back before */
    int64_t printable;        /* texts of evidence that were made printable: they were not UTF-8 */
    int64_t undecodable;      /* jobs whose args are not UTF-8: carried, to end undecodable */
    int64_t refused;          /* texts that the target cannot hold: then nothing is moved */
    int checked;              /* invariants that were checked at the target */
    bool already;             /* an earlier call had done it, all but perhaps the last step */
};
/* Move jobs, keys, dead letters, attempts, versions and all else from one store into another, which
 * is empty, or made. Refused while workers run at either end; the source is locked for writers
 * meanwhile, and closed at the end: whoever opens it is told where it went (MOVED). Killed at any
 * point, exactly one of the two runs jobs, and the same call goes on.
 * returns  OK | BUSY: workers run, or progress said stop | NOCREATE: the target is in use
 *          BADDATA: rows that cannot be carried, or that break an invariant | MOVED | BADARG
 *          TOOLATE (undo) | as pawl_init and pawl_open */
PAWL_CALL pawl_copy(const char *from, const char *to, const struct pawl_copy_opts *o,
                    struct pawl_copied *out, struct pawl_error *e);

/* ===== Handlers: what a program of yours does with a job =====
 *
 * A handler has one or two functions.
 *   apply    runs inside the job's transaction: what it writes with pawl_exec, the jobs that it
 *            enqueues and "the job is done" commit together, exactly once, or not at all. On SQLite
 *            it holds the one write lock: keep it short, and write with nothing but what is below
 *            (pawl_enqueue with another handle would wait for itself, and is BADARG). It may be
 *            called again within one attempt (a batch is run again when its commit failed): what it
 *            does outside the transaction may happen twice.
 *   prepare  (optional) runs before, outside any transaction, and may be slow: compute, read files,
 *            call others with pawl_run_idempotency_key. The job is leased to this process the
 *            while. It leaves what it found in run->plan, for apply. May read with pawl_query, not
 *            write.
 * A handler returns what came of the job; the texts are for people. Only Pawl commits: BEGIN,
 * COMMIT, ROLLBACK, SAVEPOINT are refused, and a handler that ends the transaction all the same, or
 * returns PAWL_DONE although a call of pawl_exec, pawl_query or pawl_run_enqueue had failed, is
 * dead (misuse), with nothing of it left.
 */
enum pawl_outcome {
    PAWL_DONE = 0,  /* apply: commit it. prepare: go on to apply */
    PAWL_STALE,     /* success without effect: what was written is undone */
    PAWL_RETRY,     /* failed, may succeed later: run again after a backoff, up to max_retries */
    PAWL_FAIL,      /* will never succeed as it is: dead (permanent) */
    PAWL_SNOOZE,    /* not yet: come back after pawl_run_after, costs no retry */
    PAWL_DISCARD,   /* give it up without a dead letter: dropped (failed) */
    PAWL_OUTCOME_N
};

/* A value with a name: a parameter of a statement, a column, or a member of the args. */
enum pawl_type { PAWL_NULL, PAWL_INT, PAWL_REAL, PAWL_TEXT, PAWL_BLOB,
                 PAWL_BOOL, /* of args; in a statement as an integer 0 or 1 */
                 PAWL_JSON  /* of args: an array or object as it stands; else as text */ };
struct pawl_value {
    const char *name; /* a parameter without its colon; a column's name */
    enum pawl_type type;
    int64_t i;        /* INT, BOOL */
    double r;         /* REAL */
    const char *p;    /* TEXT (UTF-8), BLOB, JSON: n bytes; TEXT and JSON also end with a NUL */
    size_t n;
};
/* A row of pawl_query, borrowed for the callback. Returns true to go on, false to stop. */
typedef bool pawl_row_fn(void *row_ctx, const struct pawl_value *col, size_t col_n);

struct pawl_run;
/* The functions that a handler calls, through run->api: a handler links nothing of Pawl. Use the
 * pawl_ calls below. Append only; PAWL_ABI grows when an old handler could no longer work. */
#define PAWL_ABI 1u
struct pawl_api {
    uint32_t abi, bytes;
    enum pawl_rc (*exec)(struct pawl_run *, const char *, const struct pawl_value *, size_t,
                         int64_t *, struct pawl_error *);
    enum pawl_rc (*query)(struct pawl_run *, const char *, const struct pawl_value *, size_t,
                          pawl_row_fn *, void *, struct pawl_error *);
    enum pawl_rc (*query_row)(struct pawl_run *, const char *, const struct pawl_value *, size_t,
                              struct pawl_value *, size_t, bool *, struct pawl_error *);
    enum pawl_rc (*arg)(struct pawl_run *, const char *, int, struct pawl_value *,
                        struct pawl_error *);
    enum pawl_rc (*enqueue)(struct pawl_run *, const struct pawl_request *, size_t,
                            struct pawl_enqueued *, size_t *, struct pawl_error *);
    enum pawl_rc (*result)(struct pawl_run *, const char *, size_t, struct pawl_error *);
    void (*error)(struct pawl_run *, const char *, size_t);
    enum pawl_outcome (*outcome)(struct pawl_run *, const struct pawl_error *);
    void (*after)(struct pawl_run *, int64_t);
    bool (*cancelled)(struct pawl_run *);
    int64_t (*time_left_us)(struct pawl_run *);
    enum pawl_rc (*heartbeat)(struct pawl_run *, struct pawl_error *);
    void (*log)(struct pawl_run *, int, const char *, size_t);
    void *(*alloc)(struct pawl_run *, size_t);
    struct sqlite3 *(*sqlite)(struct pawl_run *);
    const char *(*idempotency_key)(struct pawl_run *);
};

/* One run of a job, as its handler sees it. Read only, but for plan. Everything is borrowed for the
 * run: from prepare to drop. Strings: NULL = not given. */
struct pawl_run {
    const struct pawl_api *api;
    void *ctx;               /* of struct pawl_task; NULL in a plugin */
    void *plan;              /* what prepare leaves for apply; handler->drop frees it */
    int64_t job_id;
    int64_t attempt;         /* this run, counted from 1 */
    int64_t token;           /* rises with every run of this job: for receivers that can fence */
    int64_t created_at_us;
    const char *task, *queue, *source, *key, *headers, *trace;
    const char *args;        /* JSON, as it was enqueued */
    size_t args_bytes;
};

typedef enum pawl_outcome pawl_handler_fn(struct pawl_run *run);
typedef void pawl_drop_fn(struct pawl_run *run);
struct pawl_handler {
    uint32_t abi, api_bytes;  /* PAWL_ABI, sizeof(struct pawl_api): as the handler was compiled */
    pawl_handler_fn *prepare; /* NULL: there is none */
    pawl_handler_fn *apply;   /* NULL: prepare is all; its PAWL_DONE is then settled as it is */
    pawl_drop_fn *drop;       /* NULL: nothing to free. Called once, last, for each run that
                               * prepare began; only run->plan and run->ctx may be used */
};
/* Define the handler NAME of a plugin: `c = ./plugin.so:NAME` in pawl.conf. Build it with
 * cc -shared -fPIC -o plugin.so plugin.c; it links nothing of Pawl. In a program: a handler for
 * struct pawl_task. */
#ifdef __cplusplus
#define PAWL_HANDLER_LINKAGE extern "C"
#else
#define PAWL_HANDLER_LINKAGE extern
#endif
#define PAWL_HANDLER(name, prepare, apply, drop)                                      \
    PAWL_HANDLER_LINKAGE PAWL_API const struct pawl_handler name;                     \
    const struct pawl_handler name = {PAWL_ABI, PAWL_CAST(uint32_t, sizeof(struct pawl_api)), \
                                      prepare, apply, drop}

/* --- inside a handler: the args --- */
/* A member of the args by name, or by JSON Pointer (RFC 6901) when it begins with '/': "amount",
 * "/customer/city", "/items/0/sku"; "" is the whole. Text is unescaped and borrowed for the run.
 * returns  OK | NOTFOUND: absent, or null | BADDATA: of another type (also what it should be found
 *          in), twice in its object, beyond 64 bits, or half a surrogate pair | BADARG: no such
 *          pointer can be | NOMEM. The text says which member; out is untouched.
 *          `return pawl_run_error(run, &e);` makes the job dead (permanent) with that text. */
static inline enum pawl_rc pawl_arg(struct pawl_run *run, const char *name, struct pawl_value *out,
                                    struct pawl_error *e)
{
    return run->api->arg(run, name, -1, out, e);
}
static inline enum pawl_rc pawl_arg_int(struct pawl_run *run, const char *name, int64_t *out,
                                        struct pawl_error *e)
{
    struct pawl_value v;
    enum pawl_rc rc = run->api->arg(run, name, PAWL_INT, &v, e);

    if (rc == PAWL_OK) *out = v.i;
    return rc;
}
static inline enum pawl_rc pawl_arg_real(struct pawl_run *run, const char *name, double *out,
                                         struct pawl_error *e) /* an integer is fine, too */
{
    struct pawl_value v;
    enum pawl_rc rc = run->api->arg(run, name, PAWL_REAL, &v, e);

    if (rc == PAWL_OK) *out = v.r;
    return rc;
}
static inline enum pawl_rc pawl_arg_bool(struct pawl_run *run, const char *name, bool *out,
                                         struct pawl_error *e)
{
    struct pawl_value v;
    enum pawl_rc rc = run->api->arg(run, name, PAWL_BOOL, &v, e);

    if (rc == PAWL_OK) *out = v.i != 0;
    return rc;
}
static inline enum pawl_rc pawl_arg_text(struct pawl_run *run, const char *name, const char **out,
                                         size_t *n, struct pawl_error *e) /* n may be NULL */
{
    struct pawl_value v;
    enum pawl_rc rc = run->api->arg(run, name, PAWL_TEXT, &v, e);

    if (rc == PAWL_OK) {
        *out = v.p;
        if (n) *n = v.n;
    }
    return rc;
}

/* --- inside a handler: values for statements --- */
static inline struct pawl_value pawl_null(const char *name)
{
    struct pawl_value v = {name, PAWL_NULL, 0, 0, 0, 0};
    return v;
}
static inline struct pawl_value pawl_int(const char *name, int64_t i)
{
    struct pawl_value v = {name, PAWL_INT, i, 0, 0, 0};
    return v;
}
static inline struct pawl_value pawl_real(const char *name, double r)
{
    struct pawl_value v = {name, PAWL_REAL, 0, r, 0, 0};
    return v;
}
static inline struct pawl_value pawl_text_n(const char *name, const char *p, size_t n)
{
    struct pawl_value v = {name, p ? PAWL_TEXT : PAWL_NULL, 0, 0, p, n};
    return v;
}
static inline struct pawl_value pawl_text(const char *name, const char *p) /* NULL binds NULL */
{
    return pawl_text_n(name, p, p ? strlen(p) : 0);
}
static inline struct pawl_value pawl_blob(const char *name, const void *p, size_t n)
{
    struct pawl_value v = {name, PAWL_BLOB, 0, 0, PAWL_CAST(const char *, p), n};
    return v;
}

/* --- inside a handler: statements in the job's transaction --- */
/* Run one statement. sql is prepared once per text and process. v: its parameters by name, in any
 * order; one that is missing is NULL, one that the statement does not have is BADARG.
 * changed  out, may be NULL: rows changed
 * returns  OK | SQL: it failed, e->native is the engine's code | CONFIG: it is one that a handler
 *          may not use (COMMIT, ATTACH, a table of Pawl's ...) | TOOLATE: not inside apply | BUSY
 *          FULL IO NOMEM: the store's fault, the job will be run again at no cost | BADARG */
static inline PAWL_MUST_USE enum pawl_rc pawl_exec(struct pawl_run *run, const char *sql,
                                                   const struct pawl_value *v, size_t n,
                                                   int64_t *changed, struct pawl_error *e)
{
    return run->api->exec(run, sql, v, n, changed, e);
}
/* Run a statement that returns rows. In prepare: one that only reads. Errors as pawl_exec. */
static inline PAWL_MUST_USE enum pawl_rc pawl_query(struct pawl_run *run, const char *sql,
                                                    const struct pawl_value *v, size_t n,
                                                    pawl_row_fn *fn, void *row_ctx,
                                                    struct pawl_error *e)
{
    return run->api->query(run, sql, v, n, fn, row_ctx, e);
}
/* The first row's first out_n columns, borrowed for the run. *found (may be NULL): there is one. */
static inline PAWL_MUST_USE enum pawl_rc pawl_query_row(struct pawl_run *run, const char *sql,
                                                        const struct pawl_value *v, size_t n,
                                                        struct pawl_value *out, size_t out_n,
                                                        bool *found, struct pawl_error *e)
{
    return run->api->query_row(run, sql, v, n, out, out_n, found, e);
}
/* Enqueue follow-up jobs in the same transaction: they are there if and only if this job is done.
 * In prepare: at once, in a transaction of its own, and only with a key (TOOLATE without), since
 * prepare may run again. Arguments and errors as pawl_enqueue; near and result are not filled. */
static inline PAWL_MUST_USE enum pawl_rc pawl_run_enqueue(struct pawl_run *run,
                                                          const struct pawl_request *req, size_t n,
                                                          struct pawl_enqueued *out, size_t *bad_i,
                                                          struct pawl_error *e)
{
    return run->api->enqueue(run, req, n, out, bad_i, e);
}

/* --- inside a handler: what came of it --- */
/* The job's result: JSON text of n bytes (0: strlen), copied, at most 256 KiB; the last call
 * counts. NULL: none. BADDATA, TOOBIG, NOMEM. */
static inline PAWL_MUST_USE enum pawl_rc pawl_run_result(struct pawl_run *run, const char *json,
                                                         size_t n, struct pawl_error *e)
{
    return run->api->result(run, json, n, e);
}
/* What e means for the job; its text becomes the job's error. A constraint, bad data, a member of
 * the args that is missing: PAWL_FAIL. Trouble of the store or of memory: PAWL_RETRY, not charged
 * to the job. */
static inline enum pawl_outcome pawl_run_error(struct pawl_run *run, const struct pawl_error *e)
{
    return run->api->outcome(run, e);
}
/* Say why: the job's error text (up to 1 KiB here). Not kept with PAWL_DONE and PAWL_STALE. */
__attribute__((format(printf, 2, 3), unused)) static void pawl_run_say(struct pawl_run *run,
                                                                      const char *fmt, ...)
{
    char text[1024];
    va_list ap;

    va_start(ap, fmt);
    int n = vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    run->api->error(run, text, n < 0                               ? 0
                         : PAWL_CAST(size_t, n) < sizeof text ? PAWL_CAST(size_t, n)
                                                              : sizeof text - 1);
}
/* Not before so long from now: the next run after PAWL_RETRY (a floor) or PAWL_SNOOZE (without:
 * 5 s; at most 1 h). Up to a tenth more is added at random. */
static inline void pawl_run_after(struct pawl_run *run, int64_t delay_us)
{
    run->api->after(run, delay_us);
}

/* --- inside a handler: long work --- */
/* Should it stop? The worker drains, or the job was cancelled or taken over: return PAWL_RETRY; it
 * is handed back at no cost. Cheap: may be asked in a loop. */
static inline bool pawl_run_cancelled(struct pawl_run *run)
{
    return run->api->cancelled(run);
}
/* Until the task's hard limit; INT64_MAX: none. What happens there: doc/embedding.md. */
static inline int64_t pawl_run_time_left_us(struct pawl_run *run)
{
    return run->api->time_left_us(run);
}
/* In prepare, in a program's own worker: call it more often than once a lease (30 s), or others
 * take the job over. `pawl work` does it by itself, and in apply there is no need. FENCED: they
 * did. */
static inline enum pawl_rc pawl_run_heartbeat(struct pawl_run *run, struct pawl_error *e)
{
    return run->api->heartbeat(run, e);
}
/* A key for calls outside, the same on every retry and replay of this job and of no other: made
 * from task, source and key, or from the id of a job without a key. Borrowed for the run. */
static inline const char *pawl_run_idempotency_key(struct pawl_run *run)
{
    return run->api->idempotency_key(run);
}
/* A line for the worker's log, with the job's id. level: 0 error, 1 warn, 2 info, 3 debug. */
static inline void pawl_run_log(struct pawl_run *run, int level, const char *text)
{
    run->api->log(run, level, text, strlen(text));
}
/* Zeroed memory that is freed when the run ends; NULL: there is none. */
static inline void *pawl_run_alloc(struct pawl_run *run, size_t n)
{
    return run->api->alloc(run, n);
}
/* In a program that links libpawl and SQLite: the connection whose transaction this is, for
 * statements of your own. The rules above hold: do not end the transaction, and report what fails.
 * NULL in a plugin, in prepare, and on other engines. */
static inline struct sqlite3 *pawl_run_sqlite(struct pawl_run *run)
{
    return run->api->sqlite(run);
}

/* ===== Tasks and workers in your own program ===== */
struct pawl_task {
    const char *name;
    const struct pawl_handler *handler;
    void *ctx;          /* given to the handler as run->ctx */
    const char *policy; /* settings of a [task] section of pawl.conf, one a line:
                         * "max_retries = 3\nbackoff = 1s..60s"; NULL: the defaults */
};

/* Make a task known and its policy the stored one, as a worker does at its start.
 * policy   as in struct pawl_task. What it leaves out is the default of a task, also the hard_limit
 *          of 1 h; a worker, who knows the handler, takes 1 min for one that has only apply: give
 *          "hard_limit = 1m" here to say the same
 * replace  true: the stored policy is replaced; false: DRIFT if there is another one
 * differs  out, may be NULL: with DRIFT, and with replace, the lines that differ or differed; owned
 *          by the caller (pawl_free); NULL if there are none
 * returns  OK | DRIFT | BADARG (name) | CONFIG (policy: says which line) | store errors */
PAWL_CALL pawl_task_put(struct pawl *p, const char *name, const char *policy, bool replace,
                        char **differs, struct pawl_error *e);

struct pawl_worker; /* runs jobs in the calling thread; has a connection of its own */
struct pawl_worker_opts {
    const struct pawl_task *tasks;
    size_t tasks_n;
    const char *const *queues; /* only these; none: every queue */
    size_t queues_n;
    const struct pawl_open_opts *open; /* clock, log, on_connect; NULL: none */
    int64_t lease_us;          /* who does not beat for so long is taken over: 1 s..1 h; 0: 30 s */
    /* jobs per commit: 0: what fits a few milliseconds; 1: each its own */
    size_t batch_max;
    bool replace_policies;     /* replace stored policies that differ; else DRIFT */
    bool accept_wal_risk;      /* several workers although this SQLite can damage the file
                                * (before 3.51.3: sqlite.org/wal.html, the WAL-reset bug) */
};
/* Open the store at url, declare the tasks, join as a worker. Everything in o is borrowed for the
 * worker's life. *out is owned by the caller: pawl_worker_close.
 * returns  OK | DRIFT | CONFIG | BADARG | as pawl_open */
PAWL_CALL pawl_worker_open(const char *url, const struct pawl_worker_opts *o,
                           struct pawl_worker **out, struct pawl_error *e);
/* Hand back what is held, leave, free. NULL is fine. OK | BUSY ...: somebody else will take it over
 * when the lease has passed; it is freed all the same. BADARG: from inside a handler that it runs,
 * where a worker may be stopped, but not used: nothing happened, nothing is freed. */
PAWL_API enum pawl_rc pawl_worker_close(struct pawl_worker **w, struct pawl_error *e);

/* Counts since the worker was opened. */
struct pawl_worker_stat {
    int64_t done, stale, retried, dead, dropped, released;
    int64_t recovered; /* jobs of other workers that were gone */
};
/* Own loop: do what is due now, at most about one batch (some milliseconds, or one slow handler).
 * more     out, may be NULL: call again at once. Else when pawl_worker_fd is readable or
 *          pawl_worker_wait_us has passed.
 * returns  OK | BUSY FULL IO NOMEM STORE UNSURE: the store is in trouble, nothing was charged to a
 *          job; call again, better later | others: it cannot go on */
PAWL_CALL pawl_worker_step(struct pawl_worker *w, bool *more, struct pawl_error *e);
/* Readable when another pawl process or handle committed; -1: cannot be had, use the time alone. */
PAWL_API int pawl_worker_fd(struct pawl_worker *w);
/* When to call pawl_worker_step again even if nothing was heard: at most 0.1 s. */
PAWL_API int64_t pawl_worker_wait_us(struct pawl_worker *w);
/* Or run until stopped: steps and waits, and outlasts passing trouble of the store.
 * until_empty  also end when nothing of these tasks is due, running anywhere, or waits for a retry
 * returns      OK: stopped, or empty | what pawl_worker_step cannot go on after */
PAWL_CALL pawl_worker_run(struct pawl_worker *w, bool until_empty, struct pawl_error *e);
/* End pawl_worker_run after the job in hand. From any thread, from a signal handler. */
PAWL_API void pawl_worker_stop(struct pawl_worker *w);
PAWL_API void pawl_worker_stats(const struct pawl_worker *w, struct pawl_worker_stat *out);

/* Step by step, for tests: run the next due job, alone, and say what came of it.
 * returns  OK | NOTFOUND: nothing is due | as pawl_worker_step */
struct pawl_ran {
    int64_t job_id;
    enum pawl_state state; /* where the job is now */
    const char *outcome;   /* "done" "stale" "transient" "permanent" "snooze" ...; static */
    char text[512];        /* the reason, or the error; "" if all went well */
};
PAWL_CALL pawl_worker_one(struct pawl_worker *w, struct pawl_ran *out, struct pawl_error *e);

#ifdef __cplusplus
}
#endif
#endif
