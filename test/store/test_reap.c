// SPDX-License-Identifier: Apache-2.0
/* test_reap.c - recovery: when a worker died, froze or vanished, what it held is put back once, and
 * only the job that can be told apart is charged. */
#include <inttypes.h>
#include <signal.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>
#include "lib/fx.h"

static void begin(struct fx *f, int kind, const struct policy *p)
{
    const struct policy plain = fx_policy();

    fx_begin(f, kind);
    fx_task_as(f, "mail", p != NULL ? p : &plain);
}

static void killed_child(struct fx *f, void (*fn)(struct fx *f, void *ctx), void *ctx)
{
    fx_shut(f);
    const int status = fx_wait(fx_child(f, fn, ctx));
    ck_assert_msg(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL, "status %x", status);
    fx_open(f);
}

static void die(void)
{
    kill(getpid(), SIGKILL);
}

static void claim_and_die(struct fx *f, void *ctx)
{
    const size_t want = *(const size_t *)ctx;
    struct job jobs[16];

    fx_join(f);
    ck_assert_uint_eq(fx_claim(f, jobs, want, true), want);
    die();
}

/* --- leased mode --- */

START_TEST(each_store_single_job_of_a_dead_worker_is_charged_and_keeps_its_place)
{
    const size_t one = 1;
    struct fx_try tries[2];
    struct reap_report r;
    struct fx f;

    begin(&f, _i, NULL);
    const int64_t id = fx_put(&f, "mail", "{}"), at = f.clock.wall_us;
    fx_add(&f, SEC);
    killed_child(&f, claim_and_die, (void *)(uintptr_t)&one);
    ck_assert_int_eq(fx_state(&f, id), PAWL_STATE_RUNNING);
    r = fx_reap(&f, f.st);
    ck_assert_uint_eq(r.workers, 1);
    ck_assert_uint_eq(r.charged, 1);
    ck_assert_uint_eq(r.suspects, 0);
    fx_counters(&f, id, 1, 0, 1, 0, 0);
    ck_assert_int_eq(fx_state(&f, id), PAWL_STATE_READY);
    ck_assert_int_eq(fx_job(&f, id).j.run_at_us, at);
    ck_assert_uint_eq(fx_attempts(&f, id, tries, 2), 1);
    ck_assert_str_eq(tries[0].outcome, "lost");
    ck_assert_ptr_nonnull(strstr(tries[0].error, "is gone"));
    r = fx_reap(&f, f.st); /* once is enough */
    ck_assert_uint_eq(r.workers, 0);
    fx_end(&f);
}
END_TEST

START_TEST(each_store_several_jobs_of_a_dead_worker_become_suspects_at_no_cost)
{
    const size_t three = 3;
    struct reap_report r;
    struct job job;
    struct fx f;

    begin(&f, _i, NULL);
    for (int i = 0; i < 3; i++)
        fx_put(&f, "mail", "{}");
    killed_child(&f, claim_and_die, (void *)(uintptr_t)&three);
    r = fx_reap(&f, f.st);
    ck_assert_uint_eq(r.suspects, 3);
    ck_assert_uint_eq(r.charged, 0);
    for (int64_t id = 1; id <= 3; id++) {
        fx_counters(&f, id, 1, 0, 0, 0, 0);
        ck_assert(fx_job(&f, id).j.suspect);
    }
    fx_join(&f);
    ck_assert_uint_eq(fx_claim(&f, &job, 1, false), 0); /* not beside others */
    ck_assert(f.info.suspect_waiting);
    job = fx_claim_one(&f);
    ck_assert(job.suspect);
    fx_settle(&f, &job, OUT_DONE);
    fx_end(&f);
}
END_TEST

struct poison { int64_t id, starts; };

/* A worker: claims what it may, dies when the poison is in hand, else does the work. */
static void work_leased(struct fx *f, void *ctx)
{
    struct poison *p = ctx;
    struct job jobs[4];

    fx_join(f);
    for (size_t n = 1; n > 0; ) {
        n = fx_claim(f, jobs, 4, true);
        for (size_t i = 0; i < n; i++) {
            if (jobs[i].id != p->id) continue;
            p->starts++;
            die();
        }
        for (size_t i = 0; i < n; i++)
            fx_settle(f, &jobs[i], OUT_DONE);
    }
    fx_ok(store_worker_leave(f->st, &f->e), f);
}

