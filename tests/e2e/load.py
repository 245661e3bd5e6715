#!/usr/bin/env python3
"""Load on a server: many connections, some of them slow or dying, all dialects mixed, for a time.

    load.py PROGRAM [--minutes M] [--connections N] [--bad N] [--seed S] [--threads N]

Every answer of a well-behaved client must be complete and right. At the end the engine must be idle, the queue empty,
every log line of a request answered, and the memory must not have grown: with a run of 20 minutes or more the highest RSS
of the last 10 minutes is at most 2 % above that of the first 10. Prints one line a minute and a summary.
"""
import argparse
import asyncio
import json
import os
import random
import resource
import socket
import sys
import time

ARGS = argparse.ArgumentParser()
ARGS.add_argument("--minutes", type=float, default=1)
ARGS.add_argument("--connections", type=int, default=200)
ARGS.add_argument("--bad", type=int, default=64)
ARGS.add_argument("--seed", type=int, default=int(time.time()))
ARGS.add_argument("--threads", type=int, default=0, help="of the engine; 0: as many as it takes by itself")
program = sys.argv[1]
args = ARGS.parse_args(sys.argv[2:])
sys.argv = [sys.argv[0], program]

import lib  # noqa: E402
from web import Server, chat, frames  # noqa: E402

del lib.ENV["LAGOON_THREADS"]

WORDS = "the quick brown fox jumps over the lazy dog while nobody looks at all".split()
END = {"chat": b"data: [DONE]\n\n", "completions": b"data: [DONE]\n\n", "messages": b"event: message_stop",
       "responses": b"event: response.completed", "native": b"event: end"}


class Count(dict):
    def add(self, what, n=1):
        self[what] = self.get(what, 0) + n


count = Count()
problems = []


def problem(text):
    problems.append(text)
    print("problem:", text[:600], flush=True)


def request(rng):
    """(dialect, stream, path, body)"""
    dialect = rng.choice(["chat", "chat", "messages", "messages", "responses", "completions", "native", "count", "models"])
    stream = rng.random() < 0.6
    text = " ".join(rng.choice(WORDS) for _ in range(rng.choice((3, 3, 30, 200))))
    if dialect == "chat":
        return dialect, stream, "/v1/chat/completions", chat(text, max_tokens=300, stream=stream)
    if dialect == "messages":
        return dialect, stream, "/v1/messages", chat(text, max_tokens=300, stream=stream)
    if dialect == "responses":
        return dialect, stream, "/v1/responses", {"input": text, "max_output_tokens": 300, "stream": stream}
    if dialect == "completions":
        return dialect, stream, "/v1/completions", {"prompt": text, "max_tokens": 5, "stream": stream}
    if dialect == "native":
        return dialect, stream, "/lagoon/v1/generate", chat(text, max_tokens=300, stream=stream)
    if dialect == "count":
        return dialect, False, "/v1/messages/count_tokens", chat(text)
    return dialect, False, "/v1/models", None


def wire(path, body, keep=True):
    data = json.dumps(body).encode() if body is not None else b""
    head = f"{'POST' if body is not None else 'GET'} {path} HTTP/1.1\r\nHost: localhost\r\nUser-Agent: load/1.0\r\n"
    head += f"Content-Type: application/json\r\nContent-Length: {len(data)}\r\n"
    return head.encode() + (b"" if keep else b"Connection: close\r\n") + b"\r\n", data


async def answer(reader):
    """Status and body; raises when it is cut short."""
    head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
    status = int(head.split()[1])
    if "transfer-encoding: chunked" in head:
        body = b""
        while n := int((await reader.readuntil(b"\r\n"))[:-2], 16):
            body += await reader.readexactly(n)
            await reader.readexactly(2)
        await reader.readexactly(2)
        return status, body
    n = int(head.split("content-length:")[1].split("\r\n")[0])
    return status, await reader.readexactly(n)


def text_of(dialect, stream, body):
    """The answer's text, put together from the events of a stream."""
    if not stream:
        d = json.loads(body)
        return {"chat": lambda: d["choices"][0]["message"]["content"], "native": lambda: d["text"],
                "messages": lambda: "".join(b.get("text", "") for b in d["content"]),
                "responses": lambda: "".join(c["text"] for o in d["output"] if o["type"] == "message" for c in o["content"])
                }[dialect]()
    out = ""
    for event, data in frames(body):
        if event is None or data == "[DONE]":
            continue
        d = json.loads(data)
        if dialect == "chat":
            out += "".join(c["delta"].get("content") or "" for c in d["choices"])
        elif dialect == "messages" and d["type"] == "content_block_delta":
            out += d["delta"].get("text", "")
        elif dialect == "responses" and d["type"] == "response.output_text.delta":
            out += d["delta"]
        elif dialect == "native" and event == "text":
            out += d["delta"]
    return out


def judge(dialect, stream, status, body):
    if status == 429:
        count.add("429")
        return False
    if status != 200:
        problem(f"{dialect}: status {status}: {body[:300]!r}")
    elif stream and END[dialect] not in body[-3000:]:
        problem(f"{dialect}: the stream has no end: {body[-300:]!r}")
    elif dialect in ("chat", "messages", "native", "responses") and text_of(dialect, stream, body) != lib.ANSWER:
        problem(f"{dialect}: not the answer: {body[-300:]!r}")
    else:
        count.add(dialect)
    return True


