// SPDX-License-Identifier: Apache-2.0
/* test_base_text.c - numbers, durations and instants both ways; nearest names. */
#include "base/text.h"

#include <inttypes.h>
#include <string.h>
#include <time.h>
#include "base/clock.h"
#include "lib/ut.h"

#define SEC INT64_C(1000000)
#define DAY (86400 * SEC)

START_TEST(test_text_int64_takes_whole_strings_in_range_only)
{
    static const char *const bad[] = { "", "-", "+1", " 1", "1 ", "1x", "0x1", "1.0", "--1",
        "9223372036854775808", "-9223372036854775809", "99999999999999999999999" };
    int64_t v = 42;

    for (size_t i = 0; i < UT_N(bad); i++)
        ck_assert_msg(!text_int64(bad[i], INT64_MIN, INT64_MAX, &v), "%s", bad[i]);
    ck_assert_int_eq(v, 42);
    ck_assert(text_int64("9223372036854775807", INT64_MIN, INT64_MAX, &v) && v == INT64_MAX);
    ck_assert(text_int64("-9223372036854775808", INT64_MIN, INT64_MAX, &v) && v == INT64_MIN);
    ck_assert(text_int64("-0", 0, 0, &v) && v == 0);
    ck_assert(text_int64("007", 7, 7, &v) && v == 7);
    ck_assert(!text_int64("101", -100, 100, &v));
    ck_assert(!text_int64("-101", -100, 100, &v));
}
END_TEST

START_TEST(test_text_duration_parses_one_unit)
{
    static const struct { const char *s; int64_t us; } c[] = {
        { "0", 0 }, { "0s", 0 }, { "250ms", 250000 }, { "10s", 10 * SEC }, { "5m", 300 * SEC },
        { "2h", 7200 * SEC }, { "7d", 7 * DAY }, { "1.5s", 1500000 }, { "0.000001s", 1 },
        { "0.001ms", 1 }, { "1.25h", 4500 * SEC }, { "05s", 5 * SEC }, { "3653d", 3653 * DAY },
        { "0.5d", DAY / 2 }, { "315619200s", 3653 * DAY },
    };
    static const char *const bad[] = { "", "s", "5", "1", "-1s", "+1s", "1 s", " 1s", "1s ", "1S",
        "1sec", "1.s", ".5s", "1..5s", "1.5", "1m30s", "1,5s", "1e3s", "0.0000001s", "0.0000005d",
        "0.0001ms", "3654d", "3653.1d", "99999999999999999999s", "1us", "0x5s", "00",
        "1\xc2\xb5s" };
    int64_t us;

    for (size_t i = 0; i < UT_N(c); i++) {
        ck_assert_msg(text_duration_us(c[i].s, &us), "%s", c[i].s);
        ck_assert_msg(us == c[i].us, "%s: %" PRId64, c[i].s, us);
    }
    for (size_t i = 0; i < UT_N(bad); i++)
        ck_assert_msg(!text_duration_us(bad[i], &us), "%s", bad[i]);
}
END_TEST

START_TEST(test_text_duration_prints_the_shortest_exact_form)
{
    static const struct { int64_t us; const char *s; } c[] = {
        { 0, "0s" }, { 250000, "250ms" }, { 1500000, "1.5s" }, { 10 * SEC, "10s" },
        { 60 * SEC, "1m" }, { 90 * SEC, "90s" }, { 600 * SEC, "10m" }, { 3600 * SEC, "1h" },
        { 5400 * SEC, "90m" }, { 129600 * SEC, "36h" }, { DAY, "1d" }, { 7 * DAY, "7d" },
        { 1, "0.001ms" }, { 1613000, "1.613s" }, { 4123456, "4.123456s" }, { -1500000, "-1.5s" },
        { 1000, "1ms" },
    };
    char b[40];

    for (size_t i = 0; i < UT_N(c); i++)
        ck_assert_str_eq(text_duration(c[i].us, b, sizeof b), c[i].s);
    ck_assert_uint_lt(strlen(text_duration(INT64_MAX, b, sizeof b)), 32);
    ck_assert_uint_lt(strlen(text_duration(INT64_MIN, b, sizeof b)), 32);
    ck_assert_str_eq(text_duration(90 * SEC, b, 3), "90"); /* never beyond n */
}
END_TEST

START_TEST(test_text_duration_round_trips)
{
    struct env_fake f;
    char b[40];

    env_fake_init(&f, ut_seed(1), 0);
    for (int i = 0; i < 20000; i++) {
        static const int64_t grain[] = { 1, 1000, 100000, SEC, 60 * SEC, 3600 * SEC, DAY };
        int64_t g = grain[i % 7], us, v;
        us = (int64_t)env_below(&f.env, (uint64_t)(3653 * DAY / g) + 1) * g;
        text_duration(us, b, sizeof b);
        ck_assert_msg(text_duration_us(b, &v) && v == us, "%" PRId64 " -> %s", us, b);
    }
}
END_TEST

