#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# linked-pg: a C program that enqueues in its own transaction on its own connection to PostgreSQL.
# shellcheck disable=SC2034 # read by lib.sh
only_postgres='its transaction is that of a PGconn; linked-worker is the same on SQLite'
. "$(dirname "$0")/../lib.sh"

built linked-pg         # cc -o linked-pg linked-pg.c $(pkg-config --cflags --libs pawl libpq)
run ./linked-pg
run sql "SELECT * FROM orders"

note "the worker charges what was committed, once"
run work
run sql "SELECT * FROM charge"
run sql "SELECT task, key, state, args FROM pawl.jobs"
run pawl check
