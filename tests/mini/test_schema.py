"""Constrained answers of the shipped demonstration model, with thinking and without: whatever it would rather say, an
answer that ends by itself is what was asked for.

usage: test_schema.py LAGOON MODELS_DIR [REQUESTS [FIRST_SEED]]

Default: 14 requests; `make soak` asks 500. The judges are written by hand here, so that nothing of ours agrees with
itself.
"""
import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

PERSON = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "minLength": 1, "maxLength": 40},
        "age": {"type": "integer", "minimum": 0, "maximum": 130},
        "tags": {"type": "array", "items": {"enum": ["new", "old"]}, "maxItems": 3},
    },
    "required": ["name", "age"],
    "additionalProperties": False,
}


def is_int(v):
    return isinstance(v, int) and not isinstance(v, bool)


def is_person(v):
    return (
        isinstance(v, dict)
        and set(v) <= {"name", "age", "tags"}
        and isinstance(v.get("name"), str)
        and 1 <= len(v["name"]) <= 40
        and is_int(v.get("age"))
        and 0 <= v["age"] <= 130
        and (len(v.get("tags", [])) <= 3 and all(t in ("new", "old") for t in v.get("tags", [])))
    )


def is_row(v):
    return isinstance(v, list) and 1 <= len(v) <= 4 and all(is_int(x) and -9 <= x <= 9 and x % 3 == 0 for x in v)


def is_shape(v):
    if not isinstance(v, dict):
        return False
    if v.get("kind") == "circle":
        return set(v) == {"kind", "radius"} and not isinstance(v["radius"], bool) and 0 < v["radius"] < 10
    return set(v) == {"kind", "sides"} and v["kind"] == "polygon" and is_int(v["sides"]) and 3 <= v["sides"] <= 12


def is_tree(v):
    return (
        isinstance(v, dict)
        and set(v) <= {"value", "left"}
        and isinstance(v.get("value"), bool)
        and ("left" not in v or is_tree(v["left"]))
    )


# what is asked, how, and who judges the text
CASES = [
    ("Extract the person: Maria is 34 years old.", PERSON, is_person),
    ("Give three multiples of three.",
     {"type": "array", "items": {"type": "integer", "minimum": -9, "maximum": 9, "multipleOf": 3}, "minItems": 1,
      "maxItems": 4}, is_row),
    ("Describe a shape.",
     {"oneOf": [
         {"type": "object", "properties": {"kind": {"const": "circle"},
                                           "radius": {"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 10}},
          "required": ["kind", "radius"], "additionalProperties": False},
         {"type": "object", "properties": {"kind": {"const": "polygon"},
                                           "sides": {"type": "integer", "minimum": 3, "maximum": 12}},
          "required": ["kind", "sides"], "additionalProperties": False}]}, is_shape),
    ("Is the sky blue? Answer with a tree.",
     {"type": "object", "properties": {"value": {"type": "boolean"}, "left": {"$ref": "#"}}, "required": ["value"],
      "additionalProperties": False}, is_tree),
    ("When was that?", {"type": "string", "format": "date"},
     lambda v: isinstance(v, str) and re.fullmatch(r"\d{4}-\d\d-\d\d", v) is not None),
    ("Write anything as JSON.", None, lambda v: isinstance(v, dict)),
    ("What is 12 + 30?", r"[1-9][0-9]{0,3} (ok|wrong)", lambda v: re.fullmatch(r"[1-9][0-9]{0,3} (ok|wrong)", v)),
]


# nothing of the user's own settings
ENV = {k: v for k, v in os.environ.items() if not k.startswith("LAGOON_")} | {"XDG_CONFIG_HOME": "/nowhere"}


def ask(lagoon, models, folder, question, want, seed, thinking):
    words = [lagoon, "generate", "-m", str(Path(models, "mini.gguf")), "-q", "--json", "-n", "500", "--seed", str(seed),
             "--think" if thinking else "--no-think", "--max-think", "60", "--temp", "1.5" if seed % 3 else "0", "-p",
             question]
    if want is None:
        words += ["--json-object"]
    elif isinstance(want, str):
        words += ["--regex", want]
    else:
        schema = Path(folder, "schema.json")
        schema.write_text(json.dumps(want))
        words += ["--json-schema", str(schema)]
    p = subprocess.run(words, capture_output=True, text=True, encoding="utf-8", env=ENV)
    if p.returncode:
        raise SystemExit(f"{' '.join(words)}\nfailed: {p.stderr}")
    return json.loads(p.stdout)


def main(lagoon, models, requests="14", seed="1"):
    ended = wrong = 0
    with tempfile.TemporaryDirectory() as folder:
        for i in range(int(requests)):
            question, want, judge = CASES[i % len(CASES)]
            out = ask(lagoon, models, folder, question, want, int(seed) + i, i // len(CASES) % 2 == 0)
            if out["finish"] != "stop":
                continue
            ended += 1
            try:
                good = judge(out["content"] if isinstance(want, str) else json.loads(out["content"]))
            except (ValueError, TypeError):
                good = False
            if not good:
                wrong += 1
                print(f"seed {int(seed) + i}: {question}: {out['content']!r}")
    print(f"{requests} requests, {ended} ended by themselves, {wrong} of them wrong")
    return wrong != 0 or ended < int(requests) * 3 // 4


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
