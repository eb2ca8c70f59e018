#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""test_case_people.py - field cases about what people do: replay and cancel. 52 54."""
import collections
import concurrent.futures
import random
import signal
import subprocess
import time
import unittest

from fieldkit import FieldTest, is_alive, tree
from pawltest import PAWL, strict
from stores import each_store

TIMEOUT = 120


@each_store
class Replay(FieldTest):
    def dead(self, n):
        """So many dead jobs of the exec task; their first cause is mended by the file `mended`."""
        self.more = "\n[task bad]\nexec = sh -c 'test -e mended || exit 65'\n"
        self.write_conf()
        self.bulk({"task": "bad", "args": {"i": i}} for i in range(n))
        self.work()
        ids = [row[0] for row in self.sql("SELECT id FROM pawl_jobs WHERE state = 'dead'"
                                          " AND replayed_as IS NULL")]
        self.assertEqual(len(ids), n)
        return [str(i) for i in ids]

    def assert_each_replayed_once(self, ids):
        chains = collections.Counter(str(r[0]) for r in self.sql(
            "SELECT replay_of FROM pawl_jobs WHERE replay_of IS NOT NULL"))
        self.assertEqual(chains, {i: 1 for i in ids})
        self.assertEqual(self.stats()["replays"], len(ids))

    def start(self, *words, env=None):
        return subprocess.Popen([PAWL, "--json", *words], cwd=self.dir, env=env or self.env(),
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    def case_52_double_click_and_two_operators_give_one_run(self):
        ids = self.dead(40)
        for job in ids:
            pair = [self.start("dead", "replay", job) for _ in range(2)]
            answers = [(p.communicate(timeout=30)[0].decode(), p.returncode) for p in pair]
            self.assertEqual(sorted(code for _, code in answers), [0, 1], answers)
            loser = [text for text, code in answers if code == 1][0]
            self.assertIn('"result":"already_replayed"', loser)
            self.assertEqual(len({text.split('"new_id":')[1].split(",")[0].rstrip("}\n")
                                  for text, _ in answers}), 1)
        self.assert_each_replayed_once(ids)

    def case_52_kill_in_the_middle_of_a_replay_gives_one_run(self):
        rng = random.Random(52)
        ids = self.dead(40)
        killed = 0
        for i, job in enumerate(ids):
            fail = {0: "replay.before=kill", 1: "replay.after=kill"}.get(i % 4)
            more = {"PAWL_FAILPOINT": fail} if fail else {}
            p = self.start("dead", "replay", job, env=self.env(**more))
            if not fail:
                time.sleep(rng.random() * 0.03)             # the moment of the kill is the point
                p.kill()
            p.communicate(timeout=30)
            killed += p.returncode == -signal.SIGKILL
            self.assertIn(self.pawl("dead", "replay", job).code, (0, 1))
        self.assertGreaterEqual(killed, 20)
        self.assert_each_replayed_once(ids)
        self.touch("mended")
        self.work()
        self.assertEqual(self.count("done", "bad"), 40)

    def case_52_kill_in_the_middle_of_a_replay_by_filter_gives_one_run_each(self):
        ids = self.dead(60)
        p = self.start("dead", "replay", "--all",
                       env=self.env(PAWL_FAILPOINT="replay.after=kill:20:1"))
        p.communicate(timeout=30)
        self.assertEqual(p.returncode, -signal.SIGKILL)
        self.assertEqual(self.stats()["replays"], 21)
        both = [self.start("dead", "replay", "--all") for _ in range(2)]
        for p in both:
            p.communicate(timeout=30)
        self.assert_each_replayed_once(ids)

    def case_52_second_death_shows_as_one_line_and_keeps_the_evidence(self):
        job = self.dead(1)[0]
        self.assertEqual([r["id"] for r in self.json("dead", "list")], [job])
        first = self.job(job)
        second = self.json("dead", "replay", job)[0]["new_id"]
        self.work()
        self.assertEqual(self.job(second)["state"], "dead")
        self.assertEqual([r["id"] for r in self.json("dead", "list")], [second])
        page = self.job(job)
        self.assertEqual((page["replayed_as"], page["attempts"]), (second, first["attempts"]))
        self.assertEqual(self.job(second)["root_id"], job)
        self.assertIn(job, self.ok("dead", "list", "--replayed"))
        done = self.pawl("dead", "replay", job)
        self.assertEqual(done.code, 1)
        self.assertRegex(done.out + done.err, "already replayed")

    def case_52_effect_that_landed_is_not_repeated_by_a_replay(self):
        """The program does its work, then fails: the outside call's key is that of the root."""
        job = self.act("effect exit:65")
        self.work()
        again = self.json("dead", "replay", job)[0]["new_id"]
        self.work()
        third = self.json("dead", "replay", again)[0]["new_id"]
        self.work()
        self.assertEqual([self.job(j)["state"] for j in (job, again, third)], ["dead"] * 3)
        self.assertEqual(len(self.attempts()), 3)
        self.assertEqual(len(self.fx()), 1)


SLOWLY = """
[task slowly]
sql = INSERT INTO fx(job_id, attempt, key)
      SELECT :job_id, :job_attempt, :job_key FROM
      (WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c WHERE x < 60000)
       SELECT max(x) FROM c) AS t
"""


@each_store
class Cancel(FieldTest):
    more = SLOWLY

    def cancel_all(self, ids, busy):
        """Cancel each at a random moment while the worker runs; id -> the answer."""
        rng = random.Random(54)
        order = rng.sample(ids, len(ids))

        def one(job):
            time.sleep(rng.random() * 0.02)                 # at a random moment: that is the case
            done = self.pawl("--json", "cancel", job)
            self.assertIn(done.code, (0, 1), done)
            return job, strict(done.out)
        self.wait_until(busy, 15, "the worker is busy")
        with concurrent.futures.ThreadPoolExecutor(3) as pool:
            return dict(pool.map(one, order))

    def judge(self, answers):
        """Every answer is the truth about the one terminal state. Returns how many cancelled."""
        for job, answer in answers.items():
            want = {"cancelled": "cancelled", "too_late": "done"}[answer["result"]]
            self.assertEqual(self.job(job)["state"], want, answer)
        done = self.pawl("--json", "check")
        self.assertEqual(done.code, 0, done)                # I7: nobody is in two places
        return sum(a["result"] == "cancelled" for a in answers.values())

    def case_54_cancel_and_completion_of_an_sql_job_never_both_win(self):
        self.bulk({"task": "slowly"} for _ in range(150))
        ids = [str(r[0]) for r in self.sql("SELECT id FROM pawl_jobs")]
        worker = self.worker(ready=False)
        answers = self.cancel_all(ids, lambda: self.count("done") > 0)
        self.wait_until(lambda: self.count("done") + self.count("cancelled") == len(ids), 30,
                        "all have ended")
        cancelled = self.judge(answers)
        self.assertTrue(0 < cancelled < len(ids),
                        "%d cancelled: this run proved nothing" % cancelled)
        self.assert_each_once(j for j, a in answers.items() if a["result"] == "too_late")
        self.assertEqual(self.stop_worker(worker), 0)

    def case_54_cancel_and_completion_of_a_program_never_both_win(self):
        self.bulk({"task": "act", "args": "sleep:0.0%d who" % (2 + i % 4)} for i in range(100))
        ids = [str(r[0]) for r in self.sql("SELECT id FROM pawl_jobs")]
        worker = self.worker("-n", "4", ready=False)
        answers = self.cancel_all(ids, lambda: self.count("done") > 0)
        self.wait_until(lambda: self.count("done") + self.count("cancelled") == len(ids), 30,
                        "all have ended")
        self.judge(answers)
        for job in ids:
            page = self.job(job)
            self.assertEqual(page["result"] is not None, page["state"] == "done")
        self.assertEqual(self.stop_worker(worker), 0)

    def case_54_group_of_a_cancelled_program_is_gone(self):
        job = self.act("sleep:60")
        worker = self.worker()
        pid = self.wait_attempts(job, 1)[0].pid
        self.wait_until(lambda: tree(pid)[1:], 5, "the program has a child")
        below = tree(pid)
        self.assertEqual(self.ok("cancel", job), job + " cancelled\n")
        self.wait_until(lambda: not any(is_alive(p) for p in below), 5, "the group is gone")
        self.assertEqual(self.job(job)["state"], "cancelled")
        self.assertEqual(self.stop_worker(worker), 0)


if __name__ == "__main__":
    unittest.main()
