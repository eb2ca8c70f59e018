// SPDX-License-Identifier: Apache-2.0
/* test_api.c - the public calls: what a caller may get wrong is refused, with the error filled and
 * nothing changed; a round trip through the one public header. */
#include <unistd.h>

#include "unit/test_handler_c.h"

#define URL at.url
#define NOWHERE cfx_of_kind("sqlite:nowhere.db", nowhere)

static bool no_job(void *ctx, const struct pawl_job *j)
{
    (void)ctx;
    (void)j;
    return true;
}
static bool no_attempt(void *ctx, const struct pawl_attempt *a)
{
    (void)ctx;
    (void)a;
    return true;
}
static bool no_queue(void *ctx, const struct pawl_queue_stat *q)
{
    (void)ctx;
    (void)q;
    return true;
}
static bool no_stat(void *ctx, const struct pawl_stat *s)
{
    (void)ctx;
    (void)s;
    return true;
}
static bool no_finding(void *ctx, const struct pawl_finding *f)
{
    (void)ctx;
    (void)f;
    return true;
}

/* rc, with a filled error; and the same call must survive a NULL error. */
#define REFUSED(call, want)                            \
    do {                                               \
        struct pawl_error err = {.rc = PAWL_OK};       \
        struct pawl_error *e = &err;                   \
        ck_assert_int_eq(call, want);                  \
        ck_assert_int_eq(err.rc, want);                \
        ck_assert_int_ne(err.msg[0], '\0');            \
        e = NULL;                                      \
        ck_assert_int_eq(call, want);                  \
    } while (0)

/* The place of a test's store, and where there is none. */
static struct fx at;
static char nowhere[sizeof at.url + 8];

static void begin(void)
{
    const char *options;

    fx_place(&at, cfx_kind, false);
    if (cfx_kind == CFX_SQLITE) return;
    options = strchr(at.url, '?');
    snprintf(nowhere, sizeof nowhere, "%.*s_no%s", (int)(options - at.url), at.url, options);
}

static void end(void)
{
    fx_leave(&at);
}

/* A fresh store in a place of its own. */
static struct pawl *fresh(void)
{
    struct pawl *p = NULL;
    bool created = false;

    ck_assert_int_eq(pawl_init(URL, &created, NULL), PAWL_OK);
    ck_assert(created);
    ck_assert_int_eq(pawl_init(URL, &created, NULL), PAWL_OK);
    ck_assert(!created);
    ck_assert_int_eq(pawl_open(URL, &p, NULL), PAWL_OK);
    return p;
}

START_TEST(test_calls_without_a_store_are_refused)
{
    const struct pawl_request r = {.task = "t"};
    struct pawl_enqueued out;
    struct pawl_pruned pruned;
    enum pawl_state state;
    int64_t id;
    int n;
    bool stale;

    REFUSED(pawl_init(NULL, NULL, e), PAWL_BADARG);
    REFUSED(pawl_init("", NULL, e), PAWL_BADARG);
    REFUSED(pawl_open(URL, NULL, e), PAWL_BADARG);
    REFUSED(pawl_enqueue(NULL, &r, 1, &out, NULL, e), PAWL_BADARG);
    REFUSED(pawl_jobs(NULL, NULL, no_job, NULL, e), PAWL_BADARG);
    REFUSED(pawl_job_get(NULL, 1, no_job, NULL, e), PAWL_BADARG);
    REFUSED(pawl_attempts(NULL, 1, no_attempt, NULL, e), PAWL_BADARG);
    REFUSED(pawl_cancel(NULL, 1, &state, e), PAWL_BADARG);
    REFUSED(pawl_run_now(NULL, 1, &state, e), PAWL_BADARG);
    REFUSED(pawl_dead_replay(NULL, 1, NULL, &id, e), PAWL_BADARG);
    REFUSED(pawl_dead_is_stale(NULL, 1, &stale, e), PAWL_BADARG);
    REFUSED(pawl_dead_discard(NULL, 1, "r", e), PAWL_BADARG);
    REFUSED(pawl_pause(NULL, "q", NULL, true, e), PAWL_BADARG);
    REFUSED(pawl_queues(NULL, no_queue, NULL, e), PAWL_BADARG);
    REFUSED(pawl_stats(NULL, no_stat, NULL, e), PAWL_BADARG);
    REFUSED(pawl_check(NULL, no_finding, NULL, &n, e), PAWL_BADARG);
    REFUSED(pawl_prune(NULL, NULL, &pruned, e), PAWL_BADARG);
    REFUSED(pawl_copy(NULL, URL, NULL, NULL, e), PAWL_BADARG);
    REFUSED(pawl_copy(NOWHERE, "", NULL, NULL, e), PAWL_BADARG);
    REFUSED(pawl_copy(NOWHERE, URL, NULL, NULL, e), PAWL_NOSTORE);
    pawl_close(NULL);
}
END_TEST

