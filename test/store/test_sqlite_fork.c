// SPDX-License-Identifier: Apache-2.0
/* test_sqlite_fork.c - a program that links libpawl forks: the child gets neither the handle nor,
 * when its parent is killed, the lock. */
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>
#include "lib/contend.h"
#include "store/side/who.h"

/* A child that lives until the test closes its end of the pipe, or ends. */
static pid_t linger(const int go[2])
{
    const pid_t pid = fork();
    char c;

    ck_assert_int_ge(pid, 0);
    if (pid > 0) return pid;
    close(go[1]);
    while (read(go[0], &c, 1) < 0) {}
    _exit(0);
}

/* --- the lock --- */

struct scene { int go[2]; const char *point; };

static void fork_and_die_inside(struct fx *f, void *ctx)
{
    struct scene *s = ctx;
    const struct pawl_request r = fx_req("mail", NULL, "{}");

    fx_put(f, "mail", "{}");
    linger(s->go);
    close(s->go[1]);
    fx_arm(s->point, "kill");
    (void)fx_put_rc(f, &r);
    ck_abort_msg("it lives");
}

START_TEST(sqlite_case_29_killed_parent_of_a_living_child_leaves_no_lock)
{
    static const char *const all[] = { "enqueue.before", "enqueue.after" };
    struct scene s = { .point = all[_i] };
    struct fx f;

    fx_begin(&f, 0);
    fx_shut(&f);
    ck_assert_int_eq(pipe(s.go), 0);
    for (int i = 0; i < 3; i++) {
        ck_assert(WIFSIGNALED(fx_wait(fx_child(&f, fork_and_die_inside, &s))));
        fx_open(&f);
        const int64_t start = env_real()->mono_us(NULL);
        fx_put(&f, "mail", "{}");
        ck_assert_int_lt(env_real()->mono_us(NULL) - start, SEC);
        fx_shut(&f);
    }
    close(s.go[1]);
    fx_open(&f);
    ck_assert_int_eq(fx_stat(&f, "accepted"), _i == 0 ? 6 : 9);
    fx_end(&f);
}
END_TEST

/* Between the flock and the word: taken, and nobody's. */
START_TEST(sqlite_lock_that_names_nobody_is_left_behind)
{
    char path[300];
    struct fx f;

    fx_begin(&f, 0);
    snprintf(path, sizeof path, "%s/store.db-pawl/lock", f.dir);
    const int fd = open(path, O_RDWR | O_CLOEXEC);
    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(flock(fd, LOCK_EX | LOCK_NB), 0);
    fx_put(&f, "mail", "{}");
    fx_put(&f, "mail", "{}");
    close(fd);
    struct store *second = fx_second(&f);
    store_close(&second);
    fx_end(&f);
}
END_TEST

/* Stopped between the two, it finds when it goes on that the lock has moved, and waits. */
struct late { int ready[2]; _Atomic int in; };

static void stop_and_take(struct fx *f, void *ctx)
{
    struct late *l = ctx;

    fx_arm("side.flocked", "stop:0:1");
    fx_ok(side_lock(ct_side(f), 20 * SEC, &f->e), f);
    atomic_store(&l->in, 1);
    side_unlock(ct_side(f));
}

START_TEST(sqlite_late_taker_of_an_old_lock_file_is_no_holder)
{
    struct late *l = fx_shared(sizeof *l);
    siginfo_t info;
    struct fx f;

    fx_begin(&f, 0);
    fx_shut(&f);
    const pid_t pid = fx_child(&f, stop_and_take, l);
    ck_assert_int_eq(waitid(P_PID, (id_t)pid, &info, WSTOPPED | WEXITED), 0);
    ck_assert_int_eq(info.si_code, CLD_STOPPED);
    fx_open(&f);
    fx_ok(side_lock(ct_side(&f), 10 * SEC, &f.e), &f);
    kill(pid, SIGCONT);
    ct_wait_waiting(&f); /* it has looked, and found it taken */
    ck_assert_int_eq(atomic_load(&l->in), 0);
    side_unlock(ct_side(&f));
    fx_wait_ok(pid);
    ck_assert_int_eq(atomic_load(&l->in), 1);
    fx_put(&f, "mail", "{}");
    fx_end(&f);
}
END_TEST

/* A holder that is stopped, or only slow, keeps it: nothing but a death moves the lock on. */
static void hold_and_stop(struct fx *f, void *ctx)
{
    const int *ready = ctx;

    ct_hold(f);
    ck_assert_int_eq(write(ready[1], "r", 1), 1);
    raise(SIGSTOP);
    side_unlock(ct_side(f));
}

