// SPDX-License-Identifier: Apache-2.0
/* vfs.h - a layer between SQLite and the kernel: counts what is written and synced, and makes the
 * n-th fallible call fail, so that every I/O error path is taken once.
 *
 *   for (int64_t n = 0; ; n++) {
 *       vfs_arm(n, 1, VFS_ERROR);
 *       ... the verbs ...
 *       if (!vfs_disarm()) break;        // nothing failed any more: every call was seen
 *       ... reopen; what was acknowledged is there, the invariants hold ...
 *   }
 */
#ifndef TEST_LIB_VFS_H
#define TEST_LIB_VFS_H

#include <stdbool.h>
#include <stdint.h>

enum vfs_fault {
    VFS_ERROR,   /* IOERR_WRITE, IOERR_FSYNC, IOERR_TRUNCATE, IOERR_SHMMAP ... and nothing done */
    VFS_FULL,    /* SQLITE_FULL from a write, errors from the rest */
    VFS_TORN,    /* a write does its first half, then fails */
    VFS_READ     /* reads fail, writes do not */
};
void vfs_install(void);              /* becomes the default VFS; again: nothing */
int64_t vfs_wal_syncs(void);         /* syncs of write-ahead logs so far: durable commits */
int64_t vfs_wal_writes(void);        /* writes to them */
void vfs_lack(int traits);           /* SQLITE_IOCAP_: files opened from now on have not these */
/* Let `skip` fallible calls through, then fail `times` of them. */
void vfs_arm(int64_t skip, int64_t times, enum vfs_fault fault);
bool vfs_disarm(void);               /* true if a call was made to fail since vfs_arm */

#endif
