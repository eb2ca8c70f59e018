// SPDX-License-Identifier: Apache-2.0
/* helper.h - what the helpers of linkkit.py share: handlers that leave traces, and a few
 * words. They see pawl.h alone, as a stranger's program would.
 *
 * fx            a table without any unique constraint: one row for each committed effect
 * attempts.log  one line for each start of a handler, written before it does anything
 */
#ifndef TEST_HELPER_H
#define TEST_HELPER_H

#include <fcntl.h>
#include <inttypes.h>
#include <pawl.h>
#include <signal.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

static inline void die(const char *what, const struct pawl_error *e)
{
    fprintf(stderr, "%s: %s\n", what, e != NULL ? e->msg : "");
    exit(3);
}

static inline double uptime(void)
{
    struct timespec t;

    clock_gettime(CLOCK_BOOTTIME, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

/* Between two looks at what shall become true; ends the program when that takes two minutes. */
static inline void nap(double began)
{
    const struct timespec t = {.tv_nsec = 2000000};

    if (uptime() - began > 120) die("the deadline has passed", NULL);
    nanosleep(&t, NULL);
}

/* "job attempt pid uptime", in one write. */
static inline void note_attempt(const struct pawl_run *run)
{
    const int fd = open("attempts.log", O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0666);
    char line[120];
    const int n = snprintf(line, sizeof line, "%" PRId64 " %" PRId64 " %d %.3f\n", run->job_id,
                           run->attempt, (int)getpid(), uptime());

    if (fd < 0 || write(fd, line, (size_t)n) != n) die("attempts.log", NULL);
    close(fd);
}

static inline enum pawl_outcome put_fx(struct pawl_run *run)
{
    const struct pawl_value v[] = {pawl_int("job", run->job_id), pawl_int("attempt", run->attempt),
                                   pawl_text("key", run->key)};
    struct pawl_error e;

    if (pawl_exec(run, "INSERT INTO fx(job_id, attempt, key) VALUES (:job, :attempt, :key)", v, 3,
                  NULL, &e) != PAWL_OK)
        return pawl_run_error(run, &e);
    return PAWL_DONE;
}

static inline enum pawl_rc enqueue_one(struct pawl *p, const char *task, const char *key,
                                       struct pawl_enqueued *got, struct pawl_error *e)
{
    const struct pawl_request r = {.task = task, .key = key};

    return pawl_enqueue(p, &r, 1, got, NULL, e);
}

#endif
