// SPDX-License-Identifier: Apache-2.0
/* pg.h - the inside of the PostgreSQL store: one connection, its statements, its clock.
 *
 * Keeps: a COMMIT counts when the server's own answer says COMMIT; when no answer comes, what
 *        happened is found by reading on a new connection (UNSURE). Every wait for the server is
 *        bounded. All that Pawl does is READ COMMITTED: correctness rests on unique constraints,
 *        conditional statements whose rows are counted, and row locks.
 *        The clock is the server's, so that hosts need not agree.
 */
#ifndef PG_PG_H
#define PG_PG_H

#include <libpq-fe.h>
#include "store/verb/db.h"

struct pg;

/* A statement. Bound values lie in it as text, or are borrowed. */
enum { PG_PARAMS = 24 };
struct pg_query {
    struct query head;
    struct pg *pg;
    char *text;                 /* as the server takes it; NULL: not asked for yet */
    char name[16];              /* prepared as; "": not on this connection */
    uint8_t kind;               /* enum pg_pipe_kind */
    int params;                 /* the server's own count */
    uint8_t slot[PG_PARAMS + 1];/* number of the verbs' -> number of the server's; 0: unused */
    const char *v[PG_PARAMS];
    int len[PG_PARAMS], fmt[PG_PARAMS];
    char num[PG_PARAMS][24];
    char *clean[PG_PARAMS];     /* a text that had to be made acceptable */
    PGresult *r;                /* executed: its rows */
    int row;                    /* the current one */
    bool again;                 /* executed again when its rows are used up: a FETCH */
    uint8_t *bytes;             /* a bytea of the current row, decoded */
};

/* What a statement in the pipe is to those who sent it, should it fail. MUST: it fails with
 * PG_NOT_ALL when it did not meet every row it names: somebody else has decided. AHEAD + i: its
 * rows wait in ahead[i]. */
enum { PG_AHEAD = 24 };
enum pg_pipe_kind { PIPE_OWN, PIPE_BEGIN, PIPE_USER, PIPE_MUST, PIPE_COMMIT, PIPE_AHEAD };
#define PG_NOT_ALL "22P02" /* a text that is no number: what the server's log tells of it */
struct pg_pipe {
    bool on;                    /* statements are under way */
    struct buf kinds;           /* one byte each */
    size_t bytes;               /* sent since the last flush */
    int64_t until_us;
    /* So many of them end with the last one of a user's, which has a limit of its own. */
    size_t user_n; int64_t user_until_us;
    int failed_kind;            /* of the statement that failed last */
};
/* A statement whose rows somebody is going to ask for: sent before, kept with what was bound. */
struct pg_ahead { const struct pg_query *q; struct buf bound; PGresult *r; };

/* Statements of PostgreSQL alone, named behind those of the verbs. */
enum { PQ_LEASE = Q_N, PQ_DONE_READY, PQ_DONE_LEASED, PQ_IDS, PQ_JOBS_ADD, PQ_KEYS_ADD,
       PQ_READY_ADD, PQ_IDS_NEW, PQ_FENCE_UNSAID, PQ_SAID, PQ_END };

struct pg {
    struct db d;                /* first: a struct store * is a struct pg * */
    PGconn *c;                  /* NULL: not connected */
    char *url;
    bool closed_ok;             /* for who moves it: open it although it is closed */
    char **on_connect; size_t on_connect_n;
    struct env env;             /* the machine's, but for the wall clock */
    int64_t ahead_us;           /* the server's clock less our monotonic one */
    int64_t clock_at_us;        /* monotonic: when that was asked */
    int64_t wait_us, wait_set_us; /* patience with other writers; as the server knows it */
    int64_t deadline_us; const volatile int *stop; /* for users' statements */
    bool begin_due;             /* the transaction's BEGIN goes with its first statement */
    bool tuned;                 /* this transaction plans as our statements want it (pg_tx.c) */
    char plan_mode[24];         /* plan_cache_mode as the session has it */
    struct pg_pipe pipe;
    struct pg_ahead ahead[PG_AHEAD];
    bool watched, timed_out;    /* a user's statement runs; it ran past its limit */
    int rows_out;               /* statements whose rows are being handed out */
    int64_t changed_n;          /* rows that the last statement wrote */
    int64_t inserted_id;
    int64_t sent_n;             /* statements sent, ever */
    int64_t wrote_n;            /* rows written on this connection */
    char state[6];              /* SQLSTATE of the last error */
    /* Of the server's process that serves us: libpq forgets it with the connection. */
    int backend_pid; char backend_start[48];
    bool pooled;                /* a pooler is in between: nothing of a session lasts (pg_pool.c) */
    bool pool_seen;             /* a statement that was prepared was not there */
    char *setup;                /* pooled: on_connect, for every transaction; NULL: none */
    bool by_keys;               /* transactions are to read by keys (prune) */
    int tx_pid; int64_t tx_start_us; /* pooled: what names the transaction that is open */
    int doubt_pid; char doubt_start[48]; /* of one that was left in a COMMIT; 0: none */
    bool unconfirmed;           /* a standby may not have a commit of ours (pg_ha.c) */
    bool connected; int64_t again_us; /* we were; monotonic: when we were again, 0: never lost */
    int64_t doubt_start_us;     /* pooled: when that transaction began; 0: not pooled */
    bool listens;               /* somebody waits by pg_wake_fd */
    int poll_fd;                /* the wake file's watch, and the connection; -1: none */
    int64_t told_us, looked_us; /* monotonic: when we last notified, and looked unasked */
    bool rung;                  /* the wake file was touched since we last looked */
    bool tell;                  /* not told yet: too soon after the last time */
    struct pg_query named[PQ_END];
    struct store_stmt *user;
    const char *refused;
    PGconn *mark;               /* for the last words, and while we wait (pg_mark.c) */
    bool mark_sent;             /* an answer to come */
    int64_t mark_retry_us;
};

