// SPDX-License-Identifier: Apache-2.0
/* test_prepared.c - prepared mode: leased, prepared one after the other, applied together; what a
 * death in any of it costs, and whom. */
#include <inttypes.h>
#include <signal.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>
#include "lib/fx.h"

enum { RUNS_MAX = 2000 };

/* What happened, by job id; shared with children. */
struct trace { int prepared[64], applied[64], dropped[64], plans; int64_t die_prepare, die_apply; };

struct rig {
    struct fx *f;
    struct trace *t;
    struct prepared *p;
    void (*on_prepare)(struct rig *r, const struct job *job, struct finding *f);
    void (*on_apply)(struct rig *r, const struct job *job, struct finding *f, bool *pinned);
    volatile int stop;
};

static void prepare(void *ctx, struct store *st, const struct lane_task *t, const struct job *job,
                    void **plan, struct arena *arena, struct finding *found)
{
    struct rig *r = ctx;
    int64_t *made = malloc(sizeof *made);

    (void)st;
    (void)t;
    (void)arena;
    ck_assert_int_lt(job->id, 64);
    ck_assert_ptr_nonnull(made);
    *made = job->id;
    *plan = made;
    r->t->prepared[job->id]++;
    r->t->plans++;
    if (r->t->die_prepare == job->id) kill(getpid(), SIGKILL);
    *found = fx_found(OUT_DONE, NULL);
    if (r->on_prepare != NULL) r->on_prepare(r, job, found);
}

static void apply(void *ctx, struct store *st, const struct lane_task *t, const struct job *job,
                  void *plan, struct arena *arena, struct finding *found, bool *pinned)
{
    static const char *const sql = "INSERT INTO fx (job, token) VALUES (:job, :token)";
    struct rig *r = ctx;
    const struct sql_value v[] = {
        { .name = "job", .type = VALUE_INT, .i = job->id },
        { .name = "token", .type = VALUE_INT, .i = job->token },
    };
    struct store_stmt *s = NULL;
    struct pawl_error e = {0};
    int64_t changed = 0;

    (void)t;
    (void)arena;
    ck_assert_int_eq(*(int64_t *)plan, job->id); /* its own plan, still there */
    r->t->applied[job->id]++;
    ck_assert_msg(store_stmt_prepare(st, sql, &s, &e) == PAWL_OK, "%s", e.msg);
    ck_assert_msg(store_stmt_run(st, s, v, 2, NULL, 0, &changed, &e) == PAWL_OK, "%s", e.msg);
    store_stmt_free(&s);
    if (r->t->die_apply == job->id) kill(getpid(), SIGKILL);
    *found = fx_found(OUT_DONE, NULL);
    if (r->on_apply != NULL) r->on_apply(r, job, found, pinned);
}

static void drop(void *ctx, const struct lane_task *t, const struct job *job, void *plan)
{
    struct rig *r = ctx;

    ck_assert_ptr_nonnull(t);
    ck_assert_int_eq(*(int64_t *)plan, job->id);
    r->t->dropped[job->id]++;
    r->t->plans--;
    free(plan);
}

static const struct prepared_calls calls = { prepare, apply, drop };

static void rig_open(struct rig *r, struct fx *f, size_t batch)
{
    const struct prepared_opts o = { .lane = &f->lane, .calls = &calls, .ctx = r,
                                     .env = &f->clock.env, .batch_max = batch,
                                     .batch_first = 4, .budget_us = 60 * SEC,
                                     .apply_us = 60 * SEC, .stop = &r->stop };

    r->f = f;
    r->p = prepared_new(&o);
    ck_assert_ptr_nonnull(r->p);
}

static void begin(struct rig *r, struct fx *f, int kind, size_t batch)
{
    memset(r, 0, sizeof *r);
    fx_begin(f, kind);
    fx_task(f, "mail");
    fx_join(f);
    r->t = fx_shared(sizeof *r->t);
    rig_open(r, f, batch);
}

