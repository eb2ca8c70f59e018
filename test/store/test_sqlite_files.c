// SPDX-License-Identifier: Apache-2.0
/* test_sqlite_files.c - the files beside the database: worker files that vanish or come from
 * another boot, the side lock's bound, rows that somebody damaged, the log's size. */
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include "lib/fx.h"
#include "store/sqlite/sl.h"

static void begin(struct fx *f)
{
    fx_begin(f, 0);
    fx_task(f, "mail");
}

static void worker_path(struct fx *f, const char *id, char *out, size_t n)
{
    snprintf(out, n, "%s/store.db-pawl/w-%s", f->dir, id);
}

/* A worker of this process, behind its own handle, with one job in hand. */
static struct store *holder(struct fx *f, char id[24])
{
    struct store *st = fx_second(f);
    struct job job;
    size_t n = 0;

    fx_ok(store_worker_join(st, id, NULL, &f->e), f);
    fx_put(f, "mail", "{}");
    fx_ok(store_turn(st, NULL, 0, &f->lane, 1, true, &f->arena, &job, &n, &f->info, &f->e), f);
    ck_assert_uint_eq(n, 1);
    return st;
}

START_TEST(sqlite_running_row_without_a_worker_file_is_taken_back)
{
    char id[24], path[400];
    struct fx f;

    begin(&f);
    struct store *st = holder(&f, id);
    worker_path(&f, id, path, sizeof path);
    ck_assert_int_eq(unlink(path), 0);
    ck_assert(!store_worker_beat(st)); /* its owner is told */
    /* No death was seen: it gets a lease of time, and the job is not charged. */
    ck_assert_uint_eq(fx_reap(&f, f.st).workers, 0);
    f.clock.boot_add_us += 31 * SEC;
    const struct reap_report r = fx_reap(&f, f.st);
    ck_assert_uint_eq(r.workers, 1);
    ck_assert_uint_eq(r.charged, 0);
    ck_assert_uint_eq(r.suspects, 0);
    fx_counters(&f, 1, 1, 0, 0, 1, 0);
    ck_assert_uint_eq(fx_reap(&f, f.st).workers, 0);
    store_close(&st);
    fx_end(&f);
}
END_TEST

/* After a restart of the machine every lease is void, whatever the file's beat says, and its blame
 * is not read: the page may be torn. */
