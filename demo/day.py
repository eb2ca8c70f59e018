# SPDX-License-Identifier: Apache-2.0
"""day.py - the demo's shop: how it is set up, and its day under fire.

Uses      only what any shop has: the public `pawl` command, its own tables, its own config.
Hostile   the publisher is killed half-way and its feed published again from the start; the workers
          are killed all day (chaos.py).
"""
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter

import audit as audits
import chaos
import feed
from engine import ENGINES, Unreachable

HERE = os.path.dirname(os.path.abspath(__file__))
DAY_S_MAX = 400     # give up; a day takes about 20 s, more on a busy machine


class Size:
    """How big a day it is."""

    def __init__(self, small, packages):
        self.packages = 1500 if small else packages
        self.orders = 66 if small else 396
        self.rows = 200 if small else 2000
        self.bad_each = 4 if small else 15
        self.waves = 3 if small else 7          # the feed comes in waves
        self.wave_s = 1.0 if small else 2.0
        self.kill_s = 0.35 if small else 0.45   # mean time between kills
        self.kills = 12 if small else 60        # and no more: on a slow machine the day must end


class Broken(Exception):
    """The demo cannot go on; the message says why."""


class Shop:
    """One day: set up, publish under fire, audit, fix, audit again."""

    def __init__(self, opts, where, screen):
        self.opts, self.dir, self.screen = opts, where, screen
        self.size, self.rng = Size(opts.small, ENGINES[opts.engine].packages), random.Random(
            opts.seed)
        self.pawl = os.path.abspath(os.environ.get("PAWL_BIN") or shutil.which("pawl") or "pawl")
        self.charge = os.environ.get("DEMO_CHARGE") or os.path.join(
            os.path.dirname(self.pawl), "demo", "charge")
        self.engine = ENGINES[opts.engine](where)
        self.ledger = os.path.join(where, "gateway-ledger.jsonl")
        self.requests = os.path.join(where, "gateway-requests.jsonl")
        self.gateway = self.chaos = self.publisher = None
        self.audit = audits.Audit(screen.finding)
        self.started = time.monotonic()
        self.notes = {}

    # --- the public command line ---

    def cli(self, *words, ok=(0,)):
        """Run one `pawl` command in the shop's directory; returns its standard output. While the
        server is coming up again, it is run again."""
        deadline = time.monotonic() + 30
        while True:
            done = subprocess.run([self.pawl, *words], cwd=self.dir, stdin=subprocess.DEVNULL,
                                  stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=60)
            if done.returncode not in self.engine.gone or time.monotonic() > deadline:
                break
            time.sleep(0.1)
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
        with open(os.path.join(HERE, "schema.sql")) as schema:
            self.engine.write(schema.read() + "INSERT INTO supplier(name) VALUES %s;" % ", ".join(
                "('%s')" % name for name in feed.SUPPLIERS))
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
                            ("PAWL", self.pawl), ("DB", self.engine.conf),
                            ("ENQUEUE", self.engine.enqueue)):
            conf = conf.replace("@%s@" % word, value)
        self.write_conf(conf)
        self.cli("init", "--db", self.engine.url)
        self.cli("conf", "check", "-c", "pawl.conf")
        self.cli("apply", "-c", "pawl.conf")
        self.screen.line("  gateway   127.0.0.1:%s; it answers 503, hangs, and charges without a "
                         "word" % said[1].decode())
        if self.engine.says:
            self.screen.line("  database  " + self.engine.says)

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
        publisher = subprocess.Popen([self.pawl, "enqueue", "--bulk", "-", "--db", self.engine.url],
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
        self.publish_file(path)

    def publish_file(self, path):
        with open(path + ".log", "wb") as log:
            self.publisher = subprocess.Popen(
                [self.pawl, "enqueue", "--bulk", path, "--db", self.engine.url],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        self.publisher.log, self.publisher.path = path + ".log", path

    def published(self):
        """True when no publisher is at work. One whose server was killed starts again; one that
        failed by itself is the end of the demo."""
        if self.publisher is None:
            return True
        code = self.publisher.poll()
        if code is None:
            return False
        if code in self.engine.gone:
            self.publish_file(self.publisher.path)      # again, from its first line
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
                                            chaos.Worker("worker-2", argv, self.dir)], size.kill_s,
                                 self.engine)
        for w in self.chaos.workers:
            w.start()
        begun = time.monotonic()
        self.chaos.begin(begun)
        self.publish_and_die(self.lines[:max(2500, n * 6 // 10)])
        say("  the publisher was killed with %s jobs stored; it starts again, from the first line" %
            format(self.accepted(), ","))
        fired, deadline = 0, begun + DAY_S_MAX
        while True:
            now = time.monotonic()
            if fired < len(waves) and self.published() and now >= begun + fired * size.wave_s:
                self.publish(fired, waves[fired])
                fired += 1
            over = fired == len(waves) and self.published()
            if over and now >= begun + size.waves * size.wave_s or self.chaos.kills >= size.kills:
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
        db = self.engine.read_only()
        try:
            return db.execute("SELECT count(*) FROM %s WHERE source <> ''" % self.engine.jobs
                              ).fetchone()[0]
        finally:
            db.close()

    def progress(self, now, begun):
        """One look at the shop's own tables, a few times a second. True if it looked."""
        if now - self.notes.get("looked", 0) < 0.25:
            return False
        self.notes["looked"] = now
        db = self.engine.read_only()
        try:
            events, paid, rows = [db.execute(q).fetchone()[0] for q in (
                "SELECT coalesce(sum(n), 0) FROM product_events",
                "SELECT count(charge) FROM orders", "SELECT count(*) FROM delivery")]
        except Unreachable:
            return False        # it is coming up again
        finally:
            db.close()
        self.screen.progress(now, "  %4.1f s   %2d kills   %s of %s events   %d of %d paid   "
                             "%s of %s rows" % (now - begun, self.chaos.kills, format(events, ","),
                                format(self.events, ","), paid, len(self.payable),
                                format(rows, ","), format(len(self.good), ",")))
        return True

    def idle(self):
        """Nothing due, waiting for a retry, or running, says the public command."""
        return all(q["due"] == q["later"] == q["running"] == 0 for q in self.cli_json("queues"))

    def close(self):
        """Nothing of ours is left running."""
        if self.chaos is not None:
            self.chaos.close()
        for process in (self.publisher, self.gateway):
            if process is not None and process.poll() is None:
                process.kill()
                process.wait()
        self.engine.close()