START_TEST(sqlite_stopped_holder_keeps_the_lock)
{
    const struct pawl_request r = fx_req("mail", NULL, "{}");
    int ready[2];
    struct fx f;

    fx_begin(&f, 0);
    fx_shut(&f);
    ck_assert_int_eq(pipe(ready), 0);
    const pid_t pid = fx_child(&f, hold_and_stop, ready);
    ck_assert(fx_readable(ready[0], 30000));
    fx_open(&f);
    store_patience(f.st, SEC / 2);
    fx_is(fx_put_rc(&f, &r), PAWL_BUSY, &f);
    char text[32];
    snprintf(text, sizeof text, "process %d ", (int)pid);
    ck_assert_ptr_nonnull(strstr(f.e.msg, text));
    kill(pid, SIGCONT);
    fx_wait_ok(pid);
    fx_put_req(&f, &r);
    fx_end(&f);
}
END_TEST

/* Takers race for the lock while holders are killed in it whose children live: at most one is in at
 * any time, each turn is counted, and it always goes on. */
enum { TAKERS = 6, TURNS = 150, DEATHS = 8 };
struct race { _Atomic int inside, twice; int turns; int go[2]; };

static void turn(struct fx *f, struct race *r)
{
    ct_hold(f);
    if (atomic_fetch_add(&r->inside, 1) != 0) atomic_store(&r->twice, 1);
    r->turns++; /* no atomic: the lock is what makes it exact */
    atomic_fetch_sub(&r->inside, 1);
}

static void take_turns(struct fx *f, void *ctx)
{
    for (int i = 0; i < TURNS; i++) {
        turn(f, ctx);
        side_unlock(ct_side(f));
    }
}

static void take_one_and_die(struct fx *f, void *ctx)
{
    struct race *r = ctx;

    turn(f, r);
    linger(r->go);
    kill(getpid(), SIGKILL);
}

START_TEST(sqlite_racing_takers_never_hold_the_lock_twice)
{
    struct race *r = fx_shared(sizeof *r);
    pid_t pids[TAKERS];
    struct fx f;

    fx_begin(&f, 0);
    fx_shut(&f);
    ck_assert_int_eq(pipe(r->go), 0);
    for (int i = 0; i < TAKERS; i++)
        pids[i] = fx_child(&f, take_turns, r);
    for (int i = 0; i < DEATHS; i++)
        ck_assert(WIFSIGNALED(fx_wait(fx_child(&f, take_one_and_die, r))));
    for (int i = 0; i < TAKERS; i++)
        fx_wait_ok(pids[i]);
    close(r->go[1]);
    ck_assert_int_eq(atomic_load(&r->twice), 0);
    ck_assert_int_eq(r->turns, TAKERS * TURNS + DEATHS);
    fx_open(&f);
    fx_put(&f, "mail", "{}");
    /* one new lock file a death; rarely one more, when a taker and a judge meet */
    const int moved = (int)(atomic_load(&ct_side(&f)->page->turn) >> WHO_BITS);
    ck_assert_int_ge(moved, DEATHS - 1);
    ck_assert_int_le(moved, 2 * DEATHS);
    fx_end(&f);
}
END_TEST

/* --- who is dead --- */

static void *live_on(void *ctx)
{
    const int *ready = ctx;

    ck_assert_int_eq(write(ready[1], "r", 1), 1);
    for (;;) pause();
}

START_TEST(sqlite_only_a_death_that_is_proven_counts)
{
    const uint64_t self = who_self();
    uint64_t *other = fx_shared(sizeof *other);
    siginfo_t info;
    int ready[2];

    ck_assert_int_eq(pipe(ready), 0);
    ck_assert(!who_dead(self, self));
    ck_assert_int_eq(who_pid(self, self), getpid());
    pid_t pid = fork();
    if (pid == 0) { /* its main thread ends before the other: it looks like a zombie, and lives */
        pthread_t t;

        prctl(PR_SET_PDEATHSIG, SIGKILL);
        *other = who_self();
        if (pthread_create(&t, NULL, live_on, ready) != 0) _exit(1);
        pthread_exit(NULL);
    }
    ck_assert(fx_readable(ready[0], 30000));
    const uint64_t of_another_namespace = *other ^ UINT64_C(1) << 22;
    ck_assert(!who_dead(*other, self));
    const uint64_t start = *other >> 42 & 255;
    ck_assert_uint_ne(start, 0);
    const uint64_t was = (*other & ~(UINT64_C(255) << 42)) | (start % 255 + 1) << 42;
    ck_assert(who_dead(was, self)); /* its number, of an earlier start */
    kill(pid, SIGKILL);
    ck_assert_int_eq(waitid(P_PID, (id_t)pid, &info, WEXITED | WNOWAIT), 0);
    ck_assert(who_dead(*other, self)); /* a zombie */
    ck_assert_int_eq(waitpid(pid, NULL, 0), pid);
    ck_assert(who_dead(*other, self));
    ck_assert(!who_dead(of_another_namespace, self));
    ck_assert_int_eq(who_pid(of_another_namespace, self), 0);
}
END_TEST

/* --- the handle --- */

