// SPDX-License-Identifier: Apache-2.0
/* fx_pg.c - the PostgreSQL kind of store: a database of its own per test, on the private server
 * whose socket directory is $PAWL_TEST_PG (test/run.py starts it).
 *
 * $PAWL_TEST_PG_TEMPLATE: a database there with a store in it, to be copied.
 * $PAWL_TEST_PG_POOL: where a pooler listens ("/directory&port=6432"): the stores are opened
 * through it, everything else is done on the server itself (test/e2e/test_pg_pool.py).
 *
 * Foreign SQL is written once, as for SQLite: names of Pawl's are looked up in its schema. */
#include <libpq-fe.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "lib/fx.h"
#include "store/pg/pg.h"
#include "store/sqlembed.h"

static const char *server(void)
{
    const char *dir = getenv("PAWL_TEST_PG");

    ck_assert_ptr_nonnull(dir);
    return dir;
}

static const char *user(void)
{
    const char *name = getenv("PAWL_TEST_PG_USER");

    return name != NULL && *name != '\0' ? name : "pawl";
}

static void name_of(const struct fx *f, char *out, size_t n)
{
    snprintf(out, n, "%s", strstr(f->url, "@/") + 2);
    *strchr(out, '?') = '\0';
}

static void admin(const char *sql)
{
    char conn[400];

    snprintf(conn, sizeof conn, "host=%s user=%s dbname=postgres", server(), user());
    PGconn *c = PQconnectdb(conn);
    PGresult *r = PQexec(c, sql);
    ck_assert_msg(PQresultStatus(r) == PGRES_COMMAND_OK, "%s: %s", sql, PQerrorMessage(c));
    PQclear(r);
    PQfinish(c);
}

static void place(struct fx *f, bool with_store)
{
    char sql[300];
    static atomic_int n;
    const unsigned long long now = (unsigned long long)env_real()->mono_us(NULL);
    const int k = atomic_fetch_add(&n, 1);
    const char *pool = getenv("PAWL_TEST_PG_POOL");
    const char *made = with_store ? getenv("PAWL_TEST_PG_TEMPLATE") : NULL;

    setenv("PAWL_RUNTIME_DIR", f->dir, 1);
    snprintf(f->url, sizeof f->url, "postgresql://%s@/t%ld_%d_%llx?host=%s", user(),
             (long)getpid(), k, now, pool != NULL ? pool : server());
    snprintf(sql, sizeof sql, "CREATE DATABASE t%ld_%d_%llx%s%s", (long)getpid(), k, now,
             made != NULL ? " TEMPLATE " : "", made != NULL ? made : "");
    f->placed = made != NULL;
    admin(sql);
}

/* The server itself. */
static PGconn *direct(const struct fx *f)
{
    char conn[400], name[64];

    name_of(f, name, sizeof name);
    snprintf(conn, sizeof conn, "host=%s user=%s dbname=%s", server(), user(), name);
    return PQconnectdb(conn);
}

/* The door of these tests, which are written for SQLite's, over the function that is the door. */
static const char *const door =
    "CREATE VIEW pawl_enqueue AS SELECT NULL::text AS task, NULL::text AS args, NULL::text AS key,"
    " NULL::text AS source, NULL::text AS queue, NULL::int AS priority, NULL::bigint AS run_at,"
    " NULL::bigint AS expires_at, NULL::int AS max_retries, NULL::text AS entity, NULL::bigint AS"
    " version, NULL::text AS headers, NULL::text AS trace; CREATE TABLE pawl_last (id bigint,"
    " created int); CREATE FUNCTION door() RETURNS trigger LANGUAGE plpgsql AS $$ DECLARE r record;"
    " BEGIN SELECT * INTO r FROM pawl.enqueue(NEW.task, NEW.args, NEW.key, coalesce(NEW.source,"
    " ''), NEW.queue, NEW.priority, timestamptz 'epoch' + NEW.run_at * interval '1 microsecond',"
    " timestamptz 'epoch' + NEW.expires_at * interval '1 microsecond', NEW.max_retries, NEW.entity,"
    " NEW.version, NEW.headers, NEW.trace); DELETE FROM pawl_last; INSERT INTO pawl_last VALUES"
    " (r.id, r.created::int); RETURN NEW; END $$; CREATE TRIGGER door INSTEAD OF INSERT ON"
    " pawl_enqueue FOR EACH ROW EXECUTE FUNCTION door()";

