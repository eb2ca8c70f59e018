// SPDX-License-Identifier: Apache-2.0
/* sqlite_door.c - pawl_enqueue_sqlite: the SQL door, on the caller's own connection.
 *
 * Keeps: the same rules as the other doors, by the same function (store_request_rule), before a
 *        statement runs; what only the database can say comes back as RAISE texts of
 *        sql/sqlite/views.sql. Nothing of ours stays on the connection.
 *        Without a transaction of the caller's each request has its own: between two statements
 *        another writer's request could answer in ours.
 * Never: commits or rolls back what the caller began.
 */
#include "api/api.h"

#include <sqlite3.h>
#include <string.h>

static const char insert_text[] =
    "INSERT INTO main.pawl_enqueue (task, args, key, source, queue, priority, run_at, expires_at,"
    " max_retries, entity, version, headers, trace)"
    " VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13)";
/* What pawl_last says, whether the task is declared, and where the job is. A pruned one is known by
 * its key alone. */
static const char answer_text[] =
    "SELECT l.id, l.created, t.policy IS NOT NULL, CASE WHEN l.created THEN 'ready'"
    " ELSE coalesce((SELECT state FROM main.pawl_jobs WHERE id = l.id),"
    " (SELECT k.state FROM main.pawl_x_key k"
    "   WHERE k.task_id = t.id AND k.source = ?2 AND k.key = ?3), 'pruned') END"
    " FROM main.pawl_last l LEFT JOIN main.pawl_tasks t ON t.name = ?1";

/* The caller's connection at work. */
struct door {
    sqlite3 *db;
    sqlite3_stmt *insert, *answer;
};

static enum pawl_rc rc_of(int code)
{
    switch (code & 0xff) {
    case SQLITE_BUSY: case SQLITE_LOCKED: return PAWL_BUSY;
    case SQLITE_FULL: return PAWL_FULL;
    case SQLITE_NOMEM: return PAWL_NOMEM;
    case SQLITE_IOERR: return code == SQLITE_IOERR_NOMEM ? PAWL_NOMEM : PAWL_IO;
    case SQLITE_NOTADB: case SQLITE_CORRUPT: return PAWL_NOTOURS;
    default: return PAWL_SQL;
    }
}

static enum pawl_rc fail(const struct door *d, const char *what, struct pawl_error *e)
{
    const int code = sqlite3_extended_errcode(d->db);

    if (code == SQLITE_BUSY_SNAPSHOT)
        return pawl_fail_native(e, PAWL_BUSY, code, "%s: this transaction began with a read and"
                                " another one has written since: ROLLBACK and BEGIN IMMEDIATE",
                                what);
    if (code == SQLITE_AUTH)
        return pawl_fail_native(e, PAWL_BADARG, code, "%s: this connection may not do that (%s);"
                                " in a handler, on pawl_run_sqlite(run): use pawl_run_enqueue",
                                what, sqlite3_errmsg(d->db));
    return pawl_fail_native(e, rc_of(code), code, "%s: %s", what, sqlite3_errmsg(d->db));
}

/* A text of RAISE says which rule it was. */
static enum pawl_rc refused(const struct door *d, const struct pawl_request *r,
                            struct pawl_error *e)
{
    static const struct { const char *begins; enum pawl_rc rc; } by[] = {
        {"pawl: args are larger", PAWL_TOOBIG},
        {"pawl: version ", PAWL_BADARG},
        {"pawl: entity needs", PAWL_BADARG},
        {"pawl: priority ", PAWL_BADARG},
        {"pawl: max_retries ", PAWL_BADARG},
        {"pawl: run_at ", PAWL_BADARG},
        {"pawl: expires_at looks", PAWL_BADARG},
        {"pawl: expires_at must", PAWL_BADARG},
        {"pawl: this store ", PAWL_MOVED},
        {"pawl: ", PAWL_BADDATA},
    };
    static const char clash[] = "pawl: this key was used before";
    const char *text = sqlite3_errmsg(d->db);
    const int code = sqlite3_extended_errcode(d->db);

