// SPDX-License-Identifier: Apache-2.0
/* test_base_json.c - the scanner accepts RFC 8259 and nothing else; the writer loses nothing. */
#include "base/json.h"

#include <stdint.h>
#include <string.h>
#include "base/clock.h"
#include "lib/ut.h"

static const char *const good[] = {
    "null", "true", "false", "0", "-0", "-1", "10", "1.5", "0.0", "1e5", "1E+5", "1.25e-7", "\"\"",
    "\"a\"", " \t\r\n1 \t\r\n", "[]", "[ ]", "{}", "{ }", "[1,2]", "[[],{}]", "{\"a\":1}",
    "{\"a\":{\"b\":[null]},\"c\":\"d\"}", "\"\\\"\\\\\\/\\b\\f\\n\\r\\t\\u00e9\"",
    "\"\xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80\"", "\"\xed\x9f\xbf\xee\x80\x80\xf4\x8f\xbf\xbf\"",
    "\"\x7f\"", "{\"a\":1,\"a\":2}", "99999999999999999999999999", "-1e999", "\"\\ud800\"",
    "\"\\u0000\"", "[\"\",0]", "{\"\":0}",
};

static const char *const refused[] = {
    "", " ", "nul", "nulll", "True", "+1", "01", "-", "-a", "1.", ".5", "1.e5", "1e", "1e+", "0x10",
    "NaN", "Infinity", "-Infinity", "'a'", "\"", "\"a", "\"\\\"", "\"\\", "\"\\x41\"", "\"\\u12\"",
    "\"\\u123g\"", "\"\\U0041\"", "\"\n\"", "\"\t\"", "\"\x1f\"", "[", "]", "[1", "[1,", "[1,]",
    "[,1]", "[1 2]", "[1,,2]", "[1}", "{", "}", "{\"a\"", "{\"a\":", "{\"a\":1", "{\"a\":1,}",
    "{\"a\" 1}", "{\"a\",1}", "{a:1}", "{1:1}", "{\"a\":1]", "{,}", "{\"a\":1,,\"b\":2}", "1 2",
    "{} {}", "[]]", "// c\n1", "/* c */ 1", "1 // c", "\xef\xbb\xbf{}", "\xef\xbb\xbf", "\"\xff\"",
    "\"\xc0\x80\"", "\"\xc1\xbf\"", "\"\xe0\x80\x80\"", "\"\xe0\x9f\xbf\"", "\"\xed\xa0\x80\"",
    "\"\xed\xbf\xbf\"", "\"\xf0\x80\x80\x80\"", "\"\xf0\x8f\xbf\xbf\"", "\"\xf4\x90\x80\x80\"",
    "\"\xf5\x80\x80\x80\"", "\"\xc3\"", "\"\xe2\x82\"", "\"\x80\"", "\"\xc3(\"", "\xc3\xa9",
    "[1]\xc2\xa0", "\x0b" "1", "{\"a\":1 \"b\":2}", "[\"a\":1]", "truefalse", "-01", "1.5.5",
};

static bool ok(const char *s, int depth)
{
    return json_check(s, strlen(s), depth, NULL, NULL);
}

START_TEST(test_json_accepts_what_the_grammar_allows)
{
    for (size_t i = 0; i < UT_N(good); i++) {
        struct json_err err = { 0, NULL };
        ck_assert_msg(json_check(good[i], strlen(good[i]), 64, NULL, &err), "%s: %s at %zu",
                      good[i], err.why, err.at);
    }
}
END_TEST

START_TEST(test_json_refuses_everything_else_and_says_why)
{
    for (size_t i = 0; i < UT_N(refused); i++) {
        struct json_err err = { SIZE_MAX, NULL };
        ck_assert_msg(!json_check(refused[i], strlen(refused[i]), 64, NULL, &err), "%s",
                      refused[i]);
        ck_assert_ptr_nonnull(err.why);
        ck_assert_uint_le(err.at, strlen(refused[i]));
    }
    ck_assert(!json_check("1\0", 2, 64, NULL, NULL));
    ck_assert(!json_check("\"a\0b\"", 5, 64, NULL, NULL));
    ck_assert(!json_check("{\"a\":1}", 6, 64, NULL, NULL)); /* n is the law, not the NUL */
}
END_TEST

