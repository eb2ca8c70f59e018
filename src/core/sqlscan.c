// SPDX-License-Identifier: Apache-2.0
/* sqlscan.c - a tokenizer for SQL, and the rules for a statement that runs inside Pawl.
 *
 * Holds: what a statement may begin with, which words end a transaction, which names are Pawl's.
 * Keeps: a text that is accepted has the same parameters for us and for the engine. Where engines
 *        disagree (`LIMIT:n`, `:a::int`, `:a(1)`) the text is refused instead of guessed, because a
 *        parameter that only the engine sees would silently be NULL.
 * Never: parses. Whether the statement is good SQL is the engine's to say, when it is prepared.
 */
#include "core/sqlscan.h"

#include <assert.h>
#include <string.h>
#include <strings.h>

#include "base/err.h"
#include "base/text.h"
#include "core/limits.h"

enum token_kind { TOK_END, TOK_WORD, TOK_NAME, TOK_STRING, TOK_PARAM, TOK_SEMI, TOK_OTHER };

/* at, n: the token in the text. body, body_n: without quotes; a parameter without its colon. */
struct token {
    enum token_kind kind;
    size_t at, n;
    const char *body;
    size_t body_n;
};

struct scan {
    const char *text;
    size_t at;
    struct token tok, prev;
    struct sql_scan *out;
    struct pawl_error *e;
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
    {"pragma", "settings belong to the connection; use on_connect in [pawl]", NULL},
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

static bool word_start(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}

static bool digit(char c)
{
    return c >= '0' && c <= '9';
}

/* Part of an identifier for some engine: also `$` and every byte beyond ASCII. */
static bool word_part(char c)
{
    return word_start(c) || digit(c) || c == '$' || (unsigned char)c >= 0x80;
}

static enum pawl_rc refuse_at(struct scan *s, size_t at, const char *why)
{
    size_t n = 1;
    while (n < 40 && word_part(s->text[at + n])) n++;
    return pawl_fail(s->e, PAWL_CONFIG, "%.*s: %s", (int)n, s->text + at, why);
}

static enum pawl_rc refuse(struct scan *s, const char *why)
{
    int n = s->tok.n > 60 ? 60 : (int)s->tok.n;
    return pawl_fail(s->e, PAWL_CONFIG, "%.*s: %s", n, s->text + s->tok.at, why);
}

/* Stop at the first byte of a token, or at the end. */
static enum pawl_rc skip_blanks(struct scan *s)
{
    const char *t = s->text;
    for (;;) {
        char c = t[s->at];
        if (c == ' ' || (c >= '\t' && c <= '\r')) {
            s->at++;
        } else if (c == '-' && t[s->at + 1] == '-') {
            s->at += strcspn(t + s->at, "\n");
        } else if (c == '/' && t[s->at + 1] == '*') {
            const char *close = strstr(t + s->at + 2, "*/");
            if (close == NULL) {
                return pawl_fail(s->e, PAWL_CONFIG, "a comment is not closed: %.40s", t + s->at);
            }
            s->at = (size_t)(close - t) + 2;
        } else {
            return PAWL_OK;
        }
    }
}

static enum pawl_rc unclosed(struct scan *s, const char *what, size_t at)
{
    return pawl_fail(s->e, PAWL_CONFIG, "%s is not closed: %.40s", what, s->text + at);
}

/* A literal or quoted name that starts at `from` with its quote; `escapes`: a backslash takes the
 * next byte with it (E'...'). A doubled quote is one quote. */
static enum pawl_rc read_quoted(struct scan *s, size_t from, enum token_kind kind, bool escapes)
{
    char open = s->text[from];
    char close = open == '[' ? ']' : open;
    size_t i = from + 1;

