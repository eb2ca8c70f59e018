#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""pgserver.py - a private PostgreSQL: for who tries Pawl, for the demo, and for the tests.

    pgserver.py COMMAND...   start a server, run COMMAND with it, remove the server and its files;
                             exits as COMMAND did

COMMAND finds the server by $PAWL_DB, and psql by the PG... variables; its database is `shop`.

Server()  starts one in a temporary directory: a Unix socket only, everybody trusted, UTF-8, no port
          of the network. Which programs: $PAWL_PG_BIN (a directory), else those of
          `pg_config --bindir`, else the newest below /usr/lib/postgresql. They refuse to be root:
          then they run as the account postgres, or nobody, and the directory is theirs.
Missing   is raised, with the reason in one line, where there is no server to be had.
within=   the directory to make it in, instead of $TMPDIR.
Durable   or not: a server that is not does not wait for the disk (fsync = off). What it committed
          survives the death of its processes, but not of the machine.
"""
import glob
import os
import pwd
import re
import shutil
import signal
import subprocess
import sys
import tempfile

SUPERUSER = "owner"


class Missing(Exception):
    """No server can be had here, and why."""


class Failed(Exception):
    """A program of PostgreSQL failed; with what it said."""


def bindir():
    """Where initdb, pg_ctl and postgres are, or None."""
    found = [os.environ.get("PAWL_PG_BIN", "")]
    if shutil.which("pg_config"):
        found.append(subprocess.run(["pg_config", "--bindir"], stdout=subprocess.PIPE,
                                    check=True).stdout.decode().strip())
    found += sorted(glob.glob("/usr/lib/postgresql/*/bin"),
                    key=lambda p: int(re.sub(r"\D", "", p) or 0), reverse=True)
    for path in found:
        if path and all(os.access(os.path.join(path, p), os.X_OK)
                        for p in ("initdb", "pg_ctl", "postgres")):
            return path
    return None


def account():
    """How to start a program that refuses to be root: keywords for subprocess."""
    if os.getuid() != 0:
        return {}
    for name in "postgres", "nobody":
        try:
            user = pwd.getpwnam(name)
        except KeyError:
            continue
        return {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}
    raise Missing("running as root, and there is no account to run PostgreSQL as")


def clean_env():
    """The environment without what would lead a client elsewhere."""
    return dict({k: v for k, v in os.environ.items() if not k.startswith("PG")}, LC_ALL="C.UTF-8")


class Server:
    """pid: of the running server, or None. dir: where its socket, data and log lie."""

    def __init__(self, durable=False, settings="", patience=60, within=None):
        self.bin, self.patience, self.pid = bindir(), patience, None
        if self.bin is None:
            raise Missing("no PostgreSQL server programs (Debian: postgresql)")
        self.who = account()
        self.dir = tempfile.mkdtemp(prefix="pg-", dir=within)
        self.data, self.log = os.path.join(self.dir, "data"), os.path.join(self.dir, "log")
        try:
            self.let_in()
            self.make_data()
            with open(os.path.join(self.data, "postgresql.conf"), "a", encoding="ascii") as f:
                f.write("listen_addresses = ''\nunix_socket_directories = '%s'\nfsync = %s\n"
                        "shared_buffers = 32MB\nmax_connections = 200\nlog_statement = none\n%s\n"
                        % (self.dir, "on" if durable else "off", settings))
            self.start()
        except BaseException:
            self.remove()
            raise

    def make_data(self):
        """initdb; or, where $PAWL_PG_DATA says so (the test runner), a copy of what it made."""
        kept = os.environ.get("PAWL_PG_DATA", "")
        if kept and os.path.exists(os.path.join(kept, "PG_VERSION")):
            subprocess.run(["cp", "-a", kept, self.data], check=True)
            return
        self.program("initdb", "-D", self.data, "-U", SUPERUSER, "-A", "trust", "-E", "UTF8",
                     "--locale=C.UTF-8", "--no-sync")
        if kept:
            subprocess.run(["cp", "-a", self.data, kept], check=True)

    def let_in(self):
        """The server's account must reach its directory: temporary ones of ours are opened."""
        if "user" not in self.who:
            return
        os.chown(self.dir, self.who["user"], self.who["group"])
        path = os.path.dirname(self.dir)
        while path != "/":
            mode = os.stat(path).st_mode & 0o7777
            ours = path == tempfile.gettempdir() or os.path.basename(path).startswith("pawl-")
            if not mode & 0o001 and ours:
                os.chmod(path, mode | 0o001)
            elif not mode & 0o001:
                raise Missing("the account of PostgreSQL cannot enter %s" % path)
            path = os.path.dirname(path)

    def program(self, name, *words):
        # A session of its own: who presses Ctrl-C ends the command, which then ends the server.
        done = subprocess.run([os.path.join(self.bin, name), *words], cwd=self.dir,
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, env=clean_env(), timeout=self.patience,
                              start_new_session=True, **self.who)
        if done.returncode != 0:
            log = ""
            if os.path.exists(self.log):
                with open(self.log, encoding="utf-8", errors="replace") as f:
                    log = f.read()[-4000:]
            raise Failed("%s: exit %d\n%s\n%s" % (name, done.returncode,
                                                  done.stdout.decode("utf-8", "replace"), log))

    def start(self):
        self.program("pg_ctl", "-D", self.data, "-l", self.log, "-s", "-w", "-t",
                     str(int(self.patience)), "start")
        with open(os.path.join(self.data, "postmaster.pid"), encoding="ascii") as f:
            self.pid = int(f.readline())

    def stop(self, mode="fast"):
        """mode: smart, fast or immediate (a crash: nothing is written any more)."""
        if self.pid is not None:
            self.program("pg_ctl", "-D", self.data, "-s", "-w", "-m", mode, "-t",
                         str(int(self.patience)), "stop")
            self.pid = None

    def remove(self):
        """Stop the server and forget its files. May be called again."""
        try:
            self.stop("immediate")
        except (Failed, subprocess.TimeoutExpired):
            if self.pid is not None:
                os.kill(self.pid, signal.SIGKILL)
                self.pid = None
        shutil.rmtree(self.dir, ignore_errors=True)

    def url(self, database, user=SUPERUSER):
        return "postgresql:///%s?host=%s&user=%s" % (database, self.dir, user)


