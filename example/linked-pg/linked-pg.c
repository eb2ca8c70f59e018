// SPDX-License-Identifier: Apache-2.0
/* linked-pg.c - a shop on PostgreSQL that takes orders: the order, by libpq, and its job, by
 * libpawl, in one transaction on one connection of its own. Compiles as C17 and as C++17. */
#include <libpq-fe.h>
#include <pawl.h>
#include <stdlib.h>

static bool run(PGconn *db, const char *sql)
{
    PGresult *r = PQexec(db, sql);
    bool ok = PQresultStatus(r) == PGRES_COMMAND_OK;
    PQclear(r);
    return ok;
}

/* The order and its job: both, or neither. */
static enum pawl_rc take_order(PGconn *db, int id, int amount, bool change_of_mind)
{
    char sql[100], args[100], key[32];
    struct pawl_request job;
    struct pawl_enqueued got;
    struct pawl_error e = {PAWL_OK, 0, ""};
    snprintf(sql, sizeof sql, "INSERT INTO orders VALUES (%d, %d) ON CONFLICT DO NOTHING", id,
             amount);
    snprintf(args, sizeof args, "{\"order\":%d,\"amount\":%d}", id, amount);
    snprintf(key, sizeof key, "order-%d", id);
    memset(&job, 0, sizeof job);
    job.task = "charge";
    job.args = args;
    job.key = key;
    if (!run(db, "BEGIN")) return PAWL_SQL;
    enum pawl_rc rc = run(db, sql) ? pawl_enqueue_pg(db, &job, 1, &got, NULL, &e) : PAWL_SQL;
    bool keep = rc == PAWL_OK && !change_of_mind;
    if (!run(db, keep ? "COMMIT" : "ROLLBACK")) return PAWL_SQL;
    printf("order %d: %s\n", id, keep && !got.created ? "taken before"
                               : keep                 ? "taken"
                               : rc == PAWL_OK        ? "not taken"
                                                      : e.msg);
    return rc;
}

int main(void)
{
    const char *url = getenv("PAWL_DB");
    struct pawl_error e = {PAWL_OK, 0, ""};
    struct pawl *p = NULL;
    PGconn *db = PQconnectdb(url != NULL ? url : "");
    bool ok = PQstatus(db) == CONNECTION_OK && url != NULL &&
              pawl_init(url, NULL, &e) == PAWL_OK && pawl_open(url, &p, &e) == PAWL_OK &&
              run(db, "CREATE TABLE orders(id int PRIMARY KEY, amount int);"
                      "CREATE TABLE charge(id int PRIMARY KEY, amount int)") &&
              take_order(db, 1, 4200, false) == PAWL_OK &&
              take_order(db, 2, 100, true) == PAWL_OK &&   /* he thought better of it */
              take_order(db, 1, 4200, false) == PAWL_OK && /* the same order, sent again */
              take_order(db, 1, 9900, false) == PAWL_KEYCLASH; /* another order of that number */
    if (ok) pawl_wake(p); /* a worker that is idle starts at once */
    else fprintf(stderr, "shop: %s%s\n", e.msg, PQerrorMessage(db));
    pawl_close(&p);
    PQfinish(db);
    return ok ? EXIT_SUCCESS : EXIT_FAILURE;
}
