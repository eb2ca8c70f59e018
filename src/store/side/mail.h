// SPDX-License-Identifier: Apache-2.0
/* mail.h - slots in memory that all pawl processes of a store share (PATH-pawl/mail), in which
 * one who finds the side lock taken leaves its request for whoever holds it.
 *
 * A slot belongs to whoever set its `who`, until that one clears it. Its state is moved
 *   IDLE -> POSTED              by its owner, who wrote the request
 *   POSTED -> IDLE              by its owner: withdrawn
 *   POSTED -> TAKEN             by the holder of the side lock, who then writes the answer
 *   TAKEN -> DONE | SELF        by the same one: stored and durable | refused, nothing was stored
 *   TAKEN -> LEFT               by its owner: it waits no longer; the holder frees the slot
 *   TAKEN -> DONE | POSTED      by the next holder, if that one died: sl_combine.c looks
 *   DONE, SELF -> IDLE          by its owner, who read the answer
 * Each use has a number in the state word, so that nothing of one use is taken for another's.
 * Keeps: nothing here is a truth. The store decides what is stored; a slot that is damaged, or
 *        whose owner is dead, costs its owner the ordinary way, and the others a slot.
 */
#ifndef SL_SL_MAIL_H
#define SL_SL_MAIL_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "pawl.h"

#define MAIL_SLOTS 64
#define MAIL_SLOT_BYTES 4096

enum mail_kind { MAIL_IDLE = 0, MAIL_POSTED, MAIL_TAKEN, MAIL_DONE, MAIL_SELF, MAIL_LEFT };
#define MAIL_KIND 7u
#define MAIL_NUDGE 8u            /* the lock is free: its owner should try to take it */
#define MAIL_USE 16u             /* the number of the use counts from this bit on */

struct mail_answer {
    uint32_t created, known, state; /* no bool: it may hold anything */
    char near[72];
    _Atomic int64_t id;          /* written last; 0: not executed */
};
/* A request without its texts; they follow, each ended by NUL. */
struct mail_text {
    int64_t now_us, version, run_at_us, expires_at_us;
    int32_t priority, max_retries;
    uint32_t has_version, has_priority, has_max_retries;
    uint32_t len[8];             /* task queue source key entity headers trace args; ~0: NULL */
};
struct mail_slot {
    _Atomic uint32_t state;      /* number of the use, nudge, kind; waited for */
    uint32_t bytes;
    _Atomic uint64_t who;        /* who.h, and a number of the handle; 0: free */
    _Atomic int64_t until_us;    /* monotonic: its owner gives up then */
    uint64_t sum;                /* of head and text: torn or not */
    struct mail_answer answer;
    struct mail_text head;
    char text[];
};
#define MAIL_TEXT_BYTES (MAIL_SLOT_BYTES - sizeof(struct mail_slot))

struct mail_head {
    uint64_t magic;              /* 0: never used */
    uint64_t dev, ino;           /* of the database file */
    char boot[40];
    _Atomic uint64_t posted;     /* slots to look at */
    _Atomic uint64_t taken;      /* slots that a holder has in hand, or had when it died */
    _Atomic uint32_t full;       /* somebody found no slot: look for those of the dead */
    _Atomic int64_t swept_us;
    _Atomic int64_t uptime_us;   /* CLOCK_BOOTTIME of the last reset */
};
struct mail {
    union { struct mail_head h; char page[4096]; };
    union { struct mail_slot s; char bytes[MAIL_SLOT_BYTES]; } slot[MAIL_SLOTS];
};

/* Written in this boot, for this file? Else mail_reset, by the holder of the side lock. */
bool mail_fits_file(const struct mail *m, const char *boot, uint64_t dev, uint64_t ino);
void mail_reset(struct mail *m, const char *boot, uint64_t dev, uint64_t ino, int64_t uptime_us);
/* May what does not fit be made anew? Only when nobody can be waiting for what is in it. Containers
 * of one machine may see boot ids of their own: a reset would take from the others' producers that
 * their requests were stored. */
bool mail_may_reset(const struct mail *m, uint64_t self, int64_t uptime_us);
static inline bool mail_waiting(struct mail *m)
{
    return m != NULL && atomic_load(&m->h.posted) != 0;
}

/* --- who waits --- */
bool mail_has_room_for(const struct pawl_request *r);
/* A slot with the request in it, posted; -1: none is free. *use: what the calls below compare. */
int mail_post(struct mail *m, uint64_t who, const struct pawl_request *r, int64_t now_us,
              int64_t until_us, uint32_t *use);
/* MAIL_IDLE: it is no longer this use, and it was not executed. Clears a nudge. */
enum mail_kind mail_look(struct mail *m, int i, uint32_t use, bool *nudged);
void mail_wait(struct mail *m, int i, uint32_t use, enum mail_kind kind, int64_t us);
bool mail_withdraw(struct mail *m, int i, uint32_t use, uint64_t who);
bool mail_leave(struct mail *m, int i, uint32_t use);      /* TAKEN -> LEFT */
void mail_read(struct mail *m, int i, struct pawl_enqueued *out);
void mail_free(struct mail *m, int i, uint32_t use, uint64_t who);

/* --- who holds the side lock --- */
/* Take the next posted slot; -1: none. */
int mail_take(struct mail *m, uint32_t *use);
/* Copy the request out, checked; texts point into room. false: damaged. */
bool mail_open(struct mail *m, int i, char room[MAIL_SLOT_BYTES], struct pawl_request *r,
               int64_t *now_us);
void mail_answer(struct mail *m, int i, const struct pawl_enqueued *out);
int64_t mail_answered(struct mail *m, int i);              /* the id of a new job, or 0 */
void mail_end(struct mail *m, int i, uint32_t use, enum mail_kind kind); /* DONE, SELF, POSTED */
void mail_wake(struct mail *m, int i);
/* Slots that a holder took and did not end, now ours; -1: no more. Begin with *bits = ~0. */
int mail_orphan(struct mail *m, uint64_t *bits, uint32_t *use);
void mail_sweep(struct mail *m, uint64_t self, int64_t now_us); /* slots of the dead */
/* Anybody, after the lock was let go: tell one who waits. */
void mail_nudge(struct mail *m);

#endif
