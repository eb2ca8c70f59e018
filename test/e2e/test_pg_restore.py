#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""test_pg_restore.py - a restore from a real backup means for jobs what doc/operating-postgres.md
says: from a dump; from a base backup, rolled forward to before an effect that was acknowledged."""
import os
import shutil
import subprocess
import tempfile
import unittest

from pgkit import SUPERUSER, Cluster, PgTest, clean_env
from pgserver import account, bindir

TIMEOUT = 90
SETVAL = ("SELECT setval(pg_get_serial_sequence('pawl.x_job', 'id'),"
          " (SELECT last_value + 100000 FROM pawl.x_job_id_seq))")
CONF = ("[task pay]\nsql = INSERT INTO fx(job) VALUES (:job_id)\n"
        "[task old]\nsql = INSERT INTO fx(job) VALUES (:job_id)\n"
        "entity = :e\nversion = :v\n"
        "[task bad]\nsql = INSERT INTO fx(job) VALUES (1 / 0)\nmax_retries = 0\n")


class Restored(Cluster):
    """A server made of a base backup of another, rolled forward to a named point."""

    def __init__(self, backup, archive, point, patience):
        self.bin, self.who, self.patience = bindir(), account(), patience
        self.dir = tempfile.mkdtemp(prefix="pg-")
        self.data, self.log = os.path.join(self.dir, "data"), os.path.join(self.dir, "log")
        self.pid, self.databases = None, 0
        self.let_in()
        subprocess.run(["cp", "-a", backup, self.data], check=True)
        with open(os.path.join(self.data, "postgresql.conf"), "a", encoding="ascii") as f:
            f.write("unix_socket_directories = '%s'\narchive_mode = off\nrestore_command ="
                    " 'cp %s/%%f %%p'\nrecovery_target_name = '%s'\nrecovery_target_action ="
                    " promote\n" % (self.dir, archive, point))
        with open(os.path.join(self.data, "recovery.signal"), "w", encoding="ascii"):
            pass
        self.start()


class Restore(PgTest):
    make_store = False

    def works(self, *words):
        code, text = self.pawl(*words)
        self.assertEqual(code, 0, text)
        return text.splitlines()[-1]

    def work(self):
        self.works("work", "--until-empty", "-c", "pawl.conf")

    def before(self):
        """The store at T: what is said of it in the page's table."""
        self.works("init")
        self.sql("CREATE TABLE fx(job bigint)")
        with open(os.path.join(self.dir, "pawl.conf"), "w", encoding="ascii") as f:
            f.write(CONF)
        self.done = self.works("enqueue", "pay", "{}", "--key", "done")
        self.works("enqueue", "old", '{"e":"a","v":1}', "--entity", "a", "--version", "1")
        self.dead = self.works("enqueue", "bad", "{}")
        self.work()
        self.ready = self.works("enqueue", "pay", "{}", "--key", "ready")

    def after(self):
        """What becomes of it until the failure."""
        self.works("enqueue", "old", '{"e":"a","v":3}', "--entity", "a", "--version", "3")
        self.late = self.works("enqueue", "pay", "{}", "--key", "late")
        self.works("dead", "replay", self.dead)
        self.works("pause", "--task", "pay")
        self.works("resume", "--task", "pay")
        self.work()
        self.works("pause", "--task", "pay")
        self.assertEqual(self.effects(), sorted([self.done, self.ready, self.late]))

    def effects(self):
        return sorted(r[0] for r in self.sql(
            "SELECT job FROM fx JOIN pawl.jobs j ON j.id = fx.job WHERE task = 'pay'"))

    def state(self, job):
        rows = self.sql("SELECT state FROM pawl.jobs WHERE id = %s" % job)
        return rows[0][0] if rows else None

    def as_the_page_says(self):
        self.works("check")
        self.assertEqual([self.state(j) for j in (self.done, self.dead, self.ready, self.late)],
                         ["done", "dead", "ready", None])
        self.assertEqual(self.effects(), [self.done])       # undone with its job
        self.assertEqual(self.sql("SELECT count(*) FROM pawl.tasks WHERE paused <> 0"), [["0"]])
        self.sql(SETVAL)
        # A producer that sends again: not told of a duplicate, where the key was not there.
        again = self.works("enqueue", "pay", "{}", "--key", "late")
        self.assertGreater(int(again), int(self.late) + 90000)
        self.assertEqual(self.works("enqueue", "pay", "{}", "--key", "done"), self.done)
        self.works("enqueue", "old", '{"e":"a","v":2}', "--entity", "a", "--version", "2")
        self.work()
        self.assertEqual(self.effects(), sorted([self.done, self.ready, again]))
        self.assertEqual(self.sql("SELECT outcome FROM pawl.jobs WHERE task = 'old' ORDER BY id"),
                         [["done"], ["done"]])              # newer than what was applied at T
        self.works("dead", "replay", self.dead)
        self.works("check")

    @unittest.skipUnless(shutil.which("pg_dump") and shutil.which("pg_restore"),
                         "no pg_dump (Debian: postgresql-client)")
    def test_from_a_dump(self):
        self.before()
        dump = os.path.join(self.dir, "dump")
        where = ["-h", self.server.dir, "-U", SUPERUSER]
        self.tool("pg_dump", *where, "-Fc", "-f", dump, self.database)
        self.after()
        self.database = self.server.new_database()
        self.tool("pg_restore", *where, "-d", self.database, dump)
        self.session = self.open()
        self.as_the_page_says()

    def tool(self, *words):
        done = subprocess.run(words, env=clean_env(), stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, timeout=self.PATIENCE)
        said = done.stdout.decode("utf-8", "replace")
        if done.returncode != 0 and "server version mismatch" in said:
            self.skipTest("%s is older than the server" % words[0])
        self.assertEqual(done.returncode, 0, said)

    PATIENCE = 60


class PointInTime(Restore):
    own_server, test_from_a_dump = True, None

    def test_from_a_base_backup_to_before_an_acknowledged_effect(self):
        if not os.access(os.path.join(bindir() or "", "pg_basebackup"), os.X_OK):
            self.skipTest("no pg_basebackup beside this server")
        archive = tempfile.mkdtemp(prefix="pawl-archive-")
        self.addCleanup(shutil.rmtree, archive, True)
        os.chmod(archive, 0o777)
        server = Cluster(settings="wal_level = replica\narchive_mode = on\narchive_command ="
                                  " 'cp %%p %s/part && mv %s/part %s/%%f'"
                                  % (archive, archive, archive))
        self.addCleanup(server.remove)
        self.server, self.database = server, server.new_database()
        self.session = self.open()
        backup = os.path.join(server.dir, "backup")
        server.program("pg_basebackup", "-h", server.dir, "-U", SUPERUSER, "-D", backup, "-X",
                       "none", "-c", "fast", "--no-sync")
        self.before()
        self.sql("SELECT pg_create_restore_point('good')")
        self.after()
        last = self.one("SELECT pg_walfile_name(pg_switch_wal())")
        self.wait_until(lambda: os.path.exists(os.path.join(archive, last)), 30, "the archive")
        restored = Restored(backup, archive, "good", server.patience)
        self.addCleanup(restored.remove)
        self.server = restored
        self.session = self.open()
        self.wait_until(lambda: self.one("SELECT pg_is_in_recovery()") == "f", 30, "the promotion")
        self.as_the_page_says()


if __name__ == "__main__":
    unittest.main()
