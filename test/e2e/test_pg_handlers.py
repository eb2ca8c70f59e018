#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""test_pg_handlers.py - pawl.begin and pawl.complete: a handler that owns its connection commits
effect and acknowledgement together, or neither; what a migrate does under load; and the page."""
import json
import os
import re
import sqlite3
import unittest

from pawltest import ROOT
from pgkit import SQL, Refused, PgTest, enqueue, script

RULE, NOT_JSON, FENCED, DONE, VERSION = "22023", "22P02", "PWFEN", "PWDON", "PWVER"
SERIALIZATION = "40001"
OTHER = "f" * 32


class Claims(PgTest):
    def setUp(self):
        super().setUp()
        self.sql("CREATE TABLE fx(job bigint)")

    def claim(self, job):
        """What a worker's claim leaves; returns the lease as a handler gets it."""
        lease = os.urandom(16).hex()
        self.sql("WITH r AS (DELETE FROM pawl.x_ready WHERE id = %s RETURNING *)"
                 " INSERT INTO pawl.x_running SELECT id, decode('%s', 'hex'), 'w1', runs + 1, 5,"
                 " task_id, queue_id, rank, run_at_us, runs, 3, 2, 1, 4, 0 FROM r" % (job, lease))
        self.assertEqual(self.state(job), "running")
        return lease

    def new(self, *words, **named):
        job = self.one(enqueue(*(words or ("t",)), **named))
        return job, self.claim(job)

    def state(self, job):
        return self.one("SELECT state FROM pawl.jobs WHERE id = %s" % job)


