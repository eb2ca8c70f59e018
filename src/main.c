// SPDX-License-Identifier: Apache-2.0
/* main.c - the `pawl` command: make the process safe to start, then hand over to cli/frame.c. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <unistd.h>

#include "base/build.h"
#include "base/err.h"
#include "base/fail.h"
#include "base/log.h"
#include "cli/cli.h"

/* A closed descriptor 0, 1 or 2 would be given to the next file opened, the store perhaps, and a
 * message for people would be written into it. /dev/null read-only keeps the place: a write there
 * fails, and is noticed. */
static bool keep_standard_fds(void)
{
    for (int fd = 0; fd <= 2; fd++) {
        if (fcntl(fd, F_GETFD) >= 0 || errno != EBADF) continue;
        if (open("/dev/null", O_RDONLY) != fd) return false;
    }
    return true;
}

int main(int argc, char **argv)
{
    const struct log_conf log = {.level = LOG_INFO, .json = false, .fd = STDERR_FILENO};
    struct pawl_error e = {.rc = PAWL_OK};

    if (!keep_standard_fds()) return EXIT_BUG;
    log_setup(&log);
    signal(SIGPIPE, SIG_IGN); /* a write to a closed pipe is an error we report, not a death */
    if (fail_setup(&e) != PAWL_OK) {
        fprintf(stderr, "pawl: %s\n", e.msg);
        return pawl_rc_exit(e.rc);
    }
    return cli_main(argc, argv, pawl_build());
}
