# SPDX-License-Identifier: Apache-2.0
"""test_bug_store.py - more of what an attack found: files that change, handlers that look."""
import os
import shutil
import subprocess

from pawltest import PawlTest
from stores import each_store, sqlite_alone

TIMEOUT = 60

TASKS = """[task pay]
sql = UPDATE orders SET status = 'paid' WHERE id = :order AND status = 'new'
sql = INSERT INTO pawl_enqueue(task, args) VALUES ('receipt', '{}')
zero_rows = %s
[task receipt]
sql = INSERT INTO fx VALUES (:job_id)
"""


@sqlite_alone
class Files(PawlTest):
    def test_second_hard_link_is_refused(self):
        other = os.path.join(self.dir, "alias.db")
        os.link(self.db, other)
        self.fails(78, "enqueue", "t", "--db", other, says="hard links")
        self.fails(78, "enqueue", "t", says="hard links")
        os.unlink(other)
        self.enqueue("t")

    def test_mount_of_the_file_alone_is_refused(self):
        name = os.path.join(self.dir, "mounted.db")
        open(name, "w").close()
        done = subprocess.run(["mount", "--bind", self.db, name], capture_output=True, text=True)
        if done.returncode != 0:
            self.skipTest("cannot mount here: " + done.stderr.strip())
        self.addCleanup(subprocess.run, ["umount", name], check=True)
        self.fails(78, "enqueue", "t", "--db", name, says="mount its directory")
        self.enqueue("t")

    def test_many_workers_without_a_file_are_recovered(self):
        """More of them than a small table holds: each is watched for a lease, then taken over."""
        self.conf("[pawl]\nlease = 1s\n[task t]\nexec = true\n")
        jobs = [self.enqueue("t") for _ in range(40)]
        self.ok("apply")
        db = self.connect()
        db.execute("BEGIN IMMEDIATE")
        db.execute("INSERT INTO pawl_x_running SELECT id, randomblob(16), printf('%016x', id), 1,"
                   " 1, task_id, queue_id, rank, run_at_us, 0, 0, 0, 0, 0, 0 FROM pawl_x_ready")
        db.execute("DELETE FROM pawl_x_ready")
        db.execute("COMMIT")
        self.work(timeout=40)
        self.assertEqual({(self.job(j)["state"], self.job(j)["lost"]) for j in jobs}, {("done", 0)})

    def test_worker_notices_that_its_file_was_replaced(self):
        self.conf("[task t]\nexec = true\n")
        copy = os.path.join(self.dir, "restored.db")
        with self.connect() as db:
            db.execute("VACUUM INTO ?", (copy,))
        worker = self.start_worker()
        self.wait_until(lambda: "event=worker.ready" in self.log(worker), 20, "the worker is ready")
        for tail in ("-wal", "-shm"):
            if os.path.exists(self.db + tail):
                os.unlink(self.db + tail)
        os.rename(copy, self.db)
        self.assertEqual(worker.wait(30), 69, self.log(worker))
        self.assertIn("replaced or removed", self.log(worker))
        shutil.rmtree(self.db + "-pawl", True)


@each_store
class Handlers(PawlTest):
    def setUp(self):
        super().setUp()
        self.sql("CREATE TABLE orders (id INTEGER PRIMARY KEY, status TEXT)")
        self.sql("CREATE TABLE fx (job INTEGER)")
        self.sql("INSERT INTO orders VALUES (1, 'new')")

    def test_enqueue_as_the_last_statement_is_a_row_touched(self):
        for zero in ("stale", "fail", "retry"):
            with self.subTest(zero_rows=zero):
                self.sql("DELETE FROM fx")
                self.sql("UPDATE orders SET status = 'new'")
                self.conf(self.store.say(TASKS, TASKS.replace(
                    "INSERT INTO pawl_enqueue(task, args) VALUES ('receipt', '{}')",
                    "SELECT id FROM pawl.enqueue('receipt', '{}')")) % zero)
                job = self.enqueue("pay", '{"order":1}')
                self.work("--apply")
                page = self.job(job)
                self.assertEqual((page["state"], page["outcome"]), ("done", "done"))
                self.assertEqual(self.sql("SELECT status FROM orders"), [("paid",)])
                self.assertEqual(self.sql("SELECT count(*) FROM fx"), [(1,)])

    def test_handler_may_read_the_views(self):
        self.conf("[task look]\nsql = SELECT state, (SELECT count(*) FROM %s) AS n"
                  " FROM %s WHERE id = :job_id\n" % self.store.say(
                      ("pawl_tasks", "pawl_jobs"), ("pawl.tasks", "pawl.jobs")))
        job = self.enqueue("look")
        self.work()
        self.assertEqual(self.job(job)["result"], [{"state": "ready", "n": 1}])

    @sqlite_alone
    def test_handler_may_not_touch_the_counter_of_ids(self):
        self.conf("[task reset]\nsql = DELETE FROM sqlite_sequence\n")
        self.enqueue("reset")
        self.work(code=78)
        self.assertEqual(self.enqueue("reset"), "2")
