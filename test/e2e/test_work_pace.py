# SPDX-License-Identifier: Apache-2.0
"""test_work_pace.py - how soon an idle worker starts what is enqueued, and what idling costs."""
import os
import statistics
import time
import unittest

from pawltest import SLOW, PawlTest
from stores import each_store

SERIAL = True


def cpu_s(pid):
    """User and system time of a process, in seconds."""
    with open("/proc/%d/stat" % pid, "rb") as f:
        rest = f.read().rpartition(b")")[2].split()
    return (int(rest[11]) + int(rest[12])) / os.sysconf("SC_CLK_TCK")


@each_store
class PaceTest(PawlTest):
    def setUp(self):
        super().setUp()
        self.sql("CREATE TABLE fx(job INTEGER)")
        self.conf("[task e]\nexec = /bin/true\n[task s]\nsql = INSERT INTO fx VALUES (:job_id)\n")
        self.worker = self.start_worker()
        self.wait_until(lambda: "event=worker.ready" in self.log(self.worker), what="ready")

    def delays_ms(self, task, enqueue, n=31, between=lambda: None):
        for _ in range(n):
            between()
            before = self.sql("SELECT count(*) FROM pawl_jobs WHERE state = 'done'")[0][0]
            enqueue(task)
            self.wait_until(lambda: self.sql("SELECT count(*) FROM pawl_jobs WHERE state = 'done'")
                            [0][0] == before + 1, what="the job's end")
        return [us / 1000 for us, in self.sql(
            "SELECT started_at_us - created_at_us FROM pawl_jobs WHERE task = ?", (task,))]

    def by_sql(self, task):
        self.store.enqueue(self.db_of_mine, task)

    def yardstick_ms(self, page):
        """What this machine needs just now for four flushes of a growing file and two processes:
        about what lies between an enqueue and the start of a program, the commands not counted."""
        began = time.perf_counter()
        for _ in range(4):
            page.write(b"x" * 4096)
            os.fdatasync(page.fileno())
        for _ in range(2):
            os.waitpid(os.posix_spawn("/bin/true", ["true"], {}), 0)
        return (time.perf_counter() - began) * 1000

    def test_by_another_pawl_process_within_5_ms_at_the_median(self):
        for task in ("e", "s"):
            with self.subTest(task):
                yards = []
                with open(os.path.join(self.dir, "page"), "wb", buffering=0) as page:
                    delays = self.delays_ms(task, self.enqueue,
                                            between=lambda: yards.append(self.yardstick_ms(page)))
                # On a machine that is busy with other things, or whose disk is slow, the bar
                # follows the yardstick, taken in turns.
                # A program on PostgreSQL starts after 6 to 8 ms: 5 are not met there.
                bar = 5 if task == "s" or self.store.can("file") else 10
                limit = max(bar, 2 * statistics.median(yards))
                self.assertLess(statistics.median(delays), limit * SLOW, sorted(delays))

    def test_by_a_foreign_writer_within_the_poll(self):
        # SQLite's file tells that somebody committed; on a server it is looked for once a second.
        poll_ms = 250 if self.store.can("sees_commits") else 1100
        self.db_of_mine = self.connect()
        for task in ("e", "s"):
            with self.subTest(task):
                delays = self.delays_ms(task, self.by_sql, 15 if poll_ms < 1000 else 5)
                self.assertLess(statistics.median(delays), poll_ms * SLOW, sorted(delays))

    def test_idle_costs_nothing_to_speak_of(self):
        pids = [self.worker.pid] + [int(p) for p in os.listdir("/proc") if p.isdigit()
                                    and self.parent(p) == self.worker.pid]
        self.assertEqual(len(pids), 2)
        began, before = time.monotonic(), sum(cpu_s(p) for p in pids)
        end = began + 4
        while time.monotonic() < end:           # the time that passes is what is measured
            time.sleep(0.5)
        used = sum(cpu_s(p) for p in pids) - before
        self.assertLess(used / (time.monotonic() - began), 0.01)

    def parent(self, pid):
        try:
            with open("/proc/%s/stat" % pid, "rb") as f:
                return int(f.read().rpartition(b")")[2].split()[1])
        except OSError:
            return 0


if __name__ == "__main__":
    unittest.main()
