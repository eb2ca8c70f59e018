// SPDX-License-Identifier: Apache-2.0
/* recover.c - put back what the dead held: the store finds and fences, the rules decide. */
#include <string.h>
#include "base/log.h"
#include "engine/engine.h"
#include "engine/report.h"

static struct decision judge(void *ctx, const struct casualty *c, struct finding *f)
{
    const struct env *env = ctx;
    const struct decision d = decide(c->job, c->policy, f, env->wall_us(env->ctx), env);

    report_settled(c->task, c->job, &d, f);
    return d;
}

/* Of another worker: nobody said how it ended. */
static struct decision judge_peer(void *ctx, const struct casualty *c, struct finding *f)
{
    f->taken_over = true;
    return judge(ctx, c, f);
}

enum pawl_rc engine_reap(struct store *st, const struct env *env, struct reap_report *out,
                         struct pawl_error *e)
{
    const struct env *use = env != NULL ? env : env_real();

    return store_reap(st, judge_peer, (void *)(uintptr_t)use, out, e);
}

enum pawl_rc engine_reap_runner(struct store *st, const struct env *env, int end,
                                enum outcome how, struct reap_report *out, struct pawl_error *e)
{
    const struct env *use = env != NULL ? env : env_real();

    return store_reap_runner(st, end, how, judge, (void *)(uintptr_t)use, out, e);
}

enum pawl_rc engine_reap_crew(struct store *st, const struct env *env, const char *id, int end,
                              enum outcome how, struct reap_report *out, struct pawl_error *e)
{
    const struct env *use = env != NULL ? env : env_real();

    return store_reap_crew(st, id, end, how, judge, (void *)(uintptr_t)use, out, e);
}
