// SPDX-License-Identifier: Apache-2.0
/* test_handler_c_args.c - what a C handler reads and writes: members of the args, values in
 * statements, rows, results, texts, follow-up jobs; statements kept prepared. */
#include <locale.h>

#include "unit/test_handler_c.h"

/* Run `fn` in apply on a job with these args; it checks by itself. */
static void in_apply(const char *args, pawl_handler_fn *fn)
{
    struct pawl_ran ran;
    struct cfx f;

    cfx_begin(&f);
    cfx_work(&f, false);
    ran = cfx_run(&f, args, fn);
    cfx_is(&ran, PAWL_STATE_DONE, "done", "");
    cfx_end(&f);
}

/* --- args --- */

#define BIG "9223372036854775807"
static const char many[] =
    "{\"i\":-42,\"max\":" BIG ",\"over\":9223372036854775808,\"r\":1.5,\"e\":1e3,\"huge\":1e999,"
    "\"t\":\"h\\u00e9\\n\\ud83d\\ude00\",\"plain\":\"x\",\"empty\":\"\",\"half\":\"\\ud83d\","
    "\"yes\":true,\"no\":false,\"nil\":null,\"twice\":1,\"twice\":2,"
    "\"a/b\":{\"m~n\":7,\"\":8},\"list\":[10,{\"sku\":\"s\"},[ ]],\"o\":{ \"k\" : 1 },"
    "\"\\u0061cc\":3,\"nul\":\"a\\u0000b\"}";

static enum pawl_outcome reads_types(struct pawl_run *run)
{
    const char *t = "untouched";
    int64_t i = 0;
    double r = 0;
    bool b = false;
    size_t n = 0;

    OK(pawl_arg_int(run, "i", &i, e));
    ck_assert_int_eq(i, -42);
    OK(pawl_arg_int(run, "max", &i, e));
    ck_assert_int_eq(i, INT64_MAX);
    OK(pawl_arg_real(run, "r", &r, e));
    ck_assert(r == 1.5);
    OK(pawl_arg_real(run, "i", &r, e));
    ck_assert(r == -42.0);
    OK(pawl_arg_real(run, "e", &r, e));
    ck_assert(r == 1000.0);
    OK(pawl_arg_text(run, "t", &t, &n, e));
    ck_assert_str_eq(t, "h\xc3\xa9\n\xf0\x9f\x98\x80");
    ck_assert_uint_eq(n, strlen(t));
    OK(pawl_arg_text(run, "empty", &t, &n, e));
    ck_assert(n == 0 && *t == '\0');
    OK(pawl_arg_text(run, "plain", &t, NULL, e));
    ck_assert_str_eq(t, "x");
    OK(pawl_arg_text(run, "nul", &t, &n, e));
    ck_assert(n == 3 && memcmp(t, "a\0b", 4) == 0);
    OK(pawl_arg_bool(run, "yes", &b, e));
    ck_assert(b);
    OK(pawl_arg_bool(run, "no", &b, e));
    ck_assert(!b);
    OK(pawl_arg_int(run, "acc", &i, e)); /* its name is written with an escape */
    ck_assert_int_eq(i, 3);
    return PAWL_DONE;
}

static enum pawl_outcome reads_pointers(struct pawl_run *run)
{
    struct pawl_value v;
    const char *t;
    int64_t i;

