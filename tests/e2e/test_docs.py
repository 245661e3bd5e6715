#!/usr/bin/env python3
"""The `sh` blocks of docs/commands.md run as they stand, with the demonstration model of the source tree; and what the
documents say is installed, is."""
import json
import os
import re
import subprocess
import sys

ROOT = sys.argv.pop(2)

import lib
from lib import Case


class Docs(Case):
    def test_blocks(self):
        folder = os.path.join(lib.PLACE, "docs")
        os.makedirs(folder)
        env = lib.ENV | {"PATH": folder + os.pathsep + lib.ENV["PATH"], "LAGOON_MODELS": os.path.join(ROOT, "models")}
        os.symlink(lib.PROGRAM, os.path.join(folder, "lagoon"))
        with open(os.path.join(ROOT, "docs", "commands.md")) as f:
            blocks = re.findall(r"^```sh\n(.*?)^```$", f.read(), re.MULTILINE | re.DOTALL)
        self.assertGreaterEqual(len(blocks), 5)
        for block in blocks:
            for line in block.strip().split("\n"):
                with self.subTest(line=line):
                    r = subprocess.run(["/bin/sh", "-c", line], cwd=folder, env=env, capture_output=True, timeout=900,
                                       stdin=subprocess.DEVNULL)
                    self.assertEqual(r.returncode, 0, r.stderr.decode())
                    self.assertTrue(r.stdout or ">" in line or "-o " in line)

    def test_what_is_installed(self):
        plan = os.path.join(os.path.dirname(lib.PROGRAM), "meson-info", "intro-installed.json")
        if not os.path.exists(plan):
            self.skipTest("no plan of an installation beside the program")
        with open(plan) as f:
            places = list(json.load(f).values())
        for end in ("/bin/lagoon", "/share/lagoon/models/mini.gguf", "/share/lagoon/models/mini-dflash.gguf", "/lagoon.1"):
            self.assertEqual(len([p for p in places if p.endswith(end)]), 1, places)


if __name__ == "__main__":
    lib.main()