    if (strncmp(text, clash, sizeof clash - 1) == 0)
        return pawl_fail_native(e, PAWL_KEYCLASH, code, "key \"%s\" of task %s was used before with"
                                " other args; send the same bytes, or a new key", r->key, r->task);
    for (size_t i = 0; (code & 0xff) == SQLITE_CONSTRAINT && i < sizeof by / sizeof *by; i++)
        if (strncmp(text, by[i].begins, strlen(by[i].begins)) == 0)
            return pawl_fail_native(e, by[i].rc, code, "%s", text + strlen("pawl: "));
    return fail(d, "enqueue", e);
}

static enum pawl_rc prepare(struct door *d, struct pawl_error *e)
{
    int code = sqlite3_prepare_v2(d->db, insert_text, -1, &d->insert, NULL);

    if (code == SQLITE_OK) code = sqlite3_prepare_v2(d->db, answer_text, -1, &d->answer, NULL);
    if (code == SQLITE_OK) return PAWL_OK;
    if (code == SQLITE_ERROR)
        return pawl_fail_native(e, PAWL_NOTOURS, sqlite3_extended_errcode(d->db),
                                "the main database of this connection is not a Pawl store (%s); run"
                                " pawl_init on it, or open the store's own file",
                                sqlite3_errmsg(d->db));
    return fail(d, "enqueue", e);
}

static int put_text(sqlite3_stmt *q, int i, const char *s)
{
    return s != NULL ? sqlite3_bind_text(q, i, s, -1, SQLITE_STATIC) : SQLITE_OK;
}

static int put_int(sqlite3_stmt *q, int i, bool has, int64_t v)
{
    return has ? sqlite3_bind_int64(q, i, v) : SQLITE_OK;
}

/* SQLITE_OK is 0: one failure shows in the sum. */
static bool bind(sqlite3_stmt *q, const struct pawl_request *r)
{
    const int bad = put_text(q, 1, r->task)
        | sqlite3_bind_text64(q, 2, r->args, r->args_bytes, SQLITE_STATIC, SQLITE_UTF8)
        | put_text(q, 3, r->key)
        | put_text(q, 4, r->source)
        | put_text(q, 5, r->queue)
        | put_int(q, 6, r->has_priority, r->priority)
        | put_int(q, 7, r->run_at_us != 0, r->run_at_us)
        | put_int(q, 8, r->expires_at_us != 0, r->expires_at_us)
        | put_int(q, 9, r->has_max_retries, r->max_retries)
        | put_text(q, 10, r->entity)
        | put_int(q, 11, r->has_version, r->version)
        | put_text(q, 12, r->headers)
        | put_text(q, 13, r->trace);

    return bad == SQLITE_OK;
}

/* PRAGMA count_changes (deprecated, but some have it) makes a row of what was changed. */
static bool step_to_end(sqlite3_stmt *q)
{
    int code;

    while ((code = sqlite3_step(q)) == SQLITE_ROW) {}
    return code == SQLITE_DONE;
}

static enum pawl_rc insert(const struct door *d, const struct pawl_request *r,
                           struct pawl_error *e)
{
    sqlite3_stmt *q = d->insert;
    enum pawl_rc rc = PAWL_OK;

    if (!bind(q, r)) rc = fail(d, "enqueue", e);
    else if (!step_to_end(q)) rc = refused(d, r, e);
    sqlite3_reset(q);
    sqlite3_clear_bindings(q);
    return rc;
}

static enum pawl_rc answer(const struct door *d, const struct pawl_request *r,
                           struct pawl_enqueued *out, struct pawl_error *e)
{
    sqlite3_stmt *q = d->answer;
    enum pawl_rc rc = PAWL_OK;
    const char *state;

    const bool bound = put_text(q, 1, r->task) == SQLITE_OK
        && put_text(q, 2, r->source != NULL ? r->source : "") == SQLITE_OK
        && put_text(q, 3, r->key) == SQLITE_OK;