static void kill_in_hand(struct fx *f, struct store *st, const struct job *job,
                         struct finding *found, bool *pinned)
{
    struct poison *p = f->ctx;

    (void)st;
    (void)found;
    (void)pinned;
    if (job->id != p->id) return;
    p->starts++;
    die();
}

/* As above, but it lives until the commit of the batch that it is part of. */
static void kill_in_commit(struct fx *f, struct store *st, const struct job *job,
                           struct finding *found, bool *pinned)
{
    struct poison *p = f->ctx;

    (void)st;
    (void)found;
    (void)pinned;
    if (job->id != p->id) return;
    p->starts++;
    fx_arm("effect.commit.before", "kill");
}

/* Claims four jobs, runs two of them, and dies in the commit. */
static void die_with_two_of_four(struct fx *f, void *ctx)
{
    const struct finding done = fx_found(OUT_DONE, NULL);
    struct job jobs[4];
    size_t n = 0;

    (void)ctx;
    fx_join(f);
    fx_ok(store_effect_begin(f->st, &f->lane, 4, &f->arena, jobs, &n, &f->info, &f->e), f);
    ck_assert_uint_eq(n, 4);
    for (size_t i = 0; i < 2; i++) {
        fx_ok(store_effect_job(f->st, i, &f->e), f);
        fx_ok(store_effect_done(f->st, &f->tasks[0], &jobs[i], &done, &f->e), f);
    }
    fx_arm("effect.commit.before", "kill");
    (void)(store_effect_commit(f->st, &f->e) == PAWL_OK);
}

START_TEST(each_store_death_in_commit_suspects_only_who_had_run)
{
    struct fx f;

    fx_begin(&f, _i);
    fx_task(&f, "mail");
    for (int i = 0; i < 4; i++)
        fx_put(&f, "mail", "{}");
    fx_shut(&f);
    ck_assert(WIFSIGNALED(fx_wait(fx_child(&f, die_with_two_of_four, NULL))));
    fx_open(&f);
    const struct reap_report rep = fx_reap(&f, f.st);
    ck_assert_uint_eq(rep.suspects, 2);
    for (int64_t id = 1; id <= 4; id++)
        fx_counters(&f, id, id < 3, 0, 0, 0, 0);
    fx_end(&f);
}
END_TEST

static void second_fails(struct fx *f, struct store *st, const struct job *job,
                         struct finding *found, bool *pinned)
{
    (void)f;
    (void)st;
    (void)pinned;
    if (job->id == 2)
        *found = fx_found(OUT_TRANSIENT, "not now");
}

static void die_at_a_verdict(struct fx *f, void *ctx)
{
    (void)ctx;
    fx_join(f);
    f->on_run = second_fails;
    fx_arm("verdict.before", "kill");
    (void)(fx_batch(f, NULL) == PAWL_OK);
}

/* The jobs have run: it is not the last of them that was in hand. */
START_TEST(each_store_death_at_a_verdict_is_one_in_the_commit)
{
    struct fx f;

    fx_begin(&f, _i);
    fx_task(&f, "mail");
    for (int i = 0; i < 3; i++)
        fx_put(&f, "mail", "{}");
    fx_shut(&f);
    ck_assert(WIFSIGNALED(fx_wait(fx_child(&f, die_at_a_verdict, NULL))));
    fx_open(&f);
    const struct reap_report rep = fx_reap(&f, f.st);
    ck_assert_uint_eq(rep.suspects, 3);
    ck_assert_uint_eq(rep.charged, 0);
    fx_drain(&f);
    ck_assert_int_eq(fx_num(&f, "SELECT count(*) FROM fx"), 3);
    fx_end(&f);
}
END_TEST

static void work_effect(struct fx *f, void *ctx)
{
    struct effect_report r = { .claimed = 1 };

    f->ctx = ctx;
    fx_join(f);
    while (r.claimed > 0)
        fx_ok(fx_batch(f, &r), f);
    fx_ok(store_worker_leave(f->st, &f->e), f);
}

