"""Writes a small `laguna` model whose answer is known in advance.

Attention and feed-forward outputs are zero, so the residual stream is the embedding of the last token, and the output
row of a token is the embedding of the token before it: the text is a chain, entered at <think> or </think>, with a
margin that no temperature overcomes. Each token stands in the chain once, so a text is cut into pieces that differ;
with `loop` the last piece of the answer leads back to its first one, and the answer never ends.
"""
import io
import random
import struct

HIDDEN, LAYERS, HEADS, KV_HEADS, HEAD_DIM, EXPERTS, USED, WIDTH = 128, 2, 2, 1, 64, 4, 2, 32
THINK, END_THINK, END = 18, 19, 24
F32, F16 = 0, 1


def byte_letters():
    """The printable letter that stands for each byte in a vocabulary."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    rest = [b for b in range(256) if b not in plain]
    return {b: chr(b) for b in plain} | {b: chr(256 + i) for i, b in enumerate(rest)}


def added_tokens():
    named = {0: "〈|UNK|〉", 1: "〈|CODE_START|〉", 2: "〈|EOS|〉", 3: "〈|CODE_END|〉", 4: "〈|META_START|〉",
             5: "〈|META_END|〉", 6: "〈|FIM_MIDDLE|〉", 7: "〈|FIM_SUFFIX|〉", 8: "〈|SEP|〉", 9: "〈|PAD|〉",
             10: "〈|CLS|〉", 11: "〈|FIM_START|〉", 12: "〈|MASK|〉", 13: "|◊|", 14: "〈|", 15: "|〉", 16: "〈|/",
             17: "/|〉", 18: "<think>", 19: "</think>", 20: "〈|SPECIAL_1|〉", 21: "〈|SPECIAL_2|〉",
             22: "〈|SPECIAL_3|〉", 23: "<assistant>", 24: "</assistant>", 25: "<tool_call>", 26: "</tool_call>"}
    return [named.get(i, f"〈|SPECIAL_{i - 19}|〉") for i in range(70)]


class Vocabulary:
    """The bytes and little more; or, with `base`, the tokens of that model file, so that a prompt has a real length."""

    def __init__(self, base=None):
        self.letters = byte_letters()
        self.tokens = added_tokens() + [self.letters[b] for b in range(256)]
        self.types = [4 if i in (18, 19, 23, 24, 25, 26) else 3 for i in range(70)] + [1] * 256
        self.merges = ["t h"]
        if base:
            keys = read_keys(base)
            self.tokens, self.types, self.merges = (list(keys["tokenizer.ggml." + k])
                                                    for k in ("tokens", "token_type", "merges"))
        self.known = set(self.tokens)

    def cut(self, text):
        """Ids of new tokens, of at least three bytes each, that spell the text."""
        s = "".join(self.letters[b] for b in text.encode())
        ids, at = [], 0
        while at < len(s):
            n = 3
            while s[at:at + n] in self.known:
                n += 1
                assert at + n <= len(s), "a text's end must not repeat what came before"
            if len(s) - at - n < 3:
                n = len(s) - at
                assert s[at:at + n] not in self.known, "a text's end must not repeat what came before"
            ids.append(len(self.tokens))
            self.tokens.append(s[at:at + n])
            self.known.add(s[at:at + n])
            self.types.append(1)
            at += n
        return ids


def read_value(f, kind):
    """A metadata value of a GGUF file, which is read up to its end."""
    form = dict(enumerate(("B", "b", "H", "h", "I", "i", "f", "?", None, None, "Q", "q", "d")))
    if kind == 8:
        return f.read(*struct.unpack("<Q", f.read(8))).decode()
    if kind == 9:
        inner, n = struct.unpack("<IQ", f.read(12))
        return [read_value(f, inner) for _ in range(n)]
    return struct.unpack("<" + form[kind], f.read(struct.calcsize("<" + form[kind])))[0]


def read_keys(path):
    """The metadata of a GGUF file."""
    with open(path, "rb") as f:
        n_keys = struct.unpack("<4sIQQ", f.read(24))[3]
        return {read_value(f, 8): read_value(f, *struct.unpack("<I", f.read(4))) for _ in range(n_keys)}


def without(data, dropped):
    """A GGUF file less the tensors of these names: from its directory, and so for every reader."""
    f = io.BytesIO(data)
    magic, version, n_tensors, n_keys = struct.unpack("<4sIQQ", f.read(24))
    for _ in range(n_keys):
        read_value(f, 8)
        read_value(f, *struct.unpack("<I", f.read(4)))
    keys, rows = data[24:f.tell()], []
    for _ in range(n_tensors):
        start, name = f.tell(), read_value(f, 8)
        f.read(8 * struct.unpack("<I", f.read(4))[0] + 12)
        if name not in dropped:
            rows.append(data[start:f.tell()])
    assert len(rows) == n_tensors - len(dropped)
    head = struct.pack("<4sIQQ", magic, version, len(rows), n_keys) + keys + b"".join(rows)
    return head + b"\0" * (-len(head) % 32) + data[f.tell() + -f.tell() % 32:]


def text_value(s):
    b = s.encode()
    return struct.pack("<Q", len(b)) + b


def write_gguf(path, keys, tensors):
    head = struct.pack("<4sIQQ", b"GGUF", 3, len(tensors), len(keys))
    for key, value in keys:
        head += text_value(key)
        if isinstance(value, str):
            head += struct.pack("<I", 8) + text_value(value)
        elif isinstance(value, bool):
            head += struct.pack("<I?", 7, value)
        elif isinstance(value, int):
            head += struct.pack("<II", 4, value)
        elif isinstance(value, float):
            head += struct.pack("<If", 6, value)
        elif isinstance(value[0], str):
            head += struct.pack("<IIQ", 9, 8, len(value)) + b"".join(map(text_value, value))
        else:
            head += struct.pack(f"<IIQ{len(value)}i", 9, 5, len(value), *value)
    at, data = 0, b""
    for name, dims, kind, values in tensors:
        raw = struct.pack(f"<{len(values)}{'f' if kind == F32 else 'e'}", *values)
        head += text_value(name) + struct.pack(f"<I{len(dims)}QIQ", len(dims), *dims, kind, at)
        raw += b"\0" * (-len(raw) % 32)
        data += raw
        at += len(raw)
    with open(path, "wb") as f:
        f.write(head + b"\0" * (-len(head) % 32) + data)


def layer(rng, i):
    def some(*dims):
        n = 1
        for d in dims:
            n *= d
        return [rng.uniform(-0.05, 0.05) for _ in range(n)]

    p = f"blk.{i}."
    q = HEADS * HEAD_DIM
    kv = KV_HEADS * HEAD_DIM
    rows = [("attn_norm", [HIDDEN], F32, [1.0] * HIDDEN), ("ffn_norm", [HIDDEN], F32, [1.0] * HIDDEN),
            ("attn_q_norm", [HEAD_DIM], F32, [1.0] * HEAD_DIM), ("attn_k_norm", [HEAD_DIM], F32, [1.0] * HEAD_DIM),
            ("attn_q", [HIDDEN, q], F16, some(HIDDEN, q)), ("attn_k", [HIDDEN, kv], F16, some(HIDDEN, kv)),
            ("attn_v", [HIDDEN, kv], F16, some(HIDDEN, kv)), ("attn_gate", [HIDDEN, HEADS], F16, some(HIDDEN, HEADS)),
            ("attn_output", [q, HIDDEN], F16, [0.0] * (q * HIDDEN))]
    if i == 0:
        rows += [("ffn_gate", [HIDDEN, WIDTH], F16, some(HIDDEN, WIDTH)),
                 ("ffn_up", [HIDDEN, WIDTH], F16, some(HIDDEN, WIDTH)),
                 ("ffn_down", [WIDTH, HIDDEN], F16, [0.0] * (WIDTH * HIDDEN))]
    else:
        rows += [("ffn_gate_inp", [HIDDEN, EXPERTS], F32, some(HIDDEN, EXPERTS)),
                 ("ffn_gate_exps", [HIDDEN, WIDTH, EXPERTS], F16, some(HIDDEN, WIDTH, EXPERTS)),
                 ("ffn_up_exps", [HIDDEN, WIDTH, EXPERTS], F16, some(HIDDEN, WIDTH, EXPERTS)),
                 ("ffn_down_exps", [WIDTH, HIDDEN, EXPERTS], F16, [0.0] * (WIDTH * HIDDEN * EXPERTS)),
                 ("ffn_gate_shexp", [HIDDEN, WIDTH], F16, some(HIDDEN, WIDTH)),
                 ("ffn_up_shexp", [HIDDEN, WIDTH], F16, some(HIDDEN, WIDTH)),
                 ("ffn_down_shexp", [WIDTH, HIDDEN], F16, [0.0] * (WIDTH * HIDDEN))]
    rows = [(p + name + ".weight", dims, kind, v) for name, dims, kind, v in rows]
    if i > 0:
        rows.append((p + "exp_probs_b.bias", [EXPERTS], F32, [0.0] * EXPERTS))
    return rows


def config(vocab, context):
    a = "laguna."
    keys = [("general.architecture", "laguna"), ("general.name", "scripted"), ("general.alignment", 32),
            (a + "context_length", context), (a + "embedding_length", HIDDEN), (a + "block_count", LAYERS),
            (a + "feed_forward_length", WIDTH), (a + "attention.head_count", [HEADS] * LAYERS),
            (a + "attention.head_count_kv", KV_HEADS), (a + "attention.key_length", HEAD_DIM),
            (a + "attention.value_length", HEAD_DIM), (a + "attention.sliding_window", 512),
            (a + "attention.layer_norm_rms_epsilon", 1e-6), (a + "rope.dimension_count", HEAD_DIM // 2),
            (a + "rope.dimension_count_swa", HEAD_DIM), (a + "rope.freq_base", 500000.0),
            (a + "rope.freq_base_swa", 10000.0), (a + "rope.scaling.type", "yarn"), (a + "rope.scaling.factor", 4.0),
            (a + "rope.scaling.original_context_length", 8192), (a + "rope.scaling.yarn_ext_factor", 1.0),
            (a + "rope.scaling.yarn_attn_factor", 1.0), (a + "rope.scaling.yarn_beta_fast", 32.0),
            (a + "rope.scaling.yarn_beta_slow", 1.0), (a + "expert_count", EXPERTS), (a + "expert_used_count", USED),
            (a + "expert_feed_forward_length", WIDTH), (a + "expert_shared_feed_forward_length", WIDTH),
            (a + "expert_shared_count", 1), (a + "leading_dense_block_count", 1), (a + "expert_gating_func", 2),
            (a + "expert_weights_norm", True), (a + "expert_weights_scale", 2.5)]
    t = "tokenizer.ggml."
    return keys + [(t + "model", "gpt2"), (t + "pre", "laguna"), (t + "tokens", vocab.tokens),
                   (t + "token_type", vocab.types), (t + "merges", vocab.merges), (t + "bos_token_id", 2),
                   (t + "eos_token_id", 2), (t + "eot_token_id", 24), (t + "padding_token_id", 9),
                   (t + "add_bos_token", False),
                   ("tokenizer.chat_template", "{# laguna_glm_thinking_v8 #}")]  # tells the family, no more


def write(path, thought, answer, loop=False, base=None, circles=False, context=32768):
    """A model that thinks `thought` and answers `answer`: a text, or a list of texts and ids of control tokens. `base` is
    a model file whose vocabulary is taken. With `loop` it never ends its answer, with `circles` its thinking."""
    rng = random.Random(7)
    vocab = Vocabulary(base)
    parts = answer if isinstance(answer, list) else [answer]
    thinking = vocab.cut(thought)
    answering = [i for part in parts for i in ([part] if isinstance(part, int) else vocab.cut(part))]
    chain = [THINK, *thinking, END_THINK, *answering] + ([] if loop else [END])
    n = len(vocab.tokens)
    embed = [[1.0 if c == "1" else -1.0 for c in f"{rng.getrandbits(HIDDEN):0{HIDDEN}b}"] for _ in range(n)]
    noise = [rng.gauss(0, 0.02) for _ in range(8191)] * 2
    out = [noise[i:i + HIDDEN] for i in (rng.randrange(8191) for _ in range(n))]
    for before, after in zip(chain, chain[1:]):
        out[after] = [0.5 * x for x in embed[before]]
    if loop:
        out[answering[0]] = [0.5 * (x + y) for x, y in zip(embed[END_THINK], embed[answering[-1]])]
    if circles:
        out[thinking[0]] = [0.5 * (x + y) for x, y in zip(embed[THINK], embed[thinking[-1]])]
        out[END_THINK] = out[0]
    tensors = [("token_embd.weight", [HIDDEN, n], F16, sum(embed, [])), ("output.weight", [HIDDEN, n], F16, sum(out, [])),
               ("output_norm.weight", [HIDDEN], F32, [1.0] * HIDDEN)]
    for i in range(LAYERS):
        tensors += layer(rng, i)
    write_gguf(path, config(vocab, context), tensors)
    return chain
