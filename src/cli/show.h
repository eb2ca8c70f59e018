// SPDX-License-Identifier: Apache-2.0
/* show.h - how jobs, attempts and answers look: one object a line, or a page for a person. */
#ifndef CLI_SHOW_H
#define CLI_SHOW_H

#include "cli/cli.h"

/* The members of a job, after an open '{' in b; the caller closes the object. */
void show_job_json(struct buf *b, const struct pawl_job *j);
/* One attempt as an object. */
void show_attempt_json(struct buf *b, const struct pawl_attempt *a);
bool show_never_started(const struct pawl_attempt *a);
/* A job and its attempts as one object on one line. 0, or the exit code, printed. */
int show_job_line(struct cli *c, int64_t id, bool only_dead);
/* The page of one job with every attempt, and what can be done next. Returns as above. */
int show_job_page(struct cli *c, int64_t id, bool only_dead);

/* Rows of a list: header once (on a terminal), then a row each; tab-separated off a terminal. */
struct show_list { struct cli *c; bool tty, dead; int64_t shown, limit; bool more; };
bool show_list_row(void *list, const struct pawl_job *j); /* a pawl_job_fn; ctx: struct show_list */

/* "3s", "5m", "2h", "7d": rounded down. buf: >= 32 bytes. */
char *show_age(int64_t us, char *buf, size_t n);
/* The state a name stands for: 0 and *state, or the error is printed and 64 returned. */
int show_state_parse(struct cli *c, const char *name, int *state_plus_1);
/* The dead class of --class, checked: 0, or the error is printed and 64 returned. */
int show_class_check(struct cli *c, const char *name);
/* Call one(c, id) for every operand as a job id; the answer is 0 unless one came out otherwise. */
int show_each_id(struct cli *c, int (*one)(struct cli *c, int64_t id));

#endif