    for (;; i++) {
        char c = s->text[i];
        if (c == '\0') return unclosed(s, kind == TOK_STRING ? "a string" : "a quoted name", from);
        if (escapes && c == '\\' && s->text[i + 1] != '\0') {
            i++;
        } else if (c == close) {
            if (open == '[' || s->text[i + 1] != close) break;
            i++;
        }
    }
    s->tok.kind = kind;
    s->tok.body = s->text + from + 1;
    s->tok.body_n = i - from - 1;
    s->at = i + 1;
    return PAWL_OK;
}

/* $tag$...$tag$ is a literal; $1 and $x are parameters of other doors. */
static enum pawl_rc read_dollar(struct scan *s)
{
    const char *t = s->text + s->at;
    size_t tag_n = 1;

    if (!digit(t[1])) {
        while (t[tag_n] != '$' && word_part(t[tag_n])) tag_n++;
    }
    if (t[tag_n] != '$') {
        if (word_part(t[1]) || t[1] == ':') {
            return refuse_at(s, s->at, "parameters are written :name");
        }
        s->at++;
        return PAWL_OK;
    }
    tag_n++;
    for (const char *p = t + tag_n; (p = strchr(p, '$')) != NULL; p++) {
        if (strncmp(p, t, tag_n) == 0) {
            s->tok.kind = TOK_STRING;
            s->tok.body = t + tag_n;
            s->tok.body_n = (size_t)(p - t) - tag_n;
            s->at += (size_t)(p - t) + tag_n;
            return PAWL_OK;
        }
    }
    return unclosed(s, "a dollar-quoted string", s->at);
}

static enum pawl_rc read_colon(struct scan *s)
{
    const char *t = s->text + s->at;
    size_t n = 1;

    if (t[1] == ':') {
        if (t[2] == ':') return refuse_at(s, s->at, "one colon begins a parameter, two a cast");
        s->at += 2;
        return PAWL_OK;
    }
    if (!word_part(t[1])) {
        s->at++;
        return PAWL_OK;
    }
    if (!word_start(t[1])) {
        return refuse_at(s, s->at, "a parameter's name begins with a letter A-Z a-z or with _");
    }
    if (s->at > 0 && (word_part(t[-1]) || t[-1] == ':')) {
        return refuse_at(s, s->at, "put a blank before a parameter that follows a word");
    }
    while (word_start(t[n]) || digit(t[n])) n++;
    if (word_part(t[n])) {
        return refuse_at(s, s->at, "a parameter's name has only letters A-Z a-z, digits and _");
    }
    if (t[n] == ':') return refuse_at(s, s->at, "cast a parameter with CAST(:name AS type)");
    if (t[n] == '(') return refuse_at(s, s->at, "put a blank between parameter and parenthesis");
    s->tok.kind = TOK_PARAM;
    s->tok.body = t + 1;
    s->tok.body_n = n - 1;
    s->at += n;
    return PAWL_OK;
}

static void read_word(struct scan *s)
{
    bool number = digit(s->text[s->at]);
    size_t from = s->at;

    while (word_part(s->text[s->at]) || (number && s->text[s->at] == '.')) s->at++;
    s->tok.kind = number ? TOK_OTHER : TOK_WORD;
    s->tok.body = s->text + from;
    s->tok.body_n = s->at - from;
}

/* Read the next token into s->tok. */
static enum pawl_rc next_token(struct scan *s)
{
    enum pawl_rc rc = skip_blanks(s);
    const char *t = s->text + s->at;

