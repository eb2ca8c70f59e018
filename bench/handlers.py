# SPDX-License-Identifier: Apache-2.0
"""handlers.py - C handlers: a worker inside a program, and what a crash in a plugin costs."""
import json
import os
import time

from kit import Failed, Store, Worker, median, sized

MODES = [  # name, title, mode, jobs a commit, what bounds it, bar
    ("effect", "effect mode in C", "effect", 0, "R", 0.30),
    ("leased", "leased mode in C, 100 a commit", "leased", 100, "R", 0.30),
    ("life", "whole life in C, 100 a commit", "life", 100, "R", 0.20),
    ("single", "effect mode in C, one job a commit", "effect", 1, "F", 0.55),
]
CONF = """[pawl]
db = %(db)s
runners = 1

[task effects]
c = %(plugin)s:in_transaction

[task prepared]
c = %(plugin)s:outside
"""


def measure(tools, report, o):
    """Each mode between two looks at what bounds it."""
    repeats, many, few = sized(o, (5, 40000, 3000), (3, 15000, 500), (1, 1000, 20))
    got = {name: [] for name, *_ in MODES}
    rates = {name: [] for name, *_ in MODES}
    cpu = {name: [] for name, *_ in MODES}
    for i in range(repeats):
        store = Store(tools, "handlers%d" % i)
        raw = Store(tools, "handlers-raw%d" % i)
        held = [store.hold(), raw.hold()]

        def bound(of):
            if of == "F":
                return raw.flushes(sized(o, 500, 200, 20))["per_s"]
            return raw.raw(many)["per_s"]

        for name, _, mode, batch, of, _ in MODES:
            n = few if of == "F" else many
            before = bound(of)
            own = tools.ask("handlers", mode, store.db, store.next, n, batch)
            store.next += n
            rates[name].append(own["per_s"])
            cpu[name].append(own["cpu_us"])
            got[name].append(own["per_s"] / ((before + bound(of)) / 2))
        for db in held:
            db.close()
        store.remove()
        raw.remove()
    report.title("C handlers in a program's own worker (%d jobs, medians of %d turns)"
                 % (many, repeats))
    for name, title, _, _, of, bar in MODES:
        ratio = median(got[name])
        report.add(title, median(rates[name]), "/s", ratio, of, ">= %.2f %s" % (bar, of),
                   ratio >= bar, "%.1f us of CPU a job" % median(cpu[name]))
    measure_crash(tools, report, o)


def measure_crash(tools, report, o):
    """A job kills its runner at its first attempt: from there to the start of its second."""
    repeats = sized(o, 15, 5, 1)
    plugin = os.path.join(tools.dir, "crash.so")
    store = Store(tools, "crash")
    with open(store.conf, "w") as f:
        f.write(CONF % {"db": store.db, "plugin": plugin})
    took = {"effects": [], "prepared": []}
    for _ in range(repeats):
        for task in took:
            with Worker(store):  # a runner that dies again and again is started ever later
                store.sql("INSERT INTO pawl_enqueue(task, args) VALUES (?, ?)", task,
                          json.dumps({"dir": store.dir}))
                took[task].append(recovery_ms(store, task))
    store.remove()
    for task, title in (("effects", "a crash in effect mode, to its next start, p50"),
                        ("prepared", "a crash in prepared mode, to its next start, p50")):
        report.add(title, median(took[task]), "ms", note="a new runner, the plugin loaded again")


def recovery_ms(store, task):
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        row = store.sql("SELECT j.id, j.started_at_us FROM pawl_jobs j WHERE j.task = ?"
                        " ORDER BY j.id DESC LIMIT 1", task)[0]
        died = store.sql("SELECT started_at_us FROM pawl_attempts WHERE job_id = ? AND"
                         " outcome = 'lost'", row[0])
        done = store.sql("SELECT started_at_us FROM pawl_jobs WHERE id = ? AND state = 'done'",
                         row[0])
        if done and died:
            return (done[0][0] - told(store, row[0])) / 1000
        time.sleep(0.02)  # until the deadline
    raise Failed("the job did not come back within 30 s: see work.log")


def told(store, job):
    """When it died, by its own last word (microseconds of the wall clock)."""
    with open(os.path.join(store.dir, "died-%d" % job)) as f:
        return int(f.read())
