# SPDX-License-Identifier: Apache-2.0
"""ckit.py - plugins for the tests of C tasks: compiled here, against include/ and nothing else.

ACTS is a plugin whose handlers do what the word in args.do says: in apply (`act`, effect mode), or
in prepare or apply as args.at says (`staged`, prepared mode). Every start of one is a line in
starts.log before anything happens; an apply that goes well is a row in fx.
"""
import collections
import hashlib
import os
import shutil
import subprocess
import unittest

from fieldkit import FieldTest
from pawltest import ROOT

CC = os.environ.get("CC", "cc")
FLAGS = ["-std=c17", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-Wconversion", "-Werror", "-O1", "-g",
         "-shared", "-fPIC", "-I" + os.path.join(ROOT, "include")]

ACTS = r"""
#include <pawl.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

static void note(struct pawl_run *run, const char *phase)
{
    char line[128];
    int fd = open("starts.log", O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    int n = snprintf(line, sizeof line, "%" PRId64 " %" PRId64 " %s %d\n", run->job_id,
                     run->attempt, phase, (int)getpid());
    if (write(fd, line, (size_t)n) != n) abort();
    close(fd);
}

static enum pawl_outcome put(struct pawl_run *run, const char *value)
{
    struct pawl_error e;
    struct pawl_value v[] = {pawl_int("job", run->job_id), pawl_int("n", run->attempt),
                             pawl_text("key", run->key), pawl_text("value", value)};
    if (pawl_exec(run, "INSERT INTO fx(job_id, attempt, key, value)"
                  " VALUES (:job, :n, :key, :value)", v, 4, NULL, &e) != PAWL_OK)
        return pawl_run_error(run, &e);
    return PAWL_DONE;
}

static volatile int zero;
/* A statement that ends the transaction, for an engine that would let it. */
#ifndef ROLL_BACK
#define ROLL_BACK "INSERT OR ROLLBACK INTO one VALUES (1)"
#endif

/* The database, its log and the log's index, whoever opened them; not what lies in PATH-pawl. Or
 * the connections to the server. */
static void close_store(void)
{
    struct sockaddr_un peer;
    char link[64], path[512];

    for (int fd = 4; fd < 256; fd++) {
        snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
        ssize_t n = readlink(link, path, sizeof path - 1);
        if (n < 0) continue;
        path[n] = '\0';
        socklen_t room = sizeof peer;
        memset(&peer, 0, sizeof peer);
        if (getpeername(fd, (struct sockaddr *)(void *)&peer, &room) == 0 &&
            strstr(peer.sun_path, ".s.PGSQL") != NULL)
            close(fd);
        const char *db = strstr(path, ".db");
        if (db != NULL && strchr(db, '/') == NULL) close(fd);
    }
}

static void crash(const char *what)
{
    if (strcmp(what, "segv") == 0) *(volatile int *)(intptr_t)zero = 1;
    if (strcmp(what, "kill") == 0) kill(getpid(), SIGKILL);
    if (strcmp(what, "abort") == 0) abort();
    if (strcmp(what, "exit0") == 0) exit(0);
    if (strcmp(what, "exit3") == 0) exit(3);
    if (strcmp(what, "exit78") == 0) exit(78);
    if (strcmp(what, "loop") == 0) for (;;) zero = 0;
    if (strcmp(what, "parent") == 0) {
        kill(getppid(), SIGKILL);
        for (;;) pause();
    }
    if (strcmp(what, "close") == 0) for (int i = 0; i <= 3; i++) close(i);
    if (strcmp(what, "closefrom") == 0) closefrom(0);
    if (strcmp(what, "closestore") == 0) close_store();
}

static enum pawl_outcome do_fork(void)
{
    pid_t pid = fork();  /* a child that stays, with every descriptor of ours */
    if (pid == 0) for (;;) pause();
    kill(getpid(), SIGKILL);
    return PAWL_DONE;
}

static enum pawl_outcome statements(struct pawl_run *run, const char *what)
{
    struct pawl_error e;
    enum pawl_rc rc = PAWL_OK;

    if (strcmp(what, "commit") == 0) rc = pawl_exec(run, "COMMIT", NULL, 0, NULL, &e);
    else if (strcmp(what, "swallow") == 0) rc = pawl_exec(run, "INSERT INTO no_table VALUES (1)",
                                                         NULL, 0, NULL, &e);
    else if (strcmp(what, "rollback") == 0) rc = pawl_exec(run, ROLL_BACK, NULL, 0, NULL, &e);
    else if (strcmp(what, "honest") == 0) {
        rc = pawl_exec(run, "INSERT INTO one VALUES (1)", NULL, 0, NULL, &e);
        return pawl_run_error(run, &e);
    }
    (void)rc;
    return PAWL_DONE; /* although it failed */
}

static enum pawl_outcome follow(struct pawl_run *run)
{
    struct pawl_request r = {.task = "act", .args = "{}", .key = "follow-up"};
    struct pawl_enqueued out;
    struct pawl_error e;

    return pawl_run_enqueue(run, &r, 1, &out, NULL, &e) == PAWL_OK ? PAWL_DONE
                                                                    : pawl_run_error(run, &e);
}

static enum pawl_outcome nap(struct pawl_run *run)
{
    /* Until somebody asks for an end, before a deadline of its own. */
    for (int deadline = 3000; deadline > 0 && !pawl_run_cancelled(run); deadline--) {
        struct timespec t = {.tv_nsec = 10 * 1000 * 1000};
        nanosleep(&t, NULL);
    }
    pawl_run_say(run, "was asked to stop");
    return PAWL_RETRY;
}

static enum pawl_outcome answer(struct pawl_run *run, const char *what)
{
    struct pawl_error e;

    if (strcmp(what, "retry") == 0) return pawl_run_say(run, "not now"), PAWL_RETRY;
    if (strcmp(what, "later") == 0) return pawl_run_after(run, 3600 * 1000000LL), PAWL_RETRY;
    if (strcmp(what, "once") == 0 && run->attempt == 1) return PAWL_RETRY;
    if (strcmp(what, "fail") == 0) return pawl_run_say(run, "never %d", 7), PAWL_FAIL;
    if (strcmp(what, "snooze") == 0) {
        if (run->attempt > 1) return PAWL_DONE;
        pawl_run_after(run, 1000);
        return PAWL_SNOOZE;
    }
    if (strcmp(what, "discard") == 0) return pawl_run_say(run, "given up"), PAWL_DISCARD;
    if (strcmp(what, "stale") == 0) return PAWL_STALE;
    if (strcmp(what, "odd") == 0) return (enum pawl_outcome)99;
    if (strcmp(what, "result") == 0) {
        const char text[] = "{\"n\":1}";
        if (pawl_run_result(run, text, sizeof text - 1, &e) != PAWL_OK)
            return pawl_run_error(run, &e);
    }
    if (strcmp(what, "print") == 0) {
        printf("printed by job %" PRId64 "\n", run->job_id);
        pawl_run_log(run, 2, "logged\nby a handler");
    }
    if (strcmp(what, "nap") == 0) return nap(run);
    if (strcmp(what, "nap-exit") == 0) exit(nap(run) == PAWL_RETRY ? 0 : 1);
    if (strcmp(what, "wait") == 0) return poll(NULL, 0, 2500) == 0 ? PAWL_DONE : PAWL_FAIL;
    if (strcmp(what, "fork") == 0) return do_fork();
    if (strcmp(what, "follow") == 0) return follow(run);
    if (strcmp(what, "follow-fail") == 0)
        return follow(run) == PAWL_DONE ? PAWL_FAIL : PAWL_RETRY;
    return PAWL_DONE;
}

static const char *word(struct pawl_run *run, const char *name, const char *otherwise)
{
    struct pawl_error e;
    const char *text = otherwise;

    (void)pawl_arg_text(run, name, &text, NULL, &e);
    return text;
}

static enum pawl_outcome apply(struct pawl_run *run)
{
    const char *what = word(run, "do", ""), *at = word(run, "at", "apply");
    enum pawl_outcome o;

    note(run, "apply");
    if ((o = put(run, run->plan ? run->plan : "no plan")) != PAWL_DONE) return o;
    if (strcmp(at, "apply") != 0) return PAWL_DONE;
    crash(what);
    return strcmp(what, "commit") == 0 || strcmp(what, "swallow") == 0
        || strcmp(what, "rollback") == 0 || strcmp(what, "honest") == 0 ? statements(run, what)
                                                                        : answer(run, what);
}

static enum pawl_outcome prepare(struct pawl_run *run)
{
    const char *what = word(run, "do", ""), *at = word(run, "at", "apply");

    note(run, "prepare");
    run->plan = strdup("from prepare");
    if (strcmp(at, "prepare") != 0) return PAWL_DONE;
    crash(what);
    return answer(run, what);
}

static void drop(struct pawl_run *run)
{
    free(run->plan);
}

PAWL_HANDLER(act, NULL, apply, NULL);
PAWL_HANDLER(staged, prepare, apply, drop);
int not_a_handler = 1;
"""

