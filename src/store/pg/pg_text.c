// SPDX-License-Identifier: Apache-2.0
/* pg_text.c - the statements of the verbs, as PostgreSQL takes them.
 *
 * How: names that begin with pawl_ are in the schema pawl; ?n becomes $m, numbered without gaps,
 *      since the server wants a type for each; what only SQLite's planner needs is left out.
 *      Statements that lock rows, or meet another transaction's, have a text of their own.
 */
#include <ctype.h>
#include <string.h>
#include "store/pg/pg.h"

#define READY_COLUMNS "id, run_at_us, " DB_COUNTERS ", suspect"
#define READY_ROW READY_COLUMNS " FROM pawl.x_ready"
#define READY_PLACED READY_COLUMNS ", ctid AS place FROM pawl.x_ready"

/* The first row behind a place, and before another line. In parts, since a scan of the index ends
 * where its scalar bounds do, while it walks on through what a row comparison excludes, dead rows
 * and all. The parts are evaluated in order, and only as needed. As a BETWEEN the planner takes
 * SANE for one in 200, and then reads everything to sort it. */
#define SANE "CASE WHEN " DB_SANE " THEN true ELSE false END"
#define FIRST_IN(where)                                                                           \
    "(SELECT ARRAY[queue_id, rank, run_at_us, id] FROM pawl.x_ready WHERE task_id = $1 AND "      \
    where " AND " SANE " ORDER BY queue_id, rank, run_at_us, id LIMIT 1)"
#define FIRST                                                                                     \
    "SELECT f[1], f[2], f[3], f[4] FROM (SELECT coalesce("                                        \
    FIRST_IN("queue_id = $2 AND rank = $3 AND (run_at_us, id) > ($4, $5)") ", "                   \
    FIRST_IN("queue_id = $2 AND rank > $3 AND rank < $8") ", "                                    \
    FIRST_IN("queue_id > $2 AND queue_id < $6") ", "                                              \
    FIRST_IN("queue_id = $6 AND $6 > $2 AND rank < $7") ") AS f OFFSET 0) f WHERE f IS NOT NULL"

/* n rows were named, and each must have been there: an error else (PG_NOT_ALL), so that nobody has
 * to wait for the number. Found one by one, by key or by place: a plan that was made for a table of
 * few rows would read all of it when it has many, dead ones among them. */
#define ALL(n)                                                                                    \
    " SELECT CASE count(*) WHEN $" #n "::bigint THEN 1 ELSE ('pawl: only ' || count(*) ||"        \
    " ' of the rows: another transaction was first')::int END"
#define ALL_OF(n) ALL(n) " FROM gone g JOIN k ON k.id = g.id"

#define DONE_ROWS                                                                                \
    "WITH k AS MATERIALIZED (SELECT * FROM unnest($1::tid[], $2::bigint[], $3::bigint[],"        \
    " $4::text[], $5::bigint[], $6::bigint[], $7::bigint[], $8::bigint[], $9::bigint[],"         \
    " $10::bigint[], $11::text[], $12::bytea[]) AS k (place, id, runs, outcome, started, ended," \
    " failures, lost, releases, snoozes, result, lease)), gone AS (DELETE FROM "
#define DONE_PUT                                                                              \
    "), put AS (INSERT INTO pawl.x_done (job_id, outcome, lease_id, worker, started_at_us,"   \
    " ended_at_us, " DB_COUNTERS ", result) SELECT k.id, k.outcome, k.lease, $13, k.started," \
    " k.ended, k.runs + 1, k.failures, k.lost, k.releases, k.snoozes, k.result FROM k)" ALL_OF(14)

/* Locked by the claim, so they are where they were. */
#define TAKE_READY \
    "pawl.x_ready r WHERE r.ctid = ANY (ARRAY(SELECT place FROM k)) RETURNING r.id, r.runs"

/* Of who may live, what is locked is being decided. Of the dead it is locked by the transaction
 * that it left behind, which the server ends within moments. */