static void end(struct rig *r, struct fx *f)
{
    prepared_free(&r->p);
    ck_assert_int_eq(r->t->plans, 0);
    fx_end(f);
}

/* Steps until nothing is due; delays are skipped. */
static size_t drain(struct rig *r)
{
    struct effect_report out;
    size_t steps = 0;

    for (;;) {
        ck_assert_uint_lt(++steps, RUNS_MAX);
        fx_ok(prepared_step(r->p, r->f->st, &out, &r->f->e), r->f);
        if (out.claimed > 0 || out.info.more) continue;
        if (out.info.next_due_us == 0) return steps;
        r->f->clock.wall_us = out.info.next_due_us;
    }
}

START_TEST(each_store_prepared_jobs_are_applied_once_and_share_commits)
{
    struct fx f;
    struct rig r;

    begin(&r, &f, _i, 16);
    for (int i = 0; i < 60; i++)
        fx_put(&f, "mail", "{}");
    (void)f.kind->flushes();
    const int64_t before = f.kind->flushes();
    drain(&r);
    const int64_t commits = f.kind->flushes() - before;
    ck_assert_msg(commits <= 12, "%" PRId64 " flushes for 60 jobs", commits);
    for (int64_t id = 1; id <= 60; id++) {
        ck_assert_int_eq(fx_state(&f, id), PAWL_STATE_DONE);
        ck_assert_int_eq(fx_effects(&f, id), 1);
        ck_assert_int_eq(r.t->prepared[id], 1);
        ck_assert_int_eq(r.t->applied[id], 1);
        ck_assert_int_eq(r.t->dropped[id], 1);
        fx_counters(&f, id, 0, 0, 0, 0, 0);
    }
    end(&r, &f);
}
END_TEST

static void apply_fails(struct rig *r, const struct job *job, struct finding *f, bool *pinned)
{
    (void)pinned;
    if (job->id == 3 && job->n.failures == 0) *f = fx_found(OUT_TRANSIENT, "not yet");
    if (job->id == 5) *f = fx_found(OUT_PERMANENT, "never");
    if (job->id == 7) *f = fx_found(OUT_STALE, NULL);
    if (job->id == 9) *f = fx_found(OUT_SNOOZE, "later"), f->retry_after_us = SEC;
    if (job->id == 9 && job->n.snoozes == 1) *f = fx_found(OUT_DONE, NULL);
    ck_assert_ptr_eq(r->f->lane.tasks, r->f->tasks);
}

START_TEST(each_store_failed_applications_leave_nothing_and_spare_their_neighbours)
{
    struct fx f;
    struct rig r;

    begin(&r, &f, _i, 16);
    r.on_apply = apply_fails;
    for (int i = 0; i < 12; i++)
        fx_put(&f, "mail", "{}");
    drain(&r);
    for (int64_t id = 1; id <= 12; id++) {
        const bool again = id == 3 || id == 9;
        ck_assert_int_eq(fx_state(&f, id), id == 5 ? PAWL_STATE_DEAD : PAWL_STATE_DONE);
        ck_assert_int_eq(fx_effects(&f, id), id == 5 || id == 7 ? 0 : 1);
        ck_assert_int_eq(r.t->prepared[id], again ? 2 : 1);
        ck_assert_int_eq(r.t->dropped[id], again ? 2 : 1);
    }
    ck_assert_str_eq(fx_job(&f, 5).error, "never");
    ck_assert_str_eq(fx_job(&f, 7).outcome, "stale");
    fx_counters(&f, 3, 1, 1, 0, 0, 0);
    fx_counters(&f, 9, 1, 0, 0, 0, 1);
    end(&r, &f);
}
END_TEST

static void not_pinned_once(struct rig *r, const struct job *job, struct finding *f, bool *pinned)
{
    if (job->id != 4 || r->t->applied[4] > 1) return;
    *f = fx_found(OUT_TRANSIENT, "disk I/O error");
    *pinned = false;
}

