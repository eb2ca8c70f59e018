// SPDX-License-Identifier: Apache-2.0
/* mail.c - the slots: words that are compared and set, texts that are copied and checked.
 *
 * Keeps: no call here waits, but mail_wait; none believes a length or a text that it has not
 *        checked in a copy of its own.
 */
#include "store/side/mail.h"

#include <assert.h>
#include <limits.h>
#include <linux/futex.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
#include "core/limits.h"
#include "store/side/who.h"

#define MAIL_MAGIC 0x5041574c4d414c31ULL /* "PAWLMAL1" */
#define MAIL_NULL UINT32_MAX
#define SWEEP_US 1000000        /* no oftener */
#define OVERDUE_US 10000000     /* whoever has not withdrawn by then is stopped, or elsewhere */
#define UNREAD_US (3 * OVERDUE_US) /* and whoever has not read its answer */

static_assert(sizeof(struct mail_head) <= 4096, "the head is one page");
static_assert(sizeof(struct mail) == 4096 + MAIL_SLOTS * MAIL_SLOT_BYTES, "slots are pages");
static_assert(ATOMIC_INT_LOCK_FREE == 2 && ATOMIC_LLONG_LOCK_FREE == 2, "shared memory");

static uint64_t bit(int i) { return UINT64_C(1) << i; }
static uint32_t use_of(uint32_t state) { return state & ~(MAIL_USE - 1); }

static struct mail_slot *at(struct mail *m, int i)
{
    assert(i >= 0 && i < MAIL_SLOTS);
    return &m->slot[i].s;
}

static long futex(_Atomic uint32_t *word, int op, uint32_t val, const struct timespec *t)
{
    return syscall(SYS_futex, word, op, val, t, NULL, 0);
}

bool mail_fits_file(const struct mail *m, const char *boot, uint64_t dev, uint64_t ino)
{
    return m->h.magic == MAIL_MAGIC && m->h.dev == dev && m->h.ino == ino &&
           strncmp(m->h.boot, boot, sizeof m->h.boot) == 0;
}

bool mail_may_reset(const struct mail *m, uint64_t self, int64_t uptime_us)
{
    if (m->h.magic != MAIL_MAGIC || atomic_load(&m->h.uptime_us) > uptime_us)
        return true; /* never used; or before a restart of the machine */
    for (int i = 0; i < MAIL_SLOTS; i++) {
        const uint64_t who = atomic_load(&m->slot[i].s.who);

        if (who != 0 && !who_dead(who, self))
            return false;
    }
    return true;
}

void mail_reset(struct mail *m, const char *boot, uint64_t dev, uint64_t ino, int64_t uptime_us)
{
    m->h.magic = 0;
    atomic_thread_fence(memory_order_seq_cst);
    for (int i = 0; i < MAIL_SLOTS; i++) { /* uses go on counting: whoever waits sees it */
        const uint32_t state = atomic_load(&at(m, i)->state);

        atomic_store(&at(m, i)->state, use_of(state) + MAIL_USE);
        atomic_store(&at(m, i)->who, 0);
        mail_wake(m, i);
    }
    atomic_store(&m->h.posted, 0);
    atomic_store(&m->h.taken, 0);
    atomic_store(&m->h.full, 0);
    atomic_store(&m->h.swept_us, 0);
    atomic_store(&m->h.uptime_us, uptime_us);
    m->h.dev = dev;
    m->h.ino = ino;
    memset(m->h.boot, 0, sizeof m->h.boot);
    memcpy(m->h.boot, boot, strnlen(boot, sizeof m->h.boot - 1));
    atomic_thread_fence(memory_order_seq_cst);
    m->h.magic = MAIL_MAGIC;
}

/* --- the text --- */

static void texts(const struct pawl_request *r, const char *out[8], size_t len[8])
{
    const char *const all[8] = { r->task, r->queue, r->source, r->key, r->entity, r->headers,
                                 r->trace, r->args };

    for (int k = 0; k < 8; k++) {
        out[k] = all[k];
        len[k] = all[k] == NULL ? 0 : k == 7 ? r->args_bytes : strlen(all[k]);
    }
}

