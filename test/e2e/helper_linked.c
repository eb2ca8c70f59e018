// SPDX-License-Identifier: Apache-2.0
/* helper_linked.c - a program that links libpawl and works: the subject of the tests of linkkit.py.
 *
 *   helper_linked URL [empty] [log] [batch=N] [lease_ms=N]
 *
 * empty: end when nothing is left. log: lines of the log on standard error. Says "ready" when it
 * has joined, and its counts at the end.
 * Tasks: effect and prepared leave a row in fx. act (prepare) and eact (apply) first do what the
 * words in {"do":"..."} say; 1/word: in attempt 1 only. order wants its row in the table orders.
 * reads reads for two seconds before it writes.
 */
#include "helper.h"

static struct pawl_worker *worker;
static bool on_server;                              /* the store is PostgreSQL */

static void on_signal(int sig)
{
    (void)sig;
    pawl_worker_stop(worker);
}

static void say_line(void *ctx, int level, const char *line)
{
    (void)ctx;
    fprintf(stderr, "%d %s\n", level, line);
}

static enum pawl_outcome do_word(struct pawl_run *run, const char *word, const char *arg)
{
    if (strcmp(word, "segv") == 0) (void)raise(SIGSEGV);
    else if (strcmp(word, "kill") == 0) (void)raise(SIGKILL);
    else if (strcmp(word, "exit") == 0) exit(0);
    else if (strcmp(word, "retry") == 0) return PAWL_RETRY;
    else if (strcmp(word, "fail") == 0) return PAWL_FAIL;
    else if (strcmp(word, "touch") == 0) {
        const int fd = open(arg, O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
        if (fd < 0) die(arg, NULL);
        close(fd);
    } else if (strcmp(word, "wait") == 0) {
        const double began = uptime();
        while (access(arg, F_OK) != 0 && !pawl_run_cancelled(run)) nap(began);
    } else {
        die(word, NULL);
    }
    return PAWL_DONE;
}

static enum pawl_outcome do_words(struct pawl_run *run)
{
    struct pawl_error e;
    const char *text = NULL;
    char copy[256], *rest = copy, *word;
    const enum pawl_rc rc = pawl_arg_text(run, "do", &text, NULL, &e);

    note_attempt(run);
    if (rc == PAWL_NOTFOUND) return PAWL_DONE;
    if (rc != PAWL_OK) return pawl_run_error(run, &e);
    snprintf(copy, sizeof copy, "%s", text);
    while ((word = strsep(&rest, " ")) != NULL) {
        char *arg = strchr(word, ':');
        enum pawl_outcome what;
        if (arg != NULL) *arg++ = '\0';
        if (word[0] >= '0' && word[0] <= '9' && word[1] == '/') {
            if (run->attempt != word[0] - '0') continue;
            word += 2;
        }
        if (strcmp(word, "ok") == 0) continue;
        if ((what = do_word(run, word, arg)) != PAWL_DONE) return what;
    }
    return PAWL_DONE;
}

static enum pawl_outcome act_apply(struct pawl_run *run)
{
    const enum pawl_outcome what = do_words(run);
    return what == PAWL_DONE ? put_fx(run) : what;
}

/* --- prepared: the plan must be the one that prepare left, and be dropped --- */
static enum pawl_outcome plan_prepare(struct pawl_run *run)
{
    int64_t *plan = (int64_t *)malloc(sizeof *plan);

    if (plan == NULL) return PAWL_RETRY;
    *plan = run->job_id;
    run->plan = plan;
    return PAWL_DONE;
}

static enum pawl_outcome plan_apply(struct pawl_run *run)
{
    const int64_t *plan = (const int64_t *)run->plan;

    if (plan == NULL || *plan != run->job_id) {
        pawl_run_say(run, "this is not the plan of job %" PRId64, run->job_id);
        return PAWL_FAIL;
    }
    return put_fx(run);
}

static void plan_drop(struct pawl_run *run)
{
    free(run->plan);
    run->plan = NULL;
}

static enum pawl_outcome order_apply(struct pawl_run *run)
{
    struct pawl_error e;
    struct pawl_value v, row;
    int64_t order = 0;
    bool found = false;

