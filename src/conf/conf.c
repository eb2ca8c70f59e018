// SPDX-License-Identifier: Apache-2.0
/* conf.c - read a pawl.conf: the file, its sections, and the keys of [pawl].
 *
 * Keeps: a struct conf exists only if every line was understood; defaults are set here and in
 *        core/policy.c, nowhere else.
 * Never: opens the store, runs anything, or looks at the environment.
 * See:   doc/config.md. The form of the file is ini.c's, the keys of [task NAME] are task.c's.
 */
#include "conf/conf.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/os.h"
#include "base/text.h"
#include "conf/parse.h"
#include "core/limits.h"
#include "core/rules.h"

#define SECOND_US INT64_C(1000000)
#define HOUR_US (3600 * SECOND_US)

enum pawl_rc parse_bad(struct parse *p, int line, const char *fmt, ...)
{
    struct buf b = {0};
    va_list ap;
    enum pawl_rc rc;

    va_start(ap, fmt);
    buf_vprintf(&b, fmt, ap);
    va_end(ap);
    rc = pawl_fail(p->e, PAWL_CONFIG, "%s:%d: %s", p->c->path, line, buf_str(&b));
    buf_free(&b);
    return rc;
}

enum pawl_rc parse_nomem(struct parse *p)
{
    return pawl_fail(p->e, PAWL_NOMEM, "%s: out of memory", p->c->path);
}

enum pawl_rc parse_unknown(struct parse *p, const struct ini_item *it, const char *where,
                           const char *const *names, size_t n)
{
    int near = text_nearest(it->name, names, n);
    struct buf all = {0};
    enum pawl_rc rc;

    if (near >= 0) {
        return parse_bad(p, it->line, "unknown key '%.80s' in [%s]; did you mean '%s'?", it->name,
                         where, names[near]);
    }
    for (size_t i = 0; i < n; i++) buf_printf(&all, "%s%s", i > 0 ? " " : "", names[i]);
    rc = parse_bad(p, it->line, "unknown key '%.80s' in [%s]; the keys are: %s", it->name, where,
                   buf_str(&all));
    buf_free(&all);
    return rc;
}

enum pawl_rc parse_once(struct parse *p, const struct ini_item *first, const struct ini_item *it)
{
    for (const struct ini_item *i = first; i != it; i = i->next) {
        if (strcmp(i->name, it->name) != 0) continue;
        return parse_bad(p, it->line, "%s is set before, in line %d; keep one", it->name, i->line);
    }
    return PAWL_OK;
}

const char *parse_path(struct parse *p, const char *path)
{
    struct buf b = {0};
    const char *dir = p->c->dir;
    const char *out;

    if (path[0] != '/' && strcmp(dir, ".") != 0) {
        buf_printf(&b, "%s%s", dir, strcmp(dir, "/") == 0 ? "" : "/");
    }
    buf_puts(&b, path);
    out = b.failed ? NULL : arena_strdup(&p->c->arena, buf_str(&b));
    buf_free(&b);
    return out;
}

size_t parse_count(const struct ini_item *it, const char *name)
{
    size_t n = 0;
    for (; it != NULL && !it->section; it = it->next) n += strcmp(it->name, name) == 0;
    return n;
}

/* "sqlite:PATH" or "PATH.db" -> "sqlite:" + the path as seen from here. */
static enum pawl_rc set_db(struct parse *p, const struct ini_item *it)
{
    const char *path = it->value;
    size_t n = strlen(path);
    bool scheme = path[strspn(path, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                    "0123456789+.-")] == ':';
    struct buf b = {0};

    if (strncmp(path, "postgresql:", 11) == 0 || strncmp(path, "postgres:", 9) == 0) {
        p->c->db = arena_strdup(&p->c->arena, path);
        return p->c->db != NULL ? PAWL_OK : parse_nomem(p);
    }
    if (strchr(path, '\n') != NULL) {
        return parse_bad(p, it->line, "db has several lines; write one sqlite:PATH");
    }
    if (strncmp(path, "sqlite:", 7) == 0) {
        path += 7;
    } else if (n < 4 || strcmp(path + n - 3, ".db") != 0 || scheme) {
        return parse_bad(p, it->line,
                         "db = %.80s: must be sqlite:PATH, a path ending in .db, or"
                         " postgresql://...",
                         path);
    }
    if (path[0] == '\0' || path[0] == ':' || strncmp(path, "file:", 5) == 0) {
        return parse_bad(p, it->line, "db = %.80s: a store is a file; write sqlite:PATH",
                         it->value);
    }
    path = parse_path(p, path);
    if (path == NULL) return parse_nomem(p);
    buf_printf(&b, "sqlite:%s", path);
    p->c->db = b.failed ? NULL : arena_strdup(&p->c->arena, buf_str(&b));
    buf_free(&b);
    return p->c->db != NULL ? PAWL_OK : parse_nomem(p);
}

static enum pawl_rc set_number(struct parse *p, const struct ini_item *it, int max, int *out)
{
    int64_t v;
    if (!text_int64(it->value, 1, max, &v)) {
        return parse_bad(p, it->line, "%s = %.80s: must be a whole number from 1 to %d", it->name,
                         it->value, max);
    }
    *out = (int)v;
    return PAWL_OK;
}

