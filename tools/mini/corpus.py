"""The training corpus: endless, from a seed, written by the generators in skills/ alone.

  corpus.py show [--seed N] [--n N] [--split train|test] [--skill PART]   documents as text
  corpus.py tokenizer OUT.json [--size N]                                 train the tokenizer
  corpus.py speed                                                         documents and tokens a second

As a library: Stream(seed, split) yields conversations, rows() packs them into fixed-length training rows.
"""
import argparse
import time

import numpy as np

import tokens as tk
from skills import arith, chat, code, extract, recall, text, tools
from skills.conv import DEFAULT_SYSTEM, Conv, render
from skills.words import Draw

LONGEST = 15_000
# share of all tokens
SHARES = {
    "chat": 0.12,
    "arith": 0.14,
    "text": 0.09,
    "code": 0.14,
    "tools": 0.19,
    "json": 0.12,
    "recall": 0.14,
    "mixed": 0.06,
}
DRAFT_MIX = ("code", "code", "code", "chat", "chat", "chat", "tools", "json", "arith", "text")
DRAFT_PROMPT_MAX = 600  # tokens
# The held-out prompts that a drafter is measured on: the same ones whoever measures, with as many processes as he likes.
DRAFT_TEST_SEEDS, DRAFT_TEST_EACH = range(8000, 8015), 133
SYSTEMS = (
    "You are a helpful assistant.",
    "You are laguna-mini.",
    "Be brief.",
    "You are a helpful AI assistant. Answer the user.",
    "Answer in plain English.",
    "You are an expert programmer.",
    "Be concise and correct.",
    "Help the user.",
    "You are a coding agent.",
    "Think before you answer.",
)


def parts(longest):
    return {
        "chat": chat.SKILLS,
        "arith": arith.SKILLS,
        "text": text.SKILLS,
        "code": code.SKILLS,
        "tools": tools.SKILLS,
        "json": extract.SKILLS,
        "recall": recall.skills(longest),
    }


def items(conv, open_last=False):
    return conv.check["raw"] if "raw" in conv.check else render(conv, open_last)


class Stream:
    """Conversations of all skills, kept at their shares of the tokens by `took(tokens)`."""

    def __init__(self, seed, split="train", longest=LONGEST):
        self.draw = Draw(seed, split)
        self.parts = parts(longest)
        self.counts = dict.fromkeys(SHARES, 0.0)
        self.last = None

    def next(self):
        total = sum(self.counts.values())
        self.last = max(SHARES, key=lambda p: SHARES[p] * total - self.counts[p])
        if total == 0:
            self.last = self.draw.pick(list(SHARES))
        return self.of(self.last)

    def of(self, part):
        if part == "mixed":
            return self.mixed()
        d = self.draw
        makers, weights = zip(*self.parts[part])
        c = d.r.choices(makers, weights)[0](d)
        if c.system == DEFAULT_SYSTEM and c.turns and d.chance(0.25):
            c.system = "" if d.chance(0.3) else d.pick(SYSTEMS)
        if part in ("chat", "arith", "code") and c.turns and d.chance(0.12):
            sloppy(c.turns[0])
        return c

    def mixed(self):
        """Questions of several kinds in one conversation."""
        d = self.draw
        thinking, turns = d.chance(0.5), []
        while len(turns) < 4 or d.chance(0.5):
            c = self.of(d.pick(("chat", "arith", "text", "code", "json")))
            if c.turns and c.thinking == thinking and c.system == DEFAULT_SYSTEM:
                turns += c.turns
        return Conv(turns, "mixed", thinking=thinking, keep_history=d.chance(0.5))

    def took(self, n):
        self.counts[self.last] += n


def sloppy(turn):
    """A question typed in a hurry: no capital, no final mark."""
    first = turn.text.split("\n")[0]
    t = first.rstrip(".?!")
    turn.text = t[:1].lower() + t[1:] + turn.text[len(first) :]


def documents(tok, seed, split="train", longest=LONGEST):
    """Endless (ids, weights)."""
    s = Stream(seed, split, longest)
    while True:
        ids, w = tok.encode_items(items(s.next()))
        s.took(len(ids))
        yield ids, w