/* Workers come and die until one finishes; returns how many died. */
static int until_quiet(struct fx *f, void (*work)(struct fx *f, void *ctx), void *ctx)
{
    for (int deaths = 0; deaths < 20; deaths++) {
        fx_shut(f);
        const int status = fx_wait(fx_child(f, work, ctx));
        fx_open(f);
        fx_reap(f, f->st);
        fx_check(f);
        if (WIFEXITED(status)) {
            ck_assert_int_eq(WEXITSTATUS(status), 0);
            return deaths;
        }
    }
    ck_abort_msg("workers die for ever");
}

/* The poison ends dead(poison) by itself; its neighbours are done, and were charged nothing. */
static void poison_alone_is_dead(struct fx *f, int64_t n, const struct poison *p, int64_t starts)
{
    for (int64_t id = 1; id <= n; id++) {
        if (id == p->id) continue;
        const struct fx_job x = fx_job(f, id);
        ck_assert_int_eq(x.j.state, PAWL_STATE_DONE);
        ck_assert_int_eq(x.j.lost, 0);
    }
    const struct fx_job x = fx_job(f, p->id);
    ck_assert_str_eq(x.dead_class, "poison");
    ck_assert_int_eq(x.j.lost, 3);
    ck_assert_int_eq(p->starts, starts);
}

START_TEST(each_store_poison_job_reaches_its_cap_alone_in_leased_mode)
{
    struct poison *p = fx_shared(sizeof *p);
    struct fx f;

    begin(&f, _i, NULL);
    for (int i = 0; i < 4; i++)
        fx_put(&f, "mail", "{}");
    p->id = 2;
    ck_assert_int_eq(until_quiet(&f, work_leased, p), 4); /* once in company, thrice alone */
    poison_alone_is_dead(&f, 4, p, 4);
    fx_end(&f);
}
END_TEST

START_TEST(each_store_poison_job_reaches_its_cap_alone_in_effect_mode)
{
    struct poison *p = fx_shared(sizeof *p);
    struct fx f;

    begin(&f, _i, NULL);
    for (int i = 0; i < 9; i++)
        fx_put(&f, "mail", "{}");
    p->id = 5;
    f.on_run = kill_in_hand;
    ck_assert_int_eq(until_quiet(&f, work_effect, p), 3); /* the one in hand is known */
    poison_alone_is_dead(&f, 9, p, 3);
    ck_assert_int_eq(fx_num(&f, "SELECT count(*) FROM fx"), 8);
    ck_assert_int_eq(fx_num(&f, "SELECT count(*) FROM pawl_x_attempt"), 3);
    fx_end(&f);
}
END_TEST

START_TEST(each_store_death_in_commit_makes_suspects_and_charges_one_alone)
{
    struct poison *p = fx_shared(sizeof *p);
    struct fx f;

    begin(&f, _i, NULL);
    for (int i = 0; i < 6; i++)
        fx_put(&f, "mail", "{}");
    p->id = 3;
    f.on_run = kill_in_commit;
    ck_assert_int_eq(until_quiet(&f, work_effect, p), 4);
    poison_alone_is_dead(&f, 6, p, 4);
    ck_assert_int_eq(fx_num(&f, "SELECT count(*) FROM fx"), 5);
    fx_end(&f);
}
END_TEST

/* A worker with a leased job at work and an effect batch in hand. Beside a leased suspect the
 * effect side holds still, as the supervisor sees to. */
static void work_both(struct fx *f, void *ctx)
{
    const struct lane_task effect = f->tasks[0], lease = f->tasks[1];
    struct effect_report r = { .claimed = 1 };
    struct job jobs[2];
    size_t n = 0;

    f->ctx = ctx;
    f->on_run = kill_in_hand;
    f->lane.tasks_n = 1;
    fx_join(f);
    for (bool more = true; more; more = n > 0 || r.claimed > 0) {
        f->tasks[0] = lease;
        n = fx_claim(f, jobs, 2, true);
        if (n == 0 || !jobs[0].suspect) {
            f->tasks[0] = effect;
            fx_ok(fx_batch(f, &r), f);
            f->tasks[0] = lease;
        }
        for (size_t i = 0; i < n; i++)
            fx_settle(f, &jobs[i], OUT_DONE);
    }
    fx_ok(store_worker_leave(f->st, &f->e), f);
}

