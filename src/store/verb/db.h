// SPDX-License-Identifier: Apache-2.0
/* db.h - what the verbs of a store are written on: a database of either engine, as a few calls.
 *
 * A verb (claim.c, leased.c, effect.c ...) is written once. It speaks in statements that have a
 * name (sql.h), inside transactions that the engine begins and ends in its own way.
 *
 * Keeps: an engine's transaction sees what the verbs need: nobody changes a row between the
 *        statement that found it and the one that takes it, or the latter takes none.
 */
#ifndef VERB_DB_H
#define VERB_DB_H

#include <sys/types.h>
#include "base/log.h"
#include "store/ops.h"
#include "store/side/side.h"
#include "store/verb/sql.h"

struct db;
struct db_mover;
struct doctor;
struct query;

/* One statement. Values are bound by number from 1, columns read by number from 0; text and blobs
 * are borrowed until the next step or reset. */
struct query_ops {
    void (*bind_int)(struct query *, int, int64_t);
    void (*bind_text)(struct query *, int, const char *, size_t); /* NULL: null */
    void (*bind_blob)(struct query *, int, const void *, size_t);
    void (*copy)(struct query *, int, struct query *, int);   /* a column of another one's row */
    bool (*is_null)(struct query *, int);
    int64_t (*i64)(struct query *, int);                      /* 0 for null */
    const char *(*str)(struct query *, int);                  /* NULL for null, or out of memory */
    const void *(*blob)(struct query *, int);
    int (*bytes)(struct query *, int);                        /* of the text or blob */
    void (*reset)(struct query *);
    void (*free)(struct query *);                             /* of db_prepare */
};
struct query { const struct query_ops *ops; };

/* A success that is not written yet. */
struct db_done {
    const struct job *job;
    int64_t task_id, started_at_us, ended_at_us;
    const char *result; size_t result_bytes;
    bool stale;
};

