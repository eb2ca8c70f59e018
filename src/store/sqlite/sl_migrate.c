// SPDX-License-Identifier: Apache-2.0
/* sl_migrate.c - forward-only migrations, embedded at build time from sql/sqlite/.
 *
 * Keeps: the version row is written first, in the same transaction as its migration, so that two
 *        installers cannot both run one; views and triggers are created anew whole.
 *        A binary refuses a store with a newer breaking migration, and says which.
 */
#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include "base/err.h"
#include "base/fail.h"
#include "store/sqlite/sl.h"
#include "store/sqlembed.h"
#include "store/verb/mover.h"

static int newest(void)
{
    return sql_newest(sql_sqlite_files, sql_sqlite_files_n);
}

/* The store's highest migration, and the highest breaking one; 0: no Pawl tables. */
static enum pawl_rc versions(struct sqlite *sl, int *have, int *breaking, struct pawl_error *e)
{
    sqlite3_stmt *q = NULL;
    enum pawl_rc rc = PAWL_OK;

    *have = *breaking = 0;
    if (sqlite3_prepare_v2(sl->db, "SELECT 1 FROM sqlite_master WHERE name = 'pawl_x_migration'",
                           -1,
                           &q, NULL) != SQLITE_OK)
        return sl_fail(sl, e, "not a Pawl store");
    const int code = sqlite3_step(q);
    if (code != SQLITE_ROW && code != SQLITE_DONE)
        rc = sl_fail(sl, e, "read schema");
    sqlite3_finalize(q);
    if (rc != PAWL_OK || code == SQLITE_DONE)
        return rc;
    if (sqlite3_prepare_v2(sl->db,
                           "SELECT coalesce(max(version), 0), coalesce(max(CASE WHEN breaking"
                           " THEN version END), 0) FROM pawl_x_migration", -1, &q,
                               NULL) != SQLITE_OK ||
        sqlite3_step(q) != SQLITE_ROW) {
        rc = sl_fail(sl, e, "read migrations");
    } else {
        *have = sqlite3_column_int(q, 0);
        *breaking = sqlite3_column_int(q, 1);
    }
    sqlite3_finalize(q);
    return rc;
}

enum pawl_rc sl_version_check(struct sqlite *sl, struct pawl_error *e)
{
    int have = 0, breaking = 0;
    enum pawl_rc rc = versions(sl, &have, &breaking, e);

    if (rc != PAWL_OK)
        return rc;
    if (have == 0)
        return pawl_fail(e, PAWL_NOSTORE,
                         "no store at %s: the database has no Pawl tables; run pawl"
                         " init, or pawl_init()", sl->path);
    if (breaking > newest())
        return pawl_fail(e, PAWL_NEWER, "%s was migrated to version %d by a newer pawl; this one"
                         " (" PAWL_VERSION ") knows %d", sl->path, breaking, newest());
    if (have < newest())
        return pawl_fail(e, PAWL_OLDER, "%s is at migration %d, this pawl needs %d; run pawl init",
                         sl->path, have, newest());
    return sl->closed_ok ? PAWL_OK : db_mark_check(&sl->d, sl->path, e);
}

static enum pawl_rc mark(struct sqlite *sl, int version, const char *name, bool breaking,
                         struct pawl_error *e)
{
    sqlite3_stmt *q = NULL;
    enum pawl_rc rc;

    if (sqlite3_prepare_v2(sl->db, "INSERT INTO pawl_x_migration (version, name, breaking,"
            " applied_at_us, applied_by) VALUES (?1, ?2, ?3, ?4, 'pawl " PAWL_VERSION "')", -1, &q,
            NULL) != SQLITE_OK)
        return sl_fail(sl, e, "migrate");
    sqlite3_bind_int(q, 1, version);
    sl_text(q, 2, name);
    sqlite3_bind_int(q, 3, breaking);
    sqlite3_bind_int64(q, 4, sl->d.env->wall_us(sl->d.env->ctx));
    rc = sl_run(sl, q, e);
    sqlite3_finalize(q);
    return rc;
}

/* Before the first migration: what bears our names is somebody else's. A migration is one
 * transaction,
 * so it cannot be half a store of ours. */
static enum pawl_rc names_free(struct sqlite *sl, struct pawl_error *e)
{
    sqlite3_stmt *q = NULL;
    enum pawl_rc rc = PAWL_OK;

