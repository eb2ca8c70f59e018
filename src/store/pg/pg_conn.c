// SPDX-License-Identifier: Apache-2.0
/* pg_conn.c - the connection: open, settings, errors, bounded waits.
 *
 * Keeps: the server is never waited for without a bound. A connection that did not answer in time
 *        is closed, so that nothing that comes late can be taken for the answer to something else.
 */
#include <assert.h>
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "base/err.h"
#include "store/pg/pg.h"

#define VERSION_MIN 140000
#define GRACE_US 5000000   /* beyond the patience with a lock: then the connection is given up */
#define TICK_US 20000      /* a user's statement: how often its time limit is looked at */

static int64_t mono(const struct pg *pg)
{
    return pg->d.env->mono_us(pg->d.env->ctx);
}

int64_t pg_until(const struct pg *pg)
{
    return mono(pg) + pg->wait_us + GRACE_US;
}

/* --- errors --- */

int pg_native(const char *state)
{
    int n = 0;

    for (int i = 0; i < 5 && state[i] != '\0'; i++) {
        const char c = state[i];
        n = n * 36 + (c >= '0' && c <= '9' ? c - '0' : c >= 'A' && c <= 'Z' ? c - 'A' + 10 : 0);
    }
    return n;
}

static bool in_class(const char *state, const char *class)
{
    return strncmp(state, class, strlen(class)) == 0;
}

static bool lost_statement(const char *state)
{
    return in_class(state, "26") || strcmp(state, "42P05") == 0;
}

enum pawl_rc pg_rc_of(const char *state)
{
    if (in_class(state, "40") || in_class(state, "55P03") || in_class(state, "57014"))
        return PAWL_BUSY;
    if (in_class(state, "53100"))
        return PAWL_FULL;
    if (in_class(state, "08") || in_class(state, "57P") || in_class(state, "53") ||
        lost_statement(state) || /* the new connection does without */
        in_class(state, "25006")) /* it was made a standby: another one takes writes, or will */
        return PAWL_IO;
    if (in_class(state, "42501") || in_class(state, "28"))
        return PAWL_DENIED;
    if (in_class(state, "PWMOV")) /* a closed store's triggers (pg_move.c) */
        return PAWL_MOVED;
    if (in_class(state, "3D000") || in_class(state, "3F000"))
        return PAWL_NOSTORE;
    return PAWL_STORE;
}

enum pawl_rc pg_fail(struct pg *pg, PGresult *r, struct pawl_error *e, const char *what)
{
    const char *state = r != NULL ? PQresultErrorField(r, PG_DIAG_SQLSTATE) : NULL;
    const char *text = r != NULL ? PQresultErrorField(r, PG_DIAG_MESSAGE_PRIMARY) : NULL;
    char msg[512];

    snprintf(pg->state, sizeof pg->state, "%s", state != NULL ? state : "08006");
    if (text == NULL)
        text = pg->c != NULL ? PQerrorMessage(pg->c) : "";
    pg_one_line(msg, sizeof msg, *text != '\0' ? text : "the connection to the server was lost");
    const enum pawl_rc rc = pg_rc_of(pg->state);
    pawl_fail_native(e, rc, pg_native(pg->state), "%s: %s (SQLSTATE %s)", what, msg, pg->state);
    PQclear(r);
    /* A prepared statement is not there, or already: who answers is not who prepared it. */
    pg->pool_seen = pg->pool_seen || lost_statement(pg->state);
    /* A user's statement (what is "") may be refused as one that writes for reasons of its own. */
    if (pg->c != NULL && (PQstatus(pg->c) != CONNECTION_OK || lost_statement(pg->state) ||
                          (in_class(pg->state, "25006") && *what != '\0')))
        pg_disconnect(pg);
    return rc;
}

bool pg_spoiled(const struct pg *pg)
{
    return pg->c == NULL || PQtransactionStatus(pg->c) == PQTRANS_INERROR;
}

/* --- waiting --- */

