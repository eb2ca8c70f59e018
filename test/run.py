#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""run.py - run every test there is, and close with one line: N passed, N failed, N skipped

    run.py --build-dir DIR [--also DIR] [NAME...]

A test is: one TAP line of a C suite (build/test/{unit,store,crash}_test_*), one test method of a
Python module (test/e2e/test_*.py or case_*.py; methods test* and case_*), or the style check.
NAME picks tests whose name contains it. --also runs the tests that depend on the SQLite in use a
second time against another build: the store suites, and the Python modules with BOTH_LINKS = True.

A Python module may say: TIMEOUT = seconds for each of its tests (default 60); SERIAL = True for
tests that measure time and must run alone; BOTH_LINKS = True.

Each test (each C suite) has its own process, session, empty temporary directory (TMPDIR, HOME and
the working directory) and time limit. What it leaves running is killed, and makes it fail.
Nothing is written into the source tree. Exit 1 if a test failed, or if none ran.
"""
import argparse
import ctypes
import faulthandler
import importlib
import importlib.util
import io
import json
import os
import re
import selectors
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
import unittest

TOP = os.path.dirname(os.path.dirname(os.path.realpath(__file__)))
SUITE_S = 300          # limit for a whole C suite; Check bounds each of its tests
TEST_S = 60            # limit for one Python test
SETTLE_S = 5           # how long processes may take to end after their test did
OUTPUT_LINES = 150     # of a failed test's output, the last so many are shown
QUIET_S = 20           # without a terminal, say so often that we are alive
PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
# Folders of packages that only tests use: what tool/thirdparty has fetched, or "".
FETCHED = {"PAWL_PYTHON_DIR": "python-dir", "PAWL_NODE_PG": "node-pg-dir"}


class Test:
    """One process to run: a C suite (many results) or one Python test (one result)."""

    def __init__(self, name, build_dir, label, **how):
        self.name, self.build_dir, self.label = label + name, build_dir, label
        self.argv = how.get("argv")              # a program: TAP, or judged by its exit code
        self.tap = how.get("tap", False)
        self.module = how.get("module")          # or a Python method
        self.method = how.get("method")
        self.limit_s = how.get("limit_s", TEST_S)
        self.serial = how.get("serial", False)
        self.pick = how.get("pick", [])          # count only TAP lines that contain one of these


# --- what there is to run -------------------------------------------------------------------------

def picked(name, picks):
    return not picks or any(p in name for p in picks)


def c_suites(build_dir, label, picks, rooms):
    folder = os.path.join(build_dir, "test")
    for room in rooms:
        source_dir = os.path.join(TOP, "test", room)
        for source in sorted(os.listdir(source_dir)) if os.path.isdir(source_dir) else []:
            if not (source.startswith("test_") and source.endswith(".c")):
                continue
            name = "%s/%s" % (room, source[:-2])
            how = {"argv": [os.path.join(folder, room + "_" + source[:-2])], "tap": True,
                   "limit_s": SUITE_S}
            if picked(label + name, picks):
                yield Test(name, build_dir, label, **how)
                continue
            with open(os.path.join(source_dir, source), encoding="utf-8") as f:
                inside = re.findall(r"START_TEST\((\w+)\)", f.read())
            if any(picked(t, picks) for t in inside):
                yield Test(name, build_dir, label, pick=picks, **how)


def load_module(path):
    name = os.path.splitext(os.path.basename(path))[0]
    sys.path[:0] = [os.path.dirname(path), os.path.join(TOP, "test", "e2e"),
                    os.path.join(TOP, "test")]
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def describe_module(path):
    """What a module holds, found in a process of its own: an import may do anything."""
    module = load_module(path)
    methods = []
    for attr in dict.fromkeys(a for a in vars(module).values() if isinstance(a, type)):
        if issubclass(attr, unittest.TestCase) \
                and attr.__module__ == module.__name__:
            methods += ["%s.%s" % (attr.__name__, m) for m in dir(attr)
                        if m.startswith(("test", "case_")) and callable(getattr(attr, m))]
    return {"methods": methods, "limit_s": getattr(module, "TIMEOUT", TEST_S),
            "serial": bool(getattr(module, "SERIAL", False)),
            "both": bool(getattr(module, "BOTH_LINKS", False))}


def in_child(work):
    """Run work() in a forked process; returns its JSON answer, or {"error": what went wrong}."""
    r, w = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(r)
        try:
            answer = work()
        except BaseException:  # SystemExit too
            answer = {"error": traceback.format_exc()}
        with os.fdopen(w, "w") as f:
            json.dump(answer, f)
        os._exit(0)
    os.close(w)
    with os.fdopen(r) as f:
        text = f.read()
    os.waitpid(pid, 0)
    return json.loads(text) if text else {"error": "the process died while importing"}


def python_modules():
    for folder, _, names in sorted(os.walk(os.path.join(TOP, "test", "e2e"))):
        for name in sorted(names):
            if name.startswith(("test_", "case_")) and name.endswith(".py"):
                yield os.path.join(folder, name)


def python_tests(found, build_dir, label, picks, both_only):
    for path, what in found:
        short = os.path.relpath(path, os.path.join(TOP, "test"))[:-3]
        for method in what.get("methods", []):
            name = "%s.%s" % (short, method)
            if both_only and (not what["both"] or "[postgresql]" in name):
                continue                         # another SQLite is no other PostgreSQL
            if picked(label + name, picks):
                yield Test(name, build_dir, label, module=path, method=method,
                           limit_s=what["limit_s"], serial=what["serial"])


def discover(opts):
    tests, broken = [], []
    found = [(p, in_child(lambda p=p: describe_module(p))) for p in python_modules()]
    for path, what in found:
        if "error" in what or not what["methods"]:
            broken.append((os.path.relpath(path, os.path.join(TOP, "test")),
                           what.get("error", "no test in this module")))
    builds = [(opts.build_dir, "", False)] + [(d, "system: ", True) for d in opts.also]
    for build_dir, label, again in builds:
        rooms = ("store",) if again else ("unit", "store", "crash")
        tests += c_suites(build_dir, label, opts.names, rooms)
        tests += python_tests(found, build_dir, label, opts.names, again)
    style = Test("style/tidy", opts.build_dir, "", argv=[os.path.join(TOP, "tool", "tidy")])
    if picked(style.name, opts.names):
        tests.append(style)
    return tests, broken


# --- one test, in the process made for it ---------------------------------------------------------

def prctl(option, value):
    ctypes.CDLL(None, use_errno=True).prctl(option, ctypes.c_ulong(value), 0, 0, 0)


def test_env(test, tmp):
    env = {k: v for k, v in os.environ.items()
           if not k.startswith(("PAWL_", "CK_"))
           or k in ("PAWL_NODE", "PAWL_CACHE", "PAWL_PG_BIN", "PAWL_PG_DATA", "PAWL_TEST_KEPT",
                    *FETCHED)}
    for name in "PAWL_TEST_PG", "PAWL_TEST_PG_USER", "PAWL_TEST_PG_TEMPLATE":
        if name in os.environ and not test.label: # once is enough: it is the same engine
            env[name] = os.environ[name]
    env.update(PAWL_TEST_SLOW=os.environ.get("PAWL_TEST_SLOW", "1"),
               PAWL_BIN=os.path.join(test.build_dir, "pawl"), PAWL_BUILD_DIR=test.build_dir,
               TMPDIR=tmp, HOME=tmp, LC_ALL="C.UTF-8", TZ="UTC", PYTHONDONTWRITEBYTECODE="1",
               UT_TAP="1", CK_TAP_LOG_FILE_NAME="-", CK_VERBOSITY="silent")
    return env


class Result(unittest.TestResult):
    """Keeps the one outcome that counts."""

    def __init__(self):
        super().__init__()
        self.kind, self.why = "passed", ""

    def worse(self, kind, why):
        if self.kind != "failed":
            self.kind, self.why = kind, why
        elif kind == "failed":
            self.why += "\n" + why

    def addError(self, test, err):
        self.worse("failed", self._exc_info_to_string(err, test))

    addFailure = addError

    def addSubTest(self, test, subtest, err):
        if err is not None:
            self.worse("failed", "%s\n%s" % (subtest, self._exc_info_to_string(err, subtest)))

    def addUnexpectedSuccess(self, test):
        self.worse("failed", "passed, though it is marked as an expected failure")

    def addSkip(self, test, reason):
        self.worse("skipped", reason)


def run_python(test, answer_fd):
    """In the test's process: run one method, write the outcome to answer_fd."""
    faulthandler.dump_traceback_later(max(1, test.limit_s - 1))
    result = Result()
    try:
        module = load_module(test.module)
        cls, method = test.method.split(".")
        unittest.TestSuite([getattr(module, cls)(method)]).run(result)
    except unittest.SkipTest as e:
        result.worse("skipped", str(e))
    except BaseException:  # SystemExit too
        result.worse("failed", traceback.format_exc())
    sys.stdout.flush()
    sys.stderr.flush()
    with os.fdopen(answer_fd, "w") as f:
        json.dump([result.kind, result.why], f)


