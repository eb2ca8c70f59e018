// SPDX-License-Identifier: Apache-2.0
/* test_init.c - a store is made, migrated and opened: once, by whom ever, and by nobody too old. */
#include <inttypes.h>
#include <string.h>
#include <unistd.h>
#include "core/lifecycle.h"
#include "lib/fx.h"

static struct store_opts opts(struct fx *f)
{
    return (struct store_opts){ .url = f->url, .env = &f->clock.env, .accept_wal_risk = true };
}

/* A place of the current kind with no store in it yet. */
static void empty_place(struct fx *f, int kind)
{
    fx_begin(f, kind);
    fx_shut(f);
    fx_remove(f->dir);
    ck_assert_ptr_nonnull(fx_mkdir(f));
    if (f->kind->remove != NULL) {
        f->kind->remove(f);
        f->kind->place(f, false);
    }
}

START_TEST(each_store_init_twice_changes_nothing)
{
    const struct store_opts *o;
    bool created = true;
    struct fx f;

    fx_begin(&f, _i);
    o = &(struct store_opts){ .url = f.url, .env = &f.clock.env };
    fx_task(&f, "mail");
    const int64_t id = fx_put(&f, "mail", "{}");
    const char *const things = f.kind == &fx_sqlite ? "SELECT count(*) FROM sqlite_master"
        : "SELECT count(*) FROM pg_class WHERE relnamespace IN ('pawl'::regnamespace, 'public'::"
          "regnamespace)";
    const int64_t schema = fx_num(&f, things);
    fx_ok(store_init(o, &created, &f.e), &f);
    ck_assert(!created);
    ck_assert_int_eq(fx_num(&f, things), schema);
    ck_assert_int_eq(fx_state(&f, id), PAWL_STATE_READY);
    fx_end(&f);
}
END_TEST

struct crowd { _Atomic int made, ready; };

static void init_it(struct fx *f, void *ctx)
{
    const struct store_opts o = opts(f);
    struct crowd *c = ctx;
    bool created = false;

    c->ready++;
    while (c->ready < 20) /* all at once */
        continue;
    fx_ok(store_init(&o, &created, &f->e), f);
    c->made += created;
    fx_open(f);
    fx_put(f, "mail", "{}");
}

START_TEST(each_store_twenty_installers_make_one_store)
{
    enum { N = 20, ROUNDS = 6 };
    pid_t pids[N];
    struct fx f;

    for (int round = 0; round < ROUNDS; round++) {
        struct crowd *c = fx_shared(sizeof *c);

        empty_place(&f, _i);
        for (int i = 0; i < N; i++)
            pids[i] = fx_child_bare(&f, init_it, c);
        for (int i = 0; i < N; i++)
            fx_wait_ok(pids[i]);
        ck_assert_int_eq(c->made, 1);
        fx_open(&f);
        ck_assert_int_eq(fx_stat(&f, "ready"), N);
        ck_assert_int_eq(fx_num(&f, "SELECT count(*) FROM pawl_x_migration"), 1);
        fx_end(&f);
    }
}
END_TEST

START_TEST(each_store_init_that_fails_midway_leaves_no_store)
{
    static const char *const points[] = { "init.begin", "init.middle" };
    struct store_opts o;
    bool created = false;
    struct fx f;

    empty_place(&f, _i);
    o = opts(&f);
    for (size_t i = 0; i < UT_N(points); i++) {
        fx_arm(points[i], "error:0:1");
        fx_is(store_init(&o, &created, &f.e), PAWL_IO, &f);
        fx_disarm();
        fx_is(store_open(&o, &f.st, &f.e), PAWL_NOSTORE, &f);
    }
    fx_ok(store_init(&o, &created, &f.e), &f);
    ck_assert(created);
    fx_end(&f);
}
END_TEST

START_TEST(each_store_nothing_there_is_told_and_nothing_is_made)
{
    struct store_opts o;
    struct fx f;

    empty_place(&f, _i);
    o = opts(&f);
    fx_is(store_open(&o, &f.st, &f.e), PAWL_NOSTORE, &f);
    ck_assert_ptr_nonnull(strstr(f.e.msg, "pawl init"));
    ck_assert_ptr_null(f.st);
    fx_is(store_open(&o, &f.st, &f.e), PAWL_NOSTORE, &f); /* not even by looking */
    bool created = false;
    fx_ok(store_init(&o, &created, &f.e), &f);
    ck_assert(created);
    fx_end(&f);
}
END_TEST