static inline struct pg *pg_of(struct store *st) { return (struct pg *)(void *)st; }
static inline struct pg *pg_from(struct db *db) { return (struct pg *)(void *)db; }

/* pg_conn.c */
enum pawl_rc pg_connect(struct pg *pg, bool any_schema, struct pawl_error *e) PAWL_MUST_USE;
void pg_disconnect(struct pg *pg);
/* A failed result, or a broken connection (r NULL): what, in words. Frees r. */
enum pawl_rc pg_fail(struct pg *pg, PGresult *r, struct pawl_error *e, const char *what);
/* SQLSTATE -> a number for struct pawl_error, and its class. */
int pg_native(const char *state);
enum pawl_rc pg_rc_of(const char *state);
/* Wait for the result of what was sent; at most the last of several. NULL: the connection is
 * broken, or did not answer in time, and is closed. It is closed, too, when the answer is an error
 * behind which nothing came. */
PGresult *pg_wait(struct pg *pg, int64_t until_us);
/* Until the socket can be read (or written, while something is left to send), or us have passed.
 * false: broken. */
bool pg_turn(PGconn *c, int64_t us);
/* Until an answer can be read without waiting. false: broken, or too late. */
bool pg_idle(struct pg *pg, int64_t until_us);
int64_t pg_count(struct pg *pg, PGresult *r); /* rows that it wrote, or returned; counted */
/* As pg_fail, for a user's statement: SQL, its text alone. */
enum pawl_rc pg_sql_failed(struct pg *pg, PGresult *r, struct pawl_error *e);
int64_t pg_until(const struct pg *pg);      /* monotonic: how long to wait for one of ours */
/* Statements without parameters, one after the other; the last result must be a command's. */
enum pawl_rc pg_exec(struct pg *pg, const char *sql, struct pawl_error *e) PAWL_MUST_USE;
bool pg_spoiled(const struct pg *pg);       /* a failed statement has spoiled the transaction */

/* pg_ha.c */
const char *pg_connect_timeout(const char *url); /* seconds, for each host */
void pg_one_line(char *out, size_t n, const char *said); /* of what libpq says */
void pg_left(struct pg *pg);                /* what is about to be closed: was it at work? */
void pg_hear(struct pg *pg);                /* notices: sets unconfirmed */
enum pawl_rc pg_confirm(struct pg *pg, struct pawl_error *e) PAWL_MUST_USE; /* and clears it */
enum pawl_rc pg_ask_clock(struct pg *pg, struct pawl_error *e) PAWL_MUST_USE;
/* Is a commit of this session on disk when it was answered? STORE: not so */
enum pawl_rc pg_durable(struct pg *pg, struct pawl_error *e) PAWL_MUST_USE;

/* pg_pool.c */
/* BEGIN ..., with what the transaction needs to be set. */
enum pawl_rc pg_open_tx(struct pg *pg, const char *begin, struct pawl_error *e) PAWL_MUST_USE;
enum pawl_rc pg_patience(struct pg *pg, struct pawl_error *e) PAWL_MUST_USE; /* as lock_timeout */
enum pawl_rc pg_ask_who(struct pg *pg, struct pawl_error *e) PAWL_MUST_USE; /* sets pooled */
enum pawl_rc pg_pool_try(struct pg *pg, struct pawl_error *e) PAWL_MUST_USE;
void pg_doubt(struct pg *pg);               /* what our process there is at has no answer */
enum pawl_rc pg_await_other(struct pg *pg, struct pawl_error *e) PAWL_MUST_USE; /* its end */
/* What in a user's statement outlives its transaction, in words; NULL: nothing. */
const char *pg_session_use(const char *sql);

