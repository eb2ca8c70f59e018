// SPDX-License-Identifier: Apache-2.0
/* buf.h - a growing byte buffer, an arena, and a tail buffer. No job knowledge. */
#ifndef BASE_BUF_H
#define BASE_BUF_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Growing buffer. Zero-initialised is valid and empty. data is NUL-terminated whenever n > 0.
 * A failed allocation sets `failed`, drops further writes, and is asked for once at the end. */
struct buf {
    char *data;
    size_t n, cap;
    bool failed;
};
void buf_free(struct buf *b);                   /* also resets to empty; NULL is fine */
void buf_clear(struct buf *b);                  /* n = 0, keeps the memory, clears failed */
void buf_put(struct buf *b, const void *p, size_t n);
void buf_puts(struct buf *b, const char *s);    /* NULL appends nothing */
void buf_putc(struct buf *b, char c);
void buf_printf(struct buf *b, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void buf_vprintf(struct buf *b, const char *fmt, va_list ap);
const char *buf_str(struct buf *b);             /* "" when empty; borrowed */
char *buf_take(struct buf *b);                  /* given to the caller (free()); NULL on failure */

/* Arena: many small allocations freed at once. Zero-initialised is valid. */
/* failed: some allocation did, since the last reset. */
struct arena { struct arena_block *head; size_t used_bytes; bool failed; };
void *arena_alloc(struct arena *a, size_t n);   /* zeroed, aligned to 16; NULL: out of memory */
char *arena_dup(struct arena *a, const void *p, size_t n); /* adds a NUL; NULL in -> NULL */
char *arena_strdup(struct arena *a, const char *s);
void arena_reset(struct arena *a);              /* keeps one block for reuse */
void arena_free(struct arena *a);

/* Head and tail of a stream of unknown length: keeps the first head_max and the last tail_max
 * bytes. Memory is bounded by the two sizes and allocated lazily. */
struct tail {
    char *head, *ring;
    size_t head_max, tail_max, head_n, ring_at, ring_n;
    uint64_t total;                             /* bytes seen */
};
void tail_init(struct tail *t, size_t head_max, size_t tail_max);
void tail_put(struct tail *t, const void *p, size_t n);
/* Append head + "\n... N bytes left out ...\n" + tail (or the whole, if nothing was dropped). */
void tail_render(const struct tail *t, struct buf *out);
void tail_fini(struct tail *t);

#endif
