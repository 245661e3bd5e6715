"""Held-out cases and their scoring: what an answer must be, independent of what produced it.

A case is a conversation of the test split whose last turn is the expected answer. reply_of() turns generated
ids into content and calls; score() compares. Code is run (runcode.py), everything else is compared exactly.
"""
import json

import runcode
import tokens as tk
from skills import arith, chat, code, extract, recall, text, tools
from skills.conv import render, value_text
from skills.words import Draw

KINDS = (
    "tool",
    "refuse",
    "chain",
    "json",
    "arithmetic",
    "code",
    "retrieval 8k",
    "retrieval 2k",
    "retrieval 15k",
    "chat",
    "text",
    "remember",
)
LIMIT = {"arithmetic": 420, "code": 420, "text": 300}


def tool_case(d):
    while True:
        c = (tools.single if d.chance(0.75) else tools.natural)(d)
        if c.skill == "tool call":
            return c


def cut_chain(d):
    """A chain, asked for one of its middle steps."""
    c = (tools.chain if d.chance(0.7) else tools.pass_on)(d)
    steps = [i for i, t in enumerate(c.turns) if t.role == "assistant"][1:]
    c.turns = c.turns[: d.pick(steps) + 1]
    return c


def of(makers):
    return lambda d: d.r.choices([f for f, _ in makers], [w for _, w in makers])[0](d)


def arithmetic_case(d):
    c = arith.arithmetic(d)
    c.thinking = True
    return c


def refuse_case(d):
    while True:
        c = tools.refuse(d)
        if c.turns[-1].text.startswith("I have no tool"):
            return c


MAKE = {
    "tool": tool_case,
    "refuse": refuse_case,
    "chain": cut_chain,
    "json": extract.extract,
    "arithmetic": arithmetic_case,
    "code": lambda d: (code.write if d.chance(0.75) else code.complete)(d),
    "retrieval 8k": lambda d: recall.facts(d, 0, tokens=7800),
    "retrieval 2k": lambda d: recall.facts(d, 0, tokens=2000),
    "retrieval 15k": lambda d: recall.facts(d, 0, tokens=14800),
    "chat": of(chat.SKILLS),
    "text": of(text.SKILLS),
    "remember": chat.remember,
}


def make(kind, n, seed=9000):
    d = Draw(seed + sum(map(ord, kind)), "test")
    out = []
    while len(out) < n:
        c = MAKE[kind](d)
        if "retrieval" in kind:
            c.thinking = False
        out.append(c)
    return out


def prompt(tok, c):
    return tok.encode_items(render(c, open_last=True))[0].tolist()


def answer(tok, c):
    """Ids that the model should write after prompt()."""
    ids = tok.encode_items(render(c))[0].tolist()[len(prompt(tok, c)) :]
    return ids[: ids.index(tk.END_ASSISTANT) + 1]


def reply_of(tok, ids, thinking):
    """(content, [(name, {key: text})]) of generated ids."""
    ids = [i for i in ids if i not in (tk.EOS, tk.END_ASSISTANT)]
    if thinking:
        if tk.END_THINK not in ids:
            return None, []
        ids = ids[ids.index(tk.END_THINK) + 1 :]
    calls, content = [], []
    while ids:
        if ids[0] != tk.CALL:
            content.append(ids.pop(0))
            continue
        end = ids.index(tk.END_CALL) if tk.END_CALL in ids else len(ids)
        calls.append(parse_call(tok.decode(ids[1:end])))
        ids = ids[end + 1 :]
    return tok.decode(content), calls


def parse_call(s):
    name, *pairs = s.split("<arg_key>")
    args = {}
    for p in pairs:
        key, _, rest = p.partition("</arg_key>")
        args[key] = rest.partition("<arg_value>")[2].partition("</arg_value>")[0]
    return name, args


def score(kind, c, content, calls):
    """True or False; None when it cannot be run here."""
    want = c.turns[-1]
    if content is None:
        return False
    if kind == "refuse":
        return not calls
    if kind in ("tool", "chain"):
        expect = [(n, {k: value_text(v) for k, v in a.items()}) for n, a in want.calls]
        return calls == expect and (bool(calls) or content == want.text)
    if kind == "json":
        try:
            return json.loads(content) == json.loads(want.text)
        except ValueError:
            return False
    if kind == "arithmetic":
        return content.strip().split("= ")[-1] == c.check["result"]
    if kind == "code":
        return runcode.passes(content, c.check)
    return content == want.text
