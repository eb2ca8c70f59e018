// SPDX-License-Identifier: Apache-2.0
/* request.h - a request as JSON: a line of `pawl enqueue --bulk`, or an item of a verdict's
 * "enqueue". */
#ifndef CORE_REQUEST_H
#define CORE_REQUEST_H

#include "base/buf.h"
#include "pawl.h"

/* Parse one JSON object. Strings of *r live in the arena; args are the value's bytes as they stand.
 * now_us: the store's, for "in".
 * returns OK | BADDATA (what and where, without the line's or item's number) | NOMEM */
PAWL_MUST_USE enum pawl_rc request_parse(const char *s, size_t n, int64_t now_us, struct arena *a,
                                         struct pawl_request *r, struct pawl_error *e);

#endif
