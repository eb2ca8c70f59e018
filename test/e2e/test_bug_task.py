#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""test_bug_task.py - what handlers once could do to others, or could not do at all: statements that
meet faults of their own, full-text tables, children that leave their group, a log nobody reads."""
import os
import select
import signal
import subprocess
import sys
import time
import unittest

from fieldkit import FieldTest, is_alive, send
from pawltest import PAWL, SLOW
from stores import each_store, sqlite_alone

TIMEOUT = 90


@sqlite_alone
class OwnFault(FieldTest):
    """A statement whose own fault looks like one of the store: full, corrupt."""
    more = """
[task full]
sql = INSERT INTO seqd(x) VALUES (:x)
max_retries = 1
backoff = 50ms..100ms

[task stale-index]
sql = INSERT INTO ft(ft, rank) VALUES ('integrity-check', :x)
max_retries = 1
backoff = 50ms..100ms
"""

    def setUp(self):
        super().setUp()
        self.sql("CREATE TABLE seqd(id INTEGER PRIMARY KEY AUTOINCREMENT, x)")
        self.sql("INSERT INTO seqd VALUES (9223372036854775807, 1)")
        self.sql("CREATE TABLE doc(id INTEGER PRIMARY KEY, body)")
        self.sql("CREATE VIRTUAL TABLE ft USING fts5(body, content='doc', content_rowid='id')")
        self.sql("INSERT INTO doc VALUES (1, 'never indexed')")

    def ends_and_others_pass(self, task, says):
        bad = [self.enqueue(task, '{"x":1}', "--priority", "9") for _ in range(2)]
        good = [self.enqueue("effect") for _ in range(5)]
        worker = self.worker("--until-empty")
        self.assertEqual(worker.wait(45 * SLOW), 0, self.log(worker))
        for job in bad:
            page = self.job(job)
            self.assertEqual((page["state"], page["dead_class"]), ("dead", "exhausted"), page)
            self.assertEqual((page["failures"], page["lost"]), (2, 0))
            self.assertRegex(page["error"], says)
        self.assert_each_once(good)
        self.assertEqual(self.sql("SELECT sum(failures + lost) FROM pawl_jobs WHERE task='effect'"),
                         [(0,)])

    def test_job_that_alone_meets_full_for_ever_ends_and_others_pass(self):
        self.ends_and_others_pass("full", "full")

    def test_job_that_alone_meets_a_corrupt_index_ends_and_others_pass(self):
        self.ends_and_others_pass("stale-index", "malformed|corrupt")


# What a task's statements do; the one with fx tells what they saw.
SEARCH = {
    "fts5": """
sql = INSERT INTO f5(body) VALUES ('one two')
sql = INSERT INTO fx(job_id, value) SELECT :job_id, body FROM f5 WHERE f5 MATCH 'two'
sql = UPDATE f5 SET body = 'three' WHERE f5 MATCH 'two'
sql = DELETE FROM f5 WHERE rowid = 1
sql = INSERT INTO f5(f5) VALUES ('optimize')
""",
    "content": """
sql = INSERT INTO doc(id, body) VALUES (7, 'one two'), (8, 'four')
sql = UPDATE doc SET body = 'three' WHERE id = 7
sql = DELETE FROM doc WHERE id = 8
sql = INSERT INTO fx(job_id, value) SELECT :job_id, rowid FROM ft WHERE ft MATCH 'three'
""",
    "fts4": """
sql = INSERT INTO f4(body) VALUES ('one two')
sql = INSERT INTO fx(job_id, value) SELECT :job_id, body FROM f4 WHERE f4 MATCH 'two'
sql = UPDATE f4 SET body = 'three' WHERE docid = 1
""",
    "schema": """
sql = INSERT INTO fx(job_id, value) SELECT :job_id, name FROM pragma_table_info('doc')
""",
    "sets": """
