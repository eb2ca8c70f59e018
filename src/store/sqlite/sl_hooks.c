// SPDX-License-Identifier: Apache-2.0
/* sl_hooks.c - what SQLite asks us: may this commit, may this statement, shall I wait, go on?
 *
 * Keeps: only Pawl commits; users' statements leave transactions, settings and private tables
 * alone.
 */
#include <time.h>
#include "store/sqlite/sl.h"

/* Only sl_commit lets a COMMIT through. A handler's own COMMIT, or a stray autocommit write after
 * an automatic rollback, turns into a rollback: only Pawl commits. Plain reads and
 * statements outside a transaction of ours do not come here unless they write. */
static int on_commit(void *ctx)
{
    struct sqlite *sl = ctx;

    return sl->committing ? 0 : 1;
}

static int on_wal(void *ctx, sqlite3 *db, const char *name, int frames)
{
    struct sqlite *sl = ctx;

    (void)db;
    (void)name;
    sl->wal_frames = frames;
    return SQLITE_OK;
}

/* Own busy loop: short jittered naps until the bound that sl_begin set. SQLite's own handler naps
 * up to 100 ms and so starves behind a busy writer (measured). */
int sl_on_busy(void *ctx, int count)
{
    struct sqlite *sl = ctx;
    const int64_t now = sl->d.env->mono_us(sl->d.env->ctx);
    const int64_t nap_max = count < 20 ? 200 : 2000;

    side_beat(&sl->d.side);
    if (now >= sl->busy_until_us)
        return 0;
    const struct timespec ts = {
        .tv_nsec = (long)(50 + env_below(sl->d.env, (uint64_t)nap_max)) * 1000 };
    nanosleep(&ts, NULL);
    return 1;
}

int sl_on_progress(void *ctx)
{
    struct sqlite *sl = ctx;

    if (sl->stop != NULL && *sl->stop != 0)
        return 1;
    if (sl->deadline_us != 0 && sl->d.env->mono_us(sl->d.env->ctx) >= sl->deadline_us) {
        sl->timed_out = true;
        return 1;
    }
    return 0;
}

/* Names that are ours to give: a trigger or view of such a name would pass for our own door. */
static bool is_ours(const char *name)
{
    return name != NULL && sqlite3_strnicmp(name, "pawl_", 5) == 0;
}

static bool is_schema_change(int action)
{
    switch (action) {
    case SQLITE_CREATE_TRIGGER: case SQLITE_CREATE_TEMP_TRIGGER: case SQLITE_DROP_TRIGGER:
    case SQLITE_DROP_TEMP_TRIGGER: case SQLITE_CREATE_VIEW: case SQLITE_CREATE_TEMP_VIEW:
    case SQLITE_DROP_VIEW: case SQLITE_DROP_TEMP_VIEW: case SQLITE_CREATE_TABLE:
    case SQLITE_CREATE_TEMP_TABLE: case SQLITE_CREATE_VTABLE: case SQLITE_DROP_TABLE:
    case SQLITE_DROP_TEMP_TABLE: case SQLITE_ALTER_TABLE: return true;
    default: return false;
    }
}

static bool is_private(const char *name)
{
    return name != NULL && sqlite3_strnicmp(name, "pawl_x_", 7) == 0;
}

/* Pragmas that only read, without an argument or of a schema object. */
static bool harmless_pragma(const char *name, const char *arg)
{
    static const char *const of_object[] = {
        "table_info", "table_xinfo", "index_list", "index_info", "index_xinfo", "foreign_key_list",
    };
    static const char *const names[] = {
        "data_version", "page_size", "page_count", "freelist_count", "encoding", "user_version",
        "schema_version", "application_id", "table_list", "database_list", "collation_list",
        "function_list", "module_list", "pragma_list", "compile_options",
    };

    for (size_t i = 0; name != NULL && i < sizeof of_object / sizeof *of_object; i++)
        if (sqlite3_stricmp(name, of_object[i]) == 0)
            return true;
    for (size_t i = 0; name != NULL && arg == NULL && i < sizeof names / sizeof *names; i++)
        if (sqlite3_stricmp(name, names[i]) == 0)
            return true;
    return false;
}

/* What users' statements may not do. inner: the innermost trigger or view, so that our own door
 * (INSERT INTO pawl_enqueue) may write our tables. Reading private tables through our views is
 * fine; directly it is refused: they are not the contract. */
static int authorize(struct sqlite *sl, int action, const char *a, const char *b,
                     const char *inner)
{
    const bool ours = inner != NULL && sqlite3_strnicmp(inner, "pawl_", 5) == 0 &&
                      sqlite3_strnicmp(inner, "pawl_x_", 7) != 0;

    if (is_schema_change(action) && (is_ours(a) || is_ours(b))) {
        sl->refused = "CREATE, ALTER or DROP for a name that begins with pawl_";
        return SQLITE_DENY;
    }
    switch (action) {
    case SQLITE_TRANSACTION: sl->refused = "BEGIN, COMMIT or ROLLBACK"; return SQLITE_DENY;
    case SQLITE_SAVEPOINT: sl->refused = "SAVEPOINT or RELEASE"; return SQLITE_DENY;
    case SQLITE_ATTACH: case SQLITE_DETACH: sl->refused = "ATTACH or DETACH"; return SQLITE_DENY;
    case SQLITE_PRAGMA:
        if (harmless_pragma(a, b)) /* FTS and other modules read these themselves */
            return SQLITE_OK;
        sl->refused = "PRAGMA";
        return SQLITE_DENY;
    case SQLITE_READ:
        if (b != NULL && *b == '\0') /* a table of a view of which no column is used */
            return SQLITE_OK;
        /* fall through */
    case SQLITE_INSERT: case SQLITE_UPDATE: case SQLITE_DELETE:
    case SQLITE_DROP_TABLE: case SQLITE_ALTER_TABLE: case SQLITE_DROP_VIEW:
    case SQLITE_DROP_TRIGGER: case SQLITE_DROP_INDEX: case SQLITE_CREATE_TRIGGER:
    case SQLITE_CREATE_INDEX:
        if (action != SQLITE_READ && a != NULL && sqlite3_stricmp(a, "sqlite_sequence") == 0 &&
            !ours) {
            sl->refused = "sqlite_sequence, which keeps job ids from being used again";
            return SQLITE_DENY;
        }
        if ((is_private(a) || is_private(b)) && !ours) {
            sl->refused = "a table that is private to Pawl (pawl_x_...)";
            return SQLITE_DENY;
        }
        return SQLITE_OK;
    default: return SQLITE_OK;
    }
}

static int on_authorize(void *ctx, int action, const char *a, const char *b, const char *db,
                        const char *inner)
{
    struct sqlite *sl = ctx;

    (void)db;
    if (!sl->guarded)
        return SQLITE_OK;
    const int answer = authorize(sl, action, a, b, inner);
    if (answer != SQLITE_OK && sl->raw && sl->raw_refused == NULL)
        sl->raw_refused = sl->refused;
    return answer;
}

void sl_hooks(struct sqlite *sl)
{
    sqlite3_wal_hook(sl->db, on_wal, sl); /* replaces the autocheckpoint */
    sqlite3_commit_hook(sl->db, on_commit, sl);
    sqlite3_busy_handler(sl->db, sl_on_busy, sl);
    sqlite3_set_authorizer(sl->db, on_authorize, sl);
}