class Handler(Claims):
    def effects(self):
        return [row[0] for row in self.sql("SELECT job FROM fx ORDER BY job")]

    def act(self, session, job, lease, result="", level="READ COMMITTED"):
        session.run("BEGIN ISOLATION LEVEL " + level)
        session.run("SELECT pawl.begin(%s, '%s')" % (job, lease))
        session.run("INSERT INTO fx VALUES (%s)" % job)
        session.run("SELECT pawl.complete(%s, '%s'%s)" % (job, lease, result))

    def reap(self, session, job):
        """Another worker decides the job, as a reaper, a cancel or a second settle does."""
        return session.run("DELETE FROM pawl.x_running WHERE job_id = %s RETURNING 1" % job)

    def test_effect_and_ack_are_one_commit(self):
        s = self.open()
        for level in "READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE":
            job, lease = self.new()
            self.act(s, job, lease, level=level)
            self.assertEqual((self.state(job), job in self.effects()), ("running", False))
            s.run("ROLLBACK")
            self.assertEqual((self.state(job), job in self.effects()), ("running", False))
            self.act(s, job, lease.upper(), ", '{\"n\": 1.0}'", level=level)
            s.run("COMMIT")
            self.assertEqual((self.state(job), job in self.effects()), ("done", True))
            self.assertEqual(
                self.sql("SELECT outcome, worker, started_at_us, runs, failures, lost, releases,"
                         " snoozes, result, ended_at_us >= created_at_us FROM pawl.jobs WHERE id = "
                         + job), [["done", "w1", "5", "1", "3", "2", "1", "4", '{"n": 1.0}', "t"]])
        job, lease = self.new()
        self.act(s, job, lease, ", json_build_object('a', 1)")
        s.run("COMMIT")
        job, lease = self.new()
        self.act(s, job, lease, ", '[1]'::jsonb")
        s.run("COMMIT")
        self.assertEqual(self.one("SELECT count(*) FROM pawl.x_running"), "0")

    def test_without_the_lease_nothing_commits(self):
        """Goal: whoever has lost the job cannot commit its effect, at begin or at complete."""
        s = self.open()
        job, lease = self.new()
        for call in "begin", "complete":
            for j, l in (job, OTHER), (10 ** 6, lease), ("NULL", lease):
                s.run("BEGIN")
                s.run("INSERT INTO fx VALUES (1)")
                self.refused(FENCED, "pawl: job %s is not leased to this run" % j,
                             "SELECT pawl.%s(%s, '%s')" % (call, j, l), s)
                s.run("COMMIT")                     # of an aborted transaction: a rollback
            for bad in "", "x", lease + "0", "g" * 32, lease[:31] + "\n":
                self.refused(RULE, "pawl: lease must be 32 hexadecimal digits",
                             "SELECT pawl.%s(%s, '%s')" % (call, job, bad), s)
            self.refused(RULE, "pawl: lease must be", "SELECT pawl.%s(%s, NULL)" % (call, job), s)
        self.assertEqual((self.effects(), self.state(job)), ([], "running"))
        # Taken over in between, with no begin that would have held it.
        s.run("BEGIN")
        s.run("INSERT INTO fx VALUES (1)")
        self.reap(self.session, job)
        self.refused(FENCED, "not leased", "SELECT pawl.complete(%s, '%s')" % (job, lease), s)
        s.run("COMMIT")
        self.assertEqual(self.effects(), [])

    def test_a_refusal_that_is_caught_binds_nobody_but_what_begin_has_held_is_never_refused(self):
        """The boundary: behind a savepoint nothing is left of a refusal, and COMMIT stores the
        effect of a run that has lost its job. After a begin there is no such refusal to catch."""
        s, other = self.open(), self.open()
        job, lease = self.new()
        s.run("BEGIN")
        s.run("INSERT INTO fx VALUES (%s)" % job)
        s.run("SAVEPOINT a")
        self.reap(self.session, job)
        self.refused(FENCED, "not leased", "SELECT pawl.complete(%s, '%s')" % (job, lease), s)
        s.run("ROLLBACK TO a")
        s.run("COMMIT")
        self.assertEqual((self.effects(), self.one("SELECT count(*) FROM pawl.x_done")),
                         ([job], "0"))
        job, lease = self.new()
        s.run("BEGIN")
        s.run("SELECT pawl.begin(%s, '%s')" % (job, lease))
        s.run("INSERT INTO fx VALUES (%s)" % job)
        s.run("SAVEPOINT a")
        other.ask("DELETE FROM pawl.x_running WHERE job_id = %s RETURNING 1" % job)
        self.wait_blocked(other)                 # a cancel, or a takeover
        s.run("SELECT pawl.complete(%s, '%s')" % (job, lease))
        s.run("COMMIT")
        self.assertEqual(other.answer(), [])
        self.assertEqual((job in self.effects(), self.state(job)), (True, "done"))

    def test_begin_holds_the_job(self):
        """Goal: from begin on, who wants to decide the job waits for the transaction, then finds it
        decided, or as it was; who skips what is locked passes by; a second begin waits, too."""
        for end in "COMMIT", "ROLLBACK":
            a, b, c = self.open(), self.open(), self.open()
            job, lease = self.new()
            self.act(a, job, lease)
            self.assertEqual(b.run("SELECT 1 FROM pawl.x_running WHERE job_id = %s"
                                   " FOR UPDATE SKIP LOCKED" % job), [])
            b.ask("DELETE FROM pawl.x_running WHERE job_id = %s RETURNING 1" % job)
            self.wait_blocked(b)
            c.run("SET lock_timeout = 1")
            self.refused("55P03", "lock timeout", "SELECT pawl.begin(%s, '%s')" % (job, lease), c)
            a.run(end)
            self.assertEqual(b.answer(), [] if end == "COMMIT" else [["1"]])
            self.assertEqual(job in self.effects(), end == "COMMIT")

    def test_a_decision_on_its_way_comes_first(self):
        """Goal: complete waits for who is just deleting the row; 0 rows then, or it goes through.
        Above READ COMMITTED: 40001."""
        for level in "READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE":
            for end in "COMMIT", "ROLLBACK":
                for call in "begin", "complete":
                    with self.subTest(level=level, end=end, call=call):
                        a, b = self.open(), self.open()
                        job, lease = self.new()
                        a.run("BEGIN")
                        self.reap(a, job)
                        b.run("BEGIN ISOLATION LEVEL " + level)
                        b.run("INSERT INTO fx VALUES (%s)" % job)
                        b.ask("SELECT pawl.%s(%s, '%s')" % (call, job, lease))
                        self.wait_blocked(b)
                        a.run(end)
                        if end == "ROLLBACK":
                            b.answer()
                        else:
                            with self.assertRaises(Refused) as caught:
                                b.answer()
                            self.assertEqual(caught.exception.state, FENCED
                                             if level == "READ COMMITTED" else SERIALIZATION)
                        b.run("COMMIT")
                        self.assertEqual(job in self.effects(), end == "ROLLBACK")

    def test_again_after_a_commit_whose_answer_was_lost(self):
        """Goal: the effect is not repeated, and the handler learns that it was done."""
        s = self.open()
        job, lease = self.new()
        self.act(s, job, lease)
        s.run("COMMIT")
        for call in "begin", "complete":
            s.run("BEGIN")
            s.run("INSERT INTO fx VALUES (%s)" % job)
            self.refused(DONE, "pawl: job %s is done, by this very run" % job,
                         "SELECT pawl.%s(%s, '%s')" % (call, job, lease), s)
            s.run("COMMIT")
        self.refused(FENCED, "not leased", "SELECT pawl.complete(%s, '%s')" % (job, OTHER))
        # Twice in one transaction is refused as well.
        job, lease = self.new()
        self.act(s, job, lease)
        self.refused(DONE, "is done", "SELECT pawl.complete(%s, '%s')" % (job, lease), s)
        s.run("COMMIT")
        self.assertEqual((len(self.effects()), self.state(job)), (1, "running"))

    def test_result_rules(self):
        job, lease = self.new()
        call = "SELECT pawl.complete(%s, '%s', %%s)" % (job, lease)
        self.refused(NOT_JSON, "result must be JSON text|invalid input syntax", call % "'{'")
        self.refused(RULE, "pawl: result must be JSON text at most 64 deep",
                     call % "repeat('[', 65) || repeat(']', 65)")
        self.refused(RULE, "pawl: result is larger than 256 KiB",
                     call % "'\"' || repeat('x', 262143) || '\"'")
        self.assertEqual(self.state(job), "running")
        self.sql(call % "'\"' || repeat('x', 262142) || '\"'")
        self.assertEqual(self.one("SELECT length(result) FROM pawl.jobs WHERE id = " + job),
                         "262144")

    def guard(self):
        return self.sql("SELECT entity, version, job_id, args_hash = pawl.x_args_hash(args),"
                        " args_bytes = octet_length(args) FROM pawl.x_version v"
                        " JOIN pawl.x_job j ON j.id = v.job_id"
                        .replace("entity, version,", "v.entity, v.version,"))

    def version_guard(self, new):
        """new(version, more): a claimed job of that version, and its lease."""
        s = self.open()
        first, lease = new(5, "")
        self.act(s, first, lease)
        s.run("ROLLBACK")
        self.assertEqual(self.guard(), [])          # only a committed effect moves it
        self.act(s, first, lease)
        s.run("COMMIT")
        self.assertEqual(self.guard(), [["e", "5", first, "t", "t"]])
        for version, more in (4, ""), (5, ""), (5, "x"):
            job, lease = new(version, more)
            with self.assertRaises(Refused) as caught:
                self.act(s, job, lease)
            self.assertEqual(caught.exception.state, VERSION, caught.exception)
            self.assertIn('pawl: version %d of "e" is not newer' % version, str(caught.exception))
            s.run("COMMIT")
            self.assertEqual((self.state(job), job in self.effects()), ("running", False))
        job, lease = new(6, "")
        self.act(s, job, lease)
        s.run("COMMIT")
        self.assertEqual(self.guard(), [["e", "6", job, "t", "t"]])
        # Two at once: the second waits; the older one of the two never wins.
        old, old_lease = new(7, "")
        job, lease = new(8, "")
        self.act(s, job, lease)
        other = self.open()
        other.run("BEGIN")
        other.run("INSERT INTO fx VALUES (%s)" % old)
        other.ask("SELECT pawl.complete(%s, '%s')" % (old, old_lease))
        self.wait_blocked(other)
        s.run("COMMIT")
        with self.assertRaises(Refused) as caught:
            other.answer()
        self.assertEqual(caught.exception.state, VERSION)
        other.run("COMMIT")
        self.assertEqual(self.guard(), [["e", "8", job, "t", "t"]])
        self.assertNotIn(old, self.effects())

    def test_version_guard_by_the_enqueue(self):
        self.version_guard(lambda version, more: self.new(
            "t", '{"x":"%s"}' % more, entity="e", version=version))

    def test_version_guard_by_the_policy(self):
        self.sql("INSERT INTO pawl.x_task(name, policy, created_at_us) VALUES ('guarded', E'ack ="
                 " late\\nqueue = default\\nentity = :sku\\nversion = :v.n\\nzero_rows = done\\n',"
                 " 1)")
        self.version_guard(lambda version, more: self.new(
            "guarded", '{"v.n": %d, "sku":"\\u0065","x":"%s"}' % (version, more)))
        # An entity that is a number is its digits; what the enqueue said comes first.
        job, lease = self.new("guarded", '{"v.n":1,"sku":1.50}')
        self.sql("SELECT pawl.complete(%s, '%s')" % (job, lease))
        job, lease = self.new("guarded", '{"v.n":1,"sku":"not this"}', entity="f", version=-2)
        self.sql("SELECT pawl.complete(%s, '%s')" % (job, lease))
        # What the server could not read as text, elsewhere in the args, is not asked for.
        for i, z in enumerate(("\\u0000", "\\ud800", "\\udc00x", "\\uD83D", "\\\\\\u0000")):
            job, lease = self.new("guarded", '{"z":"%s","v.n":%d,"sku":"g\\\\u0000\\ud83d\\ude00",'
                                  '"y":["%s"]}' % (z, i, z))
            self.sql("SELECT pawl.complete(%s, '%s')" % (job, lease))
        self.assertEqual(self.sql("DELETE FROM pawl.x_version WHERE entity ~ 'g' RETURNING entity,"
                                  " version"), [["g\\u0000\U0001f600", "4"]])
        self.assertEqual(self.sql("SELECT entity, version FROM pawl.x_version WHERE entity <> 'e'"
                                  " ORDER BY entity"), [["1.50", "1"], ["f", "-2"]])


