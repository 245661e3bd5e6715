#!/usr/bin/env python3
"""`lagoon generate`: what goes to stdout and what does not, exit statuses, interruption, odd prompts."""
import json
import os
import re
import resource
import signal
import subprocess
import time
import unittest

import lib
from lib import ANSWER, STORY, THOUGHT, Case, Terminal, model, run


class Output(Case):
    def test_pipe_holds_the_answer_only(self):
        r = run("generate", "-m", model(), "-p", "hi")
        self.assertEqual((r.returncode, r.stdout.decode(), r.stderr.decode()), (0, ANSWER, ""))

    def test_json(self):
        r = run("generate", "-m", model(), "-p", "hi", "--json", "--seed", "7")
        out = json.loads(r.stdout)
        self.assertEqual(r.returncode, 0)
        self.assertEqual((out["content"], out["reasoning"], out["finish"], out["seed"]), (ANSWER, THOUGHT, "stop", 7))
        self.assertEqual(r.stdout.count(b"\n"), 1)
        # chain of tokens, the closing ones included
        self.assertGreater(out["output_tokens"], out["think_tokens"])
        self.assertGreater(out["think_tokens"], 0)

    def test_no_think(self):
        out = json.loads(run("generate", "-m", model(), "-p", "hi", "--json", "--no-think").stdout)
        self.assertEqual((out["content"], out["reasoning"], out["think_tokens"]), (ANSWER, None, 0))

    def test_small_limit_turns_thinking_off_unless_asked(self):
        quiet = json.loads(run("generate", "-m", model(), "-p", "hi", "--json", "-n", "255").stdout)
        asked = json.loads(run("generate", "-m", model(), "-p", "hi", "--json", "-n", "255", "--think").stdout)
        self.assertIsNone(quiet["reasoning"])
        self.assertEqual(asked["reasoning"], THOUGHT)

    def test_limit_and_stop(self):
        out = json.loads(run("generate", "-m", model("loop"), "-p", "hi", "--json", "-n", "300").stdout)
        self.assertEqual((out["finish"], out["output_tokens"]), ("length", 300))
        out = json.loads(run("generate", "-m", model("loop"), "-p", "hi", "--json", "--stop", "told").stdout)
        self.assertEqual((out["content"], out["finish"]), (STORY[:STORY.index("told")], "stop"))

    def test_stats_on_stderr(self):
        r = run("generate", "-m", model(), "-p", "hi", "--stats")
        self.assertEqual(r.stdout.decode(), ANSWER)
        self.assertEqual(r.stderr.count(b"\n"), 1)
        self.assertIn(b"tok/s", r.stderr)

    def test_terminal_shows_thinking_dimmed_and_marks_markdown(self):
        t = Terminal("generate", "-m", model(), "-p", "hi")
        self.assertEqual(t.wait(), 0)
        text = t.seen.decode()
        self.assertIn("\033[2mthinking\r\n" + THOUGHT.replace("\n", "\r\n"), text)
        self.assertIn("\033[1m# Title\033[0m", text)
        self.assertIn("\033[36m`code`\033[0m", text)

    def test_no_color_marks_thinking_with_bars(self):
        for more, env in (((), {"NO_COLOR": "1"}), (("--color", "never"), {}), ((), {"TERM": "dumb"})):
            t = Terminal("generate", "-m", model(), "-p", "hi", *more, env=env)
            self.assertEqual(t.wait(), 0)
            text = t.seen.decode()
            self.assertIn("| Plan: look at the file.\r\n| Then answer.\r\n", text)
            self.assertNotIn("\033[2m", text)
            self.assertNotIn("\033[3", text)
        self.assertNotIn("\033", text)  # the dumb one gets none at all

    def test_control_characters_are_shown_on_a_terminal_and_kept_in_a_pipe(self):
        t = Terminal("generate", "-m", model("wild"), "-p", "hi")
        self.assertEqual(t.wait(), 0)
        self.assertIn("red^[[31m bell^G return^M csi^[[1m é漢.", t.seen.decode())
        r = run("generate", "-m", model("wild"), "-p", "hi")
        self.assertEqual(r.stdout.decode(), "red\x1b[31m bell\x07 return\r csi\u009b1m é漢.")

    def test_color_always_does_not_reach_a_pipe(self):
        r = run("generate", "-m", model(), "-p", "hi", "--color", "always")
        self.assertEqual(r.stdout.decode(), ANSWER)


