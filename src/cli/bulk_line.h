// SPDX-License-Identifier: Apache-2.0
/* bulk_line.h - one line of `pawl enqueue --bulk` as a request. */
#ifndef CLI_BULK_LINE_H
#define CLI_BULK_LINE_H

#include "base/buf.h"
#include "pawl.h"

/* Parse one JSON object. Strings of *r live in the arena; args are the value's bytes as they stand.
 * returns OK | BADDATA (what and where, without the line's number) | NOMEM */
PAWL_MUST_USE enum pawl_rc bulk_line_parse(const char *s, size_t n, struct arena *a,
                                           struct pawl_request *r, struct pawl_error *e);

#endif
