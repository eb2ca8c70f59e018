// SPDX-License-Identifier: Apache-2.0
/* pg_bulk.c - many new requests with six statements instead of three each.
 *
 * Keeps: the ledger's primary key is the check here, too. If one of the keys is known, twice in the
 *        call, or comes by another transaction meanwhile, all of it is undone, and the requests are
 *        stored one by one.
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

/* A statement with these arrays; *n: rows it wrote, or the number it answers. */
static enum pawl_rc with(struct bulk *k, int id, const int *arrays, int arrays_n, int64_t *n,
                         struct pawl_error *e)
{
    struct db *db = &k->pg->d;
    struct query *q = NULL;
    bool row = false;
    enum pawl_rc rc = pg_named(db, id, &q, e);

    if (rc != PAWL_OK)
        return rc;
    for (int i = 0; i < arrays_n; i++)
        pg_bind_plain(q, i + 1, buf_str(&k->b[arrays[i]]));
    if (id == PQ_JOBS_ADD)
        q_int(q, arrays_n + 1, k->now_us);
    rc = pg_row(db, q, &row, e);
    if (rc == PAWL_OK)
        *n = row ? q_i64(q, 0) : k->pg->changed_n;
    q_reset(q);
    return rc;
}

static enum pawl_rc take_ids(struct bulk *k, struct pawl_enqueued *out, struct pawl_error *e)
{
    struct query *q = NULL;
    bool row = true;
    size_t i = 0;
    enum pawl_rc rc = pg_named(&k->pg->d, PQ_IDS, &q, e);

    if (rc != PAWL_OK)
        return rc;
    q_int(q, 1, (int64_t)k->n);
    while ((rc = pg_row(&k->pg->d, q, &row, e)) == PAWL_OK && row && i < k->n) {
        out[i].id = q_i64(q, 0);
        pg_put_int(&k->b[ID], out[i++].id);
    }
    q_reset(q);
    if (rc == PAWL_OK && i < k->n)
        rc = pawl_fail(e, PAWL_STORE, "the sequence of job ids gave %zu of %zu", i, k->n);
    buf_putc(&k->b[ID], '}');
    return rc;
}

/* Undone is only what was written since the savepoint. */
static enum pawl_rc undo(struct bulk *k, struct pawl_enqueued *out, struct pawl_error *e)
{
    memset(out, 0, k->n * sizeof *out);
    return pg_exec(k->pg, "ROLLBACK TO pawl_bulk", e);
}

static enum pawl_rc store_all(struct bulk *k, struct pawl_enqueued *out, bool *done,
                              struct pawl_error *e)
{
    static const int known[] = { TASK, SOURCE, KEY }, keys[] = { ID, TASK, SOURCE, KEY },
        ready[] = { ID, TASK, QUEUE, RANK, RUN_AT },
        jobs[] = { ID, TASK, QUEUE, SOURCE, KEY, ARGS, HEADERS, TRACE, ENTITY, VERSION, PRIORITY,
                   RETRIES, RUN_AT, EXPIRES };
    int64_t n = 0;
    enum pawl_rc rc;

    if (k->keyed > 0 && ((rc = with(k, PQ_KEYS_KNOWN, known, 3, &n, e)) != PAWL_OK || n > 0))
        return rc;
    if ((rc = take_ids(k, out, e)) != PAWL_OK ||
        (rc = pg_exec(k->pg, "SAVEPOINT pawl_bulk", e)) != PAWL_OK ||
        (rc = with(k, PQ_JOBS_ADD, jobs, 14, &n, e)) != PAWL_OK)
        return rc;
    if (k->keyed > 0 && ((rc = with(k, PQ_KEYS_ADD, keys, 4, &n, e)) != PAWL_OK ||
                         n != (int64_t)k->keyed))
        return rc != PAWL_OK ? rc : undo(k, out, e);
    if ((rc = with(k, PQ_READY_ADD, ready, 5, &n, e)) != PAWL_OK)
        return rc;
    *done = true;
    return pg_exec(k->pg, "RELEASE pawl_bulk", e);
}

enum pawl_rc pg_bulk(struct pg *pg, const struct pawl_request *req, size_t n, int64_t now_us,
                     struct db_memo *memo, struct pawl_enqueued *out, size_t *bad_i, bool *done,
                     struct pawl_error *e)
{
    struct bulk k = { .pg = pg, .n = n, .now_us = now_us };
    enum pawl_rc rc = PAWL_OK;
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
