// SPDX-License-Identifier: Apache-2.0
/* admit.c - may this job start? Checked once, here, for every mode and every door.
 *
 * Keeps: no handler sees args that are not UTF-8 JSON of the stated size and depth; nothing starts
 *        after its expiry; an older version does not start (done(stale)), an equal version with
 *        other
 *        args never applies (dead(conflict)).
 */
#include <assert.h>
#include <stdio.h>
#include <string.h>
#include "base/json.h"
#include "engine/engine.h"

static void refuse(struct finding *f, struct arena *arena, enum outcome o, const char *text)
{
    f->outcome = o;
    f->error = arena_strdup(arena, text);
    f->error_bytes = f->error != NULL ? strlen(f->error) : 0;
}

static bool acceptable(const struct job *job, struct arena *arena, struct finding *f)
{
    struct json_err je = {0};
    char text[200];

    if (job->args == NULL) {
        refuse(f, arena, OUT_UNDECODABLE, "the job's row is missing: the store was damaged");
        return false;
    }
    if (job->args_bytes > LIMIT_ARGS_BYTES) {
        snprintf(text, sizeof text, "args have %zu bytes, at most %d are accepted", job->args_bytes,
                 LIMIT_ARGS_BYTES);
        refuse(f, arena, OUT_UNDECODABLE, text);
        return false;
    }
    if (!json_check(job->args, job->args_bytes, LIMIT_JSON_DEPTH, NULL, &je)) {
        snprintf(text, sizeof text, "args are not acceptable JSON: %s at byte %zu", je.why, je.at);
        refuse(f, arena, OUT_UNDECODABLE, text);
        return false;
    }
    return true;
}

static void begin(const struct job *job, struct finding *f, bool *run)
{
    memset(f, 0, sizeof *f);
    f->exit_code = f->signal = -1;
    f->started_at_us = job->started_at_us;
    *run = false;
}

enum pawl_rc engine_admit(struct store *st, const struct lane_task *t, struct job *job,
                          struct arena *arena, struct finding *f, bool *run, struct pawl_error *e)
{
    begin(job, f, run);
    if (!acceptable(job, arena, f))
        return PAWL_OK;
    if (job->expires_at_us != 0 && store_now_us(st) >= job->expires_at_us) {
        refuse(f, arena, OUT_EXPIRED, "expired before it could start");
        return PAWL_OK;
    }
    return engine_guard(st, t, job, arena, f, run, e);
}

enum pawl_rc engine_guard(struct store *st, const struct lane_task *t, struct job *job,
                          struct arena *arena, struct finding *f, bool *run, struct pawl_error *e)
{
    enum guard g = GUARD_FRESH;
    char why[256];
    enum pawl_rc rc;

    begin(job, f, run);
    if (!entity_take(&t->policy, job, arena, why, sizeof why)) {
        refuse(f, arena, OUT_PERMANENT, why);
        return PAWL_OK;
    }
    if ((rc = store_guard(st, t, job, &g, e)) != PAWL_OK)
        return rc;
    switch (g) {
    case GUARD_FRESH:
        *run = true;
        break;
    case GUARD_OLDER: case GUARD_SAME:
        f->outcome = OUT_STALE;
        break;
    case GUARD_CONFLICT:
        snprintf(why, sizeof why, "version %lld of \"%.100s\" was applied before with other args",
                 (long long)job->version, job->entity);
        refuse(f, arena, OUT_CONFLICT, why);
        break;
    }
    return PAWL_OK;
}
