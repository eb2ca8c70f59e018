#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# enqueue-from-sql: jobs enqueued by plain SQL, inside the application's own transaction.
. "$(dirname "$0")/../lib.sh"

run sql "CREATE TABLE orders(id INTEGER PRIMARY KEY, customer TEXT NOT NULL)" \
        "CREATE TABLE outbox(order_id INTEGER PRIMARY KEY, text TEXT)"
run pawl init
run pawl apply
run python3 order.py 1 ann
run python3 order.py 2 mallory
run python3 order.py 3 bob

note "any client will do; the same key again is the same job"
run sql "INSERT INTO pawl_enqueue(task, args, key)
         VALUES ('send_receipt', '{\"order\": 3}', 'receipt-3')" \
        "SELECT id, created FROM pawl_last"
note "the door checks what it is given"
run sql "INSERT INTO pawl_enqueue(task, args) VALUES ('send_receipt', 'order 4')"
run sql "INSERT INTO pawl_enqueue(task, args, key)
         VALUES ('send_receipt', '{\"order\": 9}', 'receipt-3')"
run work
run sql "SELECT id, task, key, state FROM pawl_jobs ORDER BY id"
run sql "SELECT order_id, text FROM outbox ORDER BY order_id"
