#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""test_pg_hosts.py - workers on several hosts: one is cut off, none agrees on the time.

The hosts are network namespaces of ours (root, and iproute2), joined by a bridge in another one;
the server has one, too. A cut takes a host's port off the bridge: no packet passes, and nobody is
told. Each host has a runtime directory of its own, so that nothing is known of another one's
workers but what the server knows."""
import os
import shutil
import signal
import subprocess
import tempfile
import time
import unittest

from ckit import CC, compile_plugin
from fieldkit import is_sanitized
from pawltest import PAWL, SLOW
from pgkit import Cluster, SUPERUSER, clean_env

TIMEOUT = 120
CONF = """[pawl]
lease = 2s
concurrency = 2
grace = 2s

[task held]
exec = ./held.sh
backoff = 20ms..200ms
max_retries = 50

[task again]
exec = ./again.sh
backoff = 500ms..500ms
"""
STATEMENT = """
[task statement]
sql = SELECT pg_sleep(CASE WHEN EXISTS (SELECT FROM gate) THEN 0 ELSE 600 END)
sql = INSERT INTO fx(job) VALUES (:job_id)
"""
EFFECT = """
[task effect]
c = ./wait.so:effect
backoff = 20ms..200ms
"""
# Starts are written down; what it does is done when the file `go` is there, in one transaction with
# its acknowledgement.
HELD = """#!/bin/sh
echo "held $PAWL_JOB_ID" >> starts
until [ -e go ]; do read -t 0.05 -r _ <> wait.fifo; done
exec psql -XqAt -v ON_ERROR_STOP=1 "$HOST_URL" >/dev/null 2>own.err <<END || exit 75
BEGIN;
SELECT pawl.begin($PAWL_JOB_ID, '$PAWL_LEASE');
INSERT INTO fx(job) VALUES ($PAWL_JOB_ID);
SELECT pawl.complete($PAWL_JOB_ID, '$PAWL_LEASE');
COMMIT;
END
"""
AGAIN = """#!/bin/sh
echo "again $PAWL_JOB_ID" >> starts
[ "$PAWL_ATTEMPT" -gt 1 ] || exit 75
"""
PLUGIN = r"""
#include <pawl.h>
#include <poll.h>
#include <unistd.h>

static enum pawl_outcome apply(struct pawl_run *run)
{
    struct pawl_error e;
    struct pawl_value v[] = {pawl_int("job", run->job_id)};
    FILE *f = fopen("starts", "a");
    if (f == NULL) return PAWL_FAIL;
    fprintf(f, "effect %lld\n", (long long)run->job_id);
    fclose(f);
    if (pawl_exec(run, "INSERT INTO fx(job) VALUES (:job)", v, 1, NULL, &e) != PAWL_OK)
        return pawl_run_error(run, &e);
    while (access("go", F_OK) != 0) poll(NULL, 0, 20);
    return PAWL_DONE;
}
PAWL_HANDLER(effect, NULL, apply, NULL);
"""
# What a program sees as the time of day is `PAWL_TEST_AHEAD` seconds off; no other clock is.
SKEW = r"""
#include <dlfcn.h>
#include <stdlib.h>
#include <sys/time.h>
#include <time.h>