/* When it is first knocked at: tests look at what there is. */
static void make_door(struct fx *f, const char *sql)
{
    PGconn *c = f->foreign;

    if (strstr(sql, "pawl_enqueue") == NULL || strstr(sql, "pawl_enqueued") != NULL) return;
    if (PQtransactionStatus(c) == PQTRANS_INTRANS) c = direct(f);
    PGresult *r = PQexec(c, "SELECT to_regclass('pawl_enqueue') IS NULL");
    if (PQntuples(r) == 1 && *PQgetvalue(r, 0, 0) == 't') {
        PQclear(r);
        r = PQexec(c, door);
        ck_assert_msg(PQresultStatus(r) == PGRES_COMMAND_OK, "%s", PQresultErrorMessage(r));
    }
    PQclear(r);
    if (c != f->foreign) PQfinish(c);
}

static void nothing(void *ctx, const char *text)
{
    (void)ctx;
    (void)text;
}

static PGconn *foreign(struct fx *f)
{
    PGconn *c = f->foreign;

    if (c != NULL) return c;
    c = direct(f);
    ck_assert_msg(PQstatus(c) == CONNECTION_OK, "%s", PQerrorMessage(c));
    PQsetNoticeProcessor(c, nothing, NULL);
    f->foreign = c;
    return c;
}

/* pawl_x_job -> pawl.x_job, and so on. */
static PGresult *ask_it(struct fx *f, const char *sql)
{
    struct pg_query q = {0};

    ck_assert(pg_translate(sql, &q));
    (void)foreign(f);
    make_door(f, sql);
    PGresult *r = PQexec(foreign(f), q.text);
    free(q.text);
    return r;
}

/* A writer that keeps others out, as BEGIN IMMEDIATE does: they can read, and no more. */
#define KEEP_OUT "BEGIN; LOCK TABLE pawl.x_task, pawl.x_queue, pawl.x_job, pawl.x_key," \
    " pawl.x_ready, pawl.x_running, pawl.x_done, pawl.x_dead, pawl.x_dropped," \
    " pawl.x_cancelled, pawl.x_attempt, pawl.x_counter IN EXCLUSIVE MODE"

static int run(struct fx *f, const char *sql, char *why, size_t why_n)
{
    if (strcmp(sql, "BEGIN IMMEDIATE") == 0) sql = KEEP_OUT;
    PGresult *r = ask_it(f, sql);
    const ExecStatusType s = PQresultStatus(r);
    const bool ok = s == PGRES_COMMAND_OK || s == PGRES_TUPLES_OK;

    snprintf(why, why_n, "%s", ok ? "" : PQresultErrorMessage(r));
    PQclear(r);
    return ok ? 0 : 1;
}

static bool ask(struct fx *f, const char *sql, char *out, size_t n)
{
    PGresult *r = ask_it(f, sql);

    ck_assert_msg(PQresultStatus(r) == PGRES_TUPLES_OK, "%s: %s", sql, PQresultErrorMessage(r));
    const bool row = PQntuples(r) > 0 && !PQgetisnull(r, 0, 0);
    if (row) {
        const char *v = PQgetvalue(r, 0, 0);
        const bool yes = PQftype(r, 0) == 16;
        snprintf(out, n, "%s", !yes ? v : *v == 't' ? "1" : "0");
    }
    PQclear(r);
    return row;
}

static void shut(struct fx *f)
{
    PQfinish(f->foreign);
    f->foreign = NULL;
}

static void drop(struct fx *f)
{
    char name[64], sql[128];

    name_of(f, name, sizeof name);
    snprintf(sql, sizeof sql, "DROP DATABASE IF EXISTS %s WITH (FORCE)", name);
    admin(sql);
}

static int64_t flushes(void) { return pg_commits(); }

/* Statements sent: what a verb costs in round trips. */
static int64_t work(struct store *st)
{
    struct pg *pg = pg_of(st);
    const int64_t n = pg->sent_n;

    pg->sent_n = 0;
    return n;
}

/* As its file says it, if the server has it. */
static void made_by(struct fx *f, const char *name, char *out, size_t n)
{
    char ours[80], sql[200], first[100];

    snprintf(ours, sizeof ours, strncmp(name, "pawl_x_", 7) == 0 ? "pawl.%s" : "pawl.%s", name + 5);
    snprintf(sql, sizeof sql, "SELECT 1 WHERE to_regclass('%s') IS NOT NULL", ours);
    *out = '\0';
    if (!ask(f, sql, first, sizeof first)) return;
    for (size_t i = 0; i < sql_postgres_files_n; i++) {
        const char *at = sql_postgres_files[i].text;
        while ((at = strstr(at, "CREATE ")) != NULL) {
            const char *end = strchr(at, ';');
            snprintf(first, sizeof first, "%.90s", at);
            if (end != NULL && strstr(first, ours) != NULL && (size_t)(end - at) < n) {
                memcpy(out, at, (size_t)(end - at));
                out[end - at] = '\0';
                return;
            }
            at++;
        }
    }
}

const struct fx_kind fx_postgres = {
    "postgres", place, run, ask, shut, flushes, work, drop, made_by, false,
};
