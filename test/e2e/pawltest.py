# SPDX-License-Identifier: Apache-2.0
"""pawltest.py - what end-to-end tests share: a directory of their own, the real binary, workers.

Each test has a temporary directory and a store (stores.py: which kind), runs the binary named by
$PAWL_BIN (default: build/pawl), waits for events with a deadline, and ends with `pawl check`.
"""
import json
import os
import shutil
import signal
import subprocess
import tempfile
import time
import unittest

from stores import SqliteStore

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
PAWL = os.path.abspath(os.environ.get("PAWL_BIN", os.path.join(ROOT, "build", "pawl")))
# Under sanitizers or on a slow machine every deadline is stretched.
SLOW = float(os.environ.get("PAWL_TEST_SLOW", "1"))


class Result:
    """What one run of the binary came to. out and err are text; out_bytes: as it was written."""

    def __init__(self, words, done):
        self.words, self.code = words, done.returncode
        self.out_bytes, self.err_bytes = done.stdout, done.stderr
        self.out = done.stdout.decode("utf-8", "replace")
        self.err = done.stderr.decode("utf-8", "replace")

    def __str__(self):
        return "pawl %s: exit %d\n--- stdout\n%s\n--- stderr\n%s" % (
            " ".join(repr(w)[:200] for w in self.words), self.code, self.out[-4000:],
            self.err[-4000:])


def strict(text):
    """Parse one JSON text as a stranger would: no NaN, no doubled member."""
    def refuse(name):
        raise ValueError("not JSON: " + name)

    def members(pairs):
        names = [name for name, _ in pairs]
        if len(set(names)) != len(names):
            raise ValueError("a member is there twice: %s" % names)
        return dict(pairs)
    return json.loads(text, parse_constant=refuse, object_pairs_hook=members)


