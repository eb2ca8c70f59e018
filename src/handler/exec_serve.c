// SPDX-License-Identifier: Apache-2.0
/* exec_serve.c - serve one child to its end, for who has nothing else to do meanwhile.
 */
#include "handler/handler.h"

#include <poll.h>
#include <signal.h>

#define LOOK_MS 500 /* a signal that came just before the wait is seen by then */

void exec_child_serve(struct exec_child *c, const struct env *env, const volatile int *term)
{
    int stops = 0;

    while (!exec_child_over(c)) {
        struct pollfd p[EXEC_FD_N];
        int64_t now_us = env->mono_us(env->ctx), next_us = exec_child_next_us(c);
        int wait_ms = LOOK_MS;

        for (int i = 0; i < EXEC_FD_N; i++) {
            p[i] = (struct pollfd){.fd = exec_child_fd(c, i),
                                   .events = i == EXEC_STDIN ? POLLOUT : POLLIN};
        }
        if (next_us - now_us < LOOK_MS * 1000)
            wait_ms = next_us <= now_us ? 0 : (int)((next_us - now_us + 999) / 1000);
        int n = *term > stops ? 0 : poll(p, EXEC_FD_N, wait_ms);
        now_us = env->mono_us(env->ctx);
        for (int i = 0; n > 0 && i < EXEC_FD_N; i++) {
            if (p[i].fd >= 0 && p[i].revents != 0) exec_child_io(c, i, now_us);
        }
        exec_child_tick(c, now_us);
        if (*term > stops) {
            exec_child_stop(c, stops == 0 ? SIGTERM : SIGKILL, "interrupted", now_us);
            stops++;
        }
    }
}
