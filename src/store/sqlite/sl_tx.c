// SPDX-License-Identifier: Apache-2.0
/* sl_tx.c - one writing transaction: side lock, BEGIN IMMEDIATE, COMMIT, checkpoint, wake.
 *
 * Keeps: a COMMIT that returned is on disk; a COMMIT that failed is known to have rolled back, or
 * is
 *        UNSURE and the connection is opened anew.
 */
#include <assert.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>
#include "base/err.h"
#include "base/fail.h"
#include "base/log.h"
#include "store/sqlite/sl_combine.h"

#define WAL_FRAMES_MAX 900       /* checkpoint from here on: the log stays under 1,000 pages */
#define WAL_FRAMES_FIRM 4000     /* from here on, wait for readers: those of a look are short */
#define READERS_US 20000
#define WAL_BYTES_SHRINK (8 << 20)
#define WAL_BYTES_WARN (64 << 20)

static int pages_written(struct sqlite *sl)
{
    int now = 0, high = 0;

    sqlite3_db_status(sl->db, SQLITE_DBSTATUS_CACHE_WRITE, &now, &high, 0);
    return now;
}

enum pawl_rc sl_busy_who(struct sqlite *sl, enum pawl_rc rc, struct pawl_error *e)
{
    if (rc != PAWL_BUSY || sl->d.side.page == NULL
        || who_pid(atomic_load(&sl->d.side.page->turn), sl->d.side.who) != getpid())
        return rc;
    return pawl_fail(e, PAWL_BUSY, "the store is busy: this process has held its write lock for"
                     " %lld s, in another handle, or in a handler that calls from inside its"
                     " transaction: use pawl_run_enqueue there",
                     (long long)(sl->wait_us / 1000000));
}

enum pawl_rc sl_begin(struct sqlite *sl, struct pawl_error *e)
{
    sqlite3_stmt *q = NULL;
    enum pawl_rc rc;

    assert(!sl->d.in_tx);
    if (sl->db == NULL && (rc = sl_connect(sl, false, e)) != PAWL_OK)
        return rc;
    assert(store_is_ours(&sl->d.base));
    if ((rc = side_lock(&sl->d.side, sl->wait_us, e)) != PAWL_OK)
        return sl_busy_who(sl, rc, e);
    if ((rc = sl_same_file(sl, e)) != PAWL_OK) {
        side_unlock(&sl->d.side);
        return rc;
    }
    sl->busy_until_us = sl->d.env->mono_us(sl->d.env->ctx) + sl->wait_us;
    if ((rc = sl_q(sl, Q_BEGIN, &q, e)) != PAWL_OK || (rc = sl_run(sl, q, e)) != PAWL_OK) {
        side_unlock(&sl->d.side);
        return rc;
    }
    sl->written_before = pages_written(sl);
    sl->d.begun_us = sl->d.env->mono_us(sl->d.env->ctx);
    sl->d.in_tx = true;
    if ((rc = sl_combine_recover(sl, e)) != PAWL_OK) {
        sl_rollback(sl);
        side_unlock(&sl->d.side);
    }
    return rc;
}

/* The write lock is free again. */
static void tx_over(struct sqlite *sl)
{
    const int64_t held = sl->d.env->mono_us(sl->d.env->ctx) - sl->d.begun_us;

    sl->d.in_tx = false;
    side_held(&sl->d.side, held > 0 ? held : 0);
}

/* Tell foreign commits from ours: frames in the log before our own pages were written, against what
 * the last pawl process left. More: somebody else appended. (A spilled page may be counted twice,
 * which can only hide a foreign commit, never invent one.) */
static void look_for_foreign(struct sqlite *sl)
{
    const int64_t before = sl->wal_frames - (pages_written(sl) - sl->written_before);
    const int64_t known = atomic_load(&sl->d.side.page->frames);

    if (known > 0 && before > known)
        side_saw_foreign(&sl->d.side);
    atomic_store(&sl->d.side.page->frames, sl->wal_frames);
}

