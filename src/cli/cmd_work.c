// SPDX-License-Identifier: Apache-2.0
/* cmd_work.c - pawl work: run the tasks of a configuration until drained; and the runners, the
 * processes that `pawl work` starts of itself. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/json.h"
#include "base/log.h"
#include "cli/cli.h"
#include "core/limits.h"
#include "core/rules.h"
#include "store/store.h"
#include "worker/probe.h"
#include "worker/worker.h"

/* "A,B", given once or more often, as a list in the arena. 0, or the exit code, printed. */
static int queues_option(struct cli *c, const char *name, const char *const **out, size_t *n)
{
    const char *value, *why = NULL;
    size_t room = 1;
    const char **list;

    for (size_t i = 0; (value = cli_opt_i(c, name, i)) != NULL; i++) room += strlen(value) + 1;
    list = arena_alloc(&c->arena, room * sizeof *list);
    if (list == NULL) return cli_error(c, EXIT_TEMPFAIL, "out of memory");
    *n = 0;
    for (size_t i = 0; (value = cli_opt_i(c, name, i)) != NULL; i++) {
        for (const char *at = value;; at++) {
            size_t len = strcspn(at, ",");
            char *one = arena_dup(&c->arena, at, len);
            if (one == NULL) return cli_error(c, EXIT_TEMPFAIL, "out of memory");
            if (!name_ok(one, &why)) return cli_usage(c, "--%s '%s': %s", name, one, why);
            list[(*n)++] = one;
            at += len;
            if (*at == '\0') break;
        }
    }
    *out = list;
    return 0;
}

static int log_options(struct cli *c, struct log_conf *log)
{
    const char *level = cli_opt(c, "log-level");

    *log = (struct log_conf){.level = LOG_INFO, .fd = STDERR_FILENO};
    log->json = c->json || cli_has(c, "log-json");
    if (level != NULL && !log_level_parse(level, &log->level)) {
        return cli_usage(c, "--log-level '%s': must be error, warn, info or debug", level);
    }
    log_setup(log);
    return 0;
}

static bool in_conf(const struct conf *conf, const char *queue)
{
    for (size_t i = 0; i < conf->tasks_n; i++)
        if (strcmp(conf->tasks[i].policy.queue, queue) == 0) return true;
    return false;
}

/* A queue that nobody has named yet may come into being later; or it is a slip. A store that cannot
 * be asked is the worker's to report. */
static void warn_of_queues(const struct worker_opts *o)
{
    struct store_opts so = {.url = o->url, .accept_wal_risk = o->accept_wal_risk};
    char near[LIMIT_NAME_BYTES + 8], why[LIMIT_NAME_BYTES + 80];
    struct pawl_error e = {.rc = PAWL_OK};
    struct store *st = NULL;
    bool known = false;

    if (o->queues_n == 0 || store_open(&so, &st, &e) != PAWL_OK) return;
    for (size_t i = 0; i < o->queues_n; i++) {
        if (in_conf(o->conf, o->queues[i])
            || store_queue_known(st, o->queues[i], &known, near, sizeof near, &e) != PAWL_OK
            || known) {
            continue;
        }
        snprintf(why, sizeof why, "no queue of this name in the store yet%s%s",
                 near[0] != '\0' ? "; the nearest is " : "", near);
        log_line(LOG_WARN, "worker.no_queue", "s:queue", o->queues[i], "s:why", why, NULL);
    }
    store_close(&st);
}

/* The differences of policies, safe for a terminal. */
static void show_drift(const struct buf *drift)
{
    struct buf safe = {0};

    if (drift->n == 0) return;
    text_put_safe(&safe, drift->data, drift->n, true);
    (void)fwrite(safe.data, 1, safe.n, stderr);
    buf_free(&safe);
}

static void warn_of_program(void *ctx, const char *why)
{
    (void)ctx;
    log_line(LOG_WARN, "task.no_program", "s:why", why, NULL);
}