class Fail(Claims):
    effects, act, reap = Handler.effects, Handler.act, Handler.reap

    def said(self, job):
        return self.sql("SELECT said, said_error, said_after_us FROM pawl.x_running"
                        " WHERE job_id = %s" % job)

    def test_what_was_said_is_there_with_what_was_written(self):
        """Goal: bookkeeping and failure are one commit; afterwards the run can say nothing else."""
        s = self.open()
        for words, want in (("", ["permanent", "", ""]), (", 'no such card'",
                            ["permanent", "no such card", ""]),
                            (", 'busy', 'transient', '2 min'", ["transient", "busy", "120000000"]),
                            (", NULL, outcome => 'snooze', after => '0.5 s'",
                             ["snooze", "", "500000"])):
            job, lease = self.new()
            call = "SELECT pawl.fail(%s, '%s'%s)" % (job, lease, words)
            for end in "ROLLBACK", "ROLLBACK TO s; COMMIT", "COMMIT":
                s.run("BEGIN; SELECT pawl.begin(%s, '%s'); SAVEPOINT s" % (job, lease))
                s.run("INSERT INTO fx VALUES (%s)" % job)
                s.run(call)
                s.run(end)
                self.assertEqual(self.said(job), [want if end == "COMMIT" else ["", "", ""]])
                self.assertEqual(job in self.effects(), end == "COMMIT")
            self.assertEqual(self.state(job), "running")
            for again in (call, "SELECT pawl.begin(%s, '%s')" % (job, lease),
                          "SELECT pawl.complete(%s, '%s')" % (job, lease)):
                self.refused(DONE, "pawl: job %s has failed, by this very run" % job, again, s)
            self.assertEqual(self.said(job), [want])
        self.sql("DELETE FROM pawl.x_running")

    def test_refusals_change_nothing(self):
        s = self.open()
        job, lease = self.new()
        for j, l in (job, OTHER), (10 ** 6, lease), ("NULL", lease):
            self.refused(FENCED, "not leased to this run", "SELECT pawl.fail(%s, '%s')" % (j, l), s)
        for words, says in ((", 'e', 'done'", "outcome must be"),
                            (", 'e', NULL", "outcome must be"),
                            (", 'e', after => '1 s'", "after goes with"),
                            (", 'e', 'transient', '-1 s'", "after must be"),
                            (", 'e', 'snooze', '11 years'", "after must be")):
            self.refused(RULE, "pawl: " + says, "SELECT pawl.fail(%s, '%s'%s)"
                         % (job, lease, words), s)
        self.refused(RULE, "lease must be", "SELECT pawl.fail(%s, 'x')" % job, s)
        self.assertEqual(self.said(job), [["", "", ""]])
        self.act(s, job, lease)                     # after a complete it is done
        self.refused(DONE, "is done", "SELECT pawl.fail(%s, '%s')" % (job, lease), s)
        s.run("ROLLBACK")
        self.sql("SELECT pawl.fail(%s, '%s', repeat('a', 9000) || 'z')" % (job, lease))
        self.assertEqual(self.one("SELECT length(said_error) BETWEEN 8192 AND 8300 AND said_error"
                                  " LIKE '%characters left out%z' FROM pawl.x_running"), "t")

    def test_a_decision_on_its_way_comes_first_here_too(self):
        a, b = self.open(), self.open()
        job, lease = self.new()
        a.run("BEGIN")
        self.reap(a, job)
        b.run("BEGIN; INSERT INTO fx VALUES (1)")
        b.ask("SELECT pawl.fail(%s, '%s')" % (job, lease))
        self.wait_blocked(b)
        a.run("COMMIT")
        with self.assertRaises(Refused) as caught:
            b.answer()
        self.assertEqual(caught.exception.state, FENCED)
        b.run("COMMIT")
        self.assertEqual(self.effects(), [])


