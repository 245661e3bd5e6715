#!/usr/bin/env python3
"""Measures what the server costs beside the model. Prints figures and judges nothing; run it on an idle machine.

  bench_server.py [--lagoon BIN] [-m MODEL] [--only decode,turns,parse] [--tokens N] [--reps N] [--words N]
                  [--beside bench|generate]

decode: tokens a second of `lagoon bench` at the same depth or, with --beside generate, of `lagoon generate`, and
  of a server as its client sees it, in one body and as a stream; all in turn, plain decoding. The client's time of
  a request for one token is subtracted from that of the whole answer. A machine that is shared changes its speed
  from minute to minute, so each of the server's figures is also divided by the mean of the reference just before
  and after it: the median of these ratios, and between which two of them the true median lies with 95 %.
turns: time to the first token of a conversation of about --words words when it is new, when a tool's result is
  added, and when the user speaks again, with the tokens that were not cached.
parse: a body of 100 kB until its prompt is tokens: /v1/messages/count_tokens, which does all that comes before
  the engine; median of 100.
"""
import argparse
import json
import math
import random
import re
import signal
import socket
import statistics
import subprocess
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
CODE = "#include <stdio.h>\n\nint main(void)\n{\n"  # what the demonstration model goes on with for long
ANSWER = 327  # tokens of its answer with seed 1 at the default sampling


class Server:
    def __init__(self, a, *words):
        self.log = tempfile.NamedTemporaryFile(prefix="lagoon-bench-", suffix=".log")
        self.process = subprocess.Popen(
            [a.lagoon, "serve", "-m", a.model, "--port", "0", *words, *a.flag], stderr=self.log,
            stdout=subprocess.DEVNULL)
        self.port = int(self.wait_for(r" on http://\S+:(\d+)"))
        self.wait_for(r"engine +(ready)")

    def wait_for(self, pattern):
        for _ in range(6000):
            text = Path(self.log.name).read_text(encoding="utf-8", errors="replace")
            m = re.search(pattern, text)
            if m:
                return m[1]
            if self.process.poll() is not None:
                raise SystemExit("the server ended:\n" + text)
            time.sleep(0.02)
        raise SystemExit("the server is not ready after two minutes")

    def post(self, path, body, first=None):
        """The answer's bytes, its seconds, and the seconds until the pattern `first` was seen. The client only
        receives: it shares the machine with the server."""
        s = socket.create_connection(("127.0.0.1", self.port))
        data = json.dumps(body).encode()
        head = f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nConnection: close\r\n"
        got, seen = [], None
        with s:
            start = time.perf_counter()
            s.sendall(f"{head}Content-Length: {len(data)}\r\n\r\n".encode() + data)
            while True:
                piece = s.recv(1 << 16)
                if not piece:
                    break
                got.append(piece)
                if first and seen is None and first.search(b"".join(got)):
                    seen = time.perf_counter() - start
            end = time.perf_counter() - start
        raw = b"".join(got)
        if not raw.startswith(b"HTTP/1.1 200"):
            raise SystemExit(f"{path}: {raw[:600].decode(errors='replace')}")
        return raw, end, seen

    def end(self):
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(60)


def usage(raw):
    """Tokens that a native answer counts, streamed or not."""
    return int(re.findall(rb'"output_tokens": ?(\d+)', raw)[-1])


# --- decode ---


def bench(a, tokens):
    p = subprocess.run([a.lagoon, "bench", "-m", a.model, "--no-draft", "--prompt", "0", "--gen", str(tokens), "--depth",
                        "32", "--reps", "1", "--warmup", "2s", "--json", "-q", "-c", "8192", *a.flag],
                       capture_output=True, text=True, check=True)
    return json.loads(p.stdout)["runs"][0]["tok_s"]


def generate(a, tokens):
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as f:
        f.write(CODE)
        f.flush()
        p = subprocess.run([a.lagoon, "generate", "-m", a.model, "--no-draft", "--raw", "-f", f.name, "--seed", "1", "-n",
                            str(tokens), "--json", "-q", "-c", "8192", *a.flag], capture_output=True, text=True,
                           check=True)
    out = json.loads(p.stdout)
    return (out["output_tokens"] - 1) / out["decode_s"]


def serve(server, tokens, stream):
    body = {"prompt": CODE, "sampling": {"seed": 1}, "stream": stream}
    server.post("/lagoon/v1/generate", body | {"max_tokens": 8})  # the prompt is cached from here on
    base = min(server.post("/lagoon/v1/generate", body | {"max_tokens": 1})[1] for _ in range(3))
    raw, seconds, _ = server.post("/lagoon/v1/generate", body | {"max_tokens": tokens})
    return (usage(raw) - 1) / (seconds - base)


