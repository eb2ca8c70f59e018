// SPDX-License-Identifier: Apache-2.0
/* show.c - jobs and attempts as JSON, and as rows of a list. The page for a person: page.c.
 *
 * Keeps: ids are strings, instants RFC 3339, every member is always there (null when not set).
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/json.h"
#include "base/text.h"
#include "cli/show.h"
#include "core/rules.h"

static void opt_int(struct buf *b, const char *name, int64_t v, bool set)
{
    if (set)
        cli_json_int(b, name, v);
    else
        cli_json_str(b, name, NULL);
}

void show_job_json(struct buf *b, const struct pawl_job *j)
{
    cli_json_id(b, "id", j->id);
    cli_json_str(b, "state", pawl_state_name(j->state));
    cli_json_str(b, "task", j->task);
    cli_json_str(b, "queue", j->queue);
    cli_json_int(b, "priority", j->priority);
    cli_json_str(b, "source", j->source);
    cli_json_str(b, "key", j->key);
    cli_json_text(b, "args", j->args ? j->args : "", j->args ? j->args_bytes : 0);
    cli_json_at(b, "created_at", j->created_at_us);
    cli_json_at(b, "run_at", j->run_at_us);
    cli_json_at(b, "expires_at", j->expires_at_us);
    cli_json_at(b, "started_at", j->started_at_us);
    cli_json_at(b, "ended_at", j->ended_at_us);
    cli_json_int(b, "runs", j->runs);
    cli_json_int(b, "failures", j->failures);
    cli_json_int(b, "lost", j->lost);
    cli_json_int(b, "releases", j->releases);
    cli_json_int(b, "snoozes", j->snoozes);
    opt_int(b, "max_retries", j->max_retries, j->max_retries >= 0);
    cli_json_bool(b, "suspect", j->suspect);
    cli_json_bool(b, "paused", j->task_paused || j->queue_paused);
    cli_json_str(b, "entity", j->entity);
    opt_int(b, "version", j->version, j->has_version);
    cli_json_str(b, "serial", j->serial);
    cli_json_text(b, "headers", j->headers, j->headers ? strlen(j->headers) : 0);
    cli_json_str(b, "traceparent", j->trace);
    cli_json_id(b, "root_id", j->root_id);
    cli_json_id(b, "replay_of", j->replay_of);
    cli_json_id(b, "replayed_as", j->replayed_as);
    cli_json_int(b, "gen", j->gen);
    cli_json_str(b, "worker", j->worker);
    cli_json_str(b, "outcome", j->outcome);
    cli_json_str(b, "dead_class", j->dead_class);
    cli_json_str(b, "reason", j->reason);
    cli_json_str(b, "error", j->error);
    cli_json_text(b, "result", j->result, j->result ? j->result_bytes : 0);
    cli_json_int(b, "attempts_n", j->attempts);
}

/* Judged before its handler was called: the row's start is when it was claimed. */
bool show_never_started(const struct pawl_attempt *a)
{
    return strcmp(a->outcome, "expired") == 0 || strcmp(a->outcome, "undecodable") == 0 ||
           (strcmp(a->outcome, "conflict") == 0 && a->exit_code < 0 && a->signal < 0);
}

void show_attempt_json(struct buf *b, const struct pawl_attempt *a)
{
    buf_putc(b, '{');
    cli_json_int(b, "n", a->n);
    cli_json_str(b, "outcome", a->outcome);
    cli_json_at(b, "started_at", show_never_started(a) ? 0 : a->started_at_us);
    cli_json_at(b, "ended_at", a->ended_at_us);
    cli_json_str(b, "worker", a->worker);
    cli_json_str(b, "host", a->host);
    cli_json_str(b, "build", a->build);
    opt_int(b, "exit_code", a->exit_code, a->exit_code >= 0);
    opt_int(b, "signal", a->signal, a->signal >= 0);
    cli_json_str(b, "error", a->error);
    cli_json_str(b, "stdout_tail", a->out_tail);
    cli_json_str(b, "stderr_tail", a->err_tail);
    opt_int(b, "max_rss_kib", a->max_rss_kib, a->max_rss_kib > 0);
    opt_int(b, "delay_ms", a->delay_us / 1000, a->delay_us > 0);
    buf_putc(b, '}');
}

