#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""test_cli_frame.py - verbs, options, help, choice of the store, output: what all verbs share."""
import os
import re
import shutil
import sqlite3
import subprocess
import unittest

from pawltest import PAWL, ROOT, PawlTest, strict
from stores import each_store, no_store, sqlite_alone

VERBS = ("init enqueue work run conf apply jobs job dead cancel run-now pause resume queues stats "
         "check doctor prune copy debug completion help").split()
LEAVES = [(v,) for v in VERBS if v not in ("dead", "debug", "conf", "completion")] + [
    ("dead", "list"), ("dead", "show"), ("dead", "replay"), ("dead", "discard"), ("dead", "export"),
    ("debug", "lifecycle"), ("debug", "limits"), ("debug", "errors"), ("debug", "failpoints"),
    ("debug", "policy"), ("conf", "check"), ("completion", "bash"), ("completion", "zsh"),
    ("completion", "fish")]
COMMON = {"db", "json", "config", "help"}


@sqlite_alone
class Frame(PawlTest):
    make_store = False

    def options(self, leaf):
        """Names of the options in a verb's own help."""
        page = self.ok(*leaf, "--help")
        return set(re.findall(r"^  (?:-\w, )?--([a-z-]+)", page, re.M))

    def test_every_verb_has_help_with_an_example(self):
        for leaf in LEAVES:
            with self.subTest(verb=leaf):
                page = self.ok(*leaf, "--help")
                self.assertTrue(page.startswith("usage: pawl " + " ".join(leaf)), page)
                self.assertRegex(page, r"\nexamples?:\n  \S")
                self.assertTrue(COMMON <= self.options(leaf), page)
                self.assertEqual(page, self.ok("help", *leaf))
                self.assertEqual(page, self.ok("--help", *leaf))
                for line in page.splitlines():
                    self.assertLessEqual(len(line), 110, line)

    def test_general_help_names_every_verb_and_no_hidden_one(self):
        page = self.ok("--help")
        self.assertEqual(re.findall(r"^  ([a-z_][a-z_-]*) +\S", page, re.M), VERBS)
        self.assertNotIn("__runner", page)
        self.assertEqual(page, self.ok("help"))

    def test_version(self):
        self.assertRegex(self.ok("--version"), r"^pawl \d+\.\d+\.\d+ \(\S+\), SQLite 3\.\S+ "
                         r"\((bundled|the system's)\), libpq \d+\.\d+\n$")

    def test_no_verb_is_usage(self):
        self.fails(64, says="say what to do")

    def test_unknown_verb_names_the_nearest(self):
        self.fails(64, "enqeue", says="nearest is 'enqueue'")
        self.fails(64, "dead", "lst", says="nearest is 'list'")
        line = self.fails(64, "xyzzy", says="unknown verb 'xyzzy'")
        self.assertNotIn("nearest", line)
        self.fails(64, "__runne", says="^((?!__runner).)*$")

    def test_words_of_later_versions_are_not_guessed_at(self):
        for verb in "top", "why", "guarantee", "torture", "serve":
            line = self.fails(64, verb, says="not in this version")
            self.assertNotIn("nearest", line)
        for option in "--serial", "--watch", "--unless-waiting":
            line = self.fails(64, "enqueue", "t", option, "x", says="not in this version")
            self.assertNotIn("nearest", line)

    def test_unknown_option_names_the_nearest(self):
        self.fails(64, "enqueue", "t", "--kye", "1",
                   says="unknown option --kye; the nearest is --key")
        self.fails(64, "jobs", "--stat", "1", says="nearest is --state")   # no abbreviations
        self.fails(64, "jobs", "-x", says="unknown option -x")
        self.fails(64, "--stat", "jobs", says="unknown option")

    def test_options_are_checked(self):
        self.fails(64, "jobs", "--task", says="--task needs a value")
        self.fails(64, "dead", "list", "--replayed=yes", says="takes no value")
        self.fails(64, "jobs", "--task", "a", "--task", "b", says="given twice")
        self.fails(64, "jobs", "--db", "a.db", "--db", "b.db", says="given twice")
        self.fails(64, "jobs", "extra", says="unexpected operand 'extra'")
        self.fails(64, "cancel", says="needs ID")
        self.fails(64, "enqueue", "t", "-5", says="put -- before")

    def test_common_options_anywhere(self):
        other = "sqlite:" + os.path.join(self.dir, "other.db")
        self.ok("--db", other, "init")
        for words in (["--json", "--db", other, "stats"], ["stats", "--db=" + other, "--json"],
                      ["--json", "stats", "--db", other]):
            out = self.ok(*words)
            self.assertIsInstance(strict(out), dict)
        self.ok("--db", other, "dead", "--json", "list")
        self.ok("dead", "--db", other, "list")

    def test_only_init_creates_a_store(self):
        for leaf in (["jobs"], ["job", "1"], ["enqueue", "t"], ["cancel", "1"], ["run-now", "1"],
                     ["pause", "q"], ["resume", "q"], ["queues"], ["stats"], ["check"], ["prune"],
                     ["dead", "list"], ["dead", "show", "1"], ["dead", "replay", "1"],
                     ["dead", "discard", "1", "--reason", "r"], ["dead", "export"]):
            with self.subTest(verb=leaf):
                self.fails(69, *leaf, says="no store at .*shop.db; run pawl init")
        self.assertEqual(os.listdir(self.dir), [])
        self.fails(69, "jobs", "--db", "sqlite:x.db", says="run pawl init --db sqlite:x.db$")

    def test_order_of_the_ways_to_name_a_store(self):
        def store(*words, **env):
            full = self.env(**env)
            if "PAWL_DB" not in env:
                del full["PAWL_DB"]
            return strict(self.ok("init", "--json", *words, env=full))["store"]
        conf = self.conf("[pawl]\ndb = sqlite:conf.db\n")
        away = os.path.join(self.dir, "away")
        os.mkdir(away)
        with open(os.path.join(away, "other.conf"), "w") as f:
            f.write("[pawl]\ndb = sqlite:other.db\n")
        self.assertEqual(store("--db", "sqlite:option.db", PAWL_DB="sqlite:env.db"),
                         "sqlite:option.db")
        self.assertEqual(store("--db", "plain.db"), "plain.db")
        self.assertEqual(store(PAWL_DB="sqlite:env.db"), "sqlite:env.db")
        self.assertEqual(store(PAWL_DB=""), store())
        self.assertIn("conf.db", store())                       # ./pawl.conf
        self.assertIn("away/other.db", store("-c", "away/other.conf"))
        self.assertIn("away/other.db", store("--config=away/other.conf"))
        os.unlink(conf)
        self.assertEqual(store(), "sqlite:pawl.db")
        for name in "option.db", "plain.db", "env.db", "conf.db", "away/other.db", "pawl.db":
            self.assertTrue(os.path.exists(os.path.join(self.dir, name)), name)

    def test_stores_that_cannot_be(self):
        for url in ("postgresql://u:secret@127.0.0.1:1/d",
                    "postgres://127.0.0.1:1/d?password=secret"):
            done = self.pawl("jobs", "--db", url)
            self.assertEqual(done.code, 74, done)
            self.assertIn("cannot connect to PostgreSQL", done.err)
            self.assertNotIn("secret", done.err)
        self.fails(64, "jobs", "--db", "mysql:x", says="not a store; give sqlite:PATH")
        self.fails(64, "jobs", "--db", "sqlite:", says="not a store")
        self.fails(78, "jobs", "-c", "nowhere.conf", env={**self.env(), "PAWL_DB": ""},
                   says="nowhere.conf: no such configuration")
        bad = self.conf("[pawl]\ndbb = sqlite:x.db\n", "bad.conf")
        self.fails(78, "jobs", "-c", bad, env={**self.env(), "PAWL_DB": ""},
                   says="bad.conf:2: .*db")

    def test_errors_stay_on_stderr_with_json(self):
        done = self.pawl("--json", "jobs")
        self.assertEqual((done.code, done.out), (69, ""))
        self.assertEqual(len(done.err.splitlines()), 1)