def start(test, tmp, out_fd, answer_fd):
    pid = os.fork()
    if pid != 0:
        return pid
    try:
        os.setsid()
        prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        for sig in (signal.SIGINT, signal.SIGTERM, signal.SIGCHLD):
            signal.signal(sig, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, [])
        os.chdir(tmp)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(out_fd, 1)
        os.dup2(out_fd, 2)
        env = test_env(test, tmp)
        if test.argv:
            os.execve(test.argv[0], test.argv, env)
        os.environ.clear()
        os.environ.update(env)
        tempfile.tempdir = None
        sys.stdin = open(0, encoding="utf-8", closefd=False)
        run_python(test, answer_fd)
    except BaseException:  # must not return into the runner
        traceback.print_exc()
        os._exit(127)
    os._exit(0)


def children_of(pid):
    """pid -> command line of every living descendant."""
    parents = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                with open("/proc/%s/stat" % entry, "rb") as f:
                    rest = f.read().rpartition(b")")[2].split()
                if rest[0] not in (b"Z", b"X"):
                    parents[int(entry)] = int(rest[1])
            except OSError:
                pass  # it ended while we looked
    found, todo = {}, [pid]
    while todo:
        parent = todo.pop()
        for child in [c for c, p in parents.items() if p == parent]:
            todo.append(child)
            try:
                with open("/proc/%d/cmdline" % child, "rb") as f:
                    found[child] = f.read().replace(b"\0", b" ").decode("utf-8", "replace").strip()
            except OSError:
                pass
    return found