START_TEST(each_store_batch_that_fails_is_applied_again_with_the_same_plans)
{
    struct fx f;
    struct rig r;

    begin(&r, &f, _i, 16);
    r.on_apply = not_pinned_once;
    for (int i = 0; i < 8; i++)
        fx_put(&f, "mail", "{}");
    drain(&r);
    ck_assert_int_ge(r.t->applied[1] + r.t->applied[2] + r.t->applied[3], 4);
    for (int64_t id = 1; id <= 8; id++) {
        ck_assert_int_eq(fx_effects(&f, id), 1);
        ck_assert_int_eq(r.t->prepared[id], 1); /* prepare is not repeated */
        ck_assert_int_eq(r.t->dropped[id], 1);
        fx_counters(&f, id, 0, 0, 0, 0, 0);    /* and nobody is charged */
    }
    end(&r, &f);
}
END_TEST

START_TEST(each_store_deferred_constraint_of_one_job_is_its_own_failure)
{
    struct fx f;
    struct rig r;

    begin(&r, &f, _i, 16);
    fx_sql(&f, "CREATE TABLE parent (id INTEGER PRIMARY KEY)");
    fx_sql(&f, "CREATE TABLE child (id INTEGER REFERENCES parent DEFERRABLE INITIALLY DEFERRED)");
    fx_sql_of(&f, "CREATE TRIGGER orphan AFTER INSERT ON fx WHEN new.job = 4 BEGIN"
                  " INSERT INTO child VALUES (99); END",
              "CREATE FUNCTION orphan() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN"
              " INSERT INTO child VALUES (99); RETURN NEW; END $$; CREATE TRIGGER orphan AFTER"
              " INSERT ON fx FOR EACH ROW WHEN (new.job = 4) EXECUTE FUNCTION orphan()");
    for (int i = 0; i < 8; i++)
        fx_put(&f, "mail", "{}");
    drain(&r);
    for (int64_t id = 1; id <= 8; id++) {
        ck_assert_int_eq(fx_state(&f, id), id == 4 ? PAWL_STATE_DEAD : PAWL_STATE_DONE);
        ck_assert_int_eq(fx_effects(&f, id), id == 4 ? 0 : 1);
    }
    ck_assert_str_eq(fx_job(&f, 4).dead_class, "permanent");
    end(&r, &f);
}
END_TEST

static void prepare_ends(struct rig *r, const struct job *job, struct finding *f)
{
    (void)r;
    if (job->id == 1 && job->n.failures == 0) *f = fx_found(OUT_TRANSIENT, "gateway");
    if (job->id == 2) *f = fx_found(OUT_PERMANENT, "no such order");
    if (job->id == 3) *f = fx_found(OUT_STALE, NULL);
    if (job->id == 4) *f = fx_found(OUT_DISCARD, "unwanted");
}

START_TEST(each_store_preparation_may_settle_a_job_without_applying_it)
{
    struct fx f;
    struct rig r;

    begin(&r, &f, _i, 8);
    r.on_prepare = prepare_ends;
    for (int i = 0; i < 6; i++)
        fx_put(&f, "mail", "{}");
    drain(&r);
    ck_assert_int_eq(r.t->applied[1], 1);
    ck_assert_int_eq(r.t->applied[2] + r.t->applied[3] + r.t->applied[4], 0);
    ck_assert_int_eq(fx_state(&f, 1), PAWL_STATE_DONE);
    ck_assert_int_eq(fx_state(&f, 2), PAWL_STATE_DEAD);
    ck_assert_str_eq(fx_job(&f, 3).outcome, "stale");
    ck_assert_int_eq(fx_state(&f, 4), PAWL_STATE_DROPPED);
    for (int64_t id = 1; id <= 6; id++)
        ck_assert_int_eq(r.t->dropped[id], r.t->prepared[id]);
    end(&r, &f);
}
END_TEST

