// SPDX-License-Identifier: Apache-2.0
/* hash.c - a fingerprint of args that plain SQL can compute too.
 *
 * Not for defence against an opponent: the ledger compares the bytes while it has them, and this
 * only after the job was pruned.
 */
#include "core/rules.h"

#include <assert.h>

int64_t args_hash(const char *p, size_t n)
{
    uint64_t h1 = 0, h2 = 0;

    for (size_t i = 0; i < n; i++) {
        uint64_t b = (unsigned char)p[i];
        h1 = (h1 * 257 + b + 1) % 2147483647;
        h2 = (h2 * 263 + b + 1) % 2147483629;
    }
    assert(h1 < UINT64_C(1) << 31 && h2 < UINT64_C(1) << 31);
    return (int64_t)(h1 << 31 | h2);
}
