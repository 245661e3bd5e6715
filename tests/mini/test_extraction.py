"""Extraction with a schema and without, on held-out cases of the demonstration model's own kind: what an answer wins or loses
by its constraint.

usage: test_extraction.py LAGOON MODELS_DIR [CASES [FIRST_SEED]]

Default: 16 cases; `make soak` asks 300. Each case is asked twice at temperature 0 with the drafter, in one API after the
other, streamed and not, with thinking as the case has it. Fails when a constrained answer that ended by itself has another
shape, when one ends by its length where the free one does not, or when fewer are right than without a constraint.
"""
import json
import os
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
MODELS, CASES, SEED = sys.argv[2], *(int(x) for x in (sys.argv[3:] + ["16", "1"][len(sys.argv) - 3:])[:2])
del sys.argv[2:]
sys.path[1:1] = [os.path.join(HERE, "..", "e2e"), os.path.join(HERE, "..", "..", "tools", "mini")]

import lib  # noqa: F401 (reads the program's path)
from dialects import DIALECTS
from skills import extract
from skills.words import Draw
from web import Server

LIMIT = 440


def types(values):
    """The schema of what some values have in common; a field that the text leaves out is null."""
    known = [v for v in values if v is not None]
    if known and isinstance(known[0], dict):
        return {"type": "object", "properties": {k: types([v[k] for v in known]) for k in known[0]},
                "required": list(known[0]), "additionalProperties": False}
    if known and isinstance(known[0], list):
        return {"type": "array", "items": types([x for v in known for x in v])}
    if not known:
        return {"type": ["string", "number", "boolean", "null"]}
    if all(isinstance(v, bool) for v in known):
        kind = "boolean"
    elif all(isinstance(v, str) for v in known):
        kind = "string"
    else:
        kind = "integer" if all(isinstance(v, int) for v in known) else "number"
    return {"type": [kind, "null"]}


def fits(v, s):
    """Judged by hand: nothing of ours agrees with itself here."""
    if s.get("type") == "object":
        return isinstance(v, dict) and list(v) == s["required"] and all(fits(v[k], c) for k, c in s["properties"].items())
    if s.get("type") == "array":
        return isinstance(v, list) and all(fits(x, s["items"]) for x in v)
    name = {bool: "boolean", str: "string", int: "integer", float: "number", type(None): "null"}.get(type(v))
    return name in s["type"] or (name == "integer" and "number" in s["type"])


def parsed(text):
    try:
        return json.loads(text)
    except ValueError:
        return ...


def ask(server, dialect, case, stream, schema):
    body = dialect.body(case.turns[-2].text, case.thinking, max_tokens=LIMIT, **dialect.greedy(),
                        **(dialect.format(schema) if schema else {}))
    dialect.system(body, case.system)
    text, _, end = dialect.ask(server, body, stream)
    return text or "", end


def main():
    count = {k: 0 for k in ("free right", "right", "free cut", "cut", "cut by the constraint", "wrong shape", "thinking")}
    draw, start = Draw(9000 + SEED, "test"), time.time()
    with Server(os.path.join(MODELS, "mini.gguf")) as server:
        for i in range(CASES):
            case, dialect, stream = extract.extract(draw), DIALECTS[i % 4], i // 4 % 2 == 1
            want = json.loads(case.turns[-1].text)
            schema = types([want])
            free, free_end = ask(server, dialect, case, stream, None)
            text, end = ask(server, dialect, case, stream, schema)
            count["thinking"] += case.thinking
            count["free right"] += parsed(free) == want
            count["right"] += parsed(text) == want
            count["free cut"] += free_end == "length"
            count["cut"] += end == "length"
            if end == "length" != free_end:
                count["cut by the constraint"] += 1
                print(f"case {i}: cut: {text[:300]!r}; free: {free[:300]!r}")
            if end != "length" and not fits(parsed(text), schema):
                count["wrong shape"] += 1
                print(f"case {i}: {text!r} is no value of {json.dumps(schema)}")
    print(f"{CASES} cases, {time.time() - start:.0f} s: " + ", ".join(f"{v} {k}" for k, v in count.items()))
    return count["wrong shape"] or count["cut by the constraint"] or count["right"] < count["free right"]


if __name__ == "__main__":
    sys.exit(bool(main()))
