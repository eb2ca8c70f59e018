# SPDX-License-Identifier: Apache-2.0
"""sql.py FILE STATEMENT... - run SQL statements in one transaction, print rows as a|b|c.

Stands in for the sqlite3 command where there is none: python3 is there wherever Pawl was built."""
import sqlite3
import sys

db = sqlite3.connect(sys.argv[1], timeout=5)
try:
    with db:
        for statement in sys.argv[2:]:
            for row in db.execute(statement):
                print("|".join("" if v is None else str(v) for v in row))
except sqlite3.Error as error:
    sys.exit("sql: %s" % error)
finally:
    db.close()
