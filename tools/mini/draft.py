"""The DFlash drafter in PyTorch: context from the target's taps, a causal block of masks, training,
measuring.

A row packs documents; an anchor is the position of a token that the target has just chosen. Its block asks
for the tokens after it from the target's hidden states before it.
"""
import math
import time

import torch
import torch.nn.functional as F

import model as M
import tokens as tk
from optim import Optimizer

LAYER = (
    "attn_norm",
    "attn_q",
    "attn_k",
    "attn_v",
    "attn_output",
    "attn_gate",
    "attn_q_norm",
    "attn_k_norm",
    "ffn_norm",
    "ffn_gate",
    "ffn_up",
    "ffn_down",
)


class Drafter:
    def __init__(self, cfg, table, compiled=False):
        self.cfg, self.table = cfg, table
        self.fused = torch.compile(fuse, dynamic=False) if compiled else fuse
        self.layer = torch.compile(draft_layer, dynamic=False) if compiled else draft_layer

    def __call__(self, w, target, taps, pos, anchors, first, mask):
        """Hidden states [B, A, block, H] (normed); anchors [B, A] are places in the row, first [B, A] their
        tokens."""
        c = self.cfg
        b, n = anchors.shape
        ctx = self.fused(taps, w["enc.aux_norm.weight"], w["fc.weight"], w["enc.output_norm.weight"])
        ids = torch.full((b, n, c.block), tk.MASK, dtype=torch.int64, device=anchors.device)
        ids[:, :, 0] = first
        x = F.embedding(ids.flatten(1), target["token_embd.weight"]).float()
        at = (pos.gather(1, anchors)[:, :, None] + torch.arange(c.block, device=anchors.device)).flatten(1)
        at = at.clamp(max=self.table[0].shape[0] - 1)
        rc, rq = [t[pos] for t in self.table], [t[at] for t in self.table]
        for i in range(c.draft_layers):
            x = self.layer(x, ctx, *rc, *rq, mask, c.head_dim, *[w[f"blk.{i}.{k}.weight"] for k in LAYER])
        return M.rms(x, w["output_norm.weight"]).unflatten(1, (n, c.block))


def fuse(taps, aux, fc, norm):
    """[B, T, taps, H] -> the context vector of every token."""
    u = M.rms(taps, aux).to(fc.dtype)
    return M.rms(F.linear(u.flatten(-2), fc), norm)


def draft_layer(x, ctx, cc, sc, cq, sq, mask, dim, norm, wq, wk, wv, wo, wg, qn, kn, fn, gate, up, down):
    z, h = M.rms(ctx, norm).to(wk.dtype), M.rms(x, norm).to(wq.dtype)
    q, k, v = M.project_qkv(h, wq, wk, wv, qn, kn, cq, sq, dim)
    kc = M.rope(M.rms(F.linear(z, wk).unflatten(-1, (-1, dim)), kn), cc, sc).to(h.dtype).transpose(1, 2)
    vc = F.linear(z, wv).unflatten(-1, (-1, dim)).transpose(1, 2)
    o = M.masked_attention(
        q, torch.cat([kc, k], 2), torch.cat([vc, v], 2), mask, 1 / math.sqrt(dim)
    ).transpose(1, 2)
    g = F.softplus(F.linear(h, wg).float()).to(h.dtype)
    x = x + F.linear((o * g.unsqueeze(-1)).flatten(-2), wo)
    return x + M.swiglu(M.rms(x, fn).to(gate.dtype), gate, up, down)


def block_mask(cfg, doc, pos, anchors):
    """bool [B, 1, A * block, T + A * block]: context before the anchor inside the window, the block itself
    causally."""
    b, t = doc.shape
    n = anchors.shape[1]
    r = torch.arange(cfg.block, device=doc.device)
    a = anchors[:, :, None, None]
    k = torch.arange(t, device=doc.device)[None, None, None]
    same = doc.gather(1, anchors)[:, :, None, None] == doc[:, None, None, :]
    ctx = same & (k < a) & (a + r[None, None, :, None] - k < cfg.window)
    eye = torch.eye(n, dtype=torch.bool, device=doc.device)[:, None, :, None]
    own = (eye & (r[:, None] >= r[None, :])[None, :, None, :]).reshape(n * cfg.block, n * cfg.block)
    return torch.cat([ctx.reshape(b, n * cfg.block, t), own.expand(b, -1, -1)], 2)[:, None]


