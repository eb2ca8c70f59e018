// SPDX-License-Identifier: Apache-2.0
/* super.c - the supervisor's loop: wait for signals, children, commits of others, or the clock;
 * then settle what ended and claim what is due, in one commit.
 *
 * Keeps: never claims more than free slots; never loses an ended slot (it is settled again and
 *        again until it is settled or fenced); a store in trouble is left alone for 0.1 to 2 s.
 * Never: waits on a child, a statement of a user, or the network.
 */
#include "worker/super.h"

#include "base/err.h"
#include "base/fail.h"
#include "base/log.h"

#include <assert.h>
#include <errno.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/signalfd.h>
#include <unistd.h>

enum {
    EVENTS_N = 128,
    BACKOFF_MIN_US = 100 * 1000,
    BACKOFF_MAX_US = 2000 * 1000,  /* as late a server that is back is seen */
    LOG_EVERY_US = 30 * 1000 * 1000,
    POLL_US = 100 * 1000,          /* look for foreign commits: the safety net */
    REAP_US = 2000 * 1000,
    UPKEEP_US = 1000 * 1000,
    UPKEEP_IDLE_US = 10 * 1000 * 1000, /* a log that was pinned shrinks although nothing happens */
    REFRESH_US = 100 * 1000,
    REFRESH_SHARE = 20,
    EMPTY_US = 50 * 1000,
    LOOK_ANYWAY_US = 5000 * 1000,  /* should a due time be missed (a clock was set) */
    LOOK_MIN_US = 500,             /* wake-ups that bring nothing are followed less closely */
    LOOK_MAX_US = 16 * 1000,
    LOOK_QUIET_US = 100 * 1000,
    PATIENCE_US = 3500 * 1000, /* longer than a user who thinks for a moment */
};

bool super_passing(enum pawl_rc rc)
{
    return rc == PAWL_BUSY || rc == PAWL_FULL || rc == PAWL_IO || rc == PAWL_NOMEM
        || rc == PAWL_STORE || rc == PAWL_UNSURE;
}

void super_store_trouble(struct sup *s, const struct pawl_error *e, int64_t now_us)
{
    if (!super_passing(e->rc) && s->rc == PAWL_OK) {
        s->rc = e->rc;
        *s->e = *e;
        drain_begin(s, "the store cannot be used any more", now_us);
    }
    s->backoff_us = s->backoff_us == 0 ? BACKOFF_MIN_US : s->backoff_us * 2;
    if (s->backoff_us > BACKOFF_MAX_US) s->backoff_us = BACKOFF_MAX_US;
    s->retry_at_us = now_us + s->backoff_us;
    if (log_gate(&s->store_gate, LOG_EVERY_US)) {
        log_line(super_passing(e->rc) ? LOG_WARN : LOG_ERROR, "store.trouble", "s:worker", s->id,
                 "s:lane", "leased", "s:rc", pawl_rc_name(e->rc), "s:why", e->msg, "t:retry_in",
                 s->backoff_us, "i:more", s->store_gate.swallowed, NULL);
    }
}

static void sooner(int64_t *next_us, int64_t at_us)
{
    if (at_us < *next_us) *next_us = at_us;
}

static void store_fine(struct sup *s)
{
    if (s->backoff_us == 0) return;
    log_line(LOG_INFO, "store.fine", "s:worker", s->id, NULL);
    s->backoff_us = s->retry_at_us = 0;
    s->beat_at_us = s->crew_beat_at_us = 0; /* others may have missed us, as we them */
}

/* --- settle and claim --- */

static size_t count(const struct sup *s, enum slot_phase phase)
{
    size_t n = 0;

    for (size_t i = 0; i < s->slots_n; i++) n += s->slots[i].phase == phase;
    return n;
}

static bool may_claim(const struct sup *s)
{
    if (s->phase != PHASE_WORK || children_alone(s)) return false;
    return !s->suspect_waits || count(s, SLOT_HELD) + count(s, SLOT_RUNNING) == 0;
}

/* What the claim said besides the jobs. */
static void after_claim(struct sup *s, const struct claim_info *info, bool found, int64_t now_us)
{
    s->suspect_waits = info->suspect_waiting;
    s->look = info->more || (info->suspect_waiting && leased_busy(s->leased) == 0);
    s->due_at_us = INT64_MAX;
    if (info->next_due_us > 0) s->due_at_us = now_us + info->next_due_us - store_now_us(s->st);
    if (found || info->more) {
        s->empty_looks = 0;
        s->look_at_us = 0;
    } else {
        int64_t wait_us = (int64_t)LOOK_MIN_US << s->empty_looks;
        if (wait_us < LOOK_MAX_US) s->empty_looks++;
        s->look_at_us = now_us + wait_us;
    }
}