sql = SELECT * FROM pragma_user_version(7)
""",
}


@sqlite_alone
class FullText(FieldTest):
    def setUp(self):
        super().setUp()
        for statement in (
                "CREATE VIRTUAL TABLE f5 USING fts5(body)",
                "CREATE VIRTUAL TABLE f4 USING fts4(body)",
                "CREATE TABLE doc(id INTEGER PRIMARY KEY, body TEXT)",
                "CREATE VIRTUAL TABLE ft USING fts5(body, content='doc', content_rowid='id')",
                "CREATE TRIGGER doc_ai AFTER INSERT ON doc BEGIN"
                " INSERT INTO ft(rowid, body) VALUES (new.id, new.body); END",
                "CREATE TRIGGER doc_ad AFTER DELETE ON doc BEGIN"
                " INSERT INTO ft(ft, rowid, body) VALUES ('delete', old.id, old.body); END",
                "CREATE TRIGGER doc_au AFTER UPDATE ON doc BEGIN"
                " INSERT INTO ft(ft, rowid, body) VALUES ('delete', old.id, old.body);"
                " INSERT INTO ft(rowid, body) VALUES (new.id, new.body); END"):
            self.sql(statement)

    def effects(self, task):
        self.write_conf("\n[task %s]%s" % (task, SEARCH[task]))
        job = self.enqueue(task)
        self.work()
        page = self.job(job)
        self.assertEqual(page["state"], "done", page)
        return [v for (v,) in self.sql("SELECT value FROM fx WHERE job_id = ? ORDER BY n", (job,))]

    def test_handler_may_write_and_search_an_fts5_table(self):
        self.assertEqual(self.effects("fts5"), ["one two"])
        self.assertEqual(self.sql("SELECT count(*) FROM f5"), [(0,)])

    def test_handler_may_write_a_table_whose_triggers_keep_an_fts5_index(self):
        self.assertEqual([str(v) for v in self.effects("content")], ["7"])
        self.sql("INSERT INTO ft(ft, rank) VALUES ('integrity-check', 1)")

    def test_handler_may_write_and_search_an_fts4_table(self):
        self.assertEqual(self.effects("fts4"), ["one two"])
        self.assertEqual(self.sql("SELECT body FROM f4"), [("three",)])

    def test_handler_may_read_the_schema_but_set_no_pragma(self):
        self.assertEqual(self.effects("schema"), ["id", "body"])
        self.write_conf("\n[task sets]" + SEARCH["sets"])
        job = self.enqueue("sets")
        self.pawl("work", "--until-empty")          # refused at the start, or the job is dead
        self.assertNotEqual(self.job(job)["state"], "done")
        self.assertEqual(self.sql("PRAGMA user_version"), [(0,)])


# Joins the worker's own process group, says so, and never ends.
DESERTER = """#!%s
import os, sys, time
os.setpgid(0, os.getpgid(os.getppid()))
with open("left.log", "a") as f:
    f.write("%%d\\n" %% os.getpid())
os.read(os.pipe()[0], 1)                       # its writing end is ours as well: for ever
""" % sys.executable


@each_store
class Deserter(FieldTest):
    concurrency = 1
    more = """
[task leave]
exec = ./leave.py
hard_limit = %ds
max_retries = 0

