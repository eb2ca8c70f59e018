// SPDX-License-Identifier: Apache-2.0
/* copy.c - a store moves into another one, whole, in an order that a kill can cut anywhere.
 *
 *   1  the jobs of dead workers are put back, as a worker does when it starts
 *   2  source: begin, and keep out every writer until step 5
 *   3  target, one transaction: every row, the counts compared, closed, marked "arriving"
 *   4  target: planner's statistics, and the invariants of `pawl check`
 *   5  source: closed, marked "moved": commit. This is the moment.
 *   6  target: opened
 * Cut before 5, the source runs on as if nothing had been; what lies in the target is closed, and
 * is cleared by the next call. Cut after 5, the next call does step 6, and so does whoever opens
 * the target where the source can be read (store.c).
 */
#include "store/copy.h"

#include <string.h>
#include <time.h>
#include "base/err.h"
#include "store/copy/copy.h"

enum { NAP_MS = 50, LEASE_MORE_S = 10 };

bool copy_tell(const struct copy *c, const char *what, int64_t done, int64_t of)
{
    return c->how->progress == NULL || c->how->progress(c->how->ctx, what, done, of);
}

enum pawl_rc copy_stopped(struct pawl_error *e)
{
    return pawl_fail(e, PAWL_BUSY, "interrupted: nothing was moved");
}

enum pawl_rc copy_number(struct db *db, const char *sql, int64_t *n, struct pawl_error *e)
{
    struct query *q = NULL;
    bool row = false;
    enum pawl_rc rc = db_prepare(db, sql, &q, e);

    *n = 0;
    if (rc == PAWL_OK && (rc = db_row(db, q, &row, e)) == PAWL_OK && row)
        *n = q_i64(q, 0);
    q_free(q);
    return rc;
}

/* --- opening both --- */

static enum pawl_rc open_closed(const struct store_opts *o, struct store **st, struct db **db,
                                struct pawl_error *e)
{
    struct store_opts closed_ok = *o;
    enum pawl_rc rc;

    closed_ok.closed_ok = true;
    if ((rc = store_open(&closed_ok, st, e)) == PAWL_OK)
        *db = db_of(*st);
    return rc;
}

static enum pawl_rc open_target(struct copy *c, const struct store_opts *to, struct pawl_error *e)
{
    enum pawl_rc rc = open_closed(to, &c->to_st, &c->to, e);

    c->utf8_only = strncmp(to->url, "postgres", 8) == 0;
    if (rc == PAWL_NOSTORE && c->how->dry_run)
        return PAWL_OK;
    if (rc == PAWL_NOSTORE && !c->how->undo && (rc = store_init(to, NULL, e)) == PAWL_OK)
        rc = open_closed(to, &c->to_st, &c->to, e);
    return rc;
}

static enum pawl_rc may_move(struct copy *c, struct pawl_error *e)
{
    const struct db_mover *a = mover_of(c->from), *b = c->to != NULL ? mover_of(c->to) : NULL;

    if (b != NULL && a == b && a->same(c->from, c->to, e))
        return pawl_fail(e, PAWL_BADARG, "both are one store: %s", buf_str(&c->from_name));
    if (b != NULL && b->by_ids && !a->by_ids)
        return pawl_fail(e, PAWL_BADARG, "from PostgreSQL to SQLite is not offered: ids that were"
                         " drawn in vain would be jobs that are missing (pawl check, I24)");
    return PAWL_OK;
}

/* --- what the dead left --- */

static void nap(void)
{
    const struct timespec t = { .tv_nsec = NAP_MS * 1000000L };

    nanosleep(&t, NULL);
}

/* A worker whose file was taken away may live, and gets one lease of time. */
static enum pawl_rc recover(struct copy *c, struct pawl_error *e)
{
    const struct env *env = env_real();
    const int64_t until = env->mono_us(env->ctx) + c->from->lease_us + LEASE_MORE_S * 1000000LL;
    int64_t left = 0;
    enum pawl_rc rc;

