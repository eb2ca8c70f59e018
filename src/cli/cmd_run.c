// SPDX-License-Identifier: Apache-2.0
/* cmd_run.c - pawl run: one task's handler in the foreground, with no queue and no job.
 *
 * exec: one child, as a worker would start it. sql: one transaction, rolled back with --dry-run or
 * when the statements fail. c: prepare, then apply in such a transaction, in a child (cmd_run_c.c).
 * The version guard and the retries of a policy play no part.
 */
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/json.h"
#include "base/os.h"
#include "base/text.h"
#include "cli/cli.h"
#include "cli/cmd_run_c.h"
#include "core/limits.h"
#include "core/rules.h"
#include "handler/handler.h"
#include "store/store.h"

/* Ctrl-C reaches us, not the child: it leads its own process group. */
static volatile int interrupts;

static void on_interrupt(int sig)
{
    (void)sig;
    interrupts++;
}

static int find_task(struct cli *c, const char *name, struct conf_task **out)
{
    const char **names = arena_alloc(&c->arena, (c->conf->tasks_n + 1) * sizeof *names);
    int near;

    if (names == NULL) return cli_error(c, EXIT_TEMPFAIL, "out of memory");
    for (size_t i = 0; i < c->conf->tasks_n; i++) {
        names[i] = c->conf->tasks[i].name;
        if (strcmp(names[i], name) == 0) {
            *out = &c->conf->tasks[i];
            return 0;
        }
    }
    near = text_nearest(name, names, c->conf->tasks_n);
    if (near < 0) return cli_error(c, EXIT_NO, "no task '%s' in %s", name, c->conf->path);
    return cli_error(c, EXIT_NO, "no task '%s' in %s; the nearest is '%s'", name, c->conf->path,
                     names[near]);
}

/* The args operand: JSON text, "-" for standard input, "{}" when absent. */
static int read_args(struct cli *c, struct job *job)
{
    struct json_err why = {0};
    struct pawl_error e = {.rc = PAWL_OK};
    struct buf in = {0};
    int x = 0;

    job->args = c->argc > 1 ? c->argv[1] : "{}";
    job->args_bytes = strlen(job->args);
    if (strcmp(job->args, "-") == 0) {
        if (os_read_file("-", LIMIT_ARGS_BYTES, &in, &e) != PAWL_OK) x = cli_fail(c, &e);
        job->args = arena_dup(&c->arena, buf_str(&in), in.n);
        job->args_bytes = in.n;
        buf_free(&in);
        if (x == 0 && job->args == NULL) x = cli_error(c, EXIT_TEMPFAIL, "out of memory");
    }
    if (x == 0 && job->args_bytes > LIMIT_ARGS_BYTES) {
        x = cli_error(c, EXIT_DATA, "args: %zu bytes, the limit is %d", job->args_bytes,
                      LIMIT_ARGS_BYTES);
    } else if (x == 0 && !json_check(job->args, job->args_bytes, LIMIT_JSON_DEPTH, NULL, &why)) {
        x = cli_error(c, EXIT_DATA, "args: not JSON: %s at byte %zu", why.why, why.at);
    }
    return x;
}

/* --- sql: in a transaction --- */

int run_open_store(struct cli *c, struct store **st)
{
    struct pawl_error e = {.rc = PAWL_OK};
    const char *url = NULL;
    int x = cli_url(c, &url);

    if (x != 0) return x;
    struct store_opts so = {.url = url, .on_connect = c->conf->on_connect,
                            .on_connect_n = c->conf->on_connect_n, .lease_us = c->conf->lease_us,
                            .accept_wal_risk = c->conf->accept_wal_risk};
    return store_open(&so, st, &e) == PAWL_OK ? 0 : cli_fail_open(c, url, &e);
}

static int run_sql(struct cli *c, const struct conf_task *t, const struct job *job, bool dry,
                   struct finding *f)
{
    struct pawl_error e = {.rc = PAWL_OK};
    struct sql_task *task = NULL;
    struct store *st = NULL;
    bool pinned = true, fine;
    int x = run_open_store(c, &st);

