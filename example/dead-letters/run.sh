#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# dead-letters: rows that cannot be imported, the evidence they leave, the fix, and the replay.
. "$(dirname "$0")/../lib.sh"

run sql "CREATE TABLE stock(sku TEXT PRIMARY KEY, place TEXT,
                     qty INTEGER NOT NULL$(on " CHECK (typeof(qty) = 'integer')" ""))"
run pawl init
run pawl apply
cat >rows.jsonl <<'ROWS'
{"task":"import_row","key":"row-1","args":{"sku":"bolt","qty":100,"place":"A1"}}
{"task":"import_row","key":"row-2","args":{"sku":"nut","qty":"a dozen","place":"A2"}}
{"task":"import_row","key":"row-3","args":{"sku":"gear","qty":5}}
{"task":"import_row","key":"row-4","args":{"sku":"pawl","qty":18446744073709551616,"place":"A4"}}
{"task":"import_row","key":"row-5","args":{"sku":"gear","qty":7}}
ROWS
run pawl enqueue --bulk rows.jsonl
run work
run sql "SELECT id, dead_class, error FROM $jobs WHERE state = 'dead' ORDER BY id"
run pawl dead show 2

note "row 2: the args are wrong, so they are corrected for the replay"
run pawl dead replay 2 --args '{"sku":"nut","qty":12,"place":"A2"}'

note "rows 3 and 5: the config was too strict, so it is fixed, and all that died of it are replayed"
sed 's/^sql = /optional = place\nsql = /' pawl.conf >fixed.conf && mv fixed.conf pawl.conf
run pawl conf check
run pawl dead discard 4 --reason 'the supplier withdrew the row'
run pawl dead replay --task import_row --class permanent --all
note "once more, by a colleague who did not know: a dead letter is replayed once"
run pawl dead replay --task import_row --class permanent --all
run pawl dead replay 2
run work

note "two rows were for the same gear: the second one is dead again, with a new reason"
run sql "SELECT id, replay_of, state, dead_class, error FROM $jobs
          WHERE replay_of IS NOT NULL ORDER BY id"
run sql "SELECT id, state, replayed_as FROM $jobs WHERE replay_of IS NULL ORDER BY id"
run sql "SELECT sku, qty, place FROM stock ORDER BY sku"
run pawl check
