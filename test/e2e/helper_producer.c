// SPDX-License-Identifier: Apache-2.0
/* helper_producer.c - enqueues through libpawl: with a handle, and in transactions of its own.
 *
 *   helper_producer URL flood NAME SECONDS   one job a call, in turns by pawl_enqueue and inside an
 *                                            own transaction; prints each id when it is durable,
 *                                            and "error ..." for what went wrong
 *   helper_producer URL orders               does what the lines of standard input say (begin N,
 *                                            commit, rollback, wake) and answers each with one line
 */
#include <sqlite3.h>

#include "helper.h"

static struct pawl *store;
static sqlite3 *db;

static bool sql(const char *text)
{
    if (sqlite3_exec(db, text, NULL, NULL, NULL) == SQLITE_OK) return true;
    printf("error %s: %s\n", text, sqlite3_errmsg(db));
    return false;
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
            else (void)sqlite3_exec(db, "ROLLBACK", NULL, NULL, NULL);
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
    if (sqlite3_open(argv[1] + strlen("sqlite:"), &db) != SQLITE_OK) die("sqlite3_open", NULL);
    sqlite3_busy_timeout(db, 30000);
    if (strcmp(argv[2], "flood") == 0 && argc == 5) flood(argv[3], strtod(argv[4], NULL));
    else if (strcmp(argv[2], "orders") == 0) orders();
    else die(argv[2], NULL);
    sqlite3_close(db);
    pawl_close(&store);
    return 0;
}
