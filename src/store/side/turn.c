// SPDX-License-Identifier: Apache-2.0
/* turn.c - the side lock: whose turn it is to write.
 *
 * The lock is a flock, and one word of shared memory (page.turn): the number of the lock file in
 * use, and who holds it. Who has the flock of file g becomes the holder by setting the word from
 * (g, whatever) to (g, me); if the number has moved on meanwhile, it lets go and tries the new one.
 * Keeps: at most one holder. It is the one that the word names; only a process that is dead is
 *        taken out of the word, by moving the number on.
 * Why:   a flock outlives its process in every child that it forked: without the word a process
 *        killed at the wrong moment would stop the store for as long as its children live.
 */
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/file.h>
#include <time.h>
#include <unistd.h>
#include "base/clock.h"
#include "base/err.h"
#include "base/fail.h"
#include "store/side/side.h"
#include "store/side/who.h"

#define WAIT_NAP_US 120         /* who waits for the lock looks at least so often, */
#define STEP_BACK_US 300        /* so that whoever had it last lets the other one in by this */
#define LOOK_US 2000            /* who will be nudged looks for itself all the same */
#define WAIT_SEEN_US 1000       /* if that one was seen waiting within so long */
#define JUDGE_US 10000          /* the same holder for so long: does it live? asked so often */
#define NOBODY_US 1000000       /* taken, and nobody named: killed before it could set the word */
#define WATCH_US 100000         /* who looked longer ago has seen nothing */
#define MOVES_MAX 1000          /* lock files tried in a row: a bound, never met */

static int64_t mono_us(void)
{
    return env_real()->mono_us(env_real()->ctx);
}

static void nap_us(int64_t us)
{
    const struct timespec ts = { .tv_sec = us / 1000000, .tv_nsec = (us % 1000000) * 1000 };

    nanosleep(&ts, NULL);
}

enum pawl_rc side_busy(const struct side *s, int64_t wait_us, struct pawl_error *e)
{
    const long long pid = (long long)who_pid(atomic_load(&s->page->turn), s->who);
    char who[64] = "another pawl process";

    if (pid > 0)
        snprintf(who, sizeof who, "the pawl process %lld", pid);
    return pawl_fail(e, PAWL_BUSY, "the store is busy: %s has kept its write lock for %lld s: a"
                     " long statement of a job, or a stopped process; try again", who,
                     (long long)(wait_us / 1000000));
}

static void file_name(char out[24], uint64_t gen)
{
    snprintf(out, 24, "lock-%u", (unsigned)gen);
}

/* The descriptor of lock file `gen`; -1: errno. */
static int turn_file(struct side *s, uint64_t gen)
{
    char name[24];

    if (gen == 0)
        return s->lock_fd;
    if (s->turn_fd >= 0 && s->turn_gen == gen)
        return s->turn_fd;
    if (s->turn_fd >= 0)
        close(s->turn_fd);
    file_name(name, gen);
    s->turn_fd = openat(s->dir_fd, name, O_RDWR | O_CREAT | O_CLOEXEC, s->share.mode);
    s->turn_gen = gen;
    if (s->turn_fd >= 0)
        side_share(s->turn_fd, s->share);
    return s->turn_fd;
}

/* The flock is taken. If its holder is dead, or died before it could say that it is the holder, the
 * lock is with a child of it: go on to the next file. The word is compared, so that a holder that
 * comes between is left alone. true: there is a new file. */
static bool rescue(struct side *s)
{
    const int64_t now = mono_us();
    uint64_t word = atomic_load(&s->page->turn);
    char name[24];

    const bool watched = s->seen.last_us != 0 && now - s->seen.last_us < WATCH_US;
    s->seen.last_us = now;
    if (!watched || word != s->seen.word) {
        s->seen.word = word;
        s->seen.since_us = s->seen.judged_us = now;
        return false;
    }
    if (now - s->seen.judged_us < JUDGE_US)
        return false;
    s->seen.judged_us = now;
    if ((word & WHO_MASK) == 0 ? now - s->seen.since_us < NOBODY_US
                               : !who_dead(word & WHO_MASK, s->who))
        return false;
    const uint64_t gen = word >> WHO_BITS;
    if (!atomic_compare_exchange_strong(&s->page->turn, &word, (gen + 1) << WHO_BITS))
        return false;
    if (gen != 0) { /* who still opens it finds the number gone; `lock` holds the page */
        file_name(name, gen);
        unlinkat(s->dir_fd, name, 0);
    }
    return true;
}

