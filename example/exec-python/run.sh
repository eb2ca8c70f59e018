#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# exec-python: a verdict object on the reply descriptor, and an exit code of the program's own.
. "$(dirname "$0")/../lib.sh"

run pawl init
run pawl apply
run pawl enqueue resize '{"width":640,"height":480}'
run pawl enqueue resize '{"width":4000,"height":3000,"huge":true}'
run pawl enqueue resize '{"width":0,"height":0}'
run work
run sql "SELECT id, state, failures, result, error FROM $jobs ORDER BY id"
run ls thumb-1.json thumb-2.json

note "one job in the foreground, without the queue"
run pawl run resize '{"width":100,"height":50}'