def reap_all():
    """Collect every ended child; returns the exit statuses by pid."""
    ended = {}
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return ended
        if pid == 0:
            return ended
        ended[pid] = status


def wait_until(deadline, done):
    """Wait, awake at each SIGCHLD (which is blocked), until done() or the deadline."""
    while not done():
        left = deadline - time.monotonic()
        if left <= 0:
            return False
        signal.sigtimedwait([signal.SIGCHLD], min(left, 0.2))
    return True


def kill_tree():
    """End all descendants. Every orphan comes back to us, so that a few rounds get them all."""
    deadline = time.monotonic() + SETTLE_S

    def gone():
        reap_all()
        left = children_of(os.getpid())
        for pid in left:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        return not left
    wait_until(deadline, gone)


def watch(test, pid):
    """Wait for the test and for what it started. Returns (exit status or None, what it left)."""
    status = {}

    def ended():
        status.update(reap_all())
        return pid in status

    def settled():
        reap_all()
        return not children_of(os.getpid())

    if not wait_until(time.monotonic() + test.limit_s, ended):
        kill_tree()
        return None, []
    wait_until(time.monotonic() + SETTLE_S, settled)
    left = sorted(set(children_of(os.getpid()).values()))
    kill_tree()
    return status[pid], left


def box(test, answer):
    """In a process of its own: run the test, clean up after it, write a JSON answer to a pipe."""
    os.setsid()
    prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
    prctl(PR_SET_CHILD_SUBREAPER, 1)
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGCHLD])

    def stop(_sig, _frame):
        kill_tree()
        os._exit(1)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, stop)
    tmp = tempfile.mkdtemp(prefix="t")
    began = time.monotonic()
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as verdict:
        pid = start(test, tmp, out.fileno(), verdict.fileno())
        status, left = watch(test, pid)
        out.seek(0)
        verdict.seek(0)
        text = out.read().decode("utf-8", "replace")
        outcome = json.loads(verdict.read() or b"null")
    subprocess.call(["chmod", "-R", "u+rwx", tmp], stderr=subprocess.DEVNULL)
    shutil.rmtree(tmp, ignore_errors=True)
    os.write(answer, json.dumps({"status": status, "left": left, "text": text, "outcome": outcome,
                                 "took_s": time.monotonic() - began}).encode() + b"\n")


