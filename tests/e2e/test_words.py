#!/usr/bin/env python3
"""The words of the command line, for every command: help, versions, slips, files that are no models."""
import os
import re
import resource
import shutil
import signal
import struct
import subprocess
import time
import unittest

import lib
from lib import ANSWER, Case, model, run

ABSENT = ("fetch convert quantize imatrix top connect doctor bug-report config cache service completion").split()
LOADING = {  # how each command that opens a model is given FILE and the least of the rest
    "generate": lambda f: ["generate", "-m", f, "-p", "hi"],
    "chat": lambda f: ["chat", "-m", f],
    "bench": lambda f: ["bench", "-m", f, "--reps", "1"],
    "inspect": lambda f: ["inspect", f],
    "tokenize": lambda f: ["tokenize", "-m", f],
    "detokenize": lambda f: ["detokenize", "-m", f],
    "template": lambda f: ["template", "-m", f],
    "logits": lambda f: ["logits", "-m", f, "--tokens", IDS, "-o", os.path.join(lib.PLACE, "out.bin")],
    "perplexity": lambda f: ["perplexity", "-m", f, "-f", IDS],
}
IDS = os.path.join(lib.PLACE, "ids.json")
with open(IDS, "w") as ids_file:
    ids_file.write("[2, 70, 71, 72]")


def commands():
    text = run("--help").stdout.decode()
    return re.findall(r"^  ([a-z]+) ", text, re.MULTILINE)


class Words(Case):
    def test_version(self):
        r = run("--version")
        self.assertEqual((r.returncode, r.stderr), (0, b""))
        self.assertRegex(r.stdout.decode(), r"\Alagoon \d+\.\d+\.\d+ \(commit \S+\)\ndevices: .*cpu \(c.*\)")

    def test_help_of_every_command(self):
        self.assertTrue(commands())
        for name in commands():
            for flag in ("--help", "-h"):
                r = run(name, flag)
                self.assertEqual((r.returncode, r.stderr), (0, b""), name)
                self.assertTrue(r.stdout.startswith(b"usage: lagoon " + name.encode()), r.stdout[:80])
                self.assertTrue(all(len(line) <= 110 for line in r.stdout.decode().split("\n")))

    def test_help_with_a_word(self):
        for name in commands():
            self.assertEqual(run("help", name).stdout, run(name, "--help").stdout)
        self.one_line(run("help", "srve"), 2, "did you mean 'serve'")
        self.one_line(run("help", "fetch"), 2, "not in this version")
        self.assertEqual(run("help", "help").stdout, run("--help").stdout)

    def test_unknown_command(self):
        self.one_line(run("sevre"), 2, "unknown command 'sevre'; did you mean 'serve'?")
        self.one_line(run("genrate"), 2, "did you mean 'generate'?")
        self.one_line(run("xyzzy"), 2, "--help")
        self.one_line(run("\x1b[31mred\n"), 2, "unknown command '?[31mred?'")
        self.one_line(run("--frob"), 2)

    def test_absent_commands(self):
        for name in ABSENT:
            self.one_line(run(name), 2, name, "not in this version")

    def test_no_command_is_serve(self):
        self.one_line(run(), 1, "s-2.1", "--mini")
        self.one_line(run("--port", "x"), 2, "--port")
        self.one_line(run("--quite"), 2, "unknown flag '--quite' of serve", "did you mean '--quiet'?")

    def test_unknown_flag_of_every_command(self):
        for name in commands():
            self.one_line(run(name, "--quite"), 2, "unknown flag '--quite' of " + name, "did you mean '--quiet'?")
            self.one_line(run(name, "--frobnicate=3"), 2, "--frobnicate")

    def test_settings_come_from_the_environment_and_the_file(self):
        conf = os.path.join(lib.PLACE, "conf")
        os.makedirs(os.path.join(conf, "lagoon"), exist_ok=True)
        with open(os.path.join(conf, "lagoon", "lagoon.conf"), "w") as f:
            f.write(f"model = {model()}\n")
        env = {"XDG_CONFIG_HOME": conf}
        r = run("generate", "-p", "hi", env=env)
        self.assertEqual(r.stdout.decode(), ANSWER, r.stderr)
        self.one_line(run("generate", "-p", "hi", env=env | {"LAGOON_MODEL": "/none.gguf"}), 1, "/none.gguf")
        other = env | {"LAGOON_MODLE": "x"}
        r = run("generate", "-p", "hi", env=other)
        self.assertEqual(r.stderr, b"lagoon: LAGOON_MODLE is set but is no setting; did you mean LAGOON_MODEL?\n")
        self.assertEqual(run("generate", "-p", "hi", "--quiet", env=other).stderr, b"")
        with open(os.path.join(conf, "lagoon", "lagoon.conf"), "a") as f:
            f.write("kv_typ = f16\n")
        self.one_line(run("generate", "-p", "hi", env=env), 2, "lagoon.conf:2", "kv_typ", "kv_type")

    def test_init(self):
        env = {"XDG_CONFIG_HOME": os.path.join(lib.PLACE, "fresh")}
        r = run("--init", env=env)
        path = os.path.join(lib.PLACE, "fresh", "lagoon", "lagoon.conf")
        self.assertEqual((r.returncode, r.stdout.decode()), (0, path + "\n"))
        self.one_line(run("--init", env=env), 1, "fresh/lagoon/lagoon.conf", "exists", "--init --stdout")
        with open(path, "rb") as f:
            self.assertEqual(run("--init", "--stdout").stdout, f.read())
        self.one_line(run("--init", "--stdin"), 2, "--stdout")
        self.assertEqual(run("generate", "-m", model(), "-p", "hi", env=env).stdout.decode(), ANSWER)

    def test_settings_of_other_versions(self):
        """What no command takes is not in the annotated file, and serve says that a line of it does nothing."""
        self.assertNotIn(b"disk_cache", run("--init", "--stdout").stdout)
        env = {"XDG_CONFIG_HOME": os.path.join(lib.PLACE, "other")}
        os.makedirs(os.path.join(lib.PLACE, "other", "lagoon"))
        with open(os.path.join(lib.PLACE, "other", "lagoon", "lagoon.conf"), "w") as f:
            f.write("# x\ndisk_cache = yes\nctx = 100\n")
        r = run("serve", "-m", "nowhere", env=env)
        self.assertEqual(r.stderr.decode().splitlines()[0], "lagoon: lagoon.conf:2: disk_cache does nothing in this version")
        self.one_line(run("serve", "-m", "nowhere", "--quiet", env=env), 1, "nowhere")
        self.one_line(run("tokenize", "-m", "/nowhere", env=env), 1, "/nowhere")


