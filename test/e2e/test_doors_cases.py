#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""test_doors_cases.py - failures seen in the field at the doors of job systems: cases 30 31 35 43
44 45 46 47 67, each with the right outcome, through the CLI, its bulk input and plain SQL."""
import datetime
import json
import re
import threading
import unittest

from doors import Refused
from pawltest import PawlTest
from stores import each_store

BOTH_LINKS = True

CONF = """[pawl]
db = sqlite:shop.db

[task keep]
sql = INSERT INTO kept(id, args) VALUES (:job_id, :args)
"""


class Case(PawlTest):
    def setUp(self):
        super().setUp()
        self.conf(CONF)
        db = self.connect()
        db.execute("CREATE TABLE kept(id INTEGER PRIMARY KEY, args TEXT)")
        self.ok("apply")
        self.bytes = self.store.say("CAST(args AS BLOB)", "convert_to(args, 'UTF8')")
        self.session = self.connect()

    def by_cli(self, task="keep", args=None, **columns):
        """One enqueue through the command; (id, created), or Refused with its words."""
        words = []
        for name, value in columns.items():
            words += ["--" + {"run_at": "at", "expires_at": "expires"}.get(
                name, name.replace("_", "-")), value]
        if args is not None:
            args = args if isinstance(args, bytes) else args.encode("utf-8", "surrogatepass")
            done = self.pawl("enqueue", "--json", *words, "--", task, "-", stdin=args)
        else:
            done = self.pawl("enqueue", "--json", *words, "--", task)
        if done.code in (64, 65):
            self.assertEqual((done.out, len(done.err.splitlines())), ("", 1), done)
            raise Refused(done.err)
        self.assertEqual(done.code, 0, done)
        answer = json.loads(done.out)
        return int(answer["id"]), answer["created"]

    def by_bulk(self, task="keep", args=None, **columns):
        """One enqueue through a line of --bulk; (newest id, created)."""
        if isinstance(args, str):
            args = args.encode("utf-8", "surrogatepass")
        line = json.dumps(dict(columns, task=task)).encode()
        if args is not None:
            line = line[:-1] + b',"args":' + args + b"}"
        done = self.pawl("enqueue", "--bulk", "-", "--json", stdin=line + b"\n")
        if done.code == 65:
            self.assertIn("line 1", done.err)
            self.assertIn('"stored":0,', done.out)
            raise Refused(done.err)
        self.assertEqual(done.code, 0, done)
        answer = json.loads(done.out)
        return self.sql("SELECT max(id) FROM pawl_jobs")[0][0], answer["created"] == 1

    def by_sql(self, task="keep", **columns):
        self.session.execute("BEGIN IMMEDIATE")
        try:
            answer = self.store.enqueue(self.session, task, **columns)
        except self.store.error as error:
            self.session.execute("ROLLBACK")
            raise Refused(str(error)) from None
        self.session.execute("COMMIT")
        return answer

    def doors(self):
        return (("cli", self.by_cli), ("bulk", self.by_bulk), ("sql", self.by_sql))

    def count(self):
        return self.sql("SELECT count(*) FROM pawl_jobs")[0][0]

    def stored(self, job_id):
        """The bytes of the args, as the store has them."""
        return self.sql("SELECT %s FROM pawl_jobs WHERE id = ?" % self.bytes, (job_id,))[0][0]

    def kept(self, job_id):
        """The bytes that the handler was given."""
        rows = self.sql("SELECT %s FROM kept WHERE id = ?" % self.bytes, (job_id,))
        return rows[0][0] if rows else None

    def refused(self, door, says, **columns):
        """This door refuses with these words, and nothing is stored."""
        before = self.count()
        if not self.store.can("any_bytes") and door == self.by_sql:
            says += "|invalid byte sequence"    # the server has looked before us
        with self.assertRaisesRegex(Refused, says):
            door(**columns)
        self.assertEqual(self.count(), before)


@each_store
class Keys(Case):
    ROUNDS, BY_CLI, BY_SQL = 5, 48, 16

    def test_case_30_one_key_64_at_once(self):
        """Goal: 48 commands and 16 SQL transactions with one key at the same moment: one job; every
        caller gets its id; exactly one is told that it created it."""
        for turn in range(self.ROUNDS):
            key = "round-%d" % turn
            args = '{"turn":%d}' % turn
            start, answers = threading.Barrier(self.BY_CLI + self.BY_SQL), []

            def by_sql():
                session = self.store.connect()
                try:
                    start.wait()
                    session.execute("BEGIN IMMEDIATE")
                    answer = self.store.enqueue(session, "keep", args, key=key)
                    session.execute("COMMIT")
                    answers.append(answer)
                except self.store.error as error:
                    answers.append(error)
                finally:
                    session.close()

            def by_cli():
                start.wait()
                done = self.pawl("enqueue", "keep", args, "--key", key, "--json", timeout=50)
                answer = json.loads(done.out) if done.code == 0 else None
                answers.append((int(answer["id"]), answer["created"]) if answer else done)

            threads = [threading.Thread(target=t) for t in
                       [by_sql] * self.BY_SQL + [by_cli] * self.BY_CLI]
            for t in threads:
                t.start()
            for t in threads:
                t.join()
            self.assertEqual(len(answers), self.BY_CLI + self.BY_SQL)
            for answer in answers:
                self.assertIsInstance(answer, tuple, answer)
            self.assertEqual(len({job for job, _ in answers}), 1, answers)
            self.assertEqual([created for _, created in answers].count(True), 1, answers)
        self.assertEqual(self.count(), self.ROUNDS)
        self.assertEqual(self.json("stats")[0]["duplicates"],
                         self.ROUNDS * (self.BY_CLI + self.BY_SQL - 1))
        self.work()
        self.assertEqual(self.sql("SELECT count(*) FROM kept"), [(self.ROUNDS,)])

    def test_case_31_same_key_other_request(self):
        """Goal: other args are refused at every door and change nothing; the key's scope is task
        and source; another spelling of the same args is refused with a reason that says so."""
        first, _ = self.by_cli(args='{"a":1,"b":2}', key="k", queue="one")
        row = self.sql("SELECT * FROM pawl_jobs")
        for name, door in self.doors():
            with self.subTest(door=name):
                self.refused(door, "other args|different args", key="k", args='{"a":1,"b":3}')
                self.refused(door, "args", key="k", args='{"a":1, "b":2}')
                if name != "bulk":              # there it is white space of the line
                    self.refused(door, "args", key="k", args='{"a":1,"b":2} ')
                self.assertEqual(door(key="k", args='{"a":1,"b":2}'), (first, False))
                # The queue is no part of the request's identity: still the first job, where it was.
                self.assertEqual(door(key="k", args='{"a":1,"b":2}', queue="two"), (first, False))
        self.assertEqual(self.sql("SELECT * FROM pawl_jobs"), row)
        for name, door in self.doors():
            job, created = door(task="other-" + name, key="k", args="[9]")
            self.assertTrue(created)
            self.assertNotEqual(job, first)
            self.assertTrue(door(source=name, key="k", args="[9]")[1])
        done = self.pawl("enqueue", "keep", '{"a":1, "b":2}', "--key", "k")
        self.assertEqual(done.code, 65, done)
        self.assertRegex(done.err, "spelling|spelled")
        done = self.pawl("enqueue", "keep", '{"a":1,"b":3}', "--key", "k")
        self.assertNotRegex(done.err, "spelling|spelled")

    def test_case_35_the_id_is_the_identity_never_the_content(self):
        """Goal: equal contents under two ids both run; one id twice runs once, and its second
        spelling (other member order, 1 against 1.0) is refused as such."""
        for name, door in self.doors():
            with self.subTest(door=name):
                one, other = '{"n":1,"m":"%s"}' % name, '{"m":"%s","n":1}' % name
                a, _ = door(key=name + "-e1", args=one)
                b, _ = door(key=name + "-e2", args=one)
                self.assertNotEqual(a, b)
                c, _ = door(key=name + "-e3", args=one)
                self.refused(door, "args", key=name + "-e3", args=other)
                self.refused(door, "args", key=name + "-e3", args=one.replace("1", "1.0"))
                done = self.pawl("enqueue", "keep", other, "--key", name + "-e3")
                self.assertEqual(done.code, 65, done)
                self.assertRegex(done.err, "spelling|spelled")
                self.work()
                for job in a, b, c:
                    self.assertEqual(self.kept(job), one.encode())
        self.assertEqual(self.sql("SELECT count(*) FROM kept"), [(9,)])


@each_store
class Bytes(Case):
    def test_case_43_nul_bad_utf8_surrogates_bom(self):
        """Goal: each input comes through unchanged, or nothing of it is stored; what the SQL door
        cannot see (bad UTF-8) ends dead(undecodable) with its bytes kept, never lost or changed."""
        for args in ('"a\\u0000b"', '{"x\\u0000":0}', '"\\\\u0000"', '{"a":"\\\\u0000 \\\\ud800"}',
                     '"\\ud83d\\ude00"', '"\U0001f600 \u2028 \ufeff"'):
            for name, door in self.doors():
                with self.subTest(args=args, door=name):
                    job, created = door(args=args)
                    self.assertTrue(created)
                    self.assertEqual(self.stored(job), args.encode())
                    self.work()
                    self.assertEqual(self.kept(job), args.encode())
                    self.assertIn(args.encode(), self.pawl("job", job, "--json").out_bytes)
        for args in (b'\xef\xbb\xbf{}', b'{"a":\x00}', b'"\x01"', b'"a', b"\xff"):
            for name, door in self.doors():
                with self.subTest(args=args, door=name):
                    self.refused(door, ".", args=args)
        for args in (b'"\xff"', b'"\xed\xa0\x80"', b'"\xc0\x80"', b'"\xf5\x80\x80\x80"'):
            with self.subTest(args=args):
                self.refused(self.by_cli, "UTF-8|JSON", args=args)
                self.refused(self.by_bulk, "UTF-8|JSON", args=args)
                try:
                    job, _ = self.by_sql(args=args)
                except Refused:
                    continue
                self.work()
                self.assertIsNone(self.kept(job))
                shown = self.job(job)
                self.assertEqual((shown["state"], shown["dead_class"]), ("dead", "undecodable"))
                self.assertEqual(self.stored(job), args)

    def test_case_43_lone_surrogate_has_one_verdict(self):
        """Goal: an escape that is half a character is judged alike by all three doors."""
        verdicts = {}
        for args in ('"\\ud800"', '{"a":"\\udc00x"}'):
            for name, door in self.doors():
                try:
                    job, _ = door(args=args)
                except Refused:
                    verdicts[name] = "refused"
                    continue
                self.assertEqual(self.stored(job), args.encode())
                self.work()
                state = self.job(job)
                verdicts[name] = (state["state"], state["dead_class"])
                self.assertIn(self.kept(job), (None, args.encode()))
            self.assertEqual(len(set(verdicts.values())), 1, verdicts)

    def test_case_43_names_and_keys(self):
        """Goal: control characters and bad bytes in keys are refused alike at every door."""
        for key in ("a\0b", "a\nb", "\x7f", "\x1b[2J"):
            for name, door in self.doors():
                if name == "cli" and "\0" in key:
                    continue                    # no command line can hold a NUL
                with self.subTest(key=key, door=name):
                    self.refused(door, "key", key=key)
        whole = [c.encode() for c in ("\u00e9", "\u20ac", "\uffff", "\ufffe", "\U0010ffff",
                                      "a\u0300")]
        for bad in (b"\xff", b"a\x80", b"\xc3", b"\xc3(", b"\xc0\x80", b"\xe0\x9f\xbf",
                    b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\xf8\x90\x80\x80", b"\xe2\x82",
                    b"\xc3\xa9\xa9"):
            for name, door in (("cli", self.by_cli), ("sql", self.by_sql)):
                for columns in {"key": bad}, {"source": bad}, {"entity": bad, "version": 1}:
                    with self.subTest(bytes=bad, door=name, columns=columns):
                        self.refused(door, "UTF-8", **columns)
            self.refused(self.by_sql, "UTF-8", trace=bad)
            self.refused(self.by_sql, "UTF-8", headers=b'{"h":"' + bad + b'"}')
        for name, door in (("cli", self.by_cli), ("sql", self.by_sql)):
            for good in whole:
                with self.subTest(bytes=good, door=name):
                    job, new = door(key=good, source=good, entity=good, version=1)
                    self.assertEqual((self.job(job)["key"], new), (good.decode(), name == "cli"))
        for name, door in self.doors():
            for columns in {"key": ""}, {"entity": "", "version": 1}:
                with self.subTest(door=name, columns=columns):
                    self.refused(door, "empty|1..255", **columns)
        self.refused(self.by_sql, "JSON", args=b'{}\x00')
        self.refused(self.by_sql, "headers", headers=b'{}\x00')

    def test_case_44_digits_are_kept(self):
        """Goal: no number of a payload, and no job id, is rounded anywhere on its way."""
        args = ('{"id":9007199254740993,"x":0.10,"e":1e400,"z":-0,'
                '"id2":18446744073709551615,"f":0.1000000000000000055511151231257827}')
        # As if so many jobs had been there and were pruned.
        self.sql(self.store.say(
            "INSERT INTO sqlite_sequence VALUES ('pawl_x_job', 9007199254740992)",
            "ALTER TABLE pawl.x_job ALTER id RESTART WITH 9007199254740993"))
        self.sql("INSERT INTO pawl_x_counter VALUES ('pruned', 9007199254740992)")
        for name, door in self.doors():
            with self.subTest(door=name):
                job, _ = door(args=args)
                self.assertGreater(job, 2 ** 53)
                self.work()
                self.assertEqual(self.kept(job), args.encode())
                line = self.ok("job", job, "--json")
                self.assertIn('"args":' + args + ",", line)
                self.assertIn('"id":"%d"' % job, line)
                self.assertIn(args, self.ok("job", job))
                self.assertIn("job %d " % job, self.ok("job", job))
        self.assertEqual([j["id"] for j in self.json("jobs")],
                         [str(2 ** 53 + i) for i in (1, 2, 3)])
        self.ok("enqueue", "none")
        self.assertEqual(self.json("cancel", 2 ** 53 + 4)[0]["id"], str(2 ** 53 + 4))

    def test_case_45_sizes_up_to_the_limit(self):
        """Goal: every size up to 1 MiB is accepted by every door and reaches the handler whole; one
        byte more is refused, and nothing is stored."""
        limit = 1024 * 1024
        for size in (7900, 8000, 8001, 8100, limit - 1, limit):
            args = '"' + "x" * (size - 2) + '"'
            for name, door in self.doors():
                with self.subTest(size=size, door=name):
                    job, _ = door(args=args, queue="q" * 60)
                    self.work()
                    self.assertEqual(self.kept(job), args.encode())
        for name, door in self.doors():
            with self.subTest(door=name):
                self.refused(door, "1 MiB|1048576|1,048,576|large",
                             args='"' + "x" * (limit - 1) + '"')

    def test_case_45_a_thousand_jobs_in_one_transaction(self):
        self.session.execute("BEGIN IMMEDIATE")
        for i in range(1000):
            self.store.enqueue(self.session, "keep", '{"i":%d,"pad":"%s"}' % (i, "x" * 8000))
        self.assertEqual(self.json("jobs"), [])
        self.session.execute("COMMIT")
        self.work()
        self.assertEqual(self.sql("SELECT count(*), count(DISTINCT args) FROM kept"),
                         [(1000, 1000)])

    def test_case_46_depth(self):
        """Goal: 64 deep is fine at every door; 65 deep and 200,000 open brackets kill nothing:
        refused, or dead(undecodable) and shown as text."""
        for shape in ("[%s]", '{"a":%s}'):
            args = "1"
            for _ in range(64):
                args = shape % args
            for name, door in self.doors():
                with self.subTest(door=name, shape=shape):
                    job, _ = door(args=args)
                    self.work()
                    self.assertEqual(self.kept(job), args.encode())
                    self.assertIn('"args":' + args + ",", self.ok("job", job, "--json"))
        deep = "[" * 65 + "]" * 65
        self.refused(self.by_cli, "deep", args=deep)
        self.refused(self.by_bulk, "deep", args=deep)
        if self.store.can("deep_args"):         # a trigger cannot count
            job, _ = self.by_sql(args=deep)
            self.work()
            shown = self.job(job)
            self.assertEqual((shown["state"], shown["dead_class"]), ("dead", "undecodable"))
            self.assertEqual(shown["args_text"], deep)
            self.assertIn(deep, self.ok("job", job))
        else:
            self.refused(self.by_sql, "deep", args=deep)
        for args in ("[" * 200000, "[" * 200000 + "]" * 200000, '{"a":' * 100000):
            for name, door in self.doors():
                with self.subTest(door=name, size=len(args)):
                    self.refused(door, "deep|JSON", args=args)

    def test_case_46_depth_in_a_handlers_reply(self):
        """Goal: 200,000 open brackets as a verdict are that job's failure; the worker goes on."""
        self.script("deep.py", "#!/usr/bin/env python3\nimport os\n"
                    "try:\n    os.write(3, b'{\"done\":{\"result\":' + b'[' * 200000)\n"
                    "except OSError:\n    pass\n")
        self.conf(CONF + "[task deep]\nexec = ./deep.py\nmax_retries = 0\n")
        self.ok("apply")
        job, after = self.enqueue("deep"), self.enqueue("keep")
        self.work()
        self.assertEqual(self.job(job)["state"], "dead")
        self.assertEqual(self.job(after)["state"], "done")
        self.assertIsNone(self.job(job)["result"])