    for (;;) {
        size_t n = 0;

        if ((rc = copy_quiet(c, c->from, "source", e)) != PAWL_OK ||
            (rc = c->how->recover(c->from_st, &n, e)) != PAWL_OK ||
            (rc = copy_count(c->from, &db_tables[DB_TABLE_RUNNING], &left, e)) != PAWL_OK)
            return rc;
        c->out->recovered += (int64_t)n;
        if (left == 0)
            return PAWL_OK;
        if (env->mono_us(env->ctx) > until)
            return pawl_fail(e, PAWL_BUSY, "%lld jobs are leased to workers that are not here, and"
                             " could not be put back: start and stop a worker, and see what it"
                             " logs", (long long)left);
        if (!copy_tell(c, "the leases of lost workers", 0, left))
            return copy_stopped(e);
        nap();
    }
}

/* --- the move --- */

struct findings { struct copy *c; int64_t n; };

static bool count_finding(void *ctx, const struct pawl_finding *f)
{
    struct findings *x = ctx;

    x->n += f->job_id >= 0;
    return x->c->how->finding == NULL || x->c->how->finding(x->c->how->ctx, f);
}

static enum pawl_rc check_target(struct copy *c, struct pawl_error *e)
{
    struct findings x = { .c = c };
    enum pawl_rc rc;

    if (!copy_tell(c, "check", 0, 0))
        return copy_stopped(e);
    if ((rc = mover_of(c->to)->settled(c->to, e)) != PAWL_OK ||
        (rc = db_check(c->to_st, count_finding, &x, &c->out->checked, e)) != PAWL_OK)
        return rc;
    return x.n == 0 ? PAWL_OK
                    : pawl_fail(e, PAWL_BADDATA, "pawl check finds %lld faults in the copy: run it"
                                " on the source and mend them; nothing was moved", (long long)x.n);
}

static enum pawl_rc with_source_held(struct copy *c, struct pawl_error *e)
{
    int64_t running = 0;
    enum pawl_rc rc;

    if ((rc = mover_of(c->from)->freeze(c->from, e)) != PAWL_OK ||
        (rc = copy_quiet(c, c->from, "source", e)) != PAWL_OK ||
        (rc = copy_count(c->from, &db_tables[DB_TABLE_RUNNING], &running, e)) != PAWL_OK)
        return rc;
    if (running > 0)
        return pawl_fail(e, PAWL_BUSY, "a worker has just run on the source: stop it first");
    if ((rc = copy_arrived(c, e)) == PAWL_OK)
        rc = check_target(c, e);
    store_patience(c->to_st, COPY_PATIENCE_US);
    return rc;
}

static enum pawl_rc move(struct copy *c, struct pawl_error *e)
{
    enum pawl_rc rc = recover(c, e);

    if (rc != PAWL_OK || (rc = db_begin(c->from, e)) != PAWL_OK)
        return rc;
    if ((rc = with_source_held(c, e)) != PAWL_OK) {
        db_rollback(c->from);
        db_leave(c->from);
        return rc;
    }
    if ((rc = copy_moved(c, e)) != PAWL_OK)
        return rc;
    return copy_opened(c, e);
}

/* --- a call that was made before --- */

static void count_both(struct copy *c)
{
    struct pawl_error ignored;

    c->out->rows_n = DB_TABLES_N;
    for (int i = 0; i < DB_TABLES_N; i++) {
        struct pawl_copy_row *r = &c->out->row[i];

        r->what = db_tables[i].what;
        if (copy_count(c->from, &db_tables[i], &r->from, &ignored) != PAWL_OK ||
            copy_count(c->to, &db_tables[i], &r->to, &ignored) != PAWL_OK)
            c->out->rows_n = 0;
    }
}

static enum pawl_rc go_on(struct copy *c, struct pawl_error *e)
{
    const bool ours = c->to != NULL && strcmp(c->here.nonce, c->there.nonce) == 0;

    if (c->how->undo)
        return ours ? copy_back(c, e)
                    : pawl_fail(e, PAWL_MOVED, "the source has moved to %s: give that one",
                                c->here.other);
    if (!ours)
        return pawl_fail(e, PAWL_MOVED, "the source has moved to %s already", c->here.other);
    if (db_mark_is(&c->there, "left"))
        return pawl_fail(e, PAWL_MOVED, "this move was being taken back: run it again with"
                         " --undo, then without");
    c->out->already = true;
    if (!db_mark_is(&c->there, "here") && !c->how->dry_run) {
        const enum pawl_rc rc = copy_opened(c, e);

        if (rc != PAWL_OK)
            return rc;
    }
    count_both(c);
    return PAWL_OK;
}

