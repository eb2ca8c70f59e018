# SPDX-License-Identifier: Apache-2.0
"""chaos.py - two workers, and the thing that kills them.

Victims   SIGKILL, at random moments: a worker's supervisor, one of its children (the runner of the
          sql tasks, or a program in the middle of a charge), or everything at once, as a power cut
          would; and the database server, where there is one. What died is started again.
Careful   only processes this program started, and their children, are ever signalled: each is held
          by a pidfd and looked at again before the signal is sent, so a recycled pid is safe.
Strict    a worker that ends without having been killed is remembered in `surprises`: the audit
          fails then. Only one that comes up while the server is down may give up: whoever keeps it
          running (here: we; elsewhere: the service manager) starts it again.
"""
import os
import signal
import subprocess


def children(pid):
    """Pids of the direct children, by the kernel's own list."""
    pids = []
    try:
        for thread in os.listdir("/proc/%d/task" % pid):
            with open("/proc/%d/task/%s/children" % (pid, thread)) as f:
                pids += [int(word) for word in f.read().split()]
    except OSError:
        pass                # it is gone: so are they
    return pids


def parent(pid):
    try:
        with open("/proc/%d/stat" % pid) as f:
            return int(f.read().rpartition(")")[2].split()[1])
    except (OSError, ValueError, IndexError):
        return 0


def kill_child(pid, of):
    """SIGKILL pid if it is (still) a child of `of`. True if the signal went out."""
    try:
        fd = os.pidfd_open(pid)
    except OSError:
        return False
    try:
        if parent(pid) != of:
            return False
        signal.pidfd_send_signal(fd, signal.SIGKILL)
        return True
    except OSError:
        return False
    finally:
        os.close(fd)


class Worker:
    """One `pawl work`, started again after each death."""

    def __init__(self, name, argv, cwd):
        self.name, self.argv, self.cwd = name, argv, cwd
        self.log = os.path.join(cwd, name + ".log")
        self.process, self.starts, self.murdered, self.begins = None, 0, False, 0

    def start(self):
        with open(self.log, "ab") as log:
            self.begins = log.tell()
            self.process = subprocess.Popen(self.argv, cwd=self.cwd, stdin=subprocess.DEVNULL,
                                            stdout=log, stderr=log)
        self.starts += 1
        self.murdered = False

    def alive(self):
        return self.process is not None and self.process.poll() is None

    def kill(self):
        """SIGKILL the supervisor; Popen knows whether the pid is still ours."""
        if not self.alive():
            return False
        self.murdered = True
        self.process.send_signal(signal.SIGKILL)
        return True

    def never_began(self):
        """Ended before it had its store?"""
        with open(self.log, "rb") as log:
            log.seek(self.begins)
            return b"event=worker.start" not in log.read()

    def said(self):
        """The lines of its log so far."""
        try:
            with open(self.log, encoding="utf-8", errors="replace") as log:
                return log.read().splitlines()
        except OSError:
            return []


class Chaos:
    """Call tick() often. Owns the workers; close() leaves none behind."""

    def __init__(self, rng, workers, every, engine):
        self.rng, self.workers, self.every, self.engine = rng, workers, every, engine
        self.next_kill = None       # no kills yet
        self.killed = {"supervisor": 0, "child": 0, "everything": 0, "server": 0}
        self.surprises = []

    def begin(self, now):
        self.next_kill = now + self.every

    def end(self):
        self.next_kill = None

    @property
    def kills(self):
        return sum(self.killed.values())

    def tick(self, now):
        for w in self.workers:
            if w.process is not None and not w.alive():
                early = w.process.returncode in self.engine.gone and w.never_began()
                if not w.murdered and not early:
                    self.surprises.append("%s ended by itself with %d: %s" % (
                        w.name, w.process.returncode, " | ".join(w.said()[-2:])))
                w.start()
        if self.next_kill is not None and now >= self.next_kill:
            self.strike()
            self.next_kill = now + self.rng.expovariate(1 / self.every)

    def strike(self):
        wanted = self.rng.random() < 0.08 or (self.kills >= 2 and not self.killed["server"])
        if wanted and self.engine.crash(self.rng):
            self.killed["server"] += 1
            return
        dice = self.rng.random()
        victim = self.rng.choice(self.workers)
        if dice < 0.40:
            self.killed["supervisor"] += victim.kill()
        elif dice < 0.85 and victim.alive():
            pids = children(victim.process.pid)
            if pids:
                self.killed["child"] += kill_child(self.rng.choice(pids), victim.process.pid)
        else:
            hit = [pid for w in self.workers if w.alive()
                   for pid in children(w.process.pid) if kill_child(pid, w.process.pid)]
            hit += [w for w in self.workers if w.kill()]
            self.killed["everything"] += bool(hit)

    def drain(self, grace):
        """SIGTERM: finish what runs, take nothing new, exit 0. Remembers who did not."""
        for w in self.workers:
            if w.alive():
                w.process.terminate()
        for w in self.workers:
            if w.process is None:
                continue
            try:
                code = w.process.wait(grace)
            except subprocess.TimeoutExpired:
                w.kill()
                self.surprises.append("%s did not drain within %d s" % (w.name, grace))
                continue
            if code != 0 and not w.murdered:
                self.surprises.append("%s drained with %d: %s" % (w.name, code,
                                                                  " | ".join(w.said()[-2:])))
            w.process = None

    def close(self):
        for w in self.workers:
            if w.process is not None:
                w.kill()
                w.process.wait()
