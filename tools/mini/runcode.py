"""Runs a generated function against its tests, in a child process with a time limit: passes(source, check)
-> bool.

`check` is skills.code.Task.check(): language, name, argument kinds and [(arguments, result)]. JavaScript
needs node; without it passes() returns None.
"""
import json
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

LIMIT_S = 5


def first_block(text):
    m = re.search(r"```[a-z]*\n(.*?)\n```", text, re.S)
    return m.group(1) if m else text


def run(argv, **kw):
    try:
        return subprocess.run(argv, capture_output=True, text=True, timeout=LIMIT_S, **kw)
    except subprocess.TimeoutExpired:
        return None


def passes_py(source, check):
    cases = [(a, r) for a, r in check["tests"]]
    prog = f"{source}\nfor a, r in {cases!r}:\n    assert {check['name']}(*a) == r\n"
    p = run([sys.executable, "-I", "-c", prog])
    return p is not None and p.returncode == 0


def passes_c(source, check):
    body = []
    for args, r in check["tests"]:
        made, call = "", []
        for i, (kind, a) in enumerate(zip(check["kinds"], args)):
            if kind == "L":
                made += f"int v{i}[] = {{{', '.join(map(str, a))}}}; "
                call += [f"v{i}", str(len(a))]
            else:
                call.append(json.dumps(a))
        if check["ret"] == "V":
            body.append(
                f"    {{ char s[] = {call[0]}; {check['name']}(s); if (strcmp(s, {json.dumps(r)})) return 1; }}"
            )
            continue
        body.append(f"    {{ {made}if ({check['name']}({', '.join(call)}) != {int(r)}) return 1; }}")
    prog = (
        "#include <string.h>\n#include <stdlib.h>\n"
        + source
        + "\nint main(void)\n{\n"
        + "\n".join(body)
        + "\n    return 0;\n}\n"
    )
    with tempfile.TemporaryDirectory() as t:
        src, exe = Path(t, "a.c"), Path(t, "a")
        src.write_text(prog)
        p = run(["cc", "-std=c17", "-w", "-o", str(exe), str(src)])
        if p is None or p.returncode:
            return False
        p = run([str(exe)])
        return p is not None and p.returncode == 0


def passes_js(source, check):
    if not shutil.which("node"):
        return None
    tests = json.dumps([[a, r] for a, r in check["tests"]])
    prog = (
        f"{source}\nfor (const [a, r] of {tests}) {{ if (JSON.stringify({check['name']}(...a)) !== JSON.stringify(r)) "
        "process.exit(1); }"
    )
    p = run(["node", "-e", prog])
    return p is not None and p.returncode == 0


def passes(text, check):
    return {"py": passes_py, "c": passes_c, "js": passes_js}[check["lang"]](first_block(text), check)
