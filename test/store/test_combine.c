// SPDX-License-Identifier: Apache-2.0
/* test_combine.c - requests that were left for the holder of the side lock: one commit for all, the
 * answers of the ordinary way, and nothing lost or doubled whoever gives up, dies, or writes
 * nonsense there. (Killed at each step of it: test/crash/test_combine_points.c.) */
#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include "lib/contend.h"

/* What a child asked, and what it was told. */
struct ask {
    struct pawl_request r;
    int64_t patience_us;
    enum pawl_rc rc;
    struct pawl_enqueued out;
    char why[256];
    int64_t flushes;
    pid_t pid;
};

static void ask(struct fx *f, void *ctx)
{
    struct ask *a = ctx;
    const int64_t before = f->kind->flushes();

    if (a->patience_us > 0) store_patience(f->st, a->patience_us);
    a->rc = store_enqueue(f->st, &a->r, 1, &a->out, NULL, &f->e);
    snprintf(a->why, sizeof a->why, "%.250s", a->rc != PAWL_OK ? f->e.msg : "");
    if (a->out.result != NULL) { /* the parent cannot read our memory */
        snprintf(a->why, sizeof a->why, "%s", a->out.result);
        free(a->out.result);
    }
    a->flushes = f->kind->flushes() - before;
}

/* n children have left their requests, and we hold the lock. Their stores were opened before, so
 * that nothing of theirs is flushed but what they ask for. */
static void leave_all(struct fx *f, struct ask *asks, int n)
{
    fx_shut(f);
    int go[2];

    ck_assert_int_eq(pipe(go), 0);
    for (int i = 0; i < n; i++)
        asks[i].pid = fx_child_after(f, ask, &asks[i], go[0]);
    fx_open(f);
    fx_sql(f, "INSERT INTO fx VALUES (0, 0)"); /* a new log flushes its header, too */
    ct_hold(f);
    for (int i = 0; i < n; i++)
        ck_assert_int_eq(write(go[1], "g", 1), 1);
    close(go[0]);
    close(go[1]);
    ct_wait_posted(f, n);
}

static void wait_all(struct ask *asks, int n)
{
    for (int i = 0; i < n; i++)
        fx_wait_ok(asks[i].pid);
}

START_TEST(sqlite_one_flush_stores_what_many_asked)
{
    enum { N = 12 };
    struct ask *asks = fx_shared(N * sizeof *asks);
    char args[N][16];
    struct fx f;

    fx_begin(&f, 0);
    fx_task(&f, "mail");
    for (int i = 0; i < N; i++) {
        snprintf(args[i], sizeof args[i], "[%d]", i);
        asks[i].r = fx_req("mail", NULL, args[i]);
    }
    leave_all(&f, asks, N);
    const int64_t before = f.kind->flushes();
    const int64_t own = fx_put(&f, "mail", "\"own\"");
    wait_all(asks, N);
    ck_assert_int_eq(f.kind->flushes() - before, 1);
    ck_assert_int_eq(fx_stat(&f, "accepted"), N + 1);
    for (int i = 0; i < N; i++) {
        ck_assert_msg(asks[i].rc == PAWL_OK, "%s", asks[i].why);
        ck_assert_int_eq(asks[i].flushes, 0);
        ck_assert(asks[i].out.created && asks[i].out.task_known);
        ck_assert_int_eq(asks[i].out.state, PAWL_STATE_READY);
        ck_assert_int_ne(asks[i].out.id, own);
        ck_assert_str_eq(fx_job(&f, asks[i].out.id).args, args[i]);
    }
    fx_end(&f);
}
END_TEST

