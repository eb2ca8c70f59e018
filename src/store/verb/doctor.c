// SPDX-License-Identifier: Apache-2.0
/* doctor.c - what is wrong with the jobs of a store, whichever engine holds them: who nobody
 * serves, what nobody drains, what fails all the time, what waits for a person. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include "base/err.h"
#include "store/verb/doctor.h"

#define OLD_US (15 * 60 * INT64_C(1000000))
#define STORM_N 100            /* failed attempts of jobs that wait, in STORM_US */
#define STORM_US (10 * 60 * INT64_C(1000000))
#define AHEAD_US (60 * INT64_C(1000000)) /* a job that came from the future */

void doctor_say(struct doctor *d, const char *check, enum pawl_severity how, const char *fix,
                const char *fmt, ...)
{
    char text[1024];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    const struct pawl_advice a = { .check = check, .severity = how, .what = text, .fix = fix };
    d->enough = d->enough || !d->fn(d->ctx, &a);
}

bool doctor_look(struct doctor *d)
{
    d->looked += !d->enough;
    return !d->enough;
}

const char *doctor_span(int64_t us, char *buf, size_t n)
{
    const long long s = us / 1000000;

    if (s < 120)
        snprintf(buf, n, "%lld s", s);
    else if (s < 7200)
        snprintf(buf, n, "%lld min", s / 60);
    else
        snprintf(buf, n, s < 172800 ? "%lld h" : "%lld d", s < 172800 ? s / 3600 : s / 86400);
    return buf;
}

enum pawl_rc doctor_rows(struct doctor *d, const char *check, const char *sql, doctor_row_fn *fn,
                         void *ctx, struct pawl_error *e)
{
    struct query *q = NULL;
    bool row = true;
    enum pawl_rc rc = PAWL_OK;

    if (!doctor_look(d) || (rc = db_prepare(d->db, sql, &q, e)) != PAWL_OK)
        return rc;
    if (strstr(sql, "?1") != NULL)
        q_int(q, 1, d->now_us);
    if (strstr(sql, "?2") != NULL)
        q_int(q, 2, d->now_us - d->old_us);
    while ((rc = db_row(d->db, q, &row, e)) == PAWL_OK && row && !d->enough)
        fn(d, q, ctx);
    q_free(q);
    if (rc != PAWL_DENIED)
        return rc;
    doctor_say(d, check, PAWL_UNSEEN, "connect as a role that may read it", "cannot be seen: %s",
               e != NULL ? e->msg : "permission denied");
    return PAWL_OK;
}

/* --- leases --- */

/* Is whoever holds this lease gone? What the next look of a worker would find (reap.c). */
static bool is_gone(struct db *db, const char *worker)
{
    struct side_peer peer;
    struct pawl_error ignored;

    if (side_look(&db->side, worker, db->env->boot_us(db->env->ctx), &peer, &ignored) != PAWL_OK)
        return false;
    const enum side_life life = peer.life;
    side_forget(&db->side, &peer, false);
    if (life != SIDE_MISSING)
        return life != SIDE_ALIVE;
    return db->engine->life == NULL || db->engine->life(db, worker) != SIDE_ALIVE;
}

struct holder { char id[SIDE_ID_BYTES]; int64_t n, since_us; };
struct holders { struct holder h[64]; size_t n; };

static void add_holder(struct doctor *d, struct query *q, void *ctx)
{
    struct holders *hs = ctx;
    struct holder *h = &hs->h[hs->n];

    (void)d;
    if (hs->n == sizeof hs->h / sizeof *hs->h)
        return;
    snprintf(h->id, sizeof h->id, "%s", q_str(q, 0));
    h->n = q_i64(q, 1);
    h->since_us = q_i64(q, 2);
    hs->n++;
}

static enum pawl_rc leases(struct doctor *d, struct pawl_error *e)
{
    struct holders hs = { .n = 0 };
    char span[32];
    enum pawl_rc rc = doctor_rows(d, "leases", "SELECT worker, count(*), min(started_at_us) FROM"
                                  " pawl_x_running GROUP BY worker ORDER BY 3", add_holder, &hs, e);

    for (size_t i = 0; i < hs.n && rc == PAWL_OK && !d->enough; i++)
        if (is_gone(d->db, hs.h[i].id))
            doctor_say(d, "leases", PAWL_WARNING, "start a worker of these tasks: it takes them"
                       " back within its lease", "%lld jobs are leased to worker %s, which is gone"
                       " (the oldest since %s)", (long long)hs.h[i].n, hs.h[i].id,
                       doctor_span(d->now_us - hs.h[i].since_us, span, sizeof span));
    return rc;
}

/* --- what waits --- */

static void unserved(struct doctor *d, struct query *q, void *ctx)
{
    char span[32];

    (void)ctx;
    doctor_say(d, "tasks", PAWL_WARNING, "put a section for it into a worker's pawl.conf, or"
               " pawl cancel them", "task %s: %lld jobs wait, the oldest for %s, and no worker has"
               " ever declared it", q_str(q, 0), (long long)q_i64(q, 1),
               doctor_span(d->now_us - q_i64(q, 2), span, sizeof span));
}