def decode(a):
    server = Server(a, "--no-draft", "-c", "8192")
    ways = {"server, one body": False, "server, stream": True}
    reference = {"bench": bench, "generate": generate}[a.beside]
    got, ratio, beside = {w: [] for w in ways}, {w: [] for w in ways}, [reference(a, a.tokens)]
    for _ in range(a.reps):
        for w, stream in ways.items():
            got[w].append(serve(server, a.tokens, stream))
            beside.append(reference(a, a.tokens))
            ratio[w].append(200 * got[w][-1] / (beside[-2] + beside[-1]))
    server.end()
    print(f"{'decode':18} {'tok/s':>8} {'min':>8} {'max':>8} {'of what is beside it':>24}")
    print(row("lagoon " + a.beside, beside))
    for w in ways:
        r = sorted(ratio[w])
        low, high = median_bounds(len(r))
        of = f"{statistics.median(r):.1f} % ({r[low]:.1f} to {r[high]:.1f})"
        print(f"{row(w, got[w])} {of:>24}")


def row(name, v):
    return f"{name:18} {statistics.median(v):8.1f} {min(v):8.1f} {max(v):8.1f}"


def median_bounds(n):
    """Which two of n sorted samples the median lies between with 95 %, or the outermost when n is below 6: the number of
    samples below it is binomial."""
    low = 0
    while sum(math.comb(n, i) for i in range(low + 2)) <= 0.025 * 2 ** n:
        low += 1
    return low, n - 1 - low


# --- turns ---

FIRST = re.compile(rb'"(content|name|reasoning_content)": ?"[^"]')  # a first token, not the opening frame

TOOL = {"type": "function", "function": {
    "name": "read_file", "description": "Read a file",
    "parameters": {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}}}


def ask(server, messages):
    """Seconds to the first token, the answer's text, tokens of the prompt, and how many were not cached."""
    body = {"messages": messages, "temperature": 0, "max_tokens": 40, "stream": True, "tools": [TOOL],
            "stream_options": {"include_usage": True}, "thinking": {"type": "disabled"}}
    raw, _, seconds = server.post("/v1/chat/completions", body, FIRST)
    frames = [json.loads(x) for x in re.findall(rb"data: (\{.*\})", raw)]
    text = "".join(c["delta"].get("content") or "" for f in frames for c in f["choices"])
    u = next(f["usage"] for f in frames if f.get("usage"))
    return seconds, text, u["prompt_tokens"], u["prompt_tokens"] - u["prompt_tokens_details"]["cached_tokens"]


def turns(a):
    print(f"{'turn':18} {'tokens':>8} {'new':>8} {'ms':>8} {'of the cold one':>16}")
    got = {}
    for rep in range(a.reps):
        rng = random.Random(rep + 1)
        words = ["".join(rng.choice("abcdefghijklmnop") for _ in range(5)) for _ in range(400)]
        text = " ".join(rng.choice(words) for _ in range(a.words))
        server = Server(a, "-c", "32768")
        m = [{"role": "system", "content": "You are an agent."},
             {"role": "user", "content": f"Text: {text}\nRead the file a.txt."}]
        got.setdefault("new", []).append(ask(server, m))
        m.append({"role": "assistant", "content": None, "tool_calls": [
            {"id": "call_1", "type": "function",
             "function": {"name": "read_file", "arguments": '{"path": "a.txt"}'}}]})
        m.append({"role": "tool", "tool_call_id": "call_1", "content": " ".join(rng.choice(words) for _ in range(90))})
        answer = ask(server, m)
        got.setdefault("tool result", []).append(answer)
        time.sleep(3)  # idle prefill
        m += [{"role": "assistant", "content": answer[1]}, {"role": "user", "content": "Thanks. What is 2 + 3?"}]
        got.setdefault("user message", []).append(ask(server, m))
        server.end()
    cold = statistics.median(g[0] for g in got["new"])
    for turn, g in got.items():
        m = statistics.median(x[0] for x in g)
        print(f"{turn:18} {g[0][2]:8} {g[0][3]:8} {m * 1000:8.1f} {cold / m:14.1f} x")


# --- parse ---


def parse(a):
    server = Server(a)
    rng = random.Random(1)
    text = Path(ROOT / "src" / "engine" / "generate.c").read_text(encoding="utf-8")
    message = []
    while sum(len(x["content"]) for x in message) < 97000:
        at = rng.randrange(len(text) - 4000)
        message.append({"role": "assistant" if len(message) % 2 else "user", "content": text[at:at + 4000]})
    message = message[:-1] if len(message) % 2 == 0 else message
    body = {"model": "m", "max_tokens": 100, "messages": message}
    took = sorted(server.post("/v1/messages/count_tokens", body)[1] for _ in range(100))
    server.end()
    print(f"{len(json.dumps(body)) / 1000:.0f} kB until its prompt is tokens: {took[50] * 1000:.2f} ms "
          f"({took[0] * 1000:.2f} to {took[-1] * 1000:.2f})")


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--lagoon", default=str(ROOT / "build" / "lagoon"))
    ap.add_argument("-m", "--model", default=str(ROOT / "models" / "mini.gguf"))
    ap.add_argument("--only", default="decode,turns,parse")
    ap.add_argument("--beside", choices=["bench", "generate"], default="bench")
    ap.add_argument("--tokens", type=int, default=ANSWER)
    ap.add_argument("--reps", type=int, default=5)
    ap.add_argument("--words", type=int, default=3290)
    ap.add_argument("flag", nargs="*", help="behind --: settings for all of them, as -t 2")
    a = ap.parse_args()
    for part in a.only.split(","):
        {"decode": decode, "turns": turns, "parse": parse}[part](a)


if __name__ == "__main__":
    main()
