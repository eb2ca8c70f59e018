// SPDX-License-Identifier: Apache-2.0
/* cmd_completion.c - pawl completion: a script for bash, zsh or fish, made from the table of verbs.
 *
 * The scripts are static: they do not start pawl while a person types.
 */
#include <string.h>

#include "cli/cli.h"
#include "cli/frame.h"

typedef void leaf_fn(struct buf *b, const char *path, const struct cmd_entry *m);

/* Call fn for every verb that runs; path is "enqueue" or "dead replay". */
static void each_leaf(struct buf *b, leaf_fn *fn)
{
    for (const struct cmd_entry *const *t = cli_table; *t; t++) {
        if ((*t)->flags & CMD_HIDDEN) continue;
        if (!(*t)->subs) fn(b, (*t)->name, *t);
        for (const struct cmd_entry *const *s = (*t)->subs; s && *s; s++) {
            struct buf path = {0};
            buf_printf(&path, "%s %s", (*t)->name, (*s)->name);
            fn(b, buf_str(&path), *s);
            buf_free(&path);
        }
    }
}

static void names(struct buf *b, const struct cmd_entry *const *t)
{
    bool first = true;
    for (; *t; t++) {
        if ((*t)->flags & CMD_HIDDEN) continue;
        buf_printf(b, "%s%s", first ? "" : " ", (*t)->name);
        first = false;
    }
}

/* Text inside single quotes of a shell. */
static void quoted(struct buf *b, const char *s)
{
    for (; *s; s++) {
        if (*s == '\'')
            buf_puts(b, "'\\''");
        else
            buf_putc(b, *s);
    }
}

/* --- bash --- */
static void bash_leaf(struct buf *b, const char *path, const struct cmd_entry *m)
{
    buf_printf(b, "        '%s') words='", path);
    for (const struct cli_opt *o = m->opts; o && o->name; o++) buf_printf(b, "--%s ", o->name);
    buf_puts(b, "' ;;\n");
}

static void bash_subs(struct buf *b)
{
    for (const struct cmd_entry *const *t = cli_table; *t; t++) {
        if (!(*t)->subs || ((*t)->flags & CMD_HIDDEN)) continue;
        buf_printf(b, "        '%s') words='", (*t)->name);
        names(b, (*t)->subs);
        buf_puts(b, "' ;;\n");
    }
}

static void bash(struct buf *b)
{
    buf_puts(b, "# bash completion for pawl: source <(pawl completion bash)\n"
                "_pawl() {\n"
                "    local cur=${COMP_WORDS[COMP_CWORD]} verb='' words='' w i\n"
                "    for ((i = 1; i < COMP_CWORD; i++)); do\n"
                "        w=${COMP_WORDS[i]}\n"
                "        case $w in\n"
                "        --db | --config | -c) ((i++)) ;;\n"
                "        -*) ;;\n"
                "        *) case $verb in '') verb=$w ;;");
    for (const struct cmd_entry *const *t = cli_table; *t; t++)
        if ((*t)->subs && !((*t)->flags & CMD_HIDDEN))
            buf_printf(b, " %s) verb=\"$verb $w\" ;;", (*t)->name);
    buf_puts(b, " esac ;;\n"
                "        esac\n"
                "    done\n"
                "    case $verb in\n"
                "        '') words='");
    names(b, cli_table);
    buf_puts(b, " --version' ;;\n");
    bash_subs(b);
    each_leaf(b, bash_leaf);
    buf_puts(b, "    esac\n    words+='");
    for (const struct cli_opt *o = cli_common_opts; o->name; o++) buf_printf(b, " --%s", o->name);
    buf_puts(b, "'\n"
                "    COMPREPLY=($(compgen -W \"$words\" -- \"$cur\"))\n"
                "}\n"
                "complete -o default -F _pawl pawl\n");
}

/* --- zsh --- */
static void zsh_described(struct buf *b, const struct cmd_entry *const *t)
{
    for (; *t; t++) {
        if ((*t)->flags & CMD_HIDDEN) continue;
        buf_printf(b, " '%s:", (*t)->name);
        quoted(b, (*t)->summary);
        buf_puts(b, "'");
    }
}

/* One option as _arguments wants it; brackets and colons end its description. */
static void zsh_opt(struct buf *b, const struct cli_opt *o)
{
    buf_printf(b, " '%s--%s[", o->flags & CLI_MANY ? "*" : "", o->name);
    for (const char *s = o->help; *s; s++) {
        if (*s == '\'')
            buf_puts(b, "'\\''");
        else
            buf_putc(b, *s == '[' || *s == ']' ? ' ' : *s == ':' ? ',' : *s);
    }
    buf_puts(b, "]");
    if (o->arg) buf_printf(b, ":%s:_files", o->name);
    buf_puts(b, "'");
}

static void zsh_leaf(struct buf *b, const char *path, const struct cmd_entry *m)
{
    buf_printf(b, "    '%s') _arguments", path);
    for (const struct cli_opt *o = m->opts; o && o->name; o++) zsh_opt(b, o);
    for (const struct cli_opt *o = cli_common_opts; o->name; o++) zsh_opt(b, o);
    buf_puts(b, " '*:operand:_files' ;;\n");
}

