// SPDX-License-Identifier: Apache-2.0
/* c_args.c - pawl_arg: a member of the args by name or by JSON Pointer (RFC 6901).
 *
 * May assume: the args passed the engine's check (engine_admit): they are JSON.
 * Keeps: a number is read as JSON writes it, whatever locale the program has set; out is written
 *        only on success.
 */
#include "base/err.h"
#include "base/json.h"
#include "handler/c_run.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { STEP_BYTES = LIMIT_KEY_BYTES }; /* a longer name in a pointer is refused */

/* A value inside the args. */
struct slice {
    const char *p;
    size_t n;
    enum json_type type;
};

static const char *type_name(enum json_type t)
{
    static const char *const names[] = {
        [JSON_NULL] = "null", [JSON_FALSE] = "a boolean", [JSON_TRUE] = "a boolean",
        [JSON_NUMBER] = "a number", [JSON_STRING] = "a string", [JSON_ARRAY] = "an array",
        [JSON_OBJECT] = "an object",
    };

    return names[t];
}

/* The whole args, without the white space around them. */
static struct slice whole(const struct pawl_run *run)
{
    struct slice s = {.p = run->args, .n = run->args_bytes, .type = JSON_NULL};

    while (s.n > 0 && strchr(" \t\r\n", *s.p) != NULL) s.p++, s.n--;
    while (s.n > 0 && strchr(" \t\r\n", s.p[s.n - 1]) != NULL) s.n--;
    switch (s.n > 0 ? *s.p : 'n') {
    case '{': s.type = JSON_OBJECT; break;
    case '[': s.type = JSON_ARRAY; break;
    case '"': s.type = JSON_STRING; break;
    case 't': s.type = JSON_TRUE; break;
    case 'f': s.type = JSON_FALSE; break;
    case 'n': s.type = JSON_NULL; break;
    default: s.type = JSON_NUMBER;
    }
    return s;
}

static enum pawl_rc absent(const char *name, struct pawl_error *e)
{
    return pawl_fail(e, PAWL_NOTFOUND, "args lack \"%.200s\"", name);
}

/* Into member `key` of the object s. name: as asked for, for texts. */
static enum pawl_rc into_member(struct slice *s, const char *key, const char *name,
                                struct pawl_error *e)
{
    struct slice in = *s;
    int found;

    if (in.type != JSON_OBJECT) {
        return pawl_fail(e, PAWL_BADDATA, "args: \"%.200s\" is to be found in %s, which has no"
                         " members", name, type_name(in.type));
    }
    found = json_member(in.p, in.n, key, &s->p, &s->n, &s->type);
    if (found < 0) {
        return pawl_fail(e, PAWL_BADDATA, "args hold \"%.200s\" twice (%.80s)", name, key);
    }
    return found == 0 ? absent(name, e) : PAWL_OK;
}

static enum pawl_rc into_item(struct slice *s, const char *key, const char *name,
                              struct pawl_error *e)
{
    struct slice in = *s;
    size_t pos = 0, want = 0, n = strlen(key);

    if (n == 0 || n > 9 || strspn(key, "0123456789") != n || (n > 1 && key[0] == '0')) {
        return pawl_fail(e, PAWL_BADDATA, "args: \"%.200s\" is to be found in an array, and"
                         " \"%.80s\" is no index", name, key);
    }
    for (size_t i = 0; i < n; i++) want = want * 10 + (size_t)(key[i] - '0');
    while (json_next_item(in.p, in.n, &pos, &s->p, &s->n, &s->type)) {
        if (want-- == 0) return PAWL_OK;
    }
    return absent(name, e);
}

/* One step of a pointer, "~1" and "~0" decoded. *p is moved behind it. */
static enum pawl_rc next_step(const char **p, char out[STEP_BYTES + 1], const char *name,
                              struct pawl_error *e)
{
    const char *c = *p;
    size_t n = 0;

    for (; *c != '\0' && *c != '/'; c++) {
        char put = *c;
        if (put == '~' && c[1] != '0' && c[1] != '1') {
            return pawl_fail(e, PAWL_BADARG, "\"%.200s\" is no JSON Pointer: ~ is followed by"
                             " neither 0 nor 1", name);
        }
        if (put == '~') put = *++c == '0' ? '~' : '/';
        if (n == STEP_BYTES) {
            return pawl_fail(e, PAWL_BADARG, "\"%.80s...\": a name of more than %d bytes", name,
                             STEP_BYTES);
        }
        out[n++] = put;
    }
    out[n] = '\0';
    *p = c;
    return PAWL_OK;
}

static enum pawl_rc find(const struct pawl_run *run, const char *name, struct slice *s,
                         struct pawl_error *e)
{
    char step[STEP_BYTES + 1];
    const char *p = name;
    enum pawl_rc rc = PAWL_OK;

    *s = whole(run);
    if (*p != '\0' && *p != '/') return into_member(s, name, name, e);
    while (*p == '/' && rc == PAWL_OK) {
        p++;
        if ((rc = next_step(&p, step, name, e)) != PAWL_OK) return rc;
        if (s->type == JSON_NULL) return absent(name, e);
        rc = s->type == JSON_ARRAY ? into_item(s, step, name, e) : into_member(s, step, name, e);
    }
    return rc;
}

