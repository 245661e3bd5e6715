#!/usr/bin/env python3
"""Writes chat-random.jsonl: random conversations and what a Jinja template makes of them, in the form of chat-cases.jsonl.

The template is the s21 text that the demonstration model ships with; Jinja2 and Python's json are the oracle for layout,
white space, floats and escapes. Needs jinja2 (Debian: python3-jinja2).

usage: make_random_chats.py tools/mini/chat_template.jinja >chat-random.jsonl
"""
import json
import random
import sys

from jinja2.sandbox import ImmutableSandboxedEnvironment

WORDS = ["a", " ", "\n", "\t", "\u00e9", "\u4e16\u754c", "<think>", "</think>", '"', "\\", "<user>", "{", "0", "\u00a0", "\u3000",
         "\x1c", "\U0001f600", "</arg_value>", "&'", "\u2028", "x y"]
FLOATS = [1.0, 0.1, 1e-7, 1e16, 1e15, 123456.789, -0.0, 5e-324, 1.7976931348623157e308, 2.5e-5]
rng = random.Random(20261129)


def text(most=8):
    return "".join(rng.choice(WORDS) for _ in range(rng.randint(0, most)))


def value(depth=0):
    kind = rng.randint(0, 9 if depth < 3 else 6)
    if kind == 0:
        return None
    if kind == 1:
        return rng.random() < 0.5
    if kind == 2:
        return rng.randint(-10 ** rng.randint(1, 30), 10 ** rng.randint(1, 30))
    if kind == 3:
        return rng.choice(FLOATS + [rng.random() * 10 ** rng.randint(-20, 20)])
    if kind <= 6:
        return text()
    if kind <= 8:
        return [value(depth + 1) for _ in range(rng.randint(0, 3))]
    return {text(3): value(depth + 1) for _ in range(rng.randint(0, 3))}


def message():
    role = rng.choice(["user", "user", "assistant", "assistant", "tool", "system"])
    m = {"role": role, "content": text()}
    if role == "assistant":
        if rng.random() < 0.5:
            m["reasoning_content"] = text()
        if rng.random() < 0.3:
            m["reasoning"] = text()
        if rng.random() < 0.4:
            m["tool_calls"] = [{"type": "function", "function": {
                "name": f"f{i}", "arguments": {text(3): value() for _ in range(rng.randint(0, 3))}}}
                for i in range(rng.randint(1, 3))]
    return m


def apply_history(messages, policy):
    if policy == "all":
        return messages
    real = [i for i, m in enumerate(messages) if m["role"] == "user" and m["content"]]
    last = real[-1] if real else -1
    return [{k: v for k, v in m.items() if not k.startswith("reasoning")}
            if m["role"] == "assistant" and (policy == "none" or i < last) else m for i, m in enumerate(messages)]


def as_sent(messages):
    """What clients make of it: arguments as text, content in parts."""
    messages = json.loads(json.dumps(messages))
    for m in messages:
        for call in m.get("tool_calls", []):
            if rng.random() < 0.5:
                call["function"]["arguments"] = json.dumps(call["function"]["arguments"], ensure_ascii=rng.random() < 0.5)
        if rng.random() < 0.3:
            m["content"] = [{"type": "text", "text": m["content"][:2]}, {"type": "text", "text": m["content"][2:]}]
    return messages


def main():
    env = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
    env.filters["tojson"] = lambda v: json.dumps(v, ensure_ascii=False)
    template = env.from_string(open(sys.argv[1], encoding="utf-8").read())
    for n in range(240):
        c = {"kind": "render", "id": f"random-{n}", "template": "s21", "enable_thinking": rng.random() < 0.5,
             "history_thinking": rng.choice(["tail", "all", "none"]), "add_generation_prompt": rng.random() < 0.8}
        messages = [message() for _ in range(rng.randint(0, 6))]
        c["tools"] = None
        if rng.random() < 0.4:
            c["tools"] = [{"type": "function", "function": {
                "name": "t", "description": text(), "parameters": {"type": "object", "properties": {text(3): value()}}}}
                for _ in range(rng.randint(1, 2))]
        c["expect"] = template.render(messages=apply_history(messages, c["history_thinking"]), tools=c["tools"],
                                      enable_thinking=c["enable_thinking"],
                                      add_generation_prompt=c["add_generation_prompt"])
        c["messages"] = as_sent(messages)
        print(json.dumps(c, ensure_ascii=False))


main()
