# SPDX-License-Identifier: Apache-2.0
"""pgkit.py - a private PostgreSQL for the tests: started on first use, a database for each test.

A test of PgTest uses the server of test/run.py, if there is one. cluster() starts one in a
temporary directory, once per process: a Unix socket only, everybody trusted, UTF-8. Neither waits
for the disk (fsync = off): what a killed server process would lose is tested with a
Cluster(durable=True) of one's own. Which programs: tool/pgserver.py says it. None: the tests are
skipped, with the reason.

A session keeps one connection open. run(sql) runs one statement and returns its rows as lists of
texts; a refusal raises Refused with the server's words and SQLSTATE. ask(sql) sends only, and
answer() waits: so a test has two transactions at once.
"""
import atexit
import csv
import io
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import unittest

from pawltest import PAWL, ROOT, SLOW

sys.path.insert(0, os.path.join(ROOT, "tool"))
if os.environ.get("PAWL_PYTHON_DIR"):            # what tool/thirdparty has fetched, by test/run.py
    sys.path.insert(0, os.environ["PAWL_PYTHON_DIR"])
from pgserver import SUPERUSER, Missing, Server, clean_env  # noqa: E402

try:
    import psycopg2
    import psycopg2.extensions
except ImportError:
    psycopg2 = None
try:
    import psycopg
except ImportError:
    psycopg = None

csv.field_size_limit(16 * 1024 * 1024)
SQL = os.path.join(ROOT, "sql", "postgres")


class Refused(Exception):
    """The server said no. state: its SQLSTATE."""

    def __init__(self, text, state):
        super().__init__("%s %s" % (state, text))
        self.state = state


# --- the server -----------------------------------------------------------------------------------

class Cluster(Server):
    """A private server (tool/pgserver.py), and a database for each who asks."""

    def __init__(self, durable=False, settings=""):
        if not shutil.which("psql") or not shutil.which("stdbuf"):
            raise unittest.SkipTest("no psql (Debian: postgresql-client), or no stdbuf")
        try:
            super().__init__(durable, settings, patience=60 * SLOW)
        except Missing as why:
            raise unittest.SkipTest(str(why)) from None
        self.databases = 0
        self.version = self.sql("SHOW server_version")[0][0]
        self.version_num = int(self.sql("SHOW server_version_num")[0][0])

    def sql(self, text, database="postgres"):
        session = PsqlSession(self, database)
        try:
            return session.run(text)
        finally:
            session.close()

    def new_database(self):
        self.databases += 1
        name = "t%d" % self.databases
        self.sql("CREATE DATABASE %s" % name)
        return name


class Shared:
    """The server of test/run.py, which other tests use at the same time: databases of one's own,
    and nothing that is the whole server's (settings, roles, an end)."""
    url, sql = Server.url, Cluster.sql

    def __init__(self):
        self.dir, self.databases = os.environ["PAWL_TEST_PG"], 0
        self.version_num = int(self.sql("SHOW server_version_num")[0][0])

    def new_database(self):
        self.databases += 1
        name = "p%d_%d" % (os.getpid(), self.databases)
        self.sql("CREATE DATABASE %s" % name)
        unittest.addModuleCleanup(self.sql, "DROP DATABASE %s WITH (FORCE)" % name)
        return name


_cluster = None


def cluster():
    """The server of this process; it ends with the tests of the module, or with the process."""
    global _cluster
    if _cluster is None:
        _cluster = Cluster()
        print("PostgreSQL %s from %s" % (_cluster.version, _cluster.bin))
        unittest.addModuleCleanup(_forget)
        atexit.register(_forget)
    return _cluster


def _forget():
    global _cluster
    if _cluster is not None:
        _cluster.remove()
        _cluster = None


# --- sessions -------------------------------------------------------------------------------------

