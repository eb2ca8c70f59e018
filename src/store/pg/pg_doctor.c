// SPDX-License-Identifier: Apache-2.0
/* pg_doctor.c - what the server, the role and the way to it allow, and what they endanger. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/err.h"
#include "store/pg/pg.h"
#include "store/verb/doctor.h"

#define NEWEST 18
#define DEAD_ROWS "50000"      /* ten times what autovacuum waits for */
#define CLOCK_US 5000000

static bool yes(struct query *q, int col)
{
    return q_i64(q, col) != 0;
}

static bool is(struct query *q, int col, const char *word)
{
    return q_str(q, col) != NULL && strcmp(q_str(q, col), word) == 0;
}

/* --- durability --- */

#define DURABILITY "SELECT current_setting('fsync'), current_setting('full_page_writes')," \
    " (SELECT reset_val FROM pg_settings WHERE name = 'synchronous_commit')," \
    " current_setting('synchronous_standby_names'), pg_is_in_recovery()," \
    " current_setting('default_transaction_read_only')," \
    " (SELECT count(*) FROM pg_stat_replication), current_setting('server_version_num')::int," \
    " current_setting('autovacuum'), current_setting('track_activities')"

static void standbys(struct doctor *d, struct query *q)
{
    const char *names = q_str(q, 3);
    const bool some = q_i64(q, 6) > 0;

    if (names == NULL || *names == '\0')
        doctor_say(d, "failover", some ? PAWL_WARNING : PAWL_NOTE, some ? "set"
                   " synchronous_standby_names" : "add a synchronous standby, if the loss of this"
                   " machine must lose nothing", some ? "the standbys are not synchronous: a"
                   " failover may lose the last commits, jobs that were acknowledged among them" :
                   "there is no standby: what was acknowledged is on this server's disk alone");
    else if (is(q, 2, "local") || is(q, 2, "off"))
        doctor_say(d, "failover", PAWL_WARNING, "synchronous_commit = on for the role, or in"
                   " postgresql.conf", "synchronous_standby_names is set, but synchronous_commit ="
                   " %s waits for no standby: a failover may lose acknowledged jobs", q_str(q, 2));
    else if (is(q, 2, "remote_write"))
        doctor_say(d, "failover", PAWL_NOTE, "synchronous_commit = on waits for its disk, too",
                   "synchronous_commit = remote_write: a standby has every acknowledged job, but"
                   " perhaps not on its disk yet");
}

static void server(struct doctor *d, struct query *q, void *ctx)
{
    const int64_t version = q_i64(q, 7) / 10000;

    (void)ctx;
    if (is(q, 0, "off"))
        doctor_say(d, "durability", PAWL_DANGER, "fsync = on", "fsync is off: a crash of the"
                   " machine loses acknowledged jobs and may destroy the database");
    if (is(q, 1, "off"))
        doctor_say(d, "durability", PAWL_DANGER, "full_page_writes = on", "full_page_writes is"
                   " off: a crash of the machine may leave torn pages");
    if (is(q, 2, "off"))
        doctor_say(d, "durability", PAWL_NOTE, "nothing to do for Pawl; your own transactions that"
                   " call pawl.enqueue are as durable as their own setting says",
                   "synchronous_commit is off for this role: Pawl turns it on for its own commits");
    if (yes(q, 4))
        doctor_say(d, "standby", PAWL_DANGER, "name the primary, or several hosts with"
                   " target_session_attrs=read-write", "this server is a standby: it can be read,"
                   " nothing can be enqueued or worked");
    else
        standbys(d, q);
    if (!yes(q, 4) && is(q, 5, "on"))
        doctor_say(d, "standby", PAWL_DANGER, "default_transaction_read_only = off for the role and"
                   " the database", "transactions are read-only by default here: the SQL doors"
                   " fail");
    if (version > NEWEST)
        doctor_say(d, "version", PAWL_NOTE, "ask whether a newer pawl has tried it", "PostgreSQL"
                   " %lld is newer than any that this pawl was tried with (%d)",
                   (long long)version, NEWEST);
    if (is(q, 8, "off"))
        doctor_say(d, "vacuum", PAWL_DANGER, "autovacuum = on", "autovacuum is off: the tables of"
                   " jobs grow, and every claim gets slower");
    if (is(q, 9, "off"))
        doctor_say(d, "snapshot", PAWL_UNSEEN, "track_activities = on", "track_activities is off:"
                   " who holds an old snapshot cannot be seen");
}

/* --- who holds up vacuum --- */

static void snapshots(struct doctor *d, struct query *q, void *ctx)
{
    char span[32];

    (void)ctx;
    doctor_say(d, "snapshot", PAWL_WARNING, "end that transaction: pg_terminate_backend(its pid),"
               " and idle_in_transaction_session_timeout for its role", "a transaction open for %s"
               " keeps dead rows from being removed: pid %lld, user %s, %s, %s", doctor_span(
                   d->now_us - q_i64(q, 0), span, sizeof span), (long long)q_i64(q, 1),
               q_str(q, 2), q_str(q, 3), q_str(q, 4));
}

