# SPDX-License-Identifier: Apache-2.0
"""test_bug_doors.py - what an attack found at the doors: what plain SQL must do as the command."""
import json
import sqlite3
import time

from pawltest import SLOW, PawlTest
from stores import sqlite_alone

TIMEOUT = 120


def text_of(size):
    """JSON of exactly so many bytes, with characters of one to four bytes at every offset."""
    if size == 1:
        return "7"
    body = "a\u00e9\u20ac\U0001f600" * (size // 10 + 1)
    body = body.encode()[:size - 2].decode("utf-8", "ignore")
    return '"' + body + "x" * (size - 2 - len(body.encode())) + '"'


@sqlite_alone
class Pruned(PawlTest):
    """The ledger keeps a hash of args whose job was pruned: C wrote it, SQL must find the same."""

    SIZES = [*range(1, 20), *range(250, 260), *range(505, 520), *range(1020, 1030), 4096, 4097,
             65536, 100001, 1048575, 1048576]

    def setUp(self):
        super().setUp()
        self.conf("[task t]\nsql = SELECT 1\n")
        lines = ['{"task":"t","key":"%d","args":%s}\n' % (n, text_of(n)) for n in self.SIZES]
        self.ok("enqueue", "--bulk", "-", stdin="".join(lines))
        self.work()
        self.ok("prune", "--done-older", "0s")
        self.assertEqual(self.sql("SELECT count(*) FROM pawl_jobs"), [(0,)])

    def test_duplicate_of_a_pruned_key_in_plain_sql(self):
        """Every size gets the answer of its own job; one other byte, the first or the last, does
        not. And it does not take for ever: the writer holds the lock of everybody."""
        db = self.connect()
        for job, size in enumerate(self.SIZES, 1):
            args = text_of(size)
            self.assertEqual(len(args.encode()), size)
            began = time.monotonic()
            with self.subTest(size=size):
                db.execute("BEGIN IMMEDIATE")
                db.execute("INSERT INTO pawl_enqueue(task, args, key) VALUES ('t', ?, ?)",
                           (args, str(size)))
                self.assertEqual(db.execute("SELECT id, created FROM pawl_last").fetchall(),
                                 [(job, 0)])
                db.execute("COMMIT")
                self.assertLess(time.monotonic() - began, 15 * SLOW)
        for size in [n for n in self.SIZES if 3 < n < 5000]:
            args = text_of(size)
            for other in args[0] + "y" + args[2:], args[:-2] + "\x7f" + args[-1]:
                other = other if len(other.encode()) == size else None
                if other is None:
                    continue
                with self.subTest(size=size), self.assertRaisesRegex(Exception, "other args"):
                    db.execute("INSERT INTO pawl_enqueue(task, args, key) VALUES ('t', ?, ?)",
                               (other, str(size)))
        self.assertEqual(json.loads(self.ok("stats", "--json"))["ready"], 0)


@sqlite_alone
class Hardened(PawlTest):
    """What doc/schema.md says of PRAGMA trusted_schema = OFF."""

    def test_trusted_schema_off(self):
        """It closes the door of an SQLite 3.40; switched on again it opens, and reading goes on."""
        db = self.connect()
        insert = ("INSERT INTO pawl_enqueue(task, args, headers)"
                  " VALUES ('t', '[1]', '{\"h\":\"v\"}')")
        db.execute("PRAGMA trusted_schema = OFF")
        if sqlite3.sqlite_version_info[:2] == (3, 40):
            with self.assertRaisesRegex(sqlite3.Error, "unsafe use of json"):
                db.execute(insert)
        self.assertEqual(db.execute("SELECT count(*) FROM pawl_jobs").fetchall(), [(0,)])
        db.execute("PRAGMA trusted_schema = ON")
        db.execute(insert)
        db.execute("PRAGMA trusted_schema = OFF")
        self.assertEqual(db.execute("SELECT task, args FROM pawl_jobs").fetchall(), [("t", "[1]")])

    def test_trusted_schema_off_with_the_sqlite_of_pawl(self):
        """A task may enqueue there: the bundled SQLite knows its JSON functions for harmless."""
        if "bundled" not in self.ok("--version"):
            self.skipTest("this pawl is linked to the system's SQLite")
        self.conf("[pawl]\non_connect = PRAGMA trusted_schema = OFF\n"
                  "[task t]\nsql = INSERT INTO pawl_enqueue(task, args) VALUES ('next', '{}')\n")
        job = self.enqueue("t")
        self.work()
        self.assertEqual(self.job(job)["state"], "done")
        self.assertEqual([j["task"] for j in self.json("jobs", "--state", "ready")], ["next"])
