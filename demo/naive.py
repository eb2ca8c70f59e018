#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""naive.py - `./run demo naive`: the same shop the way it is usually written first.

The queue  is a table, and honest about what it promises: at least once. A worker takes a message,
           runs it, deletes it; a message that was taken and not deleted is handed out again.
The work   is what everybody writes: UPDATE … SET price, so the last writer wins; and charge the
           card, then update the order, with a new worker where the old one died in between.
Shows      prices that went back to an older version, events counted twice, cards charged twice.
           Exit 0 when it showed them: this is a demonstration, and what fails is the shop.
"""
import argparse
import http.client
import json
import os
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections import Counter

import audit as audits
import feed

HERE = os.path.dirname(os.path.abspath(__file__))
SCHEMA = """
CREATE TABLE product (sku TEXT PRIMARY KEY, price INTEGER, version INTEGER, n INTEGER DEFAULT 0);
CREATE TABLE orders (id INTEGER PRIMARY KEY, amount INTEGER, status TEXT DEFAULT 'new');
CREATE TABLE queue (id INTEGER PRIMARY KEY, task TEXT, args TEXT, taken_at REAL DEFAULT 0);
"""
TAKEN_FOR = 0.4     # seconds until a message that was taken and not deleted is handed out again


def connect(path):
    db = sqlite3.connect(path, timeout=10, isolation_level=None)
    db.execute("PRAGMA journal_mode = TRUNCATE")
    db.execute("PRAGMA synchronous = OFF")      # be fast; what goes wrong here is not durability
    return db


# --- the worker ---

def apply_product_event(db, event):
    db.execute("INSERT INTO product(sku) VALUES (?) ON CONFLICT DO NOTHING", (event["sku"],))
    db.execute("UPDATE product SET price = ?, version = ?, n = n + 1 WHERE sku = ?",
               (event["price"], event["version"], event["sku"]))


def charge_customer(db, order, port):
    gateway = http.client.HTTPConnection("127.0.0.1", port, timeout=0.3)
    gateway.request("POST", "/charge", json.dumps(order))       # no key: nothing to tell apart
    if gateway.getresponse().status >= 400:
        raise OSError("the gateway is down; the message will come again")
    db.execute("UPDATE orders SET status = 'paid' WHERE id = ?", (order["order"],))


def work(path, port):
    signal.signal(signal.SIGINT, signal.SIG_IGN)    # whoever started us kills us
    db = connect(path)
    while True:
        now = time.time()
        message = db.execute(
            "UPDATE queue SET taken_at = ? WHERE id = (SELECT id FROM queue WHERE taken_at < ?"
            " ORDER BY id LIMIT 1) RETURNING id, task, args", (now, now - TAKEN_FOR)).fetchall()
        if not message:
            if db.execute("SELECT count(*) FROM queue").fetchone()[0] == 0:
                return 0
            time.sleep(0.02)
            continue
        id_, task, args = message[0]
        try:
            if task == "charge":
                charge_customer(db, json.loads(args), port)
            else:
                apply_product_event(db, json.loads(args))
        except (OSError, http.client.HTTPException):
            continue
        db.execute("DELETE FROM queue WHERE id = ?", (id_,))


# --- the demonstration ---

def fill(db, rng, packages, orders_n):
    """The same kind of feed as in the demo. Returns what must come out."""
    _, catalogue = feed.packages()
    events, newest = feed.product_events(rng, catalogue, packages)
    orders, payable = feed.order_events(rng, orders_n)
    orders = [o for o in orders if o["order"] in payable]
    messages = [("product", json.dumps(e)) for e in events]
    messages += rng.sample(messages, len(messages) // 10)
    messages += [("charge", json.dumps(o)) for o in orders]
    rng.shuffle(messages)
    with db:
        db.execute("BEGIN")
        db.executemany("INSERT INTO orders(id, amount) VALUES (?, ?)", payable.items())
        db.executemany("INSERT INTO queue(task, args) VALUES (?, ?)", messages)
    return newest, Counter(e["sku"] for e in events), payable


def run_workers(rng, path, port, kill_s):
    """Two workers; one of them is killed now and then. Returns the number of kills."""
    argv = [sys.executable, os.path.abspath(__file__), "--work", path, str(port)]
    workers, kills, deadline = [subprocess.Popen(argv) for _ in range(2)], 0, time.monotonic() + 60
    try:
        next_kill = time.monotonic() + 0.3
        while any(w.poll() != 0 for w in workers):
            now = time.monotonic()
            if now > deadline:
                raise SystemExit("naive: the queue did not drain within 60 s")
            if now > next_kill and kills < 25:
                victim = rng.randrange(2)
                if workers[victim].poll() is None:
                    workers[victim].kill()
                    kills += 1
                next_kill = now + rng.expovariate(1 / kill_s)
            for i, w in enumerate(workers):
                if w.poll() not in (None, 0):
                    if w.returncode != -signal.SIGKILL:
                        raise SystemExit("naive: a worker ended with %d" % w.returncode)
                    workers[i] = subprocess.Popen(argv)
            time.sleep(0.02)
    finally:
        for w in workers:
            w.kill()
            w.wait()
    return kills


def examine(path, ledger, newest, sent, payable):
    """What an auditor finds: (reverted, counted twice or lost, charged twice, example)."""
    db = sqlite3.connect(path)
    table = {sku: (version, price, n) for sku, version, price, n in
             db.execute("SELECT sku, version, price, n FROM product")}
    db.close()
    reverted = [sku for sku, (version, price, _) in newest.items()
                if table[sku][:2] != (version, price)]
    miscounted = [sku for sku in newest if table[sku][2] != sent[sku]]
    charges = Counter(line["order"] for line in audits.json_lines(ledger))
    twice = [order for order in payable if charges[order] > 1]
    return reverted, miscounted, twice, charges, table


def tell(seed, kills, newest, sent, payable, found):
    reverted, miscounted, twice, charges, table = found
    print("The shop, the naive way   (seed %d, %d workers killed)" % (seed, kills))
    print()
    print("  last writer wins          %s of %s products show an old price" % (
        format(len(reverted), ","), format(len(newest), ",")))
    if reverted:
        sku = reverted[0]
        print("                            %s: version %d at %d, though version %d says %d" % (
            sku, table[sku][0], table[sku][1], newest[sku][0], newest[sku][1]))
    print("  at least once, as it is   %s products counted an event twice" %
          format(len(miscounted), ","))
    print("  charge, then update       %d of %d customers were charged more than once" % (
        len(twice), len(payable)))
    if twice:
        order = max(twice, key=lambda o: charges[o])
        too_much = sum((charges[o] - 1) * payable[o] for o in twice)
        print("                            order %d %d times; %.2f too much in all" % (
            order, charges[order], too_much / 100))
    print()


def main(argv):
    ap = argparse.ArgumentParser(prog="./run demo naive",
                                 description="the naive shop, for contrast")
    ap.add_argument("--small", action="store_true", help="a small shop")
    ap.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1, 10000))
    ap.add_argument("--work", nargs=2, metavar=("DB", "PORT"), help=argparse.SUPPRESS)
    opts = ap.parse_args(argv)
    if opts.work:
        return work(opts.work[0], int(opts.work[1]))
    for number in (signal.SIGTERM, signal.SIGHUP):      # end as Ctrl-C does: tidily
        signal.signal(number, lambda n, _: sys.exit(128 + n))
    rng = random.Random(opts.seed)
    where = tempfile.mkdtemp(prefix="pawl-naive-")
    path, ledger = os.path.join(where, "shop.db"), os.path.join(where, "ledger.jsonl")
    gateway = None
    try:
        db = connect(path)
        db.executescript(SCHEMA)
        packages, orders = (400, 60) if opts.small else (2000, 200)
        newest, sent, payable = fill(db, rng, packages, orders)
        db.close()
        gateway = subprocess.Popen(
            [sys.executable, os.path.join(HERE, "gateway.py"), "--ledger", ledger, "--requests",
             os.path.join(where, "requests.jsonl"), "--seed", str(opts.seed), "--hang", "0.6"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        port = int(gateway.stdout.readline().split()[1])
        kills = run_workers(rng, path, port, 0.25)
        found = examine(path, ledger, newest, sent, payable)
    except KeyboardInterrupt:
        print("interrupted")
        return 130
    finally:
        if gateway is not None:
            gateway.kill()
            gateway.wait()
        shutil.rmtree(where, ignore_errors=True)
    tell(opts.seed, kills, newest, sent, payable, found)
    if not (found[0] and found[1] and found[2]):
        print("  The contrast did not show this time; try again with another --seed.")
        return 1
    print("  That was the point of this demonstration. The same kind of feed, gateway and kills")
    print("  without such findings: ./run demo")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
