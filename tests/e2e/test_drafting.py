#!/usr/bin/env python3
"""A drafter beside a model is found, used and measured; one that does not fit is named, and is no obstacle.

Run as test_drafting.py PROGRAM SOURCE_TREE: the demonstration pair and a drafter for another model come from there.
"""
import json
import os
import sys

ROOT = sys.argv.pop(2)

import lib
from lib import Case, run

MODELS = os.path.join(ROOT, "models")
MINI = os.path.join(MODELS, "mini.gguf")
OTHER = os.path.join(ROOT, "tests", "golden", "laguna-tiny-s-dflash.gguf")


def ask(*words, model=MINI, text="Write a Python function that adds two numbers."):
    return run("generate", "-m", model, "-p", text, "--temp", "0", "-n", "200", "--json", *words)


class Drafting(Case):
    def place(self, drafter):
        """A folder with the model and this drafter beside it."""
        folder = os.path.join(lib.PLACE, f"pair{len(os.listdir(lib.PLACE))}")
        os.makedirs(folder)
        os.symlink(MINI, os.path.join(folder, "tiny-Q4_K_M.gguf"))
        with open(os.path.join(folder, "tiny-DFlash-BF16.gguf"), "wb") as f:
            f.write(drafter)
        return os.path.join(folder, "tiny-Q4_K_M.gguf")

    def bytes_of(self, path):
        with open(path, "rb") as f:
            return f.read()

    def test_found_and_used(self):
        plain, drafted = (json.loads(ask(*w).stdout) for w in (["--no-draft"], ["--draft-pause-margin", "0"]))
        self.assertIsNone(plain["draft"])
        d = drafted["draft"]
        self.assertGreater(d["rounds"], 0)
        self.assertGreaterEqual(d["drafted"], d["accepted"])
        self.assertGreater(d["accepted"], 0)
        self.assertEqual(plain["content"], drafted["content"])
        self.assertEqual(plain["output_tokens"], drafted["output_tokens"])

    def test_same_under_a_schema(self):
        schema = os.path.join(lib.PLACE, "person.json")
        with open(schema, "w", encoding="utf-8") as f:
            json.dump({"type": "object", "required": ["name", "age", "tags"], "additionalProperties": False,
                       "properties": {"name": {"type": "string", "maxLength": 20}, "age": {"type": "integer"},
                                      "tags": {"type": "array", "maxItems": 4, "items": {"enum": ["red", "green"]}}}}, f)
        for temp in ("0", "0.9"):
            words = ["--json-schema", schema, "--temp", temp, "--seed", "5"]
            plain = json.loads(ask(*words, "--no-draft", text="A person as JSON, please.").stdout)
            drafted = json.loads(ask(*words, "--draft-pause-margin", "0", text="A person as JSON, please.").stdout)
            self.assertEqual(plain["content"], drafted["content"])
            self.assertEqual(sorted(json.loads(plain["content"])), ["age", "name", "tags"])

    def test_limits_hold(self):
        for words in (["--draft-max", "3", "--draft-p-min", "0"], ["--draft-max", "1"], ["--draft-p-min", "1"],
                      ["--draft-ctx", "8"], ["--draft-type", "stored"]):
            out = json.loads(ask(*words, "--draft-pause-margin", "0").stdout)
            d = out["draft"]
            self.assertEqual(out["content"], json.loads(ask("--no-draft").stdout)["content"])
            if words[0] == "--draft-max":
                self.assertLessEqual(d["drafted"], int(words[1]) * d["rounds"])
                self.assertLessEqual(len(d["by_position"]), int(words[1]))
            if words[0] == "--draft-ctx":
                self.assertEqual(d["rounds"], 0)

    def test_beside_every_quantization(self):
        r = ask(model=self.place(self.bytes_of(os.path.join(MODELS, "mini-dflash.gguf"))))
        self.assertGreater(json.loads(r.stdout)["draft"]["rounds"], 0)

    def test_named_when_asked_for(self):
        half = os.path.join(lib.PLACE, "half.gguf")
        with open(half, "wb") as f:
            f.write(self.bytes_of(os.path.join(MODELS, "mini-dflash.gguf"))[: 1 << 20])
        self.one_line(ask("--draft", OTHER), 1, "laguna-tiny-s-dflash.gguf", "another model")
        self.one_line(ask("--draft", half), 1, "half.gguf")
        self.one_line(ask("--draft", "/nowhere/d.gguf"), 1, "/nowhere/d.gguf")
        self.one_line(ask("--draft", MINI), 1, "mini.gguf", "no drafter")

    def test_no_obstacle_when_found(self):
        for bad in (self.bytes_of(OTHER), self.bytes_of(OTHER)[:100000], b"GGUF"):
            r = ask(model=self.place(bad))
            self.assertEqual(r.returncode, 0, r.stderr)
            self.assertIsNone(json.loads(r.stdout)["draft"])
            self.assertIn(b"without a drafter", r.stderr)

    def test_plan(self):
        plan = json.loads(run("inspect", MINI, "--plan", "--json").stdout)["plan"]
        alone = json.loads(run("inspect", MINI, "--plan", "--json", "--no-draft").stdout)["plan"]
        self.assertEqual(alone["draft_bytes"], 0)
        self.assertGreater(plan["draft_bytes"], os.path.getsize(os.path.join(MODELS, "mini-dflash.gguf")))
        self.assertGreater(plan["total_bytes"], alone["total_bytes"] + plan["draft_bytes"] // 2)

    def test_stats(self):
        r = run("generate", "-m", MINI, "-p", "What is 3 + 4?", "--temp", "0", "--stats")
        self.assertIn(b"drafting ", r.stderr)
        r = run("generate", "-m", MINI, "-p", "What is 3 + 4?", "--temp", "0", "--stats", "--no-draft")
        self.assertNotIn(b"drafting ", r.stderr)

    def test_bench(self):
        """The report of a pair: costs by width, what makes them worth it, acceptance and speed-up of real replies."""
        r = run("bench", "-m", MINI, "-t", "1", "--prompt", "0", "--gen", "24", "--reps", "1", "--warmup", "0", "--json",
                "--quiet")
        d = json.loads(r.stdout)["draft"]
        self.assertEqual(d["n"], 15)
        self.assertEqual([w["n"] for w in d["widths"]], [1, 2, 3, 4, 5, 7, 11, 15])
        for w in d["widths"]:
            self.assertGreater(min(w["draft_us"], w["verify_us"], d["plain_us"]), 0)
            cost = (w["draft_us"] + w["verify_us"]) / d["plain_us"]
            self.assertAlmostEqual(w["break_even"], cost, delta=cost * 1e-4)
        self.assertTrue(1 < d["al"] <= 16)
        self.assertTrue(all(0 <= p <= 1 for p in d["by_position"]) and d["by_position"])
        self.assertGreater(min(d["speedup"], d["speedup_fixed"]), 0)


if __name__ == "__main__":
    lib.main()
