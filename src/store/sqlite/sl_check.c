// SPDX-License-Identifier: Apache-2.0
/* sl_check.c - SQLite's own checks of the file. */
#include <stdio.h>
#include <string.h>
#include "base/err.h"
#include "store/sqlite/sl.h"

/* The engine's own checks, which read the whole file: each in a snapshot of its own, so that they
 * keep the log from being reset for as long as they take, and no longer. One that cannot read the
 * user's schema (a collation or module of his program) has not run: that breaks no invariant. */
static const struct { const char *name, *sql; } engine_checks[] = {
    { "FILE", "PRAGMA quick_check(20)" }, { "FK", "PRAGMA foreign_key_check" },
};
#define ENGINE_N (sizeof engine_checks / sizeof *engine_checks)

static enum pawl_rc engine_check(struct sqlite *sl, size_t i, pawl_finding_fn *fn, void *ctx,
                                 bool *go, int *checked, struct pawl_error *e)
{
    const char *const sql = engine_checks[i].sql, *text;
    sqlite3_stmt *q = NULL;
    bool row = true;
    char what[400];
    enum pawl_rc rc = PAWL_OK;

    if (sqlite3_prepare_v2(sl->db, sql, -1, &q, NULL) != SQLITE_OK)
        rc = sl_fail(sl, e, sql);
    while (*go && rc == PAWL_OK && (rc = sl_row(sl, q, &row, e)) == PAWL_OK && row) {
        text = (const char *)sqlite3_column_text(q, 0);
        if (text != NULL && strcmp(text, "ok") == 0 && i == 0)
            continue;
        snprintf(what, sizeof what, "%s: %.300s", sql, text != NULL ? text : "?");
        const struct pawl_finding f = { engine_checks[i].name, what, 0 };
        *go = fn(ctx, &f);
    }
    if (rc != PAWL_OK && (sqlite3_errcode(sl->db) & 0xff) == SQLITE_ERROR) {
        snprintf(what, sizeof what, "%.300s", sqlite3_errmsg(sl->db));
        const struct pawl_finding f = { engine_checks[i].name, what, -1 };
        *go = fn(ctx, &f);
        rc = PAWL_OK;
    } else {
        ++*checked;
    }
    sqlite3_finalize(q);
    return rc;
}

enum pawl_rc sl_engine_check(struct db *db, pawl_finding_fn *fn, void *ctx, int *checked,
                             struct pawl_error *e)
{
    struct sqlite *sl = sl_from(db);
    enum pawl_rc rc = PAWL_OK;
    bool go = true;

    for (size_t i = 0; i < ENGINE_N && rc == PAWL_OK && go; i++)
        rc = engine_check(sl, i, fn, ctx, &go, checked, e);
    return rc;
}
