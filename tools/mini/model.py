"""The Laguna forward pass in PyTorch, for training: parameters are a dict keyed by GGUF tensor names.

Weights are float32; a step works on bfloat16 copies made by effective(), through which the quantizers are
also trained. Experts are computed densely (all of them, unchosen ones weighted by zero): at this width that
is cheaper than sorting tokens. Attention is FlexAttention over packed documents on the GPU, a plain masked
softmax elsewhere.
"""
import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F


@dataclass
class Config:
    vocab: int = 4096
    hidden: int = 512
    layers: int = 10
    head_dim: int = 64
    kv_heads: int = 2
    heads_full: int = 6
    heads_swa: int = 8
    window: int = 512
    dense: int = 1024
    experts: int = 8
    used: int = 2
    expert_width: int = 256
    shared_width: int = 256
    scale: float = 2.5
    eps: float = 1e-6
    context: int = 32768
    yarn_factor: float = 4.0
    yarn_original: int = 8192
    beta_fast: float = 32.0
    beta_slow: float = 1.0
    theta_full: float = 500000.0
    theta_swa: float = 10000.0
    taps: tuple = (1, 5, 9)  # layer outputs that the drafter reads
    draft_layers: int = 3
    draft_heads: int = 6
    draft_ffn: int = 1024
    block: int = 16

    def full(self, i):
        return i % 4 == 0

    def heads(self, i):
        return self.heads_full if self.full(i) else self.heads_swa


def tiny():
    """For rehearsals on a CPU: the same mechanisms, two layers of each kind."""
    return Config(
        vocab=4096,
        hidden=256,
        layers=6,
        head_dim=32,
        heads_full=2,
        heads_swa=4,
        dense=256,
        experts=4,
        expert_width=256,
        shared_width=64,
        window=64,
        taps=(1, 3, 5),
        draft_layers=2,
        draft_heads=4,
        draft_ffn=256,
    )


def shapes(c):
    """GGUF name -> shape, rows first."""
    out = {
        "token_embd.weight": (c.vocab, c.hidden),
        "output_norm.weight": (c.hidden,),
        "output.weight": (c.vocab, c.hidden),
    }
    for i in range(c.layers):
        b, nq, nkv = f"blk.{i}.", c.heads(i) * c.head_dim, c.kv_heads * c.head_dim
        out.update(
            {
                b + "attn_norm.weight": (c.hidden,),
                b + "attn_q.weight": (nq, c.hidden),
                b + "attn_k.weight": (nkv, c.hidden),
                b + "attn_v.weight": (nkv, c.hidden),
                b + "attn_output.weight": (c.hidden, nq),
                b + "attn_gate.weight": (c.heads(i), c.hidden),
                b + "attn_q_norm.weight": (c.head_dim,),
                b + "attn_k_norm.weight": (c.head_dim,),
                b + "ffn_norm.weight": (c.hidden,),
            }
        )
        if i == 0:
            out.update(
                {
                    b + "ffn_gate.weight": (c.dense, c.hidden),
                    b + "ffn_up.weight": (c.dense, c.hidden),
                    b + "ffn_down.weight": (c.hidden, c.dense),
                }
            )
        else:
            e, f, s = c.experts, c.expert_width, c.shared_width
            out.update(
                {
                    b + "ffn_gate_inp.weight": (e, c.hidden),
                    b + "exp_probs_b.bias": (e,),
                    b + "ffn_gate_exps.weight": (e, f, c.hidden),
                    b + "ffn_up_exps.weight": (e, f, c.hidden),
                    b + "ffn_down_exps.weight": (e, c.hidden, f),
                    b + "ffn_gate_shexp.weight": (s, c.hidden),
                    b + "ffn_up_shexp.weight": (s, c.hidden),
                    b + "ffn_down_shexp.weight": (c.hidden, s),
                }
            )
    return out


def draft_shapes(c):
    out = {
        "enc.aux_norm.weight": (len(c.taps), c.hidden),
        "fc.weight": (c.hidden, len(c.taps) * c.hidden),
        "enc.output_norm.weight": (c.hidden,),
        "output_norm.weight": (c.hidden,),
    }
    nq, nkv = c.draft_heads * c.head_dim, c.kv_heads * c.head_dim
    for i in range(c.draft_layers):
        b = f"blk.{i}."
        out.update(
            {
                b + "attn_norm.weight": (c.hidden,),
                b + "attn_q.weight": (nq, c.hidden),
                b + "attn_k.weight": (nkv, c.hidden),
                b + "attn_v.weight": (nkv, c.hidden),
                b + "attn_output.weight": (c.hidden, nq),
                b + "attn_gate.weight": (c.draft_heads, c.hidden),
                b + "attn_q_norm.weight": (c.head_dim,),
                b + "attn_k_norm.weight": (c.head_dim,),
                b + "ffn_norm.weight": (c.hidden,),
                b + "ffn_gate.weight": (c.draft_ffn, c.hidden),
                b + "ffn_up.weight": (c.draft_ffn, c.hidden),
                b + "ffn_down.weight": (c.hidden, c.draft_ffn),
            }
        )
    return out


