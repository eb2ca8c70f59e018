// SPDX-License-Identifier: Apache-2.0
/* cmd_enqueue.c - pawl enqueue: one job from the command line (many: enqueue_bulk.c).
 *
 * Keeps: the args reach the store byte for byte, from the operand or from standard input.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/json.h"
#include "base/os.h"
#include "cli/cli.h"
#include "cli/enqueue.h"
#include "core/limits.h"

void enqueue_warn_unknown(struct cli *c, const char *task, const struct pawl_enqueued *a)
{
    struct buf t = {0};
    cli_safe(&t, task, 0);
    if (a->near[0])
        cli_warn(c, "no worker has declared task '%s' yet; the nearest is '%s'", buf_str(&t),
                 a->near);
    else
        cli_warn(c, "no worker has declared task '%s' yet; the job waits until one does",
                 buf_str(&t));
    buf_free(&t);
}

/* --header K=V ... as one JSON object in out. 0, or the exit code, printed. */
static int headers(struct cli *c, struct buf *out)
{
    const char *h;
    for (size_t i = 0; (h = cli_opt_i(c, "header", i)) != NULL; i++) {
        const char *eq = strchr(h, '=');
        if (!eq || eq == h) return cli_usage(c, "--header '%s': must be NAME=VALUE", h);
        if (!utf8_ok(h, strlen(h)))
            return cli_error(c, EXIT_DATA, "--header '%s': is not UTF-8", h);
        for (size_t k = 0; k < i; k++) {
            const char *o = cli_opt_i(c, "header", k);
            if (strncmp(o, h, (size_t)(eq - h) + 1) == 0)
                return cli_usage(c, "--header '%s': the same name twice", h);
        }
        buf_putc(out, i == 0 ? '{' : ',');
        json_put_str(out, h, (size_t)(eq - h));
        buf_putc(out, ':');
        json_put_cstr(out, eq + 1);
    }
    if (out->n > 0) buf_putc(out, '}');
    return out->failed ? cli_error(c, EXIT_TEMPFAIL, "out of memory") : 0;
}

/* The options as a request; strings are borrowed. 0, or the exit code, printed. */
static int options(struct cli *c, struct pawl_request *r)
{
    int64_t v = 0;
    int x;
    r->key = cli_opt(c, "key");
    r->source = cli_opt(c, "source");
    r->queue = cli_opt(c, "queue");
    r->entity = cli_opt(c, "entity");
    if (cli_has(c, "in") && cli_has(c, "at")) return cli_usage(c, "give --in or --at, not both");
    if ((x = cli_int(c, "priority", -LIMIT_PRIORITY, LIMIT_PRIORITY, &v)) != 0) return x;
    r->has_priority = cli_has(c, "priority");
    r->priority = r->has_priority ? (int)v : 0;
    if ((x = cli_int(c, "max-retries", 0, LIMIT_RETRIES, &v)) != 0) return x;
    r->has_max_retries = cli_has(c, "max-retries");
    r->max_retries = r->has_max_retries ? (int)v : 0;
    if ((x = cli_int(c, "version", INT64_MIN, INT64_MAX, &r->version)) != 0) return x;
    r->has_version = cli_has(c, "version");
    if ((x = cli_instant(c, "at", &r->run_at_us)) != 0) return x;
    if ((x = cli_when(c, "expires", &r->expires_at_us)) != 0) return x;
    if (!cli_has(c, "in")) return 0;
    if ((x = cli_duration(c, "in", &v)) != 0) return x;
    r->run_at_us = cli_now_us() + v;
    return 0;
}

/* The answer: the id on standard output, what is special about it on standard error. */
static int answer(struct cli *c, const struct pawl_request *r, const struct pawl_enqueued *a)
{
    struct buf *b = &c->out;
    snprintf(c->stored, sizeof c->stored, "; the job is stored, as job %" PRId64, a->id);
    if (c->json) {
        buf_putc(b, '{');
        cli_json_id(b, "id", a->id);
        cli_json_bool(b, "created", a->created);
        cli_json_str(b, "state", pawl_state_name(a->state));
        cli_json_bool(b, "task_known", a->task_known);
        cli_json_text(b, "result", a->result, a->result ? strlen(a->result) : 0);
        buf_puts(b, "}\n");
    } else {
        buf_printf(b, "%" PRId64 "\n", a->id);
    }
    if (!a->created) {
        struct buf k = {0};
        cli_safe(&k, r->key, 80);
        cli_warn(c, "duplicate: key '%s' was accepted before as job %" PRId64 " (%s)", buf_str(&k),
                 a->id, pawl_state_name(a->state));
        buf_free(&k);
    }
    if (!a->task_known) enqueue_warn_unknown(c, r->task, a);
    return !a->created && cli_has(c, "fail-on-duplicate") ? EXIT_NO : 0;
}

