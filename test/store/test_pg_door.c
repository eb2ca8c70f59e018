// SPDX-License-Identifier: Apache-2.0
/* test_pg_door.c - pawl_enqueue_pg, on a connection of the caller's own: it shares the fate of the
 * caller's transaction, answers and refuses as the other doors do, whatever the session's settings
 * are, and leaves the connection as it was. Needs a server ($PAWL_TEST_PG): without, nothing runs.
 */
#include <libpq-fe.h>
#include <string.h>
#include "lib/fx.h"

#pragma GCC diagnostic ignored "-Wshadow"

#define OK(call)                                                                             \
    do {                                                                                     \
        struct pawl_error ok_e_, *e = &ok_e_;                                                \
        const enum pawl_rc ok_rc_ = (call);                                                  \
        ck_assert_msg(ok_rc_ == PAWL_OK, "%s: %s: %s", #call, pawl_rc_name(ok_rc_), e->msg); \
    } while (0)
/* rc, with a filled error that contains `part`. */
#define FAILS(call, want, part)                                                              \
    do {                                                                                     \
        struct pawl_error no_e_ = {.rc = PAWL_OK}, *e = &no_e_;                              \
        const enum pawl_rc no_rc_ = (call);                                                  \
        ck_assert_msg(no_rc_ == (want) && e->rc == (want), "%s: %s, not %s: %s", #call,      \
                      pawl_rc_name(no_rc_), pawl_rc_name(want), e->msg);                     \
        ck_assert_msg(strstr(e->msg, part) != NULL, "\"%s\" is not in: %s", part, e->msg);   \
    } while (0)

struct dfx {
    struct fx f;
    PGconn *c; /* the caller's */
};

static PGconn *dial(const char *url)
{
    PGconn *c = PQconnectdb(url);

    ck_assert_msg(PQstatus(c) == CONNECTION_OK, "%s", PQerrorMessage(c));
    return c;
}

static void begin(struct dfx *d)
{
    fx_begin(&d->f, 1);
    d->c = dial(d->f.url);
}

static void end(struct dfx *d)
{
    PQfinish(d->c);
    fx_end(&d->f);
}

static void on(PGconn *c, const char *sql)
{
    PGresult *r = PQexec(c, sql);
    const ExecStatusType s = PQresultStatus(r);

    ck_assert_msg(s == PGRES_COMMAND_OK || s == PGRES_TUPLES_OK, "%s: %s", sql, PQerrorMessage(c));
    PQclear(r);
}

static void sql(struct dfx *d, const char *text)
{
    on(d->c, text);
}

static int64_t jobs(struct dfx *d)
{
    return fx_num(&d->f, "SELECT count(*) FROM pawl_jobs");
}

static struct pawl_enqueued door(struct dfx *d, const struct pawl_request *r)
{
    struct pawl_enqueued out;
    size_t bad = 77;

    OK(pawl_enqueue_pg(d->c, r, 1, &out, &bad, e));
    ck_assert_uint_eq(bad, 1);
    return out;
}

static const struct pawl_request full = {
    .task = "t", .args = "[1, \"\xc3\xa9\xe2\x82\xac\\u00e9'\\\\\"]", .key = "k\xc3\xa9'\\",
    .source = "s\xc3\xa9", .queue = "q", .priority = -7, .has_priority = true, .max_retries = 0,
    .has_max_retries = true, .entity = "e\xe2\x82\xac", .version = INT64_MIN, .has_version = true,
    .headers = "{\"a\":\"b\\\\\xc3\xa9\"}", .trace = "00-\xc3\xa9",
    .run_at_us = INT64_C(253402300799999998), .expires_at_us = INT64_C(253402300799999999)};

/* The row that a request made, but for what each has its own of. */
static void row_of(struct dfx *d, int64_t id, char *out, size_t n)
{
    char text[300];

    snprintf(text, sizeof text, "SELECT concat_ws('|', task, queue, source, key, state, args,"
             " headers, trace, entity, version, priority, max_retries, run_at_us, expires_at_us,"
             " runs, root_id = id, gen) FROM pawl.jobs WHERE id = %lld", (long long)id);
    PGresult *r = PQexec(d->f.foreign, text);
    ck_assert_msg(PQntuples(r) == 1, "%s", PQresultErrorMessage(r));
    snprintf(out, n, "%s", PQgetvalue(r, 0, 0));
    PQclear(r);
}

/* --- it shares the caller's fate --- */

START_TEST(test_commit_rollback_and_savepoint)
{
    struct dfx d;

    begin(&d);
    sql(&d, "CREATE TABLE own (x int)");
    sql(&d, "BEGIN; INSERT INTO own VALUES (1)");
    ck_assert(door(&d, &full).created);
    ck_assert_int_eq(PQtransactionStatus(d.c), PQTRANS_INTRANS);
    ck_assert_int_eq(jobs(&d), 0); /* nobody sees it yet */
    sql(&d, "ROLLBACK");
    ck_assert_int_eq(jobs(&d), 0);
    sql(&d, "BEGIN; INSERT INTO own VALUES (2); SAVEPOINT s");
    ck_assert(door(&d, &full).created);
    sql(&d, "ROLLBACK TO s");
    ck_assert(door(&d, &full).created); /* what was undone holds no key */
    sql(&d, "ROLLBACK TO s; COMMIT");
    ck_assert_int_eq(jobs(&d), 0);
    sql(&d, "BEGIN; INSERT INTO own VALUES (3)");
    ck_assert(door(&d, &full).created);
    sql(&d, "COMMIT");
    ck_assert_int_eq(jobs(&d), 1);
    ck_assert_int_eq(fx_num(&d.f, "SELECT sum(x) FROM own"), 5);
    end(&d);
}
END_TEST

/* One that has begun and is lost: the server undoes it, and the key is free. */
START_TEST(test_a_connection_that_died)
{
    const struct pawl_request r = {.task = "t", .key = "k"};
    struct pawl_enqueued out = {.id = 5};
    struct dfx d;
    char kill[80];

    begin(&d);
    for (int begun = 0; begun < 2; begun++) {
        if (begun) sql(&d, "BEGIN");
        if (begun) ck_assert(door(&d, &r).created);
        snprintf(kill, sizeof kill, "SELECT pg_terminate_backend(%d, 30000)", PQbackendPID(d.c));
        fx_sql(&d.f, kill);
        /* In its own transaction it cannot know; in the caller's, that is gone. */
        FAILS(pawl_enqueue_pg(d.c, &r, 1, &out, NULL, e), begun ? PAWL_IO : PAWL_UNSURE,
              begun ? "your transaction with it" : "with keys it is safe to ask again");
        ck_assert_int_eq(out.id, 0);
        FAILS(pawl_enqueue_pg(d.c, &r, 1, &out, NULL, e), PAWL_IO, "not open");
        ck_assert_int_eq(jobs(&d), 0);
        PQreset(d.c);
    }
    ck_assert(door(&d, &r).created);
    end(&d);
}
END_TEST

START_TEST(test_without_a_transaction_all_or_none)
{
    const struct pawl_request r[] = {{.task = "a"}, {.task = "b", .key = "k", .args = "[1]"},
                                     {.task = "b", .key = "k", .args = "[2]"}, {.task = "d"}};
    struct pawl_enqueued out[4];
    size_t bad = 77;
    struct dfx d;

    begin(&d);
    FAILS(pawl_enqueue_pg(d.c, r, 4, out, &bad, e), PAWL_KEYCLASH, "key \"k\" of task b was used"
          " before with other args by job ");
    ck_assert_uint_eq(bad, 2);
    ck_assert_int_eq(PQtransactionStatus(d.c), PQTRANS_IDLE);
    ck_assert_int_eq(jobs(&d), 0);
    for (int i = 0; i < 4; i++) ck_assert(out[i].id == 0 && !out[i].created);
    OK(pawl_enqueue_pg(d.c, r, 2, out, &bad, e));
    ck_assert_int_eq(jobs(&d), 2);
    OK(pawl_enqueue_pg(d.c, r, 0, NULL, &bad, e));
    ck_assert_uint_eq(bad, 0);
    end(&d);
}
END_TEST

/* --- answers --- */

static int64_t later(void *ctx) { return ((struct fx *)ctx)->clock.wall_us + DAY; }

START_TEST(test_answers)
{
    const struct pawl_request r[] = {{.task = "t", .key = "a"}, {.task = "u", .key = "a"},
                                     {.task = "t", .key = "a"}, {.task = "t"},
                                     {.task = "t", .key = "a", .source = "s"}};
    const struct pawl_prune_opts all = {.done_older_us = 1};
    struct pawl_enqueued out[5], again, by_c;
    struct pawl_pruned pruned;
    struct pawl *p = NULL;
    struct dfx d;

    begin(&d);
    fx_task(&d.f, "t");
    fx_join(&d.f);
    OK(pawl_enqueue_pg(d.c, r, 5, out, NULL, e));
    fx_add(&d.f, 60 * SEC); /* "now" was the server's */
    ck_assert(out[0].created && out[1].created && !out[2].created && out[3].created);
    ck_assert(out[4].created && out[2].id == out[0].id && out[2].state == PAWL_STATE_READY);
    ck_assert(out[0].task_known && !out[1].task_known && out[2].task_known);
    ck_assert(out[0].result == NULL && out[1].near[0] == '\0');
    ck_assert_int_eq(jobs(&d), 4);
    const struct job job = fx_claim_one(&d.f);
    ck_assert_int_eq(job.id, out[0].id);
    ck_assert_int_eq(door(&d, &r[0]).state, PAWL_STATE_RUNNING);
    ck_assert_int_eq(fx_settle(&d.f, &job, OUT_DONE), SETTLE_OK);
    again = door(&d, &r[0]);
    ck_assert(again.id == out[0].id && !again.created && again.state == PAWL_STATE_DONE);
    /* After a prune only the key knows: both doors say the same. */
    const struct pawl_open_opts open = {.now_us = later, .now_ctx = &d.f};
    OK(pawl_open_with(d.f.url, &open, &p, e));
    OK(pawl_prune(p, &all, &pruned, e));
    ck_assert_int_eq(pruned.jobs, 1);
    again = door(&d, &r[0]);
    OK(pawl_enqueue(p, &r[0], 1, &by_c, NULL, e));
    ck_assert(again.id == by_c.id && again.state == by_c.state && !again.created);
    ck_assert_int_eq(fx_stat(&d.f, "duplicates"), 5);
    pawl_free(by_c.result);
    pawl_close(&p);
    end(&d);
}
END_TEST

START_TEST(test_same_rows_as_the_other_c_door)
{
    const struct pawl_request plain = {.task = "plain"},
                              soon = {.task = "t", .run_at_us = INT64_C(2222222222333333)};
    const struct pawl_request *const by[] = {&full, &plain, &soon};
    char one[1000], other[1000];
    struct pawl_enqueued a, b;
    struct pawl *p = NULL;
    struct dfx d;

    begin(&d);
    (void)jobs(&d);
    OK(pawl_open(d.f.url, &p, e));
    for (size_t i = 0; i < UT_N(by); i++) {
        OK(pawl_enqueue(p, by[i], 1, &a, NULL, e));
        row_of(&d, a.id, one, sizeof one);
        if (by[i]->key != NULL) {
            b = door(&d, by[i]);
            ck_assert(b.id == a.id && !b.created);
            fx_sql(&d.f, "DELETE FROM pawl_x_key");
        }
        b = door(&d, by[i]);
        ck_assert(b.created);
        row_of(&d, b.id, other, sizeof other);
        if (by[i]->run_at_us == 0) continue; /* each its own now */
        ck_assert_str_eq(one, other);
        fx_sqlf(&d.f, "DELETE FROM pawl.x_ready WHERE id = %lld", (long long)a.id);
        fx_sqlf(&d.f, "DELETE FROM pawl.x_job WHERE id = %lld", (long long)a.id);
    }
    pawl_close(&p);
    end(&d);
}
END_TEST

/* --- refusals: the same code as through the other C door, and nothing stored --- */

static const struct pawl_request refused[] = {
    {.task = NULL}, {.task = ""}, {.task = "Bad"}, {.task = "t", .queue = "no no"},
    {.task = "t", .args = "{"}, {.task = "t", .args = "\xff"}, {.task = "t", .key = ""},
    {.task = "t", .key = "a\nb"}, {.task = "t", .source = "\x7f"}, {.task = "t", .entity = "e"},
    {.task = "t", .key = "\xe9"}, {.task = "t", .args = "\"\0\"", .args_bytes = 3},
    {.task = "t", .version = 1, .has_version = true},
    {.task = "t", .priority = 101, .has_priority = true},
    {.task = "t", .max_retries = -1, .has_max_retries = true},
    {.task = "t", .priority = 1}, {.task = "t", .max_retries = 1}, {.task = "t", .version = 1},
    {.task = "t", .headers = "[]"}, {.task = "t", .headers = "{\"a\":1}"},
    {.task = "t", .run_at_us = 1700000000}, {.task = "t", .run_at_us = -1},
    {.task = "t", .expires_at_us = INT64_MAX},
    /* From here on it is the server that refuses. */
    {.task = "t", .expires_at_us = INT64_C(1000000000) * SEC}, /* long past */
    {.task = "t", .run_at_us = INT64_C(4000000000) * SEC,
     .expires_at_us = INT64_C(3000000000) * SEC},
    {.task = "known", .key = "k", .args = "[2]"},
};
enum { BY_SERVER = UT_N(refused) - 3 };

START_TEST(test_both_doors_refuse_alike)
{
    const struct pawl_request known = {.task = "known", .key = "k", .args = "[1]"};
    struct pawl_request two[2] = {{.task = "fine"}};
    struct pawl_enqueued out[2];
    struct pawl_error a, b;
    struct pawl *p = NULL;
    struct dfx d;

    begin(&d);
    (void)door(&d, &known);
    OK(pawl_open(d.f.url, &p, e));
    for (size_t i = 0; i < UT_N(refused); i++) {
        size_t bad_a = 77, bad_b = 77;

        two[1] = refused[i];
        ck_assert_int_ne(pawl_enqueue(p, two, 2, out, &bad_a, &a), PAWL_OK);
        sql(&d, "BEGIN");
        ck_assert_int_ne(pawl_enqueue_pg(d.c, two, 2, out, &bad_b, &b), PAWL_OK);
        ck_assert_msg(a.rc == b.rc, "%zu: %s, %s: %s | %s", i, pawl_rc_name(a.rc),
                      pawl_rc_name(b.rc), a.msg, b.msg);
        if (i < BY_SERVER || i == UT_N(refused) - 1) ck_assert_str_eq(a.msg, b.msg);
        ck_assert_msg(bad_b == 1 && out[1].id == 0 && out[0].id == 0, "%zu: %zu", i, bad_b);
        /* What we refuse leaves the transaction as it was; what the server refuses aborts it. */
        ck_assert_int_eq(PQtransactionStatus(d.c), i < BY_SERVER ? PQTRANS_INTRANS
                                                                 : PQTRANS_INERROR);
        if (i >= BY_SERVER) {
            FAILS(pawl_enqueue_pg(d.c, two, 1, out, NULL, e), PAWL_SQL, "transaction is aborted");
            ck_assert_int_eq(b.native != 0, 1);
        }
        sql(&d, "COMMIT");
        ck_assert_int_eq(jobs(&d), 1);
    }
    pawl_close(&p);
    end(&d);
}
END_TEST

START_TEST(test_arguments_and_places_that_will_not_do)
{
    const struct pawl_request r = {.task = "t"};
    static struct pawl_request many[300];
    static struct pawl_enqueued out[300];
    struct dfx d;
    size_t bad = 77;

    begin(&d);
    FAILS(pawl_enqueue_pg(NULL, &r, 1, out, &bad, e), PAWL_BADARG, "connection is NULL");
    FAILS(pawl_enqueue_pg(d.c, NULL, 1, out, NULL, e), PAWL_BADARG, "NULL");
    FAILS(pawl_enqueue_pg(d.c, &r, 1, NULL, NULL, e), PAWL_BADARG, "NULL");
    FAILS(pawl_enqueue_pg(d.c, &r, 10001, out, NULL, e), PAWL_TOOBIG, "10000");
    ck_assert_int_ne(pawl_enqueue_pg(d.c, NULL, 1, out, NULL, NULL), PAWL_OK); /* no error asked */
    char *big = malloc(1024 * 1024);
    memset(big, 'x', 1024 * 1024);
    big[0] = big[1024 * 1024 - 1] = '"';
    for (size_t i = 0; i < 300; i++)
        many[i] = (struct pawl_request){.task = "t", .args = big, .args_bytes = 1024 * 1024};
    FAILS(pawl_enqueue_pg(d.c, many, 300, out, &bad, e), PAWL_TOOBIG, "256 MiB");
    ck_assert_uint_eq(bad, 300);
    OK(pawl_enqueue_pg(d.c, many, 20, out, &bad, e));
    free(big);
    fx_sql(&d.f, "CREATE ROLE stranger");
    sql(&d, "SET ROLE stranger");
    FAILS(pawl_enqueue_pg(d.c, &r, 1, out, NULL, e), PAWL_DENIED, "42501");
    sql(&d, "RESET ROLE");
    sql(&d, "BEGIN READ ONLY");
    FAILS(pawl_enqueue_pg(d.c, &r, 1, out, NULL, e), PAWL_DENIED, "read-only");
    sql(&d, "ROLLBACK");
    sql(&d, "DROP ROLE stranger");
    sql(&d, "BEGIN; ALTER FUNCTION pawl.x_enqueue_many RENAME TO gone");
    FAILS(pawl_enqueue_pg(d.c, &r, 1, out, NULL, e), PAWL_OLDER, "run pawl init");
    sql(&d, "ROLLBACK");
    sql(&d, "BEGIN; ALTER SCHEMA pawl RENAME TO away");
    FAILS(pawl_enqueue_pg(d.c, &r, 1, out, NULL, e), PAWL_NOTOURS, "no Pawl store");
    sql(&d, "ROLLBACK");
    /* A fault of the caller's own, from within. */
    sql(&d, "BEGIN; CREATE FUNCTION bad() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM"
            " no_such(); RETURN NEW; END $$; CREATE TRIGGER bad BEFORE INSERT ON pawl.x_job FOR"
            " EACH ROW EXECUTE FUNCTION bad()");
    FAILS(pawl_enqueue_pg(d.c, &r, 1, out, NULL, e), PAWL_SQL, "no_such");
    sql(&d, "ROLLBACK");
    ck_assert_int_eq(jobs(&d), 20);
    end(&d);
}
END_TEST

/* --- whatever the session is set to --- */

START_TEST(test_odd_settings_change_nothing)
{
    static const char *const odd[] = {
        "SET client_encoding = 'SQL_ASCII'", "SET client_encoding = 'LATIN1'",
        "SET client_encoding = 'EUC_JP'", "SET standard_conforming_strings = off",
        "SET DateStyle = 'German, YMD'", "SET TimeZone = '<+13>-13'", "SET bytea_output = escape",
        "SET IntervalStyle = sql_standard", "SET search_path = evil",
        "SET default_transaction_isolation = serializable", "SET plan_cache_mode ="
        " force_generic_plan", "SET transform_null_equals = on", "SET extra_float_digits = -15",
        "SET array_nulls = off", "SET quote_all_identifiers = on", "SET xmloption = document",
    };
    char want[1000], got[1000], text[100];
    struct dfx d;

    begin(&d);
    (void)jobs(&d);
    fx_sql(&d.f, "CREATE SCHEMA evil; CREATE FUNCTION evil.unnest(bytea[]) RETURNS SETOF bytea"
           " LANGUAGE sql AS 'SELECT ''{}''::bytea'; CREATE FUNCTION evil.to_timestamp(float8)"
           " RETURNS timestamptz LANGUAGE sql AS 'SELECT now()'");
    row_of(&d, door(&d, &full).id, want, sizeof want);
    for (size_t i = 0; i < UT_N(odd); i++) {
        fx_sql(&d.f, "DELETE FROM pawl_x_key");
        sql(&d, odd[i]);
        row_of(&d, door(&d, &full).id, got, sizeof got);
        ck_assert_msg(strcmp(want, got) == 0, "%s: %s | %s", odd[i], want, got);
        ck_assert(!door(&d, &full).created);
    }
    /* All of them at once, and as they were when the call is over. */
    snprintf(text, sizeof text, "%s", PQparameterStatus(d.c, "client_encoding"));
    ck_assert_str_eq(text, "EUC_JP");
    fx_sql(&d.f, "DELETE FROM pawl_x_key; DELETE FROM pawl_x_ready; DELETE FROM pawl_x_job");
    end(&d);
}
END_TEST

/* --- and leaves the connection as it was --- */

static int notices;

static void count_notice(void *ctx, const char *text)
{
    (void)ctx;
    (void)text;
    notices++;
}

static char *ask(PGconn *c, const char *text, char *out, size_t n)
{
    PGresult *r = PQexec(c, text);

    ck_assert_msg(PQresultStatus(r) == PGRES_TUPLES_OK, "%s: %s", text, PQerrorMessage(c));
    snprintf(out, n, "%s", PQntuples(r) > 0 ? PQgetvalue(r, 0, 0) : "");
    PQclear(r);
    return out;
}

#define SETTINGS "SELECT md5(string_agg(name || '=' || setting, ',' ORDER BY name))" \
    " FROM pg_settings WHERE name <> 'in_hot_standby'"

START_TEST(test_nothing_stays_on_the_connection)
{
    const struct pawl_request r = {.task = "t", .key = "k"}, other = {.task = "t", .key = "k",
                                                                      .args = "[]"};
    struct pawl_enqueued out;
    char before[64], after[64];
    struct dfx d;

    begin(&d);
    PQsetNoticeProcessor(d.c, count_notice, NULL);
    sql(&d, "CREATE FUNCTION noisy() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE WARNING"
            " 'noise'; RETURN NEW; END $$; CREATE TRIGGER noisy BEFORE INSERT ON pawl.x_job FOR"
            " EACH ROW EXECUTE FUNCTION noisy(); LISTEN x");
    ask(d.c, SETTINGS, before, sizeof before);
    for (int slow = 0; slow < 2; slow++) {
        ck_assert_int_eq(PQsetnonblocking(d.c, slow), 0);
        sql(&d, "NOTIFY x");
        (void)door(&d, &r);
        FAILS(pawl_enqueue_pg(d.c, &other, 1, &out, NULL, e), PAWL_KEYCLASH, "other args");
        sql(&d, "BEGIN; SET LOCAL work_mem = '1MB'");
        (void)door(&d, &r);
        ck_assert_str_eq(ask(d.c, "SHOW work_mem", after, sizeof after), "1MB");
        sql(&d, "COMMIT");
        ck_assert_int_eq(PQisnonblocking(d.c), slow);
        ck_assert_int_eq(PQpipelineStatus(d.c), PQ_PIPELINE_OFF);
        ck_assert_str_eq(ask(d.c, SETTINGS, after, sizeof after), before);
        ck_assert_str_eq(ask(d.c, "SELECT count(*) FROM pg_prepared_statements", after,
                             sizeof after), "0");
        ck_assert_str_eq(ask(d.c, "SELECT count(*) FROM pg_locks WHERE pid = pg_backend_pid() AND"
                             " locktype = 'advisory'", after, sizeof after), "0");
        PGnotify *n = PQnotifies(d.c); /* the caller's notification is still the caller's */
        ck_assert_ptr_nonnull(n);
        PQfreemem(n);
    }
    ck_assert_int_eq(notices, 0);
    end(&d);
}
END_TEST

/* Refused, without a look at what waits there. */
START_TEST(test_a_connection_in_the_middle_of_something)
{
    const struct pawl_request r = {.task = "t"};
    struct pawl_enqueued out;
    PGresult *got;
    struct dfx d;
    int rows = 0;

    begin(&d);
    for (int single = 0; single < 2; single++) {
        ck_assert_int_eq(PQsendQuery(d.c, "SELECT generate_series(1, 3)"), 1);
        if (single) ck_assert_int_eq(PQsetSingleRowMode(d.c), 1);
        FAILS(pawl_enqueue_pg(d.c, &r, 1, &out, NULL, e), PAWL_BUSY, "PQgetResult");
        while ((got = PQgetResult(d.c)) != NULL) {
            rows += PQntuples(got);
            PQclear(got);
            if (PQtransactionStatus(d.c) == PQTRANS_ACTIVE)
                FAILS(pawl_enqueue_pg(d.c, &r, 1, &out, NULL, e), PAWL_BUSY, "not finished");
        }
    }
    ck_assert_int_eq(rows, 6);
    got = PQexec(d.c, "COPY fx FROM STDIN");
    ck_assert_int_eq(PQresultStatus(got), PGRES_COPY_IN);
    PQclear(got);
    FAILS(pawl_enqueue_pg(d.c, &r, 1, &out, NULL, e), PAWL_BUSY, "COPY");
    ck_assert_int_eq(PQputCopyData(d.c, "7\t8\n", 4), 1);
    ck_assert_int_eq(PQputCopyEnd(d.c, NULL), 1);
    while ((got = PQgetResult(d.c)) != NULL) PQclear(got);
    ck_assert_int_eq(fx_num(&d.f, "SELECT count(*) FROM fx"), 1);
    ck_assert_int_eq(PQenterPipelineMode(d.c), 1);
    FAILS(pawl_enqueue_pg(d.c, &r, 1, &out, NULL, e), PAWL_BADARG, "PQexitPipelineMode");
    ck_assert_int_eq(PQexitPipelineMode(d.c), 1);
    ck_assert_int_eq(jobs(&d), 0);
    (void)door(&d, &r);
    end(&d);
}
END_TEST

/* --- others --- */

START_TEST(test_ten_thousand_of_which_a_third_is_known)
{
    static struct pawl_request r[10000];
    static struct pawl_enqueued out[10000];
    static char key[10000][16];
    struct dfx d;
    size_t bad = 0;

    begin(&d);
    for (int i = 0; i < 10000; i++) {
        snprintf(key[i], sizeof key[i], "k%d", i);
        r[i] = (struct pawl_request){.task = i % 2 != 0 ? "odd" : "even", .key = key[i]};
    }
    ck_assert_int_eq(PQsetnonblocking(d.c, 1), 0);
    OK(pawl_enqueue_pg(d.c, r, 3333, out, NULL, e));
    sql(&d, "BEGIN");
    OK(pawl_enqueue_pg(d.c, r, 10000, out, &bad, e));
    ck_assert_uint_eq(bad, 10000);
    sql(&d, "COMMIT");
    ck_assert_int_eq(jobs(&d), 10000);
    for (int i = 0; i < 10000; i++) ck_assert(out[i].id > 0 && out[i].created == (i >= 3333));
    r[7777].args = "[1]";
    FAILS(pawl_enqueue_pg(d.c, r, 10000, out, &bad, e), PAWL_KEYCLASH, "\"k7777\"");
    ck_assert_uint_eq(bad, 7777);
    end(&d);
}
END_TEST

/* The second waits for the first; a wait that the caller bounds ends so. */
START_TEST(test_two_transactions_with_one_key)
{
    const struct pawl_request r = {.task = "t", .key = "k"};
    struct pawl_enqueued first, out;
    struct dfx d;

    begin(&d);
    PGconn *other = dial(d.f.url);
    on(other, "BEGIN");
    OK(pawl_enqueue_pg(other, &(struct pawl_request){.task = "t"}, 1, &out, NULL, e));
    on(other, "COMMIT; BEGIN");
    OK(pawl_enqueue_pg(other, &r, 1, &first, NULL, e));
    sql(&d, "SET lock_timeout = 1");
    FAILS(pawl_enqueue_pg(d.c, &r, 1, &out, NULL, e), PAWL_BUSY, "55P03");
    on(other, "COMMIT");
    out = door(&d, &r);
    ck_assert(out.id == first.id && !out.created);
    sql(&d, "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM pawl.jobs");
    OK(pawl_enqueue_pg(other, &(struct pawl_request){.task = "t", .key = "l"}, 1, &out, NULL, e));
    FAILS(pawl_enqueue_pg(d.c, &(struct pawl_request){.task = "t", .key = "l"}, 1, &out, NULL, e),
          PAWL_BUSY, "40001");
    sql(&d, "ROLLBACK");
    PQfinish(other);
    end(&d);
}
END_TEST

START_TEST(test_a_producer_may_enqueue_and_no_more)
{
    static struct pawl_request r[] = {{.task = "t", .key = "k"}, {.task = "t", .key = "k"}};
    struct pawl_enqueued out[2];
    struct dfx d;

    begin(&d);
    fx_sql(&d.f, "DO $$ BEGIN CREATE ROLE pawl_producer NOLOGIN; EXCEPTION WHEN OTHERS THEN NULL;"
           " END $$; GRANT USAGE ON SCHEMA pawl TO pawl_producer; SELECT pawl.x_grant()");
    sql(&d, "SET ROLE pawl_producer");
    OK(pawl_enqueue_pg(d.c, r, 2, out, NULL, e));
    ck_assert(out[0].created && !out[1].created && out[1].state == PAWL_STATE_READY);
    PGresult *no = PQexec(d.c, "SELECT * FROM pawl.jobs");
    ck_assert_str_eq(PQresultErrorField(no, PG_DIAG_SQLSTATE), "42501");
    PQclear(no);
    end(&d);
}
END_TEST

/* An idle handle elsewhere hears of it when it is told, and the transaction itself tells nobody. */
START_TEST(test_wake)
{
    const struct pawl_request r = {.task = "t"};
    struct pawl *p = NULL;
    struct dfx d;

    begin(&d);
    const int fd = store_wake_fd(d.f.st);
    ck_assert_int_ge(fd, 0);
    (void)store_changed(d.f.st);
    store_wake_clear(d.f.st);
    (void)store_changed(d.f.st);
    PGconn *ear = dial(d.f.url);
    on(ear, "LISTEN pawl");
    sql(&d, "BEGIN");
    (void)door(&d, &r);
    sql(&d, "COMMIT");
    on(ear, "SELECT 1");
    ck_assert_ptr_null(PQnotifies(ear));
    ck_assert(!fx_readable(fd, 0));
    OK(pawl_open(d.f.url, &p, e));
    pawl_wake(p);
    ck_assert(fx_readable(fd, 10000));
    store_wake_clear(d.f.st);
    ck_assert(store_changed(d.f.st));
    pawl_close(&p);
    PQfinish(ear);
    end(&d);
}
END_TEST

static void add(TCase *tc)
{
    if (fx_kinds_n() < 2) {
        printf("# skipped: PAWL_TEST_PG names no server\n");
        return;
    }
    tcase_add_test(tc, test_commit_rollback_and_savepoint);
    tcase_add_test(tc, test_a_connection_that_died);
    tcase_add_test(tc, test_without_a_transaction_all_or_none);
    tcase_add_test(tc, test_answers);
    tcase_add_test(tc, test_same_rows_as_the_other_c_door);
    tcase_add_test(tc, test_both_doors_refuse_alike);
    tcase_add_test(tc, test_arguments_and_places_that_will_not_do);
    tcase_add_test(tc, test_odd_settings_change_nothing);
    tcase_add_test(tc, test_nothing_stays_on_the_connection);
    tcase_add_test(tc, test_a_connection_in_the_middle_of_something);
    tcase_add_test(tc, test_ten_thousand_of_which_a_third_is_known);
    tcase_add_test(tc, test_two_transactions_with_one_key);
    tcase_add_test(tc, test_a_producer_may_enqueue_and_no_more);
    tcase_add_test(tc, test_wake);
}

int main(void)
{
    return ut_main("pg_door", add, 60);
}
