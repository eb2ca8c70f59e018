// SPDX-License-Identifier: Apache-2.0
/* pg_load.c - many rows into one table: COPY in its binary form, in the open transaction.
 *
 * Keeps: memory is bounded: what was put is sent before more is taken. A load that is given up
 *        closes the connection, which is what rolls the transaction back.
 */
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include "base/err.h"
#include "store/pg/pg.h"
#include "store/verb/mover.h"

enum { SEND_BYTES = 256 * 1024 };
#define STALL_US 60000000LL /* a server that takes nothing for so long is given up */

struct pg_load { struct db_load head; struct buf b; };

static struct pg_load *of(struct db_load *l)
{
    return (struct pg_load *)(void *)l;
}

static void put_be(struct buf *b, uint64_t v, int bytes)
{
    char out[8];

    for (int i = 0; i < bytes; i++)
        out[i] = (char)(v >> 8 * (bytes - 1 - i));
    buf_put(b, out, (size_t)bytes);
}

/* All that was put, sent: nobody answers a COPY before its end, so only that is waited for. false:
 * it broke, the server has something to say, or it takes nothing any more. */
static bool flush(struct pg *pg)
{
    const int64_t until = pg->d.env->mono_us(pg->d.env->ctx) + STALL_US;
    int left;

    while ((left = PQflush(pg->c)) > 0) {
        struct pollfd p = { .fd = PQsocket(pg->c), .events = POLLIN | POLLOUT };
        const int64_t us = until - pg->d.env->mono_us(pg->d.env->ctx);

        if (us <= 0 || (poll(&p, 1, (int)(us / 1000 + 1)) < 0 && errno != EINTR))
            return false;
        if ((p.revents & (POLLIN | POLLHUP | POLLERR)) != 0 && PQconsumeInput(pg->c) != 1)
            return false;
    }
    return left == 0;
}

static enum pawl_rc send(struct pg *pg, struct pg_load *l, struct pawl_error *e)
{
    int put = 0;

    if (l->b.failed)
        return pawl_fail(e, PAWL_NOMEM, "out of memory");
    while (pg->c != NULL && (put = PQputCopyData(pg->c, l->b.data, (int)l->b.n)) == 0)
        if (!flush(pg))
            break;
    buf_clear(&l->b);
    if (put == 1 && flush(pg))
        return PAWL_OK;
    if (pg->c != NULL && PQstatus(pg->c) == CONNECTION_OK)
        pg_disconnect(pg);
    return pg_fail(pg, NULL, e, "store: copy");
}

enum pawl_rc pg_load(struct db *db, const struct db_table *t, struct db_load **out,
                     struct pawl_error *e)
{
    static const char signature[] = "PGCOPY\n\377\r\n"; /* its NUL belongs to it */
    struct pg *pg = pg_from(db);
    struct pg_load *l = calloc(1, sizeof *l);
    struct buf sql = {0};
    PGresult *r = NULL;

    *out = NULL;
    buf_printf(&sql, "COPY pawl.x_%s (", t->name);
    for (int i = 0; i < t->col_n; i++)
        buf_printf(&sql, "%s%s", i > 0 ? ", " : "", t->col[i].name);
    buf_puts(&sql, ") FROM STDIN (FORMAT binary)");
    if (l == NULL || sql.failed) {
        free(l);
        buf_free(&sql);
        return pawl_fail(e, PAWL_NOMEM, "out of memory");
    }
    if (pg->c != NULL && PQsendQuery(pg->c, buf_str(&sql)) == 1 && pg_idle(pg, pg_until(pg)))
        r = PQgetResult(pg->c);
    buf_free(&sql);
    if (PQresultStatus(r) != PGRES_COPY_IN) {
        free(l);
        return pg_fail(pg, r, e, "store: copy");
    }
    PQclear(r);
    l->head = (struct db_load){ db, t };
    buf_put(&l->b, signature, sizeof signature);
    put_be(&l->b, 0, 4);
    put_be(&l->b, 0, 4);
    *out = &l->head;
    return PAWL_OK;
}

enum pawl_rc pg_load_row(struct db_load *load, const struct db_value *v, struct pawl_error *e)
{
    struct pg_load *l = of(load);

    put_be(&l->b, (uint64_t)load->t->col_n, 2);
    for (int i = 0; i < load->t->col_n; i++) {
        const char type = load->t->col[i].type;

        if (v[i].null) {
            put_be(&l->b, UINT32_MAX, 4);
        } else if (type == 'i' || type == 'j') {
            const int bytes = type == 'i' ? 8 : 4;

            put_be(&l->b, (uint64_t)bytes, 4);
            put_be(&l->b, (uint64_t)v[i].i, bytes);
        } else {
            put_be(&l->b, v[i].n, 4);
            buf_put(&l->b, v[i].p, v[i].n);
        }
    }
    return l->b.n < SEND_BYTES ? PAWL_OK : send(pg_from(load->db), l, e);
}

void pg_load_drop(struct db_load *load)
{
    if (load == NULL)
        return;
    pg_disconnect(pg_from(load->db));
    buf_free(&of(load)->b);
    free(load);
}

enum pawl_rc pg_load_end(struct db_load *load, int64_t *n, struct pawl_error *e)
{
    struct pg *pg = pg_from(load->db);
    struct pg_load *l = of(load);
    PGresult *r = NULL;
    int end = 0;

    put_be(&l->b, UINT16_MAX, 2);
    enum pawl_rc rc = send(pg, l, e);
    if (rc == PAWL_OK) {
        while ((end = PQputCopyEnd(pg->c, NULL)) == 0 && flush(pg))
            continue;
        r = end == 1 ? pg_wait(pg, pg_until(pg)) : NULL;
        if (PQresultStatus(r) != PGRES_COMMAND_OK) {
            rc = pg_fail(pg, r, e, "store: copy");
        } else {
            *n = strtoll(PQcmdTuples(r), NULL, 10);
            PQclear(r);
        }
    }
    buf_free(&l->b);
    free(l);
    return rc;
}
