# SPDX-License-Identifier: Apache-2.0
"""latency.py - how soon does an idle worker start a job, enqueued by another process?"""
import os
import random
import time

from kit import Store, Worker, median, percentile, sized


def wait_done(store, n, limit_s=20):
    deadline = time.monotonic() + limit_s
    while time.monotonic() < deadline:
        if store.sql("SELECT count(*) FROM pawl_x_done")[0][0] >= n:
            return
        time.sleep(0.05)  # until the deadline: nothing to be measured waits for it


def calls(text):
    """What the program enqueue printed: {job: (before the call, after it)}, monotonic."""
    rows = [line.split() for line in text.splitlines()[:-1]]
    return {int(job): (int(before), int(after)) for job, before, after in rows}


def sql_ms(tools, name, rate, n):
    """Enqueued by another pawl process at `rate` a second: from before the call and from its return
    to the start that the job's row names."""
    store = Store(tools, name)
    wall = int((time.time() - time.monotonic()) * 1e6)
    with Worker(store):
        out = tools.run(os.path.join(tools.dir, "enqueue"), store.db, "effect", 0, n, "keyless",
                        rate)
        wait_done(store, n)
    called = calls(out)
    rows = store.sql("SELECT id, started_at_us FROM pawl_jobs WHERE state = 'done'")
    store.remove()
    return [((at - wall - called[job][0]) / 1000, (at - wall - called[job][1]) / 1000)
            for job, at in rows]


def exec_ms(tools, name, rate, n):
    """The same for a program, to its own first line."""
    store = Store(tools, name)
    with Worker(store):
        out = tools.run(os.path.join(tools.dir, "enqueue"), store.db, "stamp", 0, n, "keyless",
                        rate)
        wait_done(store, n)
    called = calls(out)
    with open(store.stamps) as f:
        stamps = [line.split() for line in f]
    store.remove()
    return [tuple((int(at) - then) / 1000 for then in called[int(job)]) for job, at in stamps]


def foreign_ms(tools, name, n):
    """Enqueued by a program of its own SQLite through the view pawl_enqueue: commit to start."""
    store = Store(tools, name)
    rng = random.Random(5)
    late = []
    with Worker(store):
        db = store.connect()
        for i in range(n):
            time.sleep(rng.uniform(0.08, 0.24))  # arrivals at any phase of a poll
            db.execute("BEGIN IMMEDIATE")
            db.execute("INSERT INTO pawl_enqueue(task, args) VALUES ('effect', ?)",
                       ('{"key":"f-%d","n":1}' % i,))
            job = db.execute("SELECT id FROM pawl_last").fetchone()[0]
            db.execute("COMMIT")
            late.append((job, time.time() * 1e6))
        db.close()
        wait_done(store, n)
    started = dict(store.sql("SELECT id, started_at_us FROM pawl_jobs WHERE state = 'done'"))
    store.remove()
    return [(started[job] - at) / 1000 for job, at in late]


def measure(tools, report, o):
    repeats, n, foreign_n = sized(o, (3, 200, 40), (1, 100, 15), (1, 10, 2))
    sql, program = [], []
    for i in range(repeats):
        sql += sql_ms(tools, "sql%d" % i, 50, n)
        program += exec_ms(tools, "stamp%d" % i, 50, n)
    foreign = foreign_ms(tools, "foreign", foreign_n) if tools.engine.name == "sqlite" else None
    report.title("Latency of an idle worker (50 jobs a second from another process)")
    whole, woken = [w for w, _ in sql], [w for _, w in sql]
    p50 = median(whole)
    report.add("sql task, enqueue to start, p50", p50, "ms", bar="<= 2 ms", ok=p50 <= 2,
               note="%d jobs; the job's own commit takes %.2f ms of it" %
               (len(sql), median([a - b for a, b in sql])))
    report.add("sql task, enqueue to start, p99", percentile(whole, 99), "ms")
    report.add("   of it: enqueued to start, p50", median(woken), "ms")
    report.add("   of it: enqueued to start, p99", percentile(woken, 99), "ms")
    whole, woken = [w for w, _ in program], [w for _, w in program]
    report.add("exec task, enqueue to its first line, p50", median(whole), "ms",
               note="two commits and a spawn are in it")
    report.add("exec task, enqueue to its first line, p99", percentile(whole, 99), "ms")
    p50 = median(woken)
    report.add("   of it: enqueued to first line, p50", p50, "ms", bar="<= 5 ms", ok=p50 <= 5,
               note="the claim's commit and a spawn are in it")
    if foreign is None:
        return
    p50 = median(foreign)
    report.add("enqueued by plain SQL, commit to start, p50", p50, "ms", bar="<= 250 ms",
               ok=p50 <= 250)
    report.add("enqueued by plain SQL, commit to start, max", max(foreign), "ms")