# --- judging --------------------------------------------------------------------------------------

def exit_words(status):
    if os.WIFSIGNALED(status):
        return "killed by " + signal.Signals(os.WTERMSIG(status)).name
    return "exit %d" % os.WEXITSTATUS(status)


TAP_LINE = re.compile(r"^(not )?ok\b\s*\d*\s*-?\s*(.*)$")
TAP_PLAN = re.compile(r"^1\.\.(\d+)(?:\s*#\s*(?:SKIP)?\s*(.*))?$", re.I)
TAP_SKIP = re.compile(r"\s#\s*SKIP\b\S*\s*(.*)$", re.I)


def merge_rounds(results):
    """The rounds of a loop test have one name: they are one test, which passes if all do."""
    rank, merged = ("passed", "skipped", "failed"), {}
    for name, kind, why in results:
        old_kind, old_why = merged.get(name, (kind, ""))
        if old_why and kind == old_kind == "failed":
            why = old_why + "\n" + why
        elif rank.index(old_kind) > rank.index(kind):
            kind, why = old_kind, old_why
        merged[name] = (kind, why)
    return [(name, kind, why) for name, (kind, why) in merged.items()]


def judge_tap(test, text, status):
    """Results (name, kind, why) of a suite that speaks TAP; one more if it did not end well."""
    results, planned, reason = [], None, ""
    for line in text.splitlines():
        plan, point = TAP_PLAN.match(line), TAP_LINE.match(line)
        if plan:
            planned, reason = int(plan.group(1)), plan.group(2) or ""
        elif point:
            what, skip = point.group(2), TAP_SKIP.search(point.group(2))
            words = what.split(":")                  # Check says file:case:test: message
            short = words[2] if len(words) >= 4 and words[0].endswith(".c") else what
            kind = "failed" if point.group(1) else "skipped" if skip else "passed"
            results.append(("%s:%s" % (test.name, short), kind, skip.group(1) if skip else what))
    if planned == 0 and not results and status == 0:
        return [(test.name, "skipped", reason or "nothing to test here")]
    failed = any(kind == "failed" for _, kind, _ in results)
    count, trouble = len(results), ""
    if os.WIFSIGNALED(status) or (status != 0 and not failed):
        trouble = exit_words(status)
    elif planned != count:
        trouble = "%d results, %s planned" % (count, planned)
    results = merge_rounds(results)
    if test.pick:
        results = [r for r in results if picked(r[0], test.pick)]
    if trouble:
        results.append((test.name, "failed", "the suite ended badly: " + trouble))
    return results


def judge(test, answer):
    status, text, outcome = answer["status"], answer["text"], answer["outcome"]
    if status is None:
        results = [(test.name, "failed", "did not end within %d s" % test.limit_s)]
    elif test.tap:
        results = judge_tap(test, text, status)
    elif test.argv:
        results = [(test.name, "passed" if status == 0 else "failed", exit_words(status))]
    elif outcome is None:
        results = [(test.name, "failed", "the test's process ended early: " + exit_words(status))]
    else:
        results = [(test.name, outcome[0], outcome[1])]
    if answer["left"]:
        results.append((test.name, "failed", "left running: " + "; ".join(answer["left"])[:500]))
    return results