/* The row of a job but for its id and key, and where it waits. */
static const char *const row =
    "SELECT task_id || '|' || j.queue_id || '|' || source || '|' || args || '|' ||"
    " coalesce(headers, '-') || '|' || coalesce(trace, '-') || '|' || coalesce(entity, '-') || '|'"
    " || coalesce(version, '-') || '|' || priority || '|' || coalesce(max_retries, '-') || '|' ||"
    " j.run_at_us || '|' || coalesce(expires_at_us, '-') || '|' || created_at_us || '|' ||"
    " coalesce(length(key), '-') || '|' || (SELECT rank || '|' || run_at_us || '|' || moved FROM"
    " pawl_x_ready WHERE id = j.id) || '|' || (SELECT count(*) FROM pawl_x_key WHERE job_id = j.id)"
    " FROM pawl_x_job j WHERE id = %" PRId64;

static void row_of(struct fx *f, int64_t id, char *out, size_t n)
{
    char sql[900];

    snprintf(sql, sizeof sql, row, id);
    ck_assert(f->kind->ask(f, sql, out, n));
}

START_TEST(sqlite_answers_and_rows_are_those_of_the_ordinary_way)
{
    static const struct pawl_request all[] = {
        { .task = "mail", .args = "{}" },
        { .task = "mail", .args = "{ \"a\" :1}", .key = "k1" },
        { .task = "mail", .args = "[]", .key = "k1", .source = "s" },
        { .task = "mial", .args = "[]" }, /* undeclared: the nearest is named */
        { .task = "mail", .args = "[]", .queue = "fast", .has_priority = true, .priority = -100 },
        { .task = "mail", .args = "1", .entity = "e", .version = INT64_MIN, .has_version = true,
          .headers = "{\"h\":\"v\"}", .trace = "t", .run_at_us = 4000000000000000,
          .expires_at_us = 5000000000000000, .has_max_retries = true },
        { .task = "late", .args = "\"\xf0\x9f\x98\x80\"" },
    };
    enum { N = (int)UT_N(all) };
    struct ask *asks = fx_shared(N * sizeof *asks);
    struct policy p = fx_policy();
    struct fx f;

    fx_begin(&f, 0);
    fx_task(&f, "mail");
    p.priority = 7;
    snprintf(p.queue, sizeof p.queue, "post");
    fx_task_as(&f, "late", &p);
    struct pawl_request twin;
    struct pawl_enqueued want[N];
    for (int i = 0; i < N; i++) { /* the same with another key, the ordinary way */
        twin = all[i];
        if (twin.key != NULL) twin.key = "K1";
        fx_ok(store_enqueue(f.st, &twin, 1, &want[i], NULL, &f.e), &f);
        asks[i].r = all[i];
    }
    leave_all(&f, asks, N);
    fx_put(&f, "mail", "\"own\"");
    wait_all(asks, N);
    for (int i = 0; i < N; i++) {
        char a[1200], b[1200];

        ck_assert_msg(asks[i].rc == PAWL_OK, "%s", asks[i].why);
        ck_assert_int_eq(asks[i].flushes, 0); /* it was done for it */
        ck_assert_int_eq(asks[i].out.created, want[i].created);
        ck_assert_int_eq(asks[i].out.task_known, want[i].task_known);
        ck_assert_int_eq(asks[i].out.state, want[i].state);
        ck_assert_str_eq(asks[i].out.near, want[i].near);
        row_of(&f, want[i].id, a, sizeof a);
        row_of(&f, asks[i].out.id, b, sizeof b);
        ck_assert_str_eq(a, b);
    }
    fx_end(&f);
}
END_TEST