    if (rc != PAWL_OK) return rc;
    s->prev = s->tok;
    s->tok = (struct token){.kind = TOK_OTHER, .at = s->at, .body = t, .body_n = 1};
    if (t[0] == '\0') {
        s->tok.kind = TOK_END;
    } else if ((t[0] == 'e' || t[0] == 'E') && t[1] == '\'') {
        rc = read_quoted(s, s->at + 1, TOK_STRING, true);
    } else if (digit(t[0]) || word_start(t[0]) || (unsigned char)t[0] >= 0x80) {
        read_word(s);
    } else if (t[0] == '\'') {
        rc = read_quoted(s, s->at, TOK_STRING, false);
    } else if (t[0] == '"' || t[0] == '`' || t[0] == '[') {
        rc = read_quoted(s, s->at, TOK_NAME, false);
    } else if (t[0] == '$') {
        rc = read_dollar(s);
    } else if (t[0] == ':') {
        rc = read_colon(s);
    } else if (t[0] == '?' ||
               ((t[0] == '@' || t[0] == '#') && (word_part(t[1]) || t[1] == ':'))) {
        rc = refuse_at(s, s->at, "parameters are written :name");
    } else {
        if (t[0] == ';') s->tok.kind = TOK_SEMI;
        s->at++;
    }
    s->tok.n = s->at - s->tok.at;
    return rc;
}

static bool is_word(const struct token *t, const char *word)
{
    size_t n = strlen(word);
    return t->kind == TOK_WORD && t->body_n == n && strncasecmp(t->body, word, n) == 0;
}

static bool is_char(const struct token *t, char c)
{
    return t->kind == TOK_OTHER && t->n == 1 && t->body[0] == c;
}

static void copy_word(char out[16], const struct token *t)
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
    int near;

    if (s->tok.kind != TOK_WORD) return refuse(s, "a statement begins with a word like INSERT");
    copy_word(s->out->verb, &s->tok);
    for (size_t i = 0; i < VERB_N; i++) {
        const char *why = s->setup ? verbs[i].setup : verbs[i].job;
        names[i] = verbs[i].name;
        if (!is_word(&s->tok, verbs[i].name)) continue;
        if (why != NULL) return refuse(s, why);
        if (!is_word(&s->tok, "with")) copy_word(s->out->main_verb, &s->tok);
        s->create_kind = is_word(&s->tok, "create");
        s->ddl_head = s->create_kind || is_word(&s->tok, "alter") || is_word(&s->tok, "drop");
        s->pragma_name = is_word(&s->tok, "pragma");
        return PAWL_OK;
    }
    near = text_nearest(s->out->verb, names, VERB_N);
    if (near < 0) return refuse(s, "no statement that a task can run begins with this word");
    return pawl_fail(s->e, PAWL_CONFIG, "%s: no statement begins like this; did you mean '%s'?",
                     s->out->verb, names[near]);
}

static bool has_prefix(const struct token *t, const char *prefix)
{
    size_t n = strlen(prefix);
    bool name = t->kind == TOK_WORD || t->kind == TOK_NAME || t->kind == TOK_STRING;
    return name && t->body_n >= n && strncasecmp(t->body, prefix, n) == 0;
}

/* Names that are Pawl's. Strings count: SQLite takes one where a name must stand. */
static enum pawl_rc check_name(struct scan *s)
{
    if (has_prefix(&s->tok, "pawl_x_")) {
        return refuse(s, "a private table of Pawl; use its views, see doc/schema.md");
    }
    if (s->ddl_head && has_prefix(&s->tok, "pawl_")) {
        return refuse(s, "names that begin with pawl_ are Pawl's to create, alter and drop");
    }
    return PAWL_OK;
}

/* CREATE [OR REPLACE] [TEMP] [CONSTRAINT] [UNIQUE] kind ... */
static enum pawl_rc check_create(struct scan *s)
{
    static const char *const before[] = {"or", "replace", "constraint", "unique", "virtual"};
    bool temp = is_word(&s->tok, "temp") || is_word(&s->tok, "temporary");

    s->create_temp = s->create_temp || temp;
    if (temp) return PAWL_OK;
    for (size_t i = 0; i < sizeof before / sizeof before[0]; i++) {
        if (is_word(&s->tok, before[i])) return PAWL_OK;
    }
    s->create_kind = false;
    if (is_word(&s->tok, "trigger")) {
        return refuse(s, "a task cannot create triggers; make them in your schema");
    }
    if (s->setup && !s->create_temp) return refuse(s, "on_connect may create only TEMP objects");
    return PAWL_OK;
}

