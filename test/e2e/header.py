# SPDX-License-Identifier: Apache-2.0
"""header.py - what include/pawl.h declares, read without a compiler, for tests that compare it with
the library and the manual."""
import os
import re

from pawltest import ROOT

HEADER = os.path.join(ROOT, "include", "pawl.h")


def words(text):
    """Text with its blanks made equal."""
    return " ".join(re.sub(r"([(),;*{}])", r" \1 ", text).split())


def code():
    """The header without comments and without lines for the preprocessor."""
    with open(HEADER, encoding="utf-8") as f:
        text = re.sub(r"/\*.*?\*/", "", f.read(), flags=re.S)
    return re.sub(r"^[ \t]*#(?:[^\n\\]|\\\n|\\.)*\n", "\n", text, flags=re.M)


def calls():
    """name -> "type (args)" of every function that the library exports."""
    found = {}
    for m in re.finditer(r"\bPAWL_CALL\s+(\w+)\(([^;]*?)\)\s*;", code(), re.S):
        found[m.group(1)] = words("enum pawl_rc (%s)" % m.group(2))
    for m in re.finditer(r"\bPAWL_API\s+(?!PAWL_MUST_USE)((?:const )?[\w ]+?[ *]+)(\w+)"
                         r"\(([^;]*?)\)\s*;", code(), re.S):
        found[m.group(2)] = words("%s (%s)" % (m.group(1), m.group(3)))
    return found


def inlines():
    """The same for every function that is in the header itself."""
    found = {}
    for m in re.finditer(r"\bstatic (?:inline )?(?:PAWL_MUST_USE )?((?:enum |struct |const )*\w+ "
                         r"\**)(pawl_\w+)\(([^{;]*?)\)\s*\{", code(), re.S):
        found[m.group(2)] = words("%s (%s)" % (m.group(1), m.group(3)))
    return found


def types():
    """Names of function types."""
    return set(re.findall(r"^typedef [^;]*?\b(pawl_\w+_fn)\(", code(), re.M))


def members(body):
    return [words(s) for s in body.split(";") if s.strip()]


def structs(text=None):
    """name -> members of every struct that is laid open."""
    text = code() if text is None else text
    found = {m.group(1): members(m.group(2)) for m in
             re.finditer(r"^struct (pawl_\w+) \{ *\n(.*?)^\};$", text, re.M | re.S)}
    found.update((m.group(1), members(m.group(2))) for m in
                 re.finditer(r"^struct (pawl_\w+) \{([^\n]+)\};$", text, re.M))
    return found
