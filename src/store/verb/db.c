// SPDX-License-Identifier: Apache-2.0
/* db.c - the few calls of db.h that are no call of the engine. */
#include <string.h>
#include <sys/stat.h>
#include "store/verb/db.h"

const char *const q_text_of[Q_N] = {
#define Q_STR(name, text) [Q_##name] = text,
    Q_TABLE(Q_STR)
#undef Q_STR
};

struct store_place store_place(struct store *st)
{
    struct stat sb;

    if (fstat(db_of(st)->side.dir_fd, &sb) != 0)
        return (struct store_place){0, 0};
    return (struct store_place){sb.st_dev, sb.st_ino};
}

void q_text(struct query *q, int i, const char *s)
{
    q_text_n(q, i, s, s != NULL ? strlen(s) : 0);
}

void q_free(struct query *q)
{
    if (q != NULL)
        q->ops->free(q);
}

char *q_dup(struct arena *a, struct query *q, int col)
{
    const char *s = q_str(q, col);

    return s == NULL ? NULL : arena_dup(a, s, (size_t)q_bytes(q, col));
}