bool pg_turn(PGconn *c, int64_t us)
{
    const int left = PQflush(c);
    struct pollfd p = { .fd = PQsocket(c),
                        .events = (short)(left > 0 ? POLLIN | POLLOUT : POLLIN) };

    if (left < 0 || p.fd < 0)
        return false;
    if (us > 0 && poll(&p, 1, (int)((us + 999) / 1000)) < 0 && errno != EINTR)
        return false;
    return (p.revents & (POLLIN | POLLHUP | POLLERR)) == 0 || PQconsumeInput(c) == 1;
}

/* A user's statement has a time limit of its own. */
static bool overdue(struct pg *pg)
{
    if (pg->stop != NULL && *pg->stop != 0)
        return true;
    if (pg->deadline_us == 0 || mono(pg) < pg->deadline_us)
        return false;
    pg->timed_out = true;
    return true;
}

/* libpq had no memory for an answer that it read: it goes on waiting for it. Its own words stand
 * alone then; a server that has none says ERROR before them. */
static bool starved(const PGconn *c)
{
    static const char words[] = "out of memory";

    return strncmp(PQerrorMessage(c), words, sizeof words - 1) == 0;
}

/* Too late is the end of the connection: the server looks once a second whether we are there, and
 * ends what nobody waits for. A cancel would need a connection of its own, which libpq opens
 * without a bound: where the network is the trouble, that hangs as well. */
bool pg_idle(struct pg *pg, int64_t until_us)
{
    const bool watched = pg->watched && (pg->deadline_us != 0 || pg->stop != NULL);
    int64_t from_us = 0;

    while (PQisBusy(pg->c) || PQflush(pg->c) > 0) {
        const int64_t now = mono(pg), left = until_us - now;

        if (from_us == 0)
            from_us = now;
        const int64_t most = pg_still_here(pg, now - from_us);
        const int64_t us = watched && most > TICK_US ? TICK_US : most;

        if (left <= 0 || (watched && overdue(pg)) || starved(pg->c) ||
            !pg_turn(pg->c, left < us ? left : us))
            return false;
    }
    return true;
}

PGresult *pg_wait(struct pg *pg, int64_t until_us)
{
    PGresult *got = NULL, *r;

    if (pg->c == NULL)
        return NULL;
    for (;;) {
        if (!pg_idle(pg, until_us)) {
            pg_disconnect(pg);
            if (PQresultStatus(got) == PGRES_FATAL_ERROR)
                return got; /* why the server, or a pooler, has closed it */
            PQclear(got);
            return NULL;
        }
        if ((r = PQgetResult(pg->c)) == NULL)
            break;
        if (got != NULL && PQresultStatus(got) == PGRES_FATAL_ERROR) {
            PQclear(r); /* the first error is the one to tell */
            continue;
        }
        PQclear(got);
        got = r;
    }
    if (PQstatus(pg->c) != CONNECTION_OK && got != NULL &&
        PQresultStatus(got) != PGRES_FATAL_ERROR) {
        PQclear(got);
        got = NULL;
    }
    return got;
}

enum pawl_rc pg_exec(struct pg *pg, const char *sql, struct pawl_error *e)
{
    PGresult *r;
    enum pawl_rc rc = pg->begin_due ? pg_pipe_open(pg, e) : PAWL_OK;

    if (rc != PAWL_OK || (rc = pg_pipe_end(pg, NULL, e)) != PAWL_OK)
        return rc;
    if (pg->c == NULL || PQsendQuery(pg->c, sql) != 1)
        return pg_fail(pg, NULL, e, "store");
    r = pg_wait(pg, pg_until(pg));
    const ExecStatusType s = PQresultStatus(r);
    if (r == NULL || (s != PGRES_COMMAND_OK && s != PGRES_TUPLES_OK && s != PGRES_EMPTY_QUERY))
        return pg_fail(pg, r, e, "store");
    PQclear(r);
    return PAWL_OK;
}

/* --- the clock --- */

static int64_t server_now(void *ctx)
{
    const struct pg *pg = ctx;

    return env_real()->mono_us(env_real()->ctx) + pg->ahead_us;
}

static int64_t own_mono(void *ctx) { (void)ctx; return env_real()->mono_us(env_real()->ctx); }
static int64_t own_boot(void *ctx) { (void)ctx; return env_real()->boot_us(env_real()->ctx); }
static uint64_t own_random(void *ctx) { (void)ctx; return env_real()->random(env_real()->ctx); }

