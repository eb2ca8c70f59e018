// SPDX-License-Identifier: Apache-2.0
/* test_api_worker.c - workers in the caller's program: opened, stepped, run, stopped; one job at a
 * time under a clock that the test sets; several threads and processes on one store; fork(). */
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "unit/test_handler_c.h"

static enum pawl_outcome fine(struct pawl_run *run)
{
    (void)run;
    return PAWL_DONE;
}

static const struct pawl_handler fine_handler = {PAWL_ABI, (uint32_t)sizeof(struct pawl_api), NULL,
                                                 fine, NULL};

/* --- opening --- */

START_TEST(test_what_a_worker_refuses)
{
    struct pawl_handler h = fine_handler;
    struct pawl_task t[2] = {{.name = "a", .handler = &h}, {.name = "b", .handler = &h}};
    const char *queue = "Not a queue";
    struct pawl_worker_opts o = {.tasks = t, .tasks_n = 2};
    struct pawl_worker *w = NULL;
    const char *url;
    struct cfx f;

    cfx_begin(&f);
    url = pawl_url(f.p);
    FAILS(pawl_worker_open(url, &o, NULL, e), PAWL_BADARG, "NULL");
    FAILS(pawl_worker_open(url, NULL, &w, e), PAWL_BADARG, "task");
    FAILS(pawl_worker_open("", &o, &w, e), PAWL_BADARG, "url");
    FAILS(pawl_worker_open(NULL, &o, &w, e), PAWL_BADARG, "url");
    FAILS(pawl_worker_open("sqlite::memory:", &o, &w, e), PAWL_BADARG, "use pawl_open_temp()");
    FAILS(pawl_worker_open("sqlite:nowhere.db", &o, &w, e), PAWL_NOSTORE, "/nowhere.db");
    o.tasks_n = 0;
    FAILS(pawl_worker_open(url, &o, &w, e), PAWL_BADARG, "task");
    o.tasks_n = 2;
    t[1].name = "a";
    FAILS(pawl_worker_open(url, &o, &w, e), PAWL_BADARG, "twice");
    t[1].name = "B";
    FAILS(pawl_worker_open(url, &o, &w, e), PAWL_BADARG, "B");
    t[1].name = "b";
    t[1].handler = NULL;
    FAILS(pawl_worker_open(url, &o, &w, e), PAWL_CONFIG, "b");
    t[1].handler = &h;
    h.abi = 99;
    FAILS(pawl_worker_open(url, &o, &w, e), PAWL_CONFIG, "99");
    h.abi = PAWL_ABI;
    h.api_bytes = sizeof(struct pawl_api) + 8;
    FAILS(pawl_worker_open(url, &o, &w, e), PAWL_CONFIG, "later");
    h = fine_handler;
    h.apply = NULL;
    FAILS(pawl_worker_open(url, &o, &w, e), PAWL_CONFIG, "neither");
    h = fine_handler;
    t[0].policy = "max_retries = 3\n# fine\n\nbackof = 1s..2s";
    FAILS(pawl_worker_open(url, &o, &w, e), PAWL_CONFIG, "line 4: unknown setting backof (did you"
          " mean backoff?)");
    t[0].policy = "max_retries = many";
    FAILS(pawl_worker_open(url, &o, &w, e), PAWL_CONFIG, "line 1: max_retries = many");
    t[0].policy = "max_retries = 1\nmax_retries = 1";
    FAILS(pawl_worker_open(url, &o, &w, e), PAWL_CONFIG, "set twice");
    t[0].policy = "max_retries";
    FAILS(pawl_worker_open(url, &o, &w, e), PAWL_CONFIG, "NAME = VALUE");
    t[0].policy = "zero_rows = stale";
    FAILS(pawl_worker_open(url, &o, &w, e), PAWL_CONFIG, "zero_rows means nothing");
    t[0].policy = NULL;
    o.queues = &queue;
    o.queues_n = 1;
    FAILS(pawl_worker_open(url, &o, &w, e), PAWL_BADARG, "Not a queue");
    o.queues_n = 0;
    for (size_t i = 0; i < 3; i++) {
        o.lease_us = (const int64_t[]){-1, SEC - 1, 3600 * SEC + 1}[i];
        FAILS(pawl_worker_open(url, &o, &w, e), PAWL_BADARG, "1 s to 1 h");
    }
    ck_assert_ptr_null(w);
    FAILS(pawl_worker_step(NULL, NULL, e), PAWL_BADARG, "NULL");
    FAILS(pawl_worker_run(NULL, false, e), PAWL_BADARG, "NULL");
    FAILS(pawl_worker_one(NULL, NULL, e), PAWL_BADARG, "NULL");
    ck_assert_int_eq(pawl_worker_fd(NULL), -1);
    ck_assert_int_gt(pawl_worker_wait_us(NULL), 0);
    pawl_worker_stop(NULL);
    ck_assert_int_eq(pawl_worker_close(&w, NULL), PAWL_OK);
    ck_assert_int_eq(pawl_worker_close(NULL, NULL), PAWL_OK);
    cfx_end(&f);
}
END_TEST

