// SPDX-License-Identifier: Apache-2.0
/* pg_bulk.c - new requests with a handful of statements, however many they are.
 *
 * Keeps: the ledger's primary key is the check here, too. If one of the keys is known, or twice in
 *        the call, nothing was written yet; if one comes by another transaction meanwhile, the
 *        COMMIT fails with FENCED. Then the requests are stored one by one.
 * How:   the ids are taken while the names are looked up; what is written goes with the COMMIT.
 */
#include <string.h>
#include "base/err.h"
#include "store/pg/pg.h"

enum { ID, TASK, QUEUE, SOURCE, KEY, ARGS, HEADERS, TRACE, ENTITY, VERSION, PRIORITY, RETRIES,
       RUN_AT, EXPIRES, RANK, ARRAYS };

struct bulk {
    struct pg *pg;
    struct buf b[ARRAYS];
    size_t n, keyed;
    int64_t now_us;
};

static void put_opt(struct buf *b, bool has, int64_t v)
{
    if (has)
        pg_put_int(b, v);
    else
        pg_put_text(b, NULL, 0);
}

static void put_str(struct buf *b, const char *s)
{
    pg_put_text(b, s, s != NULL ? strlen(s) : 0);
}

static void put_request(struct bulk *k, const struct pawl_request *r, const struct db_names *n)
{
    const int64_t priority = r->has_priority ? r->priority : n->priority;

    pg_put_int(&k->b[TASK], n->task_id);
    pg_put_int(&k->b[QUEUE], n->queue_id);
    put_str(&k->b[SOURCE], r->source != NULL ? r->source : "");
    put_str(&k->b[KEY], r->key);
    pg_put_text(&k->b[ARGS], r->args, r->args_bytes);
    put_str(&k->b[HEADERS], r->headers);
    put_str(&k->b[TRACE], r->trace);
    put_str(&k->b[ENTITY], r->entity);
    put_opt(&k->b[VERSION], r->has_version, r->version);
    pg_put_int(&k->b[PRIORITY], priority);
    put_opt(&k->b[RETRIES], r->has_max_retries, r->max_retries);
    pg_put_int(&k->b[RUN_AT], r->run_at_us != 0 ? r->run_at_us : k->now_us);
    put_opt(&k->b[EXPIRES], r->expires_at_us != 0, r->expires_at_us);
    pg_put_int(&k->b[RANK], -priority);
    k->keyed += r->key != NULL;
}

static enum pawl_rc bind(struct bulk *k, int id, const int *arrays, int arrays_n, struct query **q,
                         struct pawl_error *e)
{
    const enum pawl_rc rc = pg_named(&k->pg->d, id, q, e);

    for (int i = 0; i < arrays_n && rc == PAWL_OK; i++)
        pg_bind_plain(*q, i + 1, buf_str(&k->b[arrays[i]]));
    return rc;
}

/* A statement with these arrays, and a number behind them, that nobody waits for. */
static enum pawl_rc write(struct bulk *k, int id, const int *arrays, int arrays_n, int64_t number,
                          struct pawl_error *e)
{
    struct query *q = NULL;
    const enum pawl_rc rc = bind(k, id, arrays, arrays_n, &q, e);

    if (rc != PAWL_OK)
        return rc;
    if (id == PQ_JOBS_ADD || id == PQ_KEYS_ADD)
        q_int(q, arrays_n + 1, number);
    ((struct pg_query *)(void *)q)->kind = id == PQ_KEYS_ADD ? PIPE_MUST : PIPE_OWN;
    return pg_run_later(&k->pg->d, q, e);
}

/* Ids for all, asked for while the names are looked up; keyed requests have to be new first. */
static enum pawl_rc ask_ids(struct bulk *k, const struct pawl_request *req, struct pawl_error *e)
{
    struct query *q = NULL;
    bool keyed = false;
    enum pawl_rc rc;

    for (size_t i = 0; i < k->n; i++)
        keyed = keyed || req[i].key != NULL;
    if (keyed || (rc = pg_named(&k->pg->d, PQ_IDS, &q, e)) != PAWL_OK)
        return keyed ? PAWL_OK : rc;
    q_int(q, 1, (int64_t)k->n);
    return pg_ahead(&k->pg->d, q, e);
}

