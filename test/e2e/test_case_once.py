#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""test_case_once.py - field cases about exactly once: ledger, stable key, kill -9. 34 37 40 41."""
import http.server
import random
import sys
import threading
import time
import unittest

from fieldkit import FieldTest
from stores import each_store

TIMEOUT = 150
BOTH_LINKS = True


@each_store
class Ledger(FieldTest):
    def deliveries(self):
        """The same event again, through each door: ids and whether it was taken for new."""
        answer = self.json("enqueue", "effect", '{"value":1}', "--key", "e1", "--source", "shop")[0]
        out = [(answer["id"], answer["created"])]
        line = '{"task":"effect","args":{"value":1},"key":"e1","source":"shop"}\n'
        self.assertRegex(self.ok("enqueue", "--bulk", "-", stdin=line), r"\b0 new, 1 duplicate")
        db = self.connect()
        db.execute("BEGIN IMMEDIATE")
        job, created = self.store.enqueue(db, "effect", '{"value":1}', key="e1", source="shop")
        db.execute("COMMIT")
        return out + [(str(job), created)]

    def case_34_pruned_job_is_still_known_by_its_key(self):
        job = self.enqueue("effect", '{"value":1}', "--key", "e1", "--source", "shop")
        self.work()
        self.assertEqual(self.json("prune", "--done-older", "0")[0]["jobs"], 1)
        self.assertEqual(self.sql("SELECT count(*) FROM pawl_jobs"), [(0,)])
        self.assertEqual(self.deliveries(), [(job, False)] * 2)
        self.fails(65, "enqueue", "effect", '{"value":2}', "--key", "e1", "--source", "shop")
        db = self.connect()
        with self.assertRaisesRegex(self.store.error, "other args"):
            self.store.enqueue(db, "effect", '{"value":2}', key="e1", source="shop")
        self.work()
        self.assertEqual(len(self.fx()), 1)

    def case_34_key_outlives_its_job_whatever_its_window_says(self):
        self.effect_policy = "key_window = 0\nretention = 7d"
        self.write_conf()
        job = self.enqueue("effect", '{"value":1}', "--key", "e1", "--source", "shop")
        self.work()
        pruned = self.json("prune")[0]
        self.assertEqual((pruned["jobs"], pruned["keys"]), (0, 0))
        self.assertEqual(self.deliveries(), [(job, False)] * 2)

    def case_34_key_of_a_live_or_dead_job_is_never_pruned(self):
        waits = self.enqueue("effect", "{}", "--key", "later", "--in", "1h")
        dead = self.enqueue("act", '"exit:65"', "--key", "dead")
        self.work()
        self.assertEqual(self.job(dead)["state"], "dead")
        self.assertEqual(self.json("prune", "--done-older", "0", "--keys-older", "0")[0]["keys"], 0)
        again = [self.json("enqueue", "effect", "{}", "--key", "later")[0],
                 self.json("enqueue", "act", '"exit:65"', "--key", "dead")[0]]
        self.assertEqual([(a["id"], a["created"], a["state"]) for a in again],
                         [(waits, False, "ready"), (dead, False, "dead")])

    def case_34_ledger_is_pruned_in_bounded_batches(self):
        """Other writers get their turn between the batches; none of them is long."""
        self.bulk({"task": "effect", "args": {"value": i}, "key": "k%d" % i} for i in range(2500))
        self.work()
        size = self.sql("SELECT sum(length(coalesce(result, '')) + length(key))"
                        " FROM pawl_x_key")[0][0]
        self.assertLess(size, 2500 * 100)
        out = self.json("prune", "--done-older", "0")[0]
        self.assertEqual(out["jobs"], 2500)
        self.assertGreaterEqual(out["batches"], 5)
        self.assertEqual((out["keys"], self.stats()["keys"]), (0, 2500))


