#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""test_case_server.py - field cases that need a PostgreSQL server of their own, or a proxy before
it: 38 70 74 79 81. (What both stores share is in the other test_case_*.py.)"""
import os
import random
import signal
import subprocess
import time
import unittest

import libpq
from fieldkit import FieldTest, uptime
from pawltest import PAWL, SLOW
from pgkit import SUPERUSER, Cluster
from pgproxy import Proxy
from stores import PostgresStore, postgres_alone

TIMEOUT = 150
SERIAL = True  # it measures waits, and a server of one's own takes a share of the machine


class OwnServer(PostgresStore):
    """A server that the test may stop, and a proxy before it."""

    def __init__(self, test):
        self.server = Cluster(durable=test.durable, settings=test.settings)
        test.addCleanup(self.server.remove)
        super().__init__(test)

    def find_server(self):
        self.host, self.user, self.template = self.server.dir, SUPERUSER, None

    def drop(self):
        pass                                    # the server goes as a whole


class ServerTest(FieldTest):
    store_class = OwnServer
    durable, settings = False, ""

    def tearDown(self):
        if self.store.server.pid is None:
            self.store.server.start()
        super().tearDown()


class Commits:
    """A proxy's rule: what to do with the n-th COMMIT, once it is on."""

    def __init__(self, rule):
        self.rule, self.commits, self.cuts, self.on = rule, 0, 0, False

    def __call__(self, m):
        if not (self.on and m.to_server and m.what == "Execute: COMMIT"):
            return None
        self.commits += 1
        what = self.rule(self.commits)
        self.cuts += what is not None
        return what


@postgres_alone
class Doubt(ServerTest):
    """Case 38: the connection dies during COMMIT."""
    effect_policy = act_policy = "backoff = 10ms..50ms"
    more = "\n[task bad]\nsql = INSERT INTO fx(job_id) VALUES (:job_id / 0)\nmax_retries = 0\n"

    def cut_all(self, rule):
        commits = Commits(rule)
        proxy = Proxy(os.path.join(self.store.host, ".s.PGSQL.5432"), commits)
        self.addCleanup(proxy.close)
        url = proxy.url(self.store.database, self.store.user)
        ids = []
        with open(os.path.join(self.dir, "pawl.conf"), encoding="utf-8") as f:
            text = f.read()
        self.conf(text.replace(self.store.url, url))
        worker = self.worker(env=self.env(PAWL_DB=url))
        commits.on = True
        for i in range(100):                    # one by one: many commits, not one batch
            ids.append(self.enqueue("effect") if i % 2 else self.act("ok"))
        self.wait_until(lambda: self.count("done") == 100, 60, "all are done")
        commits.on = False
        self.assertGreater(commits.cuts, 10, "%d commits: this proved nothing" % commits.commits)
        # Once more without a proxy: the next worker finds nothing to do.
        self.assertEqual(self.stop_worker(worker), 0, self.log(worker))
        self.work()
        self.assert_each_once(ids[1::2])
        self.assertEqual(self.sql("SELECT sum(failures), sum(lost) FROM pawl_jobs"), [(0, 0)])
        return ids

    def case_38_connection_that_dies_after_the_commit_left_is_asked_about(self):
        ids = self.cut_all(lambda n: "after" if n % 3 == 0 else None)
        self.assertEqual(len(self.attempts()), 50)          # each program ran once
        self.assertEqual(self.sql("SELECT count(*) FROM pawl_attempts"), [(0,)])
        self.assertEqual(len(ids), 100)

    def case_38_connection_that_dies_before_the_commit_leaves_nothing_of_it(self):
        self.cut_all(lambda n: "before" if n % 3 == 0 else None)

    def case_38_connection_that_dies_on_either_side_at_random(self):
        rng = random.Random(38)
        self.cut_all(lambda n: rng.choice(("before", "after", None, None)))


