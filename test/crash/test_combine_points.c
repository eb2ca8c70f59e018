// SPDX-License-Identifier: Apache-2.0
/* test_combine_points.c - killed at each step of a common transaction: who stored for others, or
 * who waits for it. What was acknowledged is there, once, with its content; what was not, once or
 * never. */
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include "lib/contend.h"

enum { WAITERS = 3 };
struct play {
    const char *point, *action;  /* armed in the holder */
    bool keyed;
    _Atomic int n;               /* waiters numbered */
    int ready[2];
    int64_t ids[WAITERS];        /* 0: not acknowledged */
    bool created[WAITERS];
    int64_t own;
};

static struct pawl_request request(const struct play *p, int i, char text[2][24])
{
    snprintf(text[0], 24, "[%d]", i);
    snprintf(text[1], 24, "k%d", i);
    return fx_req("mail", p->keyed ? text[1] : NULL, text[0]);
}

static void hold_and_store(struct fx *f, void *ctx)
{
    struct play *p = ctx;
    const struct pawl_request r = fx_req("mail", NULL, "\"own\"");
    struct pawl_enqueued out = {0};

    ct_hold(f);
    ck_assert_int_eq(write(p->ready[1], "rrr", WAITERS), WAITERS);
    ct_wait_posted(f, WAITERS);
    fx_arm(p->point, p->action);
    fx_ok(store_enqueue(f->st, &r, 1, &out, NULL, &f->e), f);
    p->own = out.id;
}

static void wait_for_holder(struct fx *f, void *ctx)
{
    struct play *p = ctx;
    const int i = atomic_fetch_add(&p->n, 1);
    char text[2][24];
    const struct pawl_request r = request(p, i, text);
    struct pawl_enqueued out = {0};

    fx_ok(store_enqueue(f->st, &r, 1, &out, NULL, &f->e), f);
    free(out.result);
    p->created[i] = out.created;
    p->ids[i] = out.id;
}

/* returns whether the holder died */
static bool act(struct fx *f, struct play *p)
{
    pid_t pids[WAITERS];

    fx_shut(f);
    ck_assert_int_eq(pipe(p->ready), 0);
    const pid_t holder = fx_child(f, hold_and_store, p);
    for (int i = 0; i < WAITERS; i++)
        pids[i] = fx_child_after(f, wait_for_holder, p, p->ready[0]);
    const int status = fx_wait(holder);
    for (int i = 0; i < WAITERS; i++)
        fx_wait_ok(pids[i]);
    close(p->ready[0]);
    close(p->ready[1]);
    fx_open(f);
    return WIFSIGNALED(status);
}

static void audit(struct fx *f, const struct play *p, int own)
{
    char text[2][24];

    for (int i = 0; i < WAITERS; i++) {
        const struct pawl_request r = request(p, i, text);

        ck_assert_int_gt(p->ids[i], 0);
        ck_assert(p->created[i]);
        ck_assert_str_eq(fx_job(f, p->ids[i]).args, r.args);
        ck_assert_int_eq(fx_numf(f, "SELECT count(*) FROM pawl_x_job WHERE args = '%s'", r.args),
                         1);
    }
    ck_assert_int_eq(fx_num(f, "SELECT count(*) FROM pawl_x_job WHERE args = '\"own\"'"), own);
    ck_assert_int_eq(fx_stat(f, "accepted"), WAITERS + own);
}

static const struct { const char *point; int own; } points[] = {
    { "combine.taken", 0 }, { "combine.commit.before", 0 }, { "enqueue.before", 0 },
    { "enqueue.after", 1 }, { "combine.commit.after", 1 }, { "combine.answered", 1 },
};

START_TEST(crash_holder_killed_at_a_point_the_requests_of_others_are_there_once)
{
    const size_t i = (size_t)_i % UT_N(points);
    struct play *p = fx_shared(sizeof *p);
    struct fx f;

    p->point = points[i].point;
    p->action = "kill";
    p->keyed = _i >= (int)UT_N(points);
    fx_begin(&f, 0);
    fx_task(&f, "mail");
    ck_assert(act(&f, p));
    audit(&f, p, points[i].own);
    fx_end(&f);
}
END_TEST

