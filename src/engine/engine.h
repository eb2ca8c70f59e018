// SPDX-License-Identifier: Apache-2.0
/* engine.h - claim -> run -> settle: the two ways a job becomes a durable fact.
 *
 * Effect mode (effect.c): claim, work and acknowledgement of a batch are one transaction.
 * Leased mode (leased.c): the claim is committed before anything starts; the work happens outside;
 * what ended is settled under the fence. Prepared mode (prepared.c) is both: leased, then applied
 * in
 * an effect transaction. The engine contains no SQL and starts no process.
 */
#ifndef ENGINE_ENGINE_H
#define ENGINE_ENGINE_H

#include "core/rules.h"
#include "store/store.h"

/* Args as a job's handler may see them are checked once, here: UTF-8, JSON, depth, size. Also takes
 * entity and version out of the args when the policy names them. OK, or *f filled with what to
 * decide instead of running (UNDECODABLE, EXPIRED, PERMANENT, STALE, CONFLICT).
 * *run: true if the handler should run. */
enum pawl_rc engine_admit(struct store *st, const struct lane_task *t, struct job *job,
                          struct arena *arena, struct finding *f, bool *run,
                          struct pawl_error *e) PAWL_MUST_USE;

/* The version guard alone, for a job that was admitted before and is about to be applied. */
enum pawl_rc engine_guard(struct store *st, const struct lane_task *t, struct job *job,
                          struct arena *arena, struct finding *f, bool *run,
                          struct pawl_error *e) PAWL_MUST_USE;

/* --- effect mode --- */
/* Run one job's handler on the open transaction. Fill f (outcome, error, result; strings in the
 * arena). *pinned: false if the failure is the store's, not the job's: the batch is rerun and
 * nothing is charged. */
typedef void effect_fn(void *ctx, struct store *st, const struct lane_task *t,
                       const struct job *job,
                       struct arena *arena, struct finding *f, bool *pinned);
struct effect_opts {
    const struct lane *lane;
    effect_fn *fn; void *ctx;
    const struct env *env;
    int64_t budget_us;      /* a batch is closed after this long; 0: 5 ms */
    size_t batch_max;       /* 0: LIMIT_BATCH */
    const volatile int *stop; /* non-zero: finish the job in hand, commit, return */
};
struct effect_report {
    size_t done, stale, retried, dead, reruns, dropped, released;
    struct claim_info info;
    size_t claimed;         /* 0: nothing was due */
    /* the last job that was settled, for who runs one at a time; job_id 0: none */
    int64_t job_id;
    enum pawl_state to;
    enum outcome outcome;
    char text[512];         /* reason and error; "" for done */
};
/* One batch, reruns and verdicts included. A suspect is a batch of its own, before all others.
 * returns OK | BUSY FULL IO NOMEM STORE: nothing was charged, back off and call again. */
struct effect;              /* keeps the adaptive batch size between calls */
struct effect *effect_new(const struct effect_opts *o);   /* NULL: out of memory */
void effect_free(struct effect **ef);
enum pawl_rc effect_batch(struct effect *ef, struct store *st, struct effect_report *out,
                          struct pawl_error *e) PAWL_MUST_USE;

/* The same transaction for jobs that this worker has leased and prepared. */
struct effect_given {
    struct job *jobs; size_t n;   /* copied into the batch; n <= batch_max */
    void **plans;                 /* parallel; handed to fn through effect_plan() */
    /* In the open transaction, after the work and before its commit: claim what comes next. May be
     * NULL. If it fails, or the commit does, nothing was claimed. */
    enum pawl_rc (*more)(void *ctx, struct store *st, struct pawl_error *e);
    void *ctx;
    /* out, parallel: what is known of each */
    enum given { GIVEN_HELD /* nothing happened: apply it again */, GIVEN_SETTLED,
                 GIVEN_DOUBT /* its commit is: ask store_resolve */,
                 GIVEN_OVER  /* it failed, and is to be settled with found[i] */ } *state;
    struct finding *found;        /* strings in the effect's arena: until its next batch */
    bool claimed;                 /* what `more` did is committed */
    bool singly;                  /* what is HELD is to be given one at a time */
};
/* Apply the jobs given, once. returns as effect_batch */
enum pawl_rc effect_apply(struct effect *ef, struct store *st, struct effect_given *g,
                          struct effect_report *out, struct pawl_error *e) PAWL_MUST_USE;
void *effect_plan(const struct effect *ef); /* of the job in hand; NULL in effect mode */

/* --- leased mode --- */
/* A slot is one leased job and its life in this worker. Owned by struct leased. */
enum slot_phase { SLOT_FREE, SLOT_HELD /* claimed, not started */, SLOT_RUNNING,
    SLOT_ENDED /* to settle */, SLOT_PREPARED /* to be applied (prepared.c) */ };
