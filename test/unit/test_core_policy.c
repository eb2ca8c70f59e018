// SPDX-License-Identifier: Apache-2.0
/* test_core_policy.c - a policy as text comes back the same; bad values are refused in words. */
#include "core/rules.h"

#include <string.h>
#include "lib/ut.h"

#define SEC INT64_C(1000000)

static const char defaults[] =
    "ack = late\n"        "max_retries = 5\n"  "backoff = 1s..10m\n"  "lost_cap = 3\n"
    "soft_limit = 0s\n"   "hard_limit = 1h\n"  "priority = 0\n"       "queue = default\n"
    "entity = \n"         "version = \n"       "zero_rows = done\n"   "key_window = 30d\n"
    "retention = 7d\n"    "transient = \n"     "permanent = \n"       "discard = \n";

static bool same(const struct policy *a, const struct policy *b)
{
    struct buf x = { 0 }, y = { 0 };
    bool equal;

    policy_text(a, &x);
    policy_text(b, &y);
    equal = strcmp(buf_str(&x), buf_str(&y)) == 0;
    buf_free(&x);
    buf_free(&y);
    return equal &&
           memcmp(a->codes_transient, b->codes_transient, sizeof a->codes_transient) == 0 &&
           memcmp(a->codes_permanent, b->codes_permanent, sizeof a->codes_permanent) == 0 &&
           memcmp(a->codes_discard, b->codes_discard, sizeof a->codes_discard) == 0 &&
           a->backoff_base_us == b->backoff_base_us && a->backoff_cap_us == b->backoff_cap_us &&
           a->key_window_us == b->key_window_us && a->retention_us == b->retention_us &&
           a->soft_limit_us == b->soft_limit_us && a->hard_limit_us == b->hard_limit_us;
}

START_TEST(test_policy_defaults_are_the_documented_ones)
{
    struct policy p;
    struct buf b = { 0 };

    policy_defaults(&p);
    policy_text(&p, &b);
    ck_assert_str_eq(buf_str(&b), defaults);
    ck_assert(policy_check(&p, NULL, 0));
    buf_free(&b);
}
END_TEST

START_TEST(test_policy_names_are_the_settings_in_order)
{
    const char *const *names = policy_names();
    const char *at = defaults;

    for (size_t i = 0; names[i] != NULL; i++) {
        ck_assert_int_eq(strncmp(at, names[i], strlen(names[i])), 0);
        at = strchr(at, '\n') + 1;
    }
    ck_assert_str_eq(at, "");
}
END_TEST

START_TEST(test_policy_set_takes_good_values)
{
    static const char *const good[][2] = {
        { "ack", "early" }, { "max_retries", "0" }, { "max_retries", "1000" },
        { "backoff", "0..0" }, { "backoff", "250ms..1.5h" }, { "lost_cap", "1" },
        { "lost_cap", "100" }, { "soft_limit", "0" }, { "soft_limit", "30s" },
        { "hard_limit", "0.001ms" }, { "priority", "-100" }, { "priority", "100" },
        { "queue", "a.b-c_9" }, { "entity", ":sku" }, { "entity", "" }, { "version", ":_v9" },
        { "zero_rows", "stale" }, { "zero_rows", "retry" }, { "zero_rows", "fail" },
        { "key_window", "0" }, { "retention", "3653d" }, { "transient", "" },
        { "transient", "1 2\t 3  9-9" }, { "permanent", "255" }, { "discard", "10-20" },
    };
    struct policy p;
    char why[200];

    policy_defaults(&p);
    for (size_t i = 0; i < UT_N(good); i++) {
        bool unknown = true;
        ck_assert_msg(policy_set(&p, good[i][0], good[i][1], &unknown, why, sizeof why),
                      "%s = %s: %s", good[i][0], good[i][1], why);
        ck_assert(!unknown);
    }
    ck_assert_int_eq(p.ack, ACK_EARLY);
    ck_assert_int_eq(p.backoff_cap_us, 5400 * SEC);
    ck_assert_str_eq(p.version, ":_v9");
    ck_assert_int_eq(p.priority, 100);
}
END_TEST

