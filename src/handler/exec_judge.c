// SPDX-License-Identifier: Apache-2.0
/* exec_judge.c - one finding out of what a child said and how it ended.
 *
 * Rules, first match wins:
 *   1. Our limit ended it: exit 0 still counts for what it says, and so does a "fail" verdict;
 *      anything else is a timeout.
 *   2. The worker asked it to end (drain): exit 0 counts for what it says; the rest is released.
 *   3. A signal that we did not send killed it: lost, unless it had said "fail" before.
 *   4. Otherwise the worse of the verdict and the exit code; a broken reply counts as transient.
 */
#include "handler/exec_parts.h"

#include <assert.h>
#include <inttypes.h>
#include <signal.h>
#include <string.h>

/* How it ended, in words. */
static void put_ending(struct buf *b, const struct exec_end *end)
{
    const char *name;

    if (end->signal < 0) {
        if (end->code == 126 || end->code == 127) buf_puts(b, "not runnable: ");
        buf_printf(b, "exit %d", end->code);
        return;
    }
    name = sigabbrev_np(end->signal);
    buf_printf(b, "killed by signal %d", end->signal);
    if (name != NULL) buf_printf(b, " (%s)", name);
    if (end->core) buf_puts(b, ", core dumped");
}

static enum outcome settle_outcome(const struct exec_end *end, const struct exec_verdict *v,
                                   const struct policy *p)
{
    bool said = v->kind == EXEC_REPLY_VERDICT;
    enum outcome by_exit = end->signal >= 0 ? OUT_LOST : classify_exit(end->code, p);

    assert((end->code >= 0) != (end->signal >= 0));
    if (end->cause != EXEC_CAUSE_NONE) {
        if (end->code == 0 && v->kind != EXEC_REPLY_BROKEN) return said ? v->outcome : OUT_DONE;
        if (end->cause == EXEC_CAUSE_STOP) return OUT_RELEASED;
        return said && v->outcome == OUT_PERMANENT ? OUT_PERMANENT : OUT_TIMEOUT;
    }
    return v->kind == EXEC_REPLY_NONE ? by_exit : outcome_worse(v->outcome, by_exit);
}

/* "why; exit 1: last line of stderr", or the child's own words when it gave some. */
static void put_error(struct buf *b, const struct exec_end *end, const struct exec_verdict *v,
                      enum outcome outcome)
{
    bool said = v->kind == EXEC_REPLY_VERDICT;
    bool failed = end->signal >= 0 || end->code != 0;
    struct buf line = {0};

    if (end->cause != EXEC_CAUSE_NONE && (outcome == OUT_TIMEOUT || outcome == OUT_RELEASED)) {
        buf_puts(b, end->why);
    }
    if (v->error != NULL) buf_printf(b, "%s%s", b->n > 0 ? "; " : "", v->error);
    if (said && v->outcome == OUT_DONE) buf_printf(b, "%ssaid done", b->n > 0 ? "; " : "");
    /* Beside the child's own words an exit code adds nothing. */
    if (failed && !(said && v->error != NULL && end->signal < 0)) {
        if (b->n > 0) buf_puts(b, "; ");
        put_ending(b, end);
    }
    if (v->error == NULL) {
        exec_put_last_line(&line, end->stderr_p, end->stderr_n, 2048);
        if (line.n > 0) buf_printf(b, "%s%s", b->n > 0 ? ": " : "", buf_str(&line));
    }
    if (b->n == 0) buf_puts(b, "the program gave no reason");
    buf_free(&line);
}

void exec_judge(const struct exec_end *end, const struct exec_verdict *v, const struct policy *p,
                struct arena *a, struct finding *f)
{
    struct buf why = {0};

    f->outcome = settle_outcome(end, v, p);
    f->exit_code = end->code;
    f->signal = end->signal;
    f->retry_after_us = v->after_us;
    if (f->outcome == OUT_DONE && v->result_bytes > LIMIT_RESULT_BYTES) {
        f->outcome = OUT_PERMANENT;
        buf_printf(&why, "the result has %zu bytes, the limit is %d", v->result_bytes,
                   LIMIT_RESULT_BYTES);
    } else if (f->outcome == OUT_DONE) {
        f->result = arena_dup(a, v->result, v->result_bytes);
        f->result_bytes = f->result != NULL ? v->result_bytes : 0;
        f->writes = arena_dup(a, v->writes, v->writes_bytes);
        f->writes_bytes = f->writes != NULL ? v->writes_bytes : 0;
        f->enqueue = arena_dup(a, v->enqueue, v->enqueue_bytes);
        f->enqueue_bytes = f->enqueue != NULL ? v->enqueue_bytes : 0;
        if ((f->writes == NULL && v->writes != NULL) ||
            (f->enqueue == NULL && v->enqueue != NULL)) { /* not done, and not to be called done */
            f->outcome = OUT_TRANSIENT;
            buf_puts(&why, "out of memory");
        }
    } else if (f->outcome != OUT_SNOOZE || v->error != NULL) {
        put_error(&why, end, v, f->outcome);
    }
    if (why.n > 0 && (f->error = arena_dup(a, why.data, why.n)) != NULL) f->error_bytes = why.n;
    buf_free(&why);
}
