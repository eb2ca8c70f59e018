# SPDX-License-Identifier: Apache-2.0
"""test_sql_task.py - sql tasks from outside: how args become values, what a statement can do."""
import unittest

from pawltest import PawlTest
from stores import each_store, postgres_alone, sqlite_alone

BOTH_LINKS = True


class SqlTest(PawlTest):
    def setUp(self):
        super().setUp()
        self.sql("CREATE TABLE n(i INTEGER PRIMARY KEY, k TEXT, v INTEGER)")

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


@each_store
class BindTest(SqlTest):
    def stored(self, value):
        self.sql("DELETE FROM n")
        job = self.run_one('{"v":%s}' % value)
        self.assertEqual(job["state"], "done", job)
        return self.sql("SELECT typeof(v), v FROM n")[0]

    @sqlite_alone
    def test_each_json_type_has_its_sql_type(self):
        self.sql("DROP TABLE n")
        self.sql("CREATE TABLE n(k, v)")
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

    @postgres_alone
    def test_each_json_type_is_read_as_the_type_of_its_parameter(self):
        columns = {"t": "TEXT", "i": "BIGINT", "d": "DOUBLE PRECISION", "n": "NUMERIC(20, 3)",
                   "b": "BOOLEAN", "j": "JSON", "jb": "JSONB", "at": "DATE"}
        self.sql("CREATE TABLE all_of(%s)" % ", ".join("%s %s" % c for c in columns.items()))
        self.conf("[task t]\nsql = INSERT INTO all_of VALUES (%s)\noptional = %s\n"
                  "max_retries = 0\n" % (", ".join(":" + c for c in columns), " ".join(columns)))
        for column, value, want in (
                ("t", '"a\\n\\u00e9"', "a\n\u00e9"), ("t", "5", "5"), ("t", "1.50", "1.5"),
                ("t", "true", "1"), ("i", "9223372036854775807", 2**63 - 1), ("i", '"12"', 12),
                ("i", "-0", 0), ("d", "1e2", 100.0), ("d", "1E-400", 0.0), ("n", "1.5", 1.5),
                ("b", "true", True), ("b", "false", False),
                ("j", '{"a": [1,  2]}', '{"a": [1,  2]}'),
                ("jb", '{"a": [1,  2]}', '{"a": [1, 2]}'), ("at", '"2027-02-28"', "2027-02-28"),
                ("t", "null", None), ("t", '{"a": [1,  2]}', '{"a": [1,  2]}')):
            with self.subTest(column=column, value=value):
                self.sql("DELETE FROM all_of")
                job = self.run_one('{"%s":%s}' % (column, value))
                self.assertEqual(job["state"], "done", job)
                self.assertEqual(self.sql("SELECT %s FROM all_of" % column), [(want,)])
        for column, value in ("i", '"x"'), ("i", "1.5"), ("at", '"2027-02-30"'), ("b", '"perhaps"'):
            with self.subTest(column=column, value=value):
                job = self.run_one('{"%s":%s}' % (column, value))
                self.assertEqual((job["state"], job["dead_class"]), ("dead", "permanent"), job)
        job = self.run_one('{"t":"a\\u0000b"}')
        self.assertEqual((job["state"], job["dead_class"]), ("dead", "permanent"), job)
        self.assertIn(":t holds a NUL", job["error"])

    def test_numbers_that_do_not_fit_are_refused_by_name(self):
        self.task("INSERT INTO n(v) VALUES (:v)")
        self.dead('{"v":9223372036854775808}', ":v is an integer beyond 64 bits")
        self.dead('{"v":1e400}', ":v is beyond the range")
        self.assertEqual(self.sql("SELECT * FROM n"), [])

    def test_reserved_names_come_from_the_job(self):
        self.sql("CREATE TABLE w(i INTEGER PRIMARY KEY, k TEXT, v TEXT)")
        self.task("INSERT INTO w(k, v) VALUES (:job_id, :args)",
                  "INSERT INTO w(k, v) VALUES (:job_key, :job_attempt)")
        args = '{ "job_id" : 99, "args": 1 }'
        job = self.run_one(args, "--key", "order:1")
        self.assertEqual(self.sql("SELECT k, v FROM w ORDER BY i"),
                         [(job["id"], args), ("order:1", "1")])
        self.sql("DELETE FROM w")
        self.run_one("[1]")
        self.assertEqual(self.sql("SELECT k FROM w ORDER BY i")[1], (None,))

    def test_absent_members_are_refused_unless_optional(self):
        self.task("INSERT INTO n(k, v) VALUES (:k, :v)", more="optional = v")
        self.assertEqual(self.run_one('{"k":1}')["state"], "done")
        self.assertEqual(self.sql("SELECT k, v FROM n"), [("1", None)])
        self.dead('{"v":1}', 'lack "k"')

    def test_args_that_are_no_object_or_doubled(self):
        self.task("INSERT INTO n(v) VALUES (:v)")
        self.dead("[1]", "must be a JSON object")
        for args in ('{"v":1,"v":2}', '{"v":1,"\\u0076":2}'):
            job = self.enqueue("t", args)
            self.work()
            shown = self.sql("SELECT dead_class, error FROM pawl_jobs WHERE id = ?", (job,))
            self.assertEqual(shown, [("permanent", 'args hold "v" twice')])


