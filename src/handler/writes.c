// SPDX-License-Identifier: Apache-2.0
/* writes.c - what a program's verdict asks for, on the transaction of its acknowledgement:
 * statements by name, and jobs.
 *
 * Keeps: SQL text comes from the configuration alone; a name that it does not have, a number of
 *        rows that is not the expected one, and whatever fails a `sql` task, fail the whole job.
 */
#include "base/err.h"
#include "base/json.h"
#include "base/text.h"
#include "core/limits.h"
#include "core/request.h"
#include "handler/handler.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct write {
    struct conf_task task;     /* one statement, named as errors should name it */
    char name[160];
    const struct conf_write *conf;
    struct sql_task *sql;
};
struct writes { struct write *all; size_t n; };

enum pawl_rc writes_open(struct store *st, const struct conf *conf, const struct conf_task *t,
                         struct writes **out, struct pawl_error *e)
{
    struct writes *w = calloc(1, sizeof *w);
    enum pawl_rc rc = PAWL_OK;

    *out = NULL;
    if (w != NULL) w->all = calloc(t->writes_n + 1, sizeof *w->all);
    if (w == NULL || w->all == NULL) rc = pawl_fail(e, PAWL_NOMEM, "task %s: prepare", t->name);
    for (; rc == PAWL_OK && w->n < t->writes_n; w->n++) {
        struct write *one = &w->all[w->n];

        one->conf = &t->writes[w->n];
        (void)snprintf(one->name, sizeof one->name, "%s, write.%s", t->name, one->conf->name);
        one->task = (struct conf_task){.name = one->name, .kind = HANDLER_SQL,
                                       .sql = &t->writes[w->n].sql, .sql_n = 1};
        rc = sql_task_open(st, conf, &one->task, &one->sql, e);
    }
    if (rc != PAWL_OK) {
        writes_close(&w);
        return rc;
    }
    *out = w;
    return PAWL_OK;
}

void writes_close(struct writes **wp)
{
    struct writes *w = *wp;

    if (w == NULL) return;
    for (size_t i = 0; w->all != NULL && i < w->n; i++) sql_task_close(&w->all[i].sql);
    free(w->all);
    free(w);
    *wp = NULL;
}

/* "write 2 (take): why", and whose fault it is stays. */
__attribute__((format(printf, 6, 7)))
static bool fail(struct finding *f, struct arena *arena, const char *what, size_t i,
                 const char *name, const char *fmt, ...)
{
    struct buf b = {0};
    va_list ap;

    buf_printf(&b, "%s %zu (%.64s): ", what, i + 1, name != NULL ? name : "?");
    va_start(ap, fmt);
    buf_vprintf(&b, fmt, ap);
    va_end(ap);
    f->error = arena_dup(arena, b.data, b.n);
    f->error_bytes = f->error != NULL ? b.n : 0;
    buf_free(&b);
    return false;
}

static struct finding judged(enum outcome outcome)
{
    return (struct finding){.outcome = outcome, .exit_code = -1, .signal = -1};
}

/* A write is one statement: which one it was says nothing. */
static const char *plain(const char *why)
{
    static const char first[] = "statement 1: ";

    if (why == NULL) return "out of memory";
    return strncmp(why, first, sizeof first - 1) == 0 ? why + sizeof first - 1 : why;
}

static bool not_declared(const struct writes *w, struct finding *f, struct arena *arena, size_t i,
                         const char *called)
{
    const char *names[LIMIT_STATEMENTS];
    int near;

    for (size_t k = 0; k < w->n; k++) names[k] = w->all[k].conf->name;
    near = text_nearest(called, names, w->n);
    return fail(f, arena, "write", i, called, "the task declares no write.%.64s%s%.64s%s", called,
                near >= 0 ? "; the nearest is '" : "", near >= 0 ? names[near] : "",
                near >= 0 ? "'" : "");
}

static struct write *find(struct writes *w, const char *name)
{
    for (size_t i = 0; i < w->n; i++) {
        if (strcmp(w->all[i].conf->name, name) == 0) return &w->all[i];
    }
    return NULL;
}

