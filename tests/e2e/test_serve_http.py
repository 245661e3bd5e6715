"""The server's HTTP side: what is routed where, limits, keys, foreign pages, slow peers."""
import concurrent.futures
import json
import os
import re
import signal
import socket
import subprocess
import time

import lib
from web import Server, chat, frames

KEY = "sk-key-of-alice"


class Routes(lib.Case):
    @classmethod
    def setUpClass(cls):
        cls.s = Server("plain", "--max-body-bytes", "1MiB")

    @classmethod
    def tearDownClass(cls):
        cls.s.__exit__(None)

    def test_paths(self):
        for path in ("/health", "/v1/health", "/", "/health/", "/health?x=1", "/v1/models", "/models/", "/v1/v1/models",
                     "/metrics", "/slots", "/lagoon/v1/status", "http://127.0.0.1/health", "HTTP://x.local:5/v1/models?a=b",
                     "https://localhost"):
            r = self.s.ask("GET", path)
            self.assertEqual(r.status, 200, path)
            self.assertTrue(r.headers["x-request-id"].startswith("req_"))
        self.assertEqual(self.s.ask("GET", "/health").json(), {"status": "ok"})
        for path in ("/v1/chat/completions", "/chat/completions", "/v1/chat/completions/?a=b", "/v1/v1/chat/completions"):
            r = self.s.post(path, chat(max_tokens=300))
            self.assertEqual(r.status, 200, path)
            self.assertEqual(r.json()["choices"][0]["message"]["content"], lib.ANSWER)

    def test_unknown_and_wrong_method(self):
        r = self.s.ask("GET", "/v1/nothing")
        self.assertEqual((r.status, r.error()["code"]), (404, "not_found"))
        r = self.s.ask("GET", "/v1/nothing", headers={"anthropic-version": "2023-06-01"})
        self.assertEqual((r.status, r.json()["type"], r.error()["type"]), (404, "error", "not_found_error"))
        r = self.s.ask("GET", "/v1/chat/completions")
        self.assertEqual((r.status, r.headers["allow"]), (405, "POST, OPTIONS"))
        r = self.s.post("/health", {})
        self.assertEqual((r.status, r.headers["allow"]), (405, "GET, HEAD, OPTIONS"))

    def test_head_and_ids(self):
        r = self.s.ask("HEAD", "/v1/models", headers={"x-request-id": "my-id.1_2"})
        self.assertEqual((r.status, r.headers["x-request-id"]), (200, "my-id.1_2"))
        self.assertGreater(int(r.headers["content-length"]), 10)
        r = self.s.ask("GET", "/health", headers={"x-request-id": "bad id"})
        self.assertTrue(r.headers["x-request-id"].startswith("req_"))
        r = self.s.ask("GET", "/health", headers={"x-request-id": "x" * 129})
        self.assertTrue(r.headers["x-request-id"].startswith("req_"))
        r = self.s.post("/v1/messages", chat(max_tokens=2), headers={"x-request-id": "m"})
        self.assertEqual(r.headers["request-id"], "m")

    def test_bodies(self):
        for body in (b"", b"{", b"[]", b"1", b"\xff\xfe", b'{"messages":' + b"[" * 600, b"null", b'{"a":1} x'):
            r = self.s.post("/v1/chat/completions", body)
            self.assertEqual((r.status, r.error()["type"]), (400, "invalid_request_error"), body[:20])
        r = self.s.post("/v1/chat/completions", b"\xef\xbb\xbf" + json.dumps(chat()).encode(), {"Content-Type": "text/plain"})
        self.assertEqual(r.status, 200)
        r = self.s.post("/v1/chat/completions", chat(), {"Content-Encoding": "gzip"})
        self.assertEqual(r.status, 415)
        r = self.s.post("/v1/chat/completions", b'{"messages":[' + b"[" * 100000 + b"]" * 100000 + b"]}")
        self.assertEqual(r.status, 400)

    def test_body_limit(self):
        big = b"x" * (2 << 20)
        r = self.s.post("/v1/messages", big)
        self.assertEqual((r.status, r.error()["type"]), (413, "request_too_large"))
        with self.s.client() as c:  # chunked, so that no length warns
            c.request("POST", "/v1/chat/completions", headers={"Transfer-Encoding": "chunked"})
            for _ in range(32):
                c.send(b"10000\r\n" + b"x" * 65536 + b"\r\n")
            c.send(b"0\r\n\r\n")
            r = c.response()
            self.assertEqual((r.status, r.error()["code"]), (413, "request_too_large"))
        before = self.s.rss()
        with self.s.client() as c:
            c.request("POST", "/v1/chat/completions", headers={"Transfer-Encoding": "chunked"})
            for _ in range(1600):
                c.send(b"10000\r\n" + b"x" * 65536 + b"\r\n")
            c.send(b"0\r\n\r\n")
            self.assertEqual(c.response().status, 413)
        self.assertLess(self.s.rss() - before, 32 << 20)  # of 100 MiB; a thread's memory may come in large pages

    def test_chunked_and_continue(self):
        body = json.dumps(chat(max_tokens=300)).encode()
        with self.s.client() as c:
            c.request("POST", "/v1/chat/completions", headers={"Transfer-Encoding": "chunked"})
            for i in range(0, len(body), 7):
                part = body[i:i + 7]
                c.send(f"{len(part):x}\r\n".encode() + part + b"\r\n")
            c.send(b"0\r\n\r\n")
            self.assertEqual(c.response().json()["choices"][0]["message"]["content"], lib.ANSWER)
        with self.s.client() as c:
            c.request("POST", "/v1/chat/completions", headers={"Expect": "100-continue", "Content-Length": str(len(body))})
            self.assertEqual(c.head().status, 100)
            c.send(body)
            self.assertEqual(c.response().status, 200)
        with self.s.client() as c:  # refused before the body is sent
            c.request("POST", "/v1/chat/completions", headers={"Expect": "100-continue", "Content-Length": "99999999"})
            self.assertEqual(c.head().status, 413)

    def test_headers_limit(self):
        r = self.s.ask("GET", "/health", headers={"X-Long": "x" * 70000})
        self.assertEqual(r.status, 431)
        r = self.s.ask("GET", "/health", headers={"X-Long": "x" * 60000})
        self.assertEqual(r.status, 200)

    def test_keep_alive(self):
        with self.s.client() as c:
            for _ in range(3):
                c.request("POST", "/v1/chat/completions", chat(max_tokens=300, stream=True))
                r = c.response()
                self.assertEqual(r.headers["content-type"], "text/event-stream; charset=utf-8")
                self.assertEqual(r.headers["cache-control"], "no-cache")
                self.assertEqual(frames(r.body)[-1], ("data", "[DONE]"))
                c.request("POST", "/nowhere", {"some": "body"})
                self.assertEqual(c.response().status, 404)

    def test_telemetry_storm(self):
        before, start = self.s.worked(), time.monotonic()
        with self.s.client() as c:
            for _ in range(1000):
                c.request("POST", "/api/event_logging/batch", {"events": []})
                self.assertEqual(c.response().status, 404)
        # it costs little, and nobody is made to wait
        self.assertLess(self.s.worked() - before, 5 if "ASAN_OPTIONS" not in lib.ENV else 50)
        self.assertLess(time.monotonic() - start, lib.PATIENCE)
        self.assertLessEqual(self.s.log().count("unknown-path"), 1)

    def test_closed_right_after_the_headers(self):
        for i in range(100):
            c = self.s.client()
            c.request("POST", "/v1/chat/completions", headers={"Content-Length": "100"})
            c.reset() if i % 2 else c.socket.close()
        self.assertEqual(self.s.ask("GET", "/health").status, 200)
        self.assertEqual(self.s.post("/v1/chat/completions", chat(max_tokens=300)).status, 200)

    def test_rubbish(self):
        for data in (b"\0" * 100, b"GET\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n", b"\x16\x03\x01\x02\0\x01\0\x01\xfc\x03\x03" * 9,
                     b"POST /v1/chat/completions HTTP/1.1\r\nContent-Length: -5\r\n\r\n",
                     b"POST /v1/chat/completions HTTP/1.1\r\nContent-Length: 99999999999999999999999\r\n\r\n",
                     b"POST /tokenize HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
                     b"GET /%00%ff%0a HTTP/1.1\r\nHost: localhost\r\nx-request-id: a\r\n\r\n"):
            with self.s.client() as c:
                c.send(data)
                try:
                    c.socket.shutdown(socket.SHUT_WR)
                except OSError:
                    pass  # the server was faster
                self.assertTrue(c.closed(), data)
        self.assertEqual(self.s.ask("GET", "/health").status, 200)


