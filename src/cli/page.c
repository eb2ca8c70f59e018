// SPDX-License-Identifier: Apache-2.0
/* page.c - the page of one job: what it is, every attempt with its evidence, what can be done. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/json.h"
#include "base/text.h"
#include "cli/show.h"

enum { PAGE_TEXT_BYTES = 4096 }; /* of args and result; --json shows all */

struct page {
    struct cli *c;
    bool only_dead, not_dead, task_paused, queue_paused;
    int64_t id, replayed_as, run_at_us, attempts, attempts_shown;
    enum pawl_state state;
    char task[80], queue[80];
};

static void row(struct buf *b, const char *name)
{
    buf_printf(b, "  %-11s ", name);
}

static void row_text(struct buf *b, const char *name, const char *s)
{
    if (!s || !*s) return;
    row(b, name);
    cli_safe(b, s, 0);
    buf_putc(b, '\n');
}

static void row_at(struct buf *b, const char *name, int64_t at_us, int64_t now_us)
{
    char t[48], age[32];
    if (!at_us) return;
    row(b, name);
    buf_printf(b, "%s (%s%s%s)\n", text_instant(at_us, t, sizeof t), at_us > now_us ? "in " : "",
               show_age(at_us > now_us ? at_us - now_us : now_us - at_us, age, sizeof age),
               at_us > now_us ? "" : " ago");
}

static void row_bytes(struct buf *b, const char *name, const char *s, size_t n)
{
    char size[32];
    if (!s) return;
    row(b, name);
    text_put_safe(b, s, n > PAGE_TEXT_BYTES ? PAGE_TEXT_BYTES : n, false);
    if (n > PAGE_TEXT_BYTES)
        buf_printf(b, " ... (%s in all: see --json)", text_bytes(n, size, sizeof size));
    buf_putc(b, '\n');
}

/* Several lines of evidence, each indented under its name. */
static void block(struct buf *b, const char *name, const char *s)
{
    if (!s || !*s) return;
    size_t n = strlen(s);
    if (s[n - 1] == '\n') n--;
    row(b, name);
    for (size_t at = 0; at <= n;) {
        const char *nl = memchr(s + at, '\n', n - at);
        size_t end = nl ? (size_t)(nl - s) : n;
        if (at > 0) row(b, "");
        text_put_safe(b, s + at, end - at, false);
        buf_putc(b, '\n');
        at = end + 1;
    }
}

static void put_n(struct buf *b, int64_t n, const char *what, const char *then)
{
    buf_printf(b, "%" PRId64 "%s%s%s", n, what, n == 1 ? "" : "s", then);
}

static void counters(struct buf *b, const struct pawl_job *j)
{
    row(b, "counted");
    put_n(b, j->runs, " run", ", ");
    put_n(b, j->failures, " failure", ", ");
    buf_printf(b, "%" PRId64 " lost, ", j->lost);
    put_n(b, j->releases, " release", ", ");
    put_n(b, j->snoozes, " snooze", "");
    if (j->max_retries >= 0) buf_printf(b, "; at most %d retries", j->max_retries);
    buf_puts(b, j->suspect ? "; suspect: runs alone\n" : "\n");
}

static void origin(struct buf *b, const struct pawl_job *j)
{
    if (j->replay_of) {
        row(b, "replay of");
        buf_printf(b, "job %" PRId64 " (root %" PRId64 ", generation %d)\n", j->replay_of,
                   j->root_id, j->gen);
    }
    if (j->replayed_as) {
        row(b, "replayed as");
        buf_printf(b, "job %" PRId64 "\n", j->replayed_as);
    }
}

static void heading(struct buf *b, const struct pawl_job *j)
{
    buf_printf(b, "%sjob %" PRId64 "%s  %s", cli_color(CLI_BOLD), j->id, cli_color(CLI_RESET),
               pawl_state_name(j->state));
    const char *more = j->state == PAWL_STATE_DEAD ? j->dead_class : j->outcome;
    if (more && strcmp(more, pawl_state_name(j->state)) != 0) {
        buf_puts(b, " (");
        cli_safe(b, more, 40);
        buf_putc(b, ')');
    }
    buf_putc(b, '\n');
}

static bool page_job(void *ctx, const struct pawl_job *j)
{
    struct page *p = ctx;
    struct buf *b = &p->c->out;
    int64_t now_us = cli_now_us();
    p->state = j->state;
    p->replayed_as = j->replayed_as;
    p->run_at_us = j->run_at_us;
    p->attempts = j->attempts;
    p->task_paused = j->task_paused;
    p->queue_paused = j->queue_paused;
    snprintf(p->task, sizeof p->task, "%s", j->task ? j->task : "");
    snprintf(p->queue, sizeof p->queue, "%s", j->queue ? j->queue : "");
    p->not_dead = p->only_dead && j->state != PAWL_STATE_DEAD;
    if (p->not_dead) return true;
    heading(b, j);
    row_text(b, "task", j->task);
    row_text(b, "queue", j->queue);
    if (j->priority) {
        row(b, "priority");
        buf_printf(b, "%d\n", j->priority);
    }
    row_text(b, "source", j->source);
    row_text(b, "key", j->key);
    row_bytes(b, "args", j->args, j->args_bytes);
    row_text(b, "headers", j->headers);
    row_text(b, "traceparent", j->trace);
    row_text(b, "serial", j->serial);
    row_text(b, "entity", j->entity);
    if (j->has_version) {
        row(b, "version");
        buf_printf(b, "%" PRId64 "\n", j->version);
    }
    row_at(b, "created", j->created_at_us, now_us);
    if (j->state == PAWL_STATE_READY) row_at(b, "due", j->run_at_us, now_us);
    row_at(b, "expires", j->expires_at_us, now_us);
    row_at(b, "started", j->started_at_us, now_us);
    row_at(b, "ended", j->ended_at_us, now_us);
    row_text(b, "worker", j->worker);
    counters(b, j);
    origin(b, j);
    row_text(b, "reason", j->reason);
    block(b, "error", j->error);
    row_bytes(b, "result", j->result, j->result_bytes);
    return true;
}

