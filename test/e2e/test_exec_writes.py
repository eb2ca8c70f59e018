# SPDX-License-Identifier: Apache-2.0
"""test_exec_writes.py - programs whose verdict asks for writes and jobs: what they ask for commits
with their acknowledgement, once, or not at all."""
import os
import re
import signal
import unittest

import test_exec
from pawltest import PawlTest
from stores import each_store, no_store

CONF = """
[pawl]
concurrency = 4
runners = 2
grace = 5s

[task t]
exec = ./t.sh
max_retries = 1
backoff = 20ms..40ms
write.take = UPDATE stock SET n = n - :n WHERE sku = :sku AND n >= :n
expect.take = 1
write.note = INSERT INTO reservation(job, sku) VALUES (:job_id, :sku)
write.lower = UPDATE stock SET n = -1 WHERE sku = :sku
%s

[task next]
exec = /bin/true
"""
TABLES = ("CREATE TABLE stock(sku TEXT PRIMARY KEY, n INTEGER NOT NULL CHECK (n >= 0))",
          "CREATE TABLE reservation(job INTEGER NOT NULL, sku TEXT NOT NULL)",
          "INSERT INTO stock(sku, n) VALUES ('a', 10), ('b', 1)")
BOTH = ('{"do":"note","args":{"sku":"a"}}', '{"do":"take","args":{"sku":"a","n":2}}')


class InRunner(test_exec.ExecTest):
    """The contract of a program is the same when its verdict may ask for something."""

    def task(self, body, more=""):
        super().task(body, more + "\nenqueue = yes")

    test_early_ack_runs_once_whatever_happens = None        # refused: see Config
    test_thousand_jobs_leave_no_descriptor_behind = None    # counts those of the supervisor
    test_program_that_is_missing_is_transient_and_loud = None   # says it in its own way: below


InRunner = each_store(InRunner)


class Base(PawlTest):
    def setUp(self):
        super().setUp()
        for text in TABLES:
            self.sql(text)

    def task(self, body, more=""):
        self.conf(CONF % more)
        self.script("t.sh", "#!/bin/sh\n" + body)

    def say(self, members, more="", end="exit 0"):
        """One job whose program says this; the job as `pawl job` shows it."""
        self.task("printf '%%s' '{\"done\":{%s}}' >&3; %s" % (members, end), more)
        job = self.enqueue("t")
        self.work()
        return self.job(job)

    def writes(self, *items, **more):
        return self.say('"writes":[%s]' % ",".join(items), **more)

    def stock(self, sku="a"):
        return self.sql("SELECT n FROM stock WHERE sku = ?", [sku])[0][0]

    def notes(self):
        return [r[0] for r in self.sql("SELECT job FROM reservation ORDER BY job")]

    def nothing(self):
        self.assertEqual((self.stock(), self.notes()), (10, []))


