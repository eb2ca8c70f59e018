// SPDX-License-Identifier: Apache-2.0
/* fx.h - the fixture of the store suite: a fresh store of each kind in a directory of its own, a
 * clock that the test sets, short verbs for enqueue, claim, settle, batch, and the invariants.
 *
 * A test gets its store with fx_begin(&f, _i) (_i: the kind, Check's loop index) and gives it back
 * with fx_end(&f), which runs store_check: whatever a test did, the invariants hold at its end.
 * Everything here fails the test by itself when a step that must work does not.
 *
 * Processes: a connection never crosses fork(). fx_shut() before forking, fx_open() after; the
 * child opens its own (fx_child does both).
 */
#ifndef TEST_LIB_FX_H
#define TEST_LIB_FX_H

#include <sys/types.h>
#include "engine/engine.h"
#include "lib/ut.h"

#define SEC INT64_C(1000000)
#define DAY (86400 * SEC)
#define FX_TASKS 6
#define FX_TEXT 512

struct fx;

/* What a kind of store must give to the suite besides store.h. A "foreign" statement runs on a
 * connection of its own, as a user's program would. */
struct fx_kind {
    const char *name;
    /* Fills f->url. with_store: a new store may be there already, if it costs less so. */
    void (*place)(struct fx *f, bool with_store);
    int (*run)(struct fx *f, const char *sql, char *why, size_t why_n); /* 0: done */
    bool (*ask)(struct fx *f, const char *sql, char *out, size_t n);    /* first value as text */
    void (*shut)(struct fx *f);                          /* closes the foreign connection */
    int64_t (*flushes)(void);                            /* durable commits of this process */
    int64_t (*work)(struct store *st);                   /* steps of st since the last call */
    void (*remove)(struct fx *f);                        /* what lies outside f->dir; NULL: none */
    /* The text that made a table, view or trigger of Pawl's; "" if there is none. */
    void (*made_by)(struct fx *f, const char *name, char *out, size_t n);
    bool one_writer;                                     /* who writes holds everybody else up */
};
extern const struct fx_kind fx_sqlite, fx_postgres;
extern const struct fx_kind *const fx_kinds[];
int fx_kinds_n(void);           /* without a server (PAWL_TEST_PG): SQLite alone */

/* wall stands still until the test moves it; boot and monotonic time are the machine's.
 * mono_step_us: so much does each look at the monotonic time move it: all seems to take long. */
struct fx_clock { struct env env; int64_t wall_us, boot_add_us, mono_add_us, mono_step_us; };

/* What a handler of the fixture does after its ledger row: NULL = succeed. */
typedef void fx_run_fn(struct fx *f, struct store *st, const struct job *job, struct finding *found,
                       bool *pinned);

struct fx {
    const struct fx_kind *kind;
    char dir[256], url[320];
    bool placed;                 /* its store was there already */
    struct fx_clock clock;
    struct store *st;
    char worker[24];
    struct lane_task tasks[FX_TASKS];
    struct lane lane;
    struct arena arena;          /* what claims return lives here until fx_end */
    struct effect *effect;
    struct store_stmt *ledger;
    fx_run_fn *on_run;
    int64_t runs;                /* handler calls */
    struct claim_info info;      /* of the last claim */
    struct pawl_error e;         /* of the last verb */
    void *foreign;               /* the kind's */
    void *ctx;                   /* the test's own, for on_run */
};

/* Where a store may lie and a connection to look by: for who opens it through pawl.h. */
void fx_place(struct fx *f, int kind, bool with_store);
void fx_leave(struct fx *f);

void fx_begin(struct fx *f, int kind);
void fx_end(struct fx *f);                  /* invariants, then everything closed and removed */
void fx_open(struct fx *f);                 /* a handle of this process, if there is none */
void fx_shut(struct fx *f);                 /* every handle of this process closed */
struct store *fx_second(struct fx *f);      /* another handle; close with store_close */
void fx_check(struct fx *f);                /* store_check finds nothing */
int fx_findings(struct fx *f, const char *invariant); /* how many of this name; NULL: all */
void fx_add(struct fx *f, int64_t us);      /* moves the store's clock */
void fx_join(struct fx *f);                 /* become a worker */

/* Declare a task with default policy, or after `p` was changed; index into f->tasks. */
size_t fx_task(struct fx *f, const char *name);
size_t fx_task_as(struct fx *f, const char *name, const struct policy *p);
struct policy fx_policy(void);              /* defaults, to change */

