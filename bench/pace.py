# SPDX-License-Identifier: Apache-2.0
"""pace.py - Pawl drains flat out while another program writes the same database: who waits?"""
import json
import os
import subprocess
import sys
import time

from kit import Failed, HERE, Store, Worker, median, percentile, sized

RATE = 30          # writes a second of the foreign program
PAUSE_S = 1.5      # of silence before a burst: Pawl forgets it after one


class Foreign:
    """The foreign program, running beside us."""

    def __init__(self, store, n, burst, pause_s):
        self.child = subprocess.Popen(
            [sys.executable, "-B", os.path.join(HERE, "foreign.py"), store.db, str(RATE), str(n),
             str(burst), str(pause_s)], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)

    def answer(self):
        out, _ = self.child.communicate(timeout=900)
        if self.child.returncode != 0:
            raise Failed("the foreign program ended with %d" % self.child.returncode)
        return json.loads(out)

    def running(self):
        return self.child.poll() is None


def left(store):
    return store.sql("SELECT (SELECT coalesce(max(id), 0) FROM pawl_x_job) -"
                     " (SELECT coalesce(max(job_id), 0) FROM pawl_x_done)")[0][0]


def window(store, binary, seconds, with_foreign):
    """Jobs a second in a window of a worker's life, and the foreign program's answer."""
    last = store.last_done()
    heard = None
    with Worker(store, binary):
        if with_foreign:
            n = int((seconds + 0.3) * RATE)
            heard = Foreign(store, n, n, 0).answer()
        else:
            time.sleep(seconds + 0.1)  # the window itself
    _, rate = store.rate_since(last, int(0.3e6 if with_foreign else 0.1e6), int(seconds * 1e6))
    return rate, heard


def slowdown(tools, report, o):
    """What the gaps cost: with nobody there to use them, and with somebody."""
    repeats, seconds, queue = sized(o, (5, 0.9, 900000), (3, 0.5, 400000), (1, 0.6, 60000))
    store = Store(tools, "pace")
    store.fill(queue)
    got = {"none": [], "alone": [], "shared": []}
    waits = {"busy": 0, "first_ms": [], "later_ms": []}
    forgotten = 0
    turns = [("none", tools.nogap, False), ("alone", None, False), ("shared", None, True)]
    for i in range(repeats):
        for name, binary, foreign in turns if i % 2 == 0 else turns[::-1]:
            if left(store) < queue // 3:
                store.fill(queue // 2)
            if time.monotonic() < forgotten:
                time.sleep(forgotten - time.monotonic())  # else Pawl still makes room for it
            rate, heard = window(store, binary, seconds, foreign)
            got[name].append(rate)
            if heard:
                forgotten = time.monotonic() + 1.1
                waits["busy"] += heard["busy"]
                waits["later_ms"] += heard["later_ms"]
    store.remove()
    alone = median([a / n for a, n in zip(got["alone"], got["none"])])
    shared = median([s / n for s, n in zip(got["shared"], got["none"])])
    report.title("Beside a foreign program (%d writes a second; medians of %d turns)" %
                 (RATE, repeats))
    report.add("effect mode without any gap", median(got["none"]), "/s", note="not for use")
    report.add("effect mode, nobody else there", median(got["alone"]), "/s", alone, "gapless",
               ">= 0.85 gapless", alone >= 0.85)
    report.add("effect mode, foreign writes seen", median(got["shared"]), "/s", shared, "gapless",
               ">= 0.50 gapless", shared >= 0.5)
    return waits


def bursts(tools, o):
    """The foreign program's own waits: with nobody else there, then in bursts beside Pawl. Jobs are
    slower ones, so that the queue does not run dry: the lock is held just as much."""
    n, burst = sized(o, (1200, 40), (90, 15), (6, 3))
    n = o.writes or n
    store = Store(tools, "waits")
    control = Foreign(store, n // 10 + 30, n, 0).answer()["later_ms"]
    store.fill(40000, "busy")
    with Worker(store):
        foreign = Foreign(store, n, burst, PAUSE_S)
        while foreign.running():
            if left(store) < 20000:
                store.fill(20000, "busy")
            time.sleep(0.1)  # while it runs
        heard = foreign.answer()
    store.remove()
    return heard, control


def enqueue_ms(tools, o):
    """How long pawl_enqueue takes in another pawl process while the worker drains flat out."""
    n = sized(o, 300, 100, 10)
    store = Store(tools, "beside")
    store.fill(sized(o, 60000, 40000, 3000), "busy")
    with Worker(store):
        out = tools.run(os.path.join(tools.dir, "enqueue"), store.db, "later", store.next, n,
                        "keyless", 50)
    store.remove()
    rows = [line.split() for line in out.splitlines()[:-1]]
    return [(int(after) - int(before)) / 1000 for _, before, after in rows]


def measure(tools, report, o):
    waits = slowdown(tools, report, o)
    heard, control = bursts(tools, o)
    for name in waits:
        waits[name] += heard[name]
    first, later = waits["first_ms"], waits["later_ms"]
    p99 = percentile(later, 99)
    report.add("SQLITE_BUSY in %d foreign writes" % (len(first) + len(later)), waits["busy"],
               "writes", bar="0", ok=waits["busy"] == 0,
               note="busy_timeout 5 s; the bar is for 10000: --writes 10000")
    report.add("first write of a burst, p50", median(first), "ms", note="%d bursts" % len(first))
    report.add("first write of a burst, max", max(first), "ms", bar="<= 1000 ms",
               ok=max(first) <= 1000)
    report.add("later writes, p50", median(later), "ms")
    report.add("later writes, p99", p99, "ms", bar="<= 50 ms", ok=p99 <= 50,
               note="%.1f ms without Pawl: what disk and machine add" % percentile(control, 99))
    report.add("later writes, max", max(later), "ms", note="%.1f ms without Pawl" % max(control))
    ours = enqueue_ms(tools, o)
    report.add("pawl enqueue beside the drain, p50", median(ours), "ms",
               note="50 a second, from another process")
    report.add("pawl enqueue beside the drain, p99", percentile(ours, 99), "ms")
