"""Stage 1: trains the model on the corpus.   train.py OUT_DIR [--seconds S] [--rows N] [--length T] [--tiny]

The learning rate falls to zero at the end of the time given, so the time is part of the recipe. Over the last
part the weights are quantized in every forward pass as they will be in the file. Selection biases move by the
sign of each expert's load error (no auxiliary loss). Writes checkpoint.pt and log.txt.
"""
import argparse
import multiprocessing as mp
import queue
import threading
import time
import traceback
from pathlib import Path

import numpy as np
import torch

import model as M
from optim import Optimizer

QAT_FROM = 0.75


def produce(vocab, seed, length, out):
    """A worker's rows. A generator that fails is reported, and its worker goes on from another seed."""
    from corpus import rows
    from tokenizer import Tokenizer

    tok = Tokenizer.load(vocab)
    while True:
        try:
            for row in rows(tok, seed, length):
                out.put(row)
        except Exception:
            traceback.print_exc()
            seed += 1_000_003


class Loader:
    """Batches from worker processes, taken in turn so that the order does not depend on their speed."""

    def __init__(self, vocab, seed, length, rows, workers, device):
        ctx = mp.get_context("fork")
        self.queues, self.procs = [], []
        for i in range(workers):
            q = ctx.Queue(8)
            p = ctx.Process(target=produce, args=(vocab, seed * 1000 + i, length, q), daemon=True)
            p.start()
            self.queues.append(q)
            self.procs.append(p)
        self.rows, self.device, self.turn = rows, device, 0
        self.ready = queue.Queue(4)
        self.stop = False
        self.thread = threading.Thread(target=self._fill, daemon=True)
        self.thread.start()

    def _row(self):
        q = self.queues[self.turn % len(self.queues)]
        self.turn += 1
        return q.get()

    def _fill(self):
        while not self.stop:
            got = [self._row() for _ in range(self.rows)]
            batch = [
                torch.from_numpy(np.stack(x).astype(t))
                for x, t in zip(zip(*got), (np.int64, np.float32, np.int32))
            ]
            if self.device != "cpu":
                batch = [b.pin_memory() for b in batch]
            while not self.stop:
                try:
                    self.ready.put(batch, timeout=1)
                    break
                except queue.Full:
                    pass

    def next(self):
        return [b.to(self.device, non_blocking=True) for b in self.ready.get()]

    def close(self):
        self.stop = True
        for p in self.procs:
            p.terminate()


def targets(ids, weight, doc):
    """Next tokens, and their weights: none where the document ends."""
    nxt = torch.roll(ids, -1, 1)
    w = torch.roll(weight, -1, 1) / 200
    same = torch.roll(doc, -1, 1) == doc
    same[:, -1] = False
    return nxt, w * same


def schedule(progress, warm, peak):
    return peak * min(1.0, warm) * max(0.0, 1 - progress)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("out", type=Path)
    ap.add_argument("--seconds", type=float, default=780)
    ap.add_argument("--rows", type=int, default=4)
    ap.add_argument("--length", type=int, default=16384)
    ap.add_argument("--lr", type=float, default=3e-3)
    ap.add_argument("--seed", type=int, default=1)
    ap.add_argument("--workers", type=int, default=13)
    ap.add_argument("--vocab", default=str(Path(__file__).with_name("vocab.json")))
    ap.add_argument("--tiny", action="store_true")
    ap.add_argument("--device", default="cuda")
    ap.add_argument("--qat-from", type=float, default=QAT_FROM)
    a = ap.parse_args()
    a.out.mkdir(parents=True, exist_ok=True)
    cpu = a.device == "cpu"
    loader = Loader(a.vocab, a.seed, a.length, a.rows, a.workers, a.device)
    cfg = M.tiny() if a.tiny else M.Config()
    params = M.init(M.shapes(cfg), cfg.layers, a.seed, a.device)
    for name, p in params.items():
        p.requires_grad_(not name.endswith("exp_probs_b.bias"))
    biases = [params[f"blk.{i}.exp_probs_b.bias"] for i in range(1, cfg.layers)]
    opt = Optimizer(params)
    fwd = M.Forward(cfg, not cpu)
    loss_of = M.token_loss if cpu else torch.compile(M.token_loss, dynamic=False)
    tables = M.rope_tables(cfg, a.length, a.device)[:2]
    build = None if cpu else M.BlockMasks(a.rows, a.length, cfg.window, a.device)
    dtype = torch.float32 if cpu else torch.bfloat16
    log = open(a.out / "log.txt", "w", buffering=1)
    step, tokens, seen, t0, mark = 0, 0, [], None, time.time()
    while True:
        ids, weight, doc = loader.next()
        if t0 is None and step == 3:  # the first steps compile
            t0 = time.time()
            log.write(f"compiled after {t0 - mark:.0f} s\n")
        progress = 0.0 if t0 is None else (time.time() - t0) / a.seconds
        if progress >= 1:
            break
        pos = M.positions(doc)
        masks = M.dense_masks(doc, cfg.window) if cpu else build(doc)
        ropes = [(c[pos], s[pos]) for c, s in tables]
        nxt, w = targets(ids, weight, doc)
        eff = M.effective(params, progress >= a.qat_from, dtype)
        x, loads = fwd(eff, ids, ropes, masks)
        loss = loss_of(x, eff["output_norm.weight"], eff["output.weight"], nxt, w)
        loss.backward()
        opt.step(schedule(progress, (step + 1) / 100, a.lr))
        with torch.no_grad():
            share = loads / loads.sum(1, keepdim=True) * cfg.experts
            rate = 2e-3 * max(0.0, 1 - progress)
            for b, s in zip(biases, share):
                b.add_(torch.sign(1 - s), alpha=rate)
        step += 1
        tokens += ids.numel()
        seen.append(loss.detach())
        if step % 50 == 0 or step <= 5:
            dt = time.time() - (t0 or mark)
            log.write(
                f"step {step} loss {torch.stack(seen).mean():.4f} tokens {tokens / 1e6:.1f}M {dt:.0f} s "
                f"{tokens / dt / 1e3:.0f}k tokens/s load {share.min():.2f}..{share.max():.2f} queue {loader.ready.qsize()}\n"
            )
            seen = []
    loader.close()
    torch.save(
        {
            "params": {k: v.detach().cpu() for k, v in params.items()},
            "config": cfg,
            "tokens": tokens,
            "steps": step,
        },
        a.out / "checkpoint.pt",
    )
    log.write(f"done: {step} steps, {tokens / 1e6:.1f}M tokens\n")


if __name__ == "__main__":
    main()
