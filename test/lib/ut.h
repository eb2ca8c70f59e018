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

/* Run what add() puts into the case. timeout_s bounds each test. */
static inline int ut_main(const char *subject, void (*add)(TCase *tc), double timeout_s)
{
    const char *tap = getenv("UT_TAP");
    Suite *suite = suite_create(subject);
    TCase *tc = tcase_create(subject);
    SRunner *sr;
    int failed;

    tcase_set_timeout(tc, timeout_s);
    add(tc);
    suite_add_tcase(suite, tc);
    sr = srunner_create(suite);
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

#endif
