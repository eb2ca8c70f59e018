// SPDX-License-Identifier: Apache-2.0
/* test_pg_away.c - a worker that is lost with its files, on PostgreSQL: what the database knows of
 * it is read once its beat is older than its lease, whoever reads it. */
#include <inttypes.h>
#include <libpq-fe.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include "lib/fx.h"

struct away {
    int64_t poison;
    bool native;
    int starts;
    char dir[320];
    void (*work)(struct fx *f, void *ctx); /* NULL: in effect mode */
};

static void kill_in_hand(struct fx *f, struct store *st, const struct job *job,
                         struct finding *found, bool *pinned)
{
    struct away *a = f->ctx;

    (void)st;
    (void)found;
    (void)pinned;
    if (job->id != a->poison) return;
    a->starts++;
    kill(getpid(), SIGKILL);
}

/* A worker of another host: its files lie in a directory that nobody else sees. */
static void work(struct fx *f, void *ctx)
{
    struct effect_report r = { .claimed = 1 };
    struct away *a = ctx;

    ck_assert_int_eq(setenv("PAWL_RUNTIME_DIR", a->dir, 1), 0);
    fx_open(f);
    fx_join(f);
    f->ctx = a;
    f->on_run = kill_in_hand;
    f->tasks[0].native = a->native;
    while (r.claimed > 0)
        fx_ok(fx_batch(f, &r), f);
    fx_ok(store_worker_leave(f->st, &f->e), f);
}

static struct away *begin(struct fx *f, int jobs)
{
    struct away *a = fx_shared(sizeof *a);

    fx_begin(f, 1);
    fx_task(f, "mail");
    snprintf(a->dir, sizeof a->dir, "%s/away", f->dir);
    a->native = true;
    for (int i = 0; i < jobs; i++)
        fx_put(f, "mail", "{}");
    return a;
}

