# SPDX-License-Identifier: Apache-2.0
"""test_bug_partial.py - a job that fails among many leaves nothing, whatever triggers wrote first.

Batches that follow many good jobs have no savepoint a job; a failed statement that wrote rows which
no counter shows (RAISE(FAIL), OR FAIL inside a trigger) must still turn them back."""
import json

from pawltest import PawlTest
from stores import sqlite_alone

TIMEOUT = 60
B = """CREATE TABLE b (id INTEGER PRIMARY KEY, k UNIQUE);
       INSERT INTO b VALUES (1, 10), (2, 20), (3, 30), (4, 31);
       CREATE TABLE a (x);"""
NO = """CREATE TRIGGER b_no BEFORE UPDATE ON b WHEN NEW.id = 3
        BEGIN SELECT RAISE(FAIL, 'no'); END;"""
A = """CREATE TRIGGER a_in BEFORE INSERT ON a WHEN NEW.x = 1
       BEGIN UPDATE b SET k = k + 1; END;"""
V = """CREATE VIEW v AS SELECT 1 AS x;
       CREATE TRIGGER v_in INSTEAD OF INSERT ON v WHEN NEW.x = 1
       BEGIN UPDATE b SET k = k + 1; END;"""
LATE = """CREATE TRIGGER b_late AFTER UPDATE ON b
          BEGIN SELECT RAISE(FAIL, 'no') WHERE NEW.id = 2; END;"""


@sqlite_alone
class Partial(PawlTest):
    def dead_job_leaves_nothing(self, schema, statement):
        db = self.connect()
        db.executescript(B + schema + "CREATE TABLE fx (job INTEGER);")
        db.close()
        before = self.sql("SELECT id, k FROM b ORDER BY id")
        self.conf("[task t]\nsql = %s\nsql = INSERT INTO fx VALUES (:job_id)\n" % statement)
        lines = [{"task": "t", "args": {"x": 1 if i == 600 else 0}} for i in range(1200)]
        self.ok("enqueue", "--bulk", "-", stdin="".join(json.dumps(x) + "\n" for x in lines))
        self.work()
        self.assertEqual(self.sql("SELECT id, dead_class FROM pawl_jobs WHERE state <> 'done'"),
                         [(601, "permanent")])
        self.assertEqual(self.sql("SELECT id, k FROM b ORDER BY id"), before)
        self.assertEqual(self.sql("SELECT count(*), count(DISTINCT job) FROM fx"), [(1199, 1199)])

    def test_trigger_of_a_trigger_raises_fail(self):
        self.dead_job_leaves_nothing(NO + A, "INSERT INTO a VALUES (:x)")

    def test_or_fail_reaches_into_a_trigger(self):
        self.dead_job_leaves_nothing(A, "INSERT OR FAIL INTO a VALUES (:x)")

    def test_trigger_of_a_view_raises_fail(self):
        self.dead_job_leaves_nothing(NO + V, "INSERT INTO v SELECT :x")

    def test_trigger_after_the_row_raises_fail(self):
        self.dead_job_leaves_nothing(LATE + A, "INSERT INTO a VALUES (:x)")

    def test_statement_itself_fails_half_way(self):
        self.dead_job_leaves_nothing("", "UPDATE OR FAIL b SET k = k + 1 WHERE :x = 1")
