#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""test_case_trouble.py - field cases of a store in trouble: disk full, every kind of bad file.
71 74."""
import os
import random
import re
import shutil
import signal
import sqlite3
import subprocess
import tempfile
import time
import unittest

from fieldkit import FieldTest, uptime
from pawltest import PAWL, SLOW, PawlTest
from stores import sqlite_alone

TIMEOUT = 120

PAD = """
[task pad]
sql = INSERT INTO fx(job_id, attempt, key, value)
      VALUES (:job_id, :job_attempt, :job_key, zeroblob(30000))
"""


@sqlite_alone
class Full(FieldTest):
    """The store is on a file system of 8 MiB of its own."""
    make_store = False
    more = PAD

    def setUp(self):
        super().setUp()
        self.mnt = os.path.join(self.dir, "small")
        os.mkdir(self.mnt)
        done = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", self.mnt],
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        if done.returncode != 0:
            self.db = os.path.join(self.dir, "none")
            self.skipTest("a tmpfs of our own cannot be mounted (needs root)")
        self.addCleanup(subprocess.run, ["umount", "-l", self.mnt])
        self.db = os.path.join(self.mnt, "shop.db")
        self.ok("init")
        self.sql("CREATE TABLE fx(n INTEGER PRIMARY KEY, job_id INTEGER, attempt INTEGER,"
                 " key TEXT, value)")
        self.write_conf()
        path = os.path.join(self.dir, "pawl.conf")
        with open(path, encoding="utf-8") as f:
            text = f.read()
        self.conf(text.replace("sqlite:shop.db", "sqlite:small/shop.db"))

    def fill(self):
        with open(os.path.join(self.mnt, "filler"), "ab", buffering=0) as f:
            try:
                while f.write(b"x" * 4096):
                    pass
            except OSError:
                pass

    def free(self):
        os.unlink(os.path.join(self.mnt, "filler"))

    def enqueue_until_full(self):
        """What was acknowledged before the first refusal; asserts how that one looks."""
        accepted = []
        for i in range(300):
            done = self.pawl("enqueue", "effect", "-", "--key", "f%d" % i,
                             stdin='{"value":"%s"}' % ("v" * 60000))
            if done.code != 0:
                break
            accepted.append(done.out.strip())
        self.assertEqual(done.code, 75, done)
        self.assertEqual(len(done.err.splitlines()), 1, done)
        self.assertRegex(done.err, r"full|[Nn]o space")
        self.assertEqual(done.out, "")
        return accepted

    def case_71_full_disk_is_said_backed_off_from_and_survived_without_a_restart(self):
        before = [self.enqueue("pad") for _ in range(3)]
        hung = self.act("wait:go who")
        worker = self.worker()
        self.wait_attempts(hung, 1)
        self.wait_until(lambda: self.count("done") == 3, 15, "all is well at first")
        self.fill()
        accepted = self.enqueue_until_full()
        have = {str(r[0]) for r in self.sql("SELECT id FROM pawl_jobs")}
        self.assertEqual(have, set(before + [hung] + accepted))         # nothing half-stored
        self.ok("stats")
        self.ok("check")
        self.touch("go")                    # a program ends now: its result cannot be stored yet
        self.wait_log(worker, "event=store.trouble", 20)
        said_at = uptime()
        self.wait_until(lambda: uptime() - said_at > 6, 10, "some retries")
        trouble = [line for line in self.log(worker).splitlines()
                   if re.search(" (warn|error) ", line)]
        self.assertLessEqual(len(trouble), 4, "a hot loop:\n" + "\n".join(trouble[:20]))
        self.assertRegex(trouble[0], r"full|[Nn]o space")
        self.assertIsNone(worker.poll())
        self.free()
        freed_at = uptime()
        late = self.enqueue("effect", "{}")
        self.wait_until(lambda: self.count("done") == len(have) + 1, 15, "all is done")
        self.assertLess(uptime() - freed_at, 5 + 2 * SLOW)
        self.assertEqual(len(self.attempts(hung)), 1)
        self.assertEqual(self.job(hung)["result"].split()[1], "1")
        self.assert_each_once(before + accepted + [late])
        self.assertEqual(self.sql("SELECT sum(failures + lost) FROM pawl_jobs"), [(0,)])
        self.assertEqual(self.stop_worker(worker), 0)

    def case_71_worker_that_starts_on_a_full_disk_says_so(self):
        keeper = self.connect()                 # the log and its index are there already
        keeper.execute("SELECT count(*) FROM fx").fetchone()
        self.work()                         # the tasks are declared: nothing to write at the start
        job = self.enqueue("effect", "{}")
        self.fill()
        worker = self.start_worker("--until-empty")
        code = worker.wait(30 * SLOW)
        self.assertIn(code, (0, 74, 75), self.log(worker))
        if code != 0:
            last = [line for line in self.log(worker).splitlines() if line.startswith("pawl")]
            self.assertEqual(len(last), 1, self.log(worker))
            self.assertRegex(last[0], r"full|[Nn]o space")
        self.free()
        self.work()
        self.assert_each_once([job])

    def case_71_full_disk_in_the_middle_of_an_sql_job_costs_it_nothing(self):
        jobs = [self.enqueue("pad", "{}", "--in", "2s") for _ in range(40)]
        worker = self.worker()
        self.fill()
        self.wait_log(worker, "event=store.trouble", 20)
        self.assertRegex(self.log(worker), r"event=store.trouble .*(full|[Nn]o space)")
        self.free()
        self.wait_until(lambda: self.count("done") == 40, 20, "all are done")
        self.assert_each_once(jobs)
        self.assertEqual(self.sql("SELECT sum(failures + lost) FROM pawl_jobs"), [(0,)])
        self.assertEqual(self.stop_worker(worker), 0)


class Files(PawlTest):
    make_store = False
    check_at_end = False                        # each case asks for it where there is a store

    def whole(self, db):
        """The store works completely."""
        env = self.env(PAWL_DB="sqlite:" + db)
        done = self.pawl("enqueue", "t", "{}", env=env)
        self.assertEqual(done.code, 0, done)
        done = self.pawl("check", env=env)
        self.assertEqual(done.code, 0, done)

    def refused(self, db, codes, *words, says=None, prefix=()):
        """Stops with one precise sentence; the file is as it was."""
        before = self.content(db)
        done = subprocess.run([*prefix, self.binary(), *words], cwd=self.dir,
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, timeout=60 * SLOW,
                              env=self.env(PAWL_DB="sqlite:" + db))
        err = done.stderr.decode()
        self.assertIn(done.returncode, codes, (words, err))
        self.assertEqual(len(err.splitlines()), 1, (words, err))
        self.assertTrue(err.startswith("pawl"), err)
        self.assertIn(os.path.basename(db), err)
        if says:
            self.assertRegex(err, says)
        self.assertEqual(self.content(db), before, "%s changed a file that it refused" % (words,))
        return err

    def binary(self):
        return PAWL

    def content(self, path):
        if not os.path.isfile(path):
            return os.path.isdir(path) and sorted(os.listdir(path))
        with open(path, "rb") as f:
            return f.read()


@sqlite_alone
class First(Files):
    """Case 74: a store that is half born, or no store at all."""

    def case_74_kill_right_after_the_first_start_never_leaves_a_broken_store(self):
        rng = random.Random(74)
        seen = set()
        for i in range(60):
            db = os.path.join(self.dir, "s%d.db" % i)
            env = self.env(PAWL_DB="sqlite:" + db)
            p = subprocess.Popen([PAWL, "init"], env=env, stdout=subprocess.DEVNULL,
                                 stderr=subprocess.DEVNULL)
            time.sleep(rng.random() * 0.05)     # the moment of the kill is the point
            p.kill()
            p.wait()
            done = self.pawl("enqueue", "t", "{}", env=env)
            self.assertIn(done.code, (0, 69), done)
            if done.code == 69:
                self.assertIn("run pawl init", done.err)
            seen.add((p.returncode, done.code))
            done = self.pawl("init", env=env)
            self.assertEqual(done.code, 0, done)
            self.whole(db)
        self.assertIn((-signal.SIGKILL, 69), seen,
                      "no kill came early enough: this run proved nothing")

    def case_74_kill_at_each_step_of_the_first_start(self):
        for point in ("init.begin", "init.middle", "init.end"):
            db = os.path.join(self.dir, point + ".db")
            env = self.env(PAWL_DB="sqlite:" + db, PAWL_FAILPOINT=point + "=kill")
            self.assertEqual(self.pawl("init", env=env).code, -signal.SIGKILL)
            self.assertEqual(self.pawl("init", env=self.env(PAWL_DB="sqlite:" + db)).code, 0)
            self.whole(db)

    def case_74_kill_in_the_first_enqueue_loses_only_what_was_not_acknowledged(self):
        rng = random.Random(740)
        db = os.path.join(self.dir, "shop.db")
        self.ok("init")
        accepted = 0
        for i in range(60):
            p = subprocess.Popen([PAWL, "enqueue", "t", "{}", "--key", "k%d" % i], env=self.env(),
                                 stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
            time.sleep(rng.random() * 0.03)
            p.kill()
            accepted += p.communicate()[0].strip() != b""
        self.assertGreaterEqual(self.json("stats")[0]["ready"], accepted)
        self.whole(db)

    def case_74_empty_file_becomes_a_store_only_by_init(self):
        db = os.path.join(self.dir, "empty.db")
        with open(db, "wb"):
            pass
        self.refused(db, (69,), "enqueue", "t", says="run pawl init")
        self.assertEqual(self.pawl("init", env=self.env(PAWL_DB="sqlite:" + db)).code, 0)
        self.whole(db)

    def case_74_file_that_is_no_database_is_refused_and_left_alone(self):
        self.conf("[pawl]\n\n[task t]\nexec = true\n")
        contents = {"zeros": b"\0" * 4096, "text": b"notes of another program\n" * 500,
                    "other": b"\x7fELF" + os.urandom(9000), "short": b"a short note"}
        for name, content in contents.items():
            db = os.path.join(self.dir, name + ".db")
            with open(db, "wb") as f:
                f.write(content)
            for words in (["enqueue", "t"], ["init"], ["work"], ["stats"], ["check"]):
                with self.subTest(file=name, verb=words[0]):
                    self.refused(db, (73, 78), *words, says="not a (database|Pawl)|database")
            self.assertFalse(os.path.exists(db + "-pawl"), "a side directory beside a foreign file")

    def case_74_truncated_store_is_refused_and_left_alone(self):
        self.conf("[pawl]\n\n[task t]\nexec = true\n")
        self.ok("init")
        line = '{"task":"t","args":{"x":"%s"}}\n' % ("y" * 900)
        self.ok("enqueue", "--bulk", "-", stdin=line * 500)
        size = os.path.getsize(self.db)
        for share in (0.1, 0.5, 0.9):
            db = os.path.join(self.dir, "cut%d.db" % (share * 10))
            shutil.copy(self.db, db)
            os.truncate(db, int(size * share) // 4096 * 4096)
            for words in (["enqueue", "t"], ["init"], ["work"], ["stats"]):
                with self.subTest(share=share, verb=words[0]):
                    self.refused(db, (73, 78), *words, says="malformed|damaged|truncated")

    def case_74_missing_shared_index_is_made_anew(self):
        self.ok("init")
        keeper = sqlite3.connect(self.db, isolation_level=None)
        keeper.execute("SELECT count(*) FROM pawl_jobs").fetchone()
        self.ok("enqueue", "t", "{}")
        copy = os.path.join(self.dir, "copy.db")    # as a kill -9 would leave it, less the -shm
        shutil.copy(self.db, copy)
        shutil.copy(self.db + "-wal", copy + "-wal")
        keeper.close()
        self.assertGreater(os.path.getsize(copy + "-wal"), 0)
        self.assertEqual(self.json("stats", env=self.env(PAWL_DB="sqlite:" + copy))[0]["ready"], 1)
        self.whole(copy)

    def case_74_directory_is_refused(self):
        path = os.path.join(self.dir, "folder.db")
        os.mkdir(path)
        self.refused(path, (73,), "init", says="not a regular file")
        for words in (["enqueue", "t"], ["stats"]):
            self.refused(path, (73, 78), *words, says="not a regular file")
        missing = os.path.join(self.dir, "no", "such.db")
        self.refused(missing, (73,), "init")
        self.refused(missing, (69,), "enqueue", "t", says="no store at")

    def case_74_database_of_another_program_keeps_what_it_has(self):
        db = os.path.join(self.dir, "other.db")
        other = sqlite3.connect(db, isolation_level=None)
        other.execute("CREATE TABLE album(id INTEGER PRIMARY KEY, title TEXT)")
        other.execute("INSERT INTO album(title) VALUES ('one')")
        self.refused(db, (69,), "enqueue", "t", says="run pawl init")
        other.execute("CREATE TABLE pawl_x_job(mine TEXT)")
        other.execute("INSERT INTO pawl_x_job VALUES ('not yours')")
        other.close()
        done = self.pawl("init", env=self.env(PAWL_DB="sqlite:" + db))
        self.assertEqual((done.code, len(done.err.splitlines())), (78, 1), done)
        self.assertRegex(done.err, "other.db has a table pawl_x_job that Pawl did not make")
        other = sqlite3.connect(db, isolation_level=None)
        self.assertEqual(other.execute("SELECT * FROM pawl_x_job").fetchall(), [("not yours",)])
        other.execute("DROP TABLE pawl_x_job")
        self.assertEqual(self.pawl("init", env=self.env(PAWL_DB="sqlite:" + db)).code, 0)
        self.whole(db)
        self.assertEqual(other.execute("SELECT title FROM album").fetchall(), [("one",)])
        other.close()


@sqlite_alone
class Denied(Files):
    """As a user to whom file modes apply: root ignores them."""

    def setUp(self):
        super().setUp()
        self.home = tempfile.mkdtemp(prefix="pawl-test-", dir="/tmp")
        self.addCleanup(shutil.rmtree, self.home, True)
        self.prefix = []
        if os.getuid() == 0:
            os.chmod(self.home, 0o755)
            self.prefix = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
            if shutil.which("setpriv") is None:
                self.skipTest("setpriv is not installed")
        shutil.copy(PAWL, os.path.join(self.home, "pawl"))
        self.file = os.path.join(self.home, "shop.db")
        self.assertEqual(self.pawl("init", env=self.env(PAWL_DB="sqlite:" + self.file)).code, 0)
        self.dir = self.home

    def binary(self):
        return os.path.join(self.home, "pawl")

    def denied(self, *verbs):
        for words in verbs:
            with self.subTest(verb=words[0]):
                self.refused(self.file, (73, 77), *words, prefix=self.prefix,
                             says="[Pp]ermission denied|read-?only|may not write")

    def case_74_read_only_file_is_refused_with_the_reason(self):
        os.chmod(self.home, 0o777)
        os.chmod(self.file + "-pawl", 0o777)
        os.chmod(self.file, 0o444)
        self.denied(["enqueue", "t"], ["init"], ["stats"])
        os.chmod(self.file, 0)
        self.denied(["enqueue", "t"], ["stats"])

    def case_74_read_only_directory_is_refused_with_the_reason(self):
        os.chmod(self.file, 0o666)
        os.chmod(self.home, 0o555)
        self.denied(["enqueue", "t"], ["init"], ["stats"])
        self.refused(os.path.join(self.home, "new.db"), (73, 77), "init", prefix=self.prefix)


if __name__ == "__main__":
    unittest.main()