    OK(pawl_arg_int(run, "/i", &i, e));
    ck_assert_int_eq(i, -42);
    OK(pawl_arg_int(run, "/a~1b/m~0n", &i, e));
    ck_assert_int_eq(i, 7);
    OK(pawl_arg_int(run, "/a~1b/", &i, e));
    ck_assert_int_eq(i, 8);
    OK(pawl_arg_int(run, "/list/0", &i, e));
    ck_assert_int_eq(i, 10);
    OK(pawl_arg_text(run, "/list/1/sku", &t, NULL, e));
    ck_assert_str_eq(t, "s");
    OK(pawl_arg(run, "/list/2", &v, e));
    ck_assert(v.type == PAWL_JSON && v.n == 3 && strcmp(v.p, "[ ]") == 0);
    OK(pawl_arg(run, "o", &v, e));
    ck_assert(v.type == PAWL_JSON && strcmp(v.p, "{ \"k\" : 1 }") == 0);
    OK(pawl_arg(run, "", &v, e));
    ck_assert(v.type == PAWL_JSON && v.n == strlen(many));
    OK(pawl_arg(run, "i", &v, e));
    ck_assert(v.type == PAWL_INT && v.i == -42);
    OK(pawl_arg(run, "r", &v, e));
    ck_assert(v.type == PAWL_REAL && v.r == 1.5);
    OK(pawl_arg(run, "yes", &v, e));
    ck_assert(v.type == PAWL_BOOL && v.i == 1);
    OK(pawl_arg(run, "t", &v, e));
    ck_assert(v.type == PAWL_TEXT);
    return PAWL_DONE;
}

static enum pawl_outcome refusals(struct pawl_run *run)
{
    int64_t i = 77;
    double r = 7.7;
    const char *t = "untouched";
    bool b = true;

    FAILS(pawl_arg_int(run, "absent", &i, e), PAWL_NOTFOUND, "absent");
    FAILS(pawl_arg_int(run, "nil", &i, e), PAWL_NOTFOUND, "null");
    FAILS(pawl_arg_int(run, "r", &i, e), PAWL_BADDATA, "1.5");
    FAILS(pawl_arg_int(run, "e", &i, e), PAWL_BADDATA, "integer");
    FAILS(pawl_arg_int(run, "plain", &i, e), PAWL_BADDATA, "a string");
    FAILS(pawl_arg_int(run, "over", &i, e), PAWL_BADDATA, "64 bits");
    FAILS(pawl_arg_int(run, "twice", &i, e), PAWL_BADDATA, "twice");
    FAILS(pawl_arg_real(run, "huge", &r, e), PAWL_BADDATA, "range");
    FAILS(pawl_arg_text(run, "i", &t, NULL, e), PAWL_BADDATA, "a number");
    FAILS(pawl_arg_text(run, "half", &t, NULL, e), PAWL_BADDATA, "surrogate");
    FAILS(pawl_arg_bool(run, "i", &b, e), PAWL_BADDATA, "boolean");
    FAILS(pawl_arg_int(run, "/list/3", &i, e), PAWL_NOTFOUND, "/list/3");
    FAILS(pawl_arg_int(run, "/list/01", &i, e), PAWL_BADDATA, "no index");
    FAILS(pawl_arg_int(run, "/list/-", &i, e), PAWL_BADDATA, "no index");
    FAILS(pawl_arg_int(run, "/i/x", &i, e), PAWL_BADDATA, "no members");
    FAILS(pawl_arg_int(run, "/nil/x", &i, e), PAWL_NOTFOUND, "/nil/x");
    FAILS(pawl_arg_int(run, "/a~2", &i, e), PAWL_BADARG, "~");
    FAILS(pawl_arg_int(run, NULL, &i, e), PAWL_BADARG, "NULL");
    ck_assert(i == 77 && r == 7.7 && b && strcmp(t, "untouched") == 0);
    return PAWL_DONE;
}

START_TEST(test_args)
{
    in_apply(many, reads_types);
    in_apply(many, reads_pointers);
    in_apply(many, refusals);
}
END_TEST

static enum pawl_outcome no_object(struct pawl_run *run)
{
    int64_t i;

    FAILS(pawl_arg_int(run, "x", &i, e), PAWL_BADDATA, "an array");
    OK(pawl_arg_int(run, "/1", &i, e));
    ck_assert_int_eq(i, 5);
    return PAWL_DONE;
}

