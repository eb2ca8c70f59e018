// SPDX-License-Identifier: Apache-2.0
/* c.c - call a C handler, and say what came of it.
 *
 * What a run came to, the first that fits:
 *   a statement was stopped with the worker      released, not pinned
 *   the store, or memory, failed a call          transient, not pinned: nothing is charged
 *   the transaction is gone                      a failed call's own doing (ON CONFLICT ROLLBACK,
 *                                                RAISE(ROLLBACK), the hard limit): what the handler
 *                                                returned, unless it was DONE or STALE. Through the
 *                                                raw handle it may have been the store: RETRY is
 *                                                not pinned. Else misuse
 *   an unknown return code                       misuse
 *   DONE, and a call had failed or was refused   misuse
 *   STALE, and a statement was refused           misuse; after another failure it is fine: what was
 *                                                written is undone, "it is there already" is a
 *                                                common reason
 *   RETRY, and pawl_run_cancelled had said so    released, not pinned
 *   RETRY at the hard limit                      timeout
 * Never: ends the transaction, opens a savepoint, looks into plan.
 */
#include "handler/c.h"

#include "base/err.h"
#include "handler/c_run.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

enum { NATIVE_CONSTRAINT = 19 }; /* SQLite's primary code, as core/classify.c knows it */

struct c_host *c_host_new(struct store *st, const struct c_host_opts *o)
{
    struct c_host *h = calloc(1, sizeof *h);

    if (h == NULL) return NULL;
    h->st = st;
    h->o = *o;
    if (h->o.env == NULL) h->o.env = env_real();
    h->c_locale = newlocale(LC_ALL_MASK, "C", (locale_t)0);
    if (h->c_locale == (locale_t)0) c_host_free(&h);
    return h;
}

void c_host_free(struct c_host **hp)
{
    struct c_host *h = *hp;

    if (h == NULL) return;
    c_stmts_free(h);
    if (h->c_locale != (locale_t)0) freelocale(h->c_locale);
    free(h->values);
    buf_free(&h->text);
    free(h);
    *hp = NULL;
}

enum pawl_rc c_handler_check(const struct pawl_handler *h, const char *name, struct pawl_error *e)
{
    if (h == NULL) return pawl_fail(e, PAWL_CONFIG, "handler %s is NULL", name);
    if (h->abi != PAWL_ABI) {
        return pawl_fail(e, PAWL_CONFIG, "handler %s was compiled for interface %u of pawl.h, this"
                         " Pawl has %u: compile it again with this Pawl's pawl.h", name, h->abi,
                         PAWL_ABI);
    }
    if (h->api_bytes > sizeof(struct pawl_api)) {
        return pawl_fail(e, PAWL_CONFIG, "handler %s was compiled for a later Pawl than this %s: it"
                         " may call what is not there yet", name, PAWL_VERSION);
    }
    if (h->prepare == NULL && h->apply == NULL) {
        return pawl_fail(e, PAWL_CONFIG, "handler %s has neither prepare nor apply", name);
    }
    return PAWL_OK;
}

bool c_is_prepared(const struct pawl_handler *h, const struct policy *p)
{
    return h->prepare != NULL || p->ack == ACK_EARLY;
}

/* --- one run --- */

static void begin(struct c_run *r, struct c_host *h, const struct c_task *c,
                  const struct lane_task *t, const struct job *job, struct arena *arena,
                  enum c_phase phase)
{
    *r = (struct c_run){
        .pub = {
            .api = &c_api, .ctx = c->ctx, .job_id = job->id, .attempt = job->token,
            .token = job->token, .created_at_us = job->created_at_us, .task = t->name,
            .queue = job->queue, .key = job->key, .headers = job->headers, .trace = job->trace,
            .args = job->args, .args_bytes = job->args_bytes,
        },
        .h = h, .t = t, .job = job, .arena = arena, .phase = phase, .limit_us = INT64_MAX,
    };
    if (job->source != NULL && *job->source != '\0') r->pub.source = job->source;
}

/* A prepared run goes on: what prepare left stays, what the last apply said is forgotten. */
static void resume(struct c_run *r, struct c_host *h, const struct c_task *c,
                   const struct lane_task *t, const struct job *job, struct arena *arena,
                   enum c_phase phase)
{
    const struct c_run before = *r;