static void masked(struct doctor *d, struct query *q, void *ctx)
{
    (void)ctx;
    if (q_i64(q, 0) > 0)
        doctor_say(d, "snapshot", PAWL_UNSEEN, "GRANT pg_read_all_stats TO the role", "what %lld"
                   " sessions of other roles hold cannot be seen by this role",
                   (long long)q_i64(q, 0));
}

static void slots(struct doctor *d, struct query *q, void *ctx)
{
    (void)ctx;
    doctor_say(d, "slots", PAWL_WARNING, "start its consumer, or pg_drop_replication_slot",
               "replication slot %s is used by nobody, and keeps %s", q_str(q, 0), yes(q, 1)
               ? "dead rows and WAL" : "WAL: the disk fills");
}

static void prepared(struct doctor *d, struct query *q, void *ctx)
{
    char span[32];

    (void)ctx;
    doctor_say(d, "snapshot", PAWL_WARNING, "COMMIT PREPARED or ROLLBACK PREPARED it",
               "prepared transaction %s of %s is open for %s: it keeps its locks, and dead rows"
               " from being removed", q_str(q, 0), q_str(q, 1),
               doctor_span(d->now_us - q_i64(q, 2), span, sizeof span));
}

static void bloat(struct doctor *d, struct query *q, void *ctx)
{
    (void)ctx;
    if (yes(q, 3))
        doctor_say(d, "vacuum", PAWL_DANGER, "ALTER TABLE ... RESET (autovacuum_enabled)",
                   "autovacuum is switched off for pawl.%s", q_str(q, 0));
    if (q_i64(q, 1) > 0)
        doctor_say(d, "vacuum", PAWL_WARNING, "end what holds an old snapshot, if something does;"
                   " then VACUUM this table", "pawl.%s has %lld dead rows (%lld live ones), last"
                   " vacuumed %s", q_str(q, 0), (long long)q_i64(q, 1), (long long)q_i64(q, 2),
                   q_str(q, 4));
}

/* --- the role, the way there --- */

static void role(struct doctor *d, struct query *q, void *ctx)
{
    (void)ctx;
    if (yes(q, 0))
        doctor_say(d, "role", PAWL_NOTE, "let workers connect as a role with the rights of"
                   " pawl_worker and of your tables (sql/postgres/roles.sql)", "role %s is a"
                   " superuser: nothing bounds what statements of handlers may do", q_str(q, 1));
    if (!yes(q, 2))
        doctor_say(d, "role", PAWL_NOTE, "GRANT pawl_worker TO it, if it is to work", "role %s may"
                   " read jobs, but not work", q_str(q, 1));
}

static const char *option(PQconninfoOption *all, const char *name)
{
    for (; all != NULL && all->keyword != NULL; all++)
        if (strcmp(all->keyword, name) == 0)
            return all->val != NULL ? all->val : "";
    return "";
}

static void way_there(struct doctor *d)
{
    struct pg *pg = pg_from(d->db);
    PQconninfoOption *all = doctor_look(d) ? PQconninfo(pg->c) : NULL;
    const char *attrs = option(all, "target_session_attrs");
    const long long user_ms = strtoll(option(all, "tcp_user_timeout"), NULL, 10);

    if (all == NULL)
        return;
    if (strchr(option(all, "host"), ',') != NULL && strcmp(attrs, "read-write") != 0 &&
        strcmp(attrs, "primary") != 0)
        doctor_say(d, "url", PAWL_WARNING, "leave target_session_attrs out of the URL, or say"
                   " read-write", "several hosts, and target_session_attrs=%s: after a failover"
                   " the standby may be asked", attrs);
    if (strcmp(option(all, "connect_timeout"), "0") == 0)
        doctor_say(d, "url", PAWL_WARNING, "leave connect_timeout out of the URL (10 s then)",
                   "connect_timeout=0: a host that does not answer is waited for without end");
    if (user_ms == 0 || user_ms > pg->d.lease_us / 1000)
        doctor_say(d, "url", PAWL_WARNING, "leave tcp_user_timeout out of the URL: then it is the"
                   " lease", "tcp_user_timeout=%lld ms: a connection to a dead server is noticed"
                   " later than the lease (%lld ms)", user_ms, (long long)pg->d.lease_us / 1000);
    PQconninfoFree(all);
}

/* Another connection, while ours is open: if the same process answers, it is lent by turns. */
static const char *pooling_kind(struct pg *pg)
{
    PGconn *mine = pg->c, *other = PQconnectdb(pg->url);
    const char *kind = "of transactions or of sessions (that cannot be told now)";
    PGresult *a = PQexec(mine, "SELECT pg_backend_pid()"), *b = NULL;

    if (PQstatus(other) == CONNECTION_OK && PQsetnonblocking(other, 1) == 0 &&
        PQsendQuery(other, "SELECT pg_backend_pid()") == 1) {
        pg->c = other; /* nothing is prepared behind a pooler: a disconnect forgets nothing */
        b = pg_wait(pg, pg->d.env->mono_us(pg->d.env->ctx) + 2000000);
        other = pg->c;
        pg->c = mine;
    }
    if (PQresultStatus(a) == PGRES_TUPLES_OK && PQresultStatus(b) == PGRES_TUPLES_OK &&
        strcmp(PQgetvalue(a, 0, 0), PQgetvalue(b, 0, 0)) == 0)
        kind = "of transactions";
    PQclear(a);
    PQclear(b);
    PQfinish(other);
    return kind;
}

