"""A short answer under valgrind: no bad access, no use of unset memory, nothing definitely lost.

Skips (77) without valgrind, and for a program built with a sanitizer, which valgrind cannot run.
"""
import shutil
import subprocess
import sys

import lib

COMMAND = ["valgrind", "--quiet", "--error-exitcode=99", "--leak-check=full", "--errors-for-leak-kinds=definite"]


def why_not():
    if not shutil.which("valgrind"):
        return "valgrind is not installed"
    with open(lib.PROGRAM, "rb") as f:
        program = f.read()
    if b"__asan_init" in program or b"__tsan_init" in program or b"__ubsan_handle" in program:
        return "the program is built with a sanitizer"
    return None


class Valgrind(lib.Case):
    def clean(self, *words):
        done = subprocess.run([*COMMAND, lib.PROGRAM, *words], env=lib.ENV, capture_output=True, timeout=500)
        self.assertEqual(done.returncode, 0, done.stderr.decode(errors="replace"))
        return done.stdout.decode()

    def test_generate(self):
        out = self.clean("generate", "-q", "-m", lib.model(), "-p", "Hi", "--temp", "0", "-n", "40", "--think")
        self.assertTrue(lib.ANSWER.startswith(out.strip()) and out.strip(), out)

    def test_reference_kernels(self):
        self.clean("generate", "-q", "-m", lib.model(), "-p", "Hi", "-n", "4", "--no-think", "--isa", "c", "-t", "2")


if __name__ == "__main__":
    reason = why_not()
    if reason:
        print("skipped: " + reason)
        sys.exit(77)
    lib.main()