START_TEST(test_open_needs_a_store_and_leaves_no_handle)
{
    struct pawl *p = (struct pawl *)&p;

    REFUSED(pawl_open(URL, &p, e), PAWL_NOSTORE);
    ck_assert_ptr_null(p);
    REFUSED(pawl_open(NOWHERE, &p, e), PAWL_NOSTORE);
    ck_assert_ptr_null(p);
    REFUSED(pawl_open("", &p, e), PAWL_BADARG);
    REFUSED(pawl_open("mysql:x", &p, e), PAWL_BADARG);
    ck_assert_int_ne(access("nowhere.db", F_OK), 0);
    pawl_close(&p);
}
END_TEST

START_TEST(test_bad_arguments_change_nothing)
{
    struct pawl *p = fresh();
    const struct pawl_request good = {.task = "t"}, r[2] = {{.task = "t"}, {.args = "{}"}};
    const struct pawl_filter bad_state = {.state = PAWL_STATE_N + 1}, bad_limit = {.limit = -1};
    const struct pawl_replay no_reason = {.again_reason = ""};
    const struct pawl_prune_opts bad_batch = {.batch = -1};
    static struct pawl_request many[10001];
    static struct pawl_enqueued out[10001];
    size_t bad = 77;
    int64_t id = 5;

    REFUSED(pawl_enqueue(p, r, 2, out, &bad, e), PAWL_BADARG);
    ck_assert_uint_eq(bad, 1);
    REFUSED(pawl_enqueue(p, NULL, 1, out, NULL, e), PAWL_BADARG);
    REFUSED(pawl_enqueue(p, &good, 1, NULL, NULL, e), PAWL_BADARG);
    for (size_t i = 0; i < UT_N(many); i++) many[i].task = "t";
    REFUSED(pawl_enqueue(p, many, UT_N(many), out, &bad, e), PAWL_TOOBIG);
    ck_assert_uint_eq(bad, UT_N(many));
    ck_assert_int_eq(pawl_enqueue(p, NULL, 0, NULL, NULL, NULL), PAWL_OK);
    REFUSED(pawl_jobs(p, NULL, NULL, NULL, e), PAWL_BADARG);
    REFUSED(pawl_jobs(p, &bad_state, no_job, NULL, e), PAWL_BADARG);
    REFUSED(pawl_jobs(p, &bad_limit, no_job, NULL, e), PAWL_BADARG);
    REFUSED(pawl_job_get(p, 0, no_job, NULL, e), PAWL_BADARG);
    REFUSED(pawl_job_get(p, -1, no_job, NULL, e), PAWL_BADARG);
    REFUSED(pawl_job_get(p, 1, NULL, NULL, e), PAWL_BADARG);
    REFUSED(pawl_job_get(p, 1, no_job, NULL, e), PAWL_NOTFOUND);
    REFUSED(pawl_cancel(p, 1, NULL, e), PAWL_NOTFOUND);
    REFUSED(pawl_run_now(p, 1, NULL, e), PAWL_NOTFOUND);
    REFUSED(pawl_dead_replay(p, 1, NULL, &id, e), PAWL_NOTFOUND);
    ck_assert_int_eq(id, 0);
    REFUSED(pawl_dead_replay(p, 1, &no_reason, &id, e), PAWL_BADARG);
    REFUSED(pawl_dead_is_stale(p, 1, NULL, e), PAWL_BADARG);
    REFUSED(pawl_dead_discard(p, 1, NULL, e), PAWL_BADARG);
    REFUSED(pawl_dead_discard(p, 1, "", e), PAWL_BADARG);
    REFUSED(pawl_dead_discard(p, 1, "r", e), PAWL_NOTFOUND);
    REFUSED(pawl_pause(p, NULL, NULL, true, e), PAWL_BADARG);
    REFUSED(pawl_pause(p, "q", "t", true, e), PAWL_BADARG);
    REFUSED(pawl_pause(p, "q", NULL, true, e), PAWL_NOTFOUND);
    REFUSED(pawl_queues(p, NULL, NULL, e), PAWL_BADARG);
    REFUSED(pawl_stats(p, NULL, NULL, e), PAWL_BADARG);
    REFUSED(pawl_check(p, NULL, NULL, NULL, e), PAWL_BADARG);
    REFUSED(pawl_prune(p, &bad_batch, NULL, e), PAWL_BADARG);
    ck_assert_int_eq(pawl_job_get(p, 1, no_job, NULL, NULL), PAWL_NOTFOUND);
    pawl_close(&p);
    ck_assert_ptr_null(p);
}
END_TEST

