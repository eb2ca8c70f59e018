// SPDX-License-Identifier: Apache-2.0
/* ini.c - read the form of a pawl.conf, line by line.
 *
 * Keeps: every byte of the file is a comment, a blank line, or part of exactly one item; anything
 *        else is an error with its line. Never repairs, never ignores.
 * See:   doc/config.md, "The form of the file".
 */
#include "conf/ini.h"

#include <assert.h>
#include <string.h>

#include "base/err.h"
#include "base/json.h"
#include "core/limits.h"

/* Why an indented line has nothing to continue. */
enum open_state { OPEN_VALUE, CLOSED_START, CLOSED_SECTION, CLOSED_BLANK };

struct reader {
    const char *path;
    const char *text;
    size_t n, at;
    struct arena *a;
    struct pawl_error *e;
    const char *line;        /* the current line, without its end */
    size_t line_n;
    int line_no;
    enum open_state open;
    struct ini_item *cur;    /* the key whose value is being collected, or NULL */
    struct buf value;
    struct ini_item **tail;
};

static enum pawl_rc bad(struct reader *r, const char *what)
{
    return pawl_fail(r->e, PAWL_CONFIG, "%s:%d: %s", r->path, r->line_no, what);
}

static enum pawl_rc nomem(struct reader *r)
{
    return pawl_fail(r->e, PAWL_NOMEM, "%s: out of memory", r->path);
}

static bool blank(char c)
{
    return c == ' ' || c == '\t';
}

static bool next_line(struct reader *r)
{
    const char *nl;

    if (r->at >= r->n) return false;
    r->line = r->text + r->at;
    nl = memchr(r->line, '\n', r->n - r->at);
    r->line_n = nl != NULL ? (size_t)(nl - r->line) : r->n - r->at;
    r->at += r->line_n + (nl != NULL);
    if (r->line_n > 0 && r->line[r->line_n - 1] == '\r') r->line_n--;
    r->line_no++;
    return true;
}

/* What no line may hold. */
static enum pawl_rc check_line(struct reader *r)
{
    if (r->line_n > LIMIT_SQL_BYTES) return bad(r, "the line is longer than 64 KiB");
    if (r->line_no == 1 && r->line_n >= 3 && memcmp(r->line, "\xef\xbb\xbf", 3) == 0) {
        return bad(r, "the file begins with a byte order mark; save it as UTF-8 without one");
    }
    if (!utf8_ok(r->line, r->line_n)) return bad(r, "the line is not valid UTF-8");
    for (size_t i = 0; i < r->line_n; i++) {
        unsigned char c = (unsigned char)r->line[i];
        if ((c < 0x20 && c != '\t') || c == 0x7f) {
            return pawl_fail(r->e, PAWL_CONFIG, "%s:%d: control character 0x%02x in column %zu",
                             r->path, r->line_no, c, i + 1);
        }
    }
    return PAWL_OK;
}

/* Cut blanks off both ends of the n bytes at *s. */
static size_t trim(const char **s, size_t n)
{
    while (n > 0 && blank((*s)[0])) {
        (*s)++;
        n--;
    }
    while (n > 0 && blank((*s)[n - 1])) n--;
    return n;
}

static enum pawl_rc add_item(struct reader *r, bool section, const char *name, size_t name_n)
{
    struct ini_item *it = arena_alloc(r->a, sizeof *it);

    if (it == NULL) return nomem(r);
    it->line = r->line_no;
    it->section = section;
    it->name = arena_dup(r->a, name, name_n);
    it->value = "";
    if (it->name == NULL) return nomem(r);
    *r->tail = it;
    r->tail = &it->next;
    if (!section) r->cur = it;
    return PAWL_OK;
}

/* Add one piece to the open value. */
static enum pawl_rc add_piece(struct reader *r, const char *s, size_t n)
{
    n = trim(&s, n);
    if (n == 0) return PAWL_OK;
    if (r->value.n > 0) buf_putc(&r->value, '\n');
    buf_put(&r->value, s, n);
    if (r->value.failed) return nomem(r);
    if (r->value.n > LIMIT_SQL_BYTES) return bad(r, "the value is longer than 64 KiB");
    return PAWL_OK;
}

