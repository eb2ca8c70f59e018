// SPDX-License-Identifier: Apache-2.0
/* helper_threads.c - a program with threads of its own: each has a handle, they share the file.
 *
 *   helper_threads URL WORKERS PRODUCERS JOBS
 *
 * Each producer enqueues JOBS jobs, in turns for both kinds of handler; a watcher reads meanwhile.
 * The workers are told to stop from the main thread when all is done. A log function that all
 * share counts lines. Exit 0 and "done=N" when every job was done.
 */
#include <pthread.h>
#include <stdatomic.h>

#include "helper.h"

static const char *url;
static int jobs_each;
static atomic_int done_n, lines;
static atomic_bool over;

static void log_line_of(void *ctx, int level, const char *line)
{
    (void)level;
    (void)line;
    atomic_fetch_add((atomic_int *)ctx, 1);
}

static const struct pawl_open_opts open_opts = {.log = log_line_of, .log_ctx = &lines};

static enum pawl_outcome same_prepare(struct pawl_run *run)
{
    int64_t *plan = (int64_t *)pawl_run_alloc(run, sizeof *plan);

    if (plan == NULL) return PAWL_RETRY;
    *plan = run->job_id;
    run->plan = plan;
    return PAWL_DONE;
}

static enum pawl_outcome same_apply(struct pawl_run *run)
{
    return *(const int64_t *)run->plan == run->job_id ? put_fx(run) : PAWL_FAIL;
}

PAWL_HANDLER(effect, NULL, put_fx, NULL);
PAWL_HANDLER(prepared, same_prepare, same_apply, NULL);

static void *work(void *out)
{
    const struct pawl_task tasks[] = {{"effect", &effect, NULL, NULL},
                                      {"prepared", &prepared, NULL, NULL}};
    const struct pawl_worker_opts o = {.tasks = tasks, .tasks_n = 2, .open = &open_opts,
                                       .accept_wal_risk = true};
    struct pawl_worker_stat did;
    struct pawl_worker *w = NULL;
    struct pawl_error e;

    if (pawl_worker_open(url, &o, &w, &e) != PAWL_OK) die("worker", &e);
    atomic_store((_Atomic(struct pawl_worker *) *)out, w);
    if (pawl_worker_run(w, false, &e) != PAWL_OK) die("run", &e);
    pawl_worker_stats(w, &did);
    atomic_fetch_add(&done_n, (int)did.done);
    /* nobody may stop a worker that is gone */
    for (const double began = uptime(); !atomic_load(&over);) nap(began);
    if (pawl_worker_close(&w, &e) != PAWL_OK) die("close", &e);
    return NULL;
}

static void *produce(void *number)
{
    struct pawl *p = NULL;
    struct pawl_enqueued got;
    struct pawl_error e;
    char key[40];

    if (pawl_open_with(url, &open_opts, &p, &e) != PAWL_OK) die("producer", &e);
    for (int i = 0; i < jobs_each; i++) {
        snprintf(key, sizeof key, "%d-%d", *(const int *)number, i);
        if (enqueue_one(p, i % 2 == 0 ? "effect" : "prepared", key, &got, &e) != PAWL_OK)
            die("enqueue", &e);
    }
    pawl_close(&p);
    return NULL;
}

static bool count(void *ctx, const struct pawl_stat *s)
{
    if (strcmp(s->name, "done") == 0) *(int64_t *)ctx = s->value;
    return true;
}

/* Read until all are done: a handle of the main thread's own. */
static void watch(int64_t want)
{
    const double began = uptime();
    struct pawl *p = NULL;
    struct pawl_error e;

    if (pawl_open_with(url, &open_opts, &p, &e) != PAWL_OK) die("watcher", &e);
    for (int64_t have = 0; have < want;) {
        nap(began);
        if (pawl_stats(p, count, &have, &e) != PAWL_OK) die("stats", &e);
    }
    pawl_close(&p);
}

int main(int argc, char **argv)
{
    enum { MOST = 16 };
    static _Atomic(struct pawl_worker *) workers[MOST];
    pthread_t thread[2 * MOST];
    int number[MOST], n = 0;

    if (argc != 5) die("usage", NULL);
    url = argv[1];
    const int workers_n = (int)strtol(argv[2], NULL, 10);
    const int producers_n = (int)strtol(argv[3], NULL, 10);
    jobs_each = (int)strtol(argv[4], NULL, 10);
    if (workers_n > MOST || producers_n > MOST) die("too many", NULL);
    for (int i = 0; i < workers_n; i++)
        if (pthread_create(&thread[n++], NULL, work, (void *)&workers[i]) != 0) die("thread", NULL);
    for (int i = 0; i < producers_n; i++) {
        number[i] = i;
        if (pthread_create(&thread[n++], NULL, produce, &number[i]) != 0) die("thread", NULL);
    }
    watch((int64_t)producers_n * jobs_each);
    for (int i = 0; i < workers_n; i++) { /* a slow one may only now have joined */
        const double began = uptime();
        while (atomic_load(&workers[i]) == NULL) nap(began);
        pawl_worker_stop(atomic_load(&workers[i]));
    }
    atomic_store(&over, true);
    for (int i = 0; i < n; i++) pthread_join(thread[i], NULL);
    printf("done=%d logged=%d\n", atomic_load(&done_n), atomic_load(&lines) > 0);
    return atomic_load(&done_n) == producers_n * jobs_each ? 0 : 1;
}