def init(shape_of, layers, seed, device):
    g = torch.Generator().manual_seed(seed)
    out = {}
    for name, s in shape_of.items():
        if name.endswith("exp_probs_b.bias"):
            t = torch.zeros(s)
        elif "norm" in name:
            t = torch.ones(s)
        else:
            std = (
                0.04
                if name == "token_embd.weight"
                else 0.02
                if name == "output.weight"
                else 0.6 / math.sqrt(s[-1])
            )
            if "attn_output" in name or "ffn_down" in name:
                std /= math.sqrt(2 * layers)
            if "attn_gate" in name or "ffn_gate_inp" in name:
                std = 0.02
            t = torch.randn(s, generator=g) * std
        out[name] = t.to(device)
    return out


# --- quantizers to train through -------------------------------------------------------------------------------------


def fake_q8_0(w):
    x = w.reshape(-1, 32)
    d = x.abs().amax(1, keepdim=True) / 127
    q = torch.round(x / d.clamp_min(1e-20)).clamp(-127, 127)
    return (q * d.half().float()).reshape(w.shape)


def fake_q4_k(w):
    """The min-max fit of gguf.fit_q4_k."""
    x = w.reshape(-1, 8, 32)
    lo = x.amin(2).clamp_max(0)
    s = (x.amax(2).clamp_min(0) - lo) / 15
    d = (s.amax(1, keepdim=True) / 63).half().float()
    m = ((-lo).amax(1, keepdim=True) / 63).half().float()
    S = torch.round(s / d.clamp_min(1e-20)).clamp(0, 63) * d
    M = torch.round(-lo / m.clamp_min(1e-20)).clamp(0, 63) * m
    code = torch.round((x + M[..., None]) / S[..., None].clamp_min(1e-20)).clamp(0, 15)
    return (S[..., None] * code - M[..., None]).reshape(w.shape)


def kept_f32(name):
    return "norm" in name or name.endswith(".bias") or "ffn_gate_inp" in name


def effective(params, qat, dtype=torch.bfloat16):
    """The weights that a step computes with."""
    out = {}
    for name, p in params.items():
        if kept_f32(name):
            out[name] = p
            continue
        w = p
        if qat:
            with torch.no_grad():
                delta = (fake_q4_k(p) if "_exps" in name else fake_q8_0(p)) - p
            w = p + delta
        out[name] = w.to(dtype)
    return out


# --- forward pass ----------------------------------------------------------------------------------------------------


def yarn(c, n):
    """(frequencies, magnitude) of full layers for n rotated dimensions."""
    j = torch.arange(n // 2, dtype=torch.float64)
    e = c.theta_full ** (-2 * j / n)

    def corr(beta):
        return n * math.log(c.yarn_original / (2 * math.pi * beta)) / (2 * math.log(c.theta_full))

    low, high = max(0, math.floor(corr(c.beta_fast))), min(n - 1, math.ceil(corr(c.beta_slow)))
    ramp = ((j - low) / max(0.001, high - low)).clamp(0, 1)
    return e * (1 - ramp) + e / c.yarn_factor * ramp, 1 + 0.1 * math.log(c.yarn_factor)


def rope_tables(c, length, device):
    """cos and sin for positions below `length`: full layers, window layers, drafter."""
    pos = torch.arange(length, dtype=torch.float64)[:, None]
    half = c.head_dim // 2
    j = torch.arange(half, dtype=torch.float64)
    f, m = yarn(c, half)
    out = []
    for freq, mag in ((f, m), (c.theta_swa ** (-j / half), 1.0), (c.theta_full ** (-j / half), 1.0)):
        a = pos * freq
        out.append(((a.cos() * mag).float().to(device), (a.sin() * mag).float().to(device)))
    return out


def rms(x, w, eps=1e-6):
    x = x.float()
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + eps) * w