static long ahead(void) { const char *s = getenv("PAWL_TEST_AHEAD"); return s ? atol(s) : 0; }
int clock_gettime(clockid_t id, struct timespec *t)
{
    int (*real)(clockid_t, struct timespec *) =
        (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
    const int r = real(id, t);
    if (r == 0 && id == CLOCK_REALTIME) t->tv_sec += ahead();
    return r;
}
int gettimeofday(struct timeval *restrict v, void *restrict zone)
{
    struct timespec t;
    (void)zone;
    if (clock_gettime(CLOCK_REALTIME, &t) != 0) return -1;
    v->tv_sec = t.tv_sec;
    v->tv_usec = t.tv_nsec / 1000;
    return 0;
}
time_t time(time_t *out)
{
    struct timespec t;
    if (clock_gettime(CLOCK_REALTIME, &t) != 0) return -1;
    if (out) *out = t.tv_sec;
    return t.tv_sec;
}
"""


class Host:
    """A directory, and how to start something there. net: its namespace; ahead: its clock, s."""

    def __init__(self, url, conf=CONF, net=None, ahead=0):
        self.url, self.net, self.ahead, self.worker = url, net, ahead, None
        self.dir = tempfile.mkdtemp(prefix="pawl-test-")
        os.chmod(self.dir, 0o755)
        for name, text in (("pawl.conf", conf), ("held.sh", HELD), ("again.sh", AGAIN)):
            with open(self.path(name), "w", encoding="ascii") as f:
                f.write(text)
            os.chmod(self.path(name), 0o755)
        os.mkfifo(self.path("wait.fifo"))
        if shutil.which(CC):
            compile_plugin(self.dir, "wait", PLUGIN)
            compile_plugin(self.dir, "skew", SKEW)

    def path(self, name):
        return os.path.join(self.dir, name)

    def how(self):
        env = dict(clean_env(), PAWL_DB=self.url, HOST_URL=self.url, PAWL_RUNTIME_DIR=self.dir,
                   PGCONNECT_TIMEOUT="5")
        if self.ahead:
            env.update(LD_PRELOAD=self.path("skew.so"), PAWL_TEST_AHEAD=str(self.ahead))
        inside = ["ip", "netns", "exec", self.net] if self.net else []
        return inside, {"cwd": self.dir, "env": env}

    def pawl(self, *words):
        inside, how = self.how()
        done = subprocess.run([*inside, PAWL, *words], stdin=subprocess.DEVNULL, text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=60 * SLOW,
                              **how)
        assert done.returncode == 0, "pawl %s: exit %d\n%s%s" % (
            words[0], done.returncode, done.stdout, done.stderr)
        return done.stdout.strip()

    def start(self):
        inside, how = self.how()
        with open(self.path("worker.log"), "ab") as log:
            self.worker = subprocess.Popen([*inside, PAWL, "work"], stdin=subprocess.DEVNULL,
                                           stdout=log, stderr=log, start_new_session=True, **how)

    def log(self):
        with open(self.path("worker.log"), encoding="utf-8", errors="replace") as f:
            return f.read()

    def starts(self, task):
        if not os.path.exists(self.path("starts")):
            return 0
        with open(self.path("starts"), encoding="ascii") as f:
            return sum(line.startswith(task + " ") for line in f)

    def go(self):
        with open(self.path("go"), "w", encoding="ascii"):
            pass

    def stop(self):
        """In good order; the exit code."""
        self.worker.terminate()
        return self.worker.wait(60 * SLOW)

    def lose(self):
        """All its processes at once, as a power cut does."""
        os.killpg(self.worker.pid, signal.SIGKILL)
        self.worker.wait()

    def close(self):
        if self.worker is not None and self.worker.poll() is None:
            self.worker.kill()
            self.worker.wait()
        shutil.rmtree(self.dir, True)


class Hosts(unittest.TestCase):
    def host(self, *words, **more):
        host = Host(*words, **more)
        self.addCleanup(host.close)
        self.hosts = getattr(self, "hosts", []) + [host]
        return host

    def until(self, true, what, deadline=30):
        end = time.monotonic() + deadline * SLOW
        while not true():
            logs = "\n---\n".join(h.log()[-3000:] for h in self.hosts if h.worker)
            self.assertLess(time.monotonic(), end, "%s: not so\n%s" % (what, logs))
            time.sleep(0.02)                    # between two looks, not in place of one

    def states(self):
        return [r[0] for r in self.server.sql("SELECT state FROM pawl.jobs ORDER BY id")]


class Clocks(Hosts):
    """Hosts that are ten minutes ahead of the server, and behind it."""

    def setUp(self):
        if is_sanitized():
            self.skipTest("a sanitizer does not let another library come first")
        if not shutil.which(CC):
            self.skipTest("no C compiler")
        self.server = Cluster()
        self.addCleanup(self.server.remove)
        url = self.server.url("postgres")
        self.ahead, self.behind = self.host(url, ahead=600), self.host(url, ahead=-600)
        self.ahead.pawl("init")
        self.server.sql("CREATE TABLE fx(job bigint)")

    def test_hosts_that_do_not_agree_on_the_time(self):
        for first, second in ((self.ahead, self.behind), (self.behind, self.ahead)):
            with self.subTest(ahead=first.ahead):
                self.the_clock_changes_nothing(first, second)

    def the_clock_changes_nothing(self, first, second):
        job = first.pawl("enqueue", "held")
        first.start()
        self.until(lambda: first.starts("held") == 1, "the job runs")
        wall = time.strftime("%Y-%m-%dT%H:", time.gmtime(time.time() + first.ahead))
        self.assertTrue(first.log().startswith(wall), first.log())  # its clock is off indeed
        second.start()
        beats = "SELECT count(*) FROM pawl.x_worker, extract(epoch FROM clock_timestamp()) AS now" \
                " WHERE abs(beat_at_us / 1e6 - now) < 30 AND joined_at_us < beat_at_us - 5000000"
        self.until(lambda: self.server.sql(beats) == [["2"]], "both live on for two leases")
        self.assertEqual((first.starts("held"), second.starts("held")), (1, 0))
        # A retry comes after its backoff, whoever decides it.
        again = second.pawl("enqueue", "again")
        self.until(lambda: self.state(again) == "done", "it was tried again", 15)
        # A relative time is one of the store's clock.
        for host in first, second:
            later = host.pawl("enqueue", "again", "{}", "--in", "30m", "--expires", "2h")
            near = self.server.sql(
                "SELECT abs(run_at_us / 1e6 - now - 1800) < 30,"
                " abs(expires_at_us / 1e6 - now - 7200) < 30 FROM pawl.jobs,"
                " extract(epoch FROM clock_timestamp()) AS now WHERE id = %s" % later)
            self.assertEqual(near, [["t", "t"]])
        # A host that is gone is taken over after its lease, by the server's clock.
        first.lose()
        second.go()
        self.until(lambda: self.state(job) == "done", "it was taken over", 20)
        self.assertEqual(second.starts("held"), 1)
        self.assertEqual(second.stop(), 0, second.log())
        for name in "starts", "go":
            for host in first, second:
                if os.path.exists(host.path(name)):
                    os.remove(host.path(name))
        second.pawl("check")

    def state(self, job):
        return self.server.sql("SELECT state FROM pawl.jobs WHERE id = %s" % job)[0][0]


class Outage(Hosts):
    def test_server_away_for_longer_than_a_lease_nobody_is_taken_for_dead(self):
        """All beats are old then, those of the living, too: each has a lease to come back."""
        self.server = Cluster()
        self.addCleanup(self.server.remove)
        hosts = [self.host(self.server.url("postgres")) for _ in range(3)]
        hosts[0].pawl("init")
        self.server.sql("CREATE TABLE fx(job bigint)")
        for host in hosts:
            for _ in range(2):
                host.pawl("enqueue", "held")
            host.start()
            self.until(lambda h=host: h.starts("held") == 2, "two jobs run")
        self.server.stop("immediate")
        for host in hosts:
            self.until(lambda h=host: "cannot connect" in h.log(), "the server is missed")
        stopped = time.monotonic()
        self.until(lambda: time.monotonic() - stopped > 3, "more than a lease has passed")
        self.server.start()
        for host in hosts:
            self.until(lambda h=host: "event=store.fine" in h.log(), "the server is found again")
            host.go()
        self.until(lambda: set(self.states()) == {"done"}, "all is done")
        for host in hosts:
            self.assertEqual((host.stop(), host.starts("held")), (0, 2), host.log())
            self.assertNotIn("event=worker.rejoined", host.log())


class Net:
    """A bridge, and namespaces on it. Everything goes with close()."""

    def __init__(self):
        self.tag, self.names, self.n = "pawl%d" % os.getpid(), [], 0
        self.bridge = self.add("sw")
        self.ip("-n", self.bridge, "link", "add", "br0", "type", "bridge")
        self.ip("-n", self.bridge, "link", "set", "br0", "up")

    @staticmethod
    def ip(*words):
        done = subprocess.run(["ip", *words], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              text=True, timeout=20 * SLOW)
        if done.returncode != 0:
            raise OSError("ip %s: %s" % (" ".join(words), done.stdout.strip()))

    def add(self, name):
        name = self.tag + name
        self.ip("netns", "add", name)
        self.names.append(name)
        return name

    def join(self, name):
        """A namespace with a port on the bridge: its name and its address."""
        self.n += 1
        net, address = self.add(name), "10.91.7.%d" % self.n
        self.ip("link", "add", "eth0", "netns", net, "type", "veth", "peer", "name", name, "netns",
                self.bridge)
        self.ip("-n", net, "addr", "add", address + "/24", "dev", "eth0")
        self.ip("-n", net, "link", "set", "lo", "up")
        self.ip("-n", net, "link", "set", "eth0", "up")
        self.ip("-n", self.bridge, "link", "set", name, "up")
        self.plug(name)
        return net, address

    def plug(self, name):
        self.ip("-n", self.bridge, "link", "set", name, "master", "br0")

    def cut(self, name):
        self.ip("-n", self.bridge, "link", "set", name, "nomaster")

    def close(self):
        for name in self.names:
            subprocess.run(["ip", "netns", "del", name], stderr=subprocess.DEVNULL, check=False)


class FarCluster(Cluster):
    """A server in a namespace; its socket is reached from everywhere."""

    def __init__(self, net, address):
        self.net = net
        super().__init__(settings="listen_addresses = '%s'" % address)
        with open(os.path.join(self.data, "pg_hba.conf"), "a", encoding="ascii") as f:
            f.write("host all all 10.91.7.0/24 trust\n")
        self.sql("SELECT pg_reload_conf()")

    def program(self, name, *words):
        if "start" not in words:
            return super().program(name, *words)
        done = subprocess.run(
            ["ip", "netns", "exec", self.net, "setpriv", "--reuid", str(self.who["user"]),
             "--regid", str(self.who["group"]), "--clear-groups", os.path.join(self.bin, name),
             *words], cwd=self.dir, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL, env=clean_env(), timeout=60 * SLOW)
        self.check_started(done.returncode)
        return None

    @staticmethod
    def check_started(code):
        if code != 0:
            raise AssertionError("the server did not start in its namespace: exit %d" % code)


class Cut(Hosts):
    """A host whose packets do not arrive any more, in neither direction."""

    def setUp(self):
        if os.getuid() != 0 or not shutil.which("ip") or not shutil.which("setpriv"):
            self.skipTest("network namespaces need root, iproute2 (ip) and util-linux (setpriv)")
        try:
            self.net = Net()
            self.addCleanup(self.net.close)
            db, address = self.net.join("db")
            nets = [self.net.join(name)[0] for name in ("h1", "h2")]
        except OSError as why:
            self.skipTest("no network namespaces here: %s" % why)
        self.server = FarCluster(db, address)
        self.addCleanup(self.server.remove)
        url = "postgresql://%s@%s/postgres" % (SUPERUSER, address)
        conf = CONF + STATEMENT + (EFFECT if shutil.which(CC) else "")
        self.tasks = ["held", "effect"] if shutil.which(CC) else ["held"]
        self.one, self.two = (self.host(url, conf, net=net) for net in nets)
        self.one.pawl("init")
        self.server.sql("CREATE TABLE fx(job bigint)")
        self.server.sql("CREATE TABLE gate(x int)")

    def fx(self):
        return sorted(int(r[0]) for r in self.server.sql("SELECT job FROM fx"))

    def test_host_cut_off_is_taken_over_and_fenced(self):
        one, two = self.one, self.two
        jobs = sorted(int(one.pawl("enqueue", task)) for task in self.tasks)
        one.start()
        for task in self.tasks:
            self.until(lambda t=task: one.starts(t) == 1, "%s runs" % task)
        self.net.cut("h1")
        cut = time.monotonic()
        two.go()
        two.start()
        self.until(lambda: set(self.states()) == {"done"}, "the other host has done it all")
        print("a host cut off: its leased job and its open transaction's were done by another one"
              " %.1f s later; the lease is 2 s" % (time.monotonic() - cut))
        self.assertEqual([two.starts(t) for t in self.tasks], [1] * len(self.tasks))
        self.assertEqual(self.fx(), jobs)
        # It comes back, and goes on with what is not its own any more.
        self.net.plug("h1")
        one.go()
        self.until(lambda: "event=store.fine" in one.log() or "event=worker.rejoined" in one.log(),
                   "it has found the server again", 60)
        self.assertEqual(two.stop(), 0, two.log())
        more = sorted(int(two.pawl("enqueue", task)) for task in self.tasks)
        self.until(lambda: set(self.states()) == {"done"}, "it works again", 60)
        self.assertEqual(self.fx(), jobs + more)
        self.assertEqual(one.stop(), 0, one.log())
        two.pawl("check")

    def test_host_cut_off_inside_a_statement(self):
        one, two = self.one, self.two
        job = int(one.pawl("enqueue", "statement"))
        one.start()
        asleep = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'PgSleep'"
        self.until(lambda: self.server.sql(asleep) == [["1"]], "the statement runs")
        self.net.cut("h1")
        cut = time.monotonic()
        self.server.sql("INSERT INTO gate VALUES (1)")
        two.start()
        self.until(lambda: self.states() == ["done"], "the other host has done it", 60)
        print("a host cut off while the server worked for it: done by another one %.1f s later; the"
              " lease is 2 s" % (time.monotonic() - cut))
        self.assertEqual(self.fx(), [job])
        self.assertEqual(two.stop(), 0, two.log())
        two.pawl("check")


if __name__ == "__main__":
    unittest.main()
