// SPDX-License-Identifier: Apache-2.0
/* super.h - the supervisor's own state, shared between worker.c, super.c, drain.c, children.c,
 * partner.c and partner_effect.c only. */
#ifndef WORKER_SUPER_H
#define WORKER_SUPER_H

#include "base/clock.h"
#include "engine/engine.h"
#include "handler/handler.h"
#include "worker/lanes.h"
#include "worker/link.h"
#include "worker/worker.h"

/* What an epoll event is about: the low byte of its data; above it the slot. */
enum tag { TAG_CHILD = 0 /* + enum exec_fd */, TAG_SIGNAL = 8, TAG_WAKE, TAG_PARTNER };

enum phase { PHASE_WORK, PHASE_DRAIN, PHASE_NOW /* give everything back at once */ };

/* A slot's child. */
struct child {
    struct exec_child *c;
    int64_t started_at_us; /* store's clock */
    bool stopped;          /* we killed it: cancelled or fenced */
};

/* A runner as the supervisor sees it: the one of the effect lane, or one of the crew that runs the
 * prepared lane. */
enum partner_phase { PARTNER_NONE /* no such tasks */, PARTNER_DOWN, PARTNER_STARTING, PARTNER_UP };
struct partner {
    enum partner_phase phase;
    pid_t pid;
    int fd, pid_fd;              /* our end of the link; its death, also without the link's; -1 */
    char id[40];                 /* crew: the worker that it is; "": not joined yet */
    int side_fd;                 /* crew: the store's */
    bool idle, pausing, paused;
    bool ending, killed, over;   /* it was told to end; by SIGKILL; it holds nothing, it said */
    bool late;                   /* we killed it: it stayed past its job's hard limit */
    bool charge;                 /* it died: what that means for its jobs is not written yet */
    enum outcome how;            /* for the job in hand */
    int end;                     /* the signal that killed it; <= 0: its exit code, negated */
    int64_t start_at_us, up_at_us, backoff_us;
    int64_t long_since_us;       /* the job in hand since then was named already */
    int64_t long_limit_us;       /* its hard limit */
};

struct sup {
    const struct worker_opts *o;
    const struct env *env;
    struct store *st;
    struct lanes lanes;
    struct leased *leased;       /* NULL: no exec tasks */
    struct slot *slots;
    struct child *children;      /* parallel to slots */
    size_t slots_n;
    struct partner partner;      /* the effect runner */
    struct partner *crew;
    size_t crew_n;
    char id[40];
    char *child_db;              /* PAWL_DB of children: absolute */
    int side_fd, ep, sig_fd;
    enum phase phase;
    bool reap_orphans;           /* we are process 1 */
    bool look;                   /* work may be there */
    bool changed;                /* somebody committed since the last refresh */
    bool active;                 /* something happened since the last upkeep */
    bool suspect_waits;          /* a leased suspect waits until nothing else runs */
    size_t empty_looks;          /* in a row, by wake-ups close to each other */
    int64_t grace_us, lease_us;
    int64_t crew_beat_at_us;
    int64_t beat_at_us, beaten_boot_us, reap_at_us, poll_at_us, upkeep_at_us, refresh_at_us;
    int64_t look_at_us;          /* do not claim before */
    int64_t look_anyway_at_us;   /* look even if nobody said so */
    int64_t due_at_us;           /* something becomes due; INT64_MAX */
    int64_t retry_at_us, backoff_us; /* the store is in trouble until; 0: it is not */
    int64_t start_at_us, start_backoff_us; /* children cannot be started until */
    int64_t empty_at_us;         /* next look whether everything is done */
    int64_t drain_at_us, term_at_us, kill_at_us, give_up_at_us;
    bool term_sent, ready;
    struct log_gate store_gate, start_gate;
    enum pawl_rc rc;             /* why the loop ends, if not by drain */
    struct pawl_error *e;
};

static inline int64_t sup_mono(const struct sup *s) { return s->env->mono_us(s->env->ctx); }

/* super.c */
enum pawl_rc super_loop(struct sup *s, struct pawl_error *e) PAWL_MUST_USE;
void super_store_trouble(struct sup *s, const struct pawl_error *e, int64_t now_us);
bool super_passing(enum pawl_rc rc);   /* a store error that may pass by itself */

/* children.c */
void children_io(struct sup *s, size_t i, int which, int64_t now_us);
void children_tick(struct sup *s, int64_t now_us);
int64_t children_next_us(const struct sup *s);
void children_collect(struct sup *s, int64_t now_us); /* ended ones into their slots */
void children_drop_lost(struct sup *s, int64_t now_us);
void children_start(struct sup *s, int64_t now_us);   /* of HELD slots */
void children_stop_all(struct sup *s, int sig, const char *why, int64_t now_us);
void children_release_held(struct sup *s);            /* claimed, not started: hand back */
void children_kill_all(struct sup *s);                /* and mark their slots for hand-back */
bool children_alone(const struct sup *s);             /* a suspect is held or runs */
void children_reap_orphans(struct sup *s, int64_t now_us);

/* partner.c: i is 0 for the effect runner, above for the crew */
void partner_tick(struct sup *s, int64_t now_us);     /* start them when their time has come */
int64_t partner_next_us(const struct sup *s);
void partner_hear(struct sup *s, size_t i, int64_t now_us);
void partner_drain(struct sup *s);                    /* all of them */
void partner_signal(struct sup *s, int sig);          /* all of them */
bool partner_up(const struct sup *s);                 /* every one that there should be */
bool partner_gone(const struct sup *s);               /* none lives, and all deaths are written */
bool partner_is(const struct sup *s, pid_t pid);      /* a living runner of ours */
int64_t partner_crew(const struct sup *s, struct buf *pids); /* how many live; and their pids */
void partner_leave(struct sup *s);                    /* what the crew joined as is forgotten */
/* partner_effect.c: what only the effect runner is asked */
bool partner_still(struct sup *s);                    /* it holds still for a leased suspect */
void partner_arbitrate(struct sup *s);                /* let it go on when that suspect is over */
void partner_watch(struct sup *s, int64_t now_us);    /* says once when its job takes long */
int64_t partner_job(const struct sup *s, int64_t now_us, int64_t *for_us); /* in hand; 0: none */
static inline bool partner_lives(const struct partner *p)
{
    return p->phase == PARTNER_STARTING || p->phase == PARTNER_UP;
}
bool partner_say(struct partner *p, enum link_word w); /* between the two files */

/* drain.c */
void drain_begin(struct sup *s, const char *why, int64_t now_us);
void drain_now(struct sup *s, const char *why, int64_t now_us);
void drain_tick(struct sup *s, int64_t now_us);
int64_t drain_next_us(const struct sup *s);

#endif
