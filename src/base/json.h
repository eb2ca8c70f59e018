// SPDX-License-Identifier: Apache-2.0
/* json.h - a strict slice scanner (RFC 8259) and a small writer.
 *
 * The scanner never builds a tree and never changes a byte: args are kept exactly as given.
 * It checks grammar, UTF-8 (no surrogates, no overlong forms), depth and, where asked, duplicate
 * member names. It does not recurse. A BOM is refused.
 */
#ifndef BASE_JSON_H
#define BASE_JSON_H

#include "base/buf.h"

enum json_type { JSON_NULL, JSON_FALSE, JSON_TRUE, JSON_NUMBER, JSON_STRING, JSON_ARRAY,
                 JSON_OBJECT };

struct json_err { size_t at; const char *why; }; /* byte offset; static text, e.g. "too deep" */

/* One whole value with optional white space around it. depth_max counts arrays and objects:
 * "[]" has depth 1. *type (may be NULL) = type of the value. true = valid. */
bool json_check(const char *s, size_t n, int depth_max, enum json_type *type, struct json_err *err);

/* A member's raw value inside an object text that json_check has accepted: *at, *len delimit the
 * value's bytes (strings with their quotes). Names are compared after unescaping.
 * returns 1 found, 0 absent, -1 the same name twice (s is not an object -> 0). */
int json_member(const char *s, size_t n, const char *name, const char **at, size_t *len,
                enum json_type *type);

/* Walk the members of an object: start with *pos = 0; true while there is one. name is the raw
 * text between the quotes (still escaped). */
bool json_next(const char *s, size_t n, size_t *pos, const char **name, size_t *name_n,
               const char **val, size_t *val_n, enum json_type *type);
/* The same for arrays. */
bool json_next_item(const char *s, size_t n, size_t *pos, const char **val, size_t *val_n,
                    enum json_type *type);

/* Unescape a string value (with its quotes) into out. false: holds an unpaired surrogate escape
 * (cannot be UTF-8). U+0000 is kept: use out->n. */
bool json_unescape(const char *s, size_t n, struct buf *out);

enum json_int { JSON_INT_OK, JSON_INT_NOT, JSON_INT_RANGE };
/* A number text as int64. NOT: it has a fraction or an exponent. RANGE: an integer beyond 64 bits.
 * "-0" is 0. */
enum json_int json_int64(const char *s, size_t n, int64_t *out);

/* Append s as a JSON string with quotes. Bytes that are not UTF-8 come out as \ufffd... never:
 * each such byte is written as the six characters \\xNN escaped ("\\xff"), so nothing is lost and
 * the output is always valid JSON. Control characters are escaped \u00NN. */
void json_put_str(struct buf *b, const char *s, size_t n);
void json_put_cstr(struct buf *b, const char *s); /* NULL -> null */

/* True if s is well-formed UTF-8 (no surrogates, no overlong, <= U+10FFFF). NUL bytes are fine. */
bool utf8_ok(const char *s, size_t n);
/* Append s for a terminal or a log: valid printable UTF-8 as it is; control characters, DEL, C1,
 * bidi controls and bad bytes as \xNN or \u{N}; newline as \n unless keep_newline. */
void text_put_safe(struct buf *b, const char *s, size_t n, bool keep_newline);

#endif
