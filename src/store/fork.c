// SPDX-License-Identifier: Apache-2.0
/* fork.c - a store belongs to the process that opened it: how a forked child is told apart.
 *
 * How: a page that the kernel gives to a child as zeroes (MADV_WIPEONFORK), so that each verb may
 *      look, for the price of a load. Without it: getpid().
 */
#include <assert.h>
#include <stddef.h>
#include <sys/mman.h>
#include <unistd.h>
#include "base/err.h"
#include "store/ops.h"

#define PAGE_BYTES 4096

void store_own(struct store *st)
{
    _Atomic int *here = mmap(NULL, PAGE_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
                             -1, 0);

    st->owner_pid = getpid();
    st->here = NULL;
    if (here == MAP_FAILED)
        return;
    if (madvise(here, PAGE_BYTES, MADV_WIPEONFORK) != 0) {
        munmap(here, PAGE_BYTES);
        return;
    }
    atomic_store(here, 1);
    st->here = here;
}

void store_disown(struct store *st)
{
    if (st->here != NULL)
        munmap(st->here, PAGE_BYTES);
    st->here = NULL;
}

bool store_is_ours_slow(const struct store *st)
{
    return st->owner_pid == getpid();
}

enum pawl_rc store_not_ours(const struct store *st, struct pawl_error *e)
{
    return pawl_fail(e, PAWL_BADARG, "this store was opened by process %lld; a child of fork()"
                     " must not use it", (long long)st->owner_pid);
}