    if (sqlite3_prepare_v2(sl->db, "SELECT type, name FROM sqlite_master WHERE name GLOB 'pawl_*'"
                           " LIMIT 1", -1, &q, NULL) != SQLITE_OK)
        return sl_fail(sl, e, "read schema");
    if (sqlite3_step(q) == SQLITE_ROW)
        rc = pawl_fail(e, PAWL_NOTOURS,
                       "%s has a %s %.100s that Pawl did not make: names that begin"
                       " with pawl_ are Pawl's; rename it, or give another file", sl->path,
                       (const char *)sqlite3_column_text(q, 0), (const char *)sqlite3_column_text(q,
                               1));
    sqlite3_finalize(q);
    return rc;
}

/* In a UTF-16 database lengths and bytes of texts differ by door. */
static enum pawl_rc utf8_only(struct sqlite *sl, struct pawl_error *e)
{
    sqlite3_stmt *q = NULL;
    enum pawl_rc rc = PAWL_OK;

    if (sqlite3_prepare_v2(sl->db, "PRAGMA encoding", -1, &q, NULL) != SQLITE_OK ||
        sqlite3_step(q) != SQLITE_ROW)
        rc = sl_fail(sl, e, "read encoding");
    else if (sqlite3_stricmp((const char *)sqlite3_column_text(q, 0), "UTF-8") != 0)
        rc = pawl_fail(e, PAWL_NOTOURS, "%s is a %s database: Pawl needs one whose encoding is"
                       " UTF-8", sl->path, (const char *)sqlite3_column_text(q, 0));
    sqlite3_finalize(q);
    return rc;
}

static enum pawl_rc migrate_inside(struct sqlite *sl, bool *created, struct pawl_error *e)
{
    int have = 0, breaking = 0;
    enum pawl_rc rc;

    if ((rc = versions(sl, &have, &breaking, e)) != PAWL_OK)
        return rc;
    if (breaking > newest())
        return pawl_fail(e, PAWL_NEWER, "%s was migrated to version %d by a newer pawl; this one"
                         " (" PAWL_VERSION ") knows %d", sl->path, breaking, newest());
    *created = have == 0;
    if (have != 0 && (rc = db_mark_check(&sl->d, sl->path, e)) != PAWL_OK)
        return rc;
    if (have == 0 && (rc = utf8_only(sl, e)) != PAWL_OK)
        return rc;
    if (have == 0 && (rc = names_free(sl, e)) != PAWL_OK)
        return rc;
    if ((rc = sl_exec(sl, "CREATE TABLE IF NOT EXISTS pawl_x_migration (version INTEGER PRIMARY"
                          " KEY,"
                      " name TEXT NOT NULL, breaking INTEGER NOT NULL, applied_at_us INTEGER NOT"
                      " NULL,"
                      " applied_by TEXT NOT NULL) STRICT", e)) != PAWL_OK)
        return rc;
    if (fail_point("init.begin"))
        return pawl_fail(e, PAWL_IO, "failpoint init.begin");
    for (size_t i = 0; i < sql_sqlite_files_n; i++) { /* sorted by name */
        const struct sql_file *f = &sql_sqlite_files[i];
        const int version = sql_number(f->name);

        if (version != 0 && version <= have)
            continue;
        if (version != 0 &&
            (rc = mark(sl, version, f->name, sql_is_breaking(f->text), e)) != PAWL_OK)
            return pawl_wrap(e, "%s", f->name);
        if ((rc = sl_exec(sl, f->text, e)) != PAWL_OK)
            return pawl_wrap(e, "%s", f->name);
        if (fail_point("init.middle"))
            return pawl_fail(e, PAWL_IO, "failpoint init.middle");
    }
    return PAWL_OK;
}

enum pawl_rc sl_migrate(struct sqlite *sl, bool create, bool *created, struct pawl_error *e)
{
    enum pawl_rc rc;

    (void)create;
    if ((rc = sl_begin(sl, e)) != PAWL_OK)
        return rc;
    if ((rc = migrate_inside(sl, created, e)) == PAWL_OK)
        rc = sl_commit(sl, e);
    else
        sl_rollback(sl);
    sl_leave(sl);
    if (rc == PAWL_OK && fail_point("init.end"))
        return pawl_fail(e, PAWL_IO, "failpoint init.end");
    return rc;
}