/* true: it ended by itself. Its files are gone with it; a lease later another host looks. */
static bool lives(struct fx *f, struct away *a, struct reap_report *rep)
{
    ck_assert_int_eq(mkdir(a->dir, 0700), 0);
    fx_shut(f);
    const int status = fx_wait(fx_child_bare(f, a->work != NULL ? a->work : work, a));
    fx_remove(a->dir);
    fx_open(f);
    *rep = fx_reap(f, f->st);
    ck_assert_uint_eq(rep->workers, 0); /* its beat is young */
    fx_add(f, 31 * SEC);
    *rep = fx_reap(f, f->st);
    const struct reap_report again = fx_reap(f, f->st);
    ck_assert_uint_eq(again.workers + again.charged + again.suspects, 0);
    fx_check(f);
    ck_assert_int_eq(fx_num(f, "SELECT count(*) FROM pawl_x_worker"), 0);
    return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

START_TEST(postgres_poison_that_takes_its_host_away_is_buried_and_nobody_else_charged)
{
    struct reap_report rep;
    int missed = 0; /* a machine that is so slow that a mark could not be had in time */
    struct fx f;

    struct away *a = begin(&f, 5);
    a->poison = 3;
    for (int deaths = 0; !lives(&f, a, &rep); deaths++) {
        ck_assert_int_lt(deaths, 10);
        ck_assert_uint_eq(rep.workers, 1);
        ck_assert_uint_le(rep.charged, 1);
        missed += rep.charged + rep.suspects == 0;
        ck_assert_int_lt(missed, 4);
    }
    ck_assert_str_eq(fx_job(&f, 3).dead_class, "poison");
    ck_assert_int_eq(fx_job(&f, 3).j.lost, 3);
    ck_assert_int_le(a->starts, 6 + missed); /* at most one in company for each alone */
    for (int64_t id = 1; id <= 5; id++) {
        if (id == 3) continue;
        ck_assert_int_eq(fx_state(&f, id), PAWL_STATE_DONE);
        ck_assert_int_eq(fx_effects(&f, id), 1);
        ck_assert_int_eq(fx_job(&f, id).j.lost, 0);
    }
    fx_end(&f);
}
END_TEST

/* As above, in leased mode, with several at a time: an exec job, as the store sees it. */
static void work_leased(struct fx *f, void *ctx)
{
    struct away *a = ctx;
    struct job jobs[4];
    size_t n = 1;

    ck_assert_int_eq(setenv("PAWL_RUNTIME_DIR", a->dir, 1), 0);
    fx_open(f);
    fx_join(f);
    while (n > 0) {
        n = fx_claim(f, jobs, 4, true);
        for (size_t i = 0; i < n; i++) {
            if (jobs[i].id == a->poison) {
                a->starts++;
                kill(getpid(), SIGKILL);
            }
        }
        for (size_t i = 0; i < n; i++)
            ck_assert_int_eq(fx_settle(f, &jobs[i], OUT_DONE), SETTLE_OK);
    }
    fx_ok(store_worker_leave(f->st, &f->e), f);
}

START_TEST(postgres_leased_poison_that_takes_its_host_away_is_buried_and_nobody_else_charged)
{
    struct reap_report rep;
    struct fx f;

    struct away *a = begin(&f, 5);
    a->work = work_leased;
    a->poison = 3;
    for (int deaths = 0; !lives(&f, a, &rep); deaths++) {
        ck_assert_int_lt(deaths, 10);
        ck_assert_uint_eq(rep.workers, 1);
        ck_assert_uint_eq(rep.charged, deaths > 0); /* alone, from the second on */
    }
    ck_assert_str_eq(fx_job(&f, 3).dead_class, "poison");
    ck_assert_int_eq(a->starts, 4);
    for (int64_t id = 1; id <= 5; id++) {
        if (id == 3)
            fx_counters(&f, id, 4, 0, 3, 0, 0);
        else
            ck_assert_int_eq(fx_job(&f, id).j.lost + fx_job(&f, id).j.releases, 0);
    }
    fx_end(&f);
}
END_TEST

/* What cannot end its process is not written down: its batches cost nothing more. */
START_TEST(postgres_batch_of_plain_sql_is_not_marked)
{
    struct reap_report rep;
    struct fx f;

    struct away *a = begin(&f, 3);
    a->poison = 2;
    a->native = false;
    ck_assert(!lives(&f, a, &rep));
    ck_assert_uint_eq(rep.charged + rep.suspects, 0);
    for (int64_t id = 1; id <= 3; id++)
        fx_counters(&f, id, 0, 0, 0, 0, 0);
    fx_end(&f);
}
END_TEST

static void unmarked(struct fx *f)
{
    for (int i = 0; fx_num(f, "SELECT count(mark) FROM pawl_x_worker") != 0; i++) {
        ck_assert_int_lt(i, 1000);
        fx_sql(f, "SELECT pg_sleep(0.005)");
    }
}

/* What is rolled back for no job's fault is nobody's last word. */
START_TEST(postgres_mark_is_taken_back_with_its_batch)
{
    struct fx f;

    (void)begin(&f, 2);
    fx_join(&f);
    f.tasks[0].native = true;
    fx_arm("effect.commit.before", "error:0:1");
    fx_ok(fx_batch(&f, NULL), &f);
    fx_disarm();
    unmarked(&f);
    fx_drain(&f);
    fx_end(&f);
}
END_TEST

static void not_now(struct fx *f, struct store *st, const struct job *job, struct finding *found,
                    bool *pinned)
{
    (void)f;
    (void)st;
    (void)job;
    (void)pinned;
    *found = fx_found(OUT_TRANSIENT, "not now");
}

/* A run that is over, and whose verdict is not there yet, was not the end of its host. */
START_TEST(postgres_mark_is_taken_back_before_a_verdict)
{
    struct fx f;

    (void)begin(&f, 1);
    fx_join(&f);
    f.tasks[0].native = true;
    f.on_run = not_now;
    fx_arm("verdict.before", "error:0:1");
    ck_assert_int_ne(fx_batch(&f, NULL), PAWL_OK);
    fx_disarm();
    unmarked(&f);
    f.on_run = NULL;
    fx_drain(&f);
    fx_end(&f);
}
END_TEST

/* --- nothing depends on it --- */

static int64_t on(PGconn *c, const char *sql)
{
    PGresult *r = PQexec(c, sql);

    ck_assert_msg(PQresultStatus(r) != PGRES_FATAL_ERROR, "%s: %s", sql, PQerrorMessage(c));
    const int64_t n = PQntuples(r) > 0 ? strtoll(PQgetvalue(r, 0, 0), NULL, 10) : -1;
    PQclear(r);
    return n;
}

/* While conn holds on to something: three batches, of which none may wait for it. */
static void goes_on(struct fx *f, const char *hold, const char *let_go)
{
    fx_begin(f, 1);
    fx_task(f, "mail");
    fx_join(f);
    f->tasks[0].native = true;
    PGconn *c = PQconnectdb(f->url);
    on(c, hold);
    for (int i = 1; i <= 3; i++) {
        fx_put(f, "mail", "{}");
        fx_ok(fx_batch(f, NULL), f);
        ck_assert_int_eq(on(c, "SELECT count(*) FROM pawl.x_done"), i);
    }
    ck_assert_int_eq(on(c, "SELECT count(mark) FROM pawl.x_worker"), 0);
    on(c, let_go);
    PQfinish(c);
    fx_end(f);
}

START_TEST(postgres_batch_goes_on_where_the_server_takes_no_more_connections)
{
    struct fx f;

    goes_on(&f, "UPDATE pg_database SET datallowconn = false WHERE datname = current_database()",
            "UPDATE pg_database SET datallowconn = true WHERE datname = current_database()");
}
END_TEST

START_TEST(postgres_batch_goes_on_where_its_mark_has_to_wait)
{
    struct fx f;

    goes_on(&f, "BEGIN; SELECT id FROM pawl.x_worker FOR UPDATE", "ROLLBACK");
}
END_TEST

/* --- rows of workers that hold nothing --- */

START_TEST(postgres_rows_of_workers_that_do_not_beat_are_reaped_whoever_they_were)
{
    struct fx f;

    fx_begin(&f, 1);
    fx_task(&f, "mail");
    fx_join(&f);
    fx_sqlf(&f, "INSERT INTO pawl_x_worker (id, parent, host, pid, lease_us, joined_at_us,"
                " beat_at_us) SELECT id, parent, 'elsewhere', 1, 30000000, 1, %" PRId64
                " - age * 1000000 FROM (VALUES ('00000000000000a1', NULL, 31),"
                " ('00000000000000a2', '00000000000000a1', 31), ('00000000000000a3', NULL, 29))"
                " AS v (id, parent, age)", f.clock.wall_us);
    const struct reap_report rep = fx_reap(&f, f.st);
    ck_assert_uint_eq(rep.workers, 2);
    ck_assert_int_eq(fx_num(&f, "SELECT count(*) FROM pawl_x_worker"), 2);
    ck_assert_int_eq(fx_num(&f, "SELECT count(*) FROM pawl_x_worker WHERE id ="
                                " '00000000000000a3'"), 1);
    fx_end(&f);
}
END_TEST

static void add(TCase *tc)
{
    if (fx_kinds_n() < 2) return;
    tcase_add_test(tc, postgres_poison_that_takes_its_host_away_is_buried_and_nobody_else_charged);
    tcase_add_test(
        tc, postgres_leased_poison_that_takes_its_host_away_is_buried_and_nobody_else_charged);
    tcase_add_test(tc, postgres_batch_of_plain_sql_is_not_marked);
    tcase_add_test(tc, postgres_mark_is_taken_back_with_its_batch);
    tcase_add_test(tc, postgres_mark_is_taken_back_before_a_verdict);
    if (getenv("PAWL_TEST_PG_POOL") == NULL) /* a pooler's own connections end with it */
        tcase_add_test(tc, postgres_batch_goes_on_where_the_server_takes_no_more_connections);
    tcase_add_test(tc, postgres_batch_goes_on_where_its_mark_has_to_wait);
    tcase_add_test(tc, postgres_rows_of_workers_that_do_not_beat_are_reaped_whoever_they_were);
}

int main(void)
{
    return ut_main("postgres_away", add, 60);
}
