// SPDX-License-Identifier: Apache-2.0
/* shop.c - a plugin: charge an order. The charge, the follow-up job and "this job is done" are one
 * commit. Build it with cc -shared -fPIC -o shop.so shop.c; it links nothing of Pawl. */
#include <pawl.h>

#include <inttypes.h>

static enum pawl_outcome charge(struct pawl_run *run)
{
    struct pawl_request mail = {.task = "send_receipt"};
    struct pawl_enqueued answer;
    struct pawl_error e;
    int64_t order, cents;
    char args[64];

    if (pawl_arg_int(run, "order", &order, &e) != PAWL_OK
        || pawl_arg_int(run, "cents", &cents, &e) != PAWL_OK)
        return pawl_run_error(run, &e); /* dead (permanent): the args will not change */
    if (cents > 100000) {
        pawl_run_say(run, "%" PRId64 " cents are more than a person may charge", cents);
        return PAWL_FAIL;
    }

    struct pawl_value v[] = {pawl_int("order", order), pawl_int("cents", cents)};
    if (pawl_exec(run, "INSERT INTO charge(order_id, cents) VALUES (:order, :cents)", v, 2, NULL,
                  &e) != PAWL_OK)
        return pawl_run_error(run, &e); /* a constraint: permanent; the store's trouble: retried */

    (void)snprintf(args, sizeof args, "{\"order\":%" PRId64 "}", order);
    mail.args = args, mail.args_bytes = strlen(args);
    if (pawl_run_enqueue(run, &mail, 1, &answer, NULL, &e) != PAWL_OK)
        return pawl_run_error(run, &e);
    return PAWL_DONE;
}

PAWL_HANDLER(charge_order, NULL, charge, NULL);