START_TEST(sqlite_worker_of_another_boot_is_gone_and_its_blame_is_not_read)
{
    char id[24], path[400];
    struct side_worker *w;
    struct fx f;

    begin(&f);
    struct store *st = holder(&f, id);
    const int64_t blamed = fx_put(&f, "mail", "{}");
    store_close(&st); /* the lock is free, the file stays */
    worker_path(&f, id, path, sizeof path);
    const int fd = open(path, O_RDWR);
    w = mmap(NULL, sizeof *w, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    ck_assert(w != MAP_FAILED);
    snprintf(w->boot_id, sizeof w->boot_id, "another-boot");
    w->blame.n = 1;
    w->blame.jobs[0].id = blamed;
    w->blame.phase = BLAME_HAND;
    munmap(w, sizeof *w);
    close(fd);
    const struct reap_report r = fx_reap(&f, f.st);
    ck_assert_uint_eq(r.workers, 1);
    ck_assert_uint_eq(r.charged, 1);
    fx_counters(&f, blamed, 0, 0, 0, 0, 0);
    ck_assert_int_ne(access(path, F_OK), 0); /* put away */
    fx_end(&f);
}
END_TEST

START_TEST(sqlite_worker_files_that_are_torn_or_strange_do_no_harm)
{
    char path[400], id[24];
    struct fx f;

    begin(&f);
    struct store *st = holder(&f, id);
    static const char *const names[] = { "w-0123456789abcdef", "w-x", "w-../../etc", "new-1" };
    for (size_t i = 0; i < UT_N(names); i++) {
        snprintf(path, sizeof path, "%s/store.db-pawl/%s", f.dir, i == 2 ? "w-zzzzzzzzzzzzzzzz"
                                                                         : names[i]);
        const int fd = open(path, O_RDWR | O_CREAT, 0600);
        ck_assert_int_ge(fd, 0);
        if (i == 1) ck_assert_int_eq(write(fd, "garbage", 7), 7);
        close(fd);
    }
    fx_reap(&f, f.st);
    ck_assert_int_eq(fx_state(&f, 1), PAWL_STATE_RUNNING); /* the living one is left alone */
    store_close(&st);
    ck_assert_uint_eq(fx_reap(&f, f.st).charged, 1);
    fx_end(&f);
}
END_TEST

START_TEST(sqlite_side_lock_is_given_up_after_its_bound)
{
    char path[400];
    struct side s;
    struct fx f;

    begin(&f);
    snprintf(path, sizeof path, "%s/store.db", f.dir);
    side_init(&s);
    fx_ok(side_open(&s, path, &f.e), &f);
    snprintf(path, sizeof path, "%s/store.db-pawl/lock", f.dir);
    const int fd = open(path, O_RDWR);
    ck_assert_int_eq(flock(fd, LOCK_EX), 0); /* a stopped process keeps it */
    const int64_t start = env_real()->mono_us(NULL);
    fx_is(side_lock(&s, 100000, &f.e), PAWL_BUSY, &f);
    const int64_t took = env_real()->mono_us(NULL) - start;
    ck_assert_int_ge(took, 100000);
    ck_assert_int_lt(took, 5 * SEC);
    ck_assert_int_eq(fx_stat(&f, "ready"), 0); /* reading goes on meanwhile */
    close(fd);
    fx_ok(side_lock(&s, 100000, &f.e), &f);
    side_unlock(&s);
    side_close(&s);
    fx_put(&f, "mail", "{}");
    fx_end(&f);
}
END_TEST

/* The whole side directory is thrown away under a running store: it works on, and a new opener
 * makes it again. */
START_TEST(sqlite_lost_side_directory_is_made_again)
{
    char path[400];
    struct fx f;

    begin(&f);
    fx_put(&f, "mail", "{}");
    snprintf(path, sizeof path, "%s/store.db-pawl", f.dir);
    fx_remove(path);
    fx_put(&f, "mail", "{}");
    fx_shut(&f);
    fx_open(&f);
    fx_join(&f);
    fx_drain(&f);
    ck_assert_int_eq(fx_stat(&f, "done"), 2);
    fx_end(&f);
}
END_TEST

/* Case 49: one damaged row at the head must not stop those behind it, and check says so. */
START_TEST(sqlite_damaged_row_at_the_head_does_not_block_the_others)
{
    static const struct { const char *sql; bool found; } ways[] = {
        { "UPDATE pawl_x_job SET args = 'not json' WHERE id = 1", false },
        { "UPDATE pawl_x_job SET task_id = 77 WHERE id = 1", true },
        { "UPDATE pawl_x_job SET queue_id = 77 WHERE id = 1", true },
        { "DELETE FROM pawl_x_job WHERE id = 1", true },
        { "UPDATE pawl_x_ready SET runs = -1 WHERE id = 1", true },
        { "UPDATE pawl_x_ready SET failures = -9223372036854775808 WHERE id = 1", true },
        { "UPDATE pawl_x_ready SET lost = 9223372036854775807 WHERE id = 1", true },
        { "UPDATE pawl_x_ready SET run_at_us = -5, moved = 1 WHERE id = 1", false },
        { "UPDATE pawl_x_ready SET rank = -5000, moved = 1 WHERE id = 1", false },
        { "UPDATE pawl_x_ready SET suspect = 7 WHERE id = 1", false },
    };
    struct fx f;

    printf("# %s\n", ways[_i].sql);
    begin(&f);
    fx_join(&f);
    for (int i = 0; i < 30; i++)
        fx_put(&f, "mail", "{}");
    fx_sqlf(&f, "PRAGMA ignore_check_constraints = ON; %s", ways[_i].sql);
    if (ways[_i].found) ck_assert_int_gt(fx_findings(&f, NULL), 0);
    fx_drain(&f);
    for (int64_t id = 2; id <= 30; id++)
        ck_assert_int_eq(fx_effects(&f, id), 1);
    ck_assert_int_eq(fx_num(&f, "SELECT count(*) FROM pawl_x_done WHERE job_id > 1"), 29);
    fx_shut(&f); /* what was damaged stays so: no invariants at this end */
    arena_free(&f.arena);
    fx_remove(f.dir);
}
END_TEST

/* The same in leased mode, and for the reaper that finds it in a dead worker's hand. */
START_TEST(sqlite_damaged_row_in_a_dead_workers_hand_does_not_end_the_reaper)
{
    static const char *const ways[] = {
        "UPDATE pawl_x_running SET runs = -1", "UPDATE pawl_x_running SET lost = -7",
        "UPDATE pawl_x_running SET failures = 9223372036854775807", "DELETE FROM pawl_x_job",
        "UPDATE pawl_x_job SET task_id = 77", "UPDATE pawl_x_task SET policy = 'nonsense'",
        "UPDATE pawl_x_running SET task_id = 77, queue_id = 77",
    };
    struct reap_report r;
    char id[24];
    struct fx f;

    printf("# %s\n", ways[_i]);
    begin(&f);
    struct store *st = holder(&f, id);
    store_close(&st);
    fx_sqlf(&f, "PRAGMA ignore_check_constraints = ON; %s", ways[_i]);
    /* told or mended, not died */
    const enum pawl_rc rc = engine_reap(f.st, &f.clock.env, &r, &f.e);
    ck_assert_msg(rc == PAWL_OK || f.e.msg[0] != '\0', "no word about it");
    fx_put(&f, "mail", "{}"); /* and the store is usable */
    fx_shut(&f);
    arena_free(&f.arena);
    fx_remove(f.dir);
}
END_TEST

/* One unreadable worker must not keep the reaper from the others, nor end whoever reaps. */
START_TEST(sqlite_damage_in_one_dead_worker_does_not_protect_the_others)
{
    static const char *const ways[] = {
        "DELETE FROM pawl_x_job WHERE id = %d",
        "UPDATE pawl_x_running SET task_id = (SELECT id FROM pawl_x_task WHERE name = 'odd')"
            " WHERE job_id = %d",
    };
    char a[24], b[24];
    struct reap_report r;
    struct fx f;

    begin(&f);
    fx_sql(&f, "INSERT INTO pawl_x_task (name, policy, created_at_us) VALUES ('odd', 'odd', 1)");
    struct store *st = holder(&f, a), *st2 = holder(&f, b);
    const int broken = _i < 2 ? 1 : 2, whole = 3 - broken;
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
    fx_sqlf(&f, ways[_i % 2], broken);
#pragma GCC diagnostic pop
    store_close(&st);
    store_close(&st2);
    fx_ok(engine_reap(f.st, &f.clock.env, &r, &f.e), &f);
    ck_assert_int_eq(fx_state(&f, whole), PAWL_STATE_READY);
    fx_shut(&f);
    arena_free(&f.arena);
    fx_remove(f.dir);
}
END_TEST

START_TEST(sqlite_log_stays_small_while_pawl_writes)
{
    char path[400];
    struct stat sb;
    off_t most = 0;
    struct fx f;

    begin(&f);
    fx_join(&f);
    snprintf(path, sizeof path, "%s/store.db-wal", f.dir);
    for (int i = 0; i < 1500; i++) {
        fx_put(&f, "mail", "{}");
        if (i % 10 == 0) fx_ok(fx_batch(&f, NULL), &f);
        ck_assert_int_eq(stat(path, &sb), 0);
        if (sb.st_size > most) most = sb.st_size;
    }
    ck_assert_int_gt(most, 0);
    ck_assert_msg(most <= 1000 * (4096 + 24) + 32, "the log grew to %lld bytes", (long long)most);
    fx_end(&f);
}
END_TEST

START_TEST(sqlite_store_with_wrong_files_is_refused_in_words)
{
    static const struct { const char *sql; enum pawl_rc want; } ways[] = {
        { NULL, PAWL_NOTOURS },              /* not a database at all */
        { "CREATE TABLE x (a)", PAWL_NOSTORE } /* somebody else's database */
    };
    struct store *st = NULL;
    sqlite3 *db = NULL;
    char path[400];
    struct fx f;

    begin(&f);
    for (size_t i = 0; i < UT_N(ways); i++) {
        snprintf(path, sizeof path, "%s/other%zu.db", f.dir, i);
        if (ways[i].sql == NULL) {
            const int fd = open(path, O_WRONLY | O_CREAT, 0600);
            for (int k = 0; k < 100; k++)
                ck_assert_int_eq(write(fd, "this is not a database, it is a letter\n", 39), 39);
            close(fd);
        } else {
            ck_assert_int_eq(sqlite3_open(path, &db), SQLITE_OK);
            ck_assert_int_eq(sqlite3_exec(db, ways[i].sql, NULL, NULL, NULL), SQLITE_OK);
            sqlite3_close(db);
        }
        const struct store_opts o = { .url = path };
        fx_is(store_open(&o, &st, &f.e), ways[i].want, &f);
        ck_assert_ptr_null(st);
    }
    fx_end(&f);
}
END_TEST

static void add(TCase *tc)
{
    tcase_add_test(tc, sqlite_running_row_without_a_worker_file_is_taken_back);
    tcase_add_test(tc, sqlite_worker_of_another_boot_is_gone_and_its_blame_is_not_read);
    tcase_add_test(tc, sqlite_worker_files_that_are_torn_or_strange_do_no_harm);
    tcase_add_test(tc, sqlite_side_lock_is_given_up_after_its_bound);
    tcase_add_test(tc, sqlite_lost_side_directory_is_made_again);
    tcase_add_loop_test(tc, sqlite_damaged_row_at_the_head_does_not_block_the_others, 0, 10);
    tcase_add_loop_test(tc, sqlite_damaged_row_in_a_dead_workers_hand_does_not_end_the_reaper, 0,
                        7);
    tcase_add_loop_test(tc, sqlite_damage_in_one_dead_worker_does_not_protect_the_others, 0, 4);
    tcase_add_test(tc, sqlite_log_stays_small_while_pawl_writes);
    tcase_add_test(tc, sqlite_store_with_wrong_files_is_refused_in_words);
}

int main(void)
{
    return ut_main("sqlite_files", add, 40);
}