/* pg_text.c: SQL as the verbs write it, as PostgreSQL takes it. false: out of memory */
bool pg_translate(const char *sql, struct pg_query *q);
const char *pg_sql(int id);                 /* a text of its own; NULL: translate the common one */
extern const char *const q_text_of[Q_N];    /* verb/db.c */

/* pg_query.c */
extern const struct query_ops pg_query_ops;
enum pawl_rc pg_q(struct db *db, enum q_id id, struct query **out, struct pawl_error *e);
enum pawl_rc pg_named(struct db *db, int id, struct query **out, struct pawl_error *e);
enum pawl_rc pg_prepare(struct db *db, const char *sql, struct query **out, struct pawl_error *e);
/* As run, but nobody waits: a failure is told by whatever is waited for next. */
enum pawl_rc pg_run_later(struct db *db, struct query *q, struct pawl_error *e) PAWL_MUST_USE;
enum pawl_rc pg_run(struct db *db, struct query *q, struct pawl_error *e);
enum pawl_rc pg_row(struct db *db, struct query *q, bool *row, struct pawl_error *e);
void pg_query_clear(struct pg_query *q);    /* its result and bindings */
void pg_query_end(struct pg_query *q);      /* and its text */

/* A text of ours that the server is to read as what the parameter is: an array. Borrowed. */
void pg_bind_plain(struct query *q, int i, const char *s);

/* pg_many.c: arrays as texts, element by element; pg_bind_array ends one. false: out of memory */
void pg_put_int(struct buf *b, int64_t v);
void pg_put_text(struct buf *b, const char *s, size_t n); /* NULL: null */
bool pg_bind_array(struct query *q, int i, struct buf *b);
int64_t pg_place(struct query *q, int col);
enum pawl_rc pg_done_many(struct db *db, const struct db_done *d, size_t n, bool leased,
                          struct pawl_error *e) PAWL_MUST_USE;
enum pawl_rc pg_lease_many(struct db *db, const struct lane *lane, const struct job *jobs, size_t n,
                           struct pawl_error *e) PAWL_MUST_USE;

/* pg_said.c */
enum pawl_rc pg_fence_unsaid(struct db *db, const struct job *job, bool *ok,
                             struct pawl_error *e) PAWL_MUST_USE;
enum pawl_rc pg_said(struct db *db, const struct job *job, struct arena *a, struct said *out,
                     bool *yes, struct pawl_error *e) PAWL_MUST_USE;

/* pg_pipe.c: statements sent, and waited for together */
enum pawl_rc pg_pipe_open(struct pg *pg, struct pawl_error *e) PAWL_MUST_USE;
/* What PQsend... said of a statement of this kind, about so long. */
enum pawl_rc pg_pipe_sent(struct pg *pg, int kind, int sent, size_t bytes,
                          struct pawl_error *e) PAWL_MUST_USE;
/* By its name, or "": its text, which the server reads anew. */
enum pawl_rc pg_pipe_send(struct pg *pg, int kind, const char *name, const char *text, int n,
                          const char *const *v, const int *len, const int *fmt,
                          struct pawl_error *e) PAWL_MUST_USE;
/* Wait for all of it. *last: the answer to the last statement, if that is wanted. */
enum pawl_rc pg_pipe_end(struct pg *pg, PGresult **last, struct pawl_error *e) PAWL_MUST_USE;
enum pawl_rc pg_ahead(struct db *db, struct query *q, struct pawl_error *e) PAWL_MUST_USE;
/* What was asked ahead with this binding; NULL: nothing, or *rc. */
PGresult *pg_ahead_take(struct pg *pg, const struct pg_query *q, enum pawl_rc *rc,
                        struct pawl_error *e);
void pg_ahead_clear(struct pg *pg, bool for_good);

/* pg_tx.c */
int64_t pg_commits(void);                   /* commits of this process that wrote, for tests */
/* A BEGIN that is due. */
enum pawl_rc pg_tx_start(struct pg *pg, struct pawl_error *e) PAWL_MUST_USE;
enum pawl_rc pg_is_standby(struct pg *pg, struct pawl_error *e) PAWL_MUST_USE; /* leaves it */
/* Plans for our own statements, or as the session has them for a user's. */
enum pawl_rc pg_tune(struct pg *pg, bool ours, struct pawl_error *e) PAWL_MUST_USE;
enum pawl_rc pg_check_due(struct db *db, struct pawl_error *e) PAWL_MUST_USE;
enum pawl_rc pg_begin(struct db *db, struct pawl_error *e) PAWL_MUST_USE;
enum pawl_rc pg_commit(struct db *db, struct pawl_error *e) PAWL_MUST_USE;
void pg_rollback(struct db *db);
extern const struct db_engine pg_engine;    /* pg_engine.c */

