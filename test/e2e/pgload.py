# SPDX-License-Identifier: Apache-2.0
"""pgload.py - load on a PostgreSQL store, and the audit after it: nothing lost, nothing doubled.

Four tasks, each with one row in fx as its effect: s (sql), c (a plugin, effect mode), p (a plugin
that prepares), x (a program that commits effect and acknowledgement by itself, with psql). A
producer is a command (`pawl enqueue`) with a key; what each was told is kept. audit() sends again
what was not told to be stored, with the same key, waits until everything has ended, and looks from
outside.
"""
import collections
import os
import random
import shutil
import subprocess
import tempfile
import threading
import time

from ckit import CC, compile_plugin
from pawltest import PAWL, SLOW
from pgkit import clean_env

CONF = """[pawl]
lease = 5s
concurrency = 4
grace = 5s

[task s]
sql = INSERT INTO fx(job, task, name) VALUES (:job_id, 's', :name)
backoff = 20ms..200ms
lost_cap = 100

[task c]
c = ./load.so:effect
backoff = 20ms..200ms
lost_cap = 100

[task p]
c = ./load.so:staged
backoff = 20ms..200ms
lost_cap = 100

[task x]
exec = ./own.sh
backoff = 20ms..200ms
lost_cap = 100
max_retries = 100
"""
# 0: psql has committed, or an earlier try of this very run had.
PROGRAM = """#!/bin/sh
exec psql -XqAt -v ON_ERROR_STOP=1 "$LOAD_URL" >/dev/null 2>own.err <<END || exit 75
BEGIN;
SELECT pawl.begin($PAWL_JOB_ID, '$PAWL_LEASE');
INSERT INTO fx(job, task, name) SELECT id, 'x', args::json->>'name' FROM pawl.jobs
WHERE id = $PAWL_JOB_ID;
SELECT pawl.complete($PAWL_JOB_ID, '$PAWL_LEASE');
COMMIT;
END
"""
PLUGIN = r"""
#include <pawl.h>
#include <stdlib.h>
#include <string.h>

static enum pawl_outcome put(struct pawl_run *run, const char *task)
{
    struct pawl_error e;
    const char *name = "";
    (void)pawl_arg_text(run, "name", &name, NULL, &e);
    struct pawl_value v[] = {pawl_int("job", run->job_id), pawl_text("task", task),
                             pawl_text("name", name)};
    if (pawl_exec(run, "INSERT INTO fx(job, task, name) VALUES (:job, :task, :name)", v, 3, NULL,
                  &e) != PAWL_OK)
        return pawl_run_error(run, &e);
    return PAWL_DONE;
}
static enum pawl_outcome apply(struct pawl_run *run) { return put(run, "c"); }
static enum pawl_outcome apply_plan(struct pawl_run *run) { return put(run, run->plan); }
static enum pawl_outcome prepare(struct pawl_run *run)
{
    run->plan = strdup("p");
    return run->plan ? PAWL_DONE : PAWL_RETRY;
}
static void drop(struct pawl_run *run) { free(run->plan); }
PAWL_HANDLER(effect, NULL, apply, NULL);
PAWL_HANDLER(staged, prepare, apply_plan, drop);
"""
TASKS = "scpx"
# What a worker may end with that a service manager starts again.
AGAIN = (69, 74, 75)