START_TEST(test_policies_drift)
{
    char *differs = NULL;
    struct cfx f;

    cfx_begin(&f);
    OK(pawl_task_put(f.p, "t", "max_retries = 3\nhard_limit = 1m", false, &differs, e));
    ck_assert_ptr_null(differs);
    FAILS(pawl_task_put(f.p, "t", "max_retries = 4\nhard_limit = 1m", false, &differs, e),
          PAWL_DRIFT, "max_retries = 3 (given: 4)");
    ck_assert_str_eq(differs, "max_retries = 3 (given: 4)\n");
    pawl_free(differs);
    f.task.policy = "max_retries = 5";
    f.handler = fine_handler;
    FAILS(pawl_worker_open(pawl_url(f.p), &f.opts, &f.w, e), PAWL_DRIFT,
          "set replace_policies (of pawl_worker_open) or replace (of pawl_task_put)");
    f.task.policy = "max_retries = 3"; /* a worker's own 1 min for apply alone */
    cfx_work(&f, false);
    OK(pawl_worker_close(&f.w, e));
    f.task.policy = "max_retries = 0";
    f.opts.replace_policies = true;
    cfx_work(&f, false);
    OK(pawl_task_put(f.p, "t", "max_retries = 0\nhard_limit = 1m", true, &differs, e));
    ck_assert_ptr_null(differs);
    OK(pawl_task_put(f.p, "t", "hard_limit = 1m", true, &differs, e));
    ck_assert_ptr_nonnull(strstr(differs, "max_retries = 0 (given: 5)"));
    pawl_free(differs);
    FAILS(pawl_task_put(f.p, "T", NULL, false, NULL, e), PAWL_BADARG, "T");
    FAILS(pawl_task_put(f.p, NULL, NULL, false, NULL, e), PAWL_BADARG, "name");
    FAILS(pawl_task_put(f.p, "t", "retries = 1", false, NULL, e), PAWL_CONFIG, "line 1");
    FAILS(pawl_task_put(NULL, "t", NULL, false, NULL, e), PAWL_BADARG, "NULL");
    cfx_end(&f);
}
END_TEST

/* With an SQLite that can damage the file, whoever comes second is told what to do. */
START_TEST(test_a_second_worker)
{
    const int n = sqlite3_libversion_number();
    const bool fixed = n >= 3051003 || n == 3050007 || n == 3044006;
    struct pawl_worker *second = NULL;
    struct cfx f;

    cfx_begin(&f);
    cfx_work(&f, false);
    if (fixed) OK(pawl_worker_open(pawl_url(f.p), &f.opts, &second, e));
    else FAILS(pawl_worker_open(pawl_url(f.p), &f.opts, &second, e), PAWL_CONFIG,
               "in a program accept_wal_risk of struct pawl_worker_opts");
    OK(pawl_worker_close(&second, e));
    f.opts.accept_wal_risk = true;
    OK(pawl_worker_open(pawl_url(f.p), &f.opts, &second, e));
    OK(pawl_worker_close(&second, e));
    cfx_end(&f);
}
END_TEST

