// SPDX-License-Identifier: Apache-2.0
/* cli.h - what a verb of the `pawl` command is, and what every verb can lean on.
 *
 * A verb is one file cmd_NAME.c that exports one `const struct cmd_entry cmd_NAME`, listed once in
 * table.c. Help, completion, the check of options and the test of the manual page come from that
 * table. Common options (--db, --json, -c/--config, -h/--help) are parsed for every verb, before or
 * after it, and are in no verb's own table.
 *
 * Keeps: results go to standard output (with --json: one object a line), everything else to
 *        standard error, one line per error: "pawl VERB: what, which value, what to do".
 * Never: shows text out of a store without text_put_safe or json_put_str; calls the store directly
 *        (work, run, conf and apply excepted).
 */
#ifndef CLI_CLI_H
#define CLI_CLI_H

#include "base/buf.h"
#include "base/err.h"
#include "conf/conf.h"
#include "pawl.h"

struct cli;

enum { CLI_MANY = 1 };         /* option flag: may be given more than once */
struct cli_opt {
    const char *name;          /* long name without "--"; NULL ends the table */
    char letter;               /* short name, 0: none */
    const char *arg;           /* what help calls its value: "N", "FILE"; NULL: a switch */
    const char *help;          /* one line, lower case, no full stop */
    unsigned flags;
};

enum { CMD_HIDDEN = 1 };       /* verb flag: not in help, completion, manual, nearest names */
struct cmd_entry {
    const char *name;          /* "enqueue"; of a sub-verb only its own word: "replay" */
    const char *synopsis;      /* what follows the name: "TASK [ARGS|-] [OPTION...]" */
    const char *summary;       /* one line, lower case, no full stop */
    const struct cli_opt *opts;/* NULL: only the common ones */
    const char *const *examples;           /* whole command lines, NULL-terminated; at least one */
    const struct cmd_entry *const *subs;   /* NULL-terminated sub-verbs, then run is NULL */
    int (*run)(struct cli *c); /* returns the exit code */
    unsigned flags;
    int operands_min, operands_max;        /* checked before run; max -1: any number */
    const char *notes;         /* more lines for --help, NULL: none */
};

/* One call of the command, parsed. Everything is borrowed from argv or owned by `arena`. */
struct cli {
    const struct cmd_entry *cmd;
    const char *const *argv;   /* the operands, NULL-terminated */
    int argc;
    bool json;                 /* --json */
    const char *db;            /* --db as given, or NULL */
    const char *config;        /* -c as given, or NULL */
    const char *self;          /* argv[0] of the process */
    char title[48];            /* "pawl dead replay": how errors begin */
    struct cli_value { const struct cli_opt *opt; const char *value; } *values;
    size_t values_n;
    struct arena arena;
    struct conf *conf;         /* read by cli_conf; freed by the frame */
    struct pawl *pawl;         /* opened by cli_open; closed by the frame */
    struct buf out;            /* standard output not yet written: cli_emit */
    char stored[64];           /* what was done all the same when standard output fails */
    int out_errno;             /* why standard output failed, 0: it has not */
};

/* The table of verbs, NULL-terminated. */
extern const struct cmd_entry *const cli_table[];

/* Parse, run, flush: the whole command. build: the commit, for --version. Returns the exit code. */
int cli_main(int argc, char **argv, const char *build);

/* --- options and operands (opts.c) ---
 * The value of an option of the verb's table (asserted); "" for a switch; NULL: not given. */
const char *cli_opt(const struct cli *c, const char *name);
static inline bool cli_has(const struct cli *c, const char *name)
{
    return cli_opt(c, name) != NULL;
}
/* The i-th value of a CLI_MANY option, or NULL. */
const char *cli_opt_i(const struct cli *c, const char *name, size_t i);
/* Typed values: 0 and *out set (untouched if the option is absent), or the error is printed and the
 * exit code is returned. */
int cli_int(struct cli *c, const char *name, int64_t min, int64_t max, int64_t *out);
int cli_duration(struct cli *c, const char *name, int64_t *us);      /* "10s" */
int cli_instant(struct cli *c, const char *name, int64_t *at_us);    /* RFC 3339 with a zone */
int cli_when(struct cli *c, const char *name, int64_t *at_us);       /* or a duration from now */
int cli_id(struct cli *c, const char *text, int64_t *id);            /* a job id */
int64_t cli_now_us(void);           /* the store's clock, once it is open */
void cli_clock(int64_t now_us);

/* --- errors (opts.c) --- each prints one line on standard error; returns the exit code. */
int cli_fail(struct cli *c, const struct pawl_error *e);             /* by e->rc */
int cli_error(struct cli *c, int exit_code, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
int cli_usage(struct cli *c, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void cli_warn(struct cli *c, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* --- the store and the config (open.c) ---
 * Read -c FILE, else ./pawl.conf, once, into c->conf. need: fail with 78 when there is none.
 * Returns 0 (c->conf may be NULL without need) or the exit code, printed. */
int cli_conf(struct cli *c, bool need);
/* Which store: --db, else $PAWL_DB, else db of the config, else sqlite:pawl.db. Returns 0 (*url
 * lives in the arena) or the exit code, printed. */
int cli_url(struct cli *c, const char **url);
/* The store as it may be shown: a path, or a URL without its password. */
const char *cli_store(struct cli *c, const char *url);
/* Open the store by cli_url into c->pawl: 0, or the exit code, printed ("no store at ...: 69"). */
int cli_open(struct cli *c);
/* For verbs that open a store themselves: cli_fail, with the advice for NOSTORE and OLDER. */
int cli_fail_open(struct cli *c, const char *url, const struct pawl_error *e);

/* --- standard output (out.c) --- append to c->out, then: */
bool cli_emit(struct cli *c);      /* writes when there is enough; false: it failed, stop */
bool cli_flush(struct cli *c);     /* writes now */
bool cli_out_tty(void);            /* standard output is a terminal */
/* Colour codes, "" when standard output is not for colour. */
enum cli_color { CLI_RESET, CLI_BOLD, CLI_DIM, CLI_RED, CLI_GREEN, CLI_YELLOW };
const char *cli_color(enum cli_color k);
/* Append s for people: escaped, at most `max` columns (0: all), NULL as "-". */
void cli_safe(struct buf *b, const char *s, size_t max);
/* JSON members: each puts its own comma unless it follows '{'. NULL strings become null; ids are
 * strings; instants RFC 3339, 0 as null. */
void cli_json_str(struct buf *b, const char *name, const char *s);
void cli_json_id(struct buf *b, const char *name, int64_t id);       /* 0: null */
void cli_json_int(struct buf *b, const char *name, int64_t v);
void cli_json_bool(struct buf *b, const char *name, bool v);
void cli_json_at(struct buf *b, const char *name, int64_t at_us);
/* A JSON text kept byte-exact: "name": raw when it is valid JSON on one line; otherwise, beside
 * what can be shown raw, name_text with the escaped text, and name_base64 when it is not UTF-8.
 * s NULL: null. */
void cli_json_text(struct buf *b, const char *name, const char *s, size_t n);

#endif
