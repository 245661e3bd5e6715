"""A placeholder model whose answer is known in advance: python3 scripted.py OUT.gguf

A valid `laguna` file (hybrid attention, router, shared expert, gate) for trying an engine before, or without,
the trained model. Attention and feed-forward outputs are zero, so the residual stream is the embedding of the
last token; the output row of a token is its predecessor's embedding. The text is therefore a chain that each
token continues, entered at <think> or </think>, with a margin of more than 70 logits: sampling does not
change it. A token can stand in the chain once, so the text is cut into different pieces; each piece is a
vocabulary entry with its merges.
"""
import sys
from pathlib import Path

import numpy as np

import gguf
import tokens as tk

REASONING = "No weights were trained here, so there is nothing to work out: I recite."
ANSWER = (
    "Hello! This is lagoon's scripted placeholder, not a language model. Every question gets these same words. "
    "Still, producing them took real machinery: tokenizer, prompt template, attention over sliding and full "
    "windows, router, experts, sampler, and decoder. If you can read this, that works."
)
HIDDEN, LAYERS, KV_HEADS, HEAD_DIM, EXPERTS, USED, WIDTH, DENSE = 256, 4, 1, 64, 8, 2, 32, 256
HEADS = [2 if i % 4 == 0 else 3 for i in range(LAYERS)]
ANCHOR = 16  # leading residual channels that are 1 in every embedding


class Vocabulary:
    def __init__(self):
        self.alphabet = tk.byte_alphabet()
        self.tokens = tk.added_tokens() + self.alphabet
        self.merges = []
        self.known = set(self.tokens)

    def add(self, text):
        """Id of `text` as one entry, reached by merging from the left."""
        for n in range(2, len(text) + 1):
            if text[:n] not in self.known:
                self.tokens.append(text[:n])
                self.known.add(text[:n])
                self.merges.append(f"{text[:n - 1]} {text[n - 1]}")
        return self.tokens.index(text)

    def cut(self, text, used):
        """Cut `text` into pieces of which none is in `used`; returns their ids."""
        s = "".join(self.alphabet[b] for b in text.encode())
        ids, i = [], 0
        while i < len(s):
            n = next(n for n in range(min(3, len(s) - i), len(s)) if s[i : i + n] not in used)
            if 0 < len(s) - i - n < 3:
                n = len(s) - i
            used.add(s[i : i + n])
            ids.append(self.add(s[i : i + n]))
            i += n
        return ids


def chain(vocab):
    used = set()
    first = vocab.cut(REASONING, used)
    answer = vocab.cut(ANSWER, used)
    return [tk.THINK, *first, tk.END_THINK, *answer, tk.END_ASSISTANT], answer[0]


def tensors(vocab, ids, start, rng):
    n = len(vocab.tokens)
    embed = rng.choice(np.array([-1, 1], np.float32), (n, HIDDEN))
    embed[:, :ANCHOR] = 1
    out = (rng.standard_normal((n, HIDDEN)) * 0.02).astype(np.float32)
    out[start, :ANCHOR] = 5.0  # what follows any other token: raw prompts enter the chain too
    for a, b in zip(ids, ids[1:]):
        row = embed[a] * 0.75
        row[:ANCHOR] = out[b, :ANCHOR]
        out[b] = row
    ones = np.ones(HIDDEN, np.float32)

    def noise(*shape):
        return (rng.standard_normal(shape) * 0.02).astype(np.float32)

    res = [
        ("token_embd.weight", embed, gguf.Q8_0),
        ("output_norm.weight", ones, gguf.F32),
        ("output.weight", out, gguf.Q8_0),
    ]
    for i in range(LAYERS):
        q, kv = HEADS[i] * HEAD_DIM, KV_HEADS * HEAD_DIM
        part = [
            ("attn_norm", ones),
            ("attn_q", noise(q, HIDDEN)),
            ("attn_k", noise(kv, HIDDEN)),
            ("attn_v", noise(kv, HIDDEN)),
            ("attn_gate", noise(HEADS[i], HIDDEN)),
            ("attn_output", np.zeros((HIDDEN, q), np.float32)),
            ("attn_q_norm", np.ones(HEAD_DIM, np.float32)),
            ("attn_k_norm", np.ones(HEAD_DIM, np.float32)),
            ("ffn_norm", ones),
        ]
        if i == 0:
            part += [
                ("ffn_gate", noise(DENSE, HIDDEN)),
                ("ffn_up", noise(DENSE, HIDDEN)),
                ("ffn_down", np.zeros((HIDDEN, DENSE), np.float32)),
            ]
        else:
            part += [("ffn_gate_inp", noise(EXPERTS, HIDDEN))]
            for suffix, lead in (("_exps", (EXPERTS,)), ("_shexp", ())):
                part += [
                    ("ffn_gate" + suffix, noise(*lead, WIDTH, HIDDEN)),
                    ("ffn_up" + suffix, noise(*lead, WIDTH, HIDDEN)),
                    ("ffn_down" + suffix, np.zeros((*lead, HIDDEN, WIDTH), np.float32)),
                ]
            res.append((f"blk.{i}.exp_probs_b.bias", np.abs(noise(EXPERTS)), gguf.F32))
        for name, x in part:
            kind = gguf.F32 if x.ndim == 1 or name == "ffn_gate_inp" else gguf.Q8_0
            res.append((f"blk.{i}.{name}.weight", x, kind))
    return res


