// SPDX-License-Identifier: Apache-2.0
/* exec_reply.c - the verdict a child may write to its reply descriptor: one JSON object with one
 * member, read strictly. Whatever is not exactly that is a protocol failure that says where.
 */
#include "base/json.h"
#include "handler/exec_parts.h"

#include <inttypes.h>
#include <string.h>

/* What each verdict may hold. "step" is a word of the protocol that this version does not have: to
 * ignore it would drop an effect in silence. */
enum { M_ID = 1, M_RESULT = 2, M_ERROR = 4, M_AFTER = 8, M_LATER = 16, M_WRITES = 32,
       M_ENQUEUE = 64 };
static const struct { const char *name; unsigned bit; } members[] = {
    {"id", M_ID},          {"result", M_RESULT},  {"error", M_ERROR}, {"after_ms", M_AFTER},
    {"writes", M_WRITES},   {"enqueue", M_ENQUEUE},  {"step", M_LATER},
};
static const struct { const char *name; enum outcome outcome; unsigned allowed; } verbs[] = {
    {"done", OUT_DONE, M_ID | M_RESULT | M_WRITES | M_ENQUEUE},
    {"retry", OUT_TRANSIENT, M_ID | M_ERROR | M_AFTER},
    {"fail", OUT_PERMANENT, M_ID | M_ERROR},
    {"snooze", OUT_SNOOZE, M_ID | M_ERROR | M_AFTER},
    /* Words of the protocol of long-lived children. */
    {"writes", OUT_N, 0}, {"enqueue", OUT_N, 0}, {"step", OUT_N, 0},
    {"ready", OUT_N, 0}, {"start", OUT_N, 0}, {"progress", OUT_N, 0}, {"log", OUT_N, 0},
};
enum { MEMBERS_N = sizeof members / sizeof *members, VERBS_N = sizeof verbs / sizeof *verbs };

struct reading {
    const char *text; /* the whole reply, for offsets */
    const struct job *job;
    const struct conf_task *task;
    struct arena *arena;
    struct exec_verdict *v;
    struct buf why;   /* set: broken */
};

/* Note the first fault; its offset is that of the byte `at` points to. */
__attribute__((format(printf, 3, 4))) static void broken(struct reading *r, const char *at,
                                                         const char *fmt, ...)
{
    va_list ap;

    if (r->why.n > 0) return;
    buf_puts(&r->why, "protocol: ");
    va_start(ap, fmt);
    buf_vprintf(&r->why, fmt, ap);
    va_end(ap);
    if (at != NULL) buf_printf(&r->why, " (byte %zu of the reply)", (size_t)(at - r->text));
}

static bool is(const char *name, size_t n, const char *word)
{
    return strlen(word) == n && memcmp(name, word, n) == 0;
}

static void read_error(struct reading *r, const char *val, size_t n, enum json_type type)
{
    struct buf plain = {0}, kept = {0};
    struct tail t;

    if (type == JSON_NULL) return;
    if (type != JSON_STRING) {
        broken(r, val, "\"error\" must be a string");
        return;
    }
    tail_init(&t, LIMIT_ERROR_HEAD, LIMIT_ERROR_TAIL);
    if (!json_unescape(val, n, &plain)) {
        broken(r, val, "\"error\" holds half a surrogate pair");
    } else {
        tail_put(&t, plain.data, plain.n);
        tail_render(&t, &kept);
        r->v->error = exec_text(r->arena, kept.data, kept.n);
    }
    tail_fini(&t);
    buf_free(&plain);
    buf_free(&kept);
}

static void read_after(struct reading *r, const char *val, size_t n, enum json_type type)
{
    static const int64_t ms_max = 3650LL * 24 * 3600 * 1000;
    int64_t ms = 0;

    if (type != JSON_NUMBER || json_int64(val, n, &ms) != JSON_INT_OK || ms < 0 || ms > ms_max) {
        broken(r, val, "\"after_ms\" must be a whole number of milliseconds from 0 to ten years");
        return;
    }
    r->v->after_us = ms * 1000;
}

