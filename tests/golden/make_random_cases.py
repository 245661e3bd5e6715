#!/usr/bin/env python3
"""Writes tokenizer-random.jsonl: random texts with their pre-tokens and ids, from an implementation of its own.

The patterns run on the third-party module `regex` (Debian: python3-regex), the merges on a plain loop, so the file
checks the C tokenizer against other code. Characters come from blocks that every Unicode version since 14 classes
alike. One JSON object a line: h = bytes in hex, n = length in bytes of each pre-token, i = ids.

usage: make_random_cases.py VOCAB.gguf >tokenizer-random.jsonl
"""
import json
import random
import struct
import sys

import regex

STAGE1 = regex.compile(r"(?:\r?\n)+(?!\r?\n)")
STAGE2 = regex.compile(
    r"(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")


def read_vocab(path):
    d = open(path, "rb").read()
    n_kv, at = struct.unpack_from("<Q", d, 16)[0], 24
    size = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}
    out = {}

    def text(at):
        n = struct.unpack_from("<Q", d, at)[0]
        return d[at + 8:at + 8 + n].decode(), at + 8 + n

    for _ in range(n_kv):
        key, at = text(at)
        kind = struct.unpack_from("<I", d, at)[0]
        at += 4
        if kind == 8:
            out[key], at = text(at)
        elif kind == 9:
            elem, n = struct.unpack_from("<IQ", d, at)
            at += 12
            out[key] = []
            for _ in range(n):
                if elem == 8:
                    s, at = text(at)
                    out[key].append(s)
                else:
                    out[key].append(int.from_bytes(d[at:at + size[elem]], "little"))
                    at += size[elem]
        else:
            at += size[kind]
    return out


def alphabet():
    keep = list(range(33, 127)) + list(range(161, 173)) + list(range(174, 256))
    moved = [b for b in range(256) if b not in keep]
    return {b: chr(b) for b in keep} | {b: chr(0x100 + i) for i, b in enumerate(moved)}


def pre_tokens(s):
    cuts = [0] + [m.start() for m in STAGE1.finditer(s)] + [len(s)]
    return [m.group() for a, b in zip(cuts, cuts[1:]) for m in STAGE2.finditer(s[a:b])]


def bpe(symbols, rank):
    while True:
        ranked = [(rank[p], i) for i, p in enumerate(zip(symbols, symbols[1:])) if p in rank]
        if not ranked:
            return symbols
        _, i = min(ranked)
        symbols[i:i + 2] = [symbols[i] + symbols[i + 1]]


POOLS = [
    "abcdefghijklmnopqrstuvwxyz", "ETAOIN", "0123456789", " ", "  ", "\n", "\r\n", "\r", "\t", "'", "\"`.,;:!?-_/\\|",
    "()[]{}<>=+*&^%$#@~", "\u00e9\u00fc\u00f1\u0153\u0130\u0131\u017f\u212a", "\u0301\u0308\u20dd\ufe0f",
    "\u4e16\u754c\u65e5\u672c\u8a9e", "\u3042\u30a2\uff76\uff9e", "\ud55c\uae00\u1100\u1161",
    "\u0416\u0434\u044f\u03a9\u03b1", "\u0627\u0644\u064e\u0651", "\u0905\u0928\u093f\u094d\u0e01\u0e34",
    "\uff11\uff12\u0663\u0967\u00bd\u2167\u3007\u2460", "\u00a0\u1680\u2003\u2028\u2029\u202f\u205f\u3000\u0085",
    "\u180e\u200b\u200d\u2060\ufeff\u001c\u001f\u0000\u007f", "\U0001f600\U0001f468\u200d\U0001f469\U0001f44d\U0001f3fd",
    "\u2018\u2019\u201c\u2014\u2026\u00a7\u20ac", "\U00020000\U0001d54f\U00010330",
]
WORDS = ["'s", "'T", "'re", "'VE", "'m", "'Ll", "'d", "'\u017f", "don't", "the", " return", "print(", "self.", "    ",
         "\n\n", "\r\n\r\n", "://", "</", "<user>", "</user>\n", "<think>", "0x1F", "1e-07", "#include", "\t\t}"]


def random_text(rng):
    parts = []
    for _ in range(rng.randint(1, 14)):
        if rng.random() < 0.3:
            parts.append(rng.choice(WORDS))
        else:
            pool = rng.choice(POOLS)
            parts.append("".join(rng.choice(pool) for _ in range(rng.choice([1, 1, 1, 2, 3]))))
    return "".join(parts)


def main():
    kv = read_vocab(sys.argv[1])
    byte_char = alphabet()
    token = {t: i for i, (t, c) in enumerate(zip(kv["tokenizer.ggml.tokens"], kv["tokenizer.ggml.token_type"])) if c == 1}
    rank = {tuple(m.split(" ")): i for i, m in enumerate(kv["tokenizer.ggml.merges"])}
    rng = random.Random(20261129)
    for _ in range(2400):
        s = random_text(rng)
        pieces = [p.encode() for p in pre_tokens(s)]
        assert b"".join(pieces) == s.encode()
        ids = [token[t] for p in pieces for t in bpe([byte_char[b] for b in p], rank)]
        print(json.dumps({"h": s.encode().hex(), "n": [len(p) for p in pieces], "i": ids}, separators=(",", ":")))


main()
