"""The architecture of a decoder, as the reference runtime needs it. No torch here: headers are read without it."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

RopeType = Literal["default", "linear", "dynamic", "llama3", "yarn"]


@dataclass(frozen=True)
class RopeConfig:
    """Rotary position embedding. ``theta`` is the base; the other fields are read only by the types that name them."""

    type: RopeType = "default"
    theta: float = 10000.0
    factor: float = 1.0
    original_max_positions: int | None = None  # dynamic, llama3, yarn
    low_freq_factor: float = 1.0  # llama3
    high_freq_factor: float = 4.0  # llama3
    attention_factor: float | None = None  # yarn; None: 0.1 ln(factor) + 1
    beta_fast: float = 32.0  # yarn
    beta_slow: float = 1.0  # yarn


@dataclass(frozen=True)
class ModelConfig:
    """One Llama-shaped decoder. Sizes are counts; ``vocab_size`` is the rows of the output matrix, padding included."""

    family: str  # llama | mistral | qwen2 | qwen3 | smollm2 ... for messages only
    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    norm_eps: float
    max_positions: int
    rope: RopeConfig = RopeConfig()
    tied: bool = False  # output matrix = embedding
    qkv_bias: bool = False
    o_bias: bool = False
    mlp_bias: bool = False
    qk_norm: bool = False  # Qwen3: RMSNorm over head_dim on q and k before rope
    sliding_window: int | None = None  # Mistral: each token sees this many positions, itself included

    @property
    def kv_elements_per_token(self) -> int:
        """Elements of K and V together that one token takes over all layers."""
        return 2 * self.num_layers * self.num_kv_heads * self.head_dim

    def to_json(self) -> str:
        return json.dumps(dataclasses.asdict(self), indent=2)

    @staticmethod
    def from_dict(data: Mapping[str, Any]) -> ModelConfig:
        fields = dict(data)
        return ModelConfig(**{**fields, "rope": RopeConfig(**fields["rope"])})


# Tensor names of a packed checkpoint (one model.safetensors beside config.json). Shapes: V vocabulary, H hidden,
# I intermediate, D head size; q heads come first, then k, then v; gate first, then up.
#   embed.weight [V, H]                      norm.weight [H]            lm_head.weight [V, H] (absent when tied)
#   layers.{i}.attn_norm.weight [H]          layers.{i}.mlp_norm.weight [H]
#   layers.{i}.qkv.weight [(heads + 2 kv_heads) D, H]   layers.{i}.qkv.bias (qkv_bias)
#   layers.{i}.o.weight [H, heads D]         layers.{i}.o.bias (o_bias)
#   layers.{i}.gate_up.weight [2 I, H]       layers.{i}.down.weight [H, I]     .bias of both (mlp_bias)
#   layers.{i}.q_norm.weight [D]             layers.{i}.k_norm.weight [D]      (qk_norm)
# q and k rows are in the half-split (Hugging Face) rotary order. Norm weights are stored in float32, all else in the
# compute dtype.
PACKED_WEIGHTS = "model.safetensors"
PACKED_CONFIG = "config.json"