class Load:
    """url: as the command and psql take it, with every host in it."""

    def __init__(self, url, seed=None, tasks=TASKS):
        self.url, self.tasks = url, tasks
        self.seed = random.randrange(1 << 32) if seed is None else seed
        self.rng = random.Random(self.seed)
        self.dir = tempfile.mkdtemp(prefix="pawl-test-")
        os.chmod(self.dir, 0o755)
        self.told, self.said, self.sent, self.codes = {}, {}, 0, {}
        self.lock, self.stop = threading.Lock(), threading.Event()
        self.threads, self.workers, self.ended = [], [], []
        conf = CONF
        if not shutil.which(CC):
            self.tasks = tasks.replace("c", "").replace("p", "")
        else:
            compile_plugin(self.dir, "load", PLUGIN)
        for task in "cpsx":
            if task not in self.tasks:          # its section ends with a blank line
                head, rest = conf.split("[task %s]\n" % task)
                conf = head + rest.partition("\n\n")[2]
        self.write("pawl.conf", conf)
        self.write("own.sh", PROGRAM)

    def write(self, name, text):
        with open(os.path.join(self.dir, name), "w", encoding="ascii") as f:
            f.write(text)
        os.chmod(os.path.join(self.dir, name), 0o755)

    def env(self):
        return dict(clean_env(), PAWL_DB=self.url, LOAD_URL=self.url, PAWL_RUNTIME_DIR=self.dir,
                    PGCONNECT_TIMEOUT="5", PGTARGETSESSIONATTRS="read-write")

    def pawl(self, *words):
        done = subprocess.run([PAWL, *words], cwd=self.dir, env=self.env(), text=True,
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, timeout=120 * SLOW)
        return done.returncode, done.stdout, done.stderr

    def psql(self, sql, url=None):
        return subprocess.run(["psql", "-XqAt", "-v", "ON_ERROR_STOP=1", "-c", sql,
                               url or self.url], env=self.env(), stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, text=True, timeout=60 * SLOW)

    def rows(self, sql):
        done = self.psql(sql)
        if done.returncode != 0:
            raise AssertionError("psql: %s" % done.stderr)
        return [line.split("|") for line in done.stdout.splitlines()]

    def init(self):
        code, out, err = self.pawl("init")
        assert code == 0, out + err
        self.rows("CREATE TABLE fx(job bigint, task text, name text,"
                  " at timestamptz DEFAULT clock_timestamp())")

    # --- workers ---

    def start_worker(self):
        with open(os.path.join(self.dir, "worker-%d.log" % len(self.workers)), "ab") as log:
            worker = subprocess.Popen([PAWL, "work"], cwd=self.dir, env=self.env(),
                                      stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        worker.log = log.name
        self.workers.append(worker)
        return worker

    def tend(self):
        """As a service manager: start again what ended with an error that may pass."""
        for w in [w for w in self.workers if w.poll() is not None and w not in self.ended]:
            self.ended.append(w)
            if w.returncode not in AGAIN:
                raise AssertionError("a worker ended with %d:\n%s" % (w.returncode, self.log()))
            self.start_worker()

    def log(self):
        text = ""
        for name in sorted(os.listdir(self.dir)):
            if name.startswith("worker-"):
                with open(os.path.join(self.dir, name), encoding="utf-8", errors="replace") as f:
                    text += "--- %s\n%s" % (name, f.read()[-3000:])
        return text

    # --- producers ---

    def produce(self, n=2, pause=0.0):
        for _ in range(n):
            t = threading.Thread(target=self.producer, args=(pause,), daemon=True)
            t.start()
            self.threads.append(t)

    def producer(self, pause):
        while not self.stop.wait(pause):
            with self.lock:
                key, self.sent = "k%d" % self.sent, self.sent + 1
            self.send(key)

    def send(self, key):
        task = self.tasks[int(key[1:]) % len(self.tasks)]
        code, _, err = self.pawl("enqueue", task, '{"name":"%s"}' % key, "--key", key)
        with self.lock:
            self.told[key], self.said[key] = code, err
        return code

    def stored(self):
        with self.lock:
            return sum(code == 0 for code in self.told.values())

    def done(self):
        done = self.psql("SELECT count(*) FROM pawl.jobs WHERE state = 'done'")
        return int(done.stdout) if done.returncode == 0 else -1

    def wait(self, true, what, deadline=60):
        end = time.monotonic() + deadline * SLOW
        while not true():
            self.tend()
            if time.monotonic() > end:
                raise AssertionError("%s: not so after %g s\n%s" % (what, deadline * SLOW,
                                                                    self.log()))
            time.sleep(0.02)                    # between two looks, not in place of one

    # --- the end ---

    def end_producers(self):
        self.stop.set()
        for t in self.threads:
            t.join(120 * SLOW)

    def audit(self):
        """The producers' words, and the effects. Raises what is wrong."""
        self.end_producers()
        self.codes = dict(collections.Counter(self.told.values()))
        there = {key for key, in self.rows("SELECT key FROM pawl.jobs")}
        for key, code in self.told.items():
            said = "%s was told %d: %s" % (key, code, self.said[key])
            if code == 0:
                assert key in there, "lost: " + said
            elif code != 75:                    # 75: it may be there, and says so
                assert code in AGAIN and key not in there, "not the truth: " + said
            assert self.said[key].count("\n") < 4, "not one line: " + said
        for key in [k for k, code in self.told.items() if code != 0]:
            assert self.send(key) == 0, "again: %s" % self.said[key]
        n = len(self.told)
        self.wait(lambda: self.done() >= n, "all %d jobs are done" % n)
        self.end_workers()
        wrong = self.rows("SELECT name, count(*) FROM fx GROUP BY 1 HAVING count(*) <> 1 LIMIT 9")
        assert wrong == [], "doubled: %s" % wrong
        lost = self.rows("SELECT key, state FROM pawl.jobs j WHERE NOT EXISTS (SELECT FROM fx WHERE"
                         " fx.name = j.key AND fx.job = j.id AND fx.task = j.task) LIMIT 9")
        assert lost == [], "without effect: %s" % lost
        assert self.rows("SELECT count(*), count(DISTINCT key) FROM pawl.jobs") == [[str(n)] * 2]
        code, out, err = self.pawl("check")
        assert code == 0, out + err
        return n

    def end_workers(self):
        for w in self.workers:
            if w.poll() is None:
                w.terminate()
        for w in self.workers:
            try:
                w.wait(60 * SLOW)
            except subprocess.TimeoutExpired:
                w.kill()
                w.wait()
                raise AssertionError("a worker does not stop\n" + self.log()) from None

    def close(self):
        self.stop.set()
        for w in self.workers:
            if w.poll() is None:
                w.kill()
                w.wait()
        for t in self.threads:
            t.join(30)
        shutil.rmtree(self.dir, True)
