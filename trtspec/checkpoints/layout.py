"""Which tensors a decoder of a given architecture has: those of a packed checkpoint, and the source tensors of each.

Roles are the names without fusing: ``layers.3.q.weight``. NAMES spell a role as Hugging Face or GGUF does.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from trtspec.runtime.config import ModelConfig

Naming = Literal["huggingface", "gguf"]
Shape = tuple[int, ...]
MOST_LAYERS = 10_000  # their tensors are listed by name
_MOST = 2**31 - 1

_NAMES: Mapping[Naming, Mapping[str, str]] = {
    "huggingface": {
        "embed": "model.embed_tokens",
        "norm": "model.norm",
        "lm_head": "lm_head",
        "layers": "model.layers",
        "attn_norm": "input_layernorm",
        "mlp_norm": "post_attention_layernorm",
        "q": "self_attn.q_proj",
        "k": "self_attn.k_proj",
        "v": "self_attn.v_proj",
        "o": "self_attn.o_proj",
        "q_norm": "self_attn.q_norm",
        "k_norm": "self_attn.k_norm",
        "gate": "mlp.gate_proj",
        "up": "mlp.up_proj",
        "down": "mlp.down_proj",
    },
    "gguf": {
        "embed": "token_embd",
        "norm": "output_norm",
        "lm_head": "output",
        "layers": "blk",
        "attn_norm": "attn_norm",
        "mlp_norm": "ffn_norm",
        "q": "attn_q",
        "k": "attn_k",
        "v": "attn_v",
        "o": "attn_output",
        "q_norm": "attn_q_norm",
        "k_norm": "attn_k_norm",
        "gate": "ffn_gate",
        "up": "ffn_up",
        "down": "ffn_down",
    },
}


def most(key: str) -> int:
    """The largest count that a key of a model's configuration may have."""
    return MOST_LAYERS if key in ("num_hidden_layers", "block_count") else _MOST


@dataclass(frozen=True)
class Part:
    """One source tensor. ``rotary_heads``: its rows are this many heads of q or k, each of which is rotated."""

    role: str
    shape: Shape
    rotary_heads: int | None = None


@dataclass(frozen=True)
class PackedTensor:
    """One tensor of a packed checkpoint: its parts one below the other. Norms stay in float32."""

    name: str
    parts: tuple[Part, ...]

    @property
    def shape(self) -> Shape:
        return (sum(part.shape[0] for part in self.parts), *self.parts[0].shape[1:])

    @property
    def is_norm(self) -> bool:
        return self.name.endswith("norm.weight")


def packed_tensors(config: ModelConfig) -> list[PackedTensor]:
    """In the order in which a forward pass reads them."""
    embedding = (config.vocab_size, config.hidden_size)
    tensors = [_single("embed.weight", embedding)]
    for layer in range(config.num_layers):
        tensors += _layer(config, f"layers.{layer}")
    tensors.append(_single("norm.weight", (config.hidden_size,)))
    if not config.tied:
        tensors.append(_single("lm_head.weight", embedding))
    return tensors


def required_tensors(config: ModelConfig, naming: Naming) -> dict[str, Shape]:
    """Name and shape of every tensor that a source checkpoint must have."""
    return {source_name(part.role, naming): part.shape for tensor in packed_tensors(config) for part in tensor.parts}


def source_name(role: str, naming: Naming) -> str:
    """``layers.3.q.weight`` as the checkpoint's format spells it."""
    names = _NAMES[naming]
    return ".".join(names.get(piece, piece) for piece in role.split("."))


def _layer(config: ModelConfig, at: str) -> Iterator[PackedTensor]:
    hidden, inner, head = config.hidden_size, config.intermediate_size, config.head_dim
    heads, kv_heads = config.num_heads, config.num_kv_heads
    projections = (("q", heads * head, heads), ("k", kv_heads * head, kv_heads), ("v", kv_heads * head, None))
    yield _single(f"{at}.attn_norm.weight", (hidden,))
    yield PackedTensor(
        f"{at}.qkv.weight", tuple(Part(f"{at}.{q}.weight", (rows, hidden), turns) for q, rows, turns in projections)
    )
    if config.qkv_bias:
        yield PackedTensor(
            f"{at}.qkv.bias", tuple(Part(f"{at}.{q}.bias", (rows,), turns) for q, rows, turns in projections)
        )
    if config.qk_norm:
        yield _single(f"{at}.q_norm.weight", (head,))
        yield _single(f"{at}.k_norm.weight", (head,))
    yield _single(f"{at}.o.weight", (hidden, heads * head))
    if config.o_bias:
        yield _single(f"{at}.o.bias", (hidden,))
    yield _single(f"{at}.mlp_norm.weight", (hidden,))
    yield _gate_up(f"{at}", "weight", (inner, hidden))
    if config.mlp_bias:
        yield _gate_up(f"{at}", "bias", (inner,))
    yield _single(f"{at}.down.weight", (hidden, inner))
    if config.mlp_bias:
        yield _single(f"{at}.down.bias", (hidden,))


def _single(name: str, shape: Shape) -> PackedTensor:
    return PackedTensor(name, (Part(name, shape),))


def _gate_up(at: str, kind: str, shape: Shape) -> PackedTensor:
    return PackedTensor(f"{at}.gate_up.{kind}", (Part(f"{at}.gate.{kind}", shape), Part(f"{at}.up.{kind}", shape)))
