#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""test_cli_dead.py - pawl dead: list, show, replay, discard, export."""
import base64
import datetime
import subprocess
import time
import unittest

from pawltest import PAWL, PawlTest
from stores import each_store

CONF = """[pawl]
db = sqlite:shop.db

[task fix]
sql = UPDATE stock SET qty = :qty WHERE sku = :sku
zero_rows = fail

[task price]
sql = INSERT INTO seen(sku, version) VALUES (:sku, :version)
entity = :sku
version = :version
"""


@each_store
class Dead(PawlTest):
    def setUp(self):
        super().setUp()
        self.conf(CONF)
        db = self.connect()
        db.execute("CREATE TABLE stock(sku TEXT PRIMARY KEY, qty INTEGER)")
        db.execute("INSERT INTO stock VALUES ('bolt', 1)")
        db.execute("CREATE TABLE seen(sku TEXT NOT NULL, version INTEGER CHECK (version <> 13))")

    def bury(self, n, sku="nut", key=None, run=True):
        """Enqueue n jobs that cannot be done, and let them die; their ids."""
        ids = []
        for i in range(n):
            words = ["--key", "%s-%d" % (key, i)] if key else []
            ids.append(self.enqueue("fix", '{"sku": "%s", "qty": %d}' % (sku, i), *words))
        if run:
            self.work()
        return ids

    def dead(self, *words):
        return [j["id"] for j in self.json("dead", "list", *words)]

    def test_list_filters(self):
        ids = self.bury(3)
        self.enqueue("fix", "{}")               # another dead one
        self.enqueue("fix", '{"sku":"bolt","qty":2}')
        before = datetime.datetime.now(datetime.timezone.utc).isoformat()
        self.work()
        self.assertEqual(self.dead(), ids + ["4"])
        self.assertEqual(self.dead("--task", "fix", "--class", "permanent"), ids + ["4"])
        self.assertEqual(self.dead("--class", "exhausted"), [])
        self.assertEqual(self.dead("--task", "price"), [])
        self.assertEqual(self.dead("--since", before), ["4"])
        self.assertEqual(self.dead("--since", "1h"), ids + ["4"])
        self.assertEqual(self.dead("--limit", "2"), ids[:2])
        self.fails(64, "dead", "list", "--class", "exausted", says="nearest is 'exhausted'")
        self.fails(64, "dead", "list", "--since", "soon", says="--since 'soon'")
        self.assertIn("permanent: ", self.ok("dead", "list"))

    def test_show_has_the_evidence(self):
        job = self.bury(1, key="k")[0]
        page = self.ok("dead", "show", job)
        self.assertRegex(page, r"(?s)^job 1  dead \(permanent\)\n.*key +k-0\n.*reason +\S.*"
                               r"attempt 1  permanent\n.*next: pawl dead replay 1 .*--args")
        shown = self.json("dead", "show", job)[0]
        self.assertEqual((shown["dead_class"], shown["key"]), ("permanent", "k-0"))
        self.assertEqual(len(shown["attempts"]), 1)
        attempt = shown["attempts"][0]
        self.assertEqual((attempt["n"], attempt["outcome"]), (1, "permanent"))
        for name in "started_at", "ended_at", "worker", "error":
            self.assertTrue(attempt[name], name)
        live = self.enqueue("other")
        self.fails(1, "dead", "show", live, says="is ready, not dead")
        self.fails(1, "dead", "show", "99")

    def test_replay_once_with_edited_args(self):
        job = self.bury(1, key="k")[0]
        self.fails(65, "dead", "replay", job, "--args", "{bad")
        out = self.json("dead", "replay", job, "--args", '{"sku": "bolt", "qty": 9}')[0]
        self.assertEqual((out["result"], out["new_id"], out["stale"]), ("replayed", "2", False))
        new = self.job("2")
        self.assertEqual((new["key"], new["replay_of"], new["root_id"], new["gen"]),
                         ("k-0", job, job, 1))
        self.assertEqual(self.job(job)["replayed_as"], "2")
        out = self.json("dead", "replay", job, code=1)[0]
        self.assertEqual((out["result"], out["new_id"]), ("already_replayed", "2"))
        self.work()
        self.assertEqual(self.sql("SELECT qty FROM stock"), [(9,)])
        self.assertEqual(self.dead(), [])
        self.assertEqual(self.dead("--replayed"), [job])
        # The ledger compares what was enqueued, and answers with the newest job of the root.
        answer = self.json("enqueue", "fix", '{"sku": "nut", "qty": 0}', "--key", "k-0")[0]
        self.assertEqual((answer["id"], answer["created"], answer["state"]), ("2", False, "done"))
        self.assertIn("shows the replay", self.ok("job", job))

    def test_replay_keeps_the_bytes(self):
        text = '{"sku":  "nut",\t"qty":1.50}'
        job = self.enqueue("fix", text)
        self.work()
        self.ok("dead", "replay", job)
        self.assertEqual(self.sql("SELECT args FROM pawl_jobs ORDER BY id"), [(text,), (text,)])

    def test_second_replay_needs_again_and_a_reason(self):
        job = self.bury(1)[0]
        self.ok("dead", "replay", job)
        self.fails(64, "dead", "replay", job, "--again", says="--reason")
        self.fails(64, "dead", "replay", job, "--reason", "r", says="belongs to --again")
        out = self.json("dead", "replay", job, "--again", "--reason", "the first was cancelled")
        self.assertEqual(out[0]["new_id"], "3")

    def test_negative_answers(self):
        live = self.enqueue("other")
        out = self.json("dead", "replay", live, "99", code=1)
        self.assertEqual([o["result"] for o in out], ["not_dead", "not_found"])
        out = self.json("dead", "replay", live, "99", "--dry-run", code=1)
        self.assertEqual([o["result"] for o in out], ["not_dead", "not_found"])
        self.fails(1, "dead", "replay", "--all", says="no dead job matches")
        for words, says in (([], "give ids, or a filter"), (["1", "--all"], "not both"),
                            (["--all", "--args", "{}"], "exactly one id"),
                            (["--all", "--again", "--reason", "r"], "needs ids"),
                            (["x"], "not a job id"), (["--all", "--rate", "0/s"], "such as 10/s"),
                            (["--all", "--rate", "5/d"], "such as 10/s"),
                            (["--class", "nope"], "no such class")):
            with self.subTest(words=words):
                self.fails(64, "dead", "replay", *words, says=says)

    def test_replay_by_filter_is_bounded_to_what_was_there(self):
        """Goal: jobs that die again at once are not replayed by the same run."""
        ids = self.bury(20)
        worker = self.start_worker("-c", "pawl.conf")
        out = self.ok("dead", "replay", "--task", "fix", "--rate", "100/s")
        self.assertIn("20 replayed, 0 of them stale, 0 left as they are\n", out)
        self.wait_until(lambda: len(self.dead()) == 20, what="the replays died too")
        self.stop_worker(worker)
        self.assertEqual(self.sql("SELECT count(*), max(gen) FROM pawl_jobs"), [(40, 1)])
        self.assertEqual(self.dead(), [str(i) for i in range(21, 41)])
        self.assertEqual(self.dead("--replayed"), ids + self.dead())

    def test_rate_spreads_the_replays(self):
        self.bury(6)
        began = time.monotonic()
        self.ok("dead", "replay", "--all", "--rate", "10/s")
        self.assertGreater(time.monotonic() - began, 0.45)
        times = [row[0] for row in self.sql("SELECT created_at_us FROM pawl_jobs WHERE gen = 1 "
                                            "ORDER BY id")]
        self.assertEqual(len(times), 6)
        self.assertGreater(times[-1] - times[0], 450000)

    def test_dry_run_changes_nothing(self):
        ids = self.bury(3)
        self.ok("dead", "replay", ids[0])
        before = self.sql("SELECT count(*) FROM pawl_jobs")
        out = self.json("dead", "replay", "--all", "--dry-run")
        self.assertEqual([(o["id"], o["result"]) for o in out],
                         [(i, "would_replay") for i in ids[1:]])
        self.assertIn("2 would be replayed", self.ok("dead", "replay", "--all", "--dry-run"))
        out = self.json("dead", "replay", ids[0], "--dry-run", code=1)
        self.assertEqual(out[0]["result"], "already_replayed")
        self.assertEqual(self.sql("SELECT count(*) FROM pawl_jobs"), before)

    def test_stale_is_said_beforehand(self):
        # Version 13 is refused by the CHECK of the table.
        old = self.enqueue("price", '{"sku":"bolt","version":13}', "--key", "v13")
        self.work()
        self.assertEqual(self.dead(), [old])
        self.enqueue("price", '{"sku":"bolt","version":14}', "--key", "v14")
        self.work()
        out = self.json("dead", "replay", old, "--dry-run")[0]
        self.assertEqual((out["result"], out["stale"]), ("would_replay", True))
        self.assertIn("1 of them stale", self.ok("dead", "replay", "--all", "--dry-run"))
        self.assertIn("will be stale", self.ok("dead", "replay", old))
        self.work()
        self.assertEqual(self.job("3")["outcome"], "stale")
        self.assertEqual(self.sql("SELECT version FROM seen"), [(14,)])

    def test_two_operators_and_a_double_click(self):
        """Goal: whoever replays at the same time, each dead job is replayed once."""
        ids = self.bury(10)
        running = [subprocess.Popen([PAWL, "dead", "replay", *ids], cwd=self.dir,
                                    env=self.env(), stdout=subprocess.PIPE,
                                    stderr=subprocess.PIPE) for _ in range(6)]
        outs = [p.communicate()[0].decode() for p in running]
        self.assertEqual(sum(out.count(" replayed as ") - out.count("already replayed as ")
                             for out in outs), 10, outs)
        self.assertEqual(self.sql("SELECT count(*), count(DISTINCT replay_of) FROM pawl_jobs "
                                  "WHERE gen = 1"), [(10, 10)])
        for p in running:
            self.assertIn(p.returncode, (0, 1))

    def test_discard_needs_a_reason_and_keeps_it(self):
        ids = self.bury(2)
        self.fails(64, "dead", "discard", ids[0], says="--reason")
        self.fails(64, "dead", "discard", ids[0], "--reason", "", says="--reason")
        self.assertEqual(self.ok("dead", "discard", ids[0], "--reason", "a test order"),
                         ids[0] + " discarded\n")
        job = self.job(ids[0])
        self.assertEqual((job["state"], job["outcome"]), ("dropped", "discarded"))
        self.assertIn("a test order", job["reason"])
        self.assertEqual(self.dead(), ids[1:])
        out = self.json("dead", "discard", ids[0], ids[1], "99", "--reason", "r", code=1)
        self.assertEqual([o["result"] for o in out], ["too_late", "discarded", "not_found"])

    def test_export_is_complete_and_byte_exact(self):
        odd = [b'{"sku":  "nut",\n "qty": 9007199254740993 }', b'{"sku":"\xff"}']
        db = self.connect()
        if self.store.can("any_bytes"):
            for text in odd:
                db.execute("INSERT INTO pawl_enqueue(task, args) VALUES ('fix', CAST(? AS TEXT))",
                           (text,))
        else:
            self.store.enqueue(db, "fix", odd[0].decode())
            with self.assertRaisesRegex(self.store.error, "invalid byte sequence"):
                self.store.enqueue(db, "fix", odd[1])
            self.enqueue("fix", "{}")
        self.work()
        out = self.json("dead", "export")
        self.assertEqual([o["id"] for o in out], ["1", "2"])
        self.assertEqual(out[0]["args_text"].encode(), odd[0])
        self.assertEqual(out[0]["args"], {"sku": "nut", "qty": 9007199254740993})
        if self.store.can("any_bytes"):
            self.assertEqual(base64.b64decode(out[1]["args_base64"]), odd[1])
            self.assertNotIn("args", out[1])
            self.assertEqual(out[1]["dead_class"], "undecodable")
        self.assertEqual(out[0]["dead_class"], "permanent")
        for o in out:
            self.assertEqual(o["attempts_n"], len(o["attempts"]))
        self.assertEqual(out, [self.json("dead", "show", o["id"])[0] for o in out])
        self.ok("dead", "discard", "1", "--reason", "r")
        self.assertEqual([o["id"] for o in self.json("dead", "export")], ["2"])
        self.assertEqual(self.json("dead", "export", "--task", "none"), [])


if __name__ == "__main__":
    unittest.main()