    note_attempt(run);
    if (pawl_arg_int(run, "order", &order, &e) != PAWL_OK) return pawl_run_error(run, &e);
    v = pawl_int("order", order);
    if (pawl_query_row(run, "SELECT id FROM orders WHERE id = :order", &v, 1, &row, 1, &found,
                       &e) != PAWL_OK)
        return pawl_run_error(run, &e);
    if (!found) {
        pawl_run_say(run, "there is no order %" PRId64, order);
        return PAWL_FAIL;
    }
    return put_fx(run);
}

static bool until_two_seconds(void *ctx, const struct pawl_value *col, size_t col_n)
{
    return col_n == 1 && col[0].i > 0 && uptime() - *(const double *)ctx < 2;
}

/* Reads for two seconds, then writes. */
static enum pawl_outcome reads_apply(struct pawl_run *run)
{
    const char *sql = on_server ? "SELECT 1 FROM pg_sleep(2)"
                                : "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c)"
                                  " SELECT x FROM c";
    double began = uptime();
    struct pawl_error e;

    if (pawl_query(run, sql, NULL, 0, until_two_seconds, &began, &e) != PAWL_OK)
        return pawl_run_error(run, &e);
    return uptime() - began >= 2 ? put_fx(run) : PAWL_FAIL;
}

PAWL_HANDLER(effect, NULL, put_fx, NULL);
PAWL_HANDLER(prepared, plan_prepare, plan_apply, plan_drop);
PAWL_HANDLER(act, do_words, put_fx, NULL);
PAWL_HANDLER(eact, NULL, act_apply, NULL);
PAWL_HANDLER(order, NULL, order_apply, NULL);
PAWL_HANDLER(reads, NULL, reads_apply, NULL);

int main(int argc, char **argv)
{
    static const char policy[] = "backoff = 1ms..10ms";
    static const char tough[] = "lost_cap = 100"; /* killed at random: three may hit the same job */
    const struct pawl_task tasks[] = {
        {"effect", &effect, NULL, tough},  {"prepared", &prepared, NULL, tough},
        {"act", &act, NULL, policy},       {"eact", &eact, NULL, policy},
        {"order", &order, NULL, policy},   {"reads", &reads, NULL, policy}};
    struct pawl_worker_opts o = {.tasks = tasks, .tasks_n = sizeof tasks / sizeof *tasks,
                                 .accept_wal_risk = true};
    const struct pawl_open_opts talkative = {.log = say_line};
    struct pawl_worker_stat did;
    struct pawl_error e;
    bool empty = false;

    for (int i = 2; i < argc; i++) {
        if (strcmp(argv[i], "empty") == 0) empty = true;
        else if (strcmp(argv[i], "log") == 0) o.open = &talkative;
        else if (sscanf(argv[i], "batch=%zu", &o.batch_max) == 1) continue;
        else if (sscanf(argv[i], "lease_ms=%" SCNd64, &o.lease_us) == 1) o.lease_us *= 1000;
        else die(argv[i], NULL);
    }
    on_server = argc > 1 && strncmp(argv[1], "postgres", 8) == 0;
    if (argc < 2 || pawl_worker_open(argv[1], &o, &worker, &e) != PAWL_OK) die("open", &e);
    (void)signal(SIGTERM, on_signal);
    if (puts("ready") < 0 || fflush(stdout) != 0) die("stdout", NULL);
    if (pawl_worker_run(worker, empty, &e) != PAWL_OK) die("run", &e);
    (void)signal(SIGTERM, SIG_IGN);
    pawl_worker_stats(worker, &did);
    printf("done=%" PRId64 " retried=%" PRId64 " dead=%" PRId64 " recovered=%" PRId64 "\n",
           did.done, did.retried, did.dead, did.recovered);
    if (pawl_worker_close(&worker, &e) != PAWL_OK) die("close", &e);
    return 0;
}
