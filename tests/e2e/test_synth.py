#!/usr/bin/env python3
"""`lagoon synth`: files that load, words that are wrong, and nothing left behind when it does not finish."""
import json
import os
import resource
import shutil
import signal
import subprocess
import time
import unittest

import lib
from lib import Case, PLACE, PROGRAM, run

SMALL = ("synth", "--arch", "xs-2.1-dflash", "--layers", "1", "--type", "q4_0")  # 53 MB


class Synth(Case):
    def setUp(self):
        self.dir = os.path.join(PLACE, "synth")
        os.makedirs(self.dir, exist_ok=True)
        self.path = os.path.join(self.dir, "m.gguf")

    def tearDown(self):
        for name in os.listdir(self.dir):
            os.unlink(os.path.join(self.dir, name))

    @staticmethod
    def worked():
        """Seconds that programs have computed for us: how busy the machine is does not count."""
        r = resource.getrusage(resource.RUSAGE_CHILDREN)
        return r.ru_utime + r.ru_stime

    def test_drafter(self):
        r = run(*SMALL, "-o", self.path, "--json")
        out = json.loads(r.stdout)
        self.assertEqual((r.returncode, out["file"], out["tensors"]), (0, self.path, 16))
        shown = json.loads(run("inspect", self.path, "--json").stdout)
        self.assertEqual(shown["n_tensors"], 16)
        self.assertEqual(sum(t["bytes"] for t in shown["types"].values()), out["tensor_bytes"])
        self.assertEqual(shown["metadata"]["dflash.target_layers"], [2, 14, 26, 34, 40])
        self.assertEqual(shown["metadata"]["dflash.attention.sliding_window"], 512)
        self.assertEqual(os.listdir(self.dir), ["m.gguf"])

    def test_same_seed_same_file(self):
        other = os.path.join(self.dir, "n.gguf")
        self.assertEqual(run(*SMALL, "-o", self.path, "-t", "1").returncode, 0)
        self.assertEqual(run(*SMALL, "-o", other, "-t", "3").returncode, 0)
        self.assertEqual(subprocess.run(["cmp", self.path, other]).returncode, 0)
        self.assertEqual(run(*SMALL, "-o", other, "--seed", "2").returncode, 0)
        self.assertEqual(subprocess.run(["cmp", "-s", self.path, other]).returncode, 1)

    def test_model_is_a_model(self):
        # one layer of XS: 290 MB; the shape, the tokenizer and the weights pass everything that loading checks
        r = run("synth", "--arch", "xs-2.1", "--layers", "1", "-o", self.path, "--quiet")
        self.assertEqual((r.returncode, r.stderr), (0, b""))
        shown = json.loads(run("inspect", self.path, "--json").stdout)
        self.assertEqual((shown["configuration"]["hidden"], shown["configuration"]["context"]), (2048, 262144))
        self.assertEqual(shown["configuration"]["rope"]["full"]["beta_fast"], 64)
        before = self.worked()
        r = run("inspect", self.path, "--plan", "--ctx", "16777216", "--kv-type", "f32")  # 137 GB
        if b": fits" not in r.stdout:
            self.one_line(r, 1, "needs 13", "weights 0.3, kv 137", "available", "use --ctx")
            self.assertLess(self.worked() - before, 1 if "ASAN_OPTIONS" not in lib.ENV else 20)
        r = run("generate", "-m", self.path, "-p", "hi", "-n", "2", "--no-think", "-c", "4096", "--json")
        self.assertEqual((r.returncode, json.loads(r.stdout)["output_tokens"]), (0, 2), r.stderr)

    def test_words(self):
        for words, *parts in ((("--arch", "xs-2.1"), "-o FILE"), (("-o", self.path), "--arch"),
                              (("--arch", "m-1", "-o", self.path), "--arch"),
                              (("--arch", "xs-2.1", "--type", "q9", "-o", self.path), "unknown type q9", "q4_k_m"),
                              (("--arch", "xs-2.1", "--layers", "41", "-o", self.path), "1 to 40")):
            self.one_line(run("synth", *words), 2, *parts)
        self.one_line(run(*SMALL, "-o", "/nonexistent-folder/m.gguf"), 1, "/nonexistent-folder/m.gguf")
        self.one_line(run(*SMALL, "-o", self.dir), 1, "directory")
        self.assertEqual(os.listdir(self.dir), [])

    def test_disk_too_small(self):
        stat = os.statvfs(self.dir)
        if stat.f_bavail * stat.f_frsize > 400e9:
            self.skipTest("there may be room for it")
        r = run("synth", "--arch", "s-2.1", "--type", "f32", "-o", self.path)  # 470 GB
        self.one_line(r, 1, "470", "free")
        self.assertEqual(os.listdir(self.dir), [])

    def test_interrupted(self):
        if shutil.disk_usage(self.dir).free < 2e9:
            self.skipTest("no room for 1 GB beside what else is written")
        for _ in range(5):  # one that is done before the signal comes shows nothing
            p = subprocess.Popen([PROGRAM, "synth", "--arch", "xs-2.1", "--layers", "2", "-o", self.path],
                                 env=lib.ENV, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
            while not os.listdir(self.dir) and p.poll() is None:
                time.sleep(0.01)
            p.send_signal(signal.SIGINT)
            out, err = p.communicate(timeout=lib.PATIENCE)
            if p.returncode != 0:
                break
            os.unlink(self.path)
        self.assertEqual((p.returncode, out), (130, b""), err)
        self.assertEqual(os.listdir(self.dir), [])


if __name__ == "__main__":
    lib.main()
