// SPDX-License-Identifier: Apache-2.0
/* test_base_clock.c - the two environments: the machine's, and the seeded one. */
#include "base/clock.h"

#include <string.h>
#include "lib/ut.h"

START_TEST(test_clock_fake_repeats_itself_from_its_seed)
{
    struct env_fake a, b, c;
    int same = 0;

    env_fake_init(&a, 7, 123);
    env_fake_init(&b, 7, 123);
    env_fake_init(&c, 8, 123);
    for (int i = 0; i < 1000; i++) {
        uint64_t x = a.env.random(a.env.ctx);
        ck_assert(x == b.env.random(b.env.ctx));
        same += x == c.env.random(c.env.ctx);
    }
    ck_assert_int_eq(same, 0);
    ck_assert_int_eq(a.env.wall_us(a.env.ctx), 123);
    a.now_us += 77;
    ck_assert_int_eq(a.env.wall_us(a.env.ctx), 200);
    ck_assert_int_eq(a.env.mono_us(a.env.ctx), 200);
    ck_assert_int_eq(a.env.boot_us(a.env.ctx), 200);
}
END_TEST

/* The published generator's first outputs from the state 1, 2, 3, 4. */
START_TEST(test_clock_fake_is_xoshiro256_starstar)
{
    static const uint64_t want[] = { 11520u, 0u, 1509978240u, 1215971899390074240u };
    struct env_fake f;

    env_fake_init(&f, 0, 0);
    for (uint64_t i = 0; i < 4; i++) f.s[i] = i + 1;
    for (size_t i = 0; i < UT_N(want); i++)
        ck_assert(f.env.random(f.env.ctx) == want[i]);
}
END_TEST

START_TEST(test_clock_below_is_uniform_and_in_range)
{
    struct env_fake f;
    int count[7] = { 0 };
    double chi2 = 0;

    env_fake_init(&f, ut_seed(3), 0);
    for (int i = 0; i < 70000; i++) {
        uint64_t v = env_below(&f.env, 7);
        ck_assert_uint_lt(v, 7);
        count[v]++;
    }
    for (int i = 0; i < 7; i++) chi2 += (count[i] - 10000.0) * (count[i] - 10000.0) / 10000.0;
    ck_assert_double_lt(chi2, 22.46); /* 6 degrees of freedom, p = 0.001 */
    int low = 0; /* a plain remainder would give half of the values to this third */
    for (int i = 0; i < 30000; i++)
        low += env_below(&f.env, UINT64_C(3) << 62) < UINT64_C(1) << 62;
    ck_assert(low > 9600 && low < 10400);
    for (int i = 0; i < 100; i++) ck_assert_uint_eq(env_below(&f.env, 1), 0);
    for (int i = 0; i < 100; i++)
        ck_assert_uint_lt(env_below(&f.env, UINT64_MAX / 2 + 2), UINT64_MAX / 2 + 2);
}
END_TEST

static uint64_t always_zero(void *ctx)
{
    (void)ctx;
    return 0;
}

START_TEST(test_clock_below_ends_on_a_constant_source)
{
    struct env_fake f;

    env_fake_init(&f, 1, 0);
    f.env.random = always_zero;
    ck_assert_uint_eq(env_below(&f.env, 7), 0);
}
END_TEST

START_TEST(test_clock_bytes_fill_exactly)
{
    struct env_fake f;
    unsigned char b[40], seen[40] = { 0 };

    env_fake_init(&f, 5, 0);
    for (int round = 0; round < 50; round++) {
        memset(b, 0, sizeof b);
        env_bytes(&f.env, b, 33);
        for (int i = 0; i < 40; i++) seen[i] |= b[i];
    }
    for (int i = 0; i < 40; i++) ck_assert((seen[i] == 0xff) == (i < 33));
}
END_TEST

START_TEST(test_clock_real_moves_and_boot_id_has_its_shape)
{
    const struct env *e = env_real();
    char id[40];

    ck_assert_int_gt(e->wall_us(e->ctx), INT64_C(1700000000) * 1000000);
    int64_t a = e->mono_us(e->ctx), b = e->mono_us(e->ctx);
    ck_assert_int_ge(b, a);
    ck_assert_int_ge(e->boot_us(e->ctx), a); /* it also counts the time suspended */
    ck_assert(e->random(e->ctx) != e->random(e->ctx));
    clock_boot_id(id);
    ck_assert(strlen(id) == 36 || strcmp(id, "unknown") == 0);
}
END_TEST

static void add(TCase *tc)
{
    tcase_add_test(tc, test_clock_fake_repeats_itself_from_its_seed);
    tcase_add_test(tc, test_clock_fake_is_xoshiro256_starstar);
    tcase_add_test(tc, test_clock_below_is_uniform_and_in_range);
    tcase_add_test(tc, test_clock_below_ends_on_a_constant_source);
    tcase_add_test(tc, test_clock_bytes_fill_exactly);
    tcase_add_test(tc, test_clock_real_moves_and_boot_id_has_its_shape);
}

int main(void) { return ut_main("clock", add, 20); }
