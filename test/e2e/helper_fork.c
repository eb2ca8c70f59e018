// SPDX-License-Identifier: Apache-2.0
/* helper_fork.c - a program that starts children while its handles are open and its workers write.
 *
 *   helper_fork URL WORKERS CHILDREN   case_29; every child looks for what it should not have
 *   helper_fork --fds                  what a child that was started says: its descriptors
 *
 * First it forks while nothing is open: such a child opens the store and enqueues. Then while a
 * handle is open: such a child tries it, and opens another store. (Not this one: what SQLite knows
 * of the file's locks is the parent's.) Then, while workers run in threads, every second child is
 * another program (exec), the others only fork: they try the parent's handles, close them, and end
 * through exit() and its atexit functions. (They use nothing of SQLite: a thread that is not there
 * any more may hold one of its mutexes.)
 * Says "children=N done=N" and ends with 0 if no child had anything to complain of.
 */
#include <dirent.h>
#include <pthread.h>
#include <spawn.h>
#include <stdatomic.h>
#include <sys/wait.h>

#include "helper.h"

enum { WORKERS_MOST = 16, AT_ONCE = 4, EARLY = 4 };
extern char **environ;

static const char *url;
static struct pawl *store;                          /* the main thread's */
static _Atomic(struct pawl_worker *) workers[WORKERS_MOST];
static atomic_int done_n;
static atomic_bool over;
static int forked;                                  /* in a child that only forked */

PAWL_HANDLER(effect, NULL, put_fx, NULL);

static void *work(void *number)
{
    const struct pawl_task task = {"effect", &effect, NULL, NULL};
    const struct pawl_worker_opts o = {.tasks = &task, .tasks_n = 1, .accept_wal_risk = true};
    struct pawl_worker_stat did;
    struct pawl_worker *w = NULL;
    struct pawl_error e;

    if (pawl_worker_open(url, &o, &w, &e) != PAWL_OK) die("worker", &e);
    atomic_store(&workers[*(const int *)number], w);
    if (pawl_worker_run(w, false, &e) != PAWL_OK) die("run", &e);
    pawl_worker_stats(w, &did);
    atomic_fetch_add(&done_n, (int)did.done);
    for (const double began = uptime(); !atomic_load(&over);) nap(began);
    if (pawl_worker_close(&w, &e) != PAWL_OK) die("close", &e);
    return NULL;
}

/* Every descriptor above 2, but for the one of the look itself. returns their number. */
static int print_descriptors(void)
{
    DIR *d = opendir("/proc/self/fd");
    int found = 0;

    for (const struct dirent *at; d != NULL && (at = readdir(d)) != NULL;) {
        const int fd = (int)strtol(at->d_name, NULL, 10);
        char link[64], path[256];
        if (at->d_name[0] == '.' || fd <= 2 || fd == dirfd(d)) continue;
        snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
        const ssize_t n = readlink(link, path, sizeof path - 1);
        path[n > 0 ? n : 0] = '\0';
        fprintf(stderr, "a child has descriptor %d: %s\n", fd, path);
        found++;
    }
    if (d == NULL) return 1;
    closedir(d);
    return found;
}

static void at_exit(void)
{
    if (forked) pawl_close(&store);                 /* a second time: it is NULL by now */
}

/* In a child that only forked. i: it is one of many, of a program with threads; -1: it is not. */
static int try_handles(int i)
{
    struct pawl_worker *w = atomic_load(&workers[0]);
    struct pawl *own = NULL;
    struct pawl_enqueued got;
    struct pawl_error e;

    forked = 1;
    alarm(60);                                      /* one that hangs is to be seen */
    if (enqueue_one(store, "effect", "from a child", &got, &e) != PAWL_BADARG) return 10;
    if (strstr(e.msg, "fork") == NULL) return 11;
    if (pawl_worker_step(w, NULL, &e) != PAWL_BADARG) return 12;
    if (w != NULL && strstr(e.msg, "fork") == NULL) return 13;
    pawl_wake(store);
    if (i < 0) {
        if (pawl_open_temp(NULL, &own, &e) != PAWL_OK) die("a child's own store", &e);
        if (enqueue_one(own, "effect", NULL, &got, &e) != PAWL_OK) die("a child's own job", &e);
        pawl_close(&own);
    }
    if (i % 3 == 0) (void)pawl_worker_close(&w, NULL);
    pawl_close(&store);
    return store == NULL ? 0 : 14;
}

