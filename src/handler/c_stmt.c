// SPDX-License-Identifier: Apache-2.0
/* c_stmt.c - the statements of C handlers, prepared once per text.
 *
 * Keeps: at most C_STATEMENTS of them; the one that was not used for longest makes room, never one
 *        whose rows are being handed out. A text that is used again inside its own row callback
 *        gets a second one.
 */
#include "base/err.h"
#include "handler/c_run.h"

#include <stdlib.h>
#include <string.h>

/* FNV-1a: the texts are the program's own, nobody aims at our buckets. */
static uint64_t hash_of(const char *p, size_t n)
{
    uint64_t h = 0xcbf29ce484222325u;

    for (size_t i = 0; i < n; i++) h = (h ^ (unsigned char)p[i]) * 0x100000001b3u;
    return h;
}

static void free_stmt(struct c_stmt *s)
{
    if (s->stmt != NULL) store_stmt_free(&s->stmt);
    arena_free(&s->arena);
    free(s->text);
    free(s);
}

static void forget(struct c_host *h, struct c_stmt *s)
{
    struct c_stmt **at = &h->bucket[s->hash % C_BUCKETS];

    while (*at != s) at = &(*at)->next;
    *at = s->next;
    h->stmts_n--;
    free_stmt(s);
}

bool c_stmt_has(const struct c_stmt *s, const char *param)
{
    for (size_t i = 0; i < s->scan.params_n; i++) {
        if (strcmp(s->scan.params[i].name, param) == 0) return true;
    }
    return false;
}

void c_stmts_free(struct c_host *h)
{
    for (size_t i = 0; i < C_BUCKETS; i++) {
        while (h->bucket[i] != NULL) forget(h, h->bucket[i]);
    }
}

void c_stmts_idle(struct c_host *h)
{
    for (size_t i = 0; i < C_BUCKETS; i++)
        for (struct c_stmt *s = h->bucket[i]; s != NULL; s = s->next) s->busy = false;
}

static struct c_stmt *oldest(const struct c_host *h)
{
    struct c_stmt *found = NULL;

    for (size_t i = 0; i < C_BUCKETS; i++) {
        for (struct c_stmt *s = h->bucket[i]; s != NULL; s = s->next) {
            if (!s->busy && (found == NULL || s->used < found->used)) found = s;
        }
    }
    return found;
}

/* The rules that need no database are looked at first: they hold on every engine, and their texts
 * name the word. */
static enum pawl_rc compile(struct c_host *h, struct c_stmt *s, const char *sql,
                            struct pawl_error *e)
{
    enum pawl_rc rc;

    if (s->text_n > LIMIT_SQL_BYTES) {
        return pawl_fail(e, PAWL_TOOBIG, "the statement has %zu bytes, at most %d are accepted",
                         s->text_n, LIMIT_SQL_BYTES);
    }
    if ((s->text = strdup(sql)) == NULL) {
        return pawl_fail(e, PAWL_NOMEM, "prepare a statement: out of memory");
    }
    if ((rc = sql_scan(s->text, &s->arena, &s->scan, e)) != PAWL_OK) return rc;
    return store_stmt_prepare(h->st, s->text, &s->stmt, e);
}

static enum pawl_rc add(struct c_host *h, const char *sql, size_t n, uint64_t hash,
                        struct c_stmt **out, struct pawl_error *e)
{
    struct c_stmt *s, *old;
    enum pawl_rc rc;

    if (h->stmts_n >= C_STATEMENTS) {
        if ((old = oldest(h)) == NULL) {
            return pawl_fail(e, PAWL_TOOBIG, "more than %d statements are in use at once, each "
                             "inside the rows of another", C_STATEMENTS);
        }
        forget(h, old);
    }
    if ((s = calloc(1, sizeof *s)) == NULL) {
        return pawl_fail(e, PAWL_NOMEM, "prepare a statement: out of memory");
    }
    s->text_n = n;
    s->hash = hash;
    if ((rc = compile(h, s, sql, e)) != PAWL_OK) {
        free_stmt(s);
        return rc;
    }
    s->next = h->bucket[hash % C_BUCKETS];
    h->bucket[hash % C_BUCKETS] = s;
    h->stmts_n++;
    *out = s;
    return PAWL_OK;
}

enum pawl_rc c_stmt_get(struct c_host *h, const char *sql, struct c_stmt **out,
                        struct pawl_error *e)
{
    size_t n = strlen(sql);
    uint64_t hash = hash_of(sql, n);
    struct c_stmt *s = h->bucket[hash % C_BUCKETS];
    enum pawl_rc rc = PAWL_OK;

    while (s != NULL && (s->busy || s->hash != hash || s->text_n != n
                         || memcmp(s->text, sql, n) != 0)) {
        s = s->next;
    }
    if (s == NULL && (rc = add(h, sql, n, hash, &s, e)) != PAWL_OK) return rc;
    s->busy = true;
    s->used = ++h->uses;
    *out = s;
    return PAWL_OK;
}