START_TEST(sqlite_what_is_no_plain_success_gets_its_own_answer)
{
    enum { N = 6 };
    struct ask *asks = fx_shared(N * sizeof *asks);
    char big[6000];
    struct fx f;

    fx_begin(&f, 0);
    fx_task(&f, "mail");
    fx_join(&f);
    struct pawl_request r = fx_req("mail", "done", "{}");
    const int64_t done = fx_put_req(&f, &r);
    fx_drain(&f);
    r = fx_req("mail", "k", "{}");
    const int64_t waits = fx_put_req(&f, &r);
    memset(big, 'x', sizeof big);
    big[0] = big[sizeof big - 2] = '"';
    big[sizeof big - 1] = '\0';
    asks[0].r = fx_req("mail", "k", "{\"other\":1}");       /* a clash */
    asks[1].r = fx_req("mail", "k", "{}");                  /* a duplicate of a waiting job */
    asks[2].r = fx_req("mail", "done", "{}");               /* of a done one */
    asks[3].r = fx_req("new_task", NULL, "{}");             /* a name to be made */
    asks[4].r = fx_req("mail", NULL, "{}");                 /* could never start */
    asks[4].r.expires_at_us = 1700000000000000;
    asks[5].r = fx_req("mail", "new", "{}");                /* and a good one among them */
    leave_all(&f, asks, N);
    fx_put(&f, "mail", "\"own\"");
    wait_all(asks, N);
    ck_assert_int_eq(asks[0].rc, PAWL_KEYCLASH);
    ck_assert_ptr_nonnull(strstr(asks[0].why, "used before with other args"));
    ck_assert_int_eq(asks[1].rc, PAWL_OK);
    ck_assert(!asks[1].out.created && asks[1].out.id == waits);
    ck_assert_int_eq(asks[1].out.state, PAWL_STATE_READY);
    ck_assert_int_eq(asks[2].rc, PAWL_OK);
    ck_assert(!asks[2].out.created && asks[2].out.id == done);
    ck_assert_int_eq(asks[2].out.state, PAWL_STATE_DONE);
    ck_assert_int_eq(asks[3].rc, PAWL_OK);
    ck_assert(asks[3].out.created && !asks[3].out.task_known);
    ck_assert_int_eq(asks[4].rc, PAWL_BADDATA);
    ck_assert_ptr_nonnull(strstr(asks[4].why, "could never start"));
    ck_assert_int_eq(asks[5].rc, PAWL_OK);
    ck_assert_int_eq(asks[5].flushes, 0);
    ck_assert_int_eq(fx_stat(&f, "accepted"), 5);
    ck_assert_int_eq(fx_stat(&f, "duplicates"), 2);
    ck_assert_int_eq(fx_stat(&f, "key_conflicts"), 1);
    fx_end(&f);
}
END_TEST

START_TEST(sqlite_request_too_large_for_a_slot_waits_for_the_lock)
{
    struct ask *a = fx_shared(sizeof *a);
    static char big[6000];
    struct fx f;

    fx_begin(&f, 0);
    memset(big, 'x', sizeof big - 1);
    big[0] = big[sizeof big - 2] = '"';
    a->r = fx_req("mail", NULL, big);
    fx_shut(&f);
    a->pid = fx_child(&f, ask, a);
    fx_wait_ok(a->pid);
    ck_assert_int_eq(a->rc, PAWL_OK);
    ck_assert_int_ge(a->flushes, 1);
    fx_open(&f);
    ck_assert_int_eq(fx_numf(&f, "SELECT length(args) FROM pawl_x_job WHERE id = %" PRId64,
                             a->out.id), sizeof big - 1);
    fx_end(&f);
}
END_TEST

/* Whoever is out of patience takes its request back: BUSY, and it is not stored later. */
START_TEST(sqlite_request_taken_back_is_not_stored)
{
    struct ask *a = fx_shared(sizeof *a);
    struct fx f;

    fx_begin(&f, 0);
    fx_task(&f, "mail");
    a->r = fx_req("mail", NULL, "[1]");
    a->patience_us = SEC / 10;
    leave_all(&f, a, 1);
    fx_wait_ok(a->pid);
    ck_assert_int_eq(a->rc, PAWL_BUSY);
    ck_assert_int_eq(ct_posted(&f), 0);
    fx_put(&f, "mail", "\"own\"");
    ck_assert_int_eq(fx_stat(&f, "accepted"), 1);
    fx_end(&f);
}
END_TEST

