// SPDX-License-Identifier: Apache-2.0
/* test_pg.c - guards that PostgreSQL alone needs: two transactions that meet, and statements that
 * are refused or told by their first error. */
#include <string.h>
#include "handler/handler.h"
#include "lib/fx.h"
#include "pawl.h"

/* Who stores the second new key of its call waits, at most 0.5 s, until another one is as far. */
static const char *const meet =
    "CREATE SEQUENCE keys;"
    " CREATE FUNCTION meet() RETURNS trigger LANGUAGE plpgsql AS $$"
    " DECLARE n int := coalesce(nullif(current_setting('meet.n', true), ''), '0')::int + 1; BEGIN"
    " PERFORM nextval('keys'), set_config('meet.n', n::text, true); FOR i IN 1 .. 25 LOOP"
    " EXIT WHEN n <> 2 OR (SELECT last_value FROM keys) >= 4; PERFORM pg_sleep(0.02); END LOOP;"
    " RETURN NEW; END $$;"
    " CREATE TRIGGER meet BEFORE INSERT ON pawl.x_key FOR EACH ROW EXECUTE FUNCTION meet()";

struct call { const char *keys[4]; size_t n; };

static void put_keys(struct fx *f, void *ctx)
{
    const struct call *c = ctx;
    struct pawl_request r[4];
    struct pawl_enqueued out[4];
    size_t bad = 0;

    for (size_t i = 0; i < c->n; i++)
        r[i] = fx_req("t", c->keys[i], "{}");
    fx_ok(store_enqueue(f->st, r, c->n, out, &bad, &f->e), f);
    for (size_t i = 0; i < c->n; i++)
        free(out[i].result);
}

/* Two calls at once that bring the same keys in opposite orders, and perhaps one that is known.
 * Returns how many deadlocks the server had to end. */
static int64_t two_calls(struct fx *f, const struct call *a, const struct call *b,
                         bool one_is_known)
{
    struct call one = *a, two = *b;

    fx_begin(f, 1);
    fx_task(f, "t");
    if (one_is_known)
        put_keys(f, &(struct call){ { a->keys[0] }, 1 });
    fx_sql(f, meet);
    fx_shut(f);
    const pid_t p = fx_child(f, put_keys, &one), q = fx_child(f, put_keys, &two);
    fx_wait_ok(p);
    fx_wait_ok(q);
    fx_open(f);
    ck_assert_int_eq(fx_num(f, "SELECT count(*) FROM pawl_jobs"), (int64_t)a->n);
    return fx_num(f, "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()");
}

/* One by one, as where a key is known already, they lock each other out: the server undoes one of
 * them, and it is tried again. */
START_TEST(postgres_calls_with_the_same_keys_in_opposite_orders_are_both_stored)
{
    const struct call a = { { "known", "a", "b" }, 3 }, b = { { "known", "b", "a" }, 3 };
    struct fx f;

    ck_assert_int_gt(two_calls(&f, &a, &b, true), 0); /* they did meet */
    fx_end(&f);
}
END_TEST

/* New ones are brought in one order, so that one call only waits for the other; then it stores its
 * requests one by one. */
START_TEST(postgres_new_keys_are_brought_in_one_order)
{
    const struct call a = { { "a", "b", "c", "d" }, 4 }, b = { { "d", "c", "b", "a" }, 4 };
    struct fx f;

    ck_assert_int_eq(two_calls(&f, &a, &b, false), 0);
    fx_end(&f);
}
END_TEST

/* Outside of a job's transaction nothing would be kept: it must be told, not done in vain. */
START_TEST(postgres_statement_outside_of_a_transaction_can_only_read)
{
    struct store_stmt *s = NULL;
    struct fx f;

    fx_begin(&f, 1);
    fx_ok(store_stmt_prepare(f.st, "INSERT INTO fx VALUES (1, 2) RETURNING job", &s, &f.e), &f);
    fx_is(store_stmt_query(f.st, s, NULL, 0, NULL, NULL, &f.e), PAWL_CONFIG, &f);
    ck_assert_ptr_nonnull(strstr(f.e.msg, "only a statement that reads"));
    store_stmt_free(&s);
    ck_assert_int_eq(fx_num(&f, "SELECT count(*) FROM fx"), 0);
    fx_end(&f);
}
END_TEST

/* --- the first error --- */

static enum pawl_outcome two_errors(struct pawl_run *run)
{
    struct pawl_error first, second;

    ck_assert_int_eq(pawl_exec(run, "INSERT INTO u VALUES (1)", NULL, 0, NULL, &first), PAWL_SQL);
    ck_assert_int_ne(pawl_exec(run, "SELECT 1", NULL, 0, NULL, &second), PAWL_OK);
    ck_assert_ptr_nonnull(strstr(second.msg, "25P02"));
    return *(int *)run->ctx != 0 ? pawl_run_error(run, &second) : PAWL_DONE;
}

/* What follows the first error only says that there was one. _i: the handler reports that. */
START_TEST(postgres_first_error_of_a_handler_is_told_whatever_follows)
{
    const struct pawl_request r = { .task = "t" };
    const struct pawl_handler h = { PAWL_ABI, (uint32_t)sizeof(struct pawl_api), NULL, two_errors,
                                    NULL };
    int reports = _i;
    const struct pawl_task t = { .name = "t", .handler = &h, .ctx = &reports };
    const struct pawl_worker_opts o = { .tasks = &t, .tasks_n = 1 };
    struct pawl_worker *w = NULL;
    struct pawl_ran ran;
    struct fx f;

    fx_begin(&f, 1);
    fx_sql(&f, "CREATE TABLE u (a INTEGER UNIQUE); INSERT INTO u VALUES (1)");
    fx_ok(pawl_worker_open(f.url, &o, &w, &f.e), &f);
    (void)fx_put_req(&f, &r);
    fx_ok(pawl_worker_one(w, &ran, &f.e), &f);
    ck_assert_str_eq(ran.outcome, _i != 0 ? "permanent" : "misuse");
    ck_assert_msg(strstr(ran.text, "unique constraint") != NULL, "%s", ran.text);
    fx_ok(pawl_worker_close(&w, &f.e), &f);
    fx_end(&f);
}
END_TEST

static void add(TCase *tc)
{
    if (fx_kinds_n() < 2) return;
    tcase_add_test(tc, postgres_calls_with_the_same_keys_in_opposite_orders_are_both_stored);
    tcase_add_test(tc, postgres_new_keys_are_brought_in_one_order);
    tcase_add_test(tc, postgres_statement_outside_of_a_transaction_can_only_read);
    tcase_add_loop_test(tc, postgres_first_error_of_a_handler_is_told_whatever_follows, 0, 2);
}

int main(void)
{
    return ut_main("postgres", add, 30);
}