static enum pawl_rc close_value(struct reader *r)
{
    if (r->cur == NULL) return PAWL_OK;
    r->cur->value = arena_dup(r->a, buf_str(&r->value), r->value.n);
    if (r->cur->value == NULL) return nomem(r);
    r->cur = NULL;
    buf_clear(&r->value);
    return PAWL_OK;
}

static enum pawl_rc indented_line(struct reader *r)
{
    const char *s = r->line;
    size_t n = trim(&s, r->line_n);

    assert(n > 0);
    if (s[0] == '#' || (s[0] == ';' && n > 1)) {
        return bad(r, "an indented line continues the value above; a comment begins in the first "
                      "column");
    }
    if (s[0] == '[' && s[n - 1] == ']' &&
        ((n >= 6 && strncmp(s, "[pawl]", 6) == 0) || (n >= 7 && strncmp(s, "[task ", 6) == 0))) {
        return bad(r, "a section begins in the first column; take the indentation out");
    }
    switch (r->open) {
    case OPEN_VALUE:
        return add_piece(r, s, n);
    case CLOSED_BLANK:
        return bad(r, "this indented line continues no value: a blank line ended the one above");
    case CLOSED_SECTION:
        return bad(r, "this indented line continues no value; a key begins in the first column");
    case CLOSED_START:
        break;
    }
    return bad(r, "an indented line before any key; begin with [pawl] or [task NAME]");
}

static enum pawl_rc section_line(struct reader *r)
{
    const char *s = r->line + 1;
    size_t n = trim(&s, r->line_n - 1), name_n = 0;
    char name[160];

    if (n == 0 || s[n - 1] != ']') {
        return bad(r, "a section is [pawl] or [task NAME], with nothing after the bracket");
    }
    n = trim(&s, n - 1);
    if (memchr(s, ']', n) != NULL || n >= sizeof name) {
        return bad(r, "a section is [pawl] or [task NAME], with nothing after the bracket");
    }
    for (size_t i = 0; i < n; i++) {
        bool gap = blank(s[i]);
        if (gap && blank(s[i - 1])) continue;
        name[name_n++] = gap ? ' ' : s[i];
    }
    r->open = CLOSED_SECTION;
    return add_item(r, true, name, name_n);
}

static enum pawl_rc key_line(struct reader *r)
{
    const char *eq = memchr(r->line, '=', r->line_n);
    const char *key = r->line, *value;
    size_t key_n;
    enum pawl_rc rc;

    if (eq == NULL) {
        return bad(r, "not a [section], a key = value, or a # comment; indent a line to continue "
                      "the value above");
    }
    key_n = trim(&key, (size_t)(eq - r->line));
    if (key_n == 0) return bad(r, "there is no key before the '='");
    if (r->open == CLOSED_START) {
        return bad(r, "a key before the first section; begin with [pawl] or [task NAME]");
    }
    value = eq + 1;
    if ((rc = add_item(r, false, key, key_n)) != PAWL_OK) return rc;
    r->open = OPEN_VALUE;
    return add_piece(r, value, r->line_n - (size_t)(value - r->line));
}

static enum pawl_rc read_line(struct reader *r)
{
    const char *s = r->line;
    enum pawl_rc rc = check_line(r);

    if (rc != PAWL_OK) return rc;
    if (trim(&s, r->line_n) == 0) {
        if (r->open == OPEN_VALUE) r->open = CLOSED_BLANK;
        return PAWL_OK;
    }
    if (r->line[0] == '#' || r->line[0] == ';') return PAWL_OK;
    if (blank(r->line[0])) return indented_line(r);
    if ((rc = close_value(r)) != PAWL_OK) return rc;
    return r->line[0] == '[' ? section_line(r) : key_line(r);
}

enum pawl_rc ini_parse(const char *path, const char *text, size_t n, struct arena *a,
                       struct ini_item **out, struct pawl_error *e)
{
    struct reader r = {.path = path, .text = text, .n = n, .a = a, .e = e, .open = CLOSED_START};
    enum pawl_rc rc = PAWL_OK;

    assert(path != NULL && a != NULL && out != NULL);
    *out = NULL;
    r.tail = out;
    while (rc == PAWL_OK && next_line(&r)) rc = read_line(&r);
    if (rc == PAWL_OK) rc = close_value(&r);
    buf_free(&r.value);
    return rc;
}
