#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""test_pg_cuts.py - the connection is cut before and after every message, or stalls at it.

A fixed little workload runs through a proxy of ours (pgproxy.py): a producer's one keyed job; a
worker's one effect (sql) and one leased program (exec). It is recorded once; then it runs again and
again, each time with a cut at another message, and recovers by itself, or is started again, as a
service manager would. Judged from outside: each effect is there exactly once, each program ran,
everything ended done; what the producer was told is true, and its second try with the same key
stores nothing twice.

Here the cuts are at every statement, at its answer, and at every COMMIT: a few statements each
time in another of these ways (a fixed choice). All of them, before and after every single message:
PAWL_TEST_CUTS=all, which `./run soak --postgres --cuts` sets.
"""
import concurrent.futures
import os
import shutil
import subprocess
import tempfile
import unittest

from pawltest import SLOW
from pgkit import PAWL, PgTest, SUPERUSER, clean_env
from pgproxy import Proxy

TIMEOUT = 3600 if os.environ.get("PAWL_TEST_CUTS") == "all" else 180
AT_ONCE = 12
CONF = """[pawl]
lease = 5s
concurrency = 1

[task s%(i)d]
sql = INSERT INTO fx(job, name) VALUES (:job_id, :name)
hard_limit = 3s
backoff = 10ms..50ms