class PsqlSession:
    """The psql command in a process of its own."""
    name = "psql"
    END = "=END="

    def __init__(self, server, database, user=SUPERUSER):
        self.process = subprocess.Popen(
            ["stdbuf", "-oL", "psql", "-X", "-q", "-t", "--csv", "-h", server.dir, "-p",
             str(getattr(server, "port", 5432)), "-U", user, "-d", database,
             "-v", "VERBOSITY=verbose", "-v", "SHOW_CONTEXT=never"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            env=clean_env())
        self.settle_in()

    def settle_in(self):
        self.run("SET client_min_messages = warning")
        self.pid = self.run("SELECT pg_backend_pid()")[0][0]

    def ask(self, sql):
        self.asked = True
        self.process.stdin.write(("%s\n;\n\\echo\n\\echo %s\n" % (sql, self.END)).encode(
            "utf-8", "surrogateescape"))
        self.process.stdin.flush()

    def answer(self):
        lines = []
        for line in self.process.stdout:
            line = line.decode("utf-8", "surrogateescape")
            if line == self.END + "\n":
                break
            lines.append(line)
        else:
            raise AssertionError("psql has ended: %s" % "".join(lines))
        self.asked = False
        text = "".join(lines)[:-1]
        refused = re.search(r"^(?:ERROR|FATAL):  (\w{5}): (.*)", text, re.M | re.S)
        if refused:
            raise Refused(refused[2], refused[1])
        return [row or [""] for row in csv.reader(io.StringIO(text, newline=""))]

    def run(self, sql):
        self.ask(sql)
        return self.answer()

    def close(self):
        if self.process.poll() is None and self.asked:
            self.kill()                         # it may wait for a lock of one that closes later
        self.process.stdin.close()
        self.process.stdout.close()
        self.process.wait()

    def kill(self):
        self.process.kill()
        self.process.wait()


def as_text(value):
    """As psql shows it."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "t" if value else "f"
    return str(value)


class Psycopg2Session:
    name = "psycopg2"

    def __init__(self, server, database, user=SUPERUSER):
        self.db = psycopg2.connect(host=server.dir, dbname=database, user=user)
        self.db.autocommit = True
        self.pid = str(self.db.get_backend_pid())

    def run(self, sql, values=None):
        with self.db.cursor() as cursor:
            try:
                cursor.execute(sql, values)
            except psycopg2.Error as error:
                raise Refused(str(error), error.pgcode) from None
            rows = cursor.fetchall() if cursor.description else []
        return [[as_text(v) for v in row] for row in rows]

    def close(self):
        self.db.close()

    kill = close


class PsycopgSession:
    name = "psycopg"

    def __init__(self, server, database, user=SUPERUSER):
        self.db = psycopg.connect(host=server.dir, dbname=database, user=user, autocommit=True)
        self.pid = str(self.db.info.backend_pid)

    def run(self, sql, values=None):
        with self.db.cursor() as cursor:
            try:
                cursor.execute(sql, values)
            except psycopg.Error as error:
                raise Refused(str(error), error.sqlstate) from None
            rows = cursor.fetchall() if cursor.description else []
        return [[as_text(v) for v in row] for row in rows]

    def close(self):
        self.db.close()

    kill = close


NODE = """
const { Client } = require(process.argv[2] + '/pg');
const db = new Client({ host: process.argv[3], database: process.argv[4], user: process.argv[5],
                        types: { getTypeParser: () => (text) => text } });
db.connect().then(async () => {
  const lines = require('node:readline').createInterface({ input: process.stdin });
  for await (const line of lines) {
    let answer;
    try {
      const result = await db.query({ text: JSON.parse(line), rowMode: 'array' });
      answer = { rows: result.rows };
    } catch (error) {
      answer = { refused: error.message, state: error.code };
    }
    console.log(JSON.stringify(answer));
  }
  await db.end();
});
"""


def node_command():
    """How to run Node, or None."""
    return os.environ.get("PAWL_NODE") or shutil.which("node")


class NodePgSession:
    """node-postgres, in a process of its own; values as the server writes them."""
    name = "node_pg"

    def __init__(self, server, database, user=SUPERUSER):
        self.process = subprocess.Popen(
            [node_command(), "-e", NODE, "-", os.environ["PAWL_NODE_PG"], server.dir, database,
             user], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=clean_env())
        self.pid = self.run("SELECT pg_backend_pid()")[0][0]

    def run(self, sql):
        self.process.stdin.write((json.dumps(sql) + "\n").encode())
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            raise AssertionError("node has ended: exit %s" % self.process.wait())
        answer = json.loads(line)
        if "refused" in answer:
            raise Refused(answer["refused"], answer["state"])
        return [["" if v is None else v for v in row] for row in answer["rows"]]

    def close(self):
        self.process.stdin.close()
        self.process.stdout.close()
        self.process.wait()

    def kill(self):
        self.process.kill()
        self.process.wait()


SESSIONS = (PsqlSession, Psycopg2Session, PsycopgSession, NodePgSession)


def missing(session_class):
    """Why this client cannot be used here, or None."""
    if session_class is Psycopg2Session and psycopg2 is None:
        return "Python has no psycopg2 (tool/thirdparty python fetches it)"
    if session_class is PsycopgSession and psycopg is None:
        return "Python has no psycopg 3 (tool/thirdparty python fetches it)"
    if session_class is NodePgSession and not (node_command() and os.environ.get("PAWL_NODE_PG")):
        return "no Node, or no node-postgres (tool/thirdparty node-pg fetches it)"
    return None


# --- tests ----------------------------------------------------------------------------------------

def script(name):
    with open(os.path.join(SQL, name), encoding="utf-8") as f:
        return f.read()


def install(session):
    """A store in the session's database, as `pawl init` makes it."""
    session.run("CREATE SCHEMA pawl")
    for name in "0001_init.sql", "views.sql", "functions.sql":
        session.run(script(name))


def literal(value):
    """A Python value as an SQL literal. Bytes: text of these bytes, whatever they are."""
    if value is None:
        return "NULL"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, bytes):
        value = value.decode("utf-8", "surrogateescape")
    return "'%s'" % value.replace("'", "''")


