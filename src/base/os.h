// SPDX-License-Identifier: Apache-2.0
/* os.h - small wrappers over the kernel: files, descriptors, processes. Linux. */
#ifndef BASE_OS_H
#define BASE_OS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include "base/buf.h"
#include "pawl.h"

/* Read a whole file (or stdin for "-") into out, refusing more than max bytes (TOOBIG). */
enum pawl_rc os_read_file(const char *path, size_t max, struct buf *out, struct pawl_error *e)
    PAWL_MUST_USE;
bool os_write_all(int fd, const void *p, size_t n); /* retries EINTR and short writes */
bool os_nonblock(int fd);
bool os_pipe(int fd[2]);                             /* CLOEXEC both ends */

/* How to start a child. Every descriptor but in, out, err and reply is closed in it; signals are
 * reset and unblocked; it leads its own process group; it gets SIGKILL when its parent dies. */
struct os_spawn {
    const char *const *argv;  /* argv[0]: a path with '/', or searched in the child's PATH */
    const char *const *envp;  /* the whole environment */
    const char *cwd;          /* NULL: inherited */
    int in_fd, out_fd, err_fd;/* become 0, 1, 2; -1: /dev/null */
    int reply_fd;             /* becomes 3; -1: none */
};
/* vfork + exec. returns OK (*pid) | NOTFOUND or DENIED (the program is not runnable: native =
 * errno) | NOMEM | IO. A failed exec is reported here, not as a child's exit. */
enum pawl_rc os_spawn(const struct os_spawn *s, pid_t *pid, struct pawl_error *e) PAWL_MUST_USE;
int os_pidfd(pid_t pid);                             /* CLOEXEC; -1 on error */

/* Split like sh: blanks, '...', "..." with \ escapes, \x outside quotes. No expansion: an unquoted
 * $ ` ; | & < > ( ) * ? is refused (say "use a script, or sh -c"). Words live in the arena.
 * out: NULL-terminated. */
enum pawl_rc os_split_words(const char *s, struct arena *a, const char *const **out, size_t *n,
                            struct pawl_error *e) PAWL_MUST_USE;
bool os_color(int fd);                               /* a terminal, NO_COLOR unset, TERM != dumb */

#endif
