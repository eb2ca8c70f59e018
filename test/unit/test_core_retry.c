// SPDX-License-Identifier: Apache-2.0
/* test_core_retry.c - backoff: bounds, spread, no overflow, Retry-After as a floor. */
#include "core/rules.h"

#include "lib/ut.h"

#define SEC INT64_C(1000000)
#define TEN_YEARS (INT64_C(3653) * 86400 * SEC)

static struct policy with(int64_t base_us, int64_t cap_us)
{
    struct policy p;

    policy_defaults(&p);
    p.backoff_base_us = base_us;
    p.backoff_cap_us = cap_us;
    return p;
}

static int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }

START_TEST(test_retry_delay_is_floor_plus_doubling_spread_and_never_above_cap)
{
    struct policy p = with(SEC, 600 * SEC);
    struct env_fake f;

    env_fake_init(&f, ut_seed(11), 0);
    for (int64_t failures = 1; failures <= 20; failures++) {
        int64_t width = failures > 12 ? 599 * SEC : smaller(SEC << (failures - 1), 599 * SEC);
        int64_t low = INT64_MAX, high = 0;
        for (int i = 0; i < 2000; i++) {
            int64_t d = retry_delay_us(&p, failures, 0, &f.env);
            ck_assert_int_ge(d, SEC);
            ck_assert_int_le(d, SEC + width);
            ck_assert_int_le(d, 600 * SEC);
            if (d < low) low = d;
            if (d > high) high = d;
        }
        ck_assert_int_lt(low, SEC + width / 50); /* the whole range is used */
        ck_assert_int_gt(high, SEC + width - width / 50);
    }
}
END_TEST

START_TEST(test_retry_delay_is_spread_evenly)
{
    enum { SAMPLES = 10000, BINS = 20 };
    struct policy p = with(SEC, 600 * SEC);
    struct env_fake f;

    env_fake_init(&f, 20270102, 0); /* fixed: such a bound fails for one seed in a thousand */
    for (int64_t failures = 1; failures <= 30; failures += 7) {
        int64_t width = failures > 12 ? 599 * SEC : smaller(SEC << (failures - 1), 599 * SEC);
        int bin[BINS] = { 0 };
        double chi2 = 0, want = (double)SAMPLES / BINS;
        for (int i = 0; i < SAMPLES; i++) {
            int64_t d = retry_delay_us(&p, failures, 0, &f.env) - SEC;
            bin[smaller(d * BINS / (width + 1), BINS - 1)]++;
        }
        for (int i = 0; i < BINS; i++) chi2 += (bin[i] - want) * (bin[i] - want) / want;
        ck_assert_double_lt(chi2, 43.82); /* 19 degrees of freedom, p = 0.001 */
    }
}
END_TEST

START_TEST(test_retry_delay_survives_any_number_of_failures)
{
    static const int64_t many[] = { 1, 62, 63, 64, 65, 100000, INT64_MAX };
    static const struct { int64_t base, cap; } range[] = {
        { 0, 0 }, { 0, 600 * SEC }, { 1, 1 }, { SEC, SEC }, { 1, TEN_YEARS },
        { TEN_YEARS, TEN_YEARS }, { INT64_MAX, INT64_MAX }, { 10 * SEC, SEC }, { -5, -5 },
    };
    struct env_fake f;

    env_fake_init(&f, ut_seed(12), 0);
    for (size_t m = 0; m < UT_N(many); m++) { /* late failures are as spread as the cap allows */
        struct policy p = with(SEC, 600 * SEC);
        int64_t high = 0;
        for (int i = 0; i < 100; i++) {
            int64_t d = retry_delay_us(&p, many[m], 0, &f.env);
            if (d > high) high = d;
        }
        ck_assert_int_gt(high, many[m] == 1 ? SEC : 500 * SEC);
    }
    for (size_t r = 0; r < UT_N(range); r++) {
        struct policy p = with(range[r].base, range[r].cap);
        for (size_t m = 0; m < UT_N(many); m++) {
            for (int i = 0; i < 20; i++) {
                int64_t d = retry_delay_us(&p, many[m], 0, &f.env);
                ck_assert_int_ge(d, 0);
                ck_assert_int_le(d, smaller(range[r].cap < 0 ? 0 : range[r].cap, TEN_YEARS));
            }
        }
    }
}
END_TEST

START_TEST(test_retry_after_is_a_floor_with_up_to_a_tenth_more)
{
    struct policy p = with(SEC, 600 * SEC);
    struct env_fake f;
    int64_t low = INT64_MAX, high = 0;

    env_fake_init(&f, ut_seed(13), 0);
    for (int i = 0; i < 5000; i++) {
        int64_t d = retry_delay_us(&p, 1, 3600 * SEC, &f.env); /* beyond the cap, as asked */
        ck_assert_int_ge(d, 3600 * SEC);
        ck_assert_int_le(d, 3960 * SEC);
        if (d < low) low = d;
        if (d > high) high = d;
    }
    ck_assert_int_gt(high - low, 300 * SEC); /* those told the same moment do not come together */
    for (int i = 0; i < 1000; i++) {         /* a small one does not shorten the backoff */
        int64_t d = retry_delay_us(&p, 10, 1, &f.env);
        ck_assert_int_ge(d, SEC);
        ck_assert_int_le(d, 513 * SEC);
    }
    ck_assert_int_ge(retry_delay_us(&p, 1, INT64_MAX, &f.env), TEN_YEARS);
    ck_assert_int_le(retry_delay_us(&p, 1, INT64_MAX, &f.env), TEN_YEARS / 10 * 11);
    ck_assert_int_le(retry_delay_us(&p, 1, -7, &f.env), 2 * SEC);
}
END_TEST

START_TEST(test_snooze_delay_is_what_was_asked_up_to_an_hour)
{
    struct env_fake f;

    env_fake_init(&f, ut_seed(14), 0);
    for (int i = 0; i < 2000; i++) {
        int64_t d = snooze_delay_us(0, &f.env);
        ck_assert(d >= 5 * SEC && d <= 5 * SEC + SEC / 2);
        d = snooze_delay_us(60 * SEC, &f.env);
        ck_assert(d >= 60 * SEC && d <= 66 * SEC);
        d = snooze_delay_us(3500 * SEC, &f.env);
        ck_assert(d >= 3500 * SEC && d <= 3600 * SEC);
        ck_assert_int_eq(snooze_delay_us(INT64_MAX, &f.env), 3600 * SEC);
        ck_assert_int_ge(snooze_delay_us(-1, &f.env), 5 * SEC);
        ck_assert_int_eq(snooze_delay_us(1, &f.env), 1);
    }
}
END_TEST

static void add(TCase *tc)
{
    tcase_add_test(tc, test_retry_delay_is_floor_plus_doubling_spread_and_never_above_cap);
    tcase_add_test(tc, test_retry_delay_is_spread_evenly);
    tcase_add_test(tc, test_retry_delay_survives_any_number_of_failures);
    tcase_add_test(tc, test_retry_after_is_a_floor_with_up_to_a_tenth_more);
    tcase_add_test(tc, test_snooze_delay_is_what_was_asked_up_to_an_hour);
}

int main(void) { return ut_main("retry", add, 20); }
