#!/usr/bin/env python3
"""`lagoon chat`: pipes, the line editor on a terminal, commands, interruption, files."""
import json
import os
import re
import signal
import stat
import subprocess
import time

import lib
from lib import ANSWER, STORY, THOUGHT, Case, Terminal, model, run

STATE = os.path.join(lib.PLACE, "state")
ENV = {"XDG_STATE_HOME": STATE, "NO_COLOR": "1"}
PROMPT = "\x1b[?2004h> "  # the line editor listens; what is drawn again while it edits does not begin so


def chat(text, *words, name="plain"):
    return run("chat", "-m", model(name), *words, stdin=text.encode() if isinstance(text, str) else text, env=ENV)


class Pipe(Case):
    def test_one_answer_a_line_and_nothing_else(self):
        r = chat("a\nb\n")
        self.assertEqual((r.returncode, r.stdout.decode(), r.stderr), (0, 2 * (ANSWER + "\n"), b""))

    def test_last_line_without_newline_and_empty_lines(self):
        self.assertEqual(chat("a\n\n   \nb").stdout.decode(), 2 * (ANSWER + "\n"))

    def test_json_is_one_object_an_answer(self):
        r = chat("a\n/think off\nb\n", "--json")
        out = [json.loads(line) for line in r.stdout.splitlines()]
        self.assertEqual((r.returncode, r.stderr), (0, b""))
        self.assertEqual([(o["content"], o["reasoning"], o["finish"]) for o in out],
                         [(ANSWER, THOUGHT, "stop"), (ANSWER, None, "stop")])

    def test_closed_reader(self):
        p = subprocess.Popen([lib.PROGRAM, "chat", "-m", model("loop")], env=lib.ENV | ENV, stdin=subprocess.PIPE,
                             stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        p.stdin.write(b"/think off\ngo\n")
        p.stdin.flush()
        self.assertEqual(p.stdout.read(4), STORY[:4].encode())
        p.stdout.close()
        self.assertEqual(p.wait(timeout=lib.PATIENCE), 0)
        self.assertEqual(lib.told(p.stderr.read()), b"")
        p.stdin.close()
        p.stderr.close()

    def test_interrupt(self):
        p = subprocess.Popen([lib.PROGRAM, "chat", "-m", model("loop")], env=lib.ENV | ENV, stdin=subprocess.PIPE,
                             stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        p.stdin.write(b"go\n")
        p.stdin.flush()
        p.stdout.read(4)
        p.send_signal(signal.SIGINT)
        p.communicate(timeout=lib.PATIENCE)
        self.assertEqual(p.returncode, 130)

    def test_unknown_command_sends_nothing(self):
        r = chat("/hlep\n")
        self.assertEqual(r.stdout, b"")
        self.one_line(r, 1, "'/hlep'", "'/help'", "nothing was sent")

    def test_two_slashes_send_one(self):
        r = chat("//usr is a path\n/raw\n")
        self.assertIn("<user>/usr is a path</user>", r.stderr.decode())

    def test_conversation_goes_on(self):
        r = chat("first\nsecond\n/raw\n")
        self.assertIn(f"<user>first</user>\n<assistant><think></think>{ANSWER}</assistant>\n<user>second</user>",
                      r.stderr.decode())

    def test_bytes_that_are_not_utf8(self):
        r = chat(b"a\xff\xc3(\n/raw\n")
        self.assertEqual(r.returncode, 0)
        self.assertIn("<user>a��(</user>", r.stderr.decode())

    def test_undo_retry_reset_system(self):
        r = chat("first\nsecond\n/undo\n/raw\n")
        self.assertNotIn("second", r.stderr.decode())
        r = chat("first\n/retry\n/raw\n")
        self.assertEqual(r.stdout.decode(), 2 * (ANSWER + "\n"))
        self.assertEqual(r.stderr.decode().count("<user>first"), 1)
        r = chat("first\n/system be brief\n/reset\n/raw\n")
        self.assertIn("<system>be brief</system>", r.stderr.decode())
        self.assertNotIn("first", r.stderr.decode())

    def test_continue_after_a_limit(self):
        r = chat("/think off\n/set max_tokens 4\ngo\n/continue\n/raw\n", name="loop")
        self.assertEqual(r.returncode, 0, r.stderr)
        first, second = r.stdout.decode().split("\n")[:2]
        self.assertIn(f"<assistant></think>{first}{second}</assistant>", r.stderr.decode())
        self.assertTrue(STORY.startswith(first))
        self.one_line(chat("/continue\n"), 1, "/continue")

    def test_think(self):
        r = chat("/think off\na\n/raw\n")
        self.assertIn("<assistant></think>", r.stderr.decode())
        self.one_line(chat("/think often\n"), 1, "/think takes")

    def test_set(self):
        r = chat("/set temp 0.25\n/set seed 12\n/set\n")
        self.assertIn("temp        0.25\n", r.stderr.decode())
        self.assertIn("seed        12\n", r.stderr.decode())
        for bad, word in (("temp 9", "temperature"), ("temp", "one number"), ("tmep 1", "'temp'"), ("top_k 1.5", "one number")):
            self.one_line(chat(f"/set {bad}\n"), 1, word)

    def test_bounds_of_thinking_do_not_cross(self):
        r = chat("/set min_think 100\n/set max_think 10\n/set\n")
        self.assertEqual(r.returncode, 1)
        self.assertIn(b"min_think 100 is more than max_think 10", r.stderr)
        self.assertIn(b"max_think   4096", r.stderr)

    def test_system_is_shown_whole(self):
        text = 2000 * "é漢"
        self.assertEqual(chat(f"/system {text}\n/system\n").stderr.decode(), text + "\n")

    def test_system_from_a_file_is_text(self):
        path = os.path.join(lib.PLACE, "system.bin")
        for data in (b"one\0two", b"one\xff"):
            with open(path, "wb") as f:
                f.write(data)
            r = chat(f"/system @{path}\n/system\n")
            self.assertEqual(r.stderr.decode(), f"lagoon: {path}: is not UTF-8 text\n(the model's own)\n")

    def test_read(self):
        path = os.path.join(lib.PLACE, "notes.txt")
        with open(path, "w") as f:
            f.write("one\n``` two\nthree\n")
        r = chat(f"/read {path} {path}:3-3\nwhat is it?\n/raw\n")
        self.assertIn(f"<user>{path}\n````\none\n``` two\nthree\n````\n\n{path}\n```\nthree\n```\n\nwhat is it?</user>",
                      r.stderr.decode())
        with open(path, "wb") as f:
            f.write(b"\x7fELF\0\xff")
        self.one_line(chat(f"/read {path}\n"), 1, path, "not UTF-8 text")
        with open(path, "w") as f:
            f.write("word " * 3000)
        r = run("chat", "-m", model(), "-c", "4096", stdin=f"/read {path}\n".encode(), env=ENV)
        self.assertIn(b"more than a quarter of the context", r.stderr)
        self.assertEqual(r.returncode, 1)

    def test_too_long_for_the_context(self):
        r = run("chat", "-m", model(), "-c", "300", stdin=b"word " * 200 + b"\nhi\n", env=ENV)
        self.assertIn("the context holds 300", r.stderr.decode())
        self.assertEqual((r.returncode, r.stdout.decode()), (1, ANSWER + "\n"))

    def test_stats_and_tokens(self):
        r = chat("a\n/stats\n/tokens\n")
        self.assertIn("tok/s", r.stderr.decode())
        self.assertIn("of 32,768 tokens", r.stderr.decode())


class Files(Case):
    def test_save_load_export(self):
        folder = lib.PLACE
        r = chat(f"/system short\nfirst é\n/save talk\n/list\n/export {folder}/a.json\n/export {folder}/a.jsonl\n"
                 f"/export {folder}/a.md\n")
        self.assertEqual((r.returncode, r.stderr.decode()), (0, "talk\n"))
        saved = os.path.join(STATE, "lagoon", "chats", "talk.jsonl")
        self.assertEqual(stat.S_IMODE(os.stat(saved).st_mode), 0o600)
        with open(saved) as f:
            lines = [json.loads(line) for line in f]
        self.assertEqual(lines, [{"lagoon_chat": 1, "system": "short"}, {"role": "user", "content": "first é"},
                                 {"role": "assistant", "content": ANSWER, "reasoning_content": THOUGHT}])
        with open(f"{folder}/a.json") as f:
            self.assertEqual(json.load(f), [{"role": "system", "content": "short"}] + lines[1:])
        with open(saved) as f, open(f"{folder}/a.jsonl") as g:
            self.assertEqual(f.read(), g.read())
        with open(f"{folder}/a.md") as f:
            self.assertIn(ANSWER, f.read())
        again = chat("/load talk\n/raw\n").stderr.decode()
        self.assertEqual(again, chat("/system short\nfirst é\n/raw\n").stderr.decode())
        self.assertEqual(run("chat", "-m", model(), "--load", "talk", stdin=b"/raw\n", env=ENV).stderr.decode(), again)

    def test_bad_files_leave_the_conversation(self):
        path = os.path.join(lib.PLACE, "bad.jsonl")
        for text, word in (("", "empty"), ("{}\n", "lagoon_chat"), ('{"lagoon_chat": 99}\n', "format 99"),
                           ('{"lagoon_chat": 1}\n{"role": "user"}\n', ":2"), ('{"lagoon_chat": 1}\nnonsense\n', ":2"),
                           ("\x7fELF\0", ":1")):
            with open(path, "w") as f:
                f.write(text)
            r = chat(f"first\n/load {path}\n/raw\n")
            said = r.stderr.decode()
            self.assertEqual(r.returncode, 1)
            self.assertIn(word, said.split("\n")[0])
            self.assertIn("<user>first</user>", said)
        for words in ("/load none", "/load a b", "/save .x", "/save", "/export x.doc", "/export /none/x.md"):
            self.one_line(chat(words + "\n"), 1)


class Screen(Case):
    def start(self, name="plain", *words):
        t = Terminal("chat", "-m", model(name), *words, env=ENV)
        t.expect(PROMPT)
        return t

    def leave(self, t):
        t.send("\x04")
        self.assertEqual(t.wait(), 0)

    def press_thrice(self, t, left):
        """Three Ctrl-C within two seconds leave: `left` comes. Where the program got them over a longer time, it says how to
        leave three times, and they are pressed again."""
        end = time.monotonic() + lib.PATIENCE
        for attempt in range(20):
            time.sleep(2.1 if attempt else 0)  # what was pressed before does not count
            told = t.seen.count(b"Ctrl-D or /quit leaves")
            t.send("\x03\x03\x03")
            while not left() and time.monotonic() < end:
                if t.seen.count(b"Ctrl-D or /quit leaves") == told + 3:
                    break
                t.look()
            else:
                self.assertTrue(left(), t.seen[-800:])
                return
        self.fail("three Ctrl-C did not leave")

    def asked(self, t):
        """What the model was sent last, from /raw."""
        t.send("/raw\r")
        t.expect("/raw\r\n")
        text = t.expect("\r\n" + PROMPT).decode()
        return text.replace("\r\n", "\n").rsplit("<user>", 1)[1].split("</user>")[0]

    def test_typed_message_thinking_and_footer(self):
        t = self.start()
        t.send("hi\r")
        t.expect("thinking\r\n| Plan: look at the file.\r\n| Then answer.\r\nthought ~")
        t.expect("Done.\r\n")
        t.expect(" thinking  ")
        t.expect(PROMPT)
        self.assertEqual(self.asked(t), "hi")
        self.leave(t)

    def test_new_lines_while_typing(self):
        t = self.start()
        for keys in ("one\\", "\r", "two\n", "three\x1b\r"):
            t.send(keys)
            time.sleep(0.15)
        t.send("four\r")
        t.expect("Done.")
        t.expect(PROMPT)
        self.assertEqual(self.asked(t), "one\ntwo\nthree\nfour")
        self.leave(t)

    def test_pasted_lines_never_send(self):
        t = self.start()
        t.send("\x1b[200~one é\r漢 two\r\x1b[201~")
        time.sleep(0.3)
        self.assertNotIn(b"thinking", t.seen)
        t.send("\r")
        t.expect("Done.")
        t.expect(PROMPT)
        self.assertEqual(self.asked(t), "one é\n漢 two\n")
        self.leave(t)

    def test_long_paste_is_one_word_and_arrives_whole(self):
        lines = [f"{i}é漢" if i % 50 == 0 else "" for i in range(5001)]
        t = Terminal("chat", "-m", model(), "-c", "262144", env=ENV)
        t.expect(PROMPT)
        t.send("\x1b[200~" + "\r".join(lines) + "\x1b[201~")
        t.expect("[paste 1: 5,001 lines, ")
        t.send("\x1b[200~x\ry\rz\rw\x1b[201~")
        t.expect("[paste 2: 4 lines, 7 B]")
        t.send("\x7f tail")
        time.sleep(0.2)
        t.send("\r")
        t.expect("Done.")
        t.expect(PROMPT)
        self.assertEqual(self.asked(t), "\n".join(lines) + " tail")
        self.leave(t)

    def test_control_c_at_the_prompt(self):
        t = self.start()
        t.send("junk\x03")
        time.sleep(0.3)
        t.send("\x03")
        t.expect("Ctrl-D or /quit leaves")
        t.send("/quit\r")
        self.assertEqual(t.wait(), 0)
        self.assertNotIn(b"thinking", t.seen)

    def test_three_control_c_leave(self):
        t = self.start()
        self.press_thrice(t, t.ended)
        self.assertEqual(t.wait(), 130)

    def test_control_c_in_an_answer(self):
        t = self.start("loop")
        t.send("hi\r")
        t.expect("story")
        t.send("\x03")
        t.expect("[stopped]")
        t.expect(PROMPT)
        t.send("/set max_tokens 20\r")
        t.expect(PROMPT)
        t.send("/continue\r")
        t.expect("[limit reached]")
        t.expect(PROMPT)
        self.leave(t)

    def test_control_c_before_the_answer_brings_the_message_back(self):
        t = self.start("plain", "-c", "262144", "--isa", "c", "-t", "1")
        t.send("\x1b[200~" + "\r".join(100 * "words " for _ in range(100)) + "\x1b[201~")
        t.expect("[paste 1: 100 lines, 60.1 kB]")
        t.send(" why?")
        t.expect(" why?")
        t.send("\r")
        t.expect("reading the prompt")
        t.send("\x03")
        t.expect("cancelled")
        t.expect("[paste 1: 100 lines, 60.1 kB] why?")
        t.send("\x15/raw\r")
        t.expect("/raw\r\n")
        self.assertNotIn(b"<user>", t.expect("\r\n" + PROMPT))
        self.leave(t)

    def stopped(self, t, text):
        """Stop the answer once `text` came: (tokens of the prompt, share of it that was cached) by what stands behind it."""
        t.expect(text)
        t.send("\x03")
        foot = t.expect(PROMPT).decode()
        made, cached, ctx = re.search(r"([\d,]+) tokens .* cached (\d+) %.* ctx ([\d,]+) of", foot).groups()
        return int(ctx.replace(",", "")) - int(made.replace(",", "")), int(cached) / 100

    def test_stopped_answer_leaves_the_cache_warm(self):
        t = self.start("loop", "--no-think")
        t.send("many words " * 600 + "\r")
        first, cached = self.stopped(t, "story told")
        self.assertEqual(cached, 0)
        self.assertGreater(first, 6600)
        t.send("and?\r")
        # what was answered depends on when it was stopped, and is not cut as the script was; the question before it is
        second, cached = self.stopped(t, "never ending")
        self.assertGreaterEqual((cached + 0.005) * second, 0.95 * first)
        self.leave(t)

    def test_continue_that_is_cancelled_changes_nothing(self):
        path = os.path.join(lib.PLACE, "cut.jsonl")
        lines = [{"lagoon_chat": 1}, {"role": "user", "content": 6000 * "words "},
                 {"role": "assistant", "content": "", "reasoning_content": "Plan", "stopped": "thinking"}]
        with open(path, "w") as f:
            f.writelines(json.dumps(line) + "\n" for line in lines)
        t = self.start("plain", "-c", "262144", "--isa", "c", "-t", "1", "--load", path)
        t.send("/continue\r")
        t.expect("reading the prompt")
        t.send("\x03")
        t.expect("cancelled")
        t.expect(PROMPT)
        t.send(f"/save {path}\r")
        t.expect(PROMPT)
        self.leave(t)
        with open(path) as f:
            self.assertEqual([json.loads(line) for line in f], lines)

    def test_message_that_does_not_fit_is_in_the_editor(self):
        t = self.start("plain", "-c", "256")
        t.send("\x1b[200~" + "\r".join(100 * ["many words"]) + "\x1b[201~")
        t.expect("[paste 1: 100 lines, 1.1 kB]")
        t.send(" why?\r")
        t.expect("nothing is left for an answer")
        t.expect("[paste 1: 100 lines, 1.1 kB] why?")
        t.send("\x15")
        self.leave(t)

    def test_control_c_in_the_pager_is_the_pagers(self):
        pager = os.path.join(lib.PLACE, "pager.sh")
        with open(pager, "w") as f:
            f.write("trap 'echo caught' INT\necho ready\nuntil read line; do :; done\n")
        t = Terminal("chat", "-m", model(), env=ENV | {"PAGER": f"sh {pager}"})
        t.expect(PROMPT)
        t.send("hi\r")
        t.expect("Done.")
        t.expect(PROMPT)
        t.send("/last\r")
        t.expect("ready")
        for _ in range(4):
            t.send("\x03")
            t.expect("caught")
        t.send("\r")
        t.expect(PROMPT)
        t.send("/last\r")
        t.expect("ready")
        t.send("\r")
        t.expect(PROMPT)
        self.leave(t)

    def test_suspended(self):
        script = f"set -m; '{lib.PROGRAM}' chat -m '{model()}'; echo stopped; fg; echo status $?"
        t = Terminal("-c", script, env=ENV, program="/bin/sh")
        t.expect(PROMPT)
        t.send("half\x1a")
        t.expect("\x1b[?2004l")
        t.expect("stopped")
        t.expect("\x1b[?2004h")
        t.expect("half")
        t.send(" whole\r")
        t.expect("Done.")
        t.expect(PROMPT)
        self.assertEqual(self.asked(t), "half whole")
        t.send("/quit\r")
        t.expect("status 0")
        self.assertEqual(t.wait(), 0)

    def test_answers_to_questions_are_no_messages(self):
        path = os.path.join(lib.PLACE, "large.txt")
        with open(path, "w") as f:
            f.write(3000 * "large words\n")
        t = self.start()
        t.send(f"/read {path}\r")
        t.expect("[y/N] ")
        t.send("n\r")
        t.expect(PROMPT)
        t.send("\x1b[A")
        t.expect("/read ")
        t.send("\x15")
        self.leave(t)
        with open(os.path.join(STATE, "lagoon", "chat_history")) as f:
            self.assertNotIn("n", f.read().splitlines())

    def test_completion_and_nearest_word(self):
        t = self.start()
        t.send("/sys\t")
        t.expect("/sys")
        t.expect("tem ")
        t.send("\x15/cpy\r")
        t.expect("did you mean '/copy'")
        t.expect(PROMPT)
        self.leave(t)

    def test_history_file(self):
        t = self.start()
        t.send("remember me\r")
        t.expect("Done.")
        t.expect(PROMPT)
        t.send(" not me\r")
        t.expect("Done.")
        t.expect(PROMPT)
        t.send("\x1b[200~nor this\x1b[201~")
        time.sleep(0.2)
        t.send("\r")
        t.expect("Done.")
        t.expect(PROMPT)
        self.leave(t)
        path = os.path.join(STATE, "lagoon", "chat_history")
        with open(path) as f:
            text = f.read()
        self.assertEqual(stat.S_IMODE(os.stat(path).st_mode), 0o600)
        self.assertIn("remember\\040me", text)
        self.assertNotIn("not\\040me", text)
        self.assertNotIn("nor", text)
        t = self.start()
        t.send("\x1b[A\x1b[A\x1b[A")
        t.expect("remember me")
        t.send("\x15")
        self.leave(t)

    def test_a_closed_window_keeps_the_history(self):
        path = os.path.join(STATE, "lagoon", "chat_history")
        for sig, text in ((signal.SIGHUP, "hung up on"), (signal.SIGTERM, "told to end")):
            t = self.start()
            t.send(text + "\r")
            t.expect("Done.")
            t.expect(PROMPT)
            os.kill(t.pid, sig)
            self.assertEqual(t.wait(), -sig)
            self.assertEqual(t.seen.count(b"\x1b[?2004h"), t.seen.count(b"\x1b[?2004l"))
            with open(path) as f:
                self.assertIn(text.replace(" ", "\\040"), f.read())

    def test_terminal_is_as_before(self):
        """Bracketed paste is off and echo on after every way out."""
        for keys, status in (("\x04", 0), ("three Ctrl-C", 130), ("/quit\r", 0)):
            script = f"stty -a; '{lib.PROGRAM}' chat -m '{model()}'; echo status $?; stty -a"
            t = Terminal("-c", script, env=ENV, program="/bin/sh")
            before = t.expect(PROMPT)
            if status == 130:
                self.press_thrice(t, lambda: b"status 130\r\n" in t.seen)
            else:
                t.send(keys)
            t.expect(f"status {status}\r\n")
            self.assertEqual(t.wait(), 0)
            after = t.seen[t.at:].decode()
            self.assertTrue(before.decode().startswith(after[:60]))
            self.assertEqual(t.seen.count(b"\x1b[?2004h"), t.seen.count(b"\x1b[?2004l"))
            for mode in ("icanon", "echo", "isig", "icrnl"):
                self.assertIn(f" {mode}", after.replace("\r\n", " "))
                self.assertNotIn(f"-{mode} ", after)


if __name__ == "__main__":
    lib.main()
