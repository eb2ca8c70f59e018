#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# exec-sh: a shell script as a handler: a retry, a result, and a refusal.
. "$(dirname "$0")/../lib.sh"

run pawl init
run pawl apply
run pawl enqueue greet '{"name":"Ann"}' --key first
run pawl enqueue greet '{"name":42}'
run work
note "the first attempt exited with 75 and was tried again; the second job can never work"
run sql "SELECT id, state, failures, result, dead_class, reason FROM $jobs ORDER BY id"
run sql "SELECT job_id, n, outcome, exit_code, rtrim(err_tail, $(on char chr)(10)) FROM $attempts
          ORDER BY job_id, n"
