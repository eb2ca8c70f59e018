// SPDX-License-Identifier: Apache-2.0
/* copy.c - pawl_copy: a store moves; the rules say what becomes of what dead workers held. */
#include "api/api.h"

#include <string.h>

#include "engine/engine.h"
#include "store/copy.h"

static enum pawl_rc recover(struct store *st, size_t *n, struct pawl_error *e)
{
    struct reap_report r;
    enum pawl_rc rc = engine_reap(st, NULL, &r, e);

    *n = rc == PAWL_OK ? r.workers : 0;
    return rc;
}

enum pawl_rc pawl_copy(const char *from, const char *to, const struct pawl_copy_opts *o,
                       struct pawl_copied *out, struct pawl_error *e)
{
    WITH_ERROR(e);
    static const struct pawl_copy_opts defaults;
    struct pawl_copied unused;
    struct store_opts a, b;
    enum pawl_rc rc;

    if (o == NULL) o = &defaults;
    if (out == NULL) out = &unused;
    memset(out, 0, sizeof *out);
    if ((rc = api_store_opts(NULL, from, NULL, &a, e)) != PAWL_OK ||
        (rc = api_store_opts(NULL, to, NULL, &b, e)) != PAWL_OK)
        return rc;
    const struct store_move how = {.dry_run = o->dry_run, .undo = o->undo, .recover = recover,
                                   .progress = o->progress, .finding = o->finding, .ctx = o->ctx};
    return store_copy(&a, &b, &how, out, e);
}
