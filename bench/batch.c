// SPDX-License-Identifier: Apache-2.0
/* batch.c - R: what can this SQLite take at most, when nobody checks anything?
 *
 *   batch pawl STORE ROWS    into Pawl's own tables (job, ready), 1,000 jobs a transaction
 *   batch lean FILE ROWS     into the smallest tables that could hold a queue (id, queue, args; and
 *                            a narrow one to find what is due)
 *
 * The library, WAL, synchronous=FULL, and checkpoints every 900 pages are Pawl's. No names are
 * looked up, no JSON is read, no lock is queued for, nobody is woken: the line that the rest is
 * held against. */
#include <sqlite3.h>
#include "bench.h"

enum { ROWS_PER_TX = 1000, CHECKPOINT_PAGES = 900 };

static const char pragmas[] =
    "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; PRAGMA journal_size_limit = 8388608;"
    "PRAGMA foreign_keys = ON; PRAGMA temp_store = MEMORY;";
static const char lean_schema[] =
    "CREATE TABLE IF NOT EXISTS job (id INTEGER PRIMARY KEY, queue INTEGER, args TEXT) STRICT;"
    "CREATE TABLE IF NOT EXISTS ready (queue INTEGER, rank INTEGER, run_at INTEGER, id INTEGER,"
    " PRIMARY KEY (queue, rank, run_at, id)) STRICT, WITHOUT ROWID;";
static const char *const lean[] = {
    "INSERT INTO job (queue, args) VALUES (1, ?1)",
    "INSERT INTO ready VALUES (1, 0, ?2, ?1)",
};
static const char *const pawls[] = {
    "INSERT INTO pawl_x_job (task_id, queue_id, args, priority, run_at_us, created_at_us, gen)"
    " VALUES (1, 1, ?1, 0, ?2, ?2, 0)",
    "INSERT INTO pawl_x_ready (task_id, queue_id, rank, run_at_us, id) VALUES (1, 1, 0, ?2, ?1)",
};

static void must(int code, sqlite3 *db, const char *what)
{
    if (code != SQLITE_OK && code != SQLITE_DONE) bench_die(what, sqlite3_errmsg(db));
}

static void run(sqlite3 *db, const char *sql)
{
    must(sqlite3_exec(db, sql, NULL, NULL, NULL), db, sql);
}

int main(int argc, char **argv)
{
    sqlite3 *db = NULL;
    sqlite3_stmt *job = NULL, *ready = NULL;
    char args[ARGS_BYTES + 64];

    if (argc != 4) bench_die("usage", "batch pawl|lean FILE ROWS");
    const int is_lean = strcmp(argv[1], "lean") == 0;
    const char *const *sql = is_lean ? lean : pawls;
    const int64_t rows = bench_int(argv[3], 1);
    must(sqlite3_open_v2(argv[2], &db, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE |
                         SQLITE_OPEN_NOMUTEX, NULL), db, argv[2]);
    run(db, pragmas);
    must(sqlite3_wal_autocheckpoint(db, CHECKPOINT_PAGES), db, "settings");
    if (is_lean) run(db, lean_schema);
    must(sqlite3_prepare_v2(db, sql[0], -1, &job, NULL), db, sql[0]);
    must(sqlite3_prepare_v2(db, sql[1], -1, &ready, NULL), db, sql[1]);
    const int64_t start = bench_now_us(CLOCK_MONOTONIC), cpu = bench_cpu_us();
    for (int64_t i = 0; i < rows; i++) {
        const int64_t now = bench_now_us(CLOCK_REALTIME);

        if (i % ROWS_PER_TX == 0) run(db, "BEGIN IMMEDIATE");
        sqlite3_bind_text(job, 1, args, (int)bench_args(i, args, sizeof args), SQLITE_STATIC);
        if (!is_lean) sqlite3_bind_int64(job, 2, now);
        must(sqlite3_step(job), db, "job");
        sqlite3_reset(job);
        sqlite3_bind_int64(ready, 1, sqlite3_last_insert_rowid(db));
        sqlite3_bind_int64(ready, 2, now);
        must(sqlite3_step(ready), db, "ready");
        sqlite3_reset(ready);
        if (i % ROWS_PER_TX == ROWS_PER_TX - 1 || i == rows - 1) run(db, "COMMIT");
    }
    bench_print(rows, bench_now_us(CLOCK_MONOTONIC) - start, bench_cpu_us() - cpu);
    sqlite3_finalize(job);
    sqlite3_finalize(ready);
    return sqlite3_close(db) == SQLITE_OK ? 0 : 1;
}
