// SPDX-License-Identifier: Apache-2.0
/* pg_ops.c - the PostgreSQL engine's table of verbs, and how a store is opened and left. */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/err.h"
#include "base/log.h"
#include "store/pg/pg.h"

static void op_free(struct pg *pg)
{
    while (pg->user != NULL) { /* a statement freed after its store would be a bug of the caller */
        struct store_stmt *s = pg->user;
        ((struct stmt_head *)(void *)s)->free(&s);
    }
    if (store_is_ours(&pg->d.base)) {
        pg_disconnect(pg);
        pg_mark_close(pg);
    }
    for (int i = 0; i < PQ_END; i++)
        pg_query_end(&pg->named[i]);
    pg_wake_close(pg);
    pg_ahead_clear(pg, true);
    free(pg->d.later);
    side_close(&pg->d.side);
    for (size_t i = 0; i < pg->on_connect_n; i++)
        free(pg->on_connect[i]);
    free(pg->on_connect);
    free(pg->setup);
    free(pg->url);
    store_disown(&pg->d.base);
    free(pg);
}

static void op_close(struct store *st)
{
    if (pg_of(st)->d.in_tx)
        pg_rollback(&pg_of(st)->d);
    op_free(pg_of(st));
}

/* In a forked child the connection is the parent's: not a byte may be sent on it. The descriptor
 * goes with the child. */
static void op_forsake(struct store *st)
{
    op_free(pg_of(st));
}

void postgres_engine(char *buf, size_t n)
{
    snprintf(buf, n, "libpq %d.%d", PQlibVersion() / 10000, PQlibVersion() % 10000);
}

static void op_describe(struct store *st, struct buf *out)
{
    struct pg *pg = pg_of(st);
    struct pawl_error e;

    if (db_ready(&pg->d, &e) != PAWL_OK) {
        buf_printf(out, "PostgreSQL, not connected: %s", e.msg);
        return;
    }
    const char *host = PQhost(pg->c);
    buf_printf(out, "PostgreSQL %s, database %s at %s", PQparameterStatus(pg->c, "server_version"),
               PQdb(pg->c), host != NULL && *host != '\0' ? host : "the default host");
}

static void op_patience(struct store *st, int64_t wait_us)
{
    pg_of(st)->wait_us = wait_us; /* the server is told with the next transaction */
}

static bool op_sound(struct store *st)
{
    struct db *db = db_of(st);
    struct pawl_error e;

    if (db_begin(db, &e) != PAWL_OK)
        return false;
    if (db_count(db, "probes", 1, &e) != PAWL_OK) {
        db_rollback(db);
        return false;
    }
    return db_commit(db, &e) == PAWL_OK;
}

static enum pawl_rc op_maintain(struct store *st, struct pawl_error *e)
{
    enum pawl_rc rc = db_ready(db_of(st), e);

    return rc == PAWL_OK ? pg_clock_again(pg_of(st), e) : rc;
}

/* A handler left a row callback by a jump: its rows go with the statement's next run. */
static bool op_call_over(struct store *st)
{
    struct pg *pg = pg_of(st);
    const bool left = pg->rows_out > 0;

    pg->rows_out = 0;
    return left;
}

static void *op_raw(struct store *st, bool on)
{
    (void)st;
    (void)on;
    return NULL;
}

static const char *op_raw_refused(struct store *st)
{
    (void)st;
    return NULL;
}

static bool op_intact(struct store *st)
{
    struct stat sb;
    const struct pg *pg = pg_of(st);

    return pg->c == NULL || (fstat(PQsocket(pg->c), &sb) == 0 && S_ISSOCK(sb.st_mode));
}

/* Duplicates that the SQL door counted in rows of their own become one; no lock if there are
 * none. */
#define FOLD_SQL "SELECT pawl.x_fold_counters() WHERE EXISTS (SELECT 1 FROM pawl.x_counter WHERE" \
    " name >= 'duplicates+' AND name < 'duplicates,')"

static enum pawl_rc op_prune(struct store *st, const struct pawl_prune_opts *how,
                             struct pawl_pruned *out, struct pawl_error *e)
{
    enum pawl_rc rc = db_ready(db_of(st), e);

    pg_of(st)->by_keys = true;
    if (rc == PAWL_OK)
        rc = db_prune(st, how, out, e);
    pg_of(st)->by_keys = false;
    return rc != PAWL_OK || how->dry_run ? rc
                                         : pg_exec(pg_of(st), FOLD_SQL, e);
}

