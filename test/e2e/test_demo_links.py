#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""test_demo_links.py - the demo's day with either SQLite: its two workers must be able to meet."""
import unittest

from test_demo import DemoTest, TIMEOUT  # noqa: F401 (the runner reads TIMEOUT)

BOTH_LINKS = True


class DemoLinks(DemoTest):
    def test_small_day_on_this_sqlite(self):
        """Goal: linked with the system's old SQLite the demo works too."""
        self.good_day("--seed", "7")


if __name__ == "__main__":
    unittest.main()
