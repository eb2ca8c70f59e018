#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""postgres.py - the server's connections ended at random, the server crashed, for as long as asked;
and, with --cuts, the connection cut before and after every single message.

Each round is a fresh server, two workers with all kinds of handlers and two producers; afterwards
`pawl check`, and the audit of test/e2e/pgload.py: nothing lost, nothing doubled, nobody told a lie.

usage: postgres.py [--seconds 600] [--round 60] [--seed N] [--cuts]
"""
import argparse
import os
import random
import subprocess
import sys
import time

TOP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(TOP, "test", "e2e"))
from test_pg_chaos import Chaos                 # noqa: E402 (it needs the path above)


def one_round(seed, seconds):
    """What was done, in words; raises what went wrong."""
    chaos = Chaos(seed)
    try:
        ended = crashes = 0
        chaos.begin()
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if chaos.rng.random() < 0.03:
                chaos.restart()
                crashes += 1
            else:
                ended += chaos.terminate()
            chaos.load.tend()
            time.sleep(chaos.rng.uniform(0, 0.5))
        return "%d connections ended, %d crashes, %d jobs, exit codes of the producers %s" % (
            ended, crashes, chaos.load.audit(), chaos.load.codes)
    finally:
        chaos.close()


def cuts():
    env = dict(os.environ, PAWL_TEST_CUTS="all")
    return subprocess.run([sys.executable, "-B", os.path.join(TOP, "test", "e2e",
                                                              "test_pg_cuts.py")], env=env,
                          cwd="/tmp", check=False).returncode


def main():
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--seconds", type=float, default=600)
    options.add_argument("--round", type=float, default=60)
    options.add_argument("--seed", type=int, default=random.randrange(1 << 31))
    options.add_argument("--cuts", action="store_true")
    options = options.parse_args()
    if options.cuts:
        raise SystemExit(cuts())
    end, seed = time.monotonic() + options.seconds, options.seed
    while time.monotonic() < end:
        print("seed %d:" % seed, end=" ", flush=True)
        print(one_round(seed, min(options.round, max(1, end - time.monotonic()))), flush=True)
        seed += 1
    print("nothing lost, nothing doubled")


if __name__ == "__main__":
    main()
