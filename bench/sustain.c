// SPDX-License-Identifier: Apache-2.0
/* sustain.c - does a rate hold? A linked worker enqueues and does jobs for some seconds, at a given
 * pace, through pawl.h only: one keyed row a job, leased, BATCH a commit.
 *
 *   sustain STORE SECONDS RATE BATCH     RATE 0: as fast as it goes
 *
 * Answers {"n", "per_s", "first_per_s", "last_per_s"}: the first and the last sixth of the time. */
#include "bench.h"
#include "pawl.h"

enum { BATCH_MAX = 1000, SIXTHS = 6 };

static enum pawl_outcome apply(struct pawl_run *run)
{
    static const char *const sql = "INSERT INTO effect (key, n) VALUES (:key, :n)";
    struct pawl_error e;
    const char *key = NULL;
    int64_t n = 0;

    if (pawl_arg_text(run, "key", &key, NULL, &e) != PAWL_OK ||
        pawl_arg_int(run, "n", &n, &e) != PAWL_OK)
        return pawl_run_error(run, &e);
    const struct pawl_value v[] = {pawl_text("key", key), pawl_int("n", n)};
    return pawl_exec(run, sql, v, 2, NULL, &e) == PAWL_OK ? PAWL_DONE : pawl_run_error(run, &e);
}

static enum pawl_outcome prepare(struct pawl_run *run)
{
    (void)run;
    return PAWL_DONE;
}

PAWL_HANDLER(handler, prepare, apply, NULL);

static void enqueue(struct pawl *p, int64_t first, int64_t n)
{
    static char args[BATCH_MAX][ARGS_BYTES + 64];
    static struct pawl_request req[BATCH_MAX];
    static struct pawl_enqueued out[BATCH_MAX];
    struct pawl_error e;

    for (int64_t k = 0; k < n; k++) {
        (void)bench_args(first + k, args[k], sizeof args[k]);
        req[k] = (struct pawl_request){.task = "sustain", .args = args[k]};
    }
    if (pawl_enqueue(p, req, (size_t)n, out, NULL, &e) != PAWL_OK) bench_die("enqueue", e.msg);
}

/* Step until `n` jobs are done in all. */
static void work(struct pawl_worker *w, int64_t n)
{
    const struct timespec nap = {0, 100000};
    struct pawl_worker_stat s = {0};
    struct pawl_error e;
    bool more = true;

    for (int idle = 0; s.done < n; idle = more ? 0 : idle + 1) {
        if (!more) (void)nanosleep(&nap, NULL);
        if (idle > 50000) bench_die("worker", "nothing is due, and not all is done");
        if (pawl_worker_step(w, &more, &e) != PAWL_OK) bench_die("step", e.msg);
        pawl_worker_stats(w, &s);
        if (s.dead + s.retried + s.dropped > 0) bench_die("worker", "a job failed");
    }
}

int main(int argc, char **argv)
{
    struct pawl_task task = {.name = "sustain", .handler = &handler};
    struct pawl_worker_opts o = {.tasks = &task, .tasks_n = 1, .accept_wal_risk = true};
    int64_t done[SIXTHS] = {0}, n = 0;
    struct pawl_worker *w = NULL;
    struct pawl *p = NULL;
    struct pawl_error e;

    if (argc != 5) bench_die("usage", "sustain STORE SECONDS RATE BATCH");
    const int64_t for_us = bench_int(argv[2], 1) * 1000000, rate = bench_int(argv[3], 0);
    const int64_t batch = bench_int(argv[4], 1) < BATCH_MAX ? bench_int(argv[4], 1) : BATCH_MAX;
    const int64_t base = bench_now_us(CLOCK_REALTIME); /* keys of its own */
    o.batch_max = (size_t)batch;
    if (pawl_open(argv[1], &p, &e) != PAWL_OK) bench_die("open", e.msg);
    if (pawl_worker_open(argv[1], &o, &w, &e) != PAWL_OK) bench_die("worker", e.msg);
    const int64_t start = bench_now_us(CLOCK_MONOTONIC);
    for (int64_t now = start; now - start < for_us; now = bench_now_us(CLOCK_MONOTONIC)) {
        if (rate > 0 && (now - start) * rate < n * 1000000) {
            const struct timespec nap = {0, 500000};

            (void)nanosleep(&nap, NULL);
            continue;
        }
        enqueue(p, base + n, batch);
        n += batch;
        work(w, n);
        const int64_t took = bench_now_us(CLOCK_MONOTONIC) - start;
        if (took < for_us) done[took * SIXTHS / for_us] += batch;
    }
    const double sixth = (double)for_us / SIXTHS / 1e6;
    (void)printf("{\"n\":%lld,\"per_s\":%.1f,\"first_per_s\":%.1f,\"last_per_s\":%.1f}\n",
                 (long long)n, (double)n * 1e6 / (double)for_us, (double)done[0] / sixth,
                 (double)done[SIXTHS - 1] / sixth);
    if (pawl_worker_close(&w, &e) != PAWL_OK) bench_die("close", e.msg);
    pawl_close(&p);
    return 0;
}
