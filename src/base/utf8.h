// SPDX-License-Identifier: Apache-2.0
/* utf8.h - UTF-8 one character at a time, and the printable form of hostile text.
 *
 * Nothing here allocates, so that errors and reasons can be written when memory is gone. */
#ifndef BASE_UTF8_H
#define BASE_UTF8_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Bytes of the well-formed character at s (n >= 1), *cp = its code point. 0: there is none. */
size_t utf8_step(const char *s, size_t n, uint32_t *cp);
/* n less an incomplete character at the end of s: for texts that were cut by a byte limit. */
size_t utf8_trim(const char *s, size_t n);
/* True for C0, DEL, C1, line separators and bidi controls: what can forge what a person sees. */
bool utf8_control(uint32_t cp);

/* The printable form of the next character of s (n >= 1): itself, \n, \xNN or \u{N}.
 * returns bytes of s used; out holds *out_n bytes, no NUL. */
#define TEXT_SAFE_MAX 12
size_t text_safe_step(const char *s, size_t n, char out[TEXT_SAFE_MAX], size_t *out_n);
/* Append the printable form of s to dst, which holds `at` bytes of room `cap`; cuts at a whole
 * character; always NUL-terminated. returns the new length. */
size_t text_copy_safe(char *dst, size_t cap, size_t at, const char *s, size_t n);

#endif
