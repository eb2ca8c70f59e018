// SPDX-License-Identifier: Apache-2.0
/* cmd_cancel.c - pawl cancel, pawl run-now: act on jobs by id, with a truthful answer for each. */
#include <inttypes.h>

#include "cli/cli.h"
#include "cli/show.h"

/* What one id came to: a line for people, or an object. Returns 0, or 1 for a negative answer. */
static int answer(struct cli *c, int64_t id, enum pawl_rc rc, enum pawl_state state,
                  const char *yes, const char *yes_word)
{
    struct buf *b = &c->out;
    if (c->json) {
        buf_putc(b, '{');
        cli_json_id(b, "id", id);
        cli_json_str(b, "result", rc == PAWL_OK       ? yes_word
                                  : rc == PAWL_TOOLATE ? "too_late"
                                                       : "not_found");
        cli_json_str(b, "state", rc == PAWL_NOTFOUND ? NULL : pawl_state_name(state));
        buf_puts(b, "}\n");
    } else if (rc == PAWL_OK) {
        buf_printf(b, "%" PRId64 " %s\n", id, yes);
    } else if (rc == PAWL_TOOLATE) {
        buf_printf(b, "%" PRId64 " too late: it is %s\n", id, pawl_state_name(state));
    } else {
        buf_printf(b, "%" PRId64 " not found\n", id);
    }
    return rc == PAWL_OK ? 0 : EXIT_NO;
}

static int cancel_one(struct cli *c, int64_t id)
{
    enum pawl_state state = PAWL_STATE_CANCELLED;
    struct pawl_error e = {.rc = PAWL_OK};
    enum pawl_rc rc = pawl_cancel(c->pawl, id, &state, &e);
    if (rc != PAWL_OK && rc != PAWL_TOOLATE && rc != PAWL_NOTFOUND) return cli_fail(c, &e);
    if (rc == PAWL_OK) state = PAWL_STATE_CANCELLED;
    return answer(c, id, rc, state, "cancelled", "cancelled");
}

static int cancel_run(struct cli *c)
{
    int x = cli_open(c);
    return x != 0 ? x : show_each_id(c, cancel_one);
}

static int run_now_one(struct cli *c, int64_t id)
{
    enum pawl_state state = PAWL_STATE_READY;
    struct pawl_error e = {.rc = PAWL_OK};
    enum pawl_rc rc = pawl_run_now(c->pawl, id, &state, &e);
    if (rc != PAWL_OK && rc != PAWL_TOOLATE && rc != PAWL_NOTFOUND) return cli_fail(c, &e);
    if (rc == PAWL_OK) state = PAWL_STATE_READY;
    int x = answer(c, id, rc, state, "is due now", "due");
    if (rc == PAWL_TOOLATE && state == PAWL_STATE_DEAD)
        cli_warn(c, "job %" PRId64 " is dead: use dead replay (pawl dead replay %" PRId64 ")", id,
                 id);
    return x;
}

static int run_now_run(struct cli *c)
{
    int x = cli_open(c);
    return x != 0 ? x : show_each_id(c, run_now_one);
}

static const char *const cancel_examples[] = {"pawl cancel 7 8", NULL};
const struct cmd_entry cmd_cancel = {
    .name = "cancel",
    .synopsis = "ID...",
    .summary = "cancel waiting or running jobs; a running one can have no later effect",
    .examples = cancel_examples,
    .run = cancel_run,
    .operands_min = 1,
    .operands_max = -1,
};

static const char *const run_now_examples[] = {"pawl run-now 7", NULL};
const struct cmd_entry cmd_run_now = {
    .name = "run-now",
    .synopsis = "ID...",
    .summary = "skip the wait of jobs that are delayed or wait for a retry",
    .examples = run_now_examples,
    .run = run_now_run,
    .operands_min = 1,
    .operands_max = -1,
};
