// SPDX-License-Identifier: Apache-2.0
/* children.c - the leased slots of a supervisor and the child of each.
 *
 * Keeps: a HELD slot is started at most once; a suspect starts only when nothing else runs here and
 *        the runner holds still; what a child found goes into its slot exactly once.
 */
#include "base/err.h"
#include "base/fail.h"
#include "base/log.h"
#include "worker/super.h"

#include <assert.h>
#include <signal.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/wait.h>

enum {
    START_BACKOFF_MIN_US = 100 * 1000,
    START_BACKOFF_MAX_US = 5000 * 1000,
    START_LOG_EVERY_US = 30 * 1000 * 1000,
};

void children_io(struct sup *s, size_t i, int which, int64_t now_us)
{
    assert(i < s->slots_n);
    if (s->children[i].c != NULL) exec_child_io(s->children[i].c, which, now_us);
}

void children_tick(struct sup *s, int64_t now_us)
{
    for (size_t i = 0; i < s->slots_n; i++) {
        struct exec_child *c = s->children[i].c;
        if (c != NULL && !exec_child_over(c) && exec_child_next_us(c) <= now_us) {
            exec_child_tick(c, now_us);
        }
    }
}

int64_t children_next_us(const struct sup *s)
{
    int64_t next = INT64_MAX;

    for (size_t i = 0; i < s->slots_n; i++) {
        int64_t at = s->children[i].c != NULL ? exec_child_next_us(s->children[i].c) : INT64_MAX;
        if (s->slots[i].phase == SLOT_HELD && s->start_at_us > 0) at = s->start_at_us;
        if (at < next) next = at;
    }
    return next;
}

void children_collect(struct sup *s, int64_t now_us)
{
    (void)now_us;
    for (size_t i = 0; i < s->slots_n; i++) {
        struct child *ch = &s->children[i];
        struct slot *slot = &s->slots[i];
        if (ch->c == NULL || !exec_child_over(ch->c) || fail_point("exec.exited")) continue;
        assert(slot->phase == SLOT_RUNNING);
        exec_child_finish(&ch->c, &slot->task->policy, &slot->arena, &slot->found);
        slot->found.started_at_us = ch->started_at_us;
        slot->found.ended_at_us = store_now_us(s->st);
        slot->phase = SLOT_ENDED;
        s->active = true;
    }
}

/* Somebody else decided these jobs: their children must not go on. */
void children_drop_lost(struct sup *s, int64_t now_us)
{
    for (size_t i = 0; i < s->slots_n; i++) {
        struct child *ch = &s->children[i];
        struct slot *slot = &s->slots[i];
        if (slot->phase == SLOT_FREE || !slot->lost) continue;
        if (slot->phase == SLOT_HELD) slot->phase = SLOT_ENDED;
        if (ch->c == NULL || ch->stopped) continue;
        ch->stopped = true;
        log_line(LOG_INFO, "job.stopped", "s:worker", s->id, "i:job", slot->job.id, "s:task",
                 slot->task->name, "s:key", slot->job.key, "i:attempt", slot->job.token, "s:why",
                 "cancelled, or taken over by another worker", NULL);
        exec_child_stop(ch->c, SIGKILL, "somebody else decided this job", now_us);
    }
}

/* --- start --- */

static void watch(struct sup *s, size_t i)
{
    for (int which = 0; which < EXEC_FD_N; which++) {
        struct epoll_event ev = {.events = which == EXEC_STDIN ? EPOLLOUT : EPOLLIN};
        int fd = exec_child_fd(s->children[i].c, which);
        ev.data.u64 = (uint64_t)i << 8 | (uint64_t)(TAG_CHILD + which);
        if (fd >= 0 && epoll_ctl(s->ep, EPOLL_CTL_ADD, fd, &ev) != 0) {
            /* No memory for a watch: the child cannot be served. Its hard limit would end it, this
             * is sooner and says why. */
            exec_child_stop(s->children[i].c, SIGKILL, "its descriptors cannot be watched",
                            sup_mono(s));
        }
    }
}

static void start_failed(struct sup *s, struct slot *slot, const struct pawl_error *e,
                         int64_t now_us)
{
    if (!exec_start_again(e)) {
        log_line(LOG_ERROR, "job.not_runnable", "s:worker", s->id, "i:job", slot->job.id, "s:task",
                 slot->task->name, "s:key", slot->job.key, "i:attempt", slot->job.token, "s:why",
                 e->msg, NULL);
        exec_not_runnable(e, &slot->arena, &slot->found);
        slot->found.started_at_us = slot->found.ended_at_us = store_now_us(s->st);
        slot->phase = SLOT_ENDED;
        return;
    }
    s->start_backoff_us = s->start_backoff_us == 0 ? START_BACKOFF_MIN_US : s->start_backoff_us * 2;
    if (s->start_backoff_us > START_BACKOFF_MAX_US) s->start_backoff_us = START_BACKOFF_MAX_US;
    s->start_at_us = now_us + s->start_backoff_us;
    if (log_gate(&s->start_gate, START_LOG_EVERY_US)) {
        log_line(LOG_WARN, "worker.cannot_start", "s:worker", s->id, "s:why", e->msg, "t:retry_in",
                 s->start_backoff_us, "i:more", s->start_gate.swallowed, NULL);
    }
}

