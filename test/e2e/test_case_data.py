#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""test_case_data.py - field cases about data that breaks the machinery: 42 49."""
import json
import unittest

from fieldkit import FieldTest, uptime
from pawltest import SLOW
from stores import each_store

TIMEOUT = 90

# What a program may leave on its way out; $1 picks. In octal: 00 FF FE, half a surrogate pair, ESC.
VILE = r"""#!/bin/sh
case $1 in
stderr) printf '\000\377\376\355\240\275\033[31m last words\n' >&2; exit 65 ;;
nul) printf '{"done":{"result":"\\u0000x"}}' >&3 ;;
half) printf '{"done":{"result":"\\ud83d"}}' >&3 ;;
raw) printf '{"done":{"result":"\377\376"}}' >&3 ;;
words) printf '{"fail":{"error":"a\\u0000b\\u001b[31m last words"}}' >&3; exit 65 ;;
large) { printf '{"done":{"result":"'; head -c 1048576 /dev/zero | tr '\0' r; printf '"}}'; } >&3 ;;
esac
"""
WAYS = ("stderr", "nul", "half", "raw", "words", "large")


@each_store
class Vile(FieldTest):
    concurrency = 16
    more = "".join("\n[task vile-%s]\nexec = ./vile.sh %s\nmax_retries = 0\n" % (w, w)
                   for w in WAYS)

    def setUp(self):
        super().setUp()
        self.script("vile.sh", VILE)

    def case_42_error_or_result_that_is_no_text_does_not_break_the_failure_path(self):
        jobs = {way: self.enqueue("vile-" + way) for way in WAYS}
        healthy = [self.act("ok") for _ in range(5)]
        self.work()
        self.assertEqual({self.job(j)["state"] for j in healthy}, {"done"})
        page = {way: self.job(j) for way, j in jobs.items()}
        self.assertEqual({w: p["dead_class"] for w, p in page.items()},
                         {"stderr": "permanent", "nul": None, "half": None, "raw": "exhausted",
                          "words": "permanent", "large": "permanent"})
        self.assertEqual((page["nul"]["state"], page["nul"]["result"]), ("done", "\0x"))
        self.assertEqual((page["half"]["state"], page["half"]["result"]), ("done", "\ud83d"))
        for way in ("stderr", "words"):
            self.assertIn("last words", page[way]["error"], "what follows the NUL is lost")
            self.assertNotIn("\0", page[way]["error"])
        self.assertEqual(page["stderr"]["attempts"][0]["stderr_tail"],
                         "\\x00\\xff\\xfe\\xed\\xa0\\xbd\x1b[31m last words\n")
        self.assertEqual(page["words"]["error"], "a\\x00b\x1b[31m last words")
        self.assertIn("1048578 bytes", page["large"]["error"])
        self.assertIn("protocol", page["raw"]["error"])
        self.assertEqual({w: len(p["attempts"]) for w, p in page.items()},
                         {"stderr": 1, "nul": 0, "half": 0, "raw": 1, "words": 1, "large": 1})
        for words in (["jobs"], ["dead", "list"], ["dead", "export"],
                      ["dead", "show", jobs["stderr"]], ["job", jobs["words"]],
                      ["job", jobs["nul"]]):
            out = self.pawl(*words).out_bytes
            self.assertNotRegex(out, rb"[\x00\x1b]", words)
            out.decode("utf-8")
        self.assertEqual({len(self.json("dead", "list")), self.count("dead")}, {4})


HUGE = 9223372036854775807
DAMAGE = {
    "args are no JSON": "UPDATE pawl_x_job SET args = 'not json' WHERE id = %d",
    "args are no UTF-8": "UPDATE pawl_x_job SET args = CAST(x'22ff22' AS TEXT) WHERE id = %d",
    "the job's row is gone": "DELETE FROM pawl_x_job WHERE id = %d",
    "the task is gone": "UPDATE pawl_x_job SET task_id = 999 WHERE id = %d",
    "the queue is gone": "UPDATE pawl_x_ready SET queue_id = 999 WHERE id = %d",
    "counters are negative":
        "UPDATE pawl_x_ready SET runs = -5, failures = -1, lost = -1 WHERE id = %d",
    "counters are at their end": "UPDATE pawl_x_ready SET runs = %d WHERE id = %%d" % HUGE,
    "the due time is another": "UPDATE pawl_x_ready SET run_at_us = 0 WHERE id = %d",
    "the due time is before all time":
        "UPDATE pawl_x_ready SET run_at_us = -%d WHERE id = %%d" % HUGE,
}


@each_store
class Damaged(FieldTest):
    # What a server does not let anybody store is no damage there.
    check_at_end = False                        # it must find the damage: asserted below

    def damage(self, statement):
        db = self.connect()
        if self.store.kind == "postgresql":
            db.execute("DO $$ DECLARE r record; BEGIN FOR r IN SELECT conrelid::regclass AS t,"
                       " conname FROM pg_constraint WHERE contype = 'c' AND connamespace ="
                       " 'pawl'::regnamespace LOOP EXECUTE format('ALTER TABLE %s DROP CONSTRAINT"
                       " %I', r.t, r.conname); END LOOP; END $$")
        else:
            db.execute("PRAGMA ignore_check_constraints = ON")
        self.assertEqual(db.execute(statement).rowcount, 1)
        db.close()

    def behind(self, task, args):
        """Each damage at the head of the line, one after the other; 50 good jobs behind it."""
        worker = self.worker()
        for what, statement in DAMAGE.items():
            if "UTF-8" in what and not self.store.can("any_bytes"):
                continue
            with self.subTest(damage=what):
                self.ok("pause", "default")
                bad = self.enqueue(task, args)
                self.damage(statement % int(bad))
                self.bulk([{"task": task, "args": "ok" if task == "act" else {}}] * 50)
                before, began = self.count("done", task), uptime()
                self.ok("resume", "default")
                self.wait_until(lambda n=before: self.count("done", task) >= n + 50, 15,
                                "the 50 behind: " + what)
                self.assertLess(uptime() - began, 3 * SLOW)
                self.assertIsNone(worker.poll())
                self.quarantined(what, bad)
        self.assertNotRegex(self.log(worker), r"Assertion|signal 6")
        self.assertEqual(self.stop_worker(worker), 0)
        self.work()                             # what is passed over does not count as left to do

    def quarantined(self, what, bad):
        """The bad one is dead(undecodable), or harmless and done, or named by `pawl check`."""
        found = {f.get("job") for f in self.json_any("check")}
        rows = self.sql("SELECT state, dead_class FROM pawl_jobs WHERE id = ?", (int(bad),))
        if rows == [("dead", "undecodable")] or bad in found:
            return
        self.assertIn(what, ("the due time is another", "the due time is before all time"))
        self.assertEqual(rows, [("done", None)])

    def json_any(self, *words):
        done = self.pawl("--json", *words)
        self.assertIn(done.code, (0, 1), done)
        return [json.loads(line) for line in done.out.splitlines()]

    def case_49_damaged_row_at_the_head_does_not_block_sql_tasks(self):
        self.behind("effect", "{}")

    def case_49_damaged_row_at_the_head_does_not_block_exec_tasks(self):
        self.behind("act", '"ok"')


if __name__ == "__main__":
    unittest.main()
