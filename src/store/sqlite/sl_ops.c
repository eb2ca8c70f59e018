// SPDX-License-Identifier: Apache-2.0
/* sl_ops.c - the SQLite engine's table of verbs, and how a store is opened and left. */
#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <time.h>
#include <unistd.h>
#include "base/err.h"
#include "store/sqlite/sl.h"

static void op_free(struct sqlite *sl)
{
    while (sl->user != NULL) { /* a statement freed after its store would be a bug of the caller */
        struct store_stmt *s = sl->user;
        sl_stmt_free(&s);
    }
    if (store_is_ours(&sl->d.base))
        sl_disconnect(sl);
    side_close(&sl->d.side);
    for (size_t i = 0; i < sl->on_connect_n; i++)
        free(sl->on_connect[i]);
    free(sl->on_connect);
    free(sl->path);
    store_disown(&sl->d.base);
    free(sl);
}

static void op_close(struct store *st)
{
    struct sqlite *sl = sl_of(st);

    if (sl->d.in_tx)
        sl_rollback(sl);
    side_unlock(&sl->d.side);
    op_free(sl);
}

/* Descriptors and mappings of ours are closed: that touches nothing of the parent's, and a lock
 * that it holds does not outlive it in us. What SQLite has is left alone (its page "How To Corrupt
 * An SQLite Database File", carrying a connection across a fork). */
static void op_forsake(struct store *st)
{
    op_free(sl_of(st));
}

void sqlite_engine(char *buf, size_t n)
{
    snprintf(buf, n, "SQLite %s (%s)", sqlite3_libversion(),
             PAWL_SQLITE_BUNDLED ? "bundled" : "the system's");
}

static void op_describe(struct store *st, struct buf *out)
{
    buf_printf(out, "SQLite %s (%s), WAL, synchronous=FULL%s, file %s", sqlite3_libversion(),
               PAWL_SQLITE_BUNDLED ? "bundled" : "the system's",
               sl_wal_risk() ? ", has the WAL-reset fault" : "", sl_of(st)->path);
}

static enum pawl_rc count_alive(struct sqlite *sl, size_t *alive, struct pawl_error *e)
{
    char (*ids)[SIDE_ID_BYTES] = NULL;
    struct arena a = {0};
    size_t n = 0;
    enum pawl_rc rc = side_list(&sl->d.side, &a, &ids, &n, e);

    *alive = 0;
    for (size_t i = 0; i < n && rc == PAWL_OK; i++) {
        struct side_peer peer;

        rc = side_look(&sl->d.side, ids[i], sl->d.env->boot_us(sl->d.env->ctx), &peer, e);
        *alive += rc == PAWL_OK && (peer.life == SIDE_ALIVE || peer.life == SIDE_FROZEN);
        side_forget(&sl->d.side, &peer, false);
    }
    arena_free(&a);
    return rc;
}

#define JOIN_LOOKS 20 /* 50 ms apart: a killed predecessor's last process may still be ending */

/* A worker of its own kind may join only where the WAL-reset race is ruled out, unless the user
 * takes the risk: refusing is cheap, a damaged file is not. */
static enum pawl_rc may_join(struct sqlite *sl, struct pawl_error *e)
{
    const struct timespec nap = { .tv_nsec = 50000000 };
    size_t alive = 1;
    enum pawl_rc rc = PAWL_OK;

    if (!sl_wal_risk() || sl->accept_wal_risk)
        return PAWL_OK;
    for (int i = 0; i < JOIN_LOOKS && rc == PAWL_OK && alive > 0; i++) {
        if (i > 0)
            nanosleep(&nap, NULL);
        rc = count_alive(sl, &alive, e);
    }
    if (rc == PAWL_OK && alive > 0)
        rc = pawl_fail(e, PAWL_CONFIG, "SQLite %s can corrupt a database that several processes"
                       " write (fixed in 3.51.3), and another worker runs on %s; link SQLite 3.51.3"
                       " or later (pawl: the bundled one), or take the risk: --accept-wal-risk, in"
                       " a program accept_wal_risk of struct pawl_worker_opts",
                       sqlite3_libversion(), sl->path);
    return rc;
}

