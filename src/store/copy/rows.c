// SPDX-License-Identifier: Apache-2.0
/* rows.c - the rows of every table, from one store into the other, in bounded memory.
 *
 * Keeps: nothing is changed on its way in silence. A text that the target cannot hold is
 *          evidence (the ends of a program's output): made printable, as a worker there does;
 *          a job's args: carried as words that are no JSON, so that they end as they would have
 *            (undecodable), and told;
 *          anything else: named, and the copy is refused.
 */
#include <string.h>
#include "base/err.h"
#include "base/fail.h"
#include "base/json.h"
#include "base/utf8.h"
#include "store/copy/copy.h"

enum { TELL_EVERY = 1000 };
#define UNDECODABLE "not UTF-8: "

enum pawl_rc copy_count(struct db *db, const struct db_table *t, int64_t *n, struct pawl_error *e)
{
    struct buf sql = {0};
    enum pawl_rc rc;

    /* PostgreSQL's door counts duplicates in rows of their own, which arrive as one. What an engine
     * writes to see whether it can (probes) is nobody's history. */
    if (strcmp(t->name, "counter") == 0)
        buf_puts(&sql, "SELECT count(DISTINCT CASE WHEN name LIKE 'duplicates+%' THEN 'duplicates'"
                 " ELSE name END) FROM pawl_x_counter WHERE name <> 'probes'");
    else
        buf_printf(&sql, "SELECT count(*) FROM pawl_x_%s", t->name);
    rc = sql.failed ? pawl_fail(e, PAWL_NOMEM, "out of memory")
                    : copy_number(db, buf_str(&sql), n, e);
    buf_free(&sql);
    return rc;
}

static void select_sql(const struct db_table *t, struct buf *sql)
{
    if (strcmp(t->name, "counter") == 0) {
        buf_puts(sql, "SELECT CASE WHEN name LIKE 'duplicates+%' THEN 'duplicates' ELSE name END,"
                 " sum(value) FROM pawl_x_counter WHERE name <> 'probes' GROUP BY 1 ORDER BY 1");
        return;
    }
    for (int i = 0; i < t->col_n; i++)
        buf_printf(sql, "%s%s", i == 0 ? "SELECT " : ", ", t->col[i].name);
    buf_printf(sql, " FROM pawl_x_%s ORDER BY %s", t->name, t->order);
}

/* --- texts that the target cannot hold --- */

static void name_row(const struct db_table *t, const struct db_value *v, int64_t *id,
                     struct buf *out)
{
    const struct db_value *by = &v[t->id_col < 0 ? 0 : t->id_col];
    const char type = t->col[t->id_col < 0 ? 0 : t->id_col].type;
    char shown[128];

    *id = 0;
    if (type == 'i') {
        *id = by->i;
        buf_printf(out, "of job %lld", (long long)by->i);
        return;
    }
    text_copy_safe(shown, sizeof shown, 0, by->p != NULL ? by->p : "", by->n);
    buf_printf(out, "of \"%s\"", shown);
}

static bool tell_row(struct copy *c, const struct db_table *t, const struct db_column *col,
                     const struct db_value *row, const char *kind, const char *what)
{
    struct pawl_finding f = { .invariant = kind };
    struct buf text = {0};
    bool go = true;

    if (c->how->finding == NULL)
        return true;
    buf_printf(&text, "%s ", col->name);
    name_row(t, row, &f.job_id, &text);
    buf_printf(&text, " (%s) %s", t->what, what);
    f.what = buf_str(&text);
    go = c->how->finding(c->how->ctx, &f);
    buf_free(&text);
    return go;
}

static char *printable(struct arena *a, const char *before, const struct db_value *v, size_t *n)
{
    const size_t at = strlen(before), room = at + v->n * TEXT_SAFE_MAX + 1;
    char *p = arena_alloc(a, room);

    if (p == NULL)
        return NULL;
    memcpy(p, before, at);
    *n = text_copy_safe(p, room, at, v->p, v->n);
    return p;
}

static enum pawl_rc fit_text(struct copy *c, const struct db_table *t, int i, struct db_value *v,
                             struct arena *a, struct pawl_error *e)
{
    const struct db_column *col = &t->col[i];
    bool go = true;
    size_t n = 0;
    char *p;

    if (memchr(v[i].p, '\0', v[i].n) == NULL && utf8_ok(v[i].p, v[i].n))
        return PAWL_OK;
    if (col->type == 't') {
        c->out->refused++;
        go = tell_row(c, t, col, v, "refused", "is not UTF-8, or holds a NUL");
        return go ? PAWL_OK : copy_stopped(e);
    }
    if ((p = printable(a, col->type == 'a' ? UNDECODABLE : "", &v[i], &n)) == NULL)
        return pawl_fail(e, PAWL_NOMEM, "out of memory");
    v[i].p = p;
    v[i].n = n;
    if (col->type == 'e') {
        c->out->printable++;
        return PAWL_OK;
    }
    c->out->undecodable++;
    go = tell_row(c, t, col, v, "undecodable", "are not UTF-8: carried as words that are no JSON");
    return go ? PAWL_OK : copy_stopped(e);
}

static enum pawl_rc fit_row(struct copy *c, const struct db_table *t, struct db_value *v,
                            struct arena *a, struct pawl_error *e)
{
    enum pawl_rc rc = PAWL_OK;