/* The i-th: an object with "do" and perhaps "args". */
static bool run_one(struct writes *w, struct store *st, const struct policy *p,
                    const struct job *job, size_t i, const char *item, size_t n,
                    const volatile int *stop, struct arena *arena, struct finding *f, bool *pinned)
{
    struct job mine = *job;
    struct buf name = {0};
    const char *at = NULL;
    size_t len = 0;
    enum json_type type;
    int64_t changed = 0;
    bool fine = json_member(item, n, "do", &at, &len, &type) == 1 && json_unescape(at, len, &name);
    const char *called = arena_strdup(arena, fine ? buf_str(&name) : "?");
    struct write *one = called != NULL ? find(w, called) : NULL;

    buf_free(&name);
    if (one == NULL) {
        *f = judged(OUT_PERMANENT);
        *pinned = true;
        if (called != NULL) return not_declared(w, f, arena, i, called);
        *f = judged(OUT_TRANSIENT);
        *pinned = false;
        return fail(f, arena, "write", i, NULL, "out of memory");
    }
    mine.args = "{}";
    mine.args_bytes = 2;
    if (json_member(item, n, "args", &at, &len, &type) == 1) {
        mine.args = at;
        mine.args_bytes = len;
    }
    if (!sql_task_write(one->sql, st, p, &mine, stop, arena,
                        one->conf->expect >= 0 ? &changed : NULL, f, pinned)) {
        return fail(f, arena, "write", i, called, "%s", plain(f->error));
    }
    if (one->conf->expect < 0 || changed == one->conf->expect) return true;
    f->outcome = OUT_PERMANENT;
    return fail(f, arena, "write", i, called, "it changed %" PRId64 " rows, expect.%s = %" PRId64,
                changed, called, one->conf->expect);
}

/* What is wrong with a request is its author's; the rest is the store's. */
static bool is_its_own(enum pawl_rc rc)
{
    return rc == PAWL_BADDATA || rc == PAWL_KEYCLASH || rc == PAWL_TOOBIG || rc == PAWL_BADARG;
}

static bool enqueue_all(struct store *st, const struct finding *asked, struct arena *arena,
                        struct finding *f, bool *pinned)
{
    struct pawl_request *req = arena_alloc(arena, LIMIT_ENQUEUES * sizeof *req);
    struct pawl_enqueued *out = arena_alloc(arena, LIMIT_ENQUEUES * sizeof *out);
    const int64_t now_us = store_now_us(st);
    struct pawl_error e = {0};
    enum pawl_rc rc = req != NULL && out != NULL ? PAWL_OK : PAWL_NOMEM;
    const char *item;
    size_t pos = 0, len, n = 0, bad_i = 0;
    enum json_type type;

    while (rc == PAWL_OK && json_next_item(asked->enqueue, asked->enqueue_bytes, &pos, &item, &len,
                                           &type)) {
        assert(n < LIMIT_ENQUEUES);
        rc = request_parse(item, len, now_us, arena, &req[n], &e);
        bad_i = n++;
    }
    if (rc == PAWL_OK && n > 0) {
        memset(out, 0, n * sizeof *out);
        rc = store_effect_enqueue(st, req, n, out, &bad_i, &e);
        for (size_t i = 0; i < n; i++) free(out[i].result);
    }
    if (rc == PAWL_OK) return true;
    *pinned = is_its_own(rc);
    *f = judged(*pinned ? OUT_PERMANENT : OUT_TRANSIENT);
    return fail(f, arena, "enqueue", bad_i, bad_i < n ? req[bad_i].task : NULL, "%s",
                rc == PAWL_NOMEM ? "out of memory" : e.msg);
}

void writes_run(struct writes *w, struct store *st, const struct policy *p, const struct job *job,
                const struct finding *asked, const volatile int *stop, struct arena *arena,
                struct finding *f, bool *pinned)
{
    const char *item;
    size_t pos = 0, n, i = 0;
    enum json_type type;

    *pinned = true;
    while (asked->writes != NULL &&
           json_next_item(asked->writes, asked->writes_bytes, &pos, &item, &n, &type)) {
        if (!run_one(w, st, p, job, i++, item, n, stop, arena, f, pinned)) return;
    }
    if (asked->enqueue != NULL && !enqueue_all(st, asked, arena, f, pinned)) return;
    *f = judged(OUT_DONE);
}