static int one(struct cli *c)
{
    struct pawl_request r = {.task = c->argv[0], .args = c->argc > 1 ? c->argv[1] : NULL};
    struct pawl_enqueued a = {.id = 0};
    struct pawl_error e = {.rc = PAWL_OK};
    struct buf in = {0}, head = {0};
    int x;

    if (c->argc < 1) return cli_usage(c, "needs a TASK, or --bulk FILE");
    if (cli_has(c, "from-line")) return cli_usage(c, "--from-line belongs to --bulk");
    if ((x = options(c, &r)) != 0) goto out;
    if ((x = headers(c, &head)) != 0) goto out;
    if (head.n > 0) r.headers = buf_str(&head);
    if (r.args && strcmp(r.args, "-") == 0) {
        if (os_read_file("-", LIMIT_ARGS_BYTES, &in, &e) != PAWL_OK) {
            x = cli_fail(c, &e);
            goto out;
        }
        r.args = buf_str(&in);
        r.args_bytes = in.n;
    }
    if ((x = cli_open(c)) != 0) goto out;
    if ((x = options(c, &r)) != 0) goto out; /* again: --in counts from the store's time */
    if (pawl_enqueue(c->pawl, &r, 1, &a, NULL, &e) != PAWL_OK)
        x = cli_fail(c, &e);
    else
        x = answer(c, &r, &a);
    pawl_free(a.result);
out:
    buf_free(&in);
    buf_free(&head);
    return x;
}

static int enqueue_run(struct cli *c)
{
    const char *bulk = cli_opt(c, "bulk");
    if (!bulk) return one(c);
    if (c->argc > 0)
        return cli_usage(c, "--bulk takes its tasks from the lines; no operand is allowed");
    for (size_t i = 0; i < c->values_n; i++) {
        const char *name = c->values[i].opt->name;
        if (strcmp(name, "bulk") != 0 && strcmp(name, "from-line") != 0)
            return cli_usage(c, "--%s cannot be combined with --bulk: put it on the lines", name);
    }
    return enqueue_bulk(c, bulk);
}

static const struct cli_opt opts[] = {
    {"key", 0, "KEY", "the producer's own id of this request: the same key is accepted once", 0},
    {"source", 0, "SOURCE", "scope of the key (default: empty)", 0},
    {"queue", 0, "QUEUE", "the queue (default: the task's)", 0},
    {"priority", 0, "N", "-100 to 100, higher first (default: the task's)", 0},
    {"in", 0, "DURATION", "to start not before this long from now", 0},
    {"at", 0, "TIME", "to start not before this instant (RFC 3339 with a zone)", 0},
    {"expires", 0, "WHEN", "not to start after (a duration from now, or an instant)", 0},
    {"max-retries", 0, "N", "failures allowed before it is dead (default: the task's)", 0},
    {"entity", 0, "NAME", "what the version belongs to", 0},
    {"version", 0, "N", "version of the entity: older ones than applied are no-ops", 0},
    {"header", 0, "NAME=VALUE", "a header for the handler", CLI_MANY},
    {"fail-on-duplicate", 0, NULL, "exit 1 when the key was accepted before", 0},
    {"bulk", 0, "FILE|-", "read JSON Lines, one job a line, and store them in batches", 0},
    {"from-line", 0, "N", "with --bulk: begin at this line (default 1)", 0},
    {NULL, 0, NULL, NULL, 0},
};
static const char *const examples[] = {
    "pawl enqueue charge '{\"order\":42}' --key order-42",
    "pawl enqueue report --in 10m",
    "pawl enqueue --bulk events.jsonl",
    NULL,
};
const struct cmd_entry cmd_enqueue = {
    .name = "enqueue",
    .synopsis = "TASK [ARGS|-] [OPTION...] | --bulk FILE|-",
    .summary = "store one job, or many; prints the job id",
    .opts = opts,
    .examples = examples,
    .run = enqueue_run,
    .operands_max = 2,
    .notes = "ARGS is JSON (default {}), kept byte for byte; - reads it from standard input.\n"
             "A line of --bulk: {\"task\":\"charge\",\"args\":{\"order\":42},\"key\":\"o-42\"};\n"
             "also source, queue, priority, run_at or in, expires_at, max_retries, entity,\n"
             "version, headers.\n",
};
