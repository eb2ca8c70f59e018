// SPDX-License-Identifier: Apache-2.0
/* test_sqlscan.c - which statements a task may hold, and which parameters they have. */
#include "core/sqlscan.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/err.h"
#include "core/limits.h"
#include "lib/ut.h"

static const struct good {
    const char *sql, *params, *verb, *main;
    bool rows;
} good[] = {
    {"INSERT INTO t VALUES (:a, :b)", "a b", "insert", "insert", false},
    {"  select :a", "a", "select", "select", true},
    {"VALUES (:a)", "a", "values", "values", true},
    {"UPDATE t SET a=:a WHERE b=:b AND c=:a", "a b a", "update", "update", false},
    {"DELETE FROM t WHERE a IN(:a,:b)", "a b", "delete", "delete", false},
    {"REPLACE INTO t VALUES(:_x9)", "_x9", "replace", "replace", false},
    {"SELECT 'it''s :no', :yes", "yes", "select", "select", true},
    {"SELECT \"quoted :no\" , :yes", "yes", "select", "select", true},
    {"SELECT \"a\"\" :no\", :yes", "yes", "select", "select", true},
    {"SELECT [x :no], :yes", "yes", "select", "select", true},
    {"SELECT `x`` :no`, :yes", "yes", "select", "select", true},
    {"SELECT 1 -- it's :no\n, :yes", "yes", "select", "select", true},
    {"-- first :no\nSELECT :yes -- last :no", "yes", "select", "select", true},
    {"/* it's :no ; */ SELECT /* :no */ :yes /**/", "yes", "select", "select", true},
    {"SELECT a::int, b :: text, :yes", "yes", "select", "select", true},
    {"SELECT E'it\\'s :no', e'\\\\', :yes", "yes", "select", "select", true},
    {"SELECT 'back\\', :yes", "yes", "select", "select", true},
    {"SELECT $tag$ it's :no $x$ $tag$, $$ :no $$, :yes", "yes", "select", "select", true},
    {"SELECT a$b$c, :yes", "yes", "select", "select", true},
    {"SELECT json_extract(:j, '$.a:no')", "j", "select", "select", true},
    {"SELECT :j->>'$.a', :j ->'b'", "j j", "select", "select", true},
    {"SELECT 1-:a, 1.5e3+:b, (:c)", "a b c", "select", "select", true},
    {"SELECT ':no'||:yes", "yes", "select", "select", true},
    {"SELECT :yes;", "yes", "select", "select", true},
    {"SELECT :yes ; ; -- done :no", "yes", "select", "select", true},
    {"INSERT INTO t VALUES (1) RETURNING a", "", "insert", "insert", true},
    {"INSERT INTO t VALUES ('RETURNING')", "", "insert", "insert", false},
    {"INSERT INTO t SELECT a FROM u", "", "insert", "insert", false},
    {"UPDATE t SET a = (SELECT \"returning\" FROM u) -- returning", "", "update", "update", false},
    {"WITH x AS (SELECT :a) INSERT INTO t SELECT * FROM x", "a", "with", "insert", false},
    {"WITH x AS (SELECT 1) INSERT INTO t SELECT * FROM x RETURNING id", "", "with", "insert",
     true},
    {"WITH RECURSIVE x(n) AS (VALUES(1) UNION SELECT n+1 FROM x), y AS (SELECT 1) SELECT n FROM x",
     "", "with", "select", true},
    {"WITH x AS (INSERT INTO t VALUES (1) RETURNING id) DELETE FROM u", "", "with", "delete",
     false},
    {"CREATE TABLE IF NOT EXISTS x (a CHECK (a <> 'trigger'))", "", "create", "create", false},
    {"CREATE VIEW v AS SELECT * FROM pawl_jobs", "", "create", "create", false},
    {"CREATE TEMP TABLE trigger_log(a)", "", "create", "create", false},
    {"ALTER TABLE x ADD COLUMN b", "", "alter", "alter", false},
    {"DROP TABLE x", "", "drop", "drop", false},
    {"INSERT INTO pawl_enqueue(task, args) VALUES ('x', :args)", "args", "insert", "insert",
     false},
    {"INSERT OR IGNORE INTO t VALUES (1)", "", "insert", "insert", false},
    {"INSERT INTO rollback VALUES (1)", "", "insert", "insert", false},
    {"SELECT commit_id, \"begin\" FROM t", "", "select", "select", true},
    {"SELECT 'na\xc3\xafve', na\xc3\xafve, :a", "a", "select", "select", true},
    {"SELECT my_pawl_x_job", "", "select", "select", true},
};

