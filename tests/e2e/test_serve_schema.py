#!/usr/bin/env python3
"""Constrained answers and forced calls of the demonstration model over HTTP, in every dialect, streamed and not, with
thinking and without.

usage: test_serve_schema.py PROGRAM MODELS_DIR [REQUESTS [FIRST_SEED]] [unittest words]; 42 requests by default, `make soak`
asks 500.
"""
import json
import os
import re
import sys

MODELS = sys.argv.pop(2)
REQUESTS, SEED = (int(sys.argv.pop(2)) if len(sys.argv) > 2 and sys.argv[2].isdigit() else n for n in (42, 1))
sys.path.insert(1, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "mini"))

import lib
from dialects import DIALECTS, PARAMETERS, Chat, Messages, good_call
from test_schema import CASES
from web import Server, chat

MINI = os.path.join(MODELS, "mini.gguf")
class Schema(lib.Case):
    @classmethod
    def setUpClass(cls):
        cls.s = Server(MINI)

    @classmethod
    def tearDownClass(cls):
        cls.s.__exit__(None)

    def answer(self, d, body, stream):
        with self.s.client() as c:
            c.request("POST", d.path, body | ({"stream": True} if stream else {}))
            r = c.response(300)  # an answer of 500 tokens on a busy machine
        self.assertEqual(r.status, 200, r.body)
        return d.read_stream(r) if stream else d.read(r)

    def test_what_ended_by_itself_is_valid(self):
        ended = 0
        cases = [c for c in CASES if not isinstance(c[1], str)]
        for i in range(REQUESTS):
            d, stream, thinking = DIALECTS[i % 4], i // 4 % 2 == 0, i // 8 % 2 == 0
            question, schema, judge = cases[i % len(cases)]
            body = d.body(question, thinking, max_tokens=500, seed=SEED + i, **d.format(schema))
            text, calls, end = self.answer(d, body, stream)
            self.assertIn(end, ("stop", "length"))
            self.assertEqual(calls, [])
            if end == "stop":
                ended += 1
                self.assertTrue(judge(json.loads(text)), (d.path, stream, thinking, text))
        print(f"{REQUESTS} requests, {ended} ended by themselves")
        self.assertGreater(ended, REQUESTS // 2)

    def test_forced_calls(self):
        for i in range(max(16, REQUESTS // 4)):
            d, stream, thinking = DIALECTS[i % 4], i // 4 % 2 == 0, i // 8 % 2 == 0
            name = (None, "light", "weather")[i % 3]
            body = d.body("What will the weather be in Paris?", thinking, max_tokens=500, seed=SEED + i, **d.tools(name))
            text, calls, end = self.answer(d, body, stream)
            if end == "length":
                continue
            self.assertEqual((end, len(calls)), ("tool_calls", 1), (d.path, stream, text, calls))
            self.assertTrue(good_call(*calls[0]), calls)
            self.assertTrue(name in (None, calls[0][0]), calls)

    def test_refusals(self):
        bad = {"type": "object", "properties": {"a/b": {"not": {}}}}
        for d in DIALECTS:
            r = self.s.post(d.path, d.body("x", False, max_tokens=9, **d.format(bad)))
            self.assertEqual(r.status, 400, d.path)
            self.assertIn('schema at /properties/a~1b/not: keyword "not" is not supported', r.error()["message"])
            if not isinstance(d, Messages):
                self.assertEqual(r.error()["code"], "unsupported_keyword")
                self.assertTrue(r.error()["param"].startswith(d.param), r.error())
            r = self.s.post(d.path, d.body("x", False, max_tokens=9, **d.format({}), **d.tools(None) | {
                "tool_choice": {"type": "auto"} if isinstance(d, Messages) else "auto"}))
            self.assertEqual(r.status, 400, r.body)
            self.assertIn("cannot be combined with tools", r.error()["message"])

    def test_faults_of_the_text(self):
        """What a JSON reader mends in silence is a fault in a schema; the rest of a request may have it."""
        texts = (('{"type": "object", "properties": {"a/": {"type": "string", "type": "null"}}}', "/properties/a~1/type"),
                 ('{"type": "object", "t\\u0079pe": "array"}', "/type"), ('{"enum": ["\\ud800"]}', "surrogate"))
        for d in DIALECTS:
            for text, place in texts:
                body = json.dumps(d.body("x", False, max_tokens=9, **d.format("@")))
                r = self.s.post(d.path, body.replace('"@"', text).encode())
                self.assertEqual(r.status, 400, (d.path, text, r.body))
                self.assertIn(place, r.error()["message"])
                if not isinstance(d, Messages):
                    self.assertEqual((r.error()["code"], r.error()["param"][:len(d.param)]), ("invalid_schema", d.param))
                body = json.dumps(d.body("x", False, max_tokens=9, **d.tools("weather"))).replace(json.dumps(PARAMETERS), text)
                r = self.s.post(d.path, body.encode())
                self.assertEqual(r.status, 400, (d.path, text, r.body))
                self.assertIn("/tools/0/function/parameters" + (place if place[0] == "/" else ""), r.error()["message"])
            body = json.dumps(d.body("x", False, max_tokens=40, **d.format({"enum": [7]})))
            r = self.s.post(d.path, body.replace('"x"', '"x\\ud800"').encode())
            self.assertEqual((r.status, d.read(r)[0]), (200, "7"), r.body)

    def test_prefix(self):
        schema = {"type": "object", "properties": {"n": {"type": "integer", "maximum": 99, "minimum": 0}},
                  "required": ["n"], "additionalProperties": False}
        ask = lambda prefix, **options: self.s.post("/lagoon/v1/generate", chat(
            thinking=False, max_tokens=60, format={"type": "json_schema", "schema": schema, "options": {"fast_forward": True} | options},
            **{"continue": {"prefix": prefix}}))
        r = ask('{"n": 1')
        self.assertEqual(r.status, 200, r.body)
        self.assertRegex('{"n": 1' + r.json()["text"], r'^\{"n": \d\d?[ \n\t]*\}$')
        r = ask('{"n": 12}')
        self.assertEqual((r.json()["text"], r.json()["finish"], r.json()["usage"]["output_tokens"]), ("", "schema", 0))
        for prefix in ("{", '{"', '{"n', '{"n": 1', '{ "n":'):  # its last token may be written anew
            r = ask(prefix, heal=True)
            self.assertEqual(r.status, 200, r.body)
            self.assertRegex(prefix + r.json()["text"], r'^\{\s*"n": ?\d\d?[ \n\t]*\}$')
        self.assertEqual(ask('{"n": 12}', heal=True).json()["usage"]["output_tokens"], 0)
        r = ask('{"m')
        self.assertEqual(r.status, 400)
        self.assertRegex(r.error()["message"], r'token ".*m" of the prefix .* at byte \d')


    def test_native_patterns_and_choices(self):
        ask = lambda f, **more: self.s.post("/lagoon/v1/generate", chat(thinking=False, max_tokens=60, format=f, **more))
        r = ask({"type": "regex", "pattern": "[ab]{3}-\\d"})
        self.assertRegex(r.json()["text"], r"\A[ab]{3}-\d\Z")
        r = ask({"type": "choice", "choices": ["left", "right", "righteous"]})
        self.assertIn(r.json()["text"], ("left", "right", "righteous"))
        r = ask({"type": "choice", "choices": ["left", "right"]}, **{"continue": {"prefix": "le"}})
        self.assertEqual(r.json()["text"], "ft")
        for bad, param in (({"type": "regex", "pattern": "(?=a)"}, "format.pattern"),
                           ({"type": "regex"}, "format.pattern"), ({"type": "choice", "choices": []}, "format.choices"),
                           ({"type": "choice", "choices": [""]}, "format.choices"),
                           ({"type": "json_object", "options": {"whitespace": "wide"}}, "format.options.whitespace")):
            r = ask(bad)
            self.assertEqual((r.status, r.error()["param"]), (400, param), r.body)


class Union(lib.Case):
    def test_a_call_or_a_value(self):
        schema = {"enum": ["yes", "no"]}
        with Server(MINI, "--format-with-tools") as s:
            for i in range(12):
                d = DIALECTS[i % 4]
                body = d.body(("Is the sky blue?", "What will the weather be in Paris?")[i % 2], i % 3 == 0, max_tokens=500,
                              seed=i, **d.format(schema), **d.tools(None) | {
                                  "tool_choice": {"type": "auto"} if isinstance(d, Messages) else "auto"})
                r = s.post(d.path, body)
                self.assertEqual(r.status, 200, r.body)
                text, calls, end = d.read(r)
                if end == "tool_calls":
                    self.assertTrue(good_call(*calls[0]), calls)
                elif end == "stop":
                    self.assertIn(json.loads(text), ("yes", "no"))


class Strict(lib.Case):
    def test_calls_follow_their_schema(self):
        tools = Chat().tools(None)["tools"]
        for t in tools:
            t["function"]["strict"] = True
        calls = 0
        with Server(MINI, "--strict-tools", "enforce") as s:
            for i in range(10):
                r = s.post("/v1/chat/completions", chat("What will the weather be in Paris for 3 days?", tools=tools, seed=i,
                                                        max_tokens=400, temperature=1.3))
                self.assertEqual(r.status, 200, r.body)
                for name, arguments in Chat().read(r)[1]:
                    calls += 1
                    if r.json()["choices"][0]["finish_reason"] == "tool_calls":
                        self.assertTrue(good_call(name, arguments), arguments)
        self.assertGreater(calls, 0)


class Rejecting(lib.Case):
    def test_forced_tools_reject(self):
        with Server(MINI, "--forced-tools", "reject") as s:
            for d in DIALECTS:
                r = s.post(d.path, d.body("x", False, max_tokens=9, **d.tools("light")))
                self.assertEqual(r.status, 400, r.body)


if __name__ == "__main__":
    lib.main()