bool mail_has_room_for(const struct pawl_request *r)
{
    const char *text[8];
    size_t len[8], n = 0;

    if (r->args_bytes > MAIL_TEXT_BYTES)
        return false;
    texts(r, text, len);
    for (int k = 0; k < 8; k++)
        n += len[k] + 1;
    return n <= MAIL_TEXT_BYTES;
}

/* Told apart are a request as it was written, and one that was torn: eight bytes at a time. */
static uint64_t mix(uint64_t h, const void *p, size_t n)
{
    const char *c = p;
    uint64_t v = 0;

    for (; n >= sizeof v; n -= sizeof v, c += sizeof v) {
        memcpy(&v, c, sizeof v);
        h = (h ^ v) * UINT64_C(0x9E3779B97F4A7C15);
        h ^= h >> 32;
    }
    v = n;
    memcpy(&v, c, n);
    h = (h ^ v ^ (uint64_t)n << 56) * UINT64_C(0x9E3779B97F4A7C15);
    return h ^ h >> 32;
}

static uint64_t sum_of(const struct mail_text *head, const char *text, size_t n)
{
    return mix(mix(n, head, sizeof *head), text, n);
}

static void fill(struct mail_slot *s, const struct pawl_request *r, int64_t now_us)
{
    const char *text[8];
    size_t len[8], n = 0;

    memset(&s->head, 0, sizeof s->head);
    s->head.now_us = now_us;
    s->head.version = r->version;
    s->head.run_at_us = r->run_at_us;
    s->head.expires_at_us = r->expires_at_us;
    s->head.priority = r->priority;
    s->head.max_retries = r->max_retries;
    s->head.has_version = r->has_version;
    s->head.has_priority = r->has_priority;
    s->head.has_max_retries = r->has_max_retries;
    texts(r, text, len);
    for (int k = 0; k < 8; k++) {
        s->head.len[k] = text[k] != NULL ? (uint32_t)len[k] : MAIL_NULL;
        if (text[k] == NULL)
            continue;
        memcpy(s->text + n, text[k], len[k]);
        s->text[n + len[k]] = '\0';
        n += len[k] + 1;
    }
    assert(n <= MAIL_TEXT_BYTES);
    s->bytes = (uint32_t)n;
    s->sum = sum_of(&s->head, s->text, n);
}

bool mail_open(struct mail *m, int i, char room[MAIL_SLOT_BYTES], struct pawl_request *r,
               int64_t *now_us)
{
    const struct mail_slot *s = at(m, i);
    const struct mail_text h = s->head;
    const char *text[8] = {0};
    const size_t n = s->bytes;
    size_t used = 0;

    if (n > MAIL_TEXT_BYTES)
        return false;
    memcpy(room, s->text, n);
    if (sum_of(&h, room, n) != s->sum)
        return false;
    for (int k = 0; k < 8; k++) {
        if (h.len[k] == MAIL_NULL)
            continue;
        if (used >= n || h.len[k] > n - used - 1 || room[used + h.len[k]] != '\0')
            return false;
        text[k] = room + used;
        used += h.len[k] + 1;
    }
    *r = (struct pawl_request){ .task = text[0], .queue = text[1], .source = text[2],
        .key = text[3], .entity = text[4], .headers = text[5], .trace = text[6], .args = text[7],
        .args_bytes = text[7] != NULL ? h.len[7] : 0, .version = h.version,
        .run_at_us = h.run_at_us, .expires_at_us = h.expires_at_us, .priority = h.priority,
        .max_retries = h.max_retries, .has_version = h.has_version == 1,
        .has_priority = h.has_priority == 1, .has_max_retries = h.has_max_retries == 1 };
    *now_us = h.now_us;
    return r->task != NULL && r->args != NULL && strlen(r->task) <= LIMIT_NAME_BYTES &&
           (r->queue == NULL || strlen(r->queue) <= LIMIT_NAME_BYTES) &&
           r->priority >= -LIMIT_PRIORITY && r->priority <= LIMIT_PRIORITY;
}

/* --- who waits --- */

static void give_back(struct mail *m, int i, uint64_t who)
{
    atomic_fetch_and(&m->h.posted, ~bit(i));
    atomic_compare_exchange_strong(&at(m, i)->who, &who, 0);
}

