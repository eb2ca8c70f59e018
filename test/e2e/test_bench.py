#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""test_bench.py - the measuring programs work: a tiny run of every group gives every measure."""
import json
import os
import shutil
import subprocess
import sys
import tempfile
import unittest

import pgkit
from pawltest import PAWL, ROOT, SLOW

TIMEOUT = 180
MEASURES = {  # one of each group, and more of the first
    "R: raw batch insert, Pawl's tables", "enqueue, one a call, keyed", "enqueue --bulk",
    "enqueue, 16 processes", "   a call, p99, 16 processes", "   slowest by fastest, 16 processes",
    "effect mode", "whole life in C, 100 a commit",
    "exec task, 8 at a time", "sql task, enqueue to start, p50",
    "CPU of the runner over 0.2 s", "effect mode, long queue", "effect mode, foreign writes seen",
    "first write of a burst, max",
}
PG_MEASURES = {
    "R: raw rows, Pawl's tables, unnest", "S: single INSERT a transaction", "enqueue --bulk",
    "whole life in C, 100 a commit", "effect mode in C, one job a commit",
    "sql task, enqueue to start, p50", "effect mode, long queue",
    "enqueue, 16 processes, workers told", "   last sixth of the time, snapshot held",
}


class Bench(unittest.TestCase):
    def test_tiny_run_gives_every_measure_as_json(self):
        values = self.tiny("sqlite", "synchronous", "FULL")
        self.assertEqual(MEASURES - set(values), set())

    def test_tiny_run_on_postgresql(self):
        pgkit.cluster()  # skips where there is no server to be had
        values = self.tiny("postgres", "fsync", "on")
        self.assertEqual(PG_MEASURES - set(values), set())

    def tiny(self, engine, setting, means):
        where = tempfile.mkdtemp(prefix="pawl-bench-")
        self.addCleanup(shutil.rmtree, where, True)
        env = dict(os.environ, PAWL_BIN=PAWL, PAWL_BUILD_DIR=os.path.dirname(PAWL))
        done = subprocess.run(
            [sys.executable, "-B", os.path.join(ROOT, "bench", "run.py"), "--tiny", "--json",
             "--engine", engine, "--dir", where], env=env, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=150 * SLOW)
        told = done.stdout.decode() + done.stderr.decode()
        self.assertEqual(done.returncode, 0, told)
        lines = [json.loads(line) for line in done.stdout.splitlines()]
        self.assertEqual(lines[0][setting], means)
        values = {line["measure"]: line["value"] for line in lines[1:]}
        for name, value in values.items():
            # A job may start on its way back to who enqueued it.
            self.assertGreaterEqual(value, -50 if "enqueued to" in name else 0, name)
        self.assertEqual(os.listdir(where), [])  # nothing is left behind
        return values


if __name__ == "__main__":
    unittest.main()