/* Half of the way there and back is taken for the way back. */
enum pawl_rc pg_ask_clock(struct pg *pg, struct pawl_error *e)
{
    const int64_t before = own_mono(NULL);
    PGresult *r = NULL;

    if (PQsendQuery(pg->c, "SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint") == 1)
        r = pg_wait(pg, pg_until(pg));
    if (PQresultStatus(r) != PGRES_TUPLES_OK)
        return pg_fail(pg, r, e, "store: the server's clock");
    const int64_t after = own_mono(NULL);
    pg->ahead_us = strtoll(PQgetvalue(r, 0, 0), NULL, 10) - (before + (after - before) / 2);
    pg->clock_at_us = after;
    PQclear(r);
    return PAWL_OK;
}

void pg_clock_init(struct pg *pg)
{
    pg->env = (struct env){ .wall_us = server_now, .mono_us = own_mono, .boot_us = own_boot,
                            .random = own_random, .ctx = pg };
    pg->ahead_us = env_real()->wall_us(env_real()->ctx) - own_mono(NULL); /* until it is asked */
}

enum pawl_rc pg_clock_again(struct pg *pg, struct pawl_error *e)
{
    enum pawl_rc rc;

    if (own_mono(NULL) - pg->clock_at_us < 60000000)
        return PAWL_OK;
    if (!pg->pooled)
        return pg_ask_clock(pg, e);
    /* Inside a transaction: the wait for a connection of the pool is not the way there and back. */
    if ((rc = pg_exec(pg, "BEGIN", e)) == PAWL_OK && (rc = pg_ask_clock(pg, e)) == PAWL_OK)
        rc = pg_exec(pg, "ROLLBACK", e);
    return rc;
}

/* --- opening --- */

enum pawl_rc pg_durable(struct pg *pg, struct pawl_error *e)
{
    PGresult *r = NULL;
    bool off;

    if (PQsendQuery(pg->c, "SELECT current_setting('synchronous_commit'),"
                           " current_setting('plan_cache_mode')") == 1)
        r = pg_wait(pg, pg_until(pg));
    if (PQresultStatus(r) != PGRES_TUPLES_OK)
        return pg_fail(pg, r, e, "store: synchronous_commit");
    off = strcmp(PQgetvalue(r, 0, 0), "off") == 0;
    snprintf(pg->plan_mode, sizeof pg->plan_mode, "%s", PQgetvalue(r, 0, 1));
    PQclear(r);
    return off ? pawl_fail(e, PAWL_STORE, "synchronous_commit is off in this session: a commit"
                           " would not be on disk; take it out of on_connect") : PAWL_OK;
}

/* A host that vanished must not keep its row locks longer than its lease: idle_in_transaction, and
 * what the server does about a dead peer. A commit must be on disk: off is turned on. */
static enum pawl_rc settings(struct pg *pg, struct pawl_error *e)
{
    const long long lease_ms = pg->d.lease_us / 1000, wait_ms = pg->wait_us / 1000;
    const int keep_s = lease_ms < 8000 ? 1 : lease_ms > 20000 ? 5 : (int)(lease_ms / 4000);
    char sql[1024];
    enum pawl_rc rc;

    snprintf(sql, sizeof sql, "SET client_min_messages = warning; SET DateStyle = ISO;"
             " SET standard_conforming_strings = on; SET bytea_output = hex; SET IntervalStyle ="
             " postgres; SET lock_timeout = %lld; SET idle_in_transaction_session_timeout = %lld;"
             " SET tcp_keepalives_idle = %d; SET tcp_keepalives_interval = %d;"
             " SET tcp_keepalives_count = 3; SET tcp_user_timeout = %lld;"
             " SET client_connection_check_interval = 1000;"
             " SELECT set_config('synchronous_commit', 'on', false)"
             " WHERE current_setting('synchronous_commit') = 'off'", wait_ms, lease_ms,
             keep_s, keep_s, lease_ms);
    if ((rc = pg_exec(pg, sql, e)) != PAWL_OK)
        return rc;
    for (size_t i = 0; i < pg->on_connect_n; i++)
        if ((rc = pg_exec(pg, pg->on_connect[i], e)) != PAWL_OK)
            return pawl_wrap(e, "on_connect \"%.60s\"", pg->on_connect[i]);
    /* on_connect is the user's: what durability rests on is read back after it. */
    return pg_durable(pg, e);
}