static void turn(struct sup *s, int64_t now_us)
{
    struct claim_info info = {0};
    struct pawl_error e = {0};
    bool claim = may_claim(s), found;
    size_t ended, held;
    enum pawl_rc rc;

    if (s->leased == NULL || now_us < s->retry_at_us) return;
    ended = count(s, SLOT_ENDED);
    held = count(s, SLOT_HELD);
    if (ended == 0) {
        if (!claim || !s->look || now_us < s->look_at_us || count(s, SLOT_FREE) == 0) return;
    }
    if (s->phase != PHASE_WORK && fail_point("release.before")) {
        rc = pawl_fail(&e, PAWL_IO, "failpoint release.before");
    } else {
        rc = leased_turn(s->leased, s->st, claim, &info, &e);
    }
    if (rc != PAWL_OK) {
        super_store_trouble(s, &e, now_us);
        return;
    }
    store_fine(s);
    found = count(s, SLOT_HELD) > held || count(s, SLOT_ENDED) > 0;
    if (ended > 0 || found) {
        s->active = true;
        sooner(&s->empty_at_us, now_us + EMPTY_US);
    }
    if (claim) after_claim(s, &info, found || ended > 0, now_us);
    else if (ended > 0) s->look = true;
}

static void refresh(struct sup *s, int64_t now_us)
{
    struct pawl_error e = {0};
    size_t lost = 0;

    if (!s->changed || s->leased == NULL || now_us < s->refresh_at_us || now_us < s->retry_at_us) {
        return;
    }
    s->changed = false;
    s->refresh_at_us = now_us + REFRESH_US;
    if (leased_busy(s->leased) == 0) return;
    if (leased_refresh(s->leased, s->st, &lost, &e) != PAWL_OK) {
        s->changed = true;
        super_store_trouble(s, &e, now_us);
    } else if (lost > 0) {
        children_drop_lost(s, now_us);
    }
    /* Where rows that are gone are stepped over, it takes no more than a twentieth of the time. */
    const int64_t took_us = s->env->mono_us(s->env->ctx) - now_us;
    if (took_us > REFRESH_US / REFRESH_SHARE) s->refresh_at_us = now_us + took_us * REFRESH_SHARE;
}

/* --- the clock --- */

static void beat(struct sup *s, int64_t now_us)
{
    int64_t boot_us = s->env->boot_us(s->env->ctx), stamp_us = store_worker_stamp(s->st);

    if (now_us < s->beat_at_us) return;
    /* Who waits for the store beats there, too: others saw that, and took nothing over. */
    if (stamp_us > s->beaten_boot_us) s->beaten_boot_us = stamp_us;
    if (s->beaten_boot_us > 0 && boot_us - s->beaten_boot_us > s->lease_us) {
        /* We were frozen for longer than a lease: others may have taken over what we held. */
        log_line(LOG_WARN, "worker.frozen", "s:worker", s->id, "t:for", boot_us - s->beaten_boot_us,
                 NULL);
        s->changed = true;
        s->refresh_at_us = 0;
    }
    if (!store_worker_beat(s->st) && s->rc == PAWL_OK) {
        s->rc = pawl_fail(s->e, PAWL_IO, "others have taken this worker for dead (its side"
                          " directory was removed, or its beats came too late): it gives its jobs"
                          " back; start it again");
        drain_begin(s, "others have taken it for dead", now_us);
    }
    s->beaten_boot_us = boot_us;
    s->beat_at_us = now_us + s->lease_us / 3;
}

static void reap(struct sup *s, int64_t now_us)
{
    struct reap_report rep = {0};
    struct pawl_error e = {0};

    if (now_us < s->reap_at_us || now_us < s->retry_at_us) return;
    s->reap_at_us = now_us + (s->lease_us < REAP_US ? s->lease_us : REAP_US);
    if (engine_reap(s->st, s->env, &rep, &e) != PAWL_OK) {
        super_store_trouble(s, &e, now_us);
        return;
    }
    store_fine(s);
    if (rep.workers > 0) {
        s->look = s->active = true;
        sooner(&s->empty_at_us, now_us + EMPTY_US);
        log_line(LOG_WARN, "worker.gone", "s:worker", s->id, "i:workers", (int64_t)rep.workers,
                 "i:jobs", (int64_t)(rep.charged + rep.suspects), "s:why",
                 "another worker died or froze: what it held was taken over", NULL);
    }
}