class FailAndEnd(PgTest):
    """With a worker, and a handler in the shell."""
    make_store = False
    HANDLER = r"""
args=$(cat)
say=$(echo "$args" | sed 's/.*"say":"\([^"]*\)".*/\1/')
end=$(echo "$args" | sed 's/.*"end":"\([^"]*\)".*/\1/')
psql -X -q -v ON_ERROR_STOP=1 -d "$PAWL_DB" >&2 <<EOF || exit 99
BEGIN;
SELECT pawl.begin($PAWL_JOB_ID, '$PAWL_LEASE');
INSERT INTO fx VALUES ($PAWL_JOB_ID, $PAWL_ATTEMPT);
SELECT pawl.fail($PAWL_JOB_ID, '$PAWL_LEASE', $say);
COMMIT;
EOF
eval "$end"
"""

    def setUp(self):
        super().setUp()
        self.assertEqual(self.pawl("init")[0], 0)
        self.sql("CREATE TABLE fx(job bigint, attempt int)")
        with open(os.path.join(self.dir, "h.sh"), "w", encoding="ascii") as f:
            f.write(self.HANDLER)
        with open(os.path.join(self.dir, "pawl.conf"), "w", encoding="ascii") as f:
            f.write("[task h]\nexec = sh ./h.sh\nmax_retries = 1\nbackoff = 10ms..20ms\n"
                    "[task early]\nexec = sh ./h.sh\nack = early\n")

    def put(self, say, end, task="h"):
        return self.one(enqueue(task, json.dumps({"say": say, "end": end},
                                                 separators=(",", ":"))))

    def run_one(self, say, end, task="h"):
        job = self.put(say, end, task)
        code, text = self.pawl("work", "--until-empty", "-c", "pawl.conf", "--log-level", "debug")
        self.assertEqual(code, 0, text)
        return job, text

    def ends(self, job):
        return self.sql("SELECT state, dead_class, outcome, runs, failures, error FROM pawl.jobs"
                        " WHERE id = %s" % job)[0]

    def test_what_was_completed_is_told_as_done(self):
        with open(os.path.join(self.dir, "pawl.conf"), "w", encoding="ascii") as f:
            f.write("[task c]\nexec = sh -c 'psql -XqAt -d \"$PAWL_DB\" -c \"SELECT pawl.complete("
                    "$PAWL_JOB_ID, '\"'\"'$PAWL_LEASE'\"'\"')\" && exit 75'\n")
        job, text = self.run_one("", "", "c")
        self.assertEqual(self.ends(job)[:2], ["done", ""], text)
        self.assertRegex(text, "event=job.done job=%s" % job)
        self.assertNotIn("job.retry", text)

    def test_it_stands_whatever_the_exit_code(self):
        for end in "exit 0", "exit 1", "exit 65", "kill -9 $$", "echo {} >&3":
            job, text = self.run_one("'no such card'", end)
            self.assertEqual(self.ends(job), ["dead", "permanent", "", "1", "1", "no such card"],
                             end + text)
            self.assertIn("job.dead", text)
            self.assertNotIn("job.done", text)
        self.assertEqual(self.one("SELECT count(*) FROM fx"), "5")
        self.assertEqual(self.sql("SELECT DISTINCT exit_code, signal FROM pawl.attempts"
                                  " ORDER BY 1"),
                         [["0", ""], ["1", ""], ["65", ""], ["", "9"]])
        code, text = self.pawl("check")
        self.assertEqual(code, 0, text)

    def test_transient_is_bounded_and_early_ack_is_dropped(self):
        job, text = self.run_one("'busy', 'transient', '10 ms'", "exit 0")
        self.assertEqual(self.ends(job), ["dead", "exhausted", "", "2", "2", "busy"], text)
        self.assertEqual(self.one("SELECT count(*) FROM fx"), "2")
        job, text = self.run_one("'busy', 'transient'", "exit 0", "early")
        self.assertEqual(self.ends(job)[:3], ["dropped", "", "failed"], text)

    def test_who_takes_over_heeds_it(self):
        """Goal: said, and then everything was killed: the next worker does not run it again."""
        job = self.put("'no such card'", "kill -9 $PPID; exec sleep 60")
        code, text = self.pawl("work", "--until-empty", "-c", "pawl.conf")
        self.assertEqual(code, -9, text)
        self.assertEqual(self.ends(job)[0], "running")
        code, text = self.pawl("work", "--until-empty", "-c", "pawl.conf")
        self.assertEqual(code, 0, text)
        self.assertEqual(self.ends(job), ["dead", "permanent", "", "1", "1", "no such card"], text)
        self.assertEqual(self.one("SELECT count(*) FROM fx"), "1")