    if (x != 0) return x;
    if (sql_task_open(st, c->conf, t, &task, &e) != PAWL_OK
        || store_scratch_begin(st, &e) != PAWL_OK) {
        x = cli_fail(c, &e);
    } else {
        sql_task_run(task, st, &t->policy, job, NULL, &c->arena, f, &pinned);
        fine = f->outcome == OUT_DONE; /* a stale run has no effect, as in a worker */
        /* After a failure its own words count, not that the transaction had gone with it. */
        if (store_scratch_end(st, fine && !dry, &e) != PAWL_OK && fine) x = cli_fail(c, &e);
    }
    sql_task_close(&task);
    store_close(&st);
    return x;
}

/* --- exec --- */

/* What the program asked for, in a transaction: its result counts only with it. */
static int run_writes(struct cli *c, const struct conf_task *t, const struct job *job, bool dry,
                      struct store *st, struct writes *writes, struct finding *f)
{
    struct pawl_error e = {.rc = PAWL_OK};
    struct finding w = {.outcome = OUT_DONE};
    bool pinned = true, fine;

    if (store_scratch_begin(st, &e) != PAWL_OK) return cli_fail(c, &e);
    writes_run(writes, st, &t->policy, job, f, NULL, &c->arena, &w, &pinned);
    fine = w.outcome == OUT_DONE;
    if (store_scratch_end(st, fine && !dry, &e) != PAWL_OK && fine) return cli_fail(c, &e);
    if (fine) return 0;
    f->outcome = w.outcome;
    f->error = w.error;
    f->error_bytes = w.error_bytes;
    f->result = NULL;
    f->result_bytes = 0;
    return 0;
}

static int run_program(struct cli *c, const struct conf_task *t, const struct job *job,
                       struct finding *f)
{
    const struct env *env = env_real();
    struct exec_child *child = NULL;
    struct pawl_error e = {.rc = PAWL_OK};
    const char *url = NULL;
    struct sigaction a = {.sa_handler = on_interrupt};

    if (c->db != NULL || c->conf->db != NULL) (void)cli_url(c, &url);
    struct exec_start s = {.conf = c->conf, .task = t, .policy = &t->policy, .job = job,
                           .worker = "run", .db = url, .mono_now_us = env->mono_us(env->ctx),
                           .wall_now_us = env->wall_us(env->ctx)};
    (void)sigemptyset(&a.sa_mask);
    (void)sigaction(SIGINT, &a, NULL); /* no SA_RESTART: the wait ends at once */
    (void)sigaction(SIGTERM, &a, NULL);
    if (exec_child_start(&s, &child, &e) == PAWL_OK) {
        exec_child_serve(child, env, &interrupts);
        exec_child_finish(&child, &t->policy, &c->arena, f);
    } else if (exec_start_again(&e)) {
        return cli_fail(c, &e);
    } else {
        exec_not_runnable(&e, &c->arena, f);
    }
    return 0;
}

/* What it may ask for has to compile before it is started. */
static int run_exec(struct cli *c, const struct conf_task *t, const struct job *job, bool dry,
                    struct finding *f)
{
    struct pawl_error e = {.rc = PAWL_OK};
    struct writes *writes = NULL;
    struct store *st = NULL;
    int x;

    if (!t->enqueues) return run_program(c, t, job, f);
    if ((x = run_open_store(c, &st)) != 0) return x;
    if (writes_open(st, c->conf, t, &writes, &e) != PAWL_OK) x = cli_fail(c, &e);
    if (x == 0) x = run_program(c, t, job, f);
    if (x == 0 && f->outcome == OUT_DONE) x = run_writes(c, t, job, dry, st, writes, f);
    writes_close(&writes);
    store_close(&st);
    return x;
}

/* --- the answer --- */

static void show_tail(struct cli *c, const char *title, const char *text)
{
    if (text == NULL) return;
    buf_printf(&c->out, "%s\n", title);
    text_put_safe(&c->out, text, strlen(text), true);
    if (text[strlen(text) - 1] != '\n') buf_putc(&c->out, '\n');
}