START_TEST(each_store_newer_breaking_store_is_refused_and_left_alone)
{
    struct store_opts o;
    struct store *st = NULL;
    char text[4096];
    struct fx f;

    fx_begin(&f, _i);
    o = opts(&f);
    fx_sql(&f, "INSERT INTO pawl_x_migration SELECT 9000, '9000_future.sql', 1 = 1, 1, 'pawl 9'");
    fx_sql(&f, "DROP VIEW pawl_queues"); /* if it were touched, the view would be back */
    fx_is(store_open(&o, &st, &f.e), PAWL_NEWER, &f);
    ck_assert_ptr_nonnull(strstr(f.e.msg, "9000"));
    fx_is(store_init(&o, NULL, &f.e), PAWL_NEWER, &f);
    f.kind->made_by(&f, "pawl_queues", text, sizeof text);
    ck_assert_str_eq(text, "");
    fx_sql(&f, "DELETE FROM pawl_x_migration WHERE version = 9000");
    fx_end(&f);
}
END_TEST

START_TEST(each_store_newer_compatible_store_is_used)
{
    struct store_opts o;
    struct store *st = NULL;
    struct fx f;

    fx_begin(&f, _i);
    o = opts(&f);
    fx_sql(&f, "INSERT INTO pawl_x_migration SELECT 9000, '9000_future.sql', 1 = 0, 1, 'pawl 9'");
    fx_ok(store_open(&o, &st, &f.e), &f);
    store_close(&st);
    fx_end(&f);
}
END_TEST

START_TEST(each_store_views_are_made_anew_by_every_init)
{
    struct store_opts o;
    struct fx f;

    fx_begin(&f, _i);
    o = opts(&f);
    fx_put(&f, "mail", "{}");
    fx_sql_of(&f, "DROP VIEW pawl_jobs; CREATE VIEW pawl_jobs AS SELECT 'old' AS id;"
                  " DROP TRIGGER pawl_enqueue_insert; DROP VIEW pawl_attempts",
              "DROP VIEW pawl_jobs CASCADE; CREATE VIEW pawl_jobs AS SELECT 'old' AS id;"
              " DROP VIEW pawl_attempts");
    fx_ok(store_init(&o, NULL, &f.e), &f);
    ck_assert_int_eq(fx_num(&f, "SELECT id FROM pawl_jobs"), 1);
    fx_sql(&f, "INSERT INTO pawl_enqueue (task, args) VALUES ('mail', '{}')");
    ck_assert_int_eq(fx_stat(&f, "ready"), 2);
    ck_assert_int_eq(fx_num(&f, "SELECT count(*) FROM pawl_attempts"), 0);
    fx_end(&f);
}
END_TEST

/* A user's tables in the same database are none of our business. */
START_TEST(each_store_users_tables_survive_init)
{
    struct store_opts o;
    struct fx f;

    fx_begin(&f, _i);
    o = opts(&f);
    fx_sql(&f, "CREATE TABLE product (sku TEXT PRIMARY KEY, price INTEGER);"
               " INSERT INTO product VALUES ('a', 1)");
    fx_ok(store_init(&o, NULL, &f.e), &f);
    ck_assert_int_eq(fx_num(&f, "SELECT price FROM product"), 1);
    fx_end(&f);
}
END_TEST

/* --- the words of the schema are the words of the code --- */

/* The strings inside CHECK (<column> IN (...)) of a table, counted and each known to `name`. */
static int check_words(struct fx *f, const char *table, const char *column,
                       bool (*known)(const char *word))
{
    char sql[4096], find[64], *at, *end;
    int n = 0;

    f->kind->made_by(f, table, sql, sizeof sql);
    snprintf(find, sizeof find, "CHECK (%s IN (", column);
    at = strstr(sql, find);
    ck_assert_msg(at != NULL, "%s has no CHECK on %s", table, column);
    at += strlen(find);
    ck_assert_ptr_nonnull(end = strchr(at, ')'));
    *end = '\0';
    while ((at = strchr(at, '\'')) != NULL) {
        char *stop = strchr(at + 1, '\'');
        ck_assert_ptr_nonnull(stop);
        *stop = '\0';
        ck_assert_msg(known(at + 1), "%s.%s: \"%s\" is no word of the code", table, column, at + 1);
        at = stop + 1;
        n++;
    }
    return n;
}