    for (int i = 0; i < t->col_n && rc == PAWL_OK; i++) {
        const char type = t->col[i].type;

        if (v[i].null || type == 'i' || type == 'b')
            continue;
        if (type != 'j') {
            rc = c->utf8_only ? fit_text(c, t, i, v, a, e) : PAWL_OK;
        } else if (v[i].i < INT32_MIN || v[i].i > INT32_MAX) {
            c->out->refused++;
            rc = tell_row(c, t, &t->col[i], v, "refused", "is out of range")
                ? PAWL_OK : copy_stopped(e);
        }
    }
    return rc;
}

/* --- one table --- */

static void read_row(const struct copy *c, const struct db_table *t, struct query *q,
                     struct db_value *v)
{
    for (int i = 0; i < t->col_n; i++) {
        const char type = t->col[i].type;

        v[i] = (struct db_value){ .null = q_is_null(q, i) };
        if (v[i].null)
            continue;
        if (type == 'i' || type == 'j') {
            v[i].i = q_i64(q, i);
        } else if (type == 'b') {
            mover_of(c->from)->blob(q, i, &v[i]);
        } else {
            v[i].p = q_str(q, i);
            v[i].n = (size_t)q_bytes(q, i);
        }
    }
}

/* load NULL: looked at only. Once a row is refused, the rest is looked at only, too. */
static enum pawl_rc pour(struct copy *c, const struct db_table *t, struct query *q,
                         struct db_load *load, int64_t of, int64_t *n, struct pawl_error *e)
{
    struct db_value v[DB_COLUMNS_MAX];
    struct arena a = {0};
    bool row = true;
    enum pawl_rc rc = PAWL_OK;

    while (rc == PAWL_OK && (rc = db_row(c->from, q, &row, e)) == PAWL_OK && row) {
        read_row(c, t, q, v);
        rc = fit_row(c, t, v, &a, e);
        if (rc == PAWL_OK && load != NULL && c->out->refused == 0)
            rc = mover_of(c->to)->load_row(load, v, e);
        arena_reset(&a);
        if (++*n % TELL_EVERY == 0 && rc == PAWL_OK && !copy_tell(c, t->what, *n, of))
            rc = copy_stopped(e);
    }
    arena_free(&a);
    return rc;
}

static enum pawl_rc compare(const struct db_table *t, int64_t counted, int64_t read, int64_t taken,
                            int64_t held, struct pawl_error *e)
{
    if (counted == read && read == taken && taken == held)
        return PAWL_OK;
    return pawl_fail(e, PAWL_STORE, "%s: the source counts %lld and gave %lld, the target took"
                     " %lld and counts %lld: nothing was moved", t->what, (long long)counted,
                     (long long)read, (long long)taken, (long long)held);
}

static enum pawl_rc copy_table(struct copy *c, const struct db_table *t, bool look,
                               struct pawl_copy_row *r, struct pawl_error *e)
{
    const struct db_mover *m = c->to != NULL ? mover_of(c->to) : NULL;
    struct db_load *load = NULL;
    struct query *q = NULL;
    struct buf sql = {0};
    int64_t read = 0, taken = 0, number = 0;
    enum pawl_rc rc;

    if (!copy_tell(c, t->what, 0, r->from))
        return copy_stopped(e);
    select_sql(t, &sql);
    rc = sql.failed ? pawl_fail(e, PAWL_NOMEM, "out of memory")
                    : mover_of(c->from)->stream(c->from, buf_str(&sql), &q, e);
    buf_free(&sql);
    if (rc == PAWL_OK && !look)
        rc = m->load(c->to, t, &load, e);
    if (rc == PAWL_OK)
        rc = pour(c, t, q, load, r->from, &read, e);
    q_free(q);
    if (rc == PAWL_OK && load != NULL && c->out->refused == 0)
        rc = m->load_end(load, &taken, e);
    else if (load != NULL)
        m->load_drop(load);
    if (rc != PAWL_OK || look || c->out->refused > 0)
        return rc;
    if (t->numbered && ((rc = mover_of(c->from)->number(c->from, t, &number, e)) != PAWL_OK ||
                        (rc = m->number_set(c->to, t, number, e)) != PAWL_OK))
        return rc;
    if ((rc = copy_count(c->to, t, &r->to, e)) != PAWL_OK)
        return rc;
    return compare(t, r->from, read, taken, r->to, e);
}

enum pawl_rc copy_rows(struct copy *c, bool look, struct pawl_error *e)
{
    struct pawl_copy_row *r = c->out->row;
    enum pawl_rc rc = PAWL_OK;

    c->out->rows_n = DB_TABLES_N;
    for (int i = 0; i < DB_TABLES_N && rc == PAWL_OK; i++) {
        r[i].what = db_tables[i].what;
        rc = copy_count(c->from, &db_tables[i], &r[i].from, e);
    }
    for (int i = 0; i < DB_TABLES_N && rc == PAWL_OK; i++) {
        rc = copy_table(c, &db_tables[i], look || c->out->refused > 0, &r[i], e);
        if (rc == PAWL_OK && !look && fail_point("copy.table"))
            rc = pawl_fail(e, PAWL_IO, "failpoint copy.table");
    }
    if (rc == PAWL_OK && c->out->refused > 0)
        rc = pawl_fail(e, PAWL_BADDATA, "%lld texts cannot be stored there: mend or cancel those"
                       " rows; nothing was moved", (long long)c->out->refused);
    return rc;
}