/* PRAGMA [schema.]name ... */
static enum pawl_rc check_pragma(struct scan *s)
{
    if (is_char(&s->tok, '.')) return PAWL_OK;
    if (is_char(&s->tok, '=') || is_char(&s->tok, '(')) {
        s->pragma_name = false;
        return PAWL_OK;
    }
    for (size_t i = 0; i < sizeof our_pragmas / sizeof our_pragmas[0]; i++) {
        size_t n = strlen(our_pragmas[i]);
        if (s->tok.body_n == n && strncasecmp(s->tok.body, our_pragmas[i], n) == 0) {
            return refuse(s, "Pawl depends on this pragma and sets it itself; take it out");
        }
    }
    return PAWL_OK;
}

/* What a word means beyond being a name. */
static enum pawl_rc check_word(struct scan *s)
{
    struct sql_scan *o = s->out;

    if (is_word(&s->tok, "rollback") &&
        (is_word(&s->prev, "or") || is_word(&s->prev, "conflict"))) {
        return refuse(s, "it would end Pawl's transaction on a conflict; use ABORT");
    }
    if (is_word(&s->tok, "as")) s->ddl_head = false;
    if (s->depth > 0) return PAWL_OK;
    if (o->main_verb[0] == '\0' && is_char(&s->prev, ')')) {
        static const char *const after_with[] = {"select", "values", "insert",
                                                 "update", "delete", "replace"};
        for (size_t i = 0; i < sizeof after_with / sizeof after_with[0]; i++) {
            if (is_word(&s->tok, after_with[i])) copy_word(o->main_verb, &s->tok);
        }
    }
    if (is_word(&s->tok, "returning") && o->main_verb[0] != '\0') o->returns_rows = true;
    return PAWL_OK;
}

static enum pawl_rc check_token(struct scan *s, struct arena *a)
{
    struct sql_scan *o = s->out;
    enum pawl_rc rc = PAWL_OK;

    if (s->ended) {
        return pawl_fail(s->e, PAWL_CONFIG,
                         "%.*s: a second statement after the ';'; write one statement per sql =",
                         (int)(s->tok.n > 60 ? 60 : s->tok.n), s->text + s->tok.at);
    }
    if (o->verb[0] == '\0') return check_verb(s);
    if (s->create_kind && (rc = check_create(s)) != PAWL_OK) return rc;
    if (s->pragma_name && (rc = check_pragma(s)) != PAWL_OK) return rc;
    if ((rc = check_name(s)) != PAWL_OK) return rc;
    if (s->tok.kind == TOK_WORD) return check_word(s);
    if (is_char(&s->tok, '(')) {
        s->depth++;
        s->ddl_head = false;
    } else if (is_char(&s->tok, ')')) {
        if (--s->depth < 0) return refuse(s, "this parenthesis closes nothing");
    } else if (s->tok.kind == TOK_PARAM) {
        struct sql_param *p = &o->params[o->params_n];
        if (s->setup) return refuse(s, "on_connect runs outside a job and has no parameters");
        *p = (struct sql_param){arena_dup(a, s->tok.body, s->tok.body_n), s->tok.at, s->tok.n};
        if (p->name == NULL) return pawl_fail(s->e, PAWL_NOMEM, "out of memory");
        o->params_n++;
    }
    return PAWL_OK;
}

static enum pawl_rc scan_all(struct scan *s, struct arena *a)
{
    enum pawl_rc rc;

    while ((rc = next_token(s)) == PAWL_OK && s->tok.kind != TOK_END) {
        if (s->tok.kind == TOK_SEMI) {
            s->ended = true;
            continue;
        }
        if ((rc = check_token(s, a)) != PAWL_OK) return rc;
        s->out->end = s->tok.at + s->tok.n;
    }
    return rc;
}

static enum pawl_rc scan_text(const char *text, bool setup, struct arena *a, struct sql_scan *out,
                              struct pawl_error *e)
{
    struct scan s = {.text = text, .setup = setup, .out = out, .e = e};
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