static bool is_class(const char *w)
{
    enum dead_class c;
    return dead_class_parse(w, &c);
}
/* An attempt is written for every end of a run but success. */
static bool is_attempt(const char *w)
{
    enum outcome o;
    return outcome_parse(w, &o) && o != OUT_DONE && o != OUT_STALE;
}
static bool is_done(const char *w)
{
    enum outcome o;
    return outcome_parse(w, &o) && (o == OUT_DONE || o == OUT_STALE);
}
static bool is_dropped(const char *w)
{
    return strcmp(w, "failed") == 0 || strcmp(w, "lost") == 0 || strcmp(w, "discarded") == 0;
}

START_TEST(each_store_schema_checks_are_the_enums_of_the_code)
{
    struct fx f;

    fx_begin(&f, _i);
    ck_assert_int_eq(check_words(&f, "pawl_x_dead", "class", is_class), DEAD_CLASS_N);
    ck_assert_int_eq(check_words(&f, "pawl_x_attempt", "outcome", is_attempt), OUT_N - 2);
    ck_assert_int_eq(check_words(&f, "pawl_x_done", "outcome", is_done), 2);
    ck_assert_int_eq(check_words(&f, "pawl_x_dropped", "outcome", is_dropped), 3);
    fx_end(&f);
}
END_TEST

/* Each state that a job can be in has its table, and the view gives it the name of the code. */
START_TEST(each_store_view_names_the_states_of_the_lifecycle)
{
    char sql[8192], table[4096], word[32];
    struct fx f;

    fx_begin(&f, _i);
    f.kind->made_by(&f, "pawl_jobs", sql, sizeof sql);
    for (int s = 0; s < PAWL_STATE_PRUNED; s++) {
        snprintf(word, sizeof word, "'%s'", pawl_state_name((enum pawl_state)s));
        ck_assert_msg(strstr(sql, word) != NULL, "the view does not know %s", word);
        snprintf(word, sizeof word, "pawl_x_%s", pawl_state_name((enum pawl_state)s));
        f.kind->made_by(&f, word, table, sizeof table);
        ck_assert_str_ne(table, "");
    }
    fx_end(&f);
}
END_TEST

START_TEST(each_store_schema_refuses_what_the_code_must_never_write)
{
    static const char *const wrong[] = {
        "INSERT INTO pawl_x_ready (task_id, queue_id, rank, run_at_us, id, runs)"
            " VALUES (1, 1, 0, 1, 1, -1)",
        "INSERT INTO pawl_x_ready (task_id, queue_id, rank, run_at_us, id, run_at_us)"
            " VALUES (1, 1, 0, NULL, 1, NULL)",
        "INSERT INTO pawl_x_ready (task_id, queue_id, rank, run_at_us, id)"
            " VALUES (1, 1, 0, 'x', 1)",
        "INSERT INTO pawl_x_running SELECT 1, x'00', 'w', 1, 1, 1, 1, 0, 1, 0, 0, 0, 0, 0, 0",
        "INSERT INTO pawl_x_dead (job_id, class, reason, ended_at_us, runs, failures, lost,"
            " releases, snoozes) VALUES (1, 'tired', '', 1, 0, 0, 0, 0, 0)",
        "INSERT INTO pawl_x_done (job_id, outcome, lease_id, worker, started_at_us, ended_at_us,"
            " runs, failures, lost, releases, snoozes)"
            " VALUES (1, 'ok', x'', '', 1, 1, 0, 0, 0, 0, 0)",
        "INSERT INTO pawl_x_job (task_id, queue_id, args, priority, run_at_us, created_at_us)"
            " VALUES (1, 1, '{}', 101, 1, 1)",
        "INSERT INTO pawl_x_job (task_id, queue_id, args, priority, run_at_us, created_at_us)"
            " VALUES (1, 1, NULL, 0, 1, 1)",
    };
    struct fx f;

    fx_begin(&f, _i);
    for (size_t i = 0; i < UT_N(wrong); i++)
        ck_assert_msg(fx_sql_fails(&f, wrong[i], ""), "taken: %s", wrong[i]);
    fx_end(&f);
}
END_TEST

