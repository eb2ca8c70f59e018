// SPDX-License-Identifier: Apache-2.0
/* clock.h - time and randomness behind one small table, so that a simulator can drive both.
 *
 * Rules take a struct env and never ask the machine themselves. env_real() is the machine's.
 */
#ifndef BASE_CLOCK_H
#define BASE_CLOCK_H

#include <stddef.h>
#include <stdint.h>

struct env {
    int64_t (*wall_us)(void *ctx);   /* microseconds since 1970, UTC */
    int64_t (*mono_us)(void *ctx);   /* CLOCK_MONOTONIC */
    int64_t (*boot_us)(void *ctx);   /* CLOCK_BOOTTIME: goes on while suspended */
    uint64_t (*random)(void *ctx);   /* 64 uniform bits */
    void *ctx;
};
const struct env *env_real(void);    /* wall + arc4random; static */

/* A seeded xoshiro256** env with a settable clock, for tests and the simulator. */
struct env_fake { struct env env; uint64_t s[4]; int64_t now_us; };
void env_fake_init(struct env_fake *f, uint64_t seed, int64_t now_us);

/* Uniform in [0, n) without modulo bias; n >= 1. */
uint64_t env_below(const struct env *env, uint64_t n);
void env_bytes(const struct env *env, void *out, size_t n);

/* The machine's boot id (36 characters + NUL), or "unknown". */
void clock_boot_id(char out[40]);

#endif
