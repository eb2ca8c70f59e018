#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""test_bug_side.py - what once went wrong around the files beside the database: two names of one
file, files taken away, odd entries, several users, an encoding that is not ours."""
import os
import shutil
import socket
import sqlite3
import subprocess
import unittest

from fieldkit import FX, FieldTest
from pawltest import PAWL, SLOW, PawlTest
from stores import each_store, sqlite_alone

TIMEOUT = 90

EARLY = """
[task early]
exec = ./act.sh
env.BIN = %s
ack = early
""" % PAWL


class SideTest(FieldTest):
    more = EARLY

    def setUp(self):
        super().setUp()
        if self.make_store:
            self.ok("stats")                        # on a server the first one to come makes it
        self.side = self.store.side()

    def worker_files(self):
        return [n for n in os.listdir(self.side) if n.startswith("w-")]

    def wait_running(self, *jobs):
        for job in jobs:
            self.wait_state(job, "running")
            self.wait_attempts(job, 1)

    def charged(self, job):
        page = self.job(job)
        return page["lost"], page["failures"]


@sqlite_alone
class TwoNames(SideTest):
    def test_one_database_by_two_names_is_one_store(self):
        os.mkdir(os.path.join(self.dir, "other"))
        link = os.path.join(self.dir, "other", "alias.db")
        os.symlink(self.db, link)
        first = self.worker("-n", "1")
        long_one = self.act("wait:go")
        self.wait_running(long_one)
        second = self.worker("-n", "1", "--db", "sqlite:" + link)
        behind = self.enqueue("act", '"1/wait:never"', "--db", "sqlite:" + link)
        self.wait_running(behind)
        self.assertEqual(self.charged(long_one), (0, 0))
        self.assertEqual(os.listdir(os.path.join(self.dir, "other")), ["alias.db"])
        self.assertEqual(len(self.worker_files()), 2)
        # The first sees that the second is dead, and the second's successor that the first lives.
        self.kill_all(second)
        self.wait_until(lambda: self.job(behind)["lost"] == 1, 15, "the dead worker's job is back")
        third = self.worker("-n", "1", "--db", "sqlite:" + link)
        self.wait_state(behind, "done")
        self.assertEqual(self.job(long_one)["state"], "running")
        self.touch("go")
        self.wait_state(long_one, "done")
        self.assertEqual((self.job(long_one)["runs"], self.charged(long_one)), (1, (0, 0)))
        self.assertEqual(len(self.attempts(long_one)), 1)
        self.assertEqual([self.stop_worker(w) for w in (first, third)], [0, 0])


@each_store
class TakenAway(SideTest):
    """The side directory, or a worker's file in it, goes while the worker runs."""

    def taken_away(self, take):
        with open(os.path.join(self.dir, "pawl.conf"), encoding="utf-8") as f:
            text = f.read()
        self.conf(text.replace("grace = 5s", "grace = 1s"))     # less than a lease
        first = self.worker()
        job, early = self.act("wait:go"), self.enqueue("early", '"wait:go"')
        self.wait_running(job, early)
        take()
        second = self.worker()
        self.assertEqual(first.wait(20 * SLOW), 74, self.log(first))
        self.assertIn("others have taken this worker for dead (its side directory was removed",
                      self.log(first))
        self.touch("go")
        self.wait_state(job, "done")
        self.wait_until(lambda: self.job(early)["state"] in ("done", "dropped"), 15, "its end")
        self.assertEqual(self.charged(job), (0, 0))
        self.assertEqual(self.charged(early)[1], 0)
        page = self.job(early)
        self.assertEqual((page["runs"], len(self.attempts(early))), (1, 1))
        self.assertNotIn("poison", self.log(first) + self.log(second))
        self.assertEqual(self.stop_worker(second), 0)

    def test_worker_whose_side_directory_is_removed_gives_its_jobs_back_uncharged(self):
        self.taken_away(lambda: shutil.rmtree(self.side))

    def test_worker_whose_file_is_removed_gives_its_jobs_back_uncharged(self):
        def take():
            for name in self.worker_files():
                os.unlink(os.path.join(self.side, name))
        self.taken_away(take)

    def test_worker_whose_file_is_damaged_is_not_taken_for_dead(self):
        first = self.worker("-n", "1")
        job = self.act("wait:go")
        self.wait_running(job)
        (name,) = self.worker_files()
        with open(os.path.join(self.side, name), "r+b", buffering=0) as f:
            f.write(b"\0" * 8)
        behind = self.act("ok")
        second = self.worker("-n", "1")             # looks at the others before it claims
        self.wait_state(behind, "done")
        page = self.job(job)
        self.assertEqual((page["state"], page["attempts_n"], page["lost"]), ("running", 0, 0))
        self.touch("go")
        self.wait_state(job, "done")
        self.assertEqual(len(self.attempts(job)), 1)
        self.assertEqual([self.stop_worker(w) for w in (first, second)], [0, 0])


