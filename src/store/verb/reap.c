// SPDX-License-Identifier: Apache-2.0
/* reap.c - recovery: find workers that are gone, read their last words once, put back their
 * jobs.
 *
 * Keeps: the rows decide who held what; the worker file only says whether it lives and what its
 *        effect runner had in hand. Every row is taken under the lease it was read with, inside one
 *        transaction per worker; a frozen worker's beat is looked at again inside it.
 *        A worker without a file gets one lease of time; from it, and from a frozen one, jobs are
 *        taken back at the cost of a release: no death was seen.
 * Blame: one started job when a process died is charged (lost + 1). Several: suspects, not charged,
 *        they run next and alone. A death in `commit` makes what still waits of the batch suspect.
 */
#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include "base/err.h"
#include "base/fail.h"
#include "base/log.h"
#include "core/rules.h"
#include "store/verb/reap.h"


/* A damaged counter must not end whoever recovers the job. */
static int64_t counter(struct query *q, int col)
{
    const int64_t v = q_i64(q, col);

    return v < 0 ? 0 : v > DB_COUNTER_MAX ? DB_COUNTER_MAX : v;
}

enum pawl_rc db_rows_of(struct db *db, const char *worker, bool dead, struct arena *a,
                        struct job **jobs, int64_t **task_ids, size_t *n, struct pawl_error *e)
{
    const size_t room = 1024;
    struct query *q = NULL;
    bool row = true;
    enum pawl_rc rc;

    *n = 0;
    *jobs = arena_alloc(a, room * sizeof **jobs);
    *task_ids = arena_alloc(a, room * sizeof **task_ids);
    if (*jobs == NULL || *task_ids == NULL)
        return pawl_fail(e, PAWL_NOMEM, "out of memory");
    if ((rc = db_q(db, dead ? Q_ROWS_OF_DEAD : Q_ROWS_OF, &q, e)) != PAWL_OK)
        return rc;
    q_text(q, 1, worker);
    while ((rc = db_row(db, q, &row, e)) == PAWL_OK && row && *n < room) {
        struct job *job = &(*jobs)[*n];

        job->id = q_i64(q, 0);
        memcpy(job->lease_id, q_blob_of(q, 1), sizeof job->lease_id);
        job->started_at_us = q_i64(q, 2);
        (*task_ids)[(*n)++] = q_i64(q, 3);
        job->queue_id = q_i64(q, 4);
        job->rank = q_i64(q, 5);
        job->run_at_us = q_i64(q, 6);
        job->n.runs = counter(q, 7);
        job->n.failures = counter(q, 8);
        job->n.lost = counter(q, 9);
        job->n.releases = counter(q, 10);
        job->n.snoozes = counter(q, 11);
        job->suspect = q_i32(q, 12) != 0;
        job->token = job->n.runs + 1;
        job->max_retries = -1;
    }
    q_reset(q);
    return rc;
}

/* The stored policy of a task this process may not serve. */
static enum pawl_rc policy_of(struct reaper *r, int64_t task_id, struct policy *p, char *name,
                              size_t name_n, struct pawl_error *e)
{
    struct query *q = NULL;
    bool row = false;
    char why[128];
    enum pawl_rc rc;

    policy_defaults(p);
    snprintf(name, name_n, "?");
    if ((rc = db_q(r->db, Q_TASK_POLICY, &q, e)) != PAWL_OK)
        return rc;
    q_int(q, 1, task_id);
    if ((rc = db_row(r->db, q, &row, e)) != PAWL_OK || !row)
        return rc;
    snprintf(name, name_n, "%s", q_str(q, 1));
    if (!q_is_null(q, 0) &&
        !policy_parse(p, q_str(q, 0), why, sizeof why))
        rc = pawl_fail(e, PAWL_STORE, "the stored policy of task %s cannot be read: %s", name, why);
    q_reset(q);
    return rc;
}

/* expires_at and max_retries of the job row, which the running and ready rows do not carry. */
static enum pawl_rc job_terms(struct reaper *r, struct job *job, struct pawl_error *e)
{
    struct query *q = NULL;
    bool row = false;
    enum pawl_rc rc;