struct db_engine {
    /* A claim locks the rows that it reads: DUE takes how many as ?7, and its rows go on with the
     * columns of JOB_READ, and one that says where the row is (place: as a number). */
    bool locks;
    int64_t (*place)(struct query *, int);
    /* Connect, if that is not so. */
    enum pawl_rc (*ready)(struct db *, struct pawl_error *);
    /* A transaction that writes. commit: UNSURE, and the connection is a new one; every other
     * error: rolled back. leave: others may have their turn. */
    enum pawl_rc (*begin)(struct db *, struct pawl_error *);
    enum pawl_rc (*commit)(struct db *, struct pawl_error *);
    void (*rollback)(struct db *);                            /* no-op when none is open */
    void (*leave)(struct db *);
    void (*wake)(struct db *);          /* jobs may be due: tell idle workers */
    bool (*alive)(struct db *);                               /* it is open still */
    /* One that reads, and sees one state. */
    enum pawl_rc (*snapshot)(struct db *, struct pawl_error *);
    void (*snapshot_end)(struct db *);
    /* The statement of the table, reset and with cleared bindings. */
    enum pawl_rc (*query)(struct db *, enum q_id, struct query **, struct pawl_error *);
    enum pawl_rc (*prepare)(struct db *, const char *, struct query **, struct pawl_error *);
    enum pawl_rc (*run)(struct db *, struct query *, struct pawl_error *);
    enum pawl_rc (*row)(struct db *, struct query *, bool *, struct pawl_error *);
    /* NULL, or, where a round trip is dear: as run, but nobody waits, and a failure is told by
     * what is waited for next. ahead: somebody is going to ask for the rows of this binding. */
    enum pawl_rc (*run_later)(struct db *, struct query *, struct pawl_error *);
    enum pawl_rc (*ahead)(struct db *, struct query *, struct pawl_error *);
    int64_t (*changes)(struct db *);     /* rows that the last run wrote */
    int64_t (*insert_id)(struct db *);   /* id of the row that it inserted */
    int64_t (*wrote)(struct db *);       /* rows written on this connection */
    bool (*no_savepoint)(struct db *);   /* the last error: there is no such savepoint */
    bool (*spoiled)(struct db *);        /* nothing works in it but going back to a savepoint */
    /* Constraints that are put off to the COMMIT are looked at now; told by what is waited for
     * next, as SQL. NULL: a COMMIT that fails keeps its locks. */
    enum pawl_rc (*check_due)(struct db *, struct pawl_error *);
    bool (*guard)(struct db *, bool on); /* watch what runs as a user's statement; was it? */
    /* NULL, or: the same for many rows with one statement, where statements are dear. It fails with
     * FENCED, perhaps only at what is waited for next, if one of the rows was not there to take.
     * done_many: take the ready (leased: running) rows of jobs that were done, put their done rows.
     * lease_many: take the ready rows of a claim, put their running rows. */
    enum pawl_rc (*done_many)(struct db *, const struct db_done *, size_t n, bool leased,
                              struct pawl_error *);
    enum pawl_rc (*lease_many)(struct db *, const struct lane *, const struct job *, size_t n,
                               struct pawl_error *);
    enum pawl_rc (*check)(struct db *, pawl_finding_fn *, void *, int *, struct pawl_error *);
    enum pawl_rc (*doctor)(struct doctor *, struct pawl_error *); /* verb/doctor.h */
    /* A worker that has no file here: MISSING when it has to be taken for gone, UNHEARD when it is
     * known that it has ended its beats, ALIVE else. */
    enum side_life (*life)(struct db *, const char *id);
    /* NULL, or: write where other hosts can read it who is in the batch whose first job is about to
     * run (n 0: nobody any more); and, in the transaction that recovers a worker, read it. */
    void (*mark)(struct db *, uint64_t nonce, bool alone, const struct job *, size_t n);
    enum pawl_rc (*marked)(struct db *, const char *id, struct side_blame *, bool *found,
                           struct pawl_error *);
    /* In the transaction that recovers it: is it gone still? It is forgotten then. proven: by
     * its side file, whatever else was written down. */
    enum pawl_rc (*still_gone)(struct db *, const char *id, bool proven, bool *gone,
                               struct pawl_error *);
    const struct db_mover *mover; /* mover.h */
    /* Both NULL where no handler can say by SQL how its run ended. The fence of a settle that would
     * not pass over that; and what was said, its text in the arena. */
    enum pawl_rc (*fence_unsaid)(struct db *, const struct job *, bool *ok, struct pawl_error *);
    enum pawl_rc (*said)(struct db *, const struct job *, struct arena *, struct said *, bool *yes,
                         struct pawl_error *);
};

/* What choosing remembers (claim_low.c). A low-water mark: of this line nothing is left up to this
 * time and id, as it was seen. */
enum { DB_LOOKS = 4, DB_LOWS = 64 };
struct db_low { int64_t task_id, queue_id, rank, run_at_us, id; };
struct db_look {
    int64_t task_id, queue_id, rank; /* where the last one found all of its jobs, else task_id 0 */
    int64_t until_us;          /* monotonic: so long it may begin at the marks */
    int64_t full_at_us;        /* monotonic: the last one at everything */
    int64_t slack_us;          /* how much earlier than now an empty line's mark is */
    int64_t taken;             /* jobs, since then */
    int64_t took_us[DB_LOOKS]; /* looking at all there is, the last times */
    int64_t cheapest_us;       /* of all looks */
    unsigned looks;
    bool dear;
    bool took;                 /* jobs, in the transaction that is open */
    struct db_low low[DB_LOWS]; size_t low_n, low_next;
};

