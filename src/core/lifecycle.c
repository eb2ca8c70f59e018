// SPDX-License-Identifier: Apache-2.0
/* lifecycle.c - the state machine as one table. There is no other truth about allowed moves.
 *
 * Keeps: no event leads out of a terminal state but REPLAY and DISCARD of a dead job and PRUNE;
 *        a dead job is never pruned, it must be discarded first (nothing is dropped silently).
 */
#include "core/lifecycle.h"

#include <assert.h>

#define NO PAWL_STATE_N
enum { READY = PAWL_STATE_READY, RUNNING = PAWL_STATE_RUNNING, DONE = PAWL_STATE_DONE,
       DEAD = PAWL_STATE_DEAD, DROPPED = PAWL_STATE_DROPPED, CANCELLED = PAWL_STATE_CANCELLED,
       PRUNED = PAWL_STATE_PRUNED };

static const struct move {
    const char *name;
    uint8_t next[PAWL_STATE_N]; /* by present state */
    const char *what;
} moves[EV_N] = {
    /*               name        ready      running    done    dead     dropped  cancelled pruned */
    [EV_CLAIM]   = { "claim",   { RUNNING,   NO,        NO,     NO,      NO,      NO,     NO },
                     "a worker takes a lease; a new lease id, token = runs + 1" },
    [EV_DONE]    = { "done",    { DONE,      DONE,      NO,     NO,      NO,      NO,     NO },
                     "the effect and this move are one commit" },
    [EV_RETRY]   = { "retry",   { READY,     READY,     NO,     NO,      NO,      NO,     NO },
                     "failures + 1, at most max_retries; later run_at" },
    [EV_BURY]    = { "bury",    { DEAD,      DEAD,      NO,     NO,      NO,      NO,     NO },
                     "a dead letter with its class and evidence" },
    [EV_LOST]    = { "lost",    { READY,     READY,     NO,     NO,      NO,      NO,     NO },
                     "lost + 1, below lost_cap; keeps its place" },
    [EV_SUSPECT] = { "suspect", { READY,     READY,     NO,     NO,      NO,      NO,     NO },
                     "nothing counted; runs next and alone" },
    [EV_RELEASE] = { "release", { NO,        READY,     NO,     NO,      NO,      NO,     NO },
                     "releases + 1, below 100; keeps its place" },
    [EV_SNOOZE]  = { "snooze",  { READY,     READY,     NO,     NO,      NO,      NO,     NO },
                     "snoozes + 1, below 1000; later run_at" },
    [EV_DROP]    = { "drop",    { DROPPED,   DROPPED,   NO,     NO,      NO,      NO,     NO },
                     "failed or lost, by the task's own choice" },
    [EV_CANCEL]  = { "cancel",  { CANCELLED, CANCELLED, NO,     NO,      NO,      NO,     NO },
                     "a running one can have no later effect" },
    [EV_RUN_NOW] = { "run_now", { READY,     NO,        NO,     NO,      NO,      NO,     NO },
                     "run_at = now" },
    [EV_REPLAY]  = { "replay",  { NO,        NO,        NO,     DEAD,    NO,      NO,     NO },
                     "once: replayed_as is set and a new ready job is born" },
    [EV_DISCARD] = { "discard", { NO,        NO,        NO,     DROPPED, NO,      NO,     NO },
                     "a person gives it up, with a reason" },
    [EV_PRUNE]   = { "prune",   { NO,        NO,        PRUNED, NO,      PRUNED,  PRUNED, NO },
                     "retention passed" },
};

const char *event_name(enum event ev) { return (unsigned)ev < EV_N ? moves[ev].name : "?"; }

enum pawl_state lifecycle_next(enum pawl_state from, enum event ev)
{
    if ((unsigned)from >= PAWL_STATE_N || (unsigned)ev >= EV_N) return PAWL_STATE_N;
    return (enum pawl_state)moves[ev].next[from];
}

bool lifecycle_terminal(enum pawl_state s)
{
    assert((unsigned)s < PAWL_STATE_N);
    return s != PAWL_STATE_READY && s != PAWL_STATE_RUNNING;
}

void lifecycle_print(struct buf *out)
{
    buf_printf(out, "%-10s %-8s %-10s %s\n", "state", "event", "next", "what");
    for (int s = 0; s < PAWL_STATE_N; s++) {
        for (int ev = 0; ev < EV_N; ev++) {
            enum pawl_state to = lifecycle_next((enum pawl_state)s, (enum event)ev);
            if (to == PAWL_STATE_N) continue;
            buf_printf(out, "%-10s %-8s %-10s %s\n", pawl_state_name((enum pawl_state)s),
                       moves[ev].name, pawl_state_name(to), moves[ev].what);
        }
    }
}