/* --- producers --- */
struct pawl_request fx_req(const char *task, const char *key, const char *args);
int64_t fx_put(struct fx *f, const char *task, const char *args);     /* keyless, due now */
int64_t fx_put_req(struct fx *f, const struct pawl_request *r);       /* must be created */
struct pawl_enqueued fx_dup(struct fx *f, const struct pawl_request *r); /* must be absorbed */
enum pawl_rc fx_put_rc(struct fx *f, const struct pawl_request *r);

/* --- leased mode --- */
size_t fx_claim(struct fx *f, struct job *jobs, size_t want, bool alone);
struct job fx_claim_one(struct fx *f);      /* exactly one is due */
struct finding fx_found(enum outcome o, const char *error);
struct settle fx_decided(struct fx *f, const struct job *job, const struct finding *found);
enum pawl_rc fx_turn(struct fx *f, struct settle *s, size_t n); /* settle only */
enum settle_result fx_settle(struct fx *f, const struct job *job, enum outcome o);

struct reap_report fx_reap(struct fx *f, struct store *st); /* with the engine's rules */

/* --- effect mode: the handler writes (job, token) into the ledger table fx, then on_run --- */
enum pawl_rc fx_batch(struct fx *f, struct effect_report *out);
void fx_batch_size(struct fx *f, size_t batch_max);
int64_t fx_effects(struct fx *f, int64_t id); /* ledger rows of a job */
/* Run what is due or becomes due, in effect mode, until nothing of the lane waits. */
void fx_drain(struct fx *f);

/* --- looking --- */
struct fx_job {
    struct pawl_job j;           /* numbers only: the pointers are NULL */
    char task[80], queue[80], source[260], key[260], entity[260], args[FX_TEXT], worker[32];
    char outcome[32], dead_class[32], reason[FX_TEXT], error[FX_TEXT], result[FX_TEXT];
    bool has_result;
};
struct fx_job fx_job(struct fx *f, int64_t id);      /* state PAWL_STATE_N: there is none */
enum pawl_state fx_state(struct fx *f, int64_t id);
struct fx_try { int64_t n; char outcome[32], error[FX_TEXT], worker[32]; int exit_code, signal; };
size_t fx_attempts(struct fx *f, int64_t id, struct fx_try *out, size_t room);
int64_t fx_stat(struct fx *f, const char *name);
void fx_counters(struct fx *f, int64_t id, int64_t runs, int64_t failures, int64_t lost,
                 int64_t releases, int64_t snoozes);

/* --- foreign SQL --- */
void fx_sql(struct fx *f, const char *sql);
void fx_sql_of(struct fx *f, const char *sqlite, const char *postgres); /* where they differ */
void fx_sqlf(struct fx *f, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
bool fx_sql_fails(struct fx *f, const char *sql, const char *part); /* its message contains part */
int64_t fx_num(struct fx *f, const char *sql);       /* NULL and no row: INT64_MIN */
const char *fx_text(struct fx *f, const char *sql, char *buf, size_t n); /* "" */
int64_t fx_numf(struct fx *f, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* --- files and processes --- */
void fx_remove(const char *dir);                     /* with all that is in it */
char *fx_mkdir(struct fx *f);                        /* f->dir again; NULL: it could not be made */
void *fx_shared(size_t n);                            /* zeroed memory that children share */
/* Run fn in a child with its own handles; the caller must have shut its own. */
pid_t fx_child(struct fx *f, void (*fn)(struct fx *f, void *ctx), void *ctx);
pid_t fx_child_bare(struct fx *f, void (*fn)(struct fx *f, void *ctx), void *ctx); /* opens none */
/* The child begins when a byte can be read from `go`. */
pid_t fx_child_after(struct fx *f, void (*fn)(struct fx *f, void *ctx), void *ctx, int go);
bool fx_readable(int fd, int wait_ms);
int fx_wait(pid_t pid);                              /* wait status; fails after 30 s */
void fx_wait_ok(pid_t pid);                          /* must have exited with 0 */
void fx_arm(const char *point, const char *action);  /* PAWL_FAILPOINT of this process */
void fx_disarm(void);

#define fx_ok(rc, f) ck_assert_msg((rc) == PAWL_OK, "%s", (f)->e.msg)
#define fx_is(rc, want, f)                                                                        \
    do {                                                                                          \
        const enum pawl_rc fx_got_ = (rc);                                                        \
        ck_assert_msg(fx_got_ == (want), "got %s, want %s: %s", pawl_rc_name(fx_got_),            \
                      pawl_rc_name(want), fx_got_ != PAWL_OK ? (f)->e.msg : "");                  \
    } while (0)

/* One suite: every test once per kind of store. */
#define FX_ADD(tc, test) tcase_add_loop_test(tc, test, 0, fx_kinds_n())

#endif