    if (bound && sqlite3_step(q) == SQLITE_ROW
        && (state = (const char *)sqlite3_column_text(q, 3)) != NULL) {
        out->id = sqlite3_column_int64(q, 0);
        out->created = sqlite3_column_int(q, 1) != 0;
        out->task_known = sqlite3_column_int(q, 2) != 0;
        out->state = PAWL_STATE_PRUNED;
        for (int s = 0; s < PAWL_STATE_N; s++)
            if (strcmp(pawl_state_name((enum pawl_state)s), state) == 0)
                out->state = (enum pawl_state)s;
    } else {
        rc = fail(d, "read what was enqueued", e);
    }
    sqlite3_reset(q);
    return rc;
}

static enum pawl_rc insert_and_answer(const struct door *d, const struct pawl_request *r,
                                      struct pawl_enqueued *out, struct pawl_error *e)
{
    enum pawl_rc rc = insert(d, r, e);

    return rc == PAWL_OK ? answer(d, r, out, e) : rc;
}

static const char *still_writing(sqlite3 *db)
{
    for (sqlite3_stmt *q = NULL; (q = sqlite3_next_stmt(db, q)) != NULL;)
        if (sqlite3_stmt_busy(q) && !sqlite3_stmt_readonly(q)) return sqlite3_sql(q);
    return NULL;
}

static enum pawl_rc one(const struct door *d, const struct pawl_request *given,
                        struct pawl_enqueued *out, struct pawl_error *e)
{
    const bool own = sqlite3_get_autocommit(d->db) != 0;
    /* Beside a statement of the caller's that still writes, BEGIN would take its rows into our
     * transaction, and COMMIT would be refused. */
    const char *pending = own ? still_writing(d->db) : NULL;
    struct pawl_request r = *given;
    enum pawl_rc rc;

    if (r.task == NULL) return pawl_fail(e, PAWL_BADARG, "task is missing");
    if ((rc = store_request_rule(&r, e)) != PAWL_OK) return rc;
    if (pending != NULL)
        return pawl_fail(e, PAWL_BUSY, "a statement of yours is not finished: step it to its end,"
                         " reset it, or BEGIN before it: %.120s", pending);
    if (own && sqlite3_exec(d->db, "BEGIN IMMEDIATE", NULL, NULL, NULL) != SQLITE_OK)
        return fail(d, "begin", e);
    rc = insert_and_answer(d, &r, out, e);
    if (own && rc == PAWL_OK && sqlite3_exec(d->db, "COMMIT", NULL, NULL, NULL) != SQLITE_OK)
        rc = fail(d, "commit", e);
    if (own && rc != PAWL_OK && sqlite3_get_autocommit(d->db) == 0)
        (void)sqlite3_exec(d->db, "ROLLBACK", NULL, NULL, NULL);
    if (rc != PAWL_OK) memset(out, 0, sizeof *out);
    return rc;
}

enum pawl_rc pawl_enqueue_sqlite(struct sqlite3 *db, const struct pawl_request *req, size_t n,
                                 struct pawl_enqueued *out, size_t *done, struct pawl_error *e)
{
    WITH_ERROR(e);
    struct door d = {.db = db};
    size_t unused;
    enum pawl_rc rc = api_need(db != NULL, e, "the connection is NULL");

    if (!done) done = &unused;
    *done = 0;
    if (rc != PAWL_OK) return rc;
    if (n == 0) return PAWL_OK;
    rc = api_need(req && out, e, "requests, or room for answers, is NULL");
    if (rc != PAWL_OK) return rc;
    if (n > LIMIT_ENQUEUE_N)
        return pawl_fail(e, PAWL_TOOBIG, "%zu requests in one call: at most %d", n,
                         LIMIT_ENQUEUE_N);
    memset(out, 0, n * sizeof *out);
    rc = prepare(&d, e);
    while (rc == PAWL_OK && *done < n) {
        rc = one(&d, &req[*done], &out[*done], e);
        if (rc == PAWL_OK) ++*done;
    }
    sqlite3_finalize(d.insert);
    sqlite3_finalize(d.answer);
    return rc;
}