static void names_of(const struct sql_scan *s, struct buf *out)
{
    for (size_t i = 0; i < s->params_n; i++) {
        buf_printf(out, "%s%s", i > 0 ? " " : "", s->params[i].name);
    }
}

START_TEST(test_sqlscan_finds_parameters_and_verbs)
{
    const struct good *g = &good[_i];
    struct arena a = {0};
    struct buf names = {0};
    struct pawl_error e = {0};
    struct sql_scan s;

    ck_assert_msg(sql_scan(g->sql, &a, &s, &e) == PAWL_OK, "%s -> %s", g->sql, e.msg);
    names_of(&s, &names);
    ck_assert_msg(strcmp(buf_str(&names), g->params) == 0, "%s -> '%s'", g->sql, buf_str(&names));
    ck_assert_str_eq(s.verb, g->verb);
    ck_assert_str_eq(s.main_verb, g->main);
    ck_assert_msg(s.returns_rows == g->rows, "%s", g->sql);
    for (size_t i = 0; i < s.params_n; i++) {
        const struct sql_param *p = &s.params[i];
        ck_assert(g->sql[p->at] == ':');
        ck_assert_uint_eq(p->len, strlen(p->name) + 1);
        ck_assert(strncmp(g->sql + p->at + 1, p->name, p->len - 1) == 0);
    }
    buf_free(&names);
    arena_free(&a);
}
END_TEST

static const struct bad {
    const char *sql, *word, *why;
} bad[] = {
    {"", "", "empty"},
    {" -- only a comment", "", "empty"},
    {";", "", "empty"},
    {"SELECT 1; SELECT 2", "SELECT", "give them one by one"},
    {"INSERT INTO t VALUES (1);DELETE FROM t;", "DELETE", "give them one by one"},
    {"SELECT 'open", "'open", "string is not closed"},
    {"SELECT 'it''s", "'it", "string is not closed"},
    {"SELECT E'\\'", "'\\'", "string is not closed"},
    {"SELECT \"open", "\"open", "name is not closed"},
    {"SELECT [open", "[open", "name is not closed"},
    {"SELECT `open", "`open", "name is not closed"},
    {"SELECT /* open", "/* open", "comment is not closed"},
    {"SELECT $t$ open $x$", "$t$", "dollar-quoted string is not closed"},
    {"SELECT (1", "", "parenthesis is not closed"},
    {"SELECT 1)", ")", "closes nothing"},
    {"BEGIN", "BEGIN", "transaction"},
    {"begin immediate", "begin", "transaction"},
    {"-- x\n  Commit", "Commit", "transaction"},
    {"END", "END", "transaction"},
    {"ROLLBACK TO x", "ROLLBACK", "transaction"},
    {"SAVEPOINT x", "SAVEPOINT", "transaction"},
    {"RELEASE x", "RELEASE", "transaction"},
    {"START TRANSACTION", "START", "transaction"},
    {"ABORT", "ABORT", "transaction"},
    {"/**/ATTACH 'x' AS y", "ATTACH", "atomic"},
    {"DETACH y", "DETACH", "atomic"},
    {"PRAGMA synchronous = OFF", "PRAGMA", "on_connect"},
    {"VACUUM INTO 'x'", "VACUUM", "inside a transaction"},
    {"EXPLAIN QUERY PLAN SELECT 1", "EXPLAIN", "runs nothing"},
    {"INSRT INTO t VALUES (1)", "insrt", "did you mean 'insert'"},
    {"hello world", "hello", "no statement"},
    {"(SELECT 1)", "(", "begins with a word"},
    {"'SELECT'", "'SELECT'", "begins with a word"},
    {":a", ":a", "begins with a word"},
    {"WITH x AS (SELECT 1)", "with", "follows its tables"},
    {"INSERT OR ROLLBACK INTO t VALUES (1)", "ROLLBACK", "ABORT"},
    {"CREATE TABLE t (a UNIQUE ON CONFLICT rollback)", "rollback", "ABORT"},
    {"CREATE TRIGGER x AFTER INSERT ON t BEGIN SELECT 1; END", "TRIGGER", "triggers"},
    {"create temp trigger x AFTER INSERT ON t BEGIN SELECT 1; END", "trigger", "triggers"},
    {"CREATE OR REPLACE CONSTRAINT TRIGGER x", "TRIGGER", "triggers"},
    {"DELETE FROM pawl_x_job", "pawl_x_job", "private table"},
    {"DELETE FROM main.Pawl_X_Job", "Pawl_X_Job", "private table"},
    {"DELETE FROM \"PAWL_X_JOB\"", "\"PAWL_X_JOB\"", "private table"},
    {"DELETE FROM [pawl_x_job]", "[pawl_x_job]", "private table"},
    {"DELETE FROM `pawl_x_job`", "`pawl_x_job`", "private table"},
    {"DELETE FROM 'pawl_x_job'", "'pawl_x_job'", "private table"},
    {"SELECT (SELECT count(*) FROM pawl_x_ready)", "pawl_x_ready", "private table"},
    {"DROP VIEW pawl_jobs", "pawl_jobs", "pawl_"},
    {"ALTER TABLE main.pawl_last RENAME TO x", "pawl_last", "pawl_"},
    {"CREATE TEMP VIEW \"pawl_enqueue\" AS SELECT 1", "\"pawl_enqueue\"", "pawl_"},
    {"SELECT ?", "?", ":name"},
    {"SELECT ?1", "?1", ":name"},
    {"SELECT @x", "@x", ":name"},
    {"SELECT $x", "$x", ":name"},
    {"SELECT $1", "$1", ":name"},
    {"SELECT $1$ 1 $1$", "$1", ":name"},
    {"SELECT #1", "#1", ":name"},
    {"SELECT @::x", "@", ":name"},
    {"SELECT $::x", "$", ":name"},
    {"SELECT :1", ":1", "begins with a letter"},
    {"SELECT :\xc3\xa9", ":", "begins with a letter"},
    {"SELECT :a\xc3\xa9", ":a", "only letters"},
    {"SELECT :a$", ":a$", "only letters"},
    {"SELECT a:b", ":b", "put a blank"},
    {"SELECT * FROM t LIMIT:n", ":n", "put a blank"},
    {"SELECT 1:b", ":b", "put a blank"},
    {"SELECT :a:b", ":a", "CAST"},
    {"SELECT :a::int", ":a", "CAST"},
    {"SELECT :a(1)", ":a", "parenthesis"},
    {"SELECT a:::b", ":", "two a cast"},
};

