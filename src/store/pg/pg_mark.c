// SPDX-License-Identifier: Apache-2.0
/* pg_mark.c - what other hosts are told on a connection of its own: the last words of an effect
 * batch, should this host be lost with its files (which jobs whose handlers can end the process are
 * in it); and that we are here, while the other connection waits.
 *
 * How:   one UPDATE of the worker's row per batch, on a connection of its own and without waiting
 *        for the disk or the answer: it must be there while the batch's transaction is open, and
 *        needs not outlive the server. It does not say which job is in hand: all of them become
 *        suspects, run alone, and a batch of one says it.
 *        Nothing of it outlasts the statement on the session, which a pooler may share.
 * Keeps: nothing depends on it. Where it cannot be written nobody is charged, as without it, and
 *        the batch goes on: after half a second for a connection, at most once in ten.
 */
#include <inttypes.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include "store/pg/pg.h"

#define RETRY_US 10000000  /* before a connection that failed is tried again */
#define CONNECT_US 500000  /* for a connection: without one the batch goes on */
#define WAIT_US 20000      /* so long we may be without a sign of life in a wait */
#define LAG_US 100000      /* for the answer to the one before; behind a pooler: to this one */

/* The settings are the statement's own: a pooler may give the session to others. */
#define MARK_SQL                                                                                  \
    "UPDATE pawl.x_worker SET mark = $2 FROM (SELECT set_config('synchronous_commit', 'off',"     \
    " true), set_config('lock_timeout', '1000', true)) AS s WHERE id = $1"

/* By the server's clock, when it comes to it: it may wait, too. */
#define BEAT_SQL                                                                                  \
    "UPDATE pawl.x_worker SET beat_at_us ="                                                       \
    " (extract(epoch FROM clock_timestamp()) * 1000000)::bigint"                                  \
    " FROM (SELECT set_config('synchronous_commit', 'off', true)) AS s"                           \
    " WHERE id = $1 OR parent = $1"

static int64_t mono(void)
{
    return env_real()->mono_us(env_real()->ctx);
}

static void nothing(void *ctx, const char *text)
{
    (void)ctx;
    (void)text;
}

void pg_mark_close(struct pg *pg)
{
    if (pg->mark != NULL)
        PQfinish(pg->mark);
    pg->mark = NULL;
    pg->mark_sent = false;
}

/* libpq's own PQconnectdb waits for whole seconds, and for each address anew. */
static bool mark_connected(PGconn *c)
{
    const int64_t until = mono() + CONNECT_US;
    PostgresPollingStatusType s = PGRES_POLLING_WRITING;

    if (c == NULL || PQstatus(c) == CONNECTION_BAD)
        return false;
    PQsetNoticeProcessor(c, nothing, NULL);
    while (s != PGRES_POLLING_OK && s != PGRES_POLLING_FAILED) {
        struct pollfd p = { .fd = PQsocket(c), .events = s == PGRES_POLLING_READING ? POLLIN
                                                                                    : POLLOUT };
        const int64_t left = until - mono();

        if (left <= 0)
            return false;
        if (poll(&p, 1, (int)((left + 999) / 1000)) > 0)
            s = PQconnectPoll(c);
    }
    return s == PGRES_POLLING_OK && PQsetnonblocking(c, 1) == 0;
}

/* To the address that the batch's own connection has: no name is looked up, no host is chosen. */
static bool mark_open(struct pg *pg)
{
    static const char *const key[] = { "fallback_application_name", "client_encoding", "dbname",
                                       "host", "port", "hostaddr", NULL };

    if (pg->mark != NULL)
        return true;
    if (pg->c == NULL || pg->mark_retry_us > mono())
        return false;
    const char *const val[] = { "pawl", "UTF8", pg->url, PQhost(pg->c), PQport(pg->c),
                                PQhostaddr(pg->c), NULL };
    pg->mark_retry_us = mono() + RETRY_US;
    pg->mark = PQconnectStartParams(key, val, 1);
    if (mark_connected(pg->mark))
        return true;
    pg_mark_close(pg);
    return false;
}

/* The answer to the last one, which has come long ago. false: the connection is of no use. */
static bool mark_answered(struct pg *pg)
{
    const int64_t until = mono() + LAG_US;
    bool ok = PQconsumeInput(pg->mark) == 1;
    PGresult *r;

    while (ok && pg->mark_sent && (PQisBusy(pg->mark) || PQflush(pg->mark) > 0)) {
        const int64_t left = until - mono();

        ok = left > 0 && pg_turn(pg->mark, left);
    }
    while (ok && pg->mark_sent && (r = PQgetResult(pg->mark)) != NULL) {
        ok = PQresultStatus(r) == PGRES_COMMAND_OK;
        PQclear(r);
    }
    pg->mark_sent = false;
    return ok && PQstatus(pg->mark) == CONNECTION_OK;
}

