// SPDX-License-Identifier: Apache-2.0
/* helper_producer.c - enqueues through libpawl: with a handle, and in transactions of its own.
 *
 *   helper_producer URL flood NAME SECONDS   one job a call, in turns by pawl_enqueue and inside an
 *                                            own transaction; prints each id when it is durable,
 *                                            and "error ..." for what went wrong
 *   helper_producer URL orders               does what the lines of standard input say (begin N,
 *                                            commit, rollback, wake) and answers each with one line
 */
#include <libpq-fe.h>
#include <sqlite3.h>

#include "helper.h"

static struct pawl *store;
static sqlite3 *db;                                 /* one of these two */
static PGconn *server;

static bool sql(const char *text)
{
    if (server != NULL) {
        PGresult *r = PQexec(server, strcmp(text, "BEGIN IMMEDIATE") == 0 ? "BEGIN" : text);
        const bool ok = PQresultStatus(r) == PGRES_COMMAND_OK;

        if (!ok) printf("error %s: %s\n", text, PQresultErrorMessage(r));
        PQclear(r);
        return ok;
    }
    if (sqlite3_exec(db, text, NULL, NULL, NULL) == SQLITE_OK) return true;
    printf("error %s: %s\n", text, sqlite3_errmsg(db));
    return false;
}

static bool enqueue_on_server(const struct pawl_request *q, struct pawl_enqueued *got)
{
    const char *v[] = {q->task, q->args, q->key};
    PGresult *r = PQexecParams(server, "SELECT id FROM pawl.enqueue($1, $2::text, key => $3)", 3,
                               NULL, v, NULL, NULL, 0);
    const bool ok = PQntuples(r) == 1;

    if (ok) got->id = strtoll(PQgetvalue(r, 0, 0), NULL, 10);
    else printf("error enqueue: %s\n", PQresultErrorMessage(r));
    PQclear(r);
    return ok;
}

/* An order and its job in the open transaction. */
static bool put_order(int64_t id, const char *task, const char *key, struct pawl_enqueued *got)
{
    char text[80], args[40];
    const struct pawl_request r = {.task = task, .key = key, .args = args};
    struct pawl_error e;
    size_t done = 7;

    snprintf(text, sizeof text, "INSERT INTO orders(id) VALUES (%" PRId64 ")", id);
    snprintf(args, sizeof args, "{\"order\":%" PRId64 "}", id);
    if (!sql(text)) return false;
    if (server != NULL) return enqueue_on_server(&r, got);
    if (pawl_enqueue_sqlite(db, &r, 1, got, &done, &e) == PAWL_OK && done == 1) return true;
    printf("error enqueue: %s\n", e.msg);
    return false;
}

static void flood(const char *name, double seconds)
{
    const double end = uptime() + seconds;
    struct pawl_enqueued got;
    struct pawl_error e;
    char key[64];

    for (int i = 0; uptime() < end; i++) {
        snprintf(key, sizeof key, "%s-%d", name, i);
        if (i % 2 == 0) {
            if (enqueue_one(store, i % 4 == 0 ? "effect" : "prepared", key, &got, &e) == PAWL_OK)
                printf("%" PRId64 "\n", got.id);
            else
                printf("error enqueue: %s\n", e.msg);
        } else if (sql("BEGIN IMMEDIATE")) {
            /* the ids of orders must not meet: each producer has a number range of its own */
            const int64_t id = strtol(name, NULL, 10) * 1000000 + i;
            const bool ok = put_order(id, "order", key, &got) && sql("COMMIT");
            if (ok) printf("%" PRId64 "\n", got.id);
            else (void)sql("ROLLBACK");
        }
        fflush(stdout);
    }
}

static void orders(void)
{
    char line[80], key[40];
    struct pawl_enqueued got;
    int64_t id;

    while (fgets(line, sizeof line, stdin) != NULL) {
        if (sscanf(line, "begin %" SCNd64, &id) == 1) {
            snprintf(key, sizeof key, "order-%" PRId64, id);
            if (sql("BEGIN IMMEDIATE") && put_order(id, "order", key, &got))
                printf("%" PRId64 "\n", got.id);
        } else if (strcmp(line, "wake\n") == 0) {
            pawl_wake(store);
            puts("ok");
        } else if (sql(line)) {
            puts("ok");
        }
        fflush(stdout);
    }
}

int main(int argc, char **argv)
{
    struct pawl_error e;

    if (argc < 3 || pawl_open(argv[1], &store, &e) != PAWL_OK) die("open", &e);
    if (strncmp(argv[1], "postgres", 8) == 0) {
        server = PQconnectdb(argv[1]);
        if (PQstatus(server) != CONNECTION_OK) die(PQerrorMessage(server), NULL);
    } else {
        if (sqlite3_open(argv[1] + strlen("sqlite:"), &db) != SQLITE_OK) die("sqlite3_open", NULL);
        sqlite3_busy_timeout(db, 30000);
    }
    if (strcmp(argv[2], "flood") == 0 && argc == 5) flood(argv[3], strtod(argv[4], NULL));
    else if (strcmp(argv[2], "orders") == 0) orders();
    else die(argv[2], NULL);
    sqlite3_close(db);
    PQfinish(server);
    pawl_close(&store);
    return 0;
}
