// SPDX-License-Identifier: Apache-2.0
/* pg_wake.c - idle workers are told of commits: on this host by the wake file, on others by NOTIFY.
 *
 * Keeps: a NOTIFY is a statement of its own, after the commit, and at most one per 5 ms and
 *        process: inside a transaction it would make all commits of the server queue (measured: a
 *        third of the rate is left). What is told is only that there is something to see; who
 *        misses it looks within a second.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>
#include "store/pg/pg.h"

#define LOOK_US 1000000

static int64_t mono(const struct pg *pg)
{
    return pg->d.env->mono_us(pg->d.env->ctx);
}

void pg_wake(struct db *db)
{
    side_wake(&db->side);
    pg_tell(pg_from(db));
}

/* What the server has sent meanwhile: notifications of others. */
static bool heard(struct pg *pg)
{
    const int us = pg->c != NULL ? PQbackendPID(pg->c) : 0;
    bool yes = false;

    if (pg->c == NULL || PQconsumeInput(pg->c) != 1)
        return true;
    for (PGnotify *n; (n = PQnotifies(pg->c)) != NULL; PQfreemem(n))
        yes = yes || n->be_pid != us;
    return yes;
}

/* A pawl process of this host has rung the wake file, too: who looks at that was told already. */
bool pg_changed(struct store *st)
{
    struct pg *pg = pg_of(st);
    const int64_t now = mono(pg);
    bool yes = heard(pg);

    if (pg->tell)
        pg_tell(pg);
    yes = yes || pg->rung;
    pg->rung = false;
    if (yes || now - pg->looked_us >= LOOK_US) {
        pg->looked_us = now;
        return true;
    }
    return false;
}

void pg_listen(struct pg *pg)
{
    struct pawl_error ignored; /* who does not hear it looks within a second */
    struct epoll_event ev = { .events = EPOLLIN };

    if (!pg->listens || pg->pooled || pg->c == NULL || pg->d.in_tx)
        return;
    if (pg_exec(pg, "LISTEN pawl", &ignored) == PAWL_OK && pg->poll_fd >= 0)
        (void)epoll_ctl(pg->poll_fd, EPOLL_CTL_ADD, PQsocket(pg->c), &ev);
    /* a closed socket leaves the set by itself */
}

int pg_wake_fd(struct store *st)
{
    struct pg *pg = pg_of(st);
    struct epoll_event ev = { .events = EPOLLIN };
    const int side_fd = side_watch(&pg->d.side);

    if (pg->poll_fd >= 0)
        return pg->poll_fd;
    pg->poll_fd = epoll_create1(EPOLL_CLOEXEC);
    if (pg->poll_fd < 0)
        return side_fd;
    if (side_fd >= 0)
        (void)epoll_ctl(pg->poll_fd, EPOLL_CTL_ADD, side_fd, &ev);
    pg->listens = true;
    pg_listen(pg);
    return pg->poll_fd;
}

void pg_wake_clear(struct store *st)
{
    struct pg *pg = pg_of(st);

    if (side_watch_clear(&pg->d.side) || heard(pg))
        pg->rung = true;
}

void pg_wake_close(struct pg *pg)
{
    if (pg->poll_fd >= 0)
        close(pg->poll_fd);
    pg->poll_fd = -1;
}
