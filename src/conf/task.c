// SPDX-License-Identifier: Apache-2.0
/* task.c - the keys of a [task NAME] section, and the rules for the task as a whole.
 *
 * Keeps: a task has exactly one handler, its statements have been scanned, and no key was set that
 *        its handler does not use.
 * Never: runs or looks up a program, or loads a plugin; that others do, in a process for it.
 * See:   doc/config.md. Policy keys and their values are core/policy.c's.
 */
#include <assert.h>
#include <string.h>

#include "base/err.h"
#include "base/json.h"
#include "base/os.h"
#include "base/text.h"
#include "conf/parse.h"
#include "core/limits.h"
#include "core/rules.h"

/* A task while its section is read. */
struct section {
    struct parse *p;
    const struct ini_item *head, *first; /* header, first key */
    struct conf_task *t;
    const char **env, **optional;        /* t's lists, while they are filled */
};

static const char *const own_keys[] = {"sql", "exec", "c", "optional", "env.NAME", "write.NAME",
                                       "expect.NAME", "enqueue"};
enum { OWN_KEY_N = sizeof own_keys / sizeof own_keys[0], KEY_N_MAX = 64 };

/* Bound by Pawl, not by args. */
static const char *const reserved[] = {"args", "job_id", "job_key", "job_attempt"};

static bool is_reserved(const char *name)
{
    for (size_t i = 0; i < sizeof reserved / sizeof reserved[0]; i++) {
        if (strcmp(name, reserved[i]) == 0) return true;
    }
    return false;
}

/* [A-Za-z_][A-Za-z0-9_]* of n bytes. */
static bool is_identifier(const char *s, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        char c = s[i];
        bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
        if (!letter && (i == 0 || c < '0' || c > '9')) return false;
    }
    return n > 0;
}

static enum pawl_rc add_sql(struct section *s, const struct ini_item *it)
{
    struct parse *p = s->p;
    struct conf_task *t = s->t;
    enum pawl_rc rc;

    if (t->sql == NULL) {
        size_t n = parse_count(s->first, "sql");
        if (n > LIMIT_STATEMENTS) {
            return parse_bad(p, it->line, "[%s] has %zu sql statements; at most %d", s->head->name,
                             n, LIMIT_STATEMENTS);
        }
        t->sql = arena_alloc(&p->c->arena, n * sizeof *t->sql);
        if (t->sql == NULL) return parse_nomem(p);
    }
    if ((rc = parse_statement(p, it, "sql", &t->sql[t->sql_n])) != PAWL_OK) return rc;
    t->sql_n++;
    return PAWL_OK;
}

static enum pawl_rc set_exec(struct section *s, const struct ini_item *it)
{
    struct pawl_error why = {0};
    size_t n = 0;
    enum pawl_rc rc = os_split_words(it->value, &s->p->c->arena, &s->t->argv, &n, &why);

    if (rc == PAWL_NOMEM) return parse_nomem(s->p);
    if (rc != PAWL_OK) return parse_bad(s->p, it->line, "exec: %s", why.msg);
    if (n == 0 || s->t->argv[0][0] == '\0') {
        return parse_bad(s->p, it->line, "exec = %.80s: names no program", it->value);
    }
    s->t->exec_text = it->value;
    return PAWL_OK;
}

static enum pawl_rc set_enqueue(struct section *s, const struct ini_item *it)
{
    s->t->enqueues = strcmp(it->value, "yes") == 0;
    if (s->t->enqueues || strcmp(it->value, "no") == 0) return PAWL_OK;
    return parse_bad(s->p, it->line, "enqueue = %.80s: write yes or no", it->value);
}

/* FILE:NAME. The file is looked for where the configuration is, as programs are. */
static enum pawl_rc set_c(struct section *s, const struct ini_item *it)
{
    struct parse *p = s->p;
    struct conf_task *t = s->t;
    const char *colon = strrchr(it->value, ':');
    const char *path;
    struct buf b = {0};

