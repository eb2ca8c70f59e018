#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""test_case_order.py - field cases about order: late, equal and racing versions. 50 51."""
import random
import unittest

from fieldkit import FieldTest
from stores import each_store

TIMEOUT = 90

# Neither statement looks at the version: only Pawl's guard stands between v3 and an old v2. The
# first holds the product's row until the commit, so that n of the second is the order of commits.
APPLY = """
[task apply]
sql = INSERT INTO product(sku, version, body) SELECT :sku, :version, :body
      WHERE :version NOT IN (SELECT version FROM blocked)
      ON CONFLICT (sku) DO UPDATE SET version = excluded.version, body = excluded.body
sql = INSERT INTO applied(sku, version, body) SELECT :sku, :version, :body
      WHERE :version NOT IN (SELECT version FROM blocked)
zero_rows = retry
entity = :sku
version = :version
backoff = 10ms..30ms
max_retries = 1000
"""


@each_store
class Versions(FieldTest):
    more = APPLY

    def setUp(self):
        super().setUp()
        self.sql("CREATE TABLE product(sku TEXT PRIMARY KEY, version INTEGER, body TEXT)")
        self.sql("CREATE TABLE applied(n INTEGER PRIMARY KEY, sku TEXT, version INTEGER,"
                 " body TEXT)")
        self.sql("CREATE TABLE blocked(version INTEGER)")

    def publish(self, version, body, *more):
        args = '{"sku":"sku-1","version":%d,"body":"%s"}' % (version, body)
        return self.enqueue("apply", args, *more)

    def wait_end(self, job):
        self.wait_until(lambda: self.job(job)["ended_at"] is not None, 15, "the end of job " + job)
        page = self.job(job)
        return page["state"], page["outcome"] or page["dead_class"]

    def case_50_older_event_after_a_newer_one_changes_nothing(self):
        workers = [self.worker() for _ in range(4)]
        self.sql("INSERT INTO blocked VALUES (2)")
        dead = self.publish(2, "two", "--max-retries", "0")
        self.assertEqual(self.wait_end(dead), ("dead", "exhausted"))
        late = self.publish(2, "two", "--key", "v2")
        self.wait_until(lambda: self.job(late)["failures"] >= 2, 15, "v2 has failed twice")
        self.assertEqual(self.wait_end(self.publish(3, "three")), ("done", "done"))
        self.sql("DELETE FROM blocked")                     # from now on v2 could be written
        self.assertEqual(self.wait_end(late), ("done", "stale"))
        self.assertEqual(self.wait_end(self.publish(1, "one")), ("done", "stale"))
        self.assertEqual(self.wait_end(self.publish(3, "three")), ("done", "stale"))
        clash = self.publish(3, "another three")
        self.assertEqual(self.wait_end(clash), ("dead", "conflict"))
        self.assertRegex(self.job(clash)["error"], "version 3 .*other args")
        self.assertIs(self.json("dead", "replay", dead, "--dry-run")[0]["stale"], True)
        again = self.json("dead", "replay", dead)[0]["new_id"]
        self.assertEqual(self.wait_end(again), ("done", "stale"))
        self.assertEqual(self.sql("SELECT version, body FROM product"), [(3, "three")])
        self.assertEqual(self.sql("SELECT version, body FROM applied"), [(3, "three")])
        self.assertEqual(self.job(again)["attempts_n"], 0)  # stale is a success: no error, no retry
        self.assertEqual(self.stats()["stale"], 4)
        for worker in workers:
            self.assertEqual(self.stop_worker(worker), 0)

    def case_51_versions_only_rise_whoever_runs_them(self):
        rng = random.Random(51)
        events = [("one", v) for v in range(1, 1001)]
        events += [("sku-%d" % i, v) for i in range(50) for v in range(1, 21)]
        rng.shuffle(events)
        workers = [self.worker() for _ in range(4)]
        for at in range(0, len(events), 400):
            self.bulk({"task": "apply", "args": {"sku": sku, "version": v, "body": "b%d" % v}}
                      for sku, v in events[at:at + 400])
        self.wait_until(lambda: self.count("done") == len(events), 40, "all events are done")
        self.assertEqual(self.sql("SELECT sku FROM product WHERE body <> 'b' || version"
                                  " OR version <> CASE sku WHEN 'one' THEN 1000 ELSE 20 END"), [])
        self.assertEqual(self.sql("SELECT count(*) FROM product"), [(51,)])
        self.assertEqual(self.sql("SELECT a.n FROM applied a JOIN applied b"
                                  " ON b.sku = a.sku AND b.n > a.n"
                                  " WHERE b.version <= a.version"), [])
        outcomes = dict(self.sql("SELECT outcome, count(*) FROM pawl_jobs GROUP BY 1"))
        self.assertEqual(outcomes["done"], self.sql("SELECT count(*) FROM applied")[0][0])
        self.assertEqual(outcomes["done"] + outcomes["stale"], len(events))
        for worker in workers:
            self.assertEqual(self.stop_worker(worker), 0)

    def case_51_older_version_that_ends_later_is_stale_although_it_began_first(self):
        """Two programs of one entity at once: both passed the check at the start."""
        worker = self.worker()
        old = self.act("wait:go who", "--entity", "sku-1", "--version", "2")
        self.wait_attempts(old, 1)
        new = self.act("who", "--entity", "sku-1", "--version", "3")
        self.assertEqual(self.wait_end(new), ("done", "done"))
        self.touch("go")
        self.assertEqual(self.wait_end(old), ("done", "stale"))
        self.assertIsNone(self.job(old)["result"])
        self.assertEqual(len(self.attempts()), 2)
        self.assertEqual(self.stop_worker(worker), 0)


if __name__ == "__main__":
    unittest.main()
