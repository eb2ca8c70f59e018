// SPDX-License-Identifier: Apache-2.0
/* who.c - who is it, and is it dead? Asked of the kernel: kill(pid, 0) and /proc. */
#include "store/side/who.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* 22 bits of pid (the kernel's limit), 20 of namespace, 8 of start time (0: not known). */
#define PID_BITS 22
#define NS_BITS 20
#define PID_MASK ((UINT64_C(1) << PID_BITS) - 1)
#define NS_MASK ((UINT64_C(1) << NS_BITS) - 1)
static_assert(PID_BITS + NS_BITS + 8 == WHO_BITS, "all bits are used");

static uint64_t pid_of(uint64_t who) { return who & PID_MASK; }
static uint64_t ns_of(uint64_t who) { return who >> PID_BITS & NS_MASK; }
static uint64_t start_of(uint64_t who) { return (who & WHO_MASK) >> (PID_BITS + NS_BITS); }

struct proc { char state; long threads; uint64_t start; };

/* Fields 3, 20 and 22 of /proc/PID/stat; the second may hold anything, but no later ')'. */
static bool proc_read(uint64_t pid, struct proc *out)
{
    char path[40], text[1024];
    char *at, *end;

    snprintf(path, sizeof path, "/proc/%llu/stat", (unsigned long long)pid);
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return false;
    const ssize_t n = read(fd, text, sizeof text - 1);
    close(fd);
    if (n <= 0)
        return false;
    text[n] = '\0';
    if ((at = strrchr(text, ')')) == NULL || at[1] != ' ' || at[2] == '\0')
        return false;
    at += 2;
    out->state = *at++;
    for (int field = 4; field <= 22; field++) {
        const unsigned long long v = strtoull(at, &end, 10); /* of a negative one: not used */

        if (end == at)
            return false;
        at = end;
        if (field == 20)
            out->threads = (long)v;
        out->start = v;
    }
    return true;
}

/* A start is compared only by who shares the clock it is told by. */
static uint64_t own_ns(void)
{
    struct stat pids, times;

    if (stat("/proc/self/ns/pid", &pids) != 0)
        return 0;
    const uint64_t time_ino = stat("/proc/self/ns/time", &times) == 0 ? times.st_ino : 0;
    const uint64_t ns = (pids.st_ino + time_ino * 7919) & NS_MASK;
    return ns != 0 ? ns : 1;
}

static uint64_t start_hash(uint64_t ticks)
{
    return ticks % 255 + 1;
}

uint64_t who_self(void)
{
    const uint64_t pid = (uint64_t)getpid();
    struct proc p = {0};
    char self[32], mine[32];
    uint64_t start = 0;

    assert(pid != 0);
    /* /proc may be that of another namespace: then its numbers are not ours */
    const ssize_t n = readlink("/proc/self", self, sizeof self - 1);
    snprintf(mine, sizeof mine, "%llu", (unsigned long long)pid);
    if (n > 0 && (size_t)n == strlen(mine) && memcmp(self, mine, (size_t)n) == 0 &&
        proc_read(pid, &p))
        start = start_hash(p.start);
    const uint64_t ns = pid <= PID_MASK ? own_ns() : 0;
    return (start << NS_BITS | ns) << PID_BITS | (pid & PID_MASK);
}

int64_t who_pid(uint64_t who, uint64_t self)
{
    return ns_of(who) != 0 && ns_of(who) == ns_of(self) ? (int64_t)pid_of(who) : 0;
}

bool who_dead(uint64_t who, uint64_t self)
{
    const int64_t pid = who_pid(who, self);
    struct proc p = {0};

    if (pid == 0)
        return false;
    if (pid_of(who) == pid_of(self)) /* we live; one that had our number before us does not */
        return start_of(who) != 0 && start_of(self) != 0 && start_of(who) != start_of(self);
    if (kill((pid_t)pid, 0) != 0 && errno == ESRCH)
        return true;
    if (start_of(self) == 0 || !proc_read((uint64_t)pid, &p)) /* /proc cannot be asked */
        return false;
    /* A main thread that ended before the others looks like a zombie. */
    if ((p.state == 'Z' || p.state == 'X') && p.threads <= 1)
        return true;
    return start_of(who) != 0 && start_of(who) != start_hash(p.start);
}