/* A child knows its own job only: an id, if it gives one, must be that job's. */
static void read_id(struct reading *r, const char *val, size_t n, enum json_type type)
{
    int64_t id = 0;
    bool quoted = type == JSON_STRING && n > 2;

    if (quoted) {
        val++;
        n -= 2;
    }
    if ((!quoted && type != JSON_NUMBER) || json_int64(val, n, &id) != JSON_INT_OK
        || id != r->job->id) {
        broken(r, val, "the verdict is for another job than %" PRId64, r->job->id);
    }
}

/* The form alone: whether the task has such a write is found out where it is done. */
static void read_write(struct reading *r, const char *item, size_t n, enum json_type type)
{
    const char *name, *val;
    size_t pos = 0, name_n, val_n;
    bool has_do = false, has_args = false;

    if (type != JSON_OBJECT) {
        broken(r, item, "a write must be an object");
        return;
    }
    while (r->why.n == 0 && json_next(item, n, &pos, &name, &name_n, &val, &val_n, &type)) {
        const bool is_do = is(name, name_n, "do"), is_args = is(name, name_n, "args");

        if (!is_do && !is_args) {
            broken(r, name, "\"%.*s\" is not a member of a write", (int)(name_n < 64 ? name_n : 64),
                   name);
        } else if (is_do ? has_do : has_args) {
            broken(r, name, "\"%s\" is there twice", is_do ? "do" : "args");
        } else if (type != (is_do ? JSON_STRING : JSON_OBJECT)) {
            broken(r, val, is_do ? "\"do\" must be the name of a write" :
                   "\"args\" of a write must be an object");
        }
        has_do = has_do || is_do;
        has_args = has_args || is_args;
    }
    if (!has_do) broken(r, item, "a write without \"do\", the name of a write");
}

static void read_writes(struct reading *r, const char *val, size_t n, enum json_type type)
{
    const char *item;
    size_t pos = 0, item_n, count = 0;

    if (r->task == NULL || r->task->writes_n == 0) {
        broken(r, val, "\"writes\", and the task declares none (write.NAME in its section)");
    } else if (type != JSON_ARRAY) {
        broken(r, val, "\"writes\" must be an array");
    }
    while (r->why.n == 0 && json_next_item(val, n, &pos, &item, &item_n, &type)) {
        if (++count > LIMIT_WRITES) broken(r, item, "more than %d writes", LIMIT_WRITES);
        else read_write(r, item, item_n, type);
    }
    r->v->writes = val;
    r->v->writes_bytes = n;
}

/* The form of its items, too, is looked at where it is done. */
static void read_enqueue(struct reading *r, const char *val, size_t n, enum json_type type)
{
    const char *item;
    size_t pos = 0, item_n, count = 0;

    if (r->task == NULL || !r->task->enqueues) {
        broken(r, val, "\"enqueue\", and the task has not said enqueue = yes");
    } else if (type != JSON_ARRAY) {
        broken(r, val, "\"enqueue\" must be an array of requests");
    }
    while (r->why.n == 0 && json_next_item(val, n, &pos, &item, &item_n, &type)) {
        if (++count > LIMIT_ENQUEUES) broken(r, item, "more than %d requests", LIMIT_ENQUEUES);
    }
    r->v->enqueue = val;
    r->v->enqueue_bytes = n;
}

static void read_member(struct reading *r, unsigned bit, const char *val, size_t n,
                        enum json_type type)
{
    if (bit == M_ID) read_id(r, val, n, type);
    if (bit == M_AFTER) read_after(r, val, n, type);
    if (bit == M_ERROR) read_error(r, val, n, type);
    if (bit == M_WRITES) read_writes(r, val, n, type);
    if (bit == M_ENQUEUE) read_enqueue(r, val, n, type);
    if (bit == M_RESULT) {
        r->v->result = val;
        r->v->result_bytes = n;
    }
}

