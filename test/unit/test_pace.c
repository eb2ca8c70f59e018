// SPDX-License-Identifier: Apache-2.0
/* test_pace.c - foreign writers get their turn: pawl drains flat out and another program, with
 * SQLite's own busy timeout, wants to write. Played in virtual time, over thousands of phases. */
#include "base/clock.h"
#include "store/side/pace.h"

#include <stdlib.h>
#include <string.h>
#include "lib/ut.h"

#define MS INT64_C(1000)

/* A pawl that never runs out of work, and its write lock. */
struct drain {
    struct pace pace;
    struct env_fake f;
    int64_t now_us;
    int64_t batch_us;      /* what a batch takes when nothing bounds it */
    int64_t flush_us;      /* what no bound can shorten */
    int64_t from_us, until_us; /* the lock's last turn */
    int64_t held_us;       /* all turns */
    bool foreign;          /* somebody committed since our last commit */
};

static int64_t spread(struct drain *d, int64_t us)
{
    return us * 3 / 4 + (int64_t)env_below(&d->f.env, (uint64_t)(us / 2 + 1));
}

/* One turn: gap, batch, commit. */
static void turn(struct drain *d)
{
    d->now_us += 30 + pace_gap(&d->pace, d->now_us);
    int64_t room = pace_room(&d->pace, d->now_us);
    int64_t want = room < d->batch_us ? room : d->batch_us;
    int64_t work = want > d->flush_us ? spread(d, want - d->flush_us) : 50;

    d->from_us = d->now_us;
    d->now_us += work + spread(d, d->flush_us);
    d->until_us = d->now_us;
    d->held_us += d->until_us - d->from_us;
    pace_held(&d->pace, d->now_us, d->until_us - d->from_us);
    if (d->foreign) pace_foreign(&d->pace, d->now_us);
    d->foreign = false;
}

static bool is_held(struct drain *d, int64_t at_us)
{
    while (d->until_us <= at_us) turn(d);
    return d->from_us <= at_us;
}

/* A write by SQLite's busy timeout, begun at at_us: how long until it has the lock? */
static int64_t foreign_write(struct drain *d, int64_t at_us, int64_t late_us)
{
    static const int naps_ms[] = {1, 2, 5, 10, 15, 20, 25, 25, 25, 50, 50, 100};
    int64_t look_us = at_us;

    for (size_t i = 0; is_held(d, look_us); i++) {
        ck_assert_int_lt(look_us - at_us, 5000 * MS); /* SQLITE_BUSY */
        look_us += naps_ms[i < UT_N(naps_ms) ? i : UT_N(naps_ms) - 1] * MS;
        look_us += (int64_t)env_below(&d->f.env, (uint64_t)late_us) + late_us / 2;
    }
    /* The next turn begins after this commit. */
    if (d->now_us < look_us + d->flush_us) d->now_us = look_us + d->flush_us;
    d->foreign = true;
    return look_us - at_us;
}

static struct drain begin(uint64_t seed, int64_t flush_us)
{
    struct drain d = {.now_us = 77777 * MS, .batch_us = 5 * MS, .flush_us = flush_us};

    env_fake_init(&d.f, seed, 0);
    d.f.env.ctx = NULL; /* set where the copy lives */
    return d;
}

static int by_size(const void *a, const void *b)
{
    const int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;

    return x < y ? -1 : x > y;
}

static void bursts(int64_t flush_us, int64_t late_us)
{
    enum { N = 4000 };
    static int64_t wait_us[N];
    struct drain d = begin(ut_seed(3), flush_us);
    int64_t at_us = d.now_us + 1000 * MS;

    d.f.env.ctx = &d.f;
    for (int i = 0; i < N; i++) {
        wait_us[i] = foreign_write(&d, at_us, late_us);
        /* Silence, until we have forgotten it, and on to another phase. */
        at_us += wait_us[i] + 1500 * MS + (int64_t)env_below(&d.f.env, 500 * MS);
    }
    qsort(wait_us, N, sizeof *wait_us, by_size);
    printf("# first write, a flush of %lld us: p50 %lld ms, p99 %lld ms, longest %lld ms\n",
           (long long)flush_us, (long long)(wait_us[N / 2] / MS),
           (long long)(wait_us[N * 99 / 100] / MS), (long long)(wait_us[N - 1] / MS));
    ck_assert_int_le(wait_us[N - 1], 1000 * MS);
}

START_TEST(test_pace_first_foreign_write_waits_at_most_a_second)
{
    bursts(100, 100);
    bursts(100, 500);
    bursts(5000, 100);
}
END_TEST