    if ((rc = db_q(r->db, Q_JOB_READ, &q, e)) != PAWL_OK)
        return rc;
    q_int(q, 1, job->id);
    if ((rc = db_row(r->db, q, &row, e)) != PAWL_OK || !row)
        return rc;
    job->key = q_dup(&r->a, q, 3);
    job->max_retries = q_is_null(q, 9) ? -1 : q_i32(q, 9);
    job->expires_at_us = q_i64(q, 10);
    q_reset(q);
    return PAWL_OK;
}

enum pawl_rc reap_place(struct reaper *r, struct job *job, int64_t task_id, enum outcome how,
                        struct pawl_error *e)
{
    struct policy policy;
    char name[LIMIT_NAME_BYTES + 1];
    struct finding f = { .exit_code = r->exit_code, .signal = r->signal, .worker = r->worker,
                         .started_at_us = job->started_at_us };
    enum pawl_rc rc;

    if ((rc = policy_of(r, task_id, &policy, name, sizeof name, e)) != PAWL_OK ||
        (rc = job_terms(r, job, e)) != PAWL_OK)
        return rc;
    f.outcome = how;
    f.error = r->said == NULL ? r->why : r->said->error;
    f.error_bytes = f.error != NULL ? strlen(f.error) : 0;
    f.retry_after_us = r->said != NULL ? r->said->after_us : 0;
    const struct casualty c = { .job = job, .policy = &policy, .task = name,
        .charged = how == OUT_LOST,
                                .why = r->why, .signal = r->signal };
    struct settle s = { .job = job, .found = &f, .task_id = task_id };
    s.d = r->judge(r->ctx, &c, &f);
    r->out->dead += s.d.to == PAWL_STATE_DEAD;
    r->out->dropped += s.d.to == PAWL_STATE_DROPPED;
    r->out->charged += how == OUT_LOST;
    r->out->suspects += how == OUT_SUSPECT;
    return db_place(r->db, &s, e);
}

enum pawl_rc reap_put_back(struct reaper *r, struct job *job, int64_t task_id, enum outcome how,
                           struct pawl_error *e)
{
    struct query *q = NULL;
    struct said said;
    bool yes = false;
    enum pawl_rc rc;

    if (r->db->engine->said != NULL &&
        (rc = r->db->engine->said(r->db, job, &r->a, &said, &yes, e)) != PAWL_OK)
        return rc;
    if ((rc = db_q(r->db, Q_FENCE, &q, e)) != PAWL_OK)
        return rc;
    q_int(q, 1, job->id);
    q_blob(q, 2, job->lease_id, sizeof job->lease_id);
    if ((rc = db_run(r->db, q, e)) != PAWL_OK || db_changes(r->db) != 1)
        return rc;
    /* The attempt row that follows is ours. Under the old lease it would tell the owner, should it
     * wake and settle, that its own settle had been committed before. */
    env_bytes(r->db->env, job->lease_id, sizeof job->lease_id);
    r->said = yes ? &said : NULL; /* its run was over, by its own word, before anybody died */
    rc = reap_place(r, job, task_id, yes ? said.outcome : how, e);
    r->said = NULL;
    return rc;
}

enum outcome reap_shared(const struct job *job)
{
    const struct counters *n = &job->n;
    const int64_t suspected = n->runs - n->failures - n->lost - n->releases - n->snoozes;

    return suspected >= SUSPECTED_MAX ? OUT_LOST : OUT_SUSPECT;
}

/* A death is proven by a free lock (or another boot). A worker that is frozen, or whose file is
 * missing, may be well: its jobs are taken back like a deploy's, at the cost of a release. One that
 * is elsewhere and is not heard of may have been cut off, or a job of it has taken its host away:
 * what was started there runs next and alone, and is charged if that happens to it then, again. */
static enum outcome verdict_on(const struct side_peer *peer, const struct job *job, bool only_one)
{
    if (peer->life == SIDE_FROZEN || peer->life == SIDE_MISSING)
        return OUT_RELEASED;
    if (peer->life == SIDE_GONE && atomic_load(&peer->w->orderly) != 0)
        return OUT_RELEASED; /* a stop in good order that the store's lock outlasted */
    if (peer->life == SIDE_UNHEARD)
        return only_one && job->suspect ? OUT_LOST : reap_shared(job);
    return only_one ? OUT_LOST : reap_shared(job);
}

