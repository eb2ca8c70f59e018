#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""test_pg_chaos.py - the server under load: its processes end one by one, and all at once.

Seconds here; `./run soak --postgres` does the same for as long as one likes. The seed is printed;
PAWL_TEST_SEED sets it."""
import os
import time
import unittest

from pgkit import Cluster, SUPERUSER
from pgload import Load

TIMEOUT = 180


class Chaos:
    """Load on a server of one's own, and what is done to it."""

    def __init__(self, seed=None):
        self.server = Cluster(durable=True)     # a crash of the server loses nothing
        self.load = Load(self.server.url("postgres", SUPERUSER), seed)
        self.rng = self.load.rng
        self.load.init()

    def begin(self):
        self.load.start_worker()
        self.load.start_worker()
        self.load.produce(2, pause=0.05)
        self.load.wait(lambda: self.load.done() >= 8, "some work")

    def terminate(self):
        """One or a few of Pawl's connections, whatever they are doing."""
        n = self.rng.choice((1, 1, 2, 8))
        return len(self.load.rows(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'pawl'"
            " ORDER BY hashint4(pid # %d) LIMIT %d" % (self.rng.randrange(1 << 30), n)))

    def restart(self):
        self.server.stop("immediate")
        self.server.start()

    def more(self, n=4):
        was = self.load.stored()
        self.load.wait(lambda: self.load.stored() >= was + n, "work goes on")

    def close(self):
        self.load.close()
        self.server.remove()


class Server(unittest.TestCase):
    def setUp(self):
        seed = os.environ.get("PAWL_TEST_SEED")
        self.chaos = Chaos(int(seed) if seed else None)
        self.addCleanup(self.chaos.close)
        print("seed %d" % self.chaos.load.seed)

    def over(self, what):
        n = self.chaos.load.audit()
        print("%s; %d jobs, none lost, none doubled; producers' exit codes: %s"
              % (what, n, self.chaos.load.codes))

    def test_connections_terminated_at_random(self):
        self.chaos.begin()
        ended = 0
        for _ in range(40):
            ended += self.chaos.terminate()
            self.chaos.load.tend()
            rng = self.chaos.rng
            time.sleep(rng.random() * 0.2)      # the moment is the point, not a wait
        self.chaos.more()
        self.assertGreater(ended, 40)
        self.over("%d connections terminated" % ended)

    def test_server_stopped_at_once_and_started_again(self):
        self.chaos.begin()
        for _ in range(3):
            self.chaos.restart()
            self.chaos.more()
        self.over("3 crashes of the server")


if __name__ == "__main__":
    unittest.main()