def metadata(vocab, template):
    a = "laguna."
    u32 = [
        ("context_length", 32768),
        ("embedding_length", HIDDEN),
        ("block_count", LAYERS),
        ("feed_forward_length", DENSE),
        ("vocab_size", len(vocab.tokens)),
        ("attention.head_count_kv", KV_HEADS),
        ("attention.key_length", HEAD_DIM),
        ("attention.value_length", HEAD_DIM),
        ("attention.sliding_window", 512),
        ("rope.dimension_count", HEAD_DIM // 2),
        ("rope.dimension_count_swa", HEAD_DIM),
        ("expert_count", EXPERTS),
        ("expert_used_count", USED),
        ("expert_feed_forward_length", WIDTH),
        ("expert_shared_feed_forward_length", WIDTH),
        ("expert_shared_count", 1),
        ("leading_dense_block_count", 1),
        ("expert_gating_func", 2),
        ("rope.scaling.original_context_length", 8192),
    ]
    f32 = [
        ("attention.layer_norm_rms_epsilon", 1e-6),
        ("rope.freq_base", 500000.0),
        ("rope.freq_base_swa", 10000.0),
        ("rope.scaling.factor", 4.0),
        ("rope.scaling.yarn_ext_factor", 1.0),
        ("rope.scaling.yarn_attn_factor", 1.0),
        ("rope.scaling.yarn_beta_fast", 32.0),
        ("rope.scaling.yarn_beta_slow", 1.0),
        ("expert_weights_scale", 2.5),
    ]
    return (
        [
            ("general.architecture", "str", "laguna"),
            ("general.name", "str", "lagoon scripted placeholder"),
            ("general.file_type", "u32", 7),
            ("general.quantization_version", "u32", 2),
            ("general.alignment", "u32", gguf.ALIGN),
        ]
        + [(a + k, "u32", v) for k, v in u32]
        + [(a + k, "f32", v) for k, v in f32]
        + [
            (a + "attention.head_count", "arr:i32", HEADS),
            (a + "expert_weights_norm", "bool", True),
            (a + "attention.sliding_window_pattern", "arr:bool", [i % 4 != 0 for i in range(LAYERS)]),
            (a + "rope.scaling.type", "str", "yarn"),
        ]
        + tk.tokenizer_kvs(vocab.tokens, vocab.merges, template)
    )


def main():
    vocab = Vocabulary()
    for pair in ("th", "he", "in", "an", "er", "Ġt", "Ġa", "ou", "re", "on"):
        vocab.add(pair)
    ids, start = chain(vocab)
    if len(set(ids)) != len(ids):
        raise SystemExit("a piece of the text came out twice: change the words")
    template = Path(__file__).with_name("chat_template.jinja").read_text(encoding="utf-8")
    gguf.write(
        sys.argv[1], metadata(vocab, template), tensors(vocab, ids, start, np.random.default_rng(20261129))
    )
    print(f"{sys.argv[1]}: {len(ids)} chained tokens, vocabulary {len(vocab.tokens)}")


if __name__ == "__main__":
    main()