def labels(cfg, ids, doc, made, anchors):
    """Tokens of rows 1..block-1 and which of them the target wrote in the same document."""
    t = ids.shape[1]
    at = anchors[:, :, None] + torch.arange(1, cfg.block, device=ids.device)
    ok = at < t
    at = at.clamp(max=t - 1).flatten(1)
    good = (
        made.gather(1, at).unflatten(1, (-1, cfg.block - 1))
        & (doc.gather(1, at).unflatten(1, (-1, cfg.block - 1)) == doc.gather(1, anchors)[:, :, None])
        & ok
    )
    return ids.gather(1, at).unflatten(1, (-1, cfg.block - 1)), good


def pack(docs, length, device):
    """[(prompt ids, answer ids)] -> ids, doc, made [rows, length]; documents that do not fit are left out."""
    rows, cur, used = [], [], 0
    for p, a in docs:
        n = len(p) + len(a)
        if n > length:
            continue
        if used + n > length:
            rows.append(cur)
            cur, used = [], 0
        cur.append((p, a))
        used += n
    if cur:
        rows.append(cur)
    ids = torch.full((len(rows), length), tk.PAD, dtype=torch.int64)
    doc = torch.full((len(rows), length), 1 << 20, dtype=torch.int64)
    made = torch.zeros(len(rows), length, dtype=torch.bool)
    for r, row in enumerate(rows):
        at = 0
        for k, (p, a) in enumerate(row):
            n = len(p) + len(a)
            ids[r, at : at + n] = torch.tensor(list(p) + list(a))
            doc[r, at : at + n] = k
            made[r, at + len(p) : at + n] = True
            at += n
    return ids.to(device), doc.to(device), made.to(device)


@torch.no_grad()
def collect_taps(fwd, w, cfg, ids, doc, tables, rows=32):
    """[R, T, taps, H] in bfloat16."""
    out = []
    for i in range(0, len(ids), rows):
        d = doc[i : i + rows]
        pos = M.positions(d)
        ropes = [(c[pos], s[pos]) for c, s in tables]
        got = []
        fwd(w, ids[i : i + rows], ropes, M.dense_masks(d, cfg.window), got)
        out.append(torch.stack(got, 2).bfloat16())
    return torch.cat(out)


def pick_anchors(made, doc, n):
    """n places of written tokens per row, at random."""
    nxt = torch.roll(made, -1, 1) & (torch.roll(doc, -1, 1) == doc)
    nxt[:, -1] = False
    score = torch.rand(made.shape, device=made.device) + (made & nxt)
    return score.topk(n, 1).indices.sort(1).values


