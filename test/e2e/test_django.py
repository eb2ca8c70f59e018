# SPDX-License-Identifier: Apache-2.0
"""test_django.py - doc/django.md: its code as it stands there, in a project made of it, on both
engines; and what Django's transactions do to the jobs that are enqueued in them.

Without Django (tool/thirdparty python fetches it) the tests are skipped, and say so."""
import json
import os
import re
import subprocess
import sys
import textwrap
import unittest

import pgkit
from pawltest import PAWL, ROOT, SLOW, PawlTest
from stores import postgres_alone, sqlite_alone

try:
    import django
except ImportError:
    django = None

TIMEOUT = 150

SETTINGS = """
from pathlib import Path
BASE_DIR = Path(__file__).parent
SECRET_KEY = "for tests"
INSTALLED_APPS = ["shop"]
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
USE_TZ = True
"""
MANAGE = """
import os, sys
os.environ["DJANGO_SETTINGS_MODULE"] = "settings"
from django.core.management import execute_from_command_line
execute_from_command_line(sys.argv)
"""
# What runs in the project, with the page's helper. check(): these jobs are there, for everybody.
SCENARIO = """
import datetime, json, os, subprocess, sys
os.environ["DJANGO_SETTINGS_MODULE"] = "settings"
import django
django.setup()
from django.db import DatabaseError, close_old_connections, connection, transaction
from shop.jobs import enqueue, store
from shop.models import Order, place_order

env = dict(os.environ, PAWL_DB=store())
seen = 0
def jobs():
    done = subprocess.run(["pawl", "jobs", "--json"], env=env, stdout=subprocess.PIPE, check=True)
    found = [json.loads(line) for line in done.stdout.splitlines()]
    return sorted((int(j["id"]), j.get("key")) for j in found if int(j["id"]) > seen)
def begin():                    # from here on, only what is new
    global seen
    seen = max([i for i, _ in jobs()], default=seen)
    Order.objects.all().delete()
def keys():
    return [key for _, key in jobs()]
def same(got, want):
    assert got == want, "got %r, expected %r" % (got, want)
"""

TRANSACTIONS = """
begin()
with transaction.atomic():
    order, job = place_order(1)
    same(keys(), [])
same(jobs(), [(job, "order-%d" % order.pk)])
try:
    with transaction.atomic():
        place_order(2)
        raise ZeroDivisionError
except ZeroDivisionError:
    pass
same((len(jobs()), Order.objects.count()), (1, 1))
with transaction.atomic():
    enqueue("t", {}, key="outer")
    try:
        with transaction.atomic():
            enqueue("t", {}, key="inner")
            raise ZeroDivisionError
    except ZeroDivisionError:
        pass
    first = enqueue("t", {}, key="again")
    same(enqueue("t", {}, key="again"), (first[0], False))
    for wrong in ({"key": "again", "args": {"other": 1}}, {"key": "x", "priority": 101}):
        try:
            enqueue("t", wrong.pop("args", {}), **wrong)
            raise AssertionError(wrong)
        except DatabaseError as error:
            assert "pawl: " in str(error), error
same(keys()[1:], ["outer", "again"])
"""
OTHER_WAYS = """
begin()
when = datetime.datetime(2040, 1, 2, 3, 4, 5, 678901, datetime.timezone.utc)
enqueue("t", {}, key="at once", run_at=when)        # autocommit
same(keys(), ["at once"])
told = json.loads(subprocess.check_output(["pawl", "job", str(jobs()[0][0]), "--json"], env=env))
same(told["run_at"], "2040-01-02T03:04:05.678901Z")
transaction.set_autocommit(False)
enqueue("t", {}, key="lost")
same(keys(), ["at once"])
transaction.rollback()
enqueue("t", {}, key="kept")
transaction.commit()
transaction.set_autocommit(True)
same(keys(), ["at once", "kept"])

for amount in 1, 2, 3:
    Order.objects.create(amount=amount)
with transaction.atomic():
    for order in Order.objects.order_by("pk").iterator(chunk_size=1):
        enqueue("t", {}, key="row-%d" % order.amount)
same(keys()[2:], ["row-1", "row-2", "row-3"])

raw = connection.connection
try:
    with transaction.atomic():
        enqueue("t", {}, key="request 1")
        raise ZeroDivisionError
except ZeroDivisionError:
    pass
close_old_connections()                             # the end of a request
enqueue("t", {}, key="request 2")
assert connection.connection is raw or connection.settings_dict["CONN_MAX_AGE"] == 0
same(keys()[5:], ["request 2"])
"""
ON_COMMIT = """
begin()
def fail():
    raise ZeroDivisionError
try:
    with transaction.atomic():
        Order.objects.create(amount=1)
        transaction.on_commit(fail)
        transaction.on_commit(lambda: enqueue("t", {}, key="by on_commit"))
except ZeroDivisionError:
    pass
same((Order.objects.count(), keys()), (1, []))
try:
    with transaction.atomic():
        place_order(2)
        transaction.on_commit(fail)
except ZeroDivisionError:
    pass
same((Order.objects.count(), len(keys())), (2, 1))
"""


def page():
    with open(os.path.join(ROOT, "doc", "django.md"), encoding="utf-8") as f:
        return f.read()


