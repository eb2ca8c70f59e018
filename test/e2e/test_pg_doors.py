#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""test_pg_doors.py - pawl.enqueue through psql, psycopg2 and psycopg in own transactions: what it
stores, what it refuses and with which words, and what two transactions with one key see."""
import datetime
import os
import sqlite3
import unittest

from pawltest import ROOT
from pgkit import (SESSIONS, Psycopg2Session, PsycopgSession, Refused, PgTest, enqueue, literal,
                   missing, psycopg, psycopg2)

TIMEOUT = 120
RULE, NOT_JSON, CLASH, SERIALIZATION = "22023", "22P02", "PWKEY", "40001"   # SQLSTATEs


class Door:
    """The tests of one client; the classes below name it."""
    session_class = None

    def setUp(self):
        why = missing(self.session_class)
        if why:
            self.skipTest(why)
        super().setUp()
        self.mine = self.open(self.session_class)

    def run_all(self, *statements):
        return [self.mine.run(s) for s in statements][-1]

    def test_case_39_exists_if_and_only_if_it_commits(self):
        """Goal: a job of an open transaction is seen by nobody, by all once it committed, and never
        when it did not; what was rolled back holds no key."""
        self.sql("CREATE TABLE orders(id int)")
        order, call = "INSERT INTO orders VALUES (7)", enqueue("ship", '{"order":7}', key="o-7")
        first = self.run_all("BEGIN", order, call)[0]
        self.assertEqual(first[1], "t")
        self.assertEqual(self.jobs(), [])
        self.run_all("ROLLBACK")
        self.assertEqual((self.jobs(), self.sql("SELECT id FROM orders")), ([], []))
        second = self.run_all("BEGIN", order, call)[0]
        self.assertEqual(self.jobs(), [])
        self.run_all("COMMIT")
        self.assertGreater(int(second[0]), int(first[0]))       # ids are never used again
        self.assertEqual(self.jobs(), [[second[0], "ship", '{"order":7}', "ready"]])
        self.assertEqual(self.sql("SELECT id FROM orders"), [["7"]])

    def test_savepoints(self):
        self.sql("CREATE TABLE own(x int)")
        self.run_all("BEGIN", "SAVEPOINT s", enqueue("t", key="k"), "ROLLBACK TO s",
                     "INSERT INTO own VALUES (1)", "COMMIT")
        self.assertEqual(self.jobs(), [])
        self.run_all("BEGIN", "SAVEPOINT s", enqueue("t", key="k"), "RELEASE s", "COMMIT")
        self.assertEqual(len(self.jobs()), 1)
        # A refusal ends the transaction, as every error does; with a savepoint it goes on.
        self.run_all("BEGIN", "INSERT INTO own VALUES (2)")
        self.refused(CLASH, "used before with other args", enqueue("t", "[1]", key="k"), self.mine)
        self.refused("25P02", "aborted", "SELECT 1", self.mine)
        self.run_all("COMMIT")
        self.run_all("BEGIN", "INSERT INTO own VALUES (3)", "SAVEPOINT s")
        self.refused(CLASH, "used before with other args", enqueue("t", "[1]", key="k"), self.mine)
        self.run_all("ROLLBACK TO s", "COMMIT")
        self.assertEqual(self.sql("SELECT x FROM own ORDER BY x"), [["1"], ["3"]])
        self.assertEqual(len(self.jobs()), 1)

    def test_lost_connection_is_a_rollback(self):
        self.run_all("BEGIN", enqueue("t", key="k"))
        self.mine.kill()
        self.mine = self.open(self.session_class)
        self.assertEqual(self.run_all(enqueue("t", key="k"))[0][1], "t")
        self.assertEqual(len(self.jobs()), 1)

    def test_answer_in_the_same_transaction(self):
        a, b, c = (self.run_all(enqueue("t", "[1]", key=key)) for key in ("k", "k", "other"))
        self.assertEqual((a[0][1], b, c[0][1]), ("t", [[a[0][0], "f"]], "t"))
        self.run_all("BEGIN")
        self.assertEqual(self.run_all(enqueue("t", "[1]", key="k")), [[a[0][0], "f"]])
        d = self.run_all(enqueue("t", "[1]", key="new"))
        self.assertEqual(self.run_all(enqueue("t", "[1]", key="new")), [[d[0][0], "f"]])
        self.run_all("COMMIT")
        self.assertEqual(len(self.jobs()), 3)


for _session in SESSIONS:
    _name = "Door_" + _session.name
    globals()[_name] = type(_name, (Door, PgTest), {"session_class": _session})
    globals()[_name].__module__ = __name__
del _session


class Drivers(PgTest):
    """Python values as the drivers send them, through their own placeholders."""

    def stored(self, session, call, values):
        job, created = session.run("SELECT id, created FROM pawl.enqueue(" + call + ")", values)[0]
        self.assertEqual(created, "t")
        return self.sql("SELECT args, coalesce(headers, '-'), coalesce(key, '-'), priority,"
                        " run_at_us FROM pawl.jobs WHERE id = " + job)[0]

    def values(self, session, plain, binary):
        when = datetime.datetime(2031, 1, 2, 3, 4, 5, 678901,
                                 datetime.timezone(datetime.timedelta(hours=1)))
        when_us = str((when - datetime.datetime(1970, 1, 1, tzinfo=datetime.timezone.utc))
                      // datetime.timedelta(microseconds=1))
        args = '{"a": 1.0,"b":"\u20ac \\u0000"}'
        self.assertEqual(
            self.stored(session, "%s, %s, key => %s, priority => %s, run_at => %s",
                        ("t", args, "k1", 7, when)), [args, "-", "k1", "7", when_us])
        self.assertEqual(self.stored(session, "%s, %s, %s, headers => %s",
                                     ("t", plain({"a": 1}), None, plain({"h": "x"})))[:3],
                         ['{"a": 1}', '{"h": "x"}', "-"])
        self.assertEqual(self.stored(session, "%s, %s, headers => %s",
                                     ("t", args, '{"h":"x"}'))[:3], [args, '{"h":"x"}', "-"])
        self.assertEqual(self.stored(session, "%s, %s", ("t", None))[0], "{}")
        if binary:
            self.assertEqual(self.stored(session, "%s, %s, headers => %s",
                                         ("t", binary({"b": 1, "a": 2}), binary({"h": "x"})))[:2],
                             ['{"a": 2, "b": 1}', '{"h": "x"}'])

    def test_psycopg2(self):
        why = missing(Psycopg2Session)
        if why:
            self.skipTest(why)
        from psycopg2.extras import Json
        self.values(self.open(Psycopg2Session), Json, None)

    def test_psycopg(self):
        why = missing(PsycopgSession)
        if why:
            self.skipTest(why)
        from psycopg.types.json import Json, Jsonb
        self.values(self.open(PsycopgSession), Json, Jsonb)

    def test_transactions_of_the_drivers(self):
        """Goal: with conn: of both drivers commits and rolls back the job with the row."""
        if psycopg2 is None and psycopg is None:
            self.skipTest("Python has neither psycopg2 nor psycopg")
        self.sql("CREATE TABLE own(x text)")
        for driver in filter(None, (psycopg2, psycopg)):
            name = driver.__name__
            for good in True, False:
                db = driver.connect(host=self.server.dir, dbname=self.database, user="owner")
                try:
                    with db:
                        cursor = db.cursor()
                        cursor.execute("INSERT INTO own VALUES (%s)", (name,))
                        cursor.execute("SELECT id, created FROM pawl.enqueue(%s, key => %s)",
                                       (name, "%s-%s" % (name, good)))
                        self.assertIs(cursor.fetchone()[1], True)
                        if not good:
                            raise ZeroDivisionError
                except ZeroDivisionError:
                    self.assertFalse(good)
                db.close()
            self.assertEqual(self.sql("SELECT key FROM pawl.jobs WHERE task = '%s'" % name),
                             [[name + "-True"]])
            self.assertEqual(self.one("SELECT count(*) FROM own WHERE x = '%s'" % name), "1")


# What every door refuses, with the words of the SQLite door.
BAD_NAME = " must be 1..64 of [a-z0-9._-], beginning with a letter or digit"
BAD_TEXT = " bytes of text without control characters"
REFUSED = [
    ({"task": n}, "task" + BAD_NAME) for n in (
        "", "A", "a" * 65, ".a", "-a", "_a", "a b", "a/b", "a\n", "\u00e9", "a\u0430", None)
] + [
    ({"queue": n}, "queue" + BAD_NAME) for n in ("", "Q", "q" * 65, "-q", "q\n", "\u00e9")
] + [
    ({"key": k}, "key must be 1..255" + BAD_TEXT)
    for k in ("", "k" * 256, "\u00e9" * 128, "a\nb", "\x01", "\x1f", "\x7f", "a\tb")
] + [
    ({"source": k}, "source must be 0..255" + BAD_TEXT) for k in ("k" * 256, "a\nb", "\x7f")
] + [
    ({"entity": k, "version": 1}, "entity must be 1..255" + BAD_TEXT)
    for k in ("", "k" * 256, "a\nb", "\x7f")
] + [
    ({"trace": k}, "trace must be 1..255" + BAD_TEXT) for k in ("", "k" * 256, "\x1f")
] + [
    ({"version": 1}, "version must be a 64-bit integer, and needs an entity"),
    ({"entity": "e"}, "entity needs a version"),
    ({"priority": 101}, "priority must be an integer from -100 to 100"),
    ({"priority": -101}, "priority must be an integer from -100 to 100"),
    ({"max_retries": -1}, "max_retries must be an integer from 0 to 1000"),
    ({"max_retries": 1001}, "max_retries must be an integer from 0 to 1000"),
    ({"args": '"' + "x" * (1024 * 1024 - 1) + '"'}, "args are larger than 1 MiB"),
    ({"args": '"' + "\u00e9" * (512 * 1024) + '"'}, "args are larger than 1 MiB"),
] + [
    ({"headers": h}, "headers must be a JSON object of strings of at most 16 KiB") for h in (
        "[]", "1", "null", '"a"', '{"a":1}', '{"a":null}', '{"a":"b","c":["d"]}',
        '{"a":{"b":"c"}}', '{"a":"%s"}' % ("x" * 16384))
] + [
    ({"run_at": "2040-01-01T00:00:00Z", "expires_at": t},
     "expires_at is not later than run_at, or than now: the job could never start")
    for t in ("2040-01-01T00:00:00Z", "2039-12-31T23:59:59Z", "1970-01-01T00:00:00Z")
] + [
    ({"run_at": "1999-01-01T00:00:00Z", "expires_at": "2000-01-01T00:00:00Z"},
     "expires_at is not later than run_at, or than now: the job could never start"),
    ({"expires_at": "2000-01-01T00:00:00Z"},
     "expires_at is not later than run_at, or than now: the job could never start"),
]
# What only PostgreSQL lets come so far, since the types are its own.
TIMES = ["1969-12-31T23:59:59Z", "10000-01-01T00:00:00Z", "infinity", "-infinity",
         "0001-01-01 BC", "9999-12-31T23:59:59-00:01", "1970-01-01T00:00:00+00:01"]
BAD_JSON = ["", " ", "{", "[1,]", "{a:1}", "'a'", "01", "1.", ".5", "+1", "NaN", "nul", '"a\nb"',
            '"\x01"', "\ufeff{}", "{} x", '"\\x"', '"\\u12g4"', "\u00a0{}", '{"a"}', "//\n1"]
GOOD_JSON = ["{}", " [ ] ", "null", "-0", "1e400", "0.10", "18446744073709551615", '"\\u0000"',
             '{"x\\u0000":0}', '"\\\\u0000"', '"\\ud800"', '"\U0001f600 \u2028 \ufeff"',
             '{"a":1,"a":2}', '"\x7f"', "\n\t\r 1 \n", '"%s"' % ("x" * (1024 * 1024 - 2)),
             "'".join(['"', '"']), '"%s :x \\\\"',
             "[" * 64 + "]" * 64, '{"a":' * 64 + "1" + "}" * 64,
             "[" * 63 + "[],{}" + "]" * 63,
             '["' + "[" * 999 + '"]', '["\\"' + "[{" * 999 + '"]', "[" + "[]," * 999 + "[]]"]


class Rules(PgTest):
    def sqlite(self):
        """The SQLite door, to compare with."""
        db = sqlite3.connect(":memory:", isolation_level=None)
        self.addCleanup(db.close)
        for name in "0001_init.sql", "views.sql":
            with open(os.path.join(ROOT, "sql", "sqlite", name), encoding="utf-8") as f:
                db.executescript(f.read())
        return db

    def by_sqlite(self, db, **columns):
        db.execute("INSERT INTO pawl_enqueue(%s) VALUES (%s)" % (
            ", ".join(columns), ", ".join("?" * len(columns))), list(columns.values()))
        return db.execute("SELECT id, created FROM pawl_last").fetchone()

    def test_what_is_refused_and_with_which_words(self):
        """Goal: each rule of the page refuses with the same words as on SQLite; nothing is stored,
        not even a name."""
        db = self.sqlite()
        for columns, says in REFUSED:
            columns = {"task": "fresh", **columns}
            with self.subTest(columns=repr(columns)[:200]):
                with self.assertRaises(Refused) as caught:
                    self.session.run(enqueue(**columns))
                self.assertEqual(caught.exception.state, RULE)
                self.assertIn(" pawl: " + says + "\n", str(caught.exception))
                if columns["task"] is not None:
                    with self.assertRaises(sqlite3.DatabaseError) as caught:
                        self.by_sqlite(db, **columns)
                    self.assertEqual(str(caught.exception), "pawl: " + says)
        for name in "x_task", "x_queue", "x_job", "x_key", "x_ready", "x_counter":
            self.assertEqual(self.one("SELECT count(*) FROM pawl." + name), "0", name)

    def test_times(self):
        for text in TIMES:
            for name in "run_at", "expires_at":
                self.refused(RULE, "pawl: %s must be in 1970 to 9999, in UTC" % name,
                             enqueue("t", **{name: text}))
        for text in "tomorrowish", "2027-02-29T00:00:00Z", "2027-01-01T25:00:00Z":
            self.refused("22008" if "T" in text else "22007", ".", enqueue("t", run_at=text))
        self.assertEqual(self.jobs(), [])
        for text, us in (("9999-12-31T23:59:59.999999Z", 253402300799999999),
                         ("2027-01-02T03:04:05.678901+01:00", 1798855445678901),
                         ("1970-01-01T00:00:00Z", 10 ** 14), ("1973-03-03T09:46:39Z", 10 ** 14),
                         ("1973-03-03T09:46:41Z", 10 ** 14 + 10 ** 6)):
            job = self.one(enqueue("t", run_at=text))
            self.assertEqual(self.one("SELECT run_at_us FROM pawl.jobs WHERE id = " + job), str(us))
            self.assertEqual(self.one("SELECT run_at_us FROM pawl.x_ready WHERE id = " + job),
                             str(us))

    def test_now_is_the_servers_clock_at_the_call(self):
        """Goal: not the begin of the transaction, which may be long ago."""
        clock = "SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint"
        self.sql("BEGIN")
        began = int(self.one("SELECT (extract(epoch FROM now()) * 1000000)::bigint"))
        self.wait_until(lambda: int(self.one(clock)) > began + 1000)
        before, _, after = int(self.one(clock)), self.sql("SELECT pawl.enqueue('t')"), \
            int(self.one(clock))
        created, run = self.sql("SELECT created_at_us, run_at_us FROM pawl.jobs")[0]
        self.assertEqual(created, run)
        self.assertLessEqual(before, int(created))
        self.assertLessEqual(int(created), after)
        self.sql("COMMIT")

    def test_what_is_not_json(self):
        for text in BAD_JSON:
            with self.subTest(args=text):
                self.refused(NOT_JSON, "JSON text|invalid input syntax for type json",
                             enqueue("t", text))
                self.refused(NOT_JSON, "JSON text|invalid input syntax for type json",
                             enqueue("t", headers=text))
                self.refused(NOT_JSON, "invalid input syntax for type json",
                             "SELECT pawl.enqueue('t', %s::json)" % literal(text))
        for text in ("[" * 65 + "]" * 65, '{"a":' * 65 + "1" + "}" * 65, "[" * 200000,
                     '{"a":' * 100000, '[{"a":' * 33 + "1" + "}]" * 33):
            with self.subTest(args=text[:80]):
                self.refused(RULE, "pawl: args must be JSON text at most 64 deep",
                             enqueue("t", text))
        if self.server.version_num >= 160000:
            refusal = self.refused(NOT_JSON, "pawl: args must be JSON text\n",
                                   enqueue("t", '{"a" 1}'))
            self.assertIn('Expected ":"', str(refusal))
        for bad in b'"\xff"', b'"\xed\xa0\x80"', b'"\xc0\x80"':
            self.refused("22021", "invalid byte sequence", enqueue("t", bad))
            self.refused("22021", "invalid byte sequence", enqueue("t", key=bad))
        self.assertEqual(self.jobs(), [])

    def test_args_are_kept_byte_for_byte(self):
        """Goal: what is accepted comes back as it was, from text and from json."""
        for text in GOOD_JSON:
            for cast in "", "::text", "::json":
                with self.subTest(args=text[:80], cast=cast):
                    job = self.one("SELECT id FROM pawl.enqueue('t', %s%s)" % (literal(text), cast))
                    self.assertEqual(self.one("SELECT encode(convert_to(args, 'UTF8'), 'hex')"
                                              " FROM pawl.jobs WHERE id = " + job),
                                     text.encode().hex())
        job = self.one("SELECT id FROM pawl.enqueue('t', '{\"b\":1.0, \"a\":2}'::jsonb)")
        self.assertEqual(self.one("SELECT args FROM pawl.jobs WHERE id = " + job),
                         '{"a": 2, "b": 1.0}')
        headers = ' { "a\\"" : "b\\u0000" , "c":"}" } '
        job = self.one(enqueue("t", headers=headers))
        self.assertEqual(self.one("SELECT headers FROM pawl.jobs WHERE id = " + job), headers)
        self.assertEqual(self.one("SELECT count(*) FROM pawl.enqueue('t', headers => '{}')"), "1")
        top = '{"a":"%s"}' % ("x" * (16384 - 8))
        self.assertEqual(len(top), 16384)
        self.assertEqual(self.sql(enqueue("t", headers=top))[0][1], "t")

    def test_same_rows_as_the_sqlite_door(self):
        """Goal: the same request is the same job through both, but for id and birth."""
        db = self.sqlite()
        requests = [
            {"task": "plain"}, {"task": "plain", "args": None, "source": None, "queue": None},
            {"task": "full", "args": '{"a": 1.0}', "key": "k", "source": "s", "queue": "q",
             "priority": -7, "run_at": "2031-01-02T03:04:05.678Z",
             "expires_at": "2032-01-01T01:00:00+01:00", "max_retries": 0, "entity": "e",
             "version": -3, "headers": '{"a":"b"}', "trace": "00-1-2-3"},
            {"task": "0." + "a" * 62, "queue": "z" * 64, "key": "k" * 255, "priority": 100,
             "source": "\u00e9" * 127, "entity": "\uffff", "version": 2 ** 63 - 1},
            {"task": "full", "args": '{"a": 1.0}', "key": "k", "source": "s", "queue": "other",
             "priority": 5, "expires_at": "2000-01-01T00:00:00Z"},     # a duplicate: for ever
            {"task": "full", "args": '{"a": 1.0}', "key": "k"},
            {"task": "ruled"}, {"task": "ruled", "priority": 0, "queue": "default"}]
        rule = ("INSERT INTO %(p)squeue(name, created_at_us) VALUES ('slow', 1);"
                "INSERT INTO %(p)stask(name, policy, queue_id, priority, created_at_us)"
                " SELECT 'ruled', '', id, 9, 1 FROM %(p)squeue WHERE name = 'slow'")
        for statement in rule.split(";"):
            db.execute(statement % {"p": "pawl_x_"})
            self.sql(statement % {"p": "pawl.x_"})
        columns = ("task, queue, source, key, state, args, headers, trace, entity, version, serial,"
                   " priority, max_retries, run_at_us - CASE WHEN run_at_us = created_at_us THEN"
                   " run_at_us ELSE 0 END, expires_at_us, gen, root_id - id, replay_of, runs")
        for request in requests:
            ours, (job, created) = self.sql(enqueue(**request))[0], self.by_sqlite(db, **request)
            self.assertEqual(ours[1], "ft"[created], request)
            theirs = db.execute("SELECT %s FROM pawl_jobs WHERE id = ?" % columns, (job,))
            self.assertEqual(
                self.sql("SELECT %s FROM pawl.jobs WHERE id = %s" % (columns, ours[0])),
                [["" if v is None else str(v) for v in theirs.fetchone()]], request)

    def test_whatever_the_callers_session_is_like(self):
        """Goal: settings, collations, a search_path and temporary tables of the caller change
        nothing."""
        self.sql("CREATE TABLE own(a text COLLATE \"POSIX\", b text COLLATE \"C.utf8\", c text)")
        self.sql("INSERT INTO own VALUES ('t', '{\"b\":[]}', 'k')")
        call = ("SELECT e.created FROM own, pawl.enqueue(a, b, key => c, source => a, queue => a,"
                " entity => b, version => 1, trace => c, headers => %s) e")
        for created in "t", "f":
            self.assertEqual(self.one(call % """'{"a":"b"}'"""), created)
        for created in "t", "f":                    # of one collation, which is not "C"
            self.assertEqual(self.one(
                "SELECT e.created FROM own, pawl.enqueue(a, '[' || repeat('[],', 99) || '[]]',"
                " key => a, source => a, queue => a, trace => a) e"), created)
        self.sql("CREATE SCHEMA evil")
        self.sql("CREATE FUNCTION evil.octet_length(text) RETURNS int LANGUAGE sql AS 'SELECT 1'")
        self.sql("CREATE FUNCTION evil.clock_timestamp() RETURNS timestamptz LANGUAGE sql"
                 " AS $$ SELECT '2000-01-01'::timestamptz $$")
        own = self.open()                           # in which nothing of ours is compiled yet
        own.run("CREATE TEMP TABLE x_job(id int)")
        own.run("CREATE TEMP TABLE pg_class(id int)")
        for setting in ("search_path = evil, pg_temp, pg_catalog",
                        "standard_conforming_strings = off", "timezone = 'Asia/Kathmandu'",
                        "datestyle = 'German'", "work_mem = '64kB'",
                        "backslash_quote = off", "bytea_output = 'escape'", "lc_messages = 'C'",
                        "plpgsql.variable_conflict = 'error'", "plpgsql.extra_errors = 'all'",
                        "enable_indexscan = off", "transform_null_equals = on"):
            own.run("SET " + setting)
        self.refused(RULE, "key must be", enqueue("t", key="k" * 256), own)
        self.refused(RULE, "key must be", "SELECT pawl.enqueue('t', key => E'a\\nb')", own)
        self.assertEqual(own.run("SELECT created FROM pawl.enqueue('t', '[]', headers =>"
                                 " '{\"a\":\"b\"}', run_at => '2031-01-02T03:04:05Z')"), [["t"]])
        self.assertEqual(own.run("SELECT created FROM pawl.enqueue('t', '[\"' || chr(92) || '\"'"
                                 " || repeat('[', 99) || '\"]', queue => 'q')"), [["t"]])
        self.assertEqual(self.sql("SELECT run_at_us, created_at_us > 1700000000000000"
                                  " FROM pawl.jobs WHERE queue = 'default'"),
                         [["1925089445000000", "t"]])

    def test_as_a_trigger_and_for_many_rows(self):
        """Goal: from a trigger of the caller's table, and once per row of a query."""
        self.sql("CREATE TABLE orders(id int PRIMARY KEY, note text)")
        self.sql("CREATE FUNCTION ship() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN"
                 " PERFORM pawl.enqueue('ship', to_json(NEW), key => 'order-' || NEW.id);"
                 " RETURN NEW; END $$")
        self.sql("CREATE TRIGGER ship AFTER INSERT ON orders FOR EACH ROW EXECUTE FUNCTION ship()")
        self.sql("INSERT INTO orders SELECT g, 'n' FROM generate_series(1, 100) g")
        self.assertEqual(self.sql("SELECT count(*), count(DISTINCT args) FROM pawl.jobs"),
                         [["100", "100"]])
        self.assertEqual(self.one("SELECT args FROM pawl.jobs WHERE key = 'order-7'"),
                         '{"id":7,"note":"n"}')
        self.assertEqual(self.sql(
            "SELECT count(*), count(*) FILTER (WHERE e.created) FROM orders AS o CROSS JOIN LATERAL"
            " pawl.enqueue('bill', json_build_object('order', o.id), key => (o.id % 10)::text"
            " || '-' || o.id) AS e"), [["100", "100"]])


