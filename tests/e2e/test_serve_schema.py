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
import scripted
from dialects import DIALECTS, OTHER, PARAMETERS, Chat, Messages, Native, Responses, good_call
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

    def test_what_ended_by_itself_is_valid(self):
        ended = 0
        cases = [c for c in CASES if not isinstance(c[1], str)]
        for i in range(REQUESTS):
            d, stream, thinking = DIALECTS[i % 4], i // 4 % 2 == 0, i // 8 % 2 == 0
            question, schema, judge = cases[i % len(cases)]
            body = d.body(question, thinking, max_tokens=500, seed=SEED + i, **d.format(schema))
            text, calls, end = d.ask(self.s, body, stream)
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
            text, calls, end = d.ask(self.s, body, stream)
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
            r = self.s.post(d.path, d.body("x", False, max_tokens=9, **d.format({}), **d.choose("auto")))
            self.assertEqual(r.status, 400, r.body)
            self.assertIn("cannot be combined with tools", r.error()["message"])

    def test_every_recorded_refusal(self):
        """Each code of a refused schema, in every dialect: 400 before anything waits, with the place."""
        with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "golden", "structured-cases.jsonl"),
                  encoding="utf-8") as f:
            cases = [c for c in map(json.loads, f) if "error" in c and c.get("kind") != "toolcall"]
        self.assertGreater(len(cases), 25)
        for c in cases:
            code, pointer = c["error"]["code"], c["error"]["pointer"]
            for d in DIALECTS:
                r = self.s.post(d.path, d.body("x", True, max_tokens=9, stream=True, **d.format(c["schema"])))
                self.assertEqual(r.status, 400, (d.path, c, r.body))
                self.assertIn(f"schema at {pointer or 'the root'}:", r.error()["message"], c)
                self.assertEqual(r.error()["type"], "invalid_request_error")
                if not isinstance(d, Messages):
                    self.assertEqual(r.error()["code"], code, c)
                    self.assertTrue(r.error()["param"].startswith(d.param), r.error())

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
        """format_with_tools: in every dialect, streamed and not. The model likes to call; where a dialect has a bias, half
        of the requests forbid the token that begins a call, and what remains is the value."""
        seen = set()
        with Server(MINI, "--format-with-tools") as s:
            for i in range(16):
                d, stream, dislike = DIALECTS[i % 4], i // 4 % 2 == 1, {"logit_bias": {"25": -100}} if i >= 8 else {}
                body = d.body("What will the weather be in Paris?", False, max_tokens=300, **d.format({"enum": ["yes", "no"]}),
                              **d.choose("auto"))
                if isinstance(d, Native):
                    dislike = dislike and {"sampling": dislike}
                text, calls, end = d.ask(s, body | (dislike if isinstance(d, (Chat, Native)) else {}), stream)
                if end == "length":
                    continue
                seen.add((d.path, end))
                if end == "tool_calls":
                    self.assertTrue(len(calls) == 1 and not text and good_call(*calls[0]), (text, calls))
                else:
                    self.assertEqual((end, calls), ("stop", []))
                    self.assertIn(json.loads(text), ("yes", "no"))
            self.assertTrue(seen >= {(Chat.path, "stop"), (Native.path, "stop"), (Chat.path, "tool_calls")}, seen)
            for d in DIALECTS:
                # a call that is demanded leaves no room for a value, and one that is forbidden comes never
                more = d.format({"enum": ["yes", "no"]})
                end = d.ask(s, d.body("Is the sky blue?", False, max_tokens=300, **more, **d.choose("required")))[2]
                self.assertIn(end, ("tool_calls", "length"))
                text, calls, end = d.ask(s, d.body("The weather in Paris?", False, max_tokens=99, **more, **d.choose("none")))
                self.assertEqual((end, calls), ("stop", []))
                self.assertIn(json.loads(text), ("yes", "no"))


class Strict(lib.Case):
    def test_calls_follow_their_schema(self):
        seen = set()
        with Server(MINI, "--strict-tools", "enforce") as s:
            for i in range(16):
                d, stream, thinking = DIALECTS[i % 4], i // 4 % 2 == 1, i // 8 == 1
                hot = {"sampling": {"temperature": 1.3, "seed": i}} if isinstance(d, Native) else {"temperature": 1.3}
                body = d.body("What will the weather be in Paris for 3 days?", thinking, max_tokens=400,
                              **d.choose("auto", strict=True))
                text, calls, end = d.ask(s, body | hot, stream)
                if end != "tool_calls":
                    continue
                for name, arguments in calls:
                    seen.add(d.path)
                    self.assertTrue(good_call(name, arguments), (d.path, stream, arguments))
        self.assertEqual(seen, {d.path for d in DIALECTS})

    def test_what_cannot_be_enforced(self):
        """Refused with its place when it is asked for by name, or strictly, or when no tool is left; else taken as it comes."""
        bad = {"type": "object", "properties": {"city": {"not": {}}}}
        with Server(MINI, "--strict-tools", "enforce") as s:
            for d in DIALECTS:
                def tools(choice, which, strict=False):
                    more = json.dumps(d.choose("auto", strict) | {"tool_choice": d.tools(choice)["tool_choice"]})
                    for schema in which:
                        more = more.replace(json.dumps(schema), json.dumps(bad))
                    return json.loads(more)
                for more in (tools("weather", [PARAMETERS]), tools(None, [PARAMETERS, OTHER]),
                             d.choose("auto") | {"tools": tools(None, [PARAMETERS], True)["tools"]}):
                    r = s.post(d.path, d.body("x", False, max_tokens=9, **more))
                    self.assertEqual(r.status, 400, (d.path, more, r.body))
                    self.assertIn("/tools/0/function/parameters/properties/city/not", r.error()["message"])
                text, calls, end = d.ask(s, d.body("Turn the light on.", False, max_tokens=400, **tools(None, [PARAMETERS])))
                self.assertIn(end, ("tool_calls", "length"))
                self.assertTrue(end == "length" or calls[0][0] == "weather" or good_call(*calls[0]), calls)


