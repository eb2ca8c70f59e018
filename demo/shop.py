#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""shop.py - `./run demo`: a day in a shop, with everything going wrong, in under a minute.

Does      plays a shop on Pawl's public command line only: a product feed made from this machine's
          Debian index, duplicated and shuffled (feed.py); payments through a gateway that lies
          (gateway.py, charge.c); supplier rows that cannot be imported; two workers that are
          killed all the time (chaos.py).
Proves    the outcome from outside (audit.py), lets the operator fix and replay what died, audits
          again, and runs `pawl check`. Exit 0 only if every line of the audits is right.
Needs     PAWL_BIN: the binary; beside it, in demo/, the compiled charge program (or DEMO_CHARGE).
Leaves    nothing: all files are in one temporary directory, kept when an audit fails or on --keep.
"""
import argparse
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time

from day import Broken
from engine import ENGINES, pgserver
from evening import Evening
from screen import Screen


def parse(argv):
    ap = argparse.ArgumentParser(prog="./run demo", description="a shop on Pawl, with everything "
                                 "going wrong; `./run demo naive` is the contrast")
    ap.add_argument("--small", action="store_true", help="a small shop: some seconds")
    ap.add_argument("--seed", type=int, default=None, help="the same feed, gateway and aim again")
    ap.add_argument("--engine", choices=sorted(ENGINES), default="sqlite",
                    help="where the shop's tables are; ./run demo postgres says postgres")
    ap.add_argument("--keep", action="store_true", help="keep the directory and print its name")
    ap.add_argument("--sabotage", choices=("charge", "price", "event", "row"),
                    help=argparse.SUPPRESS)
    opts = ap.parse_args(argv)
    if opts.seed is None:
        opts.seed = random.SystemRandom().randrange(1, 10000)
    return opts


def remove(where):
    """With all that is in it. A process that was killed a moment ago may still be writing there."""
    deadline = time.monotonic() + 5
    while os.path.exists(where) and time.monotonic() < deadline:
        shutil.rmtree(where, ignore_errors=True)
        time.sleep(0.02)


def main(argv):
    opts = parse(argv)
    screen = Screen()
    for number in (signal.SIGTERM, signal.SIGHUP):      # end as Ctrl-C does: tidily
        signal.signal(number, lambda n, _: sys.exit(128 + n))
    where = tempfile.mkdtemp(prefix="pawl-demo-")
    shop, keep, code = None, True, 1
    screen.line(screen.paint("1", "A day in a shop on Pawl") + "   (seed %d)" % opts.seed)
    try:
        shop = Evening(opts, where, screen)
        shop.set_up()
        screen.title("The day: two workers, and somebody who kills them")
        shop.day()
        letters = shop.evening()
        if not shop.audit.failed:
            screen.title("The operator's fix")
            shop.fix(letters)
            shop.second_audit()
        shop.verdict()
        code = 1 if shop.audit.failed else 0
        keep = opts.keep or code != 0
    except (Broken, subprocess.TimeoutExpired, pgserver.Missing, pgserver.Failed) as broken:
        screen.line("demo: %s" % broken)
        for w in shop.chaos.workers if shop and shop.chaos else ():
            screen.line("%s: %s" % (w.name, " | ".join(w.said()[-3:])))
    except KeyboardInterrupt:
        screen.line("interrupted")
        keep, code = opts.keep, 130
    except SystemExit as ended:
        keep, code = opts.keep, ended.code
    finally:
        if shop is not None:
            shop.close()
        if not keep:
            remove(where)
        else:
            screen.line("  everything is kept in %s" % where)
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
