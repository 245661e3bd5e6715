#!/usr/bin/env python3
"""`lagoon inspect`: what it shows, and damaged files through the built program: one line and status 1, never a crash.

The cases are those that broke other readers: each was a crash, an abort or a wrong answer somewhere. The thousands of
random ones are in fuzz/hostile_gguf.
"""
import json
import os
import resource
import struct
import subprocess
import unittest

import lib
from lib import Case, PLACE, run

SEED = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "fuzz", "corpus", "gguf", "laguna-0")
WIDTH = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}
FORMAT = {4: "<I", 5: "<i", 6: "<f"}


class Image:
    """A valid file as bytes, with the places of its keys and tensors."""

    def __init__(self):
        with open(SEED, "rb") as f:
            self.b = bytearray(f.read())
        self.keys, self.tensors = {}, {}
        n_tensors, n_keys = struct.unpack_from("<QQ", self.b, 8)
        at = 24
        for _ in range(n_keys):
            start = at
            name, at = self.string(at)
            kind, = struct.unpack_from("<I", self.b, at)
            value = at + 4
            at = self.skip(kind, value)
            self.keys[name] = (start, kind, value, at)
        self.keys_end = at
        for _ in range(n_tensors):
            start = at
            name, at = self.string(at)
            dims, = struct.unpack_from("<I", self.b, at)
            shape = at + 4
            at = shape + 8 * dims
            self.tensors[name] = {"entry": start, "dims": shape - 4, "shape": shape, "type": at, "offset": at + 4}
            at += 12
        self.data = (at + 31) // 32 * 32

    def string(self, at):
        n, = struct.unpack_from("<Q", self.b, at)
        return self.b[at + 8:at + 8 + n].decode(), at + 8 + n

    def skip(self, kind, at):
        if kind == 8:
            return self.string(at)[1]
        if kind != 9:
            return at + WIDTH[kind]
        elem, count = struct.unpack_from("<IQ", self.b, at)
        at += 12
        for _ in range(count):
            at = self.skip(elem, at)
        return at

    def put(self, fmt, at, value):
        struct.pack_into(fmt, self.b, at, value)
        return self

    def key(self, name, value):
        _, kind, at, _ = self.keys[name]
        return self.put(FORMAT[kind], at, value)

    def table_end(self):
        return max(t["offset"] for t in self.tensors.values()) + 8

    def splice(self, at, n, new):
        """n bytes of the header become others; the tensor data stays aligned. Places behind `at` are void then."""
        head = bytes(self.b[:at]) + new + bytes(self.b[at + n:self.table_end()])
        self.b = bytearray(head + b"\0" * (-len(head) % 32) + bytes(self.b[self.data:]))
        return self

    def add_key(self, name, kind, raw):
        name = name.encode()
        n, = struct.unpack_from("<Q", self.b, 16)
        self.put("<Q", 16, n + 1)
        return self.splice(24, 0, struct.pack("<Q", len(name)) + name + struct.pack("<I", kind) + raw)

    def rename(self, old, new):
        return self.splice(self.tensors[old]["entry"], 8 + len(old), struct.pack("<Q", len(new)) + new.encode())

    def tensor(self, name, what, fmt, value, more=0):
        return self.put(fmt, self.tensors[name][what] + more, value)

    def save(self, name="damaged.gguf", cut=None):
        path = os.path.join(PLACE, name)
        with open(path, "wb") as f:
            f.write(self.b[:cut])
        return path


def raw_file(data, name="raw.gguf"):
    path = os.path.join(PLACE, name)
    with open(path, "wb") as f:
        f.write(data)
    return path


def inspect(path, *more):
    return run("inspect", path, *more)


