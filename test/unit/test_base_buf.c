// SPDX-License-Identifier: Apache-2.0
/* test_base_buf.c - buffers, arena, head and tail; the same when memory runs out. */
#include "base/buf.h"

#include <string.h>
#include "base/clock.h"
#include "base/err.h"
#include "base/json.h"
#include "base/log.h"
#include "base/os.h"
#include "core/rules.h"
#include "lib/nomem.h"
#include "lib/ut.h"

START_TEST(test_buf_grows_and_stays_terminated)
{
    struct buf b = { 0 };
    char *p;

    ck_assert_str_eq(buf_str(&b), "");
    buf_puts(&b, NULL);
    buf_put(&b, "x", 0);
    ck_assert_uint_eq(b.n, 0);
    for (int i = 0; i < 5000; i++) {
        buf_putc(&b, (char)('a' + i % 26));
        ck_assert(b.data[b.n] == '\0');
    }
    buf_printf(&b, "%s-%d", "end", 7);
    ck_assert_uint_eq(b.n, 5005);
    ck_assert_str_eq(b.data + 5000, "end-7");
    buf_clear(&b);
    ck_assert_str_eq(buf_str(&b), "");
    buf_puts(&b, "again");
    p = buf_take(&b);
    ck_assert_str_eq(p, "again");
    ck_assert_ptr_null(b.data);
    free(p);
    p = buf_take(&b);
    ck_assert_str_eq(p, "");
    free(p);
    buf_free(&b);
    buf_free(NULL);
}
END_TEST

START_TEST(test_buf_remembers_a_failure_until_cleared)
{
    struct buf b = { 0 };

    buf_puts(&b, "ab");
    buf_put(&b, "x", SIZE_MAX / 2); /* refused before it is read */
    ck_assert(b.failed);
    buf_puts(&b, "cd");
    ck_assert_str_eq(buf_str(&b), "ab");
    ck_assert_ptr_null(buf_take(&b));
    ck_assert(!b.failed && b.data == NULL);
}
END_TEST

START_TEST(test_arena_gives_zeroed_aligned_memory)
{
    struct arena a = { 0 };

    for (int round = 0; round < 3; round++) {
        for (size_t n = 0; n < 3000; n += 7) {
            unsigned char *p = arena_alloc(&a, n);
            ck_assert_ptr_nonnull(p);
            ck_assert_uint_eq((uintptr_t)p % 16, 0);
            bool zero = true;
            for (size_t i = 0; i < n; i++) zero &= p[i] == 0;
            ck_assert(zero);
            memset(p, 0xab, n);
        }
        ck_assert_ptr_nonnull(arena_alloc(&a, 1000000)); /* a block of its own */
        arena_reset(&a);
        ck_assert_uint_eq(a.used_bytes, 0);
    }
    ck_assert_str_eq(arena_strdup(&a, "abc"), "abc");
    ck_assert_str_eq(arena_dup(&a, "a\0b", 3) + 2, "b");
    ck_assert_ptr_null(arena_strdup(&a, NULL));
    ck_assert_ptr_null(arena_alloc(&a, SIZE_MAX));
    arena_free(&a);
    arena_free(&a);
    arena_free(NULL);
    arena_reset(&a);
}
END_TEST

static void expect_tail(const char *in, size_t step, size_t head, size_t tail, const char *want)
{
    struct tail t;
    struct buf b = { 0 };
    size_t n = strlen(in);

    tail_init(&t, head, tail);
    for (size_t i = 0; i < n; i += step)
        tail_put(&t, in + i, n - i < step ? n - i : step);
    tail_render(&t, &b);
    ck_assert_msg(strcmp(buf_str(&b), want) == 0, "step %zu, %zu+%zu: %s", step, head, tail,
                  buf_str(&b));
    ck_assert_uint_eq(t.total, n);
    tail_fini(&t);
    buf_free(&b);
}

START_TEST(test_tail_keeps_both_ends_whatever_the_pieces)
{
    for (size_t step = 1; step <= 30; step++) {
        expect_tail("", step, 4, 4, "");
        expect_tail("abc", step, 4, 4, "abc");
        expect_tail("abcd", step, 4, 4, "abcd");
        expect_tail("abcdefgh", step, 4, 4, "abcdefgh");
        expect_tail("abcdefghi", step, 4, 4, "abcd\n... 1 bytes left out ...\nfghi");
        expect_tail("abcdefghijklmnopqrstuvwxyz", step, 3, 5,
                    "abc\n... 18 bytes left out ...\nvwxyz");
        expect_tail("abcdefgh", step, 0, 3, "\n... 5 bytes left out ...\nfgh");
        expect_tail("abcdefgh", step, 3, 0, "abc\n... 5 bytes left out ...\n");
        expect_tail("abcdefgh", step, 0, 0, "\n... 8 bytes left out ...\n");
    }
}
END_TEST