/* False: no child can be started for now. */
static bool start_one(struct sup *s, size_t i, int64_t now_us)
{
    struct slot *slot = &s->slots[i];
    struct child *ch = &s->children[i];
    struct pawl_error e = {0};
    size_t t = (size_t)(slot->task - s->lanes.leased.lane.tasks);
    struct exec_start st = {.conf = s->o->conf, .policy = &slot->task->policy, .job = &slot->job,
                            .worker = s->id, .db = s->child_db, .mono_now_us = now_us,
                            .wall_now_us = s->env->wall_us(s->env->ctx)};

    assert(slot->phase == SLOT_HELD && ch->c == NULL && t < s->lanes.leased.lane.tasks_n);
    st.task = s->lanes.leased.tasks[t];
    if (slot->job.expires_at_us != 0 && st.wall_now_us >= slot->job.expires_at_us) {
        /* Its start was held up after the claim (a suspect, a limit of processes). */
        slot->found.outcome = OUT_EXPIRED;
        slot->found.exit_code = slot->found.signal = -1;
        slot->found.error = "expired before it could start";
        slot->found.error_bytes = strlen(slot->found.error);
        slot->phase = SLOT_ENDED;
        return true;
    }
    if (exec_child_start(&st, &ch->c, &e) == PAWL_OK && fail_point("exec.spawned")) {
        exec_child_kill(&ch->c);
        (void)pawl_fail(&e, PAWL_NOMEM, "failpoint exec.spawned");
    }
    if (ch->c == NULL) {
        start_failed(s, slot, &e, now_us);
        return slot->phase == SLOT_ENDED;
    }
    s->start_at_us = s->start_backoff_us = 0;
    ch->started_at_us = store_now_us(s->st);
    ch->stopped = false;
    slot->phase = SLOT_RUNNING;
    slot->started = true;
    watch(s, i);
    log_line(LOG_DEBUG, "job.start", "s:worker", s->id, "i:job", slot->job.id, "s:task",
             slot->task->name, "s:key", slot->job.key, "i:attempt", slot->job.token, "i:pid",
             (int64_t)exec_child_pid(ch->c), NULL);
    return true;
}

void children_start(struct sup *s, int64_t now_us)
{
    if (s->phase != PHASE_WORK || (s->start_at_us > 0 && now_us < s->start_at_us)) return;
    for (size_t i = 0; i < s->slots_n; i++) {
        if (s->slots[i].phase != SLOT_HELD) continue;
        if (s->slots[i].job.suspect && !partner_still(s)) return;
        if (!start_one(s, i, now_us)) return;
    }
}

/* --- stop --- */

void children_stop_all(struct sup *s, int sig, const char *why, int64_t now_us)
{
    for (size_t i = 0; i < s->slots_n; i++) {
        if (s->children[i].c != NULL) exec_child_stop(s->children[i].c, sig, why, now_us);
    }
}

void children_release_held(struct sup *s)
{
    for (size_t i = 0; i < s->slots_n; i++) {
        if (s->slots[i].phase != SLOT_HELD) continue;
        s->slots[i].release = true;
        s->slots[i].phase = SLOT_ENDED;
    }
}

void children_kill_all(struct sup *s)
{
    /* All get the signal before the first is waited for. */
    children_stop_all(s, SIGKILL, "the worker ends", sup_mono(s));
    for (size_t i = 0; i < s->slots_n; i++) {
        if (s->children[i].c == NULL) continue;
        exec_child_kill(&s->children[i].c);
        s->slots[i].release = true;
        s->slots[i].phase = SLOT_ENDED;
    }
    children_release_held(s);
}

bool children_alone(const struct sup *s)
{
    for (size_t i = 0; i < s->slots_n; i++) {
        if (s->slots[i].phase != SLOT_FREE && s->slots[i].job.suspect) return true;
    }
    return false;
}

static bool known(const struct sup *s, pid_t pid, size_t *i)
{
    for (*i = 0; *i < s->slots_n; (*i)++) {
        if (s->children[*i].c != NULL && exec_child_pid(s->children[*i].c) == pid) return true;
    }
    return false;
}

/* As process 1 we inherit orphans: reap what is neither a job's child nor a runner. */
void children_reap_orphans(struct sup *s, int64_t now_us)
{
    siginfo_t si = {0};
    size_t i;

    while (waitid(P_ALL, 0, &si, WEXITED | WNOHANG | WNOWAIT) == 0 && si.si_pid != 0) {
        if (known(s, si.si_pid, &i)) {
            children_io(s, i, EXEC_PIDFD, now_us); /* reaps it */
        } else if (partner_is(s, si.si_pid)) {
            return; /* its end arrives over the link, or its own descriptor */
        } else {
            (void)waitpid(si.si_pid, NULL, WNOHANG);
        }
        si.si_pid = 0;
    }
}