START_TEST(test_args_that_are_no_object)
{
    in_apply(" [4, 5] ", no_object);
}
END_TEST

static enum pawl_outcome one_and_a_half(struct pawl_run *run)
{
    double r = 0;

    OK(pawl_arg_real(run, "r", &r, e));
    ck_assert(r == 1.5);
    return PAWL_DONE;
}

/* A program may have set a locale whose decimal point is a comma. */
START_TEST(test_numbers_do_not_follow_the_locale)
{
    static const char *const names[] = {"de_DE.UTF-8", "de_DE.utf8", "fr_FR.UTF-8", "es_ES.UTF-8"};
    bool set = false;

    for (size_t i = 0; i < UT_N(names) && !set; i++)
        set = setlocale(LC_ALL, names[i]) != NULL && strcmp(localeconv()->decimal_point, ",") == 0;
    if (!set) printf("# no locale here has a decimal comma: only the C locale is seen\n");
    in_apply("{\"r\":1.5}", one_and_a_half);
}
END_TEST

static enum pawl_outcome needs_amount(struct pawl_run *run)
{
    struct pawl_error e;
    int64_t i;

    if (pawl_arg_int(run, "amount", &i, &e) != PAWL_OK) return pawl_run_error(run, &e);
    return PAWL_DONE;
}

START_TEST(test_a_missing_member_is_permanent)
{
    struct pawl_ran ran;
    struct cfx f;

    cfx_begin(&f);
    cfx_work(&f, false);
    ran = cfx_run(&f, "{}", needs_amount);
    cfx_is(&ran, PAWL_STATE_DEAD, "permanent", "amount");
    cfx_end(&f);
}
END_TEST

/* --- statements --- */

struct seen {
    int rows;
    int64_t sum;
    int stop_at;
};

static bool see(void *ctx, const struct pawl_value *col, size_t n)
{
    struct seen *s = ctx;

    ck_assert_uint_eq(n, 2);
    ck_assert_str_eq(col[0].name, "k");
    ck_assert_int_eq(col[0].type, PAWL_TEXT);
    ck_assert_int_eq(col[0].p[col[0].n], '\0');
    s->rows++;
    s->sum += col[1].i;
    return s->rows != s->stop_at;
}

static enum pawl_outcome rows(struct pawl_run *run)
{
    struct seen all = {0}, some = {.stop_at = 2};
    struct pawl_value v = pawl_int("least", 2), out[3];
    int64_t changed = -1;
    bool found = false;

    OK(cfx_insert(run, "a", 1, e));
    OK(cfx_insert(run, "b", 2, e));
    OK(cfx_insert(run, "c", 3, e));
    OK(pawl_query(run, "SELECT k, v FROM row", NULL, 0, see, &all, e));
    ck_assert(all.rows == 3 && all.sum == 6);
    OK(pawl_query(run, "SELECT k, v FROM row", NULL, 0, see, &some, e));
    ck_assert_int_eq(some.rows, 2);
    OK(pawl_exec(run, "UPDATE row SET v = v * 10 WHERE v >= :least", &v, 1, &changed, e));
    ck_assert_int_eq(changed, 2);
    OK(pawl_query_row(run, "SELECT v, k, NULL FROM row WHERE v > :least ORDER BY v DESC", &v, 1,
                      out, 3, &found, e));
    ck_assert(found && out[0].type == PAWL_INT && out[0].i == 30);
    ck_assert(out[1].type == PAWL_TEXT && strcmp(out[1].p, "c") == 0);
    ck_assert(out[2].type == PAWL_NULL);
    v.i = 1000;
    OK(pawl_query_row(run, "SELECT v FROM row WHERE v > :least", &v, 1, out, 1, &found, e));
    ck_assert(!found && out[0].type == PAWL_NULL);
    OK(pawl_query_row(run, "INSERT INTO row VALUES ('d', 4) RETURNING v + 1", NULL, 0, out, 1,
                      &found, e));
    ck_assert(found && out[0].i == 5);
    return PAWL_DONE;
}

