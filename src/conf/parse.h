// SPDX-License-Identifier: Apache-2.0
/* parse.h - what conf.c and task.c share while a file is read. Private to this room. */
#ifndef CONF_PARSE_H
#define CONF_PARSE_H

#include "conf/conf.h"
#include "conf/ini.h"

#define EFFECT_HARD_LIMIT_US INT64_C(60000000) /* it holds SQLite's one write lock meanwhile */

struct parse {
    struct conf *c;
    struct pawl_error *e;
    const char **on_connect;   /* c->on_connect, while it is filled */
};

/* "FILE:LINE: ..." with CONFIG. */
enum pawl_rc parse_bad(struct parse *p, int line, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
enum pawl_rc parse_nomem(struct parse *p);
/* "FILE:LINE: unknown key 'x' in [where]; did you mean 'y'?" or the list of all n names. */
enum pawl_rc parse_unknown(struct parse *p, const struct ini_item *it, const char *where,
                           const char *const *names, size_t n);
/* Refuse a key that an item between `first` and `it` has set before. */
enum pawl_rc parse_once(struct parse *p, const struct ini_item *first, const struct ini_item *it);
/* A path of the file, as seen from the current directory. */
const char *parse_path(struct parse *p, const char *path);
/* Keys of one name in a section that starts at `it`. */
size_t parse_count(const struct ini_item *it, const char *name);

/* One statement of SQL, or @FILE with one; key: as errors name it. */
enum pawl_rc parse_statement(struct parse *p, const struct ini_item *it, const char *key,
                             struct conf_sql *out) PAWL_MUST_USE;
/* write.NAME and expect.NAME of the section behind head; t->kind is known. */
bool write_is(const struct ini_item *it);
enum pawl_rc write_parse(struct parse *p, const struct ini_item *head,
                         struct conf_task *t) PAWL_MUST_USE;

/* Fill t from the items after its header `head`, and check the task as a whole. */
enum pawl_rc task_parse(struct parse *p, const struct ini_item *head, struct conf_task *t)
    PAWL_MUST_USE;

#endif