START_TEST(test_json_every_proper_prefix_of_an_object_is_refused)
{
    const char *s = "{\"a\":[1,-2.5e+3,{\"b\":null,\"c\":\"\\u00e9\xc3\xa9\"}],\"d\":true}";
    size_t n = strlen(s);

    ck_assert(json_check(s, n, 64, NULL, NULL));
    for (size_t k = 0; k < n; k++) {
        char *exact = malloc(k + 1); /* so that the sanitizer sees a read beyond n */
        ck_assert_ptr_nonnull(exact);
        memcpy(exact, s, k);
        ck_assert_msg(!json_check(exact, k, 64, NULL, NULL), "prefix of %zu bytes", k);
        free(exact);
    }
}
END_TEST

START_TEST(test_json_depth_is_bounded_exactly_and_without_recursion)
{
    enum { MANY = 200000 };
    char *s = malloc(2 * MANY);
    struct json_err err;

    ck_assert_ptr_nonnull(s);
    for (size_t d = 63; d <= 65; d++) {
        memset(s, '[', d);
        memset(s + d, ']', d);
        ck_assert(json_check(s, 2 * d, 64, NULL, NULL) == (d <= 64));
    }
    memset(s, '[', MANY);
    ck_assert(!json_check(s, MANY, 64, NULL, &err));
    ck_assert_str_eq(err.why, "too deep");
    ck_assert_uint_eq(err.at, 64);
    memset(s + MANY, ']', MANY);
    ck_assert(!json_check(s, 2 * MANY, 1000000, NULL, &err)); /* more than the bit stack holds */
    ck_assert_str_eq(err.why, "too deep");
    ck_assert(ok("1", 0));
    ck_assert(!ok("[]", 0));
    ck_assert(ok("[[],[],[]]", 2)); /* breadth costs nothing */
    ck_assert(ok("{\"a\":{}}", 2));
    ck_assert(!ok("{\"a\":{}}", 1));
    free(s);
}
END_TEST

START_TEST(test_json_tells_the_type_of_the_value)
{
    static const struct { const char *s; enum json_type t; } c[] = {
        { " null", JSON_NULL }, { "false", JSON_FALSE }, { "true", JSON_TRUE },
        { "-1", JSON_NUMBER }, { "\"\"", JSON_STRING }, { "[]", JSON_ARRAY }, { "{}", JSON_OBJECT },
    };

    for (size_t i = 0; i < UT_N(c); i++) {
        enum json_type t = JSON_NULL;
        ck_assert(json_check(c[i].s, strlen(c[i].s), 64, &t, NULL));
        ck_assert_int_eq(t, c[i].t);
    }
}
END_TEST

static void expect_member(const char *s, const char *name, int found, const char *want)
{
    const char *at = NULL;
    size_t n = 0;
    enum json_type t;

    ck_assert_msg(json_member(s, strlen(s), name, &at, &n, &t) == found, "%s in %s", name, s);
    if (found != 1) return;
    ck_assert_msg(n == strlen(want) && memcmp(at, want, n) == 0, "%s in %s: %.*s", name, s, (int)n,
                  at);
}

START_TEST(test_json_member_finds_names_after_unescaping)
{
    const char *s = " { \"a\" : [1, \"]}\"] , "
                    "\"b\\u00e9\":\"x\\\"y\", \"n\":null,\"o\":{\"a\":9} } ";

    expect_member(s, "a", 1, "[1, \"]}\"]");
    expect_member(s, "b\xc3\xa9", 1, "\"x\\\"y\"");
    expect_member(s, "n", 1, "null");
    expect_member(s, "o", 1, "{\"a\":9}");
    expect_member(s, "c", 0, NULL);
    expect_member(s, "", 0, NULL);
    expect_member("{\"\":1}", "", 1, "1");
    expect_member("{}", "a", 0, NULL);
    expect_member("[\"a\",1]", "a", 0, NULL);
    expect_member("\"a\"", "a", 0, NULL);
    expect_member("{\"x\\ud83d\\ude00\":-0.5e1}", "x\xf0\x9f\x98\x80", 1, "-0.5e1");
    expect_member("{\"x\\ud83d\":1}", "x\xed\xa0\xbd", 0, NULL); /* cannot be spelled */
}
END_TEST

START_TEST(test_json_member_reports_the_same_name_twice)
{
    expect_member("{\"a\":1,\"b\":2,\"a\":3}", "a", -1, NULL);
    expect_member("{\"a\":1,\"b\":2,\"\\u0061\":3}", "a", -1, NULL); /* the same after unescaping */
    expect_member("{\"a\":1,\"b\":2,\"a\":3}", "b", 1, "2");
}
END_TEST

