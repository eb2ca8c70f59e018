# SPDX-License-Identifier: Apache-2.0
"""The pages against the product: what they print is what the binary does."""
import os
import re
import shutil
import sqlite3
import subprocess

import pgkit
from ckit import CC, compile_plugin
from pawltest import PAWL, ROOT, SLOW, PawlTest
from stores import sqlite_alone

TIMEOUT = 120


def page(name):
    with open(os.path.join(ROOT, name), encoding="utf-8") as f:
        return f.read()


def blocks(text, lang=""):
    return [b for tag, b in re.findall(r"```(\w*)\n(.*?)```", text, re.S) if tag == lang]


@sqlite_alone
class Docs(PawlTest):
    make_store = False
    check_at_end = False

    def test_lifecycle_page_is_the_table_of_the_code(self):
        self.assertIn(self.ok("debug", "lifecycle").strip(), blocks(page("doc/lifecycle.md"))[0])

    def test_lifecycle_states_are_the_tables_of_the_schema(self):
        self.ok("init")
        db = sqlite3.connect(self.db)
        tables = {r[0][7:] for r in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'"
                                               " AND name LIKE 'pawl_x_%'")}
        sql = dict(db.execute("SELECT name, sql FROM sqlite_master WHERE type = 'table'"))
        db.close()
        states = {w for line in self.ok("debug", "lifecycle").splitlines()[1:]
                  for w in (line.split()[0], line.split()[2])} - {"pruned"}
        self.assertLessEqual(states, tables)
        listed = re.search(r"class +TEXT.*?CHECK \(class IN \((.*?)\)\)", sql["pawl_x_dead"], re.S)
        classes = set(re.findall(r"'(\w+)'", listed.group(1)))
        table = page("doc/lifecycle.md").split("## Classes")[1]
        written = set(re.findall(r"^\| ([a-z_, ]+) \| ", table, re.M))
        written = {c for row in written for c in row.split(", ")} - {"class"}
        self.assertEqual(classes, written)

    def test_every_column_of_a_view_is_described(self):
        self.ok("init")
        db = sqlite3.connect(self.db)
        text = page("doc/schema.md")
        for view in ("pawl_jobs", "pawl_attempts", "pawl_queues", "pawl_tasks", "pawl_last",
                     "pawl_enqueue"):
            for column in (d[0] for d in db.execute(f"SELECT * FROM {view} LIMIT 0").description):
                self.assertRegex(text, r"\b%s\b" % column, f"{view}.{column}")
        db.close()

    def test_config_examples_are_accepted(self):
        examples = [b for name in ("doc/config.md", "README.md") for b in blocks(page(name), "ini")]
        for i, text in enumerate(examples):
            for name in re.findall(r"@(\S+\.sql)", text):
                os.makedirs(os.path.join(self.dir, os.path.dirname(name)), exist_ok=True)
                with open(os.path.join(self.dir, name), "w") as f:
                    f.write("SELECT 1")
            path = self.conf(text, f"example{i}.conf")
            self.ok("conf", "check", "-c", path)

    def test_manual_of_the_configuration_has_the_keys_of_its_page(self):
        rows = re.findall(r"^\| (`[a-z][\w.` ,]*) \|.*\|.*\|.*\|$", page("doc/config.md"),
                          re.M)
        described = {key for row in rows for key in re.findall(r"`([\w.]+)`", row)}
        listed = {key for row in re.findall(r"^\.It Cm (.*)$", page("man/pawl.conf.5"), re.M)
                  for key in row.split(" , ")}
        self.assertGreater(len(described), 20, described)
        self.assertEqual(listed, described)

    def test_example_of_the_manual_is_accepted(self):
        text = re.search(r"\.Bd -literal\n(.*?)\.Ed", page("man/pawl.conf.5"), re.S).group(1)
        handlers = re.findall(r"c = \./shop\.so:(\w+)", text)
        self.assertEqual(len(handlers), 2)
        if not shutil.which(CC):
            self.skipTest("no C compiler")
        compile_plugin(self.dir, "shop", "#include <pawl.h>\n"
                       "static enum pawl_outcome f(struct pawl_run *r)"
                       " { (void)r; return PAWL_DONE; }\n"
                       + "".join("PAWL_HANDLER(%s, NULL, f, NULL);\n" % h for h in handlers))
        self.ok("conf", "check", "-c", self.conf(text))

    def test_links_and_named_tests_exist(self):
        names = ["README.md", "CONTRIBUTING.md", "example/README.md"]
        names += ["doc/" + n for n in sorted(os.listdir(os.path.join(ROOT, "doc")))
                  if n.endswith(".md")]
        for name in names:
            text, here = page(name), os.path.dirname(os.path.join(ROOT, name))
            for link in re.findall(r"\]\(([^)#:]+)\)", text):
                self.assertTrue(os.path.exists(os.path.join(here, link)), f"{name}: {link}")
            for path in re.findall(r"\b((?:test|doc|src|sql/sqlite|tool|demo|example)/"
                                   r"[\w./-]+\.(?:c|h|py|md|sql))\b", text):
                if "NAME" in path or "NNNN" in path:
                    continue                                # a pattern
                self.assertTrue(os.path.exists(os.path.join(ROOT, path)), f"{name}: {path}")

    def test_every_page_is_reachable_from_readme(self):
        readme, manual = page("README.md"), page("man/pawl.1")
        for name in os.listdir(os.path.join(ROOT, "doc")):
            if name.endswith(".md"):
                self.assertIn(f"(doc/{name})", readme)
        self.assertIn("doc/exec.md", manual)
        self.assertIn("(exec.md)", page("doc/config.md"))

    def test_readme_tutorial_does_what_it_says(self):
        text = page("README.md").split("## Five minutes")[1].split("\n## ")[0]
        env = {k: v for k, v in os.environ.items() if not k.startswith("PAWL_")}
        env["PATH"] = os.path.dirname(PAWL) + ":" + env["PATH"]
        out = {}
        for lang, body in re.findall(r"```(\w+)\n(.*?)```", text, re.S):
            name = "pawl.conf" if lang == "ini" else "notify.sh" if body.startswith("#!") else None
            if name:
                with open(os.path.join(self.dir, name), "w") as f:
                    f.write(body)
                continue
            for line in self.commands(body):
                done = subprocess.run(["sh", "-c", line], cwd=self.dir, env=env, timeout=90,
                                      capture_output=True, text=True)
                out.setdefault(line.split("  #")[0].strip(), []).append(done)
        said = {k: [d.stdout.strip() for d in v] for k, v in out.items()}
        self.assertEqual(said["sqlite3 shop.db 'SELECT * FROM product'"], ["mug|900|1\ntea|300|2"])
        self.assertIn("3|1", [d for v in said.values() for d in v])
        again = ("pawl enqueue set_price '{\"sku\":\"tea\",\"price\":300,\"version\":2}'"
                 " --key price-2")
        self.assertIn("duplicate", "".join(d.stderr for d in out[again]))
        self.assertIn("exhausted", said["pawl job 3"][0])
        self.assertIn("partner is down", said["pawl job 3"][0])
        first, second = out["pawl dead replay 3"]
        self.assertEqual((first.returncode, second.returncode), (0, 1))
        self.assertIn("4", second.stdout + second.stderr)
        self.assertEqual(out["pawl check"][0].returncode, 0)
        with open(os.path.join(self.dir, "notified.txt")) as f:
            self.assertEqual(len(f.readlines()), 5)
        for v in out.values():
            for d in v:
                self.assertIn(d.returncode, (0, 1), d.stderr)

    def test_readme_on_postgres_does_what_it_says(self):
        """Goal: the section for more than one machine, with a server of ours for that of
        `./run postgres` (test_pgserver.py), and the files of the five minutes."""
        server = pgkit.cluster()
        readme = page("README.md")
        five = readme.split("## Five minutes")[1].split("\n## ")[0]
        for name, start in ("pawl.conf", "[pawl]"), ("notify.sh", "#!"):
            [body] = [b for _, b in re.findall(r"```(\w+)\n(.*?)```", five, re.S)
                      if b.startswith(start)]
            with open(os.path.join(self.dir, name), "w", encoding="utf-8") as f:
                f.write(body)
        os.chmod(os.path.join(self.dir, "notify.sh"), 0o755)
        env = dict(pgkit.clean_env(), PAWL_DB=server.url(server.new_database()),
                   PATH=os.path.dirname(PAWL) + ":" + os.environ["PATH"], PAWL_RUNTIME_DIR=self.dir)
        said = {}
        section = readme.split("## When one machine is not enough")[1].split("\n## ")[0]
        for line in (c for b in blocks(section, "sh") for c in self.commands(b)):
            done = subprocess.run(["sh", "-c", line], cwd=self.dir, env=env, timeout=60 * SLOW,
                                  capture_output=True, text=True)
            self.assertEqual(done.returncode, 0, (line, done.stderr))
            said[line] = done.stdout.strip()
        [[transaction, answer]] = [i for i in said.items() if "pawl.enqueue" in i[0]]
        self.assertRegex(answer, r"^\d+\|t$")
        self.assertIn("mug|900|1\ntea|300|2", said.values())
        with open(os.path.join(self.dir, "notified.txt"), encoding="utf-8") as f:
            self.assertEqual(len(f.readlines()), 1)

    @staticmethod
    def commands(body):
        """Commands of a block: one a line, but a quoted text or a <<'SQL' may run over several."""
        at, found = "", []
        for line in body.splitlines():
            at += line + "\n"
            if "<<'SQL'" in at and line != "SQL":
                continue
            if at.count('"') % 2 == 0 and at.count("'") % 2 == 0 and at.strip():
                found.append(at.strip())
                at = ""
        return found
