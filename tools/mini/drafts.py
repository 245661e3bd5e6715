"""Measures the drafter through lagoon itself, on the held-out prompts: drafts accepted a round, acceptance by
position, and the speed against plain decoding of the same prompts in the same run, interleaved.

  drafts.py [--lagoon BIN] [--model FILE] [--n N] [--kinds A,B] [--max LIST] [--threads T] [--mix]

With --mix the prompts are the first ones of those that the model card's figures were measured on, kinds code, chat, tools,
json, arith and text; without it they are the cases of eval.py. Accepted drafts come with the half width of their 95 %
interval: few replies say little.
Lengths 15 and 7 are fixed (no confidence cut, no measured costs), as in the model card; `auto` is the default
policy. Temperature 0. Answers must be equal in all runs, or the script ends with an error.
"""
import argparse
import json
import subprocess
import tempfile
from itertools import islice
from pathlib import Path

import a_round
import cases
import corpus
from eval import text_of
from skills.conv import render
from tokenizer import Tokenizer

ROOT = Path(__file__).resolve().parents[2]
LONGEST_ANSWER = 420
FIXED = ["--draft-p-min", "0", "--draft-pause-margin", "0"]


def ask(a, prompt, how):
    flags = ["--no-draft"] if how == "plain" else [] if how == "auto" else ["--draft-max", how, *FIXED]
    with tempfile.NamedTemporaryFile("w", suffix=".txt", encoding="utf-8") as f:
        f.write(prompt)
        f.flush()
        p = subprocess.run(
            [a.lagoon, "generate", "-m", a.model, "--raw", "-f", f.name, "--temp", "0", "-n", str(LONGEST_ANSWER)]
            + ["-t", a.threads, "--json", "-q", *flags],
            capture_output=True,
            text=True,
            check=True,
        )
    return json.loads(p.stdout)


def card_prompts(kind, n):
    """The first n (ids, text) of this kind that drafters are measured on."""
    tok = Tokenizer.load(Path(__file__).parent / "vocab.json")
    out = []
    for seed in corpus.DRAFT_TEST_SEEDS:
        some = islice(corpus.draft_prompts(tok, seed, "test"), corpus.DRAFT_TEST_EACH)
        out += [(ids, text_of(said)) for part, said, ids in some if part == kind]
    return out[:n]


def prompts(kind, n, mix):
    if mix:
        return [text for _, text in card_prompts(kind, n)]
    return [text_of(render(c, open_last=True)) for c in cases.make(kind, n)]


def row(kind, how, got, plain):
    d = [g["draft"] for g in got]
    tokens = sum(g["output_tokens"] - 1 for g in got)
    seconds = sum(g["decode_s"] for g in got)
    speed = tokens / seconds
    if how == "plain":
        return f"| {kind} | plain | {speed:.0f} | | | |", speed
    rounds = sum(x["rounds"] for x in d)
    made = sum(x["drafted"] for x in d) / max(1, rounds)
    acc, within = a_round.accepted([(x["rounds"], x["accepted"]) for x in d])
    steps = sum(x["plain"] for x in d)
    right = f"{made:.2f} / {acc:.2f} ± {within:.2f}"
    return f"| {kind} | {how} | {speed:.0f} | {speed / plain:.2f} | {right} | {rounds} + {steps} |", speed


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--lagoon", default=str(ROOT / "build" / "lagoon"))
    ap.add_argument("--model", default=str(ROOT / "models" / "mini.gguf"))
    ap.add_argument("--n", type=int, default=20)
    ap.add_argument("--kinds", default="code,chat")
    ap.add_argument("--max", default="15,7,auto")
    ap.add_argument("--threads", default="2")
    ap.add_argument("--mix", action="store_true")
    a = ap.parse_args()
    hows = ["plain", *a.max.split(",")]
    print("| held-out prompts | drafts a round | tokens a second | speed-up | verified / accepted | rounds + plain |")
    print("| --- | --- | --- | --- | --- | --- |")
    for kind in a.kinds.split(","):
        got = {h: [] for h in hows}
        for prompt in prompts(kind, a.n, a.mix):
            for h in hows:
                got[h].append(ask(a, prompt, h))
                if got[h][-1]["content"] != got["plain"][-1]["content"]:
                    raise SystemExit(f"{kind}, {h}: another answer than without drafts")
        plain = None
        for h in hows:
            text, speed = row(kind, h, got[h], plain)
            plain = plain or speed
            print(text, flush=True)


if __name__ == "__main__":
    main()
