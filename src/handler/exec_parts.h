// SPDX-License-Identifier: Apache-2.0
/* exec_parts.h - the parts of the exec handler, shared between exec*.c only. */
#ifndef HANDLER_EXEC_PARTS_H
#define HANDLER_EXEC_PARTS_H

#include "handler/handler.h"

/* --- exec_env.c --- a child's whole environment, NULL-terminated, in the arena; NULL: NOMEM */
const char *const *exec_env(const struct exec_start *s, struct arena *a);

/* --- exec_text.c --- */
/* Append bytes as valid UTF-8 without NUL: bytes that are neither come out as \xNN. */
void exec_put_text(struct buf *b, const char *p, size_t n);
/* The same as a string in the arena; NULL for no bytes (or no memory). */
char *exec_text(struct arena *a, const char *p, size_t n);
/* Append the last line that is not blank, at most `max` bytes of its head. */
void exec_put_last_line(struct buf *b, const char *p, size_t n, size_t max);

/* --- exec_reply.c --- */
enum exec_reply { EXEC_REPLY_NONE, EXEC_REPLY_VERDICT, EXEC_REPLY_BROKEN };
struct exec_verdict {
    enum exec_reply kind;
    enum outcome outcome;         /* VERDICT: DONE, TRANSIENT, PERMANENT or SNOOZE */
    const char *error;            /* VERDICT: what it said, or NULL; BROKEN: "protocol: ..." */
    const char *result;           /* raw JSON or NULL; borrowed from the reply */
    size_t result_bytes;
    const char *writes, *enqueue; /* raw JSON arrays or NULL; borrowed, too */
    size_t writes_bytes, enqueue_bytes;
    int64_t after_us;             /* 0: not said */
};
/* Read what came over the reply descriptor. total: bytes that came, n of them kept. task: whose
 * writes may be asked for. */
void exec_verdict_parse(const char *p, size_t n, uint64_t total, const struct job *job,
                        const struct conf_task *task, struct arena *a, struct exec_verdict *out);

/* --- exec_judge.c --- */
enum exec_cause { EXEC_CAUSE_NONE, EXEC_CAUSE_LIMIT, EXEC_CAUSE_STOP };
struct exec_end {                 /* how it ended, besides the verdict */
    int code, signal;             /* one of them -1 */
    bool core;
    enum exec_cause cause;        /* who made it end */
    const char *why;              /* with a cause: in words */
    const char *stderr_p; size_t stderr_n;
};
/* One finding out of verdict, exit status and cause: the worse of what they say. */
void exec_judge(const struct exec_end *end, const struct exec_verdict *v, const struct policy *p,
                struct arena *a, struct finding *f);

#endif
