// SPDX-License-Identifier: Apache-2.0
/* linked-worker.c - a shop that takes orders and works on its jobs in one program: libpawl, SQLite
 * and nothing else. Compiles as C17 and as C++17.
 *
 * charge   applied in the job's transaction: the charge, the next job and "done" are one commit
 * receipt  prepared outside it (slow work would go there), then stored in one commit with "done"
 */
#include <pawl.h>
#include <sqlite3.h>
#include <stdlib.h>

#define URL "sqlite:shop.db"

static enum pawl_outcome charge(struct pawl_run *run)
{
    struct pawl_error e;
    int64_t order = 0, amount = 0;
    if (pawl_arg_int(run, "order", &order, &e) != PAWL_OK ||
        pawl_arg_int(run, "amount", &amount, &e) != PAWL_OK)
        return pawl_run_error(run, &e);
    if (amount <= 0) {
        pawl_run_say(run, "order %d: an amount of %d", (int)order, (int)amount);
        return PAWL_FAIL;
    }
    const struct pawl_value v[] = {pawl_int("order", order), pawl_int("amount", amount)};
    if (pawl_exec(run, "INSERT INTO charge VALUES (:order, :amount)", v, 2, NULL, &e) != PAWL_OK)
        return pawl_run_error(run, &e);
    struct pawl_request next;
    struct pawl_enqueued got;
    memset(&next, 0, sizeof next);
    next.task = "receipt";
    next.args = run->args;
    if (pawl_run_enqueue(run, &next, 1, &got, NULL, &e) != PAWL_OK)
        return pawl_run_error(run, &e);
    return PAWL_DONE;
}
PAWL_HANDLER(charge_handler, NULL, charge, NULL);

static enum pawl_outcome receipt_prepare(struct pawl_run *run)
{
    struct pawl_error e;
    int64_t order = 0, amount = 0;
    char *text = (char *)(run->plan = malloc(100)); /* freed by receipt_drop, whatever happens */
    if (text == NULL) return PAWL_RETRY;
    if (pawl_arg_int(run, "order", &order, &e) != PAWL_OK ||
        pawl_arg_int(run, "amount", &amount, &e) != PAWL_OK)
        return pawl_run_error(run, &e);
    snprintf(text, 100, "order %d: %d.%02d, thank you", (int)order, (int)(amount / 100),
             (int)(amount % 100));
    return PAWL_DONE;
}

static enum pawl_outcome receipt_apply(struct pawl_run *run)
{
    struct pawl_error e;
    const struct pawl_value v = pawl_text("text", (const char *)run->plan);
    if (pawl_exec(run, "INSERT INTO receipt VALUES (:text)", &v, 1, NULL, &e) != PAWL_OK)
        return pawl_run_error(run, &e);
    return PAWL_DONE;
}

static void receipt_drop(struct pawl_run *run) { free(run->plan); }
PAWL_HANDLER(receipt_handler, receipt_prepare, receipt_apply, receipt_drop);

/* The order and its job: both, or neither. */
static enum pawl_rc take_order(sqlite3 *db, int id, int amount, bool change_of_mind)
{
    char sql[100], args[100], key[32];
    struct pawl_request r;
    struct pawl_enqueued got;
    struct pawl_error e;
    snprintf(sql, sizeof sql, "BEGIN IMMEDIATE; INSERT INTO orders VALUES (%d, %d)", id, amount);
    snprintf(args, sizeof args, "{\"order\":%d,\"amount\":%d}", id, amount);
    snprintf(key, sizeof key, "order-%d", id);
    memset(&r, 0, sizeof r);
    r.task = "charge";
    r.args = args;
    r.key = key;
    if (sqlite3_exec(db, sql, NULL, NULL, NULL) != SQLITE_OK) return PAWL_SQL;
    enum pawl_rc rc = pawl_enqueue_sqlite(db, &r, 1, &got, NULL, &e);
    bool keep = rc == PAWL_OK && !change_of_mind;
    if (sqlite3_exec(db, keep ? "COMMIT" : "ROLLBACK", NULL, NULL, NULL) != SQLITE_OK)
        return PAWL_SQL;
    printf("order %d: %s\n", id, keep ? "taken" : "not taken");
    return rc;
}

int main(void)
{
    const struct pawl_task tasks[] = {{"charge", &charge_handler, NULL, "max_retries = 3"},
                                      {"receipt", &receipt_handler, NULL, NULL}};
    struct pawl_worker_opts o;
    struct pawl_worker_stat did;
    struct pawl_worker *w = NULL;
    struct pawl_error e = {PAWL_OK, 0, ""};
    sqlite3 *db = NULL;
    memset(&o, 0, sizeof o);
    o.tasks = tasks;
    o.tasks_n = 2;

    bool ok = pawl_init(URL, NULL, &e) == PAWL_OK && sqlite3_open("shop.db", &db) == SQLITE_OK &&
              sqlite3_busy_timeout(db, 5000) == SQLITE_OK &&
              sqlite3_exec(db, "CREATE TABLE orders(id INTEGER PRIMARY KEY, amount INTEGER);"
                               "CREATE TABLE charge(id INTEGER PRIMARY KEY, amount INTEGER);"
                               "CREATE TABLE receipt(text TEXT)", NULL, NULL, NULL) == SQLITE_OK &&
              pawl_worker_open(URL, &o, &w, &e) == PAWL_OK &&
              take_order(db, 1, 4200, false) == PAWL_OK && take_order(db, 2, 1, true) == PAWL_OK &&
              take_order(db, 3, -5, false) == PAWL_OK && pawl_worker_run(w, true, &e) == PAWL_OK;
    if (ok) {
        pawl_worker_stats(w, &did);
        printf("%d done, %d dead\n", (int)did.done, (int)did.dead);
    } else {
        fprintf(stderr, "shop: %s%s\n", e.msg, db != NULL ? sqlite3_errmsg(db) : "");
    }
    (void)pawl_worker_close(&w, NULL);
    sqlite3_close(db);
    return ok ? EXIT_SUCCESS : EXIT_FAILURE;
}