class Report:
    def __init__(self, total, verbose):
        self.results, self.slow = [], []
        self.total, self.done, self.verbose = total, 0, verbose
        self.terminal = sys.stdout.isatty()
        self.said = time.monotonic()

    def line(self, text):
        print(("\r\x1b[K" if self.terminal else "") + text, flush=True)

    def add(self, test, answer, results):
        self.done += 1
        self.slow.append((answer["took_s"], test.name))
        shown = False
        for name, kind, why in results:
            self.results.append((name, kind, why))
            if kind == "failed":
                self.line("FAILED %s" % name)
                for s in why.strip().splitlines():
                    print("    " + s)
                shown = True
            elif self.verbose:
                self.line("%s %s" % (kind, name))
        if shown and answer["text"].strip():
            print("    --- its output:")
            for s in answer["text"].rstrip().splitlines()[-OUTPUT_LINES:]:
                print("    | " + s[:1000])
        self.progress(test)

    def progress(self, test):
        now = time.monotonic()
        if self.terminal:
            print("\r\x1b[K[%d/%d] %s" % (self.done, self.total, test.name[:70]), end="",
                  flush=True)
        elif now - self.said > QUIET_S and self.done < self.total:
            self.said = now
            print("... %d of %d" % (self.done, self.total), flush=True)

    def close(self):
        if self.terminal:
            print("\r\x1b[K", end="")
        count = {k: sum(1 for r in self.results if r[1] == k)
                 for k in ("passed", "failed", "skipped")}
        why = {}
        for name, kind, reason in self.results:
            if kind == "skipped":
                why.setdefault(reason, []).append(name)
        for reason, names in sorted(why.items()):
            print("skipped %d (%s): %s" % (len(names), names[0], reason))
        slow = [s for s in sorted(self.slow, reverse=True)[:5] if s[0] >= 5]
        if slow:
            print("slowest: " + ", ".join("%s %.0f s" % (n, t) for t, n in slow))
        if count["failed"]:
            print("failed:")
            for name in dict.fromkeys(n for n, k, _ in self.results if k == "failed"):
                print("    " + name)
        if not self.results:
            print("no test ran")
        print("%(passed)d passed, %(failed)d failed, %(skipped)d skipped" % count, flush=True)
        return 1 if count["failed"] or not self.results else 0


# --- running them all -----------------------------------------------------------------------------

def launch(test):
    r, w = os.pipe()
    sys.stdout.flush()
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            os.close(r)
            box(test, w)
            code = 0
        except BaseException:  # must not return into the runner
            traceback.print_exc()
        os._exit(code)
    os.close(w)
    return pid, r


def run_all(tests, jobs, report):
    waiting = [t for t in tests if not t.serial] + [t for t in tests if t.serial]
    running, sel = {}, selectors.DefaultSelector()
    try:
        while waiting or running:
            while waiting and len(running) < (1 if waiting[0].serial else jobs) and not any(
                    t.serial for t, _, _ in running.values()):
                test = waiting.pop(0)
                pid, fd = launch(test)
                running[fd] = (test, pid, io.BytesIO())
                sel.register(fd, selectors.EVENT_READ)
            for key, _ in sel.select():
                test, pid, got = running[key.fd]
                piece = os.read(key.fd, 65536)
                got.write(piece)
                if piece:
                    continue
                sel.unregister(key.fd)
                os.close(key.fd)
                os.waitpid(pid, 0)
                del running[key.fd]
                answer = json.loads(got.getvalue() or b"null") or {
                    "status": None, "left": [], "text": "the runner's own process died",
                    "outcome": None, "took_s": 0}
                report.add(test, answer, judge(test, answer))
    finally:
        for _, pid, _ in running.values():  # only after an interrupt
            os.kill(pid, signal.SIGTERM)
            os.waitpid(pid, 0)


def link_mode(build_dir):
    try:
        with open(os.path.join(build_dir, "meson-info", "intro-buildoptions.json"),
                  encoding="utf-8") as f:
            return [o["value"] for o in json.load(f) if o["name"] == "sqlite"][0]
    except (OSError, IndexError):
        return "unknown"


def make_template(server, build_dir):
    """A store that new databases are copied from, in milliseconds. Without it, each test makes its
    own."""
    env = dict(os.environ, PAWL_DB=server.url("template_pawl"), PAWL_RUNTIME_DIR=server.dir)
    server.sql("CREATE DATABASE template_pawl")
    try:
        done = subprocess.run([os.path.join(build_dir, "pawl"), "init"], stdout=subprocess.DEVNULL,
                              stderr=subprocess.DEVNULL, env=env, timeout=60)
    except (OSError, subprocess.TimeoutExpired):
        return                                   # the tests will say why
    if done.returncode == 0:
        server.sql("ALTER DATABASE template_pawl ALLOW_CONNECTIONS false")
        os.environ["PAWL_TEST_PG_TEMPLATE"] = "template_pawl"


