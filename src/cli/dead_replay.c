// SPDX-License-Identifier: Apache-2.0
/* dead_replay.c - pawl dead replay: by id, or all that match a filter at its start.
 *
 * Keeps: the ids are fixed before the first replay, so that a job which dies again while this runs
 *        is not replayed by it. Each replay is one transaction and happens once (the store's
 *        compare and set), whoever else does the same.
 */
#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/os.h"
#include "base/text.h"
#include "cli/cli.h"
#include "cli/dead.h"
#include "core/limits.h"

enum verdict { R_REPLAYED, R_WOULD, R_ALREADY, R_NOT_DEAD, R_NOT_FOUND, R_REFUSED, R_N };
static const char *const verdict_words[R_N] = {"replayed",  "would_replay", "already_replayed",
                                               "not_dead", "not_found",    "refused"};
struct replay {
    struct cli *c;
    struct pawl_replay how;
    struct buf args;        /* of --args - */
    bool dry_run;
    int64_t gap_us;         /* between two replays; 0: none */
    int64_t count[R_N], stale;
};
struct ids { int64_t *v; size_t n, cap; bool failed; };

static bool id_add(void *ctx, const struct pawl_job *j)
{
    struct ids *s = ctx;
    if (s->n == s->cap) {
        size_t cap = s->cap ? s->cap * 2 : 1024;
        int64_t *v = realloc(s->v, cap * sizeof *v);
        if (!v) {
            s->failed = true;
            return false;
        }
        s->v = v;
        s->cap = cap;
    }
    s->v[s->n++] = j->id;
    return true;
}

int dead_ids(struct cli *c, const struct pawl_filter *f, int64_t **ids, size_t *n)
{
    struct ids s = {0};
    struct pawl_error e = {.rc = PAWL_OK};
    int x = 0;
    if (pawl_jobs(c->pawl, f, id_add, &s, &e) != PAWL_OK)
        x = cli_fail(c, &e);
    else if (s.failed)
        x = cli_error(c, EXIT_TEMPFAIL, "out of memory");
    *ids = s.v;
    *n = x == 0 ? s.n : 0;
    return x;
}

/* --- what one id came to --- */
struct seen { enum pawl_state state; int64_t replayed_as; };

static bool look(void *ctx, const struct pawl_job *j)
{
    struct seen *s = ctx;
    s->state = j->state;
    s->replayed_as = j->replayed_as;
    return true;
}

static void say(struct replay *r, int64_t id, enum verdict v, int64_t new_id, bool stale,
                const char *why)
{
    static const char *const words[R_N] = {"replayed as", "would be replayed",
                                           "not replayed: already replayed as", "not replayed",
                                           "not found", "not replayed"};
    struct buf *b = &r->c->out;
    assert((size_t)v < R_N);
    r->count[v]++;
    if (v <= R_WOULD) r->stale += stale;
    if (r->c->json) {
        buf_putc(b, '{');
        cli_json_id(b, "id", id);
        cli_json_str(b, "result", verdict_words[v]);
        cli_json_id(b, "new_id", new_id);
        cli_json_bool(b, "stale", stale);
        cli_json_str(b, "why", why);
        buf_puts(b, "}\n");
        return;
    }
    buf_printf(b, "%" PRId64 " %s", id, words[v]);
    if (new_id > 0) buf_printf(b, " %" PRId64, new_id);
    if (why) {
        buf_puts(b, ": ");
        cli_safe(b, why, 0);
    }
    if (stale) buf_puts(b, " (will be stale: a newer version of its entity was applied)");
    buf_putc(b, '\n');
}

/* Say what a replay of this id would do. 0, or the exit code of a failing store. */
static int dry_one(struct replay *r, int64_t id, bool stale)
{
    struct seen s = {.state = PAWL_STATE_N};
    struct pawl_error e = {.rc = PAWL_OK};
    enum pawl_rc rc = pawl_job_get(r->c->pawl, id, look, &s, &e);
    if (rc != PAWL_OK && rc != PAWL_NOTFOUND) return cli_fail(r->c, &e);
    if (rc == PAWL_NOTFOUND)
        say(r, id, R_NOT_FOUND, 0, false, NULL);
    else if (s.state != PAWL_STATE_DEAD) {
        (void)pawl_fail(&e, PAWL_TOOLATE, "it is %s, not dead", pawl_state_name(s.state));
        say(r, id, R_NOT_DEAD, 0, false, e.msg);
    } else if (s.replayed_as && !r->how.again_reason)
        say(r, id, R_ALREADY, s.replayed_as, false, NULL);
    else
        say(r, id, R_WOULD, 0, stale, NULL);
    return 0;
}

