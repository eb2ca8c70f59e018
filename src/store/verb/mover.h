// SPDX-License-Identifier: Apache-2.0
/* mover.h - what an engine can do for a move: hold its store still, hand out and take in whole
 * tables, and close itself to everybody (store/copy).
 *
 * The mark: one row of pawl_x_move, there from the first move on, that says whose the jobs are.
 *   arriving  a copy lies here; the store named by `other` runs the jobs, unless it says "moved"
 *             with the same nonce
 *   here      the jobs came from `other`, and run here
 *   moved     the jobs went to `other`
 *   left      they came, and went back to `other` before anything happened here
 * A store that is not "here" is closed: it is not opened, and its tables refuse every write.
 */
#ifndef VERB_MOVER_H
#define VERB_MOVER_H

#include "store/verb/db.h"

/* i: 64 bits, j: 32 bits, b: bytes, t: text, a: a job's args, e: text that is evidence only */
struct db_column { const char *name; char type; };
enum { DB_COLUMNS_MAX = 20 };
struct db_table {
    const char *name, *what;       /* without its prefix; for people */
    const char *order;             /* its primary key */
    bool numbered;                 /* the store draws its ids */
    int id_col;                    /* the column that names a row to people; -1: its first text */
    struct db_column col[DB_COLUMNS_MAX];
    int col_n;
};
enum { DB_TABLES_N = 14, DB_TABLE_JOB = 2, DB_TABLE_RUNNING = 5 };
extern const struct db_table db_tables[DB_TABLES_N];   /* copy/tables.c */

struct db_value { bool null; int64_t i; const char *p; size_t n; };

/* Rows on their way into a table. */
struct db_load { struct db *db; const struct db_table *t; };

struct db_mover {
    bool by_ids;                   /* counts what it accepted by its ids: gaps would be losses */
    /* The store as it may be shown and given again: a URL without its password. */
    void (*shown)(struct db *, struct buf *);
    bool (*same)(struct db *, struct db *, struct pawl_error *); /* both of this engine */
    /* In the open transaction: nobody else writes until it ends. */
    enum pawl_rc (*freeze)(struct db *, struct pawl_error *);
    /* How many workers take part; who gets the first one, in words. */
    enum pawl_rc (*workers)(struct db *, size_t *n, char *who, size_t who_n, struct pawl_error *);
    /* The rows of a statement, in bounded memory: stepped with db_row, freed with q_free. */
    enum pawl_rc (*stream)(struct db *, const char *sql, struct query **, struct pawl_error *);
    void (*blob)(struct query *, int col, struct db_value *);
    /* The last number that a numbered table gave. set never goes back. */
    enum pawl_rc (*number)(struct db *, const struct db_table *, int64_t *, struct pawl_error *);
    enum pawl_rc (*number_set)(struct db *, const struct db_table *, int64_t, struct pawl_error *);
    enum pawl_rc (*clear)(struct db *, struct pawl_error *); /* every table of db_tables */
    enum pawl_rc (*load)(struct db *, const struct db_table *, struct db_load **,
                         struct pawl_error *);
    enum pawl_rc (*load_row)(struct db_load *, const struct db_value *, struct pawl_error *);
    /* *n: rows that the store says it took. Frees it. */
    enum pawl_rc (*load_end)(struct db_load *, int64_t *n, struct pawl_error *);
    void (*load_drop)(struct db_load *);                     /* the transaction is given up */
    /* Every table refuses writes, saying this; NULL: no longer. */
    enum pawl_rc (*gate)(struct db *, const char *say, struct pawl_error *);
    enum pawl_rc (*has_mark)(struct db *, bool *, struct pawl_error *);
    enum pawl_rc (*granted)(struct db *, struct pawl_error *); /* the mark may be read by all */
    enum pawl_rc (*settled)(struct db *, struct pawl_error *); /* after a load: planner, log */
};

/* --- the mark (mark.c) --- */
enum { DB_MARK_OTHER = 4200 };    /* the longest path there is, and its scheme */
struct db_mark { char state[12], nonce[40], other[DB_MARK_OTHER]; int64_t seq, at_us; };
static inline bool db_mark_is(const struct db_mark *m, const char *state)
{
    return strcmp(m->state, state) == 0;
}
/* state "": there is none. */
enum pawl_rc db_mark_get(struct db *db, struct db_mark *m, struct pawl_error *e) PAWL_MUST_USE;
enum pawl_rc db_mark_put(struct db *db, const struct db_mark *m,
                         struct pawl_error *e) PAWL_MUST_USE;
/* MOVED, when the store is closed; where: its path or name. */
enum pawl_rc db_mark_check(struct db *db, const char *where, struct pawl_error *e) PAWL_MUST_USE;
/* What whoever writes to a closed store is told: begins with "pawl: this store ". */
void db_mark_say(const struct db_mark *m, struct buf *out);
#define DB_MARK_SAYS "pawl: this store "

#endif
