#!/usr/bin/env python3
"""Runs tests on a machine that stands still now and then, with a clock that leaps: a test must not care.

    tools/stress.py [--rounds N] [--seed N] [--suite NAME]... BUILD [TEST]...

Processes of a test are stopped at random for 2 ms to 0.8 s, never all the time. C tests see a clock that leaps as well
(tests/stress/leap.c), and memory that is never zero. Two tests at a time. Without names: the suite `unit`. A failure
prints the seed that repeats its clock; the stops are never the same twice. Exit status: 0 only when nothing failed.
"""
import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
LIMIT = 3600  # seconds until a test hangs
STOPS = [0.002, 0.01, 0.03, 0.1, 0.3, 0.8]
SKIPPED = 77


def leaping_clock(folder):
    path = os.path.join(folder, "leap.so")
    subprocess.run([*os.environ.get("CC", "cc").split(), "-O2", "-shared", "-fPIC", "-o", path,
                    os.path.join(ROOT, "tests/stress/leap.c"), "-ldl"], check=True)
    return path


def family(first):
    """The process and all below it that run, read from /proc: who is stopped already was stopped by his test."""
    parent = {}
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{name}/stat", encoding="utf-8", errors="replace") as f:
                state, above = f.read().rpartition(")")[2].split()[:2]
        except OSError:
            continue
        parent[int(name)] = (int(above), state)
    found, new = [first], [first]
    while new:
        new = [p for p, (above, _) in parent.items() if above in new]
        found += new
    return [p for p in found if parent.get(p, (0, "Z"))[1] in "RSD"]


def tell(processes, what):
    for p in processes:
        try:
            os.kill(p, what)
        except OSError:
            pass


def disturb(process, chance):
    """Until the process ends. It is not reaped meanwhile, so its number is nobody else's."""
    while os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT | os.WNOHANG) is None:
        alive = family(process.pid)
        some = chance.sample(alive, min(len(alive), chance.choice([1, 1, 2, 5])))
        tell(some, signal.SIGSTOP)
        time.sleep(chance.choice(STOPS))
        tell(some, signal.SIGCONT)
        time.sleep(chance.choice([0.002, 0.01, 0.05, 0.2]))


def run(test, seed, clock):
    env = os.environ | test["env"] | {"MALLOC_PERTURB_": str(seed % 255 + 1)}
    if clock and "test_" in os.path.basename(test["cmd"][0]):
        env |= {"LD_PRELOAD": clock, "LEAP_SEED": str(seed)}
    with tempfile.TemporaryFile() as out:
        process = subprocess.Popen(test["cmd"], cwd=test["workdir"], env=env, stdin=subprocess.DEVNULL, stdout=out, stderr=out)
        end = threading.Timer(LIMIT, process.kill)
        end.start()
        disturb(process, random.Random())
        end.cancel()
        status = process.wait()
        out.seek(0)
        text = out.read().decode(errors="replace")
    fine = status in (0, SKIPPED)
    print(f"seed {seed}  {test['name']}: {'ok' if fine else 'FAILED with status %d' % status}", flush=True)
    if not fine:
        print("\n".join(text.splitlines()[-60:]), flush=True)
    return fine


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--suite", action="append", metavar="NAME")
    parser.add_argument("build")
    parser.add_argument("test", nargs="*")
    args = parser.parse_args()
    known = json.loads(subprocess.run(["meson", "introspect", "--tests", args.build], check=True, capture_output=True).stdout)
    suites = set(args.suite or ([] if args.test else ["unit"]))
    tests = [t | {"workdir": t["workdir"] or args.build} for t in known
             if t["name"] in args.test or suites & {s.rpartition(":")[2] for s in t["suite"]}]
    if not tests:
        sys.exit("no such test; meson test -C BUILD --list names them")
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(2) as pool:
        clock = leaping_clock(folder)
        results = list(pool.map(lambda job: run(*job, clock),
                                [(t, args.seed + i) for i in range(args.rounds) for t in tests]))
    print(f"{results.count(True)} passed, {results.count(False)} failed")
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