static bool page_attempt(void *ctx, const struct pawl_attempt *a)
{
    struct page *p = ctx;
    struct buf *b = &p->c->out;
    char t[48];
    p->attempts_shown++;
    buf_printf(b, "\nattempt %" PRId64 "  ", a->n);
    cli_safe(b, a->outcome, 40);
    buf_putc(b, '\n');
    const bool never = show_never_started(a);
    if (never) row_text(b, "started", "never");
    else if (a->started_at_us) row_text(b, "started", text_instant(a->started_at_us, t, sizeof t));
    if (!never && a->started_at_us && a->ended_at_us >= a->started_at_us) {
        int64_t took_us = (a->ended_at_us - a->started_at_us) / 1000 * 1000;
        row_text(b, "took", took_us > 0 ? text_duration(took_us, t, sizeof t) : "under 1ms");
    }
    row_text(b, "worker", a->worker);
    row_text(b, "host", a->host);
    row_text(b, "build", a->build);
    if (a->exit_code >= 0) {
        row(b, "exit");
        buf_printf(b, "%d\n", a->exit_code);
    }
    if (a->signal >= 0) {
        row(b, "signal");
        buf_printf(b, "%d (%s)\n", a->signal, strsignal(a->signal));
    }
    if (a->max_rss_kib > 0)
        row_text(b, "memory", text_bytes((uint64_t)a->max_rss_kib * 1024, t, sizeof t));
    block(b, "error", a->error);
    block(b, "stdout", a->out_tail);
    block(b, "stderr", a->err_tail);
    if (a->delay_us > 0) {
        row(b, "next run");
        buf_printf(b, "after %s\n", text_duration(a->delay_us / 1000 * 1000, t, sizeof t));
    }
    return cli_emit(p->c);
}

/* What can be done next, as commands to copy. */
static void hint(struct page *p)
{
    struct buf *b = &p->c->out;
    int64_t id = p->id;
    if (p->state == PAWL_STATE_DEAD && p->replayed_as)
        buf_printf(b, "\nnext: pawl job %" PRId64 " shows the replay; pawl dead replay %" PRId64
                   " --again --reason TEXT replays once more\n", p->replayed_as, id);
    else if (p->state == PAWL_STATE_DEAD)
        buf_printf(b, "\nnext: pawl dead replay %" PRId64 " (--args JSON to fix the args), or "
                   "pawl dead discard %" PRId64 " --reason TEXT\n", id, id);
    else if (p->state == PAWL_STATE_READY && p->queue_paused)
        buf_printf(b, "\nnext: its queue is paused; pawl resume %s; pawl cancel %" PRId64 "\n",
                   p->queue, id);
    else if (p->state == PAWL_STATE_READY && p->task_paused)
        buf_printf(b, "\nnext: its task is paused; pawl resume --task %s; pawl cancel %" PRId64
                   "\n", p->task, id);
    else if (p->state == PAWL_STATE_READY && p->run_at_us > cli_now_us())
        buf_printf(b, "\nnext: pawl run-now %" PRId64 " skips the wait; pawl cancel %" PRId64 "\n",
                   id, id);
    else if (p->state == PAWL_STATE_READY)
        buf_printf(b, "\nnext: it is due and waits for a worker that serves task %s and queue %s; "
                   "pawl cancel %" PRId64 "\n", p->task, p->queue, id);
    else if (p->state == PAWL_STATE_RUNNING)
        buf_printf(b, "\nnext: pawl cancel %" PRId64 " voids the run\n", id);
}

int show_job_page(struct cli *c, int64_t id, bool only_dead)
{
    struct page p = {.c = c, .id = id, .only_dead = only_dead};
    struct pawl_error e = {.rc = PAWL_OK};
    if (pawl_job_get(c->pawl, id, page_job, &p, &e) != PAWL_OK) return cli_fail(c, &e);
    if (p.not_dead)
        return cli_error(c, EXIT_NO, "job %" PRId64 " is %s, not dead", id,
                         pawl_state_name(p.state));
    if (pawl_attempts(c->pawl, id, page_attempt, &p, &e) != PAWL_OK) return cli_fail(c, &e);
    if (p.attempts > p.attempts_shown)
        buf_printf(&c->out, "\n%" PRId64 " older attempts were counted, not kept\n",
                   p.attempts - p.attempts_shown);
    hint(&p);
    return 0;
}