START_TEST(each_store_death_of_leased_and_effect_jobs_together_makes_suspects)
{
    struct poison *p = fx_shared(sizeof *p);
    struct reap_report r;
    struct fx f;

    begin(&f, _i, NULL);
    fx_task(&f, "leased");
    const int64_t lease = fx_put(&f, "leased", "{}");
    fx_put(&f, "mail", "{}");
    p->id = fx_put(&f, "mail", "{}");
    killed_child(&f, work_both, p);
    r = fx_reap(&f, f.st);
    ck_assert_uint_eq(r.suspects, 2);
    ck_assert_uint_eq(r.charged, 0);
    ck_assert(fx_job(&f, lease).j.suspect && fx_job(&f, p->id).j.suspect);
    ck_assert_int_eq(fx_job(&f, lease).j.lost + fx_job(&f, p->id).j.lost, 0);
    until_quiet(&f, work_both, p); /* and the one that did it is found out */
    ck_assert_str_eq(fx_job(&f, p->id).dead_class, "poison");
    ck_assert_int_eq(fx_state(&f, lease), PAWL_STATE_DONE);
    ck_assert_int_eq(fx_stat(&f, "dead"), 1);
    fx_end(&f);
}
END_TEST

START_TEST(each_store_death_between_jobs_charges_nobody)
{
    static const char *const points[] = { "batch.claimed", "effect.commit.after" };
    struct poison *p = fx_shared(sizeof *p);
    struct fx f;

    for (size_t i = 0; i < UT_N(points); i++) {
        begin(&f, _i, NULL);
        for (int k = 0; k < 4; k++)
            fx_put(&f, "mail", "{}");
        f.on_run = kill_in_hand; /* id 0: nobody */
        fx_arm(points[i], "kill");
        killed_child(&f, work_effect, p);
        fx_disarm();
        fx_reap(&f, f.st);
        ck_assert_int_eq(fx_num(&f, "SELECT count(*) FROM pawl_x_attempt"), 0);
        f.on_run = NULL;
        fx_drain(&f);
        ck_assert_int_eq(fx_num(&f, "SELECT count(*) FROM fx"), 4);
        fx_end(&f);
    }
}
END_TEST

/* --- blame is read once, and only of the run it was written for --- */

START_TEST(each_store_blame_is_read_once_though_the_reaper_dies)
{
    struct poison *p = fx_shared(sizeof *p);
    struct reap_report r;
    struct fx f;

    begin(&f, _i, NULL);
    p->id = fx_put(&f, "mail", "{}");
    f.on_run = kill_in_hand;
    killed_child(&f, work_effect, p);
    fx_arm("reap.before", "error:0:1"); /* before its commit: nothing happened */
    fx_is(engine_reap(f.st, &f.clock.env, &r, &f.e), PAWL_IO, &f);
    fx_counters(&f, p->id, 0, 0, 0, 0, 0);
    fx_arm("reap.after", "error:0:1"); /* after it, before the last words were put away */
    fx_is(engine_reap(f.st, &f.clock.env, &r, &f.e), PAWL_IO, &f);
    fx_disarm();
    fx_counters(&f, p->id, 1, 0, 1, 0, 0);
    /* Were it not for the nonce, the same words would fit again. */
    fx_sql(&f, "UPDATE pawl_x_ready SET runs = 0, lost = 0; DELETE FROM pawl_x_attempt");
    fx_reap(&f, f.st);
    fx_reap(&f, f.st);
    fx_counters(&f, p->id, 0, 0, 0, 0, 0);
    fx_end(&f);
}
END_TEST

START_TEST(each_store_blame_is_void_when_the_job_ran_since)
{
    struct poison *p = fx_shared(sizeof *p);
    struct fx f;

    begin(&f, _i, NULL);
    p->id = fx_put(&f, "mail", "{}");
    f.on_run = kill_in_hand;
    killed_child(&f, work_effect, p);
    fx_join(&f); /* another worker takes it before anybody reaps, and hands it back */
    const struct job job = fx_claim_one(&f);
    fx_settle(&f, &job, OUT_RELEASED);
    ck_assert_uint_eq(fx_reap(&f, f.st).charged, 0);
    fx_counters(&f, p->id, 1, 0, 0, 1, 0);
    fx_end(&f);
}
END_TEST

