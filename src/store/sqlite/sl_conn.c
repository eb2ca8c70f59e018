// SPDX-License-Identifier: Apache-2.0
/* sl_conn.c - the connection: open, settings read back, statements, errors, guards.
 *
 * Keeps: synchronous=FULL and WAL are read back, never believed; COMMIT only by sl_commit;
 *        autocheckpoint off (sl_tx.c checkpoints, under the side lock).
 */
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#include "base/err.h"
#include "base/log.h"
#include "store/sqlite/sl.h"
#include "store/verb/mover.h"

/* 3.51.3 fixed the WAL-reset race; 3.50.7 and 3.44.6 carry the fix on their branches
 * (sqlite.org/wal.html, "the WAL-reset bug"). */
bool sl_wal_risk(void)
{
    const int v = sqlite3_libversion_number();

    if (v >= 3051003)
        return false;
    if (v >= 3050007 && v < 3051000)
        return false;
    return !(v >= 3044006 && v < 3045000);
}

enum pawl_rc sl_rc(int code)
{
    switch (code & 0xff) {
    case SQLITE_OK: case SQLITE_ROW: case SQLITE_DONE: return PAWL_OK;
    case SQLITE_BUSY: case SQLITE_LOCKED: case SQLITE_PROTOCOL: return PAWL_BUSY;
    case SQLITE_FULL: return PAWL_FULL;
    case SQLITE_IOERR: return code == SQLITE_IOERR_NOMEM ? PAWL_NOMEM : PAWL_IO;
    case SQLITE_NOMEM: return PAWL_NOMEM;
    case SQLITE_PERM: case SQLITE_READONLY: return PAWL_DENIED;
    case SQLITE_NOTADB: case SQLITE_CORRUPT: return PAWL_NOTOURS;
    case SQLITE_CANTOPEN: return PAWL_IO;
    default: return PAWL_STORE;
    }
}

enum pawl_rc sl_fail(struct sqlite *sl, struct pawl_error *e, const char *what)
{
    const int code = sl->db != NULL ? sqlite3_extended_errcode(sl->db) : SQLITE_CANTOPEN;
    const int err = sl->db != NULL ? sqlite3_system_errno(sl->db) : 0;
    enum pawl_rc rc = sl_rc(code);

    /* The log's shared index has no code of its own for "no space left". */
    if (rc == PAWL_IO && (err == ENOSPC || err == EDQUOT))
        return pawl_fail_native(e, PAWL_FULL, code, "%s: %s (SQLite code %d)", what, strerror(err),
                                code);
    if ((code & 0xff) == SQLITE_BUSY)
        return pawl_fail_native(e, rc, code, "%s: %s by another program's transaction (SQLite code"
                                " %d); end that one, or try again", what, sqlite3_errmsg(sl->db),
                                code);
    if (code == SQLITE_CONSTRAINT_TRIGGER &&
        strncmp(sqlite3_errmsg(sl->db), DB_MARK_SAYS, sizeof DB_MARK_SAYS - 1) == 0)
        return pawl_fail_native(e, PAWL_MOVED, code, "%s: %s", sl->path,
                                sqlite3_errmsg(sl->db) + strlen("pawl: "));
    if (rc == PAWL_OK) /* an error was seen, so the code was overwritten meanwhile */
        rc = PAWL_STORE;
    return pawl_fail_native(e, rc, code, "%s: %s (SQLite code %d)", what,
                            sl->db != NULL ? sqlite3_errmsg(sl->db) : "no connection", code);
}

enum pawl_rc sl_exec(struct sqlite *sl, const char *sql, struct pawl_error *e)
{
    if (sqlite3_exec(sl->db, sql, NULL, NULL, NULL) != SQLITE_OK)
        return sl_fail(sl, e, "store");
    return PAWL_OK;
}

enum pawl_rc sl_q(struct sqlite *sl, enum q_id id, sqlite3_stmt **out, struct pawl_error *e)
{
    assert(id < Q_N);
    assert(sl->d.in_tx || sl->owner_pid == getpid()); /* sl_begin looks, too: never across fork() */
    if (sl->q[id] == NULL &&
        sqlite3_prepare_v3(sl->db, q_text_of[id], -1, SQLITE_PREPARE_PERSISTENT, &sl->q[id],
                           NULL) != SQLITE_OK)
        return sl_fail(sl, e, "store: prepare");
    sqlite3_reset(sl->q[id]);
    sqlite3_clear_bindings(sl->q[id]);
    *out = sl->q[id];
    return PAWL_OK;
}

