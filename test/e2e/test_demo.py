#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""test_demo.py - the demo keeps its word, and its audit is able to say no."""
import glob
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

from pawltest import PAWL, ROOT, SLOW

sys.path.insert(0, os.path.join(ROOT, "demo"))
import chaos  # noqa: E402
import engine  # noqa: E402
from engine import pgserver  # noqa: E402

TIMEOUT = 240           # seconds for one test: a small day takes about ten


class DemoTest(unittest.TestCase):
    """What tests of the demo share."""

    def setUp(self):
        self.tmp = tempfile.mkdtemp(prefix="pawl-")   # short: a socket's path has 107 bytes
        os.chmod(tempfile.gettempdir(), 0o711)        # the account of PostgreSQL passes through
        self.addCleanup(shutil.rmtree, self.tmp, True)

    def start(self, program, *words):
        env = dict(os.environ, PAWL_BIN=PAWL, TMPDIR=self.tmp, PYTHONDONTWRITEBYTECODE="1",
                   PYTHONIOENCODING="utf-8")
        return subprocess.Popen([sys.executable, os.path.join(ROOT, "demo", program), *words],
                                env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                stderr=subprocess.STDOUT, start_new_session=True)

    def demo(self, program, *words, timeout=200 * SLOW):
        """Run to the end; (exit code, what it printed). Nothing of it outlives a timeout."""
        process = self.start(program, *words)
        try:
            out = process.communicate(timeout=timeout)[0].decode("utf-8")
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            raise
        return process.returncode, out

    def left(self):
        return glob.glob(os.path.join(self.tmp, "*"))

    def good_day(self, *words):
        code, out = self.demo("shop.py", "--small", *words)
        self.assertEqual(code, 0, out)
        self.assertNotIn("FAIL", out)
        said = re.search(r"(?m)^Nothing lost, nothing doubled: (\d+) of (\d+) findings are right",
                         out)
        self.assertTrue(said, out)
        self.assertEqual(said[1], said[2])
        self.assertGreaterEqual(int(said[1]), 14, out)
        self.assertEqual(len(re.findall(r"^  ok    ", out, re.M)), int(said[1]), out)
        kills = re.search(r"^  (\d+) kills survived", out, re.M)
        self.assertTrue(kills and int(kills[1]) > 0, out)
        self.assertRegex(out, r"(?m)^  \d+ charges took \d+ requests")
        self.assertRegex(out, r"(?m)^  ok    pawl check: ")
        self.assertEqual(self.left(), [])
        return out


class Demo(DemoTest):
    def test_small_day_ends_with_every_finding_right(self):
        """Goal: with kills, duplicates, reordering and a lying gateway, every audit line is ok, and
        nothing stays on the disk."""
        self.good_day("--seed", "4")

    def needs_server(self):
        try:
            pgserver.account()
        except pgserver.Missing as why:
            self.skipTest(str(why))
        if pgserver.bindir() is None or not shutil.which("psql"):
            self.skipTest("no PostgreSQL server programs, or no psql (Debian: postgresql)")

    def test_small_day_on_postgres(self):
        """Goal: the same verdict with the shop in PostgreSQL, whose server was killed, too."""
        self.needs_server()
        out = self.good_day("--engine", "postgres", "--seed", "4")
        self.assertRegex(out, r"(?m)^  database  PostgreSQL \d+")
        self.assertRegex(out, r"(?m)^  \d+ kills survived: .*, [1-9]\d* times the database server$")

    def sabotaged(self, what, line):
        code, out = self.demo("shop.py", "--small", "--seed", "5", "--sabotage", what)
        self.assertEqual(code, 1, out)
        failed = re.findall(r"^  FAIL  (.*)$", out, re.M)
        self.assertEqual(len(failed), 1, out)
        self.assertRegex(failed[0], line)
        self.assertNotIn("Nothing lost", out)
        self.assertRegex(out, r"(?m)^1 of \d+ findings are wrong")
        kept = re.search(r"everything is kept in (\S+)", out)
        self.assertTrue(kept and os.path.isdir(kept[1]), out)

    def test_audit_sees_a_second_charge(self):
        """Goal: the audit fails when a card was charged twice."""
        self.sabotaged("charge", "^payments: ")

    def test_audit_sees_a_reverted_price(self):
        """Goal: the audit fails when one product fell back to an older version."""
        self.sabotaged("price", "^product table: ")

    def test_audit_sees_an_event_counted_twice(self):
        """Goal: the audit fails when one event took effect once more than it was sent."""
        self.sabotaged("event", "^product events: ")

    def test_audit_sees_a_lost_row(self):
        """Goal: the audit fails when one imported row is missing."""
        self.sabotaged("row", "^supplier rows: ")

    def test_interrupt_leaves_nothing(self):
        """Goal: Ctrl-C in the middle ends with 130, no process and no file of the demo left."""
        self.interrupted()

    def test_interrupt_leaves_no_server(self):
        self.needs_server()
        self.interrupted("--engine", "postgres")

    def test_chaos_excuses_only_who_found_no_server(self):
        """Goal: a worker that gives up is a surprise, unless it never had its store and says by its
        exit code that the server is away."""
        for says, code, surprise in (("event=worker.start", 74, True), ("", 74, False),
                                     ("", 1, True), ("", 70, True)):
            worker = chaos.Worker("w", ["sh", "-c", "echo $1; exit $2", "-", says, str(code)],
                                  self.tmp)
            what = chaos.Chaos(None, [worker], 1, engine.Postgres)
            worker.start()
            worker.process.wait()
            what.tick(0)
            worker.process.wait()
            self.assertEqual(bool(what.surprises), surprise, (says, code))
        self.assertEqual(engine.Sqlite.gone, ())        # there, nothing is excused

    def interrupted(self, *words):
        process = self.start("shop.py", "--small", "--seed", "6", *words)
        try:
            said = b""
            while b" kills   " not in said:       # the first progress line: the day is under way
                line = process.stdout.readline()
                self.assertTrue(line, said.decode("utf-8", "replace"))
                said += line
            os.killpg(process.pid, signal.SIGINT)
            rest = process.communicate(timeout=30 * SLOW)[0]
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
            process.stdout.close()
        self.assertEqual(process.returncode, 130, (said + rest).decode("utf-8", "replace"))
        deadline = time.monotonic() + 10 * SLOW
        while self.processes() and time.monotonic() < deadline:
            time.sleep(0.05)            # a worker's children are reaped by init, not by us
        self.assertEqual(self.processes(), [])
        self.assertEqual(self.left(), [])

    def processes(self):
        """Command lines of live processes that mention our temporary directory or work in it."""
        found = []
        for path in glob.glob("/proc/[0-9]*"):
            try:
                with open(path + "/cmdline", "rb") as f:
                    line = f.read()
                if self.tmp.encode() in line or os.readlink(path + "/cwd").startswith(self.tmp):
                    found.append((path, line))
            except OSError:
                continue
        return found

    def test_naive_shows_the_contrast(self):
        """Goal: the naive shop reverts prices, counts twice and charges twice, and says so."""
        code, out = self.demo("naive.py", "--small", "--seed", "3")
        self.assertEqual(code, 0, out)
        for claim in (r"last writer wins +(\d+) of \d+ products show an old price",
                      r"at least once, as it is +(\d+) products counted an event twice",
                      r"charge, then update +(\d+) of \d+ customers were charged more than once"):
            found = re.search(claim, out)
            self.assertTrue(found and int(found[1]) > 0, out)
        self.assertEqual(self.left(), [])


if __name__ == "__main__":
    unittest.main()
