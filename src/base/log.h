// SPDX-License-Identifier: Apache-2.0
/* log.h - one line per event: key=value (logfmt) or JSON, stable field names.
 *
 *   2027-01-02T03:04:05.678Z info event=job.retry job=7 task=mail attempt=2 why="timeout"
 *
 * Levels: error (a person must act), warn (we coped), info (state changes of the process),
 * debug (state changes of a job). Never args, never secrets. Values are escaped, so a hostile
 * text cannot forge a line.
 */
#ifndef BASE_LOG_H
#define BASE_LOG_H

#include <stdbool.h>
#include <stdint.h>

enum log_level { LOG_ERROR, LOG_WARN, LOG_INFO, LOG_DEBUG };
struct log_conf { enum log_level level; bool json; int fd; };
/* For the whole process, before threads; by a program, never by the library. The default is to
 * write nothing (fd -1). */
void log_setup(const struct log_conf *c);
bool log_level_parse(const char *s, enum log_level *out);

/* While a sink is pushed, this thread's lines of every level go there instead: logfmt from "event="
 * on, without time, level and newline. Pushed and popped in order; borrowed meanwhile.
 * deliver (may be NULL): now the lines that fn has kept may go to strangers. */
typedef void log_sink_fn(void *ctx, enum log_level lv, const char *line);
struct log_sink {
    log_sink_fn *fn;
    void (*deliver)(void *ctx);
    void *ctx;
    struct log_sink *below;
};
void log_push(struct log_sink *s);
void log_pop(struct log_sink *s);
/* Said where no lock is held and no transaction open, before something that may not return. */
void log_deliver(void);

/* log_line(LOG_INFO, "worker.start", "s:worker", id, "i:pid", (int64_t)pid, NULL)
 * Field = name prefixed by the type of the value that follows: "s:" const char * (NULL: field is
 * left out), "i:" int64_t, "d:" int64_t that is an id (a string in JSON), "t:" int64_t
 * microseconds printed as a duration. */
void log_line(enum log_level lv, const char *event, ...) __attribute__((sentinel));

/* True at most once per `every_us` (monotonic) for this slot; counts what it swallowed. */
struct log_gate { int64_t next_us; int64_t swallowed; };
bool log_gate(struct log_gate *g, int64_t every_us);

#endif
