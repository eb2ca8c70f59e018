#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""test_cli_enqueue.py - pawl init and pawl enqueue: one job, many jobs, duplicates, refusals."""
import os
import re
import signal
import subprocess
import unittest

from pawltest import PAWL, PawlTest
from stores import each_store, sqlite_alone


@each_store
class Init(PawlTest):
    make_store = False

    def test_init_creates_once_and_is_safe_twice(self):
        self.assertEqual(self.json("init"), [{"store": self.store.url, "created": True}])
        self.enqueue("t")
        self.assertEqual(self.json("init"), [{"store": self.store.url, "created": False}])
        self.assertEqual(len(self.json("jobs")), 1)
        self.assertIn("ready", self.ok("init"))

    def test_init_by_many_at_once(self):
        """Goal: of 8 that start together all succeed, and exactly one says that it created."""
        running = [subprocess.Popen([PAWL, "init", "--json"], cwd=self.dir, env=self.env(),
                                    stdout=subprocess.PIPE, stderr=subprocess.PIPE)
                   for _ in range(8)]
        outs = [p.communicate() for p in running]
        self.assertEqual([p.returncode for p in running], [0] * 8, outs)
        self.assertEqual(sum(b'"created":true' in out for out, _ in outs), 1, outs)

    @sqlite_alone
    def test_init_refuses_what_is_not_a_store(self):
        with open(self.db, "wb") as f:
            f.write(b"hello, I am a text\n" * 400)
        with open(self.db, "rb") as f:
            before = f.read()
        self.fails(78, "init")
        self.fails(78, "jobs")
        with open(self.db, "rb") as f:
            self.assertEqual(f.read(), before)
        self.check_at_end = False

    @sqlite_alone
    def test_init_where_nothing_can_be(self):
        self.fails(73, "init", "--db", "sqlite:nowhere/shop.db")
        os.mkdir(os.path.join(self.dir, "dir.db"))
        done = self.pawl("init", "--db", "dir.db")
        self.assertIn(done.code, (73, 78), done)


