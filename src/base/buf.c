// SPDX-License-Identifier: Apache-2.0
/* buf.c - buffers that survive a failed allocation: they say so once, at the end.
 *
 * Keeps: data[n] is NUL whenever there is memory; after a failure nothing is half appended.
 */
#include "base/buf.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/utf8.h"

void buf_free(struct buf *b)
{
    if (b == NULL) return;
    free(b->data);
    *b = (struct buf){ 0 };
}

void buf_clear(struct buf *b)
{
    b->n = 0;
    b->failed = false;
    if (b->data != NULL) b->data[0] = '\0';
}

/* Room for `more` bytes and a NUL. false: b->failed is set. */
static bool reserve(struct buf *b, size_t more)
{
    size_t cap = b->cap < 64 ? 64 : b->cap;
    char *p;

    if (b->failed) return false;
    if (more >= SIZE_MAX / 4 || b->n >= SIZE_MAX / 4) {
        b->failed = true;
        return false;
    }
    if (b->cap > b->n + more) return true;
    while (cap <= b->n + more) cap *= 2;
    if ((p = realloc(b->data, cap)) == NULL) {
        b->failed = true;
        return false;
    }
    b->data = p;
    b->cap = cap;
    return true;
}

void buf_put(struct buf *b, const void *p, size_t n)
{
    if (n == 0 || !reserve(b, n)) return;
    memcpy(b->data + b->n, p, n);
    b->n += n;
    b->data[b->n] = '\0';
}

void buf_puts(struct buf *b, const char *s)
{
    if (s != NULL) buf_put(b, s, strlen(s));
}

void buf_putc(struct buf *b, char c) { buf_put(b, &c, 1); }

void buf_vprintf(struct buf *b, const char *fmt, va_list ap)
{
    va_list again;
    int n;

    if (b->failed) return;
    va_copy(again, ap);
    n = vsnprintf(NULL, 0, fmt, ap);
    if (n < 0)
        b->failed = true;
    else if (n > 0 && reserve(b, (size_t)n)) {
        vsnprintf(b->data + b->n, (size_t)n + 1, fmt, again);
        b->n += (size_t)n;
    }
    va_end(again);
}

void buf_printf(struct buf *b, const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    buf_vprintf(b, fmt, ap);
    va_end(ap);
}

const char *buf_str(struct buf *b) { return b->n > 0 ? b->data : ""; }

char *buf_take(struct buf *b)
{
    char *p = NULL;

    if (!b->failed && b->n == 0 && b->data == NULL)
        p = calloc(1, 1);
    else if (!b->failed) {
        p = b->data;
        b->data = NULL;
    }
    buf_free(b);
    return p;
}

/* ---- arena ---- */

#define ARENA_MIN 4096u
#define ARENA_STEP_MAX (64u * 1024)
#define ARENA_KEEP_MAX (256u * 1024) /* a bigger block is not kept over a reset */

struct arena_block {
    struct arena_block *next;
    size_t cap, used;
    size_t pad;         /* keeps data at a multiple of 16 */
    char data[];
};
static_assert(offsetof(struct arena_block, data) % 16 == 0, "arena data must be aligned");

static struct arena_block *add_block(struct arena *a, size_t need)
{
    size_t cap = ARENA_MIN;
    struct arena_block *b;

    if (a->head != NULL)
        while (cap < ARENA_STEP_MAX && cap <= a->head->cap) cap *= 2;
    if (cap < need) cap = need;
    if ((b = malloc(sizeof *b + cap)) == NULL) return NULL;
    b->cap = cap;
    b->used = 0;
    if (need == cap && a->head != NULL) { /* a block of its own: go on filling the present one */
        b->next = a->head->next;
        a->head->next = b;
    } else {
        b->next = a->head;
        a->head = b;
    }
    return b;
}