def rope(x, cos, sin):
    n = cos.shape[-1]
    a, b = x[..., :n], x[..., n : 2 * n]
    c, s = cos.unsqueeze(-2), sin.unsqueeze(-2)
    return torch.cat([a * c - b * s, b * c + a * s, x[..., 2 * n :]], -1)


def masked_attention(q, k, v, mask, scale):
    """q [B, h, T, D], k and v [B, hk, S, D], mask bool broadcastable to [B, 1, T, S]."""
    g = q.shape[1] // k.shape[1]
    k, v = k.repeat_interleave(g, 1), v.repeat_interleave(g, 1)
    if hasattr(F, "scaled_dot_product_attention"):
        return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, scale=scale)
    s = (q.float() @ k.float().transpose(-1, -2)) * scale
    return (s.masked_fill(~mask, float("-inf")).softmax(-1) @ v.float()).to(v.dtype)


def attend(q, k, v, mask, scale):
    if isinstance(mask, torch.Tensor):
        return masked_attention(q, k, v, mask, scale)
    from torch.nn.attention.flex_attention import flex_attention

    return flex_attention(q, k, v, block_mask=mask, scale=scale, enable_gqa=True)


def project_qkv(h, wq, wk, wv, qn, kn, cos, sin, dim):
    """q, k, v as [B, heads, T, D] of the normed input."""
    q = F.linear(h, wq).unflatten(-1, (-1, dim))
    k = F.linear(h, wk).unflatten(-1, (-1, dim))
    v = F.linear(h, wv).unflatten(-1, (-1, dim))
    q, k = rope(rms(q, qn), cos, sin).to(h.dtype), rope(rms(k, kn), cos, sin).to(h.dtype)
    return q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2)


def attention(x, norm, wq, wk, wv, wo, wg, qn, kn, cos, sin, mask, dim):
    h = rms(x, norm).to(wq.dtype)
    q, k, v = project_qkv(h, wq, wk, wv, qn, kn, cos, sin, dim)
    o = attend(q, k, v, mask, 1 / math.sqrt(dim)).transpose(1, 2)
    gate = F.softplus(F.linear(h, wg).float()).to(h.dtype)
    return x + F.linear((o * gate.unsqueeze(-1)).flatten(-2), wo)


def swiglu(h, gate, up, down):
    return F.linear(F.silu(F.linear(h, gate)) * F.linear(h, up), down)


def route(h, router, bias, used, scale):
    """(weight of every expert [.., E], load of every expert)"""
    s = torch.sigmoid(F.linear(h, router))
    pick = torch.topk(s + bias, used, dim=-1).indices
    chosen = torch.zeros_like(s).scatter(-1, pick, 1.0)
    w = s * chosen
    w = w / w.sum(-1, keepdim=True).clamp_min(2.0**-14) * scale
    return w, chosen.flatten(0, -2).sum(0)


def moe(x, norm, router, bias, gate, up, down, sg, su, sd, used, scale):
    h32 = rms(x, norm)
    w, load = route(h32, router, bias, used, scale)
    h = h32.to(gate.dtype)
    e, f, _ = gate.shape
    a = F.silu(F.linear(h, gate.flatten(0, 1))) * F.linear(h, up.flatten(0, 1))
    a = (a.unflatten(-1, (e, f)) * w.to(h.dtype).unsqueeze(-1)).flatten(-2)
    y = F.linear(a, down.permute(1, 0, 2).flatten(1))
    return x + y + swiglu(h, sg, su, sd), load


def dense_layer(x, cos, sin, mask, dim, a, norm, gate, up, down):
    x = attention(x, *a, cos, sin, mask, dim)
    return x + swiglu(rms(x, norm).to(gate.dtype), gate, up, down)


def moe_layer(x, cos, sin, mask, dim, a, m, used, scale):
    return moe(attention(x, *a, cos, sin, mask, dim), *m, used, scale)


ATTN = ("attn_norm", "attn_q", "attn_k", "attn_v", "attn_output", "attn_gate", "attn_q_norm", "attn_k_norm")
MOE = (
    "ffn_norm.weight",
    "ffn_gate_inp.weight",
    "exp_probs_b.bias",
    "ffn_gate_exps.weight",
    "ffn_up_exps.weight",
    "ffn_down_exps.weight",
    "ffn_gate_shexp.weight",
    "ffn_up_shexp.weight",
    "ffn_down_shexp.weight",
)
DENSE = ("ffn_norm.weight", "ffn_gate.weight", "ffn_up.weight", "ffn_down.weight")


