// SPDX-License-Identifier: Apache-2.0
/* cmd_copy.c - pawl copy: the whole store moves into another one, and one table says so. */
#include <inttypes.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "base/os.h"
#include "base/text.h"
#include "cli/cli.h"

enum { TICK_US = 100000, NAMED = 20 };

struct copying {
    struct cli *c;
    bool tty, drawn;
    int64_t tick_us;
    int64_t told, more;     /* rows named; and beyond those */
};

static volatile sig_atomic_t stop_signal;

static void on_signal(int sig)
{
    stop_signal = sig;
}

static void watch_signals(void)
{
    struct sigaction sa = {.sa_handler = on_signal};
    sigemptyset(&sa.sa_mask);
    sigaction(SIGINT, &sa, NULL);
    sigaction(SIGTERM, &sa, NULL);
}

static void wipe(struct copying *k)
{
    if (k->drawn) (void)os_write_all(STDERR_FILENO, "\r\033[K", 4);
    k->drawn = false;
}

static bool progress(void *ctx, const char *what, int64_t done, int64_t of)
{
    struct copying *k = ctx;
    char n[32], m[32];
    int64_t now_us = cli_now_us();
    struct buf b = {0};
    if (stop_signal) return false;
    if (!k->tty || now_us - k->tick_us < TICK_US) return true;
    k->tick_us = now_us;
    if (of > 0)
        buf_printf(&b, "\r\033[K%s: %s of %s (%d %%)", what, text_count(done, n, sizeof n),
                   text_count(of, m, sizeof m), (int)(100 * (double)done / (double)of));
    else
        buf_printf(&b, "\r\033[K%s", what);
    if (!b.failed) (void)os_write_all(STDERR_FILENO, b.data, b.n);
    buf_free(&b);
    k->drawn = true;
    return true;
}

/* One row that is not carried as it is, or one fault of the copy. */
static bool finding(void *ctx, const struct pawl_finding *f)
{
    struct copying *k = ctx;
    struct buf *b = &k->c->out;
    if (f->job_id < 0) return true;
    if (k->c->json) {
        buf_putc(b, '{');
        cli_json_str(b, "finding", f->invariant);
        cli_json_str(b, "what", f->what);
        cli_json_id(b, "job", f->job_id);
        buf_puts(b, "}\n");
        return cli_emit(k->c);
    }
    if (k->told++ >= NAMED) {
        k->more++;
        return true;
    }
    wipe(k);
    if (f->job_id > 0 && strstr(f->what, " of job ") == NULL)
        cli_warn(k->c, "%s: %s (job %" PRId64 ")", f->invariant, f->what, f->job_id);
    else
        cli_warn(k->c, "%s: %s", f->invariant, f->what);
    return true;
}

/* --- what it came to --- */

static void member(struct buf *b, const char *what, int64_t n)
{
    char name[32];
    size_t i;
    for (i = 0; what[i] && i < sizeof name - 1; i++) name[i] = what[i] == ' ' ? '_' : what[i];
    name[i] = '\0';
    cli_json_int(b, name, n);
}

static void report_json(struct cli *c, const char *state, const struct pawl_copied *r)
{
    struct buf *b = &c->out;
    const bool moved = strcmp(state, "moved") == 0;
    buf_putc(b, '{');
    cli_json_str(b, "state", state);
    cli_json_bool(b, "already", r->already);
    buf_puts(b, ",\"from\":{");
    for (size_t i = 0; i < r->rows_n; i++) member(b, r->row[i].what, r->row[i].from);
    buf_puts(b, "}");
    if (moved) {
        buf_puts(b, ",\"to\":{");
        for (size_t i = 0; i < r->rows_n; i++) member(b, r->row[i].what, r->row[i].to);
        buf_puts(b, "}");
    }
    cli_json_int(b, "recovered_workers", r->recovered);
    cli_json_int(b, "made_printable", r->printable);
    cli_json_int(b, "undecodable", r->undecodable);
    cli_json_int(b, "checked", r->checked);
    buf_puts(b, "}\n");
}

static void report_table(struct cli *c, const struct pawl_copied *r, bool both)
{
    struct buf *b = &c->out;
    char n[32], m[32];
    buf_printf(b, "%s%-12s%14s%14s%s\n", cli_color(CLI_BOLD), "", "from", both ? "to" : "",
               cli_color(CLI_RESET));
    for (size_t i = 0; i < r->rows_n; i++)
        buf_printf(b, "%-12s%14s%14s\n", r->row[i].what,
                   text_count(r->row[i].from, n, sizeof n),
                   both ? text_count(r->row[i].to, m, sizeof m) : "");
}

