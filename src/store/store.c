// SPDX-License-Identifier: Apache-2.0
/* store.c - the checked front door: one place for the limits of every door, then the engine.
 *
 * Keeps: what a store is given has passed the stated rules (names, sizes, JSON), whichever door it
 *        came through; the only caller of an engine's table.
 */
#include <assert.h>
#include <string.h>
#include "base/err.h"
#include "base/json.h"
#include "core/rules.h"
#include "store/copy.h"
#include "store/ops.h"

static enum pawl_rc engine_path(const char *url, const char **path, struct pawl_error *e)
{
    const size_t n = strlen(url);

    const size_t word_n = strspn(url,
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789");

    if (strncmp(url, "sqlite:", 7) == 0)
        *path = url + 7;
    else if (url[word_n] == ':' && word_n > 0 && strncmp(url, "postgres", 8) != 0)
        return pawl_fail(e, PAWL_BADARG, "store \"%.200s\": unknown scheme \"%.*s:\"; give"
                         " sqlite:PATH, a path ending in .db, or postgresql://...", url,
                         (int)(word_n < 20 ? word_n : 20), url);
    else if (n > 3 && strcmp(url + n - 3, ".db") == 0)
        *path = url;
    else
        return pawl_fail(e, PAWL_BADARG, "store \"%.200s\": give sqlite:PATH, a path ending in .db,"
                         " or postgresql://...", url);
    if (strcmp(*path, ":memory:") == 0)
        return pawl_fail(e, PAWL_BADARG, "store \"%.200s\": a store is a file, for many processes;"
                         " for tests use pawl_open_temp()", url);
    if (strncmp(*path, "file:", 5) == 0)
        return pawl_fail(e, PAWL_BADARG, "store \"%.200s\": SQLite's file: names are not accepted;"
                         " give a path", url);
    if (**path == '\0')
        return pawl_fail(e, PAWL_BADARG, "store \"%.200s\" has an empty path", url);
    return PAWL_OK;
}

static bool is_postgres(const char *url)
{
    return strncmp(url, "postgres://", 11) == 0 || strncmp(url, "postgresql://", 13) == 0;
}

void store_engine(char *buf, size_t n)
{
    sqlite_engine(buf, n);
    const size_t at = strlen(buf);
    if (n - at > 2) {
        memcpy(buf + at, ", ", 3);
        postgres_engine(buf + at + 2, n - at - 2);
    }
}

static enum pawl_rc init_it(const struct store_opts *o, bool *created, struct pawl_error *e)
{
    const char *path = NULL;
    enum pawl_rc rc;

    if (is_postgres(o->url))
        return postgres_store_init(o->url, o, created, e);
    rc = engine_path(o->url, &path, e);
    return rc == PAWL_OK ? sqlite_store_init(path, o, created, e) : rc;
}

enum pawl_rc store_init(const struct store_opts *o, bool *created, struct pawl_error *e)
{
    enum pawl_rc rc = init_it(o, created, e);

    if (rc == PAWL_MOVED && store_copy_settle(o) == PAWL_OK)
        rc = init_it(o, created, e);
    return rc;
}

static enum pawl_rc open_it(const struct store_opts *o, struct store **out, struct pawl_error *e)
{
    const char *path = NULL;
    enum pawl_rc rc;

    *out = NULL;
    if (is_postgres(o->url))
        return postgres_store_open(o->url, o, out, e);
    rc = engine_path(o->url, &path, e);
    return rc == PAWL_OK ? sqlite_store_open(path, o, out, e) : rc;
}

enum pawl_rc store_open(const struct store_opts *o, struct store **out, struct pawl_error *e)
{
    enum pawl_rc rc = open_it(o, out, e);

    /* A move into it may lack nothing but its last step. */
    if (rc == PAWL_MOVED && !o->closed_ok && store_copy_settle(o) == PAWL_OK)
        rc = open_it(o, out, e);
    return rc;
}

void store_close(struct store **st)
{
    if (st == NULL || *st == NULL)
        return;
    if (store_is_ours(*st))
        (*st)->ops->close(*st);
    else
        (*st)->ops->forsake(*st);
    *st = NULL;
}

const struct env *store_env(const struct store *st)
{
    return st->env;
}

int64_t store_now_us(struct store *st)
{
    return st->env->wall_us(st->env->ctx);
}

/* --- the rules of every door stated in doc/schema.md --- */

static enum pawl_rc json_rule(const char *what, const char *s, size_t n, size_t max, bool object,
                              struct pawl_error *e)
{
    enum json_type type = JSON_NULL;
    struct json_err je = {0};