START_TEST(test_tail_cuts_at_whole_characters)
{
    /* the euro sign is 3 bytes: one is cut on each side of the gap */
    expect_tail("a\xe2\x82\xac" "bcdef" "\xe2\x82\xac" "z", 1, 3, 3,
                "a\n... 11 bytes left out ...\nz");
    expect_tail("\xe2\x82\xac" "0123456789" "\xe2\x82\xac", 2, 3, 3,
                "\xe2\x82\xac\n... 10 bytes left out ...\n\xe2\x82\xac");
}
END_TEST

/* ---- the countdown: fail at allocation 0, 1, 2 ... until nothing fails ---- */

static int null_fd(void)
{
    FILE *f = fopen("/dev/null", "we");

    ck_assert_ptr_nonnull(f);
    return fileno(f);
}

START_TEST(test_nomem_buffers_say_it_once_and_nothing_crashes)
{
    struct policy p;
    int k;

    policy_defaults(&p);
    for (k = 0; k < 500; k++) {
        struct buf b = { 0 };
        struct arena a = { 0 };
        struct tail t;
        bool failed;
        char *words;
        long live = nomem_live();

        nomem_arm(k);
        for (int i = 0; i < 200; i++) buf_printf(&b, "line %d\n", i);
        json_put_str(&b, "a\xff\n", 3);
        policy_text(&p, &b);
        tail_init(&t, 8, 8);
        tail_put(&t, "0123456789abcdefghij", 20);
        tail_render(&t, &b);
        for (int i = 0; i < 100; i++) (void)arena_alloc(&a, 500);
        words = arena_strdup(&a, "words");
        failed = nomem_disarm();
        ck_assert(words == NULL || strcmp(words, "words") == 0);
        ck_assert(failed || (!b.failed && t.ring_n == 8));
        if (b.failed) ck_assert_ptr_null(buf_take(&b));
        buf_free(&b);
        arena_free(&a);
        tail_fini(&t);
        ck_assert_int_eq(nomem_live(), live);
        if (!failed) break;
    }
    ck_assert_int_lt(k, 500);
    ck_assert(!nomem_works() || k > 10);
}
END_TEST

START_TEST(test_nomem_calls_that_answer_answer_nomem)
{
    struct log_conf conf = { LOG_DEBUG, true, null_fd() };
    int k;

    log_setup(&conf);
    for (k = 0; k < 500; k++) {
        struct buf file = { 0 }, name = { 0 };
        struct arena a = { 0 };
        const char *const *words = NULL;
        struct pawl_error e = { 0 };
        size_t n = 0;
        enum pawl_rc split, read;
        bool unescaped, failed;
        long live = nomem_live();

        nomem_arm(k);
        split = os_split_words("./a.sh 'b c' \"d\" e f", &a, &words, &n, &e);
        read = os_read_file("/proc/self/stat", 1 << 20, &file, &e);
        unescaped = json_unescape("\"a\\u00e9\"", 9, &name);
        log_line(LOG_INFO, "test.nomem", "s:text", "hello \x1b", "i:n", (int64_t)k, NULL);
        failed = nomem_disarm();
        ck_assert(split == PAWL_OK ? n == 5 && words[5] == NULL : split == PAWL_NOMEM);
        ck_assert(read == PAWL_OK || read == PAWL_NOMEM);
        ck_assert(unescaped); /* well formed; whether it fitted is in name.failed */
        ck_assert(name.failed || strcmp(buf_str(&name), "a\xc3\xa9") == 0);
        if (!failed) ck_assert(split == PAWL_OK && read == PAWL_OK && !name.failed);
        buf_free(&file);
        buf_free(&name);
        arena_free(&a);
        ck_assert_int_eq(nomem_live(), live);
        if (!failed) break;
    }
    ck_assert_int_lt(k, 500);
    ck_assert(!nomem_works() || k >= 4);
}
END_TEST

static void add(TCase *tc)
{
    tcase_add_test(tc, test_buf_grows_and_stays_terminated);
    tcase_add_test(tc, test_buf_remembers_a_failure_until_cleared);
    tcase_add_test(tc, test_arena_gives_zeroed_aligned_memory);
    tcase_add_test(tc, test_tail_keeps_both_ends_whatever_the_pieces);
    tcase_add_test(tc, test_tail_cuts_at_whole_characters);
    tcase_add_test(tc, test_nomem_buffers_say_it_once_and_nothing_crashes);
    tcase_add_test(tc, test_nomem_calls_that_answer_answer_nomem);
}

int main(void) { return ut_main("buf", add, 20); }