    if (strchr(it->value, '\n') != NULL) {
        return parse_bad(p, it->line, "c has several lines; write one FILE:NAME");
    }
    if (colon == NULL || colon == it->value || !is_identifier(colon + 1, strlen(colon + 1))) {
        return parse_bad(p, it->line, "c = %.80s: write FILE:NAME, a plugin and the name of its "
                         "handler, such as ./shop.so:charge", it->value);
    }
    path = arena_dup(&p->c->arena, it->value, (size_t)(colon - it->value));
    if (path == NULL || (path = parse_path(p, path)) == NULL) return parse_nomem(p);
    /* Without a '/' the loader would look for it in the system's library folders. */
    buf_printf(&b, "%s%s", strchr(path, '/') == NULL ? "./" : "", path);
    t->plugin = b.failed ? NULL : arena_strdup(&p->c->arena, buf_str(&b));
    buf_free(&b);
    t->symbol = arena_strdup(&p->c->arena, colon + 1);
    if (t->plugin == NULL || t->symbol == NULL) return parse_nomem(p);
    t->c_text = it->value;
    t->c_line = it->line;
    return PAWL_OK;
}

/* The names are checked here; whether a statement has them, when all statements are known. */
static enum pawl_rc set_optional(struct section *s, const struct ini_item *it)
{
    struct parse *p = s->p;
    const char *v = it->value;
    size_t n;

    s->optional = arena_alloc(&p->c->arena, CONF_OPTIONAL_N_MAX * sizeof *s->optional);
    if (s->optional == NULL) return parse_nomem(p);
    s->t->optional = s->optional;
    for (v += strspn(v, " \t\n"); *v != '\0'; v += n, v += strspn(v, " \t\n")) {
        const char *name;
        n = strcspn(v, " \t\n");
        if (!is_identifier(v, n)) {
            return parse_bad(p, it->line,
                             "optional = %.*s: not a name; write names without colon, separated "
                             "by blanks",
                             (int)(n > 80 ? 80 : n), v);
        }
        if (s->t->optional_n >= CONF_OPTIONAL_N_MAX) {
            return parse_bad(p, it->line, "optional has more than %d names", CONF_OPTIONAL_N_MAX);
        }
        if ((name = arena_dup(&p->c->arena, v, n)) == NULL) return parse_nomem(p);
        if (is_reserved(name)) {
            return parse_bad(p, it->line, "optional = %s: this one Pawl binds itself; take it out",
                             name);
        }
        s->optional[s->t->optional_n++] = name;
    }
    return PAWL_OK;
}

static enum pawl_rc add_env(struct section *s, const struct ini_item *it)
{
    struct parse *p = s->p;
    const char *name = it->name + 4;
    struct buf b = {0};
    char *text;

    if (!is_identifier(name, strlen(name))) {
        return parse_bad(p, it->line, "%.80s: write env.NAME with a NAME of letters, digits and _",
                         it->name);
    }
    if (strncmp(name, "PAWL_", 5) == 0) {
        return parse_bad(p, it->line, "%.80s: variables that begin with PAWL_ Pawl sets itself",
                         it->name);
    }
    if (s->t->env_n >= CONF_ENV_N_MAX) {
        return parse_bad(p, it->line, "more than %d env keys in one task", CONF_ENV_N_MAX);
    }
    if (s->env == NULL) {
        s->env = arena_alloc(&p->c->arena, CONF_ENV_N_MAX * sizeof *s->env);
        if (s->env == NULL) return parse_nomem(p);
        s->t->env = s->env;
    }
    buf_printf(&b, "%s=%s", name, it->value);
    text = b.failed ? NULL : arena_dup(&p->c->arena, buf_str(&b), b.n);
    buf_free(&b);
    if (text == NULL) return parse_nomem(p);
    s->env[s->t->env_n++] = text;
    return PAWL_OK;
}

static enum pawl_rc set_policy(struct section *s, const struct ini_item *it)
{
    const char *names[KEY_N_MAX];
    bool unknown = false;
    char why[256] = "";
    size_t n = 0;

    if (policy_set(&s->t->policy, it->name, it->value, &unknown, why, sizeof why)) return PAWL_OK;
    if (!unknown) return parse_bad(s->p, it->line, "%s = %.80s: %s", it->name, it->value, why);
    for (size_t i = 0; i < OWN_KEY_N; i++) names[n++] = own_keys[i];
    for (const char *const *k = policy_names(); *k != NULL && n < KEY_N_MAX; k++) names[n++] = *k;
    return parse_unknown(s->p, it, s->head->name, names, n);
}

