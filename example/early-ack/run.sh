#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# early-ack: one start for each job, whatever becomes of it, and no silence about a loss.
. "$(dirname "$0")/../lib.sh"

run pawl init
run pawl apply
run pawl enqueue ping '{"do":"work"}'
run pawl enqueue ping '{"do":"fail"}'
run pawl enqueue ping '{"do":"die"}'
run work
run sql "SELECT id, state, outcome, reason FROM $jobs ORDER BY id"
note "three jobs, three starts: even exit 75 is not tried again"
run grep -c start starts.txt
