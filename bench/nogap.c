// SPDX-License-Identifier: Apache-2.0
/* nogap.c - pawl without the gaps it leaves for foreign writers: to measure what the gaps cost.
 * Never for use: it starves everybody else who writes the file.
 *
 * How: these definitions come before those of pace.c in the library, which is then left out. */
#include "store/side/pace.h"
#include "../src/main.c"

int64_t pace_gap(struct pace *p, int64_t now_us)
{
    (void)p;
    (void)now_us;
    return 0;
}

void pace_held(struct pace *p, int64_t now_us, int64_t held_us)
{
    (void)p;
    (void)now_us;
    (void)held_us;
}

int64_t pace_room(const struct pace *p, int64_t now_us)
{
    (void)p;
    (void)now_us;
    return INT64_MAX;
}

void pace_foreign(struct pace *p, int64_t now_us)
{
    (void)p;
    (void)now_us;
}