class Sink(http.server.BaseHTTPRequestHandler):
    """An outside service: notes each request, and answers late when it is told to."""
    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        self.server.seen.append((self.headers["Idempotency-Key"], self.headers["Attempt"]))
        self.server.late.wait(20)
        try:
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()
        except OSError:
            pass                                # the caller did not wait

    def log_message(self, *args):
        pass


PUSH = r"""import os, signal, sys, urllib.request
request = urllib.request.Request(sys.argv[1], data=sys.stdin.buffer.read(), headers={
    "Idempotency-Key": os.environ["PAWL_IDEMPOTENCY_KEY"], "Attempt": os.environ["PAWL_ATTEMPT"]})
try:
    urllib.request.urlopen(request, timeout=float(sys.argv[2])).read()
except OSError:
    print("no answer in time: outcome unknown", file=sys.stderr)
    sys.exit(75)
if sys.argv[3:] == ["die"]:
    os.kill(os.getpid(), signal.SIGKILL)
"""


@each_store
class Outside(FieldTest):
    def sink(self, late):
        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Sink)
        server.daemon_threads = True
        server.seen, server.late = [], threading.Event()
        if not late:
            server.late.set()
        threading.Thread(target=server.serve_forever, daemon=True).start()
        self.addCleanup(server.server_close)
        self.addCleanup(server.shutdown)
        self.addCleanup(server.late.set)
        self.script("push.py", PUSH)
        url = "http://127.0.0.1:%d/orders" % server.server_port
        self.write_conf("\n[task push]\nexec = '%s' push.py %s 0.5\nmax_retries = 2\n"
                        "backoff = 10ms..50ms\n"
                        "\n[task push-die]\nexec = '%s' push.py %s 20 die\nlost_cap = 3\n"
                        % (sys.executable, url, sys.executable, url))
        return server

    def case_37_answer_that_comes_too_late_is_retried_under_the_same_key(self):
        sink = self.sink(late=True)
        job = self.enqueue("push", '{"order":7}')
        self.work()
        page = self.job(job)
        self.assertEqual((page["state"], page["dead_class"]), ("dead", "exhausted"))
        self.assertEqual([n for _, n in sink.seen], ["1", "2", "3"])
        self.assertEqual(len({key for key, _ in sink.seen}), 1)
        for attempt in page["attempts"]:
            self.assertEqual(attempt["outcome"], "transient")
            self.assertIn("outcome unknown", attempt["error"])
        self.assertNotIn("not delivered", self.ok("dead", "show", job))
        sink.late.set()                         # the service is well again
        replayed = self.json("dead", "replay", job)[0]["new_id"]
        self.work()
        self.assertEqual(self.job(replayed)["state"], "done")
        self.assertEqual(len(sink.seen), 4)
        self.assertEqual(len({key for key, _ in sink.seen}), 1)
        other = self.enqueue("push", '{"order":7}')         # another order, equal content
        self.work()
        self.assertEqual(self.job(other)["state"], "done")
        self.assertEqual(len({key for key, _ in sink.seen}), 2)

    def case_37_child_killed_after_the_call_repeats_it_under_the_same_key(self):
        sink = self.sink(late=False)
        job = self.enqueue("push-die", '{"order":8}', "--key", "o-8")
        self.work()
        page = self.job(job)
        self.assertEqual((page["state"], page["dead_class"]), ("dead", "poison"))
        self.assertEqual([n for _, n in sink.seen], ["1", "2", "3"])
        self.assertEqual(len({key for key, _ in sink.seen}), 1)
        self.assertEqual([(x["outcome"], x["signal"]) for x in page["attempts"]], [("lost", 9)] * 3)
        self.assertNotIn("not delivered", self.ok("dead", "show", job))


# Some milliseconds of work inside the transaction, so that a kill finds it there.
GRIND = """
[task grind]
sql = INSERT INTO fx(job_id, attempt, key)
      SELECT :job_id, :job_attempt, :job_key FROM
      (WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c WHERE x < 8000)
       SELECT max(x) FROM c) AS t
lost_cap = 100
"""


