// SPDX-License-Identifier: Apache-2.0
/* sl_fork.c - which database files this process inherited open from the one that forked it.
 *
 * Why:  SQLite keeps what it knows of a file's locks in memory, per process. A forked child has its
 *       parent's knowledge without the parent's locks: what it opens on the same file looks locked,
 *       and holds nothing. Somebody else may then take the log away, and acknowledged commits are
 *       lost. So such a file is refused; another one is fine.
 * How:  a word for each connection: the file's hash and the process that opened it. A child has its
 *       parent's words and cannot take them back, as it cannot take SQLite's knowledge back.
 * Note: the only state of ours that belongs to no handle. No lock: a fork could keep it for ever.
 *       When there are more connections than words, some are not watched.
 */
#include <stdatomic.h>
#include <unistd.h>
#include "base/err.h"
#include "store/sqlite/sl.h"

#define WORDS 1024
static _Atomic uint64_t words[WORDS];

static uint64_t word_of(dev_t dev, ino_t ino, pid_t pid)
{
    const uint64_t mixed = ((uint64_t)dev * UINT64_C(0x9e3779b97f4a7c15) ^ (uint64_t)ino)
                           * UINT64_C(0xff51afd7ed558ccd);

    return (mixed >> 32 << 32) | (uint32_t)pid;
}

enum pawl_rc sl_fork_check(dev_t dev, ino_t ino, const char *path, struct pawl_error *e)
{
    const uint64_t mine = word_of(dev, ino, getpid());

    for (size_t i = 0; i < WORDS; i++) {
        const uint64_t w = atomic_load(&words[i]);

        if (w != 0 && w != mine && w >> 32 == mine >> 32)
            return pawl_fail(e, PAWL_BADARG, "%s was open in process %lu when it forked this one:"
                             " SQLite would lose commits; open it in a process that was forked"
                             " before, or start another program", path,
                             (unsigned long)(uint32_t)w);
    }
    return PAWL_OK;
}

void sl_fork_note(dev_t dev, ino_t ino)
{
    const uint64_t mine = word_of(dev, ino, getpid());

    for (size_t i = 0; i < WORDS; i++) {
        uint64_t none = 0;
        if (atomic_compare_exchange_strong(&words[i], &none, mine))
            return;
    }
}

void sl_fork_forget(dev_t dev, ino_t ino)
{
    const uint64_t mine = word_of(dev, ino, getpid());

    for (size_t i = 0; i < WORDS; i++) {
        uint64_t w = mine;
        if (atomic_compare_exchange_strong(&words[i], &w, 0))
            return;
    }
}
