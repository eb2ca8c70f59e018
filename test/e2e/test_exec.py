# SPDX-License-Identifier: Apache-2.0
"""test_exec.py - exec tasks from outside: what a program is told, may answer, how it may end."""
import json
import os
import time
import unittest

from pawltest import PAWL, PawlTest
from stores import each_store

CONF = """
[pawl]
concurrency = 4
grace = 5s

[task t]
exec = ./t.sh
max_retries = 1
backoff = 50ms..100ms
%s
"""


@each_store
class ExecTest(PawlTest):
    def task(self, body, more=""):
        self.conf(CONF % more)
        self.script("t.sh", "#!/bin/sh\n" + body)

    def run_one(self, body, args="{}", more="", words=()):
        """Enqueue one job, work until nothing is left; the job as `pawl job` shows it."""
        self.task(body, more)
        job = self.enqueue("t", args, *words)
        self.work()
        return self.job(job)

    def test_program_gets_args_byte_exact_and_answers_with_a_result(self):
        args = '{ "a" :\t"\\u00e9\u00e9",  "n":1.50 }'
        job = self.run_one("cat > got; n=$(wc -c < got);"
                           "printf '{\"done\":{\"result\":{\"seen\":%s}}}' $n >&3", args)
        self.assertEqual(job["state"], "done", job)
        with open(os.path.join(self.dir, "got"), "rb") as f:
            self.assertEqual(f.read(), args.encode())
        self.assertEqual(job["result"], {"seen": len(args.encode())})

    def test_program_is_told_about_its_job(self):
        job = self.run_one("env > got; pwd > where", words=(
            "--key", "order:1", "--source", "shop", "--queue", "mail", "--header", "x-a=1"))
        self.assertEqual(job["state"], "done", job)
        with open(os.path.join(self.dir, "got"), encoding="utf-8") as f:
            env = dict(line.split("=", 1) for line in f.read().splitlines() if "=" in line)
        want = {"PAWL_JOB_ID": job["id"], "PAWL_ROOT_ID": job["id"], "PAWL_TASK": "t",
                "PAWL_QUEUE": "mail", "PAWL_KEY": "order:1", "PAWL_SOURCE": "shop",
                "PAWL_ATTEMPT": "1", "PAWL_TOKEN": "1", "PAWL_REPLY_FD": "3",
                "PAWL_WORKER": job["worker"]}
        self.assertEqual({k: env.get(k) for k in want}, want)
        self.assertEqual(json.loads(env["PAWL_HEADERS"]), {"x-a": "1"})
        self.assertRegex(env["PAWL_LEASE"], "^[0-9a-f]{32}$")
        self.assertRegex(env["PAWL_IDEMPOTENCY_KEY"], "^pawl-[0-9a-f]{32}$")
        if self.store.can("file"):
            self.assertEqual(env["PAWL_DB"][:8], "sqlite:/")
            self.assertTrue(os.path.samefile(env["PAWL_DB"][len("sqlite:"):], self.db))
        else:
            self.assertEqual(env["PAWL_DB"], self.store.url)
        with open(os.path.join(self.dir, "where"), encoding="utf-8") as f:
            self.assertEqual(os.path.realpath(f.read().strip()), os.path.realpath(self.dir))

    def test_program_can_enqueue_into_the_same_store(self):
        self.conf(CONF % "" + "\n[task u]\nexec = /bin/true\n")
        self.script("t.sh", "#!/bin/sh\ncd / && exec %s enqueue u '{}' >/dev/null\n" % PAWL)
        self.enqueue("t")
        self.work()
        states = {j["task"]: j["state"] for j in self.json("jobs")}
        self.assertEqual(states, {"t": "done", "u": "done"})

    def test_retry_verdict_sets_error_and_floor_of_the_delay(self):
        job = self.run_one("echo '{\"retry\":{\"error\":\"later, please\",\"after_ms\":700}}' >&3")
        self.assertEqual((job["state"], job["dead_class"]), ("dead", "exhausted"), job)
        first = job["attempts"][0]
        self.assertEqual((first["outcome"], first["error"]), ("transient", "later, please"))
        self.assertEqual(job["runs"], 2)
        with self.subTest("the second run came no earlier"):
            gap = _at(job["attempts"][1]["started_at"]) - _at(first["ended_at"])
            self.assertGreaterEqual(gap, 0.69)

    def test_snooze_costs_no_retry(self):
        job = self.run_one('if [ "$PAWL_ATTEMPT" -lt 4 ]; then '
                           "echo '{\"snooze\":{\"after_ms\":20}}' >&3; fi")
        self.assertEqual((job["state"], job["snoozes"], job["failures"]), ("done", 3, 0), job)

    def test_fail_verdict_is_dead_at_once(self):
        job = self.run_one("echo '{\"fail\":{\"error\":\"no such order\"}}' >&3")
        self.assertEqual((job["state"], job["dead_class"], job["runs"]), ("dead", "permanent", 1))
        self.assertEqual(job["error"], "no such order")

    def test_words_of_a_later_version_are_refused_by_name(self):
        job = self.run_one("echo '{\"done\":{\"step\":[{\"do\":\"x\"}]}}' >&3; exit 65")
        self.assertEqual(job["state"], "dead", job)
        self.assertIn("protocol: ", job["error"])
        self.assertIn('"step" in a verdict is not in this version', job["error"])

    def test_result_over_the_limit_is_a_permanent_failure_that_says_so(self):
        job = self.run_one("{ printf '{\"done\":{\"result\":\"'; head -c 262143 /dev/zero |"
                           "tr '\\0' r; printf '\"}}'; } >&3")
        self.assertEqual((job["state"], job["dead_class"]), ("dead", "permanent"), job)
        self.assertEqual(job["error"], "the result has 262145 bytes, the limit is 262144")

    def test_hostile_bytes_on_stderr_can_be_stored_and_shown(self):
        job = self.run_one("printf 'bad \\377\\033[31m\\000 end' >&2; exit 65")
        self.assertEqual(job["error"], "exit 65: bad \\xff\x1b[31m\\x00 end")
        self.assertNotIn("\x1b", self.ok("job", job["id"]))

    def test_signal_is_lost_and_the_cap_makes_it_poison(self):
        job = self.run_one("kill -9 $$")
        self.assertEqual((job["state"], job["dead_class"]), ("dead", "poison"), job)
        self.assertEqual((job["lost"], job["failures"], job["runs"]), (3, 0, 3))
        self.assertEqual([a["signal"] for a in job["attempts"]], [9, 9, 9])
        self.assertIn("killed by signal 9 (KILL)", job["attempts"][0]["error"])

    def test_hard_limit_kills_the_group_and_is_a_timeout(self):
        job = self.run_one("trap '' TERM; sleep 60 & echo $! >> pids; while :; do wait; done",
                           more="hard_limit = 400ms\nsoft_limit = 200ms")
        self.assertEqual((job["state"], job["dead_class"], job["failures"]),
                         ("dead", "exhausted", 2), job)
        self.assertEqual({a["outcome"] for a in job["attempts"]}, {"timeout"})
        with open(os.path.join(self.dir, "pids"), encoding="utf-8") as f:
            for pid in f.read().split():
                self.wait_until(lambda: not os.path.exists("/proc/%s/fd/0" % pid), 5, "the end")

    def test_program_that_is_missing_is_transient_and_loud(self):
        self.conf(CONF % "")
        job = self.enqueue("t")
        done = self.work()
        job = self.job(job)
        self.assertEqual((job["state"], job["dead_class"], job["failures"]),
                         ("dead", "exhausted", 2), job)
        self.assertIn("not runnable: ", job["error"])
        self.assertIn("./t.sh", job["error"])
        self.assertIn("event=job.not_runnable", done.err)

    def test_exit_codes_follow_the_policy(self):
        job = self.run_one('exit "$(cat)"', "9", "permanent = 9\ndiscard = 10 20-30")
        self.assertEqual((job["state"], job["dead_class"]), ("dead", "permanent"), job)
        job = self.run_one('exit "$(cat)"', "25", "permanent = 9\ndiscard = 10 20-30")
        self.assertEqual((job["state"], job["outcome"]), ("dropped", "failed"), job)

    def test_early_ack_runs_once_whatever_happens(self):
        job = self.run_one("exit 1", more="ack = early")
        self.assertEqual((job["state"], job["outcome"], job["runs"]), ("dropped", "failed", 1), job)

    def done_n(self):
        return self.sql("SELECT count(*) FROM pawl_jobs WHERE state = 'done'")[0][0]

    def test_thousand_jobs_leave_no_descriptor_behind(self):
        self.conf("[pawl]\nconcurrency = 8\n[task t]\nexec = /bin/true\n")
        lines = "".join('{"task":"t","args":{}}\n' for _ in range(500))
        self.ok("enqueue", "--bulk", "-", stdin=lines)
        worker = self.start_worker()
        self.wait_until(lambda: self.done_n() == 500, 40, "500 are done")
        before = len(os.listdir("/proc/%d/fd" % worker.pid))
        self.ok("enqueue", "--bulk", "-", stdin=lines)
        self.wait_until(lambda: self.done_n() == 1000, 40, "1000 are done")
        self.assertEqual(len(os.listdir("/proc/%d/fd" % worker.pid)), before)
        self.assertEqual(self.stop_worker(worker), 0)


