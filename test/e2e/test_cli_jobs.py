#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""test_cli_jobs.py - jobs job cancel run-now pause resume queues stats check prune debug."""
import re
import time
import unittest

from pawltest import PawlTest
from stores import each_store, no_store

CONF = """[pawl]
db = sqlite:shop.db

[task note]
sql = INSERT INTO note(text) VALUES (:text)

[task slow]
sql = INSERT INTO note(text) VALUES ('slow')
queue = slow
"""


@each_store
class Jobs(PawlTest):
    def setUp(self):
        super().setUp()
        self.conf(CONF)
        self.sql("CREATE TABLE note(text TEXT)")

    def ids(self, *words):
        return [int(j["id"]) for j in self.json("jobs", *words)]

    def test_list_filters_and_order(self):
        for words in (["a"], ["b", "{}", "--queue", "q"], ["a", "{}", "--key", "k"],
                      ["a", "{}", "--key", "k", "--source", "s"], ["b", "{}", "--in", "1h"]):
            self.ok("enqueue", *words)
        self.assertEqual(self.ids(), [1, 2, 3, 4, 5])
        self.assertEqual(self.ids("--task", "a"), [1, 3, 4])
        self.assertEqual(self.ids("--queue", "q"), [2])
        self.assertEqual(self.ids("--key", "k"), [3, 4])
        self.assertEqual(self.ids("--key", "k", "--source", "s"), [4])
        self.assertEqual(self.ids("--state", "ready", "--task", "b"), [2, 5])
        self.assertEqual(self.ids("--state", "done"), [])
        self.assertEqual(self.ids("--limit", "2"), [1, 2])
        self.assertEqual(self.ids("--limit", "0"), [1, 2, 3, 4, 5])
        self.assertEqual(self.ids("--task", "nobody"), [])
        self.fails(64, "jobs", "--state", "redy", says="nearest is 'ready'")
        self.fails(64, "jobs", "--limit", "x", says="whole number")

    def test_plain_rows_are_tab_separated(self):
        self.ok("enqueue", "a", "{}", "--key", "k")
        rows = [line.split("\t") for line in self.ok("jobs").splitlines()]
        self.assertEqual(rows, [["1", "ready", "a", "default", "k", "0", "due"]])

    def test_job_page_and_hints(self):
        due = self.enqueue("note", '{"text":"x"}')
        later = self.enqueue("note", '{"text":"y"}', "--in", "1h")
        self.assertRegex(self.ok("job", due), r"(?s)^job 1  ready\n.*args +\{\"text\":\"x\"\}\n.*"
                                             r"next: it is due .* task note and queue default")
        self.assertIn("next: pawl run-now 2 skips the wait; pawl cancel 2\n", self.ok("job", later))
        self.work()
        page = self.ok("job", due)
        self.assertRegex(page, r"^job 1  done\n")
        self.assertNotIn("next:", page)
        self.assertEqual(self.job(due)["outcome"], "done")
        self.fails(1, "job", "77", says="77")
        self.fails(64, "job", "x", says="not a job id")
        self.fails(64, "job", "0", says="not a job id")
        self.fails(64, "job", "99999999999999999999", says="not a job id")

    def test_cancel_answers_truthfully(self):
        waits, done = self.enqueue("other"), self.enqueue("note", '{"text":"x"}')
        self.work()
        out = self.json("cancel", waits, done, "99", code=1)
        self.assertEqual(out, [{"id": waits, "result": "cancelled", "state": "cancelled"},
                               {"id": done, "result": "too_late", "state": "done"},
                               {"id": "99", "result": "not_found", "state": None}])
        self.assertEqual(self.job(waits)["state"], "cancelled")
        self.assertEqual(self.job(done)["state"], "done")
        done = self.pawl("cancel", waits)
        self.assertEqual((done.code, done.out), (1, "%s too late: it is cancelled\n" % waits))
        again = self.enqueue("other")
        self.assertEqual(self.ok("cancel", again), again + " cancelled\n")

    def test_bad_id_among_good_ones_changes_nothing(self):
        job = self.enqueue("other")
        self.fails(64, "cancel", job, "x", says="'x' is not a job id")
        self.assertEqual(self.job(job)["state"], "ready")

    def test_run_now_skips_the_wait(self):
        job = self.enqueue("note", '{"text":"x"}', "--in", "1h")
        self.work()
        self.assertEqual(self.job(job)["state"], "ready")
        self.assertEqual(self.json("run-now", job),
                         [{"id": job, "result": "due", "state": "ready"}])
        self.work()
        self.assertEqual(self.job(job)["state"], "done")
        out = self.json("run-now", job, "99", code=1)
        self.assertEqual([o["result"] for o in out], ["too_late", "not_found"])
        self.assertEqual(out[0]["state"], "done")

    def test_run_now_of_a_dead_job_names_the_right_verb(self):
        job = self.enqueue("note", "{}")                # :text is missing: permanent
        self.work()
        done = self.pawl("run-now", job)
        self.assertEqual((done.code, done.out), (1, job + " too late: it is dead\n"))
        self.assertIn("use dead replay", done.err)

    def test_pause_and_resume(self):
        self.enqueue("note", '{"text":"x"}')
        self.ok("pause", "default")
        self.work()
        self.assertEqual(self.sql("SELECT * FROM note"), [])
        self.enqueue("note", '{"text":"y"}')            # enqueue still works
        self.assertIs(self.json("queues")[0]["paused"], True)
        self.assertEqual(self.json("resume", "default"), [{"queue": "default", "paused": False}])
        self.work()
        self.assertEqual(self.sql("SELECT text FROM note ORDER BY 1"), [("x",), ("y",)])
        self.assertEqual(self.json("pause", "--task", "note"), [{"task": "note", "paused": True}])
        job = self.enqueue("note", '{"text":"z"}')
        self.work()
        self.assertEqual(self.job(job)["state"], "ready")
        self.ok("resume", "--task", "note")
        self.work()
        self.assertEqual(self.job(job)["state"], "done")
        self.fails(1, "pause", "nobody")
        self.fails(1, "resume", "--task", "nobody")
        self.fails(64, "pause", says="give a QUEUE")
        self.fails(64, "pause", "q", "--task", "t", says="give a QUEUE")

    def test_queues_count(self):
        for words in (["note"], ["note", "{}", "--in", "1h"], ["other", "{}", "--queue", "b"]):
            self.ok("enqueue", *words)
        rows = {q["queue"]: q for q in self.json("queues")}
        self.assertEqual((rows["default"]["due"], rows["default"]["later"]), (1, 1))
        self.assertEqual((rows["b"]["due"], rows["b"]["running"], rows["b"]["dead"]), (1, 0, 0))
        self.assertRegex(rows["b"]["oldest_due_at"], r"^\d{4}-")
        plain = {line.split("\t")[0]: line.split("\t")[1:]
                 for line in self.ok("queues").splitlines()}
        self.assertEqual(plain["default"][:4], ["1", "1", "0", "0"])
        self.assertEqual(plain["b"][5], "open")

    def test_stats_count(self):
        self.enqueue("note", '{"text":"x"}')
        self.enqueue("other", "{}", "--key", "k")
        self.enqueue("other", "{}", "--key", "k")
        self.work()
        stats = self.json("stats")[0]
        self.assertEqual((stats["ready"], stats["done"], stats["duplicates"]), (1, 1, 1))
        plain = dict(line.split("\t")[:2] for line in self.ok("stats").splitlines())
        self.assertEqual({name: str(value) for name, value in stats.items()}, plain)

    def test_check_finds_nothing_and_then_something(self):
        job = self.enqueue("note", '{"text":"x"}')
        self.assertRegex(self.ok("check"), r"^the \d+ invariants that SQL can state hold\n$")
        self.assertEqual(self.json("check")[-1]["findings"], 0)
        self.sql("DELETE FROM pawl_x_ready")            # a job that is nowhere
        out = self.json("check", code=1)
        self.assertGreaterEqual(out[-1]["findings"], 1)
        self.assertIn(job, [f.get("job") for f in out[:-1]])
        done = self.pawl("check")
        self.assertEqual(done.code, 1)
        self.assertRegex(done.out, r"\d+ invariants checked, \d+ findings\n$")
        self.check_at_end = False

    def test_prune(self):
        self.enqueue("note", '{"text":"x"}', "--key", "k")
        self.enqueue("other", "{}", "--key", "k")
        self.work()
        out = self.json("prune", "--done-older", "0", "--dry-run")[0]
        self.assertEqual((out["jobs"], out["dry_run"]), (1, True))
        self.assertEqual(self.ids(), [1, 2])
        self.assertEqual(self.json("prune")[0]["jobs"], 0)          # the task's own retention
        out = self.json("prune", "--done-older", "0")[0]
        self.assertEqual((out["jobs"], out["keys"]), (1, 0))
        self.assertEqual(self.ids(), [2])
        answer = self.json("enqueue", "note", '{"text":"x"}', "--key", "k")[0]
        self.assertEqual((answer["id"], answer["created"], answer["state"]), ("1", False, "done"))
        self.fails(65, "enqueue", "note", '{"text":"z"}', "--key", "k")
        self.enqueue("note", '{"text":"y"}', "--key", "short")
        self.work()
        out = self.json("prune", "--done-older", "0", "--keys-older", "0")[0]
        self.assertEqual((out["jobs"], out["keys"]), (1, 1))
        answer = self.json("enqueue", "note", '{"text":"z"}', "--key", "short")[0]
        self.assertEqual((answer["id"], answer["created"]), ("4", True))
        self.assertIs(self.json("enqueue", "other", "{}", "--key", "k")[0]["created"], False)
        self.fails(64, "prune", "--done-older", "x", says="duration")