class Prompt(Case):
    def tokens(self, *words, stdin=b""):
        return json.loads(run("generate", "-m", model(), "--json", "-n", "1", *words, stdin=stdin).stdout)["prompt_tokens"]

    def test_raw_puts_bos_in_front_once(self):
        self.assertEqual(self.tokens("--raw", "-p", "ab"), 3)
        self.assertEqual(self.tokens("--raw", "-p", "〈|EOS|〉ab"), 3)
        self.assertEqual(self.tokens("--raw", "-p", ""), 1)

    def test_file_and_stdin(self):
        path = os.path.join(lib.PLACE, "prompt.txt")
        with open(path, "wb") as f:
            f.write(b"one\ntwo\n")
        self.assertEqual(self.tokens("--raw", "-f", path), 9)
        self.assertEqual(self.tokens("--raw", "-f", "-", stdin=b"one\ntwo\n"), 9)
        self.assertEqual(self.tokens("--raw", "-", stdin=b"one\ntwo\n"), 9)

    def test_bytes_that_are_not_utf8_are_tokens_like_others(self):
        bad = b"a\xff\xfe\xc3(\x00b"
        self.assertEqual(self.tokens("--raw", "-f", "-", stdin=bad), 1 + len(bad))
        r = subprocess.run([lib.PROGRAM.encode(), b"generate", b"-m", model().encode(), b"-p", b"\xff\xfe"], env=lib.ENV,
                           capture_output=True)
        self.assertEqual((r.returncode, r.stdout.decode()), (0, ANSWER))

    def test_system_replaces_the_models_own(self):
        self.assertLess(self.tokens("-p", "hi", "--system", "x"), self.tokens("-p", "hi"))

    def test_longer_than_the_context(self):
        r = run("generate", "-m", model(), "-c", "64", "-p", "word " * 100)
        self.one_line(r, 1, "the context holds 64", "--ctx")
        self.assertEqual(r.stdout, b"")

    def test_missing_or_double(self):
        self.one_line(run("generate", "-m", model()), 2, "-p TEXT", "-f FILE")
        self.one_line(run("generate", "-m", model(), "-p", "a", "-f", "b"), 2, "one of")
        self.one_line(run("generate", "-m", model(), "-p", "a", "-"), 2, "one of")
        self.one_line(run("generate", "-m", model(), "hi"), 2, "unexpected word 'hi'", "-p TEXT")
        self.one_line(run("generate", "-m", model(), "-f", lib.PLACE), 1, lib.PLACE, "directory")
        self.one_line(run("generate", "-m", model(), "-f", lib.PLACE + "/none"), 1, "none")
        self.one_line(run("generate", "-m", model(), "-p", "a", "--raw", "--system", "b"), 2, "--system")


