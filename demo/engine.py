# SPDX-License-Identifier: Apache-2.0
"""engine.py - the database of the demo's shop: an SQLite file, or a private PostgreSQL server.

Everything of the demo that is not the same on both is here: where the store is, how the auditor
reads (read-only, by the database's own client and never by Pawl), two words of the config, and what
can be killed.

    url, conf      where the store is: for --db, and for pawl.conf
    jobs           the name of the view of all jobs
    enqueue        the statement by which a task enqueues a `charge`
    read_only()    something with execute(SELECT) and close(); Unreachable while the server is down
    write(sql)     one statement of somebody who is not Pawl
    crash(rng)     the server dies and comes back; True if there is one
    packages       how many the feed of a whole day has: what fits into a minute or so
    gone           exit codes of a `pawl` whose server went away under it: worth another try
"""
import json
import os
import sqlite3
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(HERE), "tool"))
import pgserver  # noqa: E402
from chaos import children, kill_child  # noqa: E402


class Unreachable(Exception):
    """The server is down, or was a moment ago."""


class Sqlite:
    conf, jobs, says, gone = "sqlite:shop.db", "pawl_jobs", None, ()
    packages = 25000
    enqueue = ("INSERT INTO pawl_enqueue(task, args, key)"
               " VALUES ('charge', :args, 'order-' || :order)")

    def __init__(self, where):
        self.path = os.path.join(where, "shop.db")
        self.url = "sqlite:" + self.path

    def write(self, sql):
        db = sqlite3.connect(self.path)
        db.executescript(sql)
        db.close()

    def read_only(self):
        db = sqlite3.connect("file:%s?mode=ro" % self.path, uri=True, timeout=10)
        db.execute("PRAGMA query_only = ON")
        return db

    def crash(self, _rng):
        return False

    def close(self):
        pass


class Rows(list):
    def fetchone(self):
        return self[0] if self else None


class Psql:
    """The psql command as a connection: reads only. A row is a tuple of what JSON makes of it."""

    def __init__(self, server, env):
        self.server, self.env = server, dict(env, PGOPTIONS="-c default_transaction_read_only=on")

    def execute(self, select):
        # row_to_json keeps the order of the columns, and psql prints one row a line.
        done = subprocess.run(
            ["psql", "-X", "-q", "-At", "-c", "SELECT row_to_json(q) FROM (%s) AS q" % select],
            env=self.env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        if done.returncode == 2:
            raise Unreachable(done.stderr.decode("utf-8", "replace").strip())
        if done.returncode != 0:
            raise ValueError("%s: %s" % (select, done.stderr.decode("utf-8", "replace")))
        return Rows(tuple(value for _, value in json.loads(line, object_pairs_hook=list))
                    for line in done.stdout.decode("utf-8").splitlines())

    def close(self):
        pass


class Postgres:
    jobs, gone = "pawl.jobs", (os.EX_IOERR, os.EX_TEMPFAIL)
    packages = 8000
    enqueue = "SELECT pawl.enqueue('charge', :args, key => 'order-' || :order)"

    def __init__(self, where):
        # It waits for no disk: what it committed survives its death, though not the machine's.
        self.server = pgserver.Server(within=where)
        try:
            self.server.program("createdb", "-h", self.server.dir, "-U", pgserver.SUPERUSER, "shop")
        except BaseException:
            self.server.remove()
            raise
        self.url = self.conf = self.server.url("shop")
        self.env = dict(pgserver.clean_env(), PGHOST=self.server.dir, PGDATABASE="shop",
                        PGUSER=pgserver.SUPERUSER)
        os.environ["PAWL_RUNTIME_DIR"] = where      # what workers leave on the disk goes with us
        self.says = "PostgreSQL %s, a private server; it is killed, too" % (
            self.read_only().execute("SELECT current_setting('server_version') AS v")[0][0])

    def write(self, sql):
        done = subprocess.run(["psql", "-X", "-q", "-v", "ON_ERROR_STOP=1", "-1", "-f", "-"],
                              env=self.env, input=sql.encode(), stderr=subprocess.PIPE)
        if done.returncode != 0:
            raise ValueError("%s: %s" % (sql, done.stderr.decode("utf-8", "replace")))

    def read_only(self):
        return Psql(self.server, self.env)

    def crash(self, rng):
        """One of its processes by SIGKILL, after which the server drops all the others by itself;
        or all of it at once, and a start. Both replay the log of the last seconds."""
        if rng.random() < 0.5:
            pids = children(self.server.pid)
            return bool(pids) and kill_child(rng.choice(pids), self.server.pid)
        self.server.stop("immediate")
        self.server.start()
        return True

    def close(self):
        """Stopped; the files stay, and go with the shop's directory."""
        self.server.stop("immediate")


ENGINES = {"sqlite": Sqlite, "postgres": Postgres}
