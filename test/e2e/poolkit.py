# SPDX-License-Identifier: Apache-2.0
"""poolkit.py - a private PgBouncer before the tests' private PostgreSQL.

Pooler(server, mode) listens on a Unix socket in a directory of its own, and runs as the account
that the server runs as. Which program: $PAWL_PGBOUNCER, else pgbouncer of the path or of
/usr/sbin. None: the tests are skipped, with the reason. PoolTest: a test whose commands reach their
store through one, while it looks at the server itself.
"""
import os
import shutil
import signal
import subprocess
import tempfile
import time
import unittest

import pgkit
from pawltest import SLOW, PawlTest

PORT = 6432                                     # the name of the socket; nobody listens on TCP
# PgBouncer itself sets these for each client, to what that client asked for when it connected.
ITS_OWN = {"application_name", "client_encoding", "DateStyle", "IntervalStyle", "TimeZone",
           "standard_conforming_strings"}


def program():
    for path in (os.environ.get("PAWL_PGBOUNCER"), shutil.which("pgbouncer"),
                 "/usr/sbin/pgbouncer"):
        if path and os.access(path, os.X_OK):
            return path
    raise unittest.SkipTest("no PgBouncer (Debian: pgbouncer)")


class Pooler:
    port = PORT

    def __init__(self, server, mode="transaction", size=2, settings=""):
        self.program, self.server, self.process = program(), server, None
        self.dir = tempfile.mkdtemp(prefix="pool-")
        if "user" in server.who:
            os.chown(self.dir, server.who["user"], server.who["group"])
        os.chmod(self.dir, 0o755)
        self.ini, self.log = os.path.join(self.dir, "ini"), os.path.join(self.dir, "log")
        with open(os.path.join(self.dir, "users"), "w", encoding="ascii") as f:
            f.write('"%s" ""\n"plain" ""\n' % pgkit.SUPERUSER)
        with open(self.ini, "w", encoding="ascii") as f:
            f.write("[databases]\n* = host=%s\n[pgbouncer]\nlisten_addr =\nlisten_port = %d\n"
                    "unix_socket_dir = %s\nauth_type = trust\nauth_file = %s/users\n"
                    "pool_mode = %s\ndefault_pool_size = %d\nmax_client_conn = 200\n"
                    "server_login_retry = 1\n%s\n"
                    % (server.dir, PORT, self.dir, self.dir, mode, size, settings))
        self.start()

    def start(self):
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen([self.program, self.ini], cwd=self.dir, stdout=log,
                                            stderr=log, stdin=subprocess.DEVNULL,
                                            **self.server.who)
        end = time.monotonic() + 15 * SLOW
        socket = os.path.join(self.dir, ".s.PGSQL.%d" % PORT)
        while not os.path.exists(socket):
            if self.process.poll() is not None or time.monotonic() > end:
                with open(self.log, encoding="utf-8", errors="replace") as f:
                    raise AssertionError("pgbouncer did not start:\n" + f.read()[-3000:])
            time.sleep(0.01)

    def kill(self):
        self.process.kill()
        self.process.wait()
        for name in os.listdir(self.dir):       # it had no time to remove its socket
            if name.startswith(".s.PGSQL"):
                os.unlink(os.path.join(self.dir, name))

    def remove(self):
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)
            try:
                self.process.wait(5 * SLOW)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        shutil.rmtree(self.dir, ignore_errors=True)

    def url(self, database, more=""):
        return "postgresql:///%s?host=%s&port=%d&user=%s%s" % (database, self.dir, PORT,
                                                             pgkit.SUPERUSER, more)


class PoolTest(PawlTest):
    """self.pooler is before self.server; self.session and sql() are the server's own."""
    make_store = False
    mode = "transaction"

    def setUp(self):
        super().setUp()
        self.server = pgkit.cluster()
        self.database = self.server.new_database()
        self.pooler = Pooler(self.server, self.mode)
        self.addCleanup(self.pooler.remove)
        self.session = pgkit.PsqlSession(self.server, self.database)
        self.addCleanup(self.session.close)

    def env(self, **more):
        env = {k: v for k, v in super().env().items() if not k.startswith("PG")}
        env.update({"PAWL_DB": self.pooler.url(self.database), "PAWL_RUNTIME_DIR": self.dir,
                    **more})
        return env

    def sql(self, text, values=()):
        return self.session.run(text)

    def one(self, text):
        return self.session.run(text)[0][0]

    def through(self, user=pgkit.SUPERUSER):
        """A psql through the pooler, as an application has it."""
        session = PooledSession(self.pooler, self.database, user)
        self.addCleanup(session.close)
        return session

    def left_behind(self):
        """What is left on the server connections of the pool: two at once see both."""
        a, b = self.through(), self.through()
        found = []
        for session in a, b:
            session.run("BEGIN")
        pids = {session.run("SELECT pg_backend_pid()")[0][0] for session in (a, b)}
        self.assertEqual(len(pids), 2)
        for session in a, b:
            found += session.run("SELECT 'statement ' || name FROM pg_prepared_statements"
                                 " WHERE NOT name ~ '^PGBOUNCER_'")
            found += session.run("SELECT 'listens ' || c FROM pg_listening_channels() c")
            found += session.run("SELECT 'cursor ' || name FROM pg_cursors WHERE is_holdable")
            found += session.run("SELECT 'lock ' || objid FROM pg_locks WHERE pid ="
                                 " pg_backend_pid() AND locktype = 'advisory'")
            found += session.run("SELECT 'temporary ' || relname FROM pg_class WHERE"
                                 " relpersistence = 't'")
            found += [["setting " + name] for name, in session.run(
                "SELECT name FROM pg_settings WHERE source = 'session'") if name not in ITS_OWN]
        for session in a, b:
            session.run("ROLLBACK")
            session.close()
        return [row[0] for row in found]


class PooledSession(pgkit.PsqlSession):
    """It leaves nothing on the connection that it is lent."""

    def settle_in(self):
        self.pid = None                         # another one each time
