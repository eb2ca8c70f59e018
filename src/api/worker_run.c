// SPDX-License-Identifier: Apache-2.0
/* worker_run.c - run until stopped, or until nothing is left: steps, and waits between them.
 *
 * Keeps: trouble of the store that may pass is waited out, with growing pauses; a stop ends the
 *        wait at once.
 */
#include "api/worker.h"

#include <assert.h>
#include <errno.h>
#include <poll.h>
#include <time.h>
#include <unistd.h>

enum {
    BACKOFF_MIN_US = 100 * 1000,
    BACKOFF_MAX_US = 2000 * 1000,
    LOG_EVERY_US = 30 * 1000 * 1000,
};

/* Wait until stopped, for wait_us, or with wake until a commit of another pawl process. */
static void wait_for(struct pawl_worker *w, int64_t wait_us, bool wake)
{
    struct pollfd p[2] = {{.fd = w->stop_fd, .events = POLLIN},
                          {.fd = wake ? store_wake_fd(w->st) : -1, .events = POLLIN}};
    const struct timespec t = {.tv_sec = wait_us / 1000000, .tv_nsec = wait_us % 1000000 * 1000};

    (void)ppoll(p, 2, &t, NULL); /* interrupted or failed: then the next step comes sooner */
}

static bool passing(enum pawl_rc rc)
{
    return rc == PAWL_BUSY || rc == PAWL_FULL || rc == PAWL_IO || rc == PAWL_NOMEM
        || rc == PAWL_STORE || rc == PAWL_UNSURE;
}

static void back_off(struct pawl_worker *w, int64_t *pause_us, const struct pawl_error *e)
{
    if (worker_asked(w)) return;
    *pause_us = *pause_us == 0 ? BACKOFF_MIN_US : *pause_us * 2;
    if (*pause_us > BACKOFF_MAX_US) *pause_us = BACKOFF_MAX_US;
    if (*pause_us > w->lease_us / 3) *pause_us = w->lease_us / 3; /* it beats in its steps */
    if (log_gate(&w->gate, LOG_EVERY_US)) {
        api_enter(&w->log);
        log_line(LOG_WARN, "store.trouble", "s:worker", w->id, "s:rc", pawl_rc_name(e->rc),
                 "s:why", e->msg, "t:retry_in", *pause_us, "i:more", w->gate.swallowed, NULL);
        (void)api_leave(&w->log, PAWL_OK);
    }
    wait_for(w, *pause_us, false);
}

/* Nothing due, running or waiting for a retry, by anybody? */
static enum pawl_rc is_empty(struct pawl_worker *w, bool *empty, struct pawl_error *e)
{
    struct pending left = {0};
    enum pawl_rc rc;

    api_enter(&w->log);
    rc = api_leave(&w->log, store_pending(w->st, &w->all, &left, e));
    *empty = rc == PAWL_OK && left.due == 0 && left.running == 0 && left.retrying == 0;
    if (left.due > 0) w->look = true;
    return rc;
}

static enum pawl_rc run(struct pawl_worker *w, bool until_empty, struct pawl_error *e)
{
    int64_t pause_us = 0;
    bool more, empty = false;
    enum pawl_rc rc;

    while (!worker_asked(w)) {
        rc = pawl_worker_step(w, &more, e);
        if (rc == PAWL_OK && !more && until_empty) {
            rc = is_empty(w, &empty, e);
            if (rc == PAWL_OK && empty) return PAWL_OK;
        }
        if (rc != PAWL_OK && !passing(rc)) return rc;
        if (rc != PAWL_OK) {
            back_off(w, &pause_us, e);
            continue;
        }
        pause_us = 0;
        if (!more) wait_for(w, pawl_worker_wait_us(w), true);
    }
    return PAWL_OK;
}

enum pawl_rc pawl_worker_run(struct pawl_worker *w, bool until_empty, struct pawl_error *e)
{
    WITH_ERROR(e);
    uint64_t drained;
    enum pawl_rc rc = worker_need_idle(w, e);

    if (rc != PAWL_OK) return rc;
    rc = run(w, until_empty, e);
    /* The stop was heard, and counts once. */
    __atomic_store_n(&w->asked, 0, __ATOMIC_RELAXED);
    if (read(w->stop_fd, &drained, sizeof drained) < 0) assert(errno == EAGAIN || errno == EINTR);
    return rc;
}

void pawl_worker_stop(struct pawl_worker *w)
{
    const uint64_t one = 1;
    const int before = errno;

    if (w == NULL || w->owner != getpid()) return;
    __atomic_store_n(&w->asked, 1, __ATOMIC_RELAXED);
    /* Full means that it is readable already. */
    if (write(w->stop_fd, &one, sizeof one) < 0) errno = before;
    errno = before;
}