static void read_body(struct reading *r, size_t verb, const char *body, size_t n)
{
    const char *name, *val;
    size_t pos = 0, name_n, val_n;
    enum json_type type;
    unsigned seen = 0;

    while (r->why.n == 0 && json_next(body, n, &pos, &name, &name_n, &val, &val_n, &type)) {
        size_t i = 0;
        while (i < MEMBERS_N && !is(name, name_n, members[i].name)) i++;
        if (i < MEMBERS_N && members[i].bit == M_LATER) {
            broken(r, name, "\"%s\" in a verdict is not in this version", members[i].name);
        } else if (i == MEMBERS_N || !(verbs[verb].allowed & members[i].bit)) {
            broken(r, name, "\"%.*s\" is not a member of \"%s\"", (int)(name_n < 64 ? name_n : 64),
                   name, verbs[verb].name);
        } else if (seen & members[i].bit) {
            broken(r, name, "\"%s\" is there twice", members[i].name);
        } else {
            seen |= members[i].bit;
            read_member(r, members[i].bit, val, val_n, type);
        }
    }
}

static void read_verdict(struct reading *r, const char *p, size_t n)
{
    const char *name, *val;
    size_t pos = 0, name_n, val_n, i = 0;
    enum json_type type;

    if (!json_next(p, n, &pos, &name, &name_n, &val, &val_n, &type)) {
        broken(r, p, "the verdict is empty: say done, retry, fail or snooze");
        return;
    }
    while (i < VERBS_N && !is(name, name_n, verbs[i].name)) i++;
    if (i == VERBS_N) {
        broken(r, name, "\"%.*s\" is no verdict: say done, retry, fail or snooze",
               (int)(name_n < 64 ? name_n : 64), name);
    } else if (verbs[i].outcome == OUT_N) {
        broken(r, name, "\"%s\" from a one-shot program is not in this version", verbs[i].name);
    } else if (type != JSON_OBJECT) {
        broken(r, val, "\"%s\" must hold an object", verbs[i].name);
    } else {
        r->v->outcome = verbs[i].outcome;
        read_body(r, i, val, val_n);
        if (json_next(p, n, &pos, &name, &name_n, &val, &val_n, &type)) {
            broken(r, name, "a second verdict");
        }
    }
}

void exec_verdict_parse(const char *p, size_t n, uint64_t total, const struct job *job,
                        const struct conf_task *task, struct arena *a, struct exec_verdict *out)
{
    struct reading r = {.text = p, .job = job, .task = task, .arena = a, .v = out};
    enum json_type type = JSON_NULL;
    struct json_err err = {0};
    size_t blank = 0;

    *out = (struct exec_verdict){.kind = EXEC_REPLY_VERDICT, .outcome = OUT_TRANSIENT};
    while (blank < n && strchr(" \t\r\n", p[blank]) != NULL && p[blank] != '\0') blank++;
    if (blank == n && total == n) {
        out->kind = EXEC_REPLY_NONE;
        return;
    }
    if (total > n) {
        broken(&r, NULL, "the reply has %" PRIu64 " bytes or more, the limit is %d", total,
               LIMIT_REPLY_BYTES);
    } else if (!json_check(p, n, LIMIT_JSON_DEPTH, &type, &err)) {
        broken(&r, p + err.at, "the reply is not one JSON object: %s", err.why);
    } else if (type != JSON_OBJECT) {
        broken(&r, p + blank, "the reply must be a JSON object");
    } else {
        read_verdict(&r, p, n);
    }
    if (r.why.n > 0 || r.why.failed) {
        const char *why = exec_text(a, r.why.data, r.why.n);
        *out = (struct exec_verdict){.kind = EXEC_REPLY_BROKEN, .outcome = OUT_TRANSIENT,
                                     .error = why != NULL ? why : "protocol: unreadable reply"};
    }
    buf_free(&r.why);
}
