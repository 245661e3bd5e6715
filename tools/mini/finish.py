"""Stage 3: from a checkpoint to files.   finish.py DIR [--draft-seconds S] [--n CASES] [--docs N] [--device
cpu --tiny]

Reads DIR/checkpoint.pt; writes DIR/mini.gguf, DIR/mini-dflash.gguf, DIR/results.json (accuracy of checkpoint
and file, perplexity, acceptance) and DIR/replies.json (every answer, to be scored again where compilers are).
"""
import argparse
import json
import multiprocessing as mp
import random
import time
from pathlib import Path

import numpy as np
import torch

import cases
import draft
import export
import model as M
from corpus import Stream, documents
from generate import Decoder
from skills.conv import render
from tokenizer import Tokenizer

HERE = Path(__file__).parent
DRAFT_MIX = ("code", "code", "code", "chat", "chat", "chat", "tools", "json", "arith", "text")
PROMPT_MAX, ANSWER_MAX, CTX = 600, 420, 1024


def load_checkpoint(path):
    kw = {} if torch.__version__ < "1.14" else {"weights_only": False}
    return torch.load(path, map_location="cpu", **kw)


def prompts_of(args):
    """(part, prompt ids) of the split, short enough to decode in bulk."""
    seed, split, n = args
    tok, s, out = Tokenizer.load(HERE / "vocab.json"), Stream(seed, split, 600), []
    while len(out) < n:
        part = DRAFT_MIX[len(out) % len(DRAFT_MIX)]
        c = s.of(part)
        if not c.turns:
            continue
        ids = tok.encode_items(render(c, open_last=True))[0].tolist()
        if len(ids) <= PROMPT_MAX:
            out.append((part, ids))
    return out


def held_out_rows(args):
    tok, seed, n, length = args
    it, out = documents(tok, seed, "test", 1500), []
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


def answers(cfg, w, tok, sets, device, batch, ctx):
    """{kind: [ids]} for the kinds whose cases fit."""
    flat = [
        (k, i, cases.prompt(tok, c), cases.LIMIT.get(k, 160))
        for k, cs in sets.items()
        for i, c in enumerate(cs)
    ]
    flat.sort(key=lambda f: f[3])
    dec, out = Decoder(cfg, w, min(batch, len(flat)), ctx, device), {
        k: [None] * len(cs) for k, cs in sets.items()
    }
    for lo in range(0, len(flat), dec.batch):
        part = flat[lo : lo + dec.batch]
        for (k, i, _, _), ids in zip(part, dec.run([f[2] for f in part], [f[3] for f in part])):
            out[k][i] = ids
    return out


def evaluate(cfg, w, tok, n, device, log, name):
    t = time.time()
    short = {k: cases.make(k, n) for k in cases.KINDS if "retrieval" not in k}
    long = {k: cases.make(k, max(2, n // 4)) for k in cases.KINDS if "retrieval" in k}
    got = answers(cfg, w, tok, short, device, 1024, 2304)
    if n >= 8:
        for k, cs in long.items():
            got.update(
                answers(cfg, w, tok, {k: cs}, device, 64, 2560 if "2k" in k else 9216 if "8k" in k else 16384)
            )
        short.update(long)
    rate, replies = {}, {}
    for k, cs in short.items():
        replies[k] = []
        marks = []
        for c, ids in zip(cs, got[k]):
            content, calls = cases.reply_of(tok, ids, c.thinking)
            ok = None if k == "code" and c.check["lang"] != "py" else cases.score(k, c, content, calls)
            replies[k].append({"ids": ids, "ok": ok})
            marks.append(ok)
        known = [m for m in marks if m is not None]
        rate[k] = sum(known) / max(1, len(known))
    log.write(f"{name}: {time.time() - t:.0f} s {json.dumps(rate)}\n")
    return rate, replies


def drafter(a, cfg, w, tok, fwd, tables, log, pools):
    """Trains on the file's own answers, then measures on held-out ones."""
    train_set, test_set = pools
    t = time.time()

    def own(pairs):
        """The file's greedy answers; short prompts decode in smaller caches, long answers apart from short
        ones."""
        out = []
        for ctx, lo, hi in ((640, 0, 220), (CTX, 220, PROMPT_MAX)):
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
            total, committed, per = draft.rounds(counts, d, m, n, cfg.block)
            res[f"{part} n={n}"] = {
                "rounds": total,
                "accepted_a_round": committed / max(1, total) - 1,
                "by_position": per[:n],
            }
            log.write(f"{part} n={n}: {committed / max(1, total) - 1:.2f} accepted a round, {total} rounds\n")
    return res


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("dir", type=Path)
    ap.add_argument("--draft-seconds", type=float, default=120)
    ap.add_argument("--n", type=int, default=256)
    ap.add_argument("--docs", type=int, default=60000)
    ap.add_argument("--anchors", type=int, default=64)
    ap.add_argument("--workers", type=int, default=15)
    ap.add_argument("--device", default="cuda")
    a = ap.parse_args()
    log = open(a.dir / "finish.txt", "w", buffering=1)
    tok = Tokenizer.load(HERE / "vocab.json")
    with mp.get_context("fork").Pool(a.workers) as pool:
        each = -(-a.docs // a.workers)
        train_set = sum(pool.map(prompts_of, [(7000 + i, "train", each) for i in range(a.workers)]), [])
        test_set = sum(
            pool.map(
                prompts_of,
                [(8000 + i, "test", max(10, min(each, 2000 // a.workers))) for i in range(a.workers)],
            ),
            [],
        )
        rows = pool.map(held_out_rows, [(tok, 8500, max(2, a.n // 4), 2048)])[0]
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
    res["file"], replies = evaluate(cfg, file, tok, a.n, a.device, log, "file")
    (a.dir / "replies.json").write_text(json.dumps(replies))
    (a.dir / "results.json").write_text(json.dumps(res, indent=1))
    res["checkpoint"], more = evaluate(cfg, plain, tok, a.n, a.device, log, "checkpoint")
    (a.dir / "replies-checkpoint.json").write_text(json.dumps(more))
    (a.dir / "results.json").write_text(json.dumps(res, indent=1))
    res["draft"] = drafter(a, cfg, file, tok, fwd, tables[:2] + [tables[2]], log, (train_set, test_set))
    (a.dir / "results.json").write_text(json.dumps(res, indent=1))
    log.write("finished\n")


if __name__ == "__main__":
    main()