class Shown(Case):
    def test_text(self):
        r = inspect(SEED)
        text = r.stdout.decode()
        self.assertEqual((r.returncode, r.stderr), (0, b""))
        for part in ("GGUF version 3", "general.architecture", "laguna.attention.head_count", "3 x i32: 2 3 3",
                     "layers              3: 1 full, 2 with a window of 8", "base 500000, YaRN factor 32 from 2048",
                     "base 10000, not scaled", "Tensors by use", "Q8_0"):
            self.assertIn(part, text)
        self.assertNotIn("blk.1.attn_q.weight", text)
        self.assertNotIn("Plan on", text)

    def test_tensors_and_plan(self):
        text = inspect(SEED, "--tensors", "--plan").stdout.decode()
        self.assertRegex(text, r"blk\.1\.attn_q\.weight +Q8_0 +\[32, 96\] +3264 ")
        self.assertRegex(text, r"Plan on CPU")
        self.assertRegex(text, r"total .* available: fits")

    def test_json(self):
        r = inspect(SEED, "--json", "--tensors", "--plan")
        out = json.loads(r.stdout)
        self.assertEqual(r.returncode, 0)
        self.assertEqual(out["metadata"]["general.architecture"], "laguna")
        self.assertEqual(out["metadata"]["laguna.attention.head_count"], [2, 3, 3])
        self.assertEqual(out["metadata"]["tokenizer.ggml.tokens"]["count"], 512)
        rope = out["configuration"]["rope"]
        self.assertEqual((rope["full"]["factor"], rope["full"]["original_context"]), (32, 2048))
        self.assertAlmostEqual(rope["full"]["attention_factor"], 1.3465736, 6)
        self.assertEqual(rope["window"]["attention_factor"], 1)
        self.assertEqual(out["configuration"]["context"], 4096)
        self.assertEqual([x["kind"] for x in out["configuration"]["layer"]], ["full", "window", "window"])
        self.assertEqual(len(out["tensors"]), out["n_tensors"])
        self.assertEqual(sum(g["bytes"] for g in out["groups"].values()), sum(t["bytes"] for t in out["tensors"]))
        self.assertEqual(sum(g["tensors"] for g in out["types"].values()), out["n_tensors"])
        plan = out["plan"]
        self.assertEqual(plan["total_bytes"], plan["resident_bytes"] + plan["kv_bytes"] + plan["scratch_bytes"])
        self.assertTrue(plan["fits"])

    def test_rope_that_other_writers_got_wrong(self):
        image = Image().add_key("laguna.rope.scaling.yarn_ext_factor", 6, struct.pack("<f", 64))
        r = inspect(image.save())
        self.assertEqual(r.returncode, 0, r.stderr)
        self.assertIn(b"yarn_ext_factor", r.stderr)  # one warning
        self.assertEqual(r.stderr.count(b"\n"), 1)
        self.assertRegex(r.stdout.decode(), r"yarn_ext_factor +64")

    def test_text_of_a_file_cannot_drive_the_terminal(self):
        value = "a\x1b[2Jb\u009bc\nd\u202ee".encode()
        image = Image().add_key("general.description", 8, struct.pack("<Q", len(value)) + value)
        r = inspect(image.save())
        self.assertEqual(r.returncode, 0, r.stderr)
        for bad in (b"\x1b", "\u009b".encode(), "\u202e".encode()):
            self.assertNotIn(bad, r.stdout)
        self.assertIn(rb"a?[2Jb?c\nd?e", r.stdout)


