// SPDX-License-Identifier: Apache-2.0
/* pg_pool.c - behind a pooler, as PgBouncer: transactions that bring their settings along.
 *
 * A pooler that pools transactions gives each of them any of its server connections. Nothing of a
 * session outlives one: no prepared statement, no SET, no LISTEN, no lock of a session.
 *
 * How:   who answers is asked once per connection: the process that serves us is not the one that
 *        the server named when we connected. A pooler in between makes a key of its own for that,
 *        whatever it pools; that it pools sessions only cannot be told for certain, so every
 *        pooler is taken for one of transactions. Then every transaction sets what it needs with
 *        SET LOCAL, sent in one message with its BEGIN; statements have no name; nobody listens.
 * Keeps: a server connection is given back as it was: nothing of ours is left on it. What another
 *        client has left on it does not rule our transactions.
 */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>
#include "base/err.h"
#include "core/sqltoken.h"
#include "store/pg/pg.h"

#define DOUBT_US 10000000  /* for the end of a transaction whose commit is in doubt */

/* A step of prune is a look at few rows by their keys. A plan that reads whole tables instead, for
 * want of statistics, would do so once per batch; compiling it takes longer than it does. */
#define BY_KEYS "; SET LOCAL enable_hashjoin = off; SET LOCAL enable_mergejoin = off;" \
    " SET LOCAL enable_seqscan = off; SET LOCAL jit = off"

/* --- transactions --- */

/* Why client_connection_check_interval, where the client is the pooler: it closes the connection
 * when we are gone, and the server is to notice in the middle of a statement. A null is the value
 * that the role and the database have: what somebody else's SET has left is not ours. */
static void put_settings(const struct pg *pg, struct buf *out)
{
    buf_printf(out, "; SELECT set_config('lock_timeout', '%lld', true),"
               " set_config('idle_in_transaction_session_timeout', '%lld', true),"
               " set_config('client_connection_check_interval', '1000', true),"
               " set_config('client_min_messages', 'warning', true),"
               " set_config('DateStyle', 'ISO', true), set_config('IntervalStyle', 'postgres',"
               " true), set_config('standard_conforming_strings', 'on', true),"
               " set_config('bytea_output', 'hex', true), set_config('statement_timeout', NULL,"
               " true), set_config('role', NULL, true), set_config('search_path', NULL, true),"
               " set_config('synchronous_commit', NULL, true)",
               (long long)(pg->wait_us / 1000), (long long)(pg->d.lease_us / 1000));
    buf_puts(out, "; SELECT set_config('synchronous_commit', 'on', true)"
             " WHERE current_setting('synchronous_commit') = 'off'");
}

/* Who carries it out, and since when: together they name the transaction (pg_stat_activity). */
#define NAME_IT "; SELECT pg_backend_pid(), (extract(epoch FROM now()) * 1000000)::bigint"

static enum pawl_rc begin_pooled(struct pg *pg, const char *begin, struct pawl_error *e)
{
    struct buf sql = {0};
    PGresult *r = NULL;

    buf_puts(&sql, begin);
    put_settings(pg, &sql);
    buf_puts(&sql, pg->by_keys ? BY_KEYS : "");
    buf_puts(&sql, pg->setup != NULL ? pg->setup : "");
    buf_puts(&sql, NAME_IT);
    const bool sent = !sql.failed && pg->c != NULL && PQsendQuery(pg->c, buf_str(&sql)) == 1;
    const bool full = sql.failed;
    buf_free(&sql);
    if (full)
        return pawl_fail(e, PAWL_NOMEM, "out of memory");
    if (sent)
        r = pg_wait(pg, pg_until(pg));
    if (PQresultStatus(r) != PGRES_TUPLES_OK) {
        struct pawl_error ignored;
        const enum pawl_rc rc = pg_fail(pg, r, e, "store: begin");

        /* The BEGIN may have been carried out, and something behind it not. */
        if (pg->c != NULL && PQtransactionStatus(pg->c) != PQTRANS_IDLE &&
            pg_exec(pg, "ROLLBACK", &ignored) != PAWL_OK)
            pg_disconnect(pg);
        return rc;
    }
    pg->tx_pid = (int)strtol(PQgetvalue(r, 0, 0), NULL, 10);
    pg->tx_start_us = strtoll(PQgetvalue(r, 0, 1), NULL, 10);
    PQclear(r);
    return PAWL_OK;
}

