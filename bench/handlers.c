// SPDX-License-Identifier: Apache-2.0
/* handlers.c - what a C handler costs in a linked worker: one keyed row a job, through pawl.h only.
 *
 *   handlers MODE STORE FIRST JOBS BATCH
 *     effect   apply only; claim, work and acknowledgement share a commit
 *     leased   prepare and apply: the claim is durable before the work starts
 *     life     leased, and each batch is enqueued just before: the whole life of a job
 *   BATCH jobs per commit at most; 0: what the worker finds right. Jobs FIRST, FIRST+1 ... of task
 *   "handlers" are enqueued first, 1,000 a commit, and not timed (but for life). */
#include "bench.h"
#include "pawl.h"

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
    if (pawl_exec(run, sql, v, 2, NULL, &e) != PAWL_OK) return pawl_run_error(run, &e);
    return PAWL_DONE;
}

static enum pawl_outcome prepare(struct pawl_run *run)
{
    (void)run;
    return PAWL_DONE;
}

PAWL_HANDLER(in_effect, NULL, apply, NULL);
PAWL_HANDLER(when_leased, prepare, apply, NULL);

static void fill(struct pawl *p, int64_t first, int64_t n)
{
    enum { AT_ONCE = 1000 };
    static char args[AT_ONCE][ARGS_BYTES + 64];
    static struct pawl_request req[AT_ONCE];
    static struct pawl_enqueued out[AT_ONCE];
    struct pawl_error e;

    for (int64_t i = 0; i < n;) {
        size_t k = 0;
        for (; k < AT_ONCE && i < n; k++, i++) {
            (void)bench_args(first + i, args[k], sizeof args[k]);
            req[k] = (struct pawl_request){.task = "handlers", .args = args[k]};
        }
        if (pawl_enqueue(p, req, k, out, NULL, &e) != PAWL_OK) bench_die("enqueue", e.msg);
    }
}

/* Step until `n` jobs are done. */
static void work(struct pawl_worker *w, int64_t n)
{
    const struct timespec nap = {0, 100000};
    struct pawl_worker_stat s = {0};
    struct pawl_error e;
    bool more = true;

    for (int idle = 0;
         s.done < n;) { /* on PostgreSQL a job may be due a moment later: two clocks */
        if (!more && ++idle > 20000) bench_die("worker", "nothing is due, and not all is done");
        if (!more) (void)nanosleep(&nap, NULL);
        if (pawl_worker_step(w, &more, &e) != PAWL_OK) bench_die("step", e.msg);
        pawl_worker_stats(w, &s);
        if (s.dead + s.retried + s.dropped > 0) bench_die("worker", "a job failed");
    }
}

int main(int argc, char **argv)
{
    struct pawl_task task = {.name = "handlers"};
    struct pawl_worker_opts o = {.tasks = &task, .tasks_n = 1, .accept_wal_risk = true};
    struct pawl_worker *w = NULL;
    struct pawl *p = NULL;
    struct pawl_error e;

    if (argc != 6) bench_die("usage", "handlers effect|leased|life STORE FIRST JOBS BATCH");
    const int life = strcmp(argv[1], "life") == 0, leased = life || strcmp(argv[1], "leased") == 0;
    const int64_t first = bench_int(argv[3], 0), n = bench_int(argv[4], 1);
    o.batch_max = (size_t)bench_int(argv[5], 0);
    task.handler = leased ? &when_leased : &in_effect;
    o.replace_policies = true; /* the task was another mode's in the turn before */
    if (pawl_open(argv[2], &p, &e) != PAWL_OK) bench_die("open", e.msg);
    if (pawl_worker_open(argv[2], &o, &w, &e) != PAWL_OK) bench_die("worker", e.msg);
    if (!life) fill(p, first, n);
    const int64_t start = bench_now_us(CLOCK_MONOTONIC), cpu = bench_cpu_us();
    if (!life) work(w, n);
    for (int64_t i = 0, step = o.batch_max > 0 ? (int64_t)o.batch_max : 100; life &&
         i < n; i += step) {
        fill(p, first + i, n - i < step ? n - i : step);
        work(w, n - i < step ? n : i + step);
    }
    bench_print(n, bench_now_us(CLOCK_MONOTONIC) - start, bench_cpu_us() - cpu);
    if (pawl_worker_close(&w, &e) != PAWL_OK) bench_die("close", e.msg);
    pawl_close(&p);
    return 0;
}
