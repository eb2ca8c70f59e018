#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""test_case_library.py - field cases through libpawl that measure waits, or need the machine alone:
39 and 68. Programs that link it (test/e2e/helper_*.c) enqueue and work.
"""
import os
import subprocess
import threading
import unittest

from fieldkit import uptime
from linkkit import HELPERS, Linked
from pawltest import SLOW
from stores import each_store

TIMEOUT = 150
SERIAL = True
BOTH_LINKS = True


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


@each_store
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
        poll = 0.1 if self.store.can("sees_commits") else 1
        self.assertLess(start - began, poll + 0.4 * SLOW, "it took longer than one poll")
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


@each_store
class Crowd(Linked):
    def case_68_nobody_meets_a_lock_error(self):
        """16 programs enqueue and work, a handler reads for long before it writes, and somebody
        holds the write lock for 3 s."""
        seconds = 8
        workers = [self.linked(*(["batch=1"] if i % 2 else [])) for i in range(7)]
        reads = [self.enqueue("reads") for _ in range(2)]
        producers = [subprocess.Popen(
            [os.path.join(HELPERS, "helper_producer"), self.url, "flood", str(i), str(seconds)],
            cwd=self.dir, env=self.env(), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True) for i in range(1, 10)]
        said = [""] * len(producers)

        def listen(i):
            said[i] = producers[i].communicate()[0]

        def user():
            db = self.store.connect(30)
            self.store.keep_out(db)
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


if __name__ == "__main__":
    unittest.main()
