#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""test_examples.py - every example prints exactly the transcript beside it.

Compared after normalising what honestly differs between two runs: instants, durations, and the
names of worker, host and build. PAWL_EXAMPLES_WRITE=1 rewrites the transcripts: then read the
difference."""
import difflib
import os
import re
import shutil
import subprocess
import unittest

from pawltest import PAWL, ROOT, SLOW

EXAMPLES = os.path.join(ROOT, "example")
DIFFERS = (
    (re.compile(r"\b\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z \(\d+[smhd] ago\)"), "INSTANT (AGO)"),
    (re.compile(r"\b\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z"), "INSTANT"),
    (re.compile(r"^(  worker +)[0-9a-f]{16}$", re.M), r"\1WORKER"),
    (re.compile(r"^(  host +)\S+$", re.M), r"\1HOST"),
    (re.compile(r"^(  build +)\S+$", re.M), r"\1BUILD"),
    (re.compile(r"^(  took +)(under )?[0-9.]+(us|ms|s)$", re.M), r"\1DURATION"),
    (re.compile(r"\b(done in )(under )?[0-9.]+(us|ms|s)$", re.M), r"\1DURATION"),
)


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

    def run_example(self, name):
        folder = os.path.join(EXAMPLES, name)
        done = subprocess.run([os.path.join(folder, "run.sh")], env=dict(os.environ, PAWL_BIN=PAWL),
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, timeout=60 * SLOW)
        self.assertEqual((done.returncode, done.stderr), (0, b""), done.stdout.decode())
        got = normalise(done.stdout.decode("utf-8"))
        expected_at = os.path.join(folder, "expected")
        if os.environ.get("PAWL_EXAMPLES_WRITE") == "1":
            with open(expected_at, "w", encoding="utf-8") as f:
                f.write(got)
        with open(expected_at, encoding="utf-8") as f:
            want = f.read()
        if got != want:
            self.fail("example/%s printed something else:\n%s" % (name, "\n".join(
                difflib.unified_diff(want.splitlines(), got.splitlines(), "expected", "printed",
                                     lineterm=""))))


def _add(name):
    def test(self):
        if name == "exec-c" and not shutil.which(os.environ.get("CC", "cc")):
            self.skipTest("no C compiler")
        self.run_example(name)
    test.__doc__ = "Goal: example/%s does what its transcript says." % name
    setattr(Examples, "test_example_%s" % name.replace("-", "_"), test)


for _name in names():
    _add(_name)

if __name__ == "__main__":
    unittest.main()
