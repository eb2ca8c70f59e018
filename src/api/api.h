// SPDX-License-Identifier: Apache-2.0
/* api.h - what the files of src/api share: the handle, its clock and log, policies in words. */
#ifndef API_API_H
#define API_API_H

#include <sys/types.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/log.h"
#include "core/rules.h"
#include "pawl.h"
#include "store/store.h"

/* Callers may pass no error; the rooms below may rely on having one. */
#define WITH_ERROR(e)                                    \
    struct pawl_error spare_error = {.rc = PAWL_OK};     \
    if (!(e)) (e) = &spare_error

/* The caller's clock as the rooms below want it. */
struct api_clock {
    struct env env;
    int64_t (*now_us)(void *ctx);
    void *ctx;
};

/* The caller's log function. Lines are kept while a call works, and handed over when it holds no
 * lock. */
struct api_log {
    pawl_log_fn *fn;
    void *ctx;
    struct log_sink sink;
    int depth;                 /* calls within calls */
    struct buf lines;          /* a digit for the level, the line, a NUL; and so on */
    size_t dropped;
};

/* While a handler's apply runs in this thread: on which store. Kept by the worker; the newest
 * first, when a handler runs a worker of another store. */
struct api_apply {
    struct store_place place;
    struct api_apply *before;
};

struct pawl {
    struct store *st;
    struct store_place place;
    pid_t owner;               /* the process that opened it */
    struct api_clock clock;
    struct api_log log;
    char *url;
    char *temp_dir;            /* of pawl_open_temp: removed with the handle; else NULL */
};

/* --- open.c --- */
enum pawl_rc api_need(bool ok, struct pawl_error *e, const char *what);
/* OK in the process that opened it; BADARG after fork(). */
enum pawl_rc api_need_owner(pid_t owner, struct pawl_error *e);
/* The check that nearly every call begins with. */
enum pawl_rc api_need_handle(const struct pawl *p, struct pawl_error *e);
/* The same for calls that write. BADARG in a thread whose handler's transaction is open on this
 * store: it would wait for itself, or be stored though that is undone. */
enum pawl_rc api_need_writer(const struct pawl *p, struct pawl_error *e);
enum pawl_rc api_need_no_apply(const struct store_place *at, struct pawl_error *e);
void api_apply_begin(struct api_apply *a);
void api_apply_end(struct api_apply *a);
/* The environment for the store: the caller's clock, or NULL for the machine's. clock must stay
 * where it is. */
const struct env *api_clock_init(struct api_clock *clock, const struct pawl_open_opts *o);
void api_log_init(struct api_log *log, const struct pawl_open_opts *o);
/* Check o and fill so with it. Borrowed from o. BADARG: an on_connect statement that is refused. */
enum pawl_rc api_store_opts(const struct pawl_open_opts *o, const char *url, const struct env *env,
                            struct store_opts *so, struct pawl_error *e);
/* store_open, with the words of the public interface for what on_connect did. */
enum pawl_rc api_store_open(const struct store_opts *so, const struct pawl_open_opts *o,
                            struct store **out, struct pawl_error *e);
/* Around everything that may have something to say. Leave hands the lines over, and passes rc on:
 *   api_enter(&p->log);  return api_leave(&p->log, store_...(...)); */
void api_enter(struct api_log *log);
enum pawl_rc api_leave(struct api_log *log, enum pawl_rc rc);
void api_log_flush(struct api_log *log); /* in between, where no lock is held */

/* --- policy.c --- */
/* What a policy text sets, over the defaults. */
struct api_policy {
    struct policy p;
    bool own_hard_limit;       /* it sets one */
    const char *idle;          /* a setting in it that means nothing to a C handler, or NULL */
};
enum pawl_rc api_policy_parse(const char *text, const char *task, struct api_policy *out,
                              struct pawl_error *e);
/* Declare the task; on OK *stored is the policy in force. differs: gets the lines in which a stored
 * policy differs (with replace: differed). DRIFT: it does, and replace is false. */
enum pawl_rc api_declare(struct store *st, const char *name, const struct policy *p, bool replace,
                         int64_t *id, struct policy *stored, struct buf *differs,
                         struct pawl_error *e);

#endif
