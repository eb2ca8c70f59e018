// SPDX-License-Identifier: Apache-2.0
/* c_api.c - the table of functions that a C handler calls: follow-ups, result, texts, time.
 *
 * Keeps: nothing here decides what becomes of the job; what was said is kept in struct c_run for
 *        c.c to judge. A call in drop, when the run is over, is refused and does nothing.
 */
#include "base/err.h"
#include "base/json.h"
#include "base/log.h"
#include "handler/c_run.h"

#include <stdlib.h>
#include <string.h>

enum {
    LOOK_US = 100 * 1000, /* ask the store so often whether the lease is still ours */
    LOG_BYTES = 1024, /* log_line cuts it at a character */
};

/* --- follow-ups --- */

/* prepare may run again: without a key each run would enqueue anew. */
static enum pawl_rc need_keys(const struct pawl_request *req, size_t n, size_t *bad_i,
                              struct pawl_error *e)
{
    for (size_t i = 0; i < n; i++) {
        if (req[i].key != NULL) continue;
        *bad_i = i;
        return pawl_fail(e, PAWL_TOOLATE, "pawl_run_enqueue in prepare needs a key: prepare may run"
                         " again, and would enqueue it again; or enqueue in apply");
    }
    return PAWL_OK;
}

static enum pawl_rc enqueue_checked(struct c_run *r, const struct pawl_request *req, size_t n,
                                    struct pawl_enqueued *out, size_t *bad_i, struct pawl_error *e)
{
    struct store *st = r->h->st;
    enum pawl_rc rc;

    if (n > 0 && (req == NULL || out == NULL)) {
        return pawl_fail(e, PAWL_BADARG, "requests, or room for answers, is NULL");
    }
    if (n > LIMIT_ENQUEUE_N) {
        return pawl_fail(e, PAWL_TOOBIG, "%zu requests in one call: at most %d", n,
                         LIMIT_ENQUEUE_N);
    }
    memset(out, 0, n * sizeof *out);
    if (r->phase == C_PREPARE) {
        if ((rc = need_keys(req, n, bad_i, e)) != PAWL_OK) return rc;
        rc = store_enqueue(st, req, n, out, bad_i, e);
    } else if (!store_effect_alive(st)) {
        return pawl_fail(e, PAWL_TOOLATE, "the job's transaction is gone: nothing can be enqueued"
                         " in it any more; return from the handler");
    } else {
        rc = store_effect_enqueue(st, req, n, out, bad_i, e);
    }
    for (size_t i = 0; i < n; i++) { /* a handler could not free it: it links nothing of ours */
        free(out[i].result);
        out[i].result = NULL;
        out[i].near[0] = '\0';
    }
    return rc;
}

static enum pawl_rc enqueue(struct pawl_run *run, const struct pawl_request *req, size_t n,
                            struct pawl_enqueued *out, size_t *bad_i, struct pawl_error *e)
{
    struct c_run *r = c_run_of(run);
    struct pawl_error spare;
    size_t unused;
    enum pawl_rc rc;

    if (e == NULL) e = &spare;
    if (bad_i == NULL) bad_i = &unused;
    *bad_i = n;
    if (r->phase == C_OVER) return pawl_fail(e, PAWL_TOOLATE, "the run is over: no jobs in drop");
    if (n == 0) return PAWL_OK;
    rc = enqueue_checked(r, req, n, out, bad_i, e);
    return rc == PAWL_OK ? rc : c_note(r, e);
}

/* --- what came of it --- */

static enum pawl_rc result(struct pawl_run *run, const char *json, size_t n, struct pawl_error *e)
{
    struct c_run *r = c_run_of(run);
    struct json_err why = {0};
    struct pawl_error spare;
    const char *copy;

