#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""test_pg_doubt.py - a COMMIT whose answer never came, while the server is still at it: what is
told must be what the server makes of it in the end.

The server waits for a standby that there is not: a commit is on its disk then, and nobody sees it
before the wait ends. Between pawl and the server lies a proxy that cuts the connection then."""
import os
import subprocess
import unittest

from pgkit import PAWL, SUPERUSER, Cluster, PgTest, clean_env
from pgproxy import Proxy


class Doubt(PgTest):
    make_store = False

    def setUp(self):
        self.server = Cluster()
        self.addCleanup(self.server.remove)
        self.database = self.server.new_database()
        self.session = self.open()
        code, said = self.pawl("init")
        self.assertEqual(code, 0, said)
        self.proxy = Proxy(os.path.join(self.server.dir, ".s.PGSQL.5432"))
        self.addCleanup(self.proxy.close)

    def standby(self, name):
        self.sql("ALTER SYSTEM SET synchronous_standby_names = '%s'" % name)
        self.sql("SELECT pg_reload_conf()")
        self.wait_until(lambda: self.one("SHOW synchronous_standby_names") == name)

    def call_off(self):
        """The connections that are there end; new ones are let in."""
        self.proxy.down()
        self.proxy.up()

    def waits(self):
        return self.one("SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'SyncRep'") != "0"

    def test_what_the_server_still_commits_is_waited_for(self):
        self.standby("nobody")
        url = self.proxy.url(self.database, SUPERUSER)
        env = dict(clean_env(), PAWL_RUNTIME_DIR=self.dir, PAWL_DB=url)
        p = subprocess.Popen([PAWL, "enqueue", "t"], cwd=self.dir, env=env,
                             stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        self.addCleanup(p.wait)
        self.addCleanup(p.kill)
        self.addCleanup(p.stdout.close)
        self.wait_until(self.waits, what="the COMMIT's wait")
        self.assertEqual(self.jobs(), [])               # on the disk, but not to be seen
        self.call_off()
        said = p.communicate(timeout=60)[0].decode()
        self.standby("")
        # Stored, or not known while no standby has it: never that nothing was stored.
        self.assertEqual((p.returncode in (0, 75), len(self.jobs())), (True, 1), said)


class Slow(PgTest):
    """A COMMIT that takes 0.15 s, and no standby: what the server makes of it is certain."""
    make_store = False

    def setUp(self):
        super().setUp()
        code, said = self.pawl("init")
        self.assertEqual(code, 0, said)
        self.sql("CREATE FUNCTION linger() RETURNS trigger LANGUAGE plpgsql AS"
                 " $$ BEGIN PERFORM pg_sleep(0.15); RETURN NULL; END $$")
        self.sql("CREATE CONSTRAINT TRIGGER linger AFTER INSERT ON pawl.x_job DEFERRABLE"
                 " INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION linger()")

    def test_what_is_still_being_committed_is_not_told_as_not_stored(self):
        cuts = []

        def cut(m):
            if m.to_server and m.what == "Execute: COMMIT" and not cuts:
                cuts.append(m)
                return "after"
            return None
        proxy = Proxy(os.path.join(self.server.dir, ".s.PGSQL.5432"), cut)
        self.addCleanup(proxy.close)
        env = dict(clean_env(), PAWL_RUNTIME_DIR=self.dir,
                   PAWL_DB=proxy.url(self.database, SUPERUSER))
        done = subprocess.run([PAWL, "enqueue", "t"], cwd=self.dir, env=env, timeout=60,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        self.assertEqual((len(cuts), done.returncode, len(self.jobs())), (1, 0, 1), done.stdout)


if __name__ == "__main__":
    unittest.main()
