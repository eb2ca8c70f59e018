// SPDX-License-Identifier: Apache-2.0
/* vfs.c - the fault layer: every method hands on to the machine's VFS, some after a look at the
 * countdown. State is per process and not locked: the tests are single-threaded. */
#include "lib/vfs.h"

#include <assert.h>
#include <sqlite3.h>
#include <string.h>

static sqlite3_vfs *under;
static int64_t wal_syncs, wal_writes;
static int lacking; /* traits of the device that are not told */
static struct { bool on, fired; int64_t skip, times; enum vfs_fault fault; } armed;

struct file {
    sqlite3_file base;
    bool wal;
    sqlite3_file *real;     /* lies behind this struct */
};

static sqlite3_file *real_of(sqlite3_file *f) { return ((struct file *)(void *)f)->real; }

/* Is it this call's turn to fail? */
static bool strikes(bool reading)
{
    if (!armed.on || reading != (armed.fault == VFS_READ)) return false;
    if (armed.skip > 0) {
        armed.skip--;
        return false;
    }
    if (armed.times <= 0) return false;
    armed.times--;
    armed.fired = true;
    return true;
}

static int do_close(sqlite3_file *f)
{
    const int rc = real_of(f)->pMethods->xClose(real_of(f));

    f->pMethods = NULL;
    return rc;
}

static int do_read(sqlite3_file *f, void *p, int n, sqlite3_int64 at)
{
    if (strikes(true)) return SQLITE_IOERR_READ;
    return real_of(f)->pMethods->xRead(real_of(f), p, n, at);
}

static int do_write(sqlite3_file *f, const void *p, int n, sqlite3_int64 at)
{
    sqlite3_file *r = real_of(f);

    if (((struct file *)(void *)f)->wal) wal_writes++;
    if (!strikes(false)) return r->pMethods->xWrite(r, p, n, at);
    if (armed.fault == VFS_FULL) return SQLITE_FULL;
    if (armed.fault == VFS_TORN && n > 1) (void)r->pMethods->xWrite(r, p, n / 2, at);
    return SQLITE_IOERR_WRITE;
}

static int do_truncate(sqlite3_file *f, sqlite3_int64 n)
{
    if (strikes(false)) return SQLITE_IOERR_TRUNCATE;
    return real_of(f)->pMethods->xTruncate(real_of(f), n);
}

/* Counted, not done: no test cuts the power, and SIGKILL leaves what was written. So the suite
 * costs no disk time; the end-to-end tests run with real syncs. */
static int do_sync(sqlite3_file *f, int flags)
{
    (void)flags;
    if (strikes(false)) return SQLITE_IOERR_FSYNC;
    if (((struct file *)(void *)f)->wal) wal_syncs++;
    return SQLITE_OK;
}

static int do_size(sqlite3_file *f, sqlite3_int64 *n)
{
    return real_of(f)->pMethods->xFileSize(real_of(f), n);
}
static int do_lock(sqlite3_file *f, int level)
{
    return real_of(f)->pMethods->xLock(real_of(f), level);
}
static int do_unlock(sqlite3_file *f, int level)
{
    return real_of(f)->pMethods->xUnlock(real_of(f), level);
}
static int do_reserved(sqlite3_file *f, int *out)
{
    return real_of(f)->pMethods->xCheckReservedLock(real_of(f), out);
}
static int do_control(sqlite3_file *f, int op, void *arg)
{
    return real_of(f)->pMethods->xFileControl(real_of(f), op, arg);
}
static int do_sector(sqlite3_file *f) { return real_of(f)->pMethods->xSectorSize(real_of(f)); }
static int do_traits(sqlite3_file *f)
{
    return real_of(f)->pMethods->xDeviceCharacteristics(real_of(f)) & ~lacking;
}
static int do_shm_map(sqlite3_file *f, int i, int n, int extend, void volatile **out)
{
    if (strikes(false)) return SQLITE_IOERR_SHMMAP;
    return real_of(f)->pMethods->xShmMap(real_of(f), i, n, extend, out);
}
static int do_shm_lock(sqlite3_file *f, int at, int n, int flags)
{
    return real_of(f)->pMethods->xShmLock(real_of(f), at, n, flags);
}
static void do_shm_barrier(sqlite3_file *f)
{
    real_of(f)->pMethods->xShmBarrier(real_of(f));
}
static int do_shm_unmap(sqlite3_file *f, int del)
{
    return real_of(f)->pMethods->xShmUnmap(real_of(f), del);
}
static int do_fetch(sqlite3_file *f, sqlite3_int64 at, int n, void **out)
{
    return real_of(f)->pMethods->xFetch(real_of(f), at, n, out);
}
static int do_unfetch(sqlite3_file *f, sqlite3_int64 at, void *p)
{
    return real_of(f)->pMethods->xUnfetch(real_of(f), at, p);
}

static const sqlite3_io_methods methods = {
    3, do_close, do_read, do_write, do_truncate, do_sync, do_size, do_lock, do_unlock, do_reserved,
    do_control, do_sector, do_traits, do_shm_map, do_shm_lock, do_shm_barrier, do_shm_unmap,
    do_fetch, do_unfetch,
};

static int do_open(sqlite3_vfs *v, const char *name, sqlite3_file *f, int flags, int *out_flags)
{
    struct file *x = (struct file *)(void *)f;

    (void)v;
    x->base.pMethods = NULL;
    x->wal = (flags & SQLITE_OPEN_WAL) != 0;
    x->real = (sqlite3_file *)(void *)(x + 1);
    if (strikes(false)) return SQLITE_CANTOPEN;
    const int rc = under->xOpen(under, name, x->real, flags, out_flags);
    if (x->real->pMethods != NULL) {
        assert(x->real->pMethods->iVersion >= 3);
        x->base.pMethods = &methods;
    }
    return rc;
}

static int do_delete(sqlite3_vfs *v, const char *name, int sync_dir)
{
    (void)v;
    if (strikes(false)) return SQLITE_IOERR_DELETE;
    return under->xDelete(under, name, sync_dir);
}

static sqlite3_vfs shim; /* the machine's, with three differences */

void vfs_install(void)
{
    if (under != NULL) return;
    under = sqlite3_vfs_find(NULL);
    assert(under != NULL);
    shim = *under;
    shim.pNext = NULL;
    shim.zName = "pawl-fault";
    shim.szOsFile = (int)sizeof(struct file) + under->szOsFile;
    shim.xOpen = do_open;
    shim.xDelete = do_delete;
    if (sqlite3_vfs_register(&shim, 1) != SQLITE_OK) assert(false);
}

int64_t vfs_wal_syncs(void) { return wal_syncs; }
int64_t vfs_wal_writes(void) { return wal_writes; }
void vfs_lack(int traits) { lacking = traits; }

void vfs_arm(int64_t skip, int64_t times, enum vfs_fault fault)
{
    armed.on = true;
    armed.fired = false;
    armed.skip = skip;
    armed.times = times;
    armed.fault = fault;
}

bool vfs_disarm(void)
{
    armed.on = false;
    return armed.fired;
}
