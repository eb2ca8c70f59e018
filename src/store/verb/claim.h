// SPDX-License-Identifier: Apache-2.0
/* claim.h - the parts of a choice: lines of one (task, queue) each, read in order and merged
 * (claim_line.c), and beginning where nothing was left before (claim_low.c). */
#ifndef VERB_CLAIM_H
#define VERB_CLAIM_H

#include "store/verb/db.h"

struct cand {
    int64_t id, run_at_us;
    struct counters n;
    bool suspect;
    struct job *row;         /* its job row, where it came with it */
};
struct line {
    int32_t task_i;
    int64_t queue_id, rank;
    const char *queue;
    struct cand *c;
    size_t n, at;
    int64_t run_at_us, id;   /* the last one read at this rank */
};
struct lines { struct line *l; size_t n, room; };

/* A place in the order of a task's ready rows. */
struct spot { int64_t queue_id, rank, run_at_us, id; };
/* The first row behind a place; nothing of its line lies before `from`, as far as is known. */
struct first { bool found; struct spot at, from; };

static inline bool claim_is_open(const struct db_task_state *t)
{
    return t->known && !t->paused;
}

/* What one choice is made with. */
struct choice {
    struct db *db;
    const struct lane *lane;
    const struct db_task_state *tasks;  /* of the lane, in its order */
    size_t want, chunk;
    int64_t now_us, start_us;           /* start: monotonic */
    bool low;                           /* begins at the marks */
    struct arena *a;
    struct claim_info *info;
    struct lines ls;
};

/* claim_line.c */
void claim_read_counters(struct query *q, int col, struct counters *n);
void claim_take(const struct line *l, const struct cand *c, struct job *job);
/* The queue's name if this lane may take from it now, else NULL in *name. */
enum pawl_rc claim_open_queue(const struct choice *c, int64_t queue_id, const char **name,
                              struct pawl_error *e) PAWL_MUST_USE;
enum pawl_rc claim_read_chunk(const struct choice *c, struct line *l, size_t chunk,
                              struct pawl_error *e) PAWL_MUST_USE;
enum pawl_rc claim_in_order(struct choice *c, struct job *jobs, size_t *n,
                            struct pawl_error *e) PAWL_MUST_USE;

/* claim_low.c */
bool claim_begins_low(const struct db *db);
/* The first row of a task behind a place, due or not, of its queue if so asked. */
enum pawl_rc claim_first(const struct choice *c, int64_t task_id, struct spot after,
                         bool same_queue, struct first *out, struct pawl_error *e) PAWL_MUST_USE;
void claim_note_look(const struct choice *c, size_t n);
/* What is going to be asked if all is as it was: each answer would be waited for else. */
enum pawl_rc claim_ask_ahead(const struct choice *c, struct pawl_error *e) PAWL_MUST_USE;

#endif