int mail_post(struct mail *m, uint64_t who, const struct pawl_request *r, int64_t now_us,
              int64_t until_us, uint32_t *use)
{
    const int first = (int)((who ^ who >> WHO_BITS) % MAIL_SLOTS); /* mostly the same, and ours */

    for (int k = 0; k < MAIL_SLOTS; k++) {
        const int i = (first + k) % MAIL_SLOTS;
        struct mail_slot *s = at(m, i);
        uint64_t nobody = 0;

        if (atomic_load(&s->who) != 0 || !atomic_compare_exchange_strong(&s->who, &nobody, who))
            continue;
        *use = use_of(atomic_load(&s->state));
        fill(s, r, now_us);
        atomic_store(&s->answer.id, 0);
        atomic_store(&s->until_us, until_us);
        uint32_t idle = *use;
        if (!atomic_compare_exchange_strong(&s->state, &idle, *use | MAIL_POSTED)) {
            give_back(m, i, who); /* reset under our hands */
            continue;
        }
        atomic_fetch_or(&m->h.posted, bit(i));
        return i;
    }
    atomic_store(&m->h.full, 1);
    return -1;
}

enum mail_kind mail_look(struct mail *m, int i, uint32_t use, bool *nudged)
{
    const uint32_t state = atomic_load(&at(m, i)->state);

    *nudged = false;
    if (use_of(state) != use)
        return MAIL_IDLE;
    if ((state & MAIL_NUDGE) != 0) {
        atomic_fetch_and(&at(m, i)->state, ~MAIL_NUDGE);
        *nudged = true;
    }
    return (enum mail_kind)(state & MAIL_KIND);
}

void mail_wait(struct mail *m, int i, uint32_t use, enum mail_kind kind, int64_t us)
{
    const struct timespec t = { .tv_sec = us / 1000000, .tv_nsec = us % 1000000 * 1000 };

    if (us > 0)
        (void)futex(&at(m, i)->state, FUTEX_WAIT, use | (uint32_t)kind, &t);
}

void mail_wake(struct mail *m, int i)
{
    (void)futex(&at(m, i)->state, FUTEX_WAKE, INT_MAX, NULL);
}

/* The state of this use, from one of `from`, to another. A nudge is lost: whoever got it moves on,
 * or is moved on. */
static bool move(struct mail *m, int i, uint32_t use, enum mail_kind from, uint32_t to)
{
    uint32_t state = atomic_load(&at(m, i)->state);

    while (use_of(state) == use && (state & MAIL_KIND) == from)
        if (atomic_compare_exchange_weak(&at(m, i)->state, &state, to))
            return true;
    return false;
}

bool mail_withdraw(struct mail *m, int i, uint32_t use, uint64_t who)
{
    if (!move(m, i, use, MAIL_POSTED, use + MAIL_USE))
        return false;
    give_back(m, i, who);
    return true;
}

bool mail_leave(struct mail *m, int i, uint32_t use)
{
    return move(m, i, use, MAIL_TAKEN, use | MAIL_LEFT);
}

void mail_read(struct mail *m, int i, struct pawl_enqueued *out)
{
    const struct mail_answer *a = &at(m, i)->answer;

    out->id = atomic_load(&at(m, i)->answer.id);
    out->created = a->created == 1;
    out->task_known = a->known == 1;
    out->state = a->state < PAWL_STATE_N ? (enum pawl_state)a->state : PAWL_STATE_READY;
    static_assert(sizeof out->near == sizeof a->near, "one size of names");
    memcpy(out->near, a->near, sizeof out->near);
    out->near[sizeof out->near - 1] = '\0';
}

void mail_free(struct mail *m, int i, uint32_t use, uint64_t who)
{
    if (move(m, i, use, MAIL_DONE, use + MAIL_USE) || move(m, i, use, MAIL_SELF, use + MAIL_USE))
        give_back(m, i, who);
}

/* --- who holds the side lock --- */

