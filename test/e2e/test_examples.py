#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""test_examples.py - every example prints exactly the transcript beside it: `expected` on SQLite,
and `expected.postgres` on PostgreSQL.

Compared after normalising what honestly differs between two runs: instants, durations, and the
names of worker, host and build. PAWL_EXAMPLES_WRITE=1 rewrites the transcripts: then read the
difference."""
import difflib
import os
import re
import shutil
import subprocess
import unittest

import pgkit
from pawltest import PAWL, ROOT, SLOW

EXAMPLES = os.path.join(ROOT, "example")
DIFFERS = (
    (re.compile(r"\b\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z \(\d+[smhd] ago\)"), "INSTANT (AGO)"),
    (re.compile(r"\b\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z"), "INSTANT"),
    (re.compile(r"^(  worker +)[0-9a-f]{16}$", re.M), r"\1WORKER"),
    (re.compile(r"^(  host +)\S+$", re.M), r"\1HOST"),
    (re.compile(r"^(  build +)\S+$", re.M), r"\1BUILD"),
    (re.compile(r"^(  took +)(under )?[0-9.]+(us|ms|s)$", re.M), r"\1DURATION"),
    (re.compile(r"postgresql://\S+"), "URL"),
    (re.compile(r"^ERROR:  (invalid input syntax for type json|pawl: args must be JSON text)\n"
                r"(DETAIL:  .*\n)?", re.M), "ERROR:  WORDS OF THE VERSION OF THE SERVER\n"),
    (re.compile(r"\b(done in )(under )?[0-9.]+(us|ms|s)$", re.M), r"\1DURATION"),
)


# Examples of SQLite alone: they say so, and why, when they are asked to run on PostgreSQL.
SQLITE_ONLY = ["linked-worker", "test-handlers"]
POSTGRES_ONLY = ["linked-pg"]                   # and the other way round


def names():
    return sorted(name for name in os.listdir(EXAMPLES)
                  if os.path.exists(os.path.join(EXAMPLES, name, "run.sh")))


def normalise(text):
    for pattern, word in DIFFERS:
        text = pattern.sub(word, text)
    return text


class Examples(unittest.TestCase):
    maxDiff = None

    def test_every_folder_is_an_example_and_listed(self):
        """Goal: nobody adds an example that no test runs, or that the README does not name."""
        folders = sorted(e.name for e in os.scandir(EXAMPLES) if e.is_dir())
        self.assertEqual(folders, names())
        with open(os.path.join(EXAMPLES, "README.md"), encoding="utf-8") as f:
            listed = re.findall(r"^\| `([a-z-]+)` \|", f.read(), re.M)
        self.assertEqual(sorted(listed), folders)

    def test_every_example_has_postgres_or_says_why_not(self):
        without = [name for name in names()
                   if not os.path.exists(os.path.join(EXAMPLES, name, "expected.postgres"))]
        self.assertEqual(without, SQLITE_ONLY)
        for name in without:
            done = self.start(name, PAWL_DB="postgresql:///nobody")
            self.assertEqual((done.returncode, done.stdout), (2, b""))
            self.assertRegex(done.stderr, b"^%s: only on SQLite: .+\n$" % name.encode())
        for name in POSTGRES_ONLY:
            done = self.start(name)
            self.assertEqual((done.returncode, done.stdout), (2, b""))
            self.assertRegex(done.stderr, b"^%s: only on PostgreSQL: .+\n$" % name.encode())

    def start(self, name, **env):
        env = dict({k: v for k, v in os.environ.items() if k != "PAWL_DB"}, PAWL_BIN=PAWL, **env)
        return subprocess.run([os.path.join(EXAMPLES, name, "run.sh")], env=env,
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, timeout=60 * SLOW)

    def run_on_postgres(self, name):
        if name == "enqueue-from-sql" and not (pgkit.psycopg or pgkit.psycopg2):
            self.skipTest("Python has no psycopg (tool/thirdparty python fetches it)")
        server = pgkit.cluster()
        before = server.sql("SELECT datname FROM pg_database ORDER BY 1")
        self.run_example(name, "expected.postgres", PAWL_DB=server.url("postgres"),
                         PYTHONPATH=os.environ.get("PAWL_PYTHON_DIR", ""))
        self.assertEqual(server.sql("SELECT datname FROM pg_database ORDER BY 1"), before)

    def run_example(self, name, expected="expected", **env):
        folder = os.path.join(EXAMPLES, name)
        done = self.start(name, **env)
        self.assertEqual((done.returncode, done.stderr), (0, b""), done.stdout.decode())
        got = normalise(done.stdout.decode("utf-8"))
        expected_at = os.path.join(folder, expected)
        if os.environ.get("PAWL_EXAMPLES_WRITE") == "1":
            with open(expected_at, "w", encoding="utf-8") as f:
                f.write(got)
        with open(expected_at, encoding="utf-8") as f:
            want = f.read()
        if got != want:
            self.fail("example/%s printed something else:\n%s" % (name, "\n".join(
                difflib.unified_diff(want.splitlines(), got.splitlines(), "expected", "printed",
                                     lineterm=""))))


def _add(name, method, where):
    def test(self):
        if name == "exec-c" and not shutil.which(os.environ.get("CC", "cc")):
            self.skipTest("no C compiler")
        getattr(self, method)(name)
    test.__doc__ = "Goal: example/%s does what its transcript says%s." % (name, where)
    setattr(Examples, "test_example_%s" % (name + where).replace("-", "_").replace(" ", "_"), test)


for _name in names():
    if _name not in POSTGRES_ONLY:
        _add(_name, "run_example", "")
    if _name not in SQLITE_ONLY:
        _add(_name, "run_on_postgres", " on postgres")

if __name__ == "__main__":
    unittest.main()