/* --- one job as one line --- */
struct line { struct cli *c; bool only_dead, not_dead; enum pawl_state state; };

static bool line_job(void *ctx, const struct pawl_job *j)
{
    struct line *l = ctx;
    l->state = j->state;
    l->not_dead = l->only_dead && j->state != PAWL_STATE_DEAD;
    if (l->not_dead) return true;
    buf_putc(&l->c->out, '{');
    show_job_json(&l->c->out, j);
    return true;
}

static bool line_attempt(void *ctx, const struct pawl_attempt *a)
{
    struct buf *b = ctx;
    if (b->n > 0 && b->data[b->n - 1] != '[') buf_putc(b, ',');
    show_attempt_json(b, a);
    return true;
}

int show_job_line(struct cli *c, int64_t id, bool only_dead)
{
    struct line l = {.c = c, .only_dead = only_dead};
    struct pawl_error e = {.rc = PAWL_OK};
    size_t keep = c->out.n;
    if (pawl_job_get(c->pawl, id, line_job, &l, &e) != PAWL_OK) return cli_fail(c, &e);
    if (l.not_dead)
        return cli_error(c, EXIT_NO, "job %" PRId64 " is %s, not dead", id,
                         pawl_state_name(l.state));
    buf_puts(&c->out, ",\"attempts\":[");
    if (pawl_attempts(c->pawl, id, line_attempt, &c->out, &e) != PAWL_OK) {
        c->out.n = keep; /* half an object is worse than none */
        return cli_fail(c, &e);
    }
    buf_puts(&c->out, "]}\n");
    return 0;
}

/* --- rows --- */
char *show_age(int64_t us, char *buf, size_t n)
{
    int64_t s = us < 0 ? 0 : us / 1000000;
    if (s < 120)
        snprintf(buf, n, "%" PRId64 "s", s);
    else if (s < 2 * 3600)
        snprintf(buf, n, "%" PRId64 "m", s / 60);
    else if (s < 2 * 86400)
        snprintf(buf, n, "%" PRId64 "h", s / 3600);
    else
        snprintf(buf, n, "%" PRId64 "d", s / 86400);
    return buf;
}

/* The last column: what a person wants to know about a job in this state. */
static void remark(struct buf *b, const struct pawl_job *j, int64_t now_us, size_t width)
{
    char age[32];
    if (j->state == PAWL_STATE_READY && (j->task_paused || j->queue_paused))
        buf_printf(b, "paused (%s)", j->queue_paused ? "queue" : "task");
    else if (j->state == PAWL_STATE_READY && j->run_at_us > now_us)
        buf_printf(b, "in %s%s", show_age(j->run_at_us - now_us, age, sizeof age),
                   j->failures > 0 ? ", retry" : "");
    else if (j->state == PAWL_STATE_READY)
        buf_puts(b, "due");
    else if (j->state == PAWL_STATE_RUNNING)
        buf_printf(b, "for %s", show_age(now_us - j->started_at_us, age, sizeof age));
    else if (j->state == PAWL_STATE_DEAD) {
        buf_printf(b, "%s: ", j->dead_class ? j->dead_class : "?");
        cli_safe(b, j->reason, width);
        if (j->replayed_as) buf_printf(b, " (replayed as %" PRId64 ")", j->replayed_as);
    } else if (j->reason)
        cli_safe(b, j->reason, width);
    else
        cli_safe(b, j->outcome, width);
}

/* A field in its column on a terminal (cut, padded), whole and followed by a tab elsewhere. */
static void field(struct show_list *l, const char *s, size_t width)
{
    struct buf t = {0}, *b = &l->c->out;
    size_t cols = 0;
    cli_safe(&t, s && *s ? s : "-", l->tty ? width : 0);
    buf_puts(b, buf_str(&t));
    for (const char *p = buf_str(&t); *p; p++) cols += ((unsigned char)*p & 0xc0) != 0x80;
    if (!l->tty)
        buf_putc(b, '\t');
    else
        for (; cols < width + 1; cols++) buf_putc(b, ' ');
    buf_free(&t);
}