/* A worker that runs its leased jobs one at a time, and died: its last words say which. */
static enum pawl_rc reap_alone(struct reaper *r, const struct side_peer *peer, struct pawl_error *e)
{
    const struct side_worker *w = peer->w;
    const enum outcome hand = atomic_load(&w->orderly) != 0 ? OUT_RELEASED
                            : w->parent[0] != '\0' ? OUT_SUSPECT /* its supervisor died, too */
                            : OUT_LOST;
    enum pawl_rc rc = reap_serial(r, &w->blame, hand, e);

    if (rc == PAWL_OK && w->blame.kind == BLAME_EFFECT && hand != OUT_RELEASED)
        rc = reap_blame(r, &w->blame, 0, e);
    return rc;
}

/* last: what it has said where other hosts can read it; NULL: nothing. */
static enum pawl_rc reap_rows(struct reaper *r, const struct side_peer *peer,
                              const struct reap_family *f, const struct side_blame *last,
                              struct pawl_error *e)
{
    struct job *jobs = NULL;
    int64_t *tasks = NULL;
    size_t n = 0;
    enum pawl_rc rc;

    if (peer->life == SIDE_GONE && peer->w->serial != 0)
        return reap_alone(r, peer, e);
    if ((rc = db_rows_of(r->db, r->worker, peer->life == SIDE_GONE, &r->a, &jobs, &tasks, &n, e))
        != PAWL_OK)
        return rc;
    const bool blamed = peer->life == SIDE_GONE && peer->w != NULL &&
                        atomic_load(&peer->w->blame.phase) != BLAME_IDLE;
    const bool runner = peer->w != NULL && peer->w->parent[0] != '\0';
    const size_t started = n + blamed + f->in_hand + runner + (last != NULL); /* had company */
    for (size_t i = 0; i < n; i++)
        if ((rc = reap_put_back(r, &jobs[i], tasks[i], verdict_on(peer, &jobs[i], started == 1),
                                e)) != PAWL_OK)
            return rc;
    /* After another boot the page may be torn: only the rows, which were committed, count. */
    if (blamed && (rc = reap_blame(r, &peer->w->blame, started - 1, e)) != PAWL_OK)
        return rc;
    if (last != NULL && (rc = reap_blame(r, last, n, e)) != PAWL_OK)
        return rc;
    return reap_family_rows(r, f, started, e);
}

/* Judged by what others have, or have not, heard of it. */
static bool by_hearsay(const struct side_peer *peer)
{
    return peer->life == SIDE_MISSING || peer->life == SIDE_UNHEARD;
}

/* We have slept, or waited for the store: so may have the others, with their beats. */
static bool must_not_judge(const struct db *db)
{
    return db->env->boot_us(db->env->ctx) < db->judge_at_us;
}

static enum pawl_rc reap_peer(struct reaper *r, struct side_peer *peer,
                              const struct reap_family *f, struct pawl_error *e)
{
    static const char *const words[] = { [SIDE_GONE] = "is gone",
        [SIDE_MISSING] = "is gone (no file)",
        [SIDE_OLD_BOOT] = "is gone (the machine was restarted)",
        [SIDE_FROZEN] = "is frozen (no beat within its lease)",
        [SIDE_UNHEARD] = "on another host is gone, or cut off (no beat within its lease)" };
    enum pawl_rc rc;

    r->worker = peer->id;
    if (peer->w != NULL)
        snprintf(r->why, sizeof r->why, "worker %s (pid %lld on %.40s) %s", peer->id,
                 (long long)peer->w->pid, peer->w->host, words[peer->life]);
    else
        snprintf(r->why, sizeof r->why, "worker %s %s", peer->id, words[peer->life]);
    if ((rc = db_begin(r->db, e)) != PAWL_OK)
        return rc;
    const int64_t boot = r->db->env->boot_us(r->db->env->ctx);
    bool gone = peer->life != SIDE_FROZEN || side_still_frozen(peer, boot), marked = false;
    struct side_blame last;

    /* Its files decide, where there are any. */
    if (gone && peer->w == NULL && r->db->engine->marked != NULL)
        rc = r->db->engine->marked(r->db, peer->id, &last, &marked, e);
    if (rc == PAWL_OK && gone)
        rc = r->db->engine->still_gone(r->db, peer->id, !by_hearsay(peer), &gone, e);
    if (rc == PAWL_OK && gone && by_hearsay(peer) && must_not_judge(r->db)) {
        db_rollback(r->db);
        db_leave(r->db);
        peer->life = SIDE_ALIVE;
        return PAWL_OK;
    }
    if (rc == PAWL_OK && gone)
        rc = reap_rows(r, peer, f, marked ? &last : NULL, e);
    if (rc == PAWL_OK && fail_point("reap.before"))
        rc = pawl_fail(e, PAWL_IO, "failpoint reap.before");
    if (rc == PAWL_OK)
        rc = db_commit(r->db, e);
    else
        db_rollback(r->db);
    db_leave(r->db);
    if (rc == PAWL_OK && fail_point("reap.after"))
        return pawl_fail(e, PAWL_IO, "failpoint reap.after");
    return rc;
}

