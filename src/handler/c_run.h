// SPDX-License-Identifier: Apache-2.0
/* c_run.h - one run of a C handler and its host, shared between c.c and c_*.c only. */
#ifndef HANDLER_C_RUN_H
#define HANDLER_C_RUN_H

#include <locale.h>

#include "core/sqlscan.h"
#include "handler/c.h"
#include "handler/job_key.h"

enum { C_STATEMENTS = 256, C_BUCKETS = 512 };
/* SQLSTATE 25P02 to base 36: an earlier statement has spoiled the transaction. */
enum { C_FAILED_BEFORE = ((((2 * 36) + 5) * 36 + 25) * 36 + 0) * 36 + 2 };

/* A statement kept prepared. */
struct c_stmt {
    char *text;
    size_t text_n;
    uint64_t hash;
    struct store_stmt *stmt;
    struct arena arena;         /* of scan */
    struct sql_scan scan;       /* its parameters, by name */
    struct c_stmt *next;        /* in its bucket */
    uint64_t used;              /* the host's count at its last use */
    bool busy;                  /* a row callback of it is running */
};

struct c_host {
    struct store *st;
    struct c_host_opts o;
    locale_t c_locale;          /* numbers are read as JSON writes them, whatever the host set */
    struct c_stmt *bucket[C_BUCKETS];
    size_t stmts_n;
    uint64_t uses;
    struct sql_value *values;   /* room for the parameters of the statement in hand */
    size_t values_n;
    struct buf text;            /* for unescaping */
};

enum c_phase { C_OVER, C_PREPARE, C_APPLY };

/* What pawl_run_* know about the run. The public part comes first: the one is the other. */
struct c_run {
    struct pawl_run pub;
    struct c_host *h;
    const struct lane_task *t;
    const struct job *job;
    struct arena *arena;
    enum c_phase phase;
    int64_t limit_us;           /* monotonic; INT64_MAX: none */
    /* What went wrong, the first of each kind; text NULL: nothing did. */
    const char *failed;         /* a call, by this job's own doing */
    enum pawl_rc failed_rc;
    int failed_native;
    const char *fault;          /* the store, or memory: nothing is charged */
    bool jumped;                /* over our frames: misuse, whatever it returned */
    bool timed_out;             /* a statement ran into the hard limit */
    bool interrupted;           /* a statement was stopped with the worker */
    /* What the handler said. */
    const char *error;
    size_t error_bytes;
    const char *result;
    size_t result_bytes;
    const char *kept;           /* the result of prepare */
    size_t kept_bytes;
    int64_t after_us;
    bool told;                  /* pawl_run_cancelled or _heartbeat said: stop */
    bool gone;                  /* the lease is no longer ours */
    int64_t look_at_us;         /* monotonic: when to ask the store again */
    void *raw;                  /* the engine's handle while it may be used; NULL: it is not out */
    char key[JOB_KEY_BYTES];
};

extern const struct pawl_api c_api;

static inline struct c_run *c_run_of(struct pawl_run *run)
{
    return (struct c_run *)(void *)run;
}
static inline int64_t c_mono(const struct c_host *h)
{
    return h->o.env->mono_us(h->o.env->ctx);
}
static inline bool c_flag(const volatile int *flag) /* may be NULL */
{
    return flag != NULL && *flag != 0;
}

/* --- c_args.c --- */
enum pawl_rc c_arg(struct pawl_run *run, const char *name, int want, struct pawl_value *out,
                   struct pawl_error *e);

/* --- c_sql.c --- */
enum pawl_rc c_exec(struct pawl_run *run, const char *sql, const struct pawl_value *v, size_t n,
                    int64_t *changed, struct pawl_error *e);
enum pawl_rc c_query(struct pawl_run *run, const char *sql, const struct pawl_value *v, size_t n,
                     pawl_row_fn *fn, void *row_ctx, struct pawl_error *e);
enum pawl_rc c_query_row(struct pawl_run *run, const char *sql, const struct pawl_value *v,
                         size_t n, struct pawl_value *out, size_t out_n, bool *found,
                         struct pawl_error *e);
/* Remember that a call failed, and whose fault it is. returns e->rc, which tells faults of the
 * store apart from what the statement did (PAWL_SQL). */
enum pawl_rc c_note(struct c_run *r, struct pawl_error *e);
bool c_is_fault(enum pawl_rc rc); /* the store's, or memory's */
void c_stmts_free(struct c_host *h);
void c_stmts_idle(struct c_host *h); /* no row callback of any of them is running */

/* --- c_stmt.c --- */
/* The statement of this text, prepared, marked busy until it is done. */
enum pawl_rc c_stmt_get(struct c_host *h, const char *sql, struct c_stmt **out,
                        struct pawl_error *e) PAWL_MUST_USE;
bool c_stmt_has(const struct c_stmt *s, const char *param);

#endif