START_TEST(crash_error_at_a_point_of_a_common_transaction_is_nobodys_error)
{
    const size_t i = (size_t)_i % UT_N(points);
    struct play *p = fx_shared(sizeof *p);
    struct fx f;

    if (strcmp(points[i].point, "enqueue.before") == 0) return; /* that one is told to its caller */
    p->point = points[i].point;
    p->action = "error:0:1";
    p->keyed = _i >= (int)UT_N(points);
    fx_begin(&f, 0);
    fx_task(&f, "mail");
    ck_assert(!act(&f, p));
    audit(&f, p, 1);
    ck_assert_int_eq(fx_numf(&f, "SELECT count(*) FROM pawl_x_job WHERE id = %" PRId64
                             " AND args = '\"own\"'", p->own), 1);
    fx_end(&f);
}
END_TEST

static void post_and_die(struct fx *f, void *ctx)
{
    fx_arm("combine.posted", "kill");
    wait_for_holder(f, ctx);
}

START_TEST(crash_waiter_killed_after_it_posted_may_be_stored_and_hurts_nobody)
{
    struct play *p = fx_shared(sizeof *p);
    struct fx f;

    fx_begin(&f, 0);
    fx_task(&f, "mail");
    fx_shut(&f);
    ck_assert_int_eq(pipe(p->ready), 0);
    const pid_t pid = fx_child_after(&f, post_and_die, p, p->ready[0]);
    fx_open(&f);
    ct_hold(&f);
    ck_assert_int_eq(write(p->ready[1], "r", 1), 1);
    ck_assert(WIFSIGNALED(fx_wait(pid)));
    ck_assert_int_eq(ct_posted(&f), 1);
    fx_put(&f, "mail", "\"own\"");
    fx_put(&f, "mail", "\"own\"");
    ck_assert_int_le(fx_num(&f, "SELECT count(*) FROM pawl_x_job WHERE args = '[0]'"), 1);
    ck_assert_int_eq(fx_num(&f, "SELECT count(*) FROM pawl_x_job WHERE args = '\"own\"'"), 2);
    fx_end(&f);
}
END_TEST

/* The holder dies with requests of the dead in hand; then a third one comes. */
START_TEST(crash_everybody_killed_the_next_one_starts_clean)
{
    struct play *p = fx_shared(sizeof *p);
    pid_t pids[WAITERS];
    struct fx f;

    p->point = points[_i].point;
    p->action = "stop"; /* in the middle, while its waiters are killed */
    fx_begin(&f, 0);
    fx_task(&f, "mail");
    fx_shut(&f);
    ck_assert_int_eq(pipe(p->ready), 0);
    const pid_t holder = fx_child(&f, hold_and_store, p);
    for (int i = 0; i < WAITERS; i++)
        pids[i] = fx_child_after(&f, wait_for_holder, p, p->ready[0]);
    siginfo_t info;
    ck_assert_int_eq(waitid(P_PID, (id_t)holder, &info, WSTOPPED | WEXITED), 0);
    ck_assert_int_eq(info.si_code, CLD_STOPPED);
    for (int i = 0; i < WAITERS; i++)
        kill(pids[i], SIGKILL);
    kill(holder, SIGKILL);
    fx_wait(holder);
    for (int i = 0; i < WAITERS; i++)
        fx_wait(pids[i]);
    fx_open(&f);
    fx_put(&f, "mail", "\"next\"");
    ck_assert_uint_eq(atomic_load(&ct_side(&f)->mail->h.taken), 0);
    for (int i = 0; i < WAITERS; i++) {
        const int64_t n = fx_numf(&f, "SELECT count(*) FROM pawl_x_job WHERE args = '[%d]'", i);
        ck_assert_int_le(n, 1);
        if (p->ids[i] != 0) ck_assert_int_eq(n, 1);
    }
    ck_assert_int_eq(fx_num(&f, "SELECT count(*) FROM pawl_x_job WHERE args = '\"own\"'"),
                     points[_i].own);
    fx_end(&f);
}
END_TEST

/* --- at random --- */