struct slot {
    enum slot_phase phase;
    struct job job;
    const struct lane_task *task;
    struct arena arena;     /* owns the job's and the finding's strings */
    struct finding found;   /* when ENDED */
    bool release;           /* ENDED without a finding: hand back */
    bool lost;              /* somebody else decided it (cancelled, fenced): drop, no settle */
    bool started;           /* a start was tried: what is handed back without counts nothing */
    bool said;              /* ENDED as its handler has committed it: nothing else counts */
};
struct leased;
/* At most so many slots are filled by a claim; 0: all. */
void leased_limit(struct leased *l, size_t n);
/* Called before a slot becomes free because its job was settled, or was decided by others. */
typedef void leased_over_fn(void *ctx, const struct slot *s);
void leased_on_over(struct leased *l, leased_over_fn *fn, void *ctx);
/* What is settled is counted here, too; NULL: it is not. */
void leased_count(struct leased *l, struct effect_report *out);
struct leased *leased_new(const struct lane *lane, size_t slots_n, const struct env *env);
void leased_free(struct leased **l);
struct slot *leased_slots(struct leased *l, size_t *n);
size_t leased_busy(const struct leased *l);      /* slots not FREE */
/* One turn: settle every ENDED slot, claim into FREE ones if claim is true (never beside a
 * suspect).
 * Newly claimed slots that may run come back as HELD; those that must not run (expired, stale,
 * undecodable) are already ENDED and are settled by the next turn. Settled slots become FREE.
 * info: of the claim. log: what was settled is logged here (job.done, job.retry, job.dead ...).
 * returns OK | BUSY FULL IO STORE NOMEM: nothing changed, call again later | UNSURE is resolved
 * inside */
enum pawl_rc leased_turn(struct leased *l, struct store *st, bool claim, struct claim_info *info,
                         struct pawl_error *e) PAWL_MUST_USE;
/* For who claims by another transaction (prepared.c): how many may be claimed now, whether a
 * suspect
 * may be among them; then give claimed jobs their slots, admitted as after a turn. */
size_t leased_room(struct leased *l, size_t settling, bool *alone);
enum pawl_rc leased_adopt(struct leased *l, struct store *st, const struct job *jobs, size_t n,
                          struct pawl_error *e) PAWL_MUST_USE;
/* After a commit in doubt that was not a turn's. Slots that were settled by it become FREE. */
enum pawl_rc leased_resolve(struct leased *l, struct store *st, struct pawl_error *e) PAWL_MUST_USE;
void leased_put_away(struct leased *l, struct slot *s); /* its job is settled: FREE */
/* Mark slots whose running row is gone (cancelled or taken over) as lost; returns how many. */
enum pawl_rc leased_refresh(struct leased *l, struct store *st, size_t *lost_n,
                            struct pawl_error *e) PAWL_MUST_USE;

/* --- prepared mode: leased jobs, one after the other in this process --- */
/* C handlers with `prepare` (or early ack): the claim is committed, prepare runs outside any
 * transaction, apply and the acknowledgement of a batch share a commit with the next claim. */
struct prepared_calls {
    /* Outside any transaction. OUT_DONE: apply follows; anything else is what the run came to.
     * *plan: what it leaves for apply. Strings of f in the arena. */
    void (*prepare)(void *ctx, struct store *st, const struct lane_task *t, const struct job *job,
                    void **plan, struct arena *arena, struct finding *f);
    /* As effect_fn, with the plan. May be called again with the same plan. */
    void (*apply)(void *ctx, struct store *st, const struct lane_task *t, const struct job *job,
                  void *plan, struct arena *arena, struct finding *f, bool *pinned);
    /* Once for each prepare, when the run is over, whatever came of it; the arena still stands. */
    void (*drop)(void *ctx, const struct lane_task *t, const struct job *job, void *plan);
};
struct prepared_opts {
    const struct lane *lane;
    const struct prepared_calls *calls;
    void *ctx;
    const struct env *env;
    int64_t budget_us;        /* how long a batch's preparations should take; 0: 20 ms */
    int64_t apply_us;         /* and its applications, as in effect mode; 0: 5 ms */
    size_t batch_max;         /* 0: 256; at most LIMIT_CONCURRENCY */
    size_t batch_first;       /* before it is known how long they take; 0: 1 */
    const volatile int *stop; /* non-zero: finish the job in hand, hand back the rest, return */
};
struct prepared;
struct prepared *prepared_new(const struct prepared_opts *o); /* NULL: out of memory */
void prepared_free(struct prepared **p);                     /* drops the plans it still has */
/* Prepare what is held, apply and settle it, claim the next. out->claimed == 0: nothing was due and
 * nothing is held. returns as effect_batch; what is held stays held. */
enum pawl_rc prepared_step(struct prepared *p, struct store *st, struct effect_report *out,
                           struct pawl_error *e) PAWL_MUST_USE;
/* Hand back everything that is held. */
enum pawl_rc prepared_release(struct prepared *p, struct store *st,
                              struct pawl_error *e) PAWL_MUST_USE;
size_t prepared_busy(const struct prepared *p);

/* --- recovery --- */
/* store_reap with the rules' decision; logs job.lost / job.suspect / job.dead. */
enum pawl_rc engine_reap(struct store *st, const struct env *env, struct reap_report *out,
                         struct pawl_error *e) PAWL_MUST_USE;
/* how: OUT_LOST, or OUT_TIMEOUT when it was killed at the hard limit of the job in hand. */
enum pawl_rc engine_reap_runner(struct store *st, const struct env *env, int end,
                                enum outcome how, struct reap_report *out,
                                struct pawl_error *e) PAWL_MUST_USE;
enum pawl_rc engine_reap_crew(struct store *st, const struct env *env, const char *id, int end,
                              enum outcome how, struct reap_report *out,
                              struct pawl_error *e) PAWL_MUST_USE;

#endif