/* Reading what runs takes long where rows that are gone are still there, as long as a snapshot is
 * held: it may take a twentieth of the time. */
#define ROWS_DEAR_US 50000
#define ROWS_SHARE 20

/* Workers to look at: every file, every name in a running row (its file may be missing), and who
 * was written down and does not beat any more. */
static enum pawl_rc suspects_list(struct reaper *r, const char ***ids, size_t *n,
                                  struct pawl_error *e)
{
    char (*files)[SIDE_ID_BYTES] = NULL;
    const size_t room = 2048;
    struct query *q = NULL;
    size_t files_n = 0;
    bool row = true;
    enum pawl_rc rc;

    *n = 0;
    if ((rc = side_list(&r->db->side, &r->a, &files, &files_n, e)) != PAWL_OK)
        return rc;
    *ids = arena_alloc(&r->a, room * sizeof **ids);
    if (*ids == NULL)
        return pawl_fail(e, PAWL_NOMEM, "out of memory");
    for (size_t i = 0; i < files_n; i++)
        (*ids)[(*n)++] = files[i];
    if ((rc = db_q(r->db, Q_WORKERS, &q, e)) != PAWL_OK)
        return rc;
    const int64_t start_us = r->db->env->mono_us(r->db->env->ctx);
    const bool rows = start_us >= r->db->rows_at_us;
    q_int(q, 1, r->db->env->wall_us(r->db->env->ctx));
    q_int(q, 2, rows);
    while ((rc = db_row(r->db, q, &row, e)) == PAWL_OK && row && *n < room) {
        const char *id = q_dup(&r->a, q, 0);
        bool have = id == NULL;

        for (size_t i = 0; i < *n && !have; i++)
            have = strcmp((*ids)[i], id) == 0;
        if (!have)
            (*ids)[(*n)++] = id;
    }
    q_reset(q);
    const int64_t end_us = r->db->env->mono_us(r->db->env->ctx);
    if (rows && end_us - start_us > ROWS_DEAR_US)
        r->db->rows_at_us = end_us + ROWS_SHARE * (end_us - start_us);
    return rc;
}

/* What is wrong with one worker's rows (damage, a policy that cannot be read) is said, and does not
 * keep the reaper from the others; a fault of the store ends the round. */
static enum pawl_rc go_on(struct reaper *r, const char *id, enum pawl_rc rc,
                          const struct pawl_error *why)
{
    if (rc != PAWL_STORE && rc != PAWL_BUG)
        return rc;
    if (log_gate(&r->db->reap_gate, 60000000))
        log_line(LOG_ERROR, "worker.unrecovered", "s:worker", id, "s:why", why->msg, "i:more",
                 r->db->reap_gate.swallowed, NULL);
    return PAWL_OK;
}

static enum pawl_rc look_and_reap(struct reaper *r, const char *id, struct pawl_error *e)
{
    const struct reap_report before = *r->out;
    const struct env *env = r->db->env;
    struct reap_family family = { .n = 0 };
    struct side_peer peer;
    enum pawl_rc rc = side_look(&r->db->side, id, env->boot_us(env->ctx), &peer, e);

    if (rc != PAWL_OK) { /* this one cannot be judged; the store is as it was */
        side_forget(&r->db->side, &peer, false);
        return pawl_fail(e, PAWL_BUG, "%s", e != NULL ? e->msg : "");
    }

