// SPDX-License-Identifier: Apache-2.0
/* clock.c - the machine's time and randomness, and a seeded stand-in for both. */
#include "base/clock.h"

#include <assert.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static int64_t read_clock(clockid_t id)
{
    struct timespec t = { 0 };

    if (clock_gettime(id, &t) != 0) abort(); /* only a broken machine lacks these clocks */
    return (int64_t)t.tv_sec * 1000000 + t.tv_nsec / 1000;
}

static int64_t real_wall(void *ctx) { (void)ctx; return read_clock(CLOCK_REALTIME); }
static int64_t real_mono(void *ctx) { (void)ctx; return read_clock(CLOCK_MONOTONIC); }
static int64_t real_boot(void *ctx) { (void)ctx; return read_clock(CLOCK_BOOTTIME); }

static uint64_t real_random(void *ctx)
{
    uint64_t v;

    (void)ctx;
    arc4random_buf(&v, sizeof v); /* from the kernel: a forked child cannot repeat its parent */
    return v;
}

const struct env *env_real(void)
{
    static const struct env real = { real_wall, real_mono, real_boot, real_random, NULL };

    return &real;
}

/* ---- the stand-in: xoshiro256** seeded by splitmix64 (both public domain algorithms) ---- */

static int64_t fake_now(void *ctx) { return ((struct env_fake *)ctx)->now_us; }

static uint64_t rotl(uint64_t x, int k) { return x << k | x >> (64 - k); }

static uint64_t fake_random(void *ctx)
{
    uint64_t *s = ((struct env_fake *)ctx)->s;
    uint64_t out = rotl(s[1] * 5, 7) * 9, t = s[1] << 17;

    s[2] ^= s[0];
    s[3] ^= s[1];
    s[1] ^= s[2];
    s[0] ^= s[3];
    s[2] ^= t;
    s[3] = rotl(s[3], 45);
    return out;
}

void env_fake_init(struct env_fake *f, uint64_t seed, int64_t now_us)
{
    *f = (struct env_fake){ .env = { fake_now, fake_now, fake_now, fake_random, f },
                            .now_us = now_us };
    for (int i = 0; i < 4; i++) {
        uint64_t z = seed += 0x9e3779b97f4a7c15u;
        z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
        z = (z ^ z >> 27) * 0x94d049bb133111ebu;
        f->s[i] = z ^ z >> 31;
    }
}

uint64_t env_below(const struct env *env, uint64_t n)
{
    uint64_t skip, x = 0;

    assert(n >= 1);
    skip = (0 - n) % n; /* 2^64 mod n: the values that would favour small results */
    for (int tries = 0; tries < 128; tries++) { /* bounded, so that a constant source cannot hang */
        x = env->random(env->ctx);
        if (x >= skip) break;
    }
    return x % n;
}

void env_bytes(const struct env *env, void *out, size_t n)
{
    char *p = out;

    while (n > 0) {
        uint64_t v = env->random(env->ctx);
        size_t k = n < sizeof v ? n : sizeof v;
        memcpy(p, &v, k);
        p += k;
        n -= k;
    }
}

void clock_boot_id(char out[40])
{
    int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
    char text[37];
    ssize_t n = fd < 0 ? -1 : read(fd, text, 36);

    if (fd >= 0) close(fd);
    memset(out, 0, 40);
    if (n == 36)
        memcpy(out, text, 36);
    else
        memcpy(out, "unknown", 7);
}