static bool is_known(const char *key)
{
    for (size_t i = 0; i < OWN_KEY_N; i++) {
        if (strcmp(own_keys[i], key) == 0) return true;
    }
    for (const char *const *k = policy_names(); *k != NULL; k++) {
        if (strcmp(*k, key) == 0) return true;
    }
    return false;
}

static enum pawl_rc task_key(struct section *s, const struct ini_item *it)
{
    bool env = strncmp(it->name, "env.", 4) == 0;
    bool sql = strcmp(it->name, "sql") == 0;
    enum pawl_rc rc;

    if (!sql && (rc = parse_once(s->p, s->first, it)) != PAWL_OK) return rc;
    if (env) return add_env(s, it);
    if (it->value[0] == '\0' && is_known(it->name)) {
        return parse_bad(s->p, it->line, "%s has no value", it->name);
    }
    if (sql) return add_sql(s, it);
    if (write_is(it)) return PAWL_OK; /* when all are known */
    if (strcmp(it->name, "exec") == 0) return set_exec(s, it);
    if (strcmp(it->name, "c") == 0) return set_c(s, it);
    if (strcmp(it->name, "enqueue") == 0) return set_enqueue(s, it);
    if (strcmp(it->name, "optional") == 0) return set_optional(s, it);
    return set_policy(s, it);
}

static const struct ini_item *find(const struct section *s, const char *name)
{
    for (const struct ini_item *it = s->first; it != NULL && !it->section; it = it->next) {
        if (strcmp(it->name, name) == 0) return it;
    }
    return NULL;
}

/* Which handler the section names: exactly one. */
static enum pawl_rc find_handler(struct section *s)
{
    static const char *const names[] = {
        [HANDLER_SQL] = "sql", [HANDLER_EXEC] = "exec", [HANDLER_C] = "c"
    };
    const struct ini_item *have = NULL, *it;

    for (int k = HANDLER_SQL; k <= HANDLER_C; k++) {
        if ((it = find(s, names[k])) == NULL) continue;
        if (have != NULL) {
            return parse_bad(s->p, it->line > have->line ? it->line : have->line,
                             "[%s] has both %s and %s; a task has exactly one handler",
                             s->head->name, have->name, it->name);
        }
        have = it;
        s->t->kind = (enum handler_kind)k;
    }
    if (have != NULL) return PAWL_OK;
    return parse_bad(s->p, s->head->line, "[%s] has no handler; add `sql = ...`, `exec = ...` or "
                     "`c = ...`", s->head->name);
}

/* No key that the handler does not use. */
static enum pawl_rc check_handler(struct section *s)
{
    static const struct { const char *key; unsigned kinds; } some[] = {
        {"optional", 1u << HANDLER_SQL}, {"zero_rows", 1u << HANDLER_SQL},
        {"transient", 1u << HANDLER_EXEC}, {"permanent", 1u << HANDLER_EXEC},
        {"discard", 1u << HANDLER_EXEC}, {"enqueue", 1u << HANDLER_EXEC},
        {"soft_limit", 1u << HANDLER_SQL | 1u << HANDLER_EXEC},
    };
    const char *kind, *article;
    const struct ini_item *it;
    enum pawl_rc rc = find_handler(s);

    if (rc != PAWL_OK) return rc;
    kind = conf_kind_name(s->t->kind);
    article = s->t->kind == HANDLER_C ? "a" : "an";
    for (size_t i = 0; i < sizeof some / sizeof *some; i++) {
        if ((some[i].kinds & 1u << s->t->kind) != 0) continue;
        if ((it = find(s, some[i].key)) == NULL) continue;
        return parse_bad(s->p, it->line, "%s means nothing to %s %s task; take it out", it->name,
                         article, kind);
    }
    for (it = s->first; it != NULL && !it->section && s->t->kind != HANDLER_EXEC; it = it->next) {
        if (strncmp(it->name, "env.", 4) != 0) continue;
        return parse_bad(s->p, it->line, "%.80s means nothing to %s %s task; take it out",
                         it->name, article, kind);
    }
    if ((rc = write_parse(s->p, s->head, s->t)) != PAWL_OK) return rc;
    s->t->own_hard_limit = find(s, "hard_limit") != NULL;
    if (s->t->kind == HANDLER_EXEC) {
        s->t->enqueues = s->t->enqueues || s->t->writes_n > 0;
        s->t->mode = s->t->enqueues ? MODE_PREPARED : MODE_LEASED;
    }
    if (s->t->kind == HANDLER_SQL) {
        s->t->mode = MODE_EFFECT;
        if (!s->t->own_hard_limit) s->t->policy.hard_limit_us = EFFECT_HARD_LIMIT_US;
    }
    return PAWL_OK;
}

