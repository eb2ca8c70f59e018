#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# enqueue-from-sql: jobs enqueued by plain SQL, inside the application's own transaction. On SQLite
# the door is a view to insert into, on PostgreSQL a function.
. "$(dirname "$0")/../lib.sh"

order=$(on order.py order_pg.py)
if [ -n "$server" ] && ! python3 -c "import psycopg" 2>/dev/null &&
    ! python3 -c "import psycopg2" 2>/dev/null; then
    echo "enqueue-from-sql: Python has no psycopg (Debian: python3-psycopg2)" >&2
    exit 2
fi
by_hand() { # by_hand ARGS KEY: what a client says to the door
    if [ -z "$server" ]; then
        run sql "INSERT INTO pawl_enqueue(task, args, key)
         VALUES ('send_receipt', '$1', '$2')" "SELECT id, created FROM pawl_last"
    else
        run sql "SELECT id, created FROM pawl.enqueue('send_receipt', '$1', key => '$2')"
    fi
}

run sql "CREATE TABLE orders(id INTEGER PRIMARY KEY, customer TEXT NOT NULL)" \
        "CREATE TABLE outbox(order_id INTEGER PRIMARY KEY, text TEXT)"
run pawl init
run pawl apply
run python3 "$order" 1 ann
run python3 "$order" 2 mallory
run python3 "$order" 3 bob

note "any client will do; the same key again is the same job"
by_hand '{"order": 3}' receipt-3
note "the door checks what it is given"
by_hand 'order 4' receipt-4
by_hand '{"order": 9}' receipt-3
run work
run sql "SELECT task, key, state FROM $jobs ORDER BY id"
run sql "SELECT order_id, text FROM outbox ORDER BY order_id"