/* What others posted may not make ours fail, nor ours theirs. */
START_TEST(sqlite_failed_common_transaction_is_done_again_one_by_one)
{
    static const char *const points[] = { "combine.taken", "combine.commit.before" };
    enum { N = 3 };
    struct ask *asks = fx_shared(N * sizeof *asks);
    struct fx f;

    fx_begin(&f, 0);
    fx_task(&f, "mail");
    for (int i = 0; i < N; i++)
        asks[i].r = fx_req("mail", NULL, "[1]");
    leave_all(&f, asks, N);
    fx_arm(points[_i], "error:0:1");
    fx_put(&f, "mail", "\"own\"");
    fx_disarm();
    wait_all(asks, N);
    for (int i = 0; i < N; i++)
        ck_assert_msg(asks[i].rc == PAWL_OK && asks[i].out.created, "%s", asks[i].why);
    ck_assert_int_eq(fx_stat(&f, "accepted"), N + 1);
    fx_end(&f);
}
END_TEST

/* A commit whose outcome is unknown is looked up, for everybody. */
START_TEST(sqlite_unsure_common_commit_is_looked_up)
{
    static const char *const points[] = { "combine.commit.after", "enqueue.after" };
    enum { N = 3 };
    struct ask *asks = fx_shared(N * sizeof *asks);
    struct fx f;

    fx_begin(&f, 0);
    fx_task(&f, "mail");
    for (int i = 0; i < N; i++)
        asks[i].r = fx_req("mail", i == 0 ? "k" : NULL, "[1]");
    leave_all(&f, asks, N);
    fx_arm(points[_i], "error:0:1");
    fx_put(&f, "mail", "\"own\"");
    fx_disarm();
    wait_all(asks, N);
    for (int i = 0; i < N; i++) {
        ck_assert_msg(asks[i].rc == PAWL_OK && asks[i].out.created, "%s", asks[i].why);
        ck_assert_int_eq(asks[i].flushes, 0);
    }
    ck_assert_int_eq(fx_stat(&f, "accepted"), N + 1);
    fx_end(&f);
}
END_TEST

/* --- damage --- */

static void scribble(struct fx *f, struct mail *m, bool head)
{
    char *p = (char *)m;

    for (size_t i = head ? 0 : sizeof m->page; i < sizeof *m; i++)
        p[i] = (char)env_below(env_real(), 256);
    (void)f;
}

/* Noise in the slots: perhaps they are of no use to anybody, but nobody fails. */
START_TEST(sqlite_noise_in_the_slots_hurts_nobody)
{
    enum { N = 6 };
    struct ask *asks = fx_shared(N * sizeof *asks);
    struct fx f;

    fx_begin(&f, 0);
    fx_task(&f, "mail");
    for (int i = 0; i < N; i++)
        asks[i].r = fx_req("mail", NULL, "[1]");
    for (int round = 0; round < 10; round++) {
        struct mail *m = ct_side(&f)->mail;

        scribble(&f, m, round % 3 == 2);
        atomic_store(&m->h.posted, UINT64_MAX);
        atomic_store(&m->h.taken, round % 2 == 0 ? 0 : UINT64_MAX);
        fx_put(&f, "mail", "\"own\"");
        fx_shut(&f);
        for (int i = 0; i < N; i++)
            asks[i].pid = fx_child(&f, ask, &asks[i]);
        wait_all(asks, N);
        fx_open(&f);
        for (int i = 0; i < N; i++)
            ck_assert_msg(asks[i].rc == PAWL_OK && asks[i].out.created, "%s", asks[i].why);
    }
    ck_assert_int_eq(fx_stat(&f, "accepted"), 10 * (N + 1));
    fx_end(&f);
}
END_TEST