START_TEST(test_rows)
{
    in_apply("{}", rows);
}
END_TEST

static enum pawl_outcome values(struct pawl_run *run)
{
    static const char bytes[] = {0, 1, (char)0xff};
    const struct pawl_value v[] = {
        pawl_text("t", "x"), pawl_real("r", 0.25), pawl_int("i", INT64_MIN), pawl_null("n"),
        pawl_blob("b", bytes, sizeof bytes), {.name = "yes", .type = PAWL_BOOL, .i = 7},
        pawl_text("none", NULL), pawl_blob("nothing", NULL, 0), {.name = "j", .type = PAWL_JSON,
                                                                 .p = "[1]", .n = 3},
    };
    struct pawl_value out[10];
    bool found;

    OK(pawl_query_row(run, cfx_of_kind("SELECT :t, :r, :i, :n, :b, :yes, :none, :nothing, :j,"
                                       " :missing",
                                       "SELECT :t, CAST(:r AS float8), CAST(:i AS bigint), :n,"
                                       " CAST(:b AS bytea), CAST(:yes AS bool), :none,"
                                       " CAST(:nothing AS bytea), :j, :missing"), v,
                      UT_N(v), out, 10, &found, e));
    ck_assert(found && strcmp(out[0].p, "x") == 0 && out[1].r == 0.25 && out[2].i == INT64_MIN);
    ck_assert(out[3].type == PAWL_NULL && out[4].type == PAWL_BLOB && out[4].n == 3
              && memcmp(out[4].p, bytes, 3) == 0);
    ck_assert(out[5].type == PAWL_INT && out[5].i == 1 && out[6].type == PAWL_NULL);
    ck_assert(out[7].type == PAWL_BLOB && out[7].n == 0);
    ck_assert(strcmp(out[8].p, "[1]") == 0 && out[9].type == PAWL_NULL);
    return PAWL_DONE;
}

START_TEST(test_values)
{
    in_apply("{}", values);
}
END_TEST

static enum pawl_outcome bad_values(struct pawl_run *run)
{
    struct pawl_value v = pawl_text("k", "\xff"), out[2];

    FAILS(pawl_exec(run, "SELECT :k", &v, 1, NULL, e), PAWL_BADARG, "UTF-8");
    v = pawl_int(":k", 1);
    FAILS(pawl_exec(run, "SELECT :k", &v, 1, NULL, e), PAWL_BADARG, "colon");
    v = pawl_int(NULL, 1);
    FAILS(pawl_exec(run, "SELECT :k", &v, 1, NULL, e), PAWL_BADARG, "no name");
    FAILS(pawl_exec(run, "SELECT ?", NULL, 0, NULL, e), PAWL_CONFIG, "?");
    FAILS(pawl_exec(run, "SELECT 1; SELECT 2", NULL, 0, NULL, e), PAWL_CONFIG, "");
    FAILS(pawl_exec(run, "PRAGMA user_version", NULL, 0, NULL, e), PAWL_CONFIG, "PRAGMA");
    FAILS(pawl_exec(run, NULL, NULL, 0, NULL, e), PAWL_BADARG, "NULL");
    FAILS(pawl_exec(run, "SELECT 1", NULL, 3, NULL, e), PAWL_BADARG, "NULL");
    FAILS(pawl_query_row(run, "SELECT 1", NULL, 0, out, 2, NULL, e), PAWL_BADARG, "columns");
    FAILS(pawl_query(run, "SELECT 1", NULL, 0, NULL, NULL, e), PAWL_BADARG, "callback");
    FAILS(pawl_exec(run, "SELECT no_such", NULL, 0, NULL, e), PAWL_SQL,
          cfx_of_kind("no such column", "\"no_such\" does not exist"));
    return PAWL_FAIL; /* as it is: each of them counts as a failed call */
}