    begin(r, h, c, t, job, arena, phase);
    r->pub.plan = before.pub.plan;
    r->result = r->kept = before.kept;
    r->result_bytes = r->kept_bytes = before.kept_bytes;
    memcpy(r->key, before.key, sizeof r->key); /* what was handed out stays readable */
}

static void start_clock(struct c_run *r)
{
    const int64_t hard_us = r->t->policy.hard_limit_us;

    if (hard_us > 0) r->limit_us = c_mono(r->h) + hard_us;
    store_deadline(r->h->st, hard_us > 0 ? r->limit_us : 0, r->h->o.stop);
}

static void put_error(struct c_run *r, struct finding *f, enum outcome o, const char *before,
                      const char *text)
{
    struct buf b = {0};

    buf_puts(&b, before);
    buf_puts(&b, text);
    f->outcome = o;
    f->error = b.failed ? NULL : arena_dup(r->arena, buf_str(&b), b.n);
    if (f->error == NULL) f->error = text; /* never without one: nothing would be said */
    f->error_bytes = strlen(f->error);
    buf_free(&b);
}

/* What the handler said itself, or else why a call failed, or else `plain`. */
static void own_words(const struct c_run *r, struct finding *f, const char *plain)
{
    f->error = r->error != NULL ? r->error : r->failed != NULL ? r->failed : plain;
    f->error_bytes = r->error != NULL ? r->error_bytes : f->error != NULL ? strlen(f->error) : 0;
}

static void verdict(const struct c_run *r, int ret, struct finding *f, bool *pinned)
{
    f->retry_after_us = r->after_us;
    switch (ret) {
    case PAWL_DONE:
        f->outcome = OUT_DONE;
        f->result = r->result;
        f->result_bytes = r->result_bytes;
        break;
    case PAWL_STALE:
        f->outcome = OUT_STALE;
        break;
    case PAWL_RETRY:
        f->outcome = OUT_TRANSIENT;
        if (r->told) {
            f->outcome = OUT_RELEASED;
            *pinned = false;
            own_words(r, f, r->gone ? "its lease was lost" : "it was asked to stop");
            break;
        }
        if (r->timed_out || (r->limit_us != INT64_MAX && c_mono(r->h) >= r->limit_us)) {
            f->outcome = OUT_TIMEOUT;
        }
        own_words(r, f, f->outcome == OUT_TIMEOUT ? "it ran past its hard limit"
                                                  : "the handler returned PAWL_RETRY");
        break;
    case PAWL_FAIL:
        f->outcome = OUT_PERMANENT;
        own_words(r, f, "the handler returned PAWL_FAIL");
        break;
    case PAWL_SNOOZE:
        f->outcome = OUT_SNOOZE;
        own_words(r, f, NULL);
        break;
    default:
        assert(ret == PAWL_DISCARD);
        f->outcome = OUT_DISCARD;
        own_words(r, f, "the handler returned PAWL_DISCARD");
    }
}

/* The transaction is gone, and no fault of the store is known. True: the verdict can stand. */
static bool excused(struct c_run *r, int ret, struct finding *f, bool *pinned)
{
    const bool own_word = r->timed_out
        || (r->failed_rc == PAWL_SQL && (r->failed_native & 0xff) == NATIVE_CONSTRAINT
            && classify_sql(r->failed_native, NULL) != OUT_MISUSE);
    const bool claims = ret == PAWL_DONE || ret == PAWL_STALE;

    if (!claims && r->failed != NULL && own_word) return true;
    if (!claims && r->raw != NULL && r->failed == NULL) {
        *pinned = ret != PAWL_RETRY;
        return true;
    }
    put_error(r, f, OUT_MISUSE, r->failed != NULL ? "a statement ended the transaction: " : "",
              r->failed != NULL ? r->failed : "the handler ended the transaction");
    return false;
}

