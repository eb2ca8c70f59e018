# SPDX-License-Identifier: Apache-2.0
"""audit.py - the demo's auditor: believes nobody, writes nothing.

Reads     the shop's database read-only, by the database's own client (engine.py); the gateway's own
          ledger; and, for dead letters, what `pawl dead list --json` says.
Compares  with what was sent, as feed.py remembers it: never with anything Pawl computed.
"""
import json
import re
from collections import Counter, defaultdict


def json_lines(path):
    """The complete lines of a file (the last one may still be under way)."""
    with open(path, encoding="utf-8") as f:
        return [json.loads(line) for line in f if line.endswith("\n")]


class Audit:
    """Collects findings; `say` prints one line each. failed: how many were not as they must be."""

    def __init__(self, say):
        self.say, self.failed, self.passed = say, 0, 0

    def line(self, ok, what, wrong=()):
        """One finding. `wrong`: examples, shown when it is not ok."""
        wrong = list(wrong)
        ok = ok and not wrong
        self.passed += ok
        self.failed += not ok
        self.say(ok, what)
        for example in wrong[:3]:
            self.say(None, str(example))
        if len(wrong) > 3:
            self.say(None, "… and %d more" % (len(wrong) - 3))
        return ok


def products(audit, db, newest, sent):
    """newest: {sku: (version, price, title)}; sent: Counter of distinct events by sku."""
    table = {sku: (version, price, title) for sku, version, price, title in
             db.execute("SELECT sku, version, price, title FROM product")}
    wrong = ["%s is at %s, must be at %s" % (sku, table.get(sku, "nothing")[:2], want[:2])
             for sku, want in newest.items() if table.get(sku) != want]
    wrong += ["%s was never in the feed" % sku for sku in table.keys() - newest.keys()]
    audit.line(True, "product table: %s of %s packages at their newest version and price" % (
        format(len(newest) - len(wrong), ","), format(len(newest), ",")), wrong)
    took = dict(db.execute("SELECT sku, n FROM product_events"))
    wrong = ["%s: %d events sent, %d took effect" % (sku, sent[sku], took.get(sku, 0))
             for sku in sent.keys() | took.keys() if sent[sku] != took.get(sku, 0)]
    audit.line(True, "product events: each of %s took effect exactly once" %
               format(sum(sent.values()), ","), wrong)


def payments(audit, db, ledger, payable, orders):
    """ledger: the gateway's lines; payable: {order: amount}; orders: all that were placed."""
    charges = defaultdict(list)
    for line in ledger:
        charges[line["order"]].append(line)
    wrong = []
    for order in sorted({o["order"] for o in orders} | charges.keys()):
        want = [payable[order]] if order in payable else []
        if [line["amount"] for line in charges[order]] != want:
            wrong.append("order %s was charged %d times, must be %d" % (
                order, len(charges[order]), len(want)))
    audit.line(True, "payments: %d payable orders, each charged exactly once by the gateway's books"
               % len(payable), wrong)
    table = {order: (amount, status, charge) for order, amount, status, charge in
             db.execute("SELECT id, amount, status, charge FROM orders")}
    want = {o["order"]: (o["amount"], "new", None) for o in orders}
    for order, lines in charges.items():
        if order in payable:
            want[order] = (payable[order], "paid", lines[0]["charge"])
    wrong = ["order %s is %s, must be %s" % (order, table.get(order), want.get(order))
             for order in sorted(want.keys() | table.keys()) if table.get(order) != want.get(order)]
    audit.line(True, "order table: %d orders, paid with the gateway's receipt or new, as its books "
               "say" % len(want), wrong)


def deliveries(audit, db, rows, what):
    """rows: {row: args} that must be in, and nothing else."""
    table = {row: (supplier, qty, vat) for row, supplier, qty, vat in
             db.execute("SELECT row, supplier, qty, vat FROM delivery")}
    want = {row: (a["supplier"], a["qty"], a["vat"]) for row, a in rows.items()}
    wrong = ["row %s is %s, must be %s" % (row, table.get(row), want.get(row))
             for row in sorted(want.keys() | table.keys()) if table.get(row) != want.get(row)]
    stock = Counter()
    for supplier, qty, _ in want.values():
        stock[supplier] += qty
    wrong += ["stock of %s is %d, must be %d" % (name, n, stock[name]) for name, n in
              db.execute("SELECT name, stock FROM supplier") if n != stock[name]]
    audit.line(True, "supplier rows: %s, and the stock adds up to %s" % (
        what, format(sum(stock.values()), ",")), wrong)


def dead_letters(audit, dead, expected, what):
    """dead: lines of `pawl dead list --json`; expected: {(task, item): a pattern of the reason}."""
    wrong, seen = [], set()
    for letter in dead:
        args = letter["args"]
        item = (letter["task"], args.get("row", args.get("order")))
        reason = "%s %s" % (letter.get("reason"), letter.get("error"))
        if item not in expected:
            wrong.append("%s %s must not be dead: %s" % (item[0], item[1], reason))
        elif item in seen:
            wrong.append("%s %s is dead twice" % item)
        elif (letter["dead_class"] != "permanent"
              or not re.search(expected[item], reason, re.IGNORECASE)):
            wrong.append("%s %s is dead(%s) for another reason than \"%s\": %s" % (
                item[0], item[1], letter["dead_class"], expected[item], reason))
        seen.add(item)
    wrong += ["%s %s is missing" % item for item in sorted(expected.keys() - seen)]
    audit.line(True, what, wrong)


def conservation(audit, db, jobs, accepted):
    """jobs: the view of them; accepted: {task: how many there must be, replays not counted}. Each
    has ended, once."""
    have = Counter(dict(db.execute("SELECT task, count(*) FROM %s WHERE replay_of IS NULL"
                                   " GROUP BY task" % jobs)))
    want = Counter(accepted)
    wrong = ["%s: %d jobs, must be %d" % (task, have[task], want[task])
             for task in sorted(have.keys() | want.keys()) if have[task] != want[task]]
    states = Counter(dict(db.execute("SELECT state, count(*) FROM %s GROUP BY state" % jobs)))
    replayed = db.execute("SELECT count(*) FROM %s WHERE state = 'dead'"
                          " AND replayed_as IS NOT NULL" % jobs).fetchone()[0]
    left = sum(states.values()) - states["done"] - states["dead"] - states["dropped"]
    if left:
        wrong.append("%d jobs never ended" % left)
    ends = [(states["done"], "done"), (states["dead"] - replayed, "dead"),
            (replayed, "dead and replayed"), (states["dropped"], "discarded")]
    audit.line(True, "jobs: %s = %s" % (format(sum(states.values()), ","), " + ".join(
        "%s %s" % (format(n, ","), end) for n, end in ends if n)), wrong)