/* --- run, step, one --- */

START_TEST(test_until_empty_and_the_counts)
{
    struct pawl_worker_stat stat;
    struct cfx f;

    cfx_begin(&f);
    for (int i = 0; i < 100; i++) (void)cfx_put(&f, "{}");
    cfx_work(&f, _i != 0);
    OK(pawl_worker_run(f.w, true, e));
    ck_assert_int_eq(f.applies, 100);
    pawl_worker_stats(f.w, &stat);
    ck_assert_int_eq(stat.done, 100);
    ck_assert_int_eq(stat.dead + stat.retried + stat.stale + stat.dropped + stat.released, 0);
    OK(pawl_worker_run(f.w, true, e));
    ck_assert_int_eq(f.applies, 100);
    pawl_worker_stats(NULL, &stat);
    ck_assert_int_eq(stat.done, 0);
    cfx_end(&f);
}
END_TEST

START_TEST(test_a_delayed_job_runs_when_the_clock_says_so)
{
    struct pawl_request r = {.task = "t"};
    struct pawl_enqueued out;
    struct pawl_ran ran;
    bool more;
    struct cfx f;

    cfx_begin(&f);
    cfx_work(&f, _i != 0);
    r.run_at_us = f.now_us + 3600 * SEC;
    OK(pawl_enqueue(f.p, &r, 1, &out, NULL, e));
    FAILS(pawl_worker_one(f.w, &ran, e), PAWL_NOTFOUND, "due");
    OK(pawl_worker_step(f.w, &more, e));
    f.now_us += 3599 * SEC;
    OK(pawl_worker_step(f.w, &more, e));
    ck_assert_int_eq(f.applies, 0);
    f.now_us += 1 * SEC;
    OK(pawl_worker_step(f.w, &more, e)); /* nothing was committed meanwhile: the clock alone */
    ck_assert_int_eq(f.applies, 1);
    cfx_end(&f);
}
END_TEST

static enum pawl_outcome as_ordered(struct pawl_run *run)
{
    static const char *const order[] = {"retry", "done"};
    struct cfx *f = cfx_of(run);

    pawl_run_say(run, "%s", order[f->applies > 1]);
    return f->applies > 1 ? PAWL_DONE : PAWL_RETRY;
}

START_TEST(test_one_job_at_a_time)
{
    struct pawl_ran ran;
    struct cfx f;

    cfx_begin(&f);
    cfx_work(&f, _i != 0);
    ran = cfx_run(&f, "{}", as_ordered);
    cfx_is(&ran, PAWL_STATE_READY, "transient", "retry 1 of 5");
    FAILS(pawl_worker_one(f.w, &ran, e), PAWL_NOTFOUND, "due");
    ck_assert(ran.job_id == 0 && ran.outcome[0] == '\0');
    f.now_us += 3600 * SEC;
    ran = cfx_one(&f);
    cfx_is(&ran, PAWL_STATE_DONE, "done", "");
    ck_assert_str_eq(ran.text, "");
    /* The next one is not held meanwhile. */
    (void)cfx_put(&f, "{}");
    (void)cfx_put(&f, "{}");
    ran = cfx_one(&f);
    ck_assert_int_eq(ran.job_id, 2);
    ck_assert_int_eq(cfx_num(&f, "SELECT count(*) FROM pawl_jobs WHERE state = 'ready'"), 1);
    OK(pawl_worker_one(f.w, NULL, e));
    ck_assert_int_eq(cfx_num(&f, "SELECT count(*) FROM pawl_jobs WHERE state = 'done'"), 3);
    cfx_end(&f);
}
END_TEST