enum pawl_rc pg_patience(struct pg *pg, struct pawl_error *e)
{
    char sql[64];
    enum pawl_rc rc;

    if (pg->wait_us == pg->wait_set_us)
        return PAWL_OK;
    snprintf(sql, sizeof sql, "SET lock_timeout = %lld", (long long)(pg->wait_us / 1000));
    if ((rc = pg_exec(pg, sql, e)) == PAWL_OK)
        pg->wait_set_us = pg->wait_us;
    return rc;
}

enum pawl_rc pg_open_tx(struct pg *pg, const char *begin, struct pawl_error *e)
{
    enum pawl_rc rc = pg_pipe_end(pg, NULL, e);
    char sql[400];

    if (rc != PAWL_OK)
        return rc;
    if (pg->pooled)
        return begin_pooled(pg, begin, e);
    if ((rc = pg_patience(pg, e)) != PAWL_OK)
        return rc;
    snprintf(sql, sizeof sql, "%s%s", begin, pg->by_keys ? BY_KEYS : "");
    return pg_exec(pg, sql, e);
}

/* --- on_connect --- */

static enum pawl_rc not_here(const char *sql, struct pawl_error *e)
{
    return pawl_fail(e, PAWL_CONFIG, "on_connect \"%.60s\": behind a pooler only SET and SELECT"
                     " set_config(..., true) can be had, anew in each transaction: use ALTER ROLE"
                     " ... SET, or connect to the server itself", sql);
}

/* Every set_config in it has `true` as its last argument, and there is one. */
static bool is_local_select(const char *sql, struct pawl_error *e)
{
    struct sql_lexer lex = { .text = sql, .e = e };
    int depth = -1, found = 0;

    while (sql_next_token(&lex) == PAWL_OK && lex.tok.kind != TOK_END) {
        const struct sql_token *t = &lex.tok;

        if (t->body_n == 10 && strncasecmp(t->body, "set_config", 10) == 0) {
            if (depth >= 0)
                return false;
            depth = 0;
        } else if (depth >= 0 && sql_is_char(t, '(')) {
            depth++;
        } else if (depth >= 0 && sql_is_char(t, ')') && --depth == 0) {
            if (!sql_is_word(&lex.prev, "true"))
                return false;
            found++;
            depth = -1;
        } else if (t->kind == TOK_SEMI) {
            return sql_next_token(&lex) == PAWL_OK && lex.tok.kind == TOK_END && found > 0;
        }
    }
    return lex.tok.kind == TOK_END && found > 0;
}

/* SET x -> SET LOCAL x, and SET SESSION x too; but SESSION AUTHORIZATION is a name. */
static enum pawl_rc local_set(const char *sql, struct buf *out, struct pawl_error *e)
{
    struct sql_lexer lex = { .text = sql, .e = e };
    size_t rest = 0;
    int semi = 0;

    buf_puts(out, "SET LOCAL ");
    for (int i = 0; sql_next_token(&lex) == PAWL_OK && lex.tok.kind != TOK_END; i++) {
        const struct sql_token *t = &lex.tok;

        if (semi > 0)
            return not_here(sql, e);
        if (i == 1 || (i == 2 && !sql_is_word(t, "authorization") && sql_is_word(&lex.prev,
                                                                                 "session")) ||
            (i == 2 && sql_is_word(&lex.prev, "local")))
            rest = t->at;
        if (i == 2 && sql_is_word(t, "characteristics"))
            return not_here(sql, e);
        semi += t->kind == TOK_SEMI;
        if (semi > 0) {
            buf_put(out, sql + rest, t->at - rest);
            rest = t->at;
        }
    }
    if (lex.tok.kind != TOK_END || rest == 0)
        return not_here(sql, e);
    if (semi == 0)
        buf_puts(out, sql + rest);
    return PAWL_OK;
}

static enum pawl_rc local_of(const char *sql, struct buf *out, struct pawl_error *e)
{
    struct sql_lexer lex = { .text = sql, .e = e };

    if (sql_next_token(&lex) != PAWL_OK)
        return not_here(sql, e);
    if (sql_is_word(&lex.tok, "set"))
        return local_set(sql, out, e);
    if (!sql_is_word(&lex.tok, "select") || !is_local_select(sql, e))
        return not_here(sql, e);
    buf_puts(out, sql);
    while (out->n > 0 && strchr("; \t\n", out->data[out->n - 1]) != NULL)
        out->data[--out->n] = '\0';
    return PAWL_OK;
}

