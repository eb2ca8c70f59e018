// SPDX-License-Identifier: Apache-2.0
/* test_core_name.c - the rules for names and keys; the hash of args, as SQL computes it. */
#include "core/rules.h"

#include <sqlite3.h>
#include <string.h>
#include "lib/ut.h"

START_TEST(test_name_rule)
{
    static const char *const good[] = { "a", "9", "a.b", "a-b_c.9", "mail",
        "a234567890123456789012345678901234567890123456789012345678901234" };
    static const char *const bad[] = { "", ".a", "-a", "_a", "A", "aB", "a b", "a/b", "a\n", " a",
        "\xc3\xa9", "a\x7f", "a:b",
        "a2345678901234567890123456789012345678901234567890123456789012345" };
    const char *why = NULL;

    for (size_t i = 0; i < UT_N(good); i++) ck_assert_msg(name_ok(good[i], &why), "%s", good[i]);
    ck_assert_ptr_null(why);
    for (size_t i = 0; i < UT_N(bad); i++) {
        why = NULL;
        ck_assert_msg(!name_ok(bad[i], &why), "%s", bad[i]);
        ck_assert_ptr_nonnull(strstr(why, "1 to 64"));
        ck_assert(!name_ok(bad[i], NULL));
    }
    for (int ch = 1; ch < 256; ch++) {
        char s[3] = { 'a', (char)ch, '\0' };
        bool want = (ch >= 'a' && ch <= 'z') || (ch >= '0' && ch <= '9') || ch == '.' ||
                    ch == '_' || ch == '-';
        ck_assert(name_ok(s, NULL) == want);
    }
}
END_TEST

START_TEST(test_key_rule)
{
    char key[300];
    const char *why;

    memset(key, 'k', sizeof key);
    key[255] = '\0';
    ck_assert(key_ok(key, &why));
    key[255] = 'k';
    key[256] = '\0';
    ck_assert(!key_ok(key, &why));
    ck_assert_ptr_nonnull(strstr(why, "255 bytes"));
    ck_assert(key_ok("", &why));
    ck_assert(key_ok("Order 7/\xc3\xa9: ~!", &why));
    for (int ch = 1; ch < 128; ch++) {
        char s[3] = { 'a', (char)ch, '\0' };
        ck_assert(key_ok(s, &why) == (ch >= 0x20 && ch != 0x7f));
        if (ch < 0x20) ck_assert_ptr_nonnull(strstr(why, "control"));
    }
    ck_assert(!key_ok("\xff", &why));
    ck_assert_ptr_nonnull(strstr(why, "UTF-8"));
    ck_assert(!key_ok("\xed\xa0\x80", NULL));
    for (size_t i = 0; i < 254; i += 2) memcpy(key + i, "\xc3\xa9", 2); /* 254 bytes */
    memcpy(key + 254, "\xc3\xa9", 3);                                   /* one too many */
    ck_assert(!key_ok(key, &why));
    ck_assert_ptr_nonnull(strstr(why, "255 bytes"));
}
END_TEST

/* The same definition in plain SQL: the bytes by substr on a blob, the two hashes by recursion. */
static int64_t hash_in_sql(sqlite3 *db, const char *p, size_t n)
{
#define DIGIT(k) "(instr('0123456789ABCDEF', substr(hex(substr(?1, i + 1, 1)), " k ", 1)) - 1)"
#define BYTE "(" DIGIT("1") " * 16 + " DIGIT("2") ")"
    static const char sql[] =
        "WITH RECURSIVE h(i, h1, h2) AS (SELECT 0, 0, 0 UNION ALL SELECT i + 1,"
        " (h1 * 257 + " BYTE " + 1) % 2147483647, (h2 * 263 + " BYTE " + 1) % 2147483629"
        " FROM h WHERE i < length(?1)) SELECT h1 << 31 | h2 FROM h ORDER BY i DESC LIMIT 1";
#undef BYTE
#undef DIGIT
    sqlite3_stmt *st = NULL;
    int64_t v;

    ck_assert_int_eq(sqlite3_prepare_v2(db, sql, -1, &st, NULL), SQLITE_OK);
    ck_assert_int_eq(sqlite3_bind_blob(st, 1, n == 0 ? "" : p, (int)n, SQLITE_STATIC), SQLITE_OK);
    ck_assert_int_eq(sqlite3_step(st), SQLITE_ROW);
    v = sqlite3_column_int64(st, 0);
    sqlite3_finalize(st);
    return v;
}

START_TEST(test_args_hash_is_what_plain_sql_computes)
{
    struct env_fake f;
    sqlite3 *db = NULL;

    env_fake_init(&f, ut_seed(50), 0);
    ck_assert_int_eq(sqlite3_open(":memory:", &db), SQLITE_OK);
    ck_assert_int_eq(args_hash("", 0), 0);
    ck_assert_int_eq(args_hash("a", 1), (INT64_C(98) << 31) | 98);
    for (int i = 0; i < 100; i++) {
        char bytes[200];
        size_t n = (size_t)env_below(&f.env, sizeof bytes);
        env_bytes(&f.env, bytes, n);
        int64_t h = args_hash(bytes, n);
        ck_assert_int_ge(h, 0);
        ck_assert_int_eq(h, hash_in_sql(db, bytes, n));
        if (n == 0) continue;
        bytes[env_below(&f.env, n)] ^= 1;
        ck_assert_int_ne(args_hash(bytes, n), h); /* one bit is seen */
        ck_assert_int_ne(args_hash(bytes, n - 1), args_hash(bytes, n));
    }
    ck_assert_int_ne(args_hash("\0", 1), args_hash("\0\0", 2)); /* length counts, zeros too */
    sqlite3_close(db);
}
END_TEST

static void add(TCase *tc)
{
    tcase_add_test(tc, test_name_rule);
    tcase_add_test(tc, test_key_rule);
    tcase_add_test(tc, test_args_hash_is_what_plain_sql_computes);
}

int main(void) { return ut_main("name", add, 20); }