static void cancelled_meanwhile(struct rig *r, const struct job *job, struct finding *f)
{
    struct store *other;
    enum pawl_state was;
    struct pawl_error e;

    (void)f;
    if (job->id != 2) return;
    other = fx_second(r->f);
    ck_assert_int_eq(store_cancel(other, 2, &was, &e), PAWL_OK);
    store_close(&other);
}

START_TEST(each_store_job_cancelled_while_it_is_prepared_has_no_effect)
{
    struct fx f;
    struct rig r;

    begin(&r, &f, _i, 8);
    r.on_prepare = cancelled_meanwhile;
    for (int i = 0; i < 4; i++)
        fx_put(&f, "mail", "{}");
    drain(&r);
    ck_assert_int_eq(fx_state(&f, 2), PAWL_STATE_CANCELLED);
    for (int64_t id = 1; id <= 4; id++) {
        ck_assert_int_eq(fx_effects(&f, id), id != 2);
        ck_assert_int_eq(r.t->dropped[id], 1);
    }
    end(&r, &f);
}
END_TEST

START_TEST(each_store_versions_are_guarded_when_applied)
{
    const int64_t versions[] = { 2, 1, 2, 3 };
    struct fx f;
    struct rig r;

    begin(&r, &f, _i, 8);
    for (int i = 0; i < 4; i++) {
        struct pawl_request q = fx_req("mail", NULL, i == 2 ? "{\"other\":1}" : "{}");
        q.entity = "sku";
        q.version = versions[i];
        q.has_version = true;
        fx_put_req(&f, &q);
    }
    drain(&r);
    ck_assert_int_eq(fx_effects(&f, 1), 1);
    ck_assert_str_eq(fx_job(&f, 2).outcome, "stale");
    ck_assert_str_eq(fx_job(&f, 3).dead_class, "conflict");
    ck_assert_int_eq(fx_effects(&f, 2) + fx_effects(&f, 3), 0);
    ck_assert_int_eq(fx_effects(&f, 4), 1);
    end(&r, &f);
}
END_TEST

START_TEST(each_store_commit_in_doubt_is_found_out_and_claims_in_doubt_are_not_begun)
{
    static const char *const points[] = { "effect.commit.after", "effect.commit.before",
                                          "turn.commit.after", "turn.commit.before" };
    for (size_t k = 0; k < UT_N(points); k++)
        for (int skip = 0; skip < 3; skip++) {
            char action[32];
            struct effect_report out;
            struct fx f;
            struct rig r;
            size_t errors = 0;

            begin(&r, &f, _i, 4);
            for (int i = 0; i < 12; i++)
                fx_put(&f, "mail", "{}");
            snprintf(action, sizeof action, "error:%d:1", skip);
            fx_arm(points[k], action);
            for (int i = 0; i < 40; i++) {
                const enum pawl_rc rc = prepared_step(r.p, f.st, &out, &f.e);
                ck_assert_msg(rc == PAWL_OK || rc == PAWL_IO, "%s", f.e.msg);
                errors += rc != PAWL_OK;
            }
            fx_disarm();
            drain(&r);
            ck_assert_uint_le(errors, 1);
            for (int64_t id = 1; id <= 12; id++) {
                ck_assert_int_eq(fx_state(&f, id), PAWL_STATE_DONE);
                ck_assert_int_eq(fx_effects(&f, id), 1);
                fx_counters(&f, id, 0, 0, 0, 0, 0);
                ck_assert_int_eq(r.t->dropped[id], r.t->prepared[id]);
            }
            end(&r, &f);
        }
}
END_TEST