START_TEST(test_json_next_walks_in_order_and_ends)
{
    const char *s = "{\"a\":1 ,\"b\" :[{}], \"c\":\"\"}", *arr = "[ 1,[2] , \"x,y\",{} ]";
    const char *name, *val;
    size_t pos = 0, name_n, val_n, count = 0;
    char seen[64] = "";
    enum json_type t;

    for (; json_next(s, strlen(s), &pos, &name, &name_n, &val, &val_n, &t); count++)
        snprintf(seen + strlen(seen), sizeof seen - strlen(seen), "%.*s=%.*s;", (int)name_n, name,
                 (int)val_n, val);
    ck_assert_str_eq(seen, "a=1;b=[{}];c=\"\";");
    seen[0] = '\0';
    for (pos = 0; json_next_item(arr, strlen(arr), &pos, &val, &val_n, &t);)
        snprintf(seen + strlen(seen), sizeof seen - strlen(seen), "%.*s;", (int)val_n, val);
    ck_assert_str_eq(seen, "1;[2];\"x,y\";{};");
    pos = 0;
    ck_assert(!json_next_item("[]", 2, &pos, &val, &val_n, &t));
    pos = 0;
    ck_assert(!json_next("[1]", 3, &pos, &name, &name_n, &val, &val_n, &t));
}
END_TEST

START_TEST(test_json_int64_tells_integers_from_the_rest)
{
    static const struct { const char *s; enum json_int r; int64_t v; } c[] = {
        { "0", JSON_INT_OK, 0 }, { "-0", JSON_INT_OK, 0 }, { "-1", JSON_INT_OK, -1 },
        { "9223372036854775807", JSON_INT_OK, INT64_MAX },
        { "-9223372036854775808", JSON_INT_OK, INT64_MIN },
        { "9223372036854775808", JSON_INT_RANGE, 0 }, { "-9223372036854775809", JSON_INT_RANGE, 0 },
        { "18446744073709551616", JSON_INT_RANGE, 0 },
        { "100000000000000000000000000000", JSON_INT_RANGE, 0 },
        { "1.0", JSON_INT_NOT, 0 }, { "1e2", JSON_INT_NOT, 0 }, { "1E2", JSON_INT_NOT, 0 },
        { "99999999999999999999.5", JSON_INT_NOT, 0 }, { "", JSON_INT_NOT, 0 },
        { "-", JSON_INT_NOT, 0 }, { "null", JSON_INT_NOT, 0 },
    };

    for (size_t i = 0; i < UT_N(c); i++) {
        int64_t v = 0;
        ck_assert_msg(json_int64(c[i].s, strlen(c[i].s), &v) == c[i].r, "%s", c[i].s);
        ck_assert_int_eq(v, c[i].v);
    }
}
END_TEST

static void expect_unescaped(const char *s, bool good_one, const char *want, size_t want_n)
{
    struct buf b = { 0 };

    ck_assert_msg(json_unescape(s, strlen(s), &b) == good_one, "%s", s);
    if (good_one)
        ck_assert_msg(b.n == want_n && memcmp(buf_str(&b), want, want_n) == 0, "%s", s);
    buf_free(&b);
}

START_TEST(test_json_unescape_knows_every_escape)
{
    expect_unescaped("\"\"", true, "", 0);
    expect_unescaped("\"\\\"\\\\\\/\\b\\f\\n\\r\\t\"", true, "\"\\/\b\f\n\r\t", 8);
    expect_unescaped("\"a\\u0000b\"", true, "a\0b", 3);
    expect_unescaped("\"\\u00E9\\u20ac\\uD83D\\uDE00\"", true,
                     "\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80", 9);
    expect_unescaped("\"\\ud800\"", false, NULL, 0);
    expect_unescaped("\"\\udc00\"", false, NULL, 0);
    expect_unescaped("\"\\ud800\\ud800\"", false, NULL, 0);
    expect_unescaped("\"\\ud800x\\udc00\"", false, NULL, 0);
    expect_unescaped("\"\\ud800\\n\"", false, NULL, 0);
    expect_unescaped("1", false, NULL, 0);
    expect_unescaped("\"", false, NULL, 0);
}
END_TEST

