#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""versions.py - the tests that meet a server, on every PostgreSQL from 14 to 18 that can be had.

    versions.py --build-dir DIR [--binaries DIR]... [--only MAJOR]... [NAME...]

Where a version's programs are taken from, in this order: a DIR given by --binaries (DIR/MAJOR/bin,
DIR/bin, or DIR), /usr/lib/postgresql/MAJOR/bin (Debian's packages, and those of PostgreSQL's own
repository), what tool/thirdparty has pinned. NAME picks tests; by default the store suites, the
suites of the public calls, and what test/e2e runs on PostgreSQL. Each version is a run of
test/run.py with all it says; at the end a line for each says what was run, or why it was not.

Exit 1 if a test failed, or if no version was run.
"""
import argparse
import os
import re
import signal
import subprocess
import sys

TOP = os.path.dirname(os.path.dirname(os.path.realpath(__file__)))
MAJORS = ("14", "15", "16", "17", "18")
NAMES = ("store/", "unit/test_api", "unit/test_handler_c", "[postgresql]", "e2e/test_pg_")
CLOSING = re.compile(r"^(\d+) passed, (\d+) failed, (\d+) skipped$")


def version_of(folder):
    """What the server there calls itself, or None."""
    if not all(os.access(os.path.join(folder, p), os.X_OK) for p in ("initdb", "pg_ctl")):
        return None
    try:
        done = subprocess.run([os.path.join(folder, "postgres"), "--version"],
                              stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, timeout=30)
    except OSError:
        return None
    found = re.search(r"(\d+)[.\w]*", done.stdout.decode()) if done.returncode == 0 else None
    return found and found[0]


def find(major, given):
    """(version, folder of its programs), or (None, why not)."""
    places = [os.path.join(d, *more) for d in given for more in ((major, "bin"), ("bin",), ())]
    places.append("/usr/lib/postgresql/%s/bin" % major)
    for folder in places:
        version = version_of(folder)
        if version and version.startswith(major):
            return version, folder
    done = subprocess.run([sys.executable, os.path.join(TOP, "tool", "thirdparty"), "postgres",
                           major], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, text=True)
    if done.returncode != 0:
        return None, "not installed, and %s" % (done.stderr.strip() or "nothing said why")
    folder = done.stdout.strip()
    version = version_of(folder)
    return (version, folder) if version else (None, "what was fetched does not run here")


def run(folder, build_dir, names):
    """The closing counts of the runner, or None if it did not get so far."""
    counts = None
    runner = subprocess.Popen(
        [sys.executable, "-B", os.path.join(TOP, "test", "run.py"), "--build-dir", build_dir,
         *names], env=dict(os.environ, PAWL_PG_BIN=folder), stdout=subprocess.PIPE, text=True)
    try:
        for line in runner.stdout:
            closing = CLOSING.match(line)
            if closing:
                counts = tuple(int(n) for n in closing.groups())
            else:
                print("    " + line, end="", flush=True)
    finally:
        if runner.poll() is None:                # we were told to end, and so is it
            runner.terminate()
        runner.wait()
    return counts


def main():
    p = argparse.ArgumentParser(description="Run the tests on several versions of PostgreSQL.")
    p.add_argument("names", nargs="*", metavar="NAME", help="only tests whose name contains it")
    p.add_argument("--build-dir", default=os.path.join(TOP, "build"))
    p.add_argument("--binaries", action="append", default=[], metavar="DIR")
    p.add_argument("--only", action="append", default=[], choices=MAJORS, metavar="MAJOR")
    opts = p.parse_args()
    lines, total, bad = [], [0, 0, 0], False
    for major in opts.only or MAJORS:
        version, where = find(major, [os.path.abspath(d) for d in opts.binaries])
        if version is None:
            lines.append("PostgreSQL %s: not run: %s" % (major, where))
            continue
        print("PostgreSQL %s, from %s" % (version, where), flush=True)
        counts = run(where, os.path.abspath(opts.build_dir), opts.names or NAMES)
        if counts is None:
            bad = True
            lines.append("PostgreSQL %s: the run did not end well" % version)
            continue
        lines.append("PostgreSQL %s: %d passed, %d failed, %d skipped" % (version, *counts))
        total = [a + b for a, b in zip(total, counts)]
    print("\n".join(lines))
    print("%d passed, %d failed, %d skipped" % tuple(total), flush=True)
    return 1 if bad or total[1] or not sum(total) else 0


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    sys.exit(main())