#define ROWS_OF                                                                                   \
    "SELECT job_id, lease_id, started_at_us, task_id, queue_id, rank, run_at_us, " DB_COUNTERS    \
    ", suspect FROM pawl.x_running WHERE worker = $1 ORDER BY job_id LIMIT 1024"

/* Who claims locks what it reads, and passes over what another one has locked. */
static const char *const own[PQ_END] = {
    [Q_BEGIN] = "BEGIN", [Q_DATA_VERSION] = "SELECT 0",
    [Q_TASK_ADD] = "INSERT INTO pawl.x_task (name, created_at_us) VALUES ($1, $2)"
                   " ON CONFLICT (name) DO NOTHING RETURNING id",
    [Q_QUEUE_ADD] = "INSERT INTO pawl.x_queue (name, created_at_us) VALUES ($1, $2)"
                    " ON CONFLICT (name) DO NOTHING RETURNING id",
    [Q_KEY_ADD] = "INSERT INTO pawl.x_key (task_id, source, key, job_id) VALUES ($1, $2, $3, $4)"
                  " ON CONFLICT (task_id, source, key) DO NOTHING",
    [Q_JOB_ADD] = "INSERT INTO pawl.x_job (task_id, queue_id, source, key, args, headers, trace,"
                  " entity, version, priority, max_retries, run_at_us, expires_at_us,"
                  " created_at_us, root_id, gen, replay_of) VALUES"
                  " ($1,$2,$3,$4,$5,$6,$7,$8,$9,$10,$11,$12,$13,$14,$15,$16,$17) RETURNING id",
    [Q_FIRST] = FIRST,
    [Q_DUE] =
        "SELECT r.id, r.run_at_us, r.runs, r.failures, r.lost, r.releases, r.snoozes,"
        " r.suspect, coalesce(j.root_id, j.id), j.gen, j.source, j.key, j.args, j.headers,"
        " j.trace, j.entity, j.version, j.max_retries, j.expires_at_us, j.created_at_us,"
        " r.place FROM (SELECT " READY_PLACED " WHERE task_id = $1 AND queue_id = $2 AND rank = $3"
        " AND run_at_us <= $4 AND (run_at_us, id) > ($5, $6) AND " DB_SANE
        " ORDER BY run_at_us, id LIMIT $7 FOR UPDATE SKIP LOCKED) r"
        " LEFT JOIN pawl.x_job j ON j.id = r.id ORDER BY r.run_at_us, r.id",
    [Q_SUSPECT] = "SELECT queue_id, rank, " READY_PLACED " WHERE suspect = 1 AND task_id = $1"
                  " AND run_at_us <= $2 AND " DB_SANE
                  " ORDER BY rank, run_at_us, id LIMIT 100 FOR UPDATE SKIP LOCKED",
    [Q_FIND_READY] = "SELECT r.task_id, r.queue_id, r.rank, r.run_at_us, " DB_COUNTERS ", suspect"
                     " FROM pawl.x_ready r JOIN pawl.x_job j ON j.id = $1"
                     " WHERE r.task_id = j.task_id AND r.queue_id = j.queue_id"
                     " AND r.rank = -j.priority AND r.run_at_us = j.run_at_us AND r.id = j.id"
                     " FOR UPDATE OF r",
    [Q_FIND_MOVED] = "SELECT task_id, queue_id, rank, run_at_us, " DB_COUNTERS ", suspect"
                     " FROM pawl.x_ready WHERE id = $1 AND moved = 1 FOR UPDATE",
    [Q_RUNNING_GET] = "SELECT lease_id, " DB_COUNTERS " FROM pawl.x_running WHERE job_id = $1"
                      " FOR UPDATE",
    [Q_DEAD_GET] = "SELECT d.replayed_as, j.gen, coalesce(j.root_id, j.id), j.task_id, j.queue_id,"
                   " j.source, j.key, j.args, j.headers, j.trace, j.entity, j.version, j.priority,"
                   " j.max_retries FROM pawl.x_dead d JOIN pawl.x_job j ON j.id = d.job_id"
                   " WHERE d.job_id = $1 FOR UPDATE OF d",
    [Q_WORKERS] = "SELECT worker FROM pawl.x_running WHERE $2::bigint = 1 UNION SELECT id FROM"
                  " pawl.x_worker WHERE beat_at_us + lease_us < $1",
    [Q_ROWS_OF] = ROWS_OF " FOR UPDATE SKIP LOCKED",
    [Q_ROWS_OF_DEAD] = ROWS_OF " FOR UPDATE",
    [PQ_LEASE] =
        "WITH k AS MATERIALIZED (SELECT * FROM unnest($1::tid[], $2::bigint[],"
        " $3::bigint[], $4::bigint[], $5::bigint[], $6::bigint[], $7::bigint[],"
        " $8::bigint[], $9::bigint[], $10::bigint[], $11::bigint[], $12::bigint[],"
        " $13::bigint[], $14::int[], $15::bytea[]) AS k (place, task, queue, rank, run_at, id, "
        "runs, token,"
        " started, failures, lost, releases, snoozes, suspect, lease)), gone AS (DELETE"
        " FROM " TAKE_READY "), put AS (INSERT INTO pawl.x_running (job_id, lease_id,"
        " worker, token, started_at_us, task_id, queue_id, rank, run_at_us, " DB_COUNTERS
        ", suspect) SELECT k.id, k.lease, $16, k.token, k.started, k.task, k.queue, k.rank,"
        " k.run_at, k.runs, k.failures, k.lost, k.releases, k.snoozes, k.suspect FROM k)" ALL_OF(
            17) " AND k.runs = g.runs",
    [PQ_IDS] = "SELECT nextval('pawl.x_job_id_seq') FROM generate_series(1, $1::int)",
    /* Ids, if none of the keys is known, and none there twice. */
    [PQ_IDS_NEW] = "WITH n AS MATERIALIZED (SELECT * FROM unnest($1::bigint[], $2::text[],"
                   " $3::text[]) AS n (task, source, key) WHERE key IS NOT NULL), new AS"
                   " MATERIALIZED (SELECT (SELECT count(*) FROM (SELECT DISTINCT * FROM n) d) ="
                   " $4::bigint AND NOT EXISTS (SELECT FROM n, LATERAL (SELECT 1 FROM pawl.x_key k"
                   " WHERE k.task_id = n.task AND k.source = n.source AND k.key = n.key LIMIT 1) f)"
                   " AS ok) SELECT nextval('pawl.x_job_id_seq') FROM new,"
                   " generate_series(1, $5::int) WHERE ok",
    [PQ_JOBS_ADD] = "INSERT INTO pawl.x_job (id, task_id, queue_id, source, key, args, headers,"
                    " trace, entity, version, priority, max_retries, run_at_us, expires_at_us,"
                    " created_at_us, gen) OVERRIDING SYSTEM VALUE SELECT u.*, $15::bigint, 0"
                    " FROM unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::text[],"
                    " $5::text[], $6::text[], $7::text[], $8::text[], $9::text[], $10::bigint[],"
                    " $11::int[], $12::bigint[], $13::bigint[], $14::bigint[]) AS u",
    [PQ_KEYS_ADD] =
        "WITH put AS (INSERT INTO pawl.x_key (job_id, task_id, source, key) SELECT u.id, u.task,"
        " u.source, u.key FROM unnest($1::bigint[], $2::bigint[], $3::text[],"
        " $4::text[]) AS u (id, task, source, key) WHERE u.key IS NOT NULL"
        " ORDER BY u.task, u.source, u.key" /* two calls wait for each other in turn */
        " ON CONFLICT (task_id, source, key) DO NOTHING RETURNING 1)"
        ALL(5) " FROM put",
    [PQ_READY_ADD] = "INSERT INTO pawl.x_ready (id, task_id, queue_id, rank, run_at_us)"
                     " SELECT * FROM unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::bigint[],"
                     " $5::bigint[])",
    [PQ_FENCE_UNSAID] = "DELETE FROM pawl.x_running WHERE job_id = $1 AND lease_id = $2"
                        " AND said IS NULL",
    [PQ_SAID] = "SELECT said, said_error, coalesce(said_after_us, 0) FROM pawl.x_running"
                " WHERE job_id = $1 AND lease_id = $2 AND said IS NOT NULL FOR UPDATE",
    [PQ_DONE_READY] = DONE_ROWS TAKE_READY DONE_PUT " AND k.runs = g.runs",
    [PQ_DONE_LEASED] =
        DONE_ROWS "pawl.x_running WHERE ctid = ANY (ARRAY(SELECT f.ctid FROM"
                  " k, LATERAL (SELECT r.ctid FROM pawl.x_running r WHERE r.job_id = k.id AND"
                  " r.lease_id = k.lease AND r.said IS NULL LIMIT 1) f)) RETURNING job_id AS id"
                  DONE_PUT,
};