@each_store
class One(PawlTest):
    def test_prints_the_id(self):
        self.assertEqual(self.ok("enqueue", "t"), "1\n")
        self.assertEqual(self.ok("enqueue", "t", '{"a":1}'), "2\n")
        answer = self.json("enqueue", "t")[0]
        self.assertEqual((answer["id"], answer["created"], answer["state"]), ("3", True, "ready"))

    def test_every_option_reaches_the_job(self):
        job = self.job(self.enqueue(
            "charge", '{"order": 42}', "--key", "k", "--source", "web", "--queue", "fast",
            "--priority", "-7", "--at", "2031-02-03T04:05:06.789+02:00", "--expires",
            "2032-01-01T00:00:00Z",
            "--max-retries", "9", "--entity", "sku-1", "--version", "9223372036854775807",
            "--header", "a=1", "--header", "b=x=\"y\""))
        for name, value in {
                "task": "charge", "args": {"order": 42}, "key": "k", "source": "web",
                "queue": "fast", "priority": -7, "run_at": "2031-02-03T02:05:06.789Z",
                "expires_at": "2032-01-01T00:00:00.000Z", "max_retries": 9, "entity": "sku-1",
                "version": 9223372036854775807, "headers": {"a": "1", "b": 'x="y"'},
                "state": "ready", "runs": 0, "failures": 0, "attempts": [], "worker": None,
                "result": None}.items():
            self.assertEqual(job[name], value, name)

    def test_relative_times_count_from_now(self):
        job = self.job(self.enqueue("t", "{}", "--in", "1h", "--expires", "2h"))
        import datetime as d
        at = {n: d.datetime.fromisoformat(job[n].replace("Z", "+00:00"))
              for n in ("created_at", "run_at", "expires_at")}
        self.assertAlmostEqual((at["run_at"] - at["created_at"]).total_seconds(), 3600, delta=30)
        self.assertAlmostEqual((at["expires_at"] - at["created_at"]).total_seconds(), 7200,
                               delta=30)

    def test_args_from_standard_input_byte_for_byte(self):
        text = ' {"a":1.0,\t"b":"\u00e9",\n "c":[ ] } \n'
        job = self.json("enqueue", "t", "-", stdin=text)[0]["id"]
        self.assertEqual(self.sql("SELECT args FROM pawl_jobs WHERE id = ?", (job,)), [(text,)])
        shown = self.job(job)
        self.assertEqual(shown["args_text"], text)      # it does not fit on one line as it is
        self.assertEqual(shown["args"], {"a": 1.0, "b": "\u00e9", "c": []})

    def test_args_keep_their_spelling_in_json(self):
        text = '{"n":9007199254740993, "x":0.10,"e":1e400,"z":-0}'
        job = self.enqueue("t", text)
        self.assertIn('"args":' + text + ",", self.ok("job", job, "--json"))
        self.assertIn(text, self.ok("job", job))

    def test_bad_args_are_refused_and_nothing_is_stored(self):
        for args in ("{", "", "nul", '{"a":1} x', "{'a':1}", '{"a":01}', "NaN"):
            with self.subTest(args=args):
                self.fails(65, "enqueue", "t", args)
        self.fails(65, "enqueue", "t", "-")             # empty input
        self.fails(65, "enqueue", "t", "-", stdin=b'{"a":"\xff"}')
        self.fails(65, "enqueue", "t", "-", stdin=b'"' + b"x" * (1024 * 1024) + b'"')
        self.assertEqual(self.json("jobs"), [])

    def test_bad_options_are_refused_and_nothing_is_stored(self):
        for words, says in (
                (["--priority", "101"], "from -100 to 100"),
                (["--priority", "1.5"], "whole number"),
                (["--max-retries", "-1"], "from 0 to 1000"),
                (["--version", "9223372036854775808", "--entity", "e"], "whole number"),
                (["--in", "10"], "duration"), (["--in", "-1s"], "duration"),
                (["--at", "noon"], "RFC 3339"),
                (["--in", "1s", "--at", "2031-01-01T00:00:00Z"], "not both"),
                (["--expires", "soon"], "duration such as"), (["--header", "x"], "NAME=VALUE"),
                (["--header", "a=1", "--header", "a=2"], "twice"),
                (["--from-line", "2"], "belongs to --bulk")):
            with self.subTest(words=words):
                self.fails(64, "enqueue", "t", *words, says=says)
        for words, says in ((["t", "{}", "--queue", "a/b"], 'queue "a/b"'),
                            (["t", "{}", "--key", ""], "key"),
                            (["Bad/Name"], 'task "Bad/Name"'),
                            (["t", "{}", "--source", "s" * 256], "source"),
                            (["t", "{}", "--key", b"\xff"], "UTF-8")):
            with self.subTest(words=words):
                self.fails(65, "enqueue", *words, says=says)
        self.fails(64, "enqueue", says="needs a TASK")
        self.fails(64, "enqueue", "t", "--version", "1", says="version without entity")
        self.fails(64, "enqueue", "t", "--entity", "e", says="entity without version")
        self.assertEqual(self.json("jobs"), [])

    def test_duplicate_is_said_and_is_no_failure(self):
        self.assertEqual(self.ok("enqueue", "t", "[1]", "--key", "k"), "1\n")
        done = self.pawl("enqueue", "t", "[1]", "--key", "k")
        self.assertEqual((done.code, done.out), (0, "1\n"), done)
        self.assertIn("duplicate: key 'k' was accepted before as job 1 (ready)", done.err)
        answer = self.json("enqueue", "t", "[1]", "--key", "k")[0]
        self.assertEqual((answer["id"], answer["created"], answer["state"]), ("1", False, "ready"))
        done = self.pawl("enqueue", "t", "[1]", "--key", "k", "--fail-on-duplicate")
        self.assertEqual((done.code, done.out), (1, "1\n"), done)
        self.assertEqual(self.ok("enqueue", "t", "[1]", "--key", "k", "--source", "s"), "2\n")
        self.assertEqual(self.ok("enqueue", "u", "[1]", "--key", "k"), "3\n")
        self.assertEqual(len(self.json("jobs")), 3)

    def test_undeclared_task_is_warned_about_with_the_nearest_name(self):
        self.conf("[pawl]\ndb = sqlite:shop.db\n[task charge]\nsql = SELECT 1\n")
        self.ok("apply", "-c", "pawl.conf")
        done = self.pawl("enqueue", "chrage")
        self.assertEqual(done.code, 0, done)
        self.assertEqual(done.err, "pawl enqueue: warning: no worker has declared task 'chrage' "
                                   "yet; the nearest is 'charge'\n")
        self.assertEqual(self.pawl("enqueue", "charge").err, "")
        self.assertIs(self.json("enqueue", "charge")[0]["task_known"], True)


