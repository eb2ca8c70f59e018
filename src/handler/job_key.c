// SPDX-License-Identifier: Apache-2.0
/* job_key.c - the stable key of a job for systems outside: SHA-256 (FIPS 180-4) of what names the
 * business act, cut to 128 bits.
 *
 * A short hash would do for a table of ours; here a collision would make a receiver swallow another
 * job's charge, so it must be out of reach even for keys chosen on purpose.
 */
#include "handler/job_key.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static const uint32_t round_k[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2,
};

struct sha256 {
    uint32_t h[8];
    unsigned char block[64];
    size_t block_n;
    uint64_t total;
};

static uint32_t rotr(uint32_t x, unsigned n)
{
    return (x >> n) | (x << (32 - n));
}

static void compress(struct sha256 *s)
{
    uint32_t w[64], v[8];

    for (size_t i = 0; i < 16; i++) {
        const unsigned char *p = s->block + 4 * i;
        w[i] = (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
    }
    for (size_t i = 16; i < 64; i++) {
        uint32_t s0 = rotr(w[i - 15], 7) ^ rotr(w[i - 15], 18) ^ (w[i - 15] >> 3);
        uint32_t s1 = rotr(w[i - 2], 17) ^ rotr(w[i - 2], 19) ^ (w[i - 2] >> 10);
        w[i] = w[i - 16] + s0 + w[i - 7] + s1;
    }
    for (size_t i = 0; i < 8; i++) v[i] = s->h[i];
    for (size_t i = 0; i < 64; i++) {
        uint32_t s1 = rotr(v[4], 6) ^ rotr(v[4], 11) ^ rotr(v[4], 25);
        uint32_t t1 = v[7] + s1 + ((v[4] & v[5]) ^ (~v[4] & v[6])) + round_k[i] + w[i];
        uint32_t s0 = rotr(v[0], 2) ^ rotr(v[0], 13) ^ rotr(v[0], 22);
        uint32_t t2 = s0 + ((v[0] & v[1]) ^ (v[0] & v[2]) ^ (v[1] & v[2]));
        for (size_t j = 7; j > 0; j--) v[j] = v[j - 1];
        v[4] += t1;
        v[0] = t1 + t2;
    }
    for (size_t i = 0; i < 8; i++) s->h[i] += v[i];
    s->block_n = 0;
}

static void put(struct sha256 *s, const void *p, size_t n)
{
    const unsigned char *c = p;

    s->total += n;
    for (size_t i = 0; i < n; i++) {
        s->block[s->block_n++] = c[i];
        if (s->block_n == sizeof s->block) compress(s);
    }
}

static void finish(struct sha256 *s)
{
    static const unsigned char one = 0x80, zero = 0;
    uint64_t bits = s->total * 8;
    unsigned char be[8];

    for (size_t i = 0; i < 8; i++) be[i] = (unsigned char)(bits >> (56 - 8 * i));
    put(s, &one, 1);
    while (s->block_n != 56) put(s, &zero, 1);
    put(s, be, sizeof be);
    assert(s->block_n == 0);
}

void job_idempotency_key(const char *task, const struct job *job, char out[JOB_KEY_BYTES])
{
    struct sha256 s = {.h = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c,
                             0x1f83d9ab, 0x5be0cd19}};
    const char *source = job->source != NULL ? job->source : "";
    char root[32];
    int n;

    /* The NUL after each text keeps ("ab", "c") and ("a", "bc") apart: no text can hold one. */
    put(&s, task, strlen(task) + 1);
    put(&s, source, strlen(source) + 1);
    if (job->key != NULL) {
        put(&s, "key", sizeof "key");
        put(&s, job->key, strlen(job->key));
    } else {
        n = snprintf(root, sizeof root, "%" PRId64, job->root_id);
        put(&s, "root", sizeof "root");
        put(&s, root, (size_t)n);
    }
    finish(&s);
    n = snprintf(out, JOB_KEY_BYTES, "pawl-%08" PRIx32 "%08" PRIx32 "%08" PRIx32 "%08" PRIx32,
                 s.h[0], s.h[1], s.h[2], s.h[3]);
    assert(n == JOB_KEY_BYTES - 1);
}