static bool keep_job(void *ctx, const struct pawl_job *j)
{
    int64_t *ids = ctx;

    ck_assert_str_eq(j->task, "t");
    ids[j->id]++;
    return j->id != 3; /* enough */
}

START_TEST(test_round_trip)
{
    struct pawl *p = fresh();
    const struct pawl_request r[] = {{.task = "t", .key = "k", .args = "[1]"},
                                     {.task = "t", .key = "k", .args = "[1]"},
                                     {.task = "t", .args = "[1, ", .args_bytes = 0},
                                     {.task = "t"}, {.task = "t"}, {.task = "t"}};
    struct pawl_enqueued out[6];
    int64_t ids[8] = {0};
    size_t bad = 0;
    int checked = 0;

    REFUSED(pawl_enqueue(p, r, 6, out, &bad, e), PAWL_BADDATA); /* all or none */
    ck_assert_uint_eq(bad, 2);
    ck_assert_int_eq(pawl_enqueue(p, r, 2, out, &bad, NULL), PAWL_OK);
    ck_assert(out[0].created && !out[1].created);
    ck_assert_int_eq(out[0].id, 1);
    ck_assert_int_eq(out[1].id, 1);
    ck_assert_int_eq(out[1].state, PAWL_STATE_READY);
    ck_assert_int_eq(pawl_enqueue(p, r + 3, 3, out, NULL, NULL), PAWL_OK);
    ck_assert_int_eq(pawl_jobs(p, NULL, keep_job, ids, NULL), PAWL_OK);
    ck_assert(ids[1] == 1 && ids[2] == 1 && ids[3] == 1 && ids[4] == 0);
    ck_assert_int_eq(pawl_cancel(p, 2, NULL, NULL), PAWL_OK);
    ck_assert_int_eq(pawl_cancel(p, 2, NULL, NULL), PAWL_TOOLATE);
    ck_assert_int_eq(pawl_queues(p, no_queue, NULL, NULL), PAWL_OK);
    ck_assert_int_eq(pawl_stats(p, no_stat, NULL, NULL), PAWL_OK);
    ck_assert_int_eq(pawl_prune(p, NULL, NULL, NULL), PAWL_OK);
    ck_assert_int_eq(pawl_check(p, no_finding, NULL, &checked, NULL), PAWL_OK);
    ck_assert_int_gt(checked, 0);
    pawl_close(&p);
}
END_TEST

static void add(TCase *tc)
{
    tcase_add_checked_fixture(tc, begin, end);
    tcase_add_test(tc, test_calls_without_a_store_are_refused);
    tcase_add_test(tc, test_open_needs_a_store_and_leaves_no_handle);
    tcase_add_test(tc, test_bad_arguments_change_nothing);
    tcase_add_test(tc, test_round_trip);
}

int main(void)
{
    return cfx_main("api", add, 20);
}
