"""Stage 3: from a checkpoint to files.   finish.py DIR [--draft-seconds S] [--n CASES] [--long CASES] [--docs N]
[--device cpu]

Reads DIR/checkpoint.pt; writes DIR/mini.gguf, DIR/mini-dflash.gguf, DIR/results.json (accuracy of file and
checkpoint on the same cases, with standard errors, perplexity, acceptance) and DIR/replies.json (every answer,
to be scored again where compilers are).
"""
import argparse
import json
import multiprocessing as mp
import random
import time
from itertools import islice
from pathlib import Path

import numpy as np
import torch

import a_round
import cases
import corpus
import draft
import export
import model as M
from generate import Decoder
from tokenizer import Tokenizer

HERE = Path(__file__).parent
ANSWER_MAX, CTX = 420, 1024


def load_checkpoint(path):
    kw = {} if torch.__version__ < "1.14" else {"weights_only": False}
    return torch.load(path, map_location="cpu", **kw)


def prompts_of(args):
    """n (part, prompt ids) of the split."""
    seed, split, n = args
    some = islice(corpus.draft_prompts(Tokenizer.load(HERE / "vocab.json"), seed, split), n)
    return [(part, ids) for part, _, ids in some]


def held_out_rows(args):
    tok, seed, n, length = args
    it, out = corpus.documents(tok, seed, "test", 1500), []
    row = [], [], []
    while len(out) < n:
        ids, w = next(it)
        if len(ids) > length:
            continue
        if len(row[0]) + len(ids) > length:
            pad = length - len(row[0])
            out.append([np.array(x + [f] * pad) for x, f in zip(row, (9, 0.0, 1 << 20))])
            row = [], [], []
        for x, y in zip(row, (ids.tolist(), w.tolist(), [len(row[0])] * len(ids))):
            x.extend(y)
    return [np.stack(x) for x in zip(*out)]


@torch.no_grad()
def perplexity(fwd, w, rows, tables, device, at_once=16):
    """exp of the mean loss over answer tokens."""
    total = count = 0.0
    for i in range(0, len(rows[0]), at_once):
        ids, weight, doc = (torch.from_numpy(x[i : i + at_once]).to(device) for x in rows)
        pos = M.positions(doc)
        x, _ = fwd(w, ids, [(c[pos], s[pos]) for c, s in tables], M.dense_masks(doc, fwd.cfg.window))
        nxt = torch.roll(ids, -1, 1)
        good = (torch.roll(weight, -1, 1) > 0.9) & (torch.roll(doc, -1, 1) == doc)
        good[:, -1] = False
        z = M.logits(w, x).float().flatten(0, 1)
        nll = torch.nn.functional.cross_entropy(z, nxt.flatten(), reduction="none")
        total += (nll * good.flatten()).sum().item()
        count += good.sum().item()
    return float(np.exp(total / max(1, count)))


def cases_of(args):
    """A kind's cases, each with its prompt's ids."""
    kind, n = args
    tok = Tokenizer.load(HERE / "vocab.json")
    return [(c, cases.prompt(tok, c)) for c in cases.make(kind, n)]


def scored(args):
    return cases.score(*args)


def answers(cfg, w, sets, device, batch, ctx):
    """{kind: [ids]} for the kinds whose cases fit."""
    flat = [(k, i, p, cases.LIMIT.get(k, 160)) for k, cs in sets.items() for i, (_, p) in enumerate(cs)]
    flat.sort(key=lambda f: f[3])
    dec = Decoder(cfg, w, min(batch, len(flat)), ctx, device)
    out = {k: [None] * len(cs) for k, cs in sets.items()}
    for lo in range(0, len(flat), dec.batch):
        part = flat[lo : lo + dec.batch]
        for (k, i, _, _), ids in zip(part, dec.run([f[2] for f in part], [f[3] for f in part])):
            out[k][i] = ids
    return out