static enum pawl_rc set_concurrency(struct parse *p, const struct ini_item *it)
{
    return set_number(p, it, LIMIT_CONCURRENCY, &p->c->concurrency);
}

static enum pawl_rc set_runners(struct parse *p, const struct ini_item *it)
{
    return set_number(p, it, CONF_RUNNERS_MAX, &p->c->runners);
}

static enum pawl_rc set_duration(struct parse *p, const struct ini_item *it, int64_t min_us,
                                 int64_t max_us, int64_t *out)
{
    char lo[40], hi[40];

    if (!text_duration_us(it->value, out)) {
        return parse_bad(p, it->line,
                         "%s = %.80s: must be a duration like 250ms, 10s, 5m, 2h or 7d",
                         it->name, it->value);
    }
    if (*out < min_us || *out > max_us) {
        return parse_bad(p, it->line, "%s = %.80s: must be from %s to %s", it->name, it->value,
                         text_duration(min_us, lo, sizeof lo),
                         text_duration(max_us, hi, sizeof hi));
    }
    return PAWL_OK;
}

static enum pawl_rc set_grace(struct parse *p, const struct ini_item *it)
{
    return set_duration(p, it, 0, HOUR_US, &p->c->grace_us);
}

static enum pawl_rc set_lease(struct parse *p, const struct ini_item *it)
{
    return set_duration(p, it, SECOND_US, HOUR_US, &p->c->lease_us);
}

static enum pawl_rc set_wal_risk(struct parse *p, const struct ini_item *it)
{
    bool yes = strcmp(it->value, "yes") == 0;
    if (!yes && strcmp(it->value, "no") != 0) {
        return parse_bad(p, it->line, "accept_wal_risk = %.80s: must be yes or no", it->value);
    }
    p->c->accept_wal_risk = yes;
    return PAWL_OK;
}

static enum pawl_rc add_on_connect(struct parse *p, const struct ini_item *it)
{
    struct pawl_error why = {0};
    struct sql_scan scan;
    enum pawl_rc rc = sql_scan_setup(it->value, &p->c->arena, &scan, &why);

    if (rc == PAWL_NOMEM) return parse_nomem(p);
    if (rc != PAWL_OK) return parse_bad(p, it->line, "on_connect: %s", why.msg);
    if (scan.dollar_quotes) return parse_bad(p, it->line, "on_connect: write strings as '...'");
    if (p->c->on_connect_n >= LIMIT_STATEMENTS) {
        return parse_bad(p, it->line, "more than %d on_connect statements", LIMIT_STATEMENTS);
    }
    if (p->on_connect == NULL) {
        p->on_connect = arena_alloc(&p->c->arena, LIMIT_STATEMENTS * sizeof *p->on_connect);
        if (p->on_connect == NULL) return parse_nomem(p);
        p->c->on_connect = p->on_connect;
    }
    p->on_connect[p->c->on_connect_n] = arena_dup(&p->c->arena, it->value, scan.end);
    if (p->on_connect[p->c->on_connect_n] == NULL) return parse_nomem(p);
    p->c->on_connect_n++;
    return PAWL_OK;
}

static const struct pawl_key {
    const char *name;
    bool repeat;
    enum pawl_rc (*set)(struct parse *p, const struct ini_item *it);
} pawl_keys[] = {
    {"db", false, set_db},
    {"concurrency", false, set_concurrency},
    {"runners", false, set_runners},
    {"grace", false, set_grace},
    {"lease", false, set_lease},
    {"on_connect", true, add_on_connect},
    {"accept_wal_risk", false, set_wal_risk},
};
enum { PAWL_KEY_N = sizeof pawl_keys / sizeof pawl_keys[0] };

static enum pawl_rc pawl_key(struct parse *p, const struct ini_item *first,
                             const struct ini_item *it)
{
    const char *names[PAWL_KEY_N];
    enum pawl_rc rc;

    for (size_t i = 0; i < PAWL_KEY_N; i++) {
        const struct pawl_key *k = &pawl_keys[i];
        names[i] = k->name;
        if (strcmp(k->name, it->name) != 0) continue;
        if (!k->repeat && (rc = parse_once(p, first, it)) != PAWL_OK) return rc;
        if (it->value[0] == '\0') return parse_bad(p, it->line, "%s has no value", it->name);
        return k->set(p, it);
    }
    return parse_unknown(p, it, "pawl", names, PAWL_KEY_N);
}

static enum pawl_rc pawl_section(struct parse *p, const struct ini_item *head)
{
    enum pawl_rc rc = PAWL_OK;
    const struct ini_item *it = head->next;

    for (; rc == PAWL_OK && it != NULL && !it->section; it = it->next) {
        rc = pawl_key(p, head->next, it);
    }
    return rc;
}

