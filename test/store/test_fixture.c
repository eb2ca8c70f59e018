// SPDX-License-Identifier: Apache-2.0
/* test_fixture.c - a store that an earlier version wrote is opened, migrated and worked on: one
 * file per released migration in test/fixture, read as the SQL that makes it. */
#include <inttypes.h>
#include <sqlite3.h>
#include <string.h>
#include "base/os.h"
#include "lib/fx.h"

/* The dump in place of the fixture's own store. */
static void load(struct fx *f, const char *name)
{
    struct buf sql = {0};
    char path[700];
    sqlite3 *db = NULL;
    char *why = NULL;

    fx_shut(f);
    fx_remove(f->dir);
    ck_assert_ptr_nonnull(fx_mkdir(f));
    snprintf(path, sizeof path, "%s/fixture/%s", TEST_DIR, name);
    fx_ok(os_read_file(path, 16 << 20, &sql, &f->e), f);
    snprintf(path, sizeof path, "%s/store.db", f->dir);
    ck_assert_int_eq(sqlite3_open(path, &db), SQLITE_OK);
    ck_assert_msg(sqlite3_exec(db, buf_str(&sql), NULL, NULL, &why) == SQLITE_OK, "%s", why);
    sqlite3_close(db);
    buf_free(&sql);
}

static void is(struct fx *f, int64_t id, enum pawl_state state, const char *task)
{
    const struct fx_job x = fx_job(f, id);

    ck_assert_msg(x.j.state == state, "job %" PRId64 " is %s", id, pawl_state_name(x.j.state));
    ck_assert_str_eq(x.task, task);
}

/* What the store of migration 1 holds: see make.sh. */
static void as_it_was(struct fx *f)
{
    is(f, 3, PAWL_STATE_DONE, "apply");
    is(f, 4, PAWL_STATE_DEAD, "bad");
    is(f, 5, PAWL_STATE_DEAD, "bad");
    is(f, 6, PAWL_STATE_DROPPED, "bad");
    is(f, 7, PAWL_STATE_DEAD, "bad");
    is(f, 8, PAWL_STATE_DONE, "flaky");
    is(f, 9, PAWL_STATE_READY, "apply");
    is(f, 10, PAWL_STATE_CANCELLED, "apply");
    is(f, 11, PAWL_STATE_RUNNING, "slow");
    ck_assert_int_eq(fx_job(f, 5).j.replayed_as, 7);
    ck_assert_int_eq(fx_job(f, 7).j.replay_of, 5);
    ck_assert_str_eq(fx_job(f, 6).reason, "given up");
    ck_assert_str_eq(fx_job(f, 8).args, "{ \"spaces\" : \"kept\" }");
    ck_assert_str_eq(fx_job(f, 8).queue, "other");
    ck_assert_int_eq(fx_job(f, 8).j.priority, 7);
    ck_assert_ptr_nonnull(strstr(fx_job(f, 4).error, "CHECK"));
    ck_assert_int_eq(fx_num(f, "SELECT price FROM product WHERE sku = 'a'"), 1);
}

/* The policy that the store has, not ours: as a worker of this version would learn it. */
static void learn(struct fx *f, const char *name)
{
    struct lane_task *t = &f->tasks[f->lane.tasks_n++];
    const struct policy p = fx_policy();
    struct buf stored = {0};
    bool differs = false;
    char why[200];

    t->name = name;
    fx_ok(store_task_declare(f->st, name, &p, false, &t->id, &stored, &differs, &f->e), f);
    ck_assert_msg(policy_parse(&t->policy, buf_str(&stored), why, sizeof why), "%s", why);
    buf_free(&stored);
}

static int64_t put_version(struct fx *f, int64_t version, const char *args)
{
    struct pawl_request r = fx_req("apply", NULL, args);

    r.entity = "a";
    r.version = version;
    r.has_version = true;
    return fx_put_req(f, &r);
}

START_TEST(sqlite_store_of_migration_1_is_opened_and_worked_on)
{
    bool created = true;
    struct fx f;

    fx_begin(&f, 0);
    load(&f, "sqlite-0001.dump");
    f.clock.wall_us = INT64_C(4102531200) * SEC; /* 2100-01-02: job 9 is due */
    const struct store_opts o = { .url = f.url, .env = &f.clock.env };
    fx_ok(store_init(&o, &created, &f.e), &f);
    ck_assert(!created);
    fx_open(&f);
    fx_check(&f);
    as_it_was(&f);
    /* every key is still known, the pruned jobs' too */
    struct pawl_request r = fx_req("apply", "a2", "{\"sku\":\"a\",\"price\":2,\"version\":2}");
    r.source = "feed";
    ck_assert_int_eq(fx_dup(&f, &r).id, 2);
    r.args = "{\"sku\":\"a\",\"price\":3,\"version\":2}";
    fx_is(fx_put_rc(&f, &r), PAWL_KEYCLASH, &f);
    r = fx_req("bad", "b2", "{\"sku\":\"b\"}");
    ck_assert_int_eq(fx_dup(&f, &r).id, 7);
    /* the version guard remembers what was applied */
    learn(&f, "apply");
    const int64_t old = put_version(&f, 2, "{}"), other = put_version(&f, 3, "{}");
    const int64_t next = put_version(&f, 4, "{\"sku\":\"a\",\"version\":4}");
    /* the worker that died is missed, the rest is worked off */
    fx_sql(&f, "CREATE TABLE fx (job INTEGER NOT NULL, token INTEGER NOT NULL)");
    f.clock.boot_add_us += 60 * SEC;
    fx_reap(&f, f.st);
    f.clock.boot_add_us += 60 * SEC;
    fx_reap(&f, f.st);
    is(&f, 11, PAWL_STATE_READY, "slow");
    learn(&f, "slow");
    fx_join(&f);
    fx_drain(&f);
    ck_assert_str_eq(fx_job(&f, old).outcome, "stale");
    ck_assert_str_eq(fx_job(&f, other).dead_class, "conflict");
    ck_assert_str_eq(fx_job(&f, next).outcome, "done");
    is(&f, 9, PAWL_STATE_DONE, "apply");
    is(&f, 11, PAWL_STATE_DONE, "slow");
    fx_sql(&f, "INSERT INTO pawl_enqueue (task, args) VALUES ('apply', '{}')");
    fx_end(&f);
}
END_TEST

static void add(TCase *tc)
{
    tcase_add_test(tc, sqlite_store_of_migration_1_is_opened_and_worked_on);
}

int main(void)
{
    return ut_main("fixture", add, 30);
}