/* Thirty writes a second: the 99th percentile of their waits, and our share of the time. */
static void steady(int64_t flush_us, int64_t late_us, int64_t max_us, double share)
{
    enum { N = 20000 };
    static int64_t wait_us[N];
    struct drain d = begin(ut_seed(4), flush_us);
    int64_t at_us = d.now_us + 1000 * MS;

    d.f.env.ctx = &d.f;
    (void)foreign_write(&d, at_us, late_us);
    const int64_t from_us = d.now_us, held_us = d.held_us;
    at_us = d.now_us;
    for (int i = 0; i < N; i++) {
        at_us += 16 * MS + (int64_t)env_below(&d.f.env, 34 * MS);
        wait_us[i] = foreign_write(&d, at_us, late_us);
        at_us += wait_us[i];
    }
    const double ours = (double)(d.held_us - held_us) / (double)(d.now_us - from_us);
    qsort(wait_us, N, sizeof *wait_us, by_size);
    printf("# a flush of %lld us: p50 %lld us, p99 %lld us, longest %lld ms, ours %.2f\n",
           (long long)flush_us, (long long)wait_us[N / 2], (long long)wait_us[N * 99 / 100],
           (long long)(wait_us[N - 1] / MS), ours);
    ck_assert_int_le(wait_us[N * 99 / 100], max_us);
    ck_assert_double_ge(ours, share);
}

START_TEST(test_pace_later_foreign_writes_wait_at_most_50_ms)
{
    /* Disks that flush in 0.1, 1 and 5 ms; naps that last longer than asked for. */
    steady(100, 100, 25 * MS, 0.53);
    steady(100, 500, 25 * MS, 0.53);
    steady(100, 3000, 50 * MS, 0.53);
    steady(1000, 100, 25 * MS, 0.53);
    steady(5000, 100, 25 * MS, 0.53);
    steady(5000, 1500, 50 * MS, 0.53);
}
END_TEST

START_TEST(test_pace_costs_at_most_15_percent_when_nobody_else_writes)
{
    struct drain d = begin(ut_seed(5), 100);
    const int64_t from_us = d.now_us;

    d.f.env.ctx = &d.f;
    while (d.now_us - from_us < 60000 * MS) turn(&d);
    ck_assert_double_ge((double)d.held_us / (double)(d.now_us - from_us), 0.85);
}
END_TEST

START_TEST(test_pace_gap_holds_for_whoever_asks_while_it_lasts)
{
    struct drain d = begin(ut_seed(6), 100);
    int64_t gap = 0;

    d.f.env.ctx = &d.f;
    for (int i = 0; i < 200; i++) turn(&d);
    while ((gap = pace_gap(&d.pace, d.now_us)) == 0) turn(&d);
    ck_assert_int_ge(gap, 26 * MS);
    ck_assert_int_eq(pace_gap(&d.pace, d.now_us + MS), gap - MS);
    pace_held(&d.pace, d.now_us + 2 * MS, MS); /* a short transaction of somebody else in it */
    ck_assert_int_eq(pace_gap(&d.pace, d.now_us + 2 * MS), gap - 2 * MS);
    ck_assert_int_eq(pace_gap(&d.pace, d.now_us + gap), 0);
}
END_TEST

START_TEST(test_pace_leaves_no_gap_where_the_store_is_mostly_free)
{
    struct pace p = {0};

    for (int64_t now_us = 1000 * MS; now_us < 60000 * MS; now_us += 20 * MS) {
        ck_assert_int_eq(pace_gap(&p, now_us), 0);
        ck_assert_int_eq(pace_room(&p, now_us), INT64_MAX);
        pace_held(&p, now_us + 9 * MS, 9 * MS);
    }
}
END_TEST

START_TEST(test_pace_numbers_of_another_boot_cost_one_gap_at_most)
{
    struct pace p;
    int64_t gaps_us = 0;

    for (int i = 0; i < 2; i++) {
        memset(&p, i == 0 ? 0x7f : 0x80, sizeof p); /* far in the future; long ago */
        gaps_us = 0;
        for (int64_t now_us = 5 * MS; now_us < 1000 * MS; now_us += 100 * MS) {
            gaps_us += pace_gap(&p, now_us);
            pace_held(&p, now_us + MS, MS);
        }
        ck_assert_int_le(gaps_us, 31 * MS);
    }
}
END_TEST

static void add(TCase *tc)
{
    tcase_add_test(tc, test_pace_first_foreign_write_waits_at_most_a_second);
    tcase_add_test(tc, test_pace_later_foreign_writes_wait_at_most_50_ms);
    tcase_add_test(tc, test_pace_costs_at_most_15_percent_when_nobody_else_writes);
    tcase_add_test(tc, test_pace_gap_holds_for_whoever_asks_while_it_lasts);
    tcase_add_test(tc, test_pace_leaves_no_gap_where_the_store_is_mostly_free);
    tcase_add_test(tc, test_pace_numbers_of_another_boot_cost_one_gap_at_most);
}

int main(void) { return ut_main("pace", add, 60); }
