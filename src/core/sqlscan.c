// SPDX-License-Identifier: Apache-2.0
/* sqlscan.c - the rules for a statement that runs inside Pawl's transaction.
 *
 * Holds: what a statement may begin with, which words end a transaction, which names are Pawl's.
 * Never: parses. Whether the statement is good SQL is the engine's to say, when it is prepared.
 */
#include "core/sqlscan.h"

#include <assert.h>
#include <string.h>
#include <strings.h>

#include "base/err.h"
#include "base/text.h"
#include "core/limits.h"
#include "core/sqltoken.h"

struct scan {
    struct sql_lexer lex;
    struct sql_scan *out;
    int depth;        /* of parentheses */
    bool setup;       /* an on_connect statement */
    bool ended;       /* a ';' was seen */
    bool ddl_head;    /* in create, alter, drop: still before AS or the first parenthesis */
    bool create_kind; /* in create: TABLE, VIEW, ... not seen yet */
    bool create_temp;
    bool pragma_name; /* in pragma: its name is still to come, or a schema before it */
};

/* What a statement may begin with. job, setup: NULL = allowed there, else why not. */
#define OURS "Pawl opens and closes the transaction of a job; take it out"
#define ONE_FILE "a commit over two files is not atomic, and Pawl rests on one commit; take it out"
#define WRITES "on_connect prepares a connection and writes nothing; do this in a task"
static const struct verb {
    const char *name, *job, *setup;
} verbs[] = {
    {"select", NULL, NULL},
    {"values", NULL, NULL},
    {"insert", NULL, WRITES},
    {"update", NULL, WRITES},
    {"delete", NULL, WRITES},
    {"replace", NULL, WRITES},
    {"with", NULL, NULL},
    {"create", NULL, NULL},
    {"alter", NULL, WRITES},
    {"drop", NULL, WRITES},
    {"analyze", NULL, WRITES},
    {"reindex", NULL, WRITES},
    {"begin", OURS, OURS},
    {"start", OURS, OURS},
    {"commit", OURS, OURS},
    {"end", OURS, OURS},
    {"abort", OURS, OURS},
    {"rollback", OURS, OURS},
    {"savepoint", OURS, OURS},
    {"release", OURS, OURS},
    {"attach", ONE_FILE, ONE_FILE},
    {"detach", ONE_FILE, ONE_FILE},
    {"pragma", "settings belong to the connection; use on_connect", NULL},
    {"vacuum", "it cannot run inside a transaction; run it by hand, with no worker", WRITES},
    {"explain", "it runs nothing, so the job would be done without its effect", WRITES},
};
enum { VERB_N = sizeof verbs / sizeof verbs[0] };

static const char *const our_pragmas[] = {
    "application_id", "auto_vacuum",   "busy_timeout",       "foreign_keys",
    "journal_mode",   "locking_mode",  "query_only",         "ignore_check_constraints",
    "synchronous",    "user_version",  "wal_autocheckpoint", "schema_version",
    "wal_checkpoint", "writable_schema",
};

static enum pawl_rc refuse(struct scan *s, const char *why)
{
    int n = s->lex.tok.n > 60 ? 60 : (int)s->lex.tok.n;
    return pawl_fail(s->lex.e, PAWL_CONFIG, "%.*s: %s", n, s->lex.text + s->lex.tok.at, why);
}

static void copy_word(char out[16], const struct sql_token *t)
{
    size_t n = t->body_n < 15 ? t->body_n : 15;
    for (size_t i = 0; i < n; i++) {
        char c = t->body[i];
        out[i] = c >= 'A' && c <= 'Z' ? (char)(c - 'A' + 'a') : c;
    }
    out[n] = '\0';
}

/* The first token must be a verb that may run here. */
static enum pawl_rc check_verb(struct scan *s)
{
    const char *names[VERB_N];
    const struct sql_token *t = &s->lex.tok;
    int near;

