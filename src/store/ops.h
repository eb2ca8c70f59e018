// SPDX-License-Identifier: Apache-2.0
/* ops.h - the table that an engine fills: one function per verb of store.h, same meaning. */
#ifndef STORE_OPS_H
#define STORE_OPS_H

#include <stdatomic.h>
#include <sys/types.h>
#include "store/store.h"

struct store_ops {
    void (*close)(struct store *);
    void (*forsake)(struct store *); /* in a forked child: free it, touch nothing that is shared */
    void (*describe)(struct store *, struct buf *);
    enum pawl_rc (*enqueue)(struct store *, const struct pawl_request *, size_t,
                            struct pawl_enqueued *, size_t *, struct pawl_error *);
    enum pawl_rc (*jobs)(struct store *, const struct pawl_filter *, pawl_job_fn *, void *,
                         struct pawl_error *);
    enum pawl_rc (*job)(struct store *, int64_t, pawl_job_fn *, void *, struct pawl_error *);
    enum pawl_rc (*attempts)(struct store *, int64_t, pawl_attempt_fn *, void *,
                             struct pawl_error *);
    enum pawl_rc (*cancel)(struct store *, int64_t, enum pawl_state *, struct pawl_error *);
    enum pawl_rc (*run_now)(struct store *, int64_t, enum pawl_state *, struct pawl_error *);
    enum pawl_rc (*replay)(struct store *, int64_t, const struct pawl_replay *, int64_t *,
                           struct pawl_error *);
    enum pawl_rc (*is_stale)(struct store *, int64_t, bool *, struct pawl_error *);
    enum pawl_rc (*discard)(struct store *, int64_t, const char *, struct pawl_error *);
    enum pawl_rc (*pause)(struct store *, const char *, const char *, bool, struct pawl_error *);
    enum pawl_rc (*queues)(struct store *, pawl_queue_fn *, void *, struct pawl_error *);
    enum pawl_rc (*queue_known)(struct store *, const char *, bool *, char *, size_t,
                                struct pawl_error *);
    enum pawl_rc (*stats)(struct store *, pawl_stat_fn *, void *, struct pawl_error *);
    enum pawl_rc (*check)(struct store *, pawl_finding_fn *, void *, int *, struct pawl_error *);
    enum pawl_rc (*doctor)(struct store *, int64_t, pawl_advice_fn *, void *, int *,
                           struct pawl_error *);
    enum pawl_rc (*prune)(struct store *, const struct pawl_prune_opts *, struct pawl_pruned *,
                          struct pawl_error *);
    enum pawl_rc (*task_declare)(struct store *, const char *, const struct policy *, bool,
                                 int64_t *, struct buf *, bool *, struct pawl_error *);
    enum pawl_rc (*worker_join)(struct store *, char *, int *, struct pawl_error *);
    enum pawl_rc (*worker_attach)(struct store *, const char *, int, struct pawl_error *);
    bool (*worker_beat)(struct store *);
    int64_t (*worker_stamp)(struct store *);
    void (*worker_orderly)(struct store *);
    enum pawl_rc (*worker_leave)(struct store *, struct pawl_error *);
    enum pawl_rc (*turn)(struct store *, struct settle *, size_t, const struct lane *, size_t, bool,
                         struct arena *, struct job *, size_t *, struct claim_info *,
                             struct pawl_error *);
    bool (*sound)(struct store *);
    enum pawl_rc (*resolve)(struct store *, struct settle *, size_t, const int64_t *, size_t,
                            struct pawl_error *);
    enum pawl_rc (*held)(struct store *, int64_t *, size_t, size_t *, struct pawl_error *);
    enum pawl_rc (*guard)(struct store *, const struct lane_task *, const struct job *,
                          enum guard *, struct pawl_error *);
    enum pawl_rc (*effect_begin)(struct store *, const struct lane *, size_t, struct arena *,
                                 struct job *, size_t *, struct claim_info *, struct pawl_error *);
    enum pawl_rc (*effect_job)(struct store *, size_t, struct pawl_error *);
    enum pawl_rc (*effect_done)(struct store *, const struct lane_task *, const struct job *,
                                const struct finding *, struct pawl_error *);
    enum pawl_rc (*effect_undo)(struct store *, struct pawl_error *);
    bool (*effect_alive)(struct store *);
    enum pawl_rc (*effect_commit)(struct store *, struct pawl_error *);
    void (*effect_rollback)(struct store *);
    enum pawl_rc (*effect_verdicts)(struct store *, struct settle *, size_t, struct pawl_error *);
    void (*effect_end)(struct store *);
    enum pawl_rc (*scratch_begin)(struct store *, struct pawl_error *);
    enum pawl_rc (*scratch_end)(struct store *, bool, struct pawl_error *);
    enum pawl_rc (*stmt_prepare)(struct store *, const char *, struct store_stmt **,
                                 struct pawl_error *);
    enum pawl_rc (*stmt_run)(struct store *, struct store_stmt *, const struct sql_value *, size_t,
                             struct buf *, size_t, int64_t *, struct pawl_error *);
    void (*deadline)(struct store *, int64_t, const volatile int *);
    enum pawl_rc (*reap)(struct store *, casualty_fn *, void *, struct reap_report *,
                         struct pawl_error *);
    enum pawl_rc (*reap_runner)(struct store *, int, enum outcome, casualty_fn *, void *,
                                struct reap_report *, struct pawl_error *);
    enum pawl_rc (*reap_crew)(struct store *, const char *, int, enum outcome, casualty_fn *,
                              void *, struct reap_report *, struct pawl_error *);
    enum pawl_rc (*crew_join)(struct store *, char *, int *, struct pawl_error *);
    enum pawl_rc (*crew_attach)(struct store *, const char *, int, struct pawl_error *);
    void (*crew_beat)(struct store *);
    void (*crew_leave)(struct store *, const char *);
    void (*blame_list)(struct store *, const struct job *, size_t);
    void (*blame_hand)(struct store *, size_t);
    void (*blame_clear)(struct store *);
    enum pawl_rc (*holds)(struct store *, const struct job *, bool *, struct pawl_error *);
    enum pawl_rc (*effect_resume)(struct store *, const struct lane *, struct job *, size_t,
                                  struct pawl_error *);
    enum pawl_rc (*effect_lease)(struct store *, const struct lane *, size_t, bool, struct arena *,
                                 struct job *, size_t *, struct claim_info *, struct pawl_error *);
    enum pawl_rc (*effect_enqueue)(struct store *, const struct pawl_request *, size_t,
                                   struct pawl_enqueued *, size_t *, struct pawl_error *);
    enum pawl_rc (*stmt_query)(struct store *, struct store_stmt *, const struct sql_value *,
                               size_t,
                               store_row_fn *, void *, struct pawl_error *);
    bool (*stmt_has)(struct store *, const struct store_stmt *, const char *);
    bool (*call_over)(struct store *);
    void *(*raw)(struct store *, bool);
    const char *(*raw_refused)(struct store *);
    bool (*intact)(struct store *);
    int (*wake_fd)(struct store *);
    void (*wake_clear)(struct store *);
    bool (*changed)(struct store *);
    void (*poke)(struct store *);
    enum pawl_rc (*pending)(struct store *, const struct lane *, struct pending *,
                            struct pawl_error *);
    void (*patience)(struct store *, int64_t);
    enum pawl_rc (*maintain)(struct store *, struct pawl_error *);
    int64_t (*in_hand)(struct store *, const char *, int64_t *);
};

