"""What the tests with real clients share: npm packages, a relay that watches, and a home for the client.

Run as `test_x.py PROGRAM PACKAGES [unittest words]`: PACKAGES is a folder outside the source tree where npm packages are
installed once, each in a folder of its own, with the versions that package.json pins. Without npm, or without a way to
the packages, the test is skipped (77) with the reason.
"""
import fcntl
import http.client
import http.server
import json
import os
import shutil
import subprocess
import sys
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "e2e"))
PACKAGES = os.path.abspath(sys.argv.pop(2))

import lib
import scripted

del lib.ENV["LAGOON_THREADS"]  # nothing else runs beside these tests


def skip(reason):
    print("skipped: " + reason)
    shutil.rmtree(lib.PLACE, ignore_errors=True)
    sys.exit(77)


NETWORK = ("ENOTFOUND", "EAI_AGAIN", "ECONNREFUSED", "ECONNRESET", "ETIMEDOUT", "ENETUNREACH")
FAR = os.path.join(PACKAGES, "unreachable")  # says why; the next tests need not find out for themselves


def give_up(name, reason, network):
    if network:
        with open(FAR, "w", encoding="utf-8") as f:
            f.write(reason)
    skip(f"{name} cannot be installed: {reason}")


def package(name, after=None, program=None):
    """The node_modules folder that holds the package; `after` is a script of the package to run once, or None. `program` is
    what it is installed for: npm is content without the part that has the machine's code, when that did not come."""
    npm, node = shutil.which("npm"), shutil.which("node")
    if not npm or not node:
        skip("npm and node are not installed")
    with open(os.path.join(HERE, "package.json"), encoding="utf-8") as f:
        version = json.load(f)["dependencies"][name]
    place = os.path.join(PACKAGES, name.strip("@").replace("/", "-") + "-" + version)
    modules = os.path.join(place, "node_modules")
    os.makedirs(place, exist_ok=True)
    with open(os.path.join(place, "lock"), "w", encoding="ascii") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not os.path.exists(os.path.join(place, "complete")):
            if os.path.exists(FAR) and abs(time.time() - os.path.getmtime(FAR)) < 1800:
                with open(FAR, encoding="utf-8") as f:
                    skip(f"{name}@{version} cannot be installed, as another one a moment ago: {f.read()}")
            with open(os.path.join(place, "package.json"), "w", encoding="utf-8") as f:
                json.dump({"private": True, "dependencies": {name: version}}, f)
            steps = [[npm, "install", "--no-audit", "--no-fund", "--loglevel=error"]]
            if after:
                steps.append([node, os.path.join(modules, name, after)])
            if program:
                steps.append([os.path.join(modules, ".bin", program), "--version"])
            for words in steps:
                env = home("installed")[0] if words[-1] == "--version" else None
                try:
                    r = subprocess.run(words, cwd=place, timeout=400, stdin=subprocess.DEVNULL, env=env,
                                       capture_output=True, text=True, check=False)
                except subprocess.TimeoutExpired:
                    give_up(f"{name}@{version}", "npm needs more than 400 s", True)
                if r.returncode != 0:
                    said = (r.stderr or r.stdout).strip()
                    give_up(f"{name}@{version}", said[:400], any(word in said for word in NETWORK))
            with open(os.path.join(place, "complete"), "w", encoding="ascii"):
                pass
    return modules


MINI = os.path.join(HERE, "..", "..", "models", "mini.gguf")


def script(name, thought, answer, **more):
    """Path of a model that does what it is told, with the vocabulary of the demonstration model: an agent's prompt of
    76 kB is 30,000 tokens."""
    path = os.path.join(lib.PLACE, name + ".gguf")
    scripted.write(path, thought, answer, base=MINI, **more)
    return path


def home(name):
    """An environment with a home and a working folder of its own: (environment, folder)."""
    place = os.path.join(lib.PLACE, name)
    folder = os.path.join(place, "work")
    os.makedirs(folder, exist_ok=True)
    env = {"HOME": place, "PATH": os.environ["PATH"], "LC_ALL": "C.UTF-8", "TERM": "dumb", "TMPDIR": lib.PLACE}
    return env, folder


def on_one_day(act):
    """What `act` gives, begun and ended on the same day: clients write the date into their prompts."""
    while True:
        day = time.localtime().tm_yday
        result = act()
        if time.localtime().tm_yday == day:
            return result


def twice(relay, path, ask):
    """The same asked two times, on one day: (what ask() gave, the requests to `path` meanwhile) of each."""
    def one():
        before = len(relay.posts(path))
        return ask(), relay.posts(path)[before:]
    return on_one_day(lambda: (one(), one()))


class Exchange:
    """One request and its answer."""

    def __init__(self, method, path, headers, body):
        self.method, self.path, self.headers, self.raw = method, path, headers, body
        self.status, self.answer = 0, b""
        self.began, self.seconds = time.monotonic(), None  # None: the answer is not over

    def json(self):
        return json.loads(self.raw)


class Relay:
    """Stands between a client and the servers: `choose(exchange)` gives the port that answers. Everything is kept."""

    def __init__(self, choose):
        self.choose, self.seen, self.lock = choose, [], threading.Lock()
        relay = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def pass_on(self):
                relay.serve(self)

            do_GET = do_POST = do_HEAD = do_DELETE = pass_on

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.port = self.server.server_address[1]
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.server.shutdown()
        self.server.server_close()

    def serve(self, h):
        x = Exchange(h.command, h.path, dict(h.headers), h.rfile.read(int(h.headers.get("content-length") or 0)))
        with self.lock:
            self.seen.append(x)
        c = http.client.HTTPConnection("127.0.0.1", self.choose(x), timeout=600)
        hop = ("host", "connection", "transfer-encoding", "content-length")
        try:
            c.request(h.command, h.path, x.raw or None, {k: v for k, v in h.headers.items() if k.lower() not in hop})
            r = c.getresponse()
            x.status = r.status
            h.send_response(r.status)
            for k, v in r.getheaders():
                if k.lower() not in hop:
                    h.send_header(k, v)
            h.send_header("Connection", "close")
            h.end_headers()
            while data := r.read1(65536):
                x.answer += data
                h.wfile.write(data)
                h.wfile.flush()
        except OSError:
            pass  # the client or the server is gone; what came is kept
        finally:
            x.seconds = time.monotonic() - x.began
            h.close_connection = True
            c.close()

    def posts(self, path):
        return [x for x in self.seen if x.method == "POST" and x.path.split("?")[0] == path]


def run(words, env, folder, seconds=1000):
    """A client in its folder; its standard output. A failure shows everything."""
    r = subprocess.run(words, cwd=folder, env=env, timeout=seconds, stdin=subprocess.DEVNULL, capture_output=True,
                       text=True, check=False)
    if r.returncode != 0:
        raise AssertionError(f"{words[0]} ended with {r.returncode}\n{r.stdout[-3000:]}\n{r.stderr[-3000:]}")
    return r.stdout