START_TEST(each_store_blame_of_a_done_or_cancelled_job_is_void)
{
    struct poison *p = fx_shared(sizeof *p);
    enum pawl_state s;
    struct fx f;

    begin(&f, _i, NULL);
    p->id = fx_put(&f, "mail", "{}");
    f.on_run = kill_in_hand;
    killed_child(&f, work_effect, p);
    fx_ok(store_cancel(f.st, p->id, &s, &f.e), &f);
    ck_assert_uint_eq(fx_reap(&f, f.st).charged, 0);
    ck_assert_int_eq(fx_state(&f, p->id), PAWL_STATE_CANCELLED);
    fx_end(&f);
}
END_TEST

/* --- whom to reap --- */

START_TEST(each_store_living_worker_is_left_alone)
{
    char id[24];
    struct fx f;

    begin(&f, _i, NULL);
    struct store *other = fx_second(&f);
    fx_ok(store_worker_join(other, id, NULL, &f.e), &f);
    fx_join(&f);
    fx_put(&f, "mail", "{}");
    const struct job job = fx_claim_one(&f);
    f.clock.boot_add_us += 29 * SEC; /* within its lease */
    ck_assert_uint_eq(fx_reap(&f, other).workers, 0);
    store_worker_beat(f.st);
    f.clock.boot_add_us += 29 * SEC;
    ck_assert_uint_eq(fx_reap(&f, other).workers, 0);
    ck_assert_int_eq(fx_settle(&f, &job, OUT_DONE), SETTLE_OK);
    fx_ok(store_worker_leave(f.st, &f.e), &f);
    ck_assert_uint_eq(fx_reap(&f, other).workers, 0); /* who left is not missed */
    store_close(&other);
    fx_end(&f);
}
END_TEST

START_TEST(each_store_frozen_worker_loses_its_jobs_but_not_its_place)
{
    char id[24];
    struct fx f;

    begin(&f, _i, NULL);
    struct store *other = fx_second(&f);
    fx_ok(store_worker_join(other, id, NULL, &f.e), &f);
    fx_join(&f);
    const int64_t job_id = fx_put(&f, "mail", "{}");
    const struct job job = fx_claim_one(&f);
    f.clock.boot_add_us += 31 * SEC;
    store_worker_beat(other);
    ck_assert_uint_eq(fx_reap(&f, other).charged, 0); /* no death was seen: a release */
    fx_counters(&f, job_id, 1, 0, 0, 1, 0);
    ck_assert_int_eq(fx_settle(&f, &job, OUT_DONE), SETTLE_FENCED); /* it woke up too late */
    store_worker_beat(f.st);
    const struct job again = fx_claim_one(&f); /* and works on */
    ck_assert_uint_eq(fx_reap(&f, other).workers, 0);
    ck_assert_int_eq(fx_settle(&f, &again, OUT_DONE), SETTLE_OK);
    store_close(&other);
    fx_end(&f);
}
END_TEST

/* The sleeper stirs when the reaper looks at the clock for the n-th time. */
static struct store *sleeper;
static int looks_left;

static int64_t boot_and_stir(void *ctx)
{
    struct store *st = sleeper;

    if (st != NULL && looks_left-- == 0) {
        sleeper = NULL;
        (void)store_worker_beat(st);
    }
    return env_real()->boot_us(NULL) + ((struct fx_clock *)ctx)->boot_add_us;
}

/* Whenever it is that a frozen worker wakes before the reaper has decided, it keeps its jobs: the
 * beat is looked at again inside the transaction. */