static const struct store_ops ops = {
    .close = op_close, .forsake = op_forsake, .describe = op_describe,
    .enqueue = pg_enqueue, .jobs = db_jobs,
    .job = db_job, .attempts = db_attempts, .cancel = db_cancel, .run_now = db_run_now,
    .replay = db_replay, .is_stale = db_is_stale, .discard = db_discard, .pause = db_pause,
    .queues = db_queues, .queue_known = db_queue_known, .stats = db_stats, .check = db_check,
    .doctor = db_doctor,
    .prune = op_prune,
    .task_declare = db_task_declare, .worker_join = pg_worker_join,
    .worker_attach = db_worker_attach, .worker_orderly = db_worker_orderly,
    .worker_beat = pg_worker_beat, .worker_stamp = db_worker_stamp,
    .worker_leave = pg_worker_leave, .turn = db_turn, .resolve = db_resolve,
    .held = db_held, .guard = db_guard, .effect_begin = db_effect_begin,
    .effect_job = db_effect_job, .effect_done = db_effect_done, .effect_undo = db_effect_undo,
    .effect_alive = db_effect_alive, .effect_commit = db_effect_commit,
    .effect_rollback = db_effect_rollback, .effect_verdicts = db_effect_verdicts,
    .effect_end = db_effect_end, .scratch_begin = db_scratch_begin,
    .scratch_end = db_scratch_end, .stmt_prepare = pg_stmt_prepare, .stmt_run = pg_stmt_run,
    .deadline = pg_deadline, .reap = db_reap, .reap_runner = db_reap_runner,
    .wake_fd = pg_wake_fd, .reap_crew = db_reap_crew, .crew_join = pg_crew_join,
    .crew_attach = db_crew_attach, .crew_beat = pg_crew_beat, .crew_leave = pg_crew_leave,
    .blame_list = db_blame_list, .blame_hand = db_blame_hand, .blame_clear = db_blame_clear,
    .holds = db_holds, .effect_resume = db_effect_resume, .effect_lease = db_effect_lease,
    .effect_enqueue = db_effect_enqueue, .stmt_query = pg_stmt_query, .stmt_has = pg_stmt_has,
    .call_over = op_call_over, .raw = op_raw, .raw_refused = op_raw_refused, .intact = op_intact,
    .wake_clear = pg_wake_clear, .changed = pg_changed, .poke = db_poke, .pending = db_pending,
    .patience = op_patience, .sound = op_sound, .maintain = op_maintain, .in_hand = db_in_hand,
};

static struct pg *make(const char *url, const struct store_opts *o)
{
    struct pg *pg = calloc(1, sizeof *pg);

    if (pg == NULL)
        return NULL;
    side_init(&pg->d.side);
    pg->poll_fd = -1;
    store_own(&pg->d.base);
    pg_clock_init(pg);
    pg->d.base.ops = &ops;
    pg->d.engine = &pg_engine;
    /* The machine's own clock is not asked for: hosts need not agree. */
    pg->d.env = o->env != NULL && o->env != env_real() ? o->env : &pg->env;
    pg->d.base.env = pg->d.env;
    pg->closed_ok = o->closed_ok;
    pg->d.lease_us = o->lease_us > 0 ? o->lease_us : 30000000;
    pg->wait_us = pg->wait_set_us = 10000000;
    pg->url = strdup(url);
    if (o->on_connect_n > 0)
        pg->on_connect = calloc(o->on_connect_n, sizeof *pg->on_connect);
    bool ok = pg->url != NULL && (o->on_connect_n == 0 || pg->on_connect != NULL);
    for (size_t i = 0; i < o->on_connect_n && ok; i++) {
        ok = (pg->on_connect[i] = strdup(o->on_connect[i])) != NULL;
        pg->on_connect_n += ok;
    }
    if (!ok) {
        op_close(&pg->d.base);
        return NULL;
    }
    return pg;
}

/* Where the processes of this host and user that work on this store meet: worker files, last words,
 * the wake file. The store has a name of its own, so that two URLs of one database are one. */
static enum pawl_rc open_side(struct pg *pg, struct pawl_error *e)
{
    const char *dirs[] = { getenv("PAWL_RUNTIME_DIR"), getenv("XDG_RUNTIME_DIR"), "/tmp" };
    struct query *q = NULL;
    struct buf path = {0};
    bool row = false;
    struct stat sb;
    enum pawl_rc rc;

    for (size_t i = 0; i < sizeof dirs / sizeof *dirs && path.n == 0; i++)
        if (dirs[i] != NULL && dirs[i][0] == '/')
            buf_printf(&path, "%s/pg-%ld-", dirs[i], (long)geteuid());
    if ((rc = pg_prepare(&pg->d, "SELECT id FROM pawl_x_store", &q, e)) == PAWL_OK &&
        (rc = pg_row(&pg->d, q, &row, e)) == PAWL_OK)
        buf_puts(&path, row ? q_str(q, 0) : "0");
    q_free(q);
    if (rc == PAWL_OK && path.failed)
        rc = pawl_fail(e, PAWL_NOMEM, "out of memory");
    if (rc == PAWL_OK)
        rc = side_open(&pg->d.side, buf_str(&path), e);
    if (rc == PAWL_OK && (fstat(pg->d.side.dir_fd, &sb) != 0 || sb.st_uid != geteuid()))
        rc = pawl_fail(e, PAWL_DENIED, "%s-pawl belongs to another user: remove it, or set"
                       " PAWL_RUNTIME_DIR to a directory of your own", buf_str(&path));
    buf_free(&path);
    return rc;
}

enum pawl_rc postgres_store_open(const char *url, const struct store_opts *o, struct store **out,
                                 struct pawl_error *e)
{
    struct pg *pg = make(url, o);
    enum pawl_rc rc;

    *out = NULL;
    if (pg == NULL)
        return pawl_fail(e, PAWL_NOMEM, "out of memory");
    if ((rc = pg_connect(pg, false, e)) == PAWL_OK && (rc = open_side(pg, e)) == PAWL_OK) {
        *out = &pg->d.base;
        return PAWL_OK;
    }
    op_close(&pg->d.base);
    return rc;
}

enum pawl_rc postgres_store_init(const char *url, const struct store_opts *o, bool *created,
                                 struct pawl_error *e)
{
    struct pg *pg = make(url, o);
    bool made = false;
    enum pawl_rc rc;

    if (pg == NULL)
        return pawl_fail(e, PAWL_NOMEM, "out of memory");
    if ((rc = pg_connect(pg, true, e)) == PAWL_OK)
        rc = pg_migrate(pg, &made, e);
    if (rc == PAWL_OK && created != NULL)
        *created = made;
    op_close(&pg->d.base);
    return rc;
}
