# SPDX-License-Identifier: Apache-2.0
"""kit.py - what the measurements are made with: programs, stores, a worker, /proc, medians."""
import json
import os
import shutil
import signal
import sqlite3
import statistics
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
TOP = os.path.dirname(HERE)
ARGS_BYTES = 200
BUSY_S = 5.0              # busy_timeout of every foreign connection

CONF = """[pawl]
db = %(db)s
concurrency = %(concurrency)d

[task effect]
sql = INSERT INTO effect(key, n) VALUES (:key, :n)

[task busy]
sql = INSERT INTO effect(key, n) WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL
      SELECT x + 1 FROM c WHERE x < 500) SELECT :key, max(x) FROM c

[task spawn]
exec = %(tiny)s
hard_limit = 60s

[task stamp]
exec = %(tiny)s %(stamps)s
hard_limit = 60s
"""
# Declared like the others, but no worker runs it: to enqueue without giving anybody work.
CONF_LATER = """[task later]
sql = INSERT INTO effect(key, n) VALUES (:key, :n)
"""


class Failed(Exception):
    """A program that the measurements need did not do its work."""


def median(values):
    return statistics.median(values) if values else float("nan")


def percentile(values, p):
    """The smallest value that at least p percent of the values do not exceed."""
    ordered = sorted(values)
    if not ordered:
        return float("nan")
    return ordered[min(len(ordered) - 1, max(0, -(-len(ordered) * p // 100) - 1))]


class Tools:
    """The binaries, the engine (engine.py), and the directory that everything happens in."""

    def __init__(self, where):
        self.engine = None
        build = os.environ.get("PAWL_BUILD_DIR") or os.path.join(TOP, "build")
        self.pawl = os.path.abspath(os.environ.get("PAWL_BIN") or os.path.join(build, "pawl"))
        self.dir = os.path.join(build, "bench")
        self.where = where
        self.nogap = os.path.join(self.dir, "nogap")
        self.tiny = os.path.join(self.dir, "tiny")
        for path in (self.pawl, self.nogap, self.tiny):
            if not os.access(path, os.X_OK):
                raise Failed("no program %s: run `./run build` first" % path)

    def run(self, *argv, cwd=None):
        """Run a program to its end; its standard output."""
        done = subprocess.run([str(a) for a in argv], stdout=subprocess.PIPE, cwd=cwd,
                              stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, timeout=300)
        if done.returncode != 0:
            raise Failed("%s: exit %d: %s" % (os.path.basename(str(argv[0])), done.returncode,
                                              done.stderr.decode("utf-8", "replace").strip()))
        return done.stdout.decode()

    def ask(self, name, *args):
        """One of the measuring programs: its JSON object."""
        return json.loads(self.run(os.path.join(self.dir, name), *args).splitlines()[-1])


def job_args(i):
    """As bench_args() in bench.h."""
    head = '{"key":"k-%010d","n":%d,"pad":"' % (i, i)
    return head + "x" * (ARGS_BYTES - len(head) - 2) + '"}'


class Store:
    """A fresh store with the table of the effects, the configuration beside it."""

    def __init__(self, tools, name, concurrency=8):
        self.tools = tools
        self.dir = os.path.join(tools.where, name)
        os.makedirs(self.dir)
        self.db = tools.engine.new_store(self.dir)
        self.stamps = os.path.join(self.dir, "stamps")
        self.conf = os.path.join(self.dir, "pawl.conf")
        self.next = 0                      # number of the next job
        tools.run(tools.pawl, "init", "--db", self.db)
        for table in tools.engine.tables:
            self.sql(table)
        with open(self.conf, "w") as f:
            f.write(CONF % {"db": self.db, "concurrency": concurrency, "tiny": tools.tiny,
                            "stamps": self.stamps})
        later = os.path.join(self.dir, "later.conf")
        with open(later, "w") as f:
            f.write(CONF_LATER)
        for conf in (self.conf, later):
            tools.run(tools.pawl, "apply", "-c", conf, "--db", self.db)

    def connect(self):
        return self.tools.engine.connect(self.db)

    def flushes(self, n):
        """F, on the disk of the store."""
        return self.tools.ask("disk", self.tools.engine.disk(self.dir), n)

    def raw(self, n):
        """R: raw rows into Pawl's tables."""
        return self.tools.engine.raw(self.tools, self.db, n)

    def hold(self):
        """A connection to be kept open: the last one to close would throw the log away, and the
        next program would pay for making a new one."""
        db = self.connect()
        db.execute("SELECT count(*) FROM pawl_x_task").fetchall()
        return db

    def sql(self, text, *args):
        db = self.connect()
        try:
            return db.execute(text, args).fetchall()
        finally:
            db.close()

    def lines(self, task, n):
        """A file of n requests for --bulk, numbered on from the last."""
        path = os.path.join(self.dir, "bulk.jsonl")
        with open(path, "w") as f:
            for i in range(self.next, self.next + n):
                f.write('{"task":"%s","args":%s}\n' % (task, job_args(i)))
        self.next += n
        return path

    def bulk(self, path):
        """`pawl enqueue --bulk` of a file: (seconds, CPU seconds)."""
        return self.timed(self.tools.pawl, "enqueue", "--db", self.db, "--bulk", path)

    def fill(self, n, task="effect"):
        self.bulk(self.lines(task, n))

    def timed(self, *argv):
        """Run to the end: (seconds, CPU seconds of it and its children)."""
        start = time.monotonic()
        child = subprocess.Popen([str(a) for a in argv], stdin=subprocess.DEVNULL,
                                 stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        _, status, usage = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
        if child.returncode != 0:
            raise Failed("%s: exit %d" % (" ".join(str(a) for a in argv[:2]), child.returncode))
        return time.monotonic() - start, usage.ru_utime + usage.ru_stime

    def drain(self):
        """`pawl work --until-empty`: (jobs done, jobs a second, CPU seconds). The rate is from the
        first start to the last end, by the jobs' own rows."""
        last = self.last_done()
        _, cpu = self.timed(self.tools.pawl, "work", "-c", self.conf, "--until-empty",
                            "--log-level", "warn")
        n, rate = self.rate_since(last)
        return n, rate, cpu

    def last_done(self):
        return self.sql("SELECT coalesce(max(job_id), 0) FROM pawl_x_done")[0][0]

    def rate_since(self, job_id, skip_us=0, for_us=None):
        """(jobs, jobs a second) of the jobs done after job_id, skip_us after the first end, within
        for_us."""
        first = self.sql("SELECT min(started_at_us) FROM pawl_x_done WHERE job_id > ?",
                         job_id)[0][0]
        if first is None:
            raise Failed("no job was done")
        start = first + skip_us
        end = start + for_us if for_us else 1 << 62
        n, last = self.sql("SELECT count(*), max(ended_at_us) FROM pawl_x_done WHERE job_id > ? AND"
                           " ended_at_us > ? AND ended_at_us <= ?", job_id, start, end)[0]
        if not n:
            raise Failed("no job was done in the time looked at")
        return n, n * 1e6 / max(1, (for_us or last - start))

    def remove(self):
        shutil.rmtree(self.dir, ignore_errors=True)


class Worker:
    """A running `pawl work`. With it: its supervisor and runner in /proc."""

    def __init__(self, store, binary=None, wait_ready=True):
        self.log = os.path.join(store.dir, "work.log")
        with open(self.log, "wb") as log:
            self.process = subprocess.Popen(
                [binary or store.tools.pawl, "work", "-c", store.conf], stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL, stderr=log)
        if wait_ready:
            self.wait_ready()

    def wait_ready(self):
        deadline = time.monotonic() + 20
        while b"event=worker.ready" not in open(self.log, "rb").read():
            if self.process.poll() is not None or time.monotonic() > deadline:
                self.stop(force=True)
                raise Failed("the worker does not get ready: see " + self.log)
            time.sleep(0.002)  # until the deadline

    def pids(self):
        """The supervisor and, when there is one, the runner."""
        pid = self.process.pid
        with open("/proc/%d/task/%d/children" % (pid, pid)) as f:
            kids = f.read().split()
        for kid in kids:
            with open("/proc/%s/comm" % kid) as f:
                if f.read().strip() == "pawl-runner":
                    return [pid, int(kid)]
        return [pid]

    def stop(self, force=False):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGKILL if force else signal.SIGTERM)
        code = self.process.wait(timeout=60)
        if code != 0 and not force:
            raise Failed("the worker ended with %d: see %s" % (code, self.log))

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        self.stop(force=kind is not None)


def cpu_s(pid):
    """CPU seconds used so far: by the scheduler's own count when the kernel has it."""
    try:
        with open("/proc/%d/schedstat" % pid) as f:
            return int(f.read().split()[0]) / 1e9
    except (OSError, IndexError, ValueError):
        with open("/proc/%d/stat" % pid) as f:
            words = f.read().rpartition(")")[2].split()
        return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")


def memory_mib(pid):
    """(RSS, PSS) in MiB."""
    found = {}
    with open("/proc/%d/smaps_rollup" % pid) as f:
        for line in f:
            word = line.split()
            if word[0] in ("Rss:", "Pss:"):
                found[word[0]] = int(word[1]) / 1024
    return found["Rss:"], found["Pss:"]


def machine(where):
    """Facts that belong to every number: one per line."""
    def first(path, key, default):
        try:
            with open(path) as f:
                return next((line.split(":", 1)[1].strip() for line in f if line.startswith(key)),
                            default)
        except OSError:
            return default

    fs = subprocess.run(["stat", "-f", "-c", "%T", where], stdout=subprocess.PIPE,
                        stderr=subprocess.DEVNULL).stdout.decode().strip() or "unknown"
    load = "%.1f %.1f %.1f" % os.getloadavg()
    return {"cpu": first("/proc/cpuinfo", "model name", "unknown"), "cores": os.cpu_count(),
            "memory": first("/proc/meminfo", "MemTotal", "unknown"),
            "kernel": os.uname().release, "file_system": fs, "load": load,
            "nice": os.nice(0), "python_sqlite": sqlite3.sqlite_version}


def sized(o, full, quick, tiny):
    """The size of a group, by the run asked for."""
    return tiny if o.tiny else quick if o.quick else full


def say(text=""):
    """Progress and tables, for people."""
    print(text, file=sys.stderr if "--json" in sys.argv else sys.stdout, flush=True)
