"""The shipped demonstration model answers through the built program; and its file is within what was
promised.

usage: test_answers.py LAGOON MODELS_DIR
"""
import json
import os
import subprocess
import sys
from pathlib import Path

LIMIT_BYTES = 40 << 20
# nothing of the user's own settings
ENV = {k: v for k, v in os.environ.items() if not k.startswith("LAGOON_")} | {"XDG_CONFIG_HOME": "/nowhere"}
ASKED = [
    (["--no-think"], "Who are you?", "I am laguna-mini, the small demonstration model of lagoon."),
    (["--think"], "What is the capital of France?", "The capital of France is Paris."),
    (["--think"], "What is 12 + 30?", "12 + 30 = 42"),
    (
        ["--no-think"],
        "Write a Python function that reverses a string.",
        "```python\ndef reverse_string(text):\n    return text[::-1]\n```",
    ),
]


def main(lagoon, models):
    passed = failed = 0
    size = sum(Path(models, f).stat().st_size for f in ("mini.gguf", "mini-dflash.gguf"))
    for ok, what in [(size <= LIMIT_BYTES, f"{size} bytes together")] + [
        (answer(lagoon, models, flags, q) == want, q) for flags, q, want in ASKED
    ]:
        passed += ok
        failed += not ok
        if not ok:
            print(f"wrong: {what}")
    print(f"{passed} passed, {failed} failed")
    return failed != 0


def answer(lagoon, models, flags, question):
    p = subprocess.run(
        [
            lagoon,
            "generate",
            "-m",
            str(Path(models, "mini.gguf")),
            "--no-draft",
            "--temp",
            "0",
            "-n",
            "200",
            "--json",
            "-q",
            *flags,
            "-p",
            question,
        ],
        capture_output=True,
        text=True,
        encoding="utf-8",
        env=ENV,
    )
    if p.returncode:
        print(p.stderr)
        return None
    got = json.loads(p.stdout)["content"]
    print(f"{question} -> {got!r}")
    return got


sys.exit(main(*sys.argv[1:3]))