    if (n > max)
        return pawl_fail(e, PAWL_TOOBIG, "%s has %zu bytes, at most %zu are accepted", what, n,
                         max);
    if (!json_check(s, n, LIMIT_JSON_DEPTH, &type, &je))
        return pawl_fail(e, PAWL_BADDATA, "%s is not acceptable JSON: %s at byte %zu", what, je.why,
                         je.at);
    if (object && type != JSON_OBJECT)
        return pawl_fail(e, PAWL_BADDATA, "%s must be a JSON object", what);
    return PAWL_OK;
}

static enum pawl_rc text_rule(const char *what, const char *s, bool may_be_empty,
                              struct pawl_error *e)
{
    const char *why = NULL;

    if (s == NULL || (may_be_empty && *s == '\0'))
        return PAWL_OK;
    if (*s == '\0')
        return pawl_fail(e, PAWL_BADDATA, "%s \"\" is empty: leave it out, or give 1..255 bytes",
                         what);
    if (!key_ok(s, &why))
        return pawl_fail(e, PAWL_BADDATA, "%s \"%.80s\": %s", what, s, why);
    return PAWL_OK;
}

static enum pawl_rc headers_rule(const char *s, struct pawl_error *e)
{
    const char *name, *val;
    size_t pos = 0, name_n, val_n;
    enum json_type type;
    enum pawl_rc rc;

    if (s == NULL)
        return PAWL_OK;
    if ((rc = json_rule("headers", s, strlen(s), LIMIT_HEADERS_BYTES, true, e)) != PAWL_OK)
        return rc;
    while (json_next(s, strlen(s), &pos, &name, &name_n, &val, &val_n, &type))
        if (type != JSON_STRING)
            return pawl_fail(e, PAWL_BADDATA, "header \"%.*s\" must be a string", (int)name_n,
                             name);
    return PAWL_OK;
}

/* A number of seconds or milliseconds would be a time long ago: due at once, expired at once. */
static enum pawl_rc instant_rule(const char *what, int64_t us, struct pawl_error *e)
{
    if (us < 0 || us > LIMIT_INSTANT_MAX_US)
        return pawl_fail(e, PAWL_BADARG, "%s is out of range: 1970 to 9999", what);
    if (us > 0 && us < LIMIT_INSTANT_ODD_US)
        return pawl_fail(e, PAWL_BADARG, "%s %lld looks like seconds or milliseconds; give"
                         " microseconds since 1970", what, (long long)us);
    return PAWL_OK;
}

/* A value that its flag does not announce would be passed over in silence. */
static enum pawl_rc flags_rule(const struct pawl_request *r, struct pawl_error *e)
{
    const struct { const char *name; bool has; int64_t value; } by[] = {
        { "priority", r->has_priority, r->priority },
        { "max_retries", r->has_max_retries, r->max_retries },
        { "version", r->has_version, r->version },
    };

    for (size_t i = 0; i < sizeof by / sizeof *by; i++)
        if (!by[i].has && by[i].value != 0)
            return pawl_fail(e, PAWL_BADARG, "%s %lld without has_%s: set has_%s, too", by[i].name,
                             (long long)by[i].value, by[i].name, by[i].name);
    return PAWL_OK;
}

static enum pawl_rc numbers_rule(const struct pawl_request *r, struct pawl_error *e)
{
    const enum pawl_rc flags = flags_rule(r, e);

    if (flags != PAWL_OK)
        return flags;
    if (r->has_priority && (r->priority < -LIMIT_PRIORITY || r->priority > LIMIT_PRIORITY))
        return pawl_fail(e, PAWL_BADARG, "priority %d: give -100..100, higher first", r->priority);
    if (r->has_max_retries && (r->max_retries < 0 || r->max_retries > LIMIT_RETRIES))
        return pawl_fail(e, PAWL_BADARG, "max_retries %d: give 0..%d", r->max_retries,
                         LIMIT_RETRIES);
    enum pawl_rc rc = instant_rule("run_at", r->run_at_us, e);

    if (rc != PAWL_OK || (rc = instant_rule("expires_at", r->expires_at_us, e)) != PAWL_OK)
        return rc;
    if ((r->entity != NULL) != r->has_version)
        return pawl_fail(e, PAWL_BADARG, "%s: the version guard needs both an entity and a version",
                         r->entity != NULL ? "entity without version" : "version without entity");
    return PAWL_OK;
}

enum pawl_rc store_request_rule(struct pawl_request *r, struct pawl_error *e)
{
    const char *why = NULL;
    enum pawl_rc rc;

