# SPDX-License-Identifier: Apache-2.0
"""test_sql_task.py - sql tasks from outside: how args become values, what a statement can do."""
import unittest

from pawltest import PawlTest

BOTH_LINKS = True


class SqlTest(PawlTest):
    def setUp(self):
        super().setUp()
        self.sql("CREATE TABLE n(k, v)")

    def task(self, *statements, more=""):
        self.conf("[task t]\n" + "".join("sql = %s\n" % s for s in statements) + more +
                  "\nmax_retries = 1\nbackoff = 10ms..20ms\n")

    def run_one(self, args, *words):
        job = self.enqueue("t", args, *words)
        self.work()
        return self.job(job)

    def dead(self, args, says, dead_class="permanent"):
        job = self.run_one(args)
        self.assertEqual((job["state"], job["dead_class"]), ("dead", dead_class), job)
        self.assertRegex(job["error"], says)
        return job


class BindTest(SqlTest):
    def stored(self, value):
        self.sql("DELETE FROM n")
        job = self.run_one('{"v":%s}' % value)
        self.assertEqual(job["state"], "done", job)
        return self.sql("SELECT typeof(v), v FROM n")[0]

    def test_each_json_type_has_its_sql_type(self):
        self.task("INSERT INTO n(v) VALUES (:v)")
        for value, want in (
                ('"a\\n\\u00e9\\"é"', ("text", 'a\n\u00e9"é')), ('""', ("text", "")),
                ("5", ("integer", 5)), ("-0", ("integer", 0)),
                ("9223372036854775807", ("integer", 2**63 - 1)),
                ("-9223372036854775808", ("integer", -2**63)),
                ("1.5", ("real", 1.5)), ("1e2", ("real", 100.0)), ("1E-400", ("real", 0.0)),
                ("true", ("integer", 1)), ("false", ("integer", 0)), ("null", ("null", None)),
                ('{"a": [1,  2]}', ("text", '{"a": [1,  2]}')), ("[ ]", ("text", "[ ]"))):
            with self.subTest(value):
                self.assertEqual(self.stored(value), want)

    def test_numbers_that_do_not_fit_are_refused_by_name(self):
        self.task("INSERT INTO n(v) VALUES (:v)")
        self.dead('{"v":9223372036854775808}', ":v is an integer beyond 64 bits")
        self.dead('{"v":1e400}', ":v is beyond the range")
        self.assertEqual(self.sql("SELECT * FROM n"), [])

    def test_reserved_names_come_from_the_job(self):
        self.task("INSERT INTO n(k, v) VALUES (:job_id, :args)",
                  "INSERT INTO n(k, v) VALUES (:job_key, :job_attempt)")
        args = '{ "job_id" : 99, "args": 1 }'
        job = self.run_one(args, "--key", "order:1")
        self.assertEqual(self.sql("SELECT k, v FROM n ORDER BY rowid"),
                         [(int(job["id"]), args), ("order:1", 1)])
        self.sql("DELETE FROM n")
        self.run_one("[1]")
        self.assertEqual(self.sql("SELECT k FROM n ORDER BY rowid")[1], (None,))

    def test_absent_members_are_refused_unless_optional(self):
        self.task("INSERT INTO n(k, v) VALUES (:k, :v)", more="optional = v")
        self.assertEqual(self.run_one('{"k":1}')["state"], "done")
        self.assertEqual(self.sql("SELECT k, v FROM n"), [(1, None)])
        self.dead('{"v":1}', 'lack "k"')

    def test_args_that_are_no_object_or_doubled(self):
        self.task("INSERT INTO n(v) VALUES (:v)")
        self.dead("[1]", "must be a JSON object")
        for args in ('{"v":1,"v":2}', '{"v":1,"\\u0076":2}'):
            job = self.enqueue("t", args)
            self.work()
            shown = self.sql("SELECT dead_class, error FROM pawl_jobs WHERE id = ?", (job,))
            self.assertEqual(shown, [("permanent", 'args hold "v" twice')])


