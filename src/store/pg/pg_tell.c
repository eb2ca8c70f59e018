// SPDX-License-Identifier: Apache-2.0
/* pg_tell.c - NOTIFY, for idle workers of other hosts. A file of its own, so that the bench can
 * leave it out (bench/silent.c). */
#include "store/pg/pg.h"

#define TELL_US 5000

static int64_t mono(const struct pg *pg)
{
    return pg->d.env->mono_us(pg->d.env->ctx);
}

void pg_tell(struct pg *pg)
{
    struct pawl_error ignored; /* it costs who would have been woken a second */
    const int64_t now = mono(pg);

    pg->tell = now - pg->told_us < TELL_US;
    if (pg->tell || pg->c == NULL || pg->d.in_tx)
        return;
    pg->told_us = now;
    if (pg_exec(pg, "NOTIFY pawl", &ignored) != PAWL_OK)
        return;
}
