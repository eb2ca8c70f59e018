// SPDX-License-Identifier: Apache-2.0
/* job.h - the words of the domain as types: policy, counters, a leased job, what a run found,
 * and what is decided about it. Pure data; the rules are in lifecycle, retry, classify, decide. */
#ifndef CORE_JOB_H
#define CORE_JOB_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "core/limits.h"
#include "pawl.h"

/* Why a dead job is dead. Names as in the store, the docs and --json: dead_class_name(). */
enum dead_class { DEAD_PERMANENT, DEAD_EXHAUSTED, DEAD_POISON, DEAD_EXPIRED, DEAD_UNROUTABLE,
                  DEAD_UNDECODABLE, DEAD_IN_DOUBT, DEAD_CONFLICT, DEAD_MISUSE, DEAD_CLASS_N };

/* What one run came to. The first group comes from handlers, the second from the machinery. */
enum outcome {
    OUT_DONE,        /* effect committed */
    OUT_STALE,       /* version guard or zero_rows: success without effect */
    OUT_TRANSIENT,   /* may succeed later */
    OUT_PERMANENT,   /* will not succeed as it is */
    OUT_TIMEOUT,     /* our soft or hard limit: transient, shown apart */
    OUT_SNOOZE,      /* the handler asks to come back: no cost but its own bound */
    OUT_DISCARD,     /* an outcome that the policy lists in `discard`: dropped(failed) */
    OUT_LOST,        /* the process or host running it died, charged to this job */
    OUT_SUSPECT,     /* died with others in hand: not charged, runs next and alone */
    OUT_RELEASED,    /* handed back by a draining worker, or taken over from a frozen one */
    OUT_EXPIRED,     /* expires_at passed before the start */
    OUT_UNDECODABLE, /* args are not acceptable JSON (came through a door that cannot check) */
    OUT_CONFLICT,    /* equal version, other args */
    OUT_MISUSE,      /* the handler broke the transaction rules */
    OUT_CANCELLED,
    OUT_N
};

struct counters { int64_t runs, failures, lost, releases, snoozes; };

enum ack_mode { ACK_LATE, ACK_EARLY };
enum zero_rows { ZERO_DONE, ZERO_STALE, ZERO_RETRY, ZERO_FAIL };

/* A task's stored policy. All durations in microseconds. Defaults: policy_defaults(). */
struct policy {
    enum ack_mode ack;
    int max_retries;                    /* failures allowed before exhausted: runs = retries + 1 */
    int64_t backoff_base_us, backoff_cap_us; /* floor + full jitter */
    int lost_cap;
    int64_t soft_limit_us;              /* 0: none */
    int64_t hard_limit_us;
    int priority;
    char queue[LIMIT_NAME_BYTES + 1];
    char entity[LIMIT_KEY_BYTES + 2];   /* ":name" or ""; the version guard's entity */
    char version[LIMIT_KEY_BYTES + 2];  /* ":name" or "" */
    enum zero_rows zero_rows;
    int64_t key_window_us;              /* keys kept after the end */
    int64_t retention_us;               /* done rows */
    /* exec: overrides of the exit-code table, bit sets by code */
    uint64_t codes_transient[4], codes_permanent[4], codes_discard[4];
};

/* One job as the engine holds it. Strings are owned by the batch's arena. */
struct job {
    int64_t id, root_id, gen;
    int32_t task_i;                     /* index into the lane's tasks */
    int64_t queue_id;
    int64_t rank;                       /* -priority: sorts high priority first */
    int64_t run_at_us, created_at_us, expires_at_us, started_at_us;
    struct counters n;                  /* as they stood before this run */
    int64_t place;                      /* of its waiting row, to the store that claimed it; or 0 */
    bool suspect;
    int max_retries;                    /* -1: the policy's */
    const char *queue, *source, *key;   /* key NULL: keyless */
    const char *args; size_t args_bytes;
    const char *headers, *trace;        /* NULL: none */
    const char *entity; int64_t version; bool has_version;
    uint8_t lease_id[16];               /* random; compared by equality only */
    int64_t token;                      /* n.runs + 1 */
};

/* What is known about a run when it ends: input of decide(). Borrowed strings. */
struct finding {
    enum outcome outcome;
    const char *error;                  /* first error, in words; NULL on success */
    size_t error_bytes;
    const char *result; size_t result_bytes; /* JSON text or NULL */
    /* Asked for, not done yet: JSON arrays, or NULL. */
    const char *writes, *enqueue; size_t writes_bytes, enqueue_bytes;
    const char *out_tail, *err_tail;
    const char *worker;                 /* NULL: this one; else who had it (recovery) */
    bool taken_over;                    /* found by another worker, not said by its own */
    int exit_code, signal;              /* -1: none */
    int64_t max_rss_kib;
    int64_t retry_after_us;             /* floor for the next run; 0: none */
    int64_t started_at_us, ended_at_us;
};

/* What becomes of the job. A store executes it with the fence and nothing else decides. */
struct decision {
    enum pawl_state to;                 /* READY, DONE, DEAD, DROPPED, CANCELLED */
    enum dead_class dead;               /* to == DEAD */
    const char *drop;                   /* to == DROPPED: "failed" or "lost"; static */
    enum outcome outcome;               /* recorded on the attempt */
    struct counters n;                  /* new values */
    int64_t run_at_us;                  /* to == READY */
    int64_t delay_us;                   /* run_at - now, for the log and the attempt */
    bool suspect;
    bool keep_place;                    /* READY with the old run_at (lost, released) */
    char reason[160];                   /* in words: "3 retries used up; last: timeout after 2s" */
};

const char *dead_class_name(enum dead_class c);
bool dead_class_parse(const char *s, enum dead_class *out);
const char *outcome_name(enum outcome o);
bool outcome_parse(const char *s, enum outcome *out);

#endif