/* *new false: a key is known, as far as can be seen, or there twice. */
static enum pawl_rc take_ids(struct bulk *k, struct pawl_enqueued *out, bool *new,
                             struct pawl_error *e)
{
    static const int known[] = { TASK, SOURCE, KEY };
    struct query *q = NULL;
    bool row = true;
    size_t i = 0;
    enum pawl_rc rc = k->keyed > 0 ? bind(k, PQ_IDS_NEW, known, 3, &q, e)
                                   : pg_named(&k->pg->d, PQ_IDS, &q, e);

    if (rc != PAWL_OK)
        return rc;
    if (k->keyed > 0)
        q_int(q, 4, (int64_t)k->keyed);
    q_int(q, k->keyed > 0 ? 5 : 1, (int64_t)k->n);
    while ((rc = pg_row(&k->pg->d, q, &row, e)) == PAWL_OK && row && i < k->n) {
        out[i].id = q_i64(q, 0);
        pg_put_int(&k->b[ID], out[i++].id);
    }
    q_reset(q);
    *new = i > 0;
    if (rc == PAWL_OK && *new && i < k->n)
        rc = pawl_fail(e, PAWL_STORE, "the sequence of job ids gave %zu of %zu", i, k->n);
    buf_putc(&k->b[ID], '}');
    return rc;
}

static enum pawl_rc store_all(struct bulk *k, struct pawl_enqueued *out, bool *done,
                              struct pawl_error *e)
{
    static const int keys[] = {ID, TASK, SOURCE, KEY}, ready[] = {ID, TASK, QUEUE, RANK, RUN_AT},
                     jobs[] = {ID,    TASK,   QUEUE,   SOURCE,   KEY,     ARGS,   HEADERS,
                               TRACE, ENTITY, VERSION, PRIORITY, RETRIES, RUN_AT, EXPIRES};
    bool new = false;
    enum pawl_rc rc = take_ids(k, out, &new, e);

    if (rc != PAWL_OK || !new)
        return rc;
    if ((rc = write(k, PQ_JOBS_ADD, jobs, 14, k->now_us, e)) != PAWL_OK ||
        (k->keyed > 0 && (rc = write(k, PQ_KEYS_ADD, keys, 4, (int64_t)k->keyed, e)) != PAWL_OK) ||
        (rc = write(k, PQ_READY_ADD, ready, 5, 0, e)) != PAWL_OK)
        return rc;
    *done = true;
    return PAWL_OK;
}

enum pawl_rc pg_bulk(struct pg *pg, const struct pawl_request *req, size_t n, int64_t now_us,
                     struct db_memo *memo, struct pawl_enqueued *out, size_t *bad_i, bool *done,
                     struct pawl_error *e)
{
    struct bulk k = {.pg = pg, .n = n, .now_us = now_us};
    enum pawl_rc rc = ask_ids(&k, req, e);
    bool failed = false;

    *done = false;
    for (size_t i = 0; i < n && rc == PAWL_OK; i++) {
        const struct db_names *names = NULL;

        if ((rc = db_resolve_names(&pg->d, &req[i], memo, &names, e)) != PAWL_OK)
            break;
        if ((rc = db_can_start(&req[i], now_us, e)) != PAWL_OK) {
            *bad_i = i;
            break;
        }
        put_request(&k, &req[i], names);
        out[i].task_known = names->declared;
        memcpy(out[i].near, names->near, sizeof out[i].near);
    }
    for (int i = TASK; i < ARRAYS; i++) {
        buf_putc(&k.b[i], '}');
        failed = failed || k.b[i].failed;
    }
    /* An expiry that is too early may be that of a duplicate: one by one, it is found out. */
    if (rc == PAWL_BADDATA) {
        *bad_i = n;
        rc = PAWL_OK;
    } else if (rc == PAWL_OK) {
        rc = failed ? pawl_fail(e, PAWL_NOMEM, "out of memory") : store_all(&k, out, done, e);
    }
    for (size_t i = 0; i < n && *done; i++) {
        out[i].created = true;
        out[i].state = PAWL_STATE_READY;
    }
    if (!*done)
        memset(out, 0, n * sizeof *out);
    for (int i = 0; i < ARRAYS; i++)
        buf_free(&k.b[i]);
    return rc;
}