static enum pawl_rc dry_run(struct copy *c, struct pawl_error *e)
{
    enum pawl_rc rc;

    if (c->to != NULL && (c->there.state[0] == '\0' || db_mark_is(&c->there, "here")) &&
        (rc = copy_empty(c, e)) != PAWL_OK)
        return rc;
    if ((rc = db_snapshot(c->from, e)) != PAWL_OK)
        return rc;
    rc = copy_rows(c, true, e);
    db_snapshot_end(c->from);
    return rc;
}

static enum pawl_rc begin(struct copy *c, const struct store_opts *from,
                          const struct store_opts *to, struct pawl_error *e)
{
    enum pawl_rc rc = open_closed(from, &c->from_st, &c->from, e);

    if (rc != PAWL_OK || (rc = open_target(c, to, e)) != PAWL_OK)
        return rc;
    mover_of(c->from)->shown(c->from, &c->from_name);
    if (c->to != NULL)
        mover_of(c->to)->shown(c->to, &c->to_name);
    if (c->from_name.failed || c->to_name.failed)
        return pawl_fail(e, PAWL_NOMEM, "out of memory");
    if ((rc = may_move(c, e)) != PAWL_OK ||
        (rc = db_mark_get(c->from, &c->here, e)) != PAWL_OK)
        return rc;
    return c->to != NULL ? db_mark_get(c->to, &c->there, e) : PAWL_OK;
}

enum pawl_rc store_copy(const struct store_opts *from, const struct store_opts *to,
                        const struct store_move *how, struct pawl_copied *out,
                        struct pawl_error *e)
{
    struct copy c = { .how = how, .out = out };
    struct buf say = {0};
    enum pawl_rc rc = begin(&c, from, to, e);

    if (rc == PAWL_OK && db_mark_is(&c.here, "moved")) {
        rc = go_on(&c, e);
    } else if (rc == PAWL_OK && c.here.state[0] != '\0' && !db_mark_is(&c.here, "here")) {
        db_mark_say(&c.here, &say);
        rc = pawl_fail(e, PAWL_MOVED, "the source %s: %s", buf_str(&c.from_name),
                       buf_str(&say) + strlen("pawl: "));
    } else if (rc == PAWL_OK && how->undo) {
        rc = pawl_fail(e, PAWL_TOOLATE, "%s has not moved: there is nothing to undo",
                       buf_str(&c.from_name));
    } else if (rc == PAWL_OK && how->dry_run) {
        rc = dry_run(&c, e);
    } else if (rc == PAWL_OK) {
        rc = move(&c, e);
    }
    buf_free(&say);
    buf_free(&c.from_name);
    buf_free(&c.to_name);
    store_close(&c.to_st);
    store_close(&c.from_st);
    return rc;
}

/* --- whoever opens a target whose last step was cut off --- */

enum pawl_rc store_copy_settle(const struct store_opts *to)
{
    static const struct store_move quiet;
    struct pawl_copied unused = {0};
    struct copy c = { .how = &quiet, .out = &unused };
    struct pawl_error why;
    struct store_opts from = { .url = c.there.other };
    enum pawl_rc rc = open_closed(to, &c.to_st, &c.to, &why);

    if (rc == PAWL_OK)
        rc = db_mark_get(c.to, &c.there, &why);
    if (rc == PAWL_OK && !db_mark_is(&c.there, "arriving"))
        rc = db_mark_is(&c.there, "here") ? PAWL_OK : PAWL_MOVED; /* opened meanwhile, or not */
    else if (rc == PAWL_OK && (rc = open_closed(&from, &c.from_st, &c.from, &why)) == PAWL_OK &&
             (rc = db_mark_get(c.from, &c.here, &why)) == PAWL_OK)
        rc = db_mark_is(&c.here, "moved") && strcmp(c.here.nonce, c.there.nonce) == 0
            ? copy_opened(&c, &why) : PAWL_MOVED;
    store_close(&c.from_st);
    store_close(&c.to_st);
    return rc;
}