START_TEST(test_json_put_str_is_valid_and_comes_back_for_any_bytes)
{
    struct env_fake f;
    uint64_t seed = ut_seed(20270102);

    env_fake_init(&f, seed, 0);
    for (int round = 0; round < 3000; round++) {
        char raw[40];
        size_t n = (size_t)env_below(&f.env, sizeof raw);
        struct buf out = { 0 }, back = { 0 };
        env_bytes(&f.env, raw, n);
        for (size_t i = 0; i < n && round % 2 == 0; i++) raw[i] &= 0x7f;
        json_put_str(&out, raw, n);
        ck_assert(json_check(out.data, out.n, 1, NULL, NULL));
        for (size_t i = 0; i < out.n; i++) /* nothing in it can steer a terminal */
            ck_assert((unsigned char)out.data[i] >= 0x20 && out.data[i] != 0x7f);
        ck_assert(json_unescape(out.data, out.n, &back));
        if (utf8_ok(raw, n))
            ck_assert_msg(back.n == n && memcmp(buf_str(&back), raw, n) == 0, "round %d", round);
        buf_free(&out);
        buf_free(&back);
    }
}
END_TEST

START_TEST(test_json_put_str_spells_bad_bytes_and_controls)
{
    struct buf b = { 0 };

    json_put_str(&b, "\xff" "a\x1b\n\"\\\xc2\x85\xe2\x80\xae\xc3\xa9", 13);
    ck_assert_str_eq(buf_str(&b), "\"\\\\xffa\\u001b\\n\\\"\\\\\\u0085\\u202e\xc3\xa9\"");
    buf_clear(&b);
    json_put_cstr(&b, NULL);
    ck_assert_str_eq(buf_str(&b), "null");
    buf_free(&b);
}
END_TEST

START_TEST(test_text_put_safe_shows_what_cannot_be_shown)
{
    struct buf b = { 0 };
    static const char hostile[] = "a\x1b[31m\n\tb\x7f\xff\xc2\x9b\xe2\x80\xae\xc3\xa9";

    text_put_safe(&b, hostile, sizeof hostile - 1, false);
    ck_assert_str_eq(buf_str(&b), "a\\x1b[31m\\n\\x09b\\x7f\\xff\\u{9b}\\u{202e}\xc3\xa9");
    buf_clear(&b);
    text_put_safe(&b, "a\n\tb\r", 5, true);
    ck_assert_str_eq(buf_str(&b), "a\n\tb\\x0d");
    buf_free(&b);
}
END_TEST

START_TEST(test_utf8_ok_agrees_with_the_definition_for_every_code_point)
{
    for (uint32_t cp = 0; cp <= 0x10ffff; cp++) {
        char s[4];
        size_t n;
        if (cp < 0x80) { s[0] = (char)cp; n = 1; }
        else if (cp < 0x800) { s[0] = (char)(0xc0 | cp >> 6); n = 2; }
        else if (cp < 0x10000) { s[0] = (char)(0xe0 | cp >> 12); n = 3; }
        else { s[0] = (char)(0xf0 | cp >> 18); n = 4; }
        for (size_t i = 1; i < n; i++) s[i] = (char)(0x80 | (cp >> (6 * (n - 1 - i)) & 0x3f));
        ck_assert(utf8_ok(s, n) == (cp < 0xd800 || cp > 0xdfff));
        if (n > 1) ck_assert(!utf8_ok(s, n - 1));
    }
}
END_TEST

static void add(TCase *tc)
{
    tcase_add_test(tc, test_json_accepts_what_the_grammar_allows);
    tcase_add_test(tc, test_json_refuses_everything_else_and_says_why);
    tcase_add_test(tc, test_json_every_proper_prefix_of_an_object_is_refused);
    tcase_add_test(tc, test_json_depth_is_bounded_exactly_and_without_recursion);
    tcase_add_test(tc, test_json_tells_the_type_of_the_value);
    tcase_add_test(tc, test_json_member_finds_names_after_unescaping);
    tcase_add_test(tc, test_json_member_reports_the_same_name_twice);
    tcase_add_test(tc, test_json_next_walks_in_order_and_ends);
    tcase_add_test(tc, test_json_int64_tells_integers_from_the_rest);
    tcase_add_test(tc, test_json_unescape_knows_every_escape);
    tcase_add_test(tc, test_json_put_str_is_valid_and_comes_back_for_any_bytes);
    tcase_add_test(tc, test_json_put_str_spells_bad_bytes_and_controls);
    tcase_add_test(tc, test_text_put_safe_shows_what_cannot_be_shown);
    tcase_add_test(tc, test_utf8_ok_agrees_with_the_definition_for_every_code_point);
}

int main(void) { return ut_main("json", add, 30); }
