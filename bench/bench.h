// SPDX-License-Identifier: Apache-2.0
/* bench.h - what the small measuring programs share: a clock, a rate, arguments, one way to fail.
 * Each program answers one question and prints one JSON object; run.py asks them in turn. */
#ifndef BENCH_BENCH_H
#define BENCH_BENCH_H

#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

enum { ARGS_BYTES = 200 }; /* of a job's args, as in every published number */

static inline int64_t bench_now_us(clockid_t clock)
{
    struct timespec t = {0};

    (void)clock_gettime(clock, &t);
    return (int64_t)t.tv_sec * 1000000 + t.tv_nsec / 1000;
}

/* CPU time of this process, in microseconds: depends least on what else the machine does. */
static inline int64_t bench_cpu_us(void)
{
    struct rusage u = {0};

    (void)getrusage(RUSAGE_SELF, &u);
    return ((int64_t)u.ru_utime.tv_sec + u.ru_stime.tv_sec) * 1000000 + u.ru_utime.tv_usec
        + u.ru_stime.tv_usec;
}

static inline _Noreturn void bench_die(const char *what, const char *why)
{
    (void)fprintf(stderr, "bench: %s: %s\n", what, why);
    exit(1);
}

static inline int64_t bench_int(const char *s, int64_t min)
{
    char *end = NULL;

    errno = 0;
    const long long v = strtoll(s, &end, 10);
    if (errno != 0 || end == s || *end != '\0' || v < min) bench_die(s, "not a number that fits");
    return v;
}

/* The args of job i: {"key":"k-00000007","n":7,"pad":"xxx"}, ARGS_BYTES long. */
static inline size_t bench_args(int64_t i, char *out, size_t room)
{
    const int head = snprintf(out, room, "{\"key\":\"k-%010lld\",\"n\":%lld,\"pad\":\"",
                              (long long)i, (long long)i);

    if (head < 0 || room <= ARGS_BYTES || head > ARGS_BYTES - 2) bench_die("args", "no room");
    memset(out + head, 'x', (size_t)(ARGS_BYTES - 2 - head));
    out[ARGS_BYTES - 2] = '"';
    out[ARGS_BYTES - 1] = '}';
    out[ARGS_BYTES] = '\0';
    return ARGS_BYTES;
}

/* {"n":..,"seconds":..,"per_s":..,"cpu_us":..}: cpu_us is per piece of work. */
static inline void bench_print(int64_t n, int64_t took_us, int64_t cpu_us)
{
    (void)printf("{\"n\":%lld,\"seconds\":%.6f,\"per_s\":%.1f,\"cpu_us\":%.3f}\n", (long long)n,
                 (double)took_us / 1e6, (double)n * 1e6 / (double)(took_us > 0 ? took_us : 1),
                 (double)cpu_us / (double)(n > 0 ? n : 1));
}

#endif