class Models(Case):
    def each(self, path, status, *parts):
        for name in sorted(set(LOADING) & set(commands())):
            with self.subTest(command=name):
                r = run(*LOADING[name](path), stdin=b"")
                self.one_line(r, status, *parts)
                self.assertEqual(r.stdout, b"")

    def damaged(self, name, data):
        path = os.path.join(lib.PLACE, name)
        with open(path, "wb") as f:
            f.write(data)
        return path

    def test_missing_and_directory(self):
        self.each("/none/such.gguf", 1, "/none/such.gguf")
        self.each(lib.PLACE, 1, lib.PLACE, "directory")

    def test_unreadable(self):
        path = self.damaged("locked.gguf", b"GGUF")
        os.chmod(path, 0)
        if os.geteuid() != 0:
            self.each(path, 1, path, "denied")
            return
        # root reads everything, so nobody tries
        os.chmod(lib.PLACE, 0o755)
        program = os.path.join(lib.PLACE, "lagoon")
        shutil.copy(lib.PROGRAM, program)
        try:
            r = subprocess.run([program, "generate", "-m", path, "-p", "hi"], env=lib.ENV, capture_output=True, user=65534)
        except OSError as e:
            self.skipTest(f"no program can be run as somebody else here: {e}")
        self.one_line(r, 1, path, "denied")

    def test_not_a_model(self):
        self.each(self.damaged("notes.txt", b"# My notes\n" * 20), 1,
                  "notes.txt: not a GGUF file (starts with \"# My \"); see 'lagoon inspect --help'\n")
        self.each(self.damaged("empty.gguf", b""), 1, "empty.gguf")

    def test_truncated(self):
        with open(model(), "rb") as f:
            whole = f.read()
        for n in (5, 24, 300, len(whole) // 2, len(whole) - 64):
            self.each(self.damaged("cut.gguf", whole[:n]), 1, "cut.gguf")

    def test_foreign(self):
        with open(model(), "rb") as f:
            whole = f.read()
        key = b"general.architecture" + struct.pack("<IQ", 8, 6) + b"laguna"
        self.assertIn(key, whole)
        other = self.damaged("other.gguf", whole.replace(key, key[:-6] + b"llamas"))
        for name in sorted({"generate", "chat", "bench", "logits", "perplexity"} & set(commands())):
            with self.subTest(command=name):
                self.one_line(run(*LOADING[name](other)), 1, "other.gguf", "llamas")

    def test_names(self):
        home = {"HOME": os.path.join(lib.PLACE, "nobody")}
        self.one_line(run("generate", "-p", "hi", env=home), 1, "s-2.1", "--mini")
        self.one_line(run("generate", "-m", "xs-2.1", "-p", "hi", env=home), 1, "xs-2.1")
        self.one_line(run("generate", "-m", "s-2,1", "-p", "hi", env=home), 1, "did you mean 's-2.1'?")
        self.one_line(run("generate", "-m", "nothing", "-p", "hi", env=home), 1, "nothing")

    def test_two_models_at_once(self):
        self.one_line(run("inspect", model(), "-m", "mini"), 2, "one file", "mini")

    def test_names_are_found(self):
        with open(model(), "rb") as f:
            whole = f.read()
        folder = os.path.join(lib.PLACE, "models")
        hub = os.path.join(lib.PLACE, "hub", "models--poolside--Laguna-S-2.1-GGUF")
        commit = "0123456789abcdef0123456789abcdef01234567"
        os.makedirs(os.path.join(hub, "snapshots", commit))
        os.makedirs(os.path.join(hub, "snapshots", "older"))
        os.makedirs(os.path.join(hub, "refs"))
        os.makedirs(folder)
        with open(os.path.join(hub, "snapshots", commit, "laguna-s-2.1-Q4_K_M.gguf"), "wb") as f:
            f.write(whole)
        with open(os.path.join(hub, "snapshots", "older", "laguna-s-2.1-Q4_K_M.gguf"), "wb") as f:
            f.write(b"wrong")
        with open(os.path.join(hub, "refs", "main"), "w") as f:
            f.write(commit)
        env = {"HF_HUB_CACHE": os.path.join(lib.PLACE, "hub")}
        self.assertEqual(run("generate", "-p", "hi", env=env).stdout.decode(), ANSWER)
        with open(os.path.join(folder, "mini.gguf"), "wb") as f:
            f.write(whole)
        env = {"LAGOON_MODELS": folder}
        self.assertEqual(run("generate", "--mini", "-p", "hi", env=env).stdout.decode(), ANSWER)


class Writing(Case):
    @unittest.skipUnless("synth" in commands(), "no synth in this build")
    def test_synth_to_a_full_or_missing_place(self):
        self.one_line(run("synth", "--arch", "xs-2.1", "--layers", "1", "-o", "/none/x.gguf"), 1, "/none/x.gguf")
        self.one_line(run("synth", "--arch", "xs-2,1", "-o", "/none/x.gguf"), 2)
        self.one_line(run("synth", "--arch", "xs-2.1"), 2)

    @unittest.skipUnless("synth" in commands(), "no synth in this build")
    def test_synth_on_a_disk_that_fills_up(self):
        folder = os.path.join(lib.PLACE, "small")
        os.makedirs(folder)

        def small_files():  # a write past the limit fails like one to a full disk
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))

        r = run("synth", "--quiet", "--arch", "xs-2.1", "--layers", "1", "-o", os.path.join(folder, "x.gguf"),
                preexec_fn=small_files, restore_signals=False)
        self.one_line(r, 1, "x.gguf", "too large")
        self.assertEqual(os.listdir(folder), [])

    @unittest.skipUnless("synth" in commands(), "no synth in this build")
    def test_nothing_half_written_stays_after_a_signal(self):
        if shutil.disk_usage(lib.PLACE).free < 3e9:
            self.skipTest("no room for 2 GB beside what else is written")
        folder = os.path.join(lib.PLACE, "told")
        os.makedirs(folder)
        for sig in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
            for _ in range(5):  # one that is done before the signal comes shows nothing
                p = subprocess.Popen([lib.PROGRAM, "synth", "--arch", "xs-2.1", "--layers", "4", "-o",
                                      os.path.join(folder, "x.gguf")], env=lib.ENV, stdout=subprocess.PIPE,
                                     stderr=subprocess.PIPE)
                while not os.listdir(folder) and p.poll() is None:
                    time.sleep(0.005)
                p.send_signal(sig)
                out, said = p.communicate(timeout=lib.PATIENCE)
                if p.returncode != 0:
                    break
                os.unlink(os.path.join(folder, "x.gguf"))
            self.assertEqual((p.returncode, out), (130 if sig == signal.SIGINT else -sig, b""), said)
            self.assertEqual(os.listdir(folder), [])

    @unittest.skipUnless("logits" in commands(), "no logits in this build")
    def test_closed_descriptors_are_not_given_to_files(self):
        ids, whole, path = (os.path.join(lib.PLACE, n) for n in ("few.json", "whole.bin", "closed.bin"))
        with open(ids, "w") as f:
            f.write("[2, 70, 71]")
        self.assertEqual(run("logits", "-m", model(), "--tokens", ids, "-o", whole).returncode, 0)
        words = ["logits", "-m", model(), "--tokens", ids, "-c", "100000", "--log-level", "debug", "-o", path]
        r = run(*words, preexec_fn=lambda: os.closerange(0, 3))
        self.assertEqual(r.returncode, 0)
        with open(whole, "rb") as f, open(path, "rb") as g:
            self.assertEqual(f.read(), g.read())

    @unittest.skipUnless(os.path.exists("/dev/full"), "no /dev/full here")
    def test_a_file_that_may_not_grow(self):
        folder = os.path.join(lib.PLACE, "limited")
        os.makedirs(folder)
        path = os.path.join(folder, "x.bin")
        ids = os.path.join(lib.PLACE, "limited.json")
        with open(ids, "w") as f:
            f.write("[2, 70, 71]")
        r = run("logits", "-m", model(), "--tokens", ids, "-o", path,
                preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (512, 512)))
        self.one_line(r, 1, path, "cannot write: File too large")
        self.assertEqual(os.listdir(folder), [])

    def test_every_product_to_a_full_disk(self):
        for words in (["--help"], ["--version"], ["inspect", model()], ["generate", "--help"]):
            if words[0][0] != "-" and words[0] not in commands():
                continue
            with open("/dev/full", "wb") as full:
                self.one_line(run(*words, stdout=full), 1, "stdout", "No space left")


if __name__ == "__main__":
    lib.main()
