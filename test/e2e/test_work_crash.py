# SPDX-License-Identifier: Apache-2.0
"""test_work_crash.py - what a worker's death leads to: suspects alone, no orphan, process 1."""
import os
import signal
import subprocess
import unittest

from pawltest import PAWL, SLOW, PawlTest
from stores import each_store

BOTH_LINKS = True

# Says when it starts and ends (CLOCK_BOOTTIME), holds on while the file `hold` is there.
SPAN = """#!/bin/sh
read -r up rest < /proc/uptime
echo "start $PAWL_JOB_ID $up" >> span.log
i=0; while [ -e hold ] && [ $i -lt 1500 ]; do sleep 0.02; i=$((i + 1)); done
i=0; while [ $i -lt 5 ]; do sleep 0.02; i=$((i + 1)); done
read -r up rest < /proc/uptime
echo "end $PAWL_JOB_ID $up" >> span.log
"""


@each_store
class CrashTest(PawlTest):
    def spans(self):
        try:
            with open(os.path.join(self.dir, "span.log"), encoding="utf-8") as f:
                return [(w, j, float(t)) for w, j, t in (line.split() for line in f)]
        except FileNotFoundError:
            return []

    def hold(self, on):
        path = os.path.join(self.dir, "hold")
        if on:
            open(path, "w", encoding="utf-8").close()
        else:
            os.unlink(path)

    def children(self, pid):
        out = subprocess.run(["ps", "-o", "pid=", "--ppid", str(pid)], stdout=subprocess.PIPE,
                             check=False)
        return [int(p) for p in out.stdout.split()]

    def test_shared_death_makes_suspects_that_run_one_by_one(self):
        self.conf("[pawl]\nconcurrency = 4\n[task span]\nexec = ./span.sh\n")
        self.script("span.sh", SPAN)
        self.hold(True)
        ids = [self.enqueue("span") for _ in range(3)]
        worker = self.start_worker()
        self.wait_until(lambda: len(self.spans()) == 3, what="three starts")
        kids = self.children(worker.pid)
        self.assertEqual(len(kids), 3)
        worker.kill()
        worker.wait()
        for kid in kids:
            self.wait_until(lambda: not os.path.exists("/proc/%d/fd/0" % kid), 5, "a child's end")
        os.unlink(os.path.join(self.dir, "span.log"))
        self.hold(False)
        done = self.pawl("work", "--until-empty", "--log-level", "debug", "-q", "default,mail")
        self.assertEqual(done.code, 0, done)
        self.assertEqual(done.err.count("warn event=job.suspect"), 3, done)
        self.assertRegex(done.err, r"warn event=worker.gone .*workers=1 jobs=3")
        self.assertRegex(done.err, r"event=worker.start .*queues=default,mail")
        running = 0
        for word, _, _ in sorted(self.spans(), key=lambda s: s[2]):
            running += 1 if word == "start" else -1
            self.assertLessEqual(running, 1, self.spans())
        for job in ids:
            shown = self.job(job)
            self.assertEqual((shown["state"], shown["lost"], shown["failures"]), ("done", 0, 0))

    def test_a_suspect_runs_while_the_runner_holds_still(self):
        self.sql("CREATE TABLE fx(at TEXT)")
        self.conf("[pawl]\nconcurrency = 4\n[task span]\nexec = ./span.sh\n"
                  "[task s]\nsql = INSERT INTO fx VALUES (:job_id)\n")
        self.script("span.sh", SPAN)
        self.hold(True)
        for _ in range(2):
            self.enqueue("span")
        worker = self.start_worker()
        self.wait_until(lambda: len(self.spans()) == 2, what="two starts")
        worker.kill()
        worker.wait()
        os.unlink(os.path.join(self.dir, "span.log"))
        second = self.start_worker()
        self.wait_until(lambda: len(self.spans()) == 1, what="the start of a suspect")
        job = self.enqueue("s")
        later = self.enqueue("span")
        self.wait_until(lambda: "event=worker.ready" in self.log(second), what="ready")
        self.assertEqual(self.job(job)["state"], "ready")
        self.hold(False)
        self.wait_state(job, "done")
        self.wait_state(later, "done")

    def test_death_at_each_point_of_an_exec_job_loses_nothing(self):
        self.conf("[task t]\nexec = ./t.sh\n")
        self.script("t.sh", "#!/bin/sh\necho $PAWL_JOB_ID >> runs.log\n")
        for point, lost in (("turn.before", 0), ("turn.commit.before", 0), ("turn.commit.after", 1),
                            ("exec.spawned", 1), ("exec.exited", 1), ("turn.before:1", 1),
                            ("turn.commit.before:1", 1), ("turn.commit.after:1", 0)):
            with self.subTest(point):
                name, _, skip = point.partition(":")
                job = self.enqueue("t")
                env = self.env(PAWL_FAILPOINT="%s=kill%s" % (name, skip and ":" + skip))
                self.assertEqual(self.pawl("work", "--until-empty", env=env).code, -9)
                self.work()
                shown = self.job(job)
                self.assertEqual((shown["state"], shown["lost"], shown["failures"]),
                                 ("done", lost, 0), shown)
                self.check()

    def test_failed_steps_are_tried_again(self):
        self.conf("[task t]\nexec = /bin/true\n")
        for point in ("turn.before=error:1:2", "turn.commit.after=error:1:1",
                      "turn.commit.before=error:0:2", "exec.spawned=error:0:2",
                      "exec.exited=error:0:3"):
            with self.subTest(point):
                job = self.enqueue("t")
                done = self.pawl("work", "--until-empty", env=self.env(PAWL_FAILPOINT=point))
                self.assertEqual(done.code, 0, done)
                shown = self.job(job)
                self.assertEqual((shown["state"], shown["lost"], shown["failures"]), ("done", 0, 0))

    def test_a_hand_back_that_fails_is_tried_until_it_is_given_up(self):
        self.conf("[pawl]\ngrace = 200ms\n[task span]\nexec = ./span.sh\n")
        self.script("span.sh", SPAN)
        self.hold(True)
        job = self.enqueue("span")
        for times, code, releases in (("2", 0, 1), ("", 75, 1)):
            n = len(self.spans()) + 1
            env = self.env(PAWL_FAILPOINT="release.before=error:0" + (times and ":" + times))
            worker = self.start_worker(env=env)
            self.wait_until(lambda: len(self.spans()) == n, what="a start")
            self.assertEqual(self.stop_worker(worker), code, self.log(worker))
            self.assertEqual(self.job(job)["releases"], releases)
        self.hold(False)
        self.work()
        shown = self.job(job)
        # It stopped in good order: what it could not hand back is taken back, at no charge.
        self.assertEqual((shown["state"], shown["lost"], shown["releases"]), ("done", 0, 2), shown)

    def test_a_lone_death_is_charged_to_the_job(self):
        self.conf("[pawl]\nconcurrency = 4\n[task span]\nexec = ./span.sh\n")
        self.script("span.sh", SPAN)
        self.hold(True)
        job = self.enqueue("span")
        for lost in (1, 2, 3):
            worker = self.start_worker()
            self.wait_until(lambda: len(self.spans()) == lost, what="a start")
            worker.kill()
            worker.wait()
        self.work()
        shown = self.job(job)
        self.assertEqual((shown["state"], shown["dead_class"], shown["lost"], shown["runs"]),
                         ("dead", "poison", 3, 3), shown)

    def test_case_23_process_1_reaps_orphans_and_drains(self):
        probe = subprocess.run(["unshare", "-pf", "--mount-proc", "true"], check=False,
                               stderr=subprocess.DEVNULL)
        if probe.returncode != 0:
            self.skipTest("no PID namespaces here")
        self.conf("[pawl]\nconcurrency = 2\n[task o]\nexec = ./o.sh\n"
                  "[task z]\nexec = sh -c 'ps -eo stat= > ps.log'\n")
        # Orphans in sessions of their own: out of the group, they outlive their job.
        self.script("o.sh", "#!/bin/sh\nfor i in 1 2 3 4 5 6 7 8 9 10; do\n"
                    "  setsid sh -c 'exec >&- 2>&- 3>&-; sleep 0.3' & done\n"
                    "sleep 0.1\n")
        for _ in range(10):
            self.enqueue("o")
        path = os.path.join(self.dir, "pid1.log")
        with open(path, "wb") as log:
            worker = subprocess.Popen(
                ["unshare", "-pf", "--mount-proc", "--kill-child", PAWL, "work"], cwd=self.dir,
                env=self.env(), stdin=subprocess.DEVNULL, stderr=log)
        worker.log = path
        self.workers.append(worker)
        self.wait_until(lambda: self.sql("SELECT count(*) FROM pawl_jobs WHERE state = 'done'")
                        == [(10,)], what="ten are done")

        def zombies():
            job = self.enqueue("z")
            self.wait_state(job, "done")
            with open(os.path.join(self.dir, "ps.log"), encoding="utf-8") as f:
                return f.read().split()
        self.wait_until(lambda: len(zombies()) <= 4, what="few processes")
        self.assertEqual([s for s in zombies() if s.startswith("Z")], [])
        inner = self.children(worker.pid)[0]
        os.kill(inner, signal.SIGTERM)
        self.assertEqual(worker.wait(10 * SLOW), 0)


if __name__ == "__main__":
    unittest.main()
