#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""test_case_linked.py - field cases through libpawl: 29 and 59, and what SIGKILL at any moment and
handlers that end their program leave behind. The programs are test/e2e/helper_*.c.
"""
import os
import random
import time
import unittest

from fieldkit import is_sanitized
from linkkit import Linked
from stores import each_store

TIMEOUT = 150
BOTH_LINKS = True


@each_store
class Fork(Linked):
    def case_29_children_of_a_program_with_open_handles_carry_nothing_of_ours(self):
        """8 handlers write in threads while children start: by exec, and by fork alone."""
        children = 200 if is_sanitized() else 2000
        # A child leaves its parent's connections alone: memory that it cannot give back.
        done = self.helper("helper_fork", 8, children,
                           ASAN_OPTIONS="abort_on_error=1:detect_leaks=0")
        self.assertEqual((done.returncode, done.stderr), (0, ""), done.stdout)
        self.assertEqual(done.stdout, "children=%d done=%d\n" % (children, children + 4))
        if self.store.can("file"):
            self.assertEqual(self.sql("PRAGMA integrity_check"), [("ok",)])
        self.assert_each_once([r[0] for r in self.sql("SELECT id FROM pawl_jobs")])
        self.assertEqual(self.count("done"), children + 4)


@each_store
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


@each_store
class Slow(Linked):
    def test_prepare_without_a_beat_is_taken_over_and_the_reason_says_so(self):
        job = self.enqueue("act", '{"do":"1/wait:go"}')
        a = self.linked("lease_ms=1000")
        self.wait_attempts(job, 1)
        b = self.linked("lease_ms=1000", "log")
        self.wait_state(job, "done")
        page = self.job(job)
        self.assertEqual((page["lost"], page["releases"], page["failures"]), (0, 1, 0))
        self.wait_log(b, "event=job.released")
        self.assertRegex(self.log(b), r"event=job.released .*reason=\"taken over: worker \w+ .*"
                         r"is frozen \(no beat within its lease\)\"")
        open(os.path.join(self.dir, "go"), "w", encoding="ascii").close()
        for worker in (a, b):
            self.assertEqual(self.stop_worker(worker), 0, self.log(worker))


@each_store
class Told(Linked):
    def test_what_a_start_recovers_is_told_before_the_first_handler_runs(self):
        for task in ("eact", "act"):
            with self.subTest(task):
                job = self.enqueue(task, '{"do":"kill"}')
                first = self.helper("helper_linked", "log", "empty")
                self.assertNotIn("event=job.lost", first.stderr)
                second = self.helper("helper_linked", "log", "empty")
                self.assertEqual(second.returncode, -9, second)
                self.assertRegex(second.stderr, r"(?m)^1 event=job.lost job=%s task=%s " % (job,
                                                                                          task))
                self.assertEqual(second.stderr.count("event=job.lost"), 1, second.stderr)
                self.helper("helper_linked", "log", "empty")
                self.wait_state_dead(job)

    def wait_state_dead(self, job):
        self.drain()
        self.assertEqual(self.job(job)["state"], "dead")


@each_store
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


@each_store
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
