// SPDX-License-Identifier: Apache-2.0
/* lifecycle.h - the state machine as one table: state x event -> next state.
 *
 * The table is the only source: decide.c and the stores ask it (lifecycle_next), `pawl debug
 * lifecycle` prints it, a test compares it with doc/lifecycle.md and with the SQL CHECKs. */
#ifndef CORE_LIFECYCLE_H
#define CORE_LIFECYCLE_H

#include "base/buf.h"
#include "core/job.h"

enum event {
    EV_CLAIM,      /* ready -> running (leased mode and early ack) */
    EV_DONE,       /* running or ready (effect mode) -> done */
    EV_RETRY,      /* -> ready, failures + 1 */
    EV_BURY,       /* -> dead(class) */
    EV_LOST,       /* -> ready, lost + 1 (below the cap) */
    EV_SUSPECT,    /* -> ready, nothing counted */
    EV_RELEASE,    /* running -> ready, releases + 1 */
    EV_SNOOZE,     /* -> ready, snoozes + 1 */
    EV_DROP,       /* -> dropped(failed | lost) */
    EV_CANCEL,     /* ready, running -> cancelled */
    EV_RUN_NOW,    /* ready -> ready, run_at = now */
    EV_REPLAY,     /* dead -> dead (replayed_as set), a new ready job is born */
    EV_DISCARD,    /* dead -> dropped(discarded) */
    EV_PRUNE,      /* done, dropped, cancelled -> pruned (a dead one must be discarded first) */
    EV_N
};
const char *event_name(enum event ev);
/* The next state; PAWL_STATE_N if the event is not allowed in this state. */
enum pawl_state lifecycle_next(enum pawl_state from, enum event ev);
bool lifecycle_terminal(enum pawl_state s);
void lifecycle_print(struct buf *out);  /* the text of `pawl debug lifecycle` */

#endif