class Several(lib.Case):
    def test_calls_in_a_row(self):
        """Asked for explicitly, a demand for calls may be met with several; a choice of some tools keeps to them."""
        with Server(MINI) as s:
            for stream in (False, True):
                for parallel in (True, False):  # the model, which would end, may not: as many calls as are allowed
                    d = Chat()
                    text, calls, end = d.ask(s, d.body("What will the weather be?", False, max_tokens=800, temperature=0,
                                                       parallel_tool_calls=parallel, logit_bias={"24": -100, "2": -100},
                                                       **d.tools(None)), stream)
                    self.assertTrue(all(good_call(*c) for c in calls[:-1]), calls)
                    self.assertTrue(end == "length" or len(calls) == (8 if parallel else 1), calls)
            for d, more in ((Responses(), {"parallel_tool_calls": True}),
                            (Messages(), {"tool_choice": {"type": "any", "disable_parallel_tool_use": False}})):
                text, calls, end = d.ask(s, d.body("What will the weather be in Paris and in Rome?", False, max_tokens=500,
                                                   **d.tools(None) | more))
                self.assertTrue(end == "length" or (1 <= len(calls) <= 8 and all(good_call(*c) for c in calls)), calls)
            for d in (Chat(), Responses()):
                name = {"type": "function", "name": "light"}
                only = {"type": "allowed_tools", "mode": "required", "tools": [name]}
                if isinstance(d, Chat):
                    only = {"type": "allowed_tools", "allowed_tools": {
                        "mode": "required", "tools": [{"type": "function", "function": {"name": "light"}}]}}
                for stream in (False, True):
                    text, calls, end = d.ask(s, d.body("What will the weather be?", False, max_tokens=500,
                                                       **d.tools(None) | {"tool_choice": only}), stream)
                    self.assertTrue(end == "length" or [c[0] for c in calls] == ["light"], calls)


class Forced(lib.Case):
    """fast_forward: tokens without a choice are evaluated together."""

    def ask(self, server, schema, forced, seed=0, thinking=False, **more):
        options = {"fast_forward": forced, "whitespace": "compact" if seed % 2 else "natural"}
        d = server.post("/lagoon/v1/generate", chat(
            "Go.", thinking=thinking, max_tokens=200, sampling={"seed": seed, "temperature": seed / 4}, **more,
            format={"type": "json_schema", "schema": schema, "options": options})).json()
        return d["text"], d["finish"], d["usage"]["output_tokens"]

    def test_a_model_that_writes_as_the_tokenizer_does(self):
        """Whose text is cut as the tokenizer cuts it gets the same answer, token by token."""
        texts = {'{"kind": ["some", 42]}': {
            "type": "object", "required": ["kind"], "additionalProperties": False, "properties": {"kind": {
                "type": "array", "prefixItems": [{"enum": ["some", "none"]}, {"type": "integer"}], "items": False,
                "minItems": 2}}},
            '{"identification":true}': {"type": "object", "properties": {"identification": {"type": "boolean"}},
                                        "required": ["identification"], "additionalProperties": False}}
        for i, (text, schema) in enumerate(texts.items()):
            ids = json.loads(lib.run("tokenize", "-m", MINI, "--json", stdin=text.encode()).stdout)
            self.assertEqual(len(set(ids)), len(ids))
            path = os.path.join(lib.PLACE, f"canonical-{i}.gguf")
            scripted.write(path, lib.THOUGHT, ids, base=MINI)
            with Server(path) as s:
                for thinking in (False, True):
                    free = self.ask(s, schema, False, thinking=thinking)
                    self.assertEqual(free[0], text)
                    self.assertEqual(self.ask(s, schema, True, thinking=thinking), free)

    def test_drafts_change_nothing(self):
        answers = []
        cases = [c[1] for c in CASES if isinstance(c[1], dict)]
        for words in ((), ("--no-draft",)):
            with Server(MINI, *words) as s:
                answers.append([self.ask(s, cases[i % len(cases)], i % 3 != 0, seed=i) for i in range(15)])
        self.assertEqual(*answers)


class Rejecting(lib.Case):
    def test_forced_tools_reject(self):
        with Server(MINI, "--forced-tools", "reject") as s:
            for d in DIALECTS:
                r = s.post(d.path, d.body("x", False, max_tokens=9, **d.tools("light")))
                self.assertEqual(r.status, 400, r.body)


if __name__ == "__main__":
    lib.main()