    if (t->kind != TOK_WORD) return refuse(s, "a statement begins with a word like INSERT");
    copy_word(s->out->verb, t);
    for (size_t i = 0; i < VERB_N; i++) {
        const char *why = s->setup ? verbs[i].setup : verbs[i].job;
        names[i] = verbs[i].name;
        if (!sql_is_word(t, verbs[i].name)) continue;
        if (why != NULL) return refuse(s, why);
        if (!sql_is_word(t, "with")) copy_word(s->out->main_verb, t);
        s->create_kind = sql_is_word(t, "create");
        s->ddl_head = s->create_kind || sql_is_word(t, "alter") || sql_is_word(t, "drop");
        s->pragma_name = sql_is_word(t, "pragma");
        return PAWL_OK;
    }
    near = text_nearest(s->out->verb, names, VERB_N);
    if (near < 0) return refuse(s, "no statement that a task can run begins with this word");
    return pawl_fail(s->lex.e, PAWL_CONFIG, "%s: no statement begins like this; did you mean '%s'?",
                     s->out->verb, names[near]);
}

static bool has_prefix(const struct sql_token *t, const char *prefix)
{
    size_t n = strlen(prefix);
    bool name = t->kind == TOK_WORD || t->kind == TOK_NAME || t->kind == TOK_STRING;
    return name && t->body_n >= n && strncasecmp(t->body, prefix, n) == 0;
}

/* Names that are Pawl's. Strings count: SQLite takes one where a name must stand. */
static enum pawl_rc check_name(struct scan *s)
{
    if (has_prefix(&s->lex.tok, "pawl_x_")) {
        return refuse(s, "a private table of Pawl; use its views, see doc/schema.md");
    }
    if (s->ddl_head && has_prefix(&s->lex.tok, "pawl_")) {
        return refuse(s, "names that begin with pawl_ are Pawl's to create, alter and drop");
    }
    return PAWL_OK;
}

/* CREATE [OR REPLACE] [TEMP] [CONSTRAINT] [UNIQUE] kind ... */
static enum pawl_rc check_create(struct scan *s)
{
    const struct sql_token *t = &s->lex.tok;
    static const char *const before[] = {"or", "replace", "constraint", "unique", "virtual"};
    bool temp = sql_is_word(t, "temp") || sql_is_word(t, "temporary");

    s->create_temp = s->create_temp || temp;
    if (temp) return PAWL_OK;
    for (size_t i = 0; i < sizeof before / sizeof before[0]; i++) {
        if (sql_is_word(t, before[i])) return PAWL_OK;
    }
    s->create_kind = false;
    if (sql_is_word(t, "trigger")) {
        return refuse(s, "a task cannot create triggers; make them in your schema");
    }
    if (s->setup && !s->create_temp) return refuse(s, "on_connect may create only TEMP objects");
    return PAWL_OK;
}

/* PRAGMA [schema.]name ... */
static enum pawl_rc check_pragma(struct scan *s)
{
    const struct sql_token *t = &s->lex.tok;
    if (sql_is_char(t, '.')) return PAWL_OK;
    if (sql_is_char(t, '=') || sql_is_char(t, '(')) {
        s->pragma_name = false;
        return PAWL_OK;
    }
    for (size_t i = 0; i < sizeof our_pragmas / sizeof our_pragmas[0]; i++) {
        size_t n = strlen(our_pragmas[i]);
        if (t->body_n == n && strncasecmp(t->body, our_pragmas[i], n) == 0) {
            return refuse(s, "Pawl depends on this pragma and sets it itself; take it out");
        }
    }
    return PAWL_OK;
}

/* What a word means beyond being a name. */
static enum pawl_rc check_word(struct scan *s)
{
    const struct sql_token *t = &s->lex.tok, *before = &s->lex.prev;
    struct sql_scan *o = s->out;

    if (sql_is_word(t, "rollback") &&
        (sql_is_word(before, "or") || sql_is_word(before, "conflict"))) {
        return refuse(s, "it would end Pawl's transaction on a conflict; use ABORT");
    }
    if (sql_is_word(t, "as")) s->ddl_head = false;
    if (s->depth > 0) return PAWL_OK;
    if (o->main_verb[0] == '\0' && sql_is_char(before, ')')) {
        static const char *const after_with[] = {"select", "values", "insert",
                                                 "update", "delete", "replace"};
        for (size_t i = 0; i < sizeof after_with / sizeof after_with[0]; i++) {
            if (sql_is_word(t, after_with[i])) copy_word(o->main_verb, t);
        }
    }
    if (sql_is_word(t, "returning") && o->main_verb[0] != '\0') o->returns_rows = true;
    return PAWL_OK;
}

