#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""foreign.py - a program that knows nothing of Pawl and writes the same database.

    foreign.py DB RATE N BURST PAUSE

N writes of one row, each in its own BEGIN IMMEDIATE .. COMMIT, with busy_timeout 5 s and Python's
own SQLite; RATE a second, at jittered moments. After every BURST writes it is silent for PAUSE
seconds, long enough for Pawl to forget it: the first write of a burst meets a Pawl that drains flat
out.

Prints JSON: busy (writes that gave up with SQLITE_BUSY), first_ms and later_ms (lists).
"""
import json
import random
import sqlite3
import sys
import time


def main(path, rate, n, burst, pause):
    db = sqlite3.connect(path, timeout=5.0, isolation_level=None)
    db.execute("PRAGMA synchronous = FULL")
    rng = random.Random(17)
    first, later, busy = [], [], 0
    due = time.monotonic()
    for i in range(n):
        fresh = i % burst == 0
        due += pause if fresh else rng.uniform(0.5, 1.5) / rate
        now = time.monotonic()
        if due > now:
            time.sleep(due - now)  # to the moment that the schedule (not the machine) gives
        start = due = time.monotonic()
        try:
            db.execute("BEGIN IMMEDIATE")
            db.execute("INSERT INTO app(v) VALUES (?)", (i,))
            db.execute("COMMIT")
        except sqlite3.OperationalError:
            busy += 1
            if db.in_transaction:
                db.execute("ROLLBACK")
        (first if fresh else later).append(round((time.monotonic() - start) * 1000, 3))
    json.dump({"busy": busy, "first_ms": first, "later_ms": later}, sys.stdout)


if __name__ == "__main__":
    main(sys.argv[1], float(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]), float(sys.argv[5]))