/* A request that was torn is not executed: its owner does it. */
START_TEST(sqlite_torn_request_is_not_executed)
{
    struct ask *a = fx_shared(sizeof *a);
    struct fx f;

    fx_begin(&f, 0);
    fx_task(&f, "mail");
    a->r = fx_req("mail", NULL, "\"whole\"");
    leave_all(&f, a, 1);
    struct mail *m = ct_side(&f)->mail;
    struct mail_slot *s = &m->slot[__builtin_ctzll(atomic_load(&m->h.posted))].s;
    s->text[6] ^= 1; /* in its args */
    fx_put(&f, "mail", "\"own\"");
    fx_wait_ok(a->pid);
    ck_assert_int_eq(a->rc, PAWL_OK);
    ck_assert_int_ge(a->flushes, 1);
    ck_assert_str_eq(fx_job(&f, a->out.id).args, "\"whole\"");
    ck_assert_int_eq(fx_stat(&f, "accepted"), 2);
    fx_end(&f);
}
END_TEST

START_TEST(sqlite_slots_of_another_boot_are_made_anew)
{
    struct ask *a = fx_shared(sizeof *a);
    struct fx f;

    fx_begin(&f, 0);
    fx_task(&f, "mail");
    a->r = fx_req("mail", NULL, "[1]");
    leave_all(&f, a, 1);
    fx_put(&f, "mail", "\"own\"");
    fx_wait_ok(a->pid);
    struct mail *m = ct_side(&f)->mail;
    m->h.boot[0] ^= 1;
    atomic_store(&m->h.uptime_us, INT64_MAX); /* the machine was restarted since */
    atomic_store(&m->h.posted, UINT64_MAX);
    atomic_store(&m->h.taken, UINT64_MAX);
    for (int i = 0; i < MAIL_SLOTS; i++) {
        atomic_store(&m->slot[i].s.who, 1);
        atomic_fetch_or(&m->slot[i].s.state, MAIL_POSTED);
    }
    fx_put(&f, "mail", "\"own\"");
    ck_assert_uint_eq(atomic_load(&m->h.taken), 0);
    for (int i = 0; i < MAIL_SLOTS; i++)
        ck_assert_uint_eq(atomic_load(&m->slot[i].s.who), 0);
    ck_assert_int_eq(fx_stat(&f, "accepted"), 3);
    fx_end(&f);
}
END_TEST

/* Containers may have boot ids of their own: what their producers wait for must stay. */
START_TEST(sqlite_slots_of_a_container_beside_us_are_left_alone)
{
    struct ask *a = fx_shared(sizeof *a);
    struct fx f;

    fx_begin(&f, 0);
    fx_task(&f, "mail");
    a->r = fx_req("mail", NULL, "[1]");
    leave_all(&f, a, 1);
    fx_put(&f, "mail", "\"own\"");
    fx_wait_ok(a->pid);
    struct mail *m = ct_side(&f)->mail;
    m->h.boot[0] ^= 1;
    atomic_store(&m->slot[5].s.who, who_self());
    atomic_store(&m->slot[5].s.state, 3 * MAIL_USE | MAIL_DONE); /* stored, and not yet read */
    atomic_store(&m->h.posted, 1);
    fx_put(&f, "mail", "\"own\"");
    ck_assert_uint_eq(atomic_load(&m->slot[5].s.state), 3 * MAIL_USE | MAIL_DONE);
    atomic_store(&m->slot[5].s.who, 0);
    atomic_store(&m->h.posted, 1);
    fx_put(&f, "mail", "\"own\"");                              /* nobody waits: made anew */
    ck_assert_uint_eq(atomic_load(&m->slot[5].s.state), 4 * MAIL_USE);
    ck_assert_int_eq(fx_stat(&f, "accepted"), 4);
    fx_end(&f);
}
END_TEST

/* --- the dead --- */

static void die_posted(struct fx *f, void *ctx)
{
    fx_arm("combine.posted", "kill");
    ask(f, ctx);
}

