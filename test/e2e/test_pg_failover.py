#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""test_pg_failover.py - two servers: the one that takes writes is found, and lost, and found again.

A primary and a synchronous standby, both private, on Unix sockets: a URL with both hosts is libpq's
host=DIRECTORY,DIRECTORY."""
import os
import signal
import subprocess
import tempfile
import time
import unittest

from pawltest import PAWL, SLOW
from pgkit import Cluster, SUPERUSER
from pgload import Load
from pgserver import account, bindir

TIMEOUT = 180
WITHIN = 5                  # seconds from the first write that is taken to the first effect


class Standby(Cluster):
    """A copy of a running cluster that follows it."""

    def __init__(self, primary):
        self.bin, self.who, self.patience = bindir(), account(), primary.patience
        self.dir = tempfile.mkdtemp(prefix="pg-")
        self.data, self.log = os.path.join(self.dir, "data"), os.path.join(self.dir, "log")
        self.pid, self.databases = None, 0
        self.let_in()
        self.program("pg_basebackup", "-h", primary.dir, "-U", SUPERUSER, "-D", self.data, "-R",
                     "-X", "stream", "-c", "fast", "--no-sync")
        with open(os.path.join(self.data, "postgresql.conf"), "a", encoding="ascii") as f:
            f.write("unix_socket_directories = '%s'\n" % self.dir)
        self.start()

    def promote(self):
        self.program("pg_ctl", "-D", self.data, "-s", "-w", "promote")


def kill(server):
    """The postmaster and its children, which we started, at once."""
    with open("/proc/%d/task/%d/children" % (server.pid, server.pid), encoding="ascii") as f:
        pids = [server.pid] + [int(p) for p in f.read().split()]
    for pid in pids:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
    server.pid = None


class Pair(unittest.TestCase):
    def setUp(self):
        self.primary = Cluster()
        self.addCleanup(self.primary.remove)
        self.standby = Standby(self.primary)
        self.addCleanup(self.standby.remove)
        self.primary.sql("ALTER SYSTEM SET synchronous_standby_names = '*'")
        self.primary.sql("SELECT pg_reload_conf()")
        self.until(lambda: self.primary.sql("SELECT sync_state FROM pg_stat_replication")
                   == [["sync"]], "the standby is a synchronous one")
        self.load = Load(self.url(self.standby, self.primary))
        self.addCleanup(self.load.close)
        self.load.init()

    def until(self, true, what, deadline=30):
        end = time.monotonic() + deadline * SLOW
        while not true():
            self.assertLess(time.monotonic(), end, what)
            time.sleep(0.01)                    # between two looks, not in place of one

    @staticmethod
    def url(*servers, more=""):
        return "postgresql:///postgres?host=%s&user=%s%s" % (
            ",".join(s.dir for s in servers), SUPERUSER, more)

    def enqueue(self, url, key):
        """A producer that runs beside us."""
        return subprocess.Popen([PAWL, "--json", "enqueue", "s", '{"name":"%s"}' % key,
                                 "--key", key],
                                cwd=self.load.dir, env=dict(self.load.env(), PAWL_DB=url),
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def end(self, producer):
        out, err = producer.communicate(timeout=90 * SLOW)
        return producer.returncode, out + err

    def test_primary_killed_standby_promoted_under_load(self):
        load = self.load
        for _ in range(2):
            load.start_worker()
        load.produce(4)
        load.wait(lambda: load.stored() >= 60 and load.done() >= 30, "some work before")
        kill(self.primary)
        before = load.stored()
        load.wait(lambda: len(load.told) > load.stored() or load.stored() > before + 4,
                  "producers have seen it")
        self.standby.promote()
        write = "CREATE TABLE up(x int); SELECT extract(epoch FROM clock_timestamp())"
        self.until(lambda: load.psql(write, self.url(self.standby)).returncode == 0, "it writes")
        up = "(SELECT to_timestamp(%s))" % time.time()
        kinds = {}

        def all_kinds_run():
            for task, after in load.rows("SELECT task, extract(epoch FROM min(at) - %s) FROM fx"
                                         " WHERE at > %s GROUP BY 1" % (up, up)):
                kinds.setdefault(task, float(after))
            return len(kinds) == len(load.tasks)
        load.wait(all_kinds_run, "effects on the new primary")
        n = load.stored()
        load.wait(lambda: load.stored() >= n + 40, "more work after")
        n = load.audit()
        print("failover: first effect of each kind %s s after the new primary took writes; %d jobs,"
              " none lost, none doubled" % (", ".join("%s %.2f" % (k, v) for k, v in
                                                      sorted(kinds.items())), n))
        self.assertLess(max(kinds.values()), WITHIN * SLOW * 3)
        self.assertEqual(len(load.ended), 0, "workers ended: %s" % load.log())
        print("producers' exit codes: %s" % load.codes)

    def test_the_server_that_takes_writes_is_found(self):
        for url in (self.url(self.standby, self.primary), self.url(self.primary, self.standby)):
            code, said = self.end(self.enqueue(url, "k" + str(len(url))))
            self.assertEqual(code, 0, said)
        code, said = self.end(self.enqueue(self.url(self.standby), "ro"))
        self.assertEqual((code, said.count("\n")), (74, 1), said)
        self.assertIn("session is read-only", said)
        anyone = self.url(self.standby, self.primary, more="&target_session_attrs=any")
        code, said = self.end(self.enqueue(anyone, "any"))
        self.assertEqual((code, said.count("\n")), (74, 1), said)
        self.assertIn("the server is a standby", said)
        seen = subprocess.run([PAWL, "jobs"], cwd=self.load.dir, stdout=subprocess.PIPE, text=True,
                              env=dict(self.load.env(), PAWL_DB=anyone), check=True).stdout
        self.assertIn("ready", seen)            # what only reads is answered by a standby, if asked

    def test_commit_that_no_standby_has_is_not_told_as_stored(self):
        self.end(self.enqueue(self.url(self.primary), "first"))
        self.standby.stop("immediate")
        waits, cancelled = (self.enqueue(self.url(self.primary, more="&application_name=" + n), n)
                            for n in ("waits", "cancelled"))
        def ended():                            # as long as it waits for the standby in vain
            self.primary.sql("SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE wait_event"
                             " = 'SyncRep' AND application_name = 'cancelled'")
            return cancelled.poll() is not None
        self.until(ended, "the cancelled producer ends", 60)
        for producer in cancelled, waits:
            code, said = self.end(producer)
            self.assertEqual(code, 75, said)
            self.assertIn("send it again with the same key", said)
        # What was cancelled is seen, for the server has committed it; what waits still is not.
        self.assertEqual(self.primary.sql("SELECT key FROM pawl.jobs ORDER BY id"),
                         [["first"], ["cancelled"]])
        self.standby.start()
        for key in "cancelled", "waits":
            code, said = self.end(self.enqueue(self.url(self.primary), key))
            self.assertEqual(code, 0, said)
            self.assertIn('"created":false', said)


if __name__ == "__main__":
    unittest.main()