def run(argv, env):
    """Run the command; whoever would end us ends it, and its exit code is ours."""
    command = None

    def pass_on(number, _frame):
        if command is None:
            sys.exit(128 + number)
        command.send_signal(number)

    signal.signal(signal.SIGINT, signal.SIG_IGN)        # the terminal sends it to the command, too
    late = {signal.SIGTERM, signal.SIGHUP}
    for number in late:
        signal.signal(number, pass_on)
    signal.pthread_sigmask(signal.SIG_BLOCK, late)      # not between its start and our knowing it
    try:
        command = subprocess.Popen(argv, env=env, preexec_fn=lambda: (
            signal.signal(signal.SIGINT, signal.SIG_DFL),
            signal.pthread_sigmask(signal.SIG_UNBLOCK, late)))
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, late)
    code = command.wait()
    return code if code >= 0 else 128 - code


def main(argv):
    if len(argv) < 2 or argv[1].startswith("-"):
        sys.stderr.write(__doc__)
        return 2
    for number in signal.SIGTERM, signal.SIGHUP:        # end as Ctrl-C does: tidily
        signal.signal(number, lambda n, _: sys.exit(128 + n))
    server = None
    try:
        server = Server()
        server.program("createdb", "-h", server.dir, "-U", SUPERUSER, "shop")
        env = {k: v for k, v in os.environ.items() if not k.startswith("PG")}
        env.update(PAWL_DB=server.url("shop"), PGHOST=server.dir, PGUSER=SUPERUSER,
                   PGDATABASE="shop")
        return run(argv[1:], env)
    except (Missing, Failed) as why:
        sys.stderr.write("pgserver: %s\n" % str(why).strip())
        return 1
    except KeyboardInterrupt:
        return 130
    except OSError as why:
        sys.stderr.write("pgserver: cannot run %s: %s\n" % (argv[1], why.strerror))
        return 127
    finally:
        if server is not None:
            server.remove()


if __name__ == "__main__":
    sys.exit(main(sys.argv))
