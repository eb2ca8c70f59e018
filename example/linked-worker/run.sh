#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# linked-worker: one program that enqueues in its own transaction and works on the jobs, by libpawl.
only_sqlite="the program links it, and enqueues in its transaction"
. "$(dirname "$0")/../lib.sh"

built linked-worker     # cc -o linked-worker linked-worker.c $(pkg-config --cflags --libs pawl)
run ./linked-worker
run sql "SELECT * FROM charge" "SELECT * FROM receipt"
run sql "SELECT id, task, key, state, reason FROM $jobs ORDER BY id"

note "what the program left is a store like any other"
run pawl --db shop.db dead list
run pawl --db shop.db dead replay 2 --args '{"order":3,"amount":500}'
run pawl --db shop.db check
