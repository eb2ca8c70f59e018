// SPDX-License-Identifier: Apache-2.0
/* batch_pg.c - what can this PostgreSQL take at most, when nobody checks anything?
 *
 *   batch_pg rows URL ROWS     R: into Pawl's own tables (job, ready), 1,000 jobs a transaction,
 *                              one statement each, arrays unnested
 *   batch_pg copy URL ROWS     the same rows by COPY
 *   batch_pg single URL ROWS   S: one row a transaction, by one prepared INSERT
 *
 * synchronous_commit is on. No names are looked up, no JSON is read, no key is kept, nobody is
 * woken: the line that the rest is held against. */
#include <libpq-fe.h>
#include "bench.h"

enum { ROWS_PER_TX = 1000, ROOM = ROWS_PER_TX * (2 * ARGS_BYTES + 64) };

static const char *const add_jobs =
    "WITH j AS (INSERT INTO pawl.x_job (task_id, queue_id, args, priority, run_at_us,"
    " created_at_us, gen) SELECT 1, 1, a, 0, $2::bigint, $2::bigint, 0 FROM unnest($1::text[]) AS a"
    " RETURNING id) INSERT INTO pawl.x_ready (task_id, queue_id, rank, run_at_us, id)"
    " SELECT 1, 1, 0, $2::bigint, id FROM j";
static const char *const add_single =
    "INSERT INTO bench_single (args, at) VALUES ($1, $2::bigint)";

static PGresult *must(PGconn *c, PGresult *r, const char *what)
{
    const ExecStatusType s = PQresultStatus(r);

    if (s != PGRES_COMMAND_OK && s != PGRES_TUPLES_OK && s != PGRES_COPY_IN)
        bench_die(what, PQerrorMessage(c));
    return r;
}

static void run(PGconn *c, const char *sql)
{
    PQclear(must(c, PQexec(c, sql), sql));
}

static int64_t next_id(PGconn *c, int64_t n)
{
    char sql[120];

    (void)snprintf(sql, sizeof sql, "SELECT setval('pawl.x_job_id_seq',"
                   " nextval('pawl.x_job_id_seq') + %lld) - %lld", (long long)n, (long long)n);
    PGresult *r = must(c, PQexec(c, sql), sql);
    const int64_t id = bench_int(PQgetvalue(r, 0, 0), 0);
    PQclear(r);
    return id;
}

/* As an array of texts: {"...","..."}; the args hold quotes. */
static void put_array(char *out, int64_t first, int64_t n)
{
    char args[ARGS_BYTES + 64];

    *out++ = '{';
    for (int64_t i = 0; i < n; i++) {
        (void)bench_args(first + i, args, sizeof args);
        *out++ = i > 0 ? ',' : ' ';
        *out++ = '"';
        for (const char *s = args; *s != '\0'; s++) {
            if (*s == '"') *out++ = '\\';
            *out++ = *s;
        }
        *out++ = '"';
    }
    *out++ = '}';
    *out = '\0';
}

static void by_statement(PGconn *c, int64_t first, int64_t n, char *buf)
{
    char now[24];
    const char *const v[] = { buf, now };

    put_array(buf, first, n);
    (void)snprintf(now, sizeof now, "%lld", (long long)bench_now_us(CLOCK_REALTIME));
    PQclear(must(c, PQexecPrepared(c, "add", 2, v, NULL, NULL, 0), "rows"));
}

static void copy_table(PGconn *c, const char *sql, const char *data, size_t n)
{
    PQclear(must(c, PQexec(c, sql), sql));
    if (PQputCopyData(c, data, (int)n) != 1 || PQputCopyEnd(c, NULL) != 1)
        bench_die("copy", PQerrorMessage(c));
    PQclear(must(c, PQgetResult(c), "copy"));
    PQclear(PQgetResult(c));
}

static void by_copy(PGconn *c, int64_t first, int64_t n, char *buf)
{
    const long long now = bench_now_us(CLOCK_REALTIME);
    const int64_t id = next_id(c, n);
    char args[ARGS_BYTES + 64];
    size_t at = 0;

    run(c, "BEGIN");
    for (int64_t i = 0; i < n; i++) {
        (void)bench_args(first + i, args, sizeof args);
        at += (size_t)snprintf(buf + at, ROOM - at, "%lld\t1\t1\t%s\t0\t%lld\t%lld\t0\n",
                               (long long)(id + i), args, now, now);
    }
    copy_table(c, "COPY pawl.x_job (id, task_id, queue_id, args, priority, run_at_us,"
               " created_at_us, gen) FROM STDIN", buf, at);
    at = 0;
    for (int64_t i = 0; i < n; i++)
        at += (size_t)snprintf(buf + at, ROOM - at, "1\t1\t0\t%lld\t%lld\n", now,
                               (long long)(id + i));
    copy_table(c, "COPY pawl.x_ready (task_id, queue_id, rank, run_at_us, id) FROM STDIN", buf, at);
    run(c, "COMMIT");
}

static void one_by_one(PGconn *c, int64_t first, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        char args[ARGS_BYTES + 64], now[24];
        const char *const v[] = { args, now };

        (void)bench_args(first + i, args, sizeof args);
        (void)snprintf(now, sizeof now, "%lld", (long long)bench_now_us(CLOCK_REALTIME));
        PQclear(must(c, PQexecPrepared(c, "add", 2, v, NULL, NULL, 0), "single"));
    }
}

int main(int argc, char **argv)
{
    static char buf[ROOM];

    if (argc != 4) bench_die("usage", "batch_pg rows|copy|single URL ROWS");
    const int copy = strcmp(argv[1], "copy") == 0, single = strcmp(argv[1], "single") == 0;
    const int64_t rows = bench_int(argv[3], 1);
    PGconn *c = PQconnectdb(argv[2]);

    if (PQstatus(c) != CONNECTION_OK) bench_die("connect", PQerrorMessage(c));
    run(c, "SET synchronous_commit = on; SET client_min_messages = warning;"
        " CREATE TABLE IF NOT EXISTS bench_single (id bigint PRIMARY KEY GENERATED ALWAYS AS"
        " IDENTITY, args text NOT NULL, at bigint NOT NULL)");
    if (!copy)
        PQclear(must(c, PQprepare(c, "add", single ? add_single : add_jobs, 0, NULL), "prepare"));
    const int64_t start = bench_now_us(CLOCK_MONOTONIC), cpu = bench_cpu_us();
    for (int64_t i = 0, n; i < rows; i += n) {
        n = rows - i < ROWS_PER_TX ? rows - i : ROWS_PER_TX;
        if (single) one_by_one(c, i, n);
        else if (copy) by_copy(c, i, n, buf);
        else by_statement(c, i, n, buf);
    }
    bench_print(rows, bench_now_us(CLOCK_MONOTONIC) - start, bench_cpu_us() - cpu);
    PQfinish(c);
    return 0;
}