struct db {
    struct store base;         /* first: a struct store * is a struct db * */
    const struct db_engine *engine;
    const struct env *env;
    int64_t lease_us;
    struct side side;
    bool in_tx;
    int64_t begun_us; /* monotonic: since when the transaction is open */
    struct db_look look;
    bool one_by_one;           /* a fence did not hold: find out which */
    int64_t commit_us, job_ns; /* what an effect batch's commit takes, and each job; learnt */
    /* the effect transaction */
    struct job *batch; size_t batch_n, hand; bool effect_open;
    bool leased_batch;         /* its jobs are leased to us: the fence is the running row */
    bool marked;               /* its jobs are written down for other hosts */
    bool savepoint;            /* a job is in hand, and has a savepoint unless the batch is plain */
    bool plain, plain_saved;   /* one savepoint for the batch, since things went well; it is set */
    int64_t smooth, smooth_min; /* jobs in a row that needed none; how many make a plain batch */
    int64_t wrote_before;      /* rows written on this connection before the job in hand */
    bool wrote_unseen;         /* the job in hand wrote what is not counted in rows */
    uint8_t batch_lease[16];
    struct db_done *later; size_t later_n; /* successes of a plain batch, written at its commit */
    int64_t judge_at_us;       /* boot time before which nobody is judged by his beat */
    int64_t rows_at_us;        /* monotonic: before that, what runs is not read for its workers */
    struct log_gate reap_gate;
};

static inline struct db *db_of(struct store *st) { return (struct db *)(void *)st; }

/* --- statements --- */
extern const char *const q_text_of[Q_N];                       /* the table of sql.h */
static inline void q_int(struct query *q, int i, int64_t v) { q->ops->bind_int(q, i, v); }
static inline void q_text_n(struct query *q, int i, const char *s, size_t n)
{
    q->ops->bind_text(q, i, s, n);
}
void q_text(struct query *q, int i, const char *s);            /* NULL -> null; borrowed */
static inline void q_blob(struct query *q, int i, const void *p, size_t n)
{
    q->ops->bind_blob(q, i, p, n);
}
static inline void q_copy(struct query *q, int i, struct query *from, int col)
{
    q->ops->copy(q, i, from, col);
}
static inline bool q_is_null(struct query *q, int col) { return q->ops->is_null(q, col); }
static inline int64_t q_i64(struct query *q, int col) { return q->ops->i64(q, col); }
static inline int q_i32(struct query *q, int col) { return (int)q->ops->i64(q, col); }
static inline const char *q_str(struct query *q, int col) { return q->ops->str(q, col); }
static inline const void *q_blob_of(struct query *q, int col) { return q->ops->blob(q, col); }
static inline int q_bytes(struct query *q, int col) { return q->ops->bytes(q, col); }
static inline void q_reset(struct query *q) { q->ops->reset(q); }
void q_free(struct query *q);                                  /* NULL: nothing */
char *q_dup(struct arena *a, struct query *q, int col);        /* column text or NULL */

static inline enum pawl_rc db_ready(struct db *db, struct pawl_error *e)
{
    return db->engine->ready(db, e);
}
static inline enum pawl_rc PAWL_MUST_USE db_begin(struct db *db, struct pawl_error *e)
{
    db->look.took = false;
    return db->engine->begin(db, e);
}
static inline enum pawl_rc PAWL_MUST_USE db_commit(struct db *db, struct pawl_error *e)
{
    return db->engine->commit(db, e);
}
static inline void db_rollback(struct db *db)
{
    db->engine->rollback(db);
}
static inline void db_leave(struct db *db) { db->engine->leave(db); }
static inline void db_wake(struct db *db) { db->engine->wake(db); }
static inline bool db_alive(struct db *db) { return db->engine->alive(db); }
static inline enum pawl_rc PAWL_MUST_USE db_snapshot(struct db *db, struct pawl_error *e)
{
    return db->engine->snapshot(db, e);
}
static inline void db_snapshot_end(struct db *db) { db->engine->snapshot_end(db); }
static inline enum pawl_rc PAWL_MUST_USE db_q(struct db *db, enum q_id id, struct query **out,
                                              struct pawl_error *e)
{
    return db->engine->query(db, id, out, e);
}
/* Any other statement; freed by q_free. *out NULL on an error. */
static inline enum pawl_rc PAWL_MUST_USE db_prepare(struct db *db, const char *sql,
                                                    struct query **out, struct pawl_error *e)
{
    return db->engine->prepare(db, sql, out, e);
}
/* Step a statement that returns no rows, reset it. */
static inline enum pawl_rc PAWL_MUST_USE db_run(struct db *db, struct query *q,
                                                struct pawl_error *e)
{
    return db->engine->run(db, q, e);
}
/* The same, for what cannot fail but with the transaction: nobody needs to wait for it. */
static inline enum pawl_rc PAWL_MUST_USE db_run_later(struct db *db, struct query *q,
                                                      struct pawl_error *e)
{
    return db->engine->run_later != NULL ? db->engine->run_later(db, q, e)
                                         : db->engine->run(db, q, e);
}
/* Step for a row: OK with *row true/false; reset when false or on error. */
static inline enum pawl_rc PAWL_MUST_USE db_row(struct db *db, struct query *q, bool *row,
                                                struct pawl_error *e)
{
    return db->engine->row(db, q, row, e);
}
static inline int64_t db_changes(struct db *db) { return db->engine->changes(db); }
static inline int64_t db_insert_id(struct db *db) { return db->engine->insert_id(db); }
static inline int64_t db_wrote(struct db *db) { return db->engine->wrote(db); }

