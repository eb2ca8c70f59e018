#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# plugin: a C function as a handler, in the transaction of the job. It needs pawl.h, and no library.
. "$(dirname "$0")/../lib.sh"

C_INCLUDE_PATH=$here/../../include # where no pawl.h is installed
export C_INCLUDE_PATH

run "${CC:-cc}" -shared -fPIC -O2 -o shop.so shop.c
run pawl init
sql "CREATE TABLE charge(order_id INTEGER PRIMARY KEY, cents INTEGER)"
sql "CREATE TABLE receipt(order_id INTEGER PRIMARY KEY)"
run pawl conf check
run pawl apply
run pawl enqueue charge '{"order":1,"cents":250}' --key order-1
run pawl enqueue charge '{"order":1,"cents":250}' --key order-1
run pawl enqueue charge '{"order":1,"cents":250}' --key order-1-again
run pawl enqueue charge '{"order":2,"cents":250000}'
run pawl enqueue charge '{"order":3}'
run work
run sql "SELECT * FROM charge"
run sql "SELECT * FROM receipt"
run sql "SELECT id, task, state, reason FROM $jobs ORDER BY id"
