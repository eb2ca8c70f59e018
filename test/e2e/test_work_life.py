# SPDX-License-Identifier: Apache-2.0
"""test_work_life.py - a worker's life: policies, until-empty, drain, release, cancel, runner."""
import os
import re
import signal
import subprocess
import time
import unittest

from pawltest import PAWL, ROOT, SLOW, PawlTest
from stores import each_store, no_store

# Waits for a file named like its args, at most 30 s; says on start.log that it started.
HOLD = """#!/bin/sh
%s
echo "$PAWL_JOB_ID $$" >> start.log
i=0; until [ -e "go-$PAWL_JOB_ID" ] || [ $i -gt 1500 ]; do sleep 0.02; i=$((i + 1)); done
"""


class WorkTest(PawlTest):
    def hold(self, more="", trap="", top=""):
        self.conf("[pawl]\nconcurrency = 4\ngrace = 10s\n%s\n[task hold]\nexec = ./hold.sh\n"
                  "backoff = 20ms..40ms\n%s\n" % (top, more))
        self.script("hold.sh", HOLD % trap)

    def started(self):
        """{job id: pid of its latest run}"""
        try:
            with open(os.path.join(self.dir, "start.log"), encoding="utf-8") as f:
                return {line.split()[0]: int(line.split()[1]) for line in f if line.endswith("\n")}
        except FileNotFoundError:
            return {}

    def wait_started(self, n=1):
        return self.wait_until(lambda: len(self.started()) >= n and self.started(), what="a start")

    def go(self, job):
        open(os.path.join(self.dir, "go-" + job), "w", encoding="utf-8").close()

    def wait_log(self, worker, text):
        return self.wait_until(lambda: text in self.log(worker), what="log line '%s'" % text)


@each_store
class DrainTest(WorkTest):
    def test_drain_lets_running_jobs_finish_and_claims_no_more(self):
        self.hold()
        ids = [self.enqueue("hold") for _ in range(3)]
        worker = self.start_worker("--concurrency", "2")
        self.wait_started(2)
        worker.send_signal(signal.SIGTERM)
        self.wait_log(worker, "event=worker.drain")
        for job in ids:
            self.go(job)
        self.assertEqual(worker.wait(20 * SLOW), 0)
        self.assertEqual([self.job(i)["state"] for i in ids], ["done", "done", "ready"])
        third = self.job(ids[2])
        self.assertEqual((third["runs"], third["releases"]), (0, 0), third)

    def test_case_22_signal_to_the_whole_group_kills_no_job(self):
        self.hold()
        ids = [self.enqueue("hold") for _ in range(4)]
        worker = subprocess.Popen([PAWL, "work"], cwd=self.dir, env=self.env(),
                                  start_new_session=True, stdin=subprocess.DEVNULL,
                                  stderr=subprocess.PIPE)
        worker.log = os.devnull
        self.workers.append(worker)
        self.wait_started(4)
        os.killpg(worker.pid, signal.SIGTERM)
        for job in ids:
            self.go(job)
        _, err = worker.communicate(timeout=20 * SLOW)
        self.assertEqual(worker.returncode, 0, err)
        self.assertEqual({self.job(i)["state"] for i in ids}, {"done"})

    def test_when_the_grace_ends_jobs_are_handed_back_at_no_cost(self):
        self.hold()
        job = self.enqueue("hold")
        worker = self.start_worker("--grace", "1s")
        pid = self.wait_started()[job]
        began = time.monotonic()
        self.assertEqual(self.stop_worker(worker), 0)
        self.assertLess(time.monotonic() - began, 4 * SLOW)
        shown = self.job(job)
        self.assertEqual((shown["state"], shown["releases"], shown["failures"], shown["lost"]),
                         ("ready", 1, 0, 0), shown)
        self.assertEqual(shown["attempts"][0]["outcome"], "released")
        self.assertFalse(os.path.exists("/proc/%d" % pid))

    def test_a_job_that_ends_well_on_term_is_done(self):
        self.hold(trap="trap 'exit 0' TERM")
        job = self.enqueue("hold")
        worker = self.start_worker("--grace", "1s")
        self.wait_started()
        self.assertEqual(self.stop_worker(worker), 0)
        self.assertEqual(self.job(job)["state"], "done")

    def test_a_second_signal_hands_back_at_once(self):
        for second in (signal.SIGTERM, signal.SIGINT, signal.SIGQUIT):
            with self.subTest(second):
                self.hold(trap="trap '' TERM")
                job = self.enqueue("hold")
                worker = self.start_worker("--grace", "30s")
                self.wait_until(lambda: job in self.started())
                worker.send_signal(signal.SIGTERM)
                self.wait_log(worker, "event=worker.drain")
                began = time.monotonic()
                self.assertEqual(self.stop_worker(worker, second), 0)
                self.assertLess(time.monotonic() - began, 5 * SLOW)
                shown = self.job(job)
                self.assertEqual((shown["state"], shown["releases"], shown["lost"]),
                                 ("ready", 1, 0), shown)
                self.ok("cancel", job)

    def test_hangup_is_ignored_with_a_word(self):
        self.hold()
        worker = self.start_worker()
        self.wait_log(worker, "event=worker.ready")
        worker.send_signal(signal.SIGHUP)
        self.wait_log(worker, "event=worker.signal")
        self.assertIsNone(worker.poll())

    def test_nothing_of_a_worker_is_left_beside_the_store(self):
        self.hold()
        worker = self.start_worker()
        self.wait_log(worker, "event=worker.ready")
        self.assertTrue([f for f in os.listdir(self.store.side()) if f.startswith("w-")])
        self.assertEqual(self.stop_worker(worker), 0)
        self.assertEqual([f for f in os.listdir(self.store.side()) if f.startswith("w-")], [])