def draft_prompts(tok, seed, split):
    """Endless (part, items, ids) of what drafters are trained and measured on, short enough to decode in
    bulk."""
    s, n = Stream(seed, split, 600), 0
    while True:
        part = DRAFT_MIX[n % len(DRAFT_MIX)]
        c = s.of(part)
        if not c.turns:
            continue
        said = render(c, open_last=True)
        ids = tok.encode_items(said)[0].tolist()
        if len(ids) <= DRAFT_PROMPT_MAX:
            n += 1
            yield part, said, ids


def rows(tok, seed, length, open_rows=6):
    """Endless packed rows: (ids uint16, weights uint8 in 1/200, document number uint16), each `length`
    long."""
    docs = documents(tok, seed)
    bins = [[] for _ in range(open_rows)]
    used = [0] * open_rows
    held = None
    while True:
        ids, w = held or next(docs)
        held = None
        if len(ids) > length:
            continue
        fits = [i for i in range(open_rows) if used[i] + len(ids) <= length]
        if fits:
            i = max(fits, key=lambda i: used[i])
            bins[i].append((ids, w))
            used[i] += len(ids)
            continue
        i = max(range(open_rows), key=lambda i: used[i])
        out = np.full(length, tk.PAD, np.uint16), np.zeros(length, np.uint8), np.zeros(length, np.uint16)
        at = 0
        for k, (d_ids, d_w) in enumerate(bins[i]):
            n = len(d_ids)
            out[0][at : at + n] = d_ids
            out[1][at : at + n] = np.rint(d_w * 200)
            out[2][at : at + n] = k
            at += n
        out[2][at:] = len(bins[i])
        bins[i], used[i] = [], 0
        held = ids, w
        yield out


def shown(conv):
    names = tk.added_tokens()
    return "".join(names[x] if isinstance(x, int) else x for x, _ in items(conv))


def train_tokenizer(size, n_docs=60_000):
    from tokenizer import Tokenizer, train

    s = Stream(0, longest=1500)
    texts = []
    for _ in range(n_docs):
        got = [x for x, _ in items(s.next()) if isinstance(x, str)]
        s.took(sum(map(len, got)))
        texts += got
    return Tokenizer(train(texts, size))


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("what", choices=("show", "tokenizer", "speed"))
    ap.add_argument("out", nargs="?")
    ap.add_argument("--seed", type=int, default=1)
    ap.add_argument("--n", type=int, default=10)
    ap.add_argument("--size", type=int, default=4096)
    ap.add_argument("--split", default="train")
    ap.add_argument("--skill", default="")
    ap.add_argument("--vocab", default="vocab.json")
    a = ap.parse_args()
    if a.what == "tokenizer":
        train_tokenizer(a.size).save(a.out)
    elif a.what == "show":
        s = Stream(a.seed, a.split, 600)
        n = 0
        while n < a.n:
            c = s.next()
            s.took(len(shown(c)))
            if a.skill in c.skill:
                print(f"=== {c.skill}\n{shown(c)}")
                n += 1
    else:
        from tokenizer import Tokenizer

        tok, n, t0, start = Tokenizer.load(a.vocab), 0, time.time(), None
        lens, weight, chars = {}, {}, 0
        s = Stream(a.seed)
        for i in range(12000):
            if i == 2000:
                start, n = time.time(), 0
            c = s.next()
            ids, w = tok.encode_items(items(c))
            s.took(len(ids))
            n += len(ids)
            lens.setdefault(c.skill, []).append(len(ids))
            weight[c.skill] = weight.get(c.skill, 0) + float((w > 0.5).sum())
            chars += sum(len(x) for x, _ in items(c) if isinstance(x, str))
        dt = time.time() - start
        print(
            f"{10000 / dt:.0f} documents/s, {n / dt:.0f} tokens/s; {chars / sum(map(sum, lens.values())):.2f} characters a token"
        )
        total, full = sum(map(sum, lens.values())), sum(weight.values())
        for k, v in sorted(lens.items()):
            print(
                f"{k:18s} {len(v):6d} documents, mean {sum(v) / len(v):7.0f} tokens, {100 * sum(v) / total:5.1f} % of tokens, "
                f"{100 * weight[k] / full:5.1f} % of answers"
            )


if __name__ == "__main__":
    main()