def train(
    cfg, target, data, tables, seconds, device, log, seed=2, rows=64, anchors=64, lr=2e-3, compiled=True
):
    """Trains a drafter on (ids, doc, made, taps); returns its float32 parameters."""
    ids, doc, made, taps = data
    params = M.init(M.draft_shapes(cfg), cfg.draft_layers, seed, device)
    for p in params.values():
        p.requires_grad_(True)
    opt = Optimizer(params)
    net = Drafter(cfg, tables[2], compiled)
    loss_of = torch.compile(weighted_loss, dynamic=False) if compiled else weighted_loss
    decay = torch.exp(-torch.arange(cfg.block - 1, device=device) / 7.0)
    dtype = target["output.weight"].dtype
    g = torch.Generator().manual_seed(seed)
    step, t0, seen, order = 0, None, [], torch.empty(0, dtype=torch.int64)
    while True:
        if step == 3:
            t0 = time.time()
        progress = 0.0 if t0 is None else (time.time() - t0) / seconds
        if progress >= 1:
            break
        if len(order) < rows:
            order = torch.randperm(len(ids), generator=g)
            if len(order) < rows:
                order = torch.randint(len(ids), (rows,), generator=g)
        pick, order = order[:rows].to(device), order[rows:]
        i, d, m = ids[pick], doc[pick], made[pick]
        pos = M.positions(d)
        a = pick_anchors(m, d, anchors)
        want, good = labels(cfg, i, d, m, a)
        good = good & m.gather(1, a)[:, :, None]
        w = M.effective(params, progress > 0.8, dtype)
        x = net(w, target, taps[pick], pos, a, i.gather(1, a), block_mask(cfg, d, pos, a))
        loss = loss_of(x[:, :, 1:], target["output.weight"], want, good * decay)
        loss.backward()
        opt.step(lr * min(1.0, (step + 1) / 100) * (1 - progress))
        step += 1
        seen.append(loss.detach())
        if step % 100 == 0 or step < 4:
            log.write(
                f"draft step {step} loss {torch.stack(seen).mean():.4f} {time.time() - (t0 or time.time()):.0f} s\n"
            )
            seen = []
    return {k: v.detach() for k, v in params.items()}


def weighted_loss(x, out, want, weight):
    z = F.linear(x.to(out.dtype), out).float()
    nll = F.cross_entropy(z.flatten(0, -2), want.flatten(), reduction="none")
    return (nll * weight.flatten()).sum() / weight.sum().clamp_min(1.0)


@torch.no_grad()
def accepted(cfg, w, target, ids, doc, made, taps, table, rows=8):
    """For every written token of every row: how many drafts from it agree with what the target wrote
    (0..block-1)."""
    net = Drafter(cfg, table)
    out = torch.full(ids.shape, -1, dtype=torch.int64, device=ids.device)
    t = ids.shape[1]
    step = 64
    for i in range(0, len(ids), rows):
        s = slice(i, i + rows)
        pos = M.positions(doc[s])
        for lo in range(0, t, step):
            a = torch.arange(lo, lo + step, device=ids.device).expand(len(ids[s]), step)
            want, good = labels(cfg, ids[s], doc[s], made[s], a)
            x = net(w, target, taps[s], pos, a, ids[s].gather(1, a), block_mask(cfg, doc[s], pos, a))
            z = F.linear(x[:, :, 1:].to(target["output.weight"].dtype), target["output.weight"]).argmax(-1)
            out[s, lo : lo + step] = ((z == want) & good).int().cumprod(-1).sum(-1)
    return torch.where(made, out, torch.full_like(out, -1))


def rounds(counts, doc, made, n, block):
    """Walk the documents as an engine would with n drafts a round; returns [(rounds, accepted)] of the replies and
    the acceptance by position."""
    replies = []
    per = [0] * (block - 1)
    tried = [0] * (block - 1)
    for row, dd, mm in zip(counts.cpu().tolist(), doc.cpu().tolist(), made.cpu().tolist()):
        i, t = 0, len(row)
        while i < t:
            if not mm[i]:
                i += 1
                continue
            end = i
            while end < t and mm[end] and dd[end] == dd[i]:
                end += 1
            lengths = list(walk(row.__getitem__, i, end, n))
            replies.append((len(lengths), sum(ok for ok, _ in lengths)))
            for ok, left in lengths:
                for k in range(min(n, left - 1)):
                    tried[k] += k <= ok
                    per[k] += k < ok
            i = end
    return replies, [a / b if b else 0.0 for a, b in zip(per, tried)]


def walk(count, first, end, n):
    """The rounds of a reply at places [first, end): (drafts accepted, tokens that were left). count(p): drafts from p
    that agree with the reply. The first token comes from the prompt's logits; a reply's last token is never counted
    as a draft, since nothing comes behind it."""
    p = first
    while p < end - 1:
        left = end - 1 - p
        ok = min(count(p), n, left - 1)
        yield ok, left
        p += ok + 1