static enum cli_color state_color(enum pawl_state s)
{
    if (s == PAWL_STATE_DEAD) return CLI_RED;
    if (s == PAWL_STATE_DONE) return CLI_GREEN;
    if (s == PAWL_STATE_RUNNING) return CLI_YELLOW;
    return CLI_RESET;
}

bool show_list_row(void *list, const struct pawl_job *j)
{
    struct show_list *l = list;
    struct buf *b = &l->c->out;
    char n[32];
    if (l->limit > 0 && l->shown >= l->limit) {
        l->more = true;
        return false;
    }
    if (l->c->json) {
        buf_putc(b, '{');
        show_job_json(b, j);
        buf_puts(b, "}\n");
        l->shown++;
        return cli_emit(l->c);
    }
    if (l->tty && l->shown == 0)
        buf_printf(b, "%s%-10s %-9s %-20s %-12s %-20s %-5s %s%s\n", cli_color(CLI_BOLD), "ID",
                   "STATE", "TASK", "QUEUE", "KEY", "RUNS", "REMARK", cli_color(CLI_RESET));
    snprintf(n, sizeof n, "%" PRId64, j->id);
    field(l, n, 10);
    if (l->tty) buf_puts(b, cli_color(state_color(j->state)));
    field(l, pawl_state_name(j->state), 9);
    if (l->tty) buf_puts(b, cli_color(CLI_RESET));
    field(l, j->task, 20);
    field(l, j->queue, 12);
    field(l, j->key, 20);
    snprintf(n, sizeof n, "%" PRId64, j->runs);
    field(l, n, 5);
    remark(b, j, cli_now_us(), l->tty ? 60 : 0);
    buf_putc(b, '\n');
    l->shown++;
    return cli_emit(l->c);
}

/* --- words and ids --- */
static int not_one_of(struct cli *c, const char *what, const char *s, const char *const *names,
                      size_t n)
{
    struct buf b = {0};
    int near = text_nearest(s, names, n), x;
    cli_safe(&b, s, 40);
    buf_puts(&b, near >= 0 ? "'; the nearest is '" : "'; it is one of");
    if (near >= 0) buf_printf(&b, "%s'", names[near]);
    for (size_t i = 0; near < 0 && i < n; i++) buf_printf(&b, " %s", names[i]);
    x = cli_usage(c, "%s '%s", what, buf_str(&b));
    buf_free(&b);
    return x;
}

int show_state_parse(struct cli *c, const char *name, int *state_plus_1)
{
    const char *names[PAWL_STATE_N];
    for (int s = 0; s < PAWL_STATE_PRUNED; s++) {
        names[s] = pawl_state_name((enum pawl_state)s);
        if (strcmp(names[s], name) != 0) continue;
        *state_plus_1 = s + 1;
        return 0;
    }
    return not_one_of(c, "no such state", name, names, PAWL_STATE_PRUNED);
}

int show_class_check(struct cli *c, const char *name)
{
    const char *names[DEAD_CLASS_N];
    enum dead_class k;
    if (!name || dead_class_parse(name, &k)) return 0;
    for (int i = 0; i < DEAD_CLASS_N; i++) names[i] = dead_class_name((enum dead_class)i);
    return not_one_of(c, "no such class", name, names, DEAD_CLASS_N);
}

int show_each_id(struct cli *c, int (*one)(struct cli *c, int64_t id))
{
    int64_t id;
    int worst = 0;
    for (int i = 0; i < c->argc; i++) { /* all ids are looked at before anything is done */
        int x = cli_id(c, c->argv[i], &id);
        if (x != 0) return x;
    }
    for (int i = 0; i < c->argc; i++) {
        if (cli_id(c, c->argv[i], &id) != 0) return EXIT_USAGE;
        int x = one(c, id);
        if (x > EXIT_NO) return x; /* the store failed: what comes after would fail too */
        if (x != 0) worst = x;
        if (!cli_emit(c)) break;
    }
    return worst;
}