START_TEST(each_store_worker_that_wakes_before_the_reapers_transaction_keeps_its_jobs)
{
    bool stirred = true;
    int n = 0;
    char id[24];
    struct fx f;

    for (; stirred; n++) {
        begin(&f, _i, NULL);
        struct store *other = fx_second(&f);
        fx_ok(store_worker_join(other, id, NULL, &f.e), &f);
        fx_join(&f);
        fx_put(&f, "mail", "{}");
        const struct job job = fx_claim_one(&f);
        f.clock.boot_add_us += 31 * SEC;
        (void)store_worker_beat(other);
        sleeper = f.st;
        looks_left = n;
        f.clock.env.boot_us = boot_and_stir;
        fx_reap(&f, other);
        stirred = sleeper == NULL;
        sleeper = NULL;
        ck_assert_int_eq(fx_settle(&f, &job, OUT_DONE), stirred ? SETTLE_OK : SETTLE_FENCED);
        store_close(&other);
        fx_end(&f);
        ck_assert_int_lt(n, 20);
    }
    ck_assert_int_ge(n, 3); /* the first look, the one inside, and the round without a stir */
}
END_TEST

START_TEST(each_store_reaper_obeys_the_stored_policy_of_tasks_it_does_not_run)
{
    struct policy p = fx_policy();
    const size_t one = 1;
    struct fx f;

    p.lost_cap = 1;
    begin(&f, _i, &p);
    const int64_t id = fx_put(&f, "mail", "{}");
    killed_child(&f, claim_and_die, (void *)(uintptr_t)&one);
    f.lane.tasks_n = 0;
    ck_assert_uint_eq(fx_reap(&f, f.st).dead, 1);
    ck_assert_str_eq(fx_job(&f, id).dead_class, "poison");
    fx_end(&f);
}
END_TEST

static void reap_too(struct fx *f, void *ctx)
{
    _Atomic int64_t *sum = ctx;
    const struct reap_report r = fx_reap(f, f->st);

    *sum += (int64_t)(r.charged + r.suspects);
}

START_TEST(each_store_many_reapers_put_each_job_back_once)
{
    enum { REAPERS = 8 };
    _Atomic int64_t *sum = fx_shared(sizeof *sum);
    const size_t ten = 10;
    pid_t pids[REAPERS];
    struct fx f;

    begin(&f, _i, NULL);
    for (int i = 0; i < 10; i++)
        fx_put(&f, "mail", "{}");
    killed_child(&f, claim_and_die, (void *)(uintptr_t)&ten);
    fx_shut(&f);
    for (int i = 0; i < REAPERS; i++)
        pids[i] = fx_child(&f, reap_too, sum);
    for (int i = 0; i < REAPERS; i++)
        fx_wait_ok(pids[i]);
    fx_open(&f);
    ck_assert_int_eq(*sum, 10);
    for (int64_t id = 1; id <= 10; id++)
        fx_counters(&f, id, 1, 0, 0, 0, 0);
    fx_end(&f);
}
END_TEST

/* --- the effect runner dies, the supervisor lives --- */

struct runner { int sock; struct poison *p; };

/* A process with its own connection, over the descriptor that the supervisor hands it. */
static void run_attached(struct fx *f, void *ctx)
{
    const struct runner *r = ctx;
    union { struct cmsghdr h; char room[CMSG_SPACE(sizeof(int))]; } u;
    struct iovec iov = { f->worker, sizeof f->worker };
    struct msghdr m = { .msg_iov = &iov, .msg_iovlen = 1, .msg_control = u.room,
                        .msg_controllen = sizeof u.room };
    struct effect_report rep;
    char id[24];
    int fd;

    ck_assert_int_eq(recvmsg(r->sock, &m, 0), sizeof f->worker);
    memcpy(&fd, CMSG_DATA(&u.h), sizeof fd);
    memcpy(id, f->worker, sizeof id);
    fx_ok(store_worker_attach(f->st, id, fd, &f->e), f);
    f->ctx = r->p;
    for (;;)
        fx_ok(fx_batch(f, &rep), f);
}

static void hand_over(int sock, int fd, char id[24])
{
    union { struct cmsghdr h; char room[CMSG_SPACE(sizeof(int))]; } u = { .room = {0} };
    struct iovec iov = { id, 24 };
    struct msghdr m = { .msg_iov = &iov, .msg_iovlen = 1, .msg_control = u.room,
                        .msg_controllen = sizeof u.room };

    u.h.cmsg_level = SOL_SOCKET;
    u.h.cmsg_type = SCM_RIGHTS;
    u.h.cmsg_len = CMSG_LEN(sizeof fd);
    memcpy(CMSG_DATA(&u.h), &fd, sizeof fd);
    ck_assert_int_eq(sendmsg(sock, &m, 0), 24);
}

