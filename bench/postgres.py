# SPDX-License-Identifier: Apache-2.0
"""postgres.py - what only PostgreSQL is asked: its bounds, wake-ups, a snapshot held for long."""
from kit import Store, median, sized

# name, title, mode, jobs a commit, what bounds it, bar
MODES = [
    ("effect", "effect mode in C", "effect", 0, "R", 0.25),
    ("effect64", "effect mode in C, 64 a commit", "effect", 64, "R", 0.15),
    ("leased", "leased mode in C, 100 a commit", "leased", 100, "R", 0.30),
    ("life", "whole life in C, 100 a commit", "life", 100, "R", 0.20),
    ("single", "effect mode in C, one job a commit", "effect", 1, "S", 0.25),
]
CROWD = 16


def measure(tools, report, o):
    """Each mode between two looks at what bounds it; a store of its own for each turn."""
    repeats, many, few = sized(o, (3, 40000, 2000), (2, 15000, 500), (1, 1000, 20))
    got = {}

    def note(name, value):
        got.setdefault(name, []).append(value)

    for i in range(repeats):
        store, raw = Store(tools, "rates%d" % i), Store(tools, "raw%d" % i)
        copy = tools.engine.raw(tools, raw.db, many, "copy")["per_s"]

        def bound(of):
            one = tools.engine.raw(tools, raw.db, few if of == "S" else many,
                                   "single" if of == "S" else "rows")["per_s"]
            note(of, one)
            return one

        before = bound("R")
        note("copy", copy)
        seconds, _ = store.bulk(store.lines("effect", many))
        note("bulk", many / seconds)
        note("bulk ratio", many / seconds / ((before + bound("R")) / 2))
        before = bound("R")
        _, rate, cpu = store.drain()
        note("drain", rate)
        note("drain ratio", rate / ((before + bound("R")) / 2))
        for name, _, mode, batch, of, _ in MODES:
            n = few if of == "S" else many
            before = bound(of)
            own = tools.ask("handlers", mode, store.db, store.next, n, batch)
            store.next += n
            note(name, own["per_s"])
            note(name + " cpu", own["cpu_us"])
            note(name + " ratio", own["per_s"] / ((before + bound(of)) / 2))
        for kind in ("keyless", "keyed"):
            before = bound("S")
            own = tools.ask("enqueue", store.db, "later", store.next, few, kind, 0)
            store.next += few
            note(kind, own["per_s"])
            note(kind + " ratio", own["per_s"] / ((before + bound("S")) / 2))
        note("F", raw.flushes(sized(o, 300, 200, 20))["per_s"])
        store.remove()
        raw.remove()
    table(report, got, many)


def table(report, got, many):
    report.title("Rates (%d jobs, medians of %d turns)" % (many, len(got["F"])))
    report.add("F: flushes of 4 KiB (fdatasync)", median(got["F"]), "/s")
    report.add("S: single INSERT a transaction", median(got["S"]), "/s")
    report.add("R: raw rows, Pawl's tables, unnest", median(got["R"]), "/s",
               median(got["R"]) / median(got["copy"]), "COPY")
    for kind in ("keyless", "keyed"):
        report.add("enqueue, one a call, %s" % kind, median(got[kind]), "/s",
                   median(got[kind + " ratio"]), "S")
    ratio = median(got["bulk ratio"])
    report.add("enqueue --bulk", median(got["bulk"]), "/s", ratio, "R", ">= 0.40 R", ratio >= 0.4)
    report.add("effect mode, sql task, one worker", median(got["drain"]), "/s",
               median(got["drain ratio"]), "R")
    for name, title, _, _, of, bar in MODES:
        ratio = median(got[name + " ratio"])
        report.add(title, median(got[name]), "/s", ratio, of, ">= %.2f %s" % (bar, of),
                   ratio >= bar, "%.1f us of the client's CPU a job" % median(got[name + " cpu"]))


def measure_wake(tools, report, o):
    """Producers that tell sleeping workers of other hosts, against ones that tell nobody."""
    repeats, for_ms = sized(o, (5, 2000), (3, 1000), (1, 50))
    store, ratios, told = Store(tools, "wake"), [], []
    listener = store.connect()
    listener.execute("LISTEN pawl")
    for i in range(repeats):
        both = {}
        for name in ("crowd", "silent") if i % 2 == 0 else ("silent", "crowd"):
            both[name] = tools.ask(name, store.db, "later", CROWD, for_ms, "keyless")["per_s"]
        told.append(both["crowd"])
        ratios.append(both["crowd"] / both["silent"])
    listener.close()
    store.remove()
    report.title("Wake-ups (%d producers, one job a call, medians of %d turns)" % (CROWD, repeats))
    ratio = median(ratios)
    report.add("enqueue, %d processes, workers told" % CROWD, median(told), "/s", ratio,
               "silent", ">= 0.80 silent", ratio >= 0.8)


def measure_held(tools, report, o):
    """Half of what it can, for two minutes, while a snapshot is held: does the rate last?"""
    free_s, held_s = sized(o, (5, 120), (3, 24), (1, 1))
    store = Store(tools, "held")
    free = tools.ask("sustain", store.db, free_s, 0, 100)["per_s"]
    holder = store.connect()
    holder.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
    holder.execute("SELECT count(*) FROM pawl_x_ready")
    held = tools.ask("sustain", store.db, held_s, max(1, int(free / 2)), 100)
    dead = store.sql("SELECT coalesce(sum(n_dead_tup), 0) FROM pg_stat_user_tables WHERE"
                     " schemaname = 'pawl' AND relname IN ('x_ready', 'x_running')")[0][0]
    holder.execute("ROLLBACK")
    holder.close()
    store.remove()
    report.title("A snapshot held for %d s, at half the rate" % held_s)
    report.add("whole life, free, 100 a commit", free, "/s")
    ratio = held["last_per_s"] / max(1, held["first_per_s"])
    report.add("   last sixth of the time, snapshot held", held["last_per_s"], "/s", ratio, "first",
               ">= 0.80 first", ratio >= 0.8)
    report.add("   dead rows a job (ready, running)", dead / max(1, held["n"]), "",
               bar="<= 2.1", ok=dead <= 2.1 * held["n"])
