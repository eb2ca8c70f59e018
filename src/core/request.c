// SPDX-License-Identifier: Apache-2.0
/* request.c - a request as JSON, read strictly: every member known, none twice. */
#include <string.h>

#include "base/err.h"
#include "base/json.h"
#include "base/text.h"
#include "core/limits.h"
#include "core/request.h"
#include "core/rules.h"

enum member { M_TASK, M_ARGS, M_KEY, M_SOURCE, M_QUEUE, M_PRIORITY, M_RUN_AT, M_EXPIRES_AT, M_IN,
              M_MAX_RETRIES, M_ENTITY, M_VERSION, M_HEADERS, M_N };
static const char *const member_names[M_N] = {
    "task", "args", "key", "source", "queue", "priority", "run_at", "expires_at", "in",
    "max_retries", "entity", "version", "headers"};

struct value { const char *p; size_t n; enum json_type type; };

/* A string member without NUL, in the arena. */
static enum pawl_rc get_text(const struct value *v, enum member m, struct arena *a,
                             const char **out, struct pawl_error *e)
{
    struct buf b = {0};
    enum pawl_rc rc = PAWL_OK;
    if (v->type != JSON_STRING)
        return pawl_fail(e, PAWL_BADDATA, "%s: must be a string", member_names[m]);
    if (!json_unescape(v->p, v->n, &b))
        rc = pawl_fail(e, PAWL_BADDATA, "%s: holds an unpaired surrogate", member_names[m]);
    else if (b.n > 0 && memchr(b.data, '\0', b.n))
        rc = pawl_fail(e, PAWL_BADDATA, "%s: holds a NUL", member_names[m]);
    else if (b.failed || !(*out = arena_dup(a, b.n ? b.data : "", b.n)))
        rc = pawl_fail(e, PAWL_NOMEM, "out of memory");
    buf_free(&b);
    return rc;
}

static enum pawl_rc get_int(const struct value *v, enum member m, int64_t min, int64_t max,
                            int64_t *out, struct pawl_error *e)
{
    if (v->type == JSON_NUMBER && json_int64(v->p, v->n, out) == JSON_INT_OK && *out >= min &&
        *out <= max)
        return PAWL_OK;
    if (min == INT64_MIN && max == INT64_MAX)
        return pawl_fail(e, PAWL_BADDATA, "%s %.*s: must be a whole number of at most 64 bits",
                         member_names[m], (int)(v->n > 40 ? 40 : v->n), v->p);
    return pawl_fail(e, PAWL_BADDATA, "%s %.*s: must be a whole number from %lld to %lld",
                     member_names[m], (int)(v->n > 40 ? 40 : v->n), v->p, (long long)min,
                     (long long)max);
}

static enum pawl_rc get_when(const struct value *v, enum member m, int64_t now_us, struct arena *a,
                             int64_t *out, struct pawl_error *e)
{
    const char *s = NULL, *why = NULL;
    enum pawl_rc rc = get_text(v, m, a, &s, e);
    if (rc != PAWL_OK) return rc;
    if (m == M_IN) {
        if (!text_duration_us(s, out))
            return pawl_fail(e, PAWL_BADDATA, "in '%.40s': must be a duration such as 10s", s);
        *out += now_us;
        return PAWL_OK;
    }
    if (!text_instant_us(s, out, &why))
        return pawl_fail(e, PAWL_BADDATA, "%s '%.60s': %s", member_names[m], s,
                         why ? why : "not an RFC 3339 time with a zone");
    if (*out < LIMIT_INSTANT_ODD_US) *out = LIMIT_INSTANT_ODD_US; /* long ago is long ago */
    return PAWL_OK;
}

static enum pawl_rc get_raw(const struct value *v, struct arena *a, const char **out,
                            struct pawl_error *e)
{
    *out = arena_dup(a, v->p, v->n);
    return *out ? PAWL_OK : pawl_fail(e, PAWL_NOMEM, "out of memory");
}

