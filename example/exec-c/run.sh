#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# exec-c: a compiled program as a handler. It needs nothing of Pawl: no header, no library.
. "$(dirname "$0")/../lib.sh"

run "${CC:-cc}" -O2 -o factor factor.c
run pawl init
run pawl apply
run pawl enqueue factor '{"n":1001}'
run pawl enqueue factor '{"n":2147483646}'
run pawl enqueue factor '{"n":"many"}'
run work
run sql "SELECT id, state, result, reason FROM $jobs ORDER BY id"