enum { PRODUCERS = 16, ROOM = 4000, KILLS = 120 };
struct storm {
    _Atomic int64_t attempted[PRODUCERS];  /* the number of the request that is on its way */
    _Atomic int64_t ids[PRODUCERS][ROOM];  /* acknowledged */
};
struct producer { struct storm *storm; int who; };

static void pour(struct fx *f, void *ctx)
{
    const struct producer *p = ctx;
    char args[40];

    for (;;) {
        const int64_t i = atomic_load(&p->storm->attempted[p->who]);
        struct pawl_request r = fx_req("mail", NULL, args);
        struct pawl_enqueued out = {0};

        if (i >= ROOM) return;
        snprintf(args, sizeof args, "[%d,%" PRId64 "]", p->who, i);
        atomic_store(&p->storm->attempted[p->who], i + 1); /* whatever comes of it */
        fx_ok(store_enqueue(f->st, &r, 1, &out, NULL, &f->e), f);
        atomic_store(&p->storm->ids[p->who][i], out.id);
    }
}

START_TEST(crash_keyless_producers_killed_at_random_lose_and_double_nothing)
{
    struct storm *s = fx_shared(sizeof *s);
    struct producer p[PRODUCERS];
    pid_t pids[PRODUCERS];
    struct env_fake rnd;
    int64_t attempted = 0, acked = 0;
    struct fx f;

    env_fake_init(&rnd, ut_seed(7), 0);
    fx_begin(&f, 0);
    fx_task(&f, "mail");
    fx_shut(&f);
    for (int i = 0; i < PRODUCERS; i++) {
        p[i] = (struct producer){ s, i };
        pids[i] = fx_child(&f, pour, &p[i]);
    }
    for (int k = 0; k < KILLS; k++) {
        const int i = (int)env_below(&rnd.env, PRODUCERS);

        (void)poll(NULL, 0, (int)env_below(&rnd.env, 12)); /* the random moment */
        kill(pids[i], SIGKILL);
        fx_wait(pids[i]);
        pids[i] = fx_child(&f, pour, &p[i]);
    }
    for (int i = 0; i < PRODUCERS; i++) {
        kill(pids[i], SIGKILL);
        fx_wait(pids[i]);
    }
    fx_open(&f);
    fx_put(&f, "mail", "\"last\""); /* what was left is decided */
    for (int who = 0; who < PRODUCERS; who++) {
        const int64_t n = atomic_load(&s->attempted[who]);

        attempted += n;
        for (int64_t i = 0; i < n; i++) {
            const int64_t id = atomic_load(&s->ids[who][i]);
            char args[40];

            if (id == 0) continue;
            acked++;
            snprintf(args, sizeof args, "[%d,%" PRId64 "]", who, i);
            ck_assert_str_eq(fx_job(&f, id).args, args);
        }
    }
    const int64_t stored = fx_num(&f, "SELECT count(*) FROM pawl_x_job") - 1;
    printf("# %" PRId64 " attempted, %" PRId64 " stored, %" PRId64 " acknowledged\n", attempted,
           stored, acked);
    ck_assert_int_ge(stored, acked);
    ck_assert_int_le(stored, attempted);
    ck_assert_int_gt(acked, PRODUCERS);
    ck_assert_int_eq(fx_num(&f, "SELECT count(*) FROM (SELECT args FROM pawl_x_job GROUP BY 1"
                                " HAVING count(*) > 1)"), 0);
    fx_end(&f);
}
END_TEST

static void add(TCase *tc)
{
    const int n = (int)UT_N(points);

    tcase_add_loop_test(tc, crash_holder_killed_at_a_point_the_requests_of_others_are_there_once, 0,
                        2 * n);
    tcase_add_loop_test(tc, crash_error_at_a_point_of_a_common_transaction_is_nobodys_error, 0,
                        2 * n);
    tcase_add_test(tc, crash_waiter_killed_after_it_posted_may_be_stored_and_hurts_nobody);
    tcase_add_loop_test(tc, crash_everybody_killed_the_next_one_starts_clean, 0, n);
    tcase_add_test(tc, crash_keyless_producers_killed_at_random_lose_and_double_nothing);
}

int main(void)
{
    return ut_main("combine", add, 180);
}