/* What the names of a request stand for. Valid within the transaction that looked them up. */
struct db_names {
    char task[LIMIT_NAME_BYTES + 1], queue[LIMIT_NAME_BYTES + 1]; /* queue "": the task's own */
    int64_t task_id, queue_id, task_queue_id, priority;
    bool declared;
    char near[72];                 /* not declared: the nearest task that is */
};
/* The names met in this call: a call mostly holds the same few. */
enum { DB_NAMES_N = 16 };
struct db_memo {
    struct db_names n[DB_NAMES_N];
    size_t used, next;
    bool known_only;               /* names that are not there are not made: NOTFOUND */
};
static inline void db_memo_init(struct db_memo *m, bool known_only)
{
    m->used = m->next = 0;
    m->known_only = known_only;
}
/* enqueue.c: what its names stand for (made where they are new), kept in m */
enum pawl_rc db_resolve_names(struct db *db, const struct pawl_request *r, struct db_memo *m,
                              const struct db_names **out, struct pawl_error *e) PAWL_MUST_USE;
/* Only of a new job: a request that was accepted in time is a duplicate for ever. BADDATA */
enum pawl_rc db_can_start(const struct pawl_request *r, int64_t now_us,
                          struct pawl_error *e) PAWL_MUST_USE;
/* One request, in the open transaction. NOTFOUND, KEYCLASH, BADDATA: nothing was
 * written; any other error: perhaps something was. */
enum pawl_rc db_enqueue_one(struct db *db, const struct pawl_request *r, struct db_memo *m,
                            int64_t now_us, struct pawl_enqueued *out, int64_t *dups,
                            struct pawl_error *e) PAWL_MUST_USE;

/* After UNSURE: did the first new job of these land? An id of a transaction that was rolled back is
 * given again, so the content is compared. OK: it did | IO: it did not | UNSURE */
enum pawl_rc db_landed(struct db *db, const struct pawl_request *req, size_t n,
                       const struct pawl_enqueued *out, int64_t now_us,
                       struct pawl_error *e) PAWL_MUST_USE;
void db_count_clash(struct db *db);
void db_forget(struct pawl_enqueued *out, size_t n); /* results freed, all zero again */

/* move.c: the moves every verb is made of; all inside an open transaction */
enum pawl_rc db_task_id(struct db *db, const char *name, bool create, int64_t *id,
                        int64_t *queue_id, int64_t *priority, bool *declared,
                            struct pawl_error *e) PAWL_MUST_USE;
enum pawl_rc db_queue_id(struct db *db, const char *name, bool create, int64_t *id,
                         struct pawl_error *e) PAWL_MUST_USE;
enum pawl_rc db_count(struct db *db, const char *counter, int64_t by,
                      struct pawl_error *e) PAWL_MUST_USE;
/* Put a decided job where it belongs (ready, dead, dropped), with its attempt row. */
enum pawl_rc db_place(struct db *db, const struct settle *s,
                      struct pawl_error *e) PAWL_MUST_USE;
enum pawl_rc db_put_done(struct db *db, const struct job *job, const struct finding *f,
                         bool stale, struct pawl_error *e) PAWL_MUST_USE;
