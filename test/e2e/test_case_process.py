#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""test_case_process.py - field cases about handler processes: poison, slots, pipes.
7 8 25 27 28."""
import os
import re
import signal
import unittest

from fieldkit import FieldTest, is_alive, is_sanitized, memory_kib, send, uptime
from pawltest import SLOW
from stores import each_store

TIMEOUT = 90


@each_store
class Poison(FieldTest):
    act_policy = "lost_cap = 3"

    def case_07_job_that_dies_every_time_is_buried_and_the_rest_goes_on(self):
        poison = self.act("kill9:self")
        self.bulk({"task": "act", "args": "ok"} for _ in range(50))
        self.work("-n", "1")
        page = self.job(poison)
        self.assertEqual((page["state"], page["dead_class"], page["runs"]), ("dead", "poison", 3))
        self.assertEqual(len(self.attempts(poison)), 3)
        self.assertEqual([(x["outcome"], x["signal"]) for x in page["attempts"]], [("lost", 9)] * 3)
        self.assertIn("signal 9", page["error"])
        self.assertEqual((page["lost"], page["failures"]), (3, 0))
        self.assertEqual(self.count("done"), 50)

    def case_08_job_that_kills_its_worker_is_buried_although_every_process_died(self):
        """A loop starts the supervisor again and again; the count must survive all of them."""
        poison = self.act("kill9:parent")
        others = [self.act("ok") for _ in range(12)]
        deaths = 0
        for _ in range(20):
            worker = self.start_worker("-n", "2", "--until-empty")
            worker.wait(30 * SLOW)
            if worker.returncode == 0:
                break
            self.assertEqual(worker.returncode, -signal.SIGKILL, self.log(worker))
            deaths += 1
        self.assertEqual(worker.returncode, 0)
        page = self.job(poison)
        self.assertEqual((page["state"], page["dead_class"], page["lost"]), ("dead", "poison", 3))
        # At most one death was shared with an innocent job (nobody is charged), then three alone.
        self.assertEqual(len(self.attempts(poison)), deaths)
        self.assertEqual(page["runs"], deaths)
        self.assertIn(deaths, (3, 4))
        for job in others:
            self.assertEqual(self.job(job)["state"], "done")
            self.assertEqual(self.job(job)["lost"], 0)


# Seconds of work inside one statement.
HOG = """
[task hog]
sql = INSERT INTO fx(job_id) %s
lost_cap = 3
"""


@each_store
class SqlPoison(FieldTest):
    """Nothing of a killed sql job is in the store: only what was noted beside it can blame it."""

    def setUp(self):
        super().setUp()
        self.write_conf(HOG % self.store.forever)
        self.killed = set()                     # who served runners that are dead now
        self.poison = self.enqueue("hog")
        self.others = [self.enqueue("effect") for _ in range(20)]

    def wait_in_hand(self, worker):
        """The runner has opened a batch whose first job never ends by itself. Returns its pid."""
        self.wait_log(worker, "event=runner.ready")
        # The server needs a second to see that the one before was killed.
        new = self.wait_until(lambda: set(self.store.busy()) - self.killed, 15,
                              "the runner is in a batch")
        if not self.store.can("one_writer"):
            self.killed |= new
        return int(re.findall(r"event=runner.ready .*pid=(\d+)", self.log(worker))[-1])

    def judge(self):
        self.work()
        page = self.job(self.poison)
        self.assertEqual((page["state"], page["dead_class"], page["lost"]), ("dead", "poison", 3))
        self.assertEqual([x["outcome"] for x in page["attempts"]], ["lost"] * 3)
        self.assert_each_once(self.others)
        self.assertEqual(self.sql("SELECT sum(lost + failures) FROM pawl_jobs"
                                  " WHERE task = 'effect'"), [(0,)])

    def case_07_sql_job_whose_runner_dies_every_time_is_buried(self):
        worker = self.worker(ready=False)
        for i in range(3):
            runner = self.wait_in_hand(worker)
            send([runner], signal.SIGKILL)
            self.wait_until(lambda n=i: self.log(worker).count("event=runner.died") > n, 15,
                            "its death is seen")
        self.wait_until(lambda: self.count("done") == 20, 20, "the others are done")
        self.assertEqual(self.stop_worker(worker), 0)
        self.judge()

    def case_08_sql_job_is_buried_although_every_process_died(self):
        for _ in range(3):
            worker = self.worker(ready=False)
            self.wait_in_hand(worker)
            self.kill_all(worker)
        self.judge()


@each_store
class Slots(FieldTest):
    def case_25_short_jobs_do_not_wait_behind_a_long_one_of_another_worker(self):
        long_one = self.act("wait:go")
        workers = [self.worker("-n", "1"), self.worker("-n", "1")]
        self.wait_attempts(long_one, 1)
        most = []

        def all_done():
            most.append(self.count("running"))
            return self.count("done") == 20
        began = uptime()
        self.bulk({"task": "act", "args": "ok"} for _ in range(20))
        self.wait_until(all_done, 15, "the short jobs are done")
        self.assertLess(uptime() - began, 3 * SLOW)
        self.assertEqual(self.job(long_one)["state"], "running")
        self.assertLessEqual(max(most), 2)              # no more leased than can run now
        self.touch("go")
        self.wait_state(long_one, "done")
        for worker in workers:
            self.assertEqual(self.stop_worker(worker), 0)


LEAVE = r"""#!/bin/sh
# Leave a process behind that keeps our stdout, stderr and reply descriptor open; then succeed.
export BORN="born.$PAWL_JOB_ID"
case $1 in
setsid) setsid ./daemon.sh & ;;
double) sh -c 'setsid ./daemon.sh &' ;;
esac
while [ ! -e "$BORN" ]; do sleep 0.01; done     # it has left our group
echo '{"done":{"result":"fine"}}' >&3
exit 0
"""

DAEMON = r"""#!/bin/sh
echo $$ >> left.log
: > "$BORN"
exec sleep 600
"""

GROUP = r"""#!/bin/sh
sleep 600 & echo $! >> left.log
sleep 601 & echo $! >> left.log
wait
"""


@each_store
class Grandchildren(FieldTest):
    concurrency = 1
    more = """