static void refused(struct fx *f, enum pawl_rc rc, pid_t owner)
{
    char text[100];

    fx_is(rc, PAWL_BADARG, f);
    snprintf(text, sizeof text,
             "opened by process %d; a child of fork() must not use it", (int)owner);
    ck_assert_msg(strstr(f->e.msg, text) != NULL, "%s", f->e.msg);
    memset(&f->e, 0, sizeof f->e);
}

static bool no_stat(void *ctx, const struct pawl_stat *stat)
{
    (void)ctx;
    (void)stat;
    return true;
}

static void use_the_parents(struct fx *f, pid_t owner)
{
    const struct pawl_request r = fx_req("mail", NULL, "{}");
    const struct pawl_prune_opts how = {0};
    struct pawl_enqueued out;
    struct pawl_pruned pruned;
    enum pawl_state state;
    struct store_stmt *stmt = NULL;
    size_t n = 0;
    char id[24];

    refused(f, store_enqueue(f->st, &r, 1, &out, NULL, &f->e), owner);
    refused(f, store_cancel(f->st, 1, &state, &f->e), owner);
    refused(f, store_stats(f->st, no_stat, NULL, &f->e), owner);
    refused(f, store_prune(f->st, &how, &pruned, &f->e), owner);
    refused(f, store_worker_join(f->st, id, NULL, &f->e), owner);
    refused(f, fx_turn(f, NULL, 0), owner);
    refused(f, store_effect_begin(f->st, &f->lane, 1, &f->arena, NULL, &n, &f->info, &f->e), owner);
    refused(f, store_stmt_prepare(f->st, "SELECT 1", &stmt, &f->e), owner);
    refused(f, store_maintain(f->st, &f->e), owner);
    ck_assert(!store_sound(f->st));
    ck_assert(!store_worker_beat(f->st));
    ck_assert_int_eq(store_wake_fd(f->st), -1);
    store_poke(f->st);
    store_effect_rollback(f->st);
    store_effect_end(f->st);
}

START_TEST(sqlite_handle_is_refused_in_a_forked_child)
{
    struct fx f;

    fx_begin(&f, 0);
    fx_task(&f, "mail");
    const pid_t owner = getpid(), pid = fork();
    if (pid == 0) {
        use_the_parents(&f, owner);
        store_close(&f.st);
        _exit(0);
    }
    fx_wait_ok(pid);
    fx_put(&f, "mail", "{}");
    ck_assert_int_eq(fx_stat(&f, "accepted"), 1);
    fx_end(&f);
}
END_TEST

/* In the middle of a batch, with statements prepared and the lock held. */
static void fork_in_hand(struct fx *f, struct store *st, const struct job *job,
                         struct finding *found, bool *pinned)
{
    (void)st;
    (void)job;
    (void)found;
    (void)pinned;
    const pid_t pid = fork();
    if (pid == 0) {
        store_stmt_free(&f->ledger);
        store_close(&f->st);
        _exit(f->st != NULL);
    }
    fx_wait_ok(pid);
    ck_assert(ct_side(f)->held);
    ck_assert_uint_ne(atomic_load(&ct_side(f)->page->turn) & WHO_MASK, 0);
    char path[300]; /* nobody else could take it */
    snprintf(path, sizeof path, "%s/store.db-pawl/lock", f->dir);
    const int fd = open(path, O_RDWR | O_CLOEXEC);
    ck_assert_int_ge(fd, 0);
    ck_assert_int_ne(flock(fd, LOCK_EX | LOCK_NB), 0);
    close(fd);
}

START_TEST(sqlite_close_in_a_forked_child_leaves_the_parent_at_work)
{
    struct fx f;

    fx_begin(&f, 0);
    fx_task(&f, "mail");
    fx_join(&f);
    for (int i = 0; i < 5; i++)
        fx_put(&f, "mail", "{}");
    f.on_run = fork_in_hand;
    fx_drain(&f);
    ck_assert_int_eq(fx_num(&f, "SELECT count(*) FROM fx"), 5);
    ck_assert_int_eq(fx_stat(&f, "done"), 5);
    fx_end(&f);
}
END_TEST

static void add(TCase *tc)
{
    tcase_add_loop_test(tc, sqlite_case_29_killed_parent_of_a_living_child_leaves_no_lock, 0, 2);
    tcase_add_test(tc, sqlite_lock_that_names_nobody_is_left_behind);
    tcase_add_test(tc, sqlite_late_taker_of_an_old_lock_file_is_no_holder);
    tcase_add_test(tc, sqlite_stopped_holder_keeps_the_lock);
    tcase_add_test(tc, sqlite_racing_takers_never_hold_the_lock_twice);
    tcase_add_test(tc, sqlite_only_a_death_that_is_proven_counts);
    tcase_add_test(tc, sqlite_handle_is_refused_in_a_forked_child);
    tcase_add_test(tc, sqlite_close_in_a_forked_child_leaves_the_parent_at_work);
}

int main(void)
{
    return ut_main("fork", add, 30);
}