class Keys(lib.Case):
    def test_keys(self):
        path = os.path.join(lib.PLACE, "keys")
        with open(path, "w", encoding="ascii") as f:
            f.write("# sk-of nobody\n  sk-from-file \n\nsk-second\n #x\n")
        with Server("plain", "--api-key", KEY, "--api-key-file", path, "--metrics-public") as s:
            for headers in ({"Authorization": f"Bearer {KEY}"}, {"x-api-key": KEY}, {"api-key": KEY},
                            {"authorization": "bearer sk-from-file"}, {"x-api-key": "sk-second", "Authorization": "Bearer x"}):
                self.assertEqual(s.ask("GET", "/v1/models", headers=headers).status, 200, headers)
            for headers in ({}, {"Authorization": "Bearer wrong"}, {"x-api-key": ""}, {"Authorization": KEY},
                            {"x-api-key": KEY + "x"}, {"x-api-key": KEY[:-1]}, {"Authorization": "Bearer"}, {"x-api-key": "#x"},
                            {"x-api-key": "# sk-of nobody"}):
                r = s.ask("GET", "/v1/models", headers=headers)
                self.assertEqual((r.status, r.error()["code"]), (401, "invalid_api_key"), headers)
                self.assertEqual(r.headers["www-authenticate"], "Bearer")
            r = s.post("/v1/messages", chat(max_tokens=5))
            self.assertEqual((r.status, r.error()["type"]), (401, "authentication_error"))
            self.assertEqual(s.ask("GET", "/unknown").status, 401)
            for path in ("/health", "/", "/metrics"):
                self.assertEqual(s.ask("GET", path).status, 200)
            self.assertEqual(s.ask("OPTIONS", "/v1/models").status, 204)
            # behind a key, Host may be any name
            self.assertEqual(s.ask("GET", "/v1/models", headers={"Host": "my.example", "x-api-key": KEY}).status, 200)
            self.assertNotIn("sk-", s.log())

    def test_named_client(self):
        home = os.path.join(lib.PLACE, "home-keys")
        os.makedirs(os.path.join(home, ".config", "lagoon"))
        conf = os.path.join(home, ".config", "lagoon", "lagoon.conf")
        with open(conf, "w", encoding="ascii", opener=lambda p, flags: os.open(p, flags, 0o600)) as f:
            f.write(f"[client alice]\napi_key = {KEY}\n")
        with Server("plain", env={"HOME": home}) as s:
            s.post("/v1/chat/completions", chat(max_tokens=300), {"x-api-key": KEY})
            s.wait_log(r"http done .*client=alice ")

    def test_key_file(self):
        """One key a line, blanks and comments aside, whatever the editor puts around them."""
        path = os.path.join(lib.PLACE, "keys")
        with open(path, "wb") as f:
            f.write(b"\xef\xbb\xbffirst \r\n# mine\r\n\r\n  second#1\n\tlast")
        with Server("plain", "--api-key-file", path) as s:
            for key, status in (("first", 200), ("second#1", 200), ("last", 200), ("# mine", 401), ("second", 401)):
                r = s.ask("GET", "/v1/models", headers={"Authorization": f"Bearer {key}"})
                self.assertEqual(r.status, status, key)

    def test_empty_key_file(self):
        path = os.path.join(lib.PLACE, "no-keys")
        open(path, "w", encoding="ascii").close()
        r = lib.run("serve", "-m", lib.model(), "--port", "0", "--api-key-file", path)
        self.one_line(r, 1, "no-keys", "API key")