[task stay]
exec = ./leave.py
"""

    def setUp(self):
        super().setUp()
        self.script("leave.py", DESERTER)
        self.write_conf(self.more % (2 * SLOW))
        self.addCleanup(lambda: send(self.left(), signal.SIGKILL))

    def left(self):
        try:
            with open(os.path.join(self.dir, "left.log"), encoding="ascii") as f:
                return [int(line) for line in f if line.endswith("\n")]
        except FileNotFoundError:
            return []

    def test_child_that_left_its_group_is_killed_at_the_hard_limit(self):
        worker = self.worker()
        job, behind = self.enqueue("leave"), self.act("ok")
        self.wait_state(behind, "done")
        self.assertEqual(len(self.left()), 1, "it did not leave its group: no test")
        self.assertFalse(is_alive(self.left()[0]))
        page = self.job(job)
        self.assertEqual((page["state"], page["dead_class"]), ("dead", "exhausted"), page)
        self.assertEqual([a["outcome"] for a in page["attempts"]], ["timeout"])
        self.assertEqual(self.stop_worker(worker), 0)

    def test_child_that_left_its_group_is_ended_by_a_cancel(self):
        worker = self.worker()
        job = self.enqueue("stay")
        self.wait_until(self.left, 15, "the child left its group")
        self.ok("cancel", job)
        behind = self.act("ok")
        self.wait_state(behind, "done")
        self.wait_state(job, "cancelled")
        self.assertFalse(is_alive(self.left()[0]))
        self.assertEqual(self.stop_worker(worker), 0)


@each_store
class Unread(FieldTest):
    """stderr of a worker is a pipe that nobody reads."""
    more = """
[task bad-sql]
sql = INSERT INTO nn VALUES (NULL)

[task bad-exec]
exec = ./bad.sh
"""

    def setUp(self):
        super().setUp()
        self.sql("CREATE TABLE nn(x TEXT NOT NULL)")
        self.script("bad.sh", "#!/bin/sh\nexit 65\n")
        self.reader, writer = os.pipe()
        # The same pipe opened again: that we never wait must not say anything about the worker.
        self.filler = os.open("/proc/self/fd/%d" % writer, os.O_WRONLY | os.O_NONBLOCK)
        self.addCleanup(os.close, self.reader)
        self.addCleanup(os.close, self.filler)
        self.mute = subprocess.Popen([PAWL, "work"], cwd=self.dir, env=self.env(),
                                     stdin=subprocess.DEVNULL, stdout=writer, stderr=writer)
        os.close(writer)
        self.mute.log = os.devnull
        self.workers.append(self.mute)
        self.read_until(b"event=runner.ready", b"event=worker.ready")

    def read_until(self, *words):
        """Read the pipe until all the words have come by."""
        seen, end = b"", time.monotonic() + 15 * SLOW
        while not all(word in seen for word in words):
            left = end - time.monotonic()
            ready = select.select([self.reader], [], [], max(left, 0))[0]
            self.assertTrue(ready, "%s is not in the log: %s" % (words, seen[-2000:]))
            seen += os.read(self.reader, 65536)
        return seen

    def fill(self):
        for size in (4096, 1):
            try:
                while True:
                    os.write(self.filler, b"\n" * size)
            except BlockingIOError:
                pass

    def others_go_on(self, bad, good):
        self.fill()
        self.bulk({"task": bad} for _ in range(40))
        job = self.enqueue(good, '"ok"' if good == "act" else "{}")
        self.wait_until(lambda: self.count("dead", bad) == 40, 20, "the failing jobs are dead")
        self.wait_state(job, "done")
        second = self.worker()                      # a second one starts, works and ends
        more = [self.enqueue("effect"), self.act("ok")]
        for job in more:
            self.wait_state(job, "done")
        self.assertEqual(self.stop_worker(second), 0)
        # Read again: the log goes on, and says that something is missing.
        while select.select([self.reader], [], [], 0)[0]:
            os.read(self.reader, 65536)
        self.bulk({"task": bad} for _ in range(2))
        self.assertRegex(self.read_until(b"log.dropped", b"event=job.dead"),
                         rb"event=log.dropped lines=[1-9]")
        self.fill()
        self.assertEqual(self.stop_worker(self.mute), 0)

    def test_log_that_nobody_reads_stops_neither_sql_jobs_nor_others(self):
        self.others_go_on("bad-sql", "effect")

    def test_log_that_nobody_reads_stops_neither_exec_jobs_nor_others(self):
        self.others_go_on("bad-exec", "act")


if __name__ == "__main__":
    unittest.main()
