"""The queue in front of the engine: order, overflow, clients that go away, keep-alives, the stop."""
import json
import os
import re
import select
import shutil
import signal
import socket
import subprocess
import threading
import time
import unittest

import lib
from web import Server, chat, frames

CHAT = "/v1/chat/completions"
LONG = "word " * 5000  # a prompt whose prefill takes a while: a token for each byte


class Queue(lib.Case):
    def test_overflow(self):
        """Of 20 at the same time with room for 16, one runs, 16 wait, 3 are told to come back (FR-109, FR-110)."""
        with Server("loop") as s:
            first = s.client()
            first.request("POST", CHAT, chat(stream=True))
            first.head()
            s.wait_phase("decode")
            others = [s.client() for _ in range(19)]
            for i, c in enumerate(others):
                c.request("POST", CHAT if i % 2 else "/v1/messages", chat(max_tokens=5, stream=True))
            s.wait_status(lambda status: len(status["queue"]) == 16)
            status = {200: 0, 429: 0}
            for i, c in enumerate(others):
                r = c.head()
                status[r.status] += 1
                if r.status == 429:
                    self.assertEqual(r.headers["retry-after"], "1")
                    r.body = c._take(int(r.headers["content-length"]))
                    self.assertEqual(r.error()["type"], "rate_limit_error")
                    if i % 2:
                        self.assertEqual(r.error()["code"], "queue_full")
            self.assertEqual(status, {200: 16, 429: 3})
            self.assertEqual(s.metric("lagoon_requests_queued"), 16)
            s.wait_metric("lagoon_queue_rejected_total", 3)  # counted behind the answer, by another thread
            self.assertTrue(first.chunk())  # the first one was not disturbed
            first.socket.close()
            s.wait_log("http done .*status=200", count=16)
            for c in others:
                c.socket.close()
            self.assertEqual(s.status()["queue"], [])

    def attempt(self, *words):
        """Texts of different length wait behind a running request: the prompt lengths in the order in which they ran, in
        that in which they were listed, and the longest time that one waited, in seconds."""
        with Server("loop", *words) as s:
            running = s.client()
            running.request("POST", CHAT, chat("run", stream=True))
            running.head()
            s.wait_phase("decode")
            waiting = []
            for n in (300, 20, 100, 5):
                waiting.append(s.client())
                waiting[-1].request("POST", CHAT, chat(f"{n} " * n, max_tokens=3, stream=True))
                waiting[-1].head()
            listed = [row["prompt"] for row in s.status()["queue"]]
            running.socket.close()
            s.wait_log("http done .*status=200", count=4)
            # the engine's own lines: those of the connections may come in another order than the answers
            ran = [int(k) + int(new) for k, new in re.findall(r"info cache (?:hit|miss) .* k=(\d+) .* new=(\d+)", s.log())]
            for c in waiting:
                c.socket.close()
            self.assertEqual(len(ran), 5)
            return ran[1:], listed, max(int(ms) for ms in re.findall(r" queue_ms=(\d+)", s.log())) / 1000

    def order(self, *words):
        for _ in range(10):
            ran, listed, waited = self.attempt(*words)
            if waited < 20:
                return ran, listed
        return self.fail("the machine is so slow that each time a request was old before it ran, and old ones go first")

    def test_shortest_first(self):
        done, listed = self.order()
        self.assertEqual(done, sorted(done))
        self.assertEqual(listed, done)

    def test_fifo(self):
        done, listed = self.order("--schedule", "fifo")
        self.assertEqual(done, [sorted(done)[i] for i in (3, 1, 2, 0)])
        self.assertEqual(listed, done)

    def test_concurrent_answers_are_separate(self):
        with Server("plain", "--queue-capacity", "64") as s:
            got, lock = [], threading.Lock()

            def ask(i):
                r = s.post(CHAT, chat(f"question {i}", max_tokens=300, stream=i % 2 == 0))
                with lock:
                    got.append((r.status, i % 2, r.body))

            threads = [threading.Thread(target=ask, args=(i,)) for i in range(40)]
            for t in threads:
                t.start()
            for t in threads:
                t.join()
            self.assertEqual([g[0] for g in got], [200] * 40)
            for _, odd, body in got:
                if odd:
                    self.assertIn(b"Some **bold**", body)
                else:
                    self.assertEqual(frames(body)[-1], ("data", "[DONE]"))