static int replay_one(struct replay *r, int64_t id)
{
    struct pawl_error e = {.rc = PAWL_OK};
    int64_t new_id = 0;
    bool stale = false;
    /* Beforehand; a job that is not there or not dead is answered by the replay itself. */
    enum pawl_rc rc = pawl_dead_is_stale(r->c->pawl, id, &stale, &e);
    if (rc != PAWL_OK && rc != PAWL_NOTFOUND && rc != PAWL_TOOLATE) return cli_fail(r->c, &e);
    if (rc != PAWL_OK) stale = false;
    if (r->dry_run) return dry_one(r, id, stale);
    rc = pawl_dead_replay(r->c->pawl, id, &r->how, &new_id, &e);
    switch (rc) {
    case PAWL_OK: say(r, id, R_REPLAYED, new_id, stale, NULL); return 0;
    case PAWL_NOTFOUND: say(r, id, R_NOT_FOUND, 0, false, NULL); return 0;
    case PAWL_CONFIG: say(r, id, R_REFUSED, 0, false, e.msg); return 0;
    case PAWL_TOOLATE:
        if (new_id > 0)
            say(r, id, R_ALREADY, new_id, false, NULL);
        else
            say(r, id, R_NOT_DEAD, 0, false, e.msg);
        return 0;
    default: return cli_fail(r->c, &e);
    }
}

/* --- options --- */
/* "10/s", "600/m", "5/h", or a number per second: the pause between two. */
static int rate(struct cli *c, int64_t *gap_us)
{
    const char *v = cli_opt(c, "rate"), *slash = v ? strchr(v, '/') : NULL;
    char number[32];
    int64_t n = 0, per_us = 1000000;
    if (!v) return 0;
    snprintf(number, sizeof number, "%.*s", slash ? (int)(slash - v) : 31, v);
    if (slash && strcmp(slash, "/m") == 0) per_us *= 60;
    else if (slash && strcmp(slash, "/h") == 0) per_us *= 3600;
    else if (slash && strcmp(slash, "/s") != 0) n = -1;
    if (n != 0 || !text_int64(number, 1, 1000000, &n))
        return cli_usage(c, "--rate '%.40s': must be such as 10/s, 600/m or 5/h", v);
    *gap_us = per_us / n;
    return 0;
}

static int check_options(struct cli *c, bool filter)
{
    if (c->argc > 0 && filter)
        return cli_usage(c, "give ids, or a filter (--task --class --since --all), not both");
    if (c->argc == 0 && !filter)
        return cli_usage(c, "give ids, or a filter: --task, --class, --since or --all");
    if (cli_has(c, "args") && c->argc != 1)
        return cli_usage(c, "--args needs exactly one id: other jobs have other args");
    if (cli_has(c, "again") && c->argc == 0)
        return cli_usage(c, "--again needs ids: a second replay is a decision about each job");
    if (cli_has(c, "again") && (!cli_opt(c, "reason") || !*cli_opt(c, "reason")))
        return cli_usage(c, "--again needs --reason TEXT: it is kept with the job");
    if (cli_has(c, "reason") && !cli_has(c, "again"))
        return cli_usage(c, "--reason belongs to --again");
    return 0;
}

static int setup(struct replay *r, bool filter)
{
    struct cli *c = r->c;
    struct pawl_error e = {.rc = PAWL_OK};
    int x = check_options(c, filter);
    if (x != 0 || (x = rate(c, &r->gap_us)) != 0) return x;
    r->dry_run = cli_has(c, "dry-run");
    r->how.again_reason = cli_has(c, "again") ? cli_opt(c, "reason") : NULL;
    r->how.args = cli_opt(c, "args");
    if (!r->how.args) return 0;
    if (strcmp(r->how.args, "-") == 0) {
        if (os_read_file("-", LIMIT_ARGS_BYTES, &r->args, &e) != PAWL_OK) return cli_fail(c, &e);
        r->how.args = buf_str(&r->args);
        r->how.args_bytes = r->args.n;
    } else {
        r->how.args_bytes = strlen(r->how.args);
    }
    return 0;
}

