// SPDX-License-Identifier: Apache-2.0
/* pg_door.c - requests in the caller's own transaction, on the caller's own connection.
 *
 * How: one statement for all of them, pawl.x_enqueue_many, with binary parameters: arrays of the
 *      bytes as they are. So nothing depends on client_encoding, DateStyle, bytea_output or
 *      standard_conforming_strings, and no name on search_path.
 * Keeps: what the connection is: no statement stays prepared, no setting is changed, its blocking
 *        mode, notices and notifications are left alone; a result that waits is not thrown away.
 * Never: begins, commits or rolls back; waits with a limit of its own: the caller's settings rule.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/err.h"
#include "core/limits.h"
#include "store/pg/pg.h"

enum { TASK, ARGS, KEY, SOURCE, QUEUE, PRIORITY, RUN_AT, EXPIRES, RETRIES, ENTITY, VERSION,
       HEADERS, TRACE, PARAMS };
enum { OID_BYTEA = 17, OID_INT8 = 20, OID_INT4 = 23 };
/* What each parameter is an array of. */
static const struct { Oid element, array; } types[PARAMS] = {
    [TASK] = { OID_BYTEA, 1001 }, [ARGS] = { OID_BYTEA, 1001 }, [KEY] = { OID_BYTEA, 1001 },
    [SOURCE] = { OID_BYTEA, 1001 }, [QUEUE] = { OID_BYTEA, 1001 }, [PRIORITY] = { OID_INT4, 1007 },
    [RUN_AT] = { OID_INT8, 1016 }, [EXPIRES] = { OID_INT8, 1016 }, [RETRIES] = { OID_INT4, 1007 },
    [ENTITY] = { OID_BYTEA, 1001 }, [VERSION] = { OID_INT8, 1016 },
    [HEADERS] = { OID_BYTEA, 1001 }, [TRACE] = { OID_BYTEA, 1001 },
};
static const char statement[] =
    "SELECT at, id, created, known, state FROM pawl.x_enqueue_many"
    "($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13)";

/* --- the parameters: arrays as the server sends and receives them in binary --- */

static void put_be(struct buf *b, uint64_t v, int bytes)
{
    for (int i = bytes - 1; i >= 0; i--)
        buf_putc(b, (char)(unsigned char)(v >> (8 * i)));
}

static void put_null(struct buf *b)
{
    put_be(b, UINT32_MAX, 4);
}

static void put_bytes(struct buf *b, const char *s, size_t n)
{
    if (s == NULL) {
        put_null(b);
        return;
    }
    put_be(b, n, 4);
    buf_put(b, s, n);
}

static void put_text(struct buf *b, const char *s)
{
    put_bytes(b, s, s != NULL ? strlen(s) : 0);
}

static void put_int(struct buf *b, bool has, int64_t v, int bytes)
{
    if (!has) {
        put_null(b);
        return;
    }
    put_be(b, (uint64_t)bytes, 4);
    put_be(b, (uint64_t)v, bytes);
}

static void put_head(struct buf *b, Oid element, size_t n)
{
    put_be(b, 1, 4); /* dimensions */
    put_be(b, 1, 4); /* there may be nulls */
    put_be(b, element, 4);
    put_be(b, n, 4);
    put_be(b, 1, 4); /* of the first index */
}

static void put_request(struct buf *b, const struct pawl_request *r)
{
    put_text(&b[TASK], r->task);
    put_bytes(&b[ARGS], r->args, r->args_bytes);
    put_text(&b[KEY], r->key);
    put_text(&b[SOURCE], r->source);
    put_text(&b[QUEUE], r->queue);
    put_int(&b[PRIORITY], r->has_priority, r->priority, 4);
    put_int(&b[RUN_AT], r->run_at_us != 0, r->run_at_us, 8);
    put_int(&b[EXPIRES], r->expires_at_us != 0, r->expires_at_us, 8);
    put_int(&b[RETRIES], r->has_max_retries, r->max_retries, 4);
    put_text(&b[ENTITY], r->entity);
    put_int(&b[VERSION], r->has_version, r->version, 8);
    put_text(&b[HEADERS], r->headers);
    put_text(&b[TRACE], r->trace);
}

/* --- what the server says --- */

