#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""test_c_crash.py - C handlers that crash, hang or take everything down with them, in both modes:
one runner, one job, and the neighbours go on. And kills of everything at random moments."""
import datetime
import os
import random
import re
import signal
import time
import unittest

from ckit import ACTS, PluginTest
from fieldkit import is_sanitized
from pawltest import SLOW
from stores import each_store

TIMEOUT = 180
BOTH_LINKS = True


class Poison:
    """handler, at: where the job dies."""
    at = "apply"
    concurrency = 1

    def one_bad_among_fifty(self, what):
        before = self.crowd(25)
        bad = self.do(what, at=self.at)
        self.bulk({"task": "act", "args": {}, "key": "m-%d" % i} for i in range(25))
        rest = [r[0] for r in self.sql("SELECT id FROM pawl_jobs WHERE id > ?", (bad,))]
        done = self.work(timeout=90)
        self.assert_all_done(before + rest)
        self.assert_each_once(before + rest)
        self.assertEqual(self.sql("SELECT count(*), max(lost), max(failures) FROM pawl_jobs"
                                  " WHERE state = 'done'"), [(50, 0, 0)])
        return self.job(bad), done

    def is_poison(self, what, says):
        page, done = self.one_bad_among_fifty(what)
        self.assertEqual((page["state"], page["dead_class"], page["lost"], page["runs"],
                          page["failures"]), ("dead", "poison", 3, 3, 0), page)
        self.assertEqual(len(self.starts(page["id"], self.at)), 3)
        for attempt in page["attempts"]:
            self.assertEqual(attempt["outcome"], "lost")
            self.assertRegex(attempt["error"], says)
        self.assertEqual(done.err.count("event=runner.died"), 3, done)

    def case_07_handler_that_dies_by_sigsegv_is_buried(self):
        # A sanitizer turns it into an abort, with its report.
        self.is_poison("segv", r"signal 6" if is_sanitized() else r"signal 11")

    def case_07_handler_that_is_killed_is_buried(self):
        self.is_poison("kill", r"signal 9")

    def case_07_handler_that_aborts_is_buried(self):
        self.is_poison("abort", r"signal 6")

    def case_07_handler_that_exits_with_0_is_buried(self):
        self.is_poison("exit0", r"ended|exit")

    def case_07_handler_that_exits_with_3_is_buried(self):
        self.is_poison("exit3", r"ended|exit")

    def case_07_handler_that_closes_everything_is_buried(self):
        # Whether its runner or the supervisor notices first: nobody else is charged.
        self.is_poison("closefrom", r"signal 9")

    def case_07_handler_that_closes_the_store_is_buried(self):
        # Its runner could do nothing more, and would say so for ever.
        self.is_poison("closestore", r"signal 9")

    def case_07_handler_that_never_ends_is_exhausted(self):
        page, done = self.one_bad_among_fifty("loop")
        self.assertEqual((page["state"], page["dead_class"], page["lost"], page["failures"],
                          page["runs"]), ("dead", "exhausted", 0, 2, 2), page)
        for attempt in page["attempts"]:
            self.assertEqual(attempt["outcome"], "timeout")
            self.assertRegex(attempt["error"], r"hard limit.*runner")
        self.assertEqual(done.err.count("event=runner.died"), 2, done)

    def test_watchdog_comes_at_the_limit_and_not_with_the_next_second(self):
        self.do("loop", "--max-retries", "0", at=self.at)
        done = self.work()
        began = os.stat(os.path.join(self.dir, "starts.log")).st_mtime
        died = datetime.datetime.fromisoformat(re.search(
            r"(?m)^(\S+)Z warn event=runner.died .*signal=14", done.err).group(1) + "+00:00")
        took = died.timestamp() - began
        self.assertGreater(took, 0.99)
        self.assertLess(took, 1 + 0.6 * SLOW, done.err)

    def case_08_handler_that_kills_the_supervisor_is_buried_although_every_process_died(self):
        bad = self.do("parent", "--priority", "1", at=self.at)
        rest = self.crowd(20)
        for n in range(20):
            done = self.pawl("work", "--until-empty")
            if done.code == 0:
                break
            self.assertEqual(done.code, -signal.SIGKILL, done)
            self.assertEqual(len(self.starts(bad, self.at)), n + 1)
        page = self.job(bad)
        self.assertEqual((page["state"], page["dead_class"], page["lost"]),
                         ("dead", "poison", 3), page)
        self.assertEqual(len(self.starts(bad, self.at)), 3)
        self.assert_all_done(rest)
        self.assert_each_once(rest)


@each_store
class EffectPoison(Poison, PluginTest):
    policy = "hard_limit = 1s\nmax_retries = 1\nbackoff = 10ms..20ms"


class Deaf:
    """A handler that turns the watchdog of its runner off, and never ends."""
    at = "apply"
    policy = "hard_limit = 1s\nmax_retries = 1\nbackoff = 10ms..20ms"

    def test_watchdog_that_was_turned_off_is_missed_by_the_supervisor(self):
        self.compile_acts(ACTS.replace(
            "static volatile int zero;", "static volatile int zero;\n"
            "static void deaf(void) { sigset_t all; sigfillset(&all);"
            " sigprocmask(SIG_SETMASK, &all, NULL); }").replace(
                'if (strcmp(what, "loop") == 0)', 'if (strcmp(what, "loop") == 0) deaf();\n'
                '    if (strcmp(what, "loop") == 0)'))
        bad = self.do("loop", "--max-retries", "0", at=self.at)
        rest = self.crowd(3)
        done = self.work(timeout=60)
        self.assertEqual(self.job(bad)["dead_class"], "exhausted")
        self.assertIn("event=runner.late", done.err)
        self.assert_each_once(rest)


@each_store
class EffectDeaf(Deaf, PluginTest):
    pass


@each_store
class PrepareDeaf(Deaf, PluginTest):
    handler, at = "staged", "prepare"


@each_store
class ApplyDeaf(Deaf, PluginTest):
    handler = "staged"


@each_store
class PreparePoison(Poison, PluginTest):
    policy = EffectPoison.policy
    handler, at = "staged", "prepare"


@each_store
class ApplyPoison(Poison, PluginTest):
    policy = EffectPoison.policy
    handler = "staged"


# Each effect takes a while, so that the kills meet something.
PUT = "static enum pawl_outcome put(struct pawl_run *run, const char *value)\n{"
SLOWLY = ACTS.replace(PUT, PUT + "\n    poll(NULL, 0, NAP_MS);\n")


class Kills:
    """2,000 keyed effects, two workers, SIGKILL of everything at random moments."""
    policy = "lost_cap = 100"                       # a kill from outside is nobody's doing
    lease = "2s"
    jobs_n, for_s = 2000, 20

    def test_kills_at_random_lose_nothing_and_double_nothing(self):
        # On SQLite one works at a time; on PostgreSQL eight do, and would be done too soon.
        self.compile_acts(SLOWLY.replace("NAP_MS", "3" if self.store.can("file") else "8"))
        seed = random.randrange(1 << 30)
        rnd = random.Random(seed)
        ids = self.crowd(self.jobs_n)
        for_s = self.for_s if self.store.can("file") else self.for_s / 2
        end, kills = time.monotonic() + for_s * SLOW, 0
        while time.monotonic() < end and self.count("done") < self.jobs_n:
            a, b = self.worker(ready=False), self.worker(ready=False)
            time.sleep(rnd.uniform(0.1, 1.0 if kills > 2 else 0.5))
            if rnd.random() < 0.3:
                self.kill_all(rnd.choice((a, b)))
                time.sleep(rnd.uniform(0.1, 1.0))
            self.kill_all(a, b)
            kills += 1
            self.check()
        left = self.jobs_n - self.count("done")
        self.work(timeout=120)
        with self.subTest(seed=seed, kills=kills, left=left):
            self.assertGreater(kills, 2)
            self.assert_each_once(ids)
            self.assert_all_done(ids)
            self.assertEqual(self.sql("SELECT max(failures) FROM pawl_jobs"), [(0,)])


@each_store
class EffectKills(Kills, PluginTest):
    pass


@each_store
class PreparedKills(Kills, PluginTest):
    handler = "staged"


if __name__ == "__main__":
    unittest.main()