class Gone(lib.Case):
    @classmethod
    def setUpClass(cls):
        cls.s = Server("loop", "--sse-ping-s", "1")

    @classmethod
    def tearDownClass(cls):
        cls.s.__exit__(None)

    def setUp(self):
        self.s.wait_settled()
        self.before = self.s.log().count("status=499")

    def freed(self, leave):
        """How long the engine works on after `leave`; the log says that the client went."""
        start = time.monotonic()
        leave()
        self.s.wait_phase("idle")
        took = time.monotonic() - start
        self.s.wait_log("status=499 .*finish=cancelled", count=self.before + 1)
        self.before += 1
        return took

    def test_in_decode(self):
        for path in (CHAT, "/v1/messages"):
            for stream in (True, False):
                for reset in (False, True):
                    def act():
                        c = self.s.client()
                        c.request("POST", path, chat(max_tokens=200000, stream=stream))
                        if stream:
                            c.head()
                            c.chunk()
                        self.s.wait_phase("decode")
                        return self.freed(c.reset if reset else c.socket.close)
                    self.soon(act, 1)

    def left_in_prefill(self, body):
        """How long the engine works on for a client that leaves in the middle of the prefill; None where the prefill was
        over before the client was gone."""
        ended = self.s.log().count("http done")
        c = self.s.client()
        c.request("POST", CHAT, body)
        job = self.s.wait_status(lambda status: status["job"].get("prefill_done", 0) >= 600
                                 or self.s.log().count("http done") > ended)["job"]
        start = time.monotonic()
        c.reset()
        self.s.wait_phase("idle")
        took = time.monotonic() - start
        self.s.wait_log("http done", count=ended + 1)
        line = [line for line in self.s.log().splitlines() if "http done" in line][ended]
        return took if job["phase"] == "prefill" and "status=499" in line and "finish=cancelled" in line else None

    def test_in_prefill_and_retry_is_warm(self):
        took = []
        while len(took) < 20 and (not took or min(took) >= 1):
            for attempt in range(10):
                body = chat(f"{len(took)} {attempt} {LONG}", max_tokens=3)
                if (seconds := self.left_in_prefill(body)) is not None:
                    break
            else:
                self.fail("no prefill was seen")
            took.append(seconds)
        self.assertLess(min(took), 1, took)
        r = self.s.post(CHAT, body)
        cached = r.json()["usage"]["prompt_tokens_details"]["cached_tokens"]
        self.assertGreater(cached, 500)
        r = self.s.post(CHAT, body)
        usage = r.json()["usage"]
        self.assertEqual(usage["prompt_tokens_details"]["cached_tokens"], usage["prompt_tokens"] - 1)

    def test_in_the_queue(self):
        first = self.s.client()
        first.request("POST", CHAT, chat(stream=True))
        first.head()
        for stream in (True, False):
            def act():
                before = self.s.log().count("status=499")
                c = self.s.client()
                c.request("POST", CHAT, chat("waits", stream=stream))
                self.s.wait_status(lambda status: status["queue"])
                start = time.monotonic()
                c.reset()
                self.s.wait_status(lambda status: not status["queue"])
                took = time.monotonic() - start
                self.s.wait_log("status=499", count=before + 1)
                return took
            self.soon(act, 0.5)
        self.assertTrue(first.chunk())
        first.socket.close()
        self.s.wait_phase("idle")

    def test_half_close(self):
        c = self.s.client()
        c.request("POST", CHAT, chat(max_tokens=3000, stream=True))
        c.socket.shutdown(socket.SHUT_WR)  # sends no more, still reads
        body = c.response().body
        self.assertEqual(frames(body)[-1], ("data", "[DONE]"))

        def act():
            c = self.s.client()
            c.request("POST", CHAT, chat(max_tokens=200000))
            self.s.wait_phase("decode")
            return self.freed(lambda: c.socket.shutdown(socket.SHUT_WR))  # nothing may be written yet: counts as gone
        self.soon(act, 1)

    def test_pings_in_the_queue(self):
        first = self.s.client()
        first.request("POST", CHAT, chat(stream=True))
        first.head()
        chatty, claude = self.s.client(), self.s.client()
        chatty.request("POST", CHAT, chat("one", max_tokens=3, stream=True))
        claude.request("POST", "/v1/messages", chat("two", max_tokens=3, stream=True))
        self.assertIn(b'"role":"assistant"', (chatty.head(), chatty.chunk())[1])
        self.assertTrue((claude.head(), claude.chunk())[1].startswith(b"event: message_start\n"))

        def second():
            start = time.monotonic()
            self.assertEqual(chatty.chunk(), b": ping\n\n")
            took = time.monotonic() - start
            self.assertEqual(claude.chunk(), b'event: ping\ndata: {"type": "ping"}\n\n')
            return took
        second()
        self.soon(second, 1.8)
        first.socket.close()
        for c, last in ((chatty, b"data: [DONE]\n\n"), (claude, b'event: message_stop\ndata: {"type":"message_stop"}\n\n')):
            body = b""
            while piece := c.chunk():
                body += piece
            self.assertTrue(body.endswith(last), body[-200:])
            self.assertNotIn(b"ping", body.split(last)[-1])


