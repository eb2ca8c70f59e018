// SPDX-License-Identifier: Apache-2.0
/* mode.c - how a task's jobs are run, and what follows from it for its policy. */
#include <assert.h>

#include "base/err.h"
#include "conf/parse.h"
#include "core/rules.h"

enum pawl_rc conf_set_mode(const struct conf *c, struct conf_task *t, bool prepared,
                           struct pawl_error *e)
{
    char why[256] = "";

    assert(t->kind == HANDLER_C);
    t->mode = prepared ? MODE_PREPARED : MODE_EFFECT;
    if (!prepared && !t->own_hard_limit) t->policy.hard_limit_us = EFFECT_HARD_LIMIT_US;
    if (policy_check(&t->policy, why, sizeof why)) return PAWL_OK;
    return pawl_fail(e, PAWL_CONFIG, "%s:%d: %s", c->path, t->line, why);
}

const char *conf_kind_name(enum handler_kind k)
{
    switch (k) {
    case HANDLER_SQL: return "sql";
    case HANDLER_EXEC: return "exec";
    default: return "c";
    }
}

const char *conf_mode_name(enum task_mode m)
{
    switch (m) {
    case MODE_LEASED: return "leased";
    case MODE_EFFECT: return "effect";
    case MODE_PREPARED: return "prepared";
    default: return "unknown";
    }
}