def start_server(report, build_dir):
    """A private PostgreSQL for all tests that want one; None, and why: half of the store suites
    is left out then, and each Python test that needs it says so."""
    os.environ.pop("PAWL_TEST_PG", None)
    os.environ.pop("PAWL_TEST_PG_TEMPLATE", None)
    if not os.path.exists(os.path.join(TOP, "test", "e2e", "pgkit.py")):
        return None                              # a tree without tests that want one
    sys.path.insert(0, os.path.join(TOP, "test", "e2e"))
    try:
        pgkit = importlib.import_module("pgkit")
        server = pgkit.Cluster()
    except unittest.SkipTest as why:
        print("no PostgreSQL: %s" % why, flush=True)
        report.results.append(("the store suites on PostgreSQL", "skipped", str(why)))
        return None
    finally:
        for name in "pgkit", "pawltest":         # a test imports them anew, with its environment,
            sys.modules.pop(name, None)          # which says what binary it tests
    os.environ.update(PAWL_TEST_PG=server.dir, PAWL_TEST_PG_USER=pgkit.SUPERUSER)
    make_template(server, build_dir)
    print("testing with PostgreSQL %s" % server.version, flush=True)
    return server


def asked_for(module, names, tests):
    """May a module that could not be read hold what is asked for? So it does if a name is in its
    own, or picks no test at all."""
    return not names or any(n in module or not any(n in t.name for t in tests) for n in names)


def main():
    p = argparse.ArgumentParser(description="Run the tests.")
    p.add_argument("names", nargs="*", metavar="NAME", help="only tests whose name contains it")
    p.add_argument("--filter", dest="names_too", action="append", default=[], metavar="NAME")
    p.add_argument("--build-dir", default=os.path.join(TOP, "build"))
    p.add_argument("--also", action="append", default=[], metavar="DIR")
    p.add_argument("--jobs", type=int, default=3, help="tests at a time (default 3)")
    p.add_argument("--slow", type=float, default=1, help="multiply all time limits")
    p.add_argument("--list", action="store_true", help="name what would run, and end")
    p.add_argument("--verbose", action="store_true", help="a line for each test")
    opts = p.parse_args()
    opts.names += opts.names_too
    opts.build_dir = os.path.abspath(opts.build_dir)
    opts.also = [os.path.abspath(d) for d in opts.also]
    for name, verb in FETCHED.items():
        found = subprocess.run([sys.executable, os.path.join(TOP, "tool", "thirdparty"), verb],
                               stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
        os.environ[name] = found.stdout.decode().strip()
    tests, broken = discover(opts)
    if opts.list:
        print("\n".join(t.name for t in tests))
        return 0
    for build_dir in [opts.build_dir] + opts.also:
        print("testing %s with the %s SQLite"
              % (os.path.relpath(build_dir, TOP), link_mode(build_dir)), flush=True)
    for t in tests:
        t.limit_s *= opts.slow
    os.environ["PAWL_TEST_SLOW"] = "%g" % opts.slow
    report = Report(len(tests), opts.verbose)
    for name, why in broken:
        if asked_for(name, opts.names, tests):
            report.line("FAILED %s\n    %s" % (name, why.strip().replace("\n", "\n    ")))
            report.results.append((name, "failed", why))
    with tempfile.TemporaryDirectory(prefix="pawl-test-") as base:
        tempfile.tempdir = base
        os.environ["PAWL_TEST_KEPT"] = tempfile.mkdtemp(prefix="kept-")
        os.environ["PAWL_PG_DATA"] = os.path.join(os.environ["PAWL_TEST_KEPT"], "pg-data")
        server = start_server(report, opts.build_dir)
        try:
            run_all(tests, max(1, opts.jobs), report)
        finally:
            if server is not None:
                server.remove()
    return report.close()


if __name__ == "__main__":
    sys.dont_write_bytecode = True
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    sys.exit(main())
