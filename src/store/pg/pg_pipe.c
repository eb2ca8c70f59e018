// SPDX-License-Identifier: Apache-2.0
/* pg_pipe.c - statements sent one behind the other, whose answers are read together.
 *
 * Why: a round trip costs more than a small insert; a batch of 256 of them sent at once is ten
 *      times as fast (measured). So a statement is sent when it is asked for, and waited for when
 *      somebody needs its answer: a BEGIN goes with the first statement behind it, a COMMIT with
 *      all that nobody waited for.
 * Keeps: the first to fail is told, as what it was (enum pg_pipe_kind); the server passes over
 *        what was sent behind it. Before anything else is sent, all answers are read.
 */
#include <string.h>
#include "base/err.h"
#include "store/pg/pg.h"

#define FLUSH_BYTES 8192 /* so much is collected: the server works while we go on */

static int64_t mono(const struct pg *pg)
{
    return pg->d.env->mono_us(pg->d.env->ctx);
}

enum pawl_rc pg_pipe_open(struct pg *pg, struct pawl_error *e)
{
    struct pg_pipe *p = &pg->pipe;

    if (pg->c == NULL || (!p->on && PQenterPipelineMode(pg->c) != 1))
        return pg_fail(pg, NULL, e, "store: pipeline");
    p->on = true;
    return pg_tx_start(pg, e);
}

enum pawl_rc pg_pipe_sent(struct pg *pg, int kind, int sent, size_t bytes, struct pawl_error *e)
{
    struct pg_pipe *p = &pg->pipe;

    if (sent != 1)
        return pg_fail(pg, NULL, e, "store: pipeline");
    buf_putc(&p->kinds, (char)kind);
    if (p->kinds.failed)
        return pawl_fail(e, PAWL_NOMEM, "out of memory");
    pg->sent_n++;
    p->bytes += bytes;
    if (p->bytes < FLUSH_BYTES)
        return PAWL_OK;
    p->bytes = 0;
    return PQflush(pg->c) >= 0 && PQconsumeInput(pg->c) == 1
        ? PAWL_OK : pg_fail(pg, NULL, e, "store: pipeline");
}

enum pawl_rc pg_pipe_send(struct pg *pg, int kind, const char *name, const char *text, int n,
                          const char *const *v, const int *len, const int *fmt,
                          struct pawl_error *e)
{
    const int64_t limit_us = kind == PIPE_USER && pg->deadline_us != 0 ? pg->deadline_us
                                                                        : pg_until(pg);
    const enum pawl_rc rc = pg_pipe_open(pg, e);
    size_t bytes = *name != '\0' ? 64 : strlen(text);

    if (rc != PAWL_OK)
        return rc;
    for (int i = 0; i < n; i++)
        bytes += v[i] == NULL ? 4 : fmt[i] == 0 ? strlen(v[i]) : (size_t)len[i];
    if (limit_us > pg->pipe.until_us)
        pg->pipe.until_us = limit_us;
    if (kind == PIPE_USER) {
        pg->pipe.user_n = pg->pipe.kinds.n + 1;
        pg->pipe.user_until_us = limit_us;
    }
    const int sent = *name != '\0' ? PQsendQueryPrepared(pg->c, name, n, v, len, fmt, 0)
                                    : PQsendQueryParams(pg->c, text, n, NULL, v, len, fmt, 0);
    return pg_pipe_sent(pg, kind, sent, bytes, e);
}

/* The answer to statement number `at`. */
static void take(struct pg *pg, size_t at, PGresult *r, PGresult **last)
{
    const struct buf *kinds = &pg->pipe.kinds;
    const int kind = at < kinds->n ? (uint8_t)kinds->data[at] : PIPE_OWN;

    (void)pg_count(pg, r);
    if (kind >= PIPE_AHEAD) {
        pg->ahead[kind - PIPE_AHEAD].r = r;
    } else if (last != NULL && at + 1 == kinds->n) {
        PQclear(*last);
        *last = r;
    } else {
        PQclear(r);
    }
}

/* What it is to the caller that this one failed. Frees r. */
static enum pawl_rc tell(struct pg *pg, int kind, PGresult *r, struct pawl_error *e)
{
    if (kind == PIPE_USER)
        return pg_sql_failed(pg, r, e);
    const enum pawl_rc rc = pg_fail(pg, r, e, "store");
    if (kind == PIPE_BEGIN && strcmp(pg->state, "0A000") == 0)
        return pg_is_standby(pg, e);
    if (kind == PIPE_MUST && strcmp(pg->state, PG_NOT_ALL) == 0)
        return pawl_fail(e, PAWL_FENCED, "jobs of the batch were decided by somebody else");
    return rc;
}

enum pawl_rc pg_pipe_end(struct pg *pg, PGresult **last, struct pawl_error *e)
{
    struct pg_pipe *p = &pg->pipe;
    PGresult *failed = NULL, *r;
    size_t at = 0, failed_at = 0;
    bool synced = false, lost;

