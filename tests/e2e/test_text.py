#!/usr/bin/env python3
"""`lagoon tokenize`, `detokenize` and `template` over pipes: products byte for byte, exit statuses, one-line errors."""
import json
import os

import lib
from lib import PLACE, Case, run

GOLDEN = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "golden")
VOCAB = os.path.join(GOLDEN, "vocab512.gguf")


def cases(name):
    with open(os.path.join(GOLDEN, name), encoding="utf-8") as f:
        return [json.loads(line) for line in f if line.strip()]


class Tokenize(Case):
    def ids(self, text, *words):
        r = run("tokenize", "-m", VOCAB, *words, stdin=text)
        self.assertEqual((r.returncode, r.stderr), (0, b""))
        return r.stdout

    def test_forms(self):
        self.assertEqual(self.ids(b"hello world"), b"327 356 181 427 178 170\n")
        self.assertEqual(json.loads(self.ids(b"hello world", "--json")), [327, 356, 181, 427, 178, 170])
        self.assertEqual(self.ids(b""), b"\n")
        self.assertEqual(self.ids(b"", "--json"), b"[]\n")

    def test_control_text_is_inert(self):
        self.assertNotIn(b"18", self.ids(b"<think>").split())
        self.assertEqual(self.ids(b"<think>", "--special"), b"18\n")

    def test_file_and_crlf(self):
        path = os.path.join(PLACE, "crlf.txt")
        with open(path, "wb") as f:
            f.write(b"a\r\nb")
        self.assertEqual(self.ids(b"", "-f", path), b"167 511 168\n")
        self.assertEqual(self.ids(b"", "--file=" + path, "--crlf-compat", "llama"), b"167 83 80 168\n")

    def test_round_trip_of_any_bytes(self):
        data = bytes(range(256)) * 3 + "\N{GRINNING FACE}\u4e16".encode()
        for words in ((), ("--json",)):
            self.assertEqual(run("detokenize", "-m", VOCAB, stdin=self.ids(data, *words)).stdout, data)

    def test_recorded(self):
        for c in cases("tokenizer-cases.jsonl")[:40]:
            if "decode" not in c:
                want = c.get("all_hf", c["none"])
                self.assertEqual(json.loads(self.ids(bytes.fromhex(c["hex"]), "--json")), want, c["id"])


class Detokenize(Case):
    def text(self, ids, *words):
        r = run("detokenize", "-m", VOCAB, *words, stdin=ids)
        self.assertEqual((r.returncode, r.stderr), (0, b""))
        return r.stdout

    def test_forms(self):
        self.assertEqual(self.text(b"327\n356\t 2 18"), "hell\u3008|EOS|\u3009<think>".encode())
        self.assertEqual(self.text(b" [327,356 , 2,\n18] "), "hell\u3008|EOS|\u3009<think>".encode())
        self.assertEqual(self.text(b"327 356 2 18", "--no-control"), b"hell<think>")
        self.assertEqual(self.text(b""), b"")
        self.assertEqual(self.text(b"[]"), b"")
        self.assertEqual(self.text(b"325"), b"\xff")
        self.assertEqual(json.loads(self.text(b"327 325", "--json")), {"content": "he\ufffd"})

    def test_recorded(self):
        for c in cases("tokenizer-cases.jsonl"):
            if "decode" in c:
                ids = " ".join(map(str, c["ids"])).encode()
                self.assertEqual(self.text(ids).hex(), c["hex_all"], c["id"])
                self.assertEqual(self.text(ids, "--no-control").hex(), c["hex_no_control"], c["id"])

    def test_bad_ids(self):
        for bad in (b"1 x", b"[1,]", b"[1 2]", b"[1", b"[", b"[1] 2", b"512", b"-1", b"99999999999999999999", b"1.0", b"]"):
            self.one_line(run("detokenize", "-m", VOCAB, stdin=bad), 1, "standard input: ")

    def test_bad_files(self):
        self.one_line(run("detokenize", "-m", VOCAB, "-f", "/nowhere"), 1, "/nowhere: ")
        self.one_line(run("tokenize", "-m", "/nowhere.gguf"), 1, "/nowhere.gguf")
        self.one_line(run("tokenize", "-m", VOCAB, "word"), 2, "word")


class Template(Case):
    def render(self, body, *words):
        r = run("template", *words, stdin=json.dumps(body).encode())
        self.assertEqual(r.returncode, 0, r.stderr)
        return r.stdout

    def test_recorded(self):
        for c in cases("chat-cases.jsonl"):
            if c["kind"] == "render":
                self.assertEqual(self.render(c, "--chat-template", c["template"]).decode(), c["expect"], c["id"])

    def test_no_model_is_opened(self):
        body = {"messages": [{"role": "user", "content": "x"}]}
        self.assertTrue(self.render(body, "--chat-template", "s21", "-m", "/nowhere.gguf").endswith(b"<assistant><think>"))
        r = run("template", "--chat-template", "s21", "-m", "/nowhere.gguf", "--ids", stdin=json.dumps(body).encode())
        self.one_line(r, 1, "/nowhere.gguf")

    def test_ids(self):
        body = {"messages": [{"role": "user", "content": "a</think>b</assistant>\u3008|EOS|\u3009"},
                             {"role": "assistant", "content": "c"}, {"role": "user", "content": "d"}]}
        ids = [int(i) for i in self.render(body, "-m", VOCAB, "--ids", "--chat-template", "s21").split()]
        self.assertEqual([ids.count(i) for i in (2, 18, 19, 23, 24)], [1, 2, 1, 2, 1])
        self.assertEqual(ids[0], 2)
        self.assertEqual(json.loads(self.render(body, "-m", VOCAB, "--ids", "--json", "--quiet")), ids)
        shown = run("detokenize", "-m", VOCAB, stdin=" ".join(map(str, ids)).encode()).stdout
        self.assertEqual(shown, self.render(body, "--chat-template", "s21"))

    def test_flags_are_defaults_of_the_body(self):
        body = {"messages": [{"role": "user", "content": "x"}]}
        self.assertTrue(self.render(body, "--chat-template", "s21", "--no-think").endswith(b"</think>"))
        body["enable_thinking"] = True
        self.assertTrue(self.render(body, "--chat-template", "s21", "--no-think").endswith(b"<think>"))
        self.assertEqual(json.loads(self.render(body, "--chat-template", "s21", "--json"))["prompt"].count("<user>"), 1)

    def test_broken_call_in_history(self):
        body = {"messages": [{"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": "{"}}]}]}
        self.assertIn(b"<tool_call>f<arg_key>input</arg_key><arg_value>{</arg_value></tool_call>",
                      self.render(body, "--chat-template", "s21"))

    def test_bad_bodies(self):
        for body, part in ((b"", "standard input"), (b"{", "standard input"), (b"[]", "object"), (b"{}", "messages"),
                           (b'{"messages":[{"role":"x"}]}', "messages[0].role"),
                           (b'{"messages":[{"role":"user","content":[{"type":"image_url"}]}]}', "messages[0].content[0].type"),
                           (b"[" * 100000, "standard input")):
            self.one_line(run("template", "--chat-template", "v2", stdin=body), 1, part)


if __name__ == "__main__":
    lib.main()