class Sites(lib.Case):
    def test_hosts_and_origins(self):
        with Server("plain", "--allowed-hosts", "my.example") as s:
            for host in ("127.0.0.1:5241", "localhost", "LOCALHOST:1", "a.localhost", "box.local", "x.internal", "[::1]:5241",
                         "10.1.2.3", "my.example:80"):
                self.assertEqual(s.ask("GET", "/v1/models", headers={"Host": host}).status, 200, host)
            for host in ("evil.example", "localhost.evil.example", "127.0.0.1.evil.example", "local", "notlocalhost"):
                r = s.ask("GET", "/v1/models", headers={"Host": host})
                self.assertEqual(r.status, 403, host)
                self.assertIn("allowed_hosts", r.error()["message"])
            evil = {"Origin": "https://evil.example"}
            r = s.post("/v1/chat/completions", chat(max_tokens=300), evil | {"Content-Type": "text/plain"})
            self.assertEqual((r.status, r.error()["type"]), (403, "permission_error"))
            r = s.post("/v1/chat/completions", chat(max_tokens=300), evil)
            self.assertEqual(r.status, 200)
            self.assertNotIn("access-control-allow-origin", r.headers)
            r = s.ask("OPTIONS", "/v1/chat/completions", headers=evil)
            self.assertEqual(r.status, 204)
            self.assertNotIn("access-control-allow-origin", r.headers)
            r = s.post("/v1/chat/completions", chat(max_tokens=300), {"Origin": "http://127.0.0.1", "Content-Type": "text/plain"})
            self.assertEqual(r.status, 200)

    def test_cors(self):
        with Server("plain", "--cors", "https://a.example", "--cors", "https://b.example") as s:
            r = s.ask("GET", "/v1/models", headers={"Origin": "https://b.example"})
            self.assertEqual(r.headers["access-control-allow-origin"], "https://b.example")
            r = s.ask("GET", "/v1/models", headers={"Origin": "https://c.example"})
            self.assertNotIn("access-control-allow-origin", r.headers)
            r = s.post("/v1/chat/completions", b"no JSON", {"Origin": "https://a.example"})
            self.assertEqual((r.status, r.headers["access-control-allow-origin"]), (400, "https://a.example"))
        with Server("plain", "--cors", "yes") as s:
            r = s.ask("OPTIONS", "/v1/chat/completions", headers={"Origin": "https://a.example",
                                                                  "Access-Control-Request-Headers": "x-a, x-b"})
            self.assertEqual(r.status, 204)
            self.assertEqual(r.headers["access-control-allow-origin"], "*")
            self.assertEqual(r.headers["access-control-allow-headers"], "x-a, x-b")
            self.assertEqual(r.headers["access-control-max-age"], "86400")
            r = s.post("/v1/chat/completions", chat(max_tokens=300, stream=True), {"Origin": "https://a.example"})
            self.assertEqual(r.headers["access-control-allow-origin"], "*")
            self.assertEqual(r.headers["access-control-expose-headers"], "x-request-id, retry-after")
            r = s.ask("GET", "/nowhere", headers={"Origin": "https://a.example"})
            self.assertEqual((r.status, r.headers["access-control-allow-origin"]), (404, "*"))


