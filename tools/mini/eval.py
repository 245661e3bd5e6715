"""Scores a model file on the held-out cases through lagoon itself, one answer at a time, and prints a table.

  eval.py [--lagoon BIN] [--model FILE] [--n N] [--kinds A,B] [--misses FILE]

Every prompt is rendered here and given to `lagoon generate --raw`; the answer is parsed here, generated
functions are run (C and JavaScript when cc and node are there). Temperature 0, one thread.
"""
import argparse
import json
import subprocess
import tempfile
from pathlib import Path

import cases
import tokens as tk
from skills.conv import render

ROOT = Path(__file__).resolve().parents[2]
LONGEST_ANSWER = 440
GOAL = {"tool": 0.9, "refuse": 0.9, "json": 0.9, "arithmetic": 0.95, "code": 0.85, "retrieval 8k": 0.9}


def text_of(items):
    names = tk.added_tokens()
    return "".join(names[x] if isinstance(x, int) else x for x, _ in items)


def ask(lagoon, model, prompt):
    with tempfile.NamedTemporaryFile("w", suffix=".txt", encoding="utf-8") as f:
        f.write(prompt)
        f.flush()
        p = subprocess.run(
            [
                lagoon,
                "generate",
                "-m",
                model,
                "--no-draft",
                "--raw",
                "-f",
                f.name,
                "--temp",
                "0",
                "-n",
                str(LONGEST_ANSWER),
                "-t",
                "1",
                "--json",
                "-q",
            ],
            capture_output=True,
            text=True,
            check=True,
        )
    return json.loads(p.stdout)["content"]


def parse(text, thinking):
    """(content, calls) of an answer in which control tokens are spelled out."""
    if thinking:
        head, end, text = text.partition("</think>")
        if not end:
            return None, []
    content, *calls = text.split("<tool_call>")
    return content, [cases.parse_call(c.partition("</tool_call>")[0]) for c in calls]


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--lagoon", default=str(ROOT / "build" / "lagoon"))
    ap.add_argument("--model", default=str(ROOT / "models" / "mini.gguf"))
    ap.add_argument("--n", type=int, default=40)
    ap.add_argument("--kinds", default=",".join(cases.KINDS))
    ap.add_argument("--misses", type=Path)
    a = ap.parse_args()
    misses = {}
    print("| held-out cases | right | of | rate | goal |\n| --- | --- | --- | --- | --- |")
    for kind in a.kinds.split(","):
        todo = cases.make(kind, max(8, a.n // 4) if kind in ("retrieval 8k", "retrieval 15k") else a.n)
        right = ran = 0
        for c in todo:
            got = ask(a.lagoon, a.model, text_of(render(c, open_last=True)))
            ok = cases.score(kind, c, *parse(got, c.thinking))
            right += ok is True
            ran += ok is not None
            if ok is False:
                want = c.turns[-1]
                misses.setdefault(kind, []).append(
                    {"asked": c.turns[-2].text[-300:], "want": want.text or want.calls, "got": got}
                )
        goal = f"{100 * GOAL[kind]:.0f} %" if kind in GOAL else ""
        print(f"| {kind} | {right} | {ran} | {100 * right / max(1, ran):.0f} % | {goal} |", flush=True)
    if a.misses:
        a.misses.write_text(json.dumps(misses, indent=1, ensure_ascii=False), encoding="utf-8")


if __name__ == "__main__":
    main()
