// SPDX-License-Identifier: Apache-2.0
/* probe.c - look at the plugins of a configuration from a safe distance.
 *
 * A plugin's code runs as soon as it is loaded. So a process of its own loads it, says what it
 * found, and ends; what it does there is done to nobody else. One line a fact, on descriptor 3:
 *   load TASK            about to load its plugin
 *   mode TASK effect     found: effect or prepared
 *   fail TEXT            refused: the whole error
 *   end                  that was all
 */
#include "worker/probe.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/os.h"
#include "handler/c_plugin.h"

extern char **environ;

#define PROBE_US INT64_C(30000000) /* loading takes no longer */
enum { TEXT_MAX = 1024 * 1024, HIGH_FD = 64 };

/* --- the process that loads --- */

static void tell(int fd, const char *word, const char *task, const char *text)
{
    struct buf b = {0};

    buf_printf(&b, "%s%s%s%s", word, task[0] != '\0' ? " " : "", task,
               text[0] != '\0' ? " " : "");
    for (const char *s = text; *s != '\0'; s++) buf_putc(&b, *s == '\n' ? ' ' : *s);
    buf_putc(&b, '\n');
    if (!b.failed) (void)os_write_all(fd, b.data, b.n);
    buf_free(&b);
}

enum pawl_rc probe_run(struct conf *conf, struct pawl_error *e)
{
    const struct pawl_handler *h = NULL;
    /* Out of the way of what a plugin does to the descriptors it knows. */
    int fd = fcntl(PROBE_FD, F_DUPFD_CLOEXEC, HIGH_FD);
    enum pawl_rc rc = PAWL_OK;

    if (fd < 0) return pawl_fail_errno(e, errno, "the probe's descriptor");
    (void)close(PROBE_FD);
    for (size_t i = 0; i < conf->tasks_n && rc == PAWL_OK; i++) {
        struct conf_task *t = &conf->tasks[i];
        if (t->kind != HANDLER_C) continue;
        tell(fd, "load", t->name, "");
        rc = c_plugin_load(conf, t, &h, e);
        if (rc == PAWL_OK) tell(fd, "mode", t->name, conf_mode_name(t->mode));
    }
    if (rc == PAWL_OK) tell(fd, "end", "", "");
    else tell(fd, "fail", "", e->msg);
    (void)close(fd);
    return rc;
}

/* --- the process that asks --- */

struct probe {
    struct conf *conf;
    struct conf_task *at; /* its plugin is being loaded */
    bool end;
    enum pawl_rc rc;
    struct pawl_error *e;
};

static struct conf_task *task_of(const struct conf *conf, const char *name)
{
    for (size_t i = 0; i < conf->tasks_n; i++) {
        if (strcmp(conf->tasks[i].name, name) == 0) return &conf->tasks[i];
    }
    return NULL;
}

static void heard(struct probe *p, char *line)
{
    char *rest = strchr(line, ' '), *mode;

    if (rest != NULL) *rest++ = '\0';
    if (strcmp(line, "end") == 0) p->end = true;
    if (rest == NULL || p->rc != PAWL_OK) return;
    if (strcmp(line, "fail") == 0) {
        p->rc = pawl_fail(p->e, PAWL_CONFIG, "%s", rest);
    } else if (strcmp(line, "load") == 0) {
        p->at = task_of(p->conf, rest);
    } else if (strcmp(line, "mode") == 0 && (mode = strchr(rest, ' ')) != NULL) {
        struct conf_task *t;
        *mode++ = '\0';
        if ((t = task_of(p->conf, rest)) == NULL || t->kind != HANDLER_C) return;
        p->rc = conf_set_mode(p->conf, t, strcmp(mode, conf_mode_name(MODE_PREPARED)) == 0, p->e);
    }
}

/* Everything it says, until it ends. false: it took too long, or more than anybody needs to say. */
static bool listen_to(int fd, struct buf *text)
{
    const struct env *env = env_real();
    int64_t until_us = env->mono_us(env->ctx) + PROBE_US, left_us;
    char some[4096];
    ssize_t n;

    while ((left_us = until_us - env->mono_us(env->ctx)) > 0 && text->n < TEXT_MAX) {
        struct pollfd p = {.fd = fd, .events = POLLIN};
        if (poll(&p, 1, (int)(left_us / 1000) + 1) <= 0) continue;
        n = read(fd, some, sizeof some);
        if (n == 0) return true;
        if (n > 0) buf_put(text, some, (size_t)n);
        else if (errno != EINTR) return true;
    }
    return false;
}

/* It has said everything, or never will: its status, at the latest after a second. */
static int end_of(pid_t pid)
{
    struct pollfd p = {.fd = os_pidfd(pid), .events = POLLIN};
    int status = 0;

    if (p.fd >= 0) {
        (void)poll(&p, 1, 1000);
        (void)close(p.fd);
    }
    (void)kill(pid, SIGKILL);
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {}
    return status;
}

/* It read the file anew. */
static enum pawl_rc all_known(const struct probe *p)
{
    for (size_t i = 0; i < p->conf->tasks_n; i++) {
        if (p->conf->tasks[i].mode != MODE_UNKNOWN) continue;
        return pawl_fail(p->e, PAWL_CONFIG, "%s changed while it was read; try again",
                         p->conf->path);
    }
    return PAWL_OK;
}

