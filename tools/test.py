#!/usr/bin/env python3
"""Builds and tests, then says how it went in one line: "N passed, N failed, N skipped".

    tools/test.py [--native] [--option NAME=VALUE]... BUILD

Runs every test of the build directory BUILD and, unless --native is given, those of a 64-bit ARM build of kernels and model
under emulation (BUILD-arm64) and beside them, because emulation takes one processor only, the short load on a server
that was built with the address sanitizer and on one with the thread sanitizer (BUILD-address, BUILD-thread). A build
that fails counts as one failed test; what this machine cannot run counts as skipped, with the reason. The numbers are
read from Meson's own records. Exit status: 0 only when nothing failed and something passed.
"""
import argparse
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import threading

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
PASSED = {"OK", "EXPECTEDFAIL"}
SKIPPED = {"SKIP"}


class Count:
    def __init__(self):
        self.passed = self.failed = self.skipped = 0

    def add(self, result):
        if result in PASSED:
            self.passed += 1
        elif result in SKIPPED:
            self.skipped += 1
        else:
            self.failed += 1

    def join(self, other):
        self.passed += other.passed
        self.failed += other.failed
        self.skipped += other.skipped

    def line(self):
        text = f"{self.passed} passed, {self.failed} failed"
        return text + (f", {self.skipped} skipped" if self.skipped else "")


def call(*words):
    print("+", *words, flush=True)
    return subprocess.run(words, cwd=ROOT).returncode == 0


def build(folder, options):
    ninja_file = os.path.join(ROOT, folder, "build.ninja")
    if not os.path.exists(ninja_file) and not call("meson", "setup", folder, *options):
        return False
    return call("ninja", "-C", folder)


def test(folder, count, slower):
    """Runs the tests of a finished build; reads the results from the record that Meson leaves. `slower` is how many
    times longer a test may take than on the machine itself."""
    record = os.path.join(ROOT, folder, "meson-logs", "testlog.json")
    if os.path.exists(record):
        os.unlink(record)
    ok = call("meson", "test", "-C", folder, "--no-rebuild", "--print-errorlogs", "--timeout-multiplier", str(slower))
    results = []
    if os.path.exists(record):
        with open(record, encoding="utf-8") as f:
            results = [json.loads(line)["result"] for line in f if line.strip()]
    for result in results:
        count.add(result)
    if not ok and not any(r not in PASSED | SKIPPED for r in results):
        count.failed += 1  # Meson itself stopped: no test may hide behind that


def run(folder, options, count, slower=1):
    if build(folder, options):
        test(folder, count, slower)
    else:
        count.failed += 1


def why_no_arm64():
    if sys.platform != "linux":
        return "emulation needs Linux"
    if platform.machine() in ("aarch64", "arm64"):
        return "this machine is one: the native build has covered it"
    for tool in ("aarch64-linux-gnu-gcc", "qemu-aarch64"):
        if not shutil.which(tool):
            return tool + " is not installed"
    return None


def why_no_sanitizer(kind):
    """A program of one line is built and run: the library may be missing, or may not like the machine."""
    compiler = os.environ.get("CC", "cc").split()
    if not shutil.which(compiler[0]):
        return compiler[0] + " is not installed"
    with tempfile.TemporaryDirectory() as folder:
        program = os.path.join(folder, "a.out")
        made = subprocess.run([*compiler, "-fsanitize=" + kind, "-pthread", "-x", "c", "-", "-o", program], cwd=folder,
                              input=b"int main(void) { return 0; }\n", capture_output=True)
        if made.returncode != 0:
            return f"{compiler[0]} has no {kind} sanitizer here"
        if subprocess.run([program], capture_output=True).returncode != 0:
            return f"programs with the {kind} sanitizer do not run here"
    return None


def load(folder, kind, out):
    """The short load on a server of its own build, with its output in the file `out`; whether all went well. No more of
    the build is made than the program. Optimised a little, or the load would not be one."""
    steps = [["meson", "setup", folder, "-Dcuda=disabled", "-Db_sanitize=" + kind, "-Doptimization=1", "-Ddebug=true"],
             ["ninja", "-C", folder, "lagoon"],
             [sys.executable, "-B", "tests/e2e/load.py", os.path.join(folder, "lagoon"), "--minutes", "0.3", "--seed", "1",
              "--threads", "1"]] # emulation has the other processor; threads of a step that wait for one another crawl then
    if os.path.exists(os.path.join(ROOT, folder, "build.ninja")):
        del steps[0]
    return all(subprocess.run(step, cwd=ROOT, stdout=out, stderr=subprocess.STDOUT).returncode == 0 for step in steps)


def run_sanitized(build, count):
    """Its lines come at the end of each part, because another part writes at the same time."""
    for kind in ("address", "thread"):
        reason = why_no_sanitizer(kind)
        if reason:
            print(f"load with the {kind} sanitizer: skipped,", reason, flush=True)
            count.skipped += 1
            continue
        with tempfile.TemporaryFile() as out:
            ok = load(f"{build}-{kind}", kind, out)
            out.seek(0)
            lines = out.read().decode(errors="replace").splitlines()
        print("\n".join(lines[-2 if ok else -200:]))
        print(f"load with the {kind} sanitizer:", "OK" if ok else "FAIL", flush=True)
        count.passed += ok
        count.failed += not ok


def run_arm64(build, count):
    reason = why_no_arm64()
    if reason:
        print("arm64 kernels under emulation: skipped,", reason, flush=True)
        count.skipped += 1
        return
    cross = ["--cross-file", "tools/cross-aarch64.ini", "-Dscope=kernels"]
    run(build + "-arm64", cross, count, slower=5)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--native", action="store_true", help="only this machine's own build")
    parser.add_argument("--option", action="append", default=[], metavar="NAME=VALUE", help="option of a new build")
    parser.add_argument("build")
    args = parser.parse_args()
    count = Count()

    # sanitizers and coverage slow a test down as well
    run(args.build, ["-D" + o for o in args.option], count, slower=5 if args.option else 1)
    if not args.native:
        others = Count()
        beside = threading.Thread(target=run_sanitized, args=(args.build, others))
        beside.start()
        run_arm64(args.build, count)
        beside.join()
        count.join(others)
    print(count.line())
    return 0 if count.failed == 0 and count.passed > 0 else 1


if __name__ == "__main__":
    sys.exit(main())