const char *pg_sql(int id)
{
    return own[id];
}

/* What is replaced as it stands, whole words; NULL: left out, with the name that follows. */
static const struct { const char *what, *by; } words[] = {
    { "coalesce((SELECT seq FROM sqlite_sequence WHERE name = 'pawl_x_job'), 0)",
      "(SELECT count(*) FROM pawl.x_job)"
      " + coalesce((SELECT value FROM pawl.x_counter WHERE name = 'pruned'), 0)" },
    { "INDEXED BY ", NULL },
    { "CROSS JOIN", "JOIN" },
    { "group_concat(", "string_agg(" },
    { "pawl_x_", "pawl.x_" }, { "pawl_jobs", "pawl.jobs" }, { "pawl_attempts", "pawl.attempts" },
    { "pawl_queues", "pawl.queues" }, { "pawl_tasks", "pawl.tasks" },
};

static bool is_name(char c)
{
    return isalnum((unsigned char)c) || c == '_';
}

static size_t replaced(const char *s, bool at_start, struct buf *out)
{
    for (size_t i = 0; i < sizeof words / sizeof *words && at_start; i++) {
        size_t n = strlen(words[i].what);

        if (strncmp(s, words[i].what, n) != 0)
            continue;
        if (words[i].by != NULL)
            buf_puts(out, words[i].by);
        else
            while (is_name(s[n]))
                n++;
        return n;
    }
    return 0;
}

