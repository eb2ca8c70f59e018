// SPDX-License-Identifier: Apache-2.0
/* crowd.c - how fast do N processes enqueue at once through include/pawl.h, one job a call, and how
 * long does each wait?
 *
 *   crowd STORE TASK N MILLISECONDS keyed|keyless
 *
 * Each opens the store for itself, all begin at once. fairness: the jobs of the slowest process by
 * those of the fastest. Answers one JSON object. */
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>
#include "bench.h"
#include "pawl.h"

enum { PROCESSES_MAX = 64, CALLS_MAX = 200000 };
struct crowd {
    _Atomic int ready, go;
    int64_t calls[PROCESSES_MAX], cpu_us[PROCESSES_MAX];
    int32_t took_us[PROCESSES_MAX][CALLS_MAX];
};

static void wait_for(_Atomic int *what, int n)
{
    const struct timespec nap = {0, 200000};

    while (atomic_load(what) < n) (void)nanosleep(&nap, NULL);
}

static void produce(struct crowd *c, int who, char **argv, int64_t for_us)
{
    const int keyed = strcmp(argv[5], "keyed") == 0;
    struct pawl_error e = {0};
    struct pawl *p = NULL;
    char args[ARGS_BYTES + 64], key[40];
    int64_t n = 0;

    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (pawl_open(argv[1], &p, &e) != PAWL_OK) bench_die("open", e.msg);
    (void)atomic_fetch_add(&c->ready, 1);
    wait_for(&c->go, 1);
    const int64_t start = bench_now_us(CLOCK_MONOTONIC), cpu = bench_cpu_us();
    for (int64_t now = start; now - start < for_us && n < CALLS_MAX; n++) {
        struct pawl_enqueued out = {0};
        struct pawl_request r = {.task = argv[2], .args = args};

        r.args_bytes = bench_args(who * INT64_C(1000000) + n, args, sizeof args);
        (void)snprintf(key, sizeof key, "%d-%lld-%010lld", who, (long long)start, (long long)n);
        if (keyed) r.key = key;
        if (pawl_enqueue(p, &r, 1, &out, NULL, &e) != PAWL_OK) bench_die("enqueue", e.msg);
        pawl_free(out.result);
        const int64_t then = bench_now_us(CLOCK_MONOTONIC);
        c->took_us[who][n] = (int32_t)(then - now);
        now = then;
    }
    c->calls[who] = n;
    c->cpu_us[who] = bench_cpu_us() - cpu;
    pawl_close(&p);
    exit(0);
}

static int ascending(const void *a, const void *b)
{
    const int32_t x = *(const int32_t *)a, y = *(const int32_t *)b;

    return (x > y) - (x < y);
}

static void report(struct crowd *c, int n, int64_t took_us)
{
    int64_t all = 0, cpu = 0, least = INT64_MAX, most = 0;

    for (int i = 0; i < n; i++) {
        all += c->calls[i];
        cpu += c->cpu_us[i];
        least = c->calls[i] < least ? c->calls[i] : least;
        most = c->calls[i] > most ? c->calls[i] : most;
    }
    int32_t *took = malloc(sizeof *took * (size_t)(all + 1));
    if (took == NULL || all == 0) bench_die("report", "no memory, or nothing was enqueued");
    for (int64_t i = 0, at = 0; i < n; at += c->calls[i], i++)
        memcpy(took + at, c->took_us[i], sizeof *took * (size_t)c->calls[i]);
    qsort(took, (size_t)all, sizeof *took, ascending);
    (void)printf("{\"processes\":%d,\"n\":%lld,\"per_s\":%.1f,\"p50_us\":%d,\"p99_us\":%d,"
                 "\"max_us\":%d,\"fairness\":%.3f,\"cpu_us\":%.2f}\n", n, (long long)all,
                 (double)all * 1e6 / (double)took_us, took[all / 2], took[all - 1 - all / 100],
                 took[all - 1], (double)least / (double)most, (double)cpu / (double)all);
    free(took);
}

int main(int argc, char **argv)
{
    if (argc != 6) bench_die("usage", "crowd STORE TASK N MILLISECONDS keyed|keyless");
    const int64_t n = bench_int(argv[3], 1), for_us = bench_int(argv[4], 1) * 1000;
    struct crowd *c = mmap(NULL, sizeof *c, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
                           0);

    if (c == MAP_FAILED || n > PROCESSES_MAX) bench_die("crowd", "too many processes");
    for (int i = 0; i < n; i++) {
        const pid_t pid = fork();

        if (pid < 0) bench_die("fork", strerror(errno));
        if (pid == 0) produce(c, i, argv, for_us);
    }
    wait_for(&c->ready, (int)n);
    const int64_t start = bench_now_us(CLOCK_MONOTONIC);
    atomic_store(&c->go, 1);
    for (int i = 0; i < n; i++) {
        int status = 0;

        if (wait(&status) < 0 || status != 0) bench_die("crowd", "a process failed");
    }
    report(c, (int)n, bench_now_us(CLOCK_MONOTONIC) - start);
    return 0;
}