enum pawl_rc sl_run(struct sqlite *sl, sqlite3_stmt *q, struct pawl_error *e)
{
    const int rc = sqlite3_step(q);

    if (rc == SQLITE_DONE || rc == SQLITE_ROW) {
        sqlite3_reset(q);
        return PAWL_OK;
    }
    const enum pawl_rc prc = sl_fail(sl, e, "store");
    sqlite3_reset(q);
    return prc;
}

enum pawl_rc sl_row(struct sqlite *sl, sqlite3_stmt *q, bool *row, struct pawl_error *e)
{
    const int rc = sqlite3_step(q);

    *row = rc == SQLITE_ROW;
    if (rc == SQLITE_ROW)
        return PAWL_OK;
    if (rc == SQLITE_DONE) {
        sqlite3_reset(q);
        return PAWL_OK;
    }
    const enum pawl_rc prc = sl_fail(sl, e, "store");
    sqlite3_reset(q);
    return prc;
}

void sl_text_n(sqlite3_stmt *q, int i, const char *s, size_t n)
{
    if (s == NULL)
        sqlite3_bind_null(q, i);
    else
        sqlite3_bind_text64(q, i, s, n, SQLITE_STATIC, SQLITE_UTF8);
}

void sl_text(sqlite3_stmt *q, int i, const char *s)
{
    sl_text_n(q, i, s, s != NULL ? strlen(s) : 0);
}

char *sl_dup(struct arena *a, sqlite3_stmt *q, int col)
{
    const void *p = sqlite3_column_text(q, col);

    return p == NULL ? NULL : arena_dup(a, p, (size_t)sqlite3_column_bytes(q, col));
}

/* --- opening --- */

static enum pawl_rc pragma_is(struct sqlite *sl, const char *sql, const char *want,
                              struct pawl_error *e)
{
    sqlite3_stmt *q = NULL;
    enum pawl_rc rc = PAWL_OK;

    if (sqlite3_prepare_v2(sl->db, sql, -1, &q, NULL) != SQLITE_OK ||
        sqlite3_step(q) != SQLITE_ROW) {
        rc = sl_fail(sl, e, sql);
    } else if (sqlite3_stricmp((const char *)sqlite3_column_text(q, 0), want) != 0) {
        rc = pawl_fail(e, PAWL_STORE, "%s: got \"%s\", need \"%s\"", sql,
                       (const char *)sqlite3_column_text(q, 0), want);
    }
    sqlite3_finalize(q);
    return rc;
}

/* When several make a store at once, SQLite may refuse this one BUSY without asking the busy
 * handler
 * (a lock that would have to be upgraded): so ask again here, as long as the handler would. */
static enum pawl_rc wal_mode(struct sqlite *sl, struct pawl_error *e)
{
    enum pawl_rc rc;

    for (int i = 0;; i++)
        if ((rc = pragma_is(sl, "PRAGMA journal_mode = WAL", "wal", e)) != PAWL_BUSY ||
            sl_on_busy(sl, i) == 0)
            return rc;
}

static enum pawl_rc settings(struct sqlite *sl, struct pawl_error *e)
{
    enum pawl_rc rc;

    if ((rc = wal_mode(sl, e)) != PAWL_OK)
        return rc;
    if ((rc = sl_exec(sl, "PRAGMA synchronous = FULL", e)) != PAWL_OK)
        return rc;
    if ((rc = pragma_is(sl, "PRAGMA synchronous", "2", e)) != PAWL_OK)
        return rc;
    if ((rc = sl_exec(sl, "PRAGMA wal_autocheckpoint = 0; PRAGMA journal_size_limit = 8388608;"
                          "PRAGMA foreign_keys = ON; PRAGMA temp_store = MEMORY;"
                          "PRAGMA recursive_triggers = OFF", e)) != PAWL_OK)
        return rc;
    for (size_t i = 0; i < sl->on_connect_n; i++)
        if ((rc = sl_exec(sl, sl->on_connect[i], e)) != PAWL_OK)
            return pawl_wrap(e, "on_connect \"%.60s\"", sl->on_connect[i]);
    /* on_connect is the user's: what durability rests on is read back after it. */
    if ((rc = pragma_is(sl, "PRAGMA synchronous", "2", e)) != PAWL_OK)
        return rc;
    if ((rc = pragma_is(sl, "PRAGMA journal_mode", "wal", e)) != PAWL_OK)
        return rc;
    sl_hooks(sl);
    return sl_gather(sl, e);
}