class Migrate(PgTest):
    def test_again_under_load(self):
        """Goal: what a migrate creates anew may be created at any time: calls go on, grants and
        what depends on the functions stay."""
        self.sql("CREATE VIEW mine AS SELECT * FROM pawl.enqueue('t') WHERE false")
        sessions = [self.open() for _ in range(4)]
        for turn in range(5):
            for n, s in enumerate(sessions):
                s.ask("SELECT count(e.id) FROM generate_series(1, 50) g,"
                      " pawl.enqueue('t', key => '%d-%d-' || g) e" % (turn, n))
            for name in "views.sql", "functions.sql":
                self.sql("BEGIN;\n%s;\nCOMMIT" % script(name))
            self.assertEqual([s.answer() for s in sessions], [[["50"]]] * 4)
        self.assertEqual(self.one("SELECT count(*) FROM pawl.jobs"), "1000")

    def test_init_makes_what_the_files_say(self):
        """Goal: the binary brings these very functions and views, and makes them anew."""
        functions = ("SELECT proname, pg_get_function_arguments(oid), prosrc, proconfig, prosecdef,"
                     " provolatile, proacl IS NULL FROM pg_proc"
                     " WHERE pronamespace = 'pawl'::regnamespace ORDER BY 1, 2")
        views = "SELECT viewname, definition FROM pg_views WHERE schemaname = 'pawl' ORDER BY 1"
        want = self.sql(functions), self.sql(views)
        self.database = self.server.new_database()
        self.session = self.open()
        for _ in range(2):
            code, text = self.pawl("init")
            self.assertEqual(code, 0, text)
            self.assertEqual((self.sql(functions), self.sql(views)), want)
            self.sql("DROP FUNCTION pawl.begin(bigint, text)")
            self.sql("DROP VIEW pawl.tasks")

    def test_no_subtransactions(self):
        """Goal: an enqueue costs none: many of them slow the whole server down."""
        for name in os.listdir(SQL):
            if name != "roles.sql":
                self.assertNotRegex(script(name), r"(?m)^\s*EXCEPTION\b", name)
        self.sql("BEGIN")
        self.sql("SELECT pawl.enqueue('t', key => 'k-' || g) FROM generate_series(1, 200) g")
        self.sql("SELECT pawl.enqueue('t', key => 'k-' || g) FROM generate_series(1, 200) g")
        if self.server.version_num >= 160000:
            self.assertEqual(self.one("SELECT subxact_count FROM pg_stat_get_backend_subxact("
                                      "(SELECT b FROM pg_stat_get_backend_idset() b WHERE"
                                      " pg_stat_get_backend_pid(b) = pg_backend_pid()))"), "0")
        self.assertEqual(self.one("SELECT count(DISTINCT xmin::text) FROM pawl.x_job"), "1")
        self.sql("COMMIT")

    def test_every_function_has_a_fixed_search_path(self):
        self.assertEqual(self.sql(
            "SELECT proname FROM pg_proc WHERE pronamespace = 'pawl'::regnamespace AND"
            " 'search_path=pg_catalog, pg_temp' <> ALL (coalesce(proconfig, '{}'))"), [])