static bool readable(int fd, int ms)
{
    struct pollfd p = {.fd = fd, .events = POLLIN};

    return poll(&p, 1, ms) == 1;
}

static void step_until_idle(struct pawl_worker *w)
{
    bool more = true;

    while (more) OK(pawl_worker_step(w, &more, e));
}

START_TEST(test_own_loop)
{
    struct cfx f;
    bool more;

    cfx_begin(&f);
    cfx_work(&f, false);
    step_until_idle(f.w);
    while (readable(pawl_worker_fd(f.w), 0)) step_until_idle(f.w);
    ck_assert(pawl_worker_wait_us(f.w) >= 0 && pawl_worker_wait_us(f.w) <= SEC / 10);
    (void)cfx_put(&f, "{}");
    ck_assert(readable(pawl_worker_fd(f.w), 10000));
    OK(pawl_worker_step(f.w, &more, e));
    ck_assert(more);
    ck_assert_int_eq(pawl_worker_wait_us(f.w), 0);
    ck_assert_int_eq(f.applies, 1);
    step_until_idle(f.w);
    while (readable(pawl_worker_fd(f.w), 0)) step_until_idle(f.w);
    pawl_wake(f.p);
    ck_assert(readable(pawl_worker_fd(f.w), 10000));
    /* A commit that Pawl did not make is seen by the next step; on PostgreSQL by the next look. */
    step_until_idle(f.w);
    cfx_sql(&f, "INSERT INTO pawl_enqueue (task) VALUES ('t')");
    step_until_idle(f.w);
    while (cfx_kind == CFX_POSTGRES && f.applies < 2) { /* deadline: the test's own */
        (void)readable(pawl_worker_fd(f.w), (int)(pawl_worker_wait_us(f.w) / 1000) + 1);
        step_until_idle(f.w);
    }
    ck_assert_int_eq(f.applies, 2);
    cfx_end(&f);
}
END_TEST

START_TEST(test_only_its_queues)
{
    const char *queue = "mine";
    const struct pawl_request r[] = {{.task = "t", .queue = "mine"}, {.task = "t", .queue = "not"}};
    struct pawl_enqueued out[2];
    struct cfx f;

    cfx_begin(&f);
    f.opts.queues = &queue;
    f.opts.queues_n = 1;
    OK(pawl_enqueue(f.p, r, 2, out, NULL, e));
    cfx_work(&f, false);
    OK(pawl_worker_run(f.w, true, e));
    ck_assert_int_eq(f.applies, 1);
    ck_assert_int_eq(cfx_num(&f, "SELECT count(*) FROM pawl_jobs WHERE state = 'ready'"), 1);
    cfx_end(&f);
}
END_TEST

/* Two tasks, one of each mode: both get their turn while both have work. */
static int turns[2];
static enum pawl_outcome turn_of(struct pawl_run *run)
{
    turns[*(int *)run->ctx]++;
    return PAWL_DONE;
}