int mail_take(struct mail *m, uint32_t *use)
{
    uint64_t bits;

    while ((bits = atomic_load(&m->h.posted)) != 0) {
        const int i = __builtin_ctzll(bits);

        atomic_fetch_and(&m->h.posted, ~bit(i));
        atomic_fetch_or(&m->h.taken, bit(i));
        *use = use_of(atomic_load(&at(m, i)->state));
        if (move(m, i, *use, MAIL_POSTED, *use | MAIL_TAKEN))
            return i;
        atomic_fetch_and(&m->h.taken, ~bit(i));
    }
    return -1;
}

void mail_answer(struct mail *m, int i, const struct pawl_enqueued *out)
{
    struct mail_answer *a = &at(m, i)->answer;

    a->created = out->created;
    a->known = out->task_known;
    a->state = (uint32_t)out->state;
    memcpy(a->near, out->near, sizeof a->near);
    atomic_store(&a->id, out->id);
}

int64_t mail_answered(struct mail *m, int i)
{
    const int64_t id = atomic_load(&at(m, i)->answer.id);

    return at(m, i)->answer.created == 1 ? id : 0;
}

void mail_end(struct mail *m, int i, uint32_t use, enum mail_kind kind)
{
    const uint64_t who = atomic_load(&at(m, i)->who);

    assert(kind == MAIL_DONE || kind == MAIL_SELF || kind == MAIL_POSTED);
    if (kind == MAIL_POSTED)
        atomic_store(&at(m, i)->answer.id, 0);
    if (!move(m, i, use, MAIL_TAKEN, use | (uint32_t)kind)) {
        if (move(m, i, use, MAIL_LEFT, use + MAIL_USE))
            give_back(m, i, who);
    } else if (kind == MAIL_POSTED) {
        atomic_fetch_or(&m->h.posted, bit(i));
    }
    atomic_fetch_and(&m->h.taken, ~bit(i));
}

int mail_orphan(struct mail *m, uint64_t *bits, uint32_t *use)
{
    *bits &= atomic_load(&m->h.taken);
    while (*bits != 0) {
        const int i = __builtin_ctzll(*bits);
        const uint32_t state = atomic_load(&at(m, i)->state);

        *bits &= ~bit(i);
        *use = use_of(state);
        if ((state & MAIL_KIND) == MAIL_TAKEN)
            return i;
        if ((state & MAIL_KIND) == MAIL_POSTED) /* it died before it took it */
            atomic_fetch_or(&m->h.posted, bit(i));
        mail_end(m, i, *use, MAIL_SELF); /* LEFT is freed, everything else stays as it is */
    }
    return -1;
}

/* A dead owner's slot; and one that long should have been withdrawn, or its answer read: its owner
 * is
 * stopped, or died in another namespace, where nobody here can tell. If it wakes, it will see that
 * its use is over, and that it slept for so long (sl_combine.c). */
void mail_sweep(struct mail *m, uint64_t self, int64_t now_us)
{
    const int64_t swept = atomic_load(&m->h.swept_us);

    if (atomic_load(&m->h.full) == 0 || (swept <= now_us && now_us - swept < SWEEP_US))
        return;
    atomic_store(&m->h.swept_us, now_us);
    atomic_store(&m->h.full, 0);
    for (int i = 0; i < MAIL_SLOTS; i++) {
        struct mail_slot *s = at(m, i);
        const uint64_t who = atomic_load(&s->who);
        uint32_t state = atomic_load(&s->state);
        const bool overdue = now_us - atomic_load(&s->until_us) >
                             ((state & MAIL_KIND) == MAIL_POSTED ? OVERDUE_US : UNREAD_US);

        if (who == 0 || (state & MAIL_KIND) == MAIL_TAKEN || (!overdue && !who_dead(who, self)))
            continue;
        if (atomic_compare_exchange_strong(&s->state, &state, use_of(state) + MAIL_USE))
            give_back(m, i, who);
    }
}

void mail_nudge(struct mail *m)
{
    const uint64_t bits = m != NULL ? atomic_load(&m->h.posted) : 0;

    if (bits == 0)
        return;
    const int i = __builtin_ctzll(bits);
    uint32_t state = atomic_load(&at(m, i)->state);

    if ((state & MAIL_KIND) == MAIL_POSTED &&
        atomic_compare_exchange_strong(&at(m, i)->state, &state, state | MAIL_NUDGE))
        mail_wake(m, i);
}
