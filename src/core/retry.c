// SPDX-License-Identifier: Apache-2.0
/* retry.c - when to run again. Integers only; random numbers come from the caller's env.
 *
 * Keeps: base <= delay <= cap for any number of failures (Retry-After may exceed the cap);
 *        no product or shift can overflow.
 */
#include "core/rules.h"

#include <assert.h>

#define DELAY_MAX_US (INT64_C(3653) * 86400 * 1000000) /* as text_duration_us: ten years */
#define SNOOZE_US (INT64_C(5) * 1000000)
#define SNOOZE_MAX_US (INT64_C(3600) * 1000000)

static int64_t clamp(int64_t v, int64_t lo, int64_t hi) { return v < lo ? lo : v > hi ? hi : v; }

/* Uniform in [0, width], both ends included. */
static int64_t uniform(int64_t width, const struct env *env)
{
    assert(width >= 0);
    return (int64_t)env_below(env, (uint64_t)width + 1);
}

int64_t retry_delay_us(const struct policy *p, int64_t failures, int64_t retry_after_us,
                       const struct env *env)
{
    int64_t cap = clamp(p->backoff_cap_us, 0, DELAY_MAX_US);
    int64_t base = clamp(p->backoff_base_us, 0, cap);
    int64_t width = base, delay;

    assert(failures >= 1);
    /* The random part doubles until floor + width reaches the cap. Narrowing the width, rather
     * than cutting the sum, keeps the spread even: a cut would pile jobs up exactly at the cap. */
    for (int64_t f = 1; f < failures && width > 0 && width < cap - base; f++) width *= 2;
    delay = base + uniform(clamp(width, 0, cap - base), env);
    if (retry_after_us > 0) {
        int64_t floor = clamp(retry_after_us, 0, DELAY_MAX_US);
        floor += uniform(floor / 10, env);
        if (delay < floor) delay = floor;
    }
    assert(delay >= base);
    return delay;
}

int64_t snooze_delay_us(int64_t asked_us, const struct env *env)
{
    int64_t asked = asked_us <= 0 ? SNOOZE_US : clamp(asked_us, 0, SNOOZE_MAX_US);

    return clamp(asked + uniform(asked / 10, env), 0, SNOOZE_MAX_US);
}