@postgres_alone
class Durable(ServerTest):
    """Case 70, and case 74 for a server."""
    durable = True

    def case_70_what_was_acknowledged_survives_a_crash_of_the_server(self):
        """However lax the server's own setting is."""
        self.sql("ALTER DATABASE %s SET synchronous_commit = off" % self.store.database)
        self.sql("ALTER SYSTEM SET wal_writer_delay = '10s'")
        self.sql("SELECT pg_reload_conf()")
        every = []
        for turn in range(3):
            ids = [self.enqueue("effect") for _ in range(20)]
            every += ids
            if turn == 1:
                self.work()
            self.store.server.stop("immediate")
            self.store.server.start()
            state = "ready" if turn != 1 else "done"
            states = dict(self.sql("SELECT id, state FROM pawl_jobs"))
            self.assertEqual({states.get(int(i)) for i in ids}, {state})
            self.work()
            self.assert_each_once(every)

    def case_74_kill_right_after_the_first_start_never_leaves_a_broken_store(self):
        rng = random.Random(74)
        seen = set()
        for i in range(20):
            self.store.admin("CREATE DATABASE s%d" % i)
            env = self.env(PAWL_DB=self.store.url_of("s%d" % i))
            p = subprocess.Popen([PAWL, "init"], env=env, stdout=subprocess.DEVNULL,
                                 stderr=subprocess.DEVNULL)
            time.sleep(rng.random() * 0.08)     # the moment of the kill is the point
            p.kill()
            p.wait()
            done = self.pawl("enqueue", "t", "{}", env=env)
            self.assertIn(done.code, (0, 69), done)
            if done.code == 69:
                self.assertIn("run pawl init", done.err)
            seen.add((p.returncode, done.code))
            for words in (["init"], ["enqueue", "t", "{}"], ["check"]):
                done = self.pawl(*words, env=env)
                self.assertEqual(done.code, 0, done)
        self.assertIn((-signal.SIGKILL, 69), seen, "no kill came early enough")

    def case_74_what_is_no_store_is_refused_with_one_sentence_and_left_alone(self):
        self.store.admin("CREATE DATABASE other")
        self.store.admin("CREATE DATABASE latin ENCODING 'LATIN1' LOCALE 'C' TEMPLATE template0")
        self.store.admin("CREATE ROLE nobody LOGIN")
        self.conf("[task t]\nexec = true\n")
        other = libpq.connect(self.store.url_of("other"))
        other.execute("CREATE SCHEMA pawl; CREATE TABLE pawl.jobs(mine text);"
                      " INSERT INTO pawl.jobs VALUES ('not yours')")
        for url, verbs, codes, says in (
                (self.store.url_of("missing"), ("init", "stats", "work"), (69, 74), "missing"),
                (self.store.url_of("latin"), ("init",), (73, 78), "UTF-?8"),
                (self.store.url_of("other"), ("stats", "work"), (69, 78), "pawl init|not make"),
                (self.store.url_of("other"), ("init",), (73, 78), "pawl"),
                (self.store.url_of(self.store.database, "nobody"), ("stats", "work"), (77,),
                 "permission denied|denied"),
                (self.store.url_of("postgres", "nobody"), ("init",), (73, 77),
                 "permission denied|denied")):
            for verb in verbs:
                with self.subTest(url=url.split("?")[0], verb=verb):
                    done = self.pawl(verb, env=self.env(PAWL_DB=url))
                    self.assertIn(done.code, codes, done)
                    self.assertEqual(len(done.err.splitlines()), 1, done)
                    self.assertRegex(done.err, says)
        self.assertEqual(other.execute("SELECT * FROM pawl.jobs").fetchall(), [("not yours",)])
        self.assertEqual(other.execute("SELECT count(*) FROM pg_class WHERE relnamespace ="
                                       " 'pawl'::regnamespace AND relkind = 'r'").fetchone(), (1,))
        other.close()