/* A connection that is in the middle of something is left there. */
static enum pawl_rc usable(PGconn *c, bool *own, struct pawl_error *e)
{
    if (PQstatus(c) != CONNECTION_OK)
        return pawl_fail(e, PAWL_IO, "this connection is not open: %s", PQerrorMessage(c));
    if (PQpipelineStatus(c) != PQ_PIPELINE_OFF)
        return pawl_fail(e, PAWL_BADARG, "this connection is in pipeline mode: read its results to"
                         " the end and leave it with PQexitPipelineMode");
    switch (PQtransactionStatus(c)) {
    case PQTRANS_ACTIVE:
        return pawl_fail(e, PAWL_BUSY, "a statement of yours is not finished on this connection:"
                         " call PQgetResult until it returns NULL (a COPY: to its end)");
    case PQTRANS_INERROR:
        return pawl_fail_native(e, PAWL_SQL, pg_native("25P02"), "this transaction is aborted: a"
                                " statement of it failed before; ROLLBACK, or ROLLBACK TO a"
                                " savepoint");
    case PQTRANS_UNKNOWN:
        return pawl_fail(e, PAWL_IO, "this connection is broken: %s", PQerrorMessage(c));
    case PQTRANS_IDLE: case PQTRANS_INTRANS: break;
    }
    *own = PQtransactionStatus(c) == PQTRANS_IDLE;
    return PAWL_OK;
}

static bool begins(const char *text, const char *with)
{
    return strncmp(text, with, strlen(with)) == 0;
}

static const char *field(const PGresult *r, int which)
{
    const char *text = PQresultErrorField(r, which);

    return text != NULL ? text : "";
}

/* "Key ... of task ... belongs to job 7." */
static long long owner_of(const char *detail)
{
    static const char words[] = "belongs to job ";
    const char *at = NULL;

    for (const char *s = detail; (s = strstr(s, words)) != NULL; s++)
        at = s + sizeof words - 1;
    return at != NULL ? strtoll(at, NULL, 10) : 0;
}

static enum pawl_rc clash(const PGresult *r, const struct pawl_request *q, struct pawl_error *e)
{
    char by[40] = "";
    const long long id = owner_of(field(r, PG_DIAG_MESSAGE_DETAIL));

    if (id > 0)
        snprintf(by, sizeof by, " by job %lld", id);
    return pawl_fail_native(e, PAWL_KEYCLASH, pg_native("PWKEY"), "key \"%s\" of task %s was used"
                            " before with other args%s; send the same bytes, or a new key",
                            q->key != NULL ? q->key : "", q->task, by);
}

/* The server looked for our function and has none like it; not: a trigger looked for one. */
static enum pawl_rc no_door(const PGresult *r, const char *state, struct pawl_error *e)
{
    if (*field(r, PG_DIAG_CONTEXT) != '\0')
        return PAWL_OK;
    if (begins(state, "3F000"))
        return pawl_fail_native(e, PAWL_NOTOURS, pg_native(state), "the database of this connection"
                                " has no Pawl store; run pawl_init on it, or connect to the store's"
                                " own");
    if (begins(state, "42883"))
        return pawl_fail_native(e, PAWL_OLDER, pg_native(state), "the functions of this store are"
                                " not those of this libpawl (" PAWL_VERSION "): run pawl init");
    return PAWL_OK;
}

/* It was sent, and no answer came that says what became of it. */
static enum pawl_rc unsure(PGconn *c, bool own, struct pawl_error *e)
{
    const bool broken = PQstatus(c) != CONNECTION_OK;

    if (broken && !own)
        return pawl_fail(e, PAWL_IO, "enqueue: the connection was lost, and your transaction with"
                         " it: %s", PQerrorMessage(c));
    if (!own && PQtransactionStatus(c) == PQTRANS_INERROR)
        return pawl_fail(e, PAWL_NOMEM, "enqueue: the statement failed, and why could not be read:"
                         " %s", PQerrorMessage(c));
    return pawl_fail(e, PAWL_UNSURE, "enqueue: whether it was stored cannot be told%s: %s", own
                     ? "; with keys it is safe to ask again" : ", so roll back",
                     PQerrorMessage(c));
}

static enum pawl_rc failed(PGconn *c, const PGresult *r, bool own, const struct pawl_request *req,
                           size_t n, size_t *bad_i, struct pawl_error *e)
{
    const char *state = field(r, PG_DIAG_SQLSTATE), *text = field(r, PG_DIAG_MESSAGE_PRIMARY);
    const long long at = strtoll(field(r, PG_DIAG_COLUMN_NAME), NULL, 10);
    const size_t i = n == 1 ? 0 : at >= 1 && at <= (long long)n ? (size_t)(at - 1) : n;
    enum pawl_rc rc;

    if (*state == '\0' || PQstatus(c) != CONNECTION_OK)
        return unsure(c, own, e);
    if ((rc = no_door(r, state, e)) != PAWL_OK)
        return rc;
    if (begins(state, "PWKEY") && i < n) {
        *bad_i = i;
        return clash(r, &req[i], e);
    }
    if (begins(text, "pawl: ") && begins(state, "22")) {
        *bad_i = i;
        return pawl_fail_native(e, PAWL_BADDATA, pg_native(state), "%s", text + strlen("pawl: "));
    }
    rc = begins(state, "25006") ? PAWL_DENIED : pg_rc_of(state); /* read-only: by its choice */
    return pawl_fail_native(e, rc == PAWL_STORE ? PAWL_SQL : rc, pg_native(state),
                            "enqueue: %s (SQLSTATE %s)", text, state);
}