START_TEST(sqlite_slots_of_the_dead_are_free_again)
{
    struct ask *a = fx_shared(sizeof *a);
    pid_t pids[8];
    struct fx f;

    fx_begin(&f, 0);
    fx_task(&f, "mail");
    a->r = fx_req("mail", NULL, "[1]");
    leave_all(&f, a, 1);
    fx_put(&f, "mail", "\"own\"");
    fx_wait_ok(a->pid);
    int dead = 0;
    for (int round = 0; round < MAIL_SLOTS / 8 + 1; round++) {
        fx_shut(&f);
        int go[2];
        ck_assert_int_eq(pipe(go), 0);
        for (int i = 0; i < 8; i++)
            pids[i] = fx_child_after(&f, die_posted, a, go[0]);
        fx_open(&f);
        ct_hold(&f);
        for (int i = 0; i < 8; i++)
            ck_assert_int_eq(write(go[1], "g", 1), 1);
        if (round == MAIL_SLOTS / 8) ct_wait_full(&f); /* these find no slot, and wait */
        for (int i = 0; i < 8; i++) {
            if (round == MAIL_SLOTS / 8) kill(pids[i], SIGKILL);
            fx_wait(pids[i]);
            dead++;
        }
        close(go[0]);
        close(go[1]);
    }
    fx_put(&f, "mail", "\"own\""); /* may store what the dead left: it was never acknowledged */
    const int64_t stored = fx_stat(&f, "accepted");
    ck_assert_int_le(stored, 3 + dead);
    leave_all(&f, a, 1);
    fx_put(&f, "mail", "\"own\"");
    fx_wait_ok(a->pid);
    ck_assert_int_eq(a->flushes, 0); /* there was a slot */
    ck_assert_int_eq(fx_stat(&f, "accepted"), stored + 2);
    fx_end(&f);
}
END_TEST

/* A container that was killed: nobody here can tell that its processes are dead. */
START_TEST(sqlite_answers_that_nobody_reads_are_thrown_away)
{
    struct ask *a = fx_shared(sizeof *a);
    struct fx f;

    fx_begin(&f, 0);
    fx_task(&f, "mail");
    a->r = fx_req("mail", NULL, "[1]");
    leave_all(&f, a, 1);
    struct mail *m = ct_side(&f)->mail;
    const int64_t now = env_real()->mono_us(env_real()->ctx);
    for (int i = 0; i < MAIL_SLOTS; i++) {
        if (atomic_load(&m->slot[i].s.who) != 0)
            continue;
        atomic_store(&m->slot[i].s.who, 1); /* of another namespace */
        atomic_store(&m->slot[i].s.until_us, now - (i % 2 ? 60 : 20) * SEC);
        atomic_store(&m->slot[i].s.state, 3 * MAIL_USE | MAIL_DONE);
    }
    atomic_store(&m->h.full, 1);
    fx_put(&f, "mail", "\"own\"");
    fx_wait_ok(a->pid);
    ck_assert_int_eq(a->flushes, 0);
    for (int i = 0, left = 0; i < MAIL_SLOTS; i++) {
        left += atomic_load(&m->slot[i].s.who) != 0;
        if (i == MAIL_SLOTS - 1) ck_assert_int_ge(left, MAIL_SLOTS / 2 - 1); /* these may be read */
        if (i == MAIL_SLOTS - 1) ck_assert_int_le(left, MAIL_SLOTS / 2);
    }
    for (int i = 0; i < MAIL_SLOTS; i++) atomic_store(&m->slot[i].s.who, 0);
    fx_end(&f);
}
END_TEST

/* --- many at once --- */

enum { MANY = 16, EACH = 60 };
struct many { int64_t ids[MANY][EACH]; _Atomic int next; };

static void produce(struct store *st, struct many *m, int who, struct pawl_error *e)
{
    char args[40];

    for (int i = 0; i < EACH; i++) {
        struct pawl_request r = fx_req("mail", NULL, args);
        struct pawl_enqueued out = {0};

        snprintf(args, sizeof args, "[%d,%d]", who, i);
        ck_assert_msg(store_enqueue(st, &r, 1, &out, NULL, e) == PAWL_OK, "%s", e->msg);
        ck_assert(out.created);
        m->ids[who][i] = out.id;
    }
}

