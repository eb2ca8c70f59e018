// SPDX-License-Identifier: Apache-2.0
/* disk.c - F: how often a second can 4 KiB be made durable?
 *
 *   disk FILE SECONDS_MS     overwrite of a preallocated file, fdatasync after each 4 KiB
 *
 * The positions go round a file of 4 MiB, as a write-ahead log that is reused in place does. */
#include <fcntl.h>
#include <unistd.h>
#include "bench.h"

enum { PAGE = 4096, PAGES = 1024 };

int main(int argc, char **argv)
{
    static char page[PAGE];
    int64_t n = 0, start, now;

    if (argc != 3) bench_die("usage", "disk FILE MILLISECONDS");
    const int64_t for_us = bench_int(argv[2], 1) * 1000;
    const int fd = open(argv[1], O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0) bench_die(argv[1], strerror(errno));
    memset(page, 'p', sizeof page);
    for (int i = 0; i < PAGES; i++)
        if (pwrite(fd, page, PAGE, (off_t)i * PAGE) != PAGE) bench_die(argv[1], "short write");
    if (fsync(fd) != 0) bench_die(argv[1], strerror(errno));
    start = now = bench_now_us(CLOCK_MONOTONIC);
    const int64_t cpu = bench_cpu_us();
    for (; now - start < for_us; now = bench_now_us(CLOCK_MONOTONIC), n++) {
        page[0] = (char)n;
        if (pwrite(fd, page, PAGE, (off_t)(n % PAGES) * PAGE) != PAGE || fdatasync(fd) != 0)
            bench_die(argv[1], strerror(errno));
    }
    bench_print(n, now - start, bench_cpu_us() - cpu);
    (void)close(fd);
    (void)unlink(argv[1]);
    return 0;
}