class Engine(lib.Case):
    """What the engine thread adds to a request."""

    def test_next_turn_is_prepared(self):
        with Server("plain", "--log-level", "debug") as s:
            first = [{"role": "user", "content": "tell me about the weather " * 20}]
            r = s.post(CHAT, {"messages": first, "max_tokens": 300})
            turn = r.json()["choices"][0]["message"]
            self.assertTrue(turn["reasoning_content"])
            prepared = int(s.wait_log(r"idle-prefill .*tokens=[1-9]\d* of=(\d+)")[1])
            self.assertGreater(prepared, r.json()["usage"]["prompt_tokens"])
            body = {"messages": [*first, {"role": "assistant", "content": turn["content"],
                                          "reasoning_content": turn["reasoning_content"]},
                                 {"role": "user", "content": "more"}], "max_tokens": 300}
            usage = s.post(CHAT, body).json()["usage"]
            self.assertGreaterEqual(usage["prompt_tokens_details"]["cached_tokens"], prepared)
            s.wait_log("idle-prefill", count=2)  # the second answer's history; then there is nothing more to do
            time.sleep(2.5)
            self.assertEqual(s.log().count("idle-prefill"), 2)

    def test_idle_work_gives_way_and_can_be_off(self):
        with Server("plain", "--no-idle-prefill", "--log-level", "debug") as s:
            s.post(CHAT, chat("hello", max_tokens=300))
            time.sleep(3)
            self.assertNotIn("idle-prefill", s.log())

    def test_a_request_that_bans_everything(self):
        """It is refused, and the next one is served."""
        with Server("plain") as s:
            bias = {str(i): -100 for i in range(s.ask("GET", "/v1/models").json()["data"][0]["meta"]["n_vocab"])}
            none = {"sampling": {"logit_bias": bias}}
            r = s.post("/lagoon/v1/generate", chat(**none))
            self.assertEqual((r.status, r.json()["error"]["type"]), (400, "invalid_request_error"))
            self.assertIn("leave no token", r.json()["error"]["message"])
            r = s.post("/lagoon/v1/generate", chat(stream=True, **none))
            self.assertIn("leave no token", dict(frames(r.body))["error"])
            self.assertEqual(s.ask("GET", "/health").status, 200)
            self.assertEqual(s.post(CHAT, chat(max_tokens=300)).status, 200)
            self.assertNotIn(" error ", s.log())

    @unittest.skipIf(lib.sanitized(), "a sanitizer takes the signal")
    def test_a_model_that_is_cut_while_it_is_served(self):
        path = os.path.join(lib.PLACE, "cut.gguf")
        shutil.copy(lib.model("plain"), path)
        with Server(path) as s:
            os.truncate(path, 4096)
            with s.client() as c:
                c.request("POST", CHAT, chat())
                self.assertEqual(s.wait(), -signal.SIGBUS)
            self.assertEqual(s.log().count("(SIGBUS): a model must not be overwritten"), 1)

    def test_a_vocabulary_without_a_begin_token(self):
        """As other converters write them: raw prompts go without, and an empty one is refused."""
        path = os.path.join(lib.PLACE, "no-begin.gguf")
        bos = "\u3008|EOS|\u3009".encode()
        with open(lib.model("plain"), "rb") as f:
            data = f.read().replace(bos, b"x" * len(bos)).replace(b"ggml.bos_token_id", b"ggml.xxx_token_id")
        with open(path, "wb") as f:
            f.write(data)
        with Server(path) as s:
            for body in ({}, {"prompt": ""}, {"prompt": ["ab", []]}):
                r = s.post("/v1/completions", body)
                self.assertEqual((r.status, r.json()["error"]["param"]), (400, "prompt"))
            self.assertEqual(s.post("/lagoon/v1/generate", {"prompt": ""}).status, 400)
            r = s.post("/lagoon/v1/generate", {"prompt": "ab", "max_tokens": 4, "echo_prompt_ids": True}).json()
            self.assertEqual(len(r["prompt_ids"]), 2)
            r = s.post("/v1/completions", {"prompt": "ab", "max_tokens": 4}).json()
            self.assertEqual((r["usage"]["prompt_tokens"], r["usage"]["completion_tokens"]), (2, 4))
            r = s.post("/infill", {"input_prefix": "ab", "input_suffix": "c", "n_predict": 4}).json()
            self.assertEqual(r["tokens_evaluated"], 6)
            self.assertEqual(len(s.post("/tokenize", {"content": "ab", "add_special": True}).json()["tokens"]), 2)
            self.assertEqual(s.post(CHAT, chat()).status, 400)

    def test_choices_and_log_probabilities(self):
        with Server("plain") as s:
            r = s.post(CHAT, chat(max_tokens=300, n=3, logprobs=True, top_logprobs=4)).json()
            self.assertEqual([c["index"] for c in r["choices"]], [0, 1, 2])
            for c in r["choices"]:
                entries = c["logprobs"]["content"]
                self.assertEqual("".join(e["token"] for e in entries), lib.ANSWER)
                for e in entries:
                    self.assertLessEqual(e["logprob"], 0)
                    self.assertEqual(len(e["top_logprobs"]), 4)
                    self.assertEqual(e["top_logprobs"][0]["logprob"], max(t["logprob"] for t in e["top_logprobs"]))
                    self.assertAlmostEqual(e["top_logprobs"][0]["logprob"], e["logprob"])  # a model without doubts
            body = s.post(CHAT, chat(max_tokens=300, n=2, stream=True)).body
            text = {0: "", 1: ""}
            for _, data in frames(body)[:-1]:
                for c in json.loads(data)["choices"]:
                    text[c["index"]] += c["delta"].get("content") or ""
            self.assertEqual(text, {0: lib.ANSWER, 1: lib.ANSWER})

    def test_stop_strings(self):
        with Server("plain") as s:
            r = s.post("/lagoon/v1/generate", chat(max_tokens=300, stop=["zzz", "bold"])).json()
            self.assertEqual((r["finish"], r["stop_string"]), ("stop_string", "bold"))
            self.assertEqual(r["text"], lib.ANSWER.split("bold")[0])

    def test_opening_event_knows_what_is_cached(self):
        with Server("plain") as s:
            body = chat("a text of some length " * 10, max_tokens=300, stream=True)
            s.post("/v1/messages", body)
            for _ in range(20):  # on a busy machine the first event may take longer than a stream waits for it
                start = json.loads(frames(s.post("/v1/messages", body).body)[0][1])
                if start["message"]["usage"]["cache_read_input_tokens"] > 100:
                    break
            self.assertGreater(start["message"]["usage"]["cache_read_input_tokens"], 100)


