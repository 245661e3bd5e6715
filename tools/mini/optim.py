"""Muon for the matrices of the layers, AdamW for the rest; both with one learning rate.

Muon steps along the orthogonalized momentum, scaled so that its entries move as far as AdamW's would.
Matrices of one shape are stacked and orthogonalized together.
"""
import math

import torch

NS = (3.4445, -4.7750, 2.0315)


def is_muon(name, p):
    small = ("token_embd", "output.weight", "norm", "bias", "attn_gate", "ffn_gate_inp")
    return p.ndim >= 2 and not any(s in name and not name.endswith("attn_output.weight") for s in small)


def orthogonalize(x):
    """[n, r, c] with r <= c: the nearest matrix with equal singular values, to a few per cent."""
    a, b, c = NS
    x = x.bfloat16() if x.is_cuda else x
    x = x / (x.norm(dim=(1, 2), keepdim=True) + 1e-7)
    for _ in range(5):
        s = x @ x.transpose(1, 2)
        x = a * x + (b * s + c * (s @ s)) @ x
    return x.float()


class Optimizer:
    def __init__(self, params, decay=0.05, momentum=0.95):
        self.decay, self.momentum = decay, momentum
        groups, rest = {}, []
        for name, p in params.items():
            if not p.requires_grad:
                continue
            if is_muon(name, p):
                for m in p.unbind(0) if p.ndim == 3 else (p,):
                    groups.setdefault(tuple(sorted(m.shape)), []).append((p, m))
            else:
                rest.append(p)
        self.groups = groups
        self.slots = {}
        for shape, ms in groups.items():
            self.slots[shape] = torch.zeros(len(ms), *shape, device=ms[0][1].device)
        fused = {"fused": True} if rest[0].is_cuda else {}
        self.adam = torch.optim.AdamW(rest, lr=0.0, betas=(0.9, 0.95), weight_decay=0.0, **fused)
        self.params = [p for p in params.values() if p.requires_grad]

    def _grads(self, ms):
        out, seen = [], {}
        for p, m in ms:
            if p.ndim == 3:
                k = seen.get(id(p), 0)
                seen[id(p)] = k + 1
                g = p.grad[k]
            else:
                g = p.grad
            out.append(g if g.shape[0] <= g.shape[1] else g.t())
        return torch.stack(out)

    @torch.no_grad()
    def step(self, lr):
        for shape, ms in self.groups.items():
            g, buf = self._grads(ms), self.slots[shape]
            buf.mul_(self.momentum).add_(g, alpha=1 - self.momentum)
            upd = orthogonalize(g * (1 - self.momentum) + buf * self.momentum)
            views = [m.data if m.shape[0] <= m.shape[1] else m.data.t() for _, m in ms]
            torch._foreach_mul_(views, 1 - lr * self.decay)
            torch._foreach_add_(views, list(upd.unbind(0)), alpha=-lr * 0.2 * math.sqrt(max(shape)))
        for group in self.adam.param_groups:
            group["lr"] = lr
        self.adam.step()
        for p in self.params:
            p.grad = None