static void undrained(struct doctor *d, struct query *q, void *ctx)
{
    char span[32];
    const bool paused = q_i64(q, 4) != 0;

    (void)ctx;
    doctor_say(d, "queues", paused ? PAWL_NOTE : PAWL_WARNING, paused ? "pawl resume, when it may"
               " go on" : "start a worker of this task and queue (pawl work --queue), or more",
               "queue %s, task %s: %lld jobs are due, the oldest for %s, %s", q_str(q, 0),
               q_str(q, 1), (long long)q_i64(q, 2), doctor_span(d->now_us - q_i64(q, 3), span,
                                                                sizeof span),
               paused ? "and it is paused" : "and none of them is running");
}

static void storming(struct doctor *d, struct query *q, void *ctx)
{
    (void)ctx;
    doctor_say(d, "retries", PAWL_WARNING, "see one with pawl job ID; pause the task (pawl pause"
               " --task) until its cause is gone", "task %s: %lld attempts of %lld waiting jobs"
               " failed within 10 min: \"%.120s\"", q_str(q, 0), (long long)q_i64(q, 1),
               (long long)q_i64(q, 2), q_str(q, 3) != NULL ? q_str(q, 3) : "");
}

static void dead(struct doctor *d, struct query *q, void *ctx)
{
    (void)ctx;
    doctor_say(d, "dead", PAWL_WARNING, "pawl dead list, then dead replay or dead discard",
               "%lld dead letters of task %s (%s) wait for a decision", (long long)q_i64(q, 2),
               q_str(q, 0), q_str(q, 1));
}

static void from_the_future(struct doctor *d, struct query *q, void *ctx)
{
    char span[32];

    (void)ctx;
    if (q_i64(q, 0) - d->now_us > AHEAD_US)
        doctor_say(d, "clock", PAWL_WARNING, "set the clock right (NTP); jobs that were enqueued"
                   " meanwhile start when it gets there, or now with pawl run-now", "the newest job"
                   " came %s in the future: the clock was put back",
                   doctor_span(q_i64(q, 0) - d->now_us, span, sizeof span));
}

static enum pawl_rc waiting(struct doctor *d, struct pawl_error *e)
{
    char storm[700];
    enum pawl_rc rc;

    snprintf(storm, sizeof storm, "SELECT t.name, count(*), count(DISTINCT r.id), max(a.error)"
             " FROM pawl_x_ready r JOIN pawl_x_attempt a ON a.job_id = r.id JOIN pawl_x_task t ON"
             " t.id = r.task_id WHERE r.moved = 1 AND a.ended_at_us + %lld > ?1 AND a.outcome IN"
             " ('transient', 'timeout', 'lost') GROUP BY t.name HAVING count(*) >= %d",
             (long long)STORM_US, STORM_N);
    if ((rc = doctor_rows(d, "tasks", "SELECT t.name, count(*), min(r.run_at_us) FROM pawl_x_task t"
                          " JOIN pawl_x_ready r ON r.task_id = t.id WHERE t.policy IS NULL GROUP BY"
                          " t.name ORDER BY 1", unserved, NULL, e)) != PAWL_OK ||
        (rc = doctor_rows(d, "queues", "SELECT q.name, t.name, count(*), min(r.run_at_us),"
                          " max(CASE WHEN q.paused = 1 OR t.paused = 1 THEN 1 ELSE 0 END)"
                          " FROM pawl_x_ready r JOIN pawl_x_queue q ON q.id = r.queue_id"
                          " JOIN pawl_x_task t ON t.id = r.task_id WHERE r.run_at_us <= ?1"
                          " AND t.policy IS NOT NULL AND NOT EXISTS (SELECT 1 FROM pawl_x_running u"
                          " WHERE u.task_id = r.task_id AND u.queue_id = r.queue_id)"
                          " GROUP BY q.name, t.name HAVING min(r.run_at_us) < ?2 ORDER BY 4",
                          undrained, NULL, e)) != PAWL_OK ||
        (rc = doctor_rows(d, "retries", storm, storming, NULL, e)) != PAWL_OK ||
        (rc = doctor_rows(d, "dead", "SELECT t.name, d.class, count(*) FROM pawl_x_dead d JOIN"
                          " pawl_x_job j ON j.id = d.job_id JOIN pawl_x_task t ON t.id = j.task_id"
                          " WHERE d.replayed_as IS NULL GROUP BY t.name, d.class ORDER BY 3 DESC",
                          dead, NULL, e)) != PAWL_OK)
        return rc;
    return doctor_rows(d, "clock", "SELECT created_at_us FROM pawl_x_job ORDER BY id DESC"
                       " LIMIT 1", from_the_future, NULL, e);
}

enum pawl_rc db_doctor(struct store *st, int64_t old_us, pawl_advice_fn *fn, void *ctx, int *looked,
                       struct pawl_error *e)
{
    struct db *db = db_of(st);
    struct doctor d = { .db = db, .fn = fn, .ctx = ctx, .old_us = old_us > 0 ? old_us : OLD_US };
    enum pawl_rc rc = db_ready(db, e);

    if (rc != PAWL_OK)
        return rc;
    d.now_us = db->env->wall_us(db->env->ctx);
    if ((rc = db->engine->doctor(&d, e)) == PAWL_OK && (rc = leases(&d, e)) == PAWL_OK)
        rc = waiting(&d, e);
    *looked = d.looked;
    return rc;
}
