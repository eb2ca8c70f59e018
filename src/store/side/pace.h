// SPDX-License-Identifier: Apache-2.0
/* pace.h - when pawl must leave the database alone for a moment, so that others get to write.
 *
 * Works on shared memory (hints, never truths) and the monotonic clock it is given; sleeps nowhere.
 * The caller holds the side lock, so one process at a time comes here. Numbers from another boot,
 * or none at all, cost at most one needless gap. doc/performance.md has the reasoning.
 */
#ifndef SL_SL_PACE_H
#define SL_SL_PACE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct pace {
    _Atomic int64_t free_us;       /* when the write lock was last let go */
    _Atomic int64_t foreign_until_us;
    _Atomic int64_t gap_until_us;  /* the gap that was given last */
    _Atomic int64_t window;        /* number of the window whose gap was given, or not needed */
    _Atomic int64_t window_us;     /* since when held_us counts */
    _Atomic int64_t held_us;       /* how long the write lock was held since then */
    _Atomic int64_t stretch_us;    /* how long it was held since the last pause */
};

/* Before a transaction: how long the gap lasts that begins now, or lasts still; 0: none. */
int64_t pace_gap(struct pace *p, int64_t now_us);
/* After it: the write lock was held for so long. */
void pace_held(struct pace *p, int64_t now_us, int64_t held_us);
/* How long the next transaction may take before a gap is due. INT64_MAX: as long as it likes. */
int64_t pace_room(const struct pace *p, int64_t now_us);
/* A commit of somebody else was seen. */
void pace_foreign(struct pace *p, int64_t now_us);

#endif
