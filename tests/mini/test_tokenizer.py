"""The one-pattern pre-tokenizer equals the published two-stage rule, and decoding undoes encoding.

usage: test_tokenizer.py CHAT_CASES.jsonl      exit 77 when the modules regex or numpy are not installed
"""
import json
import random
import sys
from pathlib import Path

try:
    import numpy  # noqa: F401
    import regex
except ImportError as e:
    print(f"{e}: skipped")
    sys.exit(77)

MINI = Path(__file__).resolve().parents[2] / "tools" / "mini"
sys.path.insert(0, str(MINI))
from tokenizer import Tokenizer, pretokens  # noqa: E402

CUT = regex.compile(r"(?:\r?\n)+(?!\r?\n)")
SPLIT = regex.compile(
    r"(?:'[sStTmMdD]|'[rR][eE]|'[vV][eE]|'[lL][lL])|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def two_stage(text):
    starts = [0, *(m.start() for m in CUT.finditer(text)), len(text)]
    return [p for a, b in zip(starts, starts[1:]) for p in SPLIT.findall(text[a:b])]


def main(cases):
    r = random.Random(3)
    tok = Tokenizer.load(MINI / "vocab.json")
    passed = failed = 0
    alphabet = "ab Z1'\n\t .,_-<>/é漢 s\"{}:🙂"
    texts = ["".join(r.choice(alphabet) for _ in range(r.randint(0, 30))) for _ in range(20000)]
    for line in open(cases, encoding="utf-8"):
        c = json.loads(line)
        if c["kind"] == "pretok" and "\r" not in c["text"]:
            texts.append(c["text"])
            passed += pretokens(c["text"]) == c["expect"]
            failed += pretokens(c["text"]) != c["expect"]
    for t in texts:
        ok = pretokens(t) == two_stage(t) and tok.decode(tok.encode(t)) == t
        passed += ok
        failed += not ok
        if not ok:
            print(repr(t), pretokens(t), two_stage(t))
    if len(set(tok.bytes)) != tok.size:
        failed += 1
        print("two entries spell the same bytes")
    print(f"{passed} passed, {failed} failed")
    return failed != 0


sys.exit(main(sys.argv[1]))
