// SPDX-License-Identifier: Apache-2.0
/* enqueue_bulk.c - pawl enqueue --bulk: JSON Lines into the store, a batch a transaction.
 *
 * Keeps: a batch is stored whole or not at all; what is said to be stored is durable; memory is
 *        bounded by one line and one batch, whatever the input's length.
 * Never: guesses. An unknown or doubled member stops the import and names the line.
 */
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/os.h"
#include "base/text.h"
#include "cli/cli.h"
#include "cli/enqueue.h"
#include "core/limits.h"
#include "core/request.h"

enum {
    BATCH_JOBS = 1000,
    BATCH_BYTES = 8 * 1024 * 1024,
    LINE_BYTES = LIMIT_ARGS_BYTES + 64 * 1024,
    WARNED_TASKS = 8, /* undeclared tasks named; more are counted */
};

struct bulk {
    struct cli *c;
    int fd;
    bool eof, tty;
    char *in;              /* bytes read and not yet taken: in[at..n) */
    size_t at, n, cap;
    int64_t line;          /* number of the line taken last */
    int64_t batch_line;    /* of the first line of the open batch; 0: it is empty */
    int64_t from_line;
    struct arena arena;    /* owns the strings of the open batch */
    struct pawl_request req[BATCH_JOBS];
    int64_t lines[BATCH_JOBS];
    struct pawl_enqueued out[BATCH_JOBS];
    size_t jobs;           /* in the open batch */
    int64_t stored, created, tick_us;
    char warned[WARNED_TASKS][LIMIT_NAME_BYTES + 1];
    size_t warned_n;
    int64_t unwarned;      /* jobs of undeclared tasks beyond those named */
};

/* Ctrl-C or SIGTERM: the import stops between two lines and says how far it came. */
static volatile sig_atomic_t stop_signal;

static void on_signal(int sig)
{
    stop_signal = sig;
}

static void watch_signals(void)
{
    struct sigaction sa = {.sa_handler = on_signal}; /* no SA_RESTART: it interrupts a read */
    sigemptyset(&sa.sa_mask);
    sigaction(SIGINT, &sa, NULL);
    sigaction(SIGTERM, &sa, NULL);
}

static int interrupted(struct bulk *k, struct pawl_error *e)
{
    (void)pawl_fail(e, PAWL_BUSY, "interrupted after line %" PRId64, k->line);
    return -1;
}

/* Take the next line, without its end. 1 taken, 0 no more, -1 error in *e. */
static int next_line(struct bulk *k, const char **s, size_t *n, struct pawl_error *e)
{
    size_t seen = 0;
    for (;;) {
        if (stop_signal) return interrupted(k, e);
        char *nl = memchr(k->in + k->at + seen, '\n', k->n - k->at - seen);
        if (nl || (k->eof && k->at < k->n)) {
            *s = k->in + k->at;
            *n = nl ? (size_t)(nl - *s) : k->n - k->at;
            k->at += *n + (nl ? 1 : 0);
            k->line++;
            if (*n <= LINE_BYTES) return 1;
        }
        seen = k->n - k->at;
        if (nl || seen > LINE_BYTES) {
            (void)pawl_fail(e, PAWL_TOOBIG, "line %" PRId64 ": longer than %d bytes",
                            k->line + (nl ? 0 : 1), (int)LINE_BYTES);
            return -1;
        }
        if (k->eof) return 0;
        memmove(k->in, k->in + k->at, seen);
        k->at = 0;
        k->n = seen;
        ssize_t got = read(k->fd, k->in + k->n, k->cap - k->n);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) {
            (void)pawl_fail_errno(e, errno, "reading after line %" PRId64, k->line);
            return -1;
        }
        k->n += (size_t)got;
        k->eof = got == 0;
    }
}

static void warn_unknown(struct bulk *k, const char *task, const struct pawl_enqueued *a)
{
    for (size_t i = 0; i < k->warned_n; i++)
        if (strcmp(k->warned[i], task) == 0) return;
    if (k->warned_n == WARNED_TASKS) {
        k->unwarned++;
        return;
    }
    size_t n = strlen(task);
    assert(n <= LIMIT_NAME_BYTES); /* the store has accepted it */
    memcpy(k->warned[k->warned_n++], task, n + 1);
    enqueue_warn_unknown(k->c, task, a);
}

static void progress(struct bulk *k, bool last)
{
    char n[32];
    int64_t now_us = cli_now_us();
    if (!k->tty || (!last && now_us - k->tick_us < 100000)) return;
    k->tick_us = now_us;
    struct buf b = {0};
    if (last)
        buf_puts(&b, "\r\033[K");
    else
        buf_printf(&b, "\r\033[K%s stored", text_count(k->stored, n, sizeof n));
    if (!b.failed) (void)os_write_all(STDERR_FILENO, b.data, b.n);
    buf_free(&b);
}