static enum side_turn try_turn(struct side *s)
{
    for (int i = 0; i < MOVES_MAX; i++) {
        const uint64_t gen = atomic_load(&s->page->turn) >> WHO_BITS;
        const int fd = turn_file(s, gen);

        if (fd < 0)
            return TURN_ERROR;
        if (flock(fd, LOCK_EX | LOCK_NB) != 0) {
            if (errno != EWOULDBLOCK && errno != EINTR)
                return TURN_ERROR;
            if (!rescue(s))
                return TURN_BUSY;
            continue;
        }
        if (fail_point("side.flocked")) {
            flock(fd, LOCK_UN);
            return TURN_BUSY;
        }
        uint64_t word = atomic_load(&s->page->turn);
        while (word >> WHO_BITS == gen)
            if (atomic_compare_exchange_weak(&s->page->turn, &word, gen << WHO_BITS | s->who)) {
                s->held_gen = gen;
                s->held = true;
                return TURN_TAKEN;
            }
        flock(fd, LOCK_UN);
    }
    return TURN_BUSY;
}

static void let_go(struct side *s)
{
    uint64_t word = s->held_gen << WHO_BITS | s->who;

    assert(s->held);
    atomic_store(&s->page->last, s->who | s->tag);
    /* first the word: who is killed here leaves a lock that names nobody, not a dead one's name */
    atomic_compare_exchange_strong(&s->page->turn, &word, s->held_gen << WHO_BITS);
    s->held = false;
    flock(s->held_gen == 0 ? s->lock_fd : s->turn_fd, LOCK_UN);
}

/* We had it last, and somebody waits: let that one in. */
static bool stand_back(const struct side *s, bool for_mail)
{
    const int64_t waiting = mono_us() - atomic_load(&s->page->waiting_us);

    return atomic_load(&s->page->last) == (s->who | s->tag) &&
           ((waiting >= 0 && waiting < WAIT_SEEN_US) || (for_mail && mail_waiting(s->mail)));
}

static enum pawl_rc take_turn(struct side *s, int64_t wait_us, int64_t until,
                              struct pawl_error *e)
{
    enum side_turn got;
    int64_t nap = 50;

    if (stand_back(s, true))
        nap_us(STEP_BACK_US);
    while ((got = try_turn(s)) == TURN_BUSY) {
        const int64_t now = mono_us();

        if (now >= until)
            return side_busy(s, wait_us, e);
        atomic_store(&s->page->waiting_us, now);
        side_beat(s); /* waiting is not freezing */
        nap_us(nap);
        nap = nap < WAIT_NAP_US ? nap * 2 : WAIT_NAP_US;
    }
    return got == TURN_TAKEN ? PAWL_OK : pawl_fail_errno(e, errno, "side lock");
}

/* In a gap for foreign writers a pawl process writes at most one short transaction: it takes some
 * tenths of a millisecond, and who enqueues does not wait for a gap that a drain has to leave.
 * returns what is left of the gap, if it must be left alone; the lock is free again then */
static int64_t leave_gap(struct side *s)
{
    const int64_t now = mono_us(), gap = pace_gap(&s->page->pace, now);

    if (gap <= 0)
        return 0;
    if (!s->long_turn && s->gap_used_us != now + gap) {
        s->gap_used_us = now + gap;
        return 0;
    }
    let_go(s); /* nobody is nudged: a gap is not to be filled */
    return gap;
}

enum pawl_rc side_lock(struct side *s, int64_t wait_us, struct pawl_error *e)
{
    const int64_t until = mono_us() + wait_us;

    while (!s->held) {
        enum pawl_rc rc = take_turn(s, wait_us, until, e);

        if (rc != PAWL_OK)
            return rc;
        const int64_t gap = leave_gap(s);
        if (gap > 0)
            nap_us(gap);
    }
    return PAWL_OK;
}

enum side_turn side_try(struct side *s, bool sure, int64_t *look_us)
{
    enum side_turn got;

    assert(!s->held);
    *look_us = LOOK_US;
    if (!sure && stand_back(s, false)) {
        *look_us = STEP_BACK_US;
        return TURN_BUSY;
    }
    if (!sure && (atomic_load(&s->page->turn) & WHO_MASK) != 0)
        return TURN_BUSY;
    if ((got = try_turn(s)) != TURN_TAKEN)
        return got;
    const int64_t gap = leave_gap(s);
    *look_us = gap;
    return gap > 0 ? TURN_BUSY : TURN_TAKEN;
}

void side_unlock(struct side *s)
{
    if (!s->held)
        return;
    let_go(s);
    mail_nudge(s->mail);
}
