// SPDX-License-Identifier: Apache-2.0
/* test_sqlscan_engine.c - SQLite as the judge of sqlscan: what both accept has the same parameters
 * for both, and what we take for one statement is one for SQLite. */
#include <sqlite3.h>
#include <string.h>

#include "base/clock.h"
#include "core/sqlscan.h"
#include "lib/ut.h"

/* Pieces that, in any order and number, often make an expression list, and sometimes a trap. */
static const char *const pieces[] = {
    ":a", ":b", ":_c1", "'it''s :no'", "\"x\"", "\"x :no\"", "[x]", "`x`", "x", "1", "2.5", "1e3",
    "-- :no\n", "/* :no */", "/*'*/", "(", ")", "(:a)", "+", "-", "||", "->>", ",", ",", ",", ",",
    " ", " ", " ", "AS", "AS y", "e'x'", "E", "X'00'", "::", ":", "::int", "$", "$a", "$$", "?",
    "?1", "@a", "@", "#", "#1", ":a::b", ":a(b)", ":\xc3\xa9", "\xc3\xa9", ":a\xc3\xa9", "x$y",
    ";", "'", "\"", "[", "`", "--", "/*", "*/", "NOT", "IN(:a)", "LIMIT:b", "FROM t", "WHERE",
    "x=:a", "ORDER BY", "GROUP BY", "IS NOT NULL", "COLLATE nocase", "CASE WHEN :a THEN :b END",
    "\\'", "\\",
};

static size_t make(const struct env *env, char *out, size_t cap)
{
    size_t n = 0, parts = 1 + env_below(env, 7);
    const char *s = "SELECT ";

    for (size_t i = 0; i <= parts; i++) {
        while (*s != '\0' && n + 1 < cap) out[n++] = *s++;
        s = pieces[env_below(env, UT_N(pieces))];
    }
    out[n] = '\0';
    return n;
}

/* Every parameter SQLite sees must be one of ours, and the other way round. */
static void compare(const char *text, const struct sql_scan *scan, sqlite3_stmt *st)
{
    int n = sqlite3_bind_parameter_count(st);

    for (int i = 1; i <= n; i++) {
        const char *name = sqlite3_bind_parameter_name(st, i);
        bool ours = false;
        ck_assert_msg(name != NULL && name[0] == ':', "%s: %s", text, name != NULL ? name : "?");
        for (size_t k = 0; k < scan->params_n; k++) {
            ours = ours || strcmp(scan->params[k].name, name + 1) == 0;
        }
        ck_assert_msg(ours, "only SQLite sees %s in: %s", name, text);
    }
    for (size_t k = 0; k < scan->params_n; k++) {
        char name[64];
        sqlite3_snprintf(sizeof name, name, ":%s", scan->params[k].name);
        ck_assert_msg(sqlite3_bind_parameter_index(st, name) > 0, "only we see %s in: %s", name,
                      text);
    }
}

START_TEST(test_sqlscan_agrees_with_the_engine)
{
    struct env_fake f;
    sqlite3 *db = NULL;
    size_t both = 0, with_params = 0;

    env_fake_init(&f, ut_seed(20270104), 0);
    ck_assert(sqlite3_open(":memory:", &db) == SQLITE_OK);
    ck_assert(sqlite3_exec(db, "CREATE TABLE t(x, y)", NULL, NULL, NULL) == SQLITE_OK);
    for (int round = 0; round < 150000; round++) {
        struct arena a = {0};
        struct sql_scan scan;
        sqlite3_stmt *st = NULL;
        char text[256];
        (void)make(&f.env, text, sizeof text);
        if (sql_scan(text, &a, &scan, NULL) == PAWL_OK) {
            const char *rest = NULL;
            text[scan.end] = '\0';
            if (sqlite3_prepare_v2(db, text, -1, &st, &rest) == SQLITE_OK && st != NULL &&
                !scan.dollar_quotes) {
                ck_assert_msg(rest == NULL || *rest == '\0', "two statements: %s", text);
                compare(text, &scan, st);
                both++;
                with_params += scan.params_n > 0;
            }
            sqlite3_finalize(st);
        }
        arena_free(&a);
    }
    ck_assert_uint_gt(both, 3000); /* or the loop compares nothing */
    ck_assert_uint_gt(with_params, 1000);
    sqlite3_close(db);
}
END_TEST

static void add(TCase *tc)
{
    tcase_add_test(tc, test_sqlscan_agrees_with_the_engine);
}

int main(void)
{
    return ut_main("sqlscan_engine", add, 120);
}