static void produce_child(struct fx *f, void *ctx)
{
    struct many *m = ctx;

    produce(f->st, m, atomic_fetch_add(&m->next, 1), &f->e);
}

static void all_there(struct fx *f, const struct many *m, int n)
{
    char want[40];

    ck_assert_int_eq(fx_stat(f, "accepted"), n * EACH);
    for (int who = 0; who < n; who++)
        for (int i = 0; i < EACH; i++) {
            snprintf(want, sizeof want, "[%d,%d]", who, i);
            ck_assert_str_eq(fx_job(f, m->ids[who][i]).args, want);
        }
}

START_TEST(each_store_many_producers_at_once_lose_and_double_nothing)
{
    struct many *m = fx_shared(sizeof *m);
    pid_t pids[MANY];
    struct fx f;

    fx_begin(&f, _i);
    fx_task(&f, "mail");
    fx_shut(&f);
    for (int i = 0; i < MANY; i++)
        pids[i] = fx_child(&f, produce_child, m);
    for (int i = 0; i < MANY; i++)
        fx_wait_ok(pids[i]);
    fx_open(&f);
    all_there(&f, m, MANY);
    fx_end(&f);
}
END_TEST

struct thread { pthread_t t; struct store *st; struct many *m; int who; struct pawl_error e; };

static void *produce_thread(void *ctx)
{
    struct thread *t = ctx;

    produce(t->st, t->m, t->who, &t->e);
    return NULL;
}

START_TEST(each_store_threads_with_a_handle_each_are_many_producers)
{
    enum { N = 8 };
    struct many *m = fx_shared(sizeof *m);
    struct thread threads[N] = {0};
    struct fx f;

    fx_begin(&f, _i);
    fx_task(&f, "mail");
    for (int i = 0; i < N; i++) {
        threads[i].st = fx_second(&f);
        threads[i].m = m;
        threads[i].who = i;
    }
    for (int i = 0; i < N; i++)
        ck_assert_int_eq(pthread_create(&threads[i].t, NULL, produce_thread, &threads[i]), 0);
    for (int i = 0; i < N; i++)
        ck_assert_int_eq(pthread_join(threads[i].t, NULL), 0);
    for (int i = 0; i < N; i++)
        store_close(&threads[i].st);
    all_there(&f, m, N);
    fx_end(&f);
}
END_TEST

static void add(TCase *tc)
{
    tcase_add_test(tc, sqlite_one_flush_stores_what_many_asked);
    tcase_add_test(tc, sqlite_answers_and_rows_are_those_of_the_ordinary_way);
    tcase_add_test(tc, sqlite_what_is_no_plain_success_gets_its_own_answer);
    tcase_add_test(tc, sqlite_request_too_large_for_a_slot_waits_for_the_lock);
    tcase_add_test(tc, sqlite_request_taken_back_is_not_stored);
    tcase_add_loop_test(tc, sqlite_failed_common_transaction_is_done_again_one_by_one, 0, 2);
    tcase_add_loop_test(tc, sqlite_unsure_common_commit_is_looked_up, 0, 2);
    tcase_add_test(tc, sqlite_noise_in_the_slots_hurts_nobody);
    tcase_add_test(tc, sqlite_torn_request_is_not_executed);
    tcase_add_test(tc, sqlite_slots_of_another_boot_are_made_anew);
    tcase_add_test(tc, sqlite_slots_of_a_container_beside_us_are_left_alone);
    tcase_add_test(tc, sqlite_slots_of_the_dead_are_free_again);
    tcase_add_test(tc, sqlite_answers_that_nobody_reads_are_thrown_away);
    FX_ADD(tc, each_store_many_producers_at_once_lose_and_double_nothing);
    FX_ADD(tc, each_store_threads_with_a_handle_each_are_many_producers);
}

int main(void)
{
    return ut_main("combine", add, 60);
}