    if (r->task == NULL || !name_ok(r->task, &why))
        return pawl_fail(e, PAWL_BADDATA, "task \"%.80s\": %s", r->task != NULL ? r->task : "",
                         r->task != NULL ? why : "a name is needed");
    if (r->queue != NULL && !name_ok(r->queue, &why))
        return pawl_fail(e, PAWL_BADDATA, "queue \"%.80s\": %s", r->queue, why);
    if (r->args == NULL) {
        r->args = "{}";
        r->args_bytes = 2;
    } else if (r->args_bytes == 0) {
        r->args_bytes = strlen(r->args);
    }
    if ((rc = json_rule("args", r->args, r->args_bytes, LIMIT_ARGS_BYTES, false, e)) != PAWL_OK)
        return rc;
    if ((rc = text_rule("key", r->key, false, e)) != PAWL_OK ||
        (rc = text_rule("source", r->source, true, e)) != PAWL_OK ||
        (rc = text_rule("entity", r->entity, false, e)) != PAWL_OK ||
        (rc = text_rule("trace", r->trace, false, e)) != PAWL_OK ||
        (rc = headers_rule(r->headers, e)) != PAWL_OK)
        return rc;
    return numbers_rule(r, e);
}

typedef enum pawl_rc enqueue_fn(struct store *, const struct pawl_request *, size_t,
                                struct pawl_enqueued *, size_t *, struct pawl_error *);

static enum pawl_rc enqueue_by(enqueue_fn *fn, struct store *st, const struct pawl_request *req,
                               size_t n, struct pawl_enqueued *out, size_t *bad_i,
                               struct pawl_error *e)
{
    struct arena a = {0};
    struct pawl_request *copy;
    size_t none = 0;
    enum pawl_rc rc = PAWL_OK;

    if (bad_i == NULL)
        bad_i = &none;
    *bad_i = n;
    if (!store_is_ours(st))
        return store_not_ours(st, e);
    if (n == 0)
        return PAWL_OK;
    if (n > LIMIT_ENQUEUE_N)
        return pawl_fail(e, PAWL_TOOBIG, "%zu jobs in one call, at most %d", n, LIMIT_ENQUEUE_N);
    if ((copy = arena_alloc(&a, n * sizeof *copy)) == NULL)
        return pawl_fail(e, PAWL_NOMEM, "out of memory");
    for (size_t i = 0; i < n && rc == PAWL_OK; i++) {
        copy[i] = req[i];
        if ((rc = store_request_rule(&copy[i], e)) != PAWL_OK)
            *bad_i = i;
    }
    if (rc == PAWL_OK)
        rc = fn(st, copy, n, out, bad_i, e);
    arena_free(&a);
    return rc;
}

enum pawl_rc store_enqueue(struct store *st, const struct pawl_request *req, size_t n,
                           struct pawl_enqueued *out, size_t *bad_i, struct pawl_error *e)
{
    return enqueue_by(st->ops->enqueue, st, req, n, out, bad_i, e);
}

enum pawl_rc store_effect_enqueue(struct store *st, const struct pawl_request *req, size_t n,
                                  struct pawl_enqueued *out, size_t *bad_i, struct pawl_error *e)
{
    return enqueue_by(st->ops->effect_enqueue, st, req, n, out, bad_i, e);
}

enum pawl_rc store_replay(struct store *st, int64_t id, const struct pawl_replay *how,
                          int64_t *new_id, struct pawl_error *e)
{
    if (!store_is_ours(st))
        return store_not_ours(st, e);
    struct pawl_replay h = *how;
    enum pawl_rc rc;

    *new_id = 0;
    if (h.args != NULL) {
        if (h.args_bytes == 0)
            h.args_bytes = strlen(h.args);
        if ((rc = json_rule("args", h.args, h.args_bytes, LIMIT_ARGS_BYTES, false, e)) != PAWL_OK)
            return rc;
    }
    if (h.again_reason != NULL && (*h.again_reason == '\0' || !utf8_ok(h.again_reason,
            strlen(h.again_reason))))
        return pawl_fail(e, PAWL_BADARG, "a second replay needs a reason, in UTF-8");
    return st->ops->replay(st, id, &h, new_id, e);
}

enum pawl_rc store_discard(struct store *st, int64_t id, const char *reason, struct pawl_error *e)
{
    if (!store_is_ours(st))
        return store_not_ours(st, e);
    if (reason == NULL || *reason == '\0' || !utf8_ok(reason, strlen(reason)))
        return pawl_fail(e, PAWL_BADARG, "discard needs a reason, in UTF-8");
    return st->ops->discard(st, id, reason, e);
}

enum pawl_rc store_prune(struct store *st, const struct pawl_prune_opts *how,
                         struct pawl_pruned *out,
                         struct pawl_error *e)
{
    if (!store_is_ours(st))
        return store_not_ours(st, e);
    if (how->batch < 0 || how->batch > 10000)
        return pawl_fail(e, PAWL_BADARG, "batch %lld: give 1..10000", (long long)how->batch);
    if (how->done_older_us < 0 || how->keys_older_us < 0)
        return pawl_fail(e, PAWL_BADARG, "%s_older_us %lld: 0 is the default, 1 all that has ended",
                         how->done_older_us < 0 ? "done" : "keys",
                         (long long)(how->done_older_us < 0 ? how->done_older_us
                                                            : how->keys_older_us));
    return st->ops->prune(st, how, out, e);
}
