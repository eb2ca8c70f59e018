// SPDX-License-Identifier: Apache-2.0
/* sl_files.c - which descriptors are SQLite's? Those of the database, of its log and of the log's
 * index that are open after a connection was made and were not before.
 *
 * Why: a handler that closes a number twice can take them away. SQLite then meets errors without
 *      end, or writes into whatever file was given the number.
 */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include "store/sqlite/sl.h"

static bool same(const struct stat *a, dev_t dev, ino_t ino)
{
    return a->st_dev == dev && a->st_ino == ino;
}

/* Is it one of the three? A database that was moved meanwhile is found by its descriptors alone. */
static bool is_store(const struct sqlite *sl, const struct stat *sb)
{
    static const char *const ends[] = { "", "-wal", "-shm" };
    struct buf name = {0};
    struct stat at;
    bool yes = false;

    for (size_t i = 0; i < sizeof ends / sizeof *ends && !yes; i++) {
        name.n = 0;
        buf_printf(&name, "%s%s", sl->path, ends[i]);
        yes = stat(buf_str(&name), &at) == 0 && same(sb, at.st_dev, at.st_ino);
    }
    buf_free(&name);
    return yes;
}

static bool known(const struct sl_file *f, size_t n, int fd)
{
    for (size_t i = 0; i < n; i++)
        if (f[i].fd == fd)
            return true;
    return false;
}

/* Open descriptors of the three files that are not among `but`. */
static size_t list(const struct sqlite *sl, const struct sl_file *but, size_t but_n,
                   struct sl_file *out)
{
    DIR *d = opendir("/proc/self/fd");
    struct dirent *de;
    struct stat sb;
    size_t n = 0;

    while (d != NULL && n < SL_FILES && (de = readdir(d)) != NULL) {
        const int fd = (int)strtol(de->d_name, NULL, 10);

        if (de->d_name[0] == '.' || known(but, but_n, fd) || fstat(fd, &sb) != 0 ||
            !S_ISREG(sb.st_mode) || !is_store(sl, &sb))
            continue;
        out[n++] = (struct sl_file){ .fd = fd, .dev = sb.st_dev, .ino = sb.st_ino };
    }
    if (d != NULL)
        closedir(d);
    return n;
}

void sl_files_before(struct sqlite *sl)
{
    if (sl->watch)
        sl->files_n = list(sl, NULL, 0, sl->files);
}

void sl_files_after(struct sqlite *sl)
{
    struct sl_file others[SL_FILES];
    const size_t n = sl->files_n;

    if (!sl->watch)
        return;
    memcpy(others, sl->files, n * sizeof *others);
    sl->files_n = list(sl, others, n, sl->files);
}

bool sl_intact(struct store *st)
{
    const struct sqlite *sl = sl_of(st);
    struct stat sb;

    for (size_t i = 0; sl->db != NULL && i < sl->files_n; i++)
        if (fstat(sl->files[i].fd, &sb) != 0 ||
            !same(&sb, sl->files[i].dev, sl->files[i].ino))
            return false;
    return true;
}
