#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""run.py - `./run bench`: what Pawl does a second, how soon, and with how much, on this machine.

    run.py [--engine postgres] [--quick|--tiny] [--json] [--only WORD] [--dir DIR] [--writes N]
           [--keep]

--quick   in less than a minute, with fewer repeats       --only    groups whose name holds WORD
--json    one JSON object a measure on standard output    --writes  of the foreign program
--engine  sqlite or postgres: a private server, in the directory for temporary files
--dir     where SQLite's databases lie (default: beside the build); its file system is measured
--tiny    a few of each, to see that it works: the figures mean nothing, no bar is judged

What is compared is measured in turns, in the same run, and the medians of the ratios are given:
other work on the machine moves both sides. Absolute numbers are worth what the machine was worth
then. doc/performance.md says what each line means. Exit 1 when a bar is missed.
"""
import argparse
import json
import shutil
import sys
import tempfile
import time

import engine
import handlers
import latency
import pace
import postgres
import rates
import room
from kit import Failed, Tools, machine, say

GROUPS = {
    "sqlite": [("rates", rates.measure), ("handlers", handlers.measure),
               ("exec", rates.measure_exec), ("latency", latency.measure),
               ("idle", room.measure_idle), ("depth", room.measure_depth),
               ("foreign", pace.measure)],
    "postgres": [("rates", postgres.measure), ("exec", rates.measure_exec),
                 ("latency", latency.measure), ("idle", room.measure_idle),
                 ("depth", room.measure_depth), ("wake", postgres.measure_wake),
                 ("held", postgres.measure_held)],
}


class Report:
    """Collects the measures; prints each as it comes."""

    def __init__(self, as_json, judged):
        self.as_json, self.judged, self.missed, self.n = as_json, judged, [], 0

    def title(self, text):
        say("\n%s" % text)

    def add(self, name, value, unit, ratio=None, of=None, bar=None, ok=None, note=""):
        """bar: in words; ok: met or not, None: there is no bar."""
        self.n += 1
        ok = ok if self.judged else None
        if ok is False:
            self.missed.append(name)
        shown = "%.0f" % value if abs(value) >= 100 else "%.3g" % value
        verdict = "" if ok is None else "pass" if ok else "MISS"
        share = "" if ratio is None else "%.2f %s" % (ratio, of)
        say("  %-46s %9s %-8s %-12s %-20s %s%s" % (name, shown, unit, share, bar or "", verdict,
                                                 "  " + note if note else ""))
        if self.as_json:
            print(json.dumps({"measure": name, "value": round(value, 4), "unit": unit,
                              "ratio": None if ratio is None else round(ratio, 4), "of": of,
                              "bar": bar, "pass": ok, "note": note}), flush=True)


def parse(argv):
    p = argparse.ArgumentParser(prog="./run bench", description=__doc__.split("\n\n")[0])
    p.add_argument("--quick", action="store_true", help="in less than a minute")
    p.add_argument("--tiny", action="store_true", help="to see that it works")
    p.add_argument("--json", action="store_true", help="one JSON object a measure")
    p.add_argument("--engine", default="sqlite", choices=sorted(GROUPS), help="sqlite")
    p.add_argument("--only", default="", metavar="WORD", help="groups: " + " ".join(
        sorted({name for groups in GROUPS.values() for name, _ in groups})))
    p.add_argument("--dir", default=None, help="where the databases lie")
    p.add_argument("--writes", type=int, default=0, help="writes of the foreign program")
    p.add_argument("--keep", action="store_true", help="keep the files")
    return p.parse_args(argv)


def head(tools, report):
    facts = machine(tools.where)
    version = tools.run(tools.pawl, "--version").strip()
    say("%s · %s cores of %s, %s, Linux %s, load %s, nice %d" % (
        version, facts["cores"], facts["cpu"], facts["memory"], facts["kernel"], facts["load"],
        facts["nice"]))
    say("database on %s; %s: a job or an effect that counts here\nis on disk. Jobs have 200 bytes "
        "of args; the effect is one row under a unique key. Ratios are what\ncounts: the two sides "
        "of each were measured in turns, on a machine that may have been busy."
        % (facts["file_system"], tools.engine.durability))
    if facts["file_system"] in ("tmpfs", "ramfs"):
        say("WARNING: this file system is memory: give --dir on a disk.")
    if report.as_json:
        print(json.dumps(dict({"machine": facts, "pawl": version, "args_bytes": 200},
                              **tools.engine.facts)), flush=True)


def main(argv):
    o = parse(argv)
    report = Report(o.json, not o.tiny)
    start = time.monotonic()
    try:
        tools = Tools(None)
        tools.engine = engine.engine(o.engine)
        tools.where = tempfile.mkdtemp(prefix="bench-", dir=o.dir or tools.dir)
    except (Failed, OSError) as e:
        say("bench: %s" % e)
        return 1
    try:
        head(tools, report)
        for name, measure in GROUPS[o.engine]:
            if o.only in name:
                measure(tools, report, o)
    except Failed as e:
        say("bench: %s" % e)
        return 1
    finally:
        tools.engine.remove()
        if o.keep:
            say("kept: %s" % tools.where)
        else:
            shutil.rmtree(tools.where, ignore_errors=True)
    say("\n%d measures in %.0f s; %s" % (report.n, time.monotonic() - start, "no bar was judged"
        if o.tiny else "every bar is met" if not report.missed else
        "missed: " + ", ".join(report.missed)))
    return 1 if report.missed or report.n == 0 else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