static void show(struct cli *c, const struct conf_task *t, const struct finding *f, bool dry,
                 int64_t us)
{
    struct buf *b = &c->out;
    char took[32];

    if (c->json) {
        buf_putc(b, '{');
        cli_json_str(b, "task", t->name);
        cli_json_str(b, "outcome", outcome_name(f->outcome));
        cli_json_str(b, "error", f->error);
        cli_json_text(b, "result", f->result, f->result_bytes);
        if (f->exit_code >= 0) cli_json_int(b, "exit_code", f->exit_code);
        if (f->signal >= 0) cli_json_int(b, "signal", f->signal);
        cli_json_bool(b, "dry_run", dry);
        cli_json_int(b, "took_us", us);
        cli_json_str(b, "stdout", f->out_tail);
        cli_json_str(b, "stderr", f->err_tail);
        buf_puts(b, "}\n");
        return;
    }
    show_tail(c, "--- stdout (end)", f->out_tail);
    show_tail(c, "--- stderr (end)", f->err_tail);
    if (f->out_tail != NULL || f->err_tail != NULL) buf_puts(b, "---\n");
    buf_printf(b, "%s: %s in %s%s\n", t->name, outcome_name(f->outcome),
               text_duration(us / 1000 * 1000, took, sizeof took), dry ? " (rolled back)" : "");
    if (f->error != NULL) {
        buf_puts(b, "error: ");
        text_put_safe(b, f->error, f->error_bytes, true);
        buf_putc(b, '\n');
    }
    if (f->result != NULL) {
        buf_puts(b, "result: ");
        text_put_safe(b, f->result, f->result_bytes, true);
        buf_putc(b, '\n');
    }
}

static int exit_of(enum outcome o)
{
    switch (o) {
    case OUT_DONE: case OUT_STALE: return EXIT_YES;
    case OUT_PERMANENT: case OUT_DISCARD: case OUT_MISUSE: case OUT_UNDECODABLE: return EXIT_DATA;
    default: return EXIT_TEMPFAIL;
    }
}

static int run_run(struct cli *c)
{
    const struct env *env = env_real();
    struct conf_task *t = NULL;
    struct job job = {.token = 1, .max_retries = -1, .key = cli_opt(c, "key"),
                      .source = cli_opt(c, "source")};
    struct finding f = {.exit_code = -1, .signal = -1};
    bool dry = cli_has(c, "dry-run");
    int64_t from_us;
    int x;

    if ((x = cli_conf(c, true)) != 0 || (x = find_task(c, c->argv[0], &t)) != 0) return x;
    if ((x = read_args(c, &job)) != 0) return x;
    if (dry && t->kind == HANDLER_EXEC && !t->enqueues) {
        return cli_usage(c, "--dry-run: task '%s' is a program, its effects cannot be rolled back",
                         t->name);
    }
    job.queue = t->policy.queue;
    from_us = env->mono_us(env->ctx);
    switch (t->kind) {
    case HANDLER_SQL: x = run_sql(c, t, &job, dry, &f); break;
    case HANDLER_C: x = run_c(c, t, &job, dry, &f); break;
    default: x = run_exec(c, t, &job, dry, &f);
    }
    if (x != 0) return x;
    show(c, t, &f, dry, env->mono_us(env->ctx) - from_us);
    return exit_of(f.outcome);
}

static const struct cli_opt opts[] = {
    {"dry-run", 0, NULL, "roll back what the task writes: not what a program does itself", 0},
    {"key", 'k', "KEY", "the job key that the handler sees", 0},
    {"source", 0, "SOURCE", "the source that the handler sees", 0},
    {NULL, 0, NULL, NULL, 0},
};
static const char *const examples[] = {
    "pawl run resize_image '{\"path\":\"a.png\"}'",
    "pawl run apply_product_event --dry-run - < event.json",
    NULL,
};
const struct cmd_entry cmd_run = {
    .name = "run",
    .synopsis = "TASK [ARGS|-] [OPTION...]",
    .summary = "run one handler in the foreground, with no queue",
    .opts = opts,
    .examples = examples,
    .run = run_run,
    .operands_min = 1,
    .operands_max = 2,
    .notes = "Exit code: 0 done or stale, 65 permanent, 75 transient, timeout, snooze or lost.",
};