/* The name in a section header must be good and new. */
static enum pawl_rc check_section(struct parse *p, const struct ini_item *items,
                                  const struct ini_item *head)
{
    static const char *const kinds[] = {"pawl", "task"};
    bool task = strncmp(head->name, "task ", 5) == 0;
    char kind[16];
    size_t n = strcspn(head->name, " ");
    const char *why;
    int near;

    for (const struct ini_item *i = items; i != head; i = i->next) {
        if (!i->section || strcmp(i->name, head->name) != 0) continue;
        return parse_bad(p, head->line, "[%s] appears before, in line %d; keep one",
                         head->name, i->line);
    }
    if (strcmp(head->name, "pawl") == 0) return PAWL_OK;
    if (task) {
        if (name_ok(head->name + 5, &why)) return PAWL_OK;
        return parse_bad(p, head->line, "[%s]: not a task's name: %s", head->name, why);
    }
    if (strcmp(head->name, "task") == 0) {
        return parse_bad(p, head->line, "[task] needs a name: [task NAME]");
    }
    n = n < sizeof kind - 1 ? n : sizeof kind - 1;
    for (size_t i = 0; i < n; i++) kind[i] = head->name[i];
    kind[n] = '\0';
    near = text_nearest(kind, kinds, 2);
    return parse_bad(p, head->line, "unknown section [%s]; %s %s", head->name,
                     near >= 0 ? "did you mean" : "there are only",
                     near == 0 ? "[pawl]?" : near == 1 ? "[task NAME]?" : "[pawl] and [task NAME]");
}

/* All sections. Headers are checked first, so that a misspelt one is not reported as its keys. */
static enum pawl_rc read_sections(struct parse *p, const struct ini_item *items)
{
    size_t sections_n = 0;
    enum pawl_rc rc = PAWL_OK;

    for (const struct ini_item *it = items; it != NULL; it = it->next) {
        if (!it->section) continue;
        if (++sections_n > LIMIT_TASKS + 1) {
            return parse_bad(p, it->line, "more than %d tasks; split the file", LIMIT_TASKS);
        }
        if ((rc = check_section(p, items, it)) != PAWL_OK) return rc;
    }
    p->c->tasks = arena_alloc(&p->c->arena, (sections_n + 1) * sizeof *p->c->tasks);
    if (p->c->tasks == NULL) return parse_nomem(p);
    for (const struct ini_item *it = items; rc == PAWL_OK && it != NULL; it = it->next) {
        if (!it->section) continue;
        if (strcmp(it->name, "pawl") == 0) {
            rc = pawl_section(p, it);
        } else if (p->c->tasks_n == LIMIT_TASKS) {
            rc = parse_bad(p, it->line, "more than %d tasks; split the file", LIMIT_TASKS);
        } else {
            rc = task_parse(p, it, &p->c->tasks[p->c->tasks_n++]);
        }
    }
    return rc;
}

static const char *dir_of(struct conf *c)
{
    const char *slash = strrchr(c->path, '/');
    size_t n;

    if (slash == NULL) return arena_strdup(&c->arena, ".");
    n = (size_t)(slash - c->path);
    return arena_dup(&c->arena, c->path, n > 0 ? n : 1);
}

static enum pawl_rc read_file(const char *path, struct buf *text, struct pawl_error *e)
{
    struct pawl_error why = {0};
    enum pawl_rc rc = os_read_file(path, LIMIT_CONF_BYTES, text, &why);

    if (rc == PAWL_OK) return rc;
    if (why.native == ENOENT || why.native == ENOTDIR) {
        return pawl_fail_native(e, PAWL_NOTFOUND, why.native,
                                "no configuration file %s; name one with -c FILE", path);
    }
    return pawl_fail_native(e, rc, why.native, "%s", why.msg);
}

enum pawl_rc conf_read(const char *path, struct conf **out, struct pawl_error *e)
{
    struct conf *c = NULL;
    struct ini_item *items = NULL;
    struct buf text = {0};
    struct parse p;
    enum pawl_rc rc;

    assert(path != NULL && out != NULL);
    *out = NULL;
    if ((rc = read_file(path, &text, e)) != PAWL_OK) goto out;
    c = calloc(1, sizeof *c);
    p = (struct parse){.c = c, .e = e};
    rc = PAWL_NOMEM;
    if (c != NULL) {
        c->path = arena_strdup(&c->arena, path);
        c->dir = c->path != NULL ? dir_of(c) : NULL;
    }
    if (c == NULL || c->dir == NULL) {
        rc = pawl_fail(e, PAWL_NOMEM, "%s: out of memory", path);
        goto out;
    }
    c->concurrency = 8;
    c->grace_us = 25 * SECOND_US;
    c->lease_us = 30 * SECOND_US;
    rc = ini_parse(path, buf_str(&text), text.n, &c->arena, &items, e);
    if (rc == PAWL_OK) rc = read_sections(&p, items);
    if (rc != PAWL_OK) goto out;
    *out = c;
    c = NULL;
out:
    conf_free(&c);
    buf_free(&text);
    return rc;
}

void conf_free(struct conf **c)
{
    if (c == NULL || *c == NULL) return;
    arena_free(&(*c)->arena);
    free(*c);
    *c = NULL;
}