    if (e == NULL) e = &spare;
    if (r->phase == C_OVER) return pawl_fail(e, PAWL_TOOLATE, "the run is over");
    if (json == NULL) { /* none, after all */
        r->result = NULL;
        r->result_bytes = 0;
        return PAWL_OK;
    }
    if (n == 0) n = strlen(json);
    if (n > LIMIT_RESULT_BYTES) {
        return pawl_fail(e, PAWL_TOOBIG, "the result has %zu bytes, at most %d are accepted", n,
                         LIMIT_RESULT_BYTES);
    }
    if (!json_check(json, n, LIMIT_JSON_DEPTH, NULL, &why)) {
        return pawl_fail(e, PAWL_BADDATA, "the result is not acceptable JSON: %s at byte %zu",
                         why.why, why.at);
    }
    if ((copy = arena_dup(r->arena, json, n)) == NULL) {
        return pawl_fail(e, PAWL_NOMEM, "the result: out of memory");
    }
    r->result = copy;
    r->result_bytes = n;
    return PAWL_OK;
}

/* Long texts keep their head and their tail: the last line says most. */
static void put_bounded(struct buf *b, const char *p, size_t n)
{
    struct tail t;
    struct buf cut = {0};

    if (n <= LIMIT_ERROR_HEAD + LIMIT_ERROR_TAIL) {
        text_put_safe(b, p, n, true);
        return;
    }
    tail_init(&t, LIMIT_ERROR_HEAD, LIMIT_ERROR_TAIL);
    tail_put(&t, p, n);
    tail_render(&t, &cut);
    text_put_safe(b, buf_str(&cut), cut.n, true);
    b->failed = b->failed || cut.failed;
    buf_free(&cut);
    tail_fini(&t);
}

static void error(struct pawl_run *run, const char *text, size_t n)
{
    struct c_run *r = c_run_of(run);
    struct buf b = {0};

    if (r->phase == C_OVER) return;
    r->error = NULL;
    r->error_bytes = 0;
    if (text == NULL || n == 0) return;
    put_bounded(&b, text, n);
    r->error = b.failed ? NULL : arena_dup(r->arena, b.data, b.n);
    r->error_bytes = b.n;
    if (r->error == NULL) {
        r->error = "out of memory for the error's text";
        r->error_bytes = strlen(r->error);
    }
    buf_free(&b);
}

static enum pawl_outcome by_class(int native)
{
    switch (classify_sql(native, NULL)) {
    case OUT_TRANSIENT: case OUT_TIMEOUT: return PAWL_RETRY;
    default: return PAWL_FAIL;
    }
}

static enum pawl_outcome outcome(struct pawl_run *run, const struct pawl_error *e)
{
    struct c_run *r = c_run_of(run);

    if (e == NULL || e->rc == PAWL_OK) {
        static const char text[] = "pawl_run_error was called without an error";
        error(run, text, sizeof text - 1);
        return PAWL_FAIL;
    }
    if (r->failed != NULL && e->rc == PAWL_SQL && e->native == C_FAILED_BEFORE) {
        /* It only says that another one came first: that one is told, and decides. */
        error(run, r->failed, strlen(r->failed));
        return r->failed_rc != PAWL_SQL ? PAWL_FAIL : by_class(r->failed_native);
    }
    error(run, e->msg, strnlen(e->msg, sizeof e->msg));
    if (c_is_fault(e->rc)) {
        if (r->fault == NULL && r->phase != C_OVER) r->fault = r->error;
        return PAWL_RETRY;
    }
    if (e->rc == PAWL_FENCED) return PAWL_RETRY;
    return e->rc != PAWL_SQL ? PAWL_FAIL : by_class(e->native);
}

static void after(struct pawl_run *run, int64_t delay_us)
{
    c_run_of(run)->after_us = delay_us > 0 ? delay_us : 0;
}

/* --- long work --- */

/* In prepare: is the job still leased to us? Asked at most every 0.1 s; when the store cannot say,
 * the answer stands: the settle decides. */