static void notes(struct cli *c, const struct pawl_copied *r)
{
    struct buf *b = &c->out;
    if (r->recovered > 0)
        buf_printf(b, "put back before: what %" PRId64 " dead workers held\n", r->recovered);
    if (r->printable > 0)
        buf_printf(b, "made printable: %" PRId64 " texts of evidence that are not UTF-8\n",
                   r->printable);
    if (r->undecodable > 0)
        buf_printf(b, "args that are not UTF-8: %" PRId64 "; these jobs end dead(undecodable) there"
                   " as they would have here\n", r->undecodable);
}

/* Blanks at the end of a line are for nobody. */
static void trim_lines(struct buf *b)
{
    size_t out = 0;
    for (size_t i = 0; i < b->n; i++) {
        if (b->data[i] == '\n')
            while (out > 0 && b->data[out - 1] == ' ') out--;
        b->data[out++] = b->data[i];
    }
    b->n = out;
    if (b->data) b->data[out] = '\0';
}

static void report(struct cli *c, const char *from, const char *to, const struct pawl_copied *r)
{
    const bool undo = cli_has(c, "undo"), dry = cli_has(c, "dry-run");
    struct buf *b = &c->out;
    if (c->json) {
        report_json(c, undo ? "undone" : dry ? "counted" : "moved", r);
        return;
    }
    if (r->rows_n > 0) report_table(c, r, !dry);
    notes(c, r);
    trim_lines(b);
    if (undo)
        buf_printf(b, "taken back: the jobs are in %s again\n", from);
    else if (dry)
        buf_printf(b, "nothing was changed; this would move %s to %s\n", from, to);
    else if (r->already)
        buf_printf(b, "moved before: the jobs are in %s\n", to);
    else
        buf_printf(b, "moved: the counts agree, %d invariants hold, the jobs are in %s\n",
                   r->checked, to);
}

static int ends(struct cli *c, const char **from, const char **to)
{
    *from = cli_opt(c, "from");
    *to = cli_opt(c, "to");
    if (c->db) return cli_usage(c, "takes no --db: say --from STORE --to STORE");
    if (!*from || !*to) return cli_usage(c, "needs --from STORE and --to STORE");
    return 0;
}

static int copy_run(struct cli *c)
{
    struct copying k = {.c = c, .tty = isatty(STDERR_FILENO) == 1};
    struct pawl_copy_opts o = {.dry_run = cli_has(c, "dry-run"), .undo = cli_has(c, "undo"),
                               .progress = progress, .finding = finding, .ctx = &k};
    struct pawl_copied r = {.rows_n = 0};
    struct pawl_error e = {.rc = PAWL_OK};
    const char *from = NULL, *to = NULL;
    int x = ends(c, &from, &to);
    if (x != 0) return x;
    watch_signals();
    enum pawl_rc rc = pawl_copy(from, to, &o, &r, &e);
    wipe(&k);
    if (k.more > 0) cli_warn(c, "%" PRId64 " more of these: --json lists all", k.more);
    if (rc == PAWL_NOSTORE) return cli_error(c, pawl_rc_exit(rc), "%s", e.msg);
    if (rc != PAWL_OK) return cli_fail(c, &e);
    report(c, cli_store(c, from), cli_store(c, to), &r);
    return 0;
}

static const struct cli_opt copy_opts[] = {
    {"from", 0, "STORE", "the store that moves", 0},
    {"to", 0, "STORE", "where to: an empty store, or a database without one", 0},
    {"dry-run", 0, NULL, "count, and look for rows that cannot be carried; change nothing", 0},
    {"undo", 0, NULL, "take a move back, as long as nothing has happened at the new place", 0},
    {NULL, 0, NULL, NULL, 0},
};
static const char *const copy_examples[] = {
    "pawl copy --from sqlite:shop.db --to postgresql://localhost/shop --dry-run",
    "pawl copy --from sqlite:shop.db --to postgresql://localhost/shop", NULL};
const struct cmd_entry cmd_copy = {
    .name = "copy",
    .synopsis = "--from STORE --to STORE [OPTION...]",
    .summary = "move the whole store into another one: jobs, keys, dead letters, history",
    .opts = copy_opts,
    .examples = copy_examples,
    .run = copy_run,
    .notes = "Stop the workers first. Ids and keys stay what they are. Whoever writes to the old\n"
             "store meanwhile waits, and is refused at the end: it says where the jobs went.\n"
             "After a kill, run it again. doc/moving-up.md has the whole of it.\n",
};