class StatementTest(SqlTest):
    def test_statements_run_in_order_in_one_savepoint(self):
        self.task("INSERT INTO n(k, v) VALUES (1, :v)", "UPDATE n SET v = v + 1 WHERE k = 1",
                  "INSERT INTO n(k, v) SELECT 2, v FROM n WHERE k = 1")
        self.run_one('{"v":10}')
        self.assertEqual(self.sql("SELECT k, v FROM n ORDER BY k"), [(1, 11), (2, 11)])

    def test_a_failing_statement_leaves_nothing_of_its_job_and_all_of_the_others(self):
        self.sql("CREATE TABLE strict(v INTEGER NOT NULL UNIQUE)")
        self.task("INSERT INTO n(v) VALUES (:v)", "INSERT INTO strict(v) VALUES (:v)")
        ids = [self.enqueue("t", '{"v":%s}' % v) for v in ("1", "null", "2", "1", "3")]
        self.work()
        self.assertEqual([self.job(i)["state"] for i in ids],
                         ["done", "dead", "done", "dead", "done"])
        self.assertIn("statement 2: ", self.job(ids[1])["error"])
        self.assertIn("NOT NULL", self.job(ids[1])["error"])
        self.assertIn("UNIQUE", self.job(ids[3])["error"])
        self.assertEqual(self.sql("SELECT v FROM n ORDER BY v"), [(1,), (2,), (3,)])
        self.assertEqual({self.job(i)["runs"] for i in (ids[1], ids[3])}, {1})

    def test_rows_of_the_last_statement_are_the_result(self):
        self.task("INSERT INTO n(k, v) VALUES (1, 'a'), (2, NULL)",
                  "SELECT k, v, k * 1.5 AS r FROM n ORDER BY k")
        self.assertEqual(self.run_one("{}")["result"],
                         [{"k": 1, "v": "a", "r": 1.5}, {"k": 2, "v": None, "r": 3.0}])

    def test_rows_over_the_limit_are_a_permanent_failure_without_effect(self):
        self.task("INSERT INTO n(k) VALUES (1)",
                  "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c LIMIT 30000) "
                  "SELECT x, 'and some text' AS t FROM c")
        self.dead("{}", "262144|256")
        self.assertEqual(self.sql("SELECT * FROM n"), [])

    def test_zero_rows_is_judged_by_the_last_statement(self):
        for zero, state, word in (("done", "done", "done"), ("stale", "done", "stale"),
                                  ("retry", "dead", None), ("fail", "dead", None)):
            with self.subTest(zero):
                name = "z" + zero
                self.conf("[task %s]\nsql = INSERT INTO n(k) VALUES (:k)\n"
                          "sql = UPDATE n SET v = 1 WHERE k = 'none'\nzero_rows = %s\n"
                          "max_retries = 1\nbackoff = 10ms..20ms\n" % (name, zero))
                job = self.enqueue(name, '{"k":"%s"}' % zero)
                self.work()
                shown = self.job(job)
                self.assertEqual((shown["state"], shown["outcome"]), (state, word), shown)
                if state == "dead":
                    self.assertIn("touched no row", shown["error"])
                    self.assertEqual(shown["runs"], 2 if zero == "retry" else 1)
        self.assertEqual(self.sql("SELECT k FROM n"), [("done",)])  # a stale one left no effect

    def test_rollback_by_the_users_word_is_permanent_and_hurts_no_neighbour(self):
        self.sql("CREATE TRIGGER no BEFORE INSERT ON n WHEN new.v = 13 "
                 "BEGIN SELECT RAISE(ROLLBACK, 'thirteen is out'); END")
        self.task("INSERT INTO n(v) VALUES (:v)")
        ids = [self.enqueue("t", '{"v":%d}' % v) for v in (11, 12, 13, 14, 13, 15)]
        self.work()
        self.assertEqual([self.job(i)["state"] for i in ids],
                         ["done", "done", "dead", "done", "dead", "done"])
        shown = self.job(ids[2])
        self.assertEqual((shown["dead_class"], shown["runs"], shown["lost"]), ("permanent", 1, 0))
        self.assertIn("thirteen is out", shown["error"])
        self.assertEqual(self.sql("SELECT v FROM n ORDER BY v"), [(11,), (12,), (14,), (15,)])

    def test_on_conflict_rollback_of_a_table_is_permanent(self):
        self.sql("CREATE TABLE hard(v UNIQUE ON CONFLICT ROLLBACK)")
        self.task("INSERT INTO hard(v) VALUES (:v)")
        ids = [self.enqueue("t", '{"v":%d}' % v) for v in (1, 1, 2)]
        self.work()
        self.assertEqual([self.job(i)["state"] for i in ids], ["done", "dead", "done"])
        self.assertEqual(self.job(ids[1])["dead_class"], "permanent")
        self.assertEqual(self.sql("SELECT v FROM hard"), [(1,), (2,)])

    def test_deferred_constraint_fails_its_own_job_only(self):
        self.sql("CREATE TABLE parent(id INTEGER PRIMARY KEY)")
        self.sql("CREATE TABLE child(p INTEGER REFERENCES parent(id) "
                 "DEFERRABLE INITIALLY DEFERRED)")
        self.sql("INSERT INTO parent VALUES (1)")
        self.task("INSERT INTO child(p) VALUES (:p)")
        ids = [self.enqueue("t", '{"p":%d}' % p) for p in (1, 2, 1, 3, 1)]
        self.work()
        self.assertEqual([self.job(i)["state"] for i in ids],
                         ["done", "dead", "done", "dead", "done"])
        self.assertEqual(self.sql("SELECT count(*) FROM child"), [(3,)])
        self.assertIn("FOREIGN KEY", self.job(ids[1])["error"])

    def test_table_that_vanishes_is_a_permanent_failure_and_can_be_replayed(self):
        self.task("INSERT INTO n(v) VALUES (:v)")
        worker = self.start_worker()
        self.wait_until(lambda: "event=worker.ready" in self.log(worker), what="ready")
        self.sql("ALTER TABLE n RENAME TO gone")
        job = self.enqueue("t", '{"v":1}')
        self.wait_state(job, "dead")
        self.assertIn("no such table", self.job(job)["error"])
        self.sql("ALTER TABLE gone RENAME TO n")
        self.ok("dead", "replay", job)
        self.wait_until(lambda: self.sql("SELECT v FROM n") == [(1,)], what="the effect")


if __name__ == "__main__":
    unittest.main()
