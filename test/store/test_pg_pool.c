// SPDX-License-Identifier: Apache-2.0
/* test_pg_pool.c - what in a user's statement would stay on a connection that a pooler lends on.
 * The pooler itself: test/e2e/test_pg_pool.py. */
#include "lib/ut.h"
#include "store/pg/pg.h"

START_TEST(session_use_is_found_by_its_words)
{
    static const char *const lasts[] = {
        "SELECT pg_advisory_lock(1)", "select Pg_Try_Advisory_Lock (1, 2)",
        "SELECT \"pg_advisory_lock\"(1)", "DECLARE c CURSOR WITH HOLD FOR SELECT 1",
        "CREATE TEMP TABLE t (a int)", "CREATE LOCAL TEMPORARY TABLE t (a int)",
        "CREATE TEMP VIEW v AS SELECT 1", "SELECT 1 AS a INTO TEMP t",
        "CREATE TEMP TABLE t (a int) ON COMMIT DELETE ROWS",
    };
    static const char *const ends[] = {
        "SELECT pg_advisory_xact_lock(1)", "SELECT 'pg_advisory_lock'",
        "DECLARE c CURSOR FOR SELECT 1", "CREATE TEMP TABLE t (a int) ON COMMIT DROP",
        "SELECT temp FROM weather", "CREATE TABLE temp (a int)", "SELECT 1 -- pg_advisory_lock(1)",
    };

    for (size_t i = 0; i < UT_N(lasts); i++)
        ck_assert_msg(pg_session_use(lasts[i]) != NULL, "let through: %s", lasts[i]);
    for (size_t i = 0; i < UT_N(ends); i++)
        ck_assert_msg(pg_session_use(ends[i]) == NULL, "refused: %s", ends[i]);
}
END_TEST

static void add(TCase *tc)
{
    tcase_add_test(tc, session_use_is_found_by_its_words);
}

int main(void)
{
    return ut_main("pg_pool", add, 30);
}
