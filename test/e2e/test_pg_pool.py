#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""test_pg_pool.py - behind PgBouncer: every kind of work through transaction pooling with two
server connections; the pooler, its server connections and the server's answers lost under load;
nothing of ours left on a connection that others get next."""
import glob
import json
import os
import signal
import subprocess
import threading
import unittest

import ckit
import pgkit
from pawltest import PAWL
from poolkit import PORT, Pooler, PoolTest
from stores import postgres_alone

TIMEOUT = 180
CONF = """[pawl]
lease = 10s
[task s]
sql = INSERT INTO fx (value) VALUES (:n)
[task x]
exec = sh -c 'cat >/dev/null; echo "{\\"done\\":{\\"result\\":1}}" >&3'
[task act]
c = ./acts.so:act
[task staged]
c = ./acts.so:staged
"""


class Pooled(PoolTest):
    def setUp(self):
        super().setUp()
        self.ok("init")
        self.sql("CREATE TABLE fx (job_id bigint, attempt bigint, key text, value text)")
        self.sql("CREATE TABLE one (x integer PRIMARY KEY)")

    def bulk_lines(self, task, n, key):
        return "".join(json.dumps({"task": task, "args": {"n": "%s-%d" % (key, i)},
                                   "key": "%s-%d" % (key, i)}) + "\n" for i in range(n)).encode()

    def bulk(self, task, n, key):
        return subprocess.Popen([PAWL, "enqueue", "--bulk", "-"], cwd=self.dir, env=self.env(),
                                stdin=subprocess.PIPE, stdout=subprocess.DEVNULL,
                                stderr=subprocess.PIPE), self.bulk_lines(task, n, key)

    def states(self):
        return {k: int(v) for k, v in self.sql("SELECT state, count(*) FROM pawl.jobs GROUP BY 1")}

    def all_done(self, n):
        states = self.states()
        return states == {"done": n} or (sum(states.values()) > n and self.fail(states))

    def exactly_once(self, n, more=0):
        """n effects, one for each job; more: jobs that have none here."""
        self.assertEqual(self.states(), {"done": n + more})
        self.assertEqual(self.one("SELECT count(*) FROM fx"), str(n))
        self.assertEqual(self.one("SELECT count(DISTINCT coalesce(job_id::text, value)) FROM fx"),
                         str(n))
        self.check()


@postgres_alone
class Work(Pooled):
    def test_every_kind_of_work_through_two_connections(self):
        ckit.compile_plugin(self.dir, "acts", ckit.ACTS)
        self.conf(CONF)
        producers = [self.bulk("s", 150, "a"), self.bulk("s", 150, "b"), self.bulk("act", 60, "c"),
                     self.bulk("staged", 20, "d"), self.bulk("x", 20, "e")]
        for _ in range(3):
            self.start_worker("--concurrency", "2")
        for process, lines in producers:
            _, said = process.communicate(lines)
            self.assertEqual(process.returncode, 0, said)
        door = self.through()
        for i in range(10):                     # in the application's own transaction
            door.run("BEGIN")
            door.run(pgkit.enqueue("s", '{"n":"door-%d"}' % i, key="door-%d" % i))
            door.run("ROLLBACK" if i % 2 else "COMMIT")
        self.wait_until(lambda: self.all_done(405), 60, "the end of all jobs")
        for worker in self.workers:
            self.assertEqual(self.stop_worker(worker), 0, self.log(worker))
            self.assertNotRegex(self.log(worker), r"prepared statement|in_doubt|worker\.beat")
        self.exactly_once(385, more=20)
        for verb in ("stats", "queues", "jobs", "check"):
            self.ok(verb)
        self.ok("prune", "--done-older", "0s")
        self.assertEqual(self.left_behind(), [])

    def test_a_handler_with_a_connection_of_its_own(self):
        """pawl.begin and pawl.complete, through the pooler: BEGIN to COMMIT is one transaction."""
        self.script("own", "#!/bin/sh\nset -e\npsql -XqAt -v ON_ERROR_STOP=1 -h '%s' -p %d -U %s %s"
                    " -c BEGIN -c \"SELECT pawl.begin($PAWL_JOB_ID, '$PAWL_LEASE')\""
                    " -c \"INSERT INTO fx (job_id) VALUES ($PAWL_JOB_ID)\""
                    " -c \"SELECT pawl.complete($PAWL_JOB_ID, '$PAWL_LEASE', '1')\" -c COMMIT\n"
                    % (self.pooler.dir, PORT, pgkit.SUPERUSER, self.database))
        self.conf("[task own]\nexec = ./own\n")
        for _ in range(5):
            self.ok("enqueue", "own")
        self.work()
        self.exactly_once(5)

    def test_a_statement_that_nobody_waits_for_ends_at_its_limit(self):
        """Found out in a COMMIT without an answer, by a batch that then gets savepoints."""
        self.conf("[task s]\nsql = INSERT INTO one SELECT :n FROM pg_sleep(:s)\nhard_limit = 1s\n"
                  "max_retries = 0\n")
        with open(os.path.join(self.dir, "jobs"), "w") as f:
            f.writelines('{"task":"s","args":{"n":%d,"s":%d}}\n' % (i, 600 * (i == 400))
                         for i in range(500))
        self.ok("enqueue", "--bulk", "jobs")
        self.work()
        self.assertEqual(self.states(), {"dead": 1, "done": 499})
        self.assertEqual(self.sql("SELECT outcome FROM pawl.attempts"), [["timeout"]])

    def test_an_idle_worker_looks_within_a_second(self):
        """Nobody can listen; the SQL door touches no file of this host."""
        self.conf("[task s]\nsql = INSERT INTO fx (value) VALUES ('x')\n")
        worker = self.start_worker()
        self.wait_until(lambda: "worker.start" in self.log(worker), what="the worker's start")
        self.sql(pgkit.enqueue("s"))
        self.wait_until(lambda: self.all_done(1), what="the job's end")
        self.assertEqual(self.sql("SELECT pid FROM pg_stat_activity WHERE query LIKE 'LISTEN%'"
                                  " AND datname = current_database()"), [])

    def test_the_store_suites(self):
        """The conformance suite, with its stores opened through the pooler."""
        build = os.environ.get("PAWL_BUILD_DIR", os.path.dirname(PAWL))
        suites = sorted(p for p in glob.glob(os.path.join(build, "test", "store_test_*"))
                        if os.access(p, os.X_OK) and os.path.isfile(p) and os.path.basename(p)[11:]
                        in ("leased", "pg_away"))
        if not suites:
            self.skipTest("the C suites are not built")
        env = dict(os.environ, PAWL_TEST_PG=self.server.dir, PAWL_TEST_PG_USER=pgkit.SUPERUSER,
                   PAWL_TEST_PG_POOL="%s&port=%d" % (self.pooler.dir, PORT))
        env.pop("PAWL_TEST_PG_TEMPLATE", None)      # of the runner's server, not of this one
        for suite in suites:
            done = subprocess.run([suite], cwd=self.dir, env=env, stdout=subprocess.PIPE,
                                  stderr=subprocess.STDOUT, check=False)
            self.assertEqual(done.returncode, 0, done.stdout.decode("utf-8", "replace")[-3000:])


@postgres_alone
class Lost(Pooled):
    """Under load. A batch whose commit lost its answer is looked for, not guessed at."""

    def feed(self, lines):
        """What was not acknowledged is sent again, until it is."""
        while True:
            process, _ = self.bulk("s", 0, "")
            _, said = process.communicate(lines)
            if process.returncode == 0:
                return
            self.wrong += [said] if process.returncode not in (69, 74, 75) else []
            self.pause.wait(0.05)               # a producer that tries again later

    def through_it(self, disturb, times, n=1000):
        self.wrong, self.pause = [], threading.Event()
        self.conf(CONF.split("[task x]")[0])
        self.feed(self.bulk_lines("s", n // 2, "a"))
        producer = threading.Thread(target=self.feed, args=(self.bulk_lines("s", n // 2, "b"),))
        for _ in range(3):
            self.start_worker()
        for worker in self.workers:
            self.wait_until(lambda: "worker.ready" in self.log(worker), what="a ready worker")
        producer.start()
        for i in range(times):
            seen = self.done()
            disturb(i)
            self.wait_until(lambda: self.done() > min(seen, n - 1), 40, "work after it")
        producer.join()
        self.assertEqual(self.wrong, [])
        self.wait_until(lambda: self.all_done(n), 40, "the end of all jobs")
        for worker in self.workers:
            self.assertEqual(self.stop_worker(worker), 0, self.log(worker))
        self.exactly_once(n)
        self.assertEqual(self.left_behind(), [])

    def done(self):
        return int(self.one("SELECT count(*) FROM fx"))

    def test_the_pooler_killed_and_restarted(self):
        def kill(_i):
            self.pooler.kill()
            self.pooler.start()
        self.through_it(kill, 5)

    def test_server_connections_killed_under_the_pooler(self):
        def kill(_i):
            self.sql("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname ="
                     " current_database() AND pid <> pg_backend_pid()")
        self.through_it(kill, 8)

    def test_the_answer_to_a_commit_is_lost_with_the_pooler(self):
        """The commit is still under way when the command looks: what it says is what is true."""
        other = Pooler(self.server)
        self.addCleanup(other.remove)
        url = "postgresql:///%s?host=%s,%s&port=%d,%d&user=%s" % (
            self.database, self.pooler.dir, other.dir, PORT, PORT, pgkit.SUPERUSER)
        self.sql("CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM"
                 " set_config('client_connection_check_interval', '0', false);"
                 " PERFORM pg_advisory_xact_lock(7); RETURN NULL; END $$")
        self.sql("CREATE CONSTRAINT TRIGGER slow AFTER INSERT ON pawl.x_job DEFERRABLE INITIALLY"
                 " DEFERRED FOR EACH ROW EXECUTE FUNCTION slow()")
        self.sql("SELECT pg_advisory_lock(7)")
        command = subprocess.Popen([PAWL, "enqueue", "s"], cwd=self.dir, env=self.env(PAWL_DB=url),
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.wait_until(lambda: self.committing() == "1", what="the commit")
        self.pooler.kill()
        out, said = command.communicate()
        self.sql("SELECT pg_advisory_unlock(7)")
        self.wait_until(lambda: self.committing() == "0", what="the end of the commit")
        there = self.one("SELECT count(*) FROM pawl.jobs")
        if command.returncode != 75:            # not known: no way to the server within a second
            self.assertEqual(command.returncode == 0, there == "1", (out, said, there))

    def committing(self):
        return self.one("SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'advisory' AND"
                        " query = 'COMMIT' AND datname = current_database()")

    def test_a_frozen_hosts_transaction_ends_with_its_lease(self):
        """Its pooler keeps the server connection, and with it the row locks, until the server
        ends a transaction in which nobody speaks."""
        ckit.compile_plugin(self.dir, "acts", ckit.ACTS)
        self.conf("[pawl]\nlease = 2s\n[task act]\nc = ./acts.so:act\n")
        self.ok("enqueue", "act", '{"do":"loop"}')
        worker = subprocess.Popen([PAWL, "work"], cwd=self.dir, env=self.env(),
                                  stderr=subprocess.DEVNULL, start_new_session=True)
        self.addCleanup(worker.wait)
        idle = ("SELECT count(*) FROM pg_stat_activity WHERE state = 'idle in transaction' AND"
                " datname = current_database()")
        try:
            self.wait_until(lambda: os.path.exists(os.path.join(self.dir, "starts.log")) and
                            self.one(idle) == "1", what="the handler's start")
            os.killpg(worker.pid, signal.SIGSTOP)
            self.wait_until(lambda: self.one(idle) == "0", what="the end of its transaction")
        finally:
            os.killpg(worker.pid, signal.SIGKILL)


@postgres_alone
class Strangers(Pooled):
    """The other clients of the pool: what they left is not ours, and what is ours is not theirs."""

    def test_what_others_left_does_not_rule_our_transactions(self):
        self.sql("CREATE SCHEMA evil")
        self.sql("CREATE TABLE evil.fx (job_id bigint, attempt bigint, key text, value text)")
        self.sql("CREATE ROLE nobody_%s" % self.database)
        self.sql("GRANT USAGE ON SCHEMA pawl TO nobody_%s" % self.database)
        self.sql("GRANT ALL ON ALL TABLES IN SCHEMA pawl TO nobody_%s" % self.database)
        a, b = self.through(), self.through()
        for session in a, b:
            session.run("BEGIN")
        for session in a, b:
            session.run("SET search_path = evil")
            session.run("SET synchronous_commit = off")
            session.run("SET statement_timeout = 500")
            session.run("SET bytea_output = escape")
            session.run("PREPARE pawl_1 AS SELECT 1")
            session.run("PREPARE pawl_user_0 AS SELECT 1")
            session.run("SET ROLE nobody_%s" % self.database)
        for session in a, b:
            session.run("COMMIT")
            session.close()
        self.conf("[task s]\nsql = INSERT INTO fx (value) SELECT current_setting("
                  "'synchronous_commit') || ' ' || current_user FROM pg_sleep(0.7)\n")
        self.ok("enqueue", "s")
        self.work()
        self.assertEqual(self.sql("SELECT value FROM public.fx"), [["on " + pgkit.SUPERUSER]])
        self.assertEqual(self.sql("SELECT * FROM evil.fx"), [])

    def test_on_connect_holds_for_each_transaction_and_no_longer(self):
        self.sql("CREATE SCHEMA shop")
        self.sql("CREATE TABLE shop.fx (value text)")
        self.conf("[pawl]\non_connect = SELECT set_config('search_path', 'shop', true)\n"
                  "[task s]\nsql = INSERT INTO fx (value) VALUES ('x')\n")
        self.ok("enqueue", "s")
        self.work()
        self.assertEqual(self.sql("SELECT value FROM shop.fx"), [["x"]])
        self.assertEqual(self.left_behind(), [])
        for sql in ("SELECT set_config('search_path', 'shop', false)", "SELECT 1",
                    "CREATE TEMP TABLE t (a int)"):
            self.conf("[pawl]\non_connect = %s\n[task s]\nsql = SELECT 1\n" % sql)
            self.fails(78, "work", says="behind a pooler only SET and SELECT set_config")

    def test_statements_that_outlive_their_transaction_are_refused(self):
        for sql, says in (("SELECT pg_advisory_lock(1)", "pg_advisory_xact_lock"),
                          ("SELECT pg_try_advisory_lock_shared(1)", "pg_advisory_xact_lock"),
                          ("SELECT 1 AS a INTO TEMP t", "temporary table"),
                          ("CREATE TEMP TABLE t (a int)", "temporary table")):
            self.conf("[task s]\nsql = %s\n" % sql)
            done = self.pawl("work", "--until-empty")
            self.assertEqual(done.code, 78, done)
            self.assertRegex(done.err, says)
        self.conf("[task s]\nsql = CREATE TEMP TABLE t (a int) ON COMMIT DROP\n")
        self.ok("enqueue", "s")
        self.work()
        self.assertEqual(self.states(), {"done": 1})

    def test_startup_parameters_that_it_refuses_are_named(self):
        url = self.pooler.url(self.database, "&options=-c%20geqo%3Doff")
        self.fails(78, "stats", env=self.env(PAWL_DB=url),
                   says="options.*ignore_startup_parameters")


@postgres_alone
class Session(Pooled):
    """Session pooling is not told from transaction pooling: it works in the same way."""
    mode = "session"

    def test_work(self):
        self.conf(CONF.split("[task x]")[0])
        process, lines = self.bulk("s", 50, "a")
        process.communicate(lines)
        self.work()                             # a supervisor and its runner: both connections
        self.exactly_once(50)


@postgres_alone
class Statement(PoolTest):
    mode = "statement"

    def test_is_refused_and_said(self):
        self.fails(78, "init", says="pools statements.*pool_mode = transaction")


if __name__ == "__main__":
    unittest.main()