static void dir_of(const char *path, char *out, size_t n)
{
    const char *slash = strrchr(path, '/');

    if (slash == NULL)
        snprintf(out, n, ".");
    else
        snprintf(out, n, "%.*s", slash == path ? 1 : (int)(slash - path), path);
}

/* SQLite makes its log, and Pawl its side directory, beside the file: who may not write there can
 * open nothing, and SQLite's own words for it ("readonly database") mislead. rc stays if that is
 * not the reason. */
enum pawl_rc sl_explain_denied(struct sqlite *sl, enum pawl_rc rc, struct pawl_error *e)
{
    char dir[PATH_MAX];

    if (rc != PAWL_DENIED && rc != PAWL_IO && rc != PAWL_NOCREATE)
        return rc;
    dir_of(sl->path, dir, sizeof dir);
    if (faccessat(AT_FDCWD, dir, W_OK | X_OK, AT_EACCESS) == 0)
        return rc;
    const int err = errno;
    if (rc == PAWL_NOCREATE)
        return pawl_fail_native(e, rc, err, "cannot create %s: its directory %s: %s", sl->path, dir,
                                strerror(err));
    if (err != EACCES && err != EPERM && err != EROFS)
        return rc;
    return pawl_fail_native(e, PAWL_DENIED, err, "%s: cannot write in its directory %s: %s;"
                            " SQLite's log and Pawl's side directory lie there, so that even who"
                            " reads needs write permission on it", sl->path, dir, strerror(err));
}

/* A path that is not absolute says little to whoever reads it elsewhere. */
static enum pawl_rc no_store(const char *path, struct pawl_error *e)
{
    char dir[512];

    if (*path == '/' || getcwd(dir, sizeof dir) == NULL)
        return pawl_fail(e, PAWL_NOSTORE, "no store at %s; run pawl init, or pawl_init()", path);
    return pawl_fail(e, PAWL_NOSTORE, "no store at %s/%s; run pawl init, or pawl_init()",
                     strcmp(dir, "/") == 0 ? "" : dir, path);
}

static enum pawl_rc open_failed(struct sqlite *sl, bool create, struct pawl_error *e)
{
    struct stat sb;
    const int code = sl->db != NULL ? sqlite3_extended_errcode(sl->db) : SQLITE_NOMEM;
    const int err = sl->db != NULL ? sqlite3_system_errno(sl->db) : ENOMEM;

    if (stat(sl->path, &sb) != 0 && errno == ENOENT && !create)
        return no_store(sl->path, e);
    if (stat(sl->path, &sb) == 0 && !S_ISREG(sb.st_mode))
        return pawl_fail(e, create ? PAWL_NOCREATE : PAWL_NOTOURS,
                         "%s is not a regular file: give the path of a database file", sl->path);
    if (access(sl->path, R_OK) != 0 && errno == EACCES)
        return pawl_fail_native(e, PAWL_DENIED, code, "%s: permission denied", sl->path);
    if (sl->db == NULL || (code & 0xff) == SQLITE_NOMEM)
        return pawl_fail_native(e, PAWL_NOMEM, code, "cannot open %s: out of memory", sl->path);
    const enum pawl_rc rc =
        pawl_fail_native(e, create ? PAWL_NOCREATE : PAWL_IO, code, "cannot open %s: %s", sl->path,
                         err != 0 ? strerror(err) : sqlite3_errstr(code));
    return sl_explain_denied(sl, rc, e);
}

/* A second hard link would get a log of its own: two logs on one file lose commits. And remember
 * which file this is: one that is moved over it later is another. */
static enum pawl_rc one_file(struct sqlite *sl, struct pawl_error *e)
{
    struct stat sb;

    if (stat(sl->path, &sb) != 0)
        return pawl_fail_errno(e, errno, "%s", sl->path);
    if (S_ISREG(sb.st_mode) && sb.st_nlink > 1)
        return pawl_fail(e, PAWL_NOTOURS, "%s has %lu hard links: each name would get a write-ahead"
                         " log of its own, and commits would be lost; keep one", sl->path,
                         (unsigned long)sb.st_nlink);
    struct statx sx;
    if (statx(AT_FDCWD, sl->path, 0, STATX_INO, &sx) == 0 &&
        (sx.stx_attributes_mask & STATX_ATTR_MOUNT_ROOT) != 0 &&
        (sx.stx_attributes & STATX_ATTR_MOUNT_ROOT) != 0)
        return pawl_fail(e, PAWL_NOTOURS, "%s is a mount of a single file: its write-ahead log lies"
                         " beside it and would be another one here; mount its directory", sl->path);
    sl->file_dev = sb.st_dev;
    sl->file_ino = sb.st_ino;
    sl_fork_note(sl->file_dev, sl->file_ino);
    sl->noted = true;
    return PAWL_OK;
}

