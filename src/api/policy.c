// SPDX-License-Identifier: Apache-2.0
/* policy.c - policies given as text: parsed, declared, compared in words. */
#include "api/api.h"

#include <string.h>

#include "base/text.h"

enum { LINE_MAX_BYTES = 1024 };

/* --- parsing --- */

/* One setting of n bytes, `line` counted from 1. */
struct setting {
    char name[64], value[LINE_MAX_BYTES];
    int line;
};

static bool blank(char c)
{
    return c == ' ' || c == '\t' || c == '\r';
}

/* Without the blanks around it; false: too long. */
static bool copy_trimmed(char *out, size_t room, const char *p, size_t n)
{
    while (n > 0 && blank(*p)) p++, n--;
    while (n > 0 && blank(p[n - 1])) n--;
    if (n >= room) return false;
    memcpy(out, p, n);
    out[n] = '\0';
    return true;
}

static enum pawl_rc bad(struct pawl_error *e, const char *task, int line, const char *what)
{
    return pawl_fail(e, PAWL_CONFIG, "task %s: policy line %d: %s", task, line, what);
}

/* *s filled; its name is "" for a line that says nothing. */
static enum pawl_rc split(const char *p, size_t n, const char *task, struct setting *s,
                          struct pawl_error *e)
{
    const char *eq;

    s->name[0] = '\0';
    while (n > 0 && blank(*p)) p++, n--;
    if (n == 0 || *p == '#' || *p == ';') return PAWL_OK;
    if ((eq = memchr(p, '=', n)) == NULL) return bad(e, task, s->line, "expected NAME = VALUE");
    if (!copy_trimmed(s->name, sizeof s->name, p, (size_t)(eq - p))
        || !copy_trimmed(s->value, sizeof s->value, eq + 1, n - (size_t)(eq + 1 - p)))
        return bad(e, task, s->line, "the line is too long");
    return s->name[0] != '\0' ? PAWL_OK : bad(e, task, s->line, "expected NAME = VALUE");
}

static size_t names_count(void)
{
    size_t n = 0;

    while (policy_names()[n] != NULL) n++;
    return n;
}

static enum pawl_rc set(struct api_policy *out, const struct setting *s, const char *task,
                        struct pawl_error *e)
{
    bool unknown = false;
    char why[256] = "";
    int near;

    if (policy_set(&out->p, s->name, s->value, &unknown, why, sizeof why)) return PAWL_OK;
    if (!unknown)
        return pawl_fail(e, PAWL_CONFIG, "task %s: policy line %d: %s = %.100s: %s", task, s->line,
                         s->name, s->value, why);
    near = text_nearest(s->name, policy_names(), names_count());
    return pawl_fail(e, PAWL_CONFIG, "task %s: policy line %d: unknown setting %s%s%s%s", task,
                     s->line, s->name, near >= 0 ? " (did you mean " : "",
                     near >= 0 ? policy_names()[near] : "", near >= 0 ? "?)" : "");
}

/* Which of the settings came already, to refuse a second one. */
static enum pawl_rc once(uint64_t *seen, const struct setting *s, const char *task,
                         struct pawl_error *e)
{
    for (size_t i = 0; policy_names()[i] != NULL && i < 64; i++) {
        if (strcmp(policy_names()[i], s->name) != 0) continue;
        if (*seen >> i & 1)
            return pawl_fail(e, PAWL_CONFIG, "task %s: policy line %d: %s is set twice", task,
                             s->line, s->name);
        *seen |= UINT64_C(1) << i;
    }
    return PAWL_OK;
}

static void note(struct api_policy *out, const char *name)
{
    static const char *const exec_only[] = {"zero_rows", "transient", "permanent", "discard"};

    if (strcmp(name, "hard_limit") == 0) out->own_hard_limit = true;
    if (strcmp(name, "soft_limit") == 0) out->idle = "soft_limit";
    for (size_t i = 0; i < sizeof exec_only / sizeof *exec_only; i++)
        if (strcmp(name, exec_only[i]) == 0) out->idle = exec_only[i];
}

enum pawl_rc api_policy_parse(const char *text, const char *task, struct api_policy *out,
                              struct pawl_error *e)
{
    struct setting s = {.line = 0};
    uint64_t seen = 0;
    char why[256] = "";
    enum pawl_rc rc;