class Limits(lib.Case):
    def test_dialects_can_be_off(self):
        with Server("plain", "--dialects", "openai") as s:
            self.assertEqual(s.post("/v1/chat/completions", chat(max_tokens=300)).status, 200)
            r = s.post("/v1/messages", chat(max_tokens=5))
            self.assertEqual((r.status, r.error()["type"]), (404, "not_found_error"))
            self.assertEqual(s.ask("GET", "/v1/models").status, 200)

    def test_max_connections(self):
        with Server("plain", "--max-connections", "4") as s:
            held = [s.client() for _ in range(4)]
            for c in held:
                c.request("GET", "/health")
                self.assertEqual(c.response().status, 200)
            with s.client() as c:
                self.assertTrue(c.closed())
            for c in held:
                c.socket.close()
            end = time.monotonic() + lib.PATIENCE
            while True:
                try:
                    self.assertEqual(s.ask("GET", "/health").status, 200)
                    break
                except (AssertionError, ConnectionError):
                    self.assertLess(time.monotonic(), end)
                    time.sleep(0.05)

    def test_patience(self):
        """What takes a minute of waiting, at the same time."""
        with concurrent.futures.ThreadPoolExecutor() as pool:
            for done in [pool.submit(f) for f in (self.slow_peers, self.deaf_and_idle_peers, self.stopped_server)]:
                done.result()

    def slow_peers(self):
        """Headers that do not end and a body that pauses are answered with 408 after 30 seconds, also a trickle. Nothing
        is too early; on a busy machine it may be late."""
        def trickle(s):
            start = time.monotonic()
            with s.client() as c:
                c.send(b"GET /health HTTP/1.1\r\n")
                while time.monotonic() - start < lib.PATIENCE:
                    try:
                        c.send(b"X-Slow: 1\r\n")
                    except ConnectionError:
                        pass  # what was said before the end can still be read
                    c.socket.settimeout(1)
                    try:
                        data = c.socket.recv(4096)
                        return data, time.monotonic() - start
                    except TimeoutError:
                        pass
            return b"", time.monotonic() - start

        def pause(s):
            start = time.monotonic()
            with s.client() as c:
                c.request("POST", "/v1/chat/completions", headers={"Content-Length": "1000"})
                c.send(b"{")
                r = c.response()
                self.assertTrue(c.closed())
                return r, time.monotonic() - start

        with Server("plain") as s, concurrent.futures.ThreadPoolExecutor() as pool:
            slow, paused = pool.submit(trickle, s), pool.submit(pause, s)
            data, took = slow.result()
            self.assertIn(b"408", data)
            self.assertGreater(took, 28)
            r, took = paused.result()
            self.assertEqual((r.status, r.error()["code"]), (408, "request_timeout"))
            self.assertGreater(took, 28)
            self.assertEqual(s.ask("GET", "/health").status, 200)

    def stopped_server(self):
        """What the server slept through is no fault of its clients: not of one whose body came, nor of a waiting job."""
        with Server("loop") as s, s.client() as running, s.client() as body, s.client() as kept:
            running.request("POST", "/v1/chat/completions", chat(stream=True))
            kept.request("GET", "/health")
            self.assertEqual(kept.response().status, 200)
            text = json.dumps(chat(max_tokens=3)).encode()
            body.request("POST", "/v1/chat/completions", headers={"Content-Length": str(len(text))})
            body.send(text[:10])
            s.wait_phase("decode")
            s.signal(signal.SIGSTOP)
            time.sleep(80)
            body.send(text[10:])
            kept.request("GET", "/health")
            s.signal(signal.SIGCONT)
            self.assertEqual(kept.response().status, 200)
            s.wait_log("info server paused seconds=")
            running.socket.close()
            r = body.response()
            self.assertEqual((r.status, r.json()["usage"]["completion_tokens"]), (200, 3))

    def deaf_and_idle_peers(self):
        """A client that takes nothing is dropped after 60 seconds and its job ends; an idle connection after 75."""
        with Server("loop") as s:
            deaf, idle = s.client(), s.client()
            deaf.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            start = time.monotonic()
            deaf.request("POST", "/v1/chat/completions", chat(stream=True))
            idle.request("GET", "/health")
            self.assertEqual(idle.response().status, 200)
            s.wait_log("client-takes-nothing")
            self.assertGreater(time.monotonic() - start, 55)
            s.wait_log("http done .*status=499")
            self.assertTrue(idle.closed())
            self.assertGreater(time.monotonic() - start, 70)

    def test_localhost_is_what_clients_are_told(self):
        """Where the name has an address of both kinds, as on most machines, it is 127.0.0.1."""
        hosts = os.path.join(lib.PLACE, "hosts")
        with open(hosts, "w", encoding="ascii") as f:
            f.write("::1 localhost\n127.0.0.1 localhost\n")
        mount = ["unshare", "-rm", "sh", "-c", 'mount --bind "$0" /etc/hosts && exec "$@"', hosts]
        try:
            seen = subprocess.run([*mount, "getent", "ahosts", "localhost"], capture_output=True, check=True).stdout
        except (OSError, subprocess.CalledProcessError):
            self.skipTest("no namespace with hosts of its own")
        if not seen.startswith(b"::1"):
            self.skipTest("localhost is not ::1 first, whatever the hosts say")
        p = subprocess.Popen([*mount, lib.PROGRAM, "serve", "-m", lib.model(), "--host", "localhost", "--port", "0"],
                             stderr=subprocess.PIPE, env=lib.ENV)
        try:
            port = int(re.search(rb" on http://localhost:(\d+)", p.stderr.readline())[1])
            socket.create_connection(("127.0.0.1", port), timeout=lib.PATIENCE).close()
        finally:
            p.kill()
            p.communicate()

    def test_port_in_use(self):
        with Server("plain") as s:
            r = lib.run("serve", "-m", lib.model(), "--port", str(s.port))
            self.one_line(r, 1, "another program has it", "--port")

    def test_words(self):
        self.one_line(lib.run("serve", "-m", lib.model(), "--tls-cert", "/dev/null"), 2, "--tls-key")
        nowhere = "x" * 64 + ".invalid"  # a label that is too long: no name server is asked
        self.one_line(lib.run("serve", "-m", lib.model(), "--host", nowhere), 1, nowhere)
        self.assertEqual(lib.run("--no-such-flag").returncode, 2)


