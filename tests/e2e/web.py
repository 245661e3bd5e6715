"""A server under test, and a client that can misbehave.

`Server` runs the program with a port of its own and ends it; `Client` is a socket with just enough HTTP to see what comes
and when.
"""
import json
import os
import re
import signal
import socket
import ssl
import subprocess
import time

import lib


class Server:
    """`with Server("loop", "--queue-capacity", "1") as s:`; the first word is a model of lib.model or a path."""

    def __init__(self, model, *words, tls=False, env=None, log=None):
        path = model if os.path.sep in model else lib.model(model)
        self.tls = tls
        self.clients = []
        self.err_path = os.path.join(lib.PLACE, f"server-{time.monotonic_ns()}.log")
        self.log_path = log or self.err_path
        self.log_file = open(self.err_path, "wb")
        self.process = subprocess.Popen([lib.PROGRAM, "serve", "-m", path, "--port", "0", *words], stderr=self.log_file,
                                        stdout=subprocess.DEVNULL, env=lib.ENV | (env or {}))
        try:
            self.port = int(self.wait_log(r"(?: on |\"url\":\")https?://\S+?:(\d+)", path=self.err_path)[1])
            self.wait_log(r"engine ready|\"ready\"")
        except BaseException:
            self.__exit__(True)
            raise

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self.log_file.close()
        for c in self.clients:
            c.socket.close()
        if kind:
            for path in sorted({self.err_path, self.log_path}):
                print(self.log(path)[-6000:] if os.path.exists(path) else "")

    def log(self, path=None):
        """Whole lines: the one that is being written now is left for the next look."""
        with open(path or self.log_path, "rb") as f:
            text = f.read()
        return text[:text.rfind(b"\n") + 1].decode(errors="replace")

    def wait_log(self, pattern, seconds=lib.PATIENCE, count=1, path=None):
        """The match object, once the log has `count` of them."""
        end = time.monotonic() + seconds
        while True:
            found = list(re.finditer(pattern, self.log(path) if os.path.exists(path or self.log_path) else ""))
            if len(found) >= count:
                return found[count - 1]
            if self.process.poll() is not None and len(re.findall(pattern, self.log(path))) < count:
                raise AssertionError(f"the server ended with {self.process.returncode}:\n{self.log()[-4000:]}")
            if time.monotonic() > end:
                raise AssertionError(f"{pattern!r} is not in the log:\n{self.log()[-4000:]}")
            time.sleep(0.01)

    def signal(self, number=signal.SIGTERM):
        self.process.send_signal(number)

    def wait(self, seconds=lib.PATIENCE):
        return self.process.wait(seconds)

    def rss(self):
        with open(f"/proc/{self.process.pid}/status", encoding="ascii") as f:
            return int(re.search(r"VmRSS:\s+(\d+)", f.read())[1]) * 1024

    def worked(self):
        """Seconds that the server has computed: how busy the machine is does not count."""
        with open(f"/proc/{self.process.pid}/stat", encoding="ascii") as f:
            user, system = f.read().rsplit(")", 1)[1].split()[11:13]
        return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")

    def client(self):
        self.clients.append(Client(self.port, self.tls))
        return self.clients[-1]

    def ask(self, method, path, body=None, headers=None):
        """One request on a connection of its own."""
        with self.client() as c:
            c.request(method, path, body, headers)
            return c.response()

    def post(self, path, body, headers=None):
        return self.ask("POST", path, body, headers)

    def metric(self, name):
        for line in self.ask("GET", "/metrics").body.decode().splitlines():
            if line.startswith(name + " "):
                return float(line.split()[-1])
        raise AssertionError(f"no metric {name}")

    def status(self):
        return self.ask("GET", "/lagoon/v1/status").json()

    def wait_status(self, good, seconds=lib.PATIENCE):
        """The status, once `good` is true of it."""
        end = time.monotonic() + seconds
        while not good(status := self.status()):
            assert time.monotonic() < end, status
            time.sleep(0.01)
        return status

    def wait_phase(self, phase):
        return self.wait_status(lambda status: status["job"]["phase"] == phase)

    def wait_settled(self, seconds=lib.PATIENCE):
        """The engine is idle, and each request that it took has its line."""
        self.wait_phase("idle")
        end = time.monotonic() + seconds
        while (log := self.log()).count(" http admit ") != log.count(" http done id="):
            assert time.monotonic() < end, log[-4000:]
            time.sleep(0.01)

    def wait_metric(self, name, value, seconds=lib.PATIENCE):
        """A count that another thread makes reaches this value."""
        end = time.monotonic() + seconds
        while (now := self.metric(name)) < value:
            assert time.monotonic() < end, f"{name} is {now}"
            time.sleep(0.01)
        assert now == value, f"{name} is {now}"


