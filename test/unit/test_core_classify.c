// SPDX-License-Identifier: Apache-2.0
/* test_core_classify.c - exit codes, HTTP statuses, SQLite codes, and the worse of two. */
#include "core/rules.h"

#include <sqlite3.h>
#include "lib/ut.h"

START_TEST(test_classify_exit_follows_the_table)
{
    static const int permanent[] = { 64, 65, 66, 67, 70, 72, 73, 76, 77, 78, 100 };
    struct policy p;

    policy_defaults(&p);
    for (int code = 0; code <= 255; code++) {
        enum outcome want = code == 0 ? OUT_DONE : OUT_TRANSIENT;
        for (size_t i = 0; i < UT_N(permanent); i++)
            if (permanent[i] == code) want = OUT_PERMANENT;
        ck_assert_msg(classify_exit(code, &p) == want, "exit code %d", code);
    }
    ck_assert_int_eq(classify_exit(-1, &p), OUT_TRANSIENT);
    ck_assert_int_eq(classify_exit(256, &p), OUT_TRANSIENT);
    ck_assert_int_eq(classify_exit(INT32_MAX, &p), OUT_TRANSIENT);
}
END_TEST

START_TEST(test_classify_exit_lets_the_policy_say_otherwise)
{
    struct policy p;
    bool unknown;
    char why[128];

    policy_defaults(&p);
    ck_assert(policy_set(&p, "transient", "65 255", &unknown, why, sizeof why));
    ck_assert(policy_set(&p, "permanent", "1 75 128-130", &unknown, why, sizeof why));
    ck_assert(policy_set(&p, "discard", "2 63-64", &unknown, why, sizeof why));
    ck_assert_int_eq(classify_exit(65, &p), OUT_TRANSIENT);
    ck_assert_int_eq(classify_exit(255, &p), OUT_TRANSIENT);
    ck_assert_int_eq(classify_exit(1, &p), OUT_PERMANENT);
    ck_assert_int_eq(classify_exit(75, &p), OUT_PERMANENT);
    ck_assert_int_eq(classify_exit(127, &p), OUT_TRANSIENT);
    ck_assert_int_eq(classify_exit(128, &p), OUT_PERMANENT);
    ck_assert_int_eq(classify_exit(130, &p), OUT_PERMANENT);
    ck_assert_int_eq(classify_exit(131, &p), OUT_TRANSIENT);
    ck_assert_int_eq(classify_exit(2, &p), OUT_DISCARD);
    ck_assert_int_eq(classify_exit(63, &p), OUT_DISCARD);
    ck_assert_int_eq(classify_exit(64, &p), OUT_DISCARD);
    ck_assert_int_eq(classify_exit(0, &p), OUT_DONE);
}
END_TEST

START_TEST(test_classify_http_follows_the_table)
{
    static const struct { int s; enum outcome o; } c[] = {
        { 200, OUT_DONE }, { 201, OUT_DONE }, { 202, OUT_DONE }, { 204, OUT_DONE },
        { 301, OUT_PERMANENT }, { 304, OUT_PERMANENT }, { 307, OUT_PERMANENT },
        { 400, OUT_PERMANENT }, { 401, OUT_PERMANENT }, { 404, OUT_PERMANENT },
        { 410, OUT_PERMANENT }, { 415, OUT_PERMANENT }, { 422, OUT_PERMANENT },
        { 499, OUT_PERMANENT }, { 408, OUT_TRANSIENT }, { 409, OUT_TRANSIENT },
        { 425, OUT_TRANSIENT }, { 429, OUT_TRANSIENT }, { 500, OUT_TRANSIENT },
        { 503, OUT_TRANSIENT }, { 599, OUT_TRANSIENT }, { 600, OUT_TRANSIENT },
        { 100, OUT_TRANSIENT }, { 0, OUT_TRANSIENT }, { -1, OUT_TRANSIENT },
    };

    for (size_t i = 0; i < UT_N(c); i++)
        ck_assert_msg(classify_http(c[i].s) == c[i].o, "status %d", c[i].s);
}
END_TEST