class Looking(lib.Case):
    """What can be seen from outside, without the engine knowing."""

    def test_events(self):
        with Server("loop") as s:
            watchers = [s.client() for _ in range(8)]
            for w in watchers:
                w.request("GET", "/lagoon/v1/events")
                self.assertEqual(w.head().headers["content-type"], "text/event-stream; charset=utf-8")
            r = s.ask("GET", "/lagoon/v1/events")
            self.assertEqual((r.status, r.error()["type"], r.headers["retry-after"]), (429, "rate_limit_error", "1"))
            w = watchers[0]
            name, data = frames(w.chunk())[0]
            self.assertEqual((name, json.loads(data)["job"]["phase"]), ("status", "idle"))
            c = s.client()
            c.request("POST", "/v1/chat/completions", chat("a secret", stream=True))
            c.head()
            s.wait_phase("decode")
            seen, words = [], lambda job: job["think"] + job["answer"]
            while len(seen) < 8 or words(seen[-1]) == words(seen[0]):
                (_, data), = frames(w.chunk())
                self.assertNotIn("secret", data)
                if json.loads(data)["job"]["phase"] == "decode":
                    seen.append(json.loads(data)["job"])
            # at most four a second, as the server's clock has it
            self.assertGreater(seen[-1]["running_s"] - seen[0]["running_s"], (len(seen) - 1) * 0.24)
            self.assertGreater(words(seen[-1]), words(seen[0]))
            watchers[1].reset()  # makes room for another one
            c.socket.close()
            end = time.monotonic() + lib.PATIENCE
            while s.ask("HEAD", "/lagoon/v1/events").status != 200:
                self.assertLess(time.monotonic(), end)
                time.sleep(0.05)
            s.wait_phase("idle")
            (_, data), = frames(w.chunk())
            s.signal()
            while w.chunk():  # ends properly with the server
                pass
            self.assertEqual(s.wait(), 0)

    def test_status_and_slots(self):
        with Server("plain") as s:
            s.post("/v1/chat/completions", chat("a secret text", max_tokens=300))
            s.wait_log("http done")
            s.post("/v1/messages", chat(max_tokens="many"))
            s.wait_log("http done", count=2)
            status = s.status()
            self.assertEqual(status["ended"], {"ok": 1, "cancelled": 0, "failed": 1})
            bad, good = status["requests"]
            self.assertEqual((bad["id"], bad["dialect"], bad["status"], bad["finish"]), (None, "messages", 400, "error"))
            self.assertEqual((good["dialect"], good["status"], good["finish"], good["client"]),
                             ("chat", 200, "stop", "e2e/1.2"))
            self.assertGreater(good["prompt"], 100)
            self.assertGreater(status["mem"]["planned"], status["mem"]["kv"])
            self.assertEqual((status["state"], status["queue_capacity"]), ("ready", 16))
            self.assertNotIn("prompt", s.ask("GET", "/slots").json()[0])
            self.assertNotIn("secret", json.dumps(status))
            for _ in range(60):
                s.post("/v1/chat/completions", chat("x", max_tokens=2))
            s.wait_log("http done", count=62)
            self.assertEqual(len(s.status()["requests"]), 50)
        with Server("plain", "--slots-debug") as s:
            s.post("/v1/chat/completions", chat("a secret text", max_tokens=300))
            self.assertIn("<user>a secret text</user>", s.ask("GET", "/slots").json()[0]["prompt"])
            self.assertNotIn("secret", json.dumps(s.status()))

    def test_what_was_done_for_a_client_that_left(self):
        with Server("loop") as s:
            first, second = s.client(), s.client()
            first.request("POST", "/v1/chat/completions", chat(max_tokens=200000, stream=True))
            first.head()
            s.wait_status(lambda status: status["job"].get("think") and status["job"]["answer"] >= 1000)
            second.request("POST", "/v1/messages", chat(max_tokens=5, stream=True))
            second.head()
            time.sleep(0.3)
            second.socket.close()
            s.wait_log("http done .*dialect=messages")
            first.socket.close()
            s.wait_log("http done .*dialect=chat")
            waited, worked = (s.log().split(f"http done id={r['id']}")[1] for r in s.status()["requests"][1::-1])
            self.assertRegex(waited, r"^ dialect=messages \S+ status=499 .* out=0 .*queue_ms=[1-9]\d\d")
            self.assertRegex(worked, r"^ dialect=chat \S+ status=499 .* cached=0 think=[1-9].* out=[1-9].* tok_s=[1-9]")

    def test_fields_that_nobody_knows(self):
        body = chat(max_tokens=2, frobnicate=1, seed=1, user="u", **{"a text, no name": 2})
        with Server("plain", "--log-level", "debug") as s:
            for path in ("/v1/chat/completions", "/v1/chat/completions", "/v1/messages"):
                self.assertEqual(s.post(path, body).status, 200)
            told = [line.split("unknown-field ")[1] for line in s.log().splitlines() if "unknown-field" in line]
            self.assertEqual(told, ["dialect=chat field=frobnicate", "dialect=messages field=frobnicate",
                                    "dialect=messages field=seed", "dialect=messages field=user"])
            for _ in range(2):
                s.ask("GET", "/v1/v1/models")
            self.assertEqual(s.log().count("doubled-prefix"), 1)

    def test_stored_responses(self):
        with Server("plain") as s:  # nothing is stored unless it is asked for
            for method, path in (("GET", "/v1/responses/resp_x"), ("DELETE", "/v1/responses/resp_x"),
                                 ("POST", "/v1/responses/compact")):
                r = s.ask(method, path)
                self.assertEqual((r.status, r.error()["code"]), (404, "not_found"))
        with Server("plain", "--responses-store", "2") as s:
            for stream in (False, True):
                made = s.post("/v1/responses", {"input": "hello", "stream": stream})
                made = json.loads(frames(made.body)[-1][1])["response"] if stream else made.json()
                at = "/v1/responses/" + made["id"]
                self.assertEqual(s.ask("GET", at).json(), made)
                self.assertEqual(s.ask("GET", at + "?include[]=x").json(), made)
                self.assertEqual(s.ask("GET", at + "/input_items").json()["data"],
                                 [{"type": "message", "role": "user", "content": "hello"}])
                more = s.post("/v1/responses", {"input": "and more", "previous_response_id": made["id"]}).json()
                self.assertEqual(more["previous_response_id"], made["id"])
                kinds = [i["type"] for i in s.ask("GET", f"/v1/responses/{more['id']}/input_items").json()["data"]]
                self.assertEqual(kinds, ["message", "reasoning", "message", "message"])
                self.assertEqual(s.ask("DELETE", at).json(), {"id": made["id"], "object": "response", "deleted": True})
                for method in ("GET", "DELETE"):
                    r = s.ask(method, at)
                    self.assertEqual((r.status, r.error()["code"]), (404, "not_found"))
            r = s.post("/v1/responses", {"input": "x", "store": False}).json()
            self.assertEqual(s.ask("GET", "/v1/responses/" + r["id"]).status, 404)
            r = s.ask("PUT", "/v1/responses/x")
            self.assertEqual((r.status, r.headers["allow"]), (405, "GET, HEAD, DELETE, OPTIONS"))


