#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""test_copy.py - pawl copy: a store moves from SQLite to PostgreSQL, whole, once, and cut off
anywhere exactly one of the two runs jobs."""
import json
import os
import shlex
import signal
import sqlite3
import subprocess
import unittest

import pgkit
from pawltest import PAWL, PawlTest
from stores import postgres_alone

TIMEOUT = 180
NOT_CARRIED = {"migration", "last", "move"}        # the schema's, a scratch row, the mark
COPIED = ["task", "queue", "job", "key", "ready", "running", "done", "dead", "dropped", "cancelled",
          "attempt", "version", "blame", "counter"]

CONF = """
[task ok]
sql = INSERT INTO ledger(job) VALUES (:job_id)
[task price]
sql = INSERT INTO ledger(job) VALUES (:job_id)
entity = :sku
version = :version
[task poison]
exec = ./poison.sh
lost_cap = 1
[task hang]
exec = ./hang.sh
[task early]
exec = ./fail.sh
ack = early
"""
SAID = """
[task said]
exec = ./said.sh
max_retries = 3
backoff = 1h..1h
"""


class CopyTest(PawlTest):
    check_at_end = False                           # the store is closed then

    def setUp(self):
        super().setUp()
        self.server = pgkit.cluster()
        self.database = self.server.new_database()
        self.url = self.server.url(self.database)

    def env(self, **more):
        env = super().env(**{"PAWL_RUNTIME_DIR": self.dir, **more})
        return {k: v for k, v in env.items() if not k.startswith("PG")}

    def at(self, url, **more):
        return self.env(PAWL_DB=url, **more)

    def copy(self, *words, **more):
        return self.pawl("copy", "--from", "sqlite:" + self.db, "--to", self.url, *words, **more)

    def copied(self, *words, **more):
        done = self.copy(*words, **more)
        self.assertEqual(done.code, 0, done)
        return done

    def refused(self, code, says, *words, **more):
        done = self.copy(*words, **more)
        self.assertEqual(done.code, code, done)
        self.assertRegex(done.err.splitlines()[-1], says, done)
        return done

    def pg(self, text):
        return self.server.sql(text, self.database)

    def few(self, n=3):
        for i in range(n):
            self.enqueue("ok", '{"i":%d}' % i, "--key", "k%d" % i)

    # --- both stores, row by row, as Python values ---

    def tables(self):
        return sorted(r[0][7:] for r in self.sql(
            "SELECT name FROM sqlite_master WHERE type = 'table' AND name GLOB 'pawl_x_*'"))

    def rows_here(self, table):
        db = self.connect()
        db.text_factory = bytes
        db.row_factory = sqlite3.Row
        rows = [dict(r) for r in db.execute("SELECT * FROM pawl_x_" + table)]
        blobs = [r[1] for r in db.execute("PRAGMA table_info(pawl_x_%s)" % table)
                 if r[2] == b"BLOB"]
        db.close()
        for row in rows:
            for k, v in row.items():
                if isinstance(v, bytes):
                    row[k] = "\\x" + v.hex() if k.encode() in blobs else carried(table, k, v)
        return rows

    def rows_there(self, table):
        return [json.loads(r[0]) for r in self.pg("SELECT to_json(t) FROM pawl.x_%s t" % table)]

    def assert_same(self):
        def key(row):
            return json.dumps(row, sort_keys=True)
        for table in sorted(set(self.tables()) - NOT_CARRIED):
            here, there = self.rows_here(table), self.rows_there(table)
            if table == "counter":                 # what an engine tries for itself
                there = [r for r in there if r["name"] != "probes"]
            self.assertEqual(sorted(here, key=key), sorted(there, key=key), table)


def carried(table, column, value):
    """A text as it arrives: what is not UTF-8 is evidence, made printable, or args."""
    try:
        text = value.decode("utf-8")
        if "\0" not in text:
            return text
    except UnicodeDecodeError:
        pass
    text = "".join("\\x%02x" % ord(c) if ord(c) < 32 and c != "\n" else
                   "\\n" if c == "\n" else
                   "\\x%02x" % (ord(c) - 0xdc00) if 0xdc80 <= ord(c) < 0xdd00 else c
                   for c in value.decode("utf-8", "surrogateescape"))
    return "not UTF-8: " + text if (table, column) == ("job", "args") else text


BAD_ARGS = "'{\"p\":\"C:\\\\' || CAST(x'ff' AS TEXT) || '\"}'"


@postgres_alone
class Everything(CopyTest):
    """A store with all that a store can hold."""

    def fill(self):
        self.sql("CREATE TABLE ledger(job INTEGER)")
        self.script("said.sh", '#!/bin/sh\necho "$PAWL_JOB_ID $PAWL_IDEMPOTENCY_KEY" >> keys\n'
                    'printf "tail \\377\\n" >&2\n[ -e succeed ] || exit 75\n'
                    'echo \'{"done":{"result":{"r":1}}}\' >&3\n')
        self.script("poison.sh", "#!/bin/sh\nkill -9 $$\n")
        self.script("fail.sh", "#!/bin/sh\necho no >&2\nexit 65\n")
        self.conf(CONF)
        self.few()
        self.few()                                 # duplicates
        for version in 5, 4:
            self.enqueue("price", '{"sku":"tea","version":%d}' % version)
        self.enqueue("price", '{"sku":"tea","version":5,"other":1}')
        for task in "poison", "early", "said":
            self.enqueue(task)
        self.call = self.enqueue("said", '{"é":1}', "--key", "call-1", "--priority", "7",
                                 "--header", "a=b")
        self.bad("ok")
        self.work("-c", "pawl.conf")
        worker = self.start_worker("-c", self.conf(SAID, "said.conf"))
        self.wait_until(lambda: [j["failures"] for j in self.json("jobs", "--task", "said")]
                        == [1, 1])
        self.stop_worker(worker)
        dead = {j["dead_class"]: j["id"] for j in self.json("jobs", "--state", "dead")}
        self.assertEqual(set(dead), {"conflict", "poison", "undecodable"}, dead)
        classes = "exhausted", "misuse", "in_doubt", "unroutable", "expired", "permanent"
        jobs = [self.enqueue("poison") for _ in classes]
        self.work("-c", "pawl.conf")
        for job, dead_class in zip(jobs, classes):
            self.sql("UPDATE pawl_x_dead SET class = ? WHERE job_id = ?", (dead_class, job))
        self.by_people()
        # a program's output as an older release kept it
        self.sql("UPDATE pawl_x_attempt SET err_tail = 'tail ' || CAST(x'ff00c3' AS TEXT)"
                 " || char(10) WHERE job_id = ?", (self.call,))
        self.orphan()
        return {j["dead_class"]: j["id"] for j in self.json("jobs", "--state", "dead")}

    def bad(self, task):
        self.sql("INSERT INTO pawl_enqueue(task, args) SELECT '%s', %s" % (task, BAD_ARGS))

    def by_people(self):
        """What a person does: replays, discards, cancels, delays, pauses, prunes."""
        dead = [j["id"] for j in self.json("jobs", "--state", "dead", "--task", "poison")]
        self.ok("dead", "replay", dead[0])
        self.ok("dead", "discard", dead[1], "--reason", "enough")
        self.ok("cancel", self.enqueue("later"))
        self.bad("later")
        self.enqueue("later", "{}", "--in", "2h", "--queue", "slow", "--expires", "3h")
        self.ok("pause", "slow")
        self.ok("pause", "--task", "later")
        self.ok("prune", "--done-older", "0s")
        self.enqueue("ok", "{}", "--key", "after-prune")
        self.work("-c", "pawl.conf")

    def orphan(self):
        """A job in hand of a worker that was killed with all that it had started."""
        self.script("hang.sh", "#!/bin/sh\necho up > hang.up\nexec sleep 600\n")
        self.hang = self.enqueue("hang")
        worker = subprocess.Popen([PAWL, "work", "-c", self.conf("[task hang]\nexec = ./hang.sh\n",
                                                                 "hang.conf")],
                                  cwd=self.dir, env=self.env(), stdin=subprocess.DEVNULL,
                                  stderr=subprocess.DEVNULL, start_new_session=True)
        self.addCleanup(worker.wait)
        try:
            self.wait_until(lambda: os.path.exists(os.path.join(self.dir, "hang.up")))
        finally:
            os.killpg(worker.pid, signal.SIGKILL)
        worker.wait()
        self.wait_until(lambda: subprocess.run(
            ["pgrep", "-s", str(worker.pid)], stdout=subprocess.DEVNULL).returncode == 1, 10,
            "the end of all that the worker started")

    def test_all_that_a_store_is_arrives_and_goes_on_there(self):
        dead = self.fill()
        self.assertEqual(self.tables(), sorted([*COPIED, "last", "migration"]))
        told = self.copied("--json").out.splitlines()
        end = json.loads(told[-1])
        self.assertEqual((end["state"], end["from"], end["recovered_workers"], end["checked"]),
                         ("moved", end["to"], 1, 12), end)
        self.assertEqual([end["to"][k] for k in ("running", "undecodable", "ready")
                          if k in end["to"]][0], 0)
        self.assertEqual(end["undecodable"], 2)
        self.assertEqual(end["made_printable"], 1)
        self.assertEqual(sum(json.loads(t).get("finding") == "undecodable" for t in told), 2)
        self.assert_same()
        hang = self.json("job", self.hang, env=self.at(self.url))[0]
        self.assertEqual((hang["state"], hang["lost"]), ("ready", 1))
        self.goes_on(dead)

    def goes_on(self, dead):
        there = {"env": self.at(self.url)}
        self.pg("CREATE TABLE ledger(job bigint)")
        last = max(r["id"] for r in self.rows_here("job"))
        # keys of pruned jobs, and of those that are there
        for key, args in ("k1", '{"i":1}'), ("after-prune", "{}"):
            again = self.json("enqueue", "ok", args, "--key", key, **there)[0]
            self.assertFalse(again["created"], again)
        self.assertEqual(self.pawl("enqueue", "ok", "{}", "--key", "k1", **there).code, 65)
        old = self.json("enqueue", "price", '{"sku":"tea","version":3}', **there)[0]
        self.assertTrue(old["created"])
        self.assertGreater(int(old["id"]), last)
        self.ok("dead", "replay", dead["undecodable"], "--args", '{"mended":1}', **there)
        twice = self.pawl("dead", "replay", dead["undecodable"], **there)
        self.assertEqual(twice.code, 1, twice)
        open(os.path.join(self.dir, "succeed"), "w").close()
        for job in self.json("jobs", "--task", "said", **there):
            self.pawl("run-now", job["id"], **there)
        self.ok("resume", "--task", "later", **there)
        conf = self.conf((CONF + SAID + "[task later]\nsql = SELECT 1\n")
                         .replace("./hang.sh", "./fail.sh"))
        # the same policies are stored there: a worker starts without being told to apply
        self.ok("work", "--until-empty", "-c", conf, **there)
        states = {j["id"]: j for j in self.json("jobs", "--limit", "1000", **there)}
        self.assertEqual(states[old["id"]]["outcome"], "stale")
        self.assertEqual(states[self.call]["state"], "done")
        undecodable = [j["id"] for j in states.values() if j["dead_class"] == "undecodable"]
        self.assertEqual(len(undecodable), 2, undecodable)
        # the mended one ran, once; nothing that had run before did again
        self.assertEqual(self.pg("SELECT count(*) FROM ledger"), [["1"]])
        with open(os.path.join(self.dir, "keys"), encoding="utf-8") as f:
            keys = [line.split() for line in f]
        for job in {k[0] for k in keys}:           # one before the move, one after: the same
            self.assertEqual(len({k[1] for k in keys if k[0] == job}), 1, keys)
            self.assertGreaterEqual(sum(k[0] == job for k in keys), 2, keys)
        self.ok("check", **there)


@postgres_alone
class Move(CopyTest):
    def test_a_dry_run_counts_and_changes_nothing(self):
        self.few()
        out = self.copied("--dry-run").out
        self.assertRegex(out, r"(?m)^jobs +3$")
        self.assertIn("nothing was changed", out)
        self.assertEqual(self.pg("SELECT to_regnamespace('pawl') IS NULL"), [["t"]])
        self.few(4)                                # the source goes on
        self.pawl("init", env=self.at(self.url))
        self.ok("enqueue", "ok", env=self.at(self.url))
        self.refused(73, r"in use, it holds tasks \(1\)", "--dry-run")

    def test_cut_anywhere_one_store_runs_jobs_and_the_same_call_goes_on(self):
        self.few()
        for point in ("copy.table=kill:4", "copy.table=error:9", "copy.arrived.before=kill",
                      "copy.arrived.after=kill", "copy.moved.before=kill"):
            self.cut(point, "here")
        self.enqueue("ok", '{"i":0}', "--key", "k0")
        self.cut("copy.moved.after=kill", "there")
        self.copied()
        self.one_runs("there")
        self.assert_same()

    def test_cut_at_its_last_step_it_is_done_all_the_same(self):
        for point in "copy.open.before=kill", "copy.open.after=kill":
            with self.subTest(point):
                self.db = os.path.join(self.dir, point[:-5] + ".db")
                self.ok("init")
                self.few()
                self.database = self.server.new_database()
                self.url = self.server.url(self.database)
                self.cut(point, "there")
                self.assertIn("moved before", self.copied().out)
                self.assert_same()

    def cut(self, point, first):
        with self.subTest(point):
            done = self.copy(env=self.env(PAWL_FAILPOINT=point))
            self.assertNotEqual(done.code, 0, done)
            self.one_runs(first)

    def one_runs(self, which):
        """Who can be asked for its jobs can run them. An empty store beside it is no other."""
        codes = {"here": self.pawl("jobs"), "there": self.pawl("jobs", env=self.at(self.url))}
        for place, done in codes.items():
            if place == which:
                self.assertEqual((done.code, done.out.count("ready")), (0, 3), done)
            elif done.code != 78:
                self.assertEqual((done.code, done.out.count("ready")), (0, 0), done)
        if which == "there":
            self.fails(78, "work", "-c", self.conf("[task ok]\nsql = SELECT 1\n"), says="has moved")

    def test_the_source_goes_on_between_two_calls(self):
        """What arrived with the first is not mixed with what is true at the second."""
        self.few()
        self.assertNotEqual(self.copy(env=self.env(PAWL_FAILPOINT="copy.arrived.after=kill")).code,
                            0)
        self.ok("cancel", "1")
        self.few(5)
        self.copied()
        self.assert_same()

    def test_refused_while_workers_run_at_either_end(self):
        conf = self.conf("[task w]\nsql = SELECT 1\n")
        self.few()
        worker = self.start_worker("-c", conf)
        self.wait_until(lambda: "worker.ready" in self.log(worker))
        self.refused(75, r"worker \w+ \(pid %d\) runs on the source: stop it" % worker.pid)
        self.assertEqual(self.pg("SELECT count(*) FROM pawl.x_task"), [["0"]])
        self.stop_worker(worker)
        # one of another host is known by its row only
        self.pg("INSERT INTO pawl.x_worker SELECT 'abcd', NULL, 'elsewhere', 7, 30000000, b, b FROM"
                " (SELECT (extract(epoch FROM now()) * 1000000)::bigint AS b) x")
        self.refused(75, r"worker abcd \(pid 7 on elsewhere\) runs on the target")
        self.pg("UPDATE pawl.x_worker SET beat_at_us = beat_at_us - 31000000")
        self.copied()
        self.assert_same()

    def test_refused_on_a_target_that_is_in_use(self):
        self.few()
        self.ok("init", env=self.at(self.url))
        self.ok("enqueue", "ok", env=self.at(self.url))
        self.refused(73, r"the target postgresql://.* is in use, it holds tasks \(1\)")
        self.ok("enqueue", "ok")                   # the source goes on
        # a copy from elsewhere lies there
        self.database = self.server.new_database()
        self.url = self.server.url(self.database)
        self.copy(env=self.env(PAWL_FAILPOINT="copy.arrived.after=kill"))
        other = os.path.join(self.dir, "other.db")
        self.ok("init", "--db", other)
        done = self.pawl("copy", "--from", other, "--to", self.url)
        self.assertEqual(done.code, 73, done)
        self.assertIn("is being filled from sqlite:%s" % self.db, done.err)

    def test_words_that_make_no_move(self):
        self.fails(64, "copy", "--from", self.db, says="needs --from STORE and --to STORE")
        self.fails(64, "copy", "--from", self.db, "--to", self.db, "--db", self.db,
                   says="takes no --db")
        self.fails(64, "copy", "--from", self.db, "--to", self.db, says="both are one store")
        self.fails(69, "copy", "--from", "no.db", "--to", self.url, says="no store at")
        self.ok("init", env=self.at(self.url))
        self.fails(64, "copy", "--from", self.url, "--to", "sqlite:back.db",
                   says="from PostgreSQL to SQLite is not offered")
        self.fails(1, "copy", "--from", self.db, "--to", self.url, "--undo",
                   says="there is nothing to undo")

    def test_whoever_writes_to_the_old_store_is_told_where_it_went(self):
        self.few()
        bulk = subprocess.Popen([PAWL, "enqueue", "--bulk", "-"], cwd=self.dir, env=self.env(),
                                stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE)
        self.addCleanup(bulk.wait)
        bulk.stdin.write(b'{"task":"ok"}\n' * 1000)
        bulk.stdin.flush()
        self.wait_until(lambda: self.sql("SELECT count(*) FROM pawl_jobs") == [(1003,)])
        mine = self.connect()
        mine.execute("SELECT count(*) FROM pawl_jobs").fetchall()
        self.copied()
        said = "has moved to postgresql:///%s" % self.database
        for sql in ("INSERT INTO pawl_enqueue(task, args) VALUES ('ok', '{}')",
                    "INSERT INTO pawl_enqueue(task, args, key) VALUES ('ok', '{\"i\":0}', 'k0')",
                    "INSERT OR IGNORE INTO pawl_enqueue(task) VALUES ('new')",
                    "DELETE FROM pawl_x_ready", "UPDATE pawl_x_task SET paused = 1"):
            with self.assertRaisesRegex(sqlite3.IntegrityError, said):
                mine.execute(sql)
        out, err = bulk.communicate(b'{"task":"ok"}\n', timeout=60)
        self.assertEqual(bulk.returncode, 78, err)
        self.assertIn(said, err.decode())
        for words in (["enqueue", "ok"], ["init"], ["jobs"], ["cancel", "1"],
                      ["work", "-c", self.conf("[task ok]\nsql = SELECT 1\n")]):
            self.fails(78, *words, says=said)
        self.assertEqual(self.sql("SELECT count(*) FROM pawl_jobs"), [(1003,)])  # it can be read

    def has_open(self, pid):
        """Its log, and the lock beside it: it has looked whether the store is closed."""
        fds = "/proc/%d/fd" % pid
        found = set()
        for fd in os.listdir(fds):
            try:
                found.add(os.readlink(os.path.join(fds, fd)))
            except FileNotFoundError:
                pass                               # closed meanwhile
        return {self.db + "-wal", self.db + "-pawl/lock"} <= found

    def test_who_waits_for_the_lock_while_it_is_copied_is_refused_at_the_end(self):
        """Also a worker that had opened the store before it was closed."""
        self.few()
        copy = self.start_copy("copy.moved.before")
        worker = self.start_worker("-c", self.conf("[task ok]\nsql = SELECT 1\n"))
        self.wait_until(lambda: self.has_open(worker.pid), what="the worker has opened the store")
        producer = subprocess.Popen([PAWL, "enqueue", "ok"], cwd=self.dir, env=self.env(),
                                    stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        self.addCleanup(producer.wait)
        self.wait_until(lambda: self.has_open(producer.pid), what="the producer has, too")
        self.end_copy(copy, 0)
        err = producer.communicate(timeout=60)[1].decode()
        self.assertEqual(producer.returncode, 78, err)
        self.assertIn("has moved to", err)
        self.wait_until(lambda: worker.poll() is not None, what="the worker ends")
        self.assertEqual(worker.poll(), 78, self.log(worker))
        self.assertIn("has moved to", self.log(worker))
        self.assertEqual(self.ok("jobs", env=self.at(self.url)).count("ready"), 3)
        self.assert_same()

    def test_a_password_is_not_written_down(self):
        self.few()
        secret = "postgresql://%s:sesame@/%s?host=%s&password=open" % (
            pgkit.SUPERUSER, self.database, self.server.dir)
        self.url = secret
        done = self.copied()
        for text in (done.out, done.err, self.fails(78, "jobs"),
                     str(self.sql("SELECT * FROM pawl_x_move"))):
            self.assertNotIn("sesame", text)
            self.assertNotIn("password=open", text)
        self.assertIn("postgresql://%s@/%s?host=%s" % (
            pgkit.SUPERUSER, self.database, self.server.dir), self.fails(78, "jobs"))

    def test_the_target_is_closed_until_all_is_there(self):
        self.few()
        self.ok("init", env=self.at(self.url))
        session = pgkit.PsqlSession(self.server, self.database)
        self.addCleanup(session.close)
        for sql in "BEGIN", pgkit.enqueue("ok"), "ROLLBACK":   # an id was drawn in vain
            session.run(sql)
        self.copy(env=self.env(PAWL_FAILPOINT="copy.arrived.after=kill"))
        for sql in (pgkit.enqueue("ok"), pgkit.enqueue("ok", '{"i":0}', key="k0"),
                    "INSERT INTO pawl.x_worker VALUES ('a', NULL, 'h', 1, 1, 1, 1)"):
            with self.assertRaisesRegex(pgkit.Refused, "PWMOV.*is being filled from sqlite:"):
                session.run(sql)
        self.fails(78, "jobs", env=self.at(self.url), says="is being filled from sqlite:")
        self.copied()
        self.assertEqual(session.run(pgkit.enqueue("ok", '{"i":0}', key="k0")), [["1", "f"]])
        self.assertEqual(session.run(pgkit.enqueue("ok"))[0][1], "t")

    def test_texts_that_cannot_be_stored_stop_it_before_anything_is_changed(self):
        self.few()
        self.sql("UPDATE pawl_x_job SET trace = 'a' || CAST(x'ff' AS TEXT) WHERE id = 2")
        self.sql("UPDATE pawl_x_key SET result = 'a' || char(0) WHERE key = 'k2'")
        for words in ["--dry-run"], []:
            done = self.refused(65, "2 texts cannot be stored there", *words)
            self.assertRegex(done.err, r"refused: trace of job 2 \(jobs\) is not UTF-8")
            self.assertRegex(done.err, r"refused: result of job 3 \(keys\)")
        self.ok("enqueue", "ok")
        self.assertEqual(self.ok("jobs", env=self.at(self.url)), "")
        self.sql("UPDATE pawl_x_job SET trace = NULL")
        self.sql("UPDATE pawl_x_key SET result = NULL")
        self.copied()
        self.assert_same()

    def test_a_copy_that_breaks_an_invariant_is_not_moved_to(self):
        self.few()
        self.sql("DELETE FROM pawl_x_ready WHERE id = 2")
        done = self.refused(65, "pawl check finds 1 faults in the copy")
        self.assertIn("a job is nowhere", done.err)
        self.ok("enqueue", "ok")

    def test_undo_as_long_as_nothing_has_happened_there(self):
        self.few()
        self.copied()
        self.assertIn("taken back", self.copied("--undo").out)
        self.few(4)
        self.fails(78, "jobs", env=self.at(self.url), says="was given up again: its jobs are in")
        self.copied()
        self.assert_same()
        # cut in its middle neither runs, and the same call goes on
        self.copy("--undo", env=self.env(PAWL_FAILPOINT="copy.left.after=kill"))
        self.fails(78, "jobs", says="has moved")
        self.fails(78, "jobs", env=self.at(self.url), says="was given up")
        self.refused(78, "was being taken back: run it again with --undo")
        self.copied("--undo")
        self.ok("jobs")
        self.copied()
        self.ok("enqueue", "ok", env=self.at(self.url))
        self.refused(1, "too late to go back", "--undo")
        self.assertEqual(self.ok("jobs", env=self.at(self.url)).count("ready"), 5)

    def start_copy(self, point):
        """A copy that has stopped itself at this point."""
        copy = subprocess.Popen([PAWL, "copy", "--from", self.db, "--to", self.url], cwd=self.dir,
                                env=self.env(PAWL_FAILPOINT=point + "=stop"),
                                stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        self.addCleanup(copy.stdout.close)
        self.addCleanup(copy.wait)
        self.addCleanup(copy.kill)

        def stopped():
            with open("/proc/%d/stat" % copy.pid, encoding="utf-8") as f:
                state = f.read().rsplit(") ", 1)[1][0]
            if state == "Z":
                self.fail("it ended: %s" % copy.communicate()[0].decode())
            return state == "T"
        self.wait_until(stopped, 60, "the copy stops at %s" % point)
        return copy

    def end_copy(self, copy, code):
        copy.send_signal(signal.SIGCONT)
        out = copy.communicate(timeout=60)[0].decode()
        self.assertEqual(copy.returncode, code, out)
        return out

    def test_a_lost_connection_leaves_one_store_that_runs_jobs(self):
        self.few()
        end = ("SELECT count(pg_terminate_backend(pid, 10000)) FROM pg_stat_activity"
               " WHERE datname = current_database() AND application_name = 'pawl'")
        copy = self.start_copy("copy.arrived.before")
        self.assertEqual(self.pg(end), [["1"]])
        self.end_copy(copy, 74)
        self.assertEqual(self.ok("jobs").count("ready"), 3)
        copy = self.start_copy("copy.moved.before")  # what is left needs a new connection only
        self.assertEqual(self.pg(end), [["1"]])
        self.end_copy(copy, 0)
        self.assert_same()

    def test_interrupted_nothing_is_moved(self):
        self.few()
        copy = self.start_copy("copy.table")
        copy.send_signal(signal.SIGTERM)
        self.assertIn("interrupted: nothing was moved", self.end_copy(copy, 75))
        self.assertEqual(self.ok("jobs").count("ready"), 3)

    def test_between_stores_of_one_engine(self):
        self.few()
        self.enqueue("ok", "{}", "--in", "1h")
        other = os.path.join(self.dir, "other.db")
        self.ok("copy", "--from", self.db, "--to", other)
        self.assertEqual(self.ok("jobs", "--db", other).count("ready"), 4)
        self.ok("check", "--db", other)
        self.fails(78, "jobs", says="has moved to sqlite:%s" % other)
        self.ok("copy", "--from", other, "--to", self.url)
        self.pg("SELECT pawl.enqueue('ok', '{\"i\":0}', key => 'k0')")     # a counter of its own
        first, self.database = self.url, self.server.new_database()
        self.url = self.server.url(self.database)
        self.ok("copy", "--from", first, "--to", self.url)
        self.ok("check", env=self.at(self.url))
        stats = self.json("stats", env=self.at(self.url))[0]
        self.assertEqual((stats["ready"], stats["duplicates"], stats["keys"]), (4, 1, 3))
        self.fails(78, "jobs", "--db", first, says="has moved to")
        self.db = other
        self.assert_same_jobs()

    def assert_same_jobs(self):
        here = sorted((r["id"], r["args"]) for r in self.rows_here("job"))
        self.assertEqual(here, sorted((r["id"], r["args"]) for r in self.rows_there("job")))


@postgres_alone
class Page(CopyTest):
    def test_the_drill_of_the_page_prints_what_it_shows(self):
        with open(os.path.join(pgkit.ROOT, "doc", "moving-up.md"), encoding="utf-8") as f:
            drill = f.read().split("```drill\n")[1].split("```")[0]
        self.enqueue("mail", '{"to":"ann"}', "--key", "ann-1")
        self.enqueue("later", "{}", "--in", "1d", "--key", "later-1")
        self.conf("[task mail]\nsql = SELECT 1 AS sent\n[task broken]\nexec = false\n")
        self.enqueue("broken", "{}", "--max-retries", "0")
        self.work("-c", "pawl.conf")
        steps = drill.split("$ ")[1:]
        self.assertEqual(len(steps), 6)
        for step in steps:
            line, shown = step.split("\n", 1)
            with self.subTest(line):
                self.assertEqual(self.as_shown(line), shown)

    def as_shown(self, line):
        words = shlex.split(line.replace("postgresql:///shop", shlex.quote(self.url)))
        if words[0] == "sqlite3":
            try:
                self.sql(words[2])
                said = ""
            except sqlite3.Error as e:
                said = "%s\n" % e
        else:
            done = self.pawl(*words[1:])
            said = done.out if done.code == 0 else done.out + done.err
        return said.replace(self.url, "postgresql:///shop").replace(self.dir + "/", "")


if __name__ == "__main__":
    unittest.main()