/* --- on_connect, waking --- */

START_TEST(each_store_on_connect_statements_run_and_cannot_weaken_durability)
{
    const bool pooled = getenv("PAWL_TEST_PG_POOL") != NULL; /* no session of one's own there */
    const char *const broken[] = { "SELEC 1" };
    struct store_opts o;
    struct store *st = NULL;
    struct fx f;

    fx_begin(&f, _i);
    o = opts(&f);
    o.on_connect_n = 1;
    o.on_connect = f.kind == &fx_postgres && pooled
        ? (const char *const[]){ "SET search_path = shop; " }
        : (const char *const[]){ "CREATE TEMP TABLE mine (a INTEGER)" };
    fx_ok(store_open(&o, &st, &f.e), &f);
    store_close(&st);
    o.on_connect = f.kind == &fx_sqlite ? (const char *const[]){ "PRAGMA synchronous = OFF" }
                                        : (const char *const[]){ "SET synchronous_commit = off" };
    ck_assert_int_ne(store_open(&o, &st, &f.e), PAWL_OK);
    o.on_connect = broken;
    ck_assert_int_ne(store_open(&o, &st, &f.e), PAWL_OK);
    ck_assert_ptr_nonnull(strstr(f.e.msg, "SELEC 1"));
    fx_end(&f);
}
END_TEST

static void put_one(struct fx *f, void *ctx)
{
    (void)ctx;
    fx_put(f, "mail", "{}");
}

START_TEST(each_store_commit_of_another_process_wakes_a_waiter)
{
    struct fx f;

    fx_begin(&f, _i);
    fx_shut(&f);
    int go[2];
    ck_assert_int_eq(pipe(go), 0);
    const pid_t pid = fx_child_after(&f, put_one, NULL, go[0]);
    fx_open(&f);
    const int fd = store_wake_fd(f.st);
    ck_assert_int_ge(fd, 0);
    store_wake_clear(f.st);
    ck_assert(!fx_readable(fd, 0));
    (void)store_changed(f.st);
    ck_assert(!store_changed(f.st));
    ck_assert_int_eq(write(go[1], "g", 1), 1);
    ck_assert(fx_readable(fd, 10000));
    store_wake_clear(f.st);
    fx_wait_ok(pid);
    ck_assert(store_changed(f.st));
    ck_assert(!store_changed(f.st));
    /* a foreign program does not ring, but it is seen by looking: at once, or within a second */
    fx_sql(&f, "INSERT INTO pawl_enqueue (task, args) VALUES ('mail', '{}')");
    const int64_t until = env_real()->mono_us(NULL) + 10 * SEC;
    bool seen = store_changed(f.st);
    while (!seen && !f.kind->one_writer && env_real()->mono_us(NULL) < until) {
        (void)fx_readable(fd, 50);
        seen = store_changed(f.st);
    }
    ck_assert(seen);
    close(go[0]);
    close(go[1]);
    fx_end(&f);
}
END_TEST

static void add(TCase *tc)
{
    FX_ADD(tc, each_store_init_twice_changes_nothing);
    FX_ADD(tc, each_store_twenty_installers_make_one_store);
    FX_ADD(tc, each_store_init_that_fails_midway_leaves_no_store);
    FX_ADD(tc, each_store_nothing_there_is_told_and_nothing_is_made);
    FX_ADD(tc, each_store_newer_breaking_store_is_refused_and_left_alone);
    FX_ADD(tc, each_store_newer_compatible_store_is_used);
    FX_ADD(tc, each_store_views_are_made_anew_by_every_init);
    FX_ADD(tc, each_store_users_tables_survive_init);
    FX_ADD(tc, each_store_schema_checks_are_the_enums_of_the_code);
    FX_ADD(tc, each_store_view_names_the_states_of_the_lifecycle);
    FX_ADD(tc, each_store_schema_refuses_what_the_code_must_never_write);
    FX_ADD(tc, each_store_on_connect_statements_run_and_cannot_weaken_durability);
    FX_ADD(tc, each_store_commit_of_another_process_wakes_a_waiter);
}

int main(void)
{
    return ut_main("init", add, 40);
}
