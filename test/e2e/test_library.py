#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""test_library.py - libpawl as a stranger meets it: what it exports, what the manual says of it,
and that what was installed compiles, links and runs, in C17 and in C++17."""
import json
import os
import re
import shutil
import subprocess
import tempfile
import unittest

import header
from pawltest import PAWL, ROOT, SLOW

TIMEOUT = 180
BOTH_LINKS = True
BUILD = os.environ.get("PAWL_BUILD_DIR", os.path.dirname(PAWL))
MAN = os.path.join(ROOT, "man")
STRICT = ["-Wall", "-Wextra", "-Wpedantic", "-Wshadow", "-Wconversion", "-Werror"]


def run(*words, **more):
    return subprocess.run(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, timeout=120 * SLOW, **more)


def option(name):
    """How the build was configured."""
    with open(os.path.join(BUILD, "meson-info", "intro-buildoptions.json"), encoding="utf-8") as f:
        return [o["value"] for o in json.load(f) if o["name"] == name][0]


def sanitizer():
    which = option("b_sanitize")
    return [] if which == "none" else ["-fsanitize=" + which]


def compilers():
    """(command that begins a line, name of the source's language) of each that is here."""
    found = []
    for name in ("gcc", "clang"):
        if shutil.which(name):
            found.append(([name, "-std=c17"], "c"))
    for name in ("g++", "clang++"):
        if shutil.which(name):
            found.append(([name, "-std=c++17"], "c++"))
    return found


class Library(unittest.TestCase):
    def ok(self, *words, **more):
        done = run(*words, **more)
        self.assertEqual(done.returncode, 0, "%s\n%s" % (" ".join(words), done.stdout))
        return done.stdout

    def names(self, path, *how):
        """Names that are defined for others, without those of a sanitizer."""
        lines = self.ok("nm", *how, "--defined-only", path).splitlines()
        rows = [line.split() for line in lines if len(line.split()) == 3]
        return {r[2] for r in rows if r[1].isupper() and not r[2].startswith("__")}


@unittest.skipUnless(os.path.exists(os.path.join(BUILD, "libpawl.a")), "there is no libpawl here")
class Symbols(Library):
    def test_static_library_defines_the_calls_of_the_header_and_nothing_else(self):
        """Goal: no name of ours can clash with one of the program that links it."""
        self.assertEqual(self.names(os.path.join(BUILD, "libpawl.a")), set(header.calls()))

    def test_shared_library_exports_the_calls_of_the_header_and_nothing_else(self):
        path = os.path.join(BUILD, "libpawl.so")
        self.assertEqual(self.names(path, "-D"), set(header.calls()))
        dynamic = self.ok("readelf", "-d", path)
        self.assertIn("[libpawl.so.0]", dynamic)
        self.assertIn("[libsqlite3.so.0]", dynamic)
        self.assertEqual(os.path.basename(os.path.realpath(path)), "libpawl.so.0.1.0")

    def test_libraries_carry_no_sqlite(self):
        for name in ("libpawl.a", "libpawl.so"):
            all_names = self.ok("nm", os.path.join(BUILD, name))
            self.assertNotRegex(all_names, r" [TtDdBbRr] sqlite3_open\b", name)
            self.assertRegex(all_names, r" U sqlite3_open", name)
            self.assertNotRegex(all_names, r" [TtDdBbRrVv] pawl_sqlite3_bundled", name)


class Pages(unittest.TestCase):
    @staticmethod
    def pages():
        found = {}
        for name in sorted(os.listdir(MAN)):
            if name.endswith(".3"):
                with open(os.path.join(MAN, name), encoding="utf-8") as f:
                    found[name] = f.read()
        return found

    @staticmethod
    def prototypes(text):
        """name -> "type (args)" of a page's synopsis."""
        found = {}
        for m in re.finditer(r'^\.Ft (.+)\n\.Fo (\w+)\n((?:\.Fa .+\n)+)\.Fc$', text, re.M):
            args = ", ".join(a.strip('"') for a in re.findall(r"^\.Fa (.+)$", m.group(3), re.M))
            found[m.group(2)] = header.words("%s (%s)" % (m.group(1).strip('"'), args))
        return found

    @staticmethod
    def named(text):
        """The calls that the NAME section names."""
        head = text.split("\n.Nd ")[0]
        return set(re.findall(r"^\.Nm (pawl_\w+)", head, re.M))

    def test_each_call_has_its_prototype_in_one_page_and_each_prototype_is_a_call(self):
        ours = dict(header.calls(), **header.inlines())
        self.assertGreater(len(ours), 60)
        seen = {}
        for name, text in self.pages().items():
            for call, prototype in self.prototypes(text).items():
                self.assertNotIn(call, seen, "%s and %s" % (name, seen.get(call)))
                seen[call] = name
                self.assertEqual(prototype, ours.get(call), "%s in %s" % (call, name))
            self.assertEqual(self.named(text), set(self.prototypes(text)), name)
        self.assertEqual(set(seen), set(ours))

    def test_each_struct_is_shown_as_it_is(self):
        shown = {}
        for name, text in self.pages().items():
            for body in re.findall(r"^\.Bd -literal\n(struct pawl_\w+ \{.*?)^\.Ed", text,
                                   re.M | re.S):
                shown.update(header.structs(body))
        ours = header.structs()
        ours.pop("pawl_api")                     # the inside of the calls
        self.assertEqual(set(shown), set(ours))
        for name in ours:
            self.assertEqual(shown[name], ours[name], name)

    def test_each_type_of_a_callback_is_named(self):
        text = "".join(self.pages().values())
        for name in header.types() | {"pawl_api", "PAWL_HANDLER", "PAWL_ABI"}:
            self.assertRegex(text, r"(?m)^\.\w+ (typedef )?%s\b|\b%s\b" % (name, name))

    def test_error_table_is_that_of_the_code(self):
        page = self.pages()["libpawl.3"]
        said = run(PAWL, "debug", "errors")
        self.assertEqual(said.returncode, 0)
        self.assertIn("\n.Bd -literal\n%s.Ed\n" % said.stdout, page)
        names = re.findall(r"^(\w+) ", said.stdout, re.M)
        in_header = re.findall(r"^\s+PAWL_(\w+)(?: = 0)?,", header.code().split("enum pawl_rc {")[1]
                               .split("PAWL_RC_N")[0], re.M)
        self.assertEqual(names, in_header)

    def test_each_call_is_found_by_man(self):
        links = dict(line.split() for line in
                     run(os.path.join(ROOT, "tool", "manlinks"), "--list").stdout.splitlines())
        pages = self.pages()
        for call in list(header.calls()) + list(header.inlines()):
            page = links.get(call, call + ".3")
            self.assertIn(call, self.named(pages[page]), page)
        for text in pages.values():              # and each cross reference leads somewhere
            for ref in re.findall(r"\.Xr (pawl_\w+|libpawl) 3", text):
                self.assertTrue(ref + ".3" in pages or ref in links, ref)

    def test_formatters_have_nothing_to_say(self):
        tools = {"groff": ["groff", "-ww", "-z", "-Tutf8", "-mdoc"],
                 "mandoc": ["mandoc", "-T", "lint", "-W", "warning"]}
        here = [words for tool, words in tools.items() if shutil.which(tool)]
        if not here:
            self.skipTest("neither groff nor mandoc is here")
        for words in here:
            for name in self.pages():
                said = run(*words, os.path.join(MAN, name)).stdout
                said = [s for s in said.splitlines() if "mandoc.db" not in s]
                self.assertEqual(said, [], words[0])


@unittest.skipUnless(os.path.exists(os.path.join(BUILD, "libpawl.so")), "there is no libpawl.so")
class Installed(Library):
    """Installed into a directory of its own, and used from there by pkg-config."""

    def setUp(self):
        self.dir = tempfile.mkdtemp(prefix="pawl-inst-")
        self.addCleanup(shutil.rmtree, self.dir, True)
        tree = os.path.join(self.dir, "root")
        self.ok("meson", "install", "-C", BUILD, "--no-rebuild", "--quiet", "--destdir", tree)
        self.prefix = tree + option("prefix")
        self.lib = os.path.join(self.prefix, option("libdir"))
        self.env = dict(os.environ, PKG_CONFIG_PATH=os.path.join(self.lib, "pkgconfig"))
        self.define = "--define-variable=prefix=" + self.prefix

    def flags(self, *what):
        return self.ok("pkg-config", self.define, *what, "pawl", env=self.env).split()

    def test_everything_is_there(self):
        share = os.path.join(self.prefix, option("mandir"))
        for path in (os.path.join(self.prefix, "bin/pawl"), os.path.join(self.lib, "libpawl.a"),
                     os.path.join(self.lib, "libpawl.so"), os.path.join(self.lib, "libpawl.so.0"),
                     os.path.join(self.prefix, "include/pawl.h"), share + "/man1/pawl.1",
                     share + "/man3/libpawl.3", share + "/man3/pawl_enqueue_sqlite.3"):
            self.assertTrue(os.path.isfile(path), path)
        with open(share + "/man3/pawl_enqueue_sqlite.3", encoding="ascii") as f:
            self.assertEqual(f.read(), ".so man3/pawl_enqueue.3\n")
        self.assertEqual(self.ok("pkg-config", "--print-requires", "pawl", env=self.env).split(),
                         ["sqlite3", ">=", "3.40"])
        self.assertEqual(self.flags("--modversion"), ["0.1.0"])
        if shutil.which("man"):
            page = self.ok("man", "-M", share, "3", "pawl_enqueue_sqlite",
                           env=dict(self.env, MANPAGER="cat", MANWIDTH="80"))
            self.assertIn("PAWL_KEYCLASH", page)

    def build(self, command, language, source, how, *more):
        """Compile a source against what was installed; returns the program."""
        out = os.path.join(self.dir, "program")
        words = command + STRICT + sanitizer() + ["-x", language, source, "-x", "none", "-o", out]
        words += self.flags("--cflags")
        if how == "shared":
            words += self.flags("--libs") + ["-Wl,-rpath," + self.lib]
        else:
            words += [os.path.join(self.lib, "libpawl.a"), "-lsqlite3", "-lpq", "-lpthread"]
        self.ok(*words, *more)
        loaded = self.ok("ldd", out)
        self.assertEqual("libpawl.so.0" in loaded, how == "shared")
        self.assertEqual(loaded.count("libsqlite3.so.0 =>"), 1, "one copy of SQLite, the system's")
        return out

    def expected(self, name):
        """The lines that example NAME's program prints, from its transcript."""
        with open(os.path.join(ROOT, "example", name, "expected"), encoding="utf-8") as f:
            return f.read().split("$ ./%s\n" % name)[1].split("\n$ ")[0].rstrip("\n")

    def use(self, language):
        here = [(c, lang) for c, lang in compilers() if lang == language]
        if not here:
            self.skipTest({"c": "neither gcc nor clang", "c++": "neither g++ nor clang++"}[language]
                          + " is here: the examples were not compiled as " + language.upper())
        for command, lang in here:
            for how in ("shared", "static"):
                for name in ("linked-worker", "test-handlers"):
                    source = os.path.join(ROOT, "example", name, name + ".c")
                    program = self.build(command, lang, source, how)
                    place = tempfile.mkdtemp(dir=self.dir)
                    done = run(program, cwd=place)
                    self.assertEqual((done.returncode, done.stdout.rstrip("\n")),
                                     (0, self.expected(name)), "%s %s %s" % (command, how, name))

    def test_examples_compile_and_run_in_c17(self):
        self.use("c")

    def test_examples_compile_and_run_in_cxx17(self):
        self.use("c++")

    def test_program_on_its_own_pgconn_compiles_in_both(self):
        """Goal: the header's forward declaration is libpq's type, and there is one libpq."""
        source = os.path.join(ROOT, "example", "linked-pg", "linked-pg.c")
        flags = run("pkg-config", "--cflags", "--libs", "libpq").stdout.split()
        for command, language in compilers():
            for how in "shared", "static":
                program = self.build(command, language, source, how, *flags)
                self.assertEqual(self.ok("ldd", program).count("libpq.so.5 =>"), 1)

    def test_program_may_have_names_like_ours(self):
        """Goal: a program may define what is ours inside: buf_put, store_open, log_line."""
        source = os.path.join(self.dir, "clash.c")
        with open(source, "w", encoding="ascii") as f:
            f.write("#include <pawl.h>\n#include <sqlite3.h>\n" + "".join(
                "int %s(void);\nint %s(void)\n{\n    return 1;\n}\n" % (n, n)
                for n in ("buf_puts", "store_open", "log_line", "json_check")) + """
int main(void)
{
    struct pawl_request r = {0};
    struct pawl_enqueued got;
    struct pawl_error e;
    struct pawl *p = NULL;
    char which[80];

    r.task = "t";
    if (pawl_init("sqlite:c.db", NULL, &e) != PAWL_OK) return 2;
    if (pawl_open("sqlite:c.db", &p, &e) != PAWL_OK) return 3;
    if (pawl_enqueue(p, &r, 1, &got, NULL, &e) != PAWL_OK || got.id != 1) return 4;
    pawl_close(&p);
    pawl_engine(which, sizeof which);
    printf("%s, %d\\n", which, buf_puts() + store_open() + log_line());
    return strstr(which, sqlite3_libversion()) == NULL;
}
""")
        for how in ("shared", "static"):
            program = self.build(["cc", "-std=c17"], "c", source, how)
            done = run(program, cwd=tempfile.mkdtemp(dir=self.dir))
            self.assertEqual(done.returncode, 0, done.stdout)
            self.assertRegex(done.stdout, r"^SQLite 3\.\S+ \(the system's\), libpq \d+\.\d+, 3\n$")


class Written(Library):
    """The C that the pages show compiles without a warning."""

    PRELUDE = """#include <assert.h>
#include <libpq-fe.h>
#include <poll.h>
#include <pawl.h>
#include <signal.h>
#include <sqlite3.h>
#include <stdlib.h>

"""

    def compile(self, text, *more):
        with tempfile.TemporaryDirectory() as tmp:
            source, out = os.path.join(tmp, "page.c"), os.path.join(tmp, "page")
            with open(source, "w", encoding="utf-8") as f:
                f.write(text)
            include = ["-I" + os.path.join(ROOT, "include")]
            include += run("pkg-config", "--cflags", "sqlite3", "libpq").stdout.split()
            self.ok(os.environ.get("CC", "cc"), "-std=c17", "-D_GNU_SOURCE", *STRICT, *include,
                    source, "-o", out, *more)
            return run(out, cwd=tmp) if "-c" not in more else None

    @staticmethod
    def blocks(page):
        with open(os.path.join(ROOT, page), encoding="utf-8") as f:
            return re.findall(r"^```c\n(.*?)^```", f.read(), re.M | re.S)

    def test_embedding_page_compiles_and_its_test_passes(self):
        if not os.path.exists(os.path.join(BUILD, "libpawl.so")):
            self.skipTest("there is no libpawl.so")
        blocks = self.blocks("doc/embedding.md")
        self.assertGreater(len(blocks), 5)
        main = """
int main(int argc, char **argv)
{
    (void)argv;
    if (argc > 99) return work() + take_order(NULL, 0, 0) + (turn(NULL, NULL, 0), 0);
    if (argc > 98) return take_pg_order(NULL, 0, 0);
    test_charge_is_tried_again();
    return 0;
}
"""
        done = self.compile(self.PRELUDE + "\n".join(blocks) + main, *sanitizer(),
                            os.path.join(BUILD, "libpawl.a"), "-lsqlite3", "-lpq",
                            "-lpthread")
        self.assertEqual((done.returncode, done.stdout), (0, ""))

    def test_readme_compiles(self):
        blocks = self.blocks("README.md")
        self.assertGreater(len(blocks), 0)
        self.compile(self.PRELUDE + "\n".join(blocks), "-c", "-Wno-unused-function")

    def test_examples_of_the_manual_compile(self):
        """Each stands in a function, but for those that define one."""
        n = 0
        for name, text in Pages.pages().items():
            examples = text.split(".Sh EXAMPLES")[1:] or [""]
            for block in re.findall(r"^\.Bd -literal\n(.*?)^\.Ed", examples[0].split("\n.Sh ")[0],
                                    re.M | re.S):
                block = block.replace("\\e", "\\")
                functions = ""
                if block.startswith("static"):
                    functions, _, block = block.rpartition("\n}\n")
                    functions += "\n}\n"
                macros = "".join(re.findall(r"^PAWL_HANDLER.*;$", block, re.M))
                block = block.replace(macros, "") if macros else block
                body = "\n".join("    " + line for line in block.splitlines())
                self.compile("%s%s\n%s\nextern const struct pawl_handler charge_handler;\n"
                             "void page(%s);\nvoid page(%s)\n{\n%s\n}\n" % (
                                 self.PRELUDE, functions, macros, *[self.around(block)] * 2, body),
                             "-c", "-Wno-unused-function", "-Wno-unused-parameter",
                             "-Wno-unused-but-set-variable", "-Wno-unused-variable",
                             "-Wno-shadow")
                n += 1
        self.assertGreater(n, 4)

    @staticmethod
    def around(block):
        """What a piece of a function needs around it: what it does not declare itself."""
        given = {"p": "struct pawl *p", "w": "struct pawl_worker *w", "db": "sqlite3 *db",
                 "pg": "PGconn *pg",
                 "e": "struct pawl_error e", "r": "struct pawl_request r",
                 "got": "struct pawl_enqueued got", "task": "struct pawl_task task"}
        return ", ".join(d for n, d in given.items()
                         if not re.search(r"^struct pawl\w* \*?%s\b|^sqlite3 \*%s\b" % (n, n),
                                          block, re.M))


if __name__ == "__main__":
    unittest.main()
