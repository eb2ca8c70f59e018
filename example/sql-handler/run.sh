#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# sql-handler: a task that is nothing but SQL, its result, its key, and what a refusal undoes.
. "$(dirname "$0")/../lib.sh"

run sql "CREATE TABLE account(name TEXT PRIMARY KEY, cents INTEGER NOT NULL CHECK (cents >= 0))"
run sql "INSERT INTO account VALUES ('ann', 1000), ('bob', 0)"
run pawl init
run pawl apply

note "two transfers; the second request has the key of the first, so it is the same transfer"
run pawl enqueue transfer '{"from":"ann","to":"bob","cents":300}' --key order-1
run pawl enqueue transfer '{"from":"ann","to":"bob","cents":300}' --key order-1
run work
run sql "SELECT name, cents FROM account ORDER BY name"
run sql "SELECT state, result FROM $jobs WHERE id = 1"

note "nobody called carl: the last statement changes no row, and the first one is undone with it"
run pawl enqueue transfer '{"from":"ann","to":"carl","cents":100}' --key order-2
note "ann does not have 5000: the schema refuses"
run pawl enqueue transfer '{"from":"ann","to":"bob","cents":5000}' --key order-3
run work
run sql "SELECT name, cents FROM account ORDER BY name"
run sql "SELECT id, state, dead_class, reason FROM $jobs WHERE state <> 'done' ORDER BY id"