/* Advance the version guard for an effect; *ok false: somebody newer was first. */
enum pawl_rc db_advance(struct db *db, int64_t task_id, const struct job *job, bool *ok,
                        struct pawl_error *e) PAWL_MUST_USE;
/* Delete the ready row of job as it was read (id and runs restated): *ok = exactly one row. */
enum pawl_rc db_take_ready(struct db *db, int64_t task_id, const struct job *job, bool *ok,
                           struct pawl_error *e) PAWL_MUST_USE;
enum pawl_rc db_put_ready(struct db *db, int64_t task_id, const struct job *job,
                          const struct decision *d, struct pawl_error *e) PAWL_MUST_USE;

/* leased.c: DELETE under the lease, *ok = exactly one row; a claim; back as it was */
enum pawl_rc db_fence(struct db *db, const struct job *job, bool *ok,
                      struct pawl_error *e) PAWL_MUST_USE;
enum pawl_rc db_lease(struct db *db, const struct lane *lane, size_t want, bool alone,
                      struct arena *arena, struct job *jobs, size_t *n, struct claim_info *info,
                      struct pawl_error *e) PAWL_MUST_USE;
enum pawl_rc db_unclaim(struct db *db, const struct job *job, int64_t task_id,
                        struct pawl_error *e) PAWL_MUST_USE;

/* The running rows of a worker, as jobs, with their task ids (verb/reap.c). dead: it is proven, so
 * that whoever has them locked is waited for. */
enum pawl_rc db_rows_of(struct db *db, const char *worker, bool dead, struct arena *a,
                        struct job **jobs, int64_t **task_ids, size_t *n,
                        struct pawl_error *e) PAWL_MUST_USE;

/* claim.c: choose due jobs in order; reads only */
struct db_task_state { bool known, paused, suspects; };
enum pawl_rc db_task_look(struct db *db, int64_t task_id, struct db_task_state *out,
                          struct pawl_error *e) PAWL_MUST_USE;
/* A row of JOB_READ from column `at` on. NOMEM. */
enum pawl_rc db_job_row(struct query *q, int at, struct job *job, struct arena *a,
                        struct pawl_error *e) PAWL_MUST_USE;
enum pawl_rc db_choose(struct db *db, const struct lane *lane, size_t want, bool alone,
                       struct arena *arena, struct job *jobs, size_t *n, struct claim_info *info,
                       struct pawl_error *e) PAWL_MUST_USE;
int64_t db_lane_task(const struct lane *lane, const struct job *job);

/* worker.c: this process as a worker, by its side file */
enum pawl_rc db_worker_join(struct store *st, char *id_out, int *fd_out,
                            struct pawl_error *e) PAWL_MUST_USE;
enum pawl_rc db_worker_attach(struct store *st, const char *id, int fd,
                              struct pawl_error *e) PAWL_MUST_USE;
bool db_worker_beat(struct store *st);
int64_t db_worker_stamp(struct store *st);
void db_worker_orderly(struct store *st);
enum pawl_rc db_worker_leave(struct store *st, struct pawl_error *e) PAWL_MUST_USE;
int64_t db_in_hand(struct store *st, const char *crew, int64_t *since_us);
int db_wake_fd(struct store *st);
void db_wake_clear(struct store *st);
void db_poke(struct store *st);

/* The verbs, one file per concern; same names and meaning as in store.h (table: sl_ops.c). */
bool db_effect_alive(struct store *st);
void db_effect_rollback(struct store *st);
void db_effect_end(struct store *st);
#define DB_VERB enum pawl_rc PAWL_MUST_USE
DB_VERB db_jobs(struct store *, const struct pawl_filter *, pawl_job_fn *, void *,
                struct pawl_error *);
DB_VERB db_job(struct store *, int64_t, pawl_job_fn *, void *, struct pawl_error *);
DB_VERB db_attempts(struct store *, int64_t, pawl_attempt_fn *, void *, struct pawl_error *);
DB_VERB db_cancel(struct store *, int64_t, enum pawl_state *, struct pawl_error *);
DB_VERB db_run_now(struct store *, int64_t, enum pawl_state *, struct pawl_error *);
DB_VERB db_replay(struct store *, int64_t, const struct pawl_replay *, int64_t *,
                  struct pawl_error *);