@postgres_alone
class Gone(ServerTest):
    """Case 79: a worker whose connections drop does not live on without working."""
    lease = "2s"

    def case_79_worker_goes_on_after_its_sessions_were_ended_again_and_again(self):
        worker = self.worker()
        ids = []
        for _ in range(3):
            ids.append(self.enqueue("effect"))
            self.sql("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname ="
                     " current_database() AND pid <> pg_backend_pid()")
            ids.append(self.enqueue("effect"))
        last = self.act("ok")
        began = uptime()
        self.wait_state(last, "done")
        self.wait_until(lambda: self.count("done", "effect") == 6, 15, "all are done")
        self.assertLess(uptime() - began, 5 + 2 * SLOW)
        self.assert_each_once(ids)
        # And it hears of work at once again.
        job = self.enqueue("effect")
        self.wait_state(job, "done")
        self.assertIsNone(worker.poll())
        self.assertEqual(self.stop_worker(worker), 0, self.log(worker))

    def case_79_two_workers_go_on_after_a_stop_of_the_server_longer_than_their_lease(self):
        """Whoever is back first finds the other's beat too old: neither may end for it."""
        workers = [self.worker(), self.worker()]
        before = [self.act("ok") for _ in range(4)] + [self.enqueue("effect") for _ in range(4)]
        for job in before:
            self.wait_state(job, "done")
        held = self.act("wait:go who")
        self.wait_attempts(held, 1)
        self.store.server.stop("immediate")
        self.fails(74, "enqueue", "effect", says="PostgreSQL")
        for worker in workers:
            self.wait_log(worker, "event=store.trouble")
        began = uptime()
        self.wait_until(lambda: uptime() - began > 6, 10, "three leases")
        self.touch("go")
        self.store.server.start()
        writable = uptime()
        after = [self.enqueue("effect") for _ in range(10)] + [self.act("ok") for _ in range(4)]
        self.wait_until(lambda: self.count("done") == len(before) + 1 + len(after), 30, "all done")
        self.assertLess(uptime() - writable, 5 + 3 * SLOW)
        self.assertEqual([w.poll() for w in workers], [None, None],
                         "".join(self.log(w)[-1500:] for w in workers))
        self.assertEqual(self.sql("SELECT max(failures), max(lost) FROM pawl_jobs"), [(0, 0)])
        self.assert_each_once([j for j in before + after if self.job(j)["task"] == "effect"])
        for worker in workers:
            self.assertEqual(self.stop_worker(worker), 0, self.log(worker))


@postgres_alone
class Pool(ServerTest):
    """Case 81: long handlers and few connections do not cost a healthy job its lease."""
    lease, concurrency = "1s", 20
    settings = "max_connections = 14\nsuperuser_reserved_connections = 3"

    def case_81_renewal_does_not_wait_for_the_transactions_of_handlers(self):
        worker = self.worker()
        self.script("hold.py", "import sys; sys.path.insert(0, %r)\nimport libpq, time, os\n"
                    "try:\n    db = libpq.connect(%r)\nexcept libpq.Refused:\n    sys.exit(0)\n"
                    "db.execute('BEGIN'); db.execute('SELECT 1 FROM fx')\n"
                    "open('held', 'a').write('x')\n"
                    "deadline = time.monotonic() + 5\n"
                    "while time.monotonic() < deadline: time.sleep(0.05)\n"
                    % (os.path.dirname(os.path.abspath(__file__)), self.store.url))
        self.conf(open(os.path.join(self.dir, "pawl.conf"), encoding="utf-8").read()
                  + "\n[task hold]\nexec = python3 hold.py\n")
        self.assertEqual(self.stop_worker(worker), 0)
        ids = [self.enqueue("hold") for _ in range(20)]  # once they run there is no connection left
        worker = self.worker()
        other = self.worker("-n", "1")
        self.wait_until(lambda: self.log(worker).count("event=") and self.held() >= 3, 30,
                        "handlers hold their transactions")
        self.wait_until(lambda: self.done_quietly(len(ids)), 60, "all are done")
        for job in ids:
            page = self.job(job)
            self.assertEqual((page["state"], page["runs"], page["releases"], page["lost"],
                              page["failures"]), ("done", 1, 0, 0, 0), page)
        for w in (worker, other):
            self.assertNotRegex(self.log(w), "worker.gone|worker.frozen")
            self.assertEqual(self.stop_worker(w), 0, self.log(w))

    def held(self):
        try:
            return os.path.getsize(os.path.join(self.dir, "held"))
        except FileNotFoundError:
            return 0

    def done_quietly(self, n):
        try:
            return self.count("done", "hold") == n
        except libpq.Refused:
            return False                        # there is no connection left for us


if __name__ == "__main__":
    unittest.main()
