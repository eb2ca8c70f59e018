// SPDX-License-Identifier: Apache-2.0
/* sl_gather.c - what a transaction appends to the log goes out with one write, not two a page.
 *
 * Why:   SQLite writes frame by frame, the 24 bytes of its header and its page, and each of these
 *        costs microseconds: a tenth of the CPU of a batch, and of a commit that changes three.
 * Keeps: held back is only what nobody else may look at: frames of the transaction that has the
 *        write lock, before their number is published. They are written before the sync that
 *        comes first (synchronous is FULL), and dropped with a transaction that is rolled back,
 *        before its lock goes and the place in the log is another's. A crash leaves a log that ends
 *        before them, as if it had come before the first write. A write that fails, fails its
 *        transaction, whatever SQLite asks for next: it believes that these frames were written.
 * How:   the two files of the connection, the log and the database (which has the lock), get a
 *        table of methods of ours, with SQLite's behind it. Nothing is registered: no global state.
 */
#include <stdlib.h>
#include <string.h>
#include "base/err.h"
#include "store/sqlite/sl.h"

enum { WRITE_LOCK = 0 }; /* its place among the locks of the log: sqlite.org/walformat.html, 2.3 */

struct gather {
    sqlite3_io_methods log; /* first: the file's pMethods is how we are found */
    const sqlite3_io_methods *log_was;
    struct of_main { sqlite3_io_methods m; struct gather *g; } main;
    const sqlite3_io_methods *main_was;
    sqlite3_file *log_file;
    int failed;             /* what a write of this transaction failed with */
    sqlite3_int64 at;       /* where the bytes held back belong */
    size_t n;
    unsigned char bytes[128 << 10];
};

static struct gather *of_log(sqlite3_file *f)
{
    return (struct gather *)(uintptr_t)f->pMethods;
}

static struct gather *of_main(sqlite3_file *f)
{
    return ((const struct of_main *)(const void *)f->pMethods)->g;
}

static int flush(struct gather *g)
{
    const int n = (int)g->n;

    g->n = 0;
    if (n > 0 && g->failed == SQLITE_OK)
        g->failed = g->log_was->xWrite(g->log_file, g->bytes, n, g->at);
    return g->failed;
}

static int log_close(sqlite3_file *f)
{
    struct gather *g = of_log(f);

    g->n = 0; /* no transaction is open: of one that was rolled back */
    g->log_file = NULL;
    f->pMethods = g->log_was;
    return f->pMethods->xClose(f);
}

static int log_read(sqlite3_file *f, void *to, int n, sqlite3_int64 at)
{
    struct gather *g = of_log(f);
    const int rc = flush(g);

    return rc != SQLITE_OK ? rc : g->log_was->xRead(f, to, n, at);
}

static int log_write(sqlite3_file *f, const void *from, int n, sqlite3_int64 at)
{
    struct gather *g = of_log(f);
    const bool fits = at == g->at + (sqlite3_int64)g->n && g->n + (size_t)n <= sizeof g->bytes;
    const int rc = fits ? SQLITE_OK : flush(g);

    if (rc != SQLITE_OK)
        return rc;
    if ((size_t)n > sizeof g->bytes)
        return g->log_was->xWrite(f, from, n, at);
    if (g->n == 0)
        g->at = at;
    memcpy(g->bytes + g->n, from, (size_t)n);
    g->n += (size_t)n;
    return SQLITE_OK;
}

static int log_truncate(sqlite3_file *f, sqlite3_int64 size)
{
    struct gather *g = of_log(f);
    const int rc = flush(g);

    return rc != SQLITE_OK ? rc : g->log_was->xTruncate(f, size);
}

static int log_sync(sqlite3_file *f, int flags)
{
    struct gather *g = of_log(f);
    const int rc = flush(g);

    return rc != SQLITE_OK ? rc : g->log_was->xSync(f, flags);
}

static int log_size(sqlite3_file *f, sqlite3_int64 *size)
{
    struct gather *g = of_log(f);
    const int rc = flush(g);

    return rc != SQLITE_OK ? rc : g->log_was->xFileSize(f, size);
}

/* The lock goes: what is still here was rolled back, and the place is the next writer's. */
static int main_shm_lock(sqlite3_file *f, int at, int n, int flags)
{
    struct gather *g = of_main(f);

    if (at == WRITE_LOCK) {
        g->n = 0;
        g->failed = SQLITE_OK;
    }
    return g->main_was->xShmLock(f, at, n, flags);
}

/* Comes before the number of frames is published. With synchronous at FULL all is written by then;
 * if somebody has lowered it, it is written now, and a failure can be told to nobody: so it is read
 * back, and a handler cannot change it (sl_conn.c, sl_hooks.c). */
static void main_shm_barrier(sqlite3_file *f)
{
    struct gather *g = of_main(f);

    (void)flush(g);
    g->main_was->xShmBarrier(f);
}

static int main_close(sqlite3_file *f)
{
    struct gather *g = of_main(f);

    f->pMethods = g->main_was;
    const int rc = f->pMethods->xClose(f);
    free(g);
    return rc;
}

static bool file_of(struct sqlite *sl, int which, sqlite3_file **out)
{
    return sqlite3_file_control(sl->db, "main", which, (void *)out) == SQLITE_OK && *out != NULL &&
           (*out)->pMethods != NULL;
}

/* Else SQLite pads the log behind its sync, and what we held back would have no other. */
static bool whole_writes(sqlite3_file *log)
{
    return (log->pMethods->xDeviceCharacteristics(log) & SQLITE_IOCAP_POWERSAFE_OVERWRITE) != 0;
}

/* The log is open, since something was read. */
enum pawl_rc sl_gather(struct sqlite *sl, struct pawl_error *e)
{
    sqlite3_file *log = NULL, *main = NULL;
    struct gather *g;

    if (!file_of(sl, SQLITE_FCNTL_JOURNAL_POINTER, &log) ||
        !file_of(sl, SQLITE_FCNTL_FILE_POINTER, &main) || main->pMethods->iVersion < 2 ||
        !whole_writes(log))
        return PAWL_OK; /* then it writes as SQLite does */
    if ((g = malloc(sizeof *g)) == NULL)
        return pawl_fail(e, PAWL_NOMEM, "out of memory");
    g->log_was = log->pMethods;
    g->main_was = main->pMethods;
    g->log_file = log;
    g->failed = SQLITE_OK;
    g->at = 0;
    g->n = 0;
    g->log = *g->log_was;
    g->log.iVersion = 1; /* the methods that SQLite has for logs */
    g->log.xClose = log_close;
    g->log.xRead = log_read;
    g->log.xWrite = log_write;
    g->log.xTruncate = log_truncate;
    g->log.xSync = log_sync;
    g->log.xFileSize = log_size;
    g->main = (struct of_main){ *g->main_was, g };
    g->main.m.iVersion = g->main.m.iVersion < 3 ? g->main.m.iVersion : 3; /* what we know */
    g->main.m.xShmLock = main_shm_lock;
    g->main.m.xShmBarrier = main_shm_barrier;
    g->main.m.xClose = main_close;
    log->pMethods = &g->log;
    main->pMethods = &g->main.m;
    return PAWL_OK;
}