    if (!p->on)
        return PAWL_OK;
    const int64_t own_us = pg_until(pg);
    const int64_t until_us = pg->watched ? INT64_MAX / 2 : p->until_us > own_us ? p->until_us
                                                                                 : own_us;
    pg->timed_out = false;
    lost = pg->c == NULL || PQpipelineSync(pg->c) != 1;
    while (!synced && !lost) {
        const bool users = at < p->user_n && !pg->watched;

        if (!pg_idle(pg, users ? p->user_until_us : until_us)) {
            lost = true;
            pg->timed_out = pg->timed_out || (users && mono(pg) >= p->user_until_us);
        } else if ((r = PQgetResult(pg->c)) == NULL) { /* NULL ends each statement's answers */
            at++;
            lost = PQstatus(pg->c) != CONNECTION_OK;
        } else {
            const ExecStatusType s = PQresultStatus(r);

            synced = s == PGRES_PIPELINE_SYNC;
            if (s == PGRES_FATAL_ERROR && failed == NULL) {
                failed = r;
                failed_at = at;
            } else if (s == PGRES_COMMAND_OK || s == PGRES_TUPLES_OK) {
                take(pg, at, r, last);
            } else {
                PQclear(r);
            }
        }
    }
    const int kind = failed != NULL && failed_at < p->kinds.n ? (uint8_t)p->kinds.data[failed_at]
                                                               : PIPE_OWN;
    p->on = false;
    p->failed_kind = kind;
    p->until_us = 0;
    p->user_n = p->bytes = 0;
    buf_clear(&p->kinds);
    if (lost || PQexitPipelineMode(pg->c) != 1) {
        pg_disconnect(pg); /* the server's last words, if any, say why */
        if (failed != NULL || pg->watched || pg->timed_out)
            return tell(pg, failed != NULL ? kind : PIPE_USER, failed, e);
        return pg_fail(pg, NULL, e, "store");
    }
    return failed == NULL ? PAWL_OK : tell(pg, kind, failed, e);
}

/* --- asked ahead --- */

/* Everything that is bound, with lengths: two bindings are the same if these are. */
static void fingerprint(const struct pg_query *q, struct buf *out)
{
    buf_clear(out);
    for (int i = 0; i < q->params; i++) {
        const size_t n = q->v[i] == NULL ? 0 : q->fmt[i] == 0 ? strlen(q->v[i]) : (size_t)q->len[i];

        buf_printf(out, q->v[i] == NULL ? "-" : "%zu:", n);
        buf_put(out, q->v[i], n);
    }
}

enum pawl_rc pg_ahead(struct db *db, struct query *q_, struct pawl_error *e)
{
    struct pg *pg = pg_from(db);
    struct pg_query *q = (struct pg_query *)(void *)q_;

    for (int i = 0; i < PG_AHEAD; i++) {
        struct pg_ahead *a = &pg->ahead[i];

        if (a->q != NULL)
            continue;
        fingerprint(q, &a->bound);
        if (a->bound.failed)
            return pawl_fail(e, PAWL_NOMEM, "out of memory");
        const enum pawl_rc rc = pg_tune(pg, true, e);
        if (rc != PAWL_OK)
            return rc;
        a->q = q;
        return pg_pipe_send(pg, PIPE_AHEAD + i, q->name, q->text, q->params, q->v, q->len, q->fmt,
                            e);
    }
    return PAWL_OK; /* no room: it is asked when it is needed */
}

PGresult *pg_ahead_take(struct pg *pg, const struct pg_query *q, enum pawl_rc *rc,
                        struct pawl_error *e)
{
    struct buf bound = {0};
    PGresult *r = NULL;

    *rc = PAWL_OK;
    for (int i = 0; i < PG_AHEAD && r == NULL && *rc == PAWL_OK; i++) {
        struct pg_ahead *a = &pg->ahead[i];

        if (a->q != q)
            continue;
        fingerprint(q, &bound);
        if (bound.failed || bound.n != a->bound.n ||
            (bound.n > 0 && memcmp(bound.data, a->bound.data, bound.n) != 0))
            continue;
        if (a->r == NULL)
            *rc = pg_pipe_end(pg, NULL, e);
        r = a->r;
        a->r = NULL;
        a->q = NULL;
    }
    buf_free(&bound);
    return r;
}

void pg_ahead_clear(struct pg *pg, bool for_good)
{
    for (int i = 0; i < PG_AHEAD; i++) {
        struct pg_ahead *a = &pg->ahead[i];

        PQclear(a->r);
        a->r = NULL;
        a->q = NULL;
        if (for_good)
            buf_free(&a->bound);
    }
    if (for_good)
        buf_free(&pg->pipe.kinds);
}