START_TEST(each_store_stop_hands_the_rest_back_at_no_cost)
{
    struct effect_report out;
    struct fx f;
    struct rig r;

    begin(&r, &f, _i, 4);
    for (int i = 0; i < 12; i++)
        fx_put(&f, "mail", "{}");
    fx_ok(prepared_step(r.p, f.st, &out, &f.e), &f); /* 4 done, the next 4 or so claimed */
    ck_assert_uint_gt(prepared_busy(r.p), 0);
    r.stop = 1;
    fx_ok(prepared_step(r.p, f.st, &out, &f.e), &f);
    fx_ok(prepared_release(r.p, f.st, &f.e), &f);
    ck_assert_uint_eq(prepared_busy(r.p), 0);
    ck_assert_int_eq(fx_num(&f, "SELECT count(*) FROM pawl_jobs WHERE state = 'ready'"), 8);
    ck_assert_int_eq(fx_num(&f, "SELECT sum(runs + releases + lost) FROM pawl_jobs"
                                " WHERE state = 'ready'"), 0);
    end(&r, &f);
}
END_TEST

/* --- deaths --- */

struct death {
    struct trace *t;
    size_t batch;
    const char *point, *action;
    void (*on_apply)(struct rig *r, const struct job *job, struct finding *f, bool *pinned);
};

static void step_and_die(struct fx *f, void *ctx)
{
    struct death *d = ctx;
    struct rig r = { .t = d->t, .on_apply = d->on_apply };
    struct effect_report out;

    fx_join(f);
    rig_open(&r, f, d->batch);
    if (d->point != NULL) fx_arm(d->point, d->action);
    for (int i = 0; i < 20; i++)
        fx_ok(prepared_step(r.p, f->st, &out, &f->e), f);
}

static void killed(struct fx *f, struct death *d)
{
    fx_shut(f);
    const int status = fx_wait(fx_child(f, step_and_die, d));
    ck_assert_msg(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL, "status %x", status);
    fx_open(f);
}

static void begin_deaths(struct fx *f, struct death *d, int kind, int jobs)
{
    memset(d, 0, sizeof *d);
    fx_begin(f, kind);
    fx_task(f, "mail");
    d->t = fx_shared(sizeof *d->t);
    d->batch = 8;
    for (int i = 0; i < jobs; i++)
        fx_put(f, "mail", "{}");
}

START_TEST(each_store_death_in_prepare_charges_the_one_in_hand)
{
    struct reap_report rep;
    struct death d;
    struct fx f;

    begin_deaths(&f, &d, _i, 4); /* the first batch has four */
    d.t->die_prepare = 3;
    killed(&f, &d);
    rep = fx_reap(&f, f.st);
    ck_assert_uint_eq(rep.charged, 1);
    ck_assert_uint_eq(rep.suspects, 0);
    fx_counters(&f, 1, 1, 0, 0, 1, 0); /* prepared: its run has happened */
    fx_counters(&f, 2, 1, 0, 0, 1, 0);
    fx_counters(&f, 3, 1, 0, 1, 0, 0);
    fx_counters(&f, 4, 0, 0, 0, 0, 0); /* not begun */
    fx_end(&f);
}
END_TEST

START_TEST(each_store_death_in_apply_charges_the_one_in_hand)
{
    struct reap_report rep;
    struct death d;
    struct fx f;

    begin_deaths(&f, &d, _i, 4);
    d.t->die_apply = 3;
    killed(&f, &d);
    rep = fx_reap(&f, f.st);
    ck_assert_uint_eq(rep.charged, 1);
    for (int64_t id = 1; id <= 4; id++) {
        fx_counters(&f, id, 1, 0, id == 3, id != 3, 0);
        ck_assert_int_eq(fx_effects(&f, id), 0);
    }
    fx_end(&f);
}
END_TEST

START_TEST(each_store_death_in_commit_makes_suspects_of_a_batch_and_charges_one_alone)
{
    struct reap_report rep;
    struct death d;
    struct fx f;

    begin_deaths(&f, &d, _i, 4);
    d.point = "effect.commit.before";
    d.action = "kill";
    killed(&f, &d);
    rep = fx_reap(&f, f.st);
    ck_assert_uint_eq(rep.charged, 0);
    ck_assert_uint_eq(rep.suspects, 4);
    killed(&f, &d); /* a suspect is a batch of its own */
    rep = fx_reap(&f, f.st);
    ck_assert_uint_eq(rep.charged, 1);
    fx_counters(&f, 1, 2, 0, 1, 0, 0);
    fx_counters(&f, 2, 1, 0, 0, 0, 0);
    fx_end(&f);
}
END_TEST

