// SPDX-License-Identifier: Apache-2.0
/* sqltoken.c - the tokenizer of sqlscan.c: literals, quoted names, comments, parameters.
 *
 * Keeps: a text that is accepted has the same parameters for us and for the engine. Where engines
 *        disagree (`LIMIT:n`, `:a::int`, `:a(1)`) the text is refused instead of guessed, because a
 *        parameter that only the engine sees would silently be NULL.
 * Never: knows what a word means.
 */
#include "core/sqltoken.h"

#include <string.h>
#include <strings.h>

#include "base/err.h"

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

static enum pawl_rc refuse_at(struct sql_lexer *s, size_t at, const char *why)
{
    size_t n = 1;
    while (n < 40 && word_part(s->text[at + n])) n++;
    return pawl_fail(s->e, PAWL_CONFIG, "%.*s: %s", (int)n, s->text + at, why);
}

/* Stop at the first byte of a token, or at the end. */
static enum pawl_rc skip_blanks(struct sql_lexer *s)
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

static enum pawl_rc unclosed(struct sql_lexer *s, const char *what, size_t at)
{
    return pawl_fail(s->e, PAWL_CONFIG, "%s is not closed: %.40s", what, s->text + at);
}

/* A literal or quoted name that starts at `from` with its quote; `escapes`: a backslash takes the
 * next byte with it (E'...'). A doubled quote is one quote. */
static enum pawl_rc read_quoted(struct sql_lexer *s, size_t from, enum sql_token_kind kind,
                                bool escapes)
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
static enum pawl_rc read_dollar(struct sql_lexer *s)
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

static enum pawl_rc read_colon(struct sql_lexer *s)
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

static void read_word(struct sql_lexer *s)
{
    bool number = digit(s->text[s->at]);
    size_t from = s->at;

    while (word_part(s->text[s->at]) || (number && s->text[s->at] == '.')) s->at++;
    s->tok.kind = number ? TOK_OTHER : TOK_WORD;
    s->tok.body = s->text + from;
    s->tok.body_n = s->at - from;
}

/* Read the next token into s->tok. */
enum pawl_rc sql_next_token(struct sql_lexer *s)
{
    enum pawl_rc rc = skip_blanks(s);
    const char *t = s->text + s->at;

    if (rc != PAWL_OK) return rc;
    s->prev = s->tok;
    s->tok = (struct sql_token){.kind = TOK_OTHER, .at = s->at, .body = t, .body_n = 1};
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

bool sql_is_word(const struct sql_token *t, const char *word)
{
    size_t n = strlen(word);
    return t->kind == TOK_WORD && t->body_n == n && strncasecmp(t->body, word, n) == 0;
}

bool sql_is_char(const struct sql_token *t, char c)
{
    return t->kind == TOK_OTHER && t->n == 1 && t->body[0] == c;
}