static enum pawl_rc commit_failed(struct sqlite *sl, struct pawl_error *e)
{
    const int code = sqlite3_extended_errcode(sl->db);
    enum pawl_rc rc = sl_fail(sl, e, "commit");
    struct pawl_error ignored;

    switch (code & 0xff) {
    case SQLITE_CONSTRAINT: /* a deferred constraint: the transaction is still open */
        sl_rollback(sl);
        if (e != NULL)
            e->rc = PAWL_SQL;
        return PAWL_SQL;
    case SQLITE_BUSY: case SQLITE_FULL: case SQLITE_NOMEM: /* nothing was committed */
        sl_rollback(sl);
        return rc;
    default:
        /* Frames may have reached the log unknown to us: what happened is found by reading. */
        tx_over(sl);
        if (sl_reopen(sl, &ignored) != PAWL_OK)
            log_line(LOG_WARN, "store.reopen", "s:why", ignored.msg, NULL);
        if (e != NULL)
            e->rc = PAWL_UNSURE;
        return PAWL_UNSURE;
    }
}

/* The side lock stays held: sl_leave lets it go. */
enum pawl_rc sl_commit(struct sqlite *sl, struct pawl_error *e)
{
    sqlite3_stmt *q = NULL;
    enum pawl_rc rc;

    assert(sl->d.in_tx);
    if ((rc = sl_q(sl, Q_COMMIT, &q, e)) != PAWL_OK) {
        sl_rollback(sl);
        return rc;
    }
    sl->committing = true;
    const int code = sqlite3_step(q);
    sl->committing = false;
    if (code == SQLITE_DONE) {
        sqlite3_reset(q);
        tx_over(sl);
        look_for_foreign(sl);
        return PAWL_OK;
    }
    rc = commit_failed(sl, e);
    return rc;
}

void sl_rollback(struct sqlite *sl)
{
    if (!sl->d.in_tx)
        return;
    for (int i = 0; i < Q_N; i++)
        if (sl->q[i] != NULL)
            sqlite3_reset(sl->q[i]);
    /* After SQLITE_FULL, IOERR, NOMEM the engine may have rolled back by itself; a second ROLLBACK
     * would only hide the first error. */
    if (sl->db != NULL && sqlite3_get_autocommit(sl->db) == 0 &&
        sqlite3_exec(sl->db, "ROLLBACK", NULL, NULL, NULL) != SQLITE_OK) {
        struct pawl_error ignored;

        log_line(LOG_WARN, "store.rollback", "s:why", sqlite3_errmsg(sl->db), NULL);
        if (sl_reopen(sl, &ignored) != PAWL_OK)
            log_line(LOG_WARN, "store.reopen", "s:why", ignored.msg, NULL);
    }
    tx_over(sl);
    sl->d.effect_open = sl->d.savepoint = false;
}

/* Passive while the side lock keeps pawl's writers out: everything is copied, and the next writer
 * starts the log anew, in place. That takes a moment in which nobody reads. Where people look all
 * the time there may be none for long: a log that has grown is waited for, a little. With an SQLite
 * that has the WAL-reset fault, TRUNCATE under the write lock is the shape without the race. */
enum pawl_rc sl_checkpoint(struct sqlite *sl, bool truncate, struct pawl_error *e)
{
    int log_n = 0, done_n = 0;
    const bool firm = sl->wal_frames >= WAL_FRAMES_FIRM;
    const int mode = truncate || sl_wal_risk() ? SQLITE_CHECKPOINT_TRUNCATE
                   : firm ? SQLITE_CHECKPOINT_RESTART : SQLITE_CHECKPOINT_PASSIVE;

