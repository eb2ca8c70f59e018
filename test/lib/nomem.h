// SPDX-License-Identifier: Apache-2.0
/* nomem.h - make the n-th allocation of this process fail. Include it in ONE file of a program.
 *
 * It puts its own malloc family before the C library's, which glibc allows. A sanitizer does the
 * same, so there the switch is absent and NOMEM_WORKS is 0: such a test says so and passes.
 *
 *   for (int k = 0; ; k++) {
 *       nomem_arm(k);
 *       ... the calls ...
 *       if (!nomem_disarm()) break;      // nothing failed: every path was seen
 *       ... check that the failure was told, and nothing leaked ...
 *   }
 */
#ifndef TEST_LIB_NOMEM_H
#define TEST_LIB_NOMEM_H

#include <stdbool.h>
#include <stddef.h>

#if defined __SANITIZE_ADDRESS__ || defined __SANITIZE_THREAD__ || !defined __GLIBC__
#define NOMEM_WORKS 0
static inline void nomem_arm(long skip) { (void)skip; }
static inline bool nomem_disarm(void) { return false; }
#else
#include <errno.h>
#define NOMEM_WORKS 1

void *__libc_malloc(size_t n);
void *__libc_calloc(size_t k, size_t n);
void *__libc_realloc(void *p, size_t n);

static long nomem_left = -1;   /* allocations to let through; -1: not armed */
static bool nomem_failed;

static bool nomem_hit(void)
{
    if (nomem_left < 0) return false;
    if (nomem_left-- > 0) return false;
    nomem_failed = true;       /* one failure only: what follows must cope and go on */
    errno = ENOMEM;
    return true;
}

void *malloc(size_t n) { return nomem_hit() ? NULL : __libc_malloc(n); }
void *calloc(size_t k, size_t n) { return nomem_hit() ? NULL : __libc_calloc(k, n); }
void *realloc(void *p, size_t n) { return nomem_hit() ? NULL : __libc_realloc(p, n); }

static inline void nomem_arm(long skip)
{
    nomem_failed = false;
    nomem_left = skip;
}

/* returns true if an allocation was made to fail since nomem_arm. */
static inline bool nomem_disarm(void)
{
    nomem_left = -1;
    return nomem_failed;
}
#endif
#endif
