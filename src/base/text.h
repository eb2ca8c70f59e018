// SPDX-License-Identifier: Apache-2.0
/* text.h - parsing and printing of numbers, durations, instants; nearest names. */
#ifndef BASE_TEXT_H
#define BASE_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Whole string, decimal, optional '-'. false: not a number, or out of [min, max]. */
bool text_int64(const char *s, int64_t min, int64_t max, int64_t *out);

/* "250ms" "10s" "5m" "2h" "7d" (also "0"); one unit; integer or decimal with up to 6 digits.
 * false: malformed, negative, or above 10 years. */
bool text_duration_us(const char *s, int64_t *out);
/* Print as the shortest exact form ("1.5s", "250ms", "7d"); returns buf. buf: >= 32 bytes. */
char *text_duration(int64_t us, char *buf, size_t n);

/* RFC 3339 with a zone ("2027-01-02T03:04:05.678Z", "+02:00"; 'T' or one space; second 60
 * refused; years 1970..9999). *why (may be NULL): what is wrong, static text. */
bool text_instant_us(const char *s, int64_t *out, const char **why);
/* Print in UTC with milliseconds, or microseconds when they are not zero. buf: >= 40 bytes. */
char *text_instant(int64_t us, char *buf, size_t n);

/* The text as far as it fits, always ended. cap: > 0. */
void text_copy(char *dst, size_t cap, const char *s);

/* "4.0 KiB", "1.2 MiB". */
char *text_bytes(uint64_t bytes, char *buf, size_t n);
/* 1234567 -> "1,234,567". buf: >= 32. */
char *text_count(int64_t v, char *buf, size_t n);

/* Optimal string alignment distance of at most `max`, else max + 1. */
int text_distance(const char *a, const char *b, int max);
/* Index of the nearest of n names within a third of its length (at least 1), or -1. */
int text_nearest(const char *s, const char *const *names, size_t n);

#endif
