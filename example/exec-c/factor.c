// SPDX-License-Identifier: Apache-2.0
/* factor.c - a handler in C: {"n":NUMBER} on standard input, the prime factors as the result. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sysexits.h>

int main(void)
{
    const char *fd = getenv("PAWL_REPLY_FD");
    FILE *reply = fd == NULL ? NULL : fdopen((int)strtol(fd, NULL, 10), "w");
    uint64_t n;

    if (reply == NULL) {
        fprintf(stderr, "factor: PAWL_REPLY_FD is not set: start me through pawl\n");
        return EX_CONFIG;
    }
    if (scanf(" { \"n\" : %" SCNu64 " }", &n) != 1 || n < 2) {
        fprintf(stderr, "factor: the args must be {\"n\":NUMBER}, at least 2\n");
        return EX_DATAERR;
    }
    fprintf(reply, "{\"done\":{\"result\":[");
    for (uint64_t p = 2; n > 1; p++) {
        if (p > n / p) p = n;           /* what is left is prime */
        for (; n % p == 0; n /= p) fprintf(reply, "%" PRIu64 "%s", p, n == p ? "" : ",");
    }
    fprintf(reply, "]}}\n");
    return fclose(reply) == 0 ? EX_OK : EX_IOERR;
}