/* The head of every engine's store. */
struct store {
    const struct store_ops *ops;
    const struct env *env;
    pid_t owner_pid;              /* the process that opened it */
    _Atomic int *here;            /* 1 there, 0 in a forked child; NULL: ask getpid() */
};
/* fork.c: an engine calls the first when it made a store, the second before it frees it. */
void store_own(struct store *st);
void store_disown(struct store *st);
bool store_is_ours_slow(const struct store *st);
static inline bool store_is_ours(const struct store *st)
{
    return st->here != NULL ? atomic_load_explicit(st->here, memory_order_relaxed) != 0
                            : store_is_ours_slow(st);
}
enum pawl_rc store_not_ours(const struct store *st, struct pawl_error *e); /* BADARG */

void sqlite_engine(char *buf, size_t n);
/* The engine's own door (store/sqlite/sl_ops.c). path: what follows "sqlite:". */
enum pawl_rc sqlite_store_init(const char *path, const struct store_opts *o, bool *created,
                               struct pawl_error *e) PAWL_MUST_USE;
enum pawl_rc sqlite_store_open(const char *path, const struct store_opts *o, struct store **out,
                               struct pawl_error *e) PAWL_MUST_USE;
/* What every engine's struct store_stmt begins with. */
struct stmt_head { void (*free)(struct store_stmt **); };

void postgres_engine(char *buf, size_t n);
/* url: a libpq connection URI. */
enum pawl_rc postgres_store_init(const char *url, const struct store_opts *o, bool *created,
                                 struct pawl_error *e) PAWL_MUST_USE;
enum pawl_rc postgres_store_open(const char *url, const struct store_opts *o, struct store **out,
                                 struct pawl_error *e) PAWL_MUST_USE;

#endif
