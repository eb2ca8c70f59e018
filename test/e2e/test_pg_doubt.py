#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""test_pg_doubt.py - a COMMIT whose answer never came, while the server is still at it: what is
told must be what the server makes of it in the end.

The server waits for a standby that there is not: a commit is on its disk then, and nobody sees it
before the wait ends. Between pawl and the server lies a proxy that cuts the connection then."""
import os
import shutil
import socket
import subprocess
import tempfile
import threading
import unittest

from pgkit import PAWL, Cluster, PgTest, clean_env


class Proxy:
    """Hands connections on to a server's socket, until they are cut."""

    def __init__(self, server):
        self.dir = tempfile.mkdtemp(prefix="pawl-test-")
        self.to = os.path.join(server.dir, ".s.PGSQL.5432")
        self.pairs, self.listener = [], socket.socket(socket.AF_UNIX)
        self.listener.bind(os.path.join(self.dir, ".s.PGSQL.5432"))
        self.listener.listen()
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            try:
                mine = self.listener.accept()[0]
            except OSError:
                return
            theirs = socket.socket(socket.AF_UNIX)
            theirs.connect(self.to)
            self.pairs.append((mine, theirs))
            for a, b in (mine, theirs), (theirs, mine):
                threading.Thread(target=self.carry, args=(a, b), daemon=True).start()

    @staticmethod
    def carry(a, b):
        try:
            while True:
                data = a.recv(65536)
                if not data:
                    break
                b.sendall(data)
        except OSError:
            pass
        for s in a, b:
            try:
                s.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass

    def cut(self):
        for pair in self.pairs:
            for s in pair:
                try:
                    s.shutdown(socket.SHUT_RDWR)
                except OSError:
                    pass

    def close(self):
        self.cut()
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
        for pair in self.pairs:
            for s in pair:
                s.close()
        shutil.rmtree(self.dir, ignore_errors=True)


class Doubt(PgTest):
    make_store = False

    def setUp(self):
        self.server = Cluster()
        self.addCleanup(self.server.remove)
        self.database = self.server.new_database()
        self.session = self.open()
        code, said = self.pawl("init")
        self.assertEqual(code, 0, said)
        self.proxy = Proxy(self.server)
        self.addCleanup(self.proxy.close)

    def standby(self, name):
        self.sql("ALTER SYSTEM SET synchronous_standby_names = '%s'" % name)
        self.sql("SELECT pg_reload_conf()")
        self.wait_until(lambda: self.one("SHOW synchronous_standby_names") == name)

    def waits(self):
        return self.one("SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'SyncRep'") != "0"

    def test_what_the_server_still_commits_is_waited_for(self):
        self.standby("nobody")
        url = "postgresql:///%s?host=%s&user=owner" % (self.database, self.proxy.dir)
        env = dict(clean_env(), PAWL_RUNTIME_DIR=self.dir, PAWL_DB=url)
        p = subprocess.Popen([PAWL, "enqueue", "t"], cwd=self.dir, env=env,
                             stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        self.addCleanup(p.wait)
        self.addCleanup(p.kill)
        self.addCleanup(p.stdout.close)
        self.wait_until(self.waits, what="the COMMIT's wait")
        self.assertEqual(self.jobs(), [])               # on the disk, but not to be seen
        self.proxy.cut()
        said = p.communicate(timeout=60)[0].decode()
        self.standby("")
        # Stored, or not known while no standby has it: never that nothing was stored.
        self.assertEqual((p.returncode in (0, 75), len(self.jobs())), (True, 1), said)


if __name__ == "__main__":
    unittest.main()