START_TEST(test_text_instant_parses_rfc_3339)
{
    static const struct { const char *s; int64_t us; } c[] = {
        { "1970-01-01T00:00:00Z", 0 }, { "1970-01-01T00:00:00.000001Z", 1 },
        { "2000-02-29T12:00:00Z", 951825600 * SEC },
        { "2027-01-02T03:04:05.678Z", 1798859045678000 },
        { "2027-01-02 03:04:05.678z", 1798859045678000 },
        { "2027-01-02t05:04:05.678+02:00", 1798859045678000 },
        { "2027-01-01T21:34:05.678-05:30", 1798859045678000 },
        { "2027-01-02T03:04:05.678900999Z", 1798859045678900 },
        { "2027-01-02T03:04:05-00:00", 1798859045 * SEC },
        { "1970-01-01T02:00:00+02:00", 0 },
        { "9999-12-31T23:59:59.999999Z", 253402300799999999 },
        { "9999-12-31T23:59:59+23:59", 253402300799 * SEC - 86340 * SEC },
    };
    const char *why;
    int64_t us;

    for (size_t i = 0; i < UT_N(c); i++) {
        ck_assert_msg(text_instant_us(c[i].s, &us, &why), "%s: %s", c[i].s, why);
        ck_assert_msg(us == c[i].us, "%s: %" PRId64, c[i].s, us);
        ck_assert_ptr_null(why);
    }
}
END_TEST

START_TEST(test_text_instant_refuses_with_a_reason)
{
    static const struct { const char *s, *part; } c[] = {
        { "", "expected YYYY" }, { "now", "expected YYYY" }, { "2027", "expected YYYY" },
        { "10000-01-01T00:00:00Z", "1970 to 9999" }, { "1969-12-31T23:59:59Z", "1970 to 9999" },
        { "0000-01-01T00:00:00Z", "1970 to 9999" },
        { "1970-01-01T00:00:00+00:01", "in UTC" }, { "9999-12-31T23:59:59-00:01", "in UTC" },
        { "2027-02-29T00:00:00Z", "no such day" }, { "2100-02-29T00:00:00Z", "no such day" },
        { "2027-13-01T00:00:00Z", "no such day" }, { "2027-00-01T00:00:00Z", "no such day" },
        { "2027-04-31T00:00:00Z", "no such day" }, { "2027-01-00T00:00:00Z", "no such day" },
        { "2027-1-1T00:00:00Z", "expected YYYY" }, { "2027/01/01T00:00:00Z", "expected YYYY" },
        { "2027-01-01", "expected 'T'" }, { "2027-01-01  00:00:00Z", "expected hh" },
        { "2027-01-01T00:00Z", "expected hh" }, { "2027-01-01T24:00:00Z", "time of day" },
        { "2027-01-01T00:60:00Z", "time of day" }, { "2027-01-01T00:00:61Z", "time of day" },
        { "2016-12-31T23:59:60Z", "leap second" }, { "2027-01-01T00:00:00", "no zone" },
        { "2027-01-01T00:00:00+0200", "no zone" }, { "2027-01-01T00:00:00+02", "no zone" },
        { "2027-01-01T00:00:00 Z", "no zone" }, { "2027-01-01T00:00:00+24:00", "zone offset" },
        { "2027-01-01T00:00:00.Z", "digits after" }, { "2027-01-01T00:00:00Zx", "text after" },
        { "2027-01-01T00:00:00+02:00 ", "text after" }, { "+2027-01-01T00:00:00Z", "expected" },
    };
    int64_t us = 7;

    for (size_t i = 0; i < UT_N(c); i++) {
        const char *why = NULL;
        ck_assert_msg(!text_instant_us(c[i].s, &us, &why), "%s", c[i].s);
        ck_assert_msg(why != NULL && strstr(why, c[i].part) != NULL, "%s: %s", c[i].s, why);
    }
    ck_assert(!text_instant_us("x", &us, NULL));
    ck_assert_int_eq(us, 7);
}
END_TEST

START_TEST(test_text_instant_round_trips_and_agrees_with_the_c_library)
{
    struct env_fake f;
    char b[48], libc[48];

    env_fake_init(&f, ut_seed(2), 0);
    for (int i = 0; i < 20000; i++) {
        int64_t us = (int64_t)env_below(&f.env, 253402300800000000u), v;
        if (i % 3 == 0) us -= us % 1000;
        text_instant(us, b, sizeof b);
        ck_assert_msg(text_instant_us(b, &v, NULL) && v == us, "%" PRId64 " -> %s", us, b);
        time_t t = (time_t)(us / SEC);
        struct tm tm;
        strftime(libc, sizeof libc, "%Y-%m-%dT%H:%M:%S.", gmtime_r(&t, &tm));
        ck_assert_msg(strncmp(b, libc, strlen(libc)) == 0, "%s, libc %s", b, libc);
    }
    ck_assert_str_eq(text_instant(1798859045678000, b, sizeof b), "2027-01-02T03:04:05.678Z");
    ck_assert_str_eq(text_instant(1798859045678001, b, sizeof b), "2027-01-02T03:04:05.678001Z");
    ck_assert_str_eq(text_instant(-1, b, sizeof b), "-1us");
    ck_assert_str_eq(text_instant(253402300800000000, b, sizeof b), "253402300800000000us");
}
END_TEST

