# SPDX-License-Identifier: Apache-2.0
"""order.py ID CUSTOMER - an application takes an order and enqueues a job, in its own transaction.

No library: Pawl's door is a view. The job exists if and only if the order does."""
import json
import sqlite3
import sys

order, customer = int(sys.argv[1]), sys.argv[2]
db = sqlite3.connect("shop.db", timeout=5, isolation_level=None)
db.execute("BEGIN IMMEDIATE")
try:
    db.execute("INSERT INTO orders(id, customer) VALUES (?, ?)", (order, customer))
    db.execute("INSERT INTO pawl_enqueue(task, args, key) VALUES ('send_receipt', ?, ?)",
               (json.dumps({"order": order}), "receipt-%d" % order))
    job, created = db.execute("SELECT id, created FROM pawl_last").fetchone()
    if customer == "mallory":
        raise ValueError("we do not sell to mallory")
    db.execute("COMMIT")
    print("order %d and job %d, %s" % (order, job, "created" if created else "known already"))
except (ValueError, sqlite3.Error) as error:
    if db.in_transaction:
        db.execute("ROLLBACK")
    print("no order %d, and no job: %s" % (order, error))
db.close()
