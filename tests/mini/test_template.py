"""The Jinja text shipped inside the model renders every `s21` case byte for byte.

usage: test_template.py CHAT_CASES.jsonl CHAT_TEMPLATE.jinja     exit 77 when jinja2 is not installed
"""
import json
import sys

try:
    import jinja2
    from jinja2.sandbox import ImmutableSandboxedEnvironment
except ImportError:
    print("jinja2 is not installed: skipped")
    sys.exit(77)


def history(messages, policy):
    """The engine's history policy (applied before the template): which reasoning is kept."""
    if policy == "all":
        return messages
    real = [i for i, m in enumerate(messages) if m["role"] == "user"]
    last = real[-1] if real else -1
    drop = ("reasoning", "reasoning_content")
    return [
        {k: v for k, v in m.items() if k not in drop}
        if m["role"] == "assistant" and (policy == "none" or i < last)
        else m
        for i, m in enumerate(messages)
    ]


def flat(messages):
    return [
        dict(m, content="".join(p["text"] for p in m["content"])) if isinstance(m.get("content"), list) else m
        for m in messages
    ]


def main(cases, template):
    env = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
    env.filters["tojson"] = lambda v: json.dumps(v, ensure_ascii=False)
    text = open(template, encoding="utf-8").read()
    tmpl = env.from_string(text)
    passed = failed = 0
    for line in open(cases, encoding="utf-8"):
        c = json.loads(line)
        if c["kind"] != "render" or c["template"] != "s21":
            continue
        got = tmpl.render(
            messages=history(flat(c["messages"]), c["history_thinking"]),
            tools=c["tools"],
            enable_thinking=c["enable_thinking"],
            add_generation_prompt=c["add_generation_prompt"],
        )
        if got == c["expect"]:
            passed += 1
        else:
            failed += 1
            print(f"{c['id']}: got\n{got!r}\nwant\n{c['expect']!r}")
    if "laguna_glm_thinking_v8" not in text:
        failed += 1
        print("the family's marker is missing")
    print(f"{passed} passed, {failed} failed")
    return 0 if passed >= 20 and failed == 0 else 1


sys.exit(main(*sys.argv[1:3]))