@each_store
class RunTest(PawlTest):
    """pawl run: one handler in the foreground."""

    def test_program_in_the_foreground(self):
        self.conf("[task t]\nexec = ./t.sh\n")
        self.script("t.sh", "#!/bin/sh\ncat >&2; echo hello;"
                    "echo '{\"done\":{\"result\":[1]}}' >&3\n")
        out = self.json("run", "t", '{"a":1}')[0]
        self.assertEqual((out["outcome"], out["result"], out["stdout"], out["stderr"]),
                         ("done", [1], "hello\n", '{"a":1}'))
        text = self.ok("run", "t", '{"a":1}')
        self.assertIn("t: done in", text)
        self.assertIn("result: [1]", text)

    def test_exit_code_tells_the_outcome(self):
        self.conf("[task bad]\nexec = sh -c 'exit 65'\n[task soon]\nexec = sh -c 'exit 1'\n")
        self.assertEqual(self.pawl("run", "bad").code, 65)
        self.assertEqual(self.pawl("run", "soon").code, 75)
        self.fails(64, "run", "soon", "--dry-run", says="cannot be rolled back")
        self.fails(1, "run", "son", says="nearest is 'soon'")
        self.fails(65, "run", "soon", "{", says="not JSON")

    def test_statements_in_one_transaction_kept_or_rolled_back(self):
        self.sql("CREATE TABLE n(v INTEGER NOT NULL)")
        self.conf("[task t]\nsql = INSERT INTO n(v) VALUES (:a)\n"
                  "sql = INSERT INTO n(v) VALUES (:b) RETURNING v\noptional = b\n")
        out = self.json("run", "t", '{"a":1,"b":2}', "--dry-run")[0]
        self.assertEqual((out["outcome"], out["result"]), ("done", [{"v": 2}]))
        self.assertIs(out["dry_run"], True)
        self.assertEqual(self.sql("SELECT v FROM n"), [])
        self.assertEqual(self.json("run", "t", '{"a":1,"b":2}')[0]["outcome"], "done")
        self.assertEqual(self.sql("SELECT v FROM n"), [(1,), (2,)])
        out = self.json("run", "t", '{"a":3}', code=65)[0]
        self.assertEqual(out["outcome"], "permanent")
        self.assertIn("statement 2", out["error"])
        self.assertEqual(self.sql("SELECT v FROM n"), [(1,), (2,)])


def _at(text):
    """Seconds of an RFC 3339 instant in UTC."""
    whole, _, fraction = text.rstrip("Z").partition(".")
    return time.mktime(time.strptime(whole, "%Y-%m-%dT%H:%M:%S")) + float("0." + (fraction or "0"))


if __name__ == "__main__":
    unittest.main()