static void upkeep(struct sup *s, int64_t now_us)
{
    struct pawl_error e = {0};
    int64_t at_us = s->upkeep_at_us + (s->active ? 0 : UPKEEP_IDLE_US);

    if (now_us < at_us || now_us < s->retry_at_us) return;
    s->upkeep_at_us = now_us + UPKEEP_US;
    s->active = false;
    if (store_maintain(s->st, &e) != PAWL_OK && log_gate(&s->store_gate, LOG_EVERY_US)) {
        log_line(LOG_WARN, "store.upkeep", "s:worker", s->id, "s:rc", pawl_rc_name(e.rc), "s:why",
                 e.msg, "i:more", s->store_gate.swallowed, NULL);
    }
}

/* --until-empty: nothing due, running or retrying, by anybody. Asked again only after a commit of
 * anybody, or when the next job that waits is due (or a clock may have been set). */
static void end_when_empty(struct sup *s, int64_t now_us)
{
    struct pending left = {0};
    struct pawl_error e = {0};
    const struct partner *p = &s->partner;
    bool idle = s->leased == NULL || (leased_busy(s->leased) == 0 && !s->look);
    bool runner_idle = p->phase == PARTNER_NONE || (p->phase == PARTNER_UP && p->idle);

    if (!s->o->until_empty || s->phase != PHASE_WORK || now_us < s->empty_at_us
        || now_us < s->retry_at_us) {
        return;
    }
    s->empty_at_us = now_us + EMPTY_US;
    if (!idle || !runner_idle) return;
    if (store_pending(s->st, &s->lanes.all, &left, &e) != PAWL_OK) {
        super_store_trouble(s, &e, now_us);
    } else if (left.due == 0 && left.running == 0 && left.retrying == 0) {
        log_line(LOG_INFO, "worker.empty", "s:worker", s->id, "i:later", left.later, "i:paused",
                 left.paused, NULL);
        drain_begin(s, left.paused > 0 ? "nothing is left to do but what is paused"
                                   : "nothing is left to do", now_us);
    } else if (left.due > 0) {
        s->look = true;
    } else {
        s->empty_at_us = now_us + LOOK_ANYWAY_US;
        if (left.next_due_us > 0)
            sooner(&s->empty_at_us, now_us + left.next_due_us - store_now_us(s->st));
    }
}

static void foreign_commit(struct sup *s)
{
    if (!store_changed(s->st)) return;
    s->look = s->changed = s->active = true;
    sooner(&s->empty_at_us, sup_mono(s) + EMPTY_US);
}

static void timers(struct sup *s, int64_t now_us)
{
    beat(s, now_us);
    if (now_us >= s->poll_at_us) {
        s->poll_at_us = now_us + POLL_US;
        foreign_commit(s);
        partner_watch(s, now_us);
    }
    if (now_us >= s->due_at_us || now_us >= s->look_anyway_at_us) {
        s->look = true;
        s->due_at_us = INT64_MAX;
        s->look_anyway_at_us = now_us + LOOK_ANYWAY_US;
    }
    if (s->look && now_us - s->look_at_us > LOOK_QUIET_US) s->empty_looks = 0;
    if (s->phase == PHASE_WORK) {
        reap(s, now_us);
        upkeep(s, now_us);
    }
    children_tick(s, now_us);
    partner_tick(s, now_us);
    drain_tick(s, now_us);
}

static int64_t next_instant(const struct sup *s)
{
    int64_t next = s->poll_at_us;

    sooner(&next, s->beat_at_us);
    sooner(&next, children_next_us(s));
    sooner(&next, partner_next_us(s));
    sooner(&next, drain_next_us(s));
    if (count(s, SLOT_ENDED) > 0) sooner(&next, s->retry_at_us);
    if (s->leased != NULL && may_claim(s) && count(s, SLOT_FREE) > 0) {
        if (s->look) sooner(&next, s->look_at_us > s->retry_at_us ? s->look_at_us : s->retry_at_us);
        sooner(&next, s->due_at_us);
    }
    if (s->phase == PHASE_WORK) {
        sooner(&next, s->reap_at_us);
        if (s->o->until_empty) sooner(&next, s->empty_at_us);
    }
    return next;
}

/* --- events --- */

