#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# version-guard: events that arrive in the wrong order, twice, and in contradiction.
. "$(dirname "$0")/../lib.sh"

run sql "CREATE TABLE price(sku TEXT PRIMARY KEY, cents INTEGER NOT NULL)"
run pawl init
run pawl apply
run pawl enqueue set_price '{"sku":"bolt","cents":120,"version":2}' --key event-2
run pawl enqueue set_price '{"sku":"bolt","cents":100,"version":1}' --key event-1
run pawl enqueue set_price '{"sku":"bolt","cents":120,"version":2}' --key event-2-again
run pawl enqueue set_price '{"sku":"bolt","cents":999,"version":2}' --key event-2-forged
run pawl enqueue set_price '{"sku":"bolt","cents":130,"version":3}' --key event-3
run work
note "older: stale. Equal and the same: stale. Equal and different: a conflict, for somebody to see"
run sql "SELECT key, $(on args args::json) ->> 'version', state, outcome, dead_class FROM $jobs
          ORDER BY id"
run sql "SELECT sku, cents FROM price"