static void stop_at_two(struct rig *r, const struct job *job, struct finding *f, bool *pinned)
{
    (void)f;
    (void)pinned;
    if (job->id == 2) r->stop = 1;
}

/* A batch may end before its last job, out of time or told to stop. */
START_TEST(each_store_death_in_commit_suspects_only_who_was_applied)
{
    struct reap_report rep;
    struct death d;
    struct fx f;

    begin_deaths(&f, &d, _i, 4);
    d.point = "effect.commit.before";
    d.action = "kill";
    d.on_apply = stop_at_two;
    killed(&f, &d);
    rep = fx_reap(&f, f.st);
    ck_assert_uint_eq(rep.charged, 0);
    ck_assert_uint_eq(rep.suspects, 2);
    for (int64_t id = 1; id <= 4; id++)
        fx_counters(&f, id, 1, 0, 0, id > 2, 0);
    fx_end(&f);
}
END_TEST

START_TEST(each_store_death_after_the_commit_charges_nobody)
{
    struct death d;
    struct fx f;

    begin_deaths(&f, &d, _i, 12);
    d.point = "effect.commit.after";
    d.action = "kill";
    killed(&f, &d);
    struct reap_report rep = fx_reap(&f, f.st);
    ck_assert_uint_eq(rep.charged + rep.suspects, 0);
    ck_assert_int_eq(fx_num(&f, "SELECT count(*) FROM pawl_jobs WHERE state = 'done'"), 4);
    ck_assert_int_eq(fx_num(&f, "SELECT sum(runs + lost + releases) FROM pawl_jobs"
                                " WHERE state = 'ready'"), 0); /* claimed by it, not begun */
    fx_end(&f);
}
END_TEST

START_TEST(each_store_poison_job_reaches_its_cap_and_its_neighbours_get_through)
{
    struct death d;
    struct fx f;
    int deaths = 0;

    for (int where = 0; where < 2; where++) {
        begin_deaths(&f, &d, _i, 20);
        *(where == 0 ? &d.t->die_prepare : &d.t->die_apply) = 7;
        for (deaths = 0; fx_state(&f, 7) != PAWL_STATE_DEAD; deaths++) {
            ck_assert_int_lt(deaths, 10);
            killed(&f, &d);
            fx_reap(&f, f.st);
        }
        ck_assert_int_eq(deaths, 3);
        ck_assert_str_eq(fx_job(&f, 7).dead_class, "poison");
        fx_shut(&f);
        fx_wait_ok(fx_child(&f, step_and_die, &d));
        fx_open(&f);
        fx_reap(&f, f.st);
        for (int64_t id = 1; id <= 20; id++)
            ck_assert_int_eq(fx_effects(&f, id), id != 7);
        fx_end(&f);
    }
}
END_TEST

START_TEST(each_store_death_of_an_early_job_loses_that_one_only)
{
    struct policy p = fx_policy();
    struct death d;
    struct fx f;

    p.ack = ACK_EARLY;
    for (int where = 0; where < 2; where++) {
        memset(&d, 0, sizeof d);
        fx_begin(&f, _i);
        fx_task_as(&f, "mail", &p);
        d.t = fx_shared(sizeof *d.t);
        d.batch = 8;
        for (int i = 0; i < 8; i++)
            fx_put(&f, "mail", "{}");
        *(where == 0 ? &d.t->die_prepare : &d.t->die_apply) = 3;
        killed(&f, &d);
        struct reap_report rep = fx_reap(&f, f.st);
        ck_assert_uint_eq(rep.dropped, 1);
        fx_shut(&f);
        fx_wait_ok(fx_child(&f, step_and_die, &d));
        fx_open(&f);
        for (int64_t id = 1; id <= 8; id++) {
            ck_assert_int_eq(fx_effects(&f, id), id != 3);
            ck_assert_int_eq(d.t->prepared[id], 1); /* none of them begins twice */
        }
        ck_assert_str_eq(fx_job(&f, 3).outcome, "lost");
        fx_end(&f);
    }
}
END_TEST

