// SPDX-License-Identifier: Apache-2.0
/* limits.h - every limit of Pawl, named once. Printed by `pawl debug limits`, stated in the man
 * page. */
#ifndef CORE_LIMITS_H
#define CORE_LIMITS_H

#define LIMIT_NAME_BYTES 64             /* task and queue names: [a-z0-9][a-z0-9._-]{0,63} */
#define LIMIT_KEY_BYTES 255             /* key, source, entity, header names: key_ok() */
#define LIMIT_ARGS_BYTES (1024 * 1024)
#define LIMIT_HEADERS_BYTES (16 * 1024)
#define LIMIT_RESULT_BYTES (256 * 1024)
#define LIMIT_JSON_DEPTH 64
#define LIMIT_ERROR_HEAD 1024           /* error texts keep head + tail: the last line says most */
#define LIMIT_ERROR_TAIL (7 * 1024)
#define LIMIT_OUT_TAIL (8 * 1024)       /* kept of a child's stdout and of its stderr */
#define LIMIT_REPLY_BYTES (1024 * 1024 + 64 * 1024) /* one verdict on the reply descriptor */
#define LIMIT_PRIORITY 100              /* -100..100 */
#define LIMIT_RETRIES 1000
#define LIMIT_RELEASES 100              /* graceful hand-backs of one job */
#define LIMIT_SNOOZES 1000
#define LIMIT_REPLAY_CHAIN 10
#define LIMIT_ATTEMPT_ROWS 50           /* kept per job; older ones are only counted */
#define LIMIT_CONCURRENCY 256
#define LIMIT_BATCH 1024                /* jobs per effect batch */
#define LIMIT_ENQUEUE_N 10000           /* requests per pawl_enqueue call */
#define LIMIT_CALL_BYTES (256 * 1024 * 1024) /* args and headers of one pawl_enqueue_pg call */
#define LIMIT_TASKS 256                 /* per pawl.conf */
#define LIMIT_WRITES 256                  /* in one verdict */
#define LIMIT_ENQUEUES 1000               /* in one verdict */
#define LIMIT_STATEMENTS 32             /* sql lines of a task */
#define LIMIT_SQL_BYTES (64 * 1024)
#define LIMIT_CONF_BYTES (1024 * 1024)
#define LIMIT_INSTANT_MAX_US 253402300799999999LL /* 9999-12-31T23:59:59.999999Z */
#define LIMIT_INSTANT_ODD_US 100000000000000LL /* 1973; less looks like s or ms */

#endif
