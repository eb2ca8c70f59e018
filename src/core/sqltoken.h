// SPDX-License-Identifier: Apache-2.0
/* sqltoken.h - words, names, literals and parameters of an SQL text, one after the other. */
#ifndef CORE_SQLTOKEN_H
#define CORE_SQLTOKEN_H

#include <stdbool.h>
#include <stddef.h>

#include "pawl.h"

enum sql_token_kind { TOK_END, TOK_WORD, TOK_NAME, TOK_STRING, TOK_PARAM, TOK_SEMI, TOK_OTHER };

/* at, n: the token in the text. body, body_n: without quotes; a parameter without its colon. A NAME
 * is a quoted one; OTHER is a number or one character of punctuation ("::" is one token). */
struct sql_token {
    enum sql_token_kind kind;
    size_t at, n;
    const char *body;
    size_t body_n;
};
struct sql_lexer {
    const char *text;          /* set this and e, zero the rest */
    struct pawl_error *e;
    size_t at;
    struct sql_token tok, prev;
};
/* Read the next token into s->tok, the one before it is in s->prev. At the end: TOK_END, again and
 * again. returns OK | CONFIG: an unclosed literal or comment, a parameter not written :name */
enum pawl_rc sql_next_token(struct sql_lexer *s) PAWL_MUST_USE;

bool sql_is_word(const struct sql_token *t, const char *word); /* in any case, unquoted */
bool sql_is_char(const struct sql_token *t, char c);

#endif