/* The numbers in classify.c are ours; here they meet the engine's own header. */
START_TEST(test_classify_sqlite_by_the_engines_own_names)
{
    static const struct { int code; enum outcome o; bool pinned; } c[] = {
        { SQLITE_OK, OUT_DONE, true }, { SQLITE_ROW, OUT_DONE, true },
        { SQLITE_DONE, OUT_DONE, true }, { SQLITE_BUSY, OUT_TRANSIENT, false },
        { SQLITE_BUSY_SNAPSHOT, OUT_TRANSIENT, false },
        { SQLITE_BUSY_TIMEOUT, OUT_TRANSIENT, false }, { SQLITE_LOCKED, OUT_TRANSIENT, true },
        { SQLITE_NOMEM, OUT_TRANSIENT, false }, { SQLITE_IOERR_NOMEM, OUT_TRANSIENT, false },
        { SQLITE_FULL, OUT_TRANSIENT, false }, { SQLITE_IOERR, OUT_TRANSIENT, false },
        { SQLITE_IOERR_FSYNC, OUT_TRANSIENT, false }, { SQLITE_CORRUPT, OUT_TRANSIENT, false },
        { SQLITE_NOTADB, OUT_TRANSIENT, false }, { SQLITE_CANTOPEN, OUT_TRANSIENT, false },
        { SQLITE_PROTOCOL, OUT_TRANSIENT, false }, { SQLITE_SCHEMA, OUT_TRANSIENT, false },
        { SQLITE_ABORT_ROLLBACK, OUT_TRANSIENT, false },
        { SQLITE_ERROR_SNAPSHOT, OUT_TRANSIENT, false },
        { SQLITE_ERROR_RETRY, OUT_TRANSIENT, false },
        { SQLITE_READONLY_DBMOVED, OUT_TRANSIENT, false }, { SQLITE_INTERRUPT, OUT_TIMEOUT, true },
        { SQLITE_ERROR, OUT_PERMANENT, true },
        { SQLITE_ERROR_MISSING_COLLSEQ, OUT_PERMANENT, true },
        { SQLITE_CONSTRAINT, OUT_PERMANENT, true },
        { SQLITE_CONSTRAINT_UNIQUE, OUT_PERMANENT, true },
        { SQLITE_CONSTRAINT_FOREIGNKEY, OUT_PERMANENT, true },
        { SQLITE_CONSTRAINT_COMMITHOOK, OUT_MISUSE, true },
        { SQLITE_MISMATCH, OUT_PERMANENT, true }, { SQLITE_RANGE, OUT_PERMANENT, true },
        { SQLITE_TOOBIG, OUT_PERMANENT, true }, { SQLITE_AUTH, OUT_PERMANENT, true },
        { SQLITE_READONLY, OUT_PERMANENT, true }, { 99, OUT_TRANSIENT, true },
        { 99 | 7 << 8, OUT_TRANSIENT, true },
    };

    for (size_t i = 0; i < UT_N(c); i++) {
        bool pinned = !c[i].pinned;
        ck_assert_msg(classify_sql(c[i].code, &pinned) == c[i].o, "code %d", c[i].code);
        ck_assert_msg(pinned == c[i].pinned, "code %d", c[i].code);
        ck_assert_int_eq(classify_sql(c[i].code, NULL), c[i].o);
    }
}
END_TEST

START_TEST(test_outcome_worse_is_an_order)
{
    ck_assert_int_eq(outcome_worse(OUT_DONE, OUT_PERMANENT), OUT_PERMANENT);
    ck_assert_int_eq(outcome_worse(OUT_PERMANENT, OUT_TRANSIENT), OUT_PERMANENT);
    ck_assert_int_eq(outcome_worse(OUT_TRANSIENT, OUT_SNOOZE), OUT_TRANSIENT);
    ck_assert_int_eq(outcome_worse(OUT_SNOOZE, OUT_DONE), OUT_SNOOZE);
    ck_assert_int_eq(outcome_worse(OUT_DONE, OUT_TIMEOUT), OUT_TIMEOUT);
    for (int a = 0; a < OUT_N; a++)
        for (int b = 0; b < OUT_N; b++) {
            enum outcome w = outcome_worse((enum outcome)a, (enum outcome)b);
            ck_assert(w == (enum outcome)a || w == (enum outcome)b);
            ck_assert_int_eq(w, outcome_worse((enum outcome)b, (enum outcome)a));
            for (int c = 0; c < OUT_N; c++)
                ck_assert_int_eq(outcome_worse(w, (enum outcome)c),
                                 outcome_worse((enum outcome)a,
                                               outcome_worse((enum outcome)b, (enum outcome)c)));
        }
}
END_TEST

static void add(TCase *tc)
{
    tcase_add_test(tc, test_classify_exit_follows_the_table);
    tcase_add_test(tc, test_classify_exit_lets_the_policy_say_otherwise);
    tcase_add_test(tc, test_classify_http_follows_the_table);
    tcase_add_test(tc, test_classify_sqlite_by_the_engines_own_names);
    tcase_add_test(tc, test_outcome_worse_is_an_order);
}

int main(void) { return ut_main("classify", add, 10); }
