"""What the end-to-end tests share: the program under test, models with known answers, and a terminal.

Each test file is run as `test_x.py PROGRAM [unittest words]`. Nothing of the user's own home is read or written.
"""
import functools
import os
import pty
import re
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import unittest

import scripted

PROGRAM = os.path.abspath(sys.argv.pop(1))
PLACE = tempfile.mkdtemp(prefix="lagoon-e2e-")
THOUGHT = "Plan: look at the file.\nThen answer."
ANSWER = "# Title\nSome **bold** `code`.\nDone."
STORY = "never ending story told in pieces."
# One thread: tests run side by side, and threads that wait for one another crawl when each has its own neighbours.
# The engine's tests have all numbers of threads, the load and the clients run with the default.
ENV = {"PATH": os.environ.get("PATH", ""), "HOME": PLACE, "LC_ALL": "C.UTF-8", "TERM": "xterm", "LAGOON_THREADS": "1"}
for key in ("ASAN_OPTIONS", "UBSAN_OPTIONS", "LSAN_OPTIONS", "TSAN_OPTIONS"):
    if key in os.environ:
        ENV[key] = os.environ[key]
# What the program inherits is a plain session's, whoever started the tests: nohup ignores SIGHUP, and a shell that puts
# them into the background SIGINT.
for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM, signal.SIGQUIT):
    if signal.getsignal(number) == signal.SIG_IGN:
        signal.signal(number, signal.SIG_DFL)
signal.pthread_sigmask(signal.SIG_SETMASK, [])
# What takes longer than a second says so on stderr, a line at its beginning and one at its end. Whether it takes so long is
# the machine's business.
NEWS = re.compile(rb"^lagoon: (loading \S+|writing|measuring|scoring|computing logits|making weights): "
                  rb"([\d.,]+ \S+|(done|stopped) after \S.*)\n", re.MULTILINE)
PATIENCE = 600  # seconds until what must come is missing: a limit for a test that hangs, on any machine
_models = {}
_making = threading.Lock()  # a file that is written anew under a server that has mapped it ends that server


def model(name="plain"):
    """Path of a model: plain, loop (an answer of minutes, on any machine), wild (control characters in its answer)."""
    with _making:
        if name not in _models:
            path = os.path.join(PLACE, name + ".gguf")
            answer = {"plain": ANSWER, "loop": STORY, "wild": "red\x1b[31m bell\x07 return\r csi\u009b1m é漢."}[name]
            scripted.write(path, THOUGHT, answer, loop=name == "loop", context=262144 if name == "loop" else 32768)
            _models[name] = path
    return _models[name]


@functools.cache
def sanitized():
    """Whether the program is built with a sanitizer: it then takes terabytes of address space, and far more memory."""
    with open(PROGRAM, "rb") as f:
        program = f.read()
    return any(name in program for name in (b"__asan_init", b"__tsan_init", b"__ubsan_handle"))


def told(stderr):
    """What the program said, without the news that something takes long."""
    return NEWS.sub(b"", stderr)


def run(*words, stdin=b"", env=None, timeout=2 * PATIENCE, **more):
    r = subprocess.run([PROGRAM, *words], input=stdin, env=ENV | (env or {}), timeout=timeout,
                       stdout=more.pop("stdout", subprocess.PIPE), stderr=subprocess.PIPE, **more)
    r.stderr = told(r.stderr)
    return r


class Case(unittest.TestCase):
    maxDiff = 4000

    def soon(self, act, seconds, tries=20):
        """`act` returns how long something took: it can be done within that time. One try proves it; others are for a
        machine that was busy with something else, and come only where it was."""
        took = []
        while len(took) < tries and (not took or min(took) >= seconds):
            took.append(act())
        self.assertLess(min(took), seconds, took)

    def one_line(self, result, status, *parts):
        """The command failed with this status and said one line, which holds all of `parts`."""
        text = result.stderr.decode(errors="replace")
        self.assertEqual(result.returncode, status, text)
        self.assertEqual(text.count("\n"), 1, text)
        self.assertTrue(text.startswith("lagoon: "), text)
        for part in parts:
            self.assertIn(part, text)


class Terminal:
    """The program on a pseudo-terminal; `seen` is everything it wrote."""

    def __init__(self, *words, env=None, program=None):
        self.seen = b""
        self.at = 0
        self.status = None
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.execve(program or PROGRAM, [program or PROGRAM, *words], ENV | (env or {}))

    def _read(self, seconds):
        if select.select([self.fd], [], [], seconds)[0]:
            try:
                data = os.read(self.fd, 65536)
            except OSError:  # Linux: the other end is closed
                data = b""
            self.seen += data
            return bool(data)
        return None

    def expect(self, text, seconds=PATIENCE):
        """Wait until `text` comes, behind what was expected before; returns what came before it."""
        if isinstance(text, str):
            text = text.encode()
        end = time.monotonic() + seconds
        while (found := self.seen.find(text, self.at)) < 0:
            if self._read(0.05) is False or time.monotonic() > end:
                raise AssertionError(f"{text!r} did not come; the end of the screen: {self.seen[-800:]!r}")
        before = self.seen[self.at:found]
        self.at = found + len(text)
        return before

    def send(self, data):
        """Write it all, reading meanwhile, as a terminal does."""
        data = data.encode() if isinstance(data, str) else data
        while data:
            data = data[os.write(self.fd, data[:512]):]
            while self._read(0):
                pass

    def interrupt(self):
        os.kill(self.pid, signal.SIGINT)

    def look(self):
        """Take what has come, waiting for it a moment."""
        return self._read(0.02)

    def ended(self):
        """Whether the program has ended; its exit status is then known."""
        if self.status is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.status = os.waitstatus_to_exitcode(status)
        return self.status is not None

    def wait(self, seconds=PATIENCE):
        """The exit status, once the program has ended."""
        end = time.monotonic() + seconds
        while not self.ended():
            self.look()
            if time.monotonic() > end:
                os.kill(self.pid, signal.SIGKILL)
                os.waitpid(self.pid, 0)
                raise AssertionError(f"the program did not end; the end of the screen: {self.seen[-800:]!r}")
        while self._read(0.05):
            pass
        os.close(self.fd)
        return self.status


def main():
    try:
        unittest.main(module="__main__", verbosity=2)
    finally:
        shutil.rmtree(PLACE, ignore_errors=True)