DB_VERB db_is_stale(struct store *, int64_t, bool *, struct pawl_error *);
DB_VERB db_discard(struct store *, int64_t, const char *, struct pawl_error *);
DB_VERB db_pause(struct store *, const char *, const char *, bool, struct pawl_error *);
DB_VERB db_queues(struct store *, pawl_queue_fn *, void *, struct pawl_error *);
DB_VERB db_queue_known(struct store *, const char *, bool *, char *, size_t, struct pawl_error *);
DB_VERB db_stats(struct store *, pawl_stat_fn *, void *, struct pawl_error *);
DB_VERB db_check(struct store *, pawl_finding_fn *, void *, int *, struct pawl_error *);
DB_VERB db_doctor(struct store *, int64_t, pawl_advice_fn *, void *, int *, struct pawl_error *);
DB_VERB db_prune(struct store *, const struct pawl_prune_opts *, struct pawl_pruned *,
                 struct pawl_error *);
DB_VERB db_task_declare(struct store *, const char *, const struct policy *, bool, int64_t *,
                        struct buf *, bool *, struct pawl_error *);
DB_VERB db_turn(struct store *, struct settle *, size_t, const struct lane *, size_t, bool,
                struct arena *, struct job *, size_t *, struct claim_info *, struct pawl_error *);
DB_VERB db_resolve(struct store *, struct settle *, size_t, const int64_t *, size_t,
                   struct pawl_error *);
DB_VERB db_held(struct store *, int64_t *, size_t, size_t *, struct pawl_error *);
DB_VERB db_guard(struct store *, const struct lane_task *, const struct job *, enum guard *,
                 struct pawl_error *);
DB_VERB db_effect_begin(struct store *, const struct lane *, size_t, struct arena *, struct job *,
                        size_t *, struct claim_info *, struct pawl_error *);
DB_VERB db_effect_resume(struct store *, const struct lane *, struct job *, size_t,
                         struct pawl_error *);
DB_VERB db_effect_lease(struct store *, const struct lane *, size_t, bool, struct arena *,
                        struct job *, size_t *, struct claim_info *, struct pawl_error *);
DB_VERB db_effect_enqueue(struct store *, const struct pawl_request *, size_t,
                          struct pawl_enqueued *, size_t *, struct pawl_error *);
DB_VERB db_holds(struct store *, const struct job *, bool *, struct pawl_error *);
DB_VERB db_crew_join(struct store *, char *, int *, struct pawl_error *);
DB_VERB db_crew_attach(struct store *, const char *, int, struct pawl_error *);
void db_crew_beat(struct store *st);
void db_crew_leave(struct store *st, const char *id);
DB_VERB db_reap_crew(struct store *, const char *, int, enum outcome, casualty_fn *, void *,
                     struct reap_report *, struct pawl_error *);
void db_blame_list(struct store *st, const struct job *jobs, size_t n);
void db_blame_hand(struct store *st, size_t i);
void db_blame_clear(struct store *st);
DB_VERB db_effect_job(struct store *, size_t, struct pawl_error *);
DB_VERB db_effect_done(struct store *, const struct lane_task *, const struct job *,
                       const struct finding *, struct pawl_error *);
DB_VERB db_effect_undo(struct store *, struct pawl_error *);
DB_VERB db_effect_commit(struct store *, struct pawl_error *);
DB_VERB db_effect_verdicts(struct store *, struct settle *, size_t, struct pawl_error *);
DB_VERB db_scratch_begin(struct store *, struct pawl_error *);
DB_VERB db_scratch_end(struct store *, bool, struct pawl_error *);
DB_VERB db_reap(struct store *, casualty_fn *, void *, struct reap_report *, struct pawl_error *);
DB_VERB db_reap_runner(struct store *, int, enum outcome, casualty_fn *, void *,
                       struct reap_report *, struct pawl_error *);
DB_VERB db_pending(struct store *, const struct lane *, struct pending *, struct pawl_error *);

#endif