@each_store
class Expired(PawlTest):
    def test_expired_job_is_not_said_to_have_started(self):
        self.conf("[task t]\nsql = SELECT 1\n")
        job = self.enqueue("t", "{}", "--expires", "300ms")
        due = self.sql("SELECT expires_at_us FROM pawl_jobs")[0][0]
        self.wait_until(lambda: time.time() * 1e6 > due, what="its expiry")
        self.work()
        shown = self.job(job)
        self.assertEqual((shown["dead_class"], shown["attempts"][0]["started_at"]),
                         ("expired", None))
        page = self.ok("job", job)
        self.assertRegex(page, r"started +never\n")
        self.assertNotIn("took", page)


@each_store
class Paused(PawlTest):
    def test_paused_jobs_say_so_and_how_to_go_on(self):
        self.conf(CONF)
        self.sql("CREATE TABLE note(text TEXT)")
        self.ok("apply", "-c", "pawl.conf")
        job = self.enqueue("note", '{"text":"x"}')
        self.enqueue("other")
        self.ok("pause", "--task", "note")
        self.assertEqual(self.ok("jobs", "--task", "note").strip().split("\t")[-1], "paused (task)")
        self.assertIn("its task is paused; pawl resume --task note", self.ok("job", job))
        self.assertTrue(self.job(job)["paused"])
        rows = [line.split("\t") for line in self.ok("queues").splitlines()]
        self.assertIn(["open", "note"], [r[6:] for r in rows if r[0] == "default"])
        self.assertEqual(self.json("stats")[0]["paused_tasks"], 1)
        self.assertIn("nothing is left to do but what is paused", self.work().err)
        self.ok("resume", "--task", "note")
        self.ok("pause", "default")
        self.assertIn("its queue is paused; pawl resume default;", self.ok("job", job))
        self.ok("resume", "default")
        self.assertFalse(self.job(job)["paused"])
        self.assertIn("waits for a worker", self.ok("job", job))