@sqlite_alone
class Store(PawlTest):
    make_store = check_at_end = False

    def test_unknown_scheme_makes_no_file(self):
        for url in "mysql:foo.db", "sqlit:x.db", "file:x.db":
            self.fails(64, "init", "--db", url, says="unknown scheme .*give sqlite:PATH")
        self.assertEqual(os.listdir(self.dir), [])

    def test_init_says_whether_the_database_was_there(self):
        sqlite3.connect("file:%s/own.db" % self.dir, uri=True).execute("CREATE TABLE a(b)")
        self.assertEqual(self.ok("init", "--db", "own.db"), "added Pawl's tables to own.db\n")
        self.assertEqual(self.ok("init", "--db", "own.db"), "the store is ready: own.db\n")
        self.assertEqual(self.ok("init", "--db", "new.db"), "created the store new.db\n")


@each_store
class Output(PawlTest):
    def test_full_disk_is_noticed(self):
        with open("/dev/full", "wb") as full:
            for words in (["--help"], ["stats"], ["enqueue", "t"], ["debug", "limits"]):
                done = self.pawl(*words, stdout=full)
                self.assertEqual(done.code, 74, done)
                self.assertIn("No space left", done.err)
                self.assertEqual("the job is stored, as job 1" in done.err,
                                 words[0] == "enqueue", done)

    def test_closed_pipe_is_an_exit_code_and_no_noise(self):
        for _ in range(3):
            self.enqueue("t", '{"pad":"%s"}' % ("x" * 100000))
        read, write = os.pipe()
        os.close(read)
        with os.fdopen(write, "wb") as out:
            done = self.pawl("jobs", "--json", stdout=out)
        self.assertEqual(done.code, 74, done)
        self.assertEqual(done.err, "")

    def test_closed_descriptors_never_reach_the_store(self):
        """Goal: with 0, 1 and 2 closed at the start, no message gets into the database file."""
        self.enqueue("t")
        done = subprocess.run(["sh", "-c", 'exec "$0" jobs --db "$1" >&- 2>&- <&-', PAWL,
                               self.store.url], cwd=self.dir, env=self.env())
        self.assertEqual(done.returncode, 74)
        done = subprocess.run(["sh", "-c", 'exec "$0" nonsense --db "$1" 2>&- <&-', PAWL,
                               self.store.url], cwd=self.dir, env=self.env(),
                              stdout=subprocess.PIPE)
        self.assertEqual(done.returncode, 64)
        if self.store.can("file"):
            self.assertEqual(self.sql("PRAGMA integrity_check"), [("ok",)])

    def test_no_colour_off_a_terminal(self):
        self.enqueue("t")
        for words in (["jobs"], ["job", "1"], ["queues"], ["stats"], ["check"]):
            self.assertNotIn("\033", self.ok(*words))

    def test_colour_and_table_on_a_terminal(self):
        """Goal: a terminal gets a heading and colour, unless NO_COLOR is set."""
        self.enqueue("t")
        for no_color, expected in ("", True), ("1", False):
            master, slave = os.openpty()
            env = self.env(TERM="xterm", **({"NO_COLOR": no_color} if no_color else {}))
            done = subprocess.run([PAWL, "jobs"], stdout=slave, stderr=subprocess.PIPE, env=env,
                                  cwd=self.dir)
            os.close(slave)
            out = os.read(master, 65536)
            os.close(master)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertIn(b"STATE", out)
            self.assertEqual(b"\033[" in out, expected, out)

    def test_text_of_the_store_cannot_command_the_terminal(self):
        """Goal: escapes, C1 codes and direction marks in args and keys come out as text."""
        evil = "\x1b]0;owned\x07\x1b[2J\x9b31m\u202eabc"
        args = '{"x":"%s"}' % evil.replace("\x1b", "\\u001b").replace("\x07", "\\u0007")
        job, _ = self.store.enqueue(self.connect(), "t", args, key="k\u202e\x9b")
        for words in (["jobs"], ["job", job]):
            out = self.pawl(*words).out_bytes.decode("utf-8")
            for bad in "\x1b", "\x07", "\x9b", "\u202e":
                self.assertNotIn(bad, out)
        self.assertEqual(self.job(job)["key"], "k\u202e\x9b")
        self.fails(65, "enqueue", "t\x1b[2J", says=r"^[^\x1b]*$")
        self.fails(64, "\x1b[2J", says=r"^[^\x1b]*$")


