# SPDX-License-Identifier: Apache-2.0
"""libpq.py - PostgreSQL for the tests by way of the libpq that the command itself is linked with.

No package for Python is needed. connect(url).execute(sql, values) answers as sqlite3's does: rows
are tuples of Python values, `?` is a parameter. A refusal raises Refused, which has the SQLSTATE.
"""
import ctypes
import ctypes.util
import re

OK, EMPTY, COMMAND, TUPLES = 0, 0, 1, 2
BOOL, BYTEA, FLOATS, INTS, NUMERIC = 16, 17, (700, 701), (20, 21, 23, 26), 1700
_lib = None


class Refused(Exception):
    """The server said no. state: its SQLSTATE; None: the connection is gone."""

    def __init__(self, text, state=None):
        super().__init__(text)
        self.state = state


def lib():
    global _lib
    if _lib is None:
        _lib = ctypes.CDLL(ctypes.util.find_library("pq") or "libpq.so.5")
        pointer, text, number = ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int
        for name, result, words in (
                ("PQconnectdb", pointer, [text]), ("PQstatus", number, [pointer]),
                ("PQfinish", None, [pointer]), ("PQerrorMessage", text, [pointer]),
                ("PQexecParams", pointer, [pointer, text, number, pointer, pointer, pointer,
                                           pointer, number]),
                ("PQexec", pointer, [pointer, text]),
                ("PQresultStatus", number, [pointer]), ("PQclear", None, [pointer]),
                ("PQresultErrorField", text, [pointer, number]),
                ("PQresultErrorMessage", text, [pointer]), ("PQcmdTuples", text, [pointer]),
                ("PQntuples", number, [pointer]), ("PQnfields", number, [pointer]),
                ("PQfname", text, [pointer, number]),
                ("PQftype", ctypes.c_uint, [pointer, number]),
                ("PQgetisnull", number, [pointer, number, number]),
                ("PQgetlength", number, [pointer, number, number]),
                ("PQgetvalue", pointer, [pointer, number, number]),
                ("PQbackendPID", number, [pointer]), ("PQconsumeInput", number, [pointer]),
                ("PQnotifies", pointer, [pointer]), ("PQfreemem", None, [pointer])):
            function = getattr(_lib, name)
            function.restype, function.argtypes = result, words
    return _lib


def numbered(sql):
    """Each ? outside of quotes as $1, $2 ..."""
    n = 0
    pieces = re.split(r"('(?:[^']|'')*'|\"[^\"]*\")", sql)
    for i in range(0, len(pieces), 2):
        for _ in range(pieces[i].count("?")):
            n += 1
            pieces[i] = pieces[i].replace("?", "$%d" % n, 1)
    return "".join(pieces)


def as_value(kind, text):
    if kind == BOOL:
        return text == b"t"
    if kind in INTS:
        return int(text)
    if kind in FLOATS:
        return float(text)
    if kind == NUMERIC:
        return float(text) if b"." in text else int(text)
    if kind == BYTEA:
        return bytes.fromhex(text[2:].decode())
    return text.decode("utf-8", "surrogateescape")


def as_text(value):
    if value is None or isinstance(value, bytes):
        return value
    if isinstance(value, bool):
        return b"true" if value else b"false"
    return str(value).encode("utf-8", "surrogateescape")


class Rows:
    """What a statement came to: rows, names of the columns, how many it touched."""

    def __init__(self, result):
        p = lib()
        columns = range(p.PQnfields(result))
        kinds = [p.PQftype(result, c) for c in columns]
        self.names = [p.PQfname(result, c).decode() for c in columns]
        self.rowcount = int(p.PQcmdTuples(result) or -1)
        self._rows = []
        for r in range(p.PQntuples(result)):
            self._rows.append(tuple(
                None if p.PQgetisnull(result, r, c) else
                as_value(kinds[c], ctypes.string_at(p.PQgetvalue(result, r, c),
                                                    p.PQgetlength(result, r, c)))
                for c in columns))

    def fetchall(self):
        rows, self._rows = self._rows, []
        return rows

    def fetchone(self):
        return self._rows.pop(0) if self._rows else None

    def __iter__(self):
        return iter(self._rows)


class Connection:
    def __init__(self, url):
        self.c = lib().PQconnectdb(url.encode())
        if lib().PQstatus(self.c) != OK:
            text = lib().PQerrorMessage(self.c).decode("utf-8", "replace")
            self.close()
            raise Refused(text)
        self.execute("SET client_min_messages = error")
        self.pid = lib().PQbackendPID(self.c)

    def execute(self, sql, values=()):
        """Without values it may be several statements; the rows are those of the last."""
        p = lib()
        if values:
            texts = [as_text(v) for v in values]
            n = len(texts)
            array = (ctypes.c_char_p * n)(*texts)
            lengths = (ctypes.c_int * n)(*[len(t or b"") for t in texts])
            # What holds a NUL has no other form in which it could reach the server.
            forms = (ctypes.c_int * n)(*[int(b"\0" in (t or b"")) for t in texts])
            result = p.PQexecParams(self.c, numbered(sql).encode(), n, None, array, lengths, forms,
                                    0)
        else:
            result = p.PQexec(self.c, sql.encode("utf-8", "surrogateescape"))
        try:
            if p.PQresultStatus(result) not in (EMPTY, COMMAND, TUPLES):
                state = p.PQresultErrorField(result, ord("C"))
                text = p.PQresultErrorMessage(result) or p.PQerrorMessage(self.c)
                raise Refused(text.decode("utf-8", "replace"), state and state.decode())
            return Rows(result)
        finally:
            p.PQclear(result)

    def notified(self):
        """How many notifications have come since it was asked last."""
        n, p = 0, lib()
        p.PQconsumeInput(self.c)
        while True:
            one = p.PQnotifies(self.c)
            if not one:
                return n
            p.PQfreemem(one)
            n += 1

    def close(self):
        if self.c:
            lib().PQfinish(self.c)
            self.c = None


def connect(url):
    return Connection(url)