/* They are tried one by one, in the open transaction, and kept for all that follow. */
static enum pawl_rc try_setup(struct pg *pg, struct pawl_error *e)
{
    struct buf all = {0};
    enum pawl_rc rc = PAWL_OK;

    for (size_t i = 0; i < pg->on_connect_n && rc == PAWL_OK; i++) {
        struct buf one = {0};

        if ((rc = local_of(pg->on_connect[i], &one, e)) == PAWL_OK &&
            (rc = pg_exec(pg, buf_str(&one), e)) != PAWL_OK)
            rc = pawl_wrap(e, "on_connect \"%.60s\"", pg->on_connect[i]);
        buf_printf(&all, "; %s", buf_str(&one));
        buf_free(&one);
    }
    free(pg->setup);
    pg->setup = all.n > 0 ? buf_take(&all) : NULL;
    buf_free(&all);
    return rc;
}

/* --- connecting --- */

/* Who answers: the server's process, and whether it is the one that we were told of. */
enum pawl_rc pg_ask_who(struct pg *pg, struct pawl_error *e)
{
    PGresult *r = NULL;

    if (PQsendQuery(pg->c, "SELECT pg_backend_pid(), (SELECT backend_start FROM pg_stat_activity"
                    " WHERE pid = pg_backend_pid())") == 1)
        r = pg_wait(pg, pg_until(pg));
    if (PQresultStatus(r) != PGRES_TUPLES_OK)
        return pg_fail(pg, r, e, "store: who we are");
    pg->backend_pid = (int)strtol(PQgetvalue(r, 0, 0), NULL, 10);
    pg->pooled = pg->pool_seen || pg->backend_pid != PQbackendPID(pg->c);
    snprintf(pg->backend_start, sizeof pg->backend_start, "%s", PQgetvalue(r, 0, 1));
    PQclear(r);
    return PAWL_OK;
}

/* Instead of settings for a session: does a transaction with them work? */
enum pawl_rc pg_pool_try(struct pg *pg, struct pawl_error *e)
{
    char *had = pg->setup;
    enum pawl_rc rc;

    pg->setup = NULL;
    rc = pg_open_tx(pg, "BEGIN", e);
    pg->setup = had;
    if (rc != PAWL_OK && e != NULL && strstr(e->msg, "statement pooling") != NULL)
        return pawl_fail(e, PAWL_CONFIG, "the pooler pools statements: a transaction cannot be had"
                         " through it; set pool_mode = transaction for this database, or connect to"
                         " the server itself");
    if (rc == PAWL_OK && (rc = try_setup(pg, e)) == PAWL_OK &&
        (rc = pg_durable(pg, e)) == PAWL_OK && (rc = pg_ask_clock(pg, e)) == PAWL_OK)
        rc = pg_exec(pg, "ROLLBACK", e);
    return rc;
}

/* --- a commit in doubt --- */

void pg_doubt(struct pg *pg)
{
    if (pg->doubt_pid != 0)
        return;
    pg->doubt_start[0] = '\0';
    pg->doubt_start_us = 0;
    if (pg->pooled) {
        pg->doubt_pid = pg->tx_pid;
        pg->doubt_start_us = pg->tx_start_us;
    } else if (pg->backend_start[0] != '\0') {
        pg->doubt_pid = pg->backend_pid;
        memcpy(pg->doubt_start, pg->backend_start, sizeof pg->doubt_start);
    }
}

/* Is the process that was left in the middle of a COMMIT still at it? What it does is not to be
 * seen before it has ended: then, and not before, reading tells whether it committed. A pooled one
 * does not end with its transaction, but serves others: there it is the transaction that is looked
 * for. Where the server does not tell when one began (track_activities is off), any transaction of
 * that process may be the one; none is ended then. */
#define END_IT "CASE WHEN wait_event IS DISTINCT FROM 'SyncRep'%s THEN pg_terminate_backend(pid)" \
    " ELSE true END" /* who waits for a standby: ended, it would be seen though none has it */
