// SPDX-License-Identifier: Apache-2.0
/* statement.c - SQL statements of a task: those that it is (sql), and those that its program may
 * ask for by name (write.NAME). Scanned here; the store prepares them later.
 */
#include <string.h>

#include "base/err.h"
#include "base/os.h"
#include "base/text.h"
#include "base/json.h"
#include "conf/parse.h"
#include "core/limits.h"
#include "core/rules.h"

/* Control characters that no text of a statement or a path needs. */
static bool is_plain(const char *s, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        unsigned char c = (unsigned char)s[i];
        if ((c < 0x20 && c != '\t' && c != '\n' && c != '\r') || c == 0x7f) return false;
    }
    return true;
}

/* The text of `KEY = @FILE`. */
static enum pawl_rc read_statement(struct parse *p, const struct ini_item *it, const char *key,
                                   const char **out)
{
    const char *name = it->value + 1 + strspn(it->value + 1, " \t");
    const char *path;
    struct pawl_error why = {0};
    struct buf text = {0};
    enum pawl_rc rc;

    *out = NULL;
    if (name[0] == '\0' || strcmp(name, "-") == 0 || strchr(name, '\n') != NULL) {
        return parse_bad(p, it->line, "%s = @: write @ and the name of one file", key);
    }
    if ((path = parse_path(p, name)) == NULL) return parse_nomem(p);
    rc = os_read_file(path, LIMIT_SQL_BYTES, &text, &why);
    if (rc == PAWL_NOMEM) {
        rc = parse_nomem(p);
    } else if (rc != PAWL_OK) {
        rc = parse_bad(p, it->line, "%s = @%.200s: %s", key, name, why.msg);
    } else if (!utf8_ok(buf_str(&text), text.n) || !is_plain(buf_str(&text), text.n)) {
        rc = parse_bad(p, it->line, "%s = @%.200s: not UTF-8 text, or it has control characters",
                       key, name);
    } else if ((*out = arena_dup(&p->c->arena, buf_str(&text), text.n)) == NULL) {
        rc = parse_nomem(p);
    }
    buf_free(&text);
    return rc;
}

enum pawl_rc parse_statement(struct parse *p, const struct ini_item *it, const char *key,
                             struct conf_sql *out)
{
    struct pawl_error why = {0};
    const char *text = it->value;
    enum pawl_rc rc;

    if (text[0] == '@' && (rc = read_statement(p, it, key, &text)) != PAWL_OK) return rc;
    rc = sql_scan(text, &p->c->arena, &out->scan, &why);
    if (rc == PAWL_NOMEM) return parse_nomem(p);
    if (rc != PAWL_OK && text != it->value) {
        return parse_bad(p, it->line, "%s = %.200s: %s", key, it->value, why.msg);
    }
    if (rc != PAWL_OK) return parse_bad(p, it->line, "%s: %s", key, why.msg);
    if (out->scan.dollar_quotes) {
        return parse_bad(p, it->line,
                         "%s: $tag$ strings are not read here; write '...' with '' for a quote",
                         key);
    }
    out->line = it->line;
    out->text = arena_dup(&p->c->arena, text, out->scan.end);
    return out->text != NULL ? PAWL_OK : parse_nomem(p);
}

/* --- write.NAME and expect.NAME --- */

static const char *after(const char *name, const char *prefix)
{
    const size_t n = strlen(prefix);

    return strncmp(name, prefix, n) == 0 ? name + n : NULL;
}

bool write_is(const struct ini_item *it)
{
    return after(it->name, "write.") != NULL || after(it->name, "expect.") != NULL;
}

static enum pawl_rc check_name(struct parse *p, const struct ini_item *it, const char *name)
{
    if (name_ok(name, NULL)) return PAWL_OK;
    return parse_bad(p, it->line, "%.80s: a name of 1..64 of [a-z0-9._-] must follow the dot",
                     it->name);
}

static enum pawl_rc add_write(struct parse *p, const struct ini_item *it, struct conf_task *t)
{
    struct conf_write *w = &t->writes[t->writes_n];
    enum pawl_rc rc;

    w->name = after(it->name, "write.");
    w->expect = -1;
    if ((rc = check_name(p, it, w->name)) != PAWL_OK) return rc;
    if (it->value[0] == '\0') return parse_bad(p, it->line, "%.80s has no value", it->name);
    if ((rc = parse_statement(p, it, it->name, &w->sql)) != PAWL_OK) return rc;
    t->writes_n++;
    return PAWL_OK;
}

static enum pawl_rc add_expect(struct parse *p, const struct ini_item *it, struct conf_task *t)
{
    const char *name = after(it->name, "expect.");
    int64_t n = 0;
    size_t i = 0;

    while (i < t->writes_n && strcmp(t->writes[i].name, name) != 0) i++;
    if (i == t->writes_n) {
        return parse_bad(p, it->line, "%.80s: there is no write.%.64s in this section", it->name,
                         name);
    }
    if (!text_int64(it->value, 0, 1000000000, &n)) {
        return parse_bad(p, it->line, "%.80s = %.80s: write how many rows it must change, 0 to "
                         "1000000000", it->name, it->value);
    }
    t->writes[i].expect = n;
    return PAWL_OK;
}

enum pawl_rc write_parse(struct parse *p, const struct ini_item *head, struct conf_task *t)
{
    const struct ini_item *it;
    size_t n = 0;
    enum pawl_rc rc;

    for (it = head->next; it != NULL && !it->section; it = it->next) {
        if (!write_is(it)) continue;
        if (t->kind != HANDLER_EXEC) {
            return parse_bad(p, it->line, "%.80s means nothing to %s %s task; take it out",
                             it->name, t->kind == HANDLER_C ? "a" : "an", conf_kind_name(t->kind));
        }
        n += after(it->name, "write.") != NULL;
    }
    if (n > LIMIT_STATEMENTS) {
        return parse_bad(p, head->line, "[%s] has %zu write keys; at most %d", head->name, n,
                         LIMIT_STATEMENTS);
    }
    t->writes = arena_alloc(&p->c->arena, (n + 1) * sizeof *t->writes);
    if (t->writes == NULL) return parse_nomem(p);
    for (it = head->next; it != NULL && !it->section; it = it->next) {
        if (after(it->name, "write.") == NULL) continue;
        if ((rc = add_write(p, it, t)) != PAWL_OK) return rc;
    }
    for (it = head->next; it != NULL && !it->section; it = it->next) {
        if (after(it->name, "expect.") == NULL) continue;
        if ((rc = add_expect(p, it, t)) != PAWL_OK) return rc;
    }
    return PAWL_OK;
}
