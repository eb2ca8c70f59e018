#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""test_pg_worker.py - a worker on PostgreSQL: what a handler's SQL may not do to the session that
other jobs share, and what is left on the server of a worker that was killed."""
import os
import signal
import subprocess
import unittest

from pgkit import PAWL, PgTest, clean_env
from pgload import Load


class Worker(PgTest):
    make_store = False                              # pawl init does

    def setUp(self):
        super().setUp()
        code, said = self.pawl("init")
        self.assertEqual(code, 0, said)

    def configure(self, sql):
        with open(os.path.join(self.dir, "pawl.conf"), "w") as f:
            f.write("[task s]\nsql = %s\n" % sql)

    def test_sql_that_changes_the_session_is_refused(self):
        for sql, says in (("SELECT set_config('search_path', 'evil', false)", "set_config"),
                          ("SELECT pg_catalog.\"set_config\"('a.b', 'c', false)", "set_config"),
                          ("SELECT U&\"set!005fconfig\" UESCAPE '!'", "U&"),
                          ("SELECT u&'x'", "U&"),
                          # what would run: the function, and a private table by another spelling
                          ("SELECT U&\"set\\005fconfig\"('a.b', 'c', false)", "U&"),
                          ("DELETE FROM pawl.U&\"x\\005fready\"", "U&")):
            self.configure(sql)
            code, said = self.pawl("work", "--until-empty")
            self.assertNotEqual(code, 0, said)
            self.assertIn(says, said)

    def test_sql_for_sqlite_is_refused_with_what_to_write(self):
        self.configure("INSERT INTO pawl_enqueue (task, args) VALUES ('t', '{}')")
        code, said = self.pawl("work", "--until-empty")
        self.assertEqual(code, 78, said)
        self.assertIn("SELECT pawl.enqueue(...)", said)

    def test_a_session_that_is_ended_is_told_in_one_piece(self):
        self.configure("SELECT pg_terminate_backend(pg_backend_pid())\nmax_retries = 0")
        self.pawl("enqueue", "s")
        code, said = self.pawl("work", "--until-empty")
        self.assertEqual(code, 0, said)
        self.assertIn("terminating connection", said)
        self.assertNotIn(": :", said)

    def test_a_statement_that_somebody_else_cancels_was_not_at_its_limit(self):
        self.configure("SELECT pg_sleep(600)\nmax_retries = 0")
        self.sql("ALTER DATABASE %s SET statement_timeout = '300ms'" % self.database)
        self.pawl("enqueue", "s")
        code, said = self.pawl("work", "--until-empty")
        self.assertEqual(code, 0, said)
        self.assertEqual(self.sql("SELECT outcome, error FROM pawl.attempts"),
                         [["transient", "statement 1: canceling statement due to statement timeout"
                           " (SQLSTATE 57014)"]], said)

    def test_a_server_that_is_not_there_at_the_start_is_waited_for(self):
        sockets = os.path.join(self.dir, "later")
        os.mkdir(sockets)
        self.configure("SELECT 1")
        self.pawl("enqueue", "s")
        url = self.server.url(self.database).replace(self.server.dir, sockets)
        env = dict(clean_env(), PAWL_DB=url, PAWL_RUNTIME_DIR=self.dir)
        with open(os.path.join(self.dir, "late.log"), "wb") as log:
            worker = subprocess.Popen([PAWL, "work", "--until-empty"], cwd=self.dir, env=env,
                                      stderr=log)
        self.addCleanup(worker.wait)
        self.wait_until(lambda: "store.trouble" in self.log_of("late"), what="it says so")
        for name in os.listdir(self.server.dir):
            if name.startswith(".s.PGSQL."):
                os.symlink(os.path.join(self.server.dir, name), os.path.join(sockets, name))
        self.assertEqual(worker.wait(30), 0, self.log_of("late"))
        self.assertEqual(self.one("SELECT state FROM pawl.jobs"), "done")

    def test_killed_inside_a_statement_its_transaction_ends_soon(self):
        """Its locks would keep the jobs of its batch from everybody for as long as it runs."""
        self.configure("SELECT pg_sleep(600)")
        self.pawl("enqueue", "s")
        env = dict(clean_env(), PAWL_DB=self.server.url(self.database), PAWL_RUNTIME_DIR=self.dir)
        worker = subprocess.Popen([PAWL, "work"], cwd=self.dir, env=env, stderr=subprocess.DEVNULL,
                                  start_new_session=True)
        self.addCleanup(worker.wait)
        try:
            self.wait_until(self.sleeping, what="the statement's start")
        finally:
            os.killpg(worker.pid, signal.SIGKILL)
        self.wait_until(lambda: not self.sleeping(), what="the end of the killed worker's backend")

    def test_statement_that_nobody_waits_for_ends_at_its_limit(self):
        """After many that went well statements are sent ahead; one that does not end is found out,
        alone, and is the only one to be charged."""
        with open(os.path.join(self.dir, "pawl.conf"), "w") as f:
            f.write("[task s]\nsql = INSERT INTO slow SELECT :n FROM pg_sleep(:n)\n"
                    "hard_limit = 1s\nmax_retries = 0\n")
        self.sql("CREATE TABLE slow (n int)")
        lines = ['{"task":"s","args":{"n":%d}}\n' % (600 if i == 90 else 0) for i in range(120)]
        with open(os.path.join(self.dir, "jobs"), "w") as f:
            f.writelines(lines)
        code, said = self.pawl("enqueue", "--bulk", "jobs")
        self.assertEqual(code, 0, said)
        code, said = self.pawl("work", "--until-empty")
        self.assertEqual(self.sql("SELECT state, count(*), sum(runs) FROM pawl.jobs GROUP BY 1"
                                  " ORDER BY 1"),
                         [["dead", "1", "1"], ["done", "119", "119"]], said)
        self.assertEqual(self.sql("SELECT outcome FROM pawl.attempts"), [["timeout"]], said)
        self.assertNotIn("effect.long", said)       # 5 s: it is not the patience that ends it

    def test_taken_for_dead_it_goes_on(self):
        """Others have taken over its jobs while it was cut off; they forget it with them."""
        load = Load(self.server.url(self.database), tasks="sp")
        self.addCleanup(load.close)
        load.rows("CREATE TABLE fx(job bigint, task text, name text)")
        load.start_worker()
        there = "SELECT count(*) FROM pawl.x_worker"
        all_of_it = "5" if "p" in load.tasks else "1"   # a worker, and four runners
        self.wait_until(lambda: self.one(there) == all_of_it, what="the worker and its runners")
        self.sql("DELETE FROM pawl.x_worker")
        self.wait_until(lambda: self.one(there) == all_of_it, what="they are back")
        for key in "k0", "k1":
            load.send(key)
        load.audit()
        self.assertEqual(self.one(there), "0")
        self.assertEqual(load.ended, [])

    def start_host(self, name):
        """A worker whose files nobody else sees, as on a host of its own."""
        os.mkdir(os.path.join(self.dir, name))
        env = dict(clean_env(), PAWL_DB=self.server.url(self.database),
                   PAWL_RUNTIME_DIR=os.path.join(self.dir, name))
        with open(os.path.join(self.dir, name + ".log"), "wb") as log:
            worker = subprocess.Popen([PAWL, "work"], cwd=self.dir, env=env, stderr=log)
        self.addCleanup(worker.wait)
        self.addCleanup(worker.terminate)
        self.wait_until(lambda: "worker.ready" in self.log_of(name), what="the worker %s" % name)

    def log_of(self, name):
        with open(os.path.join(self.dir, name + ".log"), encoding="utf-8") as f:
            return f.read()

    def test_who_waits_for_a_lock_is_not_taken_over_by_another_host(self):
        """It says so meanwhile; and where that waits, too, nobody is judged who may have waited."""
        with open(os.path.join(self.dir, "pawl.conf"), "w") as f:
            f.write("[pawl]\nlease = 1s\n[task t]\nexec = sh -c 'read -r line <go'\n")
        os.mkfifo(os.path.join(self.dir, "go"))
        self.start_host("a")
        for names in "pawl.x_running", "pawl.x_worker, pawl.x_running":
            self.pawl("enqueue", "t")
            running = "SELECT count(*) FROM pawl.jobs WHERE state = 'running'"
            self.wait_until(lambda: self.one(running) == "1", what="the job runs")
            if "x_worker" not in names:
                self.start_host("b")
            other = self.open()
            other.run("BEGIN")
            other.run("LOCK TABLE %s IN EXCLUSIVE MODE" % names)
            with open(os.path.join(self.dir, "go"), "w", encoding="ascii") as go:
                go.write("on\n")
            self.wait_until(lambda: self.one(
                "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query"
                " LIKE '%x_running%' AND clock_timestamp() - query_start > '3s'") != "0",
                what="three leases of waiting for the lock")
            other.run("ROLLBACK")
            self.wait_until(lambda: self.one("SELECT count(*) FROM pawl.jobs WHERE state <> 'done'")
                            == "0", what="it is done")
            self.assertEqual(self.sql("SELECT outcome FROM pawl.attempts"), [], self.log_of("b"))
        for name in "ab":
            self.assertNotRegex(self.log_of(name), "worker.(frozen|gone|rejoined)")

    def sleeping(self):
        return self.one("SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'PgSleep'"
                        " AND datname = current_database()") != "0"


if __name__ == "__main__":
    unittest.main()
