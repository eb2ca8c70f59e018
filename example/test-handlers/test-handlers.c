// SPDX-License-Identifier: Apache-2.0
/* test-handlers.c - how an application tests its handlers: a store in memory, a clock that the test
 * sets, one job at a time. Hours pass in no time. Compiles as C17 and as C++17.
 */
#include <pawl.h>
#include <stdlib.h>

/* --- the handler under test; in a real program it comes from one of its own files --- */
static enum pawl_outcome remind(struct pawl_run *run)
{
    struct pawl_error e;
    const char *who = NULL;
    if (pawl_arg_text(run, "who", &who, NULL, &e) != PAWL_OK) return pawl_run_error(run, &e);
    const struct pawl_value v = pawl_text("who", who);
    struct pawl_value seen;
    bool found = false;
    if (pawl_query_row(run, "SELECT paid FROM customer WHERE name = :who", &v, 1, &seen, 1, &found,
                       &e) != PAWL_OK)
        return pawl_run_error(run, &e);
    if (!found) {
        pawl_run_say(run, "%s is no customer yet", who);
        return PAWL_RETRY;
    }
    if (seen.i != 0) return PAWL_STALE; /* paid meanwhile: nothing to do */
    if (pawl_exec(run, "INSERT INTO reminder VALUES (:who)", &v, 1, NULL, &e) != PAWL_OK)
        return pawl_run_error(run, &e);
    return PAWL_DONE;
}
PAWL_HANDLER(remind_handler, NULL, remind, NULL);

/* --- a handler that only helps the test: statements of its own, as a job --- */
static enum pawl_outcome sql(struct pawl_run *run)
{
    struct pawl_error e;
    const char *text = NULL;
    if (pawl_arg_text(run, "sql", &text, NULL, &e) != PAWL_OK ||
        pawl_exec(run, text, NULL, 0, NULL, &e) != PAWL_OK)
        return pawl_run_error(run, &e);
    return PAWL_DONE;
}
PAWL_HANDLER(sql_handler, NULL, sql, NULL);

struct bench {
    struct pawl *p;
    struct pawl_worker *w;
    int64_t now_us;
};

static int64_t clock_us(void *ctx)
{
    return ((const struct bench *)ctx)->now_us;
}

static void give_up(const char *what, const char *why)
{
    fprintf(stderr, "test-handlers: %s: %s\n", what, why);
    exit(EXIT_FAILURE);
}

static void enqueue(struct bench *b, const char *task, const char *args)
{
    struct pawl_request r;
    struct pawl_enqueued got;
    struct pawl_error e;
    memset(&r, 0, sizeof r);
    r.task = task;
    r.args = args;
    if (pawl_enqueue(b->p, &r, 1, &got, NULL, &e) != PAWL_OK) give_up(args, e.msg);
}

/* Run the next job, and compare what came of it. */
static void expect(struct bench *b, const char *claim, enum pawl_state state, const char *outcome)
{
    struct pawl_ran ran;
    struct pawl_error e;
    if (pawl_worker_one(b->w, &ran, &e) != PAWL_OK) give_up(claim, e.msg);
    if (ran.state != state || strcmp(ran.outcome, outcome) != 0) give_up(claim, ran.text);
    printf("ok: %s\n    %s, %s%s%s\n", claim, pawl_state_name(ran.state), ran.outcome,
           ran.text[0] != '\0' ? ": " : "", ran.text);
}

static void must_run(struct bench *b, const char *args)
{
    struct pawl_ran ran;
    struct pawl_error e;
    enqueue(b, "sql", args);
    if (pawl_worker_one(b->w, &ran, &e) != PAWL_OK) give_up(args, e.msg);
    if (ran.state != PAWL_STATE_DONE) give_up(args, ran.text);
}

int main(void)
{
    const struct pawl_task tasks[] = {
        {"remind", &remind_handler, NULL, "max_retries = 1\nbackoff = 1h..1h"},
        {"sql", &sql_handler, NULL, "priority = 1"}};
    struct bench b = {NULL, NULL, INT64_C(1800000000000000)};
    struct pawl_open_opts open;
    struct pawl_worker_opts o;
    struct pawl_error e;
    memset(&open, 0, sizeof open);
    memset(&o, 0, sizeof o);
    open.now_us = clock_us;
    open.now_ctx = &b;
    o.tasks = tasks;
    o.tasks_n = 2;
    o.open = &open;
    if (pawl_open_temp(&open, &b.p, &e) != PAWL_OK) give_up("a store", e.msg);
    if (pawl_worker_open(pawl_url(b.p), &o, &b.w, &e) != PAWL_OK) give_up("a worker", e.msg);
    must_run(&b, "{\"sql\":\"CREATE TABLE customer(name TEXT PRIMARY KEY, paid INTEGER)\"}");
    must_run(&b, "{\"sql\":\"CREATE TABLE reminder(name TEXT UNIQUE)\"}");

    enqueue(&b, "remind", "{\"who\":\"ann\"}");
    expect(&b, "who is no customer yet is tried again", PAWL_STATE_READY, "transient");
    struct pawl_ran ran;
    if (pawl_worker_one(b.w, &ran, &e) != PAWL_NOTFOUND) give_up("a retry waits", "it does not");
    must_run(&b, "{\"sql\":\"INSERT INTO customer VALUES ('ann', 0)\"}");
    b.now_us += INT64_C(3600000000);
    expect(&b, "an hour later there is a reminder", PAWL_STATE_DONE, "done");

    enqueue(&b, "remind", "{\"who\":\"ann\"}");
    expect(&b, "a second reminder is refused by the table", PAWL_STATE_DEAD, "permanent");
    must_run(&b, "{\"sql\":\"UPDATE customer SET paid = 1\"}");
    enqueue(&b, "remind", "{\"who\":\"ann\"}");
    expect(&b, "who has paid is left alone", PAWL_STATE_DONE, "stale");
    enqueue(&b, "remind", "{\"whom\":\"ann\"}");
    expect(&b, "args without a name are refused", PAWL_STATE_DEAD, "permanent");

    (void)pawl_worker_close(&b.w, NULL);
    pawl_close(&b.p);
    return EXIT_SUCCESS;
}