void *arena_alloc(struct arena *a, size_t n)
{
    struct arena_block *b = a->head;
    void *p;

    if (n > SIZE_MAX / 2) return NULL;
    n = n == 0 ? 16 : (n + 15) / 16 * 16;
    if ((b == NULL || b->cap - b->used < n) && (b = add_block(a, n)) == NULL) {
        a->failed = true;
        return NULL;
    }
    p = b->data + b->used;
    b->used += n;
    assert(b->used <= b->cap);
    a->used_bytes += n;
    return memset(p, 0, n);
}

char *arena_dup(struct arena *a, const void *p, size_t n)
{
    char *s;

    if (p == NULL || n == SIZE_MAX || (s = arena_alloc(a, n + 1)) == NULL) return NULL;
    if (n > 0) memcpy(s, p, n);
    return s;
}

char *arena_strdup(struct arena *a, const char *s)
{
    return s == NULL ? NULL : arena_dup(a, s, strlen(s));
}

void arena_reset(struct arena *a)
{
    struct arena_block *keep = NULL, *b = a->head, *next;

    for (; b != NULL; b = next) {
        next = b->next;
        if (b->cap <= ARENA_KEEP_MAX && (keep == NULL || b->cap > keep->cap)) {
            free(keep);
            keep = b;
        } else {
            free(b);
        }
    }
    if (keep != NULL) {
        keep->next = NULL;
        keep->used = 0;
    }
    *a = (struct arena){ .head = keep };
}

void arena_free(struct arena *a)
{
    struct arena_block *b, *next;

    if (a == NULL) return;
    for (b = a->head; b != NULL; b = next) {
        next = b->next;
        free(b);
    }
    *a = (struct arena){ 0 };
}

/* ---- head and tail ---- */

void tail_init(struct tail *t, size_t head_max, size_t tail_max)
{
    *t = (struct tail){ .head_max = head_max, .tail_max = tail_max };
}

void tail_put(struct tail *t, const void *p, size_t n)
{
    const char *s = p;

    t->total += n;
    if (t->head_n < t->head_max && n > 0) {
        size_t k = t->head_max - t->head_n < n ? t->head_max - t->head_n : n;
        if (t->head == NULL && (t->head = malloc(t->head_max)) == NULL) return;
        memcpy(t->head + t->head_n, s, k);
        t->head_n += k;
        s += k;
        n -= k;
    }
    if (n == 0 || t->tail_max == 0) return;
    if (t->ring == NULL && (t->ring = malloc(t->tail_max)) == NULL) return;
    if (n > t->tail_max) {
        s += n - t->tail_max;
        n = t->tail_max;
    }
    while (n > 0) { /* at most twice: up to the end of the ring, then from its start */
        size_t k = t->tail_max - t->ring_at < n ? t->tail_max - t->ring_at : n;
        memcpy(t->ring + t->ring_at, s, k);
        t->ring_at = (t->ring_at + k) % t->tail_max;
        t->ring_n = t->ring_n + k > t->tail_max ? t->tail_max : t->ring_n + k;
        s += k;
        n -= k;
    }
}

void tail_render(const struct tail *t, struct buf *out)
{
    size_t start = t->ring_n == t->tail_max ? t->ring_at : 0;
    size_t head_n = t->head_n, skip = 0;

    if (t->head_n + t->ring_n < t->total) { /* cut at whole characters on both sides of the gap */
        head_n = utf8_trim(t->head, t->head_n);
        while (skip < 3 && skip < t->ring_n &&
               ((unsigned char)t->ring[(start + skip) % t->tail_max] & 0xc0u) == 0x80) skip++;
    }
    buf_put(out, t->head, head_n);
    if (t->head_n + t->ring_n < t->total)
        buf_printf(out, "\n... %" PRIu64 " bytes left out ...\n",
                   t->total - head_n - (t->ring_n - skip));
    for (size_t left = t->ring_n - skip, at = start + skip; left > 0;) {
        size_t from = at % t->tail_max;
        size_t k = t->tail_max - from < left ? t->tail_max - from : left;
        buf_put(out, t->ring + from, k);
        left -= k;
        at += k;
    }
}

void tail_fini(struct tail *t)
{
    free(t->head);
    free(t->ring);
    tail_init(t, t->head_max, t->tail_max);
}
