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
 * Threads   One struct pawl may be used by one thread at a time.
 * Fork      A handle must not be used in a child of fork(): open a new one there.
 */
#ifndef PAWL_H
#define PAWL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define PAWL_VERSION "0.1.0"
#define PAWL_MUST_USE __attribute__((warn_unused_result))

/* Result codes. Texts, retry class and exit codes: the table in src/base/err.h, printed by
 * `pawl debug errors`. Append only. */
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
    PAWL_RC_N
};

struct pawl_error {
    enum pawl_rc rc;
    int native;    /* errno or the engine's extended result code, 0 if none */
    char msg[768]; /* one line: what, which value, what to do */
};

const char *pawl_rc_name(enum pawl_rc rc); /* "OK", "NOMEM", ...; static */
const char *pawl_rc_text(enum pawl_rc rc); /* the short text of the table; static */

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
const char *pawl_state_name(enum pawl_state s); /* "ready", ...; static */

/* Which SQLite is linked: "SQLite 3.53.1 (bundled)", or "(the system's)". At most n bytes. */
void pawl_engine(char *buf, size_t n);

struct pawl; /* an open store */

/* Create the store at `url`, or migrate it. Safe to run twice and by two at once.
 * url      "sqlite:PATH", or a path ending in ".db"
 * created  out, may be NULL: true if there was no store before
 * returns  OK | NOTOURS | NEWER | NOCREATE | DENIED | FULL | IO | BUSY | STORE */
PAWL_MUST_USE enum pawl_rc pawl_init(const char *url, bool *created, struct pawl_error *e);

/* Open an existing store. *out is owned by the caller: pawl_close().
 * returns  OK | NOSTORE | NOTOURS | NEWER | OLDER | DENIED | IO | STORE | BADARG (url) */
PAWL_MUST_USE enum pawl_rc pawl_open(const char *url, struct pawl **out, struct pawl_error *e);
void pawl_close(struct pawl **p); /* NULL and *p == NULL are fine; sets *p to NULL */

/* What to enqueue. Zero-initialise, set task and args; the rest has defaults. */
struct pawl_enqueue {
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
void pawl_free(void *p);

/* Store n requests in one durable transaction: all, or none.
 * out      room for n answers
 * bad_i    out, may be NULL: on an error the index of the request that caused it (n: none)
 * returns  OK | BADARG | BADDATA | TOOBIG | KEYCLASH | BUSY | FULL | IO | STORE | NOMEM */
PAWL_MUST_USE enum pawl_rc pawl_enqueue(struct pawl *p, const struct pawl_enqueue *req, size_t n,
                                        struct pawl_enqueued *out, size_t *bad_i,
                                        struct pawl_error *e);

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
    /* transient permanent timeout lost released snoozed ... (doc/lifecycle.md) */
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
PAWL_MUST_USE enum pawl_rc pawl_jobs(struct pawl *p, const struct pawl_filter *f, pawl_job_fn *fn,
                                     void *ctx, struct pawl_error *e);
PAWL_MUST_USE enum pawl_rc pawl_job(struct pawl *p, int64_t id, pawl_job_fn *fn, void *ctx,
                                    struct pawl_error *e); /* NOTFOUND if there is none */
PAWL_MUST_USE enum pawl_rc pawl_attempts(struct pawl *p, int64_t id, pawl_attempt_fn *fn,
                                         void *ctx, struct pawl_error *e);

/* Cancel: OK (now cancelled; a running one can have no later effect) | TOOLATE (it has ended;
 * the state is in *state) | NOTFOUND | store errors. */
PAWL_MUST_USE enum pawl_rc pawl_cancel(struct pawl *p, int64_t id, enum pawl_state *state,
                                       struct pawl_error *e);
/* Skip a waiting job's wait: OK | TOOLATE (running or ended) | NOTFOUND. */
PAWL_MUST_USE enum pawl_rc pawl_run_now(struct pawl *p, int64_t id, enum pawl_state *state,
                                        struct pawl_error *e);

struct pawl_replay {
    const char *args;      /* NULL: the same bytes */
    size_t args_bytes;
    const char *again_reason; /* non-NULL allows a second replay, the reason is recorded */
};
/* Replay one dead job, once: OK (*new_id) | TOOLATE (already replayed: *new_id is that job; or not
 * dead: *new_id = 0) | NOTFOUND | BADDATA (args) | CONFIG (chain longer than 10). */
PAWL_MUST_USE enum pawl_rc pawl_dead_replay(struct pawl *p, int64_t id,
                                            const struct pawl_replay *how, int64_t *new_id,
                                            struct pawl_error *e);
/* Say, before a replay, whether the version guard will find it stale. */
PAWL_MUST_USE enum pawl_rc pawl_dead_is_stale(struct pawl *p, int64_t id, bool *stale,
                                              struct pawl_error *e);
/* Give a dead job up, with a reason: it becomes dropped(discarded). OK | TOOLATE | NOTFOUND. */
PAWL_MUST_USE enum pawl_rc pawl_dead_discard(struct pawl *p, int64_t id, const char *reason,
                                             struct pawl_error *e);

/* Pause or resume a queue or a task (exactly one non-NULL). NOTFOUND if it does not exist. */
PAWL_MUST_USE enum pawl_rc pawl_pause(struct pawl *p, const char *queue, const char *task,
                                      bool paused, struct pawl_error *e);

struct pawl_queue_stat {
    const char *queue;
    bool paused;
    int64_t due, later, running, dead;
    int64_t oldest_due_at_us; /* 0: none due */
    const char *paused_tasks; /* of jobs that wait here: names, with commas between; NULL: none */
};
typedef bool pawl_queue_fn(void *ctx, const struct pawl_queue_stat *q);
PAWL_MUST_USE enum pawl_rc pawl_queues(struct pawl *p, pawl_queue_fn *fn, void *ctx,
                                       struct pawl_error *e);

struct pawl_stat { const char *name; int64_t value; const char *help; };
typedef bool pawl_stat_fn(void *ctx, const struct pawl_stat *s);
/* Counts by state and proof counters, from one snapshot. */
PAWL_MUST_USE enum pawl_rc pawl_stats(struct pawl *p, pawl_stat_fn *fn, void *ctx,
                                      struct pawl_error *e);

struct pawl_finding { const char *invariant; const char *what; int64_t job_id; };
typedef bool pawl_finding_fn(void *ctx, const struct pawl_finding *f);
/* Run the invariants that SQL can state, and the engine's own integrity check.
 * checked  out: how many were evaluated. Calls fn for each violation. */
PAWL_MUST_USE enum pawl_rc pawl_check(struct pawl *p, pawl_finding_fn *fn, void *ctx,
                                      int *checked, struct pawl_error *e);

struct pawl_prune {
    int64_t done_older_us; /* <0: each task's own retention */
    int64_t keys_older_us; /* <0: the default, 30 d after the end */
    int64_t batch;         /* rows per transaction; 0 = default */
    bool dry_run;
};
struct pawl_pruned { int64_t jobs, keys, attempts, batches; };
PAWL_MUST_USE enum pawl_rc pawl_prune(struct pawl *p, const struct pawl_prune *how,
                                      struct pawl_pruned *out, struct pawl_error *e);

#ifdef __cplusplus
}
#endif
#endif