static enum pawl_state state_named(const char *name)
{
    for (int s = 0; s < PAWL_STATE_N; s++)
        if (strcmp(pawl_state_name((enum pawl_state)s), name) == 0)
            return (enum pawl_state)s;
    return PAWL_STATE_PRUNED;
}

static enum pawl_rc answers(const PGresult *r, size_t n, struct pawl_enqueued *out,
                            struct pawl_error *e)
{
    const int rows = PQntuples(r);

    for (int k = 0; k < rows; k++) {
        const long long at = strtoll(PQgetvalue(r, k, 0), NULL, 10);

        if (at < 1 || at > (long long)n)
            break;
        out[at - 1].id = strtoll(PQgetvalue(r, k, 1), NULL, 10);
        out[at - 1].created = *PQgetvalue(r, k, 2) == 't';
        out[at - 1].task_known = *PQgetvalue(r, k, 3) == 't';
        out[at - 1].state = state_named(PQgetvalue(r, k, 4));
    }
    for (size_t i = 0; i < n; i++)
        if (out[i].id == 0)
            return pawl_fail(e, PAWL_BUG, "request %zu was stored and not answered: roll back", i);
    return PAWL_OK;
}

/* --- the door --- */

static enum pawl_rc send_all(PGconn *c, struct buf *b, bool own, const struct pawl_request *req,
                             size_t n, struct pawl_enqueued *out, size_t *bad_i,
                             struct pawl_error *e)
{
    const char *value[PARAMS];
    int length[PARAMS], format[PARAMS];
    Oid type[PARAMS];
    enum pawl_rc rc;

    for (int i = 0; i < PARAMS; i++) {
        value[i] = b[i].data;
        length[i] = (int)b[i].n;
        format[i] = 1;
        type[i] = types[i].array;
    }
    PGresult *r = PQexecParams(c, statement, PARAMS, type, value, length, format, 0);
    if (r == NULL && PQstatus(c) == CONNECTION_OK && PQtransactionStatus(c) != PQTRANS_ACTIVE)
        rc = pawl_fail(e, PAWL_NOMEM, "enqueue: %s", PQerrorMessage(c)); /* it was not sent */
    else if (r == NULL)
        rc = unsure(c, own, e);
    else if (PQresultStatus(r) != PGRES_TUPLES_OK)
        rc = failed(c, r, own, req, n, bad_i, e);
    else
        rc = answers(r, n, out, e);
    PQclear(r);
    return rc;
}

enum pawl_rc store_enqueue_on(struct pg_conn *c, const struct pawl_request *req, size_t n,
                              struct pawl_enqueued *out, size_t *bad_i, struct pawl_error *e)
{
    struct buf b[PARAMS] = {0};
    size_t bytes = 0;
    bool own = false, no_memory = false;
    enum pawl_rc rc = usable(c, &own, e);

    *bad_i = n;
    if (rc != PAWL_OK)
        return rc;
    for (int i = 0; i < PARAMS; i++)
        put_head(&b[i], types[i].element, n);
    for (size_t k = 0; k < n && bytes <= LIMIT_CALL_BYTES; k++) {
        bytes += req[k].args_bytes + (req[k].headers != NULL ? strlen(req[k].headers) : 0);
        put_request(b, &req[k]);
    }
    for (int i = 0; i < PARAMS; i++)
        no_memory = no_memory || b[i].failed;
    if (bytes > LIMIT_CALL_BYTES)
        rc = pawl_fail(e, PAWL_TOOBIG, "the args and headers of one call are more than %d MiB:"
                       " enqueue in several", LIMIT_CALL_BYTES / (1024 * 1024));
    else if (no_memory)
        rc = pawl_fail(e, PAWL_NOMEM, "out of memory");
    else
        rc = send_all(c, b, own, req, n, out, bad_i, e);
    for (int i = 0; i < PARAMS; i++)
        buf_free(&b[i]);
    if (rc != PAWL_OK)
        memset(out, 0, n * sizeof *out);
    return rc;
}