class Project:
    """A Django project out of the page's blocks. url: where the jobs are."""
    engine = None
    make_store, check_at_end = False, False

    def setUp(self):
        if django is None:
            self.skipTest("Python has no Django (tool/thirdparty python fetches it)")
        super().setUp()
        self.bin = os.path.join(self.dir, "bin")
        os.mkdir(self.bin)
        os.symlink(PAWL, os.path.join(self.bin, "pawl"))
        settings = SETTINGS
        for lang, body in re.findall(r"```(\w+)\n(.*?)```", page(), re.S):
            name = re.match(r"# (\S+\.py)(, \w+)?\n", body)
            if lang == "ini":
                self.write("pawl.conf", body)
            elif name and name[1] == "settings.py":
                settings += body if name[2] == ", " + self.engine else ""
            elif name:
                self.write(name[1], body)
        self.write("settings.py", settings + self.more_settings())
        self.write("manage.py", MANAGE)
        self.write("shop/__init__.py", "")
        self.write("shop/migrations/__init__.py", "")
        self.python("-c", SCENARIO.split("from django.db")[0] + textwrap.dedent("""
            from django.core.management import call_command
            call_command("makemigrations", "shop", verbosity=0)
            call_command("migrate", verbosity=0)
            """))

    def more_settings(self):
        return ""

    def write(self, name, text):
        path = os.path.join(self.dir, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w", encoding="utf-8") as f:
            f.write(text)

    def python(self, *words, code=0):
        env = dict(pgkit.clean_env(), PATH=self.bin + ":" + os.environ["PATH"],
                   PYTHONPATH=os.environ.get("PAWL_PYTHON_DIR", ""), PAWL_RUNTIME_DIR=self.dir,
                   PYTHONDONTWRITEBYTECODE="1")
        done = subprocess.run([sys.executable, *words], cwd=self.dir, env=env, timeout=60 * SLOW,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        self.assertEqual(done.returncode, code, done.stdout.decode("utf-8", "replace"))
        return done.stdout.decode("utf-8")

    def manage(self, *words):
        return self.python("manage.py", *words)

    def scenario(self, text):
        self.python("-c", SCENARIO + textwrap.dedent(text))

    def test_the_page_runs(self):
        """Goal: the page's own tests pass: migrate makes both kinds of tables, also in the database
        of the tests, TestCase and TransactionTestCase do what is said; its worker line works."""
        said = self.manage("test", "--noinput", "shop")
        self.assertRegex(said, r"Ran 2 tests in [\d.]+s\n\nOK")
        self.scenario("place_order(5)")
        line = re.search(r"```sh\n(.*?)```", page(), re.S)[1].strip() + " --until-empty"
        env = dict(pgkit.clean_env(), PAWL_RUNTIME_DIR=self.dir,
                   PATH=self.bin + ":" + os.path.dirname(sys.executable) + ":" + os.environ["PATH"],
                   PYTHONPATH=os.environ.get("PAWL_PYTHON_DIR", ""))
        done = subprocess.run(["sh", "-c", line], cwd=self.dir, env=env, timeout=60 * SLOW,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        self.assertEqual(done.returncode, 0, done.stdout)
        self.scenario("same([o.status for o in Order.objects.all()], ['paid'])")

    def test_a_job_goes_with_its_transaction(self):
        """Goal: visible at commit, never at rollback; a nested atomic() takes only its own jobs
        with it; the id is there inside; a duplicate and a refusal leave the transaction alone.
        Also with autocommit, autocommit off, an iterator of the server's cursor, a connection
        that outlives requests, an aware datetime. And the page's reason: enqueued by on_commit,
        a job is lost when a callback fails; enqueued in the transaction, it is not."""
        self.scenario(TRANSACTIONS + OTHER_WAYS + ON_COMMIT)


@sqlite_alone
class OnSqlite(Project, PawlTest):
    engine = "SQLite"


@postgres_alone
class OnPostgres(Project, PawlTest):
    engine = "PostgreSQL"

    def more_settings(self):
        server = pgkit.cluster()
        return "DATABASES['default'].update(NAME=%r, HOST=%r, USER=%r)\n" % (
            server.new_database(), server.dir, pgkit.SUPERUSER)

    def test_psycopg2_too(self):
        """Goal: Django takes psycopg 3 where it is there; the same door with psycopg2."""
        if pgkit.psycopg2 is None:
            self.skipTest("Python has no psycopg2 (tool/thirdparty python fetches it)")
        self.write("psycopg/__init__.py", "raise ImportError('hidden by the test')")
        self.scenario("""
            from django.db.backends.postgresql.psycopg_any import is_psycopg3
            assert not is_psycopg3
            with transaction.atomic():
                order, job = place_order(1)
                same(keys(), [])
            same(jobs(), [(job, "order-%d" % order.pk)])
            """)


class Wording(unittest.TestCase):
    def test_the_helper_is_shown_whole_and_short(self):
        text = re.search(r"```python\n# shop/jobs\.py\n(.*?)def store", page(), re.S)[1]
        self.assertLessEqual(len([s for s in text.splitlines() if s.strip()]), 20)
        json.dumps(text)


if __name__ == "__main__":
    unittest.main()
