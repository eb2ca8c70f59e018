// SPDX-License-Identifier: Apache-2.0
/* sl_combine.h - one transaction for the requests of many processes (sl_combine.c). */
#ifndef SL_SL_COMBINE_H
#define SL_SL_COMBINE_H

#include "store/sqlite/sl.h"

/* What the names of a request stand for. Valid within the transaction that looked them up. */
struct sl_names {
    char task[LIMIT_NAME_BYTES + 1], queue[LIMIT_NAME_BYTES + 1]; /* queue "": the task's own */
    int64_t task_id, queue_id, task_queue_id, priority;
    bool declared;
    char near[72];                 /* not declared: the nearest task that is */
};
/* The names met in this call: a call mostly holds the same few. */
enum { SL_NAMES_N = 16 };
struct sl_memo {
    struct sl_names n[SL_NAMES_N];
    size_t used, next;
    bool known_only;               /* names that are not there are not made: NOTFOUND */
};
static inline void sl_memo_init(struct sl_memo *m, bool known_only)
{
    m->used = m->next = 0;
    m->known_only = known_only;
}
/* sl_enqueue.c: one request, in the open transaction. NOTFOUND, KEYCLASH, BADDATA: nothing was
 * written; any other error: perhaps something was. */
enum pawl_rc sl_enqueue_one(struct sqlite *sl, const struct pawl_request *r, struct sl_memo *m,
                            int64_t now_us, struct pawl_enqueued *out, int64_t *dups,
                            struct pawl_error *e) PAWL_MUST_USE;

/* The requests of others that ride in our transaction. */
struct combine { size_t n; uint8_t slot[MAIL_SLOTS]; uint32_t use[MAIL_SLOTS]; };

/* Instead of sl_begin, for one request: OK with *answered false: the transaction is open. true:
 * another process stored it, *out is filled. BUSY as sl_begin | UNSURE: it may yet be stored. */
enum pawl_rc sl_combine_turn(struct sqlite *sl, const struct pawl_request *r, int64_t now_us,
                             struct pawl_enqueued *out, bool *answered,
                             struct pawl_error *e) PAWL_MUST_USE;
/* Execute what others posted. An error: the transaction is spoiled; roll back, sl_combine_end. */
enum pawl_rc sl_combine_serve(struct sqlite *sl, struct combine *c, int64_t *dups,
                              struct pawl_error *e) PAWL_MUST_USE;
/* After the commit (stored) or the rollback; behind the side lock. Then, anywhere, _wake. */
void sl_combine_end(struct sqlite *sl, const struct combine *c, bool stored);
void sl_combine_wake(struct sqlite *sl, const struct combine *c);
/* What a holder that died, or whose commit is in doubt, had in hand: look whether it is stored.
 * Behind the side lock, before anything is written (sl_begin calls it). */
enum pawl_rc sl_combine_recover(struct sqlite *sl, struct pawl_error *e) PAWL_MUST_USE;

#endif
