#!/usr/bin/env python3
"""A drafter beside a model is found, used and measured, in figures of a run and of a server; one that does not fit is
named, and is no obstacle.

Run as test_drafting.py PROGRAM SOURCE_TREE: the demonstration pair and a drafter for another model come from there.
"""
import json
import os
import re
import struct
import sys

ROOT = sys.argv.pop(2)

import lib
import scripted
from lib import Case, run
from web import Server

MODELS = os.path.join(ROOT, "models")
MINI = os.path.join(MODELS, "mini.gguf")
DRAFTER = os.path.join(MODELS, "mini-dflash.gguf")
OTHER = os.path.join(ROOT, "tests", "golden", "laguna-tiny-s-dflash.gguf")
CODE = "Write a Python function that adds two numbers."
ASK = {"messages": [{"role": "user", "content": CODE}], "sampling": {"temperature": 0}}


def bytes_of(path):
    with open(path, "rb") as f:
        return f.read()


def damaged():
    """Drafters that no model can use, and what a refusal says of each besides the file."""
    whole = bytes_of(DRAFTER)
    key = struct.pack("<Q", 20) + b"dflash.target_layers" + struct.pack("<IIQ", 9, 5, 3)
    taps, late = (key + struct.pack("<3i", *ids) for ids in ((2, 6, 10), (2, 6, 11)))
    assert whole.count(taps) == 1
    # what converters have left out: of the S drafter 7 of 76 tensors, of this one 4 of 40
    forgotten = {"enc.aux_norm.weight"} | {f"blk.{i}.attn_gate.weight" for i in range(3)}
    return {"other": (bytes_of(OTHER), "another model"), "half": (whole[:1 << 20], "behind the end of the file"),
            "forgotten": (scripted.without(whole, forgotten), "tensor enc.aux_norm.weight is missing"),
            "gates": (scripted.without(whole, {"blk.2.attn_gate.weight"}), "tensor blk.2.attn_gate.weight is missing"),
            "late": (whole.replace(taps, late), "names layer 11"), "head": (b"GGUF", "")}


def ask(*words, model=MINI, text=CODE):
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
                      ["--draft-ctx", "8"], ["--draft-ctx", "56"], ["--draft-type", "stored"]):
            out = json.loads(ask(*words, "--draft-pause-margin", "0").stdout)
            d = out["draft"]
            self.assertEqual(out["content"], json.loads(ask("--no-draft").stdout)["content"])
            if words[0] == "--draft-max":
                self.assertLessEqual(d["drafted"], int(words[1]) * d["rounds"])
                self.assertLessEqual(len(d["by_position"]), int(words[1]))
            if words[0] == "--draft-ctx": # none behind it, and none before it stops what comes behind
                self.assertEqual(d["rounds"] > 0, int(words[1]) > out["prompt_tokens"])
                self.assertGreater(d["plain"], 0)

    def test_beside_every_quantization(self):
        r = ask(model=self.place(bytes_of(DRAFTER)))
        self.assertGreater(json.loads(r.stdout)["draft"]["rounds"], 0)

    def test_named_when_asked_for(self):
        for name, (data, why) in damaged().items():
            path = os.path.join(lib.PLACE, f"named-{name}.gguf")
            with open(path, "wb") as f:
                f.write(data)
            self.one_line(ask("--draft", path), 1, path, why)
            r = run("serve", "-m", MINI, "--port", "0", "--log-level", "error", "--draft", path)
            self.assertEqual(r.returncode, 1, r.stderr)
            self.assertIn(f"lagoon: {path}: ".encode(), r.stderr)
            self.assertIn(why.encode(), r.stderr)
        self.one_line(ask("--draft", "/nowhere/d.gguf"), 1, "/nowhere/d.gguf")
        self.one_line(ask("--draft", MINI), 1, "mini.gguf", "no drafter")

    def test_no_obstacle_when_found(self):
        want = json.loads(ask("--no-draft").stdout)["content"]
        for data, why in damaged().values():
            model = self.place(data)
            r = ask(model=model)
            self.assertEqual(r.returncode, 0, r.stderr)
            self.assertEqual(json.loads(r.stdout)["content"], want)
            self.assertIsNone(json.loads(r.stdout)["draft"])
            for part in (b"tiny-DFlash-BF16.gguf", b"without a drafter", why.encode()):
                self.assertIn(part, r.stderr)

    def test_served_without(self):
        for name, (data, why) in damaged().items():
            with self.subTest(name), Server(self.place(data)) as s:
                self.assertRegex(s.log(), rf"warn draft unusable \S*tiny-DFlash-BF16\.gguf: .*{re.escape(why)}")
                self.assertRegex(s.log(), r"engine ready .* draft=no")
                r = s.post("/lagoon/v1/generate", dict(ASK, max_tokens=20))
                self.assertEqual(r.status, 200, r.body)
                self.assertIsNone(r.json()["timings"]["draft_accept_rate"])
                self.assertEqual(s.metric("lagoon_draft_tokens_total"), 0)

    def test_pauses(self):
        """Drafting stops where a token may cost a twentieth of a plain one only."""
        always, cheap = (json.loads(ask("--draft-pause-margin", m).stdout) for m in ("0", "0.05"))
        self.assertEqual((always["draft"]["paused"], always["draft"]["plain"]), (False, 0))
        self.assertTrue(cheap["draft"]["paused"])
        self.assertLess(cheap["draft"]["rounds"], cheap["draft"]["plain"])
        self.assertEqual(cheap["content"], always["content"])

    def test_figures_of_a_server(self):
        """The same share of accepted drafts in the answer, the log, the status and the counters."""
        with Server(MINI, "--draft-pause-margin", "0") as s:
            self.assertRegex(s.log(), r"engine ready .* draft=yes")
            rate = s.post("/lagoon/v1/generate", ASK).json()["timings"]["draft_accept_rate"]
            s.wait_settled()
            self.assertTrue(0 < rate <= 1)
            self.assertIn(f" accept={rate:.2f} ", s.log())
            self.assertAlmostEqual(s.status()["requests"][0]["accept"], rate, 3)
            made, right = (s.metric(f"lagoon_draft_{word}_total") for word in ("tokens", "accepted"))
            self.assertAlmostEqual(right / made, rate, 3)
            timings = s.post("/v1/chat/completions", {"messages": ASK["messages"], "temperature": 0}).json()["timings"]
            s.wait_settled()
            self.assertEqual(s.metric("lagoon_draft_tokens_total"), made + timings["draft_n"])
            self.assertEqual(s.metric("lagoon_draft_accepted_total"), right + timings["draft_n_accepted"])
            self.assertEqual(len(re.findall(r" http done .* accept=0\.\d\d ", s.log())), 2)

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