[task group]
exec = ./group.sh
hard_limit = 1s
max_retries = 0

[task setsid]
exec = ./leave.sh setsid

[task double]
exec = ./leave.sh double
"""

    def setUp(self):
        super().setUp()
        self.script("leave.sh", LEAVE)
        self.script("daemon.sh", DAEMON)
        self.script("group.sh", GROUP)
        self.addCleanup(lambda: send(self.left(), signal.SIGKILL))

    def left(self):
        try:
            with open(os.path.join(self.dir, "left.log"), encoding="ascii") as f:
                return [int(pid) for pid in f.read().split()]
        except FileNotFoundError:
            return []

    def case_27_timeout_ends_the_whole_group_and_frees_the_slot(self):
        worker = self.worker()
        began = uptime()
        job, behind = self.enqueue("group"), self.act("ok")
        self.wait_state(behind, "done")
        self.assertLess(self.attempts(behind)[0].at - began, 2.5 * SLOW)
        page = self.job(job)
        self.assertEqual((page["state"], page["failures"], page["lost"]), ("dead", 1, 0))
        self.assertEqual(page["attempts"][0]["outcome"], "timeout")
        self.assertEqual(len(self.left()), 2)
        self.wait_until(lambda: not any(is_alive(p) for p in self.left()), 5, "the group is gone")
        self.assertEqual(self.stop_worker(worker), 0)

    def leaves(self, task):
        worker = self.worker("-n", "8")
        first = self.enqueue(task)
        self.wait_state(first, "done")
        fds = "/proc/%d/fd" % worker.pid
        before = len(os.listdir(fds))
        jobs = [self.enqueue(task) for _ in range(39)]
        self.wait_until(lambda: self.count("done", task) == 40, 30, "all are done")
        pages = [self.job(j) for j in [first] + jobs]
        self.assertEqual({(p["result"], p["runs"], p["attempts_n"]) for p in pages},
                         {("fine", 1, 0)})
        self.assertEqual(len(self.left()), 40)
        self.assertTrue(all(is_alive(p) for p in self.left()), "nothing was left behind: no test")
        self.wait_until(lambda: len(os.listdir(fds)) <= before, 10, "the descriptors are closed")
        behind, at = self.act("ok"), uptime()
        self.wait_state(behind, "done")
        self.assertLess(self.attempts(behind)[0].at - at, 1.5 * SLOW)
        self.assertEqual(self.stop_worker(worker), 0)

    def case_27_daemon_that_holds_stdout_does_not_hold_the_slot(self):
        self.leaves("setsid")

    def case_27_double_fork_does_not_hold_the_slot(self):
        self.leaves("double")


FLOOD = r"""#!/bin/sh
# 10 MiB of junk on stderr, the same on stdout, and what is asked for in the end. stdin is not read.
echo first-of-stderr >&2
head -c 10485760 /dev/zero | tr '\0' 'e' >&2
head -c 10485760 /dev/zero | tr '\0' 'j'
echo; echo last-of-stdout
echo >&2; echo last-of-stderr >&2
if [ "$1" = die ]; then exit 65; fi
echo '{"done":{"result":{"rows":7}}}' >&3
"""


@each_store
class Flood(FieldTest):
    concurrency = 2
    more = """
[task flood]
exec = ./flood.sh

[task flood-die]
exec = ./flood.sh die
"""

    def setUp(self):
        super().setUp()
        self.script("flood.sh", FLOOD)

    def case_28_flood_on_stderr_and_stdout_neither_blocks_nor_grows(self):
        worker = self.worker()
        self.wait_state(self.act("ok"), "done")
        before = memory_kib(worker.pid, "VmRSS")
        good, bad = self.enqueue("flood"), self.enqueue("flood-die")
        self.wait_state(good, "done", 30)
        self.wait_state(bad, "dead", 30)
        if not is_sanitized():
            self.assertLess(memory_kib(worker.pid, "VmHWM") - before, 2048)
        self.assertEqual(self.job(good)["result"], {"rows": 7})
        attempt = self.job(bad)["attempts"][0]
        self.assertEqual((attempt["exit_code"], attempt["outcome"]), (65, "permanent"))
        self.assertTrue(attempt["stderr_tail"].startswith("first-of-stderr"),
                        attempt["stderr_tail"][:40])
        self.assertTrue(attempt["stderr_tail"].rstrip().endswith("last-of-stderr"))
        self.assertTrue(attempt["stdout_tail"].rstrip().endswith("last-of-stdout"))
        for tail in (attempt["stdout_tail"], attempt["stderr_tail"]):
            self.assertLess(len(tail), 10 * 1024)
            self.assertRegex(tail, re.compile(r"\b10[0-9]{6}\b.*bytes|truncated|left out|cut",
                                              re.S))
        self.assertIn("last-of-stderr", attempt["error"])

    def case_28_args_that_nobody_reads_do_not_block(self):
        args = '"%s"' % ("x" * (1024 * 1024 - 2))           # the limit; a pipe holds 64 KiB
        job = self.json("enqueue", "flood", "-", stdin=args)[0]["id"]
        self.work(timeout=60)
        page = self.job(job)
        self.assertEqual((page["state"], page["result"]), ("done", {"rows": 7}))


if __name__ == "__main__":
    unittest.main()
