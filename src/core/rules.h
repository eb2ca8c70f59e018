// SPDX-License-Identifier: Apache-2.0
/* rules.h - the pure rules: backoff, classification, and the decision after a run.
 * No I/O, no clock: time and randomness are passed in. Implemented in retry.c, classify.c,
 * decide.c, policy.c, name.c, hash.c. */
#ifndef CORE_RULES_H
#define CORE_RULES_H

#include "base/buf.h"
#include "base/clock.h"
#include "core/job.h"

/* Delay before the next run after `failures` (>= 1) failures: base + U(0, min(cap, base * 2^(f-1)))
 * never above cap; exponent clamped (no overflow at failure 100,000). With retry_after > 0 the
 * delay is at least retry_after and up to 10 % more, so that a wave does not return together. */
int64_t retry_delay_us(const struct policy *p, int64_t failures, int64_t retry_after_us,
                       const struct env *env);
/* Snooze delay: asked (or 5 s) + U(0, 10 %), at most 1 h. */
int64_t snooze_delay_us(int64_t asked_us, const struct env *env);

/* Exit code of a handler 0..255 -> outcome by sysexits(3) (doc/exec.md) and the policy's
 * overrides. */
enum outcome classify_exit(int code, const struct policy *p);
/* HTTP status of a push -> outcome (2xx done, 202 done for now, 3xx permanent). */
enum outcome classify_http(int status);
/* Native code of a user's statement -> outcome. Beyond 65535 it is an SQLSTATE, read as a number to
 * base 36: 40, 53, 57, 08 transient; 22, 23, 42 permanent; 25 misuse; 57014 transient (somebody
 * cancelled it), PWLIM timeout (we did). Else SQLite's
 * extended result code: BUSY, LOCKED, FULL, IOERR, NOMEM,
 * INTERRUPT(timeout), CANTOPEN, PROTOCOL, SCHEMA transient; CONSTRAINT, MISMATCH, ERROR, RANGE,
 * TOOBIG, AUTH, READONLY permanent. *pinned (may be NULL): false if the fault is the store's, not
 * this job's (FULL, IOERR, BUSY, NOMEM...): the batch is rerun and nothing is charged. */
enum outcome classify_sql(int code, bool *pinned);
/* The worse of two outcomes (a verdict and an exit code): PERMANENT > TRANSIENT > SNOOZE > DONE. */
enum outcome outcome_worse(enum outcome a, enum outcome b);

/* Decide. job: counters before this run; f: what was found; now_us: the store's clock. Total: every
 * outcome has an answer. Bounds: failures <= max_retries, lost < lost_cap, releases < 100,
 * snoozes < 1000, and a next run after expires_at is dead(expired) at once. Early ack never goes
 * back to READY (dropped(failed|lost)). */
struct decision decide(const struct job *job, const struct policy *p, const struct finding *f,
                       int64_t now_us, const struct env *env);

void policy_defaults(struct policy *p);
/* Canonical text, one "name = value" per line in fixed order: what is stored and compared. */
void policy_text(const struct policy *p, struct buf *out);
/* Parse policy_text's output or single settings of a [task] section: returns false and fills why
 * (bad value) or sets *unknown. name/value as in pawl.conf: ack, max_retries, backoff (1s..600s),
 * lost_cap, soft_limit, hard_limit, priority, queue, entity, version, zero_rows, key_window,
 * retention, transient, permanent, discard (lists of exit codes "1 2 30-40"). */
bool policy_set(struct policy *p, const char *name, const char *value, bool *unknown,
                char *why, size_t why_n);
bool policy_parse(struct policy *p, const char *text, char *why, size_t why_n);
/* What single settings cannot see: soft_limit < hard_limit, entity and version together. Call it
 * after the last policy_set of a section; policy_parse does. false: why is filled. */
bool policy_check(const struct policy *p, char *why, size_t why_n);
const char *const *policy_names(void); /* NULL-terminated, for nearest-name messages */

/* Names. true = fine, else *why = static text saying the rule. */
bool name_ok(const char *s, const char **why);      /* task, queue */
/* key, source, entity, header names: at most 255 bytes of UTF-8 without bytes below 0x20 and 0x7f.
 * "" passes: a caller that needs one byte says so itself. */
bool key_ok(const char *s, const char **why);

/* Fill job->entity (in the arena) and job->version from the args, as the policy names them; what
 * the enqueue gave explicitly stays. false: *why says what is missing or of the wrong type. args
 * must have passed json_check. */
bool entity_take(const struct policy *p, struct job *job, struct arena *a, char *why, size_t why_n);

/* 62-bit polynomial hash of the args' bytes, kept by the ledger after a job was pruned. Computable
 * in plain SQL too (sql/sqlite/views.sql does): h1 = (h1 * 257 + b + 1) mod 2147483647 and
 * h2 = (h2 * 263 + b + 1) mod 2147483629 over all bytes b, both from 0; value = h1 << 31 | h2. */
int64_t args_hash(const char *p, size_t n);

#endif
