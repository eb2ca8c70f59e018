#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""test_c_task.py - C tasks in both modes: what a handler is given, what it may answer, misuse,
plugins that do not fit, drain, `pawl run`."""
import os
import re
import shutil
import signal
import subprocess
import unittest

from ckit import ACTS, CC, PluginTest, compile_plugin
from fieldkit import is_sanitized
from pawltest import PAWL, ROOT
from stores import each_store, sqlite_alone

TIMEOUT = 120
BOTH_LINKS = True
NOTHING = "#include <pawl.h>\nstatic enum pawl_outcome f(struct pawl_run *r) " \
          "{ (void)r; return PAWL_DONE; }\n"


class Answers:
    """What holds in both modes."""

    def test_effect_plan_and_key(self):
        ids = self.crowd(20)
        self.work()
        self.assert_each_once(ids)
        self.assert_all_done(ids)
        rows = self.sql("SELECT DISTINCT key, value, attempt FROM fx WHERE key = 'n-3'")
        self.assertEqual(rows, [("n-3", self.plan, 1)])

    def test_outcomes(self):
        ids = {w: self.do(w) for w in ("fail", "discard", "stale", "snooze", "result", "once",
                                       "odd", "honest")}
        later = self.do("later")
        worker = self.start_worker()
        for word, state, text in (
                ("fail", "dead", "never 7"), ("discard", "dropped", "given up"),
                ("stale", "done", None), ("snooze", "done", None), ("result", "done", None),
                ("once", "done", None), ("odd", "dead", "returned 99"),
                ("honest", "dead", "constraint")):
            with self.subTest(word):
                self.wait_state(ids[word], state)
                page = self.job(ids[word])
                if text:
                    self.assertIn(text, str(page))
        pages = {w: self.job(i) for w, i in ids.items()}
        self.assertEqual(pages["result"]["result"], {"n": 1})
        self.assertEqual((pages["snooze"]["snoozes"], pages["snooze"]["failures"]), (1, 0))
        self.assertEqual((pages["once"]["failures"], pages["once"]["runs"]), (1, 2))
        self.assertEqual(pages["fail"]["dead_class"], "permanent")
        self.assertEqual(pages["odd"]["dead_class"], "misuse")
        self.wait_until(lambda: self.job(later)["failures"] == 1, what="a failure")
        self.assertEqual(self.job(later)["state"], "ready")
        self.ok("cancel", later)
        self.assertEqual(self.stop_worker(worker), 0, self.log(worker))
        self.assert_each_once([ids["snooze"], ids["result"], ids["once"]])

    def test_follow_up_is_there_if_and_only_if_the_job_is_done(self):
        self.do("follow-fail")
        self.work()
        self.assertEqual(self.sql("SELECT count(*) FROM pawl_jobs"), [(1,)])
        job = self.do("follow")
        self.work()
        self.assertEqual(self.job(job)["state"], "done")
        self.assertEqual(self.sql("SELECT state FROM pawl_jobs WHERE key = 'follow-up'"),
                         [("done",)])

    def test_misuse_is_dead_without_a_trace_and_costs_the_neighbours_nothing(self):
        first = self.crowd(25)
        bad = [self.do(w) for w in ("commit", "swallow", "rollback")]
        after = [self.do("ok") for _ in range(5)]
        self.work()
        self.assert_each_once(first + after)
        for job in bad:
            page = self.job(job)
            self.assertEqual((page["state"], page["dead_class"], page["runs"]),
                             ("dead", "misuse", 1), page)
        for job in first + after:
            page = self.job(job)
            self.assertEqual((page["state"], page["failures"], page["lost"]), ("done", 0, 0), page)

    def test_output_of_a_handler_is_the_workers(self):
        job = self.do("print")
        done = self.work()
        self.assertIn("printed by job %s\n" % job, done.err)
        self.assertRegex(done.err, r"info event=job.log job=%s .*logged" % job)
        self.assertNotIn("\nby a handler", done.err)

    def test_closed_descriptors_confuse_nobody(self):
        job, rest = self.do("close"), self.crowd(10)
        done = self.work("--log-level", "debug")
        self.assertEqual(self.job(job)["state"], "done", done)
        self.assert_each_once([job] + rest)
        self.assertNotIn("runner.died", done.err)

    def test_an_exit_code_of_configuration_is_a_handlers_too(self):
        job, rest = self.do("exit78"), self.crowd(5)
        self.work()
        self.assertEqual(self.job(job)["dead_class"], "poison")
        self.assert_each_once(rest)

    def test_death_is_seen_although_a_child_holds_every_descriptor(self):
        job, rest = self.do("fork"), self.crowd(5)
        self.work()
        page = self.job(job)
        self.assertEqual((page["dead_class"], page["lost"]), ("poison", 3), page)
        self.assert_each_once(rest)

    def test_run_by_hand(self):
        self.assertRegex(self.ok("run", "act", "--dry-run"), r"^act: done in .* \(rolled back\)")
        self.assertEqual(self.sql("SELECT count(*) FROM fx"), [(0,)])
        self.ok("run", "act", "{}", "--key", "k")
        self.assertEqual(self.sql("SELECT key, value FROM fx"), [("k", self.plan)])
        out = self.json("run", "act", '{"do":"result"}')[0]
        self.assertEqual((out["outcome"], out["result"]), ("done", {"n": 1}))
        done = self.pawl("run", "act", '{"do":"fail"}')
        self.assertEqual(done.code, 65, done)
        self.assertIn("error: never 7", done.out)
        self.assertEqual(self.pawl("run", "act", '{"do":"retry"}').code, 75)
        self.assertEqual(self.pawl("run", "act", '{"do":"swallow"}').code, 65)
        done = self.pawl("run", "act", '{"do":"print"}')
        self.assertIn("printed by job 0", done.out)
        self.assertIn("event=job.log", done.err)
        self.assertEqual(self.pawl("run", "act", '{"do":"follow"}').code, 0)
        self.assertEqual(self.sql("SELECT key FROM pawl_jobs"), [("follow-up",)])
        self.assertEqual(self.sql("SELECT count(*) FROM fx"), [(4,)])

    def test_run_by_hand_says_how_the_handler_ended_its_process(self):
        for what, text, number in (
                ("segv", "was killed by signal 11", ("signal", 11)),
                ("abort", "was killed by signal 6", ("signal", 6)),
                ("kill", "was killed by signal 9", ("signal", 9)),
                ("exit0", "ended by itself, with exit code 0", ("exit_code", 0)),
                ("exit78", "ended by itself, with exit code 78", ("exit_code", 78))):
            with self.subTest(what):
                args = '{"do":"%s","at":"%s"}' % (what, self.crashes_at)
                done = self.pawl("run", "act", args)
                self.assertEqual(done.code, 75, done)
                if is_sanitized() and what == "segv":   # it becomes an abort, with a report
                    continue
                self.assertEqual(done.err, "", done)
                self.assertRegex(done.out, r"(?s)^act: lost in .*error: the process that ran it "
                                 + text)
                out = self.json("run", "act", args, code=75)[0]
                self.assertEqual((out["outcome"], out[number[0]]), ("lost", number[1]), out)
        self.assertEqual(self.sql("SELECT count(*) FROM fx"), [(0,)])

    def test_state_of_a_worker(self):
        worker = self.worker()
        worker.send_signal(signal.SIGUSR2)
        self.wait_log(worker, "event=worker.state")
        line = re.search(r"event=worker.state.*", self.log(worker)).group(0)
        self.assertRegex(line, self.state)
        self.assertRegex(self.log(worker), r"event=worker.start .*c_tasks=1")
        self.assertIn(self.mode, self.ok("conf", "check"))
        self.assertEqual(self.json("conf", "check")[0]["mode"], self.mode)


@each_store
class Effect(Answers, PluginTest):
    crashes_at = "apply"
    mode, plan, state = "effect", "no plan", r"runner_pid=[1-9].* crew=0"

    def test_drain_costs_the_job_in_hand_nothing(self):
        first, nap = self.crowd(5), self.do("nap", "--priority", "1")
        worker = self.worker()
        self.wait_until(lambda: self.starts(nap), what="its start")
        self.assertEqual(self.stop_worker(worker), 0, self.log(worker))
        self.assertRegex(self.log(worker), r"event=worker.start .*concurrency=%d "
                         % self.concurrency)
        self.assertRegex(self.log(worker), r"event=worker.drain .*running=1")
        self.assertEqual(self.sql("SELECT DISTINCT state, runs, failures, lost, releases"
                                  " FROM pawl_jobs"), [("ready", 0, 0, 0, 0)])
        self.ok("cancel", nap)
        self.work()
        self.assert_each_once(first)

    def test_mode_decides_the_default_limit(self):
        self.ok("apply")
        self.assertIn("hard_limit = 1m", self.sql("SELECT policy FROM pawl_tasks")[0][0])


@each_store
class Prepared(Answers, PluginTest):
    crashes_at = "prepare"
    handler, mode, plan, state = "staged", "prepared", "from prepare", r"runner_pid=0.* crew=4"

    def test_mode_decides_the_default_limit(self):
        self.ok("apply")
        self.assertIn("hard_limit = 1h", self.sql("SELECT policy FROM pawl_tasks")[0][0])

    def test_prepare_may_answer_all_but_done_for_good(self):
        ids = {w: self.do(w, at="prepare") for w in ("fail", "discard", "stale", "snooze", "once")}
        self.work()
        states = {w: self.job(i)["state"] for w, i in ids.items()}
        self.assertEqual(states, {"fail": "dead", "discard": "dropped", "stale": "done",
                                  "snooze": "done", "once": "done"})
        self.assert_each_once([ids["snooze"], ids["once"]])

    def test_no_signal_wakes_a_prepare_that_waits(self):
        job = self.do("wait", at="prepare")
        self.work()
        self.assertEqual(self.job(job)["state"], "done")

    def test_a_run_by_hand_is_not_cancelled(self):
        with subprocess.Popen([PAWL, "run", "act", '{"do":"nap","at":"prepare"}'], cwd=self.dir,
                              env=self.env(), stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT) as run:
            self.addCleanup(run.kill)
            self.wait_until(lambda: self.starts(phase="prepare"), what="its start")
            with self.assertRaises(subprocess.TimeoutExpired):
                run.wait(0.3)
            run.send_signal(signal.SIGINT)
            self.assertIn(b"was asked to stop", run.communicate()[0])

    def test_prepares_run_beside_each_other(self):
        ids = [self.do("nap", at="prepare") for _ in range(4)]
        worker = self.worker()
        self.wait_until(lambda: len(self.starts(phase="prepare")) == 4, what="four at once")
        self.assertEqual(len({s.pid for s in self.starts()}), 4)
        self.assertEqual(self.stop_worker(worker), 0)
        self.assertRegex(self.log(worker), r"event=worker.drain .*running=4")
        for job in ids:
            page = self.job(job)
            self.assertEqual((page["state"], page["failures"], page["lost"], page["releases"]),
                             ("ready", 0, 0, 1), page)

    def test_slow_prepares_after_fast_ones_run_beside_each_other(self):
        worker = self.worker()
        fast = self.crowd(400)
        self.wait_until(lambda: self.count("done") == len(fast), what="all are done")
        self.bulk([{"task": "act", "args": {"do": "nap", "at": "prepare"}}] * 4)
        slow = self.wait_until(lambda: [s for s in self.starts(phase="prepare")
                                        if s.job not in fast][3:] and self.starts(),
                               what="four at once")
        self.assertEqual(len({s.pid for s in slow if s.job not in fast}), 4)
        self.assertEqual(self.stop_worker(worker), 0)
        self.assertNotIn("never started", self.log(worker))

    def test_cancelled_job_has_no_effect(self):
        job = self.do("nap", at="prepare")
        self.worker()
        self.wait_until(lambda: self.starts(job), what="its start")
        self.ok("cancel", job)
        other = self.do("ok")
        self.wait_state(other, "done")
        self.assertEqual(self.job(job)["state"], "cancelled")
        self.assert_each_once([other])


@each_store
class Early(PluginTest):
    policy = "ack = early"

    def test_early_ack_is_prepared_and_a_loss_is_recorded(self):
        self.assertEqual(self.json("conf", "check")[0]["mode"], "prepared")
        good = self.do("ok")
        self.work()
        bad = self.do("kill")
        self.work()
        failed = self.do("retry")
        self.work()
        self.assertEqual([self.job(j)["state"] for j in (good, bad, failed)],
                         ["done", "dropped", "dropped"])
        self.assertEqual(len(self.starts(bad)), 1)


@each_store
class One(PluginTest):
    """One runner, so that what it holds is known."""
    handler, pawl_keys = "staged", "runners = 1"

    def test_drain_hands_back_at_no_cost(self):
        worker = self.worker()
        self.ok("pause", "--task", "act")
        before = self.crowd(60, "q")   # quick ones: it learns to hold several
        nap, rest = self.do("nap", at="prepare"), self.crowd(50)
        self.ok("resume", "--task", "act")
        self.wait_until(lambda: self.starts(nap), what="its start")
        self.assertGreater(self.count("running"), 1)
        self.assertEqual(self.stop_worker(worker), 0, self.log(worker))
        self.assertEqual(self.count("running"), 0)
        # What was not begun did not run: nothing is counted. The one in hand cost a release.
        self.assertEqual(self.sql("SELECT DISTINCT runs, failures, lost, releases FROM pawl_jobs"
                                  " WHERE id <> ? AND state = 'ready'", (nap,)), [(0, 0, 0, 0)])
        page = self.job(nap)
        self.assertEqual((page["failures"], page["lost"], page["releases"]), (0, 0, 1), page)
        self.ok("cancel", nap)
        self.work()
        self.assert_each_once(before + rest)

    def test_a_handler_that_exits_in_a_drain_has_died_all_the_same(self):
        job, rest = self.do("nap-exit", at="prepare"), self.crowd(5)
        for lost in (1, 2, 3):
            worker = self.worker()
            self.wait_until(lambda: len(self.starts(job)) == lost, what="its start")
            self.assertEqual(self.stop_worker(worker), 0, self.log(worker))
            self.assertEqual(self.job(job)["lost"], lost)
        self.assertEqual(self.job(job)["dead_class"], "poison")
        self.work()
        self.assert_each_once(rest)

    def test_a_handler_that_does_not_listen_is_killed_and_handed_back(self):
        job, rest = self.do("loop", at="prepare"), self.crowd(3)
        worker = self.worker("--grace", "500ms")
        self.wait_until(lambda: self.starts(job), what="its start")
        self.assertEqual(self.stop_worker(worker), 0, self.log(worker))
        page = self.job(job)
        self.assertEqual((page["state"], page["failures"], page["lost"], page["releases"]),
                         ("ready", 0, 0, 1), page)
        self.ok("cancel", job)
        self.work()
        self.assert_each_once(rest)

    def test_a_second_signal_hands_back_at_once(self):
        job = self.do("loop", at="prepare")
        worker = self.worker("--grace", "30s")
        self.wait_until(lambda: self.starts(job), what="its start")
        self.assertEqual(self.stop_worker(worker, signal.SIGQUIT, 10), 0, self.log(worker))
        page = self.job(job)
        self.assertEqual((page["state"], page["lost"], page["releases"]), ("ready", 0, 1), page)

    def test_case_59_recovered_job_keeps_its_priority(self):
        """Field case 59 through C tasks: what was in hand is the next one to start."""
        self.crowd(20)
        high = self.do("nap", "--priority", "10", at="prepare")
        worker = self.worker()
        self.wait_until(lambda: self.starts(high), what="its start")
        self.crowd_more(1000)
        before = len(self.starts(phase="prepare"))
        self.kill_all(worker)
        self.crowd_more(100, "m")
        self.worker()
        self.wait_until(lambda: len(self.starts(phase="prepare")) > before, what="the next start")
        self.assertEqual(self.starts(phase="prepare")[before].job, int(high))

    def crowd_more(self, n, name="l"):
        self.bulk({"task": "act", "args": {}, "key": "%s-%d" % (name, i)} for i in range(n))


@each_store
class Refused(PluginTest):
    """Plugins that do not fit: one line and 78, from every verb that looks at them."""

    def plugin(self, name, source, *more):
        return compile_plugin(self.dir, name, source, *more)

    def refuse(self, value, says):
        path = self.conf("[pawl]\ndb = sqlite:shop.db\n\n[task t]\nc = %s\n" % value, "bad.conf")
        for verb in (("conf", "check"), ("apply",), ("work", "--until-empty")):
            line = self.fails(78, *verb, "-c", path, says=says)
            self.assertIn("bad.conf:5: c = %s: " % value, line)
        line = self.fails(78, "run", "t", "-c", path, says=says)

    def test_no_such_file(self):
        self.refuse("./none.so:x", r"no file .*none\.so: .*build the plugin")

    def test_not_a_plugin(self):
        self.script("text.so", "#!/bin/sh\n")
        self.refuse("./text.so:x", r"not a plugin; build it with")
        os.mkdir(os.path.join(self.dir, "dir.so"))
        self.refuse("./dir.so:x", r"is not a file")

    def test_undefined_symbol(self):
        self.plugin("u", "int missing_one(void);\n" + NOTHING.replace(
            "(void)r;", "(void)r; missing_one();") + "PAWL_HANDLER(x, NULL, f, NULL);")
        self.refuse("./u.so:x", r"undefined symbol: missing_one: link the library")

    def test_no_such_handler(self):
        self.refuse("./acts.so:stagd", r"no handler 'stagd' in .*; did you mean 'staged'\?")
        self.refuse("./acts.so:something_else", r"no handler .*; it has: (act staged|staged act)")
        self.refuse("./acts.so:not_a_handler", r"'not_a_handler' in .* is not a handler")
        self.plugin("empty", NOTHING + "enum pawl_outcome g(void);\n"
                    "enum pawl_outcome g(void) { return f(0); }")
        self.refuse("./empty.so:x", r"no handler 'x' in .*; define it with PAWL_HANDLER\(x, ")

    def test_another_interface(self):
        raw = NOTHING + "PAWL_API extern const struct pawl_handler x;\n" \
            "const struct pawl_handler x = {%s};"
        self.plugin("old", raw % "99, sizeof(struct pawl_api), 0, f, 0")
        self.refuse("./old.so:x", r"handler x was compiled for interface 99 of pawl\.h, this Pawl "
                    r"has 1: compile it again")
        self.plugin("big", raw % "PAWL_ABI, sizeof(struct pawl_api) + 8, 0, f, 0")
        self.refuse("./big.so:x", r"compiled for a later Pawl")
        self.plugin("none", raw.replace(NOTHING, "#include <pawl.h>\n")
                    % "PAWL_ABI, sizeof(struct pawl_api), 0, 0, 0")
        self.refuse("./none.so:x", r"neither prepare nor apply")

    @sqlite_alone
    def test_second_sqlite(self):
        source = "int sqlite3_libversion_number(void);\n%s%s\nPAWL_HANDLER(x, NULL, f, NULL);"
        body = NOTHING.replace("(void)r;", "(void)r; if (sqlite3_libversion_number() < 0) "
                               "return PAWL_FAIL;")
        # Its own copy, whatever this pawl links.
        self.plugin("own", source % (body, "int sqlite3_libversion_number(void) { return 1; }"))
        self.refuse("./own.so:x", r"brings a second SQLite into the process \(.*own\.so\)")
        try:
            self.plugin("two", source % (body, ""), "-Wl,--no-as-needed", "-lsqlite3")
        except AssertionError:
            return                              # no library of the system's to link
        path = self.conf("[pawl]\ndb = sqlite:shop.db\n\n[task t]\nc = ./two.so:x\n", "two.conf")
        if b"bundled" in subprocess.run([PAWL, "--version"], stdout=subprocess.PIPE,
                                        check=True).stdout:
            self.refuse("./two.so:x", r"brings a second SQLite into the process \(.*libsqlite3")
        else:
            self.ok("conf", "check", "-c", path)            # the same one

    def test_a_constructor_that_dies_costs_the_probe(self):
        for how, says in (("kill(getpid(), 9)", "signal 9"), ("_exit(4)", "exit code 4")):
            self.plugin("c", "#include <signal.h>\n#include <unistd.h>\n" + NOTHING
                        + "__attribute__((constructor)) static void c(void) { %s; }\n"
                        "PAWL_HANDLER(x, NULL, f, NULL);" % how)
            path = self.conf("[pawl]\ndb = sqlite:shop.db\n\n[task t]\nc = ./c.so:x\n", "bad.conf")
            for verb in (("conf", "check"), ("work",)):
                self.fails(78, *verb, "-c", path,
                           says=r"bad.conf:5: c = ./c.so:x: loading the plugin ended .*" + says)

    def test_a_constructor_that_hangs_in_the_runner_only_is_ended_and_named(self):
        self.plugin("h", "#include <stdio.h>\n#include <string.h>\n#include <unistd.h>\n" + NOTHING
                    + "__attribute__((constructor)) static void c(void)\n{\n"
                    "    char line[4096] = \"\";\n"
                    "    FILE *f = fopen(\"/proc/self/cmdline\", \"r\");\n"
                    "    size_t n = f ? fread(line, 1, sizeof line - 1, f) : 0;\n"
                    "    if (f) (void)fclose(f);\n"
                    "    if (memmem(line, n, \"__runner\", 8) && access(\"hang\", F_OK) == 0)\n"
                    "        for (;;) pause();\n}\n"
                    "PAWL_HANDLER(x, NULL, f, NULL);")
        self.conf("[pawl]\ndb = sqlite:shop.db\n\n[task t]\nc = ./h.so:x\n")
        with open(os.path.join(self.dir, "hang"), "w"):
            pass
        worker, job = self.start_worker(), self.enqueue("t")
        self.wait_until(lambda: "event=runner.late" in self.log(worker), 60, "late")
        self.assertIn("does not come up", self.log(worker))
        os.remove(os.path.join(self.dir, "hang"))
        self.wait_until(lambda: self.job(job)["state"] == "done", 60, "its end")
        self.assertEqual(self.job(job)["lost"], 0)

    def test_bad_values(self):
        for value, says in (("acts.so", "write FILE:NAME"), (":act", "write FILE:NAME"),
                            ("acts.so:", "write FILE:NAME"), ("acts.so:a-b", "write FILE:NAME")):
            path = self.conf("[task t]\nc = %s\n" % value, "bad.conf")
            self.fails(78, "conf", "check", "-c", path, says=r"bad\.conf:2: c = .*" + says)
        for key in ("optional = a", "zero_rows = fail", "transient = 3", "env.A = 1",
                    "soft_limit = 1s"):
            path = self.conf("[task t]\nc = acts.so:act\n%s\n" % key, "bad.conf")
            self.fails(78, "conf", "check", "-c", path, says=r":3: \S+ means nothing to a c task")
        path = self.conf("[task t]\nc = acts.so:act\nexec = true\n", "bad.conf")
        self.fails(78, "conf", "check", "-c", path, says=r"both exec and c")
        self.conf("[task t]\nc = acts.so:act\n", "bare.conf")
        self.assertIn("effect mode", self.ok("conf", "check", "-c", "bare.conf"))

    def test_supervisor_never_loads_a_plugin(self):
        worker = self.worker()
        with open("/proc/%d/maps" % worker.pid, encoding="ascii") as f:
            self.assertNotIn("acts.so", f.read())
        pid = int(re.search(r"event=runner.ready .*pid=(\d+)", self.log(worker)).group(1))
        with open("/proc/%d/maps" % pid, encoding="ascii") as f:
            self.assertIn("acts.so", f.read())

    def test_a_plugin_that_changes_its_mode_ends_the_worker(self):
        worker = self.worker()
        compile_plugin(self.dir, "next", ACTS.replace("PAWL_HANDLER(act, NULL, apply, NULL)",
                                                      "PAWL_HANDLER(act, prepare, apply, drop)"))
        os.rename(os.path.join(self.dir, "next.so"), os.path.join(self.dir, "acts.so"))
        self.do("kill")
        self.assertEqual(worker.wait(30), 78, self.log(worker))
        self.assertIn("has changed since the worker read it", self.log(worker))


@each_store
class Programs(PluginTest):
    """Programs of exec tasks that are not there: said at once, not fatal."""
    more = ("[task gone]\nexec = ./gone.sh\n\n[task plain]\nexec = ./plain.sh\n\n"
            "[task nowhere]\nexec = no-such-program-here x\n\n[task there]\nexec = sh -c true\n\n"
            "[task path]\nexec = tool\nenv.PATH = bin\n")

    def test_missing_programs_are_warned_of(self):
        with open(os.path.join(self.dir, "plain.sh"), "w", encoding="ascii"):
            pass
        os.mkdir(os.path.join(self.dir, "bin"))
        self.script("bin/tool", "#!/bin/sh\n")
        want = [r"task gone: program .*gone\.sh: no such file",
                r"task plain: program .*plain\.sh: not executable",
                r"task nowhere: program no-such-program-here: not found in PATH"]
        for verb in (("conf", "check"), ("apply",)):
            done = self.pawl(*verb)
            self.assertEqual(done.code, 0, done)
            lines = done.err.splitlines()
            self.assertEqual(len(lines), len(want), done)
            for line, says in zip(lines, want):
                self.assertRegex(line, r"^pawl .*: warning: pawl\.conf:\d+: " + says)
        done = self.work()
        self.assertEqual(len(re.findall(r"warn event=task.no_program", done.err)), 3, done)


@each_store
class Page(PluginTest):
    def test_plugin_of_the_page_works(self):
        with open(os.path.join(ROOT, "doc", "plugins.md"), encoding="utf-8") as f:
            text = f.read()
        source = re.search(r"```c\n(.*?)```", text, re.S).group(1)
        conf = re.search(r"```\n(\[task.*?)```", text, re.S).group(1)
        with open(os.path.join(self.dir, "shop.c"), "w", encoding="utf-8") as f:
            f.write(source)
        line = re.search(r"```sh\n(cc .*?)\n```", text, re.S).group(1)
        env = dict(os.environ, C_INCLUDE_PATH=os.path.join(ROOT, "include"))
        subprocess.run(line.replace("cc", CC, 1), shell=True, cwd=self.dir, check=True, env=env)
        self.sql("CREATE TABLE charge(order_id INTEGER PRIMARY KEY, cents INTEGER)")
        path = self.conf("[pawl]\ndb = sqlite:shop.db\n" + conf, "page.conf")
        by_hand = re.search(r"`pawl (run charge .*?)`", text).group(1)
        self.assertIn("rolled back", subprocess.run(
            "%s %s -c %s" % (PAWL, by_hand, path), shell=True, cwd=self.dir, check=True,
            stdout=subprocess.PIPE, env=self.env()).stdout.decode())
        job = self.enqueue("charge", '{"order":1,"cents":250}')
        self.work("-c", path)
        self.assertEqual(self.job(job)["state"], "done")
        self.assertEqual(self.sql("SELECT * FROM charge"), [(1, 250)])

    @sqlite_alone
    def test_tutorial_plugin_is_short(self):
        with open(os.path.join(ROOT, "example", "plugin", "shop.c"), encoding="utf-8") as f:
            self.assertLess(len(f.readlines()), 40)


if __name__ == "__main__":
    unittest.main()
