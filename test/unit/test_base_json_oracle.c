// SPDX-License-Identifier: Apache-2.0
/* test_base_json_oracle.c - our scanner against jansson, on random and on damaged texts. */
/* Both call the types of JSON by the same names: give jansson's another one. */
#define JSON_OBJECT JANSSON_OBJECT
#define JSON_ARRAY JANSSON_ARRAY
#define JSON_STRING JANSSON_STRING
#define JSON_INTEGER JANSSON_INTEGER
#define JSON_REAL JANSSON_REAL
#define JSON_TRUE JANSSON_TRUE
#define JSON_FALSE JANSSON_FALSE
#define JSON_NULL JANSSON_NULL
#include <jansson.h>
#undef JSON_OBJECT
#undef JSON_ARRAY
#undef JSON_STRING
#undef JSON_INTEGER
#undef JSON_REAL
#undef JSON_TRUE
#undef JSON_FALSE
#undef JSON_NULL

#include <stdint.h>
#include <string.h>
#include "base/clock.h"
#include "base/json.h"
#include "lib/ut.h"

static void put_random(struct buf *b, const struct env *env, int depth)
{
    static const char *const scalars[] = { "null", "true", "false", "0", "-0", "1.5e3", "-12",
        "123456789012", "\"\"", "\"a b\"", "\"\\u00e9\\n\"", "\"\xc3\xa9\"", "\"\\ud83d\\ude00\"",
        "\"\\ud800\"", "\"\\u0000\"", "9223372036854775808", "1e400", "\"\\\\\"" };
    static const char *const gaps[] = { "", "", "", " ", "\n\t" };
    uint64_t kind = env_below(env, depth > 5 ? 3 : 6), n = env_below(env, 4);

    buf_puts(b, gaps[env_below(env, UT_N(gaps))]);
    if (kind < 3) {
        buf_puts(b, scalars[env_below(env, UT_N(scalars))]);
    } else {
        buf_putc(b, kind == 3 ? '[' : '{');
        for (uint64_t i = 0; i < n; i++) {
            if (i > 0) buf_putc(b, ',');
            if (kind != 3) buf_printf(b, "\"k%d\":", (int)env_below(env, 6));
            put_random(b, env, depth + 1);
        }
        buf_putc(b, kind == 3 ? ']' : '}');
    }
    buf_puts(b, gaps[env_below(env, UT_N(gaps))]);
}

static void mutate(struct buf *b, const struct env *env)
{
    static const char bytes[] = "{}[],:\"\\0123456789.-+eEtfnul \n\xc3\xa9\xff\xed\xa0\x80\x01u";
    uint64_t times = env_below(env, 4);

    for (uint64_t k = 0; k < times && b->n > 0; k++) {
        size_t at = (size_t)env_below(env, b->n);
        switch (env_below(env, 3)) {
        case 0: b->data[at] = bytes[env_below(env, sizeof bytes - 1)]; break;
        case 1: memmove(b->data + at, b->data + at + 1, b->n - at); b->n--; break;
        default: b->n = at; b->data[at] = '\0'; break;
        }
    }
}

static void same_value(const json_t *j, const char *s, size_t n, enum json_type t);

static void same_object(const json_t *j, const char *s, size_t n)
{
    const char *key, *at;
    size_t len;
    json_t *v;
    enum json_type t;

    json_object_foreach((json_t *)j, key, v) {
        int found = json_member(s, n, key, &at, &len, &t);
        ck_assert_int_ne(found, 0);
        if (found == 1) same_value(v, at, len, t);
    }
}

static void same_value(const json_t *j, const char *s, size_t n, enum json_type t)
{
    const char *val;
    size_t pos = 0, val_n, i = 0;
    enum json_type item;
    struct buf b = { 0 };
    int64_t v;

    switch (t) {
    case JSON_OBJECT: same_object(j, s, n); break;
    case JSON_ARRAY:
        for (; json_next_item(s, n, &pos, &val, &val_n, &item); i++)
            same_value(json_array_get(j, i), val, val_n, item);
        ck_assert_uint_eq(i, json_array_size(j));
        break;
    case JSON_STRING:
        ck_assert(json_unescape(s, n, &b));
        ck_assert_uint_eq(b.n, json_string_length(j));
        ck_assert(memcmp(buf_str(&b), json_string_value(j), b.n) == 0);
        buf_free(&b);
        break;
    case JSON_NUMBER:
        if (json_typeof(j) != JANSSON_INTEGER) {
            ck_assert(json_typeof(j) == JANSSON_REAL && json_int64(s, n, &v) != JSON_INT_OK);
            break;
        }
        ck_assert_int_eq(json_int64(s, n, &v), JSON_INT_OK);
        ck_assert_int_eq(v, json_integer_value(j));
        break;
    case JSON_NULL: ck_assert_int_eq(json_typeof(j), JANSSON_NULL); break;
    case JSON_TRUE: ck_assert_int_eq(json_typeof(j), JANSSON_TRUE); break;
    case JSON_FALSE: ck_assert_int_eq(json_typeof(j), JANSSON_FALSE); break;
    }
}

START_TEST(test_json_agrees_with_jansson_on_random_texts)
{
    struct env_fake f;
    uint64_t seed = ut_seed(8259);
    int valid = 0, invalid = 0;

    env_fake_init(&f, seed, 0);
    for (int round = 0; round < 20000; round++) {
        struct buf b = { 0 };
        json_error_t err;
        enum json_type t = JSON_NULL;
        put_random(&b, &f.env, 0);
        mutate(&b, &f.env);
        bool ours = json_check(buf_str(&b), b.n, 64, &t, NULL);
        json_t *j = json_loadb(buf_str(&b), b.n, JSON_DECODE_ANY | JSON_ALLOW_NUL, &err);
        /* Where jansson is stricter than the grammar: range of numbers, lone surrogates. */
        bool stricter = ours && j == NULL &&
                        (json_error_code(&err) == json_error_numeric_overflow ||
                         strstr(err.text, "Unicode") != NULL);
        ck_assert_msg(ours == (j != NULL) || stricter, "round %d: ours %d, jansson: %s\n%s", round,
                      ours, j == NULL ? err.text : "fine", buf_str(&b));
        if (j != NULL) {
            const char *from = b.data;
            size_t n = b.n;
            while (n > 0 && strchr(" \t\r\n", from[0]) != NULL) from++, n--;
            while (n > 0 && strchr(" \t\r\n", from[n - 1]) != NULL) n--;
            same_value(j, from, n, t);
        }
        if (ours) valid++;
        else invalid++;
        json_decref(j);
        buf_free(&b);
    }
    ck_assert_int_gt(valid, 2000); /* both sides of the question were asked */
    ck_assert_int_gt(invalid, 2000);
}
END_TEST

static void add(TCase *tc)
{
    tcase_add_test(tc, test_json_agrees_with_jansson_on_random_texts);
}

int main(void) { return ut_main("json_oracle", add, 60); }
