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
import chaos
import feed
from screen import Screen

HERE = os.path.dirname(os.path.abspath(__file__))
DAY_S_MAX = 150     # give up; a day takes about 20 s, more on a busy machine


class Size:
    """How big a day it is."""

    def __init__(self, small):
        self.packages = 1500 if small else 25000
        self.orders = 66 if small else 396
        self.rows = 200 if small else 2000
        self.bad_each = 4 if small else 15
        self.waves = 3 if small else 7          # the feed comes in waves
        self.wave_s = 1.0 if small else 2.0
        self.kill_s = 0.35 if small else 0.45   # mean time between kills


class Broken(Exception):
    """The demo cannot go on; the message says why."""


class Shop:
    """One day: set up, publish under fire, audit, fix, audit again."""

    def __init__(self, opts, where, screen):
        self.opts, self.dir, self.screen = opts, where, screen
        self.size, self.rng = Size(opts.small), random.Random(opts.seed)
        self.pawl = os.path.abspath(os.environ.get("PAWL_BIN") or shutil.which("pawl") or "pawl")
        self.charge = os.environ.get("DEMO_CHARGE") or os.path.join(
            os.path.dirname(self.pawl), "demo", "charge")
        self.db = os.path.join(where, "shop.db")
        self.ledger = os.path.join(where, "gateway-ledger.jsonl")
        self.requests = os.path.join(where, "gateway-requests.jsonl")
        self.gateway = self.chaos = self.publisher = None
        self.audit = audits.Audit(screen.finding)
        self.started = time.monotonic()
        self.notes = {}

    # --- the public command line ---

    def cli(self, *words, ok=(0,)):
        """Run one `pawl` command in the shop's directory; returns its standard output."""
        done = subprocess.run([self.pawl, *words], cwd=self.dir, stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=60)
        if done.returncode not in ok:
            raise Broken("pawl %s: exit %d: %s" % (" ".join(words), done.returncode,
                                                   done.stderr.decode("utf-8", "replace").strip()))
        return done.stdout.decode("utf-8")

    def cli_json(self, *words, ok=(0,)):
        return [json.loads(line) for line in self.cli(*words, "--json", ok=ok).splitlines()]

    # --- morning: the shop is set up ---

    def set_up(self):
        for path, why in ((self.pawl, "set PAWL_BIN"), (self.charge, "set DEMO_CHARGE")):
            if not os.access(path, os.X_OK):
                raise Broken("%s is not there; build first (./run build), or %s" % (path, why))
        self.make_feed()
        with sqlite3.connect(self.db) as db, open(os.path.join(HERE, "schema.sql")) as schema:
            db.executescript(schema.read())
            db.executemany("INSERT INTO supplier(name) VALUES (?)", [(s,) for s in feed.SUPPLIERS])
        db.close()
        self.gateway = subprocess.Popen(
            [sys.executable, os.path.join(HERE, "gateway.py"), "--ledger", self.ledger,
             "--requests", self.requests, "--seed", str(self.opts.seed)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        said = self.gateway.stdout.readline().split()
        if len(said) != 2:
            raise Broken("the gateway did not start")
        with open(os.path.join(HERE, "shop.conf")) as f:
            conf = f.read()
        for word, value in (("CHARGE", self.charge), ("PORT", said[1].decode()),
                            ("PAWL", self.pawl)):
            conf = conf.replace("@%s@" % word, value)
        self.write_conf(conf)
        self.cli("init", "--db", self.db)
        self.cli("conf", "check", "-c", "pawl.conf")
        self.cli("apply", "-c", "pawl.conf")
        self.screen.line("  gateway   127.0.0.1:%s; it answers 503, hangs, and charges without saying "
                         "so" % said[1].decode())

    def write_conf(self, text):
        with open(os.path.join(self.dir, "pawl.conf"), "w") as f:
            f.write(text)

    def read_conf(self):
        with open(os.path.join(self.dir, "pawl.conf")) as f:
            return f.read()

    def make_feed(self):
        size, rng, say = self.size, self.rng, self.screen.line
        where, catalogue = feed.packages()
        if not catalogue:
            raise Broken("no Debian package index on this machine, and no %s" % feed.STATUS)
        events, self.newest = feed.product_events(rng, catalogue, size.packages)
        self.sent = Counter(e["sku"] for e in events)
        self.orders, self.payable = feed.order_events(rng, size.orders)
        texts, self.good, self.bad = feed.import_rows(rng, size.rows, size.bad_each)
        dump = lambda e: json.dumps(e, ensure_ascii=False)
        self.lines = feed.publish(rng, "apply_product_event", "feed",
                                  {i: dump(e) for i, e in enumerate(events, 1)}, 0.1)
        self.events, twice = len(events), len(self.lines) - len(events)
        self.lines += feed.publish(rng, "place_order", "web",
                                   {o["order"]: dump(o) for o in self.orders}, 0.1)
        self.lines += feed.publish(rng, "import_row", "list", texts, 0.1)
        rng.shuffle(self.lines)
        self.distinct = self.events + len(self.orders) + len(texts)
        say("  feed      %s packages out of %s in %s: %s price events," % (
            format(len(self.newest), ","), format(len(catalogue), ","), where,
            format(self.events, ",")))
        say("            %s of them published twice, all shuffled" % format(twice, ","))
        say("  orders    %d, %d of them with a card that will be declined" % (
            len(self.orders), len(self.orders) - len(self.payable)))
        say("  supplier  %s rows, %d of them malformed in %d ways" % (
            format(len(texts), ","), len(self.bad), len(feed.MALFORMED)))

    # --- the day: publish, work, and be shot at ---

    def publish_and_die(self, lines):
        """A publisher that is killed halfway: it wrote some batches, nobody knows which."""
        part = "".join(line + "\n" for line in lines).encode()
        publisher = subprocess.Popen([self.pawl, "enqueue", "--bulk", "-", "--db", self.db],
                                     stdin=subprocess.PIPE, stdout=subprocess.DEVNULL,
                                     stderr=subprocess.DEVNULL)
        try:
            publisher.stdin.write(part)
            publisher.stdin.flush()
        except BrokenPipeError:
            pass                # seen below: it did not live to be killed
        publisher.kill()
        code = publisher.wait()
        try:
            publisher.stdin.close()
        except BrokenPipeError:
            pass
        if code != -signal.SIGKILL:
            raise Broken("the publisher ended by itself with %d" % code)

    def publish(self, number, lines):
        path = os.path.join(self.dir, "wave-%d.jsonl" % number)
        with open(path, "w", encoding="utf-8") as f:
            f.writelines(line + "\n" for line in lines)
        with open(path + ".log", "wb") as log:
            self.publisher = subprocess.Popen(
                [self.pawl, "enqueue", "--bulk", path, "--db", self.db],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        self.publisher.log = path + ".log"

    def published(self):
        """True when no publisher is at work; a failed one is the end of the demo."""
        if self.publisher is None:
            return True
        code = self.publisher.poll()
        if code is None:
            return False
        if code != 0:
            with open(self.publisher.log, encoding="utf-8", errors="replace") as log:
                raise Broken("the publisher ended with %d: %s" % (code, log.read()[-500:].strip()))
        self.publisher = None
        return True

    def day(self):
        size, say = self.size, self.screen.line
        n = -(-len(self.lines) // size.waves)
        waves = [self.lines[i:i + n] for i in range(0, len(self.lines), n)]
        argv = [self.pawl, "work", "-c", "pawl.conf"]
        self.chaos = chaos.Chaos(self.rng, [chaos.Worker("worker-1", argv, self.dir),
                                            chaos.Worker("worker-2", argv, self.dir)], size.kill_s)
        for w in self.chaos.workers:
            w.start()
        begun = time.monotonic()
        self.chaos.begin(begun)
        self.publish_and_die(self.lines[:max(2500, n * 6 // 10)])
        say("  the publisher was killed with %s jobs stored; the feed is published again, from its start"
            % format(self.accepted(), ","))
        fired, deadline = 0, begun + DAY_S_MAX
        while True:
            now = time.monotonic()
            if fired < len(waves) and self.published() and now >= begun + fired * size.wave_s:
                self.publish(fired, waves[fired])
                fired += 1
            over = fired == len(waves) and self.published()
            if over and now >= begun + size.waves * size.wave_s:
                self.chaos.end()            # the shooting stops, the work goes on
            self.chaos.tick(now)
            if self.progress(now, begun) and over and self.idle():
                break
            if now > deadline:
                raise Broken("the day did not end within %d s; what is left: %s" % (
                    DAY_S_MAX, self.cli("queues").strip()))
            time.sleep(0.02)
        self.chaos.end()
        self.chaos.drain(10)
        self.notes["day"] = time.monotonic() - begun
        self.screen.last = self.notes["looked"] = 0
        self.progress(time.monotonic(), begun)

    def accepted(self):
        db = audits.read_only(self.db)
        try:
            return db.execute("SELECT count(*) FROM pawl_jobs WHERE source <> ''").fetchone()[0]
        finally:
            db.close()

    def progress(self, now, begun):
        """One look at the shop's own tables, a few times a second. True if it looked."""
        if now - self.notes.get("looked", 0) < 0.25:
            return False
        self.notes["looked"] = now
        db = audits.read_only(self.db)
        try:
            (events,), (placed, paid), (rows,) = [db.execute(q).fetchone() for q in (
                "SELECT coalesce(sum(n), 0) FROM product_events",
                "SELECT count(*), count(charge) FROM orders",
                "SELECT count(*) FROM delivery")]
        finally:
            db.close()
        self.screen.progress(now, "  %4.1f s   events %s/%s   orders %d/%d   paid %d/%d   rows %d/%d   "
                             "kills %d" % (now - begun, format(events, ","), format(self.events, ","),
                                           placed, len(self.orders), paid, len(self.payable), rows,
                                           len(self.good), self.chaos.kills))
        return True

    def idle(self):
        """Nothing due, waiting for a retry, or running, says the public command."""
        return all(q["due"] == q["later"] == q["running"] == 0 for q in self.cli_json("queues"))

    # --- the evening: what the audit says ---

    def dead(self):
        return self.cli_json("dead", "list")

    def replay_poison(self):
        """A job shot at lost_cap times is dead(poison), rightly: the operator, who knows who fired,
        replays it. Returns how many there were."""
        shot = [letter["id"] for letter in self.dead() if letter["dead_class"] == "poison"]
        if shot:
            self.cli("dead", "replay", *shot)
            self.work_off()
        return len(shot)

    def work_off(self):
        self.cli("work", "-c", "pawl.conf", "--until-empty")

    def sabotage(self):
        """For the tests: break the outcome behind everybody's back, so that the audit must see it."""
        what = self.opts.sabotage
        if what == "charge":
            with open(self.ledger, "a", encoding="utf-8") as f:
                order = min(self.payable)
                f.write(json.dumps({"key": "x", "order": order, "amount": self.payable[order],
                                    "charge": "ch_x"}) + "\n")
        elif what:
            change = {"price": "UPDATE product SET version = version - 1, price = price + 1"
                               " WHERE sku = (SELECT max(sku) FROM product)",
                      "event": "UPDATE product_events SET n = n + 1"
                               " WHERE sku = (SELECT max(sku) FROM product_events)",
                      "row": "DELETE FROM delivery WHERE row = (SELECT min(row) FROM delivery)"}[what]
            db = sqlite3.connect(self.db)
            db.execute(change)
            db.commit()
            db.close()

    def evening(self):
        self.notes["poison"] = self.replay_poison()
        self.sabotage()
        self.screen.title("The audit, from outside: the database read-only, and the gateway's own "
                          "books")
        db = audits.read_only(self.db)
        try:
            audits.products(self.audit, db, self.newest, self.sent)
            audits.payments(self.audit, db, audits.json_lines(self.ledger), self.payable, self.orders)
            audits.deliveries(self.audit, db, self.good, "all %s sound ones imported once" %
                              format(len(self.good), ","))
            must_say = {kind: words for kind, words, _ in feed.MALFORMED}
            expected = {("import_row", row): must_say[kind] for row, (kind, _) in self.bad.items()}
            expected.update({("charge", o["order"]): o["card"].partition(":")[2]
                             for o in self.orders if o["order"] not in self.payable})
            letters = [d for d in self.dead() if d["dead_class"] != "poison"]
            audits.dead_letters(self.audit, letters, expected, "dead letters: %d malformed rows and "
                                "%d declined cards, each with its own reason" % (
                                    len(self.bad), len(self.orders) - len(self.payable)))
            audits.conservation(self.audit, db, self.accepted_jobs())
        finally:
            db.close()
        self.audit.line(True, "workers: %d starts, each death was one of our %d kills; drained at the "
                        "end" % (sum(w.starts for w in self.chaos.workers), self.chaos.kills),
                        self.chaos.surprises)
        return letters

    def accepted_jobs(self):
        """How many jobs of each task a shop that loses and doubles nothing has."""
        return {"apply_product_event": self.events, "place_order": len(self.orders),
                "import_row": len(self.good) + len(self.bad), "charge": len(self.orders),
                "mark_paid": len(self.payable)}

    # --- the operator's fix ---

    def fix(self, letters):
        say = self.screen.line
        how = {kind: fixed_by for kind, _, fixed_by in feed.MALFORMED}
        by_row = {d["args"]["row"]: d["id"] for d in letters if d["task"] == "import_row"}
        shown = next(iter(by_row.values()), None)
        by_args = [row for row, (kind, _) in self.bad.items() if how[kind] == "args"]
        for row in by_args:
            self.cli("dead", "replay", by_row[row], "--args", json.dumps(self.bad[row][1]))
        say("  %3d rows corrected one by one       pawl dead replay ID --args '{…}'" % len(by_args))
        conf = self.read_conf().replace(":qty, :vat)", ":qty, coalesce(:vat, 19))\noptional = vat")
        self.write_conf(conf)
        self.cli("conf", "check", "-c", "pawl.conf")
        self.cli("enqueue", "add_supplier", json.dumps({"name": feed.NEWCOMER}), "--key", "fix-1",
                 "--db", self.db)
        self.cli("dead", "replay", "--task", "import_row", "--class", "permanent", "--all",
                 "--db", self.db)
        say("  %3d rows replayed after two fixes   pawl dead replay --task import_row --all" %
            (len(self.bad) - len(by_args)))
        say("                                      (optional = vat in pawl.conf; supplier %s added)" %
            feed.NEWCOMER)
        declined = [d["id"] for d in letters if d["task"] == "charge"]
        for letter in declined:
            self.cli("dead", "discard", letter, "--reason", "card declined; the customer was told")
        say("  %3d declined orders given up        pawl dead discard ID --reason TEXT" %
            len(declined))
        self.cli("dead", "replay", "--task", "import_row", "--all", "--db", self.db, ok=(0, 1))
        if shown:
            self.cli("dead", "replay", shown, "--db", self.db, ok=(1,))
        say("  and all replayed again, by a colleague who did not know: nothing happens twice")
        self.work_off()

    def second_audit(self):
        self.screen.title("The audit after the fix")
        db = audits.read_only(self.db)
        try:
            rows = dict(self.good)
            rows.update({row: meant for row, (_, meant) in self.bad.items()})
            audits.deliveries(self.audit, db, rows, "all %s imported once, the replayed ones too" %
                              format(len(rows), ","))
            audits.products(self.audit, db, self.newest, self.sent)
            audits.payments(self.audit, db, audits.json_lines(self.ledger), self.payable, self.orders)
            left = [d for d in self.dead() if not d.get("replayed_as")]
            self.audit.line(True, "dead letters: none that nobody took care of",
                            ["job %s: %s" % (d["id"], d["reason"]) for d in left])
            audits.conservation(self.audit, db, dict(self.accepted_jobs(), add_supplier=1))
            self.notes["late"] = self.events - db.execute("SELECT sum(changes) FROM product"
                                                          ).fetchone()[0]
        finally:
            db.close()
        done = subprocess.run([self.pawl, "check", "--db", self.db], stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, timeout=60)
        said = done.stdout.decode("utf-8", "replace").strip().splitlines()
        self.audit.line(done.returncode == 0, "pawl check: %s" % (said[-1] if said else "no answer"),
                        said[:-1] if done.returncode else ())

    def verdict(self):
        say, notes = self.screen.line, self.notes
        did = Counter(line["did"] for line in audits.json_lines(self.requests))
        stats = self.cli_json("stats")[0]
        killed = self.chaos.killed
        seconds = time.monotonic() - self.started
        if self.audit.failed:
            self.screen.title(self.screen.paint("31", "%d of %d findings are wrong. Pawl did not keep "
                                                "its promise." % (self.audit.failed, self.audit.failed
                                                                  + self.audit.passed)))
        else:
            self.screen.title("Nothing lost, nothing doubled: %d of %d findings are right." % (
                self.audit.passed, self.audit.passed))
        say("  %s events in %.0f s; %s duplicates absorbed, %s events came too late to matter" % (
            format(self.distinct, ","), notes["day"], format(stats.get("duplicates", 0), ","),
            format(notes.get("late", 0), ",")))
        say("  %d kills survived: %d workers, %d programs and runners at work, %d times all at once" % (
            self.chaos.kills, killed["supervisor"], killed["child"], killed["everything"]))
        say("  %d charges took %d requests: %d outages, %d timeouts, %d charged without a word;" % (
            len(self.payable), sum(did.values()), did["503"], did["hang"] + did["charged_late"],
            did["charged_lost"]))
        say("  %d times the gateway was asked again for what it had charged, and charged nothing" %
            did["replayed"])
        if notes["poison"]:
            say("  %d jobs were shot at so often that Pawl took them for poison; the operator replayed"
                " them" % notes["poison"])
        say("  %.0f seconds in all, seed %d. Now see what the naive way does: ./run demo naive" % (
            seconds, self.opts.seed))

    def close(self):
        """Nothing of ours is left running."""
        if self.chaos is not None:
            self.chaos.close()
        for process in (self.publisher, self.gateway):
            if process is not None and process.poll() is None:
                process.kill()
                process.wait()


def parse(argv):
    ap = argparse.ArgumentParser(prog="./run demo", description="a shop on Pawl, with everything going "
                                 "wrong; `./run demo naive` is the contrast")
    ap.add_argument("--small", action="store_true", help="a small shop: some seconds")
    ap.add_argument("--seed", type=int, default=None, help="the same feed, gateway and aim again")
    ap.add_argument("--keep", action="store_true", help="keep the directory and print its name")
    ap.add_argument("--sabotage", choices=("charge", "price", "event", "row"),
                    help=argparse.SUPPRESS)
    opts = ap.parse_args(argv)
    if opts.seed is None:
        opts.seed = random.SystemRandom().randrange(1, 10000)
    return opts


def main(argv):
    opts = parse(argv)
    screen = Screen()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    where = tempfile.mkdtemp(prefix="pawl-demo-")
    shop, keep, code = None, True, 1
    screen.line(screen.paint("1", "A day in a shop on Pawl") + "   (seed %d)" % opts.seed)
    try:
        shop = Shop(opts, where, screen)
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
    except (Broken, subprocess.TimeoutExpired) as broken:
        screen.line("demo: %s" % broken)
        for w in shop.chaos.workers if shop and shop.chaos else ():
            screen.line("%s: %s" % (w.name, " | ".join(w.tail(3))))
    except KeyboardInterrupt:
        screen.line("interrupted")
        keep, code = opts.keep, 130
    except SystemExit as ended:
        keep, code = opts.keep, ended.code
    finally:
        if shop is not None:
            shop.close()
        if not keep:
            shutil.rmtree(where, ignore_errors=True)
    if keep:
        screen.line("  everything is kept in %s" % where)
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
