// SPDX-License-Identifier: Apache-2.0
/* pg_migrate.c - forward-only migrations, embedded at build time from sql/postgres/.
 *
 * Keeps: numbers and meaning are those of SQLite's; one transaction behind a lock of the database,
 *        so that of several installers one works and the others find it done; views and functions
 *        are created anew whole.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/err.h"
#include "base/fail.h"
#include "store/pg/pg.h"
#include "store/sqlembed.h"
#include "store/verb/mover.h"

/* Of the database, for the time of a migration: "pawl" in ASCII. */
#define LOCK_SQL "SELECT pg_advisory_xact_lock(x'7061776c'::bigint)"

static enum pawl_rc ask(struct pg *pg, const char *sql, int *a, int *b, struct pawl_error *e)
{
    struct query *q = NULL;
    bool row = false;
    enum pawl_rc rc = pg_prepare(&pg->d, sql, &q, e);

    if (rc == PAWL_OK && (rc = pg_row(&pg->d, q, &row, e)) == PAWL_OK && row) {
        *a = q_i32(q, 0);
        *b = q_i32(q, 1);
    }
    q_free(q);
    return rc;
}

/* The store's highest migration, and the highest breaking one; 0: no Pawl tables. */
static enum pawl_rc versions(struct pg *pg, int *have, int *breaking, struct pawl_error *e)
{
    int there = 0, utf8 = 0;
    enum pawl_rc rc;

    *have = *breaking = 0;
    /* From the catalog, which everybody may read: who has no right on the schema is told so. */
    rc = ask(pg, "SELECT EXISTS (SELECT FROM pg_catalog.pg_class WHERE relname = 'x_migration' AND"
             " relnamespace = to_regnamespace('pawl')),"
             " current_setting('server_encoding') = 'UTF8'", &there, &utf8, e);
    if (rc == PAWL_OK && utf8 == 0)
        return pawl_fail(e, PAWL_NOTOURS, "the database's encoding is not UTF8: Pawl needs one"
                         " whose encoding is UTF8");
    if (rc != PAWL_OK || there == 0)
        return rc;
    return ask(pg, "SELECT coalesce(max(version), 0), coalesce(max(CASE WHEN breaking THEN version"
               " END), 0) FROM pawl.x_migration", have, breaking, e);
}

static int newest(void)
{
    return sql_newest(sql_postgres_files, sql_postgres_files_n);
}

static enum pawl_rc too_new(int breaking, struct pawl_error *e)
{
    return pawl_fail(e, PAWL_NEWER, "the store was migrated to version %d by a newer pawl; this one"
                     " (" PAWL_VERSION ") knows %d", breaking, newest());
}

enum pawl_rc pg_version_check(struct pg *pg, struct pawl_error *e)
{
    int have = 0, breaking = 0;
    enum pawl_rc rc = versions(pg, &have, &breaking, e);

    if (rc == PAWL_DENIED && e != NULL && pg->c != NULL)
        return pawl_wrap(e, "role %s may not use the store in database %s: connect as a member of"
                         " pawl_worker (sql/postgres/roles.sql)", PQuser(pg->c), PQdb(pg->c));
    if (rc != PAWL_OK)
        return rc;
    if (have == 0)
        return pawl_fail(e, PAWL_NOSTORE, "no store in database %s: it has no Pawl tables; run pawl"
                         " init, or pawl_init()", PQdb(pg->c));
    if (breaking > newest())
        return too_new(breaking, e);
    if (have < newest())
        return pawl_fail(e, PAWL_OLDER, "the store is at migration %d, this pawl needs %d; run pawl"
                         " init", have, newest());
    return pg->closed_ok ? PAWL_OK : db_mark_check(&pg->d, PQdb(pg->c), e);
}

static enum pawl_rc mark(struct pg *pg, const struct sql_file *f, struct pawl_error *e)
{
    struct query *q = NULL;
    enum pawl_rc rc = pg_prepare(&pg->d, "INSERT INTO pawl_x_migration (version, name, breaking,"
            " applied_at_us, applied_by) VALUES (?1, ?2, ?3::int = 1, ?4, 'pawl " PAWL_VERSION
            "')", &q, e);

