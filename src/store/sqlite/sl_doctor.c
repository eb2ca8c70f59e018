// SPDX-License-Identifier: Apache-2.0
/* sl_doctor.c - what the machine, the file and its other users endanger. */
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/vfs.h>
#include <unistd.h>
#include "base/err.h"
#include "base/fail.h"
#include "store/sqlite/sl.h"
#include "store/verb/doctor.h"

#define MIB (INT64_C(1) << 20)
#define WAL_BYTES (64 * MIB)   /* Pawl keeps it under 4 MiB, unless a reader hinders */
#define DISK_LOW (256 * MIB)
#define DISK_OUT (32 * MIB)
#define OTHERS_MAX 5           /* named at most */

static void library(struct doctor *d)
{
    if (doctor_look(d) && sl_wal_risk())
        doctor_say(d, "version", PAWL_WARNING, "build with the bundled SQLite (./run build"
                   " --sqlite bundled), and let your programs use 3.51.3 or later, too", "SQLite %s"
                   " can damage a WAL database that several processes write, in a rare race (fixed"
                   " in 3.51.3, 3.50.7 and 3.44.6)", sqlite3_libversion());
}

/* --- the file and its disk --- */

static void log_size(struct doctor *d, const char *path)
{
    char wal[4096];
    struct stat sb;

    snprintf(wal, sizeof wal, "%s-wal", path);
    if (doctor_look(d) && stat(wal, &sb) == 0 && sb.st_size > WAL_BYTES)
        doctor_say(d, "wal", PAWL_WARNING, "end the reader that holds it (see \"also open in\"),"
                   " or run a worker: it shrinks the log", "the write-ahead log has %lld MiB: a"
                   " reader stays in an old snapshot, or nobody checkpoints",
                   (long long)(sb.st_size / MIB));
}

static void disk(struct doctor *d, const char *path)
{
    struct statvfs v;

    if (!doctor_look(d) || statvfs(path, &v) != 0)
        return;
    int64_t left = (int64_t)v.f_bavail * (int64_t)v.f_frsize;
    if (fail_point("doctor.disk"))
        left = DISK_OUT;
    if (left < DISK_LOW)
        doctor_say(d, "disk", left <= DISK_OUT ? PAWL_DANGER : PAWL_WARNING, "make room on this"
                   " file system: a full disk stops all work (nothing is lost)", "%lld MiB are left"
                   " on the file system of %s", (long long)(left / MIB), path);
}

static const char *network(const char *path)
{
    static const struct { unsigned long type; const char *name; } kinds[] = {
        { 0x6969, "NFS" }, { 0xff534d42, "CIFS" }, { 0xfe534d42, "SMB" }, { 0x517b, "SMB" },
        { 0x01021997, "9P" }, { 0x00c36400, "Ceph" }, { 0x5346414f, "AFS" }, { 0x65735546, "FUSE" },
        { 0x0bd00bd0, "Lustre" }, { 0x47504653, "GPFS" }, { 0x01161970, "GFS2" },
    };
    struct statfs s;

    if (fail_point("doctor.network"))
        return "NFS";
    if (statfs(path, &s) != 0)
        return NULL;
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (((unsigned long)s.f_type & 0xffffffffUL) == kinds[i].type)
            return kinds[i].name;
    return NULL;
}

static void place(struct doctor *d, const char *path)
{
    const char *kind = doctor_look(d) ? network(path) : NULL;

    if (kind != NULL && strcmp(kind, "FUSE") == 0)
        doctor_say(d, "filesystem", PAWL_NOTE, "a disk of this machine is the safe place",
                   "%s is on a FUSE file system: whether its locks and its memory are shared with"
                   " other hosts, and sound, cannot be told", path);
    else if (kind != NULL)
        doctor_say(d, "filesystem", PAWL_DANGER, "move the file to a disk of this machine, or use"
                   " PostgreSQL", "%s is on a network file system (%s): SQLite's WAL needs shared"
                   " memory and sound locks; two hosts would destroy it", path, kind);
}

/* --- who else has it open --- */

static bool has_open(const char *pid, const struct stat *want)
{
    char dir[64], fd[320];
    struct dirent *ent;
    bool yes = false;

    snprintf(dir, sizeof dir, "/proc/%.20s/fd", pid);
    DIR *fds = opendir(dir);
    while (fds != NULL && !yes && (ent = readdir(fds)) != NULL) {
        struct stat sb;

        snprintf(fd, sizeof fd, "%s/%s", dir, ent->d_name);
        yes = stat(fd, &sb) == 0 && sb.st_dev == want->st_dev && sb.st_ino == want->st_ino;
    }
    if (fds != NULL)
        closedir(fds);
    return yes;
}

static void name_of(const char *pid, char *out, size_t n)
{
    char path[64];

    snprintf(path, sizeof path, "/proc/%.20s/comm", pid);
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    const ssize_t got = fd >= 0 ? read(fd, out, n - 1) : -1;

    if (fd >= 0)
        close(fd);
    out[got > 0 ? got : 0] = '\0';
    out[strcspn(out, "\n")] = '\0';
}

/* Programs that are not Pawl's: each runs checkpoints when it writes, and writes with its own
 * SQLite. What belongs to other users cannot be seen without being root. */
static void others(struct doctor *d, const char *path)
{
    DIR *proc = doctor_look(d) ? opendir("/proc") : NULL;
    struct dirent *ent;
    struct stat want;
    char list[400] = "", comm[64];
    int n = 0;

    while (proc != NULL && stat(path, &want) == 0 && (ent = readdir(proc)) != NULL) {
        if (strspn(ent->d_name, "0123456789") != strlen(ent->d_name) ||
            strtol(ent->d_name, NULL, 10) == getpid() || !has_open(ent->d_name, &want))
            continue;
        name_of(ent->d_name, comm, sizeof comm);
        if (strcmp(comm, "pawl") == 0 || n++ >= OTHERS_MAX)
            continue;
        const size_t at = strlen(list);
        snprintf(list + at, sizeof list - at, "%s%s (pid %.20s)", at > 0 ? ", " : "", comm,
                 ent->d_name);
    }
    if (proc != NULL)
        closedir(proc);
    if (n > 0)
        doctor_say(d, "others", PAWL_NOTE, "let them keep transactions short; one that only reads"
                   " should not stay in a SELECT", "also open in %s%s: they checkpoint when they"
                   " write, and a long read of theirs keeps the log from shrinking", list,
                   n > OTHERS_MAX ? " and more" : "");
}

enum pawl_rc sl_doctor(struct doctor *d, struct pawl_error *e)
{
    const char *path = sl_from(d->db)->path;

    (void)e;
    library(d);
    log_size(d, path);
    disk(d, path);
    place(d, path);
    others(d, path);
    return PAWL_OK;
}
