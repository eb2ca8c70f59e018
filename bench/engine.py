# SPDX-License-Identifier: Apache-2.0
"""engine.py - the two engines, as the measurements use them: a store, raw rows, looks at tables.

The SQL of the measurements is SQLite's: pawl_x_done, ?. The other engine gets it in its own words.
"""
import os
import re
import shutil
import sqlite3
import subprocess
import sys

from kit import BUSY_S, Failed

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))),
                                "tool"))
import pgserver  # noqa: E402 the path comes first

# What a server with room does; fsync and synchronous_commit are on, full_page_writes as well.
SETTINGS = "shared_buffers = 256MB\nmax_wal_size = 4GB\nwal_buffers = 16MB\n"


class Sqlite:
    name = "sqlite"
    durability = "WAL, synchronous=FULL (read back by Pawl)"
    tables = ("CREATE TABLE effect (key TEXT PRIMARY KEY, n INTEGER) STRICT, WITHOUT ROWID",
              "CREATE TABLE app (id INTEGER PRIMARY KEY, v INTEGER)")
    facts = {"synchronous": "FULL", "journal_mode": "WAL"}

    def new_store(self, directory):
        return os.path.join(directory, "bench.db")

    def disk(self, directory):
        """Where a file lies on the disk of the store."""
        return os.path.join(directory, "disk")

    def connect(self, db):
        return sqlite3.connect(db, timeout=BUSY_S, isolation_level=None)

    def raw(self, tools, db, rows):
        return tools.ask("batch", "pawl", db, rows)

    def remove(self):
        pass


class Psql:
    """A connection, by a psql that stays. execute() returns rows, as sqlite3's does."""

    def __init__(self, url):
        self.process = subprocess.Popen(["psql", "-X", "-q", "-A", "-t", "-F", "\t", "-v",
                                         "ON_ERROR_STOP=1", url], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                        env=pgserver.clean_env())

    def execute(self, text, values=()):
        values = list(values)
        text = re.sub(r"\?", lambda _: literal(values.pop(0)), text)
        text = re.sub(r"\bpawl_x_", "pawl.x_", text).replace("pawl_jobs", "pawl.jobs")
        self.process.stdin.write(("%s;\n\\echo over\n" % text).encode())
        self.process.stdin.flush()
        rows = []
        for line in iter(self.process.stdout.readline, b""):
            if line == b"over\n":
                return Rows(rows)
            rows.append(tuple(value(v) for v in line.decode().rstrip("\n").split("\t")))
        raise Failed("psql: %s" % self.process.stderr.read().decode().strip())

    def close(self):
        self.process.stdin.close()
        self.process.wait(timeout=20)
        self.process.stdout.close()
        self.process.stderr.close()


class Rows(list):
    def fetchall(self):
        return list(self)

    def fetchone(self):
        return self[0] if self else None


def literal(v):
    return "NULL" if v is None else str(v) if isinstance(v, int) else "'%s'" % v.replace("'", "''")


def value(text):
    return None if text == "" else int(text) if re.fullmatch(r"-?\d+", text) else text


class Postgres:
    name = "postgres"
    tables = ("CREATE TABLE effect (key TEXT PRIMARY KEY, n BIGINT)",)
    facts = {"synchronous_commit": "on", "fsync": "on"}

    def __init__(self):
        if shutil.which("psql") is None:
            raise Failed("no psql (Debian: postgresql-client)")
        try:
            self.server = pgserver.Server(durable=True, settings=SETTINGS)
        except (pgserver.Missing, pgserver.Failed) as why:
            raise Failed(str(why)) from why
        self.databases = 0
        version = subprocess.run([os.path.join(self.server.bin, "postgres"), "--version"],
                                 stdout=subprocess.PIPE, check=True).stdout.decode().split()[2]
        self.durability = "PostgreSQL %s, fsync and synchronous_commit on" % version

    def new_store(self, _directory):
        self.databases += 1
        name = "bench%d" % self.databases
        self.server.program("createdb", "-h", self.server.dir, "-U", pgserver.SUPERUSER, name)
        return self.server.url(name)

    def disk(self, _directory):
        return os.path.join(self.server.dir, "disk")

    def connect(self, db):
        return Psql(db)

    def raw(self, tools, db, rows, how="rows"):
        return tools.ask("batch_pg", how, db, rows)

    def remove(self):
        self.server.remove()


def engine(name):
    return Postgres() if name == "postgres" else Sqlite()