@each_store
class Writes(Base):
    def test_writes_and_result_are_there_with_the_acknowledgement(self):
        job = self.say('"result":[7],"writes":[%s]' % ",".join(BOTH))
        self.assertEqual((job["state"], job["result"]), ("done", [7]), job)
        self.assertEqual((self.stock(), self.notes()), (8, [int(job["id"])]))

    def test_rows_that_are_not_as_expected_undo_all_and_are_permanent(self):
        job = self.writes(BOTH[0], '{"do":"take","args":{"sku":"b","n":2}}')
        self.assertEqual((job["state"], job["dead_class"]), ("dead", "permanent"), job)
        self.assertEqual(job["error"], "write 2 (take): it changed 0 rows, expect.take = 1")
        self.nothing()

    def test_write_that_is_not_declared_is_named(self):
        job = self.writes(BOTH[0], '{"do":"drop","args":{}}')
        self.assertEqual((job["state"], job["dead_class"]), ("dead", "permanent"), job)
        self.assertEqual(job["error"], "write 2 (drop): the task declares no write.drop")
        job = self.writes('{"do":"taek"}')
        self.assertEqual(job["error"], "write 1 (taek): the task declares no write.taek; the"
                         " nearest is 'take'")
        self.nothing()

    def test_argument_that_is_missing_is_named(self):
        job = self.writes(BOTH[0], '{"do":"take","args":{"sku":"a"}}')
        self.assertEqual((job["state"], job["dead_class"]), ("dead", "permanent"), job)
        self.assertIn('write 2 (take): its args lack "n" (null is allowed)', job["error"])
        job = self.writes('{"do":"take"}')
        self.assertIn('write 1 (take): its args lack "n"', job["error"])
        self.nothing()

    def test_constraint_is_permanent_and_undoes_all(self):
        job = self.writes(BOTH[0], '{"do":"lower","args":{"sku":"a"}}')
        self.assertEqual((job["state"], job["dead_class"]), ("dead", "permanent"), job)
        self.assertIn("write 2 (lower): ", job["error"])
        self.assertNotIn("statement", job["error"])
        self.nothing()

    def test_evidence_of_the_program_is_kept_when_its_writes_are_refused(self):
        job = self.writes('{"do":"take","args":{"sku":"b","n":2}}', end="echo out; echo err >&2")
        attempt = job["attempts"][0]
        self.assertEqual((attempt["exit_code"], attempt["stdout_tail"], attempt["stderr_tail"]),
                         (0, "out\n", "err\n"), job)
        self.assertGreater(attempt["max_rss_kib"], 0)

    def test_exit_code_that_is_worse_than_the_verdict_writes_nothing(self):
        job = self.writes(*BOTH, end="exit 1")
        self.assertEqual((job["state"], job["dead_class"], job["runs"]), ("dead", "exhausted", 2))
        job = self.writes(*BOTH, end="kill -9 $$")
        self.assertEqual((job["state"], job["dead_class"]), ("dead", "poison"))
        self.nothing()

    def test_form_is_read_strictly(self):
        for item, why in (("1", "must be an object"), ('{"args":{}}', 'without "do"'),
                          ('{"do":"note","sku":1}', '"sku" is not a member of a write'),
                          ('{"do":"note","do":"take"}', '"do" is there twice'),
                          ('{"do":1}', '"do" must be the name'),
                          ('{"do":"note","args":[1]}', '"args" of a write must be an object')):
            job = self.writes(item, end="exit 65")
            self.assertIn("protocol: ", job["error"])
            self.assertIn(why, job["error"])
        job = self.say('"writes":{}', end="exit 65")
        self.assertIn('"writes" must be an array', job["error"])
        job = self.writes(*[BOTH[0]] * 257, end="exit 65")
        self.assertIn("more than 256 writes", job["error"])
        self.nothing()

    def test_program_that_cannot_be_started_is_transient(self):
        self.conf(CONF % "")
        job = self.enqueue("t")
        self.work()
        job = self.job(job)
        self.assertEqual((job["state"], job["dead_class"]), ("dead", "exhausted"), job)
        self.assertIn("not runnable: ", job["error"])

    def test_statement_that_does_not_compile_stops_the_worker(self):
        self.conf("[task t]\nexec = /bin/true\nwrite.a = INSERT INTO nowhere VALUES (1)\n")
        self.enqueue("t")
        self.work(code=78)

    def test_cancelled_while_the_program_runs_writes_nothing(self):
        self.task("touch begun; while [ ! -e go ]; do sleep 0.05; done;"
                  "printf '%%s' '{\"done\":{\"writes\":[%s]}}' >&3" % ",".join(BOTH))
        job = self.enqueue("t")
        worker = self.start_worker()
        self.wait_until(lambda: os.path.exists(os.path.join(self.dir, "begun")))
        self.ok("cancel", job)
        with open(os.path.join(self.dir, "go"), "w", encoding="utf-8"):
            pass
        after = self.enqueue("next")
        self.wait_state(after, "done")
        self.assertEqual(self.stop_worker(worker), 0, self.log(worker))
        self.assertEqual(self.job(job)["state"], "cancelled")
        self.nothing()

    def test_each_write_is_there_once_whenever_the_worker_dies(self):
        jobs = 60
        self.task("cat >/dev/null; printf '%%s' '{\"done\":{\"writes\":[%s]}}' >&3" % BOTH[0],
                  "lost_cap = 100")
        lines = "".join('{"task":"t","args":{}}\n' for _ in range(jobs))
        self.ok("enqueue", "--bulk", "-", stdin=lines)

        def count():
            return self.sql("SELECT count(*) FROM reservation")[0][0]
        for at in range(5, jobs, 9):
            worker = self.start_worker()
            self.wait_until(lambda: count() >= at, 30, "%d are done" % at)
            self.assertNotEqual(self.stop_worker(worker, signal.SIGKILL), 0)
        self.work()
        self.assertEqual(self.sql("SELECT count(*), count(DISTINCT job) FROM reservation"),
                         [(jobs, jobs)])
        self.assertEqual({j["state"] for j in self.json("jobs", "--limit", "100")}, {"done"})
        self.check()