/* Before a transaction: is the file that we write still the one of that name? */
enum pawl_rc sl_same_file(struct sqlite *sl, struct pawl_error *e)
{
    struct stat sb;

    if (stat(sl->path, &sb) == 0 && sb.st_dev == sl->file_dev && sb.st_ino == sl->file_ino)
        return PAWL_OK;
    return pawl_fail(e, PAWL_NOSTORE, "%s was replaced or removed while it was in use; start again",
                     sl->path);
}

enum pawl_rc sl_connect(struct sqlite *sl, bool create, struct pawl_error *e)
{
    /* Private: a host may share caches between its connections, and with them locks and files. */
    const int flags = SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_PRIVATECACHE |
                      (create ? SQLITE_OPEN_CREATE : 0);
    struct stat sb;
    enum pawl_rc rc;

    if (!create && stat(sl->path, &sb) != 0 && (errno == ENOENT || errno == ENOTDIR))
        return no_store(sl->path, e);
    if (stat(sl->path, &sb) == 0 &&
        (rc = sl_fork_check(sb.st_dev, sb.st_ino, sl->path, e)) != PAWL_OK)
        return rc;
    sl_files_before(sl);
    if (sqlite3_open_v2(sl->path, &sl->db, flags, NULL) != SQLITE_OK) {
        rc = open_failed(sl, create, e);
        goto fail;
    }
    if (sqlite3_db_readonly(sl->db, "main") == 1) {
        rc = pawl_fail(e, PAWL_DENIED, "%s is read-only: Pawl needs to write", sl->path);
        goto fail;
    }
    /* By its real name, as SQLite names the log: two names of one file must not have two side
     * directories, or two workers would not see each other. */
    char *real = realpath(sl->path, NULL);
    if (real != NULL) {
        free(sl->path);
        sl->path = real;
    }
    if ((rc = one_file(sl, e)) != PAWL_OK)
        goto fail;
    sl->owner_pid = getpid();
    sqlite3_extended_result_codes(sl->db, 1);
    sqlite3_busy_handler(sl->db, sl_on_busy, sl);
    sl->busy_until_us = sl->d.env->mono_us(sl->d.env->ctx) + sl->wait_us;
    /* Before the settings: they would turn a stranger's database, or an empty file, into WAL. */
    rc = create ? PAWL_OK : sl_version_check(sl, e);
    if (rc == PAWL_NOSTORE || rc == PAWL_NEWER || rc == PAWL_OLDER || rc == PAWL_MOVED)
        goto fail;
    if (rc == PAWL_OK)
        rc = settings(sl, e);
    if (rc == PAWL_NOTOURS && sqlite3_errcode(sl->db) == SQLITE_NOTADB)
        rc = pawl_fail_native(e, rc, SQLITE_NOTADB, "%s is not an SQLite database", sl->path);
    else if (rc == PAWL_IO && stat(sl->path, &sb) == 0 && !S_ISREG(sb.st_mode))
        rc = open_failed(sl, create, e);
    else if (rc != PAWL_OK)
        rc = sl_explain_denied(sl, pawl_wrap(e, "%s", sl->path), e);
    if (rc != PAWL_OK)
        goto fail;
    sl_files_after(sl);
    return PAWL_OK;
fail:
    sl_disconnect(sl);
    return rc;
}

void sl_disconnect(struct sqlite *sl)
{
    for (struct store_stmt *s = sl->user; s != NULL; s = s->next) {
        sqlite3_finalize(s->st);
        s->st = NULL;
    }
    for (int i = 0; i < Q_N; i++) {
        sqlite3_finalize(sl->q[i]);
        sl->q[i] = NULL;
    }
    sl->d.in_tx = false;
    sl->d.effect_open = sl->d.savepoint = false;
    if (sl->db != NULL)
        sqlite3_close_v2(sl->db);
    sl->db = NULL;
    if (sl->noted)
        sl_fork_forget(sl->file_dev, sl->file_ino);
    sl->noted = false;
}

/* After an error that leaves the connection in doubt (a failed sync above all): never retry the
 * sync, close, open again, and read. */
enum pawl_rc sl_reopen(struct sqlite *sl, struct pawl_error *e)
{
    sl_disconnect(sl);
    return sl_connect(sl, false, e);
}
