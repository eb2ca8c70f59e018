// SPDX-License-Identifier: Apache-2.0
/* job.c - the names of dead classes and outcomes, as in the store, the docs and --json. */
#include "core/job.h"

#include <assert.h>
#include <string.h>

static const char *const dead_names[] = {
    [DEAD_PERMANENT] = "permanent",     [DEAD_EXHAUSTED] = "exhausted",
    [DEAD_POISON] = "poison",           [DEAD_EXPIRED] = "expired",
    [DEAD_UNROUTABLE] = "unroutable",   [DEAD_UNDECODABLE] = "undecodable",
    [DEAD_IN_DOUBT] = "in_doubt",       [DEAD_CONFLICT] = "conflict",
    [DEAD_MISUSE] = "misuse",
};
static_assert(sizeof dead_names / sizeof *dead_names == DEAD_CLASS_N, "a class has no name");

static const char *const outcome_names[] = {
    [OUT_DONE] = "done",                [OUT_STALE] = "stale",
    [OUT_TRANSIENT] = "transient",      [OUT_PERMANENT] = "permanent",
    [OUT_TIMEOUT] = "timeout",          [OUT_SNOOZE] = "snooze",
    [OUT_DISCARD] = "discard",          [OUT_LOST] = "lost",
    [OUT_SUSPECT] = "suspect",          [OUT_RELEASED] = "released",
    [OUT_EXPIRED] = "expired",          [OUT_UNDECODABLE] = "undecodable",
    [OUT_CONFLICT] = "conflict",        [OUT_MISUSE] = "misuse",
    [OUT_CANCELLED] = "cancelled",
};
static_assert(sizeof outcome_names / sizeof *outcome_names == OUT_N, "an outcome has no name");

static int find(const char *const *names, size_t n, const char *s)
{
    for (size_t i = 0; i < n; i++)
        if (strcmp(names[i], s) == 0) return (int)i;
    return -1;
}

const char *dead_class_name(enum dead_class c)
{
    return (unsigned)c < DEAD_CLASS_N ? dead_names[c] : "?";
}

bool dead_class_parse(const char *s, enum dead_class *out)
{
    int i = find(dead_names, DEAD_CLASS_N, s);

    if (i < 0) return false;
    *out = (enum dead_class)i;
    return true;
}

const char *outcome_name(enum outcome o)
{
    return (unsigned)o < OUT_N ? outcome_names[o] : "?";
}

bool outcome_parse(const char *s, enum outcome *out)
{
    int i = find(outcome_names, OUT_N, s);

    if (i < 0) return false;
    *out = (enum outcome)i;
    return true;
}