static enum pawl_rc other_gone(struct pg *pg, bool end_it, bool *gone, struct pawl_error *e)
{
    char sql[640], end[160] = "*";
    PGresult *r = NULL;

    if (end_it)
        snprintf(end, sizeof end, END_IT, pg->doubt_start_us != 0 ? " AND xact_start IS NOT NULL"
                                                                  : "");
    if (pg->doubt_start_us != 0)
        snprintf(sql, sizeof sql, "SELECT count(*), count(%s) FROM pg_stat_activity a WHERE pid ="
                 " %d AND pid <> pg_backend_pid() AND coalesce((extract(epoch FROM xact_start) *"
                 " 1000000)::bigint = %lld, EXISTS (SELECT FROM pg_locks l WHERE l.pid = a.pid AND"
                 " locktype = 'virtualxid'))", end, pg->doubt_pid, (long long)pg->doubt_start_us);
    else
        snprintf(sql, sizeof sql, "SELECT count(*), count(%s) FROM pg_stat_activity WHERE pid = %d"
                 " AND backend_start = '%s'", end, pg->doubt_pid, pg->doubt_start);
    if (PQsendQuery(pg->c, sql) == 1)
        r = pg_wait(pg, pg_until(pg));
    if (PQresultStatus(r) != PGRES_TUPLES_OK)
        return pg_fail(pg, r, e, "store: a commit in doubt");
    *gone = strcmp(PQgetvalue(r, 0, 0), "0") == 0;
    PQclear(r);
    return PAWL_OK;
}

enum pawl_rc pg_await_other(struct pg *pg, struct pawl_error *e)
{
    const struct env *env = pg->d.env;
    const int64_t until = env->mono_us(env->ctx) + DOUBT_US;
    bool gone = false;
    enum pawl_rc rc = PAWL_OK;

    for (int i = 0; pg->doubt_pid != 0 && rc == PAWL_OK && !gone; i++) {
        struct timespec nap = { .tv_nsec = 20000000 };

        if ((rc = other_gone(pg, i == 10, &gone, e)) != PAWL_OK || gone)
            break;
        if (env->mono_us(env->ctx) >= until)
            return pawl_fail(e, PAWL_IO, "the server has not ended a commit of this process yet:"
                             " whether it happened cannot be told");
        nanosleep(&nap, NULL);
    }
    if (rc == PAWL_OK)
        pg->doubt_pid = 0;
    return rc;
}

/* --- users' statements --- */

static bool session_lock(const struct sql_token *t)
{
    static const char *const locks[] = { "pg_advisory_lock", "pg_advisory_lock_shared",
                                         "pg_try_advisory_lock", "pg_try_advisory_lock_shared" };

    for (size_t i = 0; i < sizeof locks / sizeof *locks; i++)
        if ((t->kind == TOK_WORD || t->kind == TOK_NAME) && t->body_n == strlen(locks[i]) &&
            strncasecmp(t->body, locks[i], t->body_n) == 0)
            return true;
    return false;
}

static bool is_temp(const struct sql_token *t)
{
    return sql_is_word(t, "temp") || sql_is_word(t, "temporary");
}

const char *pg_session_use(const char *sql)
{
    struct pawl_error ignored;
    struct sql_lexer lex = { .text = sql, .e = &ignored };
    bool create = false, declare = false, temp = false, commit = false, drop = false;

    for (int i = 0; sql_next_token(&lex) == PAWL_OK && lex.tok.kind != TOK_END; i++) {
        const struct sql_token *t = &lex.tok;

        if (session_lock(t))
            return "a lock of the session: use pg_advisory_xact_lock";
        create = create || (i == 0 && sql_is_word(t, "create"));
        declare = declare || (i == 0 && sql_is_word(t, "declare"));
        if (declare && sql_is_word(t, "hold") && sql_is_word(&lex.prev, "with"))
            return "a cursor WITH HOLD";
        temp = temp || (is_temp(t) && ((create && i == 1) || sql_is_word(&lex.prev, "into") ||
                                       (create && i == 2 && (sql_is_word(&lex.prev, "local") ||
                                                             sql_is_word(&lex.prev, "global")))));
        drop = drop || (commit && sql_is_word(t, "drop"));
        commit = sql_is_word(t, "commit") && sql_is_word(&lex.prev, "on");
    }
    return temp && !drop ? "a temporary table, if it is not ON COMMIT DROP" : NULL;
}
