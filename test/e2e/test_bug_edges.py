# SPDX-License-Identifier: Apache-2.0
"""test_bug_edges.py - an attack's and a newcomer's smaller findings: what the verbs say and do."""
import os
import shutil
import sqlite3
import subprocess

from pawltest import PAWL, PawlTest
from stores import each_store, sqlite_alone

NOBODY = 65534


@sqlite_alone
class Check(PawlTest):
    def foreign_schema(self):
        """A table that needs a collation of somebody's program."""
        db = self.connect()
        db.create_collation("mycoll", lambda a, b: (a > b) - (a < b))
        db.executescript("CREATE TABLE coll(x TEXT COLLATE mycoll); CREATE INDEX ci ON coll(x);"
                         "INSERT INTO coll VALUES ('b'), ('a')")
        db.close()

    def test_a_collation_that_pawl_has_not(self):
        """The invariants are read all the same, and decide the exit code."""
        self.foreign_schema()
        out = self.ok("check")
        self.assertRegex(out, "(?m)^file check: not run: no such collation sequence: mycoll$")
        self.assertRegex(out, r"(?m)^the \d+ invariants that SQL can state hold$")
        rows = self.json("check")
        self.assertEqual((rows[0]["not_run"], rows[-1]["findings"], rows[-1]["not_run"]),
                         ("file check", 0, 1))
        self.assertIn("mycoll", rows[0]["why"])
        self.sql("INSERT INTO pawl_x_dropped SELECT 77, 'lost', 'r', NULL, NULL, 1,0,0,0,0,0, NULL")
        done = self.pawl("check")
        self.assertEqual(done.code, 1, done)
        self.assertRegex(done.out, r"(?m)^I2: .*\(job 77\)$")
        self.assertRegex(done.out, "(?m)^file check: not run: ")
        self.sql("DELETE FROM pawl_x_dropped")

    def test_the_file_is_checked_outside_of_the_snapshot_of_the_invariants(self):
        """What is damaged is found there, too."""
        self.sql("CREATE TABLE t(x INTEGER CHECK (x > 0))")
        db = self.connect()
        db.execute("PRAGMA ignore_check_constraints = ON")
        db.execute("INSERT INTO t VALUES (-1)")
        db.close()
        done = self.pawl("check")
        self.assertEqual(done.code, 1, done)
        self.assertRegex(done.out, "(?m)^FILE: .*CHECK constraint failed in t")
        self.sql("DELETE FROM t")


@each_store
class Queues(PawlTest):
    def setUp(self):
        super().setUp()
        self.conf("[task t]\nexec = true\n[task s]\nexec = true\nqueue = special\n")
        self.enqueue("t")

    def test_work_names_the_nearest_queue_and_goes_on(self):
        done = self.work("-q", "defualt")
        self.assertRegex(done.err,
                         '(?m)^\\S+ warn event=worker.no_queue queue=defualt why=.* default"$')
        self.assertEqual(done.err.count("worker.no_queue"), 1)
        done = self.work("-q", "nowhere,special")
        self.assertRegex(done.err, 'event=worker.no_queue queue=nowhere why="no queue of this name'
                         ' in the store yet"')
        self.assertEqual(done.err.count("worker.no_queue"), 1)  # special: the configuration has it
        self.assertNotIn("no_queue", self.work("-q", "default").err)

    def test_a_queue_may_come_into_being_later(self):
        worker = self.start_worker("-q", "later")
        self.wait_until(lambda: "event=worker.ready" in self.log(worker), 20, "the worker is ready")
        self.assertIn("event=worker.no_queue queue=later", self.log(worker))
        self.wait_state(self.enqueue("t", "{}", "--queue", "later"), "done")
        self.assertEqual(self.stop_worker(worker), 0)

    def test_jobs_and_pause(self):
        done = self.pawl("jobs", "--queue", "defualt")
        self.assertEqual((done.code, done.out), (0, ""), done)
        self.assertEqual(done.err, "pawl jobs: warning: no queue 'defualt' in this store yet; the"
                         " nearest is 'default'\n")
        self.assertEqual(self.pawl("jobs", "--queue", "default", "--state", "dead").err, "")
        self.fails(1, "pause", "defualt", says='no queue "defualt" .*; the nearest is default')
        self.fails(1, "resume", "zzz", says='no queue "zzz" in this store$')