# A step of time is four seconds, and it passes when a file is there: one timed wait of a thread takes the file and is over.
CLOCK = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>
static atomic_long gained;
int clock_gettime(clockid_t id, struct timespec *t)
{
    static int (*real)(clockid_t, struct timespec *);
    if (!real)
        *(void **)&real = dlsym(RTLD_NEXT, "clock_gettime");
    int r = real(id, t);
    if (id == CLOCK_MONOTONIC)
        t->tv_sec += gained;
    return r;
}
int pthread_cond_timedwait(pthread_cond_t *c, pthread_mutex_t *m, const struct timespec *until)
{
    (void)c, (void)until;
    for (int i = 0; i < 50; i++) {
        pthread_mutex_unlock(m);
        usleep(20000);
        pthread_mutex_lock(m);
        if (unlink(getenv("CLOCK_STEP")) == 0) {
            gained += 4;
            break;
        }
    }
    return ETIMEDOUT;
}
"""
# A model whose loading takes three seconds.
SLOW = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <sys/mman.h>
#include <unistd.h>
void *mmap(void *at, size_t n, int prot, int flags, int fd, off_t from)
{
    static void *(*real)(void *, size_t, int, int, int, off_t);
    if (!real)
        *(void **)&real = dlsym(RTLD_NEXT, "mmap");
    if (fd >= 0)
        usleep(3000000);
    return real(at, n, prot, flags, fd, from);
}
void *mmap64(void *at, size_t n, int prot, int flags, int fd, off_t from)
{
    return mmap(at, n, prot, flags, fd, from);
}
"""


