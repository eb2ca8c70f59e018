# SPDX-License-Identifier: Apache-2.0
"""test_pgserver.py - the private server that `./run postgres` lends: there while the command runs,
gone afterwards, whatever ended it."""
import glob
import os
import signal
import subprocess
import sys
import tempfile
import unittest

from pawltest import PAWL, ROOT, SLOW
from pgkit import clean_env
from pgserver import Missing, account, bindir

TIMEOUT = 60


class Lent(unittest.TestCase):
    def setUp(self):
        try:
            account()
        except Missing as why:
            self.skipTest(str(why))
        if bindir() is None:
            self.skipTest("no PostgreSQL server programs (Debian: postgresql)")
        self.dir = tempfile.gettempdir()                # of this test alone

    def start(self, *words, env=None):
        return subprocess.Popen([sys.executable, os.path.join(ROOT, "tool", "pgserver.py"), *words],
                                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE, env=env or clean_env())

    def ended(self, process):
        out, err = (b.decode() for b in process.communicate(timeout=45 * SLOW))
        self.assertEqual(glob.glob(os.path.join(self.dir, "pg-*")), [])
        return process.returncode, out, err

    def test_it_is_found_and_it_goes(self):
        """Goal: pawl and psql find the server without being told, the exit code is the command's,
        and no file is left (a process that is left fails the test by itself)."""
        code, out, err = self.ended(self.start(
            "sh", "-c", '"$1" init && "$1" enqueue hello 2>&1 &&'
            ' psql -Atc "SELECT task FROM pawl.jobs" &&'
            ' case $PAWL_DB in postgresql:*) exit 7 ;; esac', "-", PAWL))
        self.assertEqual((code, out.splitlines()[-2:], err), (7, ["1", "hello"], ""), out)

    def test_who_is_ended_ends_it_too(self):
        process = self.start("sh", "-c", "echo up; exec tail -f /dev/null")
        self.assertEqual(process.stdout.readline(), b"up\n")
        process.send_signal(signal.SIGTERM)
        self.assertEqual(self.ended(process)[0], 128 + signal.SIGTERM)

    def test_refusals(self):
        code, _, err = self.ended(self.start("no-such-program"))
        self.assertEqual((code, err), (
            127, "pgserver: cannot run no-such-program: No such file or directory\n"))
        empty = dict(clean_env(), PATH="/nonexistent", PAWL_PG_BIN="/nonexistent")
        if not glob.glob("/usr/lib/postgresql/*/bin/initdb"):
            code, _, err = self.ended(self.start("true", env=empty))
            self.assertEqual((code, err), (
                1, "pgserver: no PostgreSQL server programs (Debian: postgresql)\n"))
        self.assertEqual(self.ended(self.start())[0], 2)


if __name__ == "__main__":
    unittest.main()