@each_store
class PolicyTest(WorkTest):
    def test_policy_that_differs_stops_with_the_difference(self):
        self.conf("[task t]\nexec = /bin/true\nmax_retries = 3\n")
        self.work()
        self.conf("[task t]\nexec = /bin/true\nmax_retries = 4\nhard_limit = 5m\n")
        done = self.pawl("work", "--until-empty")
        self.assertEqual(done.code, 78, done)
        for line in ("task t:", "  stored: max_retries = 3", "  config: max_retries = 4"):
            self.assertIn(line, done.err.splitlines())
        self.assertIn("--apply", done.err.splitlines()[-1])
        self.assertIn("event=task.applied", self.work("--apply").err)
        self.work()

    def test_apply_stores_and_says_what_changed(self):
        self.conf("[task t]\nexec = /bin/true\nmax_retries = 3\n[task u]\nexec = /bin/true\n")
        self.assertEqual(self.ok("apply"), "task t: policy stored\ntask u: policy stored\n")
        self.conf("[task t]\nexec = /bin/true\nmax_retries = 4\n[task u]\nexec = /bin/true\n")
        lines = self.json("apply")
        self.assertEqual([(o["task"], o["changed"]) for o in lines], [("t", True), ("u", False)])
        self.assertEqual(lines[0]["change"], "max_retries = 3 (given: 4)\n")
        self.work()

    def test_the_stored_policy_rules(self):
        self.conf("[task t]\nexec = sh -c 'exit 1'\nmax_retries = 1\nbackoff = 10ms..20ms\n")
        self.ok("apply")
        job = self.enqueue("t")
        self.work()
        self.assertEqual(self.job(job)["runs"], 2)

    def test_statement_that_does_not_fit_the_database_stops_the_start(self):
        self.conf("[task t]\nsql = INSERT INTO nowhere VALUES (:a)\n")
        self.fails(78, "work", says="pawl.conf:2: task t, statement 1: .*nowhere")

    def test_check_reads_without_a_store(self):
        self.conf("[task t]\nexec = /bin/true\n[task s]\nsql = SELECT :a\n")
        self.store.remove()
        out = self.json("conf", "check")
        self.assertEqual([(o["task"], o["handler"]) for o in out], [("t", "exec"), ("s", "sql")])
        self.conf("[task t]\nexcec = /bin/true\n")
        self.fails(78, "conf", "check", says="pawl.conf:2: .*excec.*exec")


@each_store
class EmptyTest(WorkTest):
    def test_until_empty_leaves_what_is_not_due_and_counts_it(self):
        self.conf("[task t]\nexec = /bin/true\n")
        later = self.enqueue("t", "{}", "--in", "1h")
        now = self.enqueue("t")
        done = self.work()
        self.assertIn("event=worker.empty", done.err)
        self.assertIn("later=1", done.err)
        self.assertEqual([self.job(later)["state"], self.job(now)["state"]], ["ready", "done"])

    def test_until_empty_waits_for_retries(self):
        self.conf("[task t]\nexec = ./t.sh\nbackoff = 300ms..400ms\n")
        self.script("t.sh", "#!/bin/sh\n[ $PAWL_ATTEMPT = 2 ]\n")
        job = self.enqueue("t")
        self.work()
        shown = self.job(job)
        self.assertEqual((shown["state"], shown["failures"], shown["runs"]), ("done", 1, 2), shown)

    def test_until_empty_waits_for_what_another_worker_runs(self):
        self.hold()
        job = self.enqueue("hold")
        first = self.start_worker("--accept-wal-risk")  # two workers, maybe on the system's SQLite
        self.wait_started()
        second = self.start_worker("--until-empty", "--accept-wal-risk")
        self.wait_log(second, "event=worker.ready")
        self.go(job)
        self.assertEqual(second.wait(20 * SLOW), 0)
        self.assertEqual(self.job(job)["state"], "done")
        self.assertEqual(self.stop_worker(first), 0)

    def test_tasks_and_queues_of_others_wait_untouched(self):
        self.conf("[task t]\nexec = /bin/true\n")
        alien = self.enqueue("alien")
        other = self.enqueue("t", "{}", "--queue", "b")
        mine = self.enqueue("t", "{}", "--queue", "a")
        self.work("--queue", "a,c")
        self.assertEqual([self.job(j)["state"] for j in (alien, other, mine)],
                         ["ready", "ready", "done"])
        self.assertEqual(self.job(alien)["runs"], 0)

    def test_paused_queue_is_left_and_counted(self):
        self.conf("[task t]\nexec = /bin/true\n")
        job = self.enqueue("t")
        self.ok("pause", "default")
        self.assertIn("paused=1", self.work().err)
        self.ok("resume", "default")
        self.work()
        self.assertEqual(self.job(job)["state"], "done")


