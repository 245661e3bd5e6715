"""Byte-level BPE with Laguna's pre-tokenizer: training on the corpus, encoding, decoding. Needs the `regex`
module."""
import heapq
import json
from collections import Counter, defaultdict

import numpy as np
import regex

import tokens as tk

# The two-stage rule (cut before each run of newlines, then split) as one pattern, for text without carriage returns.
PRETOKEN = regex.compile(
    r"(?:'[sStTmMdD]|'[rR][eE]|'[vV][eE]|'[lL][lL])|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+|\n+"
    r"|[^\S\n]+(?!\S)|[^\S\n]+"
)
CACHE_LIMIT = 400_000


def pretokens(text):
    return PRETOKEN.findall(text)


def train(texts, size):
    """Merges (pairs of byte strings), best first, until the vocabulary has `size` entries."""
    words = Counter()
    for t in texts:
        words.update(pretokens(t))
    parts = [[bytes([b]) for b in w.encode()] for w in words]
    counts = list(words.values())
    pairs, where = Counter(), defaultdict(set)
    for i, p in enumerate(parts):
        for a, b in zip(p, p[1:]):
            pairs[a, b] += counts[i]
            where[a, b].add(i)
    heap = [(-n, p) for p, n in pairs.items()]
    heapq.heapify(heap)
    merges, known = [], set()
    while len(merges) < size - tk.FIRST_MERGE and heap:
        n, pair = heapq.heappop(heap)
        if -n != pairs[pair]:
            if pairs[pair] > 0:
                heapq.heappush(heap, (-pairs[pair], pair))
            continue
        new = pair[0] + pair[1]
        if new in known:  # an entry is the product of one merge only
            continue
        known.add(new)
        merges.append(pair)
        touched = set()
        for i in where.pop(pair):
            p, c = parts[i], counts[i]
            for q in zip(p, p[1:]):
                pairs[q] -= c
                touched.add(q)
            k = 0
            while k < len(p) - 1:
                if p[k] == pair[0] and p[k + 1] == pair[1]:
                    p[k : k + 2] = [new]
                k += 1
            for q in zip(p, p[1:]):
                pairs[q] += c
                where[q].add(i)
                touched.add(q)
        for q in touched:
            if pairs[q] > 0:
                heapq.heappush(heap, (-pairs[q], q))
    return merges


class Tokenizer:
    def __init__(self, merges):
        self.merges = merges
        self.bytes = [t.encode() for t in tk.added_tokens()] + [bytes([b]) for b in range(256)]
        self.rank = {}
        for a, b in merges:
            self.rank[a, b] = len(self.bytes)
            self.bytes.append(a + b)
        self.size = len(self.bytes)
        self._cache = {}

    @classmethod
    def load(cls, path):
        with open(path, encoding="utf-8") as f:
            return cls([tuple(bytes.fromhex(x) for x in m.split()) for m in json.load(f)])

    def save(self, path):
        with open(path, "w", encoding="utf-8") as f:
            json.dump([f"{a.hex()} {b.hex()}" for a, b in self.merges], f)
            f.write("\n")

    def _word(self, w):
        parts = [bytes([b]) for b in w.encode()]
        ids = [tk.BYTE0 + p[0] for p in parts]
        while len(parts) > 1:
            best, at = None, -1
            for i, pair in enumerate(zip(parts, parts[1:])):
                r = self.rank.get(pair)
                if r is not None and (best is None or r < best):
                    best, at = r, i
            if best is None:
                break
            parts[at : at + 2] = [parts[at] + parts[at + 1]]
            ids[at : at + 2] = [best]
        return ids

    def encode(self, text):
        """Ids of plain text; texts of added tokens in it stay ordinary text."""
        out, cache = [], self._cache
        for w in PRETOKEN.findall(text):
            ids = cache.get(w)
            if ids is None:
                if len(cache) > CACHE_LIMIT:
                    cache.clear()
                ids = cache[w] = self._word(w)
            out += ids
        return out

    def encode_spelled(self, text):
        """Ids of text in which added tokens are spelled out, as `lagoon generate --raw --json` writes them."""
        ids = {t: i for i, t in enumerate(tk.added_tokens())}
        pieces = regex.split("(" + "|".join(map(regex.escape, ids)) + ")", text)
        return [i for p in pieces for i in ([ids[p]] if p in ids else self.encode(p))]

    def encode_items(self, items):
        """(ids int32, weights float32) of skills.conv.render(): neighbouring texts are one run, as in the
        engine, and the largest of their weights counts for all of it."""
        ids, weights, run = [], [], []
        for x, w in [*items, (tk.EOS, None)]:
            if isinstance(x, int):
                if run:
                    got = self.encode("".join(t for t, _ in run))
                    ids += got
                    weights += [max(v for _, v in run)] * len(got)
                    run = []
                if w is not None:
                    ids.append(x)
                    weights.append(w)
            elif x:
                run.append((x, w))
        return np.array(ids, np.int32), np.array(weights, np.float32)

    def decode(self, ids, special=True):
        return b"".join(self.bytes[i] for i in ids if special or i >= tk.BYTE0).decode("utf-8", "replace")

    def gguf_kvs(self, template):
        alphabet = tk.byte_alphabet()

        def shown(b):
            return "".join(alphabet[x] for x in b)

        entries = tk.added_tokens() + [shown(b) for b in self.bytes[tk.BYTE0 :]]
        return tk.tokenizer_kvs(entries, [f"{shown(a)} {shown(b)}" for a, b in self.merges], template)
