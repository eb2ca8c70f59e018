// SPDX-License-Identifier: Apache-2.0
/* frame.c - one call of the command: find the verb, sort its options from its operands, run it,
 * write what it printed.
 *
 * Options may stand anywhere; "--" ends them. Names must be whole: an abbreviation that works today
 * would mean something else once a new option exists.
 */
#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/text.h"
#include "cli/cli.h"
#include "cli/frame.h"

const struct cli_opt cli_common_opts[] = {
    {"db", 0, "URL", "the store: sqlite:PATH, a file ending in .db, or postgresql://...", 0},
    {"json", 0, NULL, "print JSON Lines: one object a line", 0},
    {"config", 'c', "FILE", "the configuration (default ./pawl.conf)", 0},
    {"help", 'h', NULL, "say what the verb does, with an example", 0},
    {NULL, 0, NULL, NULL, 0},
};

/* Words of the design that this version does not have yet: said plainly, never "did you mean". */
static const char *const later_verbs[] = {"top", "why", "guarantee", "torture", "bench",
                                          "demo", "serve", NULL};
static const char *const later_opts[] = {"serial", "unless-waiting", "watch", NULL};

struct walk {
    char **argv;
    int argc, at;
    bool help, version;
};

static bool listed(const char *const *names, const char *s, size_t n)
{
    for (; *names; names++)
        if (strlen(*names) == n && strncmp(*names, s, n) == 0) return true;
    return false;
}

/* An option's name without dashes, and its value after '=', out of one word. */
struct word { const char *name; size_t n; char letter; const char *value; };

static struct word word_split(const char *w)
{
    struct word o = {.name = w, .n = strlen(w)};
    if (w[1] == '-') {
        const char *eq = strchr(w + 2, '=');
        o.name = w + 2;
        o.n = eq ? (size_t)(eq - o.name) : strlen(o.name);
        o.value = eq ? eq + 1 : NULL;
    } else {
        o.letter = w[1];
        o.value = w[2] ? w + 2 : NULL;
    }
    return o;
}

static const struct cli_opt *opt_find(const struct cli_opt *t, const struct word *o)
{
    for (; t && t->name; t++) {
        if (o->letter ? o->letter == t->letter
                      : strlen(t->name) == o->n && strncmp(t->name, o->name, o->n) == 0)
            return t;
    }
    return NULL;
}

/* Give the option its value: from the word itself, or the next word. 0, or the exit code. */
static int opt_value(struct cli *c, struct walk *w, const struct cli_opt *t, const struct word *o,
                     const char **value)
{
    *value = o->value;
    if (!t->arg) {
        if (o->value) return cli_usage(c, "--%s takes no value", t->name);
        *value = "";
    } else if (!*value) {
        if (w->at + 1 >= w->argc) return cli_usage(c, "--%s needs a value: %s", t->name, t->arg);
        *value = w->argv[++w->at];
    }
    return 0;
}

static int opt_common(struct cli *c, struct walk *w, const struct cli_opt *t, const char *value)
{
    const char **slot = t == &cli_common_opts[0] ? &c->db : &c->config;
    if (strcmp(t->name, "json") == 0) {
        c->json = true;
        return 0;
    }
    if (strcmp(t->name, "help") == 0) {
        w->help = true;
        return 0;
    }
    if (*slot) return cli_usage(c, "--%s given twice", t->name);
    *slot = value;
    return 0;
}

static int opt_unknown(struct cli *c, const struct word *o, const char *whole)
{
    const char *names[64];
    size_t n = 0;
    char name[64];
    snprintf(name, sizeof name, "%.*s", (int)(o->n > 60 ? 60 : o->n), o->name);
    if (o->letter) {
        if (o->letter >= '0' && o->letter <= '9')
            return cli_usage(c, "unknown option %s: put -- before an operand that begins with -",
                             whole);
        return cli_usage(c, "unknown option -%c", o->letter);
    }
    if (listed(later_opts, o->name, o->n))
        return cli_usage(c, "--%s is not in this version", name);
    for (const struct cli_opt *t = c->cmd ? c->cmd->opts : NULL; t && t->name && n < 56; t++)
        names[n++] = t->name;
    for (const struct cli_opt *t = cli_common_opts; t->name; t++) names[n++] = t->name;
    int near = text_nearest(name, names, n);
    if (near >= 0)
        return cli_usage(c, "unknown option --%s; the nearest is --%s", name, names[near]);
    return cli_usage(c, "unknown option --%s", name);
}