def shim(case, name, source):
    """A library that stands before the program's own; skips the test where none can."""
    path = os.path.join(lib.PLACE, name)
    try:
        subprocess.run(["cc", "-shared", "-fPIC", "-x", "c", "-", "-o", path, "-ldl"], input=source.encode(), check=True,
                       capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        case.skipTest("no compiler that makes a library which stands in for the system's")
    if subprocess.run([lib.PROGRAM, "--version"], env=lib.ENV | {"LD_PRELOAD": path, "CLOCK_STEP": "/x"},
                      capture_output=True, check=False).returncode != 0:
        case.skipTest("the program does not start with a library before its own (a sanitizer)")
    return path


class Ceiling(lib.Case):
    def steps(self, step, c, whole):
        """What comes while time passes: a step, and then a look at what the server has sent. So it is never for many steps
        that nothing is taken, which would end the connection."""
        body, end = b"", time.monotonic() + lib.PATIENCE
        while not whole(body):
            self.assertLess(time.monotonic(), end, body[-300:])
            if not os.path.exists(step):
                open(step, "wb").close()
            if select.select([c.socket], [], [], 0.02)[0]:
                data = c.socket.recv(1 << 20)
                self.assertTrue(data, body[-300:])
                body += data
        return body

    def test_a_request_ends_at_its_ceiling(self):
        """Minutes pass in the middle of an answer: it ends as by a limit, and the next one is served."""
        clock = shim(self, "clock.so", CLOCK)
        for path, stream, want in ((CHAT, True, b'"finish_reason":"length"'),
                                   ("/v1/messages", False, b'"stop_reason":"max_tokens"')):
            step = os.path.join(lib.PLACE, "step" + "s" * stream)
            with Server("loop", env={"LD_PRELOAD": clock, "CLOCK_STEP": step}) as s, s.client() as c:
                s.post(CHAT, chat(max_tokens=2000))  # so that the ceiling is reckoned from measured rates
                c.request("POST", path, chat(max_tokens=200000, stream=stream))
                s.wait_phase("decode")
                time.sleep(1.5)  # at least one look at the clock that finds nothing
                self.assertEqual(s.status()["job"]["phase"], "decode")
                answer = self.steps(step, c, lambda body: body.endswith(b"\r\n0\r\n\r\n" if stream else b"}"))
                self.assertTrue(answer.startswith(b"HTTP/1.1 200 "), answer[:300])
                self.assertIn(want, answer)
                s.wait_log("warn engine ceiling id=")
                self.assertEqual(s.post(CHAT, chat(max_tokens=5)).status, 200)


class Ping(lib.Case):
    def test_prefill(self):
        """No second without a byte while a long prompt is read by a slow engine; a busy machine may miss some."""
        with Server("plain", "--isa", "c", "--threads", "1", "--sse-ping-s", "1") as s, s.client() as c:
            c.request("POST", CHAT, chat("word " * 6000, max_tokens=2, stream=True))
            c.head()
            self.assertIn(b'"role":"assistant"', c.chunk())
            self.assertEqual(c.chunk(), b": ping\n\n")

            def second():
                start = time.monotonic()
                self.assertEqual(c.chunk(), b": ping\n\n")
                return time.monotonic() - start
            self.soon(second, 1.8)

    def test_off_and_forced(self):
        for kind, want in (("off", None), ("comment", b": ping\n\n"), ("event", b"event: ping\ndata: {\"type\": \"ping\"}\n\n")):
            with Server("loop", "--sse-ping", kind, "--sse-ping-s", "1") as s:
                first, second = s.client(), s.client()
                first.request("POST", CHAT, chat(stream=True))
                first.head()
                second.request("POST", "/v1/messages", chat(max_tokens=2, stream=True))
                second.head()
                second.chunk()
                if want:
                    self.assertEqual(second.chunk(), want)
                else:
                    with self.assertRaises(TimeoutError):
                        second.chunk(2.5)

    def test_leading_spaces(self):
        with Server("plain", "--json-leading-space-ping") as s:
            r = s.post(CHAT, chat(max_tokens=300))
            self.assertEqual(r.json()["choices"][0]["message"]["content"], lib.ANSWER)
            self.assertEqual(r.headers["content-type"], "application/json")


class Stop(lib.Case):
    def test_drain(self):
        """The running answer ends in peace, what waits and what comes is told, exit 0."""
        with Server("loop", "--stop-grace", "3000") as s:
            running, waiting, quiet = s.client(), s.client(), s.client()
            running.request("POST", CHAT, chat(max_tokens=40000, stream=True))
            running.head()
            s.wait_phase("decode")
            waiting.request("POST", CHAT, chat("waits", stream=True))
            waiting.head()
            quiet.request("POST", "/v1/messages", chat("waits too", max_tokens=9))
            s.wait_status(lambda status: len(status["queue"]) == 2)
            s.signal()
            r = quiet.response()
            self.assertEqual((r.status, r.error()["type"]), (503, "overloaded_error"))
            body = b""
            while piece := waiting.chunk():
                body += piece
            self.assertIn(b'"code":"shutting_down"', body)
            self.assertTrue(body.endswith(b"data: [DONE]\n\n"))
            r = s.post(CHAT, chat("new"))
            self.assertEqual((r.status, r.error()["code"]), (503, "shutting_down"))
            body = b""
            while piece := running.chunk():
                body += piece
            self.assertIn(b'"finish_reason":"length"', body)
            self.assertEqual(s.wait(), 0)

    def test_second_signal_cuts(self):
        with Server("loop") as s:
            c = s.client()
            c.request("POST", CHAT, chat(stream=True))
            c.head()
            s.wait_phase("decode")
            s.signal(signal.SIGINT)
            s.wait_log("server stopping")
            s.signal(signal.SIGINT)
            body = b""
            while piece := c.chunk():
                body += piece
            self.assertIn(b'"code":"shutting_down"', body[-400:])
            self.assertEqual(s.wait(), 130)

    def test_grace_ends(self):
        with Server("loop", "--stop-grace", "1") as s:
            c = s.client()
            c.request("POST", "/v1/messages", chat(max_tokens=200000, stream=True))
            c.head()
            s.wait_phase("decode")
            s.signal()
            body = b""
            while piece := c.chunk():
                body += piece
            self.assertIn(b"event: error\n", body)
            self.assertEqual(s.wait(), 0)

    def test_idle(self):
        with Server("plain") as s:
            s.signal()
            self.assertEqual(s.wait(), 0)
        with Server("plain", "--idle-exit", "1") as s:
            self.assertEqual(s.wait(), 0)

    def test_loading_is_no_idleness(self):
        with Server("plain", "--idle-exit", "1", env={"LD_PRELOAD": shim(self, "slow.so", SLOW)}) as s:
            self.assertEqual(s.wait(), 0)
            self.assertRegex(s.log(), r"(?s)engine ready .*server idle ")

    def test_logs(self):
        path = os.path.join(lib.PLACE, "log.jsonl")
        with Server("plain") as s:
            s.post(CHAT, chat("a secret text", max_tokens=300))
            s.wait_log(r"info http done id=r-\w+ dialect=chat client=e2e/1.2 status=200 in=\d+ cached=0 think=\d+ out=\d+ "
                       r"tools=0 queue_ms=\d+ ttft_ms=\d+ tok_s=[\d.]+ finish=stop")
            self.assertNotIn("secret", s.log())
            self.assertNotIn("bold", s.log())
        with Server("plain", "--log-file", path, log=path) as s:
            s.post(CHAT, chat(max_tokens=300))
            s.wait_log('"event":"done"')
            rows = [json.loads(line) for line in s.log().splitlines()]
            done = [r for r in rows if r["event"] == "done"][0]
            self.assertEqual((done["level"], done["mod"], done["status"], done["dialect"]), ("info", "http", 200, "chat"))
            self.assertRegex(done["ts"], r"^20\d\d-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$")

    def test_log_of_json_on_standard_error(self):
        """Nothing else stands there."""
        with Server("plain", "--log-format", "json", "--host", "0.0.0.0", "--log-content") as s:
            s.post(CHAT, chat(max_tokens=300))
            s.wait_log('"event":"done"')
            s.signal()
            s.wait()
            rows = [json.loads(line) for line in s.log().splitlines()]
            self.assertEqual([r["event"] for r in rows][:3], ["warning", "warning", "listening"])
            self.assertIn("without an API key", rows[0]["note"])
            self.assertEqual(rows[2]["url"], f"http://0.0.0.0:{s.port}")

    def test_log_of_odd_clients(self):
        """What a client says of itself is one value of a record, whatever it is."""
        home = os.path.join(lib.PLACE, "odd")
        os.makedirs(os.path.join(home, ".config", "lagoon"))
        with open(os.path.join(home, ".config", "lagoon", "lagoon.conf"), "w") as f:
            f.write("[client my laptop]\napi_key = a\n[client 007]\napi_key = b\n")
        path = os.path.join(lib.PLACE, "odd.jsonl")
        odd = "/x%22%20status=200%20y=%22%5C"
        with Server("plain", "--log-file", path, "--log-content", "--log-level", "debug", log=path, env={"HOME": home}) as s:
            for key in "ab":
                r = s.ask("POST", CHAT, chat(max_tokens=300), {"Authorization": f"Bearer {key}", "x-request-id": "0123"})
                self.assertEqual(r.status, 200)
            head = {"Authorization": "Bearer a"}
            self.assertEqual(s.ask("POST", "/v1/v1" + odd, {}, head).status, 404)
            self.assertEqual(s.ask("POST", odd, {}, head).status, 404)
            body = {"input": [{"type": "x y=\"1\" \\"}, {"role": "user", "content": "hi"}], "max_output_tokens": 5,
                    "tools": [{"type": "x y=2"}]}
            self.assertEqual(s.ask("POST", "/v1/responses", body, head).status, 200)
            s.wait_log('"event":"done"', count=3)
            rows = [json.loads(line) for line in s.log().splitlines()]

            def of(event, key):
                return [r[key] for r in rows if r["event"] == event]

            self.assertEqual(of("done", "client")[:2], ["my laptop", "007"])
            self.assertEqual(of("admit", "req")[:2], ["0123", "0123"])
            self.assertEqual(of("content", "answer")[0], lib.ANSWER.replace("\n", "?"))
            self.assertEqual(of("doubled-prefix", "path"), ["/v1/v1/x\" status=200 y=\"\\"])
            self.assertEqual(of("doubled-prefix", "note"), ["the client's base URL has /v1 too much"])
            self.assertEqual(of("unknown-path", "path"), ["/v1/v1/x\" status=200 y=\"\\"])
            self.assertEqual(of("item-left-out", "type"), ["x y=\"1\" \\"])
            self.assertEqual(of("tool-left-out", "type"), ["x y=2"])


if __name__ == "__main__":
    lib.main()
