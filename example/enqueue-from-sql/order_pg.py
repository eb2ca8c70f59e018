# SPDX-License-Identifier: Apache-2.0
"""order_pg.py ID CUSTOMER - the same application as order.py on PostgreSQL, by psycopg (2 or 3).

No library of ours: Pawl's door is a function. The job exists if and only if the order does."""
import json
import os
import sys

try:
    import psycopg
except ImportError:
    import psycopg2 as psycopg

order, customer = int(sys.argv[1]), sys.argv[2]
db = psycopg.connect(os.environ["PAWL_DB"])     # its transaction begins with the first statement
try:
    cursor = db.cursor()
    cursor.execute("INSERT INTO orders(id, customer) VALUES (%s, %s)", (order, customer))
    cursor.execute("SELECT id, created FROM pawl.enqueue('send_receipt', %s, key => %s)",
                   (json.dumps({"order": order}), "receipt-%d" % order))
    job, created = cursor.fetchone()
    if customer == "mallory":
        raise ValueError("we do not sell to mallory")
    db.commit()
    print("order %d and job %d, %s" % (order, job, "created" if created else "known already"))
except (ValueError, psycopg.Error) as error:
    db.rollback()
    print("no order %d, and no job: %s" % (order, error))
db.close()