class Damaged(Case):
    def refused(self, path, *parts):
        self.one_line(inspect(path), 1, os.path.basename(path), *parts)
        self.one_line(run("generate", "-m", path, "-p", "hi"), 1, os.path.basename(path), *parts)

    def test_empty_key(self):
        data = b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + struct.pack("<Q", 0) + struct.pack("<I", 0) + b"\0"
        self.assertEqual(len(data), 37)
        self.refused(raw_file(data), "key 1 of 1")

    def test_cut(self):
        image = Image()
        r = inspect(image.save(cut=-1))
        self.one_line(r, 1, "bytes are missing", "tensor ")
        self.refused(image.save(cut=-1), "1 bytes are missing", "tensor ")
        self.refused(image.save(cut=len(image.b) // 2), "bytes are missing", "tensor ")
        self.refused(image.save(cut=1024), "truncated")
        self.refused(image.save(cut=7), "7 bytes")
        self.refused(image.save(cut=0), "empty")

    def test_offsets(self):
        self.refused(Image().tensor("output.weight", "offset", "<Q", 2**64 - 32).save(), "output.weight", "overflows")
        other, = struct.unpack_from("<Q", Image().b, Image().tensors["token_embd.weight"]["offset"])
        self.refused(Image().tensor("output.weight", "offset", "<Q", other).save(), "overlaps")

    def test_dimensions(self):
        for n in (0, 9, 2**31):
            self.refused(Image().tensor("output.weight", "dims", "<I", n).save(), "output.weight", f"{n} dimensions")
        self.refused(Image().tensor("output.weight", "shape", "<Q", 2**62).save(), "output.weight")
        self.refused(Image().tensor("output.weight", "type", "<I", 1000).save(), "output.weight", "unknown type 1000")

    def test_special_ids(self):
        image = Image()
        start, kind, value, end = image.keys["tokenizer.ggml.token_type"]
        self.assertEqual(struct.unpack_from("<I", image.b, value)[0], 5)
        self.assertEqual(inspect(image.put("<I", value, 4).save()).returncode, 0)  # u32 in place of i32
        self.refused(Image().key("tokenizer.ggml.bos_token_id", 512).save(), "bos_token_id")

    def test_lengths_are_not_believed(self):
        data = (b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + struct.pack("<Q", 3) + b"abc" +
                struct.pack("<IIQ", 9, 4, 10**9) + b"\0" * 8)
        self.refused(raw_file(data), "abc", "1000000000")
        before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
        inspect(raw_file(data))
        if not lib.sanitized():
            self.assertLess(max(before, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss), 200 * 1024)

    def test_names(self):
        for old, new, *parts in (("blk.1.attn_q.weight", "blk.1.attn_x.weight", "blk.1.attn_"),
                                 ("blk.1.attn_k.weight", "blk.1.attn_q.weight", "blk.1.attn_q.weight", "twice"),
                                 ("blk.2.ffn_up_exps.weight", "blk.2.ffn_up.weight", "blk.2.ffn_up"),
                                 ("output_norm.weight", "norm.weight", "norm.weight")):
            self.refused(Image().rename(old, new).save(), *parts)
        older = inspect(Image().rename("blk.1.attn_gate.weight", "blk.1.attn_g.weight").save())
        self.assertEqual(older.returncode, 0, older.stderr)  # what older writers call it

    def test_shapes_against_configuration(self):
        for key, value, *parts in (("embedding_length", 64, "token_embd.weight", "[32, 512]", "[64, 512]"),
                                   ("block_count", 4, "attention.head_count has 3 items"),
                                   ("expert_count", 5, "ffn_gate_inp.weight", "expert count 5"),
                                   ("expert_used_count", 5, "expert_used_count is 5"),
                                   ("vocab_size", 600, "vocabulary size 600"),
                                   ("rope.dimension_count", 33, "rope.dimension_count is 33")):
            self.refused(Image().key("laguna." + key, value).save(), *parts)

    def test_no_file_of_ours(self):
        self.refused(raw_file(b"PK\3\4" + b"\0" * 100), "not a GGUF file")
        self.refused(raw_file(b"GGUF" + struct.pack(">IQQ", 3, 0, 0)), "big-endian")
        self.refused(raw_file(b"GGUF" + struct.pack("<IQQ", 1, 0, 0)), "version 1")
        self.refused(raw_file(b"version https://git-lfs.github.com/spec/v1\n"), "Git LFS")
        self.one_line(inspect(PLACE), 1, "directory")
        self.one_line(inspect("/dev/null"), 1, "device")
        self.one_line(inspect(os.path.join(PLACE, "nothing.gguf")), 1, "nothing.gguf")


class Split(Case):
    @classmethod
    def setUpClass(cls):
        cls.names = [os.path.join(PLACE, f"split-{i:05d}-of-00003.gguf") for i in (1, 2, 3)]

    def setUp(self):
        image = Image()
        names = sorted(image.tensors, key=lambda t: struct.unpack_from("<Q", image.b, image.tensors[t]["offset"])[0])
        starts = [struct.unpack_from("<Q", image.b, image.tensors[t]["offset"])[0] for t in names]
        ends = starts[1:] + [len(image.b) - image.data]
        for i, path in enumerate(self.names):
            keys, n = (bytes(image.b[24:image.keys_end]), len(image.keys)) if i == 0 else (b"", 0)
            for key, kind, raw in (("split.no", 2, struct.pack("<H", i)), ("split.count", 2, struct.pack("<H", 3)),
                                   ("split.tensors.count", 5, struct.pack("<i", len(names)))):
                keys += struct.pack("<Q", len(key)) + key.encode() + struct.pack("<I", kind) + raw
                n += 1
            mine = range(len(names) * i // 3, len(names) * (i + 1) // 3)
            table, data = b"", b""
            for k in mine:
                t = image.tensors[names[k]]
                table += bytes(image.b[t["entry"]:t["offset"]]) + struct.pack("<Q", len(data))
                data += bytes(image.b[image.data + starts[k]:image.data + ends[k]])
                data += b"\0" * (-len(data) % 32)
            head = b"GGUF" + struct.pack("<IQQ", 3, len(mine), n) + keys + table
            with open(path, "wb") as f:
                f.write(head + b"\0" * (-len(head) % 32) + data)

    def test_any_part_opens_all(self):
        whole = json.loads(inspect(SEED, "--json").stdout)
        for path in self.names:
            r = inspect(path, "--json")
            out = json.loads(r.stdout)
            self.assertEqual((r.returncode, len(out["files"])), (0, 3))
            self.assertEqual(out["groups"], whole["groups"])
            self.assertEqual(out["configuration"], whole["configuration"])

    def test_missing_part(self):
        os.unlink(self.names[1])
        self.one_line(inspect(self.names[0]), 1, "part 2 of 3 missing", "split-00002-of-00003.gguf")
        os.unlink(self.names[2])
        self.one_line(inspect(self.names[0]), 1, "parts 2-3 of 3 missing", "split-00002-of-00003.gguf",
                      "split-00003-of-00003.gguf")

    def test_joined_parts(self):
        joined = os.path.join(PLACE, "joined.gguf")
        with open(joined, "wb") as f:
            subprocess.run(["cat", *self.names], stdout=f, check=True)
        self.one_line(inspect(joined), 1, "part 1 of 3", "do not join")


if __name__ == "__main__":
    lib.main()