START_TEST(test_both_lanes_get_their_turn)
{
    static const struct pawl_handler both[] = {
        {PAWL_ABI, (uint32_t)sizeof(struct pawl_api), NULL, turn_of, NULL},
        {PAWL_ABI, (uint32_t)sizeof(struct pawl_api), fine, turn_of, NULL},
    };
    int which[2] = {0, 1};
    const struct pawl_task tasks[] = {{.name = "e", .handler = &both[0], .ctx = &which[0]},
                                      {.name = "p", .handler = &both[1], .ctx = &which[1]}};
    struct pawl_request r[200];
    struct pawl_enqueued out[200];
    struct cfx f;
    bool more;

    cfx_begin(&f);
    f.opts.tasks = tasks;
    f.opts.tasks_n = 2;
    f.opts.batch_max = 5;
    for (int i = 0; i < 200; i++) r[i] = (struct pawl_request){.task = i % 2 ? "e" : "p"};
    OK(pawl_enqueue(f.p, r, 200, out, NULL, e));
    OK(pawl_worker_open(pawl_url(f.p), &f.opts, &f.w, e));
    for (int i = 0; i < 10; i++) OK(pawl_worker_step(f.w, &more, e));
    /* Both, and neither to its end; how many a batch takes is the engine's, by what it costs. */
    ck_assert(turns[0] > 1 && turns[0] <= 40 && turns[1] > 1 && turns[1] <= 40);
    OK(pawl_worker_run(f.w, true, e));
    ck_assert(turns[0] == 100 && turns[1] == 100);
    cfx_end(&f);
}
END_TEST

/* --- stop --- */

static void *stops(void *w)
{
    pawl_worker_stop(w);
    return NULL;
}

static struct pawl_worker *to_stop;
static void on_alarm(int sig)
{
    (void)sig;
    pawl_worker_stop(to_stop);
}

START_TEST(test_stop)
{
    pthread_t t;
    struct cfx f;

    cfx_begin(&f);
    cfx_work(&f, false);
    pawl_worker_stop(f.w); /* before it runs: counts once */
    OK(pawl_worker_run(f.w, false, e));
    ck_assert_int_eq(pthread_create(&t, NULL, stops, f.w), 0);
    OK(pawl_worker_run(f.w, false, e));
    ck_assert_int_eq(pthread_join(t, NULL), 0);
    to_stop = f.w;
    ck_assert(signal(SIGALRM, on_alarm) != SIG_ERR);
    ualarm(20000, 0);
    OK(pawl_worker_run(f.w, false, e));
    /* And it goes on afterwards. */
    (void)cfx_put(&f, "{}");
    OK(pawl_worker_run(f.w, true, e));
    ck_assert_int_eq(f.applies, 1);
    cfx_end(&f);
}
END_TEST

/* --- the log --- */

struct lines {
    char text[8192];
    int by_level[4];
};

static void take_line(void *ctx, int level, const char *line)
{
    struct lines *l = ctx;
    size_t at = strlen(l->text);

    ck_assert(level >= 0 && level <= 3);
    ck_assert_ptr_null(strchr(line, '\n'));
    l->by_level[level]++;
    snprintf(l->text + at, sizeof l->text - at, "%s\n", line);
}

static enum pawl_outcome says(struct pawl_run *run)
{
    pawl_run_log(run, 1, "a \"word\"\nfrom inside");
    return PAWL_DONE;
}

START_TEST(test_log_lines)
{
    struct lines l = {0};
    struct pawl_ran ran;
    struct cfx f;

    cfx_begin(&f);
    f.open.log = take_line;
    f.open.log_ctx = &l;
    cfx_work(&f, _i != 0);
    ck_assert(strncmp(l.text, "event=worker.start ", 19) == 0);
    ran = cfx_run(&f, "{}", says);
    cfx_is(&ran, PAWL_STATE_DONE, "done", "");
    ck_assert_ptr_nonnull(strstr(l.text, "event=job.log job=1 task=t attempt=1 "));
    ck_assert_ptr_nonnull(strstr(l.text, " text=\"a \\\"word\\\"\\nfrom inside\"\n"));
    ck_assert_ptr_nonnull(strstr(l.text, "event=job.done job=1 task=t "));
    ck_assert(l.by_level[1] == 1 && l.by_level[3] >= 1);
    OK(pawl_worker_close(&f.w, e));
    ck_assert_ptr_nonnull(strstr(l.text, "event=worker.stop "));
    cfx_end(&f);
}
END_TEST

/* --- threads --- */

enum { EACH = 150, PRODUCERS = 2, WORKERS = 2 };

struct crowd {
    const char *url;
    int n;
};

