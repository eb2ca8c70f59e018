# SPDX-License-Identifier: Apache-2.0
"""test_pg_clients.py - the lines of doc/schema.md for psycopg and node-postgres, run as they stand
there; and a server-side cursor, a pool and a commit that is none. (What the door does through each
client is in test_pg_doors.py.)"""
import json
import os
import re
import subprocess
import textwrap

from pawltest import ROOT, SLOW
from pgkit import (SUPERUSER, NodePgSession, PgTest, Psycopg2Session, PsycopgSession, clean_env,
                   missing, node_command, psycopg, psycopg2)

TIMEOUT = 90


def block(lang):
    with open(os.path.join(ROOT, "doc", "schema.md"), encoding="utf-8") as f:
        return re.search(r"```%s\n(.*?)```" % lang, f.read(), re.S)[1]


class Clients(PgTest):
    def setUp(self):
        super().setUp()
        self.sql("CREATE TABLE orders(id int PRIMARY KEY, amount int)")

    def need(self, session_class):
        why = missing(session_class)
        if why:
            self.skipTest(why)

    def stored(self):
        return self.sql("SELECT o.id, j.id, j.args FROM orders AS o FULL JOIN pawl.jobs AS j"
                        " ON j.key = 'order-' || o.id ORDER BY o.id")

    def test_psycopg(self):
        self.need(PsycopgSession)
        for driver in psycopg, psycopg2:
            if driver is None:
                continue
            lines = block("python").replace('"dbname=shop"', "where")
            if driver is psycopg2:              # the same, with a cursor
                lines = lines.replace("8", "7").replace("db.execute(", "cursor.execute(") \
                    .replace("cursor.execute(\"INSERT", "cursor = db.cursor()\n    "
                             "cursor.execute(\"INSERT") \
                    .replace("job, created = ", "").replace(").fetchone()", ")\n    "
                             "job, created = cursor.fetchone()")
            names = {"psycopg": driver, "json": json,
                     "where": "host=%s dbname=%s user=%s" % (self.server.dir, self.database,
                                                             SUPERUSER)}
            exec(lines, names)                  # the page's own lines
            self.assertIs(names["created"], True)
            number = "8" if driver is psycopg else "7"
            self.assertIn([number, str(names["job"]), '{"order": %s}' % number], self.stored())
            names["db"].close()
            with self.assertRaises(driver.IntegrityError):
                exec(lines, names)              # the order is there: no job either
            names["db"].close()
        self.assertEqual(self.one("SELECT count(*) FROM pawl.jobs"),
                         "2" if psycopg2 else "1")

    def test_server_side_cursor(self):
        """Goal: jobs enqueued while a named cursor is read belong to its transaction."""
        for session_class, driver in (PsycopgSession, psycopg), (Psycopg2Session, psycopg2):
            self.need(session_class)
            self.sql("TRUNCATE orders")
            self.sql("INSERT INTO orders SELECT n, n FROM generate_series(1, 30) AS n")
            for end, count in ("rollback", 0), ("commit", 30):
                db = driver.connect(host=self.server.dir, dbname=self.database, user=SUPERUSER)
                rows, plain = db.cursor("rows"), db.cursor()
                rows.itersize = 7
                rows.execute("SELECT id FROM orders")
                for order, in rows:
                    plain.execute("SELECT pawl.enqueue('ship', key => %s)",
                                  ("%s-%d" % (driver.__name__, order),))
                getattr(db, end)()
                db.close()
                self.assertEqual(self.one("SELECT count(*) FROM pawl.jobs WHERE key LIKE '%s-%%'"
                                          % driver.__name__), str(count))

    def node(self, lines):
        self.need(NodePgSession)
        program = textwrap.dedent("""
            const { Pool } = require(%s + '/pg');
            const pool = new Pool({ host: %s, database: %s, user: %s, max: 3 });
            async function take() {
            %s}
            async function main() {
            %s
            }
            main().then(() => pool.end(), (e) => { console.log(String(e)); process.exit(1); });
            """) % (*map(json.dumps, (os.environ["PAWL_NODE_PG"], self.server.dir, self.database,
                                      SUPERUSER)), block("js"), lines)
        done = subprocess.run([node_command(), "-e", program], env=clean_env(), timeout=60 * SLOW,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        self.assertEqual(done.returncode, 0, done.stdout.decode())
        return [json.loads(line) for line in done.stdout.decode().splitlines()]

    def test_node_postgres(self):
        """Goal: the page's lines store both or neither, and leave the pool usable."""
        said = self.node("""
            console.log(JSON.stringify(await take()));
            for (let i = 0; i < 9; i++) {           // more often than the pool has clients
              try {
                await take();
              } catch (error) {
                console.log(JSON.stringify(error.code));
              }
            }
            """)
        self.assertIs(said[0]["created"], True)
        self.assertEqual(said[1:], ["23505"] * 9)
        self.assertEqual(self.stored(), [["9", said[0]["id"], '{"order":9}']])

    def test_a_commit_after_an_error_is_none(self):
        """Goal: what the page warns of."""
        said = self.node("""
            const client = await pool.connect();
            await client.query('BEGIN');
            await client.query("SELECT pawl.enqueue('t', key => 'k')");
            await client.query("SELECT pawl.enqueue('t', '[1]', key => 'k')").catch(() => 0);
            console.log(JSON.stringify((await client.query('COMMIT')).command));
            client.release();
            """)
        self.assertEqual(said, ["ROLLBACK"])
        self.assertEqual(self.jobs(), [])
