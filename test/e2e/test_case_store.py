#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""test_case_store.py - field cases about the SQLite file: memory, locks, log, syncs, growth.

2 68 69 70 73. Sizes are scaled down; the bounds are those of the case file.
"""
import os
import re
import resource
import shutil
import sqlite3
import subprocess
import threading
import time
import unittest

from fieldkit import FieldTest, is_sanitized, memory_kib, uptime
from pawltest import PAWL, SLOW
from stores import each_store, sqlite_alone

TIMEOUT = 150
SERIAL = True  # it looks at sizes and waits that a busy neighbour changes
BOTH_LINKS = True
MIB = 1 << 20


@each_store
class Backlog(FieldTest):
    def case_02_backlog_of_delayed_jobs_costs_no_memory(self):
        many = 200000
        lines = b"".join(b'{"task":"effect","args":{"value":%d},"in":"24h"}\n' % i
                         for i in range(many))
        self.ok("enqueue", "--bulk", "-", stdin=lines, timeout=120)
        for i in range(3):
            self.bulk({"task": "effect" if n % 4 else "act", "args": {} if n % 4 else "ok"}
                      for n in range(100))
            began = uptime()
            worker = self.limited_worker()
            self.wait_log(worker, "event=worker.ready")
            runner = re.search(r"event=runner.ready .*pid=(\d+)", self.log(worker)).group(1)
            pids = [worker.pid, int(runner)]
            before = [memory_kib(p, "VmRSS") for p in pids]
            self.wait_until(lambda n=i: self.count_done() == 100 * (n + 1), 30, "the 100 are done")
            self.assertLess(uptime() - began, 2 + 2 * SLOW)
            grown = [memory_kib(p, "VmHWM") - b for p, b in zip(pids, before)]
            if not is_sanitized():
                self.assertLess(max(grown), 10 * 1024, grown)
            self.assertEqual(self.stop_worker(worker), 0)
        queue = {q["queue"]: q for q in self.json("queues")}["default"]
        self.assertEqual((queue["later"], queue["running"]), (many, 0))
        self.ok("run-now", str(many))           # and any other worker sees them
        self.work()
        self.assertEqual(self.job(str(many))["state"], "done")

    def count_done(self):
        return self.sql("SELECT count(*) FROM pawl_x_done")[0][0]

    def limited_worker(self):
        """Under a limit of 256 MiB of address space."""
        if is_sanitized():
            return self.start_worker()
        old = resource.getrlimit(resource.RLIMIT_AS)
        popen = subprocess.Popen

        def limited(*words, **more):
            return popen(*words, preexec_fn=lambda: resource.setrlimit(
                resource.RLIMIT_AS, (256 * MIB, old[1])), **more)
        subprocess.Popen = limited
        try:
            return self.start_worker()
        finally:
            subprocess.Popen = popen


READS = """
[task reads-first]
sql = SELECT max(x) FROM
      (WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c WHERE x < 6000000)
       SELECT x FROM c) AS t
