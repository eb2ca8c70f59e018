// SPDX-License-Identifier: Apache-2.0
/* fail.c - the table of crash points, and what happens at an armed one.
 *
 * Adding a point: one line in `points` and one fail_point("name") at the place.
 */
#include "base/fail.h"

#include <assert.h>
#include <errno.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/err.h"
#include "base/text.h"

static const char *const points[] = {
    "batch.claimed",                       /* effect mode: jobs chosen, nothing run */
    "effect.job", "effect.done",           /* before a job's work; after its ack, uncommitted */
    "effect.commit.before", "effect.commit.after",
    "verdict.before", "verdict.after",     /* retry, dead, ... of an effect batch */
    "turn.before", "turn.commit.before", "turn.commit.after", /* leased mode: settle + claim */
    "exec.spawned", "exec.exited",
    "reap.before", "reap.after",
    "replay.before", "replay.after",
    "enqueue.before", "enqueue.after",
    "side.flocked",                        /* the flock is taken, the word names nobody yet */
    "combine.posted",                      /* a request is left for whoever holds the side lock */
    "combine.taken", "combine.commit.before", "combine.commit.after", "combine.answered",
    "init.begin", "init.middle", "init.end",
    "copy.table", "copy.arrived.before", "copy.arrived.after", "copy.moved.before",
    "copy.moved.after", "copy.open.before", "copy.open.after", "copy.left.after",
    "prune.batch", "cancel.before", "release.before",
    "doctor.network", "doctor.disk",       /* the file system is a network's; it is full */
    NULL
};
#define POINTS_N (sizeof points / sizeof *points - 1)

enum action { ACT_NONE, ACT_KILL, ACT_KILLGROUP, ACT_EXIT, ACT_STOP, ACT_ERROR, ACT_ENOSPC,
              ACT_HANG, ACT_N };
static const char *const actions[ACT_N] = { NULL, "kill", "killgroup", "exit", "stop", "error",
                                            "enospc", "hang" };

bool fail_armed;
static struct armed { enum action act; int64_t skip, times; } armed[POINTS_N];

const char *const *fail_names(void) { return points; }

static int index_of(const char *name)
{
    for (size_t i = 0; i < POINTS_N; i++)
        if (strcmp(points[i], name) == 0) return (int)i;
    return -1;
}

/* Cut *s at the next `sep`; *s becomes the rest, or NULL. */
static char *cut(char **s, char sep)
{
    char *word = *s, *end = word == NULL ? NULL : strchr(word, sep);

    if (end != NULL) *end++ = '\0';
    *s = end;
    return word;
}

/* One "name=action[:skip[:times]]". */
static enum pawl_rc arm(char *item, struct pawl_error *e)
{
    struct armed a = { .times = INT64_MAX };
    char *rest = item, *name = cut(&rest, '='), *act = cut(&rest, ':');
    char *skip = cut(&rest, ':'), *times = rest;
    int i = index_of(name);

    if (i < 0) {
        int near = text_nearest(name, points, POINTS_N);
        return pawl_fail(e, PAWL_CONFIG, "PAWL_FAILPOINT: no point \"%s\"%s%s%s", name,
                         near < 0 ? " (see `pawl debug failpoints`)" : "; did you mean \"",
                         near < 0 ? "" : points[near], near < 0 ? "" : "\"?");
    }
    for (int k = 1; k < ACT_N && act != NULL; k++)
        if (strcmp(act, actions[k]) == 0) a.act = (enum action)k;
    if (a.act == ACT_NONE)
        return pawl_fail(e, PAWL_CONFIG, "PAWL_FAILPOINT: %s: no action \"%s\"; use kill, "
                         "killgroup, exit, stop, error, enospc or hang", name,
                         act == NULL ? "" : act);
    if ((skip != NULL && !text_int64(skip, 0, INT64_MAX, &a.skip)) ||
        (times != NULL && !text_int64(times, 1, INT64_MAX, &a.times)))
        return pawl_fail(e, PAWL_CONFIG, "PAWL_FAILPOINT: %s: expected %s:SKIP or %s:SKIP:TIMES "
                         "with whole numbers", name, act, act);
    armed[i] = a;
    return PAWL_OK;
}

enum pawl_rc fail_setup(struct pawl_error *e)
{
    const char *env = getenv("PAWL_FAILPOINT");
    enum pawl_rc rc = PAWL_OK;
    char *copy, *rest, *item;

    if (env == NULL || env[0] == '\0') return PAWL_OK;
    if ((copy = strdup(env)) == NULL) return pawl_fail(e, PAWL_NOMEM, "PAWL_FAILPOINT: no memory");
    rest = copy;
    while (rc == PAWL_OK && (item = cut(&rest, ',')) != NULL) rc = arm(item, e);
    fail_armed = rc == PAWL_OK;
    free(copy);
    return rc;
}

bool fail_hit(const char *name)
{
    int i = index_of(name);
    struct armed *a;

    assert(i >= 0); /* a fail_point that is not in the table */
    a = &armed[i];
    if (a->act == ACT_NONE) return false;
    if (a->skip > 0) {
        a->skip--;
        return false;
    }
    if (a->times <= 0) return false;
    a->times--;
    switch (a->act) {
    case ACT_KILLGROUP:
        if (getppid() > 1) kill(getppid(), SIGKILL);
        /* fall through */
    case ACT_KILL:
        kill(getpid(), SIGKILL);
        for (;;) pause();
    case ACT_EXIT:
        _exit(9);
    case ACT_STOP:
        kill(getpid(), SIGSTOP);
        return false;
    case ACT_HANG:
        for (;;) pause();
    case ACT_ENOSPC:
        errno = ENOSPC;
        return true;
    case ACT_ERROR:
        errno = EIO;
        return true;
    case ACT_NONE: case ACT_N: break;
    }
    return false;
}
