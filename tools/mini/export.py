"""Stage 2: a checkpoint as GGUF.   export.py CHECKPOINT.pt OUT.gguf [--types mix|f32] [--draft]

mix: the published pattern: routed experts Q4_K, other matrices Q8_0, router and norms F32. Trained with these
quantizers in the loop, so nothing is searched for here.
"""
import argparse
from pathlib import Path

import numpy as np
import torch

import gguf
import model as M
import tokens as tk
from tokenizer import Tokenizer

HERE = Path(__file__).parent


def kind_of(name, mix):
    if mix == "f32" or M.kept_f32(name):
        return gguf.F32
    return gguf.Q4_K if "_exps" in name else gguf.Q8_0


def common(c, name, n_layers, file_type):
    return [
        ("general.architecture", "str", name),
        ("general.name", "str", "laguna-mini" + ("-dflash" if name == "dflash" else "")),
        (
            "general.description",
            "str",
            "A small demonstration model with every mechanism of Laguna; trained on generated texts only",
        ),
        ("general.file_type", "u32", file_type),
        ("general.quantization_version", "u32", 2),
        ("general.alignment", "u32", gguf.ALIGN),
        (f"{name}.block_count", "u32", n_layers),
        (f"{name}.context_length", "u32", c.context),
        (f"{name}.embedding_length", "u32", c.hidden),
        (f"{name}.attention.key_length", "u32", c.head_dim),
        (f"{name}.attention.value_length", "u32", c.head_dim),
        (f"{name}.attention.layer_norm_rms_epsilon", "f32", c.eps),
        (f"{name}.attention.sliding_window", "u32", c.window),
    ]


def main_kvs(c, mix, vocab):
    a = "laguna."
    tok = Tokenizer.load(vocab)
    assert tok.size == c.vocab
    u32 = [
        ("feed_forward_length", c.dense),
        ("vocab_size", c.vocab),
        ("attention.head_count_kv", c.kv_heads),
        ("expert_count", c.experts),
        ("expert_used_count", c.used),
        ("expert_feed_forward_length", c.expert_width),
        ("expert_shared_feed_forward_length", c.shared_width),
        ("expert_shared_count", 1),
        ("leading_dense_block_count", 1),
        ("expert_gating_func", 2),
        ("rope.dimension_count", c.head_dim // 2),
        ("rope.dimension_count_swa", c.head_dim),
        ("rope.scaling.original_context_length", c.yarn_original),
    ]
    f32 = [
        ("expert_weights_scale", c.scale),
        ("rope.freq_base", c.theta_full),
        ("rope.freq_base_swa", c.theta_swa),
        ("rope.scaling.factor", c.yarn_factor),
        ("rope.scaling.yarn_ext_factor", 1.0),
        ("rope.scaling.yarn_attn_factor", 1.0),
        ("rope.scaling.yarn_beta_fast", c.beta_fast),
        ("rope.scaling.yarn_beta_slow", c.beta_slow),
    ]
    sampling = [("general.sampling.temp", "f32", 0.7), ("general.sampling.top_p", "f32", 0.9)]
    return (
        common(c, "laguna", c.layers, 0 if mix == "f32" else 15)
        + sampling
        + [(a + k, "u32", v) for k, v in u32]
        + [(a + k, "f32", v) for k, v in f32]
        + [
            (a + "attention.head_count", "arr:i32", [c.heads(i) for i in range(c.layers)]),
            (a + "attention.sliding_window_pattern", "arr:bool", [not c.full(i) for i in range(c.layers)]),
            (a + "expert_weights_norm", "bool", True),
            (a + "rope.scaling.type", "str", "yarn"),
        ]
        + tok.gguf_kvs((HERE / "chat_template.jinja").read_text(encoding="utf-8"))
    )


def draft_kvs(c, mix):
    a = "dflash."
    return common(c, "dflash", c.draft_layers, 0 if mix == "f32" else 7) + [
        (a + "feed_forward_length", "u32", c.draft_ffn),
        (a + "attention.head_count", "u32", c.draft_heads),
        (a + "attention.head_count_kv", "u32", c.kv_heads),
        (a + "attention.causal", "bool", True),
        (a + "attention.sliding_window_pattern", "arr:bool", [True] * c.draft_layers),
        (a + "rope.freq_base", "f32", c.theta_full),
        (a + "rope.dimension_count", "u32", c.head_dim),
        (a + "rope.scaling.type", "str", "none"),
        (a + "block_size", "u32", c.block),
        (a + "target_layers", "arr:i32", [t + 1 for t in c.taps]),
        (a + "decoder_arch", "str", "laguna"),
        ("tokenizer.ggml.mask_token_id", "u32", tk.MASK),
    ]


def arrays(params):
    return {k: v.detach().cpu().float().numpy() for k, v in params.items()}


def write_main(path, cfg, params, mix="mix", vocab=HERE / "vocab.json"):
    gguf.write(path, main_kvs(cfg, mix, vocab), [(k, x, kind_of(k, mix)) for k, x in arrays(params).items()])


def write_draft(path, cfg, params, mix="mix"):
    gguf.write(path, draft_kvs(cfg, mix), [(k, x, kind_of(k, mix)) for k, x in arrays(params).items()])


def load(path, names):
    """Dequantized tensors of a file as torch parameters."""
    g = gguf.Reader(path)
    return {n: torch.from_numpy(np.array(g.tensor(n))) for n in names}


def main():
    from finish import load_checkpoint

    ap = argparse.ArgumentParser()
    ap.add_argument("checkpoint")
    ap.add_argument("out")
    ap.add_argument("--types", choices=("mix", "f32"), default="mix")
    ap.add_argument("--draft", action="store_true")
    a = ap.parse_args()
    ck = load_checkpoint(a.checkpoint)
    (write_draft if a.draft else write_main)(a.out, ck["config"], ck["params"], a.types)


if __name__ == "__main__":
    main()
