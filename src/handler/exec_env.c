// SPDX-License-Identifier: Apache-2.0
/* exec_env.c - the environment of a child: ours first, then the task's env.NAME settings, then what
 * the worker itself was given, less its own PAWL_ variables.
 *
 * The first of two settings of one name wins, so nothing can replace what Pawl says about the job.
 */
#include "handler/exec_parts.h"
#include "handler/job_key.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

extern char **environ;

struct env_list {
    struct arena *arena;
    const char **v;
    size_t n, room;
    bool failed;
};

static size_t name_bytes(const char *entry)
{
    const char *eq = strchr(entry, '=');
    return eq == NULL ? strlen(entry) : (size_t)(eq - entry);
}

static bool has(const struct env_list *l, const char *entry)
{
    size_t n = name_bytes(entry);

    for (size_t i = 0; i < l->n; i++) {
        if (strncmp(l->v[i], entry, n) == 0 && l->v[i][n] == '=') return true;
    }
    return false;
}

static void add(struct env_list *l, const char *entry)
{
    if (entry == NULL) {
        l->failed = true;
    } else if (l->n < l->room && !has(l, entry)) {
        l->v[l->n++] = entry;
    }
}

__attribute__((format(printf, 2, 3))) static void addf(struct env_list *l, const char *fmt, ...)
{
    struct buf b = {0};
    va_list ap;

    va_start(ap, fmt);
    buf_vprintf(&b, fmt, ap);
    va_end(ap);
    add(l, b.failed ? NULL : arena_strdup(l->arena, buf_str(&b)));
    buf_free(&b);
}

static void add_opt(struct env_list *l, const char *name, const char *value)
{
    if (value != NULL) addf(l, "%s=%s", name, value);
}

static void add_ours(struct env_list *l, const struct exec_start *s)
{
    const struct job *job = s->job;
    char lease[2 * sizeof job->lease_id + 1], key[JOB_KEY_BYTES];

    for (size_t i = 0; i < sizeof job->lease_id; i++) {
        (void)snprintf(lease + 2 * i, 3, "%02x", job->lease_id[i]);
    }
    job_idempotency_key(s->task->name, job, key);
    addf(l, "PAWL_JOB_ID=%" PRId64, job->id);
    addf(l, "PAWL_ROOT_ID=%" PRId64, job->root_id);
    addf(l, "PAWL_ATTEMPT=%" PRId64, job->token);
    addf(l, "PAWL_TOKEN=%" PRId64, job->token);
    addf(l, "PAWL_LEASE=%s", lease);
    addf(l, "PAWL_IDEMPOTENCY_KEY=%s", key);
    addf(l, "PAWL_TASK=%s", s->task->name);
    add(l, "PAWL_REPLY_FD=3");
    add_opt(l, "PAWL_QUEUE", job->queue);
    add_opt(l, "PAWL_KEY", job->key);
    add_opt(l, "PAWL_SOURCE", job->source != NULL ? job->source : "");
    add_opt(l, "PAWL_WORKER", s->worker);
    add_opt(l, "PAWL_DB", s->db);
    add_opt(l, "PAWL_HEADERS", job->headers);
    add_opt(l, "TRACEPARENT", job->trace);
    if (s->policy->hard_limit_us > 0) {
        addf(l, "PAWL_DEADLINE_MS=%" PRId64, (s->wall_now_us + s->policy->hard_limit_us) / 1000);
    }
}

const char *const *exec_env(const struct exec_start *s, struct arena *a)
{
    struct env_list l = {.arena = a, .room = 32 + s->task->env_n};

    for (char **e = environ; e != NULL && *e != NULL; e++) l.room++;
    l.v = arena_alloc(a, (l.room + 1) * sizeof *l.v);
    if (l.v == NULL) return NULL;
    add_ours(&l, s);
    for (size_t i = 0; i < s->task->env_n; i++) add(&l, s->task->env[i]);
    for (char **e = environ; e != NULL && *e != NULL; e++) {
        /* Not ours to hand on: PAWL_FAILPOINT would arm the child, PAWL_DB may be another store. */
        if (strncmp(*e, "PAWL_", 5) != 0 && strncmp(*e, "TRACEPARENT=", 12) != 0) add(&l, *e);
    }
    return l.failed ? NULL : l.v;
}
