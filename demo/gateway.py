#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""gateway.py - a payment gateway that behaves as badly as real ones do, on the loopback.

What      POST /charge with a JSON body {"order":…,"amount":…,"card":…} and an Idempotency-Key.
Misdeeds  503 before charging; no answer at all until the caller gives up; charging and then
          closing the connection without a word; charging and answering far too late.
Keeps     its own books, apart from anybody's database: LEDGER gets one JSON line per charge,
          written before any answer; REQUESTS one line per request and what became of it.
          One key is charged at most once, however often and however concurrently it is asked.
          Without a key nothing can be told apart, so every request is a new charge.
Bounded   at most MAX_TROUBLE misdeeds for one key (one order, without a key), so that a caller
          with a finite number of retries gets through; which ones is a matter of the seed.
Usage     gateway.py --ledger FILE --requests FILE [--seed N] [--hang SECONDS]
          prints "port N" on stdout once it listens; ends on SIGTERM or when stdin closes.
"""
import argparse
import http.server
import json
import random
import socket
import sys
import threading

MAX_TROUBLE = 4
#          what                 share of the requests that are not replays
MISDEEDS = (("503", 0.16), ("hang", 0.05), ("charged_lost", 0.13), ("charged_late", 0.03))
# A key that was charged already gets its answer again; but even that may meet an outage.
REPLAY_503 = 0.10


class Gateway:
    """The books and the moods. One lock: a decision and its line in the books are one step."""

    def __init__(self, ledger, requests, seed, hang):
        self.ledger = open(ledger, "a", encoding="utf-8")
        self.requests = open(requests, "a", encoding="utf-8")
        self.random = random.Random(seed)
        self.hang = hang
        self.lock = threading.Lock()
        self.answers = {}   # key -> (fingerprint, answer): what was charged
        self.trouble = {}   # key or order -> misdeeds so far
        self.charges = 0

    def note(self, file, **facts):
        file.write(json.dumps(facts) + "\n")
        file.flush()

    def mood(self, who, moods):
        """Pick a misdeed or None; never more than MAX_TROUBLE for one customer of ours."""
        dice = self.random.random()
        if self.trouble.get(who, 0) >= MAX_TROUBLE:
            return None
        for what, share in moods:
            if dice < share:
                self.trouble[who] = self.trouble.get(who, 0) + 1
                return what
            dice -= share
        return None

    def charge(self, key, body):
        """Decide one request: (what happened, HTTP status, answer). Books are written here."""
        order, amount, card = body["order"], body["amount"], body["card"]
        print_ = json.dumps(body, sort_keys=True)
        who = key or "order %s" % order
        with self.lock:
            status, answer = 503, {"error": "try again later"}
            if key in self.answers:
                known, old = self.answers[key]
                what = self.mood(who, (("503", REPLAY_503),)) or "replayed"
                if known != print_:
                    what, status, answer = "mismatch", 422, {"error": "key used before with "
                                                             "another request"}
                elif what == "replayed":
                    status, answer = 200, old
            elif card.startswith("declined"):
                what, status = "declined", 402
                answer = {"error": "card declined: %s" % card.partition(":")[2]}
            else:
                what = self.mood(who, MISDEEDS) or "charged"
                if what.startswith("charged"):
                    self.charges += 1
                    answer = {"order": order, "amount": amount, "charge": "ch_%06d" % self.charges}
                    status = 201
                    self.note(self.ledger, key=key, **answer)
                    if key:
                        self.answers[key] = (print_, answer)
            self.note(self.requests, key=key, order=order, did=what)
        return what, status, answer


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    gateway = None      # set by serve()

    def do_POST(self):
        self.close_connection = True
        try:
            length = int(self.headers.get("Content-Length", "0"))
            body = json.loads(self.rfile.read(length))
            what, status, answer = self.gateway.charge(self.headers.get("Idempotency-Key"), body)
        except (KeyError, TypeError, AttributeError, ValueError) as bad:
            what, status, answer = "bad", 400, {"error": "bad request: %r" % bad}
        if what in ("hang", "charged_late"):
            # Outlast the caller's patience; recv returns at once when it hangs up.
            self.connection.settimeout(self.gateway.hang)
            try:
                self.connection.recv(1)
            except OSError:
                pass
        if what in ("hang", "charged_lost"):
            self.connection.shutdown(socket.SHUT_RDWR)
            return
        text = json.dumps(answer, separators=(",", ":")).encode()
        try:
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(text)))
            self.send_header("Connection", "close")
            self.end_headers()
            self.wfile.write(text)
        except OSError:
            pass            # the caller was killed, or gave up: its loss is not ours

    def log_message(self, *args):
        pass                # REQUESTS is the log


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def handle_error(self, request, client_address):
        if not isinstance(sys.exc_info()[1], OSError):  # callers die here by the dozen
            super().handle_error(request, client_address)


def serve(ledger, requests, seed=1, hang=3.0):
    """Listen on a port the kernel picks; returns the server (call serve_forever on it)."""
    handler = type("BoundHandler", (Handler,),
                   {"gateway": Gateway(ledger, requests, seed, hang)})
    return Server(("127.0.0.1", 0), handler)


def main():
    ap = argparse.ArgumentParser(description="a payment gateway that misbehaves, for the demo")
    ap.add_argument("--ledger", required=True)
    ap.add_argument("--requests", required=True)
    ap.add_argument("--seed", type=int, default=1)
    ap.add_argument("--hang", type=float, default=3.0, metavar="SECONDS")
    args = ap.parse_args()
    server = serve(args.ledger, args.requests, args.seed, args.hang)
    print("port %d" % server.server_address[1], flush=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        while sys.stdin.buffer.read(1):     # the parent's death closes it: no stray gateways
            pass
    except KeyboardInterrupt:
        pass
    return 0


if __name__ == "__main__":
    sys.exit(main())
