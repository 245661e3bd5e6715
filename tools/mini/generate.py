"""Greedy decoding of many prompts at once with static caches; on the GPU a step is one captured graph."""
import math

import torch
import torch.nn.functional as F

import model as M
import tokens as tk

STOPS = (tk.EOS, tk.END_ASSISTANT)
CHECK_EVERY = 32


class Decoder:
    """`w` are effective weights; prompts must leave room for the answer inside `ctx`."""

    def __init__(self, cfg, w, batch, ctx, device):
        self.cfg, self.w, self.batch, self.ctx, self.device = cfg, w, batch, ctx, device
        self.tables = M.rope_tables(cfg, ctx, device)[:2]
        dtype = w["output.weight"].dtype
        shape = (batch, cfg.kv_heads, ctx, cfg.head_dim)
        self.k = [torch.zeros(shape, dtype=dtype, device=device) for _ in range(cfg.layers)]
        self.v = [torch.zeros(shape, dtype=dtype, device=device) for _ in range(cfg.layers)]
        self.tok = torch.zeros(batch, 1, dtype=torch.int64, device=device)
        self.pos = torch.zeros(batch, dtype=torch.int64, device=device)
        self.at = torch.arange(ctx, device=device)
        self.row = torch.arange(batch, device=device)
        self.heads = torch.arange(cfg.kv_heads, device=device)[None]
        self.graph = None

    def _ffn(self, i, x):
        w, b = self.w, f"blk.{i}."
        if i == 0:
            norm, *mats = [w[b + n] for n in M.DENSE]
            return x + M.swiglu(M.rms(x, norm).to(mats[0].dtype), *mats)
        return M.moe(x, *[w[b + n] for n in M.MOE], self.cfg.used, self.cfg.scale)[0]

    def _qkv(self, i, x, pos):
        norm, q, k, v, _, gate, qn, kn = [self.w[f"blk.{i}.{n}.weight"] for n in M.ATTN]
        h = M.rms(x, norm).to(q.dtype)
        cos, sin = (t[pos] for t in self.tables[0 if self.cfg.full(i) else 1])
        g = F.softplus(F.linear(h, gate).float()).to(h.dtype)
        return (*M.project_qkv(h, q, k, v, qn, kn, cos, sin, self.cfg.head_dim), g)

    def _out(self, i, x, o, gate):
        return x + F.linear((o * gate.unsqueeze(-1)).flatten(-2), self.w[f"blk.{i}.attn_output.weight"])

    @torch.no_grad()
    def prefill(self, prompts, tokens_at_once=1 << 16):
        """Fill the caches; the first answer token of every row is in .tok afterwards."""
        c, i = self.cfg, 0
        order = sorted(range(len(prompts)), key=lambda j: len(prompts[j]))
        while i < len(order):
            longest = len(prompts[order[min(len(order), i + 512) - 1]])
            n = max(1, min(512, tokens_at_once // longest))
            rows = order[i : i + n]
            length = -(-len(prompts[rows[-1]]) // 64) * 64
            ids = torch.full((len(rows), length), tk.PAD, dtype=torch.int64)
            for r, j in enumerate(rows):
                ids[r, : len(prompts[j])] = torch.tensor(prompts[j])
            ids, idx = ids.to(self.device), torch.tensor(rows, device=self.device)
            t = torch.arange(length, device=self.device)
            causal = t[:, None] >= t[None, :]
            masks = causal[None, None], (causal & (t[:, None] - t[None, :] < c.window))[None, None]
            x = F.embedding(ids, self.w["token_embd.weight"]).float()
            pos = t.expand(len(rows), length)
            for layer in range(c.layers):
                q, k, v, gate = self._qkv(layer, x, pos)
                self.k[layer][idx, :, :length] = k
                self.v[layer][idx, :, :length] = v
                o = M.masked_attention(q, k, v, masks[0 if c.full(layer) else 1], 1 / math.sqrt(c.head_dim))
                x = self._ffn(layer, self._out(layer, x, o.transpose(1, 2), gate))
            last = torch.tensor([len(prompts[j]) - 1 for j in rows], device=self.device)
            z = M.logits(self.w, x[torch.arange(len(rows), device=self.device), last])
            self.tok[idx, 0] = z.argmax(-1)
            self.pos[idx] = last + 1
            i += len(rows)

    def _step(self):
        c = self.cfg
        x = F.embedding(self.tok, self.w["token_embd.weight"]).float()
        pos = self.pos[:, None]
        full = (self.at <= pos)[:, None, None]
        swa = full & (pos - self.at < c.window)[:, None, None]
        for layer in range(c.layers):
            q, k, v, gate = self._qkv(layer, x, pos)
            self.k[layer].index_put_((self.row[:, None], self.heads, pos), k[:, :, 0])
            self.v[layer].index_put_((self.row[:, None], self.heads, pos), v[:, :, 0])
            q = q.reshape(
                self.batch, c.kv_heads, -1, c.head_dim
            )  # a group's heads as rows: no copies of K and V
            s = (q @ self.k[layer].transpose(2, 3)).float() / math.sqrt(c.head_dim)
            s = s.masked_fill(~(full if c.full(layer) else swa), float("-inf")).softmax(-1)
            o = s.to(q.dtype) @ self.v[layer]
            x = self._ffn(layer, self._out(layer, x, o.reshape(self.batch, 1, -1, c.head_dim), gate))
        self.tok.copy_(M.logits(self.w, x).argmax(-1))
        self.pos.add_(1).clamp_(max=self.ctx - 1)

    @torch.no_grad()
    def run(self, prompts, limits):
        """Answers (ids, the stop token included) of at most `limits[j]` tokens."""
        assert len(prompts) <= self.batch and max(map(len, prompts)) < self.ctx
        self.pos.zero_()
        self.tok.zero_()
        self.prefill(prompts)
        n, most = len(prompts), min(max(limits), self.ctx - min(map(len, prompts)) - 1)
        if self.graph is None and self.device != "cpu":
            keep = self.tok.clone(), self.pos.clone()
            side = torch.cuda.Stream()
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                self._step()
            torch.cuda.current_stream().wait_stream(side)
            self.graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(self.graph):
                self._step()
            self.tok.copy_(keep[0])
            self.pos.copy_(keep[1])
        out = torch.zeros(most + 1, self.batch, dtype=torch.int64, device=self.device)
        out[0] = self.tok[:, 0]
        done = torch.zeros(self.batch, dtype=torch.bool, device=self.device)
        done[n:] = True
        for t in range(most):
            for s in STOPS:
                done |= out[t] == s
            if t % CHECK_EVERY == 0 and bool(done.all()):
                break
            self.graph.replay() if self.graph else self._step()
            out[t + 1] = self.tok[:, 0]
        got = out[:, :n].t().cpu().tolist()
        res = []
        for j, ids in enumerate(got):
            room = min(limits[j], self.ctx - len(prompts[j]) - 1)
            end = next((i + 1 for i, x in enumerate(ids) if x in STOPS), len(ids))
            res.append(ids[: min(end, room)])
        return res
