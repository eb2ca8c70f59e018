// SPDX-License-Identifier: Apache-2.0
/* enqueue.c - how fast does one process enqueue through include/pawl.h, one job a call?
 *
 *   enqueue STORE TASK FIRST N keyed|keyless RATE
 *
 * FIRST numbers the jobs (their keys are k-FIRST ...). RATE 0: as fast as it goes, the answer is
 * one JSON object. RATE > 0: so many a second; then a line "ID BEFORE AFTER" a job comes first:
 * the monotonic microseconds before the call, and after it (that is: durable). */
#include "bench.h"
#include "pawl.h"

static void wait_until(int64_t at_us)
{
    const struct timespec t = {at_us / 1000000, at_us % 1000000 * 1000};

    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL) == EINTR) {}
}

int main(int argc, char **argv)
{
    struct pawl_error e = {0};
    struct pawl *p = NULL;
    char args[ARGS_BYTES + 64], key[40];

    if (argc != 7) bench_die("usage", "enqueue STORE TASK FIRST N keyed|keyless RATE");
    const int64_t first = bench_int(argv[3], 0), n = bench_int(argv[4], 1);
    const int64_t rate = bench_int(argv[6], 0);
    const int keyed = strcmp(argv[5], "keyed") == 0;
    if (pawl_open(argv[1], &p, &e) != PAWL_OK) bench_die("open", e.msg);
    const int64_t start = bench_now_us(CLOCK_MONOTONIC), cpu = bench_cpu_us();
    for (int64_t i = 0; i < n; i++) {
        struct pawl_enqueued out = {0};
        struct pawl_request r = {.task = argv[2], .args = args};

        r.args_bytes = bench_args(first + i, args, sizeof args);
        (void)snprintf(key, sizeof key, "k-%010lld", (long long)(first + i));
        if (keyed) r.key = key;
        if (rate > 0) wait_until(start + (i + 1) * 1000000 / rate);
        const int64_t before = bench_now_us(CLOCK_MONOTONIC);
        if (pawl_enqueue(p, &r, 1, &out, NULL, &e) != PAWL_OK) bench_die("enqueue", e.msg);
        if (!out.created) bench_die("enqueue", "the key was there already");
        if (rate > 0)
            (void)printf("%lld %lld %lld\n", (long long)out.id, (long long)before,
                         (long long)bench_now_us(CLOCK_MONOTONIC));
        pawl_free(out.result);
    }
    bench_print(n, bench_now_us(CLOCK_MONOTONIC) - start, bench_cpu_us() - cpu);
    pawl_close(&p);
    return 0;
}
