// SPDX-License-Identifier: Apache-2.0
/* test_sqlite_compiled.c - statements are compiled once. SQLite compiles one anew by itself when a
 * value is bound that its plan was made with (a LIMIT, since 3.46): 45 us a claim, and nothing else
 * tells. */
#include <sqlite3.h>
#include "lib/fx.h"
#include "store/sqlite/sl.h"

/* first: only forget what came before (the fixture changes the schema). */
static void none_compiled_anew(const struct fx *f, bool first)
{
    int seen = 0;

    for (sqlite3_stmt *q = NULL; (q = sqlite3_next_stmt(sl_of(f->st)->db, q)) != NULL; seen++)
        ck_assert_msg(sqlite3_stmt_status(q, SQLITE_STMTSTATUS_REPREPARE, 1) == 0 || first,
                      "compiled anew: %s", sqlite3_sql(q));
    ck_assert_int_ge(seen, 10);
}

START_TEST(sqlite_compiles_each_statement_once_whatever_is_bound)
{
    struct effect_report r;
    struct job jobs[8];
    struct fx f;

    fx_begin(&f, 0);
    fx_task(&f, "mail");
    fx_join(&f);
    for (int i = 0; i < 60; i++)
        fx_put(&f, "mail", "{}");
    for (size_t size = 1; size <= 16; size *= 2) { /* other limits, instants, ids each time */
        fx_batch_size(&f, size);
        fx_ok(fx_batch(&f, &r), &f);
        ck_assert_uint_gt(r.done, 0); /* a slow machine ends the batch early */
        f.clock.wall_us += 1000;
        ck_assert_uint_gt(fx_claim(&f, jobs, 1 + size / 4, false), 0);
        none_compiled_anew(&f, size == 1);
    }
    fx_end(&f);
}
END_TEST

static void add(TCase *tc)
{
    tcase_add_test(tc, sqlite_compiles_each_statement_once_whatever_is_bound);
}

int main(void)
{
    return ut_main("sqlite_compiled", add, 60);
}
