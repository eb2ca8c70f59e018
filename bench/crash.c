// SPDX-License-Identifier: Apache-2.0
/* crash.c - a plugin whose jobs kill their runner at the first attempt, after noting the moment in
 * the file died-ID in the args' "dir". */
#include <pawl.h>
#include <signal.h>
#include <time.h>
#include <unistd.h>

static void die_once(struct pawl_run *run)
{
    struct timespec t = {0, 0};
    const char *dir = NULL;
    char name[1024];
    FILE *f;

    if (run->attempt > 1 || pawl_arg_text(run, "dir", &dir, NULL, NULL) != PAWL_OK) return;
    (void)snprintf(name, sizeof name, "%s/died-%lld", dir, (long long)run->job_id);
    (void)clock_gettime(CLOCK_REALTIME, &t);
    if ((f = fopen(name, "w")) != NULL) {
        (void)fprintf(f, "%lld", (long long)t.tv_sec * 1000000 + t.tv_nsec / 1000);
        (void)fclose(f);
    }
    (void)kill(getpid(), SIGKILL);
}

static enum pawl_outcome apply(struct pawl_run *run)
{
    die_once(run);
    return PAWL_DONE;
}

static enum pawl_outcome prepare(struct pawl_run *run)
{
    die_once(run);
    return PAWL_DONE;
}

PAWL_HANDLER(in_transaction, NULL, apply, NULL);
PAWL_HANDLER(outside, prepare, NULL, NULL);
