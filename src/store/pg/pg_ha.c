// SPDX-License-Identifier: Apache-2.0
/* pg_ha.c - more than one server: which one is asked, and when what it committed will last.
 *
 * Keeps: a commit that a synchronous standby was to confirm, and whose wait somebody cancelled, is
 *        not told as stored: another small commit has to be confirmed first, which means that all
 *        before it was. The same after a commit in doubt, whatever reading says.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/err.h"
#include "store/pg/pg.h"

#define ALONE_S "10" /* to connect, to each host */
#define ONE_OF_S "3" /* where there are several: one that vanished must not keep us from the next */

const char *pg_connect_timeout(const char *url)
{
    const char *host = getenv("PGHOST");
    PQconninfoOption *o = PQconninfoParse(url, NULL);
    bool several = host != NULL && strchr(host, ',') != NULL;

    for (PQconninfoOption *at = o; at != NULL && at->keyword != NULL; at++)
        if (strncmp(at->keyword, "host", 4) == 0 && at->val != NULL) /* host, hostaddr */
            several = strchr(at->val, ',') != NULL;
    PQconninfoFree(o);
    return several ? ONE_OF_S : ALONE_S;
}

/* libpq says a line for each host, and where it has an advice another one, indented. */
void pg_one_line(char *out, size_t n, const char *said)
{
    size_t at = 0;

    for (const char *s = said; *s != '\0' && at + 3 < n; s++) {
        if (*s != '\n')
            out[at++] = *s;
        else if (s[1] == '\t')
            s++, out[at++] = ' ';
        else if (s[1] != '\0')
            out[at++] = ';', out[at++] = ' ';
    }
    out[at] = '\0';
}

/* Whoever stops or stalls in between (a proxy, a network) may keep the server from seeing for long
 * that we are gone, and in the middle of a message no timeout of the server counts. What was under
 * way is ended by our next connection, or its locks would keep us from our own jobs. */
void pg_left(struct pg *pg)
{
    if (pg->c != NULL && PQtransactionStatus(pg->c) != PQTRANS_IDLE)
        pg_doubt(pg);
    pg->backend_start[0] = '\0';
}

/* Texts are translated; the name of the server's function is not. */
static void heard(void *ctx, const PGresult *r)
{
    struct pg *pg = ctx;
    const char *state = PQresultErrorField(r, PG_DIAG_SQLSTATE);
    const char *where = PQresultErrorField(r, PG_DIAG_SOURCE_FUNCTION);

    if (state != NULL && where != NULL && strcmp(state, "01000") == 0 &&
        strcmp(where, "SyncRepWaitForLSN") == 0)
        pg->unconfirmed = true;
}

void pg_hear(struct pg *pg)
{
    PQsetNoticeReceiver(pg->c, heard, pg);
}

/* Any row of ours will do: what counts is that the commit is written, and waited for. */
enum pawl_rc pg_confirm(struct pg *pg, struct pawl_error *e)
{
    enum pawl_rc rc;

    if (!pg->unconfirmed)
        return PAWL_OK;
    pg->unconfirmed = false;
    rc = pg->pooled ? pg_open_tx(pg, "BEGIN", e) : PAWL_OK; /* as durable as the others */
    if (rc == PAWL_OK)
        rc = pg_exec(pg, "INSERT INTO pawl.x_counter AS c (name, value) VALUES ('probes', 1)"
                     " ON CONFLICT (name) DO UPDATE SET value = c.value + 1", e);
    if (rc == PAWL_OK && pg->pooled)
        rc = pg_exec(pg, "COMMIT", e);
    if (rc == PAWL_OK && pg->unconfirmed)
        rc = pawl_fail(e, PAWL_IO, "its wait was cancelled");
    if (rc == PAWL_OK)
        return PAWL_OK;
    pg->unconfirmed = true; /* until one is */
    return pawl_wrap(e, "the standby has not confirmed a commit");
}