@no_store
class Manual(PawlTest):
    """The table of verbs, the manual page and the completions say the same."""
    make_store = False

    def manual(self):
        with open(os.path.join(ROOT, "man", "pawl.1"), encoding="utf-8") as f:
            return f.read()

    def options(self, leaf):
        page = self.ok(*leaf, "--help").split("\noptions of every verb:")[0]
        return re.findall(r"^  (?:-(\w), )?--([a-z-]+)( \S+)?", page, re.M)

    def test_manual_mentions_every_verb_and_option(self):
        """Goal: each verb has its item in the manual, and below it, up to the next, its options."""
        text = self.manual()
        items = re.split(r"^\.It Cm (?=[a-z])", text, flags=re.M)[1:]
        sections = {}
        for item in items:
            head, _, body = item.partition("\n")
            words = re.match(r"([a-z-]+)(?: Cm ([a-z-]+))?", head)
            sections.setdefault(tuple(w for w in words.groups() if w), head + "\n" + body)
        self.assertTrue(set(LEAVES) <= set(sections), set(LEAVES) - set(sections))
        for leaf in LEAVES:
            for _, name, _ in self.options(leaf):
                self.assertRegex(sections[leaf].replace("\\-", "-"), r"Fl -%s\b" % re.escape(name),
                                 (leaf, name))
        for name in COMMON | {"version"}:
            self.assertRegex(text.replace("\\-", "-"), r"Fl -%s\b" % name)

    def test_manual_mentions_every_exit_code_variable_and_limit(self):
        text = self.manual()
        codes = {line["exit"] for line in self.json("debug", "errors")}
        for code in codes:
            self.assertRegex(text, r"(?m)^\.It %d$" % code)
        for name in "PAWL_DB", "PAWL_FAILPOINT", "NO_COLOR":
            self.assertIn(".It Ev " + name, text)
        for limit in self.json("debug", "limits"):
            self.assertRegex(text, r"(?m)^\.It Li %s$" % limit["name"])

    def test_manual_is_clean(self):
        if not shutil.which("mandoc"):
            self.skipTest("mandoc is not installed")
        done = subprocess.run(["mandoc", "-T", "lint", "-W", "warning",
                               os.path.join(ROOT, "man", "pawl.1")], stdout=subprocess.PIPE)
        self.assertEqual(done.stdout.decode(), "")

    def test_limits_are_the_headers(self):
        with open(os.path.join(ROOT, "src", "core", "limits.h"), encoding="utf-8") as f:
            names = re.findall(r"^#define LIMIT_(\w+) (.*?)(?: */\*.*)?$", f.read(), re.M)
        printed = {line["name"]: line["value"] for line in self.json("debug", "limits")}
        for name, value in names:
            number = eval(value.replace("LL", ""), {})          # only digits, *, + and brackets
            self.assertEqual(printed.pop(name.lower()), number, name)
        self.assertEqual(printed, {})

    def test_completions_know_every_verb_and_option(self):
        for shell in "bash", "zsh", "fish":
            text = self.ok("completion", shell)
            for leaf in LEAVES:
                for word in leaf:
                    self.assertIn(word, text)
                for _, name, _ in self.options(leaf):
                    self.assertIn("-l " + name if shell == "fish" else "--" + name, text)
            self.assertNotIn("__runner", text)
            if shutil.which(shell):
                done = subprocess.run([shell, "-n"], input=text.encode(), stderr=subprocess.PIPE)
                self.assertEqual((done.returncode, done.stderr), (0, b""))

    def completed(self, *words):
        """What bash offers after these words."""
        if not shutil.which("bash"):
            self.skipTest("bash is not installed")
        script = self.ok("completion", "bash") + (
            'COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _pawl; printf "%s\\n" "${COMPREPLY[@]}"\n')
        path = self.script("try.sh", script)
        done = subprocess.run(["bash", path, "pawl", *words], stdout=subprocess.PIPE, check=True)
        return done.stdout.decode().split()

    def test_bash_completes(self):
        self.assertEqual(self.completed("enq"), ["enqueue"])
        self.assertEqual(self.completed("dead", "re"), ["replay"])
        self.assertEqual(self.completed("--db", "dead", "enqueue", "--ma"), ["--max-retries"])
        self.assertEqual(self.completed("dead", "replay", "7", "--dr"), ["--dry-run"])
        self.assertEqual(self.completed("jobs", "--js"), ["--json"])


if __name__ == "__main__":
    unittest.main()