/* pg_doctor.c */
enum pawl_rc pg_doctor(struct doctor *d, struct pawl_error *e) PAWL_MUST_USE;

/* pg_migrate.c */
enum pawl_rc pg_migrate(struct pg *pg, bool *created, struct pawl_error *e) PAWL_MUST_USE;
enum pawl_rc pg_version_check(struct pg *pg, struct pawl_error *e) PAWL_MUST_USE;

#define PG_VERB enum pawl_rc PAWL_MUST_USE
/* pg_bulk.c: many new requests with a few statements, in the open transaction. *done false: not all
 * of them are new, and nothing was written. */
PG_VERB pg_bulk(struct pg *pg, const struct pawl_request *req, size_t n, int64_t now_us,
                struct db_memo *memo, struct pawl_enqueued *out, size_t *bad_i, bool *done,
                struct pawl_error *e);
/* pg_enqueue.c */
PG_VERB pg_enqueue(struct store *, const struct pawl_request *, size_t, struct pawl_enqueued *,
                   size_t *, struct pawl_error *);
/* pg_worker.c: who takes part, as the server knows it */
PG_VERB pg_worker_join(struct store *, char *, int *, struct pawl_error *);
PG_VERB pg_worker_leave(struct store *, struct pawl_error *);
bool pg_worker_beat(struct store *st);
PG_VERB pg_crew_join(struct store *, char *, int *, struct pawl_error *);
void pg_crew_beat(struct store *st);
void pg_crew_leave(struct store *st, const char *id);
enum side_life pg_life(struct db *db, const char *id);
enum pawl_rc pg_still_gone(struct db *db, const char *id, bool proven, bool *gone,
                           struct pawl_error *e);
void pg_clock_init(struct pg *pg);
enum pawl_rc pg_clock_again(struct pg *pg, struct pawl_error *e) PAWL_MUST_USE; /* once a minute */

/* pg_move.c, pg_load.c: a store that moves (verb/mover.h) */
struct db_table;
struct db_load;
struct db_value;
extern const struct db_mover pg_mover;
enum pawl_rc pg_load(struct db *db, const struct db_table *t, struct db_load **out,
                     struct pawl_error *e);
enum pawl_rc pg_load_row(struct db_load *load, const struct db_value *v, struct pawl_error *e);
enum pawl_rc pg_load_end(struct db_load *load, int64_t *n, struct pawl_error *e);
void pg_load_drop(struct db_load *load);

/* pg_mark.c: the last words of a batch, and signs of life, for other hosts */
void pg_mark(struct db *db, uint64_t nonce, bool alone, const struct job *jobs, size_t n);
enum pawl_rc pg_marked(struct db *db, const char *id, struct side_blame *b, bool *found,
                       struct pawl_error *e) PAWL_MUST_USE;
void pg_mark_close(struct pg *pg);
/* In a wait for the server, which took so long until now: our sign of life, where a third of the
 * lease has passed without one; how long to the next one. */
int64_t pg_still_here(struct pg *pg, int64_t waited_us);

/* pg_wake.c: telling other hosts, and being told */
void pg_wake(struct db *db);
void pg_tell(struct pg *pg);                /* at most once in 5 ms (pg_tell.c) */
bool pg_changed(struct store *st);
int pg_wake_fd(struct store *st);
void pg_wake_clear(struct store *st);
void pg_listen(struct pg *pg);              /* again, on a new connection */
void pg_wake_close(struct pg *pg);

/* pg_stmt.c: statements of users' handlers */
void pg_deadline(struct store *st, int64_t mono_us, const volatile int *stop);
PG_VERB pg_stmt_prepare(struct store *, const char *, struct store_stmt **, struct pawl_error *);
PG_VERB pg_stmt_run(struct store *, struct store_stmt *, const struct sql_value *, size_t,
                    struct buf *, size_t, int64_t *, struct pawl_error *);
PG_VERB pg_stmt_query(struct store *, struct store_stmt *, const struct sql_value *, size_t,
                      store_row_fn *, void *, struct pawl_error *);
bool pg_stmt_has(struct store *st, const struct store_stmt *s, const char *name);
void pg_stmt_forget(struct pg *pg);         /* the connection is gone: prepare again */

#endif