@each_store
class Crash(FieldTest):
    act_policy = effect_policy = "lost_cap = 100"
    more = GRIND

    def ids(self, task):
        return [row[0] for row in self.sql("SELECT id FROM pawl_jobs WHERE task = ?", (task,))]

    def case_40_nothing_is_lost_or_doubled_when_everything_is_killed_again_and_again(self):
        grind_n, act_n, rng = 400, 80, random.Random(40)
        self.bulk({"task": rng.choice(["grind"] * 5 + ["act"]), "args": "sleep:0.03 effect"}
                  for _ in range(grind_n + act_n))
        grind, act = self.ids("grind"), self.ids("act")
        done = 0
        for _ in range(10):
            workers = [self.worker(ready=False), self.worker(ready=False)]
            goal = done + rng.randint(1, 60)
            self.wait_until(lambda g=goal: self.count("done") >= g, 30, "%d jobs are done" % goal)
            time.sleep(rng.random() * 0.05)     # the moment of the kill is the point, not a wait
            self.kill_all(*workers)
            done = self.count("done")
            if self.count("ready") + self.count("running") < 60:
                break
        self.assertGreater(len(self.workers), 6, "too few kills: this run proved nothing")
        self.work()
        self.assertEqual(self.count("done"), len(grind) + 2 * len(act))
        effects = [row[0] for row in self.sql("SELECT job_id FROM fx JOIN pawl_jobs ON id = job_id"
                                              " WHERE task = 'grind'")]
        self.assertEqual(sorted(effects), sorted(grind))
        self.assertEqual(self.sql("SELECT count(*), count(DISTINCT f.key) FROM fx f"
                                  " JOIN pawl_jobs ON id = job_id WHERE task = 'effect'"),
                         [(len(act), len(act))])
        self.assertGreaterEqual(len(self.attempts()), len(act))

    def case_41_jobs_due_together_all_run_although_workers_die_at_that_moment(self):
        rng = random.Random(41)
        at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + 3))
        self.bulk({"task": "grind" if i < 420 else "act", "args": "ok", "run_at": at}
                  for i in range(503))
        grind, act = self.ids("grind"), self.ids("act")
        far = self.enqueue("grind", "{}", "--at", "2100-01-01T00:00:00Z")
        other = self.enqueue("grind", "{}", "--queue", "other", "--at", at)
        worker = self.worker("-q", "default")
        self.assertEqual(self.count("done"), 0)
        self.wait_until(lambda: self.count("done") > 0, 20, "the moment has come")
        for _ in range(10):
            time.sleep(rng.random() * 0.06)     # as above
            self.kill_all(worker)
            worker = self.worker("-q", "default", ready=False)
            before = self.count("done")
            self.wait_until(lambda: self.count("done") > before or self.left() == 0, 20, "progress")
        self.wait_until(lambda: self.left() == 0, 40, "all 503 are done")
        self.assertEqual(self.stop_worker(worker), 0)
        self.assert_each_once(grind)
        self.assertEqual({a.job for a in self.attempts()}, {str(i) for i in act})
        for job in (far, other):
            page = self.job(job)
            self.assertEqual((page["state"], page["runs"], page["attempts_n"]), ("ready", 0, 0))

    def left(self):
        return 503 - self.count("done")

    def case_41_jobs_due_while_the_store_cannot_be_written_all_run_later(self):
        worker = self.worker()
        at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + 2))
        self.bulk({"task": "effect", "run_at": at} for _ in range(503))
        lock = self.connect()
        self.store.keep_out(lock)
        due = time.time() + 2
        self.wait_until(lambda: time.time() > due + 1, 10, "a second after the due time")
        self.assertEqual(self.count("done"), 0)
        lock.execute("ROLLBACK")
        self.wait_until(lambda: self.left() == 0, 20, "all 503 are done")
        self.assert_each_once(self.ids("effect"))
        self.assertEqual(self.stop_worker(worker), 0)


if __name__ == "__main__":
    unittest.main()
