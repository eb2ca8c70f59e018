// SPDX-License-Identifier: Apache-2.0
/* nomem.h - make the n-th allocation of this process fail. Include it in ONE file of a program.
 *
 * It puts its own malloc family before the C library's, which glibc allows. Sanitizers and valgrind
 * do the same: there nomem_works() is false and nothing is made to fail.
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
#include <stdlib.h> /* says whether this is glibc, and must come before the look at it */

#if defined __SANITIZE_ADDRESS__ || defined __SANITIZE_THREAD__ || !defined __GLIBC__
static inline void nomem_arm(long skip) { (void)skip; }
static inline bool nomem_disarm(void) { return false; }
static inline bool nomem_works(void) { return false; }
static inline long nomem_live(void) { return 0; }
#else
#include <errno.h>

void *__libc_malloc(size_t n);
void *__libc_calloc(size_t k, size_t n);
void *__libc_realloc(void *p, size_t n);
void __libc_free(void *p);

/* volatile: the compiler knows malloc, and that it changes no variable of a program. */
static volatile long nomem_left = -1; /* allocations to let through; -1: not armed */
static volatile bool nomem_failed;
static volatile long nomem_count;     /* allocated and not yet freed */

static bool nomem_hit(void)
{
    if (nomem_left < 0) return false;
    if (nomem_left-- > 0) return false;
    nomem_failed = true;       /* one failure only: what follows must cope and go on */
    errno = ENOMEM;
    return true;
}

static void *nomem_new(void *p)
{
    if (p != NULL) nomem_count++;
    return p;
}

void *malloc(size_t n) { return nomem_hit() ? NULL : nomem_new(__libc_malloc(n)); }
void *calloc(size_t k, size_t n) { return nomem_hit() ? NULL : nomem_new(__libc_calloc(k, n)); }
void *realloc(void *p, size_t n)
{
    if (nomem_hit()) return NULL;
    return p == NULL ? nomem_new(__libc_realloc(p, n)) : __libc_realloc(p, n);
}
void free(void *p)
{
    if (p != NULL) nomem_count--;
    __libc_free(p);
}

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

/* Blocks allocated and not freed: equal before and after means nothing leaked. */
static inline long nomem_live(void) { return nomem_count; }

static inline bool nomem_works(void)
{
    void *volatile p;

    nomem_arm(0);
    p = malloc(1);
    free(p);
    return nomem_disarm();
}
#endif
#endif