START_TEST(test_text_bytes_and_counts)
{
    static const struct { uint64_t n; const char *s; } c[] = {
        { 0, "0 B" }, { 1023, "1023 B" }, { 1024, "1.0 KiB" }, { 4096, "4.0 KiB" },
        { 1258291, "1.2 MiB" }, { 1048575, "1.0 MiB" }, { 1048524, "1023.9 KiB" },
        { 1073741824, "1.0 GiB" }, { UINT64_MAX, "16.0 EiB" },
    };
    char b[40];

    for (size_t i = 0; i < UT_N(c); i++)
        ck_assert_str_eq(text_bytes(c[i].n, b, sizeof b), c[i].s);
    ck_assert_str_eq(text_count(0, b, sizeof b), "0");
    ck_assert_str_eq(text_count(999, b, sizeof b), "999");
    ck_assert_str_eq(text_count(1000, b, sizeof b), "1,000");
    ck_assert_str_eq(text_count(1234567, b, sizeof b), "1,234,567");
    ck_assert_str_eq(text_count(-100000, b, sizeof b), "-100,000");
    ck_assert_str_eq(text_count(INT64_MIN, b, sizeof b), "-9,223,372,036,854,775,808");
}
END_TEST

START_TEST(test_text_distance_counts_edits_and_swaps)
{
    char long1[300], long2[300];

    ck_assert_int_eq(text_distance("", "", 3), 0);
    ck_assert_int_eq(text_distance("queue", "queue", 3), 0);
    ck_assert_int_eq(text_distance("queue", "qeuue", 3), 1);
    ck_assert_int_eq(text_distance("ab", "ba", 3), 1);
    ck_assert_int_eq(text_distance("kitten", "sitting", 5), 3);
    ck_assert_int_eq(text_distance("kitten", "sitting", 2), 3); /* max + 1 */
    ck_assert_int_eq(text_distance("abc", "", 5), 3);
    ck_assert_int_eq(text_distance("", "abcdef", 2), 3);
    ck_assert_int_eq(text_distance("abcd", "badc", 2), 2);
    ck_assert_int_eq(text_distance("abcd", "badc", 0), 1);
    memset(long1, 'a', sizeof long1);
    memset(long2, 'a', sizeof long2);
    long1[299] = long2[250] = '\0';
    ck_assert_int_eq(text_distance(long1, long2, 3), 4);
    ck_assert_int_eq(text_distance(long1, long1, 3), 0);
}
END_TEST

START_TEST(test_text_nearest_suggests_within_a_third)
{
    static const char *const names[] = { "max_retries", "backoff", "hard_limit", "soft_limit",
                                         "ack" };
    char huge[2000];

    ck_assert_int_eq(text_nearest("max_retrys", names, 5), 0);
    ck_assert_int_eq(text_nearest("back_off", names, 5), 1);
    ck_assert_int_eq(text_nearest("sotf_limit", names, 5), 3);
    ck_assert_int_eq(text_nearest("akc", names, 5), 4);
    ck_assert_int_eq(text_nearest("timeout", names, 5), -1);
    ck_assert_int_eq(text_nearest("", names, 5), -1);
    ck_assert_int_eq(text_nearest("ack", names, 0), -1);
    memset(huge, 'x', sizeof huge);
    huge[sizeof huge - 1] = '\0';
    ck_assert_int_eq(text_nearest(huge, names, 5), -1);
}
END_TEST

static void add(TCase *tc)
{
    tcase_add_test(tc, test_text_int64_takes_whole_strings_in_range_only);
    tcase_add_test(tc, test_text_duration_parses_one_unit);
    tcase_add_test(tc, test_text_duration_prints_the_shortest_exact_form);
    tcase_add_test(tc, test_text_duration_round_trips);
    tcase_add_test(tc, test_text_instant_parses_rfc_3339);
    tcase_add_test(tc, test_text_instant_refuses_with_a_reason);
    tcase_add_test(tc, test_text_instant_round_trips_and_agrees_with_the_c_library);
    tcase_add_test(tc, test_text_bytes_and_counts);
    tcase_add_test(tc, test_text_distance_counts_edits_and_swaps);
    tcase_add_test(tc, test_text_nearest_suggests_within_a_third);
}

int main(void) { return ut_main("text", add, 20); }
