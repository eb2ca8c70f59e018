# SPDX-License-Identifier: Apache-2.0
"""rates.py - jobs a second: enqueue, effect mode, exec; against what the machine gives at most."""
from kit import Store, median, sized


CROWD = 16


def crowds(tools, store, raw, o, note):
    """Enqueue from one process and from many at once, between two looks at F."""
    def flushes():
        return raw.flushes(sized(o, 300, 200, 20))["per_s"]
    for n in (1, CROWD):
        before = flushes()
        c = tools.ask("crowd", store.db, "later", n, sized(o, 2000, 1000, 50), "keyless")
        f = (before + flushes()) / 2
        note("crowd %d" % n, c["per_s"], c["cpu_us"])
        note("crowd %d ratio" % n, c["per_s"] / f)
        note("crowd %d fairness" % n, c["fairness"])
        for what in ("p50", "p99", "max"):
            note("crowd %d %s" % (n, what), c[what + "_us"])
            note("crowd %d %s ratio" % (n, what), c[what + "_us"] * f / 1e6)


def measure(tools, report, o):
    """F, R, enqueue one by one and in bulk, effect mode: in turns."""
    repeats, one, many = sized(o, (3, 3000, 50000), (2, 400, 15000), (1, 20, 500))
    got = {}

    def note(name, value, cpu_us=None):
        got.setdefault(name, []).append(value)
        if cpu_us is not None:
            got.setdefault(name + " cpu", []).append(cpu_us)

    for i in range(repeats):
        store = Store(tools, "rates%d" % i)
        raw = Store(tools, "raw%d" % i)
        held = [store.hold(), raw.hold()]
        path = store.lines("effect", many)
        f = raw.flushes(sized(o, 800, 300, 50))
        r = raw.raw(many)
        seconds, cpu = store.bulk(path)
        note("F", f["per_s"])
        note("R", r["per_s"], r["cpu_us"])
        note("bulk", many / seconds, cpu * 1e6 / many)
        n, rate, cpu = store.drain()
        again = raw.raw(many)
        note("R", again["per_s"], again["cpu_us"])
        note("effect", rate, cpu * 1e6 / n)
        if tools.engine.name == "sqlite":
            lean = tools.ask("batch", "lean", raw.dir + "/lean.db", many)
            note("lean", lean["per_s"], lean["cpu_us"])
        for kind in ("keyless", "keyed"):
            e = tools.ask("enqueue", store.db, "later", store.next, one, kind, 0)
            note(kind, e["per_s"], e["cpu_us"])
            store.next += one
            note("F", raw.flushes(sized(o, 200, 200, 20))["per_s"])
        crowds(tools, store, raw, o, note)
        for name, by in (("bulk", r["per_s"]), ("effect", (r["per_s"] + again["per_s"]) / 2)):
            note(name + " ratio", got[name][-1] / by)
        for kind, at in (("keyless", -2), ("keyed", -1)):
            note(kind + " ratio", got[kind][-1] / ((got["F"][at] + got["F"][at - 1]) / 2))
        for db in held:
            db.close()
        store.remove()
        raw.remove()

    table(report, got, many)


def table(report, got, many):
    def cpu(name):
        return "%.1f us of CPU a job" % median(got[name + " cpu"])

    report.title("Rates (%d jobs, medians of %d turns)" % (many, len(got["bulk"])))
    report.add("F: flushes of 4 KiB (fdatasync)", median(got["F"]), "/s")
    report.add("R: raw batch insert, Pawl's tables", median(got["R"]), "/s", note=cpu("R"))
    if "lean" in got:
        report.add("   raw batch insert, smallest tables", median(got["lean"]), "/s",
                   note=cpu("lean"))
    for kind in ("keyless", "keyed"):
        report.add("enqueue, one a call, %s" % kind, median(got[kind]), "/s",
                   median(got[kind + " ratio"]), "F", note=cpu(kind))
    crowd_table(report, got)
    for name, title, bar in (("bulk", "enqueue --bulk", 0.4), ("effect", "effect mode", 0.2)):
        ratio = median(got[name + " ratio"])
        report.add(title, median(got[name]), "/s", ratio, "R", ">= %.2f R" % bar, ratio >= bar,
                   cpu(name))


def crowd_table(report, got):
    for n, bar in ((1, 0.7), (CROWD, 1.5)):
        name, title = "crowd %d" % n, "enqueue, %d process%s" % (n, "" if n == 1 else "es")
        ratio = median(got[name + " ratio"])
        report.add(title, median(got[name]), "/s", ratio, "F", ">= %.1f F" % bar, ratio >= bar,
                   "%.1f us of CPU a job" % median(got[name + " cpu"]))
        for what in ("p50", "p99", "max"):
            ratio = median(got[name + " %s ratio" % what])
            judged = n > 1 and what == "p99"
            report.add("   a call, %s, %d process%s" % (what, n, "" if n == 1 else "es"),
                       median(got[name + " " + what]) / 1e3, "ms", ratio, "flushes",
                       "<= 20 flushes" if judged else None, ratio <= 20 if judged else None)
    fair = median(got["crowd %d fairness" % CROWD])
    report.add("   slowest by fastest, %d processes" % CROWD, fair, "", bar="> 0.3", ok=fair > 0.3)


def measure_exec(tools, report, o):
    repeats, many = sized(o, (3, 2000), (2, 400), (1, 20))
    window = 8
    got = {"bare": [], "wide": [], "exec": [], "ratio": [], "wide ratio": [], "cpu": [],
           "bare cpu": []}
    store = Store(tools, "exec", window)
    for _ in range(repeats):
        bare = tools.ask("spawn", many, 1, tools.tiny)
        wide = tools.ask("spawn", many, window, tools.tiny)
        store.fill(many, "spawn")
        n, rate, cpu = store.drain()
        after = tools.ask("spawn", many, 1, tools.tiny)
        got["bare"] += [bare["per_s"], after["per_s"]]
        got["wide"].append(wide["per_s"])
        got["exec"].append(rate)
        got["ratio"].append(rate / ((bare["per_s"] + after["per_s"]) / 2))
        got["wide ratio"].append(rate / wide["per_s"])
        got["cpu"].append(cpu * 1e6 / n)
        got["bare cpu"].append(bare["cpu_us"])
    store.remove()
    ratio = median(got["ratio"])
    report.title("Programs (one process a job, %d jobs, medians of %d turns)" % (many, repeats))
    report.add("bare posix_spawn and wait", median(got["bare"]), "/s",
               note="%.0f us of CPU" % median(got["bare cpu"]))
    report.add("bare, %d at a time" % window, median(got["wide"]), "/s")
    report.add("exec task, %d at a time" % window, median(got["exec"]), "/s", ratio, "bare",
               ">= 0.60 bare", ratio >= 0.6, "%.2f of bare at %d; %.0f us of CPU a job" %
               (median(got["wide ratio"]), window, median(got["cpu"])))
