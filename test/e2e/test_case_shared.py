#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""test_case_shared.py - field cases of a database that others use, too, on PostgreSQL: an old
snapshot (75), notifications (76), tables full of what is over (77). What they cost is counted in
rows and blocks, as the server counts them: no clock of a loaded machine is asked. The rates are in
`bench --engine postgres`."""
import threading
import unittest

import libpq
from fieldkit import FieldTest, uptime
from stores import PostgresStore, postgres_alone

TIMEOUT = 120

SCANNED = """SELECT coalesce(sum(seq_tup_read), 0)::bigint FROM pg_stat_user_tables
             WHERE schemaname = 'pawl' AND relname IN (%s)"""
BLOCKS = """SELECT coalesce(sum(heap_blks_hit + heap_blks_read + coalesce(idx_blks_hit, 0)
            + coalesce(idx_blks_read, 0)), 0)::bigint FROM pg_statio_user_tables
            WHERE schemaname = 'pawl' AND relname IN (%s)"""


class SharedTest(FieldTest):
    store_class = PostgresStore

    def counted(self, sql, *tables):
        """A count of the server's. A session tells its own when it ends, others once a second: none
        of them may be left."""
        self.wait_until(lambda: self.sql("SELECT count(*) FROM pg_stat_activity WHERE datname ="
                                         " current_database() AND application_name = 'pawl'")
                        == [(0,)], 30, "the end of Pawl's sessions")
        return self.sql(sql % ", ".join("'%s'" % t for t in tables))[0]

    def open(self):
        db = libpq.connect(self.store.url)
        self.addCleanup(db.close)
        return db


@postgres_alone
class Horizon(SharedTest):
    """Case 75: a transaction elsewhere keeps dead rows from being removed."""
    EACH = 400

    def round_of(self):
        """Jobs through, and the blocks that it took."""
        before = self.counted(BLOCKS, "x_ready", "x_running")[0]
        self.bulk([{"task": "effect"}] * self.EACH)
        self.work()
        return self.counted(BLOCKS, "x_ready", "x_running")[0] - before

    def case_75_claims_stay_cheap_beside_an_old_snapshot_which_doctor_names(self):
        self.round_of()                         # what is made once is there
        holder = self.open()
        holder.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
        holder.execute("SELECT 1")
        first = self.round_of()
        for _ in range(6):
            last = self.round_of()
        self.assertLess(last, 3 * first, "blocks of a round of %d jobs" % self.EACH)
        self.assertEqual(self.count("done", "effect"), 8 * self.EACH)
        done = self.pawl("doctor", "--old", "0s")
        self.assertEqual(done.code, 1, done)
        self.assertRegex(done.out, r"a transaction open for .* keeps dead rows from being removed:"
                                   r" pid %d, user %s," % (holder.pid, self.store.user))
        holder.execute("ROLLBACK")
        self.assertNotIn("pid %d," % holder.pid, self.pawl("doctor", "--old", "0s").out)
        self.sql("VACUUM pawl.x_ready")
        self.assertLess(self.round_of(), 3 * first)


@postgres_alone
class Notices(SharedTest):
    """Case 76: NOTIFY makes commits queue, and a listener that is stuck fills its queue."""
    CLIENTS, EACH = 16, 10

    def produce(self, failed):
        try:
            db = libpq.connect(self.store.url)
            for _ in range(self.EACH):
                db.execute("BEGIN")
                db.execute("SELECT pawl.enqueue('effect', '{}')")
                db.execute("SELECT pg_sleep(0.02)")     # the caller's own work, in its transaction
                db.execute("COMMIT")
            db.close()
        except libpq.Refused as e:
            failed.append(str(e))

    def case_76_enqueues_of_many_clients_notify_nobody_and_a_stuck_listener_hinders_nobody(self):
        stuck, listener = self.open(), self.open()
        for db in stuck, listener:
            db.execute("LISTEN pawl")
        stuck.execute("BEGIN")
        failed = []
        crowd = [threading.Thread(target=self.produce, args=(failed,))
                 for _ in range(self.CLIENTS)]
        for t in crowd:
            t.start()
        for t in crowd:
            t.join()
        self.assertEqual(failed, [])
        listener.execute("SELECT 1")
        self.assertEqual(listener.notified(), 0)        # not one in the transaction of a caller
        self.bulk([{"task": "effect"}] * 1000)
        listener.execute("SELECT 1")
        self.assertLessEqual(listener.notified(), 20)   # one for a commit, not one for a job
        self.work()
        self.assertEqual(self.count("done", "effect"), self.CLIENTS * self.EACH + 1000)

    def case_76_who_is_notified_of_nothing_looks_within_a_second(self):
        worker = self.worker()
        self.wait_state(self.enqueue("effect"), "done")
        db = self.open()
        began = uptime()
        job = db.execute("SELECT id FROM pawl.enqueue('effect', '{}')").fetchone()[0]
        self.wait_state(job, "done")
        self.assertLess(uptime() - began, 10)           # and not when something else wakes it
        self.assertEqual(self.stop_worker(worker), 0)


@postgres_alone
class Full(SharedTest):
    """Case 77: plans that flip after a bulk load, or with many rows that are over."""
    OVER, LATER, NOW = 100000, 20000, 3000
    TABLES = ("x_job", "x_done", "x_ready", "x_attempt", "x_running")

    def columns(self, table):
        """All but the first, which is the id."""
        return [c for c, in self.sql(
            "SELECT attname::text FROM pg_attribute WHERE attrelid = 'pawl.%s'::regclass"
            " AND attnum > 1 AND NOT attisdropped ORDER BY attnum" % table)]

    def fill(self):
        """Rows as a year of work leaves them: done, and scheduled; nobody has analyzed them."""
        self.ok("apply")
        one = self.enqueue("effect")
        self.work()
        for table in self.TABLES:               # which would analyze them
            self.sql("ALTER TABLE pawl.%s SET (autovacuum_enabled = off)" % table)
        jobs = ", ".join(self.columns("x_job"))
        self.sql("INSERT INTO pawl.x_job (%s) SELECT %s FROM pawl.x_job, generate_series(1, %d)"
                 " WHERE id = %s" % (jobs, jobs, self.OVER, one))
        rest = self.columns("x_done")
        self.sql("INSERT INTO pawl.x_done (job_id, %s) SELECT j.id, %s FROM pawl.x_done d,"
                 " pawl.x_job j WHERE d.job_id = %s AND j.id > %s" % (
                     ", ".join(rest), ", ".join("d." + c for c in rest), one, one))
        self.sql("SELECT count(*) FROM (SELECT pawl.enqueue('effect', '{}', run_at => now() +"
                 " interval '1 day') FROM generate_series(1, %d)) x" % self.LATER)
        self.sql("SELECT count(*) FROM (SELECT pawl.enqueue('effect', '{}') FROM"
                 " generate_series(1, %d)) x" % self.NOW)

    def case_77_claims_read_what_they_take_and_not_what_is_over_or_not_due(self):
        self.fill()
        scanned = self.counted(SCANNED, *self.TABLES)[0]
        blocks = self.counted(BLOCKS, *self.TABLES)[0]
        self.work()                             # it recovers, claims, settles, asks what waits
        scanned = self.counted(SCANNED, *self.TABLES)[0] - scanned
        blocks = self.counted(BLOCKS, *self.TABLES)[0] - blocks
        self.assertLess(scanned, self.OVER, "rows read without an index")
        self.assertLess(blocks / self.NOW, 100, "blocks for a job")
        self.assertEqual(self.count("done", "effect"), self.OVER + self.NOW + 1)


if __name__ == "__main__":
    unittest.main()
