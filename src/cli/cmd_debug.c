// SPDX-License-Identifier: Apache-2.0
/* cmd_debug.c - pawl debug: print the tables the code itself runs by. Nothing here is a second
 * copy: tests compare these pages with the documents. */
#include <inttypes.h>
#include <string.h>

#include "base/fail.h"
#include "base/json.h"
#include "cli/cli.h"
#include "core/lifecycle.h"
#include "core/limits.h"
#include "core/rules.h"

static int lifecycle_run(struct cli *c)
{
    if (!c->json) {
        lifecycle_print(&c->out);
        return 0;
    }
    for (int s = 0; s < PAWL_STATE_N; s++) {
        for (int ev = 0; ev < EV_N; ev++) {
            enum pawl_state next = lifecycle_next((enum pawl_state)s, (enum event)ev);
            if (next == PAWL_STATE_N) continue;
            buf_putc(&c->out, '{');
            cli_json_str(&c->out, "state", pawl_state_name((enum pawl_state)s));
            cli_json_str(&c->out, "event", event_name((enum event)ev));
            cli_json_str(&c->out, "next", pawl_state_name(next));
            buf_puts(&c->out, "}\n");
        }
    }
    return 0;
}

static const struct { const char *name; int64_t value; const char *help; } limits[] = {
    {"name_bytes", LIMIT_NAME_BYTES, "task and queue names"},
    {"key_bytes", LIMIT_KEY_BYTES, "key, source, entity, header names"},
    {"args_bytes", LIMIT_ARGS_BYTES, "args of one job"},
    {"headers_bytes", LIMIT_HEADERS_BYTES, "headers of one job"},
    {"result_bytes", LIMIT_RESULT_BYTES, "result of one job"},
    {"json_depth", LIMIT_JSON_DEPTH, "arrays and objects inside each other"},
    {"error_head", LIMIT_ERROR_HEAD, "bytes kept of the beginning of an error"},
    {"error_tail", LIMIT_ERROR_TAIL, "bytes kept of the end of an error"},
    {"out_tail", LIMIT_OUT_TAIL, "bytes kept of a child's stdout, and of its stderr"},
    {"reply_bytes", LIMIT_REPLY_BYTES, "one verdict on the reply descriptor"},
    {"priority", LIMIT_PRIORITY, "priorities from minus this to this"},
    {"retries", LIMIT_RETRIES, "highest max_retries"},
    {"releases", LIMIT_RELEASES, "graceful hand-backs of one job"},
    {"snoozes", LIMIT_SNOOZES, "snoozes of one job"},
    {"replay_chain", LIMIT_REPLAY_CHAIN, "replays of replays"},
    {"attempt_rows", LIMIT_ATTEMPT_ROWS, "attempts kept of one job; older ones are counted"},
    {"concurrency", LIMIT_CONCURRENCY, "jobs at once in one worker"},
    {"batch", LIMIT_BATCH, "jobs in one effect batch"},
    {"enqueue_n", LIMIT_ENQUEUE_N, "requests in one call of pawl_enqueue"},
    {"call_bytes", LIMIT_CALL_BYTES, "args and headers of one call of pawl_enqueue_pg"},
    {"tasks", LIMIT_TASKS, "tasks in one configuration"},
    {"statements", LIMIT_STATEMENTS, "sql lines of one task"},
    {"writes", LIMIT_WRITES, "that one verdict asks for"},
    {"enqueues", LIMIT_ENQUEUES, "that one verdict asks for"},
    {"sql_bytes", LIMIT_SQL_BYTES, "one statement"},
    {"conf_bytes", LIMIT_CONF_BYTES, "one configuration file"},
    {"instant_odd_us", LIMIT_INSTANT_ODD_US, "earlier integers look like seconds or ms: refused"},
    {"instant_max_us", LIMIT_INSTANT_MAX_US, "latest instant: 9999-12-31T23:59:59.999999Z"},
};