static bool statement_has(const struct conf_task *t, const char *name)
{
    for (size_t i = 0; i < t->sql_n; i++) {
        for (size_t k = 0; k < t->sql[i].scan.params_n; k++) {
            if (strcmp(t->sql[i].scan.params[k].name, name) == 0) return true;
        }
    }
    return false;
}

static enum pawl_rc check_optional(struct section *s)
{
    const struct ini_item *it = find(s, "optional");

    for (size_t i = 0; i < s->t->optional_n; i++) {
        const char *name = s->t->optional[i];
        for (size_t k = 0; k < i; k++) {
            if (strcmp(s->t->optional[k], name) != 0) continue;
            return parse_bad(s->p, it->line, "optional = %s: listed twice", name);
        }
        if (statement_has(s->t, name)) continue;
        return parse_bad(s->p, it->line, "optional = %.80s: no statement of [%s] uses :%.80s", name,
                         s->head->name, name);
    }
    return PAWL_OK;
}

/* entity and version: ":name" of a member of args, both or neither. */
static enum pawl_rc check_guard(struct section *s)
{
    static const char *const names[] = {"entity", "version"};
    const struct ini_item *it[2];

    for (size_t i = 0; i < 2; i++) {
        it[i] = find(s, names[i]);
        if (it[i] == NULL) continue;
        const char *v = it[i]->value;
        if (v[0] != ':' || !is_identifier(v + 1, strlen(v + 1)) || is_reserved(v + 1)) {
            return parse_bad(s->p, it[i]->line,
                             "%s = %.80s: write the name of a member of args with a colon, such "
                             "as :sku",
                             names[i], v);
        }
    }
    for (size_t i = 0; i < 2; i++) {
        if (it[i] == NULL || it[1 - i] != NULL) continue;
        return parse_bad(s->p, it[i]->line, "%s without %s; the version guard needs both", names[i],
                         names[1 - i]);
    }
    return PAWL_OK;
}

static enum pawl_rc check_policy(struct section *s)
{
    const struct policy *pol = &s->t->policy;
    const struct ini_item *it;
    char hard[40], why[256];

    if (pol->ack == ACK_EARLY && s->t->kind == HANDLER_SQL) {
        it = find(s, "ack");
        return parse_bad(s->p, it != NULL ? it->line : s->head->line,
                         "ack = early cannot go with sql: the statements commit together with the "
                         "claim and the ack; take ack out");
    }
    if (pol->ack == ACK_EARLY && s->t->enqueues) {
        it = find(s, "ack");
        return parse_bad(s->p, it != NULL ? it->line : s->head->line,
                         "ack = early cannot go with write.NAME or enqueue: what the program asks "
                         "for commits together with the ack; take one of them out");
    }
    if (pol->soft_limit_us > 0 && pol->soft_limit_us >= pol->hard_limit_us) {
        it = find(s, "soft_limit");
        return parse_bad(s->p, it != NULL ? it->line : s->head->line,
                         "soft_limit must be shorter than hard_limit (%s); it would do nothing",
                         text_duration(pol->hard_limit_us, hard, sizeof hard));
    }
    if (!policy_check(pol, why, sizeof why)) return parse_bad(s->p, s->head->line, "%s", why);
    return PAWL_OK;
}

enum pawl_rc task_parse(struct parse *p, const struct ini_item *head, struct conf_task *t)
{
    struct section s = {.p = p, .head = head, .first = head->next, .t = t};
    enum pawl_rc rc;

    assert(head->section && strncmp(head->name, "task ", 5) == 0);
    t->name = head->name + 5;
    t->line = head->line;
    policy_defaults(&t->policy);
    for (const struct ini_item *it = s.first; it != NULL && !it->section; it = it->next) {
        if ((rc = task_key(&s, it)) != PAWL_OK) return rc;
    }
    if ((rc = check_handler(&s)) != PAWL_OK) return rc;
    if ((rc = check_guard(&s)) != PAWL_OK) return rc;
    if ((rc = check_policy(&s)) != PAWL_OK) return rc;
    return check_optional(&s);
}