/* --- a supervisor and its runner --- */

struct crew { struct death d; bool leased_too, kill_parent; char *id; enum outcome how; };

static void hand_over(int sock, int fd, const char id[24])
{
    union { struct cmsghdr h; char room[CMSG_SPACE(sizeof(int))]; } u = { .room = {0} };
    struct iovec iov = { (char *)(uintptr_t)id, 24 };
    struct msghdr m = { .msg_iov = &iov, .msg_iovlen = 1, .msg_control = u.room,
                        .msg_controllen = sizeof u.room };

    u.h.cmsg_level = SOL_SOCKET;
    u.h.cmsg_type = SCM_RIGHTS;
    u.h.cmsg_len = CMSG_LEN(sizeof fd);
    memcpy(CMSG_DATA(&u.h), &fd, sizeof fd);
    ck_assert_int_eq(sendmsg(sock, &m, 0), 24);
}

static int taken_over(int sock, char id[24])
{
    union { struct cmsghdr h; char room[CMSG_SPACE(sizeof(int))]; } u = { .room = {0} };
    struct iovec iov = { id, 24 };
    struct msghdr m = { .msg_iov = &iov, .msg_iovlen = 1, .msg_control = u.room,
                        .msg_controllen = sizeof u.room };
    int fd;

    ck_assert_int_eq(recvmsg(sock, &m, 0), 24);
    memcpy(&fd, CMSG_DATA(&u.h), sizeof fd);
    return fd;
}

/* Forked before its supervisor opened the store: what was open then could not be opened here. */
static void runner(const struct fx *parent, struct crew *c, int sock)
{
    struct rig r = { .t = c->d.t };
    struct effect_report out;
    struct fx f = *parent;
    char id[24];

    const int fd = taken_over(sock, id);
    fx_open(&f);
    fx_ok(store_crew_attach(f.st, id, fd, &f.e), &f);
    rig_open(&r, &f, c->d.batch);
    for (int i = 0; i < 20; i++)
        fx_ok(prepared_step(r.p, f.st, &out, &f.e), &f);
    _exit(0);
}

static void supervisor(struct fx *f, void *ctx)
{
    struct crew *c = ctx;
    struct reap_report rep;
    char id[24];
    int fd = -1, status, socks[2];

    ck_assert_int_eq(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, socks), 0);
    const pid_t pid = fork();
    if (pid == 0) runner(f, c, socks[1]);
    fx_open(f);
    fx_join(f);
    fx_ok(store_crew_join(f->st, id, &fd, &f->e), f);
    if (c->leased_too) (void)fx_claim_one(f);
    hand_over(socks[0], fd, id);
    status = fx_wait(pid);
    ck_assert(WIFSIGNALED(status));
    if (c->kill_parent) kill(getpid(), SIGKILL);
    /* Nobody else takes it for dead while we live. */
    struct store *other = fx_second(f);
    rep = fx_reap(f, other);
    store_close(&other);
    ck_assert_uint_eq(rep.workers, 0);
    fx_ok(engine_reap_crew(f->st, &f->clock.env, id, SIGKILL, c->how, &rep, &f->e), f);
    fx_ok(engine_reap_crew(f->st, &f->clock.env, id, SIGKILL, c->how, &rep, &f->e), f); /* once */
    store_crew_leave(f->st, id);
    fx_ok(store_worker_leave(f->st, &f->e), f);
}