static enum pawl_rc take(enum member m, const struct value *v, int64_t now_us, struct arena *a,
                         struct pawl_request *r, struct pawl_error *e)
{
    int64_t i = 0;
    enum pawl_rc rc = PAWL_OK;
    if (v->type == JSON_NULL && m != M_ARGS && m != M_TASK) return PAWL_OK; /* as if absent */
    switch (m) {
    case M_TASK: return get_text(v, m, a, &r->task, e);
    case M_KEY: return get_text(v, m, a, &r->key, e);
    case M_SOURCE: return get_text(v, m, a, &r->source, e);
    case M_QUEUE: return get_text(v, m, a, &r->queue, e);
    case M_ENTITY: return get_text(v, m, a, &r->entity, e);
    case M_ARGS:
        r->args_bytes = v->n;
        return get_raw(v, a, &r->args, e);
    case M_HEADERS:
        if (v->type != JSON_OBJECT)
            return pawl_fail(e, PAWL_BADDATA, "headers: must be an object of strings");
        return get_raw(v, a, &r->headers, e);
    case M_PRIORITY:
        rc = get_int(v, m, -LIMIT_PRIORITY, LIMIT_PRIORITY, &i, e);
        r->priority = (int)i;
        r->has_priority = rc == PAWL_OK;
        return rc;
    case M_MAX_RETRIES:
        rc = get_int(v, m, 0, LIMIT_RETRIES, &i, e);
        r->max_retries = (int)i;
        r->has_max_retries = rc == PAWL_OK;
        return rc;
    case M_VERSION:
        rc = get_int(v, m, INT64_MIN, INT64_MAX, &r->version, e);
        r->has_version = rc == PAWL_OK;
        return rc;
    case M_RUN_AT:
    case M_IN: return get_when(v, m, now_us, a, &r->run_at_us, e);
    case M_EXPIRES_AT: return get_when(v, m, now_us, a, &r->expires_at_us, e);
    case M_N: break;
    }
    return pawl_fail(e, PAWL_BUG, "member %d", (int)m);
}

/* Which member a raw name means, or BADDATA naming it and the nearest one. */
static enum pawl_rc name_find(const char *raw, size_t n, int *m, struct pawl_error *e)
{
    struct buf b = {0};
    enum pawl_rc rc = PAWL_OK;
    const char *s = json_unescape(raw - 1, n + 2, &b) ? buf_str(&b) : "?"; /* with its quotes */
    for (*m = 0; *m < M_N; (*m)++)
        if (strlen(member_names[*m]) == b.n && strcmp(s, member_names[*m]) == 0) break;
    if (*m == M_N) {
        int near = text_nearest(s, member_names, M_N);
        rc = pawl_fail(e, PAWL_BADDATA, "unknown member '%.40s'%s%s%s", s,
                       near >= 0 ? "; the nearest is '" : "", near >= 0 ? member_names[near] : "",
                       near >= 0 ? "'" : "");
    }
    buf_free(&b);
    return rc;
}

enum pawl_rc request_parse(const char *s, size_t n, int64_t now_us, struct arena *a,
                           struct pawl_request *r, struct pawl_error *e)
{
    enum json_type type = JSON_NULL;
    struct json_err je = {0, NULL};
    const char *name;
    size_t name_n, pos = 0;
    struct value v;
    unsigned seen = 0;
    int m = 0;

    memset(r, 0, sizeof *r);
    if (!json_check(s, n, LIMIT_JSON_DEPTH + 1, &type, &je))
        return pawl_fail(e, PAWL_BADDATA, "not valid JSON at byte %zu: %s", je.at, je.why);
    if (type != JSON_OBJECT)
        return pawl_fail(e, PAWL_BADDATA,
                         "must be an object such as {\"task\":\"mail\",\"args\":{}}");
    while (json_next(s, n, &pos, &name, &name_n, &v.p, &v.n, &v.type)) {
        enum pawl_rc rc = name_find(name, name_n, &m, e);
        if (rc != PAWL_OK) return rc;
        if (seen & 1u << m)
            return pawl_fail(e, PAWL_BADDATA, "member '%s' is there twice", member_names[m]);
        seen |= 1u << m;
        if ((rc = take((enum member)m, &v, now_us, a, r, e)) != PAWL_OK) return rc;
    }
    if (!r->task) return pawl_fail(e, PAWL_BADDATA, "task is missing");
    if ((seen & 1u << M_RUN_AT) && (seen & 1u << M_IN))
        return pawl_fail(e, PAWL_BADDATA, "give run_at or in, not both");
    return PAWL_OK;
}