    if (rc == PAWL_OK && peer.life == SIDE_MISSING)
        peer.life = r->db->engine->life(r->db, id); /* it may have lost its file, not its life */
    if (rc == PAWL_OK && (peer.life == SIDE_FROZEN || by_hearsay(&peer)) && must_not_judge(r->db))
        peer.life = SIDE_ALIVE; /* everybody gets time to beat */
    if (rc == PAWL_OK && peer.life == SIDE_GONE)
        rc = peer.w->parent[0] != '\0' ? reap_orphan(r, &peer, e)
                                       : reap_family_find(r, id, &family, e);
    if (rc == PAWL_OK && peer.life != SIDE_ALIVE) {
        if ((rc = reap_peer(r, &peer, &family, e)) == PAWL_OK)
            r->out->workers += peer.life != SIDE_ALIVE;
        else
            *r->out = before;
    }
    reap_family_forget(r, &family, rc == PAWL_OK);
    side_forget(&r->db->side, &peer, rc == PAWL_OK);
    return rc;
}

/* After a suspend every beat is old, ours too. Who has slept longer than a lease stamps its own and
 * judges nobody frozen for a lease. */
static void own_beat_first(struct db *db)
{
    const int64_t boot = db->env->boot_us(db->env->ctx);
    struct side_worker *w = db->side.w;

    if (w == NULL)
        return;
    if (boot - atomic_load(&w->beat_boot_us) > w->lease_us / 2)
        db->judge_at_us = boot + w->lease_us;
    atomic_store(&w->beat_boot_us, boot);
}

enum pawl_rc db_reap(struct store *st, casualty_fn *judge, void *ctx, struct reap_report *out,
                     struct pawl_error *e)
{
    struct db *db = db_of(st);
    struct reaper r = { .db = db, .judge = judge, .ctx = ctx, .out = out, .signal = -1,
        .exit_code = -1 };
    struct pawl_error local;
    const char **ids = NULL;
    size_t n = 0;
    enum pawl_rc rc;

    if (e == NULL)
        e = &local;
    memset(out, 0, sizeof *out);
    if ((rc = db_ready(db, e)) != PAWL_OK)
        return rc;
    own_beat_first(db);
    rc = suspects_list(&r, &ids, &n, e);
    for (size_t i = 0; i < n && rc == PAWL_OK; i++)
        if (strcmp(ids[i], db->side.id) != 0)
            rc = go_on(&r, ids[i], look_and_reap(&r, ids[i], e), e);
    arena_free(&r.a);
    if (rc == PAWL_OK && out->workers > 0)
        db_wake(db);
    return rc;
}

void reap_runner_why(struct reaper *r, const char *what, int end, enum outcome how)
{
    r->signal = end > 0 ? end : -1;
    r->exit_code = end > 0 ? -1 : -end;
    if (how == OUT_TIMEOUT)
        snprintf(r->why, sizeof r->why, "ran past the hard limit; its %s was killed", what);
    else if (how == OUT_RELEASED)
        snprintf(r->why, sizeof r->why, "the worker ends; its %s was killed", what);
    else if (end > 0)
        snprintf(r->why, sizeof r->why, "the %s was killed by signal %d", what, end);
    else
        snprintf(r->why, sizeof r->why, "the %s ended by itself, with exit code %d", what, -end);
}

enum pawl_rc db_reap_runner(struct store *st, int end, enum outcome how, casualty_fn *judge,
                            void *ctx, struct reap_report *out, struct pawl_error *e)
{
    struct db *db = db_of(st);
    struct reaper r = { .db = db, .judge = judge, .ctx = ctx, .out = out, .signal = -1,
                        .worker = db->side.id, .timeout = how == OUT_TIMEOUT };
    enum pawl_rc rc;

    assert(how == OUT_LOST || how == OUT_TIMEOUT);
    assert(db->side.w != NULL && !db->side.runner);
    memset(out, 0, sizeof *out);
    reap_runner_why(&r, "effect runner", end, how);
    if ((rc = db_begin(db, e)) != PAWL_OK)
        return rc;
    if ((rc = reap_blame(&r, &db->side.w->blame, 0, e)) == PAWL_OK)
        rc = db_commit(db, e);
    else
        db_rollback(db);
    db_leave(db);
    arena_free(&r.a);
    if (rc == PAWL_OK)
        side_blame_clear(&db->side);
    return rc;
}