/* The ids to work on: operands, or what matches now. */
static int collect(struct replay *r, bool filter, int64_t **ids, size_t *n)
{
    struct pawl_filter f = {.unreplayed = true, .newest_per_root = true};
    int x;
    if (filter) {
        if ((x = dead_filter(r->c, &f)) != 0 || (x = cli_open(r->c)) != 0 ||
            (x = dead_filter(r->c, &f)) != 0)
            return x;
        if ((x = dead_ids(r->c, &f, ids, n)) != 0) return x;
        return *n > 0 ? 0 : cli_error(r->c, EXIT_NO, "no dead job matches that was not replayed");
    }
    *ids = calloc((size_t)r->c->argc, sizeof **ids);
    if (!*ids) return cli_error(r->c, EXIT_TEMPFAIL, "out of memory");
    for (int i = 0; i < r->c->argc; i++)
        if ((x = cli_id(r->c, r->c->argv[i], &(*ids)[i])) != 0) return x;
    *n = (size_t)r->c->argc;
    return cli_open(r->c);
}

/* Wait until the monotonic instant at which the next replay is due. */
static void wait_until(const struct timespec *at)
{
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, at, NULL) == EINTR) {}
}

static int replay_all(struct replay *r, const int64_t *ids, size_t n)
{
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    for (size_t i = 0; i < n; i++) {
        int x = replay_one(r, ids[i]);
        if (x != 0) return x;
        if (r->gap_us == 0 || r->dry_run) {
            if (!cli_emit(r->c)) break;
            continue;
        }
        if (!cli_flush(r->c)) break; /* slow by intent: each line is worth seeing at once */
        int64_t ns = at.tv_nsec + r->gap_us % 1000000 * 1000;
        at.tv_sec += r->gap_us / 1000000 + ns / 1000000000;
        at.tv_nsec = ns % 1000000000;
        if (i + 1 < n) wait_until(&at);
    }
    return 0;
}

static int dead_replay_run(struct cli *c)
{
    struct replay r = {.c = c};
    int64_t *ids = NULL;
    size_t n = 0;
    bool filter = cli_has(c, "task") || cli_has(c, "class") || cli_has(c, "since") ||
                  cli_has(c, "all");
    int x = setup(&r, filter);
    if (x == 0) x = collect(&r, filter, &ids, &n);
    if (x == 0) {
        x = replay_all(&r, ids, n);
        int64_t good = r.count[R_REPLAYED] + r.count[R_WOULD];
        if (filter && !c->json)
            buf_printf(&c->out, "%" PRId64 " %s, %" PRId64 " of them stale, %" PRId64
                       " left as they are\n", good, r.dry_run ? "would be replayed" : "replayed",
                       r.stale, (int64_t)n - good);
        /* In a filtered run others may have been faster: that is no failure. */
        bool negative = r.count[R_REFUSED] > 0 || (!filter && good < (int64_t)n);
        if (x == 0 && negative) x = EXIT_NO;
    }
    free(ids);
    buf_free(&r.args);
    return x;
}

static const struct cli_opt opts[] = {
    {"task", 0, "TASK", "every dead job of this task", 0},
    {"class", 0, "CLASS", "every dead job of this class", 0},
    {"since", 0, "WHEN", "died at or after: an instant, or a duration back from now", 0},
    {"all", 0, NULL, "every dead job that was not replayed", 0},
    {"args", 0, "JSON|-", "run with these args instead (one id)", 0},
    {"rate", 0, "N/s", "at most so many a second (also /m, /h)", 0},
    {"dry-run", 0, NULL, "say what would be replayed, and which would be stale", 0},
    {"again", 0, NULL, "replay a second time what was replayed (ids only)", 0},
    {"reason", 0, "TEXT", "with --again: why; kept with the job", 0},
    {NULL, 0, NULL, NULL, 0},
};
static const char *const examples[] = {
    "pawl dead replay 7 --args '{\"order\":42}'",
    "pawl dead replay --task charge --since 2h --rate 10/s",
    NULL,
};
const struct cmd_entry cmd_dead_replay = {
    .name = "replay",
    .synopsis = "ID... | --task T --class C --since T --all [OPTION...]",
    .summary = "run dead jobs again, each once",
    .opts = opts,
    .examples = examples,
    .run = dead_replay_run,
    .operands_max = -1,
};