static void pooler(struct doctor *d)
{
    struct pg *pg = pg_from(d->db);

    if (!doctor_look(d) || !pg->pooled)
        return;
    doctor_say(d, "pooling", PAWL_NOTE, "see \"Pooling\" in doc/operating-postgres.md: size of the"
               " pool, and tcp_keepidle in pgbouncer.ini", "a pooler %s is in between: no LISTEN"
               " (an idle worker looks once a second), no prepared statements; a statement of a"
               " vanished host ends when the pooler notices", pooling_kind(pg));
}

static void clocks(struct doctor *d)
{
    const int64_t off_us = d->now_us - env_real()->wall_us(env_real()->ctx);
    char span[32];

    if (doctor_look(d) && (off_us > CLOCK_US || off_us < -CLOCK_US))
        doctor_say(d, "clock", PAWL_NOTE, "set both right (NTP): times in logs, and --at as people"
                   " mean it, are this host's", "this host's clock is %s %s the server's, which is"
                   " the one that counts", doctor_span(off_us < 0 ? -off_us : off_us, span,
                                                       sizeof span),
                   off_us > 0 ? "behind" : "ahead of");
}

static void lost_holders(struct doctor *d, struct query *q, void *ctx)
{
    (void)ctx;
    if (q_i64(q, 0) > 0)
        doctor_say(d, "leases", PAWL_WARNING, "start a worker of these tasks: it takes them back"
                   " within its lease", "%lld jobs are leased to workers that nobody knows",
                   (long long)q_i64(q, 0));
}

enum pawl_rc pg_doctor(struct doctor *d, struct pawl_error *e)
{
    static const struct { const char *name, *sql; doctor_row_fn *fn; } looks[] = {
        { "durability", DURABILITY, server },
        { "snapshot", "SELECT (extract(epoch FROM xact_start) * 1000000)::bigint, pid,"
          " coalesce(usename, '-'), coalesce(nullif(application_name, ''), backend_type),"
          " coalesce(state, '-') FROM pg_stat_activity WHERE (backend_xmin IS NOT NULL OR"
          " backend_xid IS NOT NULL) AND pid <> pg_backend_pid() AND backend_type IN"
          " ('client backend', 'walsender', 'background worker') AND (datname ="
          " current_database() OR backend_type = 'walsender') AND"
          " (extract(epoch FROM xact_start) * 1000000)::bigint < ?2"
          " ORDER BY xact_start LIMIT 5", snapshots },
        { "snapshot", "SELECT count(*) FROM pg_stat_activity WHERE backend_type IS NULL AND NOT"
          " pg_has_role(current_user, 'pg_read_all_stats', 'USAGE')", masked },
        { "slots", "SELECT slot_name, xmin IS NOT NULL OR catalog_xmin IS NOT NULL FROM"
          " pg_replication_slots WHERE NOT active", slots },
        { "snapshot", "SELECT gid, owner, (extract(epoch FROM prepared) * 1000000)::bigint FROM"
          " pg_prepared_xacts WHERE database = current_database() AND"
          " (extract(epoch FROM prepared) * 1000000)::bigint < ?2", prepared },
        { "vacuum", "SELECT c.relname, CASE WHEN pg_stat_get_dead_tuples(c.oid) > " DEAD_ROWS
          " THEN pg_stat_get_dead_tuples(c.oid) ELSE 0 END, pg_stat_get_live_tuples(c.oid),"
          " coalesce('autovacuum_enabled=false' = ANY (c.reloptions) OR 'autovacuum_enabled=off' ="
          " ANY (c.reloptions), false), coalesce(to_char(greatest("
          " pg_stat_get_last_autovacuum_time(c.oid), pg_stat_get_last_vacuum_time(c.oid)),"
          " 'YYYY-MM-DD HH24:MI'), 'never') FROM pg_class c WHERE c.relnamespace ="
          " to_regnamespace('pawl') AND c.relkind = 'r' ORDER BY 1", bloat },
        { "role", "SELECT rolsuper, current_user, has_table_privilege('pawl.x_ready', 'DELETE') AND"
          " has_table_privilege('pawl.x_done', 'INSERT') FROM pg_roles WHERE rolname ="
          " current_user", role },
        { "leases", "SELECT count(*) FROM pawl_x_running r WHERE NOT EXISTS (SELECT FROM"
          " pawl_x_worker w WHERE w.id = r.worker)", lost_holders },
    };
    enum pawl_rc rc = PAWL_OK;

    for (size_t i = 0; i < sizeof looks / sizeof *looks && rc == PAWL_OK; i++)
        rc = doctor_rows(d, looks[i].name, looks[i].sql, looks[i].fn, NULL, e);
    if (rc != PAWL_OK)
        return rc;
    way_there(d);
    pooler(d);
    clocks(d);
    return PAWL_OK;
}
