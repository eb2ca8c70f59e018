# SPDX-License-Identifier: Apache-2.0
"""fieldkit.py - what the field cases (test_case_*.py) share: oracles of their own, and brutality.

The oracles do not trust the product: `fx` is a table without any unique constraint, written by sql
tasks inside the job's transaction; `attempts.log` gets one line from every exec handler before it
does anything. A case of the field is a method test_case_NN_claim.
"""
import collections
import json
import os
import signal

from pawltest import PAWL, PawlTest

FX = """CREATE TABLE fx(n INTEGER PRIMARY KEY, job_id INTEGER, attempt INTEGER, key TEXT,
                        value TEXT);
        CREATE INDEX fx_job ON fx(job_id)"""

# Does what the words of its args (a JSON string) say, one after the other; 1/word: in attempt 1
# only.
ACT = r"""#!/bin/sh
read -r up rest < /proc/uptime
printf '%s %s %s %s\n' "$PAWL_JOB_ID" "$PAWL_ATTEMPT" "$$" "$up" >> attempts.log
IFS= read -r args
args=${args#\"}
for word in ${args%\"}; do
    case $word in [0-9]/*) [ "$PAWL_ATTEMPT" = "${word%%/*}" ] || continue; word=${word#*/} ;; esac
    arg=${word#*:}
    case $word in
    ok) ;;
    sleep:*) sleep "$arg" ;;
    wait:*) while [ ! -e "$arg" ]; do sleep 0.02; done ;;
    touch:*) : > "$arg" ;;
    who) printf '{"done":{"result":"%s %s"}}' "$PAWL_WORKER" "$PAWL_ATTEMPT" >&3 ;;
    effect) "$BIN" enqueue effect '{}' --key "$PAWL_IDEMPOTENCY_KEY" > effect.log 2>&1 || exit 70 ;;
    say:*) echo "$arg" >&2 ;;
    exit:*) exit "$arg" ;;
    kill9:self) kill -9 $$ ;;
    kill9:parent) kill -9 $PPID; sleep 5 ;;
    *) echo "unknown word $word" >&2; exit 64 ;;
    esac
done
"""

TASKS = """
[task act]
exec = ./act.sh
env.BIN = %s
%s

[task effect]
sql = INSERT INTO fx(job_id, attempt, key, value) VALUES (:job_id, :job_attempt, :job_key, :value)
optional = value
%s
"""

Attempt = collections.namedtuple("Attempt", "job n pid at")


def uptime():
    with open("/proc/uptime", encoding="ascii") as f:
        return float(f.read().split()[0])


def stat_of(pid):
    """(state, parent) of a process, or None when it is gone."""
    try:
        with open("/proc/%d/stat" % pid, "rb") as f:
            rest = f.read().rpartition(b")")[2].split()
        return rest[0].decode(), int(rest[1])
    except OSError:
        return None


def is_alive(pid):
    stat = stat_of(pid)
    return stat is not None and stat[0] not in "ZX"


def tree(pid):
    """pid and all its living descendants, parents first."""
    parents = {}
    for entry in os.listdir("/proc"):
        stat = stat_of(int(entry)) if entry.isdigit() else None
        if stat and stat[0] not in "ZX":
            parents[int(entry)] = stat[1]
    found = [pid]
    for one in found:
        found += [p for p, parent in parents.items() if parent == one]
    return found


def send(pids, sig):
    for pid in pids:
        try:
            os.kill(pid, sig)
        except ProcessLookupError:
            pass


def memory_kib(pid, what):
    """VmRSS, VmHWM ... of a process."""
    with open("/proc/%d/status" % pid, encoding="ascii") as f:
        for line in f:
            if line.startswith(what + ":"):
                return int(line.split()[1])
    raise AssertionError("no %s of %d" % (what, pid))


def is_sanitized():
    """The binary carries a sanitizer: what it takes in memory says nothing about the product."""
    with open(PAWL, "rb") as f:
        program = f.read()
    return b"__asan_init" in program or b"__tsan_init" in program