class Tls(lib.Case):
    def test_tls(self):
        cert, key = (os.path.join(lib.PLACE, n) for n in ("cert.pem", "key.pem"))
        try:
            subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", key, "-out", cert, "-days",
                            "2", "-subj", "/CN=localhost"], check=True, capture_output=True)
        except (OSError, subprocess.CalledProcessError):
            self.skipTest("no openssl program that makes a certificate")
        with Server("loop", "--tls-cert", cert, "--tls-key", key, tls=True) as s:
            self.assertEqual(s.ask("GET", "/health").json(), {"status": "ok"})
            def act():  # a client that goes away frees the engine
                gone = s.log().count("status=499")
                with s.client() as c:
                    c.request("POST", "/v1/chat/completions", chat(stream=True))
                    self.assertEqual(c.head().status, 200)
                    s.wait_phase("decode")
                    start = time.monotonic()
                s.wait_log(r"http done .*status=499", count=gone + 1)
                s.wait_phase("idle")
                return time.monotonic() - start
            self.soon(act, 2)
            gone = s.log().count("status=499")
            with s.client() as c:
                c.request("POST", "/v1/chat/completions", chat())  # not streamed
                s.wait_phase("decode")
            s.wait_log(r"http done .*status=499", count=gone + 1)


if __name__ == "__main__":
    lib.main()