/* ret: what the handler returned. refused: of the raw handle's watch, or NULL. */
static void judge(struct c_run *r, int ret, const char *refused, struct finding *f, bool *pinned)
{
    const bool known = ret >= 0 && ret < PAWL_OUTCOME_N;
    char text[120];

    if (r->jumped) {
        put_error(r, f, OUT_MISUSE, "", r->failed);
        return;
    }
    if (r->interrupted || r->fault != NULL) {
        *pinned = false;
        put_error(r, f, r->interrupted ? OUT_RELEASED : OUT_TRANSIENT, "",
                  r->fault != NULL ? r->fault : "it was stopped with its worker");
        return;
    }
    if (r->phase == C_APPLY && !store_effect_alive(r->h->st)
        && !excused(r, ret, f, pinned)) {
        return;
    }
    if (!known) {
        (void)snprintf(text, sizeof text, "the handler returned %d, which is no enum pawl_outcome",
                       ret);
        put_error(r, f, OUT_MISUSE, "", text);
    } else if (refused != NULL && (ret == PAWL_DONE || ret == PAWL_STALE)) {
        put_error(r, f, OUT_MISUSE, "a handler's statement may not use ", refused);
    } else if (r->failed != NULL && (ret == PAWL_DONE
                                     || (ret == PAWL_STALE && r->failed_rc == PAWL_CONFIG))) {
        put_error(r, f, OUT_MISUSE, ret == PAWL_DONE
                  ? "the handler returned PAWL_DONE although a call had failed: "
                  : "the handler returned PAWL_STALE although a statement was refused: ",
                  r->failed);
    } else {
        verdict(r, ret, f, pinned);
    }
}

/* A handler that jumps over our frames leaves them half done. */
static void call_over(struct c_run *r)
{
    static const char what[] = "a row callback was left by an exception or a longjmp, not by its"
                               " return";

    if (!store_call_over(r->h->st)) return;
    c_stmts_idle(r->h);
    r->failed = what;
    r->failed_rc = PAWL_CONFIG;
    r->jumped = true;
}

void c_apply(struct c_host *h, const struct c_task *c, const struct lane_task *t,
             const struct job *job, void *plan, struct arena *arena, struct finding *f,
             bool *pinned)
{
    struct c_run fresh, *r = plan;
    const char *refused = NULL;
    int ret = PAWL_DONE;

    *f = (struct finding){.exit_code = -1, .signal = -1};
    *pinned = true;
    if (r != NULL) resume(r, h, c, t, job, arena, C_APPLY);
    else begin(r = &fresh, h, c, t, job, arena, C_APPLY);
    if (c->handler->apply != NULL) {
        start_clock(r);
        ret = (int)c->handler->apply(&r->pub);
        call_over(r);
        if (r->raw != NULL) { /* it asked for the engine's handle */
            refused = store_raw_refused(h->st);
            (void)store_raw(h->st, false);
        }
        store_deadline(h->st, 0, NULL);
    }
    judge(r, ret, refused, f, pinned);
    r->phase = C_OVER;
}

void c_prepare(struct c_host *h, const struct c_task *c, const struct lane_task *t,
               const struct job *job, void **plan, struct arena *arena, struct finding *f)
{
    struct c_run *r;
    bool pinned = true;
    int ret;

    *f = (struct finding){.exit_code = -1, .signal = -1};
    *plan = NULL;
    if (c->handler->prepare == NULL) return;
    if ((r = arena_alloc(arena, sizeof *r)) == NULL) {
        f->outcome = OUT_RELEASED;
        f->error = "out of memory";
        f->error_bytes = strlen(f->error);
        return;
    }
    begin(r, h, c, t, job, arena, C_PREPARE);
    start_clock(r);
    *plan = r;
    ret = (int)c->handler->prepare(&r->pub);
    call_over(r);
    store_deadline(h->st, 0, NULL);
    judge(r, ret, NULL, f, &pinned);
    if (!pinned) f->outcome = OUT_RELEASED; /* handed back: no failure of the job's */
    r->kept = r->result;
    r->kept_bytes = r->result_bytes;
    r->phase = C_OVER;
}

void c_drop(struct c_host *h, const struct c_task *c, const struct lane_task *t,
            const struct job *job, void *plan)
{
    struct c_run *r = plan;

    if (r == NULL || c->handler->drop == NULL) return;
    resume(r, h, c, t, job, NULL, C_OVER);
    c->handler->drop(&r->pub);
}
