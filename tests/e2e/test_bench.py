#!/usr/bin/env python3
"""`lagoon bench`: its report, not its figures. A speed is never right or wrong here."""
import json

import lib
from lib import Case, Terminal, model, run

KEYS = ["phase", "depth", "tokens", "tok_s", "tok_s_min", "tok_s_max", "bytes_per_token", "gbs", "gops", "roofline",
        "roofline_around", "roofline_around_min", "roofline_around_max", "reps"]
QUICK = ["-t", "1", "--reps", "1", "--warmup", "0", "--prompt", "40", "--gen", "6"]


class Bench(Case):
    def report(self, *words):
        """A small model lives in a processor cache, so its run may be refused; the report comes all the same."""
        r = run("bench", "-m", model(), *QUICK, "--json", "--quiet", *words)
        if r.returncode != 0:
            self.one_line(r, 1, "of what the device can do")
        return json.loads(r.stdout)

    def test_json_keys(self):
        out = self.report("--depth", "0,100,2000")
        self.assertEqual(list(out), ["device", "model", "synthetic", "threads", "bandwidth_gbs", "compute_gops", "runs",
                                     "draft"])
        self.assertEqual((out["model"], out["synthetic"], out["draft"]), ("plain.gguf", False, None))
        self.assertGreater(out["bandwidth_gbs"], 0)
        self.assertGreater(out["compute_gops"], 0)
        self.assertEqual([(r["phase"], r["depth"], r["tokens"]) for r in out["runs"]],
                         [(p, d, n) for d in (0, 100, 2000) for p, n in (("prefill", 40), ("decode", 6))])
        for r in out["runs"]:
            self.assertEqual(list(r), KEYS)
            self.assertTrue(0 < r["tok_s_min"] <= r["tok_s"] <= r["tok_s_max"])
            self.assertAlmostEqual(r["gbs"], r["bytes_per_token"] * r["tok_s"] / 1e9, delta=r["gbs"] * 1e-3)
            over = r["gops"] / out["compute_gops"] if r["phase"] == "prefill" else r["gbs"] / out["bandwidth_gbs"]
            self.assertAlmostEqual(r["roofline"], over, delta=over * 1e-3)

    def test_ceilings_around(self):
        """Each repetition is held to the ceiling around it, which is never above the best of the run."""
        out = self.report("--reps", "3", "--depth", "0,300")
        for r in out["runs"]:
            best, achieved = (out["compute_gops"], r["gops"]) if r["phase"] == "prefill" else (out["bandwidth_gbs"], r["gbs"])
            self.assertEqual(len(r["reps"]), 3)
            for rep in r["reps"]:
                self.assertEqual(list(rep), ["tok_s", "ceiling", "roofline"])
                self.assertTrue(0 < rep["ceiling"] <= best * 1.001)
                self.assertAlmostEqual(rep["roofline"] * rep["ceiling"], achieved * rep["tok_s"] / r["tok_s"],
                                       delta=achieved * rep["tok_s"] / r["tok_s"] * 1e-3)
            ratios = sorted(rep["roofline"] for rep in r["reps"])
            self.assertEqual([r["roofline_around_min"], r["roofline_around"], r["roofline_around_max"]], ratios)
            self.assertEqual(r["tok_s"], sorted(rep["tok_s"] for rep in r["reps"])[1])

    def test_bytes_follow_depth_and_type(self):
        """One layer of the model sees everything, the other a window of 512; a position takes 256 bytes of f16 in each."""
        runs = {t: self.report("--depth", "0,2000,3000", "--kv-type", t, "--prompt", "0", "--phases")["runs"]
                for t in ("f16", "f32")}
        decode = {(t, r["depth"]): r["bytes_per_token"] for t in runs for r in runs[t]}
        self.assertEqual(decode["f16", 3000] - decode["f16", 2000], 1000 * 256)
        self.assertEqual(decode["f32", 3000] - decode["f32", 2000], 1000 * 512)
        mean = sum(range(1, 7)) / 6  # positions that six tokens from nothing see
        self.assertAlmostEqual(decode["f16", 2000] - decode["f16", 0], 2000 * 256 + (512 - mean) * 256, delta=1)

        for r in runs["f16"]:
            self.assertEqual(list(r), KEYS + ["seconds"])
            self.assertTrue({"linear", "attention", "moe"} <= set(r["seconds"]))
            self.assertGreater(sum(r["seconds"].values()), 0)

    def test_table(self):
        r = run("bench", "-m", model(), *QUICK, "--quiet")
        text = r.stdout.decode()
        self.assertIn("of ceiling", text)
        self.assertIn("around it (min to max)", text)
        self.assertEqual(len([line for line in text.split("\n") if line.startswith(("prefill ", "decode "))]), 2)

    def test_words(self):
        for words, part in ((["--depth", "0,x"], "--depth"), (["--depth", ""], "--depth"), (["--depth", "1,,2"], "--depth"),
                            (["--prompt", "0", "--gen", "0"], "nothing to measure"), (["--layers", "2"], "--synthetic"),
                            (["--synthetic", "xl"], "s-2.1"), (["--synthetic", "xs-2.1"], "are two"),
                            (["--reps", "0"], "--reps")):
            self.one_line(run("bench", "-m", model(), *words), 2, part)
        self.one_line(run("bench", "-m", model(), *QUICK, "-c", "128", "--depth", "200"), 1, "--ctx is 128")

    def test_interrupt(self):
        t = Terminal("bench", "-m", model(), "--warmup", "60")
        t.expect("measuring")
        t.send("\x03")
        self.assertEqual(t.wait(), 130)
        self.assertNotIn(b"lagoon:", t.seen)


if __name__ == "__main__":
    lib.main()