static void zsh(struct buf *b)
{
    buf_puts(b, "#compdef pawl\n"
                "# zsh completion for pawl: pawl completion zsh > a directory of $fpath, as _pawl\n"
                "_pawl() {\n"
                "    local -a verbs\n"
                "    local verb=''\n"
                "    local -i i\n"
                "    for ((i = 2; i < CURRENT; i++)); do\n"
                "        case $words[i] in\n"
                "        --db | --config | -c) ((i++)) ;;\n"
                "        -*) ;;\n"
                "        *) case $verb in '') verb=$words[i] ;;");
    for (const struct cmd_entry *const *t = cli_table; *t; t++)
        if ((*t)->subs && !((*t)->flags & CMD_HIDDEN))
            buf_printf(b, " %s) verb=\"$verb $words[i]\" ;;", (*t)->name);
    buf_puts(b, " esac ;;\n"
                "        esac\n"
                "    done\n"
                "    case $verb in\n"
                "    '') verbs=(");
    zsh_described(b, cli_table);
    buf_puts(b, " ); _describe verb verbs ;;\n");
    for (const struct cmd_entry *const *t = cli_table; *t; t++) {
        if (!(*t)->subs || ((*t)->flags & CMD_HIDDEN)) continue;
        buf_printf(b, "    '%s') verbs=(", (*t)->name);
        zsh_described(b, (*t)->subs);
        buf_puts(b, " ); _describe verb verbs ;;\n");
    }
    each_leaf(b, zsh_leaf);
    buf_puts(b, "    esac\n}\n_pawl \"$@\"\n");
}

/* --- fish --- */
static void fish_opts(struct buf *b, const char *cond, const struct cli_opt *o)
{
    for (; o && o->name; o++) {
        buf_printf(b, "complete -c pawl%s -l %s", cond, o->name);
        if (o->letter) buf_printf(b, " -s %c", o->letter);
        buf_printf(b, "%s -d '", o->arg ? " -r" : "");
        quoted(b, o->help);
        buf_puts(b, "'\n");
    }
}

static void fish_leaf(struct buf *b, const char *path, const struct cmd_entry *m)
{
    struct buf cond = {0};
    const char *sub = strchr(path, ' ');
    int n = sub ? (int)(sub - path) : (int)strlen(path);
    buf_printf(&cond, " -n '__fish_seen_subcommand_from %.*s%s%s'", n, path,
               sub ? "; and __fish_seen_subcommand_from" : "", sub ? sub : "");
    fish_opts(b, buf_str(&cond), m->opts);
    buf_free(&cond);
}

static void fish(struct buf *b)
{
    buf_puts(b, "# fish completion for pawl: pawl completion fish | source\n");
    for (const struct cmd_entry *const *t = cli_table; *t; t++) {
        if ((*t)->flags & CMD_HIDDEN) continue;
        buf_printf(b, "complete -c pawl -n __fish_use_subcommand -a %s -d '", (*t)->name);
        quoted(b, (*t)->summary);
        buf_puts(b, "'\n");
        for (const struct cmd_entry *const *s = (*t)->subs; s && *s; s++) {
            buf_printf(b, "complete -c pawl -f -n '__fish_seen_subcommand_from %s' -a %s -d '",
                       (*t)->name, (*s)->name);
            quoted(b, (*s)->summary);
            buf_puts(b, "'\n");
        }
    }
    each_leaf(b, fish_leaf);
    fish_opts(b, "", cli_common_opts);
}

static int bash_run(struct cli *c)
{
    bash(&c->out);
    return 0;
}

static int zsh_run(struct cli *c)
{
    zsh(&c->out);
    return 0;
}

static int fish_run(struct cli *c)
{
    fish(&c->out);
    return 0;
}

static const char *const bash_examples[] = {"source <(pawl completion bash)", NULL};
static const char *const zsh_examples[] = {"pawl completion zsh > _pawl", NULL};
static const char *const fish_examples[] = {"pawl completion fish | source", NULL};
static const struct cmd_entry cmd_bash = {.name = "bash", .run = bash_run, .synopsis = "",
    .summary = "a script for bash", .examples = bash_examples};
static const struct cmd_entry cmd_zsh = {.name = "zsh", .run = zsh_run, .synopsis = "",
    .summary = "a script for zsh", .examples = zsh_examples};
static const struct cmd_entry cmd_fish = {.name = "fish", .run = fish_run, .synopsis = "",
    .summary = "a script for fish", .examples = fish_examples};
static const struct cmd_entry *const subs[] = {&cmd_bash, &cmd_zsh, &cmd_fish, NULL};
const struct cmd_entry cmd_completion = {
    .name = "completion",
    .synopsis = "bash | zsh | fish",
    .summary = "print a completion script for a shell",
    .subs = subs,
    .examples = bash_examples,
};