START_TEST(test_sqlscan_refuses_and_names_the_word)
{
    const struct bad *b = &bad[_i];
    struct arena a = {0};
    struct pawl_error e = {0};
    struct sql_scan s;

    ck_assert_msg(sql_scan(b->sql, &a, &s, &e) == PAWL_CONFIG, "%s was accepted", b->sql);
    ck_assert(e.rc == PAWL_CONFIG);
    ck_assert_msg(strstr(e.msg, b->word) != NULL, "%s -> %s", b->sql, e.msg);
    ck_assert_msg(strstr(e.msg, b->why) != NULL, "%s -> %s", b->sql, e.msg);
    ck_assert(sql_scan(b->sql, &a, &s, NULL) == PAWL_CONFIG);
    arena_free(&a);
}
END_TEST

START_TEST(test_sqlscan_end_leaves_out_the_semicolon)
{
    struct arena a = {0};
    struct sql_scan s;

    ck_assert(sql_scan("SELECT 1 ; -- x", &a, &s, NULL) == PAWL_OK);
    ck_assert_uint_eq(s.end, strlen("SELECT 1"));
    ck_assert(sql_scan("SELECT ';'", &a, &s, NULL) == PAWL_OK);
    ck_assert_uint_eq(s.end, strlen("SELECT ';'"));
    ck_assert(!s.dollar_quotes);
    ck_assert(sql_scan("SELECT $a$ ; $a$ ;", &a, &s, NULL) == PAWL_OK);
    ck_assert_uint_eq(s.end, strlen("SELECT $a$ ; $a$"));
    ck_assert(s.dollar_quotes);
    arena_free(&a);
}
END_TEST

START_TEST(test_sqlscan_refuses_a_long_statement)
{
    struct arena a = {0};
    struct pawl_error e = {0};
    struct sql_scan s;
    char *text = malloc(LIMIT_SQL_BYTES + 2);

    ck_assert_ptr_nonnull(text);
    memset(text, ' ', LIMIT_SQL_BYTES + 1);
    for (size_t i = 0; i < 8; i++) text[i] = "SELECT 1"[i];
    text[LIMIT_SQL_BYTES] = '\0';
    ck_assert(sql_scan(text, &a, &s, &e) == PAWL_OK);
    text[LIMIT_SQL_BYTES] = ' ';
    text[LIMIT_SQL_BYTES + 1] = '\0';
    ck_assert(sql_scan(text, &a, &s, &e) == PAWL_CONFIG);
    ck_assert_ptr_nonnull(strstr(e.msg, "65536"));
    free(text);
    arena_free(&a);
}
END_TEST

