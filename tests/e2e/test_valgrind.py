"""A short answer, and a server from start to stop, under valgrind: no bad access, no use of unset memory, nothing
definitely lost.

Skips (77) without valgrind, and for a program built with a sanitizer, which valgrind cannot run.
"""
import os
import shutil
import signal
import subprocess
import sys

import lib
from dialects import DIALECTS, PARAMETERS
from web import Server, chat

COMMAND = ["valgrind", "--quiet", "--error-exitcode=99", "--leak-check=full", "--errors-for-leak-kinds=definite"]


def why_not():
    if not shutil.which("valgrind"):
        return "valgrind is not installed"
    if lib.sanitized():
        return "the program is built with a sanitizer"
    return None


class Valgrind(lib.Case):
    def clean(self, *words):
        done = subprocess.run([*COMMAND, lib.PROGRAM, *words], env=lib.ENV, capture_output=True, timeout=lib.PATIENCE)
        self.assertEqual(done.returncode, 0, done.stderr.decode(errors="replace"))
        return done.stdout.decode()

    def test_generate(self):
        out = self.clean("generate", "-q", "-m", lib.model(), "-p", "Hi", "--temp", "0", "-n", "40", "--think")
        self.assertTrue(lib.ANSWER.startswith(out.strip()) and out.strip(), out)

    def test_reference_kernels(self):
        self.clean("generate", "-q", "-m", lib.model(), "-p", "Hi", "-n", "4", "--no-think", "--isa", "c", "-t", "2")

    def test_serve(self):
        """Each dialect plain, streamed, and with a shape; what is refused; a client that leaves; the stop."""
        program, lib.PROGRAM = lib.PROGRAM, os.path.join(lib.PLACE, "watched")
        self.addCleanup(setattr, lib, "PROGRAM", program)
        with open(lib.PROGRAM, "w", encoding="utf-8") as f:
            f.write("#!/bin/sh\nexec " + " ".join([*COMMAND, program]) + ' "$@"\n')
        os.chmod(lib.PROGRAM, 0o755)
        with Server("plain", "-t", "2") as s:
            for d in DIALECTS:
                plain = d.ask(s, d.body("hello", True, max_tokens=40, **d.greedy()))
                self.assertEqual(plain[0], lib.ANSWER)
                self.assertEqual(d.ask(s, d.body("hello", True, max_tokens=40, **d.greedy()), stream=True), plain)
                d.ask(s, d.body("hello", False, max_tokens=12) | d.format(PARAMETERS))
                self.assertEqual(s.post(d.path, {"messages": 1}).status, 400)
            done = s.post("/v1/completions", {"prompt": "hello", "max_tokens": 12})
            self.assertEqual(done.status, 200, done.body)
            with s.client() as c: # leaves before its answer
                c.request("POST", "/v1/chat/completions", chat("hello " * 50, stream=True))
            self.assertEqual(s.ask("GET", "/metrics").status, 200)
            s.wait_settled()
            s.signal(signal.SIGTERM)
            self.assertEqual(s.wait(), 0, s.log())


if __name__ == "__main__":
    reason = why_not()
    if reason:
        print("skipped: " + reason)
        sys.exit(77)
    lib.main()