static size_t parameter(const char *s, struct pg_query *q, struct buf *out)
{
    size_t n = 1;
    int k = 0;

    while (isdigit((unsigned char)s[n]))
        k = k * 10 + (s[n++] - '0');
    if (n == 1 || k < 1 || k > PG_PARAMS)
        return 0;
    if (q->slot[k] == 0)
        q->slot[k] = (uint8_t)++q->params;
    buf_printf(out, "$%d", q->slot[k]);
    return n;
}

/* A text of PostgreSQL's own: its parameters are numbered already. */
static void count_params(const char *s, struct pg_query *q)
{
    for (; *s != '\0'; s++) {
        int k = 0;

        for (const char *d = s + 1; *s == '$' && isdigit((unsigned char)*d); d++)
            k = k * 10 + (*d - '0');
        if (k > q->params && k <= PG_PARAMS)
            q->params = k;
    }
    for (int k = 1; k <= q->params; k++)
        q->slot[k] = (uint8_t)k;
}

bool pg_translate(const char *sql, struct pg_query *q)
{
    const bool ours = strstr(sql, "pawl.x_") != NULL;
    struct buf out = {0};
    bool quoted = false;

    q->params = 0;
    memset(q->slot, 0, sizeof q->slot);
    for (const char *s = sql; *s != '\0' && !ours;) {
        size_t n = quoted ? 0 : replaced(s, s == sql || !is_name(s[-1]), &out);

        if (n == 0 && !quoted && *s == '?')
            n = parameter(s, q, &out);
        if (n == 0) {
            quoted ^= *s == '\'';
            buf_putc(&out, *s);
            n = 1;
        }
        s += n;
    }
    if (ours) {
        buf_puts(&out, sql);
        count_params(sql, q);
    }
    q->text = buf_take(&out);
    return q->text != NULL;
}
