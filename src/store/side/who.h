// SPDX-License-Identifier: Apache-2.0
/* who.h - a process in 50 bits of shared memory, so that others can tell that it is dead.
 *
 * pid, the namespace in which that is its number, and a hash of its start time, against numbers
 * that are used again. The 14 bits above are the user's.
 * Keeps: "dead" is said of what is proven dead only; in doubt a process lives. Nothing is ever said
 *        of a process of another namespace.
 */
#ifndef SL_SL_WHO_H
#define SL_SL_WHO_H

#include <stdbool.h>
#include <stdint.h>

#define WHO_BITS 50
#define WHO_MASK ((UINT64_C(1) << WHO_BITS) - 1)

uint64_t who_self(void);        /* never 0 */
/* Is `who` dead, as seen by `self`? A zombie is: its descriptors are closed. */
bool who_dead(uint64_t who, uint64_t self);
int64_t who_pid(uint64_t who, uint64_t self);  /* 0: not a number that means anything here */

#endif