/* One word that begins with '-'. */
static int take_option(struct cli *c, struct walk *w)
{
    const char *whole = w->argv[w->at], *value = NULL;
    struct word o = word_split(whole);
    const struct cli_opt *own = c->cmd ? opt_find(c->cmd->opts, &o) : NULL;
    const struct cli_opt *t = own ? own : opt_find(cli_common_opts, &o);
    if (!t && !c->cmd && ((o.n == 7 && strncmp(o.name, "version", 7) == 0) || o.letter == 'V')) {
        w->version = true;
        return 0;
    }
    if (!t) return opt_unknown(c, &o, whole);
    int x = opt_value(c, w, t, &o, &value);
    if (x != 0) return x;
    if (!own) return opt_common(c, w, t, value);
    if (!(t->flags & CLI_MANY) && cli_has(c, t->name))
        return cli_usage(c, "--%s given twice", t->name);
    c->values[c->values_n++] = (struct cli_value){.opt = t, .value = value};
    return 0;
}

static int verb_unknown(struct cli *c, const struct cmd_entry *const *list, const char *s)
{
    const char *names[64];
    size_t n = 0;
    struct buf b = {0};
    for (; *list && n < 64; list++)
        if (!((*list)->flags & CMD_HIDDEN)) names[n++] = (*list)->name;
    cli_safe(&b, s, 40);
    int near = text_nearest(s, names, n), x;
    if (!c->cmd && listed(later_verbs, s, strlen(s)))
        x = cli_usage(c, "'%s' is not in this version", buf_str(&b));
    else if (near >= 0)
        x = cli_usage(c, "unknown verb '%s'; the nearest is '%s'", buf_str(&b), names[near]);
    else
        x = cli_usage(c, "unknown verb '%s'", buf_str(&b));
    buf_free(&b);
    return x;
}

/* One word that may be the verb, or a verb's sub-verb. */
static int take_verb(struct cli *c, const char *s)
{
    const struct cmd_entry *const *list = c->cmd ? c->cmd->subs : cli_table;
    size_t n = strlen(c->title);
    for (const struct cmd_entry *const *t = list; *t; t++) {
        if (strcmp((*t)->name, s) != 0) continue;
        c->cmd = *t;
        snprintf(c->title + n, sizeof c->title - n, " %s", s);
        return 0;
    }
    return verb_unknown(c, list, s);
}

static bool at_leaf(const struct cli *c)
{
    return c->cmd && !c->cmd->subs;
}

static int parse(struct cli *c, struct walk *w, const char **operands)
{
    bool only_operands = false;
    for (w->at = 1; w->at < w->argc; w->at++) {
        const char *s = w->argv[w->at];
        int x = 0;
        if (!only_operands && strcmp(s, "--") == 0)
            only_operands = true;
        else if (!only_operands && s[0] == '-' && s[1] != '\0')
            x = take_option(c, w);
        else if (!at_leaf(c))
            x = take_verb(c, s);
        else
            operands[c->argc++] = s;
        if (x != 0) return x;
        if (w->help && at_leaf(c)) break;
    }
    return 0;
}

static int check_operands(struct cli *c)
{
    const struct cmd_entry *m = c->cmd;
    if (c->argc < m->operands_min)
        return cli_usage(c, "needs %s", m->synopsis && *m->synopsis ? m->synopsis : "an operand");
    if (m->operands_max < 0 || c->argc <= m->operands_max) return 0;
    struct buf b = {0};
    cli_safe(&b, c->argv[m->operands_max], 40);
    int x = cli_usage(c, "unexpected operand '%s'", buf_str(&b));
    buf_free(&b);
    return x;
}

static int run(struct cli *c, struct walk *w, const char *build)
{
    const char **operands = arena_alloc(&c->arena, sizeof *operands * ((size_t)w->argc + 1));
    c->values = arena_alloc(&c->arena, sizeof *c->values * ((size_t)w->argc + 1));
    if (!operands || !c->values) return cli_error(c, EXIT_TEMPFAIL, "out of memory");
    c->argv = operands;
    int x = parse(c, w, operands);
    if (x != 0) return x;
    if (w->version) {
        char engine[80];
        pawl_engine(engine, sizeof engine);
        buf_printf(&c->out, "pawl %s (%s), %s\n", PAWL_VERSION, build, engine);
        return 0;
    }
    if (w->help) return cli_help(c, c->cmd);
    if (!c->cmd) return cli_usage(c, "say what to do: pawl VERB");
    if (c->cmd->subs) return cli_usage(c, "say which: %s", c->cmd->synopsis);
    x = check_operands(c);
    return x != 0 ? x : c->cmd->run(c);
}

int cli_main(int argc, char **argv, const char *build)
{
    struct cli c = {.title = "pawl", .self = argc > 0 ? argv[0] : "pawl"};
    struct walk w = {.argv = argv, .argc = argc};

    int x = run(&c, &w, build);
    pawl_close(&c.pawl);
    conf_free(&c.conf);
    if (!cli_flush(&c) || (close(STDOUT_FILENO) != 0 && errno != EBADF && (c.out_errno = errno)))
        x = c.out_errno == EPIPE ? EXIT_IOERR /* the reader has had enough: no news to anybody */
          : cli_error(&c, EXIT_IOERR, "standard output: %s: what was printed is not complete%s",
                      strerror(c.out_errno), c.stored);
    buf_free(&c.out);
    arena_free(&c.arena);
    return x;
}