@each_store
class Json(PawlTest):
    def test_every_verb_prints_json_lines(self):
        """Goal: with --json each verb prints objects only, one a line, and at least one."""
        self.conf(CONF)
        self.sql("CREATE TABLE note(text TEXT)")
        self.json("apply")
        for args in '{"text":"x"}', "{}", "{}", "{}":
            self.enqueue("note", args)
        self.enqueue("other", "{}", "--in", "1h")
        self.enqueue("other")
        self.work()
        for words in (["init"], ["conf", "check"], ["run", "note", '{"text":"y"}', "--dry-run"],
                      ["enqueue", "note"], ["jobs"], ["job", "1"], ["job", "2"], ["dead", "list"],
                      ["dead", "show", "2"], ["dead", "replay", "2", "--dry-run"],
                      ["dead", "replay", "2"], ["dead", "discard", "4", "--reason", "r"],
                      ["dead", "export"], ["dead", "replay", "--all"],
                      ["run-now", "5"], ["cancel", "6"], ["pause", "default"], ["queues"],
                      ["resume", "default"], ["stats"], ["check"], ["prune", "--dry-run"],
                      ["debug", "lifecycle"], ["debug", "limits"], ["debug", "errors"],
                      ["debug", "failpoints"], ["debug", "policy"]):
            with self.subTest(words=words):
                self.assertGreater(len(self.json(*words)), 0)


@no_store
class Debug(PawlTest):
    make_store = False

    def test_tables(self):
        self.assertRegex(self.ok("debug", "lifecycle"), r"(?m)^ready +claim +running\b")
        edges = {(e["state"], e["event"]): e["next"] for e in self.json("debug", "lifecycle")}
        self.assertEqual(edges["ready", "claim"], "running")
        self.assertNotIn(("done", "claim"), edges)
        self.assertRegex(self.ok("debug", "limits"), r"(?m)^args_bytes +1048576\b")
        errors = {e["name"]: e for e in self.json("debug", "errors")}
        self.assertEqual((errors["OK"]["exit"], errors["KEYCLASH"]["exit"]), (0, 65))
        self.assertRegex(self.ok("debug", "errors"), r"(?m)^KEYCLASH +PERMANENT +65 ")
        points = [p["name"] for p in self.json("debug", "failpoints")]
        self.assertEqual(points, self.ok("debug", "failpoints").splitlines())
        self.assertGreater(len(points), 5)
        policy = self.json("debug", "policy")[0]
        self.assertEqual((policy["max_retries"], policy["ack"]), ("5", "late"))
        text = dict(re.findall(r"(?m)^(\w+) = ?(.*)$", self.ok("debug", "policy")))
        self.assertEqual(text, policy)

    def test_unknown_failpoint_is_refused_at_start(self):
        done = self.pawl("debug", "limits", env=self.env(PAWL_FAILPOINT="no.such.point=kill"))
        self.assertNotEqual(done.code, 0)
        self.assertIn("no.such.point", done.err)


if __name__ == "__main__":
    unittest.main()
