// SPDX-License-Identifier: Apache-2.0
/* meaning.h - do two JSON texts say the same, only spelled otherwise? For words to people, never
 * for a decision: what counts is the bytes. */
#ifndef CORE_MEANING_H
#define CORE_MEANING_H

#include <stdbool.h>
#include <stddef.h>

/* Both texts must have passed json_check. True if they differ at most in white space, the order
 * of members, escapes in strings, and the writing of numbers (1, 1.0, 10e-1). By fingerprints. */
bool meaning_same(const char *a, size_t an, const char *b, size_t bn);

#endif
