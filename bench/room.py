# SPDX-License-Identifier: Apache-2.0
"""room.py - memory, CPU of an idle worker, and whether a long queue makes anything slower."""
import time

from kit import Store, Worker, cpu_s, median, memory_mib, sized

MILLION = 1000000


def sizes(worker):
    return [memory_mib(pid) for pid in worker.pids()]


def measure_idle(tools, report, o):
    seconds = sized(o, 10, 4, 0.2)
    store = Store(tools, "idle")
    with Worker(store) as worker:
        time.sleep(1)  # let it come to rest
        pids = worker.pids()
        before = [cpu_s(pid) for pid in pids]
        time.sleep(seconds)
        used = [cpu_s(pid) - b for pid, b in zip(pids, before)]
        memory = sizes(worker)
    store.remove()
    report.title("An idle worker")
    for name, cpu in zip(("supervisor", "runner"), used):
        report.add("CPU of the %s over %g s" % (name, seconds), cpu * 100 / seconds, "%",
                   bar="<= 0.2 %", ok=cpu / seconds <= 0.002)
    for name, (rss, pss) in zip(("supervisor", "runner"), memory):
        report.add("memory of the %s" % name, rss, "MiB RSS", note="%.1f MiB PSS" % pss,
                   bar="<= 12 MiB" if name == "supervisor" else None,
                   ok=rss <= 12 if name == "supervisor" else None)


def drain_some(store, want):
    """Let a worker do at least `want` jobs and stop it: (jobs a second of these, memory)."""
    last = store.last_done()
    with Worker(store) as worker:
        memory = None
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            memory = sizes(worker)
            if store.last_done() - last >= want:
                break
            time.sleep(0.01)  # until the deadline
    first, end = store.sql("SELECT min(started_at_us), max(ended_at_us) FROM pawl_x_done"
                           " WHERE job_id > ? AND job_id <= ?", last, last + want)[0]
    return want * 1e6 / (end - first), memory


def turn(tools, store, part, one):
    """What a store does now: jobs a second of each kind, and the memory of the worker at work."""
    path = store.lines("effect", part)
    seconds, _ = store.bulk(path)
    e = tools.ask("enqueue", store.db, "later", store.next, one, "keyed", 0)
    store.next += one
    effect, memory = drain_some(store, part)
    return {"effect": effect, "enqueue": e["per_s"], "bulk": part / seconds}, memory


def queued(tools, name, n):
    store = Store(tools, name)
    store.fill(n)
    store.held = store.hold()
    return store


def measure_depth(tools, report, o):
    n, part, one, repeats = sized(o, (MILLION, 20000, 1000, 9), (200000, 10000, 200, 7),
                                  (2000, 200, 10, 1))
    deep, flat = queued(tools, "deep", n), queued(tools, "flat", 10000)
    ratios = {"effect": [], "enqueue": [], "bulk": []}
    values = {"effect": [], "enqueue": [], "bulk": []}
    memory = None
    for i in range(repeats):
        got = {}
        for store in (flat, deep) if i % 2 == 0 else (deep, flat):
            got[store], memory_now = turn(tools, store, part, one)
            memory = memory_now if store is deep else memory
        for name in ratios:
            ratios[name].append(got[deep][name] / got[flat][name])
            values[name].append(got[deep][name])
    for store in (deep, flat):
        store.held.close()
        store.remove()
    report.title("A long queue (%d queued against 10000; medians of %d turns)" % (n, repeats))
    for name, title in (("effect", "effect mode"), ("enqueue", "enqueue, one a call, keyed"),
                        ("bulk", "enqueue --bulk")):
        ratio = median(ratios[name])
        report.add("%s, long queue" % title, median(values[name]), "/s", ratio, "short", ">= 0.85",
                   ratio >= 0.85)
    for name, (rss, pss) in zip(("supervisor", "runner"), memory):
        report.add("memory of the %s, at work, long queue" % name, rss, "MiB RSS",
                   note="%.1f MiB PSS" % pss, bar="<= 12 MiB" if name == "supervisor" else None,
                   ok=rss <= 12 if name == "supervisor" else None)