class Page(Claims):
    """doc/schema.md, On PostgreSQL."""

    def setUp(self):
        super().setUp()
        with open(os.path.join(ROOT, "doc", "schema.md"), encoding="utf-8") as f:
            self.page = f.read().split("## On PostgreSQL")[1].split("\n## ")[0]

    def test_examples_run(self):
        self.sql("CREATE TABLE orders(id int, amount int, paid boolean)")
        enqueue_it, handle_it, fail_it = re.findall(r"```sql\n(.*?)```", self.page, re.S)
        self.assertEqual(self.sql(enqueue_it), [["1", "t"]])
        self.assertEqual(self.sql(enqueue_it), [["1", "f"]])
        self.sql("\\set job 1\n\\set lease %s" % self.claim("1"))
        self.sql(handle_it)
        self.assertEqual(self.sql("SELECT state, result FROM pawl.jobs"),
                         [["done", '{"receipt":"r-1"}']])
        self.assertEqual(self.sql("SELECT DISTINCT paid FROM orders"), [["t"]])
        job = self.one("SELECT id FROM pawl.enqueue('charge', '{}')")
        self.sql("ALTER TABLE orders ADD refused boolean")
        self.sql("\\set job %s\n\\set lease %s" % (job, self.claim(job)))
        self.sql(fail_it)
        self.assertEqual(self.sql("SELECT said, said_error FROM pawl.x_running"),
                         [["permanent", "no such card"]])
        self.assertEqual(self.sql("SELECT DISTINCT refused FROM orders"), [["t"]])

    def test_parameters_and_states_are_those_of_the_functions(self):
        named = re.search(r"`pawl\.enqueue\((task, args, key.*?)\)`", self.page, re.S).group(1)
        for args in self.sql("SELECT array_to_string(proargnames[1:pronargs], ', ') FROM pg_proc"
                             " WHERE pronamespace = 'pawl'::regnamespace"
                             " AND proname = 'enqueue'"):
            self.assertEqual(args, [named])
        states = set(re.findall(r"ERRCODE = '(\w+)'", script("functions.sql")))
        self.assertEqual(states | {"40001", "23505", "PWMOV"},  # of a moved store
                         set(re.findall(r"`([0-9A-Z]{5})`", self.page)))

    def test_views_are_those_of_sqlite(self):
        db = sqlite3.connect(":memory:")
        for name in "0001_init.sql", "views.sql":
            with open(os.path.join(ROOT, "sql", "sqlite", name), encoding="utf-8") as f:
                db.executescript(f.read())
        for view in "jobs", "attempts", "queues", "tasks":
            theirs = [d[0] for d in db.execute("SELECT * FROM pawl_" + view).description]
            self.assertEqual(self.sql(
                "SELECT attname FROM pg_attribute WHERE attrelid = 'pawl.%s'::regclass"
                " AND attnum > 0 ORDER BY attnum" % view), [[name] for name in theirs])
        db.close()


if __name__ == "__main__":
    unittest.main()
