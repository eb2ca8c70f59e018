// SPDX-License-Identifier: Apache-2.0
/* test_random.c - producers, an operator, effect and leased workers on one store; any of them is
 * SIGKILLed at a random moment and started anew. At the end every accepted job has ended, and the
 * ledger outside of Pawl holds one row for each effect that Pawl calls done, and no other. */
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include "lib/fx.h"

enum { KEYS = 240, KILLS = 80, PROCS = 5 };

struct world {
    int64_t accepted[KEYS];      /* by key, as the producer was told; 0: not told yet */
    int64_t told_again;          /* duplicates that the producer met */
    _Atomic int starts[KEYS * 4];/* leased: by job id, how often a run began */
};

static void only(struct fx *f, size_t task)
{
    static struct lane_task both[2];

    if (both[0].name == NULL) memcpy(both, f->tasks, sizeof both);
    f->tasks[0] = both[task];
    f->lane.tasks_n = 1;
}

/* Trouble that passes: others hold the lock for long on a loaded machine. */
static bool passing(enum pawl_rc rc) { return rc == PAWL_BUSY; }

static void produce(struct fx *f, void *ctx)
{
    struct world *w = ctx;

    for (int64_t i = 0; i < KEYS; i++) {
        struct pawl_enqueued out = {0};
        char key[16];

        snprintf(key, sizeof key, "k%" PRId64, i);
        const struct pawl_request r = fx_req(i % 4 == 0 ? "leased" : "effect", key,
                                             i % 10 == 9 ? "[\"dead\"]" : "[]");
        const enum pawl_rc rc = store_enqueue(f->st, &r, 1, &out, NULL, &f->e);
        if (passing(rc)) {
            i--;
            continue;
        }
        fx_ok(rc, f);
        free(out.result);
        ck_assert(w->accepted[i] == 0 || !out.created);
        if (w->accepted[i] == 0) w->accepted[i] = out.id;
        w->told_again += !out.created;
    }
}

static void behave(struct fx *f, struct store *st, const struct job *job, struct finding *found,
                   bool *pinned)
{
    (void)f;
    (void)st;
    (void)pinned;
    if (strstr(job->args, "dead") != NULL && job->gen == 0)
        *found = fx_found(OUT_PERMANENT, "never");
    else if (job->id % 5 == 0 && job->n.failures == 0)
        *found = fx_found(OUT_TRANSIENT, "not yet");
}

static void work_effect(struct fx *f, void *ctx)
{
    struct reap_report r;

    (void)ctx;
    only(f, 0);
    f->on_run = behave;
    fx_join(f);
    for (int i = 0;; i++) { /* until killed */
        const enum pawl_rc rc = i % 8 == 0 ? engine_reap(f->st, &f->clock.env, &r, &f->e)
                                           : fx_batch(f, NULL);
        if (!passing(rc)) fx_ok(rc, f);
        fx_add(f, SEC); /* retries come due */
    }
}

static void work_leased(struct fx *f, void *ctx)
{
    struct world *w = ctx;
    struct leased *l;
    size_t n = 0;

    only(f, 1);
    fx_join(f);
    l = leased_new(&f->lane, 3, &f->clock.env);
    struct slot *slots = leased_slots(l, &n);
    for (;;) { /* until killed */
        const enum pawl_rc rc = leased_turn(l, f->st, true, &f->info, &f->e);
        if (!passing(rc)) fx_ok(rc, f);
        for (size_t i = 0; i < n; i++) {
            if (slots[i].phase != SLOT_HELD) continue;
            w->starts[slots[i].job.id]++;
            slots[i].found = fx_found(OUT_DONE, NULL);
            slots[i].phase = SLOT_ENDED;
        }
        fx_add(f, SEC);
    }
}

static bool note_dead(void *ctx, const struct pawl_job *j)
{
    *(int64_t *)ctx = j->id;
    return false;
}

static void operate(struct fx *f, void *ctx)
{
    const struct pawl_filter dead = { .state = PAWL_STATE_DEAD + 1, .unreplayed = true };
    const struct pawl_replay plain = {0};
    enum pawl_state state;

    (void)ctx;
    for (int64_t i = 1;; i++) { /* until killed */
        int64_t id = 0, made = 0;

        fx_ok(store_jobs(f->st, &dead, note_dead, &id, &f->e), f);
        enum pawl_rc rc = id == 0 ? PAWL_OK : store_replay(f->st, id, &plain, &made, &f->e);
        if (!passing(rc) && rc != PAWL_TOOLATE) fx_ok(rc, f);
        rc = store_cancel(f->st, 1 + i * 17 % KEYS, &state, &f->e);
        if (!passing(rc) && rc != PAWL_TOOLATE && rc != PAWL_NOTFOUND) fx_ok(rc, f);
    }
}

