# SPDX-License-Identifier: Apache-2.0
"""evening.py - after the day: the audit, the operator's fix, the second audit, and the verdict."""
import json
import subprocess
import time
from collections import Counter

import audit as audits
import feed
from day import Shop


class Evening(Shop):
    """What is done with a day that is over."""

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
        """For the tests: break the outcome behind everybody's back; the audit must see it."""
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
                      "row": "DELETE FROM delivery WHERE row ="
                             " (SELECT min(row) FROM delivery)"}[what]
            self.engine.write(change)

    def evening(self):
        self.notes["poison"] = self.replay_poison()
        self.sabotage()
        self.screen.title("The audit, from outside: the database read-only, and the gateway's own "
                          "books")
        db = self.engine.read_only()
        try:
            self.notes["late"] = self.events - db.execute("SELECT sum(changes) FROM product"
                                                          ).fetchone()[0]
            audits.products(self.audit, db, self.newest, self.sent)
            ledger = audits.json_lines(self.ledger)
            audits.payments(self.audit, db, ledger, self.payable, self.orders)
            audits.deliveries(self.audit, db, self.good, "all %s sound ones imported once" %
                              format(len(self.good), ","))
            must_say = {kind: words for kind, words, _ in feed.MALFORMED}
            expected = {("import_row", row): must_say[kind] for row, (kind, _) in self.bad.items()}
            expected.update({("charge", o["order"]): o["card"].partition(":")[2]
                             for o in self.orders if o["order"] not in self.payable})
            letters = [d for d in self.dead() if d["dead_class"] != "poison"]
            audits.dead_letters(self.audit, letters, expected, "dead letters: %d malformed rows and"
                                " %d declined cards, each with its own reason" % (
                                    len(self.bad), len(self.orders) - len(self.payable)))
            audits.conservation(self.audit, db, self.engine.jobs, self.accepted_jobs())
        finally:
            db.close()
        self.audit.line(True, "workers: %d starts, each death was one of our %d kills; drained at"
                        " the end" % (sum(w.starts for w in self.chaos.workers), self.chaos.kills),
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
        say("  %3d rows corrected one by one       pawl dead replay ID --args '{…}'" %
            len(by_args))
        conf = self.read_conf().replace(":qty, :vat)", ":qty, coalesce(:vat, 19))\noptional = vat")
        self.write_conf(conf)
        self.cli("conf", "check", "-c", "pawl.conf")
        self.cli("enqueue", "add_supplier", json.dumps({"name": feed.NEWCOMER}), "--key", "fix-1",
                 "--db", self.engine.url)
        self.cli("dead", "replay", "--task", "import_row", "--class", "permanent", "--all",
                 "--db", self.engine.url)
        say("  %3d rows replayed after two fixes   pawl dead replay --task import_row --all" %
            (len(self.bad) - len(by_args)))
        say("%38s(optional = vat in pawl.conf; supplier %s added)" % ("", feed.NEWCOMER))
        declined = [d["id"] for d in letters if d["task"] == "charge"]
        for letter in declined:
            self.cli("dead", "discard", letter, "--reason", "card declined; the customer was told")
        say("  %3d declined orders given up        pawl dead discard ID --reason TEXT" %
            len(declined))
        self.cli("dead", "replay", "--task", "import_row", "--all", "--db", self.engine.url,
                 ok=(0, 1))
        if shown:
            self.cli("dead", "replay", shown, "--db", self.engine.url, ok=(1,))
        say("  and all replayed again, by a colleague who did not know: nothing happens twice")
        self.work_off()

    def second_audit(self):
        self.screen.title("The audit after the fix")
        db = self.engine.read_only()
        try:
            rows = dict(self.good)
            rows.update({row: meant for row, (_, meant) in self.bad.items()})
            audits.deliveries(self.audit, db, rows, "all %s imported once, the replayed ones too" %
                              format(len(rows), ","))
            audits.products(self.audit, db, self.newest, self.sent)
            ledger = audits.json_lines(self.ledger)
            audits.payments(self.audit, db, ledger, self.payable, self.orders)
            left = [d for d in self.dead() if not d.get("replayed_as")]
            self.audit.line(True, "dead letters: none that nobody took care of",
                            ["job %s: %s" % (d["id"], d["reason"]) for d in left])
            audits.conservation(self.audit, db, self.engine.jobs,
                                dict(self.accepted_jobs(), add_supplier=1))
        finally:
            db.close()
        done = subprocess.run([self.pawl, "check", "--db", self.engine.url], stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, timeout=60)
        said = done.stdout.decode("utf-8", "replace").strip().splitlines()
        self.audit.line(done.returncode == 0, "pawl check: %s" % "".join(said[-1:]),
                        said[:-1] if done.returncode else ())

    def verdict(self):
        say, notes = self.screen.line, self.notes
        did = Counter(line["did"] for line in audits.json_lines(self.requests))
        stats = self.cli_json("stats")[0]
        killed = self.chaos.killed
        seconds = time.monotonic() - self.started
        if self.audit.failed:
            all_n = self.audit.failed + self.audit.passed
            self.screen.title(self.screen.paint(
                "31", "%d of %d findings are wrong. Pawl did not keep its promise." % (
                    self.audit.failed, all_n)))
        else:
            self.screen.title("Nothing lost, nothing doubled: %d of %d findings are right." % (
                self.audit.passed, self.audit.passed))
        say("  %s events in %.0f s; %s duplicates absorbed, %s events came too late to matter" % (
            format(self.distinct, ","), notes["day"], format(stats.get("duplicates", 0), ","),
            format(notes["late"], ",")))
        say("  %d kills survived: %d workers, %d programs and runners at work, %d times all at once"
            "%s" % (self.chaos.kills, killed["supervisor"], killed["child"], killed["everything"],
               ", %d times the database server" % killed["server"] if self.engine.says else ""))
        say("  %d charges took %d requests: %d outages, %d timeouts, %d charged without a word;" % (
            len(self.payable), sum(did.values()), did["503"], did["hang"] + did["charged_late"],
            did["charged_lost"]))
        say("  %d times the gateway was asked again for what it had charged, and charged nothing" %
            did["replayed"])
        if notes["poison"]:
            say("  %d jobs were shot so often that Pawl took them for poison; the operator replayed"
                " them" % notes["poison"])
        if "WAL-reset fault" in "".join(self.chaos.workers[0].said()[:1]):
            say("  This pawl is linked with an old SQLite, which two workers may damage (rarely).")
            say("  That is fine for a demo, not for a shop: README tells of the bundled one.")
        say("  %.0f seconds in all, seed %d. Now see what the naive way does: ./run demo naive" % (
            seconds, self.opts.seed))