async def good(port, rng, until):
    while time.monotonic() < until:
        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1 << 24)
            for _ in range(rng.randint(1, 8)):
                dialect, stream, path, body = request(rng)
                for part in wire(path, body):
                    writer.write(part)
                await writer.drain()
                done = judge(dialect, stream, *await asyncio.wait_for(answer(reader), lib.PATIENCE))
                await asyncio.sleep(rng.random() * (0.2 if done else 2))
                if time.monotonic() > until:
                    break
            writer.close()
            await writer.wait_closed()
        except (OSError, asyncio.IncompleteReadError, asyncio.TimeoutError, ValueError) as e:
            problem(f"a good client: {e!r}")
            await asyncio.sleep(0.2)


async def bad(port, rng, until):
    while time.monotonic() < until:
        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=4096)
            raw = writer.get_extra_info("socket")
            _, _, path, body = request(rng)
            head, data = wire(path, body)
            kind = rng.choice(["headers", "body", "sent", "stream", "stream", "slow", "trickle", "deaf", "rubbish"])
            count.add("bad " + kind)
            if kind == "headers":
                writer.write(head[:rng.randint(0, len(head))])
            elif kind == "body":
                writer.write(head + data[:rng.randint(0, len(data))])
            elif kind == "rubbish":
                writer.write(rng.randbytes(200) + b"\r\n\r\n")
            elif kind == "trickle":
                for b in head + data:
                    writer.write(bytes([b]))
                    await asyncio.sleep(0.002)
            else:
                writer.write(head + data)
            await writer.drain()
            if kind in ("sent", "deaf", "headers", "body"):
                await asyncio.sleep(rng.random() * 3)
            for _ in range({"stream": rng.randint(1, 20), "slow": 400, "trickle": 4}.get(kind, 0)):
                # behind a whole answer nothing comes until the server closes the idle connection
                left = max(0.1, until - time.monotonic())
                if not await asyncio.wait_for(reader.read(100 if kind == "slow" else 2000), left):
                    break
                await asyncio.sleep(0.05 if kind == "slow" else 0)
            if rng.random() < 0.5:
                raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
            writer.close()
        except (OSError, asyncio.TimeoutError):
            pass
        await asyncio.sleep(rng.random() * 0.3)


async def look(server, until, samples):
    start = time.monotonic()
    while time.monotonic() < until:
        await asyncio.sleep(min(5, max(0.1, until - time.monotonic())))
        if server.process.poll() is not None:
            problem(f"the server ended with {server.process.returncode}")
            return
        samples.append((time.monotonic() - start, server.rss()))
        if int(samples[-1][0] / 60) != int((samples[-1][0] - 5) / 60):
            ok = sum(v for k, v in count.items() if not k.startswith("bad") and k != "429")
            print(f"{samples[-1][0] / 60:5.1f} min  answers {ok}  429 {count.get('429', 0)}  rss {samples[-1][1] >> 20} MiB",
                  flush=True)


async def everybody(server, samples):
    rng = random.Random(args.seed)
    until = time.monotonic() + args.minutes * 60
    tasks = [asyncio.create_task(look(server, until, samples))]
    for i in range(args.connections):
        kind = bad if i < args.bad else good
        tasks.append(asyncio.create_task(kind(server.port, random.Random(rng.random()), until)))
    done, left = await asyncio.wait(tasks, timeout=args.minutes * 60 + lib.PATIENCE + 60)
    for t in left:
        problem(f"a client did not come to an end: {t}")
        t.cancel()
    for t in done:
        t.result()  # an exception that nobody expects ends the run


def settle(server):
    server.wait_settled()
    status = server.status()
    if status["queue"]:
        problem(f"left in the queue: {status['queue']}")
    r = server.post("/v1/chat/completions", chat("still there?", max_tokens=300))
    if r.status != 200:
        problem(f"after the load: {r.status}")
    server.wait_settled()  # an answer is complete a moment before the engine says that it has nothing to do
    running, queued = server.metric("lagoon_requests_running"), server.metric("lagoon_requests_queued")
    if running or queued:
        problem(f"metrics say {running} run and {queued} wait")


def main():
    samples = []
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    want = args.connections + 100
    if soft != resource.RLIM_INFINITY and soft < want:
        resource.setrlimit(resource.RLIMIT_NOFILE, (want if hard == resource.RLIM_INFINITY else min(want, hard), hard))
    print(f"load: {args.connections} connections, {args.bad} bad, {args.minutes} minutes, seed {args.seed}", flush=True)
    threads = ["--threads", str(args.threads)] if args.threads else []
    with Server("plain", "--log-level", os.environ.get("LOAD_LOG", "info"), *threads) as server:
        asyncio.run(everybody(server, samples))
        if server.process.poll() is None:
            settle(server)
            log = server.log()
            admitted, done = log.count(" http admit "), log.count(" http done id=")
            if admitted != done:
                problem(f"{admitted} requests were admitted, {done} ended")
            server.signal()
            if server.wait() != 0:
                problem(f"exit status {server.process.returncode}")
            if any(word in log for word in ("ERROR: ", "WARNING: ThreadSanitizer", "runtime error", " error ")):
                problem("errors in the log:\n" + "\n".join(x for x in log.splitlines() if "ERROR" in x or " error" in x)[:2000])
    first = [rss for t, rss in samples if t <= 600]
    last = [rss for t, rss in samples if t >= samples[-1][0] - 600]
    growth = max(last) / max(first) - 1
    if args.minutes >= 20 and growth > 0.02:
        problem(f"memory grew by {100 * growth:.1f} %")
    print("load:", json.dumps(count, sort_keys=True))
    mib = [s[1] >> 20 for s in samples]
    print(f"load: rss first {mib[0]}, median {sorted(mib)[len(mib) // 2]}, last {mib[-1]}, most {max(mib)} MiB; "
          f"{len(problems)} problems")
    return 1 if problems else 0


if __name__ == "__main__":
    try:
        status = main()
    finally:
        lib.shutil.rmtree(lib.PLACE, ignore_errors=True)
    sys.exit(status)