class FieldTest(PawlTest):
    lease = "2s"
    concurrency = 8
    act_policy = effect_policy = ""
    more = ""                                   # further sections of the configuration

    def setUp(self):
        super().setUp()
        self.started = []                       # every process that a worker of ours ever had
        self.addCleanup(self._kill_started)
        if self.make_store:
            for statement in FX.split(";"):
                self.sql(statement)
        self.script("act.sh", ACT)
        self.write_conf()

    def write_conf(self, more=None):
        # With an old SQLite a second worker would be refused; the file is thrown away here.
        head = ("[pawl]\ndb = sqlite:shop.db\nconcurrency = %d\ngrace = 5s\nlease = %s\n"
                "accept_wal_risk = yes\n")
        self.conf(head % (self.concurrency, self.lease)
                  + TASKS % (PAWL, self.act_policy, self.effect_policy)
                  + (self.more if more is None else more))

    # --- workers, and what is done to them ---
    def worker(self, *words, ready=True, env=None):
        """A running worker; with ready, one that has said so."""
        worker = self.start_worker(*words, env=env)
        if ready:
            self.wait_log(worker, "event=worker.ready")
        return worker

    def wait_log(self, worker, text, deadline=15):
        self.wait_until(lambda: text in self.log(worker), deadline, "log line %r" % text)

    def kill_all(self, *workers):
        """SIGKILL the workers with everything below them, and reap them."""
        pids = []
        for worker in workers:
            if worker.poll() is None:
                pids += tree(worker.pid)
        send(pids, signal.SIGKILL)
        self.started += pids
        for worker in workers:
            worker.wait()
        # The worker's lock is free when the last of them is gone: only then is it dead to others.
        self.wait_until(lambda: not any(is_alive(p) for p in pids), 10, "the end of all of them")

    def freeze(self, worker):
        """SIGSTOP the worker with everything below it; returns the pids."""
        pids = tree(worker.pid)
        self.started += pids
        send(pids, signal.SIGSTOP)
        self.wait_until(lambda: all((stat_of(p) or "Z")[0] in "TZX" for p in pids), 5,
                        "a standstill")
        return pids

    def _kill_started(self):
        """Runs when the test is over, however it ended: first the trees of what still lives."""
        for worker in self.workers:
            if worker.poll() is None:
                self.started += tree(worker.pid)
        for pid in self.started:
            try:
                if os.readlink("/proc/%d/cwd" % pid) == self.dir:
                    send([pid], signal.SIGKILL)
            except OSError:
                pass                            # gone, or its number is somebody else's by now

    # --- the oracles ---
    def attempts(self, job=None):
        """What attempts.log has, in order."""
        try:
            with open(os.path.join(self.dir, "attempts.log"), encoding="ascii") as f:
                lines = [line.split() for line in f if line.endswith("\n")]
        except FileNotFoundError:
            return []
        rows = [Attempt(line[0], int(line[1]), int(line[2]), float(line[3])) for line in lines]
        return [r for r in rows if job is None or r.job == str(job)]

    def wait_attempts(self, job, n, deadline=15):
        self.wait_until(lambda: len(self.attempts(job)) >= n, deadline,
                        "attempt %d of job %s" % (n, job))
        return self.attempts(job)

    def fx(self):
        """(job id, key) of every effect."""
        return self.sql("SELECT job_id, key FROM fx ORDER BY n")

    def assert_each_once(self, ids):
        """fx has exactly these job ids, each once."""
        have = collections.Counter(str(row[0]) for row in self.fx())
        want = {str(i) for i in ids}
        twice = {i: n for i, n in have.items() if n > 1}
        self.assertEqual((want - set(have), set(have) - want, twice), (set(), set(), {}),
                         "missing, unknown, more than once")

    def stats(self):
        return self.json("stats")[0]

    def count(self, state, task=None):
        return self.sql("SELECT count(*) FROM pawl_jobs WHERE state = ?"
                        " AND task = coalesce(?, task)", (state, task))[0][0]

    def bulk(self, lines):
        """Enqueue many; lines: objects as --bulk reads them."""
        self.ok("enqueue", "--bulk", "-", stdin="".join(json.dumps(o) + "\n" for o in lines))

    def act(self, words, *more):
        """Enqueue one job of the exec task; returns its id."""
        return self.enqueue("act", '"%s"' % words, *more)

    def touch(self, name):
        with open(os.path.join(self.dir, name), "w", encoding="ascii"):
            pass