@each_store
class StatementTest(SqlTest):
    def test_statements_run_in_order_in_one_savepoint(self):
        self.task("INSERT INTO n(k, v) VALUES ('1', :v)",
                  "UPDATE n SET v = v + 1 WHERE k = '1'",
                  "INSERT INTO n(k, v) SELECT '2', v FROM n WHERE k = '1'")
        self.run_one('{"v":10}')
        self.assertEqual(self.sql("SELECT k, v FROM n ORDER BY k"), [("1", 11), ("2", 11)])

    def test_a_failing_statement_leaves_nothing_of_its_job_and_all_of_the_others(self):
        self.sql("CREATE TABLE strict(v INTEGER NOT NULL UNIQUE)")
        self.task("INSERT INTO n(v) VALUES (:v)", "INSERT INTO strict(v) VALUES (:v)")
        ids = [self.enqueue("t", '{"v":%s}' % v) for v in ("1", "null", "2", "1", "3")]
        self.work()
        self.assertEqual([self.job(i)["state"] for i in ids],
                         ["done", "dead", "done", "dead", "done"])
        self.assertIn("statement 2: ", self.job(ids[1])["error"])
        self.assertRegex(self.job(ids[1])["error"], "NOT NULL|not-null")
        self.assertRegex(self.job(ids[3])["error"], "UNIQUE|unique")
        self.assertEqual(self.sql("SELECT v FROM n ORDER BY v"), [(1,), (2,), (3,)])
        self.assertEqual({self.job(i)["runs"] for i in (ids[1], ids[3])}, {1})

    def test_rows_of_the_last_statement_are_the_result(self):
        self.task("INSERT INTO n(v, k) VALUES (1, 'a'), (2, NULL)",
                  "SELECT v AS k, k AS v, v * 1.5 AS r FROM n ORDER BY n.v")
        self.assertEqual(self.run_one("{}")["result"],
                         [{"k": 1, "v": "a", "r": 1.5}, {"k": 2, "v": None, "r": 3.0}])

    def test_rows_over_the_limit_are_a_permanent_failure_without_effect(self):
        self.task("INSERT INTO n(k) VALUES ('1')", "WITH RECURSIVE c(x) AS"
                  " (SELECT 1 UNION ALL SELECT x + 1 FROM c WHERE x < 30000) "
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
        db = self.connect()
        db.execute(self.store.say(
            "CREATE TRIGGER no BEFORE INSERT ON n WHEN new.v = 13 "
            "BEGIN SELECT RAISE(ROLLBACK, 'thirteen is out'); END",
            "CREATE FUNCTION no() RETURNS trigger LANGUAGE plpgsql AS "
            "$$ BEGIN RAISE EXCEPTION 'thirteen is out'; END $$; CREATE TRIGGER no BEFORE INSERT"
            " ON n FOR EACH ROW WHEN (new.v = 13) EXECUTE FUNCTION no()"))
        self.task("INSERT INTO n(v) VALUES (:v)")
        ids = [self.enqueue("t", '{"v":%d}' % v) for v in (11, 12, 13, 14, 13, 15)]
        self.work()
        self.assertEqual([self.job(i)["state"] for i in ids],
                         ["done", "done", "dead", "done", "dead", "done"])
        shown = self.job(ids[2])
        self.assertEqual((shown["dead_class"], shown["runs"], shown["lost"]), ("permanent", 1, 0))
        self.assertIn("thirteen is out", shown["error"])
        self.assertEqual(self.sql("SELECT v FROM n ORDER BY v"), [(11,), (12,), (14,), (15,)])

    @sqlite_alone
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
        self.assertRegex(self.job(ids[1])["error"], "FOREIGN KEY|foreign key")

    def test_table_that_vanishes_is_a_permanent_failure_and_can_be_replayed(self):
        self.task("INSERT INTO n(v) VALUES (:v)")
        worker = self.start_worker()
        self.wait_until(lambda: "event=worker.ready" in self.log(worker), what="ready")
        self.sql("ALTER TABLE n RENAME TO gone")
        job = self.enqueue("t", '{"v":1}')
        self.wait_state(job, "dead")
        self.assertRegex(self.job(job)["error"], "no such table|does not exist")
        self.sql("ALTER TABLE gone RENAME TO n")
        self.ok("dead", "replay", job)
        self.wait_until(lambda: self.sql("SELECT v FROM n") == [(1,)], what="the effect")


if __name__ == "__main__":
    unittest.main()