Start = collections.namedtuple("Start", "job n phase pid")


def compile_plugin(folder, name, source, *more):
    """name.so in folder; more: further words for the compiler."""
    path, out = os.path.join(folder, name + ".c"), os.path.join(folder, name + ".so")
    with open(path, "w", encoding="utf-8") as f:
        f.write(source)
    kept = already_compiled(source, *more)
    if kept is not None and os.path.exists(kept):
        shutil.copy(kept, out)
        return out
    done = subprocess.run([CC, *FLAGS, "-o", out, path, *more], stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, check=False)
    if done.returncode != 0:
        raise AssertionError("%s does not compile: %s" % (name, done.stdout.decode()))
    if kept is not None:
        own = "%s.%d" % (kept, os.getpid())
        shutil.copy(out, own)
        os.rename(own, kept)
    return out


def already_compiled(*what):
    """Where the runner keeps the plugin of this text: most tests want the same one."""
    folder = os.environ.get("PAWL_TEST_KEPT")
    if not folder:
        return None
    with open(os.path.join(ROOT, "include", "pawl.h"), encoding="utf-8") as f:
        text = repr((CC, FLAGS, f.read(), what))
    return os.path.join(folder, hashlib.sha256(text.encode()).hexdigest() + ".so")


class PluginTest(FieldTest):
    """A store with fx, and the plugin acts.so beside it. handler: what the task `act` runs."""
    handler = "act"
    policy = ""                                 # of the task act
    pawl_keys = ""                              # more of [pawl]

    def setUp(self):
        if not shutil.which(CC):
            raise unittest.SkipTest("no C compiler")
        super().setUp()
        self.sql("CREATE TABLE one(x INTEGER PRIMARY KEY)")
        self.sql("INSERT INTO one VALUES (1)")
        self.compile_acts(ACTS)

    def compile_acts(self, source):
        ends = "INSERT OR ROLLBACK INTO one VALUES (1)"
        if not self.store.can("rolls_back"):
            ends = "ROLLBACK"
        compile_plugin(self.dir, "acts", source, "-DROLL_BACK=\"%s\"" % ends)

    def write_conf(self, more=None):
        self.conf("[pawl]\ndb = sqlite:shop.db\nconcurrency = %d\ngrace = 5s\nlease = %s\n"
                  "accept_wal_risk = yes\n%s\n[task act]\nc = ./acts.so:%s\n%s\n%s"
                  % (self.concurrency, self.lease, self.pawl_keys,
                     self.handler, self.policy, self.more if more is None else more))

    def do(self, what, *words, at="apply"):
        """Enqueue one job that does this; returns its id."""
        return self.enqueue("act", '{"do":"%s","at":"%s"}' % (what, at), *words)

    def crowd(self, n, name="n"):
        """n jobs that do nothing but their effect, with keys; the ids."""
        before = {r[0] for r in self.sql("SELECT id FROM pawl_jobs")}
        self.bulk({"task": "act", "args": {}, "key": "%s-%d" % (name, i)}
                  for i in range(n))
        return [r[0] for r in self.sql("SELECT id FROM pawl_jobs ORDER BY id")
                if r[0] not in before]

    def starts(self, job=None, phase=None):
        try:
            with open(os.path.join(self.dir, "starts.log"), encoding="ascii") as f:
                rows = [Start(int(j), int(n), p, int(pid)) for j, n, p, pid in
                        (line.split() for line in f if line.endswith("\n"))]
        except FileNotFoundError:
            return []
        return [r for r in rows if (job is None or r.job == int(job))
                and (phase is None or r.phase == phase)]

    def assert_all_done(self, ids):
        states = dict(self.sql("SELECT id, state FROM pawl_jobs"))
        self.assertEqual({i: states[i] for i in ids if states[i] != "done"}, {})
