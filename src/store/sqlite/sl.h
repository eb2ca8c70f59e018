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
#include "store/verb/db.h"

/* Defined by the bundled SQLite's own object (tool/thirdparty), and by nothing else: a library that
 * meets its SQLite in the program that links it cannot claim one. */
extern const char pawl_sqlite3_bundled __attribute__((weak));
#define PAWL_SQLITE_BUNDLED (&pawl_sqlite3_bundled != NULL)

struct store_stmt {
    struct stmt_head head;     /* first */
    struct sqlite *sl;
    sqlite3_stmt *st;          /* NULL after a reopen: prepared again at the next run */
    char *text;
    bool counts;               /* whatever it writes is counted in rows (not so: CREATE TABLE) */
    struct sql_value *col; int col_n; /* of a row that is handed out; kept: its taker may jump */
    struct store_stmt *next;
};

/* A statement as the verbs see it. st: of sl->q, or its own (db_prepare). */
struct sl_query { struct query head; struct sqlite *sl; sqlite3_stmt *st; };

enum { SL_FILES = 16 };
struct sqlite {
    struct db d;               /* first: a struct store * is a struct sqlite * */
    sqlite3 *db;
    char *path;
    char **on_connect; size_t on_connect_n;
    bool accept_wal_risk;
    bool closed_ok;            /* for who moves it: open it although it is closed */
    pid_t owner_pid;           /* the process that opened it */
    sqlite3_stmt *q[Q_N];      /* prepared on first use */
    struct sl_query named[Q_N]; /* the same, as the verbs see them */
    struct store_stmt *user;   /* statements of handlers, prepared again after a reopen */
    bool committing;
    bool guarded;              /* a user's statement is being prepared or run: authorizer active */
    const char *refused;       /* what the authorizer refused last, or NULL */
    int wal_frames;            /* after the last commit, by the WAL hook */
    int ckpt_at;               /* checkpoint when the log has this many frames */
    int written_before;        /* page writes counted before this transaction */
    int64_t wait_us;           /* patience with other writers */
    int64_t busy_until_us;     /* monotonic: how long to wait for the write lock */
    int64_t deadline_us; const volatile int *stop; /* for users' statements */
    bool timed_out;
    int64_t data_version;
    int stepping;              /* users' statements being stepped, one inside another's row */
    bool raw;                  /* a handler of the linking program has our handle */
    const char *raw_refused;   /* what it was refused first */
    int64_t warned_wal_us;
    uint64_t file_dev, file_ino; /* of the database, as opened */
    bool noted;                  /* in sl_fork.c */
    bool watch;                  /* remember the connection's descriptors (sl_files.c) */
    struct sl_file { int fd; dev_t dev; ino_t ino; } files[SL_FILES];
    size_t files_n;
};

#define SL_WAIT_US 10000000 /* for other writers: a foreign one may hold the lock for 5 s */

static inline struct sqlite *sl_of(struct store *st) { return (struct sqlite *)(void *)st; }
static inline struct sqlite *sl_from(struct db *db) { return (struct sqlite *)(void *)db; }
extern const struct db_engine sl_engine; /* sl_engine.c */
extern const struct db_mover sl_mover;   /* sl_move.c */
enum pawl_rc sl_engine_check(struct db *db, pawl_finding_fn *fn, void *ctx, int *checked,
                             struct pawl_error *e) PAWL_MUST_USE;

/* sl_doctor.c */
enum pawl_rc sl_doctor(struct doctor *d, struct pawl_error *e) PAWL_MUST_USE;

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

/* sl_gather.c: appends to the log go out together. Once per connection, in WAL mode. */
enum pawl_rc sl_gather(struct sqlite *sl, struct pawl_error *e) PAWL_MUST_USE;

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
enum pawl_rc sl_q(struct sqlite *sl, enum q_id id, sqlite3_stmt **out,
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

/* SQLite's own verbs; the others are the common ones (verb/db.h). Table: sl_ops.c. */
#define SL_VERB enum pawl_rc PAWL_MUST_USE
void sl_deadline(struct store *st, int64_t mono_us, const volatile int *stop);
SL_VERB sl_enqueue(struct store *, const struct pawl_request *, size_t, struct pawl_enqueued *,
                   size_t *, struct pawl_error *);
SL_VERB sl_stmt_query(struct store *, struct store_stmt *, const struct sql_value *, size_t,
                      store_row_fn *, void *, struct pawl_error *);
void sl_stmt_free(struct store_stmt **s);
bool sl_stmt_has(struct store *st, const struct store_stmt *s, const char *name);
void *sl_raw(struct store *st, bool on);
bool sl_call_over(struct store *st);
const char *sl_raw_refused(struct store *st);
SL_VERB sl_stmt_prepare(struct store *, const char *, struct store_stmt **, struct pawl_error *);
SL_VERB sl_stmt_run(struct store *, struct store_stmt *, const struct sql_value *, size_t,
                    struct buf *, size_t, int64_t *, struct pawl_error *);
bool sl_sound(struct store *st);
SL_VERB sl_maintain(struct store *, struct pawl_error *);
enum pawl_rc sl_migrate(struct sqlite *sl, bool create, bool *created,
                        struct pawl_error *e) PAWL_MUST_USE;
enum pawl_rc sl_version_check(struct sqlite *sl, struct pawl_error *e) PAWL_MUST_USE;

#endif