START_TEST(each_store_runner_that_dies_is_recovered_by_its_supervisor)
{
    struct crew c = { .how = OUT_LOST };
    struct fx f;

    for (int timeout = 0; timeout < 2; timeout++) {
        begin_deaths(&f, &c.d, _i, 4);
        c.how = timeout ? OUT_TIMEOUT : OUT_LOST;
        c.d.t->die_prepare = 3;
        fx_shut(&f);
        fx_wait_ok(fx_child_bare(&f, supervisor, &c));
        fx_open(&f);
        fx_counters(&f, 1, 1, 0, 0, 1, 0);
        fx_counters(&f, 3, 1, timeout, !timeout, 0, 0);
        fx_counters(&f, 4, 0, 0, 0, 0, 0);
        ck_assert_int_eq(fx_num(&f, "SELECT count(*) FROM pawl_jobs WHERE state = 'ready'"), 4);
        fx_end(&f);
    }
}
END_TEST

START_TEST(each_store_runner_that_dies_with_its_supervisor_is_recovered_with_it)
{
    struct crew c = { .kill_parent = true };
    struct fx f;

    for (int company = 0; company < 2; company++) {
        begin_deaths(&f, &c.d, _i, 5);
        c.leased_too = company != 0;        /* the supervisor holds job 1 */
        c.d.t->die_prepare = 3;
        fx_shut(&f);
        ck_assert(WIFSIGNALED(fx_wait(fx_child_bare(&f, supervisor, &c))));
        fx_open(&f);
        struct reap_report rep = fx_reap(&f, f.st);
        ck_assert_uint_eq(rep.charged, !company);
        ck_assert_uint_eq(rep.suspects, company ? 2 : 0);
        fx_counters(&f, 3, 1, 0, !company, 0, 0);
        ck_assert_int_eq(fx_num(&f, "SELECT count(*) FROM pawl_jobs WHERE state = 'ready'"), 5);
        rep = fx_reap(&f, f.st);
        ck_assert_uint_eq(rep.workers, 0);
        fx_end(&f);
    }
}
END_TEST

static void add(TCase *tc)
{
    FX_ADD(tc, each_store_prepared_jobs_are_applied_once_and_share_commits);
    FX_ADD(tc, each_store_failed_applications_leave_nothing_and_spare_their_neighbours);
    FX_ADD(tc, each_store_batch_that_fails_is_applied_again_with_the_same_plans);
    FX_ADD(tc, each_store_deferred_constraint_of_one_job_is_its_own_failure);
    FX_ADD(tc, each_store_preparation_may_settle_a_job_without_applying_it);
    FX_ADD(tc, each_store_job_cancelled_while_it_is_prepared_has_no_effect);
    FX_ADD(tc, each_store_versions_are_guarded_when_applied);
    FX_ADD(tc, each_store_commit_in_doubt_is_found_out_and_claims_in_doubt_are_not_begun);
    FX_ADD(tc, each_store_stop_hands_the_rest_back_at_no_cost);
    FX_ADD(tc, each_store_death_in_prepare_charges_the_one_in_hand);
    FX_ADD(tc, each_store_death_in_apply_charges_the_one_in_hand);
    FX_ADD(tc, each_store_death_in_commit_makes_suspects_of_a_batch_and_charges_one_alone);
    FX_ADD(tc, each_store_death_in_commit_suspects_only_who_was_applied);
    FX_ADD(tc, each_store_death_after_the_commit_charges_nobody);
    FX_ADD(tc, each_store_poison_job_reaches_its_cap_and_its_neighbours_get_through);
    FX_ADD(tc, each_store_death_of_an_early_job_loses_that_one_only);
    FX_ADD(tc, each_store_runner_that_dies_is_recovered_by_its_supervisor);
    FX_ADD(tc, each_store_runner_that_dies_with_its_supervisor_is_recovered_with_it);
}

int main(void)
{
    return ut_main("prepared", add, 60);
}
