# SPDX-License-Identifier: Apache-2.0
"""screen.py - what the person at the demo sees: plain lines, and one line that rewrites itself.

On a terminal the progress line is rewritten a few times a second; elsewhere it is printed every
few seconds. Colours only on a terminal; characters that its encoding lacks are replaced."""
import shutil
import sys


class Screen:
    """Lines, titles, findings, and the progress line."""

    def __init__(self):
        self.tty = sys.stdout.isatty()
        self.utf8 = "utf" in (sys.stdout.encoding or "").lower()
        self.live, self.last = 0, 0.0

    def paint(self, code, text):
        return "\033[%sm%s\033[0m" % (code, text) if self.tty else text

    def write(self, text):
        if not self.utf8:
            text = text.replace("…", "...")
        print(text.encode(sys.stdout.encoding or "ascii", "replace").decode(
            sys.stdout.encoding or "ascii"), flush=True)

    def line(self, text=""):
        if self.live:
            sys.stdout.write("\r\033[K")
            self.live = 0
        self.write(text)

    def title(self, text):
        self.line()
        self.line(self.paint("1", text))

    def progress(self, now, text):
        if self.tty:
            if now - self.last >= 0.15:
                width = shutil.get_terminal_size().columns - 1
                sys.stdout.write("\r\033[K" + text[:width])
                sys.stdout.flush()
                self.live, self.last = 1, now
        elif now - self.last >= 4:
            self.write(text)
            self.last = now

    def finding(self, ok, text):
        if ok is None:
            self.line("          " + text)
        else:
            self.line("  %s  %s" % (self.paint("32", "ok  ") if ok else self.paint("31;1", "FAIL"),
                                    text))
