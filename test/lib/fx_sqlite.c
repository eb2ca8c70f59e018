// SPDX-License-Identifier: Apache-2.0
/* fx_sqlite.c - the SQLite kind of store. */
#include <sqlite3.h>
#include <stdio.h>
#include <string.h>
#include "lib/fx.h"
#include "lib/vfs.h"
#include "store/sqlite/sl.h"

static void place(struct fx *f, bool with_store)
{
    (void)with_store;
    vfs_install();
    snprintf(f->url, sizeof f->url, "sqlite:%s/store.db", f->dir);
}

/* As a careful user's program: foreign keys on, five seconds of patience. */
static sqlite3 *foreign(struct fx *f)
{
    sqlite3 *db = f->foreign;

    if (db != NULL) return db;
    ck_assert_int_eq(sqlite3_open_v2(f->url + 7, &db, SQLITE_OPEN_READWRITE, NULL), SQLITE_OK);
    sqlite3_busy_timeout(db, 5000);
    sqlite3_extended_result_codes(db, 1);
    f->foreign = db;
    return db;
}

static int run(struct fx *f, const char *sql, char *why, size_t why_n)
{
    char *text = NULL;
    const int rc = sqlite3_exec(foreign(f), sql, NULL, NULL, &text);

    snprintf(why, why_n, "%s", text != NULL ? text : "");
    sqlite3_free(text);
    return rc;
}

static bool ask(struct fx *f, const char *sql, char *out, size_t n)
{
    sqlite3_stmt *q = NULL;
    bool row;

    ck_assert_msg(sqlite3_prepare_v2(foreign(f), sql, -1, &q, NULL) == SQLITE_OK, "%s: %s", sql,
                  sqlite3_errmsg(foreign(f)));
    const int rc = sqlite3_step(q);
    ck_assert_msg(rc == SQLITE_ROW || rc == SQLITE_DONE, "%s: %s", sql, sqlite3_errmsg(foreign(f)));
    row = rc == SQLITE_ROW && sqlite3_column_type(q, 0) != SQLITE_NULL;
    if (row) snprintf(out, n, "%s", (const char *)sqlite3_column_text(q, 0));
    sqlite3_finalize(q);
    return row;
}

static void shut(struct fx *f)
{
    sqlite3_close(f->foreign);
    f->foreign = NULL;
}

/* Steps of the virtual machine in the store's own statements: what a verb costs, whatever the
 * machine is doing besides. */
static int64_t work(struct store *st)
{
    const struct sqlite *sl = sl_of(st);
    int64_t n = 0;

    for (int i = 0; i < Q_N; i++)
        if (sl->q[i] != NULL) n += sqlite3_stmt_status(sl->q[i], SQLITE_STMTSTATUS_VM_STEP, 1);
    return n;
}

static void made_by(struct fx *f, const char *name, char *out, size_t n)
{
    char sql[200];

    snprintf(sql, sizeof sql, "SELECT sql FROM sqlite_master WHERE name = '%s'", name);
    if (!ask(f, sql, out, n)) *out = '\0';
}

const struct fx_kind fx_sqlite = {
    "sqlite", place, run, ask, shut, vfs_wal_syncs, work, NULL, made_by, true,
};
