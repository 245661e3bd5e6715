"""Codex, headless, over the Responses API: a real tool loop, and what a second run costs.

The model asks for a file with a command, Codex runs it, the result comes back, the answer ends the run. A scripted model
says the same each time, so two servers share the work: one calls, the other answers.
"""
import json
import os
import secrets

import client
import lib
import web

CODEX = os.path.join(client.package("@openai/codex", program="codex"), ".bin", "codex")
MINI = os.path.join(client.HERE, "..", "..", "models", "mini.gguf")
CONFIG = """model = "laguna"
model_provider = "lagoon"
[model_providers.lagoon]
name = "lagoon"
base_url = "http://127.0.0.1:{port}/v1"
wire_api = "responses"
stream_idle_timeout_ms = 1000000
"""
CALL = [25, "exec_command<arg_key>cmd</arg_key><arg_value>cat note.txt</arg_value>", 26]


def run(relay, env, folder, prompt):
    place = os.path.join(env["HOME"], ".codex")
    os.makedirs(place, exist_ok=True)
    with open(os.path.join(place, "config.toml"), "w", encoding="ascii") as f:
        f.write(CONFIG.format(port=relay.port))
    words = [CODEX, "exec", "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox", prompt]
    return client.run(words, env, folder, seconds=1000)


def twice(relay, *words):
    return client.twice(relay, "/v1/responses", lambda: run(relay, *words))


def outputs(exchange):
    return [i for i in exchange.json()["input"] if i.get("type") == "function_call_output"]


class Codex(lib.Case):
    def answer(self, exchange):
        """The response that the stream ends with; the stream is checked on the way."""
        self.assertEqual(exchange.status, 200, exchange.answer)
        frames = [f for f in web.frames(exchange.answer) if f[0]]
        events = [json.loads(data) for _, data in frames]
        self.assertEqual([e["type"] for e in events], [name for name, _ in frames])
        self.assertEqual([e["sequence_number"] for e in events], list(range(len(events))))
        self.assertEqual([name for name, _ in frames[:2]], ["response.created", "response.in_progress"])
        self.assertEqual(events[-1]["type"], "response.completed")
        done = [e["item"] for e in events if e["type"] == "response.output_item.done"]
        self.assertEqual(done, events[-1]["response"]["output"])
        return events[-1]["response"]

    def check_cached(self, exchanges, share=0.95):
        self.assertTrue(exchanges)
        for x in exchanges:
            usage = self.answer(x)["usage"]
            cached = usage["input_tokens_details"]["cached_tokens"]
            self.assertGreaterEqual(cached, share * usage["input_tokens"], usage)

    def test_tool_loop(self):
        secret = secrets.token_hex(8)
        calling = client.script("calling", "I must read the file.", CALL)
        answering = client.script("answering", "That is the note.", "The file holds a secret number.")
        env, folder = client.home("codex")
        with open(os.path.join(folder, "note.txt"), "w", encoding="ascii") as f:
            f.write(secret + "\n")
        with web.Server(calling) as a, web.Server(answering) as b:
            with client.Relay(lambda x: b.port if x.raw and outputs(x) else a.port) as relay:
                (out, first), (again, second) = twice(relay, env, folder, "What is in note.txt?")
        self.assertEqual(out, "The file holds a secret number.\n")
        self.assertEqual(again, out)
        self.assertEqual([len(first), len(second)], [2, 2])
        reasoning, call = self.answer(first[0])["output"]
        self.assertEqual(json.loads(call["arguments"]), {"cmd": "cat note.txt"})
        # the tool really ran; its result, the call and the sealed reasoning came back
        result = outputs(first[1])[0]
        self.assertEqual(result["call_id"], call["call_id"])
        self.assertIn(secret, json.dumps(result["output"]))
        sent = {i["type"]: i for i in first[1].json()["input"] if i["type"] in ("reasoning", "function_call")}
        self.assertEqual(sent["function_call"]["call_id"], call["call_id"])
        self.assertEqual(sent["reasoning"]["encrypted_content"], reasoning["encrypted_content"])
        self.check_cached(second)

    def test_a_tool_of_a_namespace(self):
        """Codex knows such a tool only by its namespace and inner name."""
        calling = client.script("space", "I close it.", [
            25, "multi_agent_v1__close_agent<arg_key>target</arg_key><arg_value>nobody</arg_value>", 26])
        answering = client.script("spaced", "That was wrong.", "There is no such agent.")
        env, folder = client.home("space")
        with web.Server(calling) as a, web.Server(answering) as b:
            with client.Relay(lambda x: b.port if x.raw and outputs(x) else a.port) as relay:
                out = run(relay, env, folder, "Close the agent.")
                seen = relay.posts("/v1/responses")
        self.assertEqual(out, "There is no such agent.\n")
        call = self.answer(seen[0])["output"][-1]
        self.assertEqual([call["namespace"], call["name"]], ["multi_agent_v1", "close_agent"])
        self.assertNotIn("unsupported", json.dumps(outputs(seen[1])[0]).lower())

    def test_demonstration_model(self):
        """The model in the tree: whatever it says, the loop ends and the second run is warm."""
        env, folder = client.home("mini")
        with web.Server(MINI, "--temperature", "0") as s, client.Relay(lambda _: s.port) as relay:
            (_, first), (_, second) = twice(relay, env, folder, "Say hello.")
        for x in first + second:
            self.answer(x)
        self.check_cached(second)


lib.main()