    memset(out, 0, sizeof *out);
    policy_defaults(&out->p);
    for (const char *p = text != NULL ? text : ""; *p != '\0';) {
        const char *end = strchrnul(p, '\n');
        s.line++;
        if ((rc = split(p, (size_t)(end - p), task, &s, e)) != PAWL_OK) return rc;
        if (s.name[0] != '\0') {
            if ((rc = once(&seen, &s, task, e)) != PAWL_OK
                || (rc = set(out, &s, task, e)) != PAWL_OK)
                return rc;
            note(out, s.name);
        }
        p = *end == '\0' ? end : end + 1;
    }
    if (policy_check(&out->p, why, sizeof why)) return PAWL_OK;
    return pawl_fail(e, PAWL_CONFIG, "task %s: policy: %s", task, why);
}

/* --- declaring --- */

/* The lines in which two policies differ, "name = stored (given: value)". Both texts are canonical:
 * the same settings in the same order. */
static bool put_differences(const struct policy *stored, const struct policy *given,
                            struct buf *out)
{
    struct buf a = {0}, b = {0};
    const char *p, *q;
    bool fine;

    policy_text(stored, &a);
    policy_text(given, &b);
    p = buf_str(&a);
    q = buf_str(&b);
    while (*p != '\0' && *q != '\0') {
        const size_t pn = strcspn(p, "\n"), qn = strcspn(q, "\n");
        if (pn != qn || memcmp(p, q, pn) != 0) {
            const char *eq = memchr(q, '=', qn);
            const size_t skip = eq != NULL ? (size_t)(eq - q) + 1 : 0;
            buf_put(out, p, pn);
            buf_printf(out, " (given:%.*s)\n", (int)(qn - skip), q + skip);
        }
        p += pn + (p[pn] == '\n');
        q += qn + (q[qn] == '\n');
    }
    fine = !a.failed && !b.failed && !out->failed;
    buf_free(&a);
    buf_free(&b);
    return fine;
}

static enum pawl_rc drift(const char *name, struct buf *differs, struct pawl_error *e)
{
    struct buf line = {0};
    enum pawl_rc rc;

    buf_puts(&line, buf_str(differs));
    for (size_t i = 0; i + 1 < line.n; i++)
        if (line.data[i] == '\n') line.data[i] = ';';
    if (line.n > 0) line.n--; /* the last newline */
    rc = pawl_fail(e, PAWL_DRIFT, "task %s: another policy is stored; set replace_policies (of"
                   " pawl_worker_open) or replace (of pawl_task_put), or give the same: %.*s",
                   name, (int)(line.n < 500 ? line.n : 500), buf_str(&line));
    buf_free(&line);
    return rc;
}

enum pawl_rc api_declare(struct store *st, const char *name, const struct policy *p, bool replace,
                         int64_t *id, struct policy *stored, struct buf *differs,
                         struct pawl_error *e)
{
    struct buf text = {0};
    bool other = false;
    char why[256] = "";
    enum pawl_rc rc;

    rc = store_task_declare(st, name, p, false, id, &text, &other, e);
    if (rc != PAWL_OK) goto out;
    policy_defaults(stored);
    if (!policy_parse(stored, buf_str(&text), why, sizeof why) && !replace) {
        rc = pawl_fail(e, PAWL_CONFIG, "task %s: the stored policy cannot be read: %s; set"
                       " replace_policies (of pawl_worker_open) or replace (of pawl_task_put)",
                       name, why);
        goto out;
    }
    if (other && !put_differences(stored, p, differs)) {
        rc = pawl_fail(e, PAWL_NOMEM, "out of memory");
        goto out;
    }
    /* Written otherwise by another version, but saying the same: no difference. */
    if (other && !replace && differs->n > 0) rc = drift(name, differs, e);
    if (other && replace) {
        buf_clear(&text);
        rc = store_task_declare(st, name, p, true, id, &text, &other, e);
        *stored = *p;
    }
out:
    buf_free(&text);
    return rc;
}

enum pawl_rc pawl_task_put(struct pawl *p, const char *name, const char *policy, bool replace,
                           char **differs, struct pawl_error *e)
{
    WITH_ERROR(e);
    struct api_policy given;
    struct policy stored;
    struct buf lines = {0};
    const char *why = NULL;
    int64_t id = 0;
    enum pawl_rc rc = api_need_writer(p, e);

    if (differs) *differs = NULL;
    if (rc != PAWL_OK) return rc;
    if (name == NULL || !name_ok(name, &why))
        return pawl_fail(e, PAWL_BADARG, "task \"%.80s\": %s", name != NULL ? name : "",
                         name != NULL ? why : "a name is needed");
    if ((rc = api_policy_parse(policy, name, &given, e)) != PAWL_OK) return rc;
    api_enter(&p->log);
    rc = api_declare(p->st, name, &given.p, replace, &id, &stored, &lines, e);
    if (differs && lines.n > 0 && (rc == PAWL_OK || rc == PAWL_DRIFT))
        *differs = buf_take(&lines);
    buf_free(&lines);
    return api_leave(&p->log, rc);
}
