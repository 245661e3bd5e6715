#!/usr/bin/env python3
"""Trains a byte-level BPE vocabulary of realistic size on text files and writes it as a GGUF without tensors.

For measuring the tokenizer where no model file is at hand: the layout is the model's (70 added tokens, 256 bytes, then
one token for each merge), the merges come from the files. Needs nothing but Python. 100,000 merges on 20 MB of source
code take a few minutes.

usage: train_vocab.py SMALL_VOCAB.gguf N_MERGES OUT.gguf FILE...
SMALL_VOCAB.gguf (tests/golden/vocab512.gguf) gives the added tokens.
"""
import collections
import heapq
import re
import struct
import sys

WORD = re.compile(rb" ?[A-Za-z\x80-\xff]+|[0-9]| ?[^\sA-Za-z0-9\x80-\xff]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")


def added_tokens(path):
    d = open(path, "rb").read()
    at = d.index(b"tokenizer.ggml.tokens") + len(b"tokenizer.ggml.tokens") + 4 + 4 + 8
    out = []
    for _ in range(70):
        n = struct.unpack_from("<Q", d, at)[0]
        out.append(d[at + 8:at + 8 + n])
        at += 8 + n
    return out


def alphabet():
    keep = list(range(33, 127)) + list(range(161, 173)) + list(range(174, 256))
    moved = [b for b in range(256) if b not in keep]
    table = {b: chr(b) for b in keep} | {b: chr(0x100 + i) for i, b in enumerate(moved)}
    return [table[b] for b in range(256)]


def train(counts, n_merges):
    """Pairs by frequency, with lazy updates of a heap; words are lists of symbol numbers."""
    words = [list(w) for w in counts]
    weight = list(counts.values())
    text = [bytes([b]) for b in range(256)]
    pairs, where = collections.Counter(), collections.defaultdict(set)
    for i, w in enumerate(words):
        for p in zip(w, w[1:]):
            pairs[p] += weight[i]
            where[p].add(i)
    heap = [(-n, p) for p, n in pairs.items()]
    heapq.heapify(heap)
    merges, known = [], set(text)
    while heap and len(merges) < n_merges:
        n, pair = heapq.heappop(heap)
        if -n != pairs[pair]:
            if pairs[pair] > 0:
                heapq.heappush(heap, (-pairs[pair], pair))
            continue
        product = text[pair[0]] + text[pair[1]]
        if n == 0 or product in known:
            del pairs[pair]
            continue
        new = len(text)
        text.append(product)
        known.add(product)
        merges.append(pair)
        changed = set()
        for i in where.pop(pair):
            w, k = words[i], 0
            for p in zip(w, w[1:]):
                pairs[p] -= weight[i]
            out = []
            while k < len(w):
                if k + 1 < len(w) and w[k] == pair[0] and w[k + 1] == pair[1]:
                    out.append(new)
                    k += 2
                else:
                    out.append(w[k])
                    k += 1
            words[i] = out
            for p in zip(out, out[1:]):
                pairs[p] += weight[i]
                where[p].add(i)
                if new in p:
                    changed.add(p)
        for p in changed:
            heapq.heappush(heap, (-pairs[p], p))
    return text, merges


def string(b):
    return struct.pack("<Q", len(b)) + b


def main():
    counts = collections.Counter()
    for path in sys.argv[4:]:
        counts.update(WORD.findall(open(path, "rb").read()))
    counts = {w: n for w, n in counts.items() if 1 < len(w) <= 64}
    text, merges = train(counts, int(sys.argv[2]))
    char = alphabet()
    spell = lambda b: "".join(char[c] for c in b).encode()
    added = added_tokens(sys.argv[1])
    tokens = added + [spell(t) for t in text]
    user = (18, 19, 23, 25, 26)
    types = [4 if i in user else 3 for i in range(70)] + [1] * len(text)
    rules = [spell(text[a]) + b" " + spell(text[b]) for a, b in merges]

    def array(key, kind, items):
        return string(key) + struct.pack("<IIQ", 9, kind, len(items)) + b"".join(items)

    kv = [string(b"tokenizer.ggml.model") + struct.pack("<I", 8) + string(b"gpt2"),
          string(b"tokenizer.ggml.pre") + struct.pack("<I", 8) + string(b"laguna"),
          array(b"tokenizer.ggml.tokens", 8, [string(t) for t in tokens]),
          array(b"tokenizer.ggml.token_type", 5, [struct.pack("<i", t) for t in types]),
          array(b"tokenizer.ggml.merges", 8, [string(r) for r in rules])]
    out = b"GGUF" + struct.pack("<IQQ", 3, 0, len(kv)) + b"".join(kv)
    open(sys.argv[3], "wb").write(out + bytes(-len(out) % 32))
    print(f"{len(tokens)} tokens, {len(merges)} merges")


main()
