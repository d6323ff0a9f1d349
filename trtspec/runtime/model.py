"""A Llama-shaped decoder over packed weights: one forward pass over any mix of sequences."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from trtspec.runtime.batch import Span, make_batch
from trtspec.runtime.config import ModelConfig
from trtspec.runtime.ops import Ops
from trtspec.runtime.rope import rope_table

Tensor = torch.Tensor


@dataclass(frozen=True)
class Layer:
    """Shapes in config.py."""

    attn_norm: Tensor
    qkv: Tensor
    qkv_bias: Tensor | None
    qk_norms: tuple[Tensor, Tensor] | None
    o: Tensor
    o_bias: Tensor | None
    mlp_norm: Tensor
    gate_up: Tensor
    gate_up_bias: Tensor | None
    down: Tensor
    down_bias: Tensor | None


class Decoder:
    """``vocab`` rows of the output matrix are used: ids beyond (padding) get no logit and are never chosen."""

    def __init__(
        self, config: ModelConfig, tensors: dict[str, Tensor], ops: Ops, vocab: int | None, max_seq_len: int
    ) -> None:
        self.config = config
        self.ops = ops
        self.embed = tensors["embed.weight"]
        head = self.embed if config.tied else tensors["lm_head.weight"]
        self.head = head[:vocab] if vocab is not None else head
        self.layers = [_layer(tensors, index) for index in range(config.num_layers)]
        # Each layer ends with the next one's first norm, the last with the model's own.
        self.norms_after = [*(layer.attn_norm for layer in self.layers[1:]), tensors["norm.weight"]]
        cos, sin = rope_table(config.rope, config.head_dim, max_seq_len)
        self.cos, self.sin = ops.rope_tables(cos.to(self.embed.device), sin.to(self.embed.device))

    @property
    def dtype(self) -> torch.dtype:
        return self.embed.dtype

    @property
    def vocab_size(self) -> int:
        return self.head.shape[0]

    @torch.inference_mode()
    def forward(self, spans: list[Span], cache: Tensor) -> Tensor:
        """Logits [R, vocabulary] float32 of the rows the spans ask for, in order.

        ``cache`` [layers, 2, kv_heads, tokens, D]; the spans' keys and values are written into it.
        """
        batch = make_batch(spans, self.cos, self.sin)
        ops = self.ops
        h = self.embed[batch.tokens].to(ops.residual)
        x = ops.add_norm(h, None, self.layers[0].attn_norm)
        for index, layer in enumerate(self.layers):
            qkv = ops.linear(x, layer.qkv, layer.qkv_bias)
            attended = ops.attend(qkv, batch, cache[index], layer.qk_norms)
            x = ops.add_norm(h, ops.linear(attended, layer.o, layer.o_bias), layer.mlp_norm)
            inner = ops.silu_mul(ops.linear(x, layer.gate_up, layer.gate_up_bias))
            x = ops.add_norm(h, ops.linear(inner, layer.down, layer.down_bias), self.norms_after[index])
        wanted = x if batch.logit_rows is None else x[batch.logit_rows]
        return ops.logits(wanted, self.head)


def _layer(tensors: dict[str, Tensor], index: int) -> Layer:
    def get(name: str) -> Tensor:
        return tensors[f"layers.{index}.{name}"]

    def maybe(name: str) -> Tensor | None:
        return tensors.get(f"layers.{index}.{name}")

    q_norm, k_norm = maybe("q_norm.weight"), maybe("k_norm.weight")
    return Layer(
        attn_norm=get("attn_norm.weight"),
        qkv=get("qkv.weight"),
        qkv_bias=maybe("qkv.bias"),
        qk_norms=None if q_norm is None or k_norm is None else (q_norm, k_norm),
        o=get("o.weight"),
        o_bias=maybe("o.bias"),
        mlp_norm=get("mlp_norm.weight"),
        gate_up=get("gate_up.weight"),
        gate_up_bias=maybe("gate_up.bias"),
        down=get("down.weight"),
        down_bias=maybe("down.bias"),
    )