static enum pawl_outcome insert_id(struct pawl_run *run)
{
    const struct pawl_value v = pawl_int("id", run->job_id);
    struct pawl_error e;

    if (pawl_exec(run, "INSERT INTO row VALUES (:id, 1)", &v, 1, NULL, &e) != PAWL_OK)
        return pawl_run_error(run, &e);
    return PAWL_DONE;
}

static const struct pawl_handler insert_handlers[] = {
    {PAWL_ABI, (uint32_t)sizeof(struct pawl_api), NULL, insert_id, NULL},
    {PAWL_ABI, (uint32_t)sizeof(struct pawl_api), fine, insert_id, NULL},
};
static const struct pawl_task insert_tasks[] = {{.name = "e", .handler = &insert_handlers[0]},
                                                {.name = "p", .handler = &insert_handlers[1]}};

static void *produces(void *ctx)
{
    const struct crowd *c = ctx;
    struct pawl *p = NULL;
    struct pawl_enqueued out;

    OK(pawl_open(c->url, &p, e));
    for (int i = 0; i < EACH; i++) {
        const struct pawl_request r = {.task = i % 2 ? "e" : "p"};
        OK(pawl_enqueue(p, &r, 1, &out, NULL, e));
    }
    pawl_close(&p);
    return NULL;
}

static void *works(void *ctx)
{
    const struct crowd *c = ctx;
    const struct pawl_worker_opts o = {.tasks = insert_tasks, .tasks_n = 2,
                                       .accept_wal_risk = true};
    struct pawl_worker *w = NULL;

    OK(pawl_worker_open(c->url, &o, &w, e));
    OK(pawl_worker_run(w, c->n != 0, e));
    OK(pawl_worker_close(&w, e));
    return NULL;
}

START_TEST(test_threads_on_one_store)
{
    struct crowd c = {.n = 1};
    pthread_t producer[PRODUCERS], worker[WORKERS];
    struct cfx f;

    cfx_begin(&f);
    c.url = pawl_url(f.p);
    for (int i = 0; i < PRODUCERS; i++)
        ck_assert_int_eq(pthread_create(&producer[i], NULL, produces, &c), 0);
    for (int i = 0; i < WORKERS; i++)
        ck_assert_int_eq(pthread_create(&worker[i], NULL, works, &c), 0);
    for (int i = 0; i < PRODUCERS; i++) ck_assert_int_eq(pthread_join(producer[i], NULL), 0);
    for (int i = 0; i < WORKERS; i++) ck_assert_int_eq(pthread_join(worker[i], NULL), 0);
    (void)works(&c); /* what came after they had found it empty */
    ck_assert_int_eq(cfx_num(&f, "SELECT count(*) FROM row"), PRODUCERS * EACH);
    ck_assert_int_eq(cfx_num(&f, "SELECT count(*) FROM pawl_jobs WHERE state = 'done'"),
                     PRODUCERS * EACH);
    ck_assert_int_eq(cfx_num(&f, "SELECT sum(failures + lost) FROM pawl_jobs"), 0);
    cfx_end(&f);
}
END_TEST

/* --- processes --- */

/* A process that is forked before the store is opened, and begins when it is told the store's url,
 * and where workers of one host meet. */
struct early { pid_t pid; int tell; };

static struct early child(void *(*fn)(void *), struct crowd *c)
{
    char url[1024] = "";
    int fd[2];
    pid_t pid;

    ck_assert_int_eq(pipe(fd), 0);
    pid = fork();
    ck_assert_int_ge(pid, 0);
    if (pid != 0) {
        (void)close(fd[0]);
        return (struct early){pid, fd[1]};
    }
    (void)close(fd[1]);
    ck_assert_int_gt(read(fd[0], url, sizeof url - 1), 0);
    char *dir = strchr(url, '\n');
    ck_assert_ptr_nonnull(dir);
    *dir++ = '\0';
    ck_assert_int_eq(setenv("PAWL_RUNTIME_DIR", dir, 1), 0);
    c->url = url;
    (void)fn(c);
    _exit(0);
}

