"""Holds lagoon's drafting to PyTorch's, reply by reply, and prints drafts accepted a round (AL - 1) of both.

  acceptance.py [--lagoon BIN] [--model FILE] [--draft FILE] [--kinds A,B] [--n N] [--f32]

The prompts are those that the model card's figures are measured on (corpus.draft_prompts). lagoon answers them at
temperature 0 with 15 and with 7 drafts a round. PyTorch then drafts along the same replies in float32, with the weights of
the same files, and counts rounds and accepted drafts in its own loop. Left out, and counted, are replies that are other
tokens when their text is encoded again, and those in which lagoon gives up drafting (16 rounds without a right draft).
With --f32 lagoon, too, computes in float32: then nearly all replies take the same rounds. Ends with an error when the two
differ by more than 5 % on some kind.
"""
import argparse
import subprocess
import sys
import tempfile
from json import loads
from pathlib import Path

import torch

import a_round
import draft
import drafts
import gguf
import model as M
import tokens as tk
from agree import export
from tokenizer import Tokenizer

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
LIMIT = 420  # tokens of a reply, as in finish.py
WIDTHS = (15, 7)
MOST = 0.05  # by which the two may differ
LEAST = 200  # rounds from which on they are compared


def weights(path):
    g = gguf.Reader(str(path))
    return {n: torch.from_numpy(g.tensor(n).copy()) for n in g.types}


def answer(a, text, n):
    """lagoon's answer with n drafts a round."""
    with tempfile.NamedTemporaryFile("w", suffix=".txt", encoding="utf-8") as f:
        f.write(text)
        f.flush()
        p = subprocess.run(
            [a.lagoon, "generate", *a.files, "--raw", "-f", f.name, "--temp", "0", "-n", str(LIMIT), "-c", "2048"]
            + ["-t", "1", "--json", "-q", "--draft-max", str(n), *drafts.FIXED],
            capture_output=True,
            text=True,
            check=True,
        )
    return loads(p.stdout)


class Walker:
    """Drafts along replies that are known."""

    def __init__(self, a):
        self.cfg = M.Config()
        self.w, self.dw = weights(a.model), weights(a.draft)
        self.tables = M.rope_tables(self.cfg, 4096, "cpu")
        self.forward, self.net = M.Forward(self.cfg, False), draft.Drafter(self.cfg, self.tables[2])

    @torch.no_grad()
    def __call__(self, prompt, reply):
        """{n: (rounds, accepted)}"""
        ids = torch.tensor(prompt + reply)[None]
        doc, made = torch.zeros_like(ids), torch.zeros(ids.shape, dtype=torch.bool)
        made[0, len(prompt) :] = True
        pos, got, known = M.positions(doc), [], {}
        ropes = [(c[pos], s[pos]) for c, s in self.tables[:2]]
        self.forward(self.w, ids, ropes, M.dense_masks(doc, self.cfg.window), got)
        taps = torch.stack(got, 2)

        def count(p):
            if p not in known:
                a = torch.tensor([[p]])
                want, good = draft.labels(self.cfg, ids, doc, made, a)
                mask = draft.block_mask(self.cfg, doc, pos, a)
                x = self.net(self.dw, self.w, taps, pos, a, ids.gather(1, a), mask)
                z = (x[:, :, 1:] @ self.w["output.weight"].T).argmax(-1)
                known[p] = int(((z == want) & good).int().cumprod(-1).sum())
            return known[p]

        walks = {n: [ok for ok, _ in draft.walk(count, len(prompt), ids.shape[1], n)] for n in WIDTHS}
        return {n: (len(w), sum(w)) for n, w in walks.items()}


def measure(a, kind, tok, walker):
    """({n: [lagoon's (rounds, accepted)]}, {n: [PyTorch's]}, replies left out)"""
    ours, theirs, out = {n: [] for n in WIDTHS}, {n: [] for n in WIDTHS}, 0
    for ids, text in drafts.card_prompts(kind, a.n):
        got = {n: answer(a, text, n) for n in WIDTHS}
        if got[15]["content"] != got[7]["content"] or got[15]["prompt_tokens"] != len(ids):
            sys.exit(f"acceptance.py: {kind}: another answer with 7 drafts than with 15, or another prompt")
        reply = tok.encode_spelled(got[15]["content"])
        reply += [tk.END_ASSISTANT] if got[15]["finish"] != "length" else []
        if len(reply) != got[15]["output_tokens"] or any(got[n]["draft"]["plain"] > 0 for n in WIDTHS):
            out += 1
            continue
        walked = walker(ids, reply)
        for n in WIDTHS:
            ours[n].append((got[n]["draft"]["rounds"], got[n]["draft"]["accepted"]))
            theirs[n].append(walked[n])
    return ours, theirs, out


def main():
    ap = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    ap.add_argument("--lagoon", default=str(ROOT / "build" / "lagoon"))
    ap.add_argument("--model", default=str(ROOT / "models" / "mini.gguf"))
    ap.add_argument("--draft", default=str(ROOT / "models" / "mini-dflash.gguf"))
    ap.add_argument("--kinds", default="code,chat,arith,tools,json,text")
    ap.add_argument("--n", type=int, default=1000, help="most prompts of a kind; there are 195 to 630 (1000)")
    ap.add_argument("--f32", action="store_true", help="lagoon on float32 exports of the files, with an f32 cache")
    a = ap.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        a.files = ["-m", a.model, "--draft", a.draft]
        if a.f32:
            for i, name in ((1, "model.gguf"), (3, "draft.gguf")):
                export(gguf.Reader(a.files[i]), f"{folder}/{name}")
                a.files[i] = f"{folder}/{name}"
            a.files += ["--kv-type", "f32", "--draft-type", "stored"]
        report(a)


def report(a):
    tok, walker, far = Tokenizer.load(HERE / "vocab.json"), Walker(a), []
    print("| prompts | drafts a round | replies | rounds | lagoon | PyTorch | ratio | equal replies | left out |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- | --- |")
    for kind in a.kinds.split(","):
        ours, theirs, out = measure(a, kind, tok, walker)
        for n in WIDTHS:
            (x, dx), (y, dy) = a_round.accepted(ours[n]), a_round.accepted(theirs[n])
            rounds, same = sum(r for r, _ in ours[n]), sum(p == q for p, q in zip(ours[n], theirs[n]))
            print(f"| {kind} | {n} | {len(ours[n])} | {rounds} | {x:.2f} ± {dx:.2f} | {y:.2f} ± {dy:.2f} "
                  f"| {x / max(y, 1e-9):.4f} | {same} | {out} |", flush=True)
            if rounds >= LEAST and abs(x - y) > MOST * y:
                far.append(f"{kind} with {n} drafts")
    if far:
        sys.exit("acceptance.py: too far apart: " + ", ".join(far))


if __name__ == "__main__":
    main()
