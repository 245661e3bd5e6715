"""The forward pass of a Laguna GGUF in numpy, float64, straight from the definition; shares nothing with
model.py.

  reference.py FILE IDS.npy OUT.npy     logits of every position, float32 [n, vocab]

Slow and small on purpose: one sequence, no cache. It is the judge between the PyTorch code and the engine.
"""
import math
import sys

import numpy as np

import gguf


def rms(x, w, eps):
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + eps) * w


def sigmoid(z):
    return np.where(z >= 0, 1 / (1 + np.exp(-np.abs(z))), np.exp(-np.abs(z)) / (1 + np.exp(-np.abs(z))))


def silu(z):
    return z * sigmoid(z)


def softplus(z):
    return np.maximum(z, 0) + np.log1p(np.exp(-np.abs(z)))


class Reference:
    def __init__(self, path):
        g = gguf.Reader(path)
        self.kv = {k.partition(".")[2]: v for k, v in g.kv.items() if k.startswith("laguna.")}
        self.w = {n: g.tensor(n).astype(np.float64) for n in g.types}
        kv = self.kv
        self.layers, self.dim = kv["block_count"], kv["attention.key_length"]
        self.heads, self.kv_heads = kv["attention.head_count"], kv["attention.head_count_kv"]
        self.swa, self.eps = kv["attention.sliding_window_pattern"], kv["attention.layer_norm_rms_epsilon"]

    def frequencies(self, swa):
        kv = self.kv
        if swa:
            n = kv["rope.dimension_count_swa"]
            return kv["rope.freq_base_swa"] ** (-np.arange(n // 2) * 2.0 / n), 1.0
        n, base, s = kv["rope.dimension_count"], kv["rope.freq_base"], kv["rope.scaling.factor"]
        orig = kv["rope.scaling.original_context_length"]

        def corr(beta):
            return n * math.log(orig / (2 * math.pi * beta)) / (2 * math.log(base))

        low = max(0, math.floor(corr(kv["rope.scaling.yarn_beta_fast"])))
        high = min(n - 1, math.ceil(corr(kv["rope.scaling.yarn_beta_slow"])))
        ramp = np.clip((np.arange(n // 2) - low) / max(0.001, high - low), 0, 1)
        f = base ** (-np.arange(n // 2) * 2.0 / n)
        return f * (1 - ramp) + f / s * ramp, 1 + 0.1 * math.log(s)

    def rotate(self, x, swa):
        f, m = self.frequencies(swa)
        half = len(f)
        a = np.arange(x.shape[0])[:, None, None] * f
        c, s = np.cos(a) * m, np.sin(a) * m
        out = x.copy()
        out[..., :half] = x[..., :half] * c - x[..., half : 2 * half] * s
        out[..., half : 2 * half] = x[..., half : 2 * half] * c + x[..., :half] * s
        return out

    def attention(self, h, i):
        w, t = lambda n: self.w[f"blk.{i}.{n}.weight"], len(h)  # noqa: E731
        swa, nh = self.swa[i], self.heads[i]
        q = rms((h @ w("attn_q").T).reshape(t, nh, self.dim), w("attn_q_norm"), self.eps)
        k = rms((h @ w("attn_k").T).reshape(t, self.kv_heads, self.dim), w("attn_k_norm"), self.eps)
        v = (h @ w("attn_v").T).reshape(t, self.kv_heads, self.dim)
        q, k = self.rotate(q, swa), self.rotate(k, swa)
        gate = softplus(h @ w("attn_gate").T)
        d = np.arange(t)[:, None] - np.arange(t)
        seen = (d >= 0) & ((d < self.kv["attention.sliding_window"]) | (not swa))
        out = np.zeros((t, nh, self.dim))
        for head in range(nh):
            g = head // (nh // self.kv_heads)
            s = np.where(seen, q[:, head] @ k[:, g].T / math.sqrt(self.dim), -np.inf)
            p = np.exp(s - s.max(1, keepdims=True))
            out[:, head] = p / p.sum(1, keepdims=True) @ v[:, g] * gate[:, head, None]
        return out.reshape(t, -1) @ w("attn_output").T

    def ffn(self, h, i):
        w = lambda n: self.w[f"blk.{i}.{n}.weight"]  # noqa: E731

        def swiglu(gate, up, down):
            return (silu(h @ gate.T) * (h @ up.T)) @ down.T

        if i < self.kv["leading_dense_block_count"]:
            return swiglu(w("ffn_gate"), w("ffn_up"), w("ffn_down"))
        s = sigmoid(h @ w("ffn_gate_inp").T)
        order = np.argsort(-(s + self.w[f"blk.{i}.exp_probs_b.bias"]), axis=1, kind="stable")
        pick = order[:, : self.kv["expert_used_count"]]
        chosen = np.take_along_axis(s, pick, 1)
        share = (
            chosen / np.maximum(chosen.sum(1, keepdims=True), 2.0**-14) * self.kv["expert_weights_scale"]
        )
        out = swiglu(w("ffn_gate_shexp"), w("ffn_up_shexp"), w("ffn_down_shexp"))
        for e in range(self.kv["expert_count"]):
            rows, slot = np.nonzero(pick == e)
            x = h[rows]
            y = (silu(x @ w("ffn_gate_exps")[e].T) * (x @ w("ffn_up_exps")[e].T)) @ w("ffn_down_exps")[e].T
            out[rows] += y * share[rows, slot][:, None]
        return out

    def logits(self, ids):
        x = self.w["token_embd.weight"][ids]
        for i in range(self.layers):
            x = x + self.attention(rms(x, self.w[f"blk.{i}.attn_norm.weight"], self.eps), i)
            x = x + self.ffn(rms(x, self.w[f"blk.{i}.ffn_norm.weight"], self.eps), i)
        return rms(x, self.w["output_norm.weight"], self.eps) @ self.w["output.weight"].T


if __name__ == "__main__":
    np.save(sys.argv[3], Reference(sys.argv[1]).logits(np.load(sys.argv[2])).astype(np.float32))