static void on_signal(struct sup *s, uint32_t sig, int64_t now_us)
{
    int64_t for_us = 0, job;
    struct buf pids = {0};

    switch (sig) {
    case SIGTERM:
    case SIGINT:
        if (s->phase == PHASE_WORK) drain_begin(s, sig == SIGTERM ? "SIGTERM" : "SIGINT", now_us);
        else drain_now(s, "second signal", now_us);
        break;
    case SIGQUIT:
        drain_now(s, "SIGQUIT", now_us);
        break;
    case SIGHUP:
        log_line(LOG_INFO, "worker.signal", "s:worker", s->id, "s:signal", "HUP", "s:why",
                 "ignored: to read the configuration again, start the worker again", NULL);
        break;
    case SIGUSR2:
        job = partner_job(s, now_us, &for_us);
        log_line(LOG_INFO, "worker.state", "s:worker", s->id, "i:slots", (int64_t)s->slots_n,
                 "i:busy", (int64_t)(s->slots_n - count(s, SLOT_FREE)), "i:running",
                 (int64_t)count(s, SLOT_RUNNING), "i:draining", (int64_t)(s->phase != PHASE_WORK),
                 "i:runner_pid", partner_lives(&s->partner) ? (int64_t)s->partner.pid : 0,
                 "d:runner_job", job, "t:runner_for", for_us, "i:crew", partner_crew(s, &pids),
                 "s:crew_pids", pids.n > 0 ? buf_str(&pids) : NULL, NULL);
        buf_free(&pids);
        break;
    default:
        break; /* CHLD: children are watched one by one */
    }
}

static void read_signals(struct sup *s, int64_t now_us)
{
    struct signalfd_siginfo si;

    while (read(s->sig_fd, &si, sizeof si) == (ssize_t)sizeof si) {
        if (si.ssi_signo == SIGCHLD && s->reap_orphans) children_reap_orphans(s, now_us);
        on_signal(s, si.ssi_signo, now_us);
    }
}

static void dispatch(struct sup *s, const struct epoll_event *ev, int64_t now_us)
{
    int tag = (int)(ev->data.u64 & 0xff);
    size_t slot = (size_t)(ev->data.u64 >> 8);

    if (tag < TAG_CHILD + EXEC_FD_N) {
        children_io(s, slot, tag - TAG_CHILD, now_us);
    } else if (tag == TAG_SIGNAL) {
        read_signals(s, now_us);
    } else if (tag == TAG_WAKE) {
        store_wake_clear(s->st);
        foreign_commit(s); /* our own commits wake us, too: those change nothing for us */
    } else if (tag == TAG_PARTNER) {
        partner_hear(s, slot, now_us);
    }
}

static enum pawl_rc wait_events(struct sup *s, struct pawl_error *e)
{
    struct epoll_event ev[EVENTS_N];
    int64_t left_us = next_instant(s) - sup_mono(s);
    struct timespec t;
    int n;

    if (left_us < 0) left_us = 0;
    t = (struct timespec){left_us / 1000000, left_us % 1000000 * 1000};
    n = epoll_pwait2(s->ep, ev, EVENTS_N, &t, NULL);
    if (n < 0 && errno == ENOSYS) {
        n = epoll_wait(s->ep, ev, EVENTS_N, (int)((left_us + 999) / 1000));
    }
    if (n < 0 && errno != EINTR) return pawl_fail_errno(e, errno, "epoll");
    for (int i = 0; i < n; i++) dispatch(s, &ev[i], sup_mono(s));
    return PAWL_OK;
}

/* Said once: from now on jobs of every task run. */
static void say_ready(struct sup *s)
{
    if (s->ready || s->phase != PHASE_WORK || !partner_up(s)) return;
    s->ready = true;
    log_line(LOG_INFO, "worker.ready", "s:worker", s->id, NULL);
}

enum pawl_rc super_loop(struct sup *s, struct pawl_error *e)
{
    s->e = e;
    s->look = true;
    /* A foreign writer that sits on the file must not keep us from our children's time limits. */
    store_patience(s->st, PATIENCE_US);
    s->due_at_us = INT64_MAX;
    for (;;) {
        int64_t now_us = sup_mono(s);
        timers(s, now_us);
        children_collect(s, now_us);
        refresh(s, now_us);
        turn(s, now_us);
        children_start(s, now_us);
        partner_arbitrate(s);
        say_ready(s);
        end_when_empty(s, now_us);
        if (s->phase != PHASE_WORK) {
            bool held = s->leased != NULL && leased_busy(s->leased) > 0;
            if (!held && partner_gone(s)) return s->rc;
            if (now_us >= s->give_up_at_us) {
                store_worker_orderly(s->st);
                if (s->rc != PAWL_OK) return s->rc;
                return pawl_fail(e, PAWL_BUSY, "%zu jobs could not be handed back in time; another "
                                 "worker will take them over", s->leased != NULL
                                 ? leased_busy(s->leased) : 0);
            }
        }
        if (wait_events(s, e) != PAWL_OK) return e->rc;
    }
}