static pid_t go(const struct early *c, const char *url)
{
    const char *dir = getenv("PAWL_RUNTIME_DIR");

    ck_assert_int_gt(dprintf(c->tell, "%s\n%s", url, dir != NULL ? dir : ""), 0);
    ck_assert_int_eq(close(c->tell), 0);
    return c->pid;
}

static int ended(pid_t pid)
{
    int status = -1;

    ck_assert_int_eq(waitpid(pid, &status, 0), pid);
    return status;
}

START_TEST(test_processes_on_one_store)
{
    struct crowd c = {.n = 1};
    struct early early[PRODUCERS + WORKERS];
    pid_t pids[PRODUCERS + WORKERS];
    struct cfx f;

    for (int i = 0; i < PRODUCERS + WORKERS; i++)
        early[i] = child(i < PRODUCERS ? produces : works, &c);
    cfx_begin(&f);
    c.url = pawl_url(f.p);
    for (int i = 0; i < PRODUCERS + WORKERS; i++) pids[i] = go(&early[i], c.url);
    for (int i = 0; i < PRODUCERS + WORKERS; i++) ck_assert_int_eq(ended(pids[i]), 0);
    (void)works(&c);
    ck_assert_int_eq(cfx_num(&f, "SELECT count(*) FROM row"), PRODUCERS * EACH);
    ck_assert_int_eq(cfx_num(&f, "SELECT count(*) FROM pawl_jobs WHERE state = 'done'"),
                     PRODUCERS * EACH);
    cfx_end(&f);
}
END_TEST

/* A worker that is killed while it prepares: the job in hand is charged, the others are not. */
static _Atomic int *shared;

static enum pawl_outcome hangs(struct pawl_run *run)
{
    (void)run;
    if (atomic_fetch_add(shared, 1) > 0) return PAWL_DONE; /* only the very first run */
    for (;;) pause();
}

static const struct pawl_handler hanging = {PAWL_ABI, (uint32_t)sizeof(struct pawl_api), hangs,
                                            fine, NULL};

static void *works_and_hangs(void *ctx)
{
    const struct crowd *c = ctx;
    const struct pawl_task t = {.name = "t", .handler = &hanging};
    const struct pawl_worker_opts o = {.tasks = &t, .tasks_n = 1, .accept_wal_risk = true};
    struct pawl_worker *w = NULL;

    OK(pawl_worker_open(c->url, &o, &w, e));
    OK(pawl_worker_run(w, false, e));
    return NULL;
}

START_TEST(test_a_killed_worker_is_recovered)
{
    struct pawl_worker_stat stat;
    struct crowd c = {.n = 0};
    struct timespec tick = {.tv_nsec = 1000000};
    struct early early;
    struct cfx f;
    pid_t pid;

    shared = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    ck_assert(shared != MAP_FAILED);
    early = child(works_and_hangs, &c);
    cfx_begin(&f);
    f.now_us = SEC; /* due long ago by the machine's clock, which both workers go by */
    f.open.now_us = NULL;
    c.url = pawl_url(f.p);
    f.task.handler = &hanging;
    for (int i = 0; i < 4; i++) (void)cfx_put(&f, "{}");
    pid = go(&early, pawl_url(f.p));
    while (atomic_load(shared) == 0) nanosleep(&tick, NULL); /* deadline: the test's own */
    ck_assert_int_eq(kill(pid, SIGKILL), 0);
    ck_assert(WIFSIGNALED(ended(pid)));
    f.opts.accept_wal_risk = true;
    OK(pawl_worker_open(pawl_url(f.p), &f.opts, &f.w, e));
    OK(pawl_worker_run(f.w, true, e));
    pawl_worker_stats(f.w, &stat);
    ck_assert_int_ge(stat.recovered, 1);
    ck_assert_int_eq(stat.done, 4);
    ck_assert_int_eq(cfx_num(&f, "SELECT sum(lost) FROM pawl_jobs"), 1);
    ck_assert_int_eq(cfx_num(&f, "SELECT sum(failures) FROM pawl_jobs"), 0);
    cfx_end(&f);
}
END_TEST