class Keys(PgTest):
    def stat(self, name):
        return int(self.one("SELECT coalesce(sum(value), 0) FROM pawl.x_counter"
                            " WHERE split_part(name, '+', 1) = '%s'" % name))

    def test_same_request_other_request(self):
        """Goal: the same bytes are a duplicate in every state; other bytes are refused, and what is
        there stays; the key's scope is task and source; another queue is the same request."""
        job = self.sql(enqueue("t", '{"a":1}', key="k", queue="one"))[0][0]
        before = self.sql("SELECT * FROM pawl.jobs")
        for args in '{"a":2}', '{"a": 1}', '{"a":1} ', "{}":
            refusal = self.refused(CLASH, "pawl: this key was used before with other args",
                                   enqueue("t", args, key="k"))
            self.assertIn('Key "k" of task t belongs to job %s.' % job, str(refusal))
        self.assertEqual(self.sql(enqueue("t", '{"a":1}', key="k", queue="two")), [[job, "f"]])
        self.assertEqual(self.sql("SELECT * FROM pawl.jobs"), before)
        for other in {"task": "u"}, {"source": "s"}, {"key": "k "}:
            self.assertEqual(self.sql(enqueue(**{"task": "t", "args": "[9]", "key": "k", **other}))
                             [0][1], "t", other)
        self.assertEqual(self.stat("duplicates"), 1)

    def test_a_duplicate_is_told_the_newest_of_its_root(self):
        job = self.one(enqueue("t", "[1]", key="k"))
        newest = self.one(
            "INSERT INTO pawl.x_job (root_id, gen, replay_of, task_id, queue_id, key, args,"
            " priority, run_at_us, created_at_us) SELECT id, 1, id, task_id, queue_id, key, '[2]',"
            " 0, 1, 1 FROM pawl.x_job WHERE id = %s RETURNING id" % job)
        self.sql(enqueue("t", "[3]"))
        self.assertEqual(self.sql(enqueue("t", "[1]", key="k")), [[newest, "f"]])
        self.refused(CLASH, "belongs to job %s" % job, enqueue("t", "[2]", key="k"))

    def test_after_the_job_was_pruned(self):
        """Goal: the ledger goes on answering by length and hash; the hash is the one of C."""
        texts = ["", "0", "{}", "[1]", "null", '"ab"', '"\u00e9\u20ac"', '{"a":1}',
                 '"' + "\U0001f600" * 1000 + '"', '"' + "x" * (1024 * 1024 - 2) + '"']
        for text in texts:
            h1 = h2 = 0
            for b in text.encode():
                h1, h2 = (h1 * 257 + b + 1) % 2147483647, (h2 * 263 + b + 1) % 2147483629
            self.assertEqual(self.one("SELECT pawl.x_args_hash(%s)" % literal(text)),
                             str(h1 << 31 | h2), text[:40])
        job = self.one(enqueue("t", '{"a":1}', key="k"))
        self.sql("DELETE FROM pawl.x_ready")
        self.sql("UPDATE pawl.x_key SET args_bytes = length(args), state = 'done',"
                 " args_hash = pawl.x_args_hash(args) FROM pawl.x_job WHERE id = job_id")
        self.sql("DELETE FROM pawl.x_job")
        self.assertEqual(self.sql(enqueue("t", '{"a":1}', key="k")), [[job, "f"]])
        for args in '{"a":2}', '{"a":1} ':
            self.refused(CLASH, "used before", enqueue("t", args, key="k"))
        self.sql("DELETE FROM pawl.x_key")
        self.assertEqual(self.sql(enqueue("t", "[2]", key="k"))[0][1], "t")

    # --- two transactions ---

    def race(self, level, end, args="[1]"):
        """A has enqueued the key and not ended; B comes with it, waits; A ends so. B's answer."""
        a, b = self.open(), self.open()
        a.run("BEGIN")
        self.first = a.run(enqueue("t", "[1]", key="k"))[0][0]
        b.run("BEGIN ISOLATION LEVEL " + level)
        b.run("SELECT count(*) FROM pawl.jobs")             # from here on the snapshot is B's
        b.ask(enqueue("t", args, key="k"))
        self.wait_blocked(b)
        a.run(end)
        try:
            answer = b.answer()[0]
            b.run("COMMIT")
            return answer
        finally:
            b.run("ROLLBACK")
            a.close()

    def test_one_key_at_once(self):
        """Goal: the second waits for the first. Then, READ COMMITTED: a duplicate, or a clash, or
        the first when that one rolled back. Above: 40001 where it cannot see what decided."""
        for level in "READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE":
            with self.subTest(level=level):
                self.sql("SELECT pawl.enqueue('t')")            # the names are there
                answer = self.race(level, "ROLLBACK")
                self.assertEqual(answer[1], "t")
                self.assertNotEqual(answer[0], self.first)
                self.assertEqual(self.one("SELECT count(*) FROM pawl.jobs WHERE key = 'k'"), "1")
                self.sql("TRUNCATE pawl.x_job, pawl.x_ready, pawl.x_key")
                before = self.stat("duplicates")
                if level == "READ COMMITTED":
                    self.assertEqual(self.race(level, "COMMIT"), [self.first, "f"])
                    self.assertEqual(self.stat("duplicates"), before + 1)
                else:
                    with self.assertRaises(Refused) as caught:
                        self.race(level, "COMMIT")
                    self.assertEqual(caught.exception.state, SERIALIZATION)
                    self.assertEqual(self.stat("duplicates"), before)
                self.assertEqual(self.sql(enqueue("t", "[1]", key="k")), [[self.first, "f"]])
                self.sql("TRUNCATE pawl.x_job, pawl.x_ready, pawl.x_key")
                with self.assertRaises(Refused) as caught:
                    self.race(level, "COMMIT", args="[2]")
                self.assertEqual(caught.exception.state,
                                 CLASH if level == "READ COMMITTED" else SERIALIZATION)
                self.assertEqual(self.one("SELECT count(*) FROM pawl.jobs WHERE key = 'k'"), "1")
                self.sql("TRUNCATE pawl.x_job, pawl.x_ready, pawl.x_key")

    def test_a_key_of_after_the_snapshot(self):
        """Goal: a transaction that cannot see the job is not told of it: 40001, and the repeat of
        the whole transaction is a duplicate."""
        for level in "REPEATABLE READ", "SERIALIZABLE":
            key = "k-" + level
            self.sql("SELECT pawl.enqueue('t')")
            b = self.open()
            b.run("BEGIN ISOLATION LEVEL " + level)
            b.run("SELECT count(*) FROM pawl.jobs")
            job = self.one(enqueue("t", key=key))
            self.refused(SERIALIZATION, "could not serialize", enqueue("t", key=key), b)
            b.run("ROLLBACK")
            b.run("BEGIN ISOLATION LEVEL " + level)
            self.assertEqual(b.run(enqueue("t", key=key)), [[job, "f"]])
            self.refused(CLASH, "used before", enqueue("t", "[2]", key=key), b)
            b.run("ROLLBACK")

    def test_other_keys_do_not_conflict(self):
        """Goal: serializable transactions with different keys, and without, commit side by side."""
        self.sql("SELECT pawl.enqueue('t', key => g::text) FROM generate_series(1, 300) g")
        sessions = [self.open() for _ in range(6)]
        for s in sessions:
            s.run("BEGIN ISOLATION LEVEL SERIALIZABLE")
            s.run("SELECT 1")
        for i in range(5):
            for n, s in enumerate(sessions):
                self.assertEqual(s.run(enqueue("t", key="a-%d-%d" % (i, n)))[0][1], "t")
                self.assertEqual(s.run(enqueue("t"))[0][1], "t")
        for s in sessions:
            s.run("COMMIT")
        self.assertEqual(self.one("SELECT count(*) FROM pawl.jobs"), "360")

    def test_a_new_name_at_once(self):
        """Goal: who meets the new name of an open transaction waits; then both have it."""
        for level, end in (("READ COMMITTED", "COMMIT"), ("READ COMMITTED", "ROLLBACK"),
                           ("REPEATABLE READ", "COMMIT"), ("REPEATABLE READ", "ROLLBACK")):
            for names in ("task-%s", "q1"), ("t", "queue-%s"):
                task, queue = (n.replace("%s", (level[2:4] + end).lower()) for n in names)
                with self.subTest(level=level, end=end, task=task):
                    self.sql(enqueue("t", queue="q1"))
                    a, b = self.open(), self.open()
                    a.run("BEGIN")
                    a.run(enqueue(task, queue=queue))
                    b.run("BEGIN ISOLATION LEVEL " + level)
                    b.run("SELECT count(*) FROM pawl.jobs")
                    b.ask(enqueue(task, queue=queue))
                    self.wait_blocked(b)
                    a.run(end)
                    if level == "READ COMMITTED" or end == "ROLLBACK":
                        self.assertEqual(b.answer()[0][1], "t")
                    else:
                        with self.assertRaises(Refused) as caught:
                            b.answer()
                        self.assertEqual(caught.exception.state, SERIALIZATION)
                    b.run("COMMIT")

    def test_case_30_one_key_32_at_once(self):
        """Goal: one job; every caller gets its id; exactly one is told that it created it."""
        sessions = [self.open() for _ in range(32)]
        for turn in range(20):
            for s in sessions:
                s.ask(enqueue("t-%d" % (turn // 10), '{"turn":%d}' % turn, key="round-%d" % turn))
            answers = [s.answer()[0] for s in sessions]
            self.assertEqual(len({job for job, _ in answers}), 1, answers)
            self.assertEqual([created for _, created in answers].count("t"), 1, answers)
        self.assertEqual(self.one("SELECT count(*) FROM pawl.jobs"), "20")
        self.assertEqual(self.one("SELECT count(*) FROM pawl.x_ready"), "20")
        self.assertEqual(self.stat("duplicates"), 20 * 31)

    def test_an_open_duplicate_blocks_nobody(self):
        """Goal: a duplicate in a long transaction makes no other one wait, at any level; all are
        counted once they commit, none that was rolled back; folding keeps the sum."""
        self.sql(enqueue("t", key="k"))
        long, gone = self.open(), self.open()
        for s in long, gone:
            s.run("SET lock_timeout = '5s'")
            s.run("BEGIN")
            for _ in range(3):
                self.assertEqual(s.run(enqueue("t", key="k"))[0][1], "f")
        long.run("SAVEPOINT s")
        long.run(enqueue("t", key="k"))
        long.run("ROLLBACK TO s")
        for level in "READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE":
            b = self.open()
            b.run("SET lock_timeout = '5s'")
            b.run("BEGIN ISOLATION LEVEL " + level)
            self.assertEqual(b.run(enqueue("t", key="k"))[0][1], "f")
            b.run("COMMIT")
        self.assertEqual(self.stat("duplicates"), 3)
        self.sql("SELECT pawl.x_fold_counters()")           # waits for nobody, too
        gone.run("ROLLBACK")
        long.run("COMMIT")
        self.assertEqual(self.stat("duplicates"), 6)
        self.sql("SELECT pawl.x_fold_counters()")
        self.sql("SELECT pawl.x_fold_counters()")
        self.assertEqual(self.sql("SELECT * FROM pawl.x_counter"), [["duplicates", "6"]])

    def plans(self, vacuum):
        """Goal: neither a session that enqueued first into nearly empty tables scans them when they
        are full, nor one that starts then; a duplicate looks at no other job."""
        for name in "x_job", "x_key", "x_ready", "x_task", "x_queue":
            self.sql("ALTER TABLE pawl.%s SET (autovacuum_enabled = off)" % name)
        self.sql(enqueue("t", key="early"))
        self.sql(vacuum)
        old = self.open()
        for _ in range(10):
            old.run(enqueue("t", key="early"))
        for n in range(2):
            self.sql("INSERT INTO pawl.x_job (task_id, queue_id, args, priority, run_at_us,"
                     " created_at_us) SELECT 1, 1, '{}', 0, 1, 1 FROM generate_series(1, 20000)")
            self.sql("INSERT INTO pawl.x_key (task_id, source, key, job_id) SELECT 1, '',"
                     " 'bulk-%d-' || id, id FROM pawl.x_job WHERE id > 1" % n)
            for session in old, self.open():
                session.run("BEGIN")
                before = self.fetched(session)
                for i in range(30):
                    self.assertEqual(session.run(enqueue("t", key="early"))[0][1], "f")
                    self.assertEqual(session.run(enqueue("t", key="%s-%d-%d" % (
                        session.pid, n, i)))[0][1], "t")
                self.assertLess(self.fetched(session) - before, 1000)
                session.run("COMMIT")
            self.sql("VACUUM ANALYZE")

    def test_plans_of_tables_that_were_small(self):
        self.plans("VACUUM")

    def test_plans_of_tables_that_nobody_knows(self):
        self.plans("SELECT 1")

    @staticmethod
    def fetched(session):
        """Rows of our tables that the session's open transaction has looked at."""
        return int(session.run("SELECT sum(seq_tup_read + coalesce(idx_tup_fetch, 0))"
                               " FROM pg_stat_xact_user_tables WHERE schemaname = 'pawl'")[0][0])


if __name__ == "__main__":
    unittest.main()
