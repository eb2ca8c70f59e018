// SPDX-License-Identifier: Apache-2.0
/* os.c - files and descriptors; splitting words. Children are in os_spawn.c. */
#include "base/os.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>
#include "base/err.h"

enum pawl_rc os_read_file(const char *path, size_t max, struct buf *out, struct pawl_error *e)
{
    bool std = strcmp(path, "-") == 0;
    const char *shown = std ? "standard input" : path;
    int fd = std ? 0 : open(path, O_RDONLY | O_CLOEXEC);
    enum pawl_rc rc = PAWL_OK;
    char chunk[16 * 1024];
    size_t before = out->n;
    ssize_t n;

    if (fd < 0 && (errno == ENOENT || errno == ENOTDIR))
        return pawl_fail_native(e, PAWL_NOTFOUND, errno, "%s: no such file", shown);
    if (fd < 0) return pawl_fail_errno(e, errno, "open %s", shown);
    for (;;) {
        n = read(fd, chunk, sizeof chunk);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) rc = pawl_fail_errno(e, errno, "read %s", shown);
        if (n <= 0) break;
        if ((size_t)n > max - (out->n - before)) {
            rc = pawl_fail(e, PAWL_TOOBIG, "%s: more than %zu bytes", shown, max);
            break;
        }
        buf_put(out, chunk, (size_t)n);
        if (out->failed) {
            rc = pawl_fail(e, PAWL_NOMEM, "read %s: out of memory", shown);
            break;
        }
    }
    if (!std) close(fd);
    return rc;
}

bool os_write_all(int fd, const void *p, size_t n)
{
    const char *s = p;

    while (n > 0) {
        ssize_t k = write(fd, s, n);
        if (k < 0 && errno == EINTR) continue;
        if (k <= 0) return false;
        s += k;
        n -= (size_t)k;
    }
    return true;
}

bool os_nonblock(int fd)
{
    int flags = fcntl(fd, F_GETFL);

    return flags >= 0 && fcntl(fd, F_SETFL, flags | O_NONBLOCK) == 0;
}

bool os_pipe(int fd[2]) { return pipe2(fd, O_CLOEXEC) == 0; }

int os_pidfd(pid_t pid) { return (int)syscall(SYS_pidfd_open, pid, 0); } /* CLOEXEC by itself */

bool os_color(int fd)
{
    const char *no = getenv("NO_COLOR"), *term = getenv("TERM");

    return (no == NULL || no[0] == '\0') && term != NULL && term[0] != '\0' &&
           strcmp(term, "dumb") != 0 && isatty(fd) == 1;
}

/* ---- words ---- */

static bool is_blank(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }

static enum pawl_rc refuse(struct pawl_error *e, char c)
{
    return pawl_fail(e, PAWL_BADARG, "unquoted '%c': there is no shell here; quote it, or use a "
                     "script, or sh -c '...'", c);
}

/* One word from *s on into w; *s then stands behind it. */
static enum pawl_rc read_word(const char **s, struct buf *w, struct pawl_error *e)
{
    const char *p = *s;
    char quote = '\0';

    for (; *p != '\0' && (quote != '\0' || !is_blank(*p)); p++) {
        if (quote == '\'') {
            if (*p == '\'') quote = '\0';
            else buf_putc(w, *p);
        } else if (*p == '\\') {
            if (p[1] == '\0') return pawl_fail(e, PAWL_BADARG, "a lone \\ at the end of the words");
            /* inside "..." a backslash only escapes what would be special there */
            if (quote == '"' && strchr("\"\\$`\n", p[1]) == NULL) buf_putc(w, '\\');
            p++;
            if (*p != '\n') buf_putc(w, *p); /* backslash newline: the line goes on */
        } else if (*p == quote) {
            quote = '\0';
        } else if (quote == '\0' && (*p == '\'' || *p == '"')) {
            quote = *p;
        } else if (strchr(quote == '\0' ? "$`;|&<>()*?" : "$`", *p) != NULL) {
            return refuse(e, *p);
        } else {
            buf_putc(w, *p);
        }
    }
    if (quote != '\0') return pawl_fail(e, PAWL_BADARG, "no closing %c in the words", quote);
    *s = p;
    return PAWL_OK;
}

enum pawl_rc os_split_words(const char *s, struct arena *a, const char *const **out, size_t *n,
                            struct pawl_error *e)
{
    size_t max = strlen(s) / 2 + 2, at = 0; /* each word but the last is followed by a blank */
    const char **words = arena_alloc(a, max * sizeof *words);
    struct buf w = { 0 };
    enum pawl_rc rc = PAWL_OK;

    if (words == NULL) return pawl_fail(e, PAWL_NOMEM, "split words: out of memory");
    for (;;) {
        while (is_blank(*s)) s++;
        if (*s == '\0') break;
        if (*s == '#') {
            rc = pawl_fail(e, PAWL_BADARG, "a word that begins with an unquoted #: comments have"
                           " a line of their own; quote it if it is meant");
            goto out;
        }
        buf_clear(&w);
        if ((rc = read_word(&s, &w, e)) != PAWL_OK) goto out;
        words[at] = w.failed ? NULL : arena_dup(a, buf_str(&w), w.n);
        if (words[at++] == NULL) {
            rc = pawl_fail(e, PAWL_NOMEM, "split words: out of memory");
            goto out;
        }
    }
    *out = words;
    *n = at;
out:
    buf_free(&w);
    return rc;
}
