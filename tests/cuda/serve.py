#!/usr/bin/env python3
"""The server on a card: requests of both dialects, a second turn from the cache, an answer cut off.

    serve.py LAGOON MODELS DEVICE

Exit status 77 where the device is missing.
"""

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request


def call(port, path, body=None):
    request = urllib.request.Request(f"http://127.0.0.1:{port}{path}",
                                     None if body is None else json.dumps(body).encode(),
                                     {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=60) as answer:
        return json.load(answer)


def wait_ready(server, port):
    for _ in range(600):
        if server.poll() is not None:
            return False
        try:
            if call(port, "/health")["status"] == "ok":
                return True
        except OSError:
            pass
        time.sleep(0.1)
    return False


def openai(port, messages):
    answer = call(port, "/v1/chat/completions",
                  {"model": "mini", "messages": messages, "temperature": 0, "max_tokens": 40})
    usage = answer["usage"]
    return answer["choices"][0]["message"]["content"], usage["prompt_tokens"], \
        usage["prompt_tokens_details"]["cached_tokens"]


def anthropic(port):
    answer = call(port, "/v1/messages", {"model": "mini", "max_tokens": 40, "temperature": 0,
                                         "messages": [{"role": "user", "content": "What is 12 + 30?"}]})
    return answer["content"][0]["text"]


def leave(port):
    """A client that goes away in the middle of its answer."""
    body = json.dumps({"model": "mini", "stream": True, "max_tokens": 2000,
                       "messages": [{"role": "user", "content": "Tell me about yourself."}]}).encode()
    with socket.create_connection(("127.0.0.1", port)) as s:
        s.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
                  b"Content-Length: %d\r\n\r\n" % len(body) + body)
        s.recv(200)


def check(port):
    turn = [{"role": "user", "content": "What is 12 + 30?"}]
    text, _, _ = openai(port, turn)
    assert "42" in text, text
    assert "42" in anthropic(port)
    turn += [{"role": "assistant", "content": text}, {"role": "user", "content": "And 7 + 8?"}]
    more, prompt, cached = openai(port, turn)
    assert cached > 0, (prompt, cached)
    leave(port)
    again, _, _ = openai(port, turn)
    assert again == more, (again, more)
    metrics = urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10).read().decode()
    assert "lagoon_prefix_cache_bytes" in metrics
    return f"{text!r}; then {cached} of {prompt} tokens from the cache: {more!r}"


def main():
    lagoon, models, device = sys.argv[1:4]
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    server = subprocess.Popen([lagoon, "serve", "--device", device, "--models", models, "--mini", "--port", str(port)],
                              stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
                              env={**os.environ, "XDG_CONFIG_HOME": "/nonexistent"})
    try:
        if not wait_ready(server, port):
            if server.poll() is None:
                print("not ready after a minute")
                return 1
            print("skipped:", server.stderr.read().strip().splitlines()[-1])
            return 77
        print(check(port))
        server.send_signal(signal.SIGTERM)
        return 0 if server.wait(20) == 0 else 1
    finally:
        if server.poll() is None:
            server.kill()


if __name__ == "__main__":
    sys.exit(main())
