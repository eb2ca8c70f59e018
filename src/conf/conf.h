// SPDX-License-Identifier: Apache-2.0
/* conf.h - pawl.conf: read strictly, once, into plain structs. Keys and meaning: doc/config.md. */
#ifndef CONF_CONF_H
#define CONF_CONF_H

#include "base/buf.h"
#include "core/job.h"
#include "core/sqlscan.h"

#define CONF_ENV_N_MAX 256      /* env.NAME keys of a task */
#define CONF_OPTIONAL_N_MAX 256 /* names in optional */

#define CONF_RUNNERS_MAX 64     /* runner processes for prepared tasks */
#define CONF_RUNNERS 4          /* as many by default, or concurrency if that is less */

enum handler_kind { HANDLER_SQL, HANDLER_EXEC, HANDLER_C };
/* How a task's jobs are run. That of a C task is known when its plugin was looked at. */
enum task_mode {
    MODE_UNKNOWN,
    MODE_LEASED,   /* exec: a program for each job */
    MODE_EFFECT,   /* sql, and C with no more than apply: in the transaction of a batch */
    MODE_PREPARED  /* C with prepare, or acknowledged early; exec with writes */
};

struct conf_sql {              /* one statement of a sql task */
    const char *text;          /* without a trailing ';' */
    int line;                  /* in the config file */
    struct sql_scan scan;
};
struct conf_write {            /* a statement that a program may ask for by name */
    const char *name;
    struct conf_sql sql;
    int64_t expect;            /* rows that it must change; -1: any */
};
struct conf_task {
    const char *name;
    int line;
    enum handler_kind kind;
    struct policy policy;      /* includes the values of the section */
    struct conf_sql *sql; size_t sql_n;
    const char *const *optional; size_t optional_n;
    const char *exec_text;     /* the words as written */
    const char *const *argv;   /* NULL-terminated; argv[0] as written */
    const char *const *env; size_t env_n; /* "NAME=value" from env.NAME = value */
    struct conf_write *writes; size_t writes_n;
    bool enqueues;             /* its verdict may enqueue jobs; true with writes, too */
    const char *c_text;        /* FILE:NAME as written */
    const char *plugin;        /* FILE as seen from here, with a '/' */
    const char *symbol;        /* NAME: of a struct pawl_handler */
    int c_line;
    enum task_mode mode;
    bool own_hard_limit;       /* hard_limit is set; else its default goes by the mode */
};
struct conf {
    struct arena arena;        /* owns every string below */
    const char *path;          /* as given */
    const char *dir;           /* of the file: relative paths start here; "." if none */
    const char *db;            /* NULL: not set. sqlite: paths already relative to dir */
    int concurrency;           /* default 8 */
    int runners;               /* 0: not set */
    int64_t grace_us;          /* default 25 s */
    int64_t lease_us;          /* 1 s .. 1 h, default 30 s */
    const char *const *on_connect; size_t on_connect_n;
    bool accept_wal_risk;
    struct conf_task *tasks; size_t tasks_n;
};
/* returns OK (*out owned by the caller: conf_free) | CONFIG "FILE:LINE: what, which value, nearest
 * valid name" | NOTFOUND (no such file) | IO | DENIED | TOOBIG | NOMEM */
enum pawl_rc conf_read(const char *path, struct conf **out, struct pawl_error *e) PAWL_MUST_USE;
void conf_free(struct conf **c);
/* What was found in the plugin of a C task: its mode, and with it the default of hard_limit. OK |
 * CONFIG: "FILE:LINE: ...", a limit does not fit. */
enum pawl_rc conf_set_mode(const struct conf *c, struct conf_task *t, bool prepared,
                           struct pawl_error *e) PAWL_MUST_USE;
const char *conf_kind_name(enum handler_kind k); /* "sql" "exec" "c" */
const char *conf_mode_name(enum task_mode m);    /* "leased" "effect" "prepared" "unknown" */

#endif