    if (rc != PAWL_OK)
        return rc;
    q_int(q, 1, sql_number(f->name));
    q_text(q, 2, f->name);
    q_int(q, 3, sql_is_breaking(f->text));
    q_int(q, 4, pg->d.env->wall_us(pg->d.env->ctx));
    rc = pg_run(&pg->d, q, e);
    q_free(q);
    return rc;
}

/* A schema of this name that Pawl did not make is somebody else's. */
static enum pawl_rc own_schema(struct pg *pg, struct pawl_error *e)
{
    int there = 0, tables = 0;
    enum pawl_rc rc = ask(pg, "SELECT to_regnamespace('pawl') IS NOT NULL, (SELECT count(*) FROM"
                          " pg_catalog.pg_class WHERE relnamespace = to_regnamespace('pawl'))",
                          &there, &tables, e);

    if (rc == PAWL_OK && tables > 0)
        rc = pawl_fail(e, PAWL_NOTOURS, "database %s has a schema pawl that Pawl did not make:"
                       " rename it, or give another database", PQdb(pg->c));
    return rc == PAWL_OK && there == 0 ? pg_exec(pg, "CREATE SCHEMA pawl", e) : rc;
}

static enum pawl_rc anew(struct pg *pg, const char *name, struct pawl_error *e)
{
    for (size_t i = 0; i < sql_postgres_files_n; i++)
        if (strcmp(sql_postgres_files[i].name, name) == 0)
            return pg_exec(pg, sql_postgres_files[i].text, e) == PAWL_OK
                ? PAWL_OK : pawl_wrap(e, "%s", name);
    return pawl_fail(e, PAWL_BUG, "no file %s in this binary", name);
}

static enum pawl_rc inside(struct pg *pg, bool *created, struct pawl_error *e)
{
    int have = 0, breaking = 0;
    enum pawl_rc rc;

    if ((rc = pg_exec(pg, LOCK_SQL, e)) != PAWL_OK ||
        (rc = versions(pg, &have, &breaking, e)) != PAWL_OK)
        return rc;
    if (breaking > newest())
        return too_new(breaking, e);
    *created = have == 0;
    if (have != 0 && (rc = db_mark_check(&pg->d, PQdb(pg->c), e)) != PAWL_OK)
        return rc;
    if (have == 0 && (rc = own_schema(pg, e)) != PAWL_OK)
        return rc;
    if ((rc = pg_exec(pg, "CREATE TABLE IF NOT EXISTS pawl.x_migration (version INTEGER PRIMARY"
                      " KEY, name TEXT NOT NULL, breaking BOOLEAN NOT NULL,"
                      " applied_at_us BIGINT NOT NULL, applied_by TEXT NOT NULL)", e)) != PAWL_OK)
        return rc;
    if (fail_point("init.begin"))
        return pawl_fail(e, PAWL_IO, "failpoint init.begin");
    for (size_t i = 0; i < sql_postgres_files_n; i++) { /* sorted by name */
        const struct sql_file *f = &sql_postgres_files[i];
        const int version = sql_number(f->name);

        if (version == 0 || version <= have)
            continue;
        if ((rc = mark(pg, f, e)) != PAWL_OK || (rc = pg_exec(pg, f->text, e)) != PAWL_OK)
            return pawl_wrap(e, "%s", f->name);
        if (fail_point("init.middle"))
            return pawl_fail(e, PAWL_IO, "failpoint init.middle");
    }
    /* Functions last: they grant what roles may read of the views, which lose their grants here. */
    return (rc = anew(pg, "views.sql", e)) != PAWL_OK ? rc : anew(pg, "functions.sql", e);
}

enum pawl_rc pg_migrate(struct pg *pg, bool *created, struct pawl_error *e)
{
    enum pawl_rc rc;

    if ((rc = pg_begin(&pg->d, e)) != PAWL_OK)
        return rc;
    if ((rc = inside(pg, created, e)) == PAWL_OK)
        rc = pg_commit(&pg->d, e);
    else
        pg_rollback(&pg->d);
    if (rc == PAWL_OK && fail_point("init.end"))
        return pawl_fail(e, PAWL_IO, "failpoint init.end");
    return rc;
}