static enum pawl_rc op_join(struct store *st, char *id_out, int *fd_out, struct pawl_error *e)
{
    struct sqlite *sl = sl_of(st);
    const enum pawl_rc rc = may_join(sl, e);

    return rc == PAWL_OK ? db_worker_join(st, id_out, fd_out, e) : rc;
}

static void op_patience(struct store *st, int64_t wait_us) { sl_of(st)->wait_us = wait_us; }

static bool op_changed(struct store *st)
{
    struct sqlite *sl = sl_of(st);
    struct pawl_error e;
    sqlite3_stmt *q = NULL;
    bool row = false;

    if ((sl->db == NULL && sl_connect(sl, false, &e) != PAWL_OK) ||
        sl_q(sl, Q_DATA_VERSION, &q, &e) != PAWL_OK || sl_row(sl, q, &row, &e) != PAWL_OK || !row)
        return true; /* in doubt: look */
    const int64_t v = sqlite3_column_int64(q, 0);
    const bool changed = v != sl->data_version;
    sl->data_version = v;
    sqlite3_reset(q);
    return changed;
}

static enum pawl_rc op_enqueue(struct store *st, const struct pawl_request *req, size_t n,
                               struct pawl_enqueued *out, size_t *bad_i, struct pawl_error *e)
{
    return sl_busy_who(sl_of(st), sl_enqueue(st, req, n, out, bad_i, e), e);
}

static const struct store_ops ops = {
    .close = op_close, .forsake = op_forsake, .describe = op_describe,
    .enqueue = op_enqueue, .jobs = db_jobs,
    .job = db_job, .attempts = db_attempts, .cancel = db_cancel, .run_now = db_run_now,
    .replay = db_replay, .is_stale = db_is_stale, .discard = db_discard, .pause = db_pause,
    .queues = db_queues, .queue_known = db_queue_known, .stats = db_stats, .check = db_check,
    .doctor = db_doctor,
    .prune = db_prune,
    .task_declare = db_task_declare, .worker_join = op_join, .worker_attach = db_worker_attach,
    .worker_orderly = db_worker_orderly, .worker_beat = db_worker_beat,
    .worker_stamp = db_worker_stamp,
    .worker_leave = db_worker_leave, .turn = db_turn, .resolve = db_resolve,
    .held = db_held, .guard = db_guard, .effect_begin = db_effect_begin,
        .effect_job = db_effect_job,
    .effect_done = db_effect_done, .effect_undo = db_effect_undo, .effect_alive = db_effect_alive,
    .effect_commit = db_effect_commit, .effect_rollback = db_effect_rollback,
    .effect_verdicts = db_effect_verdicts, .effect_end = db_effect_end,
    .scratch_begin = db_scratch_begin, .scratch_end = db_scratch_end,
    .stmt_prepare = sl_stmt_prepare, .stmt_run = sl_stmt_run, .deadline = sl_deadline,
    .reap = db_reap, .reap_runner = db_reap_runner, .wake_fd = db_wake_fd,
    .reap_crew = db_reap_crew, .crew_join = db_crew_join, .crew_attach = db_crew_attach,
    .crew_beat = db_crew_beat, .crew_leave = db_crew_leave, .blame_list = db_blame_list,
    .blame_hand = db_blame_hand, .blame_clear = db_blame_clear, .holds = db_holds,
    .effect_resume = db_effect_resume, .effect_lease = db_effect_lease,
    .effect_enqueue = db_effect_enqueue, .stmt_query = sl_stmt_query, .stmt_has = sl_stmt_has,
    .call_over = sl_call_over, .raw = sl_raw, .raw_refused = sl_raw_refused,
    .intact = sl_intact,
    .wake_clear = db_wake_clear, .changed = op_changed, .poke = db_poke, .pending = db_pending,
    .patience = op_patience, .sound = sl_sound, .maintain = sl_maintain,
    .in_hand = db_in_hand,
};

static struct sqlite *make(const char *path, const struct store_opts *o)
{
    struct sqlite *sl = calloc(1, sizeof *sl);

