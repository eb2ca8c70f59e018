// SPDX-License-Identifier: Apache-2.0
/* ut.h - the main() of a unit test: one suite, one process per test, one seed.
 *
 * UT_TAP=1    write TAP on stdout (what the build's test runner reads)
 * UT_SEED=N   the seed of random tests; the default is fixed, so that a red run repeats itself
 * CK_RUN_CASE, CK_FORK and the other variables of Check work as usual.
 */
#ifndef TEST_LIB_UT_H
#define TEST_LIB_UT_H

#include <check.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#define UT_N(array) (sizeof(array) / sizeof *(array))

/* Seed of this run; printed, so that a report says how to repeat it. */
static inline uint64_t ut_seed(uint64_t fixed)
{
    const char *text = getenv("UT_SEED");
    uint64_t seed = text == NULL || *text == '\0' ? fixed : strtoull(text, NULL, 10);

    printf("# seed %llu (UT_SEED)\n", (unsigned long long)seed);
    fflush(stdout);
    return seed;
}

/* Another case of a suite: what add() puts into it. before (NULL: nothing) is called in the process
 * of each test, ahead of its fixtures. timeout_s bounds each of its tests. */
static inline void ut_case(Suite *suite, const char *name, void (*before)(void),
                           void (*add)(TCase *tc), double timeout_s)
{
    TCase *tc = tcase_create(name);

    tcase_set_timeout(tc, timeout_s);
    if (before != NULL) tcase_add_checked_fixture(tc, before, NULL);
    add(tc);
    suite_add_tcase(suite, tc);
}

/* Run a suite; what main() returns. */
static inline int ut_run(Suite *suite)
{
    const char *tap = getenv("UT_TAP");
    SRunner *sr = srunner_create(suite);
    int failed;

    if (tap != NULL && *tap != '\0') {
        srunner_set_tap(sr, "-");
        srunner_run_all(sr, CK_SILENT);
    } else {
        srunner_run_all(sr, CK_ENV);
    }
    failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}

/* A suite of one case. */
static inline int ut_main(const char *subject, void (*add)(TCase *tc), double timeout_s)
{
    Suite *suite = suite_create(subject);

    ut_case(suite, subject, NULL, add, timeout_s);
    return ut_run(suite);
}

#endif