class Ends(Case):
    def test_closed_reader_ends_quietly(self):
        p = subprocess.Popen([lib.PROGRAM, "generate", "-m", model("loop"), "-p", "hi", "--no-think"], env=lib.ENV,
                             stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.assertEqual(p.stdout.read(5), STORY[:5].encode())
        p.stdout.close()
        self.assertEqual(p.wait(timeout=lib.PATIENCE), 0)
        self.assertEqual(lib.told(p.stderr.read()), b"")
        p.stderr.close()

    def test_reader_that_left_before_the_answer(self):
        long = os.path.join(lib.PLACE, "long-prompt.txt")
        with open(long, "w") as f:
            f.write("many words " * 500)
        for words, most in ((["-p", "hi", "--json"], 99), (["-f", long], 0)):
            read_end, write_end = os.pipe()
            os.close(read_end)
            r = run("generate", "-m", model("loop"), "--no-think", "--stats", "--no-draft", *words, stdout=write_end)
            os.close(write_end)
            said = r.stderr.decode()
            self.assertEqual((r.returncode, said.count("\n")), (0, 1), said)
            self.assertLessEqual(int(re.search(r"answer ([\d,]+) tokens", said)[1].replace(",", "")), most, said)

    def test_closed_stdout_ends_quietly(self):
        r = run("generate", "-m", model("loop"), "-p", "hi", "--no-think", preexec_fn=lambda: os.close(1))
        self.assertEqual((r.returncode, r.stderr), (0, b""))

    def test_interrupt(self):
        p = subprocess.Popen([lib.PROGRAM, "generate", "-m", model("loop"), "-p", "hi", "--no-think"], env=lib.ENV,
                             stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        p.stdout.read(5)
        p.send_signal(signal.SIGINT)
        rest, said = p.communicate(timeout=lib.PATIENCE)
        self.assertEqual((p.returncode, lib.told(said)), (130, b""))

    def test_interrupt_in_a_long_prompt(self):
        path = os.path.join(lib.PLACE, "long.txt")
        with open(path, "w") as f:
            f.write("many words " * 2700)
        p = subprocess.Popen([lib.PROGRAM, "generate", "-m", model("loop"), "-f", path], env=lib.ENV,
                             stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        time.sleep(0.7)
        p.send_signal(signal.SIGINT)
        out, said = p.communicate(timeout=lib.PATIENCE)
        # while loading the signal itself ends the process, which a shell calls 130
        self.assertIn((p.returncode, lib.told(said)), ((130, b""), (-signal.SIGINT, b"")), out[:200])

    def test_interrupt_on_a_terminal(self):
        t = Terminal("generate", "-m", model("loop"), "-p", "hi")
        t.expect("story")
        t.send("\x03")
        self.assertEqual(t.wait(), 130)
        self.assertTrue(t.seen.endswith(b"\n"))

    @unittest.skipUnless(os.path.exists("/dev/full"), "no /dev/full here")
    def test_full_disk(self):
        with open("/dev/full", "wb") as full:
            r = run("generate", "-m", model(), "-p", "hi", stdout=full)
        self.one_line(r, 1, "stdout", "No space left")


class Constrained(Case):
    def ask(self, *words, schema=None):
        if schema is not None:
            path = os.path.join(lib.PLACE, "schema.json")
            with open(path, "w") as f:
                f.write(schema)
            words = ("--json-schema", path, *words)
        return run("generate", "-m", model(), "-p", "hi", "--json", *words)

    def test_the_answer_has_the_shape_and_the_thinking_is_as_ever(self):
        out = json.loads(self.ask(schema='{"enum": ["red", "green"]}').stdout)
        self.assertIn(json.loads(out["content"]), ("red", "green"))
        self.assertEqual((out["reasoning"], out["finish"]), (THOUGHT, "stop"))
        out = json.loads(self.ask("--no-think", "--regex", "[0-9]{3}-[a-c]{2}").stdout)
        self.assertRegex(out["content"], r"\A[0-9]{3}-[a-c]{2}\Z")
        out = json.loads(self.ask("--json-object", "-n", "300").stdout)
        self.assertTrue(out["content"].startswith("{"))

    def test_refusals_name_the_place(self):
        bad = '{"properties": {"a/b": {"not": {}}}}'
        self.one_line(self.ask(schema=bad), 2, "schema.json: schema at /properties/a~1b/not: keyword \"not\"")
        self.one_line(self.ask(schema="{"), 2, "schema.json")
        self.one_line(self.ask("--json-schema", "/nowhere/s.json"), 1, "/nowhere/s.json")
        self.one_line(self.ask("--json-schema", "-"), 2, "standard input: schema at the root")
        self.one_line(self.ask("--regex", "(?=a)"), 2, "--regex", "lookaround")
        self.one_line(self.ask("--regex", "a", "--json-object"), 2, "exclude each other")


class Warned(Case):
    """Work goes on, and one line on stderr says what is not as it seems."""

    def test_bans_that_do_less_than_they_say(self):
        r = run("generate", "-m", model(), "-p", "hi", "--ban-string", "</think>")
        self.assertEqual(r.stdout.decode(), ANSWER)
        self.one_line(r, 0, "--ban-string '</think>': 1 control token holds it and stays allowed")
        self.one_line(run("generate", "-m", model(), "-p", "hi", "--ban-string", "no such token"), 0, "nothing is banned")
        r = run("generate", "-m", model(), "-p", "hi", "--ban-string", "no such token", "-q")
        self.assertEqual((r.returncode, r.stderr), (0, b""))
        self.assertEqual(run("generate", "-m", model(), "-p", "hi", "--no-think", "--ban-string", "#").stderr, b"")

    def test_unknown_template(self):
        with open(model(), "rb") as f:
            whole = f.read()
        path = os.path.join(lib.PLACE, "other-template.gguf")
        with open(path, "wb") as f:
            f.write(whole.replace(b"laguna_glm_thinking_v8", b"some_other_template_v1"))
        self.one_line(run("generate", "-m", path, "-p", "hi"), 0, "other-template.gguf", "chat template", "s21 is used")
        self.one_line(run("chat", "-m", path, stdin=b"hi\n"), 0, "chat template", "s21 is used")
        for words in (["--chat-template", "s21"], ["--quiet"], ["--raw"]):
            self.assertEqual(run("generate", "-m", path, "-p", "hi", "-n", "4", *words).stderr, b"")


@unittest.skipUnless(os.path.exists("/proc/self/statm"), "no address space limit is planned for here")
class Memory(Case):
    def test_address_space_limit(self):
        """`ulimit -v`: the cache takes its share of what there is, and what cannot fit is refused with the sum."""
        if lib.sanitized():
            self.skipTest("a sanitizer takes terabytes of address space")

        def ask(mib, *words):
            def limit():
                resource.setrlimit(resource.RLIMIT_AS, (mib << 20, mib << 20))
            return run("generate", "-m", model(), "-p", "hi", "-c", "4096", *words, preexec_fn=limit)

        r = ask(1024)
        self.assertEqual((r.returncode, r.stdout.decode(), r.stderr), (0, ANSWER, b""))
        self.one_line(ask(256, "-c", "1048576", "--kv-type", "f32", "-q"), 1, "needs", "available", "use --ctx")


class Refused(Case):
    def test_ranges(self):
        for words in (["--temp", "9"], ["--temp", "nan"], ["--top-p", "2"], ["-n", "x"], ["--seed", "-5"],
                      ["--min-think", "-1"], ["--kv-type", "q3"], ["--isa", "mmx"], ["--device", "abacus"], ["-n"],
                      ["--min-think", "9", "--max-think", "5"], ["--min-think", "9", "--max-think", "0"]):
            self.one_line(run("generate", "-m", model(), "-p", "hi", *words), 2)
        self.one_line(run("generate", "-m", model(), "-p", "hi", "--no-think", "--min-think", "9"), 2, "contradict")
        self.assertEqual(run("generate", "-m", model(), "-p", "hi", "-n", "4", "--no-think", "--max-think", "9").returncode, 0)


if __name__ == "__main__":
    lib.main()