START_TEST(each_store_dead_runner_charges_its_job_and_spares_the_leased)
{
    struct runner run = { .p = fx_shared(sizeof *run.p) };
    struct reap_report r;
    struct fx_try tries[2];
    int socks[2], fd = -1;
    struct fx f;

    begin(&f, _i, NULL);
    ck_assert_int_eq(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, socks), 0);
    run.sock = socks[1];
    f.on_run = kill_in_hand;
    fx_shut(&f);
    run.p->id = 3;
    const pid_t pid = fx_child(&f, run_attached, &run);
    fx_open(&f);
    fx_ok(store_worker_join(f.st, f.worker, &fd, &f.e), &f);
    fx_put(&f, "mail", "{}");
    const struct job leased = fx_claim_one(&f);
    for (int i = 0; i < 3; i++)
        fx_put(&f, "mail", "{}"); /* 2, 3, 4 */
    hand_over(socks[0], fd, f.worker);
    ck_assert(WIFSIGNALED(fx_wait(pid)));
    fx_ok(engine_reap_runner(f.st, &f.clock.env, SIGKILL, OUT_LOST, &r, &f.e), &f);
    ck_assert_uint_eq(r.charged, 1);
    fx_counters(&f, 3, 1, 0, 1, 0, 0);
    fx_counters(&f, 2, 0, 0, 0, 0, 0);
    ck_assert_uint_eq(fx_attempts(&f, 3, tries, 2), 1);
    ck_assert_int_eq(tries[0].signal, SIGKILL);
    ck_assert_int_eq(fx_state(&f, leased.id), PAWL_STATE_RUNNING);
    fx_ok(engine_reap_runner(f.st, &f.clock.env, SIGKILL, OUT_LOST, &r, &f.e), &f);
    ck_assert_uint_eq(r.charged, 0);
    ck_assert_int_eq(fx_settle(&f, &leased, OUT_DONE), SETTLE_OK);
    close(socks[0]);
    close(socks[1]);
    fx_end(&f);
}
END_TEST

static void add(TCase *tc)
{
    FX_ADD(tc, each_store_death_in_commit_suspects_only_who_had_run);
    FX_ADD(tc, each_store_death_at_a_verdict_is_one_in_the_commit);
    FX_ADD(tc, each_store_single_job_of_a_dead_worker_is_charged_and_keeps_its_place);
    FX_ADD(tc, each_store_several_jobs_of_a_dead_worker_become_suspects_at_no_cost);
    FX_ADD(tc, each_store_poison_job_reaches_its_cap_alone_in_leased_mode);
    FX_ADD(tc, each_store_poison_job_reaches_its_cap_alone_in_effect_mode);
    FX_ADD(tc, each_store_death_in_commit_makes_suspects_and_charges_one_alone);
    FX_ADD(tc, each_store_death_of_leased_and_effect_jobs_together_makes_suspects);
    FX_ADD(tc, each_store_death_between_jobs_charges_nobody);
    FX_ADD(tc, each_store_blame_is_read_once_though_the_reaper_dies);
    FX_ADD(tc, each_store_blame_is_void_when_the_job_ran_since);
    FX_ADD(tc, each_store_blame_of_a_done_or_cancelled_job_is_void);
    FX_ADD(tc, each_store_living_worker_is_left_alone);
    FX_ADD(tc, each_store_frozen_worker_loses_its_jobs_but_not_its_place);
    FX_ADD(tc, each_store_worker_that_wakes_before_the_reapers_transaction_keeps_its_jobs);
    FX_ADD(tc, each_store_reaper_obeys_the_stored_policy_of_tasks_it_does_not_run);
    FX_ADD(tc, each_store_many_reapers_put_each_job_back_once);
    FX_ADD(tc, each_store_dead_runner_charges_its_job_and_spares_the_leased);
}

int main(void)
{
    return ut_main("reap", add, 30);
}