static enum pawl_rc judge(const struct probe *p, int status, bool in_time)
{
    const struct conf_task *t = p->at;
    char how[96];

    if (p->rc == PAWL_OK && p->end && in_time) return all_known(p);
    if (p->rc != PAWL_OK) return p->rc;
    if (!in_time) {
        snprintf(how, sizeof how, "took longer than %d s", (int)(PROBE_US / 1000000));
    } else if (WIFSIGNALED(status)) {
        snprintf(how, sizeof how, "ended the process by signal %d (%s)", WTERMSIG(status),
                 strsignal(WTERMSIG(status)));
    } else {
        snprintf(how, sizeof how, "ended the process with exit code %d", WEXITSTATUS(status));
    }
    if (t == NULL) return pawl_fail(p->e, PAWL_IO, "%s: the look at its plugins %s", p->conf->path,
                                    how);
    return pawl_fail(p->e, PAWL_CONFIG, "%s:%d: c = %s: loading the plugin %s (its own code runs "
                     "then: a constructor, or a library's)", p->conf->path, t->c_line, t->c_text,
                     how);
}

static enum pawl_rc ask(struct probe *p)
{
    const char *argv[] = {"/proc/self/exe", "__probe", "--config", p->conf->path, NULL};
    struct buf text = {0};
    int fd[2] = {-1, -1}, status = 0;
    pid_t pid = -1;
    bool in_time;
    enum pawl_rc rc;

    (void)signal(SIGCHLD, SIG_DFL); /* ignored, it would throw the status away */
    if (!os_pipe(fd)) return pawl_fail_errno(p->e, errno, "look at the plugins");
    struct os_spawn sp = {.argv = argv, .envp = (const char *const *)environ, .in_fd = -1,
                          .out_fd = STDERR_FILENO, .err_fd = STDERR_FILENO, .reply_fd = fd[1]};
    rc = os_spawn(&sp, &pid, p->e);
    (void)close(fd[1]);
    if (rc == PAWL_OK) {
        in_time = listen_to(fd[0], &text);
        status = end_of(pid);
        for (char *line = text.data, *end; line != NULL && *line != '\0'; line = end) {
            end = strchrnul(line, '\n');
            if (*end != '\0') *end++ = '\0';
            heard(p, line);
        }
        rc = judge(p, status, in_time);
    }
    (void)close(fd[0]);
    buf_free(&text);
    return rc;
}

enum pawl_rc probe_modes(struct conf *conf, struct pawl_error *e)
{
    struct probe p = {.conf = conf, .e = e};

    for (size_t i = 0; i < conf->tasks_n; i++) {
        if (conf->tasks[i].kind == HANDLER_C) return ask(&p);
    }
    return PAWL_OK;
}

/* --- the programs of exec tasks --- */

static bool is_program(const char *path)
{
    struct stat sb;

    return stat(path, &sb) == 0 && S_ISREG(sb.st_mode) && access(path, X_OK) == 0;
}

static bool in_path(const struct conf *conf, const char *name, const char *path)
{
    struct buf file = {0};
    bool found = false;

    for (const char *at = path, *end; !found; at = end + 1) {
        end = strchrnul(at, ':');
        buf_clear(&file);
        /* The child starts in the configuration's directory. */
        if (end == at || *at != '/') buf_printf(&file, "%s/", conf->dir);
        buf_put(&file, at, (size_t)(end - at));
        buf_printf(&file, "/%s", name);
        found = is_program(buf_str(&file));
        if (*end == '\0') break;
    }
    buf_free(&file);
    return found;
}

static bool check_program(const struct conf *conf, const struct conf_task *t, char *why,
                          size_t why_n)
{
    const char *name = t->argv[0], *path = getenv("PATH");
    struct buf file = {0};
    struct stat sb;
    bool there, fine;

    if (strchr(name, '/') == NULL) {
        for (size_t i = 0; i < t->env_n; i++) {
            if (strncmp(t->env[i], "PATH=", 5) == 0) path = t->env[i] + 5;
        }
        if (path == NULL || in_path(conf, name, path)) return true;
        snprintf(why, why_n, "%s:%d: task %s: program %.200s: not found in PATH", conf->path,
                 t->line, t->name, name);
        return false;
    }
    if (name[0] != '/' && strcmp(conf->dir, ".") != 0) buf_printf(&file, "%s/", conf->dir);
    buf_puts(&file, name);
    there = stat(buf_str(&file), &sb) == 0;
    fine = is_program(buf_str(&file));
    if (!fine) {
        snprintf(why, why_n, "%s:%d: task %s: program %.200s: %s", conf->path, t->line, t->name,
                 buf_str(&file), there ? "not executable" : "no such file");
    }
    buf_free(&file);
    return fine;
}

void probe_programs(const struct conf *conf, void (*fn)(void *ctx, const char *why), void *ctx)
{
    char why[PATH_MAX];

    for (size_t i = 0; i < conf->tasks_n; i++) {
        const struct conf_task *t = &conf->tasks[i];
        if (t->kind == HANDLER_EXEC && !check_program(conf, t, why, sizeof why)) fn(ctx, why);
    }
}
