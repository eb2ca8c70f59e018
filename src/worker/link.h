// SPDX-License-Identifier: Apache-2.0
/* link.h - the words between supervisor and runner, one byte a packet over a socket pair.
 *
 *   supervisor -> runner   PAUSE: hold still and say PAUSED, a leased suspect is to run; RESUME
 *                          (both to the effect runner only);
 *                          DRAIN: finish the batch in hand and end
 *   runner -> supervisor   READY: claims from now on; PAUSED; IDLE: nothing is due; BUSY: again;
 *                          OVER: it ends now and holds nothing. Without it an end, whatever the
 *                          exit code, is a death: a handler may have called exit
 * A suspect of the runner needs no word: it runs in a transaction of its own, and if everything
 * dies then, it is the one that was there twice (verb/reap.c). The end of the stream: the other
 * side is gone.
 */
#ifndef WORKER_LINK_H
#define WORKER_LINK_H

#include <stdbool.h>

enum link_word {
    LINK_END = -1,   /* the other side is gone */
    LINK_NONE = 0,   /* nothing to read now */
    LINK_PAUSE, LINK_RESUME, LINK_DRAIN,
    LINK_READY, LINK_PAUSED, LINK_IDLE, LINK_BUSY, LINK_OVER,
};
/* Both ends CLOEXEC. 0, or -1 with errno. */
int link_pair(int fd[2]);
/* False: the other side is gone or, without wait, does not listen (hundreds of words unread). */
bool link_say(int fd, enum link_word w, bool wait);
/* Never blocks. */
enum link_word link_hear(int fd);

#endif
