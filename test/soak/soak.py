#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""soak.py - the base case, over and over: nothing lost, nothing doubled, whatever is killed.

One run: a fresh store, N keyed effects sent twice (the producer is killed too, and sends again),
two workers, SIGKILL of everything at random moments, restarts, until the queue is empty. Then the
effects are counted from outside and `pawl check` is run. A job ended poison is no loss of the
machinery (three kills hit the very same job), but it is counted, replayed as an operator would, and
reported.

usage: soak.py [--runs 200] [--jobs 2000] [--seed N] [--exec-jobs 60] [--pawl BIN]
"""
import argparse
import json
import os
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time

CONF = """[pawl]
db = sqlite:soak.db
concurrency = 4
lease = 5s
accept_wal_risk = yes

[task effect]
sql = INSERT INTO fx(job, key) VALUES (:job_id, :k)

[task child]
exec = {argv}
backoff = 10ms..100ms
"""
CHILD = """#!/bin/sh
read -r args
echo "$PAWL_JOB_ID" >> starts.log
exit 0
"""


class Run:
    def __init__(self, pawl, rng, jobs, exec_jobs):
        self.pawl, self.rng, self.jobs, self.exec_jobs = pawl, rng, jobs, exec_jobs
        self.dir = tempfile.mkdtemp(prefix="pawl-soak-")
        self.kills = self.producer_kills = self.poison = 0
        self.workers = []

    def path(self, name):
        return os.path.join(self.dir, name)

    def cli(self, *args, **kw):
        return subprocess.run([self.pawl, *args], cwd=self.dir, capture_output=True, text=True,
                              **kw)

    def prepare(self):
        with open(self.path("child.sh"), "w") as f:
            f.write(CHILD)
        os.chmod(self.path("child.sh"), 0o755)
        with open(self.path("pawl.conf"), "w") as f:
            f.write(CONF.format(argv="./child.sh"))
        if self.cli("init").returncode != 0:
            raise SystemExit("soak: init failed")
        db = sqlite3.connect(self.path("soak.db"))
        db.execute("CREATE TABLE fx (job INTEGER, key TEXT)")
        db.commit()
        db.close()
        lines = [{"task": task, "args": {"k": f"{task[0]}{i}"}, "key": f"{task[0]}{i}"}
                 for task, n in (("effect", self.jobs), ("child", self.exec_jobs))
                 for i in range(n)]
        self.rng.shuffle(lines)
        with open(self.path("feed.jsonl"), "w") as f:
            f.writelines(json.dumps(x) + "\n" for x in lines)

    def produce(self):
        """Send everything; be killed at a random moment twice; send everything again."""
        for kill in (True, True, False):
            p = subprocess.Popen([self.pawl, "enqueue", "--bulk", "feed.jsonl"], cwd=self.dir,
                                 stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            if kill:
                try:
                    p.wait(self.rng.uniform(0.001, 0.08))
                except subprocess.TimeoutExpired:
                    p.kill()
                    self.producer_kills += 1
                p.wait()
            elif p.wait() != 0:
                raise SystemExit("soak: enqueue failed")

    def start(self):
        log = open(self.path("worker.log"), "ab")
        p = subprocess.Popen([self.pawl, "work", "--until-empty"], cwd=self.dir, stdout=log,
                             stderr=log, start_new_session=True)
        log.close()
        return p

    def tree(self, pid):
        """The process and its descendants, found through /proc."""
        kids, todo = [], [pid]
        while todo:
            at = todo.pop()
            kids.append(at)
            try:
                for t in os.listdir(f"/proc/{at}/task"):
                    with open(f"/proc/{at}/task/{t}/children") as f:
                        todo += [int(x) for x in f.read().split()]
            except OSError:
                pass
        return kids

    def kill_all(self):
        pids = [q for w in self.workers for q in self.tree(w.pid)]
        self.rng.shuffle(pids)
        for q in pids:
            try:
                os.kill(q, signal.SIGKILL)
            except ProcessLookupError:
                pass
        for w in self.workers:
            w.wait()
        self.kills += 1

    def drain(self):
        deadline = time.monotonic() + 120
        planned = self.rng.randint(3, 8)
        while True:
            self.workers = [self.start(), self.start()]
            if self.kills < planned:
                wait = 10 ** self.rng.uniform(-2.3, -0.6)  # 5 ms .. 250 ms
                end = time.monotonic() + wait
                while time.monotonic() < end and any(w.poll() is None for w in self.workers):
                    time.sleep(0.001)
                if any(w.poll() is None for w in self.workers):
                    self.kill_all()
                    continue
            for w in self.workers:
                if w.wait(max(1, deadline - time.monotonic())) != 0:
                    raise SystemExit(f"soak: worker ended with {w.returncode}, see {self.dir}")
            return

    def judge(self):
        faults = []
        db = sqlite3.connect(f"file:{self.path('soak.db')}?mode=ro", uri=True)
        poison = [r[0] for r in db.execute("SELECT id FROM pawl_jobs WHERE state = 'dead'"
                                           " AND dead_class = 'poison' AND replayed_as IS NULL")]
        db.close()
        if poison:
            self.poison = len(poison)
            if self.cli("dead", "replay", *map(str, poison)).returncode != 0:
                faults.append("replay of poison failed")
            self.workers = [self.start()]
            self.workers[0].wait(60)
        db = sqlite3.connect(f"file:{self.path('soak.db')}?mode=ro", uri=True)
        n, distinct = db.execute("SELECT count(*), count(DISTINCT key) FROM fx").fetchone()
        left = db.execute("SELECT state, count(*) FROM pawl_jobs WHERE state <> 'done'"
                          " AND replayed_as IS NULL GROUP BY 1").fetchall()
        child = db.execute("SELECT count(*) FROM pawl_jobs WHERE task = 'child'"
                           " AND state = 'done'").fetchone()[0]
        db.close()
        if distinct != self.jobs:
            faults.append(f"lost: {self.jobs - distinct} effects")
        if n != distinct:
            faults.append(f"doubled: {n - distinct} effects")
        if left:
            faults.append(f"not done: {left}")
        if child != self.exec_jobs:
            faults.append(f"child jobs done: {child} of {self.exec_jobs}")
        check = self.cli("check")
        if check.returncode != 0:
            faults.append("check: " + check.stdout.strip() + check.stderr.strip())
        return faults


def main():
    ap = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    ap.add_argument("--runs", type=int, default=200)
    ap.add_argument("--jobs", type=int, default=2000)
    ap.add_argument("--exec-jobs", type=int, default=60)
    ap.add_argument("--seed", type=int, default=int(time.time()))
    ap.add_argument("--pawl", default=os.environ.get("PAWL_BIN", "pawl"))
    a = ap.parse_args()
    pawl = os.path.abspath(a.pawl) if os.sep in a.pawl else a.pawl
    kills = producer = poison = failed = 0
    begun = time.monotonic()
    print(f"soak: {a.runs} runs of {a.jobs} effects and {a.exec_jobs} children, seed {a.seed}",
          flush=True)
    for i in range(a.runs):
        run = Run(pawl, random.Random(a.seed * 1000 + i), a.jobs, a.exec_jobs)
        run.prepare()
        run.produce()
        run.drain()
        faults = run.judge()
        kills += run.kills
        producer += run.producer_kills
        poison += run.poison
        if faults:
            failed += 1
            print(f"run {i} (seed {a.seed}): {'; '.join(faults)}; kept: {run.dir}", flush=True)
        else:
            shutil.rmtree(run.dir)
        if sys.stdout.isatty():
            print(f"\r{i + 1}/{a.runs} runs, {kills} kills", end="", flush=True)
        elif (i + 1) % 20 == 0:
            print(f"{i + 1}/{a.runs} runs, {kills} kills of everything, {failed} faulty",
                  flush=True)
    print(f"\nsoak: {a.runs} runs, {kills} kills of everything, {producer} producers killed,"
          f" {poison} jobs ended poison and were replayed, {time.monotonic() - begun:.0f} s")
    print(f"{a.runs - failed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