class PawlTest(unittest.TestCase):
    """A test with self.store, on SQLite the file self.db. check_at_end: `pawl check` must hold at
    the end."""
    check_at_end = True
    make_store = True
    store_class, slow = SqliteStore, SLOW

    def setUp(self):
        self.dir = tempfile.mkdtemp(prefix="pawl-test-")
        self.addCleanup(shutil.rmtree, self.dir, True)
        self.store = self.store_class(self)
        self.workers = []
        self.addCleanup(self._kill_workers)
        if self.make_store:
            self.store.make(self)

    @property
    def db(self):
        """SQLite's file; another one from here on, where a test sets it."""
        return getattr(self.store, "path", None)

    @db.setter
    def db(self, path):
        self.store.use(path)

    def tearDown(self):
        for worker in self.workers:
            if worker.poll() is None:
                self.stop_worker(worker)
        if self.check_at_end and self.store.exists():
            self.check()

    # --- running the binary ---
    def env(self, **more):
        env = {k: v for k, v in os.environ.items()
               if not k.startswith("PAWL_") or k == "PAWL_TEST_SLOW"}
        env.update({**self.store.env(), "LC_ALL": "C.UTF-8", **more})
        return env

    def pawl(self, *words, stdin=None, env=None, timeout=60, cwd=None, stdout=subprocess.PIPE):
        """Run to the end. stdin: bytes or text, None: empty."""
        if isinstance(stdin, str):
            stdin = stdin.encode("utf-8")
        words = [w if isinstance(w, bytes) else str(w) for w in words]
        done = subprocess.run([PAWL, *words], input=stdin or b"", stdout=stdout,
                              stderr=subprocess.PIPE, cwd=cwd or self.dir,
                              env=env or self.env(), timeout=timeout * SLOW)
        if done.stdout is None:
            done.stdout = b""
        return Result(words, done)

    def ok(self, *words, **more):
        """Run, expect exit 0; returns standard output."""
        done = self.pawl(*words, **more)
        self.assertEqual(done.code, 0, done)
        return done.out

    def fails(self, code, *words, says=None, **more):
        """Run, expect this exit code and exactly one line on standard error; returns that line."""
        done = self.pawl(*words, **more)
        self.assertEqual(done.code, code, done)
        lines = done.err.splitlines()
        self.assertEqual(len(lines), 1, done)
        self.assertTrue(lines[0].startswith("pawl"), done)
        if says:
            self.assertRegex(lines[0], says, done)
        return lines[0]

    def json(self, *words, code=0, **more):
        """Run with --json: every line an object, strictly parsed."""
        done = self.pawl("--json", *words, **more)
        self.assertEqual(done.code, code, done)
        self.assertTrue(done.out == "" or done.out.endswith("\n"), done)
        done.out_bytes.decode("utf-8")          # strictly UTF-8
        out = []
        for line in done.out_bytes.decode("utf-8").split("\n")[:-1]:
            value = strict(line)
            self.assertIsInstance(value, dict, line)
            out.append(value)
        return out

    def enqueue(self, task, args="{}", *words, **more):
        """Enqueue one job; returns its id as text."""
        return self.json("enqueue", *words, "--", task, args, **more)[0]["id"]

    def job(self, job_id):
        return self.json("job", job_id)[0]

    def check(self):
        done = self.pawl("check")
        self.assertEqual(done.code, 0, done)

    # --- configuration and workers ---
    def conf(self, text, name="pawl.conf"):
        """db = sqlite:shop.db in it becomes this test's store."""
        path = os.path.join(self.dir, name)
        with open(path, "w", encoding="utf-8") as f:
            f.write(text.replace("db = sqlite:shop.db\n", "db = %s\n" % self.store.in_conf()))
        return path

    def script(self, name, text):
        """An executable file beside the store."""
        path = os.path.join(self.dir, name)
        with open(path, "w", encoding="utf-8") as f:
            f.write(text)
        os.chmod(path, 0o755)
        return path

    def start_worker(self, *words, env=None):
        log = open(os.path.join(self.dir, "worker-%d.log" % len(self.workers)), "wb")
        worker = subprocess.Popen([PAWL, "work", *words], cwd=self.dir, env=env or self.env(),
                                  stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        log.close()
        worker.log = log.name
        self.workers.append(worker)
        return worker

    def stop_worker(self, worker, sig=signal.SIGTERM, timeout=30):
        """Signal by pid and wait; returns the exit code."""
        if worker.poll() is None:
            worker.send_signal(sig)
        try:
            return worker.wait(timeout * SLOW)
        except subprocess.TimeoutExpired:
            worker.kill()
            worker.wait()
            self.fail("worker did not stop on signal %d:\n%s" % (sig, self.log(worker)))

    def work(self, *words, timeout=60, code=0):
        """Run a worker until its tasks have nothing left."""
        done = self.pawl("work", "--until-empty", *words, timeout=timeout)
        self.assertEqual(done.code, code, done)
        return done

    def log(self, worker):
        with open(worker.log, encoding="utf-8", errors="replace") as f:
            return f.read()

    def _kill_workers(self):
        for worker in self.workers:
            if worker.poll() is None:
                worker.kill()
                worker.wait()

    # --- looking ---
    def wait_until(self, true, deadline=15, what="the condition"):
        """Ask again until true() is true; fails after `deadline` seconds. Returns its value."""
        end = time.monotonic() + deadline * SLOW
        while True:
            value = true()
            if value:
                return value
            if time.monotonic() > end:
                logs = "\n".join(self.log(w)[-3000:] for w in self.workers)
                self.fail("%s did not become true in %g s\n%s" % (what, deadline * SLOW, logs))
            time.sleep(0.02)                    # between two looks, not in place of one

    def wait_state(self, job_id, state, deadline=15):
        def reached():
            return self.job(job_id)["state"] == state
        self.wait_until(reached, deadline, "job %s is %s" % (job_id, state))

    def connect(self):
        """A connection as a stranger has it: own transactions, nothing of ours loaded."""
        db = self.store.connect()
        self.addCleanup(db.close)
        return db

    def sql(self, text, values=()):
        """One statement on a connection of its own; all rows."""
        return self.store.sql(text, values)
