// SPDX-License-Identifier: Apache-2.0
/* drain.c - the graceful stop and its end.
 *
 *   TERM, INT      drain: no more claims; what runs may finish; claimed but unstarted jobs go back
 *   grace - margin TERM to the children's groups, and to a runner that is still in a batch
 *   shortly before KILL; what is left is handed back in one turn
 *   the grace ends
 *   second TERM, INT, or QUIT: KILL and hand back at once
 */
#include "base/log.h"
#include "worker/super.h"

#include <signal.h>

enum {
    MARGIN_MAX_US = 5 * 1000 * 1000,
    MARGIN_MIN_US = 50 * 1000,
    RUNNER_KILL_US = 1000 * 1000,
    GIVE_UP_US = 3 * 1000 * 1000,  /* a store that takes nothing back for so long is given up */
};

/* Jobs in hand: of programs, of the effect runner, of the crew. */
static int64_t running(const struct sup *s, int64_t now_us)
{
    int64_t n = s->leased != NULL ? (int64_t)leased_busy(s->leased) : 0, since_us;

    n += partner_job(s, now_us, &since_us) != 0;
    for (size_t i = 0; i < s->crew_n; i++) {
        n += partner_lives(&s->crew[i]) && store_in_hand(s->st, s->crew[i].id, &since_us) != 0;
    }
    return n;
}

void drain_begin(struct sup *s, const char *why, int64_t now_us)
{
    int64_t margin_us = s->grace_us / 5;

    if (s->phase != PHASE_WORK) return;
    if (margin_us > MARGIN_MAX_US) margin_us = MARGIN_MAX_US;
    if (margin_us < MARGIN_MIN_US) margin_us = MARGIN_MIN_US;
    s->phase = PHASE_DRAIN;
    s->drain_at_us = now_us;
    s->kill_at_us = now_us + s->grace_us - margin_us / 4;
    s->term_at_us = now_us + s->grace_us - margin_us;
    s->give_up_at_us = now_us + s->grace_us + GIVE_UP_US;
    log_line(LOG_INFO, "worker.drain", "s:worker", s->id, "s:why", why, "t:grace", s->grace_us,
             "i:running", running(s, now_us), NULL);
    children_release_held(s);
    partner_drain(s);
}

void drain_now(struct sup *s, const char *why, int64_t now_us)
{
    if (s->phase == PHASE_NOW) return;
    s->phase = PHASE_NOW;
    s->kill_at_us = now_us + RUNNER_KILL_US;
    s->give_up_at_us = now_us + GIVE_UP_US;
    s->retry_at_us = 0; /* one more try, whatever the store said last */
    log_line(LOG_INFO, "worker.release", "s:worker", s->id, "s:why", why, "i:running",
             running(s, now_us), NULL);
    partner_drain(s);
    partner_signal(s, SIGTERM);
    children_kill_all(s);
}

void drain_tick(struct sup *s, int64_t now_us)
{
    if (s->phase == PHASE_WORK) return;
    if (s->phase == PHASE_DRAIN && !s->term_sent && now_us >= s->term_at_us) {
        s->term_sent = true;
        children_stop_all(s, SIGTERM, "the worker's grace is over", now_us);
        partner_signal(s, SIGTERM);
    }
    if (now_us >= s->kill_at_us) {
        s->kill_at_us = INT64_MAX;
        if (!partner_gone(s)) partner_signal(s, SIGKILL);
        children_kill_all(s);
    }
}

int64_t drain_next_us(const struct sup *s)
{
    int64_t next = INT64_MAX;

    if (s->phase == PHASE_WORK) return next;
    if (s->phase == PHASE_DRAIN && !s->term_sent) next = s->term_at_us;
    if (s->kill_at_us < next) next = s->kill_at_us;
    return s->give_up_at_us < next ? s->give_up_at_us : next;
}