class Forward:
    """The layers, compiled once when `compiled`; call with effective weights."""

    def __init__(self, cfg, compiled):
        self.cfg = cfg
        wrap = (lambda f: torch.compile(f, dynamic=False)) if compiled else (lambda f: f)
        self.dense, self.moe = wrap(dense_layer), wrap(moe_layer)

    def __call__(self, w, ids, ropes, masks, taps=None):
        """Residual stream after the last layer [B, T, H] float32 and the expert loads [layers - 1, E];
        `taps` collects."""
        c = self.cfg
        x = F.embedding(ids, w["token_embd.weight"]).float()
        loads = []
        for i in range(c.layers):
            k = 0 if c.full(i) else 1
            (cos, sin), mask = ropes[k], masks[k]
            a = [w[f"blk.{i}.{n}.weight"] for n in ATTN]
            if i == 0:
                x = self.dense(x, cos, sin, mask, c.head_dim, a, *[w[f"blk.{i}.{n}"] for n in DENSE])
            else:
                x, load = self.moe(
                    x, cos, sin, mask, c.head_dim, a, [w[f"blk.{i}.{n}"] for n in MOE], c.used, c.scale
                )
                loads.append(load)
            if taps is not None and i in c.taps:
                taps.append(x)
        return x, torch.stack(loads)


def logits(w, x):
    return F.linear(rms(x, w["output_norm.weight"]).to(w["output.weight"].dtype), w["output.weight"])


def token_loss(x, norm, out, target, weight):
    """Weighted mean cross entropy."""
    z = F.linear(rms(x, norm).to(out.dtype), out).float()
    nll = F.cross_entropy(z.flatten(0, -2), target.flatten(), reduction="none")
    return (nll * weight.flatten()).sum() / weight.sum().clamp_min(1.0)


# --- masks of packed rows --------------------------------------------------------------------------------------------


def dense_masks(doc, window):
    """(full, window) as bool [B, 1, T, T]; for CPUs and short rows."""
    t = doc.shape[1]
    i = torch.arange(t, device=doc.device)
    same = doc[:, :, None] == doc[:, None, :]
    causal = i[:, None] >= i[None, :]
    full = (same & causal)[:, None]
    return full, full & (i[:, None] - i[None, :] < window)


class BlockMasks:
    """FlexAttention masks over a persistent document-number buffer, rebuilt from block extents at every
    step."""

    SIZE = 128

    def __init__(self, rows, length, window, device):
        self.doc = torch.zeros(rows, length, dtype=torch.int32, device=device)
        doc = self.doc

        def full(b, h, q, k):
            return (q >= k) & (doc[b, q] == doc[b, k])

        def swa(b, h, q, k):
            return (q >= k) & (q - k < window) & (doc[b, q] == doc[b, k])

        self.mods, self.window = (full, swa), window

    def __call__(self, doc):
        from torch.nn.attention.flex_attention import BlockMask

        self.doc.copy_(doc)
        n = self.doc.unflatten(1, (-1, self.SIZE))
        lo, hi = n.amin(2), n.amax(2)
        i = torch.arange(lo.shape[1], device=doc.device)
        causal = i[:, None] >= i[None, :]
        meet = causal & (hi[:, None, :] >= lo[:, :, None])
        inside = (
            (i[:, None] > i[None, :])
            & (lo[:, :, None] == hi[:, :, None])
            & (lo[:, None, :] == hi[:, None, :])
            & (lo[:, :, None] == lo[:, None, :])
        )
        gap = (i[:, None] - i[None, :]) * self.SIZE
        out = []
        for mod, reach in zip(self.mods, (1 << 30, self.window)):
            need = meet & (gap - self.SIZE + 1 < reach)
            whole = inside & (gap + self.SIZE - 1 < reach)
            part = need & ~whole
            lists = []
            for m in (part, whole):
                order = torch.argsort(m.int(), dim=-1, descending=True, stable=True).int()
                lists += [m.sum(-1, dtype=torch.int32)[:, None], order[:, None]]
            out.append(BlockMask.from_kv_blocks(*lists, BLOCK_SIZE=self.SIZE, mask_mod=mod))
        return out


def positions(doc):
    """Position of every token inside its document."""
    t = torch.arange(doc.shape[1], device=doc.device).expand_as(doc)
    start = torch.ones_like(doc, dtype=torch.bool)
    start[:, 1:] = doc[:, 1:] != doc[:, :-1]
    return t - torch.where(start, t, torch.zeros_like(t)).cummax(1).values