@each_store
class Names(Case):
    NAMES = ["", "a" * 64, "a" * 65, "a" * 4096, "a/b", "..", ".a", "a..b", "%2e", "a ", " a",
             "a\n", "a'b", 'a"b', "DROP", "Drop", "drop", "a;b", "a-b", "-a", "_a", "a_b", "0",
             "0.1", "caf\u00e9", "\U0001f600", "a\u200f", "a\u200b", "a\0b", "\u0430", "a\tb",
             "null"]

    def verdicts(self, column, name):
        """What each door says to this name: refused, or the id."""
        out = {}
        for door_name, door in self.doors():
            if door_name == "cli" and "\0" in name:
                continue                        # no command line can hold a NUL
            before = self.count()
            try:
                out[door_name] = door(**{column: name})[0]
            except Refused:
                out[door_name] = "refused"
                self.assertEqual(self.count(), before)
        return out

    def test_case_47_queue_names(self):
        """Goal: a queue's name is refused at the first door, or the queue can be filled, seen,
        paused and drained by that name."""
        for name in self.NAMES:
            with self.subTest(name=name[:80]):
                out = self.verdicts("queue", name)
                if "refused" in out.values():
                    self.assertEqual(set(out.values()), {"refused"}, out)
                    if "\0" not in name and name != "":
                        self.assertIn(self.pawl("pause", "--", name).code, (1, 64, 65))
                    continue
                rows = {q["queue"]: q for q in self.json("queues")}
                self.assertEqual(rows[name]["due"], 3)
                self.assertEqual({j["id"] for j in self.json("jobs", "--queue", name)},
                                 {str(i) for i in out.values()})
                self.ok("pause", "--", name)
                self.work("--queue", name)
                self.assertEqual({self.job(i)["state"] for i in out.values()}, {"ready"})
                self.ok("resume", "--", name)
                self.work("--queue", name)
                self.assertEqual({self.job(i)["state"] for i in out.values()}, {"done"})

    def test_case_47_task_names(self):
        """Goal: the same rule for tasks; and what is accepted can be served by a worker."""
        accepted = []
        for name in self.NAMES:
            with self.subTest(name=name[:80]):
                out = self.verdicts("task", name)
                if "refused" in out.values():
                    self.assertEqual(set(out.values()), {"refused"}, out)
                else:
                    accepted.append(name)
        self.assertIn("a" * 64, accepted)
        self.conf("[pawl]\ndb = sqlite:shop.db\n" + "".join(
            "[task %s]\nsql = INSERT INTO kept VALUES (:job_id, :args)\n" % name
            for name in accepted))
        self.work()
        self.assertEqual(self.sql("SELECT DISTINCT state FROM pawl_jobs"), [("done",)])
        for name in accepted:
            self.assertEqual(len(self.json("jobs", "--task", name)), 3, name)


