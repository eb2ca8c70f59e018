// SPDX-License-Identifier: Apache-2.0
/* entity.c - take the version guard's entity and version out of the args, as the policy names them.
 *
 * What the enqueue said explicitly wins. Both are needed, or neither: a guard with half its
 * information would be a silent hole.
 */
#include <stdio.h>
#include <string.h>
#include "base/json.h"
#include "core/rules.h"

/* The member `name` (":sku" -> "sku") of the args; false: *why says what is wrong. */
static bool member(const struct job *job, const char *name, const char **at, size_t *len,
                   enum json_type *type, char *why, size_t why_n)
{
    const int found = json_member(job->args, job->args_bytes, name + 1, at, len, type);

    if (found == 1)
        return true;
    snprintf(why, why_n, "args have %s \"%s\", which the task's version guard needs",
             found < 0 ? "more than one" : "no", name + 1);
    return false;
}

static bool take_entity(const struct policy *p, struct job *job, struct arena *a, char *why,
                        size_t why_n)
{
    enum json_type type;
    struct buf text = {0};
    const char *at = NULL, *rule = NULL;
    size_t len = 0;
    bool ok = false;

    if (!member(job, p->entity, &at, &len, &type, why, why_n))
        return false;
    if (type == JSON_STRING)
        ok = json_unescape(at, len, &text) && !text.failed && memchr(buf_str(&text), 0,
                text.n) == NULL;
    else if (type == JSON_NUMBER)
        buf_put(&text, at, len), ok = !text.failed;
    ok = ok && text.n > 0 && key_ok(buf_str(&text), &rule);
    if (ok)
        job->entity = arena_dup(a, text.data, text.n);
    else
        snprintf(why, why_n, "\"%s\" must be a string of 1..255 bytes or a number: it is the entity"
                 " of the version guard", p->entity + 1);
    buf_free(&text);
    return ok && job->entity != NULL;
}

bool entity_take(const struct policy *p, struct job *job, struct arena *a, char *why, size_t why_n)
{
    enum json_type type;
    const char *at = NULL;
    size_t len = 0;

    if (p->entity[0] == '\0' || (job->entity != NULL && job->has_version))
        return true;
    if (job->entity == NULL && !take_entity(p, job, a, why, why_n))
        return false;
    if (job->has_version)
        return true;
    if (!member(job, p->version, &at, &len, &type, why, why_n))
        return false;
    if (type != JSON_NUMBER || json_int64(at, len, &job->version) != JSON_INT_OK) {
        snprintf(why, why_n, "\"%s\" must be a 64-bit integer: it is the version of the version"
                             " guard",
                 p->version + 1);
        return false;
    }
    job->has_version = true;
    return true;
}