sql = INSERT INTO fx(job_id, attempt, key) VALUES (:job_id, :job_attempt, :job_key)
"""


@each_store
class Locks(FieldTest):
    more = READS

    def case_68_nobody_meets_a_lock_error(self):
        """Producers, workers, a slow reader that writes at last, a user's own long transaction."""
        workers = [self.worker() for _ in range(2)]
        end = time.monotonic() + 8
        accepted, trouble = [], []

        def produce(n):
            i = 0
            while time.monotonic() < end:
                task = "reads-first" if (n, i) == (0, 0) else "act" if i % 5 == 4 else "effect"
                done = self.pawl("enqueue", task, '"ok"' if task == "act" else "{}",
                                 "--key", "%d-%d" % (n, i))
                if done.code == 0:
                    accepted.append(done.out.strip())
                else:
                    trouble.append(str(done))
                i += 1

        def look():
            while time.monotonic() < end:
                for verb in ("stats", "queues", "jobs"):
                    done = self.pawl(verb)
                    if done.code != 0:
                        trouble.append(str(done))

        def user():
            for _ in range(2):
                db = self.store.connect()
                self.store.keep_out(db)
                db.execute("INSERT INTO fx(key) VALUES ('user')")
                time.sleep(2)                   # the user thinks: that is the load
                db.execute("COMMIT")
                db.close()
        threads = [threading.Thread(target=produce, args=(n,)) for n in range(5)]
        threads += [threading.Thread(target=look), threading.Thread(target=user)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        self.assertEqual(trouble, [])
        self.assertGreater(len(accepted), 4)  # else this run proved nothing
        self.wait_until(lambda: self.count("done") == len(accepted), 40,
                        "all accepted jobs are done")
        for worker in workers:
            self.assertEqual(self.stop_worker(worker), 0)
            # A supervisor that waited long says so (store.trouble), tries again: no job meets it.
            self.assertNotRegex(self.log(worker), r"SQLITE_BUSY|event=job\.(retry|dead)")
        ids = [row[0] for row in self.sql("SELECT id FROM pawl_jobs WHERE task <> 'act'")]
        effects = [row[0] for row in self.fx()]
        self.assertEqual(effects.count(None), 2)            # the user's own
        self.assertEqual(sorted(e for e in effects if e is not None), sorted(ids))
        self.assertEqual(self.sql("SELECT count(*) FROM pawl_jobs"), [(len(accepted),)])


PAD = """
[task pad]
sql = INSERT INTO fx(job_id, value) VALUES (:job_id, zeroblob(20000))
"""


@sqlite_alone
class Log(FieldTest):
    more = PAD

    def wal(self):
        try:
            return os.stat(self.db + "-wal").st_size
        except FileNotFoundError:
            return 0

    def pads(self, n):
        self.bulk([{"task": "pad", "args": {}}] * n)

    def case_69_our_own_processes_never_pin_the_log(self):
        """Flat out, while people look: lists and counts in a loop, and one who does not read on."""
        self.pads(5000)
        stop, most, trouble = threading.Event(), [0], []
        stuck = subprocess.Popen([PAWL, "jobs", "--limit", "0"], cwd=self.dir, env=self.env(),
                                 stdout=subprocess.PIPE)    # 5,000 lines into a pipe of 64 KiB
        self.addCleanup(stuck.stdout.close)
        self.addCleanup(stuck.kill)

        def look():
            while not stop.is_set():
                for words in (["jobs", "--limit", "0"], ["stats"], ["queues"], ["dead", "list"]):
                    done = self.pawl(*words)
                    if done.code != 0:
                        trouble.append(str(done))
                    most[0] = max(most[0], self.wal())
        thread = threading.Thread(target=look)
        thread.start()
        try:
            self.work()
        finally:
            stop.set()
            thread.join()
        self.assertEqual(trouble, [])
        self.assertLess(max(most[0], self.wal()), 64 * MIB)
        self.assertIsNone(stuck.poll(), "it was not stuck: this run proved less")
        self.assertEqual(len(stuck.communicate(timeout=30)[0].splitlines()), 5000)
        self.assertEqual(len(self.fx()), 5000)

    def case_69_foreign_reader_pins_the_log_with_a_warning_and_it_shrinks_afterwards(self):
        reader = self.connect()
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM fx").fetchone()
        worker = self.worker()
        self.pads(4500)
        self.wait_until(lambda: self.count("done") == 4500, 40, "jobs go on")
        self.assertGreater(self.wal(), 64 * MIB, "the log was not pinned: this run proved nothing")
        self.wait_log(worker, "event=store.wal_pinned", 10)
        self.assertRegex(self.log(worker),
                         r"event=store.wal_pinned bytes=\d+ why=\".*read transaction")
        reader.execute("ROLLBACK")              # and nothing else happens: the worker is idle
        self.wait_until(lambda: self.wal() < 64 * MIB, 60, "the log is back under the limit")
        self.assertEqual(self.stop_worker(worker), 0)
        self.assertEqual(self.log(worker).count("event=store.wal_pinned"), 1)


@sqlite_alone
class Sync(FieldTest):
    def case_70_answer_of_an_enqueue_comes_after_the_sync_of_the_log(self):
        strace = shutil.which("strace")
        if not strace:
            self.skipTest("strace is not installed")
        out = os.path.join(self.dir, "trace")
        words = [strace, "-f", "-y", "-o", out,
                 "-e", "trace=write,pwrite64,fsync,fdatasync,sync_file_range"]
        done = subprocess.run(words + ["true"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        if done.returncode != 0:
            self.skipTest("ptrace is not possible here: " + done.stdout.decode()[-100:])
        keeper = self.connect()                 # else the last one to leave would sync anyway
        keeper.execute("SELECT count(*) FROM fx").fetchone()
        env = self.env(ASAN_OPTIONS="detect_leaks=0")   # leaks cannot be looked for under ptrace
        done = subprocess.run(words + [PAWL, "enqueue", "effect", "{}"], cwd=self.dir, env=env,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.assertEqual((done.returncode, done.stdout), (0, b"1\n"), done)
        events = []
        with open(out, encoding="utf-8", errors="replace") as f:
            for line in f:
                call = re.match(r"\d+ +(\w+)\((\d+)<([^>]*)>", line)
                if not call:
                    continue
                name, fd, path = call.groups()
                if path.endswith("-wal"):
                    synced = "sync" in name and line.rstrip().endswith("= 0")
                    events.append("sync" if synced else "log")
                elif fd == "1":
                    events.append("answer")
        self.assertEqual(events.count("answer"), 1, events)
        before = events[:events.index("answer")]
        self.assertIn("log", before)
        self.assertEqual(before[-1], "sync", "the log was written after its last sync")
        self.assertNotIn("log", before[len(before) - before[::-1].index("sync"):])


RETRY = """
[task never]
sql = INSERT INTO fx(job_id) SELECT :job_id WHERE 1 = 0
zero_rows = retry
backoff = 1ms..2ms
max_retries = 120

[task bury]
sql = INSERT INTO fx(job_id) SELECT :job_id WHERE 1 = 0
zero_rows = fail
"""


@each_store
class Growth(FieldTest):
    more = RETRY

    def size(self):
        """Bytes of the file, or of Pawl's tables after what autovacuum will do."""
        if self.store.can("file"):
            return os.stat(self.db).st_size
        db = self.connect()
        for table, in db.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'pawl'"
                                 " ORDER BY 1").fetchall():
            db.execute("VACUUM pawl." + table)
        return db.execute("SELECT sum(pg_total_relation_size(c.oid)) FROM pg_class c WHERE"
                          " relnamespace = 'pawl'::regnamespace AND relkind = 'r'").fetchone()[0]

    def case_73_file_stays_flat_beside_an_old_dead_job(self):
        dead = self.enqueue("bury")
        self.work()
        sizes = []
        for _ in range(5):
            self.bulk([{"task": "effect", "args": {}}] * 4000)
            self.work()
            self.sql("DELETE FROM fx")
            pruned = self.json("prune", "--done-older", "0", "--keys-older", "0")[0]
            self.assertEqual(pruned["jobs"], 4000)
            sizes.append(self.size())
        self.assertEqual(self.job(dead)["state"], "dead")
        self.assertLess(max(sizes[1:]), 1.2 * sizes[1], sizes)

    def case_73_endless_retries_keep_a_bounded_history(self):
        self.bulk([{"task": "never", "args": {}}] * 100)
        self.work(timeout=90)
        rows = self.sql("SELECT j.failures, j.dead_class, count(*), min(a.n), max(a.n)"
                        " FROM pawl_jobs j JOIN pawl_attempts a ON a.job_id = j.id"
                        " GROUP BY j.id, j.failures, j.dead_class")
        self.assertEqual(set(rows), {(121, "exhausted", 50, 72, 121)})
        self.assertEqual(len(rows), 100)
        self.assertLess(self.size(), 100 * 50 * 1024)


if __name__ == "__main__":
    unittest.main()