static int work_run(struct cli *c)
{
    struct worker_opts o = {.grace_us = -1};
    struct pawl_error e = {.rc = PAWL_OK};
    struct buf drift = {0};
    int64_t concurrency = 0;
    enum pawl_rc rc;
    int x;

    if ((x = log_options(c, &o.log)) != 0) return x;
    if ((x = cli_int(c, "concurrency", 1, LIMIT_CONCURRENCY, &concurrency)) != 0) return x;
    if ((x = cli_duration(c, "grace", &o.grace_us)) != 0) return x;
    if ((x = queues_option(c, "queue", &o.queues, &o.queues_n)) != 0) return x;
    if ((x = cli_conf(c, true)) != 0) return x;
    if ((x = cli_url(c, &o.url)) != 0) return x;
    o.conf = c->conf;
    o.concurrency = (int)concurrency;
    o.until_empty = cli_has(c, "until-empty");
    o.apply = cli_has(c, "apply");
    o.accept_wal_risk = cli_has(c, "accept-wal-risk") || c->conf->accept_wal_risk;
    /* A plugin is never loaded into this process: one of its own looks at it. */
    if (probe_modes(c->conf, &e) != PAWL_OK) return cli_fail(c, &e);
    probe_programs(c->conf, warn_of_program, NULL);
    warn_of_queues(&o);
    rc = worker_run(&o, &drift, &e);
    show_drift(&drift);
    buf_free(&drift);
    return rc == PAWL_OK ? 0 : cli_fail_open(c, o.url, &e);
}

static const struct cli_opt work_opts[] = {
    {"concurrency", 'n', "N", "exec jobs at once (default: the configuration's, 8)", 0},
    {"queue", 'q', "A,B", "only these queues (default: every queue)", CLI_MANY},
    {"until-empty", 0, NULL, "end with 0 when nothing is due, running or waiting for a retry", 0},
    {"grace", 0, "DURATION", "how long running jobs may finish after SIGTERM", 0},
    {"apply", 0, NULL, "replace stored policies that differ from the configuration", 0},
    {"log-level", 0, "LEVEL", "error, warn, info (default) or debug", 0},
    {"log-json", 0, NULL, "log as JSON Lines (also with --json)", 0},
    {"accept-wal-risk", 0, NULL, "go on although the SQLite in use can damage a shared file", 0},
    {NULL, 0, NULL, NULL, 0},
};
static const char *const work_examples[] = {
    "pawl work -c pawl.conf --concurrency 8",
    "pawl work -c pawl.conf --until-empty",
    NULL,
};
const struct cmd_entry cmd_work = {
    .name = "work",
    .synopsis = "[OPTION...]",
    .summary = "run the tasks of the configuration",
    .opts = work_opts,
    .examples = work_examples,
    .run = work_run,
    .notes = "SIGTERM or SIGINT drains: no new jobs, running ones may finish within the grace,\n"
             "the rest is handed back, exit 0. A second one, or SIGQUIT, hands all back at once.\n"
             "SIGUSR2 logs the state. Logs go to standard error; doc/logs.md lists the events.",
};

/* --- a runner --- */

static int runner_verb(struct cli *c)
{
    struct runner_opts o = {.worker = cli_opt(c, "worker"),
                            .fingerprint = cli_opt(c, "fingerprint")};
    const char *role = cli_opt(c, "role");
    struct pawl_error e = {.rc = PAWL_OK};
    int x;

    if (o.worker == NULL || o.fingerprint == NULL || role == NULL) {
        return cli_usage(c, "started by pawl work only");
    }
    o.role = strcmp(role, "effect") == 0 ? RUNNER_EFFECT : RUNNER_PREPARED;
    if ((x = log_options(c, &o.log)) != 0) return x;
    if ((x = queues_option(c, "queue", &o.queues, &o.queues_n)) != 0) return x;
    if ((x = cli_conf(c, true)) != 0) return x;
    if ((x = cli_url(c, &o.url)) != 0) return x;
    o.conf = c->conf;
    o.accept_wal_risk = cli_has(c, "accept-wal-risk");
    if (runner_run(&o, &e) == PAWL_OK) return 0;
    log_line(LOG_ERROR, "runner.failed", "s:worker", o.worker, "s:rc", pawl_rc_name(e.rc), "s:why",
             e.msg, NULL);
    return pawl_rc_exit(e.rc);
}

static const struct cli_opt runner_opts[] = {
    {"role", 0, "ROLE", "effect or prepared", 0},
    {"worker", 0, "ID", "the worker it belongs to, or is", 0},
    {"fingerprint", 0, "HEX", "of the configuration the worker read", 0},
    {"queue", 0, "A,B", "as for work", CLI_MANY},
    {"log-level", 0, "LEVEL", "as for work", 0},
    {"log-json", 0, NULL, "as for work", 0},
    {"accept-wal-risk", 0, NULL, "as for work", 0},
    {NULL, 0, NULL, NULL, 0},
};
static const char *const runner_examples[] = {"pawl work", NULL};
const struct cmd_entry cmd_runner = {
    .name = "__runner",
    .synopsis = "[OPTION...]",
    .summary = "a runner of pawl work; not for use by hand",
    .opts = runner_opts,
    .examples = runner_examples,
    .run = runner_verb,
    .flags = CMD_HIDDEN,
};
