// SPDX-License-Identifier: Apache-2.0
/* test_pg_door_nomem.c - pawl_enqueue_pg with the n-th allocation failing, libpq's included, for
 * every n: the failure is told, nothing leaks, what the answer says is what is there, and the same
 * call works afterwards on the same connection. */
#include "lib/nomem.h"

#include <libpq-fe.h>
#include <string.h>
#include "lib/fx.h"

static void on(PGconn *c, const char *sql)
{
    PGresult *r = PQexec(c, sql);

    ck_assert_msg(PQresultStatus(r) == PGRES_COMMAND_OK, "%s: %s", sql, PQerrorMessage(c));
    PQclear(r);
}

static int64_t jobs(PGconn *c)
{
    PGresult *r = PQexec(c, "SELECT count(*) FROM pawl.jobs");

    ck_assert_msg(PQresultStatus(r) == PGRES_TUPLES_OK, "%s", PQerrorMessage(c));
    const int64_t n = strtoll(PQgetvalue(r, 0, 0), NULL, 10);
    PQclear(r);
    return n;
}

/* One round: n is what is there before and after. returns false: nothing was made to fail. */
static bool round_of(PGconn *c, long k, bool begun, bool clash)
{
    const struct pawl_request r[] = {{.task = "t", .args = "{\"a\":\"\\u00e9\"}",
                                      .headers = "{\"h\":\"v\"}"},
                                     {.task = "t", .key = "k", .args = clash ? "[2]" : "[1]"}};
    struct pawl_enqueued out[2];
    struct pawl_error e = {.rc = PAWL_OK};
    size_t bad;

    if (begun) on(c, "BEGIN");
    const int64_t before = jobs(c);
    const long live = nomem_live();
    nomem_arm(k);
    const enum pawl_rc rc = pawl_enqueue_pg(c, r, 2, out, &bad, &e);
    const bool failed = nomem_disarm();
    ck_assert_msg(nomem_live() == live, "allocation %ld fails: %ld blocks leak", k,
                  nomem_live() - live);
    ck_assert_msg(rc == PAWL_OK || (e.rc == rc && e.msg[0] != '\0'), "%ld: no error is filled", k);
    ck_assert_msg(failed || rc == (clash ? PAWL_KEYCLASH : PAWL_OK), "%s", e.msg);
    ck_assert_msg(rc == PAWL_OK || rc == PAWL_NOMEM || rc == PAWL_UNSURE
                  || (clash && rc == PAWL_KEYCLASH), "%ld: %s: %s", k, pawl_rc_name(rc), e.msg);
    ck_assert_int_eq(PQstatus(c), CONNECTION_OK);
    if (PQtransactionStatus(c) != PQTRANS_INERROR) {
        const int64_t now = jobs(c);
        ck_assert_msg(now == before + (rc == PAWL_OK) || (rc == PAWL_UNSURE && now == before + 1),
                      "%ld: %s: %lld, then %lld: %s", k, pawl_rc_name(rc), (long long)before,
                      (long long)now, e.msg);
    } else {
        ck_assert_int_ne(rc, PAWL_OK);
    }
    if (begun) on(c, "ROLLBACK");
    return failed;
}

START_TEST(test_every_allocation)
{
    const bool begun = _i % 2 != 0, clash = _i / 2 != 0;
    const struct pawl_request first = {.task = "t", .key = "k", .args = "[1]"};
    struct pawl_enqueued out;
    struct pawl_error e;
    long rounds = 0;
    struct fx f;

    if (!nomem_works()) return; /* sanitizers have their own allocator */
    fx_begin(&f, 1);
    PGconn *c = PQconnectdb(f.url);
    ck_assert_msg(pawl_enqueue_pg(c, &first, 1, &out, NULL, &e) == PAWL_OK, "%s", e.msg);
    for (int i = 0; i < 2; i++) ck_assert(!round_of(c, 1000000, begun, clash));
    while (round_of(c, rounds, begun, clash)) ck_assert_int_lt(++rounds, 1000);
    ck_assert_int_gt(rounds, 15);
    printf("# %ld rounds\n", rounds);
    PQfinish(c);
    fx_end(&f);
}
END_TEST

static void add(TCase *tc)
{
    if (fx_kinds_n() < 2)
        printf("# skipped: PAWL_TEST_PG names no server\n");
    else
        tcase_add_loop_test(tc, test_every_allocation, 0, 4);
}

int main(void)
{
    return ut_main("pg_door_nomem", add, 60);
}