@each_store
class SaidOnceTest(WorkTest):
    def test_cause_of_a_retry_is_logged_once(self):
        self.conf("[task t]\nexec = sh -c 'echo partner is down >&2; exit 75'\n"
                  "max_retries = 1\nbackoff = 10ms..20ms\n")
        self.enqueue("t")
        for line in self.work().err.splitlines():
            self.assertLessEqual(line.count("partner is down"), 1, line)


@each_store
class CancelTest(WorkTest):
    def test_cancel_ends_the_running_group_soon(self):
        self.hold(trap="trap '' TERM")
        job = self.enqueue("hold")
        self.start_worker()
        pid = self.wait_started()[job]
        self.ok("cancel", job)
        self.wait_until(lambda: not os.path.exists("/proc/%d" % pid), 5, "the end of the child")
        shown = self.job(job)
        self.assertEqual(shown["state"], "cancelled")
        nxt = self.enqueue("hold")
        self.go(nxt)
        self.wait_state(nxt, "done")


@each_store
class RunnerTest(WorkTest):
    SQL = "[pawl]\nconcurrency = 2\n%s\n[task s]\nsql = INSERT INTO fx(job) VALUES (:job_id)\n%s\n"

    def setUp(self):
        super().setUp()
        self.sql("CREATE TABLE fx(job INTEGER)")

    def forever(self):
        return "INSERT INTO fx %s\n" % self.store.forever

    def runner_of(self, worker):
        def find():
            for entry in os.listdir("/proc"):
                try:
                    with open("/proc/%s/stat" % entry, "rb") as f:
                        if int(f.read().rpartition(b")")[2].split()[1]) == worker.pid:
                            return int(entry)
                except (OSError, ValueError):
                    continue
            return 0
        return self.wait_until(find, what="the runner")

    def test_dead_runner_is_replaced_and_nothing_is_lost(self):
        self.conf(self.SQL % ("", ""))
        worker = self.start_worker()
        for _ in range(3):
            self.wait_log(worker, "event=worker.ready")
            runner = self.runner_of(worker)
            os.kill(runner, signal.SIGKILL)
            self.wait_until(lambda: self.runner_of(worker) != runner, what="another runner")
            job = self.enqueue("s")
            self.wait_state(job, "done")
            self.assertEqual((self.job(job)["failures"], self.job(job)["lost"]), (0, 0))
        self.assertEqual(self.sql("SELECT count(*) FROM fx"), [(3,)])
        self.assertIn("event=runner.died", self.log(worker))

    def test_runner_dies_with_its_supervisor(self):
        self.conf(self.SQL % ("", ""))
        worker = self.start_worker()
        self.wait_log(worker, "event=worker.ready")
        runner = self.runner_of(worker)
        worker.kill()
        worker.wait()
        self.wait_until(lambda: not os.path.exists("/proc/%d/fd/0" % runner), 5, "the runner's end")

    def test_changed_configuration_stops_the_worker_when_its_runner_restarts(self):
        self.conf(self.SQL % ("", ""))
        worker = self.start_worker()
        self.wait_log(worker, "event=worker.ready")
        self.conf(self.SQL % ("", "priority = 7"))
        os.kill(self.runner_of(worker), signal.SIGKILL)
        self.assertEqual(worker.wait(20 * SLOW), 78)
        self.assertIn("has changed since", self.log(worker))

    def test_long_statement_ends_at_the_hard_limit_and_others_go_on(self):
        self.conf("[task slow]\nsql = " + self.forever() +
                  "hard_limit = 300ms\nmax_retries = 1\nbackoff = 10ms..20ms\n"
                  "[task s]\nsql = INSERT INTO fx(job) VALUES (:job_id)\n")
        slow = self.enqueue("slow")
        ids = [self.enqueue("s") for _ in range(3)]
        self.work()
        shown = self.job(slow)
        self.assertEqual((shown["state"], shown["dead_class"], shown["runs"]),
                         ("dead", "exhausted", 2), shown)
        self.assertIn("ran past the hard limit", shown["error"])
        self.assertEqual({self.job(i)["state"] for i in ids}, {"done"})
        self.assertEqual(self.sql("SELECT count(*) FROM fx"), [(3,)])

    def test_long_statement_is_named_once_with_its_job(self):
        self.conf("[task slow]\nsql = " + self.forever() + "hard_limit = 7s\nmax_retries = 0\n")
        job = self.enqueue("slow")
        worker = self.start_worker()
        self.wait_log(worker, "event=effect.long")
        worker.send_signal(signal.SIGUSR2)
        self.wait_log(worker, "event=worker.state")
        self.wait_state(job, "dead", deadline=30)
        log = self.log(worker)
        said = [line for line in log.splitlines() if "event=effect.long" in line]
        self.assertEqual(len(said), 1, log)
        self.assertRegex(said[0], r"warn event=effect.long .*job=%s task=slow for=" % job)
        self.assertIn("it holds the store's write lock" if self.store.can("one_writer")
                      else "its transaction is open", said[0])
        self.assertRegex(log, r"event=worker.state .*runner_job=%s runner_for=" % job)

    def test_busy_store_names_who_holds_it(self):
        self.conf("[task slow]\nsql = " + self.forever() + "hard_limit = 30s\n")
        self.enqueue("slow")
        worker = self.start_worker()
        self.wait_log(worker, "event=effect.long")
        if self.store.can("one_writer"):
            said = self.fails(75, "enqueue", "slow")
            self.assertIn("the pawl process %d has kept" % self.runner_of(worker), said)
            self.assertIn("a long statement of a job", said)
        else:
            self.ok("enqueue", "slow")
        worker.kill()
        worker.wait()

    def test_second_signal_interrupts_a_statement_at_no_cost(self):
        self.conf("[task slow]\nsql = " + self.forever())
        job = self.enqueue("slow")
        worker = self.start_worker("--grace", "30s")
        self.wait_log(worker, "event=worker.ready")
        self.wait_until(self.store.busy, what="the statement")
        worker.send_signal(signal.SIGTERM)
        self.wait_log(worker, "event=worker.drain")
        began = time.monotonic()
        self.assertEqual(self.stop_worker(worker), 0)
        self.assertLess(time.monotonic() - began, 5 * SLOW)
        shown = self.job(job)
        self.assertEqual((shown["state"], shown["failures"], shown["lost"]), ("ready", 0, 0), shown)