static enum pawl_rc open_it(struct pg *pg, struct pawl_error *e)
{
    char user_ms[24];
    /* Before the URL, which wins over them. */
    const char *const key[] = { "fallback_application_name", "connect_timeout", "client_encoding",
                                "keepalives_idle", "keepalives_interval", "keepalives_count",
                                "tcp_user_timeout", "target_session_attrs", "dbname", NULL };
    const char *const val[] = { "pawl", pg_connect_timeout(pg->url), "UTF8", "5", "5", "3",
                                user_ms, "read-write", pg->url, NULL };

    snprintf(user_ms, sizeof user_ms, "%lld", (long long)(pg->d.lease_us / 1000));
    pg->c = PQconnectdbParams(key, val, 1);
    if (pg->c == NULL)
        return pawl_fail(e, PAWL_NOMEM, "out of memory");
    if (PQstatus(pg->c) != CONNECTION_OK) {
        char msg[512];

        pg_one_line(msg, sizeof msg, PQerrorMessage(pg->c));
        pg_disconnect(pg);
        const bool role = strstr(msg, "role \"") != NULL;
        const bool denied = strstr(msg, "authentication failed") != NULL ||
                            strstr(msg, "permission denied") != NULL || role;
        const bool none = !role && strstr(msg, "does not exist") != NULL;
        const bool refused = strstr(msg, "unsupported startup parameter") != NULL;
        return pawl_fail(e, denied ? PAWL_DENIED : none ? PAWL_NOSTORE
                                   : refused ? PAWL_CONFIG : PAWL_IO,
                         "cannot connect to PostgreSQL: %s%s", msg, refused ?
                         ": the pooler does not pass it on: take it out of the URL (and PGOPTIONS),"
                         " or set ignore_startup_parameters in pgbouncer.ini" : "");
    }
    pg_hear(pg);
    if (PQserverVersion(pg->c) < VERSION_MIN) {
        const int v = PQserverVersion(pg->c);

        pg_disconnect(pg);
        return pawl_fail(e, PAWL_NOTOURS, "PostgreSQL %d.%d: Pawl needs 14 or later", v / 10000,
                         v % 10000);
    }
    if (PQsetnonblocking(pg->c, 1) != 0) {
        pg_disconnect(pg);
        return pawl_fail(e, PAWL_NOMEM, "out of memory");
    }
    return PAWL_OK;
}

enum pawl_rc pg_connect(struct pg *pg, bool any_schema, struct pawl_error *e)
{
    enum pawl_rc rc;

    assert(pg->c == NULL && !pg->d.in_tx);
    side_beat(&pg->d.side); /* waiting is not freezing */
    rc = open_it(pg, e);
    side_beat(&pg->d.side);
    if (rc != PAWL_OK)
        return rc;
    if ((rc = pg_ask_who(pg, e)) == PAWL_OK)
        rc = pg->pooled ? pg_pool_try(pg, e) : settings(pg, e);
    if (rc == PAWL_OK && (rc = pg_await_other(pg, e)) == PAWL_OK &&
        (pg->pooled || (rc = pg_ask_clock(pg, e)) == PAWL_OK) && !any_schema)
        rc = pg_version_check(pg, e);
    if (rc == PAWL_OK && !any_schema)
        rc = pg_confirm(pg, e);
    if (rc != PAWL_OK) {
        pg_disconnect(pg);
        return rc;
    }
    if (pg->connected)
        pg->again_us = mono(pg);
    pg->connected = true;
    pg_listen(pg);
    return rc;
}

void pg_disconnect(struct pg *pg)
{
    for (int i = 0; i < PQ_END; i++) {
        pg_query_clear(&pg->named[i]);
        pg->named[i].name[0] = '\0';
    }
    pg_stmt_forget(pg);
    pg_left(pg);
    if (pg->c != NULL)
        PQfinish(pg->c);
    pg->c = NULL;
    pg->pipe.on = pg->begin_due = false;
    buf_clear(&pg->pipe.kinds);
    pg_ahead_clear(pg, false);
}