class Response:
    def __init__(self, status, headers, body=b""):
        self.status, self.headers, self.body = status, headers, body

    def json(self):
        return json.loads(self.body)

    def error(self):
        return self.json()["error"]


class Client:
    def __init__(self, port, tls=False):
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=lib.PATIENCE)
        if tls:
            context = ssl.create_default_context()
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
            self.socket = context.wrap_socket(self.socket)
        self.held = b""
        self.ended = False

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.socket.close()

    def reset(self):
        """Close so that the other side sees a reset."""
        raw = self.socket
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        raw.close()

    def send(self, data):
        self.socket.sendall(data)

    def request(self, method, path, body=None, headers=None):
        lines = {"Host": "127.0.0.1", "User-Agent": "e2e/1.2.3"}
        if body is not None and not isinstance(body, bytes):
            body = json.dumps(body).encode()
        if body is not None:
            lines |= {"Content-Type": "application/json", "Content-Length": str(len(body))}
        lines |= headers or {}
        head = f"{method} {path} HTTP/1.1\r\n" + "".join(f"{k}: {v}\r\n" for k, v in lines.items() if v is not None)
        self.send(head.encode() + b"\r\n" + (body or b""))
        self.method = method

    def _more(self, seconds=lib.PATIENCE):
        self.socket.settimeout(seconds)
        data = self.socket.recv(65536)
        self.held += data
        self.ended = not data
        return data

    def _until(self, mark, seconds=lib.PATIENCE):
        while mark not in self.held:
            if not self._more(seconds):
                raise AssertionError(f"the connection ended; held: {self.held[-300:]!r}")
        before, self.held = self.held.split(mark, 1)
        return before

    def _take(self, n):
        while len(self.held) < n:
            if not self._more():
                raise AssertionError("the connection ended inside a body")
        data, self.held = self.held[:n], self.held[n:]
        return data

    def head(self, seconds=lib.PATIENCE):
        lines = self._until(b"\r\n\r\n", seconds).decode().split("\r\n")
        headers = {}
        for line in lines[1:]:
            k, v = line.split(":", 1)
            headers[k.lower()] = v.strip()
        return Response(int(lines[0].split()[1]), headers)

    def chunk(self, seconds=lib.PATIENCE):
        """The next piece of a chunked body; b"" at its proper end."""
        n = int(self._until(b"\r\n", seconds), 16)
        data = self._take(n)
        assert self._take(2) == b"\r\n"
        return data

    def response(self, seconds=lib.PATIENCE):
        r = self.head(seconds)
        if r.status == 100:
            r = self.head(seconds)
        if self.method == "HEAD" or r.status == 204:
            return r
        if r.headers.get("transfer-encoding") == "chunked":
            while data := self.chunk(seconds):
                r.body += data
        else:
            r.body = self._take(int(r.headers["content-length"]))
        return r

    def closed(self, seconds=lib.PATIENCE):
        """The other side ended the connection within that time."""
        end = time.monotonic() + seconds
        try:
            while time.monotonic() < end:
                if not self._more(max(0.1, end - time.monotonic())):
                    return True
        except ConnectionError:
            return True
        except TimeoutError:
            pass
        return False


def chat(text="hello", **more):
    return {"messages": [{"role": "user", "content": text}], **more}


def frames(body):
    """(event, data) of each event of a stream; comments are (None, text)."""
    out = []
    for block in body.decode().split("\n\n"):
        if not block:
            continue
        if block.startswith(":"):
            out.append((None, block))
            continue
        event = None
        for line in block.split("\n"):
            if line.startswith("event: "):
                event = line[7:]
            else:
                assert line.startswith("data: "), block
                out.append((event or "data", line[6:]))
    return out