START_TEST(test_bad_values)
{
    struct pawl_ran ran;
    struct cfx f;

    cfx_begin(&f);
    cfx_work(&f, false);
    ran = cfx_run(&f, "{}", bad_values);
    cfx_is(&ran, PAWL_STATE_DEAD, "permanent", "UTF-8");
    cfx_end(&f);
}
END_TEST

/* More texts than are kept, in two rounds, each inside the rows of a statement that stays in use;
 * and the text of that statement again. */
struct nest {
    struct pawl_run *run;
    int rows;
};

static bool nested(void *ctx, const struct pawl_value *col, size_t n)
{
    struct nest *x = ctx;
    struct pawl_value out;
    char sql[64];

    ck_assert(n == 1 && col[0].type == PAWL_INT);
    x->rows++;
    for (int i = 0; i < 300; i++) {
        snprintf(sql, sizeof sql, "SELECT %d", i);
        OK(pawl_query_row(x->run, sql, NULL, 0, &out, 1, NULL, e));
        ck_assert_int_eq(out.i, i);
    }
    OK(pawl_query_row(x->run, "SELECT 7 UNION SELECT 8", NULL, 0, &out, 1, NULL, e));
    ck_assert_int_eq(out.i, 7);
    return true;
}

static enum pawl_outcome many_texts(struct pawl_run *run)
{
    struct nest x = {.run = run};

    OK(pawl_query(run, "SELECT 7 UNION SELECT 8", NULL, 0, nested, &x, e));
    ck_assert_int_eq(x.rows, 2);
    return PAWL_DONE;
}

START_TEST(test_statements_make_room_for_each_other)
{
    in_apply("{}", many_texts);
}
END_TEST

/* --- result, texts, memory, what a run knows --- */

static enum pawl_outcome result(struct pawl_run *run)
{
    static char big[256 * 1024 + 3];

    memset(big, ' ', sizeof big);
    big[0] = '1';
    FAILS(pawl_run_result(run, "{", 1, e), PAWL_BADDATA, "byte");
    FAILS(pawl_run_result(run, big, sizeof big, e), PAWL_TOOBIG, "bytes");
    OK(pawl_run_result(run, "[1]", 3, e));
    FAILS(pawl_run_result(run, "", 0, e), PAWL_BADDATA, "byte");
    OK(pawl_run_result(run, "{\"sum\": 2}", 0, e));
    return PAWL_DONE;
}

START_TEST(test_the_last_result_counts)
{
    char text[64];
    struct pawl_ran ran;
    struct cfx f;

    cfx_begin(&f);
    cfx_work(&f, false);
    ran = cfx_run(&f, "{}", result);
    cfx_is(&ran, PAWL_STATE_DONE, "done", "");
    ck_assert_str_eq(cfx_text(&f, "SELECT result FROM pawl_jobs", text, sizeof text),
                     "{\"sum\": 2}");
    cfx_end(&f);
}
END_TEST

static enum pawl_outcome long_text(struct pawl_run *run)
{
    static char text[100000];

    memset(text, 'x', sizeof text);
    text[0] = 'A';
    text[sizeof text - 1] = 'Z';
    text[5000] = (char)0xff;
    run->api->error(run, text, sizeof text);
    return PAWL_FAIL;
}

START_TEST(test_a_long_error_keeps_head_and_tail)
{
    static char text[20000];
    struct cfx f;
    size_t n;

    cfx_begin(&f);
    cfx_work(&f, false);
    (void)cfx_run(&f, "{}", long_text);
    (void)cfx_text(&f, "SELECT error FROM pawl_jobs", text, sizeof text);
    n = strlen(text);
    ck_assert(n > 8000 && n < 9000 && text[0] == 'A' && text[n - 1] == 'Z');
    ck_assert_ptr_nonnull(strstr(text, "left out"));
    cfx_end(&f);
}
END_TEST

