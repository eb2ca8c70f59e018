#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""test_setup.py - the set-up keeps its word: the runner sees every kind of failure, tidy every kind
of offence, nothing unverified is built, and ./run says what is missing."""
import base64
import hashlib
import io
import json
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import unittest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

MODULE = '''# SPDX-License-Identifier: Apache-2.0
import os, signal, subprocess, sys, unittest
TIMEOUT = 5

class T(unittest.TestCase):
    %s
'''


class Tree(unittest.TestCase):
    """A checkout of our own making, with nothing in it but what the test puts there."""

    def setUp(self):
        self.top = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, self.top, True)

    def write(self, path, text, mode=0o644):
        path = os.path.join(self.top, path)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w", encoding="utf-8") as f:
            f.write(text)
        os.chmod(path, mode)

    def take(self, *paths):
        for path in paths:
            target = os.path.join(self.top, path)
            os.makedirs(os.path.dirname(target), exist_ok=True)
            shutil.copy(os.path.join(ROOT, path), target)

    def call(self, *argv, **env):
        done = subprocess.run(argv, cwd=self.top, env=dict(os.environ, **env),
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, timeout=50)
        return done.returncode, done.stdout.decode("utf-8", "replace")


class Runner(Tree):
    def run_tests(self, *words):
        self.take("test/run.py")
        self.write("tool/tidy", "#!/bin/sh\nexit 0\n", 0o755)
        code, out = self.call(sys.executable, "-B", "test/run.py", *words)
        return code, out, out.rstrip("\n").split("\n")[-1]

    def suite(self, script):
        self.write("test/unit/test_x.c", "START_TEST(test_one)\n")
        self.write("build/test/unit_test_x", "#!/bin/sh\n" + script, 0o755)

    def module(self, body):
        self.write("test/e2e/test_m.py", MODULE % body.replace("\n", "\n    "))

    def test_counts_are_the_last_line_alone(self):
        self.suite("echo 1..2; echo ok 1 - f.c:c:test_one: Passed; echo 'ok 2 - two # SKIP no way'")
        self.module("def test_good(self): pass\ndef case_99(self): self.skipTest('not today')")
        code, out, last = self.run_tests()
        self.assertEqual((code, last), (0, "3 passed, 0 failed, 2 skipped"), out)
        self.assertIn("no way", out)
        self.assertIn("not today", out)

    def test_failing_tap_line_fails_by_name(self):
        self.suite("echo 1..2; echo ok 1 - a; echo not ok 2 - f.c:c:test_one: 1 is not 2; exit 1")
        code, out, last = self.run_tests("unit/")
        self.assertEqual((code, last), (1, "1 passed, 1 failed, 0 skipped"), out)
        self.assertIn("FAILED unit/test_x:test_one", out)
        self.assertIn("1 is not 2", out)

    def test_suite_that_dies_fails(self):
        self.suite("echo 1..1; echo ok 1 - a; kill -SEGV $$")
        code, out, last = self.run_tests("unit/")
        self.assertEqual((code, last), (1, "1 passed, 1 failed, 0 skipped"), out)
        self.assertIn("SIGSEGV", out)

    def test_suite_that_exits_in_the_middle_fails(self):
        self.suite("echo ok 1 - a; exit 0")
        code, out, last = self.run_tests("unit/")
        self.assertEqual((code, last), (1, "1 passed, 1 failed, 0 skipped"), out)

    def test_round_that_fails_is_not_hidden_by_the_next(self):
        self.suite("echo 1..2; echo not ok 1 - f.c:c:test_one: bad; "
                   "echo ok 2 - f.c:c:test_one: Passed; exit 1")
        code, out, last = self.run_tests("unit/")
        self.assertEqual((code, last), (1, "0 passed, 1 failed, 0 skipped"), out)

    def test_missing_suite_fails(self):
        self.write("test/unit/test_x.c", "")
        os.makedirs(os.path.join(self.top, "build"))
        code, out, last = self.run_tests("unit/")
        self.assertEqual((code, last), (1, "0 passed, 1 failed, 0 skipped"), out)

    def test_python_failure_shows_its_output(self):
        self.module("def test_bad(self):\n    print('a clue')\n    self.assertEqual(1, 2)")
        code, out, last = self.run_tests("e2e/")
        self.assertEqual((code, last), (1, "0 passed, 1 failed, 0 skipped"), out)
        self.assertIn("a clue", out)
        self.assertIn("1 != 2", out)

    def test_module_that_cannot_be_imported_is_told_though_names_are_given(self):
        self.write("test/e2e/test_m.py", "import nowhere_at_all\n")
        self.suite("echo 1..1; echo ok 1 - f.c:c:test_one: Passed")
        for name in "e2e/", "test_of_that_module":
            code, out, last = self.run_tests(name)
            self.assertEqual((code, last), (1, "0 passed, 1 failed, 0 skipped"), out)
            self.assertIn("nowhere_at_all", out)
        code, out, last = self.run_tests("unit/")       # it is not asked for
        self.assertEqual((code, last), (0, "1 passed, 0 failed, 0 skipped"), out)

    def test_exit_inside_a_test_is_a_failure(self):
        self.module("def test_exit(self): sys.exit(0)\ndef test_gone(self): os._exit(0)")
        code, out, last = self.run_tests("e2e/")
        self.assertEqual((code, last), (1, "0 passed, 2 failed, 0 skipped"), out)

    def test_test_without_end_is_ended(self):
        self.module("def test_hangs(self): signal.pause()")
        code, out, last = self.run_tests("e2e/", "--slow", "0.2")
        self.assertEqual((code, last), (1, "0 passed, 1 failed, 0 skipped"), out)
        self.assertIn("did not end within 1 s", out)

    def test_left_process_is_killed_and_fails_the_test(self):
        self.module("def test_leaves(self):\n"
                    "    p = subprocess.Popen(['sleep', '1000'], start_new_session=True)\n"
                    "    open(os.environ['NOTE'], 'w').write(str(p.pid))")
        note = os.path.join(self.top, "note")
        os.environ["NOTE"] = note
        self.addCleanup(os.environ.pop, "NOTE")
        code, out, last = self.run_tests("e2e/")
        self.assertEqual((code, last), (1, "1 passed, 1 failed, 0 skipped"), out)
        self.assertIn("left running: sleep 1000", out)
        with open(note, encoding="utf-8") as f:
            self.assertFalse(os.path.exists("/proc/" + f.read()))

    def test_module_that_cannot_be_imported_fails(self):
        self.write("test/e2e/test_m.py", "import no_such_module\n")
        code, out, last = self.run_tests()
        self.assertEqual((code, last), (1, "1 passed, 1 failed, 0 skipped"), out)
        self.assertIn("no_such_module", out)

    def test_no_test_is_a_failure(self):
        code, out, last = self.run_tests("no such name")
        self.assertEqual((code, last), (1, "0 passed, 0 failed, 0 skipped"), out)

    def test_other_settings_of_pawl_do_not_reach_a_test(self):
        self.module("def test_env(self):\n"
                    "    self.assertNotIn('PAWL_DB', os.environ)\n"
                    "    self.assertTrue(os.environ['PAWL_BIN'].endswith('/build/pawl'))\n"
                    "    self.assertEqual(os.listdir('.'), [])")
        os.environ["PAWL_DB"] = "mine.db"
        self.addCleanup(os.environ.pop, "PAWL_DB")
        code, out, _ = self.run_tests("e2e/")
        self.assertEqual(code, 0, out)


class Tidy(Tree):
    def tidy(self, path, text):
        """What tidy says about one file, without the place."""
        self.take("tool/tidy")
        self.write(path, text)
        code, out = self.call(sys.executable, "-B", "tool/tidy", path)
        said = [line.split(": ", 1)[1] for line in out.splitlines()[:-1]]
        self.assertEqual(code, 1 if [s for s in said if not s.startswith("warning")] else 0, out)
        return said

    def c(self, body, path="src/core/x.c"):
        return self.tidy(path, "// SPDX-License-Identifier: Apache-2.0\n" + body)

    def test_good_file_passes(self):
        self.assertEqual(self.c('#include "base/buf.h"\n#include <stdio.h>\n\nint x;\n'), [])

    def test_rooms_may_not_include_upwards(self):
        for path, header in (("src/base/x.c", "core/job.h"), ("src/core/x.c", "store/store.h"),
                             ("src/conf/x.c", "worker/worker.h"), ("src/store/x.h", "sqlite/sl.h"),
                             ("src/engine/x.c", "handler/handler.h"),
                             ("src/handler/exec.c", "store/store.h"),
                             ("src/api/x.c", "worker/worker.h"),
                             ("src/cli/cmd_jobs.c", "store/store.h")):
            with self.subTest(path=path):
                self.assertEqual(self.c('#include "%s"\n' % header, path),
                                 ["%s may not include %s" % (os.path.dirname(path), header)])
        self.assertEqual(self.c("#include <sqlite3.h>\n", "src/engine/x.c"),
                         ["src/engine may not include sqlite3.h"])
        self.assertEqual(self.c('#include "store/store.h"\n', "src/cli/cmd_work.c"), [])

    def test_offences_are_named(self):
        for body, said in (("int a;\t\n", "a tab"), ("int a; \n", "blanks at the end of the line"),
                           ("/* %s */\n" % ("x" * 100), "106 columns, 100 allowed"),
                           ("void f(void)\n{\n    strc" + "py(a, b);\n}\n",
                            "strc" + "py() is banned"),
                           ("/* TO" + "DO: later */\n", "a mark of unfinished work"),
                           ("/* see /ho" + "me/me/pawl */\n", "a path of some machine"),
                           ("void f(void)\n{\n%s}\n" % ("    g();\n" * 71),
                            "a function of 71 lines, 70 allowed")):
            with self.subTest(said=said):
                self.assertIn(said, self.c(body))
        self.assertEqual(self.c('/* no strc' 'py() here */\nchar *s = "syst' 'em(1)";\n'), [])
        self.assertEqual(self.tidy("src/core/x.c", "int a;\n")[0].split(" (")[0], "no SPDX line")
        self.assertEqual(self.c("int a;\n" * 800), ["801 lines, 800 allowed: split it"])

    def test_sleep_in_a_test_needs_a_deadline(self):
        spdx = "# SPDX-License-Identifier: Apache-2.0\n"
        nap = "time.sl" + "eep(1)\n"
        self.assertEqual(len(self.tidy("test/e2e/test_x.py", spdx + nap)), 1)
        loop = "end = time.monotonic() + 5\nwhile time.monotonic() < end:\n    "
        self.assertEqual(self.tidy("test/e2e/test_x.py", spdx + loop + nap), [])
        moment = "time.sl" + "eep(rng.random() * 0.05)\n"
        self.assertEqual(self.tidy("test/e2e/test_x.py", spdx + moment), [])


class ThirdParty(Tree):
    def pack(self, body, pinned):
        """A stand-in for npm that packs `body`; the pin says `pinned` is its hash."""
        tarball = io.BytesIO()
        with tarfile.open(fileobj=tarball, mode="w:gz") as t:
            for name in ("sqlite3.c", "sqlite3.h"):
                entry = tarfile.TarInfo("package/" + name)
                entry.size = len(body)
                t.addfile(entry, io.BytesIO(body))
        digest = base64.b64encode(hashlib.sha512(tarball.getvalue()).digest()).decode()
        with open(os.path.join(self.top, "packed"), "wb") as f:
            f.write(tarball.getvalue())
        self.write("bin/npm", "#!/bin/sh\ncp '%s/packed' packed.tgz\n" % self.top, 0o755)
        self.write("third_party/sqlite.json", json.dumps({
            "npm_package": "x@1", "integrity": pinned or "sha512-" + digest, "folder": "package",
            "files": ["sqlite3.c", "sqlite3.h"], "sqlite_version": "3.99.0"}))
        self.take("tool/thirdparty")
        return self.call(sys.executable, "-B", "tool/thirdparty", "sqlite",
                         PATH=os.path.join(self.top, "bin") + ":" + os.environ["PATH"])

    def kept(self):
        return os.path.exists(os.path.join(self.top, ".cache", "sqlite-3.99.0"))

    def test_source_with_the_right_hash_is_kept(self):
        code, out = self.pack(b'#define SQLITE_VERSION "3.99.0"\n', None)
        self.assertEqual((code, self.kept()), (0, True), out)

    def test_source_with_another_hash_is_refused(self):
        code, out = self.pack(b'#define SQLITE_VERSION "3.99.0"\n', "sha512-AAAA")
        self.assertEqual((code, self.kept()), (1, False), out)
        self.assertIn("wrong hash", out)

    def test_source_of_another_version_is_refused(self):
        code, out = self.pack(b'#define SQLITE_VERSION "3.98.0"\n', None)
        self.assertEqual((code, self.kept()), (1, False), out)
        self.assertIn("not version 3.99.0", out)


class FrontDoor(Tree):
    def bare_machine(self, **scripts):
        """Where ./run finds only these commands: there is no compiler, and we are not root."""
        self.take("run", "tool/sources", "tool/thirdparty")
        scripts["id"] = "echo 1000"
        for tool in ("dirname", "mktemp", "cat", "rm", "sh", "ls", "env", "tail"):
            scripts.setdefault(tool, 'exec %s "$@"' % shutil.which(tool))
        for tool, script in scripts.items():
            self.write("bin/" + tool.replace("_", "-"), "#!/bin/sh\n%s\n" % script, 0o755)
        return self.call("/bin/sh", "run", "build", PATH=os.path.join(self.top, "bin"))

    def test_missing_package_is_told_in_one_line(self):
        """Goal: neither root nor sudo: one line says what is missing and what to do."""
        code, out = self.bare_machine(apt_get="exit 1")
        self.assertEqual(code, 1, out)
        self.assertEqual(len(out.splitlines()), 1, out)
        self.assertRegex(out, r"^run: missing: gcc libc6-dev meson .*Become root, or install sudo")

    def test_sudo_installs_what_was_announced(self):
        code, out = self.bare_machine(apt_get='echo "E: no $*"; exit 1', sudo='shift; exec "$@"')
        self.assertEqual(code, 1, out)
        self.assertRegex(out.splitlines()[0],
                         "^run: installing what the build needs, by apt-get with sudo: gcc libc6")
        self.assertRegex(out, "E: no install .*--no-install-recommends .* gcc libc6-dev meson")
        self.assertRegex(out.splitlines()[-1], "^run: apt-get could not install: gcc libc6-dev")

    def test_no_apt_is_said(self):
        code, out = self.bare_machine()
        self.assertEqual(code, 1, out)
        self.assertRegex(out, "^run: missing: gcc .* There is no apt-get here: install them by")

    def test_unknown_verb_is_refused(self):
        self.take("run")
        code, out = self.call("/bin/sh", "run", "tset")
        self.assertEqual((code, out), (1, "run: tset: no such verb; ./run help lists them\n"))


if __name__ == "__main__":
    unittest.main()