static enum pawl_rc check_token(struct scan *s, struct arena *a)
{
    const struct sql_token *t = &s->lex.tok;
    struct sql_scan *o = s->out;
    enum pawl_rc rc = PAWL_OK;

    if (s->ended) {
        return pawl_fail(s->lex.e, PAWL_CONFIG,
                         "%.*s: a second statement after the ';'; give them one by one",
                         (int)(t->n > 60 ? 60 : t->n), s->lex.text + t->at);
    }
    if (o->verb[0] == '\0') return check_verb(s);
    if (s->create_kind && (rc = check_create(s)) != PAWL_OK) return rc;
    if (s->pragma_name && (rc = check_pragma(s)) != PAWL_OK) return rc;
    if ((rc = check_name(s)) != PAWL_OK) return rc;
    if (t->kind == TOK_WORD) return check_word(s);
    if (sql_is_char(t, '(')) {
        s->depth++;
        s->ddl_head = false;
    } else if (sql_is_char(t, ')')) {
        if (--s->depth < 0) return refuse(s, "this parenthesis closes nothing");
    } else if (t->kind == TOK_PARAM) {
        struct sql_param *p = &o->params[o->params_n];
        if (s->setup) return refuse(s, "on_connect runs outside a job and has no parameters");
        *p = (struct sql_param){arena_dup(a, t->body, t->body_n), t->at, t->n};
        if (p->name == NULL) return pawl_fail(s->lex.e, PAWL_NOMEM, "out of memory");
        o->params_n++;
    }
    return PAWL_OK;
}

static enum pawl_rc scan_all(struct scan *s, struct arena *a)
{
    enum pawl_rc rc;

    while ((rc = sql_next_token(&s->lex)) == PAWL_OK && s->lex.tok.kind != TOK_END) {
        if (s->lex.tok.kind == TOK_SEMI) {
            s->ended = true;
            continue;
        }
        if ((rc = check_token(s, a)) != PAWL_OK) return rc;
        if (s->lex.tok.kind == TOK_STRING && s->lex.text[s->lex.tok.at] == '$') {
            s->out->dollar_quotes = true;
        }
        s->out->end = s->lex.tok.at + s->lex.tok.n;
    }
    return rc;
}

static enum pawl_rc scan_text(const char *text, bool setup, struct arena *a, struct sql_scan *out,
                              struct pawl_error *e)
{
    struct scan s = {.lex = {.text = text, .e = e}, .out = out, .setup = setup};
    size_t colons = 0, n;
    enum pawl_rc rc;

    assert(text != NULL && a != NULL);
    *out = (struct sql_scan){0};
    for (n = 0; text[n] != '\0'; n++) colons += text[n] == ':';
    if (n > LIMIT_SQL_BYTES) {
        return pawl_fail(e, PAWL_CONFIG, "a statement of %zu bytes: the limit is %d", n,
                         LIMIT_SQL_BYTES);
    }
    out->params = arena_alloc(a, (colons + 1) * sizeof *out->params);
    if (out->params == NULL) return pawl_fail(e, PAWL_NOMEM, "out of memory");
    if ((rc = scan_all(&s, a)) != PAWL_OK) return rc;
    if (out->verb[0] == '\0') return pawl_fail(e, PAWL_CONFIG, "the statement is empty");
    if (out->main_verb[0] == '\0') {
        return pawl_fail(e, PAWL_CONFIG,
                         "with: no SELECT, INSERT, UPDATE or DELETE follows its tables");
    }
    if (s.depth > 0) return pawl_fail(e, PAWL_CONFIG, "a parenthesis is not closed");
    if (strcmp(out->main_verb, "select") == 0 || strcmp(out->main_verb, "values") == 0) {
        out->returns_rows = true;
    }
    if (setup && strcmp(out->verb, "with") == 0 && !out->returns_rows) {
        return pawl_fail(e, PAWL_CONFIG, "%s: " WRITES, out->main_verb);
    }
    assert(out->params_n <= colons && out->end <= n);
    return PAWL_OK;
}

enum pawl_rc sql_scan(const char *text, struct arena *a, struct sql_scan *out, struct pawl_error *e)
{
    return scan_text(text, false, a, out, e);
}

enum pawl_rc sql_scan_setup(const char *text, struct arena *a, struct sql_scan *out,
                            struct pawl_error *e)
{
    return scan_text(text, true, a, out, e);
}