    if (sl == NULL)
        return NULL;
    side_init(&sl->d.side);
    store_own(&sl->d.base);
    sl->d.base.ops = &ops;
    sl->d.engine = &sl_engine;
    sl->d.base.env = sl->d.env = o->env != NULL ? o->env : env_real();
    sl->accept_wal_risk = o->accept_wal_risk;
    sl->watch = o->watch;
    sl->closed_ok = o->closed_ok;
    sl->d.lease_us = o->lease_us > 0 ? o->lease_us : 30000000;
    sl->ckpt_at = 900;
    sl->wait_us = SL_WAIT_US;
    sl->path = strdup(path);
    if (o->on_connect_n > 0)
        sl->on_connect = calloc(o->on_connect_n, sizeof *sl->on_connect);
    bool ok = sl->path != NULL && (o->on_connect_n == 0 || sl->on_connect != NULL);
    for (size_t i = 0; i < o->on_connect_n && ok; i++) {
        ok = (sl->on_connect[i] = strdup(o->on_connect[i])) != NULL;
        sl->on_connect_n += ok;
    }
    if (!ok) {
        op_close(&sl->d.base);
        return NULL;
    }
    return sl;
}

/* Locks and shared memory do not work there (sqlite.org/howtocorrupt.html, "filesystems with broken
 * locking"): NFS, SMB/CIFS, 9p, FUSE. */
static enum pawl_rc refuse_network(const char *path, struct pawl_error *e)
{
    static const struct { unsigned long magic; const char *name; } bad[] = {
        { 0x6969, "NFS" }, { 0x517B, "SMB" }, { 0xFF534D42, "CIFS" }, { 0xFE534D42, "SMB2" },
        { 0x01021997, "9p" }, { 0x65735546, "FUSE" },
    };
    struct statfs fs;

    if (statfs(path, &fs) != 0)
        return PAWL_OK;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        if ((unsigned long)fs.f_type == bad[i].magic)
            return pawl_fail(e, PAWL_NOTOURS,
                             "%s is on a %s file system, where locks are not reliable:"
                             " put the database on a local disk", path, bad[i].name);
    return PAWL_OK;
}

static enum pawl_rc open_side(struct sqlite *sl, struct pawl_error *e)
{
    struct pawl_error was = {.rc = PAWL_OK};
    enum pawl_rc rc = side_open(&sl->d.side, sl->path, &was);

    if (rc == PAWL_OK)
        return rc;
    pawl_fail_native(e, rc, was.native, "%s%s", was.msg, rc != PAWL_DENIED ? ""
                     : "; this user needs to read and write it and what is in it");
    return sl_explain_denied(sl, rc, e);
}

enum pawl_rc sqlite_store_open(const char *path, const struct store_opts *o, struct store **out,
                               struct pawl_error *e)
{
    struct sqlite *sl = make(path, o);
    enum pawl_rc rc;

    *out = NULL;
    if (sl == NULL)
        return pawl_fail(e, PAWL_NOMEM, "out of memory");
    if ((rc = refuse_network(path, e)) == PAWL_OK && (rc = sl_connect(sl, false, e)) == PAWL_OK &&
        (rc = open_side(sl, e)) == PAWL_OK) {
        *out = &sl->d.base;
        return PAWL_OK;
    }
    op_close(&sl->d.base);
    return rc;
}

enum pawl_rc sqlite_store_init(const char *path, const struct store_opts *o, bool *created,
                               struct pawl_error *e)
{
    struct sqlite *sl = make(path, o);
    bool made = false;
    enum pawl_rc rc;

    if (sl == NULL)
        return pawl_fail(e, PAWL_NOMEM, "out of memory");
    if ((rc = sl_connect(sl, true, e)) == PAWL_OK && (rc = refuse_network(path, e)) == PAWL_OK &&
        (rc = open_side(sl, e)) == PAWL_OK)
        rc = sl_migrate(sl, true, &made, e);
    if (rc == PAWL_OK && created != NULL)
        *created = made;
    op_close(&sl->d.base);
    return rc;
}
