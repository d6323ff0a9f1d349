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

    def rope_tables(self, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor]:
        """[positions, D / 2] float32 each -> the form in which a batch's rows of them suit ``attend``."""
        ...

    def attend(self, qkv: Tensor, batch: Batch, kv: Tensor, norms: tuple[Tensor, Tensor] | None) -> Tensor:
        """Rotates q and k, stores k and v in one layer's cache [2, kv_heads, tokens, D], returns [T, heads D].

        ``qkv`` is overwritten.
        """
        ...


class TorchOps:
    """Any device and dtype."""

    def __init__(self, config: ModelConfig, dtype: torch.dtype) -> None:
        self.config = config
        self.dtype = dtype

    def linear(self, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        return F.linear(x, weight, bias)

    def logits(self, x: Tensor, weight: Tensor) -> Tensor:
        if x.shape[0] == 1:  # torch's matrix-vector product reads a large matrix faster than its linear layer does
            return torch.mv(weight, x[0]).unsqueeze(0).float()
        return F.linear(x, weight).float()

    def add_norm(self, h: Tensor, delta: Tensor | None, weight: Tensor, eps: float) -> Tensor:
        if delta is not None:
            h += delta
        return _rms_norm(h, weight, eps)

    def silu_mul(self, gate_up: Tensor) -> Tensor:
        gate, up = gate_up.chunk(2, dim=-1)
        return F.silu(gate) * up

    def rope_tables(self, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor]:
        """[positions, 1, D] in the compute dtype, the sign of the first half's sine folded in (see _rotate)."""
        cos, sin = torch.cat((cos, cos), dim=-1), torch.cat((-sin, sin), dim=-1)
        return cos.unsqueeze(1).to(self.dtype), sin.unsqueeze(1).to(self.dtype)

    def attend(self, qkv: Tensor, batch: Batch, kv: Tensor, norms: tuple[Tensor, Tensor] | None) -> Tensor:
        c = self.config
        tokens = qkv.shape[0]
        heads = qkv.view(tokens, c.num_heads + 2 * c.num_kv_heads, c.head_dim)
        if norms is not None:
            q, k = heads[:, : c.num_heads], heads[:, c.num_heads : c.num_heads + c.num_kv_heads]
            q.copy_(_rms_norm(q, norms[0], c.norm_eps))
            k.copy_(_rms_norm(k, norms[1], c.norm_eps))
        _rotate(heads[:, : c.num_heads + c.num_kv_heads], batch.cos, batch.sin)
        fresh = heads[:, c.num_heads :].view(tokens, 2, c.num_kv_heads, c.head_dim)
        kv.index_copy_(2, batch.slots, fresh.permute(1, 2, 0, 3))
        outs = []
        for at, count, start, past in batch.spans:
            seen = slice(start, start + past + count)
            outs.append(self._attend_one(heads[at : at + count, : c.num_heads], kv[0, :, seen], kv[1, :, seen], past))
        out = outs[0] if len(outs) == 1 else torch.cat(outs)
        return out.reshape(tokens, c.num_heads * c.head_dim)

    def _attend_one(self, q: Tensor, k: Tensor, v: Tensor, past: int) -> Tensor:
        """q [n, heads, D] over k, v [kv_heads, past + n, D]; query heads of a group are a batch over shared keys."""
        n, heads, dim = q.shape
        kv_heads, total, _ = k.shape
        group = heads // kv_heads
        window = self.config.sliding_window
        if n == 1:
            if window is not None and total > window:
                k, v = k[:, -window:], v[:, -window:]
            out = F.scaled_dot_product_attention(q.reshape(1, kv_heads, group, dim), k.unsqueeze(0), v.unsqueeze(0))
            return out.view(1, heads, dim)
        position = torch.arange(past, past + n, device=q.device).unsqueeze(1)
        key = torch.arange(total, device=q.device)
        mask = key <= position
        if window is not None:
            mask &= key > position - window
        grouped = q.reshape(n, kv_heads, group, dim).permute(1, 2, 0, 3)
        shape = (kv_heads, group, total, dim)
        out = F.scaled_dot_product_attention(
            grouped, k.unsqueeze(1).expand(shape), v.unsqueeze(1).expand(shape), attn_mask=mask
        )
        return out.permute(2, 0, 1, 3).reshape(n, heads, dim)


def _rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """In float32, as all families here do; weight is float32. Five small operations, where F.rms_norm takes eight."""
    y = x.to(torch.float32, copy=True)
    norm = torch.linalg.vector_norm(y, dim=-1, keepdim=True)
    scale = norm.square_().div_(x.shape[-1]).add_(eps).rsqrt_()
    return y.mul_(scale).mul_(weight).to(x.dtype)


def _rotate(x: Tensor, cos: Tensor, sin: Tensor) -> None:
    """In place on x [T, heads, D]: pairs are (d, d + D/2), so the partner of every element is half a head away."""
    torch.addcmul(x * cos, x.roll(x.shape[-1] // 2, dims=-1), sin, out=x)
