"""Every chat-like API alike: how it is asked for a shape or a call, and what it answered."""
import json

from web import chat, frames

PARAMETERS = {"type": "object", "properties": {"city": {"type": "string", "minLength": 1, "maxLength": 20},
                                               "days": {"type": "integer", "minimum": 1, "maximum": 7},
                                               "unit": {"enum": ["c", "f"]}},
              "required": ["city", "days"]}
OTHER = {"type": "object", "properties": {"on": {"type": "boolean"}}, "required": ["on"]}


def good_call(name, arguments):
    a = arguments if isinstance(arguments, dict) else json.loads(arguments)
    if name == "light":
        return set(a) == {"on"} and isinstance(a["on"], bool)
    return (name == "weather" and set(a) <= {"city", "days", "unit"} and 1 <= len(a["city"]) <= 20
            and a["days"] in range(1, 8) and a.get("unit", "c") in ("c", "f"))


class Dialect:
    """How one API is asked and what it answered: text, (name, arguments) of each call, and why it ended."""

    def choose(self, word, strict=False):
        """Tools that may be called or not: tool_choice auto, none, required."""
        more = self.tools(None) | {"tool_choice": self.choice(word)}
        for t in more["tools"] if strict else ():
            t.get("function", t)["strict"] = True
        return more

    def choice(self, word):
        return word

    def ask(self, server, body, stream=False):
        """The answer to a request that must be taken: text, calls, why it ended."""
        with server.client() as c:
            c.request("POST", self.path, body | ({"stream": True} if stream else {}))
            r = c.response()
        if r.status != 200:
            raise AssertionError(f"{self.path}: {r.status} {r.body}")
        return self.read_stream(r) if stream else self.read(r)

    def greedy(self):
        return {"temperature": 0}

    def system(self, body, text):
        body["messages"].insert(0, {"role": "system", "content": text})

    def stream_of(self, body):
        return [(e, json.loads(d)) for e, d in frames(body) if e is not None and d != "[DONE]"]


class Chat(Dialect):
    path, param = "/v1/chat/completions", "response_format"

    def body(self, question, thinking, **more):
        return chat(question, reasoning_effort="high" if thinking else "none", thinking_budget=60, **more)

    def format(self, schema):
        return {"response_format": {"type": "json_object"} if schema is None else
                {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}}

    def tools(self, choice):
        return {"tools": [{"type": "function", "function": {"name": n, "parameters": p}}
                          for n, p in (("weather", PARAMETERS), ("light", OTHER))],
                "tool_choice": {"type": "function", "function": {"name": choice}} if choice else "required"}

    def read(self, r):
        c = r.json()["choices"][0]
        calls = [(t["function"]["name"], t["function"]["arguments"]) for t in c["message"].get("tool_calls", [])]
        return c["message"]["content"], calls, c["finish_reason"]

    def read_stream(self, r):
        text, calls, end = "", {}, None
        for _, d in self.stream_of(r.body):
            for c in d["choices"]:
                text += c["delta"].get("content") or ""
                for t in c["delta"].get("tool_calls", []):
                    call = calls.setdefault(t["index"], ["", ""])
                    call[0] += t["function"].get("name") or ""
                    call[1] += t["function"].get("arguments") or ""
                end = c["finish_reason"] or end
        return text, [tuple(c) for c in calls.values()], end


