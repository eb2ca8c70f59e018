# SPDX-License-Identifier: Apache-2.0
"""pgproxy.py - a proxy that counts the messages of PostgreSQL, and cuts the connection at one.

Proxy(path) listens on a port of the loopback and hands every connection on to the server's Unix
socket. It reads the framing (type and length) in both directions; each message is shown to rule(m),
if there is one, before it is handed on. What rule answers:

    None      hand it on
    "before"  close both ends, the message is lost
    "after"   hand it on, then close both ends
    "stall"   hand nothing on any more, in neither direction, and close nothing

A Message knows n (the number among all since the proxy began), conn and k (the connection, and the
number in it), to_server, and what it is in words, with the statement that it belongs to: "Query
COMMIT", "Execute: SELECT 1", "ReadyForQuery: COMMIT".
down() refuses new connections and cuts those that are there; up() undoes that. Encryption is
refused, as a server without it does.
"""
import asyncio
import collections
import socket
import struct
import threading

Message = collections.namedtuple("Message", "n conn k to_server what")

SSL, GSS, CANCEL = 80877103, 80877104, 80877102
FRONT = {b"Q": "Query", b"P": "Parse", b"B": "Bind", b"E": "Execute", b"D": "Describe",
         b"S": "Sync", b"X": "Terminate", b"C": "Close", b"H": "Flush", b"p": "Password"}
BACK = {b"C": "CommandComplete", b"Z": "ReadyForQuery", b"T": "RowDescription", b"D": "DataRow",
        b"1": "ParseComplete", b"2": "BindComplete", b"E": "ErrorResponse", b"n": "NoData",
        b"N": "NoticeResponse", b"S": "ParameterStatus", b"K": "BackendKeyData", b"R": "Auth",
        b"A": "Notification", b"I": "EmptyQuery", b"s": "PortalSuspended", b"3": "CloseComplete"}


class Link:
    """One connection: the two ends, what was prepared on it, how many messages went through."""

    def __init__(self, conn):
        self.conn, self.k, self.names, self.stalled, self.writers = conn, 0, {}, False, []
        self.statement = ""
        self.over, self.answered = False, asyncio.Event()  # cut behind a message to the server

    def words(self, to_server, kind, body):
        name = (FRONT if to_server else BACK).get(kind, kind.decode("latin-1"))
        parts = body.split(b"\0") if kind in (b"Q", b"P", b"B", b"C") else []
        if to_server and kind == b"P":
            self.names[parts[0]] = parts[1].decode("utf-8", "replace")
        if to_server and kind in (b"Q", b"P", b"B"):
            self.statement = (self.names.get(parts[kind == b"B"], "?") if kind != b"Q" else
                              parts[0].decode("utf-8", "replace"))
        if kind == b"C" and not to_server:
            name += " " + parts[0].decode("utf-8", "replace").split(" ")[0]
        return "%s: %s" % (name, self.statement)

    def cut(self):
        for w in self.writers:
            w.transport.abort()


class Proxy:
    def __init__(self, path, rule=None):
        self.path, self.rule, self.n, self.conns, self.links = path, rule, 0, 0, set()
        self.loop, self.server, self.port = asyncio.new_event_loop(), None, None
        started = threading.Event()
        self.thread = threading.Thread(target=self.run, args=(started,), daemon=True)
        self.thread.start()
        started.wait()

    def run(self, started):
        asyncio.set_event_loop(self.loop)
        self.loop.run_until_complete(self.listen())
        started.set()
        self.loop.run_forever()
        for task in asyncio.all_tasks(self.loop):
            task.cancel()
        self.loop.run_until_complete(asyncio.sleep(0))
        self.loop.run_until_complete(self.loop.shutdown_asyncgens())
        self.loop.close()

    async def listen(self):
        sock = socket.socket()
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind(("127.0.0.1", self.port or 0))
        self.port = sock.getsockname()[1]
        self.server = await asyncio.start_server(self.serve, sock=sock)

    def call(self, coroutine):
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop).result(10)

    def url(self, database, user, more=""):
        return "postgresql://%s@127.0.0.1:%d/%s?sslmode=disable%s" % (
            user, self.port, database, more)

    async def _down(self):
        if self.server is not None:
            self.server.close()
            self.server = None
        for link in list(self.links):
            link.cut()

    def down(self):
        self.call(self._down())

    def up(self):
        self.call(self.listen())

    def close(self):
        self.call(self._down())
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join(10)

    # --- inside the loop ---

    async def serve(self, reader, writer):
        link = Link(self.conns)
        self.conns += 1
        self.links.add(link)
        link.writers.append(writer)
        writer.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            first = await self.startup(reader, writer)
            if first is None:
                return
            up_reader, up_writer = await asyncio.open_unix_connection(self.path)
            link.writers.append(up_writer)
            if not await self.show(link, True, "Startup: ", first, up_writer):
                return
            await asyncio.wait([asyncio.ensure_future(self.pump(link, True, reader, up_writer)),
                                asyncio.ensure_future(self.pump(link, False, up_reader, writer))],
                               return_when=asyncio.FIRST_COMPLETED)
        except (OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass                                # cancelled: the proxy is closed
        finally:
            for w in link.writers:
                w.close()
            self.links.discard(link)

    async def startup(self, reader, writer):
        while True:
            head = await reader.readexactly(8)
            size, code = struct.unpack("!II", head)
            body = await reader.readexactly(size - 8)
            if code in (SSL, GSS):
                writer.write(b"N")
            elif code == CANCEL:
                _, up = await asyncio.open_unix_connection(self.path)
                up.write(head + body)
                up.close()
                return None
            else:
                return head + body

    async def pump(self, link, to_server, reader, writer):
        try:
            while True:
                head = await reader.readexactly(5)
                body = await reader.readexactly(struct.unpack("!I", head[1:])[0] - 4)
                what = link.words(to_server, head[:1], body)
                if not await self.show(link, to_server, what, head + body, writer):
                    return
        except (OSError, asyncio.IncompleteReadError):
            pass
        if not to_server:
            link.answered.set()

    async def show(self, link, to_server, what, data, writer):
        """Hand one message on, as the rule says; False: this connection is over."""
        if link.over:
            return True                         # an answer that nobody gets any more
        m = Message(self.n, link.conn, link.k, to_server, what)
        self.n += 1
        link.k += 1
        act = self.rule(m) if self.rule else None
        if act == "stall":
            link.stalled = True
        while link.stalled:
            await asyncio.sleep(3600)           # until the proxy is closed
        if act == "before":
            link.cut()
            return False
        writer.write(data)
        await writer.drain()
        if act == "after" and to_server:
            # The server has to find it, and the end behind it: a socket that is closed while
            # answers lie in it unread takes what was sent before with it.
            link.over = True
            link.writers[0].close()
            writer.write_eof()
            await link.answered.wait()
            return False
        if act == "after":
            for w in link.writers:
                w.close()                       # what was written still goes out
            return False
        return True