[task x%(i)d]
exec = ./child.sh
backoff = 10ms..50ms
"""
COMMIT = "Execute: COMMIT"                  # as the store sends it
# Where a worker that hears nothing any more has most to lose.
LEASE = "Execute: WITH k AS"                # of the supervisor, and what it settles
STALLS = [COMMIT, "CommandComplete COMMIT", "Execute: INSERT INTO fx", LEASE]
# Exit codes of a worker that could not start or go on, and may be started again.
AGAIN = (69, 74, 75)


class Cut:
    """The rule of a proxy: act once, at the nth message that is `what` on this connection."""

    def __init__(self, conn, what, nth, act):
        self.conn, self.what, self.nth, self.act = conn, what, nth, act
        self.seen, self.fired = 0, False

    def __call__(self, m):
        if self.fired or m.conn != self.conn or (m.to_server, m.what) != self.what:
            return None
        self.seen += 1
        self.fired = self.seen == self.nth
        return self.act if self.fired else None

    def __str__(self):
        return "%s %s message %d of connection %d %s %s" % (
            self.act, "stall" if self.act == "stall" else "cut", self.nth, self.conn,
            "to" if self.what[0] else "from", self.what[1][:200])


class Cuts(PgTest):
    make_store = False

    def setUp(self):
        super().setUp()
        code, said = self.pawl("init")
        self.assertEqual(code, 0, said)
        self.sql("CREATE TABLE fx(job bigint, name text)")
        self.socket = os.path.join(self.server.dir, ".s.PGSQL.5432")
        self.cases = 0

    # --- one case: a directory, a proxy with its rule ---

    def run_pawl(self, home, proxy, *words):
        url = proxy.url(self.database, SUPERUSER) if proxy else self.server.url(self.database)
        env = dict(clean_env(), PAWL_DB=url, PAWL_RUNTIME_DIR=self.dir)
        try:
            done = subprocess.run([PAWL, *words], cwd=home, env=env, stdin=subprocess.DEVNULL,
                                  stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                  timeout=60 * SLOW)
        except subprocess.TimeoutExpired as late:
            return -1, "it does not end:\n%s" % late.stdout.decode("utf-8", "replace")
        return done.returncode, done.stdout.decode("utf-8", "replace")

    def home(self, i):
        home = tempfile.mkdtemp(prefix="pawl-test-", dir=self.dir)
        with open(os.path.join(home, "pawl.conf"), "w", encoding="ascii") as f:
            f.write(CONF % {"i": i})
        with open(os.path.join(home, "child.sh"), "w", encoding="ascii") as f:
            f.write("#!/bin/sh\necho $PAWL_JOB_ID >> starts\n")
        os.chmod(os.path.join(home, "child.sh"), 0o755)
        return home

    def work(self, i, rule):
        """A worker, started again until it ends well. Returns what was wrong, or None."""
        home, proxy, said = self.home(i), Proxy(self.socket, rule), ""
        try:
            for _ in range(5):
                code, out = self.run_pawl(home, proxy, "work", "--until-empty")
                said += "exit %d\n%s" % (code, out)
                if code == 0:
                    break
                if code not in AGAIN:
                    return said
            starts = os.path.join(home, "starts")
            ran = len(open(starts).readlines()) if os.path.exists(starts) else 0
            if code != 0 or not 1 <= ran <= 3:
                return "the program ran %d times\n%s" % (ran, said)
            return None
        finally:
            proxy.close()
            shutil.rmtree(home, True)

    def enqueue(self, i, rule, dead=False):
        """A producer; dead: nobody answers after the cut. What was wrong, or None."""
        proxy = Proxy(self.socket, lambda m: self.then_dead(proxy, rule, m) if dead else rule(m))
        words = ("enqueue", "e%d" % i, '{"n":%d}' % i, "--key", "k%d" % i)
        try:
            code, said = self.run_pawl(self.dir, proxy, *words)
            n = self.query("SELECT count(*) FROM pawl.jobs WHERE task = 'e%d'" % i)
            honest = {0: n == "1", 75: n in ("0", "1")}.get(code, code in AGAIN and n == "0")
            said = "exit %d, %s jobs\n%s" % (code, n, said)
            if not honest or len([s for s in said.splitlines() if "warning" not in s]) > 3:
                return said
            if dead and rule.what == (True, COMMIT) and code != 75:
                return "a commit without an answer, told as sure: " + said
            again, what = self.run_pawl(self.dir, None, "--json", *words)
            wanted = '"created":%s' % ("false" if n == "1" else "true")
            if again != 0 or wanted not in what:
                return "%s\nagain: exit %d, %s" % (said, again, what)
            return None
        finally:
            proxy.close()

    @staticmethod
    def then_dead(proxy, rule, m):
        act = rule(m)
        if rule.fired and proxy.server is not None:
            proxy.server.close()                # inside the proxy's own loop
            proxy.server = None
        return act

    def query(self, sql):
        out = subprocess.run(["psql", "-XqtA", "-h", self.server.dir, "-U", SUPERUSER, "-d",
                              self.database, "-c", sql], env=clean_env(), timeout=60 * SLOW,
                             stdout=subprocess.PIPE, check=True).stdout
        return out.decode().strip()

    # --- what there is to cut ---

    def record(self, run):
        """The messages of one undisturbed run, as (conn, what, nth)."""
        seen, count = [], {}

        def note(m):
            key = (m.conn, (m.to_server, m.what))
            count[key] = count.get(key, 0) + 1
            seen.append(key + (count[key],))
        self.assertIsNone(run(self.next(), note))
        return seen

    def next(self):
        self.cases += 1
        return self.cases

    def prepare(self):
        """The jobs of the cases that are to come."""
        self.sql("SELECT count(*) FROM generate_series(1, 4000) AS i, LATERAL (SELECT id FROM"
                 " pawl.enqueue('s' || i, json_build_object('name', 's' || i)) UNION ALL"
                 " SELECT id FROM pawl.enqueue('x' || i, '{}')) AS e")

    def chosen(self, seen, step):
        """The cuts: all, or every step-th of those that are worth it."""
        if os.environ.get("PAWL_TEST_CUTS") == "all":
            return [Cut(*m, act) for m in seen for act in ("before", "after")]
        out, at = [], 0
        for conn, (to_server, what), nth in seen:
            kind, statement = what.split(": ", 1)
            commit = statement == "COMMIT"
            if kind not in ("Query", "Execute") and not kind.startswith("CommandComplete"):
                continue
            if nth > (4 if commit else 1) or statement.startswith("NOTIFY"):
                continue
            for act in ("before", "after"):
                at += 1
                if at % step == 0 or commit:
                    out.append(Cut(conn, (to_server, what), nth, act))
        return out

    def sweep(self, tasks):
        """Run (function, arguments) side by side; all faults at the end."""
        faults, cuts = [], []
        with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
            todo = [(c, pool.submit(fn, self.next(), c, *more)) for fn, c, *more in tasks]
            for cut, future in todo:
                wrong = future.result()
                cuts.append(cut)
                if wrong is not None:
                    faults.append("%s: %s" % (cut, wrong[-3000:]))
        fired = sum(c.fired for c in cuts)
        print("%d cuts and stalls, %d of them met their message" % (len(cuts), fired))
        self.assertEqual(faults[:3], [], "%d faults" % len(faults))
        self.assertGreater(fired, len(cuts) * 0.8)

    # --- the tests ---

    def test_cut_anywhere_a_producer_is_told_the_truth(self):
        seen = self.record(self.enqueue)
        tasks = [(self.enqueue, c) for c in self.chosen(seen, 1)]
        tasks += [(self.enqueue, Cut(*m, act), True) for m in seen for act in ("before", "after")
                  if m[1][0] and m[1][1].startswith(("Query", "Execute"))]
        commit = [m for m in seen if m[1][1].endswith(": COMMIT")]
        self.assertIn((True, COMMIT), [m[1] for m in commit])
        tasks = [(self.enqueue, Cut(*m, "stall")) for m in commit] + tasks
        self.sweep(tasks)
        self.check()

    def test_cut_anywhere_a_worker_does_everything_once(self):
        self.prepare()
        seen = self.record(self.work)
        first = [m for m in seen if m[2] == 1 and (m[0] > 0 or m[1][1].startswith(LEASE))]
        for where in STALLS:
            self.assertTrue(any(m[1][1].startswith(where) for m in first), where)
        stalls = [Cut(*m, "stall") for m in first if m[1][1].startswith(tuple(STALLS))]
        self.sweep([(self.work, c) for c in stalls + self.chosen(seen, 3)])
        n = str(self.cases)
        self.assertEqual(self.sql("SELECT count(*), count(DISTINCT name) FROM fx"), [[n, n]])
        self.assertEqual(self.sql("SELECT left(task, 1), state, count(*) FROM pawl.jobs WHERE"
                                  " substr(task, 2)::int <= %s GROUP BY 1, 2 ORDER BY 1" % n),
                         [["s", "done", n], ["x", "done", n]])
        self.check()

    def check(self):
        code, said = self.pawl("check")
        self.assertEqual(code, 0, said)


if __name__ == "__main__":
    unittest.main()