class Messages(Dialect):
    path, param = "/v1/messages", "output_config.format"

    def system(self, body, text):
        body["system"] = text

    def body(self, question, thinking, **more):
        more.pop("seed", None)
        return chat(question, thinking={"type": "enabled", "budget_tokens": 60} if thinking else {"type": "disabled"}, **more)

    def format(self, schema):
        return {"output_config": {"format": {"type": "json_schema", "schema": schema if schema is not None else
                                             {"type": "object"}}}}

    def tools(self, choice):
        return {"tools": [{"name": n, "input_schema": p} for n, p in (("weather", PARAMETERS), ("light", OTHER))],
                "tool_choice": {"type": "tool", "name": choice} if choice else {"type": "any"}}

    def choice(self, word):
        return {"type": "any" if word == "required" else word}

    @staticmethod
    def end(word):
        return {"end_turn": "stop", "max_tokens": "length", "tool_use": "tool_calls"}[word]

    def read(self, r):
        blocks = r.json()["content"]
        return ("".join(b["text"] for b in blocks if b["type"] == "text"),
                [(b["name"], b["input"]) for b in blocks if b["type"] == "tool_use"], self.end(r.json()["stop_reason"]))

    def read_stream(self, r):
        text, calls, end = "", [], None
        for event, d in self.stream_of(r.body):
            if event == "content_block_start" and d["content_block"]["type"] == "tool_use":
                calls.append([d["content_block"]["name"], ""])
            elif event == "content_block_delta" and d["delta"]["type"] == "text_delta":
                text += d["delta"]["text"]
            elif event == "content_block_delta" and d["delta"]["type"] == "input_json_delta":
                calls[-1][1] += d["delta"]["partial_json"]
            elif event == "message_delta":
                end = self.end(d["delta"]["stop_reason"])
        return text, [tuple(c) for c in calls], end


class Responses(Dialect):
    path, param = "/v1/responses", "text.format"

    def system(self, body, text):
        body["instructions"] = text

    def body(self, question, thinking, **more):
        more["max_output_tokens"] = more.pop("max_tokens")
        return {"input": question, "reasoning": {"effort": "high" if thinking else "none"}, "thinking_budget": 60, **more}

    def format(self, schema):
        return {"text": {"format": {"type": "json_object"} if schema is None else
                         {"type": "json_schema", "name": "x", "schema": schema}}}

    def tools(self, choice):
        return {"tools": [{"type": "function", "name": n, "parameters": p}
                          for n, p in (("weather", PARAMETERS), ("light", OTHER))],
                "tool_choice": {"type": "function", "name": choice} if choice else "required"}

    def answer(self, d):
        text = "".join(c["text"] for o in d["output"] if o["type"] == "message" for c in o["content"])
        calls = [(o["name"], o["arguments"]) for o in d["output"] if o["type"] == "function_call"]
        return text, calls, "length" if d["status"] == "incomplete" else "tool_calls" if calls else "stop"

    def read(self, r):
        return self.answer(r.json())

    def read_stream(self, r):
        events = self.stream_of(r.body)
        text = "".join(d["delta"] for e, d in events if e == "response.output_text.delta")
        final = self.answer(events[-1][1]["response"])
        assert text == final[0], (text, final)
        return final


class Native(Dialect):
    path, param = "/lagoon/v1/generate", "format"

    def greedy(self):
        return {"sampling": {"temperature": 0}}

    def body(self, question, thinking, **more):
        seed = more.pop("seed", None)
        return chat(question, thinking=thinking, **({"max_thinking_tokens": 60} if thinking else {}),
                    **({} if seed is None else {"sampling": {"seed": seed}}), **more)

    def format(self, schema):
        return {"format": {"type": "json_object"} if schema is None else {"type": "json_schema", "schema": schema}}

    def tools(self, choice):
        return Chat().tools(choice) | {"tool_choice": {"name": choice} if choice else "required"}

    @staticmethod
    def end(word):
        return {"schema": "stop"}.get(word, word)

    def read(self, r):
        d = r.json()
        return d["text"], [(t["name"], t["arguments"]) for t in d["tool_calls"]], self.end(d["finish"])

    def read_stream(self, r):
        text, calls, end = "", [], None
        for event, d in self.stream_of(r.body):
            if event == "text":
                text += d["delta"]
            elif event == "tool_start":
                calls.append([d["name"], ""])
            elif event == "tool_args":
                calls[-1][1] += d["delta"]
            elif event == "end":
                end = self.end(d["finish"])
        return text, [tuple(c) for c in calls], end


DIALECTS = [Chat(), Messages(), Responses(), Native()]