@each_store
class OddEntries(SideTest):
    def test_odd_entry_in_the_side_directory_does_not_stop_recovery(self):
        names = [os.path.join(self.side, "w-%016x" % i) for i in (0, 2**63, 2**64 - 1, 1)]
        os.mkdir(names[0])
        os.symlink(names[1], names[1])
        with socket.socket(socket.AF_UNIX) as s:
            home = os.getcwd()
            os.chdir(self.side)                     # a socket's name is short
            s.bind(os.path.basename(names[2]))
            os.chdir(home)
        os.mkfifo(names[3])
        first = self.worker()
        jobs = [self.act("1/wait:never") for _ in range(2)]
        self.wait_running(*jobs)
        self.kill_all(first)
        second = self.worker()
        for job in jobs:
            self.wait_state(job, "done")
            self.assertEqual((self.job(job)["runs"], self.charged(job)), (2, (0, 0)))
        self.assertNotIn("event=store.trouble", self.log(second))
        self.assertEqual(self.stop_worker(second), 0)


@sqlite_alone
class TwoUsers(SideTest):
    make_store = False
    users, group = (60001, 60002), 60100

    def as_user(self, i, umask, *words, **more):
        """Start the binary as one of two users who have only the group in common."""
        return subprocess.Popen([PAWL, *words], cwd=self.dir, env=self.env(), user=self.users[i],
                                group=self.users[i], extra_groups=[self.group], umask=umask,
                                stdin=subprocess.DEVNULL, **more)

    def setUp(self):
        if os.geteuid() != 0:
            self.skipTest("to start processes as two other users one must be root")
        super().setUp()
        above = os.path.dirname(self.dir)
        while "pawl-test-" in above:                # the runner's own directories, closed to others
            os.chmod(above, 0o711)
            above = os.path.dirname(above)
        os.chown(self.dir, self.users[0], self.group)
        os.chmod(self.dir, 0o2775)                  # what is made inside belongs to the group
        with open(os.path.join(self.dir, "attempts.log"), "wb") as f:
            os.fchmod(f.fileno(), 0o666)
        try:
            init = self.as_user(0, 0o002, "init", stdout=subprocess.DEVNULL)
        except PermissionError:
            self.skipTest("another user cannot start %s" % os.path.basename(PAWL))
        self.assertEqual(init.wait(30 * SLOW), 0)
        os.chmod(self.db, 0o664)
        for statement in FX.split(";"):
            self.sql(statement)

    def user_worker(self, i, umask):
        path = os.path.join(self.dir, "worker-%d.log" % len(self.workers))
        with open(path, "wb") as log:
            worker = self.as_user(i, umask, "work", stdout=log, stderr=log)
        worker.log = path
        self.workers.append(worker)
        self.wait_log(worker, "event=worker.ready")
        return worker

    def test_users_of_one_group_recover_each_others_jobs(self):
        first = self.user_worker(0, 0o077)          # its umask must not shut the group out
        job, behind = self.act("1/wait:never"), self.act("wait:go")
        self.wait_running(job, behind)
        second = self.user_worker(1, 0o022)
        third = self.act("ok")
        self.wait_state(third, "done")
        self.kill_all(first)
        self.wait_state(job, "done")
        self.touch("go")
        self.wait_state(behind, "done")
        self.assertIsNone(second.poll(), self.log(second))
        for name in os.listdir(self.side):
            at = os.stat(os.path.join(self.side, name))
            self.assertEqual((at.st_gid, at.st_mode & 0o777), (self.group, 0o664), name)
        self.assertEqual(self.stop_worker(second), 0)


@sqlite_alone
class Encoding(PawlTest):
    make_store = check_at_end = False               # no store comes of it

    def test_init_refuses_a_utf16_database(self):
        for encoding in ("UTF-16le", "UTF-16be"):
            self.db = os.path.join(self.dir, encoding)
            db = sqlite3.connect(self.db, isolation_level=None)
            db.execute("PRAGMA encoding = '%s'" % encoding)
            db.execute("CREATE TABLE mine(a)")
            self.fails(78, "init", says="%s database.*encoding is UTF-8" % encoding)
            self.assertEqual(db.execute("SELECT name FROM sqlite_schema").fetchall(), [("mine",)])
            db.close()


if __name__ == "__main__":
    unittest.main()
