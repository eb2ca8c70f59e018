// SPDX-License-Identifier: Apache-2.0
/* charge.c - the `charge` task of the demo: ask the payment gateway for money, at most once.
 *
 * Reads   the job's args on stdin and sends them on as they are; from pawl.conf GATEWAY_PORT and
 *         SHOP_PAWL (to enqueue the follow-up); from Pawl PAWL_IDEMPOTENCY_KEY, PAWL_KEY, PAWL_DB
 *         and PAWL_REPLY_FD.
 * Keeps   every attempt of the job sends the same Idempotency-Key, and the follow-up `mark_paid` is
 *         enqueued under the job's own key: whatever dies between two steps, running the whole
 *         program again charges nothing twice and enqueues nothing twice.
 * Answers exit 0: charged, the gateway's receipt is the job's result. 75: outage, timeout, lost
 *         reply - come again, with the same key. 65: the gateway said no.
 * Never   decides by itself whether to try again: that is Pawl's business.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <sysexits.h>
#include <unistd.h>

enum { TEXT_MAX = 16 * 1024, PATIENCE_MS = 800 };

static const char *need(const char *name)
{
    const char *v = getenv(name);

    if (v == NULL || v[0] == '\0') {
        fprintf(stderr, "charge: %s is not set\n", name);
        exit(EX_CONFIG);
    }
    return v;
}

static bool write_all(int fd, const char *p, size_t n)
{
    while (n > 0) {
        ssize_t w = write(fd, p, n);

        if (w < 0 && errno == EINTR) continue;
        if (w <= 0) return false;
        p += w;
        n -= (size_t)w;
    }
    return true;
}

/* Read to the end of fd. Returns the length, or -1 (errno; EMSGSIZE: more than room - 1 bytes). */
static ssize_t read_all(int fd, char *p, size_t room)
{
    size_t n = 0;

    while (n < room - 1) {
        ssize_t r = read(fd, p + n, room - 1 - n);

        if (r < 0 && errno == EINTR) continue;
        if (r < 0) return -1;
        if (r == 0) {
            p[n] = '\0';
            return (ssize_t)n;
        }
        n += (size_t)r;
    }
    errno = EMSGSIZE;
    return -1;
}

/* A connection with bounded patience, or -1. */
static int gateway_open(const char *port)
{
    const struct timeval patience = {.tv_sec = PATIENCE_MS / 1000,
                                     .tv_usec = PATIENCE_MS % 1000 * 1000};
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    to.sin_port = htons((in_port_t)strtoul(port, NULL, 10));
    if (fd < 0) return -1;
    if (setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience) != 0 ||
        setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience) != 0 ||
        connect(fd, (const struct sockaddr *)&to, sizeof to) != 0) {
        int err = errno;

        close(fd);
        errno = err;
        return -1;
    }
    return fd;
}

/* POST args; *body is the reply's body inside `reply`. Returns the HTTP status, or 0 when there is
 * no complete answer: nobody knows then whether money moved, and only the same key may be tried. */
static int gateway_charge(const char *args, size_t args_n, char *reply, const char **body)
{
    char head[1024];
    int status = 0;
    size_t body_n = 0;
    ssize_t n;
    const char *at;
    int fd = gateway_open(need("GATEWAY_PORT"));

    if (fd < 0) {
        fprintf(stderr, "charge: cannot reach the gateway: %s\n", strerror(errno));
        return 0;
    }
    n = snprintf(head, sizeof head,
                 "POST /charge HTTP/1.1\r\nHost: gateway\r\nIdempotency-Key: %s\r\n"
                 "Content-Type: application/json\r\nContent-Length: %zu\r\n"
                 "Connection: close\r\n\r\n",
                 need("PAWL_IDEMPOTENCY_KEY"), args_n);
    if (n < 0 || (size_t)n >= sizeof head || !write_all(fd, head, (size_t)n) ||
        !write_all(fd, args, args_n)) {
        fprintf(stderr, "charge: cannot send: %s\n", strerror(errno));
        n = -1;
    } else if ((n = read_all(fd, reply, TEXT_MAX)) < 0) {
        fprintf(stderr, "charge: no answer from the gateway: %s\n",
                errno == EAGAIN ? "timeout" : strerror(errno));
    }
    close(fd);
    if (n < 0) return 0;
    if (n == 0) {
        fprintf(stderr, "charge: the gateway hung up without an answer\n");
        return 0;
    }
    at = strstr(reply, "Content-Length: ");
    *body = strstr(reply, "\r\n\r\n");
    if (at != NULL) body_n = strtoul(at + strlen("Content-Length: "), NULL, 10);
    if (*body == NULL || at == NULL || strlen(*body + 4) != body_n ||
        sscanf(reply, "HTTP/1.%*1d %d", &status) != 1) {
        fprintf(stderr, "charge: the gateway hung up in the middle of its answer (%zd bytes)\n", n);
        return 0;
    }
    *body += 4;
    return status;
}

/* Enqueue mark_paid with the receipt as its args, under this job's key. PAWL_DB, which Pawl sets,
 * says where. */
static bool mark_paid(const char *receipt)
{
    const char *pawl = need("SHOP_PAWL"), *key = need("PAWL_KEY");
    int status = -1;
    pid_t pid = fork();

    if (pid == 0) {
        execl(pawl, "pawl", "enqueue", "mark_paid", receipt, "--key", key, (char *)NULL);
        fprintf(stderr, "charge: cannot run %s: %s\n", pawl, strerror(errno));
        _exit(127);
    }
    if (pid < 0) return false;
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR) continue;
    return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

/* Say "done" with the receipt as the result. */
static bool reply_done(const char *receipt)
{
    char text[TEXT_MAX + 64];
    int n = snprintf(text, sizeof text, "{\"done\":{\"result\":%s}}\n", receipt);
    int fd = (int)strtol(need("PAWL_REPLY_FD"), NULL, 10);

    return n > 0 && (size_t)n < sizeof text && write_all(fd, text, (size_t)n);
}

int main(void)
{
    static char args[TEXT_MAX], reply[TEXT_MAX];
    const char *body = NULL;
    ssize_t args_n = read_all(STDIN_FILENO, args, sizeof args);
    int status;

    if (args_n < 0) {
        fprintf(stderr, "charge: cannot read the args: %s\n", strerror(errno));
        return EX_IOERR;
    }
    status = gateway_charge(args, (size_t)args_n, reply, &body);
    if (status == 200 || status == 201) {
        if (!mark_paid(body)) {
            fprintf(stderr, "charge: charged, but mark_paid was not enqueued\n");
            return EX_TEMPFAIL;
        }
        return reply_done(body) ? EX_OK : EX_TEMPFAIL;
    }
    if (status == 0) return EX_TEMPFAIL;
    fprintf(stderr, "charge: the gateway answered %d: %s\n", status, body);
    if (status >= 500 || status == 408 || status == 409 || status == 425 || status == 429) {
        return EX_TEMPFAIL;
    }
    return EX_DATAERR;
}
