#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""test_case_library.py - field cases through libpawl: programs that link it, enqueue and work.

29 39 59 68, and what SIGKILL at any moment and handlers that end their program leave behind. The
programs are test/e2e/helper_*.c; the oracles are those of fieldkit.py.
"""
import os
import random
import signal
import sqlite3
import subprocess
import threading
import time
import unittest

from fieldkit import FieldTest, is_sanitized, uptime
from pawltest import PAWL, SLOW

TIMEOUT = 150
SERIAL = True  # it measures waits, and needs the machine for its crowds of processes
BOTH_LINKS = True
HELPERS = os.path.join(os.environ.get("PAWL_BUILD_DIR", os.path.dirname(PAWL)), "test")


class Linked(FieldTest):
    def setUp(self):
        super().setUp()
        self.url = "sqlite:" + self.db
        self.sql("CREATE TABLE orders(id INTEGER PRIMARY KEY)")

    def helper(self, name, *words, **env):
        """Run to its end."""
        return subprocess.run([os.path.join(HELPERS, name), self.url, *map(str, words)],
                              cwd=self.dir, env=self.env(**env), stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                              timeout=120 * SLOW)

    def linked(self, *words, ready=True):
        """A program with a worker in it, running; what it prints goes to its log."""
        path = os.path.join(self.dir, "worker-%d.log" % len(self.workers))
        with open(path, "wb") as log:
            worker = subprocess.Popen([os.path.join(HELPERS, "helper_linked"), self.url, *words],
                                      cwd=self.dir, env=self.env(), stdin=subprocess.DEVNULL,
                                      stdout=log, stderr=log)
        worker.log = path
        self.workers.append(worker)
        if ready:
            self.wait_log(worker, "ready")
        return worker

    def stop_all(self):
        """Stop what runs; nothing but the helpers' own words may have been printed."""
        for worker in self.workers:
            if worker.poll() is None:
                self.assertEqual(self.stop_worker(worker), 0, self.log(worker))
                self.assertRegex(self.log(worker), r"\Aready\ndone=\d+ retried=\d+ .*\n\Z")

    def drain(self):
        """Work until nothing is left."""
        done = self.helper("helper_linked", "empty")
        self.assertEqual((done.returncode, done.stderr), (0, ""), done.stdout)
        return done.stdout

    def hold(self, seconds, true, what):
        """It is true now, and stays so for a while."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            self.assertTrue(true(), what)
            time.sleep(0.02)


class Fork(Linked):
    def case_29_children_of_a_program_with_open_handles_carry_nothing_of_ours(self):
        """8 handlers write in threads while children start: by exec, and by fork alone."""
        children = 200 if is_sanitized() else 2000
        # A child leaves its parent's connections alone: memory that it cannot give back.
        done = self.helper("helper_fork", 8, children,
                           ASAN_OPTIONS="abort_on_error=1:detect_leaks=0")
        self.assertEqual((done.returncode, done.stderr), (0, ""), done.stdout)
        self.assertEqual(done.stdout, "children=%d done=%d\n" % (children, children + 4))
        self.assertEqual(self.sql("PRAGMA integrity_check"), [("ok",)])
        self.assert_each_once([r[0] for r in self.sql("SELECT id FROM pawl_jobs")])
        self.assertEqual(self.count("done"), children + 4)


class Producer:
    """helper_producer, line by line."""

    def __init__(self, test):
        self.test = test
        self.p = subprocess.Popen([os.path.join(HELPERS, "helper_producer"), test.url, "orders"],
                                  cwd=test.dir, env=test.env(), stdin=subprocess.PIPE,
                                  stdout=subprocess.PIPE, text=True)
        test.addCleanup(self.close)

    def ask(self, line):
        self.p.stdin.write(line + "\n")
        self.p.stdin.flush()
        answer = self.p.stdout.readline().strip()
        self.test.assertNotEqual(answer, "")
        self.test.assertFalse(answer.startswith("error"), answer)
        return answer

    def close(self):
        self.p.stdin.close()
        self.p.stdout.close()
        self.p.wait()


class Transaction(Linked):
    def case_39_job_starts_after_the_commit_of_its_producer_and_never_after_a_rollback(self):
        worker = self.linked()
        shop = Producer(self)

        shop.ask("begin 7")
        self.hold(1.5, lambda: self.attempts() == [], "an attempt before the end")
        self.assertEqual(shop.ask("rollback"), "ok")
        marker = self.enqueue("act")            # done: the worker has looked
        self.wait_state(marker, "done")
        self.hold(0.5, lambda: len(self.attempts()) == 1, "an attempt of what was rolled back")
        self.assertEqual(self.sql("SELECT count(*) FROM orders"), [(0,)])

        job = shop.ask("begin 7")
        self.hold(0.5, lambda: len(self.attempts()) == 1, "an attempt before COMMIT")
        began = uptime()
        self.assertEqual(shop.ask("commit"), "ok")
        start = self.wait_attempts(job, 1)[0].at
        self.assertLess(start - began, 0.1 + 0.4 * SLOW, "it took longer than one poll")
        self.wait_state(job, "done")            # it saw order 7, else it were dead
        self.assertEqual([r[0] for r in self.fx()], [int(marker), int(job)])
        self.assertEqual(self.stop_worker(worker), 0)

    def test_wake_after_a_commit_of_ones_own_is_heard_at_once(self):
        self.linked()
        shop = Producer(self)
        took = []
        for order in range(1, 8):
            job = shop.ask("begin %d" % order)
            shop.ask("commit")
            began = uptime()
            shop.ask("wake")
            took.append(self.wait_attempts(job, 1)[0].at - began)
            self.wait_state(job, "done")
        self.assertLess(sorted(took)[len(took) // 2], 0.03 * SLOW, took)
        self.stop_all()


class Place(Linked):
    def next_after(self, task, *words):
        """Killed in the middle of a job of high priority: it is the next one to start."""
        self.bulk([{"task": task, "args": {}}] * 20)
        high = self.enqueue(task, '{"do":"1/wait:never ok"}', "--priority", "10")
        created = self.job(high)["created_at"]
        a = self.linked(*words)
        self.wait_attempts(high, 1)
        self.kill_all(a)
        before = len(self.attempts())
        self.bulk([{"task": task, "args": {}}] * 1000)
        b = self.linked(*words)
        self.wait_until(lambda: len(self.attempts()) > before + 3, 15, "some jobs have started")
        self.assertEqual(self.attempts()[before].job, high)
        self.wait_state(high, "done")
        page = self.job(high)
        self.assertEqual((page["created_at"], page["lost"], page["failures"]), (created, 1, 0))
        self.assertEqual(self.stop_worker(b), 0)

    def case_59_job_killed_in_prepare_is_next(self):
        self.next_after("act", "batch=1")

    def case_59_job_killed_in_apply_is_next(self):
        self.next_after("eact", "batch=1")

    def case_59_job_killed_in_a_batch_is_next(self):
        self.next_after("act")


class Crowd(Linked):
    def case_68_nobody_meets_a_lock_error(self):
        """16 programs enqueue and work, a handler reads for long before it writes, and somebody
        holds the write lock for 3 s."""
        seconds = 8
        reads = [self.enqueue("reads") for _ in range(2)]
        workers = [self.linked(*(["batch=1"] if i % 2 else [])) for i in range(7)]
        producers = [subprocess.Popen(
            [os.path.join(HELPERS, "helper_producer"), self.url, "flood", str(i), str(seconds)],
            cwd=self.dir, env=self.env(), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True) for i in range(1, 10)]
        said = [""] * len(producers)

        def listen(i):
            said[i] = producers[i].communicate()[0]

        def user():
            db = sqlite3.connect(self.db, timeout=30 * SLOW, isolation_level=None)
            db.execute("BEGIN IMMEDIATE")
            db.execute("INSERT INTO fx(key) VALUES ('user')")
            threading.Event().wait(3)           # the user thinks: that is the load
            db.execute("COMMIT")
            db.close()
        threads = [threading.Thread(target=listen, args=(i,)) for i in range(len(producers))]
        threads.append(threading.Thread(target=user))
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        self.assertEqual([p.returncode for p in producers], [0] * len(producers), said)
        lines = "".join(said).split("\n")
        self.assertEqual([s for s in lines if s and not s.isdigit()], [])
        accepted = [s for s in lines if s] + reads
        self.assertGreater(len(accepted), 40)   # else this run proved nothing
        self.assertTrue(all(s.count("\n") > 1 for s in said), "a producer starved: %s" % said)
        self.wait_until(lambda: self.count("done") == len(accepted), 40,
                        "all accepted jobs are done")
        self.stop_all()
        self.assertEqual(len(workers), 7)
        self.sql("DELETE FROM fx WHERE key = 'user'")
        self.assert_each_once(accepted)
        self.assertEqual(self.sql("SELECT count(*) FROM pawl_jobs"), [(len(accepted),)])
        self.assertEqual(self.sql("SELECT max(failures), max(lost) FROM pawl_jobs"), [(0, 0)])


class Killed(Linked):
    def test_programs_killed_at_random_lose_nothing_and_double_nothing(self):
        """Two kinds of handler, three programs, SIGKILL at any moment, for 20 s."""
        seed = random.randrange(1 << 30)
        rng = random.Random(seed)
        shapes = ([], ["batch=1"], ["batch=7"])
        alive = [self.linked(*shapes[i], ready=False) for i in range(3)]
        deadline, jobs, kills = time.monotonic() + 20, 0, 0
        while time.monotonic() < deadline:
            if self.count("ready") < 400:
                self.bulk({"task": ("effect", "prepared")[n % 2], "args": {},
                           "key": "k%d" % (jobs + n)} for n in range(600))
                jobs += 600
            time.sleep(rng.random() * 0.15)
            i = rng.randrange(3)
            self.kill_all(alive[i])
            kills += 1
            alive[i] = self.linked(*shapes[i], ready=False)
        print("seed %d: %d jobs, %d kills" % (seed, jobs, kills))
        self.kill_all(*alive)
        self.drain()
        self.assertGreater(jobs, 600, "seed %d" % seed)
        self.assertEqual(self.sql("SELECT state, count(*) FROM pawl_jobs GROUP BY state"),
                         [("done", jobs)], "seed %d" % seed)
        self.assert_each_once(range(1, jobs + 1))
        self.assertEqual(self.sql("SELECT max(failures) FROM pawl_jobs"), [(0,)])

    def endless(self, task, how):
        """A program that its handler ends is started again and again, until it ends by itself."""
        first = [self.enqueue(task) for _ in range(3)]
        poison = self.enqueue(task, '{"do":"%s"}' % how)
        rest = [self.enqueue(task) for _ in range(3)]
        ends = []
        for _ in range(20):
            done = self.helper("helper_linked", "empty")
            ends.append(done.returncode)
            if "\ndone=" in done.stdout:
                break
        else:
            self.fail("no end: %s" % ends)
        self.assertGreaterEqual(len(ends), 4, ends)     # three that were charged, and the last
        page = self.job(poison)
        self.assertEqual((page["state"], page["dead_class"], page["lost"]), ("dead", "poison", 3))
        self.assertEqual(len(self.attempts(poison)), page["runs"])
        ids = ", ".join(first + rest)
        self.assertEqual(self.sql("SELECT DISTINCT state, lost, failures FROM pawl_jobs"
                                  " WHERE id IN (%s)" % ids), [("done", 0, 0)])
        have = sorted(r[0] for r in self.fx())
        self.assertEqual(have, sorted(int(i) for i in first + rest))

    def test_handler_that_ends_the_program_in_apply_is_poison_at_the_cap(self):
        for how in ("segv", "kill", "exit"):
            with self.subTest(how=how):
                self.sql("DELETE FROM fx")
                self.endless("eact", how)

    def test_handler_that_ends_the_program_in_prepare_is_poison_at_the_cap(self):
        for how in ("segv", "kill", "exit"):
            with self.subTest(how=how):
                self.sql("DELETE FROM fx")
                self.endless("act", how)


class Threads(Linked):
    def test_threads_of_a_program_share_the_file_and_nothing_else(self):
        """Workers, producers and a reader in one process; the thread sanitizer looks on."""
        jobs = 60 if is_sanitized() else 400
        done = self.helper("helper_threads", 4, 3, jobs)
        self.assertEqual((done.returncode, done.stderr), (0, ""), done.stdout)
        self.assertEqual(done.stdout, "done=%d logged=1\n" % (3 * jobs))
        self.assert_each_once([r[0] for r in self.sql("SELECT id FROM pawl_jobs")])


if __name__ == "__main__":
    unittest.main()