def evaluate(cfg, w, tok, sets, device, pool):
    """(replies by kind, with marks) of every case; None marks what this machine cannot run."""
    short = {k: cs for k, cs in sets.items() if "retrieval" not in k}
    got = answers(cfg, w, short, device, 1024, 2304)
    for k in sets.keys() - short.keys():
        ctx = 2560 if "2k" in k else 9216 if "8k" in k else 16384
        got.update(answers(cfg, w, {k: sets[k]}, device, 64, ctx))
    replies = {}
    for k, cs in sets.items():
        said = [(k, c, *cases.reply_of(tok, ids, c.thinking)) for (c, _), ids in zip(cs, got[k])]
        marks = pool.map(scored, said, chunksize=4)
        replies[k] = [{"ids": ids, "ok": ok} for ids, ok in zip(got[k], marks)]
    return replies


def rates(replies):
    """{kind: [share right, its standard error, cases that could be scored]}"""
    out = {}
    for k, rs in replies.items():
        marks = [r["ok"] for r in rs if r["ok"] is not None]
        p, n = sum(marks) / max(1, len(marks)), max(1, len(marks))
        out[k] = [p, (p * (1 - p) / n) ** 0.5, len(marks)]
    return out


def differences(file, checkpoint):
    """{kind: [file minus checkpoint, the standard error of that, cases on which they differ]}, on the same cases."""
    out = {}
    for k in file:
        d = [
            a["ok"] - b["ok"]
            for a, b in zip(file[k], checkpoint[k])
            if a["ok"] is not None and b["ok"] is not None
        ]
        n, mean = max(1, len(d)), sum(d) / max(1, len(d))
        out[k] = [mean, (max(0.0, sum(x * x for x in d) / n - mean * mean) / n) ** 0.5, sum(map(abs, d))]
    return out


def drafter(a, cfg, w, tok, fwd, tables, log, pools):
    """Trains on the file's own answers, then measures on held-out ones."""
    train_set, test_set = pools
    t = time.time()

    def own(pairs):
        """The file's greedy answers; short prompts decode in smaller caches, long answers apart from short
        ones."""
        out = []
        for ctx, lo, hi in ((640, 0, 220), (CTX, 220, corpus.DRAFT_PROMPT_MAX)):
            some = sorted((p for p in pairs if lo < len(p[1]) <= hi), key=lambda p: p[0] == "arith")
            if not some:
                continue
            dec = Decoder(cfg, w, min(4096, len(some)), ctx, a.device)
            for i in range(0, len(some), dec.batch):
                part = some[i : i + dec.batch]
                ids = dec.run([p for _, p in part], [ANSWER_MAX] * len(part))
                out += [(k, p, x) for (k, p), x in zip(part, ids)]
        return out

    docs, held = own(train_set), own(test_set)
    random.Random(5).shuffle(docs)
    log.write(
        f"draft data: {len(docs)} documents, {sum(len(x) for _, _, x in docs) / 1e6:.2f}M written tokens, {time.time() - t:.0f} s\n"
    )
    length = 1024
    ids, doc, made = draft.pack([(p, x) for _, p, x in docs], length, a.device)
    taps = draft.collect_taps(fwd, w, cfg, ids, doc, tables)
    log.write(f"taps: {tuple(taps.shape)} {time.time() - t:.0f} s\n")
    params = draft.train(
        cfg,
        w,
        (ids, doc, made, taps),
        tables,
        a.draft_seconds,
        a.device,
        log,
        compiled=a.device != "cpu",
        rows=min(64, len(ids)),
        anchors=a.anchors,
    )
    export.write_draft(a.dir / "mini-dflash.gguf", cfg, params)
    names = list(params)
    dw = M.effective(
        {k: v.to(a.device) for k, v in export.load(a.dir / "mini-dflash.gguf", names).items()},
        False,
        w["output.weight"].dtype,
    )
    res = {}
    for part in ("code", "chat", "tools", "json", "arith", "text"):
        i, d, m = draft.pack([(p, x) for k, p, x in held if k == part], length, a.device)
        tp = draft.collect_taps(fwd, w, cfg, i, d, tables)
        counts = draft.accepted(cfg, dw, w, i, d, m, tp, tables[2])
        for n in (7, 15):
            replies, per = draft.rounds(counts, d, m, n, cfg.block)
            mean, within = a_round.accepted(replies)
            rounds = sum(r for r, _ in replies)
            res[f"{part} n={n}"] = {
                "replies": len(replies),
                "rounds": rounds,
                "accepted_a_round": mean,
                "within_95": within,
                "by_position": per[:n],
            }
            log.write(f"{part} n={n}: {mean:.2f} ± {within:.2f} accepted a round, {rounds} rounds\n")
    return res


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("dir", type=Path)
    ap.add_argument("--draft-seconds", type=float, default=120)
    ap.add_argument("--n", type=int, default=1024)
    ap.add_argument("--docs", type=int, default=60000)
    ap.add_argument("--anchors", type=int, default=64)
    ap.add_argument("--workers", type=int, default=15)
    ap.add_argument("--device", default="cuda")
    ap.add_argument("--long", type=int, default=128)
    a = ap.parse_args()
    with mp.get_context("fork").Pool(a.workers) as pool:  # before CUDA is touched
        run(a, pool)