static void chaos(struct fx *f, struct world *w, const struct env *rnd)
{
    static void (*const roles[PROCS])(struct fx *, void *) = { produce, work_effect, work_effect,
                                                               work_leased, operate };
    pid_t pids[PROCS];

    for (size_t i = 0; i < PROCS; i++)
        pids[i] = fx_child(f, roles[i], w);
    for (int kill_n = 0; kill_n < KILLS; kill_n++) {
        const size_t i = env_below(rnd, PROCS);

        (void)poll(NULL, 0, (int)env_below(rnd, 15));
        kill(pids[i], SIGKILL);
        const int status = fx_wait(pids[i]);
        /* only the producer may have come to its end by itself */
        ck_assert_msg(WIFSIGNALED(status) || (i == 0 && status == 0), "role %zu: %x", i, status);
        pids[i] = fx_child(f, roles[i], w);
    }
    for (size_t i = 0; i < PROCS; i++) {
        kill(pids[i], SIGKILL);
        fx_wait(pids[i]);
    }
}

/* One worker puts everything in order: nobody dies any more. */
static void settle_down(struct fx *f, struct world *w)
{
    struct job jobs[8];
    size_t n;

    fx_open(f);
    fx_check(f);
    fx_reap(f, f->st);
    produce(f, w);
    fx_join(f);
    only(f, 1);
    do {
        n = fx_claim(f, jobs, 8, true);
        for (size_t i = 0; i < n; i++)
            ck_assert_int_eq(fx_settle(f, &jobs[i], OUT_DONE), SETTLE_OK);
    } while (n > 0 || f->info.suspect_waiting);
    only(f, 0);
    effect_free(&f->effect);
    f->on_run = behave;
    fx_drain(f);
}

static void audit(struct fx *f, const struct world *w)
{
    fx_check(f);
    ck_assert_int_eq(fx_num(f, "SELECT count(*) FROM pawl_x_ready"), 0);
    ck_assert_int_eq(fx_num(f, "SELECT count(*) FROM pawl_x_running"), 0);
    ck_assert_int_eq(fx_num(f, "SELECT count(*) FROM pawl_jobs WHERE replay_of IS NULL"), KEYS);
    for (int i = 0; i < KEYS; i++)
        ck_assert_int_eq(fx_numf(f, "SELECT count(*) FROM pawl_jobs WHERE root_id = (SELECT root_id"
                                 " FROM pawl_jobs WHERE id = %" PRId64 ") AND key = 'k%d'",
                                 w->accepted[i], i) > 0, 1);
    /* effect mode: done <=> exactly one row outside */
    ck_assert_int_eq(fx_num(f, "SELECT count(*) FROM pawl_jobs j WHERE task = 'effect' AND CASE"
                               " WHEN state = 'done' THEN 1 ELSE 0 END <>"
                               " (SELECT count(*) FROM fx WHERE job = j.id)"), 0);
    ck_assert_int_eq(fx_num(f, "SELECT count(*) FROM fx WHERE job NOT IN"
                               " (SELECT id FROM pawl_jobs WHERE task = 'effect')"), 0);
    ck_assert_int_eq(fx_num(f, "SELECT count(*) FROM pawl_jobs WHERE dead_class = 'poison'"), 0);
    /* one replay for each dead letter, whoever clicked */
    ck_assert_int_eq(fx_num(f, "SELECT count(*) FROM (SELECT replay_of FROM pawl_jobs WHERE"
                               " replay_of IS NOT NULL GROUP BY 1 HAVING count(*) > 1) x"), 0);
    ck_assert_int_gt(fx_num(f, "SELECT count(*) FROM fx"), KEYS / 4);
}

START_TEST(crash_anybody_killed_at_any_moment_loses_and_doubles_nothing)
{
    const uint64_t seed = ut_seed(42);
    struct policy p = fx_policy();
    struct world *w = fx_shared(sizeof *w);
    struct env_fake rnd;
    struct fx f;

    env_fake_init(&rnd, seed, 0);
    fx_begin(&f, _i);
    p.lost_cap = 100; /* kills from outside look like the jobs' own doing */
    fx_task_as(&f, "effect", &p);
    fx_task_as(&f, "leased", &p);
    fx_shut(&f);
    chaos(&f, w, &rnd.env);
    settle_down(&f, w);
    audit(&f, w);
    fx_end(&f);
}
END_TEST

static void add(TCase *tc)
{
    FX_ADD(tc, crash_anybody_killed_at_any_moment_loses_and_doubles_nothing);
}

int main(void)
{
    return ut_main("random", add, 120);
}
