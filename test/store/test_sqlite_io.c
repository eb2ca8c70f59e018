// SPDX-License-Identifier: Apache-2.0
/* test_sqlite_io.c - every write, sync, truncate and open that SQLite makes for us fails once, then
 * for a while: nothing that was acknowledged is lost, nothing is doubled, the invariants hold.
 *
 * The countdown: fault number 0, 1, 2 ... until the scenario passes untouched. */
#include <inttypes.h>
#include <string.h>
#include "lib/fx.h"
#include "lib/vfs.h"

enum { TURNS_MAX = 60, JOBS = 4, COUNTDOWN_MAX = 3000 };

static const struct { const char *name; enum vfs_fault fault; int64_t times; } faults[] = {
    { "one error", VFS_ERROR, 1 },
    { "errors for a while", VFS_ERROR, 25 },
    { "one full disk", VFS_FULL, 1 },
    { "a full disk for a while", VFS_FULL, 25 },
    { "one torn write", VFS_TORN, 1 },
    { "one failed read", VFS_READ, 1 },
};

/* A producer that sends again until it is told yes: what it was told must be true. */
static void produce(struct fx *f, int64_t *accepted)
{
    static int64_t round;
    char key[32];

    round++;
    for (int i = 0; i < JOBS; i++) {
        struct pawl_enqueued out = {0};
        enum pawl_rc rc = PAWL_IO;

        snprintf(key, sizeof key, "k%" PRId64 "-%d", round, i);
        for (int tries = 0; tries < TURNS_MAX && rc != PAWL_OK; tries++) {
            const struct pawl_request r = fx_req("mail", key, "{\"a\":1}");
            rc = store_enqueue(f->st, &r, 1, &out, NULL, &f->e);
            free(out.result);
            out.result = NULL;
        }
        fx_ok(rc, f);
        accepted[i] = out.id;
    }
}

/* Everything is closed and opened as a new process would, faults over: what was acknowledged is
 * there, ended well, and was charged nothing. But for this: a job that met faults twice in a row,
 * alone, and then the store proved sound, is charged one failure; so many may fall together. */
static void audit(struct fx *f, const int64_t *accepted, int64_t rounds, int64_t charged_max)
{
    fx_shut(f);
    fx_open(f);
    fx_check(f);
    for (int i = 0; i < JOBS; i++)
        ck_assert_int_eq(fx_numf(f, "SELECT count(*) FROM pawl_x_done WHERE job_id = %" PRId64
                                 " AND failures <= %" PRId64 " AND lost = 0", accepted[i],
                                 charged_max), 1);
    ck_assert_int_eq(fx_num(f, "SELECT count(*) FROM pawl_x_job"), rounds * JOBS);
}

/* Leased mode through the engine; a turn that fails is a turn to try again. */
static void scenario_leased(struct fx *f, int64_t *accepted)
{
    struct leased *l = leased_new(&f->lane, 2, &f->clock.env);
    struct pending left = { .due = 1 };
    size_t n = 0;
    struct slot *slots = leased_slots(l, &n);
    int turns = 0;

    produce(f, accepted);
    while (left.due + left.running + left.retrying > 0) {
        ck_assert_msg(++turns < TURNS_MAX, "stuck: %" PRId64 " due, %" PRId64 " running: %s",
                      left.due, left.running, f->e.msg);
        if (leased_turn(l, f->st, true, &f->info, &f->e) != PAWL_OK) continue;
        for (size_t i = 0; i < n; i++) {
            if (slots[i].phase != SLOT_HELD) continue;
            /* Handed back once: the same commit may claim it again. */
            slots[i].found = fx_found(slots[i].job.n.releases == 0 ? OUT_RELEASED : OUT_DONE, NULL);
            slots[i].phase = SLOT_ENDED;
        }
        if (store_pending(f->st, &f->lane, &left, &f->e) != PAWL_OK) left.due = 1;
    }
    leased_free(&l);
}

/* Effect mode; a batch that fails is a batch to try again. */
static void scenario_effect(struct fx *f, int64_t *accepted)
{
    struct effect_report r = { .claimed = 1 };
    int turns = 0;

    produce(f, accepted);
    for (enum pawl_rc rc = PAWL_IO; rc != PAWL_OK || r.claimed > 0; ) {
        ck_assert_msg(++turns < TURNS_MAX, "stuck: %s", f->e.msg);
        rc = fx_batch(f, &r);
    }
}

typedef void scenario_fn(struct fx *f, int64_t *accepted);

/* A process that starts while the store is in trouble tries again. */
static void open_again(struct fx *f)
{
    const struct store_opts o = { .url = f->url, .env = &f->clock.env, .accept_wal_risk = true };
    enum pawl_rc rc = PAWL_IO;

    fx_shut(f);
    for (int tries = 0; tries < TURNS_MAX && rc != PAWL_OK; tries++)
        rc = store_open(&o, &f->st, &f->e);
    fx_ok(rc, f);
}

/* One store for all rounds, opened anew in each; a round has jobs of its own. */
static void count_down(scenario_fn *scenario, size_t how, bool effects)
{
    int64_t n = -1;
    bool fired;
    struct fx f;

    fx_begin(&f, 0);
    fx_task(&f, "mail");
    do {
        int64_t accepted[JOBS] = {0};

        ck_assert_int_lt(++n, COUNTDOWN_MAX);
        /* Alone on the file: nobody keeps the log's index, an opener reads the log itself. */
        vfs_arm(n, faults[how].times, faults[how].fault);
        open_again(&f);
        fx_join(&f);
        scenario(&f, accepted);
        fired = vfs_disarm();
        audit(&f, accepted, n + 1, faults[how].times > 1 ? 1 : 0);
        if (effects) {
            ck_assert_int_eq(fx_num(&f, "SELECT count(*) FROM fx"), (n + 1) * JOBS);
            ck_assert_int_eq(fx_num(&f, "SELECT count(DISTINCT job) FROM fx"), (n + 1) * JOBS);
        }
    } while (fired);
    printf("# %s: %" PRId64 " calls failed in turn\n", faults[how].name, n);
    ck_assert_int_gt(n, 5); /* else the faults did not reach what we mean */
    fx_end(&f);
}

START_TEST(sqlite_io_faults_lose_nothing_in_leased_mode)
{
    count_down(scenario_leased, (size_t)_i, false);
}
END_TEST

START_TEST(sqlite_io_faults_double_nothing_in_effect_mode)
{
    count_down(scenario_effect, (size_t)_i, true);
}
END_TEST

static void add(TCase *tc)
{
    tcase_add_loop_test(tc, sqlite_io_faults_lose_nothing_in_leased_mode, 0, (int)UT_N(faults));
    tcase_add_loop_test(tc, sqlite_io_faults_double_nothing_in_effect_mode, 0, (int)UT_N(faults));
}

int main(void)
{
    return ut_main("sqlite_io", add, 60);
}
