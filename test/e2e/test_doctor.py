#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""test_doctor.py - pawl doctor: each finding provoked once and seen, absent on a healthy store; it
changes nothing; its exit code is for scripts."""
import json
import os
import re
import sqlite3
import subprocess
import sys
import unittest

import pgkit
from pawltest import ROOT, SLOW, PawlTest
from poolkit import Pooler
from stores import postgres_alone, sqlite_alone

TIMEOUT = 90


class Doctor:
    """What both stores have in common."""

    def look(self, *words, **more):
        """{check: [(severity, what, fix)]}, and the summary; the exit code fits it."""
        done = self.pawl("--json", "doctor", *words, **more)
        self.assertIn(done.code, (0, 1), done)
        lines = [json.loads(line) for line in done.out.splitlines()]
        total, found = lines.pop(), {}
        for a in lines:
            self.assertTrue(a["what"] and a["fix"], a)
            found.setdefault(a["check"], []).append((a["severity"], a["what"], a["fix"]))
        serious = sum(a["severity"] in ("warning", "danger") for a in lines)
        self.assertEqual((total["findings"], done.code), (serious, int(serious > 0)), done)
        return found

    def sees(self, check, severity, says, *words, **more):
        found = self.look(*words, **more)
        hits = [a for a in found.get(check, []) if a[0] == severity and re.search(says, a[1])]
        self.assertTrue(hits, "%s %s not among %s" % (severity, check, found))

    def healthy(self):
        found = self.look()
        self.assertEqual([a for check in found for a in found[check]
                          if a[0] in ("warning", "danger") and check not in self.known], [])

    known = ()

    def test_a_healthy_store_has_no_finding(self):
        self.conf("[task s]\nsql = SELECT 1\n")
        self.enqueue("s")
        self.work()
        self.healthy()
        self.assertRegex(self.pawl("doctor").out, r"\d+ looks, ")

    def test_jobs_that_nobody_serves_and_nobody_drains(self):
        self.enqueue("ghost")
        self.sees("tasks", "warning", "ghost: 1 jobs wait")
        self.conf("[task s]\nsql = SELECT 1\n")
        self.ok("apply")
        self.enqueue("s")
        self.assertNotIn("queues", self.look())     # not old enough
        self.sees("queues", "warning", "task s: 1 jobs are due.*none of them is running",
                  "--old", "0s")
        self.ok("pause", "--task", "s")
        self.sees("queues", "note", "paused", "--old", "0s")

    def test_dead_letters_and_a_storm_of_retries(self):
        self.conf("[pawl]\nconcurrency = 16\n[task e]\nexec = sh -c 'echo broken >&2; exit 75'\n"
                  "backoff = 1h..1h\n[task f]\nexec = sh -c 'exit 65'\n")
        self.ok("enqueue", "--bulk", "-", stdin='{"task":"e"}\n' * 101)
        dead = self.enqueue("f")
        self.start_worker()
        self.wait_state(dead, "dead", 30)
        self.wait_until(lambda: "retries" in self.look(), 60, "the storm")
        self.sees("retries", "warning", r"task e: 1\d\d attempts of 1\d\d waiting jobs failed")
        self.sees("dead", "warning", "1 dead letters of task f .permanent.")
        self.ok("dead", "discard", dead, "--reason", "seen")
        self.assertNotIn("dead", self.look())

    def test_leases_of_a_worker_that_was_killed(self):
        self.conf("[task x]\nexec = sh -c ': > started; exec sleep 60'\n")
        self.enqueue("x")
        worker = self.start_worker()
        self.wait_until(lambda: os.path.exists(os.path.join(self.dir, "started")),
                        what="the job's start")
        self.assertNotIn("leases", self.look())
        worker.kill()
        worker.wait()
        self.sees("leases", "warning", "1 jobs are leased to worker .*gone")

    def test_a_job_from_the_future(self):
        self.enqueue("s")
        self.foreign("UPDATE %s SET created_at_us = created_at_us + 7200000000" % self.job_table)
        self.sees("clock", "warning", "in the future: the clock was put back")

    def test_it_changes_nothing(self):
        self.enqueue("s")
        before = self.ok("--json", "jobs"), self.ok("--json", "stats")
        self.pawl("doctor")
        self.assertEqual((self.ok("--json", "jobs"), self.ok("--json", "stats")), before)


@sqlite_alone
class Sqlite(Doctor, PawlTest):
    job_table = "pawl_x_job"

    def setUp(self):
        super().setUp()
        # Built with the system's SQLite, and nearly without room: those are findings.
        self.known = tuple(c for c in ("version", "disk") if c in self.look())

    def foreign(self, sql):
        self.sql(sql)

    def test_the_library_with_the_fault(self):
        version = tuple(int(n) for n in re.search(r"SQLite (\d+)\.(\d+)\.(\d+)",
                                                  self.ok("--version")).groups())
        fixed = version >= (3, 51, 3) or version[:2] in ((3, 50), (3, 44)) and version[2] >= (
            7 if version[1] == 50 else 6)
        self.assertEqual("version" in self.look(), not fixed)

    def test_a_log_that_cannot_shrink(self):
        with open(self.db + "-wal", "ab") as f:
            holder = sqlite3.connect(self.db)
            holder.execute("SELECT count(*) FROM pawl_jobs").fetchone()
            f.truncate(65 << 20)
            self.sees("wal", "warning", "has 65 MiB")
            holder.close()

    def test_disk_and_file_system(self):
        self.sees("disk", "danger", "MiB are left", env=self.env(
            PAWL_FAILPOINT="doctor.disk=error"))
        self.sees("filesystem", "danger", "network file system .NFS.", env=self.env(
            PAWL_FAILPOINT="doctor.network=error"))

    def test_a_program_of_yours_that_has_it_open(self):
        program = subprocess.Popen([sys.executable, "-c", "import sqlite3, sys\n"
                                    "db = sqlite3.connect(sys.argv[1])\n"
                                    "db.execute('SELECT 1 FROM pawl_jobs').fetchall()\n"
                                    "print(1, flush=True)\nsys.stdin.read()", self.db],
                                   stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        program.stdout.readline()
        self.sees("others", "note", r"python\S* \(pid %d\)" % program.pid)
        program.communicate()
        self.assertNotIn("others", self.look())


@postgres_alone
class Postgres(Doctor, PawlTest):
    make_store = False
    check_at_end = False
    job_table = "pawl.x_job"
    known = ("durability",)                         # the tests' server does not wait for the disk

    def setUp(self):
        super().setUp()
        self.server = pgkit.cluster()
        self.database = self.server.new_database()
        self.url = self.server.url(self.database)
        self.session = pgkit.PsqlSession(self.server, self.database)
        self.addCleanup(self.session.close)
        self.ok("init")

    def env(self, **more):
        env = {k: v for k, v in super().env().items() if not k.startswith("PG")}
        return dict(env, **{"PAWL_DB": getattr(self, "url", ""), "PAWL_RUNTIME_DIR": self.dir,
                            **more})

    def foreign(self, sql):
        return self.session.run(sql)

    def of(self, more="", user=pgkit.SUPERUSER):
        return {"env": self.env(PAWL_DB=self.server.url(self.database, user) + more)}

    def test_durability(self):
        self.sees("durability", "danger", "fsync is off")
        self.foreign("ALTER DATABASE %s SET synchronous_commit = off" % self.database)
        self.sees("durability", "note", "Pawl turns it on")
        self.sees("failover", "note", "no standby")
        self.foreign("ALTER DATABASE %s SET default_transaction_read_only = on" % self.database)
        self.sees("standby", "danger", "read-only by default", **self.of(
            "&target_session_attrs=any"))

    def test_settings_of_the_server(self):
        for name, value, check, severity, says in (
                ("full_page_writes", "off", "durability", "danger", "torn pages"),
                ("autovacuum", "off", "vacuum", "danger", "autovacuum is off"),
                ("track_activities", "off", "snapshot", "unseen", "track_activities"),
                ("synchronous_standby_names", "'away'", "failover", "warning", "= local waits")):
            self.foreign("ALTER SYSTEM SET %s = %s" % (name, value))
            if name == "synchronous_standby_names":
                self.foreign("ALTER DATABASE %s SET synchronous_commit = local" % self.database)
            self.foreign("SELECT pg_reload_conf()")
            self.wait_until(lambda: [a for a in self.look().get(check, []) if a[0] == severity and
                                     re.search(says, a[1])], what=name)
        self.foreign("ALTER SYSTEM RESET ALL")
        self.foreign("SELECT pg_reload_conf()")

    def test_who_holds_a_snapshot(self):
        holder = pgkit.PsqlSession(self.server, self.database)
        self.addCleanup(holder.close)
        holder.run("BEGIN ISOLATION LEVEL REPEATABLE READ")
        holder.run("SELECT 1 FROM pawl.jobs")
        self.sees("snapshot", "warning", r"pid %s, user %s, psql, idle in transaction" % (
            holder.pid, pgkit.SUPERUSER), "--old", "0s")
        self.assertNotIn("snapshot", self.look())   # not for so long yet
        holder.run("ROLLBACK")
        self.assertNotIn("snapshot", self.look("--old", "0s"))

    def test_what_others_hold_is_not_seen_by_a_plain_role(self):
        self.foreign("CREATE ROLE w_%s LOGIN" % self.database)
        with open(os.path.join(ROOT, "sql", "postgres", "roles.sql"), encoding="utf-8") as f:
            self.foreign(f.read())
        self.foreign("GRANT pawl_worker TO w_%s" % self.database)
        user = "w_%s" % self.database
        self.sees("snapshot", "unseen", "cannot be seen by this role", **self.of(user=user))
        self.sees("role", "note", "superuser")
        self.assertNotIn("role", self.look(**self.of(user=user)))

    def test_slots(self):
        self.foreign("SELECT pg_create_physical_replication_slot('s_%s', true)" % self.database)
        self.sees("slots", "warning", "slot s_%s is used by nobody" % self.database)
        self.foreign("SELECT pg_drop_replication_slot('s_%s')" % self.database)
        self.assertNotIn("slots", self.look())

    def test_dead_rows_and_a_table_without_autovacuum(self):
        self.foreign("ALTER TABLE pawl.x_counter SET (autovacuum_enabled = off)")
        self.sees("vacuum", "danger", "switched off for pawl.x_counter")
        self.foreign("INSERT INTO pawl.x_counter SELECT 'n' || i, 0 FROM generate_series(1, 60000)"
                     " AS i")
        self.foreign("DELETE FROM pawl.x_counter WHERE name LIKE 'n%'")
        self.wait_until(lambda: [a for a in self.look().get("vacuum", []) if "60000 dead rows" in
                                 a[1]], what="the count of dead rows")

    def test_the_url(self):
        self.sees("url", "warning", "several hosts", env=self.env(
            PAWL_DB="postgresql:///%s?host=%s,%s&user=%s&target_session_attrs=any" % (
                self.database, self.server.dir, self.server.dir, pgkit.SUPERUSER)))
        self.sees("url", "warning", "connect_timeout=0", **self.of("&connect_timeout=0"))
        self.sees("url", "warning", "tcp_user_timeout=0", **self.of("&tcp_user_timeout=0"))
        self.assertNotIn("url", self.look())

    def test_a_pooler(self):
        self.assertNotIn("pooling", self.look())
        for mode, says in ("transaction", "of transactions is"), ("session", "cannot be told"):
            pooler = Pooler(self.server, mode)
            self.addCleanup(pooler.remove)
            self.sees("pooling", "note", says, env=self.env(PAWL_DB=pooler.url(self.database)))

    def test_leases_of_workers_that_nobody_knows(self):
        self.foreign("INSERT INTO pawl.x_running SELECT 1, decode(repeat('00', 16), 'hex'), 'w',"
                     " 1, 0, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0")
        self.sees("leases", "warning", "workers that nobody knows")


class Prepared(unittest.TestCase):
    def test_prepared_transactions_and_standbys(self):
        """On a server of its own: a prepared transaction, and an asynchronous standby."""
        server = pgkit.Cluster(settings="max_prepared_transactions = 5\nwal_level = replica\n")
        self.addCleanup(server.remove)
        database = server.new_database()
        test = Postgres("test_slots")
        test.server, test.database, test.url = server, database, server.url(database)
        PawlTest.setUp(test)
        self.addCleanup(test.doCleanups)
        test.ok("init")
        session = pgkit.PsqlSession(server, database)
        self.addCleanup(session.close)
        session.run("BEGIN")
        session.run("CREATE TABLE t (a int)")
        session.run("PREPARE TRANSACTION 'left'")
        test.sees("snapshot", "warning", "prepared transaction left of", "--old", "0s")
        session.run("ROLLBACK PREPARED 'left'")
        test.assertNotIn("snapshot", test.look("--old", "0s"))
        standby = os.path.join(server.dir, "standby")
        server.program("pg_basebackup", "-h", server.dir, "-U", pgkit.SUPERUSER, "-D", standby,
                       "-R", "-X", "stream", "--no-sync", "-c", "fast")
        with open(os.path.join(standby, "postgresql.conf"), "a", encoding="ascii") as f:
            f.write("port = 5433\n")
        server.program("pg_ctl", "-D", standby, "-l", os.path.join(server.dir, "log2"), "-s", "-w",
                       "-t", str(int(60 * SLOW)), "start")
        self.addCleanup(server.program, "pg_ctl", "-D", standby, "-s", "-w", "-m", "immediate",
                        "stop")
        test.wait_until(lambda: any("not synchronous" in a[1] for a in
                                    test.look().get("failover", [])), what="the standby")
        test.sees("standby", "danger", "is a standby", env=test.env(
            PAWL_DB=server.url(database) + "&port=5433&target_session_attrs=any"))


if __name__ == "__main__":
    unittest.main()
