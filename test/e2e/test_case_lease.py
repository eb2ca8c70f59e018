#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""test_case_lease.py - field cases about leases: delays, frozen and dead workers, recovery.

1 3 4 5 10 12 20 59. The lease of a worker is its sign of life: 1 s or 2 s here.
"""
import datetime
import os
import random
import re
import signal
import threading
import time
import unittest

from fieldkit import FieldTest, send, stat_of, tree, uptime
from pawltest import SLOW
from stores import each_store

TIMEOUT = 120


def worker_id(log):
    return re.search(r"event=worker.start worker=([0-9a-f]+)", log).group(1)


@each_store
class Due(FieldTest):
    def case_01_delayed_job_starts_once_and_not_before_it_is_due(self):
        """Workers come and go while it waits: nothing of the wait lives in their memory."""
        by_exec, by_sql = self.act("ok", "--in", "4s"), self.enqueue("effect", "{}", "--in", "4s")
        at = datetime.datetime.fromisoformat(self.job(by_exec)["run_at"].replace("Z", "+00:00"))
        due = at.timestamp() - time.time() + uptime()
        first = [self.worker() for _ in range(3)]
        self.kill_all(*first)
        second = [self.worker() for _ in range(3)]
        self.wait_until(lambda: self.count("done") == 2, 15, "both jobs are done")
        self.assertEqual(len(self.attempts(by_exec)), 1)
        self.assert_each_once([by_sql])
        at = self.attempts(by_exec)[0].at
        self.assertGreaterEqual(at, due - 0.05) # attempts.log knows hundredths of a second
        self.assertLess(at, due + 0.5 + SLOW)
        for job in (by_exec, by_sql):
            page = self.job(job)
            self.assertGreaterEqual(page["started_at"], page["run_at"])
            self.assertEqual((page["lost"], page["attempts_n"]), (0, 0))
        for worker in second:
            self.assertEqual(self.stop_worker(worker), 0)


@each_store
class Renewal(FieldTest):
    lease = "1s"

    def case_03_lease_is_renewed_while_the_job_runs(self):
        job = self.act("sleep:3 effect")
        self.worker()
        self.worker()
        self.wait_until(lambda: self.count("done", "effect") == 1, 20, "the effect")
        self.wait_state(job, "done")
        self.assertEqual(len(self.attempts(job)), 1)
        self.assertEqual([key is not None for _, key in self.fx()], [True])

    def case_03_frozen_heartbeat_may_double_the_attempt_but_not_the_effect(self):
        """Only the supervisor stands still: its child goes on; both attempts reach their end."""
        job = self.act("wait:go effect who")
        a = self.worker()
        self.wait_attempts(job, 1)
        self.started += tree(a.pid)
        a.send_signal(signal.SIGSTOP)
        b = self.worker()
        self.wait_attempts(job, 2)
        self.touch("go")
        self.wait_state(job, "done")
        a.send_signal(signal.SIGCONT)
        self.wait_log(a, "event=worker.frozen")
        page = self.job(job)
        self.assertEqual(page["result"], "%s 2" % worker_id(self.log(b)))
        self.assertEqual((page["releases"], page["failures"]), (1, 0))
        self.work()
        self.assertEqual((len(self.fx()), len(self.attempts(job))), (1, 2))


@each_store
class Frozen(FieldTest):
    """Case 4: A wakes after its lease moved on; B has succeeded meanwhile."""
    lease = "1s"
    concurrency = 1

    def frozen_before_settle(self, words):
        """A stands still between the end of its child and its report; B has done the job."""
        job = self.act(words)
        a = self.worker(ready=False, env=self.env(PAWL_FAILPOINT="turn.before=stop:1:1"))
        self.wait_until(lambda: (stat_of(a.pid) or "?")[0] == "T", 15, "A stands still")
        self.assertEqual(len(self.attempts(job)), 1)
        self.assertEqual(self.job(job)["state"], "running")
        b = self.worker()
        self.wait_state(job, "done")
        before = self.job(job)
        self.assertEqual(before["result"], "%s 2" % worker_id(self.log(b)))
        a.send_signal(signal.SIGCONT)
        self.wait_log(a, "event=job.fenced")
        self.assertEqual(self.job(job), before)
        self.assertEqual((before["releases"], before["failures"], before["error"]), (1, 0, None))
        self.assertEqual([x["outcome"] for x in before["attempts"]], ["released"])
        self.assertEqual(self.stats()["fenced"], 1)
        self.assertEqual(len(self.attempts(job)), 2)
        self.assertEqual((self.stop_worker(a), self.stop_worker(b)), (0, 0), self.log(a))

    def case_04_late_success_is_refused_by_the_lease(self):
        self.frozen_before_settle("who")

    def case_04_late_failure_report_is_refused_by_the_lease(self):
        self.frozen_before_settle("1/say:old-error 1/exit:65 who")

    def case_04_late_report_does_not_touch_the_run_of_the_new_owner(self):
        """As above, but B is still at it when A reports."""
        job = self.act("1/say:old-error 1/exit:65 2/wait:go who")
        a = self.worker(ready=False, env=self.env(PAWL_FAILPOINT="turn.before=stop:1:1"))
        self.wait_until(lambda: (stat_of(a.pid) or "?")[0] == "T", 15, "A stands still")
        b = self.worker()
        self.wait_attempts(job, 2)
        before = self.job(job)
        a.send_signal(signal.SIGCONT)
        self.wait_log(a, "event=job.fenced")
        self.assertEqual(self.job(job), before)
        self.assertEqual((before["state"], before["worker"]), ("running", worker_id(self.log(b))))
        self.touch("go")
        self.wait_state(job, "done")
        self.assertEqual(self.job(job)["result"], "%s 2" % worker_id(self.log(b)))
        self.assertEqual(self.stats()["fenced"], 1)
        self.assertEqual((self.stop_worker(a), self.stop_worker(b)), (0, 0), self.log(a))

    def case_04_late_renewal_does_not_bring_the_lease_back(self):
        """A and its child freeze in the middle of the run, wake, beat again, and report."""
        job = self.act("1/sleep:1 effect who")
        a = self.worker()
        self.wait_attempts(job, 1)
        pids = self.freeze(a)
        b = self.worker()
        self.wait_state(job, "done")
        before = self.job(job)
        send(pids, signal.SIGCONT)
        self.wait_log(a, "event=worker.frozen")
        other = self.act("ok", "--queue", "second")         # A is whole again, and idle
        self.wait_state(other, "done")
        self.assertEqual((self.stop_worker(a), self.stop_worker(b)), (0, 0), self.log(a))
        self.assertRegex(self.log(a), r"event=job\.(stopped|fenced) .*job=%s\b" % job)
        self.assertEqual(self.job(job), before)
        self.assertEqual(before["result"], "%s 2" % worker_id(self.log(b)))
        self.work()
        self.assertEqual(len(self.fx()), 1)


@each_store
class Race(FieldTest):
    lease = "1s"
    act_policy = effect_policy = "lost_cap = 100"

    def audit(self):
        """Log each arrival in and departure from a terminal state, inside the same transaction."""
        self.sql("CREATE TABLE audit(n INTEGER PRIMARY KEY, job_id INTEGER, what TEXT)")
        db = self.connect()
        if self.store.kind == "postgresql":
            db.execute("CREATE FUNCTION audit() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN"
                       " INSERT INTO audit(job_id, what) VALUES (coalesce(NEW.job_id, OLD.job_id),"
                       " TG_OP || ' ' || substr(TG_TABLE_NAME, 3)); RETURN NULL; END $$")
        for table in ("done", "dead", "dropped", "cancelled"):
            if self.store.kind == "postgresql":
                db.execute("CREATE TRIGGER audit AFTER INSERT OR DELETE ON pawl.x_%s FOR EACH ROW"
                           " EXECUTE FUNCTION audit()" % table)
                continue
            for event, row in (("INSERT", "NEW"), ("DELETE", "OLD")):
                db.execute("CREATE TRIGGER audit_%s_%s AFTER %s ON pawl_x_%s BEGIN"
                         " INSERT INTO audit(job_id, what) VALUES (%s.job_id, '%s %s'); END"
                         % (table, event, event, table, row, event, table))

    def case_05_recovery_never_overwrites_a_job_that_ended_meanwhile(self):
        """Supervisors freeze for about a lease: settles and recovery meet again and again."""
        jobs_n, rng = 120, random.Random(5)
        self.audit()
        workers = [self.worker("-n", "6") for _ in range(3)]
        self.bulk({"task": "act", "args": "sleep:0.%d effect" % rng.randint(2, 9)}
                  for _ in range(jobs_n))
        stop = threading.Event()

        def freezer(seed):
            rnd = random.Random(seed)
            while not stop.is_set():
                one = rnd.choice(workers)
                one.send_signal(signal.SIGSTOP)
                time.sleep(rnd.uniform(0.9, 2.1))           # the fault itself, not a wait for it
                one.send_signal(signal.SIGCONT)
        for worker in workers:
            self.started += tree(worker.pid)
        thread = threading.Thread(target=freezer, args=(55,))
        thread.start()
        try:
            self.wait_until(lambda: self.count("done", "act") == jobs_n, 60, "all jobs are done")
        finally:
            stop.set()
            thread.join()
        self.work()
        for worker in workers:
            self.assertEqual(self.stop_worker(worker), 0, self.log(worker))
        recovered = self.sql("SELECT count(*) FROM pawl_attempts"
                             " WHERE outcome IN ('lost', 'suspect', 'released')")[0][0]
        self.assertGreater(recovered, 0, "nothing was recovered: this run proved nothing")
        self.assertEqual(self.sql("SELECT what, count(*) FROM audit GROUP BY 1"),
                         [("INSERT done", 2 * jobs_n)])
        self.assertEqual(self.sql("SELECT count(DISTINCT job_id) FROM audit"), [(2 * jobs_n,)])
        self.assertEqual(self.sql("SELECT count(*), count(DISTINCT key) FROM fx"),
                         [(jobs_n, jobs_n)])


@each_store
class Dead(FieldTest):
    def case_10_jobs_of_a_killed_worker_move_on_by_themselves(self):
        job = self.act("1/sleep:60 who")
        a = self.worker()
        self.wait_attempts(job, 1)
        b = self.worker()
        killed_at = uptime()
        self.kill_all(a)
        again = self.wait_attempts(job, 2)[1]
        self.assertLess(again.at - killed_at, 2 + 0.2 + 1 + SLOW)
        self.wait_state(job, "done")
        page = self.job(job)
        self.assertEqual(page["result"], "%s 2" % worker_id(self.log(b)))
        first = page["attempts"][0]
        self.assertEqual((first["outcome"], first["worker"]), ("lost", worker_id(self.log(a))))
        self.assertIn("is gone", first["error"])
        self.assertIn("pid %d" % a.pid, first["error"])
        self.assertEqual((page["lost"], page["failures"]), (1, 0))

    def case_12_job_is_recovered_although_its_workers_record_is_gone(self):
        job = self.act("1/sleep:60 who")
        a = self.worker()
        self.wait_attempts(job, 1)
        self.kill_all(a)
        os.unlink(os.path.join(self.store.side(), "w-" + worker_id(self.log(a))))
        if self.store.kind == "postgresql":
            self.sql("DELETE FROM pawl.x_worker WHERE id = ?", (worker_id(self.log(a)),))
        self.assertEqual(self.job(job)["state"], "running")
        self.worker()
        self.wait_state(job, "done")
        self.assertEqual([x.n for x in self.attempts(job)], [1, 2])
        self.assertEqual(self.job(job)["releases"], 1)

    def case_20_expired_lease_does_not_use_up_a_failure(self):
        job = self.act("1/sleep:60 who", "--max-retries", "0")
        a = self.worker()
        self.wait_attempts(job, 1)
        self.ok("pause", "default")
        self.freeze(a)                                      # and it never comes back
        self.worker()
        self.wait_state(job, "ready")
        page = self.job(job)
        self.assertEqual((page["failures"], page["releases"], page["dead_class"]), (0, 1, None))
        self.ok("resume", "default")
        self.wait_state(job, "done")
        self.assertEqual(len(self.attempts(job)), 2)
        self.kill_all(a)


@each_store
class Place(FieldTest):
    concurrency = 1

    def next_after(self, *words, sig=signal.SIGKILL):
        """The job that starts next after the one in hand was interrupted, 1,100 behind it."""
        job = self.act("1/sleep:60 ok", *words)
        created = self.job(job)["created_at"]
        a = self.worker("--grace", "0")
        self.wait_attempts(job, 1)
        before = len(self.attempts())
        self.bulk({"task": "act", "args": "ok"} for _ in range(1000))
        if sig == signal.SIGKILL:
            self.kill_all(a)
        else:
            self.assertEqual(self.stop_worker(a, sig), 0)
        self.bulk({"task": "act", "args": "ok"} for _ in range(100))
        b = self.worker()
        self.wait_until(lambda: len(self.attempts()) > before + 3, 15, "some jobs have started")
        self.assertEqual(self.attempts()[before].job, job)
        self.assertEqual(self.job(job)["created_at"], created)
        self.assertEqual(self.stop_worker(b), 0)

    def case_59_recovered_job_keeps_its_priority(self):
        self.bulk({"task": "act", "args": "ok"} for _ in range(20))
        self.next_after("--priority", "10")

    def case_59_recovered_job_keeps_its_place_in_the_line(self):
        self.next_after()

    def case_59_interrupted_job_keeps_its_place_in_the_line(self):
        self.next_after(sig=signal.SIGTERM)


if __name__ == "__main__":
    unittest.main()