@each_store
class Times(Case):
    GOOD = ["2038-01-19T03:14:08Z", "2106-02-07T06:28:16Z", "9999-12-31T23:59:59Z",
            "9999-12-31T23:59:59.999Z", "9999-12-31T23:59:59.999999Z", "2040-06-01T00:00:00+23:59",
            "9999-12-31T23:59:59+14:01", "2040-06-01T00:00:00-23:59",
            "2100-02-28T23:59:59.001Z", "2096-02-29T12:00:00Z",
            "2040-06-01T00:00:00+14:00", "2040-06-01T00:00:00.5z", "2040-06-01t00:00:00.123456789Z",
            "2040-06-01T00:00:00.125-11:30", "2500-01-01 00:00:00Z"]
    BAD = ["10000-01-01T00:00:00Z", "+10000-01-01T00:00:00Z", "0000-01-01T00:00:00Z",
           "1969-12-31T23:59:59Z", "-1", "1000000000000000000", "1e18", "tomorrow", "now", "",
           "2027-02-29T00:00:00Z", "2027-13-01T00:00:00Z", "2027-00-10T00:00:00Z",
           "2027-04-31T00:00:00Z", "2027-01-01T24:00:00Z", "2027-01-01T00:60:00Z",
           "2016-12-31T23:59:60Z", "2027-01-01T00:00:00", "2027-01-01", "2027-01-01T00:00Z",
           "2027-01-01T00:00:00 Z", "2027-1-1T00:00:00Z", "12/31/2027", "2027-01-01T00:00:00EST",
           "2027-01-01T00:00:00.Z", "2027-01-01T00:00:00.5.5Z", "2027-01-01T00:00:00.5 Z",
           "2027-01-01T00:00:00+24:00", "2027-01-01T00:00:00+01:60", "2027-01-01T00:00:00+0100",
           "9999-12-31T23:59:59-00:01", "1970-01-01T00:00:00+00:01", "1969-12-31T23:00:00-02:00",
           "2027-01-01T00:00:00ZZ", "2027-01-01T00:00:00Z+01:00", " 2027-01-01T00:00:00Z"]

    @staticmethod
    def instant(text):
        """Microseconds since 1970; what is finer is cut off."""
        text = re.sub(r"(\.\d{6})\d+", r"\1", text.upper()).replace("Z", "+00:00")
        text = re.sub(r"\.(\d+)", lambda m: "." + m[1].ljust(6, "0"), text)
        since = datetime.datetime.fromisoformat(text) - datetime.datetime(
            1970, 1, 1, tzinfo=datetime.timezone.utc)
        return since // datetime.timedelta(microseconds=1)

    def doors_for(self, text):
        """A server's own type has no zone beyond 16 hours from UTC."""
        own = self.store.can("own_times") or not re.search(r"[+-](1[6-9]|2\d):\d\d$", text)
        return self.doors()[:3 if own else 2]

    def microseconds(self, door, text):
        """What it keeps of them; a server rounds what is finer."""
        up = door == "sql" and not self.store.can("own_times") and ".123456789" in text
        return self.instant(text) + up

    def test_case_67_far_times_in_range(self):
        """Goal: stored to the microsecond, shown back equal, not run, in the right order."""
        now = datetime.datetime.now(datetime.timezone.utc)
        good = self.GOOD + [(now + datetime.timedelta(days=d)).strftime("%Y-%m-%dT%H:%M:%SZ")
                            for d in (25, 60)]
        want = {}
        for text in good:
            for name, door in self.doors_for(text):
                with self.subTest(time=text, door=name):
                    job, _ = door(run_at=text)
                    want[job] = self.microseconds(name, text)
                    self.assertEqual(self.instant(self.job(job)["run_at"]), want[job])
        for text in self.GOOD:
            for name, door in self.doors_for(text):
                with self.subTest(expires=text, door=name):
                    job, _ = door(run_at="2038-01-01T00:00:00Z", expires_at=text)
                    want[job] = self.instant("2038-01-01T00:00:00Z")
                    self.assertEqual(self.instant(self.job(job)["expires_at"]),
                                     self.microseconds(name, text))
        for instant, text in ((253402300799999000, "9999-12-31T23:59:59.999Z"),
                              (253402300799999999, "9999-12-31T23:59:59.999999Z")):
            if not self.store.can("own_times"):
                break
            job, _ = self.by_sql(run_at=instant)
            self.assertEqual(self.job(job)["run_at"], text)
            want[job] = instant
        self.work()
        self.assertEqual(self.sql("SELECT DISTINCT state FROM pawl_jobs"), [("ready",)])
        self.assertEqual(self.sql("SELECT count(*) FROM kept"), [(0,)])
        order = [row[0] for row in self.sql("SELECT id FROM pawl_jobs ORDER BY run_at_us, id")]
        self.assertEqual(order, sorted(want, key=lambda j: (want[j], j)))

    def test_case_67_out_of_range_or_ambiguous_is_refused(self):
        for text in self.BAD:
            for name, door in self.doors()[:3 if self.store.can("own_times") else 2]:
                for member in "run_at", "expires_at":
                    with self.subTest(time=text, door=name, member=member):
                        self.refused(door, "at|expires|time|duration", **{member: text})
        if not self.store.can("own_times"):
            for text in "10000-01-01T00:00:00Z", "1969-12-31T23:59:59Z", "infinity", "-infinity":
                self.refused(self.by_sql, "run_at must be", run_at=text)
            return
        for instant in (-1, 253402300800000000, 10 ** 18, 2 ** 63 - 1):
            with self.subTest(instant=instant):
                self.refused(self.by_sql, "run_at must be", run_at=instant)
        for instant in (0, 1, 1800000000, 1800000000000, 10 ** 14 - 1):
            for member in "run_at", "expires_at":
                with self.subTest(instant=instant, member=member):
                    self.refused(self.by_sql, member + " looks like seconds", **{member: instant})
        with self.assertRaisesRegex(self.store.error, "run_at must be"):
            self.session.execute("INSERT INTO pawl_enqueue(task, run_at) VALUES ('keep', 1e18)")
        self.assertEqual(self.count(), 0)

    def test_case_67_durations_that_overflow(self):
        for text in ("9999999999999999999d", "292277026596d", "1e9d", "-1d", "NaNd", "infd",
                     "4000d"):
            with self.subTest(duration=text):
                self.fails(64, "enqueue", "keep", "--in", text, says="--in")
                self.fails(64, "enqueue", "keep", "--expires", text, says="--expires")
        self.assertEqual(self.count(), 0)

    def test_case_67_the_past_is_due_at_once(self):
        """Goal: an instant long ago, the epoch included, means due; to expire it is refused. The
        doors store the same."""
        for text in ("1970-01-01T00:00:00Z", "1970-01-01T00:00:00-23:59", "1973-03-03T09:46:39Z",
                     "1999-12-31T23:59:59Z"):
            rows = set()
            for name, door in self.doors_for(text):
                with self.subTest(time=text, door=name):
                    late, _ = door(run_at=text)
                    self.work()
                    self.assertEqual(self.job(late)["state"], "done")
                    self.refused(door, "could never start", expires_at=text)
                    rows |= set(self.sql("SELECT run_at_us FROM pawl_jobs WHERE id = ?", (late,)))
            self.assertEqual(len(rows), 1, (text, rows))

    def test_case_67_expiry_before_the_start_is_refused_but_a_duplicate_stays_one(self):
        for name, door in self.doors():
            with self.subTest(door=name):
                for expires in "2040-01-01T00:00:00Z", "2039-12-31T23:59:59Z":
                    self.refused(door, "could never start", run_at="2040-01-01T00:00:00Z",
                                 expires_at=expires)
                job, new = door(key="k-" + name)
                again, twice = door(key="k-" + name, expires_at="2000-01-01T00:00:00Z")
                self.assertEqual((job, new, twice), (again, True, False))


if __name__ == "__main__":
    unittest.main()
