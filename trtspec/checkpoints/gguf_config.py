"""GGUF metadata to a ModelConfig. Key names: the GGUF specification and llama.cpp's gguf-py/gguf/constants.py."""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator
from typing import Any

from trtspec.checkpoints.gguf import GgufFile
from trtspec.checkpoints.layout import most
from trtspec.errors import CheckpointError
from trtspec.runtime.config import ModelConfig, RopeConfig

ARCHITECTURES = ("llama", "qwen2", "qwen3")  # Mistral and SmolLM2 files say llama
INTERLEAVED_ROTARY = ("llama",)  # q and k rows of these lie in pairs (x0 y0 x1 y1), not in halves
ROPE_FACTORS = "rope_freqs.weight"


def model_config(file: GgufFile, rope_factors: list[float] | None) -> ModelConfig:
    """``rope_factors`` are the values of ROPE_FACTORS (llama3 scaling), when the file has that tensor."""
    return _Reader(file, rope_factors).read()


class _Reader:
    def __init__(self, file: GgufFile, rope_factors: list[float] | None) -> None:
        self.file, self.rope_factors = file, rope_factors
        self.arch = self.architecture()

    def read(self) -> ModelConfig:
        if self.get("expert_count"):
            raise self.refused("mixtures of experts are not run", "use a dense model")
        heads, hidden = self.size("attention.head_count"), self.size("embedding_length")
        head_dim = self.head_dim(hidden, heads)
        max_positions = self.size("context_length")
        return ModelConfig(
            family=self.arch,
            vocab_size=self.vocab_size(),
            hidden_size=hidden,
            intermediate_size=self.size("feed_forward_length"),
            num_layers=self.size("block_count"),
            num_heads=heads,
            num_kv_heads=self.kv_heads(heads),
            head_dim=head_dim,
            norm_eps=self.number("attention.layer_norm_rms_epsilon"),
            max_positions=max_positions,
            rope=self.rope(head_dim, max_positions),
            tied="output.weight" not in self.file.tensors,
            qkv_bias="blk.0.attn_q.bias" in self.file.tensors,
            o_bias="blk.0.attn_output.bias" in self.file.tensors,
            mlp_bias="blk.0.ffn_gate.bias" in self.file.tensors,
            qk_norm=self.arch == "qwen3",
            sliding_window=self.sliding_window(),
        )

    def architecture(self) -> str:
        arch = self.file.metadata.get("general.architecture")
        if arch not in ARCHITECTURES:
            raise self.refused(f"architecture {arch!r} is not run", f"these are: {', '.join(ARCHITECTURES)}")
        if self.file.metadata.get("split.count", 1) not in (0, 1):
            raise self.refused("it is one part of a split model", "merge the parts with llama-gguf-split --merge")
        return str(arch)

    def vocab_size(self) -> int:
        embedding = self.file.tensors.get("token_embd.weight")
        if embedding is None:
            raise self.refused("tensor token_embd.weight is missing", "fetch the file again")
        return embedding.shape[0]

    def kv_heads(self, heads: int) -> int:
        kv_heads = self.size("attention.head_count_kv", heads)
        if heads % kv_heads:
            raise self.refused(f"{heads} heads cannot share {kv_heads} key/value heads", "the first must be a multiple")
        return kv_heads

    def head_dim(self, hidden: int, heads: int) -> int:
        head_dim = self.size("attention.key_length", hidden // heads)
        for key in ("attention.value_length", "rope.dimension_count"):
            if self.size(key, head_dim) != head_dim:
                raise self.refused(f"{key} {self.get(key)} differs from the head size {head_dim}", "this is not run")
        if head_dim % 2:
            raise self.refused(f"head size {head_dim} is odd", "rotary position embedding turns pairs")
        return head_dim

    def sliding_window(self) -> int | None:
        window = self.get("attention.sliding_window")
        if not window:
            return None
        if self.arch != "llama":
            raise self.refused(f"a sliding window of {self.arch} is not run", "use a model without it")
        return self.size("attention.sliding_window")

    def rope(self, head_dim: int, max_positions: int) -> RopeConfig:
        theta = self.number("rope.freq_base", 10000.0)
        kind = self.get("rope.scaling.type", "none")
        factor = self.get("rope.scaling.factor", self.get("rope.scale_linear", 1.0)) or 1.0
        if self.rope_factors is not None:
            if kind not in ("none", "llama3") and factor != 1.0:
                raise self.refused(f"{ROPE_FACTORS} together with rope scaling {kind!r} is not run", "use another file")
            return llama3_rope(theta, self.rope_factors, head_dim, str(self.file.path))
        if kind == "none" or (kind == "linear" and factor == 1.0):
            return RopeConfig(theta=theta)
        if kind == "linear":
            return RopeConfig("linear", theta, _shortest(factor))
        if kind == "yarn":
            return self.yarn(theta, _shortest(factor), max_positions)
        raise self.refused(f"rope scaling {kind!r} is not run", "these are: none, linear, yarn, and llama3's factors")

    def yarn(self, theta: float, factor: float, max_positions: int) -> RopeConfig:
        """llama.cpp multiplies rope.scaling.attn_factor into its own 0.1 ln(factor) + 1."""
        scale = self.get("rope.scaling.attn_factor")
        return RopeConfig(
            "yarn",
            theta,
            factor,
            self.size("rope.scaling.original_context_length", max_positions),
            attention_factor=None if scale is None else _shortest(scale) * (0.1 * math.log(factor) + 1.0),
            beta_fast=self.number("rope.scaling.yarn_beta_fast", 32.0),
            beta_slow=self.number("rope.scaling.yarn_beta_slow", 1.0),
        )

    def get(self, key: str, default: Any = None) -> Any:
        return self.file.metadata.get(f"{self.arch}.{key}", default)

    def size(self, key: str, default: int | None = None) -> int:
        value = self.get(key, default)
        if isinstance(value, list) and len(set(value)) == 1:
            value = value[0]
        if type(value) is not int or value < 1:
            raise self.refused(f"{self.arch}.{key} is {value!r}, not one positive count", "use another file")
        if value > most(key):
            raise self.refused(f"{self.arch}.{key} is {value}, and {most(key)} is the most that is run", "use another")
        return value

    def number(self, key: str, default: float | None = None) -> float:
        value = self.get(key, default)
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < math.inf:
            raise self.refused(f"{self.arch}.{key} is {value!r}, not a positive number", "use another file")
        return _shortest(float(value))

    def refused(self, message: str, hint: str) -> CheckpointError:
        return CheckpointError(f"{self.file.path.name}: {message}", where=str(self.file.path), hint=hint)


def llama3_rope(theta: float, factors: list[float], head_dim: int, where: str) -> RopeConfig:
    """The llama3 parameters that give these divisors of the inverse frequencies (one per pair of a head)."""
    for rope in _llama3_candidates(theta, factors, head_dim):
        again = [llama3_divisor(rope, theta ** (-2 * i / head_dim)) for i in range(head_dim // 2)]
        if len(again) == len(factors) and all(abs(a - b) <= 1e-3 * b for a, b in zip(again, factors, strict=True)):
            return rope
    raise CheckpointError(
        f"{ROPE_FACTORS} holds no scaling of type llama3, which is the only one it is read for",
        where=where,
        hint="use the safetensors checkpoint",
    )


def llama3_divisor(rope: RopeConfig, frequency: float) -> float:
    """By how much llama3 scaling divides one inverse frequency."""
    smooth = (rope.original_max_positions or 0) * frequency / (2 * math.pi) - rope.low_freq_factor
    share = min(1.0, max(0.0, smooth / (rope.high_freq_factor - rope.low_freq_factor)))
    return 1.0 / ((1 - share) / rope.factor + share)


def _llama3_candidates(theta: float, factors: list[float], head_dim: int) -> Iterator[RopeConfig]:
    """What every Llama 3 has, then a fit.

    Between the two wavelength bounds 1/divisor is linear in 1/wavelength, with slope original/(high - low) and offset
    low/(high - low); original is free (only ratios count) and set to 8192.
    """
    factor = round(max(factors, default=1.0), 4)
    if factor <= 1:
        return
    yield RopeConfig("llama3", theta, factor, 8192, 1.0, 4.0)
    points = [  # (1/wavelength, share of the unscaled frequency) clearly between the bounds
        (theta ** (-2 * i / head_dim) / (2 * math.pi), (factor / divisor - 1) / (factor - 1))
        for i, divisor in enumerate(factors)
        if 1.0001 < divisor < factor * 0.9999
    ]
    if len(points) < 2:
        return
    (x0, y0), (x1, y1) = points[0], points[-1]
    slope = (y1 - y0) / (x1 - x0)
    if slope <= 0 or slope * x0 <= y0:
        return
    width = 8192 / slope  # high - low
    low = width * (slope * x0 - y0)
    yield RopeConfig("llama3", theta, factor, 8192, low, low + width)


def _shortest(value: float) -> float:
    """A float32 read as float64 back to the decimal that was meant: 9.999999747378752e-06 to 1e-05."""
    short = float(f"{value:.7g}")
    return short if struct.pack("<f", short) == struct.pack("<f", value) else value