    assert(!sl->d.in_tx && sl->d.side.held);
    sl->busy_until_us = sl->d.env->mono_us(sl->d.env->ctx) + (mode == SQLITE_CHECKPOINT_PASSIVE ? 0
                                                          : READERS_US);
    const int code = sqlite3_wal_checkpoint_v2(sl->db, NULL, mode, &log_n, &done_n);
    if (code == SQLITE_BUSY) { /* a reader or writer is in the way: the next one tries again */
        if (firm) /* but who waits must not do so at every commit */
            sl->ckpt_at = sl->wal_frames + WAL_FRAMES_MAX;
        return PAWL_OK;
    }
    if (code != SQLITE_OK)
        return sl_fail(sl, e, "checkpoint");
    /* A pinned log cannot be reset: do not pay a sync for every commit then. */
    sl->ckpt_at = done_n < log_n ? sl->wal_frames + WAL_FRAMES_MAX : WAL_FRAMES_MAX;
    if (mode == SQLITE_CHECKPOINT_TRUNCATE)
        atomic_store(&sl->d.side.page->frames, 0);
    return PAWL_OK;
}

void sl_leave(struct sqlite *sl)
{
    struct pawl_error e;

    assert(!sl->d.in_tx);
    if (!sl->d.side.held)
        return;
    if (sl->wal_frames < WAL_FRAMES_MAX)
        sl->ckpt_at = WAL_FRAMES_MAX;
    if (sl->db != NULL && sl->wal_frames >= sl->ckpt_at) {
        if (sl_checkpoint(sl, false, &e) != PAWL_OK)
            log_line(LOG_WARN, "store.checkpoint", "s:why", e.msg, NULL);
    }
    side_unlock(&sl->d.side);
}

static int64_t wal_bytes(struct sqlite *sl)
{
    struct stat sb;
    struct buf name = {0};
    int64_t n = 0;

    buf_printf(&name, "%s-wal", sl->path);
    if (stat(buf_str(&name), &sb) == 0)
        n = sb.st_size;
    buf_free(&name);
    return n;
}

#define ROOM_BYTES (1 << 20) /* less than this, and "full" is the disk's word, not the job's */

bool sl_sound(struct store *st)
{
    struct sqlite *sl = sl_of(st);
    struct pawl_error e;
    struct statvfs fs;

    if (statvfs(sl->path, &fs) != 0 || (uint64_t)fs.f_bavail * fs.f_frsize < ROOM_BYTES)
        return false;
    if (sl_begin(sl, &e) != PAWL_OK)
        return false;
    /* 64 KiB that need pages of their own: a full file, too, is a fault of the store. */
    if (db_count(&sl->d, "probes", 1, &e) != PAWL_OK ||
        sl_exec(sl, "INSERT INTO pawl_x_counter (name, value) VALUES (hex(zeroblob(32768)), 0);"
                    "DELETE FROM pawl_x_counter WHERE length(name) = 65536", &e) != PAWL_OK) {
        sl_rollback(sl);
        return false;
    }
    return sl_commit(sl, &e) == PAWL_OK; /* the side lock stays with the batch, see sl_effect_end */
}

/* Called by workers about once a second: an idle file gets its log back under the limit, and what
 * hinders that is said, at most once a minute. */
enum pawl_rc sl_maintain(struct store *st, struct pawl_error *e)
{
    struct sqlite *sl = sl_of(st);
    const int64_t bytes = wal_bytes(sl);
    const int64_t now = st->env->mono_us(st->env->ctx);
    enum pawl_rc rc;

    if (sl->db == NULL && (rc = sl_connect(sl, false, e)) != PAWL_OK)
        return rc;
    if ((rc = sl_same_file(sl, e)) != PAWL_OK)
        return rc;
    if (bytes <= WAL_BYTES_SHRINK)
        return PAWL_OK;
    if ((rc = side_lock(&sl->d.side, 1000000, e)) != PAWL_OK)
        return rc == PAWL_BUSY ? PAWL_OK : rc;
    rc = sl_checkpoint(sl, true, e);
    side_unlock(&sl->d.side);
    if (rc == PAWL_OK && wal_bytes(sl) > WAL_BYTES_WARN && now >= sl->warned_wal_us) {
        sl->warned_wal_us = now + 60000000;
        log_line(LOG_WARN, "store.wal_pinned", "i:bytes", wal_bytes(sl), "s:why",
                 "a long-open read transaction of another process keeps the write-ahead log from"
                 " being reset; it shrinks within a minute after that transaction ends", NULL);
    }
    return rc;
}
