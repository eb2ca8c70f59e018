# SPDX-License-Identifier: Apache-2.0
"""feed.py - what the demo's shop gets from outside: product events, orders, supplier rows.

Products  are the packages of this machine's own Debian index: /var/lib/apt/lists/*_Packages*, or
          /var/lib/dpkg/status where there are no lists. Real names, real one-line descriptions
          (UTF-8), prices made from the size. Every package changes its price a few times; each
          change is an event with the package's next integer version.
Hostile   on purpose, as feeds are: a tenth of the events is published twice (same id, same bytes)
          and everything is shuffled. The seed decides all of it.
Knows     nothing of Pawl but the shape of a line for `pawl enqueue --bulk`.
"""
import glob
import json
import os
import subprocess

APT_HELPER = "/usr/lib/apt/apt-helper"
STATUS = "/var/lib/dpkg/status"


def _read(path):
    """The text of an index, whatever it is compressed with: apt's own helper knows."""
    if path.endswith("_Packages") or path == STATUS:
        with open(path, "rb") as f:
            raw = f.read()
    else:
        raw = subprocess.run([APT_HELPER, "cat-file", path], stdout=subprocess.PIPE,
                             stderr=subprocess.DEVNULL, check=True).stdout
    return raw.decode("utf-8", "replace")


def _field(block, name, default=""):
    mark = "\n%s: " % name
    at = block.find(mark)
    if at < 0:
        return default
    end = block.find("\n", at + len(mark))
    return block[at + len(mark):end if end >= 0 else None]


def packages():
    """(where from, [(name, title, size)]), one entry per name, sorted by name."""
    lists = sorted(glob.glob("/var/lib/apt/lists/*_Packages") +
                   glob.glob("/var/lib/apt/lists/*_Packages.*"))
    found = {}
    where = "the apt package index"
    for path in lists:
        try:
            text = _read(path)
        except (OSError, subprocess.CalledProcessError):
            continue        # a list that is being replaced, or no helper for its compression
        _collect(text, found)
    if len(found) < 100:    # no lists, or all but empty ones: what is installed will do
        where = "the package status file"
        if os.path.exists(STATUS):
            _collect(_read(STATUS), found)
    return where, [(name, *found[name]) for name in sorted(found)]


def _collect(text, found):
    for block in text.split("\n\n"):
        block = "\n" + block
        name = _field(block, "Package")
        size = _field(block, "Size") or _field(block, "Installed-Size", "1")
        if name and name not in found and size.isdigit():
            found[name] = (_field(block, "Description", name), int(size))


def product_events(rng, catalogue, wanted):
    """Sample the catalogue and tell its history.

    Returns (events, newest): events as dicts in the order of their ids, newest {sku: (version,
    price, title)}. With a small catalogue the histories are longer, so that there is work to do."""
    chosen = rng.sample(catalogue, min(wanted, len(catalogue)))
    longest = max(3, min(200, 2 * wanted // max(1, len(chosen))))
    events, newest = [], {}
    for sku, title, size in chosen:
        version, price = 0, 99 + size % 50000
        for _ in range(rng.randint(1, longest)):
            version += rng.randint(1, 3)            # the producer's row counter: gaps are normal
            price = max(1, price + rng.choice((-1, 1)) * rng.randint(1, 40))
            events.append({"sku": sku, "title": title, "price": price, "version": version})
        newest[sku] = (version, price, title)
    return events, newest


def order_events(rng, count):
    """(orders, payable): some cards will be declined, and only by the gateway."""
    orders = []
    for order in range(1, count + 1):
        card = "visa-%04d" % rng.randint(0, 9999)
        if order % 33 == 0:
            card = "declined:" + rng.choice(("insufficient funds", "card expired", "stolen card"))
        orders.append({"order": order, "amount": rng.randint(199, 49999), "card": card})
    return orders, {o["order"]: o["amount"] for o in orders if not o["card"].startswith("declined")}


SUPPLIERS = ("acme", "borealis", "cumulus", "dorado")
NEWCOMER = "ostrom"     # the supplier nobody has told the shop about

# What can be wrong with a row, what the shop must be told about it, and how it is put right.
#   name          a pattern of the dead letter's reason          fixed by
MALFORMED = (
    ("no_vat",    "vat",                                         "config"),
    ("newcomer",  "foreign key constraint",                      "data"),
    ("qty_word",  "check constraint|type integer",               "args"),
    ("qty_huge",  "64 bit",                                      "args"),
)


def import_rows(rng, count, bad_each):
    """(texts, good, bad): args texts by row number, the sound rows, and {row: (kind, meant)}.

    `meant` is what the supplier meant to send: what the operator corrects the row to."""
    texts, good, bad = {}, {}, {}
    kinds = [k[0] for k in MALFORMED for _ in range(bad_each)]
    for row, kind in enumerate([None] * (count - len(kinds)) + kinds, 1):
        meant = {"row": row, "supplier": rng.choice(SUPPLIERS), "qty": rng.randint(1, 500),
                 "vat": rng.choice((7, 19))}
        if kind == "newcomer":
            meant["supplier"] = NEWCOMER
        sent = dict(meant)
        if kind == "no_vat":
            del sent["vat"]
            meant["vat"] = 19               # what the older format always meant
        elif kind == "qty_word":
            sent["qty"] = "a dozen"
        elif kind == "qty_huge":
            sent["qty"] = 2 ** 64 + meant["qty"]
        texts[row] = json.dumps(sent)
        if kind is None:
            good[row] = meant
        else:
            bad[row] = (kind, meant)
    return texts, good, bad


def publish(rng, task, source, args, twice):
    """Lines for `pawl enqueue --bulk`, `twice` of them doubled, shuffled. args: {id: JSON text}."""
    head = '{"task":"%s","source":"%s","key":"%s-%%s","args":%%s}' % (task, source, source)
    lines = [head % item for item in args.items()]
    lines += rng.sample(lines, int(len(lines) * twice))
    rng.shuffle(lines)
    return lines