static int limits_run(struct cli *c)
{
    for (size_t i = 0; i < sizeof limits / sizeof *limits; i++) {
        if (!c->json) {
            buf_printf(&c->out, "%-16s %18" PRId64 "  %s\n", limits[i].name, limits[i].value,
                       limits[i].help);
            continue;
        }
        buf_putc(&c->out, '{');
        cli_json_str(&c->out, "name", limits[i].name);
        cli_json_int(&c->out, "value", limits[i].value);
        cli_json_str(&c->out, "help", limits[i].help);
        buf_puts(&c->out, "}\n");
    }
    return 0;
}

static const char *const rc_classes[PAWL_RC_N] = {
#define CLASS_WORD(name, class, code, text) [PAWL_##name] = #class,
    PAWL_RC_TABLE(CLASS_WORD)
#undef CLASS_WORD
};

static int errors_run(struct cli *c)
{
    for (int i = 0; i < PAWL_RC_N; i++) {
        enum pawl_rc rc = (enum pawl_rc)i;
        if (!c->json) {
            buf_printf(&c->out, "%-9s %-9s %3d  %s\n", pawl_rc_name(rc), rc_classes[i],
                       pawl_rc_exit(rc), pawl_rc_text(rc));
            continue;
        }
        buf_putc(&c->out, '{');
        cli_json_str(&c->out, "name", pawl_rc_name(rc));
        cli_json_str(&c->out, "class", rc_classes[i]);
        cli_json_int(&c->out, "exit", pawl_rc_exit(rc));
        cli_json_str(&c->out, "text", pawl_rc_text(rc));
        buf_puts(&c->out, "}\n");
    }
    return 0;
}

static int failpoints_run(struct cli *c)
{
    for (const char *const *n = fail_names(); *n; n++) {
        if (!c->json) {
            buf_printf(&c->out, "%s\n", *n);
            continue;
        }
        buf_putc(&c->out, '{');
        cli_json_str(&c->out, "name", *n);
        buf_puts(&c->out, "}\n");
    }
    return 0;
}

/* Lines "name = value" as the members of one object. */
static void policy_json(struct buf *b, struct buf *text)
{
    const char *s = buf_str(text);
    bool first = true;
    buf_putc(b, '{');
    for (const char *nl; (nl = strchr(s, '\n')) != NULL; s = nl + 1) {
        const char *eq = strstr(s, " = ");
        if (!eq || eq > nl) continue;
        if (!first) buf_putc(b, ',');
        first = false;
        json_put_str(b, s, (size_t)(eq - s));
        buf_putc(b, ':');
        json_put_str(b, eq + 3, eq + 3 < nl ? (size_t)(nl - eq - 3) : 0);
    }
    buf_puts(b, "}\n");
}

static int policy_run(struct cli *c)
{
    struct policy p;
    struct buf text = {0};
    policy_defaults(&p);
    policy_text(&p, &text);
    if (!c->json)
        buf_puts(&c->out, buf_str(&text));
    else
        policy_json(&c->out, &text);
    buf_free(&text);
    return 0;
}

#define TABLE(word, what)                                                                   \
    static const char *const word##_examples[] = {"pawl debug " #word, NULL};               \
    static const struct cmd_entry cmd_##word = {.name = #word, .synopsis = "", .summary = what, \
                                                .examples = word##_examples, .run = word##_run}
TABLE(lifecycle, "the state machine: state, event, next state");
TABLE(limits, "every limit");
TABLE(errors, "result codes, their class and exit code");
TABLE(failpoints, "the named crash points of $PAWL_FAILPOINT");
TABLE(policy, "the policy of a task that sets nothing");

static const struct cmd_entry *const subs[] = {&cmd_lifecycle, &cmd_limits,  &cmd_errors,
                                               &cmd_failpoints, &cmd_policy, NULL};
static const char *const examples[] = {"pawl debug lifecycle", NULL};
const struct cmd_entry cmd_debug = {
    .name = "debug",
    .synopsis = "lifecycle | limits | errors | failpoints | policy",
    .summary = "print the tables the code runs by",
    .subs = subs,
    .examples = examples,
};
