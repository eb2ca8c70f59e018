// SPDX-License-Identifier: Apache-2.0
/* pace.c - gaps for foreign writers.
 *
 * Why: SQLite's write lock does not queue. A foreign writer with a busy timeout looks for it 0, 1,
 *      3, 8, 18, 33, 53, 78, 103, 128, 178, 228 ms after its first try, then every 100 ms. A pawl
 *      that drains flat out would hold it at nearly every look.
 * How: Nobody seen: the first 30 ms of every 225 ms are free, if the lock was held for most of the
 *      time before. A gap of more than 25 ms meets a look wherever it falls in the first 128 ms;
 *      later looks are 100 ms apart, gaps come 25 ms later against them each time, so the fourth
 *      meets one at the latest.
 *      Somebody seen within the last second: turns of at most 14 ms and pauses of nearly 11. Of the
 *      looks at 3, 8 and 18 ms at least one meets the pause, whatever the phase.
 */
#include <assert.h>
#include "store/side/pace.h"

#define WINDOW_US 225000
#define GAP_US 30000
#define GAP_MIN_US 26000          /* what is left of a gap when the last transaction came late */
#define EARLY_US 500              /* too short for another batch: the gap begins */
#define FOREIGN_FOR_US 1000000
#define TURN_US 14000             /* somebody is seen: the lock is held for about so long, */
#define PAUSE_MIN_US 10800        /* and then free for so long, */
#define PAUSE_PERCENT 77          /* or for this part of a longer turn, */
#define PAUSE_MAX_US 25000        /* within this bound */
#define ROOM_MIN_US 300

static int64_t clamp(int64_t v, int64_t min, int64_t max)
{
    return v < min ? min : v > max ? max : v;
}

static bool sees_foreign(const struct pace *p, int64_t now_us)
{
    const int64_t until = atomic_load(&p->foreign_until_us);

    return now_us < until && until <= now_us + FOREIGN_FOR_US; /* else another boot's */
}

static int64_t gap_seen(struct pace *p, int64_t now_us)
{
    const int64_t held = atomic_load(&p->stretch_us), idle = now_us - atomic_load(&p->free_us);
    const int64_t pause = clamp(held * PAUSE_PERCENT / 100, PAUSE_MIN_US, PAUSE_MAX_US);

    if (idle >= pause || idle < 0) {
        atomic_store(&p->stretch_us, 0);
        return 0;
    }
    if (held < TURN_US * 8 / 10)
        return 0;
    atomic_store(&p->stretch_us, 0);
    return pause - idle;
}

static int64_t gap_unseen(struct pace *p, int64_t now_us)
{
    const int64_t window = (now_us + EARLY_US) / WINDOW_US;
    const int64_t since = now_us - atomic_load(&p->window_us);
    const int64_t idle = now_us - atomic_load(&p->free_us);
    const bool paused = idle >= GAP_MIN_US || idle < 0; /* by itself, or another boot's number */

    if (atomic_load(&p->window) == window && !paused)
        return 0;
    /* Held for less than half of the time: others have met a free lock often enough. */
    const bool full = !paused && atomic_load(&p->held_us) * 2 > since;
    const int64_t left = window * WINDOW_US + GAP_US - now_us;
    const int64_t gap = full ? clamp(left, GAP_MIN_US, GAP_US + EARLY_US) : 0;

    atomic_store(&p->window, window);
    atomic_store(&p->window_us, now_us + gap);
    atomic_store(&p->held_us, 0);
    return gap;
}

int64_t pace_gap(struct pace *p, int64_t now_us)
{
    const int64_t left = atomic_load(&p->gap_until_us) - now_us;

    if (left > 0 && left <= GAP_US + EARLY_US) /* else another boot's number */
        return left;
    const int64_t gap = sees_foreign(p, now_us) ? gap_seen(p, now_us) : gap_unseen(p, now_us);

    if (gap > 0)
        atomic_store(&p->gap_until_us, now_us + gap);
    return gap;
}

void pace_held(struct pace *p, int64_t now_us, int64_t held_us)
{
    assert(held_us >= 0);
    atomic_store(&p->free_us, now_us);
    atomic_fetch_add(&p->held_us, held_us);
    atomic_fetch_add(&p->stretch_us, held_us);
}

int64_t pace_room(const struct pace *p, int64_t now_us)
{
    const int64_t held = atomic_load(&p->held_us), since = now_us - atomic_load(&p->window_us);

    if (sees_foreign(p, now_us))
        return clamp(TURN_US - atomic_load(&p->stretch_us), ROOM_MIN_US, TURN_US);
    if (held * 2 <= since)
        return INT64_MAX;
    return clamp(WINDOW_US - now_us % WINDOW_US, ROOM_MIN_US, WINDOW_US);
}

void pace_foreign(struct pace *p, int64_t now_us)
{
    atomic_store(&p->foreign_until_us, now_us + FOREIGN_FOR_US);
}
