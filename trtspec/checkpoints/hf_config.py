"""A Hugging Face config.json to a ModelConfig. What the reference runtime does not compute is refused by name.

Meanings and defaults are those of transformers' configuration classes (v4 and v5 spellings) of the families below.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from trtspec.checkpoints.layout import most
from trtspec.errors import CheckpointError
from trtspec.runtime.config import ModelConfig, RopeConfig

FAMILIES = ("llama", "mistral", "qwen2", "qwen3")
ROPE_TYPES = ("default", "linear", "dynamic", "llama3", "yarn")
_EXPERT_KEYS = ("num_local_experts", "num_experts", "n_routed_experts", "moe_intermediate_size")
_MULTIPLIERS = ("embedding_multiplier", "residual_multiplier", "attention_multiplier", "logits_scaling")


def model_config(config: Mapping[str, Any], where: Path) -> ModelConfig:
    return _Reader(config, where).read()


class _Reader:
    def __init__(self, config: Mapping[str, Any], where: Path) -> None:
        self.config, self.where = config, where

    def read(self) -> ModelConfig:
        family = self.family()
        self.refuse_foreign_features()
        heads = self.size("num_attention_heads")
        hidden = self.size("hidden_size")
        max_positions = self.size("max_position_embeddings", 2048 if family == "llama" else None)
        attention_bias = self.flag("attention_bias")
        return ModelConfig(
            family=family,
            vocab_size=self.size("vocab_size"),
            hidden_size=hidden,
            intermediate_size=self.size("intermediate_size"),
            num_layers=self.size("num_hidden_layers"),
            num_heads=heads,
            num_kv_heads=self.kv_heads(heads),
            head_dim=self.head_dim(family, hidden, heads),
            norm_eps=self.number("rms_norm_eps", 1e-6),
            max_positions=max_positions,
            rope=self.rope(max_positions),
            tied=self.flag("tie_word_embeddings"),
            qkv_bias=family == "qwen2" or (attention_bias and family != "mistral"),
            o_bias=attention_bias and family in ("llama", "qwen3"),
            mlp_bias=self.flag("mlp_bias") and family == "llama",
            qk_norm=family == "qwen3",
            sliding_window=self.sliding_window(family),
        )

    def family(self) -> str:
        family = self.config.get("model_type")
        if family not in FAMILIES:
            raise self.refused(
                f"model type {family!r} is not run", f"these are: {', '.join(FAMILIES)} (SmolLM2 is llama)"
            )
        return str(family)

    def refuse_foreign_features(self) -> None:
        for key in _EXPERT_KEYS:
            if self.config.get(key):
                raise self.refused(f"{key} = {self.config[key]}: mixtures of experts are not run", "use a dense model")
        for key in _MULTIPLIERS:
            if self.config.get(key, 1) not in (1, None):
                raise self.refused(f"{key} = {self.config[key]} is not run", "use a model without it")
        activation = self.config.get("hidden_act", "silu")
        if activation not in ("silu", "swish"):
            raise self.refused(f"hidden_act {activation!r} is not run", "silu is")
        partial = self.config.get("partial_rotary_factor", self.scaling().get("partial_rotary_factor"))
        if partial not in (None, 1):
            raise self.refused(f"partial_rotary_factor {partial} is not run", "heads are rotated whole")

    def kv_heads(self, heads: int) -> int:
        kv_heads = self.size("num_key_value_heads", heads)
        if heads % kv_heads:
            raise self.refused(f"{heads} heads cannot share {kv_heads} key/value heads", "the first must be a multiple")
        return kv_heads

    def head_dim(self, family: str, hidden: int, heads: int) -> int:
        if self.config.get("head_dim") is None and family != "qwen3" and hidden % heads:
            raise self.refused(f"hidden_size {hidden} is no multiple of {heads} heads", "set head_dim")
        head_dim = self.size("head_dim", 128 if family == "qwen3" else hidden // heads)
        if head_dim % 2:
            raise self.refused(f"head_dim {head_dim} is odd", "rotary position embedding turns pairs")
        return head_dim

    def sliding_window(self, family: str) -> int | None:
        window = self.config.get("sliding_window")
        kinds = set(self.config.get("layer_types") or ())
        if family != "mistral":
            if self.flag("use_sliding_window") or "sliding_attention" in kinds:
                raise self.refused(f"use_sliding_window of {family} is not run", "turn it off")
            window = None
        if kinds - {"full_attention", "sliding_attention"} or len(kinds) > 1:
            raise self.refused(f"layer_types {sorted(kinds)} are not run", "all layers attend alike")
        if kinds == {"full_attention"}:
            return None
        return None if window is None else self.size("sliding_window")

    def scaling(self) -> Mapping[str, Any]:
        """``rope_parameters`` (transformers 5) or ``rope_scaling`` (before)."""
        scaling = self.config.get("rope_parameters") or self.config.get("rope_scaling") or {}
        if not isinstance(scaling, dict) or any(isinstance(value, dict) for value in scaling.values()):
            raise self.refused("rotary parameters per layer type are not run", "all layers rotate alike")
        return scaling

    def rope(self, max_positions: int) -> RopeConfig:
        scaling = self.scaling()
        kind = scaling.get("rope_type", scaling.get("type", "default")) or "default"
        if kind not in ROPE_TYPES:
            raise self.refused(f"rope type {kind!r} is not run", f"these are: {', '.join(ROPE_TYPES)}")
        theta = self.number_of(scaling.get("rope_theta", self.config.get("rope_theta", 10000.0)), "rope_theta")
        original = scaling.get("original_max_position_embeddings") or self.config.get(
            "original_max_position_embeddings", max_positions
        )
        if kind == "default":
            return RopeConfig(theta=theta)
        factor = self.number_of(scaling.get("factor"), "rope factor")
        if kind == "linear":
            return RopeConfig("linear", theta, factor)
        if kind == "dynamic":
            return RopeConfig("dynamic", theta, factor, max_positions)
        original = self.count(original, "original_max_position_embeddings")
        if kind == "llama3":
            low = self.number_of(scaling.get("low_freq_factor", 1.0), "low_freq_factor")
            high = self.number_of(scaling.get("high_freq_factor", 4.0), "high_freq_factor")
            return RopeConfig("llama3", theta, factor, original, low, high)
        return self.yarn(scaling, theta, factor, original)

    def yarn(self, scaling: Mapping[str, Any], theta: float, factor: float, original: int) -> RopeConfig:
        if scaling.get("truncate") is False:
            raise self.refused("yarn with truncate: false is not run", "use a model without it")
        attention = scaling.get("attention_factor")
        if attention is None and scaling.get("mscale") and scaling.get("mscale_all_dim"):
            attention = _yarn_scale(factor, scaling["mscale"]) / _yarn_scale(factor, scaling["mscale_all_dim"])
        return RopeConfig(
            "yarn",
            theta,
            factor,
            original,
            attention_factor=None if attention is None else self.number_of(attention, "attention_factor"),
            beta_fast=self.number_of(scaling.get("beta_fast") or 32.0, "beta_fast"),
            beta_slow=self.number_of(scaling.get("beta_slow") or 1.0, "beta_slow"),
        )

    def size(self, key: str, default: int | None = None) -> int:
        value = self.config.get(key)
        return self.count(default if value is None else value, key)

    def count(self, value: Any, key: str) -> int:
        if type(value) is not int or value < 1:
            raise self.refused(f"{key} is {value!r}, not a positive count", "repair config.json")
        if value > most(key):
            raise self.refused(f"{key} is {value}, and {most(key)} is the most that is run", "repair config.json")
        return value

    def number(self, key: str, default: float) -> float:
        return self.number_of(self.config.get(key, default), key)

    def number_of(self, value: Any, key: str) -> float:
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value) or value <= 0:
            raise self.refused(f"{key} is {value!r}, not a positive number", "repair config.json")
        return float(value)

    def flag(self, key: str) -> bool:
        return bool(self.config.get(key, False))

    def refused(self, message: str, hint: str) -> CheckpointError:
        return CheckpointError(f"{self.where.name}: {message}", where=str(self.where), hint=hint)


def _yarn_scale(factor: float, mscale: float) -> float:
    return 1.0 if factor <= 1 else 0.1 * mscale * math.log(factor) + 1.0
