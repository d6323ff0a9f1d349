"""The tensor operations of a decoder layer: one protocol, two implementations (torch here, compiled in native.py)."""

from __future__ import annotations

from typing import Protocol

import torch
import torch.nn.functional as F

from trtspec.runtime.batch import Batch
from trtspec.runtime.config import ModelConfig

Tensor = torch.Tensor


class Ops(Protocol):
    """T tokens of a pass, H hidden size. The residual stream ``h`` [T, H] of dtype ``residual`` is updated in place."""

    residual: torch.dtype

    def linear(self, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor: ...

    def logits(self, x: Tensor, weight: Tensor) -> Tensor:
        """[rows, vocabulary] float32."""
        ...

    def add_norm(self, h: Tensor, delta: Tensor | None, weight: Tensor) -> Tensor:
        """h += delta; returns RMSNorm(h) * weight in the compute dtype."""
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
    """Any device and dtype. Written for few operations: at one row each costs more in dispatch than in arithmetic."""

    residual = torch.float32  # spares a conversion in every norm, and rounds less

    def __init__(self, config: ModelConfig, dtype: torch.dtype, device: torch.device) -> None:
        self.config = config
        self.dtype = dtype
        self._eps = torch.tensor(config.norm_eps, device=device)

    def linear(self, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        return F.linear(x, weight, bias)

    def logits(self, x: Tensor, weight: Tensor) -> Tensor:
        if x.shape[0] == 1:  # torch's matrix-vector product reads a large matrix faster than its linear layer does
            return torch.mv(weight, x[0]).unsqueeze(0).float()
        return F.linear(x, weight).float()

    def add_norm(self, h: Tensor, delta: Tensor | None, weight: Tensor) -> Tensor:
        if delta is not None:
            h += delta
        norm = torch.linalg.vector_norm(h, dim=-1, keepdim=True)
        scale = torch.addcmul(self._eps, norm, norm, value=1 / h.shape[-1]).rsqrt_()
        return torch.mul(h * scale, weight, out=h.new_empty(h.shape, dtype=self.dtype))

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
            k, v = torch.split(kv[:, :, start : start + past + count], 1)
            outs.append(self._attend_one(heads[at : at + count, : c.num_heads], k, v, past))
        return outs[0] if len(outs) == 1 else torch.cat(outs)

    def _attend_one(self, q: Tensor, k: Tensor, v: Tensor, past: int) -> Tensor:
        """q [n, heads, D] over k, v [1, kv_heads, past + n, D] -> [n, heads D]; heads of a group share their keys."""
        n, heads, dim = q.shape
        _, kv_heads, total, _ = k.shape
        group = heads // kv_heads
        window = self.config.sliding_window
        if n == 1:
            if window is not None and total > window:
                k, v = k[:, :, -window:], v[:, :, -window:]
            return F.scaled_dot_product_attention(q.view(1, kv_heads, group, dim), k, v).view(1, heads * dim)
        position = torch.arange(past, past + n, device=q.device).unsqueeze(1)
        key = torch.arange(total, device=q.device)
        mask = key <= position
        if window is not None:
            mask &= key > position - window
        grouped = q.reshape(n, kv_heads, group, dim).permute(1, 2, 0, 3)
        shape = (kv_heads, group, total, dim)
        k, v = k.transpose(0, 1).expand(shape), v.transpose(0, 1).expand(shape)
        out = F.scaled_dot_product_attention(grouped, k, v, attn_mask=mask)
        return out.permute(2, 0, 1, 3).reshape(n, heads * dim)


def _rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """In float32, as all families here do; weight is float32."""
    return F.rms_norm(x.float(), weight.shape, weight, eps).to(x.dtype)


def _rotate(x: Tensor, cos: Tensor, sin: Tensor) -> None:
    """In place on x [T, heads, D]: pairs are (d, d + D/2), so the partner of every element is half a head away."""
    torch.addcmul(x * cos, x.roll(x.shape[-1] // 2, dims=-1), sin, out=x)