@each_store
class CutTest(WorkTest):
    def test_run_cut_by_cancel_is_an_attempt_and_the_only_one(self):
        self.hold()
        job = self.enqueue("hold")
        worker = self.start_worker()
        self.wait_started()
        self.ok("cancel", job)
        shown = self.job(job)
        self.assertEqual([a["outcome"] for a in shown["attempts"]], ["cancelled"])
        self.assertEqual(shown["attempts_n"], 1)
        self.assertIn(shown["attempts"][0]["worker"], self.log(worker))
        self.assertIsNotNone(shown["attempts"][0]["started_at"])
        self.assertNotIn("older attempts", self.ok("job", job))


@no_store
class LogTest(PawlTest):
    make_store = check_at_end = False

    def test_every_event_is_in_the_page_of_logs_and_no_other(self):
        said = set()
        for folder, _, files in os.walk(os.path.join(ROOT, "src")):
            for name in files:
                with open(os.path.join(folder, name), encoding="utf-8") as f:
                    text = f.read()
                said |= set(re.findall(r'log_line\([^"]*"([a-z_]+\.[a-z_]+)"', text))
                said |= set(re.findall(r'"(job\.[a-z_]+)"', text))
        with open(os.path.join(ROOT, "doc", "logs.md"), encoding="utf-8") as f:
            told = set(re.findall(r"^\| `([a-z_.]+)` \|", f.read(), re.M))
        self.assertEqual(said, told)


@each_store
class TroubleTest(WorkTest):
    def test_locked_store_is_waited_out_and_no_end_is_lost(self):
        self.hold()
        job = self.enqueue("hold")
        worker = self.start_worker()
        self.wait_started()
        db = self.connect()
        self.store.keep_out(db)
        self.go(job)
        self.wait_log(worker, "event=store.trouble")
        db.execute("ROLLBACK")
        self.wait_state(job, "done")
        with open(os.path.join(self.dir, "start.log"), encoding="utf-8") as f:
            self.assertEqual(len(f.readlines()), 1)
        self.wait_log(worker, "event=store.fine")


if __name__ == "__main__":
    unittest.main()