static enum pawl_rc other_type(const char *name, const struct slice *s, const char *want,
                               struct pawl_error *e)
{
    return pawl_fail(e, PAWL_BADDATA, "args: \"%.200s\" is %s, not %s", name, type_name(s->type),
                     want);
}

static enum pawl_rc take_number(struct c_run *r, const char *name, int want, const struct slice *s,
                                struct pawl_value *v, struct pawl_error *e)
{
    enum json_int kind = json_int64(s->p, s->n, &v->i);
    char *text;

    v->type = PAWL_INT;
    if (kind == JSON_INT_OK && want != PAWL_REAL) return PAWL_OK;
    if (kind == JSON_INT_RANGE && want != PAWL_REAL) {
        return pawl_fail(e, PAWL_BADDATA, "args: \"%.200s\" is an integer beyond 64 bits", name);
    }
    if (want == PAWL_INT) {
        return pawl_fail(e, PAWL_BADDATA, "args: \"%.200s\" is %.*s, not an integer", name,
                         (int)(s->n < 40 ? s->n : 40), s->p);
    }
    text = arena_dup(r->arena, s->p, s->n);
    if (text == NULL) return pawl_fail(e, PAWL_NOMEM, "args: \"%.200s\": out of memory", name);
    v->type = PAWL_REAL;
    v->r = strtod_l(text, NULL, r->h->c_locale);
    if (isfinite(v->r)) return PAWL_OK;
    return pawl_fail(e, PAWL_BADDATA, "args: \"%.200s\" is beyond the range of a real number",
                     name);
}

static enum pawl_rc take_string(struct c_run *r, const char *name, const struct slice *s,
                                struct pawl_value *v, struct pawl_error *e)
{
    struct buf *b = &r->h->text;
    const char *p = s->p + 1;
    size_t n = s->n - 2;

    v->type = PAWL_TEXT;
    if (memchr(p, '\\', n) != NULL) {
        buf_clear(b);
        if (!json_unescape(s->p, s->n, b)) {
            return pawl_fail(e, PAWL_BADDATA, "args: \"%.200s\" holds half a surrogate pair", name);
        }
        if (b->failed) return pawl_fail(e, PAWL_NOMEM, "args: \"%.200s\": out of memory", name);
        p = buf_str(b);
        n = b->n;
    }
    v->n = n;
    v->p = arena_dup(r->arena, p, n);
    return v->p != NULL ? PAWL_OK
                        : pawl_fail(e, PAWL_NOMEM, "args: \"%.200s\": out of memory", name);
}

static enum pawl_rc take_raw(struct c_run *r, const char *name, const struct slice *s,
                             struct pawl_value *v, struct pawl_error *e)
{
    v->type = PAWL_JSON;
    v->n = s->n;
    v->p = arena_dup(r->arena, s->p, s->n);
    return v->p != NULL ? PAWL_OK
                        : pawl_fail(e, PAWL_NOMEM, "args: \"%.200s\": out of memory", name);
}

static enum pawl_rc take(struct c_run *r, const char *name, int want, const struct slice *s,
                         struct pawl_value *v, struct pawl_error *e)
{
    bool any = want < 0;

    if (s->type == JSON_NULL) {
        return pawl_fail(e, PAWL_NOTFOUND, "args: \"%.200s\" is null", name);
    }
    if (want == PAWL_JSON) return take_raw(r, name, s, v, e);
    if (want == PAWL_INT || want == PAWL_REAL || (any && s->type == JSON_NUMBER)) {
        if (s->type != JSON_NUMBER) {
            return other_type(name, s, want == PAWL_INT ? "an integer" : "a number", e);
        }
        return take_number(r, name, want, s, v, e);
    }
    if (want == PAWL_TEXT || (any && s->type == JSON_STRING)) {
        if (s->type != JSON_STRING) return other_type(name, s, "a string", e);
        return take_string(r, name, s, v, e);
    }
    if (want == PAWL_BOOL || (any && (s->type == JSON_TRUE || s->type == JSON_FALSE))) {
        if (s->type != JSON_TRUE && s->type != JSON_FALSE) {
            return other_type(name, s, "a boolean", e);
        }
        v->type = PAWL_BOOL;
        v->i = s->type == JSON_TRUE;
        return PAWL_OK;
    }
    if (any) return take_raw(r, name, s, v, e);
    return pawl_fail(e, PAWL_BADARG, "args have no values of type %d", want);
}

enum pawl_rc c_arg(struct pawl_run *run, const char *name, int want, struct pawl_value *out,
                   struct pawl_error *e)
{
    struct c_run *r = c_run_of(run);
    struct pawl_value v = {.name = name, .type = PAWL_NULL};
    struct pawl_error spare;
    struct slice s;
    enum pawl_rc rc;

    if (e == NULL) e = &spare;
    if (r->phase == C_OVER) return pawl_fail(e, PAWL_TOOLATE, "the run is over");
    if (name == NULL || out == NULL) {
        return pawl_fail(e, PAWL_BADARG, "pawl_arg: the name, or the place for the value, is NULL");
    }
    if ((rc = find(run, name, &s, e)) != PAWL_OK) return rc;
    if ((rc = take(r, name, want, &s, &v, e)) != PAWL_OK) return rc;
    *out = v;
    return PAWL_OK;
}
