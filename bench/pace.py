# SPDX-License-Identifier: Apache-2.0
"""pace.py - Pawl drains flat out while another program writes the same database: who waits?"""
import json
import os
import subprocess
import sys
import time

from kit import Failed, HERE, Store, Worker, median, percentile

RATE = 30          # writes a second of the foreign program
PAUSE_S = 1.5      # of silence before a burst


class Foreign:
    """The foreign program, running beside us."""

    def __init__(self, store, n, burst):
        self.child = subprocess.Popen(
            [sys.executable, "-B", os.path.join(HERE, "foreign.py"), store.db, str(RATE), str(n),
             str(burst), str(PAUSE_S)], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)

    def answer(self):
        out, _ = self.child.communicate(timeout=900)
        if self.child.returncode != 0:
            raise Failed("the foreign program ended with %d" % self.child.returncode)
        return json.loads(out)

    def running(self):
        return self.child.poll() is None


def top_up(store, want):
    """Bring the queue to `want` jobs."""
    left = store.sql("SELECT (SELECT coalesce(max(id), 0) FROM pawl_x_job) -"
                     " (SELECT coalesce(max(job_id), 0) FROM pawl_x_done)")[0][0]
    if left < want:
        store.fill(want - left)


def window(store, binary, seconds, with_foreign):
    """Jobs a second in a window of a worker's life, and the foreign program's answer."""
    last = store.last_done()
    heard = None
    with Worker(store, binary):
        if with_foreign:
            n = int(seconds * RATE)
            heard = Foreign(store, n, n).answer()
        else:
            time.sleep(seconds)  # the window itself
    skip = int((PAUSE_S if with_foreign else 0.2) * 1e6)
    _, rate = store.rate_since(last, skip, int((seconds - 0.3) * 1e6))
    return rate, heard


def slowdown(tools, report, o):
    """What the gaps cost: with nobody there to use them, and with somebody."""
    repeats, seconds, queue = (2, 1.2, 250000) if o.quick else (3, 2.5, 700000)
    store = Store(tools, "pace")
    got = {"none": [], "alone": [], "shared": []}
    busy = 0
    for i in range(repeats):
        turns = [("none", tools.nogap, False), ("alone", None, False), ("shared", None, True)]
        for name, binary, foreign in turns if i % 2 == 0 else turns[::-1]:
            top_up(store, queue)
            rate, heard = window(store, binary, seconds, foreign)
            got[name].append(rate)
            busy += heard["busy"] if heard else 0
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
    return busy


def waits(tools, report, o, busy):
    """The foreign program's own waits, in bursts, while the queue never runs dry."""
    n = o.writes or (160 if o.quick else 1200)
    burst = 20 if o.quick else 60
    low, high = (100000, 250000) if o.quick else (300000, 700000)
    store = Store(tools, "waits")
    top_up(store, high)
    with Worker(store):
        foreign = Foreign(store, n, burst)
        while foreign.running():
            done, = store.sql("SELECT coalesce(max(job_id), 0) FROM pawl_x_done")[0]
            if store.next - done < low:
                store.fill(high - low)
            time.sleep(0.1)  # while it runs
        heard = foreign.answer()
    store.remove()
    first, later = heard["first_ms"], heard["later_ms"]
    p99 = percentile(later, 99)
    busy += heard["busy"]
    report.add("SQLITE_BUSY in %d foreign writes" % n, busy, "writes", bar="0", ok=busy == 0,
               note="busy_timeout 5 s; the bar is for 10000: --writes 10000")
    report.add("first write of a burst, p50", median(first), "ms", note="%d bursts" % len(first))
    report.add("first write of a burst, max", max(first), "ms", bar="<= 1000 ms",
               ok=max(first) <= 1000)
    report.add("later writes, p50", median(later), "ms")
    report.add("later writes, p99", p99, "ms", bar="<= 50 ms", ok=p99 <= 50)
    report.add("later writes, max", max(later), "ms")


def measure(tools, report, o):
    busy = slowdown(tools, report, o)
    waits(tools, report, o, busy)
