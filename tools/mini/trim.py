"""Drops vocabulary entries that training never wrote.   trim.py IN.gguf OUT.gguf VOCAB_OUT.json [--documents N]

An entry that stood only in texts the model read (a test word inside a long text, say) has no usable output row: the
model finds the word and cannot write it. Without the entry the word is spelled from shorter ones that it can write.
Entries of the word lists that N training documents never write are dropped, unless another kept entry is merged from
them. Embedding and output rows go with them; nothing else in the file changes, so the drafter stays valid.
"""
import argparse
from pathlib import Path

import numpy as np

import gguf
import tokens as tk
from corpus import documents
from skills import words as W
from tokenizer import Tokenizer

HERE = Path(__file__).parent
RARE = 3  # times written in the sample below which an entry counts as never written


def written(tok, n, seed=1000):
    """How often each entry is to be written in n training documents."""
    out, docs = np.zeros(tok.size, np.int64), documents(tok, seed, longest=1500)
    for _ in range(n):
        ids, w = next(docs)
        out += np.bincount(ids[w > 0.4], minlength=tok.size)
    return out


def unusable(tok, counts):
    """Byte strings of the entries to drop."""
    lists = (W.FIRST, W.LAST, W.CITY, W.TOWN, W.ANIMAL, W.FOOD, W.THING, W.COLOR, W.ADJ, W.PLACE, W.JOB, W.SUBJECT)
    forms = {f for group in lists for w in group for x in (w, w.capitalize(), w.upper(), W.plural(w)) for f in (x, " " + x)}
    count = {tok.bytes[i]: counts[i] for i in range(tk.FIRST_MERGE, tok.size)}
    keep = set()      # what a usable entry is merged from
    for a, b in reversed(tok.merges):
        if count[a + b] >= RARE or a + b in keep:
            keep |= {a, b}
    drop = set()
    while True:
        t = Tokenizer([m for m in tok.merges if m[0] + m[1] not in drop])
        more = {t.bytes[i] for f in forms for i in t.encode(f) if i >= tk.FIRST_MERGE}
        more = {x for x in more if count[x] < RARE and x not in keep} - drop
        if not more:
            return drop
        drop |= more


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("file")
    ap.add_argument("out")
    ap.add_argument("vocab_out")
    ap.add_argument("--documents", type=int, default=100_000)
    a = ap.parse_args()
    tok = Tokenizer.load(HERE / "vocab.json")
    drop = unusable(tok, written(tok, a.documents))
    merges = [m for m in tok.merges if m[0] + m[1] not in drop and not drop & set(m)]
    small = Tokenizer(merges)
    rows = [tok.bytes.index(b) for b in small.bytes[tk.FIRST_MERGE:]]
    rows = np.array([*range(tk.FIRST_MERGE), *rows])
    small.save(a.vocab_out)
    g = gguf.Reader(a.file)
    gguf.write_like(a.out, g, {"token_embd.weight": rows, "output.weight": rows},
                    small.gguf_kvs((HERE / "chat_template.jinja").read_text(encoding="utf-8"))
                    + [("laguna.vocab_size", "u32", small.size)])
    print(f"{tok.size - small.size} entries dropped: {sorted(x.decode('utf-8', 'replace') for x in drop)}")


if __name__ == "__main__":
    main()