@each_store
class Bulk(PawlTest):
    def bulk(self, *lines):
        path = os.path.join(self.dir, "in.jsonl")
        with open(path, "wb") as f:
            for line in lines:
                f.write((line if isinstance(line, bytes) else line.encode()) + b"\n")
        return path

    def test_every_member_reaches_the_job(self):
        path = self.bulk('{"task":"a"}', "", ' {"args" : [1,  2.0] ,"task":"b","key":"k",'
                         '"source":"s","queue":"q","priority":-3,"run_at":"2031-01-01T00:00:00Z",'
                         '"expires_at":"2032-01-01T00:00:00+01:00","max_retries":0,"entity":"e",'
                         '"version":-5,"headers":{"h":"v"}}\r', '{"task":"c","in":"1h","key":null}',
                         '{"task":"d","args":null}', '{"t\\u0061sk":"e","args":"\\u0000"}')
        out = self.json("enqueue", "--bulk", path)
        self.assertEqual(out, [{"stored": 5, "created": 5, "duplicates": 0, "lines": 6,
                                "complete": True}])
        jobs = self.json("jobs")
        self.assertEqual([j["task"] for j in jobs], list("abcde"))
        self.assertEqual(self.sql("SELECT args FROM pawl_jobs ORDER BY id"),
                         [("{}",), ("[1,  2.0]",), ("{}",), ("null",), ('"\\u0000"',)])
        for name, value in {"key": "k", "source": "s", "queue": "q", "priority": -3,
                            "max_retries": 0,
                            "run_at": "2031-01-01T00:00:00.000Z", "entity": "e", "version": -5,
                            "expires_at": "2031-12-31T23:00:00.000Z",
                            "headers": {"h": "v"}}.items():
            self.assertEqual(jobs[1][name], value, name)
        self.assertGreater(jobs[2]["run_at"], jobs[2]["created_at"])
        self.assertIsNone(jobs[2]["key"])

    def test_from_standard_input_without_last_newline(self):
        self.assertIn("2 lines: 1 new, 1 duplicates", self.ok(
            "enqueue", "--bulk", "-", stdin='{"task":"a","key":"1"}\n{"task":"a","key":"1"}'))

    def test_bad_lines_are_named_with_the_reason(self):
        for line, says in (
                ("{", "not valid JSON at byte"), ("[]", "must be an object"),
                ("{}", "task is missing"),
                ('{"task":"a","tsk":1}', "unknown member 'tsk'; the nearest is 'task'"),
                ('{"task":"a","task":"b"}', "'task' is there twice"),
                ('{"task":"a","t\\u0061sk":"b"}', "'task' is there twice"),
                ('{"task":7}', "task: must be a string"), ('{"task":"A/b"}', "task"),
                ('{"task":"a","priority":1.0}', "priority 1.0: must be a whole number"),
                ('{"task":"a","priority":101}', "from -100 to 100"),
                ('{"task":"a","priority":"1"}', "whole number"),
                ('{"task":"a","run_at":"tomorrow"}', "run_at 'tomorrow'"),
                ('{"task":"a","run_at":1}', "run_at: must be a string"),
                ('{"task":"a","in":"x"}', "in 'x'"),
                ('{"task":"a","in":"1s","run_at":"2031-01-01T00:00:00Z"}', "not both"),
                ('{"task":"a","headers":[]}', "headers"),
                ('{"task":"a","headers":{"a":1}}', "header"),
                ('{"task":"a","key":"a\\u0000b"}', "holds a NUL"),
                ('{"task":"a","key":"\\ud800"}', "surrogate"),
                ('{"task":"a","version":1e3,"entity":"e"}', "version 1e3"),
                (b'{"task":"a","key":"\xff"}', "not valid JSON"),
                ('{"task":"a","args":%s}' % ("[" * 65 + "]" * 65), "deep"),
                ('{"task":"a","args":"%s"}' % ("x" * 1024 * 1024), "1 MiB|1048576|larger|large"),
                ('{"task":"a","key":"%s"}' % ("k" * 256), "key"), ("x" * 1200000, "longer than")):
            with self.subTest(line=line[:60]):
                path = self.bulk('{"task":"good"}', line, '{"task":"good"}')
                done = self.pawl("enqueue", "--bulk", path)
                self.assertEqual(done.code, 65, done)
                self.assertEqual(len(done.err.splitlines()), 1, done)
                self.assertRegex(done.err, "^pawl enqueue: line 2: .*(%s)" % says)
                self.assertIn("0 stored, nothing from line 1 on", done.err)
        self.assertEqual(self.json("jobs"), [])

    def test_bad_line_stops_its_batch_and_resumes(self):
        """Goal: batches before the bad line are durable, its own is not; --from-line goes on."""
        lines = ['{"task":"a","key":"k%d","args":{"i":%d}}' % (i, i) for i in range(1, 2501)]
        lines[1699] = '{"task":"a","key":"k1700","args":{"i":1700},"prioritty":1}'
        path = self.bulk(*lines)
        done = self.pawl("enqueue", "--bulk", path, "--json")
        self.assertEqual(done.code, 65, done)
        self.assertIn('{"stored":1000,"created":1000,"duplicates":0,"lines":1700,"complete":false,'
                      '"from_line":1001}\n', done.out)
        self.assertIn("line 1700: unknown member 'prioritty'; the nearest is 'priority'; 1000 "
                      "stored, nothing from line 1001 on: mend it and go on with --from-line 1001",
                      done.err)
        self.assertEqual(self.sql("SELECT count(*), max(id) FROM pawl_jobs"), [(1000, 1000)])
        lines[1699] = lines[1699].replace(',"prioritty":1', "")
        path = self.bulk(*lines)
        out = self.ok("enqueue", "--bulk", path, "--from-line", "1001")
        self.assertIn("1,500 lines: 1,500 new", out)
        self.assertEqual(self.sql("SELECT count(*), count(DISTINCT key) FROM pawl_jobs"),
                         [(2500, 2500)])
        self.assertIn("2,500 lines: 0 new, 2,500 duplicates", self.ok("enqueue", "--bulk", path))

    def test_key_clash_inside_and_across_batches_names_the_line(self):
        self.ok("enqueue", "a", "[1]", "--key", "k")
        path = self.bulk('{"task":"b"}', '{"task":"a","key":"k","args":[2]}')
        self.fails_with_report(path, "line 2: .*k")
        path = self.bulk('{"task":"a","key":"n","args":[1]}', '{"task":"a","key":"n","args":[2]}')
        self.fails_with_report(path, "line 2: .*n")
        self.assertEqual(len(self.json("jobs")), 1)

    def fails_with_report(self, path, says):
        done = self.pawl("enqueue", "--bulk", path)
        self.assertEqual((done.code, done.out), (65, "0 lines: 0 new, 0 duplicates\n"), done)
        self.assertRegex(done.err, says)

    def test_memory_is_bounded(self):
        """Goal: 120 MB of large lines pass through a process that may use far less."""
        import resource
        if "asan" in PAWL or os.environ.get("ASAN_OPTIONS"):
            self.skipTest("address space is not bounded under a sanitizer")
        line = b'{"task":"a","args":"' + b"x" * 600000 + b'"}\n'
        # The same key again and again: the store stays small, the stream is long.
        line = line.replace(b'"args"', b'"key":"one","args"')

        def limit():
            resource.setrlimit(resource.RLIMIT_AS, (100 << 20, 100 << 20))
        process = subprocess.Popen([PAWL, "enqueue", "--bulk", "-", "--json"], cwd=self.dir,
                                   env=self.env(), stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE, preexec_fn=limit)
        for _ in range(200):
            process.stdin.write(line)
        out, err = process.communicate()
        self.assertEqual(process.returncode, 0, err)
        self.assertIn(b'"stored":200,"created":1,"duplicates":199', out)

    def test_interrupt_says_how_far_it_came(self):
        """Goal: Ctrl-C in the middle ends with 75; what is said to be stored is stored, no more."""
        process = subprocess.Popen([PAWL, "enqueue", "--bulk", "-"], cwd=self.dir, env=self.env(),
                                   stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE)
        process.stdin.write(b"".join(b'{"task":"a","key":"%d"}\n' % i for i in range(1, 1501)))
        process.stdin.flush()
        self.wait_until(lambda: self.sql("SELECT count(*) FROM pawl_jobs") == [(1000,)],
                        what="the first batch is stored")
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=30)
        self.assertEqual(process.returncode, 75, err)
        self.assertEqual(out, b"1,000 lines: 1,000 new, 0 duplicates\n")
        self.assertRegex(err.decode(), r"interrupted after line 1\d\d\d; 1000 stored, nothing from "
                                       r"line 1001 on: go on with --from-line 1001\n$")
        self.assertEqual(self.sql("SELECT count(*) FROM pawl_jobs"), [(1000,)])

    def test_options_that_belong_on_the_lines(self):
        path = self.bulk('{"task":"a"}')
        self.fails(64, "enqueue", "--bulk", path, "--key", "k", says="--key cannot be combined")
        self.fails(64, "enqueue", "t", "--bulk", path, says="no operand")
        self.fails(64, "enqueue", "--bulk", path, "--from-line", "0", says="1 or more")
        self.fails(74, "enqueue", "--bulk", "nowhere.jsonl", says="nowhere.jsonl")

    def test_undeclared_tasks_are_warned_about_once_each(self):
        path = self.bulk(*['{"task":"t%d"}' % (i % 10) for i in range(3000)])
        done = self.pawl("enqueue", "--bulk", path)
        self.assertEqual(done.code, 0, done)
        self.assertEqual(len(re.findall("no worker has declared task 't", done.err)), 8)
        self.assertIn("600 more jobs of tasks", done.err)


if __name__ == "__main__":
    unittest.main()
