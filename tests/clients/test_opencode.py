"""opencode, headless, over Chat Completions: a real tool loop, and what a second run costs.

The model asks for a file with a command, opencode runs it, the result comes back, the answer ends the run. A scripted
model says the same each time, so two servers share the work: one calls, the other answers. Beside the work, opencode asks
for a title, at the same time.
"""
import json
import os
import secrets

import client
import lib
import web

OPENCODE = os.path.join(client.package("opencode-ai", "postinstall.mjs", "opencode"), ".bin", "opencode")
MINI = os.path.join(client.HERE, "..", "..", "models", "mini.gguf")
CALL = [25, "bash<arg_key>command</arg_key><arg_value>cat note.txt</arg_value><arg_key>description</arg_key>"
        "<arg_value>shows it</arg_value>", 26]


def run(relay, env, folder, prompt, steps=20):
    config = {"$schema": "https://opencode.ai/config.json", "model": "lagoon/laguna", "small_model": "lagoon/laguna",
              "autoupdate": False, "share": "disabled", "agent": {"build": {"steps": steps}},
              "provider": {"lagoon": {"npm": "@ai-sdk/openai-compatible", "name": "lagoon",
                                      "options": {"baseURL": f"http://127.0.0.1:{relay.port}/v1", "apiKey": "k", "timeout": False},
                                      "models": {"laguna": {"name": "laguna", "tool_call": True}}}}}
    with open(os.path.join(folder, "opencode.json"), "w", encoding="ascii") as f:
        json.dump(config, f)
    return client.run([OPENCODE, "run", prompt], env, folder, seconds=1000)


def twice(relay, *words, **more):
    """The same asked two times: (what was printed, the requests of the work) of each. A request for a title is beside the work:
    where opencode has ended before it was answered, or sent, there is none to look at."""
    def one():
        before = len(relay.posts("/v1/chat/completions"))
        text = run(relay, *words, **more)
        return text, [x for x in relay.posts("/v1/chat/completions")[before:] if "tools" in x.json()]
    return client.on_one_day(lambda: (one(), one()))


def results(exchange):
    return [m for m in exchange.json()["messages"] if m["role"] == "tool"]


class Opencode(lib.Case):
    def chunks(self, exchange):
        """The chunks of a stream, which is checked on the way."""
        self.assertEqual(exchange.status, 200, exchange.answer)
        data = [d for event, d in web.frames(exchange.answer) if event]
        self.assertEqual(data.pop(), "[DONE]")
        chunks = [json.loads(d) for d in data]
        self.assertEqual([len(c["choices"]) for c in chunks], [1] * (len(chunks) - 1) + [0])
        self.assertEqual(sum(c["choices"][0]["finish_reason"] is not None for c in chunks[:-1]), 1)
        return chunks

    def check_titles(self, exchanges):
        for x in exchanges:
            if "tools" not in x.json() and x.answer.endswith(b"data: [DONE]\n\n"):
                self.chunks(x)

    def check_cached(self, exchanges, share=0.95):
        """Of all prompt tokens of a run."""
        self.assertTrue(exchanges)
        usages = [self.chunks(x)[-1]["usage"] for x in exchanges]
        cached = sum(u["prompt_tokens_details"]["cached_tokens"] for u in usages)
        self.assertGreaterEqual(cached, share * sum(u["prompt_tokens"] for u in usages), usages)

    def test_tool_loop(self):
        secret = secrets.token_hex(8)
        calling = client.script("calling", "I must read the file.", CALL)
        answering = client.script("answering", "That is the note.", "The file holds a secret number.")
        env, folder = client.home("opencode")
        with open(os.path.join(folder, "note.txt"), "w", encoding="ascii") as f:
            f.write(secret + "\n")
        with web.Server(calling) as a, web.Server(answering) as b:
            # whoever has no tools asks for a title
            with client.Relay(lambda x: b.port if x.raw and (results(x) or "tools" not in x.json()) else a.port) as relay:
                (out, main), (again, second) = twice(relay, env, folder, "What is in note.txt?")
                seen = relay.posts("/v1/chat/completions")
        for text in (out, again):
            self.assertTrue(text.rstrip().endswith("The file holds a secret number."), text)
        self.assertEqual([len(main), len(second)], [2, 2])
        self.check_titles(seen)
        call = [c["choices"][0]["delta"]["tool_calls"][0] for c in self.chunks(main[0])[:-1]
                if "tool_calls" in c["choices"][0]["delta"]]
        self.assertEqual(json.loads("".join(c["function"]["arguments"] for c in call)),
                         {"command": "cat note.txt", "description": "shows it"})
        # the tool really ran, and its result came back under the id of the call
        result = results(main[1])[0]
        self.assertEqual(result["tool_call_id"], call[0]["id"])
        self.assertIn(secret, json.dumps(result["content"]))
        self.check_cached(second)

    def test_demonstration_model(self):
        """The model in the tree: whatever it says, the loop ends and the second run is warm."""
        env, folder = client.home("mini")
        with web.Server(MINI, "--temperature", "0", "--default-budget", "64") as s, client.Relay(lambda _: s.port) as relay:
            (_, first), (_, second) = twice(relay, env, folder, "Say hello.", steps=2)
            seen = relay.posts("/v1/chat/completions")
        for x in first + second:
            self.chunks(x)
        self.check_titles(seen)
        self.check_cached(second)


lib.main()