static enum pawl_outcome knows(struct pawl_run *run)
{
    char *p = pawl_run_alloc(run, 10000);

    ck_assert_ptr_nonnull(p);
    for (size_t i = 0; i < 10000; i++) ck_assert(p[i] == 0);
    ck_assert_int_eq(run->job_id, 1);
    ck_assert_int_eq(run->attempt, 1);
    ck_assert_int_eq(run->token, 1);
    ck_assert_int_eq(run->created_at_us, cfx_of(run)->now_us);
    ck_assert_str_eq(run->task, "t");
    ck_assert_str_eq(run->queue, "default");
    ck_assert_ptr_null(run->source);
    ck_assert_ptr_null(run->key);
    ck_assert_ptr_null(run->headers);
    ck_assert(strncmp(pawl_run_idempotency_key(run), "pawl-", 5) == 0);
    ck_assert_uint_eq(strlen(pawl_run_idempotency_key(run)), 37);
    ck_assert_str_eq(run->args, "{\"a\": 1}");
    ck_assert_uint_eq(run->args_bytes, 8);
    ck_assert_int_eq(pawl_run_heartbeat(run, NULL), PAWL_OK);
    ck_assert(!pawl_run_cancelled(run));
    return PAWL_DONE;
}

START_TEST(test_what_a_run_knows)
{
    in_apply("{\"a\": 1}", knows);
}
END_TEST

/* --- follow-ups --- */

static enum pawl_outcome follows(struct pawl_run *run)
{
    const struct pawl_request r[] = {{.task = "next", .args = "[1]"},
                                     {.task = "next", .key = "k", .args = "[2]"}};
    struct pawl_enqueued out[2];
    int64_t fail = 0;
    size_t bad;

    OK(pawl_arg_int(run, "fail", &fail, e));
    OK(pawl_run_enqueue(run, r, 2, out, &bad, e));
    ck_assert(out[0].created && out[1].created && out[0].id != out[1].id);
    OK(pawl_run_enqueue(run, &r[1], 1, out, NULL, e));
    ck_assert(!out[0].created);
    return fail != 0 ? PAWL_FAIL : PAWL_DONE;
}

START_TEST(test_follow_ups_share_the_jobs_fate)
{
    struct pawl_ran ran;
    struct cfx f;

    cfx_begin(&f);
    cfx_work(&f, false);
    ran = cfx_run(&f, "{\"fail\":1}", follows);
    cfx_is(&ran, PAWL_STATE_DEAD, "permanent", "");
    ck_assert_int_eq(cfx_num(&f, "SELECT count(*) FROM pawl_jobs WHERE task = 'next'"), 0);
    ran = cfx_run(&f, "{\"fail\":0}", follows);
    cfx_is(&ran, PAWL_STATE_DONE, "done", "");
    ck_assert_int_eq(cfx_num(&f, "SELECT count(*) FROM pawl_jobs WHERE task = 'next'"), 2);
    cfx_end(&f);
}
END_TEST

static void add(TCase *tc)
{
    tcase_add_test(tc, test_args);
    tcase_add_test(tc, test_args_that_are_no_object);
    tcase_add_test(tc, test_numbers_do_not_follow_the_locale);
    tcase_add_test(tc, test_a_missing_member_is_permanent);
    tcase_add_test(tc, test_rows);
    tcase_add_test(tc, test_values);
    tcase_add_test(tc, test_bad_values);
    tcase_add_test(tc, test_statements_make_room_for_each_other);
    tcase_add_test(tc, test_the_last_result_counts);
    tcase_add_test(tc, test_a_long_error_keeps_head_and_tail);
    tcase_add_test(tc, test_what_a_run_knows);
    tcase_add_test(tc, test_follow_ups_share_the_jobs_fate);
}

int main(void)
{
    return cfx_main("handler_c_args", add, 30);
}
