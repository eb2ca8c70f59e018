# SPDX-License-Identifier: Apache-2.0
"""linkkit.py - what the tests of programs that link libpawl share: the programs
helper_*.c as the workers of a FieldTest, whose oracles they use."""
import os
import subprocess
import time

from fieldkit import FieldTest
from pawltest import PAWL, SLOW

HELPERS = os.path.join(os.environ.get("PAWL_BUILD_DIR", os.path.dirname(PAWL)), "test")


class Linked(FieldTest):
    def setUp(self):
        super().setUp()
        self.url = self.store.url
        self.sql("CREATE TABLE orders(id INTEGER PRIMARY KEY)")

    def helper(self, name, *words, **env):
        """Run to its end."""
        return subprocess.run([os.path.join(HELPERS, name), self.url, *map(str, words)],
                              cwd=self.dir, env=self.env(**env), stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                              timeout=120 * SLOW)

    def linked(self, *words, ready=True):
        """A program with a worker in it, running; what it prints goes to its log."""
        path = os.path.join(self.dir, "worker-%d.log" % len(self.workers))
        with open(path, "wb") as log:
            worker = subprocess.Popen([os.path.join(HELPERS, "helper_linked"), self.url, *words],
                                      cwd=self.dir, env=self.env(), stdin=subprocess.DEVNULL,
                                      stdout=log, stderr=log)
        worker.log = path
        self.workers.append(worker)
        if ready:
            self.wait_log(worker, "ready")
        return worker

    def stop_all(self):
        """Stop what runs; nothing but the helpers' own words may have been printed."""
        for worker in self.workers:
            if worker.poll() is None:
                self.assertEqual(self.stop_worker(worker), 0, self.log(worker))
                self.assertRegex(self.log(worker), r"\Aready\ndone=\d+ retried=\d+ .*\n\Z")

    def drain(self):
        """Work until nothing is left."""
        done = self.helper("helper_linked", "empty")
        self.assertEqual((done.returncode, done.stderr), (0, ""), done.stdout)
        return done.stdout

    def hold(self, seconds, true, what):
        """It is true now, and stays so for a while."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            self.assertTrue(true(), what)
            time.sleep(0.02)
