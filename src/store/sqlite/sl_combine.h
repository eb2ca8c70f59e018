// SPDX-License-Identifier: Apache-2.0
/* sl_combine.h - one transaction for the requests of many processes (sl_combine.c). */
#ifndef SL_SL_COMBINE_H
#define SL_SL_COMBINE_H

#include "store/sqlite/sl.h"

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