START_TEST(test_policy_set_refuses_bad_values_and_changes_nothing)
{
    static const char *const bad[][3] = {
        { "ack", "Late", "late or early" }, { "ack", "", "late or early" },
        { "max_retries", "-1", "0 to 1000" }, { "max_retries", "1001", "0 to 1000" },
        { "max_retries", "5x", "0 to 1000" }, { "max_retries", "unlimited", "0 to 1000" },
        { "backoff", "1s", "range" }, { "backoff", "1s..", "range" },
        { "backoff", "..1s", "range" },
        { "backoff", "1..2", "range" }, { "backoff", "1s...2s", "range" },
        { "backoff", "2s..1s", "begin above" }, { "backoff", "1s..2s..3s", "range" },
        { "lost_cap", "0", "1 to 100" }, { "soft_limit", "-1s", "duration" },
        { "hard_limit", "0", "more than 0" }, { "hard_limit", "", "duration" },
        { "priority", "101", "-100 to 100" }, { "queue", "", "letter" }, { "queue", "A", "letter" },
        { "queue", "-a", "letter" }, { "entity", "sku", ":name" }, { "entity", ":", ":name" },
        { "entity", ":9a", ":name" }, { "entity", ":a b", ":name" }, { "version", ":a-b", ":name" },
        { "zero_rows", "ok", "done, stale" }, { "key_window", "30", "duration" },
        { "retention", "100000d", "duration" }, { "transient", "0", "1 to 255" },
        { "transient", "256", "1 to 255" }, { "transient", "1,2", "1 to 255" },
        { "transient", "1-", "1 to 255" }, { "transient", "-5", "1 to 255" },
        { "transient", "9-5", "backwards" }, { "transient", "75", "two lists" },
        { "discard", "60-80", "two lists" },
    };
    struct policy p, before;
    char why[200], huge[5000];

    policy_defaults(&p);
    ck_assert(policy_set(&p, "permanent", "75", NULL, why, sizeof why));
    before = p;
    for (size_t i = 0; i < UT_N(bad); i++) {
        bool unknown = true;
        why[0] = '\0';
        ck_assert_msg(!policy_set(&p, bad[i][0], bad[i][1], &unknown, why, sizeof why), "%s = %s",
                      bad[i][0], bad[i][1]);
        ck_assert_msg(strstr(why, bad[i][2]) != NULL, "%s = %s: %s", bad[i][0], bad[i][1], why);
        ck_assert(!unknown);
        ck_assert_msg(same(&p, &before), "%s = %s", bad[i][0], bad[i][1]);
    }
    memset(huge, '1', sizeof huge);
    huge[sizeof huge - 1] = '\0';
    for (size_t i = 0; policy_names()[i] != NULL; i++) /* whatever the setting */
        ck_assert(!policy_set(&p, policy_names()[i], huge, NULL, why, sizeof why));
    ck_assert(same(&p, &before));
}
END_TEST

START_TEST(test_policy_set_tells_unknown_from_bad)
{
    struct policy p;
    bool unknown = false;
    char why[100];

    policy_defaults(&p);
    ck_assert(!policy_set(&p, "max_retrys", "5", &unknown, why, sizeof why));
    ck_assert(unknown);
    ck_assert(!policy_set(&p, "sql", "5", &unknown, NULL, 0));
    ck_assert(unknown);
}
END_TEST

START_TEST(test_policy_check_sees_what_single_settings_cannot)
{
    struct policy p;
    char why[200];

    policy_defaults(&p);
    p.soft_limit_us = p.hard_limit_us;
    ck_assert(!policy_check(&p, why, sizeof why));
    ck_assert_ptr_nonnull(strstr(why, "soft_limit"));
    p.soft_limit_us--;
    ck_assert(policy_check(&p, why, sizeof why));
    snprintf(p.entity, sizeof p.entity, ":sku");
    ck_assert(!policy_check(&p, why, sizeof why));
    ck_assert_ptr_nonnull(strstr(why, "go together"));
    snprintf(p.version, sizeof p.version, ":v");
    ck_assert(policy_check(&p, why, sizeof why));
}
END_TEST

