# SPDX-License-Identifier: Apache-2.0
"""doors.py - one SQL session at a time in three clients: sqlite3, Python, Node.

A session keeps one connection open. run(sql) runs one statement and returns its rows as lists;
a refusal by the database raises Refused with the database's words.
"""
import json
import os
import shutil
import sqlite3
import subprocess

from pawltest import ROOT, SLOW


class Refused(Exception):
    """The database said no."""


class PythonSession:
    name = "python"

    def __init__(self, path):
        self.db = sqlite3.connect(path, timeout=10 * SLOW, isolation_level=None)

    def run(self, sql):
        try:
            return [list(row) for row in self.db.execute(sql).fetchall()]
        except sqlite3.Error as error:
            raise Refused(str(error)) from None

    def close(self):
        self.db.close()


class LineSession:
    """A client in a process of its own that answers each statement before it gets the next."""

    def __init__(self, words, env=None):
        self.process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        stderr=subprocess.STDOUT, env=env)

    def send(self, text):
        self.process.stdin.write(text.encode("utf-8"))
        self.process.stdin.flush()

    def close(self):
        self.process.stdin.close()
        self.process.stdout.close()
        self.process.wait()


class ShellSession(LineSession):
    """The sqlite3 command."""
    name = "sqlite3"

    def __init__(self, path):
        super().__init__(["stdbuf", "-oL", "sqlite3", "-batch", "-init", "/dev/null", path])
        self.send(".timeout %d\n.mode json\n" % (10000 * SLOW))

    def run(self, sql):
        self.send(sql + ";\n.print =END=\n")
        lines = []
        for line in self.process.stdout:
            line = line.decode("utf-8").rstrip("\n")
            if line == "=END=":
                break
            lines.append(line)
        text = "\n".join(lines)
        if text.startswith("["):
            return [list(row.values()) for row in json.loads(text)]
        if text:
            raise Refused(text)
        return []


NODE = """
const { DatabaseSync } = require('node:sqlite');
const lines = require('node:readline').createInterface({ input: process.stdin });
const db = new DatabaseSync(process.argv[2]);
db.exec('PRAGMA busy_timeout = ' + process.argv[3]);
lines.on('line', (line) => {
  let answer;
  try {
    const query = db.prepare(JSON.parse(line));
    query.setReadBigInts(true);
    answer = { rows: query.all().map((row) => Object.values(row)) };
  } catch (error) {
    answer = { refused: String(error.message) };
  }
  console.log(JSON.stringify(answer, (k, v) => typeof v === 'bigint' ? Number(v) : v));
});
"""


class NodeSession(LineSession):
    """node:sqlite, as Node brings it."""
    name = "node"

    def __init__(self, path):
        super().__init__([node_path(), "--no-warnings", "-e", NODE, "-", path,
                          str(int(10000 * SLOW))])

    def run(self, sql):
        self.send(json.dumps(sql) + "\n")
        answer = json.loads(self.process.stdout.readline())
        if "refused" in answer:
            raise Refused(answer["refused"])
        return answer["rows"]


def node_path():
    """A node with SQLite built in, or None."""
    done = subprocess.run([os.path.join(ROOT, "tool", "thirdparty"), "node-path"],
                          stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    path = done.stdout.decode().strip()
    return path if done.returncode == 0 and path else None


def missing(session):
    """Why this client cannot be used here, or None."""
    if session is ShellSession and not (shutil.which("sqlite3") and shutil.which("stdbuf")):
        return "the sqlite3 command is not installed"
    if session is NodeSession and not node_path():
        return "no Node with node:sqlite (tool/thirdparty node fetches one)"
    return None


SESSIONS = (ShellSession, PythonSession, NodeSession)


def literal(value):
    """A Python value as an SQL literal."""
    if value is None:
        return "NULL"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, bytes):
        return "CAST(x'%s' AS TEXT)" % value.hex()
    if "\0" in value:
        return literal(value.encode("utf-8"))
    return "'%s'" % value.replace("'", "''")


def insert(verb="INSERT", **columns):
    """INSERT INTO pawl_enqueue with these columns."""
    return "%s INTO pawl_enqueue(%s) VALUES (%s)" % (
        verb, ", ".join(columns), ", ".join(literal(v) for v in columns.values()))