static pid_t start_child(int i, char *self)
{
    char how[] = "--fds";
    char *const words[] = {self, how, NULL};
    pid_t pid = -1;

    if (i % 2 == 0) return posix_spawn(&pid, self, NULL, NULL, words, environ) == 0 ? pid : -1;
    pid = fork();
    if (pid == 0) exit(try_handles(i));
    return pid;
}

static bool child_is_well(void)
{
    int status = 0;
    const pid_t pid = wait(&status);

    if (pid > 0 && WIFEXITED(status) && WEXITSTATUS(status) == 0) return true;
    fprintf(stderr, "child %d ended badly: status 0x%x\n", (int)pid, (unsigned)status);
    return false;
}

/* In a child that was forked while nothing was open. */
static int enqueue_early(int i)
{
    struct pawl_enqueued got;
    struct pawl_error e;
    char key[40];

    snprintf(key, sizeof key, "early-%d", i);
    if (pawl_open(url, &store, &e) != PAWL_OK) die("an early child", &e);
    if (enqueue_one(store, "effect", key, &got, &e) != PAWL_OK) die("an early child's job", &e);
    pawl_close(&store);
    return 0;
}

/* Children of a program without threads: before it opens the store, and after. */
static bool run_early_children(void)
{
    struct pawl_error e;
    bool well = true;

    for (int i = 0; i < EARLY; i++)
        if (fork() == 0) exit(enqueue_early(i));
    for (int i = 0; i < EARLY; i++) well = child_is_well() && well;
    if (pawl_open(url, &store, &e) != PAWL_OK) die("open", &e);
    for (int i = 0; i < EARLY; i++)
        if (fork() == 0) exit(try_handles(-1));
    for (int i = 0; i < EARLY; i++) well = child_is_well() && well;
    return well;
}

/* Keep the workers busy, a job for each child, and start the children among them. */
static bool run_children(int n, char *self)
{
    struct pawl_enqueued got;
    struct pawl_error e;
    bool well = true;
    int alive = 0;
    char key[40];

    for (int i = 0; i < n && well; i++) {
        snprintf(key, sizeof key, "parent-%d", i);
        if (enqueue_one(store, "effect", key, &got, &e) != PAWL_OK) die("the parent's job", &e);
        if (start_child(i, self) < 0) die("no child", NULL);
        if (++alive < AT_ONCE) continue;
        well = child_is_well();
        alive--;
    }
    for (; alive > 0; alive--) well = child_is_well() && well;
    return well;
}

static bool count(void *ctx, const struct pawl_stat *s)
{
    if (strcmp(s->name, "done") == 0) *(int64_t *)ctx = s->value;
    return true;
}

int main(int argc, char **argv)
{
    const double began = uptime();
    pthread_t thread[WORKERS_MOST];
    int number[WORKERS_MOST];
    struct pawl_error e;
    int64_t have = 0;

    if (argc == 2) return print_descriptors() != 0;
    if (argc != 4) die("usage", NULL);
    url = argv[1];
    const int workers_n = (int)strtol(argv[2], NULL, 10), n = (int)strtol(argv[3], NULL, 10);
    if (workers_n > WORKERS_MOST || atexit(at_exit) != 0) die("too many", NULL);
    (void)close_range(3, ~0U, 0);                   /* what the caller left open is not ours */
    bool well = run_early_children();
    for (int i = 0; i < workers_n; i++) {
        number[i] = i;
        if (pthread_create(&thread[i], NULL, work, &number[i]) != 0) die("thread", NULL);
        while (atomic_load(&workers[i]) == NULL) nap(began);
    }
    well = run_children(n, argv[0]) && well;
    while (well && have < n + EARLY) {
        nap(began);
        if (pawl_stats(store, count, &have, &e) != PAWL_OK) die("stats", &e);
    }
    for (int i = 0; i < workers_n; i++) pawl_worker_stop(atomic_load(&workers[i]));
    atomic_store(&over, true);
    for (int i = 0; i < workers_n; i++) pthread_join(thread[i], NULL);
    printf("children=%d done=%d\n", n, atomic_load(&done_n));
    pawl_close(&store);
    return well ? 0 : 1;
}
