// SPDX-License-Identifier: Apache-2.0
/* spawn.c - how fast does the machine start a program and wait for its end?
 *
 *   spawn N WINDOW PROGRAM [ARG...]    posix_spawn, at most WINDOW of them at a time, waitpid */
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>
#include "bench.h"

extern char **environ;

static void wait_one(void)
{
    int status = 0;

    while (waitpid(-1, &status, 0) < 0)
        if (errno != EINTR) bench_die("wait", strerror(errno));
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) bench_die("the program", "it failed");
}

int main(int argc, char **argv)
{
    int64_t running = 0;

    if (argc < 4) bench_die("usage", "spawn N WINDOW PROGRAM [ARG...]");
    const int64_t n = bench_int(argv[1], 1), window = bench_int(argv[2], 1);
    const int64_t start = bench_now_us(CLOCK_MONOTONIC);
    for (int64_t i = 0; i < n; i++) {
        pid_t pid = 0;

        if (running == window) {
            wait_one();
            running--;
        }
        const int err = posix_spawn(&pid, argv[3], NULL, NULL, argv + 3, environ);
        if (err != 0) bench_die(argv[3], strerror(err));
        running++;
    }
    for (; running > 0; running--) wait_one();
    const int64_t took = bench_now_us(CLOCK_MONOTONIC) - start;
    struct rusage u = {0};
    (void)getrusage(RUSAGE_CHILDREN, &u);
    bench_print(n, took, bench_cpu_us() + ((int64_t)u.ru_utime.tv_sec + u.ru_stime.tv_sec) * 1000000
                + u.ru_utime.tv_usec + u.ru_stime.tv_usec);
    return 0;
}