@sqlite_alone
class Denied(PawlTest):
    """Not root: a directory in which this user may not write."""
    check_at_end = False

    def setUp(self):
        super().setUp()
        self.sub = os.path.join(self.dir, "data")
        os.mkdir(self.sub)
        above = self.dir
        while "pawl-test-" in above:                # the runner's own directories, closed to others
            os.chmod(above, 0o711)
            above = os.path.dirname(above)
        self.db = os.path.join(self.sub, "shop.db")
        self.addCleanup(os.chmod, self.sub, 0o755)

    def as_nobody(self, *words):
        """One line of standard error, and the exit code."""
        more = {"user": NOBODY, "group": NOBODY, "extra_groups": []} if os.geteuid() == 0 else {}
        try:
            done = subprocess.run([PAWL, *words], capture_output=True, env=self.env(), text=True,
                                  cwd="/", timeout=30, **more)
        except PermissionError:
            self.skipTest("another user cannot start %s" % os.path.basename(PAWL))
        self.assertEqual(len(done.stderr.splitlines()), 1, done)
        return done.returncode, done.stderr

    def readable_store(self):
        self.ok("init")
        self.enqueue("t")
        os.chmod(self.db, 0o666)

    def test_the_directory_cannot_be_written(self):
        self.readable_store()
        for name in os.listdir(self.sub):
            if name.endswith(("-wal", "-shm")):
                os.unlink(os.path.join(self.sub, name))
        os.chmod(self.sub, 0o555)
        for words in (["jobs"], ["job", "1"], ["stats"], ["queues"], ["check"], ["enqueue", "t"],
                      ["prune"], ["init"]):
            with self.subTest(words=words):
                code, err = self.as_nobody(*words)
                self.assertEqual(code, 77, err)
                self.assertIn("cannot write in its directory %s: Permission denied" % self.sub, err)
                self.assertIn("even who reads needs write permission on it", err)
                self.assertNotIn("not a Pawl store", err)

    def test_the_side_directory_cannot_be_made(self):
        self.readable_store()
        shutil.rmtree(self.db + "-pawl")
        keep = sqlite3.connect(self.db)                 # -wal and -shm are there, for everybody
        self.addCleanup(keep.close)
        keep.execute("SELECT count(*) FROM pawl_jobs").fetchall()
        for tail in "-wal", "-shm":
            os.chmod(self.db + tail, 0o666)
        os.chmod(self.sub, 0o555)
        code, err = self.as_nobody("jobs")
        self.assertEqual(code, 77, err)
        self.assertIn("cannot write in its directory %s: Permission denied" % self.sub, err)

    def test_the_side_directory_cannot_be_used(self):
        self.readable_store()
        os.chmod(self.sub, 0o777)
        os.chmod(self.db + "-pawl", 0o700)
        if os.geteuid() != 0:
            self.skipTest("only root can be somebody else")
        code, err = self.as_nobody("stats")
        self.assertEqual(code, 77, err)
        self.assertRegex(err, "side directory .*shop.db-pawl: Permission denied; this user needs to"
                         " read and write it and what is in it")

    def test_nothing_can_be_created_there(self):
        os.chmod(self.sub, 0o555)
        code, err = self.as_nobody("init")
        self.assertEqual(code, 73, err)
        self.assertIn("cannot create %s: its directory %s: Permission denied" % (self.db, self.sub),
                      err)
        self.db = os.path.join(self.sub, "none", "shop.db")
        code, err = self.as_nobody("init")
        self.assertEqual(code, 73, err)
        self.assertIn("its directory %s: No such file or directory" % os.path.dirname(self.db), err)


@each_store
class Waiting(PawlTest):
    def test_a_worker_that_waits_for_the_store_is_not_called_frozen(self):
        """It stamps while it waits, longer than its lease: others take nothing from it."""
        self.conf("[pawl]\nlease = 1s\n[task t]\nexec = ./wait.sh\n")
        os.mkfifo(os.path.join(self.dir, "go"))
        self.script("wait.sh", "#!/bin/sh\nread -r line <go\n")
        worker = self.start_worker()
        job = self.enqueue("t")
        self.wait_state(job, "running")
        db = self.connect()
        self.store.keep_out(db)
        with open(os.path.join(self.dir, "go"), "w", encoding="ascii") as go:
            go.write("on\n")
        self.wait_until(lambda: "event=store.trouble" in self.log(worker), 30, "it gave up waiting")
        db.execute("ROLLBACK")
        self.wait_state(job, "done")
        self.assertEqual(self.stop_worker(worker), 0)
        self.assertNotIn("worker.frozen", self.log(worker))
        self.assertNotIn("worker.gone", self.log(worker))


@sqlite_alone
class Words(PawlTest):
    """What a newcomer stumbled over: an error says which value, and all that may stand there."""

    def test_numbers_and_instants(self):
        self.fails(64, "enqueue", "t", "--version", "x", says="a whole number of at most 64 bits")
        self.fails(64, "jobs", "--limit", "x", says="must be a whole number, 0 or more")
        self.fails(64, "dead", "list", "--since", "yesterday", says="duration .*, or an RFC 3339")
        self.assertIn("whole number of at most 64 bits",
                      self.pawl("enqueue", "--bulk", "-", stdin='{"task":"t","version":"x"}\n').err)
        self.fails(64, "help", "foo", says="no verb 'foo'")

    def test_where_the_store_is(self):
        env = self.env()
        del env["PAWL_DB"]
        elsewhere = os.path.join(self.dir, "elsewhere")
        os.mkdir(elsewhere)
        self.fails(69, "jobs", env=env, cwd=elsewhere,
                   says="no store at pawl.db; run pawl init, or name yours with --db or -c$")
        with open(os.path.join(elsewhere, "letter.db"), "w", encoding="ascii") as f:
            f.write("Dear reader, this is no database.\n" * 40)
        for verb in "init", "jobs":
            self.fails(78, verb, "--db", os.path.join(elsewhere, "letter.db"),
                       says="letter.db is not an SQLite database$")
        self.conf("[pawl]\ndb = mysql:shop.db\n[task t]\nexec = true\n")
        self.fails(78, "jobs", env=env, says="db = mysql:shop.db: must be sqlite:PATH")
        os.unlink(os.path.join(self.dir, "pawl.conf"))

    def test_a_foreign_lock(self):
        """The other program is named as the reason, not a process of pawl's."""
        db = self.connect()
        db.execute("BEGIN IMMEDIATE")
        self.fails(75, "enqueue", "t", says="database is locked by another program's transaction")
        db.execute("ROLLBACK")
