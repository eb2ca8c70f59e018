// SPDX-License-Identifier: Apache-2.0
/* test_api_inside.c - what a handler calls from inside its run: its own worker, another handle on
 * the same store. Refused with what to do, never a crash nor a wait for itself. */
#include <pthread.h>

#include "unit/test_handler_c.h"

static void use_own_worker(struct pawl_run *run)
{
    static const char why[] = "inside this worker's own handler";
    struct cfx *f = cfx_of(run);
    struct pawl_worker *w = f->w;
    struct pawl_worker_stat stat;
    struct pawl_ran ran;
    bool more;

    FAILS(pawl_worker_step(w, &more, e), PAWL_BADARG, why);
    FAILS(pawl_worker_run(w, true, e), PAWL_BADARG, why);
    FAILS(pawl_worker_one(w, &ran, e), PAWL_BADARG, why);
    FAILS(pawl_worker_close(&w, e), PAWL_BADARG, why);
    ck_assert_ptr_eq(w, f->w);
    ck_assert_int_ne(pawl_worker_fd(w), -1);
    ck_assert_int_ge(pawl_worker_wait_us(w), 0);
    pawl_worker_stats(w, &stat);
    *(int *)f->own += 1;
}

static enum pawl_outcome uses_own_worker(struct pawl_run *run)
{
    struct pawl_error e;

    use_own_worker(run);
    return cfx_insert(run, run->key, 1, &e) == PAWL_OK ? PAWL_DONE : pawl_run_error(run, &e);
}

static enum pawl_outcome prepares_with_it(struct pawl_run *run)
{
    use_own_worker(run);
    return PAWL_DONE;
}

START_TEST(test_a_handler_may_not_use_its_own_worker)
{
    const struct pawl_request r = {.task = "t", .key = "k"};
    const struct pawl_request again = {.task = "t", .key = "l"};
    struct pawl_enqueued out;
    int used = 0;
    struct cfx f;

    cfx_begin(&f);
    f.own = &used;
    f.apply = uses_own_worker;
    f.prepare = prepares_with_it;
    f.drop = use_own_worker;
    cfx_work(&f, _i != 0);
    OK(pawl_enqueue(f.p, &r, 1, &out, NULL, e));
    ck_assert_int_eq(cfx_one(&f).state, PAWL_STATE_DONE);
    ck_assert_int_eq(used, _i != 0 ? 3 : 1);
    OK(pawl_enqueue(f.p, &again, 1, &out, NULL, e));
    OK(pawl_worker_run(f.w, true, e)); /* between two handlers it is as it was */
    ck_assert_int_eq(cfx_num(&f, "SELECT count(*) FROM row"), 2);
    cfx_end(&f);
}
END_TEST

static bool any_attempt(void *ctx, const struct pawl_attempt *at)
{
    (void)ctx;
    (void)at;
    return true;
}

/* What writes by another handle while this thread holds the write lock would wait for itself. */
static enum pawl_outcome writes_by_handle(struct pawl_run *run)
{
    static const char why[] = "use pawl_run_enqueue";
    const struct pawl_request r = {.task = "t"};
    struct cfx *f = cfx_of(run);
    struct pawl_enqueued out;
    struct pawl_pruned pruned;
    enum pawl_state s;
    struct pawl_error e;

    if (f->applies > 1) return PAWL_DONE;
    FAILS(pawl_cancel(f->p, run->job_id, &s, e), PAWL_BADARG, why);
    FAILS(pawl_prune(f->p, NULL, &pruned, e), PAWL_BADARG, why);
    FAILS(pawl_task_put(f->p, "t", NULL, true, NULL, e), PAWL_BADARG, why);
    OK(pawl_attempts(f->p, run->job_id, any_attempt, NULL, e)); /* it may read */
    if (pawl_enqueue(f->p, &r, 1, &out, NULL, &e) == PAWL_OK) return PAWL_SNOOZE;
    return pawl_run_error(run, &e);
}

START_TEST(test_a_handler_that_writes_by_another_handle)
{
    struct pawl_ran ran;
    struct cfx f;

    cfx_begin(&f);
    cfx_work(&f, _i != 0);
    ran = cfx_run(&f, "{}", writes_by_handle);
    cfx_is(&ran, PAWL_STATE_DEAD, "permanent", "use pawl_run_enqueue");
    (void)cfx_put(&f, "{}"); /* outside it may */
    ck_assert_int_eq(cfx_one(&f).state, PAWL_STATE_DONE);
    cfx_end(&f);
}
END_TEST

/* Who writes to SQLite keeps all others waiting; on PostgreSQL rows are locked, not the store. */
static void *enqueues_elsewhere(void *p)
{
    const struct pawl_request r = {.task = "t"};
    struct pawl_enqueued out;

    if (cfx_kind == CFX_POSTGRES) {
        OK(pawl_enqueue(p, &r, 1, &out, NULL, e));
        OK(pawl_pause(p, NULL, "t", true, e));
        return NULL;
    }
    FAILS(pawl_enqueue(p, &r, 1, &out, NULL, e), PAWL_BUSY, "this process has held");
    FAILS(pawl_pause(p, NULL, "t", true, e), PAWL_BUSY, "this process has held");
    return NULL;
}

static enum pawl_outcome waits_for_a_thread(struct pawl_run *run)
{
    pthread_t t;

    ck_assert_int_eq(pthread_create(&t, NULL, enqueues_elsewhere, cfx_of(run)->own), 0);
    ck_assert_int_eq(pthread_join(t, NULL), 0);
    return PAWL_DONE;
}

START_TEST(test_who_holds_the_lock_is_this_process)
{
    struct pawl_open_opts o;
    struct pawl *p = NULL;
    struct cfx f;

    cfx_begin(&f);
    o = f.open;
    o.busy_us = SEC / 5;
    OK(pawl_open_with(pawl_url(f.p), &o, &p, e));
    f.own = p;
    cfx_work(&f, false);
    ck_assert_int_eq(cfx_run(&f, "{}", waits_for_a_thread).state, PAWL_STATE_DONE);
    pawl_close(&p);
    cfx_end(&f);
}
END_TEST

static void add(TCase *tc)
{
    tcase_add_loop_test(tc, test_a_handler_may_not_use_its_own_worker, 0, 2);
    tcase_add_loop_test(tc, test_a_handler_that_writes_by_another_handle, 0, 2);
    tcase_add_test(tc, test_who_holds_the_lock_is_this_process);
}

int main(void)
{
    return cfx_main("api_inside", add, 60);
}
