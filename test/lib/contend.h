// SPDX-License-Identifier: Apache-2.0
/* contend.h - contention made to order: hold the side lock, see who has left a request. */
#ifndef TEST_LIB_CONTEND_H
#define TEST_LIB_CONTEND_H

#include <unistd.h>
#include "lib/fx.h"
#include "store/sqlite/sl.h"

static inline struct side *ct_side(struct fx *f) { return &sl_of(f->st)->d.side; }

/* The next transaction of this process begins with the lock in hand; others find it taken. */
static inline void ct_hold(struct fx *f)
{
    fx_ok(side_lock(ct_side(f), SEC, &f->e), f);
}

static inline int ct_posted(struct fx *f)
{
    return __builtin_popcountll(atomic_load(&ct_side(f)->mail->h.posted));
}

/* Until n requests lie in slots; a bounded loop that looks again. */
static inline void ct_wait_posted(struct fx *f, int n)
{
    const int64_t deadline = env_real()->mono_us(NULL) + 20 * SEC;

    while (ct_posted(f) < n) {
        ck_assert_msg(env_real()->mono_us(NULL) < deadline, "%d of %d are posted", ct_posted(f), n);
        usleep(200);
    }
}

/* Until somebody else finds the lock taken, from now on. */
static inline void ct_wait_waiting(struct fx *f)
{
    const int64_t start = env_real()->mono_us(NULL);

    while (atomic_load(&ct_side(f)->page->waiting_us) <= start) {
        ck_assert_msg(env_real()->mono_us(NULL) < start + 20 * SEC, "nobody waits"); /* deadline */
        usleep(200);
    }
}

/* Until somebody has found no slot free. */
static inline void ct_wait_full(struct fx *f)
{
    const int64_t deadline = env_real()->mono_us(NULL) + 20 * SEC;

    while (atomic_load(&ct_side(f)->mail->h.full) == 0) {
        ck_assert_msg(env_real()->mono_us(NULL) < deadline, "a slot is still free");
        usleep(200);
    }
}

#endif