/* --- fork --- */

static void in_the_child(struct cfx *f)
{
    const struct pawl_request r = {.task = "t"};
    struct pawl_enqueued out;
    struct pawl *p = NULL;
    bool more;

    FAILS(pawl_enqueue(f->p, &r, 1, &out, NULL, e), PAWL_BADARG, "fork before you open");
    FAILS(pawl_stats(f->p, NULL, NULL, e), PAWL_BADARG, "fork");
    FAILS(pawl_worker_step(f->w, &more, e), PAWL_BADARG, "fork");
    FAILS(pawl_worker_run(f->w, false, e), PAWL_BADARG, "fork");
    FAILS(pawl_worker_one(f->w, NULL, e), PAWL_BADARG, "fork");
    ck_assert_int_eq(pawl_worker_fd(f->w), -1);
    ck_assert_int_gt(pawl_worker_wait_us(f->w), 0);
    pawl_worker_stop(f->w);
    pawl_wake(f->p);
    if (cfx_kind == CFX_SQLITE) /* which believes in this process that it has its parent's locks */
        FAILS(pawl_open(pawl_url(f->p), &p, e), PAWL_BADARG, "when it forked this one");
    else
        OK(pawl_open(pawl_url(f->p), &p, e));
    pawl_close(&p);
    ck_assert_ptr_null(p);
    OK(pawl_worker_close(&f->w, e));
    pawl_close(&f->p);
    ck_assert(f->w == NULL && f->p == NULL);
}

START_TEST(test_nothing_is_used_after_fork)
{
    struct cfx f;
    pid_t pid;

    cfx_begin(&f);
    cfx_work(&f, _i != 0);
    (void)cfx_put(&f, "{}");
    pid = fork();
    ck_assert_int_ge(pid, 0);
    if (pid == 0) {
        in_the_child(&f);
        _exit(0);
    }
    ck_assert_int_eq(ended(pid), 0);
    OK(pawl_worker_run(f.w, true, e)); /* nobody took our worker for dead, nor stopped it */
    ck_assert_int_eq(f.applies, 1);
    ck_assert_int_eq(cfx_num(&f, "SELECT sum(lost) FROM pawl_jobs"), 0);
    cfx_end(&f);
}
END_TEST

static void add(TCase *tc)
{
    tcase_add_test(tc, test_what_a_worker_refuses);
    tcase_add_test(tc, test_policies_drift);
    if (cfx_kind == CFX_SQLITE) tcase_add_test(tc, test_a_second_worker);
    tcase_add_loop_test(tc, test_until_empty_and_the_counts, 0, 2);
    tcase_add_loop_test(tc, test_a_delayed_job_runs_when_the_clock_says_so, 0, 2);
    tcase_add_loop_test(tc, test_one_job_at_a_time, 0, 2);
    tcase_add_test(tc, test_own_loop);
    tcase_add_test(tc, test_only_its_queues);
    tcase_add_test(tc, test_both_lanes_get_their_turn);
    tcase_add_test(tc, test_stop);
    tcase_add_loop_test(tc, test_log_lines, 0, 2);
    tcase_add_test(tc, test_threads_on_one_store);
    tcase_add_test(tc, test_processes_on_one_store);
    tcase_add_test(tc, test_a_killed_worker_is_recovered);
    tcase_add_loop_test(tc, test_nothing_is_used_after_fork, 0, 2);
}

int main(void)
{
    return cfx_main("api_worker", add, 60);
}