/* Without a name: the statement is nobody's but this batch's. */
static void send(struct pg *pg, const char *text)
{
    const char *const v[] = { pg->d.side.id, text };

    if (pg->mark != NULL && !mark_answered(pg))
        pg_mark_close(pg);
    if (!mark_open(pg))
        return;
    pg->mark_sent = PQsendQueryParams(pg->mark, MARK_SQL, 2, NULL, v, NULL, NULL, 0) == 1;
    if (!pg->mark_sent || PQflush(pg->mark) < 0 ||
        /* A pooler drops what it has not passed on yet of a client that is gone. */
        (pg->pooled && text != NULL && !mark_answered(pg)))
        pg_mark_close(pg);
}

/* Nobody waits for it: the one before may wait for a lock still, and is as good then. */
static void send_beat(struct pg *pg)
{
    const char *const v[] = { pg->d.side.id };

    if (pg->mark != NULL && pg->mark_sent && PQconsumeInput(pg->mark) == 1 && PQisBusy(pg->mark))
        return;
    if (pg->mark != NULL && !mark_answered(pg))
        pg_mark_close(pg);
    if (!mark_open(pg))
        return;
    pg->mark_sent = PQsendQueryParams(pg->mark, BEAT_SQL, 1, NULL, v, NULL, NULL, 0) == 1;
    if (!pg->mark_sent || PQflush(pg->mark) < 0)
        pg_mark_close(pg);
}

int64_t pg_still_here(struct pg *pg, int64_t waited_us)
{
    const struct side *side = &pg->d.side;

    if (side->w == NULL || side->runner)
        return INT64_MAX; /* there is nobody to miss us; its supervisor beats for a runner */
    const int64_t third = side->w->lease_us / 3;
    const int64_t since = env_real()->boot_us(env_real()->ctx) -
                          atomic_load(&side->w->beat_boot_us);
    const int64_t due = since < third ? third - since : 0;
    if (due > 0 || waited_us < WAIT_US) /* an answer that comes at once is no wait */
        return due > WAIT_US ? due : WAIT_US;
    side_beat(side);
    /* A user's statement takes its time; where the store does, others may wait for it as we do. */
    if (!pg->watched && waited_us >= third)
        pg->d.judge_at_us = pg->d.env->boot_us(pg->d.env->ctx) + side->w->lease_us;
    send_beat(pg);
    return third;
}

/* "nonce alone", then for each job how much its id is above the one before, and its runs. */
void pg_mark(struct db *db, uint64_t nonce, bool alone, const struct job *jobs, size_t n)
{
    struct pg *pg = pg_from(db);
    struct buf text = {0};
    int64_t last = 0;

    if (db->side.id[0] == '\0')
        return;
    buf_printf(&text, "%016" PRIx64 " %d", nonce, alone);
    for (size_t i = 0; i < n; i++) {
        buf_printf(&text, " %" PRId64 ":%" PRId64, jobs[i].id - last, jobs[i].n.runs);
        last = jobs[i].id;
    }
    if (n == 0)
        send(pg, NULL);
    else if (!text.failed)
        send(pg, buf_str(&text));
    buf_free(&text);
}

static bool parse(const char *s, struct side_blame *b)
{
    char *end;
    int64_t id = 0;

    memset(b, 0, sizeof *b);
    b->nonce = strtoull(s, &end, 16);
    if (*end != ' ')
        return false;
    b->alone = (uint32_t)strtoul(end, &end, 10);
    while (*end == ' ' && b->n < LIMIT_BATCH) {
        id += strtoll(end, &end, 10);
        if (*end != ':')
            return false;
        b->jobs[b->n].id = id;
        b->jobs[b->n++].runs = strtoll(end + 1, &end, 10);
    }
    b->kind = BLAME_EFFECT;
    b->hand = b->n - 1; /* of none of them is it known that it was not in hand */
    atomic_store(&b->phase, BLAME_COMMIT);
    return b->n > 0 && *end == '\0';
}

enum pawl_rc pg_marked(struct db *db, const char *id, struct side_blame *b, bool *found,
                       struct pawl_error *e)
{
    struct query *q = NULL;
    bool row = false;
    enum pawl_rc rc = pg_prepare(db, "SELECT mark FROM pawl_x_worker WHERE id = ?1 FOR UPDATE", &q,
                                 e);

    *found = false;
    if (rc != PAWL_OK)
        return rc;
    q_text(q, 1, id);
    if ((rc = pg_row(db, q, &row, e)) == PAWL_OK && row && !q_is_null(q, 0))
        *found = parse(q_str(q, 0), b);
    q_free(q);
    return rc;
}