static void look(struct c_run *r)
{
    struct pawl_error ignored;
    int64_t now_us;
    bool yes = true;

    if (r->phase != C_PREPARE || r->gone || r->job->id == 0) return; /* 0: run by hand, no lease */
    now_us = c_mono(r->h);
    if (now_us < r->look_at_us) return;
    r->look_at_us = now_us + LOOK_US;
    if (store_holds(r->h->st, r->job, &yes, &ignored) == PAWL_OK && !yes) r->gone = true;
}

static bool cancelled(struct pawl_run *run)
{
    struct c_run *r = c_run_of(run);

    if (r->phase == C_OVER) return true;
    if (c_flag(r->h->o.stop) || c_flag(r->h->o.drain)) {
        r->told = true;
        return true;
    }
    look(r);
    if (r->gone) r->told = true;
    return r->gone;
}

static int64_t time_left_us(struct pawl_run *run)
{
    const struct c_run *r = c_run_of(run);
    int64_t left;

    if (r->phase == C_OVER) return 0;
    if (r->limit_us == INT64_MAX) return INT64_MAX;
    left = r->limit_us - c_mono(r->h);
    return left > 0 ? left : 0;
}

static enum pawl_rc heartbeat(struct pawl_run *run, struct pawl_error *e)
{
    struct c_run *r = c_run_of(run);
    struct pawl_error spare;

    if (e == NULL) e = &spare;
    if (r->phase == C_OVER) return pawl_fail(e, PAWL_TOOLATE, "the run is over");
    if (r->phase == C_APPLY) return PAWL_OK; /* the open transaction is the lease */
    if (r->h->o.beat != NULL && !r->h->o.beat(r->h->o.ctx)) r->gone = true;
    look(r);
    if (!r->gone) return PAWL_OK;
    r->told = true;
    return pawl_fail(e, PAWL_FENCED, "job %lld was cancelled, or taken over by another worker",
                     (long long)r->job->id);
}

static void log_text(struct pawl_run *run, int level, const char *text, size_t n)
{
    const struct c_run *r = c_run_of(run);
    char line[LOG_BYTES + 1];

    if (r->phase == C_OVER || text == NULL) return;
    if (n > LOG_BYTES) n = LOG_BYTES;
    memcpy(line, text, n);
    line[n] = '\0';
    if (level < LOG_ERROR) level = LOG_ERROR;
    if (level > LOG_DEBUG) level = LOG_DEBUG;
    log_line((enum log_level)level, "job.log", "i:job", r->job->id, "s:task", r->t->name,
             "s:key", r->job->key, "i:attempt", r->job->token, "s:worker", r->h->o.worker,
             "s:text", line, NULL);
}

static void *alloc(struct pawl_run *run, size_t n)
{
    struct c_run *r = c_run_of(run);

    return r->phase == C_OVER ? NULL : arena_alloc(r->arena, n);
}

/* Made when it is asked for: it is a SHA-256, half of what a small handler costs. */
static const char *idempotency_key(struct pawl_run *run)
{
    struct c_run *r = c_run_of(run);

    if (r->key[0] == '\0') job_idempotency_key(r->t->name, r->job, r->key);
    return r->key;
}

static struct sqlite3 *sqlite(struct pawl_run *run)
{
    struct c_run *r = c_run_of(run);

    if (r->phase != C_APPLY || !r->h->o.raw) return NULL;
    /* Handed out when it is asked for: from then on the run may have written what nobody counts. */
    if (r->raw == NULL) r->raw = store_raw(r->h->st, true);
    return r->raw;
}

const struct pawl_api c_api = {
    .abi = PAWL_ABI,
    .bytes = (uint32_t)sizeof(struct pawl_api),
    .exec = c_exec,
    .query = c_query,
    .query_row = c_query_row,
    .arg = c_arg,
    .enqueue = enqueue,
    .result = result,
    .error = error,
    .outcome = outcome,
    .after = after,
    .cancelled = cancelled,
    .time_left_us = time_left_us,
    .heartbeat = heartbeat,
    .log = log_text,
    .alloc = alloc,
    .sqlite = sqlite,
    .idempotency_key = idempotency_key,
};
