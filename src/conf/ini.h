// SPDX-License-Identifier: Apache-2.0
/* ini.h - the form of a pawl.conf: sections, keys, continuation lines. Knows no key. */
#ifndef CONF_INI_H
#define CONF_INI_H

#include "base/buf.h"
#include "pawl.h"

struct ini_item {
    struct ini_item *next;
    int line;              /* of the header or the key */
    bool section;
    const char *name;      /* of the key; of a section its words with one blank between them */
    const char *value;     /* of a key, pieces joined by a newline; "" if empty */
};

/* Split a file's text into items in file order. path is for messages only; strings live in the
 * arena.
 * returns OK (*out NULL: no items) | CONFIG "FILE:LINE: ..." | NOMEM */
enum pawl_rc ini_parse(const char *path, const char *text, size_t n, struct arena *a,
                       struct ini_item **out, struct pawl_error *e) PAWL_MUST_USE;

#endif
