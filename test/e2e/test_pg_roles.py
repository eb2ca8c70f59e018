#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""test_pg_roles.py - sql/postgres/roles.sql: each role can do what it is for, and nothing else."""
import json
import os
import unittest

from pgkit import PgTest, enqueue, script

DENIED = "42501"
VIEWS = ("jobs", "attempts", "queues", "tasks")


class Roles(PgTest):
    """The logins shop, worker and ops are members of pawl_producer, _worker and _reader."""
    own_server = True

    def setUp(self):
        super().setUp()
        self.sql(script("roles.sql"))
        self.sql(script("roles.sql"))               # it may be run again
        for login, role in (("shop", "pawl_producer"), ("worker", "pawl_worker"),
                            ("ops", "pawl_reader"), ("nobody", None)):
            if not self.sql("SELECT 1 FROM pg_roles WHERE rolname = '%s'" % login):
                self.sql("CREATE ROLE %s LOGIN" % login)
                if role:
                    self.sql("GRANT %s TO %s" % (role, login))
        self.sql("CREATE TABLE own(x int)")
        self.sql("GRANT ALL ON own TO PUBLIC")
        self.tables = [row[0] for row in self.sql(
            "SELECT relname FROM pg_class WHERE relnamespace = 'pawl'::regnamespace"
            " AND relkind = 'r' ORDER BY 1")]
        self.assertIn("x_running", self.tables)

    def denied(self, session, *calls):
        for call in calls:
            with self.subTest(call=call):
                self.refused(DENIED, "permission denied|must be owner", call, session)

    def touch(self, *names):
        """Statements that read or write these tables or views, or could change them."""
        for name in names:
            yield "SELECT 1 FROM pawl." + name
            if name in VIEWS:
                yield "DROP VIEW pawl." + name
            else:
                yield "DELETE FROM pawl." + name
                yield "TRUNCATE pawl." + name
                yield "DROP TABLE pawl." + name

    OTHERS = ("CREATE TABLE pawl.mine(x int)", "DROP SCHEMA pawl CASCADE",
              "CREATE OR REPLACE FUNCTION pawl.x_grant() RETURNS void LANGUAGE sql AS ''",
              "DROP FUNCTION pawl.x_grant()", "SELECT setval('pawl.x_job_id_seq', 1)")
    WORK = ("SELECT pawl.begin(1, repeat('a', 32))", "SELECT pawl.complete(1, repeat('a', 32))",
            "SELECT pawl.complete(1, repeat('a', 32), '1'::json)",
            "SELECT pawl.complete(1, repeat('a', 32), '1'::jsonb)")
    PRIVATE = ("SELECT pawl.x_fold_counters()", "SELECT pawl.x_args_hash('')",
               "SELECT pawl.x_grant()", "SELECT pawl.x_too_deep('')", "SELECT pawl.x_lease('')",
               "SELECT pawl.x_refuse_lease(1, '')", "SELECT pawl.x_check_json('', '')")

    def test_producer(self):
        shop = self.open(user="shop")
        shop.run("BEGIN")
        shop.run("INSERT INTO own VALUES (1)")
        job = shop.run(enqueue("new-task", '{"a":1}', key="k", queue="new-queue"))
        self.assertEqual(job[0][1], "t")
        shop.run("COMMIT")
        self.assertEqual(shop.run(enqueue("new-task", '{"a":1}', key="k")), [[job[0][0], "f"]])
        self.refused("PWKEY", "used before", enqueue("new-task", "[]", key="k"), shop)
        self.assertEqual(shop.run("SELECT created FROM pawl.enqueue('t', '{}'::json)"), [["t"]])
        self.assertEqual(shop.run("SELECT created FROM pawl.enqueue('t', '{}'::jsonb)"), [["t"]])
        self.denied(shop, *self.touch(*self.tables, *VIEWS), *self.OTHERS, *self.WORK,
                    *self.PRIVATE, "SELECT nextval('pawl.x_job_id_seq')",
                    "INSERT INTO pawl.x_ready VALUES (1, 1, 0, 0, 1)")
        self.assertEqual(self.one("SELECT count(*) FROM pawl.jobs"), "3")

    def test_producer_gets_nothing_done_through_its_own_objects(self):
        """Goal: functions, operators and temporary tables of the caller are never used while the
        rights of the owner are."""
        shop = self.open(user="shop")
        self.sql("CREATE SCHEMA shop AUTHORIZATION shop")
        self.sql("CREATE TABLE secret(who text)")
        trap = "LANGUAGE plpgsql AS $$ BEGIN INSERT INTO public.secret VALUES (current_user);"
        shop.run("CREATE FUNCTION shop.octet_length(text) RETURNS int %s RETURN 1; END $$" % trap)
        shop.run("CREATE FUNCTION shop.clock_timestamp() RETURNS timestamptz %s RETURN now();"
                 " END $$" % trap)
        shop.run("CREATE FUNCTION shop.eq(text, text) RETURNS boolean %s RETURN true; END $$"
                 % trap)
        shop.run("CREATE OPERATOR shop.= (LEFTARG = text, RIGHTARG = text, FUNCTION = shop.eq)")
        for name in "x_task", "x_job", "x_key", "x_counter":
            shop.run("CREATE TEMP TABLE %s(LIKE public.own)" % name)
        shop.run("CREATE FUNCTION pg_temp.x_check_json(text, text) RETURNS void %s END $$" % trap)
        shop.run("SET search_path = shop, pg_temp, pg_catalog")
        for _ in range(2):
            shop.run("SELECT * FROM pawl.enqueue('t', '{\"a\":[]}', key => 'k', headers => '{}')")
        self.assertEqual(self.one("SELECT count(*) FROM pawl.jobs"), "1")
        self.assertEqual(self.sql("SELECT who FROM secret"), [])

    def test_reader(self):
        self.sql(enqueue("t", "[1]"))
        ops = self.open(user="ops")
        self.assertEqual(ops.run("SELECT args, state FROM pawl.jobs"), [["[1]", "ready"]])
        for view in VIEWS:
            ops.run("SELECT * FROM pawl." + view)
        known = [t for t in self.tables if t in ("x_store", "x_migration", "x_move")]
        self.denied(ops, *self.touch(*(t for t in self.tables if t not in known)), *self.OTHERS,
                    *[c for c in self.touch(*known) if not c.startswith("SELECT")],
                    *self.WORK, *self.PRIVATE, enqueue("t"), "SELECT pawl.enqueue('t', '{}'::json)",
                    "UPDATE pawl.queues SET paused = 1", "DELETE FROM pawl.attempts",
                    "DROP VIEW pawl.jobs")

    def test_worker(self):
        worker = self.open(user="worker")
        job = worker.run(enqueue("t"))[0][0]
        self.sql("CREATE TABLE pawl.x_migration(version int)")
        self.sql(script("functions.sql"))
        worker.run("INSERT INTO pawl.x_running SELECT id, decode(repeat('ab', 16), 'hex'), 'w', 1,"
                   " 1, task_id, queue_id, rank, run_at_us, 0, 0, 0, 0, 0, 0 FROM pawl.x_ready")
        worker.run("DELETE FROM pawl.x_ready")
        worker.run("INSERT INTO pawl.x_job (task_id, queue_id, args, priority, run_at_us,"
                   " created_at_us) VALUES (1, 1, '{}', 0, 1, 1)")
        worker.run("BEGIN")
        worker.run("SELECT pawl.begin(%s, repeat('ab', 16))" % job)
        worker.run("INSERT INTO own VALUES (1)")
        worker.run("SELECT pawl.complete(%s, repeat('ab', 16))" % job)
        worker.run("COMMIT")
        worker.run("SELECT pawl.x_fold_counters()")
        worker.run("SELECT version FROM pawl.x_migration")
        self.assertEqual(worker.run("SELECT state FROM pawl.jobs WHERE id = " + job), [["done"]])
        self.denied(worker, *self.OTHERS, "TRUNCATE pawl.x_job", "DROP TABLE pawl.x_job",
                    "INSERT INTO pawl.x_migration VALUES (2)", "DELETE FROM pawl.x_migration",
                    "UPDATE pawl.x_store SET id = ''")

    def test_the_command_as_somebody_else_says_who_may(self):
        self.sql("DROP SCHEMA pawl CASCADE")
        self.works("init", user="owner")
        self.sql(script("roles.sql"))
        for user in "nobody", "shop":
            code, said = self.pawl("stats", user=user)
            self.assertEqual(code, 77, said)
            self.assertRegex(said, "role %s may not use the store in database %s: connect as a"
                             " member of pawl_worker .*permission denied" % (user, self.database))
        code, said = self.pawl("stats", user="not_there")
        self.assertEqual(code, 77, said)
        self.assertIn('role "not_there" does not exist', said)

    def test_the_command_as_a_worker(self):
        """Goal: every verb but init works as a member of pawl_worker; init is refused whole."""
        self.sql("DROP SCHEMA pawl CASCADE")
        self.works("init", user="owner")
        self.sql(script("roles.sql"))
        self.sql("CREATE TABLE fx(x int PRIMARY KEY)")
        self.sql("GRANT INSERT ON fx TO worker")
        with open(os.path.join(self.dir, "pawl.conf"), "w", encoding="ascii") as f:
            f.write("[task see]\nsql = INSERT INTO fx VALUES (:x)\nmax_retries = 0\n"
                    "[task say]\nexec = /bin/true\n")
        for x in 1, 1, 2:
            self.works("enqueue", "see", '{"x":%d}' % x)
        self.works("enqueue", "say", "--key", "k")
        self.works("enqueue", "say", "--key", "k")
        self.works("work", "--until-empty", "-c", "pawl.conf")
        self.assertEqual(self.sql("SELECT state, count(*) FROM pawl.jobs GROUP BY 1 ORDER BY 1"),
                         [["dead", "1"], ["done", "3"]])
        dead = self.one("SELECT id FROM pawl.jobs WHERE state = 'dead'")
        self.works("enqueue", "see", '{"x":9}', "--in", "1h")
        late = self.one("SELECT max(id) FROM pawl.jobs")
        for words in (["jobs"], ["job", dead], ["queues"], ["stats"], ["dead", "list"],
                      ["dead", "show", dead], ["pause", "default"], ["resume", "default"],
                      ["run-now", late], ["cancel", late], ["dead", "replay", dead], ["check"],
                      ["prune"], ["apply", "-c", "pawl.conf"]):
            self.works(*words)
        code, text = self.pawl("init", user="worker")
        self.assertNotEqual(code, 0, text)

    def test_the_doctor_as_a_reader(self):
        """Goal: what few rights leave to be looked at is, and each look that they do not allow says
        so; neither is a failure of the command."""
        self.sql("DROP SCHEMA pawl CASCADE")
        self.works("init", user="owner")
        self.sql(script("roles.sql"))
        self.works("enqueue", "t", user="owner")
        code, text = self.pawl("--json", "doctor", user="ops")
        lines = [json.loads(line) for line in text.splitlines()[1:]]
        total, found = lines.pop(), lines
        serious = [a for a in found if a["severity"] in ("warning", "danger")]
        self.assertEqual((code, total["findings"]), (int(bool(serious)), len(serious)), text)
        self.assertLessEqual({a["check"] for a in serious}, {"durability", "disk"}, text)
        unseen = {a["check"] for a in found if a["severity"] == "unseen"}
        self.assertLessEqual({"leases", "retries", "tasks", "queues", "dead", "clock"}, unseen,
                             text)
        for a in found:
            self.assertTrue(a["severity"] != "unseen" or "denied" in a["what"]
                            or "cannot be seen" in a["what"], a)
        for words in ["enqueue", "t"], ["cancel", "1"], ["stats"], ["check"], ["prune"]:
            code, text = self.pawl(*words, user="ops")
            self.assertEqual(code, 77, text)
            self.assertIn("permission denied", text)
        code, text = self.pawl("doctor", user="nobody")
        self.assertEqual(code, 77, text)

    def works(self, *words, user="worker"):
        code, text = self.pawl(*words, user=user)
        self.assertEqual(code, 0, text)

    def test_everybody_else(self):
        nobody = self.open(user="nobody")
        self.denied(nobody, *self.touch(*self.tables, *VIEWS), *self.OTHERS, *self.WORK,
                    *self.PRIVATE, enqueue("t"))
        # Being let into the schema alone gives nothing.
        self.sql("GRANT USAGE ON SCHEMA pawl TO PUBLIC")
        self.denied(nobody, *self.touch(*self.tables, *VIEWS), *self.OTHERS, *self.WORK,
                    *self.PRIVATE, enqueue("t"), "SELECT pawl.enqueue('t', '{}'::json)")

    def test_a_migrate_keeps_the_rights_of_this_store_only(self):
        """Goal: the views are created anew and can be read as before; a store of the same server
        where roles.sql was not run lets nobody in."""
        self.sql(script("views.sql"))
        self.refused(DENIED, "permission denied", "SELECT 1 FROM pawl.jobs", self.open(user="ops"))
        self.sql(script("functions.sql"))
        self.open(user="ops").run("SELECT 1 FROM pawl.jobs")
        self.open(user="shop").run(enqueue("t"))
        self.database = self.server.new_database()
        self.session = self.open()
        self.sql("CREATE SCHEMA pawl")
        for name in "0001_init.sql", "views.sql", "functions.sql":
            self.sql(script(name))
        for user in "shop", "worker", "ops":
            self.denied(self.open(user=user), enqueue("t"), "SELECT 1 FROM pawl.jobs")
        self.assertEqual(self.one("SELECT count(*) FROM pg_class, pg_proc WHERE (relacl::text ||"
                                  " coalesce(proacl::text, '')) ~ 'pawl_(producer|worker|reader)'"),
                         "0")

    def test_a_handlers_own_role(self):
        """Goal: as the page says, a login of a handler needs no more than the two calls."""
        self.sql("CREATE ROLE handler LOGIN")
        self.sql("GRANT USAGE ON SCHEMA pawl TO handler")
        self.sql("GRANT EXECUTE ON FUNCTION pawl.begin(bigint, text),"
                 " pawl.complete(bigint, text, text) TO handler")
        job = self.one(enqueue("t"))
        self.sql("INSERT INTO pawl.x_running SELECT id, decode(repeat('ab', 16), 'hex'), 'w', 1, 1,"
                 " task_id, queue_id, rank, run_at_us, 0, 0, 0, 0, 0, 0 FROM pawl.x_ready")
        self.sql("DELETE FROM pawl.x_ready")
        self.sql(script("functions.sql"))           # a migrate leaves the grants
        handler = self.open(user="handler")
        self.refused("PWFEN", "not leased", "SELECT pawl.begin(%s, repeat('ac', 16))" % job,
                     handler)
        handler.run("SELECT pawl.begin(%s, repeat('ab', 16))" % job)
        handler.run("SELECT pawl.complete(%s, repeat('ab', 16))" % job)
        self.assertEqual(self.one("SELECT state FROM pawl.jobs"), "done")
        self.denied(handler, *self.touch(*self.tables, *VIEWS), *self.PRIVATE, enqueue("t"))


if __name__ == "__main__":
    unittest.main()