@each_store
class Page(Base):
    def test_program_of_the_page_does_what_it_says(self):
        here = os.path.dirname(os.path.abspath(__file__))
        with open(os.path.join(here, "..", "..", "doc", "exec.md"), encoding="utf-8") as f:
            page = f.read()
        self.sql("DROP TABLE reservation")
        self.sql("CREATE TABLE reservation(order_key TEXT PRIMARY KEY, sku TEXT)")
        self.conf(re.search(r"```ini\n(.*?)```", page, re.S)[1].replace("./reserve.sh",
                                                                        "python3 reserve.py"))
        self.script("reserve.py", re.search(r"```python\n(.*?)```", page, re.S)[1])
        job = self.enqueue("reserve", '{"sku":"a","n":3}', "--key", "order-9")
        self.work()
        self.assertEqual(self.job(job)["state"], "done", self.job(job))
        self.assertEqual(self.stock(), 7)
        self.assertEqual(self.sql("SELECT order_key, sku FROM reservation"), [("order-9", "a")])


@each_store
class Enqueue(Base):
    def test_jobs_are_there_with_the_acknowledgement(self):
        job = self.say('"writes":[%s],"enqueue":[{"task":"next","args":{"a":1},"key":"k"},'
                       '{"task":"next"}]' % BOTH[0])
        self.assertEqual(job["state"], "done", job)
        found = sorted((j["task"], j["key"] or "", j["state"]) for j in self.json("jobs"))
        self.assertEqual(found, [("next", "", "done"), ("next", "k", "done"), ("t", "", "done")])

    def test_nothing_is_enqueued_or_written_when_one_is_refused(self):
        self.ok("enqueue", "next", '{"other":1}', "--key", "k")
        for item, why in (('{"task":"next","key":"k"}', "enqueue 2 (next): "),
                          ('{"args":{}}', "enqueue 2 (?): task is missing"),
                          ('{"task":"next","extra":1}', "unknown member 'extra'")):
            job = self.say('"writes":[%s],"enqueue":[{"task":"next"},%s]' % (BOTH[0], item))
            self.assertEqual((job["state"], job["dead_class"]), ("dead", "permanent"), job)
            self.assertIn(why, job["error"])
        self.nothing()
        self.assertEqual(self.sql("SELECT count(*) FROM pawl_jobs WHERE task = 'next'"), [(1,)])

    def test_key_that_is_known_makes_no_second_job(self):
        self.ok("enqueue", "next", "{}", "--key", "k")
        job = self.say('"enqueue":[{"task":"next","key":"k"}]')
        self.assertEqual(job["state"], "done", job)
        self.assertEqual(self.sql("SELECT count(*) FROM pawl_jobs WHERE task = 'next'"), [(1,)])


@each_store
class Foreground(Base):
    def test_run_writes_or_rolls_back(self):
        self.task("printf '%%s' '{\"done\":{\"result\":1,\"writes\":[%s]}}' >&3" % ",".join(BOTH))
        out = self.json("run", "t", "{}", "--dry-run")[0]
        self.assertEqual((out["outcome"], out["result"], out["dry_run"]), ("done", 1, True))
        self.nothing()
        self.assertEqual(self.json("run", "t", "{}")[0]["outcome"], "done")
        self.assertEqual(self.stock(), 8)
        self.sql("UPDATE stock SET n = 0")
        out = self.json("run", "t", "{}", code=65)[0]
        self.assertIn("write 2 (take): it changed 0 rows", out["error"])

    def test_run_starts_nothing_whose_writes_do_not_compile(self):
        self.conf("[task t]\nexec = touch ran\nwrite.a = INSERT INTO nowhere VALUES (1)\n")
        self.fails(78, "run", "t", says="task t, write.a")
        self.assertFalse(os.path.exists(os.path.join(self.dir, "ran")))


@no_store
class Config(PawlTest):
    def test_what_is_wrong_is_named(self):
        for text, says in (
                ("sql = SELECT 1\nwrite.a = SELECT 1", "write.a means nothing to an sql task"),
                ("exec = ./t\nexpect.a = 1", "expect.a: there is no write.a"),
                ("exec = ./t\nwrite.a = SELECT 1\nexpect.a = x", "expect.a = x: write how many"),
                ("exec = ./t\nwrite.a = SELECT 1; SELECT 2", "write.a: "),
                ("exec = ./t\nwrite.A b = SELECT 1", "a name of 1..64"),
                ("exec = ./t\nwrite.a =", "write.a has no value"),
                ("exec = ./t\nwrite.a = SELECT 1\nack = early", "ack = early cannot go with"),
                ("exec = ./t\nenqueue = maybe", "enqueue = maybe: write yes or no"),
                ("sql = SELECT 1\nenqueue = yes", "enqueue means nothing to an sql task")):
            self.conf("[task t]\n" + text + "\n")
            self.fails(78, "conf", "check", says=says)


if __name__ == "__main__":
    unittest.main()
