// SPDX-License-Identifier: Apache-2.0
/* link.c - one-byte packets between supervisor and runner. */
#include "worker/link.h"

#include <assert.h>
#include <errno.h>
#include <sys/socket.h>

int link_pair(int fd[2])
{
    return socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fd);
}

bool link_say(int fd, enum link_word w, bool wait)
{
    unsigned char byte = (unsigned char)w;
    int flags = MSG_NOSIGNAL | (wait ? 0 : MSG_DONTWAIT);
    ssize_t n;

    assert(w > LINK_NONE && w <= LINK_OVER);
    while ((n = send(fd, &byte, 1, flags)) < 0 && errno == EINTR) {}
    return n == 1;
}

enum link_word link_hear(int fd)
{
    unsigned char byte = 0;
    ssize_t n;

    while ((n = recv(fd, &byte, 1, MSG_DONTWAIT)) < 0 && errno == EINTR) {}
    if (n == 1 && byte > LINK_NONE && byte <= LINK_OVER) return (enum link_word)byte;
    return n < 0 && errno == EAGAIN ? LINK_NONE : LINK_END;
}
