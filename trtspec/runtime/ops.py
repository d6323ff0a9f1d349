"""The tensor operations of a decoder layer: one protocol, two implementations (torch here, compiled in native.py)."""

from __future__ import annotations

from typing import Protocol

import torch
import torch.nn.functional as F

from trtspec.runtime.batch import Batch
from trtspec.runtime.config import ModelConfig

Tensor = torch.Tensor


class Ops(Protocol):
    """T tokens of a pass, H hidden size. The residual stream ``h`` [T, H] is updated in place."""

    def linear(self, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor: ...

    def logits(self, x: Tensor, weight: Tensor) -> Tensor:
        """[rows, vocabulary] float32."""
        ...

    def add_norm(self, h: Tensor, delta: Tensor | None, weight: Tensor, eps: float) -> Tensor:
        """h += delta; returns RMSNorm(h) * weight."""
        ...

    def silu_mul(self, gate_up: Tensor) -> Tensor:
        """[T, 2 I] -> silu(gate) * up, [T, I]."""
        ...

    def attend(
        self, qkv: Tensor, batch: Batch, keys: Tensor, values: Tensor, norms: tuple[Tensor, Tensor] | None
    ) -> Tensor:
        """Rotates q and k, stores k and v of one layer's cache [kv_heads, tokens, D], returns [T, heads D]."""
        ...


class TorchOps:
    """Any device and dtype."""

    def __init__(self, config: ModelConfig) -> None:
        self.config = config

    def linear(self, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        return F.linear(x, weight, bias)

    def logits(self, x: Tensor, weight: Tensor) -> Tensor:
        return F.linear(x, weight).float()

    def add_norm(self, h: Tensor, delta: Tensor | None, weight: Tensor, eps: float) -> Tensor:
        if delta is not None:
            h += delta
        return _rms_norm(h, weight, eps)

    def silu_mul(self, gate_up: Tensor) -> Tensor:
        gate, up = gate_up.chunk(2, dim=-1)
        return F.silu(gate) * up

    def attend(
        self, qkv: Tensor, batch: Batch, keys: Tensor, values: Tensor, norms: tuple[Tensor, Tensor] | None
    ) -> Tensor:
        c = self.config
        tokens = qkv.shape[0]
        heads = qkv.view(tokens, c.num_heads + 2 * c.num_kv_heads, c.head_dim)
        q, k, v = torch.split(heads, [c.num_heads, c.num_kv_heads, c.num_kv_heads], dim=1)
        if norms is not None:
            q, k = _rms_norm(q, norms[0], c.norm_eps), _rms_norm(k, norms[1], c.norm_eps)
        q, k = _rotate(q, batch.cos, batch.sin), _rotate(k, batch.cos, batch.sin)
        keys.index_copy_(1, batch.slots, k.transpose(0, 1))
        values.index_copy_(1, batch.slots, v.transpose(0, 1))
        out = torch.empty(tokens, c.num_heads, c.head_dim, dtype=qkv.dtype, device=qkv.device)
        for at, count, start, past in batch.spans:
            end = start + past + count
            out[at : at + count] = self._attend_one(q[at : at + count], keys[:, start:end], values[:, start:end], past)
        return out.view(tokens, c.num_heads * c.head_dim)

    def _attend_one(self, q: Tensor, k: Tensor, v: Tensor, past: int) -> Tensor:
        """q [n, heads, D] over k, v [kv_heads, past + n, D]; query heads of a group are a batch over shared keys."""
        n, heads, dim = q.shape
        kv_heads, total, _ = k.shape
        group = heads // kv_heads
        window = self.config.sliding_window
        if n == 1:
            if window is not None and total > window:
                k, v = k[:, -window:], v[:, -window:]
            out = F.scaled_dot_product_attention(q.view(1, kv_heads, group, dim), k.unsqueeze(0), v.unsqueeze(0))
            return out.view(1, heads, dim)
        position = torch.arange(past, past + n, device=q.device).unsqueeze(1)
        key = torch.arange(total, device=q.device)
        mask = key <= position
        if window is not None:
            mask &= key > position - window
        grouped = q.view(n, kv_heads, group, dim).permute(1, 2, 0, 3)
        shape = (kv_heads, group, total, dim)
        out = F.scaled_dot_product_attention(
            grouped, k.unsqueeze(1).expand(shape), v.unsqueeze(1).expand(shape), attn_mask=mask
        )
        return out.permute(2, 0, 1, 3).reshape(n, heads, dim)


def _rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """In float32, as all families here do; weight is float32."""
    return F.rms_norm(x.float(), weight.shape, weight, eps).to(x.dtype)


def _rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """x [T, heads, D], cos and sin [T, D / 2] float32; half-split pairs (d, d + D/2)."""
    a, b = x.float().chunk(2, dim=-1)
    c, s = cos.unsqueeze(1), sin.unsqueeze(1)
    return torch.cat((a * c - b * s, b * c + a * s), dim=-1).to(x.dtype)
