#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""test_doors.py - the plain-SQL door through sqlite3, Python and Node, in own transactions."""
import unittest

from doors import SESSIONS, Refused, insert, missing
from pawltest import PawlTest

BOTH_LINKS = True


class Door:
    """The tests of one client; the classes below name it."""
    session_class = None

    def setUp(self):
        why = missing(self.session_class)
        if why:
            self.skipTest(why)
        super().setUp()
        self.session = self.open()

    def open(self):
        session = self.session_class(self.db)
        self.addCleanup(session.close)
        return session

    def run_all(self, *statements):
        return [self.session.run(s) for s in statements][-1]

    def jobs(self):
        return self.json("jobs")

    def test_visible_at_commit(self):
        """Goal: a job of an open transaction is seen by nobody, and by all once it committed."""
        self.session.run("BEGIN IMMEDIATE")
        self.session.run(insert(task="t", args='{"a":1}'))
        self.assertEqual(self.session.run("SELECT id, created FROM pawl_last"), [[1, 1]])
        self.assertEqual(self.jobs(), [])
        self.session.run("COMMIT")
        self.assertEqual([(j["id"], j["task"], j["args"]) for j in self.jobs()],
                         [("1", "t", {"a": 1})])

    def test_never_at_rollback(self):
        self.session.run("CREATE TABLE own(x)")
        self.run_all("BEGIN", "INSERT INTO own VALUES (1)", insert(task="t", key="k"), "ROLLBACK")
        self.assertEqual(self.jobs(), [])
        self.assertEqual(self.session.run("SELECT * FROM own"), [])
        self.run_all("BEGIN", "SAVEPOINT s", insert(task="t", key="k"), "ROLLBACK TO s",
                     "INSERT INTO own VALUES (2)", "COMMIT")
        self.assertEqual(self.jobs(), [])
        self.run_all("BEGIN", "INSERT INTO own VALUES (3)", insert(task="t", key="k"), "COMMIT")
        self.assertEqual(len(self.jobs()), 1)           # what was rolled back holds no key
        self.assertEqual(self.session.run("SELECT x FROM own"), [[2], [3]])

    def test_lost_connection_is_a_rollback(self):
        self.session.run("BEGIN IMMEDIATE")
        self.session.run(insert(task="t"))
        other = self.session
        self.session = self.open()
        if hasattr(other, "process"):
            other.process.kill()
            other.process.wait()
        else:
            other.close()
        self.assertEqual(self.jobs(), [])
        self.session.run(insert(task="t"))
        self.assertEqual(len(self.jobs()), 1)

    def test_answer_in_the_same_transaction(self):
        last = "SELECT id, created FROM pawl_last"
        self.session.run("BEGIN IMMEDIATE")
        self.session.run(insert(task="t", key="k", args="[1]"))
        self.assertEqual(self.session.run(last), [[1, 1]])
        self.session.run(insert(task="t", key="k", args="[1]"))
        self.assertEqual(self.session.run(last), [[1, 0]])
        self.session.run(insert(task="t", key="other", args="[1]"))
        self.assertEqual(self.session.run(last), [[2, 1]])
        self.session.run("COMMIT")
        self.session.run("BEGIN IMMEDIATE")             # a duplicate of a committed job
        self.session.run(insert(task="t", key="k", args="[1]"))
        self.assertEqual(self.session.run(last), [[1, 0]])
        self.session.run("COMMIT")
        self.assertEqual(len(self.jobs()), 2)

    def test_clash_leaves_the_transaction_to_its_owner(self):
        """Goal: a key used with other args is refused; what the caller wrote still commits."""
        self.session.run("CREATE TABLE own(x)")
        self.session.run(insert(task="t", key="k", args="[1]"))
        self.session.run("BEGIN IMMEDIATE")
        self.session.run("INSERT INTO own VALUES (1)")
        with self.assertRaisesRegex(Refused, "key was used before with other args"):
            self.session.run(insert(task="t", key="k", args="[2]"))
        self.session.run("COMMIT")
        self.assertEqual(self.session.run("SELECT x FROM own"), [[1]])
        self.assertEqual([j["args"] for j in self.jobs()], [[1]])

    def test_or_clauses_of_the_caller_replace_nothing(self):
        """Goal: INSERT OR REPLACE, IGNORE, ... neither change the first job nor hide a refusal."""
        self.session.run(insert(task="t", key="k", args="[1]", queue="q"))
        before = self.session.run("SELECT * FROM pawl_jobs")
        for verb in "REPLACE", "INSERT OR REPLACE", "INSERT OR IGNORE", "INSERT OR FAIL":
            with self.subTest(verb=verb):
                self.session.run("BEGIN IMMEDIATE")
                self.session.run(insert(verb, task="t", key="k", args="[1]", queue="q"))
                self.assertEqual(self.session.run("SELECT id, created FROM pawl_last"), [[1, 0]])
                self.session.run("COMMIT")
                with self.assertRaisesRegex(Refused, "other args"):
                    self.session.run(insert(verb, task="t", key="k", args="[2]"))
                with self.assertRaisesRegex(Refused, "args must be JSON"):
                    self.session.run(insert(verb, task="t", args="{"))
                self.assertEqual(self.session.run("SELECT * FROM pawl_jobs"), before)
        self.assertEqual(self.session.run("SELECT count(*) FROM pawl_jobs"), [[1]])

    def test_same_rows_as_the_cli(self):
        """Goal: the same request through both doors is the same job but for its id and birth."""
        plain = self.enqueue("plain")
        full = self.enqueue(
            "full", '{"a": 1.0}', "--key", "k", "--source", "cli", "--queue", "q", "--priority",
            "-7", "--at", "2031-01-02T03:04:05.678Z", "--expires", "2032-01-01T01:00:00+01:00",
            "--max-retries", "0", "--entity", "e", "--version", "-3", "--header", "a=b")
        self.session.run(insert(task="plain"))
        self.session.run(insert(
            task="full", args='{"a": 1.0}', key="k", source="sql", queue="q", priority=-7,
            run_at="2031-01-02T03:04:05.678Z", expires_at="2032-01-01T01:00:00+01:00",
            max_retries=0, entity="e", version=-3, headers='{"a":"b"}'))
        for cli, sql in (plain, "3"), (full, "4"):
            a, b = self.job(cli), self.job(sql)
            for job in a, b:
                self.assertEqual(job.pop("id"), job.pop("root_id"))
                self.assertTrue(job.pop("created_at"))
                job.pop("source")
                if job["task"] == "plain":
                    job.pop("run_at")
            self.assertEqual(a, b)
        cli, sql = (self.session.run("SELECT args, headers FROM pawl_jobs WHERE id = %s" % i)
                    for i in (full, "4"))
        self.assertEqual(cli, sql)

    def test_columns_are_checked(self):
        for columns, says in (
                ({"args": "{}"}, "task must be"), ({"task": "A"}, "task must be"),
                ({"task": "t", "args": "{"}, "args must be JSON"),
                ({"task": "t", "key": ""}, "key must be"),
                ({"task": "t", "key": "k" * 256}, "key must be"),
                ({"task": "t", "key": "a\nb"}, "key must be"),
                ({"task": "t", "priority": 101}, "priority must be"),
                ({"task": "t", "priority": "high"}, "priority must be"),
                ({"task": "t", "max_retries": -1}, "max_retries must be"),
                ({"task": "t", "version": 1}, "needs an entity"),
                ({"task": "t", "entity": "e"}, "entity needs a version"),
                ({"task": "t", "headers": "[]"}, "headers must be"),
                ({"task": "t", "headers": '{"a":1}'}, "headers must be"),
                ({"task": "t", "run_at": "tomorrow"}, "run_at must be"),
                ({"task": "t", "expires_at": -1}, "expires_at must be")):
            with self.subTest(columns=columns):
                with self.assertRaisesRegex(Refused, says):
                    self.session.run(insert(**columns))
        self.session.run(insert(task="t"))
        with self.assertRaisesRegex(Refused, "cannot be changed"):
            self.session.run("UPDATE pawl_enqueue SET args = '[]'")
        with self.assertRaisesRegex(Refused, "cannot be deleted"):
            self.session.run("DELETE FROM pawl_enqueue")
        self.assertEqual(len(self.jobs()), 1)

    def test_a_running_worker_takes_it(self):
        """Goal: a worker that is idle starts what a stranger committed, without being told."""
        self.session.run("CREATE TABLE seen(x)")
        self.conf("[pawl]\ndb = sqlite:shop.db\n[task see]\nsql = INSERT INTO seen VALUES (:x)\n")
        worker = self.start_worker()
        self.wait_until(lambda: "worker.start" in self.log(worker), what="the worker is up")
        for i in range(3):
            self.session.run("BEGIN")
            self.session.run(insert(task="see", args='{"x":%d}' % i))
            self.session.run("COMMIT")
            self.wait_until(lambda: self.session.run("SELECT count(*) FROM seen") == [[i + 1]],
                            what="job %d ran" % i)
        self.assertEqual(self.stop_worker(worker), 0)


for _session in SESSIONS:
    _name = "Door_%s[sqlite]" % _session.name
    globals()[_name] = type(_name, (Door, PawlTest), {"session_class": _session,
                                                      "engines": ("sqlite",)})
    globals()[_name].__module__ = __name__
del _session


if __name__ == "__main__":
    unittest.main()
