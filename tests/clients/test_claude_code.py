"""Claude Code, headless: a real tool loop, and what a second run costs.

The model asks for a file with a command, Claude Code runs it, the result comes back, the answer ends the run. A scripted
model says the same each time, so two servers share the work: one calls, the other answers.
"""
import json
import os
import secrets

import client
import lib
import web

MODULES = client.package("@anthropic-ai/claude-code", "install.cjs", "claude")
CLAUDE = os.path.join(MODULES, ".bin", "claude")


def usage(exchange):
    """(prompt tokens, of them cached) of a streamed answer, as its last event says."""
    for name, data in web.frames(exchange.answer):
        if name == "message_delta":
            u = json.loads(data)["usage"]
            cached = u["cache_read_input_tokens"]
            return u["input_tokens"] + cached, cached
    raise AssertionError(exchange.answer[-500:])


def has_result(exchange):
    return any(part.get("type") == "tool_result" for m in exchange.json()["messages"] if isinstance(m["content"], list)
               for part in m["content"])


def run(relay, env, folder, prompt, *words):
    env = env | {"ANTHROPIC_BASE_URL": f"http://127.0.0.1:{relay.port}", "ANTHROPIC_API_KEY": "k", "IS_SANDBOX": "1",
                 "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1", "DISABLE_TELEMETRY": "1",
                 # a loaded machine may read the first prompt for longer than the five minutes it would wait
                 "CLAUDE_STREAM_IDLE_TIMEOUT_MS": "1000000", "API_TIMEOUT_MS": "1000000"}
    return client.run([CLAUDE, "-p", prompt, "--model", "laguna", "--dangerously-skip-permissions", *words], env, folder,
                      seconds=1000)


def twice(relay, *words):
    return client.twice(relay, "/v1/messages", lambda: run(relay, *words))


class ClaudeCode(lib.Case):
    def check_cached(self, exchanges, share=0.95):
        self.assertTrue(exchanges)
        for x in exchanges:
            total, cached = usage(x)
            self.assertGreaterEqual(cached, share * total, f"{cached} of {total} tokens")

    def check_stream(self, exchange):
        self.assertEqual(exchange.status, 200, exchange.answer)
        names = [name for name, _ in web.frames(exchange.answer)]
        self.assertEqual(names[:2], ["message_start", "ping"])
        self.assertEqual(names[-2:], ["message_delta", "message_stop"])

    def test_tool_loop(self):
        secret = secrets.token_hex(8)
        calling = client.script("calling", "I must read the file.", [
            25, "Bash<arg_key>command</arg_key><arg_value>cat note.txt</arg_value>", 26])
        answering = client.script("answering", "That is the note.", "The file holds a secret number.")
        env, folder = client.home("claude")
        with open(os.path.join(folder, "note.txt"), "w", encoding="ascii") as f:
            f.write(secret + "\n")
        with web.Server(calling) as a, web.Server(answering) as b:
            with client.Relay(lambda x: b.port if x.raw and has_result(x) else a.port) as relay:
                (out, first), (again, second) = twice(relay, env, folder, "What is in note.txt?")
        self.assertEqual(out, "The file holds a secret number.\n")
        self.assertEqual(again, out)
        self.assertEqual([len(first), len(second)], [2, 2])
        for x in first + second:
            self.check_stream(x)
        # the tool really ran, and its result came back under the id of the call
        call = first[1].json()["messages"][-2]["content"][-1]
        result = first[1].json()["messages"][-1]["content"][0]
        self.assertEqual(call["input"], {"command": "cat note.txt"})
        self.assertEqual(result["tool_use_id"], call["id"])
        self.assertIn(secret, json.dumps(result["content"]))
        self.check_cached(second)

    def test_volatile_parts(self):
        """What changes from request to request and still must not cost the prefix."""
        answering = client.script("plain", "Nothing to do.", "All is well here.")
        env, folder = client.home("volatile")
        with web.Server(answering) as s, client.Relay(lambda _: s.port) as relay:
            run(relay, env, folder, "Say something.")
            body = relay.posts("/v1/messages")[0].json()
            self.assertTrue(body["system"][0]["text"].startswith("x-anthropic-"), body["system"][0]["text"][:80])
            for change in ("x-anthropic-billing-header: cc_version=9.9.9.abc; cc_entrypoint=cli; cch=0f3a1;",
                           "x-anthropic-billing-header: cc_version=9.9.9.abc; cc_entrypoint=cli; cch=99999;\n"):
                body["system"][0]["text"] = change
                body["stream"] = False
                u = s.post("/v1/messages?beta=true", body).json()["usage"]
                self.assertEqual(u["input_tokens"], 1)
            # the count is that of the same request
            count = {k: body[k] for k in ("system", "messages", "tools", "thinking", "output_config", "model")}
            n = s.post("/v1/messages/count_tokens?beta=true", count).json()["input_tokens"]
            self.assertEqual(n, u["input_tokens"] + u["cache_read_input_tokens"])

    def test_demonstration_model(self):
        """The model in the tree: whatever it says, the loop runs and the second run is warm."""
        env, folder = client.home("mini")
        with web.Server(client.MINI, "--temperature", "0") as s, client.Relay(lambda _: s.port) as relay:
            (_, first), (_, second) = twice(relay, env, folder, "Say hello.", "--max-turns", "20")
        for x in first + second:
            self.check_stream(x)
        self.check_cached(second)


lib.main()