START_TEST(test_policy_parse_refuses_and_keeps_the_old_one)
{
    static const char *const bad[][2] = {
        { "max_retries = x\n", "max_retries = x: must be" }, { "color = red\n", "unknown setting" },
        { "max_retries\n", "expected" }, { "soft_limit = 2h\n", "shorter" },
        { "transient = 5\npermanent = 5\n", "two lists" },
    };
    struct policy p, before;
    char why[200];

    policy_defaults(&p);
    p.max_retries = 42;
    before = p;
    for (size_t i = 0; i < UT_N(bad); i++) {
        ck_assert(!policy_parse(&p, bad[i][0], why, sizeof why));
        ck_assert_msg(strstr(why, bad[i][1]) != NULL, "%s", why);
        ck_assert(same(&p, &before));
    }
    ck_assert(policy_parse(&p, "", why, sizeof why)); /* an older text: the rest has defaults */
    ck_assert_int_eq(p.max_retries, 5);
    ck_assert(policy_parse(&p, "priority = 7", why, sizeof why));
    ck_assert_int_eq(p.priority, 7);
}
END_TEST

static void random_codes(uint64_t set[4], const struct env *env, int list)
{
    for (int c = 1; c <= 255; c++) /* each code in one list at most */
        if (c % 3 == list && env_below(env, 2) == 0) set[c / 64] |= UINT64_C(1) << (c % 64);
    if (list == 0 && env_below(env, 2) == 0)
        for (int i = 0; i < 4; i++) set[i] = i == 0 ? ~UINT64_C(1) : ~UINT64_C(0); /* all */
}

START_TEST(test_policy_text_round_trips)
{
    struct env_fake f;

    env_fake_init(&f, ut_seed(40), 0);
    for (int i = 0; i < 2000; i++) {
        struct policy p, q;
        struct buf b = { 0 };
        char why[300] = "";
        policy_defaults(&p);
        p.ack = env_below(&f.env, 2) ? ACK_EARLY : ACK_LATE;
        p.max_retries = (int)env_below(&f.env, LIMIT_RETRIES + 1);
        p.backoff_base_us = (int64_t)env_below(&f.env, 1000 * SEC);
        p.backoff_cap_us = p.backoff_base_us + (int64_t)env_below(&f.env, 100000 * SEC);
        p.lost_cap = 1 + (int)env_below(&f.env, 100);
        p.hard_limit_us = 1 + (int64_t)env_below(&f.env, 100000 * SEC);
        p.soft_limit_us = (int64_t)env_below(&f.env, (uint64_t)p.hard_limit_us);
        p.priority = (int)env_below(&f.env, 201) - 100;
        p.zero_rows = (enum zero_rows)env_below(&f.env, 4);
        p.key_window_us = (int64_t)env_below(&f.env, 3653u * 86400u * 1000000u);
        p.retention_us = (int64_t)env_below(&f.env, 3653u * 86400u * 1000000u);
        if (env_below(&f.env, 2)) {
            snprintf(p.entity, sizeof p.entity, ":e%d", i);
            snprintf(p.version, sizeof p.version, ":v_%d", i);
        }
        snprintf(p.queue, sizeof p.queue, "q-%d", i);
        random_codes(p.codes_transient, &f.env, i % 2 ? 0 : 1);
        if (i % 2 == 0) random_codes(p.codes_permanent, &f.env, 2);
        policy_text(&p, &b);
        ck_assert_msg(policy_parse(&q, buf_str(&b), why, sizeof why), "%s", why);
        ck_assert_msg(same(&p, &q), "%s", buf_str(&b));
        ck_assert_str_eq(p.queue, q.queue);
        buf_free(&b);
    }
}
END_TEST

static void add(TCase *tc)
{
    tcase_add_test(tc, test_policy_defaults_are_the_documented_ones);
    tcase_add_test(tc, test_policy_names_are_the_settings_in_order);
    tcase_add_test(tc, test_policy_set_takes_good_values);
    tcase_add_test(tc, test_policy_set_refuses_bad_values_and_changes_nothing);
    tcase_add_test(tc, test_policy_set_tells_unknown_from_bad);
    tcase_add_test(tc, test_policy_check_sees_what_single_settings_cannot);
    tcase_add_test(tc, test_policy_parse_refuses_and_keeps_the_old_one);
    tcase_add_test(tc, test_policy_text_round_trips);
}

int main(void) { return ut_main("policy", add, 20); }