START_TEST(test_sqlscan_setup_has_its_own_rules)
{
    static const char *const yes[] = {
        "PRAGMA cache_size = -65536", "PRAGMA main.mmap_size=0;", "pragma temp_store(memory)",
        "SELECT load_extension('x')", "CREATE TEMP TABLE x(a)",
        "CREATE TEMPORARY VIEW v AS SELECT 1", "WITH x AS (SELECT 1) SELECT * FROM x",
    };
    static const char *const no[] = {
        "PRAGMA synchronous = OFF", "PRAGMA main . \"Journal_Mode\" = delete",
        "PRAGMA [foreign_keys](0)", "pragma wal_checkpoint", "PRAGMA 'query_only' = 1",
        "ATTACH 'x' AS y", "BEGIN", "SELECT :a", "CREATE TABLE x(a)", "CREATE TRIGGER x",
        "CREATE TEMP TRIGGER x", "INSERT INTO x VALUES (1)", "DELETE FROM x", "DROP TABLE x",
        "WITH x AS (SELECT 1) DELETE FROM y", "SELECT * FROM pawl_x_job", "VACUUM", "",
        "PRAGMA cache_size = 1; PRAGMA synchronous = OFF",
    };
    struct arena a = {0};
    struct pawl_error e = {0};
    struct sql_scan s;

    for (size_t i = 0; i < UT_N(yes); i++) {
        ck_assert_msg(sql_scan_setup(yes[i], &a, &s, &e) == PAWL_OK, "%s -> %s", yes[i], e.msg);
    }
    for (size_t i = 0; i < UT_N(no); i++) {
        ck_assert_msg(sql_scan_setup(no[i], &a, &s, &e) == PAWL_CONFIG, "%s", no[i]);
    }
    arena_free(&a);
}
END_TEST

/* What must hold for any text that is accepted. */
static void check_accepted(const char *text, const struct sql_scan *s)
{
    size_t n = strlen(text), at = 0;

    ck_assert(s->verb[0] != '\0' && s->main_verb[0] != '\0');
    ck_assert(s->end > 0 && s->end <= n);
    for (size_t i = 0; i < s->params_n; i++) {
        const struct sql_param *p = &s->params[i];
        ck_assert(p->at >= at && p->at + p->len <= s->end && text[p->at] == ':');
        ck_assert(p->len == strlen(p->name) + 1);
        at = p->at + p->len;
    }
}

/* Random bytes, and good statements with bytes changed, cut out or doubled. */
START_TEST(test_sqlscan_survives_any_bytes)
{
    static const char alphabet[] = "'\"`[]();:?@$#-/*\\\n\tEeab1_. \xc3\xa9";
    struct env_fake f;
    size_t accepted = 0;

    env_fake_init(&f, ut_seed(20270102), 0);
    for (int round = 0; round < 60000; round++) {
        struct arena a = {0};
        struct sql_scan s;
        struct pawl_error e = {0};
        char text[300];
        size_t n = 0;
        if (round % 3 == 0) {
            n = env_below(&f.env, 60);
            for (size_t i = 0; i < n; i++) text[i] = (char)(1 + env_below(&f.env, 255));
        } else {
            const char *from = good[env_below(&f.env, UT_N(good))].sql;
            size_t edits = 1 + env_below(&f.env, 3);
            for (n = 0; from[n] != '\0'; n++) text[n] = from[n];
            for (size_t k = 0; k < edits; k++) {
                size_t at = env_below(&f.env, n);
                text[at] = alphabet[env_below(&f.env, sizeof alphabet - 1)];
                if (env_below(&f.env, 8) == 0) n = at + 1;
            }
        }
        text[n] = '\0';
        enum pawl_rc rc = sql_scan(text, &a, &s, &e);
        ck_assert(rc == PAWL_OK || (rc == PAWL_CONFIG && e.msg[0] != '\0'));
        if (rc == PAWL_OK) check_accepted(text, &s);
        accepted += rc == PAWL_OK;
        arena_free(&a);
    }
    ck_assert_uint_gt(accepted, 1000); /* or the loop tests nothing */
}
END_TEST

static void add(TCase *tc)
{
    tcase_add_loop_test(tc, test_sqlscan_finds_parameters_and_verbs, 0, UT_N(good));
    tcase_add_loop_test(tc, test_sqlscan_refuses_and_names_the_word, 0, UT_N(bad));
    tcase_add_test(tc, test_sqlscan_end_leaves_out_the_semicolon);
    tcase_add_test(tc, test_sqlscan_refuses_a_long_statement);
    tcase_add_test(tc, test_sqlscan_setup_has_its_own_rules);
    tcase_add_test(tc, test_sqlscan_survives_any_bytes);
}

int main(void)
{
    return ut_main("sqlscan", add, 60);
}