/* Store the open batch. OK, or *e says which line (nothing of the batch is stored). */
static enum pawl_rc store_batch(struct bulk *k, struct pawl_error *e)
{
    size_t bad = k->jobs;
    if (k->jobs == 0) return PAWL_OK;
    enum pawl_rc rc = pawl_enqueue(k->c->pawl, k->req, k->jobs, k->out, &bad, e);
    if (rc != PAWL_OK) {
        if (bad < k->jobs) return pawl_wrap(e, "line %" PRId64, k->lines[bad]);
        return pawl_wrap(e, "lines %" PRId64 " to %" PRId64, k->lines[0], k->lines[k->jobs - 1]);
    }
    for (size_t i = 0; i < k->jobs; i++) {
        k->created += k->out[i].created;
        if (!k->out[i].task_known) warn_unknown(k, k->req[i].task, &k->out[i]);
        pawl_free(k->out[i].result);
        k->out[i].result = NULL;
    }
    k->stored += (int64_t)k->jobs;
    k->jobs = 0;
    k->batch_line = 0;
    arena_reset(&k->arena);
    progress(k, false);
    return PAWL_OK;
}

static bool blank(const char *s, size_t n)
{
    while (n > 0 && (*s == ' ' || *s == '\t' || *s == '\r')) s++, n--;
    return n == 0;
}

static enum pawl_rc import(struct bulk *k, struct pawl_error *e)
{
    const char *s = NULL;
    size_t n = 0;
    enum pawl_rc rc;
    int got;
    while ((got = next_line(k, &s, &n, e)) > 0) {
        if (k->line < k->from_line || blank(s, n)) continue;
        if (k->batch_line == 0) k->batch_line = k->line;
        struct pawl_request *r = &k->req[k->jobs];
        if ((rc = request_parse(s, n, cli_now_us(), &k->arena, r, e)) != PAWL_OK)
            return pawl_wrap(e, "line %" PRId64, k->line);
        k->lines[k->jobs++] = k->line;
        if (k->jobs < BATCH_JOBS && k->arena.used_bytes < BATCH_BYTES) continue;
        if ((rc = store_batch(k, e)) != PAWL_OK) return rc;
    }
    return got < 0 ? e->rc : store_batch(k, e);
}

static void report(struct bulk *k, const struct pawl_error *e)
{
    struct buf *b = &k->c->out;
    char s[32], n[32], d[32];
    if (k->c->json) {
        buf_putc(b, '{');
        cli_json_int(b, "stored", k->stored);
        cli_json_int(b, "created", k->created);
        cli_json_int(b, "duplicates", k->stored - k->created);
        cli_json_int(b, "lines", k->line);
        cli_json_bool(b, "complete", e->rc == PAWL_OK);
        if (e->rc != PAWL_OK)
            cli_json_int(b, "from_line", k->batch_line ? k->batch_line : k->line + 1);
        buf_puts(b, "}\n");
    } else {
        buf_printf(b, "%s lines: %s new, %s duplicates\n", text_count(k->stored, s, sizeof s),
                   text_count(k->created, n, sizeof n),
                   text_count(k->stored - k->created, d, sizeof d));
    }
    if (k->unwarned > 0)
        cli_warn(k->c, "%" PRId64 " more jobs of tasks that no worker has declared yet",
                 k->unwarned);
}

/* The line of an error: what, how much is stored, how to go on. */
static int stopped(struct bulk *k, struct pawl_error *e)
{
    int64_t resume = k->batch_line ? k->batch_line : k->line + 1;
    /* In a line of input a bad argument is bad data, not bad usage. */
    int x = e->rc == PAWL_BADARG ? EXIT_DATA : pawl_rc_exit(e->rc);
    return cli_error(k->c, x,
                     "%s; %" PRId64 " stored, nothing from line %" PRId64
                     " on: %sgo on with --from-line %" PRId64,
                     e->msg, k->stored, resume, x == EXIT_DATA ? "mend it and " : "", resume);
}

int enqueue_bulk(struct cli *c, const char *path)
{
    struct pawl_error e = {.rc = PAWL_OK};
    struct bulk *k = NULL;
    int64_t from_line = 1;
    int x = cli_int(c, "from-line", 1, INT64_MAX, &from_line);
    if (x != 0 || (x = cli_open(c)) != 0) return x;
    int fd = strcmp(path, "-") == 0 ? dup(STDIN_FILENO) : open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        (void)pawl_fail_errno(&e, errno, "--bulk %s", path);
        return cli_fail(c, &e);
    }
    k = calloc(1, sizeof *k);
    if (k) k->in = malloc(LINE_BYTES + 256 * 1024);
    if (!k || !k->in) {
        x = cli_error(c, EXIT_TEMPFAIL, "out of memory");
        goto out;
    }
    k->c = c;
    k->fd = fd;
    k->cap = LINE_BYTES + 256 * 1024;
    k->from_line = from_line;
    k->tty = isatty(STDERR_FILENO) == 1;
    watch_signals();
    e.rc = import(k, &e);
    progress(k, true);
    report(k, &e);
    if (e.rc != PAWL_OK) x = stopped(k, &e);
out:
    close(fd);
    if (k) {
        arena_free(&k->arena);
        free(k->in);
    }
    free(k);
    return x;
}