def enqueue(*positional, **named):
    """SELECT ... FROM pawl.enqueue with these arguments."""
    words = [literal(v) for v in positional]
    words += ["%s => %s" % (name, literal(v)) for name, v in named.items()]
    return "SELECT id, created FROM pawl.enqueue(%s)" % ", ".join(words)


class PgTest(unittest.TestCase):
    """A test with a database of its own and a store in it. self.session: a psql of the owner.
    own_server: for what concerns all of a server, as roles do."""
    make_store, own_server = True, False
    dir = None                                  # of the commands; made by the first

    def setUp(self):
        shared = os.environ.get("PAWL_TEST_PG") and not self.own_server
        self.server = Shared() if shared else cluster()
        self.database = self.server.new_database()
        self.session = self.open()
        if self.make_store:
            install(self.session)

    def open(self, session_class=PsqlSession, user=SUPERUSER):
        session = session_class(self.server, self.database, user)
        self.addCleanup(session.close)
        return session

    def sql(self, text):
        return self.session.run(text)

    def one(self, text):
        return self.session.run(text)[0][0]

    def pawl(self, *words, user=SUPERUSER):
        """Run the command on this store, in a directory of its own: exit code, what it said."""
        if self.dir is None:
            self.dir = tempfile.mkdtemp(prefix="pawl-test-")
            self.addCleanup(shutil.rmtree, self.dir, True)
        env = dict(clean_env(), PAWL_DB=self.server.url(self.database, user),
                   PAWL_RUNTIME_DIR=self.dir)
        done = subprocess.run([PAWL, *words], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              cwd=self.dir, env=env, timeout=60 * SLOW)
        return done.returncode, "pawl %s: exit %d\n%s" % (
            " ".join(words), done.returncode, done.stdout.decode("utf-8", "replace"))

    def jobs(self):
        return self.sql("SELECT id, task, args, state FROM pawl.jobs ORDER BY id")

    def refused(self, state, says, call, session=None):
        """Refused with this SQLSTATE and these words; returns the refusal."""
        with self.assertRaisesRegex(Refused, says) as caught:
            (session or self.session).run(call)
        self.assertEqual(caught.exception.state, state, caught.exception)
        return caught.exception

    def wait_until(self, true, deadline=15, what="the condition"):
        """Ask again until true() is true; fails after `deadline` seconds. Returns its value."""
        end = time.monotonic() + deadline * SLOW
        while True:
            value = true()
            if value:
                return value
            if time.monotonic() > end:
                self.fail("%s did not become true in %g s" % (what, deadline * SLOW))
            time.sleep(0.01)                    # between two looks, not in place of one

    def wait_blocked(self, session):
        """Until the session's statement waits for somebody's lock."""
        self.wait_until(lambda: self.one("SELECT cardinality(pg_blocking_pids(%s)) > 0"
                                         % session.pid) == "t", what="a session waits for a lock")