def run(a, pool):
    log, started = open(a.dir / "finish.txt", "w", buffering=1), time.time()
    tok = Tokenizer.load(HERE / "vocab.json")
    each = -(-a.docs // a.workers)
    some = max(10, min(each, corpus.DRAFT_TEST_EACH))
    kinds = sorted(cases.KINDS, key=lambda k: "retrieval" not in k)  # the slow ones first
    todo = [(k, a.long if "retrieval" in k else a.n) for k in kinds]
    todo = [(k, n) for k, n in todo if n]
    making = pool.map_async(cases_of, todo, chunksize=1)
    train_set = pool.map_async(prompts_of, [(7000 + i, "train", each) for i in range(a.workers)])
    test_set = pool.map_async(prompts_of, [(seed, "test", some) for seed in corpus.DRAFT_TEST_SEEDS])
    rows = pool.map(held_out_rows, [(tok, 8500, max(2, min(64, a.n // 4)), 2048)])[0]
    sets = dict(zip([k for k, _ in todo], making.get()))
    train_set, test_set = sum(train_set.get(), []), sum(test_set.get(), [])
    log.write(f"cases and prompts: {time.time() - started:.0f} s\n")
    ck = load_checkpoint(a.dir / "checkpoint.pt")
    cfg, params = ck["config"], ck["params"]
    export.write_main(a.dir / "mini.gguf", cfg, params)
    dtype = torch.float32 if a.device == "cpu" else torch.bfloat16
    plain = M.effective({k: v.to(a.device) for k, v in params.items()}, False, dtype)
    file = M.effective(
        {k: v.to(a.device) for k, v in export.load(a.dir / "mini.gguf", list(params)).items()}, False, dtype
    )
    fwd, tables = M.Forward(cfg, False), M.rope_tables(cfg, 4096, a.device)
    res = {"tokens": ck["tokens"], "steps": ck["steps"]}
    res["perplexity"] = {
        k: perplexity(fwd, w, rows, tables[:2], a.device) for k, w in (("checkpoint", plain), ("file", file))
    }
    log.write(f"perplexity {res['perplexity']}\n")
    replies = {}
    for name, w in (("file", file), ("checkpoint", plain)):
        t = time.time()
        replies[name] = evaluate(cfg, w, tok, sets, a.device, pool)
        res[name] = rates(replies[name])
        log.write(f"{name}: {time.time() - t:.0f} s {json.dumps(res[name])}\n")
        (a.dir / "replies.json").write_text(json.dumps(replies))
    res["file - checkpoint"] = differences(replies["file"], replies["checkpoint"])
    log.write(f"file - checkpoint: {json.dumps(res['file - checkpoint'])}\n")
    (a.dir / "results.json").write_text(json.dumps(res, indent=1))
    res["draft"] = drafter(a, cfg, file, tok, fwd, tables[:2] + [tables[2]], log, (train_set, test_set))
    (a.dir / "results.json").write_text(json.dumps(res, indent=1))
    log.write("finished\n")


if __name__ == "__main__":
    main()
